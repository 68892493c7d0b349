"""Search in any index and answers from it over HTTP, with an index that a user has declared."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rag_app.access.roles import Role
from rag_app.application import Application
from tests.conftest import ON_DEFAULT_STORE
from tests.integration.service import bearer, configured, prepare, served

DECLARED = """
description = "what the tickets of a help desk say"
source_types = ["ticket", "macro"]
default_source_type = "ticket"

[fields]
product = "keyword"
hours = "integer"
"""
QUESTION = "Why does the blue printer stop?"
TICKETS = [
    ("printer", "The blue printer stops because its paper sensor is dusty.", {"product": "printer", "hours": 2}),
    ("scanner", "The green scanner stops because its lid is open.", {"product": "scanner", "hours": 5}),
    ("greeting", "Thank the customer who wrote about the blue printer.", {"source_type": "macro"}),
]


@dataclass(frozen=True)
class Desk:
    """An organization with tickets. `key` may search all indexes, `bound` the index `book` alone."""

    client: httpx.Client
    org: UUID
    member: UUID
    stranger: UUID
    key: str
    bound: str

    def post(self, way: str, body: dict[str, Any], index: str = "tickets", **headers: str) -> httpx.Response:
        return self.client.post(f"/api/v1/indexes/{index}/{way}", json=body, headers={**bearer(self.member), **headers})

    def ask(self, question: str = QUESTION, **more: Any) -> dict[str, Any]:
        response = self.post("answer", {"query_text": question, **more})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer


async def organization(application: Application) -> dict[str, Any]:
    people = application.people
    made = await people.create_organization(f"d-{uuid4().hex}", "Desk")
    member, stranger = [await people.create_user(f"u-{uuid4().hex}") for _ in range(2)]
    await people.add_member(made, member)
    await application.roles.grant(made.id, member.id, Role.WRITE)
    keys = [(await application.keys.create(made, "desk", indexes))[1] for indexes in (None, ["book"])]
    return dict(zip(Desk.__annotations__, (None, made.id, member.id, stranger.id, *keys), strict=True))


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def desk(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Desk]:  # fmt: skip
    folder = tmp_path_factory.mktemp("desk")
    (folder / "indexes" / "tickets").mkdir(parents=True)
    (folder / "indexes" / "tickets" / "index.toml").write_text(DECLARED, "utf-8")
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": request.param,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(folder),
        "RAG_INDEXES": str(folder / "indexes"),
    }
    with configured(variables):
        made = prepare(organization)
        with served() as client:
            documents = [{"external_id": name, "text": text, "metadata": more} for name, text, more in TICKETS]
            sent = client.post(
                "/api/v1/sources", json={"index": "tickets", "documents": documents}, headers=bearer(made["member"])
            )
            assert sent.status_code == 200, sent.text
            yield Desk(**{**made, "client": client})


def test_an_answer_from_an_index_of_ones_own_cites_its_sources(desk: Desk) -> None:
    answer = desk.ask()
    assert answer["status"] == "success" and "paper sensor is dusty" in answer["answer"]["text"], answer
    [citation] = answer["citations"]
    assert citation["meta"]["external_id"] == "printer" and citation["meta"]["product"] == "printer"
    assert citation["snippet"] in TICKETS[0][1] and citation["source_type"] == "ticket"
    refused = desk.ask("Who won the chess championship of 1921?")
    assert refused["status"] == "insufficient_context" and refused["answer"]["model"] is None
    assert refused["answer"]["text"].startswith("I found "), "as the plain capability of any index says it"


def test_a_follow_up_is_answered_with_the_question_before_it(desk: Desk) -> None:
    asked = "And the green scanner?"
    answer = desk.ask(asked, earlier_questions=["Where is the key?", "Why does the blue printer stop?"])
    assert answer["query_text"] == asked and "its lid is open" in answer["answer"]["text"], answer
    followed = desk.ask("And why?", earlier_questions=["The green scanner stops?"])
    assert "its lid is open" in followed["answer"]["text"], followed
    found = desk.post(
        "search", {"query_text": "And why?", "top_k": 1, "earlier_questions": ["The green scanner stops?"]}
    )
    assert [each["meta"]["external_id"] for each in found.json()["results"]] == ["scanner"]


def test_it_has_the_fields_of_the_answers_about_what_an_organization_knows(desk: Desk) -> None:
    known = desk.client.post("/api/rag/answer", json={"query_text": QUESTION}, headers=bearer(desk.member)).json()
    there = desk.post("answer", {"query_text": QUESTION}, "org_knowledge").json()
    for each in (known, there):
        del each["processing_time_ms"], each["answer"]["generated_at"]
    assert there == known
    assert desk.ask().keys() >= known.keys() - {"warnings"}


def test_a_stream_ends_with_the_plain_response(desk: Desk) -> None:
    said = desk.post("answer", {"query_text": QUESTION}, Accept="text/event-stream")
    assert said.headers["content-type"].startswith("text/event-stream")
    events = dict(line.split("\ndata: ", 1) for line in said.text.replace("event: ", "").strip().split("\n\n"))
    assert list(events) == ["meta", "sources", "delta", "citations", "done"]
    done, plain = json.loads(events["done"]), desk.ask()
    assert done["answer"]["text"] == plain["answer"]["text"] and done["citations"] == plain["citations"]
    assert json.loads(events["meta"])["query_text"] == QUESTION


def test_a_search_filters_by_the_fields_of_the_index(desk: Desk) -> None:
    def found(**more: Any) -> set[str]:
        response = desk.post("search", {"query_text": QUESTION, "top_k": 50, **more})
        assert response.status_code == 200, response.text
        return {each["meta"]["external_id"] for each in response.json()["results"]}

    assert found() == {"printer", "scanner", "greeting"}
    assert found(filters={"source_type": "macro"}) == found(filters={"source_type": "macro"}, mode="hybrid")
    assert found(filters={"source_type": "macro"}) == {"greeting"}
    assert found(filters={"where": {"filters": [{"key": "hours", "operator": ">", "value": 3}]}}) == {"scanner"}
    assert found(filters={"org_id": str(uuid4())}) == set()
    for filters, field in (
        ({"where": {"filters": [{"key": "colour", "value": "blue"}]}}, "colour"),
        ({"where": {"filters": [{"key": "hours", "value": "long"}]}}, "hours"),
        ({"colour": "blue"}, "filters.colour"),
    ):
        for way in ("search", "answer"):
            refused = desk.post(way, {"query_text": QUESTION, "filters": filters})
            assert (refused.status_code, refused.json()["error"]["details"]["field"]) == (400, field)


def test_an_index_that_one_may_not_search_is_none(desk: Desk) -> None:
    key = {"Authorization": f"Bearer {desk.key}"}
    bound = {"Authorization": f"Bearer {desk.bound}"}
    for way in ("search", "answer"):
        assert desk.post(way, {"query_text": QUESTION}, **key).status_code == 200
        hidden = desk.post(way, {"query_text": QUESTION}, **bound).json()["error"]
        absent = desk.post(way, {"query_text": QUESTION}, "ticket", **bound).json()["error"]
        assert hidden == {"code": "not_found", "message": absent["message"].replace("'ticket'", "'tickets'")}
        assert desk.post(way, {"query_text": QUESTION}, "book", **bound).status_code == 200
        assert "tickets" in desk.post(way, {"query_text": QUESTION}, "nothing").json()["error"]["message"]
    listed, alone = [desk.client.get("/api/v1/indexes", headers=each).json()["indexes"] for each in (key, bound)]
    assert [each["name"] for each in listed] == sorted(each["name"] for each in listed)
    [tickets] = [each for each in listed if each["name"] == "tickets"]
    assert tickets == {
        "name": "tickets",
        "description": "what the tickets of a help desk say",
        "source_types": ["ticket", "macro"],
    }
    assert [each["name"] for each in alone] == ["book"]


def test_a_stranger_finds_nothing_of_it(desk: Desk) -> None:
    headers = bearer(desk.stranger)
    assert desk.post("search", {"query_text": QUESTION}, **headers).json()["results"] == []
    answer = desk.post("answer", {"query_text": QUESTION}, **headers).json()
    assert answer["status"] == "insufficient_context" and answer["citations"] == []


def test_an_answer_can_be_rated(desk: Desk) -> None:
    request = desk.post("answer", {"query_text": QUESTION}).headers["X-Request-ID"]
    said = {"verdict": "wrong", "expected_source": "scanner"}
    rated = desk.client.post(f"/api/v1/answers/{request}/feedback", json=said, headers=bearer(desk.member))
    assert rated.status_code == 200 and rated.json()["expected_source_id"], rated.text


def test_questions_have_a_limit_of_their_own_and_fields_that_of_sources(desk: Desk) -> None:
    def limit(response: httpx.Response) -> tuple[str, int]:
        return response.headers["X-RateLimit-Limit"], int(response.headers["X-RateLimit-Remaining"])

    headers = bearer(desk.member)
    before = limit(desk.post("search", {"query_text": QUESTION}))
    listed = limit(desk.client.get("/api/v1/sources", headers=headers))
    assert limit(desk.client.get("/api/v1/indexes/tickets/fields", headers=headers)) == ("300", listed[1] - 1)
    assert limit(desk.post("answer", {"query_text": QUESTION})) == ("60", before[1] - 1)
