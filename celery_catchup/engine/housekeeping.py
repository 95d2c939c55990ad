"""Housekeeping: everything that is kept has an end, and is looked for once a day, a little at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from celery_catchup.config.settings import Settings
from celery_catchup.events import Events, StateSuspect
from celery_catchup.store import Leadership, Retention
from celery_catchup.store.batches import portions
from celery_catchup.store.states import COLUMNS

_MINUTE, _DAY = 60_000, 86_400_000
_LOOKED_AT = 500
"""Runs, entries or templates of one step: the server answers nobody else meanwhile."""


class Housekeeping:
    """Removes what nothing refers to any more, and what is beyond the caps.

    A minute after a beat began to lead, and then once a day, it goes through the store: one bounded
    step a tick. A round that a leader could not finish is begun again by the next one.
    """

    def __init__(
        self, retention: Retention, leadership: Leadership, events: Events, settings: Settings
    ) -> None:
        self._retention, self._leadership, self._events = retention, leadership, events
        self._settings = settings
        self._ttl = round(settings.ledger_ttl.total_seconds() * 1000)
        self._round: Iterator[None] | None = None
        self._epoch = self._next_round = self._next_count = 0
        self._told_at: dict[str, int] = {}

    def step(self, server_ms: int, *, entries: Sequence[str], present: Collection[str]) -> None:
        """Do what is due, a little of it. ``entries`` are those with a policy, ``present`` all names."""
        if self._epoch != self._leadership.epoch:
            self._epoch, self._round = self._leadership.epoch, None
            self._next_round = self._next_count = server_ms + _MINUTE
        if server_ms >= self._next_count:
            self._keep_to_cap(server_ms)
        if self._round is not None:
            done = object()
            if next(self._round, done) is done:
                self._round = None
        elif server_ms >= self._next_round:
            self._next_round = max(self._retention.tidied_at() + _DAY, server_ms + _MINUTE)
            if self._next_round == server_ms + _MINUTE:
                self._round = self._go_through(server_ms, entries, {*entries, *present})

    def _keep_to_cap(self, server_ms: int) -> None:
        """Once a minute, and at every tick while there are too many runs."""
        most = self._settings.max_ledger_runs
        forgotten = self._retention.trim_to(self._leadership, most, limit=_LOOKED_AT)
        self._next_count = server_ms + (0 if forgotten == _LOOKED_AT else _MINUTE)
        if forgotten:
            self._tell(server_ms, f"the ledger has more than {most} runs", "catchup_max_ledger_runs")

    def _tell(self, server_ms: int, what: str, setting: str) -> None:
        """Once a day for each cap."""
        if server_ms - self._told_at.get(setting, -_DAY) >= _DAY:
            self._told_at[setting] = server_ms
            self._events.emit(StateSuspect(f"{what} ({setting}); those that ended first are forgotten"))

    def _go_through(self, server_ms: int, entries: Sequence[str], present: Collection[str]) -> Iterator[None]:
        """One round; every step of it is bounded, and may be repeated."""
        yield from self._templates(server_ms)
        yield from self._backfills(server_ms)
        yield from self._removed(server_ms, present)
        yield from self._too_many(server_ms, entries)
        self._retention.note_tidied(server_ms)

    def _templates(self, server_ms: int) -> Iterator[None]:
        """Mark those that runs use, then forget the others: a run that was there at the beginning has
        been seen, and one that came later has noted its template itself. The day is for clocks that jump.
        """
        cursor = self._retention.mark_templates(0, count=_LOOKED_AT)
        while cursor:
            yield
            cursor = self._retention.mark_templates(cursor, count=_LOOKED_AT)
        used_before = server_ms - _DAY
        while self._retention.sweep_templates(self._leadership, used_before=used_before, limit=_LOOKED_AT):
            yield

    def _backfills(self, server_ms: int) -> Iterator[None]:
        cursor = -1
        while cursor:
            yield
            before = server_ms - self._ttl
            cursor, _ = self._retention.expire_backfills(
                self._leadership, max(cursor, 0), ended_before=before, count=100
            )

    def _removed(self, server_ms: int, present: Collection[str]) -> Iterator[None]:
        """Entries that are not declared any more are kept as long as the ledger keeps runs."""
        for column in COLUMNS:
            cursor = -1
            while cursor:
                yield
                cursor = self._retention.note_removed(
                    column, max(cursor, 0), present, server_ms=server_ms, count=_LOOKED_AT
                )
        cursor = -1
        while cursor:
            yield
            before = server_ms - self._ttl
            cursor, _ = self._retention.forget_removed(
                self._leadership, max(cursor, 0), removed_before=before, count=100
            )

    def _too_many(self, server_ms: int, entries: Sequence[str]) -> Iterator[None]:
        most = self._settings.max_ledger_runs_per_entry
        for some in portions(entries):
            while True:
                yield
                forgotten = self._retention.trim_entries(self._leadership, some, most, limit=_LOOKED_AT)
                if not forgotten:
                    break
                self._tell(
                    server_ms, f"an entry has more than {most} runs", "catchup_max_ledger_runs_per_entry"
                )
