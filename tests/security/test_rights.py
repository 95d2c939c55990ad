"""The least that Redis users need, as SECURITY.md prints it, on a real server with a real worker."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from celery_catchup.flower.api import ENDPOINTS
from celery_catchup.store import Keys
from celery_catchup.testing import FakeClock
from tests.integration import workers
from tests.integration.flower.test_process import started
from tests.integration.flowers import PASSWORD, USER
from tests.integration.operating import Project
from tests.integration.servers import Server, a_scheduler, a_server

PAGE = Path(__file__).resolve().parents[2] / "SECURITY.md"
RULES = re.findall(r"^ACL SETUSER (\w+) (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
NINE, NOON = "2026-02-07T09:05:00Z", "2026-02-07T12:02:00Z"
TASK = f"{workers.PROJECT}.work"
FLOWER = f"""
from celery import Celery

app = Celery("proj", broker={{url!r}})
app.conf.beat_schedule = {{{{"hourly-etl": {{{{"task": "proj.etl", "schedule": "0 * * * *"}}}}}}}}
app.conf.catchup_entries = {{{{"hourly-etl": "6h"}}}}
app.conf.catchup_namespace = {workers.NAMESPACE!r}
"""
FORBIDDEN = [
    ("CONFIG", "GET", "*"),
    ("KEYS", "*"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SHUTDOWN", "NOSAVE"),
    ("DEBUG", "SLEEP", "0"),
    ("MONITOR",),
    ("SCRIPT", "FLUSH"),
    ("SCRIPT", "KILL"),
    ("ACL", "LIST"),
    ("SCAN", "0"),
    ("GET", "{catchup:other}:version"),
    ("HSET", "{catchup:other}:decided", "x", "1"),
    ("EVAL", "return redis.call('SET', 'victim', '1')", "0"),
]


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with a_server(tmp_path, kind=request.param) as running, running.admin() as admin:
        for user, rules in RULES:
            words = rules.replace("{catchup:proj}", Keys(workers.NAMESPACE).prefix).split()
            if request.param == "redis":  # 7.0, which does not know it
                words.remove("+client|setinfo")
            admin.execute_command("ACL", "SETUSER", user, *words)
        admin.execute_command("ACL", "LOG", "RESET")
        yield running


def pairs(flat: Any) -> Iterator[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def denials(admin: redis.Redis) -> list[tuple[str, str, str]]:
    def text(value: Any) -> str:
        return value.decode() if isinstance(value, bytes) else str(value)

    logged: Any = admin.execute_command("ACL", "LOG", "100")
    found = [
        {text(name): value for name, value in (one.items() if isinstance(one, dict) else pairs(one))}
        for one in logged
    ]
    return sorted({tuple(text(one[name]) for name in ("username", "reason", "object")) for one in found})


def test_three_users_with_these_rights_catch_up_and_operate_without_one_denial(
    server: Server, tmp_path: Path
) -> None:
    def url(user: str) -> str:
        return server.url(user=user, password="secret")

    clock = FakeClock(NINE)
    conf = {
        "beat_schedule": {"hourly-etl": {"task": TASK, "schedule": "0 * * * *"}},
        "catchup_entries": {"hourly-etl": {"window": "6h", "overlap_policy": "all"}},
        "catchup_namespace": workers.NAMESPACE,
    }
    folder = tmp_path / "site"
    folder.mkdir()
    site = workers.Site(server.url(), folder)
    with server.admin() as admin:
        with a_scheduler(url("beat"), clock, **conf) as scheduler:
            scheduler.tick()
        with workers.Worker(site, broker_url=url("worker"), catchup_redis_url=url("worker")):
            clock.set(NOON)
            with a_scheduler(url("beat"), clock, **conf) as scheduler:
                scheduler.tick()
                site.wait_for("end", 3)
                scheduler.tick()
        operator = Project(url("operator"), clock, conf["beat_schedule"], conf["catchup_entries"])
        operator.app.conf.catchup_namespace = workers.NAMESPACE
        for words in (
            ["status"], ["entries"], ["runs"], ["preview"], ["watermark", "show"], ["dlq", "list"],
            ["pause", "hourly-etl"], ["resume", "hourly-etl"], ["run", "hourly-etl"],
            ["backfill", "hourly-etl", "--start", "2026-02-07T10:00Z", "--end", "2026-02-07T11:00Z", "-f"],
        ):  # fmt: skip
            operator.catchup(*words)

        assert denials(admin) == []
    site.close()


@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_flower_with_its_rights_shows_and_changes_without_one_denial(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "flower"
    folder.mkdir()
    (folder / "flowerconfig.py").write_text("import celery_catchup.flower\n")
    (folder / "proj.py").write_text(FLOWER.format(url=server.url(user="flower", password="secret")))
    changes: dict[str, dict[str, object]] = {
        "/schedules/hourly-etl/pause": {},
        "/schedules/hourly-etl/resume": {},
        "/schedules/hourly-etl/watermark": {"at": "2026-02-07T00:00Z"},
        "/runs": {"entry": "hourly-etl"},
        "/backfills": {"entry": "hourly-etl", "start": "2026-02-07T00:00Z", "end": "2026-02-07T05:00Z"},
    }
    words = ("-A", "proj", "flower", f"--basic-auth={USER}:{PASSWORD}")
    with server.admin() as admin, started(Path(sys.executable), folder, *words) as site:
        reads = [one.path for one in ENDPOINTS if one.method == "GET" and not one.path_fields]
        pages = ("/workers?refresh=1", "/broker", "/metrics", "/catchup", "/catchup/entry?entry=hourly-etl")
        answers = [site.ask(page).status for page in pages]
        answers += [site.post(path, body).status for path, body in changes.items()]
        answers += [site.get(path.replace("/events", "/events?seconds=1")).status for path in reads]

        assert set(answers) <= {200, 201}
        assert denials(admin) == []


@pytest.mark.parametrize("user", [user for user, _ in RULES])
def test_everything_else_is_refused(server: Server, user: str) -> None:
    with redis.Redis.from_url(server.url(user=user, password="secret"), protocol=2) as client:
        for words in FORBIDDEN:
            with pytest.raises((NoPermissionError, ResponseError)):
                client.execute_command(*words)
    with server.admin() as admin:
        assert admin.exists("victim") == 0
        assert len(denials(admin)) >= len(FORBIDDEN) // 2
