"""Previews on the screen: the table of slots, and the sentence below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.screen import Screen, clean, counted

if TYPE_CHECKING:
    from celery_catchup.operations.previews import Preview, PreviewSlot

MOST_LINES = 60
"""Slots that a table shows; longer ones are cut in the middle."""

_GAP = 5  # blanks between the two columns


def title(preview: Preview) -> str:
    """What the preview is about."""
    window = preview.window or "none"
    return (
        f'Catch-up preview for "{preview.entry}" (overlapPolicy: {preview.overlap_policy}, window: {window})'
    )


def show_preview(screen: Screen, preview: Preview, *, heading: str) -> None:
    """One entry: heading, slots, count."""
    screen.out(clean(heading))
    screen.out()
    if len(preview.slots):
        show_slots(screen, preview)
        screen.out()
    screen.out(summary(preview.dispatched, preview.skipped))
    if preview.error is not None:
        screen.note(f'"{preview.entry}" cannot be planned: {preview.error}')
    if preview.paused:
        screen.note(f'"{preview.entry}" is paused: nothing is dispatched until it is resumed.')
    if preview.expired:
        screen.note(f"{counted(preview.expired, 'older slot')} fell out of the window.")


def show_slots(screen: Screen, preview: Preview) -> None:
    """The slots in two columns."""
    head, hidden, tail = preview.slots.cut(MOST_LINES)
    times = [stamp(one) for one in (*head, *tail)]
    width = max(map(len, times)) + _GAP
    screen.out(f"  {'Scheduled Time':<{width}}Action")
    for one in head:
        screen.out(f"  {stamp(one):<{width}}{action(one)}")
    if hidden:
        screen.out(f"  {'…':<{width}}{hidden} more")
    for one in tail:
        screen.out(f"  {stamp(one):<{width}}{action(one)}")


def summary(dispatched: int, skipped: int) -> str:
    """``3 runs would be dispatched.``"""
    told = f"{counted(dispatched, 'run')} would be dispatched"
    return f"{told}, {skipped} skipped." if skipped else f"{told}."


def stamp(slot: PreviewSlot) -> str:
    """The slot, to the second or, where it has a fraction, to the millisecond."""
    moment = slot.scheduled_time
    spec = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")


def action(slot: PreviewSlot) -> str:
    """``dispatch``, or ``skip (guard_blocked)``."""
    return slot.action if slot.reason is None else f"{slot.action} ({slot.reason})"
