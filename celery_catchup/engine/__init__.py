"""The leader's work: lead, advance, catch up, backfill, release, reap.

May import planning, store and events; knows no Celery. Start reading in `engine.py`: one tick calls
`lead`, `advance` and `release`. `tracked_entries.py` has the state of each entry during a term.
"""

from celery_catchup.engine.engine import Engine
from celery_catchup.engine.failures import Failures
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.services import Dispatch, DispatchFailedError, Sent, Services, StoredChanges
from celery_catchup.engine.tracked_entries import Declared

__all__ = [
    "Declared",
    "Dispatch",
    "DispatchFailedError",
    "Engine",
    "Failures",
    "Reaper",
    "Sent",
    "Services",
    "StoredChanges",
]
