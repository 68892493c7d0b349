"""Members and API keys of the organizations that an administrator belongs to."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from uuid import UUID

from msgspec import convert

from rag_app.access.audit import Act, record
from rag_app.access.people import Keys, Organization, People
from rag_app.database.session import Database
from rag_app.domain import InvalidInput, Principal
from rag_app.surfaces.management.types import (
    KeyInfo,
    KeysResponse,
    MadeKey,
    MemberInfo,
    MembersResponse,
    OrganizationInfo,
    OrganizationsResponse,
)


class Belonging:
    """For administrators, who see and change what belongs to organizations of their own alone; all of it is written down.

    Everything that names an organization raises NotFound for one that is not the principal's, and everything Forbidden
    for whom is no administrator.
    """

    def __init__(self, database: Database, people: People, keys: Keys, indexes: Collection[str]) -> None:
        self._database, self._people, self._keys, self.indexes = database, people, keys, tuple(indexes)

    async def organizations(self, principal: Principal) -> OrganizationsResponse:
        """Those of the principal."""
        await record(self._database, principal, Act("organizations.read", "own"))
        found = await self._people.organizations(principal.organizations)
        return OrganizationsResponse(convert(found, list[OrganizationInfo], from_attributes=True))

    async def as_member(self, principal: Principal, organization: str) -> Principal:
        """The principal, as a member of one organization alone, who reads its validation runs."""
        found = await self._own(principal, organization, Act("validations.read", organization))
        return replace(principal, organizations=frozenset({found.id}))

    async def members(self, principal: Principal, organization: str) -> MembersResponse:
        found = await self._own(principal, organization, Act("members.read", organization))
        members = await self._people.members(found)
        return MembersResponse(found.slug, convert(members, list[MemberInfo], from_attributes=True))

    async def add_member(self, principal: Principal, organization: str, user: str) -> MembersResponse:
        """Raises NotFound for a user there is not; once is enough: a second time changes nothing."""
        found = await self._own(principal, organization)
        await self._people.add_member(found, await self._people.user(user), by=principal)
        return await self.members(principal, organization)

    async def remove_member(self, principal: Principal, organization: str, user: UUID) -> None:
        """Raises NotFound for whom the organization does not have, and InvalidInput for the principal."""
        if user == principal.user:
            raise InvalidInput("user", str(user), "must be another user: you cannot remove yourself")
        found = await self._own(principal, organization)
        await self._people.remove_member(found, await self._people.user(user), by=principal)

    async def set_plan(self, principal: Principal, user: UUID, plan: str) -> MemberInfo:
        """Raises NotFound for a user or a plan there is not."""
        await record(self._database, principal)
        changed = await self._people.set_plan(await self._people.user(user), plan, by=principal)
        return convert(changed, MemberInfo, from_attributes=True)

    async def keys(self, principal: Principal, organization: str) -> KeysResponse:
        found = await self._own(principal, organization, Act("keys.read", organization))
        keys = await self._keys.list(found)
        return KeysResponse(found.slug, convert(keys, list[KeyInfo], from_attributes=True))

    async def create_key(
        self, principal: Principal, organization: str, name: str, indexes: Sequence[str] | None
    ) -> MadeKey:
        """Raises InvalidInput for an index there is not."""
        found = await self._own(principal, organization)
        for index in indexes or ():
            if index not in self.indexes:
                raise InvalidInput("indexes", index, f"accepted: {', '.join(sorted(self.indexes))}")
        made, secret = await self._keys.create(found, name, indexes, by=principal)
        return MadeKey(convert(made, KeyInfo, from_attributes=True), secret)

    async def revoke_key(self, principal: Principal, key: UUID) -> KeyInfo:
        """Once is enough: a second time changes nothing. Raises NotFound."""
        return convert(await self._keys.revoke(str(key), by=principal), KeyInfo, from_attributes=True)

    async def _own(self, principal: Principal, slug: str, *acts: Act) -> Organization:
        await record(self._database, principal, *acts)
        return await self._people.own_organization(principal, slug)
