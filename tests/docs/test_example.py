"""The example configuration is one that beat starts with, and shows every way there is."""

from __future__ import annotations

import runpy
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from celery_catchup.config.configuration import Configuration, Declaration, load
from celery_catchup.config.overlap_policy import OverlapPolicy
from celery_catchup.config.policy import Select

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "celeryconfig.py"))


@pytest.fixture(scope="module")
def configuration(settings: dict[str, Any]) -> Configuration:
    raw = {name: value for name, value in settings.items() if name.startswith("catchup_")}
    declared = {name: Declaration(entry["schedule"]) for name, entry in settings["beat_schedule"].items()}
    return load(raw, declared=declared, timezone=UTC)


def test_every_kind_of_policy_is_shown(configuration: Configuration) -> None:
    policies = configuration.policies

    assert policies["heartbeat"] is None
    selects = {policy.select for policy in policies.values() if policy is not None}
    assert selects == set(Select)
    overlaps = {policy.overlap_policy for policy in policies.values() if policy is not None}
    assert overlaps >= set(OverlapPolicy) - {OverlapPolicy.CANCEL_OTHER}  # a comment names that one


def test_every_entry_has_its_task(settings: dict[str, Any]) -> None:
    text = (EXAMPLES / "tasks.py").read_text()

    for entry in settings["beat_schedule"].values():
        name = entry["task"].removeprefix("tasks.")
        assert f"def {name}(self):" in text
