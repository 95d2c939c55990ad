"""Entries without a policy, side by side with Celery's own `PersistentScheduler`.

Both run the same entries for some days under a clock that jumps from wake-up to wake-up, with a
restart and an outage of three hours in between. What they send, and when, must be the same.
"""

from __future__ import annotations

import json
import random
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import celery
import pytest
import redis
from celery import Celery, _state, beat
from celery.schedules import crontab, schedule, solar

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.testing import FakeClock

Sent = list[tuple[str, datetime]]

TOLERANCE = timedelta(milliseconds=500)  # Celery counts in floats, and intervals add up
STEP = 0.001  # seconds that pass at least between two ticks
OUTAGE = timedelta(hours=3)


class Quarters(schedule):
    """A schedule class of a user's own: due when a quarter of an hour of its clock has begun."""

    def is_due(self, last_run_at: datetime) -> tuple[bool, float]:
        now = self.now().timestamp()
        return now // 900 > last_run_at.timestamp() // 900, min(300.0, 900 - now % 900)


class Clocked(Celery):
    """An app whose time is the test's."""

    clock: FakeClock

    def now(self) -> datetime:
        return self.clock.now().astimezone(self.timezone)


def entries() -> dict[str, Any]:
    declared: dict[str, Any] = {
        "hourly": crontab(minute=0),
        "often": crontab(minute="*/20"),
        "nightly": crontab(minute=30, hour=2),
        "weekly": crontab(minute=0, hour=9, day_of_week="sun"),
        "monthly": crontab(minute=0, hour=0, day_of_month=1),
        "interval": timedelta(minutes=7),
        "seconds": 1800.0,
        "daily": timedelta(days=1),
        "odd": timedelta(seconds=1234.567),
        "sunrise": solar("sunrise", 60.2, 24.9),
        "quarters": Quarters(timedelta(minutes=15)),
    }
    plain = {name: {"schedule": value} for name, value in declared.items()}
    relative = {
        "relative-hours": {"schedule": timedelta(hours=2), "relative": True},
        "relative-days": {"schedule": timedelta(days=1), "relative": True},
    }
    # A task named after the entry: the message says whose it is.
    return {name: {"task": name, **entry} for name, entry in {**plain, **relative}.items()}


def app_at(clock: FakeClock, **settings: Any) -> Clocked:
    app = Clocked("project", set_as_current=False)
    app.clock = clock
    app.conf.update(**{"beat_schedule": entries(), "result_expires": None, **settings})
    return app


TOKYO, BERLIN = ZoneInfo("Asia/Tokyo"), ZoneInfo("Europe/Berlin")
CLOCKS: dict[str, Callable[[datetime], datetime]] = {
    "naive-tokyo": lambda now: now.astimezone(TOKYO).replace(tzinfo=None),
    "naive-berlin": lambda now: now.astimezone(BERLIN).replace(tzinfo=None),
    "naive-utc": lambda now: now.replace(tzinfo=None),
    "hours-ahead": lambda now: now + timedelta(hours=3, minutes=7),
    "hours-behind": lambda now: now.astimezone(BERLIN) - timedelta(hours=5),
    "seconds-ahead": lambda now: now + timedelta(seconds=90),
}


def asking(kind: str, clock: FakeClock) -> dict[str, Any]:
    """Entries whose ``nowfun`` is that clock: local time without a zone, or one that is wrong."""

    def now() -> datetime:
        return CLOCKS[kind](clock.now())

    made = {
        "hourly": crontab(minute=0, nowfun=now),
        "nine": crontab(minute=30, hour=9, nowfun=now),
        "interval": schedule(timedelta(minutes=11), nowfun=now),
        "relative": schedule(timedelta(hours=2), relative=True, nowfun=now),
    }
    return {name: {"task": name, "schedule": value} for name, value in made.items()}


class ForgetfulStockBeat(beat.Scheduler):  # type: ignore[misc]
    """Celery's scheduler without its file."""

    producer = None

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_: Any) -> None:
        StockBeat.sent.append((entry.name, self.app.now().astimezone(UTC)))


class StockBeat(beat.PersistentScheduler):  # type: ignore[misc]
    """Celery's scheduler; what it would send is noted."""

    producer = None
    sent: Sent

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **_: Any) -> None:
        self.sent.append((entry.name, self.app.now().astimezone(UTC)))


Changes = dict[timedelta, Callable[[Any], object]]


def drive(
    scheduler: Any,
    clock: FakeClock,
    duration: timedelta,
    count: Callable[[], int],
    changes: Changes | None = None,
) -> None:
    """Tick as Celery's service does, without the sleep; no time passes while there is more to send.
    ``changes`` are made to the scheduler at the first tick after their time."""
    begin = clock.now()
    end, waiting = begin + duration, dict(changes or {})
    while clock.now() < end:
        for after in [after for after in waiting if clock.now() >= begin + after]:
            waiting.pop(after)(scheduler)
        before = count()
        wait = scheduler.tick()
        if count() > before and not wait:
            continue
        left = (end - clock.now()).total_seconds()
        clock.advance(milliseconds=round(1000 * min(max(wait or 0.0, STEP), max(left, STEP))))
    scheduler.close()


@contextmanager
def current(app: Celery) -> Iterator[None]:
    before = _state._tls.current_app
    app.set_current()
    try:
        yield
    finally:
        _state._tls.current_app = before


Maker = Callable[[FakeClock], dict[str, Any]]


def stock(
    folder: Path | None,
    start: str,
    phases: list[timedelta],
    make: Maker = lambda _: entries(),
    changes: Changes | None = None,
    **settings: Any,
) -> Sent:
    clock, sent = FakeClock(start), Sent()
    for number, duration in enumerate(phases):
        clock.advance(seconds=OUTAGE.total_seconds() if number else 0)
        app = app_at(clock, broker_url="memory://", beat_schedule=make(clock), **settings)
        StockBeat.sent = sent
        # What it reads back from its file asks the current app for the time.
        with current(app):
            scheduler = (
                StockBeat(app=app, schedule_filename=str(folder / "schedule"))
                if folder
                else ForgetfulStockBeat(app=app)
            )
            drive(scheduler, clock, duration, lambda: len(sent), changes)
    return sent


def ours(
    url: str,
    start: str,
    phases: list[timedelta],
    make: Maker = lambda _: entries(),
    changes: Changes | None = None,
    **settings: Any,
) -> Sent:
    clock, sent = FakeClock(start), Sent()
    client: redis.Redis = redis.Redis.from_url(url)

    def collect() -> int:
        while (text := client.rpop("celery")) is not None:
            message = json.loads(text)
            assert json.loads(b64decode(message["body"]))[:2] == [[], {}]
            sent.append((message["headers"]["task"], clock.now()))
        return len(sent)

    class Clockwork(Scheduler):
        pass

    Clockwork.clock = clock  # type: ignore[misc]
    # It need not look more often than Celery's does, with a lease to match.
    patient = {"catchup_poll_interval": "5m", "catchup_lease_ttl": "1h"}
    for number, duration in enumerate(phases):
        clock.advance(seconds=OUTAGE.total_seconds() if number else 0)
        app = app_at(clock, broker_url=url, beat_schedule=make(clock), **patient, **settings)
        drive(Clockwork(app=app), clock, duration, collect, changes)
    client.close()
    return sent


@pytest.mark.skipif(
    tuple(int(part) for part in celery.__version__.split(".")[:2]) < (5, 7),
    reason="before Celery 5.7 an entry asked too early keeps the others of stock beat waiting",
)
@pytest.mark.parametrize(
    ("start", "settings"),
    [
        ("2026-02-26T22:17:30Z", {}),
        ("2026-03-28T21:05:00Z", {"timezone": "Europe/Berlin"}),
        ("2026-10-24T21:05:00Z", {"timezone": "Europe/Berlin"}),
        ("2026-06-30T12:47:00Z", {"beat_cron_starting_deadline": 600}),
    ],
    ids=["utc", "spring", "autumn", "starting-deadline"],
)
def test_both_send_the_same_at_the_same_times(
    tmp_path: Path, redis_url: str, start: str, settings: dict[str, Any]
) -> None:
    phases = [timedelta(hours=26), timedelta(hours=11)]

    theirs = stock(tmp_path, start, phases, **settings)
    mine = ours(redis_url, start, phases, **settings)

    check_same(mine, theirs)
    assert len(theirs) > 500
    back = datetime.fromisoformat(start) + phases[0] + OUTAGE
    late = {name for name, time in theirs if timedelta() <= time - back < timedelta(seconds=1)}
    assert ("hourly" in late) is ("beat_cron_starting_deadline" not in settings)


@pytest.mark.skipif(
    tuple(int(part) for part in celery.__version__.split(".")[:2]) < (5, 7),
    reason="before Celery 5.7 an entry asked too early keeps the others of stock beat waiting",
)
@pytest.mark.parametrize("timezone", ["UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("kind", CLOCKS)
def test_entries_with_a_clock_of_their_own_are_asked_as_celery_asks_them(
    redis_url: str, kind: str, timezone: str
) -> None:
    """Without a restart: Celery's file does not keep a ``nowfun``."""
    start, phases, make = "2026-06-30T12:47:00Z", [timedelta(hours=26)], partial(asking, kind)

    theirs = stock(None, start, phases, make, timezone=timezone)
    mine = ours(redis_url, start, phases, make, timezone=timezone)

    check_same(mine, theirs)
    assert Counter(name for name, _ in theirs)["hourly"] == 26


@pytest.mark.parametrize("kind", ["hours-ahead", "hours-behind"])
def test_an_entry_whose_clock_is_wrong_and_the_others_do_not_wait_for_each_other(
    redis_url: str, kind: str
) -> None:
    """A difference: Celery sorts its entries by each one's own clock, and asks only the first."""

    def make(clock: FakeClock) -> dict[str, Any]:
        wrong = schedule(timedelta(hours=4), nowfun=lambda: CLOCKS[kind](clock.now()))
        right = crontab(minute="*/20")
        return {"wrong": {"task": "wrong", "schedule": wrong}, "right": {"task": "right", "schedule": right}}

    start, phases = "2026-06-30T12:47:00Z", [timedelta(hours=13)]

    theirs = Counter(name for name, _ in stock(None, start, phases, make))
    mine = Counter(name for name, _ in ours(redis_url, start, phases, make))

    assert mine == {"wrong": 3, "right": 39}
    assert theirs["wrong"] < 3 or theirs["right"] < 39


@pytest.mark.skipif(
    tuple(int(part) for part in celery.__version__.split(".")[:2]) < (5, 7),
    reason="before Celery 5.7 an entry asked too early keeps the others of stock beat waiting",
)
@pytest.mark.parametrize("seed", range(2))
def test_entries_that_change_at_run_time_are_sent_as_celery_sends_them(redis_url: str, seed: int) -> None:
    start, phases = "2026-06-30T12:47:00Z", [timedelta(hours=26)]
    # Both wake up at least every five minutes, and see a change at that.
    at = [timedelta(minutes=5 * n) for n in sorted(random.Random(seed).sample(range(1, 300), 8))]

    theirs = stock(None, start, phases, changes=random_changes(seed, at))
    mine = ours(redis_url, start, phases, changes=random_changes(seed, at))

    counted, expected = (Counter(name for name, _ in sent) for sent in (mine, theirs))
    # The tick that sees a change may come up to five minutes later with one of them.
    assert counted.keys() == expected.keys()
    assert {name: (counted[name], n) for name, n in expected.items() if abs(counted[name] - n) > 1} == {}
    assert any(name.startswith("new-") for name in expected)


def random_changes(seed: int, at: list[timedelta]) -> Changes:
    """Entries that are added, replaced and taken away; the same for every scheduler."""
    chosen = random.Random(seed)
    names, made = sorted(entries()), dict[timedelta, Callable[[Any], object]]()
    for number, after in enumerate(at):
        minutes, taken = chosen.randint(7, 90), chosen.choice(names)
        new = {"task": f"new-{number}", "schedule": timedelta(minutes=minutes)}
        changes: list[Callable[[Any], object]] = [
            lambda beat, new=new, n=number: beat.add(name=f"new-{n}", **new),  # type: ignore[misc]
            lambda beat, new=new, n=number: beat.update_from_dict({f"new-{n}": new}),  # type: ignore[misc]
            lambda beat, taken=taken: beat.schedule.pop(taken, None),  # type: ignore[misc]
        ]
        made[after] = changes[number % 3]
    return made


@pytest.mark.parametrize("kind", CLOCKS)
def test_a_restart_with_a_clock_of_its_own_makes_one_late_run(redis_url: str, kind: str) -> None:
    sent = ours(redis_url, "2026-06-30T12:47:00Z", [timedelta(hours=5)] * 2, partial(asking, kind))

    assert Counter(name for name, _ in sent)["hourly"] == 5 + 1 + 5


def check_same(mine: Sent, theirs: Sent) -> None:
    """The same entries as often, and each time at the same time."""
    assert Counter(name for name, _ in mine) == Counter(name for name, _ in theirs)
    pairs = zip(sorted(mine), sorted(theirs), strict=True)
    assert [(one, other) for one, other in pairs if abs(one[1] - other[1]) > TOLERANCE] == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("timezone", ["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
def test_both_send_the_same_for_weeks(tmp_path: Path, redis_url: str, timezone: str) -> None:
    phases = [timedelta(days=6, hours=5)] * 3

    for month in (3, 10):
        redis.Redis.from_url(redis_url).flushall()
        for file in tmp_path.iterdir():
            file.unlink()
        start = f"2026-{month:02}-15T03:03:03Z"
        theirs = stock(tmp_path, start, phases, timezone=timezone)
        mine = ours(redis_url, start, phases, timezone=timezone)
        check_same(mine, theirs)
