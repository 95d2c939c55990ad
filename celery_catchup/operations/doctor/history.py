"""Check the history: slots that were lost, and windows that were shorter than outages."""

from __future__ import annotations

from datetime import timedelta

from celery_catchup.config.durations import format_duration
from celery_catchup.error_text import counted, shown
from celery_catchup.events.command_lines import backfill_line
from celery_catchup.model import SkipReason, Trigger
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Results, warning
from celery_catchup.operations.runs import list_runs

_WEEK = 7 * 24 * 3600 * 1000
_RECENT = 500  # catch-up runs from which the length of outages is read
_NEARLY = 0.8  # of its window: a little more, and slots would have been lost


def lost_slots(operator: Operator) -> Results:
    """Find entries with catch-up off that lost slots in the last week."""
    spans = operator.listing.skips(operator.declared, since=operator.now() - _WEEK)
    for name, some in spans.items():
        lost = [span for span in some if span["reason"] == SkipReason.CATCHUP_OFF]
        if lost:
            first, last = min(s["first"] for s in lost), max(s["last"] for s in lost)
            count = sum(span["count"] for span in lost)
            slots = counted(count, "slot")
            detail = f"entry {shown(name)} lost {slots} in the last week: its catch-up is off"
            yield warning(detail, f"run them: {backfill_line(name, first, last)}")


def windows(operator: Operator) -> Results:
    """Find policies whose window is shorter than outages have been."""
    latest = _latest(operator)
    spans = operator.listing.skips(operator.declared, since=operator.now() - 4 * _WEEK)
    for name in operator.declared:
        policy = operator.configuration.policies[name]
        if policy is None or policy.window is None:
            continue
        expired = sum(s["count"] for s in spans[name] if s["reason"] == SkipReason.EXPIRED)
        longest = latest.get(name, timedelta())
        if expired or longest > policy.window * _NEARLY:
            late = format_duration(timedelta(seconds=int(longest.total_seconds())))
            happened = f"{counted(expired, 'slot')} fell out of it" if expired else f"a run was {late} late"
            yield warning(
                f"the window of entry {shown(name)} is {format_duration(policy.window)}, and {happened}",
                "set a longer window in catchup_entries",
            )


def _latest(operator: Operator) -> dict[str, timedelta]:
    """Return how late each entry's latest catch-up run was decided: beat was down for at least as long."""
    found: dict[str, timedelta] = {}
    for run in list_runs(operator, triggers=[Trigger.CATCHUP], limit=_RECENT).runs:
        if run.created_at is not None:
            late = run.created_at - run.scheduled_time
            found[run.entry] = max(late, found.get(run.entry, timedelta()))
    return found
