"""Events: what happened in a beat or a worker, as frozen values, and how to subscribe to them.

Logs, metrics, signals and your own code subscribe. Instants are milliseconds since 1970 UTC. May import
planning, config, timetables and the model. Start reading in `beat.py` (the events); a log line is one row
of `log_lines.py`.
"""

from celery_catchup.events.beat import (
    BackfillAdvanced,
    BeatEvent,
    CatchupCompleted,
    CatchupPlanned,
    CatchupStarted,
    EntryDrifted,
    EntryFailed,
    Leading,
    MixedFleet,
    RunDied,
    RunDispatched,
    RunExpired,
    RunResent,
    RunSkipped,
    RunUnreported,
    StandingBy,
    StateLost,
    StateSuspect,
    Ticked,
    TickFailed,
)
from celery_catchup.events.hub import CATALOGUE, Event, Events, Subscriber, notify_subscribers, subscribe
from celery_catchup.events.worker import (
    AttemptEnded,
    LeaseLost,
    ReportRefused,
    RunRefused,
    RunStarted,
    WorkerEvent,
)

__all__ = [
    "CATALOGUE",
    "AttemptEnded",
    "BackfillAdvanced",
    "BeatEvent",
    "CatchupCompleted",
    "CatchupPlanned",
    "CatchupStarted",
    "EntryDrifted",
    "EntryFailed",
    "Event",
    "Events",
    "Leading",
    "LeaseLost",
    "MixedFleet",
    "ReportRefused",
    "RunDied",
    "RunDispatched",
    "RunExpired",
    "RunRefused",
    "RunResent",
    "RunSkipped",
    "RunStarted",
    "RunUnreported",
    "StandingBy",
    "StateLost",
    "StateSuspect",
    "Subscriber",
    "TickFailed",
    "Ticked",
    "WorkerEvent",
    "notify_subscribers",
    "subscribe",
]
