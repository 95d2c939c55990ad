"""Entries without a policy: what Celery's own tests ask of a scheduler, and what it does not promise."""

from __future__ import annotations

import contextlib
import json
import logging
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from celery import Celery
from celery.schedules import crontab, schedule

from celery_catchup.beat import config_cache
from celery_catchup.beat.catchup_entry import CatchupEntry
from celery_catchup.beat.resolved_entries import resolve_entries
from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.beat.unmanaged import UnmanagedEntries
from celery_catchup.dispatch import DispatchError
from celery_catchup.engine import Failures
from celery_catchup.events.log_lines import process_events
from celery_catchup.model import Instant, to_datetime, to_instant
from celery_catchup.store import Batch, Keys, Ledger, UnmanagedBatch
from celery_catchup.store.store import read_span
from celery_catchup.testing import FakeClock
from tests.services import private_server

START = "2026-02-07T11:59:58Z"
NOON = to_instant(datetime.fromisoformat("2026-02-07T12:00:00Z"))
KEYS = Keys("project")


class Clocked(Celery):
    """An app whose time is the test's, and runs ahead a little whenever it is asked."""

    clock: FakeClock
    ahead = timedelta()

    def now(self) -> datetime:
        return self.clock.now() + self.ahead


class Answers(schedule):
    """A schedule that answers what it is told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__(timedelta(seconds=1))
        self.answer = answer

    def is_due(self, last_run_at: datetime) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def app(clock: FakeClock) -> Clocked:
    made = Clocked("project", set_as_current=False)
    made.clock = clock
    return made


# -- the entries by themselves -----------------------------------------------------------------


class Sending:
    """Stands in for the broker and the store."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Instant]] = []
        self.committed: list[UnmanagedBatch] = []
        self.errors: dict[str, Exception] = {}
        self.failure: Exception | None = None
        self.leads = True

    def unmanaged_messages(self, entry: Any, *, slot: Instant, now: Instant) -> tuple[str, int, list[str]]:
        if entry.name in self.errors:
            raise self.errors[entry.name]
        self.made.append((entry.name, slot))
        return "celery", 0, ["message"]

    def commit(self, batches: list[UnmanagedBatch]) -> bool:
        if self.failure is not None:
            raise self.failure
        if self.leads:
            self.committed += batches
        return self.leads

    @property
    def names(self) -> list[str]:
        return [batch.name for batch in self.committed]


def unmanaged(entries: dict[str, Any]) -> UnmanagedEntries:
    return UnmanagedEntries(entries, 300, Failures(process_events()), lambda: 0.0)


class Beat:
    """Plain entries under a clock, and what they send."""

    def __init__(self, app: Clocked, **schedules: Any) -> None:
        self.clock, self.sending = app.clock, Sending()
        made = {
            name: CatchupEntry(name=name, task="task", schedule=value, app=app)
            for name, value in schedules.items()
        }
        self.entries = unmanaged(made)
        self.entries.mark_stored(self.entries.load({}, self.now()))

    def now(self) -> Instant:
        return to_instant(self.clock.now())

    def tick(self, *, limit: int = 500) -> None:
        self.entries.send_due(self.now(), self.sending.unmanaged_messages, self.sending.commit, limit=limit)

    def run_for(self, **duration: float) -> None:
        """From wake-up to wake-up."""
        end = self.now() + timedelta(**duration) // timedelta(milliseconds=1)
        while self.now() < end:
            self.tick()
            wake = min(self.entries.next_wake() or end, end)
            self.clock.advance(milliseconds=max(1, wake - self.now()))


def test_an_entry_is_sent_when_it_is_due_and_not_before(app: Clocked) -> None:
    beat = Beat(app, ticking=10.0)

    beat.run_for(seconds=9.9)
    early = list(beat.sending.names)
    beat.run_for(seconds=0.2)

    assert (early, beat.sending.names) == ([], ["ticking"])


def test_the_number_of_runs_and_the_time_of_the_last_are_noted(app: Clocked) -> None:
    beat = Beat(app, ticking=10.0)

    beat.run_for(seconds=31)

    start = to_instant(datetime.fromisoformat(START))
    assert [batch.value for batch in beat.sending.committed] == [
        f"{start + 10_000 * n} {n}" for n in (1, 2, 3)
    ]
    assert beat.entries.entries["ticking"].total_run_count == 3
    assert beat.entries.entries["ticking"].last_run_at == to_datetime(start + 30_000)


@pytest.mark.parametrize(
    "answer",
    [ZeroDivisionError("a bug"), None, "soon", (), (True,), 5],
    ids=["raises", "none", "text", "empty", "short", "number"],
)
def test_a_schedule_that_fails_stops_no_other_entry(
    app: Clocked, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    beat = Beat(app, broken=Answers(answer), ticking=10.0)

    beat.run_for(seconds=31)

    assert beat.sending.names == ["ticking"] * 3
    said = [record for record in caplog.records if "Entry cannot be asked" in record.message]
    assert len(said) == 1
    assert "entry=broken" in said[0].message


def test_a_schedule_that_failed_is_asked_again_later(app: Clocked) -> None:
    broken = Answers(ZeroDivisionError("a bug"))
    beat = Beat(app, broken=broken)
    beat.tick()

    broken.answer = (True, 10_000)
    beat.run_for(seconds=301)

    assert beat.sending.names == ["broken"]


@pytest.mark.parametrize("wait", [None, "soon", 1e9, float("inf")])
def test_a_wait_that_is_none_or_too_long_is_the_longest_one(app: Clocked, wait: Any) -> None:
    asked = Answers((False, wait))
    beat = Beat(app, asked=asked)

    beat.tick()

    assert beat.entries.next_wake() == beat.now() + 300_000


@pytest.mark.parametrize("wait", [0, -5, 0.0001])
def test_a_schedule_that_wants_to_be_asked_at_once_does_not_hang_the_tick(app: Clocked, wait: float) -> None:
    beat = Beat(app, impatient=Answers((False, wait)), ticking=10.0)

    beat.tick()

    assert beat.entries.next_wake() == beat.now() + 1


def test_an_entry_that_is_always_due_is_sent_once_a_tick(app: Clocked) -> None:
    beat = Beat(app, always=Answers((True, 0)))

    beat.tick()

    assert beat.sending.names == ["always"]


def test_what_is_due_beyond_the_limit_comes_in_the_next_tick(app: Clocked) -> None:
    beat = Beat(app, **{f"entry-{n}": 1.0 for n in range(5)})
    beat.clock.advance(seconds=1)

    beat.tick(limit=2)
    first = len(beat.sending.names)
    beat.tick(limit=2)
    beat.tick(limit=2)

    assert first == 2
    assert sorted(beat.sending.names) == [f"entry-{n}" for n in range(5)]


# -- when it cannot be sent --------------------------------------------------------------------


def test_an_entry_whose_state_cannot_be_stored_stays_due(app: Clocked) -> None:
    beat = Beat(app, one=10.0, other=10.0)
    beat.clock.advance(seconds=10)

    beat.sending.failure = redis.ConnectionError("away")
    with pytest.raises(redis.ConnectionError):
        beat.tick()
    beat.sending.failure = None
    beat.clock.advance(seconds=5)
    beat.tick()

    assert sorted(beat.sending.names) == ["one", "other"]


def test_an_entry_of_a_beat_that_leads_no_more_is_not_counted(app: Clocked) -> None:
    beat = Beat(app, ticking=10.0)
    beat.clock.advance(seconds=10)

    beat.sending.leads = False
    beat.tick()

    assert beat.entries.entries["ticking"].total_run_count == 0
    assert beat.entries.next_wake() == beat.now()


def test_a_broker_that_is_away_is_tried_by_one_entry_and_all_stay_due(
    app: Clocked, caplog: pytest.LogCaptureFixture
) -> None:
    beat = Beat(app, a=10.0, b=10.0, c=10.0)
    beat.clock.advance(seconds=10)

    beat.sending.errors = {"b": DispatchError("unreachable", "away"), "c": AssertionError("not asked")}
    with pytest.raises(DispatchError, match="away"):
        beat.tick()
    sent_before = list(beat.sending.names)
    beat.sending.errors = {}
    beat.tick()

    # What went out before the broker failed is noted, or it would go out again.
    assert sent_before == ["a"]
    assert beat.sending.names == ["a", "b", "c"]
    assert not caplog.records


def test_an_entry_that_can_never_be_sent_delays_no_other(
    app: Clocked, caplog: pytest.LogCaptureFixture
) -> None:
    beat = Beat(app, bad=10.0, good=10.0)
    beat.sending.errors = {"bad": DispatchError("invalid", "its arguments cannot be sent")}

    beat.run_for(seconds=11)

    assert beat.sending.names == ["good"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "its arguments cannot be sent" in caplog.text


def test_an_entry_that_can_never_be_sent_does_not_fill_the_log(
    app: Clocked, caplog: pytest.LogCaptureFixture
) -> None:
    beat = Beat(app, bad=10.0)
    beat.sending.errors = {"bad": DispatchError("invalid", "its arguments cannot be sent")}

    beat.run_for(hours=1)

    assert len(caplog.records) <= 100


# -- two clocks: the tick's, and the one that the schedule looks at ------------------------------


@pytest.mark.parametrize("written", [crontab(minute=0), "0 * * * *", ["0 * * * *"], {"start": "0 * * * *"}])
def test_a_slot_that_begins_during_the_tick_is_noted_as_done(app: Clocked, written: Any) -> None:
    beat = Beat(app, hourly=written)
    beat.tick()
    # The tick begins a little before the slot, and the schedule is asked a little after it.
    beat.clock.set("2026-02-07T11:59:59.997Z")
    app.ahead = timedelta(milliseconds=5)
    beat.entries._checks = [(beat.now(), "hourly")]

    beat.tick()

    assert beat.sending.made == [("hourly", NOON)]
    (batch,) = beat.sending.committed
    assert int(batch.value.split()[0]) >= NOON


@pytest.mark.parametrize(
    ("written", "relative", "slot"),
    [
        (timedelta(seconds=30), False, "2026-02-07T12:00:28Z"),
        (timedelta(minutes=2), True, "2026-02-07T12:01:00Z"),
        (timedelta(hours=1), True, "2026-02-07T12:00:00Z"),
        (crontab(minute="*/15"), False, "2026-02-07T12:45:00Z"),
        ("*/15 * * * *", False, "2026-02-07T12:45:00Z"),
    ],
    ids=["interval", "relative-minutes", "relative-hours", "crontab", "cron-string"],
)
def test_a_late_run_gets_the_time_it_was_due_or_the_newest_slot_of_a_cron_table(
    app: Clocked, written: Any, relative: bool, slot: str
) -> None:
    beat = Beat(app)
    entry = CatchupEntry(name="late", task="task", schedule=written, relative=relative, app=app)
    beat.entries = unmanaged({"late": entry})
    beat.entries.load({}, beat.now())
    app.ahead = timedelta(microseconds=300)

    beat.clock.advance(minutes=50)
    beat.tick()

    assert beat.sending.made == [("late", to_instant(datetime.fromisoformat(slot)))]


# -- kept in Redis -----------------------------------------------------------------------------


class Place:
    """A scheduler on a real server, started again as often as the test likes."""

    def __init__(self, app: Clocked, url: str) -> None:
        self.app, self.redis = app, redis.Redis.from_url(url, decode_responses=True)
        app.conf.update(broker_url=url, result_expires=None, task_send_sent_event=False)
        self.scheduler: Scheduler | None = None

    def start(self, **schedule: Any) -> Scheduler:
        self.stop()
        self.app.conf.beat_schedule = {
            name: {"task": name, **(entry if isinstance(entry, dict) else {"schedule": entry})}
            for name, entry in schedule.items()
        }
        kind = type("Clockwork", (Scheduler,), {"clock": self.app.clock})
        self.scheduler = kind(app=self.app)
        self.scheduler.tick()
        return self.scheduler

    def stop(self) -> None:
        if self.scheduler is not None:
            self.scheduler.close()
            self.scheduler = None

    def run_for(self, *, seconds: int) -> None:
        assert self.scheduler is not None
        for _ in range(seconds):
            self.app.clock.advance(seconds=1)
            self.scheduler.tick()

    def sent(self) -> list[tuple[str, list[Any]]]:
        raw: Any = self.redis.lrange("celery", 0, -1)
        messages = [json.loads(text) for text in reversed(raw)]
        return [(m["headers"]["task"], json.loads(b64decode(m["body"]))[0]) for m in messages]

    def known(self, name: str) -> str | None:
        found: Any = self.redis.hget(KEYS.last_runs, name)
        return found


@pytest.fixture
def place(app: Clocked, redis_url: str) -> Iterator[Place]:
    made = Place(app, redis_url)
    yield made
    made.stop()
    made.redis.close()


def test_a_restart_keeps_when_and_how_often_an_entry_ran(place: Place) -> None:
    place.start(ticking=10.0)
    place.run_for(seconds=21)
    before = place.known("ticking")

    scheduler = place.start(ticking=10.0)

    entry = scheduler.schedule["ticking"]
    assert before is not None
    assert before.split()[1] == "2"
    assert (to_instant(entry.last_run_at), entry.total_run_count) == tuple(map(int, before.split()))


def test_a_changed_entry_keeps_its_past_and_takes_its_new_schedule_and_arguments(place: Place) -> None:
    place.start(ticking={"schedule": 10.0, "args": ["old"]})
    place.run_for(seconds=11)

    place.start(ticking={"schedule": 5.0, "args": ["new"]})
    place.run_for(seconds=5)

    assert place.sent() == [("ticking", ["old"]), ("ticking", ["new"])]
    assert (place.known("ticking") or "").split()[1] == "2"


def test_a_new_entry_starts_now_and_runs_when_its_time_has_passed(place: Place) -> None:
    place.start(old=3600.0)
    place.run_for(seconds=5)

    place.start(old=3600.0, new=10.0)
    place.run_for(seconds=9)
    early = place.sent()
    place.run_for(seconds=2)

    assert (early, place.sent()) == ([], [("new", [])])


def test_a_removed_entry_is_not_sent_any_more(place: Place) -> None:
    place.start(stays=10.0, goes=10.0)
    place.run_for(seconds=11)

    place.start(stays=10.0)
    place.run_for(seconds=20)

    assert [name for name, _ in place.sent()].count("goes") == 1


def test_an_entry_that_was_late_runs_once_after_a_restart(place: Place, clock: FakeClock) -> None:
    place.start(hourly=crontab(minute=0), ticking=10.0)
    place.stop()
    clock.advance(hours=3)

    place.start(hourly=crontab(minute=0), ticking=10.0)

    assert sorted(place.sent()) == [("hourly", []), ("ticking", [])]


def test_what_was_sent_is_not_sent_again_by_the_next_beat(place: Place, clock: FakeClock) -> None:
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)

    assert place.sent() == [("hourly", [])]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_lost_reply_sends_nothing_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch, *, atomic: bool
) -> None:
    with contextlib.nullcontext() if atomic else private_server() as server:
        if server is not None:
            place.app.conf.catchup_redis_url = server.url()
        place.start(hourly=crontab(minute=0), ticking=schedule(timedelta(seconds=60)))
        commit = Ledger.commit
        lost: list[Batch] = []

        def lossy(self: Ledger, leadership: Any, batch: Batch, *, now: Instant) -> Any:
            answer = commit(self, leadership, batch, now=now)
            lost.append(batch)
            if len(lost) % 2:
                raise redis.exceptions.TimeoutError("Timeout reading from socket")
            return answer

        monkeypatch.setattr(Ledger, "commit", lossy)
        place.run_for(seconds=150)
        place.stop()

    assert len(lost) >= 3
    assert sorted(place.sent()) == [("hourly", []), ("ticking", []), ("ticking", [])]


def test_an_entry_may_get_a_policy_later_and_lose_it_again(place: Place, clock: FakeClock) -> None:
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)
    place.start(hourly={"schedule": crontab(minute=0), "catchup": {"window": "6h"}})
    place.run_for(seconds=5)
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)

    assert place.sent() == [("hourly", [])]


def test_an_entry_that_loses_its_policy_does_not_run_again_what_ran_under_it(
    place: Place, clock: FakeClock
) -> None:
    policy = {"window": "6h", "overlap_policy": "allow"}
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)
    place.start(hourly={"schedule": crontab(minute=0), "catchup": policy})
    for _ in range(2):
        clock.advance(minutes=59, seconds=55)
        place.run_for(seconds=10)
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)

    assert place.sent() == [("hourly", [])] * 3


# -- the scheduler as an object ------------------------------------------------------------------


def test_a_lazy_scheduler_asks_nothing_of_anybody(app: Clocked) -> None:
    app.conf.update(
        broker_url="redis://127.0.0.1:1/0", beat_schedule={"a": {"task": "a", "schedule": "0 * * * *"}}
    )

    scheduler = Scheduler(app=app, lazy=True)

    assert list(scheduler.schedule) == ["a"]
    assert scheduler.info == "    . store -> redis://127.0.0.1:1/0"
    scheduler.close()


@pytest.fixture
def looked(app: Clocked, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows each time the entries of the app are looked at."""
    times: list[int] = []
    monkeypatch.setattr(
        config_cache, "resolve_entries", lambda *args, **kw: times.append(1) or resolve_entries(*args, **kw)
    )
    app.conf.update(
        broker_url="redis://127.0.0.1:1/0", beat_schedule={"a": {"task": "a", "schedule": "0 * * * *"}}
    )
    return times


def test_the_configuration_parsed_for_the_banner_is_reused_once(app: Clocked, looked: list[int]) -> None:
    Scheduler(app=app, lazy=True).close()
    Scheduler(app=app).close()
    assert len(looked) == 1
    Scheduler(app=app).close()
    assert len(looked) == 2  # kept for one that follows, and no longer


@pytest.mark.parametrize(
    "change",
    [
        {"beat_schedule": {"a": {"task": "a", "schedule": "5 * * * *"}}},
        {"beat_schedule": {"a": {"task": "b", "schedule": "0 * * * *"}}},
        {"beat_schedule": {"a": {"task": "a", "schedule": "0 * * * *", "options": {"priority": 3}}}},
        {"catchup_entries": {"*": {"window": "6h"}}},
        {"timezone": "Europe/Vienna"},
    ],
    ids=["schedule", "task", "options", "policy", "zone"],
)
def test_what_changes_after_the_banner_is_looked_at(
    app: Clocked, looked: list[int], change: dict[str, Any]
) -> None:
    Scheduler(app=app, lazy=True).close()
    vars(app).pop("timezone", None)  # Celery's app remembers it
    app.conf.update(change)
    Scheduler(app=app).close()

    assert len(looked) == 2


def test_a_scheduler_can_be_closed_before_its_first_tick_and_twice(app: Clocked) -> None:
    app.conf.update(broker_url="redis://127.0.0.1:1/0", result_expires=None)
    scheduler = Scheduler(app=app)

    scheduler.close()
    scheduler.close()


def test_a_scheduler_waits_for_a_server_that_does_not_answer(
    app: Clocked, caplog: pytest.LogCaptureFixture
) -> None:
    app.conf.update(broker_url="redis://127.0.0.1:1/0", result_expires=None)
    scheduler = Scheduler(app=app)

    with caplog.at_level(logging.ERROR):
        waits = [scheduler.tick() for _ in range(3)]
    scheduler.close()

    assert 0.5 < waits[0] < waits[1] < waits[2] < 7
    assert len(caplog.records) == 1


def test_a_beat_without_entries_sleeps_for_a_quarter_of_its_lease(place: Place) -> None:
    scheduler = place.start()

    assert scheduler.tick() == 0.5


def test_the_next_instance_of_an_entry_keeps_its_policy(app: Clocked) -> None:
    entry = CatchupEntry(name="a", task="a", schedule="0 * * * *", catchup="6h", app=app)

    following = next(entry)

    assert (following.catchup, following.total_run_count) == ("6h", 1)
    assert following == entry


@pytest.mark.parametrize(
    "make",
    [
        lambda app: CatchupEntry(
            name="a", task="a", schedule="0 * * * *", options={"catchup": "6h"}, app=app
        ),
        lambda app: CatchupEntry(name="a", task="a", schedule="0 * * * *", catchup="6h", app=app),
    ],
    ids=["periodic-task", "beat-schedule"],
)
def test_a_policy_on_an_entry_is_no_option_of_its_messages(
    app: Clocked, make: Callable[[Clocked], CatchupEntry]
) -> None:
    entry = make(app)

    assert (entry.catchup, entry.options) == ("6h", {})


# -- tasks that send in their own way ------------------------------------------------------------


class AlreadyQueued(Exception):  # noqa: N818 - celery-once's name
    """As celery-once says that the task is queued already."""


def own_tasks(app: Celery) -> None:
    """Tasks of the kinds that projects and libraries write, named after what they do."""

    class Silent(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> None:
            super().apply_async(args, kwargs, **options)

    class OwnId(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            return super().apply_async(args, kwargs, **{**options, "task_id": "today"})

    class PerTenant(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            options.pop("task_id", None)
            return [
                super(PerTenant, self).apply_async([tenant], kwargs, **options) for tenant in ("eu", "us")
            ]

    class ForgetsOptions(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> None:
            super().apply_async(args, kwargs)

    class Once(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, *args: Any, **options: Any) -> Any:
            raise AlreadyQueued

    class Singleton(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, *args: Any, **options: Any) -> Any:
            return app.AsyncResult("another-id")

    def nothing(*_: Any) -> None:
        pass

    bases = {
        "silent": Silent,
        "own-id": OwnId,
        "per-tenant": PerTenant,
        "forgets-options": ForgetsOptions,
        "once": Once,
        "singleton": Singleton,
    }
    for name, base in bases.items():
        app.task(nothing, name=name, shared=False, base=base)


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(
    ("task", "messages"),
    [
        ("silent", [("silent", [])]),
        ("own-id", [("own-id", [])]),
        ("per-tenant", [("per-tenant", ["eu"]), ("per-tenant", ["us"])]),
        ("forgets-options", [("forgets-options", [])]),
    ],
)
def test_a_task_that_sends_in_its_own_way_is_sent_as_celery_sends_it(
    place: Place, caplog: pytest.LogCaptureFixture, task: str, messages: list[Any], *, atomic: bool
) -> None:
    own_tasks(place.app)
    with contextlib.nullcontext() if atomic else private_server() as server:
        if server is not None:
            place.app.conf.catchup_redis_url = server.url()
        place.start(**{task: 10.0})
        place.run_for(seconds=21)
        place.stop()

    assert place.sent() == messages * 2
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_messages_under_an_id_of_their_own_have_delivery_tags_of_their_own(place: Place) -> None:
    own_tasks(place.app)
    place.start(**{"own-id": 10.0})
    place.run_for(seconds=21)

    raw: Any = place.redis.lrange("celery", 0, -1)
    messages = [json.loads(text) for text in raw]
    assert [message["headers"]["id"] for message in messages] == ["today"] * 2
    assert [message["properties"]["correlation_id"] for message in messages] == ["today"] * 2
    assert len({message["properties"]["delivery_tag"] for message in messages}) == 2
    assert [message["headers"]["trigger_type"] for message in messages] == ["scheduler"] * 2


@pytest.mark.parametrize("task", ["once", "singleton"])
def test_a_slot_that_the_tasks_own_guard_keeps_back_is_dropped_at_once(
    place: Place, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    caplog.set_level(logging.INFO)
    own_tasks(place.app)
    place.start(**{task: 10.0})
    place.run_for(seconds=21)

    assert place.sent() == []
    assert (place.known(task) or "").split()[1] == "2"
    said = [record for record in caplog.records if "guard_blocked" in record.message]
    assert [record.levelname for record in said] == ["INFO"] * 2
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize(
    ("task", "messages", "reason"),
    [
        ("per-tenant", [("per-tenant", ["eu"]), ("per-tenant", ["us"])], "not_followed"),
        ("forgets-options", [("forgets-options", [])], "not_followed"),
        ("once", [], "guard_blocked"),
        ("singleton", [], "guard_blocked"),
    ],
)
def test_a_run_with_a_policy_that_cannot_be_followed_is_sent_and_on_record(
    place: Place,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    task: str,
    messages: list[Any],
    reason: str,
    *,
    atomic: bool,
) -> None:
    own_tasks(place.app)
    entry = {"schedule": crontab(minute=0), "catchup": {"window": "6h", "overlap_policy": "all"}}
    with contextlib.nullcontext() if atomic else private_server() as server:
        if server is not None:
            place.app.conf.catchup_redis_url = server.url()
        state = place.redis if server is None else redis.Redis.from_url(server.url(), decode_responses=True)
        place.start(**{task: entry})
        place.run_for(seconds=5)
        clock.advance(hours=1)
        place.run_for(seconds=5)
        place.stop()
        skips: Any = state.zrange(KEYS.skips(task), 0, -1)

    assert place.sent() == messages * 2
    assert [(s["reason"], s["count"]) for s in map(read_span, skips)] == [(reason, 2)]
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("task", ["silent", "own-id"])
def test_a_run_with_a_policy_is_followed_under_its_own_id_whatever_its_task_returns(
    place: Place, task: str
) -> None:
    own_tasks(place.app)
    place.start(**{task: {"schedule": crontab(minute=0), "catchup": {"window": "6h"}}})
    place.run_for(seconds=5)

    (raw,) = place.redis.lrange("celery", 0, -1)  # type: ignore[misc]
    message = json.loads(raw)
    headers = message["headers"]
    assert headers["id"] == headers["catchup_run_id"] == message["properties"]["correlation_id"]
    assert place.redis.hexists(KEYS.ledger, headers["id"])


# -- what Celery accepts -------------------------------------------------------------------------


def test_an_entry_may_fix_the_id_of_its_task(place: Place) -> None:
    place.start(fixed={"schedule": 10.0, "options": {"task_id": "fixed-id"}})
    place.run_for(seconds=21)

    raw: Any = place.redis.lrange("celery", 0, -1)
    assert [json.loads(text)["headers"]["id"] for text in raw] == ["fixed-id"] * 2


def test_protocol_1_is_sent_as_celery_builds_it(place: Place) -> None:
    place.app.conf.task_protocol = 1
    place.start(old=10.0)
    place.run_for(seconds=11)

    raw: Any = place.redis.lrange("celery", 0, -1)
    bodies = [json.loads(b64decode(json.loads(text)["body"])) for text in raw]
    assert [body["task"] for body in bodies] == ["old"]


def test_eager_tasks_run_inside_beat_as_under_celerys_own(place: Place) -> None:
    ran: list[str] = []

    def note() -> None:
        ran.append("here")

    place.app.task(note, name="eager", shared=False)
    place.app.conf.task_always_eager = True
    place.start(eager=10.0)
    place.run_for(seconds=21)

    assert ran == ["here"] * 2
    assert place.sent() == []
    assert (place.known("eager") or "").split()[1] == "2"


# -- from when on an entry counts ----------------------------------------------------------------


def test_an_entry_that_was_removed_and_comes_back_runs_at_its_next_slot(
    place: Place, clock: FakeClock
) -> None:
    place.start(hourly=crontab(minute=0), stays=3600.0)
    place.run_for(seconds=5)
    place.start(stays=3600.0)
    clock.advance(hours=3)

    place.start(hourly=crontab(minute=0), stays=3600.0)
    place.run_for(seconds=5)
    before = [name for name, _ in place.sent()]
    clock.advance(hours=1)
    place.run_for(seconds=5)

    assert before.count("hourly") == 1
    assert [name for name, _ in place.sent()].count("hourly") == 2


def test_what_is_known_of_removed_entries_has_an_end(place: Place, clock: FakeClock) -> None:
    place.app.conf.update(catchup_ledger_ttl="30d")
    place.start(goes=10.0, stays=10.0)
    place.start(stays=10.0)
    removed: Any = place.redis.hgetall(KEYS.last_runs)
    assert removed["goes"].endswith(" removed")

    assert place.scheduler is not None
    engine = place.scheduler._work.engine  # type: ignore[union-attr]
    began = engine.server_ms
    for day in (1, 40):
        for step in range(100):
            engine.housekeeping.step(began + day * 86_400_000 + step, 0, entries=[])

    assert list(place.redis.hgetall(KEYS.last_runs)) == ["stays"]  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"timezone": "Asia/Tokyo"}, {"enable_utc": False, "timezone": "UTC"}])
def test_another_zone_lets_entries_count_from_now_as_celery_resets_its_file(
    place: Place, clock: FakeClock, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    place.start(hourly=crontab(minute=0))
    place.run_for(seconds=5)
    place.stop()
    clock.advance(hours=3)

    vars(place.app).pop("timezone", None)  # Celery's app remembers it
    place.app.conf.update(change)
    place.start(hourly=crontab(minute=0))
    place.start(hourly=crontab(minute=0))

    assert place.sent() == [("hourly", [])]
    assert len([record for record in caplog.records if "Time zone changed" in record.message]) == 1


def test_an_entry_that_was_not_known_counts_from_the_last_run_it_is_given(
    place: Place, clock: FakeClock
) -> None:
    long_ago = clock.now() - timedelta(hours=2)
    entry = {"schedule": 3600.0, "last_run_at": long_ago, "total_run_count": 7}
    place.start(known=entry)
    place.start(known=entry)

    assert place.sent() == [("known", [])]
    assert (place.known("known") or "").split()[1] == "8"


def test_an_entry_set_to_false_runs_its_live_slots_as_before_and_no_missed_one(
    place: Place, clock: FakeClock
) -> None:
    """What the advice for a backfill of an entry without a policy promises."""
    off = {"schedule": crontab(minute=0), "catchup": False}
    place.start(off=off, plain=crontab(minute=0))
    place.run_for(seconds=5)
    live = sorted(name for name, _ in place.sent())
    place.stop()
    clock.advance(hours=3, minutes=30)
    place.start(off=off, plain=crontab(minute=0))
    place.run_for(seconds=5)
    late = sorted(name for name, _ in place.sent())
    # No worker has taken the first run; a live slot does not wait for it.
    clock.advance(minutes=29, seconds=50)
    place.run_for(seconds=10)

    assert live == ["off", "plain"]
    assert late == ["off", "plain", "plain"]
    assert sorted(name for name, _ in place.sent()) == ["off", "off", "plain", "plain", "plain"]
