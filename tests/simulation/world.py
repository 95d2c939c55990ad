"""A world: one seed's beats, workers, broker, server and weather, for a virtual week."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from celery import Celery

from celery_catchup.store import Keys
from celery_catchup.store.store import Script, all_scripts
from tests.simulation.accounts import Accounts
from tests.simulation.beats import Beat
from tests.simulation.broker import Broker, Delivery
from tests.simulation.climates import Climate
from tests.simulation.expectations import ENTRIES, HOUR, MINUTE
from tests.simulation.hub import TAIL, HostClock, Hub
from tests.simulation.network import Network
from tests.simulation.oracle import Oracle
from tests.simulation.people import Person
from tests.simulation.server import Server, on_simulated_time
from tests.simulation.shims import simulated
from tests.simulation.weather import Weather
from tests.simulation.witness import Witness
from tests.simulation.workers import Control, Fleet, Worker

START = 1_770_000_000_000 // (24 * HOUR) * 24 * HOUR
WEEK = 7 * 24 * HOUR
HEALING = 40 * HOUR
"""Time without faults at the end, in which everything has to come right."""
LEASE = 60 * MINUTE
RUN_LEASE = 90 * MINUTE
NAMESPACE = "simulated"


@dataclass(frozen=True)
class Outcome:
    """What one seed came to."""

    seed: int
    digest: str
    violation: str
    tail: tuple[str, ...]
    executions: int
    commands: int
    faults: int
    virtual_hours: float


@dataclass
class Snapshot:
    stored: list[tuple[bytes, bytes]]
    held: dict[int, Delivery]
    held_entries: frozenset[str]
    leader: str | None
    led_at: int
    at: int


class World:
    """Everything of one seed."""

    def __init__(
        self,
        seed: int,
        server: Server,
        *,
        scripts: Mapping[str, Script],
        length: int = WEEK,
        keep: int = TAIL,
        stress: str = "",
        forgive: Collection[str] = (),
    ) -> None:
        self.hub = hub = Hub(seed, start_ms=START, keep=keep)
        draw = hub.random
        self.length = length
        self.may_roll_back = seed % 3 == 0 or stress == "forgetful_failover"
        self.stress = stress
        self.broker = Broker(hub, atomic=seed % 2 == 0 or seed % 5 == 0)
        server.drained = self.broker.drained
        self.network = Network(hub, server)
        self.broker.reachable = self._broker_answers
        self.oracle = Oracle(hub, self.network, self.broker, Keys(NAMESPACE), LEASE, RUN_LEASE)
        self.broker.accepted, self.oracle.forgive = self.oracle.sent, forgive
        self.oracle.strict_plain = self.broker.atomic and not self.may_roll_back
        self.accounts = Accounts(self.oracle)
        self.witness = Witness(self.oracle)
        self.network.watchers += [self.witness.watch, self.oracle.watch]
        self.network.receivers.append(self.oracle.received)
        server.looked_at = self.oracle.looked_at
        self.oracle.max_active = 2 if stress == "all_beats_away" else (None, 2, 3)[seed % 3]
        self.app = _app(server.path, hub, max_active=self.oracle.max_active)
        skews = [draw.randint(-20_000, 20_000) for _ in range(8)]
        self.beats = [
            Beat(hub, f"beat{i}", self._clock(skews[i]), app=self.app, oracle=self.oracle)
            for i in range(draw.choice((2, 2, 3)))
        ]
        self.climate = climate = Climate.drawn(draw, stress)
        self.fleet = Fleet(climate.concurrency, climate.prefetch, plugin=climate.plugin)
        together = {"app": self.app, "broker": self.broker, "oracle": self.oracle, "fleet": self.fleet}
        self.workers = [
            Worker(hub, f"worker{i}", self._clock(skews[3 + i]), **together)
            for i in range(draw.choice((2, 2, 3)))
        ]
        self.stranger = Worker(hub, "stranger", self._clock(skews[7]), **together)
        self.stranger.plugin = False
        self.fleet.everybody = [*self.workers, self.stranger]
        self.oracle.stranger_is_known = self.fleet.stranger_is_known
        self.oracle.holders_of = self.fleet.holders_of
        self.control = self.app.control = Control(hub, self.broker, self.fleet, self.oracle)
        self.operator = Person(hub, self._clock(skews[7]), self.app)
        self.snapshots: list[Snapshot] = []
        self.broker.choose = self._a_worker
        self.weather = Weather(self, between=draw.choice((60, 90, 150)) * MINUTE)
        self._trouble = draw.choice((0.0, 0.005, 0.01, 0.02))

    def _clock(self, skew: int) -> HostClock:
        self.oracle.highest_skew = max(self.oracle.highest_skew, skew)
        return HostClock(self.hub, skew_ms=skew)

    def _broker_answers(self) -> bool:
        away = self.network.down_until if self.broker.atomic else self.broker.down_until
        return self.hub.now >= away

    def _a_worker(self) -> Worker | None:
        ready = [worker for worker in self.fleet.everybody if worker.ready]
        return self.hub.random.choice(ready) if ready else None

    # -- what the weather does ---------------------------------------------------------------

    def set_clock(self, clock: HostClock, skew_ms: int) -> None:
        clock.skew_ms = skew_ms
        self.oracle.highest_skew = max(self.oracle.highest_skew, skew_ms)

    def set_server_clock(self, skew_ms: int) -> None:
        self.network.server_skew_ms = skew_ms
        self.oracle.server_jumped_at = self.hub.now

    def take_snapshot(self) -> None:
        oracle = self.oracle
        stored = self.network.server.snapshot()
        held, entries = dict(self.broker.held), frozenset(oracle.held)
        self.snapshots.append(Snapshot(stored, held, entries, oracle.leader, oracle.led_at, self.hub.now))

    def roll_back(self) -> None:
        """The server goes back to one of the last snapshots; on an atomic broker its queue does, too."""
        if not self.snapshots:
            return
        one = self.snapshots[-1]
        self.hub.trace("weather", "rolled back by", self.hub.now - one.at)
        oracle = self.oracle
        self.accounts.archive()
        self.network.server.restore(one.stored)
        oracle.rolled_back_at, oracle.leader, oracle.led_at = self.hub.now, one.leader, 0
        oracle.watermarks, oracle.paused, oracle.held = {}, {}, set(one.held_entries)
        oracle.leases.clear()
        oracle.holders.clear()
        for record in oracle.runs.values():  # a leader that was ahead may have decided slots of the future
            record.completions, record.state, record.forgotten = 0, "", True
        if self.broker.atomic:
            for number in sorted(set(one.held) - set(self.broker.held)):
                self.broker._hold(one.held[number], 0)

    # -- living ------------------------------------------------------------------------------

    def live(self) -> None:
        """A week of weather, then a time to heal; the oracle has the last word."""
        for beat in self.beats:
            beat.start()
        for worker in self.workers:
            self.hub.spawn(self.hub.supervisor, worker.start, after=self.climate.workers_from)
        self.broker.begin()
        self.hub.run(until=START + 2 * HOUR)
        self.network.trouble = self.broker.trouble = self._trouble
        self.weather.begin()
        self.hub.run(until=START + self.length)
        self._heal()
        end = START + self.length + HEALING
        self.hub.run(until=end)
        while self.accounts.drains_slowly(until=end - 6 * HOUR) and end < START + self.length + 3 * HEALING:
            end += 2 * HOUR
            self.hub.run(until=end)
        self.accounts.conclude(until=end - 6 * HOUR)

    def _heal(self) -> None:
        self.hub.trace("weather", "is over")
        self.weather.over = True
        self.network.trouble = self.broker.trouble = 0.0
        self.network.down_until = self.broker.down_until = 0
        self.set_server_clock(0)
        for one in (*self.beats, *self.workers):
            self.set_clock(one.clock, 0)
            one.process.cut_off_until = 0
            self.hub.wake(one.process)
            one.process.traps.clear()
            one.process.notes.pop("to_end", None)
        self.fleet.calm, self.fleet.slow_until, self.broker.slow_until = True, 0, 0
        for worker in self.workers:
            worker.rate.clear()
        self.stranger.stop_warmly(away=0)
        self.operator.paused.clear()
        for name in [one.name for one in ENTRIES if one.policy]:
            self.operator.resume(name)
        # What was missed last is held when a beat leads again, which may be down for hours still.
        for hours in range(1, HEALING // HOUR, 2):
            self.hub.spawn(self.hub.supervisor, self.operator.approve_held, after=hours * HOUR)


def _app(path: str, hub: Hub, *, max_active: int | None) -> Celery:
    app = Celery("simulated", set_as_current=False)
    app.conf.update(
        broker_url=f"redis+socket://{path}",
        catchup_redis_url=f"unix://{path}",
        catchup_namespace=NAMESPACE,
        catchup_lease_ttl="60m",
        catchup_run_lease_ttl="90m",
        catchup_poll_interval="20m",
        catchup_max_active=max_active,
        beat_max_loop_interval=1200,
        beat_schedule={one.name: one.declared() for one in ENTRIES},
        catchup_entries={one.name: one.policy for one in ENTRIES if one.kind != "plain"},
    )
    app.now = lambda: hub.current.clock.now()  # type: ignore[union-attr]
    return app


class Simulator:
    """Plays seeds on one server."""

    def __init__(self, path: str) -> None:
        self.server = Server(path)
        self.world: World | None = None
        """The one that was played last; its server has its records until the next begins."""

    def close(self) -> None:
        self.server.close()

    def play(
        self,
        seed: int,
        *,
        mutant: Any = None,
        length: int = WEEK,
        keep: int = TAIL,
        stress: str = "",
        forgive: Collection[str] = (),
    ) -> Outcome:
        """One seed; with a mutant, of the package with that bug planted."""
        shipped = all_scripts()
        scripts = on_simulated_time(shipped if mutant is None else mutant.scripts(shipped))
        self.server.begin(scripts)
        before = self.server.commands
        world = World(
            seed, self.server, scripts=scripts, length=length, keep=keep, stress=stress, forgive=forgive
        )
        self.world, violation = world, ""
        with (
            simulated(world.network, world.broker, scripts, world.oracle.heard, world.control.ask),
            ExitStack() as stack,
        ):
            stack.enter_context(nullcontext() if mutant is None else mutant.planted(world))
            try:
                world.live()
            except AssertionError as error:
                violation = str(error) or repr(error)
            except Exception as error:  # noqa: BLE001 - whatever the shipped code raised is a finding
                violation = f"{type(error).__name__}: {error}"
                world.error = error
            finally:
                world.hub.abandon()
        faults = {**world.network.faults, **world.broker.faults}
        return Outcome(
            seed=seed,
            digest=world.hub.digest,
            violation=violation,
            tail=tuple(world.hub.tail),
            executions=world.oracle.executions,
            commands=self.server.commands - before,
            faults=sum(faults.values()),
            virtual_hours=(world.hub.now - START) / HOUR,
        )


@contextmanager
def private_simulator() -> Iterator[Simulator]:
    """A simulator on a server of its own, reached by a Unix socket."""
    import tempfile

    from tests.services import private_server

    with tempfile.TemporaryDirectory() as folder, private_server(socket=f"{folder}/s") as server:
        simulator = Simulator(str(server.socket))
        try:
            yield simulator
        finally:
            simulator.close()
