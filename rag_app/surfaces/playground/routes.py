"""The playground (`/api/v1/playground`): a question asked as the pipeline does, and every step of it. It is for users with the
role admin, since it shows prompts."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Annotated

from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore
from msgspec.structs import asdict, replace

from rag_app.access.audit import ADMINISTRATORS_ONLY, Act, record
from rag_app.access.people import People
from rag_app.answering.capabilities import Capability, capability_for
from rag_app.answering.citations import content_words
from rag_app.answering.context import Context
from rag_app.answering.engine import CapabilityEngine, Evidence
from rag_app.answering.extractive import rank_passages, score_passages
from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.answering.prompts import Prompt, load_prompts, template_of
from rag_app.answering.synthesizers import messages_of
from rag_app.database.session import Database
from rag_app.domain import (
    Answer,
    BudgetSpent,
    EmbeddingFailed,
    Forbidden,
    InvalidInput,
    Mode,
    ModelFailed,
    NotFound,
    Principal,
    Question,
    StoreFailed,
    Unauthenticated,
    UnknownField,
    require,
    resource_folder,
)
from rag_app.evaluation.records import Validations
from rag_app.evaluation.validation import locate
from rag_app.http.fields import as_wire
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example
from rag_app.pipeline import Pipeline
from rag_app.retrieval.embedding import asking, embed_query
from rag_app.retrieval.filters import check_filters, parse_condition
from rag_app.retrieval.fusion import Candidate, rank
from rag_app.retrieval.hits import average_relevance, to_hit
from rag_app.retrieval.index import IndexSpec, find_index
from rag_app.retrieval.searcher import OpenStore
from rag_app.retrieval.store import Search
from rag_app.surfaces.playground.types import (
    Configuration,
    GateSignals,
    KeptJudgment,
    NewJudgment,
    PlaygroundAnswer,
    PlaygroundCitation,
    PlaygroundHit,
    PlaygroundIndex,
    PlaygroundOptions,
    PlaygroundPrompt,
    PlaygroundRequest,
    PlaygroundResponse,
    PlaygroundResult,
    PromptMessage,
    ScoredSentence,
    StageTime,
)

SENTENCES = 10


@contextmanager
def time_stage(took: list[StageTime], stage: str) -> Iterator[None]:
    """Writes down how long a stage takes."""
    started = perf_counter()
    yield
    took.append(StageTime(stage, round(1000 * (perf_counter() - started), 1)))


class Playground:
    """For administrators, in organizations of their own; each question is written down, without its text.

    Everything raises Forbidden for others, and NotFound for an index or organization that is not theirs.
    """

    def __init__(
        self,
        database: Database,
        pipeline: Pipeline,
        indexes: Mapping[str, IndexSpec],
        open_store: OpenStore,
        embedder: BaseEmbedding,
        people: People,
        prompts: PromptRegistry,
        validations: Validations,
        dimension: int | None = None,
    ) -> None:
        self._database, self._pipeline, self._indexes = database, pipeline, indexes
        self._open_store, self._embedder, self._dimension = open_store, embedder, dimension
        self._people, self._prompts, self._validations = people, prompts, validations

    async def options(self, principal: Principal) -> PlaygroundOptions:
        """What can be chosen."""
        await record(self._database, principal)
        return PlaygroundOptions(
            [
                PlaygroundIndex(
                    spec.name,
                    spec.description,
                    capability_for(spec.name).name,
                    list(spec.source_types),
                    {name: kind.value for name, kind in spec.all_fields.items()},
                )
                for spec in self._indexes.values()
            ],
            [each.slug for each in await self._people.organizations(principal.organizations)],
        )

    async def ask(self, principal: Principal, asked: PlaygroundRequest) -> PlaygroundResponse:
        """The question in each of its configurations, one after the other: their times are comparable.

        Raises InvalidInput and UnknownField for filters, and what the pipeline raises.
        """
        for each in asked.configurations:
            details = {"mode": each.mode, "top_k": each.top_k, "answer": each.answer}
            await record(self._database, principal, Act("playground.ask", each.index[:100], details))
        question = asked.question.strip()
        return PlaygroundResponse(
            question, [await self._result(principal, question, each) for each in asked.configurations]
        )

    async def judge(self, principal: Principal, said: NewJudgment) -> KeptJudgment:
        """Write down whether a chunk answers a question, as its organization's judgment: of its passage, which outlives it.

        Raises NotFound for a chunk that the principal does not see, InvalidInput where it is not plain whose judgment
        it is.
        """
        spec = find_index(self._indexes, said.index)
        await record(
            self._database, principal, Act("playground.judge", str(said.chunk_id), {"relevant": said.relevant})
        )
        judging = await self._narrow_principal(principal, said.organization)
        if len(judging.organizations) != 1:
            raise InvalidInput(
                "organization", said.organization, "is required unless you are a member of exactly one organization"
            )
        store = await self._open_store(spec, judging.scope())
        found = (await store.fetch([said.chunk_id])).get(said.chunk_id)
        hit = to_hit(NodeWithScore(node=require(found, NotFound("chunk", str(said.chunk_id)))))
        content = (await self._validations.read_passages(judging, [hit.source_id])).get(hit.source_id, ())
        span = locate(hit, content)
        await self._validations.judge(judging, spec.name, said.question, hit.source_id, span, int(said.relevant))
        start, end = span or (None, None)
        return KeptJudgment(hit.source_id, start, end, said.relevant)

    async def _narrow_principal(self, principal: Principal, slug: str | None) -> Principal:
        """The principal, as a member of one organization alone where one is named."""
        if slug is None:
            return principal
        found = await self._people.own_organization(principal, slug)
        return replace(principal, organizations=frozenset({found.id}))

    async def _result(self, principal: Principal, text: str, asked: Configuration) -> PlaygroundResult:
        spec, took = find_index(self._indexes, asked.index), list[StageTime]()
        scope = (await self._narrow_principal(principal, asked.organization)).scope()
        filters = tuple(parse_condition(each) for each in asked.filters)
        question = Question(text, filters, asked.top_k, Mode(asked.mode), asked.threshold)
        asking.set(scope.organizations)
        with time_stage(took, "embedding"):
            vector = await embed_query(self._embedder, text, self._dimension)
        store = await self._open_store(spec, scope)
        checked = check_filters(filters, spec)
        with time_stage(took, "search"):
            search = Search(vector, text, checked, Mode.HYBRID, asked.top_k, spec.fusion.depth)
            candidates = await store.candidates(search)
            ranking = rank(candidates, question.mode, spec.fusion)[: asked.top_k]
        with time_stage(took, "chunks"):
            nodes = await store.fetch([each.id for each in ranking])
        found = [NodeWithScore(node=nodes[each.id], score=each.cosine) for each in ranking if each.id in nodes]
        hits = _hits(found, candidates, asked.threshold)
        capability = capability_for(spec.name)
        engine = self._pipeline.engine(capability.name, question, scope)
        with time_stage(took, "retrieval and judging"):
            evidence = await engine.gather(question)
        answer: Answer | None = None
        if asked.answer:
            with time_stage(took, "the whole answer"):
                answer = await self._pipeline.answer(capability.name, question, scope)
            took += [StageTime(f"of it {stage}", round(1000 * seconds, 1)) for stage, seconds in answer.seconds.items()]
        return PlaygroundResult(
            asked,
            hits,
            len(candidates),
            await self._sentences(question, evidence.context, answer),
            _gate(engine, evidence),
            await self._prompt(capability, question, evidence.context),
            None
            if answer is None
            else PlaygroundAnswer(
                answer.text,
                answer.refusal and answer.refusal.value,
                answer.confidence,
                answer.model,
                [
                    as_wire(PlaygroundCitation, each.hit, number=each.number, quote=each.quote)
                    for each in answer.citations
                ],
            ),
            took,
        )

    async def _sentences(self, question: Question, context: Context, answer: Answer | None) -> list[ScoredSentence]:
        ranking = context.ranking or await rank_passages(self._embedder, question, context)
        parts, wanted = score_passages(ranking, context), content_words(question.searched or question.text)
        found = [
            ScoredSentence(
                source=passage.block + 1,
                text=f"{passage.lead} {passage.text}".strip(),
                cosine=round(float(ranking.cosines[0][place]), 4),
                words=round(len(wanted & content_words(passage.text)) / max(1, len(wanted)), 4),
                source_cosine=round(context.blocks[passage.block].score, 4),
                score=round(float(parts.scores[:, place].max()), 4),
                chosen=answer is not None and not answer.refused and _is_in(passage.text, answer.text),
            )
            for place, passage in enumerate(ranking.ranked)
        ]
        return sorted(found, key=lambda each: -each.score)[:SENTENCES]

    async def _prompt(self, capability: Capability, question: Question, context: Context) -> PlaygroundPrompt | None:
        if not context.blocks:
            return None
        drawn = await self._prompts.draw(capability.prompt)
        prompt: Prompt = (
            load_prompts(resource_folder("prompts"))[capability.prompt] if drawn is None else template_of(drawn)
        )
        told = messages_of(prompt, question, context.text)
        messages = [PromptMessage(each.role.value, each.content or "") for each in told]
        return PlaygroundPrompt(f"{prompt.name}_{prompt.version}", messages)


def _hits(
    found: Sequence[NodeWithScore], candidates: Sequence[Candidate], threshold: float | None
) -> list[PlaygroundHit]:
    by_id = {each.id: each for each in candidates}
    by_cosine = {each.id: place for place, each in enumerate(sorted(candidates, key=lambda c: (-c.cosine, c.id)), 1)}
    matching = sorted((each for each in candidates if each.bm25 > 0), key=lambda c: (-c.bm25, c.id))
    by_words = {each.id: place for place, each in enumerate(matching, 1)}
    return [
        as_wire(
            PlaygroundHit,
            hit,
            rank=place,
            cosine=round(min(1.0, max(-1.0, by_id[hit.chunk_id].cosine)), 4),
            cosine_rank=by_cosine[hit.chunk_id],
            bm25=round(by_id[hit.chunk_id].bm25, 4),
            words_rank=by_words.get(hit.chunk_id),
            kept=threshold is None or by_id[hit.chunk_id].cosine >= threshold,
        )
        for place, hit in enumerate(map(to_hit, found), 1)
    ]


def _gate(engine: CapabilityEngine, evidence: Evidence) -> GateSignals:
    judgment = evidence.judgment
    signals = {**asdict(judgment.signals), "mean of the five best": average_relevance(evidence.hits)}
    return GateSignals(
        confidence=evidence.confidence,
        answers=not engine.refuses(evidence),
        basis=judgment.basis,
        probability=judgment.probability,
        signals={name: round(value, 4) for name, value in signals.items()},
    )


def _is_in(sentence: str, answer: str) -> bool:
    """Whether an answer has a sentence, whose end a citation may have moved.

    >>> _is_in("A cut is $40.", "A cut is $40 [Source 1].")
    True
    """
    return sentence.rstrip(" .!?…") in answer


PLAYGROUND = "/api/v1/playground"
SURFACE = Surface(
    name="playground",
    tag=Tag(
        "Playground", "a question step by step: hits, confidence signals, prompt and times; requires the role admin"
    ),
    paths=(PLAYGROUND,),
    limit=60,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION}),
    errors=(
        Unauthenticated("The token has expired"),
        Forbidden(ADMINISTRATORS_ONLY),
        UnknownField("colour", []),
        StoreFailed(),
        RuntimeError(),
    ),
    options=STRICT,
)


@SURFACE.get(PLAYGROUND, summary="List indexes and organizations to choose from")
async def options(request: Caller, playground: Injected[Playground]) -> PlaygroundOptions:
    """Returns the indexes with their filterable fields, and your organizations."""
    return await playground.options(request.user)


@SURFACE.post(
    PLAYGROUND,
    InvalidInput("configurations[0].top_k", 99, "a whole number from 1 to 50"),
    UnknownField("configurations[0].colour", Configuration.__struct_fields__),
    NotFound("index", "boook", ["book", "org_knowledge"]),
    EmbeddingFailed(),
    ModelFailed(),
    BudgetSpent(1_000_000, 1_000_400, 1704067200),
    summary="Ask a question in one or two configurations and show every step",
)
async def ask(
    request: Caller,
    data: Annotated[PlaygroundRequest, BodyKwarg(examples=[example(__package__, "ask")])],
    playground: Injected[Playground],
) -> PlaygroundResponse:
    """Returns the hits with their dense and lexical scores and ranks, the candidate sentences for an extractive answer, the
    confidence signals, the prompt, the answer, and the time of each stage. Answers by a model count against the token
    budget."""
    return await playground.ask(request.user, data)


@SURFACE.post(
    f"{PLAYGROUND}/judgments",
    InvalidInput("organization", None, "is required unless you are a member of exactly one organization"),
    NotFound("chunk", "6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"),
    summary="Judge whether a chunk answers a question",
)
async def judge(
    request: Caller,
    data: Annotated[NewJudgment, BodyKwarg(examples=[example(__package__, "judgment")])],
    playground: Injected[Playground],
) -> KeptJudgment:
    """Stores a judgment of your organization for this passage. Judging it again replaces the earlier judgment."""
    return await playground.judge(request.user, data)
