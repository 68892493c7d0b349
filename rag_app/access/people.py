"""Organizations, their sites, users, memberships and time zones; and API keys, each of which acts as a service user of one
organization."""

import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo, available_timezones

from msgspec import Struct, convert
from sqlalchemy import ColumnElement, Row, Table, delete, false, func, or_, select, update
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.audit import Act, audited_session
from rag_app.access.page_sessions import digest
from rag_app.access.tables import (
    api_keys_table,
    memberships_table,
    organizations_table,
    plans_table,
    sites_table,
    users_table,
)
from rag_app.database.session import Database
from rag_app.domain import (
    MOST_REQUESTS,
    PUBLIC_ORGANIZATION,
    InvalidInput,
    NotFound,
    Principal,
    Scope,
    Unauthenticated,
    require,
    storable,
    uuid_in,
)

Kind = TypeVar("Kind")

_PRINCIPAL = """
    SELECT users.id, theirs.*, mine.groups,
        ARRAY(SELECT DISTINCT audience_id FROM audience_groups WHERE group_id = ANY (mine.groups))
    FROM users, LATERAL (
        SELECT array_agg(org_id), max(requests_per_minute), max(concurrent_requests)
        FROM memberships JOIN organizations ON organizations.id = org_id WHERE user_id = users.id
    ) AS theirs (organizations, requests, at_once), LATERAL (SELECT ARRAY(
        SELECT group_id FROM group_members WHERE user_id = users.id
        UNION SELECT g.id FROM organizations o JOIN groups g ON g.org_id = o.id
            WHERE o.id = ANY (theirs.organizations) AND (o.slug || '/' || g.slug = ANY ($3::text[])
                OR (cardinality(theirs.organizations) = 1 AND g.slug = ANY ($3::text[])))
    )) AS mine (groups)
    WHERE subject = $1 OR users.id = $2::uuid ORDER BY subject = $1 DESC NULLS LAST LIMIT 1
    """
PREFIX = "rag_"
"""What API keys begin with, and tokens never do. Lets scanners for leaked secrets know one."""
_BEGINNING_LENGTH = 12  # characters
_KEY = re.compile(PREFIX + "[A-Za-z0-9_-]{43}")
_SLUG = re.compile("[a-z0-9][a-z0-9_-]*")

_KEY_PRINCIPAL = """
    WITH used AS (
        UPDATE api_keys SET last_used_at = now()
        WHERE id = (
            SELECT id FROM api_keys
            WHERE digest = $1 AND revoked_at IS NULL
                AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')
            FOR UPDATE SKIP LOCKED
        )
    )
    SELECT api_keys.id, user_id, org_id, indexes, coalesce(api_keys.requests_per_minute, theirs.requests_per_minute),
        coalesce(api_keys.concurrent_requests, theirs.concurrent_requests),
        mine.groups, ARRAY(SELECT DISTINCT audience_id FROM audience_groups WHERE group_id = ANY (mine.groups))
    FROM api_keys JOIN organizations AS theirs ON theirs.id = org_id,
        LATERAL (SELECT ARRAY(SELECT group_id FROM group_members WHERE user_id = api_keys.user_id)) AS mine (groups)
    WHERE digest = $1 AND revoked_at IS NULL
    """
# skip locked: of many requests at once one writes the time down, and none waits for it
_ROLES = ("admin", "user")
_MOST_TOKENS = 2**63 - 1  # what the column holds
_SECONDS_REMEMBERED = 60.0  # that a process remembers time zones


class Organization(Struct, frozen=True):
    id: UUID
    slug: str
    name: str
    requests_per_minute: int | None = None
    concurrent_requests: int | None = None


class Site(Struct, frozen=True):
    id: UUID
    org_id: UUID
    name: str


class User(Struct, frozen=True):
    """`id` is the `sub` of the user's tokens, unless an identity provider uses another one.

    `role` "admin" may read everybody's threads, choose a plan for a message, and administer.
    """

    id: UUID
    name: str
    plan: str = "free"
    role: str = "user"


class ApiKey(Struct, frozen=True):
    """Everything about a key except the key itself. `beginning` is its first 12 characters; `indexes` None is all of them."""

    id: UUID
    name: str
    beginning: str
    organization: Organization
    indexes: tuple[str, ...] | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    requests_per_minute: int | None = None
    concurrent_requests: int | None = None


class People(Struct, frozen=True):
    """Names and slugs are unique and compared exactly; wherever a name is accepted, so is the id as text.

    Creating something raises InvalidInput if the name is taken, empty, or looks like an id.
    """

    _database: Database

    async def create_organization(self, slug: str, name: str) -> Organization:
        """Raises InvalidInput, too, for a slug that `checked_slug` refuses."""
        async with self._database.session() as session:
            return await insert_named(session, organizations_table, Organization, slug=checked_slug(slug), name=name)

    async def organizations(self, among: Collection[UUID] | None = None) -> list[Organization]:
        """All of them, the public one included, or those `among` these ids; by slug."""
        ordered = select(organizations_table).order_by(organizations_table.c.slug)
        if among is not None:
            ordered = ordered.where(organizations_table.c.id.in_(among))
        return convert(await self._database.execute(ordered), list[Organization], from_attributes=True)

    async def organization(self, slug: str | UUID) -> Organization:
        """For the operator: NotFound lists the existing slugs."""
        return await find_named(
            self._database, organizations_table, Organization, slug, known=select(organizations_table.c.slug)
        )

    async def own_organization(self, principal: Principal, slug: str) -> Organization:
        """The principal's organization with this slug. Raises NotFound, which lists the principal's own."""
        mine = {each.slug: each for each in await self.organizations(principal.organizations)}
        return require(mine.get(slug), NotFound("organization", slug, mine))

    async def set_budget(self, organization: Organization, tokens: int | None) -> None:
        """Set the organization's monthly budget of model tokens; None: the default of the settings.

        Raises InvalidInput below 0 and for the public organization, which is never charged.
        """
        if organization.id == PUBLIC_ORGANIZATION:
            raise InvalidInput(
                "organization",
                organization.slug,
                "the public organization cannot have a budget, because it is never charged",
            )
        if tokens is not None and not 0 <= tokens <= _MOST_TOKENS:
            raise InvalidInput("tokens", tokens, f"must be a number between 0 and {_MOST_TOKENS}, or none")
        await self._database.execute(
            update(organizations_table)
            .where(organizations_table.c.id == organization.id)
            .values(monthly_token_budget=tokens)
        )

    async def set_limits(self, organization: Organization, limits: Mapping[str, int | None]) -> Organization:
        """Set a member's limits: `requests_per_minute`, `concurrent_requests`; None: each surface's default.

        Omitted limits keep their value. Raises InvalidInput below 1 and above 10,000.
        """
        async with self._database.session() as session:
            await _update_limits(session, organizations_table, organization.id, limits)
        return await self.organization(organization.id)

    async def set_time_zone(self, organization: Organization, name: str | None) -> None:
        """Set the time zone (IANA name; None is UTC), which defines "today" in a question.

        Raises InvalidInput for an unknown name.
        """
        if name is not None and name not in available_timezones():
            raise InvalidInput("time_zone", name, "must be a name of the IANA time zone database, such as Europe/Paris")
        await self._database.execute(
            update(organizations_table).where(organizations_table.c.id == organization.id).values(time_zone=name)
        )

    async def create_user(self, name: str, plan: str = "free", role: str = "user", subject: str | None = None) -> User:
        """Create a user, optionally with an identity provider's name for them (see `know_as`); all of it, or nothing.

        Raises NotFound, which lists the plans, and InvalidInput.
        """
        async with self._database.session() as session:
            await _check_plan(session, plan)
            made = await insert_named(
                session, users_table, User, name=checked_name("name", name), plan=plan, role=_role(role)
            )
            if subject is not None:
                await _know_as(session, made.id, subject)
        return made

    async def users(self) -> list[tuple[User, tuple[str, ...]]]:
        """All of them, service users of API keys included, by name; each with the slugs of its organizations."""
        slugs = func.array_agg(aggregate_order_by(organizations_table.c.slug, organizations_table.c.slug))
        rows = await self._database.execute(
            select(users_table, slugs.filter(organizations_table.c.slug.is_not(None)).label("slugs"))
            .outerjoin(memberships_table, memberships_table.c.user_id == users_table.c.id)
            .outerjoin(organizations_table, organizations_table.c.id == memberships_table.c.org_id)
            .group_by(users_table.c.id)
            .order_by(users_table.c.name)
        )
        return [(_convert_row(User, row), tuple(row.slugs or ())) for row in rows]

    async def set_plan(self, user: User, plan: str, by: Principal | None = None) -> User:
        """Set the plan from the user's next message on. Messages used this month still count.

        `by`: the acting administrator; None is the operator. Raises NotFound, which lists the plans.
        """
        async with audited_session(self._database, by, Act("users.plan", str(user.id), {"plan": plan})) as session:
            await _check_plan(session, plan)
            return await _update_user(session, user, plan=plan)

    async def set_role(self, user: User, role: str) -> User:
        """Raises InvalidInput, which lists the roles."""
        async with self._database.session() as session:
            return await _update_user(session, user, role=_role(role))

    async def user(self, name: str | UUID) -> User:
        """Raises NotFound, which reveals no other names."""
        return await find_named(self._database, users_table, User, name)

    async def member(self, organization: Organization, name: str, field: str = "user") -> User:
        """The user, who is a member of the organization; of the public one everybody is.

        Raises NotFound as `user` does, and InvalidInput for a non-member; `field` is what the caller calls the user.
        """
        user = await self.user(name)
        membership = select(memberships_table.c.user_id).where(
            memberships_table.c.user_id == user.id, memberships_table.c.org_id == organization.id
        )
        if organization.id != PUBLIC_ORGANIZATION and not await self._database.execute(membership):
            raise InvalidInput(field, name, f"{name!r} is not a member of {organization.slug}")
        return user

    async def addresses_of(self, name: str) -> list[str]:
        """Names of users that are e-mail addresses whose part before the @ this is: the first three."""
        if "@" in name:
            return []
        same = func.lower(func.split_part(users_table.c.name, "@", 1)) == name.lower()
        this = (
            select(users_table.c.name)
            .where(same, users_table.c.name.contains("@"))
            .order_by(users_table.c.name)
            .limit(3)
        )
        return [found for (found,) in await self._database.execute(this)]

    async def know_as(self, user: User, subject: str) -> None:
        """Accept tokens with this `sub`, an identity provider's name for the user, as the user's.

        Raises InvalidInput if it belongs to another user already.
        """
        async with self._database.session() as session:
            await _know_as(session, user.id, subject)

    async def members(self, organization: Organization) -> list[User]:
        """The organization's members by name, without service users of API keys."""
        members = (
            select(users_table)
            .join(memberships_table, memberships_table.c.user_id == users_table.c.id)
            .where(
                memberships_table.c.org_id == organization.id, users_table.c.id.not_in(select(api_keys_table.c.user_id))
            )
            .order_by(users_table.c.name)
        )
        return [_convert_row(User, row) for row in await self._database.execute(members)]

    async def remove_member(self, organization: Organization, user: User, by: Principal | None = None) -> None:
        """Their sources there stay. Raises NotFound for non-members and for keys' users."""
        gone = delete(memberships_table).where(
            memberships_table.c.user_id == user.id,
            memberships_table.c.org_id == organization.id,
            memberships_table.c.user_id.not_in(select(api_keys_table.c.user_id)),
        )
        act = Act("members.remove", str(user.id), {"organization": organization.slug})
        async with audited_session(self._database, by, act) as session:
            require(await session.scalar(gone.returning(memberships_table.c.user_id)), NotFound("member", user.name))

    async def add_member(self, organization: Organization, user: User, by: Principal | None = None) -> None:
        """Idempotent. `by`: as in `set_plan`."""
        act = Act("members.add", str(user.id), {"organization": organization.slug})
        async with audited_session(self._database, by, act) as session:
            await session.execute(
                insert(memberships_table).values(user_id=user.id, org_id=organization.id).on_conflict_do_nothing()
            )

    async def create_site(self, org_id: UUID, name: str) -> Site:
        async with self._database.session() as session:
            return await insert_named(session, sites_table, Site, name=checked_name("name", name), org_id=org_id)

    async def site(self, org_id: UUID, name: str | UUID) -> Site:
        """A site of this organization. NotFound does not reveal whether another one has it."""
        return await find_named(self._database, sites_table, Site, name, sites_table.c.org_id == org_id)

    async def principal(self, subject: str, groups: Sequence[str] = ()) -> Principal:
        """The principal of a token's `sub`. An unknown one sees the public organization only.

        `groups` are those that the token names, in addition to those that an administrator has added the user to:
        "organization/group", or "group" for a user of one organization. Only groups of the user's organizations count.
        """
        if not subject.isprintable():  # nor can PostgreSQL be asked for a NUL
            return Principal(subject)
        named = [group for group in groups if group.isprintable()]
        found = await self._database.fetch(_PRINCIPAL, subject, uuid_in(subject), named)
        if not found:
            return Principal(subject)
        user, organizations, requests, at_once, theirs, audiences = found[0]
        belongs = frozenset(organizations or ())
        return Principal(subject, user, belongs, None, requests, at_once, frozenset(audiences), frozenset(theirs))

    async def member_of(self, organization: str) -> Principal:
        """An anonymous principal that sees what all members of an organization see. Raises NotFound."""
        found = await self.organization(organization)
        limits = found.requests_per_minute, found.concurrent_requests
        return Principal(f"member of {found.slug}", None, frozenset({found.id}), None, *limits)


class Calendar:
    """`now` is the clock, which tests replace; it gives a moment in any time zone."""

    def __init__(self, database: Database, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database, self.now = database, now
        self._zones: Mapping[UUID, str] = {}
        self._read_at = -_SECONDS_REMEMBERED

    async def today(self, scope: Scope) -> date:
        """The day in the time zone of the scope's organization (of several, the lowest id), or in UTC.

        A change of the time zone is seen within a minute. Raises StoreFailed.
        """
        if time.monotonic() - self._read_at >= _SECONDS_REMEMBERED:
            with_zone = select(organizations_table.c.id, organizations_table.c.time_zone).where(
                organizations_table.c.time_zone.is_not(None)
            )
            self._zones = {zoned.id: zoned.time_zone for zoned in await self._database.execute(with_zone)}
            self._read_at = time.monotonic()
        zone = next((self._zones[each] for each in sorted(scope.organizations) if each in self._zones), "UTC")
        return self.now().astimezone(ZoneInfo(zone)).date()


class Keys(Struct, frozen=True):
    """Keys are `rag_` and 43 characters that hold 256 random bits; the database holds the SHA-256 of each.

    Keys need neither salt nor a slow hash, unlike passwords: nobody can try or precompute 2^256 keys. A key is looked up
    by its digest in an index; what the timing reveals about digests does not help to guess a key.
    """

    _database: Database

    async def create(
        self,
        organization: Organization,
        name: str,
        indexes: Sequence[str] | None = None,
        by: Principal | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key for these indexes, or for all. Returns it with its secret, which cannot be shown again.

        It acts as a user of its own, named `key:<id>`, a member of that organization alone. `name` is for people and
        need not be unique. `by`: as in `People.set_plan`. Raises InvalidInput for an empty or unprintable name.
        """
        if not name.strip() or not name.isprintable():
            raise InvalidInput("name", name, "must be printable text and not empty")
        secret = PREFIX + secrets.token_urlsafe(32)  # bytes: 43 characters
        key_id, user_id = uuid4(), uuid4()
        details = {"organization": organization.slug, "indexes": None if indexes is None else list(indexes)}
        async with audited_session(self._database, by, Act("keys.create", str(key_id), details)) as session:
            await session.execute(insert(users_table).values(id=user_id, name=f"key:{key_id}"))
            await session.execute(insert(memberships_table).values(user_id=user_id, org_id=organization.id))
            await session.execute(
                insert(api_keys_table).values(
                    id=key_id,
                    name=name.strip(),
                    digest=digest(secret),
                    beginning=secret[:_BEGINNING_LENGTH],
                    user_id=user_id,
                    org_id=organization.id,
                    indexes=None if indexes is None else list(dict.fromkeys(indexes)),
                )
            )
            return await _read_key(session, key_id), secret

    async def list(self, organization: Organization | None = None) -> list[ApiKey]:
        """All keys, or those of one organization, revoked ones included; oldest first."""
        keys = _KEYS.order_by(api_keys_table.c.created_at, api_keys_table.c.id)
        if organization is not None:
            keys = keys.where(api_keys_table.c.org_id == organization.id)
        return [_convert_row(ApiKey, row) for row in await self._database.execute(keys)]

    async def revoke(self, key: str, by: Principal | None = None) -> ApiKey:
        """Revoke a key in every process. It is given by its id, its beginning, or in full.

        Idempotent. `by`: an administrator, who may revoke only keys of their own organizations. Raises NotFound, and
        InvalidInput if the beginning is ambiguous.
        """
        shown = key if uuid_in(key) else key[:_BEGINNING_LENGTH]
        async with audited_session(self._database, by, Act("keys.revoke", shown)) as session:
            row = await _find_key(session, key)
            if by is not None and row.org_id not in by.organizations:
                raise NotFound("key", shown)
            revoked = update(api_keys_table).where(api_keys_table.c.id == row.id)
            await session.execute(revoked.values(revoked_at=func.coalesce(api_keys_table.c.revoked_at, func.now())))
            return await _read_key(session, row.id)

    async def user_of(self, organization: Organization, key: str) -> UUID | None:
        """The service user of an organization's key, given as in `revoke`; None if there is none.

        Raises InvalidInput for a revoked key.
        """
        this = select(api_keys_table).where(_key_condition(key), api_keys_table.c.org_id == organization.id).limit(1)
        found = next(iter(await self._database.execute(this)), None)
        return None if found is None else _valid(found).user_id

    async def is_revoked(self, user: UUID | None) -> bool:
        """Whether this is the service user of a revoked key."""
        this = select(api_keys_table.c.id).where(
            api_keys_table.c.user_id == user, api_keys_table.c.revoked_at.is_not(None)
        )
        return bool(await self._database.execute(this))

    async def set_limits(self, key: str, limits: Mapping[str, int | None]) -> ApiKey:
        """Like `People.set_limits` for one key; None: its organization's limits.

        Raises NotFound, too, and InvalidInput for a revoked key.
        """
        async with self._database.session() as session:
            found = _valid(await _find_key(session, key))
            await _update_limits(session, api_keys_table, found.id, limits)
            return await _read_key(session, found.id)

    async def principal(self, key: str) -> Principal:
        """The service user of a key. Raises Unauthenticated for an unknown or revoked key, without saying which.

        One query for each request, so that a revoked key is refused at once. The time of the last use is recorded at most
        once a minute.
        """
        rows = await self._database.fetch(_KEY_PRINCIPAL, digest(key)) if _KEY.fullmatch(key) else []
        if not rows:
            raise Unauthenticated("The API key is not valid")
        key_id, user_id, org_id, indexes, requests, at_once, *belongs = rows[0]
        bound, (groups, audiences) = None if indexes is None else frozenset(indexes), map(frozenset, belongs)
        return Principal(f"key:{key_id}", user_id, frozenset({org_id}), bound, requests, at_once, audiences, groups)


def has_subject(subject: str) -> ColumnElement[bool]:
    """The condition on the user of a token's `sub`: at most one, as `know_as` ensures."""
    user_id = uuid_in(subject)
    return or_(users_table.c.subject == subject, *([] if user_id is None else [users_table.c.id == user_id]))


async def _know_as(session: AsyncConnection, user: UUID, subject: str) -> None:
    if not subject.strip() or not subject.isprintable():
        raise InvalidInput("subject", subject, "must be the `sub` claim of the user's tokens")
    if await session.scalar(select(users_table.c.id).where(has_subject(subject), users_table.c.id != user)) is not None:
        raise InvalidInput("subject", subject, f"{subject!r} already belongs to another user")
    await session.execute(update(users_table).where(users_table.c.id == user).values(subject=subject))


async def _check_plan(session: AsyncConnection, plan: str) -> None:
    known = [*await session.scalars(select(plans_table.c.plan_code))]
    if plan not in known:
        raise NotFound("plan", plan, known)


async def _update_user(session: AsyncConnection, user: User, **values: str) -> User:
    changed = update(users_table).where(users_table.c.id == user.id).values(**values).returning(users_table)
    row = (await session.execute(changed)).one_or_none()
    return _convert_row(User, require(row, NotFound("user", user.name)))


async def _update_limits(
    session: AsyncConnection, table: Table, row_id: UUID, limits: Mapping[str, int | None]
) -> None:
    for name, limit in limits.items():
        if limit is not None and not 1 <= limit <= MOST_REQUESTS:
            raise InvalidInput(name, limit, f"must be a number between 1 and {MOST_REQUESTS}, or none")
    if limits:
        await session.execute(update(table).where(table.c.id == row_id).values(**limits))


_KEYS = select(
    api_keys_table, func.to_jsonb(organizations_table.table_valued(), type_=JSONB).label("organization")
).join(organizations_table, organizations_table.c.id == api_keys_table.c.org_id)


async def _read_key(session: AsyncConnection, key_id: UUID) -> ApiKey:
    return _convert_row(ApiKey, (await session.execute(_KEYS.where(api_keys_table.c.id == key_id))).one())


async def _find_key(session: AsyncConnection, key: str) -> Row[Any]:
    """Find a key by its id, its beginning, or in full. Raises NotFound, and InvalidInput if the beginning is ambiguous."""
    shown = key[:_BEGINNING_LENGTH]  # an error must not show more of a key than a list does
    found = (await session.execute(select(api_keys_table).where(_key_condition(key)))).all()
    if not found:
        raise NotFound("key", key if uuid_in(key) else shown)
    if len(found) > 1:
        raise InvalidInput("key", shown, f"{len(found)} keys begin with {shown!r}; name one of them by its id")
    return found[0]


def _valid(key: Row[Any]) -> Row[Any]:
    if key.revoked_at is not None:
        raise InvalidInput("", key.beginning, f"key {key.beginning}... is revoked")
    return key


def _role(role: str) -> str:
    if role not in _ROLES:
        raise InvalidInput("role", role, f"accepted: {', '.join(_ROLES)}")
    return role


def _convert_row(kind: type[Kind], row: Row[Any]) -> Kind:
    return convert(row, kind, from_attributes=True)


async def insert_named(session: AsyncConnection, table: Table, kind: type[Kind], **values: Any) -> Kind:
    """Insert a row. Raises InvalidInput if the first of the values is taken."""
    new = insert(table).values(id=uuid4(), **values).on_conflict_do_nothing().returning(table)
    made = (await session.execute(new)).one_or_none()
    key, name = next(iter(values.items()))
    return _convert_row(kind, require(made, InvalidInput(key, name, f"{name!r} is taken")))


async def find_named(
    database: Database, table: Table, kind: type[Kind], name: str | UUID, *where: Any, known: Any = None
) -> Kind:
    """Find a row by slug or name, or by id. Raises NotFound; with `known`, it lists the existing names."""
    found = name if isinstance(name, UUID) else uuid_in(name)
    this = table.c["slug" if "slug" in table.c else "name"] == name if found is None else table.c.id == found
    async with database.session() as session:
        storable_name = found is not None or name == storable(str(name))  # PostgreSQL cannot be asked for a NUL
        row = (await session.execute(select(table).where(this, *where))).one_or_none() if storable_name else None
        if row is None:
            raise NotFound(kind.__name__.lower(), str(name), () if known is None else await session.scalars(known))
        return _convert_row(kind, row)


def checked_name(key: str, name: str) -> str:
    if not name.strip() or name != name.strip() or uuid_in(name) is not None:
        raise InvalidInput(
            key, name, "must be a name that is not empty, not a UUID, and has no leading or trailing white space"
        )
    return name


def checked_slug(slug: str) -> str:
    """The slug of a new organization: it stands in addresses, in lists, and before the / of a group in a token.

    >>> checked_slug("acme_2-b")
    'acme_2-b'
    """
    if _SLUG.fullmatch(checked_name("slug", slug)) is None:
        raise InvalidInput(
            "slug", slug, "must be lower-case letters, digits, - and _, and begin with a letter or digit"
        )
    return slug


def beginning_of(name: str) -> str:
    """A name fit for printing: of an API key, only its beginning.

    >>> beginning_of("ada"), beginning_of("rag_" + 43 * "x")
    ('ada', 'rag_xxxxxxxx')
    """
    return name[:_BEGINNING_LENGTH] if _KEY.fullmatch(name) else name


def _key_condition(key: str) -> ColumnElement[bool]:
    if key_id := uuid_in(key):
        return api_keys_table.c.id == key_id
    if _KEY.fullmatch(key):
        return api_keys_table.c.digest == digest(key)
    if re.fullmatch(PREFIX + "[A-Za-z0-9_-]{1,8}", key):  # of no characters it would be the beginning of any key
        return func.starts_with(api_keys_table.c.beginning, key)
    return false()
