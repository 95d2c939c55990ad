"""The project of the storm: a task that succeeds, fails, retries or is slow, by its slot."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tests.projects.declared import app


def kind(slot: str) -> str:
    """What the run of a slot does; the same whenever it is asked."""
    minute = int(slot[14:16])
    return {3: "fails", 5: "retries", 7: "slow", 9: "revoked"}.get(minute % 10, "works")


@app.task(bind=True, max_retries=3)
def rage(self: Any) -> None:
    slot = self.request.scheduled_time
    _note("begin", slot)
    match kind(slot):
        case "fails":
            _note("end", slot)
            raise ValueError("as planned")
        case "retries" if self.request.retries == 0:
            _note("end", slot)
            raise self.retry(countdown=0)
        case "slow":
            time.sleep(0.05)
    _note("end", slot)


def _note(what: str, slot: str) -> None:
    line = json.dumps([what, slot, os.getpid(), time.monotonic()])
    descriptor = os.open(os.environ["CATCHUP_TEST_DIARY"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
