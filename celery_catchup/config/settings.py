"""The app-wide ``catchup_*`` settings, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AliasGenerator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from celery_catchup.config.durations import format_duration
from celery_catchup.config.fields import (
    COUNT,
    ERRORS,
    FLAG,
    PAUSE,
    TEXT,
    FieldParser,
    UserModel,
    counts_to,
    text,
    word,
)
from celery_catchup.config.policy import Policy
from celery_catchup.config.redis_urls import read_redis_url
from celery_catchup.error_text import masked, nearest, shown
from celery_catchup.timetables.cron_dialects import Dialect

PREFIX = "catchup_"

SHORTEST_LEASE = timedelta(seconds=3)
"""A lease is renewed at a third of its length, and a renewal needs a second to get through."""

MOST_PER_BATCH = 1000
"""Runs decided in one tick; more would keep the leader from renewing its lease in time."""


HIGHEST_PORT = 65535


class OnDrift(StrEnum):
    """What beat does when persisted entries differ from declared ones."""

    ADOPT = "adopt"
    WARN = "warn"
    REFUSE = "refuse"


class FirstStart(StrEnum):
    """Whether an entry never seen before runs at once when its schedule matches the current minute."""

    WAIT = "wait"
    MATCH = "match"


class Source(StrEnum):
    """Where the entries of the beat schedule come from."""

    SETTINGS = "settings"
    DJANGO = "django"


class Checkins(StrEnum):
    """Which runs those who watch beat are told of."""

    LIVE = "live"
    ALL = "all"
    NONE = "none"


class OnStoreFailure(StrEnum):
    """What a worker does with a run that it cannot claim because Redis is away."""

    RETRY = "retry"
    EXECUTE = "execute"


class MarkTasks(StrEnum):
    """Where Flower and ``celery events`` show that a task makes up for a missed slot."""

    BOTH = "both"
    NAME = "name"
    KWARGS = "kwargs"
    NONE = "none"


class Preset(StrEnum):
    """A set of defaults under one name."""

    CONSERVATIVE = "conservative"


ENTRY_PRESETS: dict[Preset, dict[str, Any]] = {Preset.CONSERVATIVE: {"max_runs": 20}}
"""What a preset sets in each entry's policy, unless the policy says otherwise."""

_APP_PRESETS: dict[Preset, dict[str, Any]] = {
    Preset.CONSERVATIVE: {"max_runs": 100, "rate_limit": timedelta(milliseconds=100)}
}


def _namespace(value: object) -> str:
    name = text(value)
    if not name:
        raise ValueError("the namespace is empty, got ''; write a name, or leave the setting out")
    if re.search(r"[{}*\s]", name):
        raise ValueError(
            f"{shown(name)} has a blank or one of {{ }} * in it, which a key cannot hold; leave them out"
        )
    return name


def _entries(value: object) -> Mapping[str, object]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"expected a mapping of entry names to policies, got {shown(value)}")


_URL = FieldParser(read_redis_url, "Redis URL", optional=True)
_NAMESPACE = FieldParser(_namespace, "text without blanks, `{`, `}` and `*`", optional=True)
_BATCH = FieldParser(counts_to(MOST_PER_BATCH), f"whole number from 1 to {MOST_PER_BATCH}")
_PORT = FieldParser(counts_to(HIGHEST_PORT), f"whole number from 1 to {HIGHEST_PORT}", optional=True)
_ENTRIES = FieldParser(_entries, "mapping of entry names to policies")


class Settings(UserModel):
    """What holds for the whole app; each is set as ``catchup_<name>``."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=lambda name: PREFIX + name), populate_by_name=True
    )

    entries: Annotated[Mapping[str, object], _ENTRIES] = Field(
        {}, repr=False, description="The policies by entry; `*` is for entries without one of their own."
    )
    preset: Annotated[Preset | None, word(Preset).or_none()] = Field(
        None, description="`conservative` caps 20 runs per entry and 100 in all, 100 ms apart."
    )
    source: Annotated[Source, word(Source)] = Field(
        Source.SETTINGS,
        description="Where entries come from: `beat_schedule`, or django-celery-beat's tables as well.",
    )
    redis_url: Annotated[str | None, _URL] = Field(
        None,
        description="Where state is kept; without it the broker, when that is Redis (of a list, the first).",
    )
    namespace: Annotated[str | None, _NAMESPACE] = Field(
        None,
        description="Keeps apps on one server apart; else `global_keyprefix` and the app's main name.",
    )
    max_runs: Annotated[int | None, COUNT.or_none()] = Field(
        None, description="Cap on the catch-up runs of all entries together, per restart."
    )
    rate_limit: Annotated[timedelta | None, PAUSE.or_none()] = Field(
        None, description="Pause between two catch-up dispatches."
    )
    cron_dialect: Annotated[Dialect, word(Dialect)] = Field(
        Dialect.EXTENDED, description="Which cron strings are understood."
    )
    on_drift: Annotated[OnDrift, word(OnDrift)] = Field(
        OnDrift.ADOPT, description="What to do when persisted entries differ from declared ones."
    )
    first_start: Annotated[FirstStart, word(FirstStart)] = Field(
        FirstStart.WAIT,
        description="Whether an entry never seen before runs at once when its schedule matches this minute.",
    )
    lease_ttl: Annotated[timedelta, PAUSE] = Field(
        timedelta(seconds=10), description="How long a silent leader keeps its place; at least `3s`."
    )
    run_lease_ttl: Annotated[timedelta, PAUSE] = Field(
        timedelta(seconds=60), description="How long a silent worker keeps its run; at least `3s`."
    )
    ledger_ttl: Annotated[timedelta, PAUSE] = Field(
        timedelta(days=30),
        description="How long finished runs are remembered; without it a day longer than the longest "
        "window, and at least `30d`.",
    )
    poll_interval: Annotated[timedelta, PAUSE] = Field(
        timedelta(seconds=1), description="Longest sleep between two ticks."
    )
    batch_size: Annotated[int, _BATCH] = Field(
        500, description="Most runs decided in one tick, so that catch-up never starves live slots."
    )
    on_store_failure: Annotated[OnStoreFailure, word(OnStoreFailure)] = Field(
        OnStoreFailure.RETRY,
        description="What a worker does with a run while Redis is away: try later, or execute it unclaimed.",
    )
    allow_eviction: Annotated[bool, FLAG] = Field(
        False, description="Start although the server may evict our keys when its memory is full."
    )
    mirror_file: Annotated[str | None, TEXT.or_none()] = Field(
        None, description="A local file for what is decided, should the server forget it while beat is down."
    )
    max_dead_letters: Annotated[int, COUNT] = Field(
        10_000, description="Dead letters that are kept; beyond it the oldest are discarded, as failed."
    )
    transient_errors: Annotated[tuple[str | type[BaseException], ...], ERRORS] = Field(
        (), description="Exception classes after which another attempt may help; before the built-in ones."
    )
    permanent_errors: Annotated[tuple[str | type[BaseException], ...], ERRORS] = Field(
        (), description="Exception classes after which none does: the run is a dead letter at once."
    )
    max_ledger_runs: Annotated[int, COUNT] = Field(
        1_000_000, description="Runs that are kept of all entries; beyond it those that ended first go."
    )
    max_ledger_runs_per_entry: Annotated[int, COUNT] = Field(
        100_000, description="Runs that are kept of each entry; beyond it the oldest that ended go."
    )
    checkins: Annotated[Checkins, word(Checkins)] = Field(
        Checkins.LIVE,
        description="Which runs make a check-in with Sentry, where that monitors beat tasks.",
    )
    export_env: Annotated[bool, FLAG] = Field(
        False, description="Set the `CATCHUP_*` environment variables around each task."
    )

    mark_tasks: Annotated[MarkTasks, word(MarkTasks)] = Field(
        MarkTasks.BOTH,
        description="Where Flower and `celery events` show a catch-up run: in the name, in the kwargs.",
    )

    metrics_port: Annotated[int | None, _PORT] = Field(
        None, description="Where beat serves metrics for Prometheus; needs the extra `metrics`."
    )
    metrics_address: Annotated[str, TEXT] = Field(
        "127.0.0.1", description="The address that goes with it; `0.0.0.0` for scrapes from elsewhere."
    )

    @classmethod
    def unknown(cls, name: object) -> str:
        """What to say about a name that is none of ours; it may be one of a policy's."""
        # The prefix is common to all, so it would make every two names look alike.
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
    def _long_enough_to_renew(cls, value: timedelta) -> timedelta:
        if value < SHORTEST_LEASE:
            raise ValueError(
                f"{format_duration(value)} is too short: a lease is renewed at a third of its length, "
                f"and a renewal may take a second; set at least {format_duration(SHORTEST_LEASE)}"
            )
        return value

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
