"""`rag-app db`: the schema of the database."""

import asyncio
from typing import Annotated

from typer import Option

from rag_app.console.commands import Application, command_after, group, on_closed_application
from rag_app.domain import Misconfigured, require, resource_folder

db = group("Manage the database schema.")


async def _migrate(application: Application) -> None:
    """The schema comes first: it is migrated also where the settings of models or indexes cannot be used."""
    from rag_app.database import migrate

    owner = require(
        application.urls.owner,
        Misconfigured("set RAG_DATABASE_OWNER_URL: migrating needs the role that owns the schema"),
    )
    await asyncio.to_thread(
        migrate.upgrade,
        owner,
        application.urls.app,
        resource_folder("migrations"),
        gateway=application.settings.database.gateway_role,
    )
    application.check_declared()


@db.command()
@command_after(_migrate, creates=True)
async def upgrade(application: Application) -> None:
    """Migrate the database schema and build new indexes. Safe to repeat."""
    done = {"built": await application.build_missing(), "prompts added": await application.seed_prompts()}
    made = (f"{what}: {', '.join(names)}" for what, names in done.items() if names)
    print("; ".join(["the schema is up to date", *made]))


@db.command()
@on_closed_application
async def url(
    application: Application,
    owner: Annotated[
        bool, Option("--owner", help="print the connection URL, with password, of the role that owns the schema")
    ] = False,
) -> None:
    """Print the database URL for psql, with its password.

    A private PostgreSQL only runs while a rag-app command runs, such as `rag-app serve`.
    """
    from rag_app.database.session import asyncpg_url

    chosen = require(
        application.urls.owner if owner else application.urls.app,
        Misconfigured("RAG_DATABASE_OWNER_URL is not set, so the owner's URL is not known"),
    )
    print(asyncpg_url(chosen).set(drivername="postgresql").render_as_string(hide_password=False))
