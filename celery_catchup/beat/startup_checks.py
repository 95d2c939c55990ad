"""Check entries and the app before the first tick, beyond what each setting shows by itself.

A mistake keeps beat from starting. A warning is logged once, and beat starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Any

from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.schedules import BaseSchedule
from kombu.serialization import dumps

from celery_catchup.config.configuration import RESERVED_OPTIONS, Configuration
from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Select
from celery_catchup.config.schedule_syntax import ScheduleForm
from celery_catchup.config.settings import Settings
from celery_catchup.error_text import describe_error, shown
from celery_catchup.errors import Mistake
from celery_catchup.model import Instant, to_instant, to_milliseconds, to_rfc3339
from celery_catchup.planning.entry import Entry, Role
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.timetable import Timetable

_dumps: Any = dumps  # kombu's functions carry no types

_DEVELOPMENT = ("memory", "filesystem")
"""Transports that confirm nothing, and that no second process or no second host can see."""
_REDIS = ("redis", "rediss", "redis+socket")
_SECONDS_EACH = 1.0
"""The time a worker needs for each of the messages that are sent at once, before they expire."""
_NO_ARGUMENTS: tuple[Any, ...] = ([], {}, {})


# -- an entry with a policy ----------------------------------------------------------------------


def entry_mistakes(entry: ScheduleEntry, *, place: str, serializer: str) -> Iterator[Mistake]:
    """Find options and arguments that no message can be built from, by trying. ``serializer`` is that of
    tasks which do not name one."""
    for name in RESERVED_OPTIONS:
        if name in entry.options:
            yield Mistake(
                f"{place}.options.{name}", "each run has its own, and this one is for all; remove it"
            )
    task = entry.app.tasks.get(entry.task)
    own = entry.options.get("serializer") or getattr(task, "serializer", None)
    # Lazy arguments are evaluated for each message, so they cannot be tried.
    args = [None if isinstance(value, BeatLazyFunc) else value for value in entry.args or ()]
    kwargs = {k: None if isinstance(v, BeatLazyFunc) else v for k, v in (entry.kwargs or {}).items()}
    for what, value, way in (
        ("arguments", (args, kwargs, {}), own or serializer),
        ("headers", entry.options.get("headers"), "json"),
    ):
        try:
            # Nothing serialised as JSON cannot fail, and thousands of entries have no arguments.
            if value and (value, way) != (_NO_ARGUMENTS, "json"):
                _dumps(value, serializer=way)
        except Exception as error:  # noqa: BLE001 - each serialiser raises its own
            said = describe_error(error)
            yield Mistake(place, f"its {what} cannot be serialised as {shown(way)} ({said}); correct them")


def entry_warnings(entry: Entry, form: ScheduleForm, options: Mapping[str, Any]) -> Iterator[str]:
    """Find policies that cannot do what they look like."""
    yield from _ignored_timezone(entry, form)
    starts = [schedule for schedule in entry.schedules if schedule.role is Role.START]
    if all(schedule.timetable.next_after(0) is None for schedule in starts):
        yield f"entry {shown(entry.name)}: its schedule matches no date at all, so it will never run"
        return
    periods = [_usual_period(schedule.timetable) for schedule in starts]
    yield from _short_windows(entry, periods)
    yield from _short_expiry(entry, periods, options.get("expires"))


def _ignored_timezone(entry: Entry, form: ScheduleForm) -> Iterator[str]:
    """Warn that a policy's zone does not apply to Celery's own schedules."""
    zone = entry.policy.timezone
    for spec, schedule in zip(form, entry.schedules, strict=True):
        table = schedule.timetable
        if not zone or not isinstance(spec.source, BaseSchedule) or not isinstance(table, CronTable):
            continue
        if str(table.zone) != zone:
            yield (
                f"entry {shown(entry.name)}: timezone {shown(zone)} does not apply to a crontab(), which "
                f"Celery reads in {table.zone}; write the schedule as a cron string such as '0 9 * * *'"
            )


def _usual_period(table: Timetable) -> int | None:
    """Return the milliseconds between two slots, apart from the days on which clocks change."""
    return table.wall_distance() if isinstance(table, CronTable) else table.minimum_distance()


def _short_windows(entry: Entry, periods: Sequence[int | None]) -> Iterator[str]:
    """Warn of windows in which no missed slot, or not even the latest one, can lie."""
    # Schedules that start runs come first among the bounds.
    for period, bounds, select in zip(periods, entry.bounds, entry.selects, strict=False):
        if select is Select.OFF or bounds.window is None or period is None:
            continue
        window = _duration(bounds.window)
        about = f"entry {shown(entry.name)}: its window, {window},"
        if bounds.window <= to_milliseconds(entry.policy.misfire_threshold):
            late = format_duration(entry.policy.misfire_threshold)
            yield f"{about} is not longer than its misfire_threshold, {late}: nothing will ever be caught up"
        elif bounds.window < period:
            yield (
                f"{about} is shorter than the {_duration(period)} between its slots: an outage of more than "
                f"{window} loses even the latest one; set at least {_duration(period)}"
            )


def _short_expiry(entry: Entry, periods: Sequence[int | None], expires: object) -> Iterator[str]:
    """Warn when missed slots are sent at once and expire before a worker can reach them."""
    policy = entry.policy
    if not policy.overlap_policy.rule.independent or policy.window is None:
        return
    if not isinstance(expires, Real) or policy.select is not Select.ALL:
        return
    slots = sum(to_milliseconds(policy.window) // period for period in periods if period)
    slots = min(slots, policy.max_runs or slots)
    if slots and float(expires) / slots < _SECONDS_EACH:
        yield (
            f"entry {shown(entry.name)}: up to {slots} missed slots are sent at once and each message "
            f"expires after {float(expires):g} s, so workers have {float(expires) / slots:.2g} s for each; "
            "what they do not reach is discarded: let it expire later, or set overlap_policy to all"
        )


def _duration(milliseconds: int) -> str:
    return format_duration(timedelta(milliseconds=milliseconds))


# -- the app -------------------------------------------------------------------------------------


def app_mistakes(app: Any) -> Iterator[Mistake]:
    """Find settings of the app with which no entry with a policy can run."""
    if app.conf.task_protocol == 1:
        yield Mistake(
            "task_protocol",
            "expected 2, got 1, which has no headers to tell a run by; "
            "set it to 2, or remove the policies of all entries",
        )


def app_warnings(
    app: Any, schedule: Mapping[str, ScheduleEntry], configuration: Configuration, *, now: Instant
) -> Iterator[str]:
    """Find settings of the app, and dates of entries, that defeat catch-up."""
    if app.conf.task_always_eager and any(policy is not None for policy in configuration.policies.values()):
        yield (
            "task_always_eager is on: tasks run inside beat, so nothing is sent for entries with a policy; "
            "turn it off there"
        )
    scheme = str(app.conf.broker_write_url or "").partition("://")[0]
    if scheme in _DEVELOPMENT:
        yield (
            f"the broker is {scheme}://, which is for development: it confirms nothing, and a message and "
            "its run cannot be recorded in one step; use Redis or RabbitMQ"
        )
    yield from _several_brokers(app, configuration.settings)
    yield from _long_timeouts(app, configuration.settings)
    yield from _past_end_dates(configuration, now)
    for name, entry in schedule.items():
        expires = entry.options.get("expires")
        if isinstance(expires, datetime) and _instant(expires) <= now:
            yield (
                f"entry {shown(name)}: it expires at {to_rfc3339(_instant(expires))}, which is past, so "
                "every message is discarded unread; give a number of seconds"
            )


def _several_brokers(app: Any, settings: Settings) -> Iterator[str]:
    """Warn of several Redis brokers: messages fail over between them, state cannot."""
    given = app.conf.broker_write_url or ""
    urls = given.split(";") if isinstance(given, str) else list(given)
    if settings.redis_url is None and len(urls) > 1 and urls[0].partition("://")[0] in _REDIS:
        yield (
            f"broker_url names {len(urls)} Redis servers, and state cannot be on several: it is kept on the "
            "first, and while that is down beat waits instead of using the next; set catchup_redis_url, and "
            "messages go to the next server as Celery's own do"
        )


def _past_end_dates(configuration: Configuration, now: Instant) -> Iterator[str]:
    """Warn of entries and schedules whose last slot has passed."""
    for name, policy in configuration.policies.items():
        own = [(spec.where, spec.overrides) for spec in configuration.forms[name]]
        for where, dates in [("it", policy), *own]:
            end = None if dates is None else dates.end_date
            if end is not None and to_instant(end) < now:
                moment = to_rfc3339(to_instant(end))
                yield (
                    f"entry {shown(name)}: {where} never runs again, because its end_date, {moment}, "
                    "has passed; remove it, or set a later one"
                )


def _long_timeouts(app: Any, settings: Settings) -> Iterator[str]:
    """Warn of timeouts that do not fit into the time in which a tick must give a sign of life."""
    third = settings.longest_silence / 3
    options = app.conf.broker_transport_options or {}
    for name in ("socket_timeout", "socket_connect_timeout", "read_timeout", "write_timeout"):
        value = options.get(name)
        if isinstance(value, int | float) and value > third:
            yield (
                f"broker_transport_options.{name} is {float(value):g} s, longer than {third:.1f} s: "
                f"a broker that falls silent costs the lead after {settings.longest_silence:g} s; lower it, "
                f"or set catchup_lease_ttl to at least {3 * float(value):g} s"
            )


def _instant(moment: datetime) -> Instant:
    return to_instant(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
