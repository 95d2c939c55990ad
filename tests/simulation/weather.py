"""The weather: what goes wrong, when, and for how long; all of it drawn from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.beats import Beat
from tests.simulation.expectations import ENTRIES, HOUR, MINUTE
from tests.simulation.hub import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

FROZEN = ("commit", "commit", "recover", "forget_runs", "admit")
TRAPPED = ("commit", "lead", "finish", "claim", "recover", "renew", "")
LIMITED = ("etl", "report", "feed", "cache")
STRESS = 100
"""The weight of the one misfortune that there is to be more of."""
TRAPS = ("crash_before", "crash_after", "stop_before", "stop_after", "lost_reply", "lost_request", "late")


class Weather:
    """Draws the next misfortune, lets it happen, and draws again."""

    def __init__(self, world: World, *, between: int) -> None:
        self.world, self.hub, self.between = world, world.hub, between
        self.process = Process(world.hub, "weather", None)  # type: ignore[arg-type]
        self.over = False
        self._kinds: list[tuple[Any, int]] = [
            (self.kill_a_beat, 12),
            (self.end_a_beat, 5),
            (self.kill_a_worker, 12),
            (self.stop_somebody, 10),
            (self.cut_somebody_off, 6),
            (self.worker_frozen, 3),
            (self.server_away, 4),
            (self.all_beats_away, 5),
            (self.set_a_trap, 30),
            (self.leader_frozen, 6),
            (self.frozen_before_replacing, 3),
            (self.commit_unanswered, 10),
            (self.host_clock_jumps, 3),
            (self.leader_ahead, 3),
            (self.server_clock_jumps, 2),
            (self.scripts_forgotten, 3),
            (self.somebody_acts, 14),
        ]
        self._kinds += [
            (self.workers_stopped, 4),
            (self.slow_times, 3),
            (self.rate_limited, 3),
            (self.server_away_for_long, 3),
        ]
        if not world.broker.atomic:
            self._kinds += [(self.broker_away, 6), (self.broker_away_for_long, 2), (self.slow_confirms, 5)]
        if world.climate.mixed:
            often = world.stress == "strangers_first"
            self._kinds.append((self.stranger_joins, STRESS if often else 5))
        if world.may_roll_back:
            self._kinds += [(self.take_snapshot, 12), (self.roll_back, 3), (self.forgetful_failover, 4)]

    def begin(self) -> None:
        self.process.spawn(self._live)

    def _live(self) -> None:
        kinds = [kind for kind, _ in self._kinds]
        weights = [STRESS if kind.__name__ == self.world.stress else weight for kind, weight in self._kinds]
        while not self.over:
            self.hub.sleep(self.hub.random.expovariate(1 / self.between))
            if not self.over:
                kind = self.hub.random.choices(kinds, weights)[0]
                self.world.network.count(kind.__name__)
                self.hub.trace("weather", kind.__name__)
                kind()

    def _length(self, mean: int) -> int:
        """Mostly short; every other one ends at a whole minute, where slots are."""
        draw = self.hub.random
        length = round(draw.expovariate(1 / mean)) + 1000
        if draw.random() < 0.5:
            length += MINUTE - (self.hub.now + length) % MINUTE
        return length

    def _later(self, work: Any, after: int) -> None:
        self.process.spawn(work, after=after)

    # -- beats and workers -------------------------------------------------------------------

    def kill_a_beat(self) -> None:
        beat = self.hub.random.choice(self.world.beats)
        if beat.alive:
            beat.away = self._length(30 * MINUTE)
            beat.process.die()

    def end_a_beat(self) -> None:
        beat = self.hub.random.choice(self.world.beats)
        if beat.alive:
            beat.away = self._length(HOUR)
            beat.process.notes["to_end"] = True

    def kill_a_worker(self) -> None:
        worker = self.hub.random.choice(self.world.workers)
        if worker.process.alive:
            worker.away = self._length(20 * MINUTE)
            worker.process.die()

    def all_beats_away(self) -> None:
        """An outage of the scheduler: hours, now and then longer than the windows."""
        away = self._length(4 * HOUR)
        for beat in self.world.beats:
            beat.away = away
            beat.process.die() if beat.alive else None

    def _somebody(self) -> Process:
        everybody = [one.process for one in (*self.world.beats, *self.world.workers) if one.process.alive]
        return self.hub.random.choice(everybody) if everybody else self.process

    def stop_somebody(self) -> None:
        somebody = self._somebody()
        if somebody is not self.process:
            somebody.stop(self._length(HOUR))

    def worker_frozen(self) -> None:
        """A worker stops in the midst of a task, longer than its run is leased, and goes on then."""
        busy = [one for one in self.world.workers if one.process.alive and one.executing]
        if busy:
            frozen = self.hub.random.choice(busy)
            frozen.process.stop(2 * self.world.oracle.run_lease_ms + self._length(HOUR))

    def cut_somebody_off(self) -> None:
        self._somebody().cut_off_until = self.hub.now + self._length(30 * MINUTE)

    def set_a_trap(self) -> None:
        """The next command of somebody, of that kind, meets a fault."""
        draw = self.hub.random
        trap = (draw.choice(TRAPPED), draw.choice(TRAPS), self._length(HOUR))
        self._somebody().traps.append(trap)
        self.hub.trace("weather", "trap", *trap)

    def leader_frozen(self) -> None:
        """The leader stops in the midst of a tick, longer than its lease."""
        length = 2 * self.world.oracle.lease_ms + self._length(HOUR)
        for beat in self._leaders():
            beat.process.traps.append((self.hub.random.choice(FROZEN), "stop_before", length))

    def frozen_before_replacing(self) -> None:
        """The leader stops before a run that replaces another one is recorded; its successor records it."""
        length = 2 * self.world.oracle.lease_ms + self._length(HOUR)
        entry = self.hub.random.choice([one for one in ENTRIES if one.replaces])
        slot = next(entry.slots(self.hub.now + MINUTE, self.hub.now + 4 * HOUR))

        def freeze() -> None:
            for beat in self._leaders():
                beat.process.traps.append(("commit", "stop_before", length))

        self._later(freeze, slot - MINUTE // 2 - self.hub.now)

    def commit_unanswered(self) -> None:
        """What the leader decides next is written, now or much later, and it does not hear of it."""
        for beat in self._leaders():
            fate = self.hub.random.choice(("lost_reply", "late"))
            beat.process.traps.append(("commit", fate, HOUR))

    def _leaders(self) -> list[Beat]:
        """The one that leads; none, for a while, when it died."""
        return [one for one in self.world.beats if one.alive and one.life == self.world.oracle.leader]

    # -- slow, stopped and mixed fleets ------------------------------------------------------

    def workers_stopped(self) -> None:
        """All workers stop in order: a deployment, maintenance, a fleet scaled to zero."""
        away = self.hub.random.choice((20 * MINUTE, self._length(4 * HOUR), 12 * HOUR))
        for worker in self.world.workers:
            worker.stop_warmly(away=away)

    def slow_times(self) -> None:
        """Tasks take hours: the queue grows deep, and workers hold what they have reserved."""
        self.world.fleet.slow_until = self.hub.now + 4 * HOUR + self._length(4 * HOUR)

    def rate_limited(self) -> None:
        """A task's rate limit: its messages wait inside the worker."""
        draw = self.hub.random
        worker, name = draw.choice(self.world.workers), f"proj.{draw.choice(LIMITED)}"
        worker.rate[name] = draw.randint(60, 240) * MINUTE
        self._later(lambda: worker.rate.pop(name, None), self._length(10 * HOUR))

    def stranger_joins(self) -> None:
        """A worker without the plugin consumes the queue for a while."""
        stranger = self.world.stranger
        if not stranger.process.alive or stranger.process is self.hub.supervisor:
            stranger.start(supervised=False)
            self._later(lambda: stranger.stop_warmly(away=0), self._length(6 * HOUR))

    def server_away_for_long(self) -> None:
        """Longer than runs are leased, while workers go on executing: tasks are long at that time."""
        away, fleet = self.world.oracle.run_lease_ms + self._length(HOUR), self.world.fleet
        fleet.slow_until = max(fleet.slow_until, self.hub.now + HOUR)

        def leave() -> None:
            if not self.over:
                self.world.network.down_until = self.hub.now + away

        self._later(leave, HOUR)

    def broker_away_for_long(self) -> None:
        self.world.broker.down_until = self.hub.now + 2 * HOUR + self._length(6 * HOUR)

    def slow_confirms(self) -> None:
        """After an outage the broker takes minutes to confirm each message: a tick outlasts the lease."""
        broker = self.world.broker
        broker.down_until = self.hub.now + 2 * HOUR
        broker.slow_until = broker.down_until + HOUR + self._length(2 * HOUR)

    # -- clocks ------------------------------------------------------------------------------

    def host_clock_jumps(self) -> None:
        draw, beat = self.hub.random, self.hub.random.choice(self.world.beats)
        self.world.set_clock(beat.clock, draw.choice((-1, 1)) * self._length(40 * MINUTE))
        self._later(
            lambda: self.world.set_clock(beat.clock, draw.randint(-20_000, 20_000)), self._length(2 * HOUR)
        )

    def leader_ahead(self) -> None:
        """The leader's clock runs hours ahead, and what it decides is in the future of the next leader."""
        for beat in self._leaders():
            self.world.set_clock(beat.clock, self.hub.random.randint(HOUR, 3 * HOUR))

            def mend(beat: Beat = beat) -> None:
                self.world.set_clock(beat.clock, 0)
                beat.away = 3 * HOUR
                beat.process.die()

            self._later(mend, self._length(30 * MINUTE) + 25 * MINUTE)

    def server_clock_jumps(self) -> None:
        draw = self.hub.random
        self.world.set_server_clock(draw.choice((-1, 1)) * self._length(HOUR))
        self._later(lambda: self.world.set_server_clock(0), self._length(3 * HOUR))

    # -- servers -----------------------------------------------------------------------------

    def server_away(self) -> None:
        self.world.network.down_until = self.hub.now + self._length(40 * MINUTE)

    def broker_away(self) -> None:
        self.world.broker.down_until = self.hub.now + self._length(HOUR)

    def scripts_forgotten(self) -> None:
        self.world.network.server.ask([("SCRIPT FLUSH",)])

    def take_snapshot(self) -> None:
        self.world.take_snapshot()

    def roll_back(self) -> None:
        """A fail-over that forgets; the leader may be in the midst of a tick."""
        if self.hub.random.random() < 0.6:
            self.leader_frozen()
            self.hub.sleep(self.hub.random.randint(MINUTE, 70 * MINUTE))
        self._forget()

    def _forget(self) -> None:
        """Not when the weather is over: a resume could be forgotten, and nobody would come to repeat it."""
        if not self.over:
            self.world.roll_back()

    def forgetful_failover(self) -> None:
        """A new leader stops in the midst of a tick; the server forgets that there was one, and another beat
        gets the same number."""
        leaders = self._leaders()
        if not leaders:
            return
        self.world.take_snapshot()
        leaders[0].away = 30 * MINUTE
        for beat in self.world.beats:
            if beat.alive and beat is not leaders[0]:
                beat.process.traps.append(("admit|recover|trim|fill", "stop_before", 5 * HOUR))
        leaders[0].process.die()
        for _ in range(48):
            self.hub.sleep(5 * MINUTE)
            if any(one.process.stopped_until > self.hub.now + HOUR for one in self._leaders()):
                self._forget()
                return

    # -- people ------------------------------------------------------------------------------

    def somebody_acts(self) -> None:
        self.world.operator.act()
