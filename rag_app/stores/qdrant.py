"""Vectors in Qdrant: a local folder, or a server. Texts and words are in PostgreSQL (`outside`).

Qdrant cannot enforce tenancy: every call carries the tenant in its filter, and its results are looked up in PostgreSQL,
under row-level security, before they are used.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from llama_index.core.schema import BaseNode, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from qdrant_client import AsyncQdrantClient, QdrantClient, models
from qdrant_client.http.exceptions import ApiException

from rag_app.database.session import Database
from rag_app.domain import FieldType, Filters, Misconfigured, Scope, StoreFailed
from rag_app.retrieval.filters import translate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import Search
from rag_app.stores.postgres import OutsideBackend, OutsideStore, to_node
from rag_app.stores.postgres_tables import column
from rag_app.stores.registry import Visible

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

_RANGES = frozenset({FilterOperator.LT, FilterOperator.LTE, FilterOperator.GT, FilterOperator.GTE})


class QdrantBackend(OutsideBackend):
    """One Qdrant, local (`path`) or a server (`url`); a generation is a collection.

    Local mode belongs to one process and scans every point: for small sets. Its calls run on one thread.
    """

    kind = "qdrant"

    def __init__(
        self,
        database: Database,
        visible: Visible,
        *,
        path: Path | None = None,
        url: str | None = None,
        api_key: str | None = None,
    ) -> None:
        super().__init__(database, visible)
        self.local = url is None
        self._path, self._url, self._api_key = path, url, api_key
        self._client: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="qdrant")

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "QdrantStore":
        return QdrantStore(spec=spec, generation=generation, scope=scope, backend=self)

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        await self.drop(owner_url, generation)
        await super().create(owner_url, spec, generation, dimension)
        await self.create_outside(spec, generation, dimension)

    async def create_outside(self, spec: IndexSpec, generation: str, dimension: int) -> None:
        size = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        await self.call("create_collection", generation, vectors_config=size)
        schemas = {
            "org_id": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
            "readers": models.PayloadSchemaType.KEYWORD,
            "site_id": models.PayloadSchemaType.KEYWORD,
            **{column(name): _INDEXES[kind] for name, kind in spec.all_fields.items() if name != "org_id"},
        }
        for name, schema in schemas.items():
            if not self.local:  # local mode has no payload indexes
                await self.call("create_payload_index", generation, name, schema)

    async def drop(self, owner_url: str, generation: str) -> None:
        await super().drop(owner_url, generation)
        if await self.holds(generation):
            await self.call("delete_collection", generation)

    async def holds(self, generation: str) -> bool:
        return bool(await self.call("collection_exists", generation))

    async def scroll(
        self, generation: str, among: models.Filter | None = None, **wanted: Any
    ) -> AsyncIterator[models.Record]:
        """All points `among` which the filter finds, with their payload unless it is not `wanted`."""
        page, pages = None, True
        while pages:
            points, page = await self.call("scroll", generation, among, limit=_PAGE, offset=page, **wanted)
            for point in points:
                yield point
            pages = page is not None

    async def dump(self, generation: str) -> AsyncIterator[bytes]:
        async for point in self.scroll(generation, with_vectors=True):
            yield point.model_dump_json(include={"id", "payload", "vector"}).encode()

    async def load(self, generation: str, lines: Sequence[bytes]) -> None:
        points = [models.PointStruct.model_validate_json(line) for line in lines]
        await self.call("upsert", generation, points, wait=True)

    async def close(self) -> None:
        await super().close()
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


class QdrantStore(OutsideStore):
    """One index in one collection, as one scope sees it."""

    async def nearest(self, asked: Search) -> dict[UUID, float]:
        """Of equal cosines at the end those with the least ids: more are asked for until all of them are there."""
        most = asked.depth + 1
        while True:
            scores = await self._scores(asked.vector, self._filter(asked.filters), most)
            found = sorted(scores.items(), key=lambda each: (-each[1], each[0]))
            if len(found) < most or found[asked.depth - 1][1] > found[-1][1]:
                return dict(found[: asked.depth])
            most *= 4

    async def cosines(self, vector: Sequence[float], ids: Sequence[UUID]) -> dict[UUID, float]:
        return await self._scores(vector, models.Filter(must=[_one_of(ids), self._filter(())]), len(ids))

    async def _scores(self, vector: Sequence[float], among: models.Filter, limit: int) -> dict[UUID, float]:
        found = await self.backend.call(
            "query_points", self.generation, list(vector), query_filter=among, limit=limit, with_payload=False
        )
        return {UUID(str(point.id)): point.score for point in found.points}

    async def put_vectors(self, nodes: Sequence[BaseNode]) -> None:
        await self.backend.call("upsert", self.generation, [self._point(node) for node in nodes], wait=True)

    async def delete_vectors(self, sources: Sequence[UUID], kept: Sequence[UUID]) -> None:
        old = models.Filter(must=[self._scope_condition(), _any_of("source_id", sources)], must_not=[_one_of(kept)])
        await self.backend.call("delete", self.generation, models.FilterSelector(filter=old), wait=True)

    async def export(self, source_ids: Sequence[UUID]) -> list[TextNode]:
        rows = await self.rows(source_ids)
        among = models.Filter(must=[self._scope_condition(), _one_of([row["id"] for row in rows])])
        points = self.backend.scroll(self.generation, among, with_payload=False, with_vectors=True)
        vectors = {UUID(str(point.id)): point.vector async for point in points}
        return [to_node(row, vectors[row["id"]]) for row in rows if row["id"] in vectors]

    async def sources(self) -> set[UUID]:
        """All sources with vectors here, including vectors that a deletion missed."""
        ours = models.Filter(must=[self._scope_condition()])
        points = self.backend.scroll(self.generation, ours, with_payload=["source_id"])
        return await super().sources() | {UUID(point.payload["source_id"]) async for point in points}

    def _scope_condition(self) -> models.FieldCondition:
        return _any_of("org_id", self.scope.organizations)

    def _point(self, node: BaseNode) -> models.PointStruct:
        meta = node.metadata
        fields = {column(name): meta[name] for name in self.spec.all_fields if meta.get(name) is not None}
        readers = meta.get("private_to") or _EVERYBODY
        return models.PointStruct(
            id=node.node_id,
            vector=node.get_embedding(),
            payload={"readers": readers, "site_id": meta.get("site_id"), **fields},
        )

    def _filter(self, filters: Filters) -> models.Filter:
        return models.Filter(
            must=[
                self._scope_condition(),
                _any_of("readers", [_EVERYBODY, *self.scope.readers]),
                *(_any_of("site_id", [site]) for site in ([self.scope.site] if self.scope.site else [])),
                *(_holds(each, self.spec) for each in filters),
            ]
        )


# Qdrant's `must_not` also finds points without the field, which is right for NOT only
_JOINS: Mapping[FilterCondition, Callable[[list[models.Condition]], models.Condition]] = {
    FilterCondition.NOT: lambda each: models.Filter(must_not=each),
    FilterCondition.OR: lambda each: models.Filter(should=each),
    FilterCondition.AND: lambda each: models.Filter(must=each),
}


def _holds(given: MetadataFilter | MetadataFilters, spec: IndexSpec) -> models.Condition:
    return translate(given, partial(_condition, spec), _JOINS)


def _condition(spec: IndexSpec, condition: MetadataFilter) -> models.Condition:
    kind, operator, value = spec.all_fields[condition.key], condition.operator, condition.value
    key = column(condition.key)
    missing = models.IsEmptyCondition(is_empty=models.PayloadField(key=key))
    if operator is FilterOperator.IS_EMPTY:
        return missing
    if operator in _RANGES:
        return models.FieldCondition(key=key, range=models.Range(**{operator.name.lower(): value}))
    each: list[models.Condition] = [_equals(key, kind, one) for one in (value if isinstance(value, list) else [value])]
    if operator in (FilterOperator.NE, FilterOperator.NIN):
        return models.Filter(must_not=[missing, *each])
    if operator is FilterOperator.ALL:
        return models.Filter(must=each)
    return models.Filter(should=each) if isinstance(value, list) else each[0]


def _equals(key: str, kind: FieldType, value: Any) -> models.FieldCondition:
    if kind in (FieldType.NUMBER, FieldType.TIME):  # Qdrant matches no floats
        return models.FieldCondition(key=key, range=models.Range(gte=value, lte=value))
    return models.FieldCondition(key=key, match=models.MatchValue(value=value))


def _one_of(ids: Iterable[UUID]) -> models.HasIdCondition:
    return models.HasIdCondition(has_id=[*map(str, ids)])


def _any_of(key: str, values: Iterable[object]) -> models.FieldCondition:
    return models.FieldCondition(key=key, match=models.MatchAny(any=[*map(str, values)]))
