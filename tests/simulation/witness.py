"""The witness: notes from outside who decided which slot when, and knows by itself which reasons are true."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
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
    """The commit that moved an entry's watermark over a slot."""

    number: int
    owner: str
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
    _watermarks: dict[str, int] = field(default_factory=dict)
    _commits: int = 0

    def watch(self, process: Process, name: str, command: Any, answer: Any) -> None:
        if isinstance(answer, Exception) or answer is None:
            return
        args = [_text(value) for value in command[3 + int(command[2]) :]] if self._is_script(name) else []
        match name:
            case "commit" if answer[0] == b"ok":
                self._committed(process, args[0])
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

    def _committed(self, process: Process, owner: str) -> None:
        self._commits += 1
        after = self._read()
        for name, until in after.items():
            since = self._watermarks.get(name, self.oracle.first_seen)
            if until > since:
                still_open = sum(
                    record.entry == name and not record.closed and record.trigger != "backfill"
                    for record in self.oracle.runs.values()
                )
                one = Decided(self._commits, owner, process.notes["tick"], process.clock.wall_ms, still_open)
                for slot in self.oracle.entries[name].slots(since, until):
                    self.decided[name, slot].append(one)
        self._watermarks = after

    # -- judging -----------------------------------------------------------------------------

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
        late = one.tick - slot
        if answer.run is not None:
            return self._judge_run(answer, late)
        return self._judge_skip(expected, slot, str(answer.reason), one, late)

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
