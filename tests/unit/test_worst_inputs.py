"""The worst that is written into settings files: each gets one clear sentence, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC

import pytest

from celery_catchup.config.configuration import load
from celery_catchup.config.durations import FINE_UNITS, parse_duration
from celery_catchup.config.policy import Policy
from celery_catchup.config.schedule_syntax import read_schedule
from celery_catchup.errors import ConfigurationError, CronError, DurationError
from celery_catchup.timetables.cron_dialects import Dialect, parse_cron
from tests.unit.worst_crons import EXTENDED, POSIX
from tests.unit.worst_settings import DECLARED, ENTRIES, SETTINGS, TOGETHER
from tests.unit.worst_values import POLICIES, SCHEDULES, WINDOWS

NEVER_SHOWN = ("pydantic", "Traceback", "<class", "object at 0x", "hunter2", "\n")
LONGEST_SENTENCE = 300


def sentence(read: Callable[[], object]) -> str:
    """What the user is told when reading fails; it must be one thing."""
    with pytest.raises((ConfigurationError, CronError, DurationError)) as caught:
        read()
    if not isinstance(caught.value, ConfigurationError):
        return str(caught.value)
    assert len(caught.value.mistakes) == 1, caught.value
    return str(caught.value.mistakes[0])


def rows() -> Iterator[tuple[str, Callable[[], object], tuple[str, ...]]]:
    """Every row of the tables: its name, how it is read, what the sentence must name."""
    for name, value, named in EXTENDED:
        yield f"cron: {name}", lambda value=value: parse_cron(value), named
    for name, value, named in POSIX:
        yield f"posix: {name}", lambda value=value: parse_cron(value, dialect=Dialect.POSIX), named
    for name, value, named in WINDOWS:
        yield f"window: {name}", lambda value=value: parse_duration(value), named
    for name, value, named in POLICIES:
        yield f"policy: {name}", lambda value=value: Policy.from_raw(value, where="catchup_entries.r"), named
    for name, value, named in SCHEDULES:
        yield f"schedule: {name}", lambda value=value: read_schedule(value, where="r.schedule"), named
    for name, raw, named in SETTINGS:
        yield f"settings: {name}", lambda raw=raw: load(raw, declared=DECLARED, timezone=UTC), named
    for name, entries, named in ENTRIES:
        yield f"entry: {name}", lambda entries=entries: load({}, declared=entries, timezone=UTC), named
    for name, raw, entries, named in TOGETHER:
        read = lambda raw=raw, entries=entries: load(raw, declared=entries, timezone=UTC)  # noqa: E731
        yield f"together: {name}", read, named


ROWS = list(rows())


@pytest.mark.parametrize(("read", "named"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_a_bad_input_gets_one_clear_sentence(read: Callable[[], object], named: tuple[str, ...]) -> None:
    told = sentence(read)

    assert [part for part in named if part not in told] == [], told
    assert [part for part in NEVER_SHOWN if part in told] == [], told
    assert told.isprintable()
    assert len(told) < LONGEST_SENTENCE


@pytest.mark.parametrize(("name", "value", "named"), WINDOWS, ids=[row[0] for row in WINDOWS])
def test_what_is_no_window_is_no_pause_either(name: str, value: object, named: tuple[str, ...]) -> None:
    if "too fine" not in named:
        assert sentence(lambda: parse_duration(value, units=FINE_UNITS))


def test_no_row_is_there_twice() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) >= 200
