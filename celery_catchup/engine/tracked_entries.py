"""The tracked: every entry with what is known of it, and who is due next."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from celery_catchup.config.drift import FINGERPRINT_VERSION
from celery_catchup.model import Instant, RunState, Slot
from celery_catchup.planning.entry import Entry, EntryState
from celery_catchup.planning.overlap import most_active, most_unfinished
from celery_catchup.planning.scope import Scope, replay

Anchors: TypeAlias = Instant | Mapping[str, Instant]
"""Where schedules count from: one instant for all, or under "" that of the entry's intervals, and the last
slot of each schedule that can only be asked for the next one, by its id or position."""


@dataclass(frozen=True)
class Declared:
    """An entry with a policy as the configuration has it.

    ``build`` makes its timetables: intervals keep the phase of their anchor, schedules that
    can only be asked for the next slot go on from the last one; ``moving`` has the positions of these,
    and under which name the anchor of each is stored. ``former`` is the fingerprint of version 0.1.
    """

    name: str
    task: str
    fingerprint: str
    build: Callable[[Anchors], Entry]
    moving: Mapping[int, str] = field(default_factory=dict)
    former: str = ""

    def has_fingerprint(self, stored: str) -> bool:
        """Whether a stored fingerprint, also one of version 0.1, is that of the present schedule."""
        own = self.fingerprint if stored.startswith(FINGERPRINT_VERSION) else self.former or self.fingerprint
        return stored == own


@dataclass
class Session:
    """A catch-up of one entry: its range is fixed when it begins, so that no slot can fall out
    of the window while others are dispatched."""

    until: Instant
    used: int = 0
    room: int | None = None
    """What is left of the room that its overlap policy had when the first run was decided."""
    allowance: int | None = None
    existing: dict[Slot, RunState] | None = None
    """Runs that the ledger has in the range; None as long as it is taken to have none."""


@dataclass(slots=True)
class TrackedEntry:
    """One entry on the tracked.

    due_since         the slot that is undecided because the entry fails; None when it does not
    asks_who_is_busy  whether its overlap policy depends on runs that have not ended
    capacity          how many of its runs may be active at once; -1 for any number
    anchors           where its schedules count from, as `Anchors`
    """

    declared: Declared
    entry: Entry
    state: EntryState
    wake_at: Instant | None = None
    session: Session | None = None
    due_since: Instant | None = None
    newcomer: bool = False
    anchors: dict[str, Instant] = field(default_factory=dict)
    asks_who_is_busy: bool = field(init=False)
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        policy, most = self.entry.policy, most_active(self.entry.policy)
        self.asks_who_is_busy = most_unfinished(policy) is not None
        self.capacity = -1 if most is None else most

    def has_missed(self, now: Instant) -> bool:
        """Tell whether the entry is late enough to be caught up, or was paused or removed for a while."""
        due = self.wake_at if self.due_since is None else self.due_since
        late = due is not None and due <= self.entry.missed_until(now)
        return self.session is None and (late or self.state.resumes)

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


class TrackedEntries:
    """Entries by name, and when each wants to be looked at.

    An entry is in one place at a time: in the heap until it is due, then in the hands of a tick,
    which looks at it or puts it into one of two queues: ``live`` and, when it is caught up, ``behind``.
    """

    def __init__(self, lines: Mapping[str, TrackedEntry]) -> None:
        self.lines = dict(lines)
        self.names = tuple(self.lines)
        self.live: deque[TrackedEntry] = deque()
        self.behind: deque[TrackedEntry] = deque()
        self.behind_at: Instant = 0
        """When the queue of those that are caught up may go on."""
        self._heap: list[tuple[Instant, str]] = []
        self._hands: dict[str, TrackedEntry] = {}
        self._behind: set[str] = set()
        for name, line in self.lines.items():
            self.wake(name, line.wake_at)

    def wake(self, name: str, at: Instant | None) -> None:
        """Look at the entry then; None for not until something changes."""
        self.lines[name].wake_at = at
        self._hands.pop(name, None)
        if at is not None:
            heapq.heappush(self._heap, (at, name))

    def due(self, now: Instant) -> list[TrackedEntry]:
        """The entries to look at now, those that wait longest first; they are in your hands then."""
        found: dict[str, TrackedEntry] = {}
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self.lines[name].wake_at == at:
                found[name] = self.lines[name]
        self._hands.update(found)
        return list(found.values())

    def queue(self, line: TrackedEntry) -> None:
        """Look at it as soon as its turn comes."""
        self._hands.pop(line.entry.name, None)
        (self.live if line.session is None else self.behind).append(line)

    def take(self, queue: deque[TrackedEntry], most: int) -> list[TrackedEntry]:
        """The first of a queue; they are in your hands then."""
        lines = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._hands.update({line.entry.name: line for line in lines})
        return lines

    def let_go(self) -> None:
        """A tick came to nothing: what it had in its hands is looked at in the next one."""
        for name, line in list(self._hands.items()):
            self.wake(name, line.wake_at)

    def next_wake(self) -> Instant | None:
        """When the next entry wants to be looked at."""
        while self._heap and self.lines[self._heap[0][1]].wake_at != self._heap[0][0]:
            heapq.heappop(self._heap)
        times = [self._heap[0][0]] if self._heap else []
        times += [at for line in islice(self.live, 1) if (at := line.wake_at) is not None]
        times += [self.behind_at] if self.behind else []
        return min(times, default=None)

    def settled(self, now: Instant) -> bool:
        """Whether every slot up to now is decided."""
        following = self.next_wake()
        return not (self._behind or self.live) and (following is None or following > now)

    def note(self, line: TrackedEntry) -> None:
        """Remember whether the entry is behind: catching up, or failing to be dispatched."""
        if line.session is not None or line.due_since is not None:
            self._behind.add(line.entry.name)
        else:
            self._behind.discard(line.entry.name)

    def oldest_due(self, now: Instant) -> Instant | None:
        """The oldest slot that is due and not decided, entries that are being caught up apart."""
        waiting = [line.wake_at for line in self.live if line.wake_at is not None]
        waiting += [at for at, name in self._heap[:1] if at <= now and self.lines[name].wake_at == at]
        return min(waiting, default=None)

    def __iter__(self) -> Iterator[TrackedEntry]:
        return iter(self.lines.values())
