"""No change without a record: every command, endpoint and Python call that changes something leaves one."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import redis

import celery_catchup
from celery_catchup.cli import catchup
from celery_catchup.flower import api as _api  # noqa: F401 - registers the endpoints
from celery_catchup.flower.api.endpoint import ENDPOINTS
from celery_catchup.model import RunState
from celery_catchup.operations import predecessors
from celery_catchup.operations.audit import list_changes
from celery_catchup.operations.import_state import LastRun
from celery_catchup.store import Actor, AuditAction, Change, Origin
from celery_catchup.store import store as store_module
from celery_catchup.stored_entries.entries import Entries
from celery_catchup.testing import FakeClock
from tests.integration.cli.test_import import BEFORE, redbeat_entry, stopped_beat, when
from tests.integration.flowers import SCRIPT, USER, Site, flower
from tests.integration.operating import ALL, HOURLY, Project

SCHEDULE = {"hourly-etl": HOURLY, "second": HOURLY}
POLICIES = {"hourly-etl": ALL, "second": {**ALL, "hold_above": 1}}
STORED = {"name": "sync", "task": "proj.sync", "schedule": "0 * * * *"}


@dataclass
class World:
    """A project whose beat was away for three hours: a dead run, a queued one, and others that wait; the
    entry "second" is held."""

    project: Project
    clock: FakeClock
    folder: Path

    @property
    def entries(self) -> Entries:
        return celery_catchup.entries(self.project.app, actor="web")

    def runs(self, state: str) -> list[str]:
        found = self.project.json("runs", "hourly-etl", "--state", state)["runs"]
        return [run["runId"] for run in reversed(found)]

    def dead(self) -> str:
        self.project.execute("hourly-etl", state=RunState.FAILED, error="no")
        return self.runs("dead")[0]

    def backfill(self) -> str:
        range_ = ("--start", "2026-02-06T00:00Z", "--end", "2026-02-06T05:00Z")
        return str(self.project.json("backfill", "hourly-etl", *range_, "-f")["id"])

    def records(self) -> list[dict[str, Any]]:
        """All records, the newest first."""
        return list(self.project.json("audit", "--limit", "10000")["records"])

    def count(self) -> int:
        with self.project.operator() as operator:
            return int(operator.store.client.zcard(operator.store.keys.audit_times))


@pytest.fixture
def world(redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setattr(Entries, "clock", desk_clock)
    monkeypatch.chdir(tmp_path)
    project = Project(redis_url, desk_clock, SCHEDULE, POLICIES, catchup_allowed_tasks=["proj.*"])
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    return World(project, desk_clock, tmp_path)


# -- commands --------------------------------------------------------------------------------


def _rename(world: World) -> list[str]:
    conf = world.project.app.conf
    conf.beat_schedule = {"new": HOURLY, "hourly-etl": HOURLY}
    conf.catchup_entries = {"new": ALL, "hourly-etl": ALL}
    return ["second", "new"]


def _applied(world: World) -> list[str]:
    (world.folder / "set.json").write_text(json.dumps([STORED, {**STORED, "name": "other"}]))
    return [str(world.folder / "set.json")]


def _stored(world: World, *args: str) -> list[str]:
    world.entries.create("sync", task="proj.sync", schedule="0 * * * *")
    return ["sync", *args]


def _fresh(world: World, name: str) -> None:
    """Declare an entry that no beat has seen."""
    world.project.app.conf.beat_schedule = {**SCHEDULE, name: HOURLY}
    world.project.app.conf.catchup_entries = {**POLICIES, name: ALL}


def _redbeat(world: World) -> list[str]:
    _fresh(world, "fresh")
    with world.project.operator() as operator:
        redbeat_entry(operator.store.client, "fresh", when(BEFORE))
    return []


def _shelve(world: World) -> list[str]:
    _fresh(world, "fresh")
    return ["-s", stopped_beat(world.project, world.folder, {"fresh": BEFORE})]


def _django(world: World) -> list[str]:
    _fresh(world, "fresh")
    return []


def _suspect(world: World) -> list[str]:
    with world.project.operator() as operator:
        operator.store.client.hset(operator.store.keys.decided, "hourly-etl", "9999999999999")
    return ["--fix"]


def _cancelled(world: World) -> list[str]:
    for run in (*world.runs("queued"), *world.runs("waiting")):
        world.project.catchup("runs", "cancel", run, "-f")
    return ["hourly-etl"]


def _paused_backfill(world: World) -> list[str]:
    made = world.backfill()
    world.project.catchup("backfill", "pause", made)
    return [made]


def _later(world: World) -> list[str]:
    world.clock.set("2026-02-07T12:10:00Z")
    return ["hourly-etl"]


def _paused(world: World) -> list[str]:
    world.project.catchup("pause", "hourly-etl")
    return ["hourly-etl"]


CHANGES: Mapping[str, Callable[[World], list[str]]] = {
    "pause": lambda _: ["hourly-etl"],
    "resume": _paused,
    "approve": lambda _: ["second"],
    "discard": lambda _: ["second"],
    "run": lambda _: ["hourly-etl"],
    "backfill create": lambda _: ["hourly-etl", "--start", "2026-02-06T00:00Z", "--end", "2026-02-06T05:00Z"],
    "backfill pause": lambda world: [world.backfill()],
    "backfill resume": _paused_backfill,
    "backfill cancel": lambda world: [world.backfill()],
    "runs resend": lambda world: world.runs("queued"),
    "runs cancel": lambda world: world.runs("queued"),
    "dlq replay": lambda world: [world.dead()],
    "dlq discard": lambda world: [world.dead()],
    "dlq bury": lambda world: world.runs("queued"),
    "watermark set": lambda _: ["hourly-etl", "2026-02-07T10:30Z"],
    "watermark reset": _later,
    "watermark rename": _rename,
    "entries add": lambda _: ["sync", "--task", "proj.sync", "--schedule", "0 * * * *"],
    "entries edit": lambda world: _stored(world, "--disable"),
    "entries delete": _stored,
    "entries apply": _applied,
    "drift accept": lambda world: _fresh(world, "fresh") or [],
    "import redbeat": _redbeat,
    "import shelve": _shelve,
    "import django": _django,
    "forget": _cancelled,
    "purge": lambda _: [],
    "doctor": _suspect,
}
"""Every command that changes something, with the function that prepares its arguments."""

LOOKS = {
    "audit", "backfill list", "backfill show", "dlq list", "dlq show", "drift show", "entries export",
    "entries list", "preview", "runs list", "runs show", "status", "watermark show", "whatif", "why",
}  # fmt: skip
"""Commands that only look."""
STARTS = {"flower", "demo", "bench", "notify test"}
"""Commands that start other processes, work in a namespace of their own, or send a message to a receiver."""


def _commands(group: click.Group, context: click.Context, *path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from _commands(found, context, *path, name)
        else:
            yield " ".join((*path, name))


def test_every_command_is_known_to_change_something_or_not() -> None:
    # A new command that changes something needs a row in CHANGES, which is then tested.
    assert set(_commands(catchup, click.Context(catchup))) == {*CHANGES, *LOOKS, *STARTS}


@pytest.mark.parametrize("command", CHANGES)
def test_a_command_that_changes_something_leaves_one_record(
    world: World, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"fresh": LastRun(BEFORE, 1)}
    monkeypatch.setattr(predecessors, "django_celery_beat_runs", lambda _: found)
    args = [*command.split(), *CHANGES[command](world)]
    options = {
        option
        for param in _command(command).params
        for option in (*param.opts, *param.secondary_opts)
        if option in ("-n", "-f")
    }
    before = world.count()

    if "-n" in options:
        world.project.catchup(*args, "-n", code=3 if command.startswith("entries") else None)
        assert world.count() == before, "a dry run has left a record"
    if command == "doctor":
        _runner_ignores_the_verdict(world, *args, "-f")
    else:
        world.project.catchup(*args, *(["-f"] if "-f" in options else []))

    assert world.count() == before + 1
    record = world.records()[0]
    words = "backfill" if command == "backfill create" else command
    words = "import" if command.startswith("import") else words
    assert record["action"] == ("doctor --fix" if command == "doctor" else words)
    assert (record["origin"], record["outcome"]) == ("cli", "done")
    assert record["actor"] == str(Actor.of_process(Origin.CLI))
    assert record["entries"] or record["targets"]


def _command(path: str) -> click.Command:
    found: click.Command = catchup
    for name in path.split():
        assert isinstance(found, click.Group)
        next_one = found.get_command(click.Context(found), name)
        assert next_one is not None
        found = next_one
    return found


def _runner_ignores_the_verdict(world: World, *args: str) -> None:
    """No worker answers here, so that the doctor always finds a failure."""
    world.project.catchup(*args, code=1)


@pytest.mark.parametrize("command", sorted(LOOKS - {"audit"}))
def test_a_command_that_looks_leaves_no_record(world: World, command: str) -> None:
    dead, made = world.dead(), world.backfill()
    given = {
        "runs show": [dead],
        "dlq show": [dead],
        "backfill show": [made],
        "why": ["hourly-etl", "2026-02-07T10:00Z"],
        "whatif": ["hourly-etl"],
    }.get(command, [])
    before = world.count()

    world.project.catchup(*command.split(), *given)

    assert world.count() == before


# -- endpoints -------------------------------------------------------------------------------


def _match(world: World) -> tuple[str, dict[str, Any]]:
    name = f"stored-{world.count()}"
    world.entries.create(name, task="proj.sync", schedule="0 * * * *")
    return name, {}


def _held_again(world: World) -> tuple[str, dict[str, Any]]:
    """Hold the entry again, as a beat would after another outage."""
    at = 1_770_465_600_000
    with world.project.operator() as operator:
        pause = {"paused": True, "at": at, "decided": at, "held": 3, "held_at": at, "reason": ""}
        operator.store.client.hset(operator.store.keys.paused, "second", json.dumps(pause))
    return "second", {}


def _queued(world: World) -> str:
    if not world.runs("queued"):
        world.clock.advance(seconds=1)
        celery_catchup.trigger(world.project.app, "hourly-etl")
    return world.runs("queued")[0]


RANGE = {"entry": "hourly-etl", "start": "2026-02-06T00:00:00Z", "end": "2026-02-06T05:00:00Z"}
REQUESTS: Mapping[str, Callable[[World], tuple[str, dict[str, Any]]]] = {
    "/schedules/{entry}/pause": lambda _: ("hourly-etl", {"reason": "why"}),
    "/schedules/{entry}/resume": lambda _: ("hourly-etl", {}),
    "/schedules/pause": lambda _: ("", {"entries": ["hourly-etl"]}),
    "/schedules/resume": lambda _: ("", {"entries": ["hourly-etl", "second"]}),
    "/schedules/{entry}/approve": _held_again,
    "/schedules/{entry}/discard": _held_again,
    "/schedules/{entry}/watermark": lambda _: ("hourly-etl", {"at": "2026-02-07T10:30:00Z"}),
    "/entries": lambda _: ("", STORED),
    "/entries/{entry}/update": lambda world: (_match(world)[0], {"enabled": False}),
    "/entries/{entry}/delete": _match,
    "/runs": lambda _: ("", {"entry": "hourly-etl"}),
    "/runs/{runId}/replay": lambda world: (world.dead(), {}),
    "/runs/{runId}/discard": lambda world: (world.dead(), {}),
    "/runs/replay": lambda world: ("", {"runIds": [world.dead()]}),
    "/runs/discard": lambda world: ("", {"runIds": [world.dead()]}),
    "/runs/{runId}/resend": lambda world: (_queued(world), {}),
    "/runs/{runId}/cancel": lambda world: (_queued(world), {}),
    "/runs/resend": lambda world: ("", {"runIds": [_queued(world)]}),
    "/runs/cancel": lambda world: ("", {"runIds": [_queued(world)]}),
    "/backfills": lambda _: ("", RANGE),
    "/backfills/{id}/pause": lambda world: (world.backfill(), {}),
    "/backfills/{id}/resume": lambda world: (_paused_backfill(world)[0], {}),
    "/backfills/{id}/cancel": lambda world: (world.backfill(), {}),
}
"""Every endpoint that changes something; the function prepares the value in its path, and its body."""


def test_every_endpoint_that_changes_something_leaves_one_record(world: World) -> None:
    assert {one.path for one in ENDPOINTS if one.changes} == set(REQUESTS)

    with flower(world.project.app) as site:
        for path, prepare in REQUESTS.items():
            value, body = prepare(world)
            address = "/".join(value if part.startswith("{") else part for part in path.split("/"))
            before = world.count()
            assert site.post(address, {**body, "dryRun": True}).status in (200, 201), path
            assert world.count() == before, f"a dry run of {path} has left a record"

            assert site.post(address, body).status in (200, 201), path

            assert world.count() == before + 1, path
            record = world.records()[0]
            assert (record["actor"], record["origin"], record["outcome"]) == (USER, "api", "done"), path


def test_the_tab_is_told_from_the_api(world: World) -> None:
    with flower(world.project.app) as site:
        site.post("/schedules/hourly-etl/pause", headers={**SCRIPT, "Sec-Fetch-Site": "same-origin"})

    assert world.records()[0]["origin"] == "flower"


# -- Python ----------------------------------------------------------------------------------


CALLS: Mapping[str, Callable[[World, Entries], object]] = {
    "trigger": lambda world, _: celery_catchup.trigger(world.project.app, "hourly-etl", actor="web"),
    "run_headers": lambda world, _: celery_catchup.run_headers(
        "hourly-etl", app=world.project.app, actor="web"
    ),
    "entries.create": lambda _, stored: stored.create("new", task="proj.sync", schedule="0 * * * *"),
    "entries.update": lambda _, stored: stored.update("sync", enabled=False),
    "entries.delete": lambda _, stored: stored.delete("sync"),
    "entries.delete_many": lambda _, stored: stored.delete_many(["sync"]),
    "entries.apply": lambda _, stored: stored.apply([{**STORED, "task": "proj.other"}]),
    "entries.take_over": lambda _, stored: stored.take_over({"new": ({**STORED, "name": "new"}, None)}),
}
NO_CHANGES = {
    "Scheduler", "current_run", "entries", "install", "entries.get", "entries.list", "entries.export",
    "entries.check_free", "entries.find", "entries.names", "entries.problems",
}  # fmt: skip


def test_every_python_call_is_known_to_change_something_or_not() -> None:
    methods = {
        f"entries.{name}"
        for name, found in inspect.getmembers(Entries, inspect.isfunction)
        if not name.startswith("_")
    }

    assert {*celery_catchup.__all__, *methods} - {"__version__"} == {*CALLS, *NO_CHANGES}


@pytest.mark.parametrize("call", CALLS)
def test_a_python_call_that_changes_something_leaves_one_record(world: World, call: str) -> None:
    stored = world.entries
    stored.create("sync", task="proj.sync", schedule="0 * * * *")
    before = world.count()

    CALLS[call](world, stored)

    assert world.count() == before + 1
    assert (world.records()[0]["actor"], world.records()[0]["origin"]) == ("web", "python")


def test_a_program_that_gives_no_name_is_the_user_of_its_process(world: World) -> None:
    celery_catchup.trigger(world.project.app, "hourly-etl")

    assert world.records()[0]["actor"] == Actor.of_process(Origin.PYTHON).name


# -- both or neither -------------------------------------------------------------------------


@contextmanager
def failing_call(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> Iterator[None]:
    """The process dies before the server has the script, or after the server has run it."""
    stock = store_module.Store.call

    def call(self: Any, name: str, args: Mapping[str, object], **given: Any) -> Any:
        if "change" not in args:
            return stock(self, name, args, **given)
        if after:
            stock(self, name, args, **given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store_module.Store, "call", call)
        yield


STATE = ("paused", "decided", "entries", "ledger", "backfills", "dead", "manual", "accepted")


def _state(world: World) -> dict[str, Any]:
    with world.project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        return {
            name: client.hgetall(keys.named(name)) if name != "dead" else client.zrange(keys.dead, 0, -1)
            for name in STATE
        }


@pytest.mark.parametrize("after", [False, True], ids=["before the script", "after the script"])
@pytest.mark.parametrize("command", [one for one in CHANGES if one not in ("purge", "forget", "doctor")])
def test_an_interrupted_change_leaves_both_or_neither(
    world: World, command: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"fresh": LastRun(BEFORE, 1)}
    monkeypatch.setattr(predecessors, "django_celery_beat_runs", lambda _: found)
    args = [*command.split(), *CHANGES[command](world)]
    force = ["-f"] if any("-f" in param.opts for param in _command(command).params) else []
    before, state = world.count(), _state(world)

    with failing_call(monkeypatch, after=after):
        world.project.catchup(*args, *force, code=1)

    changed = _state(world) != state or command == "runs resend"
    assert world.count() - before == int(after)
    assert changed if after else _state(world) == state


def test_a_killed_process_leaves_both_or_neither(world: World, redis_url: str, tmp_path: Path) -> None:
    """Processes pause and resume an entry until they are killed at any moment."""
    script = tmp_path / "hands.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from celery import Celery
            from celery_catchup.store import Actor, AuditAction, Change, Controls, Origin
            from celery_catchup.store.opening import open_store
            controls = Controls(open_store(Celery("killed", broker={redis_url!r}, set_as_current=False)))
            print("ready", flush=True)
            while True:
                for action, change in (("pause", controls.pause), ("resume", controls.resume)):
                    record = Change(actor=Actor("hands", Origin.PYTHON), action=AuditAction(action))
                    change("etl", change=record, now=1)
            """
        )
    )
    with redis.Redis.from_url(redis_url) as client:
        keys = store_module.Store(client, "killed").keys
        for number in range(5):
            process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            while int(client.get(keys.version) or 0) < 20 * (number + 1):
                pass
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()

            # Each change has incremented the version once.
            assert int(client.get(keys.version)) == client.zcard(keys.audit_times) == client.hlen(keys.audit)


# -- several at once -------------------------------------------------------------------------


def test_a_change_of_several_things_leaves_one_record_that_counts_them(world: World) -> None:
    runs = [*world.runs("queued"), *world.runs("waiting")]
    before = world.count()

    world.project.catchup("runs", "resend", *runs, "-f", code=1)

    assert world.count() == before + 1
    record = world.records()[0]
    assert (record["targets"], record["targetCount"]) == (runs, len(runs))
    assert record["outcome"] == f"1 of {len(runs)}"  # those that wait for their turn are refused
    world.project.catchup("runs", "cancel", *runs, "-f")
    assert (world.count(), world.records()[0]["outcome"]) == (before + 2, "done")


def test_a_field_that_is_switched_off_or_emptied_is_on_record(world: World) -> None:
    fields = ("--task", "proj.sync", "--schedule", "0 * * * *", "--description", "x")
    world.project.catchup("entries", "add", "sync", *fields)

    world.project.catchup("entries", "edit", "sync", "--disable", "--description", "")

    assert world.records()[0]["parameters"] == {"description": '""', "enabled": "false"}


def test_a_change_that_changes_nothing_leaves_no_record(world: World) -> None:
    world.project.catchup("pause", "hourly-etl")
    before = world.count()

    world.project.catchup("pause", "hourly-etl")
    world.entries.apply([])
    world.project.catchup("dlq", "discard", world.runs("queued")[0], "-f", code=1)

    assert world.count() == before


def test_a_forgotten_entry_that_was_interrupted_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = _cancelled(world)
    stock = store_module.Store.call

    def call(self: Any, name: str, given: Mapping[str, object], **keys: Any) -> Any:
        if name == "drop_entry":
            raise KeyboardInterrupt
        return stock(self, name, given, **keys)

    with monkeypatch.context() as patched:
        patched.setattr(store_module.Store, "call", call)
        world.project.catchup("forget", *args, "-f", code=1)
    assert world.records()[0]["outcome"] == "begun"

    world.project.catchup("forget", *args, "-f")
    assert world.records()[0]["outcome"] == "done"


def test_a_purge_keeps_the_trail(world: World) -> None:
    world.project.catchup("pause", "hourly-etl")
    before = world.count()

    world.project.catchup("purge", "-f")

    records = world.records()
    assert len(records) == before + 1
    assert (records[0]["action"], records[0]["targets"]) == ("purge", ["proj"])


# -- what a record holds ---------------------------------------------------------------------


def test_secrets_are_not_recorded_and_texts_are_cut(world: World) -> None:
    secret = "hunter2hunter2"
    world.entries.create(
        "sync",
        task="proj.sync",
        schedule="0 * * * *",
        kwargs={"user": "x", "password": secret},
        args=[secret],
        description=f"password={secret}",
    )
    world.project.catchup("pause", "hourly-etl", "--reason", f"token={secret} " + "x" * 5000)

    with world.project.operator() as operator:
        stored = operator.store.client.hvals(operator.store.keys.audit)
    assert not [text for text in stored if secret.encode() in text]
    assert max(map(len, stored)) < 2000
    pause, created = world.records()[:2]
    assert pause["parameters"]["reason"].startswith("token=*** xxx")
    assert created["parameters"]["kwargs"] == "***"
    assert created["parameters"]["schedule"] == "0 * * * *"


def test_a_record_is_bounded_whatever_it_is_of() -> None:
    names = tuple(f"{'e' * 1000}-{number}" for number in range(10_000))
    change = Change(
        actor=Actor("a" * 10_000, Origin.API),
        action=AuditAction.ENTRIES_APPLY,
        entries=names,
        targets=names,
        parameters={f"p{number}": ["x" * 1000] * 100 for number in range(1000)},
    )

    assert len(change.encoded()) < 20_000
    assert json.loads(change.encoded()[20:])["entry_count"] == 10_000


def test_the_trail_keeps_the_newest_of_too_many(world: World) -> None:
    with world.project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        old = {f"{number:020d}": number + 1 for number in range(12_000)}
        client.zadd(keys.audit_times, old)
        client.hset(keys.audit, mapping=dict.fromkeys(old, "{}"))

        for _ in range(4):  # a script removes a bounded number
            world.project.catchup("pause", "hourly-etl")
            world.project.catchup("resume", "hourly-etl")

        assert client.zcard(keys.audit_times) == client.hlen(keys.audit) == 10_000
        assert list_changes(operator).records[0].action == "resume"


# -- reading ---------------------------------------------------------------------------------


def test_changes_are_filtered_by_entry_actor_and_time(world: World) -> None:
    world.project.catchup("pause", "hourly-etl")
    world.project.catchup("approve", "second")
    celery_catchup.trigger(world.project.app, "hourly-etl", actor="Billing")

    def actions(*args: str) -> list[str]:
        return [one["action"] for one in world.project.json("audit", *args)["records"]]

    assert actions("--entry", "hourly-etl") == ["run", "pause"]
    assert actions("--entry", "hour*") == ["run", "pause"]
    assert actions("--entry", "gone") == []
    assert actions("--actor", "bill") == ["run"]
    assert actions("--since", "2999-01-01") == []
    assert actions("--limit", "1") == ["run"]
    table = world.project.catchup("audit", "--actor", "bill")
    assert table.stdout.splitlines()[0].split() == [
        "Time",
        "Actor",
        "From",
        "Action",
        "Of",
        "With",
        "Outcome",
    ]
    assert world.project.catchup("audit", "--entry", "gone").stderr == "No such changes.\n"


def test_a_change_of_more_entries_than_it_names_is_shown_for_each_of_them(world: World) -> None:
    world.entries.apply([{**STORED, "name": f"sync-{number:03d}"} for number in range(30)])

    (record,) = world.project.json("audit", "--entry", "sync-029")["records"]

    assert (len(record["entries"]), record["entryCount"], record["parameters"]) == (20, 30, {"created": 30})


def test_the_api_has_pages_and_the_tab_a_page(world: World) -> None:
    reason = '<script>alert("x")</script>'
    for name in ("hourly-etl", "second"):
        world.project.catchup("pause", name, "--reason", reason) if name == "hourly-etl" else None
        world.project.catchup("run", name, "-f")

    with flower(world.project.app) as site:
        found = _pages(site, "/audit?limit=1")
        assert [one["action"] for one in found] == ["run", "run", "pause"]
        assert site.get("/audit?entry=second&origin=cli").json["items"] == found[:1]
        assert site.get("/audit?origin=api").json["items"] == []
        assert site.get("/audit?origin=fax").status == 400

        page = site.ask("/catchup/audit?entry=hourly-etl").text
        assert reason not in page
        assert "&lt;script&gt;" in page
        assert page.count('id="change-') == 2
        assert site.ask("/catchup/audit?origin=fax").status == 400
        assert "/catchup/audit?entry=hourly-etl" in site.ask("/catchup/entry?entry=hourly-etl").text


def _pages(site: Site, path: str) -> list[dict[str, Any]]:
    found, cursor = [], ""
    while True:
        answer = site.get(f"{path}{cursor}").json
        found += answer["items"]
        if answer["next"] is None:
            return found
        cursor = f"&cursor={answer['next']}"
