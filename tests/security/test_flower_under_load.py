"""Flower with 2,000 entries under 20 clients that do their worst within the limits."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery.schedules import crontab

from celery_catchup.testing import FakeClock
from tests.integration.flower.test_process import started
from tests.integration.flowers import PASSWORD, USER, Site
from tests.integration.operating import Project

ENTRIES, CLIENTS, SECONDS = 2000, 20, 60
NAMES = [f"entry-{number}" for number in range(ENTRIES)]
PROJECT = f"""
from celery import Celery
from celery.schedules import crontab

app = Celery("proj", broker={{url!r}})
minutely = {{{{"task": "proj.etl", "schedule": crontab()}}}}
app.conf.beat_schedule = {{{{f"entry-{{{{number}}}}": minutely for number in range({ENTRIES})}}}}
app.conf.catchup_entries = {{{{"*": {{{{"window": "6h", "overlap_policy": "all"}}}}}}}}
"""
API = "/api/catchup/v1"
GETS = (
    *("/catchup", "/catchup/runs", "/catchup/dead", "/catchup/backfills", "/catchup/entry?entry=entry-7"),
    *(f"{API}/{path}" for path in ("status", "overview", "schedules?limit=1000", "watermarks?limit=1000")),
    *(
        f"{API}/{path}"
        for path in ("preview?slots=10000", "preview?limit=1000&slots=10000", "runs?limit=1000")
    ),
    f"{API}/preview?window=60d&policy=all&slots=10000&entry=entry-1",
    f"{API}/timeline?since=168h&limit=200&most=2000",
    *(f"{API}/skipped?limit=1000", f"{API}/events?seconds=2", f"{API}/openapi.json", "/metrics"),
)
LONG = {"entry": "entry-3", "start": "2026-01-01T00:00Z", "end": "2026-03-10T00:00Z", "slots": 10_000}
POSTS: tuple[tuple[str, object], ...] = (
    ("/backfills/preview", LONG),
    ("/schedules/pause", {"entries": NAMES[:1000], "dryRun": True}),
    ("/schedules/resume", {"entries": NAMES[:1000], "dryRun": True}),
    ("/runs/replay", {"runIds": [f"00000000-0000-4000-8000-{number:012}" for number in range(1000)]}),
    ("/runs/replay", json.dumps({f"x{number}": 0 for number in range(60_000)}).encode()),
    ("/runs/replay", b" " * 20_000_000),
)


def memory(pid: int) -> int:
    """Return the memory of a process, in megabytes."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) // 1024


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_healthcheck_and_memory_stay_within_bounds(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "proj.py").write_text(PROJECT.format(url=redis_url))
    (tmp_path / "flowerconfig.py").write_text("import celery_catchup.flower\n")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    minutely = {"task": "proj.etl", "schedule": crontab()}
    policies = {"*": {"window": "6h", "overlap_policy": "all"}}
    Project(redis_url, FakeClock(yesterday), dict.fromkeys(NAMES, minutely), policies).tick()
    waits: list[float] = []
    statuses: dict[int, int] = {}
    with started(
        Path(sys.executable), tmp_path, "-A", "proj", "flower", f"--basic-auth={USER}:{PASSWORD}"
    ) as site:
        for path in GETS[:5]:
            site.ask(path)
        pid = site_pid(site)
        before, largest, end = memory(pid), [0], time.monotonic() + SECONDS
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                begun = time.monotonic()
                assert site.ask("/healthcheck").status == 200
                waits.append(time.monotonic() - begun)
                largest[0] = max(largest[0], memory(pid))

        def attack(number: int) -> None:
            requests = itertools.cycle([*GETS, *POSTS])
            for request in itertools.islice(requests, 3 * number, None):
                if time.monotonic() > end:
                    return
                try:
                    answer = site.ask(request) if isinstance(request, str) else site.post(*request)
                    statuses[answer.status] = statuses.get(answer.status, 0) + 1
                except TimeoutError:
                    statuses[0] = statuses.get(0, 0) + 1

        watcher = threading.Thread(target=watch)
        watcher.start()
        with ThreadPoolExecutor(CLIENTS) as threads:
            list(threads.map(attack, range(CLIENTS)))
        done.set()
        watcher.join()

    ordered = sorted(waits)
    report = {
        "answers by status": statuses,
        "health checks": len(ordered),
        "median": round(ordered[len(ordered) // 2], 3),
        "p99": round(ordered[len(ordered) * 99 // 100], 3),
        "longest": round(ordered[-1], 3),
        "memory before": before,
        "memory grew by": largest[0] - before,
    }
    print(report)
    assert 500 not in statuses, report
    assert ordered[len(ordered) * 99 // 100] < 0.5, report
    assert largest[0] - before < 300, report


def site_pid(site: Site) -> int:
    """Find the process that listens on the site's port."""
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{site.port:04X}") and line.split()[3] == "0A"
    }
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if any(str(link.readlink()) == f"socket:[{inode}]" for inode in inodes):
                return int(link.parts[2])
        except OSError:
            continue
    raise AssertionError("nobody listens there")
