"""Write events to the log as logfmt lines: one row of `LINES` per event."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any

from celery_catchup import events
from celery_catchup.error_text import with_visible_controls
from celery_catchup.events import (
    CatchupCompleted,
    CatchupPlanned,
    Event,
    Events,
    RunDispatched,
    RunSkipped,
    SlotOverdue,
    SlotRecovered,
    Ticked,
)
from celery_catchup.events.command_lines import backfill_line, command_line
from celery_catchup.model import Instant, Severity, SkipReason, to_rfc3339

logger = logging.getLogger("celery_catchup")

MOST_LINES = 100
"""Lines of one kind per entry and catch-up; one summary line counts the rest."""
MOST_INTENDED = 10
"""Lines of one span that the policy skips as intended; a longer span is one summary line."""
MOST_OVERDUE = 20
"""Lines about overdue or recovered slots in one tick; one more line counts the rest."""
MOST_IN_ALL = 1000
"""The same limit for all entries together."""

_PLAIN = re.compile(r"[\w.:/@+-]+")


@dataclass(frozen=True, slots=True)
class Line:
    """How an event is logged. ``fields`` names its fields in order; ``a=b`` logs the field ``b`` as ``a``."""

    level: int
    msg: str
    fields: str
    detail: str = ""

    def write(self, event: Event) -> None:
        """Log the event, if the level is enabled."""
        level = WARNING if getattr(event, "loud", False) else self.level
        if logger.isEnabledFor(level):
            pairs = (name.partition("=") for name in self.fields.split())
            values = {name: _formatted(name, getattr(event, field or name)) for name, _, field in pairs}
            logger.log(level, logfmt(self.msg, **values, **({"detail": self.detail} if self.detail else {})))


_RUN = "entry scheduled_time=slot run_id reason"

LINES: Mapping[type, Line | None] = {
    events.Leading: Line(INFO, "Leading", "epoch"),
    events.StandingBy: Line(INFO, "Standing by", "leader"),
    # Ticks are too frequent for a line each; `BeatProblems` logs failed ones at growing intervals.
    events.Ticked: None,
    events.TickFailed: None,
    events.CatchupStarted: Line(
        INFO,
        "Catch-up started",
        "entries_with_catchup=entries total_candidates=candidates window_start window_end",
    ),
    events.CatchupPlanned: Line(INFO, "Catch-up planned", "entry overlap_policy candidates window"),
    events.CatchupCompleted: Line(INFO, "Catch-up completed", "dispatched skipped duration=seconds"),
    events.EntryFailed: Line(ERROR, "Entry cannot be dispatched", "entry error=reason retry_in"),
    events.EntryHeld: Line(WARNING, "Catch-up held", "entry runs approve=entry discard=entry"),
    events.SlotOverdue: Line(WARNING, "Slot overdue", "entry scheduled_time=slot deadline run_id state"),
    events.SlotRecovered: Line(INFO, "Slot recovered", "entry scheduled_time=slot deadline run_id"),
    events.RunResent: Line(WARNING, "Run sent again", _RUN),
    events.RunDied: Line(ERROR, "Run given up", _RUN),
    events.RunUnreported: Line(WARNING, "Run not reported", _RUN),
    events.RunExpired: Line(WARNING, "Run expired", _RUN),
    events.MixedFleet: Line(
        WARNING,
        "Workers without the plugin",
        "queue workers",
        "they execute runs without claiming them, and the entries of these runs wait; add "
        'imports += ["celery_catchup.worker"] to their settings',
    ),
    events.BackfillAdvanced: Line(
        DEBUG, "Backfill advanced", "backfill=backfill_id entry complete dispatched skipped"
    ),
    events.EntryDrifted: Line(INFO, "Entry changed", "entry detail=what"),
    events.StateSuspect: Line(WARNING, "State suspect", "detail=what"),
    events.StateLost: Line(ERROR, "State lost", "detail=what"),
    events.RunStarted: Line(DEBUG, "Run started", "entry run_id attempt scheduled_time=slot"),
    events.AttemptEnded: Line(DEBUG, "Run reported", "entry run_id state"),
    events.RunRefused: Line(INFO, "Run refused", "entry run_id reason"),
    events.LeaseLost: Line(WARNING, "Run lost", "entry run_id attempt"),
    events.ReportRefused: Line(
        WARNING, "Report superseded", "entry run_id state", "another worker has claimed the run"
    ),
}
"""The line of each event. `RunDispatched` and `RunSkipped` come by the thousand: see `LogLines`."""

_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "scheduled_time": to_rfc3339,
    "deadline": to_rfc3339,
    "window_start": to_rfc3339,
    "window_end": to_rfc3339,
    "duration": "{:.1f}s".format,
    "approve": lambda entry: command_line("approve", entry),
    "discard": lambda entry: command_line("discard", entry),
    "retry_in": "{:g}s".format,
    "workers": ", ".join,
    "state": lambda state: str(state or "retry"),
    "run_id": lambda run_id: run_id or "none",
}


def _formatted(name: str, value: object) -> object:
    return _FORMATS[name](value) if name in _FORMATS else value


def logfmt(msg: str, **fields: object) -> str:
    """Format one line: ``msg="Catch-up started" entries_with_catchup=3``; values are quoted where needed."""
    shown = (f"{name}={_quoted(value)}" for name, value in fields.items())
    return " ".join([f"msg={json.dumps(msg, ensure_ascii=False)}", *shown])


def _quoted(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else with_visible_controls(json.dumps(text, ensure_ascii=False))


def log_at_info() -> None:
    """Enable INFO under ``celery beat``'s default level, WARNING; any other level is the user's choice."""
    if logger.level == logging.NOTSET and logger.getEffectiveLevel() == WARNING:
        logger.setLevel(INFO)


def log_configuration_warnings(warnings: Iterable[str]) -> None:
    """Log each warning about the configuration."""
    for warning in warnings:
        logger.warning(logfmt("Configuration warning", detail=warning))


def process_events() -> Events:
    """Return events that go to the log and to the subscribers of this process."""
    return Events(LogLines(), events.notify_subscribers)


@dataclass
class _Summary:
    """Lines written of one kind, and the slots beyond the limit."""

    lines: int = 0
    count: int = 0
    first: Instant = 0
    last: Instant = 0
    run_id: str | None = None

    def add(self, first: Instant, last: Instant, count: int) -> None:
        self.first = self.first or first
        self.last = last
        self.count += count


class LogLines:
    """Writes events to the log; a subscriber of `Events`."""

    def __init__(self) -> None:
        self._summaries: defaultdict[tuple[str, str, str], _Summary] = defaultdict(_Summary)
        self._written: Counter[str] = Counter()
        self._slots: Counter[type[SlotOverdue | SlotRecovered]] = Counter()

    def __call__(self, event: Event) -> None:
        """Write the line of an event, if it has one and is within the limits."""
        match event:
            case RunDispatched():
                self._dispatched(event)
            case RunSkipped():
                self._skipped(event)
            case SlotOverdue() | SlotRecovered():
                self._judged(event)
            case Ticked():
                self._count_judged()
            case _:
                if isinstance(event, CatchupCompleted):
                    self._summarise()
                line = LINES[type(event)]
                if line is not None and (type(event) is not CatchupPlanned or self._is_within(line.msg)):
                    line.write(event)

    def _judged(self, event: SlotOverdue | SlotRecovered) -> None:
        self._slots[type(event)] += 1
        line = LINES[type(event)]
        if line is not None and self._slots[type(event)] <= MOST_OVERDUE:
            line.write(event)

    def _count_judged(self) -> None:
        """At the end of a tick, count the lines that were left out."""
        for kind, count in self._slots.items():
            line = LINES[kind]
            if line is not None and count > MOST_OVERDUE:
                more = command_line("runs", "--overdue")
                logger.log(line.level, logfmt(line.msg, more=count - MOST_OVERDUE, list=more))
        self._slots.clear()

    def _dispatched(self, event: RunDispatched) -> None:
        at = event.run.slot.at
        if not event.is_catchup:
            level, msg = DEBUG, "Run dispatched"
        elif self._within_limits("Catch-up run dispatched", event.entry, "", at):
            level, msg = INFO, "Catch-up run dispatched"
        else:
            return
        if logger.isEnabledFor(level):
            fields = {"entry": event.entry, "scheduled_time": to_rfc3339(at), "run_id": event.run_id}
            logger.log(level, logfmt(msg, **fields))

    def _skipped(self, event: RunSkipped) -> None:
        skip, reason = event.skip, str(event.skip.reason)
        msg = "Catch-up run skipped" if event.catches_up else "Run skipped"
        # Many slots that the policy skips as intended are one line.
        intended = skip.reason.rule.severity is not Severity.LOST and skip.count > MOST_INTENDED
        for at in () if intended else event.listed:
            if self._within_limits(msg, event.entry, reason, at):
                fields = {"entry": event.entry, "scheduled_time": to_rfc3339(at)}
                logger.info(logfmt(msg, **fields, **_why(event.entry, skip.reason, at, at, skip.run_id)))
        if intended or not event.listed:
            summary = self._summaries[msg, event.entry, reason]
            summary.add(skip.first, skip.last, skip.count)
            summary.run_id = skip.run_id
        if not event.catches_up:
            self._summarise()

    def _within_limits(self, msg: str, entry: str, reason: str, at: Instant) -> bool:
        """Count a line; beyond the limits its slot goes into the summary instead."""
        within = self._is_within(msg)
        # Beyond the limit of all entries together, they share one summary: the ledger lists them by entry.
        summary = self._summaries[msg, entry if within else "", reason]
        summary.lines += 1
        if not within or summary.lines > MOST_LINES:
            summary.add(at, at, 1)
            return False
        return True

    def _is_within(self, msg: str) -> bool:
        """Count a line, and tell whether it is within the limit of all entries together."""
        self._written[msg] += 1
        return self._written[msg] <= MOST_IN_ALL

    def _summarise(self) -> None:
        """Write one line for each kind beyond the limit, and start counting again."""
        for (msg, entry, reason), summary in self._summaries.items():
            if summary.count:
                fields: dict[str, object] = {
                    **({"entry": entry} if entry else {}),
                    "first_scheduled_time": to_rfc3339(summary.first),
                    "last_scheduled_time": to_rfc3339(summary.last),
                    "count": summary.count,
                }
                if reason:
                    why = SkipReason(reason)
                    fields |= _why(entry or "ENTRY", why, summary.first, summary.last, summary.run_id)
                logger.info(logfmt(msg, **fields))
        self._summaries.clear()
        self._written.clear()


def _why(
    entry: str, reason: SkipReason, first: Instant, last: Instant, run_id: str | None
) -> dict[str, object]:
    """Return the reason, the run for which slots were skipped, and the command that runs lost ones after all;
    slots that were sent are not lost."""
    return {
        "reason": str(reason),
        **({} if run_id is None else {"run_id": run_id}),
        **({"recover": backfill_line(entry, first, last)} if reason.recoverable else {}),
    }
