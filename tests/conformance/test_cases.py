"""Every acceptance case, as data: what other schedulers promise, and what we do.

By default the cases beside this file; those of another directory with
``CATCHUP_CASES=/path pytest tests/conformance``.
"""

from __future__ import annotations

import os
from collections import Counter
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.fields import Fields, fields
from tests.conformance.kinds import KINDS

DIRECTORY = Path(os.environ.get("CATCHUP_CASES") or Path(__file__).parent / "cases")


def load_cases() -> list[dict[str, Any]]:
    """All cases of all files of the directory."""
    return [case for file in sorted(DIRECTORY.glob("**/*.yaml")) for case in yaml.safe_load(file.read_text())]


CASES = load_cases()


def test_there_are_cases_and_no_id_is_used_twice() -> None:
    ids = Counter(case["id"] for case in CASES)

    assert ids, f"no cases in {DIRECTORY}"
    assert not [name for name, count in ids.items() if count > 1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['id']}")
def test_case(case: dict[str, Any], request: pytest.FixtureRequest) -> None:
    assert case["kind"] in KINDS, f"unknown kind {case['kind']!r}"
    run = KINDS[case["kind"]]
    server = {"redis_url"} & set(signature(run).parameters)
    with fields(case) as given:
        run(given, **{name: request.getfixturevalue(name) for name in server})


def test_a_field_that_nobody_knows_is_a_failure() -> None:
    case = {
        "id": "X",
        "kind": "duration",
        "input": "6h",
        "colour": "blue",
        "expected": {"valid": True, "seconds": 21600},
    }

    with pytest.raises(AssertionError, match="colour"), fields(case) as given:
        KINDS["duration"](given)


def test_a_wrong_expectation_is_a_failure() -> None:
    case = {"id": "X", "kind": "duration", "input": "6h", "expected": {"valid": True, "seconds": 1}}

    with pytest.raises(AssertionError):
        KINDS["duration"](Fields(case))
