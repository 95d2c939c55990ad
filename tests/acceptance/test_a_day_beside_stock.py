"""Celery's beat and ours, in two processes, through the same simulated hours: both send the same.

Entries have no policy. Schedules, options, zones, clocks, settings and run-time changes are random, and
follow from the seed.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import celery
import pytest

from celery_catchup.dispatch.header_names import IS_CATCHUP, SCHEDULED_TIME, TRIGGER_TYPE
from tests.acceptance.processes import ROOT, Started
from tests.results import Recorder

TOLERANCE = timedelta(milliseconds=500)
ONE = timedelta(milliseconds=1)
OF_ITS_OWN = (SCHEDULED_TIME, IS_CATCHUP, TRIGGER_TYPE, "id", "root_id", "origin")
SCHEDULERS = {"stock": "Stock", "ours": "Ours"}

Sends = dict[str, list[dict[str, Any]]]
Pair = Callable[..., dict[str, Sends]]

pytestmark = pytest.mark.skipif(
    tuple(int(part) for part in celery.__version__.split(".")[:2]) < (5, 7),
    reason="before Celery 5.7 an entry asked too early keeps the others of stock beat waiting",
)


@pytest.fixture
def both(tmp_path: Path, redis_url: str) -> Iterator[Pair]:
    """Runs a case in both processes at once; what each has sent, by entry."""
    processes: list[Started] = []

    def run(seed: int, *, entries: int, hours: float, within: float) -> dict[str, Sends]:
        for database, (who, scheduler) in enumerate(SCHEDULERS.items()):
            folder = tmp_path / f"{who}-{seed}"
            folder.mkdir()
            url = f"{redis_url.rpartition('/')[0]}/{database}"
            case = {
                "seed": seed,
                "entries": entries,
                "hours": hours,
                "url": url,
                "file": str(folder / "sent"),
            }
            project = "tests.projects.beside_stock"
            words = ["-A", project, "beat", "-S", f"{project}:{scheduler}", "--pidfile=", "-l", "WARNING"]
            environ = {
                "CATCHUP_TEST_CASE": json.dumps(case),
                "PYTHONPATH": str(ROOT),
                "TZ": ("Asia/Tokyo", "America/New_York", "UTC")[seed % 3],
            }
            processes.append(
                Started(
                    [sys.executable, "-m", "celery", *words], log=folder / "log", cwd=folder, environ=environ
                )
            )
        pair = processes[-2:]
        codes = [process.wait(within) for process in pair]
        assert codes == [0, 0], [process.text()[-2000:] for process in pair]
        assert [one for process in pair for one in ("Traceback", "ERROR") if one in process.text()] == []
        return {who: sends(tmp_path / f"{who}-{seed}" / "sent") for who in SCHEDULERS}

    yield run
    for process in processes:
        process.end()


def sends(file: Path) -> Sends:
    """What was sent for each entry, in order; ids and our own headers apart."""
    found = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        message = json.loads(line)
        headers, properties = message["headers"], message["properties"]
        at = message["at"] = datetime.fromisoformat(message["at"])
        for name in OF_ITS_OWN:
            headers.pop(name, None)
        for name in ("correlation_id", "reply_to", "delivery_tag"):
            properties.pop(name, None)
        for name in ("eta", "expires"):
            if headers.get(name):
                headers[name] = round((datetime.fromisoformat(headers[name]) - at) / timedelta(seconds=1))
        found[message["body"][0][0]].append(message)
    return found


def differences(theirs: Sends, mine: Sends) -> list[str]:
    """One line for each entry that was not sent alike."""
    found = []
    for name in sorted(theirs.keys() | mine.keys()):
        one, other = theirs.get(name, []), mine.get(name, [])
        if len(one) != len(other):
            found.append(f"{name}: {len(one)} messages of stock, {len(other)} of ours")
        for number, (a, b) in enumerate(zip(one, other, strict=False)):
            # Celery counts in floats and we in milliseconds; an interval adds up what is lost.
            if abs(a["at"] - b["at"]) > TOLERANCE + number * ONE:
                found.append(f"{name}: message {number} at {a['at']} of stock, at {b['at']} of ours")
                break
            if {**a, "at": None} != {**b, "at": None}:
                found.append(f"{name}: message {number} is {a} of stock, {b} of ours")
                break
    return found


def count(sent: Sends) -> int:
    return sum(map(len, sent.values()))


@pytest.mark.parametrize(
    "seed", [3, 20, 23], ids=["clock of its own", "spring, with a file", "autumn, in memory"]
)
def test_hours_of_random_entries_are_sent_as_celerys_beat_sends_them(both: Pair, seed: int) -> None:
    sent = both(seed, entries=60, hours=3, within=60)

    assert differences(sent["stock"], sent["ours"]) == []
    assert count(sent["stock"]) > 80


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10, 32))
def test_a_day_of_200_random_entries_is_sent_as_celerys_beat_sends_it(
    both: Pair, seed: int, record_result: Recorder
) -> None:
    sent = both(seed, entries=200, hours=24, within=1500)

    found = differences(sent["stock"], sent["ours"])
    record_result(
        "a day beside Celery's beat", entries=200, messages=count(sent["stock"]), different=len(found)
    )
    assert found == []
    assert count(sent["stock"]) > 2000
