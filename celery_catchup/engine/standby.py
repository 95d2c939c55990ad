"""Standing by: who leads is said once; that the leader's schedule is another one, while it lasts."""

from __future__ import annotations

from celery_catchup.clock import Clock
from celery_catchup.events import Events, StandingBy, StateSuspect
from celery_catchup.model import to_instant
from celery_catchup.store import Leadership

_LOOK_EVERY = 20.0
"""Seconds between two comparisons with the leader."""
_LASTS = 30_000
"""Milliseconds after which a difference is no coincidence: two beats do not read a changed row at once."""
_SAY_EVERY = 3600.0
"""Seconds between two warnings about the same difference."""


class Standby:
    """What a beat that does not lead has noted and said already."""

    def __init__(self, leadership: Leadership, events: Events, clock: Clock, *, namespace: str) -> None:
        self._leadership, self._events, self._clock = leadership, events, clock
        self._namespace = namespace
        self._leader = ""
        self._look_at = self._say_at = 0.0
        self._first_look = False

    def watch(self, leader: str, declares: str) -> None:
        """Say who leads. From the second call on, when a new leader has noted what it declares, compare."""
        monotonic = self._clock.monotonic()
        if leader != self._leader:
            self._leader, self._look_at, self._say_at = leader, monotonic, monotonic
            self._first_look = True
            self._events.emit(StandingBy(leader))
        elif monotonic >= self._look_at:
            self._look_at = monotonic + _LOOK_EVERY
            now = to_instant(self._clock.now())
            since = self._leadership.watch(declares, now=now)
            certain = since is not None and (self._first_look or now - since >= _LASTS)
            self._first_look = False
            if certain and monotonic >= self._say_at:
                self._say_at = monotonic + _SAY_EVERY
                self._events.emit(
                    StateSuspect(
                        "the schedule hash differs: another beat with other entries leads in namespace "
                        f"{self._namespace!r}, and this one sends nothing; set catchup_namespace if these "
                        "are two apps, else start both from the same configuration"
                    )
                )

    def over(self) -> None:
        """It leads itself now."""
        self._leader = ""
