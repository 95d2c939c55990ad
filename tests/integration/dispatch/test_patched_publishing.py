"""Whoever changes messages on their way, in whatever manner, is asked for each run: when in doubt
Celery builds each message itself."""

from __future__ import annotations

import base64
import itertools
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import wrapt
from celery import Celery, Task
from celery.app.amqp import AMQP
from celery.app.routes import MapRoute
from kombu import compression, serialization

from celery_catchup.dispatch.celery_internals import can_share_template
from celery_catchup.store import Template
from tests.integration.dispatching import a_dispatcher, a_run, an_app, an_entry, nothing, rendered

_numbers = itertools.count(1)
Patch = Callable[[pytest.MonkeyPatch, Celery], dict[str, Any] | None]


def _stamped(options: dict[str, Any]) -> None:
    options["headers"] = {**(options.get("headers") or {}), "trace": f"trace-{next(_numbers)}"}


def _wrapped(path: str) -> Patch:
    """As tracing libraries do it."""

    def patch(monkeypatch: pytest.MonkeyPatch, app: Celery) -> None:
        module, _, name = path.partition(":")
        owner, attribute, original = wrapt.resolve_path(module, name)

        def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            _stamped(kwargs)
            return wrapped(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, wrapt.FunctionWrapper(original, wrapper))

    return patch


class _StampingAMQP(AMQP):  # type: ignore[misc]
    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        message = super().as_task_v2(*args, **options)
        message.headers["trace"] = f"trace-{next(_numbers)}"
        return message


class _ChangingRoute(MapRoute):  # type: ignore[misc]
    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        return {"priority": next(_numbers) % 10}


class _ChangingTask(Task):  # type: ignore[misc]
    def _get_exec_options(self) -> dict[str, Any]:
        return {**super()._get_exec_options(), "priority": next(_numbers) % 10}


def _own_amqp(monkeypatch: pytest.MonkeyPatch, app: Celery) -> None:
    monkeypatch.setitem(vars(app), "amqp", _StampingAMQP(app))


def _own_route(monkeypatch: pytest.MonkeyPatch, app: Celery) -> None:
    monkeypatch.setattr(app.amqp, "_rtable", (_ChangingRoute({}),))
    app.amqp.router.routes = app.amqp.routes


def _own_serializer(monkeypatch: pytest.MonkeyPatch, app: Celery) -> dict[str, Any]:
    def with_nonce(body: Any) -> str:
        return json.dumps([next(_numbers), body])

    serialization.register("sealed", with_nonce, json.loads, "application/x-sealed", "utf-8")
    return {"serializer": "sealed"}


def _own_compression(monkeypatch: pytest.MonkeyPatch, app: Celery) -> dict[str, Any]:
    def with_nonce(body: bytes) -> bytes:
        return b"%d " % next(_numbers) + body

    compression.register(with_nonce, bytes, "application/x-sealed", aliases=["sealed"])
    return {"compression": "sealed"}


PATCHES: dict[str, Patch] = {
    "wrapt around apply_async": _wrapped("celery.app.task:Task.apply_async"),
    "wrapt around send_task": _wrapped("celery.app.base:Celery.send_task"),
    "wrapt around kombu's Producer": _wrapped("kombu.messaging:Producer.publish"),
    "an AMQP class of its own": _own_amqp,
    "a route class of its own": _own_route,
    "a serializer with a nonce": _own_serializer,
    "a compression with a nonce": _own_compression,
}


@pytest.fixture(autouse=True)
def _unregister() -> Iterator[None]:
    yield
    if "sealed" in serialization.registry.name_to_type:
        serialization.unregister("sealed")
    for known in (compression._encoders, compression._decoders):
        known.pop("application/x-sealed", None)
    compression._aliases.pop("sealed", None)


def what_differs(template: Template) -> tuple[Any, ...]:
    """The places into which these patches write."""
    message = rendered(template)
    body = base64.b64decode(message["body"])
    return message["headers"].get("trace"), message.get("properties", {}).get("priority"), body


@pytest.mark.parametrize(
    ("patch", "task"),
    [
        pytest.param(patch, task, id=f"{name}, {task}")
        for name, patch in PATCHES.items()
        # Celery sends a task that beat does not know without its apply_async.
        for task in (["proj.etl"] if name.endswith("apply_async") else ["proj.etl", "unknown.task"])
    ],
)
def test_each_run_gets_a_message_of_its_own(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, patch: Patch, task: str
) -> None:
    app = an_app(redis_url)
    options = patch(monkeypatch, app) or {}
    with a_dispatcher(app, redis_url) as dispatcher:
        ids = [str(uuid.uuid4()) for _ in range(3)]
        entry = an_entry(app, task, options=options)
        made = [dispatcher.template(entry, policy_entry="hourly", run_id=one, run=a_run()) for one in ids]

    assert [template.run for template in made] == ids
    assert len(set(map(what_differs, made))) == 3


def test_a_task_with_options_of_its_own_gets_them_for_each_run(redis_url: str) -> None:
    app = an_app(redis_url)
    app.task(name="proj.own", base=_ChangingTask)(nothing)

    assert not can_share_template(app, an_entry(app, "proj.own"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"task_serializer": "pickle"},
        {"task_serializer": "yaml"},
        {"task_compression": "gzip"},
        {"task_compression": "bzip2"},
        {"task_routes": {"proj.*": {"queue": "other"}}},
    ],
    ids=str,
)
def test_what_celery_and_kombu_bring_can_share_template(redis_url: str, settings: dict[str, Any]) -> None:
    app = an_app(redis_url, **settings)

    assert can_share_template(app, an_entry(app))
    assert can_share_template(app, an_entry(app, "unknown.task"))
