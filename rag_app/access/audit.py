"""Transactions of administrators, with their audit events."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import insert, text
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.tables import audit_events_table
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, Forbidden, Principal, Scope, storable

EVERYBODY = "everybody"
"""The subject of acts that concern all users."""

# Whatever role its service user has been given: a key is for programs, and somebody else's users speak through it.
# Locked: what is read under a role that is being taken away would be nothing, and told as if that were all.
_MAY = text(
    "SELECT NOT EXISTS (SELECT FROM api_keys WHERE user_id = rag_user())"
    " FROM users WHERE id = rag_user() AND role = 'admin' FOR SHARE"
)


ADMINISTRATORS_ONLY = "Only a signed-in administrator may do this; an API key may not"


class Act(Struct, frozen=True):
    """`details` are the request's parameters, without any user's text."""

    name: str
    subject: str
    details: Mapping[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def administrator_session(database: Database, principal: Principal, *acts: Act) -> AsyncIterator[AsyncConnection]:
    """One transaction that may read all users' rows and records these acts: both, or neither.

    Raises Forbidden for API keys and if PostgreSQL finds that the user is no administrator now.
    """
    async with database.scoped(principal.scope(), administrator=True) as session:
        if not await may_administer(session):
            raise Forbidden(ADMINISTRATORS_ONLY)
        await write_down(session, principal.user, *acts)
        yield session


async def record(database: Database, principal: Principal, *acts: Act) -> None:
    """`administrator_session` of what is read elsewhere. Raises Forbidden, too."""
    async with administrator_session(database, principal, *acts):
        pass


def audited_session(
    database: Database, principal: Principal | None, *acts: Act
) -> AbstractAsyncContextManager[AsyncConnection]:
    """`administrator_session` for a principal. For the operator (None) a plain transaction, because commands are not audited."""
    if principal is None:
        return database.scoped(Scope(frozenset({PUBLIC_ORGANIZATION})))
    return administrator_session(database, principal, *acts)


async def write_down(session: AsyncConnection, actor: UUID | None, *acts: Act) -> None:
    """Record an act in the transaction that performs it."""
    for act in acts:
        await session.execute(
            # inline: its id would be read, which users may not
            insert(audit_events_table)
            .inline()
            .values(actor_id=actor, action=act.name, subject=storable(act.subject), details=dict(act.details))
        )


async def may_administer(session: AsyncConnection) -> bool:
    """Whether the session's user is an administrator, signed in as a person; it stays so until the transaction ends."""
    return bool(await session.scalar(_MAY))
