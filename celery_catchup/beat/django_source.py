"""Entries from django-celery-beat's tables: what the admin shows is what runs.

Imported only where Django is set up. Rows that are enabled are entries. An entry of ``beat_schedule``
is taken from there unless its row is disabled, as django-celery-beat itself does at its start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from celery.schedules import BaseSchedule, crontab, schedstate
from celery.schedules import schedule as interval
from celery.utils.time import maybe_make_aware
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, transaction
from django.db.models import F
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks
from kombu.utils import json as kombu_json

from celery_catchup.beat.declared_entries import BACKEND_CLEANUP, CatchupEntry
from celery_catchup.clock import SystemClock
from celery_catchup.config.configuration import Declaration
from celery_catchup.errors import ScheduleError, SourceError
from celery_catchup.events.recurring_problems import RecurringProblem
from celery_catchup.model import Instant, to_datetime, to_instant

logger = logging.getLogger(__name__)

_loads: Any = kombu_json.loads  # kombu's functions carry no types
_EVERY = 5.0
"""Seconds between two looks at the tables, and between two notes of what was sent."""
_OPTIONS = ("queue", "exchange", "routing_key", "priority")
_NEVER = 24 * 3600.0
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class BrokenSchedule(BaseSchedule):  # type: ignore[misc]
    """The schedule of a row that cannot be an entry: it fails whenever it is asked, and says why.

    So the row is an entry that fails: beat reports it with growing intervals, ``status`` shows it, and
    no other row is concerned.
    """

    def __init__(self, problem: str, *, app: Any = None) -> None:
        super().__init__(app=app)
        self.problem = problem

    def remaining_estimate(self, last_run_at: datetime) -> NoReturn:
        """Say what is wrong with the row."""
        raise ScheduleError(self.problem)

    def is_due(self, last_run_at: datetime) -> NoReturn:
        """Say what is wrong with the row."""
        raise ScheduleError(self.problem)

    def __repr__(self) -> str:
        return f"<broken: {self.problem}>"


class RowEntry(CatchupEntry):
    """An entry of the database, with the row's start, end and one-off mark.

    since       when the row last ran, else when it was last changed; None once this beat has sent it
    never_ran   the row knows of no last run: it is new, or was disabled meanwhile
    once_since  for a row that runs once: since when it waits to. It has no slots that could be missed,
                so that it never has a policy
    """

    def __init__(
        self,
        *args: Any,
        starts: datetime | None = None,
        ends: datetime | None = None,
        since: datetime | None = None,
        never_ran: bool = False,
        once_since: datetime | None = None,
        **fields: Any,
    ) -> None:
        self.starts, self.ends = starts, ends
        self.since, self.never_ran, self.once_since = since, never_ran, once_since
        super().__init__(*args, **fields)

    def declaration(self) -> Declaration:
        """The entry as the configuration reads it."""
        plain = self.once_since is not None or isinstance(self.schedule, BrokenSchedule)
        return replace(super().declaration(), starts=self.starts, ends=self.ends, plain=plain)

    @property
    def last_run_at(self) -> datetime:
        """When it last ran, as django-celery-beat counts: what is known of runs before the row was enabled
        or created does not matter, and a row with a start that never ran is due at its start."""
        known: datetime = vars(self)["last_run_at"]
        if self.since is None or (self.total_run_count and known > self.since):
            return known
        last = self.since
        if self.never_ran and self.starts is not None:
            last = self.starts - self._step()
        return last.astimezone(known.tzinfo)

    @last_run_at.setter
    def last_run_at(self, moment: datetime) -> None:
        self.__dict__["last_run_at"] = moment

    def _step(self) -> timedelta:
        """How long before its start a row must have run to be due at it; a crontab at a slot from then on."""
        if isinstance(self.schedule, interval):
            every: timedelta = self.schedule.run_every
            return every
        return timedelta(milliseconds=1) if isinstance(self.schedule, crontab) else timedelta(days=1)

    def next(self, last_run_at: datetime | None = None) -> RowEntry:
        """The entry after a run; what the row said before does not matter any more."""
        following: RowEntry = super().next(last_run_at)
        following.since = None
        return following

    __next__ = next  # what Celery's `reserve` calls

    def is_due(self) -> schedstate:
        """Without a policy: as the row says; one that runs once is due no more when it has run."""
        now = maybe_make_aware(self.default_now())
        if self.starts is not None and now < self.starts:
            return schedstate(False, (self.starts - now).total_seconds())
        if self._has_run_once() or (self.ends is not None and now >= self.ends):
            return schedstate(False, _NEVER)
        return super().is_due()

    def _has_run_once(self) -> bool:
        if self.once_since is None or not self.total_run_count:
            return False
        return self.since is None or vars(self)["last_run_at"] > self.once_since


class DjangoSource:
    """The enabled rows of django-celery-beat, looked at again when somebody changes one."""

    def __init__(self, app: Any) -> None:
        self._app, self._clock = app, SystemClock()
        self._seen: datetime | None = None
        self._looked_at = self._flushed_at = self._retired_at = self._clock.monotonic()
        self._sent: dict[str, tuple[Instant, int]] = {}
        self._once: set[str] = set()
        self._ends: dict[str, Instant] = {}
        self._trouble = RecurringProblem(
            "Database cannot be used", logger=logger, monotonic=self._clock.monotonic
        )

    def entries(self) -> Mapping[str, Any]:
        """Rows by name; one that cannot be an entry fails by itself. `SourceError` without a database."""
        declared = self._app.conf.beat_schedule
        self.flush()  # a row's last run decides when it is due
        try:
            close_old_connections()
            self._seen = PeriodicTasks.last_change()
            rows = PeriodicTask.objects.filter(enabled=True).order_by("id")
            found = {
                row.name: _entry(row, self._app)
                for row in rows.select_related("interval", "crontab", "solar", "clocked")
            }
            names = [*declared, BACKEND_CLEANUP]
            disabled = set(
                PeriodicTask.objects.filter(enabled=False, name__in=names).values_list("name", flat=True)
            )
        except (DatabaseError, InterfaceError) as error:
            raise SourceError(f"the database does not answer: {error}") from error
        self._once = {name for name, entry in found.items() if entry.once_since is not None}
        self._ends = {name: to_instant(entry.ends) for name, entry in found.items() if entry.ends is not None}
        if BACKEND_CLEANUP in disabled:
            # Beat would add its own; this one is never due.
            found[BACKEND_CLEANUP] = RowEntry(
                name=BACKEND_CLEANUP,
                task=BACKEND_CLEANUP,
                schedule=timedelta(days=1),
                app=self._app,
                ends=_LONG_AGO,
            )
        return found | {name: _named(name, one) for name, one in declared.items() if name not in disabled}

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
            self._trouble.report(str(error))
            return False
        self._trouble.resolved()
        return changed

    def sent(self, name: str, at: Instant) -> None:
        """Remember it for the row's ``last_run_at``, which the admin shows."""
        self._sent[name] = (at, self._sent.get(name, (0, 0))[1] + 1)
        if self._clock.monotonic() - self._flushed_at >= _EVERY:
            self.flush()

    def flush(self) -> None:
        """Write it down; what the database does not take is written next time."""
        self._flushed_at = self._clock.monotonic()
        if self._sent and self._written(self._note_sent):
            self._sent.clear()

    def retire(self, now: Instant, decided: Callable[[str], bool]) -> None:
        """Disable rows that have expired, as django-celery-beat does, once all their slots are decided."""
        if not self._ends or self._clock.monotonic() - self._retired_at < _EVERY:
            return
        self._retired_at = self._clock.monotonic()
        over = [name for name, ends in self._ends.items() if ends <= now and decided(name)]
        if over and self._written(lambda: _disable(over)):
            for name in over:
                del self._ends[name]

    def _written(self, write: Callable[[], None]) -> bool:
        """Write everything or nothing; whether the database took it."""
        try:
            close_old_connections()
            with transaction.atomic():
                write()
        except (DatabaseError, InterfaceError) as error:
            self._trouble.report(str(error))
            return False
        self._trouble.resolved()
        return True

    def _note_sent(self) -> None:
        """Not by ``save()``, which would count as a change of the schedule."""
        for name, (at, count) in self._sent.items():
            row = PeriodicTask.objects.filter(name=name)
            if name in self._once:
                row.update(last_run_at=None, total_run_count=0, enabled=False)
            else:
                row.update(last_run_at=_for_database(at), total_run_count=F("total_run_count") + count)
        if self._once & self._sent.keys():
            PeriodicTasks.update_changed()


def _named(name: str, declared: Any) -> Any:
    """An entry of the settings with the header that rows have; django-celery-results stores it."""
    options = declared.get("options") or {} if isinstance(declared, Mapping) else None
    if not isinstance(options, Mapping):
        return declared
    headers = {**(options.get("headers") or {}), "periodic_task_name": name}
    return {**declared, "options": {**options, "headers": headers}}


def _disable(names: list[str]) -> None:
    """As a row is saved that is not enabled: it forgets its last run."""
    PeriodicTask.objects.filter(name__in=names).update(enabled=False, last_run_at=None)


def _entry(row: Any, app: Any) -> RowEntry:
    """A row as an entry; with wrong fields one that fails and says why."""
    try:
        return _made(row, app)
    except (DatabaseError, InterfaceError):
        raise
    except Exception as error:  # noqa: BLE001 - a crontab's parser alone raises three kinds
        problem = f"the row cannot be an entry: {error}; correct it in the admin, or disable it"
        return RowEntry(name=row.name, task=row.task, schedule=BrokenSchedule(problem, app=app), app=app)


def _made(row: Any, app: Any) -> RowEntry:
    if row.scheduler is None:
        raise ValueError("expected an interval, a crontab, a solar event or a clocked time, got none")
    options = {name: getattr(row, name) for name in _OPTIONS if getattr(row, name) is not None}
    if row.expires_:
        options["expires"] = row.expires_
    options["headers"] = {**_json(row, "headers", dict), "periodic_task_name": row.name}
    changed = _set_by_django(row.date_changed)
    return RowEntry(
        name=row.name,
        task=row.task,
        schedule=row.schedule,
        args=_json(row, "args", list),
        kwargs=_json(row, "kwargs", dict),
        options=options,
        app=app,
        starts=_aware(row.start_time),
        ends=_aware(row.expires),
        since=_aware(row.last_run_at) or changed,
        never_ran=row.last_run_at is None,
        once_since=changed if row.one_off else None,
    )


def _json(row: Any, field: str, kind: type[Any]) -> Any:
    """A field as JSON; `ValueError` when it is none, or of another type."""
    written = getattr(row, field) or "null"
    what = f"{field}: expected a JSON {'array' if kind is list else 'object'}, got {written[:100]!r}"
    try:
        found = _loads(written)
    except ValueError as error:
        raise ValueError(f"{what} ({error})") from error
    if found and not isinstance(found, kind):
        raise ValueError(what)
    return found or kind()


def _aware(moment: datetime | None) -> datetime | None:
    """A date-time of the database; without a zone (``USE_TZ = False``) it is UTC, as theirs is."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _set_by_django(moment: datetime) -> datetime:
    """A date-time that Django wrote by itself; without a zone it is of Django's."""
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _for_database(at: Instant) -> datetime:
    """The instant as Django takes it."""
    moment = to_datetime(at)
    return moment if settings.USE_TZ else moment.replace(tzinfo=None)
