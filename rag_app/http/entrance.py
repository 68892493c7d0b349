"""Authenticates the callers of a surface by its credentials, and applies its rate and concurrency limits."""

import asyncio
import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID

from litestar.handlers import BaseRouteHandler
from litestar.types import Guard
from msgspec import Struct

from rag_app.access.limits import Leases, RateLimiter
from rag_app.access.page_sessions import Sessions
from rag_app.access.people import PREFIX as KEY_PREFIX, Keys, People
from rag_app.access.tokens import EXTENSION, Claims, TokenReader, bearer_token
from rag_app.domain import (
    Misconfigured,
    NotFound,
    Principal,
    RateLimited,
    StoreFailed,
    TooManyAtOnce,
    Unauthenticated,
    require,
)
from rag_app.http.exchange import exchange, logger
from rag_app.http.surface import AnyConnection, Credential, Surface
from rag_app.telemetry.observing import Stage, identify

API_KEY_HEADER = "x-api-key"
EXTENSION_HEADER = "x-ext-client"
SESSION_COOKIE = "rag_session"
PAGES_COOKIES = ("__Host-rag_pages", "rag_pages")
"""Of a session of the pages, over https and over http. Of the first, browsers accept none from another host."""

LOOPBACK_HOST = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]{1,5})?")

_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_PORT = re.compile(r":[0-9]+\Z")
_PROXY_HEADERS = frozenset({"forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip"})
_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?", re.IGNORECASE)


class Access(Struct, frozen=True):
    """The services that identify callers and count their use, needed by every surface before it handles a request.

    `sessions`: those of the pages; None if the pages are disabled.
    """

    people: People
    keys: Keys
    limiter: RateLimiter
    leases: Leases
    sessions: Sessions | None = None


class Entrance(Struct, frozen=True):
    """The credentials that this deployment accepts.

    A session cookie is accepted only from pages of `origins`. A browser sends cookies from any page but states the
    page's origin, which prevents forged requests (CSRF).
    A caller without a credential must ask for a loopback name or one of `hosts`. A page whose host name was made to point
    to this server (DNS rebinding) asks for its own. `near`: the caller must also be on this machine, as for the pages of
    the demo.
    """

    tokens: TokenReader
    cookie: str = SESSION_COOKIE
    origins: frozenset[str] = frozenset()
    default_organization: str | None = None
    near: bool = False
    hosts: frozenset[str] = frozenset()

    async def principal(
        self,
        connection: AnyConnection,
        accepted: Collection[Credential],
        access: Access,
    ) -> Principal:
        """Raises Unauthenticated if the request has no accepted credential, or an invalid one.

        An invalid credential is never replaced by another one: neither by the cookie that a browser adds to each request,
        nor by the default organization. If the surface does not accept cookies, the cookie is ignored, because a browser
        cannot omit it.
        """
        keys = connection.headers.getall(API_KEY_HEADER, [])
        shown = [*keys, *connection.headers.getall("authorization", [])]
        if len(shown) > 1:
            raise Unauthenticated(f"Send exactly one credential: either `Authorization` or `{API_KEY_HEADER}`")
        if shown:
            token = keys[0].strip() if keys else bearer_token(shown[0])
            if token is None:
                raise self._refusal(accepted)
            if keys or token.startswith(KEY_PREFIX):
                self._needs({Credential.API_KEY}, accepted, "API keys are not accepted here. ")
                return await access.keys.principal(token)
            claims = await self._bearer(token, connection, accepted)
            return await access.people.principal(claims.subject, claims.groups)
        session = pages_cookie(connection)
        if access.sessions and session and Credential.SESSION in accepted and is_same_origin(connection):
            visitor = await access.sessions.visitor(session)
            return await access.people.principal(str(visitor.user), visitor.groups)
        if self.cookie in connection.cookies and Credential.COOKIE in accepted:
            self._needs({Credential.COOKIE}, accepted)
            claims = await self._session(connection)
            return await access.people.principal(claims.subject, claims.groups)
        if Credential.NONE not in accepted or self.default_organization is None:
            raise self._refusal(accepted)
        origin = connection.headers.get("origin")
        if (
            origin is not None
            and origin not in self.origins
            and origin_of(origin) != origin_of(str(connection.base_url))
        ):
            raise Unauthenticated("Requests from pages of other origins must send a credential")
        if self.near and not is_near(connection):
            raise Unauthenticated("Without a credential, the demo only answers this machine, at http://127.0.0.1")
        asked = connection.headers.getall("host", [])
        if loopback_host(connection) is None and not (len(asked) == 1 and host_of(asked[0]) in self.hosts):
            raise Unauthenticated(
                "Without a credential, this server only answers requests for a loopback name, or for a host of RAG_HOSTS"
            )
        try:
            return await access.people.member_of(self.default_organization)
        except NotFound as error:
            raise Misconfigured(f"the default organization: {error}") from error

    async def _bearer(self, token: str, connection: AnyConnection, accepted: Collection[Credential]) -> Claims:
        self._needs({Credential.JWT, Credential.EXTENSION}, accepted)
        claims = await self.tokens.claims(token)
        if claims.client != EXTENSION:
            self._needs({Credential.JWT}, accepted)
            return claims
        self._needs({Credential.EXTENSION}, accepted)
        if not connection.headers.get(EXTENSION_HEADER, "").strip():
            raise Unauthenticated(f"A token of the browser extension requires the header `{EXTENSION_HEADER}`")
        return claims

    async def _session(self, connection: AnyConnection) -> Claims:
        # a page that reads from its own host, say, sends no origin
        origin = connection.headers.get("origin") or origin_of(connection.headers.get("referer", ""))
        if origin not in self.origins:
            raise Unauthenticated(f"The cookie `{self.cookie}` is not accepted from this origin")
        claims = await self.tokens.claims(connection.cookies[self.cookie])
        if claims.client == EXTENSION:
            raise Unauthenticated("A token of the browser extension cannot be used as a session cookie")
        return claims

    def _configured_credentials(self, accepted: Collection[Credential]) -> set[Credential]:
        """The surface's credentials for which this deployment is configured."""
        configured = {Credential.COOKIE: bool(self.origins), Credential.NONE: self.default_organization is not None}
        return {each for each in accepted if configured.get(each, True)}

    def _needs(self, any_of: set[Credential], accepted: Collection[Credential], problem: str = "") -> None:
        if not any_of & self._configured_credentials(accepted):
            raise self._refusal(accepted, problem)

    def _refusal(self, accepted: Collection[Credential], problem: str = "") -> Unauthenticated:
        words = {
            Credential.JWT: "a token: `Authorization: Bearer <JWT>`",
            Credential.COOKIE: f"the session cookie `{self.cookie}`",
            Credential.EXTENSION: f"a token of the extension, with the header `{EXTENSION_HEADER}`",
            Credential.API_KEY: f"an API key: `Authorization: Bearer {KEY_PREFIX}...` or `{API_KEY_HEADER}`",
            Credential.NONE: "no credential at all",
        }
        taken = self._configured_credentials(accepted)
        ways = ", or ".join(words[each] for each in words if each in taken)
        return Unauthenticated(problem + (f"Send {ways}" if ways else "No way of signing in is configured here"))


def pages_cookie(connection: AnyConnection) -> str | None:
    """The session cookie of a browser signed in to the pages, if any."""
    return next((connection.cookies[name] for name in PAGES_COOKIES if name in connection.cookies), None)


def is_same_origin(connection: AnyConnection) -> bool:
    """Whether a page of this server makes the request. Browsers state this, and no page can forge it.

    Older browsers, and all of them over plain http, do not send `Sec-Fetch-Site`: then `Origin` or `Referer` must name the
    host that is asked.
    """
    site = connection.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = connection.headers.get("origin") or origin_of(connection.headers.get("referer", ""))
    return origin is not None and origin.partition("://")[2] == connection.headers.get("host")


def is_near(connection: AnyConnection) -> bool:
    """Whether a request comes from this machine, without a proxy, and names it by a loopback address.

    Another name means that a foreign page has pointed its own name to this address (DNS rebinding).
    """
    return is_local_client(connection) and loopback_host(connection) is not None


def loopback_host(connection: AnyConnection) -> str | None:
    """The host that a request names, if it names one, by a loopback name or address."""
    hosts = connection.headers.getall("host", [])
    return hosts[0] if len(hosts) == 1 and LOOPBACK_HOST.fullmatch(hosts[0].lower()) else None


def is_local_client(connection: AnyConnection) -> bool:
    """Whether a request comes from this machine and no proxy has forwarded it."""
    if _PROXY_HEADERS & set(connection.headers.keys()) or connection.client is None:
        return False
    try:
        return ip_address(connection.client.host).is_loopback
    except ValueError:
        return False


def origin_of(url: str) -> str | None:
    """The origin of a page as browsers write it; None if it has none.

    >>> origin_of("HTTPS://App.Example:443/path?query")
    'https://app.example'
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host:
        return None
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in {None, _PORTS[parts.scheme]} else "")


def origins(text: str) -> frozenset[str]:
    """The origins in a comma-separated list. Raises Misconfigured with an invalid one.

    >>> sorted(origins("https://app.example, http://localhost:3000"))
    ['http://localhost:3000', 'https://app.example']
    """
    found = set()
    for each in filter(None, map(str.strip, text.split(","))):
        problem = f"RAG_ORIGINS: {each!r} is not an origin: write it as https://app.example, without a path"
        found.add(require(origin_of(each) if _ORIGIN.fullmatch(each) else None, Misconfigured(problem)))
    return frozenset(found)


def hosts(text: str) -> frozenset[str]:
    """A comma-separated list of host names and addresses. Raises Misconfigured with the one that is none.

    >>> sorted(hosts("Salon.example, 192.168.1.5,[::1]"))
    ['192.168.1.5', '[::1]', 'salon.example']
    """
    found = {each.lower() for each in map(str.strip, text.split(",")) if each}
    for each in sorted(found):
        if _HOST.fullmatch(each) is None:
            problem = f"RAG_HOSTS: {each!r} is not a host: write it as salon.example, without a scheme or port"
            raise Misconfigured(problem)
    return frozenset(found)


def host_of(authority: str) -> str:
    """The host of a `Host` header or a URL, without its port.

    >>> host_of("Salon.example:8000"), host_of("https://[::1]:8000"), host_of("[::1]")
    ('salon.example', '[::1]', '[::1]')
    """
    return _PORT.sub("", authority.lower().rpartition("://")[2])


def gate(surface: Surface, entrance: Entrance, access: Access) -> Guard:
    """A guard that authenticates the caller, then counts the request against the caller's rate limit of the surface.

    A caller's own limits replace the surface's. Every response then carries the state of the limit. If concurrent
    requests are limited, the request also holds a lease until its response is finished or its client has left; a
    request that gets no lease still counts.
    """

    # A function and not an object with attributes: Litestar makes deep copies of guards, and of a database's pool.
    async def enter(connection: AnyConnection, handler: BaseRouteHandler) -> None:
        if connection.scope.get("method") == "OPTIONS":  # by definition without credentials
            return
        with Stage("entrance"):
            principal = connection.scope["user"] = await entrance.principal(connection, surface.credentials, access)
            identify(user=principal.user)
            user = principal.user or principal.subject
            name = handler.opt.get("window", surface.name)
            limit = principal.requests or surface.windows.get(name, surface.limit)

            async def count(more: int = 0) -> None:
                if limit is None:
                    return
                window = await access.limiter.hit(f"{name}:{user}", limit, more)
                current.headers |= {
                    "X-RateLimit-Limit": str(window.limit),
                    "X-RateLimit-Remaining": str(window.remaining),
                    "X-RateLimit-Reset": str(window.resets_at),
                }
                if not window.allowed:
                    raise RateLimited(window.limit, window.resets_at)

            current = exchange(connection.scope)
            current.count = count
            await count()
        concurrent = principal.at_once or surface.concurrent
        if concurrent is not None:
            # a task: a request that is cancelled in the meantime must learn whether it has a place to give back
            key = f"{surface.name}:{user}"
            taking = asyncio.create_task(access.leases.take(key, concurrent))
            current.closing.append(lambda: _release_taken(access.leases, taking))
            lease = require(await asyncio.shield(taking), TooManyAtOnce(concurrent))
            keeping = asyncio.create_task(_keep(access.leases, lease, key, concurrent))
            current.closing.append(lambda: _stop(keeping))

    return enter


async def _keep(leases: Leases, lease: UUID, key: str, limit: int) -> None:
    while True:
        await asyncio.sleep(leases.extend_every)
        try:
            await leases.extend(lease, key, limit)
        except StoreFailed as error:  # there is time for another attempt
            logger.warning("could not extend a request lease: %s", error)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _release_taken(leases: Leases, taking: asyncio.Task[UUID | None]) -> None:
    try:
        lease = await taking
        if lease is not None:
            await leases.give_back(lease)
    except StoreFailed as error:  # it runs out by itself
        logger.warning("could not release a request lease: %s", error)
