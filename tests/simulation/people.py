"""People: pause, resume, run by hand, backfill, replay, all through the shipped operations."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any

from redis.exceptions import RedisError

from celery_catchup.errors import CatchupError
from celery_catchup.operations import backfills, manual_runs, pauses
from celery_catchup.operations.operator import Operator
from celery_catchup.store.audit import Actor, Origin
from tests.integration.beats import by_tester
from tests.simulation.hub import HostClock, Hub, Process

PAUSABLE = ("etl", "report", "cache", "sync")
STARTED = ("report", "feed")
FILLED = ("feed", "etl", "ping")


class Person:
    """Somebody at a terminal; every command is a process of its own."""

    def __init__(self, hub: Hub, clock: HostClock, app: Any) -> None:
        self.hub, self.clock = hub, clock
        self._operator = type("Operator", (Operator,), {"clock": clock})
        self._app = app
        self.paused: set[str] = set()

    def act(self) -> None:
        """One command, whichever comes to mind."""
        draw = self.hub.random
        if self.paused and draw.random() < 0.5:
            self.resume(draw.choice(sorted(self.paused)), catchup=draw.random() < 0.8)
            return
        choice = draw.choice((self.pause, self.run, self.backfill, self.replay, self.decide_held))
        self._command(choice)

    def decide_held(self, operator: Operator) -> None:
        """Approve or discard what is held."""
        if self.hub.random.random() < 0.7:
            pauses.approve(operator, ())
        else:
            pauses.discard_held(operator, ())

    def approve_held(self) -> None:
        def approve(operator: Operator) -> None:
            pauses.approve(operator, ())

        self._command(approve)

    def resume(self, name: str, *, catchup: bool = True) -> None:
        def work(operator: Operator) -> None:
            pauses.resume(operator, [name], catchup=catchup)
            self.paused.discard(name)

        self._command(work)

    def pause(self, operator: Operator) -> None:
        name = self.hub.random.choice(PAUSABLE)
        self.paused.add(name)
        pauses.pause(operator, [name])

    def run(self, operator: Operator) -> None:
        draw = self.hub.random
        manual_runs.start_run(operator, draw.choice(STARTED), keep_missed=draw.random() < 0.3)

    def backfill(self, operator: Operator) -> None:
        draw = self.hub.random
        end = self.clock.now() - timedelta(hours=draw.randint(0, 20))
        asked = backfills.BackfillRequest(
            entry=draw.choice(FILLED),
            start=end - timedelta(hours=draw.randint(1, 12)),
            end=end,
            max_active=draw.randint(1, 2),
            newest_first=draw.random() < 0.5,
        )
        backfills.create_backfill(operator, asked)

    def replay(self, operator: Operator) -> None:
        letters = [run for run, _, _ in islice(operator.listing.dead(), 3)]
        if letters:
            one = self.hub.random.choice(letters)
            operator.controls.replay(one["id"], change=by_tester(), entry=one["entry"])

    def _command(self, work: Any) -> None:
        process = Process(self.hub, "operator", self.clock)

        def run() -> None:
            self.hub.trace("operator", work.__name__)
            try:
                work(self._operator(self._app, actor=Actor("operator", Origin.CLI)))
            except (RedisError, OSError, CatchupError) as error:
                self.hub.trace("operator", "failed", type(error).__name__)

        process.spawn(run)
