"""What has happened: slots that were lost, and windows that were too short for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from celery_catchup.config.durations import format_duration
from celery_catchup.error_text import shown
from celery_catchup.events.command_lines import command_line
from celery_catchup.model import SkipReason, Trigger, to_rfc3339
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Finding, ok, warning
from celery_catchup.operations.runs import list_runs

_DAYS = 7 * 24 * 3600 * 1000
_RECENT = 500  # catch-up runs from which the length of outages is read
_NEARLY = 0.8  # of its window: a little more, and slots would have been lost


def lost_slots(operator: Operator) -> Iterator[Finding]:
    """Entries with catch-up off that lost slots in the last week."""
    spans = operator.listing.skips(operator.declared, since=operator.now() - _DAYS)
    found = False
    for name, some in spans.items():
        lost = [span for span in some if span["reason"] == SkipReason.CATCHUP_OFF]
        if lost:
            found = True
            first, last = min(s["first"] for s in lost), max(s["last"] for s in lost)
            count = sum(span["count"] for span in lost)
            command = command_line("backfill", name, "--start", to_rfc3339(first), "--end", to_rfc3339(last))
            yield warning(
                "lost slots",
                f"entry {shown(name)} lost {_slots(count)} in the last week: its catch-up is off",
                f"run them: {command}",
            )
    if not found:
        yield ok("lost slots", "no entry with catch-up off has lost a slot in the last week")


def windows(operator: Operator) -> Iterator[Finding]:
    """Policies whose window is shorter than outages have been."""
    latest = _latest(operator)
    spans = operator.listing.skips(operator.declared, since=operator.now() - 4 * _DAYS)
    found = False
    for name in operator.declared:
        policy = operator.configuration.policies[name]
        window = None if policy is None else policy.window
        if window is None:
            continue
        expired = sum(s["count"] for s in spans[name] if s["reason"] == SkipReason.EXPIRED)
        longest = latest.get(name, timedelta())
        if expired or longest > window * _NEARLY:
            found = True
            yield _too_short(name, window, expired, longest)
    if not found:
        yield ok("windows", "no outage has been longer than the windows")


def _too_short(name: str, window: timedelta, expired: int, longest: timedelta) -> Finding:
    told = f"{_slots(expired)} fell out of it" if expired else f"a run was {_rough(longest)} late"
    return warning(
        "windows",
        f"the window of entry {shown(name)} is {format_duration(window)}, and {told}",
        "set a longer window in catchup_entries",
    )


def _rough(duration: timedelta) -> str:
    return format_duration(timedelta(seconds=int(duration.total_seconds())))


def _latest(operator: Operator) -> dict[str, timedelta]:
    """Of each entry, how late its latest catch-up run was decided: so long was beat down, at least."""
    found: dict[str, timedelta] = {}
    for run in list_runs(operator, triggers=[Trigger.CATCHUP], limit=_RECENT).runs:
        if run.created_at is not None:
            late = run.created_at - run.scheduled_time
            found[run.entry] = max(late, found.get(run.entry, timedelta()))
    return found


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"
