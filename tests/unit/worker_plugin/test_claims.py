"""Claims while neither the store nor the broker can be reached: no message is lost."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context
from celery.exceptions import Reject
from redis.exceptions import ConnectionError

from celery_catchup.worker_plugin import claims

RUN_ID = "a1b2c3d4-0000-5000-8000-000000000000"


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A task of an app whose server does not answer."""
    monkeypatch.setattr(claims, "_ask", _no_answer)
    monkeypatch.setattr(claims, "_STORE_PAUSES", ())
    app = Celery("proj", broker="memory://", set_as_current=False)
    app.conf.catchup_redis_url = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(app.amqp, "send_task_message", _no_answer)
    return app.task(name="proj.child", shared=False)(_nothing)


def _nothing() -> None:
    pass


def _no_answer(*_: object, **__: object) -> None:
    raise ConnectionError("the store does not answer")


def message(task_id: str) -> Context:
    headers = {"catchup_run_id": RUN_ID, "catchup_entry": "etl", "trigger_type": "manual"}
    return Context({**headers, "id": task_id, "task": "proj.child", "hostname": "w", "delivery_info": {}})


def begin(task: Any, task_id: str) -> None:
    task.request_stack.push(message(task_id))
    try:
        claims.begin(task)
    finally:
        task.request_stack.pop()


def test_an_acknowledged_message_that_beat_cannot_send_again_is_executed(task: Any) -> None:
    begin(task, "a-child-that-was-passed-the-headers-of-its-parent")


def test_an_acknowledged_message_of_beat_is_rejected_and_beat_sends_it_again(task: Any) -> None:
    with pytest.raises(Reject):
        begin(task, RUN_ID)


def test_a_message_that_is_acknowledged_late_goes_back_to_its_queue(task: Any) -> None:
    task.acks_late = True

    with pytest.raises(Reject) as caught:
        begin(task, "a-child")

    assert caught.value.requeue
