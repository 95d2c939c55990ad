"""The accounts at the end: every slot executed, or skipped with a reason, and nothing left open."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery_catchup.store.store import read_span
from tests.simulation.expectations import HOUR, Expected
from tests.simulation.oracle import SCHEDULED, Oracle


@dataclass(frozen=True)
class Accounts:
    """Reads the store once, when the week is over, and before it is set back."""

    oracle: Oracle

    def archive(self) -> None:
        """Before a roll-back: what was skipped stays accounted for."""
        for name, counts in self._stored_skips().items():
            self.oracle.skipped[name] |= counts

    def _stored_skips(self) -> dict[str, Counter[int]]:
        found: dict[str, Counter[int]] = {}
        for name, expected in self.oracle.entries.items():
            spans = self.oracle.network.server.ask([("ZRANGE", self.oracle.keys.skips(name), 0, -1)])[0]
            found[name] = Counter(
                slot
                for span in map(read_span, spans)
                if span["reason"] != "already_exists"
                for slot in expected.slots(span["first"] - 1, span["last"])
            )
        return found

    def drains_slowly(self, *, until: int) -> bool:
        """Whether a chain of countdowns has runs left: it ends one in 100 minutes, however healthy it is."""
        slow = {one.name for one in self.oracle.entries.values() if "countdown" in one.options}
        open_states = ("waiting", "queued", "running")
        return any(
            run["entry"] in slow and run["state"] in open_states and run["slot"] < until
            for run in self._ledger().values()
        )

    def conclude(self, *, until: int) -> None:
        """When everything had time to heal: is every slot accounted for?"""
        skips, ledger = self._stored_skips(), self._ledger()
        for name, expected in self.oracle.entries.items():
            if expected.kind != "plain":
                self._account(expected, skips[name], ledger, until)
            self._judge_covered(name, ledger)
        for run_id, run in ledger.items():
            self._judge_end(run_id, run, ledger, until)
        if not all(
            self.oracle.plain.get(slot)
            for slot in self.oracle.entries["plain"].slots(until - 4 * HOUR, until)
        ):
            self.oracle.fail("plain slots of a healthy time are missing")
        for life, process in self.oracle.awaiting_loss.items():
            if process.alive:
                self.oracle.fail("a loss of state was not said", life)
        if not self.oracle.rolled_back_at:
            self.oracle.deadlines.conclude(since=self.oracle.first_seen, until=until)
        if self.oracle.hub.failure is not None:
            raise self.oracle.hub.failure

    def _judge_covered(self, name: str, ledger: Mapping[str, Any]) -> None:
        """A covered slot is covered by a run of its entry that ended or waits, and stands for it."""
        spans = self.oracle.network.server.ask([("ZRANGE", self.oracle.keys.skips(name), 0, -1)])[0]
        for span in map(read_span, spans):
            run = ledger.get(str(span["run_id"])) if span["reason"] == "covered" else None
            stands = (
                run is not None and run["entry"] == name and run.get("first", run["slot"]) <= span["first"]
            )
            if span["reason"] == "covered" and not stands and not self.oracle.rolled_back_at:
                self.oracle.fail("covered by no run", name, span["first"], span["last"])

    def _judge_end(self, run_id: str, run: Mapping[str, Any], ledger: Mapping[str, Any], until: int) -> None:
        """Every run of a time that is over has ended, in a way that it may end."""
        still_open = run["state"] in ("waiting", "queued", "running") and not run.get("unreported")
        # Without the plugin a chain, or the next place, goes on at the pace of the leader's looks.
        slow = not self.oracle.natives and (
            self.oracle.entries[run["entry"]].chained or self._waits_for_place(run, ledger, until)
        )
        if still_open and run["slot"] < until and not slow:
            self.oracle.fail("never ended", run["entry"], run["slot"], run["state"], run_id)
        if run["state"] == "dead" and not self.oracle.runs[run_id].executions:
            self.oracle.fail("dead without an execution", run["entry"], run["slot"], run_id)
        if run["state"] == "revoked":
            self._justify_revocation(run, ledger)

    def _waits_for_place(self, run: Mapping[str, Any], ledger: Mapping[str, Any], until: int) -> bool:
        """Whether ``catchup_max_active`` delays the run: others that were sent lately have all places."""
        late = ("catchup", "backfill")
        busy = [
            other
            for other in ledger.values()
            if other["trigger"] in late and other["state"] in ("queued", "running") and other["sent"] > until
        ]
        limit = self.oracle.max_active
        return limit is not None and run["trigger"] in late and len(busy) >= limit

    def _justify_revocation(self, run: Mapping[str, Any], ledger: Mapping[str, Any]) -> None:
        """A run was not executed: it expired, or a newer one of its entry has replaced it."""
        if self.oracle.entries[run["entry"]].replaces:
            newest = max(other["slot"] for other in ledger.values() if other["entry"] == run["entry"])
            justified = run["slot"] < newest or run["trigger"] not in SCHEDULED
        else:
            justified = str(run.get("error", "")).startswith("expired")
        if not justified:
            self.oracle.fail("revoked for no reason", run["entry"], run["slot"], run.get("error"))

    def _ledger(self) -> dict[str, dict[str, Any]]:
        stored = self.oracle.network.server.ask([("HGETALL", self.oracle.keys.ledger)])[0]
        return {stored[i].decode(): json.loads(stored[i + 1]) for i in range(0, len(stored), 2)}

    def _account(
        self, expected: Expected, skips: Counter[int], ledger: Mapping[str, Any], until: int
    ) -> None:
        own = [(i, run) for i, run in ledger.items() if run["entry"] == expected.name]
        ran = {run["slot"] for _, run in own}
        ran |= {r.slot_ms for r in self.oracle.runs.values() if r.entry == expected.name and r.succeeded}
        for slot in expected.slots(self.oracle.first_seen, until):
            if slot not in ran and not skips[slot] and not self.oracle.skipped[expected.name][slot]:
                self.oracle.fail(
                    "lost", expected.name, slot, f"{(slot - self.oracle.hub.start_ms) / HOUR:.2f} h"
                )
        planned = {run["slot"] for _, run in own if run["trigger"] in SCHEDULED}
        if not self.oracle.rolled_back_at and not self.oracle.told["StateSuspect"]:
            twice = sorted(slot for slot in planned if skips[slot])
            twice += sorted(slot for slot, count in skips.items() if count > 1)
            if twice:
                self.oracle.fail("decided twice", expected.name, twice[:3])
        for run_id, run in own:
            if run["state"] == "succeeded" and not self.oracle.runs[run_id].succeeded:
                self.oracle.fail("succeeded without being executed", expected.name, run["slot"])
