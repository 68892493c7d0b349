"""The query engine of a capability: retrieve, postprocess, judge, synthesize, verify."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.answering.capabilities import SEARCH_FAILED, Capability
from rag_app.answering.citations import (
    Checked,
    check,
    cite,
    may_end_sentence,
    numbered,
    pieces_begun,
    pieces_of,
)
from rag_app.answering.context import Context, build_context, widen
from rag_app.answering.extractive import excerpt, summary
from rag_app.answering.gate import NOTHING, Gate, Judgment
from rag_app.answering.models import Draft, Restart
from rag_app.answering.providers import EXTRACTIVE
from rag_app.answering.refusals import near_text
from rag_app.answering.synthesizers import Synthesizer
from rag_app.answering.verification.verdict import Ground, Verification
from rag_app.domain import (
    Answer,
    Citation,
    Confidence,
    Delta,
    EmbeddingFailed,
    Event,
    Found,
    Hit,
    Look,
    ModelFailed,
    ModelMalformed,
    ModelSilent,
    Question,
    RagError,
    Refusal,
    Shown,
    StoreFailed,
    Usage,
    frozen,
)
from rag_app.retrieval.hits import average_relevance, to_hits
from rag_app.retrieval.postprocessors import cut_below
from rag_app.retrieval.retriever import ChunkRetriever, interleave
from rag_app.telemetry.observing import Stage

_LONG_TEXT = 20_000
"""Characters. A check reads the whole text: one this long is checked again when a twentieth more has come."""

_NOTHING = Checked("", ())


@frozen
class Evidence:
    """What was found for a question, and what an answer may be made from: `context` is empty where that is nothing.

    `retrieved` and `above_threshold` count chunks, and `look` says where they come from, as Answer does. `failures` are
    those that nothing was found for; `seconds` is how long all this took.
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


Prepare = Callable[[Question], tuple[BaseRetriever, Sequence[BaseNodePostprocessor]]]
"""What looks for a question: a retriever, and what is done with what it finds."""


class CapabilityEngine(BaseQueryEngine):
    """Answers questions with one capability, from one retriever. Cheap to make: an engine per request is fine.

    `answer` is the whole way, `stream` the same in pieces. Their steps: `gather`, then a refusal where `refuses`, else
    what the synthesizer writes, and `verify`. Where the first look finds nothing convincing, `gather` looks again with
    what `prepare` gives for a wider question. Of a capability with a `failure_text`, retrieval that fails finds nothing,
    and a model that fails leaves what was found, or what it had said by then; of others, both is raised. `languages` are
    those that the index declares; `warn` says of a question that the embedding model does not know its language.
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
    ) -> None:
        super().__init__(CallbackManager())
        self._owner = owner
        self.capability, self.synthesizer = capability, synthesizer
        self._gate, self._retriever, self._postprocessors = gate, retriever, postprocessors
        self._prepare = prepare
        self._languages, self._warn = languages, warn
        self._limits = {"max_sentences": capability.max_sentences, "max_words": capability.max_words}

    async def answer(self, question: Question) -> Answer:
        """Answer, or refuse in the capability's words: where hits are too weak, no model is called.

        Filters, mode, limits and order are what the retriever and the postprocessors were made with; of the question
        only its texts, its named sources, its threshold (for how many hits reach it) and its instructions are read here.
        Raises EmbeddingFailed, StoreFailed and ModelFailed as its parts do.
        """
        return await self._write(await self._widened(await self.gather(question)))

    async def stream(self, question: Question) -> AsyncGenerator[Event, None]:
        """`answer` as it comes: Found, Deltas that joined are the answer's text, then the Answer. Raises as `answer`.

        A Delta is one sentence or more, its citations checked and numbered for good. Of a grounded capability nothing
        is given before the first valid citation. Close it, and the model is not listened to any longer.
        """
        evidence = await self.gather(question)
        yield Found(evidence.hits)
        started = time.perf_counter()
        if self.refuses(evidence):
            answer = _timed(self._too_little(evidence), evidence, started)
            yield Delta(answer.text)
            yield answer
            return
        text = news = ""
        shown, due = _NOTHING, 0
        try:
            evidence = await self._widened(evidence)
            verification = self._verification(self._ground(evidence), self.synthesizer.model)
            with Stage("generation", within=False):
                async with aclosing(self.synthesizer.stream(question, evidence.context)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Draft):
                            answer = self.verify(piece, evidence)
                            break
                        if isinstance(piece, Restart):
                            if shown.text:
                                raise piece.error
                            text, news, due = "", "", 0
                            verification = self._verification(self._ground(evidence), self.synthesizer.model)
                            continue
                        text, news = text + piece, news + piece
                        if not may_end_sentence(news) or len(text) < due:
                            continue
                        verification.read(pieces_begun(text, len(evidence.context.blocks)))
                        if len(text) > _LONG_TEXT:
                            due = len(text) * 21 // 20
                        certain = numbered(verification.text)
                        if len(certain.text) > len(shown.text) and self._may_be_shown(verification):
                            yield Delta(certain.text[len(shown.text) :], cite(certain, evidence.context))
                            shown, news = certain, piece
        except (ModelFailed, EmbeddingFailed) as error:
            answer = self._after(error, evidence, shown)
        if answer.text != shown.text:
            yield Delta(answer.text[len(shown.text) :], () if answer.refused else answer.citations)
        yield _timed(answer, evidence, started)

    def _ground(self, evidence: Evidence) -> Ground:
        """What the sentences of an answer are compared with."""
        question, told = evidence.question, evidence.question.instructions.values
        names = " ".join([self.capability.description, *(told.get(name, "") for name in ("system", "role"))])
        return Ground(evidence.context.blocks, f"{question.text} {question.searched or ''}", names)

    def _verification(self, ground: Ground, model: str | None) -> Verification:
        return Verification(
            ground,
            advice_is_claim=self.capability.advice_is_claim,
            trusted=model == EXTRACTIVE,
            **self._limits,
        )

    def _may_be_shown(self, verification: Verification) -> bool:
        """A grounded answer begins with a claim that has its source: an admission stays one, whatever it cites."""
        return verification.claims > 0 or not self.capability.grounded

    async def _write(self, evidence: Evidence) -> Answer:
        started = time.perf_counter()
        if self.refuses(evidence):
            answer = self._too_little(evidence)
        else:
            try:
                with Stage("generation"):
                    draft = await self.synthesizer.write(evidence.question, evidence.context)
                answer = self.verify(draft, evidence)
            except (ModelFailed, EmbeddingFailed) as error:
                answer = self._after(error, evidence, _NOTHING)
        return _timed(answer, evidence, started)

    async def gather(self, question: Question) -> Evidence:
        """The first half of `answer`: retrieve, postprocess, judge, and build the context."""
        started, capability = time.perf_counter(), self.capability
        try:
            with Stage("retrieval", {"rag.index": capability.index, "rag.capability": capability.name}) as span:
                nodes = await self._retriever.aretrieve(QueryBundle(question.searched or question.text))
                best = await self._judge(question, nodes, self._postprocessors)
                if best.confidence is not Confidence.HIGH and isinstance(self._retriever, ChunkRetriever):
                    spelled = await self._retriever.respell(question.searched or question.text, nodes)
                    if spelled != (question.searched or question.text) and self._prepare:
                        asked = replace(question, searched=spelled)
                        retriever, postprocessors = self._prepare(asked)
                        others = await retriever.aretrieve(QueryBundle(spelled))
                        seen = await self._judge(asked, others, postprocessors)
                        if _nearest(seen) > _nearest(best):
                            best, nodes, question = seen, others, asked
                if best.confidence is not Confidence.HIGH and question.wide is not None and self._prepare:
                    everywhere = replace(question, filters=question.wide, preferred=(), wide=None)
                    retriever, postprocessors = self._prepare(everywhere)
                    others = await retriever.aretrieve(QueryBundle(question.searched or question.text))
                    both = await self._judge(everywhere, interleave([others, nodes]), postprocessors)
                    best = replace(both, look=Look.ALL_TYPES)
                span.set_attribute("rag.hits", len(best.hits))
        except (EmbeddingFailed, StoreFailed) as error:
            if not capability.failure_text:
                raise
            return Evidence(question, failures=(error,), seconds=time.perf_counter() - started)
        return replace(best, seconds=time.perf_counter() - started)

    async def _judge(
        self, question: Question, nodes: list[NodeWithScore], postprocessors: Sequence[BaseNodePostprocessor]
    ) -> Evidence:
        """What one look has found: postprocessed, judged, and as a context where it is good enough."""
        retrieved = len(nodes)
        above_threshold = retrieved if question.threshold is None else len(cut_below(nodes, question.threshold))
        with Stage("postprocessing"):
            query = QueryBundle(question.searched or question.text)
            for postprocessor in postprocessors:
                nodes = await postprocessor.apostprocess_nodes(nodes, query_bundle=query)
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
        return Evidence(question, retrieved, above_threshold, nodes, hits, confidence, judgment, context)

    async def _widened(self, evidence: Evidence) -> Evidence:
        """What a model is shown beside what was found, as far as the context's budget reaches.

        Further hits of its sources, then the neighbours of the hits, then what else is near in their sources. Sentences are picked from what was found alone.
        """
        if self.synthesizer.model in (None, EXTRACTIVE) or not evidence.context.blocks:
            return evidence
        question, more, retriever = evidence.question, evidence.hits, self._retriever
        if evidence.look is Look.ALL_TYPES and self._prepare:
            retriever, _ = self._prepare(question)
        if isinstance(retriever, ChunkRetriever):
            with suppress(EmbeddingFailed, StoreFailed):  # what was found is there all the same
                more += to_hits(await retriever.further(question.searched or question.text, evidence.nodes))
        return replace(evidence, context=widen(evidence.context, more, max_tokens=self.capability.max_context_tokens))

    def _context(self, hits: Sequence[Hit]) -> Context:
        return build_context(
            hits,
            max_tokens=self.capability.max_context_tokens,
            max_sources=self.capability.max_sources,
            chunks_per_source=self.capability.chunks_per_source,
        )

    def _confidence(self, question: Question, hits: Sequence[Hit], judgment: Judgment) -> Confidence:
        """LOW is "do not answer".

        A model is asked sooner than sentences are picked: it can say that the answer is not there. What reaches a
        threshold that the request sends goes to it, and all that was found where the capability always asks.
        """
        capability = self.capability
        if self.synthesizer.model in (None, EXTRACTIVE):
            enough = judgment.answers
        else:
            shown = question.threshold is not None or (capability.always_asks and capability.grounded)
            enough = judgment.asks or (shown and bool(hits))
        if not enough:
            return Confidence.LOW
        return Confidence.MEDIUM if judgment.level is Confidence.LOW else judgment.level

    def refuses(self, evidence: Evidence) -> bool:
        """Whether there is too little to answer from; a capability that is not grounded may do without."""
        return self.capability.grounded and not evidence.context.blocks

    def _too_little(self, evidence: Evidence, usage: Usage | None = None) -> Answer:
        return self.refusal(
            evidence,
            Refusal.WEAK if evidence.hits else Refusal.NOTHING_FOUND,
            SEARCH_FAILED if evidence.failures else "",
            usage,
        )

    def _after(self, error: ModelFailed | EmbeddingFailed, evidence: Evidence, shown: Checked) -> Answer:
        """What is left where the model has failed: what it had said, else what was found. Raises the error otherwise."""
        failures = (*evidence.failures, error)
        if isinstance(error, ModelSilent) and self.capability.admission:
            return replace(self.refusal(evidence, Refusal.ADMITTED, self.capability.admission), failures=failures)
        found = evidence.context.blocks and (self.capability.grounded or evidence.judgment.answers)
        if not self.capability.failure_text or not (shown.text or found):
            raise error
        if shown.text:
            return replace(self._answered(shown, evidence, self.synthesizer.model), complete=False, failures=failures)
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

    def _refusal_text(self, evidence: Evidence) -> str:
        """That nothing was found, or that what was found does not answer."""
        if not evidence.hits:
            return self.capability.refusal
        warning = self._warn(evidence.question.text) if self._warn else ""
        return near_text(self.capability, evidence.question, self._languages, warning)

    def verify(self, draft: Draft, evidence: Evidence) -> Answer:
        """The draft with every sentence checked, cut at the capability's limits; or a refusal where no claim is left."""
        with Stage("verification") as span:
            answer = self._verified(draft, evidence)
            span.set_attribute("rag.citations", 0 if answer.refused else len(answer.citations))
        failures = [*answer.failures, *draft.failures]
        if draft.extracted:
            failures.append(ModelMalformed(f"{draft.model}: a malformed reply, whose text was used"))
        return replace(answer, asked=draft.model, failures=tuple(failures))

    def _verified(self, draft: Draft, evidence: Evidence) -> Answer:
        if not draft.text.strip():
            return self._too_little(evidence, draft.usage)
        verification = self._verification(self._ground(evidence), draft.model)
        verification.read(pieces_of(draft.text, len(evidence.context.blocks), cut_off=draft.cut_off))
        verification.end()
        if verification.text and self._may_be_shown(verification):
            answer = self._answered(numbered(verification.text), evidence, draft.model, draft.usage)
        elif verification.admissions:
            admitted = check(verification.text, 0).text
            answer = self.refusal(evidence, Refusal.ADMITTED, admitted, draft.usage)
        else:
            answer = self.refusal(evidence, Refusal.UNCITED, self.capability.uncited, draft.usage)
        return replace(answer, removed=verification.removed)

    def _answered(self, checked: Checked, evidence: Evidence, model: str | None, usage: Usage | None = None) -> Answer:
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
                Shown(first.source_id, first.source_type, first.title, block.text, cited.get(block.number))
                for block in evidence.context.blocks
                for first in block.hits[:1]
            ),
        )

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        evidence = await self._widened(await self.gather(Question(query_bundle.query_str)))
        answer = await self._write(evidence)
        described = {
            "confidence": answer.confidence.value,
            "average_relevance": answer.average_relevance,
            "probability": answer.probability,
            "calibration": answer.calibration,
            "model": answer.model,
            "citations": [
                {
                    "number": citation.number,
                    "chunk_id": str(citation.hit.chunk_id),
                    "source_id": str(citation.hit.source_id),
                    "title": citation.hit.title,
                    "uri": citation.hit.uri,
                    "relevance": citation.hit.relevance,
                    "quote": citation.quote,
                    "start": citation.start,
                    "end": citation.end,
                }
                for citation in answer.citations
            ],
        }
        return Response(answer.text, list(evidence.nodes), metadata=described)

    def _query(self, query_bundle: QueryBundle) -> Response:
        """Runs on the event loop that opened the application: connections and models belong to that one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            owner = self._owner
        else:
            raise RuntimeError("an event loop is running here: use `await engine.aquery(...)`")
        if owner is None or owner.is_closed():
            raise RuntimeError("no event loop keeps the application open: call it while `rag_app.open()` is open")
        if owner.is_running():
            return asyncio.run_coroutine_threadsafe(self._aquery(query_bundle), owner).result()
        return owner.run_until_complete(self._aquery(query_bundle))

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"synthesizer": self.synthesizer}


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
        probability=evidence.judgment.probability,
        calibration=evidence.judgment.basis,
        **more,
    )


def _nearest(evidence: Evidence) -> float:
    return max((hit.score for hit in evidence.hits), default=-1.0)


def _timed(answer: Answer, evidence: Evidence, started: float) -> Answer:
    return replace(answer, seconds={"retrieval": evidence.seconds, "generation": time.perf_counter() - started})
