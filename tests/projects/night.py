"""A project for the night shift: the environment says what is wrong with it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery
from celery.beat import BeatLazyFunc

FOLDER = Path(os.environ.get("NIGHT_FOLDER", "."))
WRONG = os.environ.get("NIGHT_WRONG", "")


def _argument() -> str:
    if (FOLDER / "broken").exists():
        raise RuntimeError("no such tenant")
    return "eu"


SCHEDULE: dict[str, Any] = {"tick": {"task": "night.tick", "schedule": 1.0}}
if WRONG == "queue":
    SCHEDULE["other"] = {"task": "night.tick", "schedule": 1.0, "options": {"queue": "other"}}
if WRONG == "task":
    SCHEDULE["typo"] = {"task": "night.tikc", "schedule": 1.0}
if WRONG == "entry":
    SCHEDULE["lazy"] = {"task": "night.tick", "schedule": 1.0, "args": [BeatLazyFunc(_argument)]}

app = Celery("night", broker=os.environ.get("NIGHT_BROKER", "redis://127.0.0.1:1/0"))
app.conf.update(
    imports=["celery_catchup.worker"],
    beat_schedule=SCHEDULE,
    catchup_entries={"*": {"window": "1h"}},
    catchup_redis_url=os.environ.get("NIGHT_STORE"),
    catchup_namespace=os.environ.get("NIGHT_NAMESPACE", "night"),
    catchup_poll_interval="200ms",
    catchup_lease_ttl="3s",
    worker_prefetch_multiplier=1,
)

if WRONG != "tasks":

    @app.task(name="night.tick")
    def tick(*_: Any) -> None:
        """Hang while a file says so."""
        while (FOLDER / "hang").exists():
            time.sleep(0.1)
