"""Predecessors: schedulers that an app comes from, and what each remembers of its entries."""

from celery_catchup.operations.predecessors.django import django_runs
from celery_catchup.operations.predecessors.redbeat import redbeat_runs
from celery_catchup.operations.predecessors.shelved import shelved_runs

__all__ = ["django_runs", "redbeat_runs", "shelved_runs"]
