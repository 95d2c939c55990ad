"""Checkpoints, snapshots and outputs: what a run keeps across its attempts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from celery_catchup.errors import LeaseLostError
from celery_catchup.store import Notes, Store, connect
from celery_catchup.store.notes import LONGEST_NOTE, MOST_BYTES, MOST_NOTES
from celery_catchup.worker_plugin.context import Notebook, RunContext

RUN = "8c8a2f2e-7f0c-5d55-8a55-0f5f3a4d2f10"
RECORD = {
    "entry": "etl",
    "task": "proj.etl",
    "schedule": 0,
    "slot": 1770458400000,
    "trigger": "catchup",
    "state": "running",
    "attempt": 1,
    "sends": 1,
    "attempt_started": 1770458401000,
}


@pytest.fixture
def client(redis_url: str) -> Any:
    client = connect(redis_url)
    yield client
    client.close()


def attempt(client: Redis, number: int) -> RunContext:
    """The run as its n-th attempt sees it; that attempt owns it from now on."""
    store, owner = Store(client, "test"), f"worker-{number}"
    client.hset(store.keys.ledger, RUN, json.dumps({**RECORD, "attempt": number, "owner": owner}))
    notes = Notes(store)
    record = {**RECORD, "attempt": number}
    return RunContext.of(RUN, record, lease=None, notebook=Notebook(notes, RUN, owner=owner))


def test_the_next_attempt_finds_the_checkpoints_of_the_one_before(client: Redis) -> None:
    first = attempt(client, 1)
    first.checkpoint("page", 7)
    first.checkpoint("page", 8)

    second = attempt(client, 2)

    assert second.checkpoints == {"page": 8}


def test_a_snapshot_is_what_the_first_attempt_saw(client: Redis) -> None:
    values = iter([{"rate": 1.1, "list": [], "none": None}, {"rate": 9.9}])

    seen = [attempt(client, n).snapshot("rates", lambda: next(values)) for n in (1, 2, 3)]

    assert seen == [{"rate": 1.1, "list": [], "none": None}] * 3


def test_outputs_and_progress_are_kept_with_the_run(client: Redis) -> None:
    run = attempt(client, 1)
    run.output("report", "s3://bucket/report.pdf")
    run.progress(3, 10)

    notes = Notes(Store(client, "test")).read(RUN)

    assert notes == {"outputs": {"report": "s3://bucket/report.pdf"}, "progress": {"work": [3, 10]}}


def test_a_worker_that_has_lost_the_run_keeps_nothing(client: Redis) -> None:
    first = attempt(client, 1)
    second = attempt(client, 2)

    with pytest.raises(LeaseLostError):
        first.checkpoint("page", 7)
    assert second.checkpoints == {}


def test_a_value_that_is_too_long_is_refused_with_advice(client: Redis) -> None:
    with pytest.raises(ValueError, match="store it elsewhere and keep its address"):
        attempt(client, 1).checkpoint("page", "x" * LONGEST_NOTE)


def test_a_run_keeps_a_bounded_number_of_values_and_goes_on_with_those_it_has(client: Redis) -> None:
    run = attempt(client, 1)
    for number in range(MOST_NOTES):
        run.checkpoint(f"part-{number}", number)

    with pytest.raises(ValueError, match=f"expected at most {MOST_NOTES} values for all notes of a run"):
        run.output("report", "s3://bucket/report.pdf")
    run.checkpoint("part-0", "again")

    assert len(run.checkpoints) == MOST_NOTES
    assert run.checkpoints["part-0"] == "again"


def test_a_run_keeps_a_bounded_number_of_bytes(client: Redis) -> None:
    run = attempt(client, 1)

    fits = MOST_BYTES // LONGEST_NOTE - 1  # names and quotes are counted, too
    for number in range(fits):
        run.checkpoint(f"part-{number}", "x" * (LONGEST_NOTE - 2))

    with pytest.raises(ValueError, match=f"expected at most {MOST_BYTES} bytes"):
        run.checkpoint("one-more", "x" * (LONGEST_NOTE - 2))

    assert len(run.checkpoints) == fits


def test_without_a_notebook_a_task_can_be_called_as_a_function() -> None:
    run = RunContext.of(RUN, RECORD, lease=None)
    run.checkpoint("page", 7)

    assert (run.snapshot("rates", lambda: 5), run.checkpoints) == (5, {})
