"""One project on a server of its own: a worker, and a beat that can be killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery_catchup.demo.processes import Child, Tail
from celery_catchup.demo.project import JOURNAL, NAMESPACE, write_project
from celery_catchup.model import Instant
from celery_catchup.store import Ledger, States, Store, connect
from celery_catchup.testing.embedded_server import EmbeddedServer

OURS = "celery_catchup.Scheduler"
CELERYS = "celery.beat.PersistentScheduler"

# What a worker among others does at its start takes seconds; this one is alone.
_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True)
class Execution:
    """What a task wrote when it started; without a slot when it was not told one."""

    entry: str
    started: Instant
    run_id: str | None
    slot: Instant | None
    is_catchup: bool | None


class Site:
    """Starts the processes of one project and reads what they leave; all ends with ``stack``.

    Only the scheduler differs between two sites: project, worker and server are alike.
    """

    def __init__(self, folder: Path, *, scheduler: str, stack: ExitStack) -> None:
        self.folder, self.scheduler, self._stack = folder, scheduler, stack
        (folder / "server").mkdir(parents=True)
        self._server = stack.enter_context(EmbeddedServer(data_dir=folder / "server"))
        write_project(folder, broker_url=self._server.url())
        self.children: list[Child] = []
        self.executions: list[Execution] = []
        self._journal = Tail(folder / JOURNAL)
        self._beats: list[Child] = []
        client = connect(self._server.url())
        stack.callback(client.close)
        store = Store(client, NAMESPACE)
        self._states = States(store)
        self.ledger = Ledger(store)

    # -- its processes ---------------------------------------------------------------------

    def start_worker(self) -> Child:
        """A worker with two processes: that two runs are never at once is not for want of room."""
        return self._start("worker", "worker", "--concurrency", "2", "--loglevel", "INFO", *_ALONE)

    def start_beat(self) -> None:
        """A beat; each has a log of its own."""
        name = "restarted beat" if self._beats else "beat"
        self._beats.append(self._start(name, "beat", "--scheduler", self.scheduler, "--loglevel", "INFO"))

    def _start(self, name: str, *arguments: str) -> Child:
        child = Child(name, *arguments, folder=self.folder)
        self._stack.callback(child.kill)
        self.children.append(child)
        return child

    @property
    def beat(self) -> Child:
        """The beat that was started last."""
        return self._beats[-1]

    def kill_beat(self) -> None:
        """End it the hard way; that it is gone is no surprise then."""
        self.children.remove(self.beat)
        self.beat.kill()

    def stop(self) -> None:
        """End beat and worker in good order; the server stays, to be asked."""
        for child in self.children:
            child.ask_to_stop()
        while self.children:
            self.children.pop().see_off()

    # -- what they leave -------------------------------------------------------------------

    def anchors(self) -> Mapping[str, Instant]:
        """The instants that slots are counted from, of each entry that beat has seen."""
        return {entry: int(anchor) for entry, anchor in self._states.load().anchors.items()}

    def new_lines_of_beat(self) -> list[str]:
        """What the latest beat has said since the last call."""
        return list(self.beat.tail.lines()) if self._beats else []

    def new_executions(self) -> list[Execution]:
        """What tasks have written since the last call."""
        raw: list[dict[str, Any]] = [json.loads(line) for line in self._journal.lines()]
        found = [Execution(**line) for line in raw]
        self.executions += found
        return found

    def executions_of(self, entry: str) -> list[Execution]:
        """The entry's executions in the order in which they started."""
        return [execution for execution in self.executions if execution.entry == entry]
