"""The judge of a storm. It knows the slots by arithmetic and what happened from the workers' lines.

Nothing is asked of the package but the skips with their reasons, as a user would ask: with
``celery catchup runs --state skipped -j``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

REPORTING = 2.0
"""Seconds in which a worker that lives reports the end of a run, on a busy machine. One that is harmed
sooner may not have reported it; then the run is executed again, and the task's effect is there twice."""


@dataclass(frozen=True)
class Execution:
    """One attempt, from its begin to its end; without an end when it was killed or lost its lease."""

    entry: str
    slot: str
    token: str
    session: int
    begun: float
    ended: float | None


@dataclass(frozen=True)
class Harm:
    """Something done to a session: killed or frozen then, or kept from its store for a while."""

    session: int
    moment: float
    until: float = 0.0


@dataclass
class Verdict:
    """What became of the slots. All of the lists are empty when the promises hold."""

    slots: int = 0
    completed: int = 0
    skipped: int = 0
    again: int = 0  # executions whose end could not be reported, because their worker was harmed
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    at_once: list[str] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, int]:
        """For the record."""
        return {
            "slots": self.slots,
            "completed": self.completed,
            "skipped": self.skipped,
            "executed_again": self.again,
            "lost": len(self.lost),
            "twice": len(self.twice),
            "out_of_order": len(self.out_of_order),
            "at_once": len(self.at_once),
        }

    def check(self) -> None:
        assert not self.lost, f"lost: {self.lost[:10]}"
        assert not self.twice, f"completed twice: {self.twice[:10]}"
        assert not self.out_of_order, f"out of order: {self.out_of_order[:10]}"
        assert not self.at_once, f"two at once: {self.at_once[:10]}"


def executions(diary: Path) -> list[Execution]:
    """What the workers did, in the order in which they began it."""
    begun: dict[tuple[str, int], tuple[str, str, int, float]] = {}
    ended: dict[tuple[str, int], float] = {}
    text = diary.read_text(encoding="utf-8") if diary.exists() else ""
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            what, entry, slot, token, pid, session, moment = json.loads(line)
            if what == "begin":
                begun[token, pid] = (entry, slot, session, moment)
            elif what == "end":
                ended[token, pid] = moment
    return [
        Execution(entry, slot, key[0], session, moment, ended.get(key))
        for key, (entry, slot, session, moment) in begun.items()
    ]


def judge(
    expected: Mapping[str, list[str]],
    done: list[Execution],
    *,
    skipped: Mapping[str, set[str]],
    harms: Iterable[Harm],
    chains: Iterable[str],
) -> Verdict:
    """Compare what happened with what had to."""
    verdict, by_slot = Verdict(), defaultdict[tuple[str, str], list[Execution]](list)
    for one in done:
        by_slot[one.entry, one.slot].append(one)
    harmed = list(harms)
    for entry, slots in expected.items():
        for slot in slots:
            verdict.slots += 1
            _judge_slot(
                f"{entry} {slot}",
                by_slot[entry, slot],
                skipped=slot in skipped.get(entry, ()),
                harms=harmed,
                verdict=verdict,
            )
    for entry in chains:
        _judge_chain(expected[entry], [one for one in done if one.entry == entry], harmed, verdict)
    return verdict


def _judge_slot(
    name: str, tries: list[Execution], *, skipped: bool, harms: list[Harm], verdict: Verdict
) -> None:
    ended = [one for one in tries if one.ended is not None]
    unreported = [one for one in ended if _harmed(one, harms)]
    certain = [one for one in ended if one not in unreported]
    verdict.completed += bool(ended)
    verdict.skipped += skipped and not ended
    verdict.again += max(len(ended) - 1, 0)
    if not ended and not skipped:
        verdict.lost.append(name)
    if len(certain) > 1 or (skipped and ended):
        verdict.twice.append(name)


def _judge_chain(slots: list[str], done: list[Execution], harms: list[Harm], verdict: Verdict) -> None:
    """In a chain nothing begins before all that is older has ended, however often it took."""
    by_slot = defaultdict[str, list[Execution]](list)
    for one in done:
        by_slot[one.slot].append(one)
    executed = [by_slot[slot] for slot in slots if slot in by_slot]
    for before, after in pairwise(executed):
        first = min(one.begun for one in after)
        if any(one.begun > first for one in before):
            verdict.out_of_order.append(f"{after[0].slot} before {before[0].slot}")
    ended = sorted((one for one in done if one.ended is not None), key=lambda one: one.begun)
    for one, other in pairwise(ended):
        assert one.ended is not None
        if other.begun < one.ended and not _harmed(one, harms):
            verdict.at_once.append(f"{one.slot} and {other.slot}")


def _harmed(one: Execution, harms: list[Harm]) -> bool:
    """Whether its worker was killed or frozen while it was at it, or before it can have reported it."""
    assert one.ended is not None
    return any(
        harm.session == one.session
        and one.begun <= max(harm.moment, harm.until)
        and harm.moment <= one.ended + REPORTING
        for harm in harms
    )


def skips(printed: str, every: int) -> dict[str, set[str]]:
    """Slots that were skipped, by entry, from what the command printed; slots are so many seconds apart."""
    found = defaultdict[str, set[str]](set)
    for span in json.loads(printed)["skipped"]:
        assert span["reason"], span
        first, last = (datetime.fromisoformat(span[end]) for end in ("first", "last"))
        slots = steps(first, last, every)
        assert len(slots) == span["count"], span
        found[span["entry"]].update(slots)
    return found


def steps(first: datetime, last: datetime, every: int) -> list[str]:
    """All slots from the first to the last, both included, as workers are told them."""
    count = int((last - first).total_seconds()) // every + 1
    return [text(first + timedelta(seconds=number * every)) for number in range(count)]


def text(moment: datetime) -> str:
    """An instant as the package writes it; milliseconds only where there are some."""
    fraction = f".{moment.microsecond // 1000:03d}" if moment.microsecond // 1000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"
