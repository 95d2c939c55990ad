"""Start runs by hand, from a command or from code: a whole run, or only the headers for a message."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from celery import current_app

from celery_catchup.dispatch import header_names as names
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.error_text import shown
from celery_catchup.events import RunDispatched, notify_subscribers
from celery_catchup.events.log_lines import logfmt
from celery_catchup.model import (
    Instant,
    PlannedRun,
    Slot,
    Trigger,
    run_id,
    to_datetime,
    to_instant,
    to_rfc3339,
)
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.operations.runs import Run, run_of
from celery_catchup.planning.entry import Entry, Role

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was started by hand; ``run`` is null when it was only asked what would be started."""

    run_id: str
    entry: str
    scheduled_time: datetime
    dispatch: str
    run: Run | None = None


def start_run(
    operator: Operator, name: str, *, at: datetime | None = None, dry_run: bool = False
) -> StartedRun:
    """Start the run of a slot, or one for this very moment.

    From then on the slots before this moment count as done by hand: they are not caught up any
    more. A slot that has its run already is refused.
    """
    (entry,) = operator.in_schedule([name])
    stored, now = operator.read_for_change([entry]), operator.now()
    line = operator.tracked(stored, now, [entry]).get(entry)
    slot = Slot(now) if at is None else _slot(entry, line, to_instant(at), now)
    identity = _identity(operator, entry, line, slot)
    before = operator.ledger.run(identity)
    if before is not None:
        raise RefusedError(_has_its_run(identity, entry, slot, before))
    made = _make(operator, entry, line, slot, identity)
    if dry_run:
        return StartedRun(identity, entry, to_datetime(slot.at), made["mode"])
    if not operator.controls.start(identity, made["record"], made["template"], now=now):
        raise RefusedError(_has_its_run(identity, entry, slot, operator.ledger.run(identity) or {}))
    logger.info(logfmt("Run started by hand", entry=entry, run_id=identity, by=operator.by))
    notify_subscribers(RunDispatched(entry, PlannedRun(slot, Trigger.MANUAL, now), identity))
    operator.sender.sent_events.pushed_runs(operator.ledger, [identity])
    record = operator.ledger.run(identity)
    run = None if record is None else run_of({"id": identity, **record})
    return StartedRun(identity, entry, to_datetime(slot.at), made["mode"], run)


def trigger(app: Any, entry: str, *, at: datetime | None = None) -> str:
    """Start a run of an entry now, or of its slot ``at``; the run's id.

    It counts: slots missed before it are not caught up any more.
    """
    operator = Operator(app, only=entry)
    try:
        return start_run(operator, entry, at=at).run_id
    finally:
        operator.close()


def run_headers(entry: str, *, app: Any = None) -> dict[str, Any]:
    """Headers that make a message of your own a manual run of an entry:
    ``etl.apply_async(headers=run_headers("hourly-etl"))``.

    The run is recorded now; send one message with them, of the entry's own task.
    """
    operator = Operator(current_app._get_current_object() if app is None else app, only=entry)
    try:
        (name,) = operator.in_schedule([entry])
        run_id, now = str(uuid.uuid4()), operator.now()
        record = {
            "entry": name,
            "task": str(operator.schedule[name].task),
            "schedule": 0,
            "slot": now,
            "trigger": str(Trigger.MANUAL),
        }
        operator.controls.enlist(run_id, record, now=now)
        notify_subscribers(RunDispatched(name, PlannedRun(Slot(now), Trigger.MANUAL, now), run_id))
    finally:
        operator.close()
    return {
        names.RUN_ID: run_id,
        names.ENTRY: name,
        names.TRIGGER_TYPE: str(Trigger.MANUAL),
        names.SCHEDULED_TIME: to_rfc3339(now),
        names.IS_CATCHUP: False,
        names.DATA_INTERVAL_END: to_rfc3339(now),
    }


def _slot(entry: str, line: TrackedEntry | None, at: Instant, now: Instant) -> Slot:
    """The slot at that instant; the first declared of several."""
    if line is None:
        raise RefusedError(
            f"the schedule of entry {shown(entry)} does not tell its slots; leave out the time"
        )
    if at > now:
        raise RefusedError(f"{to_rfc3339(at)} is in the future; its slot will run by itself")
    starting = [i for i, schedule in enumerate(line.entry.schedules) if schedule.role is not Role.STOP]
    for index in starting:
        if line.entry.has_slot(Slot(at, index)):
            return Slot(at, index)
    near = _nearest(line.entry, starting, at)
    told = " and ".join(to_rfc3339(slot) for slot in near)
    advice = f"the nearest are {told}" if near else "it has none, between its start_date and end_date"
    raise RefusedError(f"{to_rfc3339(at)} is no slot of entry {shown(entry)}; {advice}")


def _nearest(entry: Entry, schedules: list[int], at: Instant) -> list[Instant]:
    """The slots before and after an instant, between the entry's dates."""
    before, after = [], []
    for index in schedules:
        bounds, table = entry.bounds[index], entry.schedules[index].timetable
        earlier = table.previous_before(at if bounds.until is None else min(at, bounds.until + 1))
        if earlier is not None and (bounds.after is None or earlier > bounds.after):
            before.append(earlier)
        if (later := entry.next_after(index, at)) is not None:
            after.append(later)
    return [*([max(before)] if before else []), *([min(after)] if after else [])]


def _identity(operator: Operator, entry: str, line: TrackedEntry | None, slot: Slot) -> str:
    if line is not None:
        return line.entry.run_id(operator.store.namespace, slot)
    return run_id(operator.store.namespace, entry, slot)


def _make(
    operator: Operator, entry: str, line: TrackedEntry | None, slot: Slot, identity: str
) -> dict[str, Any]:
    """Record and message of the run, and how it reaches the broker."""
    record: dict[str, Any] = {
        "entry": entry,
        "task": str(operator.schedule[entry].task),
        "schedule": slot.schedule,
        "slot": slot.at,
        "trigger": str(Trigger.MANUAL),
        **({} if line is None else line.entry.version_fields),
    }
    previous = (
        None if line is None else line.entry.schedules[slot.schedule].timetable.previous_before(slot.at)
    )
    record |= {} if previous is None else {"previous": previous}
    template = operator.sender.template(
        operator.schedule[entry], policy_entry=entry, run_id=identity, run=record
    )
    record |= {"template": template.id, "by": operator.by}
    return {"record": record, "template": template, "mode": str(operator.sender.mode)}


def _has_its_run(identity: str, entry: str, slot: Slot, record: dict[str, Any]) -> str:
    state = record.get("state", "there")
    when = to_rfc3339(slot.at)
    again = f"celery catchup backfill {entry} --start {when} --end {when} --reprocess completed"
    return (
        f"slot {when} of entry {shown(entry)} has its run already: {identity} ({state}); once more: {again}"
    )
