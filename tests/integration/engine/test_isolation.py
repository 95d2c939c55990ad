"""One entry's trouble is its own: the others go on, and everybody can see which one fails."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from celery.schedules import schedule
from prometheus_client import CollectorRegistry, generate_latest

from celery_catchup.config.times import parse_time
from celery_catchup.metrics import collector
from celery_catchup.operations.backfills import BackfillRequest, create_backfill, list_backfills
from celery_catchup.operations.entries import list_entries
from celery_catchup.operations.status import status
from celery_catchup.operations.timeline import timeline
from celery_catchup.store import Backfill
from celery_catchup.testing import FakeClock
from tests.integration.flowers import flower
from tests.integration.operating import Project

ALLOW = {"window": "6h", "overlap_policy": "allow"}
MINUTELY = {"task": "proj.etl", "schedule": "* * * * *"}
WHY = "calendar service away"


class Lookup(schedule):
    """A schedule that asks a service, which may be away, or not know some days."""

    unknown: ClassVar[range] = range(0)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        if int(last_run_at.timestamp()) in self.unknown:
            raise KeyError(WHY)
        return timedelta(minutes=1) - (self.maybe_make_aware(self.now()) - last_run_at)


# What checks the configuration asks about 1970.
AWAY = range(10**9, 10**10)
CUSTOM = {"task": "proj.etl", "schedule": Lookup(timedelta(minutes=1))}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    entries = {"custom": CUSTOM, "good": MINUTELY, "plain": {"task": "proj.etl", "schedule": 60.0}}
    return Project(redis_url, desk_clock, entries, {"custom": ALLOW, "good": ALLOW})


def run_for(beat: Any, clock: FakeClock, *, minutes: int) -> None:
    for _ in range(minutes * 6):
        clock.advance(seconds=10)
        beat.tick()


def count(project: Project, entry: str) -> int:
    return len(project.slots(entry))


def test_a_schedule_that_fails_stops_nobody_and_is_caught_up_when_it_is_back(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.beat() as beat:
        beat.tick()
        run_for(beat, desk_clock, minutes=2)
        monkeypatch.setattr(Lookup, "unknown", AWAY)
        run_for(beat, desk_clock, minutes=10)
        assert (count(project, "custom"), count(project, "good")) == (2, 12)
        assert project.app.connection().default_channel.client.llen("celery") == 2 + 12 + 12

        monkeypatch.setattr(Lookup, "unknown", range(0))
        run_for(beat, desk_clock, minutes=2)

        assert count(project, "custom") == count(project, "good") == 14
        with project.operator() as operator:
            assert status(operator).failing == ()
            assert status(operator).healthy


def test_a_schedule_that_fails_when_a_beat_takes_over_stops_nobody(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.tick()
    desk_clock.set("2026-02-07T09:15:00Z")
    monkeypatch.setattr(Lookup, "unknown", AWAY)

    project.tick()

    assert (count(project, "custom"), count(project, "good")) == (0, 10)
    monkeypatch.setattr(Lookup, "unknown", range(0))
    project.tick()
    assert count(project, "custom") == 10


def test_an_entry_that_cannot_even_be_built_stops_nobody(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    def broken(anchor: int) -> Any:
        raise RuntimeError("no such calendar")

    with project.beat() as beat:
        work: Any = beat._work
        declared = dict(work.engine._declared)
        work.engine._declared["custom"] = replace(declared["custom"], build=broken)
        beat.tick()
        run_for(beat, desk_clock, minutes=2)
        with project.operator() as operator:
            assert [(one.entry, one.reason) for one in status(operator).failing] == [
                ("custom", "RuntimeError: no such calendar")
            ]
        assert count(project, "good") == 2

        work.engine._declared = declared
        run_for(beat, desk_clock, minutes=3)

        assert count(project, "custom") > 0
        with project.operator() as operator:
            assert status(operator).failing == ()


def test_health_is_judged_by_the_oldest_due_slot_and_not_by_ticks(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.beat() as beat:
        beat.tick()
        run_for(beat, desk_clock, minutes=2)
        project.catchup("status", "--check")
        monkeypatch.setattr(Lookup, "unknown", AWAY)
        run_for(beat, desk_clock, minutes=5)
        project.catchup("status", "--check")  # 09:08 is due for four minutes

        run_for(beat, desk_clock, minutes=2)

        project.catchup("status", "--check", code=1)
        project.catchup("status", "--check", "--max-delay", "1h")
        failing = [one for one in project.json("doctor", code=1)["findings"] if one["verdict"] == "failure"]
        assert any("entry 'custom' fails" in one["detail"] for one in failing)
        told = project.text("status")
        assert (
            f"custom: custom: tests.integration.engine.test_isolation.Lookup failed with KeyError('{WHY}')"
            in told
        )
        assert "Oldest undecided slot" in told


def test_a_failing_entry_is_seen_in_entries_in_metrics_and_by_growing_intervals(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with project.beat() as beat:
        beat.tick()
        monkeypatch.setattr(Lookup, "unknown", AWAY)
        run_for(beat, desk_clock, minutes=10)
        said = [record for record in caplog.records if "Entry cannot be dispatched" in record.message]
        assert 10 <= len(said) <= 20  # after 1, 2, 4 … and then every 60 seconds, at ticks of 10

        with project.operator() as operator:
            shown = {one.name: one for one in list_entries(operator)}
        assert WHY in (shown["custom"].failing or "")
        assert shown["good"].failing is None
        assert "failing" in project.text("entries")
        registry = CollectorRegistry()
        ours = collector(project.app)
        registry.register(ours)
        text = generate_latest(registry).decode()
        ours.close()
    assert 'celery_catchup_entries_failing{namespace="proj"} 1.0' in text
    seconds = float(text.split('\ncelery_catchup_undecided_seconds{namespace="proj"} ')[1].split("\n")[0])
    assert seconds > 300


def test_preview_tells_of_a_failing_entry_and_plans_the_others(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.tick()
    desk_clock.set("2026-02-07T09:15:00Z")
    monkeypatch.setattr(Lookup, "unknown", AWAY)

    found = {one["entry"]: one for one in project.json("preview")["previews"]}

    assert WHY in found["custom"]["error"]
    assert (found["good"]["dispatched"], found["good"]["error"]) == (10, None)
    assert WHY in project.catchup("preview").stderr
    assert [one["entry"] for one in project.json("watermark", "show")["entries"]] == ["custom", "good"]
    refused = project.catchup(
        "backfill", "create", "custom", "--start", "1h ago", "--end", "now", "-f", code=1
    )
    assert "fails at present" in refused.stderr


def test_the_timeline_of_other_entries_is_shown_while_one_fails(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.tick()
    desk_clock.set("2026-02-07T09:15:00Z")
    monkeypatch.setattr(Lookup, "unknown", AWAY)

    with project.operator() as operator:
        now = desk_clock.now()
        found = timeline(operator, ["custom", "good"], since=now - timedelta(hours=1), until=now)

    assert found["custom"] == []
    assert sum(one.count for one in found["good"]) == 10


def test_a_plain_entry_that_fails_is_seen_too(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(redis_url, desk_clock, {"custom": CUSTOM, "good": MINUTELY}, {"good": ALLOW})
    monkeypatch.setattr(Lookup, "unknown", AWAY)

    with project.beat() as beat:
        beat.tick()
        run_for(beat, desk_clock, minutes=6)

        assert count(project, "good") == 6
        project.catchup("status", "--check", code=1)
        with project.operator() as operator:
            assert [one.entry for one in status(operator).failing] == ["custom"]


# -- backfills -------------------------------------------------------------------------------


def ask(project: Project, entry: str, start: str, end: str, **options: Any) -> str:
    with project.operator() as operator:
        ends = [
            parse_time(text, now=project.clock.now(), zone=operator.app.timezone) for text in (start, end)
        ]
        return create_backfill(
            operator, BackfillRequest(entry=entry, start=ends[0], end=ends[1], **options)
        ).id


def test_a_start_date_that_is_added_meanwhile_skips_the_rest_of_a_backfill(
    redis_url: str, desk_clock: FakeClock
) -> None:
    hourly = {"e": {"task": "proj.etl", "schedule": "0 * * * *"}, "good": MINUTELY}
    policies = {"e": {"window": "2d"}, "good": ALLOW}
    project = Project(redis_url, desk_clock, hourly, policies)
    project.tick()
    made = ask(project, "e", "2026-01-01T00:00Z", "2026-01-31T23:00Z", max_active=1000)
    with project.beat() as beat:
        beat.tick()
    dated = {**policies, "e": {"window": "2d", "start_date": "2026-02-01"}}
    project = Project(redis_url, desk_clock, hourly, dated)

    with project.beat() as beat:
        for _ in range(10):
            desk_clock.advance(minutes=1)
            beat.tick()
            project.execute(Backfill.lane_of(made))

    with project.operator() as operator:
        (found,) = list_backfills(operator)
        assert status(operator).failing == ()
    assert found.dispatched + found.skipped == found.total == 31 * 24
    assert found.skipped > 0
    assert count(project, "good") == 10


def test_a_backfill_that_fails_stops_neither_others_nor_retries(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.tick()
    bad = ask(project, "custom", "2026-02-07T08:00Z", "2026-02-07T08:10Z", max_active=100)
    ask(project, "good", "2026-02-07T08:00Z", "2026-02-07T08:10Z", max_active=100)
    nine = int(parse_time("2026-02-07T09:00Z", now=desk_clock.now(), zone=project.app.timezone).timestamp())
    monkeypatch.setattr(Lookup, "unknown", range(10**9, nine))

    with project.beat() as beat:
        beat.tick()
        run_for(beat, desk_clock, minutes=2)
        with project.operator() as operator:
            assert bad in [one.backfill for one in status(operator).failing]
        assert count(project, "good") == 2 + 11
        assert count(project, "custom") == 2

        monkeypatch.setattr(Lookup, "unknown", range(0))
        run_for(beat, desk_clock, minutes=3)

    assert [trigger for _, trigger in project.slots("custom")].count("backfill") == 10


# -- where it is seen, and when it is over ---------------------------------------------------


def test_flower_shows_which_entry_fails(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.beat() as beat:
        beat.tick()
        monkeypatch.setattr(Lookup, "unknown", AWAY)
        run_for(beat, desk_clock, minutes=2)

        with flower(project.app) as site:
            pages = [site.ask(path).text for path in ("/catchup", "/catchup/entry?entry=custom")]
            told = site.get("/status").json

    assert all(WHY in page for page in pages)
    assert ">failing</span>" in pages[0]
    assert [one["entry"] for one in told["failing"]] == ["custom"]


def test_an_entry_that_is_paused_does_not_fail_any_more(
    project: Project, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with project.beat() as beat:
        beat.tick()
        monkeypatch.setattr(Lookup, "unknown", AWAY)
        run_for(beat, desk_clock, minutes=7)
        project.catchup("status", "--check", code=1)

        project.catchup("pause", "custom")
        run_for(beat, desk_clock, minutes=1)

        project.catchup("status", "--check")


def test_a_key_that_is_not_what_it_should_be_stops_only_its_entry(
    redis_url: str, desk_clock: FakeClock
) -> None:
    jitter = {"window": "6h", "overlap_policy": "all", "jitter": "30s"}
    project = Project(
        redis_url, desk_clock, {"bad": MINUTELY, "good": MINUTELY}, {"bad": jitter, "good": jitter}
    )
    with project.beat() as beat:
        beat.tick()
        desk_clock.set("2026-02-07T09:06:00Z")
        beat.tick()
        with project.operator() as operator:
            key = operator.store.keys.active("bad")
            operator.store.client.set(key, "not a sorted set")
        run_for(beat, desk_clock, minutes=1)

        with project.operator() as operator:
            assert [one.entry for one in status(operator).failing] == ["bad"]
            assert len(operator.ledger.active("good")) == 1
