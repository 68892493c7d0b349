"""The engine as LlamaIndex' users call it: bundles, events, prompts, nodes of other retrievers."""

from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from llama_index.core import MockEmbedding
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
from llama_index_instrumentation import root_dispatcher
from msgspec.structs import replace

from rag_app.answering.asked import QuestionBundle
from rag_app.answering.engine import CapabilityEngine, answer_of
from rag_app.answering.gate import FixedGate
from rag_app.answering.models import ChatModel
from rag_app.answering.prompts import load_prompts
from rag_app.answering.providers import ModelSettings, build_llm
from rag_app.answering.synthesizers import ModelSynthesizer
from rag_app.domain.answer import Question
from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.retrieval.foreign import adopt, with_cosines
from rag_app.retrieval.fusion import Candidate
from rag_app.retrieval.index import ConfidenceRule
from rag_app.retrieval.periods import find_period
from rag_app.retrieval.retriever import ChunkRetriever
from rag_app.retrieval.store import Search
from tests.scripted_model import Reply, ScriptedModel
from tests.unit.answering.hits import Found
from tests.unit.answering.test_engine import OWNER, WAITED, Says, engine
from tests.unit.retrieval.shelf import Counted, Shelf, opening
from tests.unit.retrieval.test_retriever import SPEC

ROOT = Path(__file__).parents[3]
SCOPE = Scope(frozenset({PUBLIC_ORGANIZATION}))
SAID = "One waited almost 15 minutes [Source 1]."


class Events(BaseEventHandler):
    """Which events there were."""

    names: list[str] = Field(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.names.append(type(event).__name__)


async def test_one_question_is_one_query_to_whoever_listens() -> None:
    listening, root = Events(), root_dispatcher
    root.add_event_handler(listening)
    try:
        asked = engine(Says(SAID), WAITED)
        await asked.answer(Question("How long?"))
        assert [listening.names.count(f"{each}StartEvent") for each in ("Query", "Retrieval")] == [1, 1]
        assert [listening.names.count(f"{each}EndEvent") for each in ("Query", "Retrieval")] == [1, 1]
        listening.names.clear()
        async for _ in asked.stream(Question("How long?")):
            pass
        assert [listening.names.count(f"{each}StartEvent") for each in ("Query", "Retrieval")] == [1, 1]
    finally:
        root.event_handlers.remove(listening)


async def test_a_bundle_a_text_and_a_question_are_answered_alike() -> None:
    asked = engine(Says(SAID), WAITED)
    responses = [
        await asked.aquery(each)
        for each in ("How long?", QueryBundle("How long?"), QuestionBundle(Question("How long?")))
    ]
    first, *others = [
        replace(answer_of(each), generated_at=answer_of(responses[0]).generated_at, seconds={}) for each in responses
    ]
    assert first.text == SAID and all(each == first for each in others)
    assert (responses[0].metadata or {})["citations"][0]["quote"] in WAITED.text
    stream: Any = await asked.aquery(QuestionBundle(Question("How long?"), streamed=True))
    assert "".join([piece async for piece in stream.response_gen]) == SAID
    assert [each.node.get_content() for each in stream.source_nodes] == [WAITED.text]


class Seeing(Shelf):
    """Remembers the vectors that it is asked for."""

    async def candidates(self, asked: Search) -> list[Candidate]:
        self.backend.setdefault("vectors", []).append(asked.vector)
        return await super().candidates(asked)


async def test_the_embedding_of_a_bundle_is_what_is_searched() -> None:
    store, embedder = (
        Seeing(spec=SPEC, generation="g1", scope=SCOPE, backend={"hits": [], "asked": []}),
        Counted(embed_dim=3),
    )
    await ChunkRetriever(opening(store), embedder, Question("")).aretrieve(QueryBundle("?", embedding=[0.0, 1.0, 0.0]))
    assert store.backend["vectors"] == [[0.0, 1.0, 0.0]] and embedder.embedded == []
    texts = ["A door that opens.", "Hinges."]
    rewritten = QueryBundle("?", custom_embedding_strs=texts)
    await ChunkRetriever(opening(store), embedder, Question("")).aretrieve(rewritten)
    assert embedder.embedded == texts, "the question itself is not embedded"
    with pytest.raises(InvalidInput, match="embedding: must be numbers, not all of them zero"):
        await ChunkRetriever(opening(store), embedder, Question("")).aretrieve(QueryBundle("?", embedding=[0.0] * 3))
    strict = ChunkRetriever(opening(store), embedder, Question(""), dimension=384)
    with pytest.raises(InvalidInput, match="embedding: has 2 dimensions, the index has 384"):
        await strict.aretrieve(QueryBundle("whatever", embedding=[1.0, 0.0]))


class Takes(BaseRetriever):
    """Remembers its bundles."""

    def __init__(self) -> None:
        super().__init__()
        self.bundles: list[QueryBundle] = []

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.bundles.append(query_bundle)
        return []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        raise NotImplementedError


async def test_an_engine_hands_the_embedding_on() -> None:
    takes = Takes()
    await engine_over(takes).aquery(QueryBundle("How long?", embedding=[0.6, 0.8]))
    await engine_over(takes).aquery(QueryBundle("How long?", custom_embedding_strs=["Long."]))
    assert [(each.query_str, each.embedding, each.custom_embedding_strs) for each in takes.bundles] == [
        ("How long?", [0.6, 0.8], None),
        ("How long?", None, ["Long."]),
    ]


def engine_over(retriever: BaseRetriever, *texts: str) -> CapabilityEngine:
    rule = FixedGate(ConfidenceRule(answer_from=0.45, high=0.7))
    return CapabilityEngine(OWNER, rule, retriever, [], Says(*texts or [SAID]))


async def test_words_of_time_in_a_text_are_a_period_as_on_every_surface() -> None:
    looked: list[Question] = []

    def prepare(question: Question) -> tuple[BaseRetriever, list[BaseNodePostprocessor]]:
        looked.append(question)
        return Found(WAITED), []

    async def dated(question: Question) -> Question:
        today = date(2026, 3, 4)
        return replace(question, today=today, period=find_period(question.text, today))

    rule = FixedGate(ConfidenceRule(answer_from=0.45, high=0.7))
    asked = CapabilityEngine(
        OWNER, rule, Takes(), [], Says(SAID), prepare=prepare, question=Question("", top_k=3), dated=dated
    )
    assert str(await asked.aquery("How long did they wait last week?")) == SAID
    assert looked[0].period and looked[0].top_k == 3 and looked[0].text == "How long did they wait last week?"


class Foreign(BaseRetriever):
    """Another retriever: nodes as it made them."""

    def __init__(self, *nodes: NodeWithScore) -> None:
        super().__init__()
        self.nodes = nodes

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return list(self.nodes)


def foreign(text: str, score: float | None = 0.8, document: str | None = None, **metadata: Any) -> NodeWithScore:
    node = TextNode(id_=f"n-{text[:3]}", text=text, metadata=metadata)
    if document:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    return NodeWithScore(node=node, score=score)


async def test_nodes_of_another_retriever_answer_and_are_marked() -> None:
    waited = foreign(WAITED.text, document="calls.txt", file_name="calls.txt", page_label="3", date="last week")
    response = await engine_over(Foreign(waited)).aquery("How long?")
    answer = answer_of(response)
    (cited,) = answer.citations
    assert answer.text == SAID and cited.hit.foreign and (response.metadata or {})["citations"][0]["foreign"]
    assert (cited.hit.title, cited.hit.page, cited.hit.date, cited.hit.file_name) == ("calls.txt", 3, None, "calls.txt")
    again = adopt([foreign("Another line.", document="calls.txt")])[0].node.metadata
    assert again["source_id"] == str(cited.hit.source_id), "a document is one source"


async def test_synthesizing_takes_whatever_nodes() -> None:
    asked = engine_over(Takes())
    response = await asked.asynthesize(QueryBundle("How long?"), [foreign(WAITED.text)], [foreign("Beside it.")])
    assert str(response) == SAID and len(response.source_nodes) == 2
    assert [each.node.get_content() for each in await engine(Says(SAID), WAITED).aretrieve(QueryBundle("?"))] == [
        WAITED.text
    ]
    retriever = Found(WAITED)
    assert engine_over(retriever).retriever is retriever


def test_what_belongs_to_others_is_left_out() -> None:
    mine, other, site, user = (uuid4() for _ in range(4))
    nodes = [
        foreign("a", org_id=str(mine)), foreign("b", org_id=str(other)), foreign("c"),
        foreign("d", org_id=str(mine), private_to=str(other)), foreign("e", org_id=str(mine), private_to=str(user)),
        foreign("f", org_id=str(mine), site_id=str(other)),
    ]  # fmt: skip
    kept = adopt(nodes, Scope(frozenset({mine}), user, site))
    assert [each.node.get_content() for each in kept] == ["a", "c", "e"]


@pytest.mark.parametrize("score", [None, float("nan"), 17.3, -4.0])
async def test_scores_of_another_scale_become_cosines(score: float | None) -> None:
    near, far = foreign("near", score), foreign("far", score)
    near.node.embedding, far.node.embedding = [3.0, 4.0], [-3.0, -4.0]
    assert all(-1 <= (each.score or 0.0) <= 1 for each in adopt([near, far]))
    scored = await with_cosines(adopt([near, far]), QueryBundle("?", embedding=[0.6, 0.8]), MockEmbedding(embed_dim=2))
    assert [each.score for each in scored] == pytest.approx([1.0, -1.0])


async def test_prompts_are_shown_and_replaced_for_one_engine() -> None:
    prompts = load_prompts(ROOT / "prompts")
    with ScriptedModel(Reply(SAID)) as server:
        settings = ModelSettings("any", api_base=server.url)
        model = ChatModel(build_llm(settings), settings)

        def made() -> CapabilityEngine:
            return engine(ModelSynthesizer(model, prompts["owner_ask"]), WAITED)

        asked = made()
        assert list(asked.get_prompts()) == ["synthesizer:owner_ask"]
        own = PromptTemplate("Be short.\n{context_str}\nQ: {query_str}")
        asked.update_prompts({"synthesizer:owner_ask": own})
        assert str(await asked.aquery("How long?")) == SAID
        assert server.requests[-1].prompt.startswith("Be short.\n[Source 1]")
        assert server.requests[-1].prompt.endswith("Q: How long?")
        await made().aquery("How long?")
        assert "Be short." not in server.requests[-1].prompt, "other engines keep theirs"
        with pytest.raises(Misconfigured, match="prompt owner_ask: missing context"):
            made().update_prompts({"synthesizer:owner_ask": PromptTemplate("{query_str}")})
        with pytest.raises(Misconfigured, match="there is no prompt poem: this one is owner_ask"):
            made().update_prompts({"synthesizer:poem": own})
        await model.aclose()
