"""Print previews: the table of slots, and the sentence below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.screen import Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations.pauses import Resumption
    from celery_catchup.operations.previews import Preview, PreviewSlot

MOST_LINES = 60
"""Slots that a table shows; longer ones are cut in the middle."""

_GAP = 5  # blanks between the two columns


def show_preview(screen: Screen, preview: Preview, *, heading: str = "") -> None:
    """Print the preview of one entry: heading, slots, count."""
    screen.out(clean(heading or _heading(preview)))
    screen.out()
    if len(preview.slots):
        _show_slots(screen, preview)
        screen.out()
    screen.out(summary(preview.dispatched, preview.skipped))
    if preview.error is not None:
        screen.note(f'"{preview.entry}" cannot be planned: {preview.error}')
    if preview.paused:
        screen.note(f'"{preview.entry}" is paused: nothing is dispatched until it is resumed.')
    if preview.held:
        screen.note(
            f'"{preview.entry}": {preview.held} runs are more than hold_above, and wait for an approval.'
        )
        screen.hint("To run them", "approve", preview.entry)
    if preview.max_active is not None and preview.dispatched > preview.max_active:
        screen.note(
            f"At most {preview.max_active} of them are queued or running at once (catchup_max_active)."
        )
    if preview.expired:
        screen.note(f"{counted(preview.expired, 'older slot')} fell out of the window.")


def show_resumption(screen: Screen, found: Resumption, *, done: str, unchanged: str, dry_run: bool) -> None:
    """Print which entries decide slots again, and what their catch-ups do; with ``dry_run`` in full."""
    for one in found.entries:
        if not one.changed:
            screen.note(f'"{one.entry}" {unchanged}.')
        elif not dry_run:
            screen.out(clean(f"{done} {one.entry}"))
    for preview in found.previews:
        if dry_run:
            show_preview(screen, preview)
        else:
            runs = summary(preview.dispatched, preview.skipped).replace("would be", "will be")
            screen.note(f'"{preview.entry}": {runs}')


def _heading(preview: Preview) -> str:
    policy = f"overlapPolicy: {preview.overlap_policy}, window: {preview.window or 'none'}"
    return f'Catch-up preview for "{preview.entry}" ({policy})'


def _show_slots(screen: Screen, preview: Preview) -> None:
    """Print the slots in two columns."""
    head, hidden, tail = preview.slots.cut(MOST_LINES)
    rows = [(screen.time(one.scheduled_time), _action(one)) for one in head]
    rows += [("…", f"{hidden} more")] if hidden else []
    rows += [(screen.time(one.scheduled_time), _action(one)) for one in tail]
    width = max(len(time) for time, _ in rows) + _GAP
    for time, action in (("Scheduled Time", "Action"), *rows):
        screen.out(f"  {time:<{width}}{action}")


def summary(dispatched: int, skipped: int) -> str:
    """Return ``3 runs would be dispatched, 2 skipped.``"""
    runs = f"{counted(dispatched, 'run')} would be dispatched"
    return f"{runs}, {skipped} skipped." if skipped else f"{runs}."


def _action(slot: PreviewSlot) -> str:
    """Return ``dispatch``, ``dispatch (for 12 slots)`` or ``skip (guard_blocked)``."""
    if slot.slots > 1:
        return f"{slot.action} (for {slot.slots} slots)"
    return slot.action if slot.reason is None else f"{slot.action} ({slot.reason})"
