"""Standing by: who leads is said once, and also when the leader's schedule is another one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from celery_catchup.engine.roster import Declared
from celery_catchup.events import Events, StandingBy, StateSuspect
from celery_catchup.store import States


def digest(declared: Sequence[Declared]) -> str:
    """The same for two beats with the same entries, in whatever order."""
    facts = sorted((one.name, one.task, one.fingerprint) for one in declared)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


class Standby:
    """What a beat that does not lead has said already."""

    def __init__(self, states: States, events: Events) -> None:
        self._states, self._events = states, events
        self._leader, self._compared = "", False

    def watch(self, leader: str, declared: Sequence[Declared]) -> None:
        """Say who leads. With the second look, when a new leader has noted what it declares, compare."""
        if leader != self._leader:
            self._leader, self._compared = leader, False
            self._events.emit(StandingBy(leader))
        elif not self._compared:
            self._compared = True
            theirs = self._states.load(any_schema=True).declares
            if theirs not in (None, digest(declared)):
                self._events.emit(
                    StateSuspect(
                        "the schedule hash differs: the leading beat has other entries than this one, and "
                        "its own count while it leads; start both from the same configuration"
                    )
                )

    def over(self) -> None:
        """It leads itself now."""
        self._leader = ""
