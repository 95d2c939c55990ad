"""The demo as its audience sees it: a process that tells a story, keeps its word, and leaves nothing."""

from __future__ import annotations

import os
import pty
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from celery_catchup.demo.audit import Account, slots_due
from celery_catchup.demo.site import TaskStart
from celery_catchup.model import Trigger

ROOT = Path(__file__).resolve().parents[2]


class Demo:
    """One performance, watched line by line; its temporary files go to a folder of the test's."""

    def __init__(
        self, folder: Path, *options: str, environ: Mapping[str, str] | None = None, **streams: Any
    ) -> None:
        self.folder = folder
        self.begun = time.monotonic()
        self.lines: list[str] = []
        self.heard_at: list[float] = []
        self.seen: set[int] = set()
        inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "TERM": "xterm"}
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "celery_catchup", "demo", *options],
            cwd=folder,
            env={**inherited, **own, **(environ or {})},
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **streams},
        )

    def until(self, text: str) -> str:
        """Read on until a line has the text; remember which processes there are then."""
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())
            self.heard_at.append(time.monotonic() - self.begun)
            if text in line:
                self.seen |= set(descendants(self.popen.pid))
                return line
        raise AssertionError(f"the demo ended without {text!r}:\n{self.text}")

    def end(self) -> int:
        """Read the rest; the exit code."""
        rest, _ = self.popen.communicate()
        self.lines += rest.splitlines()
        return self.popen.returncode

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def leftovers(self) -> list[object]:
        """Processes that were seen and have not ended, and files; the dead have a moment to be gone."""
        deadline = time.monotonic() + 5
        while (alive := [pid for pid in self.seen if is_alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        return [*alive, *self.folder.iterdir()]


def processes() -> Iterator[tuple[int, int, str]]:
    """Process id, its parent's, and state, of everything on this machine."""
    columns = ["ps", "-axo", "pid=,ppid=,stat="]
    for line in subprocess.run(columns, capture_output=True, text=True, check=True).stdout.splitlines():
        pid, parent, state = line.split()
        yield int(pid), int(parent), state


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent, _ in processes():
        children.setdefault(parent, []).append(child)

    def below(one: int) -> Iterator[int]:
        for child in children.get(one, []):
            yield child
            yield from below(child)

    return list(below(pid))


def is_alive(pid: int) -> bool:
    """A zombie has ended; that nobody has asked how is not the demo's business."""
    return any(one == pid and not state.startswith("Z") for one, _, state in processes())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start demos; what a failing test leaves of them is ended."""
    started: list[Demo] = []

    def begin(*options: str, **streams: Any) -> Demo:
        started.append(Demo(tmp_path, *options, **streams))
        return started[-1]

    yield begin
    for demo in started:
        if demo.popen.poll() is None:
            demo.popen.terminate()
            demo.popen.communicate()


# -- the whole story -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_demo_shows_an_outage_and_accounts_for_every_slot(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.until("three entries")
    demo.until("worker | run  1")
    demo.until("beat is killed")
    demo.until("beat is started again")
    demo.until("Catch-up completed")
    took_until_caught_up = demo.heard_at[-1]
    code = demo.end()
    took = time.monotonic() - demo.begun

    assert code == 0, demo.text
    assert took < 40, "the README promises less than half a minute"
    assert demo.heard_at[0] < took_until_caught_up - 5, "lines are not held back"
    assert demo.leftovers() == []
    assert "\x1b" not in demo.text

    summary = re.search(
        r"(\d+) slots: (\d+) on time, (\d+) caught up, (\d+) skipped with a reason, 0 unaccounted", demo.text
    )
    assert summary, demo.text
    due, on_time, caught_up, skipped = map(int, summary.groups())
    assert due == on_time + caught_up + skipped
    assert caught_up >= 4
    assert skipped >= 4
    executed = [line for line in demo.lines if "worker | run" in line]
    assert len(executed) >= on_time + caught_up
    assert re.search(r"collect-sales .+ Catch-up +succeeded", demo.text)
    assert re.search(r"refresh-cache .+ skipped \(\d slots, superseded\)", demo.text)
    assert re.search(r"send-ping .+ skipped \(\d slots, catchup_off\)", demo.text)
    assert "never two at a time" in demo.text


@pytest.mark.slow
def test_beside_it_celerys_own_scheduler_loses_slots(start: Callable[..., Demo], tmp_path: Path) -> None:
    demo = start("--compare", "--keep")
    demo.until("Catch-up completed")
    code = demo.end()

    assert code == 0, demo.text
    assert time.monotonic() - demo.begun < 60
    rows = re.findall(
        r"^collect-sales +(Celery's|celery_catchup) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) of (\d+)$",
        demo.text,
        re.MULTILINE,
    )
    assert len(rows) == 2, demo.text
    (_, due, runs, _, lost, told, _), (_, our_due, our_runs, _, our_lost, our_told, _) = rows
    assert due == our_due == our_runs == our_told
    assert int(due) - int(runs) == int(lost) >= 1
    assert (our_lost, told) == ("0", "0")

    (kept,) = tmp_path.iterdir()
    assert str(kept) in demo.text
    drawing = runpy.run_path(str(ROOT / "docs" / "demo.py"))
    read = drawing["read"](demo.text, (kept / "celery" / "runs.jsonl").read_text())
    assert sum(len(lane.due) for lane in read.lanes) == int(read.summary.split()[0])
    assert drawing["drawing"](read).count('class="due"') == int(read.summary.split()[0])
    assert {path.name for path in kept.iterdir()} == {"catchup", "celery"}
    assert "Catch-up completed" in (kept / "catchup" / "restarted-beat.log").read_text()
    assert demo.leftovers() == [kept]


# -- the story is cut short ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "scene", ["three entries", "Worker and beat start", "worker | run  1", "beat is killed"]
)
def test_ctrl_c_at_any_moment_ends_everything(start: Callable[..., Demo], scene: str) -> None:
    demo = start()
    demo.until(scene)

    demo.popen.send_signal(signal.SIGINT)
    demo.popen.send_signal(signal.SIGINT)  # impatience changes nothing
    code = demo.end()

    assert code == 130, demo.text
    assert "Traceback" not in demo.text
    assert demo.seen or scene in ("three entries", "Worker and beat start")
    assert demo.leftovers() == []


def test_a_request_to_terminate_is_obeyed_too(start: Callable[..., Demo]) -> None:
    demo = start()
    demo.until('msg="Leading"')

    demo.popen.terminate()

    assert demo.end() == 143, demo.text
    assert demo.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("program", ["worker", "beat"])
def test_a_process_that_dies_by_itself_is_reported_with_its_last_words(
    start: Callable[..., Demo], tmp_path: Path, program: str
) -> None:
    demo = start()
    demo.until('msg="Leading"')
    command = ["ps", "-axo", "pid=,command="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 1) for line in listing.splitlines()]
    found = [int(pid) for pid, text in rows if f"-A tasks {program} " in text and int(pid) in demo.seen]

    os.kill(min(found), signal.SIGKILL)  # of a worker and its children the eldest

    assert demo.end() == 1, demo.text
    assert f"the {program} ended by itself (exit code -9); the last lines of its log:" in demo.text
    assert "Traceback" not in demo.text
    assert demo.leftovers() == []


# -- colours -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["a terminal", "NO_COLOR", "a dumb terminal"],
)
def test_colours_are_for_terminals_that_want_them(
    start: Callable[..., Demo], environ: dict[str, str], coloured: bool
) -> None:
    outer, inner = pty.openpty()
    demo = start(stdout=inner, stderr=subprocess.DEVNULL, environ=environ)
    os.close(inner)

    first = b""
    while not first.endswith(b"\n"):
        first += os.read(outer, 1)
    demo.popen.send_signal(signal.SIGINT)

    assert demo.popen.wait() == 130
    assert (b"\x1b[" in first) is coloured
    os.close(outer)


# -- the audit is no rubber stamp ----------------------------------------------------------

ENTRY = "collect-sales"
DUE = slots_due(1000, 7000, every_ms=2000)


def run(slot: int, **fields: Any) -> dict[str, Any]:
    ended = {"state": "succeeded", "trigger": "scheduler", "started": slot + 10, "finished": slot + 20}
    return {"id": f"r{slot}", "slot": slot, **ended, **fields}


def task_start(slot: int) -> TaskStart:
    return TaskStart(ENTRY, started=slot + 10, run_id=f"r{slot}", slot=slot, is_catchup=False)


def audited(**changes: Any) -> Account:
    facts: dict[str, Any] = {
        "runs": [run(slot) for slot in DUE],
        "skips": [],
        "task_starts": [task_start(slot) for slot in DUE],
    }
    return Account(ENTRY, DUE, **{**facts, **changes})


def test_slots_are_counted_from_the_anchor_to_the_end_inclusive() -> None:
    assert DUE == [3000, 5000, 7000]
    assert slots_due(1000, 6999, every_ms=2000) == [3000, 5000]


def test_a_complete_account_has_no_problems() -> None:
    assert list(audited().problems()) == []
    assert audited().settled


def test_a_slot_may_be_skipped_with_a_reason() -> None:
    skip = {"first": 5000, "last": 7000, "count": 2, "reason": "superseded"}

    one = audited(runs=[run(3000)], task_starts=[task_start(3000)], skips=[skip])

    assert list(one.problems()) == []
    assert (one.triggered_by(Trigger.SCHEDULER), one.triggered_by(Trigger.CATCHUP), one.skipped) == (1, 0, 2)


def test_what_comes_after_the_last_slot_is_another_story() -> None:
    later = audited(runs=[*map(run, DUE), run(9000, state="queued")])

    assert list(later.problems()) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"runs": [run(3000), run(7000)], "task_starts": [task_start(3000), task_start(7000)]},
            "neither run",
        ),
        ({"runs": [run(3000), run(5000), run(5000), run(7000)]}, "decided twice"),
        ({"runs": [run(3000), run(4000), run(5000), run(7000)]}, "not a slot of the entry"),
        ({"runs": [run(3000), run(5000, state="failed"), run(7000)]}, "its run is failed"),
        ({"task_starts": [task_start(3000), task_start(7000)]}, "executed 0 times"),
        ({"task_starts": [task_start(slot) for slot in (3000, 5000, 5000, 7000)]}, "executed 2 times"),
        ({"task_starts": [task_start(slot) for slot in (3000, 7000, 5000)]}, "executed after"),
        ({"task_starts": [*map(task_start, DUE), TaskStart(ENTRY, 1, None, None, None)]}, "without a run"),
        ({"runs": [run(3000, finished=9999), run(5000), run(7000)]}, "before the run before it had ended"),
        ({"skips": [{"first": 5000, "last": 5000, "count": 1, "reason": "superseded"}]}, "decided twice"),
        ({"skips": [{"first": 3500, "last": 4500, "count": 1, "reason": "superseded"}]}, "a skip of 1 slots"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_broken_promise_is_found(changes: dict[str, Any], complaint: str) -> None:
    problems = list(audited(**changes).problems())

    assert any(complaint in problem for problem in problems), problems
