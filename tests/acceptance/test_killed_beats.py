"""Beats that are killed while they catch up: whatever the moment, no slot is lost and none is sent twice.

On RabbitMQ, where message and record cannot become durable together, a message may be there
twice; then both are the same task, and a worker with the plugin executes one of them.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from tests.acceptance.messages import Message, RabbitQueue
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import SHIFTED, Site, at
from tests.results import Recorder

MINUTELY = {"minutely": "* * * * *"}
AT_ONCE = {"minutely": {"window": "1d", "overlap_policy": "allow"}}
LEFT = "00:00:30"  # when the beat before left
FAST = {"catchup_poll_interval": "50ms", "catchup_lease_ttl": "3s", "catchup_batch_size": 5}


def minutes(count: int) -> list[str]:
    """The slots that are missed when the next beat comes so many minutes later."""
    left = datetime.fromisoformat(at(LEFT)).replace(second=0)
    return [f"{left + timedelta(minutes=n):%Y-%m-%dT%H:%M:%SZ}" for n in range(1, count + 1)]


@dataclass
class Slaughter:
    """A catch-up of so many minutes, done by beats that do not live to see its end."""

    site: Site
    slots: int
    count: Callable[[], int]
    kills: int = 0
    rounds: int = 0
    lost: int = 0
    doubled: int = 0
    seed: int = field(
        default_factory=lambda: int(os.environ.get("CATCHUP_TEST_SEED") or time.time_ns() % 10**6)
    )

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.site.set_clock(LEFT)
        before = self.site.leader()
        self.site.until_a_tick_later()
        before.stop()
        self.left = self.site.snapshot()

    def begin(self) -> None:
        """Back to the end of the outage."""
        self.site.restore(self.left)
        self.site.set_clock(minutes(self.slots)[-1][11:17] + "01")
        self.rounds += 1

    def kill_at_write(self, number: int) -> bool:
        """Let a beat die right after its n-th write; False when the catch-up was over by then."""
        beat = self.site.beat(CATCHUP_TEST_DIES_AT=str(number))
        assert beat.wait() == -9
        self.kills += 1
        self.site.forget_leader()
        return "Catch-up completed" not in beat.text()

    def kill_sometime(self) -> None:
        """Kill a beat somewhere in its catch-up, or on its way there."""
        # Now and then one that was not forked but started, which takes longer.
        anew = self.kills % 10 == 4
        done, beat = self.count(), self.site.start_celery("beat", "-S", SHIFTED) if anew else self.site.beat()
        if self.chance.random() < 0.8:
            until(lambda: self.count() > done or self._over(beat), what="some progress", step=0.001)
        time.sleep(self.chance.uniform(0, 0.06))
        beat.kill()
        self.kills += 1
        self.site.forget_leader()

    def _over(self, beat: Process) -> bool:
        return "Catch-up completed" in beat.text()

    def unfinished(self) -> bool:
        return self.count() < self.slots

    def finish(self) -> None:
        """Let a beat live until everything is sent, and then a little longer."""
        beat = self.site.leader()
        until(lambda: not self.unfinished(), what=f"{self.slots} slots")
        until(lambda: not self.site.redis.zcard(self.site.keys.outbox), what="an empty outbox")
        self.site.until_a_tick_later()
        beat.kill()

    @property
    def figures(self) -> dict[str, int]:
        """For the record, of all rounds."""
        return {
            "seed": self.seed,
            "kills": self.kills,
            "slots": self.slots * self.rounds,
            "lost": self.lost,
            "messages_twice": self.doubled,
        }

    def report(self, lost: int, doubled: int) -> None:
        self.lost, self.doubled = self.lost + lost, self.doubled + doubled
        print(
            f"seed={self.seed} kills={self.kills} rounds={self.rounds} slots={self.slots * self.rounds} "
            f"lost={lost} doubled={doubled}"
        )


# -- broker and state on one Redis: exactly once -----------------------------------------------


def on_redis(site: Site, slots: int) -> Slaughter:
    return Slaughter(site, slots, count=lambda: int(site.redis.zcard(site.keys.runs_of("minutely"))))


def check_exactly_once(slaughter: Slaughter) -> None:
    messages = slaughter.site.messages("minutely")

    expected = minutes(slaughter.slots)
    sent = Counter(message.slot for message in messages)
    slaughter.report(lost=len(set(expected) - set(sent)), doubled=sum(sent.values()) - len(sent))
    assert [message.slot for message in messages] == expected
    assert {message.headers["is_catchup"] for message in messages[:-1]} == {True}


def sweep_on_redis(site: Site, *, kills: int) -> Slaughter:
    site.declare(MINUTELY, catchup_entries=AT_ONCE, **FAST)
    slaughter = on_redis(site, slots=500)
    while slaughter.kills < kills:
        slaughter.begin()
        while slaughter.unfinished() and slaughter.kills < kills:
            slaughter.kill_sometime()
        slaughter.finish()
        check_exactly_once(slaughter)
    return slaughter


def test_a_beat_killed_at_any_of_its_writes_loses_nothing_and_doubles_nothing(site: Site) -> None:
    others = {"chained": "* * * * *", "stock": {"$crontab": {"minute": "*"}}}
    chain = {"chained": {"window": "1d", "overlap_policy": "all"}}
    site.declare(MINUTELY | others, catchup_entries=AT_ONCE | chain, **FAST)
    slaughter = on_redis(site, slots=8)
    number, going = 1, True
    while going:
        slaughter.begin()
        going = slaughter.kill_at_write(number)
        slaughter.finish()
        check_exactly_once(slaughter)
        assert site.slots("chained") == minutes(1)
        assert site.states("chained") == ["queued"] + ["waiting"] * 7
        assert [message.slot for message in site.messages() if message.entry is None] == minutes(8)[-1:]
        number += 1

    assert slaughter.kills > 20


def test_beats_killed_at_random_moments_of_a_long_catch_up_lose_nothing_and_double_nothing(
    site: Site,
) -> None:
    sweep_on_redis(site, kills=12)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_two_hundred_killed_beats_lose_nothing_and_double_nothing(
    site: Site, record_result: Recorder
) -> None:
    slaughter = sweep_on_redis(site, kills=200)

    record_result("beats killed in a catch-up: Redis", **slaughter.figures)


# -- RabbitMQ: at least once, and the same task when it is twice -------------------------------


def on_rabbitmq(site: Site, queue: RabbitQueue, slots: int) -> Slaughter:
    site.broker = queue.url
    site.declare(
        MINUTELY,
        catchup_entries=AT_ONCE,
        catchup_redis_url=site.url,
        task_default_queue=queue.name,
        **FAST,
    )
    return Slaughter(site, slots, count=lambda: int(site.redis.hlen(site.keys.ledger)))


def check_at_least_once(slaughter: Slaughter, messages: list[Message]) -> None:
    expected = minutes(slaughter.slots)
    sent = Counter(message.slot for message in messages)
    slaughter.report(lost=len(set(expected) - set(sent)), doubled=sum(sent.values()) - len(sent))
    assert sorted(sent) == expected
    tasks = {(message.slot, message.id, message.run_id) for message in messages}
    assert tasks == {
        (slot, run, run) for slot in expected for run in [slaughter.site.identity("minutely", slot)]
    }


def sweep_on_rabbitmq(site: Site, queue: RabbitQueue, *, slots: int, kills: int) -> Slaughter:
    slaughter = on_rabbitmq(site, queue, slots)
    while slaughter.kills < kills:
        slaughter.begin()
        queue.purge()
        while slaughter.unfinished() and slaughter.kills < kills:
            slaughter.kill_sometime()
        slaughter.finish()
        check_at_least_once(slaughter, queue.messages())
    return slaughter


def test_on_rabbitmq_a_beat_killed_at_any_of_its_writes_loses_nothing(
    site: Site, rabbit_queue: RabbitQueue
) -> None:
    slaughter = on_rabbitmq(site, rabbit_queue, slots=3)
    number, going = 1, True
    while going:
        slaughter.begin()
        rabbit_queue.purge()
        slaughter.kill_at_write(number)
        going = bool(len(rabbit_queue) < slaughter.slots or slaughter.site.redis.zcard(site.keys.outbox))
        slaughter.finish()
        check_at_least_once(slaughter, rabbit_queue.messages())
        number += 1

    assert slaughter.kills > 20


def test_on_rabbitmq_beats_killed_at_random_moments_lose_nothing(
    site: Site, rabbit_queue: RabbitQueue
) -> None:
    sweep_on_rabbitmq(site, rabbit_queue, slots=200, kills=8)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_on_rabbitmq_two_hundred_killed_beats_lose_nothing(
    site: Site, rabbit_queue: RabbitQueue, record_result: Recorder
) -> None:
    slaughter = sweep_on_rabbitmq(site, rabbit_queue, slots=500, kills=200)

    record_result("beats killed in a catch-up: RabbitMQ", **slaughter.figures)
