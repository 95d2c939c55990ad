"""The server that keeps the state: reachable, durable, of one mind about the time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redis.exceptions import RedisError

from celery_catchup.model import to_instant
from celery_catchup.operations import Operator
from celery_catchup.operations.doctor.findings import Finding, failure, ok, warning
from celery_catchup.operations.status import server_time

_OLDEST = (6, 2)
_SKEW_NOTICED = 1000  # milliseconds by which two clocks may differ before it matters to anybody
_SKEW_REFUSED = 60_000  # a minute: live slots would count as missed, or missed ones as live


def store(operator: Operator) -> Iterator[Finding]:
    """Whether what is decided survives."""
    info: Any = operator.store.client.info()
    yield _version(info)
    yield _persistence(operator, info)
    yield _eviction(info)


def clocks(operator: Operator) -> Iterator[Finding]:
    """Whether this host and the server agree about the time."""
    before = operator.clock.now()
    server = server_time(operator)
    after = operator.clock.now()
    # The server read its clock at some moment in between: only what is outside is skew.
    early, late = to_instant(before) - server, server - to_instant(after)
    skew = max(early, late, 0)
    told = f"this host and the server differ by {skew / 1000:.1f} s"
    fix = "let both keep time with NTP (chrony, systemd-timesyncd)"
    if skew > _SKEW_REFUSED:
        yield failure("clocks", told, fix)
    elif skew > _SKEW_NOTICED:
        yield warning("clocks", told, fix)
    else:
        yield ok("clocks", "this host and the server agree to the second")


def _version(info: dict[str, Any]) -> Finding:
    name, text = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", "")
    text = text or str(info.get("redis_version", "0"))
    number = tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
    if name == "Redis" and number < _OLDEST:
        return failure("server", f"{name} {text} is too old", "use Redis 6.2 or newer, or Valkey")
    return ok("server", f"{name} {text}")


def _persistence(operator: Operator, info: dict[str, Any]) -> Finding:
    fix = "set appendonly yes (appendfsync everysec is enough)"
    if info.get("aof_enabled"):
        return ok("persistence", "the server keeps an append-only file")
    if _takes_snapshots(operator):
        return warning(
            "persistence", "the server only takes snapshots: a crash loses minutes of decisions", fix
        )
    return warning("persistence", "the server keeps nothing: after a restart it has forgotten every run", fix)


def _takes_snapshots(operator: Operator) -> bool:
    try:
        answer: Any = operator.store.client.config_get("save")
    except RedisError:  # many hosted servers, and a good ACL, do not allow the question
        return True
    return bool(answer.get("save"))


def _eviction(info: dict[str, Any]) -> Finding:
    policy, limit = str(info.get("maxmemory_policy", "noeviction")), int(info.get("maxmemory", 0))
    fix = "set maxmemory-policy noeviction"
    if policy == "noeviction":
        return ok("eviction", "the server evicts nothing")
    if not limit:
        return warning("eviction", f"maxmemory-policy is {policy}, harmless only while maxmemory is 0", fix)
    if policy.startswith("allkeys"):
        return failure("eviction", f"maxmemory-policy is {policy}: watermarks and runs may be evicted", fix)
    return warning("eviction", f"maxmemory-policy is {policy}: other users' keys may be evicted", fix)
