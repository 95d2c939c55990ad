"""Rows of backfills."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.flower.buttons import action
from celery_catchup.flower.drawing.svg import Markup, joined
from celery_catchup.flower.labels import slot
from celery_catchup.operations.backfills import BackfillView
from celery_catchup.planning.scope import Reprocess

_WHICH = {
    Reprocess.NONE: "missing only",
    Reprocess.FAILED: "missing and failed",
    Reprocess.COMPLETED: "all, run again",
}


@dataclass(frozen=True, slots=True)
class BackfillRow:
    """One backfill."""

    id: str
    entry: str
    state: str
    start: Markup
    end: Markup
    which: str
    total: int
    sent: int
    words: str
    buttons: Markup


def backfill_row(one: BackfillView) -> BackfillRow:
    """A backfill and how far it is."""
    order = ", newest first" if one.newest_first else ""
    words = f"{one.sent:,} of {one.total:,}: {one.dispatched:,} dispatched, {one.skipped:,} skipped"
    return BackfillRow(
        id=one.id,
        entry=one.entry,
        state=one.state,
        start=slot(one.start),
        end=slot(one.end),
        which=f"{_WHICH[one.reprocess]}{order}, {one.max_active} at once",
        total=max(one.total, 1),
        sent=one.sent,
        words=words,
        buttons=_buttons(one),
    )


def _buttons(one: BackfillView) -> Markup:
    if one.ended:
        return Markup()
    path = f"/backfills/{one.id}"
    first = (
        action("Resume", f"{path}/resume", {}, label=f"Resume backfill {one.id}", done="It goes on.")
        if one.state == "paused"
        else action("Pause", f"{path}/pause", {}, label=f"Pause backfill {one.id}", done="It is paused.")
    )
    left = one.total - one.sent
    cancel = action(
        "Cancel",
        f"{path}/cancel",
        {},
        label=f"Cancel backfill {one.id}",
        kind="cu-danger",
        confirm=f"Cancel backfill {one.id}? {left:,} of its slots will not run.",
        yes="Cancel the backfill",
        done="It is cancelled.",
    )
    return joined([first, Markup(" "), cancel])
