"""A project on a real server under a clock of the test's own, and the ``celery`` command for it.

The command is Celery's own group, as the program ``celery`` calls it. The package need not be
installed: what its entry point would add is added here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from celery import Celery
from celery.bin.celery import celery
from celery.schedules import crontab
from click.testing import CliRunner, Result

from celery_catchup.beat import scheduler as beat
from celery_catchup.cli import catchup
from celery_catchup.model import RunState, to_instant
from celery_catchup.operations import Operator
from celery_catchup.store import Actor, Backfill, Leases, Origin
from celery_catchup.testing import FakeClock
from celery_catchup.worker_plugin.context import Notebook, RunContext

HOURLY = {"task": "proj.etl", "schedule": crontab(minute=0)}
ALL = {"window": "6h", "overlap_policy": "all"}


class TimedCelery(Celery):
    """An app under the test's clock; Celery's own schedules ask the app."""

    test_clock: FakeClock

    def now(self) -> datetime:
        return self.test_clock.now()


class Project:
    """An app with a schedule, its beat, its workers and its operator."""

    def __init__(
        self,
        url: str,
        clock: FakeClock,
        schedule: Mapping[str, Any] | None = None,
        policies: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = clock
        self.app = TimedCelery("proj", broker=url, set_as_current=False)
        self.app.test_clock = clock
        # The server's clock is not the test's: it would forget runs that ended long ago by its own.
        settings = {"catchup_ledger_ttl": "9000d", **settings}
        self.app.conf.update(
            beat_schedule=dict(schedule or {"hourly-etl": HOURLY}),
            catchup_entries=dict({"hourly-etl": ALL} if policies is None else policies),
            **settings,
        )
        self.app.task(name="proj.etl", shared=False)(_nothing)
        self._runner = CliRunner()

    # -- the operator ----------------------------------------------------------------------

    def catchup(self, *args: str, code: int | None = None, **options: Any) -> Result:
        """``celery -A proj catchup …`` in this process; the exit code is checked, by default for 0. Of
        ``status``, which says by it whether a beat leads, only if it is given."""
        if catchup.name not in celery.commands:
            celery.add_command(catchup)
        result = self._runner.invoke(
            celery, ["catchup", *args], default_map={"app": self.app}, prog_name="celery", **options
        )
        told = f"exit code {result.exit_code}\n{result.stdout}\n{result.stderr}"
        looks = args[:1] == ("status",) and "--check" not in args
        expected = (0, 1) if code is None and looks else (code or 0,)
        assert result.exit_code in expected, told + repr(result.exception)
        return result

    def text(self, *args: str, **options: Any) -> str:
        """What it prints."""
        return self.catchup(*args, **options).stdout

    def json(self, *args: str, **options: Any) -> Any:
        """What it prints with ``-j``."""
        return json.loads(self.catchup(*args, "-j", **options).stdout)

    # -- beat and workers ------------------------------------------------------------------

    @contextmanager
    def beat(self) -> Iterator[beat.Scheduler]:
        """A beat that ticks when it is told to; it hands over at the end."""
        kind = type("Scheduler", (beat.Scheduler,), {"clock": self.clock})
        scheduler = kind(self.app)
        try:
            yield scheduler
        finally:
            scheduler.close()

    def tick(self) -> None:
        """A beat comes, decides what is due, and goes."""
        with self.beat() as scheduler:
            for _ in range(3):
                scheduler.tick()

    @contextmanager
    def operator(self) -> Iterator[Operator]:
        operator = Operator(self.app, actor=Actor("tester@here", Origin.CLI))
        try:
            yield operator
        finally:
            operator.close()

    def execute(
        self,
        entry: str,
        *,
        state: RunState = RunState.SUCCEEDED,
        error: str = "",
        letter: Any = None,
        backfill: str = "",
    ) -> list[str]:
        """A worker executes the active runs of the entry, or of its backfill, at the present moment; their
        ids."""
        with self.operator() as operator:
            now = to_instant(self.clock.now())
            leases = Leases(operator.store, ttl_ms=60_000, now_ms=now)
            done = operator.ledger.active(Backfill.lane_of(backfill) if backfill else entry)
            for run_id in done:
                task = (operator.ledger.run(run_id) or {})["task"]
                leases.claim(run_id, owner="w", task=task, worker="celery@here", entry=entry)
                leases.finish(
                    run_id,
                    entry=entry,
                    owner="w",
                    state=state,
                    error=error,
                    letter=json.dumps(letter) if letter else "",
                )
            return done

    @contextmanager
    def running(self, entry: str) -> Iterator[RunContext]:
        """The entry's active run as its task sees it; the worker does not report its end."""
        with self.operator() as operator:
            now = to_instant(self.clock.now())
            leases = Leases(operator.store, ttl_ms=60_000, now_ms=now)
            (run_id,) = operator.ledger.active(entry)
            claim = leases.claim(run_id, owner="w", task="proj.etl", worker="celery@here", entry=entry)
            notebook = Notebook(operator.notes, run_id, owner="w")
            yield RunContext.of(run_id, claim.run, lease=None, notebook=notebook)

    def slots(self, entry: str) -> list[tuple[str, str]]:
        """The entry's runs in the ledger: slot and trigger."""
        runs = self.json("runs", entry)["runs"]
        return [(run["scheduledTime"], run["triggerType"]) for run in reversed(runs)]


def _nothing() -> None:
    """The body of a task that nobody executes."""
