"""Caps and the rate limit: how many slots become runs, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from celery_catchup.model import Instant, Plan, SkipReason


@dataclass(frozen=True, slots=True)
class Section:
    """Neighbouring candidates ``[start, stop)`` with the same decision; without a reason they run."""

    start: int
    stop: int
    reason: SkipReason | None = None


def sections(
    count: int,
    *,
    room: int | None,
    replacing: bool,
    cap: int | None,
    allowance: int | None,
    latest: bool,
    newest: bool,
) -> tuple[Section, Section, Section]:
    """Divide ``count`` candidates, oldest first, into those before the ones that run, these, and the rest.

    ``cap`` is what ``max_runs`` still allows, ``allowance`` the entry's share of ``catchup_max_runs``.
    Caps count dispatched runs: a slot is ``cap_exceeded`` only when a cap is used up. So if the overlap
    policy leaves less room than the caps, the reason is ``guard_blocked``. ``newest``: which end survives
    ``max_runs``; if the entry selects its ``latest`` slots, that end survives both caps.
    """
    cap = None if cap is None else max(0, cap)
    if replacing:
        first, end = max(0, count - 1), count if cap != 0 and allowance != 0 else max(0, count - 1)
        before, after = SkipReason.SUPERSEDED, SkipReason.CAP_EXCEEDED
    elif room is not None and (cap is None or room < cap) and (allowance is None or room <= allowance):
        # A share is never larger than the room; one of the same size was not cut by the cap.
        first, end = 0, min(count, room)
        before = after = SkipReason.GUARD_BLOCKED
    else:
        first, end = _kept(*_kept(0, count, cap, newest=latest or newest), allowance, newest=latest)
        before = after = SkipReason.CAP_EXCEEDED
    return Section(0, first, before), Section(first, end), Section(end, count, after)


def _kept(start: int, stop: int, cap: int | None, *, newest: bool) -> tuple[int, int]:
    """Return the positions from ``start`` to ``stop`` that a cap keeps."""
    if cap is None:
        return start, stop
    return (max(start, stop - cap), stop) if newest else (start, min(stop, start + cap))


def earliest_send(last_sent: Instant | None, *, pause: int, now: Instant) -> Instant:
    """Return when the next catch-up run may be sent: ``pause`` milliseconds after the one before."""
    return now if last_sent is None else max(now, last_sent + pause)


def share(plans: Sequence[Plan], cap: int) -> list[int]:
    """Divide a cap among plans, the oldest slots of all entries first; return the runs of each."""
    streams = ([(run.slot, index) for run in plan.runs] for index, plan in enumerate(plans))
    kept = [0] * len(plans)
    for _, index in islice(merge(*streams), cap):
        kept[index] += 1
    return kept
