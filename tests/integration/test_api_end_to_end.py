"""The two endpoints of `/api/rag` with everything real behind them: what a client of the contract gets."""

import asyncio
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import numpy as np
import pytest
from sqlalchemy import make_url, select

from rag_app.access.limits import RateLimiter, Window
from rag_app.access.tables import organization_tokens_table
from rag_app.answering import models
from rag_app.answering.reader import Reader
from rag_app.application import Application
from rag_app.database import private
from rag_app.database.migrate import upgrade
from rag_app.documents.metadata import language_identifier
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.retrieval.embedding import MiniLM
from tests.conftest import MIGRATIONS, ON_DEFAULT_STORE
from tests.contract.test_errors import problem
from tests.contract.test_rag_retrieval import ANSWER, INSUFFICIENT, SEARCH
from tests.integration.service import Text, bearer, configured, forget_public, ingest, prepare, served
from tests.scripted_model import Impatient, Reply, Script, ScriptedModel, marker_of
from tests.waiting import PATIENCE

PLANS = "What does the yearly plan cost?"
PARKING = "Where can visitors park?"
NOT_THERE = "At which temperature does tungsten melt?"

LEAVE = " ".join(
    f"Parental leave, rule {n}: whoever has been here for {n} years may stay at home for {n + 10} weeks, and tells "
    f"the office {n + 2} months before the leave begins, so that somebody else can learn what there is to do."
    for n in range(1, 25)
)
TEXTS: dict[str, dict[str, Any]] = {
    "plans": {
        "title": "Plans and prices",
        "text": "The yearly plan costs 480 euros. The monthly plan costs 45 euros and can be cancelled at any time.",
        "source_type": "faq",
        "uri": "https://acme.example/plans",
        "tags": ["prices", "plans"],
    },
    "call": {
        "title": "Call with Ada",
        "text": "Ada said that she likes the yearly plan, but would rather pay it in two parts.",
        "source_type": "transcript",
        "call_sid": "CA1",
        "date": "2026-01-15T10:30:00Z",
    },
    "leave": {"title": "Parental leave", "text": LEAVE, "source_type": "doc"},
    "francais": {
        "title": "Horaires",
        "text": "Le magasin est ouvert tous les jours de neuf heures à dix-huit heures.",
        "source_type": "web",
        "lang": "fr",
    },
    "before": {"title": "Note 1", "text": "The kettle was broken.", "date": "2026-01-14T23:59:59.75Z"},
    "midnight": {"title": "Note 2", "text": "The kettle was repaired.", "date": "2026-01-15"},
    "evening": {"title": "Note 3", "text": "The kettle broke again.", "date": "2026-01-15T23:59:59.75Z"},
    "after": {"title": "Note 4", "text": "The kettle was replaced.", "date": "2026-01-16T01:00:00+01:00"},
    **{
        f"parking {n}": {
            "title": f"Parking {n}",
            "text": f"Visitors can park in yard {n}, which has {n + 20} places and is open until {n + 15} o'clock.",
            "source_type": "email",
        }
        for n in range(1, 8)
    },
}
FOREIGN = "The yearly plan of the other company costs 999 euros."
PUBLIC = "Everybody may read the house rules: the yearly plan of the library costs nothing."


@dataclass(frozen=True)
class Service:
    """A running application with the sources above, seen by Ada, a member of their organization."""

    client: httpx.Client
    org: UUID
    other_org: UUID
    ada: UUID

    def post(self, path: str, body: object, who: object = None) -> dict[str, Any]:
        """The body of a success."""
        response = self.client.post(path, json=body, headers=bearer(who or self.ada))
        assert response.status_code == 200, response.text
        assert set(response.headers) >= {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
        given: dict[str, Any] = response.json()
        return given

    def titles(self, query: str = "kettle", *, who: object = None, **filters: object) -> set[str]:
        body = {"query_text": query, "top_k": 50, "filters": filters}
        return {result["source_title"] for result in self.post(SEARCH[0], body, who)["results"]}

    def candidates(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """What an answer to the same is made from, the most similar first."""
        results: list[dict[str, Any]] = self.post(SEARCH[0], {**asked, "mode": "hybrid"})["results"]
        return sorted(results, key=lambda each: -each["score"])


async def load(
    application: Application, folder: Path, texts: Mapping[str, dict[str, Any]] = TEXTS
) -> tuple[UUID, UUID, UUID]:
    """The organization, another one, and a member of the first."""
    people = application.people
    acme, other = [await people.create_organization(f"e-{uuid4().hex}", name) for name in ("Acme", "Other")]
    ada = await people.create_user(f"ada-{uuid4().hex}")
    await people.add_member(acme, ada)
    await people.set_limits(acme, {"requests_per_minute": 10_000})  # the tests of this module ask as ada
    own = [
        Text(name, said["text"], acme.id, fields={key: value for key, value in said.items() if key != "text"})
        for name, said in texts.items()
    ]
    foreign = Text("plans", FOREIGN, other.id, fields={"title": "Foreign"})
    public = Text("end to end", PUBLIC, PUBLIC_ORGANIZATION, fields={"title": "House rules", "source_type": "web"})
    await ingest(application, folder, [*own, foreign, public])
    return acme.id, other.id, ada.id


def variables(urls: tuple[str, str], store: str, folder: Path, qdrant: Path) -> dict[str, str]:
    return {
        "RAG_DATABASE_OWNER_URL": urls[0],
        "RAG_DATABASE_URL": urls[1],
        "RAG_VECTOR_STORE": store,
        "QDRANT_PATH": str(qdrant),
        "RAG_HOME": str(folder),
    }


@pytest.fixture(scope="module", params=[ON_DEFAULT_STORE])
def service(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:  # fmt: skip
    folder = tmp_path_factory.mktemp("service")
    with configured(variables(database_urls, request.param, folder, qdrant_folder)):
        org, other_org, ada = prepare(lambda application: load(application, folder))
        with served() as client:
            yield Service(client, org, other_org, ada)
        prepare(forget_public)


def test_a_server_loads_its_models_before_it_is_asked(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Else a worker grows by a model's weights whenever a request first needs it, hours later perhaps."""
    loaded, both = [], Event()

    def load(model: MiniLM | Reader) -> None:
        loaded.append(type(model))
        if len(loaded) == 2:
            both.set()

    with configured(variables(database_urls, default_store, tmp_path, qdrant_folder)):
        prepare(lambda application: asyncio.sleep(0))
        monkeypatch.setattr(MiniLM, "load", load)
        monkeypatch.setattr(Reader, "load", load)
        language_identifier.cache_clear()
        with served():
            assert both.wait(PATIENCE)
        assert language_identifier.cache_info().currsize == 1
    assert loaded == [MiniLM, Reader]


def test_a_search_finds_the_best_by_the_score_it_shows(service: Service) -> None:
    """No chunk that is left out is more similar than one that is shown; words count where the request says hybrid."""
    for query in (PLANS, PARKING, "parental leave parking 480"):
        every = service.post(SEARCH[0], {"query_text": query, "top_k": 50})["results"]
        for top_k in (1, 3, 8):
            best = service.post(SEARCH[0], {"query_text": query, "top_k": top_k})["results"]
            assert [each["chunk_id"] for each in best] == [each["chunk_id"] for each in every[:top_k]]
    mixed = service.post(SEARCH[0], {"query_text": "parental leave parking 480", "top_k": 50, "mode": "hybrid"})
    scores = [each["score"] for each in mixed["results"]]
    assert scores != sorted(scores, reverse=True)
    assert [each["rank"] for each in mixed["results"]] == [number for number, _ in enumerate(scores, 1)]


@pytest.mark.parametrize("path", SEARCH)
def test_search(path: str, service: Service) -> None:
    started = time.perf_counter()
    body = service.post(path, {"query_text": PLANS})
    elapsed = 1000 * (time.perf_counter() - started)
    assert body["status"] == "success" and body["query_text"] == PLANS
    assert 0 < body["processing_time_ms"] <= elapsed + 1
    results = body["results"]
    assert body["total_found"] == len(results) == 8
    assert [result["rank"] for result in results] == list(range(1, 9))
    scores = [result["score"] for result in results]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    assert len({result["chunk_id"] for result in results}) == 8
    plans, call = (
        next(each for each in results if each["source_title"] == title)
        for title in ("Plans and prices", "Call with Ada")
    )
    assert {plans["rank"], call["rank"]} == {1, 2}
    assert (plans["snippet"], plans["source_type"]) == (TEXTS["plans"]["text"], "faq")
    assert plans["source_uri"] == "https://acme.example/plans" and call["source_uri"] is None
    assert contents_of(plans) == {"org_id": str(service.org), "tags": ["prices", "plans"]}
    assert contents_of(call) == {"org_id": str(service.org), "call_sid": "CA1", "date": "2026-01-15T10:30:00Z"}


def test_the_score_is_the_cosine_of_question_and_chunk(service: Service) -> None:
    model = MiniLM()
    asked = np.asarray(model.get_query_embedding(PLANS))
    shown = {each["source_title"]: each["score"] for each in service.post(SEARCH[0], {"query_text": PLANS})["results"]}
    for said in (TEXTS["plans"], TEXTS["call"]):
        chunk = np.asarray(model.get_text_embedding(f"{said['title']}\n\n{said['text']}"))
        assert shown[said["title"]] == pytest.approx(float(asked @ chunk), abs=2e-3)


def test_a_snippet_is_the_first_200_characters_of_its_chunk(service: Service) -> None:
    body = {"query_text": "How many weeks of parental leave are there?", "top_k": 50, "filters": {"source_type": "doc"}}
    snippets = [
        each["snippet"] for each in service.post(SEARCH[0], body)["results"] if each["source_title"] == "Parental leave"
    ]
    assert len(snippets) > 3, "the text is meant to be several chunks"
    assert LEAVE[:200] in snippets
    assert all(len(snippet) == 200 and snippet in LEAVE for snippet in snippets)


def test_top_k(service: Service) -> None:
    for top_k in (1, 5, 50):
        found = service.post(SEARCH[0], {"query_text": PARKING, "top_k": top_k})
        assert found["total_found"] == len(found["results"]) <= top_k
    assert found["total_found"] > 15


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"date_from": "2026-01-15"}, {"Note 2", "Note 3", "Note 4", "Call with Ada"}),
        ({"date_to": "2026-01-15"}, {"Note 1", "Note 2", "Note 3", "Call with Ada"}),  # the whole day
        ({"date_from": "2026-01-15", "date_to": "2026-01-15"}, {"Note 2", "Note 3", "Call with Ada"}),
        ({"date_to": "2026-01-15T00:00:00Z"}, {"Note 1", "Note 2"}),  # a moment is a moment
        ({"date_from": "2026-01-15T23:59:59.75Z"}, {"Note 3", "Note 4"}),
        ({"date_from": "2026-01-16T00:00:00"}, {"Note 4"}),  # UTC where it has no zone
        ({"date_from": "2026-01-16T01:00:00+01:00", "date_to": "2026-01-16T00:00:00Z"}, {"Note 4"}),
        ({"date_from": "2026-01-17"}, set()),
        ({"date_from": "2026-01-16", "date_to": "2026-01-14"}, set()),
        ({"lang": "fr"}, {"Horaires"}),
        ({"lang": "fr", "source_type": "web"}, {"Horaires"}),
        ({"lang": "fr", "source_type": "doc"}, set()),
        ({"source_type": "transcript"}, {"Call with Ada"}),
        ({"source_type": "web"}, {"Horaires", "House rules"}),
        ({"source_type": "email"}, {f"Parking {n}" for n in range(1, 8)}),
    ],
)
def test_filters(filters: dict[str, str], expected: set[str], service: Service) -> None:
    # content of other tests may be public too
    assert (
        service.titles(**filters) & {*(said["title"] for said in TEXTS.values()), "House rules", "Foreign"} == expected
    )


@pytest.mark.parametrize("path", [*SEARCH, *ANSWER])
def test_another_organization_is_as_good_as_none(path: str, service: Service) -> None:
    bodies = []
    for org in (service.other_org, uuid4()):
        body = service.post(path, {"query_text": PLANS, "filters": {"org_id": str(org)}})
        body.pop("processing_time_ms")
        if "answer" in body:
            body["answer"].pop("generated_at")
        bodies.append(body)
    assert bodies[0] == bodies[1], "existence is not told"
    if path in SEARCH:
        assert bodies[0] == {"status": "success", "query_text": PLANS, "results": [], "total_found": 0}
    else:
        assert bodies[0]["status"] == "insufficient_context" and bodies[0]["citations"] == []
        assert bodies[0]["context_used"] == {"chunks_retrieved": 0, "unique_sources": 0, "avg_relevance": 0.0}
    assert "999 euros" not in str(bodies)


def test_an_organization_of_ones_own_as_a_filter(service: Service) -> None:
    assert service.titles(PLANS, org_id=str(service.org).upper()) == {said["title"] for said in TEXTS.values()}


@pytest.mark.parametrize("who", [uuid4(), "auth0|somebody"])
def test_who_is_not_known_sees_what_is_public(who: object, service: Service) -> None:
    found = service.post(SEARCH[0], {"query_text": PLANS, "top_k": 50}, who)
    assert "House rules" in {result["source_title"] for result in found["results"]}
    assert {result["meta"]["org_id"] for result in found["results"]} == {str(PUBLIC_ORGANIZATION)}
    answer = service.post(ANSWER[0], {"query_text": "What are the house rules of the library's yearly plan?"}, who)
    assert {citation["meta"]["org_id"] for citation in answer["citations"]} == {str(PUBLIC_ORGANIZATION)}
    assert "480 euros" not in str(answer) and "999 euros" not in str(answer)


def check_answer(body: dict[str, Any], query: str, found: list[dict[str, Any]]) -> None:
    """What holds of every answer; `found` are the results of a search with the same body."""
    assert body["query_text"] == query
    made = datetime.fromisoformat(body["answer"]["generated_at"])
    assert timedelta() <= datetime.now(UTC) - made < timedelta(minutes=1)
    assert isinstance(body["processing_time_ms"], int) and body["processing_time_ms"] > 0
    sources = [citation["source_id"] for citation in body["citations"]]
    assert len(sources) == len(set(sources)) <= 5
    best: dict[str, dict[str, Any]] = {}
    for result in found:
        best.setdefault(result["source_id"], result)
    for citation in body["citations"]:
        result = best[citation["source_id"]]
        assert 0 < len(citation["snippet"]) <= 300
        assert citation["relevance_score"] <= result["score"]
        for name in ("source_type", "source_title", "source_uri"):
            assert citation[name] == result[name]
    used = body["context_used"]
    assert used["chunks_retrieved"] == len(found)
    assert used["unique_sources"] == len(best)
    top = [result["score"] for result in found[:5]]
    assert used["avg_relevance"] == pytest.approx(sum(top) / len(top), abs=1e-4)


@pytest.mark.parametrize("path", ANSWER)
def test_answer_with_sufficient_context(path: str, service: Service) -> None:
    asked = {"query_text": PLANS, "top_k": 6}
    found = service.candidates(asked)
    body = service.post(path, asked)
    check_answer(body, PLANS, found)
    assert body["status"] == "success"
    assert body["answer"]["confidence"] in ("high", "medium") and body["answer"]["model"] == "extractive"
    assert "480 euros" in body["answer"]["text"] and "[Source 1]" in body["answer"]["text"]
    plans = next(each for each in body["citations"] if each["source_title"] == "Plans and prices")
    assert "480 euros" in plans["snippet"]
    assert plans["relevance_score"] == next(each["score"] for each in found if each["source_id"] == plans["source_id"])
    assert contents_of(plans) == {"org_id": str(service.org), "tags": ["prices", "plans"]}


def contents_of(hit: Mapping[str, Any]) -> dict[str, Any]:
    """Its metadata, without what says where it is from and opens it."""
    meta = hit["meta"]
    assert meta["link"].startswith(f"/api/v1/sources/{hit['source_id']}?chunk=") and meta["external_id"]
    places = {"chunk_id", "external_id", "file_name", "link", "span"}
    return {name: value for name, value in meta.items() if name not in places}


@pytest.mark.parametrize("path", ANSWER)
def test_answer_with_insufficient_context(path: str, service: Service) -> None:
    asked = {"query_text": NOT_THERE, "top_k": 50}
    found = service.candidates(asked)
    body = service.post(path, asked)
    check_answer(body, NOT_THERE, found)
    assert body["status"] == "insufficient_context"
    body["answer"].pop("generated_at")
    assert body["answer"] == {"text": INSUFFICIENT, "confidence": "low", "model": None}
    best: dict[str, dict[str, Any]] = {}
    for result in found:
        best.setdefault(result["source_id"], result)
    assert [(each["source_id"], each["relevance_score"], each["snippet"]) for each in body["citations"]] == [
        (result["source_id"], result["score"], result["snippet"]) for result in list(best.values())[:5]
    ]


def test_many_chunks_of_many_sources(service: Service) -> None:
    """More sources than citations, and more chunks than sources."""
    for query in (PARKING, "How many weeks of parental leave does rule 7 give?"):
        asked = {"query_text": query, "top_k": 50}
        found = service.candidates(asked)
        assert len(found) > len({result["source_id"] for result in found}) > 5
        body = service.post(ANSWER[0], asked)
        check_answer(body, query, found)
        assert body["status"] == "success"


def test_ready(service: Service) -> None:
    response = service.client.get("/health/ready")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "checks": {"database": "ok", "vector_store": "ok"}}


only_postgres = pytest.mark.parametrize("service", ["postgres"], indirect=True)
"""For what does not depend on the store, or runs a second application: local Qdrant would be in use."""


@only_postgres
def test_no_more_than_60_requests_a_minute(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over both endpoints and their aliases together; refused requests count."""
    somebody, hit, now = bearer(uuid4()), RateLimiter.hit, int(time.time())

    async def hit_now(self: RateLimiter, key: str, limit: int, more: int = 0) -> Window:
        return await hit(self, key, limit, more, now=now)  # all of them at one time

    monkeypatch.setattr(RateLimiter, "hit", hit_now)
    bodies: list[object] = [{"query_text": "?"}, {"query_text": ""}]
    responses = [service.client.post(SEARCH[n % 2], json=bodies[n % 2], headers=somebody) for n in range(60)]
    assert {response.status_code for response in responses} == {200, 400}
    refused = service.client.post(ANSWER[0], json=bodies[0], headers=somebody)
    problem(refused, 429, "rate_limited")
    assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == ("60", "0")
    assert 0 < int(refused.headers["x-ratelimit-reset"]) - now <= 60
    assert service.client.post(SEARCH[0], json=bodies[0], headers=bearer(service.ada)).status_code == 200


@only_postgres
def test_the_token_budget_of_an_organization(service: Service) -> None:
    """On every surface that answers: what one took is used on the other, and a stream is refused before it begins."""
    asked, streams = {"query_text": PLANS}, {"Accept": "text/event-stream"}
    owner: dict[str, object] = {"question": PLANS, "min_similarity": 0}

    def spent() -> int:
        async def read(application: Application) -> int:
            scope = Scope(frozenset({service.org}))
            async with application.database.scoped(scope) as session:
                return await session.scalar(select(organization_tokens_table.c.tokens)) or 0

        return prepare(read)

    def set_budget(tokens: int | None) -> None:
        async def change(application: Application) -> None:
            await application.people.set_budget(await application.people.organization(service.org), tokens)

        prepare(change)

    usage = {"prompt_tokens": 1000, "completion_tokens": 30}
    written = Reply("It costs 480 euros a year [Source 1].", usage=usage)
    ada = bearer(service.ada)
    with ScriptedModel(written, written) as model:
        gateway = {"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": model.url, "RAG_LLM_API_KEY": "key of the gateway"}
        with configured(gateway), served() as client:
            assert client.post(ANSWER[0], json=asked, headers=ada).json()["status"] == "success"
            assert spent() == 1030
            assert "event: done" in client.post(ANSWER[0], json=asked, headers=ada | streams).text
            assert spent() == 2060
            set_budget(2060)
            try:
                for path, body, status, code in (
                    (ANSWER[0], asked, 429, "budget_exceeded"),
                    ("/owner/ask", owner, 429, "budget_exceeded"),
                ):
                    for more in ({}, streams):
                        refused = client.post(path, json=body, headers=ada | more)
                        error = problem(refused, status, code)
                        assert (
                            "all 2060 tokens of your organization's budget for this month are used" in error["message"]
                        )
                        first = (datetime.now(UTC).replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0)
                        left = (first.replace(second=0, microsecond=0) - datetime.now(UTC)).total_seconds()
                        assert left <= int(refused.headers["retry-after"]) <= left + 60
                assert client.post(SEARCH[0], json=asked, headers=ada).status_code == 200, "search is never refused"
                extracted = service.client.post(ANSWER[0], json=asked, headers=ada)
                assert extracted.json()["answer"]["model"] == "extractive", "it takes no tokens"
            finally:
                set_budget(None)
    assert len(model.requests) == 2


@only_postgres
async def test_a_crowd_at_the_door_opens_no_more_connections_than_are_set(
    service: Service, database_urls: tuple[str, str]
) -> None:
    observer = await asyncpg.connect(database_urls[1].replace("+asyncpg", ""))

    async def connections() -> int:
        count: int = await observer.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = current_user")
        return count

    with configured({"RAG_DATABASE_POOL_SIZE": "2"}):
        before = await connections()
        with served() as client:
            async with httpx.AsyncClient(base_url=client.base_url, timeout=PATIENCE, verify=False) as crowd:
                asking = [crowd.post(SEARCH[0], json={"query_text": "?"}, headers=bearer(uuid4())) for _ in range(20)]
                codes = {response.status_code for response in await asyncio.gather(*asking)}
            opened = await connections() - before
    await observer.close()
    assert codes == {200}
    assert 2 <= opened <= 4, "two for what the requests do, two for the vector store"


@only_postgres
def test_the_contracts_fixed_thresholds(service: Service) -> None:
    """Set, they judge the mean of the five best, which the response shows."""
    asked = {"query_text": PARKING}
    shown = service.post(ANSWER[0], asked)["context_used"]["avg_relevance"]
    for high, medium, expected in (
        (shown - 0.01, 0.0, ("success", "high")),
        (shown + 0.01, shown - 0.01, ("success", "medium")),
        (0.99, shown + 0.01, ("insufficient_context", "low")),
    ):
        thresholds = {"RAG_CONFIDENCE_HIGH_THRESHOLD": str(high), "RAG_CONFIDENCE_MEDIUM_THRESHOLD": str(medium)}
        with configured(thresholds), served() as client:
            body = client.post(ANSWER[0], json=asked, headers=bearer(service.ada)).json()
        assert (body["status"], body["answer"]["confidence"]) == expected
        assert body["context_used"]["avg_relevance"] == shown


@only_postgres
def test_a_model_behind_a_gateway(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = Impatient()
    monkeypatch.setattr(models, "asyncio", impatient)
    script: list[Script] = [
        lambda body: Reply(
            f"It costs 480 euros a year, as Plans and prices says {marker_of(body, '480 euros')}. Ada likes it [Source 99]."
        ),
        Reply("It is surely very cheap."),  # cites nothing
        Reply(status=429),
        impatient.silent,
        impatient.silent,  # it is asked twice
        Reply(status=401),
        Reply(malformed=True),
    ]
    with ScriptedModel(*script) as model:
        gateway = {"RAG_LLM": "openai_like", "RAG_LLM_API_BASE": model.url, "RAG_LLM_API_KEY": "key of the gateway"}
        with configured({**gateway, "RAG_LLM_BACKOFF": "0"}), served() as client:
            ada = bearer(service.ada)
            answers = [client.post(ANSWER[0], json={"query_text": PLANS}, headers=ada) for _ in range(6)]
            asked = len(model.requests)
            refusal = client.post(ANSWER[0], json={"query_text": NOT_THERE}, headers=ada).json()
            streamed = client.post(
                ANSWER[0], json={"query_text": NOT_THERE}, headers=ada | {"Accept": "text/event-stream"}
            ).text
    answered, uncited, limited, late, forbidden, malformed = answers
    body = answered.json()
    assert body["status"] == "success" and body["answer"]["model"] == "google/gemini-2.5-flash"
    assert body["answer"]["text"] == "It costs 480 euros a year, as Plans and prices says [Source 1]."
    assert body["removed_sentences"] == 1 and len(body["citations"]) == 1
    request = model.requests[0]
    assert request.headers["Authorization"] == "Bearer key of the gateway"
    assert request.body["model"] == "google/gemini-2.5-flash"
    assert f"Question: {PLANS}" in request.prompt and "The yearly plan costs 480 euros." in request.prompt
    relevance = f"(Relevance: {body['citations'][0]['relevance_score']:.1%})"
    assert f"{marker_of(request.body, '480 euros')} {relevance}" in request.prompt
    assert "999 euros" not in request.prompt, "not a word of another organization goes to the model"

    assert uncited.json()["status"] == "insufficient_context" and uncited.json()["answer"]["text"] == INSUFFICIENT
    assert uncited.json()["answer"]["model"] is None and uncited.json()["citations"]
    problem(limited, 503, "model_rate_limited")
    problem(late, 500, "model_timeout")
    problem(forbidden, 500, "model_failed")
    problem(malformed, 500, "model_failed")
    assert (refusal["status"], refusal["answer"]["confidence"]) == ("insufficient_context", "low")
    assert "insufficient_context" in streamed
    assert len(model.requests) == asked == len(script), "no model is called for a weak match"


@pytest.mark.parametrize("store", [ON_DEFAULT_STORE])
def test_postgresql_goes_away_and_comes_back(store: str, tmp_path: Path) -> None:
    asked = {"query_text": PLANS}
    with ExitStack() as at_last, ExitStack() as running:
        server = running.enter_context(private.private_postgres(tmp_path))
        at_last.callback(lambda: shutil.rmtree((tmp_path / "cluster").resolve()))  # may lie outside of the folder
        upgrade(server.owner_url, server.app_url, MIGRATIONS)
        urls = server.owner_url, f"{server.app_url}?sslmode=disable"
        at_last.enter_context(configured(variables(urls, store, tmp_path, tmp_path / "qdrant")))
        _, _, ada = prepare(lambda application: load(application, tmp_path, {"plans": TEXTS["plans"]}))
        client = at_last.enter_context(served())

        def ask(path: str) -> httpx.Response:
            return client.post(path, json=asked, headers=bearer(ada))

        before = ask(SEARCH[0])
        assert before.status_code == 200 and before.json()["results"]
        port = str(make_url(server.app_url).port)
        running.close()
        for path in (SEARCH[0], ANSWER[0], SEARCH[0]):
            down = ask(path)
            problem(down, 500, "database_error")
            assert port not in down.text and down.headers["Retry-After"] == "5"
        key = {"Authorization": f"Bearer rag_{'A' * 43}"}
        for path, body, headers, status in (
            ("/api/v1/retrieval/query", {"query": PLANS}, key, 500),
            ("/owner/search", {"query": PLANS}, bearer(ada), 500),
            ("/api/lexybrain/rag", {"message": PLANS}, bearer(ada), 503),
        ):
            down = client.post(path, json=body, headers=headers)
            assert (down.status_code, down.headers["Retry-After"]) == (status, "5"), down.text
            assert port not in down.text
        assert client.get("/health/live").status_code == 200
        unready = client.get("/health/ready")
        assert unready.status_code == 503 and unready.json()["status"] == "unavailable"
        assert unready.headers["Retry-After"] == "5"
        checks = unready.json()["checks"]
        assert set(checks) == {"database", "vector_store"} and checks["database"] != "ok"

        running.enter_context(private.private_postgres(tmp_path))
        after = ask(SEARCH[0])
        assert after.status_code == 200 and after.json()["results"] == before.json()["results"]
        assert client.get("/health/ready").json()["checks"] == {"database": "ok", "vector_store": "ok"}

        running.close()
        running.enter_context(private.private_postgres(tmp_path))  # back before anybody asked
        assert [ask(SEARCH[0]).status_code for _ in range(4)] == [200, 200, 200, 200]
