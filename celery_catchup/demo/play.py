"""Play the demo: beat runs, is killed, is down for some seconds, comes back and catches up."""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from celery_catchup.clock import SystemClock
from celery_catchup.demo.audit import Account, slots_due
from celery_catchup.demo.project import ENTRIES, LEASE
from celery_catchup.demo.report import Narrator, comparison, observed_until, slot_table, summary, task_line
from celery_catchup.demo.site import Site
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, to_instant
from celery_catchup.store.connection import STORE_FAILS

# Milliseconds of the story, from the instant that slots are counted from.
_KILLED_AT = 5_000  # after some slots of each entry, and between two
_RESTARTED_AT = 11_500  # beat's start and the lease come on top
_AFTERWARDS = 2_500  # at least this much after the catch-up is shown
_MARGIN = 300  # after the last slot: the story does not end at the instant of one

_PATIENCE = 30.0  # seconds; what takes one takes several on a busy two-core machine
_STEP = 0.05  # seconds between two checks
_QUOTED = ('msg="Leading"', 'msg="Standing by"', 'msg="Catch-up')
_ADVICE = "Play it again with --keep for the logs of beat and worker"
_UNQUOTED = (" run_id=", " recover=")  # from here on a line of beat's log is for programs


class BrokenDemoError(CatchupError):
    """The demo cannot go on; the message says why."""


class NotInTimeError(BrokenDemoError):
    """Something took too long."""


class DemoInterrupted(Exception):  # noqa: N818 - not an error
    """A signal ended the demo; ``exit_code`` is what shells expect then."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def play(*, compare: bool, keep: bool) -> int:
    """Play the demo; return 0 when every slot is accounted for, executed once and in order.

    1 when not, or when a process died; 128 and the signal's number after Ctrl-C or another signal. In any
    case no process is left, and no file unless ``keep``.
    """
    narrator = Narrator()
    folder = Path(tempfile.mkdtemp(prefix="celery-catchup-demo-"))
    with _signals_noted() as signals:
        try:
            with ExitStack() as stack:
                return _Demo(narrator, signals, stack).play(folder, compare=compare)
        except DemoInterrupted as end:
            with contextlib.suppress(OSError):  # the terminal may be gone
                narrator.say("Interrupted. All processes of the demo have been ended.")
            return end.exit_code
        except (CatchupError, *STORE_FAILS) as error:
            narrator.show(f"The demo cannot go on: {error}", good=False)
            return 1
        finally:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    narrator.show(f"The project, its logs and what the tasks wrote are in {folder}")


@contextlib.contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Only note signals: an exception at an arbitrary place could leave a process unknown to us."""
    noted: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is under nohup
        numbers.append(signal.SIGHUP)
    if threading.current_thread() is not threading.main_thread():
        numbers = []  # Python allows handlers in the main thread only
    before = {number: signal.signal(number, lambda number, _: noted.append(number)) for number in numbers}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Demo:
    """Plays on one or two sites; the first one is shown, the other only watched."""

    def __init__(self, narrator: Narrator, signals: list[int], stack: ExitStack) -> None:
        self._narrator, self._signals, self._stack = narrator, signals, stack
        self._sites: list[Site] = []
        self._anchors: Mapping[str, Instant] = {}

    def play(self, folder: Path, *, compare: bool) -> int:
        self._set_up(folder, compare=compare)
        self._start()
        zero = max(self._anchors.values())
        self._until_instant(zero + _KILLED_AT)
        for site in self._sites:
            site.kill_beat()
        self._narrator.say("beat is killed (SIGKILL). The worker lives, and has nothing to do.")
        self._until_instant(zero + _RESTARTED_AT)
        end = self._recover(zero)
        self._finish(end)
        accounts = self._accounts(end)
        code = self._judge(accounts)
        if compare:
            table, sentence = comparison(self._sites[1], accounts)
            self._narrator.show(f"\nThe same outage under both schedulers:\n\n{table}\n")
            self._narrator.show(sentence)
        return code

    # -- the acts --------------------------------------------------------------------------

    def _set_up(self, folder: Path, *, compare: bool) -> None:
        self._narrator.say("A server of the demo's own, a worker with two processes, and three entries:")
        for entry in ENTRIES:
            self._narrator.show(f"          {entry.name:13}  every {entry.seconds} s, wants {entry.wants}")
        self._add_site(folder / "catchup", scheduler="celery_catchup.Scheduler")
        if compare:
            self._narrator.say(
                "Beside them the same project under Celery's own scheduler, on another server."
            )
            self._add_site(folder / "celery", scheduler="celery.beat.PersistentScheduler")

    def _add_site(self, folder: Path, *, scheduler: str) -> None:
        self._watch()
        self._sites.append(Site(folder, scheduler=scheduler, stack=self._stack))

    def _start(self) -> None:
        self._narrator.say("Worker and beat start.")
        for site in self._sites:
            site.start_worker()
        for site in self._sites:
            site.start_beat()
        names, ours = {entry.name for entry in ENTRIES}, self._sites[0]
        self._until(lambda: names <= set(ours.anchors()), what="beat's start")
        workers = [site.processes["worker"] for site in self._sites]
        self._until(lambda: all(" ready." in one.text() for one in workers), what="the worker's start")
        self._anchors = ours.anchors()

    def _recover(self, zero: Instant) -> Instant:
        """Restart beat; return the end of the story, right after a slot of the first entry."""
        self._narrator.say(f"beat is started again; the dead one's lease has to run out first ({LEASE} s).")
        for site in self._sites:
            site.start_beat("restarted beat")
        beat = self._sites[0].processes["beat"]
        self._until(lambda: "Catch-up completed" in beat.text(), what="the catch-up")
        self._narrator.say("Everything missed is decided; new slots come on time again.")
        every = ENTRIES[0].every_ms
        return zero + math.ceil((_now() + _AFTERWARDS - zero) / every) * every + _MARGIN

    def _finish(self, end: Instant) -> None:
        """Wait for the last slot, and stop in good order."""
        self._until_instant(end)
        with contextlib.suppress(NotInTimeError):  # the audit says what is missing
            self._until(lambda: all(one.settled for one in self._accounts(end)), what="the end", within=5)
        self._sites[0].stop()
        self._watch()
        for site in self._sites[1:]:
            # Celery's scheduler counts from its own start.
            self._narrator.say("Celery's own scheduler gets the time for as many slots.")
            ends = [
                observed_until(site.task_starts_of(entry.name), due=len(ours.due), every_ms=entry.every_ms)
                for entry, ours in zip(ENTRIES, self._accounts(end), strict=True)
            ]
            self._until_instant(max(ends) + _MARGIN)
            site.stop()

    def _judge(self, accounts: list[Account]) -> int:
        problems = [problem for one in accounts for problem in one.problems()]
        self._narrator.say("beat and worker are stopped. The ledger, times in UTC:")
        self._narrator.show(f"\n{slot_table(accounts)}\n")
        self._narrator.show(summary(accounts), good=not problems)
        for problem in problems:
            self._narrator.show(f"  {problem}", good=False)
        good = "Each run was executed once; those of an entry in slot order, never two at a time."
        self._narrator.show(f"{_ADVICE}." if problems else good)
        return 1 if problems else 0

    def _accounts(self, end: Instant) -> list[Account]:
        site = self._sites[0]
        return [
            Account(
                entry.name,
                slots_due(self._anchors[entry.name], end, every_ms=entry.every_ms),
                runs=site.ledger.runs_of(entry.name),
                skips=site.ledger.skips_of(entry.name),
                task_starts=site.task_starts_of(entry.name),
            )
            for entry in ENTRIES
        ]

    # -- waiting ---------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], *, what: str, within: float = _PATIENCE) -> None:
        """Wait, and show what happens meanwhile; the death of a process ends the demo."""
        deadline = time.monotonic() + within
        while True:
            self._watch()
            if condition():
                return
            if time.monotonic() > deadline:
                raise NotInTimeError(f"{what} took more than {within:g} s. {_ADVICE}")
            time.sleep(_STEP)

    def _until_instant(self, instant: Instant) -> None:
        self._until(lambda: _now() >= instant, what="waiting for a slot")

    def _watch(self) -> None:
        """Show what is new, and check for signals and for processes that died."""
        if self._signals:
            raise DemoInterrupted(self._signals[0])
        for site in self._sites:
            before = len(site.task_starts)
            started = site.new_task_starts()
            if site is self._sites[0]:
                beat = site.processes.get("beat")
                for line in beat.log.new_lines() if beat else ():
                    if any(words in line for words in _QUOTED):
                        self._narrator.quote("beat", _quotation(line))
                for order, one in enumerate(started, start=before + 1):
                    self._narrator.quote("worker", task_line(one, order=order))
            for process in site.processes.values():
                if process.exit_code is not None:
                    raise BrokenDemoError(
                        f"the {process.name} ended by itself (exit code {process.exit_code}); "
                        f"the last lines of its log:\n{process.last_lines()}"
                    )


def _now() -> Instant:
    return to_instant(SystemClock().now())


def _quotation(line: str) -> str:
    """Cut a line of beat's log to its message, without the fields that only programs need."""
    text = line[line.index("msg=") :]
    for field in _UNQUOTED:
        text = text.partition(field)[0]
    return text
