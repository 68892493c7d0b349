"""Log lines, names of errors, and what is refused at start."""

import io
import json
import logging
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from rag_app.console.serving import _say
from rag_app.domain.answer import Usage
from rag_app.domain.errors import InvalidInput, Misconfigured, ModelFailed, StoreFailed
from rag_app.settings import Settings, TelemetrySettings
from rag_app.telemetry import observing, setup as telemetry
from rag_app.telemetry.setup import RequestIds, check_telemetry_installed, formatter, without_messages

SECRET = "who is the father of my child"
FORMS = pytest.mark.parametrize("form", ["text", "json"])


def logged(form: Any, level: str = "INFO") -> tuple[logging.Logger, io.StringIO]:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(formatter(form, level))
    handler.addFilter(RequestIds())
    logger = logging.Logger("tests")
    logger.addHandler(handler)
    return logger, said


@pytest.fixture(autouse=True)
def no_request() -> None:
    """As outside of one."""
    observing.begin("-")


def nested() -> Exception:
    """An error as they come: one that another one led to, and a note."""
    try:
        try:
            int(SECRET)
        except ValueError as error:
            error.add_note(SECRET)
            raise ModelFailed(f"large: {error!r}") from error
    except ModelFailed as error:
        return error
    raise AssertionError


@FORMS
def test_errors_are_logged_without_what_they_say(form: str) -> None:
    logger, said = logged(form)
    logger.error("it failed", exc_info=nested())
    assert SECRET not in said.getvalue()
    assert "ModelFailed (ValueError)" in said.getvalue() and "test_telemetry.py" in said.getvalue()


@FORMS
def test_who_looks_for_a_bug_is_told_everything(form: str) -> None:
    logger, said = logged(form, "DEBUG")
    logger.error("it failed", exc_info=nested())
    assert SECRET in said.getvalue()


def test_a_group_of_errors_shows_its_kinds() -> None:
    shown = without_messages(ExceptionGroup(SECRET, [ValueError(SECRET), nested()]))
    assert SECRET not in shown
    assert "ExceptionGroup" in shown and "| ValueError" in shown and "| ModelFailed (ValueError)" in shown


class Refused(Exception):
    """As SDKs make them."""

    status_code = 503


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (StoreFailed("all connections are in use"), "StoreFailed: all connections are in use"),
        (InvalidInput("query", SECRET, SECRET), "InvalidInput"),
        (ModelFailed(SECRET), "ModelFailed"),
        (Refused(SECRET), "Refused 503"),
        (ConnectionRefusedError(111, SECRET), "ConnectionRefusedError errno 111"),
    ],
)
def test_errors_have_names(error: Exception, name: str) -> None:
    assert observing.safe_text(error) == name


def test_a_line_of_json_has_the_ids_of_its_request() -> None:
    logger, said = logged("json")
    logger.info("before")
    observing.begin("request-1")
    observing.identify(user="user-1")
    observing.identify(thread="thread-1")
    logger.info("two\nlines", extra={"type": "a kind", "tokens_in": None})
    before, after = map(json.loads, said.getvalue().splitlines())
    assert (before["request_id"], before["user_id"], before["thread_id"]) == ("-", None, None)
    assert (after["request_id"], after["user_id"], after["thread_id"]) == ("request-1", "user-1", "thread-1")
    assert (after["message"], after["type"], after["tokens_in"]) == ("two\nlines", "a kind", None)
    assert after["level"] == "INFO" and after["logger"] == "tests" and after["time"].endswith("Z")
    assert after.keys() == {
        "time", "level", "logger", "message", "request_id", "user_id", "thread_id", "type", "tokens_in",
    }  # fmt: skip


def test_a_line_of_text_ends_with_its_fields() -> None:
    logger, said = logged("text")
    logger.info("done", extra={"type": "a kind", "user_id": "user-1", "tokens_in": None})
    logger.info("plain")
    first, second = said.getvalue().splitlines()
    assert first.endswith("] done type=a kind user_id=user-1") and second.endswith("] plain")


def test_lines_of_others_have_the_same_form() -> None:
    """Granian's records have no ids."""
    record = logging.makeLogRecord({"name": "_granian", "levelname": "INFO", "msg": "Listening"})
    assert "INFO _granian [-] Listening" in formatter("text", "INFO").format(record)
    assert json.loads(formatter("json", "INFO").format(record))["logger"] == "_granian"


@pytest.mark.parametrize(
    ("wanted", "setting", "package"),
    [
        ({"RAG_METRICS": True}, "RAG_METRICS", "prometheus-client"),
        ({"RAG_TRACES": "otlp"}, "RAG_TRACES=otlp", "opentelemetry-exporter-otlp-proto-http"),
        ({"RAG_TRACES": "console"}, "RAG_TRACES=console", "opentelemetry-sdk"),
        ({"RAG_SENTRY_DSN": "https://key@sentry.example/1"}, "RAG_SENTRY_DSN", "sentry-sdk"),
    ],
)
def test_what_is_not_installed_is_refused_with_what_to_install(
    wanted: dict[str, Any], setting: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_telemetry_installed(TelemetrySettings(**wanted))
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    with pytest.raises(Misconfigured) as refused:
        check_telemetry_installed(TelemetrySettings(**wanted))
    assert str(refused.value).startswith(f"{setting} ") and str(refused.value).endswith(f": pip install {package}")
    check_telemetry_installed(TelemetrySettings())


def test_a_dsn_that_is_none_is_refused_and_not_shown() -> None:
    with pytest.raises(Misconfigured) as refused:
        telemetry.Telemetry(TelemetrySettings(RAG_SENTRY_DSN=SECRET))
    assert "RAG_SENTRY_DSN" in str(refused.value) and SECRET not in str(refused.value)


@pytest.mark.parametrize("version", ["", "1.x", "\xff", "="])
@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_whatever_is_accepted_numbers_are_shown(kind: str, version: str) -> None:
    metrics = telemetry.Metrics(lambda model, usage: Decimal(0), {})
    metrics.count("rag_refused", "forbidden")
    content_type, said = metrics.scrape(f"{kind}; version={version}")
    assert content_type.startswith(("text/plain", "application/openmetrics-text"))
    assert 'rag_refused_total{code="forbidden"} 1.0' in said.decode().splitlines()


def test_costs_are_counted_with_the_tokens() -> None:
    metrics = telemetry.Metrics(lambda model, usage: Decimal("0.5"), {"database": lambda: (2, 3)})
    metrics.model("large", 0.2, Usage(5, 3), None)
    metrics.model("large", 0.2, None, "ModelTimeout")
    metrics.look()
    content_type, said = metrics.scrape("text/plain")
    lines = said.decode().splitlines()
    assert content_type.startswith("text/plain")
    assert 'rag_model_cost_cents_total{model="large"} 0.5' in lines
    assert 'gen_ai_client_token_usage_sum{gen_ai_request_model="large",gen_ai_token_type="output"} 3.0' in lines
    assert 'rag_model_failures_total{kind="ModelTimeout",model="large"} 1.0' in lines
    assert 'gen_ai_client_operation_duration_seconds_count{gen_ai_request_model="large"} 2.0' in lines
    assert 'rag_pool_connections{pool="database",state="in_use"} 2.0' in lines


def test_the_application_imports_no_sdk() -> None:
    looked = (
        "import sys, rag_app.application, rag_app.http.server, rag_app.surfaces.lexybrain.conversations\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter', "
        "'prometheus_client', 'sentry_sdk'))])"
    )
    done = subprocess.run([sys.executable, "-c", looked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_serve_says_first_is_a_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAG_VECTOR_STORE", "postgres")
    said = "rag-app on http://127.0.0.1:8000"
    for form in ("text", "json"):
        monkeypatch.setenv("RAG_LOG_FORMAT", form)
        _say(Settings(), said)
    text, line = capsys.readouterr().err.splitlines()
    record = json.loads(line)
    assert text == said == record["message"]
    assert record["level"] == "INFO" and record["logger"] == "rag_app.console.serving" and record["time"]
