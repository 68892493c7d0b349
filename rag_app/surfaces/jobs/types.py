"""The responses of `/api/v1/jobs`."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from rag_app.documents.jobs import Job, JobFile

JOB = "0b7c2f9e-58f3-4c0e-9a53-3b1d8c6f7a10"
MOMENT = "2026-01-15T10:30:00Z"


class JobInfo(Struct, frozen=True, kw_only=True):
    """Files that are neither `waiting`, `done` nor `failed` were left when the job ended."""

    id: Annotated[UUID, Meta(examples=[JOB])]
    index: Annotated[str, Meta(examples=["org_knowledge"])]
    organization: UUID
    state: Annotated[
        Literal["waiting", "running", "done", "failed", "cancelled"],
        Meta(description="`done`: all files were processed, some may have failed; `failed`: the job was abandoned"),
    ]
    files: Annotated[int, Meta(description="number of all files", examples=[5000])]
    waiting: Annotated[int, Meta(examples=[1200])]
    done: Annotated[int, Meta(description="files that can be searched", examples=[3798])]
    failed: Annotated[
        int, Meta(description="files that failed completely or in part; `/files` gives the reasons", examples=[2])
    ]
    error: Annotated[str | None, Meta(description="why the job was abandoned")]
    created_at: Annotated[datetime, Meta(examples=[MOMENT])]
    updated_at: Annotated[datetime, Meta(examples=[MOMENT])]
    ended_at: Annotated[datetime | None, Meta(examples=[MOMENT])]
    link: Annotated[str, Meta(description="the path of this job", examples=[f"/api/v1/jobs/{JOB}"])]


class JobsResponse(Struct, frozen=True):
    jobs: list[JobInfo]
    next: Annotated[str | None, Meta(description="send as `cursor` to get the next page; null on the last page")]


class JobFileInfo(Struct, frozen=True, kw_only=True):
    position: Annotated[int, Meta(description="position in the order sent, from 0")]
    name: str
    size: Annotated[int, Meta(description="bytes", examples=[2048])]
    state: Literal["waiting", "done", "failed", "cancelled"]
    reason: Annotated[str | None, Meta(description="why the file failed completely or in part")]


class JobFilesResponse(Struct, frozen=True):
    files: list[JobFileInfo]
    next: Annotated[int | None, Meta(description="send as `after` to get the next page; null on the last page")]


def job_info(job: Job) -> JobInfo:
    waiting = 0 if job.state.ended else job.files - job.done - job.failed
    return JobInfo(
        id=job.id,
        index=job.index,
        organization=job.org_id,
        state=job.state.value,
        files=job.files,
        waiting=waiting,
        done=job.done,
        failed=job.failed,
        error=job.error,
        created_at=job.created_at.replace(microsecond=0),
        updated_at=job.updated_at.replace(microsecond=0),
        ended_at=job.ended_at.replace(microsecond=0) if job.ended_at else None,
        link=f"/api/v1/jobs/{job.id}",
    )


def file_info(file: JobFile) -> JobFileInfo:
    return JobFileInfo(
        position=file.position,
        name=file.name,
        size=file.size,
        state=file.state,  # type: ignore[arg-type]  # the database holds it to these
        reason=file.reason,
    )
