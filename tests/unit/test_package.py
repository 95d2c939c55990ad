"""What importing the package promises: it is light, and its public names load on demand."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import celery_catchup


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
