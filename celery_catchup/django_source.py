"""Entries from django-celery-beat's tables: what the admin shows is what runs.

Imported only where Django is set up. Rows that are enabled are entries; what also stands in
``beat_schedule`` is taken from there, as django-celery-beat itself does at its start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from celery.schedules import schedstate
from django.db import DatabaseError, InterfaceError, close_old_connections, transaction
from django.db.models import F
from django_celery_beat.models import PeriodicTask, PeriodicTasks
from kombu.utils import json as kombu_json

from celery_catchup.clock import SystemClock
from celery_catchup.configuration import Declaration
from celery_catchup.declarations import CatchupEntry
from celery_catchup.errors import SourceError
from celery_catchup.logs import logfmt
from celery_catchup.model import Instant, to_datetime
from celery_catchup.troubles import Trouble

logger = logging.getLogger(__name__)

_loads: Any = kombu_json.loads  # kombu's functions carry no types
_EVERY = 5.0
"""Seconds between two looks at the tables, and between two notes of what was sent."""
_OPTIONS = ("queue", "exchange", "routing_key", "priority")
_NEVER = 24 * 3600.0


class RowEntry(CatchupEntry):
    """An entry of the database, with the row's start, end and one-off mark.

    ``once_since`` is for a row that runs once: since when it waits to. It has no slots that could be
    missed, so that it never has a policy.
    """

    def __init__(
        self,
        *args: Any,
        starts: datetime | None = None,
        ends: datetime | None = None,
        once_since: datetime | None = None,
        **fields: Any,
    ) -> None:
        self.starts, self.ends, self.once_since = starts, ends, once_since
        super().__init__(*args, **fields)

    def declaration(self) -> Declaration:
        """The entry as the configuration reads it."""
        return replace(
            super().declaration(), starts=self.starts, ends=self.ends, plain=self.once_since is not None
        )

    def is_due(self) -> schedstate:
        """Without a policy: as the row says; one that runs once is due no more when it has run."""
        now = self.default_now()
        if self.starts is not None and now < self.starts:
            return schedstate(False, (self.starts - now).total_seconds())
        done = self.once_since is not None and self.total_run_count > 0 and self.last_run_at > self.once_since
        if done or (self.ends is not None and now >= self.ends):
            return schedstate(False, _NEVER)
        return super().is_due()


class DjangoSource:
    """The enabled rows of django-celery-beat, looked at again when somebody changes one."""

    def __init__(self, app: Any) -> None:
        self._app, self._clock = app, SystemClock()
        self._seen: datetime | None = None
        self._looked_at = self._flushed_at = self._clock.monotonic()
        self._sent: dict[str, tuple[Instant, int]] = {}
        self._once: set[str] = set()
        self._trouble = Trouble("Database cannot be used", logger=logger, monotonic=self._clock.monotonic)

    def entries(self) -> Mapping[str, Any]:
        """Rows by name; what cannot be read is left out, and said. `SourceError` without a database."""
        try:
            close_old_connections()
            self._seen = PeriodicTasks.last_change()
            found = dict(self._made(PeriodicTask.objects.filter(enabled=True)))
        except (DatabaseError, InterfaceError) as error:
            raise SourceError(f"the database does not answer: {error}") from error
        self._once = {name for name, entry in found.items() if entry.once_since is not None}
        return {**found, **self._app.conf.beat_schedule}

    def _made(self, rows: Any) -> Iterator[tuple[str, RowEntry]]:
        for row in rows.select_related("interval", "crontab", "solar", "clocked").order_by("id"):
            try:
                yield row.name, _entry(row, self._app)
            except (ValueError, TypeError, AttributeError) as error:
                logger.error(logfmt("Row cannot be made an entry", entry=row.name, error=str(error)))

    def has_changed(self) -> bool:
        """Whether a row was changed since the last look; a database that is away changes nothing."""
        now = self._clock.monotonic()
        if now - self._looked_at < _EVERY:
            return False
        self._looked_at = now
        try:
            close_old_connections()
            changed = bool(PeriodicTasks.last_change() != self._seen)
        except (DatabaseError, InterfaceError) as error:
            self._trouble.happened(str(error))
            return False
        self._trouble.over()
        return changed

    def sent(self, name: str, at: Instant) -> None:
        """Remember it for the row's ``last_run_at``, which the admin shows."""
        self._sent[name] = (at, self._sent.get(name, (0, 0))[1] + 1)
        if self._clock.monotonic() - self._flushed_at >= _EVERY:
            self.flush()

    def flush(self) -> None:
        """Write it down; what the database does not take is written next time."""
        self._flushed_at = self._clock.monotonic()
        if not self._sent:
            return
        try:
            close_old_connections()
            with transaction.atomic():
                for name, (at, count) in self._sent.items():
                    self._note(name, at, count)
        except (DatabaseError, InterfaceError) as error:
            self._trouble.happened(str(error))
            return
        self._trouble.over()
        if self._once & self._sent.keys():
            PeriodicTasks.update_changed()
        self._sent.clear()

    def _note(self, name: str, at: Instant, count: int) -> None:
        """Not by ``save()``, which would count as a change of the schedule."""
        row = PeriodicTask.objects.filter(name=name)
        if name in self._once:
            row.update(last_run_at=to_datetime(at), total_run_count=0, enabled=False)
        else:
            row.update(last_run_at=to_datetime(at), total_run_count=F("total_run_count") + count)


def _entry(row: Any, app: Any) -> RowEntry:
    """A row as an entry; `ValueError` and its like when somebody wrote what is none."""
    options = {name: getattr(row, name) for name in _OPTIONS if getattr(row, name) is not None}
    if row.expires_:
        options["expires"] = row.expires_
    options["headers"] = {**_loads(row.headers or "{}"), "periodic_task_name": row.name}
    return RowEntry(
        name=row.name,
        task=row.task,
        schedule=row.schedule,
        args=_loads(row.args or "[]"),
        kwargs=_loads(row.kwargs or "{}"),
        options=options,
        app=app,
        starts=row.start_time,
        ends=row.expires,
        once_since=row.date_changed if row.one_off else None,
    )
