"""Every command that a log line, a finding, an error or a page suggests is executed, as printed.

The places that build such a command are found by reading the code. Each has a scene here that makes the
package print it; the command is then cut out of the printed text and started as a real process, with a
terminal that answers "y". A place without a scene fails `tests/architecture/test_hints.py`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import html
import io
import logging
import os
import pty
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from celery_catchup.beat.unserved import Unserved
from celery_catchup.events import command_lines
from celery_catchup.flower.installation import IncompatiblePage
from celery_catchup.flower.pages import notes
from celery_catchup.model import RunState, to_instant
from celery_catchup.notifications import messages
from celery_catchup.operations import Operator
from celery_catchup.operations.fleet import Fleet
from celery_catchup.operations.status import Failing, Health, status
from celery_catchup.testing import FakeClock
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import Forked, Process
from tests.architecture.sources import PACKAGE, modules, tree
from tests.integration.flowers import flower
from tests.integration.operating import ALL, Project

BUILDERS = {"command_line": [], "backfill_line": ["backfill", "…"], "celery_line": ["celery"]}
OWN = ("events/command_lines.py", "cli/screen.py")  # they build; others ask them to
GOES_ON = {"worker": "[queues]", "beat": 'msg="Leading"', "flower": "Visit me at"}
"""Programs that do not end by themselves, and what they say when they have started."""
HOURLY = {"task": "proj.etl", "schedule": "0 * * * *"}
NAME = "hourly etl"  # with a blank, which has to be quoted


# -- the places ------------------------------------------------------------------------------


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call that builds a hint, and the words of it that are known before it runs."""
    for node in ast.walk(tree(path)):
        match node:
            case ast.Call(func=ast.Name(id=called), args=args) if called in BUILDERS:
                words = BUILDERS[called] + [*map(word, args[3 if called == "backfill_line" else 0 :])]
            case ast.Call(func=ast.Name(id="partial"), args=[ast.Name(id=called), *args]) if (
                called in BUILDERS
            ):
                words = [*map(word, args), "…"]
            case ast.Call(func=ast.Attribute(attr="hint"), args=[_, *args]):
                words = [*map(word, args)]
            case _:
                continue
        yield node, " ".join(words)


def word(argument: ast.expr) -> str:
    return str(argument.value) if isinstance(argument, ast.Constant) else "…"


def places() -> dict[tuple[str, int], str]:
    """Map the file and line of each such call to its name, which scenes use."""
    found: dict[tuple[str, int], str] = {}
    for path in modules():
        file = path.relative_to(PACKAGE).as_posix()
        for node, words in calls(path) if file not in OWN else ():
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                found[file, line] = f"{file}: {words}"
    return found


PLACES = places()


# -- the stage -------------------------------------------------------------------------------


class Recorder:
    """Stands for the module ``shlex`` where hints are built: notes each hint and who asked for it."""

    def __init__(self) -> None:
        self.built: dict[str, list[str]] = {}  # place -> hints

    def join(self, words: list[str]) -> str:
        frame: Any = sys._getframe(1)
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(PACKAGE) and (short := file.relative_to(PACKAGE).as_posix()) not in OWN:
                place = PLACES.get((short, frame.f_lineno)) or like(short, " ".join(words[4:]))
                self.built.setdefault(place, []).append(shlex.join(words))
                break
            frame = frame.f_back
        return shlex.join(words)


def like(file: str, words: str) -> str:
    """Return the place of a call that was prepared on another line, by its words."""
    patterns = {place: re.escape(place).replace("…", ".*") for place in PLACES.values()}
    found = [place for place, pattern in patterns.items() if re.fullmatch(pattern, f"{file}: {words}")]
    return found[0] if found else f"{file}: {words}"


class Stage:
    """A project that both this process and the commands of the hints can load."""

    def __init__(self, folder: Path, url: str, nursery: Nursery, clock: FakeClock, caplog: Any) -> None:
        self.folder, self.url, self.nursery, self.clock = folder, url, nursery, clock
        self.caplog, self.printed = caplog, ""
        self.processes: list[Process] = []

    def project(self, policies: dict[str, Any], **settings: Any) -> Project:
        """Declare entries with these policies, each hourly."""
        schedule = dict.fromkeys(policies, HOURLY)
        settings = {"catchup_ledger_ttl": "9000d", "imports": ["celery_catchup.worker"], **settings}
        (self.folder / "proj.py").write_text(
            "from celery import Celery\n"
            f"app = Celery('proj', broker={self.url!r})\n"
            f"app.conf.update(beat_schedule={schedule!r}, catchup_entries={policies!r}, **{settings!r})\n"
            "@app.task(name='proj.etl')\ndef etl(): pass\n"
        )
        return Project(self.url, self.clock, schedule, policies, **settings)

    def outage(self, project: Project, *, hours: int = 4) -> None:
        """Beat was there some hours ago, was away, and is back for a moment."""
        self.clock.set(datetime.now(UTC) - timedelta(hours=hours))
        project.tick()
        self.clock.set(datetime.now(UTC))
        project.tick()

    def show(self, project: Project, *command: str, code: int | None = None) -> None:
        """Print a command's output."""
        found = project.catchup(*command, code=code)
        self.printed += found.stdout + found.stderr

    def log(self) -> None:
        """Print what was logged."""
        self.printed += "\n".join(record.getMessage() for record in self.caplog.records)

    def execute(self, hint: str) -> str:
        """Start a command as printed, at a terminal where someone confirms; return what it says."""
        program, *words = shlex.split(hint.replace("NEW", "etl"))  # NEW: the user has to say what
        assert (program, words[:2]) == ("celery", ["-A", "proj"]), hint
        log = self.folder / f"{len(self.processes)}.log"
        outer, inner = pty.openpty()
        os.write(outer, b"y\n" * 5)
        command = Forked(
            self.nursery, [program, *words], log=log, cwd=self.folder, environ={}, stdin=os.ttyname(inner)
        )
        self.processes.append(command)
        verb = next(word for word in words[2:] if word != "catchup")
        if verb in GOES_ON:
            command.until_it_says(GOES_ON[verb])
            command.stop()
        else:
            code = command.wait()
            # The exit code of these two is a verdict; the doctor has to have one.
            verdict = verb == "status" or (verb == "doctor" and "failure" in command.text())
            assert code == 0 or verdict, command.text()
        os.close(outer)
        os.close(inner)
        return command.text()

    def close(self) -> None:
        for process in self.processes:
            process.end()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    found = Recorder()
    monkeypatch.setattr(command_lines, "shlex", found)
    monkeypatch.setattr(sys, "argv", ["celery", "-A", "proj", "catchup", "…"])
    return found


@pytest.fixture
def stage(
    tmp_path: Path,
    redis_url: str,
    nursery: Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Stage]:
    clock = FakeClock(datetime.now(UTC))
    monkeypatch.setattr(Operator, "clock", clock)
    caplog.set_level(logging.INFO, logger="celery_catchup")
    found = Stage(tmp_path, redis_url, nursery, clock, caplog)
    yield found
    found.close()


# -- the scenes ------------------------------------------------------------------------------

Scene = Callable[[Stage], None]
SCENES: dict[Scene, tuple[str, ...]] = {}


def prints(*hints: str) -> Callable[[Scene], Scene]:
    """Say which hints a scene prints."""

    def add(scene: Scene) -> Scene:
        SCENES[scene] = hints
        return scene

    return add


@prints(
    "cli/status.py: dlq list",
    "cli/status.py: entries",
    "cli/status.py: runs --state skipped --since 24h",
    "cli/status.py: doctor",
    "operations/doctor/processes.py: dlq list",
    "operations/doctor/processes.py: celery beat -S celery_catchup.Scheduler",
    "operations/doctor/processes.py: celery worker",
    "operations/doctor/processes.py: runs --state running",
    "operations/doctor/history.py: backfill …",
    "operations/doctor/examination.py: flower",
    "operations/doctor/repairs.py: watermark rename … NEW",
    "events/log_lines.py: backfill …",
)
def a_bad_night(stage: Stage) -> None:
    """A run is dead and stops its chain, slots were lost, an entry was removed, no process is alive."""
    project = stage.project({"etl": {**ALL, "on_failure": "stop"}, NAME: False, "old": ALL})
    stage.outage(project)
    project.execute("etl", state=RunState.DEAD, error="no")
    stage.log()
    project = stage.project({"etl": {**ALL, "on_failure": "stop"}, NAME: False})
    with project.operator() as operator:
        operator.store.client.zadd(operator.store.keys.leases, {"some-run": 1})
    stage.show(project, "status")
    stage.show(project, "doctor", code=1)


@prints(
    "cli/status.py: runs cancel … --terminate", "operations/doctor/processes.py: runs cancel … --terminate"
)
def a_run_that_hangs(stage: Stage) -> None:
    project = stage.project({NAME: "6h"})
    stage.outage(project)
    with project.running(NAME):
        stage.clock.advance(hours=3)
        project.tick()
        stage.show(project, "status")
        stage.show(project, "doctor", code=1)


@prints("operations/open_runs.py: runs cancel … --terminate")
def a_run_that_runs_is_sent_again(stage: Stage) -> None:
    project = stage.project({NAME: "6h"})
    stage.outage(project)
    with project.running(NAME) as run:
        stage.show(project, "runs", "resend", run.run_id, "-f", code=1)


@prints("operations/doctor/processes.py: runs resend …")
def a_run_that_waits_in_its_queue(stage: Stage) -> None:
    project = stage.project({NAME: "6h"})
    stage.outage(project)
    stage.clock.advance(minutes=1)
    stage.show(project, "doctor", code=1)


@prints("operations/doctor/repairs.py: forget …")
def an_entry_that_was_removed(stage: Stage) -> None:
    stage.project({"etl": ALL, NAME: ALL}).tick()
    stage.show(stage.project({"etl": ALL}), "doctor", code=1)


@prints("operations/open_runs.py: dlq replay …")
def a_run_that_has_ended_is_sent_again(stage: Stage) -> None:
    project = stage.project({NAME: "6h"})
    stage.outage(project)
    (run_id,) = project.execute(NAME, state=RunState.DEAD, error="no")
    stage.show(project, "runs", "resend", run_id, "-f", code=1)


@prints("operations/clean_up.py: runs cancel … --terminate")
def an_entry_with_open_runs_is_forgotten(stage: Stage) -> None:
    project = stage.project({NAME: "6h"})
    stage.outage(project)
    stage.show(project, "forget", NAME, "-f", code=1)


@prints("beat/unserved.py: celery worker -Q …")
def a_queue_without_workers(stage: Stage) -> None:
    project = stage.project({"etl": ALL})
    fleet = Unserved("celery", None, ("etl",), (), entirely=True)
    stage.printed += f"{fleet.detail}; {fleet.fix}"
    project.tick()


@prints("cli/status.py: doctor")
def workers_without_the_plugin(stage: Stage) -> None:
    project = stage.project({"etl": ALL})
    with project.beat() as beat, project.operator() as operator:
        beat.tick()
        operator.workers.record_alive("celery@with", ["celery"])
        operator.workers.note_consumers({"celery@without": ["celery"]}, now=operator.now())
        stage.show(project, "status")


@prints("cli/dlq.py: dlq replay …")
def a_list_of_dead_letters(stage: Stage) -> None:
    project = stage.project({"etl": ALL})
    stage.outage(project)
    project.execute("etl", state=RunState.DEAD, error="no")
    stage.show(project, "dlq", "list")


@prints("cli/run_tables.py: backfill … --start … --end …")
def a_list_of_skipped_slots(stage: Stage) -> None:
    project = stage.project({NAME: False})
    stage.outage(project)
    stage.show(project, "runs", "--state", "skipped")


@prints("cli/backfill.py: backfill show … --follow")
def a_new_backfill(stage: Stage) -> None:
    project = stage.project({NAME: False})
    stage.outage(project)
    stage.show(project, "backfill", NAME, "--start", "1h ago", "--end", "now", "-f")
    (created,) = project.json("backfill", "list")["backfills"]
    project.catchup("backfill", "cancel", created["id"], "-f")  # or the command would follow it for ever


@prints("operations/doctor/examination.py: drift accept", "engine/takeover.py: drift accept")
def entries_that_differ(stage: Stage) -> None:
    stage.project({"etl": ALL}, catchup_on_drift="refuse").tick()
    project = stage.project({"etl": ALL, NAME: ALL}, catchup_on_drift="refuse")
    with pytest.raises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as refused:
        project.tick()
    stage.printed += refused.getvalue()
    stage.show(project, "doctor", code=1)


@prints("operations/doctor/repairs.py: doctor --fix")
def a_watermark_that_is_not_a_time(stage: Stage) -> None:
    project = stage.project({"etl": ALL})
    stage.outage(project)
    with project.operator() as operator:
        operator.store.client.hset(operator.store.keys.decided, "etl", "yesterday")
    stage.show(project, "doctor", code=1)


@prints(
    "operations/manual_runs.py: backfill … --reprocess completed",
    "operations/dead_letters.py: backfill … --reprocess completed",
)
def a_run_that_has_succeeded(stage: Stage) -> None:
    project = stage.project({NAME: {**ALL, "max_active_runs": 9}})
    stage.outage(project)
    run_id, *_ = project.execute(NAME)
    slot = project.json("runs", "show", run_id)["run"]["scheduledTime"]
    stage.show(project, "run", NAME, "--at", slot, code=1)
    stage.show(project, "dlq", "replay", run_id, "-f", code=1)


@prints("operations/refusals.py: …")
def an_unknown_run(stage: Stage) -> None:
    stage.show(stage.project({"etl": ALL}), "runs", "show", "unknown", code=1)


@prints("operations/refusals.py: …")
def an_unknown_backfill(stage: Stage) -> None:
    stage.show(stage.project({"etl": ALL}), "backfill", "show", "unknown", code=1)


@prints(
    "flower/pages/notes.py: status",
    "flower/pages/notes.py: doctor",
    "flower/pages/notes.py: celery beat -S celery_catchup.Scheduler",
    "flower/pages/notes.py: celery worker",
    "flower/pages/notes.py: runs --overdue",
)
def notes_of_the_tab(stage: Stage) -> None:
    with stage.project({"etl": ALL}).operator() as operator:
        one = Failing("etl", "no", operator.clock.now(), 3, operator.clock.now(), None)
        found = dataclasses.replace(
            status(operator), failing=(one,) * 9, scheduler=Health.DOWN, fleet=Fleet(asked=True)
        )
        found = dataclasses.replace(found, overdue=dict.fromkeys("abc", 1))
    shown = [line for note in notes._problems(found) for line in (note.text, *note.commands)]
    stage.printed += "\n".join(shown)


@prints(
    "flower/pages/entry.py: …",
    "flower/pages/backfills.py: backfill … …",
    "flower/pages/whatif.py: whatif … …",
)
def commands_of_the_tab(stage: Stage) -> None:
    project = stage.project({NAME: ALL})
    stage.outage(project)
    name = quote(NAME)
    with flower(project.app) as site:
        for path in (
            f"entry?entry={name}",
            f"backfill-preview?entry={name}&start=1h&end=now&maxActive=2",
            f"whatif?entry={name}&policy=all",
        ):
            stage.printed += html.unescape(site.ask(f"/catchup/{path}").text)


@prints("flower/installation.py: status")
def an_incompatible_flower(stage: Stage) -> None:
    stage.project({"etl": ALL})
    shown: list[str] = []
    page: Any = SimpleNamespace(_reason="a reason", set_status=lambda _: None, finish=shown.append)
    IncompatiblePage.get(page)
    stage.printed += html.unescape("".join(shown))


@prints(
    "cli/preview_table.py: approve …",
    "cli/status.py: approve --all -n",
    "events/log_lines.py: approve …",
    "operations/doctor/processes.py: approve --all -n",
)
def a_held_catch_up(stage: Stage) -> None:
    project = stage.project({NAME: {**ALL, "hold_above": 1}})
    stage.clock.set(datetime.now(UTC) - timedelta(hours=4))
    project.tick()
    stage.clock.set(datetime.now(UTC))
    stage.show(project, "preview", NAME)
    project.tick()
    stage.log()
    stage.show(project, "status")
    stage.show(project, "doctor", code=1)


@prints("operations/slot_answers.py: backfill …")
def a_slot_that_was_skipped(stage: Stage) -> None:
    project = stage.project({NAME: False})
    stage.outage(project)
    slot = project.json("runs", "--state", "skipped")["skipped"][0]["first"]
    stage.show(project, "why", NAME, slot)


@prints("operations/slot_answers.py: resume …", "operations/slot_answers.py: status")
def slots_that_are_not_decided(stage: Stage) -> None:
    project = stage.project({NAME: ALL, "etl": ALL})
    stage.clock.set(datetime.now(UTC) - timedelta(hours=4))
    project.tick()
    project.catchup("pause", NAME)
    stage.clock.set(datetime.now(UTC))
    slot = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:00Z}"
    stage.show(project, "why", NAME, slot)
    stage.show(project, "why", "etl", slot)


@prints(
    "operations/slot_answers.py: dlq replay …",
    "operations/slot_answers.py: runs show …",
    "operations/slot_answers.py: backfill … --reprocess failed",
)
def runs_that_ended_badly(stage: Stage) -> None:
    project = stage.project({NAME: {**ALL, "on_failure": "stop"}, "etl": {**ALL, "max_active_runs": 9}})
    stage.outage(project)
    project.execute(NAME, state=RunState.DEAD, error="no")
    project.execute("etl", state=RunState.REVOKED)
    runs = project.json("runs")["runs"]
    for state in ("dead", "waiting", "revoked"):
        run = next(one for one in runs if one["state"] == state)
        stage.show(project, "why", run["entry"], run["scheduledTime"])


@prints("operations/slot_answers.py: doctor")
def a_run_that_nobody_starts(stage: Stage) -> None:
    project = stage.project({NAME: ALL})
    stage.outage(project)
    (run,) = project.json("runs", "--state", "queued")["runs"]
    stage.show(project, "why", NAME, run["scheduledTime"])


@prints("operations/slot_answers.py: approve …")
def a_slot_that_is_held(stage: Stage) -> None:
    project = stage.project({NAME: {**ALL, "hold_above": 1}})
    stage.outage(project)
    stage.show(project, "why", NAME, f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:00Z}")


@prints("operations/slot_answers.py: discard …")
def another_slot_that_is_held(stage: Stage) -> None:
    a_slot_that_is_held(stage)


@prints("events/log_lines.py: discard …")
def another_held_catch_up(stage: Stage) -> None:
    stage.outage(stage.project({NAME: {**ALL, "hold_above": 1}}))
    stage.log()


@prints(
    "notifications/messages.py: runs … --since …",
    "notifications/messages.py: runs … --overdue",
    "notifications/messages.py: backfill …",
    "notifications/messages.py: dlq list …",
    "notifications/messages.py: approve …",
    "notifications/messages.py: status",
    "notifications/messages.py: doctor",
)
def commands_of_notifications(stage: Stage) -> None:
    project = stage.project({NAME: {**ALL, "hold_above": 1}})
    stage.outage(project)
    now = to_instant(stage.clock.now())
    first, last = now - 4 * 3_600_000, now - 3_600_000
    several = (
        messages.missed(NAME, first, now, 3),
        messages.not_recovered(NAME, first, first, last, {"expired": 3}),
        messages.overdue(NAME, first, last, 1, "queued"),
        messages.dead(NAME, 1, 1, {"slot": first, "error": "no"}, "some-run"),
        messages.held(NAME, first, 3),
        messages.entry_failed(NAME, first, "no"),
        messages.leader_changed("here", 2, "there"),
        messages.state_lost("all of it", now),
    )
    stage.printed += "\n".join(str(one.command) for one in several)


@prints("cli/status.py: runs --overdue", "events/log_lines.py: runs --overdue")
def many_slots_that_are_overdue(stage: Stage) -> None:
    entries = {f"etl {number}": {**ALL, "expect_within": "1m"} for number in range(30)}
    project = stage.project(entries)
    stage.outage(project)
    stage.log()
    stage.show(project, "status")


@prints("cli/run_tables.py: backfill … --start … --end …")
def a_lost_slot_that_is_overdue(stage: Stage) -> None:
    project = stage.project({NAME: {"select": False, "expect_within": "1m"}})
    stage.outage(project)
    stage.show(project, "runs", "--overdue")


@prints("beat/worker_inspection.py: celery worker -Q …")
def a_queue_of_catch_ups_without_workers(stage: Stage) -> None:
    project = stage.project({"etl": ALL}, catchup_queue="late")
    with project.beat() as beat:
        beat.tick()
        assert beat._work is not None
        inspection = beat._work.worker_inspection
        inspection._answers = {"celery@here": ["celery"]}
        inspection.poll(1)
    stage.log()


# -- the tests -------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_hint_works_as_printed(scene: Scene, stage: Stage, recorder: Recorder) -> None:
    scene(stage)

    built, executed = dict(recorder.built), set[str]()
    for place in SCENES[scene]:
        printed = [hint for hint in built.get(place, ()) if hint in stage.printed]
        assert printed, f"{place}: built {built.get(place)}, printed:\n{stage.printed}"
        for hint in {printed[0], printed[-1]} - executed:
            stage.execute(hint)
            executed.add(hint)
