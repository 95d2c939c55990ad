"""What the oracle writes down: executions, runs, and broken promises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tests.simulation.hub import Process


class ViolationError(AssertionError):
    """A promise was broken; the text says which."""


@dataclass(eq=False)
class Execution:
    """A task's body, from its beginning to its end."""

    entry: str
    slot: str
    run_id: str
    task_id: str
    trigger: str
    process: Process
    token: str
    began: int
    task: Any = None
    plugin: bool = True
    outcome: str = ""

    @property
    def slot_ms(self) -> int:
        return round(datetime.fromisoformat(self.slot).timestamp() * 1000)


@dataclass(frozen=True)
class Sent:
    """The latest message of a run, as its broker knows it."""

    at: int = 0
    """When the broker got it, or when it may start if it has an ETA, by the server's clock; 0 for never."""
    queued: int = 0
    """When the broker got it."""
    expires: int = 0
    """When it expires; 0 for never."""
    beside: bool = False
    """Whether there was an older message of the run."""


@dataclass
class Record:
    """What is known of one run from outside."""

    entry: str = ""
    slot_ms: int = 0
    trigger: str = ""
    completions: int = 0
    allowed: int = 1
    failures: int = 0
    closed: bool = False
    succeeded: int = 0
    reopened: bool = False
    forgotten: bool = False
    """Whether the server went back to before its decision, and it was not decided again."""
    executions: int = 0
    unclaimed: int = 0
    """Executions by workers without the plugin."""
    state: str = "queued"
    """As far as answers of the server tell it: queued, running, waiting; "" after a roll-back."""
    sent: Sent = Sent()
    before: Sent = Sent()
    """The same, as it was before that."""
    expires_first: int = 0
    """When the first of its messages since it was last claimed expires, by the earliest of the clocks."""
    expires_claimed: int = 0
    """The same of the message with which it was claimed."""
