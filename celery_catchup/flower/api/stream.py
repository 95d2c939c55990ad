"""The stream of changes: one reader of the store for all open streams of an app, while there are any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from celery_catchup.errors import CatchupError
from celery_catchup.flower.fleet import latest_fleet
from celery_catchup.flower.operators import BusyError, with_operator
from celery_catchup.operations import Operator
from celery_catchup.operations.changes import Topic, fingerprints
from celery_catchup.store import Actor, Origin

EVERY = 1.0
"""Seconds between two looks at the store."""
ALIVE_EVERY = 15.0
"""Seconds after which a stream without a change sends a comment, so that no proxy closes it."""
MOST_STREAMS = 100
"""Streams of one Flower; a browser has one for each page that is visible."""

Changes = asyncio.Queue[list[Topic] | None]
"""What has changed; None when the client is gone."""
_watches: WeakKeyDictionary[Any, _Watch] = WeakKeyDictionary()


class _Watch:
    """The open streams of an app, and the task that looks for changes."""

    def __init__(self) -> None:
        self.streams: dict[Changes, bool] = {}  # whether a stream knows that changes from now on are sent
        self.task: asyncio.Task[None] | None = None

    async def look(self, app: Any) -> None:
        before = None
        while self.streams:
            try:
                found = await with_operator(app, _look, actor=Actor("", Origin.FLOWER))
            except CatchupError:
                found = dict[Topic, object]({Topic.STATUS: "unreachable"})
            earlier = found if before is None else before
            changed = [topic for topic in Topic if found.get(topic) != earlier.get(topic)]
            before = found
            for stream, ready in self.streams.items():
                if changed or not ready:
                    stream.put_nowait(changed if ready else [])
                self.streams[stream] = True
            await asyncio.sleep(EVERY)
        self.task = None


def _look(operator: Operator) -> dict[Topic, object]:
    """Return the fingerprints; the status also changes with what the workers answer."""
    found = fingerprints(operator)
    return {**found, Topic.STATUS: (found[Topic.STATUS], latest_fleet(operator))}


@asynccontextmanager
async def changes(app: Any) -> AsyncIterator[Changes]:
    """Return a queue of changes; the first item is empty and says that changes from now on follow."""
    watch = _watches.setdefault(app, _Watch())
    if len(watch.streams) >= MOST_STREAMS:
        raise BusyError(f"{MOST_STREAMS} streams are open already")
    stream: Changes = asyncio.Queue()
    watch.streams[stream] = False
    if watch.task is None or watch.task.done():
        watch.task = asyncio.create_task(watch.look(app))
    try:
        yield stream
    finally:
        watch.streams.pop(stream, None)
