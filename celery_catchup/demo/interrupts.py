"""Ctrl-C and its relatives: noticed at once, obeyed where nothing is half-done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class InterruptedDemo(Exception):  # noqa: N818 - no error: somebody has seen enough
    """The demo was told to stop; ``exit_code`` is what shells expect then."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Interrupts:
    """A context in which signals are only noted: an exception at an arbitrary place could leave a
    process that nobody knows of. `wait` and `check` raise `InterruptedDemo` instead."""

    def __init__(self) -> None:
        self._noted = threading.Event()
        self._number = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _wanted()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = self._number or number
        self._noted.set()

    def check(self) -> None:
        """Stop here when a signal came."""
        if self._noted.is_set():
            raise InterruptedDemo(self._number)

    def wait(self, seconds: float) -> None:
        """Sleep; a signal ends the sleep."""
        self._noted.wait(seconds)
        self.check()


def _wanted() -> list[signal.Signals]:
    """Under ``nohup`` the end of the terminal is not to matter."""
    under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if under_nohup else [signal.SIGHUP])]
