"""Entries on one crontab with one policy are resolved once, and each keeps what is its own."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab

from celery_catchup.beat import resolved_entries
from celery_catchup.beat.catchup_entry import CatchupEntry, declaration_of
from celery_catchup.beat.resolved_entries import ResolvedEntries, resolve_entries
from celery_catchup.config.configuration import load

POLICY = {"window": "6h"}


def resolved(entries: dict[str, dict[str, Any]], policies: dict[str, Any]) -> ResolvedEntries:
    app = Celery("proj", set_as_current=False)
    built = {
        name: CatchupEntry(**{"name": name, "task": f"proj.{name}", "app": app, **fields})
        for name, fields in entries.items()
    }
    declared = {name: declaration_of(entry) for name, entry in built.items()}
    configuration = load({"catchup_entries": policies}, declared=declared, timezone=app.timezone)
    return resolve_entries(built, configuration, timezone=app.timezone)


@pytest.fixture
def fingerprinted(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """An item for each entry that was resolved in full."""
    seen: list[object] = []
    stock = resolved_entries.entry_fingerprint

    def counted(form: Any, *args: Any) -> str:
        seen.append(form)
        return stock(form, *args)

    monkeypatch.setattr(resolved_entries, "entry_fingerprint", counted)
    return seen


def test_entries_on_one_crontab_are_resolved_once(fingerprinted: list[object]) -> None:
    entries = {f"e{n}": {"schedule": crontab(minute="0"), "args": (n,)} for n in range(5)}
    found = resolved(entries, {"*": POLICY})

    assert len(fingerprinted) == 1
    assert [(one.name, one.task) for one in found.declared] == [(f"e{n}", f"proj.e{n}") for n in range(5)]
    assert [one.build(0).name for one in found.declared] == list(entries)
    assert len({one.build(0).schedules for one in found.declared}) == 1
    assert len(set(found.records.values())) == 5


@pytest.mark.parametrize(
    "other",
    [
        {"schedule": crontab(minute="1")},
        {"schedule": crontab(minute="0", hour="1")},
        {"schedule": 3600.0},
        {"schedule": "0 * * * *"},
        {"schedule": crontab(minute="0"), "options": {"expires": 3}},
        {"schedule": crontab(minute="0"), "catchup": {"window": "2h"}},
    ],
)
def test_entries_that_differ_are_resolved_each(fingerprinted: list[object], other: dict[str, Any]) -> None:
    found = resolved({"one": {"schedule": crontab(minute="0")}, "other": other}, {"*": POLICY})

    assert len(fingerprinted) == 2
    assert len(found.declared) == 2


def test_each_entry_has_its_own_warning() -> None:
    entries = {name: {"schedule": crontab(minute="0")} for name in ("one", "other")}

    found = resolved(entries, {"*": {"window": "1m"}})

    assert [("'one'" in text, "'other'" in text) for text in found.warnings] == [(True, False), (False, True)]
