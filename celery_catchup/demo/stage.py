"""The stage: where sites are set up, watched and waited for, with every word passed on to the audience."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from celery_catchup.clock import SystemClock
from celery_catchup.demo.interrupts import Interrupts
from celery_catchup.demo.narration import Narrator
from celery_catchup.demo.processes import Child
from celery_catchup.demo.site import Site
from celery_catchup.demo.tables import executed
from celery_catchup.errors import CatchupError
from celery_catchup.model import Instant, to_instant

_PATIENCE = 30.0  # seconds; what takes one takes several on a busy two-core machine
_STEP = 0.05  # seconds between two looks

_QUOTED = ('msg="Leading"', 'msg="Standing by"', 'msg="Catch-up')
# From here on a line of beat's log is for programs, and for hands that copy.
_UNQUOTED = (" run_id=", " recover=")


class BrokenDemoError(CatchupError):
    """The demo cannot go on; the message says why."""


class NotInTimeError(BrokenDemoError):
    """Something took too long."""


class Stage:
    """Sites side by side; the first one is shown, the others only watched. All ends with ``stack``."""

    def __init__(self, narrator: Narrator, interrupts: Interrupts, stack: ExitStack) -> None:
        self.narrator, self._interrupts, self._stack = narrator, interrupts, stack
        self._clock = SystemClock()
        self.sites: list[Site] = []

    def set_up(self, folder: Path, *, scheduler: str) -> None:
        """A project with its server; nothing of Celery runs yet."""
        self._interrupts.check()
        self.sites.append(Site(folder, scheduler=scheduler, stack=self._stack))

    def now(self) -> Instant:
        """The present, as slots are compared with it."""
        return to_instant(self._clock.now())

    def until(
        self, condition: Callable[[], bool], *, what: str, by: Child | None = None, within: float = _PATIENCE
    ) -> None:
        """Wait, and show what happens; the death of a process is the end of the demo."""
        deadline = self._clock.monotonic() + within
        while True:
            self.watch()
            if condition():
                return
            if self._clock.monotonic() > deadline:
                words = "" if by is None else f"; the last lines of its log:\n{by.last_words()}"
                raise NotInTimeError(f"{what} took more than {within:g} s{words}")
            self._interrupts.wait(_STEP)

    def until_instant(self, instant: Instant) -> None:
        """Wait for a time of the wall clock."""
        self.until(lambda: self.now() >= instant, what="waiting for a slot")

    def watch(self) -> None:
        """Show what is new, and make sure that everything lives that should."""
        self._interrupts.check()
        for site in self.sites:
            self._show_new(site, aloud=site is self.sites[0])
            for child in site.children:
                if child.exit_code is not None:
                    raise BrokenDemoError(
                        f"the {child.name} ended by itself (exit code {child.exit_code}); "
                        f"the last lines of its log:\n{child.last_words()}"
                    )

    def _show_new(self, site: Site, *, aloud: bool) -> None:
        so_far = len(site.executions)
        said, done = site.new_lines_of_beat(), site.new_executions()
        if not aloud:
            return
        for line in said:
            if any(words in line for words in _QUOTED):
                self.narrator.quote("beat", _quotation(line))
        for order, execution in enumerate(done, start=so_far + 1):
            self.narrator.quote("worker", executed(execution, order=order))


def _quotation(line: str) -> str:
    """A line of beat's log from its message on, without what only programs need."""
    text = line[line.index("msg=") :]
    for field in _UNQUOTED:
        text = text.partition(field)[0]
    return text
