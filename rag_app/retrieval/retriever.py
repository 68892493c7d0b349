"""The LlamaIndex retriever of rag_app: a question to scored chunks."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import copy
from itertools import chain, zip_longest
from math import isfinite
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.instrumentation.event_handlers import NullEventHandler
from llama_index.core.instrumentation.span_handlers import NullSpanHandler
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import Dispatcher
from msgspec.structs import replace

from rag_app.domain import InvalidInput, Mode, Question, day_of
from rag_app.retrieval.embedding import asking, embed_query, embed_together
from rag_app.retrieval.filters import IN, checked_text, condition, fields_of
from rag_app.retrieval.periods import conditions_of, names_period
from rag_app.retrieval.spelling import common_spellings, correct_spelling, suspects
from rag_app.retrieval.store import ScopedStore, Search, show_times
from rag_app.telemetry.observing import Stage

_DEAF = (NullEventHandler, NullSpanHandler)
_EARLIER = 6  # chunks of the sources of the answer before

Nodes = list[NodeWithScore]


def interleave(rankings: Sequence[Nodes]) -> Nodes:
    """The first of each ranking, then the second of each, and so on. A node that comes again has its best score."""
    if len(rankings) == 1:
        return [*rankings[0]]
    return join([[node for node in row if node is not None] for row in zip_longest(*rankings)])


def join(rankings: Sequence[Nodes]) -> Nodes:
    """One ranking after the other. A node that comes again has its first place and its best score."""
    found: dict[str, NodeWithScore] = {}
    for node in chain.from_iterable(rankings):
        known = found.setdefault(node.node.node_id, node)
        if known is not node:
            known.score = max(known.score or 0.0, node.score or 0.0)
    return [*found.values()]


class ChunkRetriever(BaseRetriever):
    """Finds chunks in the scoped store that `open_store` gives. Async: `await retriever.aretrieve("...")`.

    Nodes come best first; a node's score is its cosine similarity with the query, in every mode.

    A bundle's `embedding`, or that of its `custom_embedding_strs`, is searched instead of the text's own.

    What is retrieved is up to `question`, whose text is not read: `filters`, `top_k` chunks and `mode`. `preferred`
    filters hold as well, unless they leave fewer than `enough` nodes. Of each of the `sources` that the scope may see,
    whatever the filters, at least the best chunk is there, and comes first. What is searched `also`, and `earlier`
    sources, have every other place, or every third. Each text is embedded once.

    Of a question with a `period`, sources of the `dated_types` (None: all) that have a date are left out unless it lies
    in the period, or the chunk names a day of it. `preferred` dates do not count then.
    """

    def __init__(
        self,
        open_store: Callable[[], Awaitable[ScopedStore]],
        embedder: BaseEmbedding,
        question: Question,
        dimension: int | None = None,
        dated_types: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self._dated_types = dated_types
        self._open_store, self._embedder, self._question = open_store, embedder, question
        self._dimension = dimension
        self._embedded: tuple[str, list[float]] | None = None
        self._store: ScopedStore | None = None

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        store, asked = await self._open_store(), self._question
        self._store = store
        asking.set(store.scope.organizations)
        text = checked_text("query", query_bundle.query_str)
        if query_bundle.embedding is not None:
            self._embedded = text, self._check_length(query_bundle.embedding)
        elif query_bundle.custom_embedding_strs:
            self._embedded = text, self._check_length(await embed_together(self._embedder, query_bundle.embedding_strs))
        vector = await self._embed(text)
        with Stage("search", {"rag.mode": asked.mode.value, "rag.top_k": asked.top_k}):
            first = await self._search_named(store, text, vector)
            search = Search(vector, text, asked.filters, asked.mode, asked.top_k)
            beside = await self._further_searches(search)
            preferred = asked.preferred
            if asked.period:  # a period that is said is meant, whatever dates are preferred
                preferred = tuple(each for each in preferred if "date" not in fields_of((each,)))
            found = await store.search(
                search if not preferred else replace(search, filters=(*asked.filters, *preferred))
            )
            if preferred and len(found) < asked.enough:
                found = await store.search(search)
            within = []
            if asked.period is not None:
                dated = replace(search, filters=(*asked.filters, *conditions_of(asked.period)))
                within = [await store.search(dated)]
            others = await asyncio.gather(*(store.search(each) for each in beside)) if beside else []
        kept = [[*filter(self._may_be_of_period, each)] for each in (found, *others)]
        rest = interleave([*within, *kept])
        return show_times(join([first, rest]) if first else rest, store.spec)

    def _may_be_of_period(self, node: NodeWithScore) -> bool:
        period, meta = self._question.period, node.node.metadata
        if period is None or meta.get("date") is None:
            return True
        if self._dated_types is not None and meta["source_type"] not in self._dated_types:
            return True
        day = day_of(meta["date"])
        return period.holds(day) or names_period(f"{meta['title']}\n{node.node.get_content()}", period, day)

    async def _further_searches(self, search: Search) -> list[Search]:
        """The same for what is searched `also`; and in `earlier` sources, by the shortest wording."""
        texts = [checked_text("query", text) for text in self._question.also]
        vectors = [await embed_query(self._embedder, text, self._dimension) for text in texts]
        searches = [replace(search, vector=vector, text=text) for vector, text in zip(vectors, texts, strict=True)]
        if self._question.earlier:
            only = condition("source_id", IN, [str(each) for each in self._question.earlier])
            alone = min([search, *searches], key=lambda each: len(each.text))
            searches.append(replace(alone, filters=(only,), top_k=_EARLIER, depth=0))
        return searches

    async def respell(self, text: str, found: Sequence[NodeWithScore], *, whole: bool = False) -> str:
        """The text, with words put right that neither what it found nor any other chunk of the scope has; with `whole` also
        those that are words."""
        known = (f"{node.node.metadata.get('title')} {node.node.get_content()}" for node in found)
        doubtful = suspects(checked_text("query", text), known, whole=whole)
        if not doubtful:
            return text
        store, common = await self._open_store(), common_spellings(doubtful)
        meant = await store.respell([word for word in doubtful if word not in common])
        return correct_spelling(text, {**meant, **common})

    async def further(self, text: str, found: Sequence[NodeWithScore], at_most: int = 50) -> list[NodeWithScore]:
        """More chunks of the sources of what was found for `text`: the neighbours of those chunks, then the nearest.

        Scope and filters hold for them as for what was found; their scores are cosines, too.
        """
        places: set[tuple[str, int]] = {
            (meta["source_id"], meta["position"]) for meta in (node.node.metadata for node in found)
        }
        only = condition("source_id", IN, sorted({source for source, _ in places}))
        filters = (*self._question.filters, only)
        store, vector = self._store or await self._open_store(), await self._embed(text)
        nearest = await store.search(Search(vector, text, filters, Mode.DENSE, len(places) + at_most))

        def distance(node: NodeWithScore) -> int:
            own, position = node.node.metadata["source_id"], int(node.node.metadata["position"])
            return min(abs(position - place) for source, place in places if source == own)

        return sorted((node for node in nearest if distance(node)), key=lambda node: distance(node) > 1)

    def _check_length(self, embedding: list[float]) -> list[float]:
        if self._dimension is not None and len(embedding) != self._dimension:
            problem = f"has {len(embedding)} dimensions, the index has {self._dimension}"
            raise InvalidInput("embedding", None, problem)
        if not any(embedding) or not isfinite(sum(embedding)):
            raise InvalidInput("embedding", None, "must be numbers, not all of them zero")
        return embedding

    async def _embed(self, text: str) -> list[float]:
        if self._embedded is None or self._embedded[0] != text:
            self._embedded = text, await embed_query(self._embedder, text, self._dimension)
        return self._embedded[1]

    def copy_for(self, question: Question) -> "ChunkRetriever":
        """The same retriever for another question; what it has embedded is not embedded again."""
        other = copy(self)
        other._question = question
        return other

    async def opened_store(self) -> ScopedStore:
        """The store that was searched, or is opened now."""
        return self._store or await self._open_store()

    async def _search_named(self, store: ScopedStore, text: str, vector: list[float]) -> list[NodeWithScore]:
        """Chunks of the named sources, best first. A long source may crowd out others: those are asked for again."""
        found: list[NodeWithScore] = []
        wanted = {str(source) for source in self._question.sources}
        while wanted:
            most = max(self._question.top_k, len(wanted))
            only = condition("source_id", IN, sorted(wanted))
            nearest = await store.search(Search(vector, text, (only,), Mode.DENSE, most))
            found += nearest
            wanted -= {node.node.metadata["source_id"] for node in nearest}
            if len(nearest) < most:
                break  # that was all there is of them
        return sorted(found, key=lambda node: -(node.score or 0.0))

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise NotImplementedError("use `await retriever.aretrieve(...)`: rag_app retrieves asynchronously")


_retrieve_and_tell = ChunkRetriever.aretrieve


def _aretrieve_quietly(
    self: ChunkRetriever, str_or_query_bundle: QueryType
) -> Coroutine[Any, Any, list[NodeWithScore]]:
    """LlamaIndex's `aretrieve`. Its span and its events, a fifth of the time of a small search, are made only where
    somebody listens to them.
    """
    if self.callback_manager.handlers or any(map(_is_heard, _DISPATCHERS)):
        return _retrieve_and_tell(self, str_or_query_bundle)
    asked = QueryBundle(str_or_query_bundle) if isinstance(str_or_query_bundle, str) else str_or_query_bundle
    return self._aretrieve(asked)


ChunkRetriever.aretrieve = _aretrieve_quietly  # type: ignore[method-assign]  # LlamaIndex wraps what a class body has

_DISPATCHERS = [get_dispatcher(name) for name in (BaseRetriever.__module__, ChunkRetriever.__module__)]


def _is_heard(dispatcher: Dispatcher) -> bool:
    """Whether it, or one that it passes events on to, has a handler."""
    told: Dispatcher | None = dispatcher
    while told is not None:
        if not all(type(each) in _DEAF for each in (*told.event_handlers, *told.span_handlers)):
            return True
        told = told.parent if told.propagate else None
    return False
