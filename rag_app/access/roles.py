"""Rights of a member or a key on an organization's sources in an index.

    read    search and read: every member, and every key for its indexes
    write   upload, replace, change and delete single sources
    admin   delete everything that the organization has in the index

An administrator (`rag-app users set-role`) is `admin` in each index of their organizations. A role holds in one index,
or in every one (`*`); the higher one counts.
"""

from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, exists, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from rag_app.access.tables import index_roles_table, organizations_table, users_table
from rag_app.database.session import Database
from rag_app.domain import Forbidden, InvalidInput, Principal, Scope

EVERY_INDEX = "*"


class Role(StrEnum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return [*Role].index(self)


class RoleDirectory(Struct, frozen=True):
    """Roles, granted by operators and checked before each write."""

    _database: Database

    async def role(self, principal: Principal, org_id: UUID, index: str) -> Role | None:
        """The role; None if the organization is not the principal's, or the key is not for this index."""
        if org_id not in principal.organizations:
            return None
        if principal.indexes is not None and index not in principal.indexes:
            return None
        if principal.user is None:
            return Role.READ
        granted = select(index_roles_table.c.role).where(
            index_roles_table.c.org_id == org_id,
            index_roles_table.c.user_id == principal.user,
            index_roles_table.c.index_name.in_([index, EVERY_INDEX]),
        )
        administers = select(users_table.c.role).where(
            users_table.c.id == principal.user, users_table.c.role == "admin"
        )
        rows = await self._database.read(Scope(frozenset({org_id}), principal.user), granted.union_all(administers))
        return max([Role.READ, *(Role(role) for (role,) in rows)], key=lambda each: each.rank)

    async def writable(self, principal: Principal) -> set[tuple[UUID, str]]:
        """The organizations of the principal with the indexes (`*`: every one) that they may write to."""
        writes = select(index_roles_table.c.org_id, index_roles_table.c.index_name).where(
            index_roles_table.c.user_id == principal.user, index_roles_table.c.role != Role.READ
        )
        administers = select(organizations_table.c.id, literal(EVERY_INDEX)).where(
            organizations_table.c.id.in_(principal.organizations),
            exists().where(users_table.c.id == principal.user, users_table.c.role == "admin"),
        )
        rows = await self._database.read(principal.scope(), writes.union_all(administers))
        return {(org_id, name) for org_id, name in rows}

    async def require(self, wanted: Role, principal: Principal, org_id: UUID, index: str) -> None:
        """Raises Forbidden, with the command that grants the role."""
        role = await self.role(principal, org_id, index)
        if role is None or role.rank < wanted.rank:
            raise Forbidden(
                f"This requires the role {wanted} in {index}, and you have {role or 'none'}."
                " An operator can grant it with `rag-app grant`"
            )

    async def grant(self, org_id: UUID, user: UUID, role: Role | None, index: str = EVERY_INDEX) -> None:
        """Grant a member or a key's service user this role, replacing another one; None revokes it.

        Raises InvalidInput for a non-member of the organization.
        """
        key = {"org_id": org_id, "user_id": user, "index_name": index}
        statement = (
            insert(index_roles_table)
            .values(**key, role=role)
            .on_conflict_do_update(index_elements=[*key], set_={"role": role})
        )
        try:
            async with self._database.scoped(Scope(frozenset({org_id}), user)) as session:
                await session.execute(statement if role else delete(index_roles_table).filter_by(**key))
        except IntegrityError:
            raise InvalidInput("user", str(user), "is not a member of the organization") from None
