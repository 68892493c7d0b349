"""`rag-app worker`: the process of ingest jobs."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import PIPE, Popen
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated

from typer import Option

from rag_app.console.commands import Application, group, on_application
from rag_app.domain import Misconfigured
from rag_app.stores.registry import unshared_store

if TYPE_CHECKING:
    from rag_app.settings import Settings

app = group()
SECONDS_TO_STOP = 10
_SECONDS_TO_RESTART = 2


@app.command()
@on_application
async def worker(
    application: Application,
    beside: Annotated[bool, Option("--beside", help="exit when stdin is closed (for a parent process)")] = False,
) -> None:
    """Process ingest jobs until stopped, at a low priority.

    Any number of workers may run on any number of machines.
    """
    if why := unshared_store(application.settings):
        raise Misconfigured(f"{why}; `rag-app serve` processes the jobs itself")
    os.nice(application.settings.jobs.niceness)
    working = asyncio.ensure_future(application.work())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    if beside:
        Thread(target=_end_with_stdin, name="end-with-stdin", daemon=True).start()
    with suppress(asyncio.CancelledError):
        await working


def _end_with_stdin() -> None:
    while os.read(sys.stdin.fileno(), 1):  # not by the buffer, whose lock the end of the process would wait for
        pass
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def job_worker(settings: "Settings") -> Iterator[None]:
    """A `rag-app worker` in a process of its own, and another one should it die; ends with the context, or this process.

    None where the settings want none, or a store belongs to the server's own process, which then does the jobs.
    """
    if not settings.jobs.worker or unshared_store(settings):
        yield
        return
    running: list[Popen[bytes]] = []
    stopping = Event()

    def keep() -> None:
        while not stopping.is_set():
            command = [sys.executable, "-m", "rag_app", "worker", "--beside"]
            running[:] = [Popen(command, stdin=PIPE, start_new_session=True)]  # noqa: S603 - this program
            running[0].wait()
            stopping.wait(_SECONDS_TO_RESTART)

    keeping = Thread(target=keep, name="job-worker", daemon=True)
    keeping.start()
    try:
        yield
    finally:
        stopping.set()
        for process in running:
            process.terminate()
        keeping.join(SECONDS_TO_STOP)
        for process in running:
            process.kill()
