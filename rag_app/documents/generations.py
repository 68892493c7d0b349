"""Builds of an index: each with one embedding model, in one vector store; at most one of them answers."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any, Literal

from msgspec import Struct, convert
from sqlalchemy import Row, and_, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.database.session import Database
from rag_app.documents.tables import generations_table
from rag_app.domain import InvalidInput, Misconfigured, NotFound, require


class Generation(Struct, frozen=True):
    """One build. `number` counts from 1 in each index and store; `settings` is what it was built with.

    >>> Generation(7, "book", "postgres", 2, "minilm", 384, "active", {}, datetime.now()).table_prefix
    'g_book_2'
    """

    id: int
    index: str
    store: str
    number: int
    embedding_model: str
    dimension: int
    state: Literal["building", "active", "retired", "dropped"]
    settings: Mapping[str, Any]
    created_at: datetime

    @property
    def table_prefix(self) -> str:
        """The prefix of its tables in PostgreSQL, and its collection's name in Qdrant. At most 45 characters."""
        return f"g_{self.index}_{self.number}"


class GenerationRegistry:
    """The generations of all indexes; each vector store has generations of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._active: dict[tuple[str, str], tuple[float, Generation]] = {}

    async def active(self, index: str, store: str, within: float = 0.0) -> Generation | None:
        """The active generation, at most `within` seconds old."""
        now = time.monotonic()
        looked_up, generation = self._active.get((index, store), (-inf, None))
        if now - looked_up < within:
            return generation
        rows = await self._database.fetch(_ACTIVE, index, store)
        if not rows:
            return None
        generation = convert(dict(rows[0]), Generation)
        self._active[index, store] = now, generation
        return generation

    async def create(
        self, index: str, store: str, embedding_model: str, dimension: int, settings: Mapping[str, Any]
    ) -> Generation:
        """A new generation in the state `building`. `settings` must be JSON."""
        async with self._database.session() as session:
            await session.execute(_ONE_AT_A_TIME)
            newest = select(func.coalesce(func.max(generations_table.c.number), 0)).where(
                generations_table.c.index == index, generations_table.c.store == store
            )
            made = await session.execute(
                insert(generations_table)
                .values(
                    index=index,
                    store=store,
                    number=newest.scalar_subquery() + 1,
                    embedding_model=embedding_model,
                    dimension=dimension,
                    state="building",
                    settings=dict(settings),
                )
                .returning(generations_table)
            )
            return convert(made.one()._mapping, Generation)

    async def declare(self, index: str, source_types: Sequence[str]) -> None:
        """Record the source types of an index, for the SQL functions."""
        await self._database.fetch(_DECLARE, index, list(source_types))

    async def activate(self, generation_id: int, *, retire: bool = True) -> Generation:
        """Make this generation active and retire the active one, atomically. Activating a retired one is a rollback.

        With `retire=False` it becomes active only if none is: an empty first generation never replaces one that
        may hold sources. Raises NotFound, InvalidInput for a dropped one, and Misconfigured if another one is active
        and must not be retired.
        """
        async with self._database.session() as session:
            row = await _lock_generation(session, generation_id)
            if row.state == "dropped":
                raise InvalidInput("", row.number, f"generation {row.number} of {row.index} has been dropped")
            others = and_(
                generations_table.c.index == row.index,
                generations_table.c.store == row.store,
                generations_table.c.state == "active",
                generations_table.c.id != row.id,
            )
            answering = await session.scalar(select(generations_table.c.number).where(others))
            if answering is not None and not retire:
                raise Misconfigured(
                    f"generation {answering} of {row.index} already answers: generation {row.number} was "
                    "meant to be the first one. Run the command again"
                )
            await session.execute(update(generations_table).where(others).values(state="retired"))
            return await _set_state(session, generation_id, "active")

    async def drop(self, generation_id: int) -> Generation:
        """Mark it as dropped, so that it cannot be activated. Its row stays, and its number is not reused.

        Raises NotFound, and InvalidInput for the active one.
        """
        async with self._database.session() as session:
            row = await _lock_generation(session, generation_id)
            if row.state == "active":
                raise InvalidInput(
                    "", row.number, f"generation {row.number} of {row.index} is active: switch to another one first"
                )
            return await _set_state(session, generation_id, "dropped")

    async def list(self) -> list[Generation]:
        """All, by index, store and number."""
        order = generations_table.c.index, generations_table.c.store, generations_table.c.number
        found = await self._database.execute(select(generations_table).order_by(*order))
        return [convert(row._mapping, Generation) for row in found]


_ACTIVE = """
    SELECT id, index_name AS index, store, number, embedding_model, dimension, state, settings, created_at
    FROM generations
    WHERE index_name = $1 AND store = $2 AND state = 'active'
    """
_DECLARE = """
    WITH gone AS (DELETE FROM source_types WHERE index_name = $1 AND source_type <> ALL ($2::text[]))
    INSERT INTO source_types SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING
    """
# Readers go on; who would take the same number or retire the same generation waits.
_ONE_AT_A_TIME = text("LOCK TABLE generations IN SHARE ROW EXCLUSIVE MODE")


async def _lock_generation(session: AsyncConnection, generation_id: int) -> Row[Any]:
    await session.execute(_ONE_AT_A_TIME)
    this = select(generations_table).where(generations_table.c.id == generation_id)
    return require((await session.execute(this)).one_or_none(), NotFound("generation", str(generation_id)))


async def _set_state(session: AsyncConnection, generation_id: int, state: str) -> Generation:
    this = update(generations_table).where(generations_table.c.id == generation_id)
    changed = await session.execute(this.values(state=state).returning(generations_table))
    return convert(changed.one()._mapping, Generation)
