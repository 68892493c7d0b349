"""`rag-app serve`, `demo` and `worker`: the database, then processes that share it."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import parent_process
from subprocess import PIPE, Popen
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from typer import Exit, Option

from rag_app.console.commands import Application, group, keep_imports, on_application, read_settings, say_home
from rag_app.domain import Misconfigured
from rag_app.stores.registry import unshared_store

if TYPE_CHECKING:
    from litestar import Litestar

    from rag_app.database.urls import DatabaseUrls
    from rag_app.settings import Settings

app = group()

_URL_FILE = "served-url"  # the file in RAG_HOME with the URL of the server that started last


@app.command()
def demo(
    check: Annotated[
        bool, Option("--check", help="do everything, then exit; the status is non-zero if a check fails")
    ] = False,
    dates: Annotated[
        Literal["fresh", "fixed"],
        Option(help="fresh: move the samples to this week; fixed: leave them in January 2026"),
    ] = "fresh",
) -> None:
    """Load the sample corpora, ask questions, then serve the pages and the API."""
    from rag_app.console.demo import run_demo

    raise Exit(run_demo(check=check, fixed=dates == "fixed"))


@app.command()
def serve(
    host: Annotated[str | None, Option(help="address to listen on (RAG_HOST)")] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help="port to listen on; 0: any free port (RAG_PORT)")] = None,
    workers: Annotated[int | None, Option(min=1, max=64, help="number of server processes (RAG_WORKERS)")] = None,
) -> None:
    """Serve the pages and the HTTP API."""
    settings = read_settings()
    say_home(settings, partial(_say, settings))
    api = settings.api
    with claim_port(host or api.host, api.port if port is None else port) as claim:
        serve_at(settings, claim, workers or api.workers)


def serve_at(settings: "Settings", claim: socket.socket, workers: int) -> None:
    """Serve until stopped, at the address that `claim` keeps.

    Raises Misconfigured where the configuration cannot work, before anything listens.
    """
    from granian.constants import HTTPModes, Interfaces
    from granian.server import Server

    from rag_app.application import wrong_settings
    from rag_app.database.urls import database_urls
    from rag_app.documents.metadata import language_identifier
    from rag_app.telemetry.setup import granian_logging, share_metrics

    host, port = claim.getsockname()[:2]
    chosen = settings.telemetry
    if wrong := wrong_settings(settings, workers):
        raise Misconfigured("; ".join(wrong))
    with database_urls(settings) as urls, share_metrics(settings.database.home, chosen.metrics, workers):
        asyncio.run(_prepare(settings, urls))
        # workers read the settings again: they are to use the database that this process keeps running
        os.environ["RAG_DATABASE_URL"] = urls.app
        if urls.owner:
            os.environ["RAG_DATABASE_OWNER_URL"] = urls.owner
        url = http_url(host, port)
        with suppress(OSError):  # a folder that cannot be written is not needed to serve
            settings.database.home.mkdir(parents=True, exist_ok=True)
            (settings.database.home / _URL_FILE).write_text(url, "utf-8")
        _say(settings, f"rag-app on {url}  (docs: {url}/docs)")
        language_identifier()  # loaded once: workers, which are forks, share it
        # What is left of the preparations ends here, or never: in a worker, which is a fork, the end of a model's session
        # would wait for threads that only this process has.
        gc.collect()
        keep_imports()
        server = Server(
            "rag_app.console.serving:create_worker",
            address=host,
            port=port,
            interface=Interfaces.ASGI,
            # To tell HTTP/2 from HTTP/1.1, Granian 2.8 waits for the first byte of a connection without an end
            http=HTTPModes.http1,
            workers=workers,
            factory=True,
            log_level=chosen.log_level,  # type: ignore[arg-type]
            log_dictconfig=granian_logging(chosen.log_format, chosen.log_level),
            websockets=False,
            respawn_failed_workers=workers > 1,
        )
        os.register_at_fork(after_in_child=_end_at_signals)
        with job_worker(settings):
            server.serve()


def _say(settings: "Settings", line: str) -> None:
    """On stderr, whatever the level of the log; in JSON as a line of the log."""
    from rag_app.telemetry.setup import formatter

    if settings.telemetry.log_format == "json":
        line = formatter("json", "info").format(
            logging.makeLogRecord({"name": __name__, "levelname": "INFO", "msg": line})
        )
    print(line, file=sys.stderr, flush=True)


def _end_at_signals() -> None:
    """A worker is a fork of Granian's process, and has its handlers until it is loaded: a SIGTERM before that would only be
    noted in the worker, and the server would wait for it for ever."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def claim_port(host: str, port: int) -> socket.socket:
    """A socket that keeps `port` (0: any that is free) from others, and does not listen. Raises Misconfigured.

    Granian listens with SO_REUSEPORT, for its workers. Two servers on one port would get each other's requests
    and never know, so each holds a claim: whoever asks for the port without that option cannot have it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    claim = socket.socket(family)
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            address = probe.getsockname()
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        claim.bind(address)
    except OSError as error:
        claim.close()
        raise Misconfigured(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another with --host and --port"
        ) from error
    return claim


def create_worker() -> "Litestar":
    """The application, in a worker process."""
    from rag_app.application import create_app

    Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    logging.getLogger().handlers.clear()  # the command's, where the worker is a fork of it
    return create_app()


def _end_with_parent() -> None:
    """Granian's workers survive a kill -9 of it, and would go on holding the port, the database and local Qdrant."""
    if parent := parent_process():
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(SECONDS_TO_STOP)
        os.kill(os.getpid(), signal.SIGKILL)


def http_url(host: str, port: int) -> str:
    """Where this machine reaches a server that listens on `host`.

    >>> http_url("0.0.0.0", 8000), http_url("::1", 8000)
    ('http://127.0.0.1:8000', 'http://[::1]:8000')
    """
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def served_url(settings: "Settings") -> str:
    """Where browsers reach the server: RAG_PUBLIC_URL, or what listens for this RAG_HOME, or RAG_HOST and RAG_PORT."""
    if settings.pages.public_url:
        return settings.pages.public_url
    with suppress(OSError, ValueError):
        url = (settings.database.home / _URL_FILE).read_text("utf-8")
        address = urlsplit(url)
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=1):
            return url
    return http_url(settings.api.host, settings.api.port)


async def _prepare(settings: "Settings", urls: "DatabaseUrls") -> None:
    """What could go wrong in a worker goes wrong here, in one line; and the secret is generated for all of them."""
    from rag_app.application import entrance, open_application

    entrance(settings)
    async with open_application(settings, urls) as application:
        await application.check_default_organization()
        for model in application.models.all if settings.names_models else ():
            if variable := model.missing_key:
                _say(settings, f"warning: {model.name} has no key, so it will refuse to answer: set {variable}")
        await application.finish_deletions()


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
