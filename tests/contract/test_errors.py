"""One envelope for everything that goes wrong, and nothing in it that is not for callers."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from rag_app.access.people import People
from rag_app.domain.answer import Answer, Confidence, Refusal
from rag_app.domain.errors import (
    CostCapReached,
    EmbeddingFailed,
    FeatureDisabled,
    InvalidInput,
    ModelFailed,
    ModelLimited,
    ModelMalformed,
    ModelTimeout,
    StoreFailed,
    UnknownField,
)
from rag_app.domain.scope import Principal
from rag_app.http.entrance import Entrance
from rag_app.http.problems import KINDS, kind_of, problem_of
from rag_app.surfaces.lexybrain.routes import LEXYBRAIN_KINDS
from tests.contract.conftest import Backstage
from tests.waiting import PATIENCE

PATHS = ["/api/rag/search", "/api/rag/answer", "/functions/v1/rag-search", "/functions/v1/rag-answer"]
ASK = {"query_text": "?"}


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error in the envelope, after a look at the envelope itself."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"status", "error", "request_id"} and body["status"] == "error"
    assert body["request_id"] == response.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    assert error["code"] == code and error["message"]
    return error


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({}, "query_text", "1 to 500 characters"),
        ({"query_text": None}, "query_text", "1 to 500 characters"),
        ({"query_text": ""}, "query_text", "1 to 500 characters"),
        ({"query_text": " \n\t\u00a0"}, "query_text", "blank"),
        ({"query_text": "x" * 501}, "query_text", "1 to 500 characters"),
        ({"query_text": "a\0b"}, "query_text", "without a NUL character"),
        ({"query_text": 5}, "query_text", "1 to 500 characters"),
        ({**ASK, "top_k": 0}, "top_k", "from 1 to 50"),
        ({**ASK, "top_k": 51}, "top_k", "from 1 to 50"),
        ({**ASK, "top_k": -(10**30)}, "top_k", "from 1 to 50"),
        ({**ASK, "top_k": 5.5}, "top_k", "from 1 to 50"),
        ({**ASK, "top_k": "5"}, "top_k", "from 1 to 50"),
        ({**ASK, "top_k": True}, "top_k", "from 1 to 50"),
        ({**ASK, "filters": []}, "filters", "an object"),
        ({**ASK, "filters": {"source_type": "DOC"}}, "filters.source_type", "transcript, email, doc, faq, web"),
        ({**ASK, "filters": {"source_type": 1}}, "filters.source_type", "transcript, email, doc, faq, web"),
        ({**ASK, "filters": {"lang": ""}}, "filters.lang", "language code"),
        ({**ASK, "filters": {"lang": "e\0n"}}, "filters.lang", "without a NUL character"),
        ({**ASK, "filters": {"org_id": "acme"}}, "filters.org_id", "UUID"),
        ({**ASK, "filters": {"date_from": "yesterday"}}, "filters.date_from", "ISO 8601"),
        ({**ASK, "filters": {"date_to": "2025-02-30"}}, "filters.date_to", "ISO 8601"),
        ({**ASK, "filters": {"date_from": "0001-01-01T00:00:00+14:00"}}, "filters.date_from", "ISO 8601"),
        ({**ASK, "filters": {"date_to": "9999-12-31T23:59:59-01:00"}}, "filters.date_to", "ISO 8601"),
        ({**ASK, "filters": {"date_to": 1735689600}}, "filters.date_to", "ISO 8601"),
    ],
)
@pytest.mark.parametrize("path", PATHS[:2])
def test_a_value_that_is_not_accepted_is_named_with_what_is(
    path: str, body: dict[str, Any], field: str, says: str, client: httpx.Client, backstage: Backstage
) -> None:
    error = problem(client.post(path, json=body), 400, "invalid_request")
    assert error["details"]["field"] == field and error["message"].startswith(field)
    assert says in error["details"]["problem"]
    assert not backstage.pipeline.asked


@pytest.mark.parametrize(
    ("body", "field", "accepted"),
    [
        ({**ASK, "topk": 5}, "topk", ["earlier_questions", "filters", "mode", "query_text", "top_k"]),
        (
            {**ASK, "filters": {"tenant": "x"}},
            "filters.tenant",
            ["date_from", "date_to", "lang", "org_id", "source_type", "where"],
        ),
    ],
)
def test_unknown_fields_are_refused(
    body: dict[str, Any], field: str, accepted: list[str], client: httpx.Client
) -> None:
    error = problem(client.post("/api/rag/search", json=body), 400, "invalid_request")
    assert error["message"] == f"{field}: unknown field; accepted: {', '.join(accepted)}"
    assert error["details"] == {"field": field, "problem": "unknown field", "accepted": accepted}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "JSON"),
        (b"{", "not valid JSON"),
        (b"{'query_text': 'a'}", "not valid JSON"),
        (b'{"query_text": "a"} trailing', "not valid JSON"),
        (b'{"query_text": "\\ud800"}', "not valid JSON"),
        (b'{"query_text": "\xff"}', "not valid UTF-8"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b'"query_text"', "JSON object"),
    ],
)
def test_a_body_that_cannot_be_read(content: bytes, says: str, client: httpx.Client) -> None:
    response = client.post("/api/rag/answer", content=content, headers={"Content-Type": "application/json"})
    assert says in problem(response, 400, "invalid_request")["message"]


def test_only_json_is_accepted(client: httpx.Client) -> None:
    error = problem(client.post("/api/rag/search", data=ASK), 415, "unsupported_media_type")
    assert "application/json" in error["message"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_of_more_than_a_megabyte(announced: bool, client: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(11):
            yield b" " * 100_000

    content: Any = b"".join(pieces()) if announced else pieces()
    problem(client.post("/api/rag/search", content=content), 413, "payload_too_large")
    almost = json.dumps(ASK).encode().ljust(1_000_000)
    assert client.post("/api/rag/search", content=almost).status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/api/rag/nothing", "/api/rag", "/functions/v1/rag-delete"])
def test_no_such_path(path: str, anonymous: httpx.Client) -> None:
    problem(anonymous.post(path, json=ASK), 404, "not_found")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_no_such_method(path: str, method: str, anonymous: httpx.Client) -> None:
    response = anonymous.request(method, path)
    problem(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == {"OPTIONS", "POST"}


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (EmbeddingFailed("sk-123 refused"), 500, "embedding_failed"),
        (StoreFailed("password authentication failed for sk-123"), 500, "database_error"),
        (ModelTimeout("sk-123"), 500, "model_timeout"),
        (ModelFailed("sk-123"), 500, "model_failed"),
        (ModelMalformed("sk-123"), 500, "model_failed"),
        (ModelLimited("sk-123"), 503, "model_rate_limited"),
        (RuntimeError("sk-123"), 500, "internal_error"),
        (ExceptionGroup("sk-123", [ValueError("sk-123")]), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_failures_have_codes_and_keep_their_secrets(
    path: str,
    raised: Exception,
    status: int,
    code: str,
    client: httpx.Client,
    backstage: Backstage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backstage.pipeline.error = raised
    with caplog.at_level(logging.ERROR, "rag_app.http"):
        response = client.post(path, json=ASK)
    problem(response, status, code)
    assert "sk-123" not in response.text
    assert "sk-123" in caplog.text, "whoever runs it must find the cause in the log"
    assert response.headers["x-ratelimit-remaining"] == "59"


@pytest.mark.parametrize(
    "raised", [UnknownField("colour", ["lang"]), InvalidInput("date", "x", "must be an ISO 8601 date")]
)
def test_what_the_index_refuses_is_a_400(raised: Exception, client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.error = raised
    error = problem(client.post("/api/rag/search", json=ASK), 400, "invalid_request")
    assert error["message"] == str(raised)


def test_a_database_that_is_down_before_the_question_is_asked(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(people: People, subject: str, groups: Sequence[str] = ()) -> Principal:
        raise StoreFailed("no route to host 10.0.0.7")

    monkeypatch.setattr(People, "principal", fail)
    response = client.post("/api/rag/search", json=ASK)
    problem(response, 500, "database_error")
    assert "10.0.0.7" not in response.text


@pytest.mark.parametrize("name", ["%00", "a%00.js", "x" * 300, "..%2f..%2fetc%2fpasswd", "%ff", "a/b/c"])
def test_what_is_no_asset_is_not_found(name: str, anonymous: httpx.Client) -> None:
    problem(anonymous.get(f"/docs/assets/{name}"), 404, "not_found")


@pytest.mark.parametrize(
    "path", ["/health/live", "/health/ready", "/docs", "/openapi.json", "/docs/assets/swagger-ui.css"]
)
def test_head_is_get_without_the_body(path: str, anonymous: httpx.Client) -> None:
    got, head = anonymous.get(path), anonymous.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"") and got.content
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.headers.get("content-length", str(len(got.content))) == str(len(got.content))


def test_head_of_what_is_not_there_or_has_no_get(anonymous: httpx.Client) -> None:
    assert anonymous.head("/nothing").status_code == 404
    refused = anonymous.head("/api/rag/search")
    assert (refused.status_code, refused.content) == (405, b"")


@pytest.mark.parametrize("path", ["/api/rag/search", "/api/v1/retrieval/query", "/api/lexybrain/rag"])
def test_half_a_body_is_waited_for_so_long_and_no_longer(
    path: str, client: httpx.Client, backstage: Backstage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag_app.http.exchange.SECONDS_FOR_BODY", 0.2)
    backstage.keys.known = {"rag_" + "k" * 43: Principal("key:1", None)}
    host, port = str(client.base_url.host), int(client.base_url.port or 0)
    shown = f"rag_{'k' * 43}" if "v1" in path else client.headers["Authorization"].removeprefix("Bearer ")
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer {shown}\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection((host, port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + b'{"query')
        said = b"".join(iter(lambda: connection.recv(10_000), b"")).decode()  # to the connection's end
    assert said.startswith("HTTP/1.1 408") and "The body did not arrive within 30 seconds" in said, said


def test_a_body_that_is_there_is_read_however_long_its_caller_waited_to_be_let_in(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in = Entrance.principal

    async def on_a_busy_server(self: Entrance, *arguments: Any) -> Principal:
        await asyncio.sleep(0.5)
        return await let_in(self, *arguments)

    monkeypatch.setattr("rag_app.http.exchange.SECONDS_FOR_BODY", 0.2)
    monkeypatch.setattr(Entrance, "principal", on_a_busy_server)
    assert client.post("/api/rag/search", json=ASK).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_connection_that_ends_says_so(method: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that was announced and is not read ends the connection: whoever keeps it would fail with the next request."""
    monkeypatch.setattr("rag_app.http.exchange._SECONDS_FOR_REST", 0.05)
    host, port = str(client.base_url.host), int(client.base_url.port or 0)
    head = f"{method} /api/rag/search HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n".encode()
    for _ in range(5):
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            connection.sendall(head)
            assert b"connection: close" in connection.recv(10_000)
    monkeypatch.setattr("rag_app.http.exchange._SECONDS_FOR_REST", PATIENCE)
    with socket.create_connection((host, port), timeout=PATIENCE) as connection:
        for _ in range(2):
            connection.sendall(head + b"{}")
            assert b"connection: close" not in connection.recv(10_000)


@pytest.mark.parametrize("error", [ModelLimited("busy"), StoreFailed("away")])
def test_what_may_come_back_says_when(error: Exception, client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.error = error
    assert int(client.post("/api/rag/answer", json=ASK).headers["retry-after"]) > 0


def test_every_503_says_when_to_come_back() -> None:
    day = 86_400
    for error in (ModelLimited(), CostCapReached(), FeatureDisabled("off"), EmbeddingFailed()):
        for kinds in (KINDS, LEXYBRAIN_KINDS):
            kind = kind_of(error, kinds)
            if kind.status == 503:
                assert 0 < int(problem_of(error, kind, "1").headers["Retry-After"]) <= day


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/rag/search", "query_text"),
        ("/api/rag/answer", "query_text"),
        ("/owner/search", "query"),
        ("/owner/ask", "question"),
    ],
)
def test_what_of_a_question_is_cut_stands_beside_the_answer(
    path: str, field: str, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.given = Answer(
        "Nothing.", Confidence.LOW, None, datetime.now(UTC), refusal=Refusal.NOTHING_FOUND
    )
    assert "warnings" not in client.post(path, json={field: "?"}).json()
    assert client.post(path, json={field: "?" * 401}).json()["warnings"] == ["401 characters are many"]
