"""Predecessors: schedulers that an app comes from, and what each remembers of its entries."""

from celery_catchup.operations.predecessors.celery_beat import celery_beat_runs
from celery_catchup.operations.predecessors.django_celery_beat import django_celery_beat_runs
from celery_catchup.operations.predecessors.redbeat import redbeat_runs

__all__ = ["celery_beat_runs", "django_celery_beat_runs", "redbeat_runs"]
