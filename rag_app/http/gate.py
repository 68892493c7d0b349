"""Who may enter a surface, how often, and how many requests at once."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from rag_app.access.keys import Keys
from rag_app.access.limits import Leases, RateLimiter
from rag_app.access.people import People
from rag_app.domain.errors import RateLimited, StoreFailed, TooManyAtOnce
from rag_app.http.entrance import Entrance
from rag_app.http.exchange import exchange
from rag_app.http.surface import Surface
from rag_app.telemetry.observing import Stage, identify

logger = logging.getLogger("rag_app.http")


@dataclass(frozen=True, slots=True)
class Access:
    """Who callers are and what they have used: what every surface asks before a request is handled."""

    people: People
    keys: Keys
    limiter: RateLimiter
    leases: Leases


def gate(surface: Surface, entrance: Entrance, access: Access) -> Guard:
    """A guard that authenticates the caller, then counts the request against the caller's rate limit of the surface.

    From then on every response carries the state of that limit. Where the surface limits concurrent requests, the
    request also holds a lease until its response is finished or its client has gone; a request that gets none still
    counts.
    """

    # A function and not an object with attributes: Litestar makes deep copies of guards, and of a database's pool.
    async def enter(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if connection.scope.get("method") == "OPTIONS":  # by definition without credentials
            return
        with Stage("entrance"):
            principal = connection.scope["user"] = await entrance.principal(
                connection, surface.credentials, access.people, access.keys
            )
            who = f"{surface.name}:{principal.user or principal.subject}"
            window = await access.limiter.hit(who, surface.limit)
        identify(user=principal.user)
        current = exchange(connection.scope)
        current.headers |= {
            "X-RateLimit-Limit": str(window.limit),
            "X-RateLimit-Remaining": str(window.remaining),
            "X-RateLimit-Reset": str(window.resets_at),
        }
        if not window.allowed:
            raise RateLimited(window.limit, window.resets_at)
        if surface.concurrent is not None:
            place = _Place(access.leases)
            current.closing.append(place.leave)
            await place.enter(who, surface.concurrent)

    return enter


class _Place:
    """A place of one request among those under way."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._taking: asyncio.Task[UUID | None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def enter(self, who: str, limit: int) -> None:
        """Raises TooManyAtOnce."""
        # a task: a request that is cancelled in the meantime must learn whether it has a place to give back
        self._taking = asyncio.create_task(self._leases.take(who, limit))
        lease = await asyncio.shield(self._taking)
        if lease is None:
            raise TooManyAtOnce(limit)
        self._keeping = asyncio.create_task(self._keep(lease))

    async def leave(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        if self._taking is None:
            return
        try:
            lease = await self._taking
            if lease is not None:
                await self._leases.give_back(lease)
        except StoreFailed as error:  # it runs out by itself
            logger.warning("a place could not be given back: %s", error)

    async def _keep(self, lease: UUID) -> None:
        while True:
            await asyncio.sleep(self._leases.extend_every)
            try:
                await self._leases.extend(lease)
            except StoreFailed as error:  # there is time for another attempt
                logger.warning("a place could not be kept: %s", error)
