"""Celery's own PersistentScheduler."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from celery.beat import PersistentScheduler

from benchmarks.subjects.trials import LONG_AGO, contest, hourly, new_app


class Stock:
    """It keeps its state in a file, and sends one entry per tick."""

    sends_all_in_a_tick = False

    def __init__(self, count: int, url: str, folder: str) -> None:
        self.app = new_app(url, folder, beat_schedule=hourly(count))
        self.file = str(Path(folder) / "schedule")
        self.scheduler: Any = None

    def start(self) -> None:
        PersistentScheduler(self.app, schedule_filename=self.file, lazy=True)
        self.scheduler = PersistentScheduler(self.app, schedule_filename=self.file)

    def one_due(self, index: int) -> None:
        self._due(f"entry-{index}")
        self.scheduler.populate_heap()

    def all_due(self) -> int:
        for name in self.scheduler.schedule:
            self._due(name)
        self.scheduler.populate_heap()
        return len(self.scheduler.schedule)

    def _due(self, name: str) -> None:
        self.scheduler.schedule[name].last_run_at -= LONG_AGO


def seed(*, url: str, folder: str, count: int, birds: int) -> None:
    """What an earlier beat leaves behind."""
    before = Stock(count, url, folder)
    before.start()
    before.scheduler.close()


def ticks(*, url: str, folder: str, count: int, birds: int, **how: Any) -> dict[str, float]:
    return contest(lambda: Stock(count, url, folder), url=url, birds=birds, **how)


class Telling(PersistentScheduler):  # type: ignore[misc]
    """Writes on each message when it was due, which Celery knows but does not say."""

    def setup_schedule(self) -> None:
        """All entries begin at once; spread them over the interval, as they are with the others."""
        super().setup_schedule()
        entries = list(self.schedule.values())
        for index, entry in enumerate(entries):
            entry.last_run_at += index / len(entries) * entry.schedule.run_every

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> Any:
        due = entry.last_run_at + timedelta(seconds=entry.schedule.run_every.total_seconds())
        headers = {"scheduled_time": due.isoformat(), "catchup_entry": entry.name}
        entry.options = {**entry.options, "headers": headers}
        return super().apply_async(entry, producer=producer, advance=advance, **kwargs)
