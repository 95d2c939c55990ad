"""Check-ins of Sentry: call what wraps ``celery.beat.Scheduler.apply_entry``, as Celery's beat does.

sentry-sdk wraps that method: it opens a check-in for the entry, and puts its id among the headers of the
message. This beat does not send there, so the method is called on a copy of the entry that sends nothing,
and the headers of the copy are sent.

The wrapper also begins a trace for each message of beat. Runs without a check-in get theirs from
`begin_trace`; without it they would belong to the trace of the last check-in.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from celery import beat
from celery.schedules import ParseException, crontab

from celery_catchup.config.settings import Checkins
from celery_catchup.dispatch.celery_internals import is_original
from celery_catchup.model import Trigger

_MOST = 10_000
"""Runs whose check-ins are remembered, so that a message that is made again opens no second one."""
_TRIGGERS: Mapping[Checkins, frozenset[str]] = {
    Checkins.NONE: frozenset(),
    Checkins.LIVE: frozenset({Trigger.SCHEDULER}),
    Checkins.ALL: frozenset({Trigger.SCHEDULER, Trigger.CATCHUP}),
}


class SentryCheckins:
    """Open one check-in for each run, however often its message is made.

    ``which`` is None outside of beat: a run that is started by hand has no check-in, and belongs to the
    trace of the process that starts it.
    """

    def __init__(self, app: Any, which: Checkins | None) -> None:
        self._app, self._is_beat = app, which is not None
        self._triggers = _TRIGGERS[which or Checkins.NONE]
        self._opened: OrderedDict[tuple[str, int], Any] = OrderedDict()

    def wanted(self, run: Mapping[str, Any] | None) -> bool:
        """Tell whether ``apply_entry`` is wrapped, and such a run is to be checked in."""
        return run is not None and run["trigger"] in self._triggers and _is_wrapped()

    def begin_trace(self) -> None:
        """Begin a trace for the next message, as Celery's beat does for each."""
        sentry: Any = sys.modules.get("sentry_sdk") if self._is_beat and _is_wrapped() else None
        if hasattr(sentry, "get_isolation_scope"):  # not before sentry-sdk 2
            sentry.get_isolation_scope().set_new_propagation_context()

    def opened(self, entry: beat.ScheduleEntry, run: Mapping[str, Any]) -> beat.ScheduleEntry:
        """Open the check-in of a run, and return the entry with its headers."""
        key = str(entry.name), int(run["slot"])
        if key not in self._opened:
            self._opened[key] = self._call(entry)
            if len(self._opened) > _MOST:
                self._opened.popitem(last=False)
        changed = type(entry)(**dict(entry))
        changed.options = self._opened[key]
        return changed

    def _call(self, entry: beat.ScheduleEntry) -> dict[str, Any]:
        """Call the wrapped method with a copy, and return the copy's options."""
        shown = type(entry)(**dict(entry))
        shown.options = {**entry.options, "headers": copy.deepcopy(entry.options.get("headers") or {})}
        shown.schedule = _as_crontab(entry.schedule)
        beat.Scheduler.apply_entry(_NoScheduler(self._app), shown, producer=None)
        return dict(shown.options)


class _NoScheduler:
    """Stand in for the scheduler, and send nothing."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def apply_async(self, *_: Any, **__: Any) -> None:
        """Send nothing: the run is sent later, in one step with its record."""


def _is_wrapped() -> bool:
    """Tell whether Celery's own method is replaced or wrapped."""
    return not is_original(beat.Scheduler.apply_entry, beat)


def _as_crontab(schedule: Any) -> Any:
    """Turn a cron string into Celery's crontab, where Celery can read it."""
    try:
        minute, hour, day, month, weekday = str(getattr(schedule, "written", None)).split()
        return crontab(minute, hour, weekday, day, month, app=schedule.app)
    except (ValueError, ParseException):
        return schedule
