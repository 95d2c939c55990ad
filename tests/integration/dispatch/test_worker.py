"""A real worker executes what a template was rendered to, and its task is told of its run."""

from __future__ import annotations

import json
import logging
import queue
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from celery.contrib.testing.worker import start_worker

from celery_catchup.dispatch import Dispatcher
from celery_catchup.model import Trigger
from tests.integration.dispatching import NOW, RUN_ID, a_dispatcher, a_run, an_app, an_entry, push

PATIENCE = 20.0  # seconds; a busy machine starts a worker slowly

Reports = queue.Queue[dict[str, Any]]


@pytest.fixture
def reports() -> Reports:
    return queue.Queue()


@pytest.fixture
def app(redis_url: str, reports: Reports) -> Celery:
    """The broker is in another database than the state, behind a key prefix."""
    options = {"global_keyprefix": "acme:"}
    app = an_app(
        redis_url.removesuffix("/0") + "/3", broker_transport_options=options, worker_send_task_events=False
    )

    @app.task(name="proj.report", bind=True, shared=False, max_retries=1)
    def report(self: Any, *args: Any, retry: bool = False, **kwargs: Any) -> None:
        request = self.request
        told = {name: request.get(name) for name in ("is_catchup", "catchup_run_id", "data_interval_start")}
        told |= {"id": request.id, "scheduled_time": request.scheduled_time, "args": args, "kwargs": kwargs}
        told |= {"headers": dict(request.headers or {}), "retries": request.retries}
        reports.put(told)
        if retry:
            raise self.retry(countdown=0)

    return app


@pytest.fixture
def worker(app: Celery) -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger("celery")]
    levels = [logger.level for logger in loggers]
    loggers[1].setLevel(logging.CRITICAL)
    with start_worker(
        app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE, loglevel="CRITICAL"
    ):
        yield
    for logger, level in zip(loggers, levels, strict=True):  # the worker has set them, too
        logger.setLevel(level)


@pytest.fixture
def dispatcher(app: Celery, redis_url: str) -> Iterator[Dispatcher]:
    with a_dispatcher(app, redis_url) as dispatcher:
        yield dispatcher


@pytest.mark.usefixtures("worker")
def test_a_task_is_told_of_its_run(
    app: Celery, dispatcher: Dispatcher, redis_url: str, reports: Reports
) -> None:
    entry = an_entry(app, "proj.report", args=(1,), kwargs={"name": "ü"}, options={"priority": 3})
    template = dispatcher.template(entry, policy_entry="hourly")

    missed = push(redis_url, template, a_run(Trigger.CATCHUP))
    first = reports.get(timeout=PATIENCE)
    push(redis_url, template, a_run(Trigger.SCHEDULER))
    second = reports.get(timeout=PATIENCE)

    assert first["is_catchup"] is True
    assert second["is_catchup"] is False
    assert first["scheduled_time"] == "2026-02-07T10:00:00Z"
    assert first["id"] == first["catchup_run_id"] == missed
    assert first["headers"]["catchup_entry"] == "hourly"
    assert first["data_interval_start"] == "2026-02-07T09:00:00Z"
    assert (first["args"], first["kwargs"]) == ((1,), {"name": "ü"})


@pytest.mark.usefixtures("worker")
def test_a_retry_is_still_the_same_run(
    app: Celery, dispatcher: Dispatcher, redis_url: str, reports: Reports
) -> None:
    entry = an_entry(app, "proj.report", kwargs={"retry": True})
    template = dispatcher.template(entry, policy_entry="hourly")

    push(redis_url, template, a_run(), run_id=RUN_ID)
    once, again = (reports.get(timeout=PATIENCE) for _ in range(2))

    assert (once["retries"], again["retries"]) == (0, 1)
    assert again["is_catchup"] is True
    assert again["catchup_run_id"] == RUN_ID


@pytest.mark.usefixtures("worker")
def test_a_countdown_and_an_expiry_are_understood(
    app: Celery, dispatcher: Dispatcher, redis_url: str, reports: Reports
) -> None:
    late = an_entry(app, "proj.report", args=("late",), options={"expires": 60})
    fine = an_entry(app, "proj.report", args=("fine",), options={"countdown": 1})

    # Both are sent at a moment long gone by the worker's clock.
    for entry in (late, fine):
        push(redis_url, dispatcher.template(entry, policy_entry="hourly"), a_run())

    assert reports.get(timeout=PATIENCE)["args"] == ("fine",)
    with redis.Redis.from_url(redis_url.removesuffix("/0") + "/3") as client:
        assert client.llen("acme:celery") == 0


@pytest.mark.usefixtures("worker")
def test_an_entry_without_a_policy_runs_too(
    app: Celery, dispatcher: Dispatcher, redis_url: str, reports: Reports
) -> None:
    key, db, messages = dispatcher.unmanaged_messages(an_entry(app, "proj.report"), slot=NOW, now=NOW)

    with redis.Redis.from_url(redis_url.removesuffix("/0") + f"/{db}") as client:
        client.lpush(key, *messages)

    told = reports.get(timeout=PATIENCE)
    assert told["scheduled_time"] == "2026-02-07T12:22:00Z"
    assert told["id"] == json.loads(messages[0])["headers"]["id"]
    assert told["catchup_run_id"] is None
