"""The HTTP application, put together from what it is given."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import fields
from typing import Any

from litestar import Litestar, Request, Response, Router
from litestar.config.cors import CORSConfig
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send
from msgspec import Struct

from rag_app.api import docs, health
from rag_app.api.collaborators import Collaborators
from rag_app.api.entrance import Entrance
from rag_app.api.exchange import REQUEST_ID_HEADER, begin, finish
from rag_app.api.gate import gate
from rag_app.api.problems import KINDS, plain_envelope, respond
from rag_app.api.surface import Surface, surface_of
from rag_app.api.surfaces import SURFACES

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[Any]]

LARGEST_BODY = 1_000_000
"""Bytes. The longest question is 2 kB in the widest script."""

CORS = CORSConfig(
    allow_origins=["*"],  # and so never with credentials
    allow_methods=["GET", "POST", "OPTIONS"],
    allow_headers=["authorization", "x-client-info", "apikey", "content-type", REQUEST_ID_HEADER],
    expose_headers=[
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "Retry-After",
        REQUEST_ID_HEADER,
    ],
)


class _Api(Litestar):
    """Litestar that numbers requests before it routes them, so that a 404 has an id too."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if scope["type"] == ScopeType.HTTP:
            begin(scope)
        await super().__call__(scope, receive, send)


def api(
    collaborators: Collaborators,
    entrance: Entrance,
    *,
    version: str,
    lifespan: Sequence[Lifespan] = (),
    surfaces: Sequence[Surface] | None = None,
) -> Litestar:
    """All surfaces, health and documentation as one ASGI application.

    `lifespan`: makers of context managers, entered before the first request and left after the last. `surfaces`: all
    there are, where it is None.
    """
    surfaces = SURFACES if surfaces is None else surfaces

    def on_error(request: Request[Any, Any, Any], error: Exception) -> Response[Struct]:
        surface = surface_of(request.scope["path"], surfaces)
        kinds, envelope = (surface.kinds, surface.envelope) if surface else (KINDS, plain_envelope)
        return respond(request, error, kinds, envelope)

    routers = [
        Router("/", route_handlers=surface.handlers, guards=[gate(surface, entrance, collaborators)])
        for surface in surfaces
    ]
    return _Api(
        route_handlers=[*routers, health.live, health.ready, docs.home, docs.schema, docs.assets()],
        dependencies={each.name: _provide(getattr(collaborators, each.name)) for each in fields(collaborators)},
        exception_handlers={Exception: on_error},
        before_send=[finish],
        cors_config=CORS,
        openapi_config=docs.openapi(version, [surface.tag for surface in surfaces] + [health.TAG]),
        request_max_body_size=LARGEST_BODY,
        lifespan=list(lifespan),
        logging_config=None,  # logging is the application's, not the library's
        debug=False,  # whatever the environment says: debug responses show code
    )


def _provide(collaborator: object) -> Provide:
    return Provide(lambda: collaborator, sync_to_thread=False)
