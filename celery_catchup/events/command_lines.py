"""Commands in logs and findings that can be pasted into a shell."""

from __future__ import annotations

import os
import shlex
import sys

from celery import current_app

_ANY_APP = "YOUR_APP"
"""Where the name of the app is not known."""


def command_line(*words: str) -> str:
    """A ``celery catchup`` command with the app that this process has."""
    return shlex.join(["celery", "-A", _app_name(), "catchup", *words])


def _app_name() -> str:
    """What this process was given as ``-A``, or the module that made its app."""
    for place, word in enumerate(sys.argv):
        if word in ("-A", "--app"):
            return next(iter(sys.argv[place + 1 : place + 2]), _ANY_APP)
        if word.startswith(("-A", "--app=")):
            return word.removeprefix("--app=").removeprefix("-A")
    main = str(getattr(current_app, "main", ""))
    return os.environ.get("CELERY_APP") or (main if main in sys.modules and main != "__main__" else _ANY_APP)
