"""A project that moves from one scheduler to another: which one, the command line says."""

from __future__ import annotations

import os
from datetime import timedelta

from celery import Celery

url = os.environ.get("CATCHUP_TEST_URL", "redis://127.0.0.1:1/0")

app = Celery("switching", broker=url)
app.conf.update(
    redbeat_redis_url=url,
    redbeat_redis_options={},
    beat_schedule={"tick": {"task": "switching.tick", "schedule": timedelta(seconds=2)}},
    catchup_entries={"tick": {"window": "10m", "overlap_policy": "all"}},
    catchup_lease_ttl="3s",
)


@app.task(name="switching.tick")
def tick() -> None:
    """Nobody executes it."""
