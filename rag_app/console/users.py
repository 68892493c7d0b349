"""`rag-app users`."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rag_app.console.commands import Application, Json, Output, Subject, UserArgument, fail, group, on_application
from rag_app.console.plans import limit_text
from rag_app.console.printing import plain, print_list, record, written

if TYPE_CHECKING:
    from rag_app.access.people import User

app = group("Users: the plan of each, and what they have used of it.")


@app.command()
@on_application
async def create(
    application: Application,
    name: Annotated[str, typer.Argument(help="a name: an e-mail address, say")],
    plan: Annotated[str, typer.Option("--plan", metavar="P", help="one of `plans list`")] = "free",
    role: Annotated[str, typer.Option("--role", metavar="user|admin", help="what they may do")] = "user",
    org: Annotated[
        list[str] | None,
        typer.Option("--org", "-o", metavar="O", help="an organization to be of: slug or id; repeatable"),
    ] = None,
    subject: Subject = None,
) -> None:
    """Make a user."""
    people = application.people
    organizations = [await people.organization(each) for each in org or []]  # all of them exist, or nobody is made
    made = await people.create_user(name, plan, role, subject)
    for organization in organizations:
        await people.add_member(organization, made)
    print(_user_text(made))


@app.command("list")
@on_application
async def list_all(application: Application, as_json: Json = False) -> None:
    """All users: plan, role, organizations, and the messages of this month.

    Service users of API keys are among them: `key:` and the key's id.
    """
    users = await application.people.users()
    limits = {plan.code: plan.messages for plan in await application.plans.list()}
    used = await application.accounts.used(user.id for user, _ in users)
    found = [
        record(user, "name id plan role")
        | {"organizations": organizations, "used": used[user.id], "limit": limits[user.plan]}
        for user, organizations in users
    ]
    lines = (
        f"{each['name']}\t{each['id']}\t{each['plan']}\t{each['role']}\t{','.join(each['organizations']) or '-'}"
        f"\t{each['used']} of {limit_text(each['limit'])} this month"
        for each in found
    )
    print_list(as_json, found, lines, "users")


@app.command()
@on_application
async def set_plan(
    application: Application,
    user: UserArgument,
    plan: Annotated[str, typer.Argument(help="one of `plans list`")],
) -> None:
    """Give a user another plan, at once.

    What is used of this month stays used.
    """
    print(_user_text(await application.people.set_plan(await application.people.user(user), plan)))


@app.command()
@on_application
async def set_role(
    application: Application,
    user: UserArgument,
    role: Annotated[str, typer.Argument(metavar="user|admin", help="what they may do")],
) -> None:
    """Make a user an administrator, or an ordinary user again, at once.

    An administrator may read all conversations, which is written down, and answer a message by another plan.
    """
    print(_user_text(await application.people.set_role(await application.people.user(user), role)))


def _user_text(user: "User") -> str:
    return f"{user.name}\t{user.id}\t{user.plan}\t{user.role}"


@app.command()
@on_application
async def export(application: Application, user: UserArgument, output: Output = None) -> None:
    """Print all that is kept about a user, as JSON.

    What they said and were told, what was counted, and what is written down about them.
    """
    from rag_app.surfaces.administration.personal import Personal

    who = await application.people.user(user)
    organizations = [each.id for each in await application.people.organizations()]
    found = await Personal(application.database).everything(organizations, who.id)
    with written(output) as document:
        document.write(json.dumps(found, ensure_ascii=False, indent=2, default=plain) + "\n")
    counted = ", ".join(f"{len(rows)} {kind}" for kind, rows in found.items() if isinstance(rows, list) and rows)
    print(f"{who.name}: {counted or 'nothing but the account'}", file=sys.stderr)


@app.command()
def erase(
    user: UserArgument,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a user with all that is kept about them. It does not come back.

    Sources that only they see go, out of every index; what they share stays, and belongs to nobody. docs/privacy.md
    says what remains. Safe to repeat: the same command goes on where it was. Exit status 2 if something is left to be
    done in a store that is not configured here.
    """
    if not yes and not _agrees(f"Erase {user} with all conversations and private sources?"):
        fail("nothing is erased", 1)
    _erase(user)


@on_application
async def _erase(application: Application, name: str) -> None:
    from rag_app.surfaces.administration.erasure import erase

    user = await application.people.user(name)
    done = await erase(application, user)
    print(f"{user.name} ({user.id}) is erased, with {done.private} private sources")
    if done.shared:
        print(f"{done.shared} sources that others see stay, and belong to nobody")
    for (store, collection), sources in done.left.items():
        print(
            f"!! {store} is not configured here, and its {collection} may hold chunks of theirs:"
            f" delete that collection, or its points with one of these as source_id: {', '.join(map(str, sorted(sources)))}",
            file=sys.stderr,
        )
    if done.left:
        raise typer.Exit(2)


def _agrees(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # nobody is there to answer
        return False
