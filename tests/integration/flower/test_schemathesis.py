"""Schemathesis checks that a running Flower follows its OpenAPI document."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import BASIC, Site, flower
from tests.integration.operating import ALL, HOURLY, Project


@pytest.fixture
def site(redis_url: str, desk_clock: FakeClock) -> Iterator[Site]:
    """A Flower that has entries with and without a policy, runs, a dead letter and a backfill."""
    project = Project(redis_url, desk_clock, {"hourly-etl": HOURLY, "plain": HOURLY}, {"hourly-etl": ALL})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("hourly-etl", state=RunState.FAILED, error="KeyError", letter={"type": "KeyError"})
    project.execute("hourly-etl")
    project.catchup(
        "backfill", "hourly-etl", "--start", "2026-02-07T00:00Z", "--end", "2026-02-07T03:00Z", "-f"
    )
    with flower(project.app) as site:
        yield site


RULES = (
    "GET /preview",
    "GET /timeline",
    "POST /backfills",
    "POST /backfills/preview",
    "POST /entries/preview",
)
"""Operations that refuse a range of time which ends before it begins or is too long, or a schedule that is
none; no schema says so."""
CONFIGURATION = "\n".join(
    f"""[[operations]]
include-name = "{name}"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 429, "5xx"]
"""
    for name in RULES
)


def examine(site: Site, folder: Path, *options: str) -> str:
    """Run Schemathesis; return its report if it finds something."""
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    run = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            "run",
            f"http://127.0.0.1:{site.port}/api/catchup/v1/openapi.json",
            *("-H", f"Authorization: {BASIC}", "-H", "X-Requested-With: schemathesis"),
            *("--exclude-path", "/events"),  # it ends after an hour
            *("--checks", "all", "--request-timeout", "20", "--no-color", *options),
        ],
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if run.returncode == 0 else run.stdout[-6000:] + run.stderr[-2000:]


@pytest.mark.slow
def test_schemathesis_finds_nothing(site: Site, tmp_path: Path) -> None:
    assert not examine(site, tmp_path, "--max-examples", "3", "--generation-deterministic")


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_schemathesis_finds_nothing_in_long(site: Site, tmp_path: Path) -> None:
    report = examine(site, tmp_path, "--max-examples", "150")

    assert not report, report
