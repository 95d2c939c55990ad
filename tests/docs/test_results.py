"""The figures on the page about testing are those that the tests recorded."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "explanation" / "how-we-test.md"
results: Any = runpy.run_path(str(DOCS / "results.py"))


def result(**changed: Any) -> dict[str, Any]:
    return {
        "name": "beats killed",
        "figures": {"kills": 1300, "lost": 0},
        "test": "tests/chaos/test_storm.py::test_killed[redis]",
        "outcome": "passed",
        "seconds": 12.5,
        "date": "2026-02-07",
        "machine": "2 cores",
        "versions": {"celery": "5.7.0"},
    } | changed


def test_the_table_on_the_page_is_what_was_recorded() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert text == results["page"](text, results["newest"]()), "run: python docs/results.py"


def test_only_the_newest_result_of_a_name_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    file.write_text("".join(json.dumps(result(seconds=seconds)) + "\n" for seconds in (1, 2)))
    results["newest"].__globals__["RESULTS"] = file
    try:
        assert [kept["seconds"] for kept in results["newest"]().values()] == [2]
    finally:
        results["newest"].__globals__["RESULTS"] = DOCS / "results.jsonl"


def test_a_row_tells_figures_test_and_place() -> None:
    assert results["section"]({"beats killed": result()}).splitlines()[2:] == [
        "| beats killed | kills 1,300, lost 0 | `test_killed` | 12.5 | 1 |",
        "",
        "Where and when:",
        "",
        "1. 2026-02-07: 2 cores; celery 5.7.0",
    ]


def test_a_failed_test_is_not_passed_off_as_a_result() -> None:
    assert "**failed**: kills 1,300" in results["section"]({"beats killed": result(outcome="failed")})
