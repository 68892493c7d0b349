"""`rag-app doctor`: what is wrong with the configuration, the database and the indexes, and what to do."""

from collections.abc import Awaitable
from contextlib import aclosing, suppress
from typing import Annotated

from typer import Exit, Option

from rag_app.console.commands import Application, group, on_closed_application, read_settings
from rag_app.domain import PUBLIC_ORGANIZATION, Misconfigured, RagError, Scope

app = group()
_NOT_ASKED = "was not asked: `rag-app doctor --models` does"


@app.command()
def doctor(
    models: Annotated[
        bool,
        Option("--models", help="also embed a word, and send each configured answering model a one-word request"),
    ] = False,
) -> None:
    """Check the configuration, the database and the indexes.

    No model is loaded or asked, except with --models. Exit status 1 if a check fails.
    """
    from rag_app.application import wrong_settings

    settings = read_settings()  # what is wrong with these ends the command
    findings = _Findings()
    for problem in wrong_settings(settings, settings.api.workers):
        findings.add("settings", problem, problem=True)
    try:
        _look(findings, models)
    except RagError as error:
        findings.add("configuration", " ".join(str(error).split()), problem=True)
    attention = (
        "1 of these needs attention" if findings.problems == 1 else f"{findings.problems} of these need attention"
    )
    unasked = "; no model was asked: `rag-app doctor --models` asks them" if findings.unasked else ""
    print(attention if findings.problems else f"all is well{unasked}")
    raise Exit(1 if findings.problems else 0)


class _Findings:
    """Prints a line for each part, and counts the problems."""

    problems = 0
    unasked = False

    def add_unasked(self, name: str, model: str) -> None:
        """A model that only `--models` asks."""
        self.unasked = True
        self.add(name, f"{model} {_NOT_ASKED}", well="--")

    def add(self, name: str, state: str, problem: bool = False, well: str = "ok") -> None:
        self.problems += problem
        print(f"{'!!' if problem else well}  {name:<16} {state}")

    async def check(self, name: str, work: Awaitable[object], well: str) -> bool:
        try:
            await work
        except RagError as error:
            self.add(name, " ".join(str(error).split()), problem=True)
            return False
        self.add(name, well)
        return True


@on_closed_application
async def _look(application: Application, findings: _Findings, models: bool) -> None:
    from rag_app.answering.records.clashes import find_clashes
    from rag_app.application import identity_provider, public_keys

    application.check_declared()
    for spec in application.indexes.values():
        for clash in find_clashes(spec):
            findings.add(spec.name, clash.text, problem=clash.counts, well="--")
    settings, urls = application.settings, application.urls
    await _check_embedder(application, findings, models)
    await _check_models(application, findings, models)
    with suppress(Misconfigured):  # is told with the settings
        if (keys := public_keys(settings)) is not None:
            await findings.check("tokens", keys.find(None), f"signed by the keys of {keys.where}")
    with suppress(Misconfigured):
        if (provider := identity_provider(settings)) is not None:
            await findings.check("sign-in", provider.metadata(), f"at {provider.issuer}")
    where = f"private, in {settings.database.home / 'postgres'}" if urls.private else "as RAG_DATABASE_URL says"
    if not await findings.check("PostgreSQL", application.database.check(), f"{where}; schema and role fit"):
        return
    if (default := settings.api.default_organization) is not None:
        await findings.check(
            "default", application.check_default_organization(), f"anybody sees what members of {default} see"
        )
    if urls.owner is None:
        findings.add("owner", "RAG_DATABASE_OWNER_URL is not set here: run `rag-app db upgrade` where it is")
    else:
        await findings.check("owner", _connect(urls.owner), "can connect, for `rag-app db upgrade`")
    stores = ", ".join(sorted({application.backends.place(spec) for spec in application.indexes.values()}))
    for name, state in (await application.problems()).items():
        if name == "vector_store":
            findings.add("vector store", stores if state == "ok" else f"{stores}: {state}", problem=state != "ok")
        elif name in application.indexes:
            if state != "ok":
                findings.add(name, state, problem=True)
                continue
            notes = [await note(application, name) for note in (_calibration, _limits)]
            left = await describe_other_store(application, name)
            findings.add(name, left or "index, built with these settings" + "".join(notes), problem=bool(left))


async def _check_embedder(application: Application, findings: _Findings, models: bool) -> None:
    bundled, name = application.bundled_model, application.embedding[0]
    known = bundled.languages if bundled else ()
    understood = (
        f"; it knows {' and '.join(known)} only: questions in other languages are answered badly" if known else ""
    )
    if models:
        await findings.check("embedding", application.check_embedder(), f"{name} answers{understood}")
    elif bundled is None:
        findings.add_unasked("embedding", name)
    else:
        missing = [str(each) for each in bundled.files if not each.is_file()]
        said = f"{', '.join(missing)} is missing: install rag-app again" if missing else f"{name} is there{understood}"
        findings.add("embedding", said, problem=bool(missing))


async def _check_models(application: Application, findings: _Findings, models: bool) -> None:
    from rag_app.answering.capabilities import CAPABILITIES

    if not application.settings.names_models and not any(each.parts.llm for each in CAPABILITIES):
        findings.add("answers", "extractive: sentences of the sources; RAG_LLM names a model that writes")
        return
    from llama_index.core.llms import ChatMessage

    for model in application.models.all:
        if variable := model.missing_key:
            findings.add("answers", f"{model.name} has no key: set {variable}", problem=True)
        elif models:
            request = model.chat([ChatMessage("Answer with one word: ready.")])
            await findings.check("answers", request, f"{model.name} answers")
        else:
            findings.add_unasked("answers", model.name)


async def _connect(url: str) -> None:
    from rag_app.database.session import Database

    async with aclosing(Database(url, pool_size=1)) as database:
        await database.fetch("SELECT")


async def _limits(application: Application, index: str) -> str:
    """What the probe of a foreign store found out."""
    from rag_app.stores.registry import store_named

    generation = await application.backends.active(application.indexes[index])
    if store_named(generation.store).in_database:
        return ""
    said = await application.backends.backend(generation.store).limits(generation.table_prefix)
    return f"; {said}" if said else ""


async def describe_other_store(application: Application, index: str) -> str:
    """Of an index that nothing is in: the other store that its sources are in, if there is one."""
    asked = await application.backends.active(application.indexes[index])
    totals = await application.ledger.totals([each.id for each in await application.people.organizations()])
    sources = {
        each.store: totals.get(each.id, (0,))[0]
        for each in await application.generations.list()
        if each.index == index and each.state == "active"
    }
    other = max(sources, key=lambda store: sources[store], default=asked.store)
    if sources.get(asked.store) or not sources.get(other):
        return ""
    return f"nothing is in it, its sources are in {other} ({sources[other]}): `rag-app indexes move {index} --to {asked.store}`"


async def _calibration(application: Application, index: str) -> str:
    """By what the hits of an index are judged, where an organization has no fit of its own; whose fits do not count any more."""
    spec = application.indexes[index]
    if spec.confidence.signal != "fitted":
        return "; confidence by a fixed cosine"
    slugs = {each.id: each.slug for each in await application.people.organizations()}
    lost = await application.calibrations.list_lost(await application.backends.active(spec), slugs)
    anew = f"`rag-app calibrate --index {index}"
    gone = (
        f"; calibrated with another embedding model or chunking: {', '.join(sorted(slugs[each] for each in lost))}: "
        f"{anew} --org ORG` fits them anew"
        if lost
        else ""
    )
    _, basis = await application.fit_for(spec, Scope(frozenset({PUBLIC_ORGANIZATION})))
    return gone if basis == "index" else f"; confidence uncalibrated: with 30 judged questions, {anew}` fits it{gone}"
