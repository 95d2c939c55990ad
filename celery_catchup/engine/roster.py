"""The roster: every entry with what is known of it, and who is due next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from celery_catchup.entries import Entry, EntryState
from celery_catchup.model import Instant, RunState, Slot
from celery_catchup.policy import OverlapPolicy
from celery_catchup.scopes import Scope, replay


@dataclass(frozen=True)
class Declared:
    """An entry with a policy as the configuration has it.

    ``build`` makes its timetables: intervals keep the phase of ``anchor``, schedules that
    can only be asked for the next slot go on from the last one.
    """

    name: str
    task: str
    fingerprint: str
    build: Callable[[Instant], Entry]
    moves_anchor: bool = False


@dataclass
class Session:
    """A catch-up of one entry: its range is fixed when it begins, so that no slot can fall out
    of the window while others are dispatched."""

    until: Instant
    used: int = 0
    allowance: int | None = None
    existing: dict[Slot, RunState] = field(default_factory=dict)


@dataclass
class Line:
    """One entry on the roster."""

    declared: Declared
    entry: Entry
    state: EntryState
    wake_at: Instant | None = None
    session: Session | None = None
    failures: int = 0
    newcomer: bool = False

    def scope(self, watermark: Instant, now: Instant) -> Scope:
        """The range to decide now; during a catch-up it ends where that began.

        The scheduler's watermark says nothing of an entry that was not there before.
        """
        return replay(
            self.entry,
            self.state,
            scheduler_watermark=self.state.first_seen_at if self.newcomer else watermark,
            now=now if self.session is None else self.session.until,
        )

    @property
    def asks_who_is_busy(self) -> bool:
        """Whether its overlap policy depends on runs that have not ended."""
        policy = self.entry.policy
        bounded = policy.overlap_policy is OverlapPolicy.ALL and policy.max_pending is not None
        return bounded or policy.overlap_policy in (OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE)

    @property
    def capacity(self) -> int:
        """How many of its runs may be active at once; -1 for any number."""
        policy = self.entry.policy
        if policy.overlap_policy is OverlapPolicy.ALL:
            return policy.max_active_runs
        return 1 if policy.overlap_policy in (OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ONE) else -1


class Roster:
    """Entries by name, and a heap of when each wants to be looked at."""

    def __init__(self, lines: Mapping[str, Line]) -> None:
        self.lines = dict(lines)
        self.names = tuple(self.lines)
        self._heap: list[tuple[Instant, str]] = []
        self._behind: set[str] = set()
        for name, line in self.lines.items():
            self.wake(name, line.wake_at)

    def wake(self, name: str, at: Instant | None) -> None:
        """Look at the entry then; None for not until something changes."""
        self.lines[name].wake_at = at
        if at is not None:
            heapq.heappush(self._heap, (at, name))

    def due(self, now: Instant) -> list[Line]:
        """The entries to look at now, those that wait longest first; each is taken off the heap."""
        found: dict[str, Line] = {}
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self.lines[name].wake_at == at:
                found[name] = self.lines[name]
        return list(found.values())

    def next_wake(self) -> Instant | None:
        """When the next entry wants to be looked at."""
        while self._heap and self.lines[self._heap[0][1]].wake_at != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def settled(self, now: Instant) -> bool:
        """Whether every slot up to now is decided."""
        following = self.next_wake()
        return not self._behind and (following is None or following > now)

    def note(self, line: Line) -> None:
        """Remember whether the entry is behind: catching up, or failing to be dispatched."""
        if line.session is not None or line.failures:
            self._behind.add(line.entry.name)
        else:
            self._behind.discard(line.entry.name)

    def __iter__(self) -> Iterator[Line]:
        return iter(self.lines.values())


def with_state(line: Line, **changes: object) -> None:
    """Note what is now known of the entry."""
    line.state = replace(line.state, **changes)  # type: ignore[arg-type]
