"""The `rag-app` command: what it takes. `rag_app.console.commands` does the work; heavy imports wait until a command runs."""

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rag_app.stores.registry import STORES

app = typer.Typer(
    add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Questions over content that only some people may see, answered with verified citations.",
)  # fmt: skip
db = typer.Typer(help="The database schema.")
sources = typer.Typer(help="What has been ingested.")
indexes = typer.Typer(help="Generations of an index: each is one build, with one embedding model; one of them answers.")
orgs = typer.Typer(help="Organizations, their members and sites.")
users = typer.Typer(help="Users: the plan of each, and what they have used of it.")
plans = typer.Typer(help="Plans: messages a month, and whether there are conversations at all.")
keys = typer.Typer(help="API keys: each belongs to an organization.")
prompts = typer.Typer(help="Versions of what models are told in conversations, and which are in use.")
training = typer.Typer(help="Answers that were collected to train models with, of users who consent.")
app.add_typer(db, name="db")
app.add_typer(sources, name="sources")
app.add_typer(indexes, name="indexes")
app.add_typer(orgs, name="orgs")
app.add_typer(users, name="users")
app.add_typer(plans, name="plans")
app.add_typer(keys, name="keys")
app.add_typer(prompts, name="prompts")
app.add_typer(training, name="training")

Index = Annotated[str, typer.Option("--index", "-i", metavar="I", help="index: a folder of indexes/")]
Org = Annotated[str, typer.Option("--org", "-o", metavar="O", help="organization: slug or id")]
User = Annotated[str | None, typer.Option("--user", metavar="U", help="see what this user may see, too: name or id")]
Site = Annotated[str | None, typer.Option("--site", metavar="S", help="a site of the organization, and nothing else")]
TopK = Annotated[int | None, typer.Option("--top-k", "-k", min=1, max=1000, help="chunks to find")]
Mode = Annotated[str, typer.Option("--mode", "-m", metavar="hybrid|dense|text", help="how to search")]
Filter = Annotated[
    list[str] | None,
    typer.Option("--filter", "-f", metavar="F", help="e.g. lang=fr, 'date>=2026-01-01', 'source_type in faq,doc'"),
]
OneIndex = Annotated[str, typer.Argument(metavar="INDEX", help="a folder of indexes/")]
Json = Annotated[bool, typer.Option("--json", help="one JSON document on stdout, nothing else")]


@app.command()
def demo(
    check: Annotated[bool, typer.Option("--check", help="do it all, then exit; non-zero if amiss")] = False,
) -> None:
    """Load the sample corpora, ask them questions, then serve the API."""
    from rag_app.console.demo import run_demo

    raise typer.Exit(run_demo(check=check))


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on (RAG_HOST)")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="port to listen on; 0: any (RAG_PORT)")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="processes (RAG_WORKERS)")] = None,
) -> None:
    """Serve the HTTP API."""
    from rag_app.console.serving import serve as run

    run(host, port, workers)


@db.command("upgrade")
def db_upgrade() -> None:
    """Migrate, and build new indexes. Safe to repeat."""
    from rag_app.console import commands

    print(commands.upgrade_database())


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="files and folders")],
    index: Index,
    org: Org,
    site: Annotated[str | None, typer.Option(metavar="S", help="a site of the organization")] = None,
    source_type: Annotated[str | None, typer.Option(metavar="T", help="type of all of them")] = None,
    lang: Annotated[str | None, typer.Option(metavar="L", help="language of all of them; detected otherwise")] = None,
    meta: Annotated[list[str] | None, typer.Option(metavar="K=V", help="metadata of all of them; repeatable")] = None,
    owner: Annotated[str | None, typer.Option(metavar="U", help="the user they belong to: name or id")] = None,
    visibility: Annotated[
        str | None, typer.Option(metavar="user|team|global", help="who sees them; team by default")
    ] = None,
    base: Annotated[
        Path | None, typer.Option(metavar="DIR", help="sources are named by path from here; default: .")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read documents into an index.

    Safe to repeat: what has not changed costs nothing. Exit status 2 if some could not be read.
    """
    from rag_app.console import commands

    failed = commands.ingest(
        paths, index=index, org=org, site=site, owner=owner, visibility=visibility, base=base, as_json=as_json,
        said={"source_type": source_type, "lang": lang}, meta=meta or [],
    )  # fmt: skip
    if failed:
        raise typer.Exit(2)


@app.command()
def search(
    question: Annotated[str, typer.Argument(metavar="Q")], index: Index, org: Org, user: User = None, site: Site = None,
    top_k: TopK = 8, mode: Mode = "hybrid", filters: Filter = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Find what fits a question; no model is called."""
    from rag_app.console import commands

    commands.search(question, index, org, user, site, top_k, mode, filters or [], as_json)


@app.command()
def ask(
    question: Annotated[str, typer.Argument(metavar="Q")], index: Index, org: Org, user: User = None, site: Site = None,
    top_k: TopK = None, mode: Mode = "hybrid", filters: Filter = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Answer a question with citations, or refuse.

    An answer is made from the best hits alone; where they are not good enough, none is given.
    """
    from rag_app.console import commands

    commands.ask(question, index, org, user, site, top_k, mode, filters or [], as_json)


@sources.command("list")
def sources_list(index: Index, org: Org, as_json: Json = False) -> None:
    """Every source an organization has in an index."""
    from rag_app.console import commands

    commands.list_sources(index, org, as_json)


@sources.command("show")
def sources_show(
    source: Annotated[str, typer.Argument(help="id or external id")], index: Index, org: Org, as_json: Json = False
) -> None:
    """One source: what is known about it, and its text."""
    from rag_app.console import commands

    commands.show_source(source, index, org, as_json)


@sources.command("delete")
def sources_delete(
    names: Annotated[list[str], typer.Argument(metavar="SOURCE...", help="ids or external ids")], index: Index, org: Org
) -> None:
    """Delete sources: they never answer again."""
    from rag_app.console import commands

    commands.delete_sources(names, index, org)


@indexes.command("list")
def indexes_list(as_json: Json = False) -> None:
    """Every generation of every index: what it was built with, and what is in it."""
    from rag_app.console import commands

    commands.list_generations(as_json)


@indexes.command("rebuild")
def indexes_rebuild(
    index: OneIndex,
    switch: Annotated[bool, typer.Option("--switch", help="let it answer as soon as it is complete")] = False,
    as_json: Json = False,
) -> None:
    """Build an index anew, beside the generation that answers.

    With the settings and index.toml as they are now, from what is stored: the files are not needed. Safe to repeat:
    the same command goes on where it was. Exit status 2 if a source could not be built.
    """
    from rag_app.console import commands

    if commands.rebuild_index(index, switch, as_json):
        raise typer.Exit(2)


@indexes.command("switch")
def indexes_switch(
    index: OneIndex,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", min=1, help="as `indexes list` shows it; the newest by default")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let another generation answer, at once.

    Only one that holds every source as it is now. Without a number, the newest that has not answered yet.
    """
    from rag_app.console import commands

    commands.switch_index(index, number, as_json)


@indexes.command("rollback")
def indexes_rollback(
    index: OneIndex,
    force: Annotated[
        bool, typer.Option("--force", help="at once, without the sources that came or changed since")
    ] = False,
    as_json: Json = False,
) -> None:
    """Let the generation before the present one answer again.

    What came or changed since is built in it first. Exit status 2 if a source could not be built.
    """
    from rag_app.console import commands

    if commands.roll_back_index(index, force, as_json):
        raise typer.Exit(2)


@indexes.command("drop")
def indexes_drop(
    index: OneIndex,
    number: Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="as `indexes list` shows it")],
) -> None:
    """Delete a generation that does not answer, with its chunks."""
    from rag_app.console import commands

    print(commands.drop_generation(index, number))


@indexes.command("move")
def indexes_move(
    index: OneIndex,
    to: Annotated[str, typer.Option("--to", metavar="|".join(STORES), help="the vector store to copy it to")],
    as_json: Json = False,
) -> None:
    """Copy an index to the other vector store; nothing is embedded again.

    Both sides are compared before the copy may answer, and RAG_VECTOR_STORE says whether it is asked. Safe to repeat:
    the same command goes on where it was, and brings over what has changed since. Exit status 2 if a source could not
    be copied, or differs.
    """
    from rag_app.console import commands

    if commands.move_index(index, to, as_json):
        raise typer.Exit(2)


@orgs.command("create")
def orgs_create(
    slug: Annotated[str, typer.Argument(help="short name, as in --org")],
    name: Annotated[str | None, typer.Option(help="name for people; the slug by default")] = None,
) -> None:
    """Make an organization."""
    from rag_app.console import commands

    print(commands.create_organization(slug, name or slug))


@orgs.command("list")
def orgs_list(as_json: Json = False) -> None:
    """All organizations."""
    from rag_app.console import commands

    commands.list_organizations(as_json)


@orgs.command("add-member")
def orgs_add_member(
    org: Annotated[str, typer.Argument(help="slug or id")],
    user: Annotated[str, typer.Argument(help="name (an e-mail address, say) or id; a new name makes a new user")],
    subject: Annotated[
        str | None,
        typer.Option(metavar="SUB", help="the `sub` of the user's tokens, if an identity provider issues them"),
    ] = None,
) -> None:
    """Let a user see an organization's content."""
    from rag_app.console import commands

    print(commands.add_member(org, user, subject))


@orgs.command("add-site")
def orgs_add_site(
    org: Annotated[str, typer.Argument(help="slug or id")], site: Annotated[str, typer.Argument()]
) -> None:
    """Give an organization a site that sources can belong to."""
    from rag_app.console import commands

    print(commands.add_site(org, site))


@orgs.command("set-budget")
def orgs_set_budget(
    org: Annotated[str, typer.Argument(help="slug or id")],
    tokens: Annotated[str, typer.Argument(metavar="TOKENS|none", help="a number; none: as the settings have it")],
) -> None:
    """Bound the tokens that models may count for an organization in a month.

    When they are used, its members get no answers in conversations until the first of the next month (UTC).
    """
    from rag_app.console import commands

    print(commands.set_budget(org, tokens))


@users.command("create")
def users_create(
    name: Annotated[str, typer.Argument(help="a name: an e-mail address, say")],
    plan: Annotated[str, typer.Option("--plan", metavar="P", help="one of `plans list`")] = "free",
    role: Annotated[str, typer.Option("--role", metavar="user|admin", help="what they may do")] = "user",
    org: Annotated[
        list[str] | None, typer.Option("--org", "-o", metavar="O", help="an organization to be of: slug or id; repeatable")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option(metavar="SUB", help="the `sub` of the user's tokens, if an identity provider issues them"),
    ] = None,
) -> None:  # fmt: skip
    """Make a user."""
    from rag_app.console import commands

    print(commands.create_user(name, plan, role, org or [], subject))


@users.command("list")
def users_list(as_json: Json = False) -> None:
    """All users: plan, role, organizations, and the messages of this month.

    Service users of API keys are among them: `key:` and the key's id.
    """
    from rag_app.console import commands

    commands.list_users(as_json)


@users.command("set-plan")
def users_set_plan(
    user: Annotated[str, typer.Argument(help="name or id")],
    plan: Annotated[str, typer.Argument(help="one of `plans list`")],
) -> None:
    """Give a user another plan, at once.

    What is used of this month stays used.
    """
    from rag_app.console import commands

    print(commands.set_plan(user, plan))


@users.command("set-role")
def users_set_role(
    user: Annotated[str, typer.Argument(help="name or id")],
    role: Annotated[str, typer.Argument(metavar="user|admin", help="what they may do")],
) -> None:
    """Make a user an administrator, or an ordinary user again, at once.

    An administrator may read all conversations, which is written down, and answer a message by another plan.
    """
    from rag_app.console import commands

    print(commands.set_role(user, role))


Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="instead of stdout; only its owner may read it")
]


@users.command("export")
def users_export(user: Annotated[str, typer.Argument(help="name or id")], output: Output = None) -> None:
    """Print all that is kept about a user, as JSON.

    What they said and were told, what was counted, and what is written down about them.
    """
    from rag_app.console import personal

    personal.export_user(user, output)


@users.command("erase")
def users_erase(
    user: Annotated[str, typer.Argument(help="name or id")],
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a user with all that is kept about them. It does not come back.

    Sources that only they see go, out of every index; what they share stays, and belongs to nobody. docs/privacy.md
    says what remains. Safe to repeat: the same command goes on where it was. Exit status 2 if something is left to be
    done in a store that is not configured here.
    """
    from rag_app.console import personal

    if not yes and not _agreed(f"Erase {user} with all conversations and private sources?"):
        _fail("nothing is erased", 1)
    if not personal.erase_user(user):
        raise typer.Exit(2)


@training.command("export")
def training_export(
    output: Output = None,
    since: Annotated[
        str | None, typer.Option(metavar="DATE", help="only what was collected from then on: 2026-01-31")
    ] = None,
    capability: Annotated[str | None, typer.Option(metavar="C", help="only of this capability")] = None,
) -> None:
    """Examples as JSON lines, in the format that fine-tuning tools read.

    Only of users who consent now, and only of what they may still see. Nobody is named.
    """
    from rag_app.console import personal

    personal.export_training(output, since, capability)


@plans.command("list")
def plans_list(as_json: Json = False) -> None:
    """All plans: messages a month, and whether they have conversations."""
    from rag_app.console import commands

    commands.list_plans(as_json)


@plans.command("set")
def plans_set(
    code: Annotated[str, typer.Argument(metavar="CODE", help="a plan's; one that is not there is made")],
    messages: Annotated[str | None, typer.Option(metavar="N|unlimited", help="messages a month")] = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled", help="whether it has conversations")] = None,
) -> None:
    """Change a plan for all who have it, from their next message on, or make one.

    A new plan has 50 messages and conversations, unless it is said otherwise.
    """
    from rag_app.console import commands

    print(commands.set_plan_entitlement(code, messages, enabled))


@keys.command("create")
def keys_create(
    org: Org,
    name: Annotated[str, typer.Option("--name", "-n", metavar="N", help="what it is for")],
    indexes: Annotated[
        list[str] | None, typer.Option("--index", "-i", metavar="I", help="an index it may search; repeatable; all by default")
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Make an API key, and print it: this once.

    It goes into a header: `Authorization: Bearer KEY`. It sees what all members of the organization see.
    """
    from rag_app.console import commands

    commands.create_key(org, name, indexes or None, as_json)


@keys.command("list")
def keys_list(
    org: Annotated[str | None, typer.Option("--org", "-o", metavar="O", help="of this organization: slug or id")] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """All API keys, as far as anybody can show them."""
    from rag_app.console import commands

    commands.list_keys(org, as_json)


@keys.command("revoke")
def keys_revoke(key: Annotated[str, typer.Argument(help="id, or how it begins, as `keys list` shows them")]) -> None:
    """Refuse an API key from now on.

    Every process does so at once. What is under way is answered.
    """
    from rag_app.console import commands

    print(commands.revoke_key(key))


PromptVersion = Annotated[str, typer.Argument(metavar="NAME", help="as `prompts list` shows it")]


@prompts.command("list")
def prompts_list(as_json: Json = False) -> None:
    """All versions: for what, whether in use, weight, and the share of new threads that get it."""
    from rag_app.console import commands

    commands.list_prompts(as_json)


@prompts.command("show")
def prompts_show(name: PromptVersion, as_json: Json = False) -> None:
    """One version, as a file that `prompts add` takes."""
    from rag_app.console import commands

    commands.show_prompt(name, as_json)


@prompts.command("add")
def prompts_add(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="its name is the version's: ask_lexybrain_...")],
) -> None:
    """Add a version.

    A version never changes: what is better has a new name. It is in use if the file says so, or after `prompts activate`.
    """
    from rag_app.console import commands

    commands.add_prompt(file)


@prompts.command("activate")
def prompts_activate(name: PromptVersion) -> None:
    """Use a version, beside the others of its type that are in use."""
    from rag_app.console import commands

    commands.activate_prompt(name, active=True)


@prompts.command("deactivate")
def prompts_deactivate(name: PromptVersion) -> None:
    """Use a version no more, not even in threads that had it."""
    from rag_app.console import commands

    commands.activate_prompt(name, active=False)


@prompts.command("weigh")
def prompts_weigh(
    name: PromptVersion,
    weight: Annotated[int, typer.Argument(metavar="W", min=0, max=1_000_000, help="0: no thread gets it")],
) -> None:
    """Set a version's share among those of its type that are in use.

    Threads keep the version they have while it is in use and weighs something.
    """
    from rag_app.console import commands

    commands.weigh_prompt(name, weight)


@app.command()
def token(
    user: Annotated[str, typer.Option(metavar="U", help="name or id")],
    hours: Annotated[float, typer.Option(min=0.01, max=8760, help="how long it is valid")] = 24.0,
    client: Annotated[
        str | None, typer.Option(metavar="extension", help="of a browser extension, which also sends x-ext-client")
    ] = None,
) -> None:
    """Print a token for a user of the HTTP API.

    It goes into a header: `Authorization: Bearer TOKEN`. Where an identity provider issues the tokens, this does not.
    """
    from rag_app.console import commands

    print(commands.token(user, hours, client))


@app.command()
def evaluate(
    index: Index, org: Org,
    queries: Annotated[Path | None, typer.Option(metavar="F", help="JSONL with `id` and `text`; the index's own judgments otherwise")] = None,
    qrels: Annotated[Path | None, typer.Option(metavar="F", help="TREC judgments: query 0 external-id grade")] = None,
    recorded: Annotated[bool, typer.Option("--recorded", help="what the organization judged: by /validate, and by feedback")] = False,
    mode: Mode = "hybrid", as_json: Json = False,
) -> None:  # fmt: skip
    """Measure retrieval: nDCG@10, P@k, R@k, MRR, hit rate."""
    from rag_app.console import commands

    commands.evaluate(index, org, queries, qrels, recorded, mode, as_json)


@app.command()
def doctor() -> None:
    """Say what is configured, reachable and amiss.

    And what to do about it. Exit status 1 if something is amiss. A model that writes answers is asked for a word.
    """
    from rag_app.console import commands

    raise typer.Exit(0 if commands.doctor() else 1)


def main() -> None:
    """Every error is one line on stderr and a non-zero status: 1, or 2 for a command line that is not understood."""
    debug = os.environ.get("RAG_LOG_LEVEL") == "debug"
    if not debug:  # what libraries have to say of a document, say, is nothing the reader can act on
        logging.basicConfig(handlers=[logging.NullHandler()])
        warnings.simplefilter("ignore")
    try:
        status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "rag-app"
        _fail(f"{error.format_message().rstrip('.')}; see `{path} --help`", error.exit_code)
    except BrokenPipeError:  # `rag-app ... | head`: what is still buffered goes nowhere, and that is no news
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    except Exception as error:
        from rag_app.domain.errors import RagError

        if isinstance(error, RagError | OSError):
            _fail(str(error), 1)
        if debug:
            raise
        _fail(f"{type(error).__name__}: {error} (a defect: please report it; RAG_LOG_LEVEL=debug shows more)", 1)
    sys.exit(status)


def _agreed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:  # nobody is there to answer
        return False


def _fail(problem: str, status: int) -> NoReturn:
    print(f"error: {' '.join(problem.split())}", file=sys.stderr)
    sys.exit(status)
