"""Create the table of policies."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    """The table of policies, one for each periodic task at most."""

    initial = True
    dependencies: ClassVar = [("django_celery_beat", "0001_initial")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="CatchupPolicy",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("policy", models.JSONField(default=dict)),
                (
                    "periodic_task",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="catchup_policy",
                        to="django_celery_beat.periodictask",
                        verbose_name="periodic task",
                    ),
                ),
            ],
            options={"verbose_name": "catch-up policy", "verbose_name_plural": "catch-up policies"},
        ),
    ]
