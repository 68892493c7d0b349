"""The HTTP application, put together from what it is given."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from time import perf_counter
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.config.cors import CORSConfig
from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.handlers import HTTPRouteHandler
from litestar.types import BeforeMessageSendHookHandler, Message, Receive, Scope, Send
from msgspec import Struct

from rag_app.http import docs, health
from rag_app.http.entrance import API_KEY_HEADER, EXTENSION_HEADER, Entrance
from rag_app.http.exchange import REQUEST_ID_HEADER, Client, begin, finish
from rag_app.http.gate import Access, gate
from rag_app.http.problems import KINDS, plain_envelope, respond
from rag_app.http.surface import Surface, surface_of, with_options
from rag_app.telemetry.observing import Served

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[Any]]

logger = logging.getLogger("rag_app.http")

_GONE = 499
"""For what has no status: its client has gone before there was one. nginx's number."""

LARGEST_BODY = 1_000_000
"""Bytes. The longest question is 2 kB in the widest script."""

CORS = CORSConfig(
    allow_origins=["*"],  # and so never with credentials: see `_with_credentials`
    allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
    allow_headers=[
        "authorization",
        "x-client-info",
        "apikey",
        "content-type",
        API_KEY_HEADER,
        EXTENSION_HEADER,
        REQUEST_ID_HEADER,
    ],
    expose_headers=[
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "Retry-After",
        REQUEST_ID_HEADER,
    ],
)


class _Api(Litestar):
    """Litestar that numbers requests before it routes them, so that a 404 has an id too.

    It stops working for clients that have gone away, and closes each exchange, whatever becomes of it.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if scope["type"] != ScopeType.HTTP:
            await super().__call__(scope, receive, send)
            return
        current = begin(scope)
        client = Client(scope, receive, send, current)
        served = Served(scope["method"], scope["scheme"], Headers.from_scope(scope))
        try:
            await client.attend(super().__call__(scope, client.receive, client.send))
        except Exception as error:  # after the response has begun; the server would log what it says
            current.status = 500
            logger.error("a response broke off", exc_info=error)
            raise RuntimeError(f"{type(error).__name__} in a response") from None
        finally:
            await current.close()
            seconds = perf_counter() - current.started
            served.end(scope.get("path_template", ""), scope["path"], current.status or _GONE, seconds)


def api(
    services: Mapping[str, object],
    access: Access,
    entrance: Entrance,
    surfaces: Sequence[Surface],
    *,
    version: str,
    lifespan: Sequence[Lifespan] = (),
    metrics: HTTPRouteHandler | None = None,
) -> Litestar:
    """All surfaces, health and documentation as one ASGI application.

    `services`: what handlers ask for, by the name of their parameter: those of the surfaces, and `readiness`. `lifespan`: makers of context managers, entered before the first request and left after the last. `metrics`: the
    route of the numbers, where they are wanted.
    """

    def on_error(request: Request[Any, Any, Any], error: Exception) -> Response[Struct]:
        surface = surface_of(request.scope["path"], surfaces)
        kinds, envelope = (surface.kinds, surface.envelope) if surface else (KINDS, plain_envelope)
        return respond(request, error, kinds, envelope)

    routers = [
        Router("/", route_handlers=with_options(surface.handlers), guards=[gate(surface, entrance, access)])
        for surface in surfaces
    ]
    return _Api(
        route_handlers=[
            *routers,
            health.live,
            health.ready,
            docs.home,
            docs.schema,
            docs.assets(),
            *([metrics] if metrics else []),
        ],
        dependencies={name: _provide(service) for name, service in services.items()},
        exception_handlers={Exception: on_error},
        before_send=[finish, *([_with_credentials(entrance.origins)] if entrance.origins else [])],
        cors_config=CORS,
        openapi_config=docs.openapi(
            version,
            [surface.tag for surface in surfaces] + [health.TAG],
            {credential for surface in surfaces for credential in surface.credentials},
            entrance.cookie,
        ),
        request_max_body_size=LARGEST_BODY,
        lifespan=list(lifespan),
        logging_config=None,  # logging is the application's, not the library's
        debug=False,  # whatever the environment says: debug responses show code
    )


def _with_credentials(origins: Collection[str]) -> BeforeMessageSendHookHandler:
    """Lets pages of these origins send cookies, and read what comes back. Litestar's CORS knows one rule for all."""

    async def allow(message: Message, scope: Scope) -> None:
        if message["type"] != "http.response.start" or scope["type"] != ScopeType.HTTP:
            return
        headers = MutableScopeHeaders.from_message(message)
        if "Origin" not in headers.get("Vary", ""):
            headers.extend_header_value("Vary", "Origin")
        origin = Headers.from_scope(scope).get("origin", "")
        if origin in origins:
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Allow-Credentials"] = "true"

    return allow


def _provide(service: object) -> Provide:
    return Provide(lambda: service, sync_to_thread=False)
