"""The oracle finds what it is there to find."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.oracle import Execution, Harm, Verdict, executions, judge, skips, steps

FIRST, SECOND = "2026-02-07T10:00:00Z", "2026-02-07T10:00:01Z"


def ran(slot: str, begun: float, ended: float | None, *, session: int = 1) -> Execution:
    return Execution("chain", slot, f"{slot}/{begun}", session, begun, ended)


def judged(*done: Execution, skipped: tuple[str, ...] = (), harms: tuple[Harm, ...] = ()) -> Verdict:
    return judge(
        {"chain": [FIRST, SECOND]},
        list(done),
        skipped={"chain": set(skipped)},
        harms=harms,
        chains=["chain"],
    )


def test_each_slot_once_and_in_order_is_right() -> None:
    verdict = judged(ran(FIRST, 1, 2), ran(SECOND, 3, 4))

    verdict.check()
    assert verdict.figures["completed"] == 2


def test_a_skip_with_a_reason_accounts_for_a_slot() -> None:
    verdict = judged(ran(FIRST, 1, 2), skipped=(SECOND,))

    verdict.check()
    assert (verdict.completed, verdict.skipped) == (1, 1)


@pytest.mark.parametrize(
    ("done", "finding"),
    [
        pytest.param([ran(FIRST, 1, 2)], "lost", id="never executed"),
        pytest.param([ran(FIRST, 1, 2), ran(SECOND, 3, None)], "lost", id="begun only"),
        pytest.param([ran(FIRST, 1, 2), ran(FIRST, 2.1, 2.5), ran(SECOND, 3, 4)], "twice", id="twice"),
        pytest.param([ran(SECOND, 1, 2), ran(FIRST, 3, 4)], "out_of_order", id="other way round"),
        pytest.param([ran(FIRST, 1, 3), ran(SECOND, 2, 4)], "at_once", id="overlapping"),
    ],
)
def test_a_broken_promise_is_found(done: list[Execution], finding: str) -> None:
    verdict = judged(*done)

    assert getattr(verdict, finding)
    with pytest.raises(AssertionError):
        verdict.check()


def test_a_slot_that_is_skipped_and_executed_is_found() -> None:
    assert judged(ran(FIRST, 1, 2), ran(SECOND, 3, 4), skipped=(FIRST,)).twice


def test_only_a_worker_that_was_harmed_in_time_may_be_repeated() -> None:
    done = ran(FIRST, 1, 2, session=7), ran(FIRST, 6, 7), ran(SECOND, 8, 9)

    assert not judged(*done, harms=(Harm(7, 2.1),)).twice
    assert not judged(*done, harms=(Harm(7, 0.1, until=5.0),)).twice
    assert judged(*done, harms=(Harm(7, 0.1, until=0.9),)).twice, "it was over by then"
    assert judged(*done, harms=(Harm(7, 5.0),)).twice, "it had reported long ago"
    assert judged(*done, harms=(Harm(8, 2.1),)).twice, "another worker was harmed"


def test_lines_of_the_diary_become_executions(tmp_path: Path) -> None:
    lines: list[list[Any]] = [
        ["begin", "chain", FIRST, "a/1", 10, 1, 1.0],
        ["begin", "chain", SECOND, "b/1", 11, 1, 1.5],
        ["end", "chain", FIRST, "a/1", 10, 1, 2.0],
        ["lost", "chain", SECOND, "b/1", 11, 1, 9.0],
    ]
    diary = tmp_path / "diary"
    diary.write_text("".join(json.dumps(line) + "\n" for line in lines) + '["begin", "chain"')

    assert [(one.slot, one.ended) for one in executions(diary)] == [(FIRST, 2.0), (SECOND, None)]


def test_spans_of_skips_become_slots() -> None:
    span = {"entry": "chain", "first": FIRST, "last": SECOND, "count": 2, "reason": "guard_blocked"}

    assert skips(json.dumps({"skipped": [span]}), every=1) == {"chain": {FIRST, SECOND}}


def test_slots_keep_their_milliseconds() -> None:
    first = datetime(2026, 2, 7, 10, 0, 0, 250_000, tzinfo=UTC)

    assert steps(first, first.replace(second=1), 1) == [
        "2026-02-07T10:00:00.250Z",
        "2026-02-07T10:00:01.250Z",
    ]
