"""Any LlamaIndex vector store, declared in a file (`class_file`). Texts, words and filters are in PostgreSQL (`outside`).

The store is foreign code and is not trusted: it only proposes which chunks may be nearest. PostgreSQL keeps the
vectors, too. It computes each cosine and applies scope and filters again, under row-level security. A store that
ignores a filter, or returns its own scores or unknown ids, therefore changes no result.

What reaches the store in a filter is a UUID or a number (`_check_condition`): a text is replaced by the UUID of its hash. So a store
that pastes values into its queries has nothing to paste.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

import msgspec
import numpy as np
from llama_index.core.schema import BaseNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from msgspec import Struct

from rag_app.database.session import Database
from rag_app.domain import FieldType, Filters, Misconfigured, RagError, Scope, StoreFailed, uuid_in
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.store import Search
from rag_app.stores.class_file import Builder, ClassFile
from rag_app.stores.postgres import ChunkStore, OutsideBackend, OutsideStore, PostgresBackend, execute_as_owner
from rag_app.stores.postgres_tables import Query, create_vector_fields, drop_statements
from rag_app.stores.registry import Visible

log = logging.getLogger(__name__)

ROUNDS = 4
"""Times a store is asked for one question, each time for twice as many."""
_MANY = 500  # nodes in one call
_SLACK = 1e-6  # of a number: a store may keep numbers in single precision
_LARGEST = 1e15  # numbers up to which bounds are sent
_HOSTILE = "x' OR '1'='1"
_OUTSIDER = UUID(int=2)  # an organization that nobody belongs to, of the one node that says that a generation is there

# Whether the search under way found fewer chunks than there are.
_cut_short: ContextVar[bool] = ContextVar("_cut_short", default=False)


class Abilities(Struct, frozen=True):
    """What a probe of an empty generation has found out about its store."""

    release: str = ""
    among: bool = False
    """It filters by `in`. Otherwise it is asked once for each organization, and what is private comes along unasked."""
    ranges: bool = False
    """It filters by `>=` and `<=`. Otherwise PostgreSQL alone applies conditions on numbers and times."""
    by_id: bool = False
    """It deletes nodes by their ids, many at once. Otherwise each is deleted as a document of its own."""
    pastes: bool = False
    """A quote in a value breaks its queries. Values with quotes are never sent."""

    def summary(self) -> str:
        """For people: what the store cannot do and how it is compensated; empty if nothing is missing."""
        found = {
            "does not filter by `in`: asked once for each organization": not self.among,
            "does not filter by ranges: PostgreSQL does": not self.ranges,
            "deletes one node a call": not self.by_id,
            "pastes values into its queries: is sent hashes and numbers alone": self.pastes,
        }
        return "; ".join(limit for limit, holds in found.items() if holds)


class LlamaIndexBackend(OutsideBackend):
    """Generations in the LlamaIndex store that a file declares: a generation is a collection, a table or what it has.

    It uses the blocking calls, which every store has, in separate threads.
    """

    kind = "llama"
    prepare = staticmethod(PostgresBackend.prepare)

    def __init__(self, database: Database, visible: Visible, declared: ClassFile) -> None:
        super().__init__(database, visible)
        self.declared = declared
        self._builder = Builder(declared)
        self._threads = ThreadPoolExecutor(declared.threads, thread_name_prefix="llamaindex-store")
        self._stores = dict[str, BasePydanticVectorStore]()
        self._abilities = dict[str, Abilities]()
        self._opening = asyncio.Lock()

    def scoped(self, spec: IndexSpec, generation: str, scope: Scope) -> "LlamaIndexStore":
        return LlamaIndexStore(spec=spec, generation=generation, scope=scope, backend=self)

    async def create(self, owner_url: str, spec: IndexSpec, generation: str, dimension: int) -> None:
        """Raises Misconfigured if the store cannot keep organizations apart or cannot delete."""
        prefix = self._prefix(generation)
        await execute_as_owner(owner_url, drop_statements(prefix) + create_vector_fields(spec, prefix, dimension))
        await self._open(generation, dimension)
        await self._clear(generation)
        found = await _Probe(self, generation, dimension).run()
        self._abilities[generation] = found
        said = msgspec.json.encode(found).decode().replace("'", "''")
        await execute_as_owner(owner_url, f"COMMENT ON TABLE {prefix}_fields IS '{said}'")

    async def drop(self, owner_url: str, generation: str) -> None:
        if dimension := await self._dimension(generation):
            await self._open(generation, dimension)
            await self._clear(generation)
        self._stores.pop(generation, None)
        self._abilities.pop(generation, None)
        await execute_as_owner(owner_url, drop_statements(self._prefix(generation)))

    async def holds(self, generation: str) -> bool:
        dimension = await self._dimension(generation)
        return bool(dimension and await self.ask(generation, _unit(dimension, 0), [_belongs([_OUTSIDER])], 1))

    async def limits(self, generation: str) -> str:
        abilities = await self.abilities(generation)
        changed = (
            "" if abilities.release == self.declared.release else f"was probed as {abilities.release or 'nothing'}"
        )
        return "; ".join(filter(None, (self.declared.release, changed, abilities.summary())))

    async def abilities(self, generation: str) -> Abilities:
        """The result of the generation's probe; without one, no abilities."""
        if generation not in self._abilities:
            said = await self._value("SELECT obj_description(to_regclass($1::text), 'pg_class') AS value", generation)
            self._abilities[generation] = msgspec.json.decode(said, type=Abilities) if said else Abilities()
        return self._abilities[generation]

    async def ask(
        self, generation: str, vector: Sequence[float], conditions: Sequence[MetadataFilter], limit: int
    ) -> list[UUID]:
        """The ids of the `limit` nodes that the store calls nearest."""
        filters = MetadataFilters(filters=[*map(_check_condition, conditions)]) if conditions else None
        query = VectorStoreQuery(query_embedding=_direction(vector), similarity_top_k=limit, filters=filters)
        found = await self.call(generation, "query", query)
        said = map(str, found.ids or [node.node_id for node in found.nodes or []])
        return [*dict.fromkeys(filter(None, map(uuid_in, said)))]  # another id is of no chunk of ours

    async def put(self, generation: str, nodes: Sequence[BaseNode]) -> None:
        """Write nodes, replacing those with the same ids. Stores differ in what they do with an existing id."""
        await self.take(generation, [UUID(node.node_id) for node in nodes])
        for start in range(0, len(nodes), _MANY):
            await self.call(generation, "add", [*nodes[start : start + _MANY]])

    async def take(self, generation: str, ids: Sequence[UUID]) -> None:
        """Delete nodes. Each is stored as a document of its own, so both ways of deletion remove that node only."""
        texts = [*map(str, ids)]
        if (await self.abilities(generation)).by_id:
            for start in range(0, len(texts), _MANY):
                await self.call(generation, "delete_nodes", node_ids=texts[start : start + _MANY])
        else:
            for each in texts:
                await self.call(generation, "delete", each)

    async def call(self, generation: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Raises StoreFailed for any error of the store, without the file's secrets in the message."""
        if generation not in self._stores:
            await self._open(generation, await self._dimension(generation))
        store = self._stores[generation]
        return await self._run(partial(getattr(store, method), *args, **kwargs))

    async def close(self) -> None:
        await super().close()
        for each in [*self._stores.values(), *self._builder.made.values()]:
            await self._close(each)
        self._stores.clear()
        self._builder.made.clear()
        self._threads.shutdown(wait=False)

    async def _close(self, opened: Any) -> None:
        close = getattr(opened, "close", None)
        try:
            if iscoroutinefunction(close):
                await close()
            elif callable(close):
                await self._run(close)
        except Exception as error:  # of foreign code, while everything is closed
            log.warning("%s was not closed: %s", type(opened).__name__, type(error).__name__)

    async def _run(self, work: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.declared.seconds):
                return await loop.run_in_executor(self._threads, work)
        except RagError:
            raise
        except TimeoutError:
            raise StoreFailed(f"{self.declared.class_path} took longer than {self.declared.seconds} s") from None
        except Exception as error:  # whatever foreign code raises
            said = self._builder.scrub(f"{type(error).__name__}: {error}")
            raise StoreFailed(f"{self.declared.class_path}: {said}"[:500]) from None

    async def _open(self, generation: str, dimension: int) -> None:
        async with self._opening:
            if generation not in self._stores:
                self._stores[generation] = await self._run(lambda: self._builder.open(generation, dimension))

    async def _clear(self, generation: str) -> None:
        """Empties the generation as far as the store can. The ledger does not know the rest, so it is never shown."""
        try:
            await self.call(generation, "clear")
        except StoreFailed as error:
            log.info("%s was not emptied: %s", generation, error)

    def _prefix(self, generation: str) -> str:
        return f"{generation}_{self.kind}"

    async def _dimension(self, generation: str) -> int:
        """The dimension of the generation's vectors; 0 if it has none."""
        found = await self._value(
            "SELECT atttypmod AS value FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attname = 'embedding'",
            generation,
        )
        return int(found or 0)

    async def _value(self, sql: str, generation: str) -> Any:
        """A value of PostgreSQL's catalogue about the generation's table of fields."""
        name = f"{self._prefix(generation)}_fields"
        rows = await self.database.fetch_scoped(Scope(frozenset({_OUTSIDER})), sql, name)
        return rows[0]["value"] if rows else None


class LlamaIndexStore(OutsideStore):
    """One index in one generation of the store, as one scope sees it."""

    keeps_vectors = True

    async def best(self, asked: Search) -> list[tuple[Candidate, TextNode]]:
        """Chunks have `incomplete: true` in their metadata if fewer were found than exist."""
        _cut_short.set(False)
        found = await super().best(asked)
        if _cut_short.get():
            for _, node in found:
                node.metadata["incomplete"] = True
        return found

    async def nearest(self, asked: Search) -> dict[UUID, float]:
        found: dict[UUID, float] = {}
        there, limit = -1, asked.depth
        compared = self.backend.declared.compared
        for _ in range(ROUNDS):
            ids = await self.propose(asked, limit)
            found = await self.cosines(asked.vector, ids, asked.filters)
            if len(found) < asked.depth and there < 0:
                # how many the filters leave, counted up to the limit that matters
                ((there,),) = await self.ask(Query.count_up_to, asked.filters, max(asked.depth, compared + 1))
            if len(found) >= (asked.depth if there < 0 else min(asked.depth, there)):
                return dict(sorted(found.items(), key=lambda each: (-each[1], each[0]))[: asked.depth])
            limit *= 2
        if there <= compared:
            return {row["id"]: row["cosine"] for row in await self.ask(Query.nearest, asked)}
        _cut_short.set(True)
        wanted = min(asked.depth, there)
        log.warning("%s: the vector store found %d of %d chunks", self.generation, len(found), wanted)
        return found

    async def propose(self, asked: Search, limit: int) -> list[UUID]:
        """The ids that the store considers nearest, under the conditions that it can apply."""
        abilities = await self.backend.abilities(self.generation)
        questions = scope_conditions(self.scope, abilities)
        narrower = filter_conditions(asked.filters, self.spec, abilities)
        found = await asyncio.gather(
            *(self.backend.ask(self.generation, asked.vector, [*each, *narrower], limit) for each in questions)
        )
        return [id_ for each in found for id_ in each]

    async def cosines(self, vector: Sequence[float], ids: Sequence[UUID], filters: Filters = ()) -> dict[UUID, float]:
        return {row["id"]: row["cosine"] for row in await self.ask(Query.cosines, vector, ids, filters)}

    async def write(self, nodes: Sequence[BaseNode], replacing: Sequence[UUID] = ()) -> None:
        """Writes the store first, so that after any interruption PostgreSQL knows all ids that may be in it."""
        self.check(nodes)
        async with self.backend.writing:
            if nodes:
                await self.put_vectors(nodes)
            if replacing:
                await self.delete_vectors(replacing, [UUID(node.node_id) for node in nodes])
            await ChunkStore.write(self, nodes, replacing)

    async def put_vectors(self, nodes: Sequence[BaseNode]) -> None:
        """The store gets of each chunk its id, vector and filter fields, and no text."""
        stripped = [
            _node(UUID(node.node_id), node.get_embedding(), stored_fields(node.metadata, self.spec)) for node in nodes
        ]
        await self.backend.put(self.generation, stripped)

    async def delete_vectors(self, sources: Sequence[UUID], kept: Sequence[UUID]) -> None:
        gone = {row["id"] for row in await self.rows(sources)} - {*kept}
        if gone:
            await self.backend.take(self.generation, sorted(gone))


def scope_conditions(scope: Scope, abilities: Abilities) -> list[list[MetadataFilter]]:
    """The mandatory filter, as the queries that together cover what the scope may see."""
    site = [_equal("site_id", scope.site)] if scope.site else []
    if abilities.among:
        readers = MetadataFilter(
            key="readers", operator=FilterOperator.IN, value=[*map(str, [_EVERYBODY, *scope.readers])]
        )
        return [[_belongs(scope.organizations), readers, *site]]
    return [[_equal("org_id", each), *site] for each in sorted(scope.organizations)]


def filter_conditions(filters: Filters, spec: IndexSpec, abilities: Abilities) -> list[MetadataFilter]:
    """The conditions that the store can apply, none stricter than requested. PostgreSQL applies all of them.

    This is the one place that translates filters for a foreign store.
    """
    return [sent for each in filters for sent in _translate_filter(each, spec, abilities)]


def _translate_filter(
    given: MetadataFilter | MetadataFilters, spec: IndexSpec, abilities: Abilities
) -> Iterator[MetadataFilter]:
    """Translates: one field with one of several values or without a value; bounds of numbers; and conjunctions of these."""
    if tokens := _alternatives(given, spec):
        field, token = tokens[0]
        if len(tokens) == 1:
            yield _equal(_key(field), token)
        elif abilities.among and all(other == field for other, _ in tokens):
            yield MetadataFilter(key=_key(field), operator=FilterOperator.IN, value=[str(token) for _, token in tokens])
    elif isinstance(given, MetadataFilter):
        if abilities.ranges and spec.all_fields[given.key] in _NUMBERS:
            yield from _bounds(given)
    elif given.condition is FilterCondition.AND:
        for each in given.filters:
            yield from _translate_filter(each, spec, abilities)


def _alternatives(given: MetadataFilter | MetadataFilters, spec: IndexSpec) -> list[tuple[str, UUID]]:
    """The tokens per field of which a passing chunk has one; empty if a chunk may pass without them."""
    if isinstance(given, MetadataFilters):
        each = [_alternatives(one, spec) for one in given.filters] if given.condition is FilterCondition.OR else []
        return [token for tokens in each for token in tokens] if all(each) else []
    field, kind, operator, value = given.key, spec.all_fields[given.key], given.operator, given.value
    if kind not in _TOKENS:
        return []
    if operator is FilterOperator.IS_EMPTY:
        return [(field, _absent(field))]
    if operator is FilterOperator.IN and isinstance(value, list):
        return [(field, _token(field, kind, one)) for one in value]
    return [(field, _token(field, kind, value))] if operator is FilterOperator.EQ else []


def _bounds(condition: MetadataFilter) -> Iterator[MetadataFilter]:
    operator, value, key = condition.operator, condition.value, f"{_key(condition.key)}_n"
    if isinstance(value, int | float) and abs(value) <= _LARGEST:
        slack = _SLACK * (1 + abs(value))
        if operator in (FilterOperator.EQ, FilterOperator.GT, FilterOperator.GTE):
            yield MetadataFilter(key=key, operator=FilterOperator.GTE, value=float(value) - slack)
        if operator in (FilterOperator.EQ, FilterOperator.LT, FilterOperator.LTE):
            yield MetadataFilter(key=key, operator=FilterOperator.LTE, value=float(value) + slack)


_TOKENS = frozenset({FieldType.KEYWORD, FieldType.UUID, FieldType.BOOLEAN, FieldType.INTEGER})
_NUMBERS = frozenset({FieldType.INTEGER, FieldType.NUMBER, FieldType.TIME})


def stored_fields(metadata: Mapping[str, Any], spec: IndexSpec) -> dict[str, str | float]:
    """The metadata that a store gets: a UUID for each text, a number for each number."""
    fields: dict[str, str | float] = {
        "org_id": str(UUID(str(metadata["org_id"]))),
        "readers": str(UUID(metadata["private_to"]) if metadata.get("private_to") else _EVERYBODY),
        "site_id": str(UUID(metadata["site_id"]) if metadata.get("site_id") else _absent("site_id")),
    }
    for name, kind in spec.all_fields.items():
        value = metadata.get(name)
        if name != "org_id" and kind in _TOKENS:
            fields[_key(name)] = str(_absent(name) if value is None else _token(name, kind, value))
        if kind in _NUMBERS and value is not None:
            fields[f"{_key(name)}_n"] = float(value)
    return fields


def _token(field: str, kind: FieldType, value: object) -> UUID:
    """What stands for a value in a store."""
    return UUID(str(value)) if kind is FieldType.UUID else uuid5(NAMESPACE_URL, f"rag_app:{field}={value!s}")


def _absent(field: str) -> UUID:
    """What stands for no value."""
    return uuid5(NAMESPACE_URL, f"rag_app:{field}")


_EVERYBODY = _absent("readers")


def _key(field: str) -> str:
    return "org_id" if field == "org_id" else f"x_{field}"


def _belongs(organizations: Iterable[UUID]) -> MetadataFilter:
    found = [*map(str, sorted(organizations))]
    if len(found) == 1:
        return MetadataFilter(key="org_id", value=found[0])
    return MetadataFilter(key="org_id", operator=FilterOperator.IN, value=found)


def _equal(key: str, value: UUID) -> MetadataFilter:
    return MetadataFilter(key=key, value=str(value))


def _check_condition(condition: MetadataFilter) -> MetadataFilter:
    """The last check before foreign code. Raises ValueError for anything but UUIDs and finite numbers."""
    if not condition.key.isidentifier():
        raise ValueError(f"{condition.key!r} is no field")
    for each in condition.value if isinstance(condition.value, list) else [condition.value]:
        if isinstance(each, float):
            if not math.isfinite(each):
                raise ValueError(f"{each} cannot be sent to the store: it is not a finite number")
        elif str(UUID(str(each))) != each:
            raise ValueError("only UUIDs and numbers are sent to a foreign store")
    return condition


def _node(id_: UUID, vector: Sequence[float], fields: Mapping[str, str | float]) -> TextNode:
    own = RelatedNodeInfo(node_id=str(id_))
    return TextNode(
        id_=str(id_),
        text=str(id_),  # some stores refuse an empty one
        embedding=_direction(vector),
        metadata={**fields},
        relationships={NodeRelationship.SOURCE: own},
    )


def _direction(vector: Sequence[float]) -> list[float]:
    """The vector at length 1, so that cosine, distance and inner product give the same order."""
    numbers = np.asarray(vector, dtype=np.float64)
    scaled = numbers / np.abs(numbers).max()
    found: list[float] = (scaled / np.linalg.norm(scaled)).tolist()
    return found


def _unit(dimension: int, axis: int) -> list[float]:
    return [float(at == axis) for at in range(dimension)]


class _Probe:
    """Tests what a store can do on an empty generation, and leaves the node there that `holds` looks for."""

    def __init__(self, backend: LlamaIndexBackend, generation: str, dimension: int) -> None:
        self.backend, self.generation, self.dimension = backend, generation, dimension
        self._call = partial(backend.call, generation)
        self.owners = uuid4(), uuid4()
        self.nodes = [
            _node(uuid4(), _unit(dimension, axis), self._fields(owner, axis)) for axis, owner in enumerate(self.owners)
        ]

    async def run(self) -> Abilities:
        """Raises Misconfigured for a store that organizations cannot share."""
        outsider = _node(_OUTSIDER, _unit(self.dimension, 0), self._fields(_OUTSIDER, 0))
        await self._call("add", [*self.nodes, outsider])
        first, second = (UUID(node.node_id) for node in self.nodes)
        mine, theirs, both = _belongs(self.owners[:1]), _belongs(self.owners[1:]), _belongs(self.owners)
        if await self._probe_query([mine]) != {first}:
            raise Misconfigured(
                self._refusal_text("does not filter by equality, so it cannot keep organizations apart")
            )
        if await self._probe_query([mine, _equal("site_id", self.owners[1])]):
            raise Misconfigured(self._refusal_text("does not apply two conditions together"))
        if await self.backend.ask(self.generation, _unit(self.dimension, 1), [], 1) != [second]:
            raise Misconfigured(self._refusal_text("does not return the nearest vector"))
        from_half = MetadataFilter(key="x_rank_n", operator=FilterOperator.GTE, value=0.5)
        up_to_more = MetadataFilter(key="x_rank_n", operator=FilterOperator.LTE, value=1.5)
        found = Abilities(
            release=self.backend.declared.release,
            among=await self._finds([both], {first, second}) and await self._finds([both, theirs], {second}),
            ranges=await self._finds([mine, from_half], set())
            and await self._finds([theirs, from_half, up_to_more], {second}),
            by_id=await self._goes(first, "delete_nodes", node_ids=[str(first)]),
            pastes=await self._is_pasted(),
        )
        for id_ in (first, second):
            if not found.by_id and not await self._goes(id_, "delete", str(id_)):
                raise Misconfigured(self._refusal_text("does not delete, so what is deleted would stay in it"))
        if found.by_id:
            await self._call("delete_nodes", node_ids=[str(second)])
        return found

    async def _goes(self, id_: UUID, method: str, *args: Any, **kwargs: Any) -> bool:
        """Whether this deletes the node and nothing else."""
        before = await self._everything()
        try:
            await self._call(method, *args, **kwargs)
        except StoreFailed:
            return False
        return await self._everything() == before - {id_}

    async def _everything(self) -> set[UUID]:
        found = [await self._probe_query([_belongs([each])]) for each in (*self.owners, _OUTSIDER)]
        return set().union(*found)

    async def _is_pasted(self) -> bool:
        """Whether a quote breaks out of a value. This is the only text that is ever sent, and the generation is empty."""
        said = MetadataFilter(key="site_id", value=_HOSTILE)
        query = VectorStoreQuery(_unit(self.dimension, 1), 3, filters=MetadataFilters(filters=[said]))
        try:
            found = await self._call("query", query)
        except StoreFailed:
            return True
        return bool(found.ids or found.nodes)

    async def _finds(self, conditions: Sequence[MetadataFilter], expected: set[UUID]) -> bool:
        try:
            return await self._probe_query(conditions) == expected
        except StoreFailed:
            return False

    async def _probe_query(self, conditions: Sequence[MetadataFilter]) -> set[UUID]:
        return {*await self.backend.ask(self.generation, _unit(self.dimension, 1), conditions, 3)}

    def _fields(self, owner: UUID, rank: int) -> dict[str, str | float]:
        return {"org_id": str(owner), "readers": str(owner), "site_id": str(owner), "x_rank_n": float(rank)}

    def _refusal_text(self, why: str) -> str:
        return f"{self.backend.declared.class_path} {why}: it cannot be used"
