"""Vectors, texts and BM25 weights in Qdrant: a local folder, or a server.

Qdrant cannot force tenancy, so everything it returns is checked again against PostgreSQL's sources, under
row-level security, before it is used (`visible`). PostgreSQL also analyzes the texts, so that both stores see
the same lexemes; a chunk's BM25 weights are a sparse vector and Qdrant multiplies them by the IDF.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from heapq import nlargest
from pathlib import Path
from typing import Any
from uuid import UUID

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from qdrant_client import AsyncQdrantClient, QdrantClient, models
from qdrant_client.http.exceptions import ApiException

from rag_app.database.session import Database
from rag_app.domain import Condition, FieldType, Filters, JsonObject, Misconfigured, Mode, Operator, Scope, StoreFailed
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import Backend, ScopedStore, chunk_node, heading
from rag_app.stores.registry import Visible

_DENSE, _LEXICAL = "dense", "lexical"
_LEGS = {Mode.DENSE: (_DENSE,), Mode.TEXT: (_LEXICAL,), Mode.HYBRID: (_DENSE, _LEXICAL)}
_ALL = 10_000_000  # points: more than a local collection is for
_PAGE = 1000  # points in one answer: a few megabytes with their vectors
_EVERYBODY = "*"
_INDEXES = {
    FieldType.KEYWORD: models.PayloadSchemaType.KEYWORD,
    FieldType.UUID: models.PayloadSchemaType.UUID,
    FieldType.INTEGER: models.PayloadSchemaType.INTEGER,
    FieldType.NUMBER: models.PayloadSchemaType.FLOAT,
    FieldType.BOOLEAN: models.PayloadSchemaType.BOOL,
    FieldType.TIME: models.PayloadSchemaType.FLOAT,
    FieldType.TAGS: models.PayloadSchemaType.KEYWORD,
}


class QdrantBackend(Backend):
    """One Qdrant, local (`path`) or a server (`url`); a generation is a collection.

    Local mode belongs to one process and scans every point: for small sets. Its calls run on one thread.
    """

    def __init__(
        self,
        database: Database,
        visible: Visible,
        *,
        path: Path | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        self.database, self.visible, self.local = database, visible, url is None
        self._path, self._url, self._api_key = path, url, api_key
        self._client: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="qdrant")
        self.writing = asyncio.Lock()
        """Replacing a source takes two calls. Between processes, the ledger's lock keeps writers apart."""

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "QdrantStore":
        return QdrantStore.of(self, spec, generation, scope)

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        await self.drop(owner_url, generation)
        await self.call(
            "create_collection",
            generation,
            vectors_config={_DENSE: models.VectorParams(size=dimension, distance=models.Distance.COSINE)},
            sparse_vectors_config={_LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )
        schemas = {
            "org_id": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
            "readers": models.PayloadSchemaType.KEYWORD,
            "site_id": models.PayloadSchemaType.KEYWORD,
            **{_key(name): _INDEXES[kind] for name, kind in spec.all_fields.items() if name != "org_id"},
        }
        for name, schema in schemas.items():
            if not self.local:  # local mode has no payload indexes
                await self.call("create_payload_index", generation, name, schema)

    async def drop(self, owner_url: str, generation: str) -> None:
        if await self.holds(generation):
            await self.call("delete_collection", generation)

    async def holds(self, generation: str) -> bool:
        return bool(await self.call("collection_exists", generation))

    async def dump(self, generation: str) -> AsyncIterator[bytes]:
        async for point in self.points(generation, None, with_vectors=True):
            yield point.model_dump_json(include={"id", "payload", "vector"}).encode()

    async def load(self, generation: str, lines: Sequence[bytes]) -> None:
        points = [models.PointStruct.model_validate_json(line) for line in lines]
        await self.call("upsert", generation, points, wait=True)

    async def points(self, generation: str, found: models.Filter | None, **parts: Any) -> AsyncIterator[Any]:
        page = None
        while True:
            points, page = await self.call("scroll", generation, found, limit=_PAGE, offset=page, **parts)
            for point in points:
                yield point
            if page is None:
                return

    async def close(self) -> None:
        if self._client is not None:
            if self.local:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._client.close)
            else:
                await self._client.close()
            self._client = None

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.local:
                return await asyncio.get_running_loop().run_in_executor(
                    self._thread, partial(self._call_local, method, *args, **kwargs)
                )
            if self._client is None:
                self._client = AsyncQdrantClient(url=self._url, api_key=self._api_key, timeout=60)
            return await getattr(self._client, method)(*args, **kwargs)
        except (ApiException, OSError, ValueError, RuntimeError) as error:
            raise StoreFailed(f"Qdrant: {type(error).__name__}: {error}") from error

    def _call_local(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self._client is None:
            try:
                self._client = QdrantClient(path=str(self._path), force_disable_check_same_thread=True)
            except RuntimeError as error:
                raise Misconfigured(
                    f"{self._path} is in use by another process: local Qdrant belongs to one process at a time. "
                    "Stop the other one (a running server, say), or run a Qdrant server and set QDRANT_URL."
                ) from error
        return getattr(self._client, method)(*args, **kwargs)


class QdrantStore(ScopedStore):
    """One index in one collection, as one scope sees it."""

    _backend: QdrantBackend = PrivateAttr()

    async def candidates(
        self, vector: Sequence[float], text: str, filters: Filters, mode: Mode, depth: int
    ) -> list[Candidate]:
        lexemes = models.SparseVector(indices=[], values=[])
        if mode is not Mode.DENSE:
            analyzed = await self._backend.database.lexemes(self.languages, [text] * len(self.languages))
            lexemes = _sparse({term: float(tf) for terms in analyzed for term, tf in terms.items()})
        queries: JsonObject = {_DENSE: list(vector)}
        if lexemes.indices:
            queries[_LEXICAL] = lexemes
        visible = self._filter(filters)
        # A local collection scores every point in any case: ask it once, for all of them.
        at_once = self._backend.local and mode is not Mode.DENSE
        asked = queries if at_once else {leg: queries[leg] for leg in _LEGS[mode] if leg in queries}
        best = await self._scores(asked, visible, _ALL if at_once else depth)
        found = [best[leg] for leg in _LEGS[mode] if leg in best]
        ids = {point for scores in found for point in nlargest(depth, scores, key=scores.__getitem__)}
        if mode is not Mode.DENSE and not at_once:
            for leg, query in queries.items():
                if points := sorted(ids - best.get(leg, {}).keys()):
                    among = models.Filter(must=[models.HasIdCondition(has_id=list(points)), visible])
                    best.setdefault(leg, {}).update((await self._scores({leg: query}, among, len(points)))[leg])
        dense, lexical = best.get(_DENSE, {}), best.get(_LEXICAL, {})
        return [Candidate(UUID(point), dense[point], lexical.get(point, 0.0)) for point in ids if point in dense]

    async def _scores(self, queries: JsonObject, visible: models.Filter, limit: int) -> dict[str, dict[str, float]]:
        requests = [
            models.QueryRequest(query=query, using=leg, filter=visible, limit=limit, with_payload=False)
            for leg, query in queries.items()
        ]
        answers = await self._backend.call("query_batch_points", self.generation, requests) if requests else []
        return {
            leg: {str(point.id): point.score for point in answer.points}
            for leg, answer in zip(queries, answers, strict=True)
        }

    async def fetch(self, ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, TextNode]:
        if not ids:
            return {}
        points, _ = await self._backend.call(
            "scroll",
            self.generation,
            models.Filter(must=[models.HasIdCondition(has_id=_texts(ids)), self._filter(filters)]),
            limit=len(ids),
        )
        sources = {point.id: UUID(point.payload["source_id"]) for point in points}
        allowed = await self._backend.visible(self.scope, self.generation, [*{*sources.values()}])
        return {UUID(str(point.id)): _to_node(point) for point in points if sources[point.id] in allowed}

    async def count(self) -> int:
        """A source that is being deleted counts until its chunks are gone: a number is not looked up in PostgreSQL."""
        return int((await self._backend.call("count", self.generation, self._filter(()), exact=True)).count)

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        self.check(nodes)
        terms = await self._backend.database.lexemes(
            [self.language(node) for node in nodes],
            [f"{heading(node)}\n{node.get_content(MetadataMode.NONE)}" for node in nodes],
        )
        points = [self._point(node, found) for node, found in zip(nodes, terms, strict=True)]
        old = models.Filter(
            must=[_any_of("org_id", self.scope.organizations), _any_of("source_id", replacing)],
            must_not=[models.HasIdCondition(has_id=[point.id for point in points])] if points else None,
        )
        async with self._backend.writing:
            if points:
                await self._backend.call("upsert", self.generation, points, wait=True)
            if replacing:
                await self._backend.call("delete", self.generation, models.FilterSelector(filter=old), wait=True)

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        return [
            _to_node(point, point.vector[_DENSE])
            async for point in self._owned([_any_of("source_id", source_ids)], with_vectors=[_DENSE])
        ]

    async def sources(self) -> set[UUID]:
        return {UUID(point.payload["source_id"]) async for point in self._owned([], with_payload=["source_id"])}

    def _owned(self, conditions: list[Any], **parts: Any) -> AsyncIterator[Any]:
        """The points of the scope's organizations, private ones too."""
        found = models.Filter(must=[_any_of("org_id", self.scope.organizations), *conditions])
        return self._backend.points(self.generation, found, **parts)

    def _point(self, node: BaseNode, terms: dict[int, int]) -> models.PointStruct:
        """`terms`: hashed lexeme (32 bits, signed) -> how often it occurs."""
        meta, bm25 = node.metadata, self.spec.bm25
        norm = bm25.k1 * (1 - bm25.b + bm25.b * sum(terms.values()) / bm25.average_length)
        return models.PointStruct(
            id=node.node_id,
            vector={
                _DENSE: node.embedding,
                _LEXICAL: _sparse({term: tf * (bm25.k1 + 1) / (tf + norm) for term, tf in terms.items()}),
            },
            payload={
                "readers": meta.get("private_to") or _EVERYBODY,
                "site_id": meta.get("site_id"),
                "text": node.get_content(MetadataMode.NONE),
                "metadata": meta,
                **{_key(name): meta[name] for name in self.spec.all_fields if meta.get(name) is not None},
            },
        )

    def _filter(self, filters: Filters) -> models.Filter:
        return models.Filter(
            must=[
                _any_of("org_id", self.scope.organizations),
                _any_of("readers", ([_EVERYBODY, self.scope.user] if self.scope.user else [_EVERYBODY])),
                *(_any_of("site_id", [site]) for site in ([self.scope.site] if self.scope.site else [])),
                *(_condition(each, self.spec.all_fields[each.field]) for each in filters),
            ]
        )


def _condition(condition: Condition, kind: FieldType) -> models.FieldCondition | models.Filter:
    key, value = _key(condition.field), condition.value
    if condition.or_missing:
        return models.Filter(
            should=[
                models.IsEmptyCondition(is_empty=models.PayloadField(key=key)),
                _condition(replace(condition, or_missing=False), kind),
            ]
        )
    if isinstance(value, tuple):
        each = [_condition(Condition(condition.field, Operator.EQ, one), kind) for one in value]
        return models.Filter(should=each) if each else models.Filter(must=[models.HasIdCondition(has_id=[])])
    if condition.operator in (Operator.GT, Operator.GTE, Operator.LT, Operator.LTE):
        return models.FieldCondition(key=key, range=models.Range(**{condition.operator.name.lower(): value}))
    if kind in (FieldType.NUMBER, FieldType.TIME):  # Qdrant matches no floats
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _key(field: str) -> str:
    """A field's place in the payload: beside the standard ones, or below `x`."""
    return field if field in ("org_id", "source_id", "source_type", "lang", "date") else f"x_{field}"


def _texts(ids: Iterable[object]) -> list[str]:
    return [str(each) for each in ids]


def _any_of(key: str, values: Iterable[object]) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=_texts(values)))


def _sparse(weights: dict[int, float]) -> models.SparseVector:
    # a lexeme's hash is signed in PostgreSQL, unsigned here
    return models.SparseVector(indices=[term & 0xFFFFFFFF for term in weights], values=list(weights.values()))


def _to_node(point: Any, embedding: list[float] | None = None) -> TextNode:
    return chunk_node(point.id, point.payload["text"], point.payload["metadata"], embedding)
