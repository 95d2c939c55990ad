"""``/catchup``: all entries with a lane of their slots, and the last day in numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from celery_catchup.flower.drawing.glyphs import GLYPHS, legend
from celery_catchup.flower.drawing.lanes import draw_lane
from celery_catchup.flower.drawing.time_axis import hour_labels
from celery_catchup.flower.fleet import latest_fleet
from celery_catchup.flower.markup import Markup, element, join
from celery_catchup.flower.pages.elements import FilterLink
from celery_catchup.flower.pages.notes import down_times, notes
from celery_catchup.flower.pages.page import SCHEDULES, Links, Page, Values, parse_word
from celery_catchup.flower.pages.time_range import read_range
from celery_catchup.model import SlotMark
from celery_catchup.operations import Operator
from celery_catchup.operations.entries import (
    Attention,
    EntryRow,
    EntryRows,
    EntrySort,
    list_entry_rows,
    list_prefixes,
)
from celery_catchup.operations.status import list_outages, overview
from celery_catchup.operations.timeline import timeline

ROWS = 50
_MOST_PREFIXES = 12
_PARAMETERS = ("search", "attention", "prefix", "sort", "range", "until", "date")
_LAST_PART = re.compile(r"[^/:.\[]*\Z")
"""The part of a name after its last separator; the rest is its prefix."""
_ANY = "any"
"""The value of ``attention`` for entries that need attention for any reason."""
_COLUMNS = {
    EntrySort.NAME: "Entry",
    EntrySort.SCHEDULE: "Schedule",
    EntrySort.POLICY: "Policy",
    EntrySort.MISSED: "Missed",
    EntrySort.LAG: "Max lag",
    EntrySort.WATERMARK: "Watermark",
    EntrySort.NEXT: "Next",
}
_TITLES = {EntrySort.MISSED: "slots that came due while beat was down, in the last 24 hours"}


class SchedulesPage(Page):
    """The entries, their slots, and their buttons."""

    template, active, heading = "catchup_schedules.html", "schedules", "Schedules"
    refresh_seconds = 10

    def show(self, operator: Operator, link: Links, *path: str) -> Values:
        """Read one page of the entries that match the filters."""
        given = {name: self.query(name) for name in _PARAMETERS}
        search, prefix, offset = given["search"], given["prefix"], self.query("offset")
        sort, attention = given["sort"], given["attention"]

        def here(**changes: str) -> str:
            return link(SCHEDULES, **{**given, **changes})

        found = list_entry_rows(
            operator,
            search=search,
            prefix=prefix,
            attention=_attention(attention),
            sort=parse_word(EntrySort, "sort", sort.removeprefix("-")) if sort else None,
            descending=sort.startswith("-"),
            offset=int(offset) if offset.isdecimal() else 0,
            limit=ROWS,
        )
        shown = read_range(self, partial(here, range="", until="", date=""))
        axis, names = shown.axis, [row.name for row in found.entries]
        slots = timeline(operator, names, since=axis.since, until=axis.until) if names else {}
        summary = overview(operator, fleet=latest_fleet(operator))
        down = down_times(list_outages(operator, since=axis.since), summary.status)
        return {
            "notes": notes(summary.status, summary.banner, self.times),
            "summary": summary,
            "status": summary.status,
            "given": given,
            "filtered": bool(search or attention or prefix),
            "range": shown,
            "total": found.total,
            "known": len(operator.schedule),
            "has_policies": bool(operator.declared),
            "attention": _attention_links(attention, here),
            "prefixes": _prefix_links(operator, prefix, here),
            "heads": _heads(names) if sort.removeprefix("-") == EntrySort.NAME else {},
            "columns": {one.value: _column(one, sort, here) for one in EntrySort},
            "axis": hour_labels(axis),
            "rows": found.entries,
            "lanes": {
                name: draw_lane(
                    axis, slots.get(name, ()), down_times=down, name=name, href=partial(link.slots, name)
                )
                for name in names
            },
            "policy": _policy,
            **_pager(found, here),
            "legend": legend(mark for mark in GLYPHS if mark is not SlotMark.UPCOMING),
        }


def _attention(text: str) -> tuple[Attention, ...]:
    if text in ("", _ANY):
        return tuple(Attention) if text else ()
    return (parse_word(Attention, "attention", text),)


def _attention_links(chosen: str, here: Callable[..., str]) -> list[FilterLink]:
    words = {"": "All", _ANY: "Needs attention"} | {str(one): one.capitalize() for one in Attention}
    return [FilterLink(word, here(attention=value), chosen == value) for value, word in words.items()]


def _prefix_links(operator: Operator, chosen: str, here: Callable[..., str]) -> list[FilterLink]:
    """Return the prefixes that several entries share, the most frequent ones, as links."""
    counts = list_prefixes(operator, chosen)
    most = sorted(counts, key=lambda one: -counts[one])[:_MOST_PREFIXES]
    links = [
        FilterLink(f"{_shown_prefix(one)} {counts[one]:,}", here(prefix=one), chosen=False)
        for one in sorted(most)
    ]
    return (
        [FilterLink(f"{_shown_prefix(chosen)} ×", here(prefix=""), chosen=True), *links] if chosen else links
    )


def _shown_prefix(prefix: str) -> str:
    """Write the prefix of the entries that ``for_each`` makes as the pattern of them: ``sync[*]``."""
    return f"{prefix}*]" if prefix.endswith("[") else prefix


def _heads(names: Sequence[str]) -> dict[str, str]:
    """Return the prefix above the first entry of each group that has more than one, by name."""
    groups = {prefix: list(some) for prefix, some in groupby(names, lambda name: _LAST_PART.sub("", name))}
    return {some[0]: _shown_prefix(prefix) for prefix, some in groups.items() if prefix and len(some) > 1}


def _column(column: EntrySort, sort: str, here: Callable[..., str]) -> Markup:
    """Write the heading of a column: a link that sorts by it, then the other way, then not."""
    following = {column.value: f"-{column}", f"-{column}": ""}.get(sort, column.value)
    order = {column.value: "ascending", f"-{column}": "descending"}.get(sort)
    arrow = {"ascending": " ↑", "descending": " ↓"}.get(order or "", "")
    words = _COLUMNS[column] + arrow
    heading = element("a", words, href=here(sort=following), title=_TITLES.get(column))
    return element("th", heading, scope="col", aria_sort=order)


def _policy(row: EntryRow) -> Markup:
    """Write the policy of an entry: ``all · 6h``."""
    if row.catchup is None:
        title = "as in Celery's own scheduler: one late run at most"
        return element("span", "Celery's", class_="cu-muted", title=title)
    if row.catchup == "off":
        return element("span", "off", class_="cu-muted", title="missed slots never run")
    title = f"overlap_policy: {row.overlap_policy}"
    return element("span", join([element("strong", row.catchup), f" · {row.window}"]), title=title)


def _pager(found: EntryRows, here: Callable[..., str]) -> Values:
    """Return the position in a long list, and the neighbouring pages."""
    first, last = found.offset + 1, min(found.offset + found.limit, found.total)
    back, forward = found.offset - found.limit, found.offset + found.limit
    return {
        "position": f"{first:,} – {last:,} of {found.total:,} entries" if found.total > found.limit else "",
        "previous": here(offset=str(back) if back > 0 else "") if found.offset else "",
        "following": here(offset=str(forward)) if last < found.total else "",
    }
