"""Whether hits are good enough to answer from: by a fit on several signals, or by a fixed rule."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.alternatives import fits_stated_range
from rag_app.answering.context import Context
from rag_app.answering.extractive import MOST_ODDS, SURE, introduction_of, lacks_kind, rank_passages
from rag_app.answering.kinds import share_unnamed
from rag_app.answering.passages import Passage, Ranking
from rag_app.domain import Confidence, Hit, Question
from rag_app.retrieval.confidence import Basis, Fit, Sentence, Signals, Words, measure, words_of
from rag_app.retrieval.embedding import embed_passages, embed_query
from rag_app.retrieval.hits import judge
from rag_app.retrieval.index import ConfidenceRule
from rag_app.retrieval.store import ScopedStore

LoadFit = Callable[[], Awaitable[tuple[Fit, Basis]]]
OpenStore = Callable[[], Awaitable[ScopedStore]]

_READ = 12  # passages whose own words are compared with the question
_NEAREST = 3  # passages that are searched for what is asked for


class Judgment(Struct, frozen=True):
    """Whether hits are good enough, and for whom.

    `asks`: a model may be asked; `answers`: the extractive answerer may answer; `level` is what an answer is called.
    `probability` is None where a fixed rule compared a cosine. `ranking` is that of the context's passages, where the
    judge has made one.
    """

    asks: bool
    answers: bool
    level: Confidence
    basis: Basis
    probability: float | None = None
    signals: Signals = Signals()
    ranking: Ranking | None = None


NOTHING = Judgment(asks=False, answers=False, level=Confidence.LOW, basis="fixed", probability=0.0)
"""The judgment of no hits, whatever was fitted."""


class Gate(ABC):
    """Judges the hits of a question."""

    @abstractmethod
    async def judge(self, question: Question, hits: Sequence[Hit], context: Context) -> Judgment:
        """`hits` come best first, `context` is what would be answered from. Raises EmbeddingFailed and StoreFailed."""


class FixedGate(Gate):
    """Compares a cosine of the hits with a rule's thresholds. A model is asked where an answer would be given."""

    def __init__(self, rule: ConfidenceRule) -> None:
        self._rule = rule

    async def judge(self, question: Question, hits: Sequence[Hit], context: Context) -> Judgment:
        level = judge(hits, self._rule)
        enough = level is not Confidence.LOW
        return Judgment(asks=enough, answers=enough, level=level, basis="fixed")


class FittedGate(Gate):
    """The probability of a fit, or a sentence of which the reader is certain. The store that `open_store` opens says how rare
    the question's words are."""

    def __init__(self, embedder: BaseEmbedding, load_fit: LoadFit, open_store: OpenStore | None = None) -> None:
        self._embedder, self._load_fit, self._open_store = embedder, load_fit, open_store

    async def judge(self, question: Question, hits: Sequence[Hit], context: Context) -> Judgment:
        if not hits:
            return NOTHING
        fit, basis = await self._load_fit()
        store = await self._open_store() if self._open_store is not None else None
        asked = words_of(question.searched or question.text)
        counting = store.word_use(asked, [hit.chunk_id for hit in hits]) if store is not None else _no_words()
        ranking = None
        if fit.embedding_model is None:  # it looks at no cosine: nothing is embedded for it
            signals = measure(hits, await counting, ())
        else:
            words, ranking = await asyncio.gather(counting, rank_passages(self._embedder, question, context))
            measured = measure(hits, words, await self._sentences(context, ranking))
            signals = with_values(measured, question, context, ranking)
        probability, certain = fit.probability(signals), signals.read * MOST_ODDS >= SURE
        level = Confidence.HIGH if probability >= fit.high else Confidence.MEDIUM
        return Judgment(
            asks=certain or probability >= fit.ask_from,
            answers=certain or probability >= fit.answer_from,
            level=level if certain or probability >= fit.ask_from else Confidence.LOW,
            basis=basis,
            probability=probability,
            signals=signals,
            ranking=ranking,
        )

    async def _sentences(self, context: Context, ranking: Ranking) -> list[Sentence]:
        """The passages that are ranked first, as they are judged: each by its own words.

        With its title every sentence is near a question about the document, whatever it says: embedded without, it tells
        more (AUROC on CLAP-NQ .898 instead of .878).
        """
        best = _nearest(ranking, _READ)
        texts = [passage.text_with_lead for passage in best]
        if not texts:
            return []
        asked, vectors = await asyncio.gather(
            embed_query(self._embedder, ranking.asked[0]), embed_passages(self._embedder, texts)
        )
        return [
            Sentence(f"{context.blocks[passage.block].title} {text}", float(cosine))
            for passage, text, cosine in zip(best, texts, vectors @ np.asarray(asked), strict=True)
        ]


def with_values(signals: Signals, question: Question, context: Context, ranking: Ranking) -> Signals:
    """The signals with those of the question's names and figures, and of the values that it asks for. Names in what is said
    before the first sentence that asks tell who asks and why: a rule for all does not repeat them."""
    nearest = _nearest(ranking, _NEAREST)
    blocks = [context.blocks[number] for number in sorted({passage.block for passage in nearest})]
    sources = [
        " ".join([block.header, block.body, *(hit.title for hit in block.hits), *(name for _, name in block.sections)])
        for block in blocks
    ]
    if any(fits_stated_range(question.text, each) for each in ranking.ranked):
        sources.append(" ".join(re.findall(r"\d[\d.,]*", question.text)))  # a figure that is in a range of theirs
    lacking = [all(lacks_kind(part, nearest)) for part in ranking.asked[1:]]
    best = ranking.read.max(axis=1, initial=-MOST_ODDS)
    # read together with what was said before, and alone: who has just one of them finds the answer of that, or nothing
    is_joined = (question.searched or "").count("\n") > question.text.count("\n")
    read = (best[0] + best[1:].max()) / 2 if is_joined else best.max()
    return replace(
        signals,
        unnamed=share_unnamed(question.text.removeprefix(introduction_of(question.text)), sources),
        lacking=sum(lacking) / max(1, len(lacking)) if nearest else 0.0,
        read=float(read) / MOST_ODDS,
    )


def _nearest(ranking: Ranking, at_most: int) -> list[Passage]:
    """The passages nearest to the question, the nearest first."""
    return [ranking.ranked[place] for place in np.argsort(-ranking.cosines[0], kind="stable")[:at_most]]


async def _no_words() -> Words:
    return Words()
