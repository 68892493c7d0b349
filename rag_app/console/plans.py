"""`rag-app plans`."""

from typing import TYPE_CHECKING, Annotated

import typer

from rag_app.console.commands import Application, Json, group, number, on_application
from rag_app.console.printing import print_list, record

if TYPE_CHECKING:
    from rag_app.surfaces.lexybrain.quotas import Plan

app = group("Plans: messages a month, and whether there are conversations at all.")


@app.command("list")
@on_application
async def list_all(application: Application, as_json: Json = False) -> None:
    """All plans: messages a month, and whether they have conversations."""
    found = await application.plans.list()
    print_list(as_json, [record(each, "code messages enabled") for each in found], map(_plan_text, found))


@app.command("set")
@on_application
async def set_plan(
    application: Application,
    code: Annotated[str, typer.Argument(metavar="CODE", help="a plan's; one that is not there is made")],
    messages: Annotated[str | None, typer.Option(metavar="N|unlimited", help="messages a month")] = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled", help="whether it has conversations")] = None,
) -> None:
    """Change a plan for all who have it, from their next message on, or make one.

    A new plan has 50 messages and conversations, unless it is said otherwise.
    """
    limit = None
    if messages is not None:
        limit = -1 if messages == "unlimited" else number("messages", messages, "unlimited")
    print(_plan_text(await application.plans.set(code, limit, enabled)))


def limit_text(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _plan_text(plan: "Plan") -> str:
    return f"{plan.code}\t{limit_text(plan.messages)} messages a month\t{'enabled' if plan.enabled else 'disabled'}"
