from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from celery_catchup.config.policy import Policy
from celery_catchup.model import Instant, SkipReason, Slot, to_instant
from celery_catchup.planning.entry import Entry, Schedule
from celery_catchup.planning.recorded_catchup import PastSkip, RecordedCatchup
from celery_catchup.planning.whatif import DecisionReplay, PastRun
from celery_catchup.timetables.cron_dialects import parse_cron

MINUTE = 60_000


def entry(**policy: Any) -> Entry:
    given = Policy.from_raw({"window": "6h", **policy}, where="entry 'etl'")
    return Entry("etl", (Schedule(parse_cron("0 * * * *")),), given)


def at(hour: int, minute: int = 0) -> Instant:
    return to_instant(datetime(2026, 2, 7, hour, minute, tzinfo=UTC))


def slot(hour: int) -> Slot:
    return Slot(at(hour), 0)


def decisions(replay: DecisionReplay) -> list[tuple[int, SkipReason | None]]:
    return [((one.slot.at - at(0)) // (60 * MINUTE), one.reason) for one in replay.slots()]


def test_a_run_that_a_later_decision_found_is_decided_where_it_was_made() -> None:
    """A leader whose clock was ahead caught up; the next one came to the same slot again."""
    late = RecordedCatchup(at(12, 5), at(10), epoch=1)
    runs = [PastRun(slot(hour), late.at, epoch=1) for hour in (11, 12)]
    skips = [PastSkip(slot(12), "already_exists", busy=2, epoch=2)]

    assert decisions(DecisionReplay(entry(overlap_policy="all"), runs, skips, [late])) == [
        (11, None),
        (12, None),
    ]


def test_a_run_belongs_to_the_catch_up_of_its_own_epoch() -> None:
    """The clock of the second leader was behind that of the first."""
    first = RecordedCatchup(at(12, 44), at(10), epoch=1)
    second = RecordedCatchup(at(12, 25), at(11, 30), epoch=2, active=1)
    runs = [PastRun(slot(11), first.at, epoch=1), PastRun(slot(12), first.at, busy=1, epoch=1)]
    skips = [PastSkip(slot(12), "already_exists", busy=2, epoch=2)]

    found = decisions(DecisionReplay(entry(overlap_policy="buffer_one"), runs, skips, [first, second]))

    assert found == [(11, None), (12, None)]


def test_a_slot_that_was_skipped_twice_is_shown_once() -> None:
    first = RecordedCatchup(at(12, 10), at(11), epoch=1, active=1)
    second = RecordedCatchup(at(12, 50), at(11), epoch=1, active=1)
    skips = [PastSkip(slot(12), "guard_blocked", busy=1, epoch=1)] * 2

    assert decisions(DecisionReplay(entry(), [], skips, [first, second])) == [(12, SkipReason.GUARD_BLOCKED)]


def test_a_run_of_a_span_and_one_of_its_newest_slot_are_two_runs() -> None:
    late = RecordedCatchup(at(13, 28), at(10), epoch=1)
    runs = [PastRun(slot(13), late.at, epoch=1), PastRun(slot(13), at(13), epoch=2)]
    skips = [PastSkip(slot(hour), "covered", epoch=1) for hour in (11, 12)]

    found = decisions(DecisionReplay(entry(select="span", overlap_policy="all"), runs, skips, [late]))

    assert found.count((13, None)) == 2


def test_a_live_slot_that_a_manual_run_passed_over_is_passed_over_again() -> None:
    skips = [PastSkip(slot(12), "manual_run", busy=1)]

    assert decisions(DecisionReplay(entry(overlap_policy="allow"), [], skips, [])) == [
        (12, SkipReason.MANUAL_RUN)
    ]


def test_a_live_slot_after_a_successful_manual_run_is_skipped_only_if_the_policy_asks_for_it() -> None:
    skips = [PastSkip(slot(12), "guard_blocked")]

    assert decisions(DecisionReplay(entry(skip_if_successful=True), [], skips, [])) == [
        (12, SkipReason.GUARD_BLOCKED)
    ]
    assert decisions(DecisionReplay(entry(), [], skips, [])) == [(12, None)]


def test_the_most_slots_of_one_request_take_seconds_at_most() -> None:
    """A request in Flower may play 20,000 slots again; the time must not grow with their square."""
    minutely = Entry("etl", (Schedule(parse_cron("* * * * *")),), entry(overlap_policy="all").policy)
    skips = [PastSkip(Slot(at(0) + number * MINUTE, 0), "guard_blocked", 1) for number in range(20_000)]

    began = time.process_time()
    found = list(DecisionReplay(minutely, [], skips, [], duration=2 * MINUTE).slots())

    assert time.process_time() - began < 5
    assert found[-1].ends == at(0) + 20_000 * 2 * MINUTE
