"""Renamed entries, beats that disagree, a full list of dead letters, and what the doctor mends."""

from __future__ import annotations

from typing import Any

import pytest

from celery_catchup.events import StateSuspect
from celery_catchup.events.redaction import redacted
from celery_catchup.model import RunState
from celery_catchup.store import Keys
from celery_catchup.testing import FakeClock
from tests.integration.beats import Beat
from tests.integration.operating import ALL, HOURLY, Project

NINE, NOON = "2026-02-07T09:05:00Z", "2026-02-07T12:02:00Z"
ETL = {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "allow"})}

# -- renaming ------------------------------------------------------------------------------------


def renamed(url: str, clock: FakeClock) -> Project:
    """Beat ran as ``old`` until 09:05, and comes back at 12:02 with the entry named ``new``."""
    before = Project(url, clock, {"old": HOURLY}, {"old": ALL})
    before.tick()
    clock.set(NOON)
    return Project(url, clock, {"new": HOURLY}, {"new": ALL})


def test_a_renamed_entry_is_a_new_one_and_the_old_state_is_listed(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = renamed(redis_url, desk_clock)
    project.tick()

    assert project.slots("new") == []
    found = project.json("doctor", code=1)["findings"]
    (orphan,) = [one for one in found if "orphaned" in one["detail"]]
    assert orphan["fix"].startswith("if it was renamed: celery -A YOUR_APP catchup watermark rename old NEW")


@pytest.mark.parametrize("when", ["before the beat came back", "afterwards"])
def test_a_rename_moves_the_watermark_and_no_slot_is_lost(
    redis_url: str, desk_clock: FakeClock, when: str
) -> None:
    project = renamed(redis_url, desk_clock)
    if when == "afterwards":
        project.tick()

    project.text("watermark", "rename", "old", "new", "-f")
    project.tick()

    hours = ["2026-02-07T10:00:00Z", "2026-02-07T11:00:00Z"]
    assert [slot for slot, trigger in project.slots("new") if trigger == "catchup"][:2] == hours
    assert "orphaned" not in project.catchup("doctor", code=1).stdout


def test_what_cannot_be_renamed_is_refused_in_a_sentence(redis_url: str, desk_clock: FakeClock) -> None:
    project = renamed(redis_url, desk_clock)

    assert "is still declared" in project.catchup("watermark", "rename", "new", "new", "-f", code=1).stderr
    told = project.catchup("watermark", "rename", "odl", "new", "-f", code=2).stderr
    assert "nothing is stored of 'odl'; entries without a declaration: 'old'" in told


# -- two beats that disagree ---------------------------------------------------------------------


def test_a_standby_with_another_schedule_says_so_once_and_the_leaders_counts(redis_url: str) -> None:
    clock = FakeClock(NINE)
    leader = Beat(redis_url, clock, ETL)
    standby = Beat(redis_url, clock, {"etl": ("*/5 * * * *", ETL["etl"][1])})
    leader.tick()
    for _ in range(50):  # a killed leader keeps its lease for a while, so the comparison waits
        leader.run_for(seconds=1)
        standby.tick()

    (told,) = standby.told(StateSuspect)
    assert "the schedule hash differs" in told.what
    assert leader.told(StateSuspect) == []


def test_beats_with_the_same_schedule_say_nothing(redis_url: str) -> None:
    clock = FakeClock(NINE)
    leader, standby = Beat(redis_url, clock, ETL), Beat(redis_url, clock, ETL)
    leader.tick()
    for _ in range(5):
        leader.run_for(seconds=1)
        standby.tick()

    assert standby.told(StateSuspect) == []


# -- dead letters --------------------------------------------------------------------------------


def test_beyond_the_most_dead_letters_the_oldest_count_as_failed_and_dispatch_goes_on(redis_url: str) -> None:
    clock = FakeClock(NINE)
    beat = Beat(redis_url, clock, ETL, max_dead_letters=2)
    beat.tick()
    clock.set(NOON)
    beat.tick()
    for number, run in enumerate(beat.ledger.runs_of("etl")):
        beat.leases.claim(run["id"], owner="w", task="proj.etl", worker="w")
        beat.leases.finish(run["id"], entry="etl", owner="w", state=RunState.FAILED)
        beat.client.zadd(beat.keys.dead, {run["id"]: number})
    beat.engine.housekeeping._swept_at = 0

    clock.set("2026-02-07T13:00:00Z")
    beat.tick()

    assert [run["state"] for run in beat.ledger.runs_of("etl")] == ["failed", "dead", "dead", "queued"]
    assert any("more than 2 dead letters" in event.what for event in beat.told(StateSuspect))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("login failed: password=hunter2, host=db", "login failed: password=***, host=db"),
        ("{'api_key': 'hunter2', 'n': 1}", "{'api_key': ***, 'n': 1}"),
        ('{"Authorization": "Bearer hunter2"}', '{"Authorization": ***}'),
        ("Set-Cookie: hunter2; Path=/", "Set-Cookie: ***; Path=/"),
        ("GET https://me:hunter2@db/x?token=hunter2", "GET https://***@db/x?token=***"),
        ("the token was wrong", "the token was wrong"),
        ("pwd=hunter2 x-api-key: hunter2", "pwd=*** x-api-key: ***"),
        ("passphrase='hun\\'ter2' private_key=hunter2", "passphrase=*** private_key=***"),
        ("curl -H Bearer hunter2 --password hunter2 -v", "curl -H Bearer *** --password *** -v"),
        ("blob?sig=hunter2&author=Ada session_id=hunter2", "blob?sig=***&author=Ada session_id=***"),
        ("DB_PASS=hunter2 passcode: hunter2 bypass=1", "DB_PASS=*** passcode: *** bypass=1"),
        ("{'credentials': 'hunter2', 'jwt': \"hunter2\"}", "{'credentials': ***, 'jwt': ***}"),
    ],
)
def test_what_is_named_like_a_secret_is_not_kept(text: str, shown: str) -> None:
    assert redacted(text) == shown


# -- the doctor ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("garbage", "'garbage', which is not a time"),
        ("", "'', which is not a time"),
        ("nan", "which is not a time"),
        ("1e400", "which is not a time"),
        ("-5", "which is not a time"),
        ("1770455100.5", "which is not a time"),
        ("253402300800000", "which is not a time"),
        ("1801612800000", "2027-02-03T00:00:00Z, in the future"),
    ],
)
def test_a_watermark_that_cannot_be_right_is_shown_and_mended(
    redis_url: str, desk_clock: FakeClock, value: str, named: str
) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    keys = Keys("proj")
    with project.operator() as operator:
        client: Any = operator.store.client
        client.hset(keys.decided, "hourly-etl", value)
        assert named in project.catchup("doctor", code=1).stdout

        project.catchup("doctor", "--fix", "-f", code=1)

        assert client.hget(keys.decided, "hourly-etl") == b"1770455100000"
    assert "no time" not in project.catchup("doctor", code=1).stdout


def test_a_key_of_the_wrong_kind_is_set_aside_and_beat_goes_on(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    keys = Keys("proj")
    with project.operator() as operator:
        client: Any = operator.store.client
        client.delete(keys.decided)
        client.set(keys.decided, "somebody else's")

        told = project.catchup("doctor", "--fix", "-f", code=1).stderr
        assert "is a string, expected a hash" in told
        assert client.get(f"{keys.decided}:set-aside") == b"somebody else's"
    desk_clock.set("2026-02-07T10:00:00Z")
    project.tick()

    assert project.slots("hourly-etl") == [("2026-02-07T10:00:00Z", "scheduler")]


def every_key() -> list[str]:
    """Every key that `Keys` names, whatever its list of types says."""
    keys = Keys("proj")
    return [key for key, _ in keys.kinds(["hourly-etl"])]


def test_every_key_of_the_wrong_kind_is_found_and_set_aside(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    with project.operator() as operator:
        client: Any = operator.store.client
        for key in every_key():
            client.delete(key)
            client.rpush(key, "somebody else's")

        project.catchup("doctor", "--fix", "-f", code=1)

        assert [key for key in every_key() if client.type(key) == b"list"] == []
        assert [key for key in every_key() if not client.exists(f"{key}:set-aside")] == []


def test_nothing_is_mended_without_being_asked(redis_url: str, desk_clock: FakeClock) -> None:
    project = Project(redis_url, desk_clock)
    project.tick()
    with project.operator() as operator:
        client: Any = operator.store.client
        client.hset(Keys("proj").decided, "hourly-etl", "garbage")

        project.catchup("doctor", "--fix", code=1)

        assert client.hget(Keys("proj").decided, "hourly-etl") == b"garbage"
