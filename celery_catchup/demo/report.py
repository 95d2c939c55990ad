"""Format the demo's lines and tables."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from tabulate import tabulate

from celery_catchup.demo.audit import Account
from celery_catchup.demo.project import ENTRIES
from celery_catchup.demo.site import Site, TaskStart
from celery_catchup.model import Instant, Trigger, to_datetime

_COLOURS = {"beat": "cyan", "worker": "green"}


class Narrator:
    """Prints to standard output at once, in colour on a terminal that supports it."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._colours = sys.stdout.isatty() and not plain

    def say(self, text: str) -> None:
        """Print a sentence of the story, with the seconds since the beginning."""
        self._line(click.style(text, bold=True))

    def quote(self, who: str, text: str) -> None:
        """Print a line of one of the processes."""
        self._line(f"{click.style(f'{who:6} |', fg=_COLOURS.get(who))} {text}")

    def show(self, text: str, *, good: bool | None = None) -> None:
        """Print a table or a verdict: green when it is good, red when it is bad."""
        colour = None if good is None else "green" if good else "red"
        click.echo(click.style(text, fg=colour) if colour else text, color=self._colours)

    def _line(self, text: str) -> None:
        click.echo(f"{time.monotonic() - self._begun:5.1f}s  {text}", color=self._colours)


def slot_table(accounts: Sequence[Account]) -> str:
    """Format one row for each slot, in slot order for each entry; a skipped span is one row."""
    headers = ("Entry", "Scheduled For", "Started At", "Lag", "Trigger", "State")
    rows = [row for one in accounts for row in _rows(one)]
    alignment = ["right" if header == "Lag" else "left" for header in headers]
    return tabulate(rows, headers=headers, disable_numparse=True, colalign=alignment)


def summary(accounts: Sequence[Account]) -> str:
    """Summarise all slots in one sentence."""
    return (
        f"{sum(len(one.due) for one in accounts)} slots: "
        f"{sum(one.triggered_by(Trigger.SCHEDULER) for one in accounts)} on time, "
        f"{sum(one.triggered_by(Trigger.CATCHUP) for one in accounts)} caught up, "
        f"{sum(one.skipped for one in accounts)} skipped with a reason, "
        f"{sum(len(one.unaccounted) for one in accounts)} unaccounted."
    )


def observed_until(starts: Sequence[TaskStart], *, due: int, every_ms: int) -> Instant:
    """Return when the last of ``due`` slots is over under Celery's own scheduler.

    That has no slots to read: the first run is on time, and each later slot is one interval further.
    A run counts for the slot in whose interval it started, also the late one after the outage.
    """
    return starts[0].started + due * every_ms if starts else 0


def comparison(celerys: Site, accounts: Sequence[Account]) -> tuple[str, str]:
    """Compare the same number of slots under both schedulers: a table and a sentence."""
    headers = ("Entry", "Scheduler", "Slots Due", "Runs", "Skipped", "Without a Trace", "Knew Their Slot")
    rows: list[tuple[Any, ...]] = []
    for entry, ours in zip(ENTRIES, accounts, strict=True):
        due, starts = len(ours.due), celerys.task_starts_of(entry.name)
        end = observed_until(starts, due=due, every_ms=entry.every_ms)
        starts = [one for one in starts if one.started < end]
        for scheduler, found, skipped, lost in (
            ("Celery's", starts, 0, max(0, due - len(starts))),
            ("celery_catchup", ours.task_starts, ours.skipped, len(ours.unaccounted)),
        ):
            knew = sum(one.slot is not None for one in found)
            rows.append((entry.name, scheduler, due, len(found), skipped, lost, knew))
    due, runs, lost, knew = (sum(row[place] for row in rows[::2]) for place in (2, 3, 5, 6))
    shown = [(*row[:-1], f"{row[-1]} of {row[3]}") for row in rows]
    return tabulate(shown, headers=headers), (
        f"Celery's own scheduler made {runs} runs of {due} slots; {lost} left no trace, "
        f"and {knew} runs knew their slot."
    )


def task_line(one: TaskStart, *, order: int) -> str:
    """Describe a started task in a line."""
    started = clock_time(one.started)
    if one.slot is None:
        return f"run {order:2}  {one.entry:13}  started {started}, slot unknown"
    why, lag = "catch-up" if one.is_catchup else "scheduled", _seconds(one.started - one.slot)
    slot = clock_time(one.slot)
    return f"run {order:2}  {one.entry:13}  slot {slot}  started {started}  lag {lag:>6}  {why}"


def clock_time(instant: Instant) -> str:
    """Format an instant as ``05:44:31.234``, UTC."""
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
    when, slots = clock_time(skip["first"]), ""
    if skip["count"] > 1:
        when, slots = f"{when} to {clock_time(skip['last'])}", f"{skip['count']} slots, "
    return when, "", "", "", f"skipped ({slots}{skip['reason']})"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"
