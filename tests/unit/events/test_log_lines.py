"""The words of the log are a contract: people and alerts read them."""

from __future__ import annotations

import logging

import pytest

from celery_catchup.events import (
    CatchupCompleted,
    CatchupPlanned,
    CatchupStarted,
    EntryFailed,
    Leading,
    RunDispatched,
    RunSkipped,
    StandingBy,
    StateSuspect,
    log_lines,
)
from celery_catchup.events.log_lines import MOST_LINES, LogLines, logfmt
from celery_catchup.model import PlannedRun, Skip, SkipReason, Slot, Trigger

TEN = 1_770_458_400_000  # 2026-02-07T10:00:00Z
HOUR = 3_600_000


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> LogLines:
    caplog.set_level(logging.INFO, logger="celery_catchup")
    return LogLines()


def dispatched(at: int, trigger: Trigger = Trigger.CATCHUP) -> RunDispatched:
    return RunDispatched("hourly-etl", PlannedRun(Slot(at), trigger, at), "a1b2")


def skipped(first: int, count: int, reason: SkipReason, *, catches_up: bool = True) -> RunSkipped:
    slots = tuple(range(first, first + count * HOUR, HOUR))
    skip = Skip(0, slots[0], slots[-1], count, reason)
    return RunSkipped("hourly-etl", skip, catches_up, slots if count <= 100 else ())


def test_a_catch_up_is_told_in_the_words_of_the_documentation(
    lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    for event in (
        CatchupStarted(3, 15, TEN, TEN + 2 * HOUR),
        CatchupPlanned("hourly-etl", "all", 3, "6h"),
        dispatched(TEN),
        skipped(TEN + HOUR, 1, SkipReason.ALREADY_EXISTS),
        CatchupCompleted(12, 3, 1.23),
    ):
        lines(event)

    assert caplog.messages == [
        'msg="Catch-up started" entries_with_catchup=3 total_candidates=15 '
        "window_start=2026-02-07T10:00:00Z window_end=2026-02-07T12:00:00Z",
        'msg="Catch-up planned" entry=hourly-etl overlap_policy=all candidates=3 window=6h',
        'msg="Catch-up run dispatched" entry=hourly-etl scheduled_time=2026-02-07T10:00:00Z run_id=a1b2',
        'msg="Catch-up run skipped" entry=hourly-etl scheduled_time=2026-02-07T11:00:00Z '
        "reason=already_exists",
        'msg="Catch-up completed" dispatched=12 skipped=3 duration=1.2s',
    ]


def test_a_lost_slot_comes_with_the_command_that_recovers_it(
    lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    lines(skipped(TEN, 1, SkipReason.CAP_EXCEEDED))

    assert caplog.messages[0].endswith(
        'reason=cap_exceeded recover="celery -A YOUR_APP catchup backfill hourly-etl '
        '--start 2026-02-07T10:00:00Z --end 2026-02-07T10:00:00Z"'
    )


@pytest.mark.parametrize("reason", [one for one in SkipReason if not one.recoverable])
def test_a_slot_that_was_sent_comes_without_a_command_that_would_send_it_again(
    lines: LogLines, caplog: pytest.LogCaptureFixture, reason: SkipReason
) -> None:
    lines(skipped(TEN, 1, reason))

    assert caplog.messages[0].endswith(f"reason={reason}")


def test_beyond_a_hundred_lines_there_is_one_summary(
    lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MOST_LINES + 50):
        lines(dispatched(TEN + number * HOUR))
    lines(skipped(TEN, 5000, SkipReason.EXPIRED))
    lines(CatchupCompleted(150, 5000, 1.0))

    assert len(caplog.messages) == MOST_LINES + 3
    assert caplog.messages[-3] == (
        'msg="Catch-up run dispatched" entry=hourly-etl first_scheduled_time=2026-02-11T14:00:00Z '
        "last_scheduled_time=2026-02-13T15:00:00Z count=50"
    )
    assert "count=5000 reason=expired recover=" in caplog.messages[-2]


def test_live_runs_are_quiet_and_a_live_skip_is_not(
    lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    lines(dispatched(TEN, Trigger.SCHEDULER))
    lines(skipped(TEN, 1, SkipReason.GUARD_BLOCKED, catches_up=False))

    assert [message.split(" entry")[0] for message in caplog.messages] == ['msg="Run skipped"']


def test_every_other_event_has_its_line(lines: LogLines, caplog: pytest.LogCaptureFixture) -> None:
    lines(Leading(7))
    lines(StandingBy("ab12"))
    lines(EntryFailed("etl", "no queue takes it", 4.0))
    lines(StateSuspect("the watermark is in the future"))

    assert caplog.messages == [
        'msg="Leading" epoch=7',
        'msg="Standing by" leader=ab12',
        'msg="Entry cannot be dispatched" entry=etl error="no queue takes it" retry_in=4s',
        'msg="State suspect" detail="the watermark is in the future"',
    ]
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "ERROR", "WARNING"]


@pytest.mark.parametrize("name", ["a b", 'q"uote', "new\nline", "nul\0", "x=y", ""])
def test_a_hostile_name_stays_on_its_line_and_in_its_field(name: str) -> None:
    line = logfmt("Catch-up planned", entry=name, window="6h")

    assert "\n" not in line
    assert "\0" not in line
    assert line.startswith('msg="Catch-up planned" entry="')
    assert line.endswith(" window=6h")


@pytest.mark.parametrize(
    ("root", "ours"),
    [("DEBUG", "DEBUG"), ("INFO", "INFO"), ("WARNING", "INFO"), ("ERROR", "ERROR")],
)
def test_our_level_follows_the_users(monkeypatch: pytest.MonkeyPatch, root: str, ours: str) -> None:
    parent, child = logging.getLogger("tests.level"), logging.getLogger(f"tests.level.{root}")
    parent.setLevel(root)
    monkeypatch.setattr(log_lines, "logger", child)

    log_lines.log_at_info()

    assert logging.getLevelName(child.getEffectiveLevel()) == ours


def test_slots_that_a_policy_skips_as_intended_are_one_line(
    lines: LogLines, caplog: pytest.LogCaptureFixture
) -> None:
    lines(skipped(TEN, 27, SkipReason.SUPERSEDED))
    lines(CatchupCompleted(1, 27, 1.0))

    (told,) = [message for message in caplog.messages if "reason=superseded" in message]
    assert "count=27" in told
