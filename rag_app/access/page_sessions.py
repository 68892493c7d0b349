"""Sessions of browsers on the pages, attempts to sign in at a provider, and one-time sign-in codes."""

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import cast
from uuid import UUID

from msgspec import Struct

from rag_app.database.session import Database
from rag_app.domain import Unauthenticated

CODE_LIFETIME = timedelta(minutes=5)
ATTEMPT_LIFETIME = timedelta(minutes=10)  # what people take at a provider: a password, a second factor
_MOST_CHARACTERS = 100  # of a cookie or a code: more is none of ours

_OPEN = """
    WITH stale AS (DELETE FROM page_sessions WHERE expires_at < now() OR seen_at < now() - $4::interval)
    INSERT INTO page_sessions (digest, user_id, expires_at, groups, by_provider)
    VALUES ($1, $2, now() + $3::interval, $5, $6)
    """
_VISITOR = """
    WITH seen AS (
        UPDATE page_sessions SET seen_at = now()
        WHERE digest = (
            SELECT digest FROM page_sessions
            WHERE digest = $1 AND expires_at > now() AND seen_at > now() - $2::interval
                AND seen_at < now() - interval '1 minute'
            FOR UPDATE SKIP LOCKED
        )
    )
    SELECT user_id, name, role, expires_at, array(
        SELECT organizations.name FROM memberships JOIN organizations ON organizations.id = org_id
        WHERE memberships.user_id = users.id ORDER BY 1
    ), groups
    FROM page_sessions JOIN users ON users.id = user_id
    WHERE digest = $1 AND expires_at > now() AND seen_at > now() - $2::interval
    """
# skip locked: of many requests at once one writes the time down, and none waits for it
_KEEP_CODE = """
    WITH stale AS (DELETE FROM sign_in_codes WHERE expires_at < now())
    INSERT INTO sign_in_codes (digest, user_id, expires_at) VALUES ($1, $2, now() + $3::interval)
    """
_TAKE_CODE = "DELETE FROM sign_in_codes WHERE digest = $1 RETURNING user_id, expires_at > now()"
_BEGIN = """
    WITH stale AS (DELETE FROM sign_in_attempts WHERE expires_at < now())
    INSERT INTO sign_in_attempts (digest, after, expires_at) VALUES ($1, $2, now() + $3::interval)
    """
_FINISH = "DELETE FROM sign_in_attempts WHERE digest = $1 RETURNING after, expires_at > now()"


class Visitor(Struct, frozen=True):
    """The user of a session as the pages show them: name, role, and names of their organizations.

    `groups` are those named by the identity provider at sign-in.
    """

    user: UUID
    name: str
    role: str
    expires_at: datetime
    organizations: tuple[str, ...]
    groups: tuple[str, ...] = ()

    @property
    def administers(self) -> bool:
        """For display only. PostgreSQL decides what the user may do."""
        return self.role == "admin"


class Sessions(Struct, frozen=True):
    """A session ends `lifetime` after its beginning, after `idle` without a request, or when it is closed.

    Its cookie is 256 random bits. The database holds their SHA-256, with which nobody can sign in.
    """

    _database: Database
    lifetime: timedelta = timedelta(hours=12)
    idle: timedelta = timedelta(hours=2)

    async def open(
        self, user: UUID, instead_of: str | None = None, *, groups: Sequence[str] = (), by_provider: bool = False
    ) -> str:
        """Open a session and return its cookie. The session of the cookie `instead_of` ends."""
        if instead_of is not None:
            await self.close(instead_of)
        cookie = secrets.token_urlsafe(32)
        await self._database.fetch(_OPEN, digest(cookie), user, self.lifetime, self.idle, list(groups), by_provider)
        return cookie

    async def visitor(self, cookie: str) -> Visitor:
        """Raises Unauthenticated for an unknown, closed or expired session, without saying which."""
        rows = await self._database.fetch(_VISITOR, digest(cookie), self.idle) if _may_be_ours(cookie) else []
        if not rows:
            raise Unauthenticated("The session has ended. Sign in again")
        user, name, role, expires_at, organizations, groups = rows[0]
        return Visitor(user, name, role, expires_at, tuple(organizations), tuple(groups))

    async def close(self, cookie: str) -> bool:
        """Close the session in every process. Returns whether an identity provider had signed the user in."""
        rows = await self._database.fetch(
            "DELETE FROM page_sessions WHERE digest = $1 RETURNING by_provider", digest(cookie)
        )
        return bool(rows and rows[0][0])

    async def begin(self, secret: str, after: str) -> None:
        """Record an attempt to sign in at the identity provider, valid for `ATTEMPT_LIFETIME`, which leads to `after`."""
        await self._database.fetch(_BEGIN, digest(secret), after, ATTEMPT_LIFETIME)

    async def finish(self, secret: str) -> str:
        """Use up an attempt and return where it leads. Raises Unauthenticated without a reason."""
        return cast(
            str, await self._use_up(_FINISH, secret, "This sign-in was started in another browser, or it has expired")
        )

    async def make_code(self, user: UUID) -> str:
        """A code of 128 random bits that signs the user in once, within `CODE_LIFETIME`."""
        code = secrets.token_urlsafe(16)
        await self._database.fetch(_KEEP_CODE, digest(code), user, CODE_LIFETIME)
        return code

    async def take_code(self, code: str) -> UUID:
        """Use up the code and return its user. Raises Unauthenticated without a reason."""
        return cast(
            UUID, await self._use_up(_TAKE_CODE, code, "The code is not valid. A code works once and for five minutes")
        )

    async def _use_up(self, statement: str, secret: str, refusal: str) -> object:
        rows = await self._database.fetch(statement, digest(secret)) if _may_be_ours(secret) else []
        if not rows or not rows[0][1]:
            raise Unauthenticated(refusal)
        return rows[0][0]


def digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


def _may_be_ours(text: str) -> bool:
    return 0 < len(text) <= _MOST_CHARACTERS
