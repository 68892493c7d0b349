"""The query engine of a capability: it retrieves, postprocesses, judges, synthesizes and verifies."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle
from msgspec import Struct, field
from msgspec.structs import replace

from rag_app.answering.asked import AnswerStream, EngineResponse, QuestionBundle, answer_metadata
from rag_app.answering.capabilities import SEARCH_FAILED, Capability
from rag_app.answering.citations import (
    SENTENCE_ENDS,
    CheckedAnswer,
    cite,
    content_words,
    number_citations,
    pieces_begun,
    pieces_of,
)
from rag_app.answering.context import Context, ContextBlock, arrange, build_context, widen
from rag_app.answering.courtesies import courtesy, orders_answerer
from rag_app.answering.extractive import LIKELY, excerpt, summary
from rag_app.answering.gate import NOTHING, Gate, Judgment
from rag_app.answering.kinds import find_calculation, kind_of
from rag_app.answering.leaning import question_before, speaks_of_named
from rag_app.answering.models import Draft, Restart
from rag_app.answering.providers import EXTRACTIVE
from rag_app.answering.records.finder import FoundRecords, NotRecorded, RecordFinder
from rag_app.answering.records.rephrasing import write_out_english
from rag_app.answering.records.written_queries import add_usage
from rag_app.answering.refusals import elsewhen_text, language_of, near_miss_text, nearest_period
from rag_app.answering.synthesizers import Synthesizer
from rag_app.answering.verification.verdict import Ground, Verification
from rag_app.domain import (
    Answer,
    Citation,
    Confidence,
    Delta,
    EmbeddingFailed,
    Event,
    FoundHits,
    Hit,
    Look,
    ModelFailed,
    ModelMalformed,
    ModelSilent,
    Period,
    Question,
    RagError,
    Refusal,
    ShownSource,
    StoreFailed,
    Usage,
    day_of,
)
from rag_app.retrieval.filters import IN, NE, condition
from rag_app.retrieval.foreign import adopt
from rag_app.retrieval.hits import average_relevance, to_hits
from rag_app.retrieval.postprocessors import cut_below, keep_at_most, places_of, warnings_of
from rag_app.retrieval.retriever import ChunkRetriever, interleave, join
from rag_app.retrieval.text import exchange_numbers
from rag_app.telemetry.observing import Stage

# Characters. A check reads the whole text: one this long is checked again when a twentieth more has come.
_LONG_TEXT = 20_000

_LEAD_SENTENCES = 2  # of what is said before an answer about another period

# Of the signal `read`, from which on a sentence gives the value that what looks like a question about records asks for.
_SURE = 0.5
_WIDER_CHUNKS = 50  # that a model may be shown beside what was found
_FOREIGN_CHUNKS = 6  # of these in other languages
_NOTHING = CheckedAnswer("", ())
_CLEARLY = 0.1  # of probability: how much better a look over all types has to be than one that answers, too
T = TypeVar("T")


class Evidence(Struct, frozen=True):
    """What was found for a question, and what an answer may be made from: `context` is empty where that is nothing.

    `retrieved` and `above_threshold` count chunks, and `look` says where they come from, as Answer does. `failures` are
    those that nothing was found for; `seconds` is how long all this took; `warnings` are the postprocessors';
    `places` has an order, by node id, that one of them asks for, once all is judged (`_sort_by_place`). `records`
    is what a question about records found: then the nodes are those records; `lacking` says which field they have not.
    `elsewhen` is the period that it is from, where nothing of the one that was asked for answers; `has_period`: something
    is recorded for that. `spent` are the tokens that a model took to read the question as a query.
    """

    question: Question
    retrieved: int = 0
    above_threshold: int = 0
    nodes: Sequence[NodeWithScore] = ()
    hits: tuple[Hit, ...] = ()
    confidence: Confidence = Confidence.LOW
    judgment: Judgment = NOTHING
    context: Context = field(default_factory=Context)
    failures: tuple[RagError, ...] = ()
    seconds: float = 0.0
    look: Look = Look.FIRST
    warnings: tuple[str, ...] = ()
    places: Mapping[str, int] = MappingProxyType({})
    records: FoundRecords | None = None
    lacking: str = ""
    elsewhen: Period | None = None
    has_period: bool = False
    spent: Usage | None = None

    @property
    def final_question(self) -> Question:
        """The question as it is answered: about the period that there is something of."""
        return replace(self.question, period=self.elsewhen or self.question.period)


Prepare = Callable[[Question], tuple[BaseRetriever, Sequence[BaseNodePostprocessor]]]
"""What looks for a question: a retriever, and what is done with what it finds."""


Foreign = Callable[[Sequence[NodeWithScore], QueryBundle], Awaitable[list[NodeWithScore]]]
"""What is applied to the nodes of another retriever than ours."""


class CapabilityEngine(BaseQueryEngine):
    """Answers questions with one capability, from one retriever. Cheap to make: an engine per request is fine.

    `aquery` takes a text, a query bundle or a QuestionBundle; `answer` and `stream` do the same for a Question. `gather`
    finds the evidence. Where it is too weak (`refuses`), the answer is a refusal; else the synthesizer writes, and
    `verify` checks what it has written. Where the first look finds nothing convincing, `gather` looks again with
    what `prepare` gives for a wider question.

    If the capability has a `failure_text`, failed retrieval counts as nothing found, and if the model fails the answer is
    what was found, or what the model had written by then; without one, both errors are raised. `languages` are those that
    the index declares; `warn` returns a warning if the embedding model does not know the language of a question.

    The retriever may be another than ours: `foreign` is applied to its nodes, and by default fills in what our nodes
    have (retrieval/foreign.py). For a text alone, everything else is taken from `question`, and the period from `dated`.
    `tell` gives the sentence of a record without a text of its own, and nothing of any other. `units` are
    those of the fields, by name.
    """

    def __init__(
        self,
        capability: Capability,
        gate: Gate,
        retriever: BaseRetriever,
        postprocessors: Sequence[BaseNodePostprocessor],
        synthesizer: Synthesizer,
        owner: asyncio.AbstractEventLoop | None = None,
        prepare: Prepare | None = None,
        languages: Sequence[str] = ("en",),
        warn: Callable[[str], str] | None = None,
        question: Question | None = None,
        foreign: Foreign | None = None,
        dated: Callable[[Question], Awaitable[Question]] | None = None,
        records: Callable[[Question], RecordFinder] | None = None,
        tell: Callable[[Hit], str] | None = None,
        units: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(CallbackManager())
        self._owner = owner
        self.capability, self.synthesizer = capability, synthesizer
        self._gate, self.retriever, self._postprocessors = gate, retriever, postprocessors
        self._dated = dated
        self._prepare, self._question, self._foreign = prepare, question or Question(""), foreign or _convert_nodes
        self._languages, self._warn, self._records = languages, warn, records
        self._tell, self._units = tell, units
        self._ground: tuple[tuple[Sequence[ContextBlock], str, str], Ground] | None = None

    async def answer(self, question: Question) -> Answer:
        """Answer, or refuse in the capability's words: where hits are too weak, no model is called.

        Filters, mode, limits and order are what the retriever and the postprocessors were made with; of the question
        only its texts, its named sources, its threshold (for how many hits reach it) and its instructions are read here.
        Raises EmbeddingFailed, StoreFailed and ModelFailed as its parts do.
        """
        return answer_of(await self.aquery(QuestionBundle(question)))

    async def stream(self, question: Question) -> AsyncGenerator[Event, None]:
        """`answer` as it comes: FoundHits, Deltas that joined are the answer's text, then the Answer. Raises as `answer`.

        A Delta is one sentence or more, its citations checked and numbered for good. Of a grounded capability nothing
        is given before the first valid citation. Close it, and the model is not listened to any longer.
        """
        response: Any = await self.aquery(QuestionBundle(question, streamed=True))
        async with aclosing(response.events) as events:
            async for event in events:
                yield event

    async def _events(self, evidence: Evidence) -> AsyncGenerator[Event, None]:
        yield FoundHits(evidence.hits)
        started = time.perf_counter()
        if unwritten := self._answer_unwritten(evidence):
            yield Delta(unwritten.text, () if unwritten.refused else unwritten.citations)
            yield self._add_spent(unwritten, evidence, started)
            return
        text = news = ""
        shown, due, lead = _NOTHING, 0, _lead(evidence)
        try:
            evidence = await self._widen(evidence)
            verification = self._verification(evidence, self.synthesizer.model)
            with Stage("generation", within=False):
                async with aclosing(self.synthesizer.stream(evidence.final_question, evidence.context)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Draft):
                            answer = await self._verify(piece, evidence)
                            break
                        if isinstance(piece, Restart):
                            if shown.text:
                                raise piece.error
                            text, news, due = "", "", 0
                            verification = self._verification(evidence, self.synthesizer.model)
                            continue
                        text, news = text + piece, news + piece
                        if SENTENCE_ENDS.isdisjoint(news) or len(text) < due:
                            continue
                        begun = pieces_begun(text, len(evidence.context.blocks))
                        await asyncio.to_thread(verification.read, begun)
                        if len(text) > _LONG_TEXT:
                            due = len(text) * 21 // 20
                        certain = number_citations(verification.text)
                        if len(certain.text) > len(shown.text) and self._may_be_shown(verification):
                            yield Delta(lead + certain.text[len(shown.text) :], cite(certain, evidence.context))
                            shown, news, lead = certain, piece, ""
        except (ModelFailed, EmbeddingFailed) as error:
            answer = self._answer_after_failure(error, evidence, shown)
        if answer.text != shown.text:
            said = answer.text[len(shown.text) :]
            yield Delta(said) if answer.refused else Delta(lead + said, answer.citations)
        yield self._add_spent(answer, evidence, started)

    def _add_spent(self, answer: Answer, evidence: Evidence, started: float) -> Answer:
        """The answer with how long it took, and with all tokens: a model may have read the question as a query before."""
        if evidence.spent is not None:
            asked = self.synthesizer.model if answer.asked in (None, EXTRACTIVE) else answer.asked
            answer = replace(answer, usage=add_usage(evidence.spent, answer.usage), asked=asked)
        seconds = {"retrieval": evidence.seconds, "generation": time.perf_counter() - started}
        lead = "" if answer.refused else _lead(evidence)
        return replace(answer, text=lead + answer.text, elsewhen=evidence.elsewhen if lead else None, seconds=seconds)

    async def _verify(self, draft: Draft, evidence: Evidence) -> Answer:
        """`verify`, in a thread where a model's claims are read: a sentence takes some 50 ms."""
        if draft.model == EXTRACTIVE:
            return self.verify(draft, evidence)
        return await asyncio.to_thread(self.verify, draft, evidence)

    def _ground_of(self, evidence: Evidence) -> Ground:
        """Made once for an answer: what is verified while it comes is not read again at its end."""
        question, told = evidence.question, evidence.question.instructions.values
        names = " ".join([self.capability.description, *(told.get(name, "") for name in ("system", "role"))])
        made_for = evidence.context.blocks, f"{question.text} {question.searched or ''}", names
        if self._ground is None or self._ground[0] != made_for:
            self._ground = made_for, Ground(*made_for, self._units)
        return self._ground[1]

    def _verification(self, evidence: Evidence, model: str | None) -> Verification:
        lead = _lead(evidence)
        sentences, words = self.capability.max_sentences, self.capability.max_words
        return Verification(
            self._ground_of(evidence),
            advice_is_claim=self.capability.advice_is_claim,
            trusted=model == EXTRACTIVE,
            max_sentences=sentences and sentences - (_LEAD_SENTENCES if lead else 0),
            max_words=words and words - len(lead.split()),
            max_sources=self.capability.max_sources,
        )

    def _may_be_shown(self, verification: Verification) -> bool:
        """A grounded answer begins with a claim that has its source: an admission stays one, whatever it cites."""
        return verification.claims > 0 or not self.capability.grounded

    async def _write(self, evidence: Evidence) -> Answer:
        started = time.perf_counter()
        answer = self._answer_unwritten(evidence)
        if answer is None:
            try:
                with Stage("generation"):
                    draft = await self.synthesizer.write(evidence.final_question, evidence.context)
                answer = await self._verify(draft, evidence)
            except (ModelFailed, EmbeddingFailed) as error:
                answer = self._answer_after_failure(error, evidence, _NOTHING)
        return self._add_spent(answer, evidence, started)

    async def gather(self, question: Question, by: QueryBundle | None = None) -> Evidence:
        """The first half of `answer`: retrieve, postprocess, judge, and build the context.

        The first look searches by the embedding of the bundle `by`, or by that of its texts, if it has any.
        """
        started, capability = time.perf_counter(), self.capability
        if self._asks_nothing(question):
            return Evidence(question)
        question = self._narrow_to_named(question)
        try:
            with Stage("retrieval", {"rag.index": capability.index, "rag.capability": capability.name}) as span:
                finder = self._records(question) if self._records is not None else None
                told = await finder.find() if finder is not None else None
                in_full = self._finder_in_full(question, told)
                told = await in_full.find() if in_full is not None else told
                spent = finder.usage if finder is not None else None
                if isinstance(told, FoundRecords):
                    return replace(
                        self._take_records(question, told), seconds=time.perf_counter() - started, spent=spent
                    )
                said, question = question, _restate_question(question)
                query, (first, steps) = _bundle(question, by), self._first_look(question)
                nodes = await first.aretrieve(query)
                if not isinstance(first, ChunkRetriever):
                    nodes = await self._foreign(nodes, query)
                best = await self._judge(question, nodes, steps)
                if (uncut := self._without_default(best)) is not None and self._prepare:
                    everything = await self._judge(uncut, nodes, self._prepare(uncut)[1])
                    best = self._choose_uncut(best, everything)
                if best.confidence is not Confidence.HIGH and isinstance(first, ChunkRetriever):
                    wording, whole = question.searched or question.text, not best.judgment.answers
                    spelled = await first.respell(wording, nodes, whole=whole)
                    if spelled != wording and self._prepare:
                        asked = replace(question, searched=spelled)
                        retriever, postprocessors = self._prepare(asked)
                        others = await retriever.aretrieve(_bundle(asked))
                        seen = await self._judge(asked, others, postprocessors)
                        if _nearest(seen) > _nearest(best):
                            best, nodes, question = seen, others, asked
                best = await self._judge_with_before(best, question, said, nodes, steps)
                if best.confidence is not Confidence.HIGH and question.wide is not None and self._prepare:
                    everywhere = replace(question, filters=question.wide, preferred=(), wide=None)
                    retriever, postprocessors = self._prepare(everywhere)
                    others = await retriever.aretrieve(_bundle(everywhere))
                    if not isinstance(retriever, ChunkRetriever):
                        others = await self._foreign(others, _bundle(everywhere))
                    both = await self._judge(everywhere, interleave([others, nodes]), postprocessors)
                    likely, likely_first = both.judgment.probability or 0.0, best.judgment.probability or 0.0
                    # a model is shown both looks: what is a little better may hold what the first one lacks
                    ahead = 0.0 if self.synthesizer.asks_model else _CLEARLY
                    if not best.judgment.answers or likely > likely_first + ahead:
                        best = replace(both, look=Look.ALL_TYPES)
                best = await self._search_other_period(best, question)
                span.set_attribute("rag.hits", len(best.hits))
        except (EmbeddingFailed, StoreFailed) as error:
            if not capability.failure_text:
                raise
            return Evidence(question, failures=(error,), seconds=time.perf_counter() - started)
        found = _sort_by_place(_mark_rows(self._without_field(best, told), finder))
        return replace(found, seconds=time.perf_counter() - started, spent=spent)

    def _finder_in_full(self, question: Question, told: FoundRecords | NotRecorded | None) -> RecordFinder | None:
        """What asks the records for a follow-up as it is said in full, where they hold nothing of what it says itself."""
        if self._records is None or not question.restated or not isinstance(told, NotRecorded):
            return None
        return self._records(replace(_restate_question(question), also=(), leans=False))

    def _first_look(self, question: Question) -> tuple[BaseRetriever, Sequence[BaseNodePostprocessor]]:
        narrowed = question.sources and question.filters != self._question.filters
        if (narrowed or question.period != self._question.period) and self._prepare:
            return self._prepare(question)
        return self.retriever, self._postprocessors

    def _narrow_to_named(self, question: Question) -> Question:
        """The question of the sources alone that its request names, where it is about nothing else and no other days; a model
        is shown others, too."""
        named = question.sources and question.period is None and speaks_of_named(question.text)
        if not named or self.synthesizer.asks_model:
            return question
        only = (condition("source_id", IN, [*map(str, question.sources)]),)
        return replace(question, filters=only, wide=None, preferred=(), searched=None, also=(), earlier=(), leans=False)

    def _take_records(self, question: Question, told: FoundRecords) -> Evidence:
        """Records are what was asked for, whatever their similarity: there is nothing to judge."""
        nodes, hits = [*told.nodes], to_hits(told.nodes)
        enough = bool(hits)
        judgment = Judgment(enough, enough, Confidence.HIGH if enough else Confidence.LOW, "fixed")
        shown = told.computed or not self.synthesizer.asks_model  # as it is told, with a source for each record of it
        context = self._context(hits, max_tokens=sys.maxsize if shown else None)
        return Evidence(question, len(nodes), len(nodes), nodes, hits, judgment.level, judgment, context, records=told)

    def _without_field(self, found: Evidence, told: FoundRecords | NotRecorded | None) -> Evidence:
        """The evidence, with what the records do not hold; where no text says that either, no sentence is picked in its place."""
        if not isinstance(told, NotRecorded):
            return found
        text = found.question.text
        is_value = kind_of(text) is not None and find_calculation(text) is None
        sure = is_value and found.judgment.answers and found.judgment.signals.read >= _SURE
        if not self.synthesizer.asks_model:
            hits = _hits_that_answer(found, told) if sure or not told.limits else []
            context = found.context if len(hits) == len(found.hits) else self._context(hits)
            found = replace(found, context=context, confidence=found.confidence if hits else Confidence.LOW)
        return replace(found, lacking=told.text)

    async def _judge_with_before(
        self,
        found: Evidence,
        question: Question,
        said: Question,
        nodes: list[NodeWithScore],
        postprocessors: Sequence[BaseNodePostprocessor],
    ) -> Evidence:
        """What was found, judged by the message as it was `said` together with the one before it, where it may lean on that
        and does not answer by itself. A model reads both anyway."""
        before = question_before(said)
        if found.judgment.answers or self.synthesizer.asks_model or question.searched or not before:
            return found
        together = await self._judge(
            replace(question, text=said.text, searched=f"{before}\n{said.text}", also=()), nodes, postprocessors
        )
        return together if together.judgment.answers else found

    def _without_default(self, found: Evidence) -> Question | None:
        """The question without the surface's own threshold, where that may hide something; a model is shown more anyway.

        A fixed cosine means something else for each embedding model; the fit knows ours. What a request sends stays.
        """
        question = found.question
        if question.threshold is None or question.threshold_sent:
            return None
        if found.judgment.answers and not self.synthesizer.asks_model:
            return None
        return replace(question, threshold=None)

    def _choose_uncut(self, found: Evidence, everything: Evidence) -> Evidence:
        """What was found without that threshold, where it is likely enough: a model can say that the answer is not there."""
        judgment = everything.judgment
        if self.synthesizer.asks_model:
            enough = (judgment.asks and bool(judgment.answers or found.hits)) or self._is_foreign(found.question)
        else:
            enough = judgment.answers
        if not enough:
            return found
        return replace(everything, question=found.question, above_threshold=found.above_threshold)

    async def _search_other_period(self, found: Evidence, question: Question) -> Evidence:
        """Where nothing that is found for the question's period answers: what is recorded nearest to it, if that does. Else
        what is recorded around the likeliest source, if that does."""
        if question.period is None or self._prepare is None or found.confidence is not Confidence.LOW:
            return found
        anytime = replace(question, period=None)
        retriever, postprocessors = self._prepare(anytime)
        if not isinstance(retriever, ChunkRetriever):
            return found
        nodes = await retriever.aretrieve(_bundle(anytime))
        anything = await self._judge(anytime, nodes, postprocessors)
        days = [day_of(hit.date) for hit in anything.hits if hit.date is not None]
        if anything.confidence is Confidence.LOW:
            return found
        periods = {nearest_period(question.period, days): found.retrieved > 0}
        periods.setdefault(nearest_period(question.period, _days_of_likeliest(anything)), True)
        for period, is_recorded in periods.items():
            if period is None:
                continue
            of_period = [node for node in anything.nodes if period.holds(day_of(node.node.metadata.get("date") or 0.0))]
            best = await self._judge(anytime, of_period, ())
            if best.confidence is not Confidence.LOW:
                return replace(best, question=question, elsewhen=period, has_period=is_recorded, places=anything.places)
        return found

    async def _judge(
        self, question: Question, nodes: list[NodeWithScore], postprocessors: Sequence[BaseNodePostprocessor]
    ) -> Evidence:
        """What one look has found: postprocessed, judged, and as a context where it is good enough."""
        retrieved = len(nodes)
        above_threshold = retrieved if question.threshold is None else len(cut_below(nodes, question.threshold))
        with Stage("postprocessing"):
            query = _bundle(question)
            for postprocessor in postprocessors:
                nodes = adopt(await postprocessor.apostprocess_nodes(nodes, query_bundle=query))
        with Stage("judging") as judging:
            hits = to_hits(nodes)
            context = self._context(hits)
            judgment = await self._gate.judge(question, hits, context)
            confidence = self._confidence(question, hits, judgment)
            named = [node for node in nodes if UUID(node.node.metadata["source_id"]) in question.sources]
            if confidence is not Confidence.LOW:
                context = replace(context, ranking=judgment.ranking)
            elif named:  # they are what it is about, whatever their similarity
                nodes, hits, confidence = named, to_hits(named), Confidence.MEDIUM
                context = self._context(hits)
            else:
                context = Context()
            judging.set_attribute("rag.confidence", confidence.value)
            if judgment.probability is not None:
                judging.set_attribute("rag.probability", judgment.probability)
        found = Evidence(question, retrieved, above_threshold, nodes, hits, confidence, judgment, context)
        return replace(found, warnings=warnings_of(postprocessors), places=places_of(postprocessors))

    async def _widen(self, evidence: Evidence) -> Evidence:
        """What a model is shown beside what was found, as far as the context's budget reaches.

        Further hits of its sources; then in turn what wider searches find, and the neighbours of the hits and what else is near
        in their sources. Sentences are picked from what was found alone.
        """
        if not self.synthesizer.asks_model or not evidence.context.blocks:
            return evidence
        question, retriever, more = evidence.question, self.retriever, [*evidence.hits]
        if evidence.look is Look.ALL_TYPES and self._prepare:
            retriever, _ = self._prepare(question)
        if isinstance(retriever, ChunkRetriever):
            with suppress(EmbeddingFailed, StoreFailed):  # what was found is there all the same
                near = await retriever.further(question.searched or question.text, evidence.nodes)
                found: list[list[NodeWithScore]] = []
                for each in _wider_questions(evidence.final_question, self.capability.top_k):
                    found.append(await retriever.copy_for(each).aretrieve(_bundle(each)))
                more += to_hits(interleave([_keep_beside(evidence, found), near]))
        most = self.capability.max_context_tokens
        return replace(evidence, context=widen(evidence.context, more, max_tokens=most, today=question.today))

    def _context(self, hits: Sequence[Hit], max_tokens: int | None = None) -> Context:
        """In as many tokens as the capability allows, or in `max_tokens`."""
        context = build_context(
            hits,
            max_tokens=max_tokens or self.capability.max_context_tokens,
            max_sources=self.capability.max_sources,
            chunks_per_source=self.capability.chunks_per_source,
            today=self._question.today,
        )
        if self._tell is None:
            return context
        told = (self._tell(each.hits[0]) if len(each.hits) == 1 else "" for each in context.blocks)
        blocks = zip(context.blocks, told, strict=True)
        return replace(context, blocks=tuple(replace(block, told=said) if said else block for block, said in blocks))

    def _confidence(self, question: Question, hits: Sequence[Hit], judgment: Judgment) -> Confidence:
        """LOW is "do not answer".

        A model is asked sooner than sentences are picked: it can say that the answer is not there. What reaches a
        threshold that the request sends goes to it, and all that was found where the capability always asks, or the
        embedding model does not know the question's language.
        """
        capability = self.capability
        if not self.synthesizer.asks_model:
            enough = judgment.answers
        else:
            shown = question.threshold is not None or (capability.always_asks and capability.grounded)
            enough = judgment.asks or (bool(hits) and (shown or self._is_foreign(question)))
        if not enough:
            return Confidence.LOW
        return Confidence.MEDIUM if judgment.level is Confidence.LOW else judgment.level

    def _is_foreign(self, question: Question) -> bool:
        """Whether the embedding model does not know the question's language: then its cosines say little."""
        return self._warn is not None and bool(self._warn(question.text))

    def refuses(self, evidence: Evidence) -> bool:
        """Whether there is too little to answer from; a capability that is not grounded may do without."""
        return self.capability.grounded and not evidence.context.blocks

    def _answer_unwritten(self, evidence: Evidence) -> Answer | None:
        """A refusal; or what was computed from records, and lists of them where there is no model. None where one writes."""
        if self.refuses(evidence):
            return self._too_little(evidence)
        told = evidence.records
        if told is None or not told.text or not (told.computed or not self.synthesizer.asks_model):
            return None
        return self._tell_records(told.text, evidence)

    def _tell_records(self, text: str, evidence: Evidence, usage: Usage | None = None) -> Answer:
        """What the records say, in the index's sentences."""
        told = number_citations(self._read_draft(Draft(text, EXTRACTIVE), evidence).text)
        return replace(self._build_answer(told, evidence, EXTRACTIVE, usage), asked=EXTRACTIVE)

    def _too_little(self, evidence: Evidence, usage: Usage | None = None) -> Answer:
        if self._is_courtesy(evidence.question):
            return self.refusal(evidence, Refusal.COURTESY, courtesy(evidence.question.text))
        return self.refusal(
            evidence,
            Refusal.WEAK if evidence.hits else Refusal.NOTHING_FOUND,
            SEARCH_FAILED if evidence.failures else "",
            usage,
        )

    def _answer_after_failure(
        self, error: ModelFailed | EmbeddingFailed, evidence: Evidence, shown: CheckedAnswer
    ) -> Answer:
        """What is left where the model has failed: what it had said, else what was found. Raises the error otherwise."""
        failures = (*evidence.failures, error)
        if isinstance(error, ModelSilent) and self.capability.admission:
            return replace(self.refusal(evidence, Refusal.ADMITTED, self.capability.admission), failures=failures)
        found = evidence.context.blocks and (self.capability.grounded or evidence.judgment.answers)
        if not self.capability.failure_text or not (shown.text or found):
            raise error
        if shown.text:
            return replace(
                self._build_answer(shown, evidence, self.synthesizer.model), complete=False, failures=failures
            )
        text = self.capability.failure_text.format(summary=summary(evidence.hits))
        return replace(self.refusal(evidence, Refusal.FAILED, text), failures=failures)

    def refusal(self, evidence: Evidence, why: Refusal, text: str = "", usage: Usage | None = None) -> Answer:
        """No answer, but the best hits, one a source. `text` instead of the capability's refusal."""
        best: dict[UUID, Hit] = {}
        for hit in sorted(evidence.hits, key=lambda hit: -hit.score):
            best.setdefault(hit.source_id, hit)
        asked, shown = evidence.question.searched or evidence.question.text, [*best.values()]
        return _answer(
            evidence,
            text=text or self._refusal_text(evidence),
            citations=tuple(
                Citation(number, hit, excerpt(asked, hit))
                for number, hit in enumerate(shown[: self.capability.max_sources], 1)
            ),
            confidence=Confidence.LOW,
            model=None,
            usage=usage,
            refusal=why,
        )

    def _is_courtesy(self, question: Question) -> bool:
        """A model that need not cite answers a greeting itself."""
        answers = self.synthesizer.asks_model and not self.capability.grounded
        return not answers and bool(courtesy(question.text))

    def _asks_nothing(self, question: Question) -> bool:
        """Whether nothing is searched for: a greeting, and without a model what only gives orders to whoever answers."""
        orders = not self.synthesizer.asks_model and orders_answerer(question.text)
        return orders or bool(courtesy(question.text))

    def _refusal_text(self, evidence: Evidence) -> str:
        """That nothing was found, or that what was found does not answer."""
        if not evidence.hits:
            lacking = evidence.lacking if self.capability.is_plain else ""
            return f"{self.capability.refusal} {lacking}." if lacking else self.capability.refusal
        warning = self._warn(evidence.question.text) if self._warn else ""
        recorded, question = self._records is not None, evidence.question
        return near_miss_text(
            self.capability, question, self._languages, warning, evidence.lacking, has_records=recorded
        )

    def verify(self, draft: Draft, evidence: Evidence) -> Answer:
        """The draft with every sentence checked, cut at the capability's limits; or a refusal where no claim is left."""
        with Stage("verification") as span:
            answer = self._verify_draft(draft, evidence)
            span.set_attribute("rag.citations", 0 if answer.refused else len(answer.citations))
        failures = [*answer.failures, *draft.failures]
        if draft.extracted:
            failures.append(ModelMalformed(f"{draft.model}: a malformed reply, whose text was used"))
        return replace(answer, asked=draft.model, prompt=draft.prompt, failures=tuple(failures))

    def _verify_draft(self, draft: Draft, evidence: Evidence) -> Answer:
        if not draft.text.strip():
            return self._too_little(evidence, draft.usage)
        verification = self._read_draft(draft, evidence)
        if verification.text and self._may_be_shown(verification):
            answer = self._build_answer(number_citations(verification.text), evidence, draft.model, draft.usage)
        elif verification.admissions:
            admitted = "".join(pieces_of(verification.text, 0))
            answer = self.refusal(evidence, Refusal.ADMITTED, admitted, draft.usage)
        elif evidence.records is not None and evidence.records.text:
            answer = self._tell_records(evidence.records.text, evidence, draft.usage)
        else:
            answer = self.refusal(evidence, Refusal.UNCITED, self.capability.uncited, draft.usage)
        return replace(answer, removed=verification.removed)

    def _read_draft(self, draft: Draft, evidence: Evidence) -> Verification:
        verification = self._verification(evidence, draft.model)
        verification.read(pieces_of(draft.text, len(evidence.context.blocks), cut_off=draft.cut_off))
        verification.end()
        return verification

    def _build_answer(
        self, checked: CheckedAnswer, evidence: Evidence, model: str | None, usage: Usage | None = None
    ) -> Answer:
        cited = {block: number for number, block in enumerate(checked.blocks, 1)}
        # a greeting, say: what came near was shown to the model, and is no source of what it said
        unused = not (self.capability.grounded or cited or evidence.judgment.answers)
        return _answer(
            evidence,
            text=checked.text,
            citations=cite(checked, evidence.context),
            confidence=Confidence.LOW if unused else evidence.confidence,
            model=model,
            usage=usage,
            shown=tuple(
                ShownSource(first.source_id, first.source_type, first.title, block.text, cited.get(block.number))
                for block in evidence.context.blocks
                for first in block.hits[:1]
            ),
        )

    async def aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """What an answer would be judged by: retrieved and postprocessed, best first."""
        asked = await self._question_of(query_bundle)
        evidence = await self.gather(asked.question, asked)
        if evidence.failures:
            raise evidence.failures[0]
        return [*evidence.nodes]

    async def asynthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> EngineResponse:
        """An answer from these nodes, best first, whose every claim cites one; they are judged as those that it retrieves.

        `additional_source_nodes` are in the response and nowhere else.
        """
        question = (await self._question_of(query_bundle)).question
        evidence = await self._judge(question, await self._foreign(nodes, _bundle(question)), [])
        return _response(await self._write(evidence), [*evidence.nodes, *(additional_source_nodes or ())])

    async def _aquery(self, query_bundle: QueryBundle) -> EngineResponse | AnswerStream:
        asked = await self._question_of(query_bundle)
        evidence = await self.gather(asked.question, asked)
        if self.synthesizer.asks_model:
            evidence = replace(evidence, question=_in_own_words(evidence.question, asked.question))
        if asked.streamed:
            return AnswerStream(self._events(evidence), evidence.nodes)
        answer = await self._write(await self._widen(evidence))
        return _response(answer, evidence.nodes)

    async def _question_of(self, query_bundle: QueryBundle) -> QuestionBundle:
        if isinstance(query_bundle, QuestionBundle):
            return query_bundle
        question = replace(self._question, text=query_bundle.query_str, searched=None)
        if self._dated is not None:
            question = await self._dated(question)
        return QuestionBundle(question, query_bundle.embedding, query_bundle.custom_embedding_strs)

    def _query(self, query_bundle: QueryBundle) -> EngineResponse | AnswerStream:
        return self._run(self._aquery(query_bundle), "aquery")

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._run(self.aretrieve(query_bundle), "aretrieve")

    def synthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> EngineResponse:
        return self._run(self.asynthesize(query_bundle, nodes, additional_source_nodes), "asynthesize")

    def _run(self, work: Coroutine[Any, Any, T], call: str) -> T:
        """Runs on the event loop that opened the application: connections and models belong to that one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            owner = self._owner
        else:
            work.close()
            raise RuntimeError(f"an event loop is running here: use `await engine.{call}(...)`")
        if owner is None or owner.is_closed():
            work.close()
            raise RuntimeError("no event loop keeps the application open: call it while `rag_app.open()` is open")
        if owner.is_running():
            return asyncio.run_coroutine_threadsafe(work, owner).result()
        return owner.run_until_complete(work)

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"synthesizer": self.synthesizer}


async def _convert_nodes(nodes: Sequence[NodeWithScore], query: QueryBundle) -> list[NodeWithScore]:
    return adopt(nodes)


def _bundle(question: Question, by: QueryBundle | None = None) -> QueryBundle:
    text = question.searched or question.text
    if by is None:
        return QueryBundle(text)
    return QueryBundle(text, custom_embedding_strs=by.custom_embedding_strs, embedding=by.embedding)


def _restate_question(question: Question) -> Question:
    """As it is said in full, if it only names another thing than the question before, and as it is spelt."""
    asked = replace(question, text=question.restated, searched=None) if question.restated else question
    if language_of(asked.text) != "en":
        return asked
    searched = asked.searched and write_out_english(asked.searched)
    return replace(
        asked, text=write_out_english(asked.text), searched=searched, also=tuple(map(write_out_english, asked.also))
    )


def _in_own_words(question: Question, asked: Question) -> Question:
    """The question as it was asked; what was searched stays."""
    searched, said = question.searched or question.text, [asked.searched] if asked.searched else []
    also = tuple(each for each in (*said, *asked.also) if each != searched)
    return replace(question, text=asked.text, searched=searched if searched != asked.text else None, also=also)


def _wider_questions(question: Question, least: int) -> list[Question]:
    """What is searched beside, for a model: the question in all types that may be looked in; sources in other languages than
    its own, which share few words with it; and where it is about a period, any days. Nothing where it wants fewer hits
    than `least`.
    """
    if question.top_k < least:
        return []
    said, filters = question.searched or question.text, question.filters if question.wide is None else question.wide
    others = {exchange_numbers(said)} - {said}
    asked = replace(question, filters=filters, preferred=(), top_k=_WIDER_CHUNKS, also=(*question.also, *others))
    abroad = (*filters, condition("lang", NE, language_of(question.text)))
    anytime = [replace(asked, period=None)] if question.period is not None else []
    return [asked, replace(asked, filters=abroad, top_k=_FOREIGN_CHUNKS), *anytime]


def _keep_beside(evidence: Evidence, found: Sequence[list[NodeWithScore]]) -> list[NodeWithScore]:
    """What was found for `_wider_questions` and is no evidence yet, as far as the request's threshold and limits let it in."""
    question, nodes = evidence.question, join([interleave(found[:2]), *found[2:]])
    if question.threshold is not None and question.threshold_sent:
        nodes = cut_below(nodes, question.threshold)
    known = {each.node.node_id for each in evidence.nodes}
    kept = keep_at_most([*evidence.nodes, *nodes], dict(question.at_most))
    return [each for each in kept if each.node.node_id not in known]


def answer_of(response: object) -> Answer:
    """The answer in what an engine's `aquery` gave. Raises TypeError for the response of another engine."""
    if not isinstance(response, EngineResponse) or response.answer is None:
        raise TypeError(f"not the response of a CapabilityEngine: {type(response).__name__}")
    return response.answer


def _response(answer: Answer, nodes: Sequence[NodeWithScore]) -> EngineResponse:
    return EngineResponse(answer.text, [*nodes], answer_metadata(answer), answer)


def _answer(evidence: Evidence, **more: Any) -> Answer:
    return Answer(
        generated_at=datetime.now(UTC),
        hits=evidence.hits,
        average_relevance=average_relevance(evidence.hits),
        retrieved=evidence.retrieved,
        above_threshold=evidence.above_threshold,
        failures=evidence.failures,
        look=evidence.look,
        searched=evidence.question.searched or evidence.question.text,
        understood=evidence.records.understood if evidence.records else "",
        probability=evidence.judgment.probability,
        calibration=evidence.judgment.basis,
        warnings=_warnings(evidence),
        **more,
    )


def _warnings(evidence: Evidence) -> tuple[str, ...]:
    if evidence.judgment.basis != "uncalibrated":
        return evidence.warnings
    return *evidence.warnings, "The confidence is uncalibrated: nothing was fitted to this index and embedding model"


def _days_of_likeliest(evidence: Evidence) -> list[date]:
    """The days of the source that is likeliest to answer."""
    ranking = evidence.context.ranking
    if ranking is None or not ranking.ranked:
        return []
    hits = evidence.context.blocks[ranking.likeliest.block].hits
    return [day_of(hit.date) for hit in hits if hit.date is not None]


def _nearest(evidence: Evidence) -> float:
    return max((hit.score for hit in evidence.hits), default=-1.0)


def _mark_rows(found: Evidence, finder: RecordFinder | None) -> Evidence:
    """The evidence, with whether all of it are rows of tables."""
    rows = finder is not None and finder.knows_rows_alone
    return replace(found, context=replace(found.context, rows=rows))


def _sort_by_place(found: Evidence) -> Evidence:
    """The evidence in the order that a postprocessor asks for: the same nodes, judged as they are."""
    if not found.places:
        return found
    nodes = sorted(found.nodes, key=lambda each: found.places.get(each.node.node_id, len(found.places)))
    hits = to_hits(nodes)
    context = arrange(found.context, [hit.source_id for hit in hits])
    judgment = replace(found.judgment, ranking=context.ranking) if context.ranking else found.judgment
    return replace(found, nodes=nodes, hits=hits, context=context, judgment=judgment)


def _hits_that_answer(evidence: Evidence, told: NotRecorded) -> Sequence[Hit]:
    """The hits that may answer a question about records that makes no query.

    Those with a passage that rather answers, if the likeliest of these is no record and probably answers. If the likeliest
    passage is of a text that may answer in other words: all texts. Else the hits with half of the words that are not
    understood; if all are understood: all hits, provided that the likeliest passage has half of the question's words.
    """
    ranking, blocks, hits = evidence.judgment.ranking, evidence.context.blocks, evidence.hits
    if not blocks or (ranking is not None and not ranking.ranked):
        return []
    words = " ".join(told.unknown)
    first = blocks[ranking.likeliest.block] if ranking is not None else blocks[0]
    if ranking is not None and ranking.read.max() >= LIKELY and not (first.told or any(hit.row for hit in first.hits)):
        likely = {each.block for each, odds in zip(ranking.ranked, ranking.read.max(axis=0), strict=True) if odds >= 0}
        return [hit for number in sorted(likely) for hit in blocks[number].hits]
    if told.figures and not any(map(told.is_record, first.hits)):
        return [hit for hit in hits if not told.is_record(hit) or (words and _says(hit.text, words))]
    if ranking is None or not words:
        said = ranking.likeliest.text_with_lead if ranking is not None else hits[0].text
        return hits if _says(said, words or evidence.question.text) else []
    read = zip(ranking.ranked, ranking.read.max(axis=0), strict=True)
    saying = {
        each.block
        for each, odds in read
        if odds >= 0 and _says(f"{blocks[each.block].title} {each.text_with_lead}", words)
    }
    return [hit for number, block in enumerate(blocks) if number in saying for hit in block.hits]


def _says(text: str, words: str) -> bool:
    """Whether a text has at least half of these words, but for those without meaning."""
    asked = content_words(words)
    return len(asked & content_words(text)) * 2 >= len(asked)


def _lead(evidence: Evidence) -> str:
    """What is said before an answer that is about another period than the question."""
    asked, found = evidence.question.period, evidence.elsewhen
    return f"{elsewhen_text(asked, found, recorded=evidence.has_period)} " if asked and found else ""
