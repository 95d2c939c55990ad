"""Read the keys of celery-redbeat; redbeat itself need not be installed."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from redis import Redis

from celery_catchup.operations.import_state import LastRun
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import connect
from celery_catchup.store.batches import portions
from celery_catchup.store.opening import broker_store_url

_PREFIX = "redbeat:"


def redbeat_runs(operator: Operator, url: str | None = None) -> dict[str, LastRun]:
    """Return when each entry of redbeat's schedule last ran, by its name.

    The default for ``url`` is redbeat's own setting, or the broker.
    """
    conf = operator.app.conf
    where = url or conf.get("redbeat_redis_url") or broker_store_url(operator.app)
    if where is None:
        raise RefusedError("redbeat_redis_url is not set, and the broker is not Redis; give --url")
    prefix = conf.get("redbeat_key_prefix") or _PREFIX
    try:
        client = connect(where, sentinel_options=conf.get("redbeat_redis_options") or {})
    except ValueError as error:
        raise RefusedError(f"cannot connect to redbeat's server: {error}") from None
    with closing(client):
        return _read(client, prefix)


def _read(client: Redis, prefix: str) -> dict[str, LastRun]:
    keys: Any = client.zrange(f"{prefix}:schedule", 0, -1)
    found: dict[str, LastRun] = {}
    for some in portions(keys):
        with client.pipeline(transaction=False) as pipe:
            for key in some:
                pipe.hget(key, "meta")
            runs = map(_last_run, pipe.execute())
        names = (key.decode().removeprefix(prefix) for key in some)
        found |= {name: run for name, run in zip(names, runs, strict=True) if run is not None}
    return found


def _last_run(meta: bytes | None) -> LastRun | None:
    """Decode a datetime: a mapping of its fields, with a zone's name or offset in seconds."""
    try:
        stored = json.loads(meta or b"{}")
        fields = dict(stored.get("last_run_at") or {})
        if fields.pop("__type__", None) != "datetime":
            return None
        zone = fields.pop("timezone", "UTC")
        tz = ZoneInfo(zone) if isinstance(zone, str) else timezone(timedelta(seconds=zone))
        return LastRun(datetime(**fields, tzinfo=tz), int(stored.get("total_run_count") or 0))
    except (AttributeError, TypeError, ValueError, KeyError):
        return None
