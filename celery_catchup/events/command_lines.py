"""Build commands for log lines, findings and hints, ready to paste into a shell."""

from __future__ import annotations

import os
import shlex
import sys

from celery import current_app

from celery_catchup.model import Instant, to_rfc3339

_ANY_APP = "YOUR_APP"
"""Stands for the app if its name is unknown."""


def command_line(*words: str) -> str:
    """Return a ``celery catchup`` command for the app of this process."""
    return celery_line("catchup", *words)


def backfill_line(entry: str, first: Instant, last: Instant, *words: str) -> str:
    """Return the command that runs the slots of an entry from ``first`` to ``last``."""
    return command_line("backfill", entry, "--start", to_rfc3339(first), "--end", to_rfc3339(last), *words)


def celery_line(*words: str) -> str:
    """Return a ``celery`` command for the app of this process."""
    return shlex.join(["celery", "-A", _app_name(), *words])


def _app_name() -> str:
    """Return the value of ``-A``, ``CELERY_APP``, or the module that created the app."""
    for place, word in enumerate(sys.argv):
        if word in ("-A", "--app"):
            return next(iter(sys.argv[place + 1 : place + 2]), _ANY_APP)
        if word.startswith(("-A", "--app=")):
            return word.removeprefix("--app=").removeprefix("-A")
    main = str(getattr(current_app, "main", ""))
    return os.environ.get("CELERY_APP") or (main if main in sys.modules and main != "__main__" else _ANY_APP)
