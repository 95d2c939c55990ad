"""Lets a test see what every thread and greenlet of a worker does: SIGUSR2 appends their stacks to a file."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from typing import Any

from celery import signals

from tests.projects.declared import app

__all__ = ["app"]


def _write(*_: Any) -> None:
    """With gevent: the stacks of greenlets are not those of threads."""
    from gevent.util import format_run_info

    with open(os.environ["CATCHUP_TEST_STACKS"], "a", encoding="utf-8") as file:
        file.write("\n".join(format_run_info()) + "\n")


def _listen(**_: Any) -> None:
    if "gevent" in sys.modules:
        signal.signal(signal.SIGUSR2, _write)
    else:
        # Written by the handler itself, whatever the interpreter waits for.
        faulthandler.register(signal.SIGUSR2, file=_file, all_threads=True)


if "CATCHUP_TEST_STACKS" in os.environ:
    _file = open(os.environ["CATCHUP_TEST_STACKS"], "a", encoding="utf-8")  # noqa: SIM115 - kept for good
    signals.worker_init.connect(_listen, weak=False)
    signals.worker_process_init.connect(_listen, weak=False)
