"""The address of PostgreSQL: the configured one, or the private one."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from rag_app.database.private import private_postgres
from rag_app.database.session import Database
from rag_app.domain import Misconfigured, resource_folder

if TYPE_CHECKING:
    from rag_app.settings import Settings


class DatabaseUrls(Struct, frozen=True):
    """URLs of the application's role, of the schema's owner (None: this process cannot migrate), and of a role that
    sees all rows, for backups."""

    app: str
    owner: str | None
    private: bool
    backup: str | None = None


@contextmanager
def database_urls(settings: "Settings", migrated: bool = True, create: bool = True) -> Iterator[DatabaseUrls]:
    """The configured PostgreSQL, else the private one, which runs and is migrated while this context lasts.

    Without `create`, raises Misconfigured where there is no private one yet, and creates nothing.
    """
    chosen = settings.database
    if chosen.url is not None:
        owner, backup = (each.get_secret_value() if each else None for each in (chosen.owner_url, chosen.backup_url))
        yield DatabaseUrls(chosen.url.get_secret_value(), owner, private=False, backup=backup)
    elif chosen.owner_url is not None:
        raise Misconfigured("RAG_DATABASE_OWNER_URL is set, RAG_DATABASE_URL is not: set both, or none of them")
    else:
        if not create and not (chosen.home / "postgres" / "cluster").exists():
            raise Misconfigured(
                f"there is no data in {chosen.home}: go to the folder of your project or set RAG_HOME; "
                "only `rag-app demo`, `serve`, `ingest`, `import llamaindex`, `orgs create`, `db upgrade` and `restore` create one"
            )
        with private_postgres(chosen.home / "postgres") as server:
            if migrated and (chosen.gateway_role is not None or not asyncio.run(_is_migrated(server.app_url))):
                from rag_app.database.migrate import upgrade  # alembic takes as long as the rest of a command

                upgrade(server.owner_url, server.app_url, resource_folder("migrations"), gateway=chosen.gateway_role)
            yield DatabaseUrls(server.app_url, server.owner_url, private=True, backup=server.superuser_url)


async def _is_migrated(url: str) -> bool:
    with suppress(Misconfigured):
        async with aclosing(Database(url, pool_size=1)) as database:
            await database.check()
            return True
    return False
