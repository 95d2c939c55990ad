"""Measure the app's own broker and Redis: how fast a beat sends, and how long a worker waits for the store.

The measurement uses a namespace and a queue of its own on the same servers, and deletes both at the end,
also after an interruption. What a killed measurement leaves is deleted by the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median, quantiles
from typing import Any

import kombu
from celery import Celery
from celery.app.defaults import DEFAULTS
from celery.schedules import crontab

from celery_catchup.beat.assembly import Assembly, assemble
from celery_catchup.clock import SystemClock
from celery_catchup.config.settings import PREFIX
from celery_catchup.dispatch.dispatch_error import publish_error
from celery_catchup.error_text import shown
from celery_catchup.events import without_subscribers
from celery_catchup.model import RunState, to_milliseconds
from celery_catchup.operations.doctor.findings import Verdict
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import Actor
from celery_catchup.store.opening import store_url

_ENTRIES = 500
_TASK = "celery_catchup.bench"
_HOUR = timedelta(hours=1)
_COPIED = (f"{PREFIX}lease_ttl", f"{PREFIX}batch_size")
"""Settings of the app that the figures depend on, beside those of the broker."""
_SHARES = {"lease": 0.1, "tick": 0.1, "send_task": 0.2, "dispatch": 0.4, "runs": 0.2}
"""Parts of the time that each measurement may take."""
_MOST = 20_000
"""Calls of one measurement, however fast they are: they stay in memory."""
_FEW_PER_SECOND = 100
_LONG_TICK = 100.0
_LONG_WAIT = 20.0
_PART_OF_LEASE = 0.1

_kombu: Any = kombu  # its classes carry no types


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: a rate, or the median of several times. One time of a hundred is longer than
    ``slow``."""

    name: str
    value: float
    unit: str
    slow: float | None
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True)
class Bench:
    """The figures of an app's broker and Redis; ``verdict`` says what they mean."""

    namespace: str
    broker: str
    dispatch: str
    seconds: float
    figures: tuple[Figure, ...]
    verdict: str


def measure(operator: Operator, *, seconds: float, force: bool = False) -> Bench:
    """Measure for about ``seconds``; refuse beside a beat that leads, unless forced."""
    if not force:
        _check_idle(operator)
    begun = time.monotonic()
    app, name = _own_app(operator)
    with _clean_surroundings(app, name, operator.actor) as own, without_subscribers():
        clock = _ShiftedClock()
        work = assemble(app, own.configuration, own.resolved, schedule=own.schedule, clock=clock)
        try:
            figures = tuple(_Measurement(own, work, clock, name, seconds).figures())
            mode = str(work.sender.mode)
        finally:
            with suppress(Exception):
                work.engine.resign()
            work.close()
    slow = [one.name for one in figures if one.verdict is not Verdict.OK]
    verdict = f"Look at: {', '.join(slow)}." if slow else "Broker and Redis are fast enough for a beat."
    broker = str(operator.app.conf.broker_url).partition("://")[0] or "amqp"
    return Bench(operator.store.namespace, broker, mode, time.monotonic() - begun, figures, verdict)


def _check_idle(operator: Operator) -> None:
    leader, _ = operator.listing.leader()
    if leader:
        beat, in_flight = leader.get("owner", ""), operator.listing.counts()["leases"]
        raise RefusedError(
            f"a beat leads in namespace {shown(operator.store.namespace)} ({beat}, runs in flight: "
            f"{in_flight}), and the measurement takes its share of broker and Redis; measure another time, "
            "or add -f"
        )


def _own_app(operator: Operator) -> tuple[Any, str]:
    """Return an app on the same broker and Redis, and the name of its namespace and queue."""
    theirs, name = operator.app.conf, f"{operator.store.namespace}.bench"
    settings = {key: theirs[key] for key in DEFAULTS if key.startswith("broker_")}
    settings |= {key: theirs[key] for key in _COPIED if key in theirs}
    arguments = {"x-queue-type": "quorum"} if theirs.get("task_default_queue_type") == "quorum" else None
    queue = _kombu.Queue(name, _kombu.Exchange(""), routing_key=name, queue_arguments=arguments)
    app: Any = Celery("celery_catchup.bench", set_as_current=False, fixups=[])
    app.conf.update(
        {
            **settings,
            "catchup_redis_url": store_url(operator.app, operator.declared_configuration.settings),
            "catchup_namespace": name,
            "catchup_entries": {"*": {"window": "1d", "overlap_policy": "allow"}},
            "task_queues": [queue],
            "task_default_queue": name,
            "task_default_exchange": "",
            "task_ignore_result": True,
            "result_expires": None,
            "beat_schedule": {
                f"entry-{number}": {
                    "task": _TASK,
                    "schedule": crontab(minute="0"),
                    "args": (number,),
                    "kwargs": {"path": f"s3://bucket/{number}/data"},
                }
                for number in range(_ENTRIES)
            },
        }
    )
    return app, name


@contextmanager
def _clean_surroundings(app: Any, queue: str, actor: Actor) -> Iterator[Operator]:
    """Open the app of the measurement; delete its namespace and queue before and after."""
    own = Operator(app, actor=actor)
    try:
        _check_alone(own)
        _clean_up(own, queue)
        try:
            yield own
        finally:
            _clean_up(own, queue)
    finally:
        own.close()


def _check_alone(own: Operator) -> None:
    """Refuse while another measurement runs in the namespace; one that was killed leaves a record which
    does not change."""
    before, _ = own.listing.leader()
    if before:
        time.sleep(to_milliseconds(own.configuration.settings.lease_ttl) / 1000)
        after, _ = own.listing.leader()
        if after and after != before:
            raise RefusedError("another measurement is running in this namespace; wait for its end")


def _clean_up(own: Operator, queue: str) -> None:
    own.controls.drop_scratch()
    try:
        with own.app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)
            connection.default_channel.queue_delete(queue)
    except Exception as error:
        raise publish_error(error, where=f"queue {shown(queue)}") from error


class _ShiftedClock(SystemClock):
    """The machine's clock, which can be put forward."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


class _Measurement:
    """Drives a beat of its own, tick by tick."""

    def __init__(
        self, own: Operator, work: Assembly, clock: _ShiftedClock, queue: str, seconds: float
    ) -> None:
        self._own, self._work, self._clock, self._queue, self._seconds = own, work, clock, queue, seconds

    def figures(self) -> Iterator[Figure]:
        self._tick()
        yield self._lease()
        yield self._idle_tick()
        yield from self._dispatch()
        yield from self._runs()

    def _tick(self) -> None:
        engine = self._work.engine
        now = engine.now()
        engine.lead(now)
        engine.advance(now)
        engine.release(now)

    def _until_spent(self, what: str) -> Callable[[], bool]:
        """Return a function that tells whether the time of a measurement is used up."""
        deadline, calls = time.monotonic() + _SHARES[what] * self._seconds, iter(range(_MOST))
        return lambda: time.monotonic() >= deadline or next(calls, None) is None

    def _times(self, what: str, action: Callable[[], object]) -> list[float]:
        """Return how many milliseconds each call takes."""
        spent, found = self._until_spent(what), [_milliseconds(action), _milliseconds(action)]
        while not spent():
            found.append(_milliseconds(action))
        return found

    def _lease(self) -> Figure:
        engine = self._work.engine
        ttl = to_milliseconds(self._own.configuration.settings.lease_ttl)
        times = self._times("lease", lambda: engine.services.leadership.lead(now=engine.now()))
        fine = _slow(times) <= _PART_OF_LEASE * ttl
        detail = f"the lease lasts {ttl:,} ms, and is renewed every {ttl // 4:,} ms"
        if not fine:
            detail += f"; set {PREFIX}lease_ttl to {max(3, round(_slow(times) / 1000 / _PART_OF_LEASE))}s"
        return _timed("lease round trip", times, fine=fine, detail=detail)

    def _idle_tick(self) -> Figure:
        times = self._times("tick", self._tick)
        detail = f"{_ENTRIES} entries, none due; a live slot is sent about that long after it is due"
        return _timed("tick", times, fine=median(times) <= _LONG_TICK, detail=detail)

    def _dispatch(self) -> Iterator[Figure]:
        """Let all entries be due, hour after hour; the first messages have to be built, too."""
        bare = self._send_task()
        first, rates, spent = self._round(), list[float](), self._until_spent("dispatch")
        while not rates or not spent():
            rates.append(self._round())
        rate = median(rates)
        fine = rate >= _FEW_PER_SECOND
        detail = (
            f"after 10,000 missed slots, all messages are with the broker in about {10_000 / rate:,.0f} s "
            f"({10_000 / first:,.0f} s if beat has just started)"
        )
        if not fine:
            detail += "; beat needs a nearer broker or Redis, or more processor time"
        yield Figure("dispatch", rate, "per second", None, _verdict(fine=fine), detail)
        ratio = f"dispatch is {rate / bare:.1f} times as fast"
        detail = f"send_task in a loop, not recorded and not confirmed; {ratio}"
        yield Figure("send_task", bare, "per second", None, Verdict.OK, detail)

    def _round(self) -> float:
        """Send one run of each entry; return how many per second."""
        self._clock.ahead += _HOUR
        engine, begun = self._work.engine, time.monotonic()
        self._tick()
        while (engine.entries.next_wake() or 0) <= engine.now() or self._own.ledger.outbox(1):
            self._tick()
        rate = _ENTRIES / (time.monotonic() - begun)
        with self._own.app.connection_for_write() as connection:
            connection.default_channel.queue_purge(self._queue)
        return rate

    def _send_task(self) -> float:
        app, spent, count = self._own.app, self._until_spent("send_task"), 0
        with app.connection_for_write() as connection:
            producer = app.amqp.Producer(connection)
            app.send_task(_TASK, (0,), {}, producer=producer, queue=self._queue)
            begun = time.monotonic()
            while not count or not spent():
                kwargs = {"path": f"s3://bucket/{count}/data"}
                app.send_task(_TASK, (count,), kwargs, producer=producer, queue=self._queue)
                count += 1
            seconds = time.monotonic() - begun
            connection.default_channel.queue_purge(self._queue)
        return count / seconds

    def _runs(self) -> Iterator[Figure]:
        """Claim and finish runs as a worker does."""
        leases, ledger, claims, reports = self._own.leases, self._own.ledger, list[float](), list[float]()
        spent = self._until_spent("runs")
        open_runs = ((name, run_id) for name in self._own.schedule for run_id in ledger.active(name))
        for name, run_id in open_runs:
            who: dict[str, Any] = {"owner": "bench", "entry": name}
            claims.append(_milliseconds(lambda: leases.claim(run_id, task=_TASK, worker="bench", **who)))  # noqa: B023
            ended = RunState.SUCCEEDED
            reports.append(_milliseconds(lambda: leases.finish(run_id, state=ended, **who)))  # noqa: B023
            if spent() and len(reports) > 1:
                break
        for what, times, detail in (
            ("claim", claims, "a task of a run starts that much later than an ordinary one"),
            (
                "finish",
                reports,
                "the end of a run is recorded; the worker fetches the next message meanwhile",
            ),
        ):
            fine = median(times) <= _LONG_WAIT
            advice = "" if fine else "; workers need a nearer Redis"
            yield _timed(what, times, fine=fine, detail=f"{detail}{advice}")


def _timed(name: str, times: list[float], *, fine: bool, detail: str) -> Figure:
    return Figure(name, round(median(times), 2), "ms", round(_slow(times), 2), _verdict(fine=fine), detail)


def _verdict(*, fine: bool) -> Verdict:
    return Verdict.OK if fine else Verdict.WARNING


def _slow(times: list[float]) -> float:
    return quantiles(times, n=100, method="inclusive")[-1]


def _milliseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1000
