"""What operators see of a server, and what they never see: a real process, real collectors on real ports."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from rag_app.database.session import Database
from rag_app.domain.resources import resource_folder
from rag_app.telemetry.setup import formatter
from tests.integration.lexybrain import models_file
from tests.integration.service import bearer, configured, prepare
from tests.integration.test_api_end_to_end import variables
from tests.integration.test_cli import is_ready
from tests.integration.test_every_route import Tenant, tenant
from tests.scripted_model import Reply, ScriptedModel
from tests.sinks import Sink, tree
from tests.waiting import PATIENCE

RAG, SEARCH, ANSWER = "/api/lexybrain/rag", "/api/rag/search", "/api/rag/answer"
ASKED, ANSWERED = "xqquestionword", "xqanswerword"
DOOR = f"What is the door code of the house, {ASKED}?"

_SECONDS_TO_START = 180

TOKEN = "a token for numbers, and for them alone"
STAGES = [
    "entrance", "keeping", "preparing", "history", "detection", "prompts", "retrieval", "embedding", "search",
    "postprocessing", "judging", "generation", "verification", "keeping_answer",
]  # fmt: skip


def request_id(value: str) -> dict[str, Any]:
    return {"X-Request-ID": value}


@dataclass
class Running:
    """A server as its operator runs it, and where it tells of itself."""

    url: str
    log: Path
    us: Tenant
    model: ScriptedModel
    traces: Sink
    sentry: Sink

    def post(self, path: str, body: object, *, status: int = 200, **headers: str) -> httpx.Response:
        key = {"Authorization": f"Bearer {self.us.key}"} if path.startswith("/api/v1/") else bearer(self.us.user)
        response = httpx.post(self.url + path, json=body, headers={**key, **headers}, timeout=PATIENCE)
        assert response.status_code == status, response.text
        return response

    def lines(self, containing: str = "") -> list[str]:
        return [line for line in self.log.read_text().splitlines() if containing in line]

    def records(self, **fields: Any) -> list[dict[str, Any]]:
        """Of a log in JSON: those with these fields."""
        records = [json.loads(line) for line in self.lines() if line.startswith("{")]
        return [each for each in records if all(each.get(name) == value for name, value in fields.items())]

    def metrics(self, **headers: str) -> dict[str, float]:
        """Samples by name and labels."""
        response = httpx.get(f"{self.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}", **headers})
        assert response.status_code == 200, response.text
        lines = (line.rpartition(" ") for line in response.text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    @property
    def secrets(self) -> list[str]:
        """What must be nowhere: of the question, the sources, the answer; the keys."""
        token = bearer(self.us.user)["Authorization"].removeprefix("Bearer ")
        return [ASKED, ANSWERED, self.us.word, self.us.key, token.rpartition(".")[2], "sk-test", TOKEN]


def answer(body: dict[str, Any]) -> Reply:
    """A model that gives away what it was shown, also when it fails."""
    prompt = "\n".join(str(message["content"]) for message in body["messages"])
    if "FAIL" in prompt:
        return Reply(body=json.dumps({"error": {"message": f"cannot answer {prompt}, sk-test"}}), status=500)
    if "GARBLE" in prompt:
        return Reply(body=f"<html>{prompt}</html>", content_type="text/html")
    return Reply(f"The {ANSWERED} is here [Source 1].")


@contextmanager
def running(
    urls: tuple[str, str], folder: Path, *, workers: int = 1, settings: Mapping[str, str] | None = None,
) -> Iterator[Running]:  # fmt: skip
    with ExitStack() as stack:
        model = stack.enter_context(ScriptedModel(answer))
        traces, sentry = stack.enter_context(Sink()), stack.enter_context(Sink())
        file = models_file(folder, model.url)
        file.write_text(file.read_text().replace("[models.lexybrain]", "[models.default]"))
        environment = {
            **variables(urls, "postgres", folder, folder / "qdrant"),
            "RAG_MODELS_FILE": str(file),
            "TEST_MODEL_KEY": "sk-test",
            "RAG_LLM_BACKOFF": "0",
            "RAG_LLM_UNAVAILABLE_WAIT": "0",
            "RAG_LOG_LEVEL": "info",
            "RAG_METRICS": "true",
            "RAG_METRICS_TOKEN": TOKEN,
            "RAG_TRACES": "otlp",
            "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_EXPORTER_OTLP_ENDPOINT": traces.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "RAG_SENTRY_DSN": f"http://public@127.0.0.1:{sentry.port}/1",
            "PYTHONPATH": str(resource_folder("tests").parent),
            **(settings or {}),
        }
        stack.enter_context(configured(environment))
        us = prepare(lambda application: tenant(application, folder))
        url, log = stack.enter_context(process(folder, workers))
        yield Running(url, log, us, model, traces, sentry)


@contextmanager
def process(folder: Path, workers: int) -> Iterator[tuple[str, Path]]:
    log = folder / "serve.log"
    command = [sys.executable, "-m", "tests.integration.telling", "serve", "--port", "0", "--workers", str(workers)]
    with log.open("w") as said:
        server = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + PATIENCE
            while not (found := re.search(r"rag-app on (\S+) ", log.read_text())) or not (
                log.read_text().count("Started worker-") == workers and is_ready(found[1])
            ):
                assert time.monotonic() < deadline and server.poll() is None, log.read_text()
                time.sleep(0.1)
            yield found[1], log
        finally:
            server.terminate()
            server.wait(PATIENCE)


@pytest.fixture(scope="module", params=["json", pytest.param("text", marks=pytest.mark.thorough)])
def server(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("telling")
    with running(database_urls, folder, settings={"RAG_LOG_FORMAT": request.param}) as server:
        yield server


def test_the_log_has_a_line_for_each_turn_with_the_fields_of_the_contract(server: Running) -> None:
    said = server.post(RAG, {"message": DOOR}, **request_id("asked-1")).json()
    server.post(RAG, {"message": f"{DOOR} FAIL", "capability": "keyword_explanation"}, **request_id("asked-2"))
    text = " ".join(server.lines())
    assert "asked-1" in text and "asked-2" in text
    if not server.records():
        (line,) = server.lines("[asked-1] RAG request completed")
        for name in ("retrieval_count=", "tokens_in=11", "tokens_out=7", f"thread_id={said['threadId']}"):
            assert name in line
        assert server.lines("[asked-2] RAG generation failed")
        return
    (done,) = server.records(type="rag_request_complete", request_id="asked-1")
    assert done["user_id"] == str(server.us.user) and done["thread_id"] == said["threadId"]
    assert done["capability"] == said["capability"] and done["retrieval_count"] == len(said["sources"])
    assert (done["tokens_in"], done["tokens_out"]) == (11, 7)
    assert 0 < done["retrieval_latency_ms"] <= done["total_latency_ms"]
    assert 0 < done["generation_latency_ms"] <= done["total_latency_ms"]
    assert {"time", "level", "logger", "message"} <= done.keys() and done["level"] == "INFO"
    (failed,) = server.records(type="rag_generation_error")
    assert failed["level"] == "ERROR" and failed["capability"] == "keyword_explanation"
    assert failed["user_id"] == str(server.us.user) and failed["thread_id"]
    assert failed["error"] == "ModelFailed (InternalServerError 500)"
    (access,) = (each for each in server.records(request_id="asked-1") if each["logger"] == "rag_app.http")
    assert access["user_id"] == str(server.us.user) and access["thread_id"] == said["threadId"]
    assert len({each["trace_id"] for each in server.records(request_id="asked-1")}) == 1


def test_a_question_is_one_trace_with_a_span_for_each_stage(server: Running) -> None:
    caller = "4bf92f3577b34da6a3ce929d0e0e4736"
    header = f"00-{caller}-00f067aa0ba902b7-01"
    server.post(RAG, {"message": DOOR}, traceparent=header)

    def whole(sink: Sink) -> Any:
        spans = [span for span in sink.spans() if span.trace == caller]
        return spans if any(span.name == f"POST {RAG}" for span in spans) else None

    spans = server.traces.wait(whole)
    by_name = {span.name: span for span in spans}
    assert sorted(by_name) == sorted([*STAGES, f"POST {RAG}", "chat large"]), tree(spans)
    request, chat = by_name[f"POST {RAG}"], by_name["chat large"]
    assert request.parent == "00f067aa0ba902b7" and request.resource["service.name"] == "rag-app"
    assert request.attributes["http.response.status_code"] == 200 and request.attributes["http.route"] == RAG
    assert request.attributes["user.id"] == str(server.us.user)
    assert chat.parent == by_name["generation"].id and chat.attributes["gen_ai.request.model"] == "large"
    assert (chat.attributes["gen_ai.usage.input_tokens"], chat.attributes["gen_ai.usage.output_tokens"]) == (11, 7)
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    inside = {"embedding": "retrieval", "search": "retrieval", "judging": "retrieval", "history": "preparing"}
    assert {(name, by_name[at].id) for name, at in inside.items()} <= {(span.name, span.parent) for span in spans}
    if where := os.environ.get("SHOW_TRACE"):
        Path(where).write_text(tree(spans) + "\n")


def test_a_streamed_question_is_one_trace_too(server: Running) -> None:
    caller = "5bf92f3577b34da6a3ce929d0e0e4737"
    server.post(
        RAG, {"message": DOOR}, Accept="text/event-stream",
        traceparent=f"00-{caller}-00f067aa0ba902b7-01",
    )  # fmt: skip
    spans = server.traces.wait(
        lambda sink: (
            (found := [each for each in sink.spans() if each.trace == caller])
            and any(each.name == f"POST {RAG}" for each in found)
            and found
        )
    )
    assert sorted({each.name for each in spans}) == sorted([*STAGES, f"POST {RAG}", "chat large"]), tree(spans)


def test_by_default_a_request_is_traced_whole_or_not_at_all(database_urls: tuple[str, str], tmp_path: Path) -> None:
    """One in ten is, and those that a caller traces; a caller who wants no trace gets none."""
    refused, traced = "6bf92f3577b34da6a3ce929d0e0e4738", "7bf92f3577b34da6a3ce929d0e0e4739"
    with running(database_urls, tmp_path, settings={"OTEL_TRACES_SAMPLER": ""}) as server:
        for number in range(25):  # fewer than a minute may have
            server.post(SEARCH, {"query_text": f"{DOOR} {number}"})
            server.post(SEARCH, {"query_text": DOOR}, traceparent=f"00-{refused}-00f067aa0ba902b7-00")
        server.post(SEARCH, {"query_text": DOOR}, traceparent=f"00-{traced}-00f067aa0ba902b7-01")
        spans = server.traces.wait(
            lambda sink: (
                (found := sink.spans())
                and any(each.trace == traced and each.name == f"POST {SEARCH}" for each in found)
                and found
            )
        )
    of_requests = {span.trace for span in spans if "http.request.method" in span.attributes}
    assert traced in of_requests and refused not in {span.trace for span in spans}
    assert [span.name for span in spans if span.trace not in of_requests] == []
    assert {"entrance", "retrieval", "embedding", "search"} <= {span.name for span in spans if span.trace == traced}


def test_numbers_count_what_was_asked(server: Running) -> None:
    before = server.metrics()
    server.post(RAG, {"message": DOOR})
    server.post(RAG, {"message": DOOR})
    server.post(RAG, {"message": f"{DOOR} FAIL", "capability": "keyword_explanation"})
    server.post(RAG, {"message": ""}, status=422)
    httpx.get(f"{server.url}/nowhere", timeout=PATIENCE)
    after = server.metrics()
    gained = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
    assert gained[f'rag_http_requests_total{{method="POST",route="{RAG}",status="200"}}'] == 3
    assert gained[f'rag_http_requests_total{{method="POST",route="{RAG}",status="422"}}'] == 1
    assert gained['rag_http_requests_total{method="GET",route="none",status="404"}'] == 1
    assert gained[f'rag_http_request_seconds_count{{method="POST",route="{RAG}"}}'] == 4
    assert gained['rag_stage_seconds_count{stage="retrieval"}'] == 3
    tokens = 'gen_ai_client_token_usage_sum{{gen_ai_request_model="large",gen_ai_token_type="{}"}}'
    assert (gained[tokens.format("input")], gained[tokens.format("output")]) == (22, 14)
    cents = (22 * 60 + 14 * 80) / 1_000_000
    assert gained['rag_model_cost_cents_total{model="large"}'] == pytest.approx(cents)
    assert gained['rag_model_failures_total{kind="ModelFailed",model="large"}'] == 1
    assert gained['rag_answers_total{capability="keyword_explanation",outcome="failed"}'] == 1
    assert sum(value for name, value in gained.items() if name.startswith("rag_query_embeddings_total")) >= 3
    assert gained['rag_query_embeddings_total{cache="hit"}'] >= 1
    assert after['rag_pool_connections{pool="database",state="open"}'] >= 1
    refused = {name for name in gained if name.startswith("rag_refused_total")}
    assert len(refused) == 2, refused
    labels = {label for name in after for label in re.findall(r'([a-z_]+)="', name)}
    assert labels == {
        "method", "route", "status", "code", "stage", "capability", "outcome", "model", "kind", "cache",
        "gen_ai_request_model", "gen_ai_token_type", "pool", "state", "le",
    }  # fmt: skip


def test_numbers_are_for_who_has_the_token(server: Running) -> None:
    for header in ({}, {"Authorization": "Bearer nonsense"}, bearer(server.us.user)):
        response = httpx.get(f"{server.url}/metrics", headers=header)
        assert response.status_code == 401 and "rag_" not in response.text.replace("RAG_", "")
    openmetrics = httpx.get(
        f"{server.url}/metrics",
        headers={"Authorization": f"Bearer {TOKEN}", "Accept": "application/openmetrics-text; version=1.0.0"},
    )
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert "/metrics" not in httpx.get(f"{server.url}/openapi.json").text


def everywhere(server: Running) -> None:
    """Through all surfaces with marker words, the ways that go wrong included."""
    word = server.us.word
    asked = f"{DOOR} {word}"
    streamed: dict[str, Any] = {"Accept": "text/event-stream"}
    for path in (SEARCH, ANSWER, "/functions/v1/rag-search", "/functions/v1/rag-answer"):
        server.post(path, {"query_text": asked})
        server.post(path, {"query_text": asked, "top_k": asked, ASKED: word}, status=400)
        server.post(path, {"query_text": asked, "filters": {"org_id": word, ASKED: ASKED}}, status=400)
    for path, field in (("/owner/search", "query"), ("/owner/ask", "question")):
        server.post(path, {field: asked, "min_similarity": 0.0})
    server.post(ANSWER, {"query_text": asked}, **streamed)
    server.post("/owner/ask", {"question": asked, "min_similarity": 0.0}, **streamed)
    server.post("/api/v1/retrieval/query", {"query": asked, "collection_name": "book", "validate": True})
    queries = [{"query": asked, "expected_chunks": [server.us.chunks["book"]]}]
    server.post("/api/v1/retrieval/validate", {"queries": queries})
    said = server.post(RAG, {"message": asked}).json()
    server.post(RAG, {"message": asked, "threadId": said["threadId"]}, **streamed)
    server.post(RAG, {"message": [asked], "threadId": word}, status=422)
    server.post(RAG, {"message": asked, "capability": ASKED}, status=422)
    for bad in ("FAIL", "GARBLE"):  # the model echoes what it was shown
        server.post(RAG, {"message": f"{asked} {bad}", "capability": "market_brief"})
        server.post(RAG, {"message": f"{asked} {bad}", "capability": "market_brief"}, **streamed)
        server.post("/owner/ask", {"question": f"{asked} {bad}", "min_similarity": 0.0}, status=500)
    server.post(SEARCH, {"query_text": f"{asked} EXPLODE"}, status=500)  # a bug: its error shows the text
    for path, body in ((RAG, {"message": f"{asked} EXPLODE"}), (ANSWER, {"query_text": f"{asked} EXPLODE"})):
        with suppress(httpx.TransportError):  # it breaks off
            server.post(path, body, **streamed)
    threads = f"{server.url}/api/lexybrain/threads"
    httpx.patch(f"{threads}/{said['threadId']}", json={"title": asked}, headers=bearer(server.us.user))
    httpx.get(f"{threads}?cursor={word}", headers=bearer(server.us.user))
    message = f"{server.url}/api/lexybrain/messages/{said['messageId']}/feedback"
    httpx.post(message, json={"rating": "negative", "comment": asked}, headers=bearer(server.us.user))
    for header in ({"Authorization": f"Bearer {server.us.key}x"}, {"x-api-key": f"rag_{word}"}):
        httpx.post(server.url + RAG, json={"message": asked}, headers=header)
    caller = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4738-00f067aa0ba902b7-01"}
    httpx.get(f"{server.url}/health/live", headers={**caller, "baggage": word, "tracestate": word})
    httpx.post(f"{server.url}{RAG}?message={asked}", content=asked.encode(), headers=bearer(server.us.user))


def test_nothing_that_people_wrote_and_no_key_is_ever_told(server: Running) -> None:
    everywhere(server)
    server.sentry.wait(lambda sink: len(sink.events()) >= 3)
    server.traces.wait(lambda sink: [span for span in sink.spans() if span.name == f"POST {RAG}"])
    told = {
        "the log": server.log.read_text(),
        "the numbers": str(server.metrics()),
        "the traces": server.traces.everything,
        "Sentry": server.sentry.everything,
    }
    for where, said in told.items():
        assert len(said) > 1000, "it tells nothing at all"
        for secret in server.secrets:
            assert secret not in said, (where, next(line for line in said.splitlines() if secret in line)[:1500])
    assert "KeyError" in told["the log"] and "internal_error" in told["the log"], "what has happened can be told"
    assert "telling.py" in told["the log"], "and where"


def test_errors_go_to_sentry_with_ids_and_the_capability(server: Running) -> None:
    message = {"message": f"{DOOR} FAIL", "capability": "keyword_explanation"}
    server.post(RAG, message, **request_id("failed"))
    server.post(SEARCH, {"query_text": f"{DOOR} EXPLODE"}, status=500, **request_id("exploded"))

    def both(sink: Sink) -> Any:
        events = sink.events()
        model = [each for each in events if each.get("tags", {}).get("request_id") == "failed"]
        bug = [each for each in events if each.get("tags", {}).get("request_id") == "exploded"]
        return (model[0], bug[0]) if model and bug else None

    model, bug = server.sentry.wait(both)
    assert model["tags"]["feature"] == "rag" and model["tags"]["capability"] == "keyword_explanation"
    assert model["extra"]["userId"] == str(server.us.user)
    assert {"threadId", "messageId"} <= model["extra"].keys()
    assert model["exception"]["values"][-1]["type"] == "ModelFailed"
    assert model["exception"]["values"][-1]["value"] == "ModelFailed (InternalServerError 500)"
    assert [each["type"] for each in bug["exception"]["values"]] == ["ValueError", "KeyError"]
    frames = bug["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames and not any("vars" in frame for frame in frames)
    assert "request" not in bug


def test_workers_count_together_and_leave_nothing_behind(database_urls: tuple[str, str], tmp_path: Path) -> None:
    quiet = {"RAG_TRACES": "none", "RAG_SENTRY_DSN": "", "RAG_METRICS_TOKEN": ""}
    with running(database_urls, tmp_path, workers=2, settings=quiet) as server:
        (folder,) = tmp_path.glob("metrics-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        for _ in range(20):  # a connection each: both workers get some
            server.post(SEARCH, {"query_text": "door"})
        pids = {file.stem.rpartition("_")[2] for file in folder.glob("counter_*.db")}
        assert len(pids) == 2
        counted = server.metrics(Authorization="")
        assert counted[f'rag_http_requests_total{{method="POST",route="{SEARCH}",status="200"}}'] == 20
        proxied = httpx.get(f"{server.url}/metrics", headers={"X-Forwarded-For": "203.0.113.9"})
        assert proxied.status_code == 403, "a proxy on this machine speaks for others"
        paged = httpx.get(f"{server.url}/metrics", headers={"Origin": "https://page.example"})
        assert paged.status_code == 403 and "rag_http" not in paged.text, "nor is this for pages in a browser here"
    assert not list(tmp_path.glob("metrics-*"))


def test_nothing_is_there_unless_it_is_asked_for(database_urls: tuple[str, str], tmp_path: Path) -> None:
    off = {"RAG_METRICS": "", "RAG_METRICS_TOKEN": "", "RAG_TRACES": "", "RAG_SENTRY_DSN": ""}
    with running(database_urls, tmp_path, settings=off) as server:
        assert httpx.get(f"{server.url}/metrics").status_code == 404
        server.post(RAG, {"message": f"{DOOR} FAIL", "capability": "keyword_explanation"})
        assert server.lines("RAG request completed")
        assert not server.traces.bodies and not server.sentry.bodies


@pytest.mark.parametrize("form", ["text", "json"])
async def test_what_postgresql_says_of_rows_is_not_logged(database_urls: tuple[str, str], form: str) -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(formatter(form, "INFO"))
    logger = logging.Logger("tests")
    logger.addHandler(handler)
    database, states = Database(database_urls[1], pool_size=2), []
    statements = [
        ("INSERT INTO users (id, name, plan_code) VALUES (gen_random_uuid(), :said, :said)", "23503"),
        ("SELECT CAST(:said AS uuid)", ""),
        (f"SELECT '{ASKED}'::uuid, CAST(:said AS text)", "22P02"),
    ]
    try:
        for statement, state in statements:
            with pytest.raises(DBAPIError) as failed:
                async with database.session() as session:
                    await session.execute(text(statement), {"said": ASKED})
            assert ASKED in str(failed.value.orig), "it would be told"
            logger.error("it failed", exc_info=failed.value)
            states.append(state)
    finally:
        await database.close()
    assert ASKED not in said.getvalue() and all(state in said.getvalue() for state in states)
