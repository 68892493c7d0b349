"""`rag-app serve`: the database, then worker processes that share it."""

import asyncio
import os
import socket
import sys

from rag_app.app import DatabaseUrls, database_urls, open_application
from rag_app.domain.errors import Misconfigured
from rag_app.settings import Settings


def serve(host: str | None = None, port: int | None = None, workers: int | None = None) -> None:
    """Serve until stopped. What is not given comes from the settings.

    Raises Misconfigured where the configuration cannot work, before anything listens.
    """
    from granian.constants import Interfaces
    from granian.server import Server

    settings = Settings()
    host, port, workers = host or settings.api.host, port or settings.api.port, workers or settings.api.workers
    _refuse_taken(host, port)
    settings.jwt_secret()  # generated here, so that workers share it
    with database_urls(settings) as urls:
        asyncio.run(_prepare(settings, urls, workers))
        _hand_on(urls)
        print(f"rag-app on http://{host}:{port}  (docs: http://{host}:{port}/docs)", file=sys.stderr, flush=True)
        Server(
            "rag_app.app:create_app",
            address=host,
            port=port,
            interface=Interfaces.ASGI,
            workers=workers,
            factory=True,
            log_level=settings.api.log_level,  # type: ignore[arg-type]
            websockets=False,
            respawn_failed_workers=workers > 1,
        ).serve()


async def _prepare(settings: Settings, urls: DatabaseUrls, workers: int) -> None:
    async with open_application(settings, urls) as application:
        kinds = {application.backends.kind(spec) for spec in application.indexes.values()}
        if workers > 1 and "qdrant" in kinds and not settings.store.qdrant_url:
            raise Misconfigured("local Qdrant serves one process: use --workers 1, or a Qdrant server by QDRANT_URL")
        await application.finish_deletions()


def _hand_on(urls: DatabaseUrls) -> None:
    """Workers read the settings again: they are to use the database that this process keeps running."""
    os.environ["RAG_DATABASE_URL"] = urls.app
    if urls.owner:
        os.environ["RAG_DATABASE_OWNER_URL"] = urls.owner


def _refuse_taken(host: str, port: int) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise Misconfigured(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port"
            ) from error
