"""Qdrant knows no tenants: only what every call carries keeps them apart. So every call is looked at here."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from rag_app.database.session import Database
from rag_app.domain.filters import FieldType, Filters
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import all_of, condition, or_missing
from rag_app.retrieval.store import ScopedStore
from rag_app.stores import qdrant
from rag_app.stores.qdrant import QdrantBackend
from tests.stores.cases import cases, chunks, spec
from tests.stores.conftest import DIMENSION, SPEC, Stores, chunk, opened, vector

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

MANAGEMENT = {"collection_exists", "create_collection", "delete_collection", "create_payload_index", "close"}
"""Calls that neither read nor write a point."""


class Recorder:
    """Stands before a client, if there is one, and writes down what it is asked."""

    def __init__(self, client: Any = None) -> None:
        self.client, self.calls = client, list[Call]()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((method, args, kwargs))
            return getattr(self.client, method)(*args, **kwargs)

        return call


class Deaf(Recorder):
    """In place of a server: every call succeeds."""

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((method, args, kwargs))

        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Of the local client that the next backend opens."""
    recording = Recorder()

    def open_local(**options: Any) -> Recorder:
        recording.client = QdrantClient(**options)
        return recording

    monkeypatch.setattr(qdrant, "QdrantClient", open_local)
    return recording


def filters_of(call: Call) -> list[models.Filter]:
    """What the points of a call have to match. Fails for a method that is not known to take a filter."""
    method, args, options = call
    match method:
        case "query_points":
            return [options["query_filter"]]
        case "scroll":
            return [args[1]]
        case "delete":
            return [args[1].filter]
    raise AssertionError(f"a call that this test does not know: {method}")


def required(of: models.Filter) -> list[models.FieldCondition]:
    """The conditions that every point has to meet, in whatever else they are wrapped."""
    found = []
    for each in of.must or []:
        found += required(each) if isinstance(each, models.Filter) else []
        found += [each] if isinstance(each, models.FieldCondition) else []
    return found


def is_scoped(of: models.Filter, scope: Scope, readers: bool) -> bool:
    wanted = {"org_id": {str(org) for org in scope.organizations}}
    if readers:
        wanted["readers"] = {"*", *([str(scope.user)] if scope.user else [])}
        wanted |= {"site_id": {str(scope.site)}} if scope.site else {}
    said: dict[str, set[str]] = {}
    for each in required(of):
        if each.key in wanted and isinstance(each.match, models.MatchAny | models.MatchValue):
            values = each.match.any if isinstance(each.match, models.MatchAny) else [each.match.value]
            said[each.key] = {str(value) for value in values} & said.get(each.key, {str(value) for value in values})
    return said.keys() == wanted.keys() and all(said[key] <= wanted[key] for key in wanted)


async def ask(store: ScopedStore, filters: Filters = ()) -> None:
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.TEXT_SEARCH, VectorStoreQueryMode.HYBRID):
        await store.aquery(
            VectorStoreQuery(
                vector(0.5),
                similarity_top_k=3,
                query_str="word door",
                mode=mode,
                filters=all_of(filters) if filters else None,
            )
        )


async def test_every_call_carries_the_tenant(
    recorder: Recorder, database_urls: tuple[str, str], tmp_path: Path
) -> None:
    org, user, site = uuid4(), uuid4(), uuid4()
    async with opened("qdrant-local", SPEC, DIMENSION, database_urls, tmp_path) as stores:
        for scope in (
            Scope(frozenset({org})),
            Scope(frozenset({org, uuid4()}), user),
            Scope(frozenset({org}), user, site),
        ):
            store, recorder.calls = stores(scope), recorder.calls[:0]
            nodes = [chunk(org, f"word {n}", vector(0.1 * n), site_id=str(site)) for n in range(5)]
            await ask(store)
            await ask(store, (condition("org_id", "==", str(uuid4())), or_missing(condition("tags", "contains", "x"))))
            await store.aget_nodes([node.node_id for node in nodes])
            await store.count()
            asked = len(recorder.calls)
            await store.async_add(nodes)
            await store.write(nodes[:1], replacing=[UUID(nodes[1].metadata["source_id"])])
            await store.adelete(nodes[2].metadata["source_id"])
            await store.export([UUID(node.metadata["source_id"]) for node in nodes])
            await store.sources()
            for number, call in enumerate(recorder.calls):
                if call[0] == "upsert":
                    assert {point.payload["org_id"] for point in call[1][1]} <= {
                        str(each) for each in scope.organizations
                    }
                else:
                    for each in filters_of(call):
                        assert is_scoped(each, scope, readers=number < asked), call
            methods = {method for method, _, _ in recorder.calls}
            assert methods == {"query_points", "scroll", "upsert", "delete"}


async def test_every_case_of_the_filters_carries_the_tenant(
    recorder: Recorder, database_urls: tuple[str, str], tmp_path: Path
) -> None:
    """No condition, however it is written, takes the scope's place."""
    declared = spec()
    scope = Scope(frozenset({UUID(int=0xA)}))
    async with opened("qdrant-local", declared, DIMENSION, database_urls, tmp_path) as stores:
        await stores(scope).async_add(chunks(declared))
        recorder.calls.clear()
        for case in cases():
            if case.refused is None:
                await ask(stores(scope), case.filters)
        questions = [each for call in recorder.calls for each in filters_of(call)]
    assert len(questions) > 300
    assert all(is_scoped(each, scope, readers=True) for each in questions)


async def test_a_filter_without_the_tenant_would_be_found(org: UUID) -> None:
    scope, ours = Scope(frozenset({org})), models.FieldCondition(key="org_id", match=models.MatchAny(any=[str(org)]))
    both = models.FieldCondition(key="org_id", match=models.MatchAny(any=[str(org), str(uuid4())]))
    assert is_scoped(models.Filter(must=[models.Filter(must=[ours])]), scope, readers=False)
    for loose in (
        models.Filter(should=[ours]), models.Filter(must=[both]), models.Filter(must_not=[ours]), models.Filter(),
        models.Filter(must=[models.Filter(should=[ours])]),
    ):  # fmt: skip
        assert not is_scoped(loose, scope, readers=False)
    assert not is_scoped(models.Filter(must=[ours]), scope, readers=True)


async def test_a_server_is_told_which_field_is_the_tenant(
    monkeypatch: pytest.MonkeyPatch, database_urls: tuple[str, str]
) -> None:
    """`is_tenant` lets Qdrant keep the points of a tenant together. All that filters name has an index, before a point comes."""
    server = Deaf()
    monkeypatch.setattr(qdrant, "AsyncQdrantClient", lambda **options: server)

    async def visible(scope: Scope, generation: str, sources: Any) -> set[UUID]:
        return set()

    backend = QdrantBackend(database=Database(database_urls[1]), visible=visible, url="http://127.0.0.1:1")
    await backend.create(database_urls[0], SPEC, "g_things", DIMENSION)
    await backend.close()
    methods = [method for method, _, _ in server.calls]
    assert methods[:2] == ["collection_exists", "create_collection"]
    assert set(methods) <= MANAGEMENT
    indexes = {args[1]: args[2] for method, args, _ in server.calls if method == "create_payload_index"}
    assert indexes.pop("org_id") == models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    assert indexes.keys() == {
        "readers", "site_id", "source_id", "source_type", "lang", "date", *(f"x_{name}" for name in SPEC.fields)
    }  # fmt: skip
    assert indexes["date"] == models.PayloadSchemaType.FLOAT
    assert (
        indexes[f"x_{next(n for n, kind in SPEC.fields.items() if kind is FieldType.UUID)}"]
        == models.PayloadSchemaType.UUID
    )


@pytest.mark.parametrize("stores", ["qdrant-server"], indirect=True)
async def test_the_server_has_it_as_the_tenant(stores: Stores, scope: Scope) -> None:
    client = AsyncQdrantClient(url=os.environ["QDRANT_URL"])
    schema = (await client.get_collection(stores(scope).generation)).payload_schema
    await client.close()
    params: Any = schema["org_id"].params
    assert params.is_tenant is True
