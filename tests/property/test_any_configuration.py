"""Whatever stands in the settings: it is read, or refused in one-line sentences; nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_catchup.config.configuration import Declaration, load
from celery_catchup.config.policy import Policy, SchedulePolicy
from celery_catchup.config.schedule_syntax import read_schedule
from celery_catchup.config.settings import PREFIX, Settings
from celery_catchup.errors import ConfigurationError

# Words that are right somewhere, so that wrong combinations of right parts are reached too.
WORDS = [
    "6h",
    "100ms",
    "all",
    "latest",
    "false",
    "skip",
    "0 * * * *",
    "@daily",
    "Europe/Berlin",
    "2026-02-07",
]
FIELDS = [*Policy.spellings(), *SchedulePolicy.spellings(), "cron", "start", "stop", "restart"]

scalars: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(WORDS),
    st.text(max_size=20),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(max_size=5),
    st.timedeltas(),
    st.datetimes(),
    st.just(datetime(2026, 2, 7, tzinfo=UTC)),
    st.builds(object),
)
names = st.one_of(st.sampled_from(FIELDS), st.text(max_size=10), st.integers(), st.none())
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=8,
)


def many_values() -> st.SearchStrategy[Any]:
    """Lists of receivers, right and wrong in any of their fields."""
    fields = st.sampled_from(["url", "on", "format", "secret", ""])
    return st.lists(st.one_of(anything, st.dictionaries(fields, anything)), max_size=8)


many = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def told(read: Callable[..., object], *args: object, **options: object) -> list[str]:
    """The mistakes that reading finds; none when it succeeds."""
    try:
        read(*args, **options)
    except ConfigurationError as error:
        return [str(mistake) for mistake in error.mistakes]
    return []


def is_readable(line: str) -> bool:
    return line.isprintable() and len(line) < 400 and "object at 0x" not in line


@many
@given(anything)
def test_any_value_is_a_policy_or_refused(raw: object) -> None:
    assert all(map(is_readable, told(Policy.from_raw, raw, where="catchup_entries.report")))


@many
@given(st.dictionaries(st.sampled_from(list(Policy.spellings())), scalars, max_size=6))
def test_any_values_of_the_fields_are_a_policy_or_refused(raw: dict[str, Any]) -> None:
    assert all(map(is_readable, told(Policy.from_raw, raw, where="catchup_entries.report")))


@many
@given(anything)
def test_any_value_is_a_schedule_or_refused(raw: object) -> None:
    assert all(map(is_readable, told(read_schedule, raw, where="beat_schedule.report.schedule")))


@many
@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from([PREFIX + name for name in Settings.model_fields]), st.text().map(PREFIX.__add__)
        ),
        anything,
        max_size=5,
    ),
    st.dictionaries(
        st.text(max_size=8), st.builds(Declaration, anything, st.one_of(anything, st.just("6h"))), max_size=3
    ),
)
def test_any_configuration_is_loaded_or_refused(
    raw: dict[str, Any], declared: dict[str, Declaration]
) -> None:
    assert all(map(is_readable, told(load, raw, declared=declared, timezone=UTC)))


@many
@given(st.sampled_from(["notify", "calendars"]), st.one_of(many_values(), st.dictionaries(names, anything)))
def test_any_list_or_mapping_of_a_setting_is_read_or_refused(name: str, value: object) -> None:
    assert all(map(is_readable, told(Settings.read, {PREFIX + name: value})))


@many
@given(st.dictionaries(st.sampled_from(list(Policy.spellings())), scalars, max_size=3))
def test_what_was_read_once_is_read_again_as_the_same(raw: dict[str, Any]) -> None:
    with suppress(ConfigurationError):
        policy = Policy.from_raw({"window": "6h", **raw}, where="here")

        assert Policy.read(policy.model_dump()) == policy
