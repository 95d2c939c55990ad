"""Check the server that keeps the state: version, durability, eviction, clock."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from celery_catchup.model import to_instant
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Results, failure, ok, warning
from celery_catchup.operations.status import server_time

_OLDEST = (6, 2)
_SKEW_NOTICED = 1000  # milliseconds
_SKEW_REFUSED = 60_000  # a minute: live slots would count as missed, or missed ones as live


def server_version(operator: Operator) -> Results:
    """Check that the server is new enough."""
    info = _info(operator)
    if "valkey_version" in info:
        yield ok(f"Valkey {info['valkey_version']}")
        return
    text = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in text.split(".")[:2] if part.isdecimal()) < _OLDEST:
        yield failure(f"Redis {text} is too old", "use Redis 6.2 or newer, or Valkey")
    else:
        yield ok(f"Redis {text}")


def persistence(operator: Operator) -> Results:
    """Check that decisions survive a restart of the server."""
    fix, info = "set appendonly yes (appendfsync everysec is enough)", _info(operator)
    failed = [name for name in ("aof_last_write_status", "rdb_last_bgsave_status") if info.get(name) == "err"]
    if failed:
        detail = f"the server cannot save its data ({failed[0]} is err) and may refuse to write"
        yield failure(detail, "free disk space on the server, or correct the rights of its directory")
    elif info.get("aof_enabled"):
        yield ok("the server keeps an append-only file")
    elif _takes_snapshots(operator):
        yield warning("the server only takes snapshots: a crash loses minutes of decisions", fix)
    else:
        yield warning("the server keeps nothing: after a restart it has forgotten every run", fix)


def eviction(operator: Operator) -> Results:
    """Check that the server does not evict keys."""
    info, fix = _info(operator), "set maxmemory-policy noeviction"
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return
    if not int(info.get("maxmemory", 0)):
        yield warning(f"maxmemory-policy is {policy}, harmless only while maxmemory is 0", fix)
    elif policy.startswith("allkeys"):
        yield failure(f"maxmemory-policy is {policy}: watermarks and runs may be evicted", fix)
    else:
        yield warning(f"maxmemory-policy is {policy}: other users' keys may be evicted", fix)


def clocks(operator: Operator) -> Results:
    """Check that the clocks of this host and of the server agree."""
    before = operator.clock.now()
    server = server_time(operator)
    after = operator.clock.now()
    # The server read its clock at some moment in between: only a time outside is skew.
    skew = max(to_instant(before) - server, server - to_instant(after), 0)
    if skew > _SKEW_NOTICED:
        report = failure if skew > _SKEW_REFUSED else warning
        detail = f"this host and the server differ by {skew / 1000:.1f} s"
        yield report(detail, "synchronise both with NTP (chrony, systemd-timesyncd)")


def _info(operator: Operator) -> dict[str, Any]:
    return dict(operator.store.client.info())


def _takes_snapshots(operator: Operator) -> bool:
    try:
        answer: Any = operator.store.client.config_get("save")
    except RedisError:  # many hosted servers, and a good ACL, do not allow the question
        return True
    return bool(answer.get("save"))
