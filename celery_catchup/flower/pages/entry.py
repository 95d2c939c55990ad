"""``/catchup/entry?entry=…``: one entry, its week, its starts, and what can be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote

from celery_catchup.flower.drawing.glyphs import legend
from celery_catchup.flower.drawing.heat import columns_for, days_until, heat_map, spread
from celery_catchup.flower.drawing.lanes import Down
from celery_catchup.flower.drawing.span import Span, axis
from celery_catchup.flower.drawing.starts import starts
from celery_catchup.flower.links import Links
from celery_catchup.flower.pages.asking import word
from celery_catchup.flower.pages.page import Page, Values
from celery_catchup.flower.views.dead_letters import dead_row
from celery_catchup.flower.views.downs import downs
from celery_catchup.flower.views.entry import (
    cell_words,
    facts,
    preview_text,
    preview_words,
    trigger_choices,
)
from celery_catchup.flower.views.notes import notes
from celery_catchup.flower.views.runs import run_row
from celery_catchup.model import Trigger, to_datetime
from celery_catchup.operations import Operator
from celery_catchup.operations.entries import show_entry
from celery_catchup.operations.previews import preview
from celery_catchup.operations.runs import list_runs
from celery_catchup.operations.status import Banner, overview
from celery_catchup.operations.timeline import TimelineSlots, timeline

ROWS = 12
_DAYS = 7
_DAY = timedelta(days=1)
# Values of a heat map: 96 cells in each of seven days, and some for what is between them.
_MOST_CELLS = 1000
_MOST_NEWS = 1000  # runs that are counted for the sentence above the page


class EntryPageHandler(Page):
    """One entry."""

    template, active, heading = "catchup_entry.html", "schedules", "Schedules"
    every = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Everything about the entry that the address names."""
        name = self.asked("entry")
        page = show_entry(operator, name)
        told = overview(operator)
        governed = page.entry.catchup is not None
        chosen = self.asked("triggerType")
        triggers = [word(Trigger, "triggerType", chosen)] if chosen else []
        runs = list_runs(operator, [name], triggers=triggers, limit=ROWS).runs
        return {
            "heading": name,
            "entry": name,
            "task": page.entry.task,
            "paused": page.entry.paused,
            "governed": governed,
            "notes": notes(replace(told, banner=_news(operator, name, told.banner)), entry=name),
            "facts": facts(page, timezone=str(operator.app.timezone)),
            "triggers": trigger_choices(page, chosen, link),
            "runs": [run_row(run) for run in runs],
            "dead": [dead_row(letter) for letter in page.dead_letters],
            **_drawings(operator, name, downs(page.outages, told.status), link),
            **(_preview(operator, name) if governed else _NO_PREVIEW),
            **backfill_range(operator),
        }


def _news(operator: Operator, name: str, banner: Banner | None) -> Banner | None:
    """What a catch-up did for this entry; nothing is no news."""
    if banner is None:
        return None
    since, until = banner.first, banner.last
    found = list_runs(
        operator, [name], triggers=[Trigger.CATCHUP], since=since, until=until, limit=_MOST_NEWS
    )
    slots = [run.scheduled_time for run in found.runs]
    return replace(banner, dispatched=len(slots), first=min(slots), last=max(slots)) if slots else None


_NO_PREVIEW = {
    "preview_words": "Without a policy nothing is caught up; Celery's own rules make one late run at most.",
    "preview_text": "",
    "preview_command": "",
}


def _drawings(operator: Operator, name: str, bands: Sequence[Down], link: Links) -> Values:
    now = to_datetime(operator.now())
    days = days_until(now, _DAYS)
    week = timeline(
        operator,
        [name],
        since=days[0].since,
        until=days[-1].until - timedelta(milliseconds=1),
        most=_MOST_CELLS,
    )[name]
    dense = _slots_of_a_day(week)
    columns = columns_for(dense)
    span = Span(now - _DAY, now)
    today = timeline(operator, [name], since=span.since, until=span.until)[name]
    return {
        "heat": heat_map(days, week, columns=columns, href=link.run),
        "heat_axis": axis(days[0]),
        "cell_words": cell_words(columns, dense),
        "starts": starts(span, today, downs=bands),
        "legend": legend(_marks(week), band=False),
    }


def _slots_of_a_day(slots: Sequence[TimelineSlots]) -> int:
    """Of the busiest day."""
    days: Counter[datetime] = Counter()
    for one in slots:
        if one.count > 500:  # as good as evenly spread
            return round(one.count / max((one.last - one.first) / _DAY, 1))
        days.update(moment.replace(hour=0, minute=0, second=0, microsecond=0) for moment in spread(one))
    return max(days.values(), default=1)


def _marks(slots: Sequence[TimelineSlots]) -> list[str]:
    """The marks that are there, and the two that one looks for."""
    seen = {str(one.mark) for one in slots} | {"on_time", "caught_up"}
    order = ("on_time", "caught_up", "failed", "skipped", "missed", "paused", "in_flight", "upcoming")
    return [mark for mark in order if mark in seen]


def _preview(operator: Operator, name: str) -> Values:
    found = preview(operator, [name])
    if not found:
        return _NO_PREVIEW
    return {
        "preview_words": preview_words(found[0]),
        "preview_text": preview_text(found[0]) if len(found[0].slots) else "",
        "preview_command": f"celery -A {app_name(operator)} catchup preview {quote(name)}",
    }


def app_name(operator: Operator) -> str:
    """How the app would be named on a command line."""
    return quote(operator.app.main or "proj")


def backfill_range(operator: Operator) -> Values:
    """What the form of a backfill begins with: the last day."""
    now = to_datetime(operator.now()).replace(second=0, microsecond=0)
    return {
        "backfill_start": f"{now - _DAY:%Y-%m-%dT%H:%MZ}",
        "backfill_end": f"{now:%Y-%m-%dT%H:%MZ}",
        "app_name": app_name(operator),
    }
