"""Spans and metrics of a request, and the ids for its log lines.

Code reports to this module; rag_app.telemetry.setup decides, once per process, where the reports go. By default they go
nowhere: only OpenTelemetry's API is imported, whose spans do nothing without an SDK, and `meter` counts nothing. No text
of a question, source, prompt or answer is passed to this module.
"""

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from opentelemetry import context as contexts, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rag_app.domain import EmbeddingFailed, InvalidInput, ModelFailed, NotFound, RagError, Usage

_tracer = trace.get_tracer("rag_app")
_TRACE_CONTEXT = TraceContextTextMapPropagator()  # and no baggage: nobody here wants what callers put into it
_Value = str | bool | int | float
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Meter:
    """Counts nothing; `rag_app.telemetry.setup` has one that counts, with the names and labels.

    All labels come from small sets: no user, no thread, no path with an id in it.
    """

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Count an event."""

    def time(self, name: str, seconds: float, *labels: str) -> None:
        """Record the duration of something that has ended."""

    def model(self, name: str, seconds: float, usage: Usage | None, failure: str | None) -> None:
        """Record a call of a model with all its retries; `failure` is the kind of error it ended with."""


meter = Meter()
"""Of this process. Read it as `observing.meter`; `rag_app.telemetry.setup` puts another one here."""


@dataclass(slots=True)
class RequestIds:
    """The ids of a request, as far as they are known."""

    request_id: str = "-"
    user_id: str | None = None
    thread_id: str | None = None
    trace_id: str | None = None


_known_ids: ContextVar[RequestIds | None] = ContextVar("rag_app_about", default=None)
_NOBODY = RequestIds()


def request_ids() -> RequestIds:
    """The ids of the present request; empty outside a request."""
    return _known_ids.get() or _NOBODY


def begin(request_id: str) -> None:
    """Begin a request, in this task and those that it starts."""
    _known_ids.set(RequestIds(request_id))


def identify(*, user: object = None, thread: object = None) -> None:
    """Record whom the request is for: ids, no names."""
    known = _known_ids.get() or RequestIds()
    known.user_id = known.user_id if user is None else str(user)
    known.thread_id = known.thread_id if thread is None else str(thread)


class Stage:
    """A stage of a request: a span, and a time for the meter.

        with Stage("embedding", {"gen_ai.operation.name": "embeddings"}) as span:
            ...

    `within=False` is for blocks that yield to other code, whose spans must not become children of this one.
    """

    __slots__ = ("_name", "_span", "_started", "_token")

    def __init__(
        self,
        name: str,
        attributes: Mapping[str, _Value] | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        within: bool = True,
    ) -> None:
        self._name, self._started = name, perf_counter()
        self._span = _tracer.start_span(name, kind=kind, attributes=attributes)
        self._token: Token[contexts.Context] | None = None
        if within:  # also where it is not recorded: what happens in it is not recorded either
            self._token = contexts.attach(trace.set_span_in_context(self._span))

    def __enter__(self) -> Span:
        return self._span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            contexts.detach(self._token)
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self._span.set_attribute("rag.abandoned", True)
        elif error is not None:  # without its message: a server may have echoed the question
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(Status(StatusCode.ERROR, safe_text(error)))
        self._span.end()
        self._measure(perf_counter() - self._started, error)

    def _measure(self, seconds: float, error: BaseException | None) -> None:
        meter.time("rag_stage_seconds", seconds, self._name)


class RequestSpan:
    """The span of a request. It continues the trace of a caller that sends `traceparent`, with its sampling decision. Its
    stages belong to it in either case, so a request is traced completely or not at all.
    """

    __slots__ = ("_method", "_scheme", "_span", "_token")

    def __init__(self, method: str, scheme: str, carrier: Mapping[str, str]) -> None:
        parent = _TRACE_CONTEXT.extract(carrier) if "traceparent" in carrier else None
        self._method, self._scheme = method if method in _METHODS else "_OTHER", scheme
        self._span = _tracer.start_span(self._method, parent, SpanKind.SERVER)
        self._token = contexts.attach(trace.set_span_in_context(self._span, parent))
        if self._span.is_recording():
            request_ids().trace_id = trace.format_trace_id(self._span.get_span_context().trace_id)

    def end(self, route: str, path: str, status: int, seconds: float) -> None:
        """`route` is the path's template, empty where no route has this path."""
        meter.count("rag_http_requests", self._method, route or "none", str(status))
        meter.time("rag_http_request_seconds", seconds, self._method, route or "none")
        contexts.detach(self._token)
        if not self._span.is_recording():
            return
        known = request_ids()
        attributes: dict[str, _Value | None] = {
            "http.request.method": self._method,
            "http.response.status_code": status,
            "url.scheme": self._scheme,
            "rag.request.id": known.request_id,
            "user.id": known.user_id,
            "rag.thread.id": known.thread_id,
            "http.route": route or None,
            "url.path": quote(path) if route else None,
            "error.type": str(status) if status >= 500 else None,
        }
        self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if route:
            self._span.update_name(f"{self._method} {route}")
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def safe_text(error: BaseException) -> str:
    """An error in a form safe for logs: its kind, and its message only if it is rag_app's own.

    A message of an SDK, a database or a user may contain a question, a key or a row. Of such errors only kinds, states
    and numbers are used.

    >>> safe_text(ModelFailed("large: Error('no such thing as <the question>')"))
    'ModelFailed'
    >>> safe_text(RagError("index book has not been built")), safe_text(ValueError("<the question>"))
    ('RagError: index book has not been built', 'ValueError')
    """
    kind = type(error).__name__
    if error.__cause__ is not None:
        return f"{kind} ({_describe_error(error.__cause__)})"
    if isinstance(error, RagError) and not isinstance(error, InvalidInput | NotFound | ModelFailed | EmbeddingFailed):
        return f"{kind}: {error}"
    return _describe_error(error)


def _describe_error(error: BaseException) -> str:
    """The error's kind, with its HTTP status, SQLSTATE or errno."""
    said = [type(error).__name__]
    carriers = (error, getattr(error, "response", None), getattr(error, "orig", None))
    values = {getattr(each, name, None): None for each in carriers for name in ("status_code", "sqlstate")}
    said += [str(value) for value in values if isinstance(value, int) or (isinstance(value, str) and len(value) == 5)]
    if isinstance(error, OSError) and isinstance(error.strerror, str) and error.errno is not None:
        said.append(f"errno {error.errno}")
    return " ".join(said)


class ModelCall(Stage):
    """A call of a model with all retries: a span by OpenTelemetry's conventions for generative AI, and tokens and time for
    the meter. `record_usage` takes the usage that the model reports."""

    __slots__ = ("_model", "_usage")

    def __init__(self, model: str, provider: str, options: Mapping[str, Any]) -> None:
        named = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        asked = {f"gen_ai.request.{name}": options[name] for name in ("max_tokens", "temperature") if name in options}
        super().__init__(f"chat {model}", {**named, **asked}, kind=SpanKind.CLIENT, within=False)
        self._model = model
        self._usage: Usage | None = None

    def __enter__(self) -> Self:  # type: ignore[override]
        return self

    def record_usage(self, usage: Usage | None, cut_off: bool) -> None:
        self._usage = usage
        self._span.set_attribute("gen_ai.response.finish_reasons", ("length" if cut_off else "stop",))
        if usage is not None:
            self._span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
            self._span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)

    def _measure(self, seconds: float, error: BaseException | None) -> None:
        meter.model(self._model, seconds, self._usage, type(error).__name__ if isinstance(error, Exception) else None)
