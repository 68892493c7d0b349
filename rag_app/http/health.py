"""For load balancers, orchestrators and Prometheus: is the process alive, can it serve, and what has it counted?"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from litestar import Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Tag
from msgspec import Meta, Struct

from rag_app.access.tokens import bearer_token
from rag_app.domain.errors import Forbidden, Unauthenticated
from rag_app.http.surface import Injected

TAG = Tag("health", "for load balancers and orchestrators")

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""Each part the application needs, by name: "ok", or what is wrong with it."""


Scrape = Callable[[str], tuple[str, bytes]]
"""From an Accept header to a content type and the numbers."""


class Alive(Struct, frozen=True):
    status: Literal["ok"] = "ok"


class Ready(Struct, frozen=True):
    status: Literal["ok", "unavailable"]
    checks: Annotated[dict[str, str], Meta(description='each part by name: "ok", or what is wrong with it')]


@get("/health/live", summary="Is the process alive?", tags=[TAG.name])
async def live() -> Alive:
    """Answers as long as the process does."""
    return Alive()


@get(
    "/health/ready",
    summary="Can it serve requests?",
    tags=[TAG.name],
    responses={503: ResponseSpec(Ready, description="not now: see `checks`", generate_examples=False)},
)
async def ready(readiness: Injected[Readiness]) -> Response[Ready]:
    """Asks everything that requests depend on."""
    checks = dict(await readiness())
    if all(state == "ok" for state in checks.values()):
        return Response(Ready("ok", checks))
    return Response(Ready("unavailable", checks), status_code=503)


def metrics(scrape: Scrape, token: str | None) -> HTTPRouteHandler:
    """The route `/metrics`, where the settings ask for it. Whoever has the token may read it; where there is none, whoever is on this machine.

    A proxy on this machine speaks for others, and says so in its headers: those are not let in without a token. Nor are
    pages that a browser on this machine shows, whoever wrote them: it names their origin.
    """

    @get("/metrics", include_in_schema=False)
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
