"""Who may enter a surface, and how often."""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from rag_app.api.collaborators import Collaborators
from rag_app.api.entrance import Entrance
from rag_app.api.exchange import exchange
from rag_app.api.surface import Surface
from rag_app.domain.errors import RateLimited


def gate(surface: Surface, entrance: Entrance, collaborators: Collaborators) -> Guard:
    """A guard that makes who asks the request's user, then counts the request, over all paths of the surface.

    From here on every response carries the state of that limit, whatever becomes of the request.
    """

    # A function and not an object with attributes: Litestar makes deep copies of guards, and of a database's pool.
    async def enter(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if connection.scope.get("method") == "OPTIONS":  # by definition without credentials
            return
        principal = connection.scope["user"] = await entrance.principal(
            connection, surface.credentials, collaborators.people, collaborators.keys
        )
        who = f"{surface.name}:{principal.user or principal.subject}"
        window = await collaborators.limiter.hit(who, surface.limit)
        exchange(connection.scope).headers |= {
            "X-RateLimit-Limit": str(window.limit),
            "X-RateLimit-Remaining": str(window.remaining),
            "X-RateLimit-Reset": str(window.resets_at),
        }
        if not window.allowed:
            raise RateLimited(window.limit, window.resets_at)

    return enter
