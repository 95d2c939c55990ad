"""A web process changes entries while leaders are killed: each slot of an entry's life runs, and no other."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from celery import Celery

import celery_catchup
from celery_catchup.model import Instant, to_rfc3339
from celery_catchup.store import Controls
from celery_catchup.store.opening import open_store
from tests.acceptance.messages import Message
from tests.acceptance.processes import NotInTimeError, Process, celery, until
from tests.acceptance.sites import LEADING, NAMESPACE, Site, instant
from tests.chaos.storms import LEASE, STANDING_BY, seed
from tests.integration.beats import ByTester
from tests.results import Recorder

POLICY = {"window": "1h", "overlap_policy": "allow"}
IN_FORCE = 1_200
"""Milliseconds within which a change is in force while a beat leads: a tick and a second."""
CALM = 2 * (os.cpu_count() or 1)
"""Load above which processes wait for a processor, so that `IN_FORCE` says nothing about the scheduler."""
EXPLAINED = 3
"""Entries, and slots of each, that a failure explains."""


def now() -> Instant:
    return time.time_ns() // 1_000_000


@dataclass
class Change:
    """A change of an entry, and when its call began and returned.

    ``decided`` is up to where the store had the entry decided just before: those slots must have run. A slot
    that is later than ``returned`` is decided by a tick that began later, and so knew the change.
    """

    what: str
    began: Instant
    returned: Instant
    decided: Instant
    revision: int


@dataclass
class Life:
    """What the web process did to one entry. Its schedule is every second, or every other one once it is
    ``slower``."""

    born: Instant
    changes: list[Change] = field(default_factory=list)
    slower: Change | None = None
    deleted: Change | None = None

    def grid(self, until_ms: Instant) -> Iterator[tuple[Instant, list[Change]]]:
        """Yield each second of its life, and the changes that took the slot away."""
        for slot in range(self.born + 1000, until_ms, 1000):
            odd = (slot - self.born) // 1000 % 2 == 1
            ends = [self.deleted, self.slower if odd else None]
            yield slot, [one for one in ends if one is not None]


@dataclass
class Verdict:
    """Slots that must have run and did not, and runs that must not be, by entry."""

    lost: dict[str, list[Instant]] = field(default_factory=dict)
    strange: dict[str, list[str]] = field(default_factory=dict)

    def add_lost(self, entry: str, slot: Instant) -> None:
        self.lost.setdefault(entry, []).append(slot)

    def add_strange(self, entry: str, what: str) -> None:
        self.strange.setdefault(entry, []).append(what)


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
        alive = [name for name, life in self.lives.items() if life.deleted is None]
        if len(self.lives) < number and (not alive or self.chance.random() < 0.4):
            name = f"sync-{len(self.lives)}"
            self.lives[name] = life = Life(0)
            self._do(
                name,
                "create",
                lambda: (
                    self.entries.create(
                        name, task="proj.work", schedule={"every": "1s"}, catchup=POLICY
                    ).revision
                ),
            )
            life.born = int(self.site.redis.hget(self.site.keys.first_seen, name) or 0)
            return
        if not alive:
            return
        name = self.chance.choice(alive)
        life, at = self.lives[name], now()
        match self.chance.randrange(6):
            case 0 if at - life.born > 2_000 and len(alive) > number // 4:  # later leaders find some, too
                life.deleted = self._do(name, "delete", lambda: self.entries.delete(name))
            case 1 if life.slower is None:
                life.slower = self._do(
                    name, "slower", lambda: self.entries.update(name, schedule={"every": "2s"}).revision
                )
            case 2:
                self._do(name, "pause", lambda: self.controls.pause(name, now=at))
                self._do(name, "resume", lambda: self.controls.resume(name, now=now()))
            case _:
                self._do(
                    name, "version", lambda: self.entries.update(name, kwargs={"version": at}).revision, at=at
                )

    def _do(
        self, name: str, what: str, call: Callable[[], int | object], *, at: Instant | None = None
    ) -> Change:
        decided: Any = self.site.redis.hget(self.site.keys.decided, name)
        began = now() if at is None else at
        answer = call()
        revision = answer if isinstance(answer, int) and not isinstance(answer, bool) else 0
        change = Change(what, began, now(), int(decided or 0), revision)
        self.lives[name].changes.append(change)
        return change

    def kill_the_leader(self) -> None:
        """Kill the beat that leads: a starved leader may have lost the lead to the other one before."""

        def leading(beat: Process) -> bool:
            return beat.text().rfind(LEADING) > beat.text().rfind(STANDING_BY)

        found = until(lambda: [beat for beat in self.beats if leading(beat)], what="a leader")
        (leader,) = found if len(found) == 1 else found[-1:]
        (standby,) = (beat for beat in self.beats if beat is not leader)
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

    def wait_for_decisions(self, until_ms: Instant) -> None:
        """Wait until every slot up to then is decided; a busy machine may be behind with later ones."""
        try:
            until(lambda: not self._undecided(until_ms), what="the last slots", within=180, step=0.5)
        except NotInTimeError as error:
            left = self._undecided(until_ms)
            runs = {name: self._runs(name) for name in left}
            undecided = Verdict(strange={name: ["its last slots are undecided"] for name in left})
            pytest.fail(f"{error}\n{self._explain(undecided, runs)}")

    def _undecided(self, until_ms: Instant) -> list[str]:
        alive = [name for name, life in self.lives.items() if life.deleted is None]
        decided: Any = self.site.redis.hmget(self.site.keys.decided, alive)
        return [name for name, one in zip(alive, decided, strict=True) if int(one or 0) < until_ms]

    # -- judging ---------------------------------------------------------------------------

    def judge(self, until_ms: Instant) -> dict[str, int]:
        """Compare what was sent with each entry's life; nothing here depends on how fast the machine is.

        A slot must have run if the store had it decided before the change that took it away, and if a later
        slot that the change took away has run: an entry's slots are decided in order. No slot after such a
        change may run.
        """
        sent: dict[str, list[Message]] = {name: [] for name in self.lives}
        for message in self.site.messages():
            sent[str(message.entry)].append(message)
        runs = {name: self._runs(name) for name in self.lives}
        found, latest = Verdict(), 0
        for name, life in self.lives.items():
            self._judge_slots(found, name, life, Counter(instant(one.slot) for one in sent[name]), until_ms)
            self._judge_versions(found, name, life, runs[name], sent[name])
            latest = max(latest, *self._delays(life, runs[name]), 0)
        assert found == Verdict(), self._explain(found, runs)
        if (load := os.getloadavg()[0]) <= CALM:
            assert latest <= IN_FORCE, f"a change was in force after {latest} ms, at a load of {load:.1f}"
        return {
            "entries": len(self.lives),
            "runs": sum(map(len, sent.values())),
            "lost": 0,
            "twice": 0,
            "latest_change_ms": latest,
            "load": round(os.getloadavg()[0]),
        }

    def _runs(self, entry: str) -> dict[Instant, Instant]:
        """Slots of the entry's runs, with the time of the tick that decided each."""
        return {run["slot"]: run["created"] for run in self.site.ledger(entry)}

    def _judge_slots(
        self, found: Verdict, name: str, life: Life, sent: Counter[Instant], until_ms: Instant
    ) -> None:
        grid = dict(life.grid(now()))
        latest: dict[str, Instant] = {}  # slots that ran, of those that a change took away
        for slot in sent:
            for change in grid.get(slot, ()):
                latest[change.what] = max(latest.get(change.what, 0), slot)
        for slot, ends in grid.items():
            decided = all(slot <= max(one.decided, latest.get(one.what, 0)) for one in ends)
            if not sent[slot] and slot <= until_ms and decided:
                found.add_lost(name, slot)
            if sent[slot] and any(slot > one.returned for one in ends):
                found.add_strange(name, f"{to_rfc3339(slot)} ran after the change that took it away")
        for slot, count in sent.items():
            if count > 1:
                found.add_strange(name, f"{to_rfc3339(slot)} was sent {count} times")
            if slot not in grid and count:
                found.add_strange(name, f"{to_rfc3339(slot)} ran and was never a slot")

    def _judge_versions(
        self, found: Verdict, name: str, life: Life, runs: dict[Instant, Instant], sent: list[Message]
    ) -> None:
        """A tick that began after a change has it in its messages."""
        changes = [one for one in life.changes if one.what == "version"]
        for message in sent:
            created = runs.get(instant(message.slot), 0)
            known = max((one.began for one in changes if one.returned < created), default=0)
            if message.kwargs.get("version", 0) < known:
                found.add_strange(name, f"{message.slot} has old arguments")

    def _delays(self, life: Life, runs: dict[Instant, Instant]) -> Iterator[int]:
        """How late the first decision after each change was, unless no beat led meanwhile."""
        for change in life.changes:
            later = [(at, slot) for slot, at in runs.items() if at > change.returned]
            if later:
                at, slot = min(later)
                if not any(dead <= at and slot <= back + IN_FORCE for dead, back in self.outages):
                    yield at - slot

    # -- explaining ------------------------------------------------------------------------

    def _explain(self, found: Verdict, runs: dict[str, dict[Instant, Instant]]) -> str:
        """Write the whole life of the entries in question, so that one failing run explains itself."""
        terms: Any = self.site.redis.zrange(self.site.keys.epochs, 0, -1)
        lines = [f"{sum(map(len, found.lost.values()))} slots lost, {len(found.strange)} entries strange"]
        for term in terms:
            epoch, since, owner = term.split(" ", 2)
            lines.append(f"leader {epoch} since {to_rfc3339(int(since))}: {owner.rpartition(':')[2]}")
        for dead, back in self.outages:
            lines.append(f"outage from {to_rfc3339(dead)} to {to_rfc3339(back)}")
        for name in list(dict.fromkeys([*found.lost, *found.strange]))[:EXPLAINED]:
            lines += self._explain_entry(name, found, runs[name])
        return "\n".join(lines)

    def _explain_entry(self, name: str, found: Verdict, runs: dict[Instant, Instant]) -> Iterator[str]:
        life, slots = self.lives[name], found.lost.get(name, [])

        def stored(column: str) -> Any:
            return self.site.redis.hget(self.site.keys.named(column), name)

        yield f"\nentry {name}, first seen {to_rfc3339(life.born)}"
        for one in life.changes:
            known = to_rfc3339(one.decided) if one.decided else "nothing"
            took = one.returned - one.began
            yield f"  {to_rfc3339(one.began)} {one.what}, {took} ms, revision {one.revision}, decided {known}"
        yield f"  stored: decided {stored('decided')}, pause {stored('paused')}"
        yield f"  lost: {', '.join(map(to_rfc3339, slots)) or 'none'}"
        yield from (f"  strange: {what}" for what in found.strange.get(name, []))
        yield "  decided: " + " ".join(
            f"{to_rfc3339(slot)[11:-1]}@{to_rfc3339(at)[11:-1]}" for slot, at in sorted(runs.items())
        )
        for text in self.site.redis.zrange(self.site.keys.skips(name), 0, -1):
            yield f"  skipped: {text}"
        caught: Any = self.site.redis.hget(self.site.keys.catchups, name)
        yield from (f"  catch-up: {json.dumps(one)}" for one in json.loads(caught or "[]"))
        for slot in slots[:EXPLAINED]:
            asked = self.site.start(
                sys.executable, "-m", *celery("catchup", "why", name, to_rfc3339(slot)), name="why"
            )
            asked.wait()
            yield asked.text()


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
    web.wait_for_decisions(end)
    found = web.judge(end)
    record_result("entries changed while leaders are killed", kills=kills, **found)


@pytest.mark.slow
def test_changes_during_a_takeover_lose_and_double_nothing(site: Site, record_result: Recorder) -> None:
    play(site, record_result, number=60, kills=1, between=3.0, pause=0.03)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_thousand_entries_while_five_leaders_are_killed(site: Site, record_result: Recorder) -> None:
    play(site, record_result, number=1000, kills=5, between=20.0, pause=0.01)
