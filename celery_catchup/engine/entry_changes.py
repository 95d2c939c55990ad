"""What changed since the leaders before: entries that are gone or back, schedules that changed places."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from celery_catchup.engine.tracked_entries import TrackedEntries
from celery_catchup.events import Events, StateSuspect
from celery_catchup.model import Instant
from celery_catchup.store import Stored

# An instant of the store outside these is no instant: 2000-01-01 to 2200-01-01, in ms.
SANE = range(946_684_800_000, 7_258_118_400_000)


def read_instant(text: str | None) -> Instant | None:
    """An instant as the store has it; None when it cannot be one."""
    try:
        value = int(text or "")
    except ValueError:
        return None
    return value if value in SANE else None


def removals(
    tracked: TrackedEntries, stored: Stored, *, watermark: Instant, unread: Collection[str]
) -> Iterator[tuple[str, Instant | None]]:
    """Entries that are not declared any more, and up to where each is decided; None for those that are
    declared again, once the time between is on record."""
    for name, first_seen in stored.first_seen.items():
        line = tracked.lines.get(name)
        noted, decided = read_instant(stored.left_off.get(name)), read_instant(stored.decided.get(name)) or 0
        if line is not None:
            if name in stored.left_off and line.state.removed is None:
                yield name, None
        elif name not in unread and (noted is None or noted < decided):
            yield name, max(watermark, decided, read_instant(first_seen) or 0)


def report_moved(tracked: TrackedEntries, stored: Stored, events: Events) -> None:
    """Say which lists have schedules at other positions than before: a run's identity has the position of
    its schedule, unless that has an id."""
    for name, known in stored.fingerprints.items():
        line = tracked.lines.get(name)
        if line is None or all(schedule.id is not None for schedule in line.entry.schedules):
            continue
        before, after = known.split(" | "), line.declared.fingerprint.split(" | ")
        moved = [i for i, shape in enumerate(before) if shape in after and shape not in after[i : i + 1]]
        if moved:
            events.emit(
                StateSuspect(
                    f"the schedules of entry {name!r} changed their positions, which are part of their runs' "
                    "identity: slots that ran before count as new; give each schedule an id"
                )
            )
