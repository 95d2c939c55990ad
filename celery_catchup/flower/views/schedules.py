"""The page of all entries: a row with a lane for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from celery_catchup.flower.drawing.lanes import Down, lane
from celery_catchup.flower.drawing.span import Span
from celery_catchup.flower.drawing.svg import Markup, element, joined
from celery_catchup.flower.labels import clock, is_late, length
from celery_catchup.flower.links import SCHEDULES, Links, asked
from celery_catchup.operations.entries import EntryRow, EntryRows
from celery_catchup.operations.timeline import TimelineSlots


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """One entry."""

    name: str
    task: str
    schedule: str
    policy: Markup
    lane: Markup
    missed: str
    max_lag: str
    late: bool
    watermark: Markup
    next: Markup
    paused: bool
    pause_reason: str
    stopped_by: str
    governed: bool
    failing: str


@dataclass(frozen=True, slots=True)
class Pages:
    """Where in a long list we are, and the addresses of its neighbours."""

    words: str
    before: str
    after: str


def schedule_rows(
    rows: Sequence[EntryRow],
    slots: Mapping[str, Sequence[TimelineSlots]],
    *,
    span: Span,
    downs: Sequence[Down],
    link: Links,
) -> list[ScheduleRow]:
    """The entries in their order."""
    return [_row(row, slots.get(row.name, ()), span, downs, link) for row in rows]


def _row(
    row: EntryRow, slots: Sequence[TimelineSlots], span: Span, downs: Sequence[Down], link: Links
) -> ScheduleRow:
    return ScheduleRow(
        name=row.name,
        task=row.task,
        schedule=row.schedule,
        policy=policy_words(row),
        lane=lane(span, slots, downs=downs, name=row.name, href=link.run),
        missed=f"{row.missed:,}",
        max_lag=length(row.max_lag),
        late=is_late(row.max_lag),
        watermark=clock(row.watermark),
        next=clock(row.next),
        paused=row.paused,
        pause_reason=row.pause_reason or "",
        stopped_by=", ".join(row.stopped_by),
        governed=row.catchup is not None,
        failing=row.failing or "",
    )


def policy_words(row: EntryRow) -> Markup:
    """``all · 6h``; an entry without a policy runs as under Celery's own scheduler."""
    if row.catchup is None:
        words = "as Celery's own scheduler: one late run at most"
        return element("span", "Celery's", class_="cu-muted", title=words)
    if row.catchup == "off":
        return element("span", "off", class_="cu-muted", title="missed slots never run")
    about = f"overlap_policy: {row.overlap_policy}"
    return element("span", joined([element("strong", row.catchup), f" · {row.window}"]), title=about)


def pages(found: EntryRows, search: str) -> Pages | None:
    """Neighbouring pages of entries; None when all fit on one."""
    if found.total <= found.limit:
        return None
    first, last = found.offset + 1, min(found.offset + found.limit, found.total)
    return Pages(
        f"{first:,} – {last:,} of {found.total:,} entries",
        _at(search, found.offset - found.limit) if found.offset else "",
        _at(search, found.offset + found.limit) if last < found.total else "",
    )


def _at(search: str, offset: int) -> str:
    return SCHEDULES + asked({"search": search, "offset": str(offset) if offset > 0 else None})
