"""A vector store is one entry of the registry: all that depends on the kinds there are follows it."""

from pathlib import Path
from uuid import UUID

import pytest

from rag_app.application import open_application, wrong_settings
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.metadata import Target
from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.domain.scope import Scope
from rag_app.settings import Settings
from rag_app.stores.registry import STORES
from rag_app.surfaces.administration.indexing import Indexing
from tests.conftest import NewPostgres
from tests.stores.in_memory import MEMORY

INDEX = "org_knowledge"


@pytest.fixture
def urls(new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatabaseUrls:
    """A deployment that asks a third store."""
    server = new_database()
    for name, value in {
        "RAG_DATABASE_URL": server.app_url, "RAG_DATABASE_OWNER_URL": server.owner_url, "RAG_VECTOR_STORE": "memory",
        "RAG_HOME": str(tmp_path), "RAG_JWT_SECRET": "a secret of the tests, long enough for HS256",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(STORES, "memory", MEMORY)
    return DatabaseUrls(server.app_url, server.owner_url, private=True)


async def test_a_third_store_is_searched_and_moved_to(urls: DatabaseUrls, tmp_path: Path) -> None:
    (tmp_path / "warranty.md").write_text("# Warranty\n\nThe warranty of a velvet box lasts two years.\n", "utf-8")
    async with open_application(Settings(), urls) as application:
        spec = application.indexes[INDEX]
        ours, theirs = [(await application.people.create_organization(name, name)).id for name in ("ours", "theirs")]
        ingestor = await application.ingestor(spec, Target(ours))
        summary = await ingestor.ingest([tmp_path / "warranty.md"], base=tmp_path)
        assert not summary.failed

        async def found(org: UUID, mode: Mode) -> list[str]:
            question = Question("How long is the warranty?", mode=mode)
            hits = await application.pipeline.search(INDEX, question, Scope(frozenset({org})))
            return [hit.text for hit in hits]

        for mode in Mode:
            assert len(await found(ours, mode)) == 1 and await found(theirs, mode) == []
        assert (await application.backends.active(spec)).store == "memory"
        assert application.backends.place(spec) == "a dictionary"
        assert (await application.problems())["vector_store"] == "ok"

        moved = await Indexing(application).move(INDEX, "postgres", begin=lambda generation, count: lambda built: None)
        assert (moved.generation.store, moved.origin.store, moved.differing_sources) == ("postgres", "memory", 0)
        with pytest.raises(InvalidInput, match="accepted: postgres, qdrant, llamaindex, memory"):
            await Indexing(application).move(INDEX, "weaviate", begin=lambda generation, count: lambda built: None)


async def test_the_kinds_there_are_are_those_of_the_registry(
    urls: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any("a dictionary serves one process" in each for each in wrong_settings(Settings(), workers=2))
    assert wrong_settings(Settings(), workers=1) == []
    monkeypatch.setenv("RAG_VECTOR_STORE", "weaviate")
    with pytest.raises(Misconfigured, match="Input should be 'postgres', 'qdrant', 'llamaindex' or 'memory'"):
        Settings()
