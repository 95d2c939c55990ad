"""The tables and sentences at the end of the demo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from celery_catchup.demo.audit import Account
from celery_catchup.demo.comparison import Tally
from celery_catchup.demo.site import Execution
from celery_catchup.model import Instant, Trigger, to_datetime

_HEADERS = ("Entry", "Scheduled For", "Started At", "Lag", "Trigger", "State")


def slot_table(accounts: Sequence[Account]) -> str:
    """One row a slot, in slot order for each entry; neighbours that were skipped are one row."""
    rows = [row for one in accounts for row in _rows(one)]
    return tabulate(rows, headers=_HEADERS, disable_numparse=True, colalign=_right("Lag"))


def summary(accounts: Sequence[Account]) -> str:
    """All slots in one sentence."""
    due = sum(len(one.due) for one in accounts)
    return (
        f"{due} slots: {sum(one.on_time for one in accounts)} on time, "
        f"{sum(one.caught_up for one in accounts)} caught up, "
        f"{sum(one.skipped for one in accounts)} skipped with a reason, "
        f"{sum(len(one.unaccounted) for one in accounts)} unaccounted."
    )


def comparison_table(tallies: Sequence[Tally]) -> str:
    """The same slots under both schedulers."""
    headers = ("Entry", "Scheduler", "Slots Due", "Runs", "Skipped", "Without a Trace", "Told Their Slot")
    rows = [
        (one.entry, one.scheduler, one.due, one.runs, one.skipped, one.lost, f"{one.told} of {one.runs}")
        for one in tallies
    ]
    return tabulate(rows, headers=headers)


def in_a_sentence(tallies: Sequence[Tally]) -> str:
    """What was measured under Celery's own scheduler."""
    due, runs, lost, told = (
        sum(getattr(one, field) for one in tallies) for field in ("due", "runs", "lost", "told")
    )
    return (
        f"Celery's own scheduler made {runs} runs of {due} slots; {lost} left no trace, "
        f"and {told} runs were told their slot."
    )


def executed(execution: Execution, *, order: int) -> str:
    """One execution in a line."""
    started = clock_time(execution.started)
    if execution.slot is None:
        return f"run {order:2}  {execution.entry:13}  started {started}, not told for which slot"
    why = "catch-up" if execution.is_catchup else "scheduled"
    lag = _seconds(execution.started - execution.slot)
    slot = clock_time(execution.slot)
    return f"run {order:2}  {execution.entry:13}  slot {slot}  started {started}  lag {lag:>6}  {why}"


def clock_time(instant: Instant) -> str:
    """``05:44:31.234``, UTC."""
    return to_datetime(instant).strftime("%H:%M:%S.%f")[:-3]


def _rows(one: Account) -> Iterator[tuple[str, ...]]:
    decided = [(run["slot"], _run(run)) for run in one.runs]
    decided += [(skip["first"], _skip(skip)) for skip in one.skips]
    decided += [(slot, (clock_time(slot), "", "", "", "UNACCOUNTED")) for slot in one.unaccounted]
    for _, cells in sorted(decided):
        yield one.entry, *cells


def _run(run: Mapping[str, Any]) -> tuple[str, ...]:
    started = run.get("started")
    times = ("", "") if started is None else (clock_time(started), _seconds(started - run["slot"]))
    return clock_time(run["slot"]), *times, Trigger(run["trigger"]).label, run["state"]


def _skip(skip: Mapping[str, Any]) -> tuple[str, ...]:
    first, last = clock_time(skip["first"]), clock_time(skip["last"])
    when = first if skip["count"] == 1 else f"{first} to {last}"
    slots = "" if skip["count"] == 1 else f"{skip['count']} slots, "
    return when, "", "", "", f"skipped ({slots}{skip['reason']})"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"


def _right(*headers: str) -> list[str]:
    return ["right" if header in headers else "left" for header in _HEADERS]
