"""Alembic's way in, from `rag_app.database.migrate` and from the `alembic` command.

The first hands over a connection in a transaction; for the second RAG_DATABASE_OWNER_URL names the database.
The command grants nothing: `rag-app db upgrade` does.
"""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection, NullPool

from rag_app.database.session import create_engine
from rag_app.database.tables import all_tables


def ours(name: str | None, kind: str, parents: object) -> bool:
    """Whether autogenerate compares it: the tables of a generation are made by the vector store, the queue's by its library."""
    return not (kind == "table" and name is not None and name.startswith(("g_", "procrastinate_")))


def migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=all_tables(),
        include_name=ours,
        compare_type=True,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def connect_and_migrate() -> None:
    url = os.environ.get("RAG_DATABASE_OWNER_URL")
    if not url:
        raise SystemExit("set RAG_DATABASE_OWNER_URL to the database to migrate")
    engine = create_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


given: Connection | None = context.config.attributes.get("connection")
if given is None:
    asyncio.run(connect_and_migrate())
else:
    migrate(given)
