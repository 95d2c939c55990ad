"""Leases of runs: a worker claims before it executes, renews meanwhile, and reports the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from celery_catchup.model import RunState
from celery_catchup.store.keys import Keys
from celery_catchup.store.scripts import Scripts
from celery_catchup.store.states import SCHEMA, newer_schema


class Answer(StrEnum):
    """What became of a claim."""

    GRANTED = "granted"
    HELD = "held"
    ENDED = "ended"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    LATER = "later"


@dataclass(frozen=True)
class Claim:
    """The answer to a claim; ``run`` is the ledger's record when it was granted."""

    answer: Answer
    run: Mapping[str, Any] = field(default_factory=dict)


class Ending(NamedTuple):
    """What became of a report: runs that it released and that are still to be published, the run as it
    is recorded now, and runs that it released whose messages are pushed already."""

    outcome: Finish
    released: Sequence[str] = ()
    run: Mapping[str, Any] = MappingProxyType({})
    pushed: Sequence[str] = ()


class Finish(StrEnum):
    """What became of a report."""

    RECORDED = "recorded"
    SUPERSEDED = "superseded"
    ENDED = "ended"
    UNKNOWN = "unknown"


_CLAIM_KEYS = ("ledger", "leases", "hours", "drained", "contact", "meta")
_REJOIN_KEYS = ("ledger", "leases", "outbox", "policies", "ended")
_FINISH_KEYS = (
    "ledger",
    "leases",
    "templates",
    "outbox",
    "policies",
    "retries",
    "ended",
    "dead",
    "letters",
    "paused",
    "version",
    "scheduler",
    "manual",
    "hours",
    "meta",
    "stopped",
    "unreleased",
)


class Leases:
    """The worker's side of the ledger. ``now_ms`` is for tests: 0 asks the server's clock."""

    def __init__(self, scripts: Scripts, keys: Keys, *, db: int, ttl_ms: int, now_ms: int = 0) -> None:
        self._scripts, self._keys, self._db = scripts, keys, db
        self.ttl_ms, self.now_ms = ttl_ms, now_ms

    def claim(
        self,
        run_id: str,
        *,
        owner: str,
        task: str,
        worker: str,
        entry: str = "",
        task_id: str | None = None,
        routing_key: str = "",
    ) -> Claim:
        """Take the run, unless it has ended or somebody executes it under a live lease.

        ``entry`` is whose run the message says it is; its hours are counted when that is so. ``task_id``
        is the message's, the run's own id when it is left out. ``routing_key`` is where the message came
        from: a claim shows that messages get through there. Raises `UnfitStoreError` when a newer version
        has written the stored state.
        """
        args = {
            "run_id": run_id,
            "owner": owner,
            "task": task,
            "task_id": run_id if task_id is None else task_id,
            "worker": worker,
            "entry": entry,
            "routing_key": routing_key,
        }
        answer = self._claim(entry, args)
        if answer[0] == b"assumed":
            self._rejoin(run_id, lane=answer[1].decode())
            answer = self._claim(entry, args)
        kind = Answer(answer[0].decode())
        return Claim(kind, json.loads(answer[1]) if kind is Answer.GRANTED else {})

    def _claim(self, entry: str, args: Mapping[str, str]) -> Any:
        keys = {name: getattr(self._keys, name) for name in _CLAIM_KEYS}
        answer = self._scripts.call(
            "claim",
            {**keys, "entry_hours": self._keys.hours_of(entry)},
            {**args, "ttl_ms": self.ttl_ms, "now_ms": self.now_ms, "schema": SCHEMA},
        )
        _check_schema(answer)
        return answer

    def _rejoin(self, run_id: str, *, lane: str) -> None:
        """Give a run that was assumed to have run its place in the chain back."""
        keys = {name: getattr(self._keys, name) for name in _REJOIN_KEYS}
        lane_keys = {"active": self._keys.active(lane), "chain": self._keys.chain(lane)}
        self._scripts.call(
            "rejoin", keys | lane_keys, {"run_id": run_id, "lane": lane, "now_ms": self.now_ms}
        )

    def renew(self, held: Sequence[tuple[str, str]]) -> list[str]:
        """Keep the leases of ``(run id, owner)``; the runs that were lost come back.

        The owner is "" for a message that this worker has received and not started.
        """
        if not held:
            return []
        lost = self._scripts.call(
            "renew",
            {"ledger": self._keys.ledger, "leases": self._keys.leases},
            {"ttl_ms": self.ttl_ms, "now_ms": self.now_ms},
            more_args=[part for pair in held for part in pair],
        )
        return [run.decode() for run in lost]

    def finish(
        self, run_id: str, *, entry: str, owner: str, state: RunState, error: str = "", letter: str = ""
    ) -> Ending:
        """Record the end. ``letter`` is what a dead letter should tell, as JSON."""
        args = {"run_id": run_id, "owner": owner, "state": str(state), "error": error, "letter": letter}
        answer = self._finish(entry, args)
        if answer[0] == b"elsewhere":  # a backfill's run waits in a lane of its own
            answer = self._finish(answer[1].decode(), args)
        outcome = Finish(answer[0].decode())
        if outcome is not Finish.RECORDED:
            return Ending(outcome)
        released, pushed = ([run.decode() for run in runs] for runs in answer[2:])
        return Ending(outcome, released, json.loads(answer[1]), pushed)

    def _finish(self, lane: str, args: Mapping[str, str]) -> Any:
        answer = self._scripts.call(
            "finish",
            {
                **{name: getattr(self._keys, name) for name in _FINISH_KEYS},
                "active": self._keys.active(lane),
                "chain": self._keys.chain(lane),
            },
            {**args, "lane": lane, "db": self._db, "now_ms": self.now_ms, "schema": SCHEMA},
        )
        _check_schema(answer)
        return answer


def _check_schema(answer: Sequence[Any]) -> None:
    if answer[0] == b"newer":
        raise newer_schema(answer[1].decode())
