"""Apps that share a server: both run, or the one that does not says why, and status and doctor fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import pytest
from celery.schedules import crontab
from redis import Redis

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.config.drift import digest
from celery_catchup.store import Keys
from celery_catchup.store.opening import open_store
from celery_catchup.testing import FakeClock
from tests.integration.operating import Project

DIFFERS = "the schedule hash differs"
CONFLICT = "another beat with other entries uses namespace 'proj'"


class App(Project):
    """An app with one entry with a policy and one without, both every minute."""

    def __init__(
        self, url: str, clock: FakeClock, queue: str, *, name: str = "proj", prefix: str = "", **settings: Any
    ) -> None:
        entries = {
            f"{queue}-caught": {"task": f"{queue}.caught", "schedule": crontab()},
            f"{queue}-stock": {"task": f"{queue}.stock", "schedule": crontab()},
        }
        options = {"broker_transport_options": {"global_keyprefix": prefix}} if prefix else {}
        policies = {f"{queue}-caught": {"window": "1h", "overlap_policy": "allow"}}
        settings = {"task_default_queue": queue, **options, **settings}
        super().__init__(url, clock, entries, policies, **settings)
        self.app.main, self.queue = name, f"{prefix}{queue}"

    def sent(self) -> int:
        with self.operator() as operator:
            return int(operator.store.client.llen(self.queue))  # type: ignore[arg-type]

    def namespace_finding(self) -> dict[str, Any]:
        found = self.catchup("doctor", "-j", code=1).stdout
        (one,) = [one for one in json.loads(found)["findings"] if one["check"] == "namespace"]
        return dict(one)


@contextmanager
def beats(*apps: App) -> Iterator[list[Scheduler]]:
    with ExitStack() as stack:
        yield [stack.enter_context(app.beat()) for app in apps]


def run(clock: FakeClock, schedulers: list[Scheduler], *, minutes: int) -> None:
    """All beats tick every nine seconds, which is just often enough for the lease."""
    for _ in range(minutes * 60 // 9 + 1):
        clock.advance(seconds=9)
        for one in schedulers:
            one.tick()


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(DIFFERS in record.message for record in caplog.records if record.levelname == "WARNING")


COMBINATIONS = list(product(("proj", "other"), (("", ""), ("a:", "a:"), ("", "b:"), ("a:", "b:")), (0, 1)))


@pytest.mark.parametrize(("name", "prefixes", "database"), COMBINATIONS)
def test_two_apps_on_one_server_both_run_or_the_second_says_why_not(
    redis_url: str,
    desk_clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    name: str,
    prefixes: tuple[str, str],
    database: int,
) -> None:
    first = App(redis_url, desk_clock, "qa", prefix=prefixes[0])
    elsewhere = f"{redis_url.rpartition('/')[0]}/{database}"
    second = App(elsewhere, desk_clock, "qb", name=name, prefix=prefixes[1])
    collide = name == "proj" and prefixes[0] == prefixes[1] and not database

    with beats(first, second) as schedulers:
        run(desk_clock, schedulers, minutes=6)

        assert first.sent() >= 10
        if not collide:
            assert second.sent() == first.sent()
            assert not warnings(caplog)
            assert second.namespace_finding()["verdict"] == "ok"
        else:
            assert second.sent() == 0
            assert warnings(caplog) == 1
            assert second.namespace_finding()["verdict"] == "failure"


def test_a_name_that_reads_like_another_apps_prefix_and_name_is_a_conflict_too(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = App(redis_url, desk_clock, "qa", prefix="acme:")
    second = App(redis_url, desk_clock, "qb", name="acme:proj")

    with beats(first, second) as schedulers:
        run(desk_clock, schedulers, minutes=6)

        assert (first.sent() >= 10, second.sent()) == (True, 0)
        assert warnings(caplog) == 1
        assert second.namespace_finding()["verdict"] == "failure"


def test_status_tells_of_a_beat_with_other_entries_and_fails_for_its_app_when_it_lasts(
    redis_url: str, desk_clock: FakeClock
) -> None:
    first, second = App(redis_url, desk_clock, "qa"), App(redis_url, desk_clock, "qb")

    with beats(first, second) as schedulers:
        run(desk_clock, schedulers, minutes=1)
        young = [app.text("status", "--check") for app in (first, second)]
        verdict = first.namespace_finding()["verdict"]
        run(desk_clock, schedulers, minutes=5)
        old = [first.text("status", "--check"), second.text("status", "--check", code=1)]
        told = second.json("status")

    assert all(f"Warning: {CONFLICT}" in text for text in young)
    assert verdict == "warning"
    assert all(f"Error: {CONFLICT}" in text for text in old)
    assert all("set catchup_namespace" in text for text in old)
    assert told["healthy"] is False
    assert told["conflict"]["lasting"] is True


def test_a_beat_that_is_started_again_and_again_is_in_conflict_since_its_first_start(
    redis_url: str, desk_clock: FakeClock
) -> None:
    first, second = App(redis_url, desk_clock, "qa"), App(redis_url, desk_clock, "qb")

    with beats(first) as leaders:
        leaders[0].tick()
        for _ in range(4):
            with beats(second) as others:
                run(desk_clock, [*leaders, *others], minutes=2)

        assert first.json("status")["conflict"]["lasting"] is True


def test_a_difference_of_a_moment_is_no_warning(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(redis_url, desk_clock, "qa")

    with Redis.from_url(redis_url) as client, beats(app, app) as schedulers:
        run(desk_clock, schedulers, minutes=1)
        before = client.hget(Keys("proj").meta, "declares") or b""
        client.hset(Keys("proj").meta, "declares", "2:another")
        desk_clock.advance(seconds=20)
        for one in schedulers:
            one.tick()
        conflict = app.json("status")["conflict"]
        client.hset(Keys("proj").meta, "declares", before)
        run(desk_clock, schedulers, minutes=2)

    assert conflict is not None
    assert not warnings(caplog)


def test_the_conflict_is_over_when_the_other_beat_is_gone(redis_url: str, desk_clock: FakeClock) -> None:
    first, second = App(redis_url, desk_clock, "qa"), App(redis_url, desk_clock, "qb")

    with beats(first) as leaders:
        leaders[0].tick()
        with beats(second) as others:
            run(desk_clock, [*leaders, *others], minutes=10)
        run(desk_clock, leaders, minutes=3)

        assert first.json("status")["conflict"] is None
        first.text("status", "--check")


def test_a_standby_with_other_entries_warns_every_hour(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = App(redis_url, desk_clock, "qa"), App(redis_url, desk_clock, "qb")

    with beats(first, second) as schedulers:
        run(desk_clock, schedulers, minutes=125)

    assert warnings(caplog) == 3


def test_beats_of_one_app_stand_by_without_a_word(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    apps = [App(redis_url, desk_clock, "qa") for _ in range(3)]

    with beats(*apps) as schedulers:
        run(desk_clock, schedulers, minutes=10)
        told = apps[0].json("status")

    assert not warnings(caplog)
    assert (told["standbys"], told["conflict"]) == (2, None)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "another"},
        {"schedule": 30.0},
        {"args": (1,)},
        {"kwargs": {"tenant": "eu"}},
        {"options": {"queue": "elsewhere"}},
    ],
)
def test_entries_without_a_policy_are_compared_too(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    first, second = App(redis_url, desk_clock, "qa"), App(redis_url, desk_clock, "qa")
    second.app.conf.beat_schedule["qa-stock"] |= change

    with beats(first, second) as schedulers:
        run(desk_clock, schedulers, minutes=1)

    assert warnings(caplog) == 1


def test_a_rolling_deploy_is_a_warning_and_the_new_version_leads_without_one(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = App(redis_url, desk_clock, "qa"), App(redis_url, desk_clock, "qa")
    new.app.conf.beat_schedule["qa-new"] = {"task": "qa.new", "schedule": crontab()}

    with beats(new) as replacements:
        with beats(old) as leaders:
            leaders[0].tick()
            run(desk_clock, [*leaders, *replacements], minutes=2)
            new.text("status", "--check")
        run(desk_clock, replacements, minutes=10)

        assert warnings(caplog) == 1
        assert new.json("status")["conflict"] is None
        assert new.namespace_finding()["verdict"] == "ok"


def test_doctor_warns_when_the_leader_has_other_entries_than_the_operators_app(
    redis_url: str, desk_clock: FakeClock
) -> None:
    App(redis_url, desk_clock, "qa").tick()

    found = App(redis_url, desk_clock, "qb").namespace_finding()

    assert found["verdict"] == "warning"
    assert "has other entries than this app" in found["detail"]


def test_no_more_than_fifty_standbys_are_remembered(redis_url: str, desk_clock: FakeClock) -> None:
    app, keys = App(redis_url, desk_clock, "qa"), Keys("proj")

    with Redis.from_url(redis_url) as client, beats(app, app) as schedulers:
        seen = int(desk_clock.now().timestamp() * 1000)
        client.hset(keys.standbys, mapping={f"host:{n:03}": f"{seen + n} -1 2:abc" for n in range(50)})
        client.hset(keys.standbys, "broken", "what is this?")
        run(desk_clock, schedulers, minutes=1)
        kept = client.hkeys(keys.standbys)
        run(desk_clock, schedulers, minutes=61)
        left = client.hlen(keys.standbys)

    assert len(kept) == 50
    assert not {b"broken", b"host:000"} & set(kept)
    assert left == 1


def test_beats_of_version_0_1_are_not_compared(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(redis_url, desk_clock, "qa")

    with Redis.from_url(redis_url) as client, beats(app, app) as schedulers:
        run(desk_clock, schedulers, minutes=1)
        client.hset(Keys("proj").meta, "declares", "0123456789abcdef")
        run(desk_clock, schedulers, minutes=2)

    assert not warnings(caplog)


# -- the namespace, and where version 0.1 left its state -------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "setting", "namespace"),
    [("", None, "proj"), ("acme:", None, "acme:proj"), ("acme:", "mine", "mine"), ("", "mine", "mine")],
)
def test_the_namespace_is_the_setting_or_the_apps_name_behind_its_key_prefix(
    redis_url: str, desk_clock: FakeClock, prefix: str, setting: str | None, namespace: str
) -> None:
    settings = {"catchup_namespace": setting} if setting else {}
    app = App(redis_url, desk_clock, "qa", prefix=prefix, **settings)

    assert open_store(app.app).namespace == namespace


@pytest.fixture
def state_of_0_1(redis_url: str) -> Iterator[Redis]:
    """What version 0.1 leaves, in the namespace without a prefix."""
    with Redis.from_url(redis_url) as client:
        client.hset(Keys("proj").meta, mapping={"schema": 1, "declares": "0123456789abcdef"})
        yield client


def test_a_beat_does_not_start_from_nothing_beside_the_state_of_version_0_1(
    redis_url: str, desk_clock: FakeClock, state_of_0_1: Redis, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App(redis_url, desk_clock, "qa", prefix="acme:")

    with pytest.raises(SystemExit):
        app.tick()

    told = capsys.readouterr().err
    assert "version 0.1 left the state of an app in namespace 'proj'" in told
    assert "Set catchup_namespace to 'proj' to go on with that state" in told
    assert app.namespace_finding()["verdict"] == "failure"
    assert not state_of_0_1.exists(Keys("acme:proj").meta)


@pytest.mark.parametrize("namespace", ["proj", "acme:proj"])
def test_with_a_namespace_set_it_starts_and_others_with_a_prefix_start_from_then_on(
    redis_url: str, desk_clock: FakeClock, state_of_0_1: Redis, namespace: str
) -> None:
    App(redis_url, desk_clock, "qa", prefix="acme:", catchup_namespace=namespace).tick()

    assert state_of_0_1.exists(Keys(namespace).leader) + state_of_0_1.exists(Keys(namespace).first_seen)
    if namespace == "proj":
        App(redis_url, desk_clock, "qb", prefix="staging:").tick()
        assert state_of_0_1.exists(Keys("staging:proj").meta)


def test_the_digest_is_the_same_in_whatever_order_and_tells_its_version() -> None:
    both = {"a": "1", "b": "2"}

    assert digest(both, "here") == digest(dict(reversed(both.items())), "here")
    assert len({digest(both, "here"), digest(both, "there"), digest({"a": "1"}, "here")}) == 3
    assert digest({}, "").startswith("2:")
