"""The engine: lead, advance, release, preview. The use cases; knows no Celery."""

from celery_catchup.engine.advance import Services
from celery_catchup.engine.drafts import Dispatch, DispatchFailedError
from celery_catchup.engine.engine import Engine
from celery_catchup.engine.failures import Failures
from celery_catchup.engine.reaper import Reaper
from celery_catchup.engine.tracked_entries import Declared

__all__ = [
    "Declared",
    "Dispatch",
    "DispatchFailedError",
    "Engine",
    "Failures",
    "Reaper",
    "Services",
]
