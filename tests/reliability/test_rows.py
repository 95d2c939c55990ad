"""Every row of the table has tests that the suite executes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reliability.rows import ENTRY, ROWS, SAID, START, WAIT, WORKS, Row

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def collected() -> set[str]:
    """The node ids of the files that the table names, as the suite would execute them."""
    files = sorted({f"tests/{node.partition('::')[0]}" for row in ROWS for node in row.tests})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=TESTS.parent,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    nodes = {line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line}
    return nodes | {node.partition("[")[0] for node in nodes}


def test_the_table_has_rows_1_to_88_each_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 89))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number} {row.what}" for row in ROWS])
def test_the_row_is_tested(row: Row, collected: set[str]) -> None:
    assert row.tests
    assert [node for node in row.tests if node not in collected] == []
    assert row.ends in (START, SAID, ENTRY, WAIT, WORKS)


def test_no_test_of_the_table_is_skipped_for_good_or_left_to_the_soak() -> None:
    files = {TESTS / node.partition("::")[0] for row in ROWS for node in row.tests}
    marked = [path.name for path in files if "pytest.mark.skip" in path.read_text(encoding="utf-8")]

    assert marked == []
