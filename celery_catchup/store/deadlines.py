"""Deadlines (`expect_within`): up to where slots are judged, and which are overdue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from celery_catchup.model import Instant, SkipReason
from celery_catchup.store.leadership import Leadership
from celery_catchup.store.listing import OverdueSlot
from celery_catchup.store.store import AT_ONCE, StorePart, portions, stored_instant, texts

MOST_OVERDUE = 100_000
"""Overdue slots that are kept; the next leader does not know of further ones."""
_LOST = json.dumps([reason for reason in SkipReason if reason.breaks_deadline])


@dataclass(frozen=True, slots=True)
class Judgement:
    """Slots of an entry to judge. ``decided`` is its watermark, ``record`` up to where its slots are judged
    then; None if that does not change."""

    entry: str
    decided: Instant
    slots: Sequence[OverdueSlot]
    record: str | None = None


class DeadlineOutcome(StrEnum):
    """A change by a judgement: a slot has become overdue, has succeeded after all, or need not succeed
    any more. A damaged key of an entry keeps its slots from being judged."""

    OVERDUE = "overdue"
    RECOVERED = "recovered"
    SETTLED = "settled"
    DAMAGED = "damaged"


class Judged(NamedTuple):
    """A slot whose state has changed; ``word`` is the state of its run, the reason of its skip, or
    ``undecided``."""

    slot: OverdueSlot
    outcome: DeadlineOutcome
    run_id: str
    word: str


class DeadlineRecords(StorePart):
    """Reads and writes the records of deadlines."""

    def records(self) -> dict[str, str]:
        """Return the record of each entry."""
        found: dict[str, str] = {}
        cursor = -1
        while cursor:
            cursor, some = self._client.hscan(self._keys.deadlines, max(cursor, 0), count=AT_ONCE)
            found |= texts(some)
        return found

    def overdue(self, *, limit: int = MOST_OVERDUE) -> Iterator[OverdueSlot]:
        """Yield the overdue slots, the earliest deadline first."""
        for start in range(0, limit, AT_ONCE):
            count = min(AT_ONCE, limit - start)
            part = self._client.zrangebyscore(
                self._keys.overdue, "-inf", "+inf", start, count, withscores=True
            )
            yield from (one for member, score in part if (one := _read(member, score)) is not None)
            if len(part) < AT_ONCE:
                return

    def last_successes(self, entries: Iterable[str]) -> dict[str, Instant]:
        """Return when a run of these entries last succeeded, by the server's clock; not of those that never
        did."""
        found: dict[str, bytes | None] = {}
        for part in portions(entries):
            found |= self._fields(self._keys.last_success, part)
        read = {name: stored_instant((text or b"").decode(errors="replace")) for name, text in found.items()}
        return {name: at for name, at in read.items() if at is not None}

    def set(
        self,
        leadership: Leadership,
        records: Mapping[str, str | None],
        *,
        settled: Sequence[OverdueSlot] = (),
    ) -> None:
        """Store records, None to forget one, and forget overdue slots. `FencedError` if another leads."""
        for part in portions(records.items()):
            rows = [[name, False if text is None else text] for name, text in part]
            leadership.call("set_deadlines", {"records": json.dumps(rows), "settled": "[]"})
        for some in portions(settled):
            members = json.dumps([one.member for one in some])
            leadership.call("set_deadlines", {"records": "[]", "settled": members})

    def judge(
        self, leadership: Leadership, several: Sequence[Judgement], *, lost_before: Instant
    ) -> list[Judged]:
        """Judge slots in one step, those with a record for the first time. Return which of these are overdue,
        which others are not any more, and one slot of each entry with a damaged key. `FencedError` if
        another beat leads."""
        batch = [
            {
                "name": one.entry,
                "record": one.record,
                "decided": one.decided,
                "slots": [(slot.schedule, slot.slot, slot.deadline, slot.member) for slot in one.slots],
            }
            for one in several
        ]
        answer = leadership.call(
            "judge_slots",
            {
                "lost": _LOST,
                "lost_before": lost_before,
                "most": MOST_OVERDUE,
                "batch": json.dumps(batch),
            },
            more_keys=[
                key for one in several for key in (self._keys.runs_of(one.entry), self._keys.skips(one.entry))
            ],
        )
        return [
            Judged(several[i].slots[j], DeadlineOutcome(outcome), run_id, word)
            for i, j, outcome, run_id, word in json.loads(answer)
        ]


def _read(member: bytes, score: float) -> OverdueSlot | None:
    """Decode an overdue slot; None if another program has written it."""
    try:
        entry, schedule, slot = json.loads(member)
        return OverdueSlot(str(entry), int(schedule), int(slot), int(score))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
