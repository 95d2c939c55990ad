"""The hub: virtual time, and simulated processes that take turns as the seed says."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import random
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from greenlet import GreenletExit, getcurrent, greenlet

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TAIL = 400
"""Lines of the trace that are kept for people; the hash is of all of them."""


class CrashError(BaseException):
    """The process is dead: whatever it still wants to do on its way down does not happen."""


class HostClock:
    """Wall and monotonic clock of one host; only the wall clock can be set."""

    def __init__(self, hub: Hub, *, skew_ms: int) -> None:
        self._hub, self.skew_ms = hub, skew_ms

    def now(self) -> datetime:
        return EPOCH + timedelta(milliseconds=self.wall_ms)

    def monotonic(self) -> float:
        return self._hub.now / 1000

    @property
    def wall_ms(self) -> int:
        return self._hub.now + self.skew_ms

    def every(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """The same as a thread does: between any two steps of the same process."""
        process, going = self._hub.current, [True]
        assert process is not None

        def repeat() -> None:
            while True:
                self._hub.sleep(seconds * 1000)
                if not going:
                    return
                with contextlib.suppress(Exception):
                    action()

        process.spawn(repeat)
        return going.clear


class Process:
    """A simulated process: alive or not, stopped until some time, cut off until some time."""

    def __init__(self, hub: Hub, name: str, clock: HostClock) -> None:
        self.hub, self.name, self.clock = hub, name, clock
        self.alive = True
        self.stopped_until = self.cut_off_until = 0
        self.traps: deque[tuple[str, str, int]] = deque()
        """``(commands parted by "|" or "" for any, what happens, how long)`` of the next such command."""
        self.notes: dict[str, Any] = {}
        self.on_death: list[Callable[[], None]] = []

    def spawn(self, work: Callable[[], None], *, after: int = 0) -> None:
        self.hub.spawn(self, work, after=after)

    def die(self) -> None:
        if self.alive:
            self.alive = False
            self.hub.trace(self.name, "died")
            for told in self.on_death:
                told()

    def stop(self, milliseconds: int) -> None:
        """As SIGSTOP does; it goes on later with what it knew."""
        self.hub.trace(self.name, "stopped", milliseconds)
        self.stopped_until = max(self.stopped_until, self.hub.now + milliseconds)


class Place(Protocol):
    """Where a process runs, one after the other."""

    process: Process
    away: int

    def start(self) -> None: ...


class Hub:
    """Owns the time. One greenlet runs at any moment; who is next follows from the seed alone."""

    def __init__(self, seed: int, *, start_ms: int, keep: int = TAIL) -> None:
        self.random = random.Random(seed)
        self.now = self.start_ms = start_ms
        self.current: Process | None = None
        self.tail: deque[str] = deque(maxlen=keep)
        self.steps = 0
        self._hash = hashlib.sha256()
        self._events: list[tuple[int, int, Process, Any]] = []
        self._count = 0
        self._loop: Any = getcurrent()
        self.failure: BaseException | None = None
        self.supervisor = Process(self, "supervisor", HostClock(self, skew_ms=0))

    def trace(self, who: str, what: str, *details: object) -> None:
        line = f"{self.now - self.start_ms:>10} {who:<10} {what} {' '.join(map(str, details))}".rstrip()
        self.tail.append(line)
        self._hash.update(line.encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:16]

    def spawn(self, process: Process, work: Callable[[], None], *, after: int = 0) -> None:
        self._push(self.now + after, process, greenlet(lambda: self._guarded(work), self._loop))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (CrashError, GreenletExit):
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it is, the world ends with it
            if self.failure is None:
                self.failure = error

    def sleep(self, milliseconds: float) -> None:
        """The running process waits; the others go on."""
        process = self.current
        assert process is not None
        if not process.alive:
            raise CrashError
        self._push(self.now + max(0, round(milliseconds)), process, getcurrent())
        self._loop.switch()
        if not process.alive:
            raise CrashError

    def run(self, *, until: int) -> None:
        """Let everybody live until then, or until something is wrong."""
        self._loop = getcurrent()
        while self._events and self._events[0][0] <= until and self.failure is None:
            at, _, process, work = heapq.heappop(self._events)
            if process.alive and at < process.stopped_until:
                self._push(process.stopped_until, process, work)
                continue
            self.now = max(self.now, at)
            self.steps += 1
            self.current = process
            work.switch()
            self.current = None
        if self.failure is not None:
            raise self.failure
        self.now = max(self.now, until)

    def wake(self, process: Process) -> None:
        """Let a stopped process go on now, with all of its threads."""
        until, process.stopped_until = process.stopped_until, 0
        self._events = [
            (self.now if one is process and at == until else at, number, one, work)
            for at, number, one, work in self._events
        ]
        heapq.heapify(self._events)

    def abandon(self) -> None:
        """The end: whoever still waits is let go without another word."""
        self._loop = getcurrent()
        for _, _, process, work in self._events:
            process.alive = False
            self.current = process
            if work:
                work.throw(CrashError)
        self._events.clear()
        self.current = None

    def supervise(self, place: Place, process: Process) -> None:
        """Whoever dies is started again, after as long as its place says, or a few minutes."""

        def again() -> None:
            if place.process is process:
                place.start()

        def died() -> None:
            away, place.away = place.away or round(self.random.expovariate(1 / 600_000)), 0
            self.spawn(self.supervisor, again, after=away)

        process.on_death.append(died)

    def _push(self, at: int, process: Process, work: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, process, work))
