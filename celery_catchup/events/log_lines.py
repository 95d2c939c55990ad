"""What beat says, in logfmt with fixed words: never silent, never a flood."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatchmethod

from celery_catchup.events import (
    AttemptEnded,
    BackfillAdvanced,
    CatchupCompleted,
    CatchupPlanned,
    CatchupStarted,
    EntryDrifted,
    EntryFailed,
    Event,
    Events,
    Leading,
    LeaseLost,
    MixedFleet,
    ReportRefused,
    RunDied,
    RunDispatched,
    RunExpired,
    RunRefused,
    RunResent,
    RunSkipped,
    RunStarted,
    RunUnreported,
    StandingBy,
    StateLost,
    StateSuspect,
    Ticked,
    TickFailed,
    notify_subscribers,
)
from celery_catchup.events.command_lines import command_line
from celery_catchup.model import Instant, SkipReason, Trigger, to_rfc3339

logger = logging.getLogger("celery_catchup")

MOST_LINES = 100
"""Lines of one kind per entry and catch-up; what is beyond becomes one summary."""
MOST_IN_ALL = 1000
"""The same of all entries together."""

_PLAIN = re.compile(r"[\w.:/@+-]+")


def logfmt(msg: str, **fields: object) -> str:
    """One line: ``msg="Catch-up started" entries_with_catchup=3``; whatever a name contains."""
    shown = (f"{name}={_value(value)}" for name, value in fields.items())
    return " ".join([f"msg={json.dumps(msg, ensure_ascii=False)}", *shown])


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def log_at_info() -> None:
    """Be heard under ``celery beat``'s default level, unless somebody has set one for us, or wants to
    hear of errors only."""
    if logger.level == logging.NOTSET and logger.getEffectiveLevel() <= logging.WARNING:
        logger.setLevel(logging.INFO)


def log_configuration_warnings(cautions: Iterable[str]) -> None:
    """What works otherwise than it may look, a line each."""
    for caution in cautions:
        logger.warning(logfmt("Configuration warning", detail=caution))


def process_events() -> Events:
    """Events that go to the log, and to everyone in this process."""
    return Events(LogLines(), notify_subscribers)


@dataclass
class _Rest:
    """What was not said line by line."""

    lines: int = 0
    count: int = 0
    first: Instant = 0
    last: Instant = 0

    def add(self, first: Instant, last: Instant, count: int) -> None:
        """Count some more."""
        self.first = self.first or first
        self.last = last
        self.count += count


class LogLines:
    """Writes events to the log; a subscriber of `Events`."""

    def __init__(self) -> None:
        self._rests: defaultdict[tuple[str, str, str], _Rest] = defaultdict(_Rest)
        self._said: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        """Write the line of an event, if it is time for one."""
        if type(event) is RunDispatched:  # the one that comes by the thousand
            self._dispatched(event)
        else:
            self._say(event)

    @singledispatchmethod
    def _say(self, event: object) -> None:
        raise TypeError(f"no line for {event!r}")

    @_say.register
    def _(self, event: Leading) -> None:
        logger.info(logfmt("Leading", epoch=event.epoch))

    @_say.register
    def _(self, event: StandingBy) -> None:
        logger.info(logfmt("Standing by", leader=event.leader))

    @_say.register
    def _(self, event: CatchupStarted) -> None:
        logger.info(
            logfmt(
                "Catch-up started",
                entries_with_catchup=event.entries,
                total_candidates=event.candidates,
                window_start=to_rfc3339(event.window_start),
                window_end=to_rfc3339(event.window_end),
            )
        )

    @_say.register
    def _(self, event: CatchupPlanned) -> None:
        logger.info(
            logfmt(
                "Catch-up planned",
                entry=event.entry,
                overlap_policy=event.overlap_policy,
                candidates=event.candidates,
                window=event.window,
            )
        )

    def _dispatched(self, event: RunDispatched) -> None:
        at = event.run.slot.at
        if event.run.trigger is not Trigger.CATCHUP:
            level, msg = logging.DEBUG, "Run dispatched"
        elif self._may_say("Catch-up run dispatched", event.entry, "", at, at, 1):
            level, msg = logging.INFO, "Catch-up run dispatched"
        else:
            return
        if logger.isEnabledFor(level):
            fields = {"entry": event.entry, "scheduled_time": to_rfc3339(at), "run_id": event.run_id}
            logger.log(level, logfmt(msg, **fields))

    @_say.register
    def _(self, event: RunSkipped) -> None:
        skip, reason = event.skip, str(event.skip.reason)
        msg = "Catch-up run skipped" if event.catches_up else "Run skipped"
        for at in event.listed:
            if self._may_say(msg, event.entry, reason, at, at, 1):
                fields = {"entry": event.entry, "scheduled_time": to_rfc3339(at), "reason": reason}
                logger.info(logfmt(msg, **fields, **_recovery(event.entry, skip.reason, at, at)))
        if not event.listed:
            self._rests[msg, event.entry, reason].add(skip.first, skip.last, skip.count)
        if not event.catches_up:
            self._summarise()

    @_say.register
    def _(self, event: CatchupCompleted) -> None:
        self._summarise()
        logger.info(
            logfmt(
                "Catch-up completed",
                dispatched=event.dispatched,
                skipped=event.skipped,
                duration=f"{event.seconds:.1f}s",
            )
        )

    @_say.register
    def _(self, event: EntryFailed) -> None:
        logger.error(
            logfmt(
                "Entry cannot be dispatched",
                entry=event.entry,
                error=event.reason,
                retry_in=f"{event.retry_in:g}s",
            )
        )

    @_say.register
    def _(self, event: RunResent) -> None:
        logger.warning(logfmt("Run sent again", **_lost(event)))

    @_say.register
    def _(self, event: RunDied) -> None:
        logger.error(logfmt("Run given up", **_lost(event)))

    @_say.register
    def _(self, event: RunUnreported) -> None:
        logger.warning(logfmt("Run not reported", **_lost(event)))

    @_say.register
    def _(self, event: RunExpired) -> None:
        logger.warning(logfmt("Run expired", **_lost(event)))

    @_say.register
    def _(self, event: MixedFleet) -> None:
        logger.warning(
            logfmt(
                "Workers without the plugin",
                queue=event.queue,
                workers=", ".join(event.workers),
                detail="they execute runs without claiming them, and the entries of these runs wait; add "
                'imports += ["celery_catchup.worker"] to their settings',
            )
        )

    @_say.register
    def _(self, event: BackfillAdvanced) -> None:
        fields = {"backfill": event.backfill_id, "entry": event.entry, "complete": event.complete}
        counts = {"dispatched": event.dispatched, "skipped": event.skipped}
        logger.debug(logfmt("Backfill advanced", **fields, **counts))

    @_say.register
    def _(self, event: Ticked | TickFailed) -> None:
        """Ticks are too many for lines; beat itself tells of troubles, at growing intervals."""

    @_say.register
    def _(self, event: RunStarted) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            fields = {"entry": event.entry, "run_id": event.run_id, "attempt": event.attempt}
            logger.debug(logfmt("Run started", **fields, scheduled_time=to_rfc3339(event.slot)))

    @_say.register
    def _(self, event: AttemptEnded) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            fields = {"entry": event.entry, "run_id": event.run_id, "state": event.state}
            logger.debug(logfmt("Run reported", **fields))

    @_say.register
    def _(self, event: RunRefused) -> None:
        fields = {"entry": event.entry, "run_id": event.run_id, "reason": event.reason}
        logger.info(logfmt("Run refused", **fields))

    @_say.register
    def _(self, event: LeaseLost) -> None:
        logger.warning(logfmt("Run lost", entry=event.entry, run_id=event.run_id, attempt=event.attempt))

    @_say.register
    def _(self, event: ReportRefused) -> None:
        fields = {"entry": event.entry, "run_id": event.run_id, "state": event.state or "retry"}
        logger.warning(logfmt("Report superseded", **fields, detail="another worker has the run by now"))

    @_say.register
    def _(self, event: EntryDrifted) -> None:
        level = logging.WARNING if event.loud else logging.INFO
        logger.log(level, logfmt("Entry changed", entry=event.entry, detail=event.what))

    @_say.register
    def _(self, event: StateSuspect) -> None:
        logger.warning(logfmt("State suspect", detail=event.what))

    @_say.register
    def _(self, event: StateLost) -> None:
        logger.error(logfmt("State lost", detail=event.what))

    def _may_say(self, msg: str, entry: str, reason: str, first: Instant, last: Instant, count: int) -> bool:
        self._said[msg] += 1
        enough = self._said[msg] > MOST_IN_ALL
        # Of runs that were dispatched nobody needs to know which they were: the ledger has them.
        rest = self._rests[msg, "" if enough and not reason else entry, reason]
        rest.lines += 1
        if enough or rest.lines > MOST_LINES:
            rest.add(first, last, count)
            return False
        return True

    def _summarise(self) -> None:
        """One line for what went beyond the limit, then a fresh start."""
        for (msg, entry, reason), rest in self._rests.items():
            if rest.count:
                fields: dict[str, object] = {
                    **({"entry": entry} if entry else {}),
                    "first_scheduled_time": to_rfc3339(rest.first),
                    "last_scheduled_time": to_rfc3339(rest.last),
                    "count": rest.count,
                }
                recovery = _recovery(entry, SkipReason(reason), rest.first, rest.last) if reason else {}
                logger.info(logfmt(msg, **fields, **({"reason": reason} if reason else {}), **recovery))
        self._rests.clear()
        self._said.clear()


def _lost(event: RunResent | RunDied | RunUnreported | RunExpired) -> dict[str, object]:
    slot = to_rfc3339(event.slot)
    return {"entry": event.entry, "scheduled_time": slot, "run_id": event.run_id, "reason": event.reason}


def _recovery(entry: str, reason: SkipReason, first: Instant, last: Instant) -> dict[str, str]:
    """The command that would run lost slots after all; what exists already is not lost."""
    if reason in (SkipReason.ALREADY_EXISTS, SkipReason.IN_FLIGHT):
        return {}
    start, end = to_rfc3339(first), to_rfc3339(last)
    return {"recover": command_line("backfill", entry, "--start", start, "--end", end)}
