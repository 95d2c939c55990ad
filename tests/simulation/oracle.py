"""The oracle: watches from outside what was executed, and knows by itself what should have been."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import NoScriptError

from celery_catchup import events
from celery_catchup.store import Keys
from tests.simulation.broker import Broker, Delivery
from tests.simulation.deadlines import DeadlineRules
from tests.simulation.expectations import ENTRIES, Expected
from tests.simulation.hub import Hub, Process
from tests.simulation.network import Network
from tests.simulation.queue_rules import QueueRules
from tests.simulation.records import Execution, Record, ViolationError

SILENT = 8
"""Ticks in which a beat may be kept from saying that state was lost."""
SCHEDULED = ("scheduler", "catchup")
WRITES = {
    "commit": lambda answer: answer is not None and answer[0] == b"ok",
    "store_entries": lambda answer: answer == 1,
    "admit": lambda answer: answer is not None,
    "release": lambda answer: answer is not None,
    "recover": lambda answer: answer is not None,
    "commit_backfill": lambda answer: answer is not None and answer[0] == b"ok",
    "forget_runs": lambda answer: answer is not None,
    "postpone": lambda answer: answer is not None,
    "renew_lead": bool,
}
"""What only the leader may write, and how its answer looks when it was written."""


@dataclass
class Oracle:
    """Hears of every execution, every answer of the server and every event; complains at once."""

    hub: Hub
    network: Network
    broker: Broker
    keys: Keys
    lease_ms: int
    run_lease_ms: int
    entries: Mapping[str, Expected] = field(default_factory=lambda: {one.name: one for one in ENTRIES})
    runs: defaultdict[str, Record] = field(default_factory=lambda: defaultdict(Record))
    running: list[Execution] = field(default_factory=list)
    executions: int = 0
    leases: dict[tuple[str, str], int] = field(default_factory=dict)
    holders: dict[str, str] = field(default_factory=dict)
    leader: str | None = None
    led_at: int = 0
    watermarks: dict[str, int] = field(default_factory=dict)
    paused: dict[str, int] = field(default_factory=dict)
    max_active: int | None = None
    """``catchup_max_active``"""
    held: set[str] = field(default_factory=set)
    """Entries whose catch-up waits for an approval, by its script."""
    discarded: set[str] = field(default_factory=set)
    """Entries whose held catch-up somebody has discarded."""
    approved: set[str] = field(default_factory=set)
    late_runs: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """Catch-up runs by life and tick of the beat that decided them, and entry."""
    passed_over: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The latest manual start of an entry that counts for the slots before it."""
    plain: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    told: Counter[str] = field(default_factory=Counter)
    skipped: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    first_seen: int = 0
    rolled_back_at: int = 0
    highest_skew: int = 0
    server_jumped_at: int = 0
    awaiting_loss: dict[str, Process] = field(default_factory=dict)
    forgive: Collection[str] = ()
    """Rules that are not looked at: what else is broken?"""
    natives: int = 0
    """Workers with the plugin that were ever started."""
    strangers: int = 0
    """Workers without it."""
    beats: dict[str, Process] = field(default_factory=dict)
    """By their lives, from their start: whoever delivers a late request of a beat is not that beat."""
    holders_of: Callable[[str], list[Process]] = lambda run_id: []
    """Workers with the plugin that have received a message of the run, two of their pulses ago or earlier."""
    stranger_is_known: Callable[[], bool] = lambda: False
    """Whether a worker without the plugin is there, for so long that the leader has to know it."""

    def __post_init__(self) -> None:
        self.deadlines = DeadlineRules(self.hub, self.entries, self.fail)
        self.rules = QueueRules(self.broker, lambda: self.network.server_ms, self.fail, self._held)

    @property
    def looked_at(self) -> list[tuple[str, ...]]:
        return [("HMGET", self.keys.decided, *self.entries), ("HMGET", self.keys.scheduler, "watermark")]

    def fail(self, rule: str, *details: object) -> None:
        if rule in self.forgive:
            self.hub.trace("oracle", "forgives", rule, *details)
        elif self.hub.failure is None:
            self.hub.failure = ViolationError(f"{rule}: {' '.join(map(str, details))}")

    # -- executions --------------------------------------------------------------------------

    def began(self, one: Execution) -> None:
        self.executions += 1
        self.hub.trace(one.process.name, "executes", one.entry, one.slot, one.trigger)
        if one.slot_ms > self.hub.now + self.highest_skew:
            self.fail("early", one.entry, one.slot)
        if not one.run_id:
            self._began_plain(one)
            return
        record = self.runs[one.run_id]
        record.entry, record.slot_ms = one.entry, one.slot_ms
        record.trigger = record.trigger or one.trigger
        record.executions += 1
        if one.trigger == "backfill":
            record.trigger, record.reopened = one.trigger, True
        if not one.plugin:
            record.unclaimed += 1
            self.running.append(one)
            return
        granted = (one.run_id, one.token) in self.leases
        if not granted and not self.rolled_back_at:
            self.fail("executed without a claim", one.entry, one.slot)
        if self._leased(one):  # a process that was stopped behind its claim begins too late; that is its own
            for other in self.running:
                self._compare(one, other)
            if self.entries[one.entry].chained and one.trigger in SCHEDULED and not record.reopened:
                self._in_order(one)
        self.running.append(one)
        self._count_active()

    def _count_active(self) -> None:
        """At most ``catchup_max_active`` catch-up and backfill runs are executed under a valid lease."""
        late = {
            one.run_id
            for one in self.running
            if one.trigger in ("catchup", "backfill") and one.plugin and self._leased(one)
        }
        if self.max_active is not None and len(late) > self.max_active and not self.rolled_back_at:
            self.fail("more catch-up runs at once than allowed", len(late), self.max_active)

    def _began_plain(self, one: Execution) -> None:
        if one.entry != "plain":  # Celery's own housekeeping
            return
        self.plain[one.slot_ms].add(one.task_id)
        if len(self.plain[one.slot_ms]) > 1 and self.strict_plain:
            self.fail("plain slot sent twice", one.slot)

    def sent(self, delivery: Delivery) -> None:
        """The broker got a message."""
        if delivery.run_id:
            self.rules.sent(self.runs[delivery.run_id], delivery)

    def refused(self, delivery: Delivery) -> None:
        """A worker did not execute a message."""
        if delivery.headers.get("borrowed"):
            self.fail("a task that borrowed a run's headers was dropped", delivery.headers["entry"])

    def revoked(self, task_ids: list[str], *, terminate: bool) -> None:
        """Somebody revokes these tasks: runs that are executed now, under the id of the task that does it."""
        for one in self.running:
            owned = one.run_id and self.holders.get(one.run_id) == one.token
            meant = owned and any(task_id.startswith(one.run_id) for task_id in task_ids)
            if meant and one.task_id not in task_ids and terminate:
                self.fail("a task is terminated under the id of another attempt", one.entry, one.task_id)

    def has_lost(self, run_id: str, token: str) -> bool:
        """Tell whether the run was taken from the worker that got it with this token."""
        return self.leases.get((run_id, token)) == 0

    def _leased(self, one: Execution) -> bool:
        return self.leases.get((one.run_id, one.token), 0) > self.network.server_ms

    strict_plain = True

    def _forgiven(self, record: Record) -> bool:
        """After a roll-back the server does not know any more what had ended before."""
        return bool(self.rolled_back_at) and record.slot_ms <= self.rolled_back_at

    def _compare(self, one: Execution, other: Execution) -> None:
        unclaimed = (other.run_id, other.token) not in self.leases  # the server has forgotten its run
        if not other.run_id or not other.plugin or unclaimed or other.began <= self.rolled_back_at:
            return
        chained = self.entries[one.entry].chained and one.entry == other.entry
        same_lane = chained and "backfill" not in (one.trigger, other.trigger)
        reopened = self.runs[one.run_id].reopened or self.runs[other.run_id].reopened
        if one.run_id == other.run_id or (same_lane and not reopened):
            if self._leased(other):
                self.fail("two at once under a valid lease", one.entry, one.slot, "beside", other.slot)
            elif self._healthy(other):
                self.fail("a living worker lost its run", one.entry, one.slot, "beside", other.slot)

    def _healthy(self, other: Execution) -> bool:
        """Whether nothing at all was wrong with its worker, or the server's clock, for two leases.

        That the server was away is no excuse: whoever finds it again lets workers renew first.
        """
        return self._well(other.process, 2 * self.run_lease_ms)

    def _well(self, process: Process, span: int, *, since: int = 0) -> bool:
        """Whether the process lives, and had no trouble of its own for so long."""
        bad = max(
            process.notes.get("trouble", 0),
            self.server_jumped_at,
            process.stopped_until,
            process.cut_off_until,
            since,
        )
        return process.alive and self.hub.now - bad > span

    def _in_order(self, one: Execution) -> None:
        for run_id, record in self.runs.items():
            older = record.entry == one.entry and record.trigger in SCHEDULED and record.slot_ms < one.slot_ms
            waits = not (record.closed or record.reopened or record.forgotten)
            if older and waits and record.slot_ms > self.rolled_back_at:
                self.fail("out of order", one.entry, one.slot, "before the end of", record.slot_ms, run_id)

    def ended(self, one: Execution, outcome: str) -> None:
        one.outcome = outcome
        if one in self.running:
            self.running.remove(one)
        self.hub.trace(one.process.name, "ended", one.entry, one.slot, outcome)
        if one.run_id and outcome == "success":
            self.runs[one.run_id].succeeded += 1

    def died(self, name: str) -> None:
        self.running = [one for one in self.running if one.process.name != name]

    # -- the server's answers ----------------------------------------------------------------

    def watch(self, process: Process, name: str, command: Any, answer: Any) -> None:
        if isinstance(answer, Exception):
            if not isinstance(answer, NoScriptError):
                self.fail("a script failed", name, answer)
            return
        keys = int(command[2]) if name in self.network.server.scripts.values() else 0
        args = [_text(value) for value in command[3 + keys :]] if keys else []
        by_leader = name in WRITES and not (name == "release" and not args[0])  # a worker passes a place on
        if by_leader and WRITES[name](answer) and process.notes.get("life") != self.leader:
            self.fail("written by a beat that leads no more", name, process.name)
        handler = getattr(self, f"_on_{name}", None)
        if handler is not None:
            handler(process, args, answer)

    def _on_lead(self, process: Process, args: list[str], answer: Any) -> None:
        life = process.notes["life"]
        process.notes["led"] = self.hub.now
        if not answer[0]:
            return
        silent = self.hub.now - self.led_at
        if self.leader not in (None, life):
            if silent < self.lease_ms:
                self.fail("a living leader lost its lease", life, "from", self.leader, "after", silent)
            elif self._at_work(self.leader):
                self.fail("a leader at work lost its lease", life, "from", self.leader, "after", silent)
        self.leader, self.led_at = life, self.hub.now
        self.deadlines.led.append(self.hub.now)
        if args[4]:
            self._watermarks(process, said=False)

    def _on_renew_lead(self, process: Process, args: list[str], answer: Any) -> None:
        """A leader has renewed its lease within a tick."""
        if answer:
            self.led_at = self.hub.now

    def _held(self, run_id: str) -> bool:
        span = 2 * self.run_lease_ms
        return any(self._well(one, span, since=self.network.down_until) for one in self.holders_of(run_id))

    def _at_work(self, life: str) -> bool:
        """Whether nothing kept that beat from renewing its lease."""
        since = max(self.network.down_until, self.rolled_back_at)
        return life in self.beats and self._well(self.beats[life], 2 * self.lease_ms, since=since)

    def received(self, process: Process, name: str, answer: Any) -> None:
        """A beat that sees the leader's record go back knows that something was lost, and has to say so."""
        if name == "lead" and isinstance(answer, list):
            before, process.notes["seen"] = process.notes.get("seen", (0, 0)), (answer[1], answer[2])
            if (answer[1], answer[2]) < before:
                self.awaiting_loss[process.notes["life"]] = process
                process.notes["unsaid"] = 0
            elif process.notes["life"] in self.awaiting_loss:
                process.notes["unsaid"] += 1
                if process.notes["unsaid"] > SILENT:
                    self.fail("a loss of state was not said", process.notes["life"])

    def _on_resign(self, process: Process, args: list[str], answer: Any) -> None:
        if answer:
            self.leader = None

    def _on_store_entries(self, process: Process, args: list[str], answer: Any) -> None:
        if answer:
            self.first_seen = self.first_seen or self.hub.now + process.clock.skew_ms
            self._watermarks(process, said=process.notes.get("suspect") == process.notes["tick"])

    def _on_commit(self, process: Process, args: list[str], answer: Any) -> None:
        if answer is not None and answer[0] == b"ok":
            self._watermarks(process, said=False)

    def _watermarks(self, process: Process, *, said: bool) -> None:
        decided, own = self.network.server.seen
        stored = zip([*self.entries, "scheduler"], [*decided, *own], strict=True)
        found = {name: int(value) for name, value in stored if value is not None}
        for name, value in found.items():
            if value < self.watermarks.get(name, 0) and not said:
                self.fail("a watermark went back", name, value - self.watermarks[name])
        self.watermarks = found

    def _on_claim(self, process: Process, args: list[str], answer: Any) -> None:
        if answer[0] == b"granted":
            self._note_run_out(args[0])
            self.leases[args[0], args[1]] = self.network.server_ms + self.run_lease_ms
            self.holders[args[0]] = args[1]
            record = self.runs[args[0]]
            self.rules.claimed(record)
            if record.completions >= record.allowed and not self._forgiven(record):
                self.fail("claimed after its completion was recorded", record.entry, record.slot_ms)

    def _note_run_out(self, run_id: str) -> None:
        """The run was taken from its worker: if the lease had run out by then, a server's clock that is put
        back later does not revive it."""
        lease = (run_id, self.holders.get(run_id, ""))
        if lease in self.leases and self.leases[lease] <= self.network.server_ms:
            self.leases[lease] = 0

    def _on_renew(self, process: Process, args: list[str], answer: Any) -> None:
        lost = {_text(run) for run in answer}
        for run_id, owner in zip(args[2::2], args[3::2], strict=True):
            if not owner:
                continue  # a message that waits in its worker
            if run_id not in lost:
                self.leases[run_id, owner] = self.network.server_ms + self.run_lease_ms
            else:
                self.leases[run_id, owner] = 0

    def _on_finish(self, process: Process, args: list[str], answer: Any) -> None:
        if answer[0] != b"recorded":
            return
        run_id, owner, state = args[0], args[1], args[2]
        record = self.runs[run_id]
        self.leases[run_id, owner] = 0
        if owner and owner != self.holders.get(run_id, owner):
            self.fail("a worker that lost its run had the last word", record.entry, record.slot_ms)
        if state == "failed":
            record.failures += 1
            attempts = 1 if record.trigger == "backfill" else self.entries[record.entry].attempts
            record.closed = record.failures >= attempts
            record.state = "waiting" if record.state else ""
            return
        if state == "revoked":
            self._on_revoked(run_id, record, args[3])
            return
        record.closed = True
        record.completions += 1
        if record.trigger != "manual":
            self.deadlines.completed.setdefault((record.entry, record.slot_ms), self.hub.now)
        if not record.succeeded:
            self.fail("completed without being executed", record.entry, record.slot_ms)
        if record.completions > record.allowed and not self._forgiven(record):
            self.fail("completed twice", record.entry, record.slot_ms)

    def _on_revoked(self, run_id: str, record: Record, why: str) -> None:
        """Its message expired, or a newer run of its entry has replaced it; nothing else may end it."""
        record.closed = True
        expected = self.entries[record.entry]
        if why == "expired":
            self.rules.expired(record)
        elif not expected.replaces:
            self.fail("revoked by nobody", record.entry, record.slot_ms)
        elif not self.rolled_back_at and record.trigger in SCHEDULED:
            newest = self.network.server.ask(
                [("ZRANGE", self.keys.runs_of(record.entry), -1, -1, "WITHSCORES")]
            )
            if int(newest[0][1]) <= record.slot_ms:
                self.fail("revoked, and nothing has replaced it", record.entry, record.slot_ms)

    def _on_retry(self, process: Process, args: list[str], answer: Any) -> None:
        if answer == b"recorded":
            self.leases[args[0], args[1]] = 0
            record = self.runs[args[0]]
            record.state = "queued" if record.state else ""

    def _on_recover(self, process: Process, args: list[str], answer: Any) -> None:
        run_id, record = args[3], self.runs[args[3]]
        if answer in (b"sent", b"dead", b"ended"):
            self._note_run_out(run_id)
        match answer:
            case b"sent":
                settled = self.hub.now - self.server_jumped_at > 4 * self.run_lease_ms
                self.rules.sent_again(run_id, record, mixed=settled and self.stranger_is_known())
            case b"dead":
                record.closed = True
                self.rules.dead(run_id, record)
            case b"expired":
                record.closed = True
                self.rules.expired(record)
            case b"unreported" | b"assumed":
                record.closed = True
                self.deadlines.settled[record.entry, record.slot_ms] = self.hub.now
                self.rules.assumed(record, natives=self.natives, strangers=self.strangers)

    def _on_replay(self, process: Process, args: list[str], answer: Any) -> None:
        if answer == b"replayed":
            record = self.runs[args[0]]
            record.allowed, record.reopened, record.closed = record.allowed + 1, True, False
            record.failures, record.state = 0, ""

    def _on_judge_slots(self, process: Process, args: list[str], answer: Any) -> None:
        if answer and not self.rolled_back_at:
            self.deadlines.judged(process, args[5], answer)

    def _on_pause_entry(self, process: Process, args: list[str], answer: Any) -> None:
        if answer:
            self.paused[args[0]] = self.deadlines.moved[args[0]] = self.hub.now

    def _on_resume_entry(self, process: Process, args: list[str], answer: Any) -> None:
        if answer:
            self.deadlines.moved[args[0]] = self.hub.now
            self.paused.pop(args[0], None)
            if args[0] in self.held:
                self.held.discard(args[0])
                (self.discarded if args[1] == "1" else self.approved).add(args[0])

    def _on_hold_entries(self, process: Process, args: list[str], answer: Any) -> None:
        """A hold counts from its script on: a lost answer keeps the beat from announcing it at once."""
        for entry, _, runs in json.loads(args[2]) if answer else ():
            most = self.entries[entry].hold_above
            if most is None or runs <= most:
                self.fail("held for no reason of its policy", entry, runs)
            if entry not in self.paused:
                self.held.add(entry)
                self.approved.discard(entry)
                self.paused[entry] = self.hub.now

    def _on_start_manual_run(self, process: Process, args: list[str], answer: Any) -> None:
        if answer == b"started":
            self.runs[args[0]].trigger = "manual"
            entry, (now, keep) = json.loads(args[1])["entry"], args[3:5]
            if keep != "1":
                self.passed_over[entry] = max(self.passed_over[entry], int(now))

    # -- events ------------------------------------------------------------------------------

    def heard(self, process: Process, event: events.Event) -> None:
        self.told[type(event).__name__] += 1
        self.hub.trace(process.name, type(event).__name__, getattr(event, "entry", ""))
        match event:
            case events.RunDispatched():
                self._dispatched(process, event)
            case events.RunSkipped():
                self._skipped(process, event)
            case events.CatchupStarted():
                until = process.notes.get("until") or event.window_end
                process.notes["until"] = min(until, event.window_end)
            case events.CatchupCompleted() | events.Leading() | events.StandingBy():
                process.notes["until"] = 0
                if isinstance(event, events.Leading):
                    self.deadlines.took_over(process)
            case events.SlotOverdue() | events.SlotRecovered() if not self.rolled_back_at:
                outcome = "overdue" if isinstance(event, events.SlotOverdue) else "recovered"
                self.deadlines.told(process, (event.entry, event.slot), outcome)
            case events.Ticked(_, leading=True) if not self.rolled_back_at:
                self.deadlines.ticked(process)
            case events.StateSuspect():
                process.notes["suspect"] = process.notes["tick"]
            case events.StateLost():
                self.awaiting_loss.pop(process.notes["life"], None)

    def _flooded(self, process: Process, entry: str) -> None:
        """No beat decides more catch-up runs of an entry in one tick than somebody has approved."""
        most, key = self.entries[entry].hold_above, (process.notes["life"], process.notes["tick"], entry)
        self.late_runs[key] += 1
        flood = most is not None and self.late_runs[key] > most and entry not in self.approved
        if flood and not self.rolled_back_at:
            self.fail("a flood without an approval", entry, self.late_runs[key])

    def _dispatched(self, process: Process, event: events.RunDispatched) -> None:
        expected, slot = self.entries[event.entry], event.run.slot.at
        record = self.runs[event.run_id]
        record.entry, record.slot_ms, record.trigger = event.entry, slot, str(event.run.trigger)
        record.forgotten = False
        if record.trigger not in SCHEDULED:
            return
        tick = process.notes["tick"]
        until = process.notes.get("until") or tick
        # What was due when the tick began stays due when the clock is put back meanwhile.
        if slot > max(tick, process.clock.wall_ms):
            self.fail("decided early", event.entry, slot - max(tick, process.clock.wall_ms))
        if slot not in expected.slots(slot - 1, slot):
            self.fail("no such slot", event.entry, slot)
        if expected.is_excluded(slot):
            self.fail("an excluded slot runs", event.entry, slot)
        if record.trigger == "catchup":
            self._flooded(process, event.entry)
        if expected.window_ms is not None and slot <= until - expected.window_ms:
            self.fail("older than its window", event.entry, until - expected.window_ms - slot)
        since = self.paused.get(event.entry)
        if since is not None and process.notes.get("led", 0) > since:
            self.fail("decided while paused", event.entry, slot)

    def _skipped(self, process: Process, event: events.RunSkipped) -> None:
        expected, skip = self.entries[event.entry], event.skip
        by_hand = str(skip.reason) == "manual_run" and skip.last <= self.passed_over[event.entry]
        by_hand |= str(skip.reason) == "discarded" and event.entry in self.discarded
        if not by_hand and str(skip.reason) not in expected.reasons:
            self.fail("skipped for no reason of its policy", event.entry, skip.reason)
        tick = process.notes["tick"]
        inside = expected.window_ms is not None and skip.last > tick - expected.window_ms
        if str(skip.reason) == "expired" and inside:
            self.fail("expired inside its window", event.entry, skip.last)
        found = list(expected.slots(skip.first - 1, skip.last))
        if str(skip.reason) == "excluded" and not all(map(expected.is_excluded, found)):
            self.fail("excluded for no reason of its policy", event.entry, skip.first, skip.last)
        if len(found) != skip.count:
            self.fail("a span of skips is miscounted", event.entry, skip.count, len(found))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
