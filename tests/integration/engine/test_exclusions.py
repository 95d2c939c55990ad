"""Excluded slots: never sent, live or late, and always on record."""

from __future__ import annotations

from typing import Any

from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.operating import HOURLY, Project

NIGHT = "2026-02-07T10:00..2026-02-07T12:59"


def entries(**policy: Any) -> dict[str, Any]:
    return {"etl": ("0 * * * *", {"window": "12h", "overlap_policy": "all", "exclude": NIGHT, **policy})}


def test_a_live_excluded_slot_is_skipped_and_the_next_one_runs(redis_url: str) -> None:
    clock = FakeClock("2026-02-07T08:30:00Z")
    beat = Beat(redis_url, clock, entries(overlap_policy="allow"))
    beat.tick()

    beat.run_for(seconds=6 * 3600, step=60)

    assert [slot[11:16] for slot in beat.sent("etl")] == ["09:00", "13:00", "14:00"]
    assert [(span[0][11:16], span[2], span[3]) for span in beat.skipped("etl")] == [
        ("10:00", 1, "excluded"),
        ("11:00", 1, "excluded"),
        ("12:00", 1, "excluded"),
    ]


def test_missed_excluded_slots_are_one_span_and_the_others_are_caught_up(redis_url: str) -> None:
    clock = FakeClock("2026-02-07T08:30:00Z")
    before = Beat(redis_url, clock, entries(overlap_policy="allow"))
    before.tick()
    before.engine.resign()
    clock.set("2026-02-07T14:30:00Z")

    beat = Beat(redis_url, clock, entries(overlap_policy="allow"))
    beat.tick()

    assert [slot[11:16] for slot in beat.sent("etl")] == ["09:00", "13:00", "14:00"]
    assert beat.skipped("etl") == [("2026-02-07T10:00:00Z", "2026-02-07T12:00:00Z", 3, "excluded")]


def test_preview_and_a_manual_run_respect_what_is_excluded(redis_url: str) -> None:
    clock = FakeClock("2026-02-07T08:30:00Z")
    policy = {"window": "12h", "overlap_policy": "all", "exclude": ["2026-02-07T10:00..2026-02-08"]}
    project = Project(redis_url, clock, {"hourly-etl": HOURLY}, {"hourly-etl": policy})
    with project.beat() as beat:
        beat.tick()
    clock.set("2026-02-07T12:02:00Z")

    assert "skip (excluded)" in project.text("preview", "hourly-etl")
    refused = project.catchup("run", "hourly-etl", "--at", "2026-02-07T11:00Z", code=1)
    assert "2026-02-07T11:00" in refused.stderr
