"""The HTTP API in a real Flower: responses, refused requests, and authorisation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from celery_catchup.flower.api import ENDPOINTS, ROUTES
from celery_catchup.flower.api.endpoint import ROOT
from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from celery_catchup.testing.embedded_server import EmbeddedServer
from tests.integration.flowers import SCRIPT, SIGNED, USER, Site, flower
from tests.integration.operating import ALL, HOURLY, Project

HOSTILE = "</script><script>alert(1)</script>\"'&/?#%2F é"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
CHANGES = [one for one in ENDPOINTS if one.changes]


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; the first slot failed, the second was executed."""
    schedule = {"hourly-etl": HOURLY, "plain": HOURLY, HOSTILE: HOURLY}
    project = Project(redis_url, desk_clock, schedule, {"hourly-etl": ALL, HOSTILE: False})
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


def dead_run_id(site: Site) -> str:
    return str(site.get("/dead-letters").json["deadLetters"][0]["run"]["runId"])


# -- the same schema as the commands ---------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("/status", ["status"]),
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
def test_a_response_is_what_the_command_prints_as_json(
    site: Site, project: Project, path: str, command: list[str]
) -> None:
    answer = site.get(path)

    assert answer.status == 200, answer.text
    assert answer.json == project.json(*command)


def test_a_schedule_has_everything_that_the_command_entries_prints(site: Site, project: Project) -> None:
    rows = site.get("/schedules").json
    printed = project.json("entries")["entries"]

    assert rows["total"] == len(printed)
    assert [{name: row[name] for name in printed[0]} for row in rows["entries"]] == printed
    assert rows["entries"][0]["missed"] == 3
    assert rows["entries"][0]["maxLag"] == 7320.0


def test_entries_are_searched_and_paged(site: Site) -> None:
    found = site.get("/schedules?search=ETL&limit=1&offset=1").json

    assert found["total"] == 3  # by their task
    assert [row["name"] for row in found["entries"]] == ["plain"]
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
    assert site.get("/outages").json["outages"] == found["outages"]


def test_a_run_is_shown_with_its_attempts_and_inputs(site: Site) -> None:
    found = site.get(f"/runs/{dead_run_id(site)[:8]}").json

    assert [(one["outcome"], one["error"]) for one in found["attempts"]] == [("dead", HOSTILE)]
    assert found["inputs"]["readable"] is True


def test_pages_of_runs_follow_each_other_by_their_cursor(site: Site) -> None:
    everything = site.get("/runs").json["runs"]
    first = site.get("/runs?limit=2").json
    second = site.get(f"/runs?limit=2&cursor={first['cursor']}").json

    assert first["runs"] + second["runs"] == everything
    assert second["cursor"] is None


def test_a_timeline_has_each_slot(site: Site) -> None:
    found = site.get("/timeline?entry=hourly-etl&since=2026-02-07T09:30Z&until=2026-02-07T12:30Z").json

    assert [one["mark"] for one in found["entries"]["hourly-etl"]] == ["failed", "caught_up", "in_flight"]


# -- changes ---------------------------------------------------------------------------------


def test_an_entry_is_paused_and_resumed(site: Site) -> None:
    paused = site.post("/schedules/hourly-etl/pause", {"reason": "migration"})
    again = site.post("/schedules/hourly-etl/pause", {})

    assert paused.json == {"entries": [{"entry": "hourly-etl", "paused": True, "changed": True}]}
    assert again.json["entries"][0]["changed"] is False
    assert site.get("/schedules/hourly-etl").json["entry"]["pauseReason"] == "migration"
    assert site.post("/schedules/hourly-etl/resume", {"dryRun": True}).json["previews"][0]["dispatched"] == 0
    assert site.get("/schedules/hourly-etl").json["entry"]["paused"] is True
    assert site.post("/schedules/hourly-etl/resume").json["entries"][0]["paused"] is False


def test_a_dead_letter_is_replayed_once(site: Site) -> None:
    run = dead_run_id(site)

    assert site.post(f"/runs/{run}/replay", {"dryRun": True}).json["outcome"] == "dry run"
    assert site.post(f"/runs/{run}/replay").json["outcome"] == "replayed"
    assert site.get(f"/runs/{run}").json["run"]["requestedBy"] == f"{USER} in Flower"
    assert site.post("/replay", {"runIds": [run]}).json["runs"][0]["outcome"] == "under way"
    assert site.get("/dead-letters").json == {"deadLetters": []}


def test_a_run_that_cannot_be_replayed_is_refused(site: Site) -> None:
    run = site.get("/runs?state=succeeded").json["runs"][0]["runId"]

    answer = site.post(f"/runs/{run}/replay")

    assert answer.status == 409
    assert "it has succeeded" in answer.json["error"]["message"]


def test_dead_letters_are_discarded(site: Site) -> None:
    run = dead_run_id(site)

    assert site.post("/discard", {"runIds": [run]}).json["runs"][0]["outcome"] == "discarded"
    assert site.get(f"/dead-letters/{run}").status == 404


def test_a_backfill_is_previewed_created_paused_resumed_and_cancelled(site: Site) -> None:
    asked = {"entry": "hourly-etl", "start": "2026-02-07T00:00Z", "end": "2026-02-07T05:00Z", "maxActive": 2}

    look = site.post("/backfill/preview", asked).json
    made = site.post("/backfills", asked).json
    states = [
        site.post(f"/backfills/{made['id']}/{verb}").json["state"] for verb in ("pause", "resume", "cancel")
    ]

    assert look["dispatched"] == made["total"] == len(look["slots"]) == 6
    assert site.post("/backfill/preview", {**asked, "limit": 2}).json["dispatched"] == 6
    assert states == ["paused", "running", "cancelled"]
    assert site.post(f"/backfills/{made['id']}/pause").status == 409
    assert site.get(f"/backfills/{made['id']}").json["state"] == "cancelled"


# -- what is refused -------------------------------------------------------------------------


def test_all_mistakes_of_a_request_are_reported_at_once(site: Site) -> None:
    answer = site.get("/runs?state=dying&limit=0&since=soon&stat=x&cursor=a")

    assert answer.status == 400
    assert [one["where"] for one in answer.json["error"]["mistakes"]] == [
        "state",
        "since",
        "limit",
        "cursor",
        "stat",
    ]
    assert answer.json["error"]["message"] == "5 mistakes in the request"
    assert "did you mean 'state'" in answer.json["error"]["mistakes"][-1]["problem"]


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
    assert [one["where"] for one in answer.json["error"]["mistakes"]] == [where]
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
    assert [problem in one["problem"] for one in answer.json["error"]["mistakes"]] == [True], answer.json


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/schedules/unknown", "GET", 404),
        ("/runs?entry=unknown", "GET", 404),
        (f"/runs/{UNKNOWN}", "GET", 404),
        ("/backfills/ffffffff", "GET", 404),
        ("/schedules/plain/pause", "POST", 409),
        ("/watermarks?entry=plain", "GET", 409),
        ("/timeline?since=2026-02-08T00:00Z&until=2026-02-07T00:00Z", "GET", 409),
        ("/nowhere", "GET", 404),
        ("", "GET", 404),
        ("/runs", "POST", 405),
        ("/replay", "GET", 405),
        ("/runs", "DELETE", 405),
    ],
)
def test_unknown_and_refused_requests_have_a_status_and_a_message(
    site: Site, path: str, method: str, status: int
) -> None:
    answer = site.get(path, method=method, body=b"{}" if method == "POST" else None)

    assert answer.status == status, answer.text
    assert answer.json["error"]["message"]
    assert (answer.headers["Allow"] is not None) == (status == 405)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "0", "1.5", "true", '"1"', "1" + "0" * 400])
def test_an_invalid_number_is_refused(site: Site, number: str) -> None:
    body = (
        '{"entry": "hourly-etl", "start": "2026-02-07T00:00Z", "end": "2026-02-07T05:00Z", '
        f'"maxActive": {number}}}'
    )

    answer = site.post("/backfill/preview", body.encode())

    assert answer.status == 400, answer.text
    assert [one["where"] for one in answer.json["error"]["mistakes"]] == ["maxActive"]


@pytest.mark.parametrize(
    "path", ["/schedules/%FF", "/runs?entry=%FF", "/runs?%FF=1", "/schedules/%00", "/runs/%2e%2e"]
)
def test_an_invalid_path_or_query_is_refused_in_json(site: Site, path: str) -> None:
    answer = site.get(path)

    assert answer.status in (400, 404), answer.text
    assert answer.json["error"]["message"]


def test_a_body_that_is_too_long_is_refused(site: Site) -> None:
    body = b'{"runIds": ["' + b"x" * 2_000_000 + b'"]}'

    assert site.post("/replay", body).status == 413


def test_a_body_of_another_kind_is_refused(site: Site) -> None:
    form = {**SCRIPT, "Content-Type": "application/x-www-form-urlencoded"}

    assert site.post("/schedules/hourly-etl/pause", b"reason=x", headers=form).status == 415


def test_an_unreachable_store_is_reported_until_it_is_back(site: Site, valkey: EmbeddedServer) -> None:
    assert site.get("/status").status == 200
    valkey.stop()

    answers = [site.get(path) for path in ("/status", "/runs", "/schedules")]

    assert [answer.status for answer in answers] == [503] * 3
    assert "cannot be used" in answers[0].json["error"]["message"]
    valkey.start()
    assert site.get("/status").status == 200


# -- who may ---------------------------------------------------------------------------------


def _paths() -> list[tuple[str, str]]:
    filled = [
        (one.method, one.path.format(entry="hourly-etl", runId=UNKNOWN, id="ffffffff")) for one in ENDPOINTS
    ]
    return [*filled, ("GET", "/openapi.json"), ("GET", "/nowhere")]


def test_every_route_is_tested_here() -> None:
    assert len(ROUTES) == len({one.path for one in ENDPOINTS}) + 2


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
                assert set(answer.json) == {"error"}


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
        for endpoint in CHANGES:
            answer = site.post(endpoint.path.format(entry="hourly-etl", runId=dead_run_id(site), id="f"), {})
            assert answer.status == 403, endpoint.path
            assert reason in answer.json["error"]["message"]
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
    for endpoint in CHANGES:
        path = endpoint.path.format(entry="hourly-etl", runId=dead_run_id(site), id="f")
        assert site.post(path, {}, headers=headers).status == 403, path
    assert site.get("/schedules/hourly-etl").json["entry"]["paused"] is False


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


def test_reading_never_changes_anything(site: Site, project: Project) -> None:
    def everything() -> object:
        with project.operator() as operator:
            client = operator.store.client
            return {key: client.dump(key) for key in sorted(client.keys())}

    before = everything()
    for method, path in _paths():
        if method == "GET":
            site.get(path)
    body = {"entry": "hourly-etl", "start": "2026-02-07T00:00Z", "end": "2026-02-07T05:00Z"}
    assert site.post("/backfill/preview", body).status == 200

    assert everything() == before


def test_responses_have_security_headers(site: Site) -> None:
    for path in ("/status", "/nowhere", "/openapi.json"):
        headers = site.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert headers["Content-Type"] == "application/json; charset=utf-8"
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
