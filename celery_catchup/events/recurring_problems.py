"""Log a recurring problem once, then at growing intervals, and once more when it is resolved."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from celery_catchup.events import Event, TickFailed
from celery_catchup.events.log_lines import logfmt

_LOG_INTERVALS = (10.0, 60.0, 600.0)
"""Seconds between two log lines about the same problem; the last one repeats."""
_SHORTEST, _LONGEST = 1, 5
"""Seconds before the next try: short enough to recover at once, long enough to avoid a storm."""


def backoff(failures: int, *, shortest: int, longest: int) -> int:
    """Return the delay after a number of failures in a row: ``shortest``, then doubled up to ``longest``.

    The one formula for every retry of beat and the engine.
    """
    return min(shortest << min(failures - 1, 32), longest)


class RecurringProblem:
    """One kind of problem, such as an unreachable Redis."""

    def __init__(self, msg: str, *, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._msg, self._logger, self._monotonic = msg, logger, monotonic
        self._since: float | None = None
        self._next_line, self._lines, self._failures = 0.0, 0, 0

    def report(self, detail: str) -> float:
        """Log the problem if a line is due; return the seconds to wait before the next try."""
        now = self._monotonic()
        if self._since is None:
            self._since, self._next_line, self._lines, self._failures = now, now, 0, 0
        if now >= self._next_line:
            lasting = {"for": f"{now - self._since:.0f}s"} if self._lines else {}
            self._logger.error(logfmt(self._msg, error=detail, **lasting))
            self._next_line = now + _LOG_INTERVALS[min(self._lines, len(_LOG_INTERVALS) - 1)]
            self._lines += 1
        self._failures += 1
        # Jitter keeps several beats from retrying in step.
        return backoff(self._failures, shortest=_SHORTEST, longest=_LONGEST) * random.uniform(0.8, 1.2)

    def resolved(self) -> None:
        """Log that the problem is over, if there was one."""
        if self._since is not None:
            seconds = self._monotonic() - self._since
            self._logger.warning(logfmt(f"{self._msg}: over", after=f"{seconds:.0f}s"))
            self._since = None


BEAT_PROBLEMS = {
    "redis": "Redis cannot be used",
    "broker": "Broker cannot be used",
    "source": "Entries cannot be read",
    "inner": "Tick failed",
}
"""Kinds of problem that make a tick fail, and the ``msg`` of each in the log."""


class BeatProblems:
    """All kinds of problem that make a tick fail; each report is also a `TickFailed` event."""

    def __init__(
        self, emit: Callable[[Event], None], *, logger: logging.Logger, monotonic: Callable[[], float]
    ) -> None:
        self._emit = emit
        self._problems = {
            kind: RecurringProblem(msg, logger=logger, monotonic=monotonic)
            for kind, msg in BEAT_PROBLEMS.items()
        }

    def report(self, kind: str, detail: str) -> float:
        """Log the problem if a line is due; return the seconds to wait before the next try."""
        wait = self._problems[kind].report(detail)
        self._emit(TickFailed(kind, detail, wait))
        return wait

    def resolved(self, *kinds: str) -> None:
        """Log of these kinds that they are over."""
        for kind in kinds:
            self._problems[kind].resolved()
