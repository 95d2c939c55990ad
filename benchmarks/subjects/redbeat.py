"""celery-redbeat, with its lock."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from redbeat.decoder import RedBeatJSONEncoder
from redbeat.schedulers import RedBeatScheduler, acquire_distributed_beat_lock, get_redis

from benchmarks.subjects.trials import LONG_AGO, contest, counted, hourly, new_app


class RedBeat:
    """It keeps entries and state in Redis, and sends all that is due in a tick."""

    sends_all_in_a_tick = True

    def __init__(self, count: int, url: str, folder: str) -> None:
        self.app = new_app(
            url, folder, beat_schedule=hourly(count), redbeat_redis_url=url, redbeat_redis_options={}
        )
        self.scheduler: Any = None

    def start(self) -> None:
        RedBeatScheduler(self.app, lazy=True)
        self.scheduler = RedBeatScheduler(self.app)
        acquire_distributed_beat_lock(sender=SimpleNamespace(scheduler=self.scheduler))

    def one_due(self, index: int) -> None:
        self._due([f"entry-{index}"])

    def all_due(self) -> int:
        names = list(self.app.conf.beat_schedule)
        self._due(names)
        return len(names)

    def _due(self, names: list[str]) -> None:
        then = self.app.now() - LONG_AGO
        meta = json.dumps({"last_run_at": then}, cls=RedBeatJSONEncoder)
        with get_redis(self.app).pipeline(transaction=False) as pipe:
            for name in names:
                key = self.scheduler.Entry.generate_key(self.app, name)
                pipe.hset(key, "meta", meta)
                pipe.zadd(self.app.redbeat_conf.schedule_key, {key: then.timestamp()})
            pipe.execute()


def seed(*, url: str, folder: str, count: int, birds: int) -> None:
    """What an earlier beat leaves behind."""
    before = RedBeat(count, url, folder)
    before.start()
    before.scheduler.close()


def ticks(*, url: str, folder: str, count: int, birds: int, **how: Any) -> dict[str, float]:
    return contest(lambda: RedBeat(count, url, folder), url=url, birds=birds, **how)


def traffic(*, url: str, folder: str, count: int, birds: int, ticks: int) -> dict[str, float]:
    return counted(lambda there: RedBeat(count, there, folder), url=url, birds=birds, ticks=ticks)
