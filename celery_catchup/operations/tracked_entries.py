"""Lines: every declared entry as the planner sees it, also those without a policy."""

from __future__ import annotations

from collections.abc import Collection

from celery_catchup.config.settings import FirstStart
from celery_catchup.engine.takeover import read_tracked_entries
from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.events import Events
from celery_catchup.model import Instant
from celery_catchup.operations.operator import Operator
from celery_catchup.store import Stored


def lines_of(
    operator: Operator, stored: Stored, now: Instant, names: Collection[str] | None = None
) -> dict[str, TrackedEntry]:
    """The entries by name, or only these; one without a policy as if its catch-up were off.

    A schedule that cannot say when it runs has none.
    """
    declared = [one for one in operator.every_entry if names is None or one.name in names]
    match = operator.configuration.settings.first_start is FirstStart.MATCH
    known = read_tracked_entries(declared, stored, now=now, match_first=match, events=Events())
    return {line.entry.name: line for line in known.tracked}
