"""Foresight: what can be seen before the first tick, though every setting by itself can be read.

A mistake keeps beat from starting; a caution is said once and beat starts all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from numbers import Real
from typing import Any

from celery.beat import BeatLazyFunc, ScheduleEntry
from celery.schedules import BaseSchedule
from kombu.serialization import dumps

from celery_catchup.config.configuration import Configuration
from celery_catchup.config.durations import format_duration
from celery_catchup.config.policy import Policy, Select
from celery_catchup.config.schedule_syntax import ScheduleForm
from celery_catchup.config.settings import Settings
from celery_catchup.dispatch.header_names import RESERVED_OPTIONS
from celery_catchup.error_text import error_told, path, shown
from celery_catchup.errors import Mistake
from celery_catchup.model import Instant, to_instant, to_milliseconds, to_rfc3339
from celery_catchup.planning.entry import Entry, Role, Schedule
from celery_catchup.timetables.cron_table import CronTable

_dumps: Any = dumps  # kombu's functions carry no types

_DEVELOPMENT = ("memory", "filesystem")
_REDIS = ("redis", "rediss", "redis+socket")
"""Transports that confirm nothing, and that no second process or no second host can see."""

_SECONDS_EACH = 1.0
"""What a worker should have for each of the messages that are sent at once, before they expire."""


# -- an entry with a policy ----------------------------------------------------------------------


def entry_mistakes(entry: ScheduleEntry) -> Iterator[Mistake]:
    """What no message can be made of, found by trying."""
    place = path("beat_schedule", str(entry.name))
    for name in RESERVED_OPTIONS:
        if name in entry.options:
            yield Mistake(
                f"{place}.options.{name}", "each run has its own, and this one is for all; remove it"
            )
    try:
        _serialise(entry)
    except _UnfitError as error:
        yield Mistake(place, str(error))


def entry_warnings(entry: Entry, form: ScheduleForm, options: Mapping[str, Any]) -> Iterator[str]:
    """What such an entry will not do, though its writer may think so."""
    yield from _unread_zone(entry, form)
    starts = [schedule for schedule in entry.schedules if schedule.role is Role.START]
    if all(schedule.timetable.next_after(0) is None for schedule in starts):
        yield f"entry {shown(entry.name)}: its schedule matches no date at all, so it will never run"
        return
    for schedule in starts:
        yield from _short_window(entry.name, entry.policy, schedule)
    yield from _short_expiry(entry, starts, options.get("expires"))


def _unread_zone(entry: Entry, form: ScheduleForm) -> Iterator[str]:
    """Celery's schedules have a zone of their own: that of the app."""
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


def _short_window(name: str, policy: Policy, schedule: Schedule) -> Iterator[str]:
    own = schedule.overrides
    select = policy.select if own is None or own.select is None else own.select
    window = policy.window if own is None or own.window is None else own.window
    distance = _distance(schedule)
    if select is Select.OFF or window is None or distance is None:
        return
    told = f"entry {shown(name)}: its window, {format_duration(window)},"
    if window <= policy.misfire_threshold:
        late = format_duration(policy.misfire_threshold)
        yield f"{told} is not longer than its misfire_threshold, {late}: nothing will ever be caught up"
    elif to_milliseconds(window) < distance:
        period = format_duration(timedelta(milliseconds=distance))
        yield (
            f"{told} is shorter than the {period} between its slots: an outage of more than "
            f"{format_duration(window)} loses even the latest one; set at least {period}"
        )


def _distance(schedule: Schedule) -> int | None:
    """The usual time between two slots; the few days on which clocks change are not looked at."""
    table = schedule.timetable
    return table.wall_distance() if isinstance(table, CronTable) else table.minimum_distance()


def _short_expiry(entry: Entry, starts: list[Schedule], expires: object) -> Iterator[str]:
    """Messages of a chain are sent, and begin to expire, one after the other; these all at once."""
    policy = entry.policy
    if not policy.overlap_policy.rule.independent or policy.window is None:
        return
    if not isinstance(expires, Real) or policy.select is not Select.ALL:
        return
    distances = [_distance(schedule) for schedule in starts]
    slots = sum(to_milliseconds(policy.window) // distance for distance in distances if distance)
    slots = min(slots, policy.max_runs or slots)
    if slots and float(expires) / slots < _SECONDS_EACH:
        yield (
            f"entry {shown(entry.name)}: up to {slots} missed slots are sent at once and each message "
            f"expires after {float(expires):g} s, so workers have {float(expires) / slots:.2g} s for each; "
            "what they do not reach is discarded: let it expire later, or set overlap_policy to all"
        )


class _UnfitError(Exception):
    """The entry cannot be made a message."""


_NO_ARGUMENTS: tuple[Any, ...] = ([], {}, {})


@lru_cache(maxsize=64)
def _dumps_nothing(serializer: str) -> None:
    """Most entries have no arguments, and share a serialiser that is there or is not."""
    _dumps(_NO_ARGUMENTS, serializer=serializer)


def _serialise(entry: ScheduleEntry) -> None:
    """Try it as Celery will; what is made anew for each message cannot be tried."""
    task = entry.app.tasks.get(entry.task) if entry.app is not None else None
    chosen = entry.options.get("serializer") or getattr(task, "serializer", None)
    chosen = chosen or (entry.app.conf.task_serializer if entry.app is not None else "json")
    args = [None if isinstance(value, BeatLazyFunc) else value for value in entry.args or ()]
    kwargs = {k: None if isinstance(v, BeatLazyFunc) else v for k, v in (entry.kwargs or {}).items()}
    for what, value, way in (
        ("arguments", (args, kwargs, {}), chosen),
        ("headers", entry.options.get("headers") or {}, "json"),
    ):
        try:
            if value == _NO_ARGUMENTS:
                _dumps_nothing(way)
            elif value:
                _dumps(value, serializer=way)
        except Exception as error:
            said = error_told(error)
            raise _UnfitError(
                f"its {what} cannot be serialised as {shown(way)} ({said}); mend them"
            ) from error


# -- the app -------------------------------------------------------------------------------------


def app_mistakes(app: Any) -> Iterator[Mistake]:
    """Settings of the app with which no entry with a policy can run."""
    if app is not None and app.conf.task_protocol == 1:
        yield Mistake(
            "task_protocol",
            "expected 2, got 1, which has no headers to tell a run by; "
            "set it to 2, or remove the policies of all entries",
        )


def app_warnings(
    app: Any, schedule: Mapping[str, ScheduleEntry], configuration: Configuration, *, now: Instant
) -> Iterator[str]:
    """What the app's own settings will do to catch-up."""
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
    yield from _slow_time_outs(app, configuration.settings)
    yield from _ended(configuration, now)
    for name, entry in schedule.items():
        expires = entry.options.get("expires")
        if isinstance(expires, datetime) and _instant(expires) <= now:
            yield (
                f"entry {shown(name)}: it expires at {to_rfc3339(_instant(expires))}, which is past, so "
                "every message is discarded unread; give a number of seconds"
            )


def _several_brokers(app: Any, settings: Settings) -> Iterator[str]:
    """Messages go to the first broker of a list that answers; state cannot follow them."""
    given = app.conf.broker_write_url or ""
    urls = given.split(";") if isinstance(given, str) else list(given)
    if settings.redis_url is None and len(urls) > 1 and urls[0].partition("://")[0] in _REDIS:
        yield (
            f"broker_url names {len(urls)} Redis servers, and state cannot be on several: it is kept on the "
            "first, and while that is down beat waits instead of using the next; set catchup_redis_url, and "
            "messages go to the next server as Celery's own do"
        )


def _ended(configuration: Configuration, now: Instant) -> Iterator[str]:
    """Entries and schedules whose last slot has passed."""
    for name, policy in configuration.policies.items():
        ends = {"": policy.end_date if policy is not None else None}
        for spec in configuration.forms[name]:
            ends[spec.where] = spec.overrides.end_date if spec.overrides is not None else None
        for where, end in ends.items():
            if end is not None and to_instant(end) < now:
                moment = to_rfc3339(to_instant(end))
                yield (
                    f"entry {shown(name)}: {where or 'it'} never runs again, because its end_date, {moment}, "
                    "has passed; remove it, or set a later one"
                )


def _slow_time_outs(app: Any, settings: Settings) -> Iterator[str]:
    """The rule: what a call may take has to fit into the time between two renewals, a third of the lease."""
    third = settings.lease_ttl.total_seconds() / 3
    options = app.conf.broker_transport_options or {}
    for name in ("socket_timeout", "socket_connect_timeout", "read_timeout", "write_timeout"):
        value = options.get(name)
        if isinstance(value, int | float) and value > third:
            yield (
                f"broker_transport_options.{name} is {float(value):g} s, longer than a third of "
                f"catchup_lease_ttl, {third:.1f} s: a broker that falls silent costs the lead; lower it, or "
                f"set catchup_lease_ttl to at least {3 * float(value):g} s"
            )


def _instant(moment: datetime) -> Instant:
    return to_instant(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
