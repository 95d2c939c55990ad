"""Policies: what may be written, what it means, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Keep, OnFailure, Policy, SchedulePolicy, Select
from celery_catchup.errors import ConfigurationError

BERLIN = ZoneInfo("Europe/Berlin")

ONE_OF_EACH: dict[str, Any] = {
    "select": "span",
    "window": "6h",
    "overlap_policy": "all",
    "max_span": "2h",
    "max_runs": 5,
    "keep": "newest",
    "hold_above": 100,
    "catch_up": {"queue": "late", "priority": 9},
    "max_active_runs": 2,
    "max_pending": 3,
    "on_failure": "stop",
    "pause_on_failure": True,
    "skip_if_successful": True,
    "on_resume": "discard",
    "on_schedule_change": "from_now",
    "timezone": "Europe/Berlin",
    "start_date": "2026-01-01",
    "end_date": "2026-12-31",
    "exclude": ["2026-12-25"],
    "misfire_threshold": "30s",
    "expect_within": "1h",
    "max_attempts": 3,
    "retry_delay": "1m",
    "retry_backoff": 2,
    "retry_max_delay": "1h",
    "for_each": {"customer": "proj.customers:active"},
    "refresh": "1m",
    "logic_version": "2",
    "tenant": "",
    "jitter": "500ms",
}


def read(raw: object, **context: Any) -> Policy:
    return Policy.from_raw(raw, where="catchup_entries.report", **context)


def mistakes(raw: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(raw)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_the_example_covers_every_field() -> None:
    assert list(ONE_OF_EACH) == list(Policy.model_fields)


def test_every_field_is_read_in_snake_case_and_in_camel_case() -> None:
    assert read(ONE_OF_EACH) == read({to_camel(name): value for name, value in ONE_OF_EACH.items()})


@pytest.mark.parametrize(
    ("field", "alias"),
    [("window", "catchup_window"), ("window", "catchupWindow"), ("select", "catchup")],
)
def test_some_fields_have_another_name(field: str, alias: str) -> None:
    raw = {"window": "6h", "select": "latest"}

    renamed = {alias if name == field else name: value for name, value in raw.items()}

    assert read(renamed) == read(raw)


def test_defaults() -> None:
    policy = read("6h")

    assert policy.window == timedelta(hours=6)
    assert policy.select is Select.ALL
    assert policy.overlap_policy is OverlapPolicy.SKIP
    assert policy.max_runs is None
    assert policy.keep is Keep.OLDEST
    assert policy.on_failure is OnFailure.CONTINUE
    assert policy.misfire_threshold == timedelta(seconds=60)
    assert (policy.max_active_runs, policy.max_attempts) == (1, 1)
    assert (policy.logic_version, policy.tenant) == ("", "")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("all", Select.ALL),
        (True, Select.ALL),
        ("latest", Select.LATEST),
        (False, Select.OFF),
        ("false", Select.OFF),
    ],
)
def test_select_may_be_a_word_or_a_bool(written: object, meant: Select) -> None:
    assert read({"window": "6h", "select": written}).select is meant


@pytest.mark.parametrize("raw", [timedelta(hours=6), {"window": timedelta(hours=6)}, {"window": "6h"}])
def test_a_window_may_stand_alone_and_be_a_timedelta(raw: object) -> None:
    assert read(raw) == read("6h")


def test_false_is_a_policy_that_recovers_nothing() -> None:
    assert read(False) == read({"select": False})
    assert read(False).window is None


def test_a_policy_that_was_read_already_is_taken_as_it_is() -> None:
    policy = read("6h")

    assert read(policy) is policy


def test_a_policy_never_changes() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read("6h").window = None  # type: ignore[misc]


def test_a_policy_that_recovers_needs_a_window() -> None:
    for raw in ({}, {"select": "all"}, {"select": "latest"}, {"window": None}):
        (mistake,) = mistakes(raw)
        assert mistake.startswith("catchup_entries.report.window: missing with select: ")
        assert "select: False" in mistake


def test_all_mistakes_are_told_at_once_each_at_the_name_that_was_written() -> None:
    assert mistakes({"catchup": "newest", "windw": "6h", "overlapPolicy": "al", "max_runs": "5"}) == [
        "catchup_entries.report.catchup: expected all, latest, span or false, got 'newest'; "
        "did you mean 'latest'?",
        "catchup_entries.report.overlapPolicy: expected skip, all, allow, buffer_one, cancel_other or "
        "terminate_other, got 'al'; did you mean 'all'?",
        "catchup_entries.report.max_runs: expected a whole number from 1 to 1000000000, got '5'",
        "catchup_entries.report.windw: unknown field; did you mean 'window'?",
    ]


def test_a_misspelt_window_is_not_also_missing() -> None:
    assert mistakes({"catchupWindw": "6h"}) == [
        "catchup_entries.report.catchupWindw: unknown field; did you mean 'window'?"
    ]


def test_one_field_under_two_names_is_a_mistake() -> None:
    assert mistakes({"window": "6h", "catchupWindow": "6h"}) == [
        "catchup_entries.report.catchupWindow: 'window' is given under two names; keep one of them"
    ]


@pytest.mark.parametrize(("field", "value"), [("max_active_runs", 2), ("max_pending", 1)])
@pytest.mark.parametrize("overlap", [word for word in OverlapPolicy if word is not OverlapPolicy.ALL])
def test_limits_of_a_chain_need_the_policy_that_makes_one(
    field: str, value: int, overlap: OverlapPolicy
) -> None:
    (mistake,) = mistakes({"window": "6h", "overlap_policy": str(overlap), field: value})

    assert mistake.startswith(f"catchup_entries.report.{field}: {value} has no effect")
    assert mistake.endswith("only used with overlap_policy: all")


def test_what_equals_the_default_does_no_harm() -> None:
    assert read({"window": "6h", "max_active_runs": 1, "max_pending": None}) == read("6h")


def test_a_retry_delay_needs_a_second_attempt() -> None:
    (mistake,) = mistakes({"window": "6h", "retry_delay": "1m"})

    assert "max_attempts" in mistake


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-02-07", datetime(2026, 2, 6, 23, tzinfo=UTC)),
        (date(2026, 2, 7), datetime(2026, 2, 6, 23, tzinfo=UTC)),
        ("2026-02-07T06:00", datetime(2026, 2, 7, 5, tzinfo=UTC)),
        ("2026-07-07 06:00:30.5", datetime(2026, 7, 7, 4, 0, 30, 500_000, tzinfo=UTC)),
        (datetime(2026, 2, 7, 6), datetime(2026, 2, 7, 5, tzinfo=UTC)),
        ("2026-02-07T06:00Z", datetime(2026, 2, 7, 6, tzinfo=UTC)),
        ("2026-02-07T06:00-0500", datetime(2026, 2, 7, 11, tzinfo=UTC)),
        (datetime(2026, 2, 7, 6, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 2, 7, 4, tzinfo=UTC)),
    ],
)
def test_a_date_without_an_offset_is_wall_clock_time_of_the_app(written: object, meant: datetime) -> None:
    policy = read({"window": "6h", "start_date": written}, timezone=BERLIN)

    assert policy.start_date == meant
    assert policy.start_date.tzinfo is UTC


def test_the_zone_of_the_entry_comes_before_that_of_the_app() -> None:
    raw = {"window": "6h", "start_date": "2026-02-07", "timezone": "Asia/Tokyo"}

    assert read(raw, timezone=BERLIN).start_date == datetime(2026, 2, 6, 15, tzinfo=UTC)


def test_an_end_before_the_start_is_a_mistake() -> None:
    (mistake,) = mistakes({"window": "6h", "start_date": "2026-02-07", "end_date": "2026-02-06T23:59"})

    assert mistake.startswith("catchup_entries.report.end_date: 2026-02-06T23:59Z is before start_date")


def test_an_end_at_the_start_leaves_one_slot() -> None:
    policy = read({"window": "6h", "start_date": "2026-02-07", "end_date": "2026-02-07"})

    assert policy.start_date == policy.end_date


def test_every_field_has_a_sentence_for_the_reference() -> None:
    for model in (Policy, SchedulePolicy):
        for name, field in model.model_fields.items():
            assert (field.description or "").endswith("."), name


def test_a_schedule_sets_what_it_sets_and_leaves_the_rest_to_its_entry() -> None:
    entry = read({"window": "6h", "overlap_policy": "all", "timezone": "Asia/Tokyo"})

    own = SchedulePolicy.read({"select": "latest", "window": "1d"}).over(entry, where="here")

    assert (own.select, own.window) == (Select.LATEST, timedelta(days=1))
    assert (own.overlap_policy, own.timezone) == (OverlapPolicy.ALL, "Asia/Tokyo")


@pytest.mark.parametrize(("own", "entry"), [("span", "all"), ("all", "span"), ("span", "span")])
def test_a_span_is_of_the_whole_entry(own: str, entry: str) -> None:
    policy = read({"select": entry, "window": "6h"})

    with pytest.raises(ConfigurationError, match="joins the slots of all schedules"):
        SchedulePolicy.read({"select": own, "window": "6h"}).over(policy, where="here")


def test_a_schedule_and_its_entry_must_make_sense_together() -> None:
    with pytest.raises(ConfigurationError, match="here.window: missing with select: all"):
        SchedulePolicy.read({"select": "all"}).over(read(False), where="here")
