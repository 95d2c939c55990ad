"""``/catchup/backfills``: the backfills, one backfill with its runs, and the form for a new one."""

from __future__ import annotations

from datetime import timedelta

from celery_catchup.config.durations import FINE_UNITS, format_duration, parse_duration
from celery_catchup.error_text import counted
from celery_catchup.errors import CatchupError
from celery_catchup.events.command_lines import backfill_line
from celery_catchup.flower.markup import written
from celery_catchup.flower.pages.elements import api_button
from celery_catchup.flower.pages.page import BACKFILLS, Links, Page, Values, parse_word
from celery_catchup.model import to_instant
from celery_catchup.operations import Operator
from celery_catchup.operations.backfills import (
    BackfillRequest,
    backfill_progress,
    list_backfills,
    preview_backfill,
    show_backfill,
)
from celery_catchup.operations.previews import Preview
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.operations.runs import list_runs
from celery_catchup.planning.scope import Reprocess

ROWS = 50
_MOST_NAMES = 500
"""Entries that a field proposes."""
_MOST_LISTED = 8
_MOST_ACTIVE = 1000
REPROCESS_WORDS = {
    Reprocess.NONE: "missing only",
    Reprocess.FAILED: "missing and failed",
    Reprocess.COMPLETED: "all, run again",
}


class BackfillsPage(Page):
    """The backfills, newest first, and a form for a new one."""

    template, active, heading = "catchup_backfills.html", "backfills", "Backfills"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read all stored backfills."""
        found = list_backfills(operator)
        return {
            "backfills": found,
            "reprocess_words": REPROCESS_WORDS,
            "words": counted(len(found), "backfill") if found else "",
            **backfill_form(self, operator),
        }


class BackfillDetailsPage(Page):
    """One backfill: its states, its runs, who asked for it, and when it will be done."""

    template, active, heading = "catchup_backfill.html", "backfills", "Backfills"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read the backfill whose ID is in the path."""
        found = show_backfill(operator, path[0])
        cursor = self.query("cursor")
        here = f"{BACKFILLS}/{found.id}"
        runs = list_runs(
            operator,
            [found.entry],
            since=found.start,
            until=found.end,
            backfill=found.id,
            limit=ROWS,
            cursor=cursor or None,
        )
        return {
            "heading": f"Backfill {found.id}",
            "eyebrow": "Backfill",
            "of": found.entry,
            "backfill": found,
            "progress": backfill_progress(operator, found),
            "reprocess_words": REPROCESS_WORDS,
            "runs": runs.runs,
            "running": {},
            "newest": link(here) if cursor else "",
            "older": link(here, cursor=runs.cursor) if runs.cursor else "",
        }


class BackfillPreviewPage(Page):
    """The preview of a backfill, with the button that creates it; the form shows a part of this page."""

    template, active, heading = "catchup_backfill_preview.html", "backfills", "Preview of a backfill"

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Preview the backfill of the query, and how many slots each choice has; or say what is wrong."""
        entry = self.query("entry")
        try:
            if not entry:
                raise RefusedError("Choose an entry.")
            wanted = self._request(entry)
            found = {one: preview_backfill(operator, wanted.changed(reprocess=one)) for one in Reprocess}
        except CatchupError as error:
            return {"problem": str(error), "counts": {}, "lines": [], "command": "", "button": ""}
        mine = found[wanted.reprocess]
        again = mine.dispatched - found[Reprocess.FAILED].dispatched
        return {
            "problem": "",
            "counts": {str(one): look.dispatched for one, look in found.items()},
            "lines": preview_lines(self, mine),
            "command": _command(wanted),
            "button": self._button(
                wanted, mine, again if wanted.reprocess is Reprocess.COMPLETED else 0, link
            ),
        }

    def _request(self, entry: str) -> BackfillRequest:
        start, end = self.moment("start"), self.moment("end", whole_day=True)
        if start is None or end is None:
            raise RefusedError("Set both times of the range.")
        active = self.query("maxActive") or "1"
        if not active.isdecimal() or not 1 <= int(active) <= _MOST_ACTIVE:
            raise RefusedError(f"at most in flight: expected a number from 1 to {_MOST_ACTIVE}, got {active}")
        return BackfillRequest(
            entry=entry,
            start=start,
            end=end,
            reprocess=parse_word(Reprocess, "reprocess", self.query("reprocess") or "none"),
            max_active=int(active),
            newest_first=self.query("order") == "newest",
            span=self._span(),
        )

    def _span(self) -> timedelta | None:
        try:
            return parse_duration(self.query("span"), units=FINE_UNITS) if self.query("span") else None
        except ValueError as error:
            raise RefusedError(f"one run for: {error}") from None

    def _button(self, wanted: BackfillRequest, found: Preview, again: int, link: Links) -> str:
        if not found.dispatched:
            return api_button("Nothing to dispatch", "", why="No slot of this range would run.")
        runs, slots = counted(found.dispatched, "run"), found.slots.dispatched(found.dispatched)
        first, last = sorted((slots[0].scheduled_time, slots[-1].scheduled_time))
        confirm = (
            f"Dispatch {runs} of “{wanted.entry}”?\n"
            f"Slots from {self.times.stamp(first)} to {self.times.stamp(last)}."
        )
        if again:
            confirm += f"\n{again:,} of them have succeeded before and would run again."
        return api_button(
            f"Dispatch {runs}",
            "/backfills",
            {
                "entry": wanted.entry,
                "start": written(wanted.start),
                "end": written(wanted.end),
                "reprocess": str(wanted.reprocess),
                "maxActive": wanted.max_active,
                "newestFirst": wanted.newest_first,
                **({} if wanted.span is None else {"span": format_duration(wanted.span)}),
            },
            why=self.why_read_only,
            kind="cu-primary",
            confirm=confirm,
            done="The backfill was created; beat starts it with its next tick.",
            then=link(BACKFILLS),
        )


def backfill_form(page: Page, operator: Operator, *, entry: str = "") -> Values:
    """Return the initial values of the form: the range of the query, or the last day."""
    now = page.times.now.replace(second=0, microsecond=0)
    start, end = page.moment("start") or now - timedelta(days=1), page.moment("end") or now
    return {
        "backfill_entry": entry,
        "backfill_start": page.times.stamp(start),
        "backfill_end": page.times.stamp(end),
        "entries": [] if entry else list(operator.declared)[:_MOST_NAMES],
    }


def preview_lines(page: Page, found: Preview) -> list[str]:
    """Write a preview: first what would be dispatched, then the reasons of what would be skipped."""
    slots = found.slots.dispatched(_MOST_LISTED)
    lines = [
        f"{page.times.stamp(one.scheduled_time)}  dispatch"
        + (f" (for {one.slots:,} slots)" if one.slots > 1 else "")
        for one in slots
    ]
    if found.dispatched > len(slots):
        lines.append(f"… {found.dispatched - len(slots):,} more")
    skipped = found.slots.skipped_by_reason
    lines += [f"{counted(count, 'slot')}  skip ({reason})" for reason, count in skipped.items()]
    more = f", {found.skipped:,} skipped" if found.skipped else ""
    runs = counted(found.dispatched, "run")
    return [*lines, *([""] if lines else []), f"{runs} would be dispatched{more}."]


def _command(wanted: BackfillRequest) -> str:
    words = [] if wanted.reprocess is Reprocess.NONE else ["--reprocess", str(wanted.reprocess)]
    words += [] if wanted.max_active == 1 else ["--max-active", str(wanted.max_active)]
    words += ["--newest-first"] if wanted.newest_first else []
    words += [] if wanted.span is None else ["--span", format_duration(wanted.span)]
    return backfill_line(wanted.entry, to_instant(wanted.start), to_instant(wanted.end), *words)
