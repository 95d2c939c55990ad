"""The benchmarks at a size that takes seconds, so that they cannot rot; no figure is judged here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
import redis

from benchmarks.__main__ import BENCHMARKS
from benchmarks.counting import CountingProxy, Traffic
from benchmarks.growth import growth
from benchmarks.measuring import Findings, Row, Sample, Table, ratio_bar
from benchmarks.page import BEGIN, END, PAGE, keep, kept, write
from benchmarks.plot import ratios
from benchmarks.scales import TINY
from benchmarks.stage import Stage, installed
from benchmarks.ticks import NAMES, PEERS, trial
from celery_catchup.testing.embedded_server import EmbeddedServer


@pytest.fixture
def stage(valkey: EmbeddedServer, redis_url: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(TINY, valkey, tmp_path)
    yield stage
    stage.close()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_finds_a_figure_for_every_cell_that_it_promises(stage: Stage, name: str) -> None:
    found = import_module(f"benchmarks.{name}").measure(stage)

    assert found.tables
    for table in found.tables:
        assert table.rows, table.title
        assert {len(row) for row in table.rows} == {len(table.headers)}, table.title
    assert all(bar.ok is not None or bar.figures for bar in found.bars)  # what is not judged says why


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "stock"])
def test_a_peer_starts_idles_and_sends_all_that_is_due(stage: Stage, peer: str) -> None:
    if not installed(PEERS[peer]):
        pytest.skip(f"{NAMES[peer]} is not installed: it is in the extra bench, not in test")

    found = trial(stage, peer, 20)

    assert found["sent"] == 20
    assert found["startup"] > 0


def test_the_proxy_counts_a_pipeline_as_one_round_trip(stage: Stage) -> None:
    with CountingProxy(stage.url) as proxy, redis.Redis.from_url(proxy.url) as client:
        client.ping()
        before = proxy.so_far()
        with client.pipeline(transaction=False) as pipe:
            pipe.ping().ping().ping()
            pipe.execute()
        three = proxy.so_far() - before
        client.ping()
        after = proxy.so_far() - before

    assert three.trips == 1
    assert after.trips == 2
    assert Traffic(0, 0).bytes < three.bytes < after.bytes


def test_growth_in_proportion_is_fine_and_a_tick_that_grows_is_not() -> None:
    sizes = (1_000, 2_000, 10_000)
    grown = {"startup": 10.0, "seconds": 10.0, "memory": 10.0, "idle": 2.0, "one": 1.0}
    results = {
        ("ours", size, name): Sample([1.0 if size == 1_000 else factor])
        for size in sizes
        for name, factor in grown.items()
    }

    verdicts = {bar.what: bar.ok for bar in growth(results, sizes).bars}

    assert verdicts.pop("growth of: idle tick, 1,000 → 10,000 entries") is False
    assert all(verdicts.values())


def test_only_what_is_between_the_markers_of_the_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold figures\n{END}\nafter\n")
    bars = [
        Row("quick", "1 ms", "≤ 2 ms", True),
        ratio_bar("ours against <theirs>", Sample([30]), Sample([10]), 4),
    ]
    found = Findings([Table("Ticks", ("who", "ms"), [["ours", "1"]])], bars)
    drawing = tmp_path / "drawing.svg"

    write({"Measured by a test.": found}, page, drawing)
    once = page.read_text()

    assert "old figures" not in once
    assert once.startswith("before\n")
    assert once.endswith(f"{END}\nafter\n")
    assert "| ours  | 1    |" in once
    assert "met" in once
    assert "Measured by a test." in once
    # Ratios are drawn, with what is wanted; other bars are not.
    assert ratios(bars) == {"ours against <theirs>": (3.0, 4.0)}
    assert "ours against <theirs>" in list(ElementTree.parse(drawing).getroot().itertext())


def test_a_run_of_one_benchmark_leaves_the_figures_of_the_others(tmp_path: Path) -> None:
    ticks, chains = (
        Findings([Table(title, ("who",), [["ours"]])], [Row(title, "1 ms", "≤ 2 ms", True)])
        for title in ("Ticks", "Chains")
    )
    keep("ticks", Findings(), TINY, tmp_path)
    keep("chains", chains, TINY, tmp_path)

    keep("ticks", ticks, TINY, tmp_path)

    parts = list(kept(["slots", "ticks", "chains"], tmp_path).values())
    assert [table.title for part in parts for table in part.tables] == ["Ticks", "Chains"]
    assert [bar for part in parts for bar in part.bars] == [*ticks.bars, *chains.bars]


def test_the_page_of_the_documentation_has_a_place_for_the_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert 0 < text.index(BEGIN) < text.index(END)
