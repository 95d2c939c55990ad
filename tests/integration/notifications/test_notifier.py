"""What the leader tells: one notification per outage or trouble and entry, once, whichever beat leads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from celery_catchup.beat import scheduler as beat
from celery_catchup.engine import DispatchFailedError
from celery_catchup.engine.releases import Releases
from celery_catchup.model import RunState
from celery_catchup.notifications.delivery import DeliveryError
from celery_catchup.notifications.sender import Sender
from celery_catchup.store import Notices
from celery_catchup.store import notices as store_notices
from celery_catchup.store.notices import Settled
from celery_catchup.testing import FakeClock
from tests.integration.operating import ALL, HOURLY, Project

TEN, NOON = "2026-02-07T10:00:00Z", "2026-02-07T12:02:00Z"
RECEIVER = {"url": "https://example.com/hook"}


def project_of(
    url: str, clock: FakeClock, policies: dict[str, Any] | None = None, on: Any = None, **settings: Any
) -> Project:
    policies = policies or {"etl": ALL, "report": ALL}
    receiver = RECEIVER if on is None else {**RECEIVER, "on": on}
    return Project(
        url, clock, dict.fromkeys(policies, HOURLY), policies, catchup_notify=[receiver], **settings
    )


def queued(project: Project, kind: str | None = None) -> list[dict[str, Any]]:
    """The notifications that wait, in the order of queueing."""
    with project.operator() as operator:
        client: Any = operator.store.client
        keys = operator.store.keys
        records = [client.hget(keys.notices, name) for name in client.zrange(keys.notices_due, 0, -1)]
    found = [json.loads(json.loads(record)["notice"]) for record in records]
    return [one for one in found if kind in (None, one["kind"])]


def kinds(project: Project) -> list[tuple[str, str | None]]:
    return sorted((one["kind"], one["entry"]) for one in queued(project) if one["kind"] != "leader_changed")


@contextmanager
def leading(project: Project) -> Iterator[beat.Scheduler]:
    with project.beat() as scheduler:
        scheduler.tick()
        yield scheduler


def at(project: Project, scheduler: beat.Scheduler, moment: str) -> None:
    """Let a healthy beat arrive at a time."""
    project.clock.set(moment)
    project.clock.advance(seconds=-1)
    scheduler.tick()
    for _ in range(3):
        project.clock.advance(seconds=1)
        scheduler.tick()


def test_an_outage_is_one_notification_per_entry_and_not_per_slot(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock)
    project.tick()
    desk_clock.set(NOON)

    project.tick()
    project.tick()

    assert kinds(project) == [("missed", "etl"), ("missed", "report")]
    (one, _) = queued(project, "missed")
    assert one["details"] == {"first": TEN, "until": NOON, "slots": 3}


def test_an_outage_without_missed_slots_is_no_news(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)
    project.tick()
    desk_clock.set("2026-02-07T09:50:00Z")

    project.tick()

    assert kinds(project) == []


def test_a_catch_up_that_the_next_leader_finishes_is_the_same_outage(
    redis_url: str, desk_clock: FakeClock
) -> None:
    settings = {"catchup_rate_limit": "10s", "catchup_ledger_ttl": "9000d"}
    project = project_of(redis_url, desk_clock, {"etl": {**ALL, "window": "90m"}}, **settings)
    project.tick()
    desk_clock.set(NOON)
    for _ in range(6):  # each leads for one run of the catch-up
        with leading(project):
            desk_clock.advance(seconds=11)

    assert len(project.slots("etl")) == 2
    assert kinds(project) == [("missed", "etl"), ("not_recovered", "etl")]
    (lost,) = queued(project, "not_recovered")
    assert lost["details"] == {"first": TEN, "last": TEN, "slots": 1, "reasons": {"expired": 1}}


def test_lost_slots_of_an_outage_are_one_notification_with_their_command(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock, {"etl": {"window": "90m"}, "off": False})
    project.tick()
    desk_clock.set(NOON)
    project.tick()

    etl, off = sorted(queued(project, "not_recovered"), key=lambda one: str(one["entry"]))

    assert etl["details"]["reasons"] == {"expired": 1}
    assert off["details"] == {
        "first": TEN,
        "last": "2026-02-07T12:00:00Z",
        "slots": 3,
        "reasons": {"catchup_off": 3},
    }
    assert off["command"].endswith(f"catchup backfill off --start {TEN} --end 2026-02-07T12:00:00Z")


def test_an_entry_is_overdue_once_and_recovers_once_over_leaders(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(
        redis_url, desk_clock, {"etl": {**ALL, "expect_within": "20m", "max_active_runs": 9}}
    )
    with leading(project) as scheduler:
        at(project, scheduler, TEN)
        at(project, scheduler, "2026-02-07T10:20:00Z")
    with leading(project) as scheduler:
        at(project, scheduler, "2026-02-07T11:00:00Z")
        at(project, scheduler, "2026-02-07T11:20:00Z")
    assert kinds(project) == [("overdue", "etl")], "two slots are overdue, which is one notification"

    project.execute("etl")
    with leading(project) as scheduler:
        at(project, scheduler, "2026-02-07T11:30:00Z")
        at(project, scheduler, "2026-02-07T11:40:00Z")

    assert kinds(project) == [("overdue", "etl"), ("recovered", "etl")]
    (one,) = queued(project, "overdue")
    assert one["details"] == {"slot": TEN, "deadline": "2026-02-07T10:20:00Z", "slots": 1, "state": "queued"}


def test_a_leader_that_was_killed_before_it_queued_leaves_that_to_the_next(
    redis_url: str, desk_clock: FakeClock
) -> None:
    project = project_of(redis_url, desk_clock, {"etl": {**ALL, "expect_within": "20m"}})
    with leading(project) as scheduler:
        at(project, scheduler, TEN)
        assert scheduler._work is not None
        scheduler._work.notifier = None  # what follows a judgement never happens
        at(project, scheduler, "2026-02-07T10:30:00Z")
    assert kinds(project) == []

    project.tick()

    assert kinds(project) == [("overdue", "etl")]


def test_an_entry_is_overdue_while_the_broker_is_down(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: object, **__: object) -> None:
        raise DispatchFailedError("the broker is down")

    project = project_of(redis_url, desk_clock, {"etl": {**ALL, "expect_within": "20m"}})
    with leading(project) as scheduler:
        at(project, scheduler, TEN)
        monkeypatch.setattr(Releases, "release", down)
        at(project, scheduler, "2026-02-07T10:20:00Z")

    assert kinds(project) == [("overdue", "etl")]


def test_dead_letters_are_told_once_an_hour_for_each_entry(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"etl": {**ALL, "max_active_runs": 9}, "report": ALL})
    project.tick()
    with project.operator() as operator:  # the server's clock is not the test's
        operator.store.client.hset(operator.store.keys.told, "dead\x1f", '{"at": 0}')
    with leading(project) as scheduler:
        at(project, scheduler, TEN)
        project.execute("etl", state=RunState.FAILED, error="ValueError: no")
        at(project, scheduler, "2026-02-07T11:00:00Z")
        project.execute("etl", state=RunState.FAILED, error="ValueError: again")
        project.execute("report", state=RunState.FAILED, error="ValueError: no")
        desk_clock.advance(seconds=1)
        scheduler.tick()
    project.tick()

    assert kinds(project) == [("dead", "etl"), ("dead", "etl"), ("dead", "report")]
    first = queued(project, "dead")[0]
    assert (first["details"]["runs"], first["details"]["error"]) == (1, "ValueError: no")


def test_a_held_catch_up_is_told_once_until_it_is_held_again(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"etl": {**ALL, "hold_above": 1}})
    project.tick()
    desk_clock.set(NOON)
    project.tick()
    project.tick()

    assert kinds(project) == [("held", "etl")]
    assert queued(project, "held")[0]["details"] == {"runs": 3}


def test_an_entry_that_keeps_failing_is_told_once_over_leaders(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(redis_url, desk_clock, {"etl": ALL})
    monkeypatch.setattr("celery_catchup.engine.advance.prepare", _fail)
    for minute in range(3):
        with leading(project) as scheduler:
            for second in range(10):
                desk_clock.set(f"2026-02-07T10:{minute:02}:{second * 5:02}Z")
                scheduler.tick()

    assert kinds(project) == [("entry_failed", "etl")] or kinds(project) == [
        ("entry_failed", "etl"),
        ("missed", "etl"),
    ]
    assert "broken" in queued(project, "entry_failed")[0]["summary"]


def _fail(*_: Any, **__: Any) -> None:
    raise ValueError("broken")


def test_a_new_leader_is_told_except_the_first(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)
    project.tick()
    assert queued(project) == []

    project.tick()

    (one,) = queued(project)
    assert (one["kind"], one["entry"], one["details"]["epoch"]) == ("leader_changed", None, 2)


def test_lost_state_is_told(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock)
    with leading(project) as scheduler:
        with project.operator() as operator:
            operator.store.client.flushall()
        desk_clock.advance(seconds=1)
        scheduler.tick()

    assert [one["kind"] for one in queued(project)] == ["state_lost"]


def test_only_what_a_receiver_wants_is_queued(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"etl": {"window": "90m"}}, on=["not_recovered"])
    project.tick()
    desk_clock.set(NOON)
    project.tick()

    assert [one["kind"] for one in queued(project)] == ["not_recovered"]


def crowded(url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Five entries missed slots, and three notifications may wait."""
    monkeypatch.setattr(store_notices, "MOST_WAITING", 3)
    project = project_of(url, clock, {f"etl-{number}": ALL for number in range(5)}, on=["missed"])
    project.tick()
    clock.set(NOON)
    project.tick()
    return project


def test_one_digest_stands_for_all_that_find_no_room(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    project = crowded(redis_url, desk_clock, monkeypatch)

    *others, digest = sorted(queued(project), key=lambda one: one["kind"] == "digest")

    assert [one["kind"] for one in others] == ["missed"] * 3
    missing = sorted({f"etl-{number}" for number in range(5)} - {one["entry"] for one in others})
    assert (digest["kind"], digest["entry"], digest["namespace"]) == ("digest", None, others[0]["namespace"])
    assert digest["details"] == {
        "notifications": 2,
        "kinds": {"missed": 2},
        "entries": missing,
        "since": NOON,
    }
    assert digest["summary"] == f"2 further notifications since {NOON}: 2 missed."
    assert 'msg="Notifications summarised" count=2' in caplog.text


# -- sending -----------------------------------------------------------------------------------


class Post:
    """Takes the place of the network: fails as often as a test wants."""

    def __init__(self, *failures: str) -> None:
        self.failures, self.sent, self.tries = list(failures), list[dict[str, Any]](), 0

    def __call__(self, receiver: Any, payload: dict[str, Any], *, timestamp: int) -> None:
        self.tries += 1
        if self.failures:
            raise DeliveryError(self.failures.pop(0))
        self.sent.append(payload)


def sender(scheduler: beat.Scheduler, post: Post) -> Sender:
    assert scheduler._work is not None
    services = scheduler._work.engine.services
    receivers = scheduler._work.engine.settings.notify
    return Sender(receivers[0], Notices(scheduler._work.store), services.leadership, deliver=post)


def due_at_once(project: Project) -> None:
    """Let the time pass until the next attempt."""
    with project.operator() as operator:
        client: Any = operator.store.client
        for name in client.zrange(operator.store.keys.notices_due, 0, -1):
            client.zadd(operator.store.keys.notices_due, {name: 0})


def test_a_notification_is_sent_again_until_it_is_accepted_and_then_never(
    redis_url: str, desk_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    project = project_of(redis_url, desk_clock, {"etl": ALL}, on=["missed"])
    project.tick()
    desk_clock.set(NOON)
    post = Post("it answered 500", "no answer within 5 s")
    with leading(project) as scheduler:
        work = sender(scheduler, post)
        for _ in range(3):
            assert work.send_next()
            assert not work.send_next(), "it waits before the next attempt, or is done"
            due_at_once(project)
        assert not work.send_next()

    assert (post.tries, [one["kind"] for one in post.sent]) == (3, ["missed"])
    assert 'msg="Notifications cannot be sent" error="https://example.com/…: it answered 500"' in caplog.text
    assert 'msg="Notifications cannot be sent: over"' in caplog.text
    with project.operator() as operator:
        ever = operator.history.ever()
    assert (ever["notices_sent"], ever["notices_failed"]) == (1, 2)


def test_only_the_leader_sends_and_the_next_one_goes_on(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"etl": ALL}, on=["missed"])
    project.tick()
    desk_clock.set(NOON)
    post = Post()
    with leading(project) as first:
        killed = sender(first, post)
    with leading(project) as second:
        assert not killed.send_next()
        assert sender(second, post).send_next()

    assert len(post.sent) == 1


def test_two_beats_do_not_send_the_same_at_once(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"etl": ALL}, on=["missed"])
    project.tick()
    desk_clock.set(NOON)
    with leading(project) as scheduler:
        assert scheduler._work is not None
        notices, leadership = Notices(scheduler._work.store), scheduler._work.engine.services.leadership
        key = scheduler._work.engine.settings.notify[0].key
        claims = [notices.claim(f"{key}:", owner=leadership.owner, epoch=leadership.epoch) for _ in range(2)]

    assert [one is None for one in claims] == [False, True]


def test_what_is_added_to_a_digest_while_it_is_sent_is_sent_as_another_message(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = crowded(redis_url, desk_clock, monkeypatch)
    (before,) = queued(project, "digest")
    with leading(project) as scheduler:
        assert scheduler._work is not None
        notices, leadership = Notices(scheduler._work.store), scheduler._work.engine.services.leadership
        key, payload = scheduler._work.engine.settings.notify[0].key, queued(project, "missed")[0]
        owner, epoch = leadership.owner, leadership.epoch
        claimed = [notices.claim(f"{key}:", owner=owner, epoch=epoch) for _ in range(4)]
        (digest,) = [one for one in claimed if one is not None and one.notice["kind"] == "digest"]
        notices.queue(leadership, [(f"{key}:new", {**payload, "id": "new"})], {}, command="")
        notices.settle(digest, Settled.SENT)

        (after,) = queued(project, "digest")
        assert (digest.notice["id"], after["id"]) == (before["id"], "new")
        assert after["details"]["notifications"] == 3
        again = notices.claim(f"{key}:", owner=owner, epoch=epoch)
        assert again is not None
        notices.settle(again, Settled.SENT)

    assert queued(project, "digest") == []


def test_after_a_day_a_notification_is_dropped(
    redis_url: str, desk_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("celery_catchup.notifications.sender._GIVE_UP", 0)
    project = project_of(redis_url, desk_clock, {"etl": ALL}, on=["missed"])
    project.tick()
    desk_clock.set(NOON)
    with leading(project) as scheduler:
        assert sender(scheduler, Post("it answered 410")).send_next()

    assert queued(project) == []
    assert 'msg="Notifications dropped" count=1' in caplog.text


def test_without_news_a_tick_is_still_one_round_trip(redis_url: str, desk_clock: FakeClock) -> None:
    project = project_of(redis_url, desk_clock, {"etl": {**ALL, "expect_within": "20m"}})
    with leading(project) as scheduler, project.operator() as operator:
        for _ in range(3):
            desk_clock.advance(seconds=1)
            scheduler.tick()
        client: Any = operator.store.client
        client.config_resetstat()
        desk_clock.advance(seconds=1)
        scheduler.tick()
        calls = client.info("commandstats")

    assert calls["cmdstat_evalsha"]["calls"] == 1
    assert not {"cmdstat_eval", "cmdstat_hscan", "cmdstat_zrangebyscore"} & set(calls)
