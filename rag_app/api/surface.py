"""A contract as data: its routes, its limit, its errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Tag

from rag_app.api.problems import KINDS, Envelope, Kind, plain_envelope


@dataclass(frozen=True, slots=True)
class Surface:
    """`paths` are the beginnings of all its paths; errors below them come in its envelope.

    `limit` is requests a minute for each principal.
    """

    name: str
    tag: Tag
    paths: tuple[str, ...]
    handlers: Sequence[HTTPRouteHandler]
    limit: int
    envelope: Envelope = plain_envelope
    kinds: Mapping[type[Exception] | int, Kind] = field(default_factory=lambda: KINDS)


def surface_of(path: str, surfaces: Sequence[Surface]) -> Surface | None:
    """The surface that a path belongs to, if any."""
    return next((surface for surface in surfaces if path.startswith(surface.paths)), None)
