"""The ledger: runs, skips and watermarks, committed together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from celery_catchup.errors import CatchupError, StoreError
from celery_catchup.model import Instant
from celery_catchup.store.batches import MOST_BYTES, Batch, Committed, encode
from celery_catchup.store.keys import Keys
from celery_catchup.store.leadership import Leadership, led
from celery_catchup.store.store import StartedCall, Store, StorePart, read_json, read_run, read_span
from celery_catchup.store.templates import read_templates, with_bases

_REMEMBERED = 200_000
"""Most ids of templates that this process remembers as stored."""


class OutboxRun(NamedTuple):
    """A run to publish, with its stored template."""

    id: str
    run: Mapping[str, Any]
    template: Mapping[str, Any]


def lane_keys(keys: Keys, lanes: Iterable[str]) -> list[str]:
    """Return the keys of the active and waiting runs of these lanes, in the order of `release.lua`."""
    return [key for lane in lanes for key in (keys.active(lane), keys.chain(lane))]


class StaleWatermarkError(CatchupError):
    """Another beat has decided the entry in between; nothing was written."""


class StartedCommit:
    """A commit whose answer was not read yet."""

    def __init__(self, ledger: Ledger, leadership: Leadership, batch: Batch, now: Instant) -> None:
        self._ledger, self._leadership, self._batch, self._now = ledger, leadership, batch, now
        self._call = ledger.send_batch(leadership, batch, now)

    def is_answered(self) -> bool:
        """Tell whether `result` will not wait."""
        return self._call.is_answered()

    def drop(self) -> None:
        """Give up the answer; the outcome stays unknown, as when it is lost."""
        self._call.drop()

    def result(self) -> Committed:
        """Wait for the result, once; raises what `Ledger.commit` raises."""
        stored, templates = self._ledger.stored, self._batch.templates
        answer = led(self._call.answer())
        if answer[0] == b"unknown":
            # Templates were swept, or lost with the server's memory: send all of them again.
            stored.clear()
            answer = led(self._ledger.send_batch(self._leadership, self._batch, self._now).answer())
        status, detail = answer[0].decode(), answer[1].decode()
        if status == "stale":
            raise StaleWatermarkError(f"entry {detail!r} was decided by another beat in between")
        if status == "unknown":
            raise StoreError(f"the server did not keep template {detail!r}; check that it keeps writes")
        if len(stored) > _REMEMBERED:
            stored.clear()
        # The template of a single run is not used again.
        stored.update(name for name, template in templates.items() if template.run is None)
        found = json.loads(detail)
        return Committed(frozenset(found["changed"]), frozenset(found["existing"]), dict(found["damaged"]))


class Ledger(StorePart):
    """Commits decisions, and reads runs."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.stored: set[str] = set()
        """Ids of templates that the server has, as far as this process knows."""

    def commit(self, leadership: Leadership, batch: Batch, *, now: Instant) -> Committed:
        """Commit the batch except for entries that have changed, or nothing. Repeating it changes nothing.

        Raises `FencedError` if another beat leads, `StaleWatermarkError` if an entry's watermark is not
        where its plan started.
        """
        return self.start_commit(leadership, batch, now=now).result()

    def start_commit(self, leadership: Leadership, batch: Batch, *, now: Instant) -> StartedCommit:
        """Send what `commit` sends, and return before the server has answered."""
        return StartedCommit(self, leadership, batch, now)

    def send_batch(self, leadership: Leadership, batch: Batch, now: Instant) -> StartedCall:
        """Send a batch to the script."""
        encoded, runs = encode(batch, stored=self.stored)
        keys = [key for entry in batch.entries for key in self._keys.of_entry(entry.name)]
        args = {"now_ms": now, "batch": encoded}
        return leadership.start("commit", args, more_keys=keys, more_args=runs)

    def admit(self, leadership: Leadership, *, limit: int, now: Instant) -> int:
        """Let delayed runs that are due join their chains, up to ``limit``; return their number.

        `release` starts them.
        """
        ids = self._client.zrangebyscore(self._keys.delayed, "-inf", now, start=0, num=limit)
        if not ids:
            return 0
        stored = self._fields(self._keys.ledger, ids)
        entries = {run: (read_run(text) or {"entry": ""})["entry"] for run, text in stored.items()}
        chains, pairs = map(self._keys.chain, entries.values()), chain.from_iterable(entries.items())
        return int(leadership.call("admit", {"now_ms": now}, more_keys=chains, more_args=pairs))

    def release(self, leadership: Leadership, *, limit: int, now: Instant) -> tuple[int, list[str]]:
        """Release more of up to ``limit`` lanes whose release stopped at its budget, or that can have a place
        among the active catch-up runs; return how many lanes were looked at, and the runs whose messages were
        pushed."""
        names = self._lanes_to_release(limit)
        if not names:
            return 0, []
        keys = lane_keys(self._keys, names)
        looked_at, pushed, _ = leadership.call("release", {"now_ms": now}, more_keys=keys, more_args=names)
        return looked_at, [run.decode() for run in pushed]

    def _lanes_to_release(self, limit: int) -> list[str]:
        with self._client.pipeline(transaction=False) as pipe:
            pipe.zrange(self._keys.unreleased, 0, limit - 1)
            pipe.zrange(self._keys.catchup_waiting, 0, limit - 1)
            pipe.hget(self._keys.meta, "max_active")
            pipe.zcard(self._keys.catchup_active)
            unreleased, waiting, most, active = pipe.execute()
        free = limit if most is None else max(0, int(most) - active)
        return [lane.decode() for lane in dict.fromkeys([*unreleased, *waiting[:free]])][:limit]

    def active(self, entry: str) -> list[str]:
        """Return the ids of the entry's queued and running runs."""
        return [run.decode() for run in self._client.zrange(self._keys.active(entry), 0, -1)]

    def revocations(self) -> dict[str, bool]:
        """Return the tasks that commits have ended and workers may still execute; True means terminate."""
        found = self._client.hgetall(self._keys.revocations)
        return {task.decode(): kind == b"terminate" for task, kind in found.items()}

    def revoked(self, task_ids: Sequence[str]) -> None:
        """Forget revocations that were sent to the workers."""
        if task_ids:
            self._client.hdel(self._keys.revocations, *task_ids)

    def run(self, run_id: str) -> dict[str, Any] | None:
        """Return a run; None if it is missing or unreadable."""
        return read_run(self._client.hget(self._keys.ledger, run_id))

    def lease(self, run_id: str) -> Instant | None:
        """Return when the lease of a run ends; None if it has none."""
        until = self._client.zscore(self._keys.leases, run_id)
        return None if until is None else int(until)

    def runs_of(self, entry: str) -> list[dict[str, Any]]:
        """Return the entry's runs in slot order, with their ids."""
        ids = self._client.zrange(self._keys.runs_of(entry), 0, -1)
        stored = self._fields(self._keys.ledger, ids)
        return [{"id": i.decode(), **json.loads(text)} for i, text in stored.items() if text]

    def skips_of(self, entry: str) -> list[dict[str, Any]]:
        """Return the entry's skipped spans, oldest first."""
        found = map(read_span, self._client.zrange(self._keys.skips(entry), 0, -1))
        return [span for span in found if span is not None]

    def outbox(self, limit: int, *, start: int = 0) -> list[str]:
        """Return the ids of runs to publish, oldest first, without the first ``start``."""
        return [run.decode() for run in self._client.zrange(self._keys.outbox, start, start + limit - 1)]

    def outgoing(self, run_ids: Sequence[str]) -> tuple[list[OutboxRun], list[str]]:
        """Return the first of these runs with their templates, and the ids of those without a readable record
        or template: all of them together, unless their messages are large."""
        found = self._store.call("read_outbox", {"most_bytes": MOST_BYTES}, more_args=run_ids)
        runs, templates, template = dict[str, dict[str, Any]](), dict[str, dict[str, Any]](), None
        looked_at = run_ids[: len(found) // 2]
        for run_id, stored, text in zip(looked_at, found[::2], found[1::2], strict=True):
            run, template = read_run(stored), template if text == b"=" else read_json(text)
            if run is not None and template is not None:
                runs[run_id], templates[run_id] = run, template
        whole = with_bases(self._client, self._keys.templates, templates)
        outgoing = [OutboxRun(run_id, runs[run_id], template) for run_id, template in whole.items()]
        return outgoing, [run_id for run_id in looked_at if run_id not in whole]

    def published(self, runs: Sequence[OutboxRun], *, took: float = 0.0) -> None:
        """Remove runs that the broker has confirmed from the outbox, except those that are to be sent again
        since. The time in which a worker has to claim them begins now; ``took`` is the number of seconds
        since the first of them may have been published."""
        rows = (
            (one.id, one.run["sends"], timing.get("countdown_ms") or 0, timing.get("expires_ms") or 0)
            for one in runs
            for timing in (one.template,)
        )
        if runs:
            args = {"now_ms": self.now_ms, "took_ms": int(took * 1000)}
            self._store.send("confirm_published", args, more_args=list(chain.from_iterable(rows)))()

    def unpublishable(self, run_ids: Sequence[str]) -> None:
        """Remove runs without a readable record or template from the outbox: they can never be sent."""
        if run_ids:
            self._client.zrem(self._keys.outbox, *run_ids)

    def template(self, template_id: str) -> dict[str, Any] | None:
        """Return a stored template; None if it is missing or unreadable."""
        return read_templates(self._client, self._keys.templates, [template_id]).get(template_id)
