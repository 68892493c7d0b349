"""Pages that ask: the chat, which `/` opens, and *Knowledge* and *Calls*."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, QueryParameter
from msgspec import json, structs

from rag_app.answering.capabilities import DESCRIPTIONS, capability_for
from rag_app.domain import InvalidInput
from rag_app.evaluation.kept_answers import KeptAnswers
from rag_app.http.fields import MOST_EARLIER
from rag_app.http.surface import Caller, Injected
from rag_app.pipeline import Pipeline
from rag_app.surfaces.knowledge.routes import INDEX as KNOWLEDGE, AnswerResponse, IndexRequest, responder
from rag_app.surfaces.lexybrain.conversations import INDEX
from rag_app.surfaces.lexybrain.threads import ThreadStore
from rag_app.surfaces.owner.routes import INDEX as CALLS
from rag_app.surfaces.pages.signing_in import DEMO_ORGANIZATION, SigningIn
from rag_app.surfaces.pages.site import (
    SECURITY,
    TEMPLATES,
    Html,
    action,
    convert_form,
    page,
    query_value,
    redirect,
    render,
    uuid,
    visitor_of,
)
from rag_app.surfaces.sources.service import SourceService


@page(["/", "/ask"])
async def ask(request: Caller, signing_in: Injected[SigningIn], sources: Injected[SourceService]) -> Html:
    """The chat, which uses the public routes. If only other indexes have documents, `/` redirects to *Knowledge*, which
    asks the one that changed last, and `/ask` says where that is."""
    empty = not (await sources.page(request.user, index=INDEX, limit=1)).sources
    newest = (await sources.page(request.user, limit=1)).sources if empty else []
    elsewhere = newest[0].index if newest else None
    if elsewhere is not None and request.scope["path"] == "/":
        return redirect(request, f"/knowledge?index={elsewhere}")
    return _show_chat(request, signing_in, empty=empty, elsewhere=elsewhere)


@page("/threads/{thread_id:uuid}")
async def show_thread(request: Caller, signing_in: Injected[SigningIn], thread_id: FromPath[UUID]) -> Html:
    """The chat with one thread open."""
    return _show_chat(request, signing_in, thread=str(thread_id))


def _show_chat(
    request: Caller, signing_in: SigningIn, thread: str = "", empty: bool = False, elsewhere: str | None = None
) -> Html:
    return render(
        request,
        "chat.html",
        thread=thread,
        capabilities=DESCRIPTIONS,
        demo=signing_in.demo,
        index=INDEX,
        empty=empty,
        elsewhere=elsewhere,
    )


@page("/threads")
async def threads_without_scripts(request: Caller, threads: Injected[ThreadStore]) -> Html:
    """The caller's threads, for browsers without JavaScript."""
    found = await threads.list(
        request.user,
        limit=_ROWS_OF_A_PAGE,
        after=query_value(request, "cursor"),
        archived=None,
        user=None,
        everybody=False,
    )
    return render(request, "threads.html", found=found)


@page("/threads/{thread_id:uuid}/plain")
async def thread_without_scripts(request: Caller, threads: Injected[ThreadStore], thread_id: FromPath[UUID]) -> Html:
    """The newest messages of a thread, or those before one, for browsers without JavaScript."""
    said = query_value(request, "before")
    before = None if said is None else uuid("before", said)
    thread = await threads.read(request.user, thread_id, limit=_ROWS_OF_A_PAGE, before=before)
    return render(request, "thread.html", thread=thread, newest=before is not None)


_ROWS_OF_A_PAGE = 50  # threads, or messages, on a page without scripts
_NEWEST = 3  # documents that a page names before the first question
_PAGE = 100  # messages, as many as are read at once


@page("/threads/{thread_id:uuid}/export")
async def export(
    request: Caller,
    threads: Injected[ThreadStore],
    thread_id: FromPath[UUID],
    as_format: Annotated[Literal["markdown", "json"], QueryParameter(name="format")] = "markdown",
) -> Html:
    """The whole thread as a file: Markdown, or the JSON of the public route."""
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
        written = TEMPLATES.get_template("thread.md").render(thread=whole, today=datetime.now(UTC).date())
        content, media_type, suffix = written.encode(), "text/markdown; charset=utf-8", "md"
    headers = {**SECURITY, "Content-Disposition": f'attachment; filename="{name}.{suffix}"'}
    return Response(content, media_type=media_type, headers=headers)


# -- Knowledge, which asks any index, and Calls: they answer without threads, with the public routes


@page("/knowledge")
async def knowledge(request: Caller, signing_in: Injected[SigningIn], sources: Injected[SourceService]) -> Html:
    return await _show_asking(request, signing_in, sources, query_value(request, "index") or KNOWLEDGE)


@action("/knowledge", asks=True)
async def ask_by_form(
    request: Caller,
    signing_in: Injected[SigningIn],
    sources: Injected[SourceService],
    pipeline: Injected[Pipeline],
    kept_answers: Injected[KeptAnswers],
) -> Html:
    """Answers the form's question, for browsers without JavaScript."""
    form = await request.form()
    earlier, text = form.getall("earlier", [])[-MOST_EARLIER:], str(form.get("text", ""))
    capability = capability_for(sources.index(str(form.get("index", KNOWLEDGE)), request.user).name)
    show = partial(_show_asking, request, signing_in, sources, capability.index)
    try:
        asked = convert_form({"query_text": text, "earlier_questions": earlier}, IndexRequest)
    except InvalidInput:
        return await show(refused=text, earlier=earlier, status=400)
    question = asked.question()
    respond = responder(request, asked.query_text, question, capability, pipeline, kept_answers)
    answer = respond(await pipeline.answer(capability.name, question, request.user.scope()))
    return await show(answer=answer, earlier=(*earlier, asked.query_text))


@page("/calls")
async def calls(request: Caller, signing_in: Injected[SigningIn], sources: Injected[SourceService]) -> Html:
    return await _show_asking(request, signing_in, sources, CALLS, "calls.html")


async def _show_asking(
    request: Caller,
    signing_in: SigningIn,
    sources: SourceService,
    index: str,
    template: str = "knowledge.html",
    *,
    answer: AnswerResponse | None = None,
    refused: str | None = None,
    earlier: Sequence[str] = (),
    status: int = 200,
) -> Html:
    """A page that asks an index. `refused` is a question that was not read."""
    indexes, visitor = sources.indexes(request.user), visitor_of(request)
    fit = (
        signing_in.demo
        and index == (CALLS if template == "calls.html" else KNOWLEDGE)
        and visitor
        and DEMO_ORGANIZATION in visitor.organizations
    )
    return render(
        request,
        template,
        status=status,
        examples_fit=fit,
        indexes=indexes,
        chosen=sources.index(index, request.user).name,
        newest=(await sources.page(request.user, index=index, limit=_NEWEST)).sources,
        answer=answer,
        refused=refused,
        earlier=earlier,
    )
