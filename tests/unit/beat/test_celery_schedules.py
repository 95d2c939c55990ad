"""Celery's schedule objects give the slots at which Celery's own beat would fire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytz
from celery import Celery
from celery.schedules import BaseSchedule, crontab, schedule, solar
from dateutil import tz

from celery_catchup.beat.celery_schedules import timetable_of, zone_of
from celery_catchup.beat.fingerprints import describe, fingerprint
from celery_catchup.beat.simulated_schedules import NotReplayableError
from celery_catchup.errors import ScheduleError
from celery_catchup.model import to_datetime, to_instant
from celery_catchup.timetables.cron_table import CronTable
from celery_catchup.timetables.forward_only import ForwardOnlyTable
from celery_catchup.timetables.timetable import IntervalTable, Timetable

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 27, 10, 17, 23, tzinfo=UTC)  # two days before summer time begins in Berlin
AUTUMN = datetime(2026, 10, 23, 10, 17, 23, tzinfo=UTC)  # two days before it ends
START = datetime(2026, 2, 7, 9, 5, tzinfo=UTC)


def make_app(zone: str) -> Celery:
    app = Celery("test", set_as_current=False)
    app.conf.timezone = zone
    return app


@pytest.fixture(scope="module")
def berlin() -> Celery:
    return make_app("Europe/Berlin")


def build(what: object, *, start: datetime = START, zone: tzinfo = UTC, name: str = "report") -> Timetable:
    return timetable_of(what, zone=zone, anchor=to_instant(start), name=name)


def slots_of(what: object, start: datetime, *, count: int, zone: tzinfo = UTC) -> list[datetime]:
    table = build(what, start=start, zone=zone)
    return [to_datetime(slot) for slot in islice(table.slots(to_instant(start), 2**48), count)]


class Hand:
    """A clock that stands where it is put, for the oracles."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        return self.moment


def chained(make: Callable[[Hand], BaseSchedule], start: datetime, *, zone: tzinfo) -> Iterator[datetime]:
    """Celery's own estimate, again and again, each from the one before."""
    hand = Hand(start.astimezone(zone))
    one = make(hand)
    while True:
        following = hand.moment.astimezone(UTC) + one.remaining_estimate(hand.moment)
        yield following
        hand.moment = following.astimezone(zone)


def beaten(make: Callable[[Hand], BaseSchedule], start: datetime, *, zone: tzinfo) -> Iterator[datetime]:
    """What beat does: ask is_due, fire, sleep as long as it says."""
    hand = Hand(start.astimezone(zone))
    one, last = make(hand), hand.moment
    while True:
        due, wait = one.is_due(last)
        if due:
            last = hand.moment
            yield hand.moment.astimezone(UTC)
        hand.moment = (hand.moment.astimezone(UTC) + timedelta(seconds=wait)).astimezone(zone)


# -- crontab -----------------------------------------------------------------------------


@pytest.mark.parametrize("start", [SPRING, AUTUMN, START])
@pytest.mark.parametrize(
    "fields",
    [
        {"minute": 0},
        {"minute": "*/20"},
        {"minute": 30, "hour": 2},
        {"minute": 0, "hour": 0, "day_of_month": "13", "day_of_week": "fri"},
        {"minute": "5,50", "hour": "1-4", "day_of_week": "sun,1"},
    ],
    ids=str,
)
def test_a_crontab_runs_when_celery_says(start: datetime, fields: dict[str, Any], berlin: Celery) -> None:
    def make(hand: Hand) -> crontab:
        return crontab(**fields, nowfun=hand, app=berlin)

    slots = slots_of(crontab(**fields, app=berlin), start, count=150)

    assert slots == list(islice(chained(make, start, zone=BERLIN), 150))


def test_the_zone_of_a_crontab_is_its_apps(berlin: Celery) -> None:
    table = build(crontab(minute=0, hour=6, app=berlin))

    assert isinstance(table, CronTable)
    assert table.next_after(to_instant(START)) == to_instant(datetime(2026, 2, 8, 5, tzinfo=UTC))


def test_the_zone_of_a_crontab_without_an_app_is_the_given_one() -> None:
    cron = crontab(minute=0, hour=6)

    table = build(cron, zone=BERLIN)

    assert table.next_after(to_instant(START)) == to_instant(datetime(2026, 2, 8, 5, tzinfo=UTC))
    assert "tz" not in vars(cron)


def test_a_zone_kept_by_the_schedule_wins() -> None:
    cron = crontab(app=make_app("UTC"))
    cron.tz = ZoneInfo("Asia/Tokyo")

    assert zone_of(cron, default=UTC) == ZoneInfo("Asia/Tokyo")


def test_a_class_may_have_a_zone_of_its_own(berlin: Celery) -> None:
    tokyo = type("Tokyo", (crontab,), {"tz": ZoneInfo("Asia/Tokyo")})

    assert zone_of(tokyo(app=berlin), default=UTC) == ZoneInfo("Asia/Tokyo")


def test_a_zone_by_name_or_of_pytz_becomes_that_of_zoneinfo() -> None:
    class Pytz(tzinfo):
        zone = "Europe/Berlin"

    for zone in ("Europe/Berlin", Pytz(), pytz.timezone("Europe/Berlin"), tz.gettz("Europe/Berlin")):
        cron = crontab()
        cron.tz = zone
        assert zone_of(cron, default=UTC) == BERLIN


def test_the_crontab_of_django_celery_beat_runs_in_its_own_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    tz_aware = type("TzAwareCrontab", (crontab,), {"is_due": lambda self, last: None})
    monkeypatch.setattr(tz_aware, "__module__", "django_celery_beat.tzcrontab")
    cron = tz_aware(minute=0, hour=6)
    cron.tz = BERLIN

    table = build(cron)

    assert isinstance(table, CronTable)
    assert table.next_after(to_instant(START)) == to_instant(datetime(2026, 2, 8, 5, tzinfo=UTC))


def test_a_crontab_with_an_empty_field_is_refused() -> None:
    cron = crontab()
    cron.minute = set()

    with pytest.raises(ScheduleError, match=r"^report: the crontab's minute is empty; give"):
        build(cron)


# -- intervals ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what", [30, 30.0, timedelta(seconds=30), schedule(30), schedule(timedelta(seconds=30))]
)
def test_seconds_timedeltas_and_schedules_are_intervals_from_the_anchor(what: object) -> None:
    table = build(what)

    assert table == IntervalTable(timedelta(seconds=30), anchor=to_instant(START))


@pytest.mark.parametrize(
    "what", [0, -5, float("nan"), float("inf"), timedelta(), schedule(0), schedule(None)]
)
def test_an_interval_that_cannot_be_counted_is_refused(what: object) -> None:
    with pytest.raises(ScheduleError, match=r"^report: .* is not an interval that can be counted; "):
        build(what)


@pytest.mark.parametrize("what", [None, True, "0 * * * *", object, [30]])
def test_anything_else_is_refused_in_one_sentence(what: object) -> None:
    expected = f"^report: expected a Celery schedule, a timedelta or seconds, got {type(what).__name__}$"

    with pytest.raises(ScheduleError, match=expected):
        build(what)


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
@pytest.mark.parametrize(
    "every",
    [timedelta(days=1), timedelta(hours=1), timedelta(hours=3), timedelta(minutes=15)],
    ids=str,
)
def test_a_relative_interval_is_rounded_as_celery_rounds(
    every: timedelta, start: datetime, berlin: Celery
) -> None:
    def make(hand: Hand) -> schedule:
        return schedule(every, relative=True, nowfun=hand, app=berlin)

    slots = slots_of(schedule(every, relative=True, app=berlin), start, count=400)

    assert slots == list(islice(chained(make, start, zone=BERLIN), 400))


@pytest.mark.skipif(
    not hasattr(solar, "max_search_days"), reason="Celery before 5.7 fires late after a change"
)
@pytest.mark.parametrize("start", [SPRING, AUTUMN])
@pytest.mark.parametrize(
    "every",
    [timedelta(days=1), timedelta(hours=1), timedelta(hours=3), timedelta(minutes=15)],
    ids=str,
)
def test_a_relative_interval_fires_as_beat_does(every: timedelta, start: datetime, berlin: Celery) -> None:
    def make(hand: Hand) -> schedule:
        return schedule(every, relative=True, nowfun=hand, app=berlin)

    slots = slots_of(schedule(every, relative=True, app=berlin), start, count=400)

    assert slots == list(islice(beaten(make, start, zone=BERLIN), 400))


def test_a_relative_day_begins_at_midnight_on_the_wall(berlin: Celery) -> None:
    slots = slots_of(schedule(timedelta(days=1), relative=True, app=berlin), SPRING, count=5)

    assert {slot.astimezone(BERLIN).strftime("%H:%M:%S") for slot in slots} == {"00:00:00"}


# -- solar -------------------------------------------------------------------------------

PLACES = {
    "the equator": (0.0, 0.0),
    "Munich": (48.14, 11.58),
    "Sydney": (-33.87, 151.21),
    "Helsinki, 60° N": (60.17, 24.94),
    "Longyearbyen, 78° N": (78.22, 15.65),
}


@pytest.mark.parametrize("event", ["sunrise", "sunset", "solar_noon", "dawn_civil", "dusk_astronomical"])
@pytest.mark.parametrize("place", PLACES)
def test_a_solar_event_is_celerys_to_the_second(place: str, event: str) -> None:
    lat, lon = PLACES[place]
    if abs(lat) > 45 and not hasattr(solar, "max_search_days"):
        pytest.skip("Celery before 5.7 fires where nothing rises or sets")

    slots = slots_of(solar(event, lat, lon), START, count=400)

    celerys = islice(chained(lambda hand: solar(event, lat, lon, nowfun=hand), START, zone=UTC), 400)
    for slot, expected in zip(slots, celerys, strict=True):
        assert abs(slot - expected) <= timedelta(milliseconds=601)  # rounding, and ephem's own tenth


@pytest.mark.parametrize("place", PLACES)
def test_a_solar_event_is_the_same_slot_wherever_the_walk_began(place: str) -> None:
    lat, lon = PLACES[place]
    table = build(solar("sunrise", lat, lon))
    year = list(table.slots(to_instant(START), to_instant(START + timedelta(days=366))))

    for moved in (timedelta(days=-200), timedelta(days=3, seconds=7), timedelta(days=190)):
        other = build(solar("sunrise", lat, lon), start=START + moved)
        assert list(other.slots(to_instant(START), to_instant(START + timedelta(days=366)))) == year
    for earlier, slot in pairwise(year[:40]):
        assert table.next_after(slot - 1) == slot
        assert table.next_after(slot - 500) == slot
        assert table.previous_before(slot) == earlier
    assert all(slot % 1000 == 0 for slot in year)


def test_where_the_sun_never_rises_there_is_no_slot() -> None:
    table = build(solar("dusk_astronomical", 90, 0))

    assert table.next_after(to_instant(START)) is None
    assert table.minimum_distance() is None


def test_the_users_object_and_ours_have_different_observers() -> None:
    mine = solar("sunrise", 48.14, 11.58)
    before, table = mine.cal.date, build(mine)

    mine.cal.lat = "0"
    slot = table.next_after(to_instant(START))

    assert slot == build(solar("sunrise", 48.14, 11.58)).next_after(to_instant(START))
    assert mine.cal.date == before


# -- classes of the user's own -----------------------------------------------------------


class Halves(BaseSchedule):
    """A good one: every half hour of the wall clock, by its estimate."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta | None:
        last = self.maybe_make_aware(last_run_at)
        half = last.replace(minute=last.minute // 30 * 30, second=0, microsecond=0)
        return half + timedelta(minutes=30) - self.maybe_make_aware(self.now())

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        rest = self.remaining_estimate(last_run_at).total_seconds()
        return (True, 1800.0) if rest <= 0 else (False, rest)


class Workdays(crontab):
    """Only is_due is its own: on Sundays it says no, and look again in an hour."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        if self.now().isoweekday() == 7:
            return False, 3600.0
        return super().is_due(last_run_at)


class Polled(BaseSchedule):
    """Only is_due, and it never says more than a minute ahead."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        rest = (last_run_at + timedelta(minutes=25) - self.now()).total_seconds()
        return (True, 60.0) if rest <= 0 else (False, min(rest, 60.0))


class Morning(BaseSchedule):
    """Subtracts two times of one zone, which Python does by their wall clocks."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        last = last_run_at.astimezone(BERLIN)
        seven = last.replace(hour=7, minute=0, second=0, microsecond=0, fold=0)
        return (seven if seven > last else seven + timedelta(days=1)) - self.now()


class RealTime(BaseSchedule):
    """Ignores its nowfun."""

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return last_run_at + timedelta(hours=1) - datetime.now(UTC)


class RealTimeDue(BaseSchedule):
    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        return datetime.now(UTC) > last_run_at, 20.0


class OwnNow(Halves):
    """Reads the real time, but through now(), where it can be replaced."""

    def now(self) -> datetime:
        return datetime.now(BERLIN)


class Backwards(BaseSchedule):
    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        return last_run_at - timedelta(hours=1) - self.now()


class Failing(BaseSchedule):
    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        raise LookupError("no such calendar")


class Flagged(Halves):
    """Its estimate follows from time; whether it is due depends on something else as well."""

    enabled = False

    def remaining_estimate(self, last_run_at: datetime) -> timedelta | None:
        return super().remaining_estimate(last_run_at)

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        return super().is_due(last_run_at) if self.enabled else (False, 1800.0)


@dataclass
class Dates(BaseSchedule):
    """Ends: a list of dates. Has a repr but no place for Celery's own attributes."""

    dates: tuple[date, ...]

    def remaining_estimate(self, last_run_at: datetime) -> timedelta | None:
        moments = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in self.dates]
        later = [moment for moment in moments if moment > last_run_at]
        return later[0] - self.now() if later else None


def test_a_class_of_the_users_own_is_stepped_by_its_estimate() -> None:
    slots = slots_of(Halves(), START, count=3)

    assert [slot.strftime("%H:%M:%S") for slot in slots] == ["09:30:00", "10:00:00", "10:30:00"]


def test_the_users_object_is_left_as_it_is() -> None:
    mine = Halves()
    before = dict(vars(mine))

    slots_of(mine, START, count=3)

    assert vars(mine) == before


@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_a_class_that_subtracts_wall_clocks_is_right_across_a_change_of_the_offset(start: datetime) -> None:
    slots = slots_of(Morning(), start, count=5, zone=BERLIN)

    assert [slot.astimezone(BERLIN).strftime("%H:%M") for slot in slots] == ["07:00"] * 5
    assert {later - earlier for earlier, later in pairwise(slots)} >= {timedelta(days=1)}
    assert len(set(slots)) == 5


def test_a_class_with_only_is_due_is_asked_as_beat_asks() -> None:
    slots = slots_of(Polled(), START, count=4)

    assert slots == [START + timedelta(minutes=25 * number) for number in range(1, 5)]


def test_a_crontab_with_an_is_due_of_its_own_follows_it(berlin: Celery) -> None:
    def make(hand: Hand) -> Workdays:
        return Workdays(minute=0, hour="6,18", nowfun=hand, app=berlin)

    for start in (START, SPRING, AUTUMN):
        slots = slots_of(Workdays(minute=0, hour="6,18", app=berlin), start, count=30)

        assert slots == list(islice(beaten(make, start, zone=BERLIN), 30))
        assert all(slot.astimezone(BERLIN).isoweekday() < 7 for slot in slots)


class Estimating(crontab):
    """Its estimate is its own, though no other than Celery's."""

    def remaining_estimate(self, last_run_at: datetime, **kwargs: Any) -> timedelta:
        return super().remaining_estimate(last_run_at, **kwargs)


class Deciding(crontab):
    """Its is_due is its own, though no other than Celery's."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        return super().is_due(last_run_at)


@pytest.mark.parametrize("kind", [Estimating, Deciding])
@pytest.mark.parametrize("minute", [0, 5, 59])
def test_a_crontab_class_of_its_own_begins_well_in_a_repeated_hour(kind: type[crontab], minute: int) -> None:
    second_pass = datetime(2026, 11, 1, 6, minute, 30, tzinfo=UTC)  # 01:05 once more in New York
    mine = kind(minute="*/20", app=make_app("America/New_York"))

    slots = slots_of(mine, second_pass, count=2)

    assert slots == [datetime(2026, 11, 1, 7, 0, tzinfo=UTC), datetime(2026, 11, 1, 7, 20, tzinfo=UTC)]


@pytest.mark.parametrize("kind", [Estimating, Deciding])
def test_a_crontab_class_without_an_app_is_read_in_the_given_zone(kind: type[crontab]) -> None:
    slots = slots_of(kind(minute=0, hour=6), START, count=2, zone=BERLIN)

    assert [slot.astimezone(BERLIN).hour for slot in slots] == [6, 6]


@pytest.mark.parametrize("kind", [Estimating, Deciding])
@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_a_crontab_class_that_changes_nothing_has_the_slots_of_a_crontab(
    kind: type[crontab], start: datetime, berlin: Celery
) -> None:
    slots = slots_of(kind(minute="*/20", app=berlin), start, count=300)

    assert slots == slots_of(crontab(minute="*/20", app=berlin), start, count=300)


def test_a_class_that_reads_the_real_time_through_now_can_be_replayed() -> None:
    slots = slots_of(OwnNow(), START, count=2)

    assert slots == slots_of(Halves(), START, count=2)


@pytest.mark.parametrize("kind", [RealTime, RealTimeDue])
def test_a_class_that_ignores_its_nowfun_cannot_be_replayed(kind: type[BaseSchedule]) -> None:
    with pytest.raises(NotReplayableError, match=f"^report: .*{kind.__name__} .*catch-up is off for it"):
        build(kind())


def test_a_class_that_is_not_due_at_its_own_next_time_cannot_be_replayed() -> None:
    with pytest.raises(NotReplayableError, match=r"not due at 2026-02-07T09:30:00Z, its own next time"):
        build(Flagged())


def test_a_class_that_is_due_at_its_own_next_time_can_be_replayed() -> None:
    flagged = Flagged()
    flagged.enabled = True

    assert slots_of(flagged, START, count=3) == slots_of(Halves(), START, count=3)


def test_a_relative_interval_is_counted_without_being_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    table = build(schedule(timedelta(minutes=1), relative=True), zone=BERLIN)
    start = to_instant(START)

    assert table.count(start, start + 14 * 86_400_000) == 14 * 1440
    assert isinstance(table, ForwardOnlyTable)
    assert len(table._points) < 10


def test_a_class_that_goes_backwards_is_refused_at_once() -> None:
    with pytest.raises(
        ScheduleError, match=r"^report: the slot after 2026-02-07T09:05:00Z is 3600000 ms before"
    ):
        build(Backwards())


def test_a_class_that_fails_is_refused_with_its_reason() -> None:
    with pytest.raises(
        ScheduleError, match=r"Failing failed with LookupError\('no such calendar'\); correct"
    ) as error:
        build(Failing())

    assert isinstance(error.value.__cause__, LookupError)


def test_a_class_with_no_method_at_all_is_refused() -> None:
    with pytest.raises(ScheduleError, match="BaseSchedule failed with NotImplementedError"):
        build(BaseSchedule())


def test_a_class_may_run_out_of_dates() -> None:
    table = build(Dates((date(2026, 2, 9), date(2026, 2, 11))))

    assert table.count(to_instant(START), 2**47) == 2
    assert table.next_after(to_instant(datetime(2026, 2, 11, tzinfo=UTC))) is None


def with_methods(**methods: Any) -> BaseSchedule:
    return type("Mine", (BaseSchedule,), methods)()


@pytest.mark.parametrize(
    "answer",
    [(False, None), (False, 1e15), (False, float("inf")), (False, timedelta.max.total_seconds())],
)
def test_a_class_that_is_never_due_again_has_no_more_slots(answer: tuple[bool, float | None]) -> None:
    table = build(with_methods(is_due=lambda self, last: self.now() and answer))

    assert table.next_after(to_instant(START)) is None


def test_a_class_whose_next_run_is_beyond_all_time_has_no_more_slots() -> None:
    table = build(with_methods(remaining_estimate=lambda self, last: self.now() and timedelta.max))

    assert table.next_after(to_instant(START)) is None


def test_a_class_that_is_always_due_runs_as_often_as_it_says() -> None:
    slots = slots_of(with_methods(is_due=lambda self, last: (bool(self.now()), 20.0)), START, count=2)

    assert slots == [START + timedelta(seconds=20), START + timedelta(seconds=40)]


def test_a_class_that_says_at_once_is_asked_every_millisecond_until_it_is_due() -> None:
    def is_due(self: BaseSchedule, last: datetime) -> tuple[bool, float]:
        return self.now() >= last + timedelta(milliseconds=50, microseconds=300), 0

    slots = slots_of(with_methods(is_due=is_due), START, count=2)

    assert slots == [START + timedelta(milliseconds=51), START + timedelta(milliseconds=102)]


def test_a_method_set_on_the_object_is_bound_to_the_real_one_and_cannot_be_replayed() -> None:
    cron = crontab(app=make_app("UTC"))
    cron.is_due = Halves().is_due

    with pytest.raises(NotReplayableError):
        build(cron)


def test_a_class_that_never_decides_is_an_error_and_no_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_catchup.beat.simulated_schedules._MOST_CHECKS", 1000)

    with pytest.raises(
        NotReplayableError, match="Mine is not due at any of 1000 checks, .* return longer waits"
    ):
        build(with_methods(is_due=lambda self, last: (not self.now(), 0)))


@pytest.mark.parametrize("answer", [None, True, (True,), (False, "soon"), (False, float("nan"))])
def test_an_is_due_that_answers_nonsense_is_an_error(answer: object) -> None:
    with pytest.raises(ScheduleError, match=r"Mine answers is_due with .*; return \(due, seconds to wait\)"):
        build(with_methods(is_due=lambda self, last: answer))


def test_an_estimate_that_is_no_timedelta_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="Mine estimates 3600; return a timedelta or None"):
        build(with_methods(remaining_estimate=lambda self, last: 3600))


def test_slots_closer_than_a_millisecond_are_one_slot() -> None:
    def estimate(self: BaseSchedule, last: datetime) -> timedelta:
        later = last.replace(microsecond=123_456)
        return (later if later > last else later + timedelta(seconds=1)) - self.now()

    slots = slots_of(with_methods(remaining_estimate=estimate), START, count=2)

    assert slots == [START + timedelta(milliseconds=123), START + timedelta(milliseconds=1123)]


def test_the_most_derived_class_decides_how_it_is_stepped() -> None:
    class OnlyEvenHours(Halves):
        def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
            due, wait = super().is_due(last_run_at)
            return (due, wait) if self.now().hour % 2 == 0 else (False, 60.0)

    slots = slots_of(OnlyEvenHours(), START, count=5)

    assert [slot.strftime("%H:%M") for slot in slots] == ["10:00", "10:30", "12:00", "12:30", "14:00"]


def test_a_clocked_schedule_of_django_celery_beat_is_one_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    class clocked(BaseSchedule):  # noqa: N801 - its name there
        clocked_time = START + timedelta(hours=1)

    monkeypatch.setattr(clocked, "__module__", "django_celery_beat.clockedschedule")

    table = build(clocked())

    assert list(table.slots(0, 2**47)) == [to_instant(START + timedelta(hours=1))]


# -- in words ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (crontab(minute=0), "0 * * * *"),
        (crontab(minute="*/15", hour="8-17", day_of_week="mon-fri"), "*/15 8-17 * * mon-fri"),
        (crontab(minute=[0, 30, 31, 32], day_of_month={1, 15}, month_of_year=6), "0,30-32 * 1,15 6 *"),
        (crontab(hour=iter(range(24))), "* * * * *"),
        (30, "every 30s"),
        (0.5, "every 500ms"),
        (timedelta(minutes=90), "every 1h30m"),
        (schedule(86_400, relative=True), "every 1d relative"),
        (schedule(None), "every None"),
        (solar("sunrise", 60.17, 24.94), "sunrise at 60.17, 24.94"),
        (Dates((date(2026, 2, 9),)), "Dates(dates=(datetime.date(2026, 2, 9),))"),
        (Halves(), f"{__name__}.Halves"),
    ],
)
def test_a_schedule_is_described_for_people(what: object, text: str) -> None:
    assert describe(what) == text


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (crontab(minute="*/15"), "crontab 0,15,30,45 * * * * (UTC)"),
        (crontab(minute=[45, 0, 30, 15]), "crontab 0,15,30,45 * * * * (UTC)"),
        (
            crontab(day_of_week="mon-fri", app=make_app("Europe/Berlin")),
            "crontab * * * * 1-5 (Europe/Berlin)",
        ),
        (30, "every 30s"),
        (schedule(timedelta(seconds=30)), "every 30s"),
        (schedule(1 / 3), "every 0.333333s"),
        (schedule(86_400, relative=True), "every 86400s relative (UTC)"),
        (solar("sunrise", 60, 24.94), "solar sunrise at 60.0, 24.94"),
        (Halves(), f"{__name__}.Halves {{}}"),
        (Dates((date(2026, 2, 9),)), f"{__name__}.Dates Dates(dates=(datetime.date(2026, 2, 9),))"),
    ],
)
def test_a_fingerprint_is_short_and_readable(what: object, text: str) -> None:
    assert fingerprint(what) == text


class Calendar(Halves):
    """Tells nothing of itself, so its public attributes do."""

    def __init__(self, **state: Any) -> None:
        super().__init__()
        vars(self).update(state)


class Reducing(Halves):
    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.arguments


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (crontab(minute=0), crontab(minute=1)),
        (crontab(minute=0), crontab(minute=0, app=make_app("Asia/Tokyo"))),
        (schedule(60), schedule(61)),
        (schedule(60), schedule(60, relative=True)),
        (solar("sunrise", 1, 2), solar("sunset", 1, 2)),
        (solar("sunrise", 1, 2), solar("sunrise", 1, 3)),
        (Dates((date(2026, 2, 9),)), Dates((date(2026, 2, 10),))),
        (Calendar(days={1, 2}), Calendar(days={1, 3})),
        (Calendar(table={"a": [1]}), Calendar(table={"a": [2]})),
        (Reducing(1), Reducing(2)),
        (Halves(), OwnNow()),
        (Workdays(minute=0), Workdays(minute=1)),
        (Workdays(minute=0), crontab(minute=0)),
    ],
)
def test_a_fingerprint_changes_with_the_schedule(one: object, other: object) -> None:
    assert fingerprint(one) != fingerprint(other)


class Nameless:
    """Its repr is an address in memory."""


class Careless(Halves):
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "make",
    [
        lambda: Calendar(owner=Nameless(), call=lambda: 1, inner=[Nameless()], _cache=object()),
        lambda: Reducing(Nameless(), print, {"zone": BERLIN}),
        lambda: Calendar(names={"x", "y", "z"}, long="x" * 1000),
        lambda: solar("sunrise", 1, 2),
        lambda: type("Sun", (solar,), {"is_due": None})("sunrise", 1, 2),
        lambda: crontab(minute=0, nowfun=lambda: START),
        Careless,
    ],
)
def test_a_fingerprint_knows_no_addresses_and_is_the_same_for_every_twin(make: Callable[[], object]) -> None:
    twins = [make() for _ in range(3)]

    prints = {fingerprint(twin) for twin in twins}

    assert len(prints) == 1
    assert "0x" not in prints.pop()
    assert all(len(fingerprint(twin)) <= 200 for twin in twins)
    assert all("0x" not in describe(twin) for twin in twins)


def test_use_leaves_the_fingerprint_as_it_is() -> None:
    for what in (solar("sunrise", 60, 25), Halves(), schedule(3600, relative=True), Workdays()):
        before = fingerprint(what)
        slots_of(what, START, count=3)
        assert fingerprint(what) == before


def test_the_tables_are_those_of_the_kinds() -> None:
    kinds = {type(build(what)) for what in (crontab(), 5, solar("sunrise", 1, 2))}

    assert kinds == {CronTable, IntervalTable, ForwardOnlyTable}
