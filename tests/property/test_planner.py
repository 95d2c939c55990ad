"""What holds of every plan, whatever the entry, the policy and the outage."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import find, given
from hypothesis import strategies as st

from celery_catchup.config.policy import Policy
from celery_catchup.model import Instant, Plan, RunState, SkipReason, Slot, Trigger, run_id, to_instant
from celery_catchup.planning.caps import share
from celery_catchup.planning.entry import NOTHING, Entry, EntryState
from celery_catchup.planning.planner import plan, plan_in_full, plan_live_slot, room, survey
from celery_catchup.planning.scope import Reprocess, Scope, backfill, replay
from tests.property.planning import MINUTE, NOON, entries, instants, minutes, states

planned = entries().flatmap(lambda entry: st.tuples(st.just(entry), states(entry), st.none() | instants))


def all_slots(entry: Entry, scope: Scope) -> Counter[Slot]:
    """Brute force: every slot of every schedule in the scope, expired ones included."""
    return Counter(
        Slot(at, index)
        for index, schedule in enumerate(entry.schedules)
        for at in schedule.timetable.slots(scope.reaches[index].floor, scope.reaches[index].until)
    )


def decided_slots(entry: Entry, *plans: Plan) -> Counter[Slot]:
    """Every slot that the plans name, as a run or inside a skip."""
    found = Counter(run.slot for result in plans for run in result.runs)
    for skip in (skip for result in plans for skip in result.skips):
        inside = list(entry.schedules[skip.schedule].timetable.slots(skip.first - 1, skip.last))
        assert (inside[0], inside[-1], len(inside)) == (skip.first, skip.last, skip.count)
        found.update(Slot(at, skip.schedule) for at in inside)
    return found


def in_batches(
    entry: Entry, state: EntryState, scope: Scope, limit: int, *, fast_workers: bool = False
) -> list[Plan]:
    """Plan with a limit until done, as beat does over several ticks; with fast workers everything has ended
    before the next one, and a catch-up keeps the room that it began with."""
    plans = [plan(entry, state, scope, limit=limit)]
    left = room(entry.policy, active=state.active, waiting=state.waiting)
    while not plans[-1].complete:
        started = len(plans[-1].runs)
        left = None if left is None else left - started
        busy = replace(state, waiting=state.waiting + started)
        if fast_workers:
            busy = replace(state, active=0, waiting=0, room=left)
        used = (state.used or 0) + started if plans[-1].catches_up else None
        shared = state.allowance
        if shared is not None and plans[-1].catches_up:
            shared -= started
        state = replace(busy, decided=plans[-1].watermark, used=used, allowance=shared)
        reached = plans[-1].watermark
        reaches = tuple(
            replace(r, floor=max(r.floor, reached), after=max(r.after, reached)) for r in scope.reaches
        )
        scope = replace(scope, reaches=reaches)
        plans.append(plan(entry, state, scope, limit=limit))
    return plans


@given(planned)
def test_every_slot_is_accounted_for_exactly_once(case: tuple[Entry, EntryState, Instant | None]) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)

    result = plan(entry, state, scope)

    assert decided_slots(entry, result) == all_slots(entry, scope)


@given(planned)
def test_nothing_is_planned_outside_the_range(case: tuple[Entry, EntryState, Instant | None]) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)

    result = plan(entry, state, scope)

    assert all(result.replay_from < run.slot.at <= NOON for run in result.runs)
    assert [run.slot for run in result.runs] == sorted(run.slot for run in result.runs)
    late = {run.trigger for run in result.runs if run.slot.at <= entry.missed_until(NOON)}
    assert late <= {Trigger.CATCHUP}


@given(planned)
def test_planning_again_from_the_watermark_finds_nothing(
    case: tuple[Entry, EntryState, Instant | None],
) -> None:
    entry, state, watermark = case
    first = plan(entry, state, replay(entry, state, scheduler_watermark=watermark, now=NOON))
    state = replace(state, decided=first.watermark, paused_at=None)

    again = plan(entry, state, replay(entry, state, scheduler_watermark=watermark, now=NOON))

    assert (again.runs, again.skips) == ((), ())


@given(planned, st.integers(0, 6))
def test_a_slot_is_lost_to_a_cap_only_when_the_cap_is_used_up(
    case: tuple[Entry, EntryState, Instant | None], cap: int
) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)
    kept = share([plan(entry, state, scope)], cap)[0]

    result = plan(entry, replace(state, allowance=kept), scope)

    lost = any(skip.reason is SkipReason.CAP_EXCEEDED for skip in result.skips)
    most = entry.policy.max_runs
    if result.catches_up:
        assert len(result.runs) <= cap
        assert not lost or len(result.runs) in (cap, most)
    else:
        assert not lost


@given(planned)
def test_only_what_was_dropped_is_skipped_for_it_and_slots_with_a_run_keep_it(
    case: tuple[Entry, EntryState, Instant | None],
) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)

    result = plan(entry, state, scope)

    dropped = {
        slot
        for slot in all_slots(entry, scope)
        for drop in scope.dropped
        if drop.within(scope.reaches[slot.schedule]).after < slot.at <= drop.until
    } - set(state.existing)
    reasons = (SkipReason.PAUSED, SkipReason.REMOVED, SkipReason.EXCLUDED, SkipReason.MANUAL_RUN)
    shown = replace(result, runs=(), skips=tuple(s for s in result.skips if s.reason in reasons))
    assert set(decided_slots(entry, shown)) == dropped


@given(planned, st.booleans())
def test_an_excluded_slot_never_runs_live_late_or_in_a_backfill(
    case: tuple[Entry, EntryState, Instant | None], again: bool
) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)
    if again:
        first = max((bounds.after + 1 for bounds in entry.bounds if bounds.after is not None), default=0)
        start = max(first, NOON - 24 * 60 * MINUTE)
        scope = backfill(entry, start=start, end=NOON, now=NOON, reprocess=Reprocess.COMPLETED)

    result = plan(entry, state, scope)

    assert not any(entry.exclusions.contains(run.slot.at) for run in result.runs)
    skipped = replace(
        result, runs=(), skips=tuple(s for s in result.skips if s.reason is SkipReason.EXCLUDED)
    )
    assert all(entry.exclusions.contains(slot.at) for slot in decided_slots(entry, skipped))


@given(planned, instants)
def test_the_watermark_never_moves_back_even_when_the_clock_does(
    case: tuple[Entry, EntryState, Instant | None], earlier: Instant
) -> None:
    entry, state, watermark = case
    first = plan(entry, state, replay(entry, state, scheduler_watermark=watermark, now=NOON))
    state = replace(state, decided=first.watermark)

    second = plan(entry, state, replay(entry, state, scheduler_watermark=watermark, now=earlier))

    assert second.watermark >= first.watermark
    assert earlier > NOON or not second.runs


@given(planned, st.integers(1, 5), st.none() | st.integers(0, 6), st.booleans())
def test_batches_decide_what_one_call_decides(
    case: tuple[Entry, EntryState, Instant | None], limit: int, cap: int | None, fast_workers: bool
) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)
    if cap is not None:
        state = replace(state, allowance=share([plan(entry, state, scope)], cap)[0])
    whole = plan(entry, state, scope)

    parts = in_batches(entry, state, scope, limit, fast_workers=fast_workers)

    assert [run for part in parts for run in part.runs] == list(whole.runs)
    assert decided_slots(entry, *parts) == decided_slots(entry, whole)
    watermarks = [part.watermark for part in parts]
    assert watermarks == sorted(watermarks)


@given(
    entries(select="all", overlap_policy="all", max_runs=None, max_pending=None, skip_if_successful=False),
    st.lists(minutes, min_size=1, max_size=5),
    minutes,
)
def test_several_restarts_give_the_runs_of_one(entry: Entry, restarts: list[int], length: int) -> None:
    begin = NOON - length * MINUTE
    entry = replace(entry, policy=entry.policy.model_copy(update={"window": timedelta(days=30)}))
    entry = replace(entry, schedules=tuple(replace(s, overrides=None) for s in entry.schedules))
    state = EntryState(first_seen_at=begin)
    whole = plan(entry, state, replay(entry, state, scheduler_watermark=begin, now=NOON))

    slots, decided = [], begin
    for now in sorted([NOON, *(NOON - offset * MINUTE for offset in restarts if offset < length)]):
        state = EntryState(first_seen_at=begin, decided=decided)
        part = plan(entry, state, replay(entry, state, scheduler_watermark=begin, now=now))
        slots += [run.slot for run in part.runs]
        decided = part.watermark

    assert slots == [run.slot for run in whole.runs]


@given(
    planned,
    minutes,
    minutes,
    st.sampled_from(Reprocess),
    st.booleans(),
    st.none() | st.integers(1, 600),
    st.integers(1, 5),
)
def test_a_backfill_accounts_for_its_range_in_either_order(
    case: tuple[Entry, EntryState, Instant | None],
    length: int,
    age: int,
    reprocess: Reprocess,
    newest_first: bool,
    span: int | None,
    limit: int,
) -> None:
    entry, state, _ = case
    first = max(NOON - (length + age) * MINUTE, to_instant(datetime(2026, 3, 28, 9, tzinfo=UTC)))
    scope = backfill(
        entry,
        start=first,
        end=max(first, NOON - age * MINUTE),
        now=NOON,
        reprocess=reprocess,
        newest_first=newest_first,
        span=None if span is None else span * MINUTE,
    )

    result = plan(entry, state, scope)
    parts = in_parts(entry, state, scope, limit)

    assert decided_slots(entry, result) == all_slots(entry, scope)
    assert [run.slot for run in result.runs] == sorted(
        (run.slot for run in result.runs), reverse=newest_first
    )
    assert [run for part in parts for run in part.runs] == list(result.runs)
    assert decided_slots(entry, *parts) == decided_slots(entry, result)
    assert {run.trigger for run in result.runs} <= {Trigger.BACKFILL}
    assert not any(state.existing.get(run.slot, RunState.DEAD).in_flight for run in result.runs)
    assert {s.reason for s in result.skips} <= {
        SkipReason.ALREADY_EXISTS,
        SkipReason.IN_FLIGHT,
        SkipReason.EXCLUDED,
        *([] if span is None else [SkipReason.COVERED]),
    }
    covered = sum(skip.count for skip in result.skips if skip.reason is SkipReason.COVERED)
    assert sum(run.slots - 1 for run in result.runs) == covered


def in_parts(entry: Entry, state: EntryState, scope: Scope, limit: int) -> list[Plan]:
    """Plan a backfill as the leader does, part by part, in either direction."""
    plans = [plan(entry, state, scope, limit=limit)]
    while not plans[-1].complete:
        at = plans[-1].watermark
        scope = replace(
            scope,
            reaches=tuple(
                replace(one, until=min(one.until, at - 1))
                if scope.newest_first
                else replace(one, floor=max(one.floor, at), after=max(one.after, at))
                for one in scope.reaches
            ),
            dropped=tuple(
                replace(one, until=min(one.until, at - 1))
                if scope.newest_first
                else replace(one, after=max(one.after, at))
                for one in scope.dropped
            ),
        )
        plans.append(plan(entry, state, scope, limit=limit))
    return plans


@given(st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)), st.integers(-23 * 60, 23 * 60))
def test_a_run_id_depends_on_the_instant_and_not_on_its_spelling(moment: datetime, offset: int) -> None:
    utc = moment.replace(tzinfo=UTC)
    elsewhere = utc.astimezone(timezone(timedelta(minutes=offset)))

    here, there = (run_id("app", "etl", Slot(to_instant(m))) for m in (utc, elsewhere))

    assert here == there


names = st.text(max_size=5)


@given(st.tuples(names, names, names, names), st.tuples(names, names, names, names))
def test_no_two_different_runs_share_an_id(a: tuple[str, ...], b: tuple[str, ...]) -> None:
    ids = [run_id(n, e, Slot(NOON), tenant=t, logic_version=v) for n, e, t, v in (a, b)]

    assert (ids[0] == ids[1]) is (a == b)


# -- short cuts ------------------------------------------------------------------------------

late_by_seconds = st.sampled_from([0, 1, 30, 60, 61, 3600])


@st.composite
def healthy(draw: st.DrawFn) -> tuple[Entry, EntryState, Scope]:
    """An entry as a beat that runs meets it: decided up to lately, one or a few slots due."""
    entry = draw(entries())
    entry = replace(entry, schedules=entry.schedules[: draw(st.sampled_from([1, 1, 1, 3]))])
    following = entry.schedules[0].timetable.next_after(NOON)
    now = NOON if following is None else following + 1000 * draw(late_by_seconds)
    decided = now - 1000 * draw(st.integers(0, 4000))
    state = draw(states(entry))
    state = replace(
        state,
        first_seen_at=min(state.first_seen_at, decided),
        decided=decided,
        paused_at=draw(st.sampled_from([None, None, None, state.paused_at])),
        manual_start=draw(st.sampled_from([None, None, state.manual_start])),
        active=draw(st.sampled_from([0, 0, 1])),
        waiting=0,
        existing=draw(st.sampled_from([NOTHING, NOTHING, state.existing])),
        used=draw(st.sampled_from([None, None, 0, 2])),
        allowance=draw(st.sampled_from([None, 0, 1])),
    )
    return entry, state, replay(entry, state, scheduler_watermark=decided, now=now)


@given(healthy())
def test_the_short_way_for_one_live_slot_gives_what_the_rules_give(
    case: tuple[Entry, EntryState, Scope],
) -> None:
    entry, state, scope = case
    short = plan_live_slot(entry, state, scope)

    assert short is None or short == plan_in_full(entry, state, scope, limit=1)
    assert plan(entry, state, scope) == plan_in_full(entry, state, scope)


def test_a_healthy_tick_takes_the_short_way() -> None:
    taken = find(healthy(), lambda case: plan_live_slot(*case) is not None)

    assert len(plan(*taken).runs) == 1


@given(planned)
def test_a_survey_counts_what_the_plan_decides(case: tuple[Entry, EntryState, Instant | None]) -> None:
    entry, state, watermark = case
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)

    assert survey(entry, scope) == plan_in_full(entry, state, scope).candidates


@given(st.tuples(*[st.text(max_size=8)] * 4), st.integers(0, 2**42), st.integers(0, 12))
def test_the_id_of_a_run_is_the_version_5_uuid_of_what_it_is_for(
    texts: tuple[str, str, str, str], at: Instant, schedule: int
) -> None:
    namespace, entry, tenant, version = texts
    parts = (namespace, entry, str(schedule), str(at), tenant, version)
    name = "\x1f".join(f"{len(part)}:{part}" for part in parts)

    made = run_id(namespace, entry, Slot(at, schedule), tenant=tenant, logic_version=version)

    assert made == str(uuid.uuid5(uuid.UUID("6b1c9a52-3f0e-5d0c-9a6f-2f6a3f1b7c11"), name))


@given(planned, st.none() | st.integers(1, 600))
def test_the_runs_of_spans_stand_for_every_missed_slot_without_a_run(
    case: tuple[Entry, EntryState, Instant | None], longest: int | None
) -> None:
    entry, state, watermark = case
    free = {"select": "span", "window": "2d", "overlap_policy": "allow"}
    limit = {} if longest is None else {"max_span": timedelta(minutes=longest)}
    schedules = tuple(replace(one, overrides=None) for one in entry.schedules)
    entry = replace(entry, schedules=schedules, policy=Policy.from_raw({**free, **limit}, where="etl"))
    scope = replay(entry, state, scheduler_watermark=watermark, now=NOON)

    result = plan(entry, state, scope)

    late = [run for run in result.runs if run.trigger is Trigger.CATCHUP]
    covered = replace(result, runs=(), skips=tuple(s for s in result.skips if s.reason is SkipReason.COVERED))
    assert sum(run.slots for run in late) == len(late) + sum(decided_slots(entry, covered).values())
    for run in late:
        first = run.slot.at if run.first is None else run.first
        assert longest is None or run.slot.at - first < longest * MINUTE
    ends = [run.slot.at for run in late]
    firsts = [run.slot.at if run.first is None else run.first for run in late]
    assert all(end < first for end, first in zip(ends, firsts[1:], strict=False)), "they do not overlap"
    if longest is None:
        assert len(late) <= 1


@given(
    entries(select="span", overlap_policy="all", max_runs=None, max_pending=None, skip_if_successful=False),
    st.lists(minutes, min_size=1, max_size=5),
    minutes,
)
def test_the_spans_of_split_outages_stand_for_the_slots_of_one(
    entry: Entry, restarts: list[int], length: int
) -> None:
    begin = NOON - length * MINUTE
    entry = replace(entry, policy=entry.policy.model_copy(update={"window": timedelta(days=30)}))
    entry = replace(entry, schedules=tuple(replace(s, overrides=None) for s in entry.schedules))

    def outage(*ends: Instant) -> tuple[Counter[Slot], Counter[Slot]]:
        """Return the slots that run or are covered, and those that are skipped for another reason."""
        decided, plans = begin, list[Plan]()
        for now in ends:
            state = EntryState(first_seen_at=begin, decided=decided)
            plans.append(plan(entry, state, replay(entry, state, scheduler_watermark=begin, now=now)))
            decided = plans[-1].watermark
        stood_for, others = list[Plan](), list[Plan]()
        for one in plans:
            covered = tuple(skip for skip in one.skips if skip.reason is SkipReason.COVERED)
            assert sum(run.slots for run in one.runs) == len(one.runs) + sum(s.count for s in covered)
            stood_for.append(replace(one, skips=covered))
            others.append(replace(one, runs=(), skips=tuple(s for s in one.skips if s not in covered)))
        return decided_slots(entry, *stood_for), decided_slots(entry, *others)

    split = sorted([NOON, *(NOON - offset * MINUTE for offset in restarts if offset < length)])

    assert outage(*split) == outage(NOON)
