"""The witness: notes from outside who decided which slot when, and knows by itself which reasons are true."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.model import to_instant
from tests.simulation.expectations import HOUR, MINUTE, Expected
from tests.simulation.hub import Process
from tests.simulation.oracle import SCHEDULED, Oracle, _text

LIVE = MINUTE
"""A slot that is handled later than this was missed."""
SKEW = MINUTE
"""What two clocks may differ by; the weather puts clocks further off, and those times are not judged."""


@dataclass(frozen=True)
class Decided:
    """The commit that moved an entry's watermark over a slot. ``planned`` is the tick of an earlier commit
    that got no answer: its plan may be committed again as it was."""

    number: int
    owner: str
    planned: int
    tick: int
    wall: int
    open_runs: int


@dataclass
class Witness:
    """Watches the commands of all processes, and the watermarks on the server."""

    oracle: Oracle
    decided: defaultdict[tuple[str, int], list[Decided]] = field(default_factory=lambda: defaultdict(list))
    """More than one after a clock was put back; the last one is shown."""
    claims: Counter[str] = field(default_factory=Counter)
    pauses: defaultdict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    manual: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    made: dict[str, str] = field(default_factory=dict)
    """Runs that were committed, and their entries; the oracle hears of them when they are sent."""
    _watermarks: dict[str, int] = field(default_factory=dict)
    _commits: int = 0

    def watch(self, process: Process, name: str, command: Any, answer: Any) -> None:
        planned = process.notes.pop("planned", 0) if name == "commit" else 0
        if isinstance(answer, Exception) or answer is None:
            return
        args = [_text(value) for value in command[3 + int(command[2]) :]] if self._is_script(name) else []
        match name:
            case "commit" if answer[0] == b"ok":
                self._committed(process, args, planned)
            case "store_entries" | "move_watermarks":
                self._watermarks = self._read()
            case "pause_entry" if answer:
                self.pauses[args[0]].append([self.oracle.hub.now, 0, 0])
            case "resume_entry" if answer and self.pauses[args[0]]:
                self.pauses[args[0]][-1][1:] = [self.oracle.hub.now, int(args[1])]
            case "claim" if answer[0] == b"granted":
                self.claims[args[0]] += 1
            case "start_manual_run" if answer == b"started":
                self.manual[json.loads(args[1])["entry"]].append(self.oracle.hub.now)

    def _is_script(self, name: str) -> bool:
        return name in self.oracle.network.server.scripts.values()

    def _read(self) -> dict[str, int]:
        decided, _ = self.oracle.network.server.seen
        return {
            name: int(value)
            for name, value in zip(self.oracle.entries, decided, strict=True)
            if value is not None
        }

    def _committed(self, process: Process, args: list[str], planned: int) -> None:
        self._commits += 1
        after = self._read()
        for name, until in after.items():
            since = self._watermarks.get(name, self.oracle.first_seen)
            if until > since:
                still_open = len(self._open(name))
                one = Decided(
                    self._commits, args[0], planned, process.notes["tick"], process.clock.wall_ms, still_open
                )
                for slot in self.oracle.entries[name].slots(since, until):
                    self.decided[name, slot].append(one)
        self._watermarks = after
        self.made |= dict(self._runs_of(args))

    def _runs_of(self, args: list[str]) -> Iterator[tuple[str, str]]:
        """The runs of a commit; each has its record, without the last brace, and its message."""
        records = args[5::2]
        for run_id, record in zip(json.loads(args[4])["runs"]["id"], records, strict=False):
            yield run_id, json.loads(record + "}")["entry"]

    def _open(self, name: str) -> set[str]:
        runs = self.oracle.runs
        known = {one for one, record in runs.items() if record.entry == name and record.trigger != "backfill"}
        made = {one for one, entry in self.made.items() if entry == name}
        return {one for one in known | made if one not in runs or not runs[one].closed}

    # -- judging -----------------------------------------------------------------------------

    def decisions(self, expected: Expected, slot: int) -> int:
        """How many runs a slot may have: a span is another run than its newest slot alone, which is decided
        again when a clock is put back."""
        return max(1, len(self.decided[expected.name, slot])) if expected.kind == "span" else 1

    def judge(self, expected: Expected, slot: int, answer: Any) -> str:
        """Return what is wrong with an answer; nothing if it is true, or cannot be known."""
        if not (decisions := self.decided[expected.name, slot]):
            return ""
        wrong = [self._judge(expected, slot, answer, one) for one in decisions]
        return min(wrong, key=len)

    def _judge(self, expected: Expected, slot: int, answer: Any, one: Decided) -> str:
        if answer.run is not None and answer.run.trigger_type not in SCHEDULED:
            return ""  # a person made it; what was decided before stands beside it
        if answer.leader != one.owner:
            return f"decided by {one.owner}, not by {answer.leader}"
        decided = to_instant(answer.decided_at)
        if answer.run is not None and not one.tick - SKEW <= decided <= one.wall + SKEW:
            return f"decided at {one.tick}, not at {decided}"
        found = [
            self._judge_run(answer, seen - slot)
            if answer.run is not None
            else self._judge_skip(expected, slot, str(answer.reason), one, seen - slot)
            for seen in (one.tick, one.planned)
        ]
        return min(found, key=len)

    def _judge_run(self, answer: Any, late: int) -> str:
        if str(answer.run.trigger_type) == "scheduler" and late > LIVE + SKEW:
            return f"it was {late} ms late, and is called live"
        if str(answer.run.trigger_type) == "catchup" and late < LIVE - SKEW:
            return f"it was {late} ms late, and is called late"
        record = self.oracle.runs[answer.run.run_id]
        if str(answer.run.state) == "succeeded" and not record.succeeded:
            return "it is called succeeded, and nobody has executed it"
        claims = self.claims[answer.run.run_id]
        if len(answer.attempts) > max(claims, record.executions) + record.failures:
            return f"{len(answer.attempts)} attempts, but {claims} claims"
        return ""

    def _judge_skip(self, expected: Expected, slot: int, reason: str, one: Decided, late: int) -> str:
        siblings = [
            other
            for (name, other), decisions in self.decided.items()
            if name == expected.name and any(decided.number == one.number for decided in decisions)
        ]
        true = {
            "expired": expected.window_ms is not None and late >= expected.window_ms - SKEW,
            "catchup_off": expected.kind == "off" and late > LIVE - SKEW,
            "covered": expected.kind == "span" and max(siblings) > slot and late > LIVE - SKEW,
            "superseded": (expected.kind == "latest" or expected.replaces) and max(siblings) > slot,
            "guard_blocked": one.open_runs > 0 or min(siblings) < slot or bool(self.manual[expected.name]),
            "discarded": expected.name in self.oracle.discarded,
            "paused": any(
                since - SKEW <= slot <= (until or self.oracle.hub.now) + SKEW and discard
                for since, until, discard in self.pauses[expected.name]
            ),
            "manual_run": any(
                slot - SKEW <= start <= one.wall + SKEW for start in self.manual[expected.name]
            ),
        }
        return "" if true.get(reason, False) else f"skipped as {reason}, {late / HOUR:.2f} h late: not true"
