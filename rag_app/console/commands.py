"""What the `rag-app` commands do."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from llama_index.core.llms import ChatMessage

from rag_app.access.keys import ApiKey
from rag_app.access.people import User
from rag_app.answering.capabilities import capability_for
from rag_app.answering.prompt_configs import PromptConfigs
from rag_app.answering.roles import PromptConfig, as_toml, check, load_config, load_configs, shares
from rag_app.application import Application, DatabaseUrls, database_urls, open_application, public_keys
from rag_app.console.indexing import Begin, Indexing, Outcome
from rag_app.console.printing import (
    answer_json,
    answer_text,
    counting,
    day,
    hit_json,
    hits_text,
    holding_json,
    holding_text,
    key_json,
    key_text,
    moved_json,
    moved_text,
    outcome_json,
    outcome_text,
    print_json,
    progress_bar,
    source_json,
    summary_json,
    summary_text,
)
from rag_app.database.migrate import current, upgrade
from rag_app.database.session import Database
from rag_app.documents.documents import Document
from rag_app.documents.generations import Generation
from rag_app.documents.ingest import Summary
from rag_app.documents.metadata import Target, to_source
from rag_app.documents.readers import documents_below
from rag_app.documents.rebuild import Built
from rag_app.domain.answer import Answer, Hit, Mode
from rag_app.domain.errors import InvalidInput, Misconfigured, NotFound, RagError
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source, source_id
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.settings import Settings
from rag_app.surfaces.lexybrain.quotas import Accounts, Plan, Plans
from rag_app.surfaces.library.asking import question_of, scope_of, target_of

if TYPE_CHECKING:
    from rag_app.evaluation.judgments import Judgments
    from rag_app.evaluation.report import Report

T = TypeVar("T")


def run(work: Callable[[Application], Awaitable[T]]) -> T:
    """Open the application, do the work, close it."""

    async def opened(settings: Settings) -> T:
        async with open_application(settings, urls) as application:
            return await work(application)

    settings = Settings()
    with database_urls(settings) as urls:
        return asyncio.run(opened(settings))


def upgrade_database() -> str:
    """Migrate, then build the first generation of indexes that have none, and add the prompt versions of the files."""
    settings = Settings()
    with database_urls(settings) as urls:
        if urls.owner is None:
            raise Misconfigured("set RAG_DATABASE_OWNER_URL: migrating needs the role that owns the schema")
        upgrade(urls.owner, urls.app, resource_folder("migrations"), gateway=settings.database.gateway_role)

        async def build() -> tuple[list[str], list[str]]:
            application = Application(settings, urls)
            try:
                return await application.build_missing(), await application.seed_prompts()
            finally:
                await application.close()

        built, added = asyncio.run(build())
    return "the schema is up to date" + "".join(
        f"; {what}: {', '.join(names)}" for what, names in (("built", built), ("prompts added", added)) if names
    )


def ingest(
    paths: list[Path], *, index: str, org: str, site: str | None, owner: str | None, visibility: str | None,
    base: Path | None, said: Mapping[str, object], meta: list[str], as_json: bool,
) -> bool:  # fmt: skip
    """True if something could not be read."""
    metadata = {key: value for key, value in said.items() if value is not None}
    for pair in meta:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise InvalidInput("--meta", pair, f"{pair!r} is not `key=value`")
        metadata[key.strip()] = value.strip()
    if not re.fullmatch("[A-Za-z]{2,3}([-_].+)?", str(metadata.get("lang", "en"))):
        raise InvalidInput("lang", metadata["lang"], "must be the code of a language: en, fr or en-GB, say")
    for path in paths:
        if not path.exists():
            raise NotFound("file or folder", str(path))

    async def work(application: Application) -> Summary:
        spec = find_index(application.indexes, index)
        target = await target_of(application, org, site, owner, visibility, metadata)
        to_source(Document("nothing", ()), "nothing", "", spec, target)  # refuses bad metadata once, not for each file
        total = sum(1 for path in paths for _ in documents_below(path))
        ingestor = await application.ingestor(spec, target)
        with progress_bar(f"{spec.name}/{org}", total) as progress:
            return await ingestor.ingest(paths, base=base or Path.cwd(), progress=progress)

    summary = run(work)
    if as_json:
        print_json(summary_json(summary))
    else:
        print(summary_text(summary))
    return bool(summary.failed)


def search(
    text: str, index: str, org: str, user: str | None, site: str | None, top_k: int | None, mode: str,
    filters: list[str], as_json: bool,
) -> None:  # fmt: skip
    question = question_of(text, top_k or 8, mode, filters)

    async def work(application: Application) -> tuple[Hit, ...]:
        return await application.pipeline.search(index, question, await scope_of(application, org, user, site))

    hits = run(work)
    if as_json:
        print_json({"question": text, "hits": [hit_json(hit) for hit in hits]})
    else:
        print(hits_text(hits))


def ask(
    text: str, index: str, org: str, user: str | None, site: str | None, top_k: int | None, mode: str,
    filters: list[str], as_json: bool,
) -> None:  # fmt: skip
    question = question_of(text, top_k or 8, mode, filters)

    async def work(application: Application) -> Answer:
        capability = capability_for(find_index(application.indexes, index).name)
        asked = replace(question, top_k=top_k or capability.top_k)
        return await application.pipeline.answer(capability.name, asked, await scope_of(application, org, user, site))

    answer = run(work)
    if as_json:
        print_json({"question": text, **answer_json(answer)})
    else:
        print(answer_text(answer))


def list_sources(index: str, org: str, as_json: bool) -> None:
    async def work(application: Application) -> list[Source]:
        spec, scope = await _operators(application, index, org)
        return [source async for source in application.ledger.list(scope, spec.name, operator=True)]

    found = run(work)
    if as_json:
        print_json([source_json(source) for source in found])
        return
    for source in found:
        print(f"{source.external_id}\t{source.source_type}\t{source.lang}\t{day(source.date) or '-'}\t{source.title}")
    print(f"{len(found)} sources", file=sys.stderr)


def show_source(name: str, index: str, org: str, as_json: bool) -> None:
    async def work(application: Application) -> tuple[Source, list[dict[str, object]]]:
        spec, scope = await _operators(application, index, org)
        found = await _source_named(application, name, spec, scope)
        return found, await application.ledger.content(scope, found.id, operator=True)

    source, passages = run(work)
    if as_json:
        print_json({**source_json(source), "passages": passages})
        return
    for key, value in source_json(source).items():
        if value not in (None, "", {}):
            print(f"{key}: {value}")
    for passage in passages:
        where = ", ".join(str(part) for part in (passage["section"], passage["page"]) if part)
        print(f"\n[{where}]" if where else "")
        print(passage["text"])


def delete_sources(names: list[str], index: str, org: str) -> None:
    async def work(application: Application) -> int:
        spec, scope = await _operators(application, index, org)
        # all of them exist, or nothing is deleted
        wanted = {(await _source_named(application, name, spec, scope)).id for name in names}
        (org_id,) = scope.organizations
        await (await application.ingestor(spec, Target(org_id))).delete(wanted)
        return len(wanted)

    print(f"{run(work)} deleted")


def list_generations(as_json: bool) -> None:
    found = _operate(lambda indexing: indexing.holdings())
    if as_json:
        print_json([holding_json(each) for each in found])
    else:
        print("\n".join(holding_text(each) for each in found))


def rebuild_index(index: str, switch: bool, as_json: bool) -> bool:
    """True if a source could not be built."""
    with _building() as begin:
        outcome = _operate(lambda indexing: _named(indexing.rebuild(index, switch=switch, begin=begin), indexing))
    return _tell(*outcome, as_json=as_json)


def switch_index(index: str, number: int | None, as_json: bool) -> None:
    _tell(*_operate(lambda indexing: _named(indexing.switch(index, number), indexing)), as_json=as_json)


def roll_back_index(index: str, force: bool, as_json: bool) -> bool:
    """True if a source could not be built."""
    with _building() as begin:
        outcome = _operate(lambda indexing: _named(indexing.roll_back(index, force=force, begin=begin), indexing))
    return _tell(*outcome, as_json=as_json)


def move_index(index: str, to: str, as_json: bool) -> bool:
    """True if a source could not be copied, or a copy differs."""
    with _building() as begin:
        moved, slugs = _operate(lambda indexing: _named(indexing.move(index, to, begin=begin), indexing))
    if as_json:
        print_json(moved_json(moved, slugs))
    else:
        print(moved_text(moved, slugs))
    return bool(moved.built.failed or moved.differing)


def drop_generation(index: str, number: int) -> str:
    dropped = _operate(lambda indexing: indexing.drop(index, number))
    return f"generation {dropped.number} of {dropped.index} in {dropped.store} is dropped"


def _operate(work: Callable[[Indexing], Awaitable[T]]) -> T:
    """On an application that has not been checked: a mismatch is what these commands are for."""

    async def opened(settings: Settings) -> T:
        application = Application(settings, urls)
        try:
            await application.database.check()
            return await work(Indexing(application))
        finally:
            await application.close()

    settings = Settings()
    with database_urls(settings) as urls:
        return asyncio.run(opened(settings))


@contextmanager
def _building() -> Iterator[Begin]:
    """A progress bar as soon as it is known of what."""
    with ExitStack() as bars:

        def begin(generation: Generation, sources: int) -> Callable[[Built], None]:
            count = bars.enter_context(counting(f"{generation.index}, generation {generation.number}", sources))
            return lambda built: count(built.sources + built.compared)

        yield begin


async def _named(work: Awaitable[T], indexing: Indexing) -> tuple[T, dict[UUID, str]]:
    return await work, await indexing.organizations()


def _tell(outcome: Outcome, slugs: Mapping[UUID, str], *, as_json: bool) -> bool:
    if as_json:
        print_json(outcome_json(outcome, slugs))
    else:
        print(outcome_text(outcome, slugs))
    return bool(outcome.built.failed)


def create_organization(slug: str, name: str) -> str:
    made = run(lambda app: app.people.create_organization(slug, name))
    return f"{made.slug}\t{made.id}"


def list_organizations(as_json: bool) -> None:
    found = run(lambda app: app.people.organizations())
    if as_json:
        print_json([{"id": str(each.id), "slug": each.slug, "name": each.name} for each in found])
    else:
        print("\n".join(f"{each.slug}\t{each.id}\t{each.name}" for each in found))


def add_member(org: str, user: str, subject: str | None = None) -> str:
    async def work(application: Application) -> str:
        organization = await application.people.organization(org)
        try:
            member = await application.people.user(user)
        except NotFound:
            member = await application.people.create_user(user)
        if subject is not None:
            await application.people.know_as(member, subject)
        await application.people.add_member(organization, member)
        return f"{member.name}\t{member.id}\tmember of {organization.slug}"

    return run(work)


def add_site(org: str, site: str) -> str:
    async def work(application: Application) -> str:
        organization = await application.people.organization(org)
        made = await application.people.create_site(organization.id, site)
        return f"{organization.slug}/{made.name}\t{made.id}"

    return run(work)


def set_budget(org: str, tokens: str) -> str:
    bound = None if tokens == "none" else _number("tokens", tokens, "none")

    async def work(application: Application) -> str:
        organization = await application.people.organization(org)
        await application.people.set_budget(organization, bound)
        return f"{organization.slug}\t{'no budget of its own' if bound is None else f'{bound} tokens a month'}"

    return run(work)


def create_user(name: str, plan: str, role: str, orgs: list[str], subject: str | None) -> str:
    async def work(application: Application) -> str:
        people = application.people
        organizations = [await people.organization(org) for org in orgs]  # all of them exist, or nobody is made
        made = await people.create_user(name, plan, role, subject)
        for organization in organizations:
            await people.add_member(organization, made)
        return _user_text(made)

    return run(work)


def list_users(as_json: bool) -> None:
    async def work(application: Application) -> list[dict[str, Any]]:
        users = await application.people.users()
        limits = {plan.code: plan.messages for plan in await Plans(application.database).list()}
        used = await Accounts(application.database).used(user.id for user, _ in users)
        return [
            {
                "name": user.name, "id": str(user.id), "plan": user.plan, "role": user.role,
                "organizations": organizations, "used": used[user.id], "limit": limits[user.plan],
            }
            for user, organizations in users
        ]  # fmt: skip

    found = run(work)
    if as_json:
        print_json(found)
        return
    for each in found:
        organizations = ",".join(each["organizations"]) or "-"
        used = f"{each['used']} of {_messages(each['limit'])} this month"
        print("\t".join([each["name"], each["id"], each["plan"], each["role"], organizations, used]))
    print(f"{len(found)} users", file=sys.stderr)


def set_plan(user: str, plan: str) -> str:
    async def work(application: Application) -> str:
        return _user_text(await application.people.set_plan(await application.people.user(user), plan))

    return run(work)


def set_role(user: str, role: str) -> str:
    async def work(application: Application) -> str:
        return _user_text(await application.people.set_role(await application.people.user(user), role))

    return run(work)


def list_plans(as_json: bool) -> None:
    found = run(lambda app: Plans(app.database).list())
    if as_json:
        print_json([{"code": each.code, "messages": each.messages, "enabled": each.enabled} for each in found])
    else:
        print("\n".join(_plan_text(each) for each in found))


def set_plan_entitlement(code: str, messages: str | None, enabled: bool | None) -> str:
    limit = None
    if messages is not None:
        limit = -1 if messages == "unlimited" else _number("messages", messages, "unlimited")
    return _plan_text(run(lambda app: Plans(app.database).set(code, limit, enabled)))


def _number(field: str, said: str, other: str) -> int:
    if not re.fullmatch("[0-9]{1,19}", said):
        raise InvalidInput(field, said, f"{said!r} is neither a number nor {other!r}")
    return int(said)


def _messages(limit: int) -> str:
    return "unlimited" if limit < 0 else str(limit)


def _plan_text(plan: Plan) -> str:
    return f"{plan.code}\t{_messages(plan.messages)} messages a month\t{'enabled' if plan.enabled else 'disabled'}"


def _user_text(user: User) -> str:
    return f"{user.name}\t{user.id}\t{user.plan}\t{user.role}"


def create_key(org: str, name: str, indexes: list[str] | None, as_json: bool) -> None:
    async def work(application: Application) -> tuple[ApiKey, str]:
        # by their own names: an alias may point elsewhere one day
        bound = None if indexes is None else [find_index(application.indexes, index).name for index in indexes]
        return await application.keys.create(await application.people.organization(org), name, bound)

    made, secret = run(work)
    if as_json:
        print_json({**key_json(made), "key": secret})
    else:
        print(secret)
    print("keep it: it is not shown again, and only its hash is stored", file=sys.stderr)


def list_keys(org: str | None, as_json: bool) -> None:
    async def work(application: Application) -> list[ApiKey]:
        return await application.keys.list(await application.people.organization(org) if org else None)

    found = run(work)
    if as_json:
        print_json([key_json(each) for each in found])
        return
    for each in found:
        print(key_text(each))
    print(f"{len(found)} keys", file=sys.stderr)


def revoke_key(key: str) -> str:
    return key_text(run(lambda app: app.keys.revoke(key)))


def list_prompts(as_json: bool) -> None:
    found = _prompts(lambda configs: configs.all())
    if as_json:
        share = shares(found)
        print_json([{**_prompt_json(each), "share": share[each.name]} for each in found])
    else:
        print("\n".join(_prompt_text(each, found) for each in found))


def show_prompt(name: str, as_json: bool) -> None:
    found = _prompts(lambda configs: configs.get(name))
    if as_json:
        print_json({**_prompt_json(found), "system_instructions": found.instructions})
    else:
        print(as_toml(found), end="")


def add_prompt(file: Path) -> None:
    config = load_config(file)
    _tell_of_prompt(lambda configs: configs.add(config))


def activate_prompt(name: str, *, active: bool) -> None:
    _tell_of_prompt(lambda configs: configs.activate(name) if active else configs.deactivate(name))


def weigh_prompt(name: str, weight: int) -> None:
    _tell_of_prompt(lambda configs: configs.weigh(name, weight))


def _tell_of_prompt(change: Callable[[PromptConfigs], Awaitable[PromptConfig]]) -> None:
    """Change a version; print it as `prompts list` does, and say so where nothing of its type is in use now."""

    async def work(configs: PromptConfigs) -> tuple[PromptConfig, list[PromptConfig]]:
        return await change(configs), await configs.all()

    changed, found = _prompts(work)
    print(_prompt_text(changed, found))
    if not any(each.active and each.weight for each in found if each.type == changed.type):
        print(f"note: no version of {changed.type} is in use: models are told nothing of the kind", file=sys.stderr)


def _prompts(work: Callable[[PromptConfigs], Awaitable[T]]) -> T:
    """These commands need the database alone, not what is searched."""

    async def opened() -> T:
        database = Database(urls.app, pool_size=1)
        try:
            await database.check()
            configs = PromptConfigs(database, check)
            if urls.private:
                await _seed(configs)
            return await work(configs)
        finally:
            await database.close()

    with database_urls(Settings()) as urls:
        return asyncio.run(opened())


async def _seed(configs: PromptConfigs) -> list[str]:
    return await configs.seed(load_configs(resource_folder("prompts") / "lexybrain"))


def _prompt_json(config: PromptConfig) -> dict[str, object]:
    return {
        "name": config.name, "type": config.type, "is_active": config.active, "weight": config.weight,
        "constraints": dict(config.constraints),
    }  # fmt: skip


def _prompt_text(config: PromptConfig, configs: list[PromptConfig]) -> str:
    state = f"{shares(configs)[config.name]:.0%} of new threads" if config.active else "not in use"
    return f"{config.name}\t{config.type}\t{config.weight}\t{state}"


def token(user: str, hours: float, client: str | None) -> str:
    from rag_app.access.tokens import EXTENSION

    if client not in {None, EXTENSION}:
        raise InvalidInput("--client", client, f"accepted: {EXTENSION}")

    async def work(application: Application) -> str:
        found = await application.people.user(user)
        return issue(application.settings, found.id, hours, client)

    return run(work)


def issue(settings: Settings, user: UUID, hours: float, client: str | None = None) -> str:
    """A token that this deployment accepts."""
    from rag_app.access.tokens import issue_token

    return issue_token(
        str(user),
        settings.jwt_secret(),
        audience=settings.api.jwt_audience,
        issuer=settings.api.jwt_issuer,
        lifetime=timedelta(hours=hours),
        client=client,
    )


def doctor() -> bool:
    """Print what is configured, reachable and fitting, and what to do where it is not; True if all is well."""
    settings = Settings()
    amiss = 0

    def say(name: str, state: str, problem: bool = False) -> None:
        nonlocal amiss
        amiss += problem
        print(f"{'!!' if problem else 'ok'}  {name:<16} {state}")

    async def check(name: str, work: Awaitable[object], well: str) -> bool:
        try:
            await work
        except RagError as error:
            say(name, " ".join(str(error).split()), problem=True)
            return False
        say(name, well)
        return True

    async def look(urls: DatabaseUrls) -> None:
        application = Application(settings, urls)
        try:
            await check("embedding", application.check_embedder(), f"{application.embedder.model_name} answers")
            if not application.models.all:
                say("answers", "extractive: sentences of the sources; RAG_LLM names a model that writes")
            for model in application.models.all:
                hello = model.chat([ChatMessage("Answer with one word: ready.")])
                await check("answers", hello, f"{model.name} answers")
            if (keys := public_keys(settings)) is not None:
                await check("tokens", keys.named(None), f"signed by the keys of {keys.where}")
            where = f"private, in {settings.database.home / 'postgres'}" if urls.private else "as RAG_DATABASE_URL says"
            if not await check("PostgreSQL", application.database.check(), f"{where}; schema and role fit"):
                return
            if urls.owner is None:
                say("owner", "RAG_DATABASE_OWNER_URL is not set: `rag-app db upgrade` runs elsewhere")
            else:
                await check("owner", asyncio.to_thread(current, urls.owner), "can connect, for `rag-app db upgrade`")
            stores = ", ".join(sorted({application.backends.place(spec) for spec in application.indexes.values()}))
            for name, state in (await application.problems()).items():
                if name == "vector_store":
                    say("vector store", stores if state == "ok" else f"{stores}: {state}", problem=state != "ok")
                elif name in application.indexes:
                    say(name, "index, built with these settings" if state == "ok" else state, problem=state != "ok")
        finally:
            await application.close()

    try:
        with database_urls(settings) as urls:
            asyncio.run(look(urls))
    except RagError as error:
        say("configuration", " ".join(str(error).split()), problem=True)
    print("all is well" if not amiss else f"{amiss} of these need attention")
    return not amiss


def evaluate(
    index: str, org: str, queries: Path | None, qrels: Path | None, recorded: bool, mode: str, as_json: bool
) -> None:  # fmt: skip
    """Ask every judged question of an organization, as the user and on the site it is judged for, and score what comes."""
    from rag_app.evaluation.judgments import Query, judgments_of, read_judgments, read_trec
    from rag_app.evaluation.report import make_report, report_json, report_text
    from rag_app.evaluation.run import run_retrieval, source_names

    if (queries is None) != (qrels is None):
        raise InvalidInput("", queries, "--queries and --qrels go together: give both, or none of them")
    if recorded and queries is not None:
        raise InvalidInput("", queries, "--recorded asks what was judged: give no --queries with it")
    question_of("any", 1, mode, [])

    async def work(application: Application) -> "Report":
        spec = find_index(application.indexes, index)
        organization = await application.people.organization(org)
        if queries is not None and qrels is not None:
            judgments = read_trec(queries, qrels)
        elif recorded:
            member = await application.people.member_of(org)
            judgments = judgments_of(await application.validations.recorded(member, spec.name))
        else:
            judgments = _of(
                organization.slug, read_judgments(resource_folder("indexes") / spec.name / "judgments.jsonl")
            )

        async def search(query: Query, depth: int) -> tuple[Hit, ...]:
            scope = await scope_of(application, org, query.user, query.site)
            return await application.pipeline.search(spec.name, question_of(query.text, depth, mode, []), scope)

        with counting("questions", len(judgments.queries)) as count:
            done = await run_retrieval(
                judgments.queries,
                search,
                source_names(judgments.qrels, spec.name, [organization.id]),
                rule=spec.confidence,
                progress=count,
            )
        return make_report(spec.name, Mode(mode), done, judgments, spec.confidence)

    report = run(work)
    if as_json:
        print_json(report_json(report))
    else:
        print(report_text(report))


def _of(organization: str, judgments: "Judgments") -> "Judgments":
    """The questions that this organization asks."""
    asked = tuple(query for query in judgments.queries if query.organization == organization)
    ids = {query.id for query in asked}
    return replace(judgments, queries=asked, qrels={q: grades for q, grades in judgments.qrels.items() if q in ids})


async def _operators(application: Application, index: str, org: str) -> tuple[IndexSpec, Scope]:
    """An operator's commands see all of one organization, private sources included."""
    spec = find_index(application.indexes, index)
    return spec, Scope(frozenset({(await application.people.organization(org)).id}))


async def _source_named(application: Application, name: str, spec: IndexSpec, scope: Scope) -> Source:
    """By id or external id. Raises NotFound with the name as it was given."""
    (org_id,) = scope.organizations
    try:
        wanted = UUID(name)
    except ValueError:
        wanted = source_id(org_id, spec.name, name)
    try:
        found = await application.ledger.get(scope, wanted, operator=True)
    except NotFound:
        found = None
    if found is None or found.index != spec.name:
        raise NotFound(f"source of this organization in {spec.name}", name)
    return found
