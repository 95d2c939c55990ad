"""What tasks do inside a run, and brokers around it: groups, chords, messages delivered again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.acceptance.processes import until
from tests.acceptance.sites import Site


def play(site: Site, task: str, **settings: Any) -> None:
    """One missed slot of an entry, and the beat that catches it up."""
    site.declare(
        {"entry": {"schedule": "0 * * * *", "task": f"tests.projects.inside.{task}"}},
        catchup_entries={"entry": {"window": "6h", "overlap_policy": "all"}},
        imports=["celery_catchup.worker", "tests.projects.inside"],
        **settings,
    )
    site.set_clock("09:05:00")
    before = site.leader()
    site.until_a_tick_later()
    before.stop()
    site.set_clock("10:02:00")
    site.leader()


def test_groups_and_chords_inside_a_run_are_ordinary_tasks(site: Site) -> None:
    play(site, "outer", result_backend=site.url)
    site.worker()

    noted = site.until_noted(6)

    assert Counter(map(tuple, noted)) == {
        ("outer", True): 1,
        ("group", False): 2,
        ("chord", False): 2,
        ("after", False): 1,
    }
    until(lambda: site.states("entry") == ["succeeded"], what="the end of the run")


@pytest.mark.slow
def test_a_message_that_is_delivered_again_while_it_is_executed_is_not_executed_twice(site: Site) -> None:
    play(site, "slow", broker_transport_options={"visibility_timeout": 1}, catchup_run_lease_ttl="3s")
    for number in range(2):
        site.worker("-n", f"w{number}@%h")

    until(lambda: site.states("entry") == ["succeeded"], what="the end of the run", within=60)

    assert [line[0] for line in site.until_noted(2)] == ["begin", "end"]
