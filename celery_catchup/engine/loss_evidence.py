"""Decide what a run that no worker has claimed means: it waits, or its message is lost.

A delay is not a loss. A run is sent again only on evidence that its message is gone, and it is never
given up: a queue may be hours deep, and its workers may be stopped for a night.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_catchup.model import Instant
from celery_catchup.store import Evidence

_EXPIRY_MARGIN = 30_000
"""Milliseconds after its expiry in which a worker with a late clock may still start a message."""
_ASSUMED_AFTER = 3_600_000
"""Milliseconds after which a run of a queue whose workers never had the plugin is taken to have run,
although messages wait in the queue."""
_LONGEST_WAIT = 3_600_000
"""Milliseconds between two looks at a run, at the most."""
_SHORTEST_WAIT = 300_000


@dataclass(frozen=True, slots=True)
class QueueView:
    """What is known of a queue.

    ever_claimed  a worker with the plugin has ever consumed it
    claims_now    one consumes it now
    plain_now     a worker without the plugin consumes it now
    drained       when the latest message was sent that a worker has claimed from it
    depth         messages that wait there or are unacknowledged; None when the broker does not tell
    asked         the leader has asked the workers lately, so that ``plain_now`` can be relied on
    """

    ever_claimed: bool = False
    claims_now: bool = False
    plain_now: bool = False
    drained: Instant = 0
    depth: int | None = None
    asked: bool = True


def evidence_of(run: Mapping[str, Any], queue: QueueView, *, now: Instant) -> Evidence:
    """Judge a queued run by its queue; ``now`` is the server's clock.

    A worker with the plugin keeps renewing messages that it has received, so a run that is judged here
    is in the queue, or gone.
    """
    expires = run.get("expires")
    if expires is not None and now >= expires + _EXPIRY_MARGIN:
        return Evidence.EXPIRED
    if not run.get("template"):  # `run_headers()`: the caller's message never came
        return Evidence.ASSUMED
    if run.get("discarded"):  # a worker that does not know the task has thrown the message away
        return Evidence.LOST
    sent = sent_at(run)
    if not queue.ever_claimed:
        seen_to_work = queue.plain_now and (queue.depth == 0 or now - sent >= _ASSUMED_AFTER)
        return Evidence.ASSUMED if seen_to_work else Evidence.NONE
    if queue.plain_now or not queue.asked:
        return Evidence.NONE  # it may have run without a report: a copy would run twice
    overtaken = queue.drained > sent
    gone = queue.depth == 0 and queue.claims_now
    return Evidence.LOST if overtaken or gone else Evidence.NONE


def next_look(run: Mapping[str, Any], *, now: Instant) -> Instant:
    """When to look at a waiting run again: the longer it waits, the less often."""
    wait = min(max((now - sent_at(run)) // 2, _SHORTEST_WAIT), _LONGEST_WAIT)
    expires = run.get("expires")
    look = now + wait
    return look if expires is None else max(now + 1, min(look, int(expires) + _EXPIRY_MARGIN))


def sent_at(run: Mapping[str, Any]) -> Instant:
    """When the run's message could first be received; records of version 0.1 have the slot time only."""
    return int(run.get("sent") or run.get("queued") or run["slot"])
