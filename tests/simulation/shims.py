"""Where the shipped code meets the operating system: threads, sleeps and random names come from the hub."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from celery_catchup.beat import assembly, worker_inspection
from celery_catchup.engine import advance, housekeeping, loss_evidence, reaper
from celery_catchup.events import Events, recurring_problems
from celery_catchup.operations import operator as operator
from celery_catchup.store import opening
from celery_catchup.store import store as store_scripts
from celery_catchup.store.store import Script
from celery_catchup.worker_plugin import claims, heartbeat, outcomes, publish_released, worker_process
from celery_catchup.worker_plugin.deliveries import Delivery
from tests.simulation.broker import Broker, SimulatedDispatcher
from tests.simulation.hub import Hub
from tests.simulation.network import Network, lead_into
from tests.simulation.server import PATIENCE

ASKED_LATELY = 180 * 60_000
"""Milliseconds; workers are asked every hour here."""
SCALE = 60
"""Leases last an hour here instead of a minute: a week then costs a sixtieth of the ticks."""


class _Thread:
    def __init__(self, hub: Hub, target: Callable[[], None]) -> None:
        self._hub, self._target, self._alive = hub, target, False

    def start(self) -> None:
        process = self._hub.current
        assert process is not None
        self._alive = True
        process.spawn(self._run)

    def _run(self) -> None:
        self._target()
        self._alive = False

    def is_alive(self) -> bool:
        return self._alive


class _Arrivals:
    """What the worker of the running process has received; it hands out its own tokens."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def forget(self, token: str) -> None:
        """The worker knows by itself what it has begun."""

    def started(self, task_id: str) -> list[Delivery]:
        return []

    def executed_now(self) -> list[Delivery]:
        return []

    def waiting_longer_than(self, seconds: float) -> list[Delivery]:
        process = self._hub.current
        assert process is not None
        deliveries = [one.delivery for one in process.notes["worker"].reserved]
        return [Delivery(one.run_id, one.headers["entry"], "") for one in deliveries if one.run_id]


class _Event:
    def __init__(self, hub: Hub) -> None:
        self._hub, self._set = hub, False

    def wait(self, seconds: float) -> bool:
        self._hub.sleep(seconds * 1000)
        return self._set

    def set(self) -> None:
        self._set = True


class _Lock:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def acquire(self, timeout: float) -> bool:
        return True

    def release(self) -> None:
        pass


def _threading(hub: Hub) -> SimpleNamespace:
    return SimpleNamespace(
        Lock=_Lock, Event=lambda: _Event(hub), Thread=lambda target, **_: _Thread(hub, target)
    )


@contextmanager
def replaced(changes: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Attributes that are something else for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    for owner, name, value in changes:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


@contextmanager
def simulated(
    network: Network,
    broker: Broker,
    scripts: dict[str, Script],
    hear: Callable[..., None],
    ask_workers: Callable[[Any], dict[str, list[str]] | None],
) -> Iterator[None]:
    """The shipped modules, on the hub's time, network and dice."""
    hub, draw = network.hub, network.hub.random
    dispatcher = type("Dispatcher", (SimulatedDispatcher,), {"broker": broker})
    connect = opening.connect

    def heard() -> Events:
        return Events(lambda event: hear(hub.current, event))

    monotonic = SimpleNamespace(monotonic=lambda: hub.now / 1000)
    arrivals = _Arrivals(hub)
    real_sleep = SimpleNamespace(sleep=lambda seconds: hub.sleep(seconds * 1000))
    changes = [
        (opening, "connect", lambda url, **options: lead_into(network, connect(url, **options))),
        (store_scripts, "all_scripts", lambda: scripts),
        (assembly, "Dispatcher", dispatcher),
        (assembly, "process_events", heard),
        (worker_process, "process_events", heard),
        (assembly, "evicted", lambda client: None),
        (publish_released, "Dispatcher", dispatcher),
        (publish_released, "threading", _threading(hub)),
        (operator, "Dispatcher", dispatcher),
        (heartbeat, "threading", _threading(hub)),
        (heartbeat, "time", real_sleep),
        (heartbeat, "_TICK", 2.0 * SCALE),
        (heartbeat, "_LAST_WAIT", 10.0 * SCALE),
        (worker_process, "arrivals", arrivals),
        (claims, "arrivals", arrivals),
        (outcomes, "arrivals", arrivals),
        (worker_inspection, "time", monotonic),
        (worker_inspection, "threading", _threading(hub)),
        (worker_inspection, "ask_workers", ask_workers),
        (worker_inspection, "_FIRST", 1200.0),
        (worker_inspection, "_EVERY", 3600.0),
        (worker_inspection, "_HURRY", 2400.0),
        (worker_inspection, "LATELY", ASKED_LATELY),
        (reaper, "LATELY", ASKED_LATELY),
        # Several commits in a tick: while one is on its way, the next is prepared.
        (advance, "_WORTH_SENDING", 2),
        (loss_evidence, "_SHORTEST_WAIT", PATIENCE // 2),
        # All at once: how far a scan gets in one step depends on the server's random hash seed.
        (housekeeping, "_AT_ONCE", 100_000),
        (housekeeping, "_MINUTE", 60_000 * SCALE * 6),
        (claims, "time", real_sleep),
        (recurring_problems, "_SHORTEST", SCALE),
        (recurring_problems, "_LONGEST", 5 * SCALE),
        (secrets, "token_hex", lambda size=16: f"{draw.getrandbits(8 * size):0{2 * size}x}"),
        (random, "uniform", draw.uniform),
    ]
    logging.disable(logging.CRITICAL)
    try:
        with replaced(changes):
            yield
    finally:
        logging.disable(logging.NOTSET)
        worker_process._processes.clear()
