"""`rag-app training`: answers of consenting users as training data."""

import json
import sys
from collections import Counter
from typing import Annotated
from uuid import UUID

from typer import Option

from rag_app.console.commands import Application, Output, group, on_application
from rag_app.console.printing import open_output, progress_counter

training = group("Export answers of consenting users as training data.")


@training.command("export")
@on_application
async def export_training_data(
    application: Application,
    output: Output = None,
    since: Annotated[
        str | None,
        Option(metavar="DATE", help="only export answers collected on or after this date, such as 2026-01-31"),
    ] = None,
    capability: Annotated[str | None, Option(metavar="C", help="only export answers of this capability")] = None,
) -> None:
    """Print training examples as JSON lines for fine-tuning.

    The export only contains users who consent now and sources that they may still see. It names no users.
    """
    from rag_app.surfaces.administration.personal import training_examples

    consenting = await application.conversations.training.list_consenting()
    lessons = Counter[UUID]()
    withheld = 0
    with open_output(output) as lines, progress_counter("users", len(consenting)) as count:
        async for user, example in training_examples(application, consenting, since, capability, count):
            if example is None:
                withheld += 1
            else:
                lessons[user] += 1
                lines.write(json.dumps(example, ensure_ascii=False) + "\n")
    print(
        f"{lessons.total()} examples of {len(lessons)} users; {withheld} left out because"
        " a source was deleted or their user may no longer see it",
        file=sys.stderr,
    )
