"""The heartbeat of a worker process: renew the leases of its runs, and deliver reports, late ones too."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from celery_catchup.clock import Clock
from celery_catchup.events import Events, LeaseLost
from celery_catchup.events.log_lines import logfmt
from celery_catchup.events.recurring_problems import RecurringProblem
from celery_catchup.store import Leases
from celery_catchup.store.connection import explain
from celery_catchup.store.store import portions
from celery_catchup.worker_plugin.context import RunContext
from celery_catchup.worker_plugin.reports import STORE_TROUBLE, Report

logger = logging.getLogger(__name__)

MOST_REPORTS = 10_000
"""Reports kept while the store is down; beyond, the oldest is dropped and its run is executed again."""

_TICK = 2.0
"""Seconds between two checks of the thread: a chain may wait for a late report."""

_LAST_WAIT = 10.0
"""Seconds that a process with undelivered reports waits for the store before it ends."""


@dataclass(slots=True, eq=False)
class Execution:
    """One execution of a run in this process; without a lease it runs unclaimed."""

    run: RunContext
    owner: str
    shadowed: dict[str, str | None] = field(default_factory=dict)
    """Environment variables that were set for it, with their values before."""
    replaced: bool = False
    """Whether another task was sent to go on with the run."""
    limited: bool = False
    """Whether its end passes one of the places of ``catchup_max_active`` on."""

    @property
    def renewable(self) -> bool:
        """Whether there is a lease to renew."""
        return self.run.lease is not None and not self.run.lease.taken


class Heartbeat:
    """Keep the runs that this process executes alive, in a thread that starts with the first claim."""

    def __init__(
        self,
        leases: Leases,
        deliver: Callable[[Report], object],
        *,
        clock: Clock,
        interval: float,
        events: Events,
        received: Callable[[], Iterable[tuple[str, str]]] = tuple,
        send: Callable[[Report], Callable[[], object] | None] = lambda _: None,
    ) -> None:
        self._leases, self._deliver, self._clock, self._events = leases, deliver, clock, events
        self._send = send
        self._received = received
        self.interval = interval
        self._held: dict[str, Execution] = {}
        self._backlog: deque[Report] = deque(maxlen=MOST_REPORTS)
        self._sent: deque[tuple[Report, Callable[[], object]]] = deque()
        """Reports that the store has, or will have in a moment, and functions that wait for its answer."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._due = 0.0
        self.trouble = RecurringProblem("Redis cannot be used", logger=logger, monotonic=clock.monotonic)

    # -- executions ------------------------------------------------------------------------

    def hold(self, key: str, execution: Execution) -> None:
        """Renew a run from now on."""
        with self._lock:
            self._held[key] = execution
            if self._thread is None:
                self._due = self._clock.monotonic() + self.interval
                self._thread = threading.Thread(target=self._loop, name="catchup-heartbeat", daemon=True)
                self._thread.start()

    def drop(self, key: str) -> Execution | None:
        """Stop renewing; None when it was not held."""
        with self._lock:
            return self._held.pop(key, None)

    def held(self, key: str) -> Execution | None:
        """Return the execution with this key; None when this process does not execute it."""
        return self._held.get(key)

    # -- reports ---------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        """Deliver a report, now or as soon as the store can be reached."""
        self.attempt(partial(self._report, report))

    def _report(self, report: Report) -> None:
        try:
            answer = self._send(report)
        except BaseException:
            self._backlog.append(report)
            raise
        if answer is None:
            self._backlog.append(report)
            self.flush()
        else:
            self._sent.append((report, answer))

    def read_answers(self) -> None:
        """Read the answers to reports that were sent; one without an answer is delivered again."""
        while self._sent:
            try:
                report, answer = self._sent.popleft()
            except IndexError:
                return  # the other thread was faster
            try:
                answer()
            except BaseException:
                self._backlog.append(report)
                raise

    def flush(self) -> None:
        """Deliver the reports that wait; what cannot be delivered stays."""
        self.read_answers()
        for _ in range(len(self._backlog)):
            try:
                report = self._backlog.popleft()
            except IndexError:
                return  # the other thread was faster
            try:
                self._deliver(report)
            except BaseException:
                # No report is lost, even when a time limit strikes here. At the end of the queue it does
                # not hold up the others.
                self._backlog.append(report)
                raise

    def flush_before_exit(self) -> None:
        """Deliver the reports that wait, before the process ends; wait a little for a store that is down.

        Without its report a run that has ended is executed again.
        """
        deadline = self._clock.monotonic() + _LAST_WAIT
        while not self.attempt(self.flush) and self._clock.monotonic() < deadline:
            time.sleep(min(_TICK, self.interval))

    # -- beating ---------------------------------------------------------------------------

    def beat(self, others: Sequence[tuple[str, str]] = ()) -> None:
        """Deliver the reports that wait, then renew: the runs held here, ``others`` by run id and owner, and
        messages that were received and not started."""
        self.flush()
        for some in portions([one for one in list(self._held.values()) if one.renewable]):
            self._renew(some)
        for pairs in portions([*(pair for pair in others if not self.held(pair[1])), *self._received()]):
            self._leases.renew(pairs)

    def attempt(self, *actions: Callable[[], object]) -> bool:
        """Do what needs the store; log an error of the store, and return False."""
        try:
            for action in actions:
                action()
        except STORE_TROUBLE as error:
            self.trouble.report(explain(error))
            return False
        self.trouble.resolved()
        return True

    def stop(self) -> None:
        """End the thread, and wait until it has put back a report that it cannot deliver."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_LAST_WAIT)

    def _renew(self, held: list[Execution]) -> None:
        begun = self._clock.monotonic()
        lost = set(self._leases.renew([(execution.run.run_id, execution.owner) for execution in held]))
        for execution in held:
            run = execution.run
            if run.lease is None or not self.held(execution.owner):
                continue  # it ended during the renewal
            if run.run_id not in lost:
                run.lease.renewed(begun=begun)
            elif not run.lease.taken:  # the thread and the main process may both find out
                run.lease.taken = True
                self._events.emit(LeaseLost(run.entry, run.run_id, run.attempt))

    def _loop(self) -> None:
        while not self._stopped.wait(min(_TICK, self.interval)):
            try:
                self._turn()
            except Exception:
                logger.exception(logfmt("Heartbeat failed"))

    def _turn(self) -> None:
        now = self._clock.monotonic()
        if self._backlog or self._sent or (now >= self._due and self._held):
            self._due = now + self.interval if self.attempt(self.beat) else now
