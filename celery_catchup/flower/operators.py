"""One operator per app, shared by all requests, in threads: Flower's event loop never waits for the store."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from celery_catchup.errors import CatchupError, StoreError
from celery_catchup.operations import Operator
from celery_catchup.operations.operator import MOST_PER_REQUEST
from celery_catchup.store import Actor, Origin
from celery_catchup.store.error_advice import STORE_FAILS
from celery_catchup.store.opening import why_unusable

Result = TypeVar("Result")

THREADS = 8
"""Requests that may wait for the store at once. Every command has a timeout, so none waits for long."""
HEAVY_THREADS, MOST_HEAVY = 2, 6
"""Requests that may plan slots or read much at once, and how many may be there with those that wait: more
would leave the event loop no processor time."""

FOLLOW_EVERY = 0.5
"""Seconds between two looks for changes of entries."""
_operators: WeakKeyDictionary[Any, Operator] = WeakKeyDictionary()
_followed_at: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
_lock = threading.Lock()
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="celery-catchup")
_heavy_threads = ThreadPoolExecutor(HEAVY_THREADS, thread_name_prefix="celery-catchup-heavy")
_heavy_places = threading.BoundedSemaphore(MOST_HEAVY)


class UnreachableError(StoreError):
    """The store does not answer, or not as expected; the message has its URL and the reason."""


class BusyError(CatchupError):
    """Too many heavy requests are there already."""


async def with_operator(
    app: Any, function: Callable[[Operator], Result], *, actor: Actor, heavy: bool = False
) -> Result:
    """Call the function with the app's operator, in a thread; ``actor`` is the user, for the audit
    trail.

    A failure of the store is an `UnreachableError`; the next call tries a new connection. Few ``heavy``
    calls run and wait at the same time; one more is a `BusyError`.
    """
    call, loop = partial(_call, app, function, actor), asyncio.get_running_loop()
    if not heavy:
        return await loop.run_in_executor(_threads, call)
    if not _heavy_places.acquire(blocking=False):
        raise BusyError(f"{MOST_HEAVY} requests of this kind are there already; try again in a few seconds")
    future = _heavy_threads.submit(call)
    # Also if the request has gone meanwhile.
    future.add_done_callback(lambda _: _heavy_places.release())
    return await asyncio.wrap_future(future)


def _call(app: Any, function: Callable[[Operator], Result], actor: Actor) -> Result:
    try:
        operator = copy.copy(operator_of(app))  # entries that are stored are read here
        operator.actor = actor
        return function(operator)
    except STORE_FAILS as error:
        raise UnreachableError(why_unusable(app, error)) from None


def operator_of(app: Any) -> Operator:
    """Return the app's operator, and open it first if necessary.

    Settings are read once: restart Flower after a change, as beat and workers. Entries that change at run
    time are read again after a change, and an invalid configuration on every request.
    """
    with _lock:
        operator = _operators.get(app)
        if operator is not None and time.monotonic() - _followed_at.get(app, 0.0) < FOLLOW_EVERY:
            return operator
        _followed_at[app] = time.monotonic()  # also if that fails: other requests do not wait for it
        if operator is None or operator.source.has_changed():
            operator = _open(app, previous=operator)
        else:
            operator = _shared(operator.follow_stored())
        _operators[app] = operator
        return operator


def follow_at_once(app: Any) -> None:
    """Look for changes of entries with the next request: this process has made one."""
    _followed_at.pop(app, None)


def _open(app: Any, *, previous: Operator | None) -> Operator:
    """Create an operator with everything that its copies share; the store stays the same."""
    operator = Operator(app, actor=Actor("", Origin.FLOWER))  # each call's copy has its own
    operator.most_planned = MOST_PER_REQUEST
    if previous is not None:
        vars(operator)["store"] = previous.store
    return _shared(operator)


def _shared(operator: Operator) -> Operator:
    """Open everything that copies share."""
    operator.open_shared()
    return operator
