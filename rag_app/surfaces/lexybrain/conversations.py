"""Ask LexyBrain: a message in a thread, and the answer to it. The way from the one to the other is here, in order.

A turn begins: the feature is on, the plan has a message left, the user's message is kept (one transaction). Then,
with nothing held in the database: its capability is chosen, its thread's history read, a prompt version taken, and the
pipeline answers. A turn ends: the assistant's message is kept and charged for (one transaction), or the reservation
goes back. Whoever is killed in between leaves a kept message and a reservation that runs out.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID, uuid4

from msgspec import convert, structs

from rag_app.answering.capabilities import DESCRIPTIONS, capability_named
from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.context import count_tokens
from rag_app.answering.models import estimated
from rag_app.answering.prompt_configs import PromptConfigs
from rag_app.answering.prompts import PromptConfig, choose, kept_constraints
from rag_app.answering.providers import EXTRACTIVE
from rag_app.documents.ledger import SourceLedger
from rag_app.domain import (
    Answer,
    Confidence,
    Delta,
    Event,
    FeatureDisabled,
    Forbidden,
    Found,
    Hit,
    Instructions,
    Misconfigured,
    ModelFailed,
    NotFound,
    Principal,
    RagError,
    Refusal,
    StoreFailed,
    Usage,
)
from rag_app.pipeline import Pipeline
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.messages import (
    Counted,
    classify,
    detect,
    flags_of,
    follow_up,
    history_text,
    lasting_failures,
    mentioned,
    question_for,
    retrieved,
    rewritten,
    searched_text,
    sources_of,
    worth_it,
)
from rag_app.surfaces.lexybrain.threads import Threads, Turns, settle_on
from rag_app.surfaces.lexybrain.training import Training, lesson
from rag_app.surfaces.lexybrain.types import (
    REFERENCE_TYPES,
    Begun,
    Outcome,
    PastMessage,
    RagCitation,
    RagModel,
    RagReferences,
    RagResponse,
    RagSource,
    Said,
    as_wire,
)
from rag_app.telemetry.observing import Stage, identify, named

log = logging.getLogger(__name__)
T = TypeVar("T")

INDEX = "marketplace"
GENERAL = "general_chat"
MAX_TOKENS, TEMPERATURE = 1024, 0.7
"""Of an answer, where neither the message nor a version of a prompt says."""
# refusals for which no model has written anything; of the others one was paid
_UNWRITTEN = frozenset({Refusal.NOTHING_FOUND, Refusal.WEAK, Refusal.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """What turns are made with, and where they begin. `history_tokens` bound the history in a prompt."""

    pipeline: Pipeline
    index: IndexSpec | None
    turns: Turns
    threads: Threads
    prompts: PromptConfigs
    ledger: SourceLedger
    models: ChosenModels
    training: Training
    enabled: bool
    detect_by_model: bool
    rewrite: bool
    history_tokens: int
    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.detect_by_model and self.models.model(GENERAL) is None:
            raise Misconfigured("LEXYBRAIN_RAG_DETECTION=model needs a model: docs/models.md")

    async def begin(self, principal: Principal, said: Said) -> "Turn":
        """Keep what a user says, and reserve the answer. `Turn` says how it goes on.

        Raises FeatureDisabled, CostCapReached, QuotaExceeded, BudgetSpent, Forbidden (an index or plan that is not the
        caller's), NotFound (a thread or capability), InvalidInput (a plan), StoreFailed: then nothing is charged.
        """
        if not self.enabled:
            raise FeatureDisabled("Ask LexyBrain is switched off")
        if self.index is None:
            raise FeatureDisabled(f"There is no index {INDEX} here")
        if principal.indexes is not None and INDEX not in principal.indexes:
            raise Forbidden(f"This key may not search the index {INDEX}")
        if said.capability is not None and said.capability not in DESCRIPTIONS:
            raise NotFound("capability", said.capability, DESCRIPTIONS)
        turn = Turn(self, self.index, said)
        await turn.begin(principal)
        return turn

    async def aclose(self) -> None:
        """Wait for what is being kept, and collected."""
        while self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do this to its end, whoever waits for it or leaves."""
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


class Turn:
    """A message from its beginning to its end, in the order of the methods.

    `begin` keeps it and prepares the question; `answer`, or `stream`, is called once; the turn is then kept, or given
    back. `thread` is where it is, `message` the id of the answer, `capability` what answers.
    """

    capability: str

    def __init__(self, conversations: Conversations, index: IndexSpec, said: Said) -> None:
        self._with, self._index, self._said = conversations, index, said
        self.message, self._ended = uuid4(), False
        self._seconds = dict[str, float]()
        self._paid = list[tuple[str, Usage]]()

    # -- the beginning

    async def begin(self, principal: Principal) -> None:
        """Raises as `Conversations.begin`. A client that leaves meanwhile is not charged."""
        started = time.perf_counter()
        beginning = asyncio.create_task(self._with.turns.begin(principal, self._said))
        with Stage("keeping"):
            try:
                self._begun = await asyncio.shield(beginning)
            except asyncio.CancelledError:
                await self._whole(self._undo(beginning))
                raise
        self.thread, self._scope = self._begun.thread.id, self._begun.scope
        identify(user=self._scope.user, thread=self.thread)
        self._seconds["keeping"] = time.perf_counter() - started
        self._answering = time.perf_counter()
        try:
            with Stage("preparing") as span:
                await self._prepare()
                span.set_attribute("rag.capability", self.capability)
        except BaseException as error:
            await self._whole(self._return(error))
            raise
        self._seconds["preparing"] = time.perf_counter() - self._answering
        self._answering = time.perf_counter()

    async def _undo(self, beginning: "asyncio.Task[Begun]") -> None:
        try:
            self._begun = await beginning
        except RagError:
            return
        await self._return(asyncio.CancelledError())

    async def _prepare(self) -> None:
        said, thread = self._said, self._begun.thread
        with Stage("history"):
            history: Sequence[PastMessage] = ()
            if thread.message_count > 1:
                history = await self._with.threads.history(self._scope, thread.id, before=self._begun.message)
        self._told_of = (*(each.id for each in history), self._begun.message)
        with Stage("detection"):
            self.capability = said.capability or await self._detect(history)
        chosen = capability_named(self.capability)
        with Stage("prompts"):
            system, role = await self._choose_prompts()
        rules = [kept_constraints(each) for each in (role, system) if each is not None]
        focus, named_sources = said.focus, list[UUID]()
        names = (*focus.keywords, *focus.watchlists, *focus.listings, *focus.alerts)
        if names or focus.shop_url:
            named_sources = await self._with.ledger.named(self._scope, INDEX, names, focus.shop_url)
        self.question = question_for(
            chosen,
            said,
            searched=await self._searched_text(history),
            named=tuple(named_sources),
            retrieval_scope=_first(each.retrieval_scope for each in rules),
            at_most=rules[0].at_most if rules else {},
            instructions=Instructions(
                {
                    "system": system.instructions if system else "",
                    "role": role.instructions if role else "",
                    "history": history_text(history, self._with.history_tokens),
                    "language": said.language,
                },
                _first([said.max_tokens, *(each.max_tokens for each in rules), MAX_TOKENS]),
                _first([said.temperature, *(each.temperature for each in rules), TEMPERATURE]),
            ),
            now=thread.last_message_at,
        )

    async def _detect(self, history: Sequence[PastMessage]) -> str:
        text, models = self._said.text, self._with.models
        by_words = follow_up(text, history) or detect(text)
        model = models.model(GENERAL) if self._with.detect_by_model else None
        if model is None:
            return by_words
        paid, whole = Counted(model, self._paid), searched_text(text, history)
        return await classify(paid, models.prompt("ask_lexybrain_intent"), whole, lambda _: by_words)

    async def _choose_prompts(self) -> tuple[PromptConfig | None, PromptConfig | None]:
        """The versions of what all capabilities are told, and of what this one is; written down with the capability."""
        thread = self._begun.thread
        kept = thread.metadata_.get("prompts", {})
        async with self._with.prompts.active(self._scope) as (session, configs):
            system, role = (choose(configs, kind, thread.id, kept.get(kind)) for kind in ("global", self.capability))
            self._prompts = {each.type: each.name for each in (system, role) if each is not None}
            await settle_on(session, self._scope.user, thread.id, self._begun.message, self.capability, self._prompts)
        return system, role

    async def _searched_text(self, history: Sequence[PastMessage]) -> str:
        """What is looked for: a follow-up by itself often names nothing."""
        text = self._said.text
        model = self._with.models.model(self.capability) if self._with.rewrite and history else None
        if model is not None:
            prompt, paid = self._with.models.prompt("ask_lexybrain_rewrite"), Counted(model, self._paid)
            if query := await rewritten(paid, prompt, text, history, self._with.history_tokens):
                return query
        return searched_text(text, history)

    # -- the answer

    async def answer(self) -> RagResponse:
        """Raises ModelFailed where nothing can be said; nothing is charged then. And StoreFailed, EmbeddingFailed."""
        try:
            answer = await self._with.pipeline.answer(self.capability, self.question, self._scope)
        except BaseException as error:  # the client has left, perhaps
            self._log_failures(error)
            await self._whole(self._give_back(error, capability_named(self.capability).max_context_tokens))
            raise
        self._log_failures(*lasting_failures(answer))
        await self._whole(self._keep(self._outcome(answer), answer))
        return self.reply(answer)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """`answer`, as it comes: Found, Deltas, and at last the Answer. Closed early, it keeps what was said by then."""
        said, hits, found = Delta(""), tuple[Hit, ...](), False
        try:
            async with aclosing(self._with.pipeline.stream(self.capability, self.question, self._scope)) as events:
                async for event in events:
                    match event:
                        case Found():
                            hits, found = event.hits, True
                        case Delta():
                            said = Delta(said.text + event.text, event.citations)
                        case Answer():
                            self._log_failures(*lasting_failures(event))
                            await self._whole(self._keep(self._outcome(event), event))
                    yield event
        except BaseException as error:
            self._log_failures(error)
            if self._ended:
                raise
            if said.text:
                await self._whole(self._keep(self._interrupted(said, hits)))
            else:
                context = count_tokens("\n".join(hit.text for hit in hits)) if found else None
                await self._whole(self._give_back(error, context))
            raise

    def sources(self, hits: Sequence[Hit]) -> list[RagSource]:
        """Those of the hits, before it is known which of them are cited."""
        return convert(retrieved(hits, (), self._index), list[RagSource], from_attributes=True)

    def citations(self, answer: Answer) -> list[RagCitation]:
        """The sources that it cites, by number."""
        cited = [each for each in sources_of(answer, self._index) if each.cited is not None]
        return sorted(convert(cited, list[RagCitation], from_attributes=True), key=attrgetter("cited"))

    def reply(self, answer: Answer) -> RagResponse:
        """What a client is told of it."""
        outcome = self._outcome(answer)
        mentions = mentioned(outcome.text, outcome.sources, answer.hits)
        return as_wire(
            RagResponse,
            outcome,
            thread_id=self.thread,
            message_id=self.message,
            answer=outcome.text,
            references=RagReferences(*(list(mentions[each]) for each in REFERENCE_TYPES)),
            model=as_wire(RagModel, outcome, id=outcome.model, usage=answer.usage),  # what is estimated is no count
        )

    # -- the end

    async def _whole(self, work: Coroutine[Any, Any, None]) -> None:
        """End the turn so, also where whoever waits for it is cancelled in the meantime."""
        self._ended = True
        await asyncio.shield(self._with.start(work))

    async def _keep(self, outcome: Outcome, answer: Answer | None = None) -> None:
        """Write down what became of the turn. Where that fails, the user has the answer nevertheless, and is not charged.

        A whole `answer` is collected for training afterwards, if its user consents.
        """
        try:
            with Stage("keeping_answer"):
                kept = await self._with.turns.finish(self._begun, self._paid_for(outcome))
        except Exception:
            log.exception("an answer was not kept: thread=%s message=%s", self.thread, self.message)
        else:
            if answer is not None and kept and outcome.teaches and self._begun.account.training:
                self._with.start(self._collect(answer))  # the user does not wait for it
        self._record(outcome)

    async def _collect(self, answer: Answer) -> None:
        try:
            prompt = self._with.models.prompt(capability_named(self.capability).prompt)
            learned = lesson(prompt, self.capability, self.message, self._told_of, self.question, answer, self._index)
            await self._with.training.collect(self._scope, learned)
        except Exception as error:  # it is not the user's business
            log.warning("an answer was not collected for training: message=%s %s", self.message, named(error))

    async def _give_back(self, error: BaseException, context: int | None) -> None:
        """`context`: tokens of what a model may have been shown when the client left; None: it was not asked.

        Who leaves is not charged, but models were paid: budgets and the cost cap hold for those, too.
        """
        model, took = self._model_name(), None
        if context is not None and model != EXTRACTIVE and not isinstance(error, Exception):
            self._paid.append((model, Usage(count_tokens(self._read(())) + context, 0)))
        if self._paid:
            nothing = Answer("", Confidence.LOW, model, datetime.now(UTC), usage=Usage(0, 0), complete=False)
            took = replace(self._paid_for(self._outcome(nothing)), message=self._begun.message)
        await self._return(error, took)

    async def _return(self, error: BaseException, took: Outcome | None = None) -> None:
        """Nothing came of it; `took` is what it cost nevertheless.

        Where even that cannot be written down, the reservation runs out by itself.
        """
        failures = ((type(error).__name__, str(error)),) if isinstance(error, RagError) else ()
        try:
            await self._with.turns.give_back(self._begun, failures, took)
        except StoreFailed as failed:
            log.warning("a reservation could not be given back: %s", named(failed))

    # -- what became of it

    def _paid_for(self, outcome: Outcome) -> Outcome:
        """With all that models were paid for the turn: to tell a capability, to rewrite a query, to answer."""
        paid = [*self._paid, *([(outcome.model, outcome.usage)] if outcome.usage else [])]
        cents = sum((self._with.models.cost_cents(*each) for each in paid), Decimal(0))
        usage = Usage(sum(each.input_tokens for _, each in paid), sum(each.output_tokens for _, each in paid))
        return replace(outcome, cost_cents=cents, usage=usage)

    def _model_name(self) -> str:
        model = self._with.models.model(self.capability)
        return EXTRACTIVE if model is None else model.name

    def _interrupted(self, said: Delta, hits: tuple[Hit, ...]) -> Outcome:
        """What a client saw who left before the end. A model is paid for it, and counts its tokens at the end only."""
        answer = Answer(
            said.text, Confidence.MEDIUM, self._model_name(), datetime.now(UTC), hits, said.citations, complete=False
        )
        outcome = self._outcome(answer)
        return replace(outcome, flags=structs.replace(outcome.flags, fallback_to_generic=False), charged=True)

    def _outcome(self, answer: Answer) -> Outcome:
        sources = sources_of(answer, self._index)
        model = answer.asked or answer.model or self._model_name()
        usage, counted = answer.usage, answer.usage is not None or model == EXTRACTIVE or answer.refusal in _UNWRITTEN
        if not counted:
            usage = estimated(self._read(answer.hits), answer.text)
        stages = {name: round(1000 * seconds) for name, seconds in {**self._seconds, **answer.seconds}.items()}
        elapsed = sum(self._seconds.values()) + time.perf_counter() - self._answering
        stages["total"] = round(1000 * elapsed)
        latency_ms = stages.get("generation", stages["total"])
        instructions = self.question.instructions
        return Outcome(
            message=self.message,
            text=answer.text,
            capability=self.capability,
            model=model,
            sources=sources,
            flags=flags_of(answer, sources),
            usage=usage,
            cost_cents=Decimal(0),
            latency_ms=latency_ms,
            stages=stages,
            generation={
                "tokensIn": usage.input_tokens if usage else None,
                "tokensOut": usage.output_tokens if usage else None,
                "estimated": not counted,
                "latencyMs": latency_ms,
                "temperature": instructions.temperature,
                "maxTokens": instructions.max_tokens,
                "searched": self.question.searched or self.question.text,
                "prompts": dict(self._prompts),
                "stages": stages,
            },
            failures=tuple((type(error).__name__, str(error)) for error in answer.failures),
            charged=worth_it(answer),
            teaches=worth_it(answer) and not answer.refused and answer.model not in (None, EXTRACTIVE),
        )

    def _read(self, hits: Sequence[Hit]) -> str:
        """About what a model was shown."""
        values = self.question.instructions.values
        return "\n".join([*values.values(), self.question.text, *(hit.text for hit in hits)])

    def _log_failures(self, *errors: BaseException) -> None:
        for error in errors:
            if isinstance(error, ModelFailed):
                log.error(
                    "RAG generation failed",
                    exc_info=error,
                    extra={
                        "type": "rag_generation_error",
                        "user_id": str(self._scope.user),
                        "thread_id": str(self.thread),
                        "message_id": str(self.message),
                        "capability": self.capability,
                        "error": named(error),
                    },
                )

    def _record(self, outcome: Outcome) -> None:
        usage, stages = outcome.usage, outcome.stages
        log.info(
            "RAG request completed",
            extra={
                "type": "rag_request_complete",
                "user_id": str(self._scope.user),
                "thread_id": str(self.thread),
                "capability": outcome.capability,
                "retrieval_count": len(outcome.sources),
                "retrieval_latency_ms": stages.get("retrieval"),
                "generation_latency_ms": stages.get("generation"),
                "total_latency_ms": stages["total"],
                "tokens_in": usage.input_tokens if usage else None,
                "tokens_out": usage.output_tokens if usage else None,
            },
        )


def _first(values: Iterable[T | None]) -> T | None:
    return next((each for each in values if each is not None), None)
