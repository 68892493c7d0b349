"""Answers from records: a question is read (planning.py), its query run, and what comes back told (telling.py)."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.planning import Plan, Reading, may_ask, read_question, respelled, words_left
from rag_app.answering.telling import Telling
from rag_app.domain import Filters, Hit, Mode, Question, frozen
from rag_app.retrieval.embedding import asking, embed_query
from rag_app.retrieval.filters import GTE, IN, LT, condition, fields_of
from rag_app.retrieval.hits import to_hits
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period, conditions_of, find_period
from rag_app.retrieval.postprocessors import cut_below
from rag_app.retrieval.records import RecordQuery, Records
from rag_app.retrieval.spelling import SHORTEST, spellings
from rag_app.retrieval.store import ScopedStore, Search

_LANGUAGES = ("en", "fr", "de")  # those of planning.toml
_MOST_SPELLED = 3  # words that may be misspelt
_EQUALS = 5  # records that are the best together


@frozen
class FoundRecords:
    """What a question about records found: `nodes`, the first one first, with their cosines, are the sources of `text`.

    `[Source N]` in the text is the Nth of them. `understood` says in a line what was asked. `computed`: the text tells a
    figure over all records, which no model is to tell again.
    """

    plan: Plan
    nodes: tuple[NodeWithScore, ...]
    text: str
    understood: str
    computed: bool


class RecordFinder:
    """Answers questions about the records of an index, in one scope, from at most `most` sources."""

    def __init__(
        self,
        spec: IndexSpec,
        open_store: Callable[[], Awaitable[ScopedStore]],
        embedder: BaseEmbedding,
        dimension: int | None = None,
        most: int = 12,
    ) -> None:
        self._spec, self._open_store = spec, open_store
        self._embedder, self._dimension, self._most = embedder, dimension, most

    async def find(self, question: Question) -> FoundRecords | None:
        """What the records say; None where the question asks nothing of them, or they do not hold what it asks.

        The question's own filters hold as well, those of a second look where it has one. Raises StoreFailed and
        EmbeddingFailed.
        """
        if question.leans or not may_ask(question.text, self._spec):
            return None
        store = await self._open_store()
        asking.set(store.scope.organizations)
        plan = (await self._understand(question, store)).plan
        if plan is None:
            return None
        found, elsewhen = await self._query(plan, question, store)
        if not found.rows or (plan.kind is None and len(found.types) > 1):
            return None
        wanted = [*dict.fromkeys(source for row in found.rows for source in row.sources)][: self._most]
        vector = await embed_query(self._embedder, question.text, self._dimension)
        nearest: dict[UUID, NodeWithScore] = {}
        while left := [source for source in wanted if source not in nearest]:
            only = condition("source_id", IN, [*map(str, left)])
            asked = Search(vector, question.text, (only,), Mode.DENSE, 2 * len(left) + 10)
            nodes = await store.search(asked)
            for node in nodes:
                nearest.setdefault(UUID(node.node.metadata["source_id"]), node)
            if len(nodes) < asked.top_k:
                break  # a long source crowds out others no more: that was all there is
        shown = [nearest[source] for source in wanted if source in nearest]
        kept = _above(shown, question)
        if len(kept) < len(shown) and not plan.is_list:
            return None if kept else FoundRecords(plan, (), "", "", computed=True)
        hits = to_hits(kept)
        if hits and plan.is_list and not any(_has_all(hit, plan.figures) for hit in hits):
            return None  # the texts may say what the fields do not hold
        telling = Telling(self._spec, plan, found, hits, elsewhen)
        return FoundRecords(plan, tuple(kept), telling.text, telling.understood, computed=not plan.is_list)

    async def _understand(self, question: Question, store: ScopedStore) -> Reading:
        """The question as a plan, with its words put right where they are no others than those that there are."""
        text, spec, period = question.text, self._spec, _period(question, self._spec)
        words = words_left(text, spec, period)
        values = await store.named_values(words) if words else []
        reading = read_question(text, spec, values, period)
        if not 0 < len(reading.unknown) <= _MOST_SPELLED or min(map(len, reading.unknown)) < SHORTEST:
            return reading
        options = {word: spellings(word) for word in reading.unknown}
        others = await store.named_values(sorted({each for found in options.values() for each in found}))
        spelled = respelled(text, options, spec, others)
        return read_question(spelled, spec, [*values, *others], _period(replace(question, text=spelled), spec))

    async def _query(self, plan: Plan, question: Question, store: ScopedStore) -> tuple[Records, bool]:
        """What the plan's query finds; or the record next to its days, where they have none, and True."""
        filters = question.filters if question.wide is None else question.wide
        query = replace(plan.query, filters=(*filters, *plan.query.filters))
        if plan.is_list:
            query = replace(query, limit=_EQUALS if plan.single else min(query.limit, self._most))
        elif query.limit == 1:
            query = replace(query, limit=_EQUALS)
        found = await store.find_records(query)
        if found.total:
            best = found.rows[0].value
            alone = plan.single or plan.query.limit == 1
            rows = tuple(row for row in found.rows if row.value == best) if alone else found.rows
            return replace(found, rows=rows), False
        if plan.period is None:
            return found, False
        for elsewhen in _beside(plan, filters):
            if (near := await store.find_records(elsewhen)).rows:
                return near, True
        return found, False


def _has_all(hit: Hit, fields: Collection[str]) -> bool:
    return all(hit.metadata.get(name) is not None for name in fields)


def _beside(plan: Plan, filters: Filters) -> list[RecordQuery]:
    """The kind's record before the days of a plan, or the one behind them; its other conditions do not count."""
    query, period = plan.query, plan.period
    types = tuple(each for each in query.filters if "source_type" in fields_of((each,)))
    base = RecordQuery((*filters, *types), query.own, "date", having=query.having, limit=1)
    found = []
    bounds = conditions_of(period) if period is not None else ()
    for bound in (each for each in bounds if isinstance(each, MetadataFilter)):
        before = bound.operator is GTE
        beyond = condition("date", LT if before else GTE, bound.value)
        found.append(replace(base, filters=(*base.filters, beyond), descending=before))
    return found


def _above(nodes: Collection[NodeWithScore], question: Question) -> list[NodeWithScore]:
    """Those that a threshold leaves which the request itself sends."""
    if question.threshold is None or not question.threshold_sent:
        return [*nodes]
    return cut_below([*nodes], question.threshold)


def _period(question: Question, spec: IndexSpec) -> Period | None:
    """The days that are asked about; dates in its filters are the period, and words of time add nothing."""
    filters = question.filters if question.wide is None else question.wide
    if spec.dated_types == () or "date" in fields_of(filters):
        return None
    return find_period(question.text, question.today or datetime.now(UTC).date(), _LANGUAGES)
