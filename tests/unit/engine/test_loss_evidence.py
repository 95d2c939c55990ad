"""Evidence of a lost message, and when there is none."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from celery_catchup.engine.loss_evidence import QueueView, evidence_of, next_look
from celery_catchup.store import Evidence

MINUTE, HOUR = 60_000, 3_600_000
SENT = 1_770_000_000_000
RUN: dict[str, Any] = {"template": "t", "sent": SENT, "slot": SENT, "sends": 1}

VIEWS = [
    QueueView(ever, now, plain, drained, depth)
    for ever, now, plain, drained, depth in product(
        (False, True), (False, True), (False, True), (0, SENT - 1, SENT + 1), (None, 0, 3)
    )
]


def judged(view: QueueView, *, after: int = 10 * MINUTE, **run: Any) -> Evidence:
    return evidence_of({**RUN, **run}, view, now=SENT + after)


@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_a_message_counts_as_lost_only_where_every_worker_has_the_plugin_and_messages_get_through(
    view: QueueView,
) -> None:
    overtaken, emptied = view.drained > SENT, view.depth == 0 and view.claims_now

    lost = judged(view, after=100 * HOUR) is Evidence.LOST

    assert lost == (view.ever_claimed and not view.plain_now and (overtaken or emptied))


@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_a_run_is_taken_to_have_run_only_where_workers_are_seen_and_none_ever_had_the_plugin(
    view: QueueView,
) -> None:
    assumed = judged(view, after=100 * HOUR) is Evidence.ASSUMED

    assert assumed == (view.plain_now and not view.ever_claimed)


def test_nothing_counts_as_lost_before_the_workers_were_asked() -> None:
    view = QueueView(ever_claimed=True, claims_now=True, drained=SENT + 1, depth=0, asked=False)

    assert judged(view) is Evidence.NONE


def test_while_messages_wait_in_a_queue_without_the_plugin_a_run_has_an_hour() -> None:
    deep, empty = QueueView(plain_now=True, depth=9), QueueView(plain_now=True, depth=0)

    assert judged(empty, after=6 * MINUTE) is Evidence.ASSUMED
    assert judged(deep, after=59 * MINUTE) is Evidence.NONE
    assert judged(deep, after=60 * MINUTE) is Evidence.ASSUMED


def test_an_expired_message_is_given_half_a_minute_for_clocks_that_differ() -> None:
    view = QueueView(ever_claimed=True, claims_now=True, depth=5)

    assert judged(view, after=60_000, expires=SENT + 30_001) is Evidence.NONE
    assert judged(view, after=60_001, expires=SENT + 30_001) is Evidence.EXPIRED


@pytest.mark.parametrize(
    ("waited", "wait"), [(0, 5 * MINUTE), (10 * MINUTE, 5 * MINUTE), (HOUR, 30 * MINUTE), (9 * HOUR, HOUR)]
)
def test_the_longer_a_run_waits_the_less_often_it_is_looked_at(waited: int, wait: int) -> None:
    assert next_look(RUN, now=SENT + waited) == SENT + waited + wait


def test_the_next_look_is_not_after_the_expiry() -> None:
    assert next_look({**RUN, "expires": SENT + 1000}, now=SENT) == SENT + 31_000


def test_a_record_of_version_0_1_counts_from_when_it_was_queued() -> None:
    old = {"template": "t", "queued": SENT, "slot": SENT - HOUR}

    assert evidence_of(old, QueueView(ever_claimed=True, drained=SENT), now=SENT + HOUR) is Evidence.NONE
