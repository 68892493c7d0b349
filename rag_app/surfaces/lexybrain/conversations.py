"""Ask LexyBrain: a message in a thread, and the answer to it. The way from the one to the other is here, in order.

A turn begins: the feature is on, the plan has a message left, the user's message is kept (one transaction). Then,
with nothing held in the database: its capability is chosen, its thread's history read, a prompt version taken, and the
pipeline answers. A turn ends: the assistant's message is kept and charged for (one transaction), or the reservation
goes back. Whoever is killed in between leaves a kept message and a reservation that runs out.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID, uuid4

from llama_index.core.llms import ChatMessage

from rag_app.answering.capabilities import DESCRIPTIONS, capability_named
from rag_app.answering.context import count_tokens
from rag_app.answering.extractive import MODEL as EXTRACTIVE
from rag_app.answering.models import ChatModel, Chats, Draft, WithFallback, estimated
from rag_app.answering.prompt_configs import PromptConfigs
from rag_app.answering.prompts import Prompt
from rag_app.answering.roles import Constraints, PromptConfig, choose, constraints_of
from rag_app.documents.ledger import SourceLedger
from rag_app.domain.answer import Answer, Confidence, Delta, Event, Found, Hit, Instructions, Question, Refusal, Usage
from rag_app.domain.errors import (
    EmbeddingFailed,
    FeatureDisabled,
    Forbidden,
    InvalidInput,
    Misconfigured,
    ModelFailed,
    NotFound,
    RagError,
    StoreFailed,
)
from rag_app.domain.scope import Principal, Scope
from rag_app.pipeline import Pipeline
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.detection import classify, detect, follow_up
from rag_app.surfaces.lexybrain.dialogue import history_text, rewritten, searched_text
from rag_app.surfaces.lexybrain.focus import question_for
from rag_app.surfaces.lexybrain.lesson_text import lesson
from rag_app.surfaces.lexybrain.lessons import Lesson
from rag_app.surfaces.lexybrain.quotas import Accounts
from rag_app.surfaces.lexybrain.replies import flags_of, mentioned, retrieved, sources_of
from rag_app.surfaces.lexybrain.threads import Threads
from rag_app.surfaces.lexybrain.training import Training
from rag_app.surfaces.lexybrain.turns import Turns
from rag_app.surfaces.lexybrain.types import Begun, Message, Outcome, Reply, RetrievedSource, Said
from rag_app.telemetry.observing import Stage, identify, named

log = logging.getLogger(__name__)

INDEX = "marketplace"
GENERAL = "general_chat"
MAX_TOKENS, TEMPERATURE = 1024, 0.7
"""Of an answer, where neither the message nor a version of a prompt says."""
HISTORY = 10
"""Messages of a thread that a model is shown at most."""
_UNWRITTEN = frozenset({Refusal.NOTHING_FOUND, Refusal.WEAK, Refusal.FAILED})
"""Refusals for which no model has written anything; of the others one was paid."""


class Models(Protocol):
    """The models in use."""

    def model(self, capability: str) -> ChatModel | WithFallback | None: ...

    def prompt(self, name: str) -> Prompt: ...

    def cost_cents(self, model: str, usage: Usage | None) -> Decimal: ...


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator chooses. `history_tokens` bound the history in a prompt."""

    enabled: bool = True
    detect_by_model: bool = False
    rewrite: bool = False
    history_tokens: int = 1500


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a turn will be answered with. `prompts` are the versions, by type; `tally` is what this much has cost.

    `told` are the ids of the messages that a model may be shown: the history, and the present one.
    """

    capability: str
    question: Question
    prompts: Mapping[str, str]
    tally: "Tally"
    told: tuple[UUID, ...]


class Tally:
    """Counts what models were paid for a turn before its answer: to tell a capability, to rewrite a query."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self.cents, self.usage = Decimal(0), Usage(0, 0)

    def of(self, model: ChatModel | WithFallback) -> Chats:
        """The model, counted."""
        return _Counted(model, self)

    def add(self, model: str, usage: Usage | None) -> None:
        self.cents += self._models.cost_cents(model, usage)
        if usage is not None:
            mine = self.usage
            self.usage = Usage(mine.input_tokens + usage.input_tokens, mine.output_tokens + usage.output_tokens)


@dataclass(frozen=True, slots=True)
class _Counted:
    model: ChatModel | WithFallback
    tally: Tally

    async def chat(
        self, messages: Sequence[ChatMessage], *, max_tokens: int | None = None, temperature: float | None = None
    ) -> Draft:
        draft = await self.model.chat(messages, max_tokens=max_tokens, temperature=temperature)
        read = "\n".join(str(message.content) for message in messages)
        self.tally.add(draft.model, draft.usage or estimated(read, draft.text))
        return draft


class Conversations:
    """Where turns begin."""

    def __init__(
        self, *, pipeline: Pipeline, index: IndexSpec | None, accounts: Accounts, turns: Turns, threads: Threads,
        prompts: PromptConfigs, ledger: SourceLedger, models: Models, training: Training, options: Options,
    ) -> None:  # fmt: skip
        self._pipeline, self._index, self._models, self._options = pipeline, index, models, options
        self._accounts, self._turns, self._threads = accounts, turns, threads
        self._prompts, self._ledger, self._training = prompts, ledger, training
        if options.detect_by_model and models.model(GENERAL) is None:
            raise Misconfigured("LEXYBRAIN_RAG_DETECTION=model needs a model: docs/models.md")
        self._ending: set[asyncio.Task[Any]] = set()

    async def begin(self, principal: Principal, said: Said) -> "Turn":
        """Keep what a user says, and reserve the answer. `Turn` says how it goes on.

        Raises FeatureDisabled, CostCapReached, QuotaExceeded, BudgetSpent, Forbidden (an index or plan that is not the
        caller's), NotFound (a thread or capability), InvalidInput (a plan), StoreFailed: then nothing is charged.
        """
        if not self._options.enabled:
            raise FeatureDisabled("Ask LexyBrain is switched off")
        if self._index is None:
            raise FeatureDisabled(f"There is no index {INDEX} here")
        if principal.indexes is not None and INDEX not in principal.indexes:
            raise Forbidden(f"This key may not search the index {INDEX}")
        if said.capability is not None and said.capability not in DESCRIPTIONS:
            raise NotFound("capability", said.capability, DESCRIPTIONS)
        started = time.perf_counter()
        account = await self._accounts.of(principal)
        identify(user=account.user)
        if said.plan is not None:
            if not account.administrator:
                raise Forbidden("planCode: only an administrator may choose a plan")
            messages, enabled = await self._accounts.plan(said.plan)
            account = replace(account, plan=said.plan, messages=messages, enabled=enabled)
        scope = replace(principal.scope(), user=account.user)
        with Stage("keeping"):
            begun = await self._begun(scope, self._turns.begin(scope, said, account))
        identify(thread=begun.thread.id)
        kept = time.perf_counter()
        try:
            with Stage("preparing") as span:
                prepared = await self._prepare(scope, said, begun)
                span.set_attribute("rag.capability", prepared.capability)
            seconds = {"keeping": kept - started, "preparing": time.perf_counter() - kept}
            return Turn(self, self._index, scope, begun, prepared, seconds)
        except BaseException as error:
            await self.whole(self.give_back(scope, begun, error))
            raise

    async def aclose(self) -> None:
        """Wait for what is being kept, and collected."""
        while self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)

    async def whole(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this to its end, also where whoever waits for it is cancelled in the meantime."""
        await asyncio.shield(self._task(work))

    def _task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _begun(self, scope: Scope, work: Coroutine[Any, Any, Begun]) -> Begun:
        """A client that leaves while its turn begins is not charged."""
        beginning = asyncio.create_task(work)
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await self.whole(self._undo(scope, beginning))
            raise

    async def _undo(self, scope: Scope, beginning: "asyncio.Task[Begun]") -> None:
        try:
            begun = await beginning
        except RagError:
            return
        await self.give_back(scope, begun, asyncio.CancelledError())

    async def _prepare(self, scope: Scope, said: Said, begun: Begun) -> _Prepared:
        thread = begun.thread
        with Stage("history"):
            history = await self._threads.history(scope, thread.id, before=begun.message, limit=HISTORY)
        tally = Tally(self._models)
        with Stage("detection"):
            capability = said.capability or await self._detected(said.text, history, tally)
        chosen = capability_named(capability)
        with Stage("prompts"):
            configs, kept = await self._prompts.active(), dict(thread.metadata.get("prompts", {}))
            system, role = (choose(configs, kind, thread.id, kept.get(kind)) for kind in ("global", capability))
            prompts = {each.type: each.name for each in (system, role) if each is not None}
            await self._threads.settle_on(scope, thread.id, begun.message, capability, prompts)
        rules = [_rules(each) for each in (role, system) if each is not None]
        tokens = next((each.max_tokens for each in rules if each.max_tokens is not None), MAX_TOKENS)
        temperature = next((each.temperature for each in rules if each.temperature is not None), TEMPERATURE)
        focus = said.focus
        named = (
            await self._ledger.named(scope, INDEX, focus.names, focus.shop_url) if focus.names or focus.shop_url else []
        )
        question = question_for(
            chosen,
            said,
            searched=await self._searched(capability, said.text, history, tally),
            named=tuple(named),
            retrieval_scope=next((each.retrieval_scope for each in rules if each.retrieval_scope is not None), None),
            at_most=rules[0].at_most if rules else {},
            instructions=Instructions(
                {
                    "system": system.instructions if system else "",
                    "role": role.instructions if role else "",
                    "history": history_text(history, self._options.history_tokens),
                    "language": said.language,
                },
                said.max_tokens if said.max_tokens is not None else tokens,
                said.temperature if said.temperature is not None else temperature,
            ),
            now=begun.thread.last_message_at,
        )
        return _Prepared(capability, question, prompts, tally, (*(each.id for each in history), begun.message))

    async def _detected(self, text: str, history: Sequence[Message], tally: Tally) -> str:
        model = self._models.model(GENERAL) if self._options.detect_by_model else None
        if model is None:
            return follow_up(text, history) or detect(text)
        prompt, whole = self._models.prompt("ask_lexybrain_intent"), searched_text(text, history)
        return await classify(tally.of(model), prompt, whole, lambda _: follow_up(text, history) or detect(text))

    async def _searched(self, capability: str, text: str, history: Sequence[Message], tally: Tally) -> str:
        """What is looked for: a follow-up by itself often names nothing."""
        model = self._models.model(capability) if self._options.rewrite and history else None
        if model is not None:
            prompt, budget = self._models.prompt("ask_lexybrain_rewrite"), self._options.history_tokens
            if query := await rewritten(tally.of(model), prompt, text, history, budget):
                return query
        return searched_text(text, history)

    async def answer(self, turn: "Turn") -> Answer:
        return await self._pipeline.answer(turn.capability, turn.question, turn.scope)

    def stream(self, turn: "Turn") -> AsyncGenerator[Event, None]:
        return self._pipeline.stream(turn.capability, turn.question, turn.scope)

    def model_name(self, capability: str) -> str:
        model = self._models.model(capability)
        return EXTRACTIVE if model is None else model.name

    async def keep(self, turn: "Turn", outcome: Outcome, answer: Answer | None = None) -> None:
        """Write down what became of a turn. Where that fails, the user has the answer nevertheless, and is not charged.

        A whole `answer` is collected for training afterwards, if its user consents.
        """
        turn.tally.add(outcome.model, outcome.usage)
        taken = replace(outcome, cost_cents=turn.tally.cents, usage=turn.tally.usage)
        try:
            with Stage("keeping_answer"):
                kept = await self._turns.finish(turn.scope, turn.begun, taken)
        except Exception:
            log.exception("an answer was not kept: thread=%s message=%s", turn.thread, turn.message)
        else:
            if answer is not None and kept and outcome.teaches and turn.begun.account.training:
                self._task(self._collect(turn, answer))  # the user does not wait for it
        _record(turn, outcome)

    async def _collect(self, turn: "Turn", answer: Answer) -> None:
        try:
            prompt = self._models.prompt(capability_named(turn.capability).prompt)
            await self._training.collect(turn.scope, turn.lesson(prompt, answer))
        except Exception as error:  # it is not the user's business
            log.warning("an answer was not collected for training: message=%s %s", turn.message, named(error))

    async def give_back(self, scope: Scope, begun: Begun, error: BaseException, took: Outcome | None = None) -> None:
        """Nothing came of it; `took` is what it cost nevertheless.

        Where even that cannot be written down, the reservation runs out by itself.
        """
        failures = ((type(error).__name__, str(error)),) if isinstance(error, RagError) else ()
        try:
            await self._turns.give_back(scope, begun, failures, took)
        except StoreFailed as failed:
            log.warning("a reservation could not be given back: %s", named(failed))


class Turn:
    """A message that is kept, and about to be answered: by `answer`, or by `stream`, once."""

    def __init__(
        self, conversations: Conversations, index: IndexSpec, scope: Scope, begun: Begun, prepared: _Prepared,
        seconds: Mapping[str, float],
    ) -> None:  # fmt: skip
        self.thread, self.message, self.capability = begun.thread.id, uuid4(), prepared.capability
        self.scope, self.begun, self.question, self.tally = scope, begun, prepared.question, prepared.tally
        self._conversations, self._index, self._prompts = conversations, index, prepared.prompts
        self._told_of, self._seconds = prepared.told, seconds
        self._answering, self._ended = time.perf_counter(), False

    async def answer(self) -> Reply:
        """Raises ModelFailed where nothing can be said; nothing is charged then."""
        try:
            answer = await self._conversations.answer(self)
        except BaseException as error:  # the client has left, perhaps
            self._told(error)
            await self._end(self._give_back(error, capability_named(self.capability).max_context_tokens))
            raise
        self._told(*_lasting(answer))
        await self._end(self._conversations.keep(self, self._outcome(answer), answer))
        return self.reply(answer)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """`answer`, as it comes. Closed early, it keeps what was said by then."""
        said, hits, found = Delta(""), tuple[Hit, ...](), False
        try:
            async with aclosing(self._conversations.stream(self)) as events:
                async for event in events:
                    match event:
                        case Found():
                            hits, found = event.hits, True
                        case Delta():
                            said = Delta(said.text + event.text, event.citations)
                        case Answer():
                            self._told(*_lasting(event))
                            await self._end(self._conversations.keep(self, self._outcome(event), event))
                    yield event
        except BaseException as error:
            self._told(error)
            if said.text:
                await self._end(self._conversations.keep(self, self._interrupted(said, hits)))
            else:
                context = count_tokens("\n".join(hit.text for hit in hits)) if found else None
                await self._end(self._give_back(error, context))
            raise

    def lesson(self, prompt: Prompt, answer: Answer) -> Lesson:
        """What there is to learn from the answer, for a model that is told this prompt."""
        return lesson(prompt, self.capability, self.message, self._told_of, self.question, answer, self._index)

    def sources(self, hits: Sequence[Hit]) -> tuple[RetrievedSource, ...]:
        """Those of the hits, before it is known which of them are cited."""
        return retrieved(hits, (), self._index)

    def reply(self, answer: Answer) -> Reply:
        """What a client is told of it."""
        outcome = self._outcome(answer)
        return Reply(
            self.thread,
            self.message,
            outcome.text,
            self.capability,
            outcome.sources,
            mentioned(outcome.text, outcome.sources, answer.hits),
            outcome.model,
            answer.usage,
            outcome.latency_ms,
            outcome.flags,
        )

    def _told(self, *errors: BaseException) -> None:
        """To the log: a model has failed, and the user noticed."""
        for error in errors:
            if isinstance(error, ModelFailed):
                log.error(
                    "RAG generation failed",
                    exc_info=error,
                    extra={
                        "type": "rag_generation_error",
                        "user_id": str(self.scope.user),
                        "thread_id": str(self.thread),
                        "message_id": str(self.message),
                        "capability": self.capability,
                        "error": named(error),
                    },
                )

    async def _end(self, work: Coroutine[Any, Any, None]) -> None:
        if self._ended:
            work.close()
            return
        self._ended = True
        await self._conversations.whole(work)

    def _give_back(self, error: BaseException, context: int | None) -> Coroutine[Any, Any, None]:
        """`context`: tokens of what a model may have been shown when the client left; None: it was not asked.

        Who leaves is not charged, but models were paid: budgets and the cost cap hold for those, too.
        """
        model, usage = self._conversations.model_name(self.capability), Usage(0, 0)
        if context is not None and model != EXTRACTIVE and not isinstance(error, Exception):
            usage = Usage(count_tokens(self._read(())) + context, 0)
        self.tally.add(model, usage)
        took = None
        if self.tally.usage != Usage(0, 0):
            nothing = Answer("", Confidence.LOW, model, datetime.now(UTC), usage=self.tally.usage, complete=False)
            took = replace(self._outcome(nothing), message=self.begun.message, cost_cents=self.tally.cents)
        return self._conversations.give_back(self.scope, self.begun, error, took)

    def _interrupted(self, said: Delta, hits: tuple[Hit, ...]) -> Outcome:
        """What a client saw who left before the end. A model is paid for it, and counts its tokens at the end only."""
        model = self._conversations.model_name(self.capability)
        answer = Answer(said.text, Confidence.MEDIUM, model, datetime.now(UTC), hits, said.citations, complete=False)
        outcome = self._outcome(answer)
        return replace(outcome, flags=replace(outcome.flags, fallback_to_generic=False), charged=True)

    def _outcome(self, answer: Answer) -> Outcome:
        sources = sources_of(answer, self._index)
        model = answer.asked or answer.model or self._conversations.model_name(self.capability)
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
            charged=_worth_it(answer),
            teaches=_worth_it(answer) and not answer.refused and answer.model not in (None, EXTRACTIVE),
        )

    def _read(self, hits: Sequence[Hit]) -> str:
        """About what a model was shown."""
        values = self.question.instructions.values
        return "\n".join([*values.values(), self.question.text, *(hit.text for hit in hits)])


def _lasting(answer: Answer) -> Sequence[RagError]:
    """Failures that the answer is the worse for: no other model has stepped in."""
    return () if answer.complete and answer.refusal is not Refusal.FAILED else answer.failures


def _record(turn: Turn, outcome: Outcome) -> None:
    """One line a turn."""
    usage, stages = outcome.usage, outcome.stages
    log.info(
        "RAG request completed",
        extra={
            "type": "rag_request_complete",
            "user_id": str(turn.scope.user),
            "thread_id": str(turn.thread),
            "capability": outcome.capability,
            "retrieval_count": len(outcome.sources),
            "retrieval_latency_ms": stages.get("retrieval"),
            "generation_latency_ms": stages.get("generation"),
            "total_latency_ms": stages["total"],
            "tokens_in": usage.input_tokens if usage else None,
            "tokens_out": usage.output_tokens if usage else None,
        },
    )


def _worth_it(answer: Answer) -> bool:
    """Whether a user is charged: not for a fallback, for half an answer, nor where nothing could be looked up."""
    looked_up = not any(isinstance(each, EmbeddingFailed | StoreFailed) for each in answer.failures)
    return looked_up and answer.complete and answer.refusal is not Refusal.FAILED


def _rules(config: PromptConfig) -> Constraints:
    try:
        return constraints_of(config)
    except InvalidInput as error:  # written past the commands; it is not the user's
        raise Misconfigured(f"prompt {config.name}: {error}") from error
