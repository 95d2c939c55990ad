"""The broker: messages that are late, doubled, out of order, redelivered or lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from celery_catchup import header_names as names
from celery_catchup.dispatch import DispatchError, Mode, render
from celery_catchup.model import Instant
from celery_catchup.store import Template
from tests.simulation.hub import Hub, Process
from tests.simulation.server import QUEUE

REDELIVERY = 2 * 3_600_000
"""Milliseconds after which an unacknowledged message comes again."""
RETRY = 120_000
"""Milliseconds between two looks for a worker, when none was there."""


@dataclass
class Delivery:
    """One message on its way to a worker."""

    headers: Mapping[str, Any]
    retries: int = 0
    redelivered: bool = False


@dataclass
class Broker:
    """Holds messages until a worker takes them.

    ``atomic``: it is the very server the state is in, so it shares that server's outages and
    roll-backs; else it is another one, to which messages are published with confirmation.
    """

    hub: Hub
    atomic: bool
    trouble: float = 0.0
    down_until: int = 0
    held: dict[int, Delivery] = field(default_factory=dict)
    choose: Callable[[], Any] = lambda: None
    published: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    _count: int = 0
    _parked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.process = Process(self.hub, "broker", None)  # type: ignore[arg-type]

    # -- in ----------------------------------------------------------------------------------

    def drained(self, messages: list[bytes]) -> None:
        """A script has pushed these."""
        for message in messages:
            self.accept(Delivery(json.loads(message)))

    def publish(self, message: str) -> None:
        """As kombu does it with confirmation; whether the message arrived is not always known."""
        draw = self.hub.random
        lost = draw.random()
        self.hub.sleep(draw.randint(1, 5))
        if self.hub.now < self.down_until or lost < self.trouble / 2:
            self._count_fault("not_published")
            self.hub.sleep(2500)
            raise DispatchError("unreachable", "simulated: the broker does not answer")
        self.accept(Delivery(json.loads(message)))
        if lost < self.trouble:
            self._count_fault("unconfirmed")
            self.hub.sleep(2500)
            raise DispatchError("unreachable", "simulated: no confirmation")

    def accept(self, delivery: Delivery, *, after: int = 0) -> None:
        self.published += 1
        copies = 1
        if self.hub.random.random() < self.trouble:
            self._count_fault("doubled")
            copies = 2
        if self.hub.random.random() < self.trouble / 5:
            self._count_fault("lost_message")
            copies = 0
        for copy in range(copies):
            self._hold(delivery, after + copy * self.hub.random.randint(0, 3_600_000))

    def _hold(self, delivery: Delivery, after: int) -> None:
        self._count += 1
        number = self._count
        self.held[number] = delivery
        delay = self.hub.random.choice((1, 20, 400, 3000)) if self.trouble else 1
        self.hub.spawn(self.process, lambda: self._hand_over(number), after=after + delay)

    def _count_fault(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    # -- out ---------------------------------------------------------------------------------

    def _hand_over(self, number: int) -> None:
        """Give it to a worker, as soon as there is one."""
        worker = self.choose() if self.hub.now >= self.down_until else None
        if worker is None:
            self._parked.append(number)
        elif number in self.held:
            worker.receive(number, self.held[number])

    def begin(self) -> None:
        self.process.spawn(self._live)

    def _live(self) -> None:
        while True:
            self.hub.sleep(RETRY)
            parked, self._parked = self._parked, []
            for number in parked:
                self._hand_over(number)

    def acknowledge(self, number: int) -> None:
        self.held.pop(number, None)

    def redeliver(self, number: int, *, after: int = REDELIVERY) -> None:
        """Its worker died, or did not want it."""
        delivery = self.held.pop(number, None)
        if delivery is not None:
            self._hold(Delivery(delivery.headers, delivery.retries, redelivered=True), after)

    def purge(self) -> int:
        """Somebody empties the queue."""
        count = len(self.held)
        self.held.clear()
        return count


class SimulatedDispatcher:
    """In the place of the shipped one: the same templates, without Celery and kombu behind them."""

    broker: Broker

    def __init__(self, app: Any, **_: Any) -> None:
        self.mode: Mode | None = None
        self.reason = "simulated"
        self.sent_events = SimpleNamespace(wanted=False, pushed_runs=lambda *_: None)

    def probe(self) -> None:
        self.mode = Mode.ATOMIC if self.broker.atomic else Mode.OUTBOX

    def template(
        self, entry: Any, *, policy_entry: str | None, run_id: str | None = None, run: Any = None
    ) -> Template:
        told = {
            "id": "@catchup:task_id@",
            "task": entry.task,
            "entry": entry.name,
            names.SCHEDULED_TIME: "@catchup:scheduled_time@",
            names.TRIGGER_TYPE: "@catchup:trigger_type@",
            names.IS_CATCHUP: "@catchup!is_catchup@",
            names.DATA_INTERVAL_START: "@catchup:interval_start@",
        }
        if policy_entry is not None:
            told |= {names.RUN_ID: "@catchup:run_id@", names.ENTRY: policy_entry}
        place = {"queue": QUEUE, "db": 0} if self.broker.atomic else {}
        return Template(json.dumps(told), **place)  # type: ignore[arg-type]

    def publish(
        self, template: Mapping[str, Any], run_id: str, run: Mapping[str, Any], *, now: Instant
    ) -> None:
        self.broker.publish(render(template, run_id, run, now))

    def plain(self, entry: Any, *, slot: Instant, now: Instant) -> tuple[str, int, list[str]]:
        run_id = str(uuid.UUID(int=self.broker.hub.random.getrandbits(128), version=4))
        run = {"slot": slot, "trigger": "scheduler", "attempt": 1, "sends": 1}
        template = self.template(entry, policy_entry=None)
        message = render(vars(template), run_id, run, now)
        if self.broker.atomic:
            return QUEUE, 0, [message]
        self.broker.publish(message)
        return "", 0, []

    def close(self, **_: Any) -> None:
        """Nothing is open."""
