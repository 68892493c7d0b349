"""Signing in and out: by a link that the operator hands out, or as a sample user of the demo."""

import re
from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID

from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException, NotFoundException
from litestar.handlers import BaseRouteHandler

from rag_app.access.people import People
from rag_app.access.sessions import Sessions
from rag_app.domain import NotFound, Unauthenticated, frozen
from rag_app.http.entrance import PAGES_COOKIES, AnyConnection, is_same_origin, pages_cookie
from rag_app.http.problems import AnyRequest
from rag_app.http.surface import Injected
from rag_app.surfaces.pages.site import Html, action, local_path, page, redirect, render, visit_of

DEMO_MEMBER, DEMO_OTHER, DEMO_ADMINISTRATOR = "mila@aurora.example", "jonas@birch.example", "ada@aurora.example"
DEMO_USERS = {
    DEMO_MEMBER: "a member of Aurora",
    DEMO_OTHER: "a member of Birch, who sees nothing of Aurora",
    DEMO_ADMINISTRATOR: "a member of Aurora who administers",
}
"""Who one can be in the demo; the first is who one is to begin with."""

MISDIRECTED = 421
_FORWARDED = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
_LOOPBACK_HOST = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?")


@frozen
class SigningIn:
    """How this server signs people in. `demo`: without anything to show, on this machine."""

    sessions: Sessions
    people: People
    demo: bool = False


def stay_near(connection: AnyConnection, _: BaseRouteHandler) -> None:
    """A guard of the demo, whose pages ask for no proof: this machine alone reaches them, under a name of this machine.

    Another name that leads here is a page elsewhere that had its own name point to this address (DNS rebinding).
    """
    if not is_near(connection):
        raise HTTPException(status_code=MISDIRECTED, detail="The demo answers browsers on this machine, at 127.0.0.1")


def is_near(connection: AnyConnection) -> bool:
    """Whether a request comes from this machine, from no proxy on it, and asks for it by a loopback address."""
    if _FORWARDED & set(connection.headers.keys()) or connection.client is None:
        return False
    hosts = connection.headers.getall("host", [])
    try:
        near = ip_address(connection.client.host).is_loopback
    except ValueError:
        return False
    return near and len(hosts) == 1 and _LOOPBACK_HOST.fullmatch(hosts[0].lower()) is not None


@page("/sign-in", open_to_all=True)
async def sign_in(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    return show_ways(request, signing_in)


def show_ways(request: AnyRequest, signing_in: SigningIn, status: int = 200, problem: str | None = None) -> Html:
    """The page on which people sign in. A code is in it for a moment: no other page is told where it is."""
    after = local_path(request.query_params.get("next", "/"))
    users = DEMO_USERS if signing_in.demo else {}
    return render(
        request,
        "sign-in.html",
        status=status,
        headers={"Referrer-Policy": "no-referrer"},
        after=after,
        users=users,
        problem=problem,
        ways=WAYS,
    )


WAYS: list[Callable[[str], tuple[str, str] | None]] = []
"""Further ways to sign in, and then to go to a path: each gives its own path and what its link says, or None."""


@action("/sign-in/code", open_to_all=True)
async def take_code(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """A code becomes a session. It works once: who follows the link again is told so."""
    form = await request.form()
    code, after = str(form.get("code", "")).strip(), local_path(str(form.get("next", "/")))
    try:
        user = await signing_in.sessions.take_code(code)
    except Unauthenticated as error:
        return show_ways(request, signing_in, status=401, problem=str(error))
    return await welcome(request, signing_in.sessions, user, after)


@page("/sign-in/demo", open_to_all=True)
async def enter_demo(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """Whoever opens the demo is its first user. Not for what a page of another site loads, frames or reads."""
    if not signing_in.demo:
        raise NotFoundException
    after = local_path(request.query_params.get("next", "/"))
    site = request.headers.get("sec-fetch-site", "none")
    if site not in {"none", "same-origin"} or ("origin" in request.headers and not is_same_origin(request)):
        return redirect(request, "/sign-in")
    if visit_of(request) is not None:
        return redirect(request, after)
    return await enter_as(request, signing_in, DEMO_MEMBER, after)


@action("/sign-in/demo", open_to_all=True)
async def change_user(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    name = str((await request.form()).get("user", ""))
    if not signing_in.demo or name not in DEMO_USERS:
        raise NotFoundException
    return await enter_as(request, signing_in, name, "/")


async def enter_as(request: AnyRequest, signing_in: SigningIn, name: str, after: str) -> Html:
    try:
        user = await signing_in.people.user(name)
    except NotFound:
        return show_ways(request, signing_in, status=401, problem="The demo's users are not here: run `make demo`")
    return await welcome(request, signing_in.sessions, user.id, after)


@action("/sign-out", open_to_all=True)
async def sign_out(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    cookie = pages_cookie(request)
    if cookie is not None:
        await signing_in.sessions.close(cookie)
    response = redirect(request, "/sign-in", said="You have signed out.")
    response.headers["Clear-Site-Data"] = '"cache", "storage"'
    response.cookies = [*response.cookies, *(_cookie(name, "", max_age=0) for name in PAGES_COOKIES)]
    return response


async def welcome(request: AnyRequest, sessions: Sessions, user: UUID, after: str) -> Html:
    """A new session, in place of the one there is; then `after`."""
    cookie = await sessions.open(user, instead_of=pages_cookie(request))
    secure = urlsplit(request.headers.get("origin") or str(request.base_url)).scheme == "https"
    response = redirect(request, local_path(after))
    kept, dropped = PAGES_COOKIES if secure else PAGES_COOKIES[::-1]
    response.cookies = [*response.cookies, _cookie(kept, cookie)]
    if dropped in request.cookies:
        response.cookies = [*response.cookies, _cookie(dropped, "", max_age=0)]
    return response


def _cookie(name: str, value: str, max_age: int | None = None) -> Cookie:
    secure = name.startswith("__Host-")
    return Cookie(name, value=value, path="/", httponly=True, samesite="lax", secure=secure, max_age=max_age)
