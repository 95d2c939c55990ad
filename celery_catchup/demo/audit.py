"""Check that every due slot is accounted for, executed once and in order.

The slots are counted here from the entry's anchor and interval alone, so that the ledger is
checked against something that it did not write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from celery_catchup.demo.site import TaskStart
from celery_catchup.model import Instant, RunState, Trigger, to_rfc3339


def slots_due(anchor: Instant, until: Instant, *, every_ms: int) -> list[Instant]:
    """Return the slots of an interval in ``(anchor, until]``."""
    return list(range(anchor + every_ms, until + 1, every_ms))


@dataclass
class Account:
    """The slots of one entry: its runs and skipped spans in the ledger, and the tasks that started.

    Anything after the last due slot is left out.
    """

    entry: str
    due: Sequence[Instant]
    runs: Sequence[Mapping[str, Any]]
    skips: Sequence[Mapping[str, Any]]
    task_starts: Sequence[TaskStart]

    def __post_init__(self) -> None:
        last = max(self.due, default=0)
        self.runs = [run for run in self.runs if run["slot"] <= last]
        self.skips = [skip for skip in self.skips if skip["first"] <= last]
        self.task_starts = [one for one in self.task_starts if (one.slot or 0) <= last]

    def triggered_by(self, trigger: Trigger) -> int:
        """Count the runs with this trigger."""
        return sum(run["trigger"] == trigger for run in self.runs)

    @property
    def skipped(self) -> int:
        """Count the slots that were skipped, with a reason."""
        return sum(len(self._inside(skip)) for skip in self.skips)

    @property
    def unaccounted(self) -> list[Instant]:
        """Return the slots without a trace."""
        return [slot for slot in self.due if not self._traces()[slot]]

    @property
    def settled(self) -> bool:
        """Return whether every slot is accounted for and every run has ended; if not, waiting may help."""
        return not self.unaccounted and not any(RunState(run["state"]).in_flight for run in self.runs)

    def problems(self) -> Iterator[str]:
        """Yield each broken promise as a line."""
        traces = self._traces()
        for slot in self.due:
            if traces[slot] != 1:
                yield self._about(slot, "neither run nor skipped" if not traces[slot] else "decided twice")
        for slot in sorted(set(traces) - set(self.due)):
            yield self._about(slot, "not a slot of the entry")
        for skip in self.skips:
            inside = len(self._inside(skip))
            if skip["last"] <= self.due[-1] and skip["count"] != inside:
                yield self._about(skip["first"], f"a skip of {skip['count']} slots has {inside}")
        yield from self._problems_of_runs()
        for before, after in pairwise(one.slot or 0 for one in self.task_starts):
            if after < before:
                yield self._about(after, f"executed after {to_rfc3339(before)}")
        for run, following in pairwise(self.runs):
            if following.get("started", 0) < run.get("finished", 0):
                yield self._about(following["slot"], "started before the run before it had ended")

    def _problems_of_runs(self) -> Iterator[str]:
        times = Counter(one.run_id for one in self.task_starts)
        for run in self.runs:
            if run["state"] != RunState.SUCCEEDED:
                yield self._about(run["slot"], f"its run is {run['state']}")
            if times[run["id"]] != 1:
                yield self._about(run["slot"], f"executed {times[run['id']]} times")
        for one in self.task_starts:
            if one.run_id not in {run["id"] for run in self.runs}:
                yield f"{self.entry}: executed at {to_rfc3339(one.started)} without a run in the ledger"

    def _traces(self) -> Counter[Instant]:
        skipped = [slot for skip in self.skips for slot in self._inside(skip)]
        return Counter([*(run["slot"] for run in self.runs), *skipped])

    def _inside(self, skip: Mapping[str, Any]) -> list[Instant]:
        return [slot for slot in self.due if skip["first"] <= slot <= skip["last"]]

    def _about(self, slot: Instant, what: str) -> str:
        return f"{self.entry}, slot {to_rfc3339(slot)}: {what}"
