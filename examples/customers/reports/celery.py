"""The Celery app of the project, as Celery's documentation has it."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "reports.settings")

app = Celery("reports")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
