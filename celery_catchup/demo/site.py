"""Run one project on its own server: a worker, and a beat that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import celery_catchup
from celery_catchup.demo.project import JOURNAL, NAMESPACE, write_project
from celery_catchup.model import Instant
from celery_catchup.store import Ledger, States, Store, connect
from celery_catchup.testing.embedded_server import EmbeddedServer

_PATIENCE = 5.0  # seconds for an orderly end; a worker with short tasks needs less than one
_LAST = 15  # lines of a log that tell why a process died
# Settings of another project would win over those of the demo.
_FOREIGN = ("CELERY_", "CATCHUP_", "DJANGO_SETTINGS_MODULE", "PYTHONWARNINGS")
# What a worker does at its start to find others takes seconds; this one is alone.
_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True)
class TaskStart:
    """A line that a task wrote when it started; without a slot under Celery's own scheduler."""

    entry: str
    started: Instant
    run_id: str | None
    slot: Instant | None
    is_catchup: bool | None


class GrowingFile:
    """Yields the lines of a growing file, each once and only when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path, self._read = path, 0

    def new_lines(self) -> Iterator[str]:
        """Yield the lines that were added since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield line.decode(errors="replace").rstrip()


class CeleryProcess:
    """A Celery process of the project, in its own session, with its output in a file."""

    def __init__(self, name: str, *arguments: str, folder: Path) -> None:
        self.name, self.log = name, GrowingFile(folder / f"{name.replace(' ', '-')}.log")
        with self.log.path.open("wb") as output:
            # Its own session: Ctrl-C in the terminal reaches only the demo, which then ends it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tasks", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,
            )
        self.terminate = self._process.terminate

    @property
    def exit_code(self) -> int | None:
        """Return None while it is alive; negative when a signal ended it."""
        return self._process.poll()

    def text(self) -> str:
        """Return its whole log."""
        return self.log.path.read_text(encoding="utf-8", errors="replace")

    def last_lines(self) -> str:
        """Return the end of its log, indented."""
        return "\n".join(f"    {line}" for line in self.text().splitlines()[-_LAST:]) or "    (nothing)"

    def wait_or_kill(self) -> None:
        """Wait for its orderly end, and kill it if that takes too long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self.kill()

    def kill(self) -> None:
        """Kill it and the processes it started; nothing happens when they have ended."""
        # macOS says "not permitted" of a group in which all have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Return our environment without settings of other projects, and with the path to this package.

    A killed worker leaves temporary files: they are removed with the demo's folder.
    """
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    paths = [str(Path(celery_catchup.__file__).parents[1]), *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}


class Site:
    """Starts the processes of one project and reads their traces; ``stack`` ends everything.

    Two sites differ only in the scheduler: project, worker and server are the same.
    """

    def __init__(self, folder: Path, *, scheduler: str, stack: ExitStack) -> None:
        self._folder, self._scheduler, self._stack = folder, scheduler, stack
        (folder / "server").mkdir(parents=True)
        server = stack.enter_context(EmbeddedServer(data_dir=folder / "server"))
        write_project(folder, broker_url=server.url())
        self.processes: dict[str, CeleryProcess] = {}
        self.task_starts: list[TaskStart] = []
        self._journal = GrowingFile(folder / JOURNAL)
        client = connect(server.url())
        stack.callback(client.close)
        store = Store(client, NAMESPACE)
        self._states = States(store)
        self.ledger = Ledger(store)

    def start_worker(self) -> None:
        """Start a worker with two processes, so that two runs at once would be possible."""
        self._start("worker", "worker", "worker", "--concurrency", "2", *_ALONE)

    def start_beat(self, name: str = "beat") -> None:
        """Start a beat, with a log of its own."""
        self._start("beat", name, "beat", "--scheduler", self._scheduler)

    def _start(self, role: str, name: str, *arguments: str) -> None:
        process = CeleryProcess(name, *arguments, "--loglevel", "INFO", folder=self._folder)
        self._stack.callback(process.kill)
        self.processes[role] = process

    def kill_beat(self) -> None:
        """Kill beat, as a power cut would."""
        self.processes.pop("beat").kill()

    def stop(self) -> None:
        """Stop beat and worker in good order; the server stays, to be read."""
        for process in self.processes.values():
            process.terminate()
        while self.processes:
            self.processes.popitem()[1].wait_or_kill()

    def anchors(self) -> Mapping[str, Instant]:
        """Return the instants that slots are counted from, of each entry that beat has seen."""
        return {entry: int(anchor) for entry, anchor in self._states.load().anchors.items()}

    def new_task_starts(self) -> list[TaskStart]:
        """Return the tasks that started since the last call."""
        found = [TaskStart(**json.loads(line)) for line in self._journal.new_lines()]
        self.task_starts += found
        return found

    def task_starts_of(self, entry: str) -> list[TaskStart]:
        """Return the entry's tasks in the order in which they started."""
        return [one for one in self.task_starts if one.entry == entry]
