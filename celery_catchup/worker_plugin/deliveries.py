"""Which run a message belongs to, and the token that one delivery of it was given.

The token is the owner under which the run is claimed. Where a pool has processes, it is
given in the main process when the message arrives, so that the main process can renew and
report for a child that cannot. It travels among the message's properties: unlike headers,
they are not copied into retries.
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
    """One delivery of a message with a run's headers; it has no token when it was refused on arrival.

    ``own``: whether it can be the run's own message, by its task id. Headers can be passed on to
    other tasks, which have nothing to do with the run. Messages with `run_headers` have an id of
    their own: the ledger knows which of them is the run's.
    """

    run_id: str
    entry: str
    token: str
    own: bool = True


def header(request: Any, name: str) -> object:
    """A header of a request, whichever protocol brought it."""
    found = request.get(name)
    if found is None and isinstance(request.headers, Mapping):
        return request.headers.get(name)
    return found


def read_delivery(
    run_id: object, entry: object, properties: object, *, task_id: object = None, trigger: object = None
) -> Delivery | None:
    """A delivery as its message tells it; None when its headers cannot have been written by us."""
    if not (_is_name(run_id) and _is_name(entry)):
        return None
    token = properties.get(TOKEN, "") if isinstance(properties, Mapping) else ""
    own = trigger == Trigger.MANUAL or is_message_of(str(run_id), task_id)
    return Delivery(str(run_id), str(entry), str(token), own)


def delivery_of(request: Any) -> Delivery | None:
    """The delivery that a task's request came with."""
    return read_delivery(
        header(request, RUN_ID),
        header(request, ENTRY),
        request.properties,
        task_id=request.id,
        trigger=header(request, TRIGGER_TYPE),
    )


def delivery_among(headers: Mapping[str, Any], properties: object) -> Delivery | None:
    """The delivery of a message by its headers."""
    return read_delivery(
        headers.get(RUN_ID),
        headers.get(ENTRY),
        properties,
        task_id=headers.get("id"),
        trigger=headers.get(TRIGGER_TYPE),
    )


def is_message_of(run_id: str, task_id: object) -> bool:
    """Whether a task's id is one that a run's messages have: the run's own, with the attempt behind
    it from the second on."""
    if not isinstance(task_id, str) or not task_id.startswith(run_id):
        return False
    rest = task_id.removeprefix(run_id)
    return not rest or (rest.startswith("-") and rest[1:].isdecimal())


def routing_key(request: Any) -> str:
    """Where a request's message came from; "" when that is not known."""
    info = request.delivery_info
    return str(info.get("routing_key") or "") if isinstance(info, Mapping) else ""


def new_token() -> str:
    """A token that no other delivery has, on any machine."""
    return secrets.token_hex(8)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST


class Arrivals:
    """Messages of runs that arrived in this process and have not ended, as long as Celery knows them."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._requests: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._told_at: dict[str, float] = {}

    def arrived(self, request: Any) -> None:
        """Give a new message its token, when it belongs to a run."""
        headers = request.request_dict
        if RUN_ID in headers or RUN_ID in _nested(headers):
            token = headers["properties"][TOKEN] = new_token()
            self._mine()[token] = request

    def forget(self, token: str) -> None:
        """It was refused, or its end is reported."""
        self._mine().pop(token, None)

    def started(self, task_id: str) -> list[Delivery]:
        """The deliveries of a task that a pool has accepted, whatever became of them."""
        return self._those(lambda request: request.id == task_id and request.time_start is not None)

    def executed_now(self) -> list[Delivery]:
        """What a pool has accepted and not ended, by Celery's own books."""
        return self._those(active_requests.__contains__)

    def waiting_longer_than(self, seconds: float) -> list[Delivery]:
        """What has waited for a while to be accepted by a pool: behind other tasks, for its ETA, for a
        rate limit. Each is told once in ``seconds``."""
        now, found, told_at = time.monotonic(), list[Any](), dict[str, float]()
        for reference in self._mine().valuerefs():  # a list of its own: the heartbeat's thread asks, too
            request, token = reference(), reference.key
            if request is None or request in active_requests:
                continue
            told_at[token] = self._told_at.get(token, now)
            if now - told_at[token] >= seconds:
                told_at[token] = now
                found.append(request)
        self._told_at = told_at
        deliveries = [_delivery_among(request.request_dict) for request in found]
        return [one for one in deliveries if one is not None and one.own]

    def _those(self, wanted: Callable[[Any], bool]) -> list[Delivery]:
        requests = [request for request in list(self._mine().values()) if wanted(request)]
        found = [_delivery_among(request.request_dict) for request in requests]
        return [delivery for delivery in found if delivery is not None]

    def _mine(self) -> WeakValueDictionary[str, Any]:
        """A forked child inherits what is its parent's business."""
        if self._pid != os.getpid():
            self._pid, self._requests = os.getpid(), WeakValueDictionary()
        return self._requests


def _nested(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where the older of Celery's message protocols has them."""
    nested = headers.get("headers")
    return nested if isinstance(nested, Mapping) else {}


def _delivery_among(headers: Mapping[str, Any]) -> Delivery | None:
    told = headers if RUN_ID in headers else {**_nested(headers), "id": headers.get("id")}
    return delivery_among(told, headers["properties"])
