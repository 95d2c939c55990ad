"""Pause and resume entries: beat decides no slot of a paused entry."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from celery_catchup.errors import TooManySlotsError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import Preview, preview
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import AuditAction, StoredState
from celery_catchup.store.controls import with_resumed_entries
from celery_catchup.store.states import held_entries
from celery_catchup.store.store import read_json

logger = logging.getLogger(__name__)

_ADVICE = "Celery's own rules know no pause: set it to False in catchup_entries to be able to"


@dataclass(frozen=True, slots=True)
class Paused:
    """Whether an entry is paused now, and whether that is a change."""

    entry: str
    paused: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Resumption:
    """Entries that were, or would be, resumed, and what their catch-up would do."""

    entries: tuple[Paused, ...]
    previews: tuple[Preview, ...]


def pause(
    operator: Operator, names: Sequence[str], *, reason: str = "", dry_run: bool = False
) -> list[Paused]:
    """Pause these entries: no slot of them is decided any more; runs in flight go on."""
    wanted = operator.with_policy(names, advice=_ADVICE)
    stored, now = operator.read_for_change(), operator.now()
    pausable = [name for name in wanted if not _pause(stored, name).get("paused")]
    change = operator.change(AuditAction.PAUSE, pausable, reason=reason)
    entries, done = [], 0
    for name in wanted:
        changed = name in pausable
        if changed and not dry_run:
            so_far = change.so_far(done + 1, len(pausable))
            changed = operator.controls.pause(name, change=so_far, now=now, reason=reason)
            done += changed
            logger.info(logfmt("Entry paused", entry=name, reason=reason, by=operator.by))
        entries.append(Paused(name, paused=True, changed=changed))
    return entries


def resume(
    operator: Operator,
    names: Sequence[str],
    *,
    catchup: bool = True,
    dry_run: bool = False,
    with_previews: bool = True,
    action: AuditAction = AuditAction.RESUME,
) -> Resumption:
    """Resume these entries. What they missed is caught up as their policies say, or, without ``catchup``,
    skipped; the previews show what that means now, unless they have more slots than can be previewed."""
    wanted = operator.with_policy(names, advice=_ADVICE)
    stored = operator.read_for_change()
    now = operator.now()
    resumable = [name for name in wanted if _pause(stored, name).get("paused")]
    ahead = with_resumed_entries(stored, resumable, now, discard=not catchup)
    previews: list[Preview] = []
    if resumable and with_previews:
        with suppress(TooManySlotsError):
            previews = preview(operator, resumable, stored=ahead)
    change = operator.change(action, resumable, discard=not catchup)
    entries, done = [], 0
    for name in wanted:
        changed = name in resumable
        if changed and not dry_run:
            so_far = change.so_far(done + 1, len(resumable))
            changed = operator.controls.resume(name, change=so_far, discard=not catchup, now=now)
            done += changed
            logger.info(logfmt("Entry resumed", entry=name, catchup=catchup, by=operator.by))
        entries.append(Paused(name, paused=False, changed=changed))
    return Resumption(tuple(entries), tuple(previews))


def approve(operator: Operator, names: Sequence[str], *, dry_run: bool = False) -> Resumption:
    """Run the catch-ups of held entries; without names those of all."""
    return resume(operator, _held(operator, names), dry_run=dry_run, action=AuditAction.APPROVE)


def discard_held(operator: Operator, names: Sequence[str], *, dry_run: bool = False) -> Resumption:
    """Skip the catch-ups of held entries as ``discarded``."""
    held = _held(operator, names)
    return resume(operator, held, catchup=False, dry_run=dry_run, action=AuditAction.DISCARD)


def _held(operator: Operator, names: Sequence[str]) -> Sequence[str]:
    """Return the held ones of these entries, or of all; refuse a name that is not held."""
    stored = operator.read_for_change()
    held = sorted(held_entries(stored))
    wanted: list[str] = []
    for written in names:
        found = [name for name in operator.with_policy([written], advice=_ADVICE) if name in held]
        if not found:
            raise RefusedError(f"entry {written!r} is not held; held entries: {', '.join(held) or 'none'}")
        wanted += found
    return tuple(dict.fromkeys(wanted if names else held))


def pausable(operator: Operator, written: str) -> tuple[str, ...]:
    """Return the entries of a name or pattern; raise `UnknownEntryError` or `NoPolicyError` if none can be
    paused."""
    return operator.with_policy([written], advice=_ADVICE)


def _pause(stored: StoredState, name: str) -> dict[str, Any]:
    return read_json(stored.paused.get(name)) or {}
