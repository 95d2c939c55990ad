"""The app-wide ``catchup_*`` settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from string import Formatter
from typing import Annotated, Any

from pydantic import AliasGenerator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from celery_catchup.config.durations import format_duration
from celery_catchup.config.exclusions import CALENDARS, Calendar
from celery_catchup.config.fields import (
    COUNT,
    ERRORS,
    FLAG,
    GLOBS,
    PAUSE,
    TEXT,
    FieldParser,
    UserModel,
    counts_to,
    text,
    word,
)
from celery_catchup.config.policy import LOWEST, PRIORITY, Policy
from celery_catchup.config.receivers import RECEIVERS, Receiver
from celery_catchup.config.redis_urls import read_redis_url
from celery_catchup.error_text import masked, nearest, shown
from celery_catchup.timetables.cron_dialects import Dialect

PREFIX = "catchup_"

SHORTEST_LEASE = timedelta(seconds=2)
SHORTEST_RUN_LEASE = timedelta(seconds=3)
LONGEST_SILENCE = 10.0
"""Seconds after which a beat whose tick hangs is replaced, unless its lease is longer."""
"""A lease is renewed at a third of its length, and a renewal may take a second."""

MOST_PER_BATCH = 1000
"""Runs decided in one tick; with more the leader could not renew its lease in time."""


HIGHEST_PORT = 65535


class OnDrift(StrEnum):
    """How beat handles stored entries that differ from declared ones."""

    ADOPT = "adopt"
    WARN = "warn"
    REFUSE = "refuse"


class FirstStart(StrEnum):
    """Whether a new entry runs at once if its schedule matches the current minute."""

    WAIT = "wait"
    MATCH = "match"


class Source(StrEnum):
    """Where the entries of the beat schedule come from."""

    SETTINGS = "settings"
    DJANGO = "django"


class Checkins(StrEnum):
    """Which runs make a check-in with Sentry."""

    LIVE = "live"
    ALL = "all"
    NONE = "none"


class OnStoreFailure(StrEnum):
    """How a worker handles a run that it cannot claim because Redis is unavailable."""

    RETRY = "retry"
    EXECUTE = "execute"


class MarkTasks(StrEnum):
    """Where Flower and ``celery events`` show that a task recovers a missed slot."""

    BOTH = "both"
    NAME = "name"
    KWARGS = "kwargs"
    NONE = "none"


class Preset(StrEnum):
    """A set of defaults under one name."""

    CONSERVATIVE = "conservative"
    CONSIDERATE = "considerate"


ENTRY_PRESETS: dict[Preset, dict[str, Any]] = {Preset.CONSERVATIVE: {"max_runs": 20}, Preset.CONSIDERATE: {}}
"""What a preset sets in each entry's policy, unless the policy sets it."""

_APP_PRESETS: dict[Preset, dict[str, Any]] = {
    Preset.CONSERVATIVE: {"max_runs": 100, "rate_limit": timedelta(milliseconds=100)},
    Preset.CONSIDERATE: {"priority": LOWEST, "max_active": 4, "hold_above": 500},
}


def _namespace(value: object) -> str:
    name = text(value)
    if not name:
        raise ValueError("the namespace is empty, got ''; write a name, or omit the setting")
    if re.search(r"[{}*\s]", name):
        raise ValueError(
            f"{shown(name)} contains whitespace or one of {{ }} *, which a key cannot contain; remove them"
        )
    return name


def _entries(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"expected a mapping of entry names to policies, got {shown(value)}")


LOG_FIELDS = ("run_id", "task_id", "entry", "worker", "attempt", "started", "ended")
"""The placeholders of `log_url`."""


def _log_url(value: object) -> str:
    url = text(value)
    names = [name for _, name, _, _ in Formatter().parse(url) if name is not None]
    if not url.startswith(("http://", "https://")) or not set(names) <= set(LOG_FIELDS):
        raise ValueError(
            f"expected a URL with placeholders out of {', '.join(LOG_FIELDS)}, such as "
            f"'https://logs.example.com/?q={{task_id}}', got {shown(url)}"
        )
    return url


_URL = FieldParser(read_redis_url, "Redis URL", optional=True)
_NAMESPACE = FieldParser(_namespace, "text without blanks, `{`, `}` and `*`", optional=True)
_BATCH = FieldParser(counts_to(MOST_PER_BATCH), f"whole number from 1 to {MOST_PER_BATCH}")
_PORT = FieldParser(counts_to(HIGHEST_PORT), f"whole number from 1 to {HIGHEST_PORT}", optional=True)
_LOG_URL = FieldParser(_log_url, "URL with placeholders", optional=True)
_ENTRIES = FieldParser(_entries, "mapping of entry names to policies")


class Settings(UserModel):
    """The settings of the whole app; each is set as ``catchup_<name>``."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: PREFIX + name), populate_by_name=True
    )

    entries: Annotated[Mapping[str, object], _ENTRIES] = Field({}, repr=False)
    """The policies by entry; `*` is for entries without one of their own."""
    preset: Annotated[Preset | None, word(Preset).or_none()] = None
    """`conservative` caps 20 runs per entry and 100 in all, 100 ms apart; `considerate` sends them with the
    lowest priority, 4 at once, and asks above 500 of an entry."""
    source: Annotated[Source, word(Source)] = Source.SETTINGS
    """Where entries come from: `beat_schedule`, or django-celery-beat's tables as well."""
    redis_url: Annotated[str | None, _URL] = None
    """Where state is stored; by default the broker, if that is Redis (of a list, the first)."""
    namespace: Annotated[str | None, _NAMESPACE] = None
    """Separates apps on one server; by default `global_keyprefix` and the app's main name."""
    max_runs: Annotated[int | None, COUNT.or_none()] = None
    """Cap on the catch-up runs of all entries together, per restart."""
    hold_above: Annotated[int | None, COUNT.or_none()] = None
    """For entries whose policy does not set it: hold a catch-up of more runs until it is approved."""
    queue: Annotated[str | None, TEXT.or_none()] = None
    """Queue of catch-up and backfill runs; by default that of the entry's live runs."""
    priority: Annotated[int | str | None, PRIORITY.or_none()] = None
    """Priority of the messages of catch-up and backfill runs, in the broker's own scale, or `lowest`."""
    max_active: Annotated[int | None, COUNT.or_none()] = None
    """Most catch-up and backfill runs of all entries that are queued or running at once; others wait."""
    rate_limit: Annotated[timedelta | None, PAUSE.or_none()] = None
    """Pause between two catch-up dispatches."""
    calendars: Annotated[Mapping[str, Calendar], CALENDARS] = Field({}, repr=False)
    """Named exclusions for `exclude`: lists of dates, public holidays of a country, `.ics` files."""
    cron_dialect: Annotated[Dialect, word(Dialect)] = Dialect.EXTENDED
    """Which cron strings are accepted."""
    on_drift: Annotated[OnDrift, word(OnDrift)] = OnDrift.ADOPT
    """What to do if stored entries differ from declared ones."""
    first_start: Annotated[FirstStart, word(FirstStart)] = FirstStart.WAIT
    """Whether a new entry runs at once if its schedule matches the current minute."""
    lease_ttl: Annotated[timedelta, PAUSE] = timedelta(seconds=2)
    """How long a silent leader stays leader; at least `2s`. If its tick hangs, after 10 s."""
    run_lease_ttl: Annotated[timedelta, PAUSE] = timedelta(seconds=60)
    """How long a silent worker keeps its run; at least `3s`."""
    ledger_ttl: Annotated[timedelta, PAUSE] = timedelta(days=30)
    """How long finished runs are remembered; without it a day longer than the longest window, and at least
    `30d`."""
    audit_ttl: Annotated[timedelta, PAUSE] = timedelta(days=90)
    """How long the audit trail remembers who changed what; at most 10,000 changes."""
    poll_interval: Annotated[timedelta, PAUSE] = timedelta(seconds=1)
    """Longest sleep between two ticks."""
    batch_size: Annotated[int, _BATCH] = 500
    """Largest number of runs decided in one tick, so that catch-up never starves live slots."""
    on_store_failure: Annotated[OnStoreFailure, word(OnStoreFailure)] = OnStoreFailure.RETRY
    """What a worker does with a run while Redis is unavailable: retry later, or execute it unclaimed."""
    allow_eviction: Annotated[bool, FLAG] = False
    """Start even if the server may evict our keys when its memory is full."""
    mirror_file: Annotated[str | None, TEXT.or_none()] = None
    """A local copy of the watermarks, in case the server loses them while beat is down."""
    max_dead_letters: Annotated[int, COUNT] = 10_000
    """Number of dead letters to keep; beyond it the oldest are discarded, as failed."""
    transient_errors: Annotated[tuple[str | type[BaseException], ...], ERRORS] = ()
    """Exception classes after which a retry may help; they take precedence over the built-in ones."""
    permanent_errors: Annotated[tuple[str | type[BaseException], ...], ERRORS] = ()
    """Exception classes after which no retry helps: the run is a dead letter at once."""
    max_ledger_runs: Annotated[int, COUNT] = 1_000_000
    """Number of runs to keep of all entries; beyond it those that ended first are forgotten."""
    max_ledger_runs_per_entry: Annotated[int, COUNT] = 100_000
    """Number of runs to keep of each entry; beyond it the oldest ended ones are forgotten."""
    checkins: Annotated[Checkins, word(Checkins)] = Checkins.LIVE
    """Which runs make a check-in with Sentry, if it monitors beat tasks."""
    export_env: Annotated[bool, FLAG] = False
    """Set the `CATCHUP_*` environment variables around each task."""

    mark_tasks: Annotated[MarkTasks, word(MarkTasks)] = MarkTasks.BOTH
    """Where Flower and `celery events` show a catch-up run: in the name, in the kwargs."""

    log_url: Annotated[str | None, _LOG_URL] = None
    """Where the log of an attempt is, with placeholders: `https://logs.example.com/?q={task_id}`. The tab
    links to it."""

    allowed_tasks: Annotated[tuple[str, ...], GLOBS] = ()
    """Tasks that entries may run which are created or changed over HTTP, as globs such as `proj.reports.*`;
    none unless set."""

    notify: Annotated[tuple[Receiver, ...], RECEIVERS] = ()
    """Who is notified, of what: `url`; `on`, a list of kinds, by default all; `format`, `json` or `slack`;
    `secret`, for a signature."""

    metrics_port: Annotated[int | None, _PORT] = None
    """Port on which beat serves metrics for Prometheus; needs the extra `metrics`."""
    metrics_address: Annotated[str, TEXT] = "127.0.0.1"
    """Address on which beat serves metrics; `0.0.0.0` for scrapes from other hosts."""
    metrics_public: Annotated[bool, FLAG] = False
    """Whether Flower's `/metrics` has these metrics without a login, where Flower has one."""

    @classmethod
    def unknown(cls, name: object) -> str:
        """Describe an unknown name; it may be the name of a policy field."""
        # All names share the prefix, so it would make any two look alike.
        written = str(name).removeprefix(PREFIX)
        meant = nearest(written, [*cls.model_fields, *Policy.spellings()])
        if meant is None:
            return "unknown setting"
        if meant in cls.model_fields:
            return f"unknown setting; did you mean {PREFIX + meant!r}?"
        return (
            f"unknown setting; {Policy.spellings()[meant]!r} belongs to a policy, set it in catchup_entries"
        )

    @field_validator("lease_ttl", "run_lease_ttl")
    @classmethod
    def _long_enough_to_renew(cls, value: timedelta, info: ValidationInfo) -> timedelta:
        shortest = SHORTEST_LEASE if info.field_name == "lease_ttl" else SHORTEST_RUN_LEASE
        if value < shortest:
            raise ValueError(
                f"{format_duration(value)} is too short: a lease is renewed at a third of its length, "
                f"and a renewal may take a second; set at least {format_duration(shortest)}"
            )
        return value

    @property
    def longest_silence(self) -> float:
        """Seconds in which a tick must give a sign of life."""
        return max(LONGEST_SILENCE, self.lease_ttl.total_seconds())

    @field_validator("permanent_errors")
    @classmethod
    def _not_transient_too(cls, value: tuple[object, ...], info: ValidationInfo) -> tuple[object, ...]:
        for both in set(value) & set(info.data.get("transient_errors", ())):
            raise ValueError(f"{shown(both)} is in {PREFIX}transient_errors too; keep one of them")
        return value

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: dict[str, Any]) -> dict[str, Any]:
        chosen = given.get(PREFIX + "preset", given.get("preset"))
        filled = _APP_PRESETS.get(chosen, {}) if isinstance(chosen, str) else {}  # type: ignore[call-overload]
        spelt = cls.spellings()
        explicit = {spelt.get(name) for name in given}
        return given | {name: value for name, value in filled.items() if name not in explicit}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, masked(value) if name == "redis_url" and value else value
