"""Apps, entries and runs for the tests of dispatch, and what a stock send leaves in a queue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
from celery import Celery
from celery.beat import ScheduleEntry, Scheduler

from celery_catchup.dispatch import Dispatcher, render
from celery_catchup.model import Trigger
from celery_catchup.store import OutboxRun, Template

NOW = 1_770_466_920_000  # 2026-02-07T12:22:00Z
SLOT = 1_770_458_400_000  # 2026-02-07T10:00:00Z
PREVIOUS = SLOT - 3_600_000
RUN_ID = "0f1e2d3c-4b5a-5678-9abc-def012345678"

# What cannot be the same twice: identity, our own headers, moments.
OUR_HEADERS = {
    "celery_beat_task",  # Celery's own, but not before 5.6
    "scheduled_time",
    "is_catchup",
    "trigger_type",
    "catchup_entry",
    "catchup_run_id",
    "data_interval_start",
    "data_interval_end",
}
IDENTITIES = {"id", "root_id"}
MOMENTS = {"expires", "eta"}


def an_app(broker: str, **settings: Any) -> Celery:
    """An app with two tasks, alone in its corner."""
    app = Celery("tests.dispatching", broker=broker, set_as_current=False)
    app.conf.update(settings)

    @app.task(name="proj.etl", shared=False)
    def etl(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("nothing here is ever executed")

    @app.task(name="proj.short_lived", shared=False, expires=90, ignore_result=True)
    def short_lived() -> None:
        raise AssertionError("nothing here is ever executed")

    app.finalize()
    return app


def nothing() -> None:
    """The body of a task that is never executed."""


def an_entry(app: Celery, task: str = "proj.etl", *, name: str = "hourly", **fields: Any) -> ScheduleEntry:
    return ScheduleEntry(name=name, task=task, schedule=3600, app=app, **fields)


def a_run(trigger: Trigger = Trigger.CATCHUP, *, attempt: int = 1, sends: int = 1) -> dict[str, Any]:
    """A run as the ledger keeps it."""
    return {
        "entry": "hourly",
        "slot": SLOT,
        "previous": PREVIOUS,
        "trigger": str(trigger),
        "attempt": attempt,
        "sends": sends,
    }


@contextmanager
def a_dispatcher(app: Celery, state_url: str) -> Iterator[Dispatcher]:
    """Probed, and gone afterwards."""
    with redis.Redis.from_url(state_url) as state:
        db = state.connection_pool.connection_kwargs.get("db", 0)
        dispatcher = Dispatcher(app, state=state, state_db=db)
        try:
            dispatcher.probe()
            yield dispatcher
        finally:
            dispatcher.close()


def publish_run(
    dispatcher: Dispatcher, template: Mapping[str, Any], run: dict[str, Any] | None = None
) -> None:
    """Publish one run of the outbox, or raise what the broker has against it."""
    one = OutboxRun(RUN_ID, run or a_run(), template)
    (((_, error),),) = dispatcher.publish([[one]], now=NOW)
    if error is not None:
        raise error


def rendered(
    template: Template, *, run_id: str = RUN_ID, run: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The message of one run."""
    message: dict[str, Any] = json.loads(render(vars(template), run_id, run or a_run(), NOW))
    return message


def stock_send(app: Celery, entry: ScheduleEntry) -> str:
    """Send the entry as Celery's own beat does; the task's id."""
    scheduler = Scheduler(app, lazy=True)
    with app.connection_for_write() as connection:
        producer = app.amqp.Producer(connection, auto_declare=False)
        return str(scheduler.apply_async(entry, producer=producer, advance=False).id)


def queues(url: str) -> dict[str, list[str]]:
    """All lists of a database, by key."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        keys: Any = client.keys("*")
        return {key: client.lrange(key, 0, -1) for key in keys if client.type(key) == "list"}


def without(message: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name not in names}


def comparable_headers(headers: dict[str, Any]) -> dict[str, Any]:
    """The headers without what cannot be the same in two messages, or is not in two versions of Celery."""
    # Celery 5.5 says False where 5.7 says None; either leaves it to the task.
    unset = {"ignore_result": headers["ignore_result"] or None}
    return without(headers, *OUR_HEADERS, *IDENTITIES, *MOMENTS, "origin") | unset


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what cannot be the same in two of them."""
    headers = comparable_headers(message["headers"])
    properties = without(message["properties"], "correlation_id", "delivery_tag", "reply_to")
    return {**message, "headers": headers, "properties": properties}


def push(url: str, template: Template, run: dict[str, Any], *, run_id: str | None = None) -> str:
    """What the store does: render and push; the run's id."""
    identity = run_id or str(uuid.uuid4())
    database = url.rpartition("/")[0] + f"/{template.db}"
    with redis.Redis.from_url(database) as client:
        client.lpush(str(template.queue), render(vars(template), identity, run, NOW))
    return identity
