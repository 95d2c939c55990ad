"""Read the last runs and the entries that other schedulers have stored; `import_state.py` takes them over."""

from __future__ import annotations

import dbm
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from celery.beat import PersistentScheduler
from celery.utils.time import maybe_make_aware
from redis import Redis

from celery_catchup.error_text import shown
from celery_catchup.operations.import_state import Definition, LastRun
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError
from celery_catchup.store import connect
from celery_catchup.store.opening import broker_store_url
from celery_catchup.store.store import portions

_PREFIX = "redbeat:"
_CRON_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_ROW_OPTIONS = ("queue", "exchange", "routing_key", "priority")

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


def django_celery_beat_entries(operator: Operator) -> dict[str, Definition]:
    """Return the rows of django-celery-beat as entries to store, by name."""
    runs = django_celery_beat_runs(operator)
    models: Any = import_module("django_celery_beat.models")
    rows = models.PeriodicTask.objects.select_related("interval", "crontab", "solar", "clocked")
    return {row.name: _definition(row.name, partial(_row_fields, row), runs.get(row.name)) for row in rows}


def _row_fields(row: Any) -> dict[str, object]:
    options = {name: getattr(row, name) for name in _ROW_OPTIONS if getattr(row, name) is not None}
    if row.expire_seconds:
        options["expires"] = row.expire_seconds
    if headers := json.loads(row.headers or "{}"):
        options["headers"] = headers
    dates = {"start_date": row.start_time, "end_date": row.expires}
    policy = {name: _in_utc(at) for name, at in dates.items() if at is not None}
    return {
        "task": row.task,
        "schedule": _row_schedule(row),
        "args": json.loads(row.args or "[]"),
        "kwargs": json.loads(row.kwargs or "{}"),
        "options": options,
        "enabled": row.enabled,
        "description": row.description or "",
        **({"catchup": {"select": False, **policy}} if policy else {}),
    }


def _row_schedule(row: Any) -> object:
    if row.clocked is not None:
        return {"at": _in_utc(row.clocked.clocked_time)}
    if row.one_off:
        raise ValueError("it runs once, at the next slot of a schedule; store it with {'at': …}")
    if row.interval is not None:
        return {"every": row.interval.schedule.run_every}
    if row.crontab is not None:
        return {"cron": _cron_string(vars(row.crontab)), "timezone": str(row.crontab.timezone)}
    raise ValueError("solar schedules cannot be stored; declare it in beat_schedule")


def _in_utc(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _cron_string(fields: Mapping[str, object]) -> str:
    """Return Celery's crontab fields as a cron string; `ValueError` where it would mean something else."""
    words = ["".join(str(fields.get(name, "*")).split()) for name in _CRON_FIELDS]
    if not words[2].startswith("*") and not words[4].startswith("*"):
        raise ValueError(
            "its day_of_month and day_of_week are both set: a crontab() needs both to match, a cron string "
            "either; declare it in beat_schedule"
        )
    return " ".join(words)


def _definition(name: str, fields: Callable[[], dict[str, object]], run: LastRun | None) -> Definition:
    try:
        return Definition({**fields(), "name": name}, run)
    except KeyError as error:
        return Definition(None, run, f"not declared here, and its definition has no {error}")
    except (AttributeError, TypeError, ValueError) as error:
        return Definition(None, run, str(error))


# -- celery-redbeat ------------------------------------------------------------------------------


def redbeat_entries(operator: Operator, url: str | None = None) -> dict[str, Definition]:
    """Return the entries of redbeat's schedule as entries to store, by name.

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


def _read_keys(client: Redis, prefix: str) -> dict[str, Definition]:
    keys: Any = client.zrange(f"{prefix}:schedule", 0, -1)
    found: dict[str, Definition] = {}
    for some in portions(keys):
        with client.pipeline(transaction=False) as pipe:
            for key in some:
                pipe.hmget(key, "definition", "meta")
            answers = pipe.execute()
        for key, (definition, meta) in zip(some, answers, strict=True):
            name = key.decode().removeprefix(prefix)
            found[name] = _definition(name, partial(_redbeat_fields, definition), _last_run(meta))
    return found


def _redbeat_fields(definition: bytes | None) -> dict[str, object]:
    found = json.loads(definition or b"{}")
    schedule = found["schedule"]
    match schedule.get("__type__"):
        case "interval":
            form: object = {"every": timedelta(seconds=schedule["every"])}
        case "crontab":
            form = _cron_string(schedule)
        case other:
            raise ValueError(f"expected an interval or a crontab, got {shown(other)}; write a cron string")
    return {
        "task": found["task"],
        "schedule": form,
        "args": found.get("args") or [],
        "kwargs": found.get("kwargs") or {},
        "options": found.get("options") or {},
        "enabled": found.get("enabled", True),
    }


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
