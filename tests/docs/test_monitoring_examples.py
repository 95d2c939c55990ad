"""Dashboard and alerts ask for metrics that exist, and the page about metrics lists all of them."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from celery_catchup.metrics.catalogue import METRICS, MetricType

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "examples" / "monitoring"
PAGE = ROOT / "docs" / "reference" / "metrics.md"
PARTS = ("_bucket", "_sum", "_count")
NAMES = {
    name: metric
    for metric in METRICS.values()
    for name in (
        [metric.family + part for part in PARTS] if metric.kind is MetricType.HISTOGRAM else [metric.exposed]
    )
}


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return found


def questions() -> Iterator[tuple[str, str]]:
    """Every expression, and where it stands."""
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    for panel in dashboard()["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def test_the_page_is_up_to_date() -> None:
    generated = runpy.run_path(str(ROOT / "docs" / "generate.py"))["metrics_page"]()

    assert PAGE.read_text(encoding="utf-8") == generated, "run: python docs/generate.py"


def test_the_page_names_every_metric_and_no_other() -> None:
    named = set(re.findall(r"^\| `(celery_catchup_\w+)`", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

    assert named == {metric.exposed for metric in METRICS.values()}


@pytest.mark.parametrize(("where", "expression"), list(questions()), ids=lambda text: text[:40])
def test_a_question_is_about_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    asked = re.findall(r"celery_catchup_\w+", expression)

    assert asked
    assert set(asked) <= set(NAMES), where
    known = {"namespace", "instance", "le"} | {label for name in asked for label in NAMES[name].labels}
    grouped = [label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")]
    chosen = re.findall(r"(\w+)=~?\"", expression)
    assert {*grouped, *chosen} <= known, where


def test_the_dashboard_shows_every_metric() -> None:
    text = json.dumps(dashboard())

    assert [metric.name for metric in METRICS.values() if metric.family not in text] == []


def test_no_two_panels_are_in_one_place() -> None:
    panels = dashboard()["panels"]
    squares = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(squares) == len(set(squares))
    assert {x for x, _ in squares} == set(range(24))
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in alerts():
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_what_prometheus_scrapes_reads_these_alerts() -> None:
    configuration = yaml.safe_load((MONITORING / "prometheus.yml").read_text())

    assert configuration["rule_files"] == ["alerts.yml"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
def test_promtool_understands_every_question(tmp_path: Path) -> None:
    rules = [
        {"record": "checked", "expr": re.sub(r"\$__\w+", "5m", expression)} for _, expression in questions()
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))

    for checked in (file, MONITORING / "alerts.yml"):
        subprocess.run(["promtool", "check", "rules", "--lint=none", str(checked)], check=True)
