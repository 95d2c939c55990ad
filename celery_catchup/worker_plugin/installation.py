"""Installation: put the claim before every task, and start the pulse of the worker's main process.

The only file of the plugin that uses private names of Celery: ``app._tasks`` (the registry before the app is
finalized), ``celery._state.connect_on_app_finalize`` and ``_get_active_apps`` (apps of this process).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any
from weakref import WeakSet

from celery import bootsteps, current_app, signals, states
from celery._state import _get_active_apps, connect_on_app_finalize

from celery_catchup.config.report_masking import mask_settings
from celery_catchup.events.log_lines import logfmt
from celery_catchup.store.opening import store_url
from celery_catchup.worker_plugin.claims import begin
from celery_catchup.worker_plugin.outcomes import listen
from celery_catchup.worker_plugin.worker_process import worker_process, worker_settings

logger = logging.getLogger(__name__)

_HOOK = "before_start"
_OURS = "__catchup_claims__"
_TRACKED = "__catchup_tracked__"
_STORED = "catchup_started"
_SOLO_PULSE = 5.0
"""Seconds between two signs of life of a worker that cannot answer while it executes a task."""

_installed: WeakSet[Any] = WeakSet()


def install(app: Any) -> None:
    """Let the workers of ``app`` claim, report and release runs; idempotent.

    For a project without a settings module; in settings, ``imports = ["celery_catchup.worker"]`` does
    the same.
    """
    if app in _installed:
        return
    _installed.add(app)
    mask_settings()  # `celery inspect conf` asks workers
    _watch(app._tasks)
    app.steps["consumer"].add(Pulse)
    listen()
    signals.worker_process_init.connect(_on_process_init, weak=False, dispatch_uid="celery_catchup.started")
    connect_on_app_finalize(partial(_install_copy, app.main))


def install_everywhere() -> None:
    """Install into the current app, and into those of workers that are starting.

    In a process that was spawned for a pool, the worker's app is not the current one yet.
    """
    install(current_app._get_current_object())
    for app in list(_get_active_apps()):
        loader = vars(app).get("loader")
        if loader is not None and loader.worker_initialized:
            install(app)
    signals.worker_init.connect(_on_worker_init, weak=False, dispatch_uid="celery_catchup.worker_init")


def _on_worker_init(sender: Any = None, **_: Any) -> None:
    """Install into the app of a worker that starts later."""
    install(sender.app)


def _install_copy(name: str | None, app: Any) -> None:
    """Install into the copy of the app that a pool makes in each process that it spawns."""
    if app.main == name:
        install(app)


def _on_process_init(**_: Any) -> None:
    """Prepare a child of a pool before its first task."""
    for app in list(_installed):
        store_started_after_claim(app)


# -- every task claims first -----------------------------------------------------------------


def _watch(registry: Any) -> None:
    """Wrap the tasks that are registered, and each that will be, however late.

    Celery has no signal for a task that is registered after the app was finalized, so the registry is
    watched. The app is not finalized here: other code may still wait for that.
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

    It goes into the class, because Celery looks there whether there is anything to call.
    """
    cls = type(task)
    if not hasattr(getattr(cls, _HOOK), _OURS):
        setattr(cls, _HOOK, _claiming(cls, cls.__dict__.get(_HOOK)))
    own = vars(task).get(_HOOK)
    if own is not None and not hasattr(own, _OURS):
        setattr(task, _HOOK, MethodType(_claiming(cls, staticmethod(own)), task))


def _claiming(cls: Any, own: Any) -> Callable[..., Any]:
    """Make the hook of a class that had ``own``, or inherits one."""

    def before_start(self: Any, task_id: str, args: Any, kwargs: Any) -> Any:
        begin(self)
        store_started(self)
        hook = super(cls, self).before_start if own is None else own.__get__(self, type(self))
        return hook(task_id, args, kwargs)

    setattr(before_start, _OURS, True)
    return before_start


# -- the state STARTED (task_track_started) is stored after the claim ----------------------------


def store_started_after_claim(app: Any) -> None:
    """Take the state over from Celery for the tasks of ``app``; again for those that are registered later.

    Celery stores it before a task can be refused: a refused copy of a message would overwrite the result
    of the run.
    """
    for task in app.tasks.values():
        if task.track_started:
            task.track_started = False
            setattr(task, _TRACKED, True)


def store_started(task: Any) -> None:
    """Store that a task has started, as Celery does; once for each message."""
    request = task.request
    if not getattr(task, _TRACKED, False) or request.is_eager or getattr(request, _STORED, False):
        return
    setattr(request, _STORED, True)
    ignored = vars(request).get("ignore_result")  # of this message; the class has a default of its own
    if not (task.ignore_result if ignored is None else ignored):
        meta = {"pid": os.getpid(), "hostname": request.hostname}
        task.backend.store_result(request.id, meta, states.STARTED, request=request)


# -- the pulse -------------------------------------------------------------------------------


class Pulse(bootsteps.StartStopStep):  # type: ignore[misc]
    """Show beat that this worker has the plugin, and renew the leases of its children's runs.

    A timer of the main process, not a thread: a thread would exist while children are forked. It renews in
    addition to each child's own heartbeat, which stops during a call that holds the interpreter lock.

    The pool ``solo`` has no children: it executes tasks in the main process, where timers wait and no
    question is answered meanwhile. There it is a thread, more often: others see only its sign of life.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)  # it knows which queues are consumed

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        self.enabled = _has_store(consumer.app)
        self._timer: Any = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        super().__init__(consumer, **kwargs)

    def start(self, consumer: Any) -> None:
        """Start the timer; again after each loss of the connection, because Celery clears its timers then."""
        if self._timer is not None:
            # A green timer returns the greenlet of the first call; its entry is what is repeated.
            getattr(self._timer, "entry", self._timer).cancel()
        store_started_after_claim(consumer.app)
        _pulse(consumer)
        interval = worker_process(consumer.app).heartbeat.interval
        if _is_solo(consumer):
            if self._thread is None:
                each = min(interval, _SOLO_PULSE)
                self._thread = threading.Thread(
                    target=self._loop, args=(consumer, each), name="catchup-pulse", daemon=True
                )
                self._thread.start()
            return
        self._timer = consumer.timer.call_repeatedly(interval, _pulse, (consumer,))

    def stop(self, consumer: Any) -> None:
        """Keep the timer: while a stopping worker waits for its children, their runs are renewed."""

    def shutdown(self, consumer: Any) -> None:
        """Unregister the worker."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_SOLO_PULSE)
        worker_process(consumer.app).leave(consumer.hostname)

    def _loop(self, consumer: Any, interval: float) -> None:
        while not self._ended.wait(interval):
            try:
                _pulse(consumer)
            except Exception:
                logger.exception(logfmt("Heartbeat failed"))


def _pulse(consumer: Any) -> None:
    """Renew, and register the queues that are consumed, which change at run time."""
    consumed = consumer.task_consumer.queues if consumer.task_consumer else ()
    worker_process(consumer.app).pulse(
        consumer.hostname, [str(queue.name) for queue in consumed], solo=_is_solo(consumer)
    )


def _is_solo(consumer: Any) -> bool:
    """Tell whether the worker executes tasks in its main process."""
    return type(consumer.pool).__module__ == "celery.concurrency.solo"


def _has_store(app: Any) -> bool:
    """Tell whether runs can be claimed. A worker that cannot claim would break what beat promises, so
    without a store in its settings, or with a mistake in them, it does not start.

    A broker in memory belongs to a test, and beat sends no runs there.
    """
    settings = worker_settings(app)
    if settings.redis_url is None and str(app.conf.broker_url).startswith("memory:"):
        logger.warning(logfmt("Runs are not claimed", reason="the broker is memory:// and there is no store"))
        return False
    return bool(store_url(app, settings))
