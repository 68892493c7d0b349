"""The chat: what `/` opens."""

import re
from datetime import UTC, datetime
from operator import itemgetter
from typing import Annotated, Literal
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, QueryParameter
from msgspec import json, structs

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.lexybrain.threads import Threads
from rag_app.surfaces.lexybrain.types import ThreadMessage, ThreadWithMessages
from rag_app.surfaces.pages.site import SECURITY, Html, page, render

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("market_brief", "What are the top trending wedding keywords on Etsy right now?"),
    ("keyword_explanation", "What is the demand index of “velvet ring box” on Etsy?"),
    ("competitor_intel", "By how much does Thistle & Crown undercut our milgrain ring?"),
    ("alert_explanation", "Why was the alert for hammered silver rings triggered?"),
)
"""What somebody may ask who has not asked yet, by capability."""


@page("/", menu="Ask", order=0)
async def ask(request: Caller) -> Html:
    """Asked and answered in the browser, by the public routes."""
    return _render_chat(request, "")


@page("/threads/{thread_id:uuid}")
async def show_thread(request: Caller, thread_id: FromPath[UUID]) -> Html:
    """The same, opened at one thread."""
    return _render_chat(request, str(thread_id))


def _render_chat(request: Caller, thread: str) -> Html:
    capabilities = [(name, name.replace("_", " ").capitalize(), text) for name, text in DESCRIPTIONS.items()]
    return render(request, "chat.html", thread=thread, capabilities=capabilities, examples=EXAMPLES)


_PAGE = 100  # messages, as many as are read at once


@page("/threads/{thread_id:uuid}/export")
async def export(
    request: Caller,
    threads: Injected[Threads],
    thread_id: FromPath[UUID],
    as_format: Annotated[Literal["markdown", "json"], QueryParameter(name="format")] = "markdown",
) -> Html:
    """The whole thread as a file: Markdown for people, JSON as the public route gives it."""
    thread = await threads.read(request.user, thread_id, limit=_PAGE, before=None)
    messages, more = list(thread.messages), thread.has_more
    while more:
        earlier = await threads.read(request.user, thread_id, limit=_PAGE, before=messages[0].id)
        messages, more = [*earlier.messages, *messages], earlier.has_more
    whole = structs.replace(thread, messages=messages, has_more=False)
    name = re.sub(r"[^a-z0-9]+", "-", (thread.title or "thread").lower()).strip("-")[:60] or "thread"
    if as_format == "json":
        content, media_type, suffix = json.format(json.encode(whole), indent=2), "application/json", "json"
    else:
        content, media_type, suffix = markdown_of(whole).encode(), "text/markdown; charset=utf-8", "md"
    headers = {**SECURITY, "Content-Disposition": f'attachment; filename="{name}.{suffix}"'}
    return Response(content, media_type=media_type, headers=headers)


def markdown_of(thread: ThreadWithMessages) -> str:
    """A thread for people: each question a heading, each answer with the sources it cites."""
    said = [f"# {thread.title or 'Thread'}\n\n{datetime.now(UTC):%Y-%m-%d}, {len(thread.messages)} messages\n"]
    for message in thread.messages:
        said.append(_question(message) if message.role == "user" else _answer(message))
    return "\n".join(said)


def _question(message: ThreadMessage) -> str:
    lines = "\n".join(f"> {line}" for line in message.content.splitlines())
    return f"## {message.created_at:%Y-%m-%d %H:%M}\n\n{lines}\n"


def _answer(message: ThreadMessage) -> str:
    cited = [(each.cited, each) for each in message.sources if each.cited is not None]
    lines = [
        f"{number}. {source.label}{f': “{source.quote}”' if source.quote else ''}"
        for number, source in sorted(cited, key=itemgetter(0))
    ]
    sources = "\n".join(["", "Sources:", "", *lines, ""]) if lines else ""
    return f"{message.content}\n{sources}"
