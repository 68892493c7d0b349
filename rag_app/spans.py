"""Spans to the protobuf of OTLP, for the one kind of span there is here. Imported where traces are exported.

The SDK makes a Python object of each field, which takes longer than making the span did: half of what tracing costs. What
this does not know (events, links, spans of others) it leaves to the SDK. A test holds the two against each other.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import pack
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult


class SpanExporter(OTLPSpanExporter):
    """OTLP over HTTP, as the SDK's exporter, with our encoding."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._shutdown or not all(_is_plain(span, spans[0]) for span in spans):
            return super().export(spans)
        done = self._client.export(encoded(spans).SerializeToString())
        return SpanExportResult.SUCCESS if done.success else SpanExportResult.FAILURE


def encoded(spans: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
    """Spans of one resource and scope, without events and links: what `encode_spans` makes of them."""
    request = encode_spans(spans[:1])
    scope = request.resource_spans[0].scope_spans[0]
    scope.ClearField("spans")
    scope.MergeFromString(b"".join(b"\x12" + _sized(_span(span)) for span in spans))
    return request


def _is_plain(span: ReadableSpan, first: ReadableSpan) -> bool:
    return (
        span.resource is first.resource
        and span.instrumentation_scope is first.instrumentation_scope
        and not (span.events or span.links or span.dropped_attributes)
    )


def _span(span: Any) -> bytes:
    """Field numbers are those of trace.proto."""
    context, parent, status = span.context, span.parent, span.status
    parts = [
        b"\x0a\x10", context.trace_id.to_bytes(16, "big"), b"\x12\x08", context.span_id.to_bytes(8, "big"),
    ]  # fmt: skip
    if context.trace_state:
        parts.append(b"\x1a" + _text(",".join(f"{name}={value}" for name, value in context.trace_state.items())))
    if parent is not None:
        parts += (b"\x22\x08", parent.span_id.to_bytes(8, "big"))
    times = pack("<BQBQ", 0x39, span.start_time, 0x41, span.end_time)
    parts += (b"\x2a", _text(span.name), b"\x30", _number(span.kind.value + 1), times)
    for name, value in span.attributes.items():
        parts.append(b"\x4a" + _sized(b"\x0a" + _text(name) + b"\x12" + _sized(_value(value))))
    said = b"\x12" + _text(status.description) if status.description else b""
    code = status.status_code.value
    parts.append(b"\x7a" + _sized(said + (b"\x18" + _number(code) if code else b"")))
    parts.append(pack("<HI", 0x0185, 0x300 if parent is not None and parent.is_remote else 0x100))
    return b"".join(parts)


def _value(value: Any) -> bytes:
    match value:
        case str():
            return b"\x0a" + _text(value)
        case bool():
            return b"\x10" + _number(int(value))
        case int():
            return b"\x18" + _number(value)
        case float():
            return b"\x21" + pack("<d", value)
    return b"\x2a" + _sized(b"".join(b"\x0a" + _sized(_value(each)) for each in value))


@lru_cache(4096)
def _text(text: str) -> bytes:
    return _sized(text.encode())


def _sized(content: bytes) -> bytes:
    return _number(len(content)) + content


def _number(number: int) -> bytes:
    """A varint; negative ones as 64 bits."""
    if 0 <= number < 0x80:
        return bytes((number,))
    number &= 0xFFFFFFFFFFFFFFFF
    said = bytearray()
    while number > 0x7F:
        said.append(number & 0x7F | 0x80)
        number >>= 7
    said.append(number)
    return bytes(said)
