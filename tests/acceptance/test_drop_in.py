"""A drop-in for Celery's scheduler: however it is named, started and stopped, and whatever entries say."""

from __future__ import annotations

import os
import signal
import socket
import time
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import celery.beat
import pytest

from tests import services
from tests.acceptance.messages import Message, RabbitQueue, on_redis
from tests.acceptance.nursery import Nursery
from tests.acceptance.processes import ROOT, until
from tests.acceptance.sites import LEADING, Site, at, instant

OURS = "celery_catchup.Scheduler"
TICKING = {"ticking": {"$every": 1}}
AT_ONCE = {"ticking": {"window": "10m", "overlap_policy": "allow"}}


# -- how it is named ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [OURS, "celery_catchup:Scheduler", "celery_catchup.beat:Scheduler"])
def test_the_scheduler_is_found_however_it_is_spelt(site: Site, name: str) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)

    beat = site.start_celery("beat", "-S", name)
    beat.until_it_says(LEADING)

    site.until_sent(1)
    assert ". scheduler -> celery_catchup.beat.scheduler.Scheduler" in beat.text()


def test_the_scheduler_may_be_a_setting(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE, beat_scheduler=OURS)

    site.leader(scheduler=None)

    site.until_sent(1)


def test_the_installed_package_has_a_short_name(site: Site, tmp_path: Path) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)

    beat = site.start_celery(
        "beat", "-S", "catchup", PYTHONPATH=os.pathsep.join([str(ROOT), str(as_installed(tmp_path))])
    )
    beat.until_it_says(LEADING)

    assert ". scheduler -> celery_catchup.beat.scheduler.Scheduler" in beat.text()


def as_installed(folder: Path) -> Path:
    """A folder that makes Python believe the package is installed, with the entry points it declares."""
    try:
        metadata.distribution("celery-catchup")
    except metadata.PackageNotFoundError:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        info = folder / "celery_catchup-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: celery-catchup\nVersion: 0\n")
        sections = (
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
            for group, points in project["entry-points"].items()
        )
        (info / "entry_points.txt").write_text("\n".join(sections))
    return folder


def test_the_banner_shows_where_the_state_is_without_its_password(site: Site) -> None:
    site.declare(TICKING, catchup_redis_url=site.url.replace("redis://", "redis://:hunter2@"))

    beat = site.beat(scheduler=OURS)
    beat.until_it_says(". store -> ")

    assert "hunter2" not in beat.text()


# -- how it is stopped -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_ends_as_celerys_scheduler_does_and_gives_up_its_lease(site: Site, number: signal.Signals) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)
    ours = site.leader()
    stock = site.beat("-l", "INFO", scheduler="celery.beat.PersistentScheduler")
    stock.until_it_says("beat: Starting")

    begun = time.monotonic()
    assert ours.stop(number) == stock.stop(number)

    assert time.monotonic() - begun < 2
    assert not site.redis.exists(site.keys.leader)
    assert "Traceback" not in ours.text()


def test_a_second_signal_while_it_ends_does_no_harm(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)
    beat = site.leader()

    beat.send(signal.SIGTERM)
    beat.send(signal.SIGTERM)

    assert beat.wait() == 0
    assert not site.redis.exists(site.keys.leader)


def test_stopping_in_the_midst_of_a_long_catch_up_leaves_nothing_half_done(site: Site) -> None:
    policy = {"minutely": {"window": "1d", "overlap_policy": "allow"}}
    site.declare({"minutely": "* * * * *"}, catchup_entries=policy, catchup_batch_size=5)
    site.set_clock("00:00:30")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    site.set_clock("08:20:30")
    for _ in range(3):
        beat = site.beat()
        sent = int(site.redis.llen("celery"))
        until(lambda sent=sent: site.redis.llen("celery") > sent + 20, what="some progress", step=0.001)
        assert beat.stop() == 0
        assert "Traceback" not in beat.text()
    site.beat()
    site.until_sent(500)
    site.until_a_tick_later()

    slots = [instant(slot) for slot in site.slots("minutely")]
    assert slots == sorted(set(slots))
    assert len(slots) == 500


def stop_busy_beats(site: Site, queue: RabbitQueue, *, stops: int) -> None:
    """Beats that publish all the time, each stopped wherever it is."""
    site.broker = queue.url
    busy = {f"stock-{number}": {"$every": 0.002} for number in range(20)}
    site.declare(busy, catchup_redis_url=site.url, task_default_queue=queue.name)
    for _ in range(stops):
        beat = site.leader()
        published = len(queue)
        until(lambda published=published: len(queue) > published, what="messages", step=0.001)
        begun = time.monotonic()
        assert beat.stop() == 0
        assert time.monotonic() - begun < 3
        assert "Traceback" not in beat.text()
        assert not site.redis.exists(site.keys.leader)


def test_a_beat_stopped_in_the_midst_of_a_publish_ends_at_once(site: Site, rabbit_queue: RabbitQueue) -> None:
    stop_busy_beats(site, rabbit_queue, stops=5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_hundred_beats_stopped_in_the_midst_of_a_publish_end_at_once(
    site: Site, rabbit_queue: RabbitQueue
) -> None:
    stop_busy_beats(site, rabbit_queue, stops=200)


def test_it_detaches_with_a_pid_file_and_a_log_file(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)
    pidfile, logfile = site.folder / "beat.pid", site.folder / "detached.log"

    parent = site.start_celery(
        "beat", "-S", OURS, "--detach", "--pidfile", str(pidfile), "--logfile", str(logfile)
    )
    assert parent.wait() == 0
    pid = int(until(lambda: pidfile.exists() and pidfile.read_text().strip(), what="a pid file"))
    try:
        until(lambda: logfile.exists() and LEADING in logfile.read_text(), what="a leader in the log file")
        site.until_sent(1)
    finally:
        os.kill(pid, signal.SIGTERM)
        until(lambda: not pidfile.exists(), what="its end")

    until(lambda: not site.redis.exists(site.keys.leader), what="the lease given up")
    assert "Traceback" not in logfile.read_text()


# -- how it ticks ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"beat_max_loop_interval": 1, "catchup_poll_interval": "1m"},
        {"catchup_lease_ttl": "3s", "catchup_poll_interval": "1m"},
    ],
    ids=["max-loop-interval", "lease"],
)
def test_it_never_sleeps_longer_than_it_is_told_or_its_lease_allows(
    site: Site, settings: dict[str, Any]
) -> None:
    site.declare({"hourly": "0 * * * *"}, catchup_entries={"hourly": "6h"}, **settings)
    beat = site.leader()

    begun = time.monotonic()
    site.until_a_tick_later()

    assert time.monotonic() - begun < 3
    assert len(beat.said("Leading")) == 1


def test_the_longest_sleep_is_an_option_of_the_command_line_too(site: Site) -> None:
    site.declare({"hourly": "0 * * * *"}, catchup_poll_interval="1m")

    beat = site.leader("--max-interval", "1")
    begun = time.monotonic()
    site.until_a_tick_later()

    assert "maxinterval -> 1.00 second (1s)" in beat.text()
    assert time.monotonic() - begun < 3


def test_somebody_who_wants_to_hear_of_errors_only_hears_of_nothing_else(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE)

    beat = site.beat("-l", "ERROR")
    site.until_sent(1)

    assert beat.said() == []


@pytest.mark.skipif(not hasattr(celery.beat, "BeatPidbox"), reason="this Celery's beat has no remote control")
def test_it_answers_a_remote_ping(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE, beat_enable_remote_control=True)
    site.leader()
    node = f"celerybeat@{socket.gethostname()}"

    asked = site.fork_celery("inspect", "ping", "-d", node, "-t", "5")

    assert asked.wait() == 0
    assert f"{node}: OK" in asked.text()


def test_a_worker_may_carry_it_inside(site: Site) -> None:
    site.declare(TICKING, catchup_entries=AT_ONCE, imports=["celery_catchup.worker"])

    worker = site.worker("-B", "--scheduler", OURS)
    diary = site.until_noted(4)

    assert worker.stop() == 0
    begun = [instant(slot) for what, slot, *_ in diary if what == "begin"]
    assert begun == sorted(set(begun))
    assert "Traceback" not in worker.text()


# -- what entries say: one noon with all kinds of them -----------------------------------------

WORK = "tests.projects.declared.work"
NOON = at("12:00:00")


class Noon:
    """A beat that has seen one noon."""

    def __init__(self, site: Site) -> None:
        self.site = site
        options = {"queue": "special", "priority": 3, "expires": 30, "headers": {"tenant": "a"}}
        site.declare(
            {
                "optioned": {"schedule": "0 * * * *", "options": options, "args": [1], "kwargs": {"b": 2}},
                "optioned-stock": {
                    "schedule": {"$crontab": {"minute": 0}},
                    "options": options,
                    "args": [1],
                    "kwargs": {"b": 2},
                },
                "lazy": {"schedule": "0 * * * *", "kwargs": {"stamp": {"$now": None}}},
                "lazy-stock": {"schedule": {"$every": 2}, "kwargs": {"stamp": {"$now": None}}},
                "relative": {"schedule": {"$every": 60}, "relative": True, "args": ["relative"]},
                "two-schedules": ["0 * * * *", "0 12 * * *"],
                "two-schedules-stock": {"schedule": ["0 * * * *", "0 12 * * *"], "args": ["two"]},
                "own-policies": [{"cron": "0 * * * *", "window": "6h"}, {"cron": "30 * * * *"}],
                "stop-and-go": {"start": "0 * * * *", "stop": "30 * * * *", "restart": "45 * * * *"},
                "stop-and-go-stock": {
                    "schedule": {"start": "0 * * * *", "stop": "30 * * * *"},
                    "args": ["stop-and-go"],
                },
                "on-itself": {"schedule": "0 * * * *", "catchup": {"window": "6h"}},
                "unaskable": {"schedule": {"$unaskable": 1}},
                "custom": {"schedule": {"$halves": 3600}, "args": ["custom"]},
                "cron-stock": {"schedule": {"$crontab": {"minute": 0}}, "args": ["cron"]},
            },
            periodic=[
                {"schedule": "0 * * * *", "name": "periodic", "catchup": {"window": "6h"}},
                {
                    "schedule": {"$crontab": {"minute": 0}},
                    "name": "periodic-stock",
                    "headers": {"periodic": 1},
                },
            ],
            catchup_entries={
                name: {"window": "6h", "overlap_policy": "allow"}
                for name in ("optioned", "lazy", "two-schedules", "stop-and-go")
            },
        )
        # The entries are known before: on a slow machine the beat comes after noon, and it is all the same.
        site.set_clock("11:40:00")
        before = site.leader()
        site.until_a_tick_later()
        before.stop()
        site.redis.delete("celery")
        site.set_clock("11:59:57")
        self.beat = site.leader()
        until(lambda: site.messages("stop-and-go"), what="noon")
        until(lambda: len(self.where("stamp")) >= 3, what="lazy arguments")
        site.until_a_tick_later()

    def where(self, mark: str) -> list[Message]:
        """The messages of the entry without a policy that has this among its arguments."""
        stock = [message for message in self.site.messages() if message.entry is None]
        return [message for message in stock if mark in (*message.args, *message.kwargs)]


@pytest.fixture(scope="module")
def noon(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Noon]:
    with services.private_server() as server:
        site = Site(tmp_path_factory.mktemp("noon"), server.url(), nursery)
        try:
            yield Noon(site)
        finally:
            site.close()


def test_queue_priority_expiry_and_headers_of_an_entry_reach_its_message(noon: Noon) -> None:
    # kombu keeps messages of one priority in a list of their own.
    messages = on_redis(noon.site.redis, "special\x06\x163")

    assert [message.entry for message in messages].count("optioned") == 1
    assert len(messages) == 2
    for message in messages:
        assert (message.args, message.kwargs) == ([1], {"b": 2})
        assert message.properties["priority"] == 3
        assert message.headers["tenant"] == "a"
        expires = datetime.fromisoformat(message.headers["expires"]) - datetime.fromisoformat(NOON)
        assert timedelta(seconds=30) <= expires < timedelta(seconds=90)


def test_lazy_arguments_are_made_for_each_message(noon: Noon) -> None:
    (live,) = noon.site.messages("lazy")
    stamps = [message.kwargs["stamp"] for message in noon.where("stamp")]

    assert datetime.fromisoformat(live.kwargs["stamp"])
    assert len(set(stamps)) == len(stamps) >= 3


def test_a_crontab_without_a_policy_tells_its_slot_to_the_second(noon: Noon) -> None:
    assert [message.told for message in noon.where("cron")] == [(NOON, False, "scheduler")]


def test_what_is_known_of_an_entry_is_never_older_than_the_slot_it_ran_for(noon: Noon) -> None:
    ran_at = {
        name: int(noon.site.redis.hget(noon.site.keys.last_runs, name).split()[0])
        for name in ("cron-stock", "custom", "periodic-stock")
    }

    assert {name: at >= instant(NOON) for name, at in ran_at.items()} == dict.fromkeys(ran_at, True)


def test_two_schedules_of_an_entry_at_the_same_time_are_two_runs(noon: Noon) -> None:
    messages = noon.site.messages("two-schedules")

    assert [message.slot for message in messages] == [NOON, NOON]
    assert len({message.run_id for message in messages}) == 2


def test_two_schedules_without_a_policy_are_two_runs_as_well(noon: Noon) -> None:
    messages = noon.site.messages("two-schedules-stock")

    assert [message.told for message in messages] == [(NOON, False, "scheduler")] * 2


def test_a_schedule_may_carry_a_policy_of_its_own(noon: Noon) -> None:
    assert [message.told for message in noon.site.messages("own-policies")] == [(NOON, False, "scheduler")]


def test_only_start_starts_runs(noon: Noon) -> None:
    assert noon.site.slots("stop-and-go") == [NOON]
    assert noon.site.slots("stop-and-go-stock") == [NOON]


def test_a_policy_may_stand_on_the_entry_itself(noon: Noon) -> None:
    assert noon.site.slots("on-itself") == [NOON]


def test_periodic_tasks_take_a_policy_or_none(noon: Noon) -> None:
    assert noon.site.slots("periodic") == [NOON]
    plain = [m for m in noon.site.messages() if m.headers.get("periodic")]
    assert [message.told for message in plain] == [(NOON, False, "scheduler")]
    assert "catchup" not in noon.site.messages("periodic")[0].headers


def test_a_schedule_class_of_the_users_own_runs_as_it_says(noon: Noon) -> None:
    assert len(noon.where("custom")) == 1


def test_a_schedule_that_raises_is_said_once_and_stops_nobody(noon: Noon) -> None:
    (line,) = noon.beat.said("Entry cannot be asked when it is due")

    assert (line["entry"], line["level"]) == ("unaskable", "ERROR")
    assert "a bug in the user's schedule" in line["error"]
    assert noon.beat.text().count("Traceback") == 1


# -- other times -------------------------------------------------------------------------------


def test_results_that_do_not_expire_by_themselves_are_cleaned_up_at_four(site: Site) -> None:
    results = site.folder / "results"
    results.mkdir()
    site.declare(
        {"hourly": "0 * * * *"},
        catchup_entries={"*": "6h"},
        result_backend=f"file://{results}",
        result_expires=3600,
    )
    site.set_clock("03:50:00")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    site.set_clock("04:00:01")
    site.leader()

    messages = until(
        lambda: [m for m in site.messages() if m.headers["task"] == "celery.backend_cleanup"], what="four"
    )

    (message,) = messages
    assert message.entry is None
    expires = datetime.fromisoformat(message.headers["expires"]) - datetime.fromisoformat(at("04:00:00"))
    assert timedelta(hours=11, minutes=59) < expires < timedelta(hours=12, minutes=1)


def test_results_that_expire_by_themselves_need_no_cleaning(site: Site) -> None:
    site.declare({"stock": {"$every": 1}}, result_backend=site.url, result_expires=3600)
    site.leader()
    site.until_a_tick_later()

    assert site.redis.hkeys(site.keys.last_runs) == ["stock"]


def test_a_starting_deadline_keeps_a_late_crontab_from_running(site: Site) -> None:
    entry = {"stock": {"$crontab": {"minute": 0}}, "interval": {"$every": 1800}}
    site.declare(entry, beat_cron_starting_deadline=60)
    site.set_clock("09:05:00")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()

    site.set_clock("12:02:00")
    site.leader()
    site.until_sent(1)
    site.until_a_tick_later()

    assert set(site.redis.hkeys(site.keys.last_runs)) == {"stock", "interval"}
    (late,) = site.messages()
    assert late.slot != NOON


def test_a_relative_interval_keeps_to_whole_units(site: Site) -> None:
    site.declare({"relative": {"schedule": {"$every": 2}, "relative": True}})
    site.leader()

    messages = site.until_sent(2)

    assert {instant(message.slot) % 1000 for message in messages} <= {0}
