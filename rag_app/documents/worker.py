"""Takes jobs from Procrastinate's queue (docs/adr/0017-the-queue.md) until it is stopped.

Does what the library leaves to its users: requeues the turns of dead workers, and restarts a worker that has lost
PostgreSQL when PostgreSQL is back.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status

from rag_app.database.session import asyncpg_url
from rag_app.documents.jobs import QUEUE, TASK

log = logging.getLogger(__name__)

_HEARTBEAT, _SILENT = 5.0, 20.0  # seconds between two signs of life of a worker, and after which it counts as gone
_POLL = 2.0  # seconds between two looks at the queue, should a notification be lost
_TO_STOP = 8.0  # seconds that a turn may still take when the worker is to stop; then the next worker does it again
_CANCEL_AGAIN = 1.0  # seconds after which a task that was cancelled and goes on is cancelled again
_PAUSE = 3  # seconds after which a turn that failed is taken again; each time that many more

TakeTurn = Callable[[UUID], Awaitable[None]]
"""Does an organization's turn."""


async def work(url: str, take_turn: TakeTurn) -> None:
    """Take turns until cancelled, one at a time: each process is one worker."""
    while True:
        try:
            async with _open(url, take_turn) as app:
                await app.run_worker_async(
                    queues=[QUEUE],
                    concurrency=1,
                    fetch_job_polling_interval=_POLL,
                    update_heartbeat_interval=_HEARTBEAT,
                    stalled_worker_timeout=_SILENT,
                    shutdown_graceful_timeout=_TO_STOP,
                    delete_jobs="always",
                    install_signal_handlers=False,
                )
        except Exception as error:  # PostgreSQL is away, in one of the many ways that two drivers have to say so
            log.warning("The worker has lost the queue, and tries again: %s", error)
        await asyncio.sleep(_POLL)


@asynccontextmanager
async def _open(url: str, take_turn: TakeTurn) -> AsyncIterator[App]:
    app = App(connector=PsycopgConnector(conninfo=libpq_url(url), min_size=1, max_size=4))
    ended: dict[int | None, float] = {}

    @app.task(name=TASK, queue=QUEUE, pass_context=True, retry=RetryStrategy(linear_wait=_PAUSE))
    async def turn(context: JobContext, org: str) -> None:
        ended.pop(context.job.id, None)  # it is taken again
        try:
            await take_turn(UUID(org))
        except Exception as error:
            log.warning("A turn of organization %s failed: %s", org, error)
            raise
        finally:
            ended[context.job.id] = time.monotonic()

    async with app.open_async():
        sweeping = asyncio.create_task(_sweep(app, ended))
        try:
            yield app
        finally:
            await _cancel(sweeping)


async def _cancel(task: asyncio.Task[None]) -> None:
    """Cancel until the task ends: a pool that is handing out a connection can swallow the first cancellation."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN)


async def _sweep(app: App, ended: dict[int | None, float]) -> None:
    """Requeue the turns of dead workers, and this worker's turns that ended without a record."""
    while True:
        await asyncio.sleep(_HEARTBEAT)
        try:
            stalled = {job.id for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=_SILENT)}
            for turn, moment in [*ended.items()]:
                if turn is None or time.monotonic() - moment < _HEARTBEAT:
                    continue
                del ended[turn]
                with suppress(ConnectorException):  # it is gone, as it should be
                    if await app.job_manager.get_job_status_async(turn) == Status.DOING:
                        stalled.add(turn)
            for each in stalled:
                if each is not None:
                    await _give_back(app, each)
        except ConnectorException as error:
            log.warning("The queue could not be swept: %s", error)


async def _give_back(app: App, turn: int) -> None:
    from procrastinate.utils import utcnow

    try:
        await app.job_manager.retry_job_by_id_async(turn, retry_at=utcnow())
    except ConnectorException:  # the organization's next turn is in the queue: this one was done, but for its end
        await app.job_manager.finish_job_by_id_async(turn, status=Status.SUCCEEDED, delete_job=True)


def libpq_url(url: str) -> str:
    """The URL for libpq, which has another parameter for TLS.

    >>> libpq_url("postgres://rag_app@db/rag?ssl=require")
    'postgresql://rag_app@db/rag?sslmode=require'
    """
    parsed = asyncpg_url(url)
    query = {"sslmode" if name == "ssl" else name: value for name, value in parsed.query.items()}
    return parsed.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
