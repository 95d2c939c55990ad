"""Which tests there are, as pytest itself sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def collected_with(request: pytest.FixtureRequest, wanted: Sequence[str]) -> set[str]:
    """The node ids that the suite executes, with their parameters and without.

    Files that this very session has not collected, because somebody asked for a part of the suite,
    are collected in a process of their own.
    """
    here = {item.nodeid.removeprefix("tests/") for item in request.session.items}
    missing = {_file(node) for node in wanted} - {_file(node) for node in here}
    found = here | (_collected(sorted(missing)) if missing else set())
    return found | {node.partition("[")[0] for node in found}


def _file(node: str) -> str:
    return node.partition("::")[0]


def _collected(files: Sequence[str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        + [f"tests/{file}" for file in files],
        cwd=TESTS.parent,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line}
