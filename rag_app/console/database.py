"""`rag-app db`: the schema, and what a new version brings along."""

import asyncio

from rag_app.console.commands import Application, group, on_closed_application
from rag_app.domain.errors import Misconfigured
from rag_app.domain.resources import resource_folder

app = group("The database schema.")


@app.command()
@on_closed_application
async def upgrade(application: Application) -> None:
    """Migrate, and build new indexes. Safe to repeat."""
    from rag_app.database import migrate

    urls, gateway = application.urls, application.settings.database.gateway_role
    if urls.owner is None:
        raise Misconfigured("set RAG_DATABASE_OWNER_URL: migrating needs the role that owns the schema")
    await asyncio.to_thread(migrate.upgrade, urls.owner, urls.app, resource_folder("migrations"), gateway=gateway)
    done = {"built": await application.build_missing(), "prompts added": await application.seed_prompts()}
    made = (f"{what}: {', '.join(names)}" for what, names in done.items() if names)
    print("; ".join(["the schema is up to date", *made]))
