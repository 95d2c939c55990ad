"""Celery's side of beat: the scheduler, where entries come from, entries without a policy, start-up checks.

May import everything but operations and the edges (command line, Flower). Start reading in `scheduler.py`;
`assembly.py` puts store, dispatcher and engine together for one app.
"""

from typing import Any

__all__ = ["Scheduler"]


def __getattr__(name: str) -> Any:
    """Load ``Scheduler`` when it is asked for, so that modules of this room can be imported alone."""
    if name == "Scheduler":
        from celery_catchup.beat.scheduler import Scheduler

        return Scheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
