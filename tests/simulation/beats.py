"""Simulated beats: the shipped scheduler, ticked by the hub."""

from __future__ import annotations

from typing import Any

from celery_catchup.beat.scheduler import Scheduler
from tests.simulation.hub import HostClock, Hub, Process
from tests.simulation.oracle import Oracle


class Beat:
    """One place where a beat runs; started anew when it dies."""

    def __init__(self, hub: Hub, name: str, clock: HostClock, *, app: Any, oracle: Oracle) -> None:
        self.hub, self.name, self.clock, self.app, self.oracle = hub, name, clock, app, oracle
        self.process = hub.supervisor
        self.away = 0
        self.lives = 0
        self._scheduler = type("Scheduler", (Scheduler,), {"clock": clock})

    @property
    def alive(self) -> bool:
        return self.process.alive and "life" in self.process.notes

    @property
    def life(self) -> str:
        """Which of its processes it is now."""
        return str(self.process.notes.get("life", ""))

    def start(self) -> None:
        self.lives += 1
        self.process = process = Process(self.hub, self.name, self.clock)
        process.notes["life"] = f"{self.name}.{self.lives}"
        self.oracle.beats[self.life] = process
        self.hub.supervise(self, process)
        process.spawn(lambda: self._live(process))

    def _live(self, process: Process) -> None:
        self.hub.trace(self.name, "started")
        scheduler = self._scheduler(self.app)
        happened = scheduler._problems.report

        def trouble(kind: str, detail: str) -> float:
            if kind == "inner":
                self.oracle.fail("an error that nobody expected", detail)
            wait: float = happened(kind, detail)
            return wait

        scheduler._problems.report = trouble
        while not process.notes.get("to_end"):
            process.notes["tick"] = self.clock.wall_ms
            self.hub.sleep(max(1.0, scheduler.tick() * 1000))
        scheduler.close()
        process.die()
