"""The contracts' own examples, typed as their authors wrote them, against `rag-app serve` and on the default vector store.

What comes back has the fields and types of the example, and no others but those named in ADDED.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from rag_app.application import Application
from rag_app.console.demo import load_samples
from tests.conftest import ON_DEFAULT_STORE, NewPostgres
from tests.contract.test_owner_qa import commands, sent
from tests.integration.service import bearer, configured, prepare
from tests.integration.test_cli import serving
from tests.waiting import PATIENCE

INDEXES = ("org_knowledge", "book", "salon_calls", "marketplace")
ADDED = {
    "basis",
    "problem",
    "grounded",
    "source_id",
    "external_id",
    "file_name",
    "row",
    "sheet",
    "link",
    "section",
    "page",
    "metadata",
    "externalId",
    "passages",
    "fileName",
}
"""What we say and an example does not: how relevance was judged, what was wrong with a request, whether claims were
compared with their sources, where a hit is from, and the passage of each claim. Each surface's fields.toml lists its own."""


@dataclass(frozen=True)
class Served:
    store: str
    client: httpx.Client
    token: Mapping[str, str]
    key: Mapping[str, str]


@dataclass(frozen=True)
class Example:
    """A request of a contract and the response it shows; where it shows none, the status alone."""

    seed: str
    name: str
    path: str
    body: str | None
    status: int
    shows: str | None = None
    credential: Callable[[Served], Mapping[str, str]] = lambda served: served.token


SEARCHED = """{"status": "success", "query_text": "", "results": [{"chunk_id": "", "source_id": "", "score": 0.87,
    "snippet": "", "source_type": "", "source_title": "", "source_uri": "", "meta": {}, "rank": 1}], "total_found": 8,
    "processing_time_ms": 142}"""
ANSWERED = """{"status": "success", "query_text": "", "answer": {"text": "", "confidence": "high",
    "model": "google/gemini-2.5-flash", "generated_at": ""}, "citations": [{"source_id": "", "source_type": "",
    "source_title": "", "source_uri": "", "snippet": "", "relevance_score": 0.87, "meta": {}}],
    "context_used": {"chunks_retrieved": 8, "unique_sources": 3, "avg_relevance": 0.81}, "processing_time_ms": 1847}"""
RESULT = """{"chunk_id": "chunk_abc123", "content": "", "source_url": "", "section_title": "", "page_number": 15,
    "similarity_score": 0.85, "rank": 1}"""
METADATA = '"search_metadata": {"total_results": 2, "search_time_ms": 120, "query_embedding_dimension": 1024}'
METRICS = '"precision_at_k": {"5": 0.8, "10": 0.75}, "recall_at_k": {"5": 0.6, "10": 0.7}, "mrr": 0.72, "hit_rate": 1.0'
QUERIED = f'{{"query_id": "query_12345", "query_text": "", "results": [{RESULT}], {METADATA}}}'
VALIDATED = f"""{{"query_id": "query_12345", "query_text": "", "results": [{RESULT}], "validation_metrics": {{{METRICS},
    "avg_similarity_score": 0.78, "total_results": 2, "relevant_results": 2, "calculated_at": "2025-12-20T10:30:00Z"}},
    {METADATA}}}"""
VALIDATION = f"""{{"validation_id": "validation_67890", "total_queries": 2, "results": [{{"query_id": "", "query_text": "",
    "retrieved_chunks": ["chunk_abc123"], "relevant_retrieved": 2, "total_expected": 2, "metrics": {{{METRICS}}}}}],
    "aggregate_metrics": {{"avg_precision_at_5": 0.8, "avg_recall_at_5": 0.6, "overall_mrr": 0.72, "hit_rate": 1.0}},
    "completed_at": "2025-12-20T10:30:00Z"}}"""
COLLECTIONS = """{"collections": [{"name": "rag_embedding", "vector_size": 1024, "distance": "Cosine",
    "point_count": 1500, "created_at": "2025-12-15T09:00:00Z"}]}"""
INVALID = """{"error": {"code": "INVALID_QUERY", "message": "Query text is required and must be between 1 and 2000
    characters", "details": {"field": "query", "value": ""}}}"""
UNAUTHORIZED = '{"error": {"code": "UNAUTHORIZED", "message": "Invalid or missing API key"}}'
OWNER_SEARCHED = """{"results": [{"id": "", "source_type": "call_transcript", "source_id": "", "booking_id": null,
    "call_id": "", "chunk_index": 0, "content": "", "customer_id": 42, "stylist_id": 5,
    "created_at": "2026-01-10T14:30:00Z", "similarity": 0.7823}], "query": "", "total": 3}"""
OWNER_ASKED = """{"answer": "", "sources": [{"chunk_id": "", "source_type": "call_transcript", "source_id": "",
    "booking_id": null, "call_id": "", "excerpt": "", "similarity": 0.7234, "created_at": "2026-01-10T14:30:00Z"}],
    "has_sufficient_evidence": true, "query": "", "chunks_retrieved": 8, "chunks_above_threshold": 5}"""

CHATTED = """{"threadId": "", "messageId": "", "answer": "", "capability": "market_brief", "sources": [{"id": "",
    "type": "keyword", "label": "vintage wedding rings", "score": 0.92}], "references": {"keywords": [""],
    "listings": [], "alerts": [], "docs": []}, "model": {"id": "meta-llama/Llama-3.1-70B-Instruct", "usage":
    {"inputTokens": 1847, "outputTokens": 312}, "latencyMs": 3421}, "flags": {"usedRag": true,
    "fallbackToGeneric": false, "insufficientContext": false}}"""
NOT_SAID = '{"error": {"code": "validation_error", "message": "", "retryable": false}}'
NOT_SIGNED_IN = '{"error": {"code": "authentication_required", "message": "Please sign in", "retryable": false}}'


def key(served: Served) -> Mapping[str, str]:
    return served.key


def nobody(served: Served) -> Mapping[str, str]:
    return {}


EXAMPLES = [
    Example("000", "search, curl", "/functions/v1/rag-search", """{
    "query_text": "What did the customer say about pricing?",
    "top_k": 5,
    "filters": {
      "source_type": "transcript",
      "date_from": "2025-01-01T00:00:00Z"
    }
  }""", 200, SEARCHED),
    Example("000", "answer, curl", "/functions/v1/rag-answer", """{
    "query_text": "Summarize customer feedback on our new feature",
    "top_k": 10,
    "filters": {
      "source_type": "email"
    }
  }""", 200, ANSWERED),
    Example("000", "search by its own path", "/api/rag/search", '{"query_text": "pricing"}', 200, SEARCHED),
    Example("000", "an answer", "/api/rag/answer", '{"query_text": "What did the customer say about pricing?"}', 200, ANSWERED),
    Example("000", "insufficient context", "/api/rag/answer", '{"query_text": "boiling point of nitrogen"}', 200, ANSWERED),
    Example("000", "400: empty query_text", "/api/rag/search", '{"query_text": ""}', 400),
    Example("000", "401: no token", "/api/rag/search", '{"query_text": "pricing"}', 401, credential=nobody),
    Example("002", "the appendix", "/api/lexybrain/rag", """{
  "threadId": null,
  "message": "What are the top trending keywords in the wedding niche on Etsy right now?",
  "capability": "market_brief",
  "context": {
    "marketplaces": ["etsy"]
  },
  "options": {
    "maxTokens": 1024,
    "temperature": 0.7
  },
  "meta": {
    "client": "web",
    "version": "1.0"
  }
}""", 200, CHATTED),
    Example("002", "by an API key", "/api/lexybrain/rag", '{"message": "Explain the trademark alert"}', 200, CHATTED, key),
    Example("002", "422", "/api/lexybrain/rag", '{"message": ""}', 422, NOT_SAID),
    Example("002", "401", "/api/lexybrain/rag", '{"message": "a"}', 401, NOT_SIGNED_IN, nobody),
    Example("003", "query", "/api/v1/retrieval/query", """{
  "query": "What is the main concept of embodied AI?",
  "top_k": 5,
  "threshold": 0.3,
  "collection_name": "rag_embedding",
  "validate": false
}""", 200, QUERIED, key),
    Example("003", "query, curl and Python", "/api/v1/retrieval/query", """{
    "query": "What is the main concept of embodied AI?",
    "top_k": 5,
    "threshold": 0.5,
    "validate": true
  }""", 200, VALIDATED, key),
    Example("003", "validate", "/api/v1/retrieval/validate", """{
  "queries": [
    {
      "query": "What is the main concept of embodied AI?",
      "expected_chunks": ["chunk_abc123", "chunk_xyz789"]
    },
    {
      "query": "Explain robot navigation algorithms",
      "expected_chunks": ["chunk_def456"]
    }
  ],
  "top_k": 10
}""", 200, VALIDATION, key),
    Example("003", "collections", "/api/v1/retrieval/collections", None, 200, COLLECTIONS, key),
    Example("003", "400", "/api/v1/retrieval/query", '{"query": ""}', 400, INVALID, key),
    Example("003", "401", "/api/v1/retrieval/query", '{"query": "a"}', 401, UNAUTHORIZED, nobody),
    Example("004", "search", "/owner/search", """{
    "query": "customer complaints about pricing",
    "limit": 10,
    "min_similarity": 0.35,
    "source_types": ["call_transcript", "call_summary"],
    "date_from": "2026-01-01",
    "date_to": "2026-01-15",
    "stylist_id": 5,
    "customer_id": null
}""", 200, OWNER_SEARCHED, nobody),
    Example("004", "ask", "/owner/ask", """{
    "question": "What did customers say about wait times this week?",
    "limit": 5,
    "min_similarity": 0.35,
    "date_from": "2026-01-08",
    "date_to": "2026-01-15"
}""", 200, OWNER_ASKED, nobody),
]  # fmt: skip


@pytest.fixture(scope="module")
def urls(new_database: NewPostgres) -> tuple[str, str]:
    """A database of its own: the samples have public sources, which other tests would find."""
    server = new_database()
    return server.owner_url, server.app_url


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def served(
    request: pytest.FixtureRequest, urls: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """`rag-app serve` over the sample corpora, with aurora as the default organization, as the demo runs it."""
    folder = tmp_path_factory.mktemp("examples")

    async def load(application: Application) -> tuple[str, str]:
        application.indexes = {name: application.indexes[name] for name in INDEXES}
        assert await load_samples(application) == []
        aurora = await application.people.organization("aurora")
        user = await application.people.create_user(f"examples-{uuid4().hex}")
        await application.people.add_member(aurora, user)
        _, made = await application.keys.create(aurora, "examples", None)
        return str(user.id), made

    variables = {
        "RAG_DATABASE_OWNER_URL": urls[0],
        "RAG_DATABASE_URL": urls[1],
        "RAG_HOME": str(folder / "home"),
        "RAG_VECTOR_STORE": request.param,
        "QDRANT_PATH": str(folder / "qdrant"),
        "RAG_DEFAULT_ORGANIZATION": "aurora",
        "RAG_LOG_LEVEL": "info",
    }
    with configured(variables):
        user, made = prepare(load)
        with serving(folder) as (_, url, _log), httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
            yield Served(request.param, client, bearer(user), {"Authorization": f"Bearer {made}"})


def differences(shown: Any, given: Any, at: str = "$") -> list[str]:
    """Where `given` is not of the shape of `shown`: other fields, other types. A list is compared by its first element."""
    if isinstance(shown, dict) and isinstance(given, dict):
        if not shown:  # any object
            return []
        names = [f"{at}.{name}" for name in shown.keys() ^ given.keys() if name not in ADDED]
        return names + [
            each
            for name in shown.keys() & given.keys()
            for each in differences(shown[name], given[name], f"{at}.{name}")
        ]
    if isinstance(shown, list) and isinstance(given, list):
        return differences(shown[0], given[0], f"{at}[0]") if shown and given else []
    if shown is None or given is None:
        return []
    number = (int, float)
    alike = isinstance(given, number if isinstance(shown, number) else type(shown)) and isinstance(
        given, bool
    ) == isinstance(shown, bool)
    return [] if alike else [f"{at}: {given!r} where the example has {shown!r}"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: f"{each.seed} {each.name}")
def test_an_example_gives_what_it_shows(
    example: Example, served: Served, record_property: Callable[[str, object], None]
) -> None:
    headers = {**example.credential(served), "Content-Type": "application/json"}
    method = "GET" if example.body is None else "POST"
    response = served.client.request(method, example.path, content=example.body, headers=headers)
    print(f"| {example.seed} | {example.name} | {served.store} | {response.status_code} |")
    assert response.status_code == example.status, response.text
    if example.shows is not None:
        given = response.json()
        if "aggregate_metrics" in given:  # more of the same: at 10, and at the k that was asked for
            given["aggregate_metrics"] = {
                name: given["aggregate_metrics"][name] for name in json.loads(VALIDATION)["aggregate_metrics"]
            }
        assert not differences(json.loads(" ".join(example.shows.split())), given), response.text
        found = next((value for value in given.values() if isinstance(value, list)), [True])
        assert found or example.status != 200, "an example with nothing in it shows nothing"
    if example.seed == "003" and example.status == 400:
        assert response.json()["error"]["message"] == " ".join(
            json.loads(" ".join(INVALID.split()))["error"]["message"].split()
        )


def test_insufficient_context_is_said_in_the_contracts_words(served: Served) -> None:
    body = {"query_text": "boiling point of nitrogen"}
    given = served.client.post("/api/rag/answer", json=body, headers=dict(served.token)).json()
    assert given["status"] == "insufficient_context"
    assert given["answer"]["model"] is None and given["answer"]["confidence"] == "low"
    assert given["answer"]["text"].startswith("I don't have enough relevant information to answer this question")


def test_the_appendix_of_002_is_answered_from_keywords(served: Served) -> None:
    [example] = [each for each in EXAMPLES if each.name == "the appendix"]
    given = served.client.post(
        example.path, content=example.body, headers={**served.token, "Content-Type": "application/json"}
    ).json()
    assert given["capability"] == "market_brief" and given["model"]["id"] == "extractive"
    assert {"keyword"} <= {each["type"] for each in given["sources"]} <= {"keyword", "doc"} and len(
        given["sources"]
    ) <= 12
    assert "[Source 1]" in given["answer"] and given["references"]["keywords"]
    sources = {each["id"] for each in given["sources"]}
    assert {each for ids in given["references"].values() for each in ids} <= sources
    assert given["flags"]["usedRag"] is True and given["flags"]["fallbackToGeneric"] is False
    assert given["flags"]["insufficientContext"] is (len(sources) < 5)
    kept = served.client.get(f"/api/lexybrain/threads/{given['threadId']}", headers=dict(served.token)).json()
    assert [each["content"] for each in kept["messages"]] == [
        json.loads(example.body or "")["message"],
        given["answer"],
    ]
    assert kept["messages"][1]["id"] == given["messageId"] and kept["metadata"]["client"] == "web"


def test_the_four_curl_commands_of_004(served: Served) -> None:
    replies = [sent(command, str(served.client.base_url).rstrip("/")) for command in commands()]
    for number, reply in enumerate(replies, 1):
        print(f"| 004 | test {number}, curl | {served.store} | {reply.status_code} |")
    assert [reply.status_code for reply in replies] == [200] * 4
    services, haircut, customer, weather = [reply.json() for reply in replies]
    assert services["has_sufficient_evidence"] and haircut["results"] and customer["has_sufficient_evidence"]
    assert weather["answer"].startswith("No relevant data found") and weather["sources"] == []
