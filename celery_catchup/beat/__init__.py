"""Run under Celery's beat: the scheduler, sources of entries, entries without a policy, start-up checks.

May import everything but operations and the edges (command line, Flower). Start reading in `scheduler.py`;
`assembly.py` puts store, dispatcher and engine together for one app.
"""

from celery_catchup.beat.scheduler import Scheduler

__all__ = ["Scheduler"]
