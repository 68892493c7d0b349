"""For load balancers and orchestrators: is the process alive, and can it serve?"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal

from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Tag
from msgspec import Meta, Struct

from rag_app.http.surface import Injected

TAG = Tag("health", "for load balancers and orchestrators")

Readiness = Callable[[], Awaitable[Mapping[str, str]]]
"""Each part the application needs, by name: "ok", or what is wrong with it."""


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
