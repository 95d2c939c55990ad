"""A process of the demo: in a session of its own, with what it says in a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import celery_catchup

_PATIENCE = 5.0  # seconds for an orderly end; a worker with short tasks needs less than one
_LAST = 15  # lines of a log that tell why a process died

# Settings of somebody else's project would win over those of the demo's.
_FOREIGN = ("CELERY_", "CATCHUP_", "DJANGO_SETTINGS_MODULE", "PYTHONWARNINGS")


class Tail:
    """The lines of a growing file, each given once and only when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def lines(self) -> Iterator[str]:
        """Those that came since the last call."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                yield line.decode(errors="replace").rstrip()


class Child:
    """One Celery process of the demo's project."""

    def __init__(self, name: str, *arguments: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name.replace(' ', '-')}.log"
        with self.log.open("wb") as output:
            # A session of its own: Ctrl-C in the terminal is for us, who then end it.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tasks", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,
            )
        self.tail = Tail(self.log)

    @property
    def pid(self) -> int:
        """The process id, which is that of its group too."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it is alive; negative when a signal ended it."""
        return self._process.poll()

    def says(self, text: str) -> bool:
        """Whether the text is in its log."""
        return text in self.log.read_text(encoding="utf-8", errors="replace")

    def last_words(self) -> str:
        """The end of its log, indented."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST:]
        return "\n".join(f"    {line}" for line in lines) or "    (nothing)"

    def ask_to_stop(self) -> None:
        """Tell it to end in good order, and do not wait for it."""
        self._process.terminate()

    def see_off(self) -> None:
        """Wait for its orderly end; end it by force when that takes too long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self.kill()

    def kill(self) -> None:
        """End it and the processes it started, as a power cut would; nothing when they are gone."""
        # macOS says "not permitted" of a group in which all have ended.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Ours, without what would change the project, and with the way to this very package.

    A worker that is killed leaves temporary files: they go with the demo's own.
    """
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    home = str(Path(celery_catchup.__file__).parents[1])
    paths = [home, *filter(None, [kept.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch)}
    return kept | own
