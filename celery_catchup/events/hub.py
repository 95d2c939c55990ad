"""Deliver events to the subscribers of one beat or worker, and to those of the whole process."""

from __future__ import annotations

import logging
import typing
from collections.abc import Callable

from celery_catchup.events.beat import BeatEvent
from celery_catchup.events.worker import WorkerEvent

logger = logging.getLogger(__name__)

Event = BeatEvent | WorkerEvent
Subscriber = Callable[[Event], None]

CATALOGUE: tuple[type, ...] = typing.get_args(Event)
"""Every event class."""


class Events:
    """Calls its subscribers in the order in which they subscribed."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call the subscriber with every later event."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Call every subscriber with the event."""
        for subscriber in self._subscribers:
            subscriber(event)


# -- subscribers of the process ---------------------------------------------------------------

_subscriptions: tuple[tuple[Callable[..., object], tuple[type, ...]], ...] = ()
_failed: set[int] = set()


def subscribe(callback: Callable[..., object], *kinds: type) -> Callable[[], None]:
    """Call ``callback(event)`` for every event in this process, beat or worker, or only for these classes.

    The call happens where the event does: in beat between two decisions, in a worker beside the
    task, so it should be quick. An exception from it is logged once and goes no further. Returns a
    function that ends the subscription.
    """
    global _subscriptions
    unknown = [kind for kind in kinds if kind not in CATALOGUE]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not an event class; pass classes of celery_catchup.events")
    subscription = (callback, kinds)
    _subscriptions = (*_subscriptions, subscription)

    def end() -> None:
        global _subscriptions
        _subscriptions = tuple(one for one in _subscriptions if one is not subscription)

    return end


def notify_subscribers(event: Event) -> None:
    """Call the process's subscribers with an event."""
    for callback, kinds in _subscriptions:
        if not kinds or type(event) in kinds:
            try:
                callback(event)
            except Exception:  # noqa: BLE001 - a subscriber must not stop beat
                _log_failure(callback, event)


def _log_failure(callback: Callable[..., object], event: Event) -> None:
    """Log the first failure of a callback as an error, later ones at DEBUG."""
    first = id(callback) not in _failed
    _failed.add(id(callback))
    level = logging.ERROR if first else logging.DEBUG
    name = getattr(callback, "__qualname__", repr(callback))
    logger.log(level, "subscriber %s failed on %s", name, type(event).__name__, exc_info=True)
