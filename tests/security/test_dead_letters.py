"""Dead letters: nothing of the arguments, nothing like a secret, bounded, and gone when they are purged."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from celery_catchup.config.settings import Settings
from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.failure_categories import Categories
from celery_catchup.worker_plugin.reports import LONGEST_ERROR, LONGEST_TRACEBACK, dead_letter_of, error_line
from tests.integration.beats import Beat
from tests.integration.operating import Project

CANARY = "canary-5d41402a"
CATEGORIES = Categories(Settings())


class LeakError(Exception):
    """What a task might raise."""


def failing(password: str, *, size: int = 0) -> Exception:
    try:
        raise LeakError(f"login failed: password={password} url=redis://me:{password}@db/0 {'x' * size}")
    except LeakError as error:
        return error


def test_neither_line_nor_letter_has_a_value_that_is_named_like_a_secret() -> None:
    error = failing(CANARY)

    assert CANARY not in error_line(error)
    assert CANARY not in dead_letter_of(error, CATEGORIES)
    assert "login failed" in error_line(error)


def test_both_have_a_greatest_length() -> None:
    error = failing("", size=100_000)

    assert len(error_line(error)) <= LONGEST_ERROR
    assert len(json.loads(dead_letter_of(error, CATEGORIES))["traceback"]) <= LONGEST_TRACEBACK + 100


@pytest.mark.parametrize("way", ["discarded", "forgotten by age"])
def test_what_is_purged_is_nowhere_any_more(redis_url: str, way: str) -> None:
    clock = FakeClock("2026-02-07T09:05:00Z")
    beat = Beat(redis_url, clock, {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "allow"})})
    beat.tick()
    clock.set("2026-02-07T10:00:00Z")
    beat.tick()
    (run,) = beat.ledger.runs_of("etl")
    beat.leases.claim(run["id"], owner="w", task="proj.etl", worker="w")
    beat.leases.finish(
        run["id"],
        entry="etl",
        owner="w",
        state=RunState.FAILED,
        error="x",
        letter=json.dumps({"note": CANARY}),
    )
    assert CANARY in everything(beat)

    if way == "discarded":
        assert beat.controls.discard(run["id"], entry=run["entry"])
    else:
        later = int(time.time() * 1000) + 40 * 86_400_000
        beat.housekeeping().sweep(later, 0, entries=["etl"])

    assert CANARY not in everything(beat)


def everything(beat: Beat) -> str:
    """Every value on the server, as text."""
    readers: dict[bytes, Any] = {
        b"hash": beat.client.hgetall,
        b"string": beat.client.get,
        b"list": lambda key: beat.client.lrange(key, 0, -1),
        b"set": beat.client.smembers,
        b"zset": lambda key: beat.client.zrange(key, 0, -1),
    }
    found: Any = beat.client.keys("*")
    return repr([readers[beat.client.type(key)](key) for key in found])  # type: ignore[index]


def test_a_replay_is_on_record_with_who_asked_for_it(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()
    (run_id,) = project.execute("hourly-etl", state=RunState.FAILED)

    project.catchup("dlq", "replay", run_id, "-f")

    with project.operator() as operator:
        record: Any = operator.ledger.run(run_id)
    assert "@" in record["by"]
    assert record["replayed"] > 0
