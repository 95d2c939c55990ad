"""Simulated workers around the shipped plugin: claim, heartbeat, report."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from celery import states
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry

from celery_catchup import header_names as names
from celery_catchup.plugin import claims, endings
from celery_catchup.plugin import station as stations
from tests.simulation.broker import Broker, Delivery
from tests.simulation.hub import CrashError, Hub, Process
from tests.simulation.oracle import Oracle
from tests.simulation.records import Execution

MINUTE = 60_000


class Post:
    """Stands for the app of one worker process: its station is kept under it."""

    def __init__(self, process: Process) -> None:
        self.process = process


class Task:
    """A task as the plugin sees it."""

    def __init__(self, post: Post, delivery: Delivery, *, late: bool, resend: Any) -> None:
        self.app, self.acks_late, self._resend = post, late, resend
        self.name = delivery.headers["task"]
        self.request = Context(
            {**delivery.headers, "retries": delivery.retries, "hostname": post.process.name, "properties": {}}
        )

    def signature_from_request(self, request: Any, *, countdown: float, retries: int) -> Any:
        return Sending(self._resend, countdown, retries)


@dataclass
class Sending:
    resend: Any
    countdown: float
    retries: int

    def apply_async(self) -> None:
        self.resend(self.countdown, self.retries)


class Worker:
    """One worker: a process that takes messages, any number at a time; started anew when it dies."""

    def __init__(self, hub: Hub, name: str, clock: Any, *, app: Any, broker: Broker, oracle: Oracle) -> None:
        self.hub, self.name, self.clock, self.app = hub, name, clock, app
        self.broker, self.oracle = broker, oracle
        self.process = hub.supervisor
        self.away = 0
        self.late = False
        self.calm = False
        self.taken: set[int] = set()

    def start(self) -> None:
        self.process = process = Process(self.hub, self.name, self.clock)
        process.on_death.append(self._died)
        self.hub.supervise(self, process)
        self.late = self.hub.random.random() < 0.5
        process.spawn(lambda: self._live(process))

    @property
    def ready(self) -> bool:
        process = self.process
        return process.alive and "post" in process.notes and self.hub.now >= process.stopped_until

    def _live(self, process: Process) -> None:
        post = Post(process)
        station = stations.Station(self.app, clock=self.clock)
        stations._stations[post] = (os.getpid(), station)
        process.notes["post"] = post
        self.hub.trace(self.name, "started")
        while True:
            station.pulse(self.name)
            self.hub.sleep(station.heartbeat.interval * 1000)

    def _died(self) -> None:
        """Early acknowledged messages are lost with it; the others come again."""
        for number in sorted(self.taken):
            self.broker.redeliver(number)
        self.taken.clear()
        self.oracle.died(self.name)

    # -- messages ----------------------------------------------------------------------------

    def receive(self, number: int, delivery: Delivery) -> None:
        process = self.process
        late = self.late
        if late:
            self.taken.add(number)
        else:
            self.broker.acknowledge(number)

        def work() -> None:
            redeliver = self._execute(process, delivery, late=late)
            self.taken.discard(number)
            if redeliver and late:
                self.broker.redeliver(number, after=MINUTE)
            else:
                self.broker.acknowledge(number)

        process.spawn(work)

    def _execute(self, process: Process, delivery: Delivery, *, late: bool) -> bool:
        """Execute a message as Celery does; whether it is to come again."""

        def resend(countdown: float, retries: int) -> None:
            self.broker.accept(Delivery(delivery.headers, retries), after=round(countdown * 1000))

        task = Task(process.notes["post"], delivery, late=late, resend=resend)
        try:
            claims.begin(task)
        except Ignore:
            return False
        except Reject as error:
            return bool(error.requeue)
        state, outcome = self._body(process, task, delivery, resend)
        if delivery.headers.get(names.RUN_ID) is not None:
            endings.end(task, state=state, outcome=outcome)
        return False

    def _body(self, process: Process, task: Task, delivery: Delivery, resend: Any) -> tuple[str, object]:
        """What the user's task does: it takes its time, and may fail, or want to be tried again."""
        told, draw = delivery.headers, self.hub.random
        execution = Execution(
            entry=told["entry"],
            slot=told[names.SCHEDULED_TIME],
            run_id=told.get(names.RUN_ID, ""),
            task_id=told["id"],
            trigger=told[names.TRIGGER_TYPE],
            process=process,
            token=task.request.properties.get("catchup_token", ""),
            began=self.hub.now,
        )
        self.oracle.began(execution)
        try:
            self.hub.sleep(MINUTE if self.calm else self._duration())
            outcome = "success" if self.calm else draw.choices(("success", "failure", "retry"), (90, 6, 4))[0]
        except CrashError:
            self.oracle.ended(execution, "killed")
            raise
        self.oracle.ended(execution, outcome)
        if outcome == "failure":
            return states.FAILURE, RuntimeError("simulated")
        if outcome == "retry" and delivery.retries < 3:
            resend(30.0, delivery.retries + 1)
            return states.RETRY, Retry(when=30.0)
        return (states.SUCCESS, None) if outcome == "success" else (states.FAILURE, RuntimeError("simulated"))

    def _duration(self) -> int:
        """Milliseconds: mostly minutes, now and then longer than the lease."""
        draw = self.hub.random
        if draw.random() < 0.06:
            return draw.randint(60, 300) * MINUTE
        return draw.randint(1, 12 * MINUTE)
