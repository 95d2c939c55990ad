"""Version 0.1's example projects run unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import ROOT, until
from tests.acceptance.programs import Program

PROJECTS = ROOT / "tests" / "projects" / "version_0_1"
ROW = """
import django; django.setup()
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
PeriodicTask.objects.create(name="count-sales", task="shop.count_sales", interval=every)
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def project(redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    opened: list[Program] = []

    def open_project(folder: str, *, app: str, **environ: str) -> Program:
        environ["CELERY_BROKER_URL"] = redis_url
        opened.append(Program(tmp_path, app=app, cwd=PROJECTS / folder, environ=environ))
        return opened[-1]

    yield open_project
    for program in opened:
        program.end()


def succeeded(program: Program, entry: str) -> list[Any]:
    return [run for run in program.catchup("runs", entry)["runs"] if run["state"] == "succeeded"]


def test_the_example_of_every_policy(project: Callable[..., Program]) -> None:
    program = project(".", app="tasks")
    worker = program.start("worker", "--pool", "solo", "--loglevel", "INFO")
    program.start("beat", "--pidfile", "").until_it_says('msg="Leading"')

    program.catchup("run", "poll-inbox")

    worker.until_it_says("tasks.poll for 20")
    worker.until_it_says("tasks.heartbeat for 20")


def test_the_etl_example(project: Callable[..., Program], tmp_path: Path) -> None:
    program = project("etl", app="etl", WAREHOUSE=str(tmp_path / "warehouse.sqlite3"))
    program.start("worker", "--pool", "solo", "--loglevel", "INFO")
    program.start("beat", "--pidfile", "").until_it_says('msg="Leading"')

    program.catchup("run", "hourly-sales")

    until(lambda: succeeded(program, "hourly-sales"), what="the end of the run", step=0.3)


def test_the_django_example(project: Callable[..., Program], tmp_path: Path) -> None:
    pytest.importorskip("django_celery_beat")
    book = tmp_path / "book"
    environ = {"SHOP_DATABASE": str(tmp_path / "shop.sqlite3"), "SHOP_BOOK": str(book)}
    program = project("django", app="shop", DJANGO_SETTINGS_MODULE="shop.settings", **environ)
    program.python("manage.py", "migrate", "--verbosity", "0")
    program.python("-c", ROW)

    program.start("worker", "--pool", "solo", "--loglevel", "INFO")
    program.start("beat", "--pidfile", "")

    until(lambda: book.exists() and book.read_text().count("scheduler\n") >= 2, what="two runs of the row")


def test_the_flower_example(project: Callable[..., Program]) -> None:
    pytest.importorskip("flower")

    project(".", app="tasks").python("-c", "import flowerconfig")
