"""Put the figures that `make soak` kept into the page that tells how we test: ``python docs/results.py``.

``docs/results.jsonl`` has one line for each result of a test; the newest of each name counts.
The table stands between two marks on the page and is never edited by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.jsonl"
PAGE = HERE / "explanation" / "how-we-test.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def newest() -> dict[str, dict[str, Any]]:
    """The newest result of each name, in the order of the tests' files and names."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    found = {result["name"]: result for result in map(json.loads, lines)}
    return dict(sorted(found.items(), key=lambda item: (item[1]["test"], item[0])))


def page(text: str, results: dict[str, dict[str, Any]]) -> str:
    """The page with these results between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{section(results)}\n\n{END}{after}"


def section(results: dict[str, dict[str, Any]]) -> str:
    """The table, and below it where its rows were measured."""
    if not results:
        return "No figures yet: `make soak` puts them here."
    places = list(dict.fromkeys(map(place, results.values())))
    head = "| what | figures | test | seconds | where |\n|---|---|---|---|---|"
    rows = [row(result, places.index(place(result)) + 1) for result in results.values()]
    where = [f"{number}. {text}" for number, text in enumerate(places, 1)]
    return "\n".join([head, *rows, "", "Where and when:", "", *where])


def row(result: dict[str, Any], where: int) -> str:
    """One result; a failed one says so."""
    figures = ", ".join(
        f"{name.replace('_', ' ')} {shown(value)}" for name, value in result["figures"].items()
    )
    verdict = "" if result["outcome"] == "passed" else "**failed**: "
    test = result["test"].rpartition("::")[2].partition("[")[0]
    return f"| {result['name']} | {verdict}{figures} | `{test}` | {result['seconds']:g} | {where} |"


def shown(value: Any) -> str:
    """A figure with its thousands apart."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def place(result: dict[str, Any]) -> str:
    """Machine, versions and date of a result."""
    versions = ", ".join(f"{name} {number}" for name, number in sorted(result["versions"].items()))
    return f"{result['date']}: {result['machine']}; {versions}"


def prune(results: dict[str, dict[str, Any]]) -> str:
    """The file with these results alone."""
    return "".join(json.dumps(result) + "\n" for result in results.values())


if __name__ == "__main__":
    RESULTS.write_text(prune(newest()), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), newest()), encoding="utf-8")
