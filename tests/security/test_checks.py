"""Every security check has tests that the suite executes."""

from __future__ import annotations

import pytest

from tests.reliability.nodes import collected_with
from tests.security.checks import CHECKS, Check


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest) -> set[str]:
    return collected_with(request, [node for check in CHECKS for node in check.tests])


def test_the_checks_are_numbered_each_once() -> None:
    assert [check.number for check in CHECKS] == list(range(1, 31))


@pytest.mark.parametrize("check", CHECKS, ids=[f"{check.number} {check.what}" for check in CHECKS])
def test_the_check_is_tested(check: Check, collected: set[str]) -> None:
    assert check.tests
    assert [node for node in check.tests if node not in collected] == []
