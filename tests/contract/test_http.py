"""What every response has, health, and documentation that needs no other host."""

import json
import logging
import re
from html.parser import HTMLParser
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from rag_app.domain.answer import Question
from rag_app.domain.scope import Scope
from rag_app.http.surface import declared_alone
from rag_app.surfaces.registry import SURFACES
from rag_app.telemetry.setup import RequestIds
from tests.contract.conftest import Backstage
from tests.contract.test_errors import ASK, PATHS

ORIGIN = {"Origin": "https://app.example"}


@pytest.mark.parametrize("given", ["a", "req-1.2_3", "x" * 128])
def test_a_sane_request_id_is_kept(given: str, client: httpx.Client) -> None:
    for response in (
        client.post("/api/rag/search", json=ASK, headers={"X-Request-ID": given}),
        client.get("/nothing", headers={"X-Request-ID": given}),
        client.options("/api/rag/search", headers={"X-Request-ID": given, **ORIGIN}),
    ):
        assert response.headers.get_list("x-request-id") == [given]


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "a/b", "é", "a;b=c"])
def test_any_other_is_replaced(given: str, client: httpx.Client) -> None:
    made = client.post("/api/rag/search", json=ASK, headers=httpx.Headers({"X-Request-ID": given}, encoding="latin-1"))
    assert re.fullmatch("[0-9a-f]{32}", made.headers["x-request-id"])


def test_every_log_line_of_a_request_has_its_id(
    client: httpx.Client, backstage: Backstage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def search(index: str, question: Question, scope: Scope) -> tuple[()]:
        logging.getLogger("somewhere.deep").warning("looking for %s", question.text)
        return ()

    monkeypatch.setattr(backstage.pipeline, "search", search)
    caplog.handler.addFilter(ids := RequestIds())
    try:
        with caplog.at_level(logging.INFO):
            client.post("/api/rag/search", json=ASK, headers={"X-Request-ID": "trace-me"})
            client.get("/no%0Athing", headers={"X-Request-ID": "and-me"})
    finally:
        caplog.handler.removeFilter(ids)
    lines = {record.getMessage(): vars(record)["request_id"] for record in caplog.records if record.name != "httpx"}
    assert lines["looking for ?"] == "trace-me"
    [served] = [line for line in lines if line.startswith("POST /api/rag/search 200 in ")]
    assert lines[served] == "trace-me"
    [missed] = [line for line in lines if line.startswith("GET /no%0Athing 404 in ")]
    assert lines[missed] == "and-me"


@pytest.mark.parametrize("path", PATHS)
def test_preflight(path: str, anonymous: httpx.Client) -> None:
    response = anonymous.options(
        path,
        headers={
            **ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, x-client-info, apikey, content-type, x-request-id",
        },
    )
    assert response.status_code == 204
    assert response.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in response.headers
    assert "POST" in response.headers["access-control-allow-methods"]
    allowed = {name.strip().lower() for name in response.headers["access-control-allow-headers"].split(",")}
    assert {"authorization", "x-client-info", "apikey", "content-type", "if-match"} <= allowed


@pytest.mark.parametrize("path", PATHS)
def test_options_without_an_origin_needs_no_token_either(path: str, anonymous: httpx.Client) -> None:
    response = anonymous.options(path)
    assert response.status_code == 204 and "POST" in response.headers["allow"]


def test_head_is_allowed_where_get_is(anonymous: httpx.Client) -> None:
    for path in ("/health/live", "/openapi.json", "/docs", "/api/v1/sources"):
        allowed = anonymous.options(path).headers["allow"].split(", ")
        assert {"GET", "HEAD", "OPTIONS"} <= set(allowed) and allowed == sorted(allowed)


@pytest.mark.parametrize("cookie", [{}, {"Cookie": "session=1"}])
def test_responses_can_be_read_from_any_origin_without_credentials(
    cookie: dict[str, str], client: httpx.Client
) -> None:
    found = client.post("/api/rag/search", json=ASK, headers={**ORIGIN, **cookie})
    missing = client.get("/nothing", headers={**ORIGIN, **cookie})
    refused = client.post("/api/rag/search", json=ASK, headers={**ORIGIN, **cookie, "Authorization": ""})
    assert [each.status_code for each in (found, missing, refused)] == [200, 404, 401]
    for response in (found, missing, refused):
        assert response.headers["access-control-allow-origin"] in {"*", ORIGIN["Origin"]}
        assert "access-control-allow-credentials" not in response.headers
        exposed = {name.strip() for name in response.headers["access-control-expose-headers"].split(",")}
        assert {
            "X-RateLimit-Limit",
            "X-RateLimit-Remaining",
            "X-RateLimit-Reset",
            "X-Request-ID",
            "Retry-After",
            "Location",
            "Idempotency-Replayed",
            "ETag",
        } == exposed


def test_alive(anonymous: httpx.Client, backstage: Backstage) -> None:
    backstage.checks = {"database": "gone"}
    response = anonymous.get("/health/live")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_ready(anonymous: httpx.Client) -> None:
    response = anonymous.get("/health/ready")
    assert (response.status_code, response.json()) == (200, {"status": "ok", "checks": {"database": "ok"}})


def test_not_ready(anonymous: httpx.Client, backstage: Backstage) -> None:
    backstage.checks = {"database": "ok", "embedder": "not loaded"}
    response = anonymous.get("/health/ready")
    assert response.status_code == 503
    assert response.json() == {"status": "unavailable", "checks": {"database": "ok", "embedder": "not loaded"}}


class References(HTMLParser):
    """Every address that a page makes a browser fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name in {"src", "href"} and value is not None]


def test_the_documentation_page_loads_nothing_from_elsewhere(anonymous: httpx.Client) -> None:
    assert anonymous.get("/").headers["location"] == "/docs"
    page = anonymous.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    addresses = [address for address in References(page.text).found if not address.startswith("data:")]
    assert len(addresses) == 3
    for address in addresses:
        assert address.startswith("/docs/"), address
        asset = anonymous.get(address)
        assert asset.status_code == 200
        assert re.match("text/(css|javascript)", asset.headers["content-type"])
        if address.endswith(".css"):
            assert not re.search(r"url\(['\"]?(https?:)?//|@import", asset.text)
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page.text)


def test_assets_are_files_of_one_folder(anonymous: httpx.Client) -> None:
    for path in ("/docs/assets/nothing.js", "/docs/assets/../server.py", "/docs/assets/%2e%2e/core.py"):
        assert anonymous.get(path).status_code == 404
    assert Path("pyproject.toml").name not in anonymous.get("/docs/assets/").text


@pytest.fixture
def document(anonymous: httpx.Client) -> dict[str, Any]:
    response = anonymous.get("/openapi.json")
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    document: dict[str, Any] = response.json()
    return document


def test_the_document_describes_each_success_in_words_of_its_own(document: dict[str, Any]) -> None:
    theirs = {status.description for status in HTTPStatus} | {"File Download", ""}
    described = {
        response["description"]
        for operations in document["paths"].values()
        for operation in operations.values()
        for status, response in operation["responses"].items()
        if status.startswith("2")
    }
    assert len(described) > 50 and not described & theirs
    assert "data-time" not in json.dumps(document)


@pytest.mark.parametrize("path", PATHS)
def test_the_document_tells_all_there_is_to_know(path: str, document: dict[str, Any]) -> None:
    operation = document["paths"][path]["post"]
    assert operation["security"] == [{"bearer": []}] and operation["tags"] == ["RAG retrieval"]
    assert operation["summary"] and operation["description"]
    statuses = {"200", "400", "401", "413", "415", "429", "500"} | ({"503"} if path.endswith("answer") else set())
    assert set(operation["responses"]) == statuses
    assert {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} == set(
        operation["responses"]["200"]["headers"]
    )
    for status in statuses - {"200"}:
        response = operation["responses"][status]
        content = response["content"]["application/json"]
        assert content["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
        for example in content["examples"].values():
            assert f"`{example['value']['error']['code']}`" in response["description"]
            Draft202012Validator({**content["schema"], "components": document["components"]}).validate(example["value"])


def test_the_document_as_a_whole(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1") and document["info"]["version"] == "0.0.test"
    schemes = document["components"]["securitySchemes"]
    assert schemes["bearer"] == {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
    assert {tag["name"] for tag in document["tags"]} == {*(surface.tag.name for surface in SURFACES), "health"}
    known = tuple(path for surface in SURFACES for path in surface.paths)
    assert {*PATHS, "/health/live", "/health/ready"} <= set(document["paths"])
    assert all(path.startswith(("/health/", *known)) for path in document["paths"])
    used = {
        name
        for path in document["paths"].values()
        for each in path.values()
        for way in each.get("security", ())
        for name in way
    }
    assert used == set(schemes)
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


def test_the_documents_example_request_works(client: httpx.Client, document: dict[str, Any]) -> None:
    schema = document["components"]["schemas"]["SearchRequest"]
    assert schema["required"] == ["query_text"] and schema["properties"]["top_k"]["oneOf"][0]["default"] == 8
    [example] = schema["examples"]
    Draft202012Validator({**schema, "components": document["components"]}).validate(example)
    assert client.post("/api/rag/search", json=example).status_code == 200


def test_a_parameter_that_is_not_declared_is_refused_under_api_v1(client: httpx.Client) -> None:
    lax = [
        path
        for surface in SURFACES
        for handler in surface.handlers
        for path in handler.paths
        if path.startswith("/api/v1/") and declared_alone not in (handler.guards or ())
    ]
    assert lax == []
    for path in ("/api/v1/jobs?colour=red", "/api/v1/sources?index=book&colour=red"):
        refused = client.get(path)
        assert refused.status_code == 400 and "colour" in refused.text


def test_a_parameter_that_is_missing_or_refused_is_named(client: httpx.Client) -> None:
    missing = client.delete("/api/v1/sources?filter=author=x").json()["error"]
    assert (missing["message"], missing["details"]["field"]) == ("index: is required", "index")
    month = client.get("/api/v1/admin/usage?month=May").json()["error"]
    assert (month["message"], month["details"]["field"]) == ("month: must be a month such as 2026-01", "month")
