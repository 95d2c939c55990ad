"""Rules about runs that wait for a worker: a delay is not a loss, and a copy needs evidence of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.broker import Broker, Delivery
from tests.simulation.records import Record

SETTLED = 600_000
"""Milliseconds by which clocks may differ, and a look may be late."""


@dataclass
class QueueRules:
    """Follows every message from outside, and judges what the leader makes of runs that nobody claimed."""

    broker: Broker
    fail: Callable[..., None]
    drained_to: int = 0
    """When the latest message was sent of those that workers have claimed."""

    def sent(self, record: Record, delivery: Delivery) -> None:
        """The broker got a message of the run."""
        record.entry = record.entry or delivery.headers["entry"]
        record.slot_ms = record.slot_ms or delivery.slot_ms
        record.sent_at = max(self.broker.hub.now, delivery.starts_at)
        record.expires_at = delivery.expires_at
        record.expires_first = min(record.expires_first or delivery.expires_at, delivery.expires_at)

    def claimed(self, record: Record) -> None:
        """A worker got the run: the queue drains, at least up to its message."""
        record.state, record.expires_first = "running", 0
        self.drained_to = max(self.drained_to, record.sent_at)

    def exists(self, run_id: str) -> bool:
        """Whether a message of the run is in the queue or at a worker."""
        return self.broker.messages[run_id] > 0

    def sent_again(self, run_id: str, record: Record) -> None:
        """The leader has sent the run again: look at what it knew."""
        if record.state == "queued":
            self._judge_copy(run_id, record)
        if record.state:
            record.state = "queued"

    def _judge_copy(self, run_id: str, record: Record) -> None:
        if not record.sent_at:
            if not self.broker.atomic:
                self.fail("sent again while it is in the outbox", *_name(record))
        elif 0 < record.expires_at < self.broker.hub.now:
            self.fail("an expired run was sent again", *_name(record))
        elif record.unclaimed:
            self.fail("executed by a worker without the plugin, and sent again", *_name(record))
        elif self.exists(run_id) and self.drained_to <= record.sent_at:
            self.fail("a copy was sent into a queue that does not drain", *_name(record))

    def dead(self, run_id: str, record: Record) -> None:
        """The leader has given the run up."""
        if not record.executions:
            self.fail("dead without an execution", *_name(record))
        elif record.state == "queued" and self.exists(run_id):
            self.fail("dead while its message waits", *_name(record))

    def expired(self, record: Record) -> None:
        """The run was recorded as expired."""
        now = self.broker.hub.now
        if not record.expires_first or record.expires_first > now + SETTLED:
            self.fail("recorded as expired before its time", *_name(record))

    def assumed(self, record: Record, *, natives: int, strangers: int) -> None:
        """The run is taken to have been executed without a report."""
        if natives:
            self.fail("assumed to have run, but workers had the plugin", *_name(record))
        if not strangers:
            self.fail("assumed to have run, but no worker was there", *_name(record))


def _name(record: Record) -> tuple[Any, ...]:
    return record.entry, record.slot_ms
