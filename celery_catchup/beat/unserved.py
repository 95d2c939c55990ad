"""Find entries whose runs no worker executes: none consumes their queue, or knows their task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_catchup.error_text import listed, shown
from celery_catchup.events.command_lines import celery_line

_DESTINATION = ("queue", "exchange", "routing_key")
_MOST = 5
"""Entries that a text names."""
_BUILT_IN = "celery."
"""Prefix of the tasks that every worker has, and that workers leave out when they list their tasks."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the messages of an entry go; ``queue`` is None if only the broker knows it."""

    entry: str
    task: str
    queue: str | None


@dataclass(frozen=True, slots=True)
class Unserved:
    """Entries that workers cannot serve at present. Without a ``task``, no worker consumes the ``queue``;
    with one, these ``workers`` consume it and do not know the task. ``entirely``: no other worker does."""

    queue: str
    task: str | None
    entries: tuple[str, ...]
    workers: tuple[str, ...]
    entirely: bool

    @property
    def detail(self) -> str:
        """The problem in one sentence."""
        whose = f"entries: {listed(self.entries[:_MOST])}"
        whose += f" and {len(self.entries) - _MOST} more" if len(self.entries) > _MOST else ""
        if self.task is None:
            return f"no worker consumes queue {shown(self.queue)}; {whose}"
        who = "no worker" if self.entirely else f"{listed(self.workers[:_MOST])} of several workers"
        knows = "knows" if self.entirely else "do not know" if len(self.workers) > 1 else "does not know"
        return f"{who} of queue {shown(self.queue)} {knows} task {shown(self.task)}; {whose}"

    @property
    def command(self) -> str:
        """The command that solves it; empty if none does."""
        return celery_line("worker", "-Q", self.queue) if self.task is None else ""

    @property
    def fix(self) -> str:
        """The way to solve it."""
        if self.command:
            return f"start one: {self.command}"
        return "import the task's module there: imports += [...] or include=[...]; then restart the workers"


def destinations(app: Any, schedule: Mapping[str, Any]) -> list[Destination]:
    """Return where the entries' messages go, by the app's routes."""
    routes: dict[tuple[Any, ...], str | None] = {}
    found = []
    for name, entry in schedule.items():
        given = {key: entry.options[key] for key in _DESTINATION if entry.options.get(key) is not None}
        known = (entry.task, *(str(given.get(key)) for key in _DESTINATION))
        if known not in routes:
            routes[known] = _queue(app, str(entry.task), given, entry)
        found.append(Destination(str(name), str(entry.task), routes[known]))
    return found


def _queue(app: Any, task: str, given: Mapping[str, Any], entry: Any) -> str | None:
    registered = app.tasks.get(task)
    own = {key: value for key in _DESTINATION if (value := getattr(registered, key, None)) is not None}
    try:
        route = app.amqp.router.route({**own, **given}, task, entry.args or (), entry.kwargs or {})
    except Exception:  # noqa: BLE001 - a route may be a function of the user's
        return None
    queue = route.get("queue")
    return None if queue is None else str(getattr(queue, "name", queue))


def find_unserved(
    wanted: Iterable[Destination], queues: Mapping[str, Sequence[str]], tasks: Mapping[str, Collection[str]]
) -> Iterator[Unserved]:
    """Compare entries with the workers' answers: the queues that each consumes, the tasks that each knows."""
    consumers, unconsumed = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for worker, consumed in queues.items():
        for queue in consumed:
            consumers[queue].append(worker)
    of_task = defaultdict[tuple[str, str], list[str]](list)
    for one in wanted:
        if one.queue is not None and one.queue in consumers:
            of_task[one.queue, one.task].append(one.entry)
        elif one.queue is not None:
            unconsumed[one.queue].append(one.entry)
    for queue, entries in unconsumed.items():
        yield Unserved(queue, None, tuple(entries), (), entirely=True)
    for (queue, task), entries in of_task.items():
        lacking = [worker for worker in consumers[queue] if worker in tasks and task not in tasks[worker]]
        if lacking and not task.startswith(_BUILT_IN):
            entirely = len(lacking) == len(consumers[queue])
            yield Unserved(queue, task, tuple(entries), tuple(sorted(lacking)), entirely=entirely)
