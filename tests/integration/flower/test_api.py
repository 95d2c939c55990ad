"""The HTTP API in a real Flower: responses, refused requests, and authorisation."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from celery_catchup.flower.api import ENDPOINTS, stream
from celery_catchup.flower.api.endpoint import ROOT
from celery_catchup.model import RunState
from celery_catchup.operations.changes import fingerprints
from celery_catchup.testing import FakeClock
from celery_catchup.testing.embedded_server import EmbeddedServer
from tests.integration.flowers import SCRIPT, SIGNED, USER, Site, flower
from tests.integration.operating import ALL, HOURLY, Project

HOSTILE = "</script><script>alert(1)</script>\"'&/?#%2F é"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
BACKFILL = {"entry": "hourly-etl", "start": "2026-02-07T00:00Z", "end": "2026-02-07T05:00Z"}


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; the first slot failed, the second was executed."""
    schedule = {"hourly-etl": HOURLY, "plain": HOURLY, HOSTILE: HOURLY}
    policies = {"hourly-etl": ALL, HOSTILE: False}
    project = Project(redis_url, desk_clock, schedule, policies, catchup_allowed_tasks=["proj.*"])
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    letter = {"type": "KeyError", "category": "permanent", "traceback": HOSTILE}
    project.execute("hourly-etl", state=RunState.FAILED, error=HOSTILE, letter=letter)
    project.execute("hourly-etl")
    return project


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    with flower(project.app) as site:
        yield site


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def dead_run_id(site: Site) -> str:
    return str(site.get("/dead-letters").json["items"][0]["run"]["runId"])


# -- the same schema as the commands ---------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/runs", ["runs"]),
        (
            "/runs?triggerType=catchup&state=succeeded",
            ["runs", "--trigger", "catchup", "--state", "succeeded"],
        ),
        ("/skipped", ["runs", "--state", "skipped"]),
        ("/preview?entry=hourly-etl", ["preview", "hourly-etl"]),
        ("/watermarks", ["watermark", "show"]),
        ("/dead-letters", ["dlq", "list"]),
        ("/backfills", ["backfill", "list"]),
    ],
)
def test_the_items_of_a_list_are_what_the_command_prints_as_json(
    site: Site, project: Project, path: str, command: list[str]
) -> None:
    answer = site.get(path)
    printed = project.json(*command)

    assert answer.status == 200, answer.text
    assert set(answer.json) == {"items", "next", "total"}
    assert answer.json["items"] in printed.values()
    assert site.get("/status").json == project.json("status")


def test_a_schedule_has_everything_that_the_command_entries_prints(site: Site, project: Project) -> None:
    rows = site.get("/schedules").json
    printed = project.json("entries")["entries"]

    assert rows["total"] == len(printed)
    assert [{name: row[name] for name in printed[0]} for row in rows["items"]] == printed
    assert rows["items"][0]["missed"] == 3
    assert rows["items"][0]["maxLag"] == 7320.0


def test_entries_are_searched_and_paged(site: Site) -> None:
    first = site.get("/schedules?search=ETL&limit=1").json
    found = site.get(f"/schedules?search=ETL&limit=1&cursor={first['next']}").json

    assert found["total"] == 3  # by their task
    assert [row["name"] for row in found["items"]] == ["plain"]
    assert site.get("/schedules?search=hourly").json["total"] == 1


def test_the_overview_has_banner_and_the_last_day_in_numbers(site: Site, desk_clock: FakeClock) -> None:
    found = site.get("/overview").json
    banner = found["banner"]

    assert (banner["dispatched"], banner["first"], banner["last"]) == (
        3,
        "2026-02-07T10:00:00Z",
        "2026-02-07T12:00:00Z",
    )
    assert (found["caughtUp"], found["notRecovered"], found["deadLetters"]) == (3, 3, 1)
    assert found["largestLag"] == 7320.0
    desk_clock.advance(seconds=3601)
    assert site.get("/overview").json["banner"] is None


def test_an_entry_is_found_whatever_characters_its_name_has(site: Site) -> None:
    answer = site.get(f"/schedules/{quote(HOSTILE, safe='')}")

    assert answer.json["entry"]["name"] == HOSTILE
    assert b"</script>" not in answer.body


def test_one_entry_has_its_next_slots_its_runs_by_trigger_and_its_outages(site: Site) -> None:
    found = site.get("/schedules/hourly-etl").json

    assert found["next"] == [f"2026-02-07T{hour}:00:00Z" for hour in (13, 14, 15)]
    assert found["runs"] == {"scheduler": 0, "catchup": 3, "backfill": 0, "manual": 0}
    assert found["outages"] == [{"since": "2026-02-07T09:05:00Z", "until": "2026-02-07T12:02:00Z"}]
    assert found["deadLetters"][0]["run"]["error"] == HOSTILE
    assert site.get("/outages").json["items"] == found["outages"]


def test_a_run_is_shown_with_its_attempts_and_inputs(site: Site) -> None:
    found = site.get(f"/runs/{dead_run_id(site)[:8]}").json

    assert [(one["outcome"], one["error"]) for one in found["attempts"]] == [("dead", HOSTILE)]
    assert found["inputs"]["readable"] is True


@pytest.mark.parametrize(
    "path", ["/runs", "/schedules", "/skipped", "/preview?window=6h", "/timeline", "/watermarks", "/outages"]
)
def test_pages_follow_each_other_by_their_cursor(site: Site, path: str) -> None:
    sign = "&" if "?" in path else "?"
    everything = site.get(path).json["items"]

    items, cursor = list[object](), ""
    while cursor is not None:
        page = site.get(f"{path}{sign}limit=1" + (f"&cursor={cursor}" if cursor else "")).json
        assert len(page["items"]) <= 1
        items, cursor = items + page["items"], page["next"]

    assert items == everything
    assert items


def test_pages_of_dead_letters_leave_none_out_when_some_are_discarded(site: Site, project: Project) -> None:
    project.execute("hourly-etl", state=RunState.FAILED, error="again", letter={})
    first = site.get("/dead-letters?limit=1").json
    site.post("/runs/discard", {"runIds": [first["items"][0]["run"]["runId"]]})
    second = site.get(f"/dead-letters?limit=1&cursor={first['next']}").json

    assert [len(page["items"]) for page in (first, second)] == [1, 1]
    assert second["next"] is None
    assert site.get("/dead-letters").json["items"] == second["items"]


def test_a_timeline_has_each_slot(site: Site) -> None:
    found = site.get("/timeline?entry=hourly-etl&since=2026-02-07T09:30Z&until=2026-02-07T12:30Z").json

    (only,) = found["items"]
    assert only["entry"] == "hourly-etl"
    assert [one["mark"] for one in only["slots"]] == ["failed", "caught_up", "in_flight"]


# -- changes ---------------------------------------------------------------------------------


def test_an_entry_is_paused_and_resumed(site: Site) -> None:
    paused = site.post("/schedules/hourly-etl/pause", {"reason": "migration"})
    again = site.post("/schedules/hourly-etl/pause", {})

    assert paused.json == {"entry": "hourly-etl", "paused": True, "changed": True}
    assert again.json["changed"] is False
    entry = site.get("/schedules/hourly-etl").json["entry"]
    assert (entry["pauseReason"], entry["pausedBy"]) == ("migration", f"{USER} in Flower")
    assert site.post("/schedules/hourly-etl/resume", {"dryRun": True}).json["preview"]["dispatched"] == 0
    assert site.get("/schedules/hourly-etl").json["entry"]["paused"] is True
    assert site.post("/schedules/hourly-etl/resume").json["changed"] is True
    assert site.get("/schedules/hourly-etl").json["entry"]["pausedBy"] is None


def test_in_a_bulk_request_each_entry_and_each_run_has_its_outcome(site: Site) -> None:
    names = ["hourly-etl", "plain", "unknown", HOSTILE]
    site.post("/schedules/hourly-etl/pause")
    runs = [one["runId"] for one in site.get("/runs").json["items"]] + [UNKNOWN]

    tried = site.post("/schedules/pause", {"entries": names, "dryRun": True}).json
    paused = site.post("/schedules/pause", {"entries": names, "reason": "all"}).json
    resumed = site.post("/schedules/resume", {"entries": names, "catchup": False}).json
    replayed = site.post("/runs/replay", {"runIds": runs}).json

    def outcomes(answer: dict[str, Any]) -> list[str]:
        return [one["outcome"] for one in answer["items"]]

    assert outcomes(tried) == ["unchanged", "refused", "unknown", "dry run"]
    assert outcomes(paused) == ["unchanged", "refused", "unknown", "paused"]
    assert outcomes(resumed) == ["resumed", "refused", "unknown", "resumed"]
    assert [one["runId"] for one in replayed["items"]] == runs
    assert outcomes(replayed) == ["refused", "refused", "replayed", "unknown"]


def test_a_run_is_started_by_hand(site: Site) -> None:
    asked = {"entry": "hourly-etl", "at": "2026-02-07T08:00:00Z"}

    tried = site.post("/runs", {**asked, "dryRun": True})
    started = site.post("/runs", asked)

    assert (tried.status, tried.headers["Location"]) == (200, None)
    assert started.status == 201
    assert started.headers["Location"] == f"{ROOT}/runs/{started.json['runId']}"
    run = site.ask(started.headers["Location"]).json["run"]
    assert (run["triggerType"], run["requestedBy"]) == ("manual", f"{USER} in Flower")
    assert site.post("/runs", asked).json["code"] == "refused"


def test_a_watermark_is_moved(site: Site) -> None:
    asked = {"at": "2026-02-07T10:30:00Z"}

    tried = site.post("/schedules/hourly-etl/watermark", {**asked, "dryRun": True}).json
    before = site.get("/watermarks?entry=hourly-etl").json["items"][0]["watermark"]
    moved = site.post("/schedules/hourly-etl/watermark", asked).json

    assert before == "2026-02-07T12:02:00Z"
    assert tried["after"] == moved["after"]
    assert site.get("/watermarks?entry=hourly-etl").json["items"][0]["watermark"] == "2026-02-07T10:30:00Z"


def test_a_dead_letter_is_replayed_once(site: Site) -> None:
    run = dead_run_id(site)

    assert site.post(f"/runs/{run}/replay", {"dryRun": True}).json["outcome"] == "dry run"
    assert site.post(f"/runs/{run}/replay").json["outcome"] == "replayed"
    assert site.get(f"/runs/{run}").json["run"]["requestedBy"] == f"{USER} in Flower"
    assert site.post("/runs/replay", {"runIds": [run]}).json["items"][0]["outcome"] == "under way"
    assert site.get("/dead-letters").json == {"items": [], "next": None, "total": None}


def test_a_run_that_cannot_be_replayed_is_refused(site: Site) -> None:
    run = site.get("/runs?state=succeeded").json["items"][0]["runId"]

    answer = site.post(f"/runs/{run}/replay")

    assert answer.status == 409
    assert answer.json["code"] == "refused"
    assert "it has succeeded" in answer.json["detail"]


def test_dead_letters_are_discarded(site: Site) -> None:
    run = dead_run_id(site)

    assert site.post(f"/runs/{run}/discard", {"dryRun": True}).json["outcome"] == "dry run"
    assert site.post(f"/runs/{run}/discard").json["outcome"] == "discarded"
    assert site.get(f"/dead-letters/{run}").status == 404


def test_the_beginning_of_an_id_is_enough_to_read_and_not_to_change(site: Site, project: Project) -> None:
    run = dead_run_id(site)
    backfill = site.post("/backfills", BACKFILL).json["id"]

    assert site.get(f"/runs/{run[:8]}").json["run"]["runId"] == run
    assert site.get(f"/backfills/{backfill[:4]}").json["id"] == backfill
    for path, body in (
        (f"/runs/{run[:8]}/replay", {}),
        (f"/runs/{run[:8]}/discard", {}),
        ("/runs/discard", {"runIds": [run[:8]]}),
        (f"/backfills/{backfill[:4]}/cancel", {}),
    ):
        assert site.post(path, body).status == 400, path
    with project.operator() as operator:
        record = operator.store.client.hget(operator.store.keys.ledger, run)
        for other in (f"{run[:-1]}0", f"{run[:-1]}1"):
            operator.store.client.hset(operator.store.keys.ledger, other, record)
            operator.store.client.zadd(operator.store.keys.runs, {other: 0})
    answer = site.get(f"/runs/{run[:-1]}")
    assert (answer.status, answer.json["code"]) == (409, "ambiguous_id")


def test_a_backfill_is_previewed_created_paused_resumed_and_cancelled(site: Site) -> None:
    asked = {**BACKFILL, "maxActive": 2}

    look = site.post("/backfills/preview", asked).json
    tried = site.post("/backfills", {**asked, "dryRun": True})
    assert site.get("/backfills").json["items"] == []
    answer = site.post("/backfills", asked)
    made = answer.json
    states = [
        site.post(f"/backfills/{made['id']}/{verb}").json["state"] for verb in ("pause", "resume", "cancel")
    ]

    assert look["dispatched"] == made["total"] == len(look["slots"]) == 6
    assert (tried.status, tried.json["id"], tried.json["total"]) == (200, "", 6)
    assert (answer.status, answer.headers["Location"]) == (201, f"{ROOT}/backfills/{made['id']}")
    assert made["requestedBy"] == f"{USER} in Flower"
    assert site.post("/backfills/preview", {**asked, "slots": 2}).json["dispatched"] == 6
    assert states == ["paused", "running", "cancelled"]
    assert site.post(f"/backfills/{made['id']}/pause").status == 409
    assert site.get(f"/backfills/{made['id']}").json["state"] == "cancelled"


def test_a_backfill_of_spans_is_previewed_and_created(site: Site) -> None:
    asked = BACKFILL | {"span": "2h"}

    look = site.post("/backfills/preview", asked).json
    made = site.post("/backfills", asked)

    dispatched = [one["slots"] for one in look["slots"] if one["action"] == "dispatch"]
    assert (sum(dispatched), max(dispatched)) == (look["dispatched"] + look["skipped"], 2)
    assert (made.status, made.json["span"]) == (201, 7200)
    assert site.post("/backfills", BACKFILL | {"span": "0h"}).status == 400


def test_the_runs_of_a_backfill_are_listed(site: Site, project: Project) -> None:
    made = site.post("/backfills", BACKFILL).json["id"]
    project.tick()

    found = site.get(f"/runs?backfill={made}").json["items"]

    assert len(found) == 6
    assert {one["backfill"] for one in found} == {made}
    assert site.get("/runs?backfill=00000000").json["items"] == []


def test_a_double_submit_with_a_key_makes_one_backfill(site: Site) -> None:
    keyed = {**SCRIPT, "Idempotency-Key": "form-1"}
    first, second = (site.post("/backfills", BACKFILL, headers=keyed) for _ in range(2))
    other = site.post("/backfills", {**BACKFILL, "maxActive": 3}, headers=keyed)
    third = site.post("/backfills", BACKFILL, headers={**SCRIPT, "Idempotency-Key": "form-2"})

    assert [answer.status for answer in (first, second, other, third)] == [201, 200, 409, 201]
    assert first.json["id"] == second.json["id"] != third.json["id"]
    assert other.json["code"] == "idempotency_key_reused"
    assert site.get("/backfills").json["total"] == 2


def test_a_double_submit_with_a_key_starts_one_run(site: Site, desk_clock: FakeClock) -> None:
    keyed, slot = {**SCRIPT, "Idempotency-Key": "press-1"}, {"entry": "plain", "at": "2026-02-07T08:00Z"}
    first = site.post("/runs", {"entry": "plain"}, headers=keyed)
    desk_clock.advance(seconds=5)
    second = site.post("/runs", {"entry": "plain"}, headers=keyed)
    other = site.post("/runs", {"entry": "hourly-etl"}, headers=keyed)
    third = site.post("/runs", {"entry": "plain"}, headers={**SCRIPT, "Idempotency-Key": "press-2"})
    of_slot = [site.post("/runs", slot, headers=keyed) for _ in range(2)]
    of_slot += [site.post("/runs", slot, headers={**SCRIPT, "Idempotency-Key": "press-3"})]

    assert [answer.status for answer in (first, second, other, third)] == [201, 200, 409, 201]
    assert first.json["run"]["runId"] == second.json["run"]["runId"] != third.json["run"]["runId"]
    assert other.json["code"] == "idempotency_key_reused"
    assert [answer.status for answer in of_slot] == [201, 200, 409]
    assert of_slot[2].json["code"] == "refused"
    assert len(site.get("/runs?triggerType=manual").json["items"]) == 3


def test_a_queued_run_is_sent_again_and_cancelled(site: Site, redis_url: str) -> None:
    (run,) = (one["runId"] for one in site.get("/runs?state=queued").json["items"])
    with Redis.from_url(redis_url) as client:
        before = client.llen("celery")
        tried = site.post(f"/runs/{run}/resend", {"dryRun": True}).json["outcome"]
        sent = site.post("/runs/resend", {"runIds": [run, UNKNOWN]}).json["items"]
        after = client.llen("celery")
    cancelled = site.post(f"/runs/{run}/cancel").json["outcome"]
    again = site.post(f"/runs/{run}/cancel")

    assert tried == "dry run"
    assert [one["outcome"] for one in sent] == ["sent again", "unknown"]
    assert after == before + 1
    assert cancelled == "cancelled"
    assert site.get(f"/runs/{run}").json["run"]["state"] == "revoked"
    assert (again.status, again.json["code"]) == (409, "refused")


def test_a_running_run_is_ended_only_with_terminate(site: Site, project: Project) -> None:
    (run,) = (one["runId"] for one in site.get("/runs?state=queued").json["items"])
    with project.operator() as operator:
        operator.leases.claim(run, owner="w", task="proj.etl", worker="w@here", entry="hourly-etl")

    refused = site.post("/runs/cancel", {"runIds": [run]}).json["items"][0]
    ended = site.post(f"/runs/{run}/cancel", {"terminate": True}).json

    assert refused["outcome"] == "refused"
    assert "terminate" in refused["reason"]
    assert ended["outcome"] == "being ended"


def test_a_backfill_of_too_many_slots_has_to_be_allowed(site: Site) -> None:
    typo = {**BACKFILL, "start": "1900-02-07T00:00Z"}

    refused = site.post("/backfills", typo)
    allowed = site.post("/backfills", {**typo, "maxSlots": 1_000_000})

    assert (refused.status, refused.json["code"]) == (400, "too_many_slots")
    assert "--max-slots" in refused.json["detail"]
    assert allowed.status == 201
    assert site.post("/backfills", {**BACKFILL, "maxSlots": 5}).status == 400


# -- how answers are sent --------------------------------------------------------------------


def test_a_list_that_has_not_changed_is_not_sent_again(site: Site) -> None:
    first = site.get("/runs")
    same = site.get("/runs", headers={**SCRIPT, "If-None-Match": first.headers["ETag"]})
    site.post(f"/runs/{dead_run_id(site)}/replay")
    other = site.get("/runs", headers={**SCRIPT, "If-None-Match": first.headers["ETag"]})

    assert [answer.status for answer in (first, same, other)] == [200, 304, 200]
    assert same.body == b""


def test_a_long_answer_is_compressed_if_the_client_asks(site: Site) -> None:
    long = site.get("/openapi.json", headers={**SCRIPT, "Accept-Encoding": "gzip, br"})

    assert long.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(long.body)) == site.get("/openapi.json").json
    assert (
        site.get("/outages", headers={**SCRIPT, "Accept-Encoding": "gzip"}).headers["Content-Encoding"]
        is None
    )


def test_head_answers_with_the_headers_of_get(site: Site) -> None:
    get, head = site.get("/runs"), site.get("/runs", method="HEAD")

    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(get.body))
    assert head.headers["ETag"] == get.headers["ETag"]


# -- the stream of changes -------------------------------------------------------------------


def test_a_stream_tells_what_has_changed(site: Site, project: Project) -> None:
    def streams() -> list[bool]:
        return [ready for watch in stream._watches.values() for ready in watch.streams.values()]

    with ThreadPoolExecutor(2) as threads:
        listening = [threads.submit(site.get, "/events?most=1&seconds=15") for _ in range(2)]
        wait_until(lambda: streams() == [True, True])
        site.post("/schedules/hourly-etl/pause")
        answers = [one.result() for one in listening]

    for answer in answers:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
        assert answer.text == (
            'event: ready\ndata: {"changed": []}\n\nevent: changed\ndata: {"changed": ["schedules"]}\n\n'
        )
    wait_until(lambda: streams() == [])


def test_a_stream_ends_after_its_time_and_there_are_only_so_many(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_STREAMS", 0)
    full = site.get("/events")
    monkeypatch.undo()

    assert (full.status, full.json["code"], full.headers["Retry-After"]) == (429, "busy", "5")
    assert site.get("/events?seconds=0").text == ""
    assert site.get("/events", method="HEAD").status == 200
    assert site.get("/events", headers={}).status == 401


def test_every_topic_notices_its_change(site: Site, project: Project, desk_clock: FakeClock) -> None:
    def look() -> dict[str, object]:
        with project.operator() as operator:
            return dict(fingerprints(operator))

    changes: dict[str, Callable[[], object]] = {
        "runs": lambda: project.execute("hourly-etl"),
        "dead-letters": lambda: site.post("/runs/discard", {"runIds": [dead_run_id(site)]}),
        "backfills": lambda: site.post("/backfills", BACKFILL),
        "schedules": lambda: site.post("/schedules/hourly-etl/pause"),
        "status": lambda: desk_clock.advance(seconds=61),
    }
    for topic, change in changes.items():
        before = look()
        assert look() == before
        change()
        assert look()[topic] != before[topic], topic


def test_the_status_is_unhealthy_a_lease_after_the_leader_was_killed(
    site: Site, project: Project, desk_clock: FakeClock
) -> None:
    with project.beat() as beat:
        beat.tick()
        healthy = site.get("/status").json
        desk_clock.advance(seconds=11)  # the lease is 10 seconds, and nobody renews it
        killed = site.get("/status").json

    assert (healthy["scheduler"], healthy["healthy"]) == ("running", True)
    assert (killed["scheduler"], killed["healthy"]) == ("down", False)


# -- what is refused -------------------------------------------------------------------------


def test_all_mistakes_of_a_request_are_reported_at_once(site: Site) -> None:
    answer = site.get("/runs?state=dying&limit=0&since=soon&stat=x&cursor=a")

    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json; charset=utf-8"
    assert [one["where"] for one in answer.json["mistakes"]] == ["limit", "cursor", "state", "since", "stat"]
    assert "did you mean 'state'" in answer.json.pop("mistakes")[-1]["problem"]
    assert answer.json == {
        **answer.json,
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "invalid_request",
        "detail": "5 mistakes in the request",
    }


def test_of_very_many_mistakes_the_first_are_listed(site: Site) -> None:
    body = json.dumps({f"member{number}": 1 for number in range(50_000)}).encode()

    answer = site.post("/schedules/hourly-etl/pause", body)

    assert answer.json["detail"] == "50000 mistakes in the request; the first 20 are listed"
    assert len(answer.json["mistakes"]) == 20


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b"null", "body"),
        (b'{"dryRun": "yes"}', "dryRun"),
        (b'{"reason": 1}', "reason"),
        (b'{"reson": ""}', "reson"),
        (b'{"dry_run": true}', "dry_run"),
        (b'{"entry": "plain"}', "entry"),
        (b"[" * 100_000, "body"),
        (b'{"reason": "\\ud800"}', "reason"),
        (b'{"\\ud800": 1}', "\ud800"),
        (b'{"reason": "' + b"x" * 600 + b'"}', "reason"),
    ],
)
def test_an_invalid_body_is_refused(site: Site, body: bytes, where: str) -> None:
    answer = site.post("/schedules/hourly-etl/pause", body)

    assert answer.status == 400
    assert [one["where"] for one in answer.json["mistakes"]] == [where]
    assert site.get("/schedules/hourly-etl").json["entry"]["paused"] is False


@pytest.mark.parametrize(
    ("path", "method", "problem"),
    [
        ("/schedules?limit=1&limit=2", "GET", "expected one value, got 2"),
        ("/schedules?limit=%202", "GET", "expected a whole number, got ' 2'"),
        ("/runs?" + "&".join(["entry=hourly-etl"] * 51), "GET", "at most 50 items"),
        ("/preview?window=soon", "GET", "write one such as '2d12h'"),
        ("/schedules/hourly-etl?entry=plain", "GET", "unknown parameter"),
        ("/schedules/hourly-etl/pause?reason=x", "POST", "unknown parameter"),
        ("/dead-letters?category=odd", "GET", "expected 'transient'"),
    ],
)
def test_an_invalid_query_is_refused(site: Site, path: str, method: str, problem: str) -> None:
    answer = site.get(path, method=method, body=b"{}" if method == "POST" else None)

    assert answer.status == 400
    assert [problem in one["problem"] for one in answer.json["mistakes"]] == [True], answer.json


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/schedules/unknown", "GET", 404),
        ("/runs?entry=unknown", "GET", 404),
        (f"/runs/{UNKNOWN}", "GET", 404),
        ("/backfills/ffffffff", "GET", 404),
        ("/schedules/plain/pause", "POST", 409),
        ("/watermarks?entry=plain", "GET", 409),
        ("/timeline?since=2026-02-08T00:00Z&until=2026-02-07T00:00Z", "GET", 400),
        ("/preview?window=400d", "GET", 400),
        ("/nowhere", "GET", 404),
        ("", "GET", 404),
        ("/skipped", "POST", 405),
        ("/schedules/hourly-etl/pause", "GET", 405),
        ("/runs", "DELETE", 405),
    ],
)
def test_unknown_and_refused_requests_have_a_status_and_a_message(
    site: Site, path: str, method: str, status: int
) -> None:
    answer = site.get(path, method=method, body=b"{}" if method == "POST" else None)

    assert answer.status == status, answer.text
    assert answer.json["detail"]
    assert (answer.headers["Allow"] is not None) == (status == 405)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "0", "1.5", "true", '"1"', "1" + "0" * 400])
def test_an_invalid_number_is_refused(site: Site, number: str) -> None:
    body = json.dumps(BACKFILL)[:-1] + f', "maxActive": {number}}}'

    answer = site.post("/backfills/preview", body.encode())

    assert answer.status == 400, answer.text
    assert [one["where"] for one in answer.json["mistakes"]] == ["maxActive"]


@pytest.mark.parametrize(
    "path", ["/schedules/%FF", "/runs?entry=%FF", "/runs?%FF=1", "/schedules/%00", "/runs/%2e%2e"]
)
def test_an_invalid_path_or_query_is_refused_in_json(site: Site, path: str) -> None:
    answer = site.get(path)

    assert answer.status in (400, 404), answer.text
    assert answer.json["detail"]


def test_a_body_that_is_too_long_is_refused(site: Site) -> None:
    body = b'{"runIds": ["' + b"x" * 2_000_000 + b'"]}'

    assert site.post("/runs/replay", body).status == 413


def test_a_body_of_another_kind_is_refused(site: Site) -> None:
    form = {**SCRIPT, "Content-Type": "application/x-www-form-urlencoded"}

    assert site.post("/schedules/hourly-etl/pause", b"reason=x", headers=form).status == 415


def test_an_unreachable_store_is_reported_until_it_is_back(site: Site, valkey: EmbeddedServer) -> None:
    assert site.get("/status").status == 200
    valkey.stop()

    answers = [site.get(path) for path in ("/status", "/runs", "/schedules")]

    assert [answer.status for answer in answers] == [503] * 3
    assert "cannot be used" in answers[0].json["detail"]
    valkey.start()
    assert site.get("/status").status == 200


# -- who may ---------------------------------------------------------------------------------


def _changes(run: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a valid request for each endpoint that changes something."""
    bodies: dict[str, dict[str, Any]] = {
        "createBackfill": BACKFILL,
        "startRun": {"entry": "hourly-etl", "at": "2026-02-07T08:00Z"},
        "moveWatermark": {"at": "2026-02-07T10:30Z"},
        "createEntry": {"name": "new", "task": "proj.etl", "schedule": "0 * * * *"},
        **{name: {"runIds": [run]} for name in ("replayRuns", "discardRuns", "resendRuns", "cancelRuns")},
        **{name: {"entries": ["hourly-etl"]} for name in ("pauseSchedules", "resumeSchedules")},
    }
    return [
        (one.path.format(entry="hourly-etl", runId=run, id="ffffffff"), bodies.get(one.name, {}))
        for one in ENDPOINTS
        if one.changes
    ]


def _paths() -> list[tuple[str, str]]:
    filled = [
        (one.method, one.path.format(entry="hourly-etl", runId=UNKNOWN, id="ffffffff")) for one in ENDPOINTS
    ]
    filled = [(method, path.replace("/events", "/events?seconds=0")) for method, path in filled]
    return [*filled, ("GET", "/openapi.json"), ("GET", "/nowhere")]


def test_every_route_needs_authentication(project: Project) -> None:
    wrong = {**SCRIPT, "Authorization": "Basic YTpi"}
    with flower(project.app, headers={}) as site:
        for method, path in _paths():
            for headers in ({}, {"X-Requested-With": "x"}, wrong):
                answer = site.get(
                    path, method=method, headers=headers, body=b"{}" if method == "POST" else None
                )
                assert answer.status == 401, (method, path)
                assert answer.headers["WWW-Authenticate"] == 'Basic realm="flower"'
                assert answer.json["code"] == "unauthenticated"


def test_without_authentication_the_api_is_closed_unless_flowers_own_is_open(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with flower(project.app, headers={}, basic_auth=[]) as site:
        assert site.get("/status").status == 401
        monkeypatch.setitem(os.environ, "FLOWER_UNAUTHENTICATED_API", "true")
        assert site.get("/status").status == 200
        assert site.get("/status").headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"read_only": True}, "read-only"), ({"basic_auth": []}, "no authentication")],
    ids=["read-only", "no authentication"],
)
def test_nothing_can_be_changed_in_a_read_only_flower_or_without_authentication(
    project: Project, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], reason: str
) -> None:
    monkeypatch.setitem(os.environ, "FLOWER_UNAUTHENTICATED_API", "true")
    with flower(project.app, **options) as site:
        before = site.get("/overview").json
        for path, body in _changes(dead_run_id(site)):
            answer = site.post(path, body)
            assert answer.status == 403, (path, answer.json)
            assert answer.json["code"] == "changes_not_allowed"
            assert reason in answer.json["detail"]
            tried = site.post(path, {**body, "dryRun": True})
            assert tried.status in (200, 404) or tried.json["code"] == "refused", path
        assert site.get("/overview").json == before


@pytest.mark.parametrize(
    "headers",
    [
        SIGNED,
        {**SCRIPT, "Sec-Fetch-Site": "cross-site"},
        {**SCRIPT, "Sec-Fetch-Site": "same-site"},
        {**SCRIPT, "Origin": "https://evil.example"},
        {**SCRIPT, "Origin": "null"},
        {**SIGNED, "X-XSRFToken": "guessed"},
        {**SIGNED, "X-XSRFToken": "a", "Cookie": "_xsrf=b"},
    ],
    ids=["no sign", "cross-site", "same-site", "origin", "null origin", "no cookie", "other cookie"],
)
def test_a_cross_site_request_changes_nothing(site: Site, headers: dict[str, str]) -> None:
    for path, body in _changes(dead_run_id(site)):
        answer = site.post(path, body, headers=headers)
        assert (answer.status, answer.json["code"]) == (403, "cross_site"), path
    assert site.get("/schedules/hourly-etl").json["entry"]["paused"] is False


@pytest.mark.parametrize(
    ("header", "status"), [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)]
)
def test_pages_of_other_sites_and_ports_read_nothing(site: Site, header: str, status: int) -> None:
    assert site.get("/preview", headers={**SIGNED, "Sec-Fetch-Site": header}).status == status


def test_a_request_with_the_xsrf_token_may_change_something(site: Site) -> None:
    token = "2|00000000|" + "ab" * 16 + "|1770000000"
    own = {
        **SIGNED,
        "Cookie": f"_xsrf={token}",
        "X-XSRFToken": token,
        "Origin": f"http://127.0.0.1:{site.port}",
        "Sec-Fetch-Site": "same-origin",
    }

    assert site.post("/schedules/hourly-etl/pause", {}, headers=own).status == 200


PIDBOX = (b"_kombu.binding", b"celery.pidbox")
"""Where Celery keeps who is to answer a question to the workers."""


def test_reading_never_changes_anything(site: Site, project: Project) -> None:
    def everything() -> object:
        with project.operator() as operator:
            client = operator.store.client
            return {key: client.dump(key) for key in sorted(client.keys()) if not key.startswith(PIDBOX)}

    before = everything()
    for method, path in _paths():
        if method == "GET":
            site.get(path)
    assert site.post("/backfills/preview", BACKFILL).status == 200

    assert everything() == before


def test_responses_have_security_headers(site: Site) -> None:
    for path in ("/status", "/nowhere", "/openapi.json"):
        headers = site.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        kind = "problem+json" if path == "/nowhere" else "json"
        assert headers["Content-Type"] == f"application/{kind}; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"


def test_text_of_users_stays_text(site: Site) -> None:
    for path in (
        "/runs",
        "/dead-letters",
        f"/runs/{dead_run_id(site)}",
        "/schedules",
        "/skipped",
        "/watermarks",
    ):
        answer = site.get(path)
        assert answer.status == 200
        assert b"</script" not in answer.body
        assert HOSTILE in json.dumps(answer.json, ensure_ascii=False).replace('\\"', '"')


def test_the_document_knows_flowers_prefix(project: Project) -> None:
    with flower(project.app, url_prefix="watch") as site:
        assert site.get("/openapi.json").json["servers"] == [{"url": f"/watch{ROOT}"}]
        assert site.get("/status").status == 200
