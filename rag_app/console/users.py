"""`rag-app users`, `plans`, `token` and `training`: people, their plans and roles, tokens and sign-in links for them, and what
is stored about them."""

import json
import sys
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from typer import Abort, Argument, Option, confirm

from rag_app.console.commands import (
    Application,
    Json,
    Output,
    Subject,
    UserArgument,
    fail,
    group,
    number,
    on_application,
    on_unchecked_application,
)
from rag_app.console.printing import open_output, plain, print_list, progress_counter, record, report_leftovers
from rag_app.domain import InvalidInput, require

if TYPE_CHECKING:
    from rag_app.settings import Settings
    from rag_app.surfaces.lexybrain.quotas import Plan

users = group("Manage users and their plans.")
_USER = "{0.name}\t{0.id}\t{0.plan}\t{0.role}"


@users.command("create")
@on_unchecked_application
async def create_user(
    application: Application,
    name: Annotated[str, Argument(help="a name, such as an e-mail address")],
    plan: Annotated[str, Option("--plan", metavar="P", help="one of `plans list`")] = "free",
    role: Annotated[str, Option("--role", metavar="user|admin", help="the user's role")] = "user",
    org: Annotated[
        list[str] | None,
        Option("--org", "-o", metavar="O", help="an organization to join: slug or id; repeatable"),
    ] = None,
    subject: Subject = None,
) -> None:
    """Create a user."""
    # all of them exist, or nobody is made
    organizations = [await application.people.organization(each) for each in org or []]
    made = await application.people.create_user(name, plan, role, subject)
    for organization in organizations:
        await application.people.add_member(organization, made)
    print(_USER.format(made))


@users.command("list")
@on_unchecked_application
async def list_users(application: Application, as_json: Json = False) -> None:
    """List all users with their plan, role and organizations.

    The last column is the number of messages of this month. The list includes the service users of API
    keys. Their names are `key:` and the key's id.
    """
    from rag_app.surfaces.lexybrain.quotas import Entitlements, PlanDirectory

    known = await application.people.users()
    limits = {plan.code: plan.messages for plan in await PlanDirectory(application.database).list()}
    used = await Entitlements(application.database).messages_used(user.id for user, _ in known)
    found = [
        record(user, "name id plan role")
        | {"organizations": organizations, "used": used[user.id], "limit": limits[user.plan]}
        for user, organizations in known
    ]
    lines = (
        f"{_USER.format(user)}\t{','.join(organizations) or '-'}"
        f"\t{used[user.id]} of {limit_text(limits[user.plan])} this month"
        for user, organizations in known
    )
    print_list(as_json, found, lines, "users")


@users.command()
@on_unchecked_application
async def set_plan(
    application: Application,
    user: UserArgument,
    plan: Annotated[str, Argument(help="one of `plans list`")],
) -> None:
    """Change the plan of a user at once.

    Messages already used this month still count.
    """
    print(_USER.format(await application.people.set_plan(await application.people.user(user), plan)))


@users.command()
@on_unchecked_application
async def set_role(
    application: Application,
    user: UserArgument,
    role: Annotated[str, Argument(metavar="user|admin", help="the user's role")],
) -> None:
    """Make a user an administrator or an ordinary user, at once.

    An administrator may read the conversations of all users, change prompt versions and users' plans, and apply other
    plans to their own messages. In their organizations, they manage members and keys and have the role `admin` in every
    index. What they do is recorded in the audit log.
    """
    print(_USER.format(await application.people.set_role(await application.people.user(user), role)))


@users.command()
@on_application
async def export(application: Application, user: UserArgument, output: Output = None) -> None:
    """Print the stored data about a user as JSON.

    The export contains the user's messages and answers, sources and jobs, usage counts and audit log entries, without
    secrets. docs/privacy.md lists what it leaves out.
    """
    from rag_app.surfaces.administration.personal import Personal

    who = await application.people.user(user)
    organizations = [each.id for each in await application.people.organizations()]
    found = await Personal(application.database).everything(organizations, who.id)
    with open_output(output) as document:
        document.write(json.dumps(found, ensure_ascii=False, indent=2, default=plain) + "\n")
    counted = ", ".join(f"{len(rows)} {kind}" for kind, rows in found.items() if isinstance(rows, list) and rows)
    print(f"{who.name}: {counted or 'only the account'}", file=sys.stderr)


@users.command()
def erase(
    user: UserArgument,
    yes: Annotated[bool, Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a user and all data about them permanently.

    Deletes the sources that only this user sees from every index. Shared sources stay, without an owner. docs/privacy.md
    lists what remains. Safe to repeat: an interrupted command continues. Exit status 2 if data is left in a store or
    folder that is not configured here.
    """
    if not yes:
        try:
            confirm(f"Erase {user} with all conversations and private sources?", abort=True, err=True)
        except Abort:  # or nobody is there to answer
            fail("nothing is erased", 1)
    _erase(user)


@on_application
async def _erase(application: Application, name: str) -> None:
    from rag_app.surfaces.administration.personal import erase

    user = await application.people.user(name)
    done = await erase(application, user)
    print(f"{user.name} ({user.id}) is erased, with {done.private} private sources")
    if done.shared:
        print(f"{done.shared} shared sources stay and have no owner now")
    report_leftovers(done)


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


app = group()


@app.command()
@on_unchecked_application
async def token(
    application: Application,
    user: Annotated[str, Option(metavar="U", help="name or id")],
    hours: Annotated[float, Option(min=0.01, max=8760, help="hours until the token expires")] = 24.0,
    client: Annotated[
        str | None,
        Option(metavar="extension", help="a token for a browser extension, which must also send x-ext-client"),
    ] = None,
    link: Annotated[
        bool, Option("--link", help="print a link that signs a browser in once, within five minutes")
    ] = False,
) -> None:
    """Print a token for a user of the HTTP API.

    Send it in a header: `Authorization: Bearer TOKEN`. Not available if an identity provider issues the tokens.
    """
    who = (await application.people.user(user)).id
    if link:
        from rag_app.console.serving import served_url

        off = InvalidInput("--link", None, "requires the pages, but RAG_PAGES is off")
        code = await require(application.sessions, off).make_code(who)
        # browsers send what stands behind the # to nobody: no log has it
        print(f"{served_url(application.settings)}/sign-in#{code}")
    else:
        print(issue(application.settings, who, hours, client))


def issue(settings: "Settings", user: UUID, hours: float, client: str | None = None) -> str:
    """A token that this deployment accepts."""
    from rag_app.access.tokens import EXTENSION, issue_token

    if client not in {None, EXTENSION}:
        raise InvalidInput("--client", client, f"accepted: {EXTENSION}")
    return issue_token(
        str(user),
        settings.jwt_secret(),
        audience=settings.api.jwt_audience,
        issuer=settings.api.jwt_issuer,
        lifetime=timedelta(hours=hours),
        client=client,
    )


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
