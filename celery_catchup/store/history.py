"""History: hourly counts, outages, and the last catch-up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from celery_catchup.model import Instant, SkipReason, Trigger
from celery_catchup.store.store import NUMBER_ERRORS, StorePart, is_instant

_HOUR = 3_600_000
_RING = 192  # hours that are kept, as in library.lua
_LAG, _PLACE = "lag", "hour"
_SKIPPED, _EVER = "skipped:", "ever:"


@dataclass(frozen=True)
class HourlyCounts:
    """Counts of some hours, by name: ``catchup`` and the other triggers, ``skipped:<reason>``,
    ``missed``, ``failed`` attempts, ``dead`` runs. ``lag`` is the largest, in milliseconds."""

    counts: Mapping[str, int] = field(default_factory=dict)
    lag: int | None = None

    def dispatched(self, trigger: Trigger) -> int:
        """Return the number of runs with this trigger."""
        return self.counts.get(str(trigger), 0)

    def skipped(self, *reasons: SkipReason) -> int:
        """Return the number of slots skipped for one of these reasons."""
        return sum(self.counts.get(f"{_SKIPPED}{reason}", 0) for reason in reasons)

    @property
    def missed(self) -> int:
        """The number of late slots, run or skipped."""
        return self.counts.get("missed", 0)


@dataclass(frozen=True, slots=True)
class LastCatchup:
    """A completed catch-up: its end, its first and last slot, and the numbers of runs and skips."""

    ended: Instant
    first: Instant
    last: Instant
    dispatched: int
    skipped: int


class History(StorePart):
    """Reads the counts of the scripts; each question is one round trip, however large the ledger is."""

    def counts(self, *, since: Instant) -> HourlyCounts:
        """Return the counts of all entries, from the hour of ``since`` on."""
        return _sum(self._client.hvals(self._keys.hours), since // _HOUR)

    def counts_of(self, entries: Iterable[str], *, since: Instant, now: Instant) -> dict[str, HourlyCounts]:
        """Return the counts of each entry, from the hour of ``since`` on; only these hours are read."""
        # One hour more, because the clock of the server may be ahead.
        hours = range(since // _HOUR, now // _HOUR + 2)
        places = [str(hour % _RING) for hour in hours]
        found = self._ask(entries, lambda pipe, name: pipe.hmget(self._keys.hours_of(name), places))
        return {name: _sum(texts, since // _HOUR) for name, texts in found.items()}

    def ever(self) -> dict[str, int]:
        """Return the counts since the namespace exists; these numbers only grow.

        Names as in `HourlyCounts`, and ``ended:<state>``, ``lag:<trigger>:<bound in seconds>`` and
        ``lag_ms:<trigger>``.
        """
        return {
            name.decode().removeprefix(_EVER): int(count)
            for name, count in self._client.hgetall(self._keys.hours).items()
            if name.startswith(_EVER.encode()) and count.isdigit()
        }

    def outages(self, *, since: Instant) -> list[tuple[Instant, Instant]]:
        """Return the times without a leader that ended after ``since``, oldest first."""
        found = self._client.zrangebyscore(self._keys.outages, f"({since}", "+inf")
        pairs = (text.split() for text in found)
        return [(int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(map(_is_time, pair))]


def last_catchup(scheduler: Mapping[str, str]) -> LastCatchup | None:
    """Read the last completed catch-up from the scheduler's record."""
    texts = {
        name: scheduler.get(f"last_catchup_{name}", "")
        for name in ("ended", "first", "last", "dispatched", "skipped")
    }
    if not all(_is_time(text) for text in texts.values()):
        return None
    return LastCatchup(**{name: int(text) for name, text in texts.items()})


def _is_time(text: str | bytes) -> bool:
    """Whether a text is a number of milliseconds that can be converted to a time."""
    return text.isdigit() and len(text) < 20 and is_instant(int(text))


def _page(text: bytes) -> dict[str, int]:
    """Decode the counts of an hour; empty for a count since the beginning, and for a damaged record."""
    try:
        page = {str(name): int(count) for name, count in json.loads(text).items()}
    except (*NUMBER_ERRORS, AttributeError, RecursionError):
        return {}
    return page if _PLACE in page else {}


def _sum(texts: Iterable[bytes | None], first_hour: int) -> HourlyCounts:
    counts: Counter[str] = Counter()
    lags: list[int] = []
    for page in filter(None, map(_page, filter(None, texts))):
        if page.pop(_PLACE) >= first_hour:
            lags += [page.pop(_LAG)] if _LAG in page else []
            counts.update(page)
    return HourlyCounts(dict(counts), max(lags, default=None))
