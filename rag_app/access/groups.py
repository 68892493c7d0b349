"""Groups of an organization's members, and the audiences that may see a source.

A source of visibility "group" refers to an audience, a set of groups, and is visible to members of any of them. A
principal carries the audiences of their groups, so a row needs one id for any number of groups.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from rag_app.access.people import Organization, User, checked_name, find_named, insert_named
from rag_app.access.tables import (
    audience_groups_table,
    audiences_table,
    group_members_table,
    groups_table,
    memberships_table,
    users_table,
)
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, InvalidInput, audience_id, require


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
