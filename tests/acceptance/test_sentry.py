"""sentry-sdk's monitoring of beat tasks: one check-in for each live slot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import until
from tests.acceptance.programs import Program

APP = "tests.projects.watched"


class Watched(Program):
    """The project, and the check-ins that were made."""

    def __init__(self, url: str, folder: Path, **environ: str) -> None:
        self.book = folder / "book"
        self.book.touch()
        super().__init__(
            folder, app=APP, environ={"CATCHUP_TEST_URL": url, "CATCHUP_TEST_BOOK": str(self.book), **environ}
        )

    def checkins(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.book.read_text(encoding="utf-8").splitlines()]

    def traces(self) -> list[str]:
        """The ids of the traces that executed runs belonged to."""
        pages = self.book.with_name("book-traces")
        return pages.read_text(encoding="utf-8").split() if pages.exists() else []

    def count(self) -> Counter[tuple[str, str]]:
        """How many check-ins there are of each monitor and status."""
        return Counter((one["monitor_slug"], one["status"]) for one in self.checkins())


@pytest.fixture
def watched(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(**environ: str) -> Watched:
        made.append(Watched(redis_url, tmp_path, **environ))
        return made[-1]

    yield make
    for one in made:
        one.end()


def outage(watched: Callable[..., Watched], **environ: str) -> Watched:
    """A first beat at the present; then one whose clock is ten minutes ahead, as after an outage."""
    before = watched(**environ)
    first = before.start("beat", "-S", f"{APP}.Scheduler", "--pidfile", "")
    first.until_it_says("Leading")
    first.stop()
    after = watched(CATCHUP_TEST_OFFSET="600", **environ)
    after.start("worker", "--pool", "solo", "--loglevel", "INFO")
    after.start("beat", "-S", f"{APP}.Scheduler", "--pidfile", "")
    return after


def ended(program: Watched) -> list[dict[str, Any]]:
    runs = program.catchup("runs", "--limit", "100")["runs"]
    return [run for run in runs if run["state"] == "succeeded"]


def test_a_live_slot_makes_one_check_in_and_a_missed_one_none(watched: Callable[..., Watched]) -> None:
    program = outage(watched)

    until(lambda: len(ended(program)) >= 10, what="the runs", step=0.5, within=60)

    def settled() -> bool:  # a minute may begin between the two counts
        live = Counter(run["entry"] for run in ended(program) if run["triggerType"] == "scheduler")
        count = program.count()
        both = ("minutely", "written")
        return live["minutely"] >= 1 and all(
            count[entry, "in_progress"] == count[entry, "ok"] == live[entry] for entry in both
        )

    until(settled, what="one check-in for each live run", step=0.5, within=60)
    opened = [one["check_in_id"] for one in program.checkins() if one["status"] == "in_progress"]
    assert len(set(opened)) == len(opened)


def test_catch_up_runs_make_check_ins_when_they_are_asked_to(watched: Callable[..., Watched]) -> None:
    program = outage(watched, CATCHUP_TEST_CHECKINS="all")

    until(lambda: program.count()["minutely", "ok"] >= 10, what="check-ins of all runs", within=60)

    count = program.count()
    assert count["minutely", "in_progress"] == count["minutely", "ok"]


def test_no_run_makes_a_check_in_when_none_should(watched: Callable[..., Watched]) -> None:
    program = outage(watched, CATCHUP_TEST_CHECKINS="none")

    until(lambda: len(ended(program)) >= 10, what="the runs", step=0.5, within=60)

    assert program.checkins() == []


def test_each_run_has_a_trace_of_its_own(watched: Callable[..., Watched]) -> None:
    program = outage(watched)

    until(lambda: len(program.traces()) >= 10, what="the runs", step=0.5, within=60)

    traces = program.traces()
    assert len(set(traces)) == len(traces)
