"""The tutorial, played: its file, its commands, a killed beat, and what it says one will see."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import ROOT, Started
from tests.acceptance.programs import Program
from tests.docs.test_blocks import blocks

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")


@pytest.fixture
def program(redis_url: str, tmp_path: Path) -> Iterator[Program]:
    """The tutorial's project on a private server; slots come every second, so that nobody has to wait."""
    (text,) = (block.text for block in blocks(PAGE) if block.language == "python")
    text = text.replace("redis://localhost:6379/0", redis_url)
    text = text.replace("timedelta(seconds=10)", "timedelta(seconds=1)").replace('"5s"', '"1s"')
    (tmp_path / "proj.py").write_text(text, encoding="utf-8")
    program = Program(tmp_path, app="proj", cwd=tmp_path)
    yield program
    program.end()


def start(program: Program, command: str) -> Started:
    """Start what the page tells to start."""
    assert f"$ celery -A proj {command}\n" in PAGE
    return program.start(*command.split())


def test_what_the_tutorial_says_is_what_happens(program: Program) -> None:
    worker = start(program, "worker --loglevel INFO")
    beat = start(program, "beat -S celery_catchup.Scheduler")
    beat.until_it_says('msg="Dispatch" mode=atomic')
    worker.until_it_says("count ", times=2)

    beat.kill()
    time.sleep(8)  # the page waits for a minute, with slots every ten seconds
    again = start(program, "beat -S celery_catchup.Scheduler")
    again.until_it_says('msg="Catch-up completed"')
    worker.until_it_says("Z True", times=6)

    said = [line["msg"] for line in again.said()]
    for msg in re.findall(r'^msg="([^"]+)"', PAGE.split("## 4.")[1], re.MULTILINE):
        assert msg in said
    printed = re.findall(r"(count|look ) (\S+Z) (True|False)", worker.text())
    late = [slot for name, slot, is_late in printed if name == "count" and is_late == "True"]
    assert late == sorted(late)
    assert len([name for name, _, is_late in printed if name == "look " and is_late == "True"]) <= 1
