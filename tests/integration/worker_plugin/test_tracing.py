"""Spans of traced workers tell which run they are; where nobody traces, nothing happens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from celery_catchup.model import Trigger
from celery_catchup.worker_plugin.context import RunContext, enter_run, leave_run, span_attributes
from tests.integration.workers import PROJECT, SLOT, Site, Worker

RUN = RunContext(
    entry="hourly-etl", run_id="a1b2", trigger=Trigger.CATCHUP, attempt=2, slot=SLOT, started=SLOT + 90_500
)


@pytest.fixture(autouse=True)
def _no_run() -> Iterator[None]:
    yield
    leave_run()


@pytest.fixture
def site(redis_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(redis_url, tmp_path)
    yield site
    site.close()


def test_the_current_span_gets_the_run() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    with provider.get_tracer("tests").start_as_current_span("run/proj.etl"):
        enter_run(RUN)
    enter_run(RUN)  # outside of a span it goes nowhere

    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert dict(span.attributes) == {
        "catchup.entry": "hourly-etl",
        "catchup.run_id": "a1b2",
        "catchup.attempt": 2,
        "catchup.trigger": "catchup",
        "catchup.is_catchup": True,
        "catchup.scheduled_time": "2026-02-07T10:00:00Z",
        "catchup.lag_seconds": 90.5,
    }


def test_without_opentelemetry_nothing_is_imported_and_nothing_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[RunContext] = []
    monkeypatch.setattr("celery_catchup.worker_plugin.context.span_attributes", made.append)
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")

    enter_run(RUN)

    assert made == []
    assert "opentelemetry.trace" not in sys.modules


def test_a_span_that_is_not_recorded_costs_no_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[RunContext] = []
    monkeypatch.setattr("celery_catchup.worker_plugin.context.span_attributes", made.append)

    enter_run(RUN)

    assert made == []


def spans(site: Site, name: str) -> list[dict[str, Any]]:
    return [line["attributes"] for line in site.lines("span") if line["name"] == name]


def test_a_worker_under_celerys_instrumentation_puts_each_attempt_on_its_span(site: Site) -> None:
    with Worker(site, project="tests.projects.traced"):
        run_id = site.send_run("retrying")
        site.app.send_task(f"{PROJECT}.autoretrying", queue="celery")
        site.ended(run_id)
        site.wait_for("span", 5)

    attempts = spans(site, f"run/{PROJECT}.retrying")
    assert [one["catchup.attempt"] for one in attempts] == [1, 2, 3]
    assert {one["catchup.run_id"] for one in attempts} == {run_id}
    assert all(set(span_attributes(RUN)) <= set(one) for one in attempts)
    ordinary = spans(site, f"run/{PROJECT}.autoretrying")
    assert ordinary
    assert not any("catchup" in name for one in ordinary for name in one)
