"""Scripts read records and write them again: what people and programs put into them comes back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from celery_catchup.model import RunState, to_instant
from celery_catchup.store import Actor, Origin
from celery_catchup.store.notes import Notes
from celery_catchup.store.templates import Template
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat, by_tester
from tests.integration.ledgers import new_backfill

AWKWARD = (
    "plain",
    "a/b\\c \"quoted\" 'single'",
    "tab\tnew\nline \x00 nul \x1f unit \x7f del",
    "ünïcödé 漢字 🦆 \u2028",
    '@catchup:run_id@ and "@catchup!is_catchup@" are marks',
    "12345678901234567890",
    "[]",
    "{}",
    "null",
    "1e5",
)


@pytest.fixture
def beat(redis_url: str) -> Beat:
    beat = Beat(
        redis_url,
        FakeClock("2026-02-07T09:59:30Z"),
        {"etl": ("0 * * * *", {"window": "6h", "max_attempts": 2})},
    )
    beat.tick()
    return beat


@pytest.mark.parametrize("text", AWKWARD)
def test_texts_of_a_run_survive_its_whole_life(beat: Beat, text: str) -> None:
    slot = to_instant(beat.clock.now()) - 30_000
    template = Template("{}", queue="celery", db=0)
    fields: dict[str, Any] = {
        "entry": text,
        "task": text,
        "schedule": 0,
        "slot": slot,
        "previous": slot - 3_600_000,
        "trigger": "manual",
        "template": template.id,
        "by": text,
    }
    beat.controls.start("r1", fields, template, now=slot)

    for _ in range(2):
        beat.leases.claim("r1", owner="w", task=text, worker=text, entry=text)
        beat.leases.finish("r1", entry=text, owner="w", state=RunState.FAILED, error=text)
        beat.controls.replay("r1", entry=text, change=replace(by_tester(), actor=Actor(text, Origin.PYTHON)))
    beat.leases.claim("r1", owner="w", task=text, worker=text, entry=text)
    beat.leases.finish("r1", entry=text, owner="w", state=RunState.REVOKED, error=text)

    found = beat.ledger.run("r1")
    assert found is not None
    assert {name: found[name] for name in fields} == fields
    assert (found["worker"], found["error"]) == (text, text)
    assert all(type(found[name]) is int for name in ("slot", "previous", "schedule", "created", "attempt"))
    assert {past["error"] for past in found["past"]} == {text}


@pytest.mark.parametrize(
    "value", [[], {}, None, 12345678901234567890, -0.1, 1e300, "x/y", [[], {}], {"": {"deep": [[]]}}]
)
def test_what_a_run_notes_comes_back_as_it_went_in(beat: Beat, value: Any) -> None:
    beat.clock.set("2026-02-07T10:00:00Z")
    beat.tick()
    (run,) = beat.ledger.runs_of("etl")
    beat.leases.claim(run["id"], owner="w", task="proj.etl", worker="w1")
    notes = Notes(beat.store)

    for name in ("one", "two", "1", ""):
        notes.write(run["id"], "checkpoints", name, value, owner="w")
        notes.write(run["id"], "snapshots", name, value, owner="w", once=True)

    assert notes.read(run["id"]) == {
        kind: dict.fromkeys(("one", "two", "1", ""), value) for kind in ("checkpoints", "snapshots")
    }


def test_a_backfill_and_its_policy_keep_their_numbers(beat: Beat) -> None:
    fields = {
        "entry": "etl",
        "start": -62_135_596_800_000,  # the year 1
        "end": to_instant(beat.clock.now()),
        "reprocess": "none",
        "newest_first": False,
        "max_active": 1000,
        "created": to_instant(beat.clock.now()),
        "total": 10**13,
    }
    created = beat.backfills.create(new_backfill(fields))
    for state in ("paused", "running", "cancelled"):
        beat.backfills.set_state(created.id, state)

    found = json.loads(beat.client.hget(beat.keys.backfills, created.id) or b"")
    assert {name: found[name] for name in fields} == fields
    assert all(type(found[name]) is type(value) for name, value in fields.items())
