"""A run's facts on the current span, where OpenTelemetry traces the worker."""

from __future__ import annotations

import sys

from celery_catchup.model import to_rfc3339
from celery_catchup.worker_plugin.context import RunContext


def annotate(run: RunContext) -> None:
    """Put the run on the span that is current. Where nothing has imported OpenTelemetry, nothing does
    here either: a lookup is all that it costs."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return
    span = trace.get_current_span()
    if span.is_recording():
        span.set_attributes(attributes(run))


def attributes(run: RunContext) -> dict[str, str | bool | int | float]:
    """What a span tells of a run."""
    return {
        "catchup.entry": run.entry,
        "catchup.run_id": run.run_id,
        "catchup.attempt": run.attempt,
        "catchup.trigger": str(run.trigger),
        "catchup.is_catchup": run.is_catchup,
        "catchup.scheduled_time": to_rfc3339(run.slot),
        "catchup.lag_seconds": run.lag.total_seconds(),
    }
