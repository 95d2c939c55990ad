"""The whole configuration: where policies come from, how they are joined, all mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from celery_catchup.config.configuration import UNSET, Configuration, Declaration, load
from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Policy, Select
from celery_catchup.errors import ConfigurationError

HOURLY, DAILY = "0 * * * *", "30 9 * * *"
DECLARED = {"report": Declaration(HOURLY), "hourly-etl": Declaration(timedelta(hours=1))}


def read(
    raw: Mapping[str, object] | None = None, declared: Mapping[str, Declaration] = DECLARED
) -> Configuration:
    return load(raw or {}, declared=declared, timezone=UTC)


def mistakes(raw: Mapping[str, Any], declared: Mapping[str, Declaration] = DECLARED) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        read(raw, declared)
    return [str(mistake) for mistake in caught.value.mistakes]


def test_an_entry_that_is_not_mentioned_has_no_policy() -> None:
    configuration = read()

    assert configuration.policies == {"report": None, "hourly-etl": None}
    assert [spec.source for spec in configuration.forms["hourly-etl"].start] == [timedelta(hours=1)]


def test_a_policy_stands_in_the_settings_or_on_the_entry() -> None:
    there = read({"catchup_entries": {"report": "6h"}}).policies["report"]
    here = read({}, {"report": Declaration(HOURLY, policy="6h")}).policies["report"]

    assert there == here == Policy(window=timedelta(hours=6))


def test_a_star_is_for_the_entries_that_are_not_mentioned() -> None:
    declared = {**DECLARED, "own": Declaration(HOURLY, policy="1d")}

    policies = read({"catchup_entries": {"*": "6h", "report": False}}, declared).policies

    assert policies["report"] == Policy(select=Select.OFF, overlap_policy=OverlapPolicy.ALLOW)
    assert policies["hourly-etl"] == Policy(window=timedelta(hours=6))
    assert policies["own"] == Policy(window=timedelta(days=1))


def test_a_wrong_star_is_told_once() -> None:
    assert mistakes({"catchup_entries": {"*": "6x"}}) == [
        "catchup_entries.*.window: '6x' has an unknown unit 'x'; use d, h or m"
    ]


def test_a_policy_in_both_places_is_a_mistake() -> None:
    assert mistakes({"catchup_entries": {"report": "6h"}}, {"report": Declaration(HOURLY, policy="6h")}) == [
        "catchup_entries.report: the entry has a policy at beat_schedule.report.catchup too; keep one of them"
    ]


def test_a_policy_for_nobody_is_a_mistake() -> None:
    assert mistakes({"catchup_entries": {"reprt": "6h"}}) == [
        "catchup_entries.reprt: no such entry in beat_schedule (known: report, hourly-etl); "
        "did you mean 'report'?"
    ]
    assert mistakes({"catchup_entries": {"report": "6h"}}, {}) == [
        "catchup_entries.report: no such entry in beat_schedule (it is empty)"
    ]


def test_of_many_known_entries_a_few_are_named() -> None:
    declared = {f"entry-{number}": Declaration(HOURLY) for number in range(10_000)}

    (mistake,) = mistakes({"catchup_entries": {"zzz": "6h"}}, declared)

    assert mistake.endswith("(known: entry-0, entry-1, entry-2, entry-3, …)")


def test_all_mistakes_of_all_parts_are_told_at_once() -> None:
    declared = {"report": Declaration("61 * * * *"), "nightly": Declaration([], policy={"windw": "6h"})}

    found = mistakes(
        {"catchup_lease_ttl": "1s", "catchup_entries": {"report": {"select": "newest"}, "x": "6h"}}, declared
    )

    assert [mistake.partition(": ")[0] for mistake in found] == [
        "catchup_lease_ttl",
        "catchup_entries.x",
        "catchup_entries.report.select",
        "beat_schedule.report.schedule",
        "beat_schedule.nightly.catchup.windw",
        "beat_schedule.nightly.schedule",
    ]


def test_the_error_is_one_text_with_a_line_for_each_mistake() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read({"catchup_entries": {"report": {"select": "newest", "windw": "6h"}, "nightly": "6h"}})

    assert str(caught.value).splitlines()[0] == "celery_catchup: 3 mistakes in the configuration"
    assert len(str(caught.value).splitlines()) == 4


@pytest.mark.parametrize(
    "name", ["", "a\x00b", "a\nb", "a\x1b[31m", "x" * 201, "\ud800", "*", "a\u2028b", "\N{ZERO WIDTH SPACE}"]
)
def test_a_name_that_keys_and_logs_cannot_hold_is_a_mistake(name: str) -> None:
    (mistake,) = mistakes({}, {name: Declaration(HOURLY)})

    assert mistake.startswith("beat_schedule.")
    assert mistake.isprintable()


@pytest.mark.parametrize("name", ["a:b", "{a}", "täglich", "proj.tasks.add(2, 2)", "x" * 200, "a/b c", "🚀"])
def test_other_names_are_fine(name: str) -> None:
    assert read({"catchup_entries": {name: "6h"}}, {name: Declaration(HOURLY)}).policies[name]


def test_cron_strings_are_checked_with_or_without_a_policy() -> None:
    assert "61" in mistakes({}, {"report": Declaration(["61 * * * *"])})[0]
    assert read({}, {"report": Declaration(HOURLY)}).policies == {"report": None}


def test_cron_strings_are_checked_in_the_dialect_of_the_app() -> None:
    declared = {"report": Declaration("*/15 * * * *")}

    assert read({}, declared)
    (mistake,) = mistakes({"catchup_cron_dialect": "posix"}, declared)
    assert "0,15,30,45" in mistake


def test_dates_are_read_in_the_zone_of_the_app() -> None:
    raw = {"catchup_entries": {"report": {"window": "6h", "start_date": "2026-02-07"}}}

    policy = load(raw, declared=DECLARED, timezone=ZoneInfo("Europe/Berlin")).policies["report"]

    assert policy is not None
    assert policy.start_date == datetime(2026, 2, 6, 23, tzinfo=UTC)


def test_the_preset_caps_each_entry_that_sets_no_cap() -> None:
    raw = {
        "catchup_preset": "conservative",
        "catchup_entries": {"report": {"window": "6h", "max_runs": 3}, "*": {"window": "6h"}},
    }

    policies = read(
        raw, {**DECLARED, "free": Declaration(HOURLY, {"window": "6h", "maxRuns": None})}
    ).policies

    assert {name: policy and policy.max_runs for name, policy in policies.items()} == {
        "report": 3,
        "hourly-etl": 20,
        "free": None,
    }


def test_schedules_with_policies_of_their_own_need_none_on_the_entry() -> None:
    schedule = [{"cron": HOURLY, "window": "6h"}, {"cron": DAILY, "select": "latest", "window": "1d"}]
    schedule += [{"cron": "0 0 * * *"}]

    configuration = read({}, {"report": Declaration(schedule)})

    assert configuration.policies["report"] == Policy(select=Select.OFF)
    selects = [spec.overrides and spec.overrides.select for spec in configuration.forms["report"].start]
    assert selects == [Select.ALL, Select.LATEST, None]


@pytest.mark.parametrize(
    "schedule",
    [
        [HOURLY],
        (HOURLY, DAILY),
        {"cron": HOURLY, "timezone": "Europe/Berlin"},
        {"cron": HOURLY, "start_date": "2026-02-07"},
        {"start": HOURLY, "stop": DAILY},
    ],
)
def test_a_schedule_that_celery_does_not_have_is_managed_and_recovers_nothing(schedule: object) -> None:
    (policy,) = read({}, {"report": Declaration(schedule)}).policies.values()

    assert policy == Policy(select=Select.OFF, overlap_policy=OverlapPolicy.ALLOW)


def test_an_entry_that_is_plain_stays_so_whatever_its_schedule() -> None:
    assert read({}, {"report": Declaration([HOURLY], plain=True)}).policies == {"report": None}


def test_the_bounds_of_a_declaration_hold_for_a_managed_schedule_too() -> None:
    starts = datetime(2026, 2, 7, tzinfo=UTC)

    policy = read({}, {"report": Declaration([HOURLY], starts=starts)}).policies["report"]

    assert policy is not None
    assert policy.start_date == starts


@pytest.mark.parametrize(
    ("written", "overlap"),
    [
        (False, OverlapPolicy.ALLOW),
        ({"select": False, "window": "6h"}, OverlapPolicy.ALLOW),
        ({"select": False, "overlap_policy": "skip"}, OverlapPolicy.SKIP),
        ("6h", OverlapPolicy.SKIP),
    ],
)
def test_with_catch_up_off_live_slots_overlap_unless_the_policy_says_otherwise(
    written: object, overlap: OverlapPolicy
) -> None:
    policy = read({"catchup_entries": {"report": written}}).policies["report"]

    assert policy is not None
    assert policy.overlap_policy is overlap
    assert ("overlap_policy" in policy.model_fields_set) is ("overlap_policy" in str(written))


def test_false_for_every_other_entry_gives_way_to_a_schedule_with_a_window() -> None:
    declared = {"report": Declaration({"cron": HOURLY, "window": "6h"})}

    others = read({"catchup_entries": {"*": False}}, declared)
    explicit = read({}, declared)

    assert others.policies == explicit.policies == {"report": Policy(select=Select.OFF)}
    assert others.forms == explicit.forms
    assert others.warnings == ()


def test_false_for_the_entry_itself_turns_off_its_schedules_and_is_warned_of() -> None:
    declared = {"report": Declaration({"cron": HOURLY, "window": "6h"})}

    found = read({"catchup_entries": {"report": False}}, declared)

    (spec,) = found.forms["report"].start
    assert spec.overrides is not None
    assert spec.overrides.select is None
    assert [warning.partition(",")[0] for warning in found.warnings] == [
        "entry 'report': the window of beat_schedule.report.schedule has no effect"
    ]


@pytest.mark.parametrize(
    ("policy", "schedule", "words"),
    [
        ({"window": "6h", "keep": "newest"}, HOURLY, "keep has no effect without max_runs"),
        ({"window": "6h", "catchup": "all"}, HOURLY, "recovers only the first missed slot"),
        ({"window": "6h", "select": True}, HOURLY, "recovers only the first missed slot"),
        (UNSET, {"cron": HOURLY, "catchup": "all", "catchupWindow": "6h"}, "recovers only the first"),
        ({"window": "6h", "select": "span", "max_span": "1h"}, HOURLY, "only the first span of a longer gap"),
    ],
)
def test_what_has_no_effect_is_warned_of_once(policy: object, schedule: object, words: str) -> None:
    (warning,) = read({}, {"report": Declaration(schedule, policy)}).warnings

    assert warning.startswith("entry 'report': ")
    assert words in warning


@pytest.mark.parametrize(
    "policy",
    [
        "6h",
        {"window": "6h", "select": "latest"},
        {"window": "6h", "catchup": "all", "overlap_policy": "skip"},
        {"window": "6h", "catchup": "all", "overlapPolicy": "all"},
        {"window": "6h", "select": "span"},
        {"window": "6h", "select": "span", "max_span": "1h", "overlap_policy": "all"},
        {"window": "6h", "keep": "newest", "max_runs": 3},
        False,
    ],
)
def test_a_policy_that_says_what_it_means_is_not_warned_of(policy: object) -> None:
    assert read({}, {"report": Declaration(HOURLY, policy)}).warnings == ()


def test_keep_has_an_effect_under_a_preset_that_caps() -> None:
    declared = {"report": Declaration(HOURLY, {"window": "6h", "keep": "newest"})}

    assert read({"catchup_preset": "conservative"}, declared).warnings == ()


def test_a_window_on_a_schedule_leaves_the_choice_to_the_entry_that_made_one() -> None:
    declared = {"report": Declaration({"cron": HOURLY, "window": "1d"})}

    configuration = read({"catchup_entries": {"report": {"select": "latest", "window": "6h"}}}, declared)

    (spec,) = configuration.forms["report"].start
    assert spec.overrides is not None
    assert (spec.overrides.select, spec.overrides.window) == (None, timedelta(days=1))


def test_a_schedule_that_does_not_fit_its_entry_is_a_mistake() -> None:
    declared = {"report": Declaration([{"cron": HOURLY, "select": "all"}])}

    (mistake,) = mistakes({"catchup_entries": {"report": False}}, declared)

    assert mistake.startswith("beat_schedule.report.schedule[0].window: missing with select: all")


@pytest.mark.parametrize(
    ("policies", "days"), [({}, 30), ({"report": "28d"}, 30), ({"report": "30d"}, 31), ({"*": "60d"}, 61)]
)
def test_a_ledger_ttl_that_is_not_set_follows_the_longest_window(policies: dict[str, str], days: int) -> None:
    assert read({"catchup_entries": policies}).settings.ledger_ttl == timedelta(days=days)


def test_the_window_of_a_schedule_lengthens_the_ledger_too() -> None:
    declared = {"report": Declaration([{"cron": HOURLY, "window": "1h"}, {"cron": DAILY, "window": "90d"}])}

    assert read({}, declared).settings.ledger_ttl == timedelta(days=91)


def test_the_ledger_remembers_longer_than_any_window() -> None:
    raw = {"catchup_entries": {"report": "60d", "hourly-etl": "30d"}, "catchup_ledger_ttl": "30d"}
    (mistake,) = mistakes(raw)

    assert mistake.startswith(
        "catchup_ledger_ttl: 30d is not longer than the window of catchup_entries.report, 60d: "
    )
    assert mistake.endswith("set more than 60d, or a shorter window")


def test_the_window_of_a_schedule_counts_too() -> None:
    declared = {"report": Declaration([{"cron": HOURLY, "window": "1h"}, {"cron": DAILY, "window": "2d"}])}

    (mistake,) = mistakes({"catchup_ledger_ttl": "2d"}, declared)

    assert "beat_schedule.report.schedule[1], 2d" in mistake


def test_windows_are_not_judged_by_a_setting_that_could_not_be_read() -> None:
    raw = {"catchup_entries": {"report": "60d"}, "catchup_ledger_ttl": "90d", "catchup_lease_ttl": "1s"}

    assert [mistake.partition(": ")[0] for mistake in mistakes(raw)] == ["catchup_lease_ttl"]


def test_ten_thousand_entries_are_read_in_a_moment() -> None:
    declared = {f"entry-{number}": Declaration(f"{number % 60} * * * *") for number in range(10_000)}

    assert len(read({"catchup_entries": {"*": "6h"}}, declared).policies) == 10_000
