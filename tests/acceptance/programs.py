"""A project in a folder, and the Celery programs that are started there as from a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.processes import ROOT, Started


class Program:
    """Starts ``celery -A APP …`` in a folder, keeps what it says, and ends it."""

    def __init__(
        self, folder: Path, *, app: str, cwd: Path = ROOT, environ: Mapping[str, str] | None = None
    ) -> None:
        self._folder, self._app, self._cwd = folder, app, cwd
        self._environ = {"PYTHONPATH": os.pathsep.join((str(cwd), str(ROOT))), **(environ or {})}
        self._started: list[Started] = []

    def python(self, *arguments: str) -> str:
        """What a Python program prints, to its end."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._cwd,
            env={**os.environ, **self._environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def catchup(self, *arguments: str) -> Any:
        """``celery catchup … -j``, read."""
        return json.loads(self.python("-m", "celery", "-A", self._app, "catchup", *arguments, "-j"))

    def start(self, *arguments: str) -> Started:
        """``celery -A APP …``, going on."""
        log = self._folder / f"{arguments[0]}-{len(self._started)}.log"
        command = [sys.executable, "-m", "celery", "-A", self._app, *arguments]
        self._started.append(Started(command, log=log, cwd=self._cwd, environ=self._environ))
        return self._started[-1]

    def end(self) -> None:
        """Nothing that was started is left."""
        for process in self._started:
            process.end()
