"""Upstream's own tests of beat, run against our scheduler: only the expected differences are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import celery
import pytest

from tests.upstream.expected import CELERY, DJANGO_CELERY_BEAT, FROM_5_7
from tests.upstream.sdists import unpacked_sdist

HERE = Path(__file__).parents[2]


def differences(outcomes: Mapping[str, str], expected: Mapping[str, Sequence[str]]) -> list[str]:
    """Tests that fail unexpectedly, and tests that pass although a failure is expected."""
    reasons = {test: reason for reason, tests in expected.items() for test in tests}
    found = []
    for test, outcome in outcomes.items():
        if outcome.startswith("failed") and test not in reasons:
            found.append(f"{test} {outcome}")
        elif outcome == "passed" and test in reasons:
            found.append(f"{test} passes; remove it from tests/upstream/expected.py ({reasons[test]})")
    return found


def outcomes_of(sdist: Path, tests: str, result: Path, **environ: str) -> dict[str, str]:
    """Run the tests of an sdist in a process of their own; outcomes by ``class::test``."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.upstream.adapter", "-p", "no:cacheprovider"]
    command += ["-c", os.devnull, "--rootdir", str(sdist), "-o", "python_classes=test_*", tests]
    environ = {**os.environ, **environ, "UPSTREAM_OUTCOMES": str(result)}
    environ["PYTHONPATH"] = os.pathsep.join([str(sdist), str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=sdist, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert result.exists(), done.stdout + done.stderr
    outcomes: dict[str, str] = json.loads(result.read_text())
    assert len(outcomes) > 50, done.stdout + done.stderr
    return {test.partition("::")[2]: outcome for test, outcome in outcomes.items()}


def test_a_new_difference_and_one_that_is_gone_are_both_found() -> None:
    outcomes = {"a": "failed: assert 1 == 0", "b": "passed", "c": "failed: assert 2 == 0", "d": "skipped"}

    found = differences(outcomes, {"a reason": ["b", "c", "d", "not in this version"]})

    assert found == [
        "a failed: assert 1 == 0",
        "b passes; remove it from tests/upstream/expected.py (a reason)",
    ]


@pytest.mark.timeout(300)
def test_celerys_own_beat_tests_pass_but_for_the_expected_differences(redis_url: str, tmp_path: Path) -> None:
    sdist = unpacked_sdist("celery")

    outcomes = outcomes_of(
        sdist, "t/unit/app/test_beat.py", tmp_path / "outcomes.json", UPSTREAM_REDIS_URL=redis_url
    )
    if celery.VERSION < (5, 7):
        outcomes = {test: outcome for test, outcome in outcomes.items() if test not in FROM_5_7}

    assert differences(outcomes, CELERY) == []


@pytest.mark.timeout(300)
def test_the_tests_of_django_celery_beat_pass_but_for_the_expected_differences(
    redis_url: str, tmp_path: Path
) -> None:
    pytest.importorskip("django_celery_beat")
    sdist = unpacked_sdist("django-celery-beat")

    outcomes = outcomes_of(
        sdist,
        "t/unit/test_schedulers.py",
        tmp_path / "outcomes.json",
        UPSTREAM_REDIS_URL=redis_url,
        DJANGO_SETTINGS_MODULE="t.proj.settings",
    )

    assert differences(outcomes, DJANGO_CELERY_BEAT) == []
