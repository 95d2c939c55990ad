"""A process that has imported everything and forks Celery programs on demand.

A Celery program needs a second to import and a tenth of one to start. The tests need some
hundred starts, so they ask the nursery: its children are real ``celery`` processes, each in
a session of its own, that differ from a started one only in what was imported before.

Commands come as JSON lines: ``{"argv", "log", "cwd", "environ", "stdin"}``; the answer is the process
id. How a child ended is left in a file beside its log.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = (
    "celery.apps.beat",
    "celery.backends.redis",
    "celery.bin.beat",
    "celery.bin.celery",
    "celery.fixups.django",
    "kombu.transport.pyamqp",
    "kombu.transport.redis",
    "celery_catchup.beat.scheduler",
)


def exit_file(log: Path) -> Path:
    """Where the exit code of the process with this log is left."""
    return log.with_suffix(".exit")


class Nursery:
    """The test's side: asks for children."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            text=True,
        )

    def fork(
        self, argv: list[str], *, log: Path, cwd: Path, environ: Mapping[str, str], stdin: str = os.devnull
    ) -> int:
        """Start a Celery program; its process id."""
        command = {"argv": argv, "log": str(log), "cwd": str(cwd), "environ": dict(environ), "stdin": stdin}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """No more children."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


# -- the nursery's side ------------------------------------------------------------------------


class _Children:
    def __init__(self) -> None:
        self.logs: dict[int, Path] = {}

    def bear(self, command: dict[str, Any]) -> int:
        pid = os.fork()
        if pid == 0:
            _live(command)
        self.logs[pid] = Path(command["log"])
        return pid

    def end(self) -> None:
        """The tests are over, or were killed: nobody else would end those that still live."""
        for pid in self.logs:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                target = exit_file(self.logs.pop(pid))
                draft = target.with_suffix(".draft")
                with contextlib.suppress(FileNotFoundError):  # the test and its folder are gone
                    draft.write_text(str(os.waitstatus_to_exitcode(status)))
                    draft.rename(target)


def _live(command: dict[str, Any]) -> NoReturn:
    """Become the program. Nothing returns from here."""
    code = 70
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for target, source in ((0, os.open(command["stdin"], os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, target)
        os.chdir(command["cwd"])
        os.environ.update(command["environ"])
        sys.argv = command["argv"]
        code = _run()
    except BaseException:  # noqa: BLE001 - there is nobody above to tell
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run() -> int:
    from celery.bin.celery import main

    try:
        main()
    except SystemExit as error:
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
            return 1
        return int(error.code or 0)
    return 0


def _main() -> None:
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children, buffer = _Children(), b""
    while True:
        ready, _, _ = select.select([0, reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
        children.reap()
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                children.end()
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                os.write(1, b"%d\n" % children.bear(json.loads(line)))


if __name__ == "__main__":
    _main()
