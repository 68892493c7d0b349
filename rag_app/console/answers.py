"""`rag-app evaluate --answers`: questions asked over the HTTP API, as the users who would ask them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast
from uuid import UUID

import httpx

from rag_app.application import Application, build_api
from rag_app.console.users import issue
from rag_app.domain import JsonObject, Misconfigured, RagError
from rag_app.evaluation.answer_facts import Reply, ScoredTurn, Thread, score_thread
from rag_app.http.fields import MOST_EARLIER
from rag_app.surfaces.knowledge.routes import INDEX as KNOWLEDGE
from rag_app.surfaces.lexybrain.conversations import INDEX as MARKETPLACE
from rag_app.surfaces.library.rag import Rag
from rag_app.surfaces.owner.routes import INDEX as CALLS

Ask = Callable[[str, Sequence[str]], Awaitable[Reply]]
"""Sends one turn, with the turns before it, and the next in the same thread."""


async def ask_threads(
    application: Application,
    threads: Sequence[Thread],
    index: str | None,
    organization: str | None,
    user: str | None,
    progress: Callable[[int], None],
) -> list[ScoredTurn]:
    """Ask every turn over the index of its corpus, or over `index`, as its user, or as a member of its organization.

    An index that an HTTP route answers from is asked there, any other through the library. Raises NotFound and
    Misconfigured where a question names an organization, user or site that is not there.
    """
    scored: list[ScoredTurn] = []
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(cast(Any, build_api(application))), base_url="http://localhost"
    ) as client:
        for thread in threads:
            asked = thread.model_copy(update={"user": user if thread.user is None else thread.user})
            ask = await _asker(application, client, asked, index or thread.corpus, organization or thread.organization)
            said = [turn.text for turn in thread.turns]
            replies = [await ask(text, said[max(0, place - MOST_EARLIER) : place]) for place, text in enumerate(said)]
            scored += score_thread(thread, replies)
            progress(len(scored))
    return scored


async def _asker(
    application: Application, client: httpx.AsyncClient, thread: Thread, index: str, organization: str | None
) -> Ask:
    if organization is None:
        raise Misconfigured(f"{thread.id} names no organization: give --org")
    if index not in {KNOWLEDGE, CALLS, MARKETPLACE}:

        async def ask_library(text: str, earlier: Sequence[str]) -> Reply:
            answer = await Rag(application).ask(
                text,
                index=index,
                organization=organization,
                user=thread.user,
                site=thread.site,
                earlier_questions=earlier,
            )
            return Reply(answer.text, answer.refused, answer.understood)

        return ask_library
    user = await _user(application, thread, organization)
    headers = {"Authorization": f"Bearer {issue(application.settings, user, hours=24)}"}
    following: JsonObject = {}

    async def post(path: str, body: JsonObject) -> Any:
        while True:
            response = await client.post(path, json=body, headers=headers)
            if response.status_code != 429:
                break
            await asyncio.sleep(float(response.headers.get("Retry-After", 1)))
        if response.status_code != 200:
            raise RagError(f"{thread.id}: POST {path}: {response.status_code} {response.text}")
        return response.json()

    async def ask(text: str, earlier: Sequence[str]) -> Reply:
        if index == KNOWLEDGE:
            reply = await post("/api/rag/answer", {"query_text": text, "earlier_questions": earlier})
            return Reply(reply["answer"]["text"], reply["status"] != "success", reply.get("understood", ""))
        if index == CALLS:
            reply = await post("/owner/ask", {"question": text, "earlier_questions": earlier})
            return Reply(reply["answer"], not reply["has_sufficient_evidence"], reply.get("understood", ""))
        reply = await post("/api/lexybrain/rag", {"message": text, **following})
        following["threadId"] = reply["threadId"]
        kept = await client.get(f"/api/lexybrain/threads/{reply['threadId']}", headers=headers)
        cited = any(source["citation"] for source in kept.json()["messages"][-1]["sources"])
        return Reply(reply["answer"], not cited, reply["flags"].get("understood", ""))

    return ask


async def _user(application: Application, thread: Thread, organization: str) -> UUID:
    """The thread's user, or the first member of the organization."""
    found = await application.people.organization(organization)
    if thread.user is not None:
        return (await application.people.member(found, thread.user)).id
    for user, slugs in await application.people.users():
        if found.slug in slugs:
            return user.id
    raise Misconfigured(f"{organization} has no members: create one with `rag-app users create`")
