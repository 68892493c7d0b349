"""API keys: each acts as a service user of one organization."""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid4

from msgspec import convert
from sqlalchemy import ColumnElement, false, func, insert, select

from rag_app.access.people import Organization, uuid_in
from rag_app.access.tables import ApiKeyRow, MembershipRow, UserRow
from rag_app.database.session import Database
from rag_app.domain.errors import InvalidInput, NotFound, Unauthenticated
from rag_app.domain.scope import Principal

PREFIX = "rag_"
"""What API keys begin with, and tokens never do. Lets scanners for leaked secrets know one."""
_BYTES = 32
_BEGINNING = 12  # characters
_KEY = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")
_A_BEGINNING = re.compile(PREFIX + "[A-Za-z0-9_-]{1,8}")  # of no characters it would be that of any key

_PRINCIPAL = """
    WITH used AS (
        UPDATE api_keys SET last_used_at = now()
        WHERE id = (
            SELECT id FROM api_keys
            WHERE digest = $1 AND revoked_at IS NULL
                AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
            FOR UPDATE SKIP LOCKED
        )
    )
    SELECT id, user_id, org_id, indexes FROM api_keys WHERE digest = $1 AND revoked_at IS NULL
    """
# skip locked: of many requests at once one writes the time down, and none waits for it


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key: all but the key. `beginning` is its first 12 characters; `indexes` None is all of them."""

    id: UUID
    name: str
    beginning: str
    organization: Organization
    indexes: tuple[str, ...] | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class Keys:
    """Keys are `rag_` and 43 characters that hold 256 random bits; the database holds the SHA-256 of each.

    No salt and no slow hash, as passwords need: nobody can try 2^256 keys, however fast, nor list them beforehand. And
    a key is found by its digest in an index: what the time of that tells about digests does not help to make a key.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, organization: Organization, name: str, indexes: Sequence[str] | None = None
    ) -> tuple[ApiKey, str]:
        """A key for these indexes, or for all, and the secret: nobody can show it again.

        It acts as a user of its own, named `key:<id>`, a member of that organization alone. `name` is for people and
        need not be unique. Raises InvalidInput for one that is empty or cannot be printed.
        """
        if not name.strip() or not name.isprintable():
            raise InvalidInput("name", name, "must be a printable text, not empty")
        secret = PREFIX + secrets.token_urlsafe(_BYTES)
        key_id, user_id = uuid4(), uuid4()
        async with self._database.session() as session:
            await session.execute(insert(UserRow).values(id=user_id, name=f"key:{key_id}"))
            await session.execute(insert(MembershipRow).values(user_id=user_id, org_id=organization.id))
            await session.execute(
                insert(ApiKeyRow).values(
                    id=key_id,
                    name=name.strip(),
                    digest=_digest(secret),
                    beginning=secret[:_BEGINNING],
                    user_id=user_id,
                    org_id=organization.id,
                    indexes=None if indexes is None else list(dict.fromkeys(indexes)),
                )
            )
            return _api_key(await session.get_one(ApiKeyRow, key_id)), secret

    async def list(self, organization: Organization | None = None) -> list[ApiKey]:
        """All keys, or those of one organization, revoked ones included; oldest first."""
        keys = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        if organization is not None:
            keys = keys.where(ApiKeyRow.org_id == organization.id)
        async with self._database.session() as session:
            return [_api_key(row) for row in await session.scalars(keys)]

    async def revoke(self, key: str) -> ApiKey:
        """Refuse a key from now on, in every process: given by its id, by how it begins, or as it is.

        Once is enough: a second time changes nothing. Raises NotFound, and InvalidInput where several begin like that.
        """
        shown = key[:_BEGINNING]  # an error must not show more of a key than a list does
        async with self._database.session() as session:
            found = (await session.scalars(select(ApiKeyRow).where(_named(key)))).all()
            if not found:
                raise NotFound("key", key if uuid_in(key) else shown)
            if len(found) > 1:
                raise InvalidInput("key", shown, f"{len(found)} keys begin with {shown!r}: give the id of one")
            row = found[0]
            row.revoked_at = func.coalesce(ApiKeyRow.revoked_at, func.now())
            await session.flush()
            await session.refresh(row)
            return _api_key(row)

    async def principal(self, key: str) -> Principal:
        """The service user of a key. Raises Unauthenticated for one that is unknown or revoked, and tells not which.

        Asks the database each time, once: what is revoked is refused at once. When a key was last used is written down
        at most once a minute.
        """
        rows = await self._database.fetch(_PRINCIPAL, _digest(key)) if _KEY.fullmatch(key) else []
        if not rows:
            raise Unauthenticated("The API key is not valid")
        key_id, user_id, org_id, indexes = rows[0]
        return Principal(f"key:{key_id}", user_id, frozenset({org_id}), None if indexes is None else frozenset(indexes))


def _named(key: str) -> ColumnElement[bool]:
    if key_id := uuid_in(key):
        return ApiKeyRow.id == key_id
    if _KEY.fullmatch(key):
        return ApiKeyRow.digest == _digest(key)
    if _A_BEGINNING.fullmatch(key):
        return func.starts_with(ApiKeyRow.beginning, key)
    return false()


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def _api_key(row: ApiKeyRow) -> ApiKey:
    return convert(row, ApiKey, from_attributes=True)
