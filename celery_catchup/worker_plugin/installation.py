"""Installation: the claim goes before every task, and the worker's main process keeps the pulse."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

from celery import bootsteps, signals
from celery._state import connect_on_app_finalize

from celery_catchup.config.report_masking import mask_redis_url
from celery_catchup.events.log_lines import logfmt
from celery_catchup.store.opening import store_url
from celery_catchup.worker_plugin.claims import begin
from celery_catchup.worker_plugin.outcomes import listen
from celery_catchup.worker_plugin.started_state import store_started, store_started_after_claim
from celery_catchup.worker_plugin.worker_process import worker_process, worker_settings

logger = logging.getLogger(__name__)

_HOOK = "before_start"
_OURS = "__catchup_claims__"

_installed: WeakSet[Any] = WeakSet()


def install(app: Any) -> None:
    """Let the workers of ``app`` claim, report and release runs; twice is as good as once.

    The one line for a project without a settings module; otherwise
    ``imports = ["celery_catchup.worker"]`` does the same.
    """
    if app in _installed:
        return
    _installed.add(app)
    mask_redis_url()  # `celery inspect conf` asks workers
    _watch(app._tasks)
    app.steps["consumer"].add(Pulse)
    listen()
    signals.worker_process_init.connect(_on_process_init, weak=False, dispatch_uid="celery_catchup.started")
    connect_on_app_finalize(partial(_install_copy, app.main))


def _install_copy(name: str | None, app: Any) -> None:
    """A pool that spawns its processes makes a copy of the app in each of them."""
    if app.main == name:
        install(app)


def _on_process_init(**_: Any) -> None:
    """In a child of a pool, before its first task."""
    for app in list(_installed):
        store_started_after_claim(app)


# -- every task claims first -----------------------------------------------------------------


def _watch(registry: Any) -> None:
    """Wrap the tasks that are registered, and each that will be, however late.

    No signal tells of a task that is registered after the app was finalized, so the registry
    itself does. The app is not finalized here: others may still wait for that.
    """
    kind = type(registry)

    def register(self: Any, name: str, task: Any) -> None:
        claim_first(task)
        kind.__setitem__(self, name, task)

    for task in registry.values():
        claim_first(task)
    registry.__class__ = type(
        kind.__name__, (kind,), {"__setitem__": register, "__module__": kind.__module__}
    )


def claim_first(task: Any) -> None:
    """Put the claim before whatever the task does in ``before_start``.

    It goes into the class, because Celery asks the class whether there is anything to call.
    """
    cls = type(task)
    if not hasattr(getattr(cls, _HOOK), _OURS):
        setattr(cls, _HOOK, _claiming(cls, cls.__dict__.get(_HOOK)))
    own = vars(task).get(_HOOK)
    if own is not None and not hasattr(own, _OURS):
        setattr(task, _HOOK, _claiming_for(task, own))


def _claiming(cls: Any, own: Any) -> Callable[..., Any]:
    """A hook for a class that had ``own``, or inherits one."""

    def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> Any:
        begin(self)
        store_started(self)
        hook = super(cls, self).before_start if own is None else own.__get__(self, type(self))
        return hook(task_id, args, kwargs)

    setattr(before_start, _OURS, True)
    return before_start


def _claiming_for(task: Any, own: Callable[..., Any]) -> Callable[..., Any]:
    """A hook for a task that has one of its own, beside its class."""

    def before_start(task_id: str, args: Any, kwargs: Any) -> Any:
        begin(task)
        store_started(task)
        return own(task_id, args, kwargs)

    setattr(before_start, _OURS, True)
    return before_start


# -- the pulse -------------------------------------------------------------------------------


class Pulse(bootsteps.StartStopStep):  # type: ignore[misc]
    """Shows beat that this worker has the plugin, and renews the leases of its children's runs.

    A timer of the main process and no thread: a thread would be there when children are
    forked. It is a second source beside each child's own heartbeat, which is silent during a
    call that does not let go of the interpreter.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)  # they know which queues are consumed

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self.enabled = _has_store(consumer.app)
        self._timer: Any = None
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Again after each loss of the connection, for Celery clears its timers then."""
        if self._timer is not None:
            # A green timer hands out the greenlet of the first call; what is repeated is its entry.
            getattr(self._timer, "entry", self._timer).cancel()
        store_started_after_claim(consumer.app)
        _pulse(consumer)
        interval = worker_process(consumer.app).heartbeat.interval
        self._timer = consumer.timer.call_repeatedly(interval, _pulse, (consumer,))

    def stop(self, consumer: Any) -> None:
        """Nothing: while a stopping worker waits for its children, their runs are renewed."""

    def shutdown(self, consumer: Any) -> None:
        """The worker has stopped."""
        worker_process(consumer.app).leave(consumer.hostname)


def _pulse(consumer: Any) -> None:
    """Renew, and say which queues are consumed: that changes at run time."""
    consumed = consumer.task_consumer.queues if consumer.task_consumer else ()
    worker_process(consumer.app).pulse(consumer.hostname, [str(queue.name) for queue in consumed])


def _has_store(app: Any) -> bool:
    """Whether runs can be claimed. A worker that could not would break what beat promises, so
    with a mistake in its settings, or none that says where the store is, it does not start.

    A broker in memory is a test's, and no beat sends runs there.
    """
    settings = worker_settings(app)
    if settings.redis_url is None and str(app.conf.broker_url).startswith("memory:"):
        logger.warning(logfmt("Runs are not claimed", reason="the broker is memory:// and there is no store"))
        return False
    return bool(store_url(app, settings))
