"""Read entries from django-celery-beat's tables, so that the admin shows what runs.

Imported only where Django is set up. Enabled rows are entries. An entry of ``beat_schedule`` wins over its
row unless the row is disabled, as when django-celery-beat itself starts. With the app
``celery_catchup.django``, a row may have a policy in the admin; one in ``catchup_entries`` wins over it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from celery.schedules import BaseSchedule, crontab, schedstate
from celery.schedules import schedule as interval
from celery.utils.time import maybe_make_aware
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, InterfaceError, close_old_connections, transaction
from django.db.models import F
from django.utils import timezone
from django_celery_beat.models import PeriodicTask, PeriodicTasks
from kombu.utils import json as kombu_json

from celery_catchup.beat.catchup_entry import CatchupEntry
from celery_catchup.beat.entry_sources import EntrySource
from celery_catchup.beat.row_policies import has_policy_in_settings, policy_mistakes, row_problems
from celery_catchup.clock import SystemClock
from celery_catchup.config.app_settings import read_settings
from celery_catchup.config.configuration import BACKEND_CLEANUP, UNSET, Declaration
from celery_catchup.errors import ScheduleError, SourceError
from celery_catchup.events.recurring_problems import RecurringProblem
from celery_catchup.model import Instant, to_datetime, to_instant

logger = logging.getLogger(__name__)

_loads: Any = kombu_json.loads  # kombu's functions carry no types
_EVERY = 5.0
"""Seconds between two queries for changes, and between two updates of last runs."""
_OPTIONS = ("queue", "exchange", "routing_key", "priority")
_RELATED = ("interval", "crontab", "solar", "clocked")
_POLICY = ("catchup_policy",) if apps.is_installed("celery_catchup.django") else ()
_NEVER = 24 * 3600.0
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class BrokenSchedule(BaseSchedule):  # type: ignore[misc]
    """The schedule of a row that cannot be an entry: it fails whenever it is asked, and says why.

    So the row is an entry that fails: beat reports it with growing intervals, ``status`` shows it, and
    no other row is affected.
    """

    def __init__(self, problem: str, *, app: Any = None) -> None:
        super().__init__(app=app)
        self.problem = problem

    def remaining_estimate(self, last_run_at: datetime) -> NoReturn:
        """Raise what is wrong with the row."""
        raise ScheduleError(self.problem)

    is_due = remaining_estimate

    def __repr__(self) -> str:
        return f"<broken: {self.problem}>"


class RowEntry(CatchupEntry):
    """An entry of the database, with the row's start, end and one-off mark.

    since       when the row last ran, else when it was last changed; None once this beat has sent it
    never_ran   the row has no last run: it is new, or was disabled meanwhile
    once_since  for a row that runs once: since when it waits to. It has no slots that could be missed,
                so it never has a policy
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
        """Return the entry as the configuration reads it."""
        plain = self.once_since is not None or isinstance(self.schedule, BrokenSchedule)
        return replace(super().declaration(), starts=self.starts, ends=self.ends, plain=plain)

    @property
    def last_run_at(self) -> datetime:
        """Return when it last ran, as django-celery-beat counts: runs from before the row was enabled or
        created are ignored, and a row with a start that never ran is due at its start."""
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
        """Return how long before its start a row must have run to be due at the start."""
        if isinstance(self.schedule, interval):
            every: timedelta = self.schedule.run_every
            return every
        return timedelta(milliseconds=1) if isinstance(self.schedule, crontab) else timedelta(days=1)

    def next(self, last_run_at: datetime | None = None) -> RowEntry:
        """Return the entry after a run; the row's own last run no longer matters."""
        following: RowEntry = super().next(last_run_at)
        following.since = None
        return following

    __next__ = next  # Celery's `reserve` calls this

    def is_due(self) -> schedstate:
        """Decide for an entry without a policy: between start and end, and once for a one-off row."""
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


class DjangoSource(EntrySource):
    """Reads the enabled rows of django-celery-beat, again whenever one changes."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._clock = SystemClock()
        self._seen: datetime | None = None
        self._queried_at = self._flushed_at = self._disabled_at = self._clock.monotonic()
        self._sent: dict[str, tuple[Instant, int]] = {}
        self._once: set[str] = set()
        self._ends: dict[str, Instant] = {}
        monotonic = self._clock.monotonic
        self._problem = RecurringProblem("Database cannot be used", logger=logger, monotonic=monotonic)

    def entries(self) -> Mapping[str, Any]:
        """Read the rows by name; a wrong one is an entry that fails. `SourceError` without a database."""
        declared = self._app.conf.beat_schedule
        self.flush()  # a row's last run decides when it is due
        try:
            close_old_connections()
            self._seen = PeriodicTasks.last_change()
            rows = PeriodicTask.objects.filter(enabled=True).order_by("id")
            builder = _RowBuilder(self._app)
            found = {row.name: builder.entry(row) for row in rows.select_related(*_RELATED, *_POLICY)}
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
            fields = {"task": BACKEND_CLEANUP, "schedule": timedelta(days=1), "app": self._app}
            found[BACKEND_CLEANUP] = RowEntry(BACKEND_CLEANUP, **fields, ends=_LONG_AGO)
        return found | {name: _named(name, one) for name, one in declared.items() if name not in disabled}

    def has_changed(self) -> bool:
        """Return whether a row was changed since the last read; a database that fails changes nothing."""
        now = self._clock.monotonic()
        if now - self._queried_at < _EVERY:
            return False
        self._queried_at = now
        latest: list[Any] = []
        answered = self._attempt(lambda: latest.append(PeriodicTasks.last_change()))
        return answered and latest != [self._seen]

    def record_sent(self, name: str, at: Instant) -> None:
        """Record it for the row's ``last_run_at``, which the admin shows."""
        self._sent[name] = (at, self._sent.get(name, (0, 0))[1] + 1)
        if self._clock.monotonic() - self._flushed_at >= _EVERY:
            self.flush()

    def flush(self) -> None:
        """Update the rows that were sent; if the database fails, next time."""
        self._flushed_at = self._clock.monotonic()
        if self._sent and self._attempt(self._update_sent):
            self._sent.clear()

    def disable_expired(self, now: Instant, decided: Callable[[str], bool]) -> None:
        """Disable expired rows, as django-celery-beat does, once all their slots are decided."""
        if not self._ends or self._clock.monotonic() - self._disabled_at < _EVERY:
            return
        self._disabled_at = self._clock.monotonic()
        over = [name for name, ends in self._ends.items() if ends <= now and decided(name)]
        # As when a row is saved that is not enabled: it forgets its last run.
        rows = PeriodicTask.objects.filter(name__in=over)
        if over and self._attempt(lambda: rows.update(enabled=False, last_run_at=None)):
            for name in over:
                del self._ends[name]

    def _attempt(self, access: Callable[[], object]) -> bool:
        """Access the database in one transaction; return whether that worked, and log if not."""
        try:
            close_old_connections()
            with transaction.atomic():
                access()
        except (DatabaseError, InterfaceError) as error:
            self._problem.report(str(error))
            return False
        self._problem.resolved()
        return True

    def _update_sent(self) -> None:
        """Update the rows, not with ``save()``, which would count as a change of the schedule."""
        for name, (at, count) in self._sent.items():
            row = PeriodicTask.objects.filter(name=name)
            if name in self._once:
                row.update(last_run_at=None, total_run_count=0, enabled=False)
            else:
                row.update(last_run_at=_for_database(at), total_run_count=F("total_run_count") + count)
        if self._once & self._sent.keys():
            PeriodicTasks.update_changed()


def _named(name: str, declared: Any) -> Any:
    """Add the header that rows have to an entry of the settings; django-celery-results stores it."""
    options = declared.get("options") or {} if isinstance(declared, Mapping) else None
    if not isinstance(options, Mapping):
        return declared
    headers = {**(options.get("headers") or {}), "periodic_task_name": name}
    return {**declared, "options": {**options, "headers": headers}}


class _RowBuilder:
    """Builds entries from rows; policies that several rows share are checked once."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._checked: dict[str, str] = {}

    def entry(self, row: Any) -> RowEntry:
        """Build an entry from a row; with wrong fields one that fails and says why."""
        try:
            return self._build(row)
        except (DatabaseError, InterfaceError):
            raise
        except Exception as error:  # noqa: BLE001 - a crontab's parser alone raises three kinds
            problem = f"the row cannot be an entry: {error}; correct it in the admin, or disable it"
            schedule = BrokenSchedule(problem, app=self._app)
            return RowEntry(name=row.name, task=row.task, schedule=schedule, app=self._app)

    def _build(self, row: Any) -> RowEntry:
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
            app=self._app,
            catchup=self._policy(row),
            starts=_aware(row.start_time),
            ends=_aware(row.expires),
            since=_aware(row.last_run_at) or changed,
            never_ran=row.last_run_at is None,
            once_since=changed if row.one_off else None,
        )

    def _policy(self, row: Any) -> object:
        """Return the policy that the row has in the admin; `ValueError` if it is wrong."""
        own = getattr(row, "catchup_policy", None)
        if own is None or row.one_off or has_policy_in_settings(self._app, row.name):
            return UNSET
        key = json.dumps(own.policy, sort_keys=True)
        if key not in self._checked:
            self._checked[key] = "; ".join(map(str, policy_mistakes(self._app, own.policy)))
        poll_interval = read_settings(self._app, only=("poll_interval",))
        problems = [self._checked[key], *row_problems(row, poll_interval)]
        if any(problems):
            raise ValueError(f"its catch-up policy: {'; '.join(filter(None, problems))}")
        return own.policy


def _json(row: Any, field: str, kind: type[Any]) -> Any:
    """Parse a field as JSON; `ValueError` when it is not, or of another type."""
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
    """Return a date-time of the database as aware; a naive one (``USE_TZ = False``) is UTC, as theirs."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _set_by_django(moment: datetime) -> datetime:
    """Return a date-time that Django itself wrote as aware; a naive one is in Django's zone."""
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _for_database(at: Instant) -> datetime:
    """Return the instant as Django stores it."""
    moment = to_datetime(at)
    return moment if settings.USE_TZ else moment.replace(tzinfo=None)
