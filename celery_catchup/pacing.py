"""Pacing: how many runs of an entry may join, and how fast.

Three questions, all pure: `room` when slots arrive, `earliest_send` between two catch-up
dispatches, `share` when many are caught up.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from celery_catchup.model import Instant, Plan
from celery_catchup.policy import OverlapPolicy, Policy


def room(policy: Policy, *, active: int, waiting: int) -> int | None:
    """How many new slots may become runs; None when there is no limit.

    The first ones take the room; what comes after them is skipped. `REPLACING` policies
    make room by ending what is active, for the latest slot only.
    """
    match policy.overlap_policy:
        case OverlapPolicy.SKIP:
            return max(0, 1 - active - waiting)
        case OverlapPolicy.BUFFER_ONE:
            return max(0, 2 - active - waiting)
        case OverlapPolicy.ALL if policy.max_pending is not None:
            return max(0, policy.max_active_runs + policy.max_pending - active - waiting)
        case _:
            return None


def earliest_send(last_sent: Instant | None, *, pause: int, now: Instant) -> Instant:
    """When the next catch-up run may be sent: ``pause`` milliseconds after the one before."""
    return now if last_sent is None else max(now, last_sent + pause)


def share(plans: Sequence[Plan], cap: int) -> list[int]:
    """How many runs each plan may keep of ``cap`` in all: the oldest slots of all entries first."""
    streams = ([(run.slot, index) for run in plan.runs] for index, plan in enumerate(plans))
    kept = [0] * len(plans)
    for _, index in islice(merge(*streams), cap):
        kept[index] += 1
    return kept


REPLACING = frozenset({OverlapPolicy.CANCEL_OTHER, OverlapPolicy.TERMINATE_OTHER})
"""Policies under which a new run ends the active ones."""
