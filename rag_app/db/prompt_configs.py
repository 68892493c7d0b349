"""Versions of what a model is told about its role: which there are, and which are in use."""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert

from rag_app.db.models import PromptConfigRow
from rag_app.db.session import Database
from rag_app.domain.conversation import PromptConfig
from rag_app.domain.errors import InvalidInput, NotFound

_BIGGEST_WEIGHT = 1_000_000
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


class PromptConfigs:
    """Names are unique, and the text of a version never changes: a better one is a new version.

    `check` raises InvalidInput for a version that cannot be used. Everything that takes a name raises NotFound with the
    names there are.
    """

    def __init__(self, database: Database, check: Callable[[PromptConfig], object]) -> None:
        self._database, self._check = database, check

    async def seed(self, configs: Sequence[PromptConfig]) -> list[str]:
        """Add those whose names are not there yet, and leave the others as they are; the names of those added.

        Safe to repeat, and in several processes at once.
        """
        if not configs:
            return []
        for config in configs:
            self._check(config)
        values = [_values(config) for config in sorted(configs, key=lambda each: each.name)]  # one order: no deadlock
        statement = insert(PromptConfigRow).values(values).on_conflict_do_nothing().returning(PromptConfigRow.name)
        async with self._database.session() as session:
            return sorted(await session.scalars(statement))

    async def all(self) -> list[PromptConfig]:
        """By type and name."""
        async with self._database.autocommit() as connection:
            return [PromptConfig(*row) for row in await connection.execute(_ALL)]

    async def active(self) -> list[PromptConfig]:
        """Those in use, by type and name. Asks the database each time: what is switched off is used no more."""
        async with self._database.autocommit() as connection:
            return [PromptConfig(*row) for row in await connection.execute(_ACTIVE)]

    async def get(self, name: str) -> PromptConfig:
        configs = await self.all()
        for config in configs:
            if config.name == name:
                return config
        raise NotFound("prompt version", name, [config.name for config in configs])

    async def add(self, config: PromptConfig) -> PromptConfig:
        """Raises InvalidInput where it cannot be used, or its name is taken."""
        self._check(config)
        statement = insert(PromptConfigRow).values(_values(config)).on_conflict_do_nothing().returning(*_COLUMNS)
        async with self._database.autocommit() as connection:
            made = (await connection.execute(statement)).one_or_none()
        if made is None:
            raise InvalidInput("name", config.name, f"{config.name!r} is taken: a version never changes, add a new one")
        return PromptConfig(*made)

    async def activate(self, name: str) -> PromptConfig:
        """Let new threads get it, beside the other active versions of its type."""
        return await self._set(name, is_active=True)

    async def deactivate(self, name: str) -> PromptConfig:
        """Let no thread get it, not even one that had it."""
        return await self._set(name, is_active=False)

    async def weigh(self, name: str, weight: int) -> PromptConfig:
        """Set its share among the active versions of its type: 0 to 1,000,000, else InvalidInput."""
        if not 0 <= weight <= _BIGGEST_WEIGHT:
            raise InvalidInput("weight", weight, f"must be a whole number between 0 and {_BIGGEST_WEIGHT}")
        return await self._set(name, weight=weight)

    async def _set(self, name: str, **values: Any) -> PromptConfig:
        row = None
        if "\0" not in name:  # which PostgreSQL cannot be asked for
            changed = update(PromptConfigRow).where(PromptConfigRow.name == name).values(**values).returning(*_COLUMNS)
            async with self._database.autocommit() as connection:
                row = (await connection.execute(changed)).one_or_none()
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
