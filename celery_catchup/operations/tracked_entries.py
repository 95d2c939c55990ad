"""Lines: every declared entry as the planner sees it, also those without a policy."""

from __future__ import annotations

from collections.abc import Collection

from celery_catchup.config.settings import FirstStart
from celery_catchup.engine.takeover import read_roster
from celery_catchup.engine.tracked_entries import Line
from celery_catchup.events import Events
from celery_catchup.model import Instant
from celery_catchup.operations.operator import Desk
from celery_catchup.store import Stored


def lines_of(
    desk: Desk, stored: Stored, now: Instant, names: Collection[str] | None = None
) -> dict[str, Line]:
    """The entries by name, or only these; one without a policy as if its catch-up were off.

    A schedule that cannot say when it runs has none.
    """
    declared = [one for one in desk.every_entry if names is None or one.name in names]
    match = desk.configuration.settings.first_start is FirstStart.MATCH
    known = read_roster(declared, stored, now=now, match_first=match, events=Events())
    return {line.entry.name: line for line in known.roster}
