"""Rules about runs that wait for a worker: a delay is not a loss, and a copy needs evidence of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.broker import Broker, Delivery
from tests.simulation.expectations import ENTRIES
from tests.simulation.records import Record, Sent

LIFETIMES = {one.name: one.options["expires"] for one in ENTRIES if "expires" in one.options}
"""Seconds in which a message of the entry has to be started."""
COUNTDOWNS = {one.name: one.options["countdown"] for one in ENTRIES if "countdown" in one.options}
"""Seconds after which a message of the entry may be started."""
SETTLED = 600_000
"""Milliseconds by which clocks may differ, and a look may be late."""


@dataclass
class QueueRules:
    """Follows every message from outside, and judges what the leader makes of runs that nobody claimed."""

    broker: Broker
    server_ms: Callable[[], int]
    fail: Callable[..., None]
    held: Callable[[str], bool]
    """Whether a worker that is well has received a message of the run, for so long that it has said so."""
    drained_to: int = 0
    """When the latest message was sent of those that workers have claimed, by the server's clock."""

    def sent(self, record: Record, delivery: Delivery) -> None:
        """The broker got a message of the run."""
        record.entry = record.entry or delivery.headers["entry"]
        record.slot_ms = record.slot_ms or delivery.slot_ms
        now = self.server_ms()  # the leader compares times of that clock
        countdown = 1000 * COUNTDOWNS.get(record.entry, 0)
        at = max(now, min(delivery.starts_at, now + countdown))
        beside = self.broker.messages[delivery.run_id] > 0
        earliest, latest = self._expiry(delivery)
        if delivery.retries and earliest:  # the task is tried again: its first message tells when it expires
            earliest = min(earliest, record.expires_claimed or earliest)
        latest = max(latest, record.sent.expires)  # the server's clock may have been put back since
        record.before, record.sent = record.sent, Sent(at, now, latest, beside)
        record.expires_first = min(record.expires_first or earliest, earliest)

    def _expiry(self, delivery: Delivery) -> tuple[int, int]:
        """Between which times the message expires, by the clock of whoever looks: its sender has its own."""
        lifetime = 1000 * LIFETIMES.get(delivery.headers["entry"], 0)
        if not lifetime:
            return 0, 0
        ends = (delivery.expires_at, self.broker.hub.now + lifetime, self.server_ms() + lifetime)
        return min(ends), max(ends)

    def claimed(self, record: Record) -> None:
        """A worker got the run: the queue drains, at least up to its message."""
        record.state, record.expires_claimed, record.expires_first = "running", record.expires_first, 0
        self.drained_to = max(self.drained_to, record.sent.queued)

    def sent_again(self, run_id: str, record: Record, *, mixed: bool) -> None:
        """The leader has sent the run again: look at what it knew. ``mixed``: that a worker without the
        plugin consumes the queue."""
        if record.state == "queued":
            self._judge_copy(run_id, record, mixed=mixed)
        if record.state:
            record.state = "queued"

    def _judge_copy(self, run_id: str, record: Record, *, mixed: bool) -> None:
        atomic = self.broker.atomic  # then the copy is with the broker already
        exists = record.sent.beside if atomic else self.broker.messages[run_id] > 0
        sent = record.before if atomic else record.sent
        if not sent.at:
            self.fail("sent again before its message was sent", *_name(record))
        elif 0 < sent.expires < min(self.broker.hub.now, self.server_ms()) - SETTLED:
            self.fail("an expired run was sent again", *_name(record))
        elif record.unclaimed and mixed:
            self.fail("executed by a worker without the plugin, and sent again", *_name(record))
        elif self.held(run_id):
            self.fail("a copy was sent of a message that a worker holds", *_name(record))
        elif exists and self.drained_to <= sent.at:
            began = self.broker.hub.start_ms
            times = f"sent at {sent.at - began}, drained to {self.drained_to - began}"
            self.fail("a copy was sent into a queue that does not drain", *_name(record), times)

    def dead(self, run_id: str, record: Record) -> None:
        """The leader has given the run up."""
        if not record.executions:
            self.fail("dead without an execution", *_name(record))
        elif record.state == "queued" and self.broker.messages[run_id] > 0:
            self.fail("dead while its message waits", *_name(record))

    def expired(self, record: Record) -> None:
        """The run was recorded as expired."""
        if not record.state:
            return  # the server has gone back to a message that we have forgotten
        now = max(self.broker.hub.now, self.server_ms())
        if not record.expires_first or record.expires_first > now + SETTLED:
            left = (record.expires_first - now) // 1000
            self.fail("recorded as expired before its time", *_name(record), left, "s left")

    def assumed(self, record: Record, *, natives: int, strangers: int) -> None:
        """The run is taken to have been executed without a report."""
        if natives:
            self.fail("assumed to have run, but workers had the plugin", *_name(record))
        if not strangers:
            self.fail("assumed to have run, but no worker was there", *_name(record))


def _name(record: Record) -> tuple[Any, ...]:
    return record.entry, record.slot_ms
