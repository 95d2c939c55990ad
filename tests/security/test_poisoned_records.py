"""Records that somebody with access to the server has poisoned: each is one row that says so, on every page
and in every answer; nothing else suffers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from celery_catchup.model import RunState
from celery_catchup.store.keys import Keys
from celery_catchup.testing import FakeClock
from tests.integration.flowers import Site, flower
from tests.integration.operating import ALL, HOURLY, Project

DEEP = "[" * 100_000
HUGE = 10**30
PATHS = (
    *("/catchup", "/catchup/runs", "/catchup/dead", "/catchup/backfills", "/catchup/entry?entry=hourly-etl"),
    *(
        f"/api/catchup/v1/{path}"
        for path in (
            *(
                "status",
                "overview",
                "schedules",
                "schedules/hourly-etl",
                "runs",
                "runs?state=dead",
                "skipped",
            ),
            *("runs?entry=hourly-etl", "preview", "timeline", "outages", "watermarks", "dead-letters"),
            "backfills",
        )
    ),
    "/metrics",
)


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """A dead run, a run with notes, one in flight, skipped slots, a paused entry and a backfill."""
    schedule = {"hourly-etl": HOURLY, "off": HOURLY}
    project = Project(redis_url, desk_clock, schedule, {"hourly-etl": ALL, "off": False})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("hourly-etl", state=RunState.FAILED, error="KeyError", letter={"type": "KeyError"})
    project.execute("hourly-etl")
    project.catchup(
        "backfill", "hourly-etl", "--start", "2026-02-07T00:00Z", "--end", "2026-02-07T03:00Z", "-f"
    )
    project.catchup("pause", "off")
    return project


@pytest.fixture
def site(project: Project) -> Iterator[Site]:
    with flower(project.app) as site:
        yield site


def changed(**fields: Any) -> Callable[[bytes], str]:
    return lambda text: json.dumps({**json.loads(text), **fields})


RECORDS: dict[str, Callable[[bytes], str]] = {
    "a slot far away": changed(slot=HUGE),
    "a slot that is not a number": changed(slot=float("nan")),
    "an endless slot": changed(slot=float("inf")),
    "an attempt as text": changed(attempt="NaN"),
    "an attempt that is not a number": changed(attempt=float("nan")),
    "deep nesting": lambda _: DEEP,
    "deep nesting inside": lambda text: text.decode()[:-1] + ', "past": ' + DEEP + "]" * len(DEEP) + "}",
    "not JSON": lambda _: "poison",
    "times far away": changed(
        created=HUGE, queued=HUGE, started=-HUGE, finished=float("inf"), heartbeat=HUGE
    ),
    "texts that are none": changed(error=[1], worker={"a": 1}, by=5, task=[], tenant=3, lane=7),
    "numbers that are none": changed(replays="many", attempt=[], lease_ms="x"),
    "a decision that is none": changed(decided={"at": "never", "retry_delay_ms": HUGE}, failures=1),
    "attempts that are none": changed(past=[{}, 5, {"attempt": "x", "outcome": []}], attempt_started=HUGE),
    "a checkpoint that is none": changed(checkpoint={"at": HUGE}),
    "an unknown trigger": changed(trigger="poison"),
    "an unhashable trigger": changed(trigger=[{}]),
}


def test_a_run_that_cannot_be_read_is_one_row(site: Site, project: Project) -> None:
    with project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        before = site.get("/runs").json["items"]
        (dead,) = (run_id.decode() for run_id in client.zrange(keys.dead, 0, -1))
        succeeded = site.get("/runs?state=succeeded").json["items"][0]["runId"]
        stored = {run_id: client.hget(keys.ledger, run_id) for run_id in (dead, succeeded)}
        paths = [
            *("/catchup", "/catchup/runs", "/catchup/dead", "/catchup/entry?entry=hourly-etl"),
            *(f"/api/catchup/v1/{path}" for path in ("schedules/hourly-etl", "runs?state=dead", "timeline")),
            *(f"{page}/{run_id}" for run_id in stored for page in ("/catchup/run", "/api/catchup/v1/runs")),
        ]
        for name, poison in RECORDS.items():
            for run_id, text in stored.items():
                client.hset(keys.ledger, run_id, poison(text))

            answers = {path: site.ask(path).status for path in paths}
            items = site.get("/runs").json["items"]
            letters = site.get("/dead-letters").json["items"]
            refused = site.post("/runs/replay", {"runIds": [succeeded]}).json["items"][0]

            assert set(answers.values()) == {200}, (name, answers)
            assert [one["runId"] for one in items] == [one["runId"] for one in before], name
            assert [one["run"]["runId"] for one in letters] == [dead], name
            assert refused["outcome"] == "refused", name
            (row,) = (one for one in items if one["runId"] == succeeded)
            assert row["state"] == "succeeded" or "cannot be read" in row["error"]


def everything(keys: Keys) -> dict[str, tuple[str, str | None, str]]:
    """Every other place, by name: the key, the field of a hash, and the poison."""
    return {
        "epoch": (keys.meta, "epoch", "garbage"),
        "watermark": (keys.scheduler, "watermark", str(HUGE)),
        "last tick": (keys.scheduler, "last_tick", "9" * 400),
        "undecided": (keys.scheduler, "undecided", str(HUGE)),
        "catch-up": (keys.scheduler, "catchup_running", "1"),
        "progress": (keys.scheduler, "catchup_total", "many"),
        "last catch-up": (keys.scheduler, "last_catchup_first", str(HUGE)),
        "leader": (keys.leader, "epoch", str(HUGE)),
        "pause": (keys.paused, "off", DEEP),
        "pause time": (keys.paused, "off", json.dumps({"paused": True, "at": HUGE, "reason": 5})),
        "decided": (keys.decided, "hourly-etl", str(HUGE)),
        "first seen": (keys.first_seen, "hourly-etl", str(HUGE)),
        "failing": (keys.failing, "hourly-etl", DEEP),
        "failing time": (keys.failing, "off", json.dumps({"entry": "off", "reason": [], "since": HUGE})),
        "backfill": (keys.backfills, "", DEEP),
        "backfill time": (keys.backfills, "", json.dumps({"id": "x", "start": HUGE})),
        "backfill state": (keys.backfills, "?", "poison"),
        "hours": (keys.hours, "poison", DEEP),
        "counts": (keys.hours, "ever:missed", "many"),
        "letter": (keys.letters, "?", DEEP),
        "letter type": (keys.letters, "?", json.dumps({"type": [1], "category": [], "traceback": 5})),
        "notes": (keys.notes, "?", DEEP),
        "note": (keys.notes, "?", json.dumps({"checkpoints": {"a": "poison"}, "progress": 5})),
        "templates": (keys.templates, "?", DEEP),
        "outage": (keys.outages, None, f"{HUGE} {HUGE}"),
        "skip": (keys.skips("off"), None, DEEP),
        "skip time": (keys.skips("off"), None, json.dumps({"first": HUGE, "last": HUGE, "schedule": 0})),
        "standby": (keys.standbys, "beat", f"{HUGE} {HUGE}"),
    }


@pytest.mark.parametrize("part", range(3))
def test_nothing_else_that_is_poisoned_breaks_a_page_or_an_answer(
    site: Site, project: Project, part: int
) -> None:
    with project.operator() as operator:
        client, keys = operator.store.client, operator.store.keys
        run = client.zrange(keys.runs, 0, 0)[0].decode()
        for key, field, poison in list(everything(keys).values())[part::3]:
            if field is None:
                client.zadd(key, {poison: 1_770_460_000_000.0})
            else:
                fields = list(client.hkeys(key)) or [run] if field == "?" else [field or "x"]
                client.hset(key, mapping=dict.fromkeys(fields, poison))

    paths = [*PATHS, f"/catchup/run/{run}", f"/api/catchup/v1/runs/{run}"]
    assert [path for path in paths if site.ask(path).status != 200] == []
