"""Read the last runs that other schedulers have stored; `import_state.py` takes them over."""

from __future__ import annotations

import dbm
import json
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from celery.beat import PersistentScheduler
from celery.utils.time import maybe_make_aware
from redis import Redis

from celery_catchup.error_text import shown
from celery_catchup.operations.import_state import LastRun
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import connect
from celery_catchup.store.opening import broker_store_url
from celery_catchup.store.store import portions

_PREFIX = "redbeat:"

# -- Celery's own scheduler ----------------------------------------------------------------------


def celery_beat_runs(operator: Operator, path: str | None = None) -> dict[str, LastRun]:
    """Return when each entry of Celery's schedule file last ran.

    The file is unpickled, as beat itself does. Unpickling can execute code: read only a file that you trust.
    """
    where = path or str(operator.app.conf.beat_schedule_filename)
    entries = _read_file(where)
    return {
        str(name): LastRun(
            maybe_make_aware(entry.last_run_at, operator.app.timezone), entry.total_run_count or 0
        )
        for name, entry in entries.items()
        if entry.last_run_at is not None
    }


def _read_file(where: str) -> dict[str, Any]:
    try:
        with closing(PersistentScheduler.persistence.open(where, flag="r")) as shelf:
            return dict(shelf["entries"])
    except KeyError:
        raise RefusedError(
            f"{shown(where)} has no entries; expected a schedule file of Celery beat"
        ) from None
    except dbm.error as error:
        raise RefusedError(f"{shown(where)} cannot be read: {error}; {_advice(where)}") from None
    except Exception as error:  # what unpickling raises depends on what was pickled
        reason = f"{type(error).__name__}: {error}"
        raise RefusedError(f"{shown(where)} cannot be understood: {reason}") from error


def _advice(where: str) -> str:
    there = any(Path(where + suffix).exists() for suffix in ("", ".db", ".dat"))
    return "stop the beat that uses it" if there else "name the file that beat used with -s"


# -- django-celery-beat --------------------------------------------------------------------------


def django_celery_beat_runs(operator: Operator) -> dict[str, LastRun]:
    """Return when each enabled periodic task last ran, by its name."""
    operator.app.loader.import_default_modules()  # sets Django up, where it has not been
    try:
        models: Any = import_module("django_celery_beat.models")
    except Exception as error:  # not installed, or no Django project: each raises something else
        raise RefusedError(f"django-celery-beat cannot be used: {error}; run this in its project") from error
    rows = models.PeriodicTask.objects.filter(enabled=True, last_run_at__isnull=False)
    found = rows.values_list("name", "last_run_at", "total_run_count")
    # Without a zone (USE_TZ = False) it is UTC, as for django-celery-beat.
    return {
        name: LastRun(at if at.tzinfo else at.replace(tzinfo=UTC), count or 0)
        for name, at, count in found.iterator()
    }


# -- celery-redbeat ------------------------------------------------------------------------------


def redbeat_runs(operator: Operator, url: str | None = None) -> dict[str, LastRun]:
    """Return when each entry of redbeat's schedule last ran, by its name.

    Redbeat itself need not be installed. The default for ``url`` is redbeat's own setting, or the broker.
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
        return _read_keys(client, prefix)


def _read_keys(client: Redis, prefix: str) -> dict[str, LastRun]:
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
