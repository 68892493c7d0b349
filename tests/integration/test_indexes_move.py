"""An index moved from one vector store to the other: nothing embedded again, nothing lost, nothing seen by others."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from sqlalchemy import text

from rag_app.application import Application
from rag_app.console.doctor import describe_other_store
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.generations import Generation
from rag_app.documents.ingest import Ingestor
from rag_app.documents.metadata import Target
from rag_app.documents.rebuild import Move
from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import Scope
from rag_app.domain.source import Visibility, source_id
from rag_app.retrieval.confidence import WORDS_ALONE
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.index import IndexSpec, load_indexes
from rag_app.retrieval.retriever import ChunkRetriever
from rag_app.retrieval.store import ScopedStore, Search
from rag_app.settings import Settings
from rag_app.stores.registry import STORES
from rag_app.surfaces.administration.indexing import Indexing, MoveOutcome
from tests.conftest import ON_DEFAULT_STORE, NewPostgres
from tests.integration.conftest import Command, Forking
from tests.integration.stopping import stopped
from tests.integration.test_indexes import FINE, INDEX, SPEC, deployed, holdings, ingest, new_org, quietly
from tests.integration.test_ingestion import write_corpus
from tests.unit.retrieval.shelf import opening

OTHER = {"postgres": "qdrant", "qdrant": "postgres"}
SAMPLES = resource_folder("indexes") / INDEX / "samples"
QUESTIONS = [
    "What was said in the one-to-one about working from home?",
    "How much does a text message cost from February?",
    "Que faire quand un patient ne vient pas à son rendez-vous ?",
]


@pytest.fixture(params=[ON_DEFAULT_STORE])
def urls(
    request: pytest.FixtureRequest, new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DatabaseUrls:
    """A deployment on an empty database, with this vector store; what is moved goes to the other one."""
    urls = deployed(new_database, request.param, tmp_path, monkeypatch)
    declare(monkeypatch, SPEC)
    return urls


def declare(monkeypatch: pytest.MonkeyPatch, *specs: IndexSpec) -> None:
    """These indexes, as they are from now on, beside the others."""
    indexes = load_indexes(resource_folder("indexes")) | {spec.name: spec for spec in specs}
    monkeypatch.setattr("rag_app.application._indexes", lambda settings: indexes)


@asynccontextmanager
async def opened(urls: DatabaseUrls, store: str | None = None) -> AsyncIterator[Application]:
    """With `store` set instead of the one that the deployment began with."""
    with pytest.MonkeyPatch.context() as patch:
        if store is not None:
            patch.setenv("RAG_VECTOR_STORE", store)
        application = Application(Settings(), urls)
    try:
        await application.start()
        yield application
    finally:
        await application.close()


def store_of(application: Application) -> str:
    return application.settings.store.kind


async def move(application: Application, to: str | None = None) -> MoveOutcome:
    return await Indexing(application).move(INDEX, to or OTHER[store_of(application)], begin=quietly)


async def active(application: Application, store: str) -> Generation:
    found = await application.generations.active(INDEX, store)
    assert found is not None
    return found


async def holding(application: Application, store: str, org: UUID) -> ScopedStore:
    """What an organization has in the generation of this store that answers, for the operator."""
    return application.backends.scoped(SPEC, await active(application, store), Scope(frozenset({org})))


async def exported(application: Application, store: str, org: UUID) -> dict[str, TextNode]:
    scoped = await holding(application, store, org)
    sources = await scoped.sources()
    return {node.node_id: node for node in await scoped.export([*sources])} if sources else {}


async def states(application: Application) -> list[tuple[str, int, str, int]]:
    return [
        (each.generation.store, each.generation.number, str(each.generation.state), each.sources)
        for each in await holdings(application)
        if each.generation.index == INDEX
    ]


Answers = list[tuple[Mode, list[str], dict[str, tuple[float, float]]]]


async def answers(application: Application, scopes: list[Scope]) -> Answers:
    """What every question finds in every mode, as each of these sees it, with cosine and BM25 of every chunk."""
    found = []
    for scope in scopes:
        store = await application.backends.open(SPEC, scope)
        for mode in Mode:
            retriever = ChunkRetriever(opening(store), application.embedder, Question("", top_k=1000, mode=mode))
            for words in QUESTIONS:
                hits = [each.node_id for each in await retriever.aretrieve(words)]
                vector = await application.embedder.aget_query_embedding(words)
                every = await store.candidates(Search(vector, words, (), mode, 1000))
                found.append((mode, hits, {str(each.id): (each.cosine, each.bm25) for each in every}))
    return found


def assert_agree(some: Answers, others: Answers) -> None:
    """The same chunks in the same order, with the same scores up to 1e-6; those of equal BM25 may change places."""
    for (mode, one, scores), (_, other, other_scores) in zip(some, others, strict=True):
        assert one and scores.keys() == other_scores.keys()
        for chunk, both in scores.items():
            assert both == pytest.approx(other_scores[chunk], abs=1e-6)
        for chunk, there in zip(one, other, strict=True):
            assert chunk == there or (mode is Mode.TEXT and abs(scores[chunk][1] - scores[there][1]) < 1e-6)


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that the embedding model is given."""
    texts: list[str] = []
    embed = MiniLM._get_text_embeddings

    def counted(self: MiniLM, words: list[str]) -> Any:
        texts.extend(words)
        return embed(self, words)

    monkeypatch.setattr(MiniLM, "_get_text_embeddings", counted)
    return texts


def write_lines(file: Path, count: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"id": f"line-{n:04}", "title": f"Line {n}", "text": f"The lighthouse number {n} stands."} for n in range(count)
    ]
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")


async def test_an_empty_index_names_the_store_that_its_sources_are_in(urls: DatabaseUrls, tmp_path: Path) -> None:
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "till.md").write_text("The till is counted by two people.")
        await ingest(application, await new_org(application), tmp_path / "docs")
        assert await describe_other_store(application, INDEX) == ""
    async with opened(urls, second) as application:
        said = await describe_other_store(application, INDEX)
        assert said == f"nothing is in it, its sources are in {first} (1): `rag-app indexes move {INDEX} --to {second}`"
        await move(application, second)
        assert await describe_other_store(application, INDEX) == ""


async def test_there_and_back_again_with_the_same_answers_and_nothing_embedded(
    urls: DatabaseUrls, embedded: list[str]
) -> None:
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        mine, theirs = await new_org(application), await new_org(application)
        ann = (await application.people.create_user(f"ann-{uuid4()}")).id
        for part in ("docs", "faq", "mail", "web"):  # tags, dates, pages, two languages
            await ingest(application, mine, SAMPLES / "aurora" / part)
        await ingest(application, mine, SAMPLES / "aurora" / "private", owner_id=ann, visibility=Visibility.USER)
        await ingest(application, theirs, SAMPLES / "birch")
        scopes = [Scope(frozenset({mine})), Scope(frozenset({mine}), ann), Scope(frozenset({theirs}), ann)]
        before, original = await answers(application, scopes), await exported(application, first, mine)
        asked = len(embedded)

        moved = await move(application)
        assert len(embedded) == asked
        assert (moved.generation.store, moved.generation.number, moved.generation.state) == (second, 1, "active")
        assert (moved.origin.store, moved.lacking, moved.built.failed, moved.differing_sources) == (first, 0, [], 0)
        assert moved.setting == f"RAG_VECTOR_STORE={second}"
        compared = {each.org_id: each for each in moved.compared}
        assert (compared[mine].original.chunks, compared[mine].copy.chunks) == (len(original), len(original))
        assert sum(each.sources for each in moved.compared) == moved.built.sources > 20
        assert sum(each.copy.chunks for each in moved.compared) == moved.built.chunks > 60
        assert all(each.original == each.copy and each.deviation < 1e-7 for each in moved.compared)
        assert sorted(await states(application)) == [(each, 1, "active", moved.built.sources) for each in sorted(OTHER)]
        assert_agree(await answers(application, scopes), before)  # the settings still ask the first one

    async with opened(urls, second) as application:
        assert_agree(await answers(application, scopes), before)
        for org, foreign in ((mine, theirs), (theirs, mine)):
            sources = await (await holding(application, second, org)).sources()
            describe_other_store = await holding(application, second, foreign)
            assert (
                sources
                and not sources & await describe_other_store.sources()
                and not await describe_other_store.export([*sources])
            )
        private = source_id(mine, INDEX, "one-to-ones.md")
        assert private in await (await holding(application, second, mine)).sources()
        found = [await application.pipeline.search(INDEX, Question(QUESTIONS[0]), each) for each in scopes]
        assert [private in {hit.source_id for hit in each} for each in found] == [False, True, False]

        asked = len(embedded)
        again = await move(application, first)  # where it came from: all of it is there
        assert (again.generation.number, again.built.sources, again.differing_sources) == (1, 0, 0)
        async with application.database.session() as session:
            await session.execute(
                text("UPDATE generations SET state = 'retired' WHERE index_name = :index AND store = :store"),
                {"index": INDEX, "store": first},
            )
        back = await move(application, first)  # and to a new generation
        assert (back.generation.number, back.generation.state, back.differing_sources) == (2, "active", 0)
        assert (back.built.sources, back.built.chunks) == (moved.built.sources, moved.built.chunks)
        assert len(embedded) == asked
    async with opened(urls, first) as application:
        assert_agree(await answers(application, scopes), before)
        returned = await exported(application, first, mine)
        assert returned.keys() == original.keys()
        for key, node in original.items():
            assert (returned[key].text, returned[key].metadata) == (node.text, node.metadata)
            assert np.abs(np.array(returned[key].embedding) - np.array(node.embedding)).max() < 1e-6


async def test_what_is_ingested_and_deleted_between_two_moves_is_brought_over_and_nothing_else(
    urls: DatabaseUrls, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    write_corpus(docs, 12)
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        org, other = await new_org(application), await new_org(application)
        await ingest(application, org, docs)
        await move(application)
        (docs / "doc-000.md").write_text("# New\n\nThe submarine dives.", "utf-8")
        (docs / "new.md").write_text("# New\n\nThe submarine surfaces.", "utf-8")
        await ingest(application, org, docs)
        await ingest(application, other, docs / "new.md")
        gone = source_id(org, INDEX, "doc-001.md")
        await (await application.ingestor(SPEC, Target(org))).delete([gone])

        again = await move(application)
        assert (again.generation.number, again.built.sources, again.lacking, again.differing_sources) == (1, 3, 0, 0)
        assert sum(each.sources for each in again.compared) == 13
        copy = await holding(application, second, org)
        assert gone not in await copy.sources() and len(await copy.sources()) == 12  # its chunks, too, not only its row
        for each in (org, other):
            one, two = await exported(application, first, each), await exported(application, second, each)
            assert {k: n.text for k, n in one.items()} == {k: n.text for k, n in two.items()} != {}
        third = await move(application)
        assert (third.built.sources, third.built.chunks, third.differing_sources) == (0, 0, 0)

    async with opened(
        urls, second
    ) as application:  # what is new there is not compared with what never was describe_other_store
        (docs / "later.md").write_text("# Later\n\nThe submarine rests.", "utf-8")
        (docs / "doc-002.md").write_text("# Later\n\nThe submarine rusts.", "utf-8")
        await ingest(application, org, docs)
        after = await move(application, second)
        assert (after.built.sources, after.differing_sources, after.built.failed, after.setting) == (0, 0, [], None)
        assert sum(each.sources for each in after.compared) == 12
        texts = {node.text for node in (await exported(application, second, org)).values()}
        assert {"The submarine rests.", "The submarine rusts."} <= texts


async def test_ingests_and_deletions_during_a_move_reach_both_stores(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    write_corpus(docs, 40)
    monkeypatch.setattr(Move, "batch", 4)
    async with opened(urls) as application:
        org, late = await new_org(application), await new_org(application)
        await ingest(application, org, docs)
        copied, run = asyncio.Event(), Move.run

        async def change(low: int, high: int) -> None:
            for number in range(low, high, 3):
                (docs / f"doc-{number:03}.md").write_text(f"# Changed\n\nThe ferry {number} sails.", "utf-8")
            await ingest(application, org, docs)
            gone = [source_id(org, INDEX, f"doc-{number:03}.md") for number in range(low + 1, high, 3)]
            for number in range(low + 1, high, 3):
                (docs / f"doc-{number:03}.md").unlink()
            await (await application.ingestor(SPEC, Target(org))).delete(gone)

        async def run_then_change(self: Move) -> None:
            if copied.is_set():
                await run(self)
            else:
                copied.set()
                await asyncio.gather(run(self), change(0, 20))
                await change(20, 40)  # all is copied, and nothing compared yet
                await ingest(application, late, docs)  # an organization that had nothing when the move began

        monkeypatch.setattr(Move, "run", run_then_change)
        moved = await move(application)
        assert (moved.generation.state, moved.lacking, moved.differing_sources) == ("active", 0, 0)
        for each in (org, late):
            one, two = [await exported(application, store, each) for store in OTHER]
            assert {k: n.text for k, n in one.items()} == {k: n.text for k, n in two.items()}
            assert len({node.metadata["source_id"] for node in one.values()}) == 26
        assert {each[3] for each in await states(application)} == {52}


@pytest.mark.parametrize("urls", ["postgres", pytest.param("qdrant", marks=pytest.mark.thorough)], indirect=True)
async def test_killed_anywhere_the_same_command_goes_on_where_it_was(
    urls: DatabaseUrls, forking: Forking, tmp_path: Path
) -> None:
    write_lines(tmp_path / "docs" / "lines.jsonl", 140)
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        org = await new_org(application)
        await ingest(application, org, tmp_path / "docs")
    line = ["indexes", "move", INDEX, "--to", second, "--json"]

    async def ready(application: Application) -> dict[UUID, object]:
        async with application.database.scoped(Scope(frozenset({org})), operator=True) as session:
            rows = await session.execute(
                text(
                    "SELECT source_id, source_builds.updated_at FROM source_builds JOIN generations g"
                    " ON g.id = generation_id WHERE g.store = :store AND source_builds.state = 'ready'"
                ),
                {"store": second},
            )
            return {row[0]: row[1] for row in rows}

    watcher = Application(Settings(), urls)  # reads the ledger alone: no store is opened
    for moment in (0, 128):  # within the first batch, and within the second
        process = forking.start(line, tmp_path)
        async with stopped(urls.owner or "", org, "ready", moment, process.kill):
            pass
        process.wait()
        done = await ready(watcher)
        assert len(done) == moment
    last = forking.start(line, tmp_path)
    assert await asyncio.to_thread(last.wait) == 0, last.err
    told = json.loads(last.out)
    assert (told["generation"], told["state"], told["lacking"], told["failed"]) == (1, "active", 0, [])
    assert (told["built"], told["differing"]) == (140 - len(done), 0)
    after = await ready(watcher)
    assert {key: after[key] for key in done} == done and len(after) == 140
    await watcher.close()
    async with opened(urls, second) as application:
        assert (await exported(application, first, org)).keys() == (await exported(application, second, org)).keys()


Spoil = Callable[[ScopedStore, TextNode], Awaitable[None]]


async def other_text(store: ScopedStore, node: TextNode) -> None:
    await store.write([node.model_copy(update={"text_resource": None, "text": "The bakery."})], [UUID(node.ref_doc_id)])


async def other_metadata(store: ScopedStore, node: TextNode) -> None:
    await store.write([node.model_copy(update={"metadata": {**node.metadata, "title": "Another"}})])


async def other_vector(store: ScopedStore, node: TextNode) -> None:
    vector = np.array(node.embedding)
    vector[7] += 1e-4
    await store.write([node.model_copy(update={"embedding": vector.tolist()})])


async def no_chunk(store: ScopedStore, node: TextNode) -> None:
    await store.write([], [UUID(node.ref_doc_id)])


async def one_too_many(store: ScopedStore, node: TextNode) -> None:
    await store.write([node.model_copy(update={"id_": str(uuid4())})])


@pytest.mark.parametrize("spoil", [other_text, other_metadata, other_vector, no_chunk, one_too_many])
async def test_a_copy_that_differs_is_told_not_switched_to_and_copied_anew(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Spoil
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("lighthouse", "violin"):
        (docs / f"{name}.txt").write_text(f"The {name}.", "utf-8")
    async with opened(urls) as application:
        second = OTHER[store_of(application)]
        org, well = await new_org(application), await new_org(application)
        for each in (org, well):
            await ingest(application, each, docs)
        compare = Move.is_right

        async def spoilt(self: Move) -> bool:
            copy = self.open_store(org)
            (node,) = await copy.export([source_id(org, INDEX, "violin.txt")])
            await spoil(copy, node)
            return await compare(self)

        with monkeypatch.context() as patch:
            patch.setattr(Move, "is_right", spoilt)
            moved = await move(application)
        assert (moved.generation.state, moved.differing_sources, moved.lacking) == ("building", 1, 1)
        found = {each.org_id: each for each in moved.compared}
        counts: dict[Spoil, int] = {no_chunk: 1, one_too_many: 3}
        assert (found[org].differing, found[org].original.chunks, found[org].copy.chunks) == (
            1,
            2,
            counts.get(spoil, 2),
        )
        assert (found[org].original != found[org].copy) == (spoil is not other_vector)
        assert (found[well].differing, found[well].original) == (0, found[well].copy)
        assert await application.generations.active(INDEX, second) is None

        healed = await move(application)
        assert (healed.generation.number, healed.generation.state, healed.built.sources) == (1, "active", 1)
        assert healed.differing_sources == healed.lacking == 0


async def test_a_source_that_is_not_whole_where_it_comes_from_is_named_and_nothing_is_switched(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    write_corpus(docs, 3)
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        org = await new_org(application)
        await ingest(application, org, docs)
        (docs / "doc-000.md").write_text("# New\n\nThe submarine dives.", "utf-8")

        async def dies(*_: object, **__: object) -> None:
            raise ConnectionError

        store = type(await holding(application, first, org))
        with monkeypatch.context() as patch:
            patch.setattr(store, "write", dies)
            with pytest.raises(ConnectionError):
                await ingest(application, org, docs)
        lost = await holding(application, first, org)
        await lost.write([], replacing=[source_id(org, INDEX, "doc-001.md")])  # and the ledger does not know

        moved = await move(application)
        reasons = {each.source.external_id: each.reason for each in moved.built.failed}
        assert reasons == {
            "doc-000.md": f"its current version is not in {first}, which is copied: ingest it again",
            "doc-001.md": f"has 0 chunks in {first}, not 1: delete it, then ingest it again",
        }
        assert (moved.generation.state, moved.lacking, moved.compared) == ("building", 2, [])
        assert await application.generations.active(INDEX, second) is None
        await (await application.ingestor(SPEC, Target(org))).delete([source_id(org, INDEX, "doc-001.md")])
        await ingest(application, org, docs)
        again = await move(application)
        assert (again.generation.number, again.generation.state, again.built.sources) == (1, "active", 2)


async def test_a_move_after_the_setting_was_changed_copies_the_store_that_has_the_sources(
    urls: DatabaseUrls, tmp_path: Path
) -> None:
    """A third store, which comes before the other in the registry, has an older copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rag_app.surfaces.administration.indexing.STORES", {"third": None, **STORES})
        async with opened(urls) as application:
            full, to = store_of(application), OTHER[store_of(application)]
            org = await new_org(application)
            stale = await application.generations.create(INDEX, "third", *application.embedding, SPEC.built_with)
            await application.generations.activate(stale.id)
            write_corpus(tmp_path / "docs", 2)
            await ingest(application, org, tmp_path / "docs")
        async with opened(urls, to) as application:
            assert (await Indexing(application)._origin(SPEC, to)).store == full
            assert (await move(application, to)).differing_sources == 0


async def test_a_move_keeps_what_was_calibrated(urls: DatabaseUrls) -> None:
    async with opened(urls) as application:
        org, to = await new_org(application), OTHER[store_of(application)]
        await application.calibrations.keep((await application.backends.active(SPEC)).id, org, WORDS_ALONE)
        await move(application)
    async with opened(urls, to) as application:
        assert await application.fit_for(SPEC, Scope(frozenset({org}))) == (WORDS_ALONE, "organization")


async def test_a_move_keeps_to_what_the_settings_fit(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "docs", 3)
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        org = await new_org(application)
        await ingest(application, org, tmp_path / "docs")
        await move(application)
        with pytest.raises(InvalidInput, match="--to: accepted: postgres, qdrant"):
            await move(application, "pinecone")
        declare(monkeypatch, FINE)
        finer = Application(application.settings, urls)
        try:
            finer.backends = application.backends  # local Qdrant is open already
            with pytest.raises(
                Misconfigured, match=f"index {INDEX} in {first} was built with other .*: restore the earlier index.toml"
            ):
                await move(finer, second)
            await Indexing(finer).rebuild(INDEX, switch=True, begin=quietly)
            moved = await move(finer, second)  # what answers there does not fit any longer: a new one
            assert (moved.generation.number, moved.origin.number, moved.generation.state) == (2, 2, "active")
            assert moved.built.sources == 3 and moved.differing_sources == 0
            assert (second, 1, "retired", 3) in await states(finer)
        finally:
            await finer.database.close()


async def test_nothing_to_move_and_indexes_that_settings_move_along(
    urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "docs", 1)
    others = [SPEC.model_copy(update={"name": name}) for name in ("full", "empty")]
    fixed = SPEC.model_copy(update={"name": "fixed", "vector_store": "postgres"})
    declare(monkeypatch, *others, fixed)
    async with opened(urls) as application:
        first, second = store_of(application), OTHER[store_of(application)]
        org = await new_org(application)
        for index in (INDEX, "full", "fixed"):
            ingestor: Ingestor = await application.ingestor(application.indexes[index], Target(org))
            await ingestor.ingest([tmp_path / "docs"], base=tmp_path / "docs")
        with pytest.raises(
            InvalidInput, match=f"index {INDEX} has no data in {second} or llamaindex, so there is nothing to move"
        ):
            await move(application, first)
        assert (await move(application)).others == ["full"]
        there = await Indexing(application).move("fixed", "qdrant", begin=quietly)
        assert (there.setting, there.others) == ('vector_store = "qdrant" in indexes/fixed/index.toml', [])


# --- from the command line


def test_the_command(new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rag: Command) -> None:
    monkeypatch.chdir(tmp_path)
    deployed(new_database, "postgres", tmp_path, monkeypatch)
    declare(monkeypatch, SPEC)

    write_corpus(tmp_path / "docs", 2)
    rag("db", "upgrade")
    rag("orgs", "create", "acme")
    rag("ingest", "docs", "--index", INDEX, "--org", "acme", "--base", "docs")
    here = rag("search", "lighthouse", "-i", INDEX, "-o", "acme")
    told = rag("indexes", "move", INDEX, "--to", "qdrant").splitlines()
    assert told == [
        f"generation 1 of {INDEX} in qdrant is the same as generation 1 in postgres: 2 chunks compared; "
        "2 sources copied, 2 chunks written",
        f"To search it, set RAG_VECTOR_STORE=qdrant. Then run `rag-app indexes move {INDEX} --to qdrant` again to copy what "
        "was ingested meanwhile.",
    ]
    lines = [line.split("\t") for line in rag("indexes", "list").splitlines()]
    assert [line[1:4] for line in lines if line[0] == INDEX] == [["postgres", "1", "active"], ["qdrant", "1", "active"]]
    monkeypatch.setenv("RAG_VECTOR_STORE", "qdrant")
    assert "built: book, marketplace, " in rag("db", "upgrade")  # indexes that nothing is in
    assert rag("search", "lighthouse", "-i", INDEX, "-o", "acme") == here
    assert rag("indexes", "move", INDEX, "--to", "qdrant").endswith("\nThe settings already search qdrant.\n")
    told_json = json.loads(rag("indexes", "move", INDEX, "--to", "postgres", "--json"))
    (compared,) = told_json.pop("compared")
    assert told_json == {
        "index": INDEX, "store": "postgres", "generation": 1, "state": "active", "built": 0, "chunks": 0, "lacking": 0,
        "failed": [], "moved_from": {"store": "qdrant", "generation": 1}, "differing": 0,
        "setting": "RAG_VECTOR_STORE=postgres", "others": [],
    }  # fmt: skip
    checksums = compared.pop("checksums")
    assert re.fullmatch("[0-9a-f]{32}", checksums["qdrant"]) and checksums["qdrant"] == checksums["postgres"]
    assert 0 <= compared.pop("embeddings_deviate_by") < 1e-7
    assert compared == {"organization": "acme", "sources": 2, "differing": 0, "chunks": {"qdrant": 2, "postgres": 2}}

    async def spoil() -> None:
        application = Application(Settings(), DatabaseUrls(*_urls(), private=True))
        (org,) = [each.id for each in await application.people.organizations() if each.slug == "acme"]
        await no_chunk(
            await holding(application, "qdrant", org),
            next(iter((await exported(application, "qdrant", org)).values())),
        )
        await application.close()

    asyncio.run(spoil())
    told = rag("indexes", "move", INDEX, "--to", "qdrant", status=2).splitlines()
    assert told == [
        f"generation 1 of {INDEX} in qdrant is not the same as generation 1 in postgres; 0 sources copied, "
        "0 chunks written; 1 sources differ:",
        "  acme: 1 of 2 sources; chunks: 2 in postgres, 1 in qdrant",
        f"Nothing was switched. `rag-app indexes move {INDEX} --to qdrant` copies them again.",
    ]
    assert "1 sources copied" in rag("indexes", "move", INDEX, "--to", "qdrant")

    holder = "import sys, time; from qdrant_client import QdrantClient; c = QdrantClient(path=sys.argv[1]); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path / "qdrant")], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            refused = rag("indexes", "move", INDEX, "--to", "qdrant", status=1)
        finally:
            process.kill()
    assert "is in use by another process: local Qdrant belongs to one process at a time." in refused
    assert refused.count("\n") == 1
    assert "--to: accepted: postgres, qdrant" in rag("indexes", "move", INDEX, "--to", "pinecone", status=1)
    monkeypatch.setenv("RAG_DATABASE_OWNER_URL", "")
    assert "1 sources copied" not in rag("indexes", "move", INDEX, "--to", "qdrant")  # no new tables: no owner needed


def _urls() -> tuple[str, str]:
    settings = Settings().database
    assert settings.url is not None and settings.owner_url is not None
    return settings.url.get_secret_value(), settings.owner_url.get_secret_value()
