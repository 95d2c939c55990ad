"""``examples/etl``: a run loads the hour of its slot, and running it again changes nothing."""

from __future__ import annotations

import importlib.util
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import services
from tests.acceptance.processes import ROOT, until
from tests.acceptance.programs import Program

FOLDER = ROOT / "examples" / "etl"
POSTGRESQL = os.environ.get("CATCHUP_TEST_POSTGRESQL", "postgresql://127.0.0.1:5432/test")
ORDERS_AN_HOUR = 250  # more than two of the example's pages


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def postgresql() -> Iterator[str]:
    """A schema of the test's own in the server's database; nothing of it is left."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    schema = f"catchup_{uuid.uuid4().hex}"
    try:
        connection = psycopg.connect(POSTGRESQL, connect_timeout=2, autocommit=True)
    except psycopg.OperationalError as error:
        services.missing("postgresql", f"nothing answers ({error})")
    with connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            yield f"{POSTGRESQL}?options=-csearch_path%3D{schema}"
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(params=["sqlite", "postgresql"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "warehouse.sqlite3")
        return
    with postgresql() as url:
        yield url


@pytest.fixture
def store(warehouse: str) -> Iterator[Any]:
    """The example's own way to its tables."""
    spec = importlib.util.spec_from_file_location("example_warehouse", FOLDER / "warehouse.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.open_warehouse(warehouse) as opened:
        yield opened


@pytest.fixture
def program(redis_url: str, warehouse: str, tmp_path: Path) -> Iterator[Program]:
    environ = {"CELERY_BROKER_URL": redis_url, "WAREHOUSE": warehouse}
    program = Program(tmp_path, app="etl", cwd=FOLDER, environ=environ)
    yield program
    program.end()


def test_three_hours_are_loaded_and_loading_them_again_changes_nothing(program: Program, store: Any) -> None:
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [end - timedelta(hours=distance) for distance in (3, 2, 1)]
    orders = [
        (1 + ORDERS_AN_HOUR * index + number, stamp(hour + timedelta(seconds=number)), 2)
        for index, hour in enumerate(hours)
        for number in range(ORDERS_AN_HOUR)
    ]
    store.write("INSERT INTO shop_orders (id, at, amount) VALUES (?, ?, ?)", orders)
    program.start("worker", "--pool", "solo", "--loglevel", "INFO")
    program.start("beat", "--pidfile", "")

    first = backfilled(program, store, hours, reprocess="none")
    again = backfilled(program, store, hours, reprocess="completed")

    assert [row[:3] for row in first] == [(stamp(hour), ORDERS_AN_HOUR, 2 * ORDERS_AN_HOUR) for hour in hours]
    assert again == first
    assert {run["attempt"] for run in program.catchup("runs")["runs"]} == {2}


def backfilled(
    program: Program, store: Any, hours: list[datetime], *, reprocess: str
) -> list[tuple[Any, ...]]:
    """Run the slots that end these hours, to their end; the rows that are there then."""
    first, last = (stamp(hours[place] + timedelta(hours=1)) for place in (0, -1))
    program.catchup(
        "backfill", "hourly-sales", "--start", first, "--end", last, "--reprocess", reprocess, "-f"
    )
    attempt = 1 if reprocess == "none" else 2

    def done() -> bool:
        runs = program.catchup("runs")["runs"]
        return [(run["state"], run["attempt"]) for run in runs] == [("succeeded", attempt)] * len(hours)

    until(done, what="the end of the backfill", step=0.2, within=60)
    return list(store.read("SELECT hour, orders, amount, run_id FROM hourly_sales ORDER BY hour"))
