"""The audit: every slot that was due is accounted for, executed once and in its turn.

The slots are counted here from the entry's anchor and interval alone, so that the ledger is
checked against something that it did not write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from celery_catchup.demo.site import Execution
from celery_catchup.model import Instant, RunState, Trigger, to_rfc3339


def slots_due(anchor: Instant, until: Instant, *, every_ms: int) -> list[Instant]:
    """The slots of an interval in ``(anchor, until]``."""
    return list(range(anchor + every_ms, until + 1, every_ms))


@dataclass(frozen=True)
class Account:
    """What is known of one entry's slots: its runs and skipped spans in the ledger, and what the
    tasks themselves wrote."""

    entry: str
    due: Sequence[Instant]
    runs: Sequence[Mapping[str, Any]]
    skips: Sequence[Mapping[str, Any]]
    executions: Sequence[Execution]

    @property
    def on_time(self) -> int:
        """Runs of slots that beat was there for."""
        return sum(run["trigger"] == Trigger.SCHEDULER for run in self.runs)

    @property
    def caught_up(self) -> int:
        """Runs of slots that were missed."""
        return sum(run["trigger"] == Trigger.CATCHUP for run in self.runs)

    @property
    def skipped(self) -> int:
        """Slots that were skipped, with a reason."""
        return sum(len(self._inside(skip)) for skip in self.skips)

    @property
    def unaccounted(self) -> list[Instant]:
        """Slots without a trace."""
        return [slot for slot in self.due if not self._traces()[slot]]

    @property
    def settled(self) -> bool:
        """Whether every slot is accounted for and every run has ended; waiting may help when not."""
        return not self.unaccounted and not any(RunState(run["state"]).in_flight for run in self.runs)

    def problems(self) -> Iterator[str]:
        """What is not as promised, a line each."""
        traces = self._traces()
        for slot in self.due:
            if traces[slot] != 1:
                yield self._about(slot, "neither run nor skipped" if not traces[slot] else "decided twice")
        for slot in sorted(set(traces) - set(self.due)):
            yield self._about(slot, "not a slot of the entry")
        for skip in self.skips:
            if skip["last"] <= self.due[-1] and skip["count"] != len(self._inside(skip)):
                yield self._about(
                    skip["first"], f"a skip of {skip['count']} slots has {len(self._inside(skip))}"
                )
        yield from self._problems_of_runs()
        yield from self._problems_of_order()

    def _problems_of_runs(self) -> Iterator[str]:
        times = Counter(execution.run_id for execution in self.executions)
        for run in self.runs:
            if run["state"] != RunState.SUCCEEDED:
                yield self._about(run["slot"], f"its run is {run['state']}")
            if times[run["id"]] != 1:
                yield self._about(run["slot"], f"executed {times[run['id']]} times")
        for execution in self.executions:
            if execution.run_id not in {run["id"] for run in self.runs}:
                yield f"{self.entry}: executed at {to_rfc3339(execution.started)} without a run in the ledger"

    def _problems_of_order(self) -> Iterator[str]:
        slots = [execution.slot or 0 for execution in self.executions]
        for before, after in pairwise(slots):
            if after < before:
                yield self._about(after, f"executed after {to_rfc3339(before)}")
        for one, next_one in pairwise(self.runs):
            if next_one.get("started", 0) < one.get("finished", 0):
                yield self._about(next_one["slot"], "started before the run before it had ended")

    def _traces(self) -> Counter[Instant]:
        skipped = [slot for skip in self.skips for slot in self._inside(skip)]
        return Counter([*(run["slot"] for run in self.runs), *skipped])

    def _inside(self, skip: Mapping[str, Any]) -> list[Instant]:
        return [slot for slot in self.due if skip["first"] <= slot <= skip["last"]]

    def _about(self, slot: Instant, what: str) -> str:
        return f"{self.entry}, slot {to_rfc3339(slot)}: {what}"


def account(
    entry: str,
    due: Sequence[Instant],
    *,
    runs: Sequence[Mapping[str, Any]],
    skips: Sequence[Mapping[str, Any]],
    executions: Sequence[Execution],
) -> Account:
    """The account of the slots in ``due``; what came after the last of them is another story."""
    last = max(due, default=0)
    return Account(
        entry,
        due,
        [run for run in runs if run["slot"] <= last],
        [skip for skip in skips if skip["first"] <= last],
        [execution for execution in executions if (execution.slot or 0) <= last],
    )
