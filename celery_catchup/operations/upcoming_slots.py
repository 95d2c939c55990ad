"""Preview the next slots of an entry as a user writes it, before it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import islice

from celery_catchup.beat.fingerprints import schedule_roles, spec_zone
from celery_catchup.beat.stored_source import build_stored, resolve_built
from celery_catchup.config.settings import FirstStart
from celery_catchup.engine.takeover import load_entries
from celery_catchup.events import Events
from celery_catchup.model import Instant, to_datetime
from celery_catchup.operations.operator import Operator
from celery_catchup.planning.entry import Entry, Role
from celery_catchup.stored_entries.stored_entry import StoredEntry
from celery_catchup.stored_entries.validation import parse_entries, schedule_mistakes, too_long
from celery_catchup.timetables.zones import usable_zone

MOST_UPCOMING = 100
"""Slots of one preview."""


@dataclass(frozen=True, slots=True)
class UpcomingSlot:
    """A slot to come: its time, and the same in its schedule's zone, as ISO 8601 with an offset. A slot with
    the role ``stop`` ends runs, one with ``restart`` ends them and starts one."""

    scheduled_time: datetime
    local_time: str
    timezone: str
    role: Role


@dataclass(frozen=True, slots=True)
class UpcomingSlots:
    """The next slots of an entry. Where no schedule sets a zone of its own, cron strings are read in
    ``timezone``."""

    timezone: str
    slots: tuple[UpcomingSlot, ...]


def upcoming_slots(
    operator: Operator, *, name: str, schedule: object, catchup: object = None, count: int = 10
) -> UpcomingSlots:
    """Return the next slots of a schedule with a policy; `ConfigurationError` with all mistakes of both.

    Intervals of a stored entry of this ``name`` continue from its last run; those of a new one begin now.
    """
    app, now = operator.app, operator.now()
    parsed, mistakes = parse_entries([{"name": name, "task": "-", "schedule": schedule, "catchup": catchup}])
    entries = [StoredEntry(one.name, one.task, one.schedule, catchup=one.catchup) for one in parsed]
    mistakes += too_long(entries)
    mistakes.raise_if_any()
    mistakes += schedule_mistakes(app, parsed, new={name}, now=now)
    mistakes.raise_if_any()
    found = resolve_built(app, {one.name: build_stored(app, one) for one in entries})
    match = operator.declared_configuration.settings.first_start is FirstStart.MATCH
    loaded = load_entries(
        tuple(found.declared.values()),
        operator.read_stored([name]),
        now=now,
        match_first=match,
        events=Events(),
    )
    app_zone = usable_zone(app.timezone)
    policy, form = found.policies[name], found.forms[name]
    zones = [spec_zone(spec, policy, default=app_zone) for _, spec in schedule_roles(form)]
    whole = zones[0] if len(set(map(str, zones))) == 1 else app_zone
    following = (slot for one in loaded.entries for slot in islice(_following(one.entry, now, zones), count))
    return UpcomingSlots(str(whole), tuple(following))


def _following(entry: Entry, now: Instant, zones: list[tzinfo]) -> Iterator[UpcomingSlot]:
    for slot in entry.slots_after(now):
        moment, zone = to_datetime(slot.at), zones[slot.schedule]
        local = moment.astimezone(zone).isoformat(timespec="milliseconds" if slot.at % 1000 else "seconds")
        yield UpcomingSlot(moment, local, str(zone), entry.schedules[slot.schedule].role)
