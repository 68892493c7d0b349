"""Builds the HTTP application from the given surfaces. Adds routes for health, metrics and the OpenAPI document."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from time import perf_counter
from typing import Annotated, Any, Literal

from litestar import Litestar, Response, Router, get, route
from litestar.config.cors import CORSConfig
from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.di import Provide
from litestar.enums import ScopeType
from litestar.exceptions import NotFoundException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import SwaggerRenderPlugin
from litestar.openapi.spec import Components, OpenAPI, Reference, SecurityScheme, Tag
from litestar.response import Redirect
from litestar.static_files import create_static_files_router
from litestar.types import BeforeMessageSendHookHandler, Message, Receive, Scope, Send
from msgspec import Meta, Struct

from rag_app.access.people import PREFIX as KEY_PREFIX
from rag_app.access.tokens import bearer_token
from rag_app.domain import Forbidden, JsonObject, Unauthenticated
from rag_app.http.entrance import API_KEY_HEADER, EXTENSION_HEADER, Access, Entrance, gate, is_local_client
from rag_app.http.exchange import REQUEST_ID_HEADER, Client, begin, finish, logger
from rag_app.http.fields import COMPONENT
from rag_app.http.problems import KINDS, UNTIL_BACK, AnyRequest, error_body, respond
from rag_app.http.surface import AnyConnection, Injected, Surface, security, surface_of
from rag_app.telemetry.observing import RequestSpan

Lifespan = Callable[[Litestar], AbstractAsyncContextManager[Any]]


_STATUS_CLIENT_LEFT = 499  # for what has no status: its client has gone before there was one. nginx's number

LARGEST_BODY = 1_000_000  # bytes. The longest question is 2 kB in the widest script

PAGE = "/docs"
ASSETS = "/docs/assets"
# What the page loads, as it lies in the wheel of litestar-offline-docs: nothing from other hosts

_LONGEST_NAME = 255  # bytes, of a file on Linux

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
        "prefer",
        "last-event-id",
        "idempotency-key",
        "if-match",
        "if-none-match",
    ],
    expose_headers=[
        "X-RateLimit-Limit",
        "X-RateLimit-Remaining",
        "X-RateLimit-Reset",
        "Retry-After",
        REQUEST_ID_HEADER,
        "Location",
        "Idempotency-Replayed",
        "ETag",
    ],
)


_HEALTH = Tag("health", "checks for load balancers and orchestrators")

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""Each part the application needs, by name: "ok", or what is wrong with it."""


Scrape = Callable[[str], tuple[str, bytes]]
"""From an Accept header to a content type and the numbers."""


class _Api(Litestar):
    """Litestar that gives requests an id before routing, so that a 404 has one too.

    HEAD is answered like GET; `Client` omits the body (RFC 9110, 9.3.2). Work for a client that has left is stopped, and
    each exchange is closed in any case.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if scope["type"] != ScopeType.HTTP:
            await super().__call__(scope, receive, send)
            return
        current = begin(scope)
        client = Client(scope, receive, send, current)
        served = RequestSpan(scope["method"], scope["scheme"], Headers.from_scope(scope))
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        try:
            await client.attend(super().__call__(scope, client.receive, client.send))
        except Exception as error:  # after the response has begun; the server would log what it says
            current.status = 500
            logger.exception("a response broke off")
            raise RuntimeError(f"{type(error).__name__} in a response") from None
        finally:
            await current.close()
            route = scope.get("path_template", "")
            served.end(route, scope["path"], current.status or _STATUS_CLIENT_LEFT, perf_counter() - current.started)


class Site(Struct, frozen=True):
    """The pages at `/`. `show_error` renders errors outside surfaces."""

    routers: Sequence[Router]
    show_error: Callable[[AnyRequest, Exception], Response[Any]]


def api(
    services: Mapping[str, object],
    access: Access,
    entrance: Entrance,
    surfaces: Sequence[Surface],
    *,
    version: str,
    lifespan: Sequence[Lifespan] = (),
    metrics: HTTPRouteHandler | None = None,
    site: Site | None = None,
) -> Litestar:
    """All surfaces, health and documentation as one ASGI application.

    `services`: what handlers ask for, by the name of their parameter: those of the surfaces, and `readiness`. `lifespan`: makers of context managers, entered before the first request and left after the last. `metrics`: the
    route of the numbers, where they are wanted. `site`: the pages, likewise.
    """

    def on_error(request: AnyRequest, error: Exception) -> Response[Struct]:
        surface = surface_of(request.scope["path"], surfaces)
        if surface is None and site is not None and "text/html" in request.headers.get("accept", ""):
            return site.show_error(request, error)
        kinds, envelope = (surface.kinds, surface.envelope) if surface else (KINDS, error_body)
        return respond(request, error, kinds, envelope)

    return _Api(
        route_handlers=[
            *(
                Router("/", route_handlers=_with_options(surface.handlers), guards=[gate(surface, entrance, access)])
                for surface in surfaces
            ),
            live,
            ready,
            *(site.routers if site else [home]),
            schema,
            create_static_files_router(
                ASSETS, [str(files("litestar_offline_docs") / "static")], name="docs_assets", guards=[_a_file_name]
            ),
            *([metrics] if metrics else []),
        ],
        dependencies={name: _provide(service) for name, service in services.items()},
        exception_handlers={Exception: on_error},
        before_send=[finish, *([_with_credentials(entrance.origins)] if entrance.origins else [])],
        cors_config=CORS,
        openapi_config=_openapi(version, surfaces, entrance.cookie),
        request_max_body_size=LARGEST_BODY,
        lifespan=list(lifespan),
        logging_config=None,  # logging is the application's, not the library's
        debug=False,  # whatever the environment says: debug responses show code
    )


def _with_credentials(origins: Collection[str]) -> BeforeMessageSendHookHandler:
    """Lets pages of these origins send cookies and read responses. Litestar's CORS has one rule for all origins."""

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


def _a_file_name(connection: AnyConnection, _: BaseRouteHandler) -> None:
    """A guard that refuses impossible file names. Litestar would report the file system's errors as internal ones."""
    path = connection.scope["path"]
    if "\0" in path or len(path.encode(errors="replace")) > _LONGEST_NAME:
        raise NotFoundException


def _provide(service: object) -> Provide:
    return Provide(lambda: service, sync_to_thread=False)


def _openapi(version: str, surfaces: Sequence[Surface], cookie: str) -> OpenAPIConfig:
    """The OpenAPI document, and a page to read and try it. `cookie`: the name of the session cookie."""
    schemes: dict[str, SecurityScheme | Reference] = {
        "bearer": SecurityScheme(type="http", scheme="bearer", bearer_format="JWT"),
        "cookie": SecurityScheme(
            type="apiKey",
            security_scheme_in="cookie",
            name=cookie,
            description="The same token in a cookie; accepted only from pages of configured origins.",
        ),
        "extension": SecurityScheme(
            type="apiKey",
            security_scheme_in="header",
            name=EXTENSION_HEADER,
            description="Any text. Required with a token that was issued to a browser extension.",
        ),
        "api_key": SecurityScheme(type="apiKey", security_scheme_in="header", name=API_KEY_HEADER),
        "api_key_as_bearer": SecurityScheme(
            type="http", scheme="bearer", bearer_format=f"{KEY_PREFIX}...", description="The same key."
        ),
    }
    used = {name for surface in surfaces for way in security(surface.credentials) for name in way}
    return DocumentConfig(
        title="rag_app",
        version=version,
        description="Answers questions with verified citations, over content that only some people may see.",
        path=PAGE,
        tags=[*(surface.tag for surface in surfaces), _HEALTH],
        components=Components(security_schemes={name: scheme for name, scheme in schemes.items() if name in used}),
        use_handler_docstrings=True,
        render_plugins=[
            SwaggerRenderPlugin(
                path="/",
                js_url=f"{ASSETS}/swagger-ui-bundle.js",
                css_url=f"{ASSETS}/swagger-ui.css",
                standalone_preset_js_url=f"{ASSETS}/swagger-ui-standalone-preset.js",
                favicon='<link rel="icon" href="data:,">',
            )
        ],
    )


class Alive(Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Ready(Struct, frozen=True):
    status: Literal["ok", "unavailable"]
    checks: Annotated[dict[str, str], Meta(description='the state of each part: "ok", or what is wrong')]


@get(
    "/health/live", summary="Is the process alive?", tags=[_HEALTH.name], response_description="the process is running"
)
async def live() -> Alive:
    """Returns 200 while the process is running."""
    return Alive()


@get(
    "/health/ready",
    summary="Can it serve requests?",
    response_description="ready",
    tags=[_HEALTH.name],
    responses={503: ResponseSpec(Ready, description="not ready; `checks` says why", generate_examples=False)},
)
async def ready(readiness: Injected[Readiness]) -> Response[Ready]:
    """Checks every service that requests depend on."""
    checks = dict(await readiness())
    if all(state == "ok" for state in checks.values()):
        return Response(Ready("ok", checks))
    return Response(Ready("unavailable", checks), status_code=503, headers={"Retry-After": UNTIL_BACK})


def metrics(scrape: Scrape, token: str | None) -> HTTPRouteHandler:
    """The route `/metrics`, if enabled. It requires the token or, without one, a caller on this machine.

    Without a token it refuses requests with proxy headers, because a proxy on this machine forwards others' requests, and
    requests with an origin, because a browser on this machine may show anybody's page.
    """

    @get("/metrics", include_in_schema=False)
    async def numbers(request: AnyRequest) -> Response[bytes]:
        if token is None:
            if "origin" in request.headers or not is_local_client(request):
                raise Forbidden("Without RAG_METRICS_TOKEN, metrics can only be read from this machine")
        elif not hmac.compare_digest(
            (bearer_token(request.headers.get("authorization", "")) or "").encode(), token.encode()
        ):
            raise Unauthenticated("Send the value of RAG_METRICS_TOKEN as `Authorization: Bearer`")
        content_type, said = await asyncio.to_thread(scrape, request.headers.get("accept", ""))
        return Response(said, headers={"Content-Type": content_type})

    return numbers


@get("/openapi.json", include_in_schema=False)
async def schema(request: AnyRequest) -> JsonObject:
    return request.app.openapi_schema.to_schema()


@get("/", include_in_schema=False)
async def home() -> Redirect:
    return Redirect(PAGE)


def _with_options(handlers: Sequence[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """The handlers, preceded by OPTIONS of each path with several methods: Litestar's own lists only the first handler's."""
    allowed: dict[str, set[str]] = {}
    for handler in handlers:
        for path in handler.paths:
            allowed.setdefault(path, {"OPTIONS"}).update(handler.http_methods)
    return [*(_options(path, methods) for path, methods in allowed.items() if len(methods) > 2), *handlers]


def _options(path: str, allowed: set[str]) -> HTTPRouteHandler:
    @route(path, http_method="OPTIONS", status_code=204, include_in_schema=False)
    async def methods() -> Response[None]:
        return Response(None, headers={"Allow": ", ".join(sorted(allowed))})

    return methods


_EXAMPLES = frozenset({"example", "examples"})
_RETRY_AFTER = {
    "schema": {"type": "integer", "minimum": 0},
    "description": "seconds to wait before the next attempt; absent where the server does not know them",
}
_MAY_BE_RETRIED = ("429", "500", "503")


class DocumentConfig(OpenAPIConfig):
    """Litestar's configuration, of a document that is completed."""

    def to_openapi_schema(self) -> OpenAPI:
        return _Document(**vars(super().to_openapi_schema()))


class _Document(OpenAPI):
    def to_schema(self) -> JsonObject:
        return complete(super().to_schema())


def complete(document: JsonObject) -> JsonObject:
    """Names the schemas that stand in `$defs`, states defaults in words, and declares `Retry-After`.

    Generators take a field with a `default` for one that is always there: TypeScript requires it, Python sends it. So no field
    has one. The description of a request's field tells it; a field of a response is absent, or has its value.
    """
    schemas = document["components"]["schemas"]
    for node in [*_nodes(document)]:
        for name, schema in node.pop("$defs", {}).items():
            schemas.setdefault(name, schema)
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    sent = _reachable([each.get("requestBody") for each in operations], schemas)
    for name, schema in schemas.items():
        for node in _nodes(schema):
            for described in node.get("properties", {}).values():
                _omit_default(described, is_sent=name in sent)
    for operation in operations:
        for status in _MAY_BE_RETRIED:
            if status in operation["responses"]:
                operation["responses"][status].setdefault("headers", {})["Retry-After"] = _RETRY_AFTER
    return document


def _nodes(part: Any) -> Iterator[JsonObject]:
    """The objects of a part of the document, without those in examples."""
    if isinstance(part, dict):
        yield part
        for name, inner in part.items():
            if name not in _EXAMPLES:
                yield from _nodes(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _nodes(inner)


def _reachable(parts: Any, schemas: JsonObject) -> set[str]:
    """The names of the schemas that parts refer to, and of those that these refer to."""
    found: set[str] = set()
    waiting = [parts]
    while waiting:
        for node in _nodes(waiting.pop()):
            name = str(node.get("$ref", "")).removeprefix(COMPONENT)
            if name in schemas and name not in found:
                found.add(name)
                waiting.append(schemas[name])
    return found


def _omit_default(described: JsonObject, *, is_sent: bool) -> None:
    """
    >>> size = {"type": "integer", "default": 8, "description": "a whole number"}
    >>> _omit_default(size, is_sent=True)
    >>> size
    {'type': 'integer', 'description': 'a whole number; 8 by default'}
    """
    default = described.pop("default", None)
    if not is_sent:
        for kind in described.get("oneOf", []):
            kind.pop("default", None)
    elif default not in (None, "", [], {}):
        words = f"{json.dumps(default)} by default"
        described["description"] = f"{described['description']}; {words}" if "description" in described else words
