"""A contract as data: its routes, who may enter, its limits, its errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, TypeVar

from litestar.di import Dependency
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Tag
from litestar.params import SkipValidationMarker

from rag_app.http.problems import KINDS, Envelope, Kind, plain_envelope

T = TypeVar("T")

Injected = Annotated[T, Dependency(), SkipValidationMarker()]
"""How a handler asks for a service, by its name: `pipeline: Injected[Pipeline]`. Its type is not checked on each
request."""


class Credential(StrEnum):
    """What a caller may show."""

    JWT = "jwt"  # a person's token: `Authorization: Bearer`
    COOKIE = "cookie"  # the same token in the session cookie, sent from a configured origin
    EXTENSION = "extension"  # a token issued to a browser extension, with the header `x-ext-client`
    API_KEY = "api_key"  # a key: `Authorization: Bearer` or `x-api-key`
    NONE = "none"  # nothing at all: a member of the default organization, where the settings name one


@dataclass(frozen=True, slots=True)
class Surface:
    """`paths` are the beginnings of all its paths; errors below them come in its envelope.

    `limit` is requests a minute for each principal, `concurrent` how many of them may be under way at once.
    """

    name: str
    tag: Tag
    paths: tuple[str, ...]
    handlers: Sequence[HTTPRouteHandler]
    limit: int
    concurrent: int | None = None
    credentials: frozenset[Credential] = frozenset({Credential.JWT})
    envelope: Envelope = plain_envelope
    kinds: Mapping[type[Exception] | int, Kind] = field(default_factory=lambda: KINDS)


def surface_of(path: str, surfaces: Sequence[Surface]) -> Surface | None:
    """The surface that a path belongs to, if any."""
    return next((surface for surface in surfaces if path.startswith(surface.paths)), None)
