"""``celery catchup why``: each kind of answer, from what beat has really recorded."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

DAY = "2026-02-07"


def at(hour: int, minute: int = 0) -> str:
    return f"{DAY}T{hour:02}:{minute:02}:00Z"


def outage(url: str, clock: FakeClock, policy: Any, *, until: str = at(12, 2), **settings: Any) -> Project:
    """Beat was down from 09:05 on, and is back."""
    project = Project(url, clock, {"etl": HOURLY}, {"etl": policy}, **settings)
    project.tick()
    clock.set(until)
    project.tick()
    return project


def ask(project: Project, time: str, entry: str = "etl") -> Any:
    """The only answer about a time, with everything else that was said."""
    found = project.json("why", entry, time)
    (answer,) = found["answers"]
    return {**found, **answer}


# -- what was decided ------------------------------------------------------------------------


def test_a_run_names_rule_time_and_leader_and_shows_its_attempts(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = outage(redis_url, desk_clock, ALL)
    project.execute("etl")

    found = ask(project, at(10))

    assert (found["verdict"], found["rule"], found["isSlot"]) == ("run", "window", True)
    assert found["decidedAt"] == at(12, 2)
    assert found["epoch"] == 2, "the beat that came back is the second leader"
    with project.operator() as operator:
        leader = operator.decisions.leaders([2])[2]
    assert (found["leader"], found["leaderSince"]) == (leader.owner, at(12, 2))
    assert found["values"]["late_by"] == 2 * 3600 + 120
    assert [one["outcome"] for one in found["attempts"]] == ["succeeded"]
    assert {"condition": "policy off", "reason": "catchup_off"} in found["alternatives"]


def test_a_waiting_run_names_the_run_that_it_waits_for(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, ALL)

    first, second = ask(project, at(10)), ask(project, at(11))

    assert second["run"]["state"] == "waiting"
    assert second["waitsFor"] == [first["run"]["runId"]]
    assert second["values"]["unfinished_runs"] == 1
    assert first["run"]["runId"] in second["advice"][0]["command"]


@pytest.mark.parametrize(("policy", "hour"), [("all", 11), ("allow", 11), ("allow", 12)])
def test_a_run_that_waits_for_a_place_says_so(
    redis_url: str, desk_clock: FakeClock, policy: str, hour: int
) -> None:
    project = outage(redis_url, desk_clock, {**ALL, "overlap_policy": policy}, catchup_max_active=1)

    first, found = ask(project, at(10)), ask(project, at(hour))

    assert "waits_for_a_place" not in first["values"]
    assert found["run"]["state"] == "waiting"
    expected = "1 of 1 catch-up and backfill runs are active (catchup_max_active)"
    assert found["values"]["waits_for_a_place"] == expected
    assert found["waitsFor"] == ([first["run"]["runId"]] if policy == "all" else [])


def test_a_chain_that_a_failure_stopped_names_that_run(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, {**ALL, "on_failure": "stop"})
    (dead,) = project.execute("etl", state=RunState.DEAD, error="no")

    found, failed = ask(project, at(11)), ask(project, at(10))

    assert found["waitsFor"] == [dead]
    assert failed["decision"]["reason"] == "lost"
    assert "dlq replay" in failed["advice"][0]["command"]


@pytest.mark.parametrize(
    ("policy", "slot", "reason", "rule", "value"),
    [
        ({"window": "6h"}, at(11), "guard_blocked", "overlap_policy", ("most_unfinished", 1)),
        ({"window": "2h"}, at(10), "expired", "window", ("recovered_after", at(10, 2))),
        (False, at(10), "catchup_off", "select", ("misfire_threshold", 60)),
        ({"window": "6h", "select": "latest"}, at(10), "superseded", "select", ("select", "latest")),
        ({**ALL, "max_runs": 1}, at(11), "cap_exceeded", "max_runs", ("max_runs", 1)),
        (
            {"window": "6h", "overlap_policy": "cancel_other"},
            at(11),
            "superseded",
            "overlap_policy",
            ("overlap_policy", "cancel_other"),
        ),
        ({"window": "6h", "select": "span"}, at(10), "covered", "select", ("select", "span")),
    ],
)
def test_a_skip_names_the_rule_with_its_values(
    redis_url: str, desk_clock: FakeClock, policy: Any, slot: str, reason: str, rule: str, value: Any
) -> None:
    project = outage(redis_url, desk_clock, policy)

    found = ask(project, slot)

    assert (found["verdict"], found["reason"], found["rule"]) == ("skipped", reason, rule)
    assert value in found["values"].items()
    assert (found["decidedAt"], found["epoch"]) == (at(12, 2), 2)
    assert found["policyChanged"] is False


def test_the_cap_of_all_entries_is_told_from_that_of_the_entry(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, ALL, catchup_max_runs=1)

    assert ask(project, at(11))["rule"] == "catchup_max_runs"


def test_a_live_slot_that_was_blocked_was_decided_when_it_was_due(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = outage(redis_url, desk_clock, {"window": "6h"}, until=at(10))
    for hour in (11, 12):
        desk_clock.set(at(hour))
        project.tick()

    found = ask(project, at(11))

    assert (found["reason"], found["decidedAt"]) == ("guard_blocked", at(11))
    assert found["values"]["unfinished_runs"] == 1
    assert found["epoch"] == 3, "each tick was that of another leader"
    assert [one["command"].split("backfill ")[1] for one in found["advice"]] == [
        f"etl --start {at(11)} --end {at(11)}"
    ]


def test_a_skip_under_another_policy_says_that_the_policy_has_changed(
    redis_url: str, desk_clock: FakeClock
) -> None:
    outage(redis_url, desk_clock, {"window": "6h"})

    found = ask(Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL}), at(11))

    assert found["policyChanged"] is True


def test_slots_of_a_pause_name_it(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL})
    project.tick()
    project.catchup("pause", "etl", "--reason", "migration")
    desk_clock.set(at(12, 2))
    project.tick()
    paused = ask(project, at(11))
    project.catchup("resume", "etl", "--no-catchup")
    project.tick()

    found = ask(project, at(11))

    assert paused["verdict"] == "paused"
    assert "migration" in paused["says"]
    assert "then it will run" in paused["says"]
    assert (found["reason"], found["rule"]) == ("paused", "resume")
    assert found["values"] == {"since": at(9, 5), "until": at(12, 2)}


def test_a_held_catch_up_waits_for_its_approval(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, {**ALL, "hold_above": 1})

    held = ask(project, at(11))
    project.catchup("discard", "etl", "-f")
    project.tick()

    assert (held["verdict"], held["rule"]) == ("held", "hold_above")
    assert [one["command"].split()[-2:] for one in held["advice"]] == [["approve", "etl"], ["discard", "etl"]]
    assert ask(project, at(11))["reason"] == "discarded"


def test_a_slot_that_a_manual_run_counts_for_names_it(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": ALL})
    project.tick()
    desk_clock.set(at(12, 2))
    project.catchup("run", "etl", "-f")
    project.tick()

    found, run = ask(project, at(11)), ask(project, at(12, 2))

    assert (found["reason"], found["values"]["started_at"]) == ("manual_run", at(12, 2))
    assert found["values"]["manual_run"] == run["run"]["runId"]
    assert (run["rule"], run["isSlot"], run["noSlot"]) == ("manual", False, "no_match")


def test_a_backfilled_slot_shows_why_it_was_skipped_before(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, False)
    project.catchup("backfill", "etl", "--start", at(10), "--end", at(10), "-f")
    project.tick()

    found = ask(project, at(10))

    assert (found["rule"], found["reason"]) == ("backfill", "catchup_off")
    assert found["values"]["requested_by"]


# -- what was not decided --------------------------------------------------------------------


def test_an_undecided_slot_shows_the_plan_of_beat(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": {"window": "6h"}})
    project.tick()
    desk_clock.set(at(12, 2))

    first, second = ask(project, at(10)), ask(project, at(11))

    assert (first["verdict"], first["reason"]) == ("undecided", None)
    assert (second["verdict"], second["reason"]) == ("undecided", "guard_blocked")


def test_a_slot_to_come_says_what_will_happen(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, {"window": "6h", "exclude": ["2026-02-08"]})

    found, excluded = ask(project, at(15)), ask(project, "2026-02-08T10:00:00Z")

    assert (found["verdict"], found["startsAt"]) == ("upcoming", at(15))
    assert found["alternatives"] == [
        {"condition": "1 run of the entry has not ended by then", "reason": "guard_blocked"}
    ]
    assert (excluded["isSlot"], excluded["noSlot"]) == (False, "excluded")
    assert (excluded["before"], excluded["after"]) == (at(23), "2026-02-09T00:00:00Z")


def test_an_excluded_slot_that_was_skipped_says_both(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, {"window": "6h", "exclude": [f"{DAY}T10:30..{DAY}T11:30"]})

    found = ask(project, at(11))

    assert (found["verdict"], found["reason"], found["noSlot"]) == ("skipped", "excluded", "excluded")


@pytest.mark.parametrize(
    ("dates", "slot", "why_not"),
    [
        ({"start_date": at(14)}, at(13), "before_start_date"),
        ({"end_date": at(14)}, at(15), "after_end_date"),
        ({}, at(13, 7), "no_match"),
    ],
)
def test_a_time_that_is_no_slot_says_why_not(
    redis_url: str, desk_clock: FakeClock, dates: Any, slot: str, why_not: str
) -> None:
    project = Project(redis_url, desk_clock, {"etl": HOURLY}, {"etl": {"window": "6h", **dates}})

    found = ask(project, slot)

    assert (found["isSlot"], found["verdict"], found["noSlot"]) == (False, "no_slot", why_not)


def test_a_time_that_the_clock_skips_or_repeats_says_so(redis_url: str, desk_clock: FakeClock) -> None:
    nightly = {"task": "proj.etl", "schedule": "30 2 * * *"}
    policy = {"window": "6h", "timezone": "Europe/Berlin"}
    project = Project(redis_url, desk_clock, {"etl": nightly}, {"etl": policy})

    gap, repeated = ask(project, "2026-03-29T02:30+01:00"), ask(project, "2026-10-25T02:30+01:00")

    assert (gap["noSlot"], gap["before"]) == ("clock_change", "2026-03-29T01:00:00Z")
    assert (repeated["noSlot"], repeated["before"]) == ("clock_change", "2026-10-25T00:30:00Z")


def test_a_slot_before_the_entry_was_seen_and_one_that_is_forgotten(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = outage(redis_url, desk_clock, ALL, catchup_ledger_ttl="30d")
    with project.operator() as operator:
        operator.store.client.hset(operator.store.keys.first_seen, "etl", 1_700_000_000_000)

    assert ask(project, "2020-02-07T08:00:00Z")["verdict"] == "never_seen"
    assert ask(project, "2025-02-07T08:00:00Z")["verdict"] == "forgotten"
    assert ask(project, at(8))["verdict"] == "not_recorded"


def test_an_entry_without_a_policy_and_one_that_is_removed(redis_url: str, desk_clock: FakeClock) -> None:
    outage(redis_url, desk_clock, {"window": "6h"})
    project = Project(redis_url, desk_clock, {"plain": HOURLY}, {})
    project.tick()

    plain, gone = ask(project, at(13), "plain"), ask(project, at(10))

    assert plain["verdict"] == "no_policy"
    assert (gone["verdict"], gone["run"]["state"]) == ("run", "queued")
    assert ask(project, at(11))["reason"] == "guard_blocked"
    assert ask(project, at(15))["verdict"] == "removed"


def test_each_schedule_of_a_list_has_its_own_answer(redis_url: str, desk_clock: FakeClock) -> None:
    both = {"task": "proj.etl", "schedule": ["0 * * * *", "0 */2 * * *"]}
    project = Project(redis_url, desk_clock, {"etl": both}, {"etl": {**ALL, "overlap_policy": "allow"}})
    project.tick()
    desk_clock.set(at(12, 2))
    project.tick()

    found = project.json("why", "etl", at(10))

    assert [one["schedule"] for one in found["answers"]] in ([0, 1], [1, 0])


# -- how it is shown -------------------------------------------------------------------------


def test_the_text_has_the_sentence_the_leader_and_a_command(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, {"window": "6h"})

    found = project.catchup("why", "etl", at(11))

    lines = found.stdout.splitlines()
    assert lines[0] == f'"etl" at {at(11)}: skipped (guard_blocked)'
    assert lines[1] == "  Overlap_policy is skip: of the missed slots it runs 1, the oldest."
    assert f"Decided At: {at(12, 2)}" in lines
    assert any(line.startswith("Leader: ") and line.endswith("(epoch 2)") for line in lines)
    assert "With policy all: run" in lines
    assert f"catchup backfill etl --start {at(11)} --end {at(11)}" in found.stderr


def test_a_forgotten_leader_is_unknown(redis_url: str, desk_clock: FakeClock) -> None:
    project = outage(redis_url, desk_clock, ALL)
    with project.operator() as operator:
        operator.store.client.delete(operator.store.keys.epochs)

    assert "Leader: unknown (epoch 2)" in project.text("why", "etl", at(10))
