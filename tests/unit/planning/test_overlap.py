from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from celery_catchup.config.overlap_policy import OverlapPolicy, Replaces
from celery_catchup.config.policy import Policy
from celery_catchup.planning.planner import most_active, most_unfinished, room

_ROWS: dict[OverlapPolicy, tuple[int | None, int | None, Replaces | None, bool]] = {
    OverlapPolicy.SKIP: (1, 1, None, False),
    OverlapPolicy.ALL: (1, None, None, False),
    OverlapPolicy.ALLOW: (None, None, None, True),
    OverlapPolicy.BUFFER_ONE: (1, 2, None, False),
    OverlapPolicy.CANCEL_OTHER: (None, None, Replaces.CANCEL, False),
    OverlapPolicy.TERMINATE_OTHER: (None, None, Replaces.TERMINATE, False),
}


def _policy(**fields: Any) -> Policy:
    return Policy(window=timedelta(hours=6), **fields)


@pytest.mark.parametrize("overlap", OverlapPolicy)
def test_each_overlap_policy_has_one_row(overlap: OverlapPolicy) -> None:
    policy = _policy(overlap_policy=overlap)

    row = (most_active(policy), most_unfinished(policy), overlap.rule.replaces, overlap.rule.independent)

    assert row == _ROWS[overlap]
    assert overlap.rule.while_active
    assert overlap.rule.of_missed


def test_the_numbers_of_a_chain_come_from_the_policy() -> None:
    policy = _policy(overlap_policy="all", max_active_runs=3, max_pending=4)

    assert most_active(policy) == 3
    assert room(policy, active=3, waiting=1) == 3
    assert room(policy, active=3, waiting=9) == 0
