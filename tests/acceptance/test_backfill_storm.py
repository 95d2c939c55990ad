"""A backfill under fire: every slot runs once, in order, whoever is killed; cancelled, it sends no more."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from celery_catchup.model import to_instant, to_rfc3339
from celery_catchup.store import Backfill, Backfills, Store, connect
from tests.acceptance.processes import Process, until
from tests.acceptance.sites import NAMESPACE, Site
from tests.integration.beats import ByTester
from tests.integration.ledgers import new_backfill
from tests.results import Recorder

MINUTE = 60_000


@pytest.fixture
def backfills(site: Site) -> Iterator[Backfills]:
    client = connect(site.url)
    yield ByTester(Backfills(Store(client, NAMESPACE)))
    client.close()


def begin(site: Site, backfills: Backfills, slots: int) -> tuple[Process, Backfill]:
    """A leading beat, and a backfill of so many minutes up to an hour ago."""
    site.declare(
        {"storm": "* * * * *"},
        catchup_entries={"storm": {"window": "1h", "overlap_policy": "all"}},
        imports=["celery_catchup.worker"],
        catchup_lease_ttl="3s",
        catchup_run_lease_ttl="3s",
        broker_transport_options={"visibility_timeout": 3},
    )
    beat = site.leader()
    now = to_instant(site.now())
    end = now - now % MINUTE - 60 * MINUTE
    asked = backfills.create(
        new_backfill(
            {
                "entry": "storm",
                "start": end - (slots - 1) * MINUTE,
                "end": end,
                "reprocess": "none",
                "newest_first": False,
                "max_active": 1,
                "created": now,
                "total": slots,
            }
        )
    )
    return beat, asked


def storm(site: Site, backfills: Backfills, *, slots: int, kills: int) -> dict[str, int]:
    """Kill a beat and a worker so many times while the backfill runs; what there was to count."""
    rng, killed = random.Random(7), 0
    beat, asked = begin(site, backfills, slots)
    names = iter(range(1000))
    worker = site.worker("-n", f"w{next(names)}@%h")
    for _ in range(kills):
        time.sleep(rng.uniform(1, 3))
        beat.kill()
        killed += 1
        beat = site.beat()
        time.sleep(rng.uniform(0.5, 2))
        worker.end()
        killed += 1
        worker = site.worker("-n", f"w{next(names)}@%h")
    until(
        lambda: (backfills.get(asked.id) or asked).state == "completed",
        what="the end of the backfill",
        within=360 + slots / 10 + kills * 15,
        step=0.5,
    )

    wanted = [to_rfc3339(asked.start + n * MINUTE) for n in range(slots)]
    begun = [line[1] for line in site.until_noted(1) if line[0] == "begin" and line[1] in set(wanted)]
    assert list(dict.fromkeys(begun)) == wanted, "every slot, in order"
    runs = {to_rfc3339(run["slot"]): run["state"] for run in site.ledger("storm")}
    assert {runs[slot] for slot in wanted} == {"succeeded"}
    return {"kills": killed, "slots": len(set(begun)), "out_of_order": _out_of_order(begun, wanted)}


def _out_of_order(begun: list[str], wanted: list[str]) -> int:
    return sum(one != other for one, other in zip(dict.fromkeys(begun), wanted, strict=True))


@pytest.mark.slow
@pytest.mark.timeout(150)  # a run a second would take longer
def test_every_slot_runs_once_and_in_order_while_beats_and_workers_are_killed(
    site: Site, backfills: Backfills
) -> None:
    storm(site, backfills, slots=200, kills=1)


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_ten_thousand_slots_run_once_and_in_order(
    site: Site, backfills: Backfills, record_result: Recorder
) -> None:
    figures = storm(site, backfills, slots=10_000, kills=4)

    record_result("a backfill, beats and workers killed", **figures)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_cancelled_nothing_more_is_sent(site: Site, backfills: Backfills) -> None:
    _, asked = begin(site, backfills, 2000)
    site.worker()
    site.until_noted(20)

    assert backfills.set_state(asked.id, "cancelled") == "cancelled"

    until(lambda: "running" not in site.states("storm"), what="the last run")
    noted = len(site.until_noted(1))
    site.until_a_tick_later()
    assert site.redis.llen("celery") == 0
    assert len(site.until_noted(1)) - noted <= 2
