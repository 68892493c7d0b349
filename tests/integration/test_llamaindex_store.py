"""A whole deployment on a LlamaIndex store that a file declares: its life, and where its secret is not."""

import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from rag_app.application import Application
from rag_app.console import database as commands
from rag_app.console.cli import main
from rag_app.documents.metadata import Target
from rag_app.domain import Mode, Question, Scope
from rag_app.domain.errors import Misconfigured
from rag_app.settings import Settings
from rag_app.stores.registry import unshared_store
from rag_app.surfaces.administration.indexing import Indexing
from tests.integration.conftest import INDEX
from tests.integration.service import Text, ingest
from tests.integration.test_backup import opened

pytestmark = pytest.mark.foreign_stores
SECRET = "a-key-that-nobody-is-told-4711"
DECLARED = """
class = "llama_index.vector_stores.chroma.ChromaVectorStore"
constructor = "from_params"

[arguments]
collection_name = "{{generation}}"
persist_dir = "{folder}/chroma"
headers = {{ authorization = {{ env = "CHROMA_KEY" }} }}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Settings of a deployment with a PostgreSQL of its own."""
    for name in ("RAG_DATABASE_URL", "RAG_DATABASE_OWNER_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "store.toml").write_text(DECLARED.format(folder=tmp_path), "utf-8")
    monkeypatch.setenv("RAG_VECTOR_STORE", "llamaindex")
    monkeypatch.setenv("RAG_VECTOR_STORE_FILE", str(tmp_path / "store.toml"))
    monkeypatch.setenv("CHROMA_KEY", SECRET)
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    yield tmp_path
    for cluster in tmp_path.rglob("cluster"):
        shutil.rmtree(cluster.resolve(), ignore_errors=True)


async def found(application: Application, org: UUID, mode: Mode = Mode.DENSE) -> list[str]:
    question = Question("How many boxes does the shelf hold?", mode=mode, top_k=3)
    return [hit.text for hit in await application.pipeline.search(INDEX, question, Scope(frozenset({org})))]


def test_a_deployment_on_a_store_of_a_file(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin(application: Application) -> tuple[UUID, UUID, list[str]]:
        ours, theirs = [(await application.people.create_organization(name, name)).id for name in ("ours", "theirs")]
        await ingest(application, home, [Text(f"n{n}", f"The shelf {n} holds {n + 3} boxes.", ours) for n in range(12)])
        await ingest(application, home, [Text("secret", "The shelf of others holds 99 boxes.", theirs)])
        for mode in Mode:
            assert len(await found(application, ours, mode)) == 3
            assert await found(application, theirs, mode) == ["The shelf of others holds 99 boxes."]
        ingestor = await application.ingestor(application.indexes[INDEX], Target(theirs))
        scope = Scope(frozenset({theirs}))
        listed = application.ledger.list(scope, INDEX, operator=True)
        await ingestor.delete([source.id async for source in listed])
        assert await found(application, theirs) == []
        moved = await Indexing(application).move(INDEX, "postgres", begin=lambda generation, count: lambda built: None)
        assert (moved.generation.store, moved.origin.store, moved.differing_sources) == ("postgres", "llamaindex", 0)
        return ours, theirs, await found(application, ours)

    ours, _, hits = opened(begin)
    assert unshared_store(Settings()).startswith("the vector store is declared for one process")
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["rag-app", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capfd.readouterr()
    assert not ended.value.code, told.out
    assert "ok  vector store     llama_index.vector_stores.chroma.ChromaVectorStore 0." in told.out
    assert told.out.count("; llama_index.vector_stores.chroma.ChromaVectorStore 0.") == 5, "of each index"
    commands.backup(home / "whole.ragbackup", secrets=True)
    with zipfile.ZipFile(home / "whole.ragbackup") as archive:
        kept = [archive.read(name) for name in archive.namelist()]

    monkeypatch.setenv("RAG_HOME", str(home / "new"))
    shutil.move(home / "chroma", home / "lost")
    (home / "store.toml").write_text(DECLARED.format(folder=home / "elsewhere"), "utf-8")
    commands.restore(home / "whole.ragbackup")
    said = capfd.readouterr()
    assert "note: vector_store: llamaindex has no data of index" in said.err
    for each in (told.out, told.err, said.out, said.err):
        assert SECRET not in each
    assert not [each for each in kept if SECRET.encode() in each]

    async def go_on(application: Application) -> None:
        assert await found(application, ours) == hits, "PostgreSQL compares"
        backend = application.backends.backend("llamaindex")

        async def holds() -> bool:
            answering = await application.generations.active(INDEX, "llamaindex")
            assert answering is not None
            return await backend.holds(answering.table_prefix)

        assert not await holds()
        await Indexing(application).rebuild(INDEX, switch=True, begin=lambda made, count: lambda built: None)
        assert await holds()
        assert await found(application, ours) == hits

    opened(go_on)


def test_without_its_file_or_secret_nothing_starts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMA_KEY")
    with pytest.raises(Misconfigured, match=r"arguments\.headers\.authorization: CHROMA_KEY is not set"):
        opened(_nothing)
    monkeypatch.delenv("RAG_VECTOR_STORE_FILE")
    with pytest.raises(Misconfigured, match="set RAG_VECTOR_STORE_FILE"):
        opened(_nothing)


async def _nothing(application: Application) -> None:
    return None
