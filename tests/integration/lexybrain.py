"""Ask LexyBrain with everything real behind it: the sample marketplace, PostgreSQL, and a model by script on a port."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
from sqlalchemy import text

from rag_app.application import Application
from rag_app.console.demo import load_samples
from rag_app.database.session import Database
from rag_app.domain.scope import Scope
from tests.integration.service import bearer, configured, prepare, served, without_limits
from tests.integration.test_api_end_to_end import variables
from tests.scripted_model import Reply, ScriptedModel

RAG, THREADS = "/api/lexybrain/rag", "/api/lexybrain/threads"
BOX = "What is the demand index of “velvet ring box” on Etsy?"
EXPLAINED = "Why is the demand index of “velvet ring box” on Etsy so high?"  # nothing that records answer by themselves
KEYWORD, HISTORY = "Keyword: velvet ring box (Etsy)", "History of “velvet ring box” (Etsy)"


@dataclass(frozen=True)
class Chat:
    """A running application; `mila` is a member of aurora, `jonas` of birch, `root` an administrator of neither."""

    client: httpx.Client
    model: ScriptedModel
    database_url: str
    aurora: UUID
    mila: UUID
    jonas: UUID
    root: UUID

    def post(self, message: str, who: UUID | None = None, *, status: int = 200, **rest: Any) -> dict[str, Any]:
        response = self.client.post(RAG, json={"message": message, **rest}, headers=bearer(who or self.mila))
        assert response.status_code == status, response.text
        body: dict[str, Any] = response.json()
        return body

    def get(self, path: str, who: UUID | None = None, *, status: int = 200) -> dict[str, Any]:
        response = self.client.get(path, headers=bearer(who or self.mila))
        assert response.status_code == status, response.text
        body: dict[str, Any] = response.json()
        return body

    def stream(self, message: str, who: UUID | None = None, **rest: Any) -> list[tuple[str, Any]]:
        headers = {**bearer(who or self.mila), "Accept": "text/event-stream"}
        with self.client.stream("POST", RAG, json={"message": message, **rest}, headers=headers) as response:
            assert response.status_code == 200, response.read()
            return list(events_of(response.iter_lines()))

    def rows(self, statement: str, who: UUID | None = None, **values: Any) -> list[dict[str, Any]]:
        """What the database holds, as this user sees it."""
        return asyncio.run(rows(self.database_url, statement, who or self.mila, **values))

    def used(self, who: UUID | None = None) -> int:
        found = self.rows("SELECT used FROM usage_counters", who)
        return int(found[0]["used"]) if found else 0

    def newcomer(self, plan: str = "free") -> UUID:
        """A new member of aurora."""
        return asyncio.run(newcomer(self.database_url, self.aurora, plan))


def events_of(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    event = ""
    for line in lines:
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield event, json.loads(line.removeprefix("data: "))


async def rows(url: str, statement: str, user: UUID, **values: Any) -> list[dict[str, Any]]:
    database = Database(url, pool_size=2)
    try:
        async with database.scoped(Scope(frozenset({UUID(int=0)}), user)) as session:
            result = await session.execute(text(statement), values)
            return [dict(row) for row in result.mappings()] if result.returns_rows else []
    finally:
        await database.close()


async def newcomer(url: str, org: UUID, plan: str) -> UUID:
    user = uuid4()
    values = {"id": user, "name": f"newcomer {user.hex}", "plan": plan, "org": org}
    await rows(url, "INSERT INTO users (id, name, plan_code) VALUES (:id, :name, :plan)", user, **values)
    await rows(url, "INSERT INTO memberships (user_id, org_id) VALUES (:id, :org)", user, **values)
    return user


def models_file(folder: Path, url: str, *, fallback: str | None = None, kind: str = "openai_like") -> Path:
    entry = f'kind = "{kind}"\nmodel = "{{}}"\napi_base = "{{}}"\napi_key_env = "TEST_MODEL_KEY"\n'
    file = folder / "models.toml"
    said = "[prices.large]\ninput = 60\noutput = 80\n[models.lexybrain]\n" + entry.format("large", url)
    if fallback:
        said += "[models.lexybrain.fallback]\n" + entry.format("small", fallback)
    file.write_text(said)
    return file


@contextmanager
def chatting(
    urls: tuple[str, str], store: str, qdrant: Path, folder: Path, *, settings: Mapping[str, str] | None = None,
    fallback: str | None = None, kind: str = "openai_like", limits: bool = False,
) -> Iterator[Chat]:  # fmt: skip
    """A server with a model by script; waits take no time."""
    with ScriptedModel() as model:
        environment = {
            **variables(urls, store, folder, qdrant),
            "RAG_MODELS_FILE": str(models_file(folder, model.url, fallback=fallback, kind=kind)),
            "TEST_MODEL_KEY": "sk-test",
            "RAG_LLM_BACKOFF": "0",
            "RAG_LLM_UNAVAILABLE_WAIT": "0",
            **(settings or {}),
        }
        with configured(environment) as patch:
            if not limits:
                without_limits(patch)
            people = prepare(load)
            with served() as client:
                yield Chat(client, model, urls[1], *people)


async def load(application: Application) -> tuple[UUID, UUID, UUID, UUID]:
    people = application.people
    application.indexes = {"marketplace": application.indexes["marketplace"]}
    assert await load_samples(application) == []
    await application.build_missing()
    aurora = await people.organization("aurora")
    mila, jonas = await people.user("mila@aurora.example"), await people.user("jonas@birch.example")
    for user in (mila, jonas):
        await people.set_plan(user, "growth")
    root = await people.create_user(f"root {uuid4().hex}")
    await people.set_role(root, "admin")
    return aurora.id, mila.id, jonas.id, root.id


def citing(title: str, said: str = "It says {}.", **reply: Any) -> Callable[[dict[str, Any]], Reply]:
    """A reply that cites the block of the prompt with this title, whichever number it has."""

    def script(body: dict[str, Any]) -> Reply:
        prompt = "\n".join(str(message["content"]) for message in body["messages"])
        found = re.search(rf"\[Source (\d+)\][^\n]*\n[^\n]*{re.escape(title)}", prompt)
        return Reply(said.format(f"[Source {found[1]}]") if found else "Nothing of it was there.", **reply)

    return script
