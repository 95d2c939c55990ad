"""The table of policies: at most one for each row of django-celery-beat."""

from __future__ import annotations

from django.db import models
from django_celery_beat.models import PeriodicTask


class CatchupPolicy(models.Model):
    """The policy of a periodic task, as a user has written it."""

    periodic_task = models.OneToOneField(
        PeriodicTask, on_delete=models.CASCADE, related_name="catchup_policy", verbose_name="periodic task"
    )
    policy = models.JSONField(default=dict)

    class Meta:
        """Names for the admin."""

        verbose_name = "catch-up policy"
        verbose_name_plural = "catch-up policies"

    def __str__(self) -> str:
        return f"catch-up policy of {self.periodic_task.name}"
