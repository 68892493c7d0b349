"""`rag-app db`: the schema, and what a new version brings along."""

import asyncio

from rag_app.console.commands import group

app = group("The database schema.")


@app.command()
def upgrade() -> None:
    """Migrate, and build new indexes. Safe to repeat."""
    from rag_app.application import Application, database_urls
    from rag_app.database import migrate
    from rag_app.domain.errors import Misconfigured
    from rag_app.domain.resources import resource_folder
    from rag_app.settings import Settings

    settings = Settings()
    with database_urls(settings) as urls:
        if urls.owner is None:
            raise Misconfigured("set RAG_DATABASE_OWNER_URL: migrating needs the role that owns the schema")
        migrate.upgrade(urls.owner, urls.app, resource_folder("migrations"), gateway=settings.database.gateway_role)

        async def prepare() -> dict[str, list[str]]:
            application = Application(settings, urls)
            try:
                return {"built": await application.build_missing(), "prompts added": await application.seed_prompts()}
            finally:
                await application.close()

        done = asyncio.run(prepare())
    made = (f"{what}: {', '.join(names)}" for what, names in done.items() if names)
    print("; ".join(["the schema is up to date", *made]))
