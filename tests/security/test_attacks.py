"""Requests that try to take Flower down: each is bounded in time and memory, and others are served meanwhile.

Long error texts are in test_long_texts.py, poisoned records in test_poisoned_records.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from celery.schedules import crontab

from celery_catchup.operations import Operator
from celery_catchup.testing import FakeClock
from tests.integration.flowers import SCRIPT, Site, flower
from tests.integration.operating import Project
from tests.services import private_server

MINUTELY = {"task": "proj.etl", "schedule": crontab()}
NAMES = [f"entry-{number}" for number in range(300)]
RANGE = {"entry": "entry-0", "start": "1970-01-01T00:00Z", "end": "2026-02-07T00:00Z"}
WIDE = "/preview?window=29d&policy=all&slots=10000"
UNKNOWN = [f"00000000-0000-4000-8000-{number:012}" for number in range(1000)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A Flower with 300 entries that run each minute, after beat was down for a month; for all attacks."""
    clock = FakeClock("2026-01-07T09:05:00Z")
    with private_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "clock", clock)
        policies = {"*": {"window": "1h", "overlap_policy": "all"}}
        project = Project(server.url(), clock, dict.fromkeys(NAMES, MINUTELY), policies)
        project.tick()
        clock.set("2026-02-07T09:05:00Z")
        with flower(project.app) as site:
            site.get("/status")  # the configuration is read once
            yield site


@dataclass(frozen=True)
class Attack:
    """Send requests; their statuses, and what they may cost: seconds of processor time, and megabytes."""

    send: Callable[[Site], list[int]]
    statuses: set[int]
    seconds: float = 3.0
    megabytes: int = 60


def get(path: str, **headers: str) -> Callable[[Site], list[int]]:
    return lambda site: [site.get(path, headers={**SCRIPT, **headers}).status]


def post(path: str, body: object) -> Callable[[Site], list[int]]:
    return lambda site: [site.post(path, body).status]


def several(number: int, path: str) -> Callable[[Site], list[int]]:
    def send(site: Site) -> list[int]:
        with ThreadPoolExecutor(number) as threads:
            return [answer.status for answer in threads.map(site.get, [path] * number)]

    return send


ATTACKS: dict[str, Attack] = {
    "a preview of everything": Attack(get(WIDE), {400}),
    "a large preview": Attack(get(f"{WIDE}&entry=entry-0"), {200}, 10, 150),
    "many previews at once": Attack(
        several(20, "/preview?window=2d&policy=all&entry=entry-0"), {200, 429}, 20, 150
    ),
    "a preview from another port": Attack(get(WIDE, **{"Sec-Fetch-Site": "same-site"}), {403}, 0.5),
    "a preview of far ahead": Attack(get("/preview?at=2026-05-01&window=300d"), {400}),
    "a backfill of every minute since 1970": Attack(post("/backfills", RANGE), {400}),
    "a preview of that backfill": Attack(post("/backfills/preview", RANGE), {400}),
    "60,000 unknown members": Attack(
        post("/runs/replay", json.dumps({f"x{number}": 0 for number in range(60_000)}).encode()), {400}
    ),
    "90,000 run ids": Attack(post("/runs/replay", json.dumps({"runIds": ["x"] * 90_000}).encode()), {400}),
    "a body of 50 megabytes": Attack(post("/runs/replay", b" " * 50_000_000), {413}, 3, 120),
    "a deep body": Attack(post("/runs/replay", b"[" * 1_000_000), {400}),
    "a number of 900,000 digits": Attack(
        post("/backfills", b'{"maxActive": ' + b"9" * 900_000 + b"}"), {400}
    ),
    "a form of 20,000 fields": Attack(
        lambda site: [
            site.post(
                "/runs/replay",
                b"a=1&" * 20_000,
                headers={**SCRIPT, "Content-Type": "application/x-www-form-urlencoded"},
            ).status
        ],
        {415},
    ),
    "6,000 parameters": Attack(get("/runs?" + "&".join(f"p{number}=" for number in range(6_000))), {400}),
    "1,000 runs that do not exist": Attack(post("/runs/replay", {"runIds": UNKNOWN}), {200}),
    "all entries paused and resumed": Attack(
        lambda site: [
            site.post(f"/schedules/{verb}", {"entries": NAMES}).status for verb in ("pause", "resume")
        ],
        {200},
        6,
    ),
    "the longest timeline": Attack(get("/timeline?since=8000h&limit=1000&most=2000"), {200}, 12, 150),
    "all skipped slots": Attack(get("/skipped?limit=1000"), {200}),
    "far pages": Attack(get("/skipped?limit=1000&cursor=999999999999"), {200}),
    "many streams": Attack(several(30, "/events?seconds=1"), {200}, 3),
}  # fmt: skip


def memory() -> int:
    """Return the largest memory of this process since the last `reset_memory`, in megabytes."""
    text = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmHWM"))) // 1024


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_bounded_and_others_are_served_meanwhile(site: Site, attack: Attack) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # forget the largest memory so far
    before, begun, waits, done = memory(), time.process_time(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            started = time.monotonic()
            assert site.ask("/healthcheck").status == 200
            waits.append(time.monotonic() - started)

    watcher = threading.Thread(target=watch)
    watcher.start()
    statuses = attack.send(site)
    done.set()
    watcher.join()

    assert set(statuses) <= attack.statuses
    assert statuses
    assert time.process_time() - begun < attack.seconds
    assert memory() - before < attack.megabytes
    assert max(waits) < 1.5  # seconds, beside other tests; a loop that parsed a body stood still for longer
