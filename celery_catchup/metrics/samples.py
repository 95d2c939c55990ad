"""Read the samples of all metrics from the store: a few round trips, whatever the ledger holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from celery_catchup.clock import Clock
from celery_catchup.model import RunState, SkipReason, Trigger, to_instant
from celery_catchup.store import DeadlineRecords, Store
from celery_catchup.store.history import History
from celery_catchup.store.listing import Listing
from celery_catchup.store.notices import Settled
from celery_catchup.store.store import read_json

Samples = dict[str, dict[tuple[str, ...], float]]
"""By the metric's name, then by the values of its labels."""

MOST_ENTRIES = 1000
"""Entries with a series of their own: those with the longest chains."""

_READ_ENTRIES = 10_000
_WORKERS = 10 * 60 * 1000  # milliseconds; a worker reports each minute
_ENDS = (RunState.SUCCEEDED, RunState.REVOKED, RunState.DEAD, "unreported")
_LEADS_FOR = 3  # lease lengths after which a leader that does not tick no longer counts


def read_samples(store: Store, clock: Clock) -> Samples:
    """Read everything; for the histogram its buckets (``lag``) and sums (``lag_ms``)."""
    client: Any = store.client
    keys, listing = store.keys, Listing(store)
    leader, scheduler = listing.leader()
    counts = listing.counts()
    with client.pipeline(transaction=False) as pipe:
        pipe.time()
        pipe.hvals(keys.paused)
        pipe.hgetall(keys.first_seen)
        pipe.hget(keys.meta, "epoch")
        pipe.hvals(keys.failing)
        pipe.hgetall(keys.deadlines)
        pipe.hgetall(keys.left_off)
        (seconds, micros), paused, names, epoch, failing, expected, removed = pipe.execute()
    server_ms = seconds * 1000 + micros // 1000
    entries = sorted(name.decode() for name in names)[:_READ_ENTRIES]
    with client.pipeline(transaction=False) as pipe:
        pipe.zcount(keys.leases, "-inf", server_ms)
        pipe.zcount(keys.workers, server_ms - _WORKERS, "+inf")
        pipe.zcard(keys.notices_due)
        pipe.zcard(keys.catchup_active)
        pipe.zcard(keys.catchup_waiting)
        for entry in entries:
            pipe.zcard(keys.chain(entry))
        overdue, workers, notices, active, waiting, *chains = pipe.execute()
    pauses = [one for text in paused if (one := read_json(text) or {}).get("paused")]
    longest = sorted(zip(entries, chains, strict=True), key=lambda one: -one[1])[:MOST_ENTRIES]
    single = {
        "leases": counts["leases"],
        "leases_overdue": overdue,
        "retries_waiting": counts["retries"],
        "outbox_length": counts["outbox"],
        "dead_letters": counts["dead"],
        "leader_terms": int(epoch) if epoch is not None and epoch.isdigit() else 0,
        "workers": workers,
        "notifications_waiting": notices,
        "entries_paused": sum(not one.get("held") for one in pauses),
        "entries_held": sum(bool(one.get("held")) for one in pauses),
        "runs_held": sum(one["held"] for one in pauses if isinstance(one.get("held"), int)),
        "catchup_runs_active": active,
        "catchup_lanes_waiting": waiting,
        "entries_failing": len(failing),
        **_scheduler(leader, scheduler, now=to_instant(clock.now())),
    }
    return {
        **{name: {(): value} for name, value in single.items() if value is not None},
        **_counters(History(store).ever()),
        "chain_length": {(entry,): length for entry, length in longest},
        **_freshness(
            DeadlineRecords(store),
            {name.decode() for name in expected},
            {name.decode() for name in names if name not in removed},
            server_ms,
        ),
    }


def _freshness(
    records: DeadlineRecords, expected: Collection[str], present: Collection[str], server_ms: int
) -> Samples:
    """Read which entries are overdue, and the age of the last success of each; when there are many, those
    with a deadline come first, then those with the oldest success."""
    overdue = Counter(dict.fromkeys(expected, 0))
    overdue.update(one.entry for one in records.overdue(limit=_READ_ENTRIES))
    ages = {
        name: max(0, server_ms - at) / 1000
        for name, at in records.last_successes(sorted(present)[:_READ_ENTRIES]).items()
    }
    oldest = sorted(ages, key=lambda name: (name not in expected, -ages[name]))[:MOST_ENTRIES]
    return {
        "overdue": {(name,): count for name, count in overdue.most_common(MOST_ENTRIES)},
        "last_success_age_seconds": {(name,): ages[name] for name in oldest},
    }


def _counters(ever: Mapping[str, int]) -> Samples:
    def under(prefix: str) -> dict[tuple[str, ...], float]:
        found = {name.removeprefix(prefix): count for name, count in ever.items() if name.startswith(prefix)}
        return {tuple(name.split(":")): count for name, count in found.items()}

    # Every series exists from the start: Prometheus sees no increase in a series that begins with 1.
    return {
        "slots_dispatched": {(trigger,): ever.get(trigger, 0) for trigger in Trigger},
        "slots_skipped": {(reason,): ever.get(f"skipped:{reason}", 0) for reason in SkipReason},
        "slots_missed": {(): ever.get("missed", 0)},
        "attempts_failed": {(): ever.get("failed", 0)},
        "runs_ended": {(state,): ever.get(f"ended:{state}", 0) for state in _ENDS},
        **{f"notifications_{word}": {(): ever.get(f"notices_{word}", 0)} for word in Settled},
        "lag": under("lag:"),
        "lag_ms": under("lag_ms:"),
    }


def _scheduler(
    leader: Mapping[str, str], scheduler: Mapping[str, str], *, now: int
) -> dict[str, float | None]:
    """Read the scheduler's own metrics; None for a time that was never recorded."""

    def number(name: str, record: Mapping[str, str] = scheduler) -> int | None:
        text = record.get(name, "")
        return int(text) if text.isdecimal() else None

    def age(name: str) -> float | None:
        at = number(name)
        return None if at is None else max(0, now - at) / 1000

    ticked, running = age("last_tick"), number("catchup_running") or 0
    lease = (number("ttl_ms", leader) or 0) / 1000
    total, dispatched, skipped = (
        number(f"catchup_{name}") or 0 for name in ("total", "dispatched", "skipped")
    )
    return {
        "watermark_age_seconds": age("watermark"),
        "last_tick_age_seconds": ticked,
        "undecided_seconds": age("undecided") or 0,
        "leader": int(bool(leader) and ticked is not None and ticked < _LEADS_FOR * lease),
        "catchup_running": running,
        "catchup_slots_left": max(0, total - dispatched - skipped) if running else 0,
    }
