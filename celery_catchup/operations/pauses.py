"""Pause and resume entries: beat decides no slot of a paused entry."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from celery_catchup.errors import TooManySlotsError
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import Instant
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import Preview, preview
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import StoredState
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
    entries = []
    for name in wanted:
        changed = not _pause(stored, name).get("paused")
        if changed and not dry_run:
            changed = operator.controls.pause(name, now=now, reason=reason, by=operator.by)
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
    entries = []
    for name in wanted:
        changed = name in resumable
        if changed and not dry_run:
            changed = operator.controls.resume(name, discard=not catchup, now=now)
            logger.info(logfmt("Entry resumed", entry=name, catchup=catchup, by=operator.by))
        entries.append(Paused(name, paused=False, changed=changed))
    return Resumption(tuple(entries), tuple(previews))


def with_resumed_entries(
    stored: StoredState, names: Sequence[str], now: Instant, *, discard: bool = False
) -> StoredState:
    """Return the state after these paused entries were resumed."""
    resumed = {"paused": False, "resumed": now, "discard": discard}
    after = {name: json.dumps(_pause(stored, name) | resumed) for name in names}
    return replace(stored, paused={**stored.paused, **after})


def approve(operator: Operator, names: Sequence[str], *, dry_run: bool = False) -> Resumption:
    """Run the catch-ups of held entries; without names those of all."""
    return resume(operator, _held(operator, names), dry_run=dry_run)


def discard_held(operator: Operator, names: Sequence[str], *, dry_run: bool = False) -> Resumption:
    """Skip the catch-ups of held entries as ``discarded``."""
    return resume(operator, _held(operator, names), catchup=False, dry_run=dry_run)


def _held(operator: Operator, names: Sequence[str]) -> Sequence[str]:
    """Return the held ones of these entries, or of all; refuse a name that is not held."""
    stored = operator.read_for_change()
    pauses = {name: _pause(stored, name) for name in stored.paused}
    held = [name for name, one in pauses.items() if one.get("paused") and one.get("held")]
    for name in operator.with_policy(names, advice=_ADVICE) if names else ():
        if name not in held:
            raise RefusedError(f"entry {name!r} is not held; held entries: {', '.join(held) or 'none'}")
    return names or tuple(held)


def check_pausable(operator: Operator, name: str) -> None:
    """Raise `UnknownEntryError` or `NoPolicyError` if the entry cannot be paused."""
    operator.with_policy([name], advice=_ADVICE)


def _pause(stored: StoredState, name: str) -> dict[str, Any]:
    return read_json(stored.paused.get(name)) or {}
