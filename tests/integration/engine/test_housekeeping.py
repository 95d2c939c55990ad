"""Everything that is kept has an owner and an end: a year with daily restarts keeps what a month keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_catchup.events import StateSuspect
from celery_catchup.model import PlannedRun, RunState
from celery_catchup.store import Keys, Template, retention
from celery_catchup.store import store as store_module
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, QUEUE, Beat, Broker
from tests.integration.ledgers import new_backfill
from tests.simulation.server import CLOCK, on_simulated_time

KEYS = Keys(NAMESPACE)
HOURLY = ("0 * * * *", {"window": "6h", "overlap_policy": "allow"})
DAY = 86_400_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock("2026-02-07T09:05:30Z")


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as found:
        yield found


class Release(Broker):
    """Messages of one release of the user's code: another release, other messages."""

    def __init__(self, number: int = 0, *, hooked: bool = False) -> None:
        super().__init__()
        self.number, self.hooked = number, hooked

    def template(self, entry: str, run: PlannedRun, run_id: str, **options: Any) -> Template:
        one = super().template(entry, run, run_id, **options)
        message = json.dumps({**json.loads(one.message), "release": self.number})
        return Template(message, queue=one.queue, db=one.db, run=one.run)


class Years:
    """Beats, one after the other, on a server whose clock is the test's."""

    def __init__(self, url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.url, self.clock, self.settings = url, clock, settings
        self.beat: Any = None
        timed = on_simulated_time(store_module.all_scripts())
        monkeypatch.setattr(store_module, "all_scripts", lambda: timed)
        self._client = redis.Redis.from_url(url)
        self.tell_time()

    def tell_time(self) -> None:
        self._client.set(CLOCK, self.now())

    def now(self) -> int:
        return round(self.clock.now().timestamp() * 1000)

    def start(self, entries: Any, broker: Broker | None = None) -> Beat:
        if self.beat is not None:
            self.beat.engine.resign()
            self.beat.client.close()
        self.beat = Beat(self.url, self.clock, entries, broker=broker or Release(), **self.settings)
        self.tick()
        return self.beat

    def tick(self) -> None:
        self.tell_time()
        self.beat.tick()

    def execute(self, *, failing: bool = False) -> None:
        """Let everything that is active end."""
        state = RunState.FAILED if failing else RunState.SUCCEEDED
        for name in self.beat.engine.entries.names:
            for run_id in self.beat.ledger.active(name):
                run = self.beat.ledger.run(run_id)
                self.beat.leases.claim(run_id, owner="w", task=run["task"], worker="w", entry=name)
                self.beat.leases.finish(
                    run_id, entry=name, owner="w", state=state, letter=json.dumps({"type": "E"})
                )
        self.beat.client.delete(QUEUE)

    def close(self) -> None:
        self._client.close()

    def tidy(self) -> None:
        """Let a whole round pass."""
        for _ in range(80):
            self.clock.advance(seconds=2)
            self.tick()


@pytest.fixture
def years(redis_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Years]:
    made = Years(redis_url, clock, monkeypatch, ledger_ttl="10d", audit_ttl="10d")
    yield made
    made.close()


def counts(client: redis.Redis) -> dict[str, int]:
    """How many members each key has."""
    sizes = {"hash": client.hlen, "zset": client.zcard, "string": client.strlen, "list": client.llen}
    found = {}
    for key in client.keys(f"{KEYS.prefix}:*"):
        kind: Any = client.type(key)
        found[key.decode().removeprefix(f"{KEYS.prefix}:")] = sizes[kind.decode()](key)
    return found


def test_a_template_that_no_run_uses_is_swept_and_one_that_a_waiting_run_needs_is_kept(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    chained = {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "all"}), "other": HOURLY}
    years.start(chained, Release(1))
    clock.set("2026-02-07T10:00:00Z")
    years.tick()
    clock.set("2026-02-07T11:00:00Z")
    years.tick()
    (waiting,) = [run for run in years.beat.ledger.runs_of("etl") if run["state"] == "waiting"]
    for run_id in years.beat.ledger.active("other"):
        years.beat.leases.claim(run_id, owner="w", task="proj.other", worker="w", entry="other")
        years.beat.leases.finish(run_id, entry="other", owner="w", state=RunState.SUCCEEDED)
    before: Any = client.hlen(KEYS.templates)

    clock.advance(days=15)
    years.start({"etl": chained["etl"]}, Release(2))
    years.tidy()
    years.tidy()

    after = {name.decode() for name in client.hkeys(KEYS.templates)}
    assert before == 2
    assert waiting["template"] in after
    assert not any('"other"' in json.loads(text)["message"] for text in client.hvals(KEYS.templates))
    assert {name.decode() for name in client.zrange(KEYS.template_uses, 0, -1)} == after


def test_a_template_that_was_swept_is_stored_again_when_its_entry_runs(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    years.start({"etl": HOURLY})
    clock.set("2026-02-07T10:00:00Z")
    years.tick()
    years.execute()
    client.delete(KEYS.templates, KEYS.template_uses)

    clock.set("2026-02-07T11:00:00Z")
    years.tick()

    assert client.hlen(KEYS.templates) == client.zcard(KEYS.template_uses) == 1
    assert years.beat.sent() == ["2026-02-07T11:00:00Z"]


def test_a_template_of_one_run_is_not_stored_when_its_run_is_not(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    years.start({"etl": HOURLY}, Release(hooked=True))
    clock.set("2026-02-07T10:00:00Z")
    years.tick()
    years.execute()
    client.hdel(KEYS.decided, "etl")
    client.hset(KEYS.scheduler, "watermark", years.now() - 60_000)

    years.start({"etl": HOURLY}, Release(1, hooked=True))
    now = years.now()
    fields = {"reprocess": "completed", "newest_first": False, "max_active": 1, "created": now, "total": 1}
    years.beat.backfills.create(new_backfill({"entry": "etl", "start": now, "end": now, **fields}))
    years.tick()

    ((run_id, run),) = [(one["id"], one) for one in years.beat.ledger.runs_of("etl")]
    assert run["attempt"] == 2
    assert [name.decode() for name in client.hkeys(KEYS.templates)] == [run["template"]]
    assert run["template"].startswith(run_id)


def test_an_entry_that_is_gone_is_forgotten_when_the_ledger_has_forgotten_its_runs(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    both = {"etl": HOURLY, "gone": HOURLY}
    years.start(both)
    clock.set("2026-02-07T10:00:00Z")
    years.tick()
    years.execute()
    years.beat.controls.pause("gone", now=years.now())
    years.start({"etl": HOURLY})
    years.tidy()
    kept = counts(client)

    for _ in range(12):
        clock.advance(days=1)
        years.tidy()
        years.execute()

    assert kept["first_seen"] == kept["decided"] == 2
    assert kept["removed"] == 1
    left = counts(client)
    assert not [key for key in left if "gone" in key]
    assert (left["first_seen"], left["policies"], left["decided"]) == (1, 1, 1)
    assert "removed" not in left
    assert "paused" not in left


def test_an_entry_that_comes_back_in_time_loses_nothing(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    years.start({"etl": HOURLY, "back": HOURLY})
    first_seen = client.hget(KEYS.first_seen, "back")
    years.start({"etl": HOURLY})
    years.tidy()
    clock.advance(days=5)

    years.start({"etl": HOURLY, "back": HOURLY})
    for _ in range(12):
        clock.advance(days=1)
        years.tidy()

    assert client.hget(KEYS.first_seen, "back") == first_seen
    assert client.hlen(KEYS.removed) == 0


def test_a_backfill_that_has_ended_is_forgotten_with_its_lane(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    years.start({"etl": HOURLY})
    now = years.now()
    fields = {"reprocess": "none", "newest_first": False, "max_active": 1, "created": now, "total": 3}
    made = years.beat.backfills.create(
        new_backfill({"entry": "etl", "start": now - 3 * 3_600_000, "end": now, **fields})
    )
    years.tick()
    years.beat.backfills.set_state(made.id, "cancelled")
    (active,) = years.beat.ledger.active(made.lane)
    years.beat.leases.claim(active, owner="w", task="proj.etl", worker="w", entry="etl")
    years.beat.leases.finish(active, entry="etl", owner="w", state=RunState.SUCCEEDED)
    clock.advance(days=5)
    years.tidy()
    kept = years.beat.backfills.get(made.id)

    clock.advance(days=6)
    years.tidy()

    assert kept is not None
    assert years.beat.backfills.all() == []
    assert [name.decode() for name in client.hkeys(KEYS.policies)] == ["etl"]


def test_a_ledger_with_too_many_runs_forgets_those_that_ended_first_and_says_so(
    redis_url: str, client: redis.Redis, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    years = Years(redis_url, clock, monkeypatch, ledger_ttl="10d", max_ledger_runs=20)
    years.start({"etl": HOURLY})
    for _ in range(30):
        clock.advance(hours=1)
        years.tick()
        years.execute()

    clock.advance(minutes=2)
    years.tick()

    slots = [run["slot"] for run in years.beat.ledger.runs_of("etl")]
    assert 20 <= len(slots) <= 21
    assert max(slots) - min(slots) == (len(slots) - 1) * 3_600_000
    assert client.zcard(KEYS.ended) == len(slots)
    assert any("catchup_max_ledger_runs" in event.what for event in years.beat.told(StateSuspect))


def test_runs_that_have_not_ended_are_kept_beyond_every_cap(
    redis_url: str, client: redis.Redis, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    caps = {"max_ledger_runs": 2, "max_ledger_runs_per_entry": 2}
    years = Years(redis_url, clock, monkeypatch, ledger_ttl="10d", **caps)
    years.start({"etl": ("* * * * *", {"window": "6h", "overlap_policy": "all"})})
    for _ in range(4):
        clock.advance(minutes=1)
        years.tick()

    years.tidy()

    states = [run["state"] for run in years.beat.ledger.runs_of("etl")]
    assert len(states) >= 4
    assert set(states) == {"queued", "waiting"}


def test_an_entry_with_too_many_runs_forgets_its_oldest(
    redis_url: str, client: redis.Redis, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    years = Years(redis_url, clock, monkeypatch, ledger_ttl="10d", max_ledger_runs_per_entry=5)
    years.start({"etl": HOURLY, "daily": ("0 12 * * *", HOURLY[1])})
    for _ in range(12):
        clock.advance(hours=1)
        years.tick()
        years.execute()

    years.tidy()

    assert len(years.beat.ledger.runs_of("etl")) == 5
    assert len(years.beat.ledger.runs_of("daily")) == 1


def test_an_entry_with_too_many_skips_forgets_its_oldest(
    years: Years, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_SKIPS", 3)
    years.start({"etl": HOURLY})
    now = years.now()
    spans = {json.dumps({"first": at, "last": at, "count": 1}): at for at in range(now, now + 5)}
    client.zadd(KEYS.skips("etl"), spans)

    years.tidy()

    assert [int(at) for _, at in client.zrange(KEYS.skips("etl"), 0, -1, withscores=True)] == [
        now + 2,
        now + 3,
        now + 4,
    ]


def test_a_run_that_failed_and_then_succeeded_keeps_no_letter_and_no_error(
    years: Years, client: redis.Redis, clock: FakeClock
) -> None:
    policy = {"window": "6h", "overlap_policy": "all", "max_attempts": 3, "retry_delay": "1s"}
    years.start({"etl": ("0 * * * *", policy)})
    clock.set("2026-02-07T10:00:00Z")
    years.tick()
    years.execute(failing=True)
    clock.advance(seconds=5)
    years.tick()

    years.execute()

    (run,) = years.beat.ledger.runs_of("etl")
    assert (run["state"], run.get("error")) == ("succeeded", None)
    assert client.hlen(KEYS.letters) == 0
    assert run["past"][0]["outcome"] == "failed"


def live_for(years: Years, *, days: int, begin: int = 0) -> None:
    """Every day a new release, an entry that lives for a day, a failure, a backfill and a restart."""
    for day in range(begin, begin + days):
        years.start({"etl": HOURLY, "daily": ("30 1 * * *", HOURLY[1]), f"day-{day}": HOURLY}, Release(day))
        now = years.now()
        fields = {
            "reprocess": "completed",
            "newest_first": False,
            "max_active": 5,
            "created": now,
            "total": 2,
        }
        years.beat.backfills.create(
            new_backfill({"entry": "etl", "start": now - 7_200_000, "end": now, **fields})
        )
        for hour in range(6):
            years.clock.advance(hours=4)
            years.tick()
            years.execute(failing=hour == 0)
            for one in years.beat.backfills.all():
                for run_id in years.beat.ledger.active(one.lane):
                    owner = {"owner": "w", "entry": "etl"}
                    years.beat.leases.claim(run_id, task="proj.etl", worker="w", **owner)
                    years.beat.leases.finish(run_id, state=RunState.SUCCEEDED, **owner)
            years.tick()
        years.tidy()
        years.execute()  # a run that no worker has claimed would be waited for


def test_three_times_the_lifetime_of_the_ledger_keeps_what_one_keeps(
    years: Years, client: redis.Redis
) -> None:
    live_for(years, days=14)
    after_one = counts(client)

    live_for(years, days=28, begin=14)
    after_three = counts(client)

    grown = {
        key: (after_one.get(key, 0), count)
        for key, count in after_three.items()
        if count > 1.15 * after_one.get(key, 0) + 3
        and not key.startswith(("version", "hours", "outages", "epochs"))
    }
    assert {key: pair for key, pair in grown.items() if ":day-" not in key} == {}
    assert len(after_three) <= len(after_one) + 3


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_year_with_daily_restarts_ends_with_the_memory_of_a_month(
    redis_url: str, client: redis.Redis, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    years = Years(redis_url, clock, monkeypatch, ledger_ttl="30d")
    live_for(years, days=40)
    month: Any = client.info("memory")

    live_for(years, days=325, begin=40)
    year: Any = client.info("memory")

    assert year["used_memory_dataset"] < 1.15 * month["used_memory_dataset"]
