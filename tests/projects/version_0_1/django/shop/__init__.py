"""A Django project whose periodic tasks are edited in the admin, and caught up after an outage."""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
