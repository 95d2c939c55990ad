"""Simulated workers around the shipped plugin: reserve, claim, heartbeat, report. Some have no plugin."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from celery import states
from celery.app.task import Context
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import OperationalError

from celery_catchup.dispatch import header_names as names
from celery_catchup.worker_plugin import claims, outcomes, worker_process
from celery_catchup.worker_plugin.deliveries import TOKEN, new_token
from tests.simulation.broker import Broker, Delivery
from tests.simulation.expectations import HOUR, MINUTE
from tests.simulation.hub import CrashError, Hub, Process
from tests.simulation.oracle import Oracle
from tests.simulation.records import Execution
from tests.simulation.server import QUEUE

KNOWN = 3 * HOUR
"""Milliseconds in which the leader has to notice that a worker has no plugin."""
CHILD = "proj.child"
"""A task that another task starts and passes its own headers on to."""


class Post:
    """Stands for the app of one worker process: its station is kept under it."""

    def __init__(self, process: Process) -> None:
        self.process = process


class Task:
    """A task as the plugin sees it."""

    def __init__(self, post: Post | None, delivery: Delivery, token: str, *, late: bool, resend: Any) -> None:
        self.app, self.acks_late, self._resend, self.sent_back = post, late, resend, False
        self.name = delivery.headers["task"]
        self.request = Context(
            {
                **delivery.headers,
                "retries": delivery.retries,
                "hostname": post.process.name if post else "",
                "delivery_info": {
                    "routing_key": QUEUE,
                    "exchange": "",
                    "priority": delivery.headers.get("priority"),
                },
                "properties": {TOKEN: token} if token else {},
            }
        )

    def signature_from_request(self, request: Any, *, countdown: float, retries: int) -> Any:
        return Sending(self, countdown, retries)

    def resend(self, countdown: float, retries: int) -> None:
        self._resend(countdown, retries)
        self.sent_back = True


@dataclass
class Sending:
    task: Task
    countdown: float
    retries: int

    def apply_async(self) -> None:
        self.task.resend(self.countdown, self.retries)


@dataclass(eq=False)
class Reserved:
    """A message that a worker has received and not begun."""

    number: int
    delivery: Delivery
    token: str
    task: Task
    received: int

    @property
    def starts_at(self) -> int:
        return self.delivery.starts_at


@dataclass
class Fleet:
    """What the workers of one seed have in common."""

    concurrency: int = 4
    prefetch: int = 4
    plugin: bool = True
    slow_until: int = 0
    """Tasks take long until then: queues grow hours deep."""
    calm: bool = False
    everybody: list[Worker] = field(default_factory=list)

    def holders_of(self, run_id: str) -> list[Process]:
        """Processes with the plugin that have received a message of the run, and had time to say so."""
        return [
            worker.process
            for worker in self.everybody
            for one in worker.reserved
            if worker.plugin and one.delivery.run_id == run_id and worker.hub.now - one.received > HOUR
        ]

    def stranger_is_known(self) -> bool:
        """Whether a worker without the plugin has answered the leader's questions for hours."""
        return any(
            not one.plugin and one.answers and one.hub.now - one.since > KNOWN for one in self.everybody
        )


class Worker:
    """One worker: a process that reserves messages and executes some at a time; started anew when it dies."""

    def __init__(
        self, hub: Hub, name: str, clock: Any, *, app: Any, broker: Broker, oracle: Oracle, fleet: Fleet
    ) -> None:
        self.hub, self.name, self.clock, self.app = hub, name, clock, app
        self.broker, self.oracle, self.fleet = broker, oracle, fleet
        self.process = hub.supervisor
        self.plugin = fleet.plugin
        self.away = self.since = 0
        self.late = self.closing = False
        self.rate: dict[str, int] = {}
        """Milliseconds between two starts of a task (its rate limit)."""
        self._forget()

    def _forget(self) -> None:
        self.reserved: list[Reserved] = []
        self.unacknowledged: set[int] = set()
        self.revoked: set[str] = set()
        self.executing: dict[str, Execution] = {}
        self.busy = 0
        self._next_start: dict[str, int] = {}
        self._looks: set[int] = set()

    def start(self, *, supervised: bool = True) -> None:
        self.process = process = Process(self.hub, self.name, self.clock)
        process.on_death.append(self._died)
        if supervised:
            self.hub.supervise(self, process)
        self._forget()
        self.late, self.closing = self.hub.random.random() < 0.5, False
        process.notes["worker"] = self
        self.since = self.hub.now
        process.spawn(lambda: self._live(process))

    @property
    def answers(self) -> bool:
        """Whether it answers when it is asked over the broker."""
        process = self.process
        up = process.alive and "post" in process.notes and not self.closing
        return up and self.hub.now >= max(process.stopped_until, process.cut_off_until)

    @property
    def ready(self) -> bool:
        """Whether it takes another message: as many as it executes, and some ahead."""
        process = self.process
        if not process.alive or "post" not in process.notes or self.closing:
            return False
        # A message that may not start yet does not count against the limit, as in Celery.
        waiting = sum(one.starts_at <= self.hub.now for one in self.reserved)
        room = self.busy + waiting < self.fleet.concurrency * self.fleet.prefetch
        return room and self.hub.now >= process.stopped_until

    def _live(self, process: Process) -> None:
        post = Post(process)
        self.hub.trace(self.name, "started", "" if self.plugin else "without the plugin")
        if not self.plugin:
            process.notes["post"] = post
            self.oracle.strangers += 1
            self.broker.offer()
            return
        self.oracle.natives += 1
        station = worker_process.WorkerProcess(self.app, clock=self.clock)
        worker_process._processes[post] = (os.getpid(), station)
        process.notes["post"] = post
        process.notes["station"] = station
        self.broker.offer()
        while True:
            station.pulse(self.name, [QUEUE])
            self.hub.sleep(station.heartbeat.interval * 1000)

    def _died(self) -> None:
        """Messages that were not acknowledged come again; what it executed is lost."""
        self.broker.worker_died(sorted(self.unacknowledged))
        self._forget()
        self.oracle.died(self.name)

    def stop_warmly(self, *, away: int) -> None:
        """As SIGTERM does: give back what was not begun, end what was, sign off."""
        process = self.process
        if not process.alive or self.closing:
            return
        self.closing = True

        def close() -> None:
            for one in self.reserved:
                self.unacknowledged.discard(one.number)
                self.broker.give_back(one.number)
            self.reserved.clear()
            while self.busy:
                self.hub.sleep(MINUTE)
            if "station" in process.notes:
                process.notes["station"].leave(self.name)
            self.away = away
            process.die()

        process.spawn(close)

    # -- messages ----------------------------------------------------------------------------

    def receive(self, number: int, delivery: Delivery) -> None:
        """Reserve it; a message that may only start later waits here."""
        token = new_token() if self.plugin and names.RUN_ID in delivery.headers else ""
        process = self.process

        def resend(countdown: float, retries: int) -> None:
            if not self.broker.reachable():
                raise OperationalError("simulated: the broker does not answer")
            handed_back, lost = retries == delivery.retries, self.oracle.has_lost(delivery.run_id, token)
            again = Delivery(delivery.headers, retries, unknown=handed_back or lost or not self.plugin)
            self.broker.accept(again, after=round(countdown * 1000))

        post = process.notes["post"] if self.plugin else None
        task = Task(post, delivery, token, late=self.late, resend=resend)
        one = Reserved(number, delivery, token, task, self.hub.now)
        self.reserved.append(one)
        self.hub.trace(
            self.name, "receives", delivery.headers["entry"], delivery.headers[names.SCHEDULED_TIME]
        )
        self.unacknowledged.add(number)
        process.spawn(lambda: self._begin_next(process), after=max(0, one.starts_at - self.hub.now))

    def _begin_next(self, process: Process) -> None:
        """Begin what may be begun, in the order in which it came."""
        now = self.hub.now
        if self.closing or not process.alive:
            return
        for one in list(self.reserved):
            if self.busy >= self.fleet.concurrency:
                return
            name = one.task.name
            if one.starts_at > now:
                continue
            if self._next_start.get(name, 0) > now:
                self._look_again(process, self._next_start[name])
                continue
            self.reserved.remove(one)
            self._next_start[name] = now + self.rate.get(name, 0)
            self.busy += 1
            process.spawn(lambda one=one: self._work(process, one))

    def _look_again(self, process: Process, at: int) -> None:
        """Begin what may be begun at that time; one look is enough for all messages that wait for it."""
        if at not in self._looks:
            self._looks.add(at)
            process.spawn(lambda: self._begin_next(process), after=at - self.hub.now)

    def _work(self, process: Process, one: Reserved) -> None:
        if not process.alive:
            return
        redeliver = False
        if self._is_revoked(one):
            late = True
        else:
            late = self.late
            if not late:
                self._acknowledge(one.number)
            redeliver = self._execute(process, one, late=late)
        if late:
            self.unacknowledged.discard(one.number)
            if redeliver:
                self.broker.give_back(one.number, after=MINUTE)
            else:
                self.broker.acknowledge(one.number)
        self.busy -= 1
        self._begin_next(process)
        self.broker.offer()

    def _acknowledge(self, number: int) -> None:
        self.unacknowledged.discard(number)
        self.broker.acknowledge(number)

    def _is_revoked(self, one: Reserved) -> bool:
        """Whether it has expired, or somebody revoked it: then Celery says so and does not execute it."""
        delivery = one.delivery
        expired = 0 < delivery.expires_at < self.clock.wall_ms
        if not expired and delivery.headers["id"] not in self.revoked:
            return False
        self.hub.trace(self.name, "discards", delivery.headers["entry"], "expired" if expired else "revoked")
        if self.plugin:
            outcomes._on_revoked(sender=one.task, request=one.task.request, expired=expired)
        return True

    def revoke(self, task_ids: list[str], *, terminate: bool) -> None:
        """What a control message says: forget these tasks, or end them too."""
        self.revoked.update(task_ids)
        for execution in [self.executing[i] for i in task_ids if i in self.executing] if terminate else ():
            if execution.outcome:
                continue
            self.oracle.ended(execution, "terminated")
            if self.plugin:
                self.process.notes["station"].heartbeat.drop(execution.token)
                outcomes._on_revoked(sender=execution.task, request=execution.task.request, terminated=True)

    def _execute(self, process: Process, one: Reserved, *, late: bool) -> bool:
        """Execute a message as Celery does; whether it is to come again."""
        task, delivery = one.task, one.delivery
        if self.plugin:
            try:
                claims.begin(task)
            except Ignore:
                if not task.sent_back:
                    self.oracle.refused(delivery)
                return False
            except Reject as error:
                if not late:  # it was acknowledged before, so nobody delivers it again
                    self.oracle.refused(delivery)
                return bool(error.requeue)
        if task.name == CHILD:
            self.hub.sleep(MINUTE)
            self.oracle.executions += 1
            outcomes.end(task, state=states.SUCCESS, outcome=None)
            return False
        state, outcome = self._body(process, one)
        if state and self.plugin and delivery.headers.get(names.RUN_ID) is not None:
            outcomes.end(task, state=state, outcome=outcome)
        return False

    def _body(self, process: Process, one: Reserved) -> tuple[str, object]:
        """What the user's task does: it takes its time, and may fail, or want to be tried again."""
        task, delivery, draw = one.task, one.delivery, self.hub.random
        told = delivery.headers
        execution = Execution(
            entry=told["entry"],
            slot=told[names.SCHEDULED_TIME],
            run_id=told.get(names.RUN_ID, ""),
            task_id=told["id"],
            trigger=told[names.TRIGGER_TYPE],
            process=process,
            token=task.request.properties.get(TOKEN, ""),
            began=self.hub.now,
            task=task,
            plugin=self.plugin,
        )
        self.executing[execution.task_id] = execution
        self.oracle.began(execution)
        try:
            self.hub.sleep(MINUTE if self.fleet.calm else self._duration(told["entry"]))
            kinds, weights = ("success", "failure", "retry"), (90, 6, 4)
            outcome = "success" if self.fleet.calm else draw.choices(kinds, weights)[0]
        except CrashError:
            self.oracle.ended(execution, "killed")
            raise
        self.executing.pop(execution.task_id, None)
        if execution.outcome == "terminated":
            return "", None
        self.oracle.ended(execution, outcome)
        if outcome == "success" and execution.run_id and draw.random() < 0.03:
            self._start_a_child(delivery)
        if outcome == "retry" and delivery.retries < 3 and self.broker.reachable():
            task.signature_from_request(
                task.request, countdown=30.0, retries=delivery.retries + 1
            ).apply_async()
            return states.RETRY, Retry(when=30.0)
        return (states.SUCCESS, None) if outcome == "success" else (states.FAILURE, RuntimeError("simulated"))

    def _start_a_child(self, delivery: Delivery) -> None:
        """``child.apply_async(headers=self.request.headers)``: the run's headers go with it."""
        own = {"id": f"child-{self.hub.random.getrandbits(64):x}", "task": CHILD, "borrowed": True}
        self.broker.accept(Delivery({**delivery.headers, **own, "eta": "", "expires": ""}))

    def _duration(self, entry: str) -> int:
        """Milliseconds: mostly minutes, now and then longer than the lease; in slow times always long."""
        draw = self.hub.random
        if self.hub.now < self.fleet.slow_until:
            return draw.randint(40, 180) * MINUTE
        if draw.random() < (0.4 if entry in ("swap", "renew") else 0.06):
            return draw.randint(60, 300) * MINUTE
        return draw.randint(1, 12 * MINUTE)


class Control:
    """In the place of ``app.control``: broadcasts to the workers that can be reached."""

    def __init__(self, hub: Hub, broker: Broker, fleet: Fleet, oracle: Oracle) -> None:
        self.hub, self.broker, self.fleet, self.oracle = hub, broker, fleet, oracle

    def ask(self, app: Any) -> dict[str, list[str]] | None:
        """Which queues the workers consume, by name; those that are stopped do not answer."""
        self.hub.sleep(2000)
        if not self.broker.reachable():
            return None
        return {one.name: [QUEUE] for one in self.fleet.everybody if one.answers}

    def revoke(self, task_ids: Any, *, terminate: bool = False, **_: Any) -> None:
        ids = [task_ids] if isinstance(task_ids, str) else list(task_ids)
        self.hub.sleep(self.hub.random.randint(1, 5))
        if not self.broker.reachable():
            raise OperationalError("simulated: the broker does not answer")
        self.hub.trace("control", "revoke", *ids)
        self.oracle.revoked(ids, terminate=terminate)
        for worker in self.fleet.everybody:
            if worker.process.alive and worker.process.cut_off_until <= self.hub.now:
                process = worker.process
                process.spawn(lambda w=worker, p=process: p.alive and w.revoke(ids, terminate=terminate))
