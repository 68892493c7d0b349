"""Signs users in at an OpenID Connect provider: the authorization code flow with PKCE.

OpenID Connect Core 1.0 (3.1), Discovery 1.0, RP-Initiated Logout 1.0; RFC 7636 (PKCE), RFC 9207 (`iss` beside the code).
"""

import asyncio
import hmac
import json
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from math import inf
from time import monotonic
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import jwt
from msgspec import Struct

from rag_app.access.tokens import (
    COOLDOWN,
    LIFESPAN,
    Claims,
    PublicKeys,
    TokenReader,
    accepted_keys,
    is_trustworthy,
    logger,
)
from rag_app.domain import JsonObject, Misconfigured, RagError, Unauthenticated, require

SECONDS = 10.0  # that a reply of a provider may take, from the first byte to the last
LARGEST = 1_000_000  # bytes of a reply


_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "rag-app"}


class Attempt:
    """A browser's attempt to sign in at a provider. Everything that protects it derives from one secret in its cookie.

    `state` proves that the returning browser is the one that left, `nonce` that the token was issued for it. Neither
    reveals `verifier`, without which the provider exchanges no code for a token; `challenge` is the verifier's hash, sent
    to the provider beforehand (RFC 7636, S256).
    """

    def __init__(self, secret: str | None = None) -> None:
        self.secret = secrets.token_urlsafe(32) if secret is None else secret
        key = self.secret.encode("utf-8", "replace")
        self.state, self.nonce, self.verifier = (
            hmac.new(key, use, sha256).hexdigest() for use in (b"state", b"nonce", b"verifier")
        )
        self.challenge = _base64(sha256(self.verifier.encode()).digest())


class Metadata(Struct, frozen=True):
    """The parts of a provider's metadata that are used here."""

    authorization: str
    token: str
    end_session: str | None
    keys: PublicKeys
    says_issuer: bool
    secret_in_form: bool


class Provider:
    """The identity provider that signs people in to the pages.

    Its metadata are read at the first sign-in and again every five minutes. If that fails, the known metadata stay in
    use; an unreachable provider is asked again after ten seconds at the earliest.

    >>> Provider("http://id.example", "rag")
    Traceback (most recent call last):
    rag_app.domain.errors.Misconfigured: RAG_OIDC_ISSUER must be an https:// URL, or an http:// URL of this machine, not 'http://id.example'
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        scopes: str = "openid",
        groups: str = "groups",
        cooldown: float = COOLDOWN,
    ) -> None:
        if not is_trustworthy(issuer):
            raise Misconfigured(
                f"RAG_OIDC_ISSUER must be an https:// URL, or an http:// URL of this machine, not {issuer!r}"
            )
        if "openid" not in scopes.split():
            raise Misconfigured(f"RAG_OIDC_SCOPES must include openid, not only {scopes!r}")
        self.issuer, self.client_id, self.scopes, self.groups = issuer, client_id, scopes, groups
        self._secret, self._cooldown = client_secret, cooldown
        self._reading = asyncio.Lock()
        self._known: Metadata | None = None
        self._read_at = self._failed_at = -inf
        self._problem = ""

    @property
    def host(self) -> str:
        """The provider's host, shown to users."""
        return urlsplit(self.issuer).netloc.rpartition("@")[2]

    async def address(self, attempt: Attempt, redirect_uri: str) -> str:
        """The address to send a browser to; it returns to `redirect_uri`. Raises RagError if the provider does not answer."""
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        return _with_query((await self.metadata()).authorization, asked)

    async def sign_out_address(self, back: str) -> str | None:
        """The address to sign out at the provider; None if the provider has none. Raises RagError."""
        where = (await self.metadata()).end_session
        if where is None:
            return None
        return _with_query(where, {"client_id": self.client_id, "post_logout_redirect_uri": back})

    async def claims(self, said: Mapping[str, str], attempt: Attempt, redirect_uri: str) -> Claims:
        """The claims of the signed-in user. `said` are the parameters of the address with which the browser returns.

        Raises Unauthenticated if they or the provider's token are invalid, RagError if the provider does not answer.
        """
        metadata = await self.metadata()
        if said.get("iss", None if metadata.says_issuer else self.issuer) != self.issuer:
            raise Unauthenticated("it comes from another provider")
        if "error" in said or "code" not in said:
            raise Unauthenticated(f"it says {_error(said)}")
        reply = await self._redeem(metadata, said["code"], attempt, redirect_uri)
        token = reply.get("id_token")
        if not isinstance(token, str):
            raise Unauthenticated("there is no ID token in it")
        tokens = TokenReader(metadata.keys, self.client_id, self.issuer, self.groups)
        claims = await tokens.verify(token)
        self._check(claims, attempt, reply.get("access_token"))
        return tokens.read(claims)

    async def metadata(self) -> Metadata:
        """The provider's metadata. Raises RagError if they cannot be read and never could."""
        async with self._reading:
            now = monotonic()
            if now - self._read_at > LIFESPAN and now - self._failed_at > self._cooldown:
                try:
                    self._known, self._read_at = await self._discover(), now
                except RagError as error:
                    self._failed_at, self._problem = monotonic(), str(error)
                    logger.warning("the identity provider %s cannot be read: %s", self.issuer, error)
        return require(self._known, RagError(f"the identity provider {self.issuer} cannot be read: {self._problem}"))

    async def _discover(self) -> Metadata:
        status, found = await fetch("GET", f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
        if status != 200:
            raise RagError(f"its discovery document is returned with status {status}")
        if found.get("issuer") != self.issuer:
            raise RagError(f"its discovery document is of another issuer, {str(found.get('issuer'))[:200]!r}")
        ways = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        end_session = _endpoint(found, "end_session_endpoint") if found.get("end_session_endpoint") else None
        return Metadata(
            _endpoint(found, "authorization_endpoint"),
            _endpoint(found, "token_endpoint"),
            end_session,
            self._keys(_endpoint(found, "jwks_uri")),
            found.get("authorization_response_iss_parameter_supported") is True,
            "client_secret_basic" not in ways,
        )

    def _keys(self, url: str) -> PublicKeys:
        if self._known is not None and self._known.keys.where == url:
            return self._known.keys

        def read() -> list[jwt.PyJWK]:  # in a thread of its own
            status, found = asyncio.run(fetch("GET", url))
            if status != 200:
                raise RagError(f"it answers {status}")
            return accepted_keys(jwt.PyJWKSet.from_dict(found))

        return PublicKeys(url, read, LIFESPAN, self._cooldown)

    async def _redeem(self, metadata: Metadata, code: str, attempt: Attempt, redirect_uri: str) -> JsonObject:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client_id,
            "code_verifier": attempt.verifier,
        }
        options: dict[str, Any] = {"data": form}
        if self._secret is not None and metadata.secret_in_form:
            form["client_secret"] = self._secret
        elif self._secret is not None:  # RFC 6749, 2.3.1: both are encoded as in a form
            options["auth"] = (quote(self.client_id, safe=""), quote(self._secret, safe=""))
        status, reply = await fetch("POST", metadata.token, **options)
        if status in {400, 401, 403}:
            raise Unauthenticated(f"it says {_error(reply)}")
        if status != 200:
            raise RagError(f"its token endpoint answers with status {status}")
        return reply

    def _check(self, claims: JsonObject, attempt: Attempt, access_token: object) -> None:
        """Check the claims that only ID tokens require (OpenID Connect Core 3.1.3.7). Raises Unauthenticated."""
        nonce, audience = claims.get("nonce"), claims["aud"]
        if not isinstance(nonce, str) or not _equal(nonce, attempt.nonce):
            raise Unauthenticated("The token belongs to another sign-in")
        several = isinstance(audience, list) and len(audience) > 1
        if claims.get("azp", None if several else self.client_id) != self.client_id:
            raise Unauthenticated("The token is for another client")
        if not isinstance(claims.get("iat"), int | float):
            raise Unauthenticated("The token is not valid")
        if "at_hash" in claims and not _is_hash_of(access_token, claims["at_hash"]):
            raise Unauthenticated("The ID token does not match the access token (at_hash)")


async def fetch(method: str, url: str, **options: Any) -> tuple[int, JsonObject]:
    """The status and the JSON object of a provider's response; redirects are not followed.

    Raises RagError for anything else, for more than `LARGEST` bytes, and after `SECONDS`.
    """
    body = bytearray()
    try:
        async with (
            asyncio.timeout(SECONDS),
            httpx.AsyncClient(headers=_HEADERS, timeout=SECONDS) as client,
            client.stream(method, url, **options) as response,
        ):
            async for part in response.aiter_raw():
                body += part
                if len(body) > LARGEST:
                    raise RagError(f"{url} answers with more than {LARGEST} bytes")
        found = json.loads(body) if body.strip() else {}
    except TimeoutError:
        raise RagError(f"{url} does not answer within {SECONDS:g} seconds") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise RagError(f"{url} cannot be reached: {type(error).__name__}") from None
    except (ValueError, RecursionError):
        raise RagError(f"{url} answers with status {response.status_code} and a body that is not JSON") from None
    if not isinstance(found, dict):
        raise RagError(f"{url} answers with JSON that is not an object")
    return response.status_code, found


def _endpoint(found: JsonObject, name: str) -> str:
    # no white space, no quotes, no angle brackets: it goes into headers
    url = found.get(name)
    if not isinstance(url, str) or not is_trustworthy(url) or not re.fullmatch(r"[!#-&(-;=?-~]+", url):
        raise RagError(f"its {name} must be an https:// URL, or an http:// URL of this machine")
    return url


def _with_query(url: str, values: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(values)}"


def _error(said: Mapping[str, Any]) -> str:
    """A provider's error code. Its description is not shown, because anybody can write one into an address."""
    error = said.get("error")
    return error if isinstance(error, str) and re.fullmatch("[a-z_]{1,50}", error) else "nothing that can be understood"


def _is_hash_of(access_token: object, expected: object) -> bool:
    """OpenID Connect Core 3.1.3.6. Both algorithms that are accepted hash with SHA-256."""
    if not isinstance(access_token, str) or not isinstance(expected, str):
        return False
    return _equal(_base64(sha256(access_token.encode("utf-8", "replace")).digest()[:16]), expected)


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _base64(value: bytes) -> str:
    return urlsafe_b64encode(value).decode().rstrip("=")
