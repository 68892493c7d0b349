"""The contract of `/api/rag`, to the letter: what it shows must come back, in these shapes and with these names."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec.structs import replace

from rag_app.domain.answer import Answer, Citation, Confidence, Hit, Mode, Refusal
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal
from rag_app.domain.source import JsonObject
from rag_app.http.surface import example
from rag_app.retrieval.filters import any_of, condition, none_of
from tests.contract.conftest import Backstage, Validate

SEARCH = ["/api/rag/search", "/functions/v1/rag-search"]
ANSWER = ["/api/rag/answer", "/functions/v1/rag-answer"]
ASK = {"query_text": "What did the customer say about pricing?"}


INSUFFICIENT = (
    "I don't have enough relevant information to answer this question confidently. "
    "Here are the most relevant sources I found:"
)


def hit(score: float, source: UUID | None = None, **other: Any) -> Hit:
    made = Hit(
        chunk_id=uuid4(),
        source_id=source or uuid4(),
        org_id=UUID(int=7),
        text="The yearly plan is more than we can spend. " * 10,
        score=score,
        title="Call with Ada",
        source_type="transcript",
        lang="en",
        position=0,
        uri="https://calls.example/1",
        date=1736899200.0,
        section="Pricing",
        metadata={"call_sid": "CA1", "tags": ["pricing"]},
    )
    return replace(made, **other)


def answered(*hits: Hit, cited: tuple[Citation, ...] = (), **other: Any) -> Answer:
    made = Answer(
        text="They find the yearly plan too expensive [Source 1].",
        confidence=Confidence.MEDIUM,
        model="google/gemini-2.5-flash",
        generated_at=datetime(2025, 1, 15, 10, 30, tzinfo=UTC),
        hits=hits,
        citations=cited,
        average_relevance=0.81,
    )
    return replace(made, **other)


@pytest.mark.parametrize("path", SEARCH)
def test_search_answers_in_the_contracts_shape(
    path: str, client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    found = hit(0.87)
    backstage.pipeline.hits = (found,)

    response = client.post(path, json=ASK)

    assert response.status_code == 200
    body = response.json()
    assert isinstance(body.pop("processing_time_ms"), int)
    assert body == {
        "status": "success",
        "query_text": ASK["query_text"],
        "results": [
            {
                "chunk_id": str(found.chunk_id),
                "source_id": str(found.source_id),
                "score": 0.87,
                "snippet": found.text[:200],
                "source_type": "transcript",
                "source_title": "Call with Ada",
                "source_uri": "https://calls.example/1",
                "meta": {
                    "call_sid": "CA1",
                    "tags": ["pricing"],
                    "org_id": "00000000-0000-0000-0000-000000000007",
                    "date": "2025-01-15T00:00:00Z",
                    "section": "Pricing",
                    "link": f"/api/v1/sources/{found.source_id}?chunk={found.chunk_id}",
                },
                "rank": 1,
            }
        ],
        "total_found": 1,
    }
    validator(response)


def test_what_a_source_does_not_have_is_null_or_absent(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.hits = (hit(0.5, uri=None, date=None, section=None, metadata={}), hit(0.4, page=3, section=None))
    bare, paged = client.post("/api/rag/search", json=ASK).json()["results"]
    assert bare["source_uri"] is None and list(bare["meta"]) == ["org_id", "link"]
    assert paged["meta"]["page"] == 3


def test_results_keep_the_order_of_their_mode_and_scores_stay_between_0_and_1(
    client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.hits = tuple(hit(score) for score in (0.31, -0.2, 0.9, 1.0000001))  # as fusion ordered them
    results = client.post("/api/rag/search", json={**ASK, "mode": "hybrid"}).json()["results"]
    assert [result["score"] for result in results] == [0.31, 0.0, 0.9, 1.0]
    assert [result["rank"] for result in results] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("sent", "mode"),
    [
        ({}, Mode.DENSE),
        ({"mode": None}, Mode.DENSE),
        ({"mode": "dense"}, Mode.DENSE),
        ({"mode": "hybrid"}, Mode.HYBRID),
    ],
)
def test_a_search_is_dense_unless_the_request_says_hybrid(
    sent: JsonObject, mode: Mode, client: httpx.Client, backstage: Backstage
) -> None:
    assert client.post("/api/rag/search", json={**ASK, **sent}).status_code == 200
    assert client.post("/owner/search", json={"query": "?", **sent}).status_code == 200
    assert [question.mode for _, question, _ in backstage.pipeline.asked] == [mode, mode]


def test_another_mode_is_refused_and_answers_have_none(client: httpx.Client) -> None:
    for path, body in (("/api/rag/search", ASK), ("/owner/search", {"query": "?"})):
        refused = client.post(path, json={**body, "mode": "text"})
        assert refused.status_code == 400 and "mode: must be one of dense, hybrid" in refused.text
    assert client.post("/api/rag/answer", json={**ASK, "mode": "hybrid"}).status_code == 400


def test_search_passes_on_what_was_asked_and_who_asks(client: httpx.Client, backstage: Backstage) -> None:
    user, organization = uuid4(), uuid4()
    backstage.people.known["ada"] = Principal("ada", user, frozenset({organization}))
    # the example request of the contract
    sent = example("rag_app.surfaces.knowledge", "request").value
    assert client.post("/functions/v1/rag-search", json=sent).status_code == 200

    [(index, question, scope)] = backstage.pipeline.asked
    assert index == "org_knowledge"
    assert (question.text, question.top_k) == ("What did the customer say about pricing?", 5)
    assert question.filters == (
        condition("source_type", "==", "transcript"),
        condition("date", ">=", datetime(2025, 1, 1, tzinfo=UTC).timestamp()),
    )
    assert scope.user == user and scope.organizations == {organization, PUBLIC_ORGANIZATION} and scope.site is None


def test_nothing_found_is_a_success(client: httpx.Client) -> None:
    foreign = {**ASK, "filters": {"org_id": str(uuid4())}}
    response = client.post("/api/rag/search", json=foreign)
    assert response.status_code == 200
    assert response.json()["results"] == [] and response.json()["total_found"] == 0


def test_all_filters_become_conditions(client: httpx.Client, backstage: Backstage) -> None:
    organization = uuid4()
    filters = {
        "source_type": "email",
        "lang": "fr",
        "org_id": str(organization).upper(),
        "date_from": "20250101",
        "date_to": "2025-01-31",
    }
    assert client.post("/api/rag/search", json={**ASK, "filters": filters}).status_code == 200
    assert backstage.pipeline.asked[0][1].filters == (
        condition("source_type", "==", "email"),
        condition("lang", "==", "fr"),
        condition("org_id", "==", str(organization)),
        condition("date", ">=", datetime(2025, 1, 1, tzinfo=UTC).timestamp()),
        condition("date", "<=", datetime.combine(date(2025, 1, 31), time.max, UTC).timestamp()),
    )


WHERE = {
    "filters": [
        {"key": "lang", "operator": "!=", "value": "en"},
        {"filters": [{"key": "thread_id", "operator": "is_empty"}], "condition": "not"},
    ],
    "condition": "or",
}


def test_where_is_one_group_beside_the_other_filters(client: httpx.Client, backstage: Backstage) -> None:
    filters = {"source_type": "email", "where": WHERE}
    assert client.post("/api/rag/search", json={**ASK, "filters": filters}).status_code == 200
    assert backstage.pipeline.asked[0][1].filters == (
        condition("source_type", "==", "email"),
        any_of([condition("lang", "!=", "en"), none_of([condition("thread_id", "is_empty")])]),
    )


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ({}, "where"),
        ([], "where"),
        ({"filters": []}, "where.filters: must be a list of at least one"),
        ({"filters": [{"key": "lang", "op": "=="}]}, "where.filters[0].op: unknown field"),
        ({"filters": [WHERE], "condition": "xor"}, "where.condition: must be one of and, or, not"),
        ({"filters": [{"filters": [WHERE]}]}, "groups may be nested at most 3 deep"),
    ],
)
def test_where_is_refused_with_its_place(client: httpx.Client, where: object, problem: str) -> None:
    response = client.post("/api/rag/search", json={**ASK, "filters": {"where": where}})
    assert response.status_code == 400 and problem in response.text


def test_the_document_describes_where(anonymous: httpx.Client) -> None:
    components = anonymous.get("/openapi.json").json()["components"]
    for name in ("RetrievalFilters", "OwnerSearchRequest", "OwnerAskRequest"):
        (group,) = [
            each for each in components["schemas"][name]["properties"]["where"]["oneOf"] if each.get("type") != "null"
        ]
        described = Draft202012Validator({**group, "components": components})
        described.validate(WHERE)
        unknown = {"key": "lang", "operator": "like"}
        wrong: list[JsonObject] = [{}, {"filters": []}, {"filters": [unknown]}, {"filters": [{"filters": [unknown]}]}]
        assert not any(described.is_valid(each) for each in wrong)


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2025-01-01t00:00:00z", "2025-01-01T00:00:00+00:00"),
        ("2025-01-01T00:00:00", "2025-01-01T00:00:00+00:00"),
        ("2025-01-01T01:00:00.5+01:00", "2025-01-01T00:00:00.500000+00:00"),
        ("0001-01-01T14:00:00+14:00", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59+00:00"),
        ("9999-12-31", "9999-12-31T00:00:00+00:00"),
    ],
)
def test_moments_may_be_written_as_rfc_3339_has_them(
    written: str, moment: str, client: httpx.Client, backstage: Backstage
) -> None:
    assert client.post("/api/rag/search", json={**ASK, "filters": {"date_from": written}}).status_code == 200
    assert backstage.pipeline.asked[0][1].filters == (
        condition("date", ">=", datetime.fromisoformat(moment).timestamp()),
    )


@pytest.mark.parametrize(
    "body",
    [
        ASK,
        {**ASK, "top_k": None, "filters": None},
        {**ASK, "filters": {}},
        {**ASK, "filters": {"source_type": None, "lang": None, "org_id": None, "date_from": None, "date_to": None}},
    ],
)
def test_null_is_the_same_as_absent(body: dict[str, Any], client: httpx.Client, backstage: Backstage) -> None:
    assert client.post("/api/rag/search", json=body).status_code == 200
    question = backstage.pipeline.asked[0][1]
    assert question.top_k == 8 and question.filters == ()


@pytest.mark.parametrize("text", ["?", "x" * 500, "語" * 500, "  a question \n"])
def test_query_text_is_echoed_as_sent_and_asked_without_blanks_around_it(
    text: str, client: httpx.Client, backstage: Backstage
) -> None:
    response = client.post("/api/rag/search", json={"query_text": text})
    assert response.status_code == 200 and response.json()["query_text"] == text
    assert backstage.pipeline.asked[0][1].text == text.strip()


@pytest.mark.parametrize("top_k", [1, 50])
def test_top_k_reaches_from_1_to_50(top_k: int, client: httpx.Client, backstage: Backstage) -> None:
    assert client.post("/api/rag/search", json={**ASK, "top_k": top_k}).status_code == 200
    assert backstage.pipeline.asked[0][1].top_k == top_k


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "application/ld+json", None]
)
def test_json_is_json_under_any_of_its_names(content_type: str | None, client: httpx.Client) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    assert client.post("/api/rag/search", content=b'{"query_text": "?"}', headers=headers).status_code == 200


@pytest.mark.parametrize("path", ANSWER)
def test_answer_with_sufficient_context(
    path: str, client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    first, second, third = hit(0.87), hit(0.82), hit(0.74)
    backstage.pipeline.given = answered(
        first, second, third, cited=(Citation(1, first, "more than we can spend", 19, 41),)
    )

    response = client.post(path, json=ASK)

    assert response.status_code == 200
    body = response.json()
    assert isinstance(body.pop("processing_time_ms"), int)
    assert body == {
        "status": "success",
        "query_text": ASK["query_text"],
        "answer": {
            "text": "They find the yearly plan too expensive [Source 1].",
            "confidence": "medium",
            "model": "google/gemini-2.5-flash",
            "generated_at": "2025-01-15T10:30:00Z",
        },
        "citations": [
            {
                "source_id": str(first.source_id),
                "source_type": "transcript",
                "source_title": "Call with Ada",
                "source_uri": "https://calls.example/1",
                "snippet": "more than we can spend",
                "relevance_score": 0.87,
                "meta": {
                    "call_sid": "CA1",
                    "tags": ["pricing"],
                    "org_id": "00000000-0000-0000-0000-000000000007",
                    "date": "2025-01-15T00:00:00Z",
                    "section": "Pricing",
                    "link": f"/api/v1/sources/{first.source_id}?chunk={first.chunk_id}",
                    "chunk_id": str(first.chunk_id),
                    "span": "19-41",
                },
            }
        ],
        "context_used": {"chunks_retrieved": 3, "unique_sources": 3, "avg_relevance": 0.81},
    }
    validator(response)


@pytest.mark.parametrize("path", ANSWER)
def test_answer_with_insufficient_context(
    path: str, client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    one, other = uuid4(), uuid4()
    hits = (hit(0.40, one), hit(0.47, other), hit(0.44, one))
    # refused for want of a valid citation, whatever the scores were
    backstage.pipeline.given = answered(
        *hits,
        text=INSUFFICIENT,
        model=None,
        refusal=Refusal.WEAK,
        confidence=Confidence.MEDIUM,
        average_relevance=0.4367,
    )

    response = client.post(path, json=ASK)

    assert response.status_code == 200
    body = response.json()
    assert body["status"] == "insufficient_context"
    assert body["answer"] == {
        "text": INSUFFICIENT,
        "confidence": "low",
        "model": None,
        "generated_at": "2025-01-15T10:30:00Z",
    }
    assert [(each["source_id"], each["relevance_score"]) for each in body["citations"]] == [
        (str(other), 0.47),
        (str(one), 0.44),
    ]
    assert {each["snippet"] for each in body["citations"]} == {hits[0].text[:200]}
    assert body["context_used"] == {"chunks_retrieved": 3, "unique_sources": 2, "avg_relevance": 0.4367}
    validator(response)


def test_nothing_at_all_found_is_insufficient_context(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered(text=INSUFFICIENT, model=None, refusal=Refusal.WEAK, average_relevance=0.0)
    body = client.post("/api/rag/answer", json=ASK).json()
    assert body["status"] == "insufficient_context" and body["citations"] == []
    assert body["context_used"] == {"chunks_retrieved": 0, "unique_sources": 0, "avg_relevance": 0.0}


def test_a_citation_is_as_relevant_as_the_best_chunk_of_its_source(client: httpx.Client, backstage: Backstage) -> None:
    source, elsewhere = uuid4(), uuid4()
    quoted, best, lone = hit(0.35, source, page=3), hit(0.61, source, page=1), hit(0.5, elsewhere)
    cited = Citation(1, quoted, "so it says on page 3"), Citation(2, replace(lone, score=0.9), "of no hit")
    backstage.pipeline.given = answered(best, quoted, lone, cited=cited)

    citations = client.post("/api/rag/answer", json=ASK).json()["citations"]

    assert [(each["snippet"], each["relevance_score"], each["meta"].get("page")) for each in citations] == [
        ("so it says on page 3", 0.61, 3),
        ("of no hit", 0.9, None),
    ]


def test_metadata_may_be_nested_and_do_not_pose_as_fields_of_ours(
    client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    ours = dict.fromkeys(("chunk_id", "span", "section", "page", "row", "sheet", "link", "org_id", "file_name"), "mine")
    sent = {"nested": {"a": [1, None]}, "nums": [1, 2], **ours}
    backstage.pipeline.hits = (hit(0.5, section=None, untyped=sent),)
    response = client.post("/api/rag/search", json=ASK)
    validator(response)
    meta = response.json()["results"][0]["meta"]
    assert (meta["nested"], meta["nums"]) == ({"a": [1, None]}, [1, 2]) and "mine" not in meta.values()
    assert not {"chunk_id", "span", "section", "page"} & meta.keys()


def test_citations_are_at_most_five(client: httpx.Client, backstage: Backstage) -> None:
    hits = [hit(0.7) for _ in range(6)]
    cited = [Citation(number, each, f"quote {number}") for number, each in enumerate(hits, 1)]
    backstage.pipeline.given = answered(*hits, cited=tuple(cited))
    citations = client.post("/api/rag/answer", json=ASK).json()["citations"]
    assert [each["snippet"] for each in citations] == ["quote 1", "quote 2", "quote 3", "quote 4", "quote 5"]


def test_snippets_of_a_refusal_are_at_most_five(client: httpx.Client, backstage: Backstage) -> None:
    hits = [hit(score / 10) for score in range(8)]
    backstage.pipeline.given = answered(
        *hits, text=INSUFFICIENT, model=None, refusal=Refusal.WEAK, average_relevance=-0.1
    )
    body = client.post("/api/rag/answer", json=ASK).json()
    assert [each["relevance_score"] for each in body["citations"]] == [0.7, 0.6, 0.5, 0.4, 0.3]
    assert body["context_used"]["avg_relevance"] == 0.0


def test_generated_at_is_utc(client: httpx.Client, backstage: Backstage) -> None:
    paris = timezone(timedelta(hours=1))
    backstage.pipeline.given = answered(generated_at=datetime(2025, 1, 15, 10, 30, tzinfo=paris))
    assert client.post("/api/rag/answer", json=ASK).json()["answer"]["generated_at"] == "2025-01-15T09:30:00Z"


def test_answer_takes_the_contracts_example(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered()
    example = {
        "query_text": "Summarize customer feedback on our new feature",
        "top_k": 10,
        "filters": {"source_type": "email"},
    }
    assert client.post("/functions/v1/rag-answer", json=example).status_code == 200
    [(capability, question, _)] = backstage.pipeline.asked
    assert capability == "knowledge_answer"
    assert question.top_k == 10 and question.filters == (condition("source_type", "==", "email"),)
