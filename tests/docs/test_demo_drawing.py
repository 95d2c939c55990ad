"""The drawing of the demo is made from the recorded run, and the script can read such a run."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "demo.py"))


@pytest.fixture(scope="module")
def recording(script: dict[str, Any]) -> Any:
    return script["read"](script["PRINTED"].read_text(), script["CELERYS"].read_text())


def test_the_drawing_is_up_to_date(script: dict[str, Any], recording: Any) -> None:
    assert script["DRAWING"].read_text(encoding="utf-8") == script["drawing"](recording), (
        "run python docs/demo.py"
    )


def test_every_slot_of_the_recording_is_drawn_once(recording: Any) -> None:
    numbers = [int(word) for word in recording.summary.split() if word.isdigit()]
    due, on_time, caught_up, skipped = numbers[:4]

    assert sum(len(lane.due) for lane in recording.lanes) == due
    assert sum(len(lane.runs) for lane in recording.lanes) == on_time + caught_up
    assert all(lane.due == sorted(set(lane.due)) for lane in recording.lanes)
    assert skipped == due - on_time - caught_up


def test_the_readme_quotes_the_recording(script: dict[str, Any]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = script["PRINTED"].read_text(encoding="utf-8").splitlines()
    quoted = readme.split("all of what it printed")[1].split("```text\n")[1].split("```")[0]

    for line in quoted.splitlines():
        beginning = line.partition("=…")[0]
        assert any(one.startswith(beginning) for one in printed), line
