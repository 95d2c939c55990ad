"""Leases of runs: a worker claims a run, renews its lease while executing, and reports the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from celery_catchup.model import RunState
from celery_catchup.store.audit import Change, recorded
from celery_catchup.store.ledger import OutboxRun, lane_keys
from celery_catchup.store.states import SCHEMA, newer_schema
from celery_catchup.store.store import Store, StorePart
from celery_catchup.store.templates import order_key


class ClaimOutcome(StrEnum):
    """The outcome of a claim."""

    GRANTED = "granted"
    HELD = "held"
    ENDED = "ended"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    LATER = "later"


@dataclass(frozen=True)
class Claim:
    """The answer to a claim; ``run`` is the ledger's record if it was granted. ``limited``: the run has one
    of the places of ``catchup_max_active``, which its end passes on."""

    answer: ClaimOutcome
    run: Mapping[str, Any] = field(default_factory=dict)
    limited: bool = False


class ReportResult(NamedTuple):
    """The answer to a report: released runs that are still to be published, the run as it is recorded
    now (at least its state), and released runs whose messages are pushed already."""

    outcome: ReportOutcome
    released: Sequence[OutboxRun] = ()
    run: Mapping[str, Any] = MappingProxyType({})
    pushed: Sequence[str] = ()


class ReportOutcome(StrEnum):
    """The outcome of a report."""

    RECORDED = "recorded"
    SUPERSEDED = "superseded"
    ENDED = "ended"
    UNKNOWN = "unknown"


class Leases(StorePart):
    """The worker's part of the store."""

    def __init__(self, store: Store, *, ttl_ms: int, now_ms: int = 0) -> None:
        super().__init__(store, now_ms=now_ms)
        self.ttl_ms = ttl_ms

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
        priority: object = None,
    ) -> Claim:
        """Claim the run, unless it has ended or another worker executes it under a valid lease.

        ``entry`` is the run's entry according to the message; if that is right, its hourly counts change.
        ``task_id`` is the message's, by default the run's own id. ``routing_key`` and ``priority`` say where
        the message came from: a claim proves that messages get through there. Raises `UnfitStoreError` if a
        newer version has written the stored state.
        """
        args = {
            "run_id": run_id,
            "owner": owner,
            "task": task,
            "task_id": run_id if task_id is None else task_id,
            "worker": worker,
            "entry": entry,
            "routing_key": order_key(routing_key, priority),
            "ttl_ms": self.ttl_ms,
        }
        answer = self._checked("claim", args, entry=entry)
        if answer[0] == b"assumed":
            self._rejoin(run_id, lane=answer[1].decode())
            answer = self._checked("claim", args, entry=entry)
        kind = ClaimOutcome(answer[0].decode())
        if kind is not ClaimOutcome.GRANTED:
            return Claim(kind)
        return Claim(kind, json.loads(answer[1]), limited=bool(answer[2]))

    def _checked(self, script: str, args: Mapping[str, object], **keys: str) -> Any:
        """Run a script that refuses a stored state of a newer version."""
        answer = self._store.send(script, {**args, "now_ms": self.now_ms, "schema": SCHEMA}, **keys)()
        if answer[0] == b"newer":
            raise newer_schema(answer[1].decode())
        return answer

    def _rejoin(self, run_id: str, *, lane: str) -> None:
        """Give a run that was assumed to have run its place in the chain back."""
        self._store.call("rejoin", {"run_id": run_id, "lane": lane, "now_ms": self.now_ms}, lane=lane)

    def renew(self, held: Sequence[tuple[str, str]]) -> list[str]:
        """Renew the leases of ``(run id, owner)``; return the runs that were lost to another worker.

        The owner is "" for a message that this worker has received and not started.
        """
        if not held:
            return []
        pairs = [part for pair in held for part in pair]
        lost = self._store.call("renew", {"ttl_ms": self.ttl_ms, "now_ms": self.now_ms}, more_args=pairs)
        return [run.decode() for run in lost]

    def finish(
        self, run_id: str, *, entry: str, owner: str, state: RunState, error: str = "", letter: str = ""
    ) -> ReportResult:
        """Record the end of a run. ``letter`` is the content of a dead letter as JSON."""
        args = self._ending(run_id, owner, state, error, letter)
        return self._ended(args, self._store.send("finish", {**args, "lane": entry}, lane=entry)())

    def give_up(
        self, run_id: str, *, change: Change, entry: str, state: RunState, error: str
    ) -> ReportResult:
        """End a run that has not started, for an operator."""
        args = {**self._ending(run_id, "", state, error), "change": recorded(change)}
        return self._ended(args, self._store.call("finish", {**args, "lane": entry}, lane=entry))

    def send_finish(
        self, run_id: str, *, entry: str, owner: str, state: RunState
    ) -> Callable[[], ReportResult]:
        """Send the end of a run, and return the function that waits for the answer."""
        args = self._ending(run_id, owner, state)
        answer = self._store.send("finish", {**args, "lane": entry}, lane=entry)
        return lambda: self._ended(args, answer())

    def _ending(
        self, run_id: str, owner: str, state: RunState, error: str = "", letter: str = ""
    ) -> dict[str, object]:
        args = {"run_id": run_id, "owner": owner, "state": str(state), "error": error, "letter": letter}
        return {**args, "now_ms": self.now_ms, "schema": SCHEMA, "change": ""}

    def _ended(self, args: Mapping[str, object], answer: Any) -> ReportResult:
        if answer[0] == b"elsewhere":  # a backfill's run waits in the backfill's lane
            lane = answer[1].decode()
            answer = self._store.call("finish", {**args, "lane": lane}, lane=lane)
        if answer[0] == b"newer":
            raise newer_schema(answer[1].decode())
        outcome = ReportOutcome(answer[0].decode())
        if outcome is not ReportOutcome.RECORDED:
            return ReportResult(outcome)
        if len(answer) == 1:  # a success that releases nothing, as most do
            return ReportResult(outcome, run={"state": args["state"]})
        released, pushed = _outbox_runs(answer[2]), [run.decode() for run in answer[3]]
        if answer[4]:
            more, also_pushed = self._pass_on([lane.decode() for lane in answer[4]])
            released, pushed = released + more, pushed + also_pushed
        return ReportResult(outcome, released, json.loads(answer[1]), pushed)

    def _pass_on(self, lanes: Sequence[str]) -> tuple[list[OutboxRun], list[str]]:
        """Give the place of a run that has ended to the lanes that wait longest for one; return the runs to
        publish, and those that are pushed already. If this fails, the leader's next tick does it."""
        fence, keys = {"owner": "", "epoch": "", "now_ms": self.now_ms}, lane_keys(self._keys, lanes)
        try:
            _, pushed, unpublished = self._store.call("release", fence, more_keys=keys, more_args=lanes)
        except (RedisError, OSError):
            return [], []
        return _outbox_runs(unpublished), [run.decode() for run in pushed]


def _outbox_runs(answer: Sequence[bytes]) -> list[OutboxRun]:
    """Read the runs that a script has released into the outbox: an id, the run and its template for each."""
    texts = iter(answer)
    return [
        OutboxRun(i.decode(), json.loads(run), json.loads(template))
        for i, run, template in zip(texts, texts, texts, strict=True)
    ]
