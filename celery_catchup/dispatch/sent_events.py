"""Sent events: with ``task_send_sent_event``, send the event ``task-sent`` of each message, as Celery does.

Celery sends it in the call that sends the message. Here that call only builds the message, so the event
follows the commit that pushed the message, or the broker's confirmation. Best effort, as Celery's events are:
a failure is logged, and the dispatch is not affected.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from celery_catchup.dispatch.broker import Broker
from celery_catchup.dispatch.dispatch_error import describe
from celery_catchup.events.recurring_problems import RecurringProblem
from celery_catchup.model import RunState
from celery_catchup.store import Ledger
from celery_catchup.store.templates import render

logger = logging.getLogger(__name__)

# field of the event -> header of the message
_HEADERS = {
    "uuid": "id",
    "root_id": "root_id",
    "parent_id": "parent_id",
    "name": "task",
    "args": "argsrepr",
    "kwargs": "kwargsrepr",
    "retries": "retries",
    "eta": "eta",
    "expires": "expires",
}
_SEPARATOR = "\x06\x16"  # kombu's, between a queue of Redis and a priority


class SentEvents:
    """Send ``task-sent`` events over the connection of a `Broker`, when the app wants them."""

    def __init__(self, app: Any, broker: Broker) -> None:
        self._app, self._broker = app, broker
        self._trouble = RecurringProblem(
            "Sent events cannot be sent", logger=logger, monotonic=time.monotonic
        )
        self._retry_at = 0.0

    @cached_property
    def wanted(self) -> bool:
        """Whether the app wants them."""
        return bool(self._app.conf.task_send_sent_event)

    def published(self, publications: Sequence[Mapping[str, Any]]) -> None:
        """Send the events of messages that the broker has confirmed."""
        if self.wanted and publications:
            self._send(map(_of_publication, publications))

    def pushed(self, queue: str, messages: Sequence[str]) -> None:
        """Send the events of messages that a script has pushed to a queue of Redis."""
        if self.wanted and messages:
            self._send(self._of_push(queue, message) for message in messages)

    def pushed_runs(self, ledger: Ledger, run_ids: Sequence[str]) -> None:
        """Send the events of those runs whose messages a script has pushed; the others wait, for their turn
        or in the outbox, and get their event when they are sent."""
        if self.wanted and run_ids:
            self._send(event for run_id in run_ids for event in self._of_run(ledger, run_id))

    def _send(self, events: Iterable[Mapping[str, Any]]) -> None:
        if time.monotonic() < self._retry_at:
            return
        try:
            producer = self._broker.event_producer()
            for fields in events:
                if fields["uuid"] is None:
                    continue  # task_protocol 1 has it in the body
                self._dispatcher.publish("task-sent", fields, producer)
        except BaseException as error:
            self._broker.drop()
            if not isinstance(error, Exception):
                raise
            self._retry_at = time.monotonic() + self._trouble.report(describe(error))
            return
        self._trouble.resolved()

    @cached_property
    def _dispatcher(self) -> Any:
        # Not enabled: it gets a producer with each event. The connection decides the type of exchange.
        return self._app.events.Dispatcher(self._broker.connection, enabled=False)

    def _of_run(self, ledger: Ledger, run_id: str) -> Iterator[dict[str, Any]]:
        run = ledger.run(run_id)
        template = ledger.template(run["template"]) if run and run["state"] != RunState.WAITING else None
        if run is not None and template is not None and template.get("queue") is not None:
            yield self._of_push(template["queue"], render(template, run_id, run, run["queued"]))

    def _of_push(self, key: str, text: str) -> dict[str, Any]:
        message = json.loads(text)
        info = message["properties"]["delivery_info"]
        return _event(message["headers"], self._queue_name(key), info["exchange"], info["routing_key"])

    def _queue_name(self, key: str) -> str:
        """Return the queue of a key, without the prefix of all keys and without a priority."""
        options = self._app.conf.broker_transport_options or {}
        name = key.removeprefix(options.get("global_keyprefix") or "")
        before, _, priority = name.rpartition(options.get("sep") or _SEPARATOR)
        return before if before and priority.isdecimal() else name


def _of_publication(publication: Mapping[str, Any]) -> dict[str, Any]:
    queues = [one["name"] for one in publication["declare"] if one["kind"] == "queue"]
    exchange, routing_key = publication["exchange"], publication["routing_key"]
    queue = queues[-1] if queues else routing_key if not exchange else None
    return _event(publication["headers"], queue, exchange, routing_key)


def _event(headers: Mapping[str, Any], queue: str | None, exchange: str, routing_key: str) -> dict[str, Any]:
    fields = {name: headers.get(header) for name, header in _HEADERS.items()}
    return {**fields, "queue": queue, "exchange": exchange, "routing_key": routing_key}
