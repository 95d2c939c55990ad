"""Entries with their state while this beat leads, and which of them are due next."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import TypeAlias

from celery_catchup.config.drift import FINGERPRINT_VERSION
from celery_catchup.model import Instant, to_milliseconds
from celery_catchup.planning.entry import NOTHING, Entry, EntryState
from celery_catchup.planning.planner import most_active, most_unfinished
from celery_catchup.planning.scope import Scope, replay

_DAY = 86_400_000
_SPARE = 1000
"""Outdated places in the heap that do no harm."""
_STATE = attrgetter(*(one.name for one in fields(EntryState) if one.name != "existing"))

Anchors: TypeAlias = Instant | Mapping[str, Instant]
"""Where schedules count from: one instant for all, or under "" that of the entry's intervals, and the last
slot of each forward-only schedule by its id or position."""


@dataclass(frozen=True)
class Declared:
    """An entry with a policy as the configuration has it.

    build   makes its timetables from anchors: intervals keep their phase, forward-only schedules
            continue from their last slot
    moving  positions of the forward-only schedules, and the name under which each anchor is stored
    former  the fingerprint that version 0.1 computed
    """

    name: str
    task: str
    fingerprint: str
    build: Callable[[Anchors], Entry]
    moving: Mapping[int, str] = field(default_factory=dict)
    former: str = ""

    def has_fingerprint(self, stored: str) -> bool:
        """Compare a stored fingerprint, also one of version 0.1, with that of the present schedule."""
        own = self.fingerprint if stored.startswith(FINGERPRINT_VERSION) else self.former or self.fingerprint
        return stored == own


@dataclass(slots=True)
class TrackedEntry:
    """One entry with its state.

    wake_at        when to look at it next
    catchup_until  the end of the range that is being caught up; None without a catch-up. It is fixed at the
                   start, so that no slot falls out of the window while others are dispatched
    due_since      the slot that is undecided because the entry fails; None when it does not
    newcomer       whether it was never seen before this term
    anchors        where its schedules count from, as `Anchors`
    limits_runs    whether its overlap policy depends on the runs that have not ended
    capacity       how many of its runs may be active at once; -1 for any number
    """

    declared: Declared
    entry: Entry
    state: EntryState
    wake_at: Instant | None = None
    catchup_until: Instant | None = None
    due_since: Instant | None = None
    newcomer: bool = False
    anchors: dict[str, Instant] = field(default_factory=dict)
    limits_runs: bool = field(init=False)
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        most = most_active(self.entry.policy)
        self.limits_runs = most_unfinished(self.entry.policy) is not None
        self.capacity = -1 if most is None else most

    def has_missed(self, now: Instant) -> bool:
        """Tell whether the entry is late enough to be caught up, or was paused or removed for that long.

        After a short pause, and if it is new or was changed, its slots are live like those of others.
        """
        due = self.wake_at if self.due_since is None else self.due_since
        begun = self.state.resumes_from
        due = due if begun is None or due is None else min(begun, due)
        return self.catchup_until is None and due is not None and due <= self.entry.missed_until(now)

    def start_catchup(self, now: Instant) -> None:
        """Start to catch up everything before now."""
        self.catchup_until, self.state.used = now, 0

    def end_catchup(self) -> None:
        """Return to live slots."""
        self.catchup_until, self.state.existing = None, NOTHING
        self.state.used = self.state.room = self.state.allowance = None

    def scope(self, watermark: Instant, now: Instant) -> Scope:
        """Return the range to decide now; during a catch-up it ends where that started.

        The scheduler's watermark says nothing about an entry that was not there before.
        """
        return replay(
            self.entry,
            self.state,
            scheduler_watermark=self.state.first_seen_at if self.newcomer else watermark,
            now=now if self.catchup_until is None else self.catchup_until,
        )

    def planning_key(self, watermark: Instant) -> Hashable | None:
        """Return everything that a plan depends on beside the time; None if that includes the entry's name,
        or runs in the ledger."""
        state = self.state
        if self.entry.jitter or state.existing is not NOTHING:
            return None
        watermark = state.first_seen_at if self.newcomer else watermark
        return self.entry.shape, watermark, self.catchup_until, *_STATE(state)

    def stored_policy(self) -> str:
        """Return the part of the policy that the scripts need which release and end runs."""
        policy = self.entry.policy
        delay = 0 if policy.retry_delay is None else to_milliseconds(policy.retry_delay)
        longest = policy.retry_max_delay
        return json.dumps(
            {
                "capacity": self.capacity,
                "on_failure": str(policy.on_failure),
                "pause_on_failure": policy.pause_on_failure,
                "max_attempts": policy.max_attempts,
                "retry_delay_ms": delay,
                "retry_backoff": policy.retry_backoff,
                "retry_max_delay_ms": max(delay, _DAY) if longest is None else to_milliseconds(longest),
            },
            sort_keys=True,
        )


class TrackedEntries:
    """Entries by name, and when each must be looked at.

    An entry is in one place at a time: in the heap until it is due, then taken by a tick, which decides it
    or puts it into one of two queues: ``live`` and, when it is being caught up, ``behind``.
    """

    def __init__(self, by_name: Mapping[str, TrackedEntry]) -> None:
        self.by_name = dict(by_name)
        self.names = tuple(self.by_name)
        """Their names, for loops that go on in later ticks."""
        self.live: deque[TrackedEntry] = deque()
        self.behind: deque[TrackedEntry] = deque()
        self.behind_at: Instant = 0
        """When the next run of a catch-up may be sent."""
        self._heap: list[tuple[Instant, str]] = []
        self._taken: dict[str, TrackedEntry] = {}
        self._unsettled: set[str] = set()
        for name, tracked in self.by_name.items():
            self.wake(name, tracked.wake_at)

    def __iter__(self) -> Iterator[TrackedEntry]:
        return iter(self.by_name.values())

    def replace(self, changed: Mapping[str, TrackedEntry], gone: Iterable[str]) -> None:
        """Use other entries in place of some, between two ticks; those that are gone leave."""
        touched = {*changed, *gone}
        self.live = deque(one for one in self.live if one.entry.name not in touched)
        self.behind = deque(one for one in self.behind if one.entry.name not in touched)
        self._unsettled -= touched
        for name in touched:
            self.by_name.pop(name, None)
        self.by_name |= changed
        self.names = tuple(self.by_name)
        for name, tracked in changed.items():
            self.wake(name, tracked.wake_at)
        if len(self._heap) > 2 * len(self.by_name) + _SPARE:
            self._heap = [place for place in set(self._heap) if self._is_current(place)]
            heapq.heapify(self._heap)

    def _is_current(self, place: tuple[Instant, str]) -> bool:
        """Tell whether a place in the heap is that of its entry; an entry may have moved, or be gone."""
        at, name = place
        return name in self.by_name and self.by_name[name].wake_at == at

    def wake(self, name: str, at: Instant | None) -> None:
        """Look at the entry at that time; None for not until something changes."""
        self.by_name[name].wake_at = at
        self._taken.pop(name, None)
        if at is not None:
            heapq.heappush(self._heap, (at, name))

    def take_due(self, now: Instant) -> list[TrackedEntry]:
        """Take the entries that are due, those that wait longest first."""
        found: dict[str, TrackedEntry] = {}
        while self._heap and self._heap[0][0] <= now:
            place = heapq.heappop(self._heap)
            if self._is_current(place):
                found[place[1]] = self.by_name[place[1]]
        self._taken.update(found)
        return list(found.values())

    def queue(self, tracked: TrackedEntry) -> None:
        """Append the entry to its queue."""
        self._taken.pop(tracked.entry.name, None)
        (self.live if tracked.catchup_until is None else self.behind).append(tracked)

    def take(self, queue: deque[TrackedEntry], most: int) -> list[TrackedEntry]:
        """Take the first entries of a queue."""
        first = [queue.popleft() for _ in range(min(most, len(queue)))]
        self._taken.update({tracked.entry.name: tracked for tracked in first})
        return first

    def put_first(self, queue: deque[TrackedEntry], several: Iterable[TrackedEntry]) -> None:
        """Return entries that a tick has not come to: it is their turn next."""
        for tracked in reversed(list(several)):
            self._taken.pop(tracked.entry.name, None)
            queue.appendleft(tracked)

    def put_back(self) -> None:
        """Put back what a failed tick had taken, for the next one."""
        for name, tracked in list(self._taken.items()):
            self.wake(name, tracked.wake_at)

    def next_wake(self) -> Instant | None:
        """Return when the next entry must be looked at."""
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)
        times = [self._heap[0][0]] if self._heap else []
        if self.live and self.live[0].wake_at is not None:
            times.append(self.live[0].wake_at)
        if self.behind:
            times.append(self.behind_at)
        return min(times, default=None)

    def settled(self, now: Instant) -> bool:
        """Tell whether every slot up to now is decided."""
        following = self.next_wake()
        return not (self._unsettled or self.live) and (following is None or following > now)

    def note(self, tracked: TrackedEntry) -> None:
        """Remember whether the entry is being caught up or failing."""
        if tracked.catchup_until is not None or tracked.due_since is not None:
            self._unsettled.add(tracked.entry.name)
        else:
            self._unsettled.discard(tracked.entry.name)

    def oldest_due(self, now: Instant) -> Instant | None:
        """Return the oldest slot that is due and undecided, except of entries that are being caught up."""
        waiting = [tracked.wake_at for tracked in self.live if tracked.wake_at is not None]
        waiting += [place[0] for place in self._heap[:1] if place[0] <= now and self._is_current(place)]
        return min(waiting, default=None)

    def certain(self, watermark: Instant) -> dict[str, Instant]:
        """Return up to where each entry is decided, by what the leader knows."""
        return {
            tracked.entry.name: max(watermark, tracked.state.decided or 0, tracked.state.first_seen_at)
            for tracked in self
        }
