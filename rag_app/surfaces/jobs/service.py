"""The caller's own jobs and, for administrators, those of their organizations."""

import asyncio
from collections.abc import AsyncGenerator
from uuid import UUID

from rag_app.access.roles import EVERY_INDEX, Role, Roles
from rag_app.documents.jobs import Job, JobFile, Jobs
from rag_app.domain import NotFound, Principal, Scope, uuid_in

_SECONDS = 0.5
"""Between two looks at a job that somebody watches."""


class JobService:
    """Raises NotFound for jobs that the caller may not see."""

    def __init__(self, jobs: Jobs, roles: Roles) -> None:
        self._jobs, self._roles = jobs, roles

    async def page(self, principal: Principal, limit: int, after: str | None) -> tuple[list[Job], str | None]:
        scope, operator = await self._view(principal)
        return await self._jobs.page(scope, limit, after, operator=operator)

    async def get(self, principal: Principal, name: str) -> Job:
        """Raises NotFound."""
        scope, operator = await self._view(principal)
        return await self._jobs.get(scope, _id(name), operator=operator)

    async def files(
        self, principal: Principal, name: str, state: str | None, after: int, limit: int
    ) -> tuple[list[JobFile], int | None]:
        """A page, and the position after which the next one begins. Raises NotFound."""
        scope, operator = await self._view(principal)
        found = await self._jobs.files(scope, _id(name), state=state, after=after, limit=limit + 1, operator=operator)
        return found[:limit], found[limit - 1].position if len(found) > limit else None

    async def cancel(self, principal: Principal, name: str) -> Job:
        """Raises NotFound, and InvalidInput if it has ended."""
        scope, operator = await self._view(principal)
        return await self._jobs.cancel(scope, _id(name), operator=operator)

    async def retry(self, principal: Principal, name: str) -> Job:
        """Raises NotFound, and InvalidInput if nothing failed."""
        scope, operator = await self._view(principal)
        return await self._jobs.retry(scope, _id(name), operator=operator)

    async def watch(self, principal: Principal, job: Job) -> AsyncGenerator[Job, None]:
        """The job now and after each change, until it has ended."""
        yield job
        while not job.state.ended:
            await asyncio.sleep(_SECONDS)
            now = await self.get(principal, str(job.id))
            if now != job:
                job = now
                yield job

    async def _view(self, principal: Principal) -> tuple[Scope, bool]:
        """Whose jobs these are, and whether the caller sees all of an organization's."""
        roles = [await self._roles.role(principal, each, EVERY_INDEX) for each in principal.organizations]
        administers = bool(roles) and all(role is Role.ADMIN for role in roles)
        return Scope(principal.organizations, principal.user), administers


def _id(name: str) -> UUID:
    found = uuid_in(name)
    if found is None:
        raise NotFound("job", name)
    return found
