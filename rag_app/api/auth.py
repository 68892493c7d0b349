"""Bearer tokens: HS256 JWTs signed with a shared secret.

Keys fetched from an identity provider (JWKS) would be another class with the `subject` method of `Tokens`.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import jwt

from rag_app.domain.errors import Misconfigured, Unauthenticated

ALGORITHM = "HS256"
SHORTEST_SECRET = 32
"""Bytes: HS256 is as strong as its key up to the length of its hash (RFC 7518, 3.2)."""
LONGEST_SUBJECT = 255
"""Characters: what OpenID Connect allows."""
LEEWAY = timedelta(seconds=10)
"""How far the clocks of issuer and server may be apart."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Reads tokens of one issuer. Raises Misconfigured for a secret that cannot be a key.

    A token that names an audience is valid only where the same one is expected; without an issuer any is accepted.

    >>> Tokens("short", audience="rag")
    Traceback (most recent call last):
    rag_app.domain.errors.Misconfigured: the JWT secret has 5 bytes; at least 32 are needed
    """

    secret: str = field(repr=False)
    audience: str | None = None
    issuer: str | None = None

    def __post_init__(self) -> None:
        if (size := len(self.secret.encode())) < SHORTEST_SECRET:
            raise Misconfigured(f"the JWT secret has {size} bytes; at least {SHORTEST_SECRET} are needed")
        try:
            jwt.encode({}, self.secret, ALGORITHM)
        except jwt.InvalidKeyError as error:
            raise Misconfigured(f"the JWT secret cannot be used: {error}") from error

    def subject(self, token: str) -> str:
        """Who the token was issued to. Raises Unauthenticated, with nothing in it that helps to forge one."""
        try:
            claims = jwt.decode(
                token,
                self.secret,
                algorithms=[ALGORITHM],
                audience=self.audience,
                issuer=self.issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired") from None
        except jwt.PyJWTError:
            raise Unauthenticated("The token is not valid") from None
        subject: str = claims["sub"]
        # printable: it becomes a key in PostgreSQL, which takes neither NUL nor a lone surrogate
        if not subject.strip() or len(subject) > LONGEST_SUBJECT or not subject.isprintable():
            raise Unauthenticated("The token is not valid")
        return subject


def bearer_token(authorization: str | None) -> str:
    """The token in an Authorization header.

    >>> bearer_token("Bearer abc")
    'abc'
    """
    scheme, _, token = (authorization or "").strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Send a token: `Authorization: Bearer <JWT>`")
    return token.strip()


def issue_token(
    user_id: str,
    secret: str,
    *,
    audience: str | None = None,
    issuer: str | None = None,
    lifetime: timedelta = timedelta(hours=1),
) -> str:
    """A token that `Tokens` with the same secret, audience and issuer accepts until `lifetime` has passed.

    >>> key = "0123456789abcdef0123456789abcdef"
    >>> Tokens(key, audience="rag").subject(issue_token("ada", key, audience="rag"))
    'ada'
    """
    Tokens(secret, audience, issuer)
    now = datetime.now(UTC)
    claims = {"sub": user_id, "iat": now, "exp": now + lifetime, "aud": audience, "iss": issuer}
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, secret, ALGORITHM)
