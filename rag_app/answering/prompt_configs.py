"""Versions of what a model is told about its role: which there are, and which are in use."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

from msgspec.structs import asdict, fields, replace
from sqlalchemy import bindparam, select, text, update
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import Text

from rag_app.access.audit import Act, audited_session
from rag_app.answering.prompts import (
    PromptConfig,
    PromptVersion,
    Weight,
    check,
    check_value,
    choose,
    conversation_types,
    shares,
    template_types,
)
from rag_app.answering.tables import prompt_configs_table
from rag_app.database.session import Database
from rag_app.domain import InvalidInput, NotFound, Principal, Scope, require, storable

_ALL = select(*(prompt_configs_table.c[each.name] for each in fields(PromptConfig))).order_by(
    prompt_configs_table.c.type, prompt_configs_table.c.name
)
_ACTIVE = _ALL.where(prompt_configs_table.c.active)
_VERSIONS = (
    text(
        """
    WITH kept AS (
        SELECT version, count(*) AS threads
        FROM rag_threads, jsonb_each_text(metadata -> 'prompts') AS prompts (type, version) GROUP BY version
    )
    SELECT name, type, system_instructions, constraints, weight, is_active, coalesce(threads, 0) AS threads,
        created_at, updated_at
    FROM lexybrain_prompt_configs LEFT JOIN kept ON version = name WHERE type = ANY(:types) ORDER BY type, name
    """
    )
    .bindparams(bindparam("types", type_=ARRAY(Text())))
    .columns(constraints=JSONB())
)


class PromptRegistry:
    """Names are unique, and the text of a version never changes: a better one is a new version.

    InvalidInput is raised for a version that cannot be used. Everything that takes a name raises NotFound with the
    names there are.

    What takes a principal is for administrators and raises Forbidden for others; it is written down with what it does,
    and is about versions of conversations alone. None is the operator, for whom no threads are counted.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def seed(self, configs: Sequence[PromptConfig]) -> list[str]:
        """Add those whose names are not there yet, and leave the others as they are; the names of those added.

        A template beside which there are others already is not in use before somebody activates it.
        Safe to repeat, and in several processes at once.
        """
        if not configs:
            return []
        for config in configs:
            check(config)
        ordered = sorted(configs, key=lambda each: each.name)  # one order: no deadlock
        async with self._database.session() as session:
            known = set(await session.scalars(select(prompt_configs_table.c.type).distinct())) & set(template_types())
            values = [asdict(replace(each, active=each.active and each.type not in known)) for each in ordered]
            statement = insert(prompt_configs_table).values(values).on_conflict_do_nothing()
            return sorted(await session.scalars(statement.returning(prompt_configs_table.c.name)))

    async def all(self) -> list[PromptConfig]:
        """By type and name."""
        return [PromptConfig(*row) for row in await self._database.execute(_ALL)]

    @asynccontextmanager
    async def active(self, scope: Scope) -> AsyncIterator[tuple[AsyncConnection, list[PromptConfig]]]:
        """Those of conversations in use, by type and name, in a transaction of the scope: to keep which were chosen.

        Asks the database each time: what is switched off is used no more.
        """
        of_conversations = _ACTIVE.where(prompt_configs_table.c.type.not_in(template_types()))
        async with self._database.scoped_reading(scope, of_conversations) as (session, rows):
            yield session, [PromptConfig(*row) for row in rows]

    async def draw(self, type: str) -> PromptConfig | None:  # noqa: A002
        """One of those of a type that are in use, by weight; None where none is."""
        found = await self._database.execute(_ACTIVE.where(prompt_configs_table.c.type == type))
        return choose([PromptConfig(*row) for row in found], type, uuid4(), None)

    async def get(self, name: str) -> PromptConfig:
        found = {config.name: config for config in await self.all()}
        return require(found.get(name), NotFound("prompt version", name, found))

    async def versions(self, principal: Principal) -> list[PromptVersion]:
        """All of them, by type and name, with who gets them."""
        async with audited_session(self._database, principal, Act("prompts.list", "all")) as session:
            return [*(await _versions(session, principal)).values()]

    async def publish(self, principal: Principal | None, config: PromptConfig) -> PromptVersion:
        """Add a version. Raises InvalidInput where it cannot be used, or its name is taken."""
        check(config)
        details = {"type": config.type, "weight": config.weight, "active": config.active}
        statement = insert(prompt_configs_table).values(asdict(config)).on_conflict_do_nothing()
        async with audited_session(self._database, principal, Act("prompts.add", config.name, details)) as session:
            if await session.scalar(statement.returning(prompt_configs_table.c.name)) is None:
                problem = f"{config.name!r} already exists. A version cannot be changed; add one with another name"
                raise InvalidInput("name", config.name, problem)
            return (await _versions(session, principal))[config.name]

    async def change(
        self, principal: Principal | None, name: str, *, active: bool | None = None, weight: int | None = None
    ) -> PromptVersion:
        """Use a version or use it no more, and set its share of its type: 0 to 1,000,000. What is None stays as it is.

        A version that is active is for new threads, beside the others of its type; one that is not is for no thread,
        not even one that had it.
        """
        if name != storable(name):
            raise NotFound("prompt version", name, [config.name for config in await self.all()])
        acts, values = list[Act](), dict[str, int]()
        if active is not None:
            values["active"] = active
            acts.append(Act("prompts.activate" if active else "prompts.deactivate", name))
        if weight is not None:
            check_value("weight", weight, Weight)
            values["weight"] = weight
            acts.append(Act("prompts.weigh", name, {"weight": weight}))
        async with audited_session(self._database, principal, *acts) as session:
            known = await _versions(session, principal)
            if name not in known:
                raise NotFound("prompt version", name, known)
            await session.execute(
                update(prompt_configs_table).where(prompt_configs_table.c.name == name).values(values)
            )
            return (await _versions(session, principal))[name]


async def _versions(session: AsyncConnection, principal: Principal | None) -> dict[str, PromptVersion]:
    types = conversation_types() if principal else (*conversation_types(), *template_types())
    found = {row.name: row for row in await session.execute(_VERSIONS, {"types": types})}
    configs = {name: PromptConfig(*row[:6]) for name, row in found.items()}
    share = shares([*configs.values()])
    return {name: PromptVersion(configs[name], share[name], *row[6:]) for name, row in found.items()}
