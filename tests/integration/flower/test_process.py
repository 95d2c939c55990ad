"""Flower as people start it: real processes, the oldest supported, and one that the tab does not fit."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import services
from tests.integration.flowers import PASSWORD, SCRIPT, USER, Site

ROOT = Path(__file__).resolve().parents[3]
OLD = ROOT / ".venv-flower-2.0"
STARTS_WITHIN = 60.0  # seconds; two on an idle machine

PROJECT = """
from celery import Celery
from celery.schedules import crontab

app = Celery("proj", broker={url!r})
app.conf.beat_schedule = {{"hourly-etl": {{"task": "proj.etl", "schedule": crontab(minute=0)}}}}
app.conf.catchup_entries = {{"hourly-etl": "6h"}}
"""


@contextmanager
def started(python: Path, folder: Path, *words: str, headers: dict[str, str] = SCRIPT) -> Iterator[Site]:
    """``celery …`` in a folder that has a project, until it serves; ended with its tests."""
    port = _free_port()
    log = folder / "flower.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(python), "-m", "celery", *words, "--address=127.0.0.1", f"--port={port}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": ""},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(port, process, log)
        yield Site(port, headers=headers)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            Site(port).ask("/healthcheck")
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path, redis_url: str) -> Path:
    (tmp_path / "proj.py").write_text(PROJECT.format(url=redis_url))
    shutil.copy(ROOT / "examples" / "flowerconfig.py", tmp_path)
    return tmp_path


def check_tab_and_api(site: Site) -> None:
    page = site.ask("/catchup")
    assert page.status == 200
    assert "hourly-etl" in page.text
    assert ">Catch-up</a>" in site.ask("/workers").text
    assert site.ask("/catchup", headers={}).status == 401
    assert site.get("/status", headers={}).status == 401
    assert site.get("/status").json["scheduler"] == "never started"
    assert site.post("/schedules/hourly-etl/pause").json["changed"] is True
    assert site.post("/schedules/hourly-etl/pause", headers={}).status in (401, 403)
    unsigned = {"Authorization": SCRIPT["Authorization"]}
    assert site.post("/schedules/hourly-etl/pause", headers=unsigned).status == 403
    assert site.get("/schedules/hourly-etl").json["entry"]["paused"] is True
    assert site.get("/nowhere").status == 404


@pytest.mark.slow
def test_the_command_starts_flower_with_the_tab_and_passes_its_options_on(folder: Path) -> None:
    words = ("-A", "proj", "catchup", "flower", f"--basic-auth={USER}:{PASSWORD}", "--conf=none.py")
    (folder / "none.py").write_text("")

    with started(Path(sys.executable), folder, *words) as site:
        check_tab_and_api(site)


@pytest.mark.slow
def test_one_import_in_flowerconfig_mounts_the_tab_below_a_prefix(folder: Path) -> None:
    words = ("-A", "proj", "flower", f"--basic-auth={USER}:{PASSWORD}", "--url-prefix=watch")

    with started(Path(sys.executable), folder, *words) as site:
        check_tab_and_api(Site(site.port, "/watch", SCRIPT))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_tab_works_in_flower_2_0_1(folder: Path) -> None:
    python = _old_flower()

    with started(python, folder, "-A", "proj", "flower", f"--basic-auth={USER}:{PASSWORD}") as site:
        check_tab_and_api(site)


def _old_flower() -> Path:
    """An environment with Flower 2.0.1 and what the package needs; made once, then kept."""
    python, ready = OLD / "bin" / "python", OLD / "ready"
    if not ready.exists():
        needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        venv.create(OLD, with_pip=True, clear=True)
        made = subprocess.run(
            [str(python), "-m", "pip", "install", "-q", "flower==2.0.1", *needed],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            services.missing("flower-2.0", f"Flower 2.0.1 cannot be installed: {made.stderr.strip()[-200:]}")
        ready.touch()
    return python


# -- a Flower that it does not fit -----------------------------------------------------------

SABOTAGED = """
import asyncio, logging, sys
import flower.api, flower.app, flower.urls, flower.views
from flower.options import default_options

logging.basicConfig(level=logging.ERROR)
{sabotage}
import celery_catchup.flower
from tornado.httpclient import AsyncHTTPClient
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

async def main():
    site = flower.app.Flower(options=default_options, **SETTINGS)
    sockets = bind_sockets(0, "127.0.0.1")
    HTTPServer(site).add_sockets(sockets)
    port = sockets[0].getsockname()[1]
    for path in ("/workers", "/catchup", "/api/catchup/v1/status"):
        answer = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{{port}}{{path}}", raise_error=False)
        print(path, answer.code, "does not fit" in (answer.body or b"").decode())

asyncio.run(main())
"""

KEEP = "SETTINGS = dict(flower.urls.settings)"


@pytest.mark.parametrize(
    ("sabotage", "has_page"),
    [
        ("del flower.views.BaseHandler", True),
        ("del flower.api.BaseApiHandler", True),
        ("del flower.urls.settings", True),
        ("flower.urls.handlers.pop()", False),
        ("import tornado.web; del tornado.web.authenticated", True),
    ],
)
def test_an_incompatible_flower_starts_without_the_tab_and_logs_it(sabotage: str, has_page: bool) -> None:
    script = SABOTAGED.format(sabotage=f"{KEEP}\n{sabotage}")

    run = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert run.returncode == 0, run.stderr
    assert "the Catch-up tab does not fit Flower" in run.stderr
    assert run.stdout.splitlines() == [
        "/workers 200 False",
        "/catchup 501 True" if has_page else "/catchup 404 False",
        "/api/catchup/v1/status 404 False",
    ]
