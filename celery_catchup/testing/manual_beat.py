"""Tick a beat by hand in tests: the real scheduler's parts, on the test's own server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from celery_catchup.beat.assembly import assemble
from celery_catchup.error_text import did_you_mean, shown
from celery_catchup.model import Instant, RunState, to_datetime, to_instant, to_milliseconds
from celery_catchup.operations.operator import Operator
from celery_catchup.store import Actor, Leases, Ledger, Origin
from celery_catchup.testing.fake_clock import FakeClock

_LONGEST_STEP = 60_000
"""Milliseconds between two ticks of an idle beat, at most."""


@dataclass(frozen=True, slots=True)
class SentRun:
    """A run as a test sees it."""

    scheduled_time: datetime
    is_catchup: bool
    trigger: str
    state: str
    run_id: str


@dataclass(frozen=True, slots=True)
class SkippedSlots:
    """Slots that did not run, and the reason."""

    first: datetime
    last: datetime
    count: int
    reason: str


class ManualBeat:
    """Plays your app's schedule by hand, within milliseconds: no task is executed, nothing is sent.

    ::

        beat = ManualBeat(app, url, at="2026-02-07T09:05:00Z")
        beat.outage(hours=3)
        assert [run.scheduled_time.hour for run in beat.runs("hourly-etl")] == [10, 11, 12]

    ``url`` is a Redis that only the test uses; the app's own broker is not touched.
    """

    def __init__(self, app: Any, url: str, *, at: datetime | str) -> None:
        self.clock = FakeClock(at)
        self._app, self._url, self._namespace = app, url, f"manual-{secrets.token_hex(4)}"
        self._start()

    def advance(self, **duration: float) -> None:
        """Let time pass while beat runs: it ticks whenever something is due."""
        end = self._now() + to_milliseconds(timedelta(**duration))
        while (now := self._now()) < end:
            wake = self._work.engine.entries.next_wake()
            following = min(end, now + _LONGEST_STEP, end if wake is None else max(wake, now + 1))
            self.clock.advance(milliseconds=following - now)
            self._tick()

    def outage(self, **duration: float) -> None:
        """Stop beat, let time pass, start it again, and let it catch up."""
        self._work.engine.resign()
        self.clock.advance(**duration)
        with self._test_server():
            self._work.close()
        self._start()

    def complete(self, entry: str, *, state: str = "succeeded") -> int:
        """End the entry's active runs, and those they release, until none is left; return their number."""
        store, ledger = self._work.store, self._ledger()
        leases = Leases(store, ttl_ms=60_000)
        ended = 0
        while active := ledger.active(entry):
            for run_id in active:
                task = (ledger.run(run_id) or {})["task"]
                leases.claim(run_id, owner="manual", task=task, worker="manual", entry=entry)
                leases.finish(run_id, entry=entry, owner="manual", state=RunState(state))
                ended += 1
        return ended

    def runs(self, entry: str) -> list[SentRun]:
        """Return the entry's runs in slot order; raise `LookupError` for an unknown entry."""
        self._check(entry)
        return [
            SentRun(
                to_datetime(run["slot"]), run["trigger"] == "catchup", run["trigger"], run["state"], run["id"]
            )
            for run in self._ledger().runs_of(entry)
        ]

    def skips(self, entry: str) -> list[SkippedSlots]:
        """Return the entry's slots that did not run; raise `LookupError` for an unknown entry."""
        self._check(entry)
        return [
            SkippedSlots(to_datetime(span["first"]), to_datetime(span["last"]), span["count"], span["reason"])
            for span in self._ledger().skips_of(entry)
        ]

    def close(self) -> None:
        """Close the connections."""
        self._work.close()

    # -- inside --------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return to_instant(self.clock.now())

    def _ledger(self) -> Ledger:
        return self._work.engine.services.ledger

    def _check(self, entry: str) -> None:
        if entry not in self._names and not self._ledger().runs_of(entry):
            known = f"(known: {', '.join(sorted(self._names))}){did_you_mean(entry, self._names)}"
            raise LookupError(f"no such entry: {shown(entry)} {known}")

    def _start(self) -> None:
        with self._test_server():
            operator = Operator(self._app, actor=Actor.of_process(Origin.PYTHON))
            self._names = set(operator.schedule)
            configuration, resolved = operator.configuration, operator.resolved
            self._work = assemble(
                self._app, configuration, resolved, schedule=operator.schedule, clock=self.clock
            )
        self._tick()

    def _tick(self) -> None:
        """Tick until nothing is left to do at this instant."""
        engine = self._work.engine
        with self._test_server():
            while True:
                now = self._now()
                engine.lead(now)
                engine.advance(now)
                engine.release(now)
                wake = engine.entries.next_wake()
                if wake is None or wake > now:
                    break
            engine.lead(now)

    @contextmanager
    def _test_server(self) -> Iterator[None]:
        """Point the app to the test's server for a moment."""
        conf = self._app.conf
        urls = ("broker_url", "broker_read_url", "broker_write_url", "catchup_redis_url")
        ours = {**dict.fromkeys(urls, self._url), "catchup_namespace": self._namespace}
        missing = object()
        before = {name: conf.get(name, missing) for name in ours}
        conf.update(ours)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is missing:
                    conf.changes.pop(name, None)
                else:
                    conf[name] = value
