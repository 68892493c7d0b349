"""Who a caller is, by what a surface lets them show."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from litestar.connection import ASGIConnection

from rag_app.api.auth import Tokens, bearer_token
from rag_app.api.collaborators import Keys, People
from rag_app.api.surface import Credential
from rag_app.domain.scope import Principal


@dataclass(frozen=True, slots=True)
class Entrance:
    """What this deployment accepts as proof of who somebody is."""

    tokens: Tokens

    async def principal(
        self,
        connection: ASGIConnection[Any, Any, Any, Any],
        accepted: Collection[Credential],
        people: People,
        keys: Keys,
    ) -> Principal:
        """Raises Unauthenticated where the request shows nothing that is accepted, or something that does not hold."""
        subject = self.tokens.subject(bearer_token(connection.headers.get("authorization")))
        return await people.principal(subject)
