"""Jobs over HTTP: their progress and failed files; cancelling and retrying them."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from litestar import Response
from litestar.openapi.spec import Tag
from litestar.params import FromPath, QueryParameter
from msgspec import Struct

from rag_app.documents.jobs import Job
from rag_app.domain import InvalidInput, NotFound, StoreFailed, Unauthenticated, UnknownField
from rag_app.http.streaming import progress_stream
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface
from rag_app.surfaces.jobs.service import JobService
from rag_app.surfaces.jobs.types import JOB, JobFilesResponse, JobInfo, JobsResponse, file_info, job_info

PATH = "/api/v1/jobs"
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
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="maximum number of results to return")] = 20,
) -> JobsResponse:
    """Returns your own jobs. An administrator of an organization also gets the jobs of other members."""
    found, following = await jobs.page(request.user, limit, cursor)
    return JobsResponse([job_info(each) for each in found], following)


@SURFACE.get(ONE, NO_JOB, summary="Show the progress of a job")
async def get_job(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> JobInfo:
    """The counts are updated after each batch of files."""
    return job_info(await jobs.get(request.user, job_id))


@SURFACE.get(f"{ONE}/files", NO_JOB, summary="List the files of a job")
async def get_files(
    request: Caller,
    job_id: FromPath[str],
    jobs: Injected[JobService],
    in_state: Annotated[
        Literal["waiting", "done", "failed", "cancelled"] | None,
        QueryParameter(name="state", description="return only files in this state"),
    ] = None,
    after: Annotated[int, QueryParameter(ge=-1, le=2**31 - 1, description="`next` of the previous page")] = -1,
    limit: Annotated[int, QueryParameter(ge=1, le=1000, description="maximum number of results to return")] = 100,
) -> JobFilesResponse:
    """Returns the files in the order sent, with a reason for each failure."""
    found, following = await jobs.files(request.user, job_id, in_state, after, limit)
    return JobFilesResponse([file_info(each) for each in found], following)


@SURFACE.get(f"{ONE}/events", NO_JOB, summary="Stream the progress of a job as server-sent events")
async def get_events(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> Response[Any]:
    """Sends `progress` after each update and `done` at the end. The data of both events is the job."""
    job = await jobs.get(request.user, job_id)  # not found is an error like any other: nothing has been sent
    return progress_stream(request, _events(jobs.watch(request.user, job)))


async def _events(watched: AsyncGenerator[Job, None]) -> AsyncGenerator[tuple[str, Struct], None]:
    async for job in watched:
        yield ("done" if job.state.ended else "progress"), job_info(job)


@SURFACE.post(
    f"{ONE}/cancel",
    NO_JOB,
    InvalidInput("", "done", "the job is done: there is nothing to cancel"),
    summary="Cancel a job",
)
async def cancel_job(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> JobInfo:
    """Stops the job. Files that it has not begun are not ingested. Files that are already in the index stay there."""
    return job_info(await jobs.cancel(request.user, job_id))


@SURFACE.post(
    f"{ONE}/retry",
    NO_JOB,
    InvalidInput("", "done", "no file of the job has failed or was cancelled"),
    summary="Retry the failed and cancelled files of a job",
)
async def retry_job(request: Caller, job_id: FromPath[str], jobs: Injected[JobService]) -> JobInfo:
    """The same job continues with these files."""
    return job_info(await jobs.retry(request.user, job_id))
