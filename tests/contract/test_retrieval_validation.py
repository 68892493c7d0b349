"""The contract of `/api/v1/retrieval`, to the letter: what it shows must come back, in these shapes and with these names."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import Insert, delete, insert, select

from rag_app.access.tokens import issue_token
from rag_app.documents.generations import Generation
from rag_app.documents.tables import sources_table
from rag_app.domain.answer import Hit
from rag_app.domain.errors import EmbeddingFailed, InvalidInput, StoreFailed
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.evaluation.tables import judgments_table, validations_table
from rag_app.http.surface import example
from rag_app.retrieval.index import load_indexes
from rag_app.surfaces.validation.types import ExpectedQuery, ValidationRequest
from tests.contract.conftest import AUDIENCE, ISSUER, SECRET, TABLES, Backstage, ScriptedStore, Tables, Validate

QUERY, VALIDATE, COLLECTIONS, RUNS = (
    f"/api/v1/retrieval/{name}" for name in ("query", "validate", "collections", "validations")
)
ASK = {"query": "What is the main concept of embodied AI?"}
KEY, OTHER_KEY, ONE_INDEX = ("rag_" + letter * 43 for letter in "abc")
ORG, OTHER_ORG = UUID(int=7), UUID(int=8)
USER = UUID(int=70)
BOOK = load_indexes(resource_folder("indexes"))["book"]
NOTES = BOOK.model_copy(update={"name": "notes", "aliases": []})
TEXT = "Embodied AI refers to artificial intelligence systems that interact with the physical world."


def hit(score: float, **other: Any) -> Hit:
    made = Hit(
        chunk_id=uuid4(),
        source_id=uuid4(),
        org_id=PUBLIC_ORGANIZATION,
        text=TEXT,
        score=score,
        title="Chapter 1",
        source_type="chapter",
        lang="en",
        position=0,
        uri="https://physical-ai-book-topaz.vercel.app/chapter-1",
        section="Introduction to Embodied AI",
        page=15,
    )
    return replace(made, **other)


@pytest.fixture(scope="module")
def built(tables: Tables) -> Iterator[Generation]:
    """Of the book; a row says so for its runs."""
    [(made,)] = tables.fetch(
        "INSERT INTO generations (index_name, store, number, embedding_model, dimension, state, settings)"
        " VALUES ('book', 'nowhere', 1, 'minilm', 384, 'retired', '{}') RETURNING id"
    )
    moment = datetime(2025, 12, 15, 9, 0, 0, 1, tzinfo=UTC)
    yield Generation(made, "book", "postgres", 1, "minilm", 384, "active", {}, moment)
    tables.fetch("DELETE FROM generations WHERE id = $1", made)


@pytest.fixture
def key(anonymous: httpx.Client, backstage: Backstage, built: Generation) -> Iterator[httpx.Client]:
    """A program with a valid key; the book and some notes can be searched."""
    backstage.shelf.add(BOOK, built, ScriptedStore(1500))
    backstage.shelf.add(NOTES, replace(built, created_at=datetime(2026, 1, 1, tzinfo=UTC)), ScriptedStore())
    backstage.keys.known = {
        KEY: Principal("key:1", USER, frozenset({ORG})),
        OTHER_KEY: Principal("key:2", UUID(int=80), frozenset({OTHER_ORG})),
        ONE_INDEX: Principal("key:3", UUID(int=90), frozenset({ORG}), frozenset({"notes"})),
    }
    anonymous.headers["Authorization"] = f"Bearer {KEY}"
    yield anonymous
    if backstage.validations.asked:
        for org in (ORG, OTHER_ORG):
            TABLES.change(
                Scope(frozenset({org})),
                *(delete(table).where(table.c.org_id == org) for table in (validations_table, sources_table)),
            )


def source(number: int, *passages: dict[str, object]) -> Insert:
    """One of the organization's; its id is the number."""
    return insert(sources_table).values(
        id=UUID(int=number), org_id=ORG, index="book", external_id=str(number), title="Chapter 1", lang="en",
        source_type="chapter", metadata={}, untyped={}, origin="", visibility="team", version="1",
        content=[*passages],
    )  # fmt: skip


def judgment(number: int, start: int | None = None, text: str | None = None) -> Insert:
    """That this text of a source, or all of it, answers the question."""
    end = None if start is None else start + len(text or "")
    asked = ASK["query"].casefold()
    return insert(judgments_table).values(
        org_id=ORG, index_name="book", query=asked, source_id=UUID(int=number), start=start, end=end, text=text
    )


def as_key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error in the envelope, after a look at the envelope itself."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) <= {"code", "message", "details"}
    assert body["error"]["code"] == code and body["error"]["message"]
    error: dict[str, Any] = body["error"]
    return error


def moment(text: str) -> datetime:
    assert text.endswith("Z")
    return datetime.fromisoformat(text)


# -- query


def opened(hit: Hit) -> dict[str, Any]:
    """What is ours beside the contract's fields: the source's names, and what opens the passage."""
    source = {"source_id": str(hit.source_id), "external_id": None, "file_name": None, "row": None, "sheet": None}
    return {**source, "link": hit.link, "metadata": dict(hit.metadata)}


def test_a_query_answers_in_the_contracts_shape(key: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    best, second = hit(0.85), hit(0.78, uri=None, section=None, page=None)
    backstage.pipeline.hits = (best, second)
    # the example request of the contract
    response = key.post(QUERY, json=example("rag_app.surfaces.validation", "query").value)

    assert response.status_code == 200, response.text
    body = response.json()
    assert list(body) == ["query_id", "query_text", "results", "search_metadata"]
    query_id = body.pop("query_id")
    assert query_id.startswith("query_") and len(query_id) == 18 and int(query_id[6:], 16) >= 0
    assert isinstance(body["search_metadata"].pop("search_time_ms"), int)
    assert body == {
        "query_text": ASK["query"],
        "results": [
            {
                "chunk_id": str(best.chunk_id),
                "content": TEXT,
                "source_url": "https://physical-ai-book-topaz.vercel.app/chapter-1",
                "section_title": "Introduction to Embodied AI",
                "page_number": 15,
                "similarity_score": 0.85,
                "rank": 1,
                **opened(best),
            },
            {
                "chunk_id": str(second.chunk_id),
                "content": TEXT,
                "source_url": "",
                "section_title": None,
                "page_number": None,
                "similarity_score": 0.78,
                "rank": 2,
                **opened(second),
            },
        ],
        "search_metadata": {"total_results": 2, "query_embedding_dimension": 384},
    }
    validator(response)
    [(index, question, scope)] = backstage.pipeline.asked
    assert index == "book" and (question.text, question.threshold, question.filters) == (ASK["query"], 0.3, ())
    assert scope.organizations == {ORG, PUBLIC_ORGANIZATION} and scope.user == USER
    assert backstage.validations.asked == []


def test_the_defaults_of_the_contract(key: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.hits = tuple(hit(0.9 - n / 20) for n in range(10))
    body = key.post(QUERY, json=ASK).json()
    assert len(body["results"]) == body["search_metadata"]["total_results"] == 5
    [(index, question, _)] = backstage.pipeline.asked
    assert (index, question.threshold, question.top_k) == ("book", None, 10)
    nulls = key.post(QUERY, json={**ASK, **dict.fromkeys(("top_k", "threshold", "collection_name", "validate"))}).json()
    assert nulls["results"] == body["results"] and set(nulls) == set(body)


@pytest.mark.parametrize(("top_k", "fetched"), [(1, 10), (10, 10), (20, 20)])
def test_as_many_as_metrics_need_are_retrieved_and_as_many_as_asked_for_returned(
    top_k: int, fetched: int, key: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.hits = tuple(hit(0.9 - n / 40) for n in range(fetched))
    for validate in (True, False):
        body = key.post(QUERY, json={**ASK, "top_k": top_k, "validate": validate}).json()
        assert [result["chunk_id"] for result in body["results"]] == [
            str(each.chunk_id) for each in backstage.pipeline.hits[:top_k]
        ]
    assert {(question.top_k, question.fetch) for _, question, _ in backstage.pipeline.asked} == {(fetched, None)}


@pytest.mark.parametrize(("threshold", "fetch"), [(None, None), (0, None), (0.01, 100), (1, 100)])
def test_what_a_threshold_cuts_makes_room_for_what_follows(
    threshold: float | None, fetch: int | None, key: httpx.Client, backstage: Backstage
) -> None:
    assert key.post(QUERY, json={**ASK, "threshold": threshold}).status_code == 200
    [(_, question, _)] = backstage.pipeline.asked
    assert (question.threshold, question.top_k, question.fetch) == (threshold or None, 10, fetch)


def test_the_fused_order_is_kept_and_scores_stay_between_0_and_1(key: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.hits = tuple(hit(score) for score in (0.31, 1.0000001, -0.2, 0.9))
    results = key.post(QUERY, json=ASK).json()["results"]
    assert [each["similarity_score"] for each in results] == [0.31, 1.0, 0.0, 0.9]
    assert [each["rank"] for each in results] == [1, 2, 3, 4]


def test_figures_without_judgments_rest_on_the_threshold_of_the_index(
    key: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    backstage.pipeline.hits = tuple(hit(score) for score in (0.43, 0.6, 0.44, 0.2, 0.1, 0.5, 0.3))
    response = key.post(QUERY, json={**ASK, "top_k": 3, "validate": True})
    validator(response)
    body = response.json()
    assert list(body) == ["query_id", "query_text", "results", "validation_metrics", "search_metadata"]
    metrics = body["validation_metrics"]
    assert abs(moment(metrics.pop("calculated_at")) - datetime.now(UTC)) < timedelta(minutes=1)
    assert metrics == {
        "precision_at_k": {"3": 0.6667, "5": 0.4, "10": 0.3},
        "recall_at_k": {"3": None, "5": None, "10": None},
        "mrr": 0.5,
        "hit_rate": 1.0,
        "avg_similarity_score": 0.49,
        "total_results": 3,
        "relevant_results": 2,
        "basis": "threshold",
    }


def test_figures_of_nothing(key: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    response = key.post(QUERY, json={**ASK, "validate": True})
    validator(response)
    metrics = response.json()["validation_metrics"]
    assert metrics["precision_at_k"] == {"5": 0.0, "10": 0.0}
    assert (metrics["mrr"], metrics["hit_rate"], metrics["avg_similarity_score"]) == (0.0, 0.0, 0.0)
    assert (metrics["total_results"], metrics["relevant_results"]) == (0, 0)


def test_figures_with_judgments_count_passages(key: httpx.Client, backstage: Backstage) -> None:
    """Of three judged passages two are found, one of them by two chunks; the best hit is of a judged source but elsewhere."""
    words = "alpha beta gamma delta epsilon zeta"
    chapter, whole = UUID(int=1), UUID(int=2)
    TABLES.change(
        Scope(frozenset({ORG})),
        source(1, {"text": words, "section": "Introduction to Embodied AI", "page": 15}),
        *(source(2, {"text": "anything"}), source(3, {"text": "Something else."})),
        *(judgment(1, words.index("gamma"), "gamma delta "), judgment(2), judgment(3, 0, "Something")),
    )
    backstage.pipeline.hits = (
        hit(0.9, source_id=chapter, text="alpha beta"),
        hit(0.1, source_id=chapter, text="gamma delta"),
        hit(0.8),
        hit(0.1, source_id=whole, text="anything"),
        hit(0.1, source_id=chapter, text="beta gamma delta epsilon zeta"),
        hit(0.7, source_id=chapter, text="ta epsilon zeta"),  # less than half of the judged passage
    )
    metrics = key.post(QUERY, json={**ASK, "top_k": 2, "validate": True}).json()["validation_metrics"]
    assert metrics["basis"] == "judgments"
    assert metrics["precision_at_k"] == {"2": 0.5, "5": 0.6, "10": 0.3}
    assert metrics["recall_at_k"] == {"2": 0.3333, "5": 0.6667, "10": 0.6667}
    assert (metrics["mrr"], metrics["hit_rate"], metrics["relevant_results"]) == (0.5, 1.0, 1)


# -- validate


def test_a_validation_answers_in_the_contracts_shape(
    key: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    a, x, b = backstage.pipeline.hits = (hit(0.9), hit(0.8), hit(0.7))
    other = "Explain robot navigation algorithms"
    asked = {
        "queries": [
            {**ASK, "expected_chunks": [str(a.chunk_id), str(b.chunk_id).upper()]},
            {"query": other, "expected_chunks": ["chunk_def456", str(uuid4()), "chunk_def456"]},
        ],
        "top_k": 10,
    }
    response = key.post(VALIDATE, json=asked)
    assert response.status_code == 200, response.text
    validator(response)
    body = response.json()
    assert list(body) == ["validation_id", "total_queries", "results", "aggregate_metrics", "completed_at"]
    assert body["validation_id"].startswith("validation_")
    assert abs(moment(body["completed_at"]) - datetime.now(UTC)) < timedelta(minutes=1)
    first, second = body["results"]
    assert first.pop("query_id").startswith("query_") and first.pop("query_text") == ASK["query"]
    assert first == {
        "retrieved_chunks": [str(each.chunk_id) for each in (a, x, b)],
        "relevant_retrieved": 2,
        "total_expected": 2,
        "metrics": {
            "precision_at_k": {"5": 0.4, "10": 0.2},
            "recall_at_k": {"5": 1.0, "10": 1.0},
            "mrr": 1.0,
            "hit_rate": 1.0,
        },
    }
    assert (second["query_text"], second["relevant_retrieved"], second["total_expected"]) == (other, 0, 2)
    assert second["metrics"] == {
        "precision_at_k": {"5": 0.0, "10": 0.0}, "recall_at_k": {"5": 0.0, "10": 0.0}, "mrr": 0.0, "hit_rate": 0.0,
    }  # fmt: skip
    assert body["total_queries"] == 2
    assert body["aggregate_metrics"] == {
        "avg_precision_at_5": 0.2, "avg_recall_at_5": 0.5, "avg_precision_at_10": 0.1, "avg_recall_at_10": 0.5,
        "overall_mrr": 0.5, "hit_rate": 0.5,
    }  # fmt: skip


def test_figures_at_10_look_further_than_the_top_k(key: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.hits = tuple(hit(0.5) for _ in range(10))
    late = str(backstage.pipeline.hits[6].chunk_id)
    body = key.post(VALIDATE, json={"queries": [{**ASK, "expected_chunks": [late]}], "top_k": 3}).json()
    [result] = body["results"]
    assert len(result["retrieved_chunks"]) == 3 and result["relevant_retrieved"] == 0
    assert result["metrics"] == {
        "precision_at_k": {"3": 0.0, "5": 0.0, "10": 0.1}, "recall_at_k": {"3": 0.0, "5": 0.0, "10": 1.0},
        "mrr": 0.0, "hit_rate": 0.0,
    }  # fmt: skip
    assert set(body["aggregate_metrics"]) == {
        *(f"avg_{figure}_at_{k}" for figure in ("precision", "recall") for k in (3, 5, 10)), "overall_mrr", "hit_rate",
    }  # fmt: skip


def test_expected_chunks_become_judged_passages(key: httpx.Client, backstage: Backstage) -> None:
    found, stored, foreign = hit(0.9, source_id=UUID(int=1)), hit(0.0, source_id=UUID(int=2)), hit(0.9)
    backstage.pipeline.hits, backstage.shelf.known["book"][2].stored = (found, foreign), {stored.chunk_id: stored}
    content: list[dict[str, object]] = [
        {"text": "Elsewhere.", "section": "Preface", "page": 1},
        {"text": f"First. {TEXT}", "section": found.section, "page": found.page},
    ]
    TABLES.change(Scope(frozenset({ORG})), source(1, *content), source(2, {"text": "Since then it was written anew."}))
    ids = [str(each.chunk_id) for each in (found, stored, foreign)]
    key.post(VALIDATE, json={"queries": [{**ASK, "expected_chunks": [*ids, str(uuid4()), "chunk_1", ids[0]]}]})
    start = len("Elsewhere.\n\nFirst. ")
    judged = TABLES.read(
        Scope(frozenset({ORG})),
        select(judgments_table.c.source_id, judgments_table.c.start, judgments_table.c.end).order_by(
            judgments_table.c.source_id
        ),
    )
    assert [tuple(each) for each in judged] == [
        (UUID(int=1), start, start + len(TEXT)),
        (UUID(int=2), None, None),
    ], "the last one belongs to a source that cannot be judged"


def run(key: httpx.Client, backstage: Backstage, hits: Sequence[Hit], expected: Sequence[Hit], **other: Any) -> Any:
    backstage.pipeline.hits = tuple(hits)
    queries = [{**ASK, "expected_chunks": [str(each.chunk_id) for each in expected]}]
    response = key.post(VALIDATE, json={"queries": queries, **other})
    assert response.status_code == 200, response.text
    return response.json()


def test_a_run_is_given_back_as_it_was_answered(key: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    hits = [hit(0.9) for _ in range(3)]
    body = run(key, backstage, hits, hits[1:])
    backstage.pipeline.hits = ()
    response = key.get(f"{RUNS}/{body['validation_id']}")
    validator(response)
    assert response.json() == body and list(response.json()) == list(body)


def test_two_runs_are_compared(key: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    a, b, c, d = [hit(0.9) for _ in range(4)]
    before = run(key, backstage, [a, b, c], [c, d], top_k=3)["validation_id"]
    backstage.pipeline.hits = (c, a, d)
    after = key.post(
        VALIDATE,
        json={
            "queries": [
                {**ASK, "expected_chunks": [str(c.chunk_id), str(d.chunk_id)]},
                {"query": "asked only now", "expected_chunks": ["x"]},
            ]
        },
    ).json()["validation_id"]
    response = key.get(f"{RUNS}/{after}", params={"against": before})
    validator(response)
    assert response.json()["comparison"] == {
        "against": before,
        "aggregate_metrics": {
            "avg_precision_at_5": 0.0, "avg_recall_at_5": 0.0, "avg_precision_at_10": 0.0, "avg_recall_at_10": 0.0,
            "overall_mrr": 0.1667, "hit_rate": -0.5,
        },
        "queries": [
            {
                "query_text": ASK["query"],
                "metrics": {
                    "precision_at_5": 0.2, "precision_at_10": 0.1, "recall_at_5": 0.5, "recall_at_10": 0.5,
                    "mrr": 0.6667, "hit_rate": 0.0,
                },
                "gained": [str(d.chunk_id)],
                "lost": [str(b.chunk_id)],
            }
        ],
    }  # fmt: skip


def test_runs_are_listed_newest_first_and_page_by_page(
    key: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    made = [run(key, backstage, [hit(0.9)], [hit(0.1)], top_k=k) for k in (1, 2, 3)]
    seen: list[dict[str, Any]] = []
    parameters: dict[str, Any] = {"limit": 2}
    while True:
        response = key.get(RUNS, params=parameters)
        validator(response)
        page = response.json()
        seen += page["validations"]
        if page["next"] is None:
            break
        parameters["before"] = page["next"]
    assert [each["top_k"] for each in seen] == [3, 2, 1]
    assert seen[2] == {
        "collection_name": "book",
        "top_k": 1,
        **{name: made[0][name] for name in ("validation_id", "total_queries", "aggregate_metrics", "completed_at")},
    }
    assert key.get(RUNS, params={"before": seen[-1]["validation_id"]}).json() == {"validations": [], "next": None}


def test_a_run_of_others_is_none(key: httpx.Client, backstage: Backstage) -> None:
    mine = run(key, backstage, [], [hit(0.1)])["validation_id"]
    key.headers.update(as_key(OTHER_KEY))
    theirs = run(key, backstage, [], [hit(0.1)])["validation_id"]
    for response in (
        key.get(f"{RUNS}/{mine}"),
        key.get(f"{RUNS}/validation_{uuid4().hex}"),
        key.get(f"{RUNS}/nonsense"),
        key.get(f"{RUNS}/{theirs}", params={"against": mine}),
        key.get(f"{RUNS}/{theirs}", params={"against": ""}),
        key.get(RUNS, params={"before": mine}),
        key.get(RUNS, params={"before": "\0"}),
    ):
        problem(response, 404, "NOT_FOUND")
    assert [each["validation_id"] for each in key.get(RUNS).json()["validations"]] == [theirs]


# -- collections


def test_collections_are_listed_by_every_name_they_have(
    key: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    response = key.get(COLLECTIONS)
    validator(response)
    book = {"vector_size": 384, "distance": "Cosine", "point_count": 1500, "created_at": "2025-12-15T09:00:00Z"}
    assert response.json() == {
        "collections": [
            {"name": "rag_embedding", **book},
            {"name": "book", **book},
            {
                "name": "notes", "vector_size": 384, "distance": "Cosine", "point_count": 0,
                "created_at": "2026-01-01T00:00:00Z",
            },
        ]
    }  # fmt: skip
    assert [each["name"] for each in key.get(COLLECTIONS, headers=as_key(ONE_INDEX)).json()["collections"]] == ["notes"]


def test_a_collection_goes_by_its_alias_and_its_name(key: httpx.Client, backstage: Backstage) -> None:
    for name in ("rag_embedding", "book", "notes"):
        assert key.post(QUERY, json={**ASK, "collection_name": name}).status_code == 200
    run(key, backstage, [], [hit(0.1)], collection_name="notes")
    assert [index for index, _, _ in backstage.pipeline.asked] == ["book", "book", "notes", "notes"]


@pytest.mark.parametrize(("path", "body"), [(QUERY, ASK), (VALIDATE, {"queries": [{**ASK, "expected_chunks": ["x"]}]})])
def test_an_unknown_collection_and_one_that_the_key_is_not_bound_to(
    path: str, body: dict[str, Any], key: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    problem(key.post(path, json=body, headers=as_key(ONE_INDEX)), 404, "COLLECTION_NOT_FOUND")
    for name in ("boook", "", "x" * 101, "x" * 100_000, "\0"):
        response = key.post(path, json={**body, "collection_name": name})
        error = problem(response, 404, "COLLECTION_NOT_FOUND")
        assert error["details"]["field"] == "collection_name" and error["message"].startswith("collection_name: no ")
        assert error["details"]["value"] == (name if len(name) < 200 else name[:200] + "...")
        assert len(response.content) < 1000
        validator(response)
    assert not backstage.pipeline.asked


# -- errors


def test_the_example_of_a_400_is_to_the_letter(key: httpx.Client) -> None:
    error = problem(key.post(QUERY, json={"query": ""}), 400, "INVALID_QUERY")
    assert error["message"] == "Query text is required and must be between 1 and 2000 characters"
    assert (error["details"]["field"], error["details"]["value"]) == ("query", "")


@pytest.mark.parametrize(
    ("path", "body", "field", "value"),
    [
        (QUERY, {}, "query", None),
        (QUERY, {"query": None}, "query", None),
        (QUERY, {"query": " \n\u00a0"}, "query", " \n\u00a0"),
        (QUERY, {"query": "x" * 2001}, "query", "x" * 200 + "..."),
        (QUERY, {"query": 5}, "query", 5),
        (QUERY, {"query": ["a"]}, "query", ["a"]),
        (VALIDATE, {"queries": [{"expected_chunks": ["x"]}]}, "queries[0].query", None),
        (
            VALIDATE,
            {"queries": [{**ASK, "expected_chunks": ["x"]}, {"query": "", "expected_chunks": ["x"]}]},
            "queries[1].query",
            "",
        ),
    ],
)
def test_a_query_that_is_not_accepted(
    path: str, body: dict[str, Any], field: str, value: Any, key: httpx.Client, backstage: Backstage
) -> None:
    error = problem(key.post(path, json=body), 400, "INVALID_QUERY")
    assert error["details"] == {
        "field": field, "value": value, "problem": "must be a text of 1 to 2000 characters, not all of them blank",
    }  # fmt: skip
    assert not backstage.pipeline.asked


def test_a_nul_is_named_and_not_taken_for_a_length(key: httpx.Client) -> None:
    error = problem(key.post(QUERY, json={"query": "a\0b"}), 400, "INVALID_PARAMETERS")
    assert "without a NUL character" in error["message"]


CASE = {**ASK, "expected_chunks": ["x"]}


@pytest.mark.parametrize(
    ("path", "body", "field", "value", "says"),
    [
        (QUERY, {**ASK, "top_k": 0}, "top_k", 0, "from 1 to 20"),
        (QUERY, {**ASK, "top_k": 21}, "top_k", 21, "from 1 to 20"),
        (QUERY, {**ASK, "top_k": "5"}, "top_k", "5", "from 1 to 20"),
        (QUERY, {**ASK, "top_k": True}, "top_k", True, "from 1 to 20"),
        (QUERY, {**ASK, "top_k": -(10**30)}, "top_k", -(10**30), "from 1 to 20"),
        (QUERY, {**ASK, "threshold": -0.1}, "threshold", -0.1, "from 0 to 1"),
        (QUERY, {**ASK, "threshold": 1.01}, "threshold", 1.01, "from 0 to 1"),
        (QUERY, {**ASK, "threshold": "0.5"}, "threshold", "0.5", "from 0 to 1"),
        (QUERY, {**ASK, "collection_name": 5}, "collection_name", 5, "name of a collection"),
        (QUERY, {**ASK, "validate": "true"}, "validate", "true", "true or false"),
        (QUERY, {**ASK, "topk": 5}, "topk", 5, "unknown field"),
        (QUERY, {**ASK, "a.b": 5}, "a.b", 5, "unknown field"),
        (VALIDATE, {}, "queries", None, "1 to 500"),
        (VALIDATE, {"queries": []}, "queries", [], "1 to 500"),
        (VALIDATE, {"queries": [CASE] * 501}, "queries", ..., "1 to 500"),
        (VALIDATE, {"queries": [ASK]}, "queries[0].expected_chunks", None, "list of 1 to 100 chunk ids"),
        (VALIDATE, {"queries": [{**ASK, "expected_chunks": []}]}, "queries[0].expected_chunks", [], "1 to 100"),
        (VALIDATE, {"queries": [{**ASK, "expected_chunks": "x"}]}, "queries[0].expected_chunks", "x", "1 to 100"),
        (VALIDATE, {"queries": [{**ASK, "expected_chunks": [5]}]}, "queries[0].expected_chunks[0]", 5, "a text"),
        (VALIDATE, {"queries": [{**CASE, "x": 1}]}, "queries[0].x", 1, "unknown field"),
        (VALIDATE, {"queries": ["x"]}, "queries[0]", "x", "object"),
        (VALIDATE, {"queries": [CASE], "top_k": 101}, "top_k", 101, "from 1 to 100"),
        (VALIDATE, {"queries": [CASE], "top_k": 0}, "top_k", 0, "from 1 to 100"),
    ],
)
def test_a_parameter_that_is_not_accepted(
    path: str, body: dict[str, Any], field: str, value: Any, says: str, key: httpx.Client, backstage: Backstage
) -> None:
    response = key.post(path, json=body)
    error = problem(response, 400, "INVALID_PARAMETERS")
    details = error["details"]
    assert details["field"] == field and error["message"].startswith(field) and says in details["problem"]
    assert value is ... or details["value"] == value
    assert len(response.content) < 1000
    assert not backstage.pipeline.asked


def test_unknown_fields_are_told_what_there_is(key: httpx.Client) -> None:
    error = problem(key.post(QUERY, json={**ASK, "topk": 5}), 400, "INVALID_PARAMETERS")
    assert error["details"]["accepted"] == ["collection_name", "query", "threshold", "top_k", "validate"]


@pytest.mark.parametrize("limit", ["0", "101", "five", "", "1.5"])
def test_a_page_of_runs_has_bounds(limit: str, key: httpx.Client) -> None:
    error = problem(key.get(RUNS, params={"limit": limit}), 400, "INVALID_PARAMETERS")
    assert (error["details"]["field"], error["details"]["value"]) == ("limit", limit)


@pytest.mark.parametrize("content", [b"", b"{", b'{"query": "\xff"}', b"[]", b"null", b'{"query": ' + b"[" * 5000])
def test_a_body_that_cannot_be_read(content: bytes, key: httpx.Client) -> None:
    response = key.post(QUERY, content=content, headers={"Content-Type": "application/json"})
    code = "INVALID_QUERY" if b"[[" in content else "INVALID_PARAMETERS"
    error = problem(response, 400, code)
    assert ("details" in error) == (code == "INVALID_QUERY")


@pytest.mark.parametrize(("method", "path"), [("POST", QUERY), ("POST", VALIDATE), ("GET", COLLECTIONS), ("GET", RUNS)])
@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer rag_" + "z" * 43},
        {"Authorization": "Bearer YOUR_API_KEY"},
        {"Authorization": f"Bearer {issue_token('ada', SECRET, audience=AUDIENCE, issuer=ISSUER)}"},
    ],
)
def test_without_a_valid_key(
    method: str, path: str, sent: dict[str, str], key: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    del key.headers["Authorization"]
    response = key.request(method, path, json=ASK if method == "POST" else None, headers=sent)
    assert response.json() == {"error": {"code": "UNAUTHORIZED", "message": "Invalid or missing API key"}}
    assert response.status_code == 401
    validator(response)


def test_no_such_path_method_size_or_type(key: httpx.Client) -> None:
    for path in ("/api/v1/retrieval/nothing", "/api/v1/retrieval", "/api/v1/nothing", "/api/v1/"):
        problem(key.post(path, json=ASK), 404, "NOT_FOUND")
    response = key.get(QUERY)
    problem(response, 405, "METHOD_NOT_ALLOWED")
    assert "POST" in response.headers["allow"]
    problem(key.post(QUERY, content=b" " * 1_000_001), 413, "PAYLOAD_TOO_LARGE")
    problem(key.post(QUERY, data=ASK), 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (EmbeddingFailed("sk-123"), "EMBEDDING_ERROR", "An error occurred during embedding generation"),
        (StoreFailed("sk-123"), "DATABASE_ERROR", "An error occurred during the database query"),
        (RuntimeError("sk-123"), "INTERNAL_ERROR", "An internal error occurred during retrieval"),
        (ExceptionGroup("sk-123", [ValueError()]), "INTERNAL_ERROR", "An internal error occurred during retrieval"),
    ],
)
@pytest.mark.parametrize(("path", "body"), [(QUERY, ASK), (VALIDATE, {"queries": [CASE, CASE, CASE]})])
def test_failures_have_codes_and_keep_their_secrets(
    path: str,
    body: dict[str, Any],
    raised: Exception,
    code: str,
    message: str,
    key: httpx.Client,
    backstage: Backstage,
    validator: Validate,
) -> None:
    backstage.pipeline.error = raised
    response = key.post(path, json=body)
    assert response.status_code == 500
    assert response.json() == {"error": {"code": code, "message": message}}
    validator(response)
    assert "record" not in dict(backstage.validations.asked)


def test_what_the_index_refuses_is_a_400(key: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.error = InvalidInput("query", object(), "is odd")
    error = problem(key.post(QUERY, json=ASK), 400, "INVALID_PARAMETERS")
    assert error["details"]["field"] == "query" and "object" in error["details"]["value"]


def test_a_hundred_requests_a_minute_over_all_paths(key: httpx.Client) -> None:
    def ask(number: int) -> httpx.Response:
        return key.get(COLLECTIONS) if number % 2 else key.post(QUERY, json=ASK)

    responses = [ask(number) for number in range(101)]
    assert [int(each.headers["x-ratelimit-remaining"]) for each in responses] == [*range(99, -1, -1), 0]
    assert {each.status_code for each in responses[:100]} == {200}
    problem(responses[100], 429, "RATE_LIMIT_EXCEEDED")
    assert 0 < int(responses[100].headers["retry-after"]) <= 61


def test_each_query_of_a_run_takes_a_place(key: httpx.Client, backstage: Backstage) -> None:
    def run(queries: int) -> httpx.Response:
        return key.post(VALIDATE, json={"queries": [CASE] * queries})

    assert [int(run(queries).headers["x-ratelimit-remaining"]) for queries in (1, 40)] == [99, 59]
    whole = run(500)
    assert (whole.status_code, whole.headers["x-ratelimit-remaining"]) == (200, "0"), (
        "it need not wait for an empty log"
    )
    problem(key.post(QUERY, json=ASK), 429, "RATE_LIMIT_EXCEEDED")
    backstage.limiter.now += 60
    left = int(key.post(QUERY, json=ASK).headers["x-ratelimit-remaining"])
    assert left == 57, "the 42 places that were not free are those of the next minute"


async def test_other_work_goes_on_between_the_queries_of_a_run(backstage: Backstage, key: httpx.Client) -> None:
    service: Any = backstage.services()["validation"]
    turns, searches = 0, list[int]()

    async def search(*_: object) -> tuple[Hit, ...]:  # as one that finds everything in memory, and never waits
        searches.append(turns)
        return ()

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    service._pipeline = SimpleNamespace(search=search)
    beside = asyncio.create_task(others())
    run = ValidationRequest([ExpectedQuery(f"query {number}", ["x"]) for number in range(20)])
    await service.validate(Principal("key:1", USER, frozenset({ORG})), run)
    beside.cancel()
    assert len(set(searches)) >= 5, "four queries are under way between two turns of the others"


def test_a_key_and_an_organization_have_limits_of_their_own(key: httpx.Client, backstage: Backstage) -> None:
    def limit() -> str:
        return str(key.post(QUERY, json=ASK).headers["x-ratelimit-limit"])

    TABLES.fetch("UPDATE organizations SET requests_per_minute = 500, concurrent_requests = 2 WHERE id = $1", ORG)
    try:
        assert limit() == "500"
        backstage.leases.take(f"retrieval_validation:{USER}", 2)
        assert (
            "2 of your requests are running"
            in problem(key.post(QUERY, json=ASK), 429, "CONCURRENCY_LIMIT_EXCEEDED")["message"]
        )
        TABLES.fetch("UPDATE api_keys SET requests_per_minute = 7, concurrent_requests = 3 WHERE user_id = $1", USER)
        assert limit() == "7" and key.post(QUERY, json=ASK).status_code == 200
    finally:
        TABLES.fetch(
            "UPDATE organizations SET requests_per_minute = NULL, concurrent_requests = NULL WHERE id = $1", ORG
        )
    assert limit() == "7"


def test_ten_requests_at_once(key: httpx.Client, backstage: Backstage) -> None:
    who = f"retrieval_validation:{USER}"
    backstage.leases.take(who, 10)
    response = key.post(QUERY, json=ASK)
    problem(response, 429, "CONCURRENCY_LIMIT_EXCEEDED")
    assert response.headers["retry-after"] == "1"
    backstage.leases.give_back_one()
    assert key.post(QUERY, json=ASK).status_code == 200


def test_the_document_shows_the_examples_in_this_envelope(key: httpx.Client) -> None:
    operation = key.get("/openapi.json").json()["paths"][QUERY]["post"]
    shown = operation["responses"]["400"]["content"]["application/json"]["examples"]
    codes = [each["value"]["error"]["code"] for each in shown.values()]
    assert codes == ["INVALID_QUERY", "INVALID_PARAMETERS", "INVALID_PARAMETERS"]
    assert json.dumps(operation["responses"]["401"]).count("UNAUTHORIZED") == 2


def test_the_document_says_what_is_refused(key: httpx.Client) -> None:
    schemas = key.get("/openapi.json").json()["components"]["schemas"]
    for name in ("RetrievalQuery", "ValidationRequest", "ExpectedQuery"):
        assert schemas[name]["additionalProperties"] is False
    threshold = schemas["RetrievalQuery"]["properties"]["threshold"]
    assert (threshold["minimum"], threshold["maximum"]) == (0, 1)


def test_what_of_a_query_is_cut_stands_beside_its_results(key: httpx.Client) -> None:
    assert "warnings" not in key.post(QUERY, json=ASK).json()
    assert key.post(QUERY, json={"query": "?" * 401}).json()["warnings"] == ["401 characters are many"]
