"""`GET /metrics`, where the settings ask for it: numbers for Prometheus."""

import asyncio
import hmac
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler

from rag_app.access.tokens import bearer_token
from rag_app.domain.errors import Forbidden, Unauthenticated

PATH = "/metrics"

Scrape = Callable[[str], tuple[str, bytes]]
"""From an Accept header to a content type and the numbers."""


def metrics(scrape: Scrape, token: str | None) -> HTTPRouteHandler:
    """The route. Whoever has the token may read it; where there is none, whoever is on this machine.

    A proxy on this machine speaks for others, and says so in its headers: those are not let in without a token. Nor are
    pages that a browser on this machine shows, whoever wrote them: it names their origin.
    """

    @get(PATH, include_in_schema=False)
    async def numbers(request: Request[Any, Any, Any]) -> Response[bytes]:
        if token is None:
            if not _is_near(request):
                raise Forbidden("Without RAG_METRICS_TOKEN this is shown to this machine alone")
        elif not hmac.compare_digest(
            (bearer_token(request.headers.get("authorization", "")) or "").encode(), token.encode()
        ):
            raise Unauthenticated("Send the token of RAG_METRICS_TOKEN: `Authorization: Bearer`")
        content_type, said = await asyncio.to_thread(scrape, request.headers.get("accept", ""))
        return Response(said, headers={"Content-Type": content_type})

    return numbers


def _is_near(request: Request[Any, Any, Any]) -> bool:
    if {"forwarded", "x-forwarded-for", "x-real-ip", "origin"} & set(request.headers.keys()) or request.client is None:
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False
