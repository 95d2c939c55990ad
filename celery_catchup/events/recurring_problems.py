"""Troubles that pass: said once, then at growing intervals, and once more when they are over."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from celery_catchup.events import Event, TickFailed
from celery_catchup.events.log_lines import logfmt

_INTERVALS = (0.0, 10.0, 60.0, 600.0)
"""Seconds between two lines about the same trouble; the last one repeats."""
_SHORTEST, _LONGEST = 1.0, 5.0
"""Seconds to wait before the next try: soon enough to be back at once, too long for a storm."""


class RecurringProblem:
    """One kind of trouble, such as an unreachable Redis."""

    def __init__(self, what: str, *, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._what, self._logger, self._monotonic = what, logger, monotonic
        self._since: float | None = None
        self._said, self._say_at, self._tries = 0, 0.0, 0

    def report(self, detail: str) -> float:
        """Say so, if it is time to; how many seconds to wait before the next try."""
        now = self._monotonic()
        if self._since is None:
            self._since, self._said, self._say_at, self._tries = now, 0, now, 0
        if now >= self._say_at:
            waiting = {} if self._said == 0 else {"for": f"{now - self._since:.0f}s"}
            self._logger.error(logfmt(self._what, error=detail, **waiting))
            self._said += 1
            self._say_at = now + _INTERVALS[min(self._said, len(_INTERVALS) - 1)]
        self._tries += 1
        wait: float = min(_SHORTEST * 2 ** min(self._tries - 1, 4), _LONGEST)
        # Some jitter keeps many beats from asking in step.
        return wait * random.uniform(0.8, 1.2)

    def resolved(self) -> None:
        """It works again."""
        if self._since is not None:
            seconds = self._monotonic() - self._since
            self._logger.warning(logfmt(f"{self._what}: over", after=f"{seconds:.0f}s"))
            self._since = None


BEAT_PROBLEMS = {
    "redis": "Redis cannot be used",
    "broker": "Broker cannot be used",
    "source": "Entries cannot be read",
    "inner": "Tick failed",
}
"""What may keep a tick from its work, and how the log says it."""


class BeatProblems:
    """All that can keep a tick from its work; each time is also an event."""

    def __init__(
        self, tell: Callable[[Event], None], *, logger: logging.Logger, monotonic: Callable[[], float]
    ) -> None:
        self._tell = tell
        self._all = {
            what: RecurringProblem(words, logger=logger, monotonic=monotonic)
            for what, words in BEAT_PROBLEMS.items()
        }

    def report(self, what: str, detail: str) -> float:
        """Say so, if it is time to; how many seconds to wait before the next try."""
        wait = self._all[what].report(detail)
        self._tell(TickFailed(what, detail, wait))
        return wait

    def resolved(self, *whats: str) -> None:
        """These work again."""
        for what in whats:
            self._all[what].resolved()
