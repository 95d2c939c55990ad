"""History for people: what happened in each hour, when nobody led, and the last catch-up."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis import Redis

from celery_catchup.model import Instant, SkipReason, Trigger
from celery_catchup.store.keys import Keys

KEPT_HOURS = 192
"""How far back hours are counted: eight days; the scripts write over what is older."""

_HOUR = 3_600_000
_LAG, _PLACE = "lag", "hour"
_SKIPPED, _EVER = "skipped:", "ever:"


@dataclass(frozen=True)
class Tally:
    """What happened in some hours, by name: ``catchup`` and the other triggers, ``skipped:<reason>``,
    ``missed``, ``failed`` attempts, ``dead`` runs. ``lag`` is the largest, in milliseconds."""

    counts: Mapping[str, int] = field(default_factory=dict)
    lag: int | None = None

    def dispatched(self, trigger: Trigger) -> int:
        """Runs that were decided on, by why they exist."""
        return self.counts.get(str(trigger), 0)

    def skipped(self, *reasons: SkipReason) -> int:
        """Slots that were decided not to run, for one of these reasons."""
        return sum(self.counts.get(f"{_SKIPPED}{reason}", 0) for reason in reasons)

    @property
    def missed(self) -> int:
        """Slots that were late, whatever was decided on them."""
        return self.counts.get("missed", 0)


@dataclass(frozen=True, slots=True)
class LastCatchup:
    """A catch-up that is through: when, the first and last slot decided on, and how many ran late."""

    ended: Instant
    first: Instant
    last: Instant
    dispatched: int
    skipped: int


class History:
    """Reads what the scripts have counted; each question is one round trip, whatever the ledger holds."""

    def __init__(self, client: Redis, keys: Keys) -> None:
        self._client, self._keys = client, keys

    def tally(self, *, since: Instant) -> Tally:
        """Of all entries, from the hour of ``since`` on."""
        return self._tallies([self._keys.hours], since)[0]

    def tallies(self, entries: Iterable[str], *, since: Instant) -> dict[str, Tally]:
        """Of each of these entries, from the hour of ``since`` on."""
        names = list(entries)
        found = self._tallies([self._keys.hours_of(name) for name in names], since)
        return dict(zip(names, found, strict=True))

    def _tallies(self, keys: Sequence[str], since: Instant) -> list[Tally]:
        if not keys:
            return []
        with self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hvals(key)
            return [_sum(texts, since // _HOUR) for texts in pipe.execute()]

    def ever(self) -> dict[str, int]:
        """What was counted since the namespace was made; these numbers only grow.

        Names as in `Tally`, and ``ended:<state>``, ``lag:<trigger>:<bound in seconds>`` and
        ``lag_ms:<trigger>``.
        """
        found: Any = self._client.hgetall(self._keys.hours)
        return {
            name.decode().removeprefix(_EVER): int(count)
            for name, count in found.items()
            if name.startswith(_EVER.encode())
        }

    def outages(self, *, since: Instant) -> list[tuple[Instant, Instant]]:
        """Times in which nobody led, of those that ended after ``since``, the oldest first."""
        found: Any = self._client.zrangebyscore(self._keys.outages, f"({since}", "+inf")
        pairs = (text.split() for text in found)
        return [
            (int(pair[0]), int(pair[1])) for pair in pairs if len(pair) == 2 and all(map(bytes.isdigit, pair))
        ]


def last_catchup(scheduler: Mapping[str, str]) -> LastCatchup | None:
    """What the scheduler's record tells of the catch-up that ended last."""
    texts = {
        name: scheduler.get(f"last_catchup_{name}", "")
        for name in ("ended", "first", "last", "dispatched", "skipped")
    }
    if not all(text.isdecimal() for text in texts.values()):
        return None
    return LastCatchup(**{name: int(text) for name, text in texts.items()})


def _page(text: bytes) -> dict[str, int]:
    """What an hour has; nothing for a number, which is counted for good, and for what is damaged."""
    try:
        page = {str(name): int(count) for name, count in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}
    return page if _PLACE in page else {}


def _sum(texts: Iterable[bytes], first_hour: int) -> Tally:
    counts: Counter[str] = Counter()
    lags: list[int] = []
    for page in filter(None, map(_page, texts)):
        if page.pop(_PLACE) >= first_hour:
            lags += [page.pop(_LAG)] if _LAG in page else []
            counts.update(page)
    return Tally(dict(counts), max(lags, default=None))
