"""A operator for many requests: kept open, and used in threads, so that Flower's loop never waits."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from redis.exceptions import RedisClusterException, RedisError

from celery_catchup.errors import StoreError
from celery_catchup.operations import Operator
from celery_catchup.store.connection import explain
from celery_catchup.store.opening import masked_url

Result = TypeVar("Result")

THREADS = 8
"""Requests that may wait for the store at once. Each command has its time limit, so none waits for long."""

_operators: WeakKeyDictionary[Any, Operator] = WeakKeyDictionary()
_opening = threading.Lock()
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="celery-catchup")


class UnreachableError(StoreError):
    """The store does not answer, or not as it should; the message says where it is and what to do."""


async def with_operator(app: Any, function: Callable[[Operator], Result], *, by: str = "") -> Result:
    """Call the function with the app's operator, in a thread; ``by`` is who asks, for the record.

    What goes wrong with the store is an `UnreachableError`; the next call tries a new connection.
    """
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(_call, app, function, by))


def _call(app: Any, function: Callable[[Operator], Result], by: str) -> Result:
    try:
        return function(_signed(desk_of(app), by))
    except (RedisError, RedisClusterException) as error:
        raise UnreachableError(f"the store at {masked_url(app)} cannot be used: {explain(error)}") from None


def desk_of(app: Any) -> Operator:
    """The app's operator. Its settings are read once: as beat and workers, Flower has to be started again
    to see others. Entries of a source that changes under way are read again when it has changed, and
    a configuration with mistakes until it has none."""
    with _opening:
        operator = _operators.get(app)
        if operator is None or operator.source.has_changed():
            operator = _operators[app] = _opened(app, before=operator)
        return operator


def _opened(app: Any, *, before: Operator | None) -> Operator:
    """A operator on which everything lies that several threads would otherwise make at the same time; with
    the store of the one before it, which may still be in use."""
    operator = Operator(app)
    _ = (operator.source, operator.declared, operator.every_entry)
    if before is not None:
        vars(operator)["store"] = before.store
    _ = (
        operator.states,
        operator.ledger,
        operator.listing,
        operator.survey,
        operator.history,
        operator.controls,
    )
    _ = (operator.backfills, operator.watermarks, operator.workers, operator.notes)
    return operator


def _signed(operator: Operator, by: str) -> Operator:
    """The same operator with somebody else at it."""
    signed = copy.copy(operator)
    signed.by = by
    return signed
