"""Ask LexyBrain: the path from a message in a thread to its answer, in order.

A turn begins when no other message of its thread is being answered, the feature is on and the plan has a message left:
one transaction stores the user's message and a reservation. Then, without a transaction, the capability is chosen, the
history read, a prompt version taken, and the pipeline answers. At the end one transaction stores and charges the
assistant's message, or gives the reservation back. A kill in between leaves the message and a reservation that expires.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from msgspec import convert, structs

from rag_app.answering.capabilities import DESCRIPTIONS, capability_named
from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.context import count_tokens
from rag_app.answering.leaning import Leaning, leaning_of, searched_text
from rag_app.answering.models import estimate_usage
from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.answering.prompts import GLOBAL, PromptConfig, choose
from rag_app.answering.providers import EXTRACTIVE
from rag_app.answering.restating import go_on, leaning_after
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain import (
    Answer,
    Confidence,
    Delta,
    Event,
    FeatureDisabled,
    Forbidden,
    FoundHits,
    Hit,
    JsonObject,
    Misconfigured,
    ModelFailed,
    Principal,
    Question,
    RagError,
    Refusal,
    ShownSource,
    StoreFailed,
    ThreadBusy,
    Usage,
)
from rag_app.http.fields import as_wire
from rag_app.http.streaming import Resumable
from rag_app.pipeline import Pipeline
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.messages import (
    Payments,
    asked_before,
    cited_before,
    classify,
    detect,
    flags_of,
    follow_up,
    history_text,
    instruct,
    lasting_failures,
    mentioned_sources,
    retrieved_sources,
    rewrite_message,
    sources_of,
    worth_it,
)
from rag_app.surfaces.lexybrain.quotas import UNSUPPORTED_ANSWER, Entitlements
from rag_app.surfaces.lexybrain.running import RunningAnswers
from rag_app.surfaces.lexybrain.threads import ThreadStore, give_up, hold_thread, keep_answer, keep_message, settle_on
from rag_app.surfaces.lexybrain.training import Training, lesson
from rag_app.surfaces.lexybrain.types import (
    REFERENCE_TYPES,
    BegunTurn,
    Outcome,
    PastMessage,
    RagCitation,
    RagContext,
    RagModel,
    RagReferences,
    RagRequest,
    RagResponse,
    RagSource,
    Role,
)
from rag_app.telemetry.observing import Stage, identify, safe_text

log = logging.getLogger(__name__)

INDEX = "marketplace"
GENERAL = "general_chat"
# refusals for which no model has written anything; of the others one was paid
_UNWRITTEN = frozenset({Refusal.NOTHING_FOUND, Refusal.WEAK, Refusal.FAILED, Refusal.COURTESY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Begins turns, and holds what they need. `history_tokens` bound the history in a prompt.

    `cost_cap_cents` a day and `token_budget` of an organization's month: None is no bound.
    """

    database: Database
    accounts: Entitlements
    pipeline: Pipeline
    index: IndexSpec | None
    threads: ThreadStore
    prompts: PromptRegistry
    ledger: SourceLedger
    models: ChosenModels
    training: Training
    enabled: bool
    detect_by_model: bool
    rewrite: bool
    history_tokens: int
    cost_cap_cents: Decimal | None
    token_budget: int | None
    running: RunningAnswers = field(init=False)
    _ending: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "running", RunningAnswers(self.database))
        if self.detect_by_model and self.models.model(GENERAL) is None:
            raise Misconfigured("LEXYBRAIN_RAG_DETECTION=model requires a configured model; see docs/models.md")

    async def begin(self, principal: Principal, said: RagRequest) -> "Turn":
        """Store a user's message and reserve its answer. `Turn` describes the rest.

        Raises FeatureDisabled, CostCapReached, QuotaExceeded, BudgetSpent, Forbidden (an index or plan that is not the
        caller's), NotFound (a thread), InvalidInput (a plan), ThreadBusy (the thread answers others for
        too long), StoreFailed: then nothing is charged.
        """
        if not self.enabled:
            raise FeatureDisabled("Ask LexyBrain is switched off")
        if self.index is None:
            raise FeatureDisabled(f"The index {INDEX} does not exist in this installation")
        if principal.indexes is not None and INDEX not in principal.indexes:
            raise Forbidden(f"This key may not search the index {INDEX}")
        turn = Turn(self, self.index, said)
        await turn.begin(principal)
        return turn

    async def aclose(self) -> None:
        """Stop resumable answers; wait until answers and training data are stored."""
        await self.running.aclose()
        while self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run a task to its end, even if nobody waits for it."""
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


class Turn:
    """A message from its beginning to its end, in the order of the methods. `_services` are what `Conversations` holds.

    `begin` stores it and prepares the question; `answer`, or `stream`, is called once; the turn is then stored, or given
    up. `thread` is its thread, `message` the id of the answer, `capability` the one that answers.
    """

    def __init__(self, conversations: Conversations, index: IndexSpec, said: RagRequest) -> None:
        self._services, self._index, self._said = conversations, index, said
        self.message, self._ended = uuid4(), False
        self._asked, self._freed = uuid4(), False
        self._over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.capability, self.question = said.capability or GENERAL, Question(said.text)
        self._leaning, self._today = Leaning.ALONE, date.min
        self._seconds, self._paid, self._prompts = dict[str, float](), Payments(), dict[str, str]()

    # -- the beginning

    async def begin(self, principal: Principal) -> None:
        """Raises as `Conversations.begin`. A client that leaves meanwhile is not charged."""
        beginning = None
        try:
            if self._said.thread is not None and principal.user is not None:
                await self._take(principal.user, self._said.thread)
            self._started = time.perf_counter()
            # without a capability in the request, it is not known yet which one answers
            may_answer = [self._said.capability] if self._said.capability else DESCRIPTIONS
            beginning = asyncio.create_task(
                keep_message(
                    self._services.database,
                    principal,
                    self._said,
                    self._asked,
                    cost_cap_cents=self._services.cost_cap_cents,
                    token_budget=self._services.token_budget,
                    may_extract=not all(map(self._services.models.takes_tokens, may_answer)),
                )
            )
            with Stage("keeping"):
                self._begun = await asyncio.shield(beginning)
            self.thread, self._scope = self._begun.thread.id, self._begun.scope
            identify(user=self._scope.user, thread=self.thread)
            if self._said.thread is None:
                await self._take(self._begun.account.user, self.thread)
            kept = time.perf_counter()
            with Stage("preparing") as span:
                await self._prepare()
                span.set_attribute("rag.capability", self.capability)
        except BaseException as error:
            await self._whole(self._undo(beginning, error))
            raise
        self._seconds = {"keeping": kept - self._started, "preparing": time.perf_counter() - kept}

    async def _take(self, user: UUID, thread: UUID) -> None:
        taken = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(
            hold_thread(self._services.database, user, thread, self._asked, taken, self._over)
        )
        if not await asyncio.shield(taken):
            raise ThreadBusy

    async def _undo(self, beginning: "asyncio.Task[BegunTurn] | None", error: BaseException) -> None:
        if beginning is None:
            return
        try:
            self._begun = await beginning
        except Exception:  # it is raised where it is awaited: nothing was kept
            return
        self.thread, self._scope = self._begun.thread.id, self._begun.scope
        await self._give_up(error)

    async def _prepare(self) -> None:
        said, thread = self._said, self._begun.thread
        history: Sequence[PastMessage] = ()
        with Stage("history"):
            if thread.message_count > 1:
                history = await self._services.threads.history(self._scope, thread.id, before=self._begun.message)
        self._told_of = (*(each.id for each in history), self._begun.message)
        self._today = await self._services.pipeline.today(self._scope)
        with Stage("detection"):
            if history:
                before = [each.content for each in history if each.role is Role.USER]
                self._leaning = leaning_after(said.text, before[-1]) if before else leaning_of(said.text)
            self.capability = said.capability or await self._detect(history)
        if self._begun.over_budget is not None and self._services.models.takes_tokens(self.capability):
            raise self._begun.over_budget
        with Stage("prompts"):
            versions = await self._choose_prompts()
        named, context = list[UUID](), said.context or RagContext()
        lists = (context.keywords, context.watchlists, context.listings, context.alerts)
        names = [name for each in lists for name in each or ()]
        if names or context.shop_url:
            named = await self._services.ledger.find_named(self._scope, INDEX, names, context.shop_url)
        self.question = instruct(
            capability_named(self.capability),
            said,
            versions,
            thread.last_message_at,
            history=history_text(history, self._services.history_tokens),
            searched=await self._rewrite(history),
            earlier=() if self._leaning is Leaning.ALONE else cited_before(history),
            named=tuple(named),
        )
        asked = structs.replace(self.question, today=self._today, leans=self._leaning is Leaning.LEANS)
        asks_model = self._services.models.model(self.capability) is not None  # which is shown what was said
        if asked.searched is None:  # no model has rewritten it
            asked = go_on(asked, asked_before(history), pronouns=not asks_model)
        if asks_model:
            asked = structs.replace(asked, restated="")
        self.question = await self._services.pipeline.resolve_dates(self.capability, asked, self._scope)

    async def _detect(self, history: Sequence[PastMessage]) -> str:
        text, models = self._said.text, self._services.models
        by_words = follow_up(text, history) or detect(text)
        model = models.model(GENERAL) if self._services.detect_by_model and self._begun.over_budget is None else None
        if model is None:
            return by_words
        prompt, whole = models.prompt("ask_lexybrain_intent"), searched_text(text, asked_before(history))
        return await classify(model, prompt, whole, self._paid, self._today) or by_words

    async def _choose_prompts(self) -> list[PromptConfig | None]:
        """The prompt versions for all capabilities and for this one; stored with the capability."""
        thread = self._begun.thread
        kept = thread.metadata.get("prompts", {})
        async with self._services.prompts.active(self._scope) as (session, configs):
            chosen = [choose(configs, kind, thread.id, kept.get(kind)) for kind in (GLOBAL, self.capability)]
            self._prompts = {each.type: each.name for each in chosen if each is not None}
            await settle_on(session, self._scope.user, thread.id, self._begun.message, self.capability, self._prompts)
        return chosen

    async def _rewrite(self, history: Sequence[PastMessage]) -> Sequence[str]:
        """What a model says is to be searched for, since a follow-up by itself often names nothing; else nothing."""
        text, models = self._said.text, self._services.models
        model = None
        if self._services.rewrite and history and self._begun.over_budget is None:
            model = models.model(self.capability)
        if model is None:
            return ()
        prompt, most = models.prompt("ask_lexybrain_rewrite"), self._services.history_tokens
        query = await rewrite_message(model, prompt, text, history, most, self._paid, self._today)
        return (query,) if query else ()

    # -- the answer

    async def answer(self) -> RagResponse:
        """Raises ModelFailed if there is no answer, which is not charged, StoreFailed and EmbeddingFailed."""
        try:
            answer = await self._services.pipeline.answer(self.capability, self.question, self._scope)
        except BaseException as error:  # the client has left, perhaps
            self._log_failures(error)
            await self._whole(self._give_up(error, capability_named(self.capability).max_context_tokens))
            raise
        await self._whole(self._keep(answer))
        return self.reply(answer)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """`answer` as a stream: FoundHits, Deltas, and at last the Answer. If closed early, the text so far is stored."""
        said, hits, found = Delta(""), tuple[Hit, ...](), False
        try:
            async with aclosing(self._services.pipeline.stream(self.capability, self.question, self._scope)) as events:
                async for event in events:
                    match event:
                        case FoundHits():
                            hits, found = event.hits, True
                        case Delta():
                            said = Delta(said.text + event.text, event.citations)
                        case Answer():
                            await self._whole(self._keep(event))
                    yield event
        except BaseException as error:
            self._log_failures(error)
            if self._ended:
                raise
            if said.text:  # a model is paid for what a client saw who left, and counts its tokens at the end only
                now, model = datetime.now(UTC), self._model_name()
                seen = Answer(said.text, Confidence.MEDIUM, model, now, hits, said.citations, complete=False)
                await self._whole(self._keep(seen))
            else:
                context = count_tokens("\n".join(hit.text for hit in hits)) if found else None
                await self._whole(self._give_up(error, context))
            raise

    def sources(self, hits: Sequence[Hit]) -> list[RagSource]:
        """The sources of the hits, before it is known which are cited."""
        return convert(retrieved_sources(hits, (), self._index), list[RagSource], from_attributes=True)

    def keep(self, stream: Resumable) -> None:
        """Let the stream go on without its client."""
        self._services.running.keep(self._begun.account.user, self.thread, stream)

    def citations(self, answer: Answer) -> list[RagCitation]:
        """The cited sources, by number."""
        cited = [each for each in sources_of(answer, self._index) if each.cited is not None]
        return sorted(convert(cited, list[RagCitation], from_attributes=True), key=attrgetter("cited"))

    def reply(self, answer: Answer) -> RagResponse:
        """The response to the client."""
        outcome = self._outcome(answer)
        mentions = mentioned_sources(outcome.text, outcome.sources, answer.hits)
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
        """End the turn, even if the waiting caller is cancelled meanwhile."""
        self._ended = True
        task = self._services.start(work)
        task.add_done_callback(self._leave_thread)
        await asyncio.shield(task)

    def _leave_thread(self, _: "asyncio.Task[None]") -> None:
        if not self._over.done():
            self._over.set_result(self._freed)

    async def _keep(self, answer: Answer) -> None:
        """Store the result of the turn. If that fails, the user still gets the answer and is not charged.

        Training data is collected afterwards, so that the user does not wait for it.
        """
        self._log_failures(*lasting_failures(answer))
        outcome = self._outcome(answer)
        try:
            with Stage("keeping_answer"):
                kept = await keep_answer(self._services.database, self._begun, outcome)
                self._freed = True
        except Exception:
            log.exception("an answer was not kept: thread=%s message=%s", self.thread, self.message)
        else:
            if kept and outcome.teaches and self._begun.account.training:
                self._services.start(self._collect(answer))
        self._record(outcome)

    async def _collect(self, answer: Answer) -> None:
        try:
            prompt = self._services.models.prompt(capability_named(self.capability).prompt)
            learned = lesson(prompt, self.capability, self.message, self._told_of, self.question, answer, self._index)
            await self._services.training.collect(self._scope, learned)
        except Exception as error:  # it is not the user's business
            log.warning("an answer was not collected for training: message=%s %s", self.message, safe_text(error))

    async def _give_up(self, error: BaseException, context: int | None = None) -> None:
        """End a turn without an answer. A client that left is not charged, but the models' cost counts for budgets and cap.

        `context`: tokens that a model may have read when the client left; None: it was not asked. If even this cannot be
        stored, the reservation expires.
        """
        model, took = self._model_name(), None
        if context is not None and model != EXTRACTIVE and not isinstance(error, Exception):
            self._paid.append((model, Usage(count_tokens(self._read(())) + context, 0)))
        if self._paid:
            nothing = Answer("", Confidence.LOW, model, datetime.now(UTC), usage=Usage(0, 0), complete=False)
            took = structs.replace(self._outcome(nothing), message=self._begun.message)
        failures = ((type(error).__name__, str(error)),) if isinstance(error, RagError) else ()
        try:
            await give_up(self._services.database, self._begun, failures, took)
            self._freed = True
        except StoreFailed as failed:
            log.warning("a reservation could not be given back: %s", safe_text(failed))

    # -- what became of it

    def _model_name(self) -> str:
        model = self._services.models.model(self.capability)
        return EXTRACTIVE if model is None else model.name

    def _outcome(self, answer: Answer) -> Outcome:
        """Usage and cost cover all models of the turn: detecting the capability, rewriting the query, answering."""
        most = max(capability_named(self.capability).max_sources, len(answer.citations))
        sources, model = sources_of(answer, self._index)[:most], answer.asked or answer.model or self._model_name()
        usage, counted = answer.usage, answer.usage is not None or model == EXTRACTIVE or answer.refusal in _UNWRITTEN
        if not counted:
            usage = estimate_usage(self._read(answer.shown or answer.hits), answer.text)
        paid = [*self._paid, *([(model, usage)] if usage else [])]
        stages = {name: round(1000 * seconds) for name, seconds in {**self._seconds, **answer.seconds}.items()}
        stages["total"] = round(1000 * (time.perf_counter() - self._started))
        latency_ms = stages.get("generation", stages["total"])
        instructions = self.question.instructions
        unsupported = answer.refusal is Refusal.UNCITED
        refused = (
            ((UNSUPPORTED_ANSWER, "no sentence of the answer has a source that supports it"),) if unsupported else ()
        )
        return Outcome(
            message=self.message,
            text=answer.text,
            capability=self.capability,
            model=model,
            sources=sources,
            flags=flags_of(answer, sources),
            usage=Usage(sum(each.input_tokens for _, each in paid), sum(each.output_tokens for _, each in paid)),
            cost_cents=sum((self._services.models.cost_cents(*each) for each in paid), Decimal(0)),
            latency_ms=latency_ms,
            stages=stages,
            generation={
                "tokensIn": usage.input_tokens if usage else None,
                "tokensOut": usage.output_tokens if usage else None,
                "estimated": not counted,
                "latencyMs": latency_ms,
                "temperature": instructions.temperature,
                "maxTokens": instructions.max_tokens,
                "searched": answer.searched or self.question.searched or self.question.text,
                **({"also": list(self.question.also)} if self.question.also else {}),
                "leaning": self._leaning,
                "look": answer.look,
                **({"warnings": warnings} if (warnings := self._services.pipeline.warnings(self.question)) else {}),
                "prompts": self._prompts,
                "stages": stages,
            },
            failures=tuple((type(error).__name__, str(error)) for error in answer.failures) + refused,
            charged=worth_it(answer),
            teaches=worth_it(answer) and answer.complete and answer.model not in (None, EXTRACTIVE),
            unsupported=bool(refused) and worth_it(answer),
        )

    def _read(self, texts: Sequence[Hit | ShownSource]) -> str:
        """Approximately the text that a model read."""
        values = self.question.instructions.values
        return "\n".join([*values.values(), self.question.text, *(each.text for each in texts)])

    def _log_fields(self, what: str) -> JsonObject:
        ids = {"user_id": self._scope.user, "thread_id": self.thread, "message_id": self.message}
        return {"type": what, "capability": self.capability, **{name: str(value) for name, value in ids.items()}}

    def _log_failures(self, *errors: BaseException) -> None:
        for error in errors:
            if isinstance(error, ModelFailed):
                about = self._log_fields("rag_generation_error") | {"error": safe_text(error)}
                log.error("RAG generation failed", exc_info=error, extra=about)

    def _record(self, outcome: Outcome) -> None:
        took = {f"{stage}_latency_ms": outcome.stages.get(stage) for stage in ("retrieval", "generation", "total")}
        tokens = {"tokens_in": outcome.usage.input_tokens, "tokens_out": outcome.usage.output_tokens}
        about = self._log_fields("rag_request_complete") | took | {"retrieval_count": len(outcome.sources)} | tokens
        log.info("RAG request completed", extra=about)
