"""`rag-app worker`: does jobs."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from threading import Thread
from typing import Annotated

from typer import Option

from rag_app.console.commands import Application, group, on_application
from rag_app.domain import Misconfigured
from rag_app.stores.registry import unshared_store

app = group()


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
