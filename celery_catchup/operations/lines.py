"""Lines: every declared entry as the planner sees it, also those without a policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from celery_catchup.engine.office import read_roster
from celery_catchup.engine.roster import Line
from celery_catchup.events import Events
from celery_catchup.model import Instant
from celery_catchup.operations.desk import Desk
from celery_catchup.settings import FirstStart
from celery_catchup.store import Stored


def lines_of(
    desk: Desk, stored: Stored, now: Instant, names: Collection[str] | None = None
) -> dict[str, Line]:
    """The entries by name, or only these; one without a policy as if its catch-up were off.

    A schedule that cannot say when it runs has none.
    """
    plain = [name for name in desk.division.plain if name in desk.configuration.policies]
    declared = [one for one in desk.every_entry if names is None or one.name in names]
    match = desk.configuration.settings.first_start is FirstStart.MATCH
    state = since_last_run(stored, plain)
    known = read_roster(declared, state, now=now, match_first=match, events=Events())
    return {line.entry.name: line for line in known.roster}


def since_last_run(stored: Stored, names: Iterable[str]) -> Stored:
    """Let entries without a policy be known since their last run, up to which nothing was missed."""
    last = {name: stored.last_runs[name].partition(" ")[0] for name in names if name in stored.last_runs}
    return replace(
        stored,
        first_seen={**last, **stored.first_seen},
        anchors={**last, **stored.anchors},
        decided={**last, **stored.decided},
    )
