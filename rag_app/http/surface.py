"""A contract as data: its routes, who may enter, its limits, its errors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from litestar import Response, delete, get, patch, post, put, route
from litestar.di import Dependency
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Tag
from litestar.params import SkipValidationMarker
from litestar.types import AnyCallable

from rag_app.domain.errors import RateLimited
from rag_app.http.bodies import JsonBody
from rag_app.http.docs import rate_limit_headers, security
from rag_app.http.entrance import Credential
from rag_app.http.problems import KINDS, Envelope, Kind, documented, plain_envelope

__all__ = ["Credential", "Injected", "Surface", "surface_of", "with_options"]

T = TypeVar("T")

Injected = Annotated[T, Dependency(), SkipValidationMarker()]
"""How a handler asks for a service, by its name: `pipeline: Injected[Pipeline]`. Its type is not checked on each
request."""

Route = Callable[[AnyCallable], HTTPRouteHandler]

_BODY_ERRORS = (HTTPException(status_code=413), HTTPException(status_code=415))


@dataclass(frozen=True, slots=True)
class Surface:
    """`paths` are the beginnings of all its paths; errors below them come in its envelope.

    `limit` is requests a minute for each principal, `concurrent` how many of them may be under way at once. `errors`:
    samples of what any operation may raise, for the OpenAPI document. `options`: of Litestar, for every handler that says
    nothing else.

    Its decorators make handlers and keep them: a handler says its path, a summary, and samples of its own errors.

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
    limit: int
    concurrent: int | None = None
    credentials: frozenset[Credential] = frozenset({Credential.JWT})
    envelope: Envelope = plain_envelope
    kinds: Mapping[type[Exception] | int, Kind] = field(default_factory=lambda: KINDS)
    errors: Sequence[Exception] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    handlers: list[HTTPRouteHandler] = field(default_factory=list)

    def get(self, path: str | Sequence[str], *errors: Exception, **options: Any) -> Route:
        return self._route(get, path, errors, options)

    def delete(self, path: str | Sequence[str], *errors: Exception, **options: Any) -> Route:
        return self._route(delete, path, errors, options)

    def post(self, path: str | Sequence[str], *errors: Exception, **options: Any) -> Route:
        """Answered with 200, where `status_code` says nothing else."""
        return self._with_body(post, path, errors, {"status_code": 200, **options})

    def put(self, path: str | Sequence[str], *errors: Exception, **options: Any) -> Route:
        return self._with_body(put, path, errors, options)

    def patch(self, path: str | Sequence[str], *errors: Exception, **options: Any) -> Route:
        return self._with_body(patch, path, errors, options)

    def _with_body(self, method: Callable[..., Route], path: Any, errors: Any, options: Mapping[str, Any]) -> Route:
        decoding = {"dto": JsonBody, "return_dto": None}
        return self._route(method, path, (*errors, *_BODY_ERRORS), {**decoding, **options})

    def _route(
        self,
        method: Callable[..., Route],
        path: str | Sequence[str],
        errors: Sequence[Exception],
        options: Mapping[str, Any],
    ) -> Route:
        samples = (*errors, RateLimited(self.limit, 1704067200), *self.errors)
        shared = {
            "tags": [self.tag.name],
            "security": security(self.credentials),
            "responses": documented(*samples, kinds=self.kinds, envelope=self.envelope),
            "response_headers": rate_limit_headers(self.limit),
        }
        decorate = method(path, **{**shared, **self.options, **options})

        def keep(function: AnyCallable) -> HTTPRouteHandler:
            handler = decorate(function)
            self.handlers.append(handler)
            return handler

        return keep


def surface_of(path: str, surfaces: Sequence[Surface]) -> Surface | None:
    """The surface that a path belongs to, if any."""
    return next((surface for surface in surfaces if path.startswith(surface.paths)), None)


def with_options(handlers: Sequence[HTTPRouteHandler]) -> list[HTTPRouteHandler]:
    """These, and before them OPTIONS of each path with several methods: Litestar's own names the first handler's only."""
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
