"""`rag-app doctor`."""

import asyncio
from collections.abc import Awaitable

import typer

from rag_app.console.commands import Application, group, on_closed_application
from rag_app.domain.errors import RagError

app = group()


@app.command()
def doctor() -> None:
    """Say what is configured, reachable and amiss.

    And what to do about it. Exit status 1 if something is amiss. A model that writes answers is asked for a word.
    """
    from rag_app.settings import Settings

    Settings()  # what is wrong with these ends the command
    findings = _Findings()
    try:
        _look(findings)
    except RagError as error:
        findings.add("configuration", " ".join(str(error).split()), problem=True)
    print(f"{findings.problems} of these need attention" if findings.problems else "all is well")
    raise typer.Exit(1 if findings.problems else 0)


class _Findings:
    """Prints a line for each part, and counts the problems."""

    def __init__(self) -> None:
        self.problems = 0

    def add(self, name: str, state: str, problem: bool = False) -> None:
        self.problems += problem
        print(f"{'!!' if problem else 'ok'}  {name:<16} {state}")

    async def check(self, name: str, work: Awaitable[object], well: str) -> bool:
        try:
            await work
        except RagError as error:
            self.add(name, " ".join(str(error).split()), problem=True)
            return False
        self.add(name, well)
        return True


@on_closed_application
async def _look(application: Application, findings: _Findings) -> None:
    from llama_index.core.llms import ChatMessage

    from rag_app.application import public_keys
    from rag_app.database.migrate import current

    settings, urls = application.settings, application.urls
    model_name = application.embedder.model_name
    await findings.check("embedding", application.check_embedder(), f"{model_name} answers")
    if not application.models.all:
        findings.add("answers", "extractive: sentences of the sources; RAG_LLM names a model that writes")
    for model in application.models.all:
        hello = model.chat([ChatMessage("Answer with one word: ready.")])
        await findings.check("answers", hello, f"{model.name} answers")
    if (keys := public_keys(settings)) is not None:
        await findings.check("tokens", keys.named(None), f"signed by the keys of {keys.where}")
    where = f"private, in {settings.database.home / 'postgres'}" if urls.private else "as RAG_DATABASE_URL says"
    if not await findings.check("PostgreSQL", application.database.check(), f"{where}; schema and role fit"):
        return
    if urls.owner is None:
        findings.add("owner", "RAG_DATABASE_OWNER_URL is not set: `rag-app db upgrade` runs elsewhere")
    else:
        connecting = asyncio.to_thread(current, urls.owner)
        await findings.check("owner", connecting, "can connect, for `rag-app db upgrade`")
    stores = ", ".join(sorted({application.backends.place(spec) for spec in application.indexes.values()}))
    for name, state in (await application.problems()).items():
        if name == "vector_store":
            findings.add("vector store", stores if state == "ok" else f"{stores}: {state}", problem=state != "ok")
        elif name in application.indexes:
            findings.add(name, "index, built with these settings" if state == "ok" else state, problem=state != "ok")
