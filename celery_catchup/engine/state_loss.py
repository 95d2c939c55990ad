"""Remember what was decided when the Redis server has lost acknowledged writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from celery_catchup.engine.tracked_entries import TrackedEntries
from celery_catchup.events import Events, StateLost
from celery_catchup.model import Instant

EMPTIED = (
    "all of it is gone (FLUSHALL, or a restart without persistence): this beat goes on where it was, "
    "but pauses, backfills and the ledger are lost"
)
WENT_BACK = "it went back a little (a fail-over): runs of the last moments may be sent twice"
ELSEWHERE = "another beat leads, and begins with what is left"


@dataclass
class StateLoss:
    """A loss of state, from the moment it is noticed until it is reported.

    read_file  reads up to where each entry was decided from the local watermark file
    decided    up to where each entry is decided; empty for entries that another beat led, None without a loss
    """

    events: Events
    read_file: Callable[[], dict[str, Instant] | None] = lambda: None
    decided: dict[str, Instant] | None = None

    def notice(self, entries: TrackedEntries, watermark: Instant, *, leading: bool) -> None:
        """Keep what the leader knows, once; its entries will be read again."""
        if self.decided is None:
            self.decided = entries.certain(watermark) if leading else {}

    def remembered(self, *, fresh: bool) -> dict[str, Instant] | None:
        """Return up to where each entry is decided, if anything was lost; for a server without any state
        from the watermark file of an earlier beat."""
        if self.decided is None and fresh:
            self.decided = self.read_file()
        return self.decided

    def report(self, consequence: str) -> None:
        """Report the loss, if there was one, and forget it."""
        if self.decided is not None:
            self.decided = None
            self.events.emit(StateLost(f"the server has forgotten what it had acknowledged; {consequence}"))
