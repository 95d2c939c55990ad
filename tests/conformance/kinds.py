"""How each kind of case is run. A kind that is not here fails.

A kind that takes ``redis_url`` runs on a real server, with the engine and the scripts of production.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_catchup.config.durations import FINE_UNITS, parse_duration
from celery_catchup.errors import BackfillError, CronError, DurationError
from celery_catchup.events import RunSkipped
from celery_catchup.model import (
    Instant,
    Plan,
    RunState,
    SkipReason,
    Slot,
    attempt_id,
    run_id,
    to_datetime,
)
from celery_catchup.planning.caps import earliest_send, share
from celery_catchup.planning.entry import Entry, EntryState, first_sight, too_frequent
from celery_catchup.planning.planner import plan
from celery_catchup.planning.scope import Reprocess, Scope, backfill, replay
from celery_catchup.testing import FakeClock
from celery_catchup.timetables.cron_dialects import Dialect, parse_cron
from tests.conformance.entries import (
    LONG_AGO,
    entry_of,
    existing_of,
    listed,
    policy_fields,
    started,
    state_of,
    watermark_of,
)
from tests.conformance.fields import Fields, fields, instant
from tests.integration.beats import Beat


def run_plan(case: Fields) -> None:
    case.take("previous_cron", None)  # the current schedule decides, also for the time before
    newest_first = case.take("order", "oldest_first") == "newest_first"
    at_least = case.take("watermark_after_plan_at_least", None)
    watermark, now = watermark_of(case.take("scheduler_watermark")), case.time("now")
    cap = case.take("catchup_max_runs", None)
    entry = entry_of(case)
    state = state_of(case, entry)
    scope = replace(replay(entry, state, scheduler_watermark=watermark, now=now), newest_first=newest_first)
    if cap is not None:
        state = replace(state, allowance=share([plan(entry, state, scope)], cap)[0])

    result = plan(entry, state, scope)

    with fields(case.take("expected")) as expected:
        at_least = expected.take("watermark_after_plan_at_least", at_least)
        _check(expected, entry, result, scope)
    assert at_least is None or result.watermark >= instant(at_least)


def _check(expected: Fields, entry: Entry, result: Plan, scope: Scope) -> None:
    slots, summary = expected.take("slots", None), expected.take("summary", None)
    assert slots is not None or summary is not None
    if slots is not None:
        assert started(result) == [instant(slot) for slot in slots]
    if summary is not None:
        with fields(summary) as wanted:
            _check_summary(wanted, result)
    skipped = expected.take("skipped", None)
    if skipped is not None:
        known = [skip for skip in result.skips if skip.reason is not SkipReason.EXPIRED]
        assert listed(entry, known) == [(instant(skip["slot"]), skip["reason"]) for skip in skipped]
    replay_from = expected.time("replay_from", None)
    assert replay_from in (None, scope.begin)
    assert expected.take("outside_window", result.expired) == result.expired


def _check_summary(wanted: Fields, result: Plan) -> None:
    slots = started(result)
    assert len(slots) == wanted.take("count")
    assert wanted.time("first", None) in (None, slots[0])
    assert wanted.time("last", None) in (None, slots[-1])
    assert result.skipped == wanted.take("skipped_count", result.skipped)
    reason = wanted.take("skip_reason", None)
    assert reason is None or {skip.reason for skip in result.skips} == {SkipReason(reason)}


def run_backfill(case: Fields) -> None:
    bounds = case.take("bounds", "inclusive_both")
    start, end = case.time("start"), case.time("end")
    start += 1 if bounds in ("exclusive_start", "exclusive_both") else 0
    end -= 1 if bounds in ("exclusive_end", "exclusive_both") else 0
    options = {"reprocess": Reprocess(case.take("reprocess")), "newest_first": case.take("reverse")}
    now = case.time("now")
    entry = entry_of(case, window="1d")
    state = EntryState(LONG_AGO, existing=existing_of(case.take("existing_runs"), entry))
    with fields(case.take("expected")) as expected:
        error = expected.take("error", None)
        if error is not None:
            with pytest.raises(BackfillError) as raised:
                backfill(entry, start=start, end=end, now=now, **options)
            assert raised.value.code == error
        else:
            scope = backfill(entry, start=start, end=end, now=now, **options)
            _check(expected, entry, plan(entry, state, scope), scope)


def run_sequence(case: Fields) -> None:
    steps = case.take("steps")
    entry = entry_of(case)
    state = EntryState(LONG_AGO)
    for raw in steps:
        with fields(raw) as step:
            assert step.take("event", None) in (None, "entry_reloaded")
            state = replace(
                state, existing={**state.existing, **existing_of(step.take("existing_runs", []), entry)}
            )
            state = _run_step(step, entry, state)


def _run_step(step: Fields, entry: Entry, state: EntryState) -> EntryState:
    """One restart that dispatches slot by slot, as far as the step lets it."""
    now, watermark = step.time("now"), step.time("watermark_before")
    failing, most = step.time("fail_dispatch_at", None), step.take("stop_after", None)
    most = 0 if step.take("queue_full", False) else most
    dispatched: list[Instant] = []
    skipped: list[tuple[Instant, str]] = []
    reached = watermark
    while True:
        scope = replay(entry, state, scheduler_watermark=watermark, now=now)
        result = plan(entry, state, scope, limit=1)
        if result.runs and (result.runs[0].slot.at == failing or len(dispatched) == most):
            break
        dispatched += started(result)
        skipped += listed(entry, result.skips)
        made = {run.slot: RunState.QUEUED for run in result.runs}
        state = replace(
            state, decided=result.watermark, existing={**state.existing, **made}, used=len(dispatched)
        )
        reached = result.watermark
        if result.complete:
            break
    wanted = [(instant(skip["slot"]), skip["reason"]) for skip in step.take("skipped", [])]
    assert dispatched == [instant(slot) for slot in step.take("dispatched")]
    assert skipped == wanted
    assert reached == step.time("watermark_after")
    return replace(state, used=None)


def run_overlap_simulation(case: Fields, *, redis_url: str) -> None:
    runs = {instant(run["slot"]): run for run in case.take("runs")}
    lengths = {at: instant(run["ends_at"]) - instant(run["starts_at"]) for at, run in runs.items()}
    start, crons = case.time("start"), case.take("cron")
    policy = {"window": "1d", "timezone": case.take("timezone", "UTC"), **policy_fields(case)}
    beat = Beat(redis_url, FakeClock(to_datetime(start)), {"entry": (crons, policy)})

    starts = _simulate(beat, max(runs), lengths)

    with fields(case.take("expected")) as expected:
        skips = [event.skip for event in beat.told(RunSkipped)]
        skipped = [at for at, _ in listed(beat.engine.entries.by_name["entry"].entry, skips)]
        assert skipped == [instant(slot) for slot in expected.take("skipped")]
    assert starts == {at: instant(run["starts_at"]) for at, run in runs.items()}


def _simulate(beat: Beat, last: Instant, lengths: dict[Instant, int]) -> dict[Instant, Instant]:
    """When the message of each slot was sent, while workers take as long as the case says."""
    beat.tick()
    (schedule,) = beat.engine.entries.by_name["entry"].entry.schedules
    arrivals = list(schedule.timetable.slots(beat.engine.now(), last))
    ends: dict[str, Instant] = {}
    starts: dict[Instant, Instant] = {}
    while arrivals or ends:
        now = min([*arrivals[:1], *ends.values()])
        beat.clock.set(to_datetime(now))
        for identity in [identity for identity, end in ends.items() if end == now]:
            del ends[identity]
            beat.leases.finish(identity, entry="entry", owner=identity, state=RunState.SUCCEEDED)
        arrivals = [at for at in arrivals if at > now]
        beat.tick()
        for message in beat.messages():
            at, identity = instant(message["slot"]), message["id"]
            if at not in starts:
                beat.leases.claim(identity, owner=identity, task="proj.entry", worker="w")
                starts[at], ends[identity] = now, now + lengths[at]
    return starts


def run_global_cap(case: Fields) -> None:
    watermark, now = case.time("scheduler_watermark"), case.time("now")
    cap, zone = case.take("catchup_max_runs"), case.take("timezone")
    shared = {"overlap_policy": "all", **policy_fields(case)}
    entries = [
        entry_of(Fields({"timezone": zone, **raw}), **shared) for raw in map(_unnamed, case.take("entries"))
    ]
    states = [EntryState(LONG_AGO) for _ in entries]
    scopes = [
        replay(e, s, scheduler_watermark=watermark, now=now) for e, s in zip(entries, states, strict=True)
    ]
    before = [plan(*planned) for planned in zip(entries, states, scopes, strict=True)]
    states = [EntryState(LONG_AGO, allowance=kept) for kept in share(before, cap)]

    plans = [plan(*planned) for planned in zip(entries, states, scopes, strict=True)]

    with fields(case.take("expected")) as expected:
        assert sum(len(p.runs) for p in plans) == expected.take("total_dispatched")
        most = expected.take("max_per_job", None)
        assert most is None or max(len(p.runs) for p in plans) <= most
        candidates = expected.take("candidates_per_job", None)
        assert candidates is None or {p.candidates for p in plans} == {candidates}
        assert sum(p.skipped for p in plans) == expected.take("total_skipped")
        assert {skip.reason for p in plans for skip in p.skips} == {SkipReason(expected.take("skip_reason"))}


def _unnamed(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "name"}


def run_rate_limit(case: Fields) -> None:
    """A beat with nothing else to do, that sends each run as soon as it may."""
    pause = case.take("rate_limit_ms")
    sent: list[Instant] = []
    for _ in range(case.take("dispatches")):
        sent.append(earliest_send(sent[-1] if sent else None, pause=pause, now=0))
    with fields(case.take("expected")) as expected:
        assert sent[-1] - sent[0] >= expected.take("min_elapsed_ms")


def run_first_start(case: Fields) -> None:
    now = case.time("now")
    first_start = case.take("first_start", "match")
    entry = entry_of(case, window="1d")
    state = EntryState(first_sight(now, match=first_start == "match"))
    result = plan(entry, state, replay(entry, state, scheduler_watermark=LONG_AGO, now=now))
    with fields(case.take("expected")) as expected:
        assert bool(result.runs) is expected.take("runs_now")


def run_frequency_guard(case: Fields) -> None:
    zone_case = Fields(
        {"cron": [case.take("cron")], "timezone": case.take("timezone", "UTC"), "window": "1d"}
    )
    timetable = entry_of(zone_case).schedules[0].timetable
    poll = parse_duration(case.take("poll_interval"), units=FINE_UNITS)
    with fields(case.take("expected")) as expected:
        assert (too_frequent(timetable, poll_interval=poll) is None) is expected.take("accepted")
        minutes = expected.take("min_interval_minutes", None)
        assert minutes is None or timetable.minimum_distance() == minutes * 60_000


def run_identity(case: Fields) -> None:
    pairs, replayed = case.take("pairs", []), case.take("replay", False)
    assert pairs or replayed
    for pair in pairs:
        with fields(pair) as both:
            a, b = _identity(both.take("a")), _identity(both.take("b"))
            assert (a == b) is both.take("equal")
    if replayed:
        run = _identity({"slot": "2026-04-20T00:00:00Z", "entry": "j"})
        again = _identity({"slot": "2026-04-20T00:00:00Z", "entry": "j"})
        with fields(case.take("expected")) as expected:
            assert (run == again) is (expected.take("run_id") == "same")
            assert (attempt_id(run, 1) != attempt_id(again, 2)) is (expected.take("attempt_id") == "new")


def _identity(raw: dict[str, Any]) -> str:
    with fields(raw) as case:
        attempt = case.take("attempt", 1)
        slot = Slot(case.time("slot"), case.take("schedule", 0))
        rest = {name: str(case.take(name, "")) for name in ("tenant", "logic_version")}
        run = run_id(case.take("namespace", "app"), case.take("entry"), slot, **rest)
        assert attempt_id(run, attempt) == attempt_id(run, attempt)
        return run


def run_lifecycle(case: Fields, *, redis_url: str) -> None:
    removed, readded = case.time("removed_at", None), case.time("readded_at", None)
    paused_until, now = case.time("paused_until", None), case.time("now", None)
    with fields(case.take("expected")) as expected:
        kept = expected.take("state_kept", None)
        if kept is not None:
            ledger_ttl = case.take("ledger_ttl", "30d")
            assert _survives(redis_url, removed, readded, ledger_ttl=ledger_ttl) is kept
        following = expected.time("next_live_slot", None)
        if following is not None:
            entry = entry_of(case, window="1d")
            assert entry.schedules[0].timetable.next_after(max(now, paused_until)) == following


def _survives(redis_url: str, removed: Instant, readded: Instant, *, ledger_ttl: str) -> bool:
    """Whether beat still knows an entry that was not declared from ``removed`` to ``readded``."""
    first_seen = removed - 3_600_000
    entries = {"entry": ("0 * * * *", {"window": "1d"})}
    for at, declared in ((first_seen, entries), (removed, {}), (readded, entries)):
        beat = Beat(redis_url, FakeClock(to_datetime(at)), declared, ledger_ttl=ledger_ttl)
        beat.tick()
        beat.engine.resign()
    return beat.engine.entries.by_name["entry"].state.first_seen_at == first_seen


def run_duration(case: Fields) -> None:
    value = case.take("input")
    with fields(case.take("expected")) as expected:
        if expected.take("valid"):
            assert parse_duration(value) == timedelta(seconds=expected.take("seconds"))
        else:
            with pytest.raises(DurationError):
                parse_duration(value)


def run_posix_cron(case: Fields) -> None:
    text = case.take("input")
    with fields(case.take("expected")) as expected:
        valid = expected.take("valid")
        if valid is True:
            parse_cron(text, dialect=Dialect.POSIX)
        elif valid is False:
            with pytest.raises(CronError):
                parse_cron(text, dialect=Dialect.POSIX)
        else:
            assert valid == "either"


KINDS: dict[str, Callable[..., None]] = {
    name.removeprefix("run_"): function
    for name, function in list(globals().items())
    if name.startswith("run_")
}
