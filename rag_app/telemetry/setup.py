"""What operators see of a running process: logs, metrics, traces, errors. docs/telemetry.md has the tables.

SDKs are imported only here, and only the configured ones. They come with the extra `telemetry`. Everything is created in
the process that uses it, because threads and connections do not survive a fork.

At the default level none of it contains users' text: `observing.safe_text` says what is kept of an error.
"""

import asyncio
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from pythonjsonlogger.msgspec import MsgspecFormatter

from rag_app.domain import JsonObject, Misconfigured, Usage
from rag_app.telemetry import observing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from sentry_sdk.types import Event, Hint

    from rag_app.settings import TelemetrySettings

Connections = Callable[[], tuple[int, int]]
"""Of a pool: how many are in use, how many are open."""

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SAMPLING_RATIO = 0.1  # of the requests: to trace all costs a fifth of a short search's processor time
_SECONDS_BETWEEN_LOOKS = 1.0
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "asctime",
    "message",
    "taskName",
    "request_id",
    "user_id",
    "thread_id",
    "trace_id",
    "color_message",
}


def check_telemetry_installed(wanted: "TelemetrySettings") -> None:
    """Raises Misconfigured if a package is missing."""
    for setting, asked, package in (
        ("RAG_METRICS", wanted.metrics, "prometheus_client"),
        ("RAG_TRACES=console", wanted.traces == "console", "opentelemetry.sdk"),
        ("RAG_TRACES=otlp", wanted.traces == "otlp", "opentelemetry.exporter.otlp.proto.http"),
        ("RAG_SENTRY_DSN", wanted.sentry_dsn is not None, "sentry_sdk"),
    ):
        if asked and not _has_package(package):
            named = package.replace(".", "-").replace("_", "-")
            raise Misconfigured(f"{setting} needs a package that is not installed: pip install {named}")


def _has_package(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of a package that it is in
        return False


class Telemetry:
    """The configured telemetry of this process, active until `stop`. Create it after the last fork.

    Raises Misconfigured if a package for it is missing.
    """

    def __init__(self, wanted: "TelemetrySettings") -> None:
        check_telemetry_installed(wanted)
        self._wanted = wanted
        self._metrics: Metrics | None = None
        self._provider: Any = _traces(wanted.traces) if wanted.traces != "none" else None
        if wanted.sentry_dsn is not None:
            logging.getLogger().addHandler(_sentry(wanted.sentry_dsn.get_secret_value()))

    def measure(
        self, cost_cents: Callable[[str, Usage | None], Decimal], pools: Mapping[str, Connections]
    ) -> "Metrics | None":
        """Start counting, if metrics are enabled."""
        if self._wanted.metrics:
            self._metrics = observing.meter = Metrics(cost_cents, pools)
        return self._metrics

    async def watch(self) -> None:
        """Sample gauges, for ever."""
        while self._metrics is not None:
            self._metrics.look()
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def stop(self) -> None:
        """Send what has not been sent."""
        if self._metrics is not None:
            observing.meter = observing.Meter()
        if self._provider is not None:
            self._provider.shutdown()
        if self._wanted.sentry_dsn is not None:
            import sentry_sdk

            sentry_sdk.flush(timeout=2)


def formatter(form: str, level: str) -> logging.Formatter:
    """The formatter of log lines, also referred to by Granian's logging configuration."""
    line = _JsonLine() if form == "json" else _TextLine()
    line.open_hearted = level.upper() == "DEBUG"
    return line


class _Line(logging.Formatter):
    """One event. Errors are logged without foreign messages, unless it is `open_hearted`."""

    open_hearted = False

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return logging.Formatter.formatException(self, ei) if self.open_hearted else without_messages(ei[1])


class _TextLine(_Line):
    """One line a record, its fields at the end: `retrieval_count=5`."""

    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s", defaults={"request_id": "-"}
        )

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        line = super().formatMessage(record)
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
        if not given:
            return line
        fields = {**given, "user_id": getattr(record, "user_id", None), "thread_id": getattr(record, "thread_id", None)}
        return f"{line} {' '.join(f'{name}={value}' for name, value in fields.items() if value is not None)}"


class _JsonLine(_Line, MsgspecFormatter):
    def __init__(self) -> None:
        MsgspecFormatter.__init__(
            self,
            ["asctime", "levelname", "name", "message", "request_id", "user_id", "thread_id"],
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"},
            reserved_attrs=[*(_STANDARD_ATTRIBUTES - {"trace_id"})],
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def without_messages(error: BaseException | None) -> str:
    """A traceback with places and kinds of errors, and no messages except our own.

    >>> try:
    ...     int("the question")
    ... except ValueError as error:
    ...     without_messages(error).splitlines()[-1]
    'ValueError'
    """
    if error is None:
        return ""
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    lines = [without_messages(before), "which led to:"] if before is not None else []
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip("\n")
    lines += ["Traceback (most recent call last):", frames, observing.safe_text(error)]
    if isinstance(error, BaseExceptionGroup):
        lines += [f"| {line}" for each in error.exceptions for line in without_messages(each).splitlines()]
    return "\n".join(line for line in lines if line)


class RequestIds(logging.Filter):
    """Gives every log record, of whatever module, the ids of the request it belongs to: `%(request_id)s`, and those of
    its user and thread, None where there are none."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = observing.request_ids()
        record.request_id = about.request_id
        for name in ("user_id", "thread_id"):
            vars(record).setdefault(name, getattr(about, name))
        if about.trace_id is not None:
            record.trace_id = about.trace_id
        return True


def configure_logging(form: str, level: str) -> None:
    """One line an event, on stderr, with the request it belongs to."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(form, level))
    handler.addFilter(RequestIds())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)  # they may show values, and are for those who look for something
    logging.getLogger("py.warnings").setLevel(logging.ERROR if level != "debug" else logging.WARNING)
    for name in ("httpx", "httpcore", "openai", "urllib3"):  # at "debug" they log whole requests: questions and sources
        logging.getLogger(name).setLevel(logging.WARNING)
    # its warnings quote the headers of callers, whoever they are
    logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)


def granian_logging(form: str, level: str) -> JsonObject:
    """Granian's logging configuration, which writes like ours on stderr. Its main process watches the private PostgreSQL."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "rag_app.telemetry.setup.formatter", "form": form, "level": level}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {
            name: {"handlers": ["stderr"], "propagate": False} for name in ("_granian", "rag_app.database.private")
        },
    }


_COUNTERS = {
    "rag_http_requests": ("requests answered; status 499: the client left", ["method", "route", "status"]),
    "rag_refused": ("responses that are errors, by their code", ["code"]),
    # answered, partial (a model failed in mid-answer), the reason of a refusal, or none (it failed)
    "rag_answers": ("questions asked of a capability, by what became of them", ["capability", "outcome"]),
    "rag_model_failures": ("models that did not answer, by the kind of error", ["model", "kind"]),
    "rag_model_cost_cents": ("what those tokens cost", ["model"]),
    "rag_query_embeddings": ("embeddings of questions by the bundled model", ["cache"]),
}
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# Seconds; the tenth to the last are those that the targets of conversations are about
_TOKENS = tuple(4.0**power for power in range(11))
# Model calls are named as OpenTelemetry's conventions for generative AI name them
_CALL, _USAGE = "gen_ai_client_operation_duration_seconds", "gen_ai_client_token_usage"
_MODEL = "gen_ai_request_model"
_HISTOGRAMS = {
    "rag_http_request_seconds": ("from a request to the end of its response", ["method", "route"], _BUCKETS),
    "rag_stage_seconds": ("stages of requests", ["stage"], _BUCKETS),
    _CALL: ("from asking a model to the end of its answer, repetitions and failures included", [_MODEL], _BUCKETS),
    _USAGE: ("tokens of a call as the model counts them", [_MODEL, "gen_ai_token_type"], _TOKENS),
}


class Metrics(observing.Meter):
    """The meter of `/metrics`. With PROMETHEUS_MULTIPROC_DIR set, processes that share it are counted as one."""

    def __init__(self, cost_cents: Callable[[str, Usage | None], Decimal], pools: Mapping[str, Connections]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        if folder := os.environ.get(_FOLDER):
            _bury(Path(folder))
        self._cost_cents, self._pools = cost_cents, pools
        self._registry = registry = CollectorRegistry()
        self._counters = {name: Counter(name, *what, registry=registry) for name, what in _COUNTERS.items()}
        self._histograms = {
            name: Histogram(name, about, labels, buckets=buckets, registry=registry)
            for name, (about, labels, buckets) in _HISTOGRAMS.items()
        }
        self._connections = Gauge(
            "rag_pool_connections",
            "connections to PostgreSQL, looked at every second",
            ["pool", "state"],
            multiprocess_mode="livesum",
            registry=registry,
        )

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        self._counters[name].labels(*labels).inc(by)

    def time(self, name: str, seconds: float, *labels: str) -> None:
        self._histograms[name].labels(*labels).observe(seconds)

    def model(self, name: str, seconds: float, usage: Usage | None, failure: str | None) -> None:
        self.time(_CALL, seconds, name)
        if failure is not None:
            self.count("rag_model_failures", name, failure)
        if usage is not None:
            self._histograms[_USAGE].labels(name, "input").observe(usage.input_tokens)
            self._histograms[_USAGE].labels(name, "output").observe(usage.output_tokens)
            self.count("rag_model_cost_cents", name, by=float(self._cost_cents(name, usage)))

    def look(self) -> None:
        """Sample the gauges."""
        for name, connections in self._pools.items():
            for state, number in zip(("in_use", "open"), connections(), strict=True):
                self._connections.labels(name, state).set(number)

    def scrape(self, accept: str) -> tuple[str, bytes]:
        """The content type and body of `/metrics`. Reads files, so not for an event loop."""
        from prometheus_client import CollectorRegistry, exposition
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = self._registry
        if os.environ.get(_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        try:
            encode, content_type = exposition.choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = exposition.choose_encoder("")
        return content_type, encode(registry)


@contextmanager
def share_metrics(home: Path, metrics: bool, workers: int) -> Iterator[None]:
    """While this lasts, new workers count into one private folder, which is removed afterwards."""
    if not metrics or workers == 1 or os.environ.get(_FOLDER):
        yield
        return
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="metrics-", dir=home.absolute(), ignore_cleanup_errors=True) as folder:
        os.environ[_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER]


def _bury(folder: Path) -> None:
    """Remove the gauges of dead processes; their counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        if not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            mark_process_dead(pid, str(folder))  # type: ignore[no-untyped-call]


def _traces(to: str) -> Any:
    """A provider of spans, exported by a thread. Sampling, endpoint and resource are as OTEL_ variables say.

    By default one request in ten is traced, and every request that its caller traces.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say goes before these.
    named = {"service.version": version("rag-app")}
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name=" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        named["service.name"] = "rag-app"

    provider = TracerProvider(
        None if os.environ.get("OTEL_TRACES_SAMPLER") else ParentBasedTraceIdRatio(_SAMPLING_RATIO),
        Resource.create(named),
        shutdown_on_exit=False,
    )
    exporter: SpanExporter = ConsoleSpanExporter(
        out=sys.stderr, formatter=lambda span: span.to_json(indent=None) + "\n"
    )
    if to == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def _sentry(dsn: str) -> logging.Handler:
    import sentry_sdk
    from sentry_sdk.utils import BadDsn

    try:
        sentry_sdk.init(
            dsn=dsn,
            release=f"rag-app@{version('rag-app')}",
            include_local_variables=False,
            max_request_body_size="never",
            max_breadcrumbs=0,
            default_integrations=False,  # none of those that read requests, prompts, statements: there is no PII to send
            auto_session_tracking=False,
            before_send=_without_texts,
        )
    except BadDsn as error:
        raise Misconfigured(f"RAG_SENTRY_DSN: {type(error).__name__}: it must look like https://key@host/1") from None
    return _SentryHandler(logging.ERROR)


class _SentryHandler(logging.Handler):
    """Turns each logged error into an event with its traceback, the capability and ids."""

    def emit(self, record: logging.LogRecord) -> None:
        import sentry_sdk

        about = observing.request_ids()
        with sentry_sdk.new_scope() as scope:
            tags = {"feature": "rag", "request_id": about.request_id, "logger": record.name}
            capability = getattr(record, "capability", None)
            scope.set_tags(tags if capability is None else {**tags, "capability": capability})
            for name, attribute in (("userId", "user_id"), ("threadId", "thread_id"), ("messageId", "message_id")):
                value = getattr(record, attribute, getattr(about, attribute, None))
                if value is not None:
                    scope.set_extra(name, str(value))
            if record.exc_info and record.exc_info[1] is not None:
                sentry_sdk.capture_exception(record.exc_info[1])
            else:
                sentry_sdk.capture_message(record.getMessage(), "error")


def _without_texts(event: "Event", hint: "Hint") -> "Event":
    """Removes error messages: the last error is `named`, the others have their kind only. Removes the request."""
    error = hint["exc_info"][1] if "exc_info" in hint else None
    values: list[JsonObject] = event.get("exception", {}).get("values", [])
    for each in values:
        each["value"] = ""
        for frame in (each.get("stacktrace") or {}).get("frames", []):
            frame.pop("vars", None)
    if values and error is not None:
        values[-1]["value"] = observing.safe_text(error)
    for name in ("request", "breadcrumbs", "server_name"):
        event.pop(name, None)  # type: ignore[misc]
    return event
