"""Times in which no beat was there, the one that lasts included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from celery_catchup.flower.drawing.lanes import Down
from celery_catchup.operations.status import Health, Outage, Status


@dataclass(frozen=True, slots=True)
class StillDown:
    """A beat that was last seen then."""

    since: datetime
    until: None = None


def downs(outages: Sequence[Outage], told: Status) -> list[Down]:
    """Those that are over, and the present one."""
    lasting = told.scheduler is Health.DOWN and told.last_tick is not None
    return [*outages, *([StillDown(told.last_tick)] if lasting and told.last_tick else [])]
