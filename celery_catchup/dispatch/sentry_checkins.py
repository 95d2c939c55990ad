"""Announcements: who watches what beat sends is told of it here as under Celery's own scheduler.

sentry-sdk wraps ``celery.beat.Scheduler.apply_entry``: it opens a check-in for the entry, and puts
its id among the headers of what is sent. Messages are not sent there any more, so the call is made
for its own sake, on a copy of the entry, and what it put into the copy is sent.

The wrapper also begins a trace for each message of beat. Runs that are not told of get theirs from
`begin_trace`; otherwise they would belong to the trace of the last one that was.
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
"""Announced runs that are remembered, so that one that has to be made again is not announced again."""
_TOLD: Mapping[Checkins, frozenset[str]] = {
    Checkins.NONE: frozenset(),
    Checkins.LIVE: frozenset({Trigger.SCHEDULER}),
    Checkins.ALL: frozenset({Trigger.SCHEDULER, Trigger.CATCHUP}),
}


class SentryCheckins:
    """Tells of each run once, however often its message has to be made.

    ``which`` is None outside of beat: a run that is started by hand is not announced, and belongs to the
    trace of whoever starts it.
    """

    def __init__(self, app: Any, which: Checkins | None) -> None:
        self._app, self._is_beat = app, which is not None
        self._triggers = _TOLD[which or Checkins.NONE]
        self._opened: OrderedDict[tuple[str, int], Any] = OrderedDict()

    def wanted(self, run: Mapping[str, Any] | None) -> bool:
        """Whether somebody watches, and wants to hear of such a run."""
        return run is not None and run["trigger"] in self._triggers and _is_watched()

    def begin_trace(self) -> None:
        """Let the next message have a trace of its own, as each message of Celery's beat has."""
        sentry: Any = sys.modules.get("sentry_sdk") if self._is_beat and _is_watched() else None
        if hasattr(sentry, "get_isolation_scope"):  # not before sentry-sdk 2
            sentry.get_isolation_scope().set_new_propagation_context()

    def opened(self, entry: beat.ScheduleEntry, run: Mapping[str, Any]) -> beat.ScheduleEntry:
        """The entry as those who watch want it to be sent."""
        key = str(entry.name), int(run["slot"])
        if key not in self._opened:
            self._opened[key] = self._announce(entry)
            if len(self._opened) > _MOST:
                self._opened.popitem(last=False)
        changed = type(entry)(**dict(entry))
        changed.options = self._opened[key]
        return changed

    def _announce(self, entry: beat.ScheduleEntry) -> dict[str, Any]:
        """Let them have a copy; its options, with what they put there."""
        shown = type(entry)(**dict(entry))
        shown.options = {**entry.options, "headers": copy.deepcopy(entry.options.get("headers") or {})}
        shown.schedule = _as_crontab(entry.schedule)
        beat.Scheduler.apply_entry(_Stage(self._app), shown, producer=None)
        return dict(shown.options)


class _Stage:
    """In the place of the scheduler: it has an app, and sends nothing."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def apply_async(self, *_: Any, **__: Any) -> None:
        """It is sent later, in one step with its record."""


def _is_watched() -> bool:
    """Whether Celery's own function is replaced or wrapped."""
    return not is_original(beat.Scheduler.apply_entry, beat)


def _as_crontab(schedule: Any) -> Any:
    """A cron string as the crontab that others know, where Celery can read it."""
    try:
        minute, hour, day, month, weekday = str(getattr(schedule, "written", None)).split()
        return crontab(minute, hour, weekday, day, month, app=schedule.app)
    except (ValueError, ParseException):
        return schedule
