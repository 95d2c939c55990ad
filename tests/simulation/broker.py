"""The broker: a queue in the order of arrival; messages that are late, doubled, redelivered or lost."""

from __future__ import annotations

import json
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from celery_catchup.dispatch import DispatchError, Mode, render
from celery_catchup.dispatch import header_names as names
from celery_catchup.engine import DispatchFailedError, Sent
from celery_catchup.model import Instant, Trigger
from celery_catchup.store import OutboxRun, Template
from tests.simulation.hub import Hub, Process
from tests.simulation.server import QUEUE

VISIBILITY = 2 * 3_600_000
"""Milliseconds after which Redis as a broker delivers an unacknowledged message again."""
RETRY = 120_000
"""Milliseconds between two looks for a worker, when none was there."""


@dataclass
class Delivery:
    """One message on its way to a worker."""

    headers: Mapping[str, Any]
    retries: int = 0
    redelivered: bool = False
    """It was with a worker before: it waits in front of the others then."""
    unknown: bool = False
    """The store does not know of it: a worker that could not claim it has handed it back, or one that has
    lost its run, or has no plugin, tries it again."""

    @property
    def run_id(self) -> str:
        """The run it belongs to; a task that only borrowed the run's headers belongs to none."""
        return "" if self.headers.get("borrowed") else str(self.headers.get(names.RUN_ID, ""))

    @property
    def slot_ms(self) -> int:
        return _instant(self.headers[names.SCHEDULED_TIME])

    @property
    def starts_at(self) -> int:
        """When a worker may start it, in milliseconds (ETA, countdown); 0 for at once."""
        return _instant(self.headers.get("eta"))

    @property
    def expires_at(self) -> int:
        """When it expires, in milliseconds; 0 for never."""
        return _instant(self.headers.get("expires"))


def _instant(text: object) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000) if isinstance(text, str) and text else 0


@dataclass
class Broker:
    """Holds messages until a worker has acknowledged them.

    ``atomic``: it is the very server the state is in, so it shares that server's outages and
    roll-backs, and redelivers by a visibility time-out; else it is another one, to which messages
    are published with confirmation, which notices a dead worker and drops expired messages.
    """

    hub: Hub
    atomic: bool
    trouble: float = 0.0
    down_until: int = 0
    slow_until: int = 0
    """Confirmations take minutes until then."""
    held: dict[int, Delivery] = field(default_factory=dict)
    messages: Counter[str] = field(default_factory=Counter)
    """How many messages of a run exist, in the queue or unacknowledged at a worker."""
    choose: Callable[[], Any] = lambda: None
    reachable: Callable[[], bool] = lambda: True
    accepted: Callable[[Delivery], None] = lambda delivery: None
    faults: dict[str, int] = field(default_factory=dict)
    _count: int = 0
    _ready: deque[int] = field(default_factory=deque)
    _unacknowledged: deque[tuple[int, int]] = field(default_factory=deque)

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
        if not self.reachable() or lost < self.trouble / 2:
            self._count_fault("not_published")
            self.hub.sleep(2500)
            raise DispatchError("unreachable", "simulated: the broker does not answer")
        self.accept(Delivery(json.loads(message)))
        if self.hub.now < self.slow_until:
            self.hub.sleep(draw.randint(4, 12) * 60_000)
        if lost < self.trouble:
            self._count_fault("unconfirmed")
            self.hub.sleep(2500)
            raise DispatchError("unreachable", "simulated: no confirmation")

    def accept(self, delivery: Delivery, *, after: int = 0) -> None:
        if not delivery.unknown:
            self.accepted(delivery)
        copies = 1
        if self.hub.random.random() < self.trouble:
            self._count_fault("doubled")
            copies = 2
        if self.hub.random.random() < self.trouble / 5:
            self._count_fault("lost_message")
            self.hub.trace("broker", "lost", delivery.headers.get("entry", ""))
            copies = 0
        for copy in range(copies):
            self._hold(delivery, after + copy * self.hub.random.randint(0, 3_600_000))

    def _hold(self, delivery: Delivery, after: int) -> None:
        self._count += 1
        number = self._count
        self.held[number] = delivery
        self.messages[delivery.run_id] += 1
        delay = self.hub.random.choice((1, 20, 400, 3000)) if self.trouble else 1
        self.hub.spawn(self.process, lambda: self._arrive(number), after=after + delay)

    def _arrive(self, number: int) -> None:
        one = self.held.get(number)
        if one is not None and one.redelivered:
            self._ready.appendleft(number)
        elif one is not None and not one.headers.get("priority"):
            self._ready.insert(self._first_of_low_priority(), number)
        else:
            self._ready.append(number)
        self.offer()

    def _first_of_low_priority(self) -> int:
        """Where a message without a priority joins: before those that come last."""
        low = (place for place, one in enumerate(self._ready) if self._is_low(one))
        return next(low, len(self._ready))

    def _is_low(self, number: int) -> bool:
        return number in self.held and bool(self.held[number].headers.get("priority"))

    def _count_fault(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    # -- out ---------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Messages in the queue, as the broker tells it: only Redis counts unacknowledged ones, too."""
        return self._held_back() if self.atomic else len(self._ready)

    def _held_back(self) -> int:
        return len(self._ready) + sum(number in self.held for _, number in self._unacknowledged)

    def offer(self) -> None:
        """Hand over what waits, oldest first, as far as workers take it."""
        while self._ready and self.reachable():
            number = self._ready[0]
            delivery = self.held.get(number)
            if delivery is not None and not self._drops(number, delivery):
                worker = self.choose()
                if worker is None:
                    return
                self._unacknowledged.append((self.hub.now + VISIBILITY, number))
                worker.receive(number, delivery)
            self._ready.popleft()

    def _drops(self, number: int, delivery: Delivery) -> bool:
        """RabbitMQ drops an expired message without a word; on Redis its worker finds out."""
        if self.atomic or not 0 < delivery.expires_at < self.hub.now:
            return False
        self._count_fault("expired")
        self.acknowledge(number)
        return True

    def begin(self) -> None:
        self.process.spawn(self._live)

    def _live(self) -> None:
        while True:
            self.hub.sleep(RETRY)
            while self._unacknowledged and self._unacknowledged[0][0] <= self.hub.now:
                _, number = self._unacknowledged.popleft()
                if self.atomic and number in self.held:
                    self._count_fault("redelivered")
                    self.give_back(number)
            self.offer()

    def acknowledge(self, number: int) -> None:
        delivery = self.held.pop(number, None)
        if delivery is not None:
            self.messages[delivery.run_id] -= 1

    def give_back(self, number: int, *, after: int = 0) -> None:
        """Its worker does not want it, or has stopped: it waits again."""
        delivery = self.held.get(number)
        if delivery is not None:
            self.acknowledge(number)
            self._hold(Delivery(delivery.headers, delivery.retries, redelivered=True), after)

    def worker_died(self, numbers: list[int]) -> None:
        """A connection that broke gives its messages back; Redis finds out after the visibility time-out."""
        if not self.atomic:
            for number in numbers:
                self.give_back(number, after=60_000)


class SimulatedDispatcher:
    """In the place of the shipped one: the same templates, without Celery and kombu behind them."""

    broker: Broker

    def __init__(self, app: Any, **_: Any) -> None:
        self.mode: Mode | None = None
        self.reason = "simulated"
        self.sent_events = SimpleNamespace(wanted=False, pushed_runs=lambda *_: None)

    @property
    def speaks_redis(self) -> bool:
        return self.broker.atomic

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
        place: dict[str, Any] = {"queue": QUEUE, "db": 0} if self.broker.atomic else {}
        if "countdown" in entry.options:
            told["eta"] = "@catchup:eta@"
            place["countdown_ms"] = round(entry.options["countdown"] * 1000)
        if "expires" in entry.options:
            told["expires"] = "@catchup:expires@"
            place["expires_ms"] = round(entry.options["expires"] * 1000)
        if "priority" in entry.options:
            told["priority"] = place["priority"] = entry.options["priority"]
        return Template(json.dumps(told), routing_key=QUEUE, queue_name=QUEUE, **place)

    def publish(
        self,
        windows: Iterable[Sequence[OutboxRun]],
        *,
        now: Instant,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[Sent]]:
        for window in windows:
            sent = list[Sent]()
            for one in window:
                sent.append(Sent(one, self._send(one, now)))
                if enough():
                    break
            yield sent

    def _send(self, one: OutboxRun, now: Instant) -> DispatchFailedError | None:
        try:
            self.broker.publish(render(one.template, one.id, one.run, now))
        except DispatchFailedError as error:
            return error
        return None

    def depth(self, queue: str, routing_key: str, priority: int = 0) -> int | None:
        return self.broker.depth if self.broker.reachable() else None

    def unmanaged_messages(self, entry: Any, *, slot: Instant, now: Instant) -> tuple[str, int, list[str]]:
        run_id = str(uuid.UUID(int=self.broker.hub.random.getrandbits(128), version=4))
        run = {"slot": slot, "trigger": "scheduler", "attempt": 1, "sends": 1}
        template = self.template(entry, policy_entry=None)
        message = render(vars(template), run_id, run, now)
        if self.broker.atomic:
            return QUEUE, 0, [message]
        self.broker.publish(message)
        return "", 0, []

    def announced(self, trigger: Trigger) -> bool:
        return False

    def close(self, **_: Any) -> None:
        """Nothing is open."""
