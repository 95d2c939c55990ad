"""``celery -A proj catchup …`` as a process: found by Celery through the entry point, as a user starts it.

The package may not be installed where the tests run. What an installer would write down, the entry
points of ``pyproject.toml``, is written to a folder on the path, and Celery finds it there.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import ROOT, until

PROJECT = "tests.projects.operated"
# The program ``celery``, which is not on every machine's path; its name matters to the shell's completion.
CELERY = "import sys; from celery.__main__ import main; sys.argv[0] = 'celery'; sys.exit(main())"


class Operator:
    """Somebody at a terminal, with a project whose beat and workers run as processes."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.mended = folder, folder / "mended"
        self.environ = {
            **{name: value for name, value in os.environ.items() if name != "NO_COLOR"},
            "PYTHONPATH": os.pathsep.join([str(_entry_points(folder)), str(ROOT)]),
            "CATCHUP_TEST_URL": url,
            "CATCHUP_TEST_MENDED": str(self.mended),
            "TERM": "xterm",
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def celery(self, *args: str, code: int | None = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        done = subprocess.run(
            [sys.executable, "-c", CELERY, *args],
            cwd=self.folder,
            env={**self.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert code in (None, done.returncode), f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def catchup(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """``celery -A proj catchup …``"""
        return self.celery("-A", PROJECT, "catchup", *args, **options)

    def json(self, *args: str, **options: Any) -> Any:
        return json.loads(self.catchup(*args, "-j", **options).stdout)

    def status(self) -> Any:
        """The status, whether or not a beat leads at this moment."""
        return self.json("status", code=None)

    def start(self, *args: str, **environ: str) -> subprocess.Popen[bytes]:
        """Start it and leave it running."""
        log = (self.folder / f"{len(self._running)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", PROJECT, *args],
                cwd=self.folder,
                env={**self.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A shell lets programs in its background ignore Ctrl-C, and they pass that on.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self._running.append(process)
        return process

    def beat(self, *, hours_ago: int = 0) -> subprocess.Popen[bytes]:
        """A beat; one whose clock is behind by so many hours plays what happened then."""
        offset = str(-hours_ago * 3600)
        return self.start("beat", "-S", f"{PROJECT}:Scheduler", CATCHUP_TEST_OFFSET=offset)

    def type(self, *args: str, keys: str = "", **environ: str) -> tuple[int, str]:
        """Run it at a terminal of its own, and type these keys when it asks; exit code and screen."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            command = [sys.executable, "-m", "celery", "-A", PROJECT, "catchup", *args]
            os.execve(sys.executable, command, {**self.environ, **environ})
        screen, asked = b"", False
        while True:
            ready, _, _ = select.select([terminal], [], [], 30)
            try:
                part = os.read(terminal, 4096) if ready else b""
            except OSError:
                part = b""
            if not part:
                break
            screen += part
            if keys and not asked and b"[y/N]" in screen:
                asked = True
                os.write(terminal, keys.encode())
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), screen.decode()

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _entry_points(folder: Path) -> Path:
    """A folder that looks to Celery as if the package were installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    home = folder / "installed"
    info = home / "celery_catchup-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    groups = {
        name: [f"{key} = {value}" for key, value in points.items()]
        for name, points in project["entry-points"].items()
    }
    text = "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in groups.items())
    (info / "entry_points.txt").write_text(text + "\n")
    return home


@pytest.fixture
def operator(tmp_path: Path, redis_url: str) -> Iterator[Operator]:
    somebody = Operator(tmp_path, redis_url)
    yield somebody
    somebody.end()


def a_night(operator: Operator) -> None:
    """Five hours ago beat was there for a moment, and was killed."""
    beat = operator.beat(hours_ago=5)
    until(lambda: operator.status()["lastTick"], what="a tick", step=0.2)
    os.killpg(beat.pid, signal.SIGKILL)
    beat.wait()


@pytest.mark.slow
def test_an_operator_finds_what_was_missed_runs_it_again_and_sees_that_it_worked(operator: Operator) -> None:
    a_night(operator)

    commands = operator.catchup("--help").stdout
    assert "preview    Show what the next catch-up would do, slot by slot." in commands

    down = operator.catchup("status", "--check", code=1).stdout
    assert re.match(r"Scheduler: down for (5h|4h59m)", down)
    missed = operator.catchup("preview", "--exit-code", code=3).stdout
    assert 'Catch-up preview for "hourly-etl" (overlapPolicy: all, window: 12h)' in missed
    assert re.search(r"\n[56] runs would be dispatched\.\n", missed)  # an hour may have struck meanwhile

    operator.start("worker", "-c", "2", "--without-gossip", "--without-mingle")
    operator.beat()
    until(lambda: operator.status()["deadLetters"] == 1, what="the failure", step=0.3)
    until(
        lambda: len(operator.json("runs", "hourly-etl", "--state", "succeeded")["runs"]) >= 5,
        what="five runs",
        step=0.3,
    )
    assert operator.catchup("status", "--check").stdout == "Scheduler: running (idle)\n"

    table = operator.catchup("runs", "hourly-etl", "--trigger", "catchup").stdout.splitlines()
    assert table[0].split() == "Run ID Trigger Scheduled For Started At State".split()
    assert len(table) - 2 in (4, 5, 6)  # a slot of this very minute is live

    # What failed for good is mended and attempted again.
    letter = operator.json("dlq", "list")["deadLetters"][0]["run"]
    assert letter["error"] == "RuntimeError: the other side is down"
    operator.mended.touch()
    operator.catchup("dlq", "replay", letter["runId"][:8], code=1)
    operator.catchup("dlq", "replay", letter["runId"][:8], "-f")
    until(
        lambda: operator.json("runs", "show", letter["runId"])["run"]["state"] == "succeeded",
        what="the replay",
        step=0.3,
    )

    # What was not recovered is in the list of skipped slots, and a backfill runs it.
    (lost,) = operator.json("runs", "digest", "--state", "skipped")["skipped"]
    count = lost["count"]
    assert (count in (4, 5, 6), lost["reason"]) == (True, "catchup_off")
    between = ("--start", lost["first"], "--end", lost["last"])
    done = operator.json("backfill", "digest", *between, "--max-active", "5", "--follow", "-f")
    assert (done["state"], done["total"], done["dispatched"]) == ("completed", count, count)
    again = operator.json("runs", "digest", "--trigger", "backfill")["runs"]
    assert [run["state"] for run in again] == ["succeeded"] * count

    healthy = operator.catchup("doctor")
    assert "ok: workers: 1 answers, with the plugin" in healthy.stdout
    assert "ok: scheduler: leader " in healthy.stdout


def test_a_question_is_asked_at_a_terminal(operator: Operator) -> None:
    words = ("backfill", "hourly-etl", "--start", "3h ago", "--end", "now")
    operator.catchup(*words, code=1)

    no, screen = operator.type(*words, keys="n\r")
    assert no == 1
    assert 'Backfill 3 slots of "hourly-etl" from ' in screen
    assert "Error: nothing was changed" in screen
    assert operator.json("backfill", "list") == {"backfills": []}

    yes, _ = operator.type(*words, keys="y\r")
    assert yes == 0
    (made,) = operator.json("backfill", "list")["backfills"]
    assert made["total"] == 3


def test_colours_are_shown_at_a_terminal_unless_somebody_minds(operator: Operator) -> None:
    _, coloured = operator.type("doctor")
    _, plain = operator.type("doctor", NO_COLOR="1")

    assert "\x1b[32mok\x1b[0m: versions" in coloured
    assert "\x1b" not in plain.replace("\x1b[K", "")
    assert "ok: versions" in plain


def test_runs_are_followed_until_somebody_has_seen_enough(operator: Operator) -> None:
    first = operator.catchup("run", "hourly-etl").stdout.strip()
    follower = operator.start("catchup", "runs", "--follow", "-j")
    log = operator.folder / "0.log"
    until(lambda: first in log.read_text(), what="the first run")
    second = operator.catchup("run", "plain").stdout.strip()
    until(lambda: second in log.read_text(), what="the second run")

    os.kill(follower.pid, signal.SIGINT)

    assert follower.wait(10) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["runId"] for line in lines] == [first, second]


def test_a_probe_tells_an_unreachable_store_from_a_missing_beat(operator: Operator) -> None:
    operator.catchup("status", "--check", code=1)

    begun = time.monotonic()
    gone = operator.catchup("status", "--check", code=69, CATCHUP_TEST_URL="redis://:tiger@127.0.0.1:1/0")

    assert time.monotonic() - begun < 15
    assert len(gone.stderr.splitlines()) == 1
    assert "tiger" not in gone.stderr


def test_without_an_app_the_error_says_how_to_name_one(operator: Operator) -> None:
    found = operator.celery("catchup", "status", code=2)

    assert found.stderr.startswith("celery_catchup: 1 mistake in the configuration\n")
    assert found.stderr.endswith("(no app was named: add -A proj after celery)\n")


def test_the_shell_completes_through_celerys_own_program(operator: Operator) -> None:
    found = operator.celery(
        _CELERY_COMPLETE="bash_complete",
        COMP_WORDS=f"celery -A {PROJECT} catchup pause ho",
        COMP_CWORD="5",
    )

    assert found.stdout == "plain,hourly-etl\n"


def test_celery_itself_is_as_it_was(operator: Operator) -> None:
    assert re.match(r"5\.\d+\.\d+ \(", operator.celery("--version").stdout)
    assert "catchup" in operator.celery("--help").stdout
