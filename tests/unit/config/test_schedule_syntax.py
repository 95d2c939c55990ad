"""Schedules: every form a user may write becomes the same kind of value."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from celery_catchup.config.policy import SchedulePolicy, Select
from celery_catchup.config.schedule_syntax import ScheduleForm, ScheduleSpec, read_schedule
from celery_catchup.errors import ConfigurationError

HOURLY, DAILY = "0 * * * *", "30 9 * * *"


class CustomSchedule:
    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        raise NotImplementedError


def read(raw: object) -> ScheduleForm:
    return read_schedule(raw, where="beat_schedule.report.schedule")


def mistakes(raw: object) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(raw)
    return [str(mistake).removeprefix("beat_schedule.report.schedule") for mistake in caught.value.mistakes]


def test_a_cron_string_is_one_schedule() -> None:
    assert read(HOURLY) == ScheduleForm(start=(ScheduleSpec(HOURLY),))


@pytest.mark.parametrize("native", [30, 0.5, timedelta(hours=1), CustomSchedule()])
def test_what_celery_takes_is_passed_on_untouched(native: object) -> None:
    (spec,) = read(native).start

    assert spec.source is native
    assert spec.overrides is None


@pytest.mark.parametrize("raw", [[HOURLY, DAILY], (HOURLY, DAILY), [{"cron": HOURLY}, {"cron": DAILY}]])
def test_a_list_is_one_schedule_for_each_in_order(raw: object) -> None:
    assert read(raw) == ScheduleForm(start=(ScheduleSpec(HOURLY), ScheduleSpec(DAILY)))


def test_a_list_may_hold_one_schedule_twice() -> None:
    assert len(read([HOURLY, HOURLY]).start) == 2


def test_a_list_may_mix_cron_strings_and_celery_schedules() -> None:
    assert [spec.source for spec in read([HOURLY, timedelta(hours=1)]).start] == [HOURLY, timedelta(hours=1)]


def test_a_mapping_gives_a_schedule_a_policy_of_its_own() -> None:
    (spec,) = read({"cron": HOURLY, "select": "latest", "catchupWindow": "1d"}).start

    assert spec.source == HOURLY
    assert spec.overrides == SchedulePolicy(select=Select.LATEST, window=timedelta(days=1))


def test_a_mapping_may_give_its_schedule_an_id() -> None:
    form = read({"start": [{"cron": HOURLY, "id": "hours"}, {"cron": DAILY}], "restart": {"cron": DAILY}})

    assert [spec.id for spec in form] == ["hours", None, None]
    assert form.start[0].overrides is None


def test_dates_of_a_schedule_are_read_in_its_own_zone_or_that_of_its_entry() -> None:
    raw = [{"cron": HOURLY, "start_date": "2026-02-07", "timezone": "Asia/Tokyo"}]
    raw += [{"cron": HOURLY, "start_date": "2026-02-07"}]

    form = read_schedule(raw, where="here", timezone=ZoneInfo("Europe/Berlin"))

    starts = [spec.overrides and spec.overrides.start_date for spec in form.start]
    assert starts == [datetime(2026, 2, 6, 15, tzinfo=UTC), datetime(2026, 2, 6, 23, tzinfo=UTC)]


def test_start_stop_and_restart_take_any_form() -> None:
    form = read(
        {
            "start": [{"cron": HOURLY, "window": "6h"}],
            "stop": [HOURLY, DAILY],
            "restart": {"cron": DAILY, "timezone": "Asia/Tokyo"},
        }
    )

    assert form.start == (ScheduleSpec(HOURLY, SchedulePolicy(window=timedelta(hours=6))),)
    assert form.stop == (ScheduleSpec(HOURLY), ScheduleSpec(DAILY))
    assert form.restart == (ScheduleSpec(DAILY, SchedulePolicy(timezone="Asia/Tokyo")),)
    assert [spec.source for spec in form] == [HOURLY, HOURLY, DAILY, DAILY]


def test_a_schedule_knows_where_it_was_written() -> None:
    form = read({"start": [HOURLY, DAILY], "stop": DAILY})

    assert [spec.where for spec in form] == [
        "beat_schedule.report.schedule.start[0]",
        "beat_schedule.report.schedule.start[1]",
        "beat_schedule.report.schedule.stop",
    ]


@pytest.mark.parametrize(
    ("raw", "mistake"),
    [
        ([], ": the list is empty, got []; name at least one schedule"),
        ({}, ": the mapping is empty, got {}; write {'cron': …} or {'start': …}"),
        (None, ": expected a cron string, a list, a mapping or a Celery schedule, got None"),
        (True, ": expected a cron string, a list, a mapping or a Celery schedule, got True"),
        ({HOURLY}, f": expected a cron string, a list, a mapping or a Celery schedule, got {{'{HOURLY}'}}"),
        (
            [HOURLY, {"cron": DAILY}],
            ": the list mixes cron strings and mappings; write each string as {'cron': …}",
        ),
        ([[HOURLY]], f"[0]: a list inside a list, got ['{HOURLY}']; write one list"),
        ([{"start": HOURLY}], "[0]: has start inside a list; write the list inside start instead"),
        ({"crn": HOURLY}, ".crn: unknown field; did you mean 'cron'?"),
        ({"cron": HOURLY, "windw": "6h"}, ".windw: unknown field; did you mean 'window'?"),
        ({"window": "6h"}, ".cron: missing; add 'cron', 'every' or 'at'"),
        ({"cron": 5}, ".cron: expected a cron string such as '0 * * * *', got 5"),
        (
            {"minute": 0, "hour": 5},
            ": got {'minute': 0, 'hour': 5}; write crontab(…) with these, or a cron string",
        ),
        (
            {"start": HOURLY, "cron": DAILY},
            ".cron: cannot be combined with start; put it inside start, as {'cron': …}",
        ),
        (
            {"start": HOURLY, "stop": DAILY, "window": "6h"},
            ".window: cannot be combined with start and stop; put it inside start, as {'cron': …}",
        ),
        ({"strat": HOURLY}, ".strat: unknown field; did you mean 'start'?"),
        ({"start": HOURLY, "resart": DAILY}, ".resart: unknown field; did you mean 'restart'?"),
        ({"start": HOURLY, "until": DAILY}, ".until: unknown field; use start, stop and restart"),
        ({"stop": HOURLY}, ": has stop but no start, so no run would ever start; add start"),
        (
            {"stop": HOURLY, "restart": DAILY},
            ": has stop and restart but no start, so no run would ever start; add start",
        ),
        (
            {"start": {"start": HOURLY}},
            ".start: has start inside; put start, stop and restart side by side",
        ),
        (
            {"start": HOURLY, "stop": {"cron": DAILY, "select": "all"}},
            ".stop.select: has no effect on stop, only start is caught up; remove it",
        ),
        (
            {"start": HOURLY, "restart": [{"cron": DAILY, "catchup_window": "6h"}]},
            ".restart[0].window: has no effect on restart, only start is caught up; remove it",
        ),
        (
            {"start": HOURLY, "stop": None},
            ".stop: expected a cron string, a list, a mapping or a Celery schedule, got None",
        ),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(raw: object, mistake: str) -> None:
    assert mistakes(raw) == [mistake]


def test_all_mistakes_are_told_at_once() -> None:
    raw = {"start": [{"cron": 1}, {"cron": HOURLY, "window": "6x"}], "stop": []}

    assert [mistake.partition(":")[0] for mistake in mistakes(raw)] == [
        ".start[0].cron",
        ".start[1].window",
        ".stop",
    ]
