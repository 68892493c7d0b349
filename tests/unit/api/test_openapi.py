"""`python -m tests.openapi` sees what a client would notice, and no text."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from tests.openapi import build_document, facts


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build_document()


def fields(part: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The properties of the objects in a part of the document."""
    if isinstance(part, dict):
        if "type" in part:
            yield from part.get("properties", {}).items()
        part = [each for name, each in part.items() if name not in ("example", "examples")]
    for each in part if isinstance(part, list) else ():
        yield from fields(each)


def test_no_field_has_a_default_and_a_requests_field_tells_it(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert [name for name, field in fields(schemas) if "default" in field] == []
    size = schemas["SearchRequest"]["properties"]["top_k"]
    assert size["description"] == "a whole number from 1 to 50; 8 by default"
    assert "top_k" not in schemas["SearchRequest"]["required"]
    assert "default" not in str(schemas["OwnerAskRequest"]["properties"]["min_similarity"]["oneOf"])
    for name in ("understood", "removed_sentences", "courtesy"):
        assert "by default" not in schemas["AnswerResponse"]["properties"][name]["description"]


def test_each_schema_has_a_type_and_each_reference_a_schema(document: dict[str, Any]) -> None:
    written = str(document)
    assert "$defs" not in written
    schemas = document["components"]["schemas"]
    assert {"UploadBody", "PutBody", "DocumentBody", "MetadataFilters", "MetadataFilter"} <= schemas.keys()
    nested = schemas["MetadataFilters"]["properties"]["filters"]["items"]["anyOf"]
    assert {"$ref": "#/components/schemas/MetadataFilters"} in nested
    for name in ("IndexFilters", "RetrievalFilters"):
        kinds = schemas[name]["properties"]["date_from"]["anyOf"]
        assert [each["type"] for each in kinds] == ["string", "string", "null"]


def test_headers_are_declared(document: dict[str, Any]) -> None:
    def sent(path: str, method: str) -> set[str]:
        return {each["name"] for each in document["paths"][path][method]["parameters"] if each["in"] == "header"}

    sources = "/api/v1/sources"
    assert sent(sources, "post") == {"Idempotency-Key", "Prefer"}
    for path in (sources, f"{sources}/{{source_id}}"):
        assert sent(path, "put") == {"Idempotency-Key", "If-Match", "If-None-Match"}
    for path, method in (
        (f"{sources}/{{source_id}}", "patch"),
        (f"{sources}/{{source_id}}", "delete"),
        (sources, "delete"),
    ):
        assert sent(path, method) == {"If-Match"}
    assert sent("/api/lexybrain/rag", "post") == {"Prefer"}
    assert sent("/api/lexybrain/threads/{thread_id}/answer", "get") == {"Last-Event-ID"}
    queued = document["paths"][sources]["post"]["responses"]["202"]["headers"]
    assert {"Location", "Idempotency-Replayed"} <= queued.keys()
    for path in document["paths"].values():
        for operation in path.values():
            responses = operation["responses"]
            assert all("Retry-After" in responses[each]["headers"] for each in ("429", "503") if each in responses)
    for path in (sources, f"{sources}/{{source_id}}"):
        assert "409" in document["paths"][path]["put"]["responses"]
    progress = document["paths"]["/api/v1/jobs/{job_id}/events"]["get"]["responses"]["200"]["content"]
    assert progress == {"text/event-stream": {"schema": {"type": "string"}}}


def test_documents_differ_in_what_is_sent_and_returned_not_in_texts(document: dict[str, Any]) -> None:
    document = deepcopy(document)
    ask = document["paths"]["/owner/ask"]["post"]
    told = deepcopy(document)
    told["paths"]["/owner/ask"]["post"]["summary"] = told["info"]["title"] = "other words"
    assert facts(told) == facts(document)
    ask["responses"]["418"] = {"description": "a teapot"}
    assert facts(document) - facts(told) == {"/.owner.ask/post/responses/418"}
