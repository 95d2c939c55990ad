"""Ask the workers now: who answers, who has the plugin, and which entries they cannot serve."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from celery_catchup.beat.unserved import Destination, Unserved, destinations, find_unserved
from celery_catchup.beat.worker_inspection import ask_tasks, ask_workers
from celery_catchup.operations.operator import Operator

ANSWER = 1.0
"""Seconds that workers have to answer."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that answered, and those of them without the plugin. ``unserved`` are entries whose runs
    they cannot execute. ``asked`` is false when the broker did not take the question. ``busy`` are workers of
    the pool ``solo`` that are alive and execute a task: they answer when it has ended."""

    asked: bool
    workers: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    without_plugin: tuple[str, ...] = ()
    unserved: tuple[Unserved, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether any worker is there, be it one that cannot answer now."""
        return bool(self.workers or self.busy)


def ask_fleet(operator: Operator) -> Fleet:
    """Ask every worker which queues it consumes, and at the same time which tasks it knows."""
    with ThreadPoolExecutor(1, thread_name_prefix="celery-catchup-tasks") as thread:
        known = thread.submit(ask_tasks, operator.app, timeout=ANSWER)
        queues, tasks = ask_workers(operator.app, timeout=ANSWER), known.result()
    if queues is None:
        return Fleet(asked=False)
    with_plugin = operator.workers.seen_since(0)
    solo = operator.workers.solo_alive()
    busy = {worker: consumed for worker, consumed in solo.items() if worker not in queues}
    wanted = [*destinations(operator.app, operator.schedule), *_lanes(operator)]
    return Fleet(
        asked=True,
        workers=tuple(sorted(queues)),
        busy=tuple(sorted(busy)),
        without_plugin=tuple(sorted(set(queues) - set(with_plugin))),
        unserved=tuple(find_unserved(wanted, {**queues, **busy}, tasks or {})),
    )


def _lanes(operator: Operator) -> Iterator[Destination]:
    """Yield where catch-up runs go that have a queue of their own."""
    for name in operator.declared:
        policy = operator.configuration.policies.get(name)
        if policy is not None and policy.catch_up.queue is not None:
            yield Destination(name, str(operator.schedule[name].task), policy.catch_up.queue)
