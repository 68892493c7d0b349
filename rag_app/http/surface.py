"""A surface is the definition of one HTTP API: its routes, accepted credentials, limits and errors."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from functools import partialmethod
from importlib.resources import files
from typing import Annotated, Any, TypeVar, cast

from litestar import Request, delete, get, patch, post, put
from litestar.connection import ASGIConnection
from litestar.datastructures import ResponseHeader
from litestar.di import Dependency
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.spec import (
    Example,
    SecurityRequirement,
    Tag,
)
from litestar.params import QueryParameter, SkipValidationMarker
from litestar.types import AnyCallable
from msgspec import Struct, field, structs

from rag_app.domain import (
    MOST_REQUESTS,
    BudgetSpent,
    Misconfigured,
    ModelFailed,
    ModelLimited,
    ModelTimeout,
    Principal,
    RateLimited,
    UnknownField,
)
from rag_app.http.bodies import JsonBody
from rag_app.http.problems import KINDS, Envelope, Kinds, document_errors, error_body

T = TypeVar("T")

Injected = Annotated[T, Dependency(), SkipValidationMarker()]
"""How a handler asks for a service, by its name: `pipeline: Injected[Pipeline]`. Its type is not checked on each
request."""

AnyConnection = ASGIConnection[Any, Any, Any, Any]
Caller = Request[Principal, Any, Any]
"""A request whose caller is known: `caller.user`."""

Route = Callable[[AnyCallable], HTTPRouteHandler]

MODEL_ERRORS = (ModelTimeout(), ModelFailed(), ModelLimited(), BudgetSpent(1_000_000, 1_000_400, 1704067200))
"""Errors that any route which answers questions lists among its own."""

_Decorate = Callable[..., Route]
_LONGEST_NAME = 100
_BODY_ERRORS = (HTTPException(status_code=413), HTTPException(status_code=415))
_DECODING_OPTIONS = {"dto": JsonBody, "return_dto": None}


class Credential(StrEnum):
    """A kind of credential."""

    JWT = "jwt"  # a person's token: `Authorization: Bearer`
    COOKIE = "cookie"  # the same token in the session cookie, sent from a configured origin
    EXTENSION = "extension"  # a token issued to a browser extension, with the header `x-ext-client`
    SESSION = "session"  # the cookie of a browser that is signed in to the pages, on requests of these pages alone
    API_KEY = "api_key"  # a key: `Authorization: Bearer` or `x-api-key`
    NONE = "none"  # nothing at all: a member of the default organization, where the settings name one


def security(accepted: Collection[Credential]) -> list[SecurityRequirement]:
    """The OpenAPI security of an operation that accepts any one of these credentials.

    >>> security({Credential.API_KEY, Credential.NONE})
    [{'api_key': []}, {'api_key_as_bearer': []}, {}]
    """
    return [{name: [] for name in scheme} for each in Credential if each in accepted for scheme in _SCHEMES[each]]


_SCHEMES: Mapping[Credential, Sequence[Sequence[str]]] = {
    Credential.JWT: [["bearer"]],
    Credential.COOKIE: [["cookie"]],
    Credential.SESSION: [],  # for the pages of this server, so no client is told of it
    Credential.EXTENSION: [["bearer", "extension"]],
    Credential.API_KEY: [["api_key"], ["api_key_as_bearer"]],
    Credential.NONE: [[]],
}
# Of each credential: the ways to show it, and of each way the schemes it needs at once


def example(room: str, name: str) -> Example:
    """`examples/NAME.json` in a surface's package; the contract tests send the same."""
    return Example(value=json.loads((files(room) / "examples" / f"{name}.json").read_text("utf-8")))


def declared_alone(connection: AnyConnection, handler: BaseRouteHandler) -> None:
    """A guard that refuses query parameters that the handler does not declare; Litestar would ignore them."""
    declared = {
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    }
    for name in connection.query_params:
        if name not in declared:
            raise UnknownField(name[:_LONGEST_NAME], declared)


STRICT: Mapping[str, Any] = {"guards": [declared_alone]}
"""Options of a surface whose handlers refuse what they do not declare."""


class Surface(Struct, frozen=True):
    """`paths` are the prefixes of all its paths; errors below them use its envelope.

    `limit` is each principal's requests in any 60 seconds, `concurrent` the number at the same time; None is no limit.
    `windows` are limits of handlers that are counted separately: those with the option `opt={"window": name}`.
    `errors`: samples of what any operation may raise, for the OpenAPI document. `options`: Litestar's options for every
    handler without its own.

    Its decorators create and register handlers, each with a path, a summary, and samples of its own errors. `post` responds
    with 200 unless `status_code` is given.

    >>> surface = Surface("greeting", Tag("greeting"), ("/greeting/",), 60)
    >>> @surface.get("/greeting/hello", summary="A greeting")
    ... async def hello() -> str:
    ...     return "hello"
    >>> surface.handlers == [hello]
    True
    """

    name: str
    tag: Tag
    paths: tuple[str, ...]
    limit: int | None
    concurrent: int | None = None
    windows: Mapping[str, int | None] = field(default_factory=dict)
    credentials: frozenset[Credential] = frozenset({Credential.JWT})
    envelope: Envelope = error_body
    kinds: Kinds = field(default_factory=lambda: KINDS)
    errors: Sequence[Exception] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    handlers: list[HTTPRouteHandler] = field(default_factory=list)

    def _route(
        self,
        method: Callable[..., Route],
        usual: Mapping[str, Any],
        path: str | Sequence[str],
        *errors: Exception,
        **options: Any,
    ) -> Route:
        limit = self.limit or MOST_REQUESTS
        shared = {
            "tags": [self.tag.name],
            "security": security(self.credentials),
            "responses": {
                **document_errors(
                    *errors,
                    *(_BODY_ERRORS if usual else ()),
                    RateLimited(limit, 1704067200),
                    *self.errors,
                    kinds=self.kinds,
                    envelope=self.envelope,
                ),
                **options.pop("responses", {}),
            },
            "response_headers": [
                ResponseHeader("X-RateLimit-Limit", True, cast(str, limit), "requests allowed in any 60 seconds"),
                ResponseHeader("X-RateLimit-Remaining", True, cast(str, limit - 1), "requests left now"),
                ResponseHeader(
                    "X-RateLimit-Reset",
                    True,
                    cast(str, 1704067200),  # its type is the documented one
                    "when the next request will be accepted: Unix time in seconds",
                ),
                *options.pop("response_headers", ()),
            ],
        }

        def keep(function: AnyCallable) -> HTTPRouteHandler:
            described = {"response_description": options.get("summary"), **options}
            self.handlers.append(method(path, **{**shared, **self.options, **usual, **described})(function))
            return self.handlers[-1]

        return keep

    get = cast(_Decorate, partialmethod(_route, get, {}))
    delete = cast(_Decorate, partialmethod(_route, delete, {}))
    post = cast(_Decorate, partialmethod(_route, post, {"status_code": 200, **_DECODING_OPTIONS}))
    put = cast(_Decorate, partialmethod(_route, put, _DECODING_OPTIONS))
    patch = cast(_Decorate, partialmethod(_route, patch, _DECODING_OPTIONS))


def with_limits(
    surfaces: Sequence[Surface], requests: Mapping[str, int], concurrent: Mapping[str, int]
) -> tuple[Surface, ...]:
    """The surfaces with other limits: `requests` by the name of a surface or of one of its windows; 0 is no limit.

    Raises Misconfigured for an unknown name.

    >>> [chat] = with_limits([Surface("chat", Tag("chat"), ("/chat/",), 60)], {"chat": 600}, {})
    >>> chat.limit
    600
    """
    names = {each.name for each in surfaces}
    windows = {name for each in surfaces for name in each.windows}
    for setting, given, known in (
        ("RAG_REQUESTS_PER_MINUTE", requests, names | windows),
        ("RAG_CONCURRENT_REQUESTS", concurrent, names),
    ):
        if unknown := sorted(given.keys() - known):
            raise Misconfigured(f"{setting}: there is no {unknown[0]!r}; accepted: {', '.join(sorted(known))}")
    return tuple(
        structs.replace(
            each,
            limit=requests.get(each.name, each.limit) or None,
            concurrent=concurrent.get(each.name, each.concurrent) or None,
            windows={name: requests.get(name, limit) or None for name, limit in each.windows.items()},
        )
        for each in surfaces
    )


def surface_of(path: str, surfaces: Sequence[Surface]) -> Surface | None:
    """The surface that a path belongs to, if any."""
    return next((surface for surface in surfaces if path.startswith(surface.paths)), None)
