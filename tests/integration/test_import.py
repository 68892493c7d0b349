"""Nodes of other LlamaIndex applications become sources: from a table, a collection, a folder."""

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.schema import BaseNode, IndexNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.vector_stores.postgres import PGVectorStore
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from rag_app.console.cli import main
from rag_app.retrieval.embedding import MiniLM
from tests.conftest import NewPostgres

INDEX = "org_knowledge"
Run = Callable[..., dict[str, Any]]


def nodes(model: MiniLM, documents: int = 3) -> list[BaseNode]:
    """Two a document; and one without a document, one without a text, one of another kind."""
    found: list[BaseNode] = []
    for at in range(documents):
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"shelf-{at}")}
        for part, text in enumerate(
            (f"The shelf {at} holds {at + 3} boxes.", f"Its colour is {['red', 'blue'][at % 2]}.")
        ):
            meta = {"file_name": f"shelf-{at}.md", "title": f"Shelf {at}", "room": "cellar", "org_id": "somebody's"}
            found.append(TextNode(id_=f"{at}-{part}", text=text, metadata=meta, relationships={**source}))
    found += [
        TextNode(id_="alone", text="A drawer without a cabinet."),
        TextNode(id_="empty", text=" "),
        IndexNode(id_="link", text="A list of shelves.", index_id="shelf-0"),
    ]
    for node in found:
        node.embedding = model.get_text_embedding(node.get_content("embed"))  # type: ignore[arg-type]
    return found


@pytest.fixture
def run(
    new_database: NewPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    server = new_database()
    for name, value in {
        "RAG_DATABASE_URL": server.app_url, "RAG_DATABASE_OWNER_URL": server.owner_url, "RAG_HOME": str(tmp_path),
        "RAG_JWT_SECRET": "a secret of the tests, long enough for HS256", "OLD_STORE": server.owner_url,
        "RAG_VECTOR_STORE": "postgres",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)

    def call(*arguments: object, status: int = 0, as_json: bool = True) -> dict[str, Any]:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["rag-app", *map(str, arguments), *(["--json"] if as_json else [])])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capfd.readouterr()
        assert (ended.value.code or 0) == status, told
        return dict(json.loads(told.out)) if as_json and told.out.startswith("{") else {"said": told.out + told.err}

    call("db", "upgrade", as_json=False)
    for org in ("ours", "theirs"):
        call("orgs", "create", org, as_json=False)
    return call


def in_a_table(found: Sequence[BaseNode], url: str, folder: Path) -> list[object]:
    url = re.sub(r"^\w+(\+\w+)?:", "postgresql+{}:", url)
    engine, other = create_engine(url.format("psycopg2")), create_async_engine(url.format("asyncpg"))
    PGVectorStore(table_name="old", embed_dim=384, engine=engine, async_engine=other).add([*found])
    engine.dispose()
    return ["--table", "data_old", "--url-env", "OLD_STORE"]


def in_a_collection(found: Sequence[BaseNode], url: str, folder: Path) -> list[object]:

    client = QdrantClient(path=str(folder / "old"))
    for node in found:
        node.id_ = str(uuid5(NAMESPACE_URL, node.node_id))
    QdrantVectorStore("old", client=client).add([*found])
    client.close()
    return ["--collection", "old", "--path", folder / "old"]


def in_a_folder(found: Sequence[BaseNode], url: str, folder: Path) -> list[object]:
    context = StorageContext.from_defaults()
    VectorStoreIndex([*found], storage_context=context, embed_model=MiniLM(), store_nodes_override=True)
    context.persist(str(folder / "old"))
    return ["--folder", folder / "old"]


OTHERS = [pytest.param(each, marks=pytest.mark.foreign_stores) for each in (in_a_table, in_a_collection)]


@pytest.mark.parametrize("kept", [in_a_folder, *OTHERS])
def test_nodes_become_sources_with_their_vectors(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Callable[..., list[object]]
) -> None:

    where = kept(nodes(MiniLM()), os.environ["OLD_STORE"], tmp_path)
    into = ["--index", INDEX, "--org", "ours"]
    foreseen = run("import", "llamaindex", *where, *into, "--dry-run")
    assert foreseen["sources"] == 5 and foreseen["embedded"] == foreseen["vectors"] == 0
    told = run("import", "llamaindex", *where, *into)
    assert told | {"nodes": 9, "sources": 5, "unchanged": 0, "embedded": 0, "failed": [], "same_model": True} == told
    assert told["vectors"] == 8 and told["without_text"] == 1 and told["of_no_source"] >= 2 and told["other_kinds"] == 1
    again = run("import", "llamaindex", *where, *into)
    assert (again["sources"], again["unchanged"], again["vectors"]) == (0, 5, 0)

    said = run("search", "How many boxes does shelf 1 hold?", *into, "--mode", "dense", as_json=False)["said"]
    assert "The shelf 1 holds 4 boxes." in said
    other = run("search", "How many boxes does shelf 1 hold?", "--index", INDEX, "--org", "theirs", as_json=False)[
        "said"
    ]
    assert "shelf 1" not in other
    shown = run("sources", "list", "--index", INDEX, "--org", "ours", as_json=False)["said"]
    assert ("shelf-0" in shown and "Shelf 0" in shown and "alone" in shown) or kept is in_a_collection
    run("import", "llamaindex", *where, "--index", INDEX, "--org", "theirs")  # the same nodes in another organization
    assert run("import", "llamaindex", *where, *into)["unchanged"] == 5


def test_vectors_of_another_model_are_not_taken(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = nodes(MiniLM())
    for node in found:
        node.embedding = [*reversed(node.get_embedding())]
    where = in_a_folder(found, "", tmp_path)
    told = run("import", "llamaindex", *where, "--index", INDEX, "--org", "ours")
    assert (told["same_model"], told["embedded"], told["vectors"]) == (False, 8, 0)


def test_what_cannot_be_mapped_is_reported_and_the_rest_is_taken(run: Run, tmp_path: Path) -> None:
    found = nodes(MiniLM(), documents=2)
    for node in found[:2]:
        node.metadata["date"] = "soon"
    told = run("import", "llamaindex", *in_a_folder(found, "", tmp_path), "--index", INDEX, "--org", "ours", status=2)
    assert told["sources"] == 3
    ((source, why),) = told["failed"]
    assert source == "shelf-0" and "date" in why and "ISO 8601" in why


UNREADABLE: list[tuple[list[str], str]] = [
    (
        ["--table", "data_x; DROP TABLE organizations", "--url-env", "OLD_STORE"],
        "--table: must be the name of a table",
    ),
    (["--table", "data_old"], "--url-env: name the environment variable"),
    (["--table", "no_such_table", "--url-env", "OLD_STORE"], "no_such_table cannot be read"),
    (["--folder", "nowhere"], "--folder: nowhere has no docstore.json"),
    ([], "name one of --folder, --table and --collection"),
]


def test_what_cannot_be_read_says_why(run: Run) -> None:
    for arguments, why in UNREADABLE:
        said = run("import", "llamaindex", *arguments, "--index", INDEX, "--org", "ours", status=1, as_json=False)[
            "said"
        ]
        assert why in said
