"""Write the demo's project: three entries with different policies for missed slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pprint import pformat

NAMESPACE = "demo"
"""The app's name, and so the namespace of its keys."""
JOURNAL = "runs.jsonl"
"""The file in which each task writes a line when it starts: evidence beside the ledger."""
LEASE = 3
"""Seconds that a restarted beat waits for the lease of one that was killed."""


@dataclass(frozen=True)
class DemoEntry:
    """One entry of the beat schedule, its policy, and the policy in words."""

    name: str
    seconds: int
    wants: str
    policy: Mapping[str, object]

    @property
    def every_ms(self) -> int:
        """Return the interval in milliseconds."""
        return self.seconds * 1000


ENTRIES = (
    DemoEntry("collect-sales", 2, "every missed slot, in order", {"window": "10m", "overlap_policy": "all"}),
    DemoEntry("refresh-cache", 3, "only the latest missed slot", {"window": "10m", "select": "latest"}),
    DemoEntry("send-ping", 3, "no missed slot", {"select": False}),
)

_TASKS = f'''\
"""The tasks of the demo's project; each run writes a line to {JOURNAL} when it starts."""

import json
import time

from celery import Celery

from celery_catchup import current_run

app = Celery("{NAMESPACE}", config_source="celeryconfig")


@app.task
def work(entry):
    run = current_run()  # None when the scheduler does not say which slot it is
    line = {{
        "entry": entry,
        "started": int(time.time() * 1000),
        "run_id": run and run.run_id,
        "slot": run and int(run.scheduled_time.timestamp() * 1000),
        "is_catchup": run and run.is_catchup,
    }}
    with open("{JOURNAL}", "a", encoding="utf-8") as journal:
        journal.write(json.dumps(line) + "\\n")
    time.sleep(0.1)
'''


def write_project(folder: Path, *, broker_url: str) -> None:
    """Write ``celeryconfig.py``, ``tasks.py`` and an empty journal."""
    settings = {
        "broker_url": broker_url,
        "imports": ["celery_catchup.worker"],
        "task_ignore_result": True,
        "beat_schedule": {
            one.name: {"task": "tasks.work", "schedule": one.seconds, "args": [one.name]} for one in ENTRIES
        },
        "catchup_entries": {one.name: {**one.policy, "misfire_threshold": "1s"} for one in ENTRIES},
        "catchup_lease_ttl": f"{LEASE}s",
    }
    lines = [f"{name} = {pformat(value, sort_dicts=False)}\n" for name, value in settings.items()]
    (folder / "celeryconfig.py").write_text("".join(lines), encoding="utf-8")
    (folder / "tasks.py").write_text(_TASKS, encoding="utf-8")
    (folder / JOURNAL).touch()
