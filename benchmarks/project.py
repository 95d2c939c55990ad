"""The project of the benchmarks' beats and workers; its settings come through the environment."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery import Celery
from celery.schedules import crontab
from celery.signals import worker_process_init, worker_ready

SETTINGS: dict[str, Any] = json.loads(os.environ.get("BENCHMARK_SETTINGS", "{}"))
DIARY = SETTINGS.pop("diary", os.devnull)
INTERVAL: float = SETTINGS.pop("interval", 1.0)
ENTRIES: int = SETTINGS.pop("entries", 0)
NICE: int = SETTINGS.pop("nice", 0)
LATE: int = SETTINGS.pop("late", 0)
WAITS: float = SETTINGS.pop("waits", 0.0)
MINUTE: int = SETTINGS.pop("minute", 0)

app = Celery("benchmarks")
app.conf.update(
    {
        "task_ignore_result": True,
        "result_expires": None,
        "worker_hijack_root_logger": True,
        "beat_schedule": {
            f"entry-{i}": {"task": "benchmarks.project.note", "schedule": INTERVAL} for i in range(ENTRIES)
        }
        | {
            f"late-{i}": {"task": "benchmarks.project.wait", "schedule": crontab(minute=MINUTE)}
            for i in range(LATE)
        },
        **SETTINGS,
    }
)

_diary = -1


@worker_process_init.connect
def _open_anew(**_: Any) -> None:
    global _diary
    _diary = -1


@worker_process_init.connect
@worker_ready.connect
def _be_nice(**_: Any) -> None:
    os.nice(NICE)  # not before it is ready: on a busy machine the start would take minutes


@app.task
def nothing() -> None:
    """What an ordinary task costs."""


@app.task(bind=True)
def note(self: Any) -> None:
    """Leave a line: which slot, and when it ran."""
    _write(self.request.get("scheduled_time"), self.request.get("catchup_entry"))


@app.task(bind=True)
def wait(self: Any) -> None:
    """Leave a line in a file of its own, and wait as for a database."""
    _write(self.request.get("scheduled_time"), self.request.get("catchup_entry"), f"{DIARY}-late")
    time.sleep(WAITS)


@app.task(bind=True)
def relay(self: Any) -> None:
    """Leave a line, and send the same once more."""
    _write(None, None)
    self.apply_async()


def _write(slot: str | None, entry: str | None, diary: str = DIARY) -> None:
    global _diary
    if _diary < 0:
        _diary = os.open(diary, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(_diary, f"{time.time():.6f} {slot} {entry}\n".encode())
