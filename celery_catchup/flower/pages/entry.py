"""``/catchup/entry?entry=…``: one entry: its week, its starts, its facts and its preview."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from celery_catchup.errors import TooManySlotsError
from celery_catchup.events.command_lines import command_line
from celery_catchup.flower.drawing.captions import caption, tooltip
from celery_catchup.flower.drawing.glyphs import GLYPHS, legend
from celery_catchup.flower.drawing.heat import columns_for, days_until, draw_heat_map, spread
from celery_catchup.flower.drawing.starts import draw_starts
from celery_catchup.flower.drawing.time_axis import hour_labels
from celery_catchup.flower.fleet import latest_fleet
from celery_catchup.flower.markup import written
from celery_catchup.flower.pages.backfills import backfill_form, preview_lines
from celery_catchup.flower.pages.elements import TRIGGERS, FilterLink
from celery_catchup.flower.pages.explanations import explain
from celery_catchup.flower.pages.notes import down_times, notes
from celery_catchup.flower.pages.page import RUNS, Links, Page, Values, parse_word
from celery_catchup.flower.pages.time_range import TimeRange, read_range
from celery_catchup.flower.pages.whatif import whatif_form
from celery_catchup.model import SkipReason, SlotMark, Trigger
from celery_catchup.operations import Operator
from celery_catchup.operations.entries import EntryPage, show_entry
from celery_catchup.operations.previews import Preview, preview
from celery_catchup.operations.runs import list_runs, progress_of
from celery_catchup.operations.status import Banner, Status, list_outages, overview
from celery_catchup.operations.timeline import TimelineSlots, timeline
from celery_catchup.store.controls import with_resumed_entries

ROWS = 12
_DAYS = 7
_DAY = timedelta(days=1)
_HEAT_MAP_VALUES = 1000
"""Values of the heat map's timeline: 96 cells on each of seven days, and some to spare."""
_MOST_COUNTED = 1000
"""Runs of the latest catch-up that are counted for the note above the page."""
_MOST_SPREAD = 500
"""Slots of one value whose times are computed one by one."""
_MOST_EXPLAINED = 20
"""Lines about the slots that were chosen in a drawing."""


class EntryDetailsPage(Page):
    """One entry."""

    template, active, heading = "catchup_entry.html", "schedules", "Schedules"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read everything about the entry in the query."""
        name, chosen = self.query("entry"), self.query("triggerType")
        page = show_entry(operator, name)
        summary = overview(operator, fleet=latest_fleet(operator))
        triggers = [parse_word(Trigger, "triggerType", chosen)] if chosen else []
        shown = read_range(self, partial(link.entry, name))
        runs = list_runs(operator, [name], triggers=triggers, limit=ROWS).runs
        own = _own_banner(operator, name, summary.banner)
        return {
            "heading": name,
            "entry": name,
            "page": page,
            "row": page.entry,
            "notes": notes(summary.status, own, self.times, entry=name),
            "range": shown,
            "triggers": _trigger_links(page, chosen, link),
            "runs": runs,
            "running": progress_of(operator, runs),
            "dead_letters": page.dead_letters,
            "slots": self._chosen_slots(operator, name, link),
            "explanation": []
            if self.query("to")
            else explain(operator, name, self.moment("slot"), self.times),
            **self._drawings(operator, name, shown, summary.status, link),
            **self._preview(operator, page),
            **backfill_form(self, operator, entry=name),
            **whatif_form(),
        }

    def _drawings(
        self, operator: Operator, name: str, shown: TimeRange, status: Status, link: Links
    ) -> Values:
        axis, href = shown.axis, partial(link.slots, name)
        # The day that ends at midnight is the last row, not the one that begins.
        days = days_until(axis.until - timedelta(milliseconds=1), _DAYS, self.times)
        since, end = min(days[0].since, axis.since), days[-1].until - timedelta(milliseconds=1)
        week = timeline(operator, [name], since=days[0].since, until=end, most=_HEAT_MAP_VALUES)[name]
        per_day = _slots_per_day(week)
        columns = columns_for(per_day)
        started = timeline(operator, [name], since=axis.since, until=axis.until)[name]
        down = down_times(list_outages(operator, since=since), status)
        marks = {one.mark for one in week} | {SlotMark.ON_TIME, SlotMark.CAUGHT_UP}
        return {
            "heat": [
                (row, link.entry(name, date=str(row.date)))
                for row in draw_heat_map(days, week, columns=columns, href=href)
            ],
            "heat_axis": hour_labels(days[0], days=False),
            "cell_words": _cell_words(columns, per_day),
            "starts": draw_starts(axis, started, down_times=down, href=href),
            "legend": legend((mark for mark in GLYPHS if mark in marks), with_band=False),
        }

    def _chosen_slots(self, operator: Operator, name: str, link: Links) -> ChosenSlots | None:
        """Explain the slots that were chosen in a drawing."""
        first = self.moment("slot")
        if first is None:
            return None
        last = self.moment("to") or first
        start, end = written(first), written(last)
        found = timeline(operator, [name], since=first, until=last, most=_MOST_EXPLAINED)[name]
        missing = any(one.mark not in _WITH_SUCCESS for one in found)
        return ChosenSlots(
            words=self.times.stamp(first) + (f" – {self.times.stamp(last)}" if last > first else ""),
            caption=caption(found),
            lines=[
                (tooltip(one, self.times), _meaning(one), link.run(one.run_id) if one.run_id else "")
                for one in found[:_MOST_EXPLAINED]
            ],
            runs=link(RUNS, entry=name, since=start, until=end),
            backfill=f"{link.entry(name, start=start, end=end)}#backfill" if missing else "",
        )

    def _preview(self, operator: Operator, page: EntryPage) -> Values:
        name, row = page.entry.name, page.entry
        stored = operator.read_stored(
            None if operator.configuration.settings.max_runs is not None else [name]
        )
        if row.paused:
            stored = with_resumed_entries(stored, [name], operator.now())
        try:
            found = preview(operator, [name], stored=stored) if row.catchup is not None else []
        except TooManySlotsError as error:
            return {"preview_words": str(error), "preview_lines": [], "preview_command": ""}
        if not found:
            words = (
                "An entry without a policy is not caught up; Celery's own rules make one late run at most."
            )
            return {"preview_words": words, "preview_lines": [], "preview_command": ""}
        command = ["resume", name, "-n"] if row.paused and not row.held else ["preview", name]
        return {
            "preview_words": _preview_words(found[0], paused=row.paused, held=row.held),
            "preview_lines": preview_lines(self, found[0]) if len(found[0].slots) else [],
            "preview_command": command_line(*command),
        }


_WITH_SUCCESS = (SlotMark.ON_TIME, SlotMark.CAUGHT_UP, SlotMark.UPCOMING, SlotMark.IN_FLIGHT)
_MEANINGS = {
    SlotMark.DUE: "The slot came due while no beat decided it; the next beat catches it up.",
    SlotMark.PAUSED: "The entry was paused; when it is resumed, its policy says what happens to the slot.",
    SlotMark.UPCOMING: "The slot is not due, or has just come due and runs in a moment.",
}


@dataclass(frozen=True, slots=True)
class ChosenSlots:
    """The slots that were chosen in a drawing: each line with its meaning and its run."""

    words: str
    caption: str
    lines: Sequence[tuple[str, str, str]]
    runs: str
    backfill: str


def _meaning(one: TimelineSlots) -> str:
    """Return why these slots have no run; empty if they have one."""
    if one.reason in tuple(SkipReason):
        meaning = SkipReason(one.reason).rule.meaning.replace("`", "")
        return f"{meaning[:1].upper()}{meaning[1:]}."
    return _MEANINGS.get(one.mark, "")


def _own_banner(operator: Operator, name: str, banner: Banner | None) -> Banner | None:
    """Reduce the latest catch-up to the runs of this entry; None if it has none."""
    if banner is None:
        return None
    found = list_runs(
        operator,
        [name],
        triggers=[Trigger.CATCHUP],
        since=banner.first,
        until=banner.last,
        limit=_MOST_COUNTED,
    )
    slots = [run.scheduled_time for run in found.runs]
    return replace(banner, dispatched=len(slots), first=min(slots), last=max(slots)) if slots else None


def _trigger_links(page: EntryPage, chosen: str, link: Links) -> list[FilterLink]:
    """Return the runs of the last week by trigger, as links."""
    counts = {"": ("All", sum(page.runs.values()))}
    counts |= {str(one): (one.label, page.runs.get(one, 0)) for one in TRIGGERS}
    return [
        FilterLink(
            f"{words} {count:,}",
            f"{link.entry(page.entry.name, triggerType=trigger)}#cu-runs-title",
            chosen == trigger,
        )
        for trigger, (words, count) in counts.items()
    ]


def _slots_per_day(slots: Sequence[TimelineSlots]) -> int:
    """Return the number of slots of the busiest day."""
    days: Counter[datetime] = Counter()
    for one in slots:
        if one.count > _MOST_SPREAD:
            return round(one.count / max((one.last - one.first) / _DAY, 1))
        days.update(moment.replace(hour=0, minute=0, second=0, microsecond=0) for moment in spread(one))
    return max(days.values(), default=1)


def _cell_words(columns: int, slots_per_day: int) -> str:
    if slots_per_day <= columns:
        return "one cell per slot" if slots_per_day > 1 else "one cell per hour"
    return f"a cell is {24 * 60 // columns} minutes"


def _preview_words(found: Preview, *, paused: bool, held: int | None) -> str:
    if found.error is not None:
        return f"The catch-up cannot be planned: {found.error}"
    if held:
        return "The catch-up waits for an approval. Then beat would do this:"
    if paused:
        return "The entry is paused: nothing is dispatched until it is resumed. Then beat would do this:"
    if not found.dispatched and not found.skipped:
        return "Nothing is missed: if beat started now, it would continue with the next slot."
    return "What beat would do with the slots that are due now:"
