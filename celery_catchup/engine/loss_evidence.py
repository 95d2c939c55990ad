"""Decide whether a run that no worker has claimed waits in its queue, or has lost its message.

A delay is not a loss. A run is sent again only on evidence that its message is gone, and it is never
dead-lettered: a queue may be hours deep, and its workers may be stopped for a night.
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
"""Milliseconds after which a run is assumed to have run, if the workers of its queue never had the plugin
and messages wait in the queue."""
_LONGEST_WAIT = 3_600_000
"""Longest time between two examinations of a run, in milliseconds."""
_SHORTEST_WAIT = 300_000


@dataclass(frozen=True, slots=True)
class QueueView:
    """The state of a queue.

    ever_claimed  a worker with the plugin has ever consumed it
    claims_now    one consumes it now
    plain_now     a worker without the plugin consumes it now
    drained       when the latest message was sent that a worker has claimed from it
    depth         messages that wait or are unacknowledged; None when the broker cannot count them
    asked         the leader has inspected the workers lately, so that ``plain_now`` is reliable
    """

    ever_claimed: bool = False
    claims_now: bool = False
    plain_now: bool = False
    drained: Instant = 0
    depth: int | None = None
    asked: bool = True


def evidence_of(run: Mapping[str, Any], queue: QueueView, *, now: Instant) -> Evidence:
    """Judge a queued run by its queue; ``now`` is the server's clock.

    A worker with the plugin renews the messages that it has received, so the message of a run that is
    judged here is in the queue, or gone.
    """
    expires = run.get("expires")
    if expires is not None and now >= expires + _EXPIRY_MARGIN:
        return Evidence.EXPIRED
    if not run.get("template"):  # `run_headers()`: the caller's message never came
        return Evidence.ASSUMED
    if run.get("discarded"):  # a worker that does not know the task has discarded the message
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
    """Return when to examine a waiting run again: the longer it waits, the less often."""
    wait = min(max((now - sent_at(run)) // 2, _SHORTEST_WAIT), _LONGEST_WAIT)
    expires = run.get("expires")
    look = now + wait
    return look if expires is None else max(now + 1, min(look, int(expires) + _EXPIRY_MARGIN))


def sent_at(run: Mapping[str, Any]) -> Instant:
    """Return when the message could first be received; records of version 0.1 only have the slot."""
    return int(run.get("sent") or run.get("queued") or run["slot"])
