"""Provide Celery signals for the events that users may want to act on.

They are sent where the event happens, in beat or in a worker, with the entry's name as sender, so
that a receiver can choose one entry. Celery logs and swallows exceptions of receivers.
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

from celery_catchup.events import CatchupStarted, Event, RunDied, RunDispatched, RunSkipped, subscribe
from celery_catchup.model import to_datetime

catchup_started = Signal(
    name="catchup_started", providing_args={"entries", "candidates", "window_start", "window_end"}
)
"""Beat has found missed slots. It has no sender."""

run_dispatched = Signal(
    name="run_dispatched", providing_args={"entry", "run_id", "scheduled_time", "trigger", "is_catchup"}
)
"""A run is durable: its message is on the way, or it waits for its turn."""

run_skipped = Signal(
    name="run_skipped", providing_args={"entry", "reason", "count", "first", "last", "is_catchup"}
)
"""``count`` consecutive slots of an entry, from ``first`` to ``last``, are skipped."""

run_dead = Signal(name="run_dead", providing_args={"entry", "run_id", "scheduled_time", "reason"})
"""A run became a dead letter; sent in the worker that reported its last failure, or in beat."""


SIGNALS: dict[type, Signal] = {
    CatchupStarted: catchup_started,
    RunDispatched: run_dispatched,
    RunSkipped: run_skipped,
    RunDied: run_dead,
}
"""The event that each signal is sent for."""


def _relay(event: Event) -> None:
    match event:
        case RunDispatched() if run_dispatched.receivers:
            run_dispatched.send(
                sender=event.entry,
                entry=event.entry,
                run_id=event.run_id,
                scheduled_time=event.scheduled_time,
                trigger=str(event.trigger),
                is_catchup=event.is_catchup,
            )
        case RunSkipped(entry, skip) if run_skipped.receivers:
            run_skipped.send(
                sender=entry,
                entry=entry,
                reason=str(skip.reason),
                count=skip.count,
                first=to_datetime(skip.first),
                last=to_datetime(skip.last),
                is_catchup=event.catches_up,
            )
        case RunDied(entry, run_id, slot, reason):
            scheduled_time = to_datetime(slot)
            run_dead.send(
                sender=entry, entry=entry, run_id=run_id, scheduled_time=scheduled_time, reason=reason
            )
        case CatchupStarted(entries, candidates, start, end):
            catchup_started.send(
                sender=None,
                entries=entries,
                candidates=candidates,
                window_start=to_datetime(start),
                window_end=to_datetime(end),
            )


# Only programs that import this module pay for signals.
subscribe(_relay, *SIGNALS)
