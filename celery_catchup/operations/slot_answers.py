"""Answers to "why?": the decision about a slot as values, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from celery_catchup.error_text import counted
from celery_catchup.events.command_lines import backfill_line, command_line
from celery_catchup.model import Instant, RunState, SkipReason, to_instant
from celery_catchup.operations.runs import Attempt, Decision, Run
from celery_catchup.planning.why import Alternative, NoSlotReason

_SHORT = 8
"""Characters of a run's id that are shown."""


class SlotVerdict(StrEnum):
    """The answer in one word."""

    RUN = "run"
    SKIPPED = "skipped"
    UPCOMING = "upcoming"
    UNDECIDED = "undecided"
    PAUSED = "paused"
    HELD = "held"
    NO_SLOT = "no_slot"
    NEVER_SEEN = "never_seen"
    FORGOTTEN = "forgotten"
    NOT_RECORDED = "not_recorded"
    NO_POLICY = "no_policy"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """The answer for one slot. ``rule`` is the name of the rule that decided, ``values`` its values, and
    ``says`` both as a sentence. ``reason`` is why the slot was, or will be, skipped. ``leader`` is the beat
    that decided, which led since ``leader_since`` with this ``epoch``. ``skipped_first`` to
    ``skipped_last`` is the span of ``skipped_count`` slots that were skipped together. ``waits_for`` are the
    runs that must end before this one starts, or, if a failure stopped the chain, must be replayed;
    ``starts_at`` is when a delayed run or the next attempt is sent. ``alternatives`` are decisions under
    other conditions."""

    verdict: SlotVerdict
    says: str
    rule: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    schedule: int | None = None
    reason: SkipReason | str | None = None
    decided_at: datetime | None = None
    epoch: int | None = None
    leader: str | None = None
    leader_since: datetime | None = None
    skipped_first: datetime | None = None
    skipped_last: datetime | None = None
    skipped_count: int = 0
    run: Run | None = None
    attempts: tuple[Attempt, ...] = ()
    decision: Decision | None = None
    waits_for: tuple[str, ...] = ()
    starts_at: datetime | None = None
    alternatives: tuple[Alternative, ...] = ()
    policy_changed: bool = False

    @property
    def words(self) -> str:
        """The answer in a few words: ``skipped (guard_blocked)``."""
        if self.run is not None:
            return f"{self.run.trigger_type.label} run, {self.run.state}"
        if self.verdict is SlotVerdict.SKIPPED:
            return f"skipped ({self.reason})"
        return str(self.verdict).replace("_", " ")

    @property
    def sentence(self) -> str:
        """The explanation as a sentence."""
        return f"{self.says[:1].upper()}{self.says[1:]}."


@dataclass(frozen=True, slots=True)
class Advice:
    """A command to paste, and what it does."""

    purpose: str
    command: str


@dataclass(frozen=True, slots=True)
class Why:
    """Everything about one time of an entry. If it is not a slot, ``no_slot`` says why, and ``before`` and
    ``after`` are the nearest slots that can run."""

    entry: str
    time: datetime
    is_slot: bool
    answers: tuple[SlotAnswer, ...]
    no_slot: NoSlotReason | None = None
    before: datetime | None = None
    after: datetime | None = None
    advice: tuple[Advice, ...] = ()


def facts_of(one: SlotAnswer) -> Iterator[tuple[str, object]]:
    """Yield what is known about a decision, each with its name; None where nothing is."""
    if one.run is not None and one.reason is not None:
        yield "Skipped before", one.reason
    yield "Decided At", one.decided_at
    if one.epoch is not None:
        yield "Leader", f"{one.leader or 'unknown'} (epoch {one.epoch})"
        yield "Leading since", one.leader_since
    yield "Rule", one.rule
    for name, value in one.values.items():
        yield name.replace("_", " ").capitalize(), value
    if one.policy_changed:
        yield "Policy", "has changed since; the values are those of the present one"
    if one.skipped_count > 1:
        yield "Skipped with it", counted(one.skipped_count - 1, "other slot")
    if one.waits_for:
        yield "Waits for", ", ".join(run_id[:_SHORT] for run_id in one.waits_for)
    yield "Starts at" if one.verdict is SlotVerdict.UPCOMING else "Sent at", one.starts_at
    for other in one.alternatives:
        decision = "run" if other.reason is None else f"skip ({other.reason})"
        yield f"With {other.condition}" if one.decided_at else f"If {other.condition}", decision


# -- what to do ------------------------------------------------------------------------------------


def advice_for(name: str, at: Instant, answers: Sequence[SlotAnswer]) -> Iterator[Advice]:
    """Yield what to do about the slots of an entry at an instant."""
    for one in answers:
        if one.run is not None:
            yield from _about_run(name, at, one)
        elif one.verdict is SlotVerdict.SKIPPED:
            first = at if one.skipped_first is None else to_instant(one.skipped_first)
            last = at if one.skipped_last is None else to_instant(one.skipped_last)
            if not isinstance(one.reason, SkipReason) or one.reason.recoverable:
                yield Advice("To run the slot after all", backfill_line(name, at, at))
                if one.skipped_count > 1:
                    purpose = f"To run all {one.skipped_count} slots that were skipped with it"
                    yield Advice(purpose, backfill_line(name, first, last))
        elif one.verdict is SlotVerdict.PAUSED:
            yield Advice("To decide its slots again", command_line("resume", name))
        elif one.verdict is SlotVerdict.HELD:
            yield Advice("To run its catch-up", command_line("approve", name))
            yield Advice("To skip it", command_line("discard", name))
        elif one.verdict is SlotVerdict.UNDECIDED:
            yield Advice("To see whether a beat leads", command_line("status"))
        elif one.verdict in (SlotVerdict.NOT_RECORDED, SlotVerdict.FORGOTTEN, SlotVerdict.NEVER_SEEN):
            yield Advice("To run the slot", backfill_line(name, at, at))


def _about_run(name: str, at: Instant, one: SlotAnswer) -> Iterator[Advice]:
    assert one.run is not None
    run_id = one.run.run_id
    match one.run.state:
        case RunState.DEAD:
            yield Advice("To attempt it again", command_line("dlq", "replay", run_id))
        case RunState.FAILED | RunState.REVOKED:
            yield Advice("To run it again", backfill_line(name, at, at, "--reprocess", "failed"))
        case RunState.WAITING if one.waits_for:
            yield Advice("To see the run that it waits for", command_line("runs", "show", one.waits_for[0]))
        case RunState.QUEUED:
            yield Advice("To find out why no worker has started it", command_line("doctor"))
        case _:
            yield Advice("To see everything about the run", command_line("runs", "show", run_id))
