"""Repair stored values that cannot be right, after a confirmation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery_catchup.engine.takeover import SKEW, parse_instant
from celery_catchup.error_text import shown
from celery_catchup.events.command_lines import command_line
from celery_catchup.model import Instant, to_rfc3339
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Results, failure, ok, warning
from celery_catchup.operations.watermarks import list_orphans
from celery_catchup.store import AuditAction


@dataclass(frozen=True)
class Repair:
    """Something that cannot be right, and the function that repairs it."""

    what: str
    fix: str
    do: Callable[[], Any]


def repairs(operator: Operator) -> list[Repair]:
    """List everything that can be repaired now."""
    # With a key of the wrong type nothing else can be read, stored entries included.
    strange = list(_strange_keys(operator, operator.declared_schedule))
    strange = strange or list(_strange_keys(operator, operator.schedule))
    return strange or list(_watermarks(operator))


def stored_state(operator: Operator) -> Results:
    """Check that the stored state can be right, and belongs to declared entries."""
    found = repairs(operator)
    for one in found:
        yield failure(one.what, f"{one.fix}: {command_line('doctor', '--fix')}")
    if not found:
        yield ok("everything can be read")
        for name in list_orphans(operator):
            rename = command_line("watermark", "rename", name, "NEW")
            forget = command_line("forget", name)
            yield warning(
                f"entry {shown(name)} is orphaned: it is stored, but not declared any more",
                f"if it was renamed: {rename}; if it was removed: {forget}",
            )


def _strange_keys(operator: Operator, entries: Iterable[str]) -> Iterator[Repair]:
    keys = operator.store.keys
    # The audit trail first, so that it can take the records of the other repairs.
    wanted = sorted(keys.kinds(entries), key=lambda one: one[0] not in (keys.audit, keys.audit_times))
    with operator.store.client.pipeline(transaction=False) as pipe:
        for key, _ in wanted:
            pipe.type(key)
        kinds = pipe.execute()
    for (key, kind), found in zip(wanted, kinds, strict=True):
        if found.decode() not in (kind, "none"):
            yield Repair(
                f"key {shown(key)} is a {found.decode()}, expected a {kind}: another program writes to it",
                f"rename it to {shown(key + ':set-aside')}, and continue without it",
                partial(
                    operator.controls.set_aside,
                    key,
                    change=operator.change(AuditAction.REPAIR, targets=[key], set_aside=f"{key}:set-aside"),
                ),
            )


def _watermarks(operator: Operator) -> Iterator[Repair]:
    known, now = operator.read_stored(), operator.now()
    problem = None if known.watermark is None else _problem(known.watermark, now)
    if problem is not None:
        yield Repair(
            f"the scheduler's watermark is {problem}",
            f"set it to {to_rfc3339(now)}; nothing is replayed",
            partial(
                operator.controls.move_watermarks,
                [],
                now,
                change=operator.change(AuditAction.REPAIR, watermark=to_rfc3339(now), scheduler=True),
                scheduler=True,
            ),
        )
    for name, text in known.decided.items():
        problem = _problem(text, now)
        if problem is not None:
            yield Repair(
                f"the watermark of entry {shown(name)} is {problem}",
                f"reset it to {to_rfc3339(now)}; what it missed is dropped",
                partial(
                    operator.controls.move_watermarks,
                    [name],
                    now,
                    change=operator.change(AuditAction.REPAIR, [name], watermark=to_rfc3339(now)),
                ),
            )


def _problem(text: str, now: Instant) -> str | None:
    at = parse_instant(text)
    if at is None:
        return f"{shown(text[:40])}, which is not a time"
    return f"{to_rfc3339(at)}, in the future" if at > now + SKEW else None
