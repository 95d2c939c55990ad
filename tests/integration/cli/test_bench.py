"""``celery catchup bench``: figures of the app's own servers, and nothing left there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kombu
import pytest
import redis

from celery_catchup import events
from celery_catchup.operations import bench
from celery_catchup.store.keys import Keys
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

_SECOND = ("bench", "-s", "1")
_NAMESPACE = "proj.bench"
_PROJECT = """
from celery import Celery
app = Celery("proj", broker={url!r})
"""


def names(client: Any) -> set[str]:
    return {key.decode() for key in client.keys("*")}


@pytest.fixture
def client(redis_url: str) -> Any:
    with redis.Redis.from_url(redis_url) as found:
        yield found


def test_every_figure_has_a_verdict_and_nothing_is_left(
    redis_url: str, desk_clock: FakeClock, client: Any
) -> None:
    project, heard = Project(redis_url, desk_clock), list[Any]()
    end = events.subscribe(heard.append)

    found = project.json(*_SECOND)
    end()

    assert heard == []
    measured = {one["name"]: one for one in found["figures"]}
    assert set(measured) == {"lease round trip", "tick", "dispatch", "send_task", "claim", "finish"}
    assert all(one["value"] > 0 and one["detail"] for one in found["figures"])
    assert all(measured[name]["slow"] >= measured[name]["value"] for name in ("tick", "claim", "finish"))
    assert (found["namespace"], found["dispatch"], found["broker"]) == ("proj", "atomic", "redis")
    assert names(client) == set()


def test_state_and_queues_of_the_app_are_left_alone(
    redis_url: str, desk_clock: FakeClock, client: Any
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.advance(hours=2)
    project.tick()
    before = {key: client.dump(key) for key in names(client)}

    text = project.text(*_SECOND)

    assert {key: client.dump(key) for key in names(client)} == before
    assert "Broker and Redis" in text or "Look at" in text


def test_it_refuses_beside_a_beat_that_leads_unless_forced(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    with project.beat() as beat:
        beat.tick()

        refused = project.catchup(*_SECOND, code=1)
        forced = project.json(*_SECOND, "-f")

    assert "a beat leads in namespace 'proj'" in refused.stderr
    assert refused.stdout == ""
    assert len(forced["figures"]) == 6


def test_a_slow_store_is_a_warning_with_advice(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_LONG_WAIT", "_LONG_TICK", "_PART_OF_LEASE"):
        monkeypatch.setattr(bench, limit, 1e-9)
    project = Project(redis_url, desk_clock)

    found = project.json(*_SECOND)

    assert [one["name"] for one in found["figures"] if one["verdict"] == "warning"] == [
        "lease round trip",
        "tick",
        "claim",
        "finish",
    ]
    assert found["verdict"] == "Look at: lease round trip, tick, claim, finish."


def test_what_a_killed_measurement_left_is_deleted(
    redis_url: str, desk_clock: FakeClock, client: Any
) -> None:
    keys = Keys(_NAMESPACE)
    client.hset(keys.leader, mapping={"owner": "gone", "epoch": 1, "beat": 1, "ttl_ms": 2000})
    client.hset(keys.ledger, "run", "{}")
    client.lpush(_NAMESPACE, "message")
    project = Project(redis_url, desk_clock)

    project.json(*_SECOND)

    assert names(client) == set()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_measurement_leaves_nothing(
    how: signal.Signals, redis_url: str, tmp_path: Path, client: Any
) -> None:
    (tmp_path / "proj.py").write_text(_PROJECT.format(url=redis_url))
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "proj", "catchup", "bench", "-s", "60"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(tmp_path)))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # The tests may run in the background of a shell, which ignores SIGINT there.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 30
        while not client.exists(Keys(_NAMESPACE).leader) and time.monotonic() < deadline:
            time.sleep(0.02)

        process.send_signal(how)
        code = process.wait(20)
    finally:
        if process.poll() is None:
            process.kill()

    assert code != 0
    assert names(client) == set()


def test_a_queue_of_rabbitmq_is_deleted(redis_url: str, rabbitmq_url: str, desk_clock: FakeClock) -> None:
    project = Project(rabbitmq_url, desk_clock, catchup_redis_url=redis_url, catchup_namespace="of-a-test")

    found = project.json(*_SECOND)

    with kombu.Connection(rabbitmq_url) as connection, pytest.raises(connection.channel_errors):
        connection.default_channel.queue_declare("of-a-test.bench", passive=True)
    assert (found["broker"], found["dispatch"]) == ("amqp", "outbox")
