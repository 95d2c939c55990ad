"""On a broker that is the state's own server, a rendered template is the message that Celery's own
beat would have pushed, to the very key it would have pushed it to."""

from __future__ import annotations

import importlib.util
import json
from base64 import b64decode
from typing import Any

import pytest
import redis
from celery import Celery, signals
from celery._state import _task_stack
from celery.beat import BeatLazyFunc, ScheduleEntry
from kombu import Exchange, Queue

from celery_catchup.dispatch import Dispatcher, DispatchError, Mode
from celery_catchup.model import Trigger
from celery_catchup.store import Template
from tests.integration.dispatching import (
    NOW,
    RUN_ID,
    SLOT,
    a_dispatcher,
    a_run,
    an_app,
    an_entry,
    comparable,
    nothing,
    publish_run,
    queues,
    rendered,
    stock_send,
    without,
)
from tests.services import private_server

SERIALIZERS = ["json", "pickle", "yaml"] + (["msgpack"] if importlib.util.find_spec("msgpack") else [])

IMPORT = Queue("imports", Exchange("imports", type="topic"), routing_key="imports.#")

# name: (settings, entry)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plainest": ({}, {}),
    "arguments": ({}, {"args": (1, "ü", None), "kwargs": {"deep": {"list": [1.5, True]}}}),
    "a task that beat does not know": ({}, {"task": "elsewhere.task", "args": (1,)}),
    "expires as a number": ({}, {"options": {"expires": 60}}),
    "expires from the task": ({}, {"task": "proj.short_lived"}),
    "expires from the task, taken back": (
        {},
        {"task": "proj.short_lived", "options": {"expires": None}},
    ),
    "countdown": ({}, {"options": {"countdown": 2.5}}),
    "priority of the message": ({}, {"options": {"priority": 7}}),
    "priority steps": (
        {"broker_transport_options": {"priority_steps": [0, 5], "sep": ":"}},
        {"options": {"priority": 6}},
    ),
    "default priority": ({"task_default_priority": 4}, {}),
    "a key prefix": ({"broker_transport_options": {"global_keyprefix": "acme:"}}, {}),
    "a key prefix and a priority": (
        {"broker_transport_options": {"global_keyprefix": "acme:"}},
        {"options": {"priority": 3}},
    ),
    "a queue by name": ({}, {"options": {"queue": "bulk"}}),
    "task_routes": ({"task_routes": {"proj.*": {"queue": "routed", "priority": 3}}}, {}),
    "an exchange and a routing key": (
        {"task_queues": [IMPORT]},
        {"options": {"exchange": "imports", "routing_key": "imports.daily", "declare": [IMPORT]}},
    ),
    "a declared queue of a topic exchange": (
        {"task_queues": [IMPORT]},
        {"options": {"queue": "imports", "routing_key": "imports.hourly"}},
    ),
    "compression": ({"task_compression": "gzip"}, {"args": ("x" * 500,)}),
    "compression of the entry": ({}, {"options": {"compression": "bzip2"}}),
    "user's headers": ({}, {"options": {"headers": {"tenant": "acme", "deep": {"a": [1]}}}}),
    "limits, shadow, delivery mode": (
        {},
        {"options": {"time_limit": 30, "soft_time_limit": 20, "shadow": "nightly", "delivery_mode": 1}},
    ),
    "a result that is wanted": ({}, {"options": {"ignore_result": False}}),
    "a result that is not wanted": ({}, {"options": {"ignore_result": True}}),
    "links": ({}, {"options": {"link": []}}),
    "text that looks like a mark": (
        {},
        {
            "args": ("@catchup:run_id@",),
            "kwargs": {"@catchup!is_catchup@": "@catchup!is_catchup@"},
            "options": {"headers": {"mine": "@catchup:task_id@", "raw": "@catchup!is_catchup@"}},
        },
    ),
} | {f"serializer {name}": ({}, {"options": {"serializer": name}, "args": (1, "ü")}) for name in SERIALIZERS}


@pytest.mark.parametrize(("settings", "fields"), CASES.values(), ids=CASES)
def test_a_rendered_template_is_what_a_stock_send_leaves_in_the_queue(
    redis_url: str, settings: dict[str, Any], fields: dict[str, Any]
) -> None:
    app = an_app(redis_url, **settings)
    entry = an_entry(app, **fields)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(entry, policy_entry="hourly")
    assert queues(redis_url) == {}

    stock_id = stock_send(app, entry)

    ((key, (stock,)),) = queues(redis_url).items()
    assert template.queue == key
    assert template.db == 0
    ours, theirs = rendered(template), json.loads(stock)
    assert comparable(ours) == comparable(theirs)
    # The id is where theirs is.
    for place in ("id", "root_id"):
        assert theirs["headers"][place] == stock_id
        assert ours["headers"][place] == RUN_ID
    assert theirs["properties"]["correlation_id"] == stock_id
    assert ours["properties"]["correlation_id"] == RUN_ID
    for moment in ("expires", "eta"):
        assert bool(ours["headers"][moment]) == bool(theirs["headers"][moment])


def test_the_run_is_told_in_headers(redis_url: str) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")

    caught_up = rendered(template)["headers"]
    live = rendered(template, run=a_run(Trigger.SCHEDULER))["headers"]

    assert {name: caught_up[name] for name in sorted(caught_up) if name.startswith(("data", "catchup"))} == {
        "catchup_entry": "hourly",
        "catchup_run_id": RUN_ID,
        "data_interval_end": "2026-02-07T10:00:00Z",
        "data_interval_start": "2026-02-07T09:00:00Z",
    }
    assert caught_up["scheduled_time"] == "2026-02-07T10:00:00Z"
    assert (caught_up["is_catchup"], caught_up["trigger_type"]) == (True, "catchup")
    assert (live["is_catchup"], live["trigger_type"]) == (False, "scheduler")
    assert caught_up["celery_beat_task"] is True


def test_an_entry_without_a_policy_is_told_its_time_only(redis_url: str) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        headers = rendered(dispatcher.template(an_entry(app), policy_entry=None))["headers"]

    assert {"scheduled_time", "is_catchup", "trigger_type"} <= headers.keys()
    assert not {name for name in headers if name.startswith(("catchup_", "data_interval"))}


def test_a_later_attempt_and_a_second_sending_have_ids_of_their_own(redis_url: str) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")

    message = rendered(template, run=a_run(attempt=3, sends=4))

    assert message["headers"]["id"] == message["properties"]["correlation_id"] == f"{RUN_ID}-3"
    assert message["headers"]["catchup_run_id"] == RUN_ID
    assert message["properties"]["delivery_tag"] == f"{RUN_ID}:4"


def test_relative_times_count_from_the_sending(redis_url: str) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, options={"expires": 60, "countdown": 1.5})
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(entry, policy_entry="hourly")

    headers = rendered(template)["headers"]

    assert (template.expires_ms, template.countdown_ms) == (60_000, 1_500)
    assert headers["expires"] == "2026-02-07T12:23:00Z"
    assert headers["eta"] == "2026-02-07T12:22:01.500Z"


def test_absolute_times_stay_as_they_are(redis_url: str) -> None:
    app = an_app(redis_url)
    options = {"expires": "2100-01-01T00:00:00+00:00", "eta": "2099-01-01T00:00:00+00:00"}
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app, options=options), policy_entry="hourly")

    headers = rendered(template)["headers"]

    assert (template.expires_ms, template.countdown_ms) == (None, None)
    assert (headers["expires"], headers["eta"]) == (options["expires"], options["eta"])


def test_the_users_headers_are_never_changed(redis_url: str) -> None:
    app = an_app(redis_url)
    headers = {"mine": {"deep": [1]}}
    entry = an_entry(app, options={"headers": headers})
    with a_dispatcher(app, redis_url) as dispatcher:
        dispatcher.template(entry, policy_entry="hourly")
        dispatcher.unmanaged_messages(entry, slot=SLOT, now=NOW)

    assert entry.options == {"headers": {"mine": {"deep": [1]}}}
    assert entry.options["headers"] is headers


def test_a_header_of_the_users_does_not_hide_ours(redis_url: str) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, options={"headers": {"is_catchup": "yes", "catchup_run_id": "mine"}})
    with a_dispatcher(app, redis_url) as dispatcher:
        headers = rendered(dispatcher.template(entry, policy_entry="hourly"))["headers"]

    assert (headers["is_catchup"], headers["catchup_run_id"]) == (True, RUN_ID)


# -- one server, several databases ---------------------------------------------------------------


def test_broker_and_state_may_be_in_different_databases(redis_url: str) -> None:
    broker = redis_url.removesuffix("/0") + "/5"
    app = an_app(broker)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")

        assert dispatcher.mode is Mode.ATOMIC
        assert "broker (database 5) and state (database 0) share a Redis server" in dispatcher.reason
    assert (template.queue, template.db) == ("celery", 5)


def test_a_unix_socket_leads_to_the_same_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "s"  # a socket's path has room for about a hundred bytes
    with private_server(socket=path) as server:
        app = an_app(f"redis+socket://{path}?virtual_host=4")
        with a_dispatcher(app, server.url()) as dispatcher:
            template = dispatcher.template(an_entry(app), policy_entry="hourly")

            assert dispatcher.mode is Mode.ATOMIC
    assert (template.queue, template.db) == ("celery", 4)


def test_a_cluster_has_no_queues_that_a_script_could_reach(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = redis.Redis.info
    cluster = {"redis_mode": "cluster"}
    monkeypatch.setattr(redis.Redis, "info", lambda client, section: {**stock(client, section), **cluster})

    with a_dispatcher(an_app(redis_url), redis_url) as dispatcher:
        assert dispatcher.mode is Mode.OUTBOX
        assert "part of a Redis Cluster" in dispatcher.reason


def test_nothing_is_asked_before_the_first_question() -> None:
    app = an_app("redis://127.0.0.1:1/0")
    state = redis.Redis(port=1)

    dispatcher = Dispatcher(app, state=state, state_db=0)

    assert dispatcher.mode is None
    dispatcher.close()
    with pytest.raises(DispatchError, match="broker unreachable") as caught:
        dispatcher.probe()
    assert (caught.value.code, caught.value.temporary) == ("unreachable", True)
    dispatcher.close()


# -- what cannot be pushed by a script -----------------------------------------------------------


def test_a_message_without_a_queue_is_an_error_and_not_lost(redis_url: str) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, options={"exchange": "imports", "exchange_type": "topic", "routing_key": "nobody"})
    with (
        a_dispatcher(app, redis_url) as dispatcher,
        pytest.raises(DispatchError, match="unroutable") as caught,
    ):
        dispatcher.template(entry, policy_entry="hourly")

    assert caught.value.code == "unroutable"
    assert not caught.value.temporary


def test_a_message_for_two_queues_waits_in_the_outbox_and_reaches_both(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="celery_catchup.dispatch")
    exchange = Exchange("both", type="topic")
    two = [Queue(name, exchange, routing_key="both.#") for name in ("left", "right")]
    app = an_app(redis_url, task_queues=two)
    options = {"exchange": "both", "exchange_type": "topic", "routing_key": "both.x", "declare": two}
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app, options=options), policy_entry="hourly")
        assert template.queue is None
        assert queues(redis_url) == {}

        publish_run(dispatcher, vars(template))

    found = queues(redis_url)
    assert {key: len(messages) for key, messages in found.items()} == {"left": 1, "right": 1}
    said = [record.message for record in caplog.records if "outbox" in record.message]
    assert said == [
        'msg="Entry is published from the outbox" entry=hourly detail="it is not one push to one list"'
    ]
    assert json.loads(found["left"][0])["headers"]["is_catchup"] is True


def test_a_queue_that_expires_waits_in_the_outbox(redis_url: str) -> None:
    queue = Queue("brief", queue_arguments={"x-expires": 60_000})
    app = an_app(redis_url, task_queues=[queue], task_default_queue="brief")
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")
        if template.queue is not None:
            pytest.skip("this kombu does not know queues that expire")
        publish_run(dispatcher, vars(template))

    with redis.Redis.from_url(redis_url) as client:
        assert 0 < client.pttl("brief") <= 60_000


def test_a_broadcast_waits_in_the_outbox(redis_url: str) -> None:
    everybody = Exchange("everybody", type="fanout")
    app = an_app(redis_url, task_queues=[Queue("mine", everybody)])
    options = {"queue": "mine", "exchange": "everybody", "exchange_type": "fanout", "routing_key": "x"}
    with a_dispatcher(app, redis_url) as dispatcher, redis.Redis.from_url(redis_url) as client:
        listener = client.pubsub()
        listener.psubscribe("*everybody*")
        assert listener.get_message(timeout=5)

        template = dispatcher.template(an_entry(app, options=options), policy_entry="hourly")
        assert template.queue is None
        assert listener.get_message(timeout=0.05) is None

        publish_run(dispatcher, vars(template))
        told = listener.get_message(timeout=5)
        listener.close()
    assert told is not None
    assert json.loads(told["data"])["headers"]["id"] == RUN_ID


def test_a_key_of_another_type_under_the_queues_name_is_noticed_before_anything_is_written(
    redis_url: str,
) -> None:
    app = an_app(redis_url)
    with redis.Redis.from_url(redis_url) as client:
        client.set("bulk", "not a list")
    with a_dispatcher(app, redis_url) as dispatcher:
        with pytest.raises(DispatchError, match="refuses entry 'hourly''s queue: .*WRONGTYPE") as caught:
            dispatcher.template(an_entry(app, options={"queue": "bulk"}), policy_entry="hourly")
        undeclared = an_entry(app, options={"queue": "bulk", "declare": []})
        template = dispatcher.template(undeclared, policy_entry="hourly")

        assert dispatcher.mode is Mode.ATOMIC
    assert caught.value.code == "refused"
    assert template.queue is None


def test_a_state_user_without_the_right_to_push_is_noticed_at_once(redis_url: str) -> None:
    app = an_app(redis_url)
    with redis.Redis.from_url(redis_url) as admin:
        admin.execute_command(
            "ACL", "SETUSER", "state", "reset", "on", ">secret", "+@all", "~{catchup:*", "~celery.allowed"
        )
        try:
            state_url = redis_url.replace("redis://", "redis://state:secret@")
            with a_dispatcher(app, state_url) as dispatcher:
                assert dispatcher.mode is Mode.OUTBOX
                assert "may not LPUSH" in dispatcher.reason
        finally:
            admin.execute_command("ACL", "DELUSER", "state")


def test_a_server_that_does_not_say_who_it_is_gets_the_outbox(redis_url: str) -> None:
    app = an_app(redis_url)
    with redis.Redis.from_url(redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "quiet", "reset", "on", ">secret", "~*", "+@all", "-info")
        try:
            with a_dispatcher(app, redis_url.replace("redis://", "redis://quiet:secret@")) as dispatcher:
                assert dispatcher.mode is Mode.OUTBOX
                assert "does not say which server it is in" in dispatcher.reason
        finally:
            admin.execute_command("ACL", "DELUSER", "quiet")


def test_a_server_that_is_busy_is_asked_again_and_not_judged(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: Any) -> None:
        raise redis.ResponseError("BUSY Redis is busy running a script")

    app = an_app(redis_url)
    with redis.Redis.from_url(redis_url) as state:
        dispatcher = Dispatcher(app, state=state, state_db=0)
        for part in ("info", "eval"):
            monkeypatch.setattr(state, part, busy)
            with pytest.raises(redis.ResponseError, match="BUSY"):
                dispatcher.probe()
            monkeypatch.undo()
        monkeypatch.setattr(redis.Redis, "info", busy)
        with pytest.raises(DispatchError, match="broker unreachable: BUSY"):
            dispatcher.probe()
        monkeypatch.undo()

        dispatcher.probe()

        assert dispatcher.mode is Mode.ATOMIC
        dispatcher.close()


# -- one template for all runs -------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids that Celery was asked to send under."""
    made: list[str] = []
    stock = Celery.send_task

    def send_task(self: Celery, name: str, *args: Any, **options: Any) -> Any:
        made.append(options["task_id"])
        return stock(self, name, *args, **options)

    monkeypatch.setattr("celery_catchup.dispatch.celery_internals._sends_by_itself", lambda *_: False)
    monkeypatch.setattr(Celery, "send_task", send_task)
    return made


def test_a_template_is_made_once_and_again_when_the_entry_changes(redis_url: str, calls: list[str]) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, kwargs={"list": [1]})
    with a_dispatcher(app, redis_url) as dispatcher:
        first = dispatcher.template(entry, policy_entry="hourly", run_id=RUN_ID, run=a_run())
        assert dispatcher.template(entry, policy_entry="hourly", run_id=RUN_ID, run=a_run()) is first
        assert len(calls) == 1

        entry.kwargs["list"].append(2)
        second = dispatcher.template(entry, policy_entry="hourly")

        assert len(calls) == 2
        assert second.id != first.id
        assert dispatcher.template(entry, policy_entry=None).id != second.id


def test_lazy_arguments_are_evaluated_for_each_run(redis_url: str) -> None:
    app = an_app(redis_url)
    numbers = iter(range(10))
    entry = an_entry(app, args=(BeatLazyFunc(lambda: next(numbers)),), kwargs={"k": BeatLazyFunc(str, 5)})
    with a_dispatcher(app, redis_url) as dispatcher:
        one, other = (
            rendered(
                dispatcher.template(entry, policy_entry="hourly", run_id=RUN_ID, run=a_run(Trigger.SCHEDULER))
            )
            for _ in range(2)
        )

    assert (one["headers"]["argsrepr"], other["headers"]["argsrepr"]) == ("[0]", "[1]")
    assert one["headers"]["kwargsrepr"] == "{'k': '5'}"


def test_hooks_see_each_run_with_its_own_values(redis_url: str) -> None:
    app = an_app(redis_url)
    seen: list[dict[str, Any]] = []

    def before(headers: dict[str, Any], properties: dict[str, Any], **_: Any) -> None:
        seen.append(dict(headers))
        headers["traced"] = f"trace of {headers['id']}"
        properties["app_id"] = "by a hook"

    signals.before_task_publish.connect(before)
    try:
        with a_dispatcher(app, redis_url) as dispatcher:
            template = dispatcher.template(an_entry(app), policy_entry="hourly", run_id=RUN_ID, run=a_run())
    finally:
        signals.before_task_publish.disconnect(before)

    assert seen[0]["id"] == seen[0]["catchup_run_id"] == RUN_ID
    assert (seen[0]["is_catchup"], seen[0]["scheduled_time"]) == (True, "2026-02-07T10:00:00Z")
    again = rendered(template, run=a_run(attempt=2))
    assert again["headers"]["traced"] == f"trace of {RUN_ID}-2"
    assert again["headers"]["catchup_run_id"] == RUN_ID
    assert again["properties"]["app_id"] == "by a hook"


def test_a_router_can_send_catch_up_runs_elsewhere(redis_url: str) -> None:
    def route(name: str, args: Any, kwargs: Any, options: Any, task: Any = None, **_: Any) -> Any:
        return {"queue": "slow"} if options["headers"]["is_catchup"] else None

    app = an_app(redis_url, task_routes=(route,))
    entry = an_entry(app)
    with a_dispatcher(app, redis_url) as dispatcher:
        missed, live = (
            dispatcher.template(entry, policy_entry="hourly", run_id=RUN_ID, run=a_run(trigger))
            for trigger in (Trigger.CATCHUP, Trigger.SCHEDULER)
        )

    assert (missed.queue, live.queue) == ("slow", "celery")


# -- what a task or an entry may not do ----------------------------------------------------------


@pytest.mark.parametrize("option", ["task_id", "producer", "publisher", "connection"])
def test_an_entry_cannot_set_what_each_run_has_of_its_own(redis_url: str, option: str) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher, pytest.raises(DispatchError, match=option) as caught:
        dispatcher.template(an_entry(app, options={option: "mine"}), policy_entry="hourly")

    assert caught.value.code == "invalid"


def test_eager_tasks_are_not_executed_inside_beat(redis_url: str) -> None:
    app = an_app(redis_url, task_always_eager=True)
    with a_dispatcher(app, redis_url) as dispatcher, pytest.raises(DispatchError, match="task_always_eager"):
        dispatcher.template(an_entry(app), policy_entry="hourly")


def test_protocol_1_cannot_be_told_its_run(redis_url: str) -> None:
    app = an_app(redis_url, task_protocol=1)
    with (
        a_dispatcher(app, redis_url) as dispatcher,
        pytest.raises(DispatchError, match="set task_protocol to 2"),
    ):
        dispatcher.template(an_entry(app), policy_entry="hourly")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"args": (object(),)}, "cannot be made a message"),
        ({"args": (BeatLazyFunc(lambda: 1 // 0),)}, "ZeroDivisionError"),
        ({"options": {"headers": {"x": object()}}}, "cannot be made a message"),
        ({"options": {"serializer": "no such"}}, "no such"),
    ],
)
def test_an_entry_that_cannot_be_a_message_is_an_error_of_its_own(
    redis_url: str, fields: dict[str, Any], complaint: str
) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        with pytest.raises(DispatchError, match=complaint) as caught:
            dispatcher.template(an_entry(app, **fields), policy_entry="hourly")
        assert caught.value.code == "invalid"

        assert dispatcher.template(an_entry(app), policy_entry="hourly").queue == "celery"


def test_a_task_that_is_queued_already_by_its_own_guard_is_told_apart(redis_url: str) -> None:
    app = an_app(redis_url)

    class Singleton(app.Task):  # type: ignore[name-defined,misc]
        """As celery-singleton does: the id of the one that is queued already."""

        def apply_async(self, *args: Any, **options: Any) -> Any:
            return app.AsyncResult("another-id")

    class AlreadyQueued(Exception):  # noqa: N818 - celery-once's name
        """As celery-once does."""

    class Once(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, *args: Any, **options: Any) -> Any:
            raise AlreadyQueued

    app.task(nothing, name="proj.singleton", shared=False, base=Singleton)
    app.task(nothing, name="proj.once", shared=False, base=Once)
    with a_dispatcher(app, redis_url) as dispatcher:
        for task in ("proj.singleton", "proj.once"):
            with pytest.raises(DispatchError, match="dropped by its own guard") as caught:
                dispatcher.template(an_entry(app, task), policy_entry="hourly", run_id=RUN_ID, run=a_run())
            assert caught.value.code == "guard_blocked"


def test_a_task_with_its_own_apply_async_gets_the_runs_id(redis_url: str) -> None:
    app = an_app(redis_url)
    ids: list[str] = []

    class Watchful(app.Task):  # type: ignore[name-defined,misc]
        def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            ids.append(options["task_id"])
            return super().apply_async(args, kwargs, **options)

    app.task(nothing, name="proj.watchful", shared=False, base=Watchful)
    with a_dispatcher(app, redis_url) as dispatcher:
        for number in range(2):
            dispatcher.template(
                an_entry(app, "proj.watchful"), policy_entry="hourly", run_id=f"run-{number}", run=a_run()
            )

    assert ids == ["run-0", "run-1"]


def test_a_run_that_is_made_inside_a_task_is_nobodys_child(redis_url: str) -> None:
    app = an_app(redis_url)
    task = app.tasks["proj.etl"]
    task.push_request(id="parent", root_id="grandparent", called_directly=False, children=[])
    _task_stack.push(task)
    try:
        with a_dispatcher(app, redis_url) as dispatcher:
            headers = rendered(dispatcher.template(an_entry(app), policy_entry="hourly"))["headers"]
        assert task.request.children == []
    finally:
        _task_stack.pop()
        task.pop_request()

    assert (headers["root_id"], headers["parent_id"]) == (RUN_ID, None)


def test_a_result_backend_is_not_subscribed_to(redis_url: str) -> None:
    app = an_app(redis_url, result_backend=redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        template = dispatcher.template(an_entry(app), policy_entry="hourly")

    consumer = app.backend.result_consumer
    assert not consumer.subscribed_to
    assert rendered(template)["headers"]["ignore_result"] is False


def test_sent_events_are_not_sent_for_messages_that_are_not_sent_yet(redis_url: str) -> None:
    app = an_app(redis_url, task_send_sent_event=True)
    with a_dispatcher(app, redis_url) as dispatcher:
        assert dispatcher.template(an_entry(app), policy_entry="hourly").queue == "celery"


# -- entries without a policy --------------------------------------------------------------------


def test_a_plain_entry_gives_its_message_to_be_pushed(redis_url: str) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        queue, db, (first,) = dispatcher.unmanaged_messages(an_entry(app), slot=SLOT, now=NOW)
        _, _, (second,) = dispatcher.unmanaged_messages(an_entry(app), slot=SLOT, now=NOW)

    assert (queue, db) == ("celery", 0)
    ids = [json.loads(text)["headers"]["id"] for text in (first, second)]
    assert len(set(ids)) == 2
    assert json.loads(first)["headers"]["is_catchup"] is False
    assert queues(redis_url) == {}


def test_a_plain_entry_is_sent_with_protocol_1_as_celerys_own_beat_sends_it(redis_url: str) -> None:
    app = an_app(redis_url, task_protocol=1)
    entry = an_entry(app, args=(1,), kwargs={"k": "ü"})
    stock_send(app, entry)
    ((theirs,),) = queues(redis_url).values()
    with a_dispatcher(app, redis_url) as dispatcher:
        queue, db, (ours,) = dispatcher.unmanaged_messages(entry, slot=SLOT, now=NOW)
        _, _, (again,) = dispatcher.unmanaged_messages(entry, slot=SLOT, now=NOW)

    assert (queue, db) == ("celery", 0)
    bodies = [json.loads(b64decode(json.loads(text)["body"])) for text in (theirs, ours, again)]
    assert len({body["id"] for body in bodies}) == 3
    assert [without(body, "id") for body in bodies[1:]] == [without(bodies[0], "id")] * 2
    assert json.loads(ours)["headers"]["scheduled_time"] == "2026-02-07T10:00:00Z"


def test_a_plain_entry_that_cannot_be_pushed_is_published(redis_url: str) -> None:
    exchange = Exchange("both", type="topic")
    two = [Queue(name, exchange, routing_key="both.#") for name in ("left", "right")]
    app = an_app(redis_url, task_queues=two)
    entry: ScheduleEntry = an_entry(
        app, options={"exchange": "both", "exchange_type": "topic", "routing_key": "both.x", "declare": two}
    )
    with a_dispatcher(app, redis_url) as dispatcher:
        assert dispatcher.unmanaged_messages(entry, slot=SLOT, now=NOW) == ("", 0, [])

    assert set(queues(redis_url)) == {"left", "right"}


def test_a_template_is_the_same_in_every_process_of_the_app(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made_by(node: str) -> Template:
        app = an_app(redis_url)
        for module in ("celery.app.amqp", "celery_catchup.dispatch.captured_message"):
            monkeypatch.setattr(f"{module}.anon_nodename", lambda: node)
        with a_dispatcher(app, redis_url) as dispatcher:
            return dispatcher.template(an_entry(app), policy_entry="hourly")

    first, second = made_by("gen1@beat-1"), made_by("gen2@beat-2")

    assert first.id == second.id
    assert "gen1" not in first.message
    assert first.encoded == second.encoded


def test_who_waits_for_a_reply_is_named_as_the_entry_names_him(redis_url: str) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, options={"reply_to": "listener"})
    with a_dispatcher(app, redis_url) as dispatcher:
        message = rendered(dispatcher.template(entry, policy_entry="hourly"))

    assert message["properties"]["reply_to"] == "listener"
