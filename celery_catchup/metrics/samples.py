"""Reading what metrics tell from the store: two round trips, whatever the ledger holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from celery_catchup.clock import Clock
from celery_catchup.model import RunState, SkipReason, Trigger, to_instant
from celery_catchup.store import Store
from celery_catchup.store.history import History
from celery_catchup.store.listing import Listing

Samples = dict[str, dict[tuple[str, ...], float]]
"""By the metric's name, then by the values of its labels."""

MOST_ENTRIES = 1000
"""Entries with a series of their own, those with the longest chains; there may be any number of others."""
_LOOKED_AT = 10_000
_WORKERS = 10 * 60 * 1000
"""Milliseconds in which a worker must have been seen to count; it says so each minute."""

_COUNTS = {
    "leases": "leases",
    "retries": "retries_waiting",
    "outbox": "outbox_length",
    "dead": "dead_letters",
}
_ENDS = (RunState.SUCCEEDED, RunState.REVOKED, RunState.DEAD, "unreported")
_LEADS_FOR = 3
"""Lengths of the lease after which a leader that does not tick is none any more."""


def read(store: Store, clock: Clock) -> Samples:
    """All that the store knows, histograms apart."""
    client: Any = store.client
    keys = store.keys
    listing = Listing(store)
    leader, scheduler = listing.leader()
    counts = listing.counts()
    with client.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hvals(keys.paused)
        pipe.hgetall(keys.first_seen)
        pipe.hget(keys.meta, "epoch")
        pipe.hvals(keys.failing)
        (seconds, micros), paused, names, epoch, failing = pipe.execute()
    server_ms = seconds * 1000 + micros // 1000
    entries = sorted(name.decode() for name in names)[:_LOOKED_AT]
    with client.pipeline(transaction=False) as pipe:
        pipe.zcount(keys.leases, "-inf", server_ms)
        pipe.zcount(keys.workers, server_ms - _WORKERS, "+inf")
        for entry in entries:
            pipe.zcard(keys.chain(entry))
        overdue, workers, *chains = pipe.execute()
    longest = sorted(zip(entries, chains, strict=True), key=lambda one: -one[1])[:MOST_ENTRIES]
    return {
        **{metric: {(): counts[name]} for name, metric in _COUNTS.items()},
        **_counters(History(store).ever()),
        **_scheduler(leader, scheduler, now=to_instant(clock.now())),
        "leader_terms": {(): int(epoch or 0)},
        "leases_overdue": {(): overdue},
        "workers": {(): workers},
        "entries_paused": {(): sum(_is_paused(text) for text in paused)},
        "entries_failing": {(): len(failing)},
        "chain_length": {(entry,): length for entry, length in longest},
    }


def _counters(ever: Mapping[str, int]) -> Samples:
    def under(prefix: str) -> dict[tuple[str, ...], float]:
        found = {name.removeprefix(prefix): count for name, count in ever.items() if name.startswith(prefix)}
        return {tuple(name.split(":")): count for name, count in found.items()}

    # All of them from the start: of a series that begins with 1 Prometheus sees no increase.
    return {
        "slots_dispatched": {(trigger,): ever.get(trigger, 0) for trigger in Trigger},
        "slots_skipped": {(reason,): ever.get(f"skipped:{reason}", 0) for reason in SkipReason},
        "slots_missed": {(): ever.get("missed", 0)},
        "attempts_failed": {(): ever.get("failed", 0)},
        "runs_ended": {(state,): ever.get(f"ended:{state}", 0) for state in _ENDS},
        "lag": under("lag:"),
        "lag_ms": under("lag_ms:"),
    }


def _scheduler(leader: Mapping[str, str], scheduler: Mapping[str, str], *, now: int) -> Samples:
    def age(name: str) -> dict[tuple[str, ...], float]:
        """Nothing, when it never was."""
        text = scheduler.get(name, "")
        return {(): max(0, now - int(text)) / 1000} if text.isdecimal() else {}

    ticked = age("last_tick")
    lease = _number(leader, "ttl_ms") / 1000
    left = _number(scheduler, "catchup_total") - sum(
        _number(scheduler, f"catchup_{name}") for name in ("dispatched", "skipped")
    )
    running = _number(scheduler, "catchup_running")
    return {
        "watermark_age_seconds": age("watermark"),
        "last_tick_age_seconds": ticked,
        "undecided_seconds": age("undecided") or {(): 0},
        "leader": {(): float(bool(leader) and ticked.get((), _LEADS_FOR * lease) < _LEADS_FOR * lease)},
        "catchup_running": {(): running},
        "catchup_slots_left": {(): max(0, left) if running else 0},
    }


def _number(record: Mapping[str, str], name: str) -> int:
    text = record.get(name, "")
    return int(text) if text.isdecimal() else 0


def _is_paused(text: bytes) -> bool:
    try:
        return bool(json.loads(text)["paused"])
    except (ValueError, KeyError, TypeError):
        return False
