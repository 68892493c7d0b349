"""Servers on real ports that take what telemetry sends, and keep it: a collector of traces, a Sentry."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.waiting import PATIENCE


class Sink:
    """Whatever is posted to `url`, unpacked. It answers 200 with an empty JSON object."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = self.headers["Content-Length"]
                body = self.rfile.read(int(length)) if length else b"".join(self._chunks())
                sink.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def _chunks(self) -> Iterator[bytes]:
                while size := int(self.rfile.readline(), 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            def log_message(self, *args: object) -> None:
                """Nothing: `bodies` has it all."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def everything(self) -> str:
        return b"\n".join(self.bodies).decode("utf-8", "replace")

    def events(self) -> list[dict[str, Any]]:
        """Those in the envelopes of Sentry."""
        lines = [line for body in self.bodies for line in body.splitlines() if line.startswith(b"{")]
        return [each for each in map(json.loads, lines) if "event_id" in each and "level" in each]

    def spans(self) -> "list[Span]":
        """Those in the requests of OTLP."""
        found = []
        for body in list(self.bodies):
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                service = {each.key: each.value.string_value for each in resource.resource.attributes}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        values = {each.key: _value(each.value) for each in span.attributes}
                        took = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
                        found.append(
                            Span(
                                span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                                span.start_time_unix_nano, took, values, service, span.status.code == 2,
                            )
                        )  # fmt: skip
        return found

    def wait(self, until: Callable[[Self], Any], seconds: float = PATIENCE) -> Any:
        """What `until` finds, when it has found something."""
        deadline = time.monotonic() + seconds
        while not (found := until(self)):
            assert time.monotonic() < deadline, self.everything[:2000]
            time.sleep(0.05)
        return found


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    started: int
    ms: float
    attributes: dict[str, Any]
    resource: dict[str, str]
    is_error: bool


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


def tree(spans: list[Span]) -> str:
    """Spans of a trace, each below the one it is part of."""

    def lines(parent: str, depth: int) -> Iterator[str]:
        for span in sorted((each for each in spans if each.parent == parent), key=lambda each: each.started):
            said = " ".join(f"{name}={value}" for name, value in span.attributes.items())
            yield f"{'  ' * depth}{span.name}  {span.ms:.1f} ms  {said}".rstrip()
            yield from lines(span.id, depth + 1)

    known = {span.id for span in spans}
    roots = {span.parent for span in spans} - known
    return "\n".join(line for root in sorted(roots) for line in lines(root, 0))
