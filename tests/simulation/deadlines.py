"""Deadlines, judged by ourselves: a slot is overdue once, and has recovered once, when that is true."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.simulation.expectations import HOUR, Expected
from tests.simulation.hub import Hub, Process

GRACE, DAY = 2 * HOUR, 24 * HOUR
"""What a leader may take to notice, tick by tick, when nothing keeps it from its work."""

Place = tuple[str, int]


@dataclass
class DeadlineRules:
    """Hears the answers of the script that judges slots, the events that report them, and when runs are
    completed. A beat that dies or loses the lead between the two takes the event with it; no other excuse
    is known."""

    hub: Hub
    entries: Mapping[str, Expected]
    fail: Callable[..., None]
    overdue: dict[Place, int] = field(default_factory=dict)
    recovered: set[Place] = field(default_factory=set)
    given_up: set[Place] = field(default_factory=set)
    """Slots that were overdue until no success was expected any more; a run that was taken as executed may
    turn out not to have been, and succeed later."""
    said: Counter[tuple[Place, str]] = field(default_factory=Counter)
    unsaid: defaultdict[str, dict[Place, int]] = field(default_factory=lambda: defaultdict(dict))
    """What the beats of these lives have to report, and since when."""
    completed: dict[Place, int] = field(default_factory=dict)
    """When the first run of a slot was recorded as completed."""
    settled: dict[Place, int] = field(default_factory=dict)
    """When a run was taken as executed without a report: no success of it is expected."""
    moved: dict[str, int] = field(default_factory=dict)
    """When an entry was last paused, held or resumed: the deadlines of a pause count from its end."""
    led: list[int] = field(default_factory=list)
    """When a leader was at work."""

    def judged(self, process: Process, batch: str, answer: bytes) -> None:
        several = json.loads(batch)
        for i, j, outcome, _, state in json.loads(answer):
            entry, (_, slot, deadline, _) = several[i]["name"], several[i]["slots"][j]
            place = (entry, slot)
            unsaid = self.unsaid[process.notes["life"]]
            if outcome == "overdue":
                self._overdue(process, place, deadline, state)
            elif outcome == "recovered":
                self._recovered(place)
            elif outcome == "settled":
                self._settled(place)
            if outcome in ("overdue", "recovered") and not self.said[place, outcome]:
                unsaid.setdefault(place, self.hub.now)
            if outcome == "settled" or (outcome == "recovered" and not self.said[place, "overdue"]):
                unsaid.pop(place, None)

    def _overdue(self, process: Process, place: Place, deadline: int, state: str) -> None:
        within = self.entries[place[0]].within_ms
        if within is None or deadline < place[1] + within:
            self.fail("a deadline is too early", *place, deadline)
        if deadline > max(process.clock.wall_ms, process.notes["tick"]):
            self.fail("overdue before its deadline", *place, state)
        if place in self.completed:
            self.fail("overdue, although it has succeeded", *place, state)
        self.overdue.setdefault(place, self.hub.now)

    def _recovered(self, place: Place) -> None:
        if place not in self.overdue:
            self.fail("recovered, but it was not overdue", *place)
        if place not in self.completed:
            self.fail("recovered without a success", *place)
        self.recovered.add(place)

    def _settled(self, place: Place) -> None:
        if place not in self.overdue:
            self.fail("settled, but it was not overdue", *place)
        if place in self.completed:
            self.fail("settled, although it has succeeded", *place)
        self.given_up.add(place)

    def told(self, process: Process, place: Place, outcome: str) -> None:
        """An event has reported a slot."""
        self.said[place, outcome] += 1
        self.unsaid[process.notes["life"]].pop(place, None)
        if self.said[place, outcome] > 1:
            self.fail(f"{outcome} is said twice", *place)
        if place not in (self.overdue if outcome == "overdue" else self.recovered):
            self.fail(f"{outcome} is said, and was not judged", *place)

    def ticked(self, process: Process) -> None:
        """A leader has ended a tick without trouble: what it had to report before is reported."""
        for place, since in self.unsaid[process.notes["life"]].items():
            if self.hub.now - since > GRACE:
                self.fail("no event has reported the slot", *place)

    def took_over(self, process: Process) -> None:
        """A beat leads again: it knows only what is stored, as another beat does."""
        self.unsaid[process.notes["life"]].clear()

    def conclude(self, *, since: int, until: int) -> None:
        """Whatever was late is said, and that it was made up for."""
        for place, at in self.completed.items():
            if place in self.overdue and place not in self.recovered | self.given_up and at < until:
                self.fail("the recovery was not said", *place)
        for place, at in self.completed.items():
            within = self.entries[place[0]].within_ms
            if within is None or place in self.overdue or self.moved.get(place[0], 0) >= place[1]:
                continue
            if place[1] <= since:
                continue  # a backfill of slots from before the entry was known
            # A slot that was lost is overdue for a day.
            low = place[1] + within + GRACE
            high = min(at, self.settled.get(place, at), place[1] + within + DAY) - GRACE
            if sum(low <= one <= high for one in self.led) > 3:
                self.fail("it was overdue, and that was not said", *place)
