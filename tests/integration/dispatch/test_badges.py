"""A catch-up run is seen as one in stock Flower and ``celery events``, where headers are not shown."""

from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from celery import Celery, signals

from celery_catchup.config.settings import MarkTasks
from celery_catchup.dispatch import Dispatcher, render
from celery_catchup.dispatch.celery_internals import can_share_template
from celery_catchup.model import Trigger
from celery_catchup.worker_plugin.outcomes import listen
from tests.integration.dispatching import (
    NOW,
    RUN_ID,
    a_dispatcher,
    a_run,
    an_app,
    an_entry,
    comparable,
    rendered,
)
from tests.integration.workers import PROJECT, ROOT, Site, Worker, until


def shown(dispatcher: Dispatcher, entry: Any, trigger: Trigger = Trigger.CATCHUP) -> dict[str, Any]:
    """The headers of a run's message."""
    run = a_run(trigger)
    template = dispatcher.template(entry, policy_entry="hourly", run_id=RUN_ID, run=run)
    headers: dict[str, Any] = rendered(template, run=run)["headers"]
    return headers


def test_a_catchup_run_shows_its_slot_among_its_arguments_and_in_its_name(redis_url: str) -> None:
    app = an_app(redis_url)
    with a_dispatcher(app, redis_url) as dispatcher:
        headers = shown(dispatcher, an_entry(app, kwargs={"hour": 3, "deep": {"a": [1]}}))
        bare = shown(dispatcher, an_entry(app, name="bare"))

    told = {"is_catchup": True, "scheduled_time": "2026-02-07T10:00:00Z"}
    assert ast.literal_eval(headers["kwargsrepr"]) == {**told, "hour": 3, "deep": {"a": [1]}}
    assert ast.literal_eval(bare["kwargsrepr"]) == told
    assert headers["shadow"] == bare["shadow"] == "proj.etl [catch-up]"


@pytest.mark.parametrize("trigger", [trigger for trigger in Trigger if trigger is not Trigger.CATCHUP])
def test_other_runs_of_the_entry_are_as_celery_sends_them(redis_url: str, trigger: Trigger) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, kwargs={"hour": 3})
    with a_dispatcher(app, redis_url) as dispatcher:
        shown(dispatcher, entry)
        headers = shown(dispatcher, entry, trigger)

    assert (headers["shadow"], headers["kwargsrepr"]) == (None, "{'hour': 3}")


def test_the_arguments_that_the_task_gets_are_its_own(redis_url: str) -> None:
    app = an_app(redis_url)
    entry = an_entry(app, kwargs={"hour": 3})
    bodies = []
    with a_dispatcher(app, redis_url) as dispatcher:
        for trigger in (Trigger.CATCHUP, Trigger.SCHEDULER):
            template = dispatcher.template(entry, policy_entry="hourly", run_id=RUN_ID, run=a_run(trigger))
            bodies.append(comparable(rendered(template, run=a_run(trigger)))["body"])

    assert bodies[0] == bodies[1]


def test_what_the_user_chose_to_show_stays(redis_url: str) -> None:
    app = an_app(redis_url)
    options = {"kwargsrepr": "{'password': '***'}", "argsrepr": "(hidden)", "shadow": "nightly"}
    with a_dispatcher(app, redis_url) as dispatcher:
        theirs = shown(dispatcher, an_entry(app, kwargs={"password": "x"}, options=options))
        same_name = shown(dispatcher, an_entry(app, name="same", kwargs={"is_catchup": "maybe"}))

    assert {name: theirs[name] for name in options} == options
    assert same_name["kwargsrepr"] == "{'is_catchup': 'maybe'}"


def test_a_name_that_the_task_gives_itself_stays(redis_url: str) -> None:
    app = an_app(redis_url)

    @app.task(name="proj.named", shared=False)
    def named() -> None: ...

    named.shadow_name = lambda *_, **__: "mine"
    with a_dispatcher(app, redis_url) as dispatcher:
        assert shown(dispatcher, an_entry(app, "proj.named"))["shadow"] == "mine"


@pytest.mark.parametrize(
    ("mark_tasks", "name", "kwargs"),
    [
        (MarkTasks.BOTH, True, True),
        (MarkTasks.NAME, True, False),
        (MarkTasks.KWARGS, False, True),
        (MarkTasks.NONE, False, False),
    ],
)
def test_the_setting_says_where_it_is_shown(
    redis_url: str, mark_tasks: MarkTasks, name: bool, kwargs: bool
) -> None:
    app = an_app(redis_url)
    with redis.Redis.from_url(redis_url) as state:
        dispatcher = Dispatcher(app, state=state, state_db=0, mark_tasks=mark_tasks)
        headers = shown(dispatcher, an_entry(app))
        dispatcher.close()

    assert (headers["shadow"] is not None, "is_catchup" in headers["kwargsrepr"]) == (name, kwargs)


def test_a_run_that_hooks_have_seen_is_shown_too(redis_url: str) -> None:
    app = an_app(redis_url)

    def hook(**_: Any) -> None: ...

    signals.before_task_publish.connect(hook)
    try:
        with a_dispatcher(app, redis_url) as dispatcher:
            headers = shown(dispatcher, an_entry(app))
    finally:
        signals.before_task_publish.disconnect(hook)

    assert headers["shadow"] == "proj.etl [catch-up]"
    assert "is_catchup" in headers["kwargsrepr"]


def test_the_workers_part_in_the_same_process_leaves_messages_shared(redis_url: str) -> None:
    app = an_app(redis_url)

    listen()

    assert can_share_template(app, an_entry(app))


# -- in Flower -----------------------------------------------------------------------------------


@contextmanager
def flower(broker: str, folder: Path) -> Iterator[str]:
    """A stock Flower that watches the broker; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "celery",
        "-b",
        broker,
        "flower",
        f"--port={port}",
        "--address=127.0.0.1",
    ]
    environ = {**os.environ, "FLOWER_UNAUTHENTICATED_API": "true", "PYTHONPATH": str(ROOT)}
    with (folder / "flower.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: "Connected to" in (folder / "flower.log").read_text(), what="Flower")
        yield url
    finally:
        process.kill()
        process.wait()


def found(url: str, search: str) -> dict[str, Any]:
    """What Flower finds."""
    with urllib.request.urlopen(f"{url}/api/tasks?search={quote(search)}", timeout=10) as answer:
        tasks: dict[str, Any] = json.load(answer)
    return tasks


def send_with(dispatcher: Dispatcher, site: Site, app: Celery, trigger: Trigger) -> str:
    """Send a run of a task that is retried twice, as beat would; its id."""
    run_id = site.record("retrying", trigger=str(trigger), kwargs={"countdown": 0})
    entry = an_entry(app, f"{PROJECT}.retrying", name="hourly-etl", kwargs={"countdown": 0})
    run = site.run(run_id)
    template = dispatcher.template(entry, policy_entry="hourly-etl", run_id=run_id, run=run)
    assert template.queue is not None
    site.broker.lpush(template.queue, render(vars(template), run_id, run, NOW))
    return run_id


def test_flower_finds_catchup_runs_after_retries_too(redis_url: str, tmp_path: Path) -> None:
    site = Site(redis_url, tmp_path)
    app = an_app(redis_url)
    events = {"worker_send_task_events": True}
    with flower(redis_url, tmp_path) as url, Worker(site, **events), a_dispatcher(app, redis_url) as sender:
        late, live = (
            send_with(sender, site, app, trigger) for trigger in (Trigger.CATCHUP, Trigger.SCHEDULER)
        )
        site.ended(late, live)
        every = until(lambda: tasks if len(tasks := found(url, "")) == 2 else None)
        until(lambda: {task["state"] for task in found(url, "").values()} == {"SUCCESS"})

        by_kwargs = found(url, "kwargs:is_catchup=True")
        by_name = found(url, "catch-up")
    site.close()

    assert set(every) == {late, live}
    assert set(by_kwargs) == set(by_name) == {late}
    task = by_kwargs[late]
    assert task["name"] == f"{PROJECT}.retrying [catch-up]"
    assert ast.literal_eval(task["kwargs"])["scheduled_time"] == "2026-02-07T10:00:00Z"
    assert [line["retries"] for line in site.lines("start", late)] == [0, 1, 2]
