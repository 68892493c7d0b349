"""The contract of `/owner`, to the letter: what it shows must come back, in these shapes and with these names."""

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import pytest
from msgspec.structs import replace

from rag_app.access.tokens import TokenReader, issue_token
from rag_app.domain.answer import Answer, Citation, Confidence, Hit, Mode, Refusal
from rag_app.domain.errors import (
    EmbeddingFailed,
    ModelFailed,
    ModelLimited,
    ModelMalformed,
    ModelTimeout,
    RagError,
    StoreFailed,
)
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal
from rag_app.http.entrance import Entrance
from rag_app.http.server import api
from rag_app.http.surface import example
from rag_app.retrieval.filters import condition
from rag_app.surfaces.registry import SURFACES
from tests.contract.conftest import AUDIENCE, ISSUER, SECRET, Backstage, Validate, serve
from tests.contract.test_errors import problem
from tests.waiting import PATIENCE

CURL = (Path(__file__).parent / "owner_qa_examples.sh").read_text("utf-8")
"""The contract's testing examples as they stand in it: four commands."""

SEARCH, ASK = "/owner/search", "/owner/ask"
SEARCH_EXAMPLE: dict[str, Any]
ASK_EXAMPLE: dict[str, Any]
SEARCH_EXAMPLE, ASK_EXAMPLE = (cast(Any, example("rag_app.surfaces.owner", name).value) for name in ("search", "ask"))
FOUND = {SEARCH: {"query": "pricing"}, ASK: {"question": "pricing"}}
TEXT = {SEARCH: "query", ASK: "question"}
NEAR = "I found records that come close, but none of them answers this."
NOTHING = "No relevant data found in call transcripts or booking records for your question."
UNCITED = (
    "I found some potentially relevant information but cannot provide a reliable answer without proper source "
    "verification. Please try rephrasing your question or being more specific."
)
CHUNK = UUID("550e8400-e29b-41d4-a716-446655440000")
CALL = UUID("123e4567-e89b-12d3-a456-426614174000")


both = pytest.mark.parametrize("path", [SEARCH, ASK])


def commands(text: str = CURL) -> list[str]:
    return re.findall(r"^curl .+?'$", text, re.MULTILINE | re.DOTALL)


def sent(command: str, url: str) -> httpx.Response:
    """What the command does, at another address than it says, without asking for curl."""
    program, method, post, address, header, content_type, data, body = shlex.split(command.replace("\\\n", " "))
    assert (program, method, post, header, data) == ("curl", "-X", "POST", "-H", "-d")
    name, _, value = content_type.partition(": ")
    address = address.replace("http://localhost:8000", url)
    return httpx.post(address, headers={name: value}, content=body, timeout=PATIENCE, verify=False)


def hit(score: float = 0.7823, **other: Any) -> Hit:
    made = Hit(
        chunk_id=CHUNK,
        source_id=CALL,
        org_id=UUID(int=7),
        text="Customer: I was surprised by the final price...",
        score=score,
        title="Call",
        source_type="call_transcript",
        lang="en",
        position=0,
        date=datetime(2026, 1, 10, 14, 30, tzinfo=UTC).timestamp(),
        metadata={"call_id": str(CALL), "customer_id": 42, "stylist_id": 5, "customer": "Ada"},
    )
    return replace(made, **other)


def answered(*cited: Citation, **other: Any) -> Answer:
    made = Answer(
        text="One customer waited almost 15 minutes [Source 1]. Another was taken right away [Source 2].",
        confidence=Confidence.HIGH,
        model="gpt-4o-mini",
        generated_at=datetime(2026, 1, 15, 10, 30, tzinfo=UTC),
        hits=tuple(citation.hit for citation in cited),
        citations=cited,
        retrieved=8,
        above_threshold=5,
    )
    return replace(made, **other)


WAITED = Citation(1, hit(0.7234), "Customer: I had to wait almost 15 minutes...")
EARLY = Citation(
    2,
    hit(
        0.6891,
        chunk_id=UUID("661e8400-e29b-41d4-a716-446655440001"),
        source_id=UUID("234e4567-e89b-12d3-a456-426614174001"),
        metadata={"call_id": "234e4567-e89b-12d3-a456-426614174001"},
        date=datetime(2026, 1, 12, 10, 15, tzinfo=UTC).timestamp(),
    ),
    "Customer: I arrived early and they took me right away...",
)


def opened(chunk: str, source: str) -> dict[str, str | None]:
    """What is ours beside the contract's fields: the source's names, and what opens the passage."""
    return {
        "external_id": None,
        "file_name": None,
        "row": None,
        "sheet": None,
        "section": None,
        "page": None,
        "link": f"/api/v1/sources/{source}?chunk={chunk}",
    }


SOURCES = [
    {
        "chunk_id": "550e8400-e29b-41d4-a716-446655440000",
        "source_type": "call_transcript",
        "source_id": "123e4567-e89b-12d3-a456-426614174000",
        "booking_id": None,
        "call_id": "123e4567-e89b-12d3-a456-426614174000",
        "excerpt": "Customer: I had to wait almost 15 minutes...",
        "similarity": 0.7234,
        "created_at": "2026-01-10T14:30:00Z",
        **opened("550e8400-e29b-41d4-a716-446655440000", "123e4567-e89b-12d3-a456-426614174000"),
    },
    {
        "chunk_id": "661e8400-e29b-41d4-a716-446655440001",
        "source_type": "call_transcript",
        "source_id": "234e4567-e89b-12d3-a456-426614174001",
        "booking_id": None,
        "call_id": "234e4567-e89b-12d3-a456-426614174001",
        "excerpt": "Customer: I arrived early and they took me right away...",
        "similarity": 0.6891,
        "created_at": "2026-01-12T10:15:00Z",
        **opened("661e8400-e29b-41d4-a716-446655440001", "234e4567-e89b-12d3-a456-426614174001"),
    },
]


def test_search_takes_and_gives_the_contracts_example(
    client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    user, organization = uuid4(), uuid4()
    backstage.people.known["ada"] = Principal("ada", user, frozenset({organization}))
    backstage.pipeline.hits = (hit(),)

    response = client.post(SEARCH, json=SEARCH_EXAMPLE)

    assert response.status_code == 200
    assert response.json() == {
        "results": [
            {
                "id": "550e8400-e29b-41d4-a716-446655440000",
                "source_type": "call_transcript",
                "source_id": "123e4567-e89b-12d3-a456-426614174000",
                "booking_id": None,
                "call_id": "123e4567-e89b-12d3-a456-426614174000",
                "chunk_index": 0,
                "content": "Customer: I was surprised by the final price...",
                "customer_id": 42,
                "stylist_id": 5,
                "created_at": "2026-01-10T14:30:00Z",
                "similarity": 0.7823,
                **opened("550e8400-e29b-41d4-a716-446655440000", "123e4567-e89b-12d3-a456-426614174000"),
            }
        ],
        "query": "customer complaints about pricing",
        "total": 1,
    }
    validator(response)
    [(index, question, scope)] = backstage.pipeline.asked
    assert index == "salon_calls"
    assert (question.text, question.top_k, question.threshold) == (SEARCH_EXAMPLE["query"], 10, 0.35)
    assert question.mode is Mode.DENSE
    assert question.filters == (
        condition("source_type", "in", ("call_transcript", "call_summary")),
        condition("date", ">=", "2026-01-01"),  # days stay days: the index knows how long they are
        condition("date", "<=", "2026-01-15"),
        condition("stylist_id", "==", 5),
    )
    assert scope.user == user and scope.organizations == {organization, PUBLIC_ORGANIZATION}


def test_ask_takes_and_gives_the_contracts_example(
    client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    backstage.pipeline.given = answered(WAITED, EARLY)

    response = client.post(ASK, json=ASK_EXAMPLE)

    assert response.status_code == 200
    assert response.json() == {
        "answer": "One customer waited almost 15 minutes [Source 1]. Another was taken right away [Source 2].",
        "sources": SOURCES,
        "has_sufficient_evidence": True,
        "query": "What did customers say about wait times this week?",
        "chunks_retrieved": 8,
        "chunks_above_threshold": 5,
    }
    validator(response)
    [(capability, question, _)] = backstage.pipeline.asked
    assert capability == "owner_ask"
    assert (question.text, question.top_k, question.threshold) == (ASK_EXAMPLE["question"], 5, 0.35)
    assert question.filters == (
        condition("date", ">=", "2026-01-08"),
        condition("date", "<=", "2026-01-15"),
    )


@pytest.mark.parametrize(("path", "limit", "least"), [(SEARCH, 10, 0.3), (ASK, 5, 0.35)])
@pytest.mark.parametrize("null", [False, True])
def test_null_is_the_same_as_absent(
    path: str, limit: int, least: float, null: bool, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.given = answered()
    optional = (
        "limit", "min_similarity", "source_types", "date_from", "date_to", "stylist_id", "customer_id"
    )  # fmt: skip
    body = {**FOUND[path], **(dict.fromkeys(optional) if null else {})}
    assert client.post(path, json=body).status_code == 200
    question = backstage.pipeline.asked[0][1]
    assert (question.top_k, question.threshold, question.filters) == (limit, least, ())


def test_a_threshold_that_is_sent_is_told_from_the_default(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered()
    for body in ({}, {"min_similarity": None}, {"min_similarity": 0.35}):
        assert client.post(ASK, json={**FOUND[ASK], **body}).status_code == 200
    assert [each[1].threshold_sent for each in backstage.pipeline.asked] == [False, False, True]


@pytest.mark.parametrize(
    ("path", "limit", "fetch"),
    [(ASK, 1, 20), (ASK, 10, 20), (ASK, 11, 22), (ASK, 50, 100), (SEARCH, 1, 100), (SEARCH, 50, 100)],
)
def test_more_is_retrieved_than_wanted(
    path: str, limit: int, fetch: int, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.given = answered()
    mode = {"mode": "hybrid"} if path == SEARCH else {}
    assert client.post(path, json={**FOUND[path], "limit": limit, **mode}).status_code == 200
    question = backstage.pipeline.asked[0][1]
    assert (question.top_k, question.fetch) == (limit, fetch)


def test_a_follow_up_is_searched_in_full_and_with_the_question_before(
    client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.given = answered()
    for earlier in (["Who waited?", "What did Theo cost?"], [], None):
        assert client.post(ASK, json={"question": "And Aisha?", "earlier_questions": earlier}).status_code == 200
    followed, *alone = [question for _, question, _ in backstage.pipeline.asked]
    assert (followed.searched, followed.also) == ("What did Aisha cost?", ("What did Theo cost?\nAnd Aisha?",))
    assert [(each.searched, each.also, each.leans) for each in alone] == [(None, (), False)] * 2


@pytest.mark.parametrize(
    ("earlier", "field"),
    [("Who waited?", "earlier_questions"), ([1], "earlier_questions[0]"), ([" "], "earlier_questions[0]"),
     (["?"] * 21, "earlier_questions"), (["?", "x" * 4001], "earlier_questions[1]")],
)  # fmt: skip
def test_earlier_questions_that_are_none_are_refused(
    earlier: Any, field: str, client: httpx.Client, backstage: Backstage
) -> None:
    response = client.post(ASK, json={"question": "And Aisha?", "earlier_questions": earlier})
    details = problem(response, 400, "invalid_request")["details"]
    assert details["field"] == field
    assert isinstance(earlier, list) or "a list of" in details["problem"]
    assert backstage.pipeline.asked == []


@both
def test_every_filter_becomes_a_condition(path: str, client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered()
    body = {
        **FOUND[path],
        "source_types": ["booking_note"],
        "date_to": "2026-01-15",
        "stylist_id": 0,
        "customer_id": 42,
    }
    assert client.post(path, json=body).status_code == 200
    assert backstage.pipeline.asked[0][1].filters == (
        condition("source_type", "in", ("booking_note",)),
        condition("date", "<=", "2026-01-15"),
        condition("stylist_id", "==", 0),
        condition("customer_id", "==", 42),
    )


@both
@pytest.mark.parametrize("least", [0, 0.0, 1, 1.0])
def test_min_similarity_reaches_from_0_to_1(
    path: str, least: float, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.given = answered()
    assert client.post(path, json={**FOUND[path], "min_similarity": least}).status_code == 200
    assert backstage.pipeline.asked[0][1].threshold == least


@both
@pytest.mark.parametrize("text", ["?", "x" * 1000, "語" * 1000, "  a question \n"])
def test_the_text_is_echoed_as_sent_and_asked_without_blanks_around_it(
    path: str, text: str, client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.given = answered()
    assert client.post(path, json={TEXT[path]: text}).json()["query"] == text
    assert backstage.pipeline.asked[0][1].text == text.strip()


@pytest.mark.parametrize(
    ("said", "field", "says"),
    [
        ({"limit": 0}, "limit", "from 1 to 50"),
        ({"limit": 51}, "limit", "from 1 to 50"),
        ({"limit": 5.5}, "limit", "from 1 to 50"),
        ({"limit": "5"}, "limit", "from 1 to 50"),
        ({"limit": True}, "limit", "from 1 to 50"),
        ({"min_similarity": -0.01}, "min_similarity", "from 0 to 1"),
        ({"min_similarity": 1.01}, "min_similarity", "from 0 to 1"),
        ({"min_similarity": "0.5"}, "min_similarity", "from 0 to 1"),
        ({"source_types": []}, "source_types", "call_transcript, call_summary, booking_note"),
        ({"source_types": "call_transcript"}, "source_types", "call_transcript, call_summary, booking_note"),
        ({"source_types": ["call_summary", "email"]}, "source_types[1]", "call_transcript, call_summary, booking_note"),
        ({"source_types": [None]}, "source_types[0]", "call_transcript, call_summary, booking_note"),
        ({"date_from": "yesterday"}, "date_from", "YYYY-MM-DD"),
        ({"date_from": "2026-02-30"}, "date_from", "YYYY-MM-DD"),
        ({"date_from": "20260101"}, "date_from", "YYYY-MM-DD"),
        ({"date_to": "2026-01-15T00:00:00Z"}, "date_to", "YYYY-MM-DD"),
        ({"date_to": 1767225600}, "date_to", "YYYY-MM-DD"),
        ({"stylist_id": "5"}, "stylist_id", "whole number"),
        ({"customer_id": 42.5}, "customer_id", "whole number"),
        ({"customer_id": 2**63}, "customer_id", "64 bits"),
        ({"customer_id": -(10**30)}, "customer_id", "64 bits"),
        ({"shop_id": 1}, "shop_id", "unknown field"),
    ],
)
@both
def test_a_value_that_is_not_accepted_is_named_with_what_is(
    path: str, said: dict[str, Any], field: str, says: str, client: httpx.Client, backstage: Backstage
) -> None:
    response = client.post(path, json={**FOUND[path], **said})
    error = problem(response, 400, "invalid_request")
    assert error["details"]["field"] == field and says in error["details"]["problem"]
    assert backstage.pipeline.asked == []


@pytest.mark.parametrize("text", [None, "", " \n\t\u00a0", "x" * 1001, "a\0b", 5])
@both
def test_a_text_is_needed(path: str, text: Any, client: httpx.Client, backstage: Backstage) -> None:
    error = problem(client.post(path, json={TEXT[path]: text}), 400, "invalid_request")
    assert error["details"]["field"] == TEXT[path] and "1 to 1000 characters" in error["details"]["problem"]
    assert problem(client.post(path, json={}), 400, "invalid_request")["details"]["field"] == TEXT[path]
    assert backstage.pipeline.asked == []


def test_one_day_is_a_range(client: httpx.Client, backstage: Backstage) -> None:
    body = {"query": "?", "date_from": "2026-01-15", "date_to": "2026-01-15"}
    assert client.post(SEARCH, json=body).status_code == 200
    assert len(backstage.pipeline.asked[0][1].filters) == 2


def test_results_keep_the_order_of_their_mode_and_similarity_stays_between_0_and_1(
    client: httpx.Client, backstage: Backstage
) -> None:
    backstage.pipeline.hits = tuple(hit(score) for score in (0.31, -0.2, 0.91234567, 1.0000001))  # as fusion has them
    body = client.post(SEARCH, json={"query": "?", "mode": "hybrid"}).json()
    assert [result["similarity"] for result in body["results"]] == [0.31, 0.0, 0.9123, 1.0]
    assert body["total"] == 4


def test_what_a_record_does_not_have_is_null(client: httpx.Client, backstage: Backstage, validator: Validate) -> None:
    booking = str(uuid4())
    backstage.pipeline.hits = (hit(date=None, metadata={}), hit(0.5, position=3, metadata={"booking_id": booking}))
    response = client.post(SEARCH, json={"query": "?"})
    bare, note = response.json()["results"]
    names = ("booking_id", "call_id", "customer_id", "stylist_id", "created_at")
    assert [bare[name] for name in names] == [None] * 5
    assert (note["booking_id"], note["call_id"], note["chunk_index"]) == (booking, None, 3)
    validator(response)


def test_nothing_found_is_a_success(client: httpx.Client) -> None:
    response = client.post(SEARCH, json={"query": "pricing"})
    assert (response.status_code, response.json()) == (200, {"results": [], "query": "pricing", "total": 0})


@pytest.mark.parametrize(
    ("refusal", "text", "shown"),
    [
        (Refusal.NOTHING_FOUND, NOTHING, []),
        (Refusal.WEAK, NEAR, SOURCES),
        (Refusal.UNCITED, UNCITED, SOURCES),
        (Refusal.ADMITTED, "I don't have enough information from the available records to answer this question.", []),
    ],
)
def test_a_refusal_says_so(
    refusal: Refusal, text: str, shown: list[Any], client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    backstage.pipeline.given = answered(
        WAITED, EARLY, text=text, refusal=refusal, model=None, retrieved=5, above_threshold=0
    )
    response = client.post(ASK, json={"question": "What is the weather like?"})
    assert response.status_code == 200
    assert response.json() == {
        "answer": text,
        "sources": shown,
        "has_sufficient_evidence": False,
        "query": "What is the weather like?",
        "chunks_retrieved": 5,
        "chunks_above_threshold": 0,
    }
    validator(response)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (StoreFailed("10.0.0.7 refused"), "database_error", "database"),
        (EmbeddingFailed("10.0.0.7 refused"), "embedding_failed", "embedded"),
        (ModelTimeout("10.0.0.7"), "model_timeout", "in time"),
        (ModelLimited("10.0.0.7"), "model_rate_limited", "rate limit"),
        (ModelMalformed("10.0.0.7"), "model_failed", "model"),
        (ModelFailed("10.0.0.7"), "model_failed", "model"),
        (RuntimeError("10.0.0.7"), "internal_error", "went wrong"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_what_fails_is_a_500_with_a_message(
    accept: str, error: RagError, code: str, says: str, client: httpx.Client, backstage: Backstage, validator: Validate
) -> None:
    backstage.pipeline.error = error
    response = client.post(ASK, json={"question": "?"}, headers={"Accept": accept})
    assert says in problem(response, 500, code)["message"]
    assert "10.0.0.7" not in response.text
    validator(response)


def events(response: httpx.Response) -> list[tuple[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block.splitlines() for block in response.text.split("\n\n") if block.strip()]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def test_an_answer_streams(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = given = answered(WAITED, EARLY)
    backstage.pipeline.pieces = ["One customer waited almost 15 minutes [Source 1].", given.text[49:]]
    plain = client.post(ASK, json=ASK_EXAMPLE).json()

    response = client.post(ASK, json=ASK_EXAMPLE, headers={"Accept": "text/event-stream"})

    assert response.status_code == 200
    (_, meta), (_, sources), *deltas, (_, citations), (_, done) = told = events(response)
    assert [name for name, _ in told] == ["meta", "sources", "delta", "delta", "citations", "done"]
    assert meta == {"request_id": response.headers["x-request-id"], "query": ASK_EXAMPLE["question"]}
    assert [each["similarity"] for each in sources] == [0.7234, 0.6891]
    assert {each["excerpt"] for each in sources} == {hit().text}
    assert [set(each) for each in sources] == [set(each) for each in SOURCES]
    assert "".join(delta["text"] for _, delta in deltas) == plain["answer"]
    assert citations == SOURCES
    assert done == plain


def test_a_refusal_streams_too(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered(text=NOTHING, refusal=Refusal.NOTHING_FOUND, model=None)
    told = dict(events(client.post(ASK, json={"question": "?"}, headers={"Accept": "text/event-stream"})))
    assert (told["sources"], told["delta"], told["citations"]) == ([], {"text": NOTHING}, [])
    assert told["done"]["has_sufficient_evidence"] is False


def test_a_stream_that_breaks_says_so(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered(WAITED, EARLY)
    backstage.pipeline.breaks_after = 0
    response = client.post(ASK, json={"question": "?"}, headers={"Accept": "text/event-stream"})
    told = events(response)
    assert [name for name, _ in told] == ["meta", "sources", "error"]
    assert told[-1][1]["error"]["code"] == "model_failed"
    assert told[-1][1]["request_id"] == response.headers["x-request-id"]


def test_search_does_not_stream(client: httpx.Client) -> None:
    response = client.post(SEARCH, json={"query": "?"}, headers={"Accept": "text/event-stream"})
    assert response.json()["results"] == []


def test_60_requests_a_minute_over_both_paths(client: httpx.Client, backstage: Backstage) -> None:
    backstage.pipeline.given = answered()
    responses = [client.post(path, json=FOUND[path]) for path in [SEARCH, ASK] * 30]
    assert {response.status_code for response in responses} == {200}
    assert [int(each.headers["x-ratelimit-remaining"]) for each in responses] == list(range(59, -1, -1))
    limited = client.post(SEARCH, json=FOUND[SEARCH])
    problem(limited, 429, "rate_limited")
    assert 0 < int(limited.headers["retry-after"]) <= 61
    assert client.post("/api/rag/search", json={"query_text": "?"}).status_code == 200, "another surface, another limit"


@both
def test_nobody_enters_without_a_token_where_no_organization_is_configured(
    path: str, anonymous: httpx.Client, backstage: Backstage
) -> None:
    problem(anonymous.post(path, json=FOUND[path]), 401, "unauthenticated")
    assert backstage.pipeline.asked == []


def test_errors_below_owner_that_no_route_raises_come_in_the_same_envelope(client: httpx.Client) -> None:
    problem(client.post("/owner/other", json={}), 404, "not_found")
    problem(client.get(ASK), 405, "method_not_allowed")
    problem(client.post(ASK, content=b"{", headers={"Content-Type": "application/json"}), 400, "invalid_request")


def test_the_document_says_who_may_ask_and_that_answers_stream(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    for path in (SEARCH, ASK):
        assert paths[path]["post"]["security"] == [{"bearer": []}, {}]
        assert {"200", "400", "401", "429", "500"} <= set(paths[path]["post"]["responses"])
        assert "503" not in paths[path]["post"]["responses"]
    assert set(paths[ASK]["post"]["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(paths[SEARCH]["post"]["responses"]["200"]["content"]) == {"application/json"}


@pytest.fixture(scope="module")
def open_house() -> Iterator[tuple[str, Backstage]]:
    """A server with a default organization."""
    stage = Backstage()
    entrance = Entrance(TokenReader(SECRET, AUDIENCE, ISSUER), default_organization="aurora")
    with serve(api(stage.services(), stage.access(), entrance, SURFACES, version="0.0.test")) as url:
        yield url, stage


@pytest.fixture
def anybody(open_house: tuple[str, Backstage]) -> Iterator[tuple[httpx.Client, Backstage, UUID]]:
    url, stage = open_house
    stage.reset()
    organization = uuid4()
    stage.people.known["aurora"] = Principal("member of aurora", None, frozenset({organization}))
    stage.pipeline.given = answered(WAITED, EARLY)
    with httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield client, stage, organization


@both
def test_without_a_token_one_is_a_member_of_the_default_organization(
    path: str, anybody: tuple[httpx.Client, Backstage, UUID]
) -> None:
    client, stage, organization = anybody
    response = client.post(path, json=FOUND[path])
    assert response.status_code == 200 and response.headers["x-ratelimit-remaining"] == "59"
    [(_, _, scope)] = stage.pipeline.asked
    assert scope.organizations == {organization, PUBLIC_ORGANIZATION} and scope.user is None


@both
def test_a_token_is_never_swapped_for_the_default_organization(
    path: str, anybody: tuple[httpx.Client, Backstage, UUID]
) -> None:
    client, stage, organization = anybody
    problem(client.post(path, json=FOUND[path], headers={"Authorization": "Bearer x"}), 401, "unauthenticated")
    assert stage.pipeline.asked == []
    token = issue_token("ada", SECRET, audience=AUDIENCE, issuer=ISSUER)
    assert client.post(path, json=FOUND[path], headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert organization not in stage.pipeline.asked[0][2].organizations


def test_other_surfaces_stay_closed(anybody: tuple[httpx.Client, Backstage, UUID]) -> None:
    client, _, _ = anybody
    problem(client.post("/api/rag/search", json={"query_text": "?"}), 401, "unauthenticated")


def test_the_contracts_curl_commands(anybody: tuple[httpx.Client, Backstage, UUID]) -> None:
    client, stage, _ = anybody
    url = str(client.base_url).rstrip("/")
    services, haircut, customer, weather = commands()
    for command in (services, haircut, customer, weather):
        assert sent(command, url).status_code == 200

    first, second, third, fourth = (question for _, question, _ in stage.pipeline.asked)
    assert [index for index, _, _ in stage.pipeline.asked] == ["owner_ask", "salon_calls", "owner_ask", "owner_ask"]
    assert (first.text, first.top_k, first.threshold) == ("What services did customers book this week?", 5, 0.35)
    assert (second.text, second.top_k, second.threshold) == ("haircut booking", 10, 0.4)
    assert second.filters == (
        condition("source_type", "in", ("call_transcript",)),
        condition("date", ">=", "2026-01-10"),
        condition("date", "<=", "2026-01-15"),
    )
    assert third.top_k == 10 and third.filters == (condition("customer_id", "==", 42),)
    assert (fourth.text, fourth.top_k, fourth.threshold) == ("What is the weather like?", 5, 0.9)
