"""``celery catchup runs resend``, ``runs cancel``, ``forget`` and ``purge``: ways out of a stuck state."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.model import RunState, to_instant
from celery_catchup.store.workers import Workers
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Two runs of a chain: one is queued, one waits for it."""
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T11:00:00Z")
    project.tick()
    return project


def runs(project: Project) -> list[dict[str, Any]]:
    """The runs, the oldest slot first."""
    return list(reversed(project.json("runs")["runs"]))


def states(project: Project) -> list[str]:
    return [run["state"] for run in runs(project)]


def messages(project: Project) -> int:
    with project.operator() as operator:
        return int(operator.store.client.llen("celery"))


def test_a_queued_run_whose_message_was_lost_is_sent_again(project: Project) -> None:
    first, second = runs(project)
    with project.operator() as operator:
        operator.store.client.delete("celery")

    dry = project.catchup("runs", "resend", first["runId"], "-n")
    done = project.catchup("runs", "resend", first["runId"], "-f")

    assert dry.stdout.split("  ")[-1] == "would resend\n"
    assert dry.stderr == "Nothing was changed.\n"
    assert done.stdout.split("  ")[-1] == "sent again\n"
    assert (messages(project), states(project)) == (1, ["queued", "waiting"])
    refused = project.catchup("runs", "resend", second["runId"], "-f", code=1)
    assert "it waits for its turn" in refused.stderr


def test_a_run_that_has_started_or_ended_is_not_sent_again(project: Project) -> None:
    first, _ = runs(project)
    with project.running("hourly-etl"):
        running = project.catchup("runs", "resend", first["runId"], "-f", code=1)
    project.catchup("dlq", "bury", runs(project)[1]["runId"], "-f")
    ended = project.catchup("runs", "resend", runs(project)[1]["runId"], "-f", code=1)

    assert f"to end it: celery -A YOUR_APP catchup runs cancel {first['runId']} --terminate" in running.stderr
    assert "to attempt it again: celery -A YOUR_APP catchup dlq replay" in ended.stderr


def test_the_next_attempt_of_a_failed_run_can_be_started_now(redis_url: str, desk_clock: FakeClock) -> None:
    policy = {**ALL, "max_attempts": 3, "retry_delay": "1d"}
    project = Project(redis_url, desk_clock, None, {"hourly-etl": policy})
    project.tick()
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()
    (run_id,) = project.execute("hourly-etl", state=RunState.FAILED, error="no")
    assert states(project) == ["waiting"]

    project.catchup("runs", "resend", run_id, "-f")

    assert [(run["state"], run["attempt"]) for run in runs(project)] == [("queued", 2)]


def test_a_cancelled_run_is_revoked_and_its_chain_goes_on(project: Project) -> None:
    first, _ = runs(project)
    dry = project.catchup("runs", "cancel", first["runId"], "-n")

    done = project.catchup("runs", "cancel", first["runId"], "-f")

    assert "would cancel" in dry.stdout
    assert "cancelled" in done.stdout
    assert states(project) == ["revoked", "queued"]
    assert "cancelled by " in project.text("runs", "show", first["runId"])
    refused = project.catchup("runs", "cancel", first["runId"], "-f", code=1)
    assert "it has ended: revoked" in refused.stderr


def test_a_running_run_is_cancelled_only_with_terminate(project: Project) -> None:
    first, _ = runs(project)
    with project.running("hourly-etl"):
        refused = project.catchup("runs", "cancel", first["runId"], "-f", code=1)
        done = project.catchup("runs", "cancel", first["runId"], "--terminate", "-f")

        assert "add --terminate" in refused.stderr
        assert "being ended" in done.stdout
        with project.operator() as operator:
            now = to_instant(project.clock.now())
            leases = type(operator.leases)(operator.store, ttl_ms=60_000, now_ms=now)
            leases.finish(
                first["runId"], entry="hourly-etl", owner="w", state=RunState.FAILED, error="killed"
            )

    assert states(project) == ["revoked", "queued"]


def test_a_task_that_no_worker_knows_is_a_dead_letter_within_two_minutes(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T10:00:00Z")
    waits = []
    with project.beat() as beat, project.operator() as operator:
        beat.tick()
        (run_id,) = operator.ledger.active("hourly-etl")
        for _ in range(4):
            workers = Workers(operator.store)
            workers.retry(run_id, owner="", delay_ms=0, error="NotRegistered: 'proj.etl'")
            seconds, micros = operator.store.client.time()
            now = seconds * 1000 + micros // 1000
            lease = operator.ledger.lease(run_id)
            assert lease is not None
            waits.append(round((lease - now) / 1000))
            operator.store.client.zadd(operator.store.keys.leases, {run_id: now - 1})  # that time has passed
            beat.tick()

    assert waits == [15, 30, 30, 30]
    (letter,) = project.json("dlq", "list")["deadLetters"]
    assert letter["run"]["error"] == "NotRegistered: 'proj.etl'"


def test_a_removed_entry_can_be_forgotten(redis_url: str, desk_clock: FakeClock) -> None:
    before = Project(redis_url, desk_clock, {"old": HOURLY, "etl": HOURLY}, {"old": ALL, "etl": ALL})
    before.tick()
    desk_clock.set("2026-02-07T10:00:00Z")
    before.tick()
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL})
    refused = project.catchup("forget", "old", "-f", code=1)
    before.execute("old")

    dry = project.text("forget", "old", "-n")
    done = project.text("forget", "old", "-f")

    (open_run,) = [run["runId"] for run in before.json("runs")["runs"] if run["entry"] == "etl"]
    assert (
        "that have not ended: 1; wait for them, or: celery -A YOUR_APP catchup runs cancel" in refused.stderr
    )
    assert (dry, done) == ("Would forget old and 1 run\n", "Forgot old and 1 run\n")
    assert [run["runId"] for run in project.json("runs")["runs"]] == [open_run]
    with project.operator() as operator:
        assert not any("old" in key.decode() for key in operator.store.client.scan_iter())
        assert "old" not in operator.read_stored().first_seen
    project.catchup("forget", "old", "-f", code=2)


def test_a_declared_entry_that_was_forgotten_starts_anew(project: Project, desk_clock: FakeClock) -> None:
    for run in runs(project):
        project.catchup("runs", "cancel", run["runId"], "-f")
    desk_clock.set("2026-02-07T14:00:30Z")

    told = project.catchup("forget", "hourly-etl", "-f")
    project.tick()

    assert "is declared: beat continues with it as with a new entry." in told.stderr
    assert project.json("runs")["runs"] == []  # nothing is caught up


def test_purge_deletes_the_namespace_and_nothing_else(redis_url: str, desk_clock: FakeClock) -> None:
    project, other = Project(redis_url, desk_clock), Project(redis_url, desk_clock)
    other.app.conf.catchup_namespace = "other"
    other.tick()
    with project.beat() as beat:
        beat.tick()
        refused = project.catchup("purge", "-f", code=1)
        would = project.text("purge", "-n")
    unasked = project.catchup("purge", code=1)

    done = project.text("purge", "-f")

    assert "a beat leads in namespace 'proj'" in refused.stderr
    assert would.startswith("Would delete ")
    assert "refusing to delete " in unasked.stderr
    assert done.endswith("(1 entry, 0 runs) of namespace proj\n")
    assert project.json("status")["scheduler"] == "never started"
    assert other.json("status")["scheduler"] != "never started"
    with project.operator() as operator:
        keys = operator.store.keys
        kept = set(operator.store.client.scan_iter(match=f"{keys.prefix}*"))
        assert kept == {keys.audit.encode(), keys.audit_times.encode()}
