"""Answers from records: a question is read (planning.py), its query run, and what comes back told (telling.py)."""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.following import DatedText, before_in, follow, without_opening
from rag_app.answering.planning import Plan, Reading, may_ask, read_question, respell, words_left
from rag_app.answering.telling import Outcome, Telling, missing_text
from rag_app.answering.wording import read_words, variants
from rag_app.domain import Filters, Hit, Mode, Question, frozen
from rag_app.retrieval.embedding import asking, embed_query
from rag_app.retrieval.filters import GTE, IN, LT, condition, fields_of
from rag_app.retrieval.hits import to_hits
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import conditions_of, find_periods, period_of
from rag_app.retrieval.postprocessors import cut_below
from rag_app.retrieval.records import RecordQuery, Records
from rag_app.retrieval.spelling import SHORTEST, spellings
from rag_app.retrieval.store import ScopedStore, Search

_MOST_SPELLED = 3  # words that may be misspelt
_COMPARED = 2  # sources of each of two periods
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


@frozen
class NotRecorded:
    """A question about records was understood, but for a field that they have not: `text` says so.

    `certain`: no text can answer it either, since it asks for an order of all records by that field.
    """

    text: str
    certain: bool = False


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

    async def find(self, question: Question) -> FoundRecords | NotRecorded | None:
        """What the records say; None where the question asks nothing of them, or they do not hold what it asks.

        The question's own filters hold as well, those of a second look where it has one. Raises StoreFailed and
        EmbeddingFailed.
        """
        before = before_in((question.searched, *question.also), question.text)
        asks = not question.leans and may_ask(question.text, self._spec, question.period)
        if not asks and not before:
            return None
        store = await self._open_store()
        asking.set(store.scope.organizations)
        if asks and (both := await self._compare(question, store)) is not None:
            return both
        reading = await self._understand(question, store) if asks else Reading()
        if reading.plan is None and before:
            reading = await self._follow(question, before, store) or reading
        if reading.plan is None:
            lacking = missing_text(self._spec, reading.kind, reading.missing)
            return NotRecorded(lacking, reading.ranked) if lacking else None
        return await self._tell(*await self._query(reading.plan, question, store), question, store)

    async def _compare(self, question: Question, store: ScopedStore) -> FoundRecords | None:
        """The figures of two periods, one after the other; None where the question compares none, or one has no records."""
        spec, text = self._spec, question.text
        if spec.dated_types == () or "date" in fields_of(question.filters):
            return None
        told: list[FoundRecords] = []
        for period in find_periods(text, question.today or datetime.now(UTC).date()):
            words = words_left(text, spec, period)
            values = await store.named_values(words) if words else []
            plan = read_question(text, spec, values, period, question.today, comparing=True).plan
            if plan is None:
                return None
            asked = replace(question, period=period)
            one = await self._tell(*await self._query(plan, asked, store), asked, store)
            if one is None or not one.nodes:
                return None
            told.append(one)
        return _together(*told) if len(told) == 2 else None

    async def _tell(
        self, plan: Plan, found: Records, outcome: Outcome, question: Question, store: ScopedStore
    ) -> FoundRecords | None:
        """How what a plan found is told; None where the words' way is to be taken."""
        alone = plan.is_lookup and found.total == 1  # its name finds it by words, too, with what else is said of it
        if not found.rows or alone or (plan.kind is None and len(found.types) > 1):
            return None
        shown = await self._nearest(found, question, store)
        kept, listed = _above(shown, question), plan.is_list and outcome != "none"
        if len(kept) < len(shown) and not listed:
            return None if kept else FoundRecords(plan, (), "", "", computed=True)
        hits = to_hits(kept)
        if hits and listed and not any(_has_all(hit, plan.figures) for hit in hits):
            return None  # the texts may say what the fields do not hold
        telling = Telling(self._spec, plan, found, hits, outcome)
        return FoundRecords(plan, tuple(kept), telling.text, telling.understood, computed=not listed)

    async def _nearest(self, found: Records, question: Question, store: ScopedStore) -> list[NodeWithScore]:
        """The chunk of each record that is nearest to the question, in the order of the records."""
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
        return [nearest[source] for source in wanted if source in nearest]

    async def _understand(self, question: Question, store: ScopedStore) -> Reading:
        """The question as a plan, with its words put right where they are no others than those that there are."""
        text, spec, period = question.text, self._spec, question.period
        words = words_left(text, spec, period)
        values = await store.named_values(words) if words else []
        reading = read_question(text, spec, values, period, question.today)
        if not 0 < len(reading.unknown) <= _MOST_SPELLED or min(map(len, reading.unknown)) < SHORTEST:
            return reading
        options = {word: spellings(word) for word in reading.unknown}
        others = await store.named_values(sorted({each for found in options.values() for each in found}))
        spelled = respell(text, options, spec, others)
        if spelled == text:
            return reading
        period = period_of(replace(question, text=spelled, period=None), spec)
        return read_question(spelled, spec, [*values, *others], period, question.today)

    async def _follow(self, question: Question, before: Sequence[str], store: ScopedStore) -> Reading | None:
        """The question as one that goes on with those before it, the newest first; None where it does not."""
        spec, after = self._spec, list[DatedText]()
        asked = self._read_question(question, without_opening(question.text))
        for text in before:
            said = self._read_question(question, text)
            words = {*words_left(text, spec, said.period)}
            for each in (asked, *after):
                words |= {form for token in read_words(each.bare, spec) for form in variants(token.text)}
            values = await store.named_values(sorted(words)) if words else []
            if read_question(text, spec, values, said.period, question.today).plan is None:
                after.insert(0, self._read_question(question, without_opening(text)))
                continue
            merged: DatedText | None = said
            for each in (*after, asked):
                merged = follow(merged, each, spec, values) if merged else None
            return read_question(merged.text, spec, values, merged.period, question.today) if merged else None
        return None

    def _read_question(self, question: Question, text: str) -> DatedText:
        return DatedText(text, period_of(replace(question, text=text, period=None), self._spec))

    async def _query(self, plan: Plan, question: Question, store: ScopedStore) -> tuple[Plan, Records, Outcome]:
        """What the plan's query finds, or the same of another year that is meant as well.

        Else, where its conditions leave nothing, the records without them; or the record next to its days.
        """
        filters = question.filters if question.wide is None else question.wide
        for each in filter(None, (plan, plan.otherwise)):
            found = await store.find_records(self._limit_query(each, filters))
            if found.total:
                alone, rows = each.single or each.query.limit == 1, found.rows
                if alone:
                    best = [row.value for row in rows][each.place - 1 : each.place]
                    rows = tuple(row for row in rows if row.value in best)
                return each, replace(found, rows=rows), "found"
        if plan.conditions and plan.kind is not None and not plan.by_tags:
            everything = replace(plan.everything, filters=(*filters, *plan.everything.filters))
            fields = fields_of(tuple(each for each in plan.query.filters if each not in plan.everything.filters))
            having = (*everything.having, *sorted(fields))  # where none has the field, nothing can be said of it
            base = replace(
                everything, having=having, order=None, aggregate=None, of=None, group=None, grain=None, limit=_EQUALS
            )
            if (others := await store.find_records(base)).total:
                return plan, others, "none"
        for elsewhen in _nearest_queries(plan, filters):
            if (near := await store.find_records(elsewhen)).rows:
                return plan, near, "elsewhen"
        return plan, Records(), "found"

    def _limit_query(self, plan: Plan, filters: Filters) -> RecordQuery:
        """The plan's query with the question's filters; of one record or group also those that are its equals."""
        query = replace(plan.query, filters=(*filters, *plan.query.filters))
        if plan.is_list:
            return replace(query, limit=_EQUALS if plan.single else min(query.limit, self._most))
        return replace(query, limit=_EQUALS) if query.limit == 1 else query


def _together(first: FoundRecords, second: FoundRecords) -> FoundRecords:
    """Both, each with the first of its sources; those of the second are numbered behind those of the first."""
    before = min(len(first.nodes), _COMPARED)
    nodes = (*first.nodes[:_COMPARED], *second.nodes[:_COMPARED])
    text = f"{_cut_citations(first.text, 0)} {_cut_citations(second.text, before)}"
    return FoundRecords(first.plan, nodes, text, f"{first.understood}; {second.understood}", computed=True)


def _cut_citations(text: str, before: int) -> str:
    """The text with the first few of its citations, their numbers behind `before` others."""

    def number(found: re.Match[str]) -> str:
        return f" [Source {int(found[1]) + before}]" if int(found[1]) <= _COMPARED else ""

    return re.sub(r" \[Source (\d+)\]", number, text)


def _has_all(hit: Hit, fields: Collection[str]) -> bool:
    return all(hit.metadata.get(name) is not None for name in fields)


def _nearest_queries(plan: Plan, filters: Filters) -> list[RecordQuery]:
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
