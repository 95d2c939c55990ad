"""A primary and its replica behind Sentinels, failed over again and again under a storm's processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
from redis.sentinel import Sentinel

from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import NotInTimeError, until
from tests.acceptance.sites import Site
from tests.chaos import oracle
from tests.chaos.storms import Storm
from tests.integration.servers import MASTER, Server, Watched

FAILOVER = 30.0  # seconds; one takes about two, and the next is allowed two seconds after it
PROBE = 20.0  # seconds without a run after which a worker counts as hanging
CAREFUL = {"min_replicas_to_write": 1, "min_replicas_max_lag": 2, "repl_diskless_sync_delay": 0}


class Failovers:
    """The servers, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        self.watched = Watched(folder, sentinels=3)
        for server in (self.watched.primary, self.watched.replica):
            server.settings |= CAREFUL
        self.count = 0

    def start(self) -> None:
        self.watched.start()
        for sentinel in self.watched.sentinels:
            with sentinel.admin() as client:
                client.execute_command("SENTINEL SET", MASTER, "failover-timeout", "1000")
                client.execute_command("SENTINEL SET", MASTER, "quorum", "2")
        until(self._whole, what="a primary with its replica", within=FAILOVER)

    def kill(self) -> None:
        for server in (self.watched.primary, self.watched.replica):
            if server.process is not None:
                server.process.send_signal(signal.SIGCONT)
        self.watched.kill()

    def client(self) -> redis.Redis:
        """One that follows the primary."""
        places = [("127.0.0.1", sentinel.port) for sentinel in self.watched.sentinels]
        followed: redis.Redis = Sentinel(places, socket_timeout=2).master_for(
            MASTER, socket_timeout=5, decode_responses=True
        )
        return followed

    def primary(self) -> Server:
        """Who is it now, as the Sentinels see it."""
        with self.watched.sentinels[0].admin(decode_responses=True) as client:
            state: Any = client.sentinel_master(MASTER)
        servers = (self.watched.primary, self.watched.replica)
        return next(server for server in servers if server.port == int(state["port"]))

    def fail_over(self, *, freezing: bool) -> None:
        """The primary freezes, is replaced and wakes up; or it is killed, and comes back empty."""
        old = self.primary()
        assert old.process is not None
        if freezing:
            os.kill(old.process.pid, signal.SIGSTOP)
        else:
            old.kill()
        until(lambda: self.primary() is not old, what="another primary", within=FAILOVER)
        if freezing:
            os.kill(old.process.pid, signal.SIGCONT)
        else:
            old.start()
        until(self._whole, what="a primary with its replica", within=FAILOVER)
        self.count += 1

    def _whole(self) -> bool:
        with suppress(redis.RedisError), self.primary().admin() as client:
            facts: Any = client.info("replication")
            return facts["role"] == "master" and facts["min_slaves_good_slaves"] > 0
        return False


@contextmanager
def a_watched_site(folder: Path, nursery: Nursery) -> Iterator[tuple[Site, Failovers]]:
    """A place whose state and broker are behind Sentinels."""
    failovers = Failovers(folder / "servers")
    try:
        failovers.start()
        site = Site(folder, failovers.watched.primary.url(), nursery)
        site.redis.close()
        site.redis, site.broker = failovers.client(), failovers.watched.url
        try:
            yield site, failovers
        finally:
            site.close()
    finally:
        failovers.kill()


class FailoverStorm(Storm):
    """A storm in which only the servers are harmed. Workers that give up, or that hang, are started
    again, as a supervisor with a probe would do; a beat never gives up."""

    worker_exits = worker_hangs = 0

    def fail_over(self, failovers: Failovers) -> None:
        begun = time.monotonic()
        failovers.fail_over(freezing=self.chance.random() < 0.5)
        done = len(self.done())
        try:
            until(lambda: self._goes_on(done), what="runs after it", within=PROBE, step=0.5)
        except NotInTimeError:
            self._restart_workers()
            until(lambda: self._goes_on(done), what="runs after it", within=60, step=0.5)
        # What a worker had to report meanwhile could not be recorded, or was forgotten.
        harms = [oracle.Harm(session, begun, until=time.monotonic()) for session in self.sessions]
        self.harms += harms

    @property
    def sessions(self) -> set[int]:
        """Of all workers that there have been."""
        return {one.session for one in self.done()}

    def _goes_on(self, done: int) -> bool:
        self._revive()
        return len(self.done()) > done + 3

    def _restart_workers(self) -> None:
        """They live, but take nothing from the broker. First they leave their stacks in their logs."""
        for number, worker in enumerate(self.workers):
            worker.send(signal.SIGUSR1)
            with suppress(NotInTimeError):
                worker.until_it_says("MainThread", within=5)
            worker.end()
            self.workers[number] = self.new_worker()
            self.worker_hangs += 1

    def _revive(self) -> None:
        for number, worker in enumerate(self.workers):
            if not worker.alive:
                self.workers[number] = self.new_worker()
                self.worker_exits += 1

    def forgotten(self) -> int:
        """How often a beat noticed that the server had forgotten something."""
        return sum(beat.text().count("has forgotten what it had acknowledged") for beat in self.beats)
