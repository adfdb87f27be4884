"""Keep the spans that a test's calls end, in the memory of this process."""

from __future__ import annotations

from functools import cache

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def exporter() -> InMemorySpanExporter:
    """Return the exporter of this process: its provider of tracers can be set only once."""
    made, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    trace.set_tracer_provider(provider)
    return made


def take_spans() -> list[ReadableSpan]:
    """Return the spans that have ended since the last call, in the order of their ends."""
    spans = list(exporter().get_finished_spans())
    exporter().clear()
    return spans


def take_names() -> list[str]:
    return [span.name for span in take_spans()]
