"""Deliveries: which run a message belongs to, and the token of one delivery of it.

The token is the owner under which the run is claimed. Where a pool has processes, the main process gives it
when the message arrives, so that it can renew and report for a child that cannot. It travels among the
message's properties, which are not copied into retries as headers are.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from celery.worker.state import active_requests

from celery_catchup.dispatch.header_names import ENTRY, RUN_ID, TRIGGER_TYPE
from celery_catchup.model import Trigger

TOKEN = "catchup_token"

LONGEST = 200
"""Characters of a run id or an entry's name; anything longer was not written by us."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a message with a run's headers; one that was refused on arrival has no token.

    ``own``: by its task id it can be the run's own message. Headers can be passed on to other tasks,
    which have nothing to do with the run. Messages with `run_headers` have an id of their own: the ledger
    knows which of them is the run's.
    """

    run_id: str
    entry: str
    token: str
    own: bool = True


def read_delivery(headers: Mapping[str, object], properties: object) -> Delivery | None:
    """Read a delivery from a message; None when its headers cannot have been written by us."""
    run_id, entry = headers.get(RUN_ID), headers.get(ENTRY)
    if not (_is_name(run_id) and _is_name(entry)):
        return None
    token = properties.get(TOKEN, "") if isinstance(properties, Mapping) else ""
    own = headers.get(TRIGGER_TYPE) == Trigger.MANUAL or is_message_of(str(run_id), headers.get("id"))
    return Delivery(str(run_id), str(entry), str(token), own)


def delivery_of(request: Any) -> Delivery | None:
    """Read the delivery that a task's request came with."""
    headers = {name: header(request, name) for name in (RUN_ID, ENTRY, TRIGGER_TYPE)}
    return read_delivery({**headers, "id": request.id}, request.properties)


def header(request: Any, name: str) -> object:
    """Return a header of a request, whichever protocol brought it."""
    found = request.get(name)
    if found is None and isinstance(request.headers, Mapping):
        return request.headers.get(name)
    return found


def is_message_of(run_id: str, task_id: object) -> bool:
    """Tell whether a task's id is one that the run's messages have: the run's own, followed by the attempt
    from the second on."""
    if not isinstance(task_id, str) or not task_id.startswith(run_id):
        return False
    rest = task_id.removeprefix(run_id)
    return not rest or (rest.startswith("-") and rest[1:].isdecimal())


def new_token() -> str:
    """Make a token that no other delivery has, on any machine."""
    return secrets.token_hex(8)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST


class Arrivals:
    """Messages of runs that arrived in this process and have not ended, as long as Celery knows them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._requests: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._renewed_at: dict[str, float] = {}

    def arrived(self, request: Any) -> None:
        """Give a new message its token, when it belongs to a run."""
        headers = request.request_dict
        if RUN_ID in headers or RUN_ID in _nested(headers):
            token = headers["properties"][TOKEN] = new_token()
            self._mine()[token] = request

    def forget(self, token: str) -> None:
        """Forget a message that was refused, or whose end is reported."""
        self._mine().pop(token, None)

    def started(self, task_id: str) -> list[Delivery]:
        """List the deliveries of a task that a pool has accepted, even when they have ended."""
        return self._those(lambda request: request.id == task_id and request.time_start is not None)

    def executed_now(self) -> list[Delivery]:
        """List what a pool has accepted and not ended, as Celery counts it."""
        return self._those(active_requests.__contains__)

    def waiting_longer_than(self, seconds: float) -> list[Delivery]:
        """List what no pool has accepted for a while: it waits for other tasks, its ETA or a rate limit. Each
        is listed once in ``seconds``."""
        now, renewed_at = time.monotonic(), dict[str, float]()

        def is_due(request: Any) -> bool:
            if request in active_requests:
                return False
            token = request.request_dict["properties"][TOKEN]
            since = self._renewed_at.get(token, now)
            due = now - since >= seconds
            renewed_at[token] = now if due else since
            return due

        found = self._those(is_due)
        self._renewed_at = renewed_at
        return [delivery for delivery in found if delivery.own]

    def _those(self, wanted: Callable[[Any], bool]) -> list[Delivery]:
        # A list of its own: the heartbeat's thread asks, too.
        requests = [reference() for reference in self._mine().valuerefs()]
        found = [_delivery_in(one.request_dict) for one in requests if one is not None and wanted(one)]
        return [delivery for delivery in found if delivery is not None]

    def _mine(self) -> WeakValueDictionary[str, Any]:
        """Forget in a forked child what its parent is responsible for."""
        if self._pid != os.getpid():
            self._pid, self._requests = os.getpid(), WeakValueDictionary()
        return self._requests


def _nested(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the headers of the older of Celery's message protocols."""
    nested = headers.get("headers")
    return nested if isinstance(nested, Mapping) else {}


def _delivery_in(headers: Mapping[str, Any]) -> Delivery | None:
    own = headers if RUN_ID in headers else {**_nested(headers), "id": headers.get("id")}
    return read_delivery(own, headers["properties"])
