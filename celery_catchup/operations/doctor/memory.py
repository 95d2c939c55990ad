"""Forecast the memory that our keys need on the server."""

from __future__ import annotations

from typing import Any

from redis.exceptions import NoPermissionError

from celery_catchup.config.durations import format_duration
from celery_catchup.model import Trigger
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Results, ok, warning
from celery_catchup.store.memory_usage import Footprint, measure

_DAY = 24 * 3600 * 1000
_DAYS = 7  # from which the growth is read
_NEARLY = 0.8  # of the server's limit


def memory(operator: Operator) -> Results:
    """Check that the kept runs will fit into the server."""
    try:
        found = measure(operator.store, tuple(operator.schedule))
    except NoPermissionError:
        yield ok("not measured: the user of this connection has no right to MEMORY USAGE")
        return
    settings, per_day = operator.configuration.settings, _runs_per_day(operator)
    kept = min(per_day * settings.ledger_ttl.total_seconds() / 86400, settings.max_ledger_runs)
    forecast = found.other + round(found.per_run * max(kept, found.runs))
    detail = _describe(found, per_day, forecast, format_duration(settings.ledger_ttl))
    info: Any = operator.store.client.info("memory")
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    ahead = used - found.total + forecast
    if limit and ahead > limit * _NEARLY:
        yield warning(
            f"{detail}; the server will then use {_size(ahead)} of {_size(limit)} (maxmemory)",
            "raise maxmemory, or lower catchup_ledger_ttl or catchup_max_ledger_runs",
        )
    else:
        yield ok(detail)


def _describe(found: Footprint, per_day: float, forecast: int, ttl: str) -> str:
    now = f"{_size(found.total)} in {found.runs} runs"
    if not found.runs:
        return now
    growth = f"{per_day:.0f} runs ({_size(per_day * found.per_run)}) a day"
    each = f"{found.per_run:.0f} bytes each"
    return f"{now}, {each}; growing by {growth}; {_size(forecast)} when runs are forgotten after {ttl}"


def _runs_per_day(operator: Operator) -> float:
    """Average over the last week, or since the oldest run if that is younger."""
    now = operator.now()
    oldest: Any = operator.store.client.zrange(operator.store.keys.runs, 0, 0, withscores=True)
    age = (now - oldest[0][1]) / _DAY if oldest else 0.0
    days = max(1.0, min(_DAYS, age))
    tally = operator.history.counts(since=now - round(days * _DAY))
    return sum(tally.dispatched(trigger) for trigger in Trigger) / days


def _size(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"
