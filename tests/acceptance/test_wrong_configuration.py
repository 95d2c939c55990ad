"""A wrong configuration never starts a beat: all mistakes at once on stderr, exit code 2, no traceback."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.sites import Site

EX_CONFIG = 2


def mistaken(site: Site, **settings: Any) -> None:
    site.declare(
        {"report": "0 6 * * *", "etl": "61 * * * *"},
        catchup_entries={
            "report": {"select": "newest", "windw": "6h"},
            "etl": {"window": "6x"},
            "nightly": "1d",
        },
        catchup_lease_ttl="1s",
        **settings,
    )


@pytest.mark.parametrize("arguments", [(), ("-q",)], ids=["with-banner", "quiet"])
def test_all_mistakes_are_shown_at_once_and_nothing_starts(site: Site, arguments: tuple[str, ...]) -> None:
    mistaken(site)

    beat = site.start_celery(*arguments, "beat", "-S", "celery_catchup.Scheduler")
    code = beat.wait()

    text = beat.text()
    assert code == EX_CONFIG
    assert "Traceback" not in text
    for words in (
        "catchup_entries.report.select: expected all, latest, span or false, got 'newest'",
        "catchup_entries.report.windw: unknown field; did you mean 'window'?",
        "catchup_entries.etl.window",
        "catchup_entries.nightly: no such entry in beat_schedule",
        "beat_schedule.etl.schedule",
        "catchup_lease_ttl",
    ):
        assert words in text
    assert site.redis.keys() == []


def test_a_broker_that_is_not_redis_needs_to_be_told_where_state_is_kept(site: Site) -> None:
    site.broker = "amqp://guest:guest@127.0.0.1:1//"
    site.declare({"etl": "0 * * * *"}, catchup_entries={"etl": "6h"})

    beat = site.beat(scheduler="celery_catchup.Scheduler")

    assert beat.wait() == EX_CONFIG
    assert "catchup_redis_url: missing, and the broker is 'amqp', not Redis" in beat.text()
    assert "Traceback" not in beat.text()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/0",
        "redis://localhost:port/0",
        "redis://:hunter2@localhost/banana",
        "sentinel://:hunter2@localhost:26379/0",  # without the name of its primary
    ],
)
def test_a_url_that_cannot_be_right_is_refused_without_its_password(site: Site, url: str) -> None:
    site.declare({"etl": "0 * * * *"}, catchup_entries={"etl": "6h"}, catchup_redis_url=url)

    beat = site.beat(scheduler="celery_catchup.Scheduler")

    assert beat.wait() == EX_CONFIG
    assert "celery_catchup: 1 mistake in the configuration\n  catchup_redis_url: " in beat.text()
    assert "hunter2" not in beat.text()
    assert "Traceback" not in beat.text()


def test_a_policy_on_an_entry_and_in_the_settings_is_a_mistake(site: Site) -> None:
    site.declare(
        {"etl": {"schedule": "0 * * * *", "catchup": {"window": "6h"}}}, catchup_entries={"etl": "6h"}
    )

    beat = site.beat(scheduler="celery_catchup.Scheduler")

    assert beat.wait() == EX_CONFIG
    assert "catchup_entries.etl: the entry has a policy at beat_schedule.etl.catchup too" in beat.text()


def test_persisted_entries_that_differ_are_refused_when_that_is_wanted(site: Site) -> None:
    site.declare({"etl": "0 * * * *"}, catchup_entries={"etl": "6h"}, catchup_on_drift="refuse")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()

    site.declare({"etl": "0 6 * * *"}, catchup_entries={"etl": "6h"}, catchup_on_drift="refuse")
    beat = site.beat()

    assert beat.wait() == EX_CONFIG
    assert "etl" in beat.text()
    assert "Traceback" not in beat.text()


def test_an_embedded_beat_with_mistakes_says_so_and_sends_nothing(site: Site) -> None:
    mistaken(site, imports=["celery_catchup.worker"])

    worker = site.start_celery(
        "worker", "-B", "-c", "1", "-l", "INFO", "--scheduler", "celery_catchup.Scheduler"
    )
    worker.until_it_says("catchup_entries.nightly: no such entry")

    assert site.messages() == []
    assert "Traceback" not in worker.text()
