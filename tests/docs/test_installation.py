"""The pages install and name the package in one way, which is true for a checkout and for PyPI."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from tests.docs.test_blocks import PAGES, blocks

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXAMPLES = [path for path in (ROOT / "examples").rglob("*") if path.is_file() and path.suffix != ".pyc"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_installs_from_the_checkout(page: Path) -> None:
    lines = [line for block in blocks(page.read_text()) for line in block.text.splitlines()]
    installed = [line.partition("pip install ")[2] for line in lines if "pip install " in line]

    for what in installed:
        assert (match := re.fullmatch(r"""(['"]?)\.(?:\[([\w,]+)\])?\1""", what.strip())), what
        assert set(filter(None, (match[2] or "").split(","))) <= EXTRAS.keys()


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("imports = ['proj.tasks']", 'imports += ["celery_catchup.worker"]'),
        ("imports = ('proj.tasks',)", 'imports += ("celery_catchup.worker",)'),
        ("include = ['proj.tasks']", 'imports = ["celery_catchup.worker"]'),
    ],
)
def test_the_plugin_is_added_to_the_modules_of_the_user(before: str, added: str) -> None:
    page = (ROOT / "docs" / "how-to" / "install-in-an-existing-app.md").read_text(encoding="utf-8")
    settings: dict[str, Any] = {}
    exec(f"{before}\n{added}", settings)
    app = Celery("proj", set_as_current=False)
    app.conf.update({name: settings[name] for name in ("imports", "include") if name in settings})
    imported: list[str] = []
    app.loader.import_task_module = imported.append

    app.loader.import_default_modules()

    assert f"`{added}`" in page
    assert {"proj.tasks", "celery_catchup.worker"} <= set(imported)


def test_the_code_suggests_packages_that_exist() -> None:
    """A hint names the package itself: that is true before and after celery-catchup is on PyPI."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]
    known = {re.split(r"[<>=\[]", one)[0].lower() for one in wanted}
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "celery_catchup").rglob("*.py")]
    suggested = {name for text in texts for name in re.findall(r"pip install ([\w{}-]+)", text)}

    assert suggested - known == {"{package}"}  # of a calendar: the module that is missing
    assert len(suggested) > 3


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_scheduler_has_one_spelling(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert re.findall(r"celery_catchup(?:\.beat)?[.:]Scheduler", text) == ["celery_catchup.Scheduler"] * len(
        re.findall(r"celery_catchup[\w.]*[.:]Scheduler", text)
    )
