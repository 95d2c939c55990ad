"""Read the last runs that other schedulers have stored, one file per scheduler.

Imports `import_state.py`, which takes the last runs over; start reading there.
"""

from celery_catchup.operations.predecessors.celery_beat import celery_beat_runs
from celery_catchup.operations.predecessors.django_celery_beat import django_celery_beat_runs
from celery_catchup.operations.predecessors.redbeat import redbeat_runs

__all__ = ["celery_beat_runs", "django_celery_beat_runs", "redbeat_runs"]
