"""The README's commands as printed, in a fresh clone with nothing but Python and pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import ROOT
from tests.docs.test_blocks import blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO, TEST = "python3 run.py demo", "python3 run.py test"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What git has of this checkout, as it is in the working tree; no environment."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, so that it cannot be cloned")
    folder = tmp_path_factory.mktemp("clone")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


def play(command: str, clone: Path, *more: str) -> str:
    """Run a command as somebody who has never run it: no environment, no variable of ours."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "CATCHUP", "PYTEST"))
    }
    words = [sys.executable, *command.split()[1:], *more]
    done = subprocess.run(
        words, cwd=clone, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_the_readme_shows_these_two_commands() -> None:
    shown = [block.text for block in blocks(README) if block.language == "console"]

    assert f"$ {DEMO}\n$ {TEST}\n" in shown


def test_the_demo_plays_an_outage(clone: Path) -> None:
    told = play(DEMO, clone)

    assert ", 0 unaccounted." in told
    # What the README quotes, it says in these very words.
    for msg in ("Catch-up started", "Catch-up planned", "Catch-up run dispatched"):
        assert f'msg="{msg}"' in told


@pytest.mark.soak
def test_the_suite_begins(clone: Path) -> None:
    told = play(TEST, clone, "tests/unit", "-q")

    assert " passed" in told
