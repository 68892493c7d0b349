"""Jobs: uploaded files, ingested one slice at a time by any free worker.

    begin    stores the job and its files and queues a turn of its organization, in one transaction
    take     in a worker's turn, takes the next files of the organization's longest-waiting job
    record   stores their results, in one transaction               killed before: the slice is repeated
    queue    queues the organization's next turn, if work is left   killed before: another worker gets the turn
    cancel   takes no more of the job; a slice that is under way ends and is counted

A repeated slice finds its sources unchanged and writes nothing. An organization has one turn in the queue, however many
jobs and files it has, and then goes to the end of the queue, so a large job delays nobody.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from msgspec import Meta, Struct, convert, structs, to_builtins
from sqlalchemy import Row, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.database.pages import cursor, is_after_cursor
from rag_app.database.session import Database
from rag_app.documents.metadata import Target
from rag_app.documents.tables import job_files_table, jobs_table
from rag_app.documents.uploads import Upload, UploadedDocument, temporary_folder
from rag_app.domain import (
    EmbeddingFailed,
    Forbidden,
    InvalidInput,
    JsonObject,
    Misconfigured,
    NotFound,
    RagError,
    Scope,
    StoreFailed,
    require,
)

PATH = "/api/v1/jobs"
JOB = "0b7c2f9e-58f3-4c0e-9a53-3b1d8c6f7a10"
MOMENT = "2026-01-15T10:30:00Z"

QUEUE, TASK = "rag_app", "turn"
"""The queue, and the task in it, whose argument is `org`."""

_SLICE_FILES, _SLICE_BYTES = 128, 8 << 20  # of a turn at most; a larger file has a turn of its own
_MOST_PROBLEMS = 20  # that are kept of a file
_ATTEMPTS = 5  # turns of a job in a row that end without a record before it is given up
_UNFINISHED_STATES = ("waiting", "running")
_PASSING_ERRORS = (StoreFailed, EmbeddingFailed, Misconfigured)  # what may be over when the next turn comes


FileState = Literal["waiting", "done", "failed", "cancelled"]

Outcome = tuple[Literal["done", "failed"], str | None]
"""What became of a file, and its problems, one a line."""

Ingest = Callable[[str, Target, Sequence[Upload], Scope], Awaitable[Sequence[UploadedDocument]]]
"""`Uploads.ingest` in the index of this name."""


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
    done: Annotated[
        int,
        Meta(
            description="files that can be searched, at least in part; `/files` gives their problems", examples=[3798]
        ),
    ]
    failed: Annotated[
        int, Meta(description="files of which nothing could be read; `/files` gives the reasons", examples=[2])
    ]
    error: Annotated[str | None, Meta(description="why the job was abandoned; null in any other state than failed")]
    created_at: Annotated[datetime, Meta(examples=[MOMENT])]
    updated_at: Annotated[datetime, Meta(examples=[MOMENT])]
    ended_at: Annotated[datetime | None, Meta(examples=[MOMENT])]
    link: Annotated[str, Meta(description="the path of this job", examples=[f"{PATH}/{JOB}"])]

    @property
    def is_finished(self) -> bool:
        return self.state not in _UNFINISHED_STATES


class JobFileInfo(Struct, frozen=True):
    position: Annotated[int, Meta(description="position in the order sent, from 0")]
    name: str
    size: Annotated[int, Meta(description="bytes", examples=[2048])]
    state: FileState
    reason: Annotated[str | None, Meta(description="why the file failed; null in any other state")]
    problems: Annotated[list[str], Meta(description="what could not be read, and why: the first 20 problems")]


class Slice(Struct, frozen=True):
    """The documents that a worker takes at once, with their content, by position in the job."""

    job: UUID
    index: str
    target: Target
    sender: Scope
    files: Mapping[int, tuple[JsonObject, bytes]]


class Jobs(Struct, frozen=True):
    """Jobs of users, who see their own; a worker acts for the organization as a whole."""

    _database: Database

    # -- users

    async def begin(self, sender: Scope, index: str, target: Target, uploads: Sequence[Upload]) -> JobInfo:
        """Store the documents and queue the job, which belongs to the sender's user; URLs are not fetched here.

        Raises Forbidden for a sender without a user, InvalidInput without documents or for a repeated name.
        """
        user = require(sender.user, Forbidden("Jobs belong to a user. Send a token or an API key"))
        if not uploads:
            raise InvalidInput("documents", None, "must contain at least one document")
        for name, times in Counter(each.name for each in uploads).items():
            if times > 1:
                raise InvalidInput("documents", name, f"{name!r} occurs more than once")
        job, kept = uuid4(), await asyncio.to_thread(lambda: [*map(_serialize_upload, uploads)])
        values = [
            {
                "job_id": job,
                "position": position,
                "org_id": target.org_id,
                "name": upload.name,
                "document": document,
                "content": content,
                "size": len(content),
            }
            for position, (upload, (document, content)) in enumerate(zip(uploads, kept, strict=True))
        ]
        async with self._database.scoped(Scope(frozenset({target.org_id}), user)) as session:
            made = insert(jobs_table).values(
                id=job,
                org_id=target.org_id,
                user_id=user,
                index=index,
                target={"target": to_builtins(target), "sender": to_builtins(sender)},
                files=len(uploads),
            )
            row = (await session.execute(made.returning(jobs_table))).one()
            await session.execute(insert(job_files_table), values)
            await _queue(session, target.org_id)
            return _job(row)

    async def get(self, scope: Scope, job: UUID, *, operator: bool = False) -> JobInfo:
        """Raises NotFound, also for another user's job."""
        async with self._database.scoped(scope, operator) as session:
            return _job(await _one(session, scope, job))

    async def page(
        self, scope: Scope, limit: int, after: str | None = None, *, operator: bool = False
    ) -> tuple[list[JobInfo], str | None]:
        """The newest jobs, and the cursor of the next page. Raises InvalidInput for an invalid cursor."""
        wanted = select(jobs_table).where(jobs_table.c.org_id.in_(scope.organizations))
        if after is not None:
            wanted = wanted.where(is_after_cursor(after, jobs_table.c.created_at, jobs_table.c.id))
        order = jobs_table.c.created_at.desc(), jobs_table.c.id.desc()
        rows = await self._database.read(scope, wanted.order_by(*order).limit(limit + 1), operator)
        page = rows[:limit]
        return [*map(_job, page)], cursor(page[-1].created_at, page[-1].id) if len(rows) > limit else None

    async def files(
        self,
        scope: Scope,
        job: UUID,
        *,
        state: str | None = None,
        after: int = -1,
        limit: int = 100,
        operator: bool = False,
    ) -> list[JobFileInfo]:
        """The job's files after position `after`. Raises NotFound."""
        wanted = select(
            job_files_table.c.position,
            job_files_table.c.name,
            job_files_table.c.size,
            job_files_table.c.state,
            job_files_table.c.reason,
        ).where(
            job_files_table.c.job_id == job,
            job_files_table.c.org_id.in_(scope.organizations),
            job_files_table.c.position > after,
        )
        if state is not None:
            wanted = wanted.where(job_files_table.c.state == state)
        async with self._database.scoped(scope, operator) as session:
            await _one(session, scope, job)
            rows = await session.execute(wanted.order_by(job_files_table.c.position).limit(limit))
            return [_job_file(*row) for row in rows.tuples()]

    async def cancel(self, scope: Scope, job: UUID, *, operator: bool = False) -> JobInfo:
        """Stop taking its files. Sources already ingested stay, and the files of a slice that a worker has taken
        still become sources and are then counted as done. Raises NotFound, InvalidInput if it has ended."""
        async with self._database.scoped(scope, operator) as session:
            row = await _one(session, scope, job, lock=True)
            if row.state not in _UNFINISHED_STATES:
                raise InvalidInput("", row.state, f"the job is {row.state}: there is nothing to cancel")
            await session.execute(_CANCEL_FILES, {"job": job, "org": row.org_id})
            await session.execute(_END, {"job": job, "org": row.org_id, "state": "cancelled", "error": None})
            return _job(await _one(session, scope, job))

    async def retry(self, scope: Scope, job: UUID, *, operator: bool = False) -> JobInfo:
        """Repeat failed and cancelled files. Raises NotFound, InvalidInput if there are none."""
        async with self._database.scoped(scope, operator) as session:
            row = await _one(session, scope, job, lock=True)
            again = (await session.scalars(_RETRY_FILES, {"job": job, "org": row.org_id})).all()
            if not again and row.state != "failed":
                raise InvalidInput("", row.state, "no file of the job has failed or was cancelled")
            await session.execute(_RETRY, {"job": job, "org": row.org_id, "again": again.count("failed")})
            await _queue(session, row.org_id)
            return _job(await _one(session, scope, job))

    # -- workers

    async def take(self, org_id: UUID) -> Slice | None:
        """The next files of an unfinished job; None without one."""
        async with self._open_as_operator(org_id) as session:
            while (row := (await session.execute(_TAKE, {"org": org_id})).one_or_none()) is not None:
                values = {"job": row.id, "org": org_id}
                if row.attempts <= _ATTEMPTS:
                    files = await session.execute(_NEXT, {**values, "files": _SLICE_FILES, "bytes": _SLICE_BYTES})
                    found = {each.position: (each.document, each.content) for each in files}
                    target, sender = convert(row.target["target"], Target), convert(row.target["sender"], Scope)
                    return Slice(row.id, row.index_name, target, sender, found)
                error = f"ended {_ATTEMPTS} times at the same files without saying why"
                await session.execute(_END, {**values, "state": "failed", "error": error})
        return None

    async def record(self, org_id: UUID, job: UUID, outcomes: Mapping[int, Outcome]) -> None:
        """Store the results of a slice's files. A job cancelled meanwhile stays cancelled."""
        values = {"job": job, "org": org_id}
        async with self._open_as_operator(org_id) as session:
            await session.execute(_LOCK, values)  # before its files: as cancelling does
            went = {
                "positions": [*outcomes],
                "states": [state for state, _ in outcomes.values()],
                "reasons": [problems for _, problems in outcomes.values()],
            }
            states = (await session.scalars(_RECORD_FILES, {**values, **went})).all()
            await session.execute(_RECORD, {**values, "done": states.count("done"), "failed": states.count("failed")})

    async def fail(self, org_id: UUID, job: UUID, error: str, *, passing: bool) -> None:
        """Count a failed turn of the job, and give the job up after too many or a permanent failure. `retry` tries again."""
        values = {"job": job, "org": org_id, "error": error, "attempts": _ATTEMPTS if passing else 0}
        async with self._open_as_operator(org_id) as session:
            await session.execute(_FAIL, values)

    async def requeue_unfinished(self, organizations: Collection[UUID]) -> None:
        """Queue a turn for each of these organizations with unfinished jobs, to recover lost turns."""
        async with self._database.scoped(Scope(frozenset(organizations)), operator=True) as session:
            waiting = (await session.scalars(_GO_ON, {"organizations": [*organizations]})).all()
        for org_id in waiting:
            await self.queue(org_id)

    async def queue(self, org_id: UUID) -> None:
        """Queue the organization's next turn, if it has unfinished jobs and no turn in the queue."""
        async with self._open_as_operator(org_id) as session:
            await _queue(session, org_id)

    async def forget(self, org_id: UUID, days: int) -> None:
        """Delete the organization's jobs that ended at least so many days ago, with their files."""
        async with self._open_as_operator(org_id) as session:
            await session.execute(_FORGET, {"org": org_id, "days": days})

    def _open_as_operator(self, org_id: UUID) -> Any:
        return self._database.scoped(Scope(frozenset({org_id})), operator=True)


async def take_turn(jobs: Jobs, ingest: Ingest, org_id: UUID) -> None:
    """Run an organization's turn. Re-raises an ingest's error after recording it; the next turn tries again."""
    taken = await jobs.take(org_id)
    if taken is None:
        return
    try:
        with temporary_folder() as folder:
            uploads = await asyncio.to_thread(
                lambda: [_upload(folder, place, *each) for place, each in taken.files.items()]
            )
            received = await ingest(taken.index, taken.target, uploads, taken.sender)
    except Exception as error:
        passing = not isinstance(error, RagError) or isinstance(error, _PASSING_ERRORS)
        told = str(error) if isinstance(error, RagError) else type(error).__name__
        await jobs.fail(org_id, taken.job, told, passing=passing)
        if passing:
            raise
    else:
        outcomes = zip(taken.files, received, strict=True)
        await jobs.record(org_id, taken.job, {position: _outcome(each) for position, each in outcomes})
    await jobs.queue(org_id)


def _outcome(received: UploadedDocument) -> Outcome:
    """
    >>> nothing = {"id": None, "external_id": None, "title": None, "further": [], "undeclared": [], "link": None}
    >>> _outcome(UploadedDocument(status="added", problems=["line 2: no JSON", "x: twice"], **nothing))
    ('done', 'line 2: no JSON\\nx: twice')
    """
    problems = "\n".join(each.replace("\n", " ") for each in received.problems[:_MOST_PROBLEMS])
    if received.status == "failed":
        return "failed", problems or "holds no text"
    return "done", problems or None


def _job_file(position: int, name: str, size: int, state: FileState, problems: str | None) -> JobFileInfo:
    told = problems.split("\n") if problems else []
    return JobFileInfo(position, name, size, state, "; ".join(told) if state == "failed" else None, told)


def _serialize_upload(upload: Upload) -> tuple[JsonObject, bytes]:
    """The upload as stored. Files are read completely: requests are limited, and another process does the job."""
    said = to_builtins(structs.replace(upload, text=None, file=None))
    kept = {name: value for name, value in said.items() if value}
    if upload.file is not None:
        return {**kept, "is_file": True}, upload.file.read_bytes()
    return kept, (upload.text or "").encode()


def _upload(folder: Path, position: int, document: JsonObject, content: bytes) -> Upload:
    known = convert(document, Upload)
    if not document.get("is_file"):
        return structs.replace(known, text=content.decode())
    path = folder / str(position)  # no name in the file system is the client's
    path.write_bytes(content)
    return structs.replace(known, file=path)


def _job(row: Row[Any]) -> JobInfo:
    values = {
        "organization": row.org_id,
        "waiting": row.files - row.done - row.failed if row.state in _UNFINISHED_STATES else 0,
        "created_at": row.created_at.replace(microsecond=0),
        "updated_at": row.updated_at.replace(microsecond=0),
        "ended_at": row.ended_at and row.ended_at.replace(microsecond=0),
        "link": f"{PATH}/{row.id}",
        "error": row.error if row.state == "failed" else None,  # others are tried again, or were
    }
    same = ("id", "index", "state", "files", "done", "failed")
    return convert({**{name: getattr(row, name) for name in same}, **values}, JobInfo)


async def _one(session: AsyncConnection, scope: Scope, job: UUID, *, lock: bool = False) -> Row[Any]:
    wanted = select(jobs_table).where(jobs_table.c.id == job, jobs_table.c.org_id.in_(scope.organizations))
    found = await session.execute(wanted.with_for_update() if lock else wanted)
    return require(found.one_or_none(), NotFound("job", str(job)))


async def _queue(session: AsyncConnection, org_id: UUID) -> None:
    values = {"org": str(org_id)}
    await session.execute(_ONE_QUEUES, values)
    await session.execute(_QUEUE, values)


_ONE_QUEUES = text("SELECT pg_advisory_xact_lock(hashtextextended('rag_app/queue/' || CAST(:org AS text), 0))")
# As `App.configure_task(...).defer_async` does, but in the transaction that makes the job. A turn that is in the queue
# is held until the job is there: a worker that took it before would find nothing.
_QUEUE = text(
    "WITH queued AS MATERIALIZED (SELECT id FROM procrastinate_jobs"
    "   WHERE queueing_lock = CAST(:org AS text) AND status = 'todo' FOR UPDATE)"
    " SELECT procrastinate_defer_jobs_v1(ARRAY[ROW("
    f"'{QUEUE}', '{TASK}', 0, CAST(:org AS text), CAST(:org AS text),"
    " jsonb_build_object('org', CAST(:org AS text)), NULL)::procrastinate_job_to_defer_v1])"
    " WHERE NOT EXISTS (SELECT FROM queued)"
    " AND EXISTS (SELECT FROM jobs WHERE org_id = CAST(:org AS uuid) AND state IN ('waiting', 'running'))"
)
_GO_ON = text(
    "SELECT DISTINCT org_id FROM jobs"
    " WHERE org_id = ANY (CAST(:organizations AS uuid[])) AND state IN ('waiting', 'running')"
)
_OF_JOB = "job_id = :job AND org_id = :org"
_LOCK = text("SELECT id FROM jobs WHERE id = :job AND org_id = :org FOR UPDATE")
_TAKE = text(
    "UPDATE jobs SET state = 'running', attempts = attempts + 1, updated_at = clock_timestamp() WHERE org_id = :org"
    " AND id = (SELECT id FROM jobs WHERE org_id = :org AND state IN ('waiting', 'running')"
    "   ORDER BY updated_at, id LIMIT 1 FOR UPDATE)"
    " RETURNING id, index_name, target, attempts"
)
_NEXT = text(
    "SELECT position, name, document, content FROM ("
    "   SELECT *, sum(bytes) OVER (ORDER BY position) - bytes AS before FROM ("
    f"     SELECT * FROM job_files WHERE {_OF_JOB} AND state = 'waiting' ORDER BY position LIMIT :files) first) next"
    " WHERE before = 0 OR before + bytes <= :bytes ORDER BY position"
)
_RECORD_FILES = text(
    "UPDATE job_files f SET state = went.state, reason = went.reason,"
    " content = CASE WHEN went.state = 'done' THEN '' ELSE content END"
    " FROM unnest(CAST(:positions AS integer[]), CAST(:states AS text[]), CAST(:reasons AS text[]))"
    " AS went (position, state, reason)"
    f" WHERE {_OF_JOB} AND f.position = went.position AND f.state IN ('waiting', 'cancelled') RETURNING f.state"
)
_RECORD = text(
    "UPDATE jobs SET done = done + :done, failed = failed + :failed, attempts = 0, error = NULL, updated_at = now(),"
    " state = CASE WHEN state <> 'running' THEN state WHEN done + failed + :done + :failed < files THEN 'running'"
    " ELSE 'done' END,"
    " ended_at = CASE WHEN done + failed + :done + :failed < files THEN ended_at ELSE now() END"
    " WHERE id = :job AND org_id = :org"
)
_END = text(
    "UPDATE jobs SET state = :state, error = :error, updated_at = now(), ended_at = now()"
    " WHERE id = :job AND org_id = :org AND state IN ('waiting', 'running')"
)
_FAIL = text(
    "UPDATE jobs SET error = :error, updated_at = now(),"
    " state = CASE WHEN attempts >= :attempts THEN 'failed' ELSE state END,"
    " ended_at = CASE WHEN attempts >= :attempts THEN now() END"
    " WHERE id = :job AND org_id = :org AND state IN ('waiting', 'running')"
)
_CANCEL_FILES = text(f"UPDATE job_files SET state = 'cancelled' WHERE {_OF_JOB} AND state = 'waiting'")
_RETRY_FILES = text(
    "UPDATE job_files f SET state = 'waiting', reason = NULL FROM (SELECT position, state FROM job_files"
    f" WHERE {_OF_JOB} AND state IN ('failed', 'cancelled')) was"
    " WHERE f.job_id = :job AND f.org_id = :org AND f.position = was.position RETURNING was.state"
)
_RETRY = text(
    "UPDATE jobs SET state = 'waiting', failed = failed - :again, attempts = 0, error = NULL, ended_at = NULL,"
    " updated_at = now() WHERE id = :job AND org_id = :org"
)
_FORGET = text("DELETE FROM jobs WHERE org_id = :org AND ended_at < now() - make_interval(days => :days)")
