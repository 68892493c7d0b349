"""`rag-app training`."""

import json
import sys
from typing import Annotated

import typer

from rag_app.console.commands import Application, Output, group, on_application
from rag_app.console.printing import counting, written

app = group("Answers that were collected to train models with, of users who consent.")


@app.command()
@on_application
async def export(
    application: Application,
    output: Output = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="only what was collected from then on: 2026-01-31")
    ] = None,
    capability: Annotated[str | None, typer.Option(metavar="C", help="only of this capability")] = None,
) -> None:
    """Examples as JSON lines, in the format that fine-tuning tools read.

    Only of users who consent now, and only of what they may still see. Nobody is named.
    """
    from rag_app.surfaces.administration.training import Export

    work = Export(application, since, capability)
    consenting = await application.training.consenting()
    with written(output) as lines, counting("users", len(consenting)) as count:
        async for example in work.examples(consenting, count):
            lines.write(json.dumps(example, ensure_ascii=False) + "\n")
    print(
        f"{work.lessons} examples of {work.users} users; {work.withheld} left out:"
        " a source of theirs is gone, or no longer their user's to see",
        file=sys.stderr,
    )
