"""`rag-app db`: the schema, and what a new version brings along."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rag_app.console.commands import Application, command_on, group
from rag_app.domain.errors import Misconfigured
from rag_app.domain.resources import resource_folder

if TYPE_CHECKING:
    from rag_app.application import DatabaseUrls
    from rag_app.settings import Settings

app = group("The database schema.")


@asynccontextmanager
async def _open_migrated(settings: "Settings", urls: "DatabaseUrls") -> AsyncIterator[Application]:
    """The schema comes first: it is migrated also where the settings of models or indexes cannot be used."""
    from rag_app.application import Application
    from rag_app.database import migrate

    if urls.owner is None:
        raise Misconfigured("set RAG_DATABASE_OWNER_URL: migrating needs the role that owns the schema")
    gateway = settings.database.gateway_role
    await asyncio.to_thread(migrate.upgrade, urls.owner, urls.app, resource_folder("migrations"), gateway=gateway)
    application = Application(settings, urls)
    try:
        yield application
    finally:
        await application.close()


@app.command()
@command_on(_open_migrated)
async def upgrade(application: Application) -> None:
    """Migrate, and build new indexes. Safe to repeat."""
    done = {"built": await application.build_missing(), "prompts added": await application.seed_prompts()}
    made = (f"{what}: {', '.join(names)}" for what, names in done.items() if names)
    print("; ".join(["the schema is up to date", *made]))
