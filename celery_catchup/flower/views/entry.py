"""The page of one entry: its week, its starts, its facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from celery_catchup.flower.drawing.svg import Markup, element, joined
from celery_catchup.flower.drawing.tallies import stamp
from celery_catchup.flower.labels import clock, counted, length, slot
from celery_catchup.flower.links import Links
from celery_catchup.flower.views.filters import Choice
from celery_catchup.flower.views.runs import TRIGGERS
from celery_catchup.operations.entries import EntryPage
from celery_catchup.operations.previews import Preview, PreviewSlot

MOST_SLOTS = 12
"""Slots that a preview shows; longer ones are cut in the middle."""


def facts(page: EntryPage, *, timezone: str) -> list[tuple[str, Markup]]:
    """Name and value, line by line."""
    return list(_facts(page, timezone))


def _facts(page: EntryPage, timezone: str) -> Iterator[tuple[str, Markup]]:
    row = page.entry
    yield "Schedule", joined([element("code", row.schedule), f" ({timezone})"])
    if row.catchup is None:
        yield "Policy", joined(["none: as under Celery's own scheduler"])
    else:
        window = f", window {row.window}" if row.window else ""
        yield "Policy", joined([f"{row.catchup}{window}"])
        yield "Overlap", joined([row.overlap_policy or ""])
    yield "Watermark", slot(row.watermark)
    yield "First seen", slot(row.first_seen_at)
    if row.paused:
        why = f": {row.pause_reason}" if row.pause_reason else ""
        yield "Paused since", joined([slot(row.paused_at), why])
    if row.failing:
        yield "Failing since", joined([slot(row.failing_since), f": {row.failing}"])
    now = "–" if page.lag is None else length(page.lag)
    yield "Lag now", joined([f"{now} (max 24 h: {length(row.max_lag)})"])
    yield "Missed, 24 h", joined([f"{row.missed:,}"])
    yield "Under way", joined([f"{counted(row.active, 'run')}, {row.waiting:,} waiting"])
    yield "Next slots", _next(page.next)
    yield "Dead letters", joined([f"{len(page.dead_letters)}"])


def _next(slots: Sequence[datetime]) -> Markup:
    parts: list[str] = []
    for index, one in enumerate(slots):
        parts += [" · "] if index else []
        parts.append(clock(one))
    return joined(parts) if parts else joined(["–"])


def trigger_choices(page: EntryPage, chosen: str, link: Links) -> list[Choice]:
    """The runs of the last week by trigger, as links."""
    name = page.entry.name
    total = sum(page.runs.values())
    made = [Choice(f"All {total:,}", f"{link.entry(name)}#cu-runs-title", not chosen)]
    for trigger in TRIGGERS:
        href = f"{link('/catchup/entry', entry=name, triggerType=str(trigger))}#cu-runs-title"
        made.append(Choice(f"{trigger.label} {page.runs.get(trigger, 0):,}", href, chosen == trigger))
    return made


def preview_text(preview: Preview) -> str:
    """The slots of a preview in two columns, and the sentence below them."""
    head, hidden, tail = preview.slots.cut(MOST_SLOTS)
    lines = [_line(one) for one in head]
    lines += [f"… {hidden:,} more"] if hidden else []
    lines += [_line(one) for one in tail]
    skipped = f", {preview.skipped:,} skipped" if preview.skipped else ""
    lines += ["", f"{counted(preview.dispatched, 'run')} would be dispatched{skipped}."]
    return "\n".join(lines).strip()


def preview_words(preview: Preview) -> str:
    """What the preview is about."""
    if preview.error is not None:
        return f"Nothing can be planned: {preview.error}"
    if preview.paused:
        return "The entry is paused: nothing is dispatched until it is resumed. Then it would be:"
    if not preview.dispatched and not preview.skipped:
        return "Nothing is missed: if beat were started now, it would go on with the next slot."
    return "What beat would do with the slots that are due now:"


def _line(one: PreviewSlot) -> str:
    reason = f" ({one.reason})" if one.reason else ""
    return f"{stamp(one.scheduled_time)}  {one.action}{reason}"


def cell_words(columns: int, slots_of_a_day: int) -> str:
    """What a cell of the heat map stands for."""
    if slots_of_a_day <= columns:
        return "one cell per slot" if slots_of_a_day > 1 else "one cell per hour"
    return f"a cell is {24 * 60 // columns} minutes"
