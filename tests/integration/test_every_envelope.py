"""Whatever goes wrong, each surface says so in its own envelope, with its own codes: over HTTP, on the real thing."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from llama_index.embeddings.openai import OpenAIEmbedding

from rag_app.application import Application
from rag_app.database import private
from rag_app.database.migrate import upgrade
from rag_app.surfaces.registry import SURFACES
from tests.conftest import MIGRATIONS, NewPostgres
from tests.integration.service import bearer, configured, prepare, served, without_limits

NOWHERE = "http://127.0.0.1:1"
PLAIN = {
    "text": "invalid_request", "parameter": "invalid_request", "unreadable": "invalid_request", "path": "not_found",
    "method": "method_not_allowed", "size": "payload_too_large", "type": "unsupported_media_type",
    "credential": "unauthenticated", "database": "database_error", "embedding": "embedding_failed",
}  # fmt: skip
RETRIEVAL = {
    "text": "INVALID_QUERY", "parameter": "INVALID_PARAMETERS", "unreadable": "INVALID_PARAMETERS", "path": "NOT_FOUND",
    "method": "METHOD_NOT_ALLOWED", "size": "PAYLOAD_TOO_LARGE", "type": "UNSUPPORTED_MEDIA_TYPE",
    "credential": "UNAUTHORIZED", "database": "DATABASE_ERROR", "embedding": "EMBEDDING_ERROR",
}  # fmt: skip
LEXYBRAIN = {
    "text": "validation_error", "parameter": "validation_error", "unreadable": "validation_error", "path": "not_found",
    "method": "method_not_allowed", "size": "payload_too_large", "type": "unsupported_media_type",
    "credential": "authentication_required", "database": "service_unavailable",
}  # fmt: skip
STATUSES = {
    "text": 400, "parameter": 400, "unreadable": 400, "path": 404, "method": 405, "size": 413, "type": 415,
    "credential": 401, "database": 500, "embedding": 500,
}  # fmt: skip
LEXYBRAIN_STATUSES = {**STATUSES, "text": 422, "parameter": 422, "unreadable": 422, "database": 503}


@dataclass(frozen=True)
class Way:
    """A path with a body that it takes, and what its surface's envelope looks like.

    In `path`, `{message_id:str}` is the id of an answer, `{index:str}` one of the indexes.
    """

    path: str
    text: str
    body: Mapping[str, Any]
    codes: Mapping[str, str]
    envelope: frozenset[str]
    statuses: Mapping[str, int] = field(default_factory=lambda: STATUSES)


PLAIN_BODY, RETRIEVAL_BODY = frozenset({"status", "error", "request_id"}), frozenset({"error"})
ASKED = "What is the door code?"
WAYS = [
    *(
        Way(path, "query_text", {"query_text": ASKED}, PLAIN, PLAIN_BODY)
        for path in ("/api/rag/search", "/api/rag/answer", "/functions/v1/rag-search", "/functions/v1/rag-answer")
    ),
    *(
        Way(f"/api/v1/indexes/{{index:str}}/{each}", "query_text", {"query_text": ASKED}, PLAIN, PLAIN_BODY)
        for each in ("search", "answer")
    ),
    Way("/owner/search", "query", {"query": ASKED}, PLAIN, PLAIN_BODY),
    Way("/owner/ask", "question", {"question": ASKED}, PLAIN, PLAIN_BODY),
    Way("/api/v1/retrieval/query", "query", {"query": ASKED}, RETRIEVAL, RETRIEVAL_BODY),
    Way(
        "/api/v1/retrieval/validate",
        "queries",
        {"queries": [{"query": ASKED, "expected_chunks": ["chunk_1"]}]},
        RETRIEVAL,
        RETRIEVAL_BODY,
    ),
    Way("/api/lexybrain/rag", "message", {"message": ASKED}, LEXYBRAIN, RETRIEVAL_BODY, LEXYBRAIN_STATUSES),
    Way(
        "/api/lexybrain/messages/{message_id:str}/feedback",
        "rating",
        {"rating": "neutral"},
        LEXYBRAIN,
        RETRIEVAL_BODY,
        LEXYBRAIN_STATUSES,
    ),
]
COLLECTIONS = [way for way in WAYS if way.codes is RETRIEVAL]
RETRYABLE = {"service_unavailable"}


@dataclass(frozen=True)
class Service:
    client: httpx.Client
    token: dict[str, str]
    key: dict[str, str]
    message: str

    def at(self, way: Way) -> str:
        return way.path.replace("{message_id:str}", self.message).replace("{index:str}", "book")

    def post(self, way: Way, content: Any, **headers: str) -> httpx.Response:
        credential = self.key if way.codes is RETRIEVAL else self.token
        sent = {**credential, "Content-Type": "application/json", **headers}
        return self.client.post(self.at(way), content=content, headers=sent)

    def ask(self, way: Way) -> httpx.Response:
        return self.post(way, json.dumps(way.body))


def says(way: Way, response: httpx.Response, problem: str) -> dict[str, Any]:
    """The error, if it is this one and in this surface's envelope."""
    assert response.status_code == way.statuses[problem], response.text
    assert response.headers["content-type"].startswith("application/json")
    body = response.json()
    error: dict[str, Any] = body["error"]
    assert body.keys() == way.envelope
    if way.codes is LEXYBRAIN:
        assert error.keys() == {"code", "message", "retryable"}
        assert error["retryable"] is (error["code"] in RETRYABLE)
    else:
        assert error.keys() <= {"code", "message", "details"}
    assert error["code"] == way.codes[problem] and error["message"]
    return error


@contextmanager
def service(urls: tuple[str, str], folder: Path, **variables: str) -> Iterator[Service]:
    async def one(application: Application) -> tuple[str, str]:
        organization = await application.people.create_organization(f"o-{uuid4().hex}", "Envelopes")
        user = await application.people.create_user(f"u-{uuid4().hex}", plan="growth")
        await application.people.add_member(organization, user)
        _, key = await application.keys.create(organization, "envelopes", None)
        return str(user.id), key

    deployment = {"RAG_DATABASE_OWNER_URL": urls[0], "RAG_DATABASE_URL": urls[1], "RAG_HOME": str(folder), **variables}
    with configured(deployment) as patch:
        without_limits(patch)
        user, key = prepare(one)
        with served() as client:
            asked = client.post("/api/lexybrain/rag", json={"message": ASKED}, headers=bearer(user))
            yield Service(client, bearer(user), {"Authorization": f"Bearer {key}"}, asked.json()["messageId"])


@pytest.fixture(scope="module")
def running(database_urls: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # errors of requests: the same whatever the store is
    with service(database_urls, tmp_path_factory.mktemp("envelopes"), RAG_VECTOR_STORE="postgres") as started:
        yield started


OF_OUR_OWN = {"sources", "jobs", "playground", "management", "answer_feedback"}
"""Surfaces of no contract but ours: their bodies are in test_sources, test_jobs, test_playground, test_management and
test_answer_feedback."""


def test_every_route_that_takes_a_body_is_here() -> None:
    posts = {
        path
        for surface in SURFACES
        if surface.name not in OF_OUR_OWN
        for handler in surface.handlers
        if "POST" in handler.http_methods
        for path in handler.paths
    }
    for_administrators = {"/api/admin/lexybrain/configs"}  # tests/contract/test_lexybrain_admin.py asks it the same
    thread = "/api/lexybrain/threads/{thread_id:str}"  # a UUID, and nothing at all: tests/contract/test_fields.py
    threads = {f"{thread}/branch", f"{thread}/stop"}
    assert posts == {way.path for way in WAYS} | for_administrators | threads


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.path)
def test_what_a_caller_can_get_wrong(way: Way, running: Service) -> None:
    for unreadable in (b"", b"{", b"{'a': 1}", b'{"a": "\xff\xfe"}', b"\x00", b"[]", b"null", b"[" * 100_000):
        says(way, running.post(way, unreadable), "unreadable")
    text = "parameter" if way.text == "queries" else "text"
    wrongs: tuple[object, ...] = (None, 5, [], {}, True, "", " ")
    for wrong in wrongs:
        error = says(way, running.post(way, json.dumps({**way.body, way.text: wrong})), text)
        assert way.text in json.dumps(error)
    says(way, running.post(way, json.dumps({})), text)
    for unknown in ({"colour": "red"}, {"": 1}, {"organization": str(uuid4())}):
        error = says(way, running.post(way, json.dumps({**way.body, **unknown})), "parameter")
        assert way.text in error["message"].partition("accepted: ")[2]
    for content in (b" " * 10_000_000, iter([b" " * 1_000_000] * 10)):
        refused = running.post(way, content)
        says(way, refused, "size")
        assert refused.headers["connection"] == "close", "what is left of the body is no next request"
    says(way, running.post(way, json.dumps(way.body), **{"Content-Type": "text/plain"}), "type")
    says(way, running.post(way, json.dumps(way.body), Authorization="Bearer nonsense"), "credential")
    says(way, running.client.post(f"{running.at(way)}/nothing", json={}), "path")
    refused = running.client.put(running.at(way), json={})
    says(way, refused, "method")
    assert "POST" in refused.headers["allow"]
    assert running.ask(way).status_code == 200


def test_a_collection_that_is_not_there(running: Service) -> None:
    for way in COLLECTIONS:
        for name in ("nothing", "g_book_1", "book; --", "\u0000"):
            response = running.post(way, json.dumps({**way.body, "collection_name": name}))
            assert (response.status_code, response.json()["error"]["code"]) == (404, "COLLECTION_NOT_FOUND")


@pytest.mark.parametrize("store", ["postgres", pytest.param("qdrant", marks=pytest.mark.thorough)])
def test_postgresql_stops_and_comes_back(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = private._free_port()
    monkeypatch.setattr(private, "_free_port", lambda: port)  # the same after a restart, as a server of one's own has
    with ExitStack() as at_last, ExitStack() as up:
        server = up.enter_context(private.private_postgres(tmp_path))
        at_last.callback(lambda: shutil.rmtree((tmp_path / "cluster").resolve()))  # may lie outside of the folder
        upgrade(server.owner_url, server.app_url, MIGRATIONS)
        variables = {"RAG_VECTOR_STORE": store, "QDRANT_PATH": str(tmp_path / "qdrant")}
        started = at_last.enter_context(service((server.owner_url, server.app_url), tmp_path, **variables))
        assert [started.ask(way).status_code for way in WAYS] == [200] * len(WAYS)
        up.close()
        for way in WAYS:
            says(way, started.ask(way), "database")
        up.enter_context(private.private_postgres(tmp_path))
        assert [started.ask(way).status_code for way in WAYS] == [200] * len(WAYS), "without a restart of ours"


def test_the_embedding_model_does_not_answer(
    new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_once(**options: Any) -> OpenAIEmbedding:
        return OpenAIEmbedding(**{**options, "max_retries": 0})

    monkeypatch.setattr("llama_index.embeddings.openai.OpenAIEmbedding", asked_once)  # else seconds between requests
    server = new_database()
    variables = {
        "RAG_EMBEDDING": "openai", "RAG_EMBEDDING_API_BASE": NOWHERE, "RAG_EMBEDDING_API_KEY": "none",
        "RAG_VECTOR_STORE": "postgres",
    }  # fmt: skip
    with service((server.owner_url, server.app_url), tmp_path, **variables) as started:
        for way in WAYS:
            told = started.ask(way)
            if way.text == "rating":  # nothing is looked for
                assert told.status_code == 200, told.text
            elif way.codes is LEXYBRAIN:  # goes on without what it cannot find, and says so
                assert told.status_code == 200, told.text
                assert told.json()["flags"]["insufficientContext"] and not told.json()["flags"]["usedRag"]
                assert told.json()["sources"] == []
            else:
                says(way, told, "embedding")
            assert NOWHERE not in told.text
