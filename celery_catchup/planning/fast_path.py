"""The plan of a healthy tick: one live slot, of which no rule has anything to say.

Thousands of entries may be due at once, each with such a plan. It is what the planner's rules give,
found without asking each of them; a property test holds the two together.
"""

from __future__ import annotations

from celery_catchup.model import Plan, PlannedRun, Slot, Trigger
from celery_catchup.planning.entry import Entry, EntryState
from celery_catchup.planning.overlap import room
from celery_catchup.planning.scope import Scope


def lone_run(entry: Entry, state: EntryState, scope: Scope) -> Plan | None:
    """One live slot of the one schedule, and room for it; None when it is not so simple."""
    if not entry.is_simple or scope.backfill or scope.dropped or state.used is not None:
        return None
    reach = scope.reaches[0]
    after, until = reach.after, reach.until
    if reach.floor != after or state.existing or not _has_room(entry, state):
        return None
    table = entry.schedules[0].timetable
    at = table.next_after(after)
    if at is None or at > until or scope.now - at > entry.misfire_threshold:
        return None
    following, end = table.next_after(at), entry.bounds[0].until
    if following is not None and following <= until:
        return None
    return Plan(
        entry.name,
        after,
        (PlannedRun(Slot(at, 0), Trigger.SCHEDULER, at),),
        (),
        max(scope.now, after),
        following if following is None or end is None or following <= end else None,
    )


def _has_room(entry: Entry, state: EntryState) -> bool:
    policy = entry.policy
    if policy.skip_if_successful and state.manual_success is not None:
        return False
    free = room(policy, active=state.active, waiting=state.waiting)
    return free is None or free > 0
