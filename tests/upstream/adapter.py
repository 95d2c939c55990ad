"""Put our scheduler where upstream's tests look for their own. A pytest plugin, loaded with ``-p``.

Without ``UPSTREAM_REDIS_URL`` nothing is replaced, and the tests run against upstream's scheduler: what
fails then fails because of the machine. The outcome of each test goes to ``UPSTREAM_OUTCOMES``, as JSON.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import beat

from celery_catchup.beat.catchup_entry import CatchupEntry
from celery_catchup.beat.scheduler import Scheduler
from celery_catchup.clock import SystemClock

_REPLACES = "UPSTREAM_REDIS_URL" in os.environ
_USES_DJANGO = "DJANGO_SETTINGS_MODULE" in os.environ
_numbers = itertools.count()
_outcomes: dict[str, str] = {}


class ClockWithoutThreads(SystemClock):
    """Celery's tests close no scheduler, and refuse threads that outlive a test."""

    def every(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class AdaptedScheduler(Scheduler):
    """Ours, for an app whose settings do not know us. Each one begins without stored state."""

    clock = ClockWithoutThreads()

    def __init__(self, app: Any, *args: Any, **kwargs: Any) -> None:
        app.conf.catchup_redis_url = os.environ["UPSTREAM_REDIS_URL"]
        app.conf.catchup_namespace = f"upstream-{next(_numbers)}"
        app.conf.catchup_source = "django" if _USES_DJANGO else "settings"
        # We wake up once a second to renew the lease; upstream sleeps until an entry is due.
        app.conf.catchup_poll_interval, app.conf.catchup_lease_ttl = "1h", "3h"
        super().__init__(app, *args, **kwargs)

    _begun = False

    def add(self, **kwargs: Any) -> Any:
        """Add it to a beat that runs: before the first tick, the stored last run would count."""
        if not self._begun:
            self.tick()
        return super().add(**kwargs)

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Return what Celery's would: it sends one entry and returns 0, and wakes up 10 ms early.

        To a tenth of a second, because time passes while our tick asks Redis.
        """
        self._begun = True
        before = self._counts()
        wait = round(super().tick(*args, **kwargs), 1)
        if self._counts() != before:
            return 0
        return wait if wait >= self.max_interval else max(0, self.adjust(wait))

    def _counts(self) -> dict[str, int]:
        return {name: entry.total_run_count for name, entry in self.schedule.items()}


class AdaptedPersistentScheduler(AdaptedScheduler):
    """The same in the place of `PersistentScheduler`."""


# Parameters of upstream's tests are named after the classes.
AdaptedScheduler.__name__, AdaptedPersistentScheduler.__name__ = "Scheduler", "PersistentScheduler"


def pytest_configure(config: pytest.Config) -> None:
    """Replace the classes before a test module is imported, which derives its own from them."""
    config.addinivalue_line("markers", "celery: settings of the test's app")
    config.addinivalue_line("markers", "timeout: seconds")
    if _USES_DJANGO:
        import django

        django.setup()
        # pytest-django's mark, which is on fixtures too; pytest 9 refuses that.
        pytest.mark.django_db = lambda marked: marked
    if not _REPLACES:
        return
    beat.Scheduler, beat.PersistentScheduler = AdaptedScheduler, AdaptedPersistentScheduler
    beat.Service.scheduler_cls = AdaptedPersistentScheduler
    beat.ScheduleEntry = CatchupEntry
    if _USES_DJANGO:
        _replace_django_schedulers()


def _replace_django_schedulers() -> None:
    from django.utils import timezone
    from django_celery_beat import schedulers

    from celery_catchup.beat.django_source import RowEntry, _RowBuilder

    class AdaptedRowEntry(RowEntry):
        """Our entry of a row, made from the row as `ModelEntry` is, or from its fields as `next` does."""

        def __init__(self, model: Any = None, app: Any = None, **fields: Any) -> None:
            if model is None:
                super().__init__(app=app, **fields)
                return
            model.date_changed = model.date_changed or timezone.now()  # ours come from the database
            self.__dict__.update(_RowBuilder(app).entry(model).__dict__)
            self.model = model

    class AdaptedDatabaseScheduler(AdaptedScheduler):
        """Ours, which makes entries of rows by itself."""

        def __init_subclass__(cls) -> None:
            """Keep our `Entry`: those of the tests take a row and nothing else."""
            cls.Entry = CatchupEntry

    schedulers.DatabaseScheduler, schedulers.ModelEntry = AdaptedDatabaseScheduler, AdaptedRowEntry


@pytest.fixture(scope="session", autouse=True)
def _test_databases() -> Iterator[None]:
    """What pytest-django does: a database for the session."""
    if not _USES_DJANGO:
        yield
        return
    from django.test.utils import setup_databases, teardown_databases

    made = setup_databases(verbosity=0, interactive=False)
    yield
    teardown_databases(made, verbosity=0)


@pytest.fixture(autouse=True)
def _rolled_back(_test_databases: None) -> Iterator[None]:
    """What pytest-django does: nothing that a test writes is there in the next."""
    if not _USES_DJANGO:
        yield
        return
    from django.db import transaction

    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst of a test's phases, with the line that names its error."""
    if report.failed:
        errors = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
        _outcomes[report.nodeid] = f"failed: {errors[0][1:].strip() if errors else report.when}"
    elif report.when == "call" or report.skipped:
        _outcomes.setdefault(report.nodeid, report.outcome)


def pytest_sessionfinish() -> None:
    """Write the outcomes down."""
    Path(os.environ["UPSTREAM_OUTCOMES"]).write_text(json.dumps(_outcomes))
