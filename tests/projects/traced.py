"""The project of the workers' tests under OpenTelemetry: spans go to the same file as what tasks write."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from tests.projects import claims
from tests.projects.claims import app as app


class Diary(SpanExporter):
    """Writes down what a span tells."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            claims.write("span", name=span.name, attributes=dict(span.attributes or {}))
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Diary()))
trace.set_tracer_provider(provider)
CeleryInstrumentor().instrument()
