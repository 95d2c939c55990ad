"""Explain one time of an entry: is it a slot, who decided what by which rule, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from celery_catchup.engine.tracked_entries import TrackedEntry
from celery_catchup.model import (
    Instant,
    PlannedRun,
    RunState,
    Skip,
    SkipReason,
    Slot,
    Trigger,
    to_datetime,
    to_instant,
    to_milliseconds,
    to_rfc3339,
)
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.previews import next_plan
from celery_catchup.operations.runs import Run, attempts_of, decision_of, run_of
from celery_catchup.operations.slot_answers import SlotAnswer, SlotVerdict, Why, advice_for
from celery_catchup.planning.entry import Entry
from celery_catchup.planning.planner import most_active
from celery_catchup.planning.recorded_catchup import (
    RecordedCatchup,
    find_catchup,
    outcome,
    past_skips,
    reason_of,
    skipped_before,
)
from celery_catchup.planning.why import (
    Alternative,
    Rule,
    alternatives_of_decision,
    alternatives_of_upcoming,
    explain_no_slot,
    explain_run,
    explain_skip,
    plan_live,
    slots_at,
)
from celery_catchup.store import ActiveLimit
from celery_catchup.store.controls import with_resumed_entries
from celery_catchup.store.decisions import Leader
from celery_catchup.store.listing import Record, RunFilter
from celery_catchup.store.store import read_json, stored_instant, stored_time

_MOST = 20
"""Runs of one instant that are shown."""
_COVERED = "a backfill with --span: one run, of the newest slot, stands for several"


def why(operator: Operator, name: str, at: datetime) -> Why:
    """Explain a time of an entry: past, present or future."""
    (name,) = operator.known([name])
    return _Question(operator, name, to_instant(at)).answer()


class _Question:
    """One time of one entry, and what is stored about it."""

    def __init__(self, operator: Operator, name: str, at: Instant) -> None:
        self.operator, self.name, self.at, self.now = operator, name, at, operator.now()
        self.stored = operator.read_stored([name])
        self.tracked: TrackedEntry | None = operator.tracked(self.stored, self.now, [name]).get(name)
        page = operator.listing.runs(RunFilter(entries=(name,), since=at, until=at, limit=_MOST))
        self.records = page.records
        spans = operator.listing.skips([name], since=at, until=at)[name]
        self.spans = sorted(spans, key=lambda one: -(one.get("epoch") or 0))  # the last decision stands
        self.catchups = operator.decisions.catchups(name)
        epochs = [one.get("epoch") for one in (*self.records, *self.spans)]
        epochs += [one.epoch for one in self.catchups]
        self.leaders = operator.decisions.leaders(one for one in epochs if isinstance(one, int))

    @property
    def entry(self) -> Entry | None:
        return None if self.tracked is None else self.tracked.entry

    @cached_property
    def pause(self) -> Mapping[str, Any]:
        return read_json(self.stored.paused.get(self.name)) or {}

    def answer(self) -> Why:
        slots = [] if self.entry is None else slots_at(self.entry, self.at)
        answers = [self._run(record) for record in self.records]
        ran = {int(record.get("schedule", 0)) for record in self.records if _is_slot(record)}
        answers += [self._slot(slot) for slot in slots if slot.schedule not in ran]
        no_slot = None
        if not slots:
            answers += [*self._gone()] if self.entry is None else [*self._unmatched_skips(ran)]
            no_slot = None if self.entry is None else explain_no_slot(self.entry, self.at)
        if no_slot is not None and not answers:
            answers.append(SlotAnswer(SlotVerdict.NO_SLOT, no_slot.sentence))
        return Why(
            entry=self.name,
            time=to_datetime(self.at),
            is_slot=bool(slots),
            answers=tuple(answers),
            no_slot=None if no_slot is None else no_slot.reason,
            before=None if no_slot is None else stored_time(no_slot.before),
            after=None if no_slot is None else stored_time(no_slot.after),
            advice=tuple(advice_for(self.name, self.at, answers)),
        )

    # -- recorded ----------------------------------------------------------------------------

    def _run(self, record: Record) -> SlotAnswer:
        trigger, created = Trigger(record["trigger"]), stored_instant(record.get("created"))
        busy = stored_instant(record.get("busy")) or 0
        slot = Slot(self.at, int(record.get("schedule", 0)))
        late = trigger is Trigger.CATCHUP
        epoch = stored_instant(record.get("epoch"))
        catchup = find_catchup(self.catchups, self.at, decided=created, epoch=epoch) if late else None
        found = explain_run(self.entry, self.at, trigger, busy=busy, catchup=catchup)
        run = run_of(record)
        before = next((one for one in self.spans if one["schedule"] == slot.schedule), None)
        scheduled = trigger in (Trigger.SCHEDULER, Trigger.CATCHUP)
        waits_for, starts_at = self._wait(record)
        return SlotAnswer(
            SlotVerdict.RUN,
            found.sentence,
            rule=found.rule,
            values={**found.values, **self._requested(run), **self._place(record, starts_at)},
            schedule=slot.schedule,
            reason=None if before is None or scheduled else _reason(before["reason"]),
            decided_at=stored_time(created),
            **self._leader(record.get("epoch")),
            run=run,
            attempts=tuple(attempts_of(record)),
            decision=decision_of(record),
            waits_for=waits_for,
            starts_at=starts_at,
            alternatives=self._alternatives(slot, None, busy, catchup) if scheduled else (),
            policy_changed=self._policy_changed(catchup),
        )

    def _requested(self, run: Run) -> dict[str, Any]:
        by = run.requested_by
        if run.backfill is not None and (backfill := self.operator.backfills.get(run.backfill)) is not None:
            by = backfill.by
        given = {"backfill": run.backfill, "requested_by": by}
        return {name: value for name, value in given.items() if value is not None}

    def _slot(self, slot: Slot) -> SlotAnswer:
        span = next((one for one in self.spans if one["schedule"] == slot.schedule), None)
        return self._without_record(slot) if span is None else self._skip(span, slot)

    def _skip(self, span: Record, slot: Slot) -> SlotAnswer:
        reason, busy = _reason(span["reason"]), stored_instant(span.get("busy")) or 0
        backfilled = self._covering_backfill(span)
        epoch = stored_instant(span.get("epoch"))
        catchup = None if backfilled else find_catchup(self.catchups, self.at, epoch=epoch)
        if backfilled is not None:
            found = Rule("backfill", _COVERED, {"run": backfilled.run_id, **self._requested(backfilled)})
        elif self.entry is None:
            known = reason.rule.meaning if isinstance(reason, SkipReason) else str(reason)
            found = Rule(str(reason), known)
        else:
            found = explain_skip(
                self.entry, self.at, reason, busy=busy, run_id=span.get("run_id"), catchup=catchup
            )
        return SlotAnswer(
            SlotVerdict.SKIPPED,
            found.sentence,
            rule=found.rule,
            values=found.values,
            schedule=slot.schedule,
            reason=reason,
            decided_at=to_datetime(self.at if catchup is None else catchup.at)
            if backfilled is None
            else backfilled.created_at,
            **self._leader(span.get("epoch")),
            skipped_first=to_datetime(span["first"]),
            skipped_last=to_datetime(span["last"]),
            skipped_count=int(span["count"]),
            alternatives=() if backfilled else self._alternatives(slot, reason, busy, catchup),
            policy_changed=self._policy_changed(catchup),
        )

    def _covering_backfill(self, span: Record) -> Run | None:
        """Return the run of a backfill that stands for the slots of a record; None if there is none."""
        run_id = span.get("run_id")
        if span["reason"] != SkipReason.COVERED or not run_id:
            return None
        runs = (run_of(record) for record in self.operator.listing.records([run_id]))
        return next((run for run in runs if run.trigger_type is Trigger.BACKFILL), None)

    def _unmatched_skips(self, ran: set[int]) -> Iterator[SlotAnswer]:
        """Yield skips at a time without a slot now: it is excluded, or the schedule has changed."""
        for span in {int(one["schedule"]): one for one in self.spans}.values():
            ends = self.at in (span["first"], span["last"])
            if span["schedule"] not in ran and (ends or span["reason"] == SkipReason.EXCLUDED):
                assert self.entry is not None
                index = int(span["schedule"])
                known = index < len(self.entry.schedules)
                table = self.entry.schedules[index].timetable if known else None
                if ends or (table is not None and table.next_after(self.at - 1) == self.at):
                    yield self._skip(span, Slot(self.at, index))

    def _alternatives(
        self, slot: Slot, reason: SkipReason | str | None, busy: int, catchup: RecordedCatchup | None
    ) -> tuple[Alternative, ...]:
        entry = self.entry
        if entry is None or slot.schedule >= len(entry.schedules) or self.name not in self.operator.declared:
            return ()
        existing = {} if catchup is None else self._existing(entry, catchup)
        if reason is None:
            existing.pop(slot, None)  # a later decision found the run that this one made
        return tuple(
            alternatives_of_decision(entry, slot, reason, busy=busy, catchup=catchup, existing=existing)
        )

    def _existing(self, entry: Entry, catchup: RecordedCatchup) -> dict[Slot, RunState]:
        found = self.operator.listing.skips([self.name], since=catchup.after + 1, until=catchup.at)
        spans = [one for one in found[self.name] if one["reason"] == SkipReason.ALREADY_EXISTS]
        return skipped_before(past_skips(entry, spans), catchup)

    def _policy_changed(self, catchup: RecordedCatchup | None) -> bool:
        digest = None if catchup is None else catchup.facts.get("policy")
        return digest is not None and self.entry is not None and digest != self.entry.policy_digest

    def _leader(self, epoch: object) -> dict[str, Any]:
        found: Leader | None = self.leaders.get(epoch) if isinstance(epoch, int) else None
        return {
            "epoch": epoch if isinstance(epoch, int) else None,
            "leader": None if found is None else found.owner,
            "leader_since": None if found is None else to_datetime(found.since),
        }

    def _wait(self, record: Record) -> tuple[tuple[str, ...], datetime | None]:
        """Return the runs that a waiting run waits for, and when it is sent if that is fixed."""
        if record["state"] != RunState.WAITING:
            return (), None
        starts = self.operator.decisions.delayed_until(record["id"])
        if starts is not None:
            return (), to_datetime(starts)
        stopped = self.stored.stopped.get(self.name, "").split()
        if stopped and not record.get("lane"):
            return tuple(one for one in stopped if one != record["id"]), None
        if not record.get("lane") and self.entry is not None and most_active(self.entry.policy) is None:
            return (), None  # its entry's runs do not wait for each other, but for a place
        lane = str(record.get("lane") or self.name)
        return tuple(self.operator.decisions.before_in_lane(record["id"], lane=lane)), None

    def _place(self, record: Record, starts_at: datetime | None) -> dict[str, Any]:
        """Return how many places of `catchup_max_active` are taken, if the run cannot start without one."""
        limited = Trigger(record["trigger"]) in (Trigger.CATCHUP, Trigger.BACKFILL)
        if record["state"] != RunState.WAITING or not limited or starts_at is not None:
            return {}
        found = ActiveLimit(self.operator.store).read()
        if found is None or found.active < found.limit:
            return {}
        text = f"{found.active} of {found.limit} catch-up and backfill runs are active (catchup_max_active)"
        return {"waits_for_a_place": text}

    # -- not recorded ------------------------------------------------------------------------

    def _without_record(self, slot: Slot) -> SlotAnswer:
        assert self.tracked is not None
        state, at, now = self.tracked.state, self.at, self.now
        if self.name not in self.operator.declared:
            return self._no_policy(slot)
        if at <= state.first_seen_at and not self.tracked.newcomer:
            seen = to_rfc3339(state.first_seen_at)
            return SlotAnswer(
                SlotVerdict.NEVER_SEEN,
                f"beat first saw the entry at {seen}: it has no slots before",
                schedule=0,
            )
        if state.paused and state.paused_at is not None and at > state.paused_at:
            return self._paused(slot)
        if at > now:
            return self._upcoming(slot)
        decided = max(stored_instant(self.stored.watermark) or 0, state.decided or 0)
        if at > decided or (state.paused_at is not None and at > state.paused_at):
            return self._undecided(slot)
        oldest = now - to_milliseconds(self.operator.configuration.settings.ledger_ttl)
        if at < oldest:
            return SlotAnswer(
                SlotVerdict.FORGOTTEN,
                f"nothing is recorded of slots before {to_rfc3339(oldest)}: catchup_ledger_ttl has passed",
                schedule=slot.schedule,
            )
        return SlotAnswer(
            SlotVerdict.NOT_RECORDED,
            "the watermark has passed the slot without a record: it was moved by hand, the server lost "
            "records, or the schedule was another one then",
            schedule=slot.schedule,
        )

    def _no_policy(self, slot: Slot) -> SlotAnswer:
        last = stored_time(self.stored.last_runs.get(self.name, "").partition(" ")[0])
        tense = "will run as under Celery's own scheduler" if self.at > self.now else "keeps no record of it"
        return SlotAnswer(
            SlotVerdict.NO_POLICY,
            f"the entry has no catch-up policy: it {tense}",
            values={} if last is None else {"last_run_at": last},
            schedule=slot.schedule,
        )

    def _paused(self, slot: Slot) -> SlotAnswer:
        """Show what happens to a slot after the resume or approval that it waits for."""
        held = bool(self.pause.get("held"))
        ahead = with_resumed_entries(self.stored, [self.name], max(self.now, self.at))
        found = next_plan(self.operator, self.name, ahead, max(self.now, self.at))
        decided = None if found is None else outcome(found.plan, slot)
        values = {"paused_at": stored_time(self.pause.get("at")), "paused_by": self.pause.get("by") or None}
        says = (
            f"the entry is paused{_because(self.pause.get('reason'))}: nothing is decided until it is resumed"
        )
        if held:
            runs = self.pause.get("runs")
            values = {"held_at": stored_time(self.pause.get("held_at")), "runs": runs}
            says = "its catch-up has more runs than hold_above, and waits for an approval"
        return SlotAnswer(
            SlotVerdict.HELD if held else SlotVerdict.PAUSED,
            f"{says}; then {_will(decided)}",
            rule="hold_above" if held else "pause",
            values={name: value for name, value in values.items() if value is not None},
            schedule=slot.schedule,
            reason=reason_of(decided),
        )

    def _undecided(self, slot: Slot) -> SlotAnswer:
        found = next_plan(self.operator, self.name, self.stored, self.now)
        decided = None if found is None else outcome(found.plan, slot)
        assert self.tracked is not None
        missed = self.at <= self.tracked.entry.missed_until(self.now)
        words = (
            "beat has missed it, and not decided it yet" if missed else "it is due, and beat decides it now"
        )
        if found is not None and found.held:
            words += f"; {found.held} runs are more than hold_above, and will wait for an approval"
        return SlotAnswer(
            SlotVerdict.UNDECIDED,
            f"{words}; as things are, {_will(decided)}",
            rule="preview",
            schedule=slot.schedule,
            reason=reason_of(decided),
        )

    def _upcoming(self, slot: Slot) -> SlotAnswer:
        assert self.tracked is not None
        entry, success = self.tracked.entry, self.tracked.state.manual_success
        found = plan_live(entry, self.at, manual_success=success)
        decided = outcome(found, slot)
        planned = next((run for run in found.runs if run.slot == slot), None)
        return SlotAnswer(
            SlotVerdict.UPCOMING,
            f"it is still to come; {_will(decided)}",
            rule="schedule",
            schedule=slot.schedule,
            reason=reason_of(decided),
            starts_at=None if planned is None else to_datetime(planned.send_at),
            alternatives=tuple(alternatives_of_upcoming(entry, slot)),
        )

    def _gone(self) -> Iterator[SlotAnswer]:
        """Yield what is known of an entry that is not declared any more, or whose schedule cannot be read."""
        spans = [one for one in self.spans if not self.records]
        for span in spans:
            yield self._skip(span, Slot(self.at, int(span["schedule"])))
        declared = self.name in self.operator.schedule
        words = "its schedule cannot be read now" if declared else "the entry is not declared any more"
        left = stored_instant(self.stored.left_off.get(self.name))
        if not self.records and not spans:
            known = "" if left is None else f"; it was decided up to {to_rfc3339(left)}"
            verdict = SlotVerdict.NOT_RECORDED if declared else SlotVerdict.REMOVED
            yield SlotAnswer(verdict, f"{words}, and nothing is recorded of this time{known}")


def _is_slot(record: Record) -> bool:
    """Whether a run is that of a slot; a manual run may have any time."""
    return Trigger(record["trigger"]) is not Trigger.MANUAL


def _reason(text: object) -> SkipReason | str:
    return SkipReason(str(text)) if text in list(SkipReason) else str(text)


def _because(reason: object) -> str:
    return f" ({reason})" if reason else ""


def _will(decided: PlannedRun | Skip | None) -> str:
    """Return the decision of a plan as the end of a sentence."""
    if decided is None:
        return "its slot is not planned"
    reason = reason_of(decided)
    return "it will run" if reason is None else f"it will be skipped ({reason})"
