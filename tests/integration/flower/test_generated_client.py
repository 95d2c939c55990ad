"""A client that openapi-python-client generates from the served document operates a schedule."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from celery_catchup.flower.api import ENDPOINTS
from celery_catchup.flower.api.endpoint import ROOT
from celery_catchup.model import RunState
from celery_catchup.testing import FakeClock
from tests.integration.flowers import PASSWORD, USER, flower
from tests.integration.operating import ALL, HOURLY, Project

PACKAGE = "generated_catchup_client"


@pytest.fixture
def project(redis_url: str, desk_clock: FakeClock) -> Project:
    """Beat was down from 09:05 to 12:02; the first slot failed, the second was executed."""
    project = Project(redis_url, desk_clock, {"hourly-etl": HOURLY, "plain": HOURLY}, {"hourly-etl": ALL})
    project.tick()
    desk_clock.set("2026-02-07T12:02:00Z")
    project.tick()
    project.execute("hourly-etl", state=RunState.FAILED, error="KeyError", letter={"type": "KeyError"})
    project.execute("hourly-etl")
    return project


@pytest.fixture
def api(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The functions and models of the generated package; each function has its client already."""
    with flower(project.app) as site:
        document = tmp_path / "openapi.json"
        document.write_bytes(site.get("/openapi.json").body)
        made = subprocess.run(
            [
                *(str(Path(sys.executable).parent / "openapi-python-client"), "generate", "--meta", "none"),
                *("--path", str(document), "--output-path", str(tmp_path / PACKAGE), "--fail-on-warning"),
            ],
            env={"PATH": str(Path(sys.executable).parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        monkeypatch.syspath_prepend(str(tmp_path))
        try:
            package = importlib.import_module(PACKAGE)
            client = package.AuthenticatedClient(
                base_url=f"http://127.0.0.1:{site.port}{ROOT}",
                token=b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
                prefix="Basic",
            )
            yield SimpleNamespace(
                client=client,
                models=importlib.import_module(f"{PACKAGE}.models"),
                operations={path.stem for path in (tmp_path / PACKAGE / "api" / "default").glob("[a-z]*.py")},
            )
            client.get_httpx_client().close()
        finally:
            for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
                del sys.modules[name]


def call(api: SimpleNamespace, name: str, *path: Any, **given: Any) -> Any:
    """Call an operation; return what its response was parsed to."""
    operation = importlib.import_module(f"{PACKAGE}.api.default.{name}")
    answer = operation.sync_detailed(*path, client=api.client, **given)
    assert answer.parsed is not None, answer
    return answer.parsed


@pytest.mark.slow
def test_a_generated_client_operates_a_schedule_without_a_written_line(
    api: SimpleNamespace, project: Project
) -> None:
    models = api.models
    assert len(api.operations) == len(ENDPOINTS)

    # look
    assert call(api, "get_status").scheduler == models.Health.STANDING_BY
    assert [row.name for row in call(api, "list_schedules").items] == ["hourly-etl", "plain"]
    first = call(api, "list_runs", limit=2)
    second = call(api, "list_runs", limit=2, cursor=first.next_)
    assert len(first.items) + len(second.items) == 3
    assert call(api, "get_run", first.items[0].run_id).run.entry == "hourly-etl"
    assert call(api, "get_schedule", "unknown").code == models.ErrorCode.UNKNOWN_ENTRY

    # preview and backfill
    previewed = call(api, "preview_catchup", entry=["hourly-etl"], window="6h")
    assert previewed.items[0].entry == "hourly-etl"
    span = {
        "entry": "hourly-etl",
        "start": datetime(2026, 2, 7, tzinfo=UTC),
        "end": datetime(2026, 2, 7, 5, tzinfo=UTC),
    }
    assert call(api, "preview_backfill", body=models.PreviewBackfillBody(**span)).dispatched == 6
    made = call(
        api, "create_backfill", body=models.CreateBackfillBody(**span, max_active=2), idempotency_key="once"
    )
    again = call(
        api, "create_backfill", body=models.CreateBackfillBody(**span, max_active=2), idempotency_key="once"
    )
    assert made.id == again.id
    project.tick()
    assert len(call(api, "list_runs", backfill=made.id).items) == 6
    assert call(api, "cancel_backfill", made.id, body=models.CancelBackfillBody()).state == "cancelled"

    # pause, resume, and watch it
    with ThreadPoolExecutor(1) as threads:
        watching = threads.submit(call, api, "watch_events", most=1, seconds=20)
        while not watching.done():
            call(api, "pause_schedule", "hourly-etl", body=models.PauseScheduleBody(reason="migration"))
            resumed = call(api, "resume_schedule", "hourly-etl", body=models.ResumeScheduleBody())
            assert resumed.changed is True
        assert "schedules" in json.loads(watching.result().split("event: changed\ndata: ")[1])["changed"]
    outcomes = call(
        api, "pause_schedules", body=models.PauseSchedulesBody(entries=["hourly-etl", "plain", "?"])
    )
    assert [one.outcome for one in outcomes.items] == ["paused", "refused", "unknown"]

    # replay and discard
    dead = call(api, "list_dead_letters").items[0].run.run_id
    tried = call(api, "discard_run", dead, body=models.DiscardRunBody(dry_run=True))
    assert tried.outcome == models.Outcome.DRY_RUN
    assert call(api, "replay_run", dead, body=models.ReplayRunBody()).outcome == "replayed"
    project.execute("hourly-etl", state=RunState.FAILED, error="KeyError", letter={"type": "KeyError"})
    others = [one.run.run_id for one in call(api, "list_dead_letters").items]
    discarded = call(api, "discard_runs", body=models.DiscardRunsBody(run_ids=others[:1]))
    assert [one.outcome for one in discarded.items] == ["discarded"]
    assert call(api, "start_run", body=models.StartRunBody(entry="hourly-etl")).run.trigger_type == "manual"
