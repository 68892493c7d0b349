"""Who may enter a surface, and how often."""

from dataclasses import dataclass
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from rag_app.api.auth import Tokens, bearer_token
from rag_app.api.collaborators import People, RateLimiter
from rag_app.api.exchange import exchange
from rag_app.domain.errors import RateLimited


@dataclass(frozen=True, slots=True)
class Gate:
    """A guard: makes the token's principal the request's user, then counts the request.

    `limit` is requests a minute for each principal, counted over all paths of `surface`. From here on every
    response carries the state of that limit, whatever becomes of the request.
    """

    surface: str
    limit: int
    tokens: Tokens
    people: People
    limiter: RateLimiter

    async def __call__(self, connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if connection.scope.get("method") == "OPTIONS":  # by definition without credentials
            return
        subject = self.tokens.subject(bearer_token(connection.headers.get("authorization")))
        principal = connection.scope["user"] = await self.people.principal(subject)
        window = await self.limiter.hit(f"{self.surface}:{principal.user or principal.subject}", self.limit)
        exchange(connection.scope).headers |= {
            "X-RateLimit-Limit": str(window.limit),
            "X-RateLimit-Remaining": str(window.remaining),
            "X-RateLimit-Reset": str(window.resets_at),
        }
        if not window.allowed:
            raise RateLimited(window.limit, window.resets_at)
