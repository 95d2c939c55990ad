"""A storm: three beats and three workers, killed and frozen by a seed, while slots come every second."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count
from typing import Any

from celery_catchup.model import to_instant
from tests.acceptance.processes import NotInTimeError, Process, until
from tests.acceptance.sites import LEADING, Site, seconds_since
from tests.chaos import oracle

LEASE = 3.0
ENTRIES = {"chain": "all", "free": "allow", "skipping": "skip"}
ENDED = {"succeeded", "dead", "revoked"}
STANDING_BY = 'msg="Standing by"'
QUIET = 240.0  # seconds until everything is over, at the most
SURELY_LOST = 15.0
"""Seconds of calm after which a message that nobody claimed died on its way from the queue to its worker."""


def seed() -> int:
    """The one to repeat, when one is given; otherwise a new one every time."""
    return int(os.environ.get("CATCHUP_TEST_SEED") or time.time_ns() % 10**6)


@dataclass
class Storm:
    """Three beats, three workers, one entry for each way of overlapping, all of them due every second."""

    site: Site
    seed: int = field(default_factory=seed)
    kills: int = 0
    freezes: int = 0
    missed: int = 0  # messages that died on their way and were sent again
    takeovers: list[float] = field(default_factory=list)
    harms: list[oracle.Harm] = field(default_factory=list)
    beats: list[Process] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    asleep: list[tuple[float, Process]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._names = count()

    # -- calm before ---------------------------------------------------------------------------

    def begin(self, **settings: Any) -> None:
        """Start everything, and wait until every entry has had two runs."""
        task = "tests.projects.chaos.strike"
        policy = {"window": "1h", "max_attempts": 9, "retry_delay": "100ms"}
        self.site.declare(
            {name: {"schedule": {"$every": 1}, "task": task} for name in ENTRIES},
            catchup_entries={name: {**policy, "overlap_policy": how} for name, how in ENTRIES.items()},
            catchup_lease_ttl=f"{LEASE:g}s",
            catchup_run_lease_ttl="3s",
            imports=["celery_catchup.worker", "tests.projects.chaos"],
            **{"broker_transport_options": {"visibility_timeout": 3}, **settings},
        )
        self.beats = [self.site.beat() for _ in range(3)]
        self.workers = [self.new_worker() for _ in range(3)]
        until(
            lambda: all(self._ended(name) >= 2 for name in ENTRIES), what="two runs of every entry", within=60
        )
        self.first = {name: min(one.slot for one in self.done() if one.entry == name) for name in ENTRIES}

    def new_worker(self) -> Process:
        """One of two processes; it is not waited for."""
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
        return self.site.fork_celery("worker", "-c", "2", *quiet, "-n", f"{next(self._names)}@%h")

    def done(self) -> list[oracle.Execution]:
        return oracle.executions(self.site.diary)

    def _ended(self, entry: str) -> int:
        return sum(one.entry == entry and one.ended is not None for one in self.done())

    # -- harm ----------------------------------------------------------------------------------

    def rage(self, *, kills: int, freezes: int) -> None:
        """Go on until so many processes were killed, and so many frozen."""
        while self.kills < kills or self.freezes < freezes:
            self.harm_a_worker(freezing=self._freezing(kills, freezes))
            self.harm_a_standby()
            self.harm_the_leader(freezing=self._freezing(kills, freezes))
            self.wake(due_only=True)

    def _freezing(self, kills: int, freezes: int) -> bool:
        """What is done next, so that both come to their numbers at about the same time."""
        left = max(kills - self.kills, 0), max(freezes - self.freezes, 0)
        return self.chance.random() * sum(left) < left[1]

    def harm_a_worker(self, *, freezing: bool) -> None:
        """Kill a worker with its children and start another, or freeze it, often past its leases."""
        time.sleep(self.chance.uniform(0, 0.8))
        number = self.chance.randrange(3)
        victim = self.workers[number]
        if freezing and victim not in [process for _, process in self.asleep]:
            self._signal_all(victim, signal.SIGSTOP)
            self.asleep.append((time.monotonic() + self.chance.uniform(0.5, 6), victim))
        else:
            self._kill(victim)
            self.workers[number] = self.new_worker()

    def harm_a_standby(self) -> None:
        """Now and then kill one that does not lead; another remains."""
        if self.chance.random() < 0.3:
            victim = self.chance.choice([beat for beat in self.beats if beat is not self.leader()])
            self._kill(victim)
            self._replace(victim)

    def harm_the_leader(self, *, freezing: bool) -> None:
        """Kill or freeze the beat that leads, and see how long the others need to notice."""
        leader = self.leader()
        others = [beat for beat in self.beats if beat is not leader]
        for beat in others:
            until(lambda beat=beat: STANDING_BY in beat.text(), what="a standby")
        led = [beat.text().count(LEADING) for beat in others]
        if freezing:
            self._signal_all(leader, signal.SIGSTOP)
        else:
            self._kill(leader)
        harmed = time.monotonic()
        until(
            lambda: any(beat.text().count(LEADING) > n for beat, n in zip(others, led, strict=True)),
            what="another leader",
        )
        self.takeovers.append(seconds_since(harmed))
        if freezing:
            self._signal_all(leader, signal.SIGCONT)
        else:
            self._replace(leader)

    def leader(self) -> Process:
        """The beat that said last that it leads."""

        def leading() -> Process | None:
            found = [b for b in self.beats if b.text().rfind(LEADING) > b.text().rfind(STANDING_BY)]
            return found[0] if len(found) == 1 else None

        process: Process = until(leading, what="one leader")
        return process

    def _kill(self, victim: Process) -> None:
        self.harms.append(oracle.Harm(victim.pid, time.monotonic()))
        self.asleep = [(when, process) for when, process in self.asleep if process is not victim]
        victim.end()
        self.kills += 1

    def _replace(self, beat: Process) -> None:
        self.beats[self.beats.index(beat)] = self.site.beat()

    def _signal_all(self, process: Process, number: signal.Signals) -> None:
        """To the process and its children: it leads a session, and a group, of its own."""
        if number is signal.SIGSTOP:
            self.harms.append(oracle.Harm(process.pid, time.monotonic()))
            self.freezes += 1
        os.killpg(process.pid, number)

    def wake(self, *, due_only: bool) -> None:
        """Let frozen workers go on."""
        for when, process in list(self.asleep):
            if not due_only or time.monotonic() >= when:
                self._signal_all(process, signal.SIGCONT)
                self.asleep.remove((when, process))

    # -- calm after ----------------------------------------------------------------------------

    def judge(self) -> oracle.Verdict:
        """Wait until everything up to now is over, and look at it."""
        self.wake(due_only=False)
        horizon = self.site.now()
        self._until_quiet(to_instant(horizon))
        expected = {name: self._expected(name, horizon) for name in ENTRIES}
        skipped = oracle.skips(self._skips(), every=1)
        return oracle.judge(expected, self.done(), skipped=skipped, harms=self.harms, chains=["chain"])

    def _expected(self, entry: str, horizon: datetime) -> list[str]:
        first = datetime.fromisoformat(self.first[entry])
        return oracle.steps(first, horizon, every=1)

    def _until_quiet(self, horizon: int) -> None:
        begun = time.monotonic()
        while seconds_since(begun) < QUIET:
            with suppress(NotInTimeError):
                until(lambda: self._quiet(horizon), what="quiet", within=SURELY_LOST, step=0.5)
                return
            self._miss_what_was_lost()
        raise NotInTimeError(f"not quiet within {QUIET:g} s: {self._open(horizon)}")

    def _miss_what_was_lost(self) -> None:
        """Let the five minutes pass after which beat misses a message: only those leases are that long."""
        seconds, _ = self.site.redis.time()
        waiting: Any = self.site.redis.zrangebyscore(self.site.keys.leases, (seconds + 10) * 1000, "+inf")
        if waiting:
            self.site.redis.zadd(self.site.keys.leases, dict.fromkeys(waiting, seconds * 1000), xx=True)
            self.missed += len(waiting)

    def _open(self, horizon: int) -> list[dict[str, Any]]:
        runs = [run for name in ENTRIES for run in self.site.ledger(name)]
        return [run for run in runs if run["slot"] <= horizon and run["state"] not in ENDED][:10]

    def _quiet(self, horizon: int) -> bool:
        for name in ENTRIES:
            decided: Any = self.site.redis.hget(self.site.keys.decided, name)
            if int(decided or 0) < horizon:
                return False
        return not self._open(horizon)

    def _skips(self) -> str:
        asked = self.site.start_celery("catchup", "runs", "--state", "skipped", "--limit", "10000", "-j")
        assert asked.wait() == 0, asked.text()
        return asked.text()

    @property
    def figures(self) -> dict[str, Any]:
        """For the record."""
        return {
            "seed": self.seed,
            "kills": self.kills,
            "freezes": self.freezes,
            "takeovers": len(self.takeovers),
            "longest_takeover_s": round(max(self.takeovers, default=0), 2),
            "lease_s": LEASE,
            "messages_sent_again": self.missed,
        }
