"""Groups of an organization's members: who is in one, and which of them see a source together.

A source of visibility "group" names an audience, a set of groups. Whoever is in one of them sees it. A principal brings
the audiences that their groups are in, so a row needs to name one id however many groups it is for.
"""

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert

from rag_app.access.people import Organization, User, checked_name, find_named, insert_named
from rag_app.access.tables import AudienceGroupRow, AudienceRow, GroupMemberRow, GroupRow, MembershipRow, UserRow
from rag_app.database.session import Database
from rag_app.domain import PUBLIC_ORGANIZATION, InvalidInput, audience_id, frozen


@frozen
class Group:
    id: UUID
    org_id: UUID
    slug: str
    name: str


class Groups:
    """Slugs are unique in an organization and compared to the letter; wherever one is accepted, so is the id as text."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, organization: Organization, slug: str, name: str | None = None) -> Group:
        """Raises InvalidInput where the slug is taken, empty, has a "/" or looks like an id; for the public organization."""
        if organization.id == PUBLIC_ORGANIZATION:
            raise InvalidInput(
                "organization",
                organization.slug,
                "the public organization cannot have groups, because everybody sees its sources",
            )
        if "/" in slug or not slug.isprintable():
            raise InvalidInput("slug", slug, "must be printable text without a /")
        async with self._database.session() as session:
            row = {"slug": checked_name("slug", slug), "name": name or slug, "org_id": organization.id}
            return await insert_named(session, GroupRow, Group, **row)

    async def find(self, organization: Organization, slug: str) -> Group:
        """Raises NotFound, which names the groups of the organization."""
        ours = GroupRow.org_id == organization.id
        async with self._database.session() as session:
            known = select(GroupRow.slug).where(ours).order_by(GroupRow.slug)
            return await find_named(session, GroupRow, Group, slug, ours, known=known)

    async def list(self, organization: Organization) -> list[tuple[Group, tuple[str, ...]]]:
        """By slug, each with the names of those whom an administrator has put into it."""
        members = (
            select(GroupRow, UserRow.name)
            .outerjoin(GroupMemberRow, GroupMemberRow.group_id == GroupRow.id)
            .outerjoin(UserRow, UserRow.id == GroupMemberRow.user_id)
            .where(GroupRow.org_id == organization.id)
            .order_by(GroupRow.slug, UserRow.name)
        )
        names: dict[Group, list[str]] = {}
        async with self._database.session() as session:
            for row, name in await session.execute(members):
                group = Group(row.id, row.org_id, row.slug, row.name)
                names.setdefault(group, []).extend([] if name is None else [name])
        return [(group, tuple(found)) for group, found in names.items()]

    async def delete(self, group: Group) -> None:
        """Nobody is in it any longer, and sources that name it alone are seen by nobody until they name another one."""
        async with self._database.session() as session:
            await session.execute(delete(GroupRow).where(GroupRow.id == group.id))

    async def add_member(self, group: Group, user: User) -> None:
        """Once is enough. Raises InvalidInput for a user who is no member of the organization."""
        membership = select(MembershipRow).where(MembershipRow.user_id == user.id, MembershipRow.org_id == group.org_id)
        row = {"group_id": group.id, "user_id": user.id, "org_id": group.org_id}
        async with self._database.session() as session:
            if await session.scalar(membership.with_for_update(key_share=True)) is None:
                raise InvalidInput(
                    "user", user.name, f"{user.name} is not a member of the organization of {group.slug}"
                )
            await session.execute(insert(GroupMemberRow).values(row).on_conflict_do_nothing())

    async def remove_member(self, group: Group, user: User) -> None:
        """From the next request on. A group that the user's token names is the identity provider's to take away."""
        member = GroupMemberRow.group_id == group.id, GroupMemberRow.user_id == user.id
        async with self._database.session() as session:
            await session.execute(delete(GroupMemberRow).where(*member))

    async def audience(self, organization: Organization, slugs: Sequence[str]) -> UUID:
        """What a source of these groups names. Raises NotFound for a group that there is not, InvalidInput for none."""
        if not slugs:
            raise InvalidInput("groups", None, "must name at least one group")
        groups = sorted({(await self.find(organization, slug)).id for slug in slugs})
        made = audience_id(organization.id, groups)
        rows = [{"audience_id": made, "group_id": group, "org_id": organization.id} for group in groups]
        async with self._database.session() as session:
            await session.execute(insert(AudienceRow).values(id=made, org_id=organization.id).on_conflict_do_nothing())
            await session.execute(insert(AudienceGroupRow).values(rows).on_conflict_do_nothing())
        return made

    async def audiences(self, organization: Organization, user: User) -> frozenset[UUID]:
        """Those that the user sees by the groups an administrator has put them into."""
        theirs = (
            select(AudienceGroupRow.audience_id)
            .join(GroupMemberRow, GroupMemberRow.group_id == AudienceGroupRow.group_id)
            .where(GroupMemberRow.user_id == user.id, AudienceGroupRow.org_id == organization.id)
        )
        async with self._database.session() as session:
            return frozenset(await session.scalars(theirs))
