"""Bad surroundings of real processes: full disks, closed pipes, a bare locale, tasks that nobody knows."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_catchup.store import Evidence, Leadership, Recovered, Recovery, Store, Workers, connect
from celery_catchup.testing import FakeClock
from tests.acceptance.conftest import nursery, site
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import celery, until
from tests.acceptance.sites import SHIFTED, Site
from tests.integration import workers

__all__ = ["Nursery", "nursery", "site"]

POLICY = {"window": "1h", "overlap_policy": "allow"}


def every_second(site: Site) -> None:
    site.declare({"ticking": {"$every": 1}}, catchup_entries={"ticking": POLICY})


@contextlib.contextmanager
def a_beat(site: Site, *arguments: str, **streams: object) -> Iterator[subprocess.Popen[bytes]]:
    """A beat whose streams are the test's own."""
    command = [sys.executable, "-m", *celery("beat", "-S", SHIFTED, *arguments)]
    with subprocess.Popen(
        command, cwd=site.folder, env={**os.environ, **site.environ()}, stdin=subprocess.DEVNULL, **streams
    ) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def test_a_log_on_a_full_disk_stops_no_beat(site: Site) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    every_second(site)
    with a_beat(site, "-f", "/dev/full", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as beat:
        site.until_sent(2)

        assert beat.poll() is None


def test_a_reader_of_its_output_that_goes_away_stops_no_beat(site: Site) -> None:
    every_second(site)
    with a_beat(site, "-l", "DEBUG", stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as beat:
        site.until_sent(1)
        assert beat.stdout is not None
        beat.stdout.close()
        before = int(site.redis.llen("celery"))
        until(lambda: site.redis.llen("celery") >= before + 2, what="two more messages")

        assert beat.poll() is None


def test_a_log_file_that_cannot_be_opened_is_named_before_anything_starts(site: Site) -> None:
    every_second(site)
    log = site.folder / "no such folder" / "beat.log"
    with a_beat(site, "-f", str(log), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as beat:
        said = beat.communicate(timeout=30)[0].decode()

    assert beat.returncode != 0
    assert str(log) in said
    assert site.redis.llen("celery") == 0


def test_a_bare_locale_and_no_zones_of_the_system_are_enough(site: Site) -> None:
    name = "bericht-für-größe"
    site.declare({name: {"$every": 1}}, catchup_entries={name: {**POLICY, "timezone": "Europe/Berlin"}})
    bare = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONTZPATH": ""}
    beat = site.start_celery("beat", "-S", SHIFTED, PYTHONIOENCODING="ascii:backslashreplace", **bare)
    (message, *_) = site.until_sent(1)

    assert message.entry == name
    assert beat.alive
    assert "Traceback" not in beat.text()


def test_a_run_of_a_task_that_no_worker_knows_stays_open_and_is_dead_after_its_tries(
    redis_url: str, tmp_path: Path
) -> None:
    here = workers.Site(redis_url, tmp_path)
    client = connect(redis_url)
    store = Store(client, workers.NAMESPACE)
    leadership = Leadership(store, clock=FakeClock(), ttl_ms=10_000)
    leadership.lead(now=0)
    recovery = Recovery(store)
    run_id = here.send_run("no_such_task")
    with workers.Worker(here):
        told = until(lambda: here.run(run_id).get("error"), what="a run that no worker knows")
    assert told == f"NotRegistered: {workers.PROJECT}.no_such_task"
    assert here.states(run_id) == ["queued"]

    outcomes = []
    for day in range(1, 10):
        recovery.now_ms = int(time.time() * 1000) + day * 86_400_000
        sends = here.run(run_id)["sends"]
        outcomes.append(
            recovery.recover(leadership, run_id, lane="hourly-etl", evidence=Evidence.LOST, sends=sends)
        )
        if outcomes[-1] is Recovered.DEAD:
            break
        Workers(store).retry(run_id, owner="", delay_ms=0, error=told)  # as the worker did above
    assert outcomes == [Recovered.SENT] * 3 + [Recovered.DEAD]
    assert here.run(run_id)["error"] == told
    client.close()
    here.close()
