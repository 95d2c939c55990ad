"""Housekeeping: remove what has expired and what nothing refers to, a little in each tick."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from functools import partial

from celery_catchup.config.settings import Settings
from celery_catchup.engine.services import Services
from celery_catchup.events import StateSuspect
from celery_catchup.model import Instant, to_milliseconds
from celery_catchup.store.states import COLUMNS
from celery_catchup.store.store import portions

_MINUTE, _DAY = 60_000, 86_400_000
_AT_ONCE = 500
"""Runs, entries or templates of one step, because a script blocks the server."""


class Housekeeping:
    """Removes what has expired, what nothing refers to any more, and what is beyond the caps.

    Once a minute it forgets runs and skips older than ``catchup_ledger_ttl``, and changes older than
    ``catchup_audit_ttl``. A minute after a beat
    started to lead, and then once a day, it goes through the whole store, one bounded step a tick. If a
    leader cannot finish a round, the next one starts it again.
    """

    def __init__(self, services: Services, settings: Settings) -> None:
        self._services, self._settings = services, settings
        self._retention, self._leadership = services.retention, services.leadership
        self._ttl = to_milliseconds(settings.ledger_ttl)
        self._audit_ttl = to_milliseconds(settings.audit_ttl)
        self._round: Iterator[None] | None = None
        self._epoch = self._next_round = self._next_count = 0
        self._swept_at = self._position = 0
        self._more_to_sweep = False
        self._told_at: dict[str, int] = {}

    def keep_for(self, window: timedelta) -> None:
        """Keep runs longer than this window, which a stored entry has."""
        self._ttl = max(self._ttl, to_milliseconds(window) + _DAY if window else 0)

    def step(self, server_ms: int, now: Instant, *, entries: Sequence[str]) -> None:
        """Do a bounded part of what is due; ``entries`` are those with a policy."""
        self.sweep(server_ms, now, entries=entries)
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
                self._round = self._go_through(server_ms, now, entries)

    def sweep(self, server_ms: int, now: Instant, *, entries: Sequence[str]) -> None:
        """Once a minute, forget runs, skips and changes that are too old, and dead letters beyond their cap.

        While more runs are left, forget some at every tick.
        """
        due = server_ms - self._swept_at >= _MINUTE
        if due or self._more_to_sweep:
            forgotten = self._retention.trim(
                self._leadership,
                ended_before=server_ms - self._ttl,
                skipped_before=now - self._ttl,
                entries=self._next_entries(entries) if due else (),
                limit=_AT_ONCE,
            )
            self._more_to_sweep = forgotten >= _AT_ONCE
        if due:
            self._swept_at = server_ms
            self._retention.trim_audit(before=server_ms - self._audit_ttl, limit=_AT_ONCE)
            if self._settings.max_active is not None:
                self._services.active_limit.recount(self._leadership)
            most = self._settings.max_dead_letters
            discarded = self._retention.discard_oldest(most=most, limit=_AT_ONCE)
            if discarded:
                what = f"there are more than {most} dead letters (catchup_max_dead_letters)"
                self._services.events.emit(
                    StateSuspect(f"{what}; the oldest {discarded} count as failed from now on")
                )

    def _next_entries(self, entries: Sequence[str]) -> Sequence[str]:
        """Return the next of the entries, a bounded number of them."""
        some = entries[self._position : self._position + _AT_ONCE]
        self._position = self._position + _AT_ONCE if len(some) == _AT_ONCE else 0
        return some

    def _keep_to_cap(self, server_ms: int) -> None:
        """Forget runs beyond the cap once a minute, and at every tick while there are too many."""
        most = self._settings.max_ledger_runs
        forgotten = self._retention.trim_to(self._leadership, most, limit=_AT_ONCE)
        self._next_count = server_ms + (0 if forgotten == _AT_ONCE else _MINUTE)
        if forgotten:
            self._tell(server_ms, f"the ledger has more than {most} runs", "catchup_max_ledger_runs")

    def _tell(self, server_ms: int, what: str, setting: str) -> None:
        """Report a cap once a day."""
        if server_ms - self._told_at.get(setting, -_DAY) >= _DAY:
            self._told_at[setting] = server_ms
            self._services.events.emit(
                StateSuspect(f"{what} ({setting}); those that ended first are forgotten")
            )

    def _go_through(self, server_ms: int, now: Instant, entries: Sequence[str]) -> Iterator[None]:
        """Go through the store once; every step is bounded, and may be repeated."""
        yield from self._templates(server_ms)
        yield from self._backfills(server_ms)
        self._services.stored_entries.delete_finished(entries, before=now - self._ttl)
        yield from self._removed(server_ms, {*entries, *self._services.schedule})
        yield from self._too_many(server_ms, entries)
        self._retention.note_tidied(server_ms)

    def _templates(self, server_ms: int) -> Iterator[None]:
        """Mark the templates that runs use, then forget the others. A run that was there at the start of
        the round has been seen, and a later one has marked its template itself; the day is for clocks
        that jump."""
        yield from _scan(partial(self._retention.mark_templates, count=_AT_ONCE))
        used_before = server_ms - _DAY
        while self._retention.sweep_templates(self._leadership, used_before=used_before, limit=_AT_ONCE):
            yield

    def _backfills(self, server_ms: int) -> Iterator[None]:
        before = server_ms - self._ttl
        yield from _scan(
            lambda cursor: self._retention.expire_backfills(
                self._leadership, cursor, ended_before=before, count=100
            )[0]
        )

    def _removed(self, server_ms: int, present: Collection[str]) -> Iterator[None]:
        """Forget entries that are not declared any more after the lifetime of the ledger."""
        for column in COLUMNS:
            note = partial(self._retention.note_removed, column, server_ms=server_ms, count=_AT_ONCE)
            yield from _scan(partial(note, present=present))
        before = server_ms - self._ttl
        yield from _scan(
            lambda cursor: self._retention.forget_removed(
                self._leadership, cursor, removed_before=before, count=100
            )[0]
        )

    def _too_many(self, server_ms: int, entries: Sequence[str]) -> Iterator[None]:
        most = self._settings.max_ledger_runs_per_entry
        for some in portions(entries):
            while self._retention.trim_entries(self._leadership, some, most, limit=_AT_ONCE):
                self._tell(
                    server_ms, f"an entry has more than {most} runs", "catchup_max_ledger_runs_per_entry"
                )
                yield
            yield


def _scan(step: Callable[[int], int]) -> Iterator[None]:
    """Call a step with the cursor that the one before returned, until that is 0 again."""
    cursor = step(0)
    yield
    while cursor:
        cursor = step(cursor)
        yield
