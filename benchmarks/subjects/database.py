"""django-celery-beat's DatabaseScheduler on SQLite."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
from django.conf import settings

from benchmarks.subjects.trials import LONG_AGO, TASK, contest, hourly, new_app


def _configure(folder: str) -> None:
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(Path(folder) / "db.sqlite3")}
    settings.configure(
        DATABASES={"default": database}, INSTALLED_APPS=["django_celery_beat"], USE_TZ=True, TIME_ZONE="UTC"
    )
    django.setup()


def seed(*, url: str, folder: str, count: int, birds: int) -> None:
    """A database with the entries in it, all of which ran just now."""
    _configure(folder)
    from django.core.management import call_command
    from django_celery_beat.models import CrontabSchedule, PeriodicTask, PeriodicTasks

    call_command("migrate", verbosity=0)
    now = datetime.now(UTC)
    tables: dict[str, CrontabSchedule] = {}
    rows = []
    for name, entry in hourly(count).items():
        minute = str(entry["schedule"]._orig_minute)
        if minute not in tables:
            tables[minute] = CrontabSchedule.objects.create(minute=minute)
        rows.append(PeriodicTask(name=name, task=TASK, crontab=tables[minute], last_run_at=now))
    PeriodicTask.objects.bulk_create(rows, batch_size=500)
    PeriodicTasks.update_changed()


class Database:
    """It asks the database at every tick whether something changed, and sends one entry per tick."""

    sends_all_in_a_tick = False

    def __init__(self, url: str, folder: str) -> None:
        self.app = new_app(url, folder)
        self.scheduler: Any = None

    def start(self) -> None:
        from django_celery_beat.schedulers import DatabaseScheduler

        DatabaseScheduler(self.app, lazy=True)
        self.scheduler = DatabaseScheduler(self.app)

    def one_due(self, index: int) -> None:
        self._due(self.scheduler.schedule[f"entry-{index}"])
        self.scheduler.populate_heap()

    def all_due(self) -> int:
        entries = list(self.scheduler.schedule.values())
        for entry in entries:
            self._due(entry)
        self.scheduler.populate_heap()
        return len(entries)

    def _due(self, entry: Any) -> None:
        entry.last_run_at = entry.model.last_run_at = entry.last_run_at - LONG_AGO


def ticks(*, url: str, folder: str, count: int, birds: int, **how: Any) -> dict[str, float]:
    _configure(folder)
    return contest(lambda: Database(url, folder), url=url, birds=birds, **how)
