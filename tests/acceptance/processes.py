"""Real processes under a test's control: started, stopped, killed and frozen by their ids.

What they say goes to a file, and a test waits for lines in it, never for a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.acceptance.nursery import Nursery, exit_file

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0  # seconds; a start takes less than one, a busy two-core machine makes it many
_FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


class NotInTimeError(AssertionError):
    """What a test waited for did not happen."""


def until(condition: Callable[[], Any], *, what: str, within: float = PATIENCE, step: float = 0.01) -> Any:
    """Wait for the condition to give something true, and return that."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not within {within:g} s: {what}")
        time.sleep(step)


class Process:
    """One process in a session of its own, with its output in a file."""

    def __init__(self, *, log: Path) -> None:
        self.log = log
        self.begun = time.monotonic()

    @property
    def pid(self) -> int:
        raise NotImplementedError

    def code(self) -> int | None:
        """How it ended: the exit code, negative for a signal; None while it lives."""
        raise NotImplementedError

    # -- what it says ----------------------------------------------------------------------

    def text(self) -> str:
        """Everything it has said."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def said(self, msg: str | None = None) -> list[dict[str, str]]:
        """Its lines in logfmt, as fields; those with this message, when one is given."""
        lines = [_fields(line) for line in self.text().splitlines() if "msg=" in line]
        return [line for line in lines if msg in (None, line.get("msg"))]

    def until_it_says(self, text: str, *, times: int = 1, within: float = PATIENCE) -> None:
        """Wait until the text has appeared so many times."""
        try:
            until(lambda: self._end_or_count(text) >= times, what=repr(text), within=within)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}\n{self.text()[-4000:]}") from None

    def _end_or_count(self, text: str) -> int:
        ended = self.code()
        count = self.text().count(text)
        if ended is not None and not count:
            raise NotInTimeError(f"it ended with code {ended}, without {text!r}")
        return count

    # -- what is done to it ----------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self.code() is None

    def wait(self, within: float = PATIENCE) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        try:
            until(lambda: not self.alive, what=f"the end of process {self.pid}", within=within, step=0.002)
        except NotInTimeError as error:
            raise NotInTimeError(f"{error}\n{self.text()[-4000:]}") from None
        code = self.code()
        assert code is not None
        return code

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it in good order; the exit code."""
        self.send(number)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.stop(signal.SIGKILL)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def end(self) -> None:
        """Whatever it is doing, and its children with it: nothing is left of a test."""
        # It leads a session of its own, so the group is its own too; children may outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


class Started(Process):
    """A program started anew, as from a shell."""

    def __init__(self, command: Sequence[str], *, log: Path, cwd: Path, environ: Mapping[str, str]) -> None:
        super().__init__(log=log)
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **environ},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def code(self) -> int | None:
        return self._popen.poll()


class Forked(Process):
    """A Celery program of the nursery's."""

    def __init__(
        self,
        nursery: Nursery,
        argv: list[str],
        *,
        log: Path,
        cwd: Path,
        environ: Mapping[str, str],
        stdin: str = os.devnull,
    ) -> None:
        super().__init__(log=log)
        log.touch()
        self._pid = nursery.fork(argv, log=log, cwd=cwd, environ=environ, stdin=stdin)
        self._code: int | None = None

    @property
    def pid(self) -> int:
        return self._pid

    def code(self) -> int | None:
        if self._code is None:
            with contextlib.suppress(FileNotFoundError):
                self._code = int(exit_file(self.log).read_text())
        return self._code


def _fields(line: str) -> dict[str, str]:
    level = re.search(r": (\w+)/", line)
    found = {
        name: json.loads(value) if value.startswith('"') else value
        for name, value in _FIELD.findall(line[line.index("msg=") :])
    }
    return found | ({"level": level[1]} if level else {})


def celery(*arguments: str) -> list[str]:
    """The words of a Celery command line for the project that tests declare, the program's name first."""
    return ["celery", "-A", "tests.projects.declared", *arguments]
