"""The exceptions of the package, in one tree.

::

    CatchupError
    ├── ConfigurationError      one or more mistakes in the user's configuration
    ├── DurationError           text that is not a duration such as 2d12h   (a ValueError)
    ├── CronError               text that is not a cron expression          (a ValueError)
    ├── ScheduleError           a schedule that cannot be enumerated        (a ValueError)
    ├── EntryError              a stored entry cannot be changed; nothing was written
    │   ├── EntryExistsError    the name is taken, by a stored or a declared entry
    │   ├── EntryChangedError   the entry has another revision than expected
    │   └── EntryMissingError   no stored entry has this name
    ├── BackfillError           a range that cannot be backfilled; ``code`` says why
    ├── TooManySlotsError       a request about more slots than one request may have
    ├── LeaseLostError          another worker has claimed this run; raised by ``run.check()``
    ├── SourceError             the entries cannot be read now; beat retries
    ├── DriftError              persisted entries differ from declared ones, and that is refused
    └── StoreError              Redis cannot be used as it is; the message says what to do
        └── UnfitStoreError     waiting does not help; an operator must act

Every message reads "X is Y; do Z", so that it can be shown to a user unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class CatchupError(Exception):
    """The base of every exception that this package raises."""


class DurationError(CatchupError, ValueError):
    """The text is not a duration; the message says why."""


class CronError(CatchupError, ValueError):
    """The text is not a cron expression of the dialect; the message names the token."""


class ScheduleError(CatchupError, ValueError):
    """The schedule cannot say when it runs, so its slots cannot be enumerated."""


class EntryError(CatchupError):
    """A stored entry cannot be changed; nothing was written."""


class EntryExistsError(EntryError):
    """The name is taken, by a stored or a declared entry."""


class EntryChangedError(EntryError):
    """The entry has another revision than the caller expected: someone else has changed it."""


class EntryMissingError(EntryError):
    """No stored entry has this name."""


class BackfillError(CatchupError):
    """The range cannot be backfilled; ``code`` is stable, for scripts and the API."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TooManySlotsError(CatchupError):
    """The request is about more slots than one request may have; nothing was planned or changed."""


class LeaseLostError(CatchupError):
    """Another worker has claimed the run that this worker executes."""


class SourceError(CatchupError):
    """The source of the entries is unavailable; beat retries."""


class DriftError(CatchupError):
    """Persisted entries differ from declared ones, and ``catchup_on_drift`` is ``refuse``."""


class StoreError(CatchupError):
    """Redis, or the state in it, cannot be used as it is."""


class UnfitStoreError(StoreError):
    """The store cannot be used until an operator changes something; beat does not start with it."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake of a configuration or of a request: where it is, and what was expected."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class ConfigurationError(CatchupError):
    """All mistakes of a configuration at once, one line each."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        noun = "mistake" if len(self.mistakes) == 1 else "mistakes"
        lines = [f"celery_catchup: {len(self.mistakes)} {noun} in the configuration"]
        lines += [f"  {mistake}" for mistake in self.mistakes]
        super().__init__("\n".join(lines))
