"""Which workers consume which queues, and which of them have the plugin: asked of real processes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from celery_catchup.beat import worker_inspection
from celery_catchup.beat.worker_inspection import WorkerInspection, ask_workers
from celery_catchup.events import Event, Events, MixedFleet
from celery_catchup.store import Store, Workers
from tests.integration.workers import NAMESPACE, Site, Worker, until

PLAIN = {"CLAIMS_PLAIN": "1"}
HOUR = 3_600_000
NOW = 1_800_000_000_000


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


@pytest.fixture
def workers(site: Site) -> Workers:
    return Workers(Store(site.store, NAMESPACE), now_ms=NOW)


def test_a_worker_with_the_plugin_says_which_queues_it_consumes_and_that_is_remembered(site: Site) -> None:
    workers = Workers(Store(site.store, NAMESPACE))
    with Worker(site, task_default_queue="other") as worker:
        until(lambda: workers.presence().ever_claimed("other"))
        worker.process.terminate()
        worker.process.wait(timeout=20)

    assert workers.seen_since(0) == []  # it has left
    assert set(workers.presence().plugin) == {"other"}


def test_the_leader_learns_from_the_workers_themselves_who_lacks_the_plugin(site: Site) -> None:
    heard: list[Event] = []
    workers = Workers(Store(site.store, NAMESPACE))
    inspection = WorkerInspection(site.app, workers, Events(heard.append), needed=lambda: True)
    with Worker(site, name="with"), Worker(site, name="without", env=PLAIN):
        until(lambda: workers.presence().ever_claimed("celery"))
        answers = until(lambda: (found := ask_workers(site.app)) and len(found) == 2 and found)
        inspection.presence()  # a run waits: ask at once

        def told() -> bool:
            inspection.poll(int(time.time() * 1000))
            return bool(heard)

        until(told)

    assert sorted(name.partition("@")[0] for name in answers) == ["with", "without"]
    (event,) = heard
    assert isinstance(event, MixedFleet)
    assert event.queue == "celery"
    assert [name.partition("@")[0] for name in event.workers] == ["without"]


def test_a_mixed_queue_is_reported_at_once_and_every_hour_while_it_lasts(
    site: Site, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Event] = []
    inspection = WorkerInspection(site.app, workers, Events(heard.append), needed=lambda: True)
    workers.record_alive("celery@with", ["celery"])

    for minutes in range(0, 150, 5):
        inspection._answers = {"celery@with": ["celery"], "celery@without": ["celery"]}
        inspection.poll(NOW + minutes * 60_000)

    assert heard == [MixedFleet("celery", ("celery@without",))] * 3


def test_a_worker_that_got_the_plugin_is_reported_no_more(site: Site, workers: Workers) -> None:
    workers.record_alive("celery@first", ["celery"])
    workers.note_consumers({"celery@second": ["celery"]}, now=NOW)
    before = workers.presence().mixed_since(NOW - 1000)

    workers.record_alive("celery@second", ["celery"])
    workers.note_consumers({"celery@second": ["celery"]}, now=NOW + 1000)

    assert before == {"celery": ["celery@second"]}
    assert workers.presence().mixed_since(0) == {}


def test_workers_of_another_queue_may_lack_the_plugin(site: Site, workers: Workers) -> None:
    workers.record_alive("celery@with", ["celery"])
    workers.note_consumers({"celery@other": ["images"]}, now=NOW)

    assert workers.presence().mixed_since(0) == {}
    assert not workers.presence().ever_claimed("images")
    assert workers.presence().plain_since("images", NOW) == ["celery@other"]


def test_a_solo_worker_shows_that_it_is_alive_while_it_executes_a_task(site: Site) -> None:
    workers = Workers(Store(site.store, NAMESPACE))
    with Worker(site, pool="solo", catchup_run_lease_ttl="10s") as worker:  # it beats every 3.3 s
        until(lambda: workers.solo_alive() == {worker.name: ("celery",)})
        site.app.send_task("tests.projects.claims.work", kwargs={"seconds": 60})
        until(lambda: ask_workers(site.app, timeout=0.5) == {})
        seen = workers.seen_since(0) and site.store.zscore(workers._keys.workers, worker.name)

        until(lambda: site.store.zscore(workers._keys.workers, worker.name) > seen)

        assert ask_workers(site.app, timeout=0.5) == {}
        assert set(workers.solo_alive()) == {worker.name}
        worker.kill()

    workers.note_consumers({}, now=int(time.time() * 1000))
    assert workers.solo_alive() != {}  # for some seconds
    workers.leave(worker.name)
    assert workers.solo_alive() == {}


def test_what_is_remembered_of_workers_has_an_end(site: Site, workers: Workers) -> None:
    workers.record_alive("celery@with", ["celery", "old"])
    workers.note_consumers({"celery@other": ["images"]}, now=NOW)

    workers.note_consumers({}, now=NOW + 25 * HOUR)
    after_a_day = workers.presence()
    workers.note_consumers({}, now=NOW + 91 * 24 * HOUR)

    assert (set(after_a_day.plugin), dict(after_a_day.plain)) == ({"celery", "old"}, {})
    assert workers.presence().plugin == {}


def test_a_broker_that_cannot_be_asked_costs_nothing(
    site: Site, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    app: Any = SimpleNamespace(connection_for_write=lambda: 1 / 0)

    with caplog.at_level(logging.INFO):
        assert ask_workers(app) is None
    assert caplog.records == []


def test_no_worker_with_the_plugin_is_a_warning_when_a_policy_needs_one(
    site: Site, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    for needed in (True, False):
        inspection = WorkerInspection(site.app, workers, Events(), needed=partial(bool, needed))
        inspection._answers = {}
        inspection.poll(NOW)

    assert [record.getMessage()[:30] for record in caplog.records] == ['msg="No worker has the plugin"'[:30]]


def test_workers_are_asked_outside_the_tick(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def slow(app: Any) -> dict[str, list[str]]:
        asked.append(time.monotonic())
        time.sleep(0.3)
        return {}

    monkeypatch.setattr(worker_inspection, "ask_workers", slow)
    workers = Workers(Store(site.store, NAMESPACE))
    inspection = WorkerInspection(site.app, workers, Events(), needed=lambda: False)
    inspection.presence()

    begun = time.monotonic()
    for _ in range(5):
        inspection.poll(NOW)
    until(lambda: asked)

    assert time.monotonic() - begun < 0.25
    assert len(asked) == 1
    until(lambda: inspection._thread is not None and not inspection._thread.is_alive())


def test_before_the_workers_were_asked_nothing_is_known_of_those_without_the_plugin(
    site: Site, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_inspection, "ask_workers", lambda app: {"celery@without": ["celery"]})
    inspection = WorkerInspection(site.app, workers, Events(), needed=lambda: False)
    workers.record_alive("celery@with", ["celery"])
    before = inspection.presence()

    inspection._ask()
    inspection.poll(NOW)
    inspection._thread = None
    after = inspection.presence()

    assert (before.asked, after.asked) == (False, True)
    assert after.plain_since("celery", NOW + 24 * HOUR) == ["celery@without"]  # the server's clock has jumped
