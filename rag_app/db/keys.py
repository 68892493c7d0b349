"""API keys: each acts as a service user of one organization."""

from rag_app.db.session import Database
from rag_app.domain.errors import Unauthenticated
from rag_app.domain.scope import Principal


class Keys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def principal(self, key: str) -> Principal:
        """The service user of a key. Raises Unauthenticated."""
        raise Unauthenticated("The API key is not valid")
