"""A project in which each customer has a schedule."""

from reports.celery import app as celery_app

__all__ = ["celery_app"]
