"""Spin, as the tests call it: a model and its flags in, a verdict out."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.services import missing

MODEL = Path(__file__).with_name("catchup.pml")
_DEPTH, _TABLE = 200_000, 24  # steps of the deepest path; 2^24 places for states at first
_COMPILED = ("-w", "-DSAFETY", "-DCOLLAPSE")


@dataclass(frozen=True)
class Verdict:
    """What an exhaustive search found: the assertion that can fail, or none."""

    violated: str | None
    states: int
    complete: bool


def check(folder: Path, *flags: str, large: bool = False) -> Verdict:
    """Search all states of the model with these flags; a large search is worth a slow compilation."""
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            missing("spin", f"there is no {program} on the PATH")
    _run(folder, "spin", "-a", *(f"-D{flag}" for flag in flags), str(MODEL))
    _run(folder, "gcc", "-O2" if large else "-O0", *_COMPILED, "-o", "pan", "pan.c")
    return read(_run(folder, "./pan", f"-m{_DEPTH}", f"-w{_TABLE}"))


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(output: str) -> Verdict:
    """The verdict in what the search printed."""
    violated = re.search(r"assertion violated (.*) \(at depth", output)
    stuck = re.search(r"invalid end state", output.partition("(Spin Version")[0])
    states = re.search(r"(\d+) states, stored", output)
    assert states is not None, output
    return Verdict(
        violated=violated[1] if violated else "a process is stuck" if stuck else None,
        states=int(states[1]),
        complete="max search depth too small" not in output and "out of memory" not in output,
    )
