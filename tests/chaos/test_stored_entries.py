"""A web process changes entries while leaders are killed: each slot of an entry's life runs, and no other."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest
from celery import Celery

import celery_catchup
from celery_catchup.model import Instant
from celery_catchup.store import Controls
from celery_catchup.store.opening import open_store
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import LEADING, NAMESPACE, Site, instant
from tests.chaos.storms import LEASE, STANDING_BY, seed
from tests.integration.beats import ByTester
from tests.results import Recorder

POLICY = {"window": "1h", "overlap_policy": "allow"}
IN_FORCE = 1_200
"""Milliseconds within which a change is in force while a beat leads: a tick and a second."""
SLACK = 2_000
"""Milliseconds for a busy machine."""


def now() -> Instant:
    return time.time_ns() // 1_000_000


@dataclass
class Life:
    """What the web process did to one entry; ``slower`` is when its schedule became every other second."""

    born: Instant = 0
    slower: Instant | None = None
    ended: tuple[Instant, Instant] | None = None


@dataclass
class Web:
    """The web process, two beats, and the outages between a leader's death and the next one."""

    site: Site
    chance: random.Random
    lives: dict[str, Life] = field(default_factory=dict)
    outages: list[tuple[Instant, Instant]] = field(default_factory=list)
    beats: list[Process] = field(default_factory=list)

    def begin(self) -> None:
        self.site.declare({}, catchup_lease_ttl=f"{LEASE:g}s")
        self.beats = [self.site.leader(), self.site.beat()]
        self.beats[1].until_it_says(STANDING_BY)
        app = Celery(NAMESPACE, broker=self.site.url, set_as_current=False)
        self.entries, self.controls = (
            celery_catchup.entries(app, actor="web"),
            ByTester(Controls(open_store(app))),
        )

    def change_something(self, number: int) -> None:
        """Create an entry, or do the next thing to one that is there."""
        alive = [name for name, life in self.lives.items() if life.ended is None]
        if len(self.lives) < number and (not alive or self.chance.random() < 0.4):
            name = f"sync-{len(self.lives)}"
            self.entries.create(name, task="proj.work", schedule={"every": "1s"}, catchup=POLICY)
            self.lives[name] = Life(int(self.site.redis.hget(self.site.keys.first_seen, name) or 0))
            return
        if not alive:
            return
        name = self.chance.choice(alive)
        life, at = self.lives[name], now()
        match self.chance.randrange(6):
            case 0 if at - life.born > 2_000:
                self.entries.delete(name)
                life.ended = at, now()
            case 1 if life.slower is None:
                self.entries.update(name, schedule={"every": "2s"})
                life.slower = at
            case 2:
                self.controls.pause(name, now=at)
                self.controls.resume(name, now=now())
            case _:
                self.entries.update(name, kwargs={"version": at})

    def kill_the_leader(self) -> None:
        leader, standby = self.beats
        led = standby.text().count(LEADING)
        leader.kill()
        killed = now()
        self.outages.append((killed, 2**62))
        self._awaited = (standby, led, killed)

    def leader_is_back(self) -> bool:
        """Whether the standby leads; another beat stands by then."""
        standby, led, killed = self._awaited
        if standby.text().count(LEADING) <= led:
            return False
        self.outages[-1] = killed, now()
        self.beats = [standby, self.site.beat()]
        self.beats[1].until_it_says(STANDING_BY)
        return True

    def work(self, *, number: int, seconds: float, pause: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.change_something(number)
            time.sleep(pause)

    # -- judging ---------------------------------------------------------------------------

    def judge(self, until_ms: Instant) -> dict[str, int]:
        sent = Counter((one.entry, instant(one.slot)) for one in self.site.messages())
        doubled = sum(count > 1 for count in sent.values())
        lost, strange = [], []
        for name, life in self.lives.items():
            mine = {slot for entry, slot in sent if entry == name}
            first, last = life.ended or (until_ms, until_ms)
            # Slots that no beat had decided when the entry was deleted do not run.
            decided = self._decided_at(first)
            for slot in range(life.born + 1000, last + IN_FORCE + SLACK, 1000):
                odd = (slot - life.born) // 1000 % 2 == 1
                changed = odd and life.slower is not None
                must = slot < decided - IN_FORCE - SLACK and not (
                    changed and slot > self._decided_at(life.slower or 0) - IN_FORCE - SLACK
                )
                may = slot <= last + IN_FORCE + SLACK and not (
                    changed and slot > self._back_at(life.slower or 0) + IN_FORCE + SLACK
                )
                if must and slot not in mine:
                    lost.append((name, slot))
                if not may and slot in mine:
                    strange.append((name, slot))
            strange += [(name, slot) for slot in mine if (slot - life.born) % 1000 or slot <= life.born]
            strange += [(name, slot) for slot in mine if slot > last + IN_FORCE + SLACK]
        assert (doubled, lost[:5], strange[:5]) == (0, [], [])
        return {"entries": len(self.lives), "runs": len(sent), "lost": len(lost), "twice": doubled}

    def _decided_at(self, at: Instant) -> Instant:
        """Up to when slots were decided at that time: until the death of the leader, in an outage."""
        return min([at, *(dead for dead, back in self.outages if dead <= at <= back + SLACK)])

    def _back_at(self, at: Instant) -> Instant:
        """When a change of that time was seen: after the outage, if there was one."""
        return max([at, *(back for dead, back in self.outages if dead <= at <= back)])


def play(
    site: Site, record_result: Recorder, *, number: int, kills: int, between: float, pause: float
) -> None:
    web = Web(site, random.Random(seed()))
    web.begin()
    for _ in range(kills):
        web.work(number=number, seconds=between, pause=pause)
        web.kill_the_leader()
        while not web.leader_is_back():
            web.work(number=number, seconds=0.2, pause=pause)
    web.work(number=number, seconds=between, pause=pause)
    end = now()
    site.until_a_tick_later()
    until(lambda: (site.watermark() or 0) > end, what="the last slots")
    found = web.judge(end)
    record_result("entries changed while leaders are killed", kills=kills, **found)


@pytest.mark.slow
def test_changes_during_a_takeover_lose_and_double_nothing(site: Site, record_result: Recorder) -> None:
    play(site, record_result, number=60, kills=1, between=3.0, pause=0.03)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_thousand_entries_while_five_leaders_are_killed(site: Site, record_result: Recorder) -> None:
    play(site, record_result, number=1000, kills=5, between=20.0, pause=0.01)
