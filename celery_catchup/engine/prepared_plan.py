"""Turn the plan of an entry into what the store commits: run records, messages and skips."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from json.encoder import encode_basestring_ascii as _quoted

from celery_catchup.config.overlap_policy import Replaces
from celery_catchup.config.policy import Select
from celery_catchup.engine.services import Dispatch, DispatchFailedError
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, Plan, PlannedRun, Skip, SkipReason, Trigger
from celery_catchup.planning.entry import Entry
from celery_catchup.store import CatchupRecord, Ends, EntryBatch, More, NewRun, Template
from celery_catchup.store.batches import MOST_BYTES
from celery_catchup.store.templates import render


class OversizeError(CatchupError):
    """The messages of a plan are too large for one commit; those of its first ``fits`` runs are not."""

    def __init__(self, fits: int) -> None:
        super().__init__(f"only {fits} runs fit into one commit")
        self.fits = fits


@dataclass(slots=True)
class PreparedPlan:
    """A plan of one entry, ready to be committed; ``size`` is the length of its messages, without templates
    that others may share; ``in_catchup`` tells whether it is part of a catch-up."""

    tracked: TrackedEntry
    plan: Plan
    batch: EntryBatch
    templates: Mapping[str, Template]
    size: int
    in_catchup: bool

    @property
    def matters(self) -> bool:
        """Whether there is anything to write: a run, a skip, or the end of a pause or catch-up."""
        decided = self.plan.runs or self.plan.skips or self.plan.stops
        return bool(decided) or self.in_catchup or self.tracked.state.resumes

    def size_beside(self, templates: Collection[str]) -> int:
        """Return the length of its messages and templates in a commit that has these templates already."""
        size = self.size
        for name, part in self.templates.items():
            if part.run is None and name not in templates:
                size += len(part.encoded)
        return size


class PlanParts:
    """The parts of a commit that entries with the same plan have in common; the first of them builds them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.spans = any(run.first is not None for run in plan.runs)
        """Whether a run stands for several slots."""
        self._runs: list[tuple[str, Instant | None]] | None = None
        self._more: More | None = None

    def runs(self, entry: Entry) -> list[tuple[str, Instant | None]]:
        """Return, for each run, the end of its record and the slot before its own."""
        if self._runs is None:
            self._runs = list(_common_fields(entry, self.plan))
        return self._runs

    def more(self, tracked: TrackedEntry, now: Instant | None) -> More:
        """Return the decisions beside the runs."""
        if self._more is None:
            entry, plan = tracked.entry, self.plan
            self._more = More(
                skips=[
                    (skip, entry.schedules[skip.schedule].timetable.previous_before(skip.first))
                    for skip in plan.skips
                ],
                resumes=tracked.state.pause_record if plan.complete and tracked.state.resumes else "",
                missed=_missed(plan) if tracked.catchup_until is not None else 0,
                ends=_ends(entry, plan),
                catchup=_catchup(tracked, plan, now),
            )
        return self._more


def prepare(
    tracked: TrackedEntry,
    plan: Plan,
    *,
    namespace: str,
    dispatch: Dispatch,
    parts: PlanParts | None = None,
    now: Instant | None = None,
    busy: int | None = None,
    after: Instant | None = None,
    most_bytes: float = MOST_BYTES,
) -> PreparedPlan:
    """Build the messages and records of a plan; ``parts`` are those that another entry has built.

    Raises `DispatchFailedError` when a message cannot be built, and `OversizeError` when the messages are
    too large for one commit. A run that its task's own guard holds back, or that cannot be followed,
    becomes a skip. Runs that may start at ``now`` are committed together with their message. ``busy`` and
    ``after`` are the assumptions of the plan, as in `EntryBatch`.
    """
    parts = parts or PlanParts(plan)
    entry, messages, runs = (
        tracked.entry,
        _Messages(tracked.entry, dispatch, spans=parts.spans),
        list[NewRun](),
    )
    held_back: dict[PlannedRun, SkipReason] = {}
    size, head = 0, _head(tracked)
    for number, (planned, (tail, previous)) in enumerate(zip(plan.runs, parts.runs(entry), strict=True)):
        run_id = entry.run_id(namespace, planned.slot, first=planned.first)
        try:
            template = messages.of(planned, run_id)
        except DispatchFailedError as error:
            if not (error.guarded or error.unfollowed):
                raise
            held_back[planned] = SkipReason.GUARD_BLOCKED if error.guarded else SkipReason.NOT_FOLLOWED
            continue
        new = NewRun(
            run_id, planned.slot, planned.trigger, f'{head},"template":"{template.id}"{tail}', planned.send_at
        )
        runs.append(new)
        # A template that runs share is sent once.
        added = len(template.encoded) if template.run is not None else 0
        if (
            now is not None
            and planned.send_at <= now
            and (tracked.capacity < 0 or len(runs) <= tracked.capacity)
        ):
            _start(new, planned, template, entry.name, previous, now)
            added += len(new.message)
        size += added
        if added and number and size > most_bytes:
            raise OversizeError(number)
    if held_back:
        plan = _without(plan, held_back)
    if parts.spans:
        plan = _with_covering_runs(plan, entry, namespace)
    more = (parts if plan is parts.plan else PlanParts(plan)).more(tracked, now)
    if tracked.declared.moving:
        more = replace(more, anchor=_moved_anchors(tracked, plan))
    batch = EntryBatch(
        name=entry.name,
        expected=tracked.state.decided,
        decided=plan.watermark,
        capacity=tracked.capacity,
        runs=runs,
        more=more or None,
        busy=busy,
        after=after,
    )
    return PreparedPlan(tracked, plan, batch, messages.templates, size, tracked.catchup_until is not None)


def _common_fields(entry: Entry, plan: Plan) -> Iterator[tuple[str, Instant | None]]:
    """Yield the fields of each run's record that do not depend on the entry, as the end of JSON without its
    brace, and the slot before that of the run."""
    ascending, last = len(entry.schedules) == 1 and not plan.skips, None
    for planned in plan.runs:
        slot, first = planned.slot, planned.first
        # Of one schedule without skips, it is the slot of the run before.
        if not ascending or last is None or last >= slot.at:
            last = entry.schedules[slot.schedule].timetable.previous_before(first or slot.at)
        fields = f',"schedule":{slot.schedule},"slot":{slot.at},"trigger":"{planned.trigger}"'
        if first is not None:
            fields = f'{fields},"first":{first},"slots":{planned.slots}'
        yield (fields if last is None else f'{fields},"previous":{last}'), last
        last = slot.at


def _head(tracked: TrackedEntry) -> str:
    """Return the fields of the record that all runs of the entry have, as the beginning of JSON."""
    fields = tracked.entry.version_fields
    versions = "".join([f',"{name}":{_quoted(text)}' for name, text in fields.items()]) if fields else ""
    return f'{{"entry":{_quoted(tracked.entry.name)},"task":{_quoted(tracked.declared.task)}{versions}'


def _moved_anchors(tracked: TrackedEntry, plan: Plan) -> str | None:
    """Return the entry's anchors after a plan, as they are stored; None when none of them moves."""
    moved = False
    for run in plan.runs:
        key, at = tracked.declared.moving.get(run.slot.schedule), run.slot.at
        if key is not None and run.trigger is not Trigger.BACKFILL and at >= tracked.anchors.get(key, 0):
            tracked.anchors[key], moved = at, True
    return json.dumps(tracked.anchors) if moved else None


class _Messages:
    """The templates of an entry's runs; one that all runs of a trigger share is built once."""

    def __init__(self, entry: Entry, dispatch: Dispatch, *, spans: bool) -> None:
        self._entry, self._dispatch = entry, dispatch
        self._spans = spans or Select.SPAN in entry.selects
        self._shared: dict[Trigger, Template] = {}
        self.templates: dict[str, Template] = {}

    def of(self, planned: PlannedRun, run_id: str) -> Template:
        template = self._shared.get(planned.trigger)
        if template is None:
            options = self._entry.policy.catch_up.options() if planned.trigger.takes_lane else {}
            template = self._dispatch.template(
                self._entry.name, planned, run_id, options=options, spans=self._spans
            )
            self.templates |= template.parts
            if template.run is None:
                self._shared[planned.trigger] = template
        return template


def _start(
    new: NewRun, planned: PlannedRun, template: Template, entry: str, previous: Instant | None, now: Instant
) -> None:
    """Give a run that may start ``now`` its message, or mark it for the outbox if the broker is not the
    store's server."""
    if template.queue is None or template.db is None:
        new.outbox = True
        return
    run = {
        "entry": entry,
        "slot": planned.slot.at,
        "trigger": planned.trigger,
        "previous": previous,
        "slots": planned.slots,
        "attempt": 1,
        "sends": 1,
    }
    new.message = render(vars(template), new.id, run, now)
    new.route = template.queue, template.db
    new.countdown_ms, new.expires_ms = template.countdown_ms, template.expires_ms


def _catchup(tracked: TrackedEntry, plan: Plan, now: Instant | None) -> CatchupRecord | None:
    """Return what is kept of a catch-up, so that its decisions can be explained, and played again."""
    at = now if tracked.catchup_until is None else tracked.catchup_until
    if at is None or not plan.catches_up:
        return None
    return CatchupRecord(at, plan.decided, tracked.state.facts() | {"policy": tracked.entry.policy_digest})


def _missed(plan: Plan) -> int:
    """Count the slots of a catch-up that were missed, whether they run or not."""
    late = sum(run.trigger.is_catchup for run in plan.runs)
    return late + sum(skip.count for skip in plan.skips if skip.reason.rule.missed)


def _ends(entry: Entry, plan: Plan) -> Ends | None:
    """Restarts, stops and replacing policies end the active runs before the new run starts."""
    replaces = entry.policy.overlap_policy.rule.replaces
    if plan.stops or any(run.ends_active for run in plan.runs):
        return Ends(terminate=True, why="ended by its schedule")
    if plan.runs and replaces is not None:
        return Ends(terminate=replaces is Replaces.TERMINATE, why="replaced by a newer run")
    return None


def _without(plan: Plan, held_back: Mapping[PlannedRun, SkipReason]) -> Plan:
    skips = (
        Skip(run.slot.schedule, run.slot.at, run.slot.at, 1, reason) for run, reason in held_back.items()
    )
    runs = tuple(run for run in plan.runs if run not in held_back)
    return replace(plan, runs=runs, skips=(*plan.skips, *skips))


def _with_covering_runs(plan: Plan, entry: Entry, namespace: str) -> Plan:
    """Note in the skips of covered slots which run stands for them."""
    spans = [(run.first, run.slot) for run in plan.runs if run.first is not None]

    def covering(skip: Skip) -> str | None:
        for first, end in spans:
            if skip.reason is SkipReason.COVERED and first <= skip.first and skip.last <= end.at:
                return entry.run_id(namespace, end, first=first)
        return skip.run_id

    return replace(plan, skips=tuple(replace(skip, run_id=covering(skip)) for skip in plan.skips))
