"""Preview the next catch-up slot by slot, also under another policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from heapq import merge
from itertools import islice
from typing import Any

from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Policy, Select
from celery_catchup.config.policy_choice import PolicyChoice
from celery_catchup.engine import previews
from celery_catchup.engine.previews import EntryPreview, empty_plan
from celery_catchup.model import (
    Instant,
    Plan,
    PlannedRun,
    Skip,
    SkipReason,
    Slot,
    Trigger,
    to_datetime,
    to_instant,
)
from celery_catchup.operations.entries import format_windows
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.planning.entry import Entry
from celery_catchup.store import StoredState
from celery_catchup.store.controls import with_resumed_entries
from celery_catchup.store.states import held_entries

_OF_A_CHAIN = ("max_active_runs", "max_pending")


class SlotAction(StrEnum):
    """The plan for a slot."""

    DISPATCH = "dispatch"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class PreviewSlot:
    """One slot: whether it would be dispatched or skipped, and why. A run can stand for several ``slots``;
    the others are skipped as covered."""

    scheduled_time: datetime
    action: SlotAction
    reason: SkipReason | None = None
    trigger_type: Trigger | None = None
    run_id: str | None = None
    slots: int = 1


class PlannedSlots:
    """The slots of a plan in order, computed lazily because there may be millions."""

    def __init__(self, entry: Entry, plan: Plan, namespace: str, *, newest_first: bool = False) -> None:
        self._entry, self._plan, self._namespace = entry, plan, namespace
        self._newest_first = newest_first
        self._spans = [skip for skip in plan.skips if skip.reason is not SkipReason.EXPIRED]

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
        """Describe the slots as a list in the document of the HTTP API."""
        return handler.generate_schema(list[PreviewSlot])

    def __len__(self) -> int:
        return self._plan.candidates

    def __iter__(self) -> Iterator[PreviewSlot]:
        return self.slots(newest_first=self._newest_first)

    def slots(self, *, newest_first: bool = False) -> Iterator[PreviewSlot]:
        """Iterate from the oldest to the newest slot, or the other way."""
        runs = sorted(self._plan.runs, key=lambda run: run.slot, reverse=newest_first)
        streams: list[Iterator[tuple[Slot, PlannedRun | Skip]]] = [((run.slot, run) for run in runs)]
        streams += [self._span(skip, newest_first=newest_first) for skip in self._spans]
        ordered = merge(*streams, key=lambda pair: pair[0], reverse=newest_first)
        return (self._shown(slot, fate) for slot, fate in ordered)

    def cut(self, most: int) -> tuple[list[PreviewSlot], int, list[PreviewSlot]]:
        """Return the first and the last slots, and how many are left out between."""
        if len(self) <= most:
            return list(self), 0, []
        tail = most // 3
        last = list(islice(self.slots(newest_first=not self._newest_first), tail))
        return list(islice(self, most - tail)), len(self) - most, last[::-1]

    def dispatched(self, most: int) -> list[PreviewSlot]:
        """Return the first slots that would be dispatched."""
        return [self._shown(run.slot, run) for run in self._plan.runs[:most]]

    @property
    def skipped_by_reason(self) -> dict[SkipReason, int]:
        """The number of slots that would be skipped, by reason."""
        counts = Counter[SkipReason]()
        for skip in self._spans:
            counts[skip.reason] += skip.count
        return dict(counts)

    def _span(self, skip: Skip, *, newest_first: bool) -> Iterator[tuple[Slot, PlannedRun | Skip]]:
        table = self._entry.schedules[skip.schedule].timetable
        for at in table.slots(skip.first - 1, skip.last, newest_first=newest_first):
            yield Slot(at, skip.schedule), skip

    def _shown(self, slot: Slot, fate: PlannedRun | Skip) -> PreviewSlot:
        if isinstance(fate, Skip):
            return PreviewSlot(to_datetime(slot.at), SlotAction.SKIP, fate.reason)
        identity = self._entry.run_id(self._namespace, slot, first=fate.first)
        return PreviewSlot(
            to_datetime(slot.at), SlotAction.DISPATCH, None, fate.trigger, identity, slots=fate.slots
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """The plan for an entry's slots between ``since`` and ``at``.

    ``missed`` is true if some of them are too late to be live ones. ``expired`` slots fell out of
    the window; they are counted and not listed. ``error`` is why nothing can be planned. ``held`` runs
    wait for an approval first, because they are more than ``hold_above``. At most ``max_active`` catch-up
    runs of all entries are queued or running at once; null without a limit.
    """

    entry: str
    select: str
    overlap_policy: str
    window: str | None
    since: datetime
    at: datetime
    paused: bool
    missed: bool
    dispatched: int
    skipped: int
    expired: int
    slots: PlannedSlots = field(repr=False)
    error: str | None = None
    held: int = 0
    max_active: int | None = None


def preview(
    operator: Operator,
    names: Sequence[str] = (),
    *,
    window: timedelta | None = None,
    policy: PolicyChoice | None = None,
    at: datetime | None = None,
    stored: StoredState | None = None,
) -> list[Preview]:
    """Preview a catch-up at ``at`` (now, when None) for these entries, or for all.

    ``window`` and ``policy`` preview another policy: for an entry without one, as if it had been
    recovered since its last run. ``stored`` previews another state. Raises `TooManySlotsError` if there are
    more slots than the operator's ``most_planned``.
    """
    now = operator.now() if at is None else to_instant(at)
    configuration, resolved = operator.configuration, operator.resolved
    # All entries share what they may dispatch together.
    shared = configuration.settings.max_runs is not None or not names
    if window is not None or policy is not None:
        wanted = names = operator.in_schedule(names)
        wanted = wanted or tuple(operator.schedule)
        policies = configuration.policies
        configuration = operator.configured(
            {name: changed_policy(policies.get(name), window, policy) for name in wanted}
        )
        resolved = operator.resolve(configuration)
    else:
        wanted = names = operator.with_policy(
            names, advice="add a window, such as 6h, to see what it would recover"
        )
    state, held = stored, dict[str, int]()
    if state is None:
        state = operator.read_stored(None if shared else names)
        held = held_entries(state)
        state = with_resumed_entries(state, sorted(held), now)  # what an approval would dispatch
    declared = [one for one in resolved.declared if shared or one.name in wanted]
    found, unread = previews.preview(
        declared,
        state,
        states=operator.states,
        settings=configuration.settings,
        now=now,
        namespace=operator.store.namespace,
        most=operator.most_planned,
    )
    if names and len(names) > len({*unread, *(one.tracked.entry.name for one in found)} & set(names)):
        raise RefusedError("; ".join(resolved.not_replayable))
    shown = [
        replace(
            preview_plan(
                operator, one.tracked.entry, one.plan, now, paused=one.tracked.state.paused, error=one.error
            ),
            held=len(one.plan.runs) if one.tracked.entry.name in held else one.held,
            max_active=configuration.settings.max_active,
        )
        for one in found
    ]
    for name, error in unread.items():
        entry = Entry(name, (), configuration.policies[name] or Policy())
        shown.append(preview_plan(operator, entry, empty_plan(now), now, error=error))
    return [one for one in shown if not wanted or one.entry in wanted]


def next_plan(operator: Operator, name: str, stored: StoredState, now: Instant) -> EntryPreview | None:
    """Return the next catch-up of one entry as it is planned; None if its schedule cannot be read."""
    settings = operator.configuration.settings
    declared = [
        one for one in operator.resolved.declared if settings.max_runs is not None or one.name == name
    ]
    found, _ = previews.preview(
        declared,
        stored,
        states=operator.states,
        settings=settings,
        now=now,
        namespace=operator.store.namespace,
        most=operator.most_planned,
    )
    return next((one for one in found if one.tracked.entry.name == name), None)


def preview_plan(
    operator: Operator,
    entry: Entry,
    plan: Plan,
    now: Instant,
    *,
    paused: bool = False,
    error: str | None = None,
    newest_first: bool = False,
) -> Preview:
    """Make a preview of a plan."""
    firsts = (*(run.slot.at for run in plan.runs), *(skip.first for skip in plan.skips))
    return Preview(
        entry=entry.name,
        select=str(entry.policy.select),
        overlap_policy=str(entry.policy.overlap_policy),
        window=format_windows(entry.policy, entry),
        since=to_datetime(plan.replay_from),
        at=to_datetime(now),
        paused=paused,
        missed=any(at <= entry.missed_until(now) for at in firsts),
        dispatched=len(plan.runs),
        skipped=plan.skipped,
        expired=plan.expired,
        slots=PlannedSlots(entry, plan, operator.store.namespace, newest_first=newest_first),
        error=error,
    )


def changed_policy(
    policy: Policy | None, window: timedelta | None, choice: PolicyChoice | None
) -> dict[str, Any]:
    """Return a policy as the user could have written it, with the requested changes."""
    changed = {} if policy is None else policy.model_dump(include=policy.model_fields_set)
    if window is not None:
        changed["window"] = window
        if changed.get("select") == Select.OFF:
            del changed["select"]  # a window asks for recovery
    changed |= {} if choice is None else dict(choice.fields)
    if not OverlapPolicy(changed.get("overlap_policy", OverlapPolicy.SKIP)).rule.chained:
        changed = {name: value for name, value in changed.items() if name not in _OF_A_CHAIN}
    return changed
