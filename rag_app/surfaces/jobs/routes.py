"""Jobs over HTTP (`/api/v1/jobs`): their progress and failed files; cancelling and retrying them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Annotated
from uuid import UUID

from litestar import Response
from litestar.openapi.spec import Tag
from litestar.params import FromPath, QueryParameter
from msgspec import Meta, Struct

from rag_app.access.roles import EVERY_INDEX, Role, RoleDirectory
from rag_app.documents.jobs import JOB, PATH, FileState, JobFileInfo, JobInfo, Jobs
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    Forbidden,
    InvalidInput,
    NotFound,
    Principal,
    Scope,
    StoreFailed,
    Unauthenticated,
    UnknownField,
    require,
    uuid_in,
)
from rag_app.http.fields import PageSize
from rag_app.http.streaming import MEDIA_TYPE, progress_stream
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface


class JobsResponse(Struct, frozen=True):
    jobs: list[JobInfo]
    next: Annotated[str | None, Meta(description="send as `cursor` to get the next page; null on the last page")]


class JobFilesResponse(Struct, frozen=True):
    files: list[JobFileInfo]
    next: Annotated[int | None, Meta(description="send as `after` to get the next page; null on the last page")]


_SECONDS_BETWEEN_LOOKS = 0.5  # between two looks at a job that somebody watches


class JobService:
    """The caller's own jobs and, for administrators, those of their organizations. Raises NotFound for others."""

    def __init__(self, jobs: Jobs, roles: RoleDirectory) -> None:
        self._jobs, self._roles = jobs, roles

    async def page(self, principal: Principal, limit: int, after: str | None) -> tuple[list[JobInfo], str | None]:
        scope, operator = await self._view(principal)
        return await self._jobs.page(scope, limit, after, operator=operator)

    async def call(self, action: Callable[..., Awaitable[JobInfo]], principal: Principal, name: str) -> JobInfo:
        """`Jobs.get` or `Jobs.cancel` of a job. Raises NotFound, and InvalidInput where there is nothing to do."""
        scope, operator = await self._view(principal)
        return await action(self._jobs, scope, _job_id(name), operator=operator)

    async def retry(self, principal: Principal, name: str) -> JobInfo:
        """`Jobs.retry`, which adds sources: the role may have been taken away since the job was sent. Raises Forbidden, too."""
        job = await self.call(Jobs.get, principal, name)
        await self._roles.require(Role.WRITE, principal, job.organization, job.index)
        return await self.call(Jobs.retry, principal, name)

    async def files(
        self, principal: Principal, name: str, state: str | None, after: int, limit: int
    ) -> tuple[list[JobFileInfo], int | None]:
        """A page, and the position after which the next one begins."""
        scope, operator = await self._view(principal)
        found = await self._jobs.files(
            scope, _job_id(name), state=state, after=after, limit=limit + 1, operator=operator
        )
        return found[:limit], found[limit - 1].position if len(found) > limit else None

    async def watch(self, principal: Principal, job: JobInfo) -> AsyncGenerator[JobInfo, None]:
        """The job now and after each change, until it has ended."""
        yield job
        while not job.is_finished:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            now = await self.call(Jobs.get, principal, str(job.id))
            if now != job:
                job = now
                yield job

    async def _view(self, principal: Principal) -> tuple[Scope, bool]:
        """Whose jobs these are, and whether the caller sees all of an organization's."""
        roles = [await self._roles.role(principal, each, EVERY_INDEX) for each in principal.organizations]
        administers = bool(roles) and all(role is Role.ADMIN for role in roles)
        return Scope(principal.organizations or frozenset({PUBLIC_ORGANIZATION}), principal.user), administers


def _job_id(name: str) -> UUID:
    return require(uuid_in(name), NotFound("job", name))


ONE = f"{PATH}/{{job_id:str}}"

SURFACE = Surface(
    name="jobs",
    tag=Tag("Jobs", "documents that are ingested in the background: progress and failures"),
    paths=(PATH,),
    limit=600,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION, Credential.API_KEY}),
    errors=(Unauthenticated("The token has expired"), UnknownField("colour", []), StoreFailed(), RuntimeError()),
    options=STRICT,
)
NO_JOB = NotFound("job", JOB)


@SURFACE.get(
    PATH, InvalidInput("cursor", "x", "must be a cursor from an earlier page"), summary="List jobs, newest first"
)
async def list_jobs(
    request: Caller,
    jobs: Injected[JobService],
    cursor: Annotated[str | None, QueryParameter(max_length=200, description="`next` of the previous page")] = None,
    limit: PageSize = 20,
) -> JobsResponse:
    """Returns your own jobs. An administrator of an organization also gets the jobs of other members."""
    return JobsResponse(*await jobs.page(request.user, limit, cursor))


@SURFACE.get(ONE, NO_JOB, summary="Show the progress of a job")
async def get_job(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> JobInfo:
    """The counts are updated after each batch of files."""
    return await jobs.call(Jobs.get, request.user, job_id)


@SURFACE.get(f"{ONE}/files", NO_JOB, summary="List the files of a job")
async def get_files(
    request: Caller,
    job_id: FromPath[str],
    jobs: Injected[JobService],
    in_state: Annotated[
        FileState | None,
        QueryParameter(name="state", description="return only files in this state"),
    ] = None,
    after: Annotated[int, QueryParameter(ge=-1, le=2**31 - 1, description="`next` of the previous page")] = -1,
    limit: Annotated[int, QueryParameter(ge=1, le=1000, description="maximum number of results to return")] = 100,
) -> JobFilesResponse:
    """Returns the files in the order sent, with a reason for each failure, and the problems of those that were read in part."""
    return JobFilesResponse(*await jobs.files(request.user, job_id, in_state, after, limit))


@SURFACE.get(
    f"{ONE}/events", NO_JOB, summary="Stream the progress of a job as server-sent events", media_type=MEDIA_TYPE
)
async def get_events(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> Response[str]:
    """Sends `progress` after each update and `done` at the end. The data of both events is the job."""
    job = await jobs.call(Jobs.get, request.user, job_id)  # not found is an error like any other: nothing has been sent
    watched = jobs.watch(request.user, job)
    return progress_stream(request, (("done" if each.is_finished else "progress", each) async for each in watched))


@SURFACE.post(
    f"{ONE}/cancel",
    NO_JOB,
    InvalidInput("", "done", "the job is done: there is nothing to cancel"),
    summary="Cancel a job",
)
async def cancel_job(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> JobInfo:
    """Stops the job. Files that it has not begun are not ingested. Files that are already in the index stay there."""
    return await jobs.call(Jobs.cancel, request.user, job_id)


@SURFACE.post(
    f"{ONE}/retry",
    NO_JOB,
    Forbidden("This requires the role write in book, and you have read. An operator can grant it with `rag-app grant`"),
    InvalidInput("", "done", "no file of the job has failed or was cancelled"),
    summary="Retry the failed and cancelled files of a job",
)
async def retry_job(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> JobInfo:
    """The same job continues with these files. Requires the role `write` in the job's index."""
    return await jobs.retry(request.user, job_id)
