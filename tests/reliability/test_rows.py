"""Every row of the table has tests that the suite executes."""

from __future__ import annotations

import pytest

from tests.reliability.nodes import collected_with
from tests.reliability.rows import ENTRY, ROWS, SAID, START, WAIT, WORKS, Row


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> set[str]:
    return collected_with(request, [node for row in ROWS for node in row.tests])


def test_the_table_has_rows_1_to_88_each_once() -> None:
    assert [row.number for row in ROWS] == list(range(1, 89))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.number} {row.what}" for row in ROWS])
def test_the_row_is_tested(row: Row, collected: set[str]) -> None:
    assert row.tests
    assert [node for node in row.tests if node not in collected] == []
    assert row.ends in (START, SAID, ENTRY, WAIT, WORKS)
