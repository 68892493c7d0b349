"""`/api/v1/retrieval` with everything real behind it: figures that agree with trec_eval, runs and judgments that stay."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytrec_eval
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError

from rag_app.access.limits import Window
from rag_app.access.people import People
from rag_app.application import Application
from rag_app.database.session import Database
from rag_app.documents.generations import GenerationRegistry
from rag_app.documents.ledger import SourceLedger
from rag_app.documents.metadata import Target
from rag_app.domain.errors import Forbidden
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.domain.source import Source, Visibility, chunk_id, source_id
from rag_app.evaluation.judgments import read_judgments
from rag_app.evaluation.records import Validations
from rag_app.evaluation.tables import judgments_table, validations_table
from tests.conftest import SEVERAL, NewOrganization, NewPostgres
from tests.contract.test_retrieval_validation import COLLECTIONS, QUERY, RUNS, VALIDATE, problem
from tests.integration.service import configured, prepare, served

BOOK = resource_folder("indexes") / "book"
HANDBOOK = """# Night school

## Doors

{first}

## Robots

The grey robot in room twelve is called Turnip and waters the plants on Sundays.

## Lamps

{last}
"""
TURNIP = "What is the robot in room twelve called?"


@dataclass(frozen=True)
class School:
    """An organization with the book of its own, its keys, and the chunks of each source of the book by external id."""

    client: httpx.Client
    org: UUID
    key: str
    other_key: str
    notes_key: str
    folder: Path
    chunks: dict[str, list[str]]

    def post(self, path: str, body: object, key: str | None = None) -> dict[str, Any]:
        response = self.client.post(path, json=body, headers=bearer(key or self.key))
        assert response.status_code == 200, response.text
        given: dict[str, Any] = response.json()
        return given

    def get(self, path: str, key: str | None = None, **parameters: object) -> httpx.Response:
        return self.client.get(path, params=parameters, headers=bearer(key or self.key))  # type: ignore[arg-type]

    def metrics(self, query: str, key: str | None = None) -> dict[str, Any]:
        body = {"query": query, "top_k": 10, "validate": True}
        given: dict[str, Any] = self.post(QUERY, body, key)["validation_metrics"]
        return given

    def handbook(self, first: str, last: str, org: UUID | None = None) -> None:
        """Write it, and ingest it."""
        file = self.folder / "night-school.md"
        file.write_text(HANDBOOK.format(first=first, last=last), "utf-8")
        prepare(lambda application: ingest_book(application, org or self.org, [file], self.folder))

    def turnip(self, query: str, key: str | None = None) -> str:
        """The id of the one chunk that names the robot."""
        hits = self.post(QUERY, {"query": query, "top_k": 20}, key)["results"]
        [chunk] = [hit["chunk_id"] for hit in hits if "Turnip" in hit["content"]]
        return str(chunk)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def ingest_book(application: Application, org: UUID, paths: Sequence[Path], base: Path) -> None:
    visibility = Visibility.GLOBAL if org == PUBLIC_ORGANIZATION else Visibility.TEAM
    ingestor = await application.ingestor(application.indexes["book"], Target(org, visibility=visibility))
    summary = await ingestor.ingest(paths, base=base)
    assert not summary.failed


async def load(application: Application) -> tuple[UUID, list[str], dict[str, list[str]]]:
    school, other = [await application.people.create_organization(f"v-{uuid4().hex}", name) for name in ("A", "B")]
    keys = [
        await application.keys.create(school, "for the tests"),
        await application.keys.create(other, "of another school"),
        await application.keys.create(school, "for another index", ["org_knowledge"]),
    ]
    samples = BOOK / "samples"
    await ingest_book(application, school.id, [samples / "public", samples / "aurora"], samples)
    generation = await application.backends.active(application.indexes["book"])
    sources = [source async for source in application.ledger.list(Scope(frozenset({school.id})), "book")]
    builds = await application.ledger.builds(school.id, generation.id, [source.id for source in sources])
    chunks = {
        source.external_id: [str(chunk_id(source.id, source.version, n)) for n in range(builds[source.id].chunks)]
        for source in sources
    }
    return school.id, [secret for _, secret in keys], chunks


@pytest.fixture(scope="module")
def school(new_database: NewPostgres, default_store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    """In a database of its own: the public book of another test would be found, too, and is not judged."""
    server, folder = new_database(), tmp_path_factory.mktemp("school")
    variables = {
        "RAG_DATABASE_OWNER_URL": server.owner_url,
        "RAG_DATABASE_URL": server.app_url,
        "RAG_VECTOR_STORE": default_store,
        "QDRANT_PATH": str(folder / "qdrant"),
        "RAG_HOME": str(folder),
    }
    with configured(variables) as patch:
        patch.setattr("rag_app.access.limits.RateLimiter.hit", allowed)  # more requests than a minute allows
        org, [key, other_key, notes_key], chunks = prepare(load)
        with served() as client:
            yield School(client, org, key, other_key, notes_key, folder, chunks)


async def allowed(self: object, key: str, limit: int, more: int = 0) -> Window:
    return Window(limit, limit - 1, 0, allowed=True)


def judged_queries(school: School) -> dict[str, list[str]]:
    """The book's own judgments, by chunk: every second chunk of a source that answers, or it would be too easy."""
    judgments = read_judgments(BOOK / "judgments.jsonl")
    return {
        query.text: [chunk for source in judgments.qrels[query.id] for chunk in school.chunks[source][::2]]
        for query in judgments.queries
        if query.id in judgments.answerable and set(judgments.qrels[query.id]) <= set(school.chunks)
    }


@pytest.mark.parametrize("top_k", [3, 10, 40])
def test_a_real_run_agrees_with_trec_eval(school: School, top_k: int) -> None:
    """What HTTP says of the book's sample corpus, and what trec_eval says of the same rankings."""
    asked = judged_queries(school)
    assert len(asked) >= 15
    body = {"queries": [{"query": q, "expected_chunks": chunks} for q, chunks in asked.items()], "top_k": top_k}
    ours = school.post(VALIDATE, body)
    deep = ours if top_k >= 10 else school.post(VALIDATE, {**body, "top_k": 10})
    qrels = {query: dict.fromkeys(chunks, 1) for query, chunks in asked.items()}

    def ranking(report: dict[str, Any]) -> dict[str, dict[str, float]]:
        return {
            each["query_text"]: {chunk: 1 / place for place, chunk in enumerate(each["retrieved_chunks"], 1)}
            for each in report["results"]
        }

    cuts = sorted({5, 10, top_k})
    names = ",".join(map(str, cuts))
    at_cuts = pytrec_eval.RelevanceEvaluator(qrels, {f"P.{names}", f"recall.{names}"}).evaluate(ranking(deep))
    whole = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", f"success.{top_k}"}).evaluate(ranking(ours))
    theirs: dict[str, list[float]] = {}
    for each in ours["results"]:
        query, metrics = each["query_text"], each["metrics"]
        for k in cuts:
            for name, figures in (("P", metrics["precision_at_k"]), ("recall", metrics["recall_at_k"])):
                assert figures[str(k)] == pytest.approx(at_cuts[query][f"{name}_{k}"], abs=1e-4)
                theirs.setdefault(f"{name}_{k}", []).append(at_cuts[query][f"{name}_{k}"])
        assert metrics["mrr"] == pytest.approx(whole[query]["recip_rank"], abs=1e-4)
        assert metrics["hit_rate"] == whole[query][f"success_{top_k}"]
        theirs.setdefault("recip_rank", []).append(whole[query]["recip_rank"])
        theirs.setdefault(f"success_{top_k}", []).append(whole[query][f"success_{top_k}"])
    aggregates = ours["aggregate_metrics"]
    pairs = [(f"P_{k}", aggregates[f"avg_precision_at_{k}"]) for k in cuts]
    pairs += [(f"recall_{k}", aggregates[f"avg_recall_at_{k}"]) for k in cuts]
    pairs += [("recip_rank", aggregates["overall_mrr"]), (f"success_{top_k}", aggregates["hit_rate"])]
    print(f"\n{len(asked)} queries, top_k {top_k}\n  {'':<12} {'HTTP':>8} {'trec_eval':>10}")
    for name, value in pairs:
        mean = sum(theirs[name]) / len(theirs[name])
        print(f"  {name:<12} {value:>8.4f} {mean:>10.4f}")
        assert value == pytest.approx(mean, abs=1e-4)
    assert 0.5 < aggregates["overall_mrr"] < 1


def test_the_query_of_the_contract(school: School) -> None:
    body = school.post(QUERY, {"query": "What is the main concept of embodied AI?", "threshold": 0.3})
    assert 1 <= len(body["results"]) <= 5
    assert all(result["similarity_score"] >= 0.3 for result in body["results"])
    assert body["search_metadata"]["query_embedding_dimension"] == 384
    assert body["results"][0]["chunk_id"] in school.chunks["public/chapter-01-introduction.md"]
    assert school.post(QUERY, {"query": "embodied AI", "threshold": 1})["results"] == []


def test_a_key_sees_its_organization_and_its_indexes(school: School) -> None:
    own = {chunk for chunks in school.chunks.values() for chunk in chunks}
    question = {"query": "What is the main concept of embodied AI?", "top_k": 20}
    assert own & {result["chunk_id"] for result in school.post(QUERY, question)["results"]}
    assert not own & {result["chunk_id"] for result in school.post(QUERY, question, school.other_key)["results"]}
    problem(school.client.post(QUERY, json=question, headers=bearer(school.notes_key)), 404, "COLLECTION_NOT_FOUND")

    def listed(key: str) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in school.get(COLLECTIONS, key).json()["collections"]}

    mine, theirs = listed(school.key), listed(school.other_key)
    assert set(mine) == set(theirs) >= {"rag_embedding", "book", "org_knowledge"}
    assert mine["rag_embedding"] == {**mine["book"], "name": "rag_embedding"}
    assert mine["book"]["point_count"] - theirs["book"]["point_count"] >= len(own)
    assert mine["org_knowledge"]["point_count"] == theirs["org_knowledge"]["point_count"]
    assert set(listed(school.notes_key)) == {"org_knowledge"}


def test_runs_are_stored_compared_and_kept_apart(school: School) -> None:
    question, chunks = next(iter(judged_queries(school).items()))
    queries = [{"query": question, "expected_chunks": chunks}]
    first = school.post(VALIDATE, {"queries": queries, "top_k": 5})
    second = school.post(VALIDATE, {"queries": [*queries, {"query": "Why?", "expected_chunks": ["x"]}], "top_k": 10})
    assert school.get(f"{RUNS}/{first['validation_id']}").json() == first
    compared = school.get(f"{RUNS}/{second['validation_id']}", against=first["validation_id"]).json()
    assert {name: value for name, value in compared.items() if name != "comparison"} == second
    [same] = compared["comparison"]["queries"]
    assert same["lost"] == [] and len(same["gained"]) == 5
    assert same["gained"] == second["results"][0]["retrieved_chunks"][5:]
    [newest, before] = school.get(RUNS, limit=2).json()["validations"]
    assert (newest["validation_id"], newest["top_k"]) == (second["validation_id"], 10)
    assert (before["validation_id"], before["collection_name"]) == (first["validation_id"], "book")
    page = school.get(RUNS, limit=1, before=newest["validation_id"]).json()
    assert page["validations"] == [before] and page["next"] == first["validation_id"]
    for key in (school.other_key, school.notes_key):
        assert school.get(RUNS, key).json() == {"validations": [], "next": None}
        problem(school.get(f"{RUNS}/{first['validation_id']}", key), 404, "NOT_FOUND")
        problem(school.get(RUNS, key, before=first["validation_id"]), 404, "NOT_FOUND")


@pytest.fixture
def budget(school: School) -> Iterator[tuple[str, UUID]]:
    """The key of a member of a group, and the audience that is this group alone; afterwards no source of its is left."""

    async def found(application: Application) -> tuple[str, UUID]:
        org = await application.people.organization(str(school.org))
        key, secret = await application.keys.create(org, "of a member")
        finance = await application.groups.create(org, f"finance-{uuid4().hex}")
        await application.groups.add_member(finance, await application.people.user(f"key:{key.id}"))
        return secret, await application.groups.audience(org, [finance.slug])

    async def withdraw(application: Application) -> None:
        ingestor = await application.ingestor(application.indexes["book"], Target(school.org))
        await ingestor.delete([source_id(school.org, "book", "budget.md")])

    yield prepare(found)
    prepare(withdraw)


def write_budget(school: School, audience: UUID | None) -> None:
    file = school.folder / "budget.md"
    file.write_text("# Budget\n\nThe zeppelin fund holds four thousand euros.\n", "utf-8")
    target = Target(school.org, None, None, Visibility.GROUP if audience else Visibility.TEAM, audience)

    async def work(application: Application) -> None:
        ingestor = await application.ingestor(application.indexes["book"], target)
        assert not (await ingestor.ingest([file], base=school.folder)).failed

    prepare(work)


ZEPPELIN = {"queries": [{"query": "What does the zeppelin fund hold?", "expected_chunks": ["x"]}], "top_k": 5}


def runs_of(school: School, key: str) -> list[str]:
    return [each["validation_id"] for each in school.get(RUNS, key).json()["validations"]]


@SEVERAL
def test_a_run_that_found_what_a_group_sees_is_shown_to_the_group(school: School, budget: tuple[str, UUID]) -> None:
    member, audience = budget
    shared = school.post(VALIDATE, ZEPPELIN, member)["validation_id"]
    assert school.get(f"{RUNS}/{shared}").status_code == 200
    write_budget(school, audience)
    run, mine = (school.post(VALIDATE, ZEPPELIN, key)["validation_id"] for key in (member, school.key))
    assert school.get(f"{RUNS}/{run}", member, against=mine).json()["comparison"]["against"] == mine
    assert runs_of(school, member)[:3] == [mine, run, shared]

    def is_hidden() -> None:
        problem(school.get(f"{RUNS}/{run}"), 404, "NOT_FOUND")
        problem(school.get(f"{RUNS}/{mine}", against=run), 404, "NOT_FOUND")
        assert runs_of(school, school.key)[:2] == [mine, shared]

    is_hidden()
    write_budget(school, None)  # what is for everybody now was not when it was found
    is_hidden()


@SEVERAL
def test_a_run_is_hidden_from_who_no_longer_sees_its_sources(school: School, budget: tuple[str, UUID]) -> None:
    member, audience = budget
    write_budget(school, None)
    run = school.post(VALIDATE, ZEPPELIN, school.key)["validation_id"]
    assert run in runs_of(school, school.key) and run in runs_of(school, member)
    write_budget(school, audience)
    assert run not in runs_of(school, school.key) and run in runs_of(school, member)
    problem(school.get(f"{RUNS}/{run}"), 404, "NOT_FOUND")


@SEVERAL
def test_judgments_outlive_the_chunks_they_came_as(school: School) -> None:
    """A source is changed below and above what was judged: its chunks are others, the passage is still known."""
    assert school.metrics(TURNIP)["basis"] == "threshold"
    school.handbook("The doors open at six.", "The lamps are switched off at ten.")
    answer = school.turnip(TURNIP)
    elsewhere = school.chunks["public/preface.md"][0]
    school.post(VALIDATE, {"queries": [{"query": TURNIP, "expected_chunks": [answer, str(uuid4()), "chunk_1"]}]})

    judged = school.metrics(f"  {TURNIP.upper()} \n")
    assert judged["basis"] == "judgments"
    assert judged["recall_at_k"] == {"5": 1.0, "10": 1.0} and judged["relevant_results"] == 1
    assert school.metrics(TURNIP, school.other_key)["basis"] == "threshold", "another organization knows nothing of it"

    doors, lamps = (
        "The doors are open by day, and somebody guards them. " * 40,
        "The lamps are left on all night. " * 40,
    )
    for first, last in (("The doors open at six.", lamps), (doors, lamps), ("Open.", "")):
        school.handbook(first, last)
        assert school.turnip(TURNIP) != answer
        stayed = school.metrics(TURNIP)
        for name in ("basis", "recall_at_k", "precision_at_k", "mrr", "relevant_results"):
            assert stayed[name] == judged[name], (name, first[:20])
    # the old ids are expected and never found, as those of anybody else's chunks
    [result] = school.post(VALIDATE, {"queries": [{"query": "Turnip?", "expected_chunks": [answer, elsewhere]}]})[
        "results"
    ]
    assert result["total_expected"] == 2 and answer not in result["retrieved_chunks"]


@SEVERAL
def test_a_public_source_is_judged_by_each_organization_for_itself(school: School) -> None:
    query, at_six = "Who waters the plants on Sundays?", "The doors open at six."
    school.handbook(at_six, "The lamps are switched off at ten.", PUBLIC_ORGANIZATION)
    try:
        answer = school.turnip(query, school.other_key)
        school.post(VALIDATE, {"queries": [{"query": query, "expected_chunks": [answer]}]}, school.other_key)
        for first in (at_six, "The doors are open by day, and somebody guards them. " * 40):
            school.handbook(first, "The lamps are switched off at ten.", PUBLIC_ORGANIZATION)
            judged = school.metrics(query, school.other_key)
            assert (judged["basis"], judged["recall_at_k"]["10"]) == ("judgments", 1.0)
            assert judged["relevant_results"] == 1
            assert school.metrics(query)["basis"] == "threshold"
    finally:
        prepare(withdraw_public_handbook)  # other tests of this run ask for exact results
    assert school.metrics(query, school.other_key)["basis"] == "threshold"


async def withdraw_public_handbook(application: Application) -> None:
    ingestor = await application.ingestor(application.indexes["book"], Target(PUBLIC_ORGANIZATION))
    await ingestor.delete([source_id(PUBLIC_ORGANIZATION, "book", "night-school.md")])


def test_chunks_of_others_are_expected_and_never_found(school: School) -> None:
    """A chunk that exists for somebody else and one that does not exist at all look the same."""
    own = school.chunks["public/preface.md"][0]
    answers = []
    for chunk in (own, str(uuid4())):
        report = school.post(
            VALIDATE, {"queries": [{"query": "preface", "expected_chunks": [chunk]}]}, school.other_key
        )
        [result] = report["results"]
        answers.append({name: value for name, value in result.items() if name not in {"query_id", "retrieved_chunks"}})
        assert school.metrics("preface", school.other_key)["basis"] == "threshold"
    assert answers[0] == answers[1]


# -- the tables


@dataclass(frozen=True)
class Shelf:
    """Of one organization: a principal, a generation and a source of its own in the index `book`."""

    principal: Principal
    generation: int
    source: Source


PASSAGES: list[dict[str, object]] = [
    {"text": "One.", "section": None, "page": None},
    {"text": "Two.", "section": "S", "page": 2},
]


@pytest.fixture
async def generation(database: Database) -> int:
    return (await GenerationRegistry(database).create("book", "qdrant", "none", 8, {})).id


@pytest.fixture
async def shelf(database: Database, organization: NewOrganization, generation: int) -> Shelf:
    return await _shelf(database, (await organization()).id, generation)


async def _shelf(database: Database, org: UUID, generation: int, **other: Any) -> Shelf:
    source = Source(org, "book", f"{uuid4()}.md", "A chapter", "chapter", "1", **other)
    await SourceLedger(database).begin([(source, PASSAGES)], generation)
    return Shelf(Principal("key:x", None, frozenset({org})), generation, source)


async def rewrite(database: Database, shelf: Shelf, texts: Sequence[str]) -> None:
    content = [{"text": each, "section": None, "page": None} for each in texts]
    await SourceLedger(database).begin([(shelf.source, content)], shelf.generation)


async def record(database: Database, shelf: Shelf, *judgments: Any, found: Sequence[UUID] = (), **report: Any) -> UUID:
    run = uuid4()
    await Validations(database).record(shelf.principal, run, "book", shelf.generation, 10, report, judgments, found)
    return run


async def judged_of(database: Database, shelf: Shelf, query: str) -> list[Any]:
    return sorted((await Validations(database).judgments(shelf.principal, "book", query, set()))[0], key=str)


async def test_a_judgment_is_stored_once_and_found_by_its_words(database: Database, shelf: Shelf) -> None:
    source = shelf.source.id
    for _ in range(2):
        await record(database, shelf, ("What  is\tTWO?", source, (6, 10)), ("what is two?", source, None))
    assert await judged_of(database, shelf, " what is Two? ") == [(source, (6, 10)), (source, None)]


async def test_a_run_outlives_its_sources_for_those_who_could_see_them(
    database: Database, organization: NewOrganization, generation: int
) -> None:
    org, people, ledger = (await organization()).id, People(database), SourceLedger(database)
    owner = (await people.create_user(f"u-{uuid4().hex}")).id
    own = await _shelf(database, org, generation, owner_id=owner, visibility=Visibility.USER)
    team = await _shelf(database, org, generation)
    ada, everybody = replace(own, principal=Principal("key:a", owner, frozenset({org}))), team
    private = await record(database, ada, found=[own.source.id, team.source.id])
    shared = await record(database, ada, found=[team.source.id])
    gone = [own.source.id, team.source.id]
    await ledger.mark_deleting(org, gone)
    await ledger.forget(org, gone)

    async def read_runs(principal: Principal) -> list[UUID]:
        return [row.id for row in await Validations(database).newest(principal, 10)]

    assert await read_runs(ada.principal) == [shared, private]
    assert await read_runs(everybody.principal) == [shared]
    assert await Validations(database).report(everybody.principal, private) is None
    assert await Validations(database).report(everybody.principal, shared) == {}


async def test_contents_come_with_the_sources_that_were_hit(database: Database, shelf: Shelf) -> None:
    await record(database, shelf, ("q", shelf.source.id, (0, 4)))
    validations = Validations(database)
    assert (await validations.judgments(shelf.principal, "book", "q", {uuid4()}))[1] == {}
    assert (await validations.judgments(shelf.principal, "book", "q", {shelf.source.id}))[1] == {
        shelf.source.id: PASSAGES
    }
    assert await validations.read_passages(shelf.principal, {shelf.source.id, uuid4()}) == {shelf.source.id: PASSAGES}


@pytest.mark.parametrize("letter", ["x", "語"])
async def test_the_longest_query_can_be_judged(database: Database, shelf: Shelf, letter: str) -> None:
    """An entry of an index in PostgreSQL holds less than 2000 characters of some languages."""
    query = "".join(chr(ord(letter) + n * 7919 % 5000) for n in range(2000)) if letter != "x" else uuid4().hex * 62
    await record(database, shelf, (query, shelf.source.id, (0, 4)))
    assert await judged_of(database, shelf, query) == [(shelf.source.id, (0, 4))]
    assert await judged_of(database, shelf, query[:-1] + "!") == []


async def test_judgments_of_what_is_out_of_scope_are_passed_over(
    database: Database, shelf: Shelf, organization: NewOrganization
) -> None:
    other = await _shelf(database, (await organization()).id, shelf.generation)
    await record(database, shelf, *(("q", source, (0, 4)) for source in (other.source.id, uuid4(), shelf.source.id)))
    assert await judged_of(database, shelf, "q") == [(shelf.source.id, (0, 4))]
    await record(database, other, ("q", other.source.id, None))
    assert await judged_of(database, shelf, "q") == [(shelf.source.id, (0, 4))]
    assert await judged_of(database, other, "q") == [(other.source.id, None)]
    assert await Validations(database).read_passages(shelf.principal, {other.source.id}) == {}


async def test_what_two_organizations_judge_of_a_public_source_stays_with_each_and_goes_with_it(
    database: Database, shelf: Shelf, organization: NewOrganization
) -> None:
    public = (await _shelf(database, PUBLIC_ORGANIZATION, shelf.generation, visibility=Visibility.GLOBAL)).source
    other = await _shelf(database, (await organization()).id, shelf.generation)
    assert await Validations(database).read_passages(shelf.principal, {public.id}) == {public.id: PASSAGES}
    await record(database, shelf, ("q", public.id, (0, 4)))
    assert await judged_of(database, other, "q") == []
    await record(database, other, ("q", public.id, (0, 4)), ("q", public.id, (6, 10)))
    assert await judged_of(database, shelf, "q") == [(public.id, (0, 4))]
    assert await judged_of(database, other, "q") == [(public.id, (0, 4)), (public.id, (6, 10))]
    ledger = SourceLedger(database)
    await ledger.mark_deleting(PUBLIC_ORGANIZATION, [public.id])
    assert await judged_of(database, shelf, "q") == []
    await ledger.forget(PUBLIC_ORGANIZATION, [public.id])
    for each in (shelf, other):
        async with database.scoped(each.principal.scope()) as session:
            assert await session.scalar(select(func.count()).select_from(judgments_table)) == 0


BEFORE = ["The doors open at six.", "The robot is called Turnip.", "See below.", "Lamps are off.", "See below."]


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (["A new page.", *BEFORE], True),
        (["Doors.", *BEFORE[1:]], True),
        (BEFORE[1:], True),
        ([*BEFORE[:2], "Anything else.", "At all."], True),
        (["\n\n".join(BEFORE[::-1])], True),
        ([BEFORE[0], "The robot is named Turnip.", *BEFORE[2:]], False),
        ([BEFORE[0], *BEFORE[2:]], False),
        ([], False),
    ],
    ids=["above", "shorter above", "removed above", "below", "another order", "inside", "removed", "all removed"],
)
async def test_a_passage_is_where_its_text_stands_now(
    database: Database, shelf: Shelf, after: list[str], found: bool
) -> None:
    """And where it was judged, if its text is gone."""
    await rewrite(database, shelf, BEFORE)
    judged, whole = BEFORE[1], "\n\n".join(BEFORE)
    span = whole.index(judged), whole.index(judged) + len(judged)
    await record(database, shelf, ("q", shelf.source.id, span), ("q", shelf.source.id, None))
    await rewrite(database, shelf, after)
    [(_, now), (_, all_of_it)] = await judged_of(database, shelf, "q")
    assert all_of_it is None
    assert "\n\n".join(after)[slice(*now)] == judged if found else now == span


async def test_of_equal_texts_the_nearest_is_meant(database: Database, shelf: Shelf) -> None:
    await rewrite(database, shelf, BEFORE)
    whole = "\n\n".join(BEFORE)
    places = [whole.index("See below."), whole.rindex("See below.")]
    await record(database, shelf, *(("q", shelf.source.id, (place, place + 10)) for place in places))
    for above in ("", "New.", "N"):
        await rewrite(database, shelf, [above, *BEFORE] if above else BEFORE)
        moved = len(above) + 2 if above else 0
        assert [span for _, span in await judged_of(database, shelf, "q")] == [
            (place + moved, place + moved + 10) for place in places
        ]


async def test_judging_again_keeps_the_text_of_today(database: Database, shelf: Shelf) -> None:
    """A letter is corrected, the passage is judged again, and then it moves."""
    judgment = ("q", shelf.source.id, (0, 4))
    await record(database, shelf, judgment)
    await rewrite(database, shelf, ["Ône.", "Two."])
    await record(database, shelf, judgment, (" Q ", *judgment[1:]))
    await rewrite(database, shelf, ["Zero. 語", "Ône.", "Two."])
    assert await judged_of(database, shelf, "q") == [(shelf.source.id, (9, 13))]


async def test_a_passage_that_was_judged_before_and_after_it_moved_is_one(database: Database, shelf: Shelf) -> None:
    await record(database, shelf, ("q", shelf.source.id, (0, 4)))
    await rewrite(database, shelf, ["Zero.", "One."])
    await record(database, shelf, ("q", shelf.source.id, (7, 11)))
    assert set(await judged_of(database, shelf, "q")) == {(shelf.source.id, (7, 11))}


async def test_a_judgment_of_a_private_source_is_known_to_who_sees_it(database: Database, shelf: Shelf) -> None:
    ann = (await People(database).create_user(f"ann-{uuid4().hex}")).id
    [org] = shelf.principal.organizations
    private = await _shelf(database, org, shelf.generation, owner_id=ann, visibility=Visibility.USER)
    as_ann = Shelf(Principal("key:ann", ann, frozenset({org})), shelf.generation, private.source)
    await record(database, as_ann, ("q", private.source.id, (0, 4)))
    await record(database, shelf, ("q", private.source.id, None))
    assert await judged_of(database, as_ann, "q") == [(private.source.id, (0, 4))]
    assert await judged_of(database, shelf, "q") == []
    assert await Validations(database).read_passages(shelf.principal, {private.source.id}) == {}


async def test_judgments_go_with_their_source(database: Database, shelf: Shelf) -> None:
    await record(database, shelf, ("q", shelf.source.id, (0, 4)))
    ledger = SourceLedger(database)
    [org] = shelf.principal.organizations
    await ledger.mark_deleting(org, [shelf.source.id])
    assert await judged_of(database, shelf, "q") == []
    await record(database, shelf, ("q", shelf.source.id, None))
    await ledger.forget(org, [shelf.source.id])
    async with database.scoped(shelf.principal.scope()) as session:
        assert await session.scalar(select(func.count()).where(judgments_table.c.org_id == org)) == 0


async def test_runs_and_judgments_are_under_row_level_security(
    database: Database, shelf: Shelf, organization: NewOrganization
) -> None:
    """Even a query that forgets to say whose sees nobody else's, and nothing can be written for others."""
    await record(database, shelf, ("q", shelf.source.id, (0, 4)))
    stranger = (await organization()).id
    async with database.scoped(Scope(frozenset({stranger}))) as session:
        for table in (validations_table, judgments_table):
            assert await session.scalar(select(func.count()).select_from(table)) == 0
    forged = Principal("key:x", None, shelf.principal.organizations)
    with pytest.raises(DBAPIError, match="row-level security"):
        async with database.scoped(Scope(frozenset({stranger}))) as session:
            await session.execute(
                text(
                    "INSERT INTO validations (id, org_id, index_name, generation_id, top_k, report)"
                    " VALUES (gen_random_uuid(), :org, 'book', :generation, 1, '{}')"
                ),
                {"org": next(iter(forged.organizations)), "generation": shelf.generation},
            )


@pytest.mark.parametrize("organizations", [0, 2])
async def test_a_caller_of_no_or_two_organizations_has_no_validations(database: Database, organizations: int) -> None:
    nobody = Principal("x", None, frozenset(uuid4() for _ in range(organizations)))
    with pytest.raises(Forbidden):
        await Validations(database).newest(nobody, 10)
    with pytest.raises(Forbidden):
        await Validations(database).report(nobody, uuid4())


async def test_a_report_comes_back_as_it_was(database: Database, shelf: Shelf) -> None:
    given: dict[str, Any] = {
        "results": [{"mrr": 1.0, "text": "Ça va? 語 \"' {}"}],
        "total_queries": 1,
        "figure": 0.3333,
    }
    run = await record(database, shelf, **given)
    validations = Validations(database)
    assert await validations.report(shelf.principal, run) == given
    [(listed, index, top_k, summary)] = await validations.newest(shelf.principal, 10)
    assert (listed, index, top_k) == (run, "book", 10) and "results" not in summary
    bound = Principal("key:y", None, shelf.principal.organizations, frozenset({"notes"}))
    assert await validations.report(bound, run) is None and await validations.newest(bound, 10) == []


async def test_two_runs_at_once_judge_the_same(database: Database, shelf: Shelf) -> None:
    judgments = [(f"q{n}", shelf.source.id, (n, n + 1)) for n in range(200)]
    await asyncio.gather(*(record(database, shelf, *judgments[::step]) for step in (1, -1) for _ in range(4)))
    async with database.scoped(shelf.principal.scope()) as session:
        count = select(func.count()).select_from(judgments_table).where(judgments_table.c.source_id == shelf.source.id)
        assert await session.scalar(count) == 200
