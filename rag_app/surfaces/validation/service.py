"""Raw search results, their metrics, and stored validation runs."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean
from time import perf_counter
from typing import Any
from uuid import UUID, uuid4

from llama_index.core.schema import NodeWithScore
from msgspec import convert, structs, to_builtins

from rag_app.documents.generations import Generation
from rag_app.domain import Hit, InvalidInput, JsonObject, NotFound, Principal, Question, require, uuid_in
from rag_app.evaluation.records import Validations
from rag_app.evaluation.validation import (
    DEPTH,
    MetricValues,
    Span,
    ask_all,
    canonical,
    judge_by_chunks,
    locate,
    measure,
    relevance_by_passages,
    relevance_by_score,
)
from rag_app.http.fields import as_wire
from rag_app.pipeline import Pipeline
from rag_app.retrieval.hits import to_hit
from rag_app.retrieval.index import IndexSpec, allowed_indexes
from rag_app.retrieval.searcher import OpenStore
from rag_app.surfaces.validation.types import (
    DEFAULT_COLLECTION,
    MOST_EXPECTED,
    CollectionInfo,
    CollectionsResponse,
    Comparison,
    ExpectedQuery,
    NoCollection,
    QueryComparison,
    QueryMetrics,
    QueryResponse,
    RetrievalQuery,
    RetrievalResult,
    SearchMetadata,
    StoredValidation,
    ValidatedQuery,
    ValidationMetrics,
    ValidationRequest,
    ValidationResponse,
    ValidationsResponse,
    ValidationSummary,
)

LONGEST_NAME = 100  # characters: no collection has a longer name


class RetrievalValidation:
    """Searches an index without answering, measures the results, and stores validation runs.

    `active` returns the active generation of an index, `open_store` its chunks.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        validations: Validations,
        indexes: Mapping[str, IndexSpec],
        active: Callable[[IndexSpec], Awaitable[Generation]],
        open_store: OpenStore,
    ) -> None:
        self._pipeline, self._validations = pipeline, validations
        self._indexes, self._active, self._open_store = indexes, active, open_store

    async def query(self, user: Principal, asked: RetrievalQuery) -> QueryResponse:
        """Raises NoCollection, StoreFailed, EmbeddingFailed."""
        spec = self._collection(asked.collection_name, user)
        generation = await self._active(spec)
        started = perf_counter()
        hits = await self._pipeline.search(spec.name, asked.question(), user.scope())
        elapsed = perf_counter() - started
        shown = hits[: asked.results_wanted]
        return QueryResponse(
            query_id=f"query_{uuid4().hex[:12]}",
            query_text=asked.query,
            results=[
                as_wire(
                    RetrievalResult,
                    hit,
                    content=hit.text,
                    source_url=hit.uri or "",
                    section_title=hit.section,
                    page_number=hit.page,
                    similarity_score=hit.relevance,
                    rank=rank,
                    metadata=hit.sent_metadata,
                )
                for rank, hit in enumerate(shown, 1)
            ],
            validation_metrics=await self._measure(asked, hits, spec, user) if asked.validate else None,
            search_metadata=SearchMetadata(len(shown), round(1000 * elapsed), generation.dimension),
            warnings=self._pipeline.warnings(asked.question()),
        )

    async def validate(self, user: Principal, asked: ValidationRequest) -> ValidationResponse:
        """Run all queries, measure their hits, and store the report and the places of the expected chunks.

        Raises InvalidInput if too many chunks are expected, NoCollection, StoreFailed, EmbeddingFailed.
        """
        if sum(len(each.expected_chunks) for each in asked.queries) > MOST_EXPECTED:
            raise InvalidInput("queries", None, f"must not have more than {MOST_EXPECTED} expected chunks in total")
        spec = self._collection(asked.collection_name, user)
        generation = await self._active(spec)

        async def search(each: ExpectedQuery) -> tuple[Sequence[Hit], MetricValues]:
            question = Question(each.query.strip(), top_k=max(asked.results_wanted, DEPTH))
            hits = await self._pipeline.search(spec.name, question, user.scope())
            await asyncio.sleep(0)  # other requests go on between a search and its figures
            return hits, measure(judge_by_chunks(hits, each.expected_chunks), asked.results_wanted)

        answered = await ask_all(asked.queries, search)
        found, measured = [hits for hits, _ in answered], [figures for _, figures in answered]
        run = uuid4()
        report = ValidationResponse(
            validation_id=f"validation_{run.hex}",
            total_queries=len(asked.queries),
            results=[
                ValidatedQuery(
                    query_id=f"query_{uuid4().hex[:12]}",
                    query_text=each.query,
                    retrieved_chunks=[hit.chunk_id for hit in hits[: asked.results_wanted]],
                    relevant_retrieved=figures.relevant,
                    total_expected=len(set(map(canonical, each.expected_chunks))),
                    metrics=_metrics(figures),
                )
                for each, hits, figures in zip(asked.queries, found, measured, strict=True)
            ],
            aggregate_metrics=_aggregates(measured),
            completed_at=datetime.now(UTC).replace(microsecond=0),
        )
        judgments = await self._judgments(asked.queries, found, spec, user)
        await self._validations.record(
            user,
            run,
            spec.name,
            generation.id,
            asked.results_wanted,
            to_builtins(report),
            judgments,
            {hit.source_id for hits in found for hit in hits},
        )
        return report

    async def newest(self, user: Principal, limit: int, before: str | None) -> ValidationsResponse:
        """A page of runs, without the results of single queries. Raises NotFound if `before` is not a run."""
        runs = await self._validations.newest(user, limit, None if before is None else _run_id(before))
        if not runs and before is not None:
            await self._find_report(before, user)
        page = [
            convert({**report, "collection_name": index, "top_k": top_k}, ValidationSummary)
            for _, index, top_k, report in runs
        ]
        return ValidationsResponse(page, page[-1].validation_id if len(page) == limit else None)

    async def read_run(self, user: Principal, validation_id: str, against: str | None) -> StoredValidation:
        """A stored run, optionally compared with another one. Raises NotFound."""
        run = await self._find_report(validation_id, user)
        if against is None:
            return run
        return structs.replace(run, comparison=_comparison(run, await self._find_report(against, user)))

    async def collections(self, user: Principal) -> CollectionsResponse:
        """One for each name of each index that the user may search."""
        specs = allowed_indexes(self._indexes, user)
        generations = [await self._active(spec) for spec in specs]
        stores = [await self._open_store(spec, user.scope()) for spec in specs]
        counts = await asyncio.gather(*(store.count() for store in stores))
        return CollectionsResponse(
            [
                CollectionInfo(name, built.dimension, "Cosine", chunks, built.created_at.replace(microsecond=0))
                for spec, built, chunks in zip(specs, generations, counts, strict=True)
                for name in (*spec.aliases, spec.name)
            ]
        )

    def _collection(self, name: str | None, user: Principal) -> IndexSpec:
        """A collection by name or alias. Raises NoCollection with the known names, also for one outside the key's indexes."""
        name = DEFAULT_COLLECTION if name is None else name
        specs = reversed([*allowed_indexes(self._indexes, user)])  # of two with one alias it is the first one's
        named = {each: spec for spec in specs for each in (*spec.aliases, spec.name)}
        if name not in named:
            raise NoCollection("collection_name", name, str(NotFound("collection", name[: LONGEST_NAME + 1], named)))
        return named[name]

    async def _find_report(self, validation_id: str, user: Principal) -> StoredValidation:
        report = await self._validations.report(user, _run_id(validation_id))
        return convert(require(report, NotFound("validation", validation_id)), StoredValidation)

    async def _measure(
        self, asked: RetrievalQuery, hits: Sequence[Hit], spec: IndexSpec, user: Principal
    ) -> ValidationMetrics:
        passages, contents = await self._validations.judgments(
            user, spec.name, asked.query, {hit.source_id for hit in hits}
        )
        relevance = (
            relevance_by_passages(hits, passages, contents)
            if passages
            else relevance_by_score(hits, spec.confidence.answer_from)
        )
        figures, shown = measure(relevance, asked.results_wanted), hits[: asked.results_wanted]
        return ValidationMetrics(
            **structs.asdict(_metrics(figures)),
            avg_similarity_score=round(fmean(hit.relevance for hit in shown), 4) if shown else 0.0,
            total_results=len(shown),
            relevant_results=figures.relevant,
            calculated_at=datetime.now(UTC).replace(microsecond=0),
            basis="judgments" if passages else "threshold",
        )

    async def _judgments(
        self, queries: Sequence[ExpectedQuery], found: Sequence[Sequence[Hit]], spec: IndexSpec, user: Principal
    ) -> list[tuple[str, UUID, Span | None]]:
        """The places of the expected chunks in their sources, because chunk ids change and passages stay."""
        chunks = {str(hit.chunk_id): hit for hits in found for hit in hits}
        wanted = {(each.query, canonical(chunk)) for each in queries for chunk in each.expected_chunks}
        others = [UUID(chunk) for _, chunk in wanted if chunk not in chunks and uuid_in(chunk)]
        if others:
            store = await self._open_store(spec, user.scope())
            fetched = await store.fetch(others)
            chunks |= {str(chunk): to_hit(NodeWithScore(node=node)) for chunk, node in fetched.items()}
        known = [(text, chunks[chunk]) for text, chunk in wanted if chunk in chunks]
        contents = await self._validations.read_passages(user, {chunk.source_id for _, chunk in known})
        there = {chunk.chunk_id: chunk for _, chunk in known if chunk.source_id in contents}
        places = await asyncio.to_thread(
            lambda: {key: locate(chunk, contents[chunk.source_id]) for key, chunk in there.items()}
        )
        return [(text, chunk.source_id, places[chunk.chunk_id]) for text, chunk in known if chunk.chunk_id in places]


def _run_id(validation_id: str) -> UUID:
    if not re.fullmatch("validation_[0-9a-f]{32}", validation_id):
        raise NotFound("validation", validation_id)
    return UUID(validation_id.removeprefix("validation_"))


# figures have four digits, as trec_eval prints


def _metrics(figures: MetricValues) -> QueryMetrics:
    return QueryMetrics(
        _round_figures(figures.precision),
        _round_figures(figures.recall),
        round(figures.reciprocal_rank, 4),
        figures.hit_rate,
    )


def _aggregates(figures: Sequence[MetricValues]) -> dict[str, float]:
    means = {}
    for k in figures[0].precision:
        means[f"avg_precision_at_{k}"] = fmean([each.precision[k] for each in figures])
        means[f"avg_recall_at_{k}"] = fmean([each.recall[k] or 0.0 for each in figures])
    means["overall_mrr"] = fmean([each.reciprocal_rank for each in figures])
    means["hit_rate"] = fmean([each.hit_rate for each in figures])
    return {name: round(mean, 4) for name, mean in means.items()}


def _comparison(run: ValidationResponse, other: ValidationResponse) -> Comparison:
    before: dict[str, list[ValidatedQuery]] = {}
    for each in other.results:
        before.setdefault(each.query_text, []).append(each)
    asked_in_both = [(each, before[each.query_text].pop(0)) for each in run.results if before.get(each.query_text)]
    return Comparison(
        against=other.validation_id,
        aggregate_metrics=_differences(run.aggregate_metrics, other.aggregate_metrics),
        queries=[
            QueryComparison(
                query_text=now.query_text,
                metrics=_differences(_metric_fields(now.metrics), _metric_fields(then.metrics)),
                gained=[chunk for chunk in now.retrieved_chunks if chunk not in then.retrieved_chunks],
                lost=[chunk for chunk in then.retrieved_chunks if chunk not in now.retrieved_chunks],
            )
            for now, then in asked_in_both
        ],
    )


def _metric_fields(metrics: QueryMetrics) -> dict[str, float]:
    return {
        **{f"precision_at_{k}": value for k, value in metrics.precision_at_k.items()},
        **{f"recall_at_{k}": value for k, value in metrics.recall_at_k.items()},
        "mrr": metrics.mrr,
        "hit_rate": metrics.hit_rate,
    }


def _differences(now: Mapping[str, float], then: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value - then[name], 4) for name, value in now.items() if name in then}


def _round_figures(figures: Mapping[int, Any]) -> JsonObject:
    return {str(k): None if value is None else round(value, 4) for k, value in figures.items()}
