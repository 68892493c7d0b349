"""Bearer tokens: JWTs signed with a shared secret (HS256), or by an identity provider whose public keys are known.

The deployment chooses between the two, and each key has one algorithm: a token can choose neither.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from math import inf
from pathlib import Path
from time import monotonic, time
from urllib.parse import urlsplit

import jwt
from cachetools import LRUCache
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from msgspec import Struct

from rag_app.domain import JsonObject, Misconfigured, RagError, Unauthenticated, require

ALGORITHM = "HS256"  # of tokens signed with the secret
PUBLIC_KEY_ALGORITHMS = ("RS256", "ES256")
SHORTEST_SECRET = 32  # bytes: HS256 is as strong as its key up to the length of its hash (RFC 7518, 3.2)
LONGEST_SUBJECT = 255  # characters: what OpenID Connect allows
LEEWAY = timedelta(seconds=10)  # how far the clocks of issuer and server may be apart
LIFESPAN = 300.0  # seconds after which a provider's keys are fetched again: so long may a withdrawn key live on
COOLDOWN = 10.0  # seconds between two fetches at least, so that tokens with made up key ids cannot make us a nuisance
FETCH_SECONDS = 5.0
PATIENCE = 2.0  # seconds for which somebody with a known key waits for newer ones
FILE_SECONDS = 2.0  # LIFESPAN and COOLDOWN of a file: reading it costs next to nothing

EXTENSION = "extension"
"""The claim `client` of tokens issued to a browser extension."""

logger = logging.getLogger("rag_app.http")

_MOST_VERIFIED = 4096
_PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


class Claims(Struct, frozen=True):
    """The claims of a token that are used here: subject, and kind of client and groups, if given."""

    subject: str
    client: str | None = None
    groups: tuple[str, ...] = ()


class PublicKeys:
    """An identity provider's public keys, for RS256 and ES256; read again when they are old or a key is missing.

    If reading fails, the known keys stay in use, so that an unreachable provider locks nobody out. PyJWKClient fetches
    and parses the keys but does not cache them here, because it drops old keys, fetches while it holds a lock, and
    does not back off after a failure.
    """

    def __init__(self, where: str, read: Callable[[], list[jwt.PyJWK]], lifespan: float, cooldown: float) -> None:
        self.where = where
        self._read, self._lifespan, self._cooldown = read, lifespan, cooldown
        self._keys: list[jwt.PyJWK] | None = None
        self._read_at = self._tried_at = -inf
        self._problem = ""
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    def from_url(cls, url: str, lifespan: float = LIFESPAN, cooldown: float = COOLDOWN) -> "PublicKeys":
        """Keys of a JWKS document at a URL, fetched when a token first needs it.

        >>> PublicKeys.from_url("http://id.example/jwks.json")
        Traceback (most recent call last):
        rag_app.domain.errors.Misconfigured: the URL of public keys must be https://, or http:// on this machine, not 'http://id.example/jwks.json'
        """
        if not is_trustworthy(url):
            raise Misconfigured(f"the URL of public keys must be https://, or http:// on this machine, not {url!r}")
        client = jwt.PyJWKClient(
            url,
            cache_jwk_set=False,
            headers={"User-Agent": "rag-app"},  # some providers' gateways refuse urllib's own
            timeout=FETCH_SECONDS,
        )
        return cls(url, lambda: accepted_keys(client.get_jwk_set()), lifespan, cooldown)

    @classmethod
    def in_file(cls, path: Path, lifespan: float = FILE_SECONDS) -> "PublicKeys":
        """Keys of a file: a JWKS document, or a sequence of public keys as PEM. Raises Misconfigured if it is neither."""
        keys = cls(str(path), lambda: _in_text(path.read_text("utf-8")), lifespan, lifespan)
        try:
            keys._keys, keys._read_at = keys._read(), monotonic()
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise Misconfigured(f"the keys in {path} cannot be used: {error}") from error
        return keys

    async def find(self, name: str | None) -> list[jwt.PyJWK]:
        """The keys that may have signed a token whose `kid` is `name`: keys with that name, or without a name.

        Raises RagError if no keys could be read yet, because the token is not at fault.
        """
        found = self._find_matching(name)
        now = monotonic()
        if now - self._read_at > self._lifespan or (name is not None and not found):
            if self._reading is None and now - self._tried_at > self._cooldown:
                self._tried_at = now
                self._reading = asyncio.create_task(self._reread())
            # Who waits may give up, what is awaited goes on. With a known key nobody waits for a provider that is away.
            if self._reading is not None and not (found and self._problem):
                patience = self._tried_at + (PATIENCE if found else 2 * FETCH_SECONDS) - now
                await asyncio.wait({self._reading}, timeout=max(0.0, patience))
                found = self._find_matching(name)
        require(self._keys, RagError(f"the keys of {self.where} cannot be read: {self._problem}"))
        return found

    def _find_matching(self, name: str | None) -> list[jwt.PyJWK]:
        return [key for key in self._keys or () if key.key_id in (None, name)]

    async def _reread(self) -> None:
        try:
            self._keys = await asyncio.to_thread(self._read)
            self._read_at, self._problem = monotonic(), ""
        except Exception as error:  # whatever a provider sends
            self._problem = str(error) or type(error).__name__
            logger.warning("the keys of %s cannot be read: %s", self.where, self._problem)
        finally:
            self._reading = None


def is_trustworthy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return bool(host)
        return parts.scheme == "http" and (host == "localhost" or ip_address(host).is_loopback)
    except ValueError:
        return False


def _in_text(text: str) -> list[jwt.PyJWK]:
    if text.lstrip().startswith("{"):
        return accepted_keys(jwt.PyJWKSet.from_dict(json.loads(text)))
    return accepted_keys([_from_pem(block[0]) for block in _PEM.finditer(text)])


def _from_pem(block: str) -> jwt.PyJWK:
    key = load_pem_public_key(block.encode())
    match key:
        case RSAPublicKey():
            return jwt.PyJWK(RSAAlgorithm.to_jwk(key, as_dict=True))
        case EllipticCurvePublicKey():
            return jwt.PyJWK(ECAlgorithm.to_jwk(key, as_dict=True))
    raise ValueError(f"{type(key).__name__} is neither an RSA nor an EC key")


def accepted_keys(keys: Sequence[jwt.PyJWK] | jwt.PyJWKSet) -> list[jwt.PyJWK]:
    """The keys for accepted algorithms. Raises ValueError if there are none."""
    found = [
        key
        for key in keys
        if key.algorithm_name in PUBLIC_KEY_ALGORITHMS
        and key.public_key_use in (None, "sig")
        and key.Algorithm.check_key_length(key.key) is None
    ]
    if not found:
        raise ValueError(
            f"none of the keys is a public key for {' or '.join(PUBLIC_KEY_ALGORITHMS)}; an RSA key must have at least 2048 bits"
        )
    return found


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Reads tokens of one issuer: `key` is its secret, or its public keys.

    A token that names an audience is valid only where the same one is expected; without an issuer any is accepted.
    `groups` is the claim that lists the user's groups.
    Raises Misconfigured for a secret that cannot be a key.

    >>> TokenReader("short", audience="rag")
    Traceback (most recent call last):
    rag_app.domain.errors.Misconfigured: the JWT secret has 5 bytes; it must have at least 32
    """

    key: str | PublicKeys = field(repr=False)
    audience: str | None = None
    issuer: str | None = None
    groups: str = "groups"
    _verified: LRUCache[str, tuple[Claims, float]] = field(
        default_factory=lambda: LRUCache(_MOST_VERIFIED), init=False, repr=False, compare=False
    )
    """Of tokens signed with the secret, what they say and until when: a session sends the same one again and again, and
    what has a right signature keeps it. Keys of a provider may be withdrawn, so theirs are verified each time."""

    def __post_init__(self) -> None:
        if isinstance(self.key, PublicKeys):
            return
        if (size := len(self.key.encode())) < SHORTEST_SECRET:
            raise Misconfigured(f"the JWT secret has {size} bytes; it must have at least {SHORTEST_SECRET}")
        try:
            jwt.encode({}, self.key, ALGORITHM)
        except jwt.InvalidKeyError as error:
            raise Misconfigured(f"the JWT secret cannot be used: {error}") from error

    async def claims(self, token: str) -> Claims:
        """Raises Unauthenticated, without details that help to forge a token; RagError without keys."""
        known, expires = self._verified.get(token, (None, 0.0))
        if known is not None and time() < expires:
            return known
        verified = await self.verify(token)
        found = self.read(verified)
        if isinstance(self.key, str):
            self._verified[token] = found, float(verified["exp"]) + LEEWAY.total_seconds()
        return found

    async def verify(self, token: str) -> JsonObject:
        """All claims of a valid token. Raises like `claims`."""
        try:
            claims = await self._decode(token)
            float(claims["exp"])
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired") from None
        except (jwt.PyJWTError, OverflowError, RecursionError):  # PyJWT lets an endless `exp` and deep JSON through
            raise Unauthenticated("The token is not valid") from None
        return claims

    def read(self, claims: JsonObject) -> Claims:
        """Reads the used claims of a valid token. Raises Unauthenticated for an invalid subject."""
        subject: str = claims["sub"]
        # printable: it becomes a key in PostgreSQL, which takes neither NUL nor a lone surrogate
        if not subject.strip() or len(subject) > LONGEST_SUBJECT or not subject.isprintable():
            raise Unauthenticated("The token is not valid")
        client, groups = claims.get("client"), claims.get(self.groups)
        return Claims(
            subject,
            client if isinstance(client, str) else None,
            tuple(each for each in groups if isinstance(each, str)) if isinstance(groups, list) else (),
        )

    async def _decode(self, token: str) -> JsonObject:
        """Decode with each key that may have signed the token, only with that key's algorithm."""
        signers: list[tuple[str | jwt.PyJWK, str]] = []
        if isinstance(self.key, str):
            signers = [(self.key, ALGORITHM)]
        else:
            header = jwt.get_unverified_header(token)
            if header.get("alg") in PUBLIC_KEY_ALGORITHMS:  # else nothing is fetched for it
                signers = [(key, key.algorithm_name) for key in await self.key.find(header.get("kid"))]
        for key, algorithm in signers:
            try:
                return jwt.decode(
                    token,
                    key,
                    algorithms=[algorithm],
                    audience=self.audience,
                    issuer=self.issuer,
                    leeway=LEEWAY,
                    options={"require": ["exp", "sub"]},
                )
            except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
                continue
        raise jwt.InvalidSignatureError


def bearer_token(authorization: str) -> str | None:
    """The token in an Authorization header; None where there is none.

    >>> bearer_token("Bearer abc")
    'abc'
    >>> bearer_token("Basic YWRhOg==")
    """
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def issue_token(
    user_id: str,
    secret: str,
    *,
    audience: str | None = None,
    issuer: str | None = None,
    lifetime: timedelta = timedelta(hours=1),
    client: str | None = None,
) -> str:
    """A token that `TokenReader` with the same secret, audience and issuer accepts until `lifetime` has passed.

    >>> key = "0123456789abcdef0123456789abcdef"
    >>> asyncio.run(TokenReader(key, audience="rag").claims(issue_token("ada", key, audience="rag")))
    Claims(subject='ada', client=None, groups=())
    """
    TokenReader(secret, audience, issuer)
    now = datetime.now(UTC)
    claims = {"sub": user_id, "iat": now, "exp": now + lifetime, "aud": audience, "iss": issuer, "client": client}
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, secret, ALGORITHM)
