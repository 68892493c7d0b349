"""All pages, as one site. A module with pages is listed here."""

from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

from litestar import Router
from litestar.connection import ASGIConnection
from litestar.di import Provide
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.types import Guard

from rag_app.access.limits import RateLimiter
from rag_app.access.openid import Provider
from rag_app.access.page_sessions import Sessions
from rag_app.access.people import People
from rag_app.domain import RateLimited
from rag_app.http.problems import KINDS, Kind
from rag_app.http.server import Site
from rag_app.surfaces.pages import administration, chat, documents, signing_in
from rag_app.surfaces.pages.signing_in import MISDIRECTED_STATUS, SigningIn, stay_near
from rag_app.surfaces.pages.site import admit, show_error, static_file

MODULES = (chat, signing_in, documents, administration)
HANDLERS = [each for module in MODULES for each in vars(module).values() if isinstance(each, HTTPRouteHandler)]

_KINDS = {
    **KINDS,
    404: Kind(404, "not_found", "This page does not exist."),
    RateLimited: Kind(
        429, "rate_limited", "Too many attempts from you or your network. Wait a minute, then try again."
    ),
    MISDIRECTED_STATUS: Kind(
        MISDIRECTED_STATUS,
        "misdirected_request",
        "The demo only answers browsers on this machine, at http://127.0.0.1.",
    ),
}


def build_site(
    people: People,
    sessions: Sessions,
    limiter: RateLimiter,
    count_question: Guard,
    *,
    tries: int,
    demo: bool = False,
    provider: Provider | None = None,
    public_url: str | None = None,
) -> Site:
    """The pages. `count_question` applies the limits of the API to forms that ask. At most `tries` attempts to sign in from one address are accepted in any 60 seconds. With `demo`, browsers on
    this machine are signed in as a sample user. `public_url` is where browsers reach the server.
    """
    show = partial(show_error, "/sign-in/demo" if demo else "/sign-in", _KINDS)
    ways = SigningIn(sessions, people, limiter, tries, demo, provider, public_url)

    async def count(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        if handler.opt.get("asks"):
            await cast(Awaitable[None], count_question(connection, handler))

    pages = Router(
        "/",
        route_handlers=HANDLERS,
        guards=[*([stay_near] if demo else []), admit(people, sessions), count],
        dependencies={"signing_in": Provide(lambda: ways, sync_to_thread=False)},
        exception_handlers={Exception: show},
    )
    return Site([pages, Router("/", route_handlers=[static_file])], show)
