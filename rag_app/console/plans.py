"""`rag-app plans`: messages per month, and access to conversations."""

from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from rag_app.console.commands import Application, Json, group, number, on_unchecked_application
from rag_app.console.printing import print_list, record

if TYPE_CHECKING:
    from rag_app.surfaces.lexybrain.quotas import Plan

plans = group("Manage plans: messages per month, and access to conversations.")


@plans.command("list")
@on_unchecked_application
async def list_plans(application: Application, as_json: Json = False) -> None:
    """List all plans with their limits."""
    from rag_app.surfaces.lexybrain.quotas import PlanDirectory

    found = await PlanDirectory(application.database).list()
    print_list(as_json, [record(each, "code messages enabled") for each in found], map(_plan_text, found))


@plans.command("set")
@on_unchecked_application
async def change_plan(
    application: Application,
    code: Annotated[str, Argument(metavar="CODE", help="the code of a plan; an unknown code creates a plan")],
    messages: Annotated[str | None, Option(metavar="N|unlimited", help="messages per month")] = None,
    enabled: Annotated[
        bool | None, Option("--enabled/--disabled", help="whether the plan includes conversations")
    ] = None,
) -> None:
    """Change or create a plan. Changes apply from the next message of each user.

    By default a new plan has 50 messages per month and includes conversations.
    """
    from rag_app.surfaces.lexybrain.quotas import PlanDirectory

    limit = None
    if messages is not None:
        limit = -1 if messages == "unlimited" else number("messages", messages, "unlimited")
    print(_plan_text(await PlanDirectory(application.database).set(code, limit, enabled)))


def limit_text(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _plan_text(plan: "Plan") -> str:
    return f"{plan.code}\t{limit_text(plan.messages)} messages a month\t{'enabled' if plan.enabled else 'disabled'}"
