"""What is in the code is in the reference, and the other way round: keys, public names, exceptions."""

from __future__ import annotations

import re
from pathlib import Path

import celery_catchup
from celery_catchup import errors
from celery_catchup.store import Keys
from celery_catchup.worker_plugin.context import RunContext

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_key_is_explained_and_no_other() -> None:
    keys = Keys("app")
    of_entries = [getattr(keys, name) for name in dir(keys) if name.endswith("_of") or name in LANES]
    named = {value for name, value in vars(keys).items() if name != "prefix"}
    known = {value.removeprefix(f"{keys.prefix}:") for value in named} | {
        key("ENTRY").removeprefix(f"{keys.prefix}:") for key in of_entries if not key.__name__.startswith("_")
    }

    told = set(re.findall(r"^\| `([\w:]+)` \|", (REFERENCE / "redis-keys.md").read_text(), re.MULTILINE))

    assert told == known


LANES = {"active", "chain", "skips"}


def test_every_public_name_is_explained() -> None:
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")

    for name in celery_catchup.__all__:
        assert f"`celery_catchup.{name}" in page


def test_everything_a_task_can_ask_is_explained() -> None:
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    asked = {name for name in vars(RunContext) if not name.startswith("_")} - INSIDE

    assert {name for name in asked if not re.search(rf"`{name}(\(.*?\))?`", page)} == set()


INSIDE = {"of", "slot", "previous", "started", "lease", "notebook"}


def test_every_exception_is_in_the_tree() -> None:
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    kinds = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
    }

    assert kinds == set(re.findall(r"\b\w+Error\b", page.split("```text")[1])) - {"ValueError"}
