"""Read the schedule file of Celery's own scheduler."""

from __future__ import annotations

import dbm
from contextlib import closing
from pathlib import Path
from typing import Any

from celery.beat import PersistentScheduler
from celery.utils.time import maybe_make_aware

from celery_catchup.error_text import shown
from celery_catchup.operations.import_state import LastRun
from celery_catchup.operations.operator import Operator
from celery_catchup.operations.refusals import RefusedError


def celery_beat_runs(operator: Operator, path: str | None = None) -> dict[str, LastRun]:
    """Return when each entry of Celery's schedule file last ran.

    The file is unpickled, as beat itself does. Unpickling can execute code: read only a file that you trust.
    """
    where = path or str(operator.app.conf.beat_schedule_filename)
    entries = _read(where)
    return {
        str(name): LastRun(
            maybe_make_aware(entry.last_run_at, operator.app.timezone), entry.total_run_count or 0
        )
        for name, entry in entries.items()
        if entry.last_run_at is not None
    }


def _read(where: str) -> dict[str, Any]:
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
