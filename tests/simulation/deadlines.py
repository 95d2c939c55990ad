"""Deadlines, judged by ourselves: a slot is overdue once, and has recovered once, when that is true."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation.expectations import HOUR, Expected
from tests.simulation.hub import Hub, Process

GRACE = 2 * HOUR
"""What a leader may take to notice, tick by tick, when nothing keeps it from its work."""

Place = tuple[str, int]


@dataclass
class DeadlineRules:
    """Hears the answers of the script that judges slots, and when runs are completed."""

    hub: Hub
    entries: Mapping[str, Expected]
    fail: Callable[..., None]
    overdue: dict[Place, int] = field(default_factory=dict)
    recovered: set[Place] = field(default_factory=set)
    completed: dict[Place, int] = field(default_factory=dict)
    """When the first run of a slot was recorded as completed."""
    moved: dict[str, int] = field(default_factory=dict)
    """When an entry was last paused, held or resumed: the deadlines of a pause count from its end."""
    led: list[int] = field(default_factory=list)
    """When a leader was at work."""

    def judged(self, process: Process, batch: str, answer: bytes) -> None:
        several = json.loads(batch)
        for i, j, outcome, _, state in json.loads(answer):
            entry, (_, slot, deadline, _) = several[i]["name"], several[i]["slots"][j]
            if outcome == "overdue":
                self._overdue(process, (entry, slot), deadline, state)
            elif outcome == "recovered":
                self._recovered((entry, slot))

    def _overdue(self, process: Process, place: Place, deadline: int, state: str) -> None:
        within = self.entries[place[0]].within_ms
        if within is None or deadline < place[1] + within:
            self.fail("a deadline is too early", *place, deadline)
        if deadline > max(process.clock.wall_ms, process.notes["tick"]):
            self.fail("overdue before its deadline", *place, state)
        if place in self.overdue:
            self.fail("overdue is said twice", *place)
        if place in self.completed:
            self.fail("overdue, although it has succeeded", *place, state)
        self.overdue[place] = self.hub.now

    def _recovered(self, place: Place) -> None:
        if place not in self.overdue or place in self.recovered:
            self.fail("recovered, but it was not overdue", *place)
        if place not in self.completed:
            self.fail("recovered without a success", *place)
        self.recovered.add(place)

    def conclude(self, *, until: int) -> None:
        """Whatever was late is said, and that it was made up for."""
        for place, at in self.completed.items():
            if place in self.overdue and place not in self.recovered and at < until:
                self.fail("the recovery was not said", *place)
        for place, at in self.completed.items():
            within = self.entries[place[0]].within_ms
            if within is None or place in self.overdue or self.moved.get(place[0], 0) >= place[1]:
                continue
            low, high = place[1] + within + GRACE, at - GRACE
            if sum(low <= one <= high for one in self.led) > 3:
                self.fail("it was overdue, and that was not said", *place)
