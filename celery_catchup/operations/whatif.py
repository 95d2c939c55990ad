"""Play the recorded outages of an entry again under another policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median

from celery_catchup.config.policy import Policy
from celery_catchup.config.policy_choice import PolicyChoice
from celery_catchup.errors import TooManySlotsError
from celery_catchup.model import Instant, SkipReason, Slot, Trigger, to_datetime, to_instant
from celery_catchup.operations.entries import format_windows
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import SlotAction, changed_policy
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.planning.entry import Entry
from celery_catchup.planning.recorded_catchup import PastSkip, RecordedCatchup, past_skips
from celery_catchup.planning.whatif import DecisionReplay, PastRun, ReplayedSlot, most_at_once
from celery_catchup.store.decisions import MOST_CATCHUPS
from celery_catchup.store.listing import Record, RunFilter
from celery_catchup.store.store import stored_instant, stored_time

MOST_SLOTS = 20_000
"""Recorded slots that are played again."""
_PAGE = 1000
_SCHEDULED = frozenset({Trigger.SCHEDULER, Trigger.CATCHUP})


@dataclass(frozen=True, slots=True)
class WhatIfSlot:
    """One slot: what would have been decided, and what was. ``recorded`` is null if nothing is recorded of
    the slot any more."""

    scheduled_time: datetime
    action: SlotAction
    reason: SkipReason | None
    starts_at: datetime | None
    ends_at: datetime | None
    recorded: SlotAction | None
    recorded_reason: str | None

    @property
    def differs(self) -> bool:
        """Whether the decision is another one."""
        return self.action is not self.recorded


@dataclass(frozen=True, slots=True)
class WhatIfOutage:
    """A recorded catch-up, of the slots after ``since`` up to ``until``, and its slots."""

    since: datetime
    until: datetime
    dispatched: int
    skipped: int
    slots: tuple[WhatIfSlot, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The recorded slots of an entry under another policy. ``live`` are the slots outside of outages whose
    decision would have been another one. ``runs`` would have been dispatched in all, ``recorded_runs`` were;
    at most ``most_at_once`` of them would have been executed at the same time. A run that was not there is
    assumed to take ``usual_duration``. ``since`` is later than asked for if older outages are not kept."""

    entry: str
    select: str
    overlap_policy: str
    window: str | None
    since: datetime
    runs: int
    recorded_runs: int
    most_at_once: int
    usual_duration: timedelta
    outages: tuple[WhatIfOutage, ...]
    live: tuple[WhatIfSlot, ...]


def whatif(
    operator: Operator,
    name: str,
    *,
    window: timedelta | None = None,
    policy: PolicyChoice | None = None,
    since: datetime,
) -> WhatIf:
    """Play the recorded decisions since a time again: with another window and policy, or with those in force.

    Raises `TooManySlotsError` if there are more than `MOST_SLOTS`.
    """
    (name,) = operator.with_policy([name], advice="nothing is recorded of its slots")
    tracked = operator.tracked(operator.read_stored([name]), operator.now(), [name]).get(name)
    if tracked is None:
        raise RefusedError(f"the schedule of entry {name!r} cannot be read now")
    entry = with_policy(tracked.entry, window, policy)
    records = _Records(operator, tracked.entry, to_instant(since))
    played = DecisionReplay(entry, records.runs, records.skips, records.catchups, records.usual_duration)
    replayed = list(played.slots())
    by_catchup: dict[Instant, list[ReplayedSlot]] = {one.at: [] for one in records.catchups}
    live = []
    for one in replayed:
        if one.catchup is None:
            live.append(one)
        else:
            by_catchup[one.catchup.at].append(one)
    return WhatIf(
        entry=name,
        select=str(entry.policy.select),
        overlap_policy=str(entry.policy.overlap_policy),
        window=format_windows(entry.policy, entry),
        since=to_datetime(records.since),
        runs=sum(one.reason is None for one in replayed),
        recorded_runs=len(records.runs),
        most_at_once=most_at_once(replayed),
        usual_duration=timedelta(milliseconds=records.usual_duration),
        outages=tuple(records.outage(one, by_catchup[one.at]) for one in records.catchups),
        live=tuple(slot for one in live if (slot := records.shown(one)).differs),
    )


def with_policy(entry: Entry, window: timedelta | None, choice: PolicyChoice | None) -> Entry:
    """Return the entry with another window and policy; the entry itself if nothing is changed."""
    if window is None and choice is None:
        return entry
    changed = changed_policy(entry.policy, window, choice)
    return replace(entry, policy=Policy.from_raw(changed, where=f"entry {entry.name!r}"))


class _Records:
    """The records of an entry's slots since a time."""

    def __init__(self, operator: Operator, entry: Entry, since: Instant) -> None:
        catchups = operator.decisions.catchups(entry.name)
        if len(catchups) >= MOST_CATCHUPS:
            since = max(since, catchups[0].after + 1)
        self.since = since
        self.catchups = [one for one in catchups if one.at >= since]
        first = min([since, *(one.after + 1 for one in self.catchups)])
        records = list(_all_runs(operator, entry.name, first))
        self.runs = [
            PastRun(
                Slot(int(one["slot"]), int(one.get("schedule", 0))),
                stored_instant(one.get("created")) or int(one["slot"]),
                stored_instant(one.get("busy")) or 0,
                stored_instant(one.get("started")),
                stored_instant(one.get("finished")),
                stored_instant(one.get("epoch")),
            )
            for one in records
            if Trigger(one["trigger"]) in _SCHEDULED
        ]
        spans = operator.listing.skips([entry.name], since=first)[entry.name]
        _check(sum(int(one["count"]) for one in spans) + len(self.runs))
        self.skips = list(past_skips(entry, spans))
        self._decided: Mapping[Slot, PastSkip] = {one.slot: one for one in self.skips}
        self._ran = {one.slot for one in self.runs}
        lengths = [
            one.ended - one.started for one in self.runs if one.started is not None and one.ended is not None
        ]
        self.usual_duration = max(0, int(median(lengths))) if lengths else 0

    def outage(self, catchup: RecordedCatchup, replayed: Sequence[ReplayedSlot]) -> WhatIfOutage:
        runs = sum(one.reason is None for one in replayed)
        return WhatIfOutage(
            since=to_datetime(catchup.after),
            until=to_datetime(catchup.at),
            dispatched=runs,
            skipped=len(replayed) - runs,
            slots=tuple(map(self.shown, replayed)),
        )

    def shown(self, one: ReplayedSlot) -> WhatIfSlot:
        skip, ran = self._decided.get(one.slot), one.slot in self._ran
        recorded = SlotAction.DISPATCH if ran else SlotAction.SKIP
        return WhatIfSlot(
            scheduled_time=to_datetime(one.slot.at),
            action=SlotAction.DISPATCH if one.reason is None else SlotAction.SKIP,
            reason=one.reason,
            starts_at=stored_time(one.starts),
            ends_at=stored_time(one.ends),
            recorded=recorded if ran or skip is not None else None,
            recorded_reason=None if ran or skip is None else skip.reason,
        )


def _all_runs(operator: Operator, name: str, since: Instant) -> Iterator[Record]:
    wanted, count = RunFilter(entries=(name,), since=since, limit=_PAGE), 0
    while True:
        page = operator.listing.runs(wanted)
        count += len(page.records)
        _check(count)
        yield from page.records
        if page.following is None:
            return
        wanted = replace(wanted, after=page.following)


def _check(count: int) -> None:
    if count > MOST_SLOTS:
        raise TooManySlotsError(
            f"more than {MOST_SLOTS:,} slots are recorded in that time; ask for a shorter one"
        )
