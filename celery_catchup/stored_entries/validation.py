"""Validate stored entries as the settings are validated: every mistake at once, with place, value and fix."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from celery_catchup.config.app_settings import raw_settings
from celery_catchup.config.configuration import (
    ENTRIES,
    Configuration,
    Declaration,
    entry_at,
    load,
    mistakes_by_entry,
)
from celery_catchup.config.mistakes import Mistakes
from celery_catchup.error_text import path, shown
from celery_catchup.errors import ConfigurationError, Mistake, ScheduleError
from celery_catchup.model import Instant, to_instant, to_rfc3339
from celery_catchup.planning.entry import too_frequent
from celery_catchup.stored_entries.stored_entry import LONGEST_RECORD, EntryFields, StoredEntry, encode
from celery_catchup.timetables.timetable import IntervalTable

PLACE = "entries"
"""Where mistakes of stored entries are reported."""


def parse_entries(raws: Sequence[object]) -> tuple[list[EntryFields], Mistakes]:
    """Parse the fields of entries; return those that can be parsed, and all mistakes."""
    found: dict[str, EntryFields] = {}
    mistakes = Mistakes()
    for index, raw in enumerate(raws):
        name = raw.get("name") if isinstance(raw, Mapping) else None
        where = path(PLACE, name) if isinstance(name, str) and name else f"{PLACE}[{index}]"
        if not isinstance(raw, Mapping):
            mistakes.add(where, f"expected a mapping with name, task and schedule, got {shown(raw)}")
            continue
        with mistakes.collect():
            one = EntryFields.read(raw, where=where)
            if one.name in found:
                mistakes.add(where, "another entry of this set has the same name; keep one of them")
            found[one.name] = one
    return list(found.values()), mistakes


def parse_schedules(raws: Iterable[object], *, parsed: Iterable[EntryFields]) -> list[EntryFields]:
    """Parse only schedule and policy of entries that are not ``parsed`` because another field is wrong: their
    mistakes are reported with it."""
    known, found = {one.name for one in parsed}, list[EntryFields]()
    for raw in raws:
        if isinstance(raw, Mapping) and "schedule" in raw and raw.get("name") not in known:
            alone = {name: raw[name] for name in ("name", "schedule", "catchup") if name in raw}
            with suppress(ConfigurationError):
                found.append(EntryFields.read({**alone, "task": "-"}, where=PLACE))
    return found


def schedule_mistakes(
    app: Any, entries: Iterable[EntryFields], *, new: Collection[str], now: Instant
) -> Mistakes:
    """Find the mistakes in schedules and policies under the app's settings. The schedules of ``new`` entries
    must have slots to come. Of entries with the same schedule and policy, only the first is examined."""
    given = {one.name: one for one in entries}
    alike: dict[object, list[str]] = {}
    for name, one in given.items():
        alike.setdefault((name in new, json.dumps((one.schedule, one.catchup))), []).append(name)
    others = {names[0]: names[1:] for names in alike.values()}
    raw = {name: value for name, value in raw_settings(app).items() if name != ENTRIES}
    declared = {name: Declaration(given[name].schedule, given[name].policy()) for name in others}
    mistakes = Mistakes()
    for _ in range(2):  # the second time without the entries that have mistakes
        try:
            found = load(raw, declared=declared, timezone=app.timezone, place=PLACE)
        except ConfigurationError as error:
            mistakes += error.mistakes
            wrong = mistakes_by_entry(error.mistakes, declared, place=PLACE)
            declared = {name: one for name, one in declared.items() if name not in wrong}
        else:
            mistakes += _too_frequent(found)
            mistakes += _past_times((given[name] for name in declared if name in new), found, now)
            break
    return Mistakes(_for_each(mistakes, others))


def _for_each(mistakes: Iterable[Mistake], others: Mapping[str, Sequence[str]]) -> Iterator[Mistake]:
    """Repeat the mistakes of an entry for the others with the same schedule and policy."""
    places = {path(PLACE, first): first for first in others}
    for mistake in mistakes:
        yield mistake
        first = entry_at(mistake.where, places)
        for name in () if first is None else others[first]:
            yield Mistake(path(PLACE, name) + mistake.where[len(path(PLACE, first)) :], mistake.problem)


def _too_frequent(found: Configuration) -> Iterator[Mistake]:
    interval = found.settings.poll_interval
    for spec in (spec for form in found.forms.values() for spec in form):
        if isinstance(spec.source, timedelta):
            try:
                problem = too_frequent(IntervalTable(spec.source, anchor=0), poll_interval=interval)
            except ScheduleError as error:
                problem = str(error)
            if problem is not None:
                yield Mistake(spec.where, problem)


def _past_times(
    entries: Iterable[EntryFields], configuration: Configuration, now: Instant
) -> Iterator[Mistake]:
    """Find entries that are to run once, at a time that has passed."""
    for one in entries:
        (spec, *_) = configuration.forms[one.name].start
        if one.is_one_off and to_instant(spec.source) <= now:  # type: ignore[arg-type]
            moment = to_rfc3339(to_instant(spec.source))  # type: ignore[arg-type]
            where = path(path(path(PLACE, one.name), "schedule"), "at")
            yield Mistake(where, f"expected a time to come, got {moment}; it would never run")


def too_long(entries: Iterable[StoredEntry]) -> Iterator[Mistake]:
    """Find entries whose records are too long."""
    for one in entries:
        if (size := len(encode(one))) > LONGEST_RECORD:
            problem = (
                f"is {size} characters as JSON, {LONGEST_RECORD} are kept; keep large arguments elsewhere"
            )
            yield Mistake(path(PLACE, one.name), problem)
