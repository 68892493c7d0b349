"""Who a caller is, by what a surface lets them show."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection

from rag_app.access.keys import Keys
from rag_app.access.people import People
from rag_app.access.tokens import EXTENSION, Tokens, bearer_token
from rag_app.domain.errors import Misconfigured, NotFound, Unauthenticated
from rag_app.domain.scope import Principal

KEY_PREFIX = "rag_"
"""What API keys begin with, and tokens never do."""
API_KEY_HEADER = "x-api-key"
EXTENSION_HEADER = "x-ext-client"
SESSION_COOKIE = "rag_session"

_PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?", re.IGNORECASE)


class Credential(StrEnum):
    """What a caller may show."""

    JWT = "jwt"  # a person's token: `Authorization: Bearer`
    COOKIE = "cookie"  # the same token in the session cookie, sent from a configured origin
    EXTENSION = "extension"  # a token issued to a browser extension, with the header `x-ext-client`
    API_KEY = "api_key"  # a key: `Authorization: Bearer` or `x-api-key`
    NONE = "none"  # nothing at all: a member of the default organization, where the settings name one


@dataclass(frozen=True, slots=True)
class Entrance:
    """What this deployment accepts as proof of who somebody is.

    A session cookie counts in requests of pages of `origins` alone. Browsers send cookies whoever wrote the page that
    makes the request, and say which page that was: this is the defence against forged requests (CSRF).
    """

    tokens: Tokens
    cookie: str = SESSION_COOKIE
    origins: frozenset[str] = frozenset()
    default_organization: str | None = None

    async def principal(
        self,
        connection: ASGIConnection[Any, Any, Any, Any],
        accepted: Collection[Credential],
        people: People,
        keys: Keys,
    ) -> Principal:
        """Raises Unauthenticated where the request shows nothing that is accepted, or something that does not hold.

        What is shown is judged, and never replaced by something else that might do: not by the cookie that a browser
        adds to whatever it sends, and not by the default organization. Where no cookie is taken that cookie shows
        nothing: a browser cannot leave it out.
        """
        shown = {
            name: connection.headers.getall(name)
            for name in ("authorization", API_KEY_HEADER)
            if name in connection.headers
        }
        if sum(map(len, shown.values())) > 1:
            raise Unauthenticated(f"Send one credential: either `Authorization` or `{API_KEY_HEADER}`, once")
        if API_KEY_HEADER in shown:
            self._needs(Credential.API_KEY, accepted)
            return await keys.principal(shown[API_KEY_HEADER][0].strip())
        if "authorization" in shown:
            token = bearer_token(shown["authorization"][0])
            if token is None:
                raise self._refusal(accepted)
            if token.startswith(KEY_PREFIX):
                self._needs(Credential.API_KEY, accepted)
                return await keys.principal(token)
            return await people.principal(await self._bearer(token, connection, accepted))
        if self.cookie in connection.cookies and Credential.COOKIE in accepted:
            self._needs(Credential.COOKIE, accepted)
            return await people.principal(await self._session(connection))
        if Credential.NONE not in accepted or self.default_organization is None:
            raise self._refusal(accepted)
        origin = connection.headers.get("origin")
        if (
            origin is not None
            and origin not in self.origins
            and origin_of(origin) != origin_of(str(connection.base_url))
        ):
            raise Unauthenticated("Without a credential, pages of other origins are not answered")
        try:
            return await people.member_of(self.default_organization)
        except NotFound as error:
            raise Misconfigured(f"the default organization: {error}") from error

    async def _bearer(
        self, token: str, connection: ASGIConnection[Any, Any, Any, Any], accepted: Collection[Credential]
    ) -> str:
        """The subject of a person's token, or of an extension's."""
        if not {Credential.JWT, Credential.EXTENSION} & self._taken(accepted):
            raise self._refusal(accepted)
        claims = await self.tokens.claims(token)
        if claims.client != EXTENSION:
            self._needs(Credential.JWT, accepted)
            return claims.subject
        self._needs(Credential.EXTENSION, accepted)
        if not connection.headers.get(EXTENSION_HEADER, "").strip():
            raise Unauthenticated(f"A token of the extension needs the header `{EXTENSION_HEADER}`")
        return claims.subject

    async def _session(self, connection: ASGIConnection[Any, Any, Any, Any]) -> str:
        origin = connection.headers.get("origin")
        if origin is None:  # a page that reads from its own host, say
            origin = origin_of(connection.headers.get("referer", ""))
        if origin not in self.origins:
            raise Unauthenticated(f"The cookie `{self.cookie}` is not accepted from this origin")
        claims = await self.tokens.claims(connection.cookies[self.cookie])
        if claims.client == EXTENSION:
            raise Unauthenticated("A token of the extension is no session")
        return claims.subject

    def _taken(self, accepted: Collection[Credential]) -> set[Credential]:
        """Of what a surface accepts, what this deployment is configured for."""
        missing = set()
        if not self.origins:
            missing.add(Credential.COOKIE)
        if self.default_organization is None:
            missing.add(Credential.NONE)
        return set(accepted) - missing

    def _needs(self, credential: Credential, accepted: Collection[Credential]) -> None:
        if credential not in self._taken(accepted):
            raise self._refusal(accepted)

    def _refusal(self, accepted: Collection[Credential]) -> Unauthenticated:
        words = {
            Credential.JWT: "a token: `Authorization: Bearer <JWT>`",
            Credential.COOKIE: f"the session cookie `{self.cookie}`",
            Credential.EXTENSION: f"a token of the extension, with the header `{EXTENSION_HEADER}`",
            Credential.API_KEY: f"an API key: `Authorization: Bearer {KEY_PREFIX}...` or `{API_KEY_HEADER}`",
            Credential.NONE: "no credential at all",
        }
        taken = self._taken(accepted)
        if not taken:
            return Unauthenticated("Nobody is let in here: no way of signing in is configured")
        return Unauthenticated(f"Send {', or '.join(words[each] for each in Credential if each in taken)}")


def origin_of(url: str) -> str | None:
    """The origin of a page as browsers write it; None where it has none.

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
    """A comma-separated list of them. Raises Misconfigured with the one that is none.

    >>> sorted(origins("https://app.example, http://localhost:3000"))
    ['http://localhost:3000', 'https://app.example']
    """
    found = set()
    for each in filter(None, map(str.strip, text.split(","))):
        origin = origin_of(each) if _ORIGIN.fullmatch(each) else None
        if origin is None:
            raise Misconfigured(f"{each!r} is no origin: write it as https://app.example, without a path")
        found.add(origin)
    return frozenset(found)
