"""Rights of a member or a key on an organization's sources in an index, and groups of its members.

    read    search and read: every member, and every key for its indexes
    write   upload, replace, change and delete single sources
    admin   delete everything that the organization has in the index

An administrator (`rag-app users set-role`) is `admin` in each index of their organizations. A role holds in one index,
or in every one (`*`); the higher one counts.

A source of visibility "group" refers to an audience, a set of groups, and is visible to members of any of them. A
principal carries the audiences of their groups, so a row needs one id for any number of groups.
"""

from collections.abc import Sequence
from enum import StrEnum
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, exists, literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError

from rag_app.access.people import Organization, User, checked_name, find_named, insert_named
from rag_app.access.tables import (
    audience_groups_table,
    audiences_table,
    group_members_table,
    groups_table,
    index_roles_table,
    memberships_table,
    organizations_table,
    users_table,
)
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, Forbidden, InvalidInput, Principal, Scope, audience_id, require

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


class Group(Struct, frozen=True):
    id: UUID
    org_id: UUID
    slug: str
    name: str


class GroupDirectory(Struct, frozen=True):
    """Slugs are unique in an organization and compared exactly; wherever one is accepted, so is the id as text."""

    _database: Database

    async def create(self, organization: Organization, slug: str, name: str | None = None) -> Group:
        """Raises InvalidInput if the slug is taken, empty, contains "/" or looks like an id, and for the public organization."""
        if organization.id == PUBLIC_ORGANIZATION:
            raise InvalidInput(
                "organization",
                organization.slug,
                "the public organization cannot have groups, because everybody sees its sources",
            )
        if "/" in slug or not slug.isprintable():
            raise InvalidInput("slug", slug, "must be printable text without a /")
        async with self._database.session() as session:
            return await insert_named(
                session, groups_table, Group, slug=checked_name("slug", slug), name=name or slug, org_id=organization.id
            )

    async def find(self, organization: Organization, slug: str) -> Group:
        """Raises NotFound, which names the groups of the organization."""
        ours = groups_table.c.org_id == organization.id
        known = select(groups_table.c.slug).where(ours).order_by(groups_table.c.slug)
        return await find_named(self._database, groups_table, Group, slug, ours, known=known)

    async def list(self, organization: Organization) -> list[tuple[Group, tuple[str, ...]]]:
        """The groups by slug, each with the names of the members that an administrator has added."""
        members = (
            select(groups_table, users_table.c.name.label("member"))
            .outerjoin(group_members_table, group_members_table.c.group_id == groups_table.c.id)
            .outerjoin(users_table, users_table.c.id == group_members_table.c.user_id)
            .where(groups_table.c.org_id == organization.id)
            .order_by(groups_table.c.slug, users_table.c.name)
        )
        names: dict[Group, list[str]] = {}
        for row in await self._database.execute(members):
            group = Group(row.id, row.org_id, row.slug, row.name)
            names.setdefault(group, []).extend([] if row.member is None else [row.member])
        return [(group, tuple(found)) for group, found in names.items()]

    async def list_for_member(self, user_id: UUID) -> Sequence[Group]:
        """The groups that an administrator has added the user to, in all organizations, by slug."""
        joined = (
            select(groups_table)
            .join(group_members_table, group_members_table.c.group_id == groups_table.c.id)
            .where(group_members_table.c.user_id == user_id)
            .order_by(groups_table.c.slug)
        )
        return [Group(row.id, row.org_id, row.slug, row.name) for row in await self._database.execute(joined)]

    async def delete(self, group: Group) -> None:
        """Delete the group. Sources that name only this group are visible to nobody until they name another one."""
        await self._database.execute(delete(groups_table).where(groups_table.c.id == group.id))

    async def add_member(self, group: Group, user: User) -> None:
        """Idempotent. Raises InvalidInput for a user who is not a member of the organization."""
        membership = select(memberships_table).where(
            memberships_table.c.user_id == user.id, memberships_table.c.org_id == group.org_id
        )
        row = {"group_id": group.id, "user_id": user.id, "org_id": group.org_id}
        async with self._database.session() as session:
            require(
                await session.scalar(membership.with_for_update(key_share=True)),
                InvalidInput("user", user.name, f"{user.name} is not a member of the organization of {group.slug}"),
            )
            await session.execute(insert(group_members_table).values(row).on_conflict_do_nothing())

    async def remove_member(self, group: Group, user: User) -> None:
        """Takes effect with the next request. Only the identity provider can remove a group named in the user's token."""
        member = group_members_table.c.group_id == group.id, group_members_table.c.user_id == user.id
        await self._database.execute(delete(group_members_table).where(*member))

    async def audience(self, organization: Organization, slugs: Sequence[str]) -> UUID:
        """The audience of these groups. Raises NotFound for an unknown group, InvalidInput for an empty list."""
        if not slugs:
            raise InvalidInput("groups", None, "must name at least one group")
        groups = sorted({(await self.find(organization, slug)).id for slug in slugs})
        made = audience_id(organization.id, groups)
        rows = [{"audience_id": made, "group_id": group, "org_id": organization.id} for group in groups]
        async with self._database.session() as session:
            await session.execute(
                insert(audiences_table).values(id=made, org_id=organization.id).on_conflict_do_nothing()
            )
            await session.execute(insert(audience_groups_table).values(rows).on_conflict_do_nothing())
        return made

    async def audiences(self, organization: Organization, user: User) -> frozenset[UUID]:
        """The user's audiences, from the groups that an administrator has added them to."""
        theirs = (
            select(audience_groups_table.c.audience_id)
            .join(group_members_table, group_members_table.c.group_id == audience_groups_table.c.group_id)
            .where(group_members_table.c.user_id == user.id, audience_groups_table.c.org_id == organization.id)
        )
        return frozenset(found for (found,) in await self._database.execute(theirs))
