"""Who hears of events: a beat's or a worker's own subscribers, and everyone in the process."""

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
"""Every kind of event there is."""


class Events:
    """Tells every subscriber, in the order they came."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = list(subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Be told of everything from now on."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Tell them."""
        for subscriber in self._subscribers:
            subscriber(event)


# -- everyone in this process ----------------------------------------------------------------

_subscriptions: tuple[tuple[Callable[..., object], tuple[type, ...]], ...] = ()
_failed: set[int] = set()


def subscribe(callback: Callable[..., object], *kinds: type) -> Callable[[], None]:
    """Be told of every event in this process, beat or worker, or of these kinds only.

    ``callback(event)`` is called where the event happens: in beat between two decisions, in a
    worker beside the task. It should be quick. What it raises is logged, once, and goes no
    further. Returns a function that ends the subscription.
    """
    global _subscriptions
    unknown = [kind for kind in kinds if kind not in CATALOGUE]
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no event; pass classes of celery_catchup.events")
    subscription = (callback, kinds)
    _subscriptions = (*_subscriptions, subscription)

    def end() -> None:
        global _subscriptions
        _subscriptions = tuple(one for one in _subscriptions if one is not subscription)

    return end


def notify_subscribers(event: Event) -> None:
    """Tell all who subscribed in this process; when nobody has, it costs nothing."""
    for callback, kinds in _subscriptions:
        if not kinds or type(event) in kinds:
            try:
                callback(event)
            except Exception:  # noqa: BLE001 - whatever it is, it is logged, and beat goes on
                _complain(callback, event)


def _complain(callback: Callable[..., object], event: Event) -> None:
    """The first time it is an error; what fails each time would drown everything else."""
    first = id(callback) not in _failed
    _failed.add(id(callback))
    level = logging.ERROR if first else logging.DEBUG
    name = getattr(callback, "__qualname__", repr(callback))
    logger.log(level, "subscriber %s failed on %s", name, type(event).__name__, exc_info=True)
