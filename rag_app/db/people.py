"""Who there is: organizations, their sites, users and who belongs where."""

from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from rag_app.db.models import Base, MembershipRow, OrganizationRow, SiteRow, UserRow
from rag_app.db.session import Database
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.scope import Principal

Row = TypeVar("Row", bound=Base)


@dataclass(frozen=True, slots=True)
class Organization:
    id: UUID
    slug: str
    name: str


@dataclass(frozen=True, slots=True)
class Site:
    id: UUID
    org_id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class User:
    """`id` is the `sub` of the user's tokens, unless an identity provider calls the user something else."""

    id: UUID
    name: str


class People:
    """Names and slugs are unique and compared to the letter; wherever a name is accepted, so is the id as text.

    What makes something new raises InvalidInput when the name is taken, empty, or looks like an id.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_organization(self, slug: str, name: str) -> Organization:
        async with self._database.session() as session:
            made = await _insert(session, OrganizationRow, "slug", slug=_name("slug", slug), name=name)
        return Organization(made.id, made.slug, made.name)

    async def organizations(self) -> list[Organization]:
        """All of them, the public one included, by slug."""
        async with self._database.session() as session:
            rows = await session.scalars(select(OrganizationRow).order_by(OrganizationRow.slug))
            return [Organization(row.id, row.slug, row.name) for row in rows]

    async def organization(self, slug: str | UUID) -> Organization:
        """For the operator: NotFound names the slugs there are."""
        async with self._database.session() as session:
            row = await _find(session, OrganizationRow, "slug", slug)
            if row is None:
                raise NotFound("organization", str(slug), await session.scalars(select(OrganizationRow.slug)))
        return Organization(row.id, row.slug, row.name)

    async def create_user(self, name: str) -> User:
        async with self._database.session() as session:
            made = await _insert(session, UserRow, "name", name=_name("name", name))
        return User(made.id, made.name)

    async def user(self, name: str | UUID) -> User:
        """Raises NotFound, which tells no other names."""
        async with self._database.session() as session:
            row = await _find(session, UserRow, "name", name)
        if row is None:
            raise NotFound("user", str(name))
        return User(row.id, row.name)

    async def know_as(self, user: User, subject: str) -> None:
        """Let tokens whose `sub` is this stand for the user: what an identity provider calls them.

        Raises InvalidInput where it stands for another user already.
        """
        if not subject.strip() or not subject.isprintable():
            raise InvalidInput("subject", subject, "must be the `sub` of the user's tokens")
        async with self._database.session() as session:
            others = select(UserRow.id).where(_called(subject), UserRow.id != user.id)
            if (await session.scalars(others)).first() is not None:
                raise InvalidInput("subject", subject, f"{subject!r} is another user")
            await session.execute(update(UserRow).where(UserRow.id == user.id).values(subject=subject))

    async def add_member(self, organization: Organization, user: User) -> None:
        """Once is enough: a second time changes nothing."""
        async with self._database.session() as session:
            await session.execute(
                insert(MembershipRow).values(user_id=user.id, org_id=organization.id).on_conflict_do_nothing()
            )

    async def create_site(self, org_id: UUID, name: str) -> Site:
        async with self._database.session() as session:
            made = await _insert(session, SiteRow, "name", org_id=org_id, name=_name("name", name))
        return Site(made.id, made.org_id, made.name)

    async def site(self, org_id: UUID, name: str | UUID) -> Site:
        """A site of this organization. NotFound does not say whether another one has it."""
        async with self._database.session() as session:
            row = await _find(session, SiteRow, "name", name, SiteRow.org_id == org_id)
        if row is None:
            raise NotFound("site", str(name))
        return Site(row.id, row.org_id, row.name)

    async def principal(self, subject: str) -> Principal:
        """Whom a token's `sub` stands for. Unknown to us, it is nobody in particular: the public organization only."""
        if not subject.isprintable():  # nor can PostgreSQL be asked for a NUL
            return Principal(subject)
        async with self._database.session() as session:
            rows = await session.execute(
                select(UserRow.id, MembershipRow.org_id)
                .outerjoin(MembershipRow, MembershipRow.user_id == UserRow.id)
                .where(_called(subject))
                .order_by((UserRow.subject == subject).desc().nulls_last())
            )
            found = rows.all()
        if not found:
            return Principal(subject)
        user = found[0][0]
        return Principal(
            subject, user, frozenset(org_id for each, org_id in found if each == user and org_id is not None)
        )

    async def member_of(self, organization: str) -> Principal:
        """Somebody without a name, who sees what all members of an organization see. Raises NotFound."""
        found = await self.organization(organization)
        return Principal(f"member of {found.slug}", None, frozenset({found.id}))


def _called(subject: str) -> ColumnElement[bool]:
    """The user of a token's `sub`: at most one, `know_as` sees to that."""
    user_id = _uuid(subject)
    known = UserRow.subject == subject
    return known if user_id is None else or_(known, UserRow.id == user_id)


async def _insert(session: AsyncSession, table: type[Row], key: str, **values: Any) -> Row:
    statement = insert(table).values(id=uuid4(), **values).on_conflict_do_nothing().returning(table)
    made = (await session.scalars(statement)).one_or_none()
    if made is None:
        raise InvalidInput(key, values[key], f"{values[key]!r} is taken")
    return made


async def _find(session: AsyncSession, table: type[Row], key: str, name: str | UUID, *where: Any) -> Row | None:
    columns = table.__table__.c
    found = name if isinstance(name, UUID) else _uuid(name)
    this = columns[key] == name if found is None else columns["id"] == found
    row: Row | None = await session.scalar(select(table).where(this, *where))
    return row


def _name(key: str, name: str) -> str:
    if not name.strip() or name != name.strip() or _uuid(name) is not None:
        raise InvalidInput(key, name, "must be a name, not empty, without white space around it, and not a UUID")
    return name


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
