"""Signing in and out: at an identity provider, by a link that the operator hands out, or as a sample user of the demo."""

import hmac
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, ip_address, ip_network
from urllib.parse import urlsplit
from uuid import UUID

from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException, NotFoundException
from litestar.handlers import BaseRouteHandler
from litestar.response import Redirect
from msgspec import Struct

from rag_app.access.limits import RateLimiter
from rag_app.access.openid import Attempt, Provider
from rag_app.access.page_sessions import ATTEMPT_LIFETIME, Sessions
from rag_app.access.people import People
from rag_app.domain import NotFound, RagError, RateLimited, Unauthenticated, require
from rag_app.http.entrance import PAGES_COOKIES, is_near, is_same_origin, loopback_host, pages_cookie
from rag_app.http.exchange import logger
from rag_app.http.problems import AnyRequest
from rag_app.http.surface import AnyConnection, Injected
from rag_app.surfaces.pages.site import SECURITY, Html, action, local_path, page, redirect, render, visitor_of

DEMO_MEMBER, DEMO_OTHER, DEMO_ADMINISTRATOR = "mila@aurora.example", "jonas@birch.example", "ada@aurora.example"
DEMO_ORGANIZATION = "Aurora"
"""The name of the one whose sample documents answer the example questions of pages."""
DEMO_USERS = {
    DEMO_MEMBER: "a member of Aurora",
    DEMO_OTHER: "a member of Birch, who sees nothing of Aurora",
    DEMO_ADMINISTRATOR: "a member of Aurora who administers",
}
"""Sample users of the demo. A new visitor is signed in as the first."""

ATTEMPT_COOKIES = ("__Host-rag_signing_in", "rag_signing_in")
"""Cookies of an attempt to sign in at an identity provider, over https and over http."""

CALLBACK = "/sign-in/callback"
"""The path to which the identity provider redirects the browser."""

MISDIRECTED_STATUS = 421
_NO_REFERRER = {"Referrer-Policy": "no-referrer"}
_NOT_THIS_BROWSER = "This sign-in was started in another browser, or it has expired. Start again."


class SigningIn(Struct, frozen=True):
    """How this server signs users in. With `demo`, browsers on this machine need no proof.

    `public_url` is where browsers reach the server; without one, only browsers that use a loopback address have such a URL.
    At most `tries` attempts from one address are accepted in any 60 seconds.
    """

    sessions: Sessions
    people: People
    limiter: RateLimiter
    tries: int
    demo: bool = False
    provider: Provider | None = None
    public_url: str | None = None

    async def count(self, request: AnyRequest) -> None:
        """Count an attempt to sign in, successful or not. Raises RateLimited."""
        window = await self.limiter.hit(
            f"sign_in:{network_of(request.client.host if request.client else '')}", self.tries
        )
        if not window.allowed:
            raise RateLimited(window.limit, window.resets_at)

    def url(self, request: AnyRequest) -> str | None:
        """The URL at which this browser reaches the server; None if no setting gives it and `Host` is not a loopback name."""
        host = loopback_host(request)
        return self.public_url or (f"{request.base_url.scheme}://{host}" if host else None)


def stay_near(connection: AnyConnection, _: BaseRouteHandler) -> None:
    """A guard of the demo, whose pages require no proof: only this machine may open them, by a loopback name."""
    if not is_near(connection):
        raise HTTPException(
            status_code=MISDIRECTED_STATUS, detail="The demo answers browsers on this machine, at 127.0.0.1"
        )


def network_of(host: str) -> str:
    """The network from which one machine can choose addresses: an IPv4 address, or a /64 network of IPv6.

    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3::4"), network_of("::ffff:192.0.2.7"), network_of("testserver")
    ('192.0.2.7', '2001:db8:1:2::/64', '192.0.2.7', 'testserver')
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ip_network((address, 64), strict=False))


@page("/sign-in", open_to_all=True)
async def sign_in(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    return show_ways(request, signing_in)


def show_ways(
    request: AnyRequest,
    signing_in: SigningIn,
    status: int = 200,
    problem: str | None = None,
    after: str | None = None,
) -> Html:
    """The sign-in page. Its address may contain a code, so it is sent as `Referer` to no other page."""
    after = local_path(after or str(request.query_params.get("next", "/")))
    return render(
        request,
        "sign-in.html",
        status=status,
        headers=_NO_REFERRER,
        after=after,
        users=DEMO_USERS if signing_in.demo else {},
        problem=problem,
        provider=signing_in.provider,
    )


@page("/sign-in/provider", open_to_all=True)
async def leave_for_provider(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """Redirect to the identity provider. After signing in, the browser returns to `next`."""
    provider, url = require(signing_in.provider, NotFoundException()), signing_in.url(request)
    if url is None:
        problem = f"To sign in at {provider.host}, this server's RAG_PUBLIC_URL must be set"
        return show_ways(request, signing_in, status=MISDIRECTED_STATUS, problem=problem)
    await signing_in.count(request)
    attempt = Attempt()
    try:
        address = await provider.address(attempt, url + CALLBACK)
    except RagError:
        return show_ways(request, signing_in, status=503, problem=_away(provider))
    await signing_in.sessions.begin(attempt.secret, local_path(request.query_params.get("next", "/")))
    cookie = _cookie(_name(ATTEMPT_COOKIES, url), attempt.secret, max_age=int(ATTEMPT_LIFETIME.total_seconds()))
    return Redirect(address, status_code=303, headers={**SECURITY, **_NO_REFERRER}, cookies=[cookie])


@page(CALLBACK, open_to_all=True)
async def handle_return(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """Handle the return from the identity provider, in the browser that began the attempt. An attempt is valid once."""
    await signing_in.count(request)
    url = signing_in.url(request) or ""
    name = _name(ATTEMPT_COOKIES, url)
    attempt, said = Attempt(request.cookies.get(name, "")), dict(request.query_params)
    if not hmac.compare_digest(said.get("state", "").encode("utf-8", "replace"), attempt.state.encode()):
        return show_ways(request, signing_in, status=403, problem=_NOT_THIS_BROWSER)
    try:
        after = await signing_in.sessions.finish(attempt.secret)
    except Unauthenticated:
        return show_ways(request, signing_in, status=403, problem=_NOT_THIS_BROWSER)
    response = await _believe(request, signing_in, said, attempt, url, after)
    response.headers |= _NO_REFERRER
    response.cookies = [*response.cookies, _cookie(name, "", max_age=0)]
    return response


async def _believe(
    request: AnyRequest, signing_in: SigningIn, said: dict[str, str], attempt: Attempt, url: str, after: str
) -> Html:
    """Open a session for the user whom the provider has signed in, if that user is known here."""
    provider = require(signing_in.provider, NotFoundException())
    try:
        claims = await provider.claims(said, attempt, url + CALLBACK)
    except Unauthenticated as error:
        logger.warning("nobody was signed in by %s: %s", provider.issuer, error)
        problem = f"The reply of {provider.host} cannot be used to sign in: {error}. Start again."
        return show_ways(request, signing_in, status=401, problem=problem, after=after)
    except RagError as error:
        logger.warning("nobody was signed in by %s: %s", provider.issuer, error)
        return show_ways(request, signing_in, status=503, problem=_away(provider), after=after)
    principal = await signing_in.people.principal(claims.subject, claims.groups)
    if principal.user is None:
        problem = (
            f"{provider.host} knows you as “{claims.subject}”. That user has not been invited here yet. "
            "Send this name to the operator of the server."
        )
        return show_ways(request, signing_in, status=403, problem=problem, after=after)
    return await welcome(request, signing_in.sessions, principal.user, after, url=url, groups=claims.groups)


def _away(provider: Provider) -> str:
    return f"{provider.host} does not respond as expected. Try again in a moment, or sign in with a code."


@action("/sign-in/code", open_to_all=True)
async def take_code(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """Exchange a code for a session. A code works once; using it again shows an error."""
    await signing_in.count(request)
    form = await request.form()
    code, after = str(form.get("code", "")).strip(), local_path(str(form.get("next", "/")))
    try:
        user = await signing_in.sessions.take_code(code)
    except Unauthenticated as error:
        return show_ways(request, signing_in, status=401, problem=str(error))
    return await welcome(request, signing_in.sessions, user, after)


@page("/sign-in/demo", open_to_all=True)
async def enter_demo(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """Sign a visitor of the demo in as its first user, unless the request comes from a page of another site."""
    if not signing_in.demo:
        raise NotFoundException
    after = local_path(request.query_params.get("next", "/"))
    site = request.headers.get("sec-fetch-site", "none")
    if site not in {"none", "same-origin"} or ("origin" in request.headers and not is_same_origin(request)):
        return redirect(request, "/sign-in")
    if visitor_of(request) is not None:
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
        return show_ways(
            request, signing_in, status=401, problem="The users of the demo do not exist yet: run `make demo`"
        )
    return await welcome(request, signing_in.sessions, user.id, after)


@action("/sign-out", open_to_all=True)
async def sign_out(request: AnyRequest, signing_in: Injected[SigningIn]) -> Html:
    """Close the session; also at the identity provider, if it signed the user in and supports signing out."""
    cookie = pages_cookie(request)
    by_provider = cookie is not None and await signing_in.sessions.close(cookie)
    away, url = None, signing_in.url(request)
    if by_provider and signing_in.provider is not None and url is not None:
        with suppress(RagError):  # the log has it; the session here is closed
            away = await signing_in.provider.sign_out_address(f"{url}/sign-in")
    if away is None:
        response = redirect(request, "/sign-in", said="You have signed out.")
    else:
        # not a redirect: `form-action` holds browsers back that a form sends elsewhere
        request.scope["state"]["visitor"] = None
        response = render(request, "signed-out.html", headers={**_NO_REFERRER, "Refresh": f"0; url={away}"}, away=away)
    response.headers["Clear-Site-Data"] = '"cache", "storage"'
    response.cookies = [*response.cookies, *(_cookie(name, "", max_age=0) for name in PAGES_COOKIES)]
    return response


async def welcome(
    request: AnyRequest,
    sessions: Sessions,
    user: UUID,
    after: str,
    *,
    url: str | None = None,
    groups: Sequence[str] | None = None,
) -> Html:
    """Open a session that replaces the present one, and redirect to `after`.

    `url` is where the browser reaches the server, if its request does not say so; `groups` are those that an identity
    provider named.
    """
    cookie = await sessions.open(
        user, instead_of=pages_cookie(request), groups=groups or (), by_provider=groups is not None
    )
    response = redirect(request, local_path(after))
    kept = _name(PAGES_COOKIES, url or request.headers.get("origin") or str(request.base_url))
    [dropped] = set(PAGES_COOKIES) - {kept}
    response.cookies = [*response.cookies, _cookie(kept, cookie)]
    if dropped in request.cookies:
        response.cookies = [*response.cookies, _cookie(dropped, "", max_age=0)]
    return response


def _name(names: tuple[str, str], url: str) -> str:
    return names[0] if urlsplit(url).scheme == "https" else names[1]


def _cookie(name: str, value: str, max_age: int | None = None) -> Cookie:
    return Cookie(
        name,
        value=value,
        path="/",
        httponly=True,
        samesite="lax",
        secure=name.startswith("__Host-"),
        max_age=max_age,
    )
