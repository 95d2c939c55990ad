"""Importing the package is light, and every documented name is where the documentation says."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import celery_catchup

ROOT = Path(__file__).parents[2]
PUBLIC = {
    "celery_catchup": [
        "Scheduler",
        "__version__",
        "current_run",
        "entries",
        "install",
        "run_headers",
        "trigger",
    ],
    "celery_catchup.beat": ["Scheduler"],
    "celery_catchup.embedded": ["EmbeddedServer"],
    "celery_catchup.errors": [
        "BackfillError",
        "CatchupError",
        "ConfigurationError",
        "CronError",
        "DriftError",
        "DurationError",
        "LeaseLostError",
        "ScheduleError",
        "SourceError",
        "StoreError",
        "UnfitStoreError",
    ],
    "celery_catchup.events": ["subscribe"],
    "celery_catchup.flower": [],
    "celery_catchup.manual": ["ManualBeat"],
    "celery_catchup.metrics": ["collector"],
    "celery_catchup.pytest_plugin": ["catchup_beat", "catchup_server"],
    "celery_catchup.signals": ["catchup_started", "run_dead", "run_dispatched", "run_skipped"],
    "celery_catchup.testing": ["EmbeddedServer", "FakeClock", "ManualBeat"],
    "celery_catchup.testing.embedded_server": ["EmbeddedServer"],
    "celery_catchup.testing.manual_beat": ["ManualBeat"],
    "celery_catchup.worker": ["install"],
}
"""Every public name, also those of version 0.1, by its module."""


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", celery_catchup.__version__)


def test_importing_the_package_imports_neither_celery_nor_redis() -> None:
    program = "import sys, celery_catchup; print({'celery', 'kombu', 'redis', 'pydantic'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def test_a_public_name_loads_from_its_home(monkeypatch: pytest.MonkeyPatch) -> None:
    home = SimpleNamespace(Widget=object())
    monkeypatch.setitem(sys.modules, "celery_catchup_widgets", home)  # type: ignore[arg-type]
    monkeypatch.setitem(celery_catchup._HOMES, "Widget", "celery_catchup_widgets")

    found = celery_catchup.Widget

    assert found is home.Widget
    del celery_catchup.Widget  # the first access has cached it


def test_public_names_are_listed() -> None:
    assert {"Scheduler", "__version__"} <= set(celery_catchup.__all__)
    assert set(celery_catchup.__all__) <= set(dir(celery_catchup))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Schedular'"):
        _ = celery_catchup.Schedular


_EACH_FIRST = """
import multiprocessing, sys, celery, kombu, pydantic, redis, flower.app, prometheus_client, pytest

def attempt(program):
    assert not [name for name in sys.modules if name.startswith("celery_catchup")]
    exec(program)

for program in sys.argv[1:]:
    process = multiprocessing.get_context("fork").Process(target=attempt, args=(program,))
    process.start()
    process.join()
    print(process.exitcode, program)
"""
"""Imports each module first, in a process of its own, in which the slow imports of others are done."""


def test_public_names_can_be_imported() -> None:
    programs = [
        f"from {module} import {', '.join(names)}" if names else f"import {module}"
        for module, names in PUBLIC.items()
    ]

    done = subprocess.run([sys.executable, "-c", _EACH_FIRST, *programs], capture_output=True, text=True)

    assert done.stdout.splitlines() == [f"0 {program}" for program in programs], done.stderr


def test_every_name_of_the_python_reference_is_public() -> None:
    page = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")

    documented = set(re.findall(r"`(celery_catchup(?:\.\w+)+)", page))

    public = {f"{module}.{name}" for module, names in PUBLIC.items() for name in names} | set(PUBLIC)
    assert documented - public == set()
    assert len(documented) >= 14


def test_every_entry_point_loads() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]

    targets = [target for group in groups.values() for target in group.values()]

    assert targets == ["celery_catchup.beat:Scheduler", "celery_catchup.cli:catchup"]
    for module, _, name in (target.partition(":") for target in targets):
        assert getattr(import_module(module), name)
