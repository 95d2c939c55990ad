"""The drawing of the rooms agrees with the import contract."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "architecture.py"))


def test_the_drawing_is_up_to_date(script: dict[str, Any]) -> None:
    drawn = (ROOT / "docs" / "images" / "architecture.svg").read_text(encoding="utf-8")

    assert drawn == script["drawing"](), "run python docs/architecture.py"


def test_every_room_is_in_the_drawing(script: dict[str, Any]) -> None:
    rooms = {path.parent.name for path in (ROOT / "celery_catchup").glob("*/__init__.py")}

    assert set(script["SAYS"]) == rooms
    assert rooms <= {room for layer in script["layers"]() for room in layer}


def test_a_room_calls_lower_rooms_on_the_way_of_a_slot(script: dict[str, Any]) -> None:
    layers, through_a_protocol = script["layers"](), {("engine", "dispatch")}
    rank = {room: number for number, layer in enumerate(layers) for room in layer}
    steps = {step[:2] for step in script["STEPS"]} - through_a_protocol

    upwards = [(caller, called) for caller, called in steps if {caller, called} <= rank.keys()]

    assert all(rank[caller] < rank[called] for caller, called in upwards)
    assert len(upwards) > 3
