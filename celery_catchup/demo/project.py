"""The project that the demo runs: three entries that want different things of the slots they miss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "demo"
"""The app's name, which is what keeps its keys apart."""
JOURNAL = "runs.jsonl"
"""Where each task leaves a line when it starts: the demo's evidence beside the ledger."""
LEASE = 3
"""Seconds that a restarted beat waits for the lease of one that was killed."""


@dataclass(frozen=True)
class DemoEntry:
    """One line of the beat schedule, its policy, and the policy in words."""

    name: str
    seconds: int
    policy: Mapping[str, object]
    wants: str

    @property
    def every_ms(self) -> int:
        """The interval as instants are counted."""
        return self.seconds * 1000


ENTRIES = (
    DemoEntry(
        "collect-sales",
        2,
        {"window": "10m", "overlap_policy": "all", "misfire_threshold": "1s"},
        "every missed slot, in order",
    ),
    DemoEntry(
        "refresh-cache",
        3,
        {"window": "10m", "select": "latest", "misfire_threshold": "1s"},
        "only the latest missed slot",
    ),
    DemoEntry("send-ping", 3, {"select": False, "misfire_threshold": "1s"}, "no missed slot"),
)

_CONFIGURATION = '''\
"""The settings of the demo's project."""

from datetime import timedelta

broker_url = "{broker_url}"
imports = ["celery_catchup.worker"]
task_ignore_result = True

beat_schedule = {{
{schedule}
}}

catchup_entries = {{
{policies}
}}
catchup_lease_ttl = "{lease}s"
'''

_ENTRY = (
    '    "{name}": {{"task": "tasks.work", "schedule": timedelta(seconds={seconds}), "args": ["{name}"]}},'
)

_TASKS = f'''\
"""The tasks of the demo's project; each run leaves a line in {JOURNAL} when it starts."""

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
    schedule = "\n".join(_ENTRY.format(name=entry.name, seconds=entry.seconds) for entry in ENTRIES)
    policies = "\n".join(f"    {entry.name!r}: {dict(entry.policy)!r}," for entry in ENTRIES)
    policies = policies.replace("'", '"')
    text = _CONFIGURATION.format(broker_url=broker_url, schedule=schedule, policies=policies, lease=LEASE)
    (folder / "celeryconfig.py").write_text(text, encoding="utf-8")
    (folder / "tasks.py").write_text(_TASKS, encoding="utf-8")
    (folder / JOURNAL).touch()
