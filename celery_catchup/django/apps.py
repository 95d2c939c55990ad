"""The configuration of the Django app."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save


class CatchupConfig(AppConfig):
    """Registers the app under the label ``celery_catchup``."""

    name = "celery_catchup.django"
    label = "celery_catchup"
    verbose_name = "Catch-up"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Let a change of a policy count as a change of its row, which beat follows."""
        policy = self.get_model("CatchupPolicy")
        post_save.connect(_row_changed, sender=policy)
        post_delete.connect(_row_changed, sender=policy)


def _row_changed(**_: Any) -> None:
    from django_celery_beat.models import PeriodicTasks

    PeriodicTasks.update_changed()
