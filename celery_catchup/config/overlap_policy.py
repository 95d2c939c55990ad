"""The overlap policies: one row for each, with everything that depends on it.

To add a policy, add a row. The planner, the engine, the checks at start, preview and the reference page
ask the row, never for a policy by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import cached_property
from typing import assert_never


class Replaces(Enum):
    """How a new run ends the active ones."""

    CANCEL = "cancel"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class OverlapRule:
    """The rules of one overlap policy.

    most_active      how many runs of the entry may be active at once; None for any number
    most_unfinished  how many may be active or waiting, further slots are skipped; None for any number
    replaces         how a new run ends the active ones; None when it does not
    while_active     what happens to a slot while a run is active, for the reference page
    of_missed        which of several missed slots run, for the reference page
    chained          whether ``max_active_runs`` and ``max_pending`` set the first two
    """

    most_active: int | None
    most_unfinished: int | None
    replaces: Replaces | None
    while_active: str
    of_missed: str
    chained: bool = False

    @property
    def independent(self) -> bool:
        """Whether runs neither wait for nor end each other, so that all missed slots are sent at once."""
        return self.most_active is None and self.replaces is None


class OverlapPolicy(StrEnum):
    """How a slot is handled while a run of the entry is active."""

    SKIP = "skip"
    ALL = "all"
    ALLOW = "allow"
    BUFFER_ONE = "buffer_one"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"

    @cached_property
    def rule(self) -> OverlapRule:
        """The row of this policy; the type checker refuses a policy without one."""
        match self:
            case OverlapPolicy.SKIP:
                return OverlapRule(1, 1, None, "a new slot is skipped", "the first runs")
            case OverlapPolicy.ALL:
                missed = "all run, in order, one at a time unless `max_active_runs` says more"
                return OverlapRule(1, None, None, "it waits in the chain", missed, chained=True)
            case OverlapPolicy.ALLOW:
                return OverlapRule(None, None, None, "it runs beside the other", "all run at once")
            case OverlapPolicy.BUFFER_ONE:
                active, missed = "one waits, later ones are skipped", "the first runs, the second waits"
                return OverlapRule(1, 2, None, active, missed)
            case OverlapPolicy.CANCEL_OTHER:
                active = "the other is revoked, then it runs"
                return OverlapRule(None, None, Replaces.CANCEL, active, "the last runs")
            case OverlapPolicy.TERMINATE_OTHER:
                active = "the other is terminated, then it runs"
                return OverlapRule(None, None, Replaces.TERMINATE, active, "the last runs")
            case _:
                assert_never(self)
