"""Questions whose answers are known, asked as they would be.

`rag-app evaluate --answers` asks them over the HTTP API, as their users; `rag-app calibrate` asks for their signals, and
makes the fit that judges hits by them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, cast
from uuid import UUID

import httpx
from msgspec.structs import replace

from rag_app.answering.capabilities import Capability, capability_for
from rag_app.application import Application, build_api
from rag_app.console.users import issue
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    InvalidInput,
    JsonObject,
    Misconfigured,
    RagError,
    Scope,
    require,
    resource_folder,
    source_id,
)
from rag_app.evaluation.answer_facts import Reply, ScoredTurn, Thread, score_thread
from rag_app.evaluation.calibration import LEAST_OF_A_KIND, AskedQuestion, auroc, fit_gate
from rag_app.evaluation.judgments import JudgmentSet, Query
from rag_app.http.fields import MOST_EARLIER
from rag_app.retrieval.confidence import Basis, Fit, shipped_fit
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.knowledge.routes import INDEX as KNOWLEDGE
from rag_app.surfaces.lexybrain.conversations import INDEX as MARKETPLACE
from rag_app.surfaces.library.rag import Rag, question_of, scope_of
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


async def calibrate_index(
    application: Application,
    spec: IndexSpec,
    organization: str | None,
    judgments: JudgmentSet,
    keep: bool,
    progress: Callable[[int], None],
) -> JsonObject:
    """Fit an organization's questions, or those of the index where it is None; keep the fit with the active generation.

    An organization's fit is drawn towards that of the index, the index's towards what is shipped for the embedding
    model. Raises InvalidInput for a question of another organization, and where there are too few.
    """
    generation = await application.backends.active(spec)
    own = None if organization is None else await application.people.organization(organization)
    asked = await _ask(application, spec, organization, judgments, progress)
    prior, basis = await _prior(application, spec, organization)
    fit = fit_gate(asked, application.embedder.model_name, prior)
    if keep:
        await application.calibrations.keep(generation.id, own.id if own else PUBLIC_ORGANIZATION, fit)
    return {
        "index": spec.name,
        "organization": organization,
        "generation": generation.number,
        "kept": keep,
        "questions": {"answerable": fit.answerable, "unanswerable": fit.unanswerable},
        "before": {"calibration": basis, **_figures(prior or fit, asked)},
        "fitted": _figures(fit, asked),
    }


async def _prior(application: Application, spec: IndexSpec, organization: str | None) -> tuple[Fit | None, Basis]:
    """What a fit is drawn towards; None where nothing was fitted to the embedding model."""
    model = application.embedder.model_name
    found, basis = shipped_fit(resource_folder("indexes"), spec.name, model)
    if organization is not None:
        found, basis = await application.fit_for(spec, Scope(frozenset({PUBLIC_ORGANIZATION})), anew=True)
    return (found if found.embedding_model == model else None), basis


async def _ask(
    application: Application,
    spec: IndexSpec,
    organization: str | None,
    judgments: JudgmentSet,
    progress: Callable[[int], None],
) -> list[AskedQuestion]:
    """The signals of each question. Where few have no answer, the others count again without their judged sources."""
    capability = capability_for(spec.name)
    known = [query for query in judgments.queries if query.id in judgments.answerable | judgments.unanswerable]
    withhold = len(judgments.unanswerable) < LEAST_OF_A_KIND
    asked = []
    for done, query in enumerate(known, 1):
        answerable = query.id in judgments.answerable
        found = await _signals(application, capability, organization, query, ())
        asked.append(replace(found, answerable=answerable))
        if answerable and withhold:
            sources = [name for name, grade in judgments.qrels[query.id].items() if grade >= 1]
            asked.append(await _signals(application, capability, organization, query, sources))
        progress(done)
    return asked


async def _signals(
    application: Application,
    capability: Capability,
    organization: str | None,
    query: Query,
    withheld: Collection[str],
) -> AskedQuestion:
    """A question without an answer, unless told otherwise: the withheld sources are those that have it."""
    whose = require(
        organization or query.organization,
        InvalidInput(query.id, None, "has no organization: give --org, or add `organization` to the question's line"),
    )
    if organization is not None and query.organization not in (None, organization):
        raise InvalidInput(query.id, query.organization, f"belongs to another organization than {organization}")
    scope = await scope_of(application, whose, query.user, query.site)
    names = {source_id(org, capability.index, name) for org in scope.organizations for name in withheld}
    question = question_of(query.text, capability.top_k, "hybrid", [])
    judgment = await application.pipeline.judge(capability.name, question, scope, without=names)
    return AskedQuestion(judgment.signals, answerable=False)


def _figures(fit: Fit, asked: list[AskedQuestion]) -> JsonObject:
    """What a fit does to the questions, in per cent, and its thresholds (0..1)."""
    good = [fit.probability(each.signals) for each in asked if each.answerable]
    bad = [fit.probability(each.signals) for each in asked if not each.answerable]

    def share(probabilities: list[float], refused: bool, threshold: float) -> float:
        return round(100 * sum((each < threshold) is refused for each in probabilities) / len(probabilities), 1)

    return {
        "auroc": round(auroc(good, bad), 4),
        **{
            name: {
                "from": threshold,
                "answerable_refused_percent": share(good, True, threshold),
                "unanswerable_accepted_percent": share(bad, False, threshold),
            }
            for name, threshold in (("ask", fit.ask_from), ("answer", fit.answer_from), ("high", fit.high))
        },
    }
