"""States a server can be in: the beat waits, says in one line what to do, tears nothing, and goes on."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from celery.schedules import schedule
from redis.exceptions import RedisError

from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.events import Leading, StateLost
from celery_catchup.store import Keys
from celery_catchup.store.store import all_scripts
from celery_catchup.testing import FakeClock
from tests.integration.beats import NAMESPACE, Beat
from tests.integration.servers import HOURLY, Server, a_scheduler, a_server, free_port, until

NINE, TEN, ELEVEN = "2026-02-07T09:04:00Z", "2026-02-07T10:00:00Z", "2026-02-07T11:00:00Z"
ENTRIES = {"etl": ("0 * * * *", {"window": "6h", "overlap_policy": "allow"})}
USER, PASSWORD = "app", "pw"
LOST = "the server has forgotten what it had acknowledged"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NINE)


@dataclass
class Site:
    """A server with an administrator, and the messages in its queue."""

    server: Server
    admin: redis.Redis

    @property
    def url(self) -> str:
        return self.server.url(user=USER, password=PASSWORD)

    def do(self, *words: Any) -> Any:
        return self.admin.execute_command(*words)

    def config(self, **settings: Any) -> None:
        for name, value in settings.items():
            self.admin.config_set(name.replace("_", "-"), value)

    def rights(self, *rules: str) -> None:
        self.do("ACL", "SETUSER", USER, *rules)

    def hang_up(self) -> None:
        """End the connections of everybody else."""
        with suppress(RedisError):
            self.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def sent(self) -> list[str]:
        found: Any = self.admin.lrange("celery", 0, -1)
        return [json.loads(message)["headers"]["scheduled_time"] for message in reversed(found)]


@pytest.fixture(params=["valkey", "redis"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with (
        a_server(tmp_path, kind=request.param, busy_reply_threshold=10) as server,
        server.admin() as admin,
    ):
        here = Site(server, admin)
        here.rights("on", f">{PASSWORD}", "~*", "&*", "+@all")
        yield here


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def begin(scheduler: Scheduler, clock: FakeClock) -> None:
    """Lead, and send the slot of ten o'clock."""
    scheduler.tick()
    clock.set(TEN)
    scheduler.tick()


# -- the states ----------------------------------------------------------------------------------

Cure = Callable[[], Any]


def locks_the_user_out(site: Site) -> Cure:
    site.rights("resetpass", "off")
    site.hang_up()
    return lambda: site.rights("on", f">{PASSWORD}")


def has_another_password(site: Site) -> Cure:
    site.rights("resetpass", ">another")
    site.hang_up()
    return lambda: site.rights("resetpass", f">{PASSWORD}")


def forbids_a_command(site: Site) -> Cure:
    site.rights("-zadd")
    return lambda: site.rights("+zadd")


def forbids_scripts(site: Site) -> Cure:
    site.rights("-evalsha")
    return lambda: site.rights("+evalsha")


def forbids_the_keys(site: Site) -> Cure:
    site.rights("resetkeys", "~celery*", "~_kombu*")
    return lambda: site.rights("~*")


def forbids_a_name(site: Site) -> Cure:
    site.rights("-client|setname")
    site.hang_up()
    return lambda: site.rights("+client|setname")


def is_a_replica(site: Site) -> Cure:
    site.do("REPLICAOF", "127.0.0.1", free_port())
    return lambda: site.do("REPLICAOF", "NO", "ONE")


def is_a_replica_without_a_primary(site: Site) -> Cure:
    site.config(replica_serve_stale_data="no")
    return is_a_replica(site)


def is_loading(site: Site) -> Cure:
    with site.server.admin(db=5) as client:
        client.mset({f"ballast{number}": "x" * 100 for number in range(3000)})
    site.admin.save()
    site.server.kill()
    site.server.settings |= {"key_load_delay": 500, "loading_process_events_interval_bytes": 1024}
    site.server.start()

    def loaded() -> bool:
        with suppress(RedisError):
            return not site.admin.info("persistence")["loading"]
        return False

    return lambda: until(loaded, what="a loaded server")


def is_out_of_memory(site: Site) -> Cure:
    site.config(maxmemory=1)
    return lambda: site.config(maxmemory=0)


def is_busy(site: Site) -> Cure:
    def endless() -> None:
        with suppress(RedisError), site.server.admin() as client:
            client.eval("while true do end", 0)

    thread = threading.Thread(target=endless)
    thread.start()

    def busy() -> bool:
        try:
            site.admin.ping()
        except redis.ResponseError:
            return True
        return False

    until(busy, what="a busy server")

    def cure() -> None:
        site.admin.script_kill()
        thread.join()

    return cure


def cannot_save(site: Site) -> Cure:
    obstacle = site.server.folder / "dump.rdb"
    obstacle.mkdir()
    site.config(save="3600 1")

    def saved(verdict: str) -> Callable[[], bool]:
        def happened() -> bool:
            persistence: Any = site.admin.info("persistence")
            return (
                not persistence["rdb_bgsave_in_progress"] and persistence["rdb_last_bgsave_status"] == verdict
            )

        return happened

    site.admin.bgsave()
    until(saved("err"), what="a failed save")

    def cure() -> None:
        obstacle.rmdir()
        site.admin.bgsave()
        until(saved("ok"), what="a save")

    return cure


def has_no_replicas(site: Site) -> Cure:
    site.config(min_replicas_to_write=1)
    return lambda: site.config(min_replicas_to_write=0)


def has_too_many_clients(site: Site) -> Cure:
    site.config(maxclients=1)
    site.hang_up()
    return lambda: site.config(maxclients=1000)


def is_away(site: Site) -> Cure:
    site.admin.save()
    site.server.kill()

    def cure() -> None:
        site.server.start()
        until(lambda: site.admin.ping(), what="a server that is back")
        # Users are not in the file.
        site.rights("on", f">{PASSWORD}", "~*", "&*", "+@all")

    return cure


STATES: list[tuple[Callable[[Site], Cure], str]] = [
    (locks_the_user_out, "authentication failed; correct user name or password in the URL"),
    (has_another_password, "authentication failed; correct user name or password in the URL"),
    (forbids_a_command, "rights are missing: ~{catchup:proj}:* +zadd; the user lacks a permission; grant it"),
    (forbids_scripts, "the user lacks a permission; grant it with ACL SETUSER <user> +evalsha"),
    (forbids_the_keys, "the user lacks a permission; grant it with ACL SETUSER"),
    (forbids_a_name, "the user lacks a permission; grant it with ACL SETUSER <user> +client|setname"),
    (is_a_replica, "the server is a replica; name the primary in the URL"),
    (is_a_replica_without_a_primary, "the replica has lost its primary; celery_catchup retries"),
    (is_out_of_memory, "the server is out of memory; raise maxmemory, or free some"),
    (is_busy, "the server is busy with another client's script; celery_catchup retries"),
    (cannot_save, "the server cannot write to its disk; free some space"),
    (has_no_replicas, "the server has too few replicas to accept writes; celery_catchup retries"),
    (has_too_many_clients, "the server accepts no more clients; raise maxclients"),
    (is_away, "nothing listens there; start the server, or correct the URL"),
]


@pytest.mark.parametrize(("becomes", "advice"), STATES, ids=[state.__name__ for state, _ in STATES])
def test_a_beat_waits_out_a_server_that(
    site: Site,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    becomes: Callable[[Site], Cure],
    advice: str,
) -> None:
    with a_scheduler(site.url, clock) as scheduler:
        begin(scheduler, clock)
        before = site.server.everything()

        cure = becomes(site)
        clock.set(ELEVEN)
        waits = [scheduler.tick() for _ in range(3)]
        cure()
        unchanged = site.server.everything() == before
        scheduler.tick()
        scheduler.tick()

        assert site.sent() == [TEN, ELEVEN]
    (line,) = said(caplog, logging.ERROR)
    assert line.startswith('msg="Redis cannot be used" error=')
    assert advice in line
    assert 0.5 < min(waits) < max(waits) < 10
    assert unchanged
    assert [text for text in said(caplog, logging.WARNING) if "over" in text]


def test_a_beat_waits_out_a_server_that_is_loading(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with a_scheduler(site.server.url(), clock) as scheduler:
        begin(scheduler, clock)
        before = site.server.everything()

        loaded = is_loading(site)
        clock.set(ELEVEN)
        waits = [scheduler.tick(), scheduler.tick()]
        loaded()
        unchanged = site.server.everything() == before
        scheduler.tick()
        scheduler.tick()

        assert site.sent() == [TEN, ELEVEN]
    (line,) = said(caplog, logging.ERROR)
    assert "the server is still loading its data; celery_catchup retries" in line
    assert min(waits) > 0.5
    assert unchanged


def test_a_beat_waits_out_a_server_that_wants_a_password_all_at_once(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with a_scheduler(site.server.url(), clock) as scheduler:
        scheduler.tick()
        site.config(requirepass="secret")
        site.hang_up()
        waits = [scheduler.tick(), scheduler.tick()]
        site.config(requirepass="")
        begin(scheduler, clock)

        assert site.sent() == [TEN]
    (line,) = said(caplog, logging.ERROR)
    assert "the server requires a password; put it into the URL" in line
    assert min(waits) > 0.5


def test_every_command_of_the_scripts_is_among_the_rights_that_are_looked_at_first() -> None:
    texts = [script.text for script in all_scripts().values()]
    used = {name for text in texts for name in re.findall(r"(?:redis\.call|members)\('([A-Z]+)'", text)}
    checked = set(re.findall(r"\{ '([A-Z]+)'", texts[0]))

    # The queue belongs to the broker: the dispatcher checks the permission to push to it. A repair renames
    # before it writes anything.
    assert used - {"LPUSH", "SELECT", "RENAME"} == checked


# -- what a server forgets -----------------------------------------------------------------------


def test_scripts_that_were_flushed_are_loaded_again_unseen(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with a_scheduler(site.url, clock) as scheduler:
        begin(scheduler, clock)
        already = len(caplog.records)

        site.admin.script_flush()
        clock.set(ELEVEN)
        scheduler.tick()

        assert site.sent() == [TEN, ELEVEN]
    assert [r for r in caplog.records[already:] if r.levelno > logging.INFO] == []


def test_a_flushed_server_is_an_error_and_the_slot_of_that_moment_is_sent(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with a_scheduler(site.url, clock) as scheduler:
        begin(scheduler, clock)

        site.admin.flushall()
        clock.set(ELEVEN)
        for _ in range(3):
            scheduler.tick()

        assert site.sent() == [ELEVEN]
    (line,) = said(caplog, logging.ERROR)
    assert line.startswith(f'msg="State lost" detail="{LOST}; all of it is gone')


def test_a_flush_between_slots_is_told_with_the_next_tick(site: Site, clock: FakeClock) -> None:
    beat = Beat(site.url, clock, ENTRIES)
    beat.tick()
    beat.run_for(seconds=5)

    site.admin.flushall()
    beat.run_for(seconds=5)

    assert len(beat.told(StateLost)) == 1
    assert len(beat.told(Leading)) == 2
    beat.client.close()


def test_entries_without_a_policy_go_on_after_a_flush(site: Site, clock: FakeClock) -> None:
    stock = {"task": "proj.stock", "schedule": schedule(10, nowfun=clock.now)}
    with a_scheduler(site.url, clock, beat_schedule={"etl": HOURLY, "stock": stock}) as scheduler:
        for _ in range(2):
            scheduler.tick()
            clock.advance(seconds=11)
        site.admin.flushall()
        for _ in range(5):
            scheduler.tick()
            clock.advance(seconds=11)

        assert len(site.sent()) >= 3


def test_a_catch_up_that_is_under_way_survives_a_flush(site: Site, clock: FakeClock) -> None:
    first = Beat(site.url, clock, ENTRIES)
    first.tick()
    first.engine.resign()
    clock.set("2026-02-07T14:30:00Z")
    beat = Beat(site.url, clock, ENTRIES, batch_size=2)
    beat.tick()
    before = beat.dispatched("etl")

    site.admin.flushall()
    for _ in range(5):
        clock.advance(seconds=1)
        beat.tick()

    assert len(before) == 2
    assert beat.dispatched("etl") == [f"2026-02-07T{hour}:00:00Z" for hour in range(10, 15)]
    for one in (first, beat):
        one.client.close()


def test_a_standby_tells_it_too(site: Site, clock: FakeClock) -> None:
    leader, standby = Beat(site.url, clock, ENTRIES), Beat(site.url, clock, ENTRIES)
    for _ in range(3):
        leader.tick()
        standby.tick()
        clock.advance(seconds=1)

    site.admin.flushall()
    leader.tick()
    standby.tick()

    assert "another beat leads" in standby.told(StateLost)[0].what
    assert leader.engine.leading
    assert not standby.engine.leading
    for beat in (leader, standby):
        beat.client.close()


def test_a_server_that_went_back_is_an_error_and_the_run_has_the_same_id_again(
    site: Site, clock: FakeClock
) -> None:
    beat = Beat(site.url, clock, ENTRIES)
    beat.tick()
    beat.run_for(seconds=3)
    earlier = {key: site.admin.dump(key) for key in site.admin.keys("*")}
    clock.set(TEN)
    beat.tick()
    (message,) = beat.messages()

    # The effect of a fail-over to a replica that lags.
    site.admin.flushall()
    for key, value in earlier.items():
        site.admin.restore(key, 0, value)
    clock.advance(seconds=1)
    beat.tick()
    beat.tick()

    assert [event.what for event in beat.told(StateLost)] == [
        f"{LOST}; it went back a little (a fail-over): runs of the last moments may be sent twice"
    ]
    assert [again["id"] for again in beat.messages()] == [message["id"]]
    beat.client.close()


def test_an_orderly_change_of_leaders_is_not_a_loss(site: Site, clock: FakeClock) -> None:
    beats = [Beat(site.url, clock, ENTRIES) for _ in range(3)]
    for _ in range(4):
        for beat in beats:
            beat.tick()
        next(beat for beat in beats if beat.engine.leading).engine.resign()
        clock.advance(seconds=1)
    for beat in beats:  # and one that dies
        clock.advance(seconds=30)
        beat.tick()

    assert [event for beat in beats for event in beat.told(StateLost)] == []
    for beat in beats:
        beat.client.close()


def test_a_loss_that_cannot_be_dealt_with_at_once_is_not_forgotten(
    site: Site, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = Beat(site.url, clock, ENTRIES)
    beat.tick()
    beat.run_for(seconds=3)
    states = beat.engine.services.states

    def gone(_: object, **__: object) -> None:
        raise redis.ConnectionError("gone")

    site.admin.flushall()
    clock.set(TEN)
    with monkeypatch.context() as patch:
        patch.setattr(type(states), "load", gone)
        with pytest.raises(redis.ConnectionError):
            beat.tick()
    told_early = beat.told(StateLost)
    beat.tick()

    assert told_early == []
    assert len(beat.told(StateLost)) == 1
    assert beat.sent() == [TEN]
    beat.client.close()


# -- what a server throws away -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "warning"),
    [
        ("noeviction", None),
        (
            "allkeys-lru",
            "maxmemory-policy is allkeys-lru: with its memory full the server silently evicts runs",
        ),
        (
            "volatile-ttl",
            "maxmemory-policy is volatile-ttl: with its memory full the server evicts keys with a TTL",
        ),
    ],
)
def test_an_evicting_server_is_a_warning_at_the_start_of_a_term(
    site: Site, clock: FakeClock, caplog: pytest.LogCaptureFixture, policy: str, warning: str | None
) -> None:
    site.config(maxmemory_policy=policy)

    with a_scheduler(site.url, clock) as scheduler:
        begin(scheduler, clock)
        site.admin.delete(Keys("proj").leader)  # a new term
        clock.set(ELEVEN)
        scheduler.tick()

    warnings = said(caplog, logging.WARNING)
    assert len(warnings) == (warning is not None)
    assert warning is None or warning in warnings[0]


def test_a_user_who_may_not_ask_for_it_is_not_kept_from_working(site: Site, clock: FakeClock) -> None:
    site.rights("-info")

    with a_scheduler(site.url, clock) as scheduler:
        begin(scheduler, clock)
        scheduler.tick()

        assert site.sent() == [TEN]


# -- one namespace of many -----------------------------------------------------------------------


def test_a_user_confined_to_its_own_keys_can_do_everything_that_a_beat_does(
    site: Site, clock: FakeClock
) -> None:
    prefix = Keys(NAMESPACE).prefix
    commands = sorted(set(re.findall(r"\{ '([A-Z]+)'", all_scripts()["lead"].text)))
    connection = ["client|setname", "multi", "exec", "evalsha", "eval", "hgetall", "zrange"]
    rights = [f"+{name.lower()}" for name in (*commands, *connection)]
    site.rights("reset", "on", f">{PASSWORD}", f"~{prefix}:*", "~celery", *rights, "+lpush", "+lrange")

    beat = Beat(site.url, clock, ENTRIES)
    beat.tick()
    clock.set(TEN)
    beat.tick()

    assert beat.sent() == [TEN]
    beat.client.close()
