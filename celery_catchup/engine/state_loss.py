"""Memory: what a beat still knows when the server has forgotten what it had acknowledged."""

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


def certain(tracked: TrackedEntries, watermark: Instant) -> dict[str, Instant]:
    """Up to where each entry is decided, by what the leader knows."""
    return {
        line.entry.name: max(watermark, line.state.decided or 0, line.state.first_seen_at) for line in tracked
    }


@dataclass
class Memory:
    """Kept from the moment a loss is noticed until it has been told and dealt with."""

    events: Events
    elsewhere: Callable[[], dict[str, Instant] | None] = lambda: None
    decided: dict[str, Instant] | None = None
    """Up to where each entry is decided for certain; nothing of entries that another beat led."""

    def keep(self, tracked: TrackedEntries, watermark: Instant, *, leading: bool) -> None:
        """Something is lost: hold what the leader's tracked knows; once, for it will be read anew."""
        if self.decided is None:
            self.decided = certain(tracked, watermark) if leading else {}

    def recalled(self, *, fresh: bool) -> dict[str, Instant] | None:
        """Up to where each entry is decided, if anything is lost; a server that knows nothing has
        lost what a beat before this one has written down elsewhere."""
        if self.decided is None and fresh:
            self.decided = self.elsewhere()
        return self.decided

    def tell(self, consequence: str) -> None:
        """Say what was lost, if anything was, and let go of it."""
        if self.decided is not None:
            self.decided = None
            self.events.emit(StateLost(f"the server has forgotten what it had acknowledged; {consequence}"))
