"""Real processes under a test's control: started, stopped, killed and frozen by their ids.

What they say goes to a file, and a test waits for lines in it, never for a time.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 20.0  # seconds; a start takes one, a busy two-core machine makes it several
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

    def __init__(self, command: Sequence[str], *, log: Path, cwd: Path, environ: Mapping[str, str]) -> None:
        self.log = log
        self.begun = time.monotonic()
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **environ},
                start_new_session=True,
            )

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
        ended = self.popen.poll() is not None
        count = self.text().count(text)
        if ended and not count:
            raise NotInTimeError(f"it ended with code {self.popen.returncode}, without {text!r}")
        return count

    # -- what is done to it ----------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def wait(self, within: float = PATIENCE) -> int:
        """Wait for its end; the exit code, negative for a signal."""
        try:
            return self.popen.wait(within)
        except subprocess.TimeoutExpired:
            raise NotInTimeError(f"process {self.pid} did not end\n{self.text()[-4000:]}") from None

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it in good order; the exit code."""
        self.send(number)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.popen.kill()
        self.popen.wait()

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def end(self) -> None:
        """Whatever it is doing, and its children with it: nothing is left of a test."""
        if self.alive or _has_children(self.pid):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.popen.wait()


def _has_children(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _fields(line: str) -> dict[str, str]:
    level = re.search(r": (\w+)/", line)
    found = {
        name: json.loads(value) if value.startswith('"') else value
        for name, value in _FIELD.findall(line[line.index("msg=") :])
    }
    return found | ({"level": level[1]} if level else {})


def celery(*arguments: str) -> list[str]:
    """The command line of a Celery program for the project that tests declare."""
    return [sys.executable, "-m", "celery", "-A", "tests.projects.declared", *arguments]
