"""The project of the chaos tests: a task that minds its lease and leaves lines in a file.

The lines are what the oracle judges by. They carry the session of the process, because it is
sessions that are killed and frozen, and the monotonic time, which all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from celery_catchup import current_run
from celery_catchup.errors import LeaseLostError
from tests.projects.declared import app


def seconds(slot: str) -> float:
    """How long the run of a slot takes; the same whenever it is asked."""
    return 0.4 if int(slot[17:19]) % 5 == 0 else 0.02


@app.task(bind=True)
def strike(self: Any) -> None:
    """Begin, take a moment, and have the effect only while the run is still ours."""
    run = current_run()
    slot = self.request.scheduled_time
    entry, token = (run.entry, f"{run.run_id}/{run.attempt}") if run is not None else ("", "")
    _note("begin", entry, slot, token)
    time.sleep(seconds(slot))
    try:
        if run is not None:
            run.check()
    except LeaseLostError:
        _note("lost", entry, slot, token)
        raise
    _note("end", entry, slot, token)


def _note(what: str, entry: str, slot: str, token: str) -> None:
    line = json.dumps([what, entry, slot, token, os.getpid(), os.getsid(0), time.monotonic()])
    descriptor = os.open(os.environ["CATCHUP_TEST_DIARY"], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
