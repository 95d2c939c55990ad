"""Switching an app to celery-catchup across a stop of both schedulers: no slot is lost on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.acceptance.processes import ROOT, Started, until
from tests.acceptance.programs import Program

EVERY = timedelta(seconds=2)
SHOP = ROOT / "examples" / "django"
QUEUE = "celery"


class Switch(Program):
    """One project, its broker, and the schedulers that are started in it."""

    def __init__(self, url: str, folder: Path, *, app: str, cwd: Path = ROOT) -> None:
        environ = {
            "CATCHUP_TEST_URL": url,
            "CELERY_BROKER_URL": url,
            "SHOP_DATABASE": str(folder / "shop.sqlite3"),
        }
        super().__init__(folder, app=app, cwd=cwd, environ=environ)
        self.redis = Redis.from_url(url)

    def beat(self, *options: str) -> Started:
        """Start a beat with these options."""
        return self.start("beat", "--pidfile", "", *options)

    def sent(self) -> int:
        return int(self.redis.llen(QUEUE))  # type: ignore[arg-type]

    def play(self, *options: str) -> None:
        """The scheduler of before sends something, and is stopped; then some slots pass with none."""
        before = self.beat(*options)
        try:
            until(lambda: self.sent() >= 2 or not before.alive, what="two runs of the other scheduler")
            assert before.alive, before.text()
            time.sleep(EVERY.total_seconds() / 4)  # a signal while it sends can hang Celery's own beat
        finally:
            before.stop()
        time.sleep(3 * EVERY.total_seconds())

    def end(self) -> None:
        super().end()
        self.redis.close()


@pytest.fixture
def project(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Switch]]:
    made: list[Switch] = []

    def make(app: str = "tests.projects.switching", **options: Any) -> Switch:
        made.append(Switch(redis_url, tmp_path, app=app, **options))
        return made[-1]

    yield make
    for switch in made:
        switch.end()


def check_that_nothing_was_lost(switch: Switch, entry: str, last_run: str, *, begun: datetime) -> None:
    """Every slot since the last run of before has its run, each once: those that nobody was there
    for, and those after."""
    until(lambda: slots(switch, entry)[-1:] > [begun + EVERY], what="a run after the switch", step=0.3)
    found = slots(switch, entry)
    assert abs(found[0] - datetime.fromisoformat(last_run) - EVERY) < timedelta(milliseconds=5)
    assert {later - earlier for earlier, later in pairwise(found)} == {EVERY}
    assert len([slot for slot in found if slot < begun]) >= 2


def slots(switch: Switch, entry: str) -> list[datetime]:
    runs = switch.catchup("runs", entry)["runs"]
    return [datetime.fromisoformat(run["scheduledTime"]) for run in reversed(runs)]


def only(told: Any) -> dict[str, Any]:
    (entry,) = told["entries"]
    assert entry["fate"] == "taken over"
    return dict(entry)


def test_from_celerys_own_scheduler(project: Callable[..., Switch], tmp_path: Path) -> None:
    switch = project()
    file = str(tmp_path / "celerybeat-schedule")
    switch.play("-s", file)

    told = only(switch.catchup("import", "shelve", "-s", file))
    begun = datetime.now(UTC)
    switch.beat("-S", "celery_catchup.Scheduler")

    check_that_nothing_was_lost(switch, "tick", told["lastRunAt"], begun=begun)


def test_from_redbeat(project: Callable[..., Switch]) -> None:
    switch = project()
    switch.play("-S", "redbeat.RedBeatScheduler")

    told = only(switch.catchup("import", "redbeat"))
    begun = datetime.now(UTC)
    switch.beat("-S", "celery_catchup.Scheduler")

    check_that_nothing_was_lost(switch, "tick", told["lastRunAt"], begun=begun)


ROW = """
import django; django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=2, period="seconds")
PeriodicTask.objects.create(name="count-sales", task="shop.count_sales", interval=every)
"""


def test_from_django_celery_beat(project: Callable[..., Switch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    switch = project("shop", cwd=SHOP)
    switch.python("-c", ROW)
    switch.play("-S", "django_celery_beat.schedulers:DatabaseScheduler")

    told = only(switch.catchup("import", "django"))
    begun = datetime.now(UTC)
    switch.beat()

    check_that_nothing_was_lost(switch, "count-sales", told["lastRunAt"], begun=begun)


def test_back_to_celerys_own_scheduler_by_leaving_out_one_option(
    project: Callable[..., Switch], tmp_path: Path
) -> None:
    switch = project()
    ours = switch.beat("-S", "celery_catchup.Scheduler")
    until(lambda: switch.sent() >= 1, what="a run of ours")
    ours.stop()
    before = switch.sent()

    theirs = switch.beat("-s", str(tmp_path / "celerybeat-schedule"))

    until(lambda: switch.sent() >= before + 2, what="two runs of Celery's own scheduler")
    assert theirs.alive
    assert "Traceback" not in theirs.text()
