"""Who may enter a surface, and how often."""

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from rag_app.api.auth import Tokens, bearer_token
from rag_app.api.collaborators import People, RateLimiter
from rag_app.api.exchange import exchange
from rag_app.domain.errors import RateLimited


def gate(surface: str, limit: int, tokens: Tokens, people: People, limiter: RateLimiter) -> Guard:
    """A guard that makes the token's principal the request's user, then counts the request.

    `limit` is requests a minute for each principal, counted over all paths of `surface`. From here on every
    response carries the state of that limit, whatever becomes of the request.
    """

    # A function and not an object with attributes: Litestar makes deep copies of guards, and of a database's pool.
    async def enter(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if connection.scope.get("method") == "OPTIONS":  # by definition without credentials
            return
        subject = tokens.subject(bearer_token(connection.headers.get("authorization")))
        principal = connection.scope["user"] = await people.principal(subject)
        window = await limiter.hit(f"{surface}:{principal.user or principal.subject}", limit)
        exchange(connection.scope).headers |= {
            "X-RateLimit-Limit": str(window.limit),
            "X-RateLimit-Remaining": str(window.remaining),
            "X-RateLimit-Reset": str(window.resets_at),
        }
        if not window.allowed:
            raise RateLimited(window.limit, window.resets_at)

    return enter
