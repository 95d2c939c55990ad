"""From a plan to what the store commits: run records, messages and spans."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from celery_catchup.config.overlap_policy import Replaces
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, Plan, PlannedRun, Skip, SkipReason, Trigger
from celery_catchup.planning.entry import Entry
from celery_catchup.store import Ends, EntryBatch, NewRun, Template
from celery_catchup.store.batches import MOST_BYTES
from celery_catchup.store.templates import render


class DispatchFailedError(CatchupError):
    """A message could not be made or published; the run stays undecided or unpublished.

    ``temporary``: the broker is at fault, and waiting helps; else it is the entry.
    """

    @property
    def temporary(self) -> bool:
        """Whether waiting helps."""
        return True

    @property
    def guarded(self) -> bool:
        """Whether the task's own guard kept it back, as queued or running already."""
        return False

    @property
    def unfollowed(self) -> bool:
        """Whether it was sent, but not as one message that can be followed."""
        return False


class OversizeError(CatchupError):
    """The messages of a plan are more than one commit may hold; its first ``fits`` runs are not."""

    def __init__(self, fits: int) -> None:
        super().__init__(f"only {fits} runs fit into one commit")
        self.fits = fits


class Dispatch(Protocol):
    """What the engine needs of the side that makes and publishes messages."""

    def template(self, entry: str, run: PlannedRun, run_id: str) -> Template:
        """The message of a run, with marks where two runs of the entry differ."""

    def publish(
        self, template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], *, now: Instant
    ) -> None:
        """Publish a run of the outbox; returns when the broker has confirmed it."""

    def end(self, task_ids: list[str], *, terminate: bool) -> bool:
        """Ask the workers to end these tasks; False when the broker does not take it."""

    def depth(self, queue: str, routing_key: str) -> int | None:
        """Count the messages of a queue, unacknowledged ones too; None when the broker does not tell."""


@dataclass(slots=True)
class Draft:
    """A plan of one entry, ready to be committed."""

    line: TrackedEntry
    plan: Plan
    batch: EntryBatch
    templates: Mapping[str, Template]
    ids: tuple[str, ...]
    catches_up: bool
    size: int

    @property
    def matters(self) -> bool:
        """Whether there is anything to write: a run, a skip, or the end of a pause or catch-up."""
        decided = self.plan.runs or self.plan.skips or self.plan.stops
        return bool(decided) or self.line.session is not None or self.line.state.resumes


def draft(
    line: TrackedEntry,
    plan: Plan,
    *,
    namespace: str,
    dispatch: Dispatch,
    now: Instant | None = None,
    busy: int | None = None,
    after: Instant | None = None,
    most_bytes: float = MOST_BYTES,
) -> Draft:
    """Make the messages and records of a plan; `DispatchFailedError` when a message cannot be made, and
    `OversizeError` when they are too large for one commit.

    A run that its task's own guard keeps back, or that cannot be followed, becomes a skip. Those that may
    start at ``now`` get their message with them. ``busy`` and ``after`` are what the plan took for granted,
    as in `EntryBatch`.
    """
    entry, messages, runs = line.entry, _Messages(line.entry.name, dispatch), list[NewRun]()
    kept_back: dict[PlannedRun, SkipReason] = {}
    previous = _Previous(entry, plan)
    size = 0
    for number, planned in enumerate(plan.runs):
        run_id, before = entry.run_id(namespace, planned.slot), previous.of(planned)
        try:
            template = messages.of(planned, run_id)
        except DispatchFailedError as error:
            if not (error.guarded or error.unfollowed):
                raise
            kept_back[planned] = SkipReason.GUARD_BLOCKED if error.guarded else SkipReason.NOT_FOLLOWED
            continue
        starts = (
            now is not None and planned.send_at <= now and (line.capacity < 0 or len(runs) < line.capacity)
        )
        record = _record(line, planned, template.id, before)
        runs.append(_new_run(run_id, record, planned.send_at, template, now if starts else None))
        # A template that runs share is sent once, however many they are.
        added = len(runs[-1].message) + (template.size if template.run is not None else 0)
        size += added
        if added and number and size > most_bytes:
            raise OversizeError(number)
    if kept_back:
        plan = _without(plan, kept_back)
    batch = EntryBatch(
        name=entry.name,
        expected=line.state.decided,
        decided=plan.watermark,
        capacity=line.capacity,
        runs=runs,
        skips=[(skip, _slot_before(entry, skip)) for skip in plan.skips],
        anchor=_moved_anchors(line, plan) if line.declared.moving else None,
        resumes=plan.complete and line.state.paused_at is not None,
        missed=_missed(plan) if line.session is not None else 0,
        busy=busy,
        after=after,
        ends=_ends(entry, plan),
    )
    return Draft(
        line,
        plan,
        batch,
        messages.templates,
        tuple([run.id for run in runs]),
        line.session is not None,
        size + messages.shared_size,
    )


def _moved_anchors(line: TrackedEntry, plan: Plan) -> str | None:
    """The entry's anchors after a plan, as they are stored; None when none of them moves."""
    moved = False
    for run in plan.runs:
        key = line.declared.moving.get(run.slot.schedule)
        if (
            key is not None
            and run.trigger is not Trigger.BACKFILL
            and run.slot.at >= line.anchors.get(key, 0)
        ):
            line.anchors[key], moved = run.slot.at, True
    return json.dumps(line.anchors) if moved else None


class _Messages:
    """The templates of an entry's runs. One that is good for all of a kind is asked for once."""

    def __init__(self, entry: str, dispatch: Dispatch) -> None:
        self._entry, self._dispatch = entry, dispatch
        self._shared: dict[Trigger, Template] = {}
        self.templates: dict[str, Template] = {}
        self.shared_size = 0

    def of(self, planned: PlannedRun, run_id: str) -> Template:
        template = self._shared.get(planned.trigger)
        if template is None:
            template = self._dispatch.template(self._entry, planned, run_id)
            self.templates[template.id] = template
            self.shared_size += template.size if template.run is None else 0
            if template.run is None:
                self._shared[planned.trigger] = template
        return template


class _Previous:
    """The slot before each run's: of one schedule without skips, that of the run before."""

    def __init__(self, entry: Entry, plan: Plan) -> None:
        self._entry = entry
        self._last: Instant | None = None
        self._ascending = len(entry.schedules) == 1 and not plan.skips

    def of(self, planned: PlannedRun) -> Instant | None:
        at, schedule = planned.slot.at, planned.slot.schedule
        before = self._last
        if before is None or not before < at or not self._ascending:
            before = self._entry.schedules[schedule].timetable.previous_before(at)
        self._last = at
        return before


def _new_run(
    run_id: str, record: dict[str, Any], send_at: Instant, template: Template, now: Instant | None
) -> NewRun:
    """With its message when it may start ``now``, and the broker is the store's own server."""
    if now is None or template.queue is None or template.db is None:
        return NewRun(run_id, record, send_at)
    message = render(vars(template), run_id, {**record, "attempt": 1, "sends": 1}, now)
    return NewRun(
        run_id,
        record,
        send_at,
        message,
        (template.queue, template.db),
        countdown_ms=template.countdown_ms,
        expires_ms=template.expires_ms,
    )


def _missed(plan: Plan) -> int:
    """How many slots of a catch-up were late; those that have their run already, or were to be left out
    while the entry was paused, were not missed."""
    late = sum(run.trigger.is_catchup for run in plan.runs)
    return late + sum(skip.count for skip in plan.skips if skip.reason.rule.missed)


def _ends(entry: Entry, plan: Plan) -> Ends | None:
    """Restarts, stops and replacing policies end what is active before the new run starts."""
    replaces = entry.policy.overlap_policy.rule.replaces
    if plan.stops or any(run.ends_active for run in plan.runs):
        return Ends(terminate=True, why="ended by its schedule")
    if plan.runs and replaces is not None:
        return Ends(terminate=replaces is Replaces.TERMINATE, why="replaced by a newer run")
    return None


def _without(plan: Plan, kept_back: Mapping[PlannedRun, SkipReason]) -> Plan:
    skips = (
        Skip(run.slot.schedule, run.slot.at, run.slot.at, 1, reason) for run, reason in kept_back.items()
    )
    runs = tuple(run for run in plan.runs if run not in kept_back)
    return replace(plan, runs=runs, skips=(*plan.skips, *skips))


def _record(
    line: TrackedEntry, planned: PlannedRun, template: str, previous: Instant | None
) -> dict[str, Any]:
    """What the ledger keeps of a run from the beginning."""
    record: dict[str, Any] = {
        "entry": line.entry.name,
        "task": line.declared.task,
        "schedule": planned.slot.schedule,
        "slot": planned.slot.at,
        "trigger": str(planned.trigger),
        "template": template,
        **line.entry.version_fields,
    }
    if previous is not None:
        record["previous"] = previous
    return record


def _slot_before(entry: Entry, skip: Skip) -> Instant | None:
    return entry.schedules[skip.schedule].timetable.previous_before(skip.first)
