"""The night shift: whatever breaks, ``status``, ``doctor``, the tab and the API name it, and the command they
name repairs it.

Each row breaks real processes. Within 15 seconds each of them says what is wrong; then the row is repaired,
by the command of the message where there is one, and they say that all is well. ``SLACK`` makes these seconds
longer: on a busy machine with two cores, starting a command takes a second or more.
"""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_catchup.testing.embedded_server import EmbeddedServer
from tests import services
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import ROOT, Forked, Process, until
from tests.integration.flowers import PASSWORD, SCRIPT, USER, Site

APP = "tests.projects.night"
IN_TIME = 15.0
SLACK = 2.0  # times as long: a busy two-core machine starts programs slowly
WORKER = ("worker", "-c", "1", "-l", "warning", "--without-gossip", "--without-mingle")
BEAT = ("beat", "-S", "celery_catchup.Scheduler", "-l", "info")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    text: str
    code: int


class Night:
    """A server or two, a beat, workers, a Flower, and the operator's terminal."""

    site: Site

    def __init__(self, folder: Path, nursery: Nursery, *, wrong: str = "", own_broker: bool = False) -> None:
        self.folder, self._nursery = folder, nursery
        self.store = services.private_server()
        self.store.start()
        self.broker: EmbeddedServer = services.private_server() if own_broker else self.store
        if own_broker:
            self.broker.start()
        self.environ = {
            "NIGHT_FOLDER": str(folder),
            "NIGHT_WRONG": wrong,
            "NIGHT_STORE": self.store.url(),
            "NIGHT_BROKER": self.broker.url(),
            "PYTHONPATH": str(ROOT),
        }
        self.processes: list[Process] = []
        self._commands = 0

    def start(self, *words: str, **environ: str) -> Process:
        """``celery -A … …``, going on."""
        log = self.folder / f"{words[0]}-{len(self.processes)}.log"
        argv = ["celery", "-A", APP, *words]
        if words[0] == "worker":
            argv += ["-n", f"w{len(self.processes)}@night"]
        if words[0] == "beat":
            argv += ["--pidfile", str(log.with_suffix(".pid"))]
        process = Forked(self._nursery, argv, log=log, cwd=ROOT, environ={**self.environ, **environ})
        self.processes.append(process)
        return process

    def catchup(self, *words: str) -> Answer:
        """``celery -A … catchup …``, to its end."""
        self._commands += 1
        log = self.folder / f"command-{self._commands}.log"
        argv = ["celery", "-A", APP, "catchup", *words]
        command = Forked(self._nursery, argv, log=log, cwd=ROOT, environ=self.environ)
        code = command.wait(within=60.0)
        return Answer(command.text(), code)

    def says(self, pattern: str, *words: str, code: int | None = None) -> str:
        """Wait until the command says so; return what it says."""
        latest = Answer("", -1)

        def found() -> str | None:
            nonlocal latest
            latest = self.catchup(*words)
            right = re.search(pattern, latest.text) and code in (None, latest.code)
            return latest.text if right else None

        try:
            return str(until(found, what=f"{words}: {pattern}", within=IN_TIME * SLACK))
        except AssertionError as error:
            raise AssertionError(f"{error}\nexit code {latest.code}\n{latest.text}") from None

    def open_flower(self) -> None:
        """Start Flower, and wait until it serves."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        sign_in = f"--basic-auth={USER}:{PASSWORD}"
        self.start("catchup", "flower", "--address=127.0.0.1", f"--port={port}", sign_in)
        self.site = Site(port, headers=SCRIPT)
        until(lambda: _answers(self.site), what="Flower serves", within=60.0)

    def shows(self, *patterns: str, page: str = "/catchup", status: int = 200) -> str:
        """Wait until the tab shows all of this; return the text of its page."""
        latest = ""

        def found() -> str | None:
            nonlocal latest
            answer = self.site.ask(page)
            latest = re.sub(r"\s*\n\s*", "\n", html.unescape(re.sub(r"<[^>]*>", "", answer.text)))
            right = all(re.search(one, latest) for one in patterns)
            return latest if right and answer.status == status else None

        try:
            return str(until(found, what=f"the tab shows {patterns}", within=IN_TIME * SLACK, step=0.5))
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{re.sub(chr(10) + '[ ' + chr(10) + ']*', chr(10), latest)}"
            ) from None

    def answers(self, right: Callable[[Any], object], *, path: str = "/status", status: int = 200) -> Any:
        """Wait until the API answers so; return the answer."""
        latest: Any = None

        def found() -> Any:
            nonlocal latest
            answer = self.site.get(path)
            latest = answer.json
            return latest if answer.status == status and right(latest) else None

        try:
            return until(found, what="the API answers so", within=IN_TIME * SLACK, step=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{latest}") from None

    def succeeded(self) -> int:
        """Count the runs that have succeeded."""
        return len(json.loads(self.catchup("runs", "--state", "succeeded", "-j").text)["runs"])

    def works(self) -> None:
        """Wait until runs succeed again."""
        before = self.succeeded()
        until(lambda: self.succeeded() > before, what="a run succeeds", within=60.0, step=0.5)

    def close(self) -> None:
        for process in self.processes:
            process.thaw()
            process.end()
        self.store.close()
        if self.broker is not self.store:
            self.broker.close()


def _answers(site: Site) -> bool:
    try:
        return site.ask("/healthcheck").status == 200
    except OSError:
        return False


def unserved(found: Any) -> list[str]:
    """Return the entries that the workers cannot serve, by the API's status."""
    return [name for one in (found["fleet"] or {}).get("unserved", ()) for name in one["entries"]]


def named(text: str, *words: str) -> list[str]:
    """Return the command that a message names, from these words on, without ``celery -A …``."""
    pattern = rf"celery -A {re.escape(APP)} ((?:catchup )?{' '.join(words)}[^\n;]*)"
    found = re.search(pattern, text)
    assert found, f"no command {words} in:\n{text}"
    return shlex.split(found[1])


# -- the table -------------------------------------------------------------------------------------


def all_workers_dead(night: Night, beat: Process, worker: Process) -> None:
    worker.end()
    night.says("Workers: none answers", "status", code=0)
    night.says("running", "status", "--check", code=0)  # another beat would not help
    night.says("none answers", "status", "--check", "--workers", code=1)
    night.answers(lambda found: found["fleet"] and not found["fleet"]["workers"] and found["healthy"])
    told = night.says("failure: workers: none answers", "doctor", code=1)
    shown = night.shows("No worker answers. No run is executed.")
    assert named(shown, "worker") == named(told, "worker")
    night.start(*named(told, "worker"), "-c", "1")
    night.works()
    night.answers(lambda found: found["fleet"] and found["fleet"]["workers"])


def one_queue_without_workers(night: Night, beat: Process, worker: Process) -> None:
    text = "no worker consumes queue 'other'; entries: other"
    night.says(f"Not served: {text}", "status", code=0)
    night.says("running", "status", "--check", code=0)
    told = night.says(f"failure: workers: {text}", "doctor", code=1)
    night.answers(lambda found: unserved(found) == ["other"])
    shown = night.shows("No worker consumes queue 'other'; entries: other")
    assert named(shown, "worker", "-Q") == named(told, "worker", "-Q")
    night.start(*named(told, "worker", "-Q"), "-c", "1")
    night.says("ok: workers: 2 answer, with the plugin", "doctor")
    night.answers(lambda found: found["fleet"] and not unserved(found))


def worker_without_tasks(night: Night, beat: Process, worker: Process) -> None:
    worker.end()
    empty = night.start(*WORKER, NIGHT_WRONG="tasks")
    text = "no worker of queue 'celery' knows task 'night.tick'; entries: tick"
    night.says(f"Not served: {text}", "status", code=0)
    night.says(text, "status", "--check", "--workers", code=1)
    night.says(f"failure: workers: {text}\n    fix: import the task's module there", "doctor", code=1)
    night.answers(lambda found: unserved(found) == ["tick"])
    night.shows(f"N{text[1:]}.", "Import the task's module there")
    empty.end()
    night.start(*WORKER)
    night.works()


def task_unknown(night: Night, beat: Process, worker: Process) -> None:
    text = "no worker of queue 'celery' knows task 'night.tikc'; entries: typo"
    night.says(f"Not served: {text}", "status", code=0)
    night.says(f"failure: workers: {text}", "doctor", code=1)
    night.answers(lambda found: unserved(found) == ["typo"])
    night.shows(f"N{text[1:]}.", "Import the task's module there")
    told = night.says("Queued: 1 run in celery, the oldest for", "status")
    assert "of typo" in told
    advice = night.says("runs resend", "doctor")
    stuck = named(advice, "runs", "resend")[-1]
    assert "sent again" in night.catchup("runs", "resend", stuck, "-f").text
    (waiting,) = night.answers(lambda found: found["queues"])["queues"]
    assert waiting["oldestRun"] == stuck
    assert night.site.post(f"/runs/{stuck}/cancel").json["outcome"] == "cancelled"
    assert "revoked" in night.catchup("runs", "show", stuck).text


def task_hung(night: Night, beat: Process, worker: Process) -> None:
    night.works()
    (night.folder / "hang").touch()
    told = night.says(r"Running long: tick for \d+s, usually .*, \d+ slots blocked \(.*task id", "status")
    advice = night.says("warning: runs: run .* has been running for", "doctor")
    assert named(told, "catchup", "runs", "cancel") == named(advice, "catchup", "runs", "cancel")
    (long,) = night.answers(lambda found: found["longRunning"])["longRunning"]
    assert long["runId"] in named(told, "catchup", "runs", "cancel")
    night.shows(r"A run of tick runs far longer\. For .*, usually .*slots? waited for it or were skipped")
    night.shows("End it…", page=f"/catchup/run/{long['runId']}")
    (night.folder / "hang").unlink()
    (night.folder / "hang").touch()  # the next one would not hang
    command = named(advice, "catchup", "runs", "cancel")[1:]
    assert "being ended" in night.catchup(*command, "-f").text
    (night.folder / "hang").unlink()
    until(lambda: "revoked" in night.catchup("runs", "show", command[2]).text, what="revoked", within=30.0)
    night.works()


def broker_full(night: Night, beat: Process, worker: Process) -> None:
    night.works()
    with redis.Redis.from_url(night.broker.url()) as client:
        client.config_set("maxmemory", 1)
        night.says(r"Not taken by the broker: \d+ runs?, the oldest for", "status")
        night.says("failure: dispatch: the broker takes no messages", "doctor", code=1)
        night.answers(lambda found: (found["unpublishedFor"] or 0) >= 5)
        night.shows(r"The broker takes no messages\. \d+ runs?, the oldest for")
        client.config_set("maxmemory", 0)
    night.works()


def redis_away(night: Night, beat: Process, worker: Process) -> None:
    night.store.stop()
    night.says("is unreachable", "status", code=69)
    night.says("is unreachable", "status", "--check", code=69)
    night.says("failure: store: .*", "doctor", code=1)
    night.answers(lambda found: found["code"] == "store_unavailable", status=503)
    night.shows("The store cannot be read", "is unreachable|cannot be used", status=503)
    night.store.start()
    night.says("Scheduler: running", "status", code=0)
    night.works()


def beat_away(night: Night, beat: Process, worker: Process) -> None:
    beat.kill()
    night.says("Scheduler: down for", "status", code=1)
    night.says("Scheduler: down for", "status", "--check", code=1)
    told = night.says("failure: scheduler: no beat leads", "doctor", code=1)
    night.answers(lambda found: found["scheduler"] == "down" and not found["healthy"])
    shown = night.shows("Beat is down. No tick for", "missed slots are caught up when beat is back")
    assert named(shown, "beat") == named(told, "beat")
    night.start(*named(shown, "beat"))
    night.says("Scheduler: running", "status", "--check", code=0)
    night.answers(lambda found: found["healthy"])
    night.works()


def two_configurations(night: Night, beat: Process, worker: Process) -> None:
    other = night.start(*BEAT, NIGHT_WRONG="queue")
    text = "another beat with other entries uses namespace 'night'"
    night.says(f"Warning: {text}", "status", code=0)
    night.says(f"Warning: {text}", "status", "--check", code=0)
    told = night.says(f"warning: namespace: {text}", "doctor")
    assert "set catchup_namespace in one of them" in told
    night.answers(lambda found: text in found["conflict"]["detail"])
    night.shows(f"Two beats disagree. {text}.*; set catchup_namespace")
    other.stop()
    night.start(*BEAT, NIGHT_WRONG="queue", NIGHT_NAMESPACE="another")
    night.works()


def entry_failing(night: Night, beat: Process, worker: Process) -> None:
    (night.folder / "broken").touch()
    night.says("Failing: lazy: .*no such tenant", "status")
    night.says("failure: scheduler: entry 'lazy' fails: .*no such tenant", "doctor", code=1)
    night.answers(lambda found: [one["entry"] for one in found["failing"]] == ["lazy"])
    night.shows("lazy is failing. .*no such tenant")
    night.works()  # the others go on
    (night.folder / "broken").unlink()
    until(
        lambda: not json.loads(night.catchup("status", "--check", "-j").text)["failing"],
        what="it goes on",
        within=60.0,
    )


def disk_full(night: Night, beat: Process, worker: Process) -> None:
    with redis.Redis.from_url(night.store.url()) as client:
        file = Path(client.config_get("dir")["dir"]) / "dump.rdb"
        file.unlink(missing_ok=True)
        (file / "in the way").mkdir(parents=True)  # no snapshot can be written
        client.config_set("save", "1 1")
        until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", what="a failed save")
        night.says("Scheduler: down for", "status", code=1)
        night.says("Scheduler: down for", "status", "--check", code=1)
        told = night.says(
            "failure: store: .*the server cannot write to its disk; free some space", "doctor", code=1
        )
        night.answers(lambda found: found["scheduler"] == "down" and not found["healthy"])
        shown = night.shows("Beat is down. No tick for", "find out why it does not lead")
        assert night.catchup(*named(shown, "catchup", "doctor")[1:2]).text.splitlines()[0] in told
        shutil.rmtree(file)
        client.config_set("save", "")
    night.says("Scheduler: running", "status", "--check", code=0)
    # Celery's worker ends when its broker refuses to be read; a supervisor would start it again.
    if not worker.alive:
        told = night.says("failure: workers: none answers", "doctor", code=1)
        night.start(*named(told, "worker"), "-c", "1")
    night.works()


ROWS: dict[Callable[[Night, Process, Process], None], dict[str, Any]] = {
    all_workers_dead: {},
    one_queue_without_workers: {"wrong": "queue"},
    worker_without_tasks: {},
    task_unknown: {"wrong": "task"},
    task_hung: {},
    broker_full: {"own_broker": True},
    redis_away: {},
    beat_away: {},
    two_configurations: {},
    entry_failing: {"wrong": "entry"},
    disk_full: {},
}
SHORT = (all_workers_dead, beat_away)
"""The rows that each run of the suite plays."""


@pytest.fixture
def night(tmp_path: Path, nursery: Nursery, request: pytest.FixtureRequest) -> Iterator[Night]:
    place = Night(tmp_path, nursery, **request.param)
    yield place
    place.close()


@pytest.mark.parametrize(
    ("row", "night"),
    [
        pytest.param(row, options, id=row.__name__, marks=() if row in SHORT else pytest.mark.soak)
        for row, options in ROWS.items()
    ],
    indirect=["night"],
)
def test_what_is_wrong_is_named_and_repaired(
    row: Callable[[Night, Process, Process], None], night: Night
) -> None:
    beat, worker = night.start(*BEAT), night.start(*WORKER)
    beat.until_it_says('msg="Leading"')
    night.open_flower()
    until(lambda: night.succeeded() or not worker.alive, what="a first run", within=60.0, step=0.5)

    row(night, beat, worker)
