"""Runs started from code count as runs of their entry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery

from celery_catchup import run_headers, trigger
from celery_catchup.dispatch.header_names import ENTRY, RUN_ID, TRIGGER_TYPE
from celery_catchup.model import Slot, run_id
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import UnknownEntryError
from celery_catchup.store import Actor, Origin


@pytest.fixture
def app(redis_url: str) -> Celery:
    app = Celery("shop", broker=redis_url, set_as_current=False)
    app.conf.beat_schedule = {"etl": {"task": "shop.etl", "schedule": "0 * * * *"}}
    app.conf.catchup_entries = {"etl": {"window": "6h", "overlap_policy": "all"}}
    return app


@pytest.fixture
def operator(app: Celery) -> Iterator[Operator]:
    operator = Operator(app, actor=Actor("tester", Origin.PYTHON))
    yield operator
    operator.close()


def test_a_triggered_run_is_recorded_and_sent(app: Celery, operator: Operator) -> None:
    run_id = trigger(app, "etl")

    run = operator.ledger.run(run_id)
    assert run is not None
    assert (run["trigger"], run["state"]) == ("manual", "queued")
    assert operator.store.client.llen("celery") == 1
    assert "start" in operator.read_stored().manual["etl"]


def test_headers_make_a_message_of_your_own_a_run(app: Celery, operator: Operator) -> None:
    headers = run_headers("etl", app=app)

    run = operator.ledger.run(headers[RUN_ID])
    assert run is not None
    assert (headers[ENTRY], headers[TRIGGER_TYPE], run["task"]) == ("etl", "manual", "shop.etl")
    assert operator.ledger.active("etl") == [headers[RUN_ID]]
    assert operator.store.client.llen("celery") == 0


def test_an_unknown_entry_is_named(app: Celery) -> None:
    with pytest.raises(UnknownEntryError, match="did you mean 'etl'"):
        trigger(app, "elt")


def test_a_trigger_reads_its_own_entry_only(app: Celery, operator: Operator) -> None:
    app.conf.beat_schedule["other"] = {"task": "shop.other", "schedule": "0 * * * *"}
    app.conf.catchup_entries["other"] = {"window": "a mistake of the other entry"}
    client = operator.app.connection_for_write().default_channel.client
    client.config_resetstat()

    trigger(app, "etl")
    run_headers("etl", app=app)

    whole_hashes = client.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"]
    assert whole_hashes <= 3  # schema, scheduler and pauses; not one for each fact of every entry


def test_a_policy_for_every_other_entry_holds_for_a_triggered_one(app: Celery, operator: Operator) -> None:
    app.conf.catchup_entries = {"*": {"window": "6h", "logic_version": "2"}}

    triggered = trigger(app, "etl")

    run = operator.ledger.run(triggered)
    assert run is not None
    assert triggered == run_id("shop", "etl", Slot(run["slot"]), logic_version="2")
