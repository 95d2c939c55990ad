"""The import contracts of pyproject.toml hold, and would notice when they do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, ROOT

LINT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True, no_logo=True))
"""


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=directory,
        env=os.environ | {"COLUMNS": "1000"},  # no sentence is broken in two
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_contracts_hold() -> None:
    done = lint_imports(ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "code", "complaint"),
    [
        ("newcomer.py", "", "celery_catchup.newcomer"),
        (
            "errors.py",
            "import celery_catchup.config.policy",
            "errors is not allowed to import celery_catchup.config",
        ),
        ("clock.py", "import celery_catchup.errors", "clock is not allowed to import celery_catchup.errors"),
        ("model.py", "import redis", "model is not allowed to import redis"),
        ("config/policy.py", "import logging.handlers", "config is not allowed to import logging"),
        ("planning/scope.py", "from celery_catchup import clock", "planning is not allowed to import time"),
        ("engine/reaper.py", "import celery", "engine is not allowed to import celery"),
    ],
    ids=["no layer", "upwards", "sideways", "redis", "logging", "time by a detour", "celery"],
)
def test_a_planted_violation_is_found(copy: Path, file: str, code: str, complaint: str) -> None:
    with (copy / PACKAGE.name / file).open("a") as module:
        module.write(f"\n{code}\n")

    done = lint_imports(copy)

    assert done.returncode == 1, done.stdout + done.stderr
    assert complaint in done.stdout
