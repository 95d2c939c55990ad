"""Start runs by hand, from a command or from code: a whole run, or only the headers for a message."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from celery import current_app

from celery_catchup.dispatch import header_names as names
from celery_catchup.error_text import shown
from celery_catchup.events import RunDispatched, notify_subscribers
from celery_catchup.events.command_lines import backfill_line
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
from celery_catchup.operations.previews import preview
from celery_catchup.operations.refusals import KeyReusedError, RefusedError
from celery_catchup.operations.runs import Run, run_of
from celery_catchup.planning.entry import Entry, Role
from celery_catchup.store import Actor, AuditAction, StoredState
from celery_catchup.store.controls import with_resumed_entries
from celery_catchup.store.store import read_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was started by hand; ``run`` is null after a dry run. It counts for ``passed_over`` missed
    slots that were still to be caught up: they are skipped (``manual_run``)."""

    run_id: str
    entry: str
    scheduled_time: datetime
    dispatch: str
    passed_over: int
    run: Run | None = None


def start_run(
    operator: Operator,
    name: str,
    *,
    at: datetime | None = None,
    keep_missed: bool = False,
    dry_run: bool = False,
) -> StartedRun:
    """Start the run of a slot, or one for this moment.

    It counts for the slots before this moment: those that were still to be caught up are skipped
    (``manual_run``), unless ``keep_missed``. A slot that has its run already is refused.
    """
    return start_once(operator, name, at=at, keep_missed=keep_missed, dry_run=dry_run)[0]


def start_once(
    operator: Operator,
    name: str,
    *,
    at: datetime | None = None,
    keep_missed: bool = False,
    key: str | None = None,
    dry_run: bool = False,
) -> tuple[StartedRun, bool]:
    """Start a run unless the same person has started one with this key, or it is a dry run; return the
    run, and whether it is new."""
    operator.one(name)
    stored, now = operator.read_for_change([name]), operator.now()
    tracked = operator.tracked(stored, now, [name]).get(name)
    entry = None if tracked is None else tracked.entry
    slot = Slot(now) if at is None else _slot(name, entry, to_instant(at), now)
    namespace = operator.store.namespace
    identity = run_id(namespace, name, slot) if entry is None else entry.run_id(namespace, slot)
    request_key = None if key is None else sha256(f"{operator.by}\0{key}".encode()).hexdigest()
    if request_key is not None and at is None:  # the same run for both requests, whenever they come
        identity = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{namespace}\0{request_key}"))
    if (existing := operator.ledger.run(identity)) is not None:
        return _repeated(operator, identity, name, slot, existing, request_key), False
    record = _record(operator, name, slot.at, slot.schedule)
    if entry is not None:
        previous = entry.schedules[slot.schedule].timetable.previous_before(slot.at)
        record |= entry.version_fields | ({} if previous is None else {"previous": previous})
    template = operator.sender.template(
        operator.schedule[name], policy_entry=name, run_id=identity, run=record
    )
    record |= {"template": template.id, "by": operator.by}
    record |= {} if request_key is None else {"request_key": request_key}
    passed_over = 0 if keep_missed else _pending(operator, name, stored, slot, now)
    started = StartedRun(identity, name, to_datetime(slot.at), str(operator.sender.mode), passed_over)
    if dry_run:
        return started, False
    change = operator.change(
        AuditAction.RUN,
        [name],
        [identity],
        at=None if at is None else to_rfc3339(slot.at),
        keep_missed=keep_missed,
        passed_over=passed_over,
    )
    if not operator.controls.start(
        identity, record, template, change=change, now=now, keep_missed=keep_missed
    ):
        existing = operator.ledger.run(identity) or {}
        return _repeated(operator, identity, name, slot, existing, request_key), False
    logger.info(logfmt("Run started by hand", entry=name, run_id=identity, by=operator.by))
    notify_subscribers(RunDispatched(name, PlannedRun(slot, Trigger.MANUAL, now), identity))
    operator.sender.sent_events.pushed_runs(operator.ledger, [identity])
    found = operator.ledger.run(identity)
    return replace(started, run=None if found is None else run_of({"id": identity, **found})), True


def _repeated(
    operator: Operator,
    identity: str,
    name: str,
    slot: Slot,
    record: Mapping[str, Any],
    request_key: str | None,
) -> StartedRun:
    """Return the run that an earlier request with this key has started; raise `RefusedError` if the run was
    not started so."""
    if request_key is None or record.get("request_key") != request_key:
        raise _has_run(identity, name, slot, record)
    run = run_of({"id": identity, **record})
    if run.entry != name:
        raise KeyReusedError(f"the idempotency key belongs to run {identity} of {run.entry}; send a new key")
    return StartedRun(identity, name, run.scheduled_time, str(operator.sender.mode), 0, run)


def trigger(
    app: Any, entry: str, *, at: datetime | None = None, keep_missed: bool = False, actor: str = ""
) -> str:
    """Start a run of an entry now, or of its slot ``at``; return the run's id.

    It counts: slots missed before it are skipped (``manual_run``), unless ``keep_missed``. ``actor`` is the
    user or program that asks for it, for the audit trail; by default the user of this process.
    """
    with closing(Operator(app, actor=Actor.in_python(actor), only=entry)) as operator:
        return start_run(operator, entry, at=at, keep_missed=keep_missed).run_id


def run_headers(entry: str, *, app: Any = None, actor: str = "") -> dict[str, Any]:
    """Return headers that make a message of your own a manual run of an entry:
    ``etl.apply_async(headers=run_headers("hourly-etl"))``.

    The run is recorded now; send one message with them, of the entry's own task.
    """
    app = current_app._get_current_object() if app is None else app
    with closing(Operator(app, actor=Actor.in_python(actor), only=entry)) as operator:
        name = operator.one(entry)
        identity, now = str(uuid.uuid4()), operator.now()
        record = _record(operator, name, now, 0) | {"by": operator.by}
        change = operator.change(AuditAction.RUN, [name], [identity])
        operator.controls.record_manual_run(identity, record, change=change, now=now)
        notify_subscribers(RunDispatched(name, PlannedRun(Slot(now), Trigger.MANUAL, now), identity))
    return {
        names.RUN_ID: identity,
        names.ENTRY: name,
        names.TRIGGER_TYPE: str(Trigger.MANUAL),
        names.SCHEDULED_TIME: to_rfc3339(now),
        names.IS_CATCHUP: False,
        names.DATA_INTERVAL_END: to_rfc3339(now),
    }


def _record(operator: Operator, name: str, at: Instant, schedule: int) -> dict[str, Any]:
    return {
        "entry": name,
        "task": str(operator.schedule[name].task),
        "schedule": schedule,
        "slot": at,
        "trigger": str(Trigger.MANUAL),
    }


def _pending(operator: Operator, name: str, stored: StoredState, slot: Slot, now: Instant) -> int:
    """Count the missed slots, except this one, that a catch-up would run; of a paused entry, after its
    resume."""
    if name not in operator.declared:
        return 0
    paused = [name] if (read_json(stored.paused.get(name)) or {}).get("paused") else []
    (found,) = preview(operator, [name], stored=with_resumed_entries(stored, paused, now))
    this = to_datetime(slot.at)
    return sum(one.action == "dispatch" and one.scheduled_time != this for one in found.slots)


def _slot(name: str, entry: Entry | None, at: Instant, now: Instant) -> Slot:
    """Return the slot at that instant; if several schedules have it, that of the first declared."""
    if entry is None:
        raise RefusedError(f"the schedule of entry {shown(name)} does not list its slots; leave out the time")
    if at > now:
        raise RefusedError(f"{to_rfc3339(at)} is in the future; its slot will run by itself")
    starting = [index for index, one in enumerate(entry.schedules) if one.role is not Role.STOP]
    for index in starting:
        if entry.has_slot(Slot(at, index)):
            return Slot(at, index)
    near = " and ".join(map(to_rfc3339, _nearest(entry, starting, at)))
    advice = f"the nearest are {near}" if near else "it has none, between its start_date and end_date"
    raise RefusedError(f"{to_rfc3339(at)} is not a slot of entry {shown(name)}; {advice}")


def _nearest(entry: Entry, schedules: list[int], at: Instant) -> list[Instant]:
    """Return the slots before and after an instant, between the entry's dates."""
    before, after = [], []
    for index in schedules:
        bounds, table = entry.bounds[index], entry.schedules[index].timetable
        earlier = table.previous_before(at if bounds.until is None else min(at, bounds.until + 1))
        if earlier is not None and (bounds.after is None or earlier > bounds.after):
            before.append(earlier)
        if (later := entry.next_run_after(index, at)) is not None:
            after.append(later)
    return sorted(before)[-1:] + sorted(after)[:1]


def _has_run(identity: str, name: str, slot: Slot, record: Mapping[str, Any]) -> RefusedError:
    when, state = to_rfc3339(slot.at), record.get("state", "there")
    again = backfill_line(name, slot.at, slot.at, "--reprocess", "completed")
    return RefusedError(
        f"slot {when} of entry {shown(name)} has its run already: {identity} ({state}); once more: {again}"
    )
