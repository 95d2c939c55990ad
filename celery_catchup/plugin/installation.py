"""The worker plugin: puts the claim before every task, listens for its end, and keeps the pulse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from celery import bootsteps, signals

from celery_catchup.plugin import claims
from celery_catchup.header_names import ENTRY, RUN_ID
from celery_catchup.plugin.deliveries import Delivery, header, delivery_of, read_delivery
from celery_catchup.model import RunState
from celery_catchup.plugin.reports import NOBODY, Report, in_a_line
from celery_catchup.plugin.station import arrivals, flush, station, worker_settings

_HOOK = "before_start"
_OURS = "__catchup_claims__"

_installed: WeakSet[Any] = WeakSet()


def install(app: Any) -> None:
    """Let the workers of ``app`` claim, report and release runs; twice is as good as once.

    For the one line in a project that has no settings module; otherwise
    ``imports = ["celery_catchup.worker"]`` does the same.
    """
    if app in _installed:
        return
    _installed.add(app)
    _watch(app._tasks)
    app.steps["consumer"].add(Pulse)
    _listen()


# -- every task claims first -----------------------------------------------------------------


def _watch(registry: Any) -> None:
    """Wrap the tasks that are registered, and each that will be, however late.

    No signal tells of a task that is registered after the app is finalized, so the registry
    itself does. The app is not finalized here: others may still wait for that.
    """
    kind = type(registry)

    def __setitem__(self: Any, name: str, task: Any) -> None:  # noqa: N807 - of the class made below
        claim_first(task)
        kind.__setitem__(self, name, task)

    for task in registry.values():
        claim_first(task)
    registry.__class__ = type(kind.__name__, (kind,), {"__setitem__": __setitem__, "__module__": kind.__module__})


def claim_first(task: Any) -> None:
    """Put the claim before whatever the task does in ``before_start``.

    It goes into the class, because Celery asks the class whether there is anything to call.
    """
    cls = type(task)
    if not hasattr(getattr(cls, _HOOK), _OURS):
        setattr(cls, _HOOK, _claiming(cls, cls.__dict__.get(_HOOK)))
    own = vars(task).get(_HOOK)
    if own is not None and not hasattr(own, _OURS):
        setattr(task, _HOOK, _claiming_instance(task, own))


def _claiming(cls: type, own: Any) -> Callable[..., Any]:
    def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> Any:
        claims.begin(self)
        hook = super(cls, self).before_start if own is None else own.__get__(self, type(self))  # type: ignore[misc]
        return hook(task_id, args, kwargs)

    setattr(before_start, _OURS, True)
    return before_start


def _claiming_instance(task: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    def before_start(task_id: str, args: Any, kwargs: Any) -> Any:
        claims.begin(task)
        return own(task_id, args, kwargs)

    setattr(before_start, _OURS, True)
    return before_start


# -- the pulse -------------------------------------------------------------------------------


class Pulse(bootsteps.StartStopStep):  # type: ignore[misc]
    """Shows beat that this worker has the plugin, and renews the leases of its children's runs.

    A timer of the main process and no thread: a thread would be there when children are
    forked. It is a second source beside each child's own heartbeat, which a call that never
    lets go of the interpreter silences.
    """

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        worker_settings(consumer.app)  # a mistake in them stops the worker here, before it takes anything
        self._timer: Any = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Again after each loss of the connection, for Celery clears its timers then."""
        if self._timer is not None:
            consumer.timer.cancel(self._timer)
        post = station(consumer.app)
        post.pulse(consumer.hostname)
        self._timer = consumer.timer.call_repeatedly(
            post.heartbeat.interval, post.pulse, (consumer.hostname,)
        )

    def stop(self, consumer: Any) -> None:
        """Nothing: while a stopping worker waits for its children, their runs are renewed."""

    def shutdown(self, consumer: Any) -> None:
        """The worker has stopped."""
        station(consumer.app).leave(consumer.hostname)
