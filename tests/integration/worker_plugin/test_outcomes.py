"""However an execution ends, the ledger learns of it and the chain goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Task

from tests.integration.workers import SLOT, Site, Worker, until


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


@pytest.fixture
def prefork(site: Site) -> Iterator[Worker]:
    with Worker(site, pool="prefork", concurrency=2) as worker:
        yield worker


@pytest.fixture
def solo(site: Site) -> Iterator[Worker]:
    with Worker(site, pool="solo") as worker:
        yield worker


@pytest.mark.parametrize(
    ("task", "error"),
    [
        ("dying", "WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL)"),
        ("overrunning", "TimeLimitExceeded: TimeLimitExceeded(1,)"),
    ],
    ids=["kill -9 of its process", "time limit"],
)
def test_a_killed_execution_has_failed(site: Site, prefork: Worker, task: str, error: str) -> None:
    run_id = site.send_run(task)
    following = site.record(hour=1, state="waiting")

    assert site.ended(run_id, following) == ["dead", "succeeded"]
    assert site.run(run_id)["error"].startswith(error.rstrip(",)"))
    assert site.lease(run_id) is None
    assert prefork.said("Report superseded") == []
    assert site.letter(run_id)["type"].startswith("billiard.exceptions.")


def test_a_dead_letter_tells_what_went_wrong(site: Site, solo: Worker) -> None:
    run_id = site.send_run(kwargs={"fail": True})

    assert site.ended(run_id) == ["dead"]
    letter = site.letter(run_id)
    assert letter["type"] == "builtins.ValueError"
    assert letter["traceback"].splitlines()[-2:] == ["ValueError: it did not work", "at all"]


@pytest.mark.parametrize(
    ("settings", "state", "category"),
    [({}, "dead", "permanent"), ({"catchup_transient_errors": ["ValueError"]}, "waiting", "transient")],
    ids=["built in", "configured"],
)
def test_the_category_of_the_failure_decides_on_another_attempt(
    site: Site, settings: dict[str, Any], state: str, category: str
) -> None:
    policy = {"capacity": 1, "max_attempts": 3, "retry_delay_ms": 60_000}
    site.store.hset(site.keys.policies, "hourly-etl", json.dumps(policy))
    with Worker(site, pool="solo", **settings) as worker:
        run_id = site.send_run(kwargs={"fail": True})
        until(lambda: "decided" in site.run(run_id), what="the end of the first attempt")
        if state == "dead":  # the worker logs it after it is recorded
            until(lambda: worker.said("Run given up"), what="the log line")

    assert (site.run(run_id)["state"], site.letter(run_id)["category"]) == (state, category)
    assert (site.store.zscore(site.keys.retries, run_id) is not None) is (state == "waiting")
    told = [line for line in worker.said("Run given up") if "(permanent: not attempted again)" in line]
    assert len(told) == (1 if state == "dead" else 0)


def test_an_execution_killed_from_outside_has_failed(site: Site, prefork: Worker) -> None:
    run_id = site.send_run(kwargs={"seconds": 60})
    (line,) = site.wait_for("start")

    os.kill(line["pid"], signal.SIGKILL)

    assert site.ended(run_id) == ["dead"]


@pytest.mark.skipif(not hasattr(Task, "retry_on_worker_lost"), reason="this Celery does not retry lost tasks")
def test_a_killed_execution_that_celery_retries_is_the_same_run(site: Site, prefork: Worker) -> None:
    run_id = site.send_run("revived")

    assert site.ended(run_id) == ["succeeded"]
    assert [line["attempt"] for line in site.lines("start")] == [1, 2]


def test_a_revoked_message_is_recorded_without_being_executed(site: Site, prefork: Worker) -> None:
    run_id = site.record()
    following = site.record(hour=1, state="waiting")
    site.app.control.revoke(run_id)
    site.send(run_id, countdown=0.5)  # the revocation is there before it

    assert site.ended(run_id, following) == ["revoked", "succeeded"]
    assert site.lines("start", run_id) == []
    assert site.run(run_id)["error"] == "revoked"


def test_an_expired_message_is_recorded_without_being_executed(site: Site, solo: Worker) -> None:
    run_id = site.record()
    following = site.record(hour=1, state="waiting")
    site.send(run_id, expires=-10)

    assert site.ended(run_id, following) == ["revoked", "succeeded"]
    assert site.lines("start", run_id) == []
    assert site.run(run_id)["error"] == "expired"


def test_a_terminated_execution_is_revoked(site: Site, prefork: Worker) -> None:
    run_id = site.send_run(kwargs={"seconds": 60})
    following = site.record(hour=1, state="waiting")
    site.wait_for("start")

    site.app.control.revoke(run_id, terminate=True, signal="SIGKILL")

    assert site.ended(run_id, following) == ["revoked", "succeeded"]
    assert site.run(run_id)["error"] == "terminated"


def test_a_revocation_does_not_end_a_run_that_somebody_executes(site: Site, prefork: Worker) -> None:
    run_id = site.send_run(kwargs={"seconds": 1})
    site.wait_for("start")

    site.send(run_id, expires=-10)

    assert site.ended(run_id) == ["succeeded"]


def test_a_run_that_waits_for_its_retry_keeps_its_place(site: Site, solo: Worker) -> None:
    run_id = site.send_run("retrying", kwargs={"countdown": 1.5})
    following = site.record(hour=1, state="waiting")
    site.wait_for("start")
    until(lambda: site.run(run_id)["attempt"] == 2)

    waiting = site.run(run_id)
    lease = site.lease(run_id)
    assert waiting["state"] == "queued"
    assert "owner" not in waiting
    assert waiting["error"] == "Retry: Retry in 1.5s: ValueError('again')"
    assert lease is not None
    assert (
        lease > waiting["past"][-1]["started"] + 60_000
    )  # its countdown, and then time enough to be claimed
    assert site.states(following) == ["waiting"]

    assert site.ended(run_id, following) == ["succeeded", "succeeded"]
    assert [line["what"] for line in site.lines(run_id=following)] == ["start", "end"]
    assert site.lines()[-2]["run_id"] == following


def test_a_run_that_has_used_up_its_retries_has_failed(site: Site, prefork: Worker) -> None:
    run_id = site.send_run("autoretrying")

    assert site.ended(run_id) == ["dead"]
    assert [line["attempt"] for line in site.lines("start")] == [1, 2]


def test_a_task_that_ignores_itself_has_succeeded(site: Site, solo: Worker) -> None:
    run_id = site.send_run("ignoring")

    assert site.ended(run_id) == ["succeeded"]


def test_a_rejected_run_has_failed(site: Site, solo: Worker) -> None:
    run_id = site.send_run("rejecting", kwargs={"requeue": False})

    assert site.ended(run_id) == ["dead"]


def test_a_run_that_is_put_back_on_its_queue_is_attempted_again(site: Site, prefork: Worker) -> None:
    run_id = site.send_run("rejecting", kwargs={"requeue": True})

    assert site.ended(run_id) == ["dead"]
    assert [line["attempt"] for line in site.lines("start")] == [1, 2]


def test_a_message_that_no_task_understands_has_failed(site: Site, solo: Worker) -> None:
    run_id = site.record()
    message = site.message(run_id)
    message["headers"]["eta"] = "in a while"

    site.push(message)

    assert site.ended(run_id) == ["dead"]


def test_the_end_of_a_catch_up_run_starts_that_of_another_entry_at_once(site: Site) -> None:
    site.store.hset(site.keys.meta, "max_active", 1)
    others = [f"waiting-{number}" for number in range(3)]
    runs = [site.record(entry=entry, state="waiting") for entry in others]
    site.store.zadd(site.keys.catchup_waiting, {entry: number for number, entry in enumerate(others)})

    with Worker(site, pool="solo"):
        first = site.send_run(entry="first")
        site.store.zadd(site.keys.catchup_active, {first: SLOT})
        assert site.ended(first, *runs) == ["succeeded"] * 4

    ended = [site.run(run_id)["finished"] for run_id in (first, *runs)]
    sent = [site.run(run_id)["queued"] for run_id in runs]
    waits = [begun - end for end, begun in zip(ended, sent, strict=False)]
    assert max(waits) < 1000, "neither the next message of this process nor its heartbeat is waited for"
