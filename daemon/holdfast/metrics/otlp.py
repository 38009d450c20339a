"""Spans as a request of OTLP/HTTP, in the protocol's JSON encoding. Pure.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: names in lowerCamelCase, ids in hex, 64-bit integers as strings. Every
collector takes it, and it needs no library on the head node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.metrics.traces import SpanEvent, TraceAttributes, TraceSpan

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_INTERNAL = 1
"""SPAN_KIND_INTERNAL."""


def traces_request(spans: Iterable[TraceSpan], resource: TraceAttributes, version: str) -> dict[str, Any]:
    """The body of ``POST /v1/traces``."""
    scope = {"name": "holdfast", "version": version}
    scoped = {"scope": scope, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scoped]}]}


def _span(span: TraceSpan) -> dict[str, Any]:
    parent = {"parentSpanId": span.parent_id.hex()} if span.parent_id is not None else {}
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        **parent,
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": _nanos(span.start),
        "endTimeUnixNano": _nanos(span.end),
        "attributes": _attributes(span.attributes),
        "events": [_event(event) for event in span.events],
        "status": {"code": int(span.status), **({"message": span.status_text} if span.status_text else {})},
    }


def _event(event: SpanEvent) -> dict[str, Any]:
    return {"name": event.name, "timeUnixNano": _nanos(event.at), "attributes": _attributes(event.attributes)}


def _nanos(at: datetime) -> str:
    return str((at - _EPOCH) // timedelta(microseconds=1) * 1_000)


def _attributes(attributes: TraceAttributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: str | float | bool) -> Mapping[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
