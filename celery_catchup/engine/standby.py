"""Stand by: report who leads once, and a leader with another schedule while that lasts."""

from __future__ import annotations

from celery_catchup.engine.services import Services
from celery_catchup.events import StandingBy, StateSuspect
from celery_catchup.model import to_instant

_COMPARE_EVERY = 20.0
"""Seconds between two comparisons with the leader."""
_LASTING = 30_000
"""Milliseconds after which a difference counts: two beats do not read a changed row at the same time."""
_REPORT_EVERY = 3600.0
"""Seconds between two warnings about the same difference."""


class Standby:
    """Watches the leader while this beat stands by."""

    def __init__(self, services: Services, *, namespace: str) -> None:
        self._services, self._namespace = services, namespace
        self._leader = ""
        self._compare_at = self._report_at = 0.0
        self._from_start: bool | None = None

    def watch(self, leader: str, declares: str) -> None:
        """Report who leads. From the second call on, when a new leader has stored its digest, compare."""
        clock, events = self._services.clock, self._services.events
        monotonic = clock.monotonic()
        if leader != self._leader:
            # A leader that was killed keeps its lease for a while, and this beat may be its successor.
            self._leader, self._compare_at = leader, monotonic
            self._report_at, self._from_start = monotonic + self._services.leadership.ttl_ms / 1000, None
            events.emit(StandingBy(leader))
        elif monotonic >= self._compare_at:
            self._compare_at = monotonic + _COMPARE_EVERY
            now = to_instant(clock.now())
            since = self._services.leadership.record_standby(declares, now=now)
            if self._from_start is None:
                self._from_start = since is not None
            differs = since is not None and (self._from_start or now - since >= _LASTING)
            if differs and monotonic >= self._report_at:
                self._report_at = monotonic + _REPORT_EVERY
                events.emit(
                    StateSuspect(
                        "the schedule hash differs: another beat with other entries leads in namespace "
                        f"{self._namespace!r}, and this one sends nothing; set catchup_namespace if these "
                        "are two apps, else start both from the same configuration"
                    )
                )

    def over(self) -> None:
        """Stop watching: this beat leads."""
        self._leader = ""
