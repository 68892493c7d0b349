"""Versions of what a model is told about its role: which there are, and which are in use."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, bindparam, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.types import Text

from rag_app.access.audit import Act, administering
from rag_app.answering.roles import BIGGEST_WEIGHT, TYPES, PromptConfig, PromptVersion, choose, template_types
from rag_app.answering.tables import PromptConfigRow
from rag_app.database.session import Database
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.scope import Principal, Scope

_COLUMNS = (
    PromptConfigRow.name,
    PromptConfigRow.type,
    PromptConfigRow.system_instructions,
    PromptConfigRow.constraints,
    PromptConfigRow.weight,
    PromptConfigRow.is_active,
)
_ALL = select(*_COLUMNS).order_by(PromptConfigRow.type, PromptConfigRow.name)
_ACTIVE = _ALL.where(PromptConfigRow.is_active)
_VERSIONS = (
    text(
        """
    WITH kept AS (
        SELECT version, count(*) AS threads
        FROM rag_threads, jsonb_each_text(metadata -> 'prompts') AS prompts (type, version) GROUP BY version
    ), shared AS (
        SELECT *, CASE WHEN is_active THEN coalesce(
            weight::float8 / nullif(sum(weight) FILTER (WHERE is_active) OVER (PARTITION BY type), 0), 0
        ) ELSE 0 END AS share FROM lexybrain_prompt_configs
    )
    SELECT name, type, system_instructions, constraints, weight, is_active, share, coalesce(threads, 0) AS threads,
        created_at, updated_at
    FROM shared LEFT JOIN kept ON version = name WHERE (name = :name OR :name IS NULL) AND type = ANY(:types) ORDER BY type, name
    """
    )
    .bindparams(bindparam("name", type_=Text()), bindparam("types", list(TYPES), type_=ARRAY(Text())))
    .columns(constraints=JSONB())
)


class PromptConfigs:
    """Names are unique, and the text of a version never changes: a better one is a new version.

    `check` raises InvalidInput for a version that cannot be used. Everything that takes a name raises NotFound with the
    names there are.

    What takes a principal is for administrators and raises Forbidden for others; it is written down with what it does.
    It is about versions of conversations alone.
    """

    def __init__(self, database: Database, check: Callable[[PromptConfig], object]) -> None:
        self._database, self._check = database, check

    async def seed(self, configs: Sequence[PromptConfig]) -> list[str]:
        """Add those whose names are not there yet, and leave the others as they are; the names of those added.

        A template beside which there are others already is not in use before somebody activates it.
        Safe to repeat, and in several processes at once.
        """
        if not configs:
            return []
        for config in configs:
            self._check(config)
        ordered = sorted(configs, key=lambda each: each.name)  # one order: no deadlock
        async with self._database.session() as session:
            known = set(await session.scalars(select(PromptConfigRow.type).distinct())) & set(template_types())
            values = [_values(replace(each, active=each.active and each.type not in known)) for each in ordered]
            statement = insert(PromptConfigRow).values(values).on_conflict_do_nothing()
            return sorted(await session.scalars(statement.returning(PromptConfigRow.name)))

    async def all(self) -> list[PromptConfig]:
        """By type and name."""
        async with self._database.autocommit() as connection:
            return [PromptConfig(*row) for row in await connection.execute(_ALL)]

    @asynccontextmanager
    async def active(self, scope: Scope) -> AsyncIterator[tuple[AsyncSession, list[PromptConfig]]]:
        """Those of conversations in use, by type and name, in a transaction of the scope: to keep which were chosen.

        Asks the database each time: what is switched off is used no more.
        """
        of_conversations = _ACTIVE.where(PromptConfigRow.type.not_in(template_types()))
        async with self._database.scoped_reading(scope, of_conversations) as (session, rows):
            yield session, [PromptConfig(*row) for row in rows]

    async def draw(self, type: str) -> PromptConfig | None:  # noqa: A002
        """One of those of a type that are in use, by weight; None where none is."""
        async with self._database.autocommit() as connection:
            found = await connection.execute(_ACTIVE.where(PromptConfigRow.type == type))
        return choose([PromptConfig(*row) for row in found], type, uuid4(), None)

    async def get(self, name: str) -> PromptConfig:
        found = {config.name: config for config in await self.all()}
        if name not in found:
            raise NotFound("prompt version", name, found)
        return found[name]

    async def add(self, config: PromptConfig) -> PromptConfig:
        """Raises InvalidInput where it cannot be used, or its name is taken."""
        self._check(config)
        async with self._database.autocommit() as connection:
            return _made(config, (await connection.execute(_insert(config))).one_or_none())

    async def activate(self, name: str) -> PromptConfig:
        """Let new threads get it, beside the other active versions of its type."""
        return await self._set(name, is_active=True)

    async def deactivate(self, name: str) -> PromptConfig:
        """Let no thread get it, not even one that had it."""
        return await self._set(name, is_active=False)

    async def weigh(self, name: str, weight: int) -> PromptConfig:
        """Set its share among the active versions of its type: 0 to 1,000,000, else InvalidInput."""
        _check_weight(weight)
        return await self._set(name, weight=weight)

    async def versions(self, principal: Principal) -> list[PromptVersion]:
        """All of them, by type and name, with who gets them."""
        async with administering(self._database, principal, Act("prompts.list", "all")) as session:
            return await _versions(session)

    async def publish(self, principal: Principal, config: PromptConfig) -> PromptVersion:
        """`add`."""
        self._check(config)
        details = {"type": config.type, "weight": config.weight, "active": config.active}
        async with administering(self._database, principal, Act("prompts.add", config.name, details)) as session:
            _made(config, (await session.execute(_insert(config))).one_or_none())
            return (await _versions(session, config.name))[0]

    async def change(
        self, principal: Principal, name: str, *, active: bool | None = None, weight: int | None = None
    ) -> PromptVersion:
        """`activate` or `deactivate`, `weigh`, or both at once. What is None stays as it is, whoever changes it."""
        acts, values = list[Act](), dict[str, Any]()
        if active is not None:
            acts.append(Act("prompts.activate" if active else "prompts.deactivate", _storable(name)))
            values["is_active"] = active
        if weight is not None:
            _check_weight(weight)
            acts.append(Act("prompts.weigh", _storable(name), {"weight": weight}))
            values["weight"] = weight
        named = (PromptConfigRow.name == _storable(name)) & PromptConfigRow.type.in_(TYPES)
        changed = update(PromptConfigRow).where(named).values(**values)
        async with administering(self._database, principal, *acts) as session:
            found = await session.scalar(changed.returning(PromptConfigRow.name))
            if found is None:
                raise NotFound("prompt version", name, [each.config.name for each in await _versions(session)])
            return (await _versions(session, found))[0]

    async def _set(self, name: str, **values: Any) -> PromptConfig:
        changed = update(PromptConfigRow).where(PromptConfigRow.name == _storable(name)).values(**values)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(changed.returning(*_COLUMNS))).one_or_none()
        if row is None:
            raise NotFound("prompt version", name, [config.name for config in await self.all()])
        return PromptConfig(*row)


def _values(config: PromptConfig) -> dict[str, Any]:
    return {
        "name": config.name,
        "type": config.type,
        "system_instructions": config.instructions,
        "constraints": dict(config.constraints),
        "weight": config.weight,
        "is_active": config.active,
    }


def _insert(config: PromptConfig) -> ReturningInsert[Any]:
    return insert(PromptConfigRow).values(_values(config)).on_conflict_do_nothing().returning(*_COLUMNS)


def _made(config: PromptConfig, row: Row[Any] | None) -> PromptConfig:
    if row is None:
        raise InvalidInput("name", config.name, f"{config.name!r} is taken: a version never changes, add a new one")
    return PromptConfig(*row)


async def _versions(session: AsyncSession, name: str | None = None) -> list[PromptVersion]:
    rows = await session.execute(_VERSIONS, {"name": name})
    return [PromptVersion(PromptConfig(*row[:6]), *row[6:]) for row in rows]


def _check_weight(weight: int) -> None:
    if not 0 <= weight <= BIGGEST_WEIGHT:
        raise InvalidInput("weight", weight, f"must be a whole number between 0 and {BIGGEST_WEIGHT}")


def _storable(name: str) -> str:
    """Another name that nothing has, for one that PostgreSQL cannot be asked for."""
    return name.encode("utf-8", "replace").decode().replace("\0", "?")
