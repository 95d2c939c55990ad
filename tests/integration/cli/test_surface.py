"""What all commands share: exit codes, one error text, clean output, help, completion, a light import."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import click
import pytest
from celery import Celery
from celery.bin.celery import celery
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from celery_catchup.beat import scheduler as beat
from celery_catchup.cli import catchup
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

CANARY = "tiger-in-the-tank"
NOWHERE = f"redis://:{CANARY}@127.0.0.1:1/0"

LOOKING = {
    "preview": ("preview",),
    "status": ("status",),
    "why": ("why", "hourly-etl", "now"),
    "whatif": ("whatif", "hourly-etl"),
    "check": ("status", "--check"),
    "entries": ("entries",),
    "runs": ("runs",),
    "skipped": ("runs", "--state", "skipped"),
    "show": ("runs", "show", "abcd1234"),
    "backfills": ("backfill", "list"),
    "backfill": ("backfill", "hourly-etl", "--start", "1d ago", "--end", "now", "-n"),
    "watermarks": ("watermark", "show"),
    "drift": ("drift",),
    "dead letters": ("dlq", "list"),
}
CHANGING = {
    "run": ("run", "hourly-etl"),
    "pause": ("pause", "hourly-etl"),
    "resume": ("resume", "hourly-etl"),
    "set": ("watermark", "set", "hourly-etl", "1h ago", "-f"),
    "reset": ("watermark", "reset", "--all", "-f"),
    "create": ("backfill", "hourly-etl", "--start", "1d ago", "--end", "now", "-f"),
    "accept": ("drift", "accept"),
    "replay": ("dlq", "replay", "--all", "-f"),
    "discard": ("dlq", "discard", "--all", "-f"),
}
each_command = pytest.mark.parametrize(
    "command", [*LOOKING.values(), *CHANGING.values()], ids=[*LOOKING, *CHANGING]
)


def invoke(*args: str, app: Any = None) -> Result:
    """``celery …`` in this process, whatever comes of it."""
    if catchup.name not in celery.commands:
        celery.add_command(catchup)
    app = app or Celery("nobody", broker="memory://", set_as_current=False)
    return CliRunner().invoke(celery, args, default_map={"app": app}, prog_name="celery")


# -- errors ----------------------------------------------------------------------------------


@each_command
def test_a_store_that_is_unreachable_is_one_line_and_69(
    command: tuple[str, ...], desk_clock: FakeClock
) -> None:
    project = Project(NOWHERE, desk_clock)

    found = project.catchup(*command, code=69)

    (line,) = found.stderr.splitlines()
    assert line.startswith("Error: the store at redis://***@127.0.0.1:1/0 is unreachable: ")
    assert found.stdout == ""
    assert CANARY not in found.output


@each_command
def test_mistakes_are_the_text_that_beat_shows_and_2(
    command: tuple[str, ...], redis_url: str, desk_clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = {"hourly-etl": {"windw": "6h", "select": "newest"}, "nightly": "1h"}
    project = Project(redis_url, desk_clock, None, policies)
    with pytest.raises(SystemExit):
        beat.Scheduler(project.app, lazy=True)
    beats = capsys.readouterr().err

    found = project.catchup(*command, code=2)

    assert found.stderr == beats
    assert found.stderr.startswith("celery_catchup: 3 mistakes in the configuration\n")
    assert found.stdout == ""


def test_a_wrong_password_is_one_line_and_2(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url.replace("//", f"//nobody:{CANARY}@"), desk_clock)

    found = project.catchup("status", code=2)

    assert found.stderr.startswith("Error: the store at redis://***@127.0.0.1:")
    assert "authentication failed" in found.stderr
    assert CANARY not in found.output


@pytest.mark.parametrize("command", LOOKING.values(), ids=LOOKING)
def test_state_of_a_newer_version_can_be_looked_at(
    command: tuple[str, ...], redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock)
    with project.operator() as operator:
        operator.store.client.hset(operator.store.keys.meta, "schema", "99")

    # There is no such run, and no beat.
    fails = command in (LOOKING["show"], LOOKING["check"], LOOKING["status"])
    found = project.catchup(*command, code=1 if fails else 0)

    assert "schema" not in found.stderr


@pytest.mark.parametrize("command", CHANGING.values(), ids=CHANGING)
def test_state_of_a_newer_version_is_not_changed(
    command: tuple[str, ...], redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock)
    with project.operator() as operator:
        client: Any = operator.store.client
        client.hset(operator.store.keys.meta, "schema", "99")
        before = {key: client.dump(key) for key in client.scan_iter()}

        found = project.catchup(*command, code=1)

        assert "schema 99, this version of celery_catchup knows 1" in found.stderr
        assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_somebody_elses_key_in_our_place_is_a_line_and_1(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    with project.operator() as operator:
        operator.store.client.set(operator.store.keys.runs, "not a sorted set")

    found = project.catchup("runs", code=1)

    assert found.stderr.startswith("Error: the store at redis://")
    assert "WRONGTYPE" in found.stderr


# -- output ----------------------------------------------------------------------------------

HOSTILE = "evil\x1b[2J\x1b]0;owned\x07\x9b31m\u202ename\nnext"


def a_hostile_run(project: Project) -> str:
    """A run in the ledger whose every text is meant for the terminal."""
    run_id = "abcdef00-0000-5000-8000-000000000000"
    record = {
        "entry": HOSTILE,
        "task": HOSTILE,
        "schedule": 0,
        "slot": 1_770_451_200_000,
        "trigger": "manual",
        "state": "dead",
        "attempt": 1,
        "worker": HOSTILE,
        "error": HOSTILE,
        "by": HOSTILE,
        "template": "x",
    }
    letter = {"type": HOSTILE, "traceback": f"a\n{HOSTILE}", HOSTILE: HOSTILE}
    notes = {HOSTILE: {HOSTILE: json.dumps(HOSTILE)}}
    with project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        client.hset(keys.ledger, run_id, json.dumps(record))
        client.zadd(keys.runs, {run_id: record["slot"]})
        client.zadd(keys.dead, {run_id: record["slot"]})
        client.hset(keys.letters, run_id, json.dumps(letter))
        client.hset(keys.notes, run_id, json.dumps(notes))
        client.hset(keys.first_seen, HOSTILE, 1_770_451_200_000)
        client.hset(keys.paused, HOSTILE, json.dumps({"paused": True, "at": 1, "reason": HOSTILE}))
        client.zadd(
            keys.skips(HOSTILE),
            {json.dumps({"first": 1, "last": 2, "count": 2, "schedule": 0, "reason": HOSTILE}): 2},
        )
    return run_id


@pytest.mark.parametrize(
    "command",
    [
        ("runs",),
        ("runs", "show", "abcdef00"),
        ("runs", "--state", "skipped"),
        ("status",),
        ("entries",),
        ("dlq", "list"),
        ("dlq", "show", "abcdef00"),
        ("dlq", "replay", "abcdef00", "-f"),
        ("dlq", "discard", "abcdef00", "-f"),
        ("runs", HOSTILE + "?"),
        ("backfill", "show", HOSTILE),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", [(), ("-j",)], ids=["text", "json"])
def test_nothing_that_a_terminal_obeys_gets_through(
    redis_url: str, desk_clock: FakeClock, command: tuple[str, ...], form: tuple[str, ...]
) -> None:
    project = Project(redis_url, desk_clock)
    a_hostile_run(project)

    found = invoke("catchup", *command, *form, app=project.app)

    assert not isinstance(found.exception, Exception) or isinstance(found.exception, SystemExit)
    shown = found.output.replace("\n", "")
    assert shown.isprintable(), repr(shown)


def test_colours_are_for_terminals_only(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    a_hostile_run(project)

    assert "\x1b" not in project.text("runs")


def test_quiet_leaves_the_data_and_drops_the_notes(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.catchup("runs")

    found = invoke("-q", "catchup", "runs", app=project.app)

    assert found.stdout
    assert found.stderr == ""


# -- help and completion ---------------------------------------------------------------------


def every_command(group: click.Group, *path: str) -> Any:
    context = click.Context(group, info_name="catchup")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from every_command(command, *path, name)


@pytest.mark.parametrize("path", list(every_command(catchup)), ids=" ".join)
def test_every_command_has_a_help_that_says_what_it_is_for(path: tuple[str, ...]) -> None:
    found = invoke("catchup", *path, "--help")

    assert found.exit_code == 0
    assert found.output.startswith(f"Usage: celery catchup {' '.join(path)}")
    assert len(found.output.splitlines()) > 3


def test_the_help_names_every_verb_and_the_way_through_a_bad_night() -> None:
    found = invoke("catchup", "--help")

    verbs = "preview status entries runs run backfill pause resume watermark dlq flower doctor demo".split()
    for name in verbs:
        assert f"\n  {name} " in found.output
    assert "What was missed, and did it run?" in found.output
    assert "Exit codes: 0 done" in found.output


def test_an_unknown_verb_is_met_with_the_nearest() -> None:
    found = invoke("catchup", "prewiew")

    assert found.exit_code == 2
    assert "Did you mean one of these?\n    preview" in found.output


def test_the_shell_completes_verbs_options_and_entries(redis_url: str) -> None:
    if catchup.name not in celery.commands:
        celery.add_command(catchup)
    complete = ShellComplete(celery, {}, "celery", "_CELERY_COMPLETE")

    def completions(*words: str, incomplete: str = "") -> list[str]:
        return [item.value for item in complete.get_completions(list(words), incomplete)]

    assert "catchup" in completions(incomplete="catch")
    assert completions("catchup", incomplete="pre") == ["preview"]
    assert completions("catchup", "watermark") == ["rename", "reset", "set", "show"]
    assert completions("catchup", "preview", incomplete="--pol") == ["--policy"]
    assert completions("catchup", "preview", "--policy", incomplete="l") == ["latest"]
    assert completions("-A", "tests.projects.operated", "catchup", "pause", incomplete="h") == ["hourly-etl"]
    assert completions("-A", "no.such.module", "catchup", "pause") == []


# -- weight ----------------------------------------------------------------------------------


def test_the_entry_point_imports_nothing_heavy() -> None:
    program = (
        "import sys, celery.bin.celery; before = set(sys.modules); import celery_catchup.cli; "
        "print(sorted(set(sys.modules) - before))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    added = done.stdout
    for heavy in (
        "redis",
        "pydantic",
        "tabulate",
        "croniter",
        "celery_catchup.engine",
        "celery_catchup.store",
    ):
        assert f"'{heavy}" not in added


def test_the_entry_point_costs_no_more_than_ten_milliseconds() -> None:
    program = (
        "import time, celery.bin.celery; begun = time.perf_counter(); import celery_catchup.cli; "
        "print(time.perf_counter() - begun)"
    )

    def once() -> float:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return float(done.stdout)

    assert min(once() for _ in range(5)) < 0.010


def test_listing_the_verbs_imports_no_client(redis_url: str) -> None:
    program = (
        "import sys; from click.testing import CliRunner; from celery_catchup.cli import catchup; "
        "CliRunner().invoke(catchup, ['--help']); print('redis' in sys.modules, 'pydantic' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False False\n"


# -- many runs -------------------------------------------------------------------------------


def test_a_hundred_thousand_runs_are_listed_in_bounded_time(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": ALL, "b": ALL})
    with project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        numbers = {f"{number:08x}-0000": number for number in range(100_000)}
        slots = {run_id: 1_700_000_000_000 + number * 1000 for run_id, number in numbers.items()}
        for entry in "ab":
            record = {
                "entry": entry,
                "task": "t",
                "schedule": 0,
                "trigger": "scheduler",
                "state": "succeeded",
                "attempt": 1,
            }
            own = {run_id: slots[run_id] for run_id, number in numbers.items() if "ab"[number % 2] == entry}
            records = {run_id: json.dumps({**record, "slot": slot}) for run_id, slot in own.items()}
            client.hset(keys.ledger, mapping=records)
            client.zadd(keys.runs_of(entry), own)
        client.zadd(keys.runs, slots)

    begun = time.perf_counter()
    newest = project.json("runs", "a", "b", "--limit", "3")["runs"]
    none = project.json("runs", "--state", "failed")
    one = project.json("runs", "show", "00000007-")

    assert time.perf_counter() - begun < 5
    assert [run["runId"][:8] for run in newest] == ["0001869f", "0001869e", "0001869d"]
    assert none["runs"] == []
    assert none["cursor"] is not None  # it has not looked at all of them, and says so
    assert one["run"]["entry"] == "b"


def test_pages_follow_each_other_without_gap_or_repetition(redis_url: str, desk_clock: FakeClock) -> None:
    from celery_catchup.operations.runs import list_runs

    project = Project(redis_url, desk_clock, {"a": HOURLY, "b": HOURLY}, {"a": ALL, "b": ALL})
    project.tick()
    desk_clock.set("2026-02-07T14:02:00Z")
    project.tick()

    with project.operator() as operator:
        whole = [run.run_id for run in list_runs(operator).runs]
        for entries in ((), ("a", "b")):
            cursor, paged = None, []
            while True:
                page = list_runs(operator, entries, limit=3, cursor=cursor)
                paged += [run.run_id for run in page.runs]
                cursor = page.cursor
                if cursor is None:
                    break
            assert paged == whole
    assert len(whole) == 10
