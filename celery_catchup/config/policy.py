"""The policy of an entry: what to do with missed slots, and while a run is active."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AliasChoices, AliasGenerator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.alias_generators import to_camel

from celery_catchup.config.exclusions import EXCLUDE
from celery_catchup.config.fields import (
    COUNT,
    FACTOR,
    FLAG,
    MOMENT,
    PAUSE,
    TEXT,
    WINDOW,
    ZONE,
    FieldParser,
    UserModel,
    one_of,
    text,
    to_utc,
    word,
)
from celery_catchup.config.for_each import FOR_EACH, ForEach
from celery_catchup.config.mistakes import config_error
from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.timetables.zones import zone_named


class Select(StrEnum):
    """Which missed slots are candidates."""

    ALL = "all"
    LATEST = "latest"
    SPAN = "span"
    OFF = "false"


class Keep(StrEnum):
    """Which end of the candidates survives a cap."""

    OLDEST = "oldest"
    NEWEST = "newest"


class OnFailure(StrEnum):
    """Whether a failed run releases its successor."""

    CONTINUE = "continue"
    STOP = "stop"


class OnResume(StrEnum):
    """How slots missed while the entry was paused are handled."""

    CATCHUP = "catchup"
    DISCARD = "discard"


class OnScheduleChange(StrEnum):
    """Whether a changed schedule is applied to the time before the change was seen."""

    REPLAY = "replay"
    FROM_NOW = "from_now"


REFRESH = timedelta(minutes=5)
"""How often functions of ``for_each`` are called if ``refresh`` is not set."""
MAIN_FIELDS = ("select", "window", "overlap_policy")
"""Fields that forms always show; the others are folded."""
_OTHER_NAMES = {"window": ("catchup_window", "catchupWindow"), "select": ("catchup",)}


def _spellings(field: str) -> AliasChoices:
    """Return the accepted names: snake_case, and camelCase so that a policy can be pasted from YAML."""
    return AliasChoices(field, to_camel(field), *_OTHER_NAMES.get(field, ()))


def _select(value: object) -> Select:
    if isinstance(value, bool):
        return Select.ALL if value else Select.OFF
    return one_of(Select)(value)


SELECT = FieldParser(_select, "`all` or `True`, `latest`, `span`, `False`")


@dataclass(frozen=True, slots=True)
class Lane:
    """Where catch-up and backfill runs go: options of `apply_async` instead of the entry's own."""

    queue: str | None = None
    priority: int | str | None = None

    def options(self) -> dict[str, Any]:
        """Return the options that are set."""
        if self.queue is None and self.priority is None:
            return {}
        given = {"queue": self.queue, "priority": self.priority}
        return {name: value for name, value in given.items() if value is not None}


def read_priority(value: object) -> int | str:
    """Parse a message priority: a number, or `LOWEST`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= HIGHEST_PRIORITY:
        return value
    if value == LOWEST:
        return LOWEST
    raise ValueError(
        f"expected a whole number from 0 to {HIGHEST_PRIORITY} or {LOWEST!r}, got {shown(value)}"
    )


def _lane(value: object) -> Lane:
    if isinstance(value, Lane):
        return value
    if isinstance(value, bool):
        raise ValueError(f"expected a mapping of queue and priority, got {value}; did you mean 'select'?")
    if not isinstance(value, Mapping) or not value:
        raise ValueError(
            f"expected a mapping such as {{'queue': 'catchup', 'priority': 9}}, got {shown(value)}"
        )
    known = ("queue", "priority")
    for name in value:
        if name not in known:
            raise ValueError(
                f"unknown field {shown(name)}{did_you_mean(name, known) or '; use queue, priority'}"
            )
    queue, priority = value.get("queue"), value.get("priority")
    return Lane(None if queue is None else text(queue), None if priority is None else read_priority(priority))


HIGHEST_PRIORITY = 255
LOWEST = "lowest"
"""The priority that the broker serves last: its number depends on the broker."""
LANE = FieldParser(_lane, "mapping of `queue`, `priority`")
PRIORITY = FieldParser(read_priority, f"whole number from 0 to {HIGHEST_PRIORITY}, or `{LOWEST}`")


class _Dated(UserModel):
    """The base of policies of entries and of schedules: spellings, and dates in a zone."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=_spellings), populate_by_name=True
    )

    @field_validator("start_date", "end_date", check_fields=False)
    @classmethod
    def _in_utc(cls, value: datetime | None, info: ValidationInfo) -> datetime | None:
        return None if value is None else to_utc(value, zone=zone_of(info))

    @field_validator("end_date", check_fields=False)
    @classmethod
    def _not_before_start(cls, value: datetime | None, info: ValidationInfo) -> datetime | None:
        start = info.data.get("start_date")
        if value is not None and start is not None and value < start:
            raise ValueError(
                f"{value:%Y-%m-%dT%H:%MZ} is before start_date, so no slot would ever run; swap them"
            )
        return value


def zone_of(info: ValidationInfo) -> tzinfo:
    """Return the entry's own zone, else the app's."""
    name = info.data.get("timezone")
    default: tzinfo = (info.context or {}).get("timezone", UTC)
    return zone_named(name) if name else default


class Policy(_Dated):
    """An entry's catch-up configuration, validated.

    A policy that recovers missed slots has a window; with ``select`` off the window is optional.
    """

    # A field is validated against those above it, so their order matters.
    select: Annotated[Select, SELECT] = Select.ALL
    """Which missed slots are candidates to run."""
    window: Annotated[timedelta | None, WINDOW.or_none()] = Field(None, validate_default=True)
    """How far back missed slots are recovered; needed unless `select` is `False`."""
    overlap_policy: Annotated[OverlapPolicy, word(OverlapPolicy)] = OverlapPolicy.SKIP
    """How a slot is handled while a run of the entry is active."""
    max_span: Annotated[timedelta | None, WINDOW.or_none()] = None
    """With `select: span`, the longest time that one run stands for; a longer gap becomes several runs."""
    max_runs: Annotated[int | None, COUNT.or_none()] = None
    """Cap on the entry's catch-up runs per restart."""
    keep: Annotated[Keep, word(Keep)] = Keep.OLDEST
    """Which end survives a cap."""
    hold_above: Annotated[int | None, COUNT.or_none()] = None
    """A catch-up of more runs than this waits until a person approves or discards it; by default
    `catchup_hold_above`."""
    catch_up: Annotated[Lane, LANE] = Lane()
    """The queue and the priority of catch-up and backfill runs; by default `catchup_queue` and
    `catchup_priority`."""
    max_active_runs: Annotated[int, COUNT] = 1
    """With `overlap_policy: all`, the number of runs of the chain that may be active at once."""
    max_pending: Annotated[int | None, COUNT.or_none()] = None
    """With `overlap_policy: all`, the number of runs that may wait; newer slots are skipped."""
    on_failure: Annotated[OnFailure, word(OnFailure)] = OnFailure.CONTINUE
    """Whether a failed run releases its successor, or the chain waits until the run is discarded or a replay
    succeeds."""
    pause_on_failure: Annotated[bool, FLAG] = False
    """A run that ends in the dead-letter queue pauses its entry."""
    skip_if_successful: Annotated[bool, FLAG] = False
    """Skip a slot if a run of the entry has succeeded since the slot before it."""
    on_resume: Annotated[OnResume, word(OnResume)] = OnResume.CATCHUP
    """How slots missed while the entry was paused are handled."""
    on_schedule_change: Annotated[OnScheduleChange, word(OnScheduleChange)] = OnScheduleChange.REPLAY
    """Whether a changed schedule is applied to the time before the change was seen."""
    timezone: Annotated[str | None, ZONE.or_none()] = None
    """Zone in which cron strings are read; by default the app's."""
    start_date: Annotated[datetime | None, MOMENT.or_none()] = None
    """Earlier slots never run."""
    end_date: Annotated[datetime | None, MOMENT.or_none()] = None
    """Later slots never run."""
    exclude: Annotated[tuple[str, ...], EXCLUDE] = ()
    """Slots that never run, live or late, in the entry's zone."""
    misfire_threshold: Annotated[timedelta, PAUSE] = timedelta(seconds=60)
    """A slot handled later than this was missed; a younger one is live."""
    expect_within: Annotated[timedelta | None, PAUSE.or_none()] = None
    """A slot whose run has not succeeded this long after the slot is overdue."""
    max_attempts: Annotated[int, COUNT] = 1
    """Number of attempts before a run is dead-lettered."""
    retry_delay: Annotated[timedelta | None, PAUSE.or_none()] = None
    """Delay before the next attempt of a failed run."""
    retry_backoff: Annotated[float, FACTOR] = 1
    """Factor by which each delay grows: `1` keeps it constant, `2` doubles it."""
    retry_max_delay: Annotated[timedelta | None, PAUSE.or_none()] = None
    """The longest delay with `retry_backoff`; by default a day."""
    for_each: Annotated[ForEach | None, FOR_EACH.or_none()] = None
    """Make an entry of each value: `sync` with `{"tenant": ["eu", "us"]}` becomes `sync[eu]` and `sync[us]`,
    each with the keyword argument `tenant`. Two arguments make an entry of each pair: `sync[eu,gold]`."""
    refresh: Annotated[timedelta, PAUSE] = REFRESH
    """How often the functions of `for_each` are called again."""
    logic_version: Annotated[str, TEXT] = ""
    """Part of the run's identity: a new version makes new runs of old slots."""
    tenant: Annotated[str, TEXT] = ""
    """Part of the run's identity; of an entry that `for_each` makes, its value."""
    jitter: Annotated[timedelta | None, PAUSE.or_none()] = None
    """A live run is sent up to this much later, by an amount fixed per slot."""

    @classmethod
    def from_raw(cls, raw: object, *, where: str, timezone: tzinfo = UTC) -> Self:
        """Parse the policy of an entry: a mapping, a bare window, or False.

        ``timezone`` is the app's. All mistakes are raised at once as a `ConfigurationError`.
        """
        if isinstance(raw, cls):
            return raw
        return cls.read(_fields(raw, where=where), where=where, timezone=timezone)

    @field_validator("window")
    @classmethod
    def _needed_to_recover(cls, value: timedelta | None, info: ValidationInfo) -> timedelta | None:
        if value is None and info.data.get("select", Select.OFF) is not Select.OFF:
            raise ValueError(
                f"missing with select: {info.data['select']}; set how far back to recover, "
                "such as '6h', or select: False to recover nothing"
            )
        return value

    @field_validator("max_span")
    @classmethod
    def _only_for_spans(cls, value: timedelta | None, info: ValidationInfo) -> timedelta | None:
        select = info.data.get("select", Select.SPAN)
        if value is not None and select is not Select.SPAN:
            raise ValueError(f"has no effect with select: {select}; only used with select: span")
        return value

    @field_validator("max_active_runs", "max_pending")
    @classmethod
    def _only_for_a_chain(cls, value: int | None, info: ValidationInfo) -> int | None:
        # An overlap policy that cannot be parsed is reported by itself.
        overlap = info.data.get("overlap_policy", OverlapPolicy.ALL)
        if not overlap.rule.chained and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError(
                f"{value} has no effect with overlap_policy: {overlap}; only used with overlap_policy: all"
            )
        return value

    @field_validator("refresh", "tenant")
    @classmethod
    def _fits_for_each(cls, value: Any, info: ValidationInfo) -> Any:
        each = info.data.get("for_each")  # None, too, if it could not be parsed
        if info.field_name == "tenant" and value and each is not None:
            raise ValueError(f"{shown(value)} has no effect: for_each sets it; remove it")
        if info.field_name == "refresh" and each is not None and not each.functions and value != REFRESH:
            raise ValueError("has no effect without a function in for_each; remove it")
        return value

    def without_for_each(self) -> Self:
        """Return the policy of each entry that ``for_each`` makes."""
        one = self.model_copy(update={"for_each": None, "refresh": REFRESH})
        one.model_fields_set.difference_update(("for_each", "refresh"))
        return one

    @field_validator("retry_delay", "retry_backoff", "retry_max_delay")
    @classmethod
    def _retries_fit_together(cls, value: Any, info: ValidationInfo) -> Any:
        given = info.data  # without the fields that could not be parsed
        delay = given.get("retry_delay")
        if value is None or value == 1:
            return value
        match info.field_name:
            case "retry_delay" if given.get("max_attempts") == 1:
                raise ValueError("has no effect while max_attempts is 1; set max_attempts to 2 or more")
            case "retry_backoff" if "retry_delay" in given and delay is None:
                raise ValueError("has no effect without retry_delay; set the first delay, such as '1m'")
            case "retry_max_delay" if given.get("retry_backoff") == 1:
                raise ValueError(
                    "has no effect while retry_backoff is 1; set retry_backoff to 2, for example"
                )
            case "retry_max_delay" if delay is not None and value < delay:
                raise ValueError("is shorter than retry_delay, which is the first delay; make it longer")
        return value


class SchedulePolicy(_Dated):
    """The fields that one of an entry's schedules sets for itself."""

    select: Annotated[Select | None, SELECT.or_none()] = None
    """Which missed slots of this schedule are candidates."""
    window: Annotated[timedelta | None, WINDOW.or_none()] = None
    """How far back missed slots of this schedule are recovered."""
    timezone: Annotated[str | None, ZONE.or_none()] = None
    """Zone in which this schedule's cron string is read."""
    start_date: Annotated[datetime | None, MOMENT.or_none()] = None
    """Earlier slots of this schedule never run."""
    end_date: Annotated[datetime | None, MOMENT.or_none()] = None
    """Later slots of this schedule never run."""

    def over(self, policy: Policy, *, where: str) -> Policy:
        """Return the policy of this schedule: the entry's, with the fields that are set here.

        Raises `ConfigurationError` if the result is not valid.
        """
        if self.select is not None and Select.SPAN in (self.select, policy.select):
            raise config_error(
                where,
                f"select {self.select}: a span joins the slots of all schedules of an entry; set select for "
                "the whole entry only, or make two entries",
            )
        given = policy.model_dump(include=policy.model_fields_set)
        return Policy.read(given | self.model_dump(exclude_none=True), where=where)


def _fields(raw: object, *, where: str) -> Mapping[str, object]:
    if isinstance(raw, Mapping):
        return raw
    if isinstance(raw, str) and raw in list(Select):
        example = False if raw == Select.OFF else {"select": str(raw), "window": "6h"}
        raise config_error(where, f"expected a window such as '6h', got {raw!r}; write {example}")
    if isinstance(raw, str | timedelta):
        return {"window": raw}
    if raw is False:
        return {"select": False}
    if raw is True:
        raise config_error(where, "True does not say how far back; write a window such as '6h'")
    raise config_error(where, f"expected a mapping, a window such as '6h' or False, got {shown(raw)}")
