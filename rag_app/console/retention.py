"""`rag-app retention`: the deletion of data that is too old."""

import sys

from rag_app.console.commands import Application, group, on_unchecked_application
from rag_app.domain import Misconfigured, require

app = group()


@app.command()
@on_unchecked_application
async def retention(application: Application) -> None:
    """Delete data that is too old, by RAG_RETENTION_DAYS_* settings.

    A running server does this every day.
    """
    from rag_app.surfaces.lexybrain.retention import enforce

    gone = require(
        await enforce(application.database, application.settings.retention.model_dump()),
        Misconfigured("another process is already deleting old data: wait until it has finished"),
    )
    for name, count in gone.items():
        print(f"{name}\t{count} deleted")
    if not gone:
        print("nothing to delete: no RAG_RETENTION_DAYS_... setting is set", file=sys.stderr)
