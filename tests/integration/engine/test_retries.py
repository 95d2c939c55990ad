"""After a failure: whether there is another attempt, when, and what is told of the decision."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import flower
from tests.integration.operating import ALL, Project

TEN = "2026-02-07T10:00:00Z"
TRANSIENT = {"category": "transient", "type": "OSError", "traceback": "Traceback: the wire was cut"}
PERMANENT = {"category": "permanent", "type": "builtins.ValueError"}


def started(url: str, clock: FakeClock, **policy: Any) -> Project:
    """The run of ten o'clock is queued."""
    project = Project(url, clock, policies={"hourly-etl": {**ALL, **policy}})
    project.tick()
    clock.set(TEN)
    project.tick()
    return project


def fail(project: Project, letter: Any = None) -> dict[str, Any]:
    """An attempt fails; what is told of the run then."""
    (run_id,) = project.execute(
        "hourly-etl", state=RunState.FAILED, error="ValueError: it failed", letter=letter
    )
    found: dict[str, Any] = project.json("runs", "show", run_id)
    return found


def send_again(project: Project) -> None:
    """Beat sends the run whose next attempt is due, by the server's clock, at once."""
    with project.operator() as operator:
        client: Any = operator.store.client
        (run_id,) = client.zrange(operator.store.keys.retries, 0, -1)
        client.zadd(operator.store.keys.retries, {run_id: 0})
    project.tick()


def delays(project: Project, *, failures: int) -> list[int]:
    """Seconds between each of these failures and the attempt that was decided on then."""
    found = []
    for number in range(failures):
        if number:
            send_again(project)
        decision = fail(project)["decision"]
        found.append(_seconds(decision["nextAttemptAt"]) - _seconds(decision["decidedAt"]))
    return found


def _seconds(stamp: str) -> int:
    hours, minutes, seconds = (int(float(part)) for part in stamp[11:].rstrip("Z").split(":"))
    return hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize("letter", [None, TRANSIENT, {"category": "unknown"}, {"category": "odd"}], ids=str)
def test_a_failure_that_is_not_permanent_is_attempted_again(
    redis_url: str, desk_clock: FakeClock, letter: Any
) -> None:
    project = started(redis_url, desk_clock, max_attempts=3, retry_delay="5m")

    found = fail(project, letter)

    assert (found["run"]["state"], found["run"]["attempt"]) == ("waiting", 2)
    assert found["decision"]["nextAttemptAt"] == "2026-02-07T10:05:00Z"
    assert found["decision"]["reason"] is None


def test_a_permanent_failure_is_a_dead_letter_at_once(redis_url: str, desk_clock: FakeClock) -> None:
    project = started(redis_url, desk_clock, max_attempts=3, retry_delay="5m")

    found = fail(project, PERMANENT)

    assert (found["run"]["state"], found["run"]["attempt"]) == ("dead", 1)
    assert (found["decision"]["failures"], found["decision"]["maxAttempts"]) == (1, 3)
    assert (found["decision"]["nextAttemptAt"], found["decision"]["reason"]) == (None, "permanent")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, [60, 60, 60, 60]),
        ({"retry_backoff": 2}, [60, 120, 240, 480]),
        ({"retry_backoff": 1.5}, [60, 90, 135, 202]),
        ({"retry_backoff": 2, "retry_max_delay": "3m"}, [60, 120, 180, 180]),
    ],
    ids=str,
)
def test_delays_grow_by_the_factor_up_to_the_longest(
    redis_url: str, desk_clock: FakeClock, policy: dict[str, Any], expected: list[int]
) -> None:
    project = started(redis_url, desk_clock, max_attempts=9, retry_delay="1m", **policy)

    assert delays(project, failures=4) == expected


def test_without_a_longest_delay_none_is_longer_than_a_day(redis_url: str, desk_clock: FakeClock) -> None:
    project = started(redis_url, desk_clock, max_attempts=9, retry_delay="1h", retry_backoff=100)
    fail(project)
    send_again(project)

    assert fail(project)["decision"]["nextAttemptAt"] == "2026-02-08T10:00:00Z"


def test_a_replay_begins_with_the_first_delay_and_all_attempts(redis_url: str, desk_clock: FakeClock) -> None:
    project = started(redis_url, desk_clock, max_attempts=2, retry_delay="1m", retry_backoff=3)
    delays(project, failures=1)
    send_again(project)
    run = fail(project)["run"]

    project.catchup("dlq", "replay", run["runId"], "-f")
    replayed = project.json("runs", "show", run["runId"])

    assert (run["state"], replayed["run"]["state"]) == ("dead", "queued")
    assert replayed["decision"] is None
    assert delays(project, failures=1) == [60]


def test_the_next_attempt_and_the_policy_are_told_while_the_run_waits_for_it(
    redis_url: str, desk_clock: FakeClock
) -> None:
    policy = {"max_attempts": 3, "retry_delay": "5m", "retry_backoff": 2, "retry_max_delay": "1h"}
    project = started(redis_url, desk_clock, **policy, on_failure="stop")
    run_id = fail(project, TRANSIENT)["run"]["runId"]

    lines = project.text("runs", "show", run_id).splitlines()
    with flower(project.app) as site:
        page = site.ask(f"/catchup/run/{run_id}").text
        told = site.get(f"/runs/{run_id}").json["decision"]

    words = "max_attempts 3, retry_delay 5m, retry_backoff 2 up to 1h, on_failure stop"
    assert f"Policy: {words}" in lines
    assert "Failed attempts: 1 of 3" in lines
    assert "Next attempt: 2026-02-07T10:05:00Z" in lines
    assert words in page
    assert told == {
        "decidedAt": TEN,
        "failures": 1,
        "losses": 0,
        "nextAttemptAt": "2026-02-07T10:05:00Z",
        "reason": None,
        "maxAttempts": 3,
        "retryDelay": 300,
        "retryBackoff": 2,
        "retryMaxDelay": 3600,
        "onFailure": "stop",
    }


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (PERMANENT, "the failure is permanent: another attempt would fail too"),
        (TRANSIENT, "1 of 1 attempts have failed"),
    ],
    ids=["permanent", "used up"],
)
def test_a_dead_letter_tells_why_there_is_no_next_attempt_and_the_last_checkpoint(
    redis_url: str, desk_clock: FakeClock, letter: Any, why: str
) -> None:
    project = started(redis_url, desk_clock)
    with project.running("hourly-etl") as run:
        run.checkpoint("row", 41)
        run.checkpoint("file", "s3://x")
        run.checkpoint("row", 42)
    fail(project, letter)

    lines = project.text("dlq", "show", run.run_id).splitlines()
    told = project.json("dlq", "show", run.run_id)
    with flower(project.app) as site:
        listed, page = (site.ask(path).text for path in ("/catchup/dead", f"/catchup/run/{run.run_id}"))
        answer = site.get(f"/dead-letters/{run.run_id}").json

    assert f"Next attempt: none, {why}" in lines
    assert "Policy: max_attempts 1, on_failure continue" in lines
    assert "Last checkpoint: row = 42" in lines
    assert (told["lastCheckpoint"]["name"], told["lastCheckpoint"]["value"]) == ("row", 42)
    assert answer == told
    assert why in listed
    assert "builtins.ValueError: " not in listed
    assert f"none, {why}" in page
    assert "Last checkpoint" in page


def test_a_run_whose_workers_were_lost_tells_so_and_when_the_last_was_seen(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = started(redis_url, desk_clock)
    for _ in range(4):  # one attempt and two more, then it is given up
        with project.running("hourly-etl") as run, project.operator() as operator:
            operator.store.client.zadd(operator.store.keys.leases, {run.run_id: 1_000_000_060_000})
            operator.store.client.hset(operator.store.keys.contact, "since", 1)  # the store was always there
        project.tick()

    found = project.json("dlq", "show", run.run_id)

    assert (found["decision"]["reason"], found["decision"]["losses"]) == ("lost", 4)
    assert "Next attempt: none, its worker or its message was lost 4 times" in project.text(
        "dlq", "show", run.run_id
    )
    # By its lease of a minute it was renewed a minute before that ended.
    assert project.json("runs", "show", run.run_id)["lastHeartbeat"] == "2001-09-09T01:46:40Z"


def test_the_last_heartbeat_of_a_running_run_is_told(redis_url: str, desk_clock: FakeClock) -> None:
    project = started(redis_url, desk_clock)
    with project.running("hourly-etl") as run:
        pass

    found = project.json("runs", "show", run.run_id)
    with flower(project.app) as site:
        page = site.ask(f"/catchup/run/{run.run_id}").text

    assert found["lastHeartbeat"] == TEN
    assert "Last heartbeat" in page
    assert f"Last heartbeat: {TEN}" in project.text("runs", "show", run.run_id).splitlines()


def test_tenant_and_logic_version_of_the_record_are_told(redis_url: str, desk_clock: FakeClock) -> None:
    project = started(redis_url, desk_clock)
    with project.running("hourly-etl") as run, project.operator() as operator:
        record = operator.ledger.run(run.run_id) or {}
        record |= {"tenant": "eu", "logic_version": "7"}
        operator.store.client.hset(operator.store.keys.ledger, run.run_id, json.dumps(record))

    found = project.json("runs", "show", run.run_id)["run"]
    lines = project.text("runs", "show", run.run_id).splitlines()
    with flower(project.app) as site:
        page = site.ask(f"/catchup/run/{run.run_id}").text

    assert (found["tenant"], found["logicVersion"]) == ("eu", "7")
    assert {"Tenant: eu", "Logic version: 7"} <= set(lines)
    assert {"<dt>Tenant</dt>", "<dt>Logic version</dt>"} <= set(re.findall(r"<dt>.*?</dt>", page))


@pytest.mark.parametrize(
    ("text", "found"), [("WIRE was", 1), ("hourly", 1), ("proj.etl", 1), ("it failed", 1), ("nothing", 0)]
)
def test_dead_letters_are_searched_by_text(
    redis_url: str, desk_clock: FakeClock, text: str, found: int
) -> None:
    project = started(redis_url, desk_clock)
    fail(project, TRANSIENT)

    with flower(project.app) as site:
        page = site.ask(f"/catchup/dead?search={quote(text)}").text
        answer = site.get(f"/dead-letters?search={quote(text)}").json

    assert len(project.json("dlq", "list", "--search", text)["deadLetters"]) == found
    assert len(answer["items"]) == found
    assert page.count('data-label="Run ID"') == found
    assert len(project.json("dlq", "discard", "--all", "--search", text, "-f")["runs"]) == found
