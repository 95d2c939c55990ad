"""Similar entries share the message of a template: it equals what Celery builds, byte for byte."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
from celery import Celery, Signature, Task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from celery_catchup.dispatch import Dispatcher, DispatchError, dispatcher
from celery_catchup.model import Trigger
from celery_catchup.store import Template
from tests.integration.dispatching import RUN_ID, a_dispatcher, a_run, an_app, an_entry

ROUTES = {"proj.etl": {"queue": "etl"}, "other.*": {"queue": "others", "priority": 3}}
TASKS = ["proj.etl", "proj.short_lived", "proj.typed", "other.one", "other.two", "unknown.task"]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(max_size=6)
    | st.sampled_from(["@catchup:task_id@", "%s %(task)s", '"body": "x"', "catch\u00fcp \U0001f408"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
options = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["etl", "bulk"]),
        "priority": st.sampled_from([0, 5, 9]),
        "expires": st.sampled_from([60, 60.5, None]),
        "countdown": st.sampled_from([5, 0]),
        "serializer": st.sampled_from(["json", "yaml"]),
        "compression": st.just("zlib"),
        "headers": st.dictionaries(st.sampled_from(["tenant", "task", "body"]), values, max_size=2),
        "shadow": st.sampled_from(["mine", None]),
        "argsrepr": st.sampled_from(["(hidden)", None]),
        "kwargsrepr": st.just("{hidden}"),
        "time_limit": st.just(30),
        "link": st.just({"task": "after", "args": [], "kwargs": {}, "options": {}}),
        "ignore_result": st.booleans(),
        "root_id": st.just("root"),
    },
)
entry_fields = st.fixed_dictionaries(
    {
        "task": st.sampled_from(TASKS),
        "args": st.lists(values, max_size=2),
        "kwargs": st.dictionaries(st.sampled_from(["a", "b", "is_catchup"]), values, max_size=2),
        "options": st.just({}) | options,
    }
)


def the_app(url: str) -> Celery:
    app = an_app(url, task_routes=ROUTES)

    @app.task(name="proj.typed", shared=False, serializer="yaml", time_limit=20)
    def typed(first: Any, *, a: Any = None) -> None:
        raise AssertionError("nothing here is ever executed")

    return app


@pytest.fixture
def sides(redis_url: str) -> Iterator[tuple[Celery, Dispatcher, Dispatcher]]:
    """One that shares what it may, and one that is made to let Celery make each message."""
    app = the_app(redis_url)
    with a_dispatcher(app, redis_url) as ours, a_dispatcher(app, redis_url) as celerys:
        yield app, ours, celerys


def told(make: Dispatcher, entry: Any, policy_entry: str | None, trigger: Trigger) -> Template | str:
    try:
        return make.template(entry, policy_entry=policy_entry, run_id=RUN_ID, run=a_run(trigger))
    except DispatchError as error:
        return str(error)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(entry_fields, min_size=3, max_size=6),
    st.booleans(),
    st.sampled_from([Trigger.CATCHUP, Trigger.SCHEDULER]),
)
def test_a_shared_message_equals_the_one_that_celery_builds(
    sides: tuple[Celery, Dispatcher, Dispatcher],
    fields: list[dict[str, Any]],
    has_policy: bool,
    trigger: Trigger,
) -> None:
    app, ours, celerys = sides
    alike = [{**one, "task": fields[0]["task"], "options": fields[0]["options"]} for one in fields]
    for number, one in enumerate(alike + fields):
        entry = an_entry(app, name=f"entry-{number}", **one)
        policy_entry = entry.name if has_policy else None
        celerys.probe()  # it has no template any more

        assert told(ours, entry, policy_entry, trigger) == told(celerys, entry, policy_entry, trigger)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An item for each message that Celery builds."""
    built: list[str] = []
    stock = dispatcher.capture

    def counted(*args: Any, **options: Any) -> Any:
        built.append("one")
        return stock(*args, **options)

    monkeypatch.setattr(dispatcher, "capture", counted)
    return built


@pytest.mark.parametrize("task", ["proj.{n}", "proj.etl", "unknown.task"])
def test_celery_builds_two_messages_however_many_similar_entries_there_are(
    redis_url: str, captures: list[str], task: str
) -> None:
    app = the_app(redis_url)
    with a_dispatcher(app, redis_url) as ours:
        for number in range(50):
            entry = an_entry(app, task.format(n=number), name=f"entry-{number}", args=[number])
            ours.template(entry, policy_entry=entry.name, run_id=RUN_ID, run=a_run())

    assert len(captures) == 2


def test_entries_with_arguments_of_their_own_store_one_message_and_their_inputs(redis_url: str) -> None:
    app = the_app(redis_url)
    with a_dispatcher(app, redis_url) as ours:
        entries = [an_entry(app, name=f"e{n}", args=[n], kwargs={"tenant": f"t{n}"}) for n in range(20)]
        made = [ours.template(one, policy_entry=one.name, run_id=RUN_ID, run=a_run()) for one in entries]

    stored = {name: part.encoded for one in made for name, part in one.parts.items()}
    assert len(stored) == 21
    assert sorted(map(len, stored.values()))[-2] < 500  # all but the message


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "argument",
    [Signature("proj.etl", args=(1,)), Colour.RED, OrderedDict(a=1), b"bytes"],
    ids=["signature", "enum", "ordered dict", "bytes"],
)
def test_an_entry_with_other_objects_in_its_arguments_is_built_once(
    redis_url: str, captures: list[str], argument: object
) -> None:
    app = the_app(redis_url)
    entry = an_entry(app, args=[argument], options={"serializer": "yaml" if argument == b"bytes" else "json"})
    with a_dispatcher(app, redis_url) as ours:
        templates = [
            ours.template(entry, policy_entry=entry.name, run_id=RUN_ID, run=a_run()) for _ in range(5)
        ]
        entry.args = ["another"]
        changed = ours.template(entry, policy_entry=entry.name, run_id=RUN_ID, run=a_run())

    assert len(set(templates)) == 1
    assert changed not in templates
    assert len(captures) == 2


def test_a_task_that_is_not_hashable_is_sent(redis_url: str) -> None:
    app = the_app(redis_url)

    class Compared(Task):  # type: ignore[misc]
        name = "proj.compared"

        def run(self) -> None:
            raise AssertionError("nothing here is ever executed")

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Compared)

    app.register_task(Compared())
    entry = an_entry(app, "proj.compared")
    with a_dispatcher(app, redis_url) as ours:
        template = ours.template(entry, policy_entry=entry.name, run_id=RUN_ID, run=a_run())

    assert "proj.compared" in template.text


def test_an_app_with_a_message_factory_of_its_own_shares_no_messages(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = the_app(redis_url)
    stock = app.amqp.create_task_message

    def with_tenant(task_id: str, name: str, args: Any, *more: Any, **options: Any) -> Any:
        message = stock(task_id, name, args, *more, **options)
        message.headers["tenant"] = "b" if args[0] > 1 else "a"
        return message

    monkeypatch.setitem(vars(app.amqp), "create_task_message", with_tenant)
    with a_dispatcher(app, redis_url) as ours:
        entries = [an_entry(app, "unknown.task", name=f"entry-{n}", args=[n]) for n in range(4)]
        texts = [ours.template(entry, policy_entry=entry.name).message for entry in entries]

    assert [('"tenant": "b"' in text) for text in texts] == [False, False, True, True]
