"""The model of leases, fences, chains and claims holds, and fails without any one of its guards."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model import checker
from tests.model.verdicts import FAILS, HOLDS, HOLDS_AT_LENGTH, Row
from tests.results import Recorder


def prove(row: Row, folder: Path, record_result: Recorder, *, large: bool = False) -> None:
    verdict = checker.check(folder, *row.flags, large=large)
    record_result(
        f"model: {row.says}", verdict="fails" if verdict.violated else "holds", states=verdict.states
    )

    assert verdict.complete
    assert (verdict.violated is None) == (row.violated is None), verdict
    assert row.violated is None or row.violated in str(verdict.violated)


@pytest.mark.parametrize("row", HOLDS, ids=lambda row: row.name)
def test_with_all_guards_it_holds(row: Row, tmp_path: Path, record_result: Recorder) -> None:
    prove(row, tmp_path, record_result)


@pytest.mark.figures
@pytest.mark.parametrize("row", FAILS, ids=lambda row: row.name)
def test_without_one_guard_it_fails(row: Row, tmp_path: Path, record_result: Recorder) -> None:
    prove(row, tmp_path, record_result)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", HOLDS_AT_LENGTH, ids=lambda row: row.name)
def test_with_more_faults_and_slots_it_holds(row: Row, tmp_path: Path, record_result: Recorder) -> None:
    prove(row, tmp_path, record_result, large=True)


def test_every_guard_that_can_be_taken_away_is_in_the_table() -> None:
    text = checker.MODEL.read_text(encoding="utf-8")
    asked = {one or other for one, other in re.findall(r"#ifn?def (\w+)|defined\((\w+)\)", text)}
    sizes_and_modes = set(re.findall(r"#define (\w+)", text)) | {"LATEST"}

    assert {flag for row in FAILS for flag in row.flags if "=" not in flag} == asked - sizes_and_modes
