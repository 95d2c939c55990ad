"""Every task claims first, whatever it is made of and whenever it is registered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery, Task, shared_task
from celery.app.trace import build_tracer

from celery_catchup.config.settings import Settings
from celery_catchup.dispatch.header_names import ENTRY, RUN_ID
from celery_catchup.errors import ConfigurationError
from celery_catchup.worker_plugin import installation
from celery_catchup.worker_plugin.deliveries import TOKEN, Arrivals, read_delivery
from celery_catchup.worker_plugin.failure_categories import Categories
from celery_catchup.worker_plugin.installation import install
from celery_catchup.worker_plugin.reports import dead_letter_of, error_line

CATEGORIES = Categories(Settings())


@pytest.fixture
def began(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """What happens when a task is about to be executed: the claims, and hooks of the test's own."""
    began = Mock()
    monkeypatch.setattr(installation, "begin", lambda task: began.claim(task.name))
    return began


@pytest.fixture
def app(began: Mock, request: pytest.FixtureRequest) -> Iterator[Celery]:
    # A name of its own: an app of the same name counts as a copy, and gets the plugin by itself.
    app = Celery(request.node.name, broker="memory://", set_as_current=False)
    yield app
    app.close()


def execute(app: Celery, name: str) -> None:
    """As a worker does, with a tracer made for the task as it is."""
    task = app.tasks[name]
    build_tracer(name, task, app=app, eager=True, propagate=True)("id", (), {}, {})


def claims(began: Mock) -> list[Any]:
    return [call.args[0] for call in began.claim.call_args_list]


class Base(Task):
    """A base class with a hook that does not call its own base's."""

    hook: Mock = Mock()

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        type(self).hook(self.name)


def test_tasks_registered_before_and_after_claim_first(app: Celery, began: Mock) -> None:
    @app.task(name="before")
    def before() -> None: ...

    install(app)

    @app.task(name="after")
    def after() -> None: ...

    app.finalize()

    @app.task(name="late")
    def late() -> None: ...

    for name in ("before", "after", "late"):
        execute(app, name)
    assert claims(began) == ["before", "after", "late"]


def test_shared_tasks_and_classes_claim_first(app: Celery, began: Mock) -> None:
    install(app)

    @shared_task(name="shared")
    def shared() -> None: ...

    class ByClass(Task):
        name = "by-class"

        def run(self) -> None: ...

    app.register_task(ByClass())
    for name in ("shared", "by-class"):
        execute(app, name)
    assert claims(began) == ["shared", "by-class"]


def test_a_hook_of_the_users_own_runs_after_the_claim(app: Celery, began: Mock) -> None:
    install(app)
    Base.hook = began.hook

    @app.task(base=Base, name="based")
    def based() -> None: ...

    execute(app, "based")

    assert [call[0] for call in began.mock_calls] == ["claim", "hook"]


def test_bases_that_are_tasks_themselves_are_left_in_order(app: Celery, began: Mock) -> None:
    install(app)

    class First(Task):
        name = "first"

        def run(self) -> None: ...

        def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
            began.first()

    class Second(First):
        name = "second"

        def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
            super().before_start(task_id, args, kwargs)
            began.second()

    class Third(First):
        name = "third"

    for task in (First(), Second(), Third()):
        app.register_task(task)
    execute(app, "second")
    # Each class asks; the second question of one execution is answered without the store.
    assert [call[0] for call in began.mock_calls] == ["claim", "claim", "first", "second"]

    began.reset_mock()
    execute(app, "third")
    assert [call[0] for call in began.mock_calls] == ["claim", "first"]


def test_a_hook_on_the_task_itself_runs_after_the_claim(app: Celery, began: Mock) -> None:
    @app.task(name="odd")
    def odd() -> None: ...

    task = app.tasks["odd"]
    task.before_start = lambda *_: began.hook()

    install(app)

    execute(app, "odd")
    assert [call[0] for call in began.mock_calls] == ["claim", "hook"]


def test_installing_twice_claims_once(app: Celery, began: Mock) -> None:
    @app.task(name="once", shared=False)
    def once() -> None: ...

    install(app)
    install(app)
    app.tasks.register(app.tasks["once"])

    execute(app, "once")
    assert claims(began) == ["once"]


def test_a_copy_of_the_app_in_a_spawned_process_claims_first(app: Celery, began: Mock) -> None:
    install(app)
    copy = Celery(app.main, broker="memory://", set_as_current=False)

    @copy.task(name="copied")
    def copied() -> None: ...

    execute(copy, "copied")
    copy.close()
    assert claims(began) == ["copied"]


def test_installing_does_not_finalize_the_app(app: Celery) -> None:
    install(app)

    assert not app.finalized


@pytest.mark.parametrize("green", [False, True])
def test_a_worker_that_lost_its_connection_keeps_one_pulse(
    monkeypatch: pytest.MonkeyPatch, *, green: bool
) -> None:
    monkeypatch.setattr(installation, "_has_store", lambda _: True)
    monkeypatch.setattr(installation, "worker_process", lambda _: Mock())
    repeated = [Mock(spec=["cancel"]), Mock(spec=["cancel"])]
    handed_out = [Mock(entry=entry) if green else entry for entry in repeated]
    consumer = Mock(
        **{"timer.call_repeatedly.side_effect": handed_out, "task_consumer.queues": [], "app.tasks": {}}
    )
    pulse = installation.Pulse(consumer)

    pulse.start(consumer)
    pulse.stop(consumer)
    repeated[0].cancel.assert_not_called()
    pulse.start(consumer)

    repeated[0].cancel.assert_called_once()
    repeated[1].cancel.assert_not_called()


@pytest.mark.parametrize(
    ("conf", "claims"),
    [
        ({"broker_url": "redis://localhost"}, True),
        ({"broker_url": "memory://", "catchup_redis_url": "redis://localhost"}, True),
        ({"broker_url": "memory://"}, False),
    ],
)
def test_a_worker_on_a_broker_in_memory_needs_no_store(
    app: Celery, conf: dict[str, str], *, claims: bool
) -> None:
    app.conf.update(conf)

    assert installation._has_store(app) is claims


def test_a_worker_that_cannot_know_its_store_does_not_start(app: Celery) -> None:
    app.conf.broker_url = "amqp://localhost"

    with pytest.raises(ConfigurationError, match="catchup_redis_url: missing"):
        installation.Pulse(Mock(app=app))


# -- deliveries ------------------------------------------------------------------------------


class Request:
    """As much of Celery's as is looked at."""

    def __init__(self, **headers: Any) -> None:
        self.id = "id"
        self.time_start: float | None = None
        self.request_dict: dict[str, Any] = {"properties": {}, **headers}


RUN = {"catchup_run_id": "r", "catchup_entry": "e"}


@pytest.mark.parametrize("headers", [RUN, {"headers": RUN}], ids=["protocol 2", "protocol 1"])
def test_each_delivery_gets_a_token_of_its_own(headers: dict[str, Any]) -> None:
    arrivals, first, second = Arrivals(), Request(**headers), Request(**headers)
    first.request_dict["properties"][TOKEN] = "forged"

    for request in (first, second):
        arrivals.arrived(request)
        assert arrivals.started("id") == []
        assert arrivals.executed_now() == []
    for request in (first, second):
        request.time_start = 1.0

    tokens = {delivery.token for delivery in arrivals.started("id")}
    assert len(tokens) == 2
    assert "forged" not in tokens
    arrivals.forget(tokens.pop())
    assert [delivery.token for delivery in arrivals.started("id")] == list(tokens)
    assert arrivals.started("another id") == []


def test_what_celery_knows_to_be_executed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals, request, other = Arrivals(), Request(**RUN), Request(**RUN)
    monkeypatch.setattr("celery_catchup.worker_plugin.deliveries.active_requests", {request})
    arrivals.arrived(request)
    arrivals.arrived(other)

    (delivery,) = arrivals.executed_now()

    assert delivery.token == request.request_dict["properties"][TOKEN]


def test_an_ordinary_message_is_left_as_it_is() -> None:
    arrivals, request = Arrivals(), Request(headers=None)

    arrivals.arrived(request)

    assert request.request_dict == {"properties": {}, "headers": None}


@pytest.mark.parametrize("strange", [None, 1, [], {}, "", "x" * 201, b"x"])
def test_a_strange_name_makes_no_delivery(strange: object) -> None:
    assert read_delivery({RUN_ID: strange, ENTRY: "entry"}, {}) is None
    assert read_delivery({RUN_ID: "run", ENTRY: strange}, {}) is None


# -- what is reported ------------------------------------------------------------------------


def test_an_error_is_told_in_a_line() -> None:
    assert error_line(ValueError("one\ntwo")) == "ValueError: one"
    assert error_line(ValueError()) == "ValueError"
    assert error_line("no error") == ""
    assert len(error_line(ValueError("x" * 1000))) == 300


def test_an_error_with_a_name_that_is_no_utf_8_can_be_reported() -> None:
    error = FileNotFoundError(2, "No such file", "caf\udce9.csv")

    assert error_line(error) == "FileNotFoundError: [Errno 2] No such file: 'caf\\udce9.csv'"
    assert "\\\\udce9" in dead_letter_of(error, CATEGORIES)


def test_a_letter_keeps_the_end_of_a_long_traceback() -> None:
    letter = dead_letter_of(ValueError("x" * 20_000 + "the end"), CATEGORIES)

    assert len(letter) < 10_000
    assert "the end" in letter
    assert dead_letter_of(None, CATEGORIES) == ""


@pytest.mark.parametrize(
    ("message", "task_ignores", "stored"),
    [({}, False, 1), ({}, True, 0), ({"ignore_result": True}, False, 0), ({"ignore_result": False}, True, 1)],
)
def test_started_is_stored_once_by_us_unless_the_result_is_ignored(
    app: Celery, message: dict[str, Any], *, task_ignores: bool, stored: int
) -> None:
    @app.task(track_started=True, ignore_result=task_ignores, shared=False)
    def tracked() -> None: ...

    app.finalize()
    installation.store_started_after_claim(app)
    backend = Mock()
    tracked.backend = backend
    tracked.push_request(id="t1", hostname="w1", **message)

    for _ in range(2):  # a class and its base
        installation.store_started(tracked)

    assert not tracked.track_started  # Celery does not store it
    assert [call.args[::2] for call in backend.store_result.call_args_list] == [("t1", "STARTED")] * stored
