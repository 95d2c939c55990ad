"""Notifications of real beats at a real HTTP receiver: an outage, failing receivers, a killed leader."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import ROOT, until
from tests.acceptance.sites import NAMESPACE, Site
from tests.integration.notifications.http_receivers import HttpReceiver, receiving

SECRET = "SeCrEt-of-the-tests-0123456789"
ENTRIES = {"etl": "0 * * * *", "report": "0 * * * *"}
POLICIES = {"etl": {"window": "1d", "overlap_policy": "all"}, "report": {"window": "90m"}}
FAST = {"catchup_poll_interval": "50ms", "catchup_lease_ttl": "2s"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def declare(site: Site, port: int, **more: Any) -> None:
    notify = [{"url": f"http://127.0.0.1:{port}/hook/SeCrEtPath", "secret": SECRET} | more]
    site.declare(ENTRIES, catchup_entries=POLICIES, catchup_notify=notify, **FAST)


def outage(site: Site) -> None:
    """A beat leads, is killed, and three hours pass."""
    site.set_clock("09:05:00")
    before = site.leader()
    site.until_a_tick_later()
    before.kill()
    site.forget_leader()
    site.set_clock("12:02:00")


def accepted(receiver: HttpReceiver) -> list[tuple[str, str]]:
    return sorted((one["kind"], str(one["entry"])) for one in receiver.accepted)


def test_an_outage_arrives_once_per_entry_after_failures_and_a_killed_leader(site: Site) -> None:
    port = free_port()
    declare(site, port, on=["missed", "not_recovered"])
    outage(site)
    expected = [("missed", "etl"), ("missed", "report"), ("not_recovered", "report")]

    first = site.leader()  # nothing listens there yet
    first.until_it_says("Notifications cannot be sent")
    until(lambda: site.redis.zcard(site.keys.notices_due) == 3, what="three notifications in the queue")
    first.kill()
    site.forget_leader()
    with receiving(500, "hang", port=port) as receiver:
        second = site.leader()
        until(lambda: len(receiver.messages) >= 3, what="messages after failures")
        receiver.release.set()
        until(lambda: accepted(receiver) == expected, what=f"{expected}", within=60)
        until(lambda: not site.redis.zcard(site.keys.notices_due), what="an empty queue")
        site.until_a_tick_later()
        second.kill()

    etl = next(one for one in receiver.accepted if one["entry"] == "etl")
    assert accepted(receiver) == expected
    assert len({one["id"] for one in receiver.accepted}) == 3
    assert (etl["namespace"], etl["details"]["slots"]) == (NAMESPACE, 3)
    assert all(one.headers["X-Catchup-Signature"].startswith("sha256=") for one in receiver.messages)
    assert "SeCrEt" not in first.text() + second.text()
    assert "SeCrEt" not in str(site.redis.hgetall(site.keys.notices)) + str(
        site.redis.hgetall(site.keys.told)
    )


def test_the_example_verifies_the_signature(site: Site, tmp_path: Path) -> None:
    port = free_port()
    declare(site, port, on=["missed"])
    outage(site)
    log = tmp_path / "receiver.log"
    environ = {**os.environ, "NOTIFY_SECRET": SECRET}
    example = ROOT / "examples" / "notification_receiver.py"
    with log.open("w") as out:
        server = subprocess.Popen([sys.executable, example, str(port)], env=environ, stdout=out)
    try:
        beat = site.leader()
        until(lambda: len(log.read_text().splitlines()) == 2, what="two lines of the receiver")
        beat.stop()
    finally:
        server.kill()
        server.wait()

    assert "missed etl etl missed 3 slots" in log.read_text()


@pytest.mark.soak
def test_a_receiver_that_hangs_does_not_delay_live_slots(site: Site) -> None:
    """The lateness of live runs, with and without a receiver that never answers."""

    def lateness(*answers: Any) -> list[float]:
        with receiving(*answers) as receiver:
            notify = [{"url": receiver.url}] if answers else []
            schedule = {f"every-{n}": {"$every": 1} for n in range(20)}
            policies = {name: {"window": "1h", "overlap_policy": "allow"} for name in schedule}
            broken = {"broken": {"window": "1d", "expect_within": "1s", "overlap_policy": "allow"}}
            site.declare(
                {**schedule, "broken": {"$every": 1}},
                catchup_entries=policies | broken,
                catchup_notify=notify,
                **FAST,
            )
            site.redis.flushall()
            beat = site.leader()
            time.sleep(30)
            beat.stop()
            assert bool(receiver.messages) == bool(answers)
        found = []
        for name in schedule:
            found += [run["created"] - run["slot"] for run in site.ledger(name)]
        return sorted(found)

    quiet, hanging = lateness(), lateness(*["hang"] * 1000)

    def p99(values: list[float]) -> float:
        return statistics.quantiles(values, n=100)[98]

    print(f"p99 without a receiver {p99(quiet):.1f} ms, with one that hangs {p99(hanging):.1f} ms")
    assert len(quiet) > 300
    assert p99(hanging) <= p99(quiet) + 5
