"""The way from a question to an answer: choose the capability, retrieve, judge, answer, verify, record.

A principal asks a question within a scope. The capability determines the index, the retrieval policy and the prompt.
Its query engine retrieves hits, removes weak hits and duplicates, judges whether the rest is good enough, writes an
answer in which every claim cites a hit, and verifies the citations. All surfaces call `search`, `answer` or `stream`.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import date
from functools import partial
from uuid import UUID

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from msgspec.structs import replace

from rag_app.access.limits import Budgets
from rag_app.answering.asked import QuestionBundle
from rag_app.answering.capabilities import Capability, capability_named
from rag_app.answering.engine import CapabilityEngine, answer_of
from rag_app.answering.gate import FittedGate, FixedGate, Gate, Judgment
from rag_app.answering.models import estimate_usage
from rag_app.answering.parts import NO_PARTS, Parts
from rag_app.answering.providers import EXTRACTIVE
from rag_app.answering.records.finder import RecordFinder
from rag_app.answering.records.telling import tell_record
from rag_app.answering.records.written_queries import QueryWriter
from rag_app.answering.refusals import not_understood, not_understood_here
from rag_app.answering.synthesizers import Synthesizer
from rag_app.domain import (
    Answer,
    Delta,
    Event,
    FoundHits,
    Question,
    Scope,
    StoreFailed,
    Usage,
)
from rag_app.retrieval.confidence import Basis, Fit
from rag_app.retrieval.foreign import adopt, with_cosines
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.retrieval.periods import period_of
from rag_app.retrieval.postprocessors import GuardedPostprocessor, leave_out, postprocessors_for, step
from rag_app.retrieval.retriever import ChunkRetriever
from rag_app.retrieval.searcher import OpenStore, Searcher
from rag_app.telemetry import observing
from rag_app.telemetry.observing import safe_text

log = logging.getLogger(__name__)

LoadFit = Callable[[IndexSpec, Scope], Awaitable[tuple[Fit, Basis]]]
"""What the hits of an index are judged by, for a scope."""


Today = Callable[[Scope], Awaitable[date]]
"""The day on which somebody asks, where they are."""


class Pipeline(Searcher):
    """Finds hits and answers questions with the given store, embedding model and synthesizers.

    With `budgets`, answers by a model are limited by the token budgets of the scope's organizations and counted there.
    Without, the caller must count tokens itself, as conversations do.

    `parts` returns the custom retriever and postprocessors of a capability, if it has any.

    `owner` returns the event loop that the store and the models belong to. LlamaIndex's synchronous calls run on it.
    """

    def __init__(
        self,
        indexes: Mapping[str, IndexSpec],
        open_store: OpenStore,
        embedder: BaseEmbedding,
        synthesizer: Callable[[Capability], Synthesizer],
        *,
        load_fit: LoadFit,
        today: Today,
        budgets: Budgets | None = None,
        dimension: int | None = None,
        parts: Callable[[Capability], Parts] = lambda _: NO_PARTS,
        query_writer: Callable[[Capability], QueryWriter | None] = lambda _: None,
        owner: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None,
    ) -> None:
        super().__init__(indexes, open_store, embedder, dimension)
        self._owner = owner
        self._parts, self.today, self._query_writer = parts, today, query_writer
        self._load_fit, self._synthesizer, self._budgets = load_fit, synthesizer, budgets

    def warnings(self, question: Question) -> list[str]:
        """Messages about parts of the question that the embedding model ignores, or a language that it does not know.
        Usually empty."""
        losses: Callable[[str], list[str]] | None = getattr(self._embedder, "losses", None)
        text = question.searched or question.text
        unknown = not_understood(text, self._embedder.model_name, getattr(self._embedder, "languages", ()))
        return [*(losses(text) if losses else ()), *filter(None, [unknown])]

    async def answer(self, capability: str, question: Question, scope: Scope) -> Answer:
        """An answer with verified citations, or the capability's refusal.

        Raises the errors of `search`, ModelFailed if the answering model fails, and BudgetSpent if a budget is used up. A
        capability with a `failure_text` handles most failures itself (see CapabilityEngine).
        """
        question = await self.resolve_dates(capability, question, scope)
        engine = self.engine(capability, question, scope)
        with _record_outcome(capability) as given:
            await self._check_budgets(engine, scope)
            try:
                given.append(answer_of(await engine.aquery(QuestionBundle(question))))
            except asyncio.CancelledError:
                await self._spend(engine, question, scope, [FoundHits(())])
                raise
            await self._spend(engine, question, scope, given)
            return given[0]

    async def stream(self, capability: str, question: Question, scope: Scope) -> AsyncGenerator[Event, None]:
        """`answer`, as it comes: FoundHits, the text in Deltas, then the whole Answer.

        An error before the model is asked is raised before FoundHits. Close the stream when nobody listens any longer.
        """
        question = await self.resolve_dates(capability, question, scope)
        engine, past = self.engine(capability, question, scope), list[Event]()
        with _record_outcome(capability) as given:
            await self._check_budgets(engine, scope)
            try:
                async with aclosing(engine.stream(question)) as events:
                    async for event in events:
                        past.append(event)
                        if isinstance(event, Answer):
                            given.append(event)
                            await self._spend(engine, question, scope, given)
                        yield event
            except (asyncio.CancelledError, GeneratorExit):
                if not given:
                    await self._spend(engine, question, scope, past)
                raise

    async def resolve_dates(self, capability: str, question: Question, scope: Scope) -> Question:
        """The question with the day on which it is asked, and the period that its words mean then."""
        asked = replace(question, today=question.today or await self.today(scope))
        return replace(asked, period=period_of(asked, find_index(self._indexes, capability_named(capability).index)))

    async def _check_budgets(self, engine: CapabilityEngine, scope: Scope) -> None:
        if self._budgets is not None and engine.synthesizer.asks_model:
            await self._budgets.check(scope)

    async def _spend(self, engine: CapabilityEngine, question: Question, scope: Scope, past: Sequence[Event]) -> None:
        """Count what a model took until its answer, or until it was left.

        It counts its tokens at the end only. Where it was left before, they are estimated: it is paid for them, and
        who leaves has perhaps seen enough.
        """
        usage: Usage | None = None
        match past:
            case [Answer() as answer]:
                usage = answer.usage
                if usage is None and answer.asked not in (None, EXTRACTIVE):
                    read = [each.text for each in answer.shown or answer.hits]
                    usage = estimate_usage("\n".join([question.text, *read]), answer.text)
            case [FoundHits(), *rest] if engine.synthesizer.asks_model:
                said = estimate_usage(question.text, "".join(each.text for each in rest if isinstance(each, Delta)))
                usage = Usage(said.input_tokens + engine.capability.max_context_tokens, said.output_tokens)
        if self._budgets is not None and usage is not None:
            try:
                await self._budgets.spend(scope, usage)
            except StoreFailed as error:  # the answer is there all the same
                log.warning("the tokens of an answer were not counted: %s", safe_text(error))

    async def judge(
        self, capability: str, question: Question, scope: Scope, without: Collection[UUID] = ()
    ) -> Judgment:
        """Whether what is found for a question by its words is good enough, as `answer` judges it; `without` these
        sources."""
        question = await self.resolve_dates(capability, question, scope)
        wanted = replace(question, fetch=max(question.fetch or 0, 4 * question.top_k)) if without else question
        engine = self.engine(capability, wanted, scope, without, by_fields=False)
        return (await engine.gather(wanted)).judgment

    def engine(
        self,
        capability: str,
        question: Question,
        scope: Scope,
        without: Collection[UUID] = (),
        *,
        by_fields: bool = True,
    ) -> CapabilityEngine:
        """The LlamaIndex query engine of a capability, for one scope: what a notebook may call directly.

        `by_fields`: questions about records are answered from their fields, where the retriever is ours.
        """
        chosen = capability_named(capability)
        spec = find_index(self._indexes, chosen.index)
        parts = self._parts(chosen)

        def prepare(asked: Question) -> tuple[BaseRetriever, list[BaseNodePostprocessor]]:
            kept = postprocessors_for(
                asked,
                scope,
                prefers_owner=chosen.prefers_owner,
                strategy=chosen.rerank,
                chunks_per_source=chosen.chunks_per_source if chosen.by_source else None,
                own=[GuardedPostprocessor(inner=each, seconds=parts.seconds) for each in parts.postprocessors],
            )
            left_out = [step(leave_out, sources=frozenset(without))] if without else []
            fetched = replace(asked, fetch=max(asked.fetch or 0, parts.candidates)) if parts.postprocessors else asked
            return parts.retriever_for(self.retriever(chosen.index, fetched, scope), scope), [*left_out, *kept]

        retriever, postprocessors = prepare(question)
        return CapabilityEngine(
            capability=chosen,
            gate=self._gate(spec, scope, retriever),
            retriever=retriever,
            postprocessors=postprocessors,
            synthesizer=self._synthesizer(chosen),
            owner=self._owner(),
            prepare=prepare,
            languages=spec.languages,
            warn=partial(
                not_understood_here,
                model=self._embedder.model_name,
                understood=getattr(self._embedder, "languages", ()),
            ),
            records=self._finder(chosen, scope) if by_fields and isinstance(retriever, ChunkRetriever) else None,
            question=question,
            foreign=lambda nodes, query: with_cosines(adopt(nodes, scope), query, self._embedder),
            dated=lambda asked: self.resolve_dates(capability, asked, scope),
            tell=partial(tell_record, spec),
            units={name: words.unit for name, words in spec.vocabulary.items() if words.unit},
        )

    def _finder(self, chosen: Capability, scope: Scope) -> Callable[[Question], RecordFinder] | None:
        """None for an index that declares no kinds of records."""
        spec = find_index(self._indexes, chosen.index)
        opening = partial(self._open_store, spec, scope)
        if not spec.records:
            return None
        writer = self._query_writer(chosen)
        return partial(
            RecordFinder,
            spec=spec,
            open_store=opening,
            embedder=self._embedder,
            dimension=self._dimension,
            most=chosen.max_sources,
            writer=writer,
            lists=chosen.lists,
        )

    def _gate(self, spec: IndexSpec, scope: Scope, retriever: BaseRetriever) -> Gate:
        if spec.confidence.signal != "fitted":
            return FixedGate(spec.confidence)
        open_store = retriever.opened_store if isinstance(retriever, ChunkRetriever) else None
        return FittedGate(self._embedder, partial(self._load_fit, spec, scope), open_store)


@contextmanager
def _record_outcome(capability: str) -> Iterator[list[Answer]]:
    """One line an exchange; without an answer where it failed, or nobody listened to a stream's end."""
    started, given = time.perf_counter(), list[Answer]()
    try:
        yield given
    finally:
        elapsed_ms = 1000 * (time.perf_counter() - started)
        if given:
            answer = given[0]
            outcome = answer.refusal or ("answered" if answer.complete else "partial")
            observing.meter.count("rag_answers", capability, outcome)
            log.info(
                "answered capability=%s refused=%s confidence=%s citations=%d model=%s ms=%d",
                capability,
                answer.refused,
                answer.confidence,
                len(answer.citations),
                answer.model,
                elapsed_ms,
            )
        else:
            observing.meter.count("rag_answers", capability, "none")
            log.info("unanswered capability=%s ms=%d", capability, elapsed_ms)
