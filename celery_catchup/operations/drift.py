"""Compare the declared entries with the set that beat last accepted, and accept them."""

from __future__ import annotations

from dataclasses import dataclass

from celery_catchup.config.drift import Difference, differences
from celery_catchup.operations.operator import Operator
from celery_catchup.store import AuditAction


@dataclass(frozen=True, slots=True)
class Drift:
    """The differences. ``entries`` is the size of the accepted set, null before any was accepted;
    ``on_drift`` is what beat does about a difference."""

    on_drift: str
    entries: int | None
    differences: tuple[Difference, ...]


def show_drift(operator: Operator) -> Drift:
    """Compare the app's entries with the accepted set; before there is one, nothing differs."""
    accepted, records = operator.states.accepted(), operator.resolved.records
    found = differences(accepted, records) if accepted else ()
    return Drift(str(operator.configuration.settings.on_drift), len(accepted) or None, tuple(found))


def accept_drift(operator: Operator, *, dry_run: bool = False) -> Drift:
    """Accept the app's entries; return what differed until then."""
    operator.read_for_change()
    found = show_drift(operator)
    if not dry_run:
        changed = [one.entry for one in found.differences]
        change = operator.change(AuditAction.DRIFT_ACCEPT, changed)
        operator.states.accept(operator.resolved.records, by=change)
    return found
