"""LlamaIndex parts of one's own: as objects, by capability, and by an operator's file alone; ordinary nodes put in."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any
from uuid import uuid4

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import CompletionResponse, CompletionResponseGen, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.response_synthesizers import SimpleSummarize
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode
from msgspec.structs import replace

import rag_app
from rag_app import Rag
from rag_app.answering.asked import EngineResponse
from rag_app.answering.capabilities import CAPABILITIES, capability_named, register
from rag_app.answering.parts import Parts
from rag_app.application import Application
from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.text import sentence_pieces, tokens
from rag_app.surfaces.library.rag import question_of
from tests.conftest import SEVERAL
from tests.integration.conftest import ON_DEFAULT
from tests.scripted_model import Reply, ScriptedModel

INDEX = "org_knowledge"
OPEN, LATE = "The workshop opens at nine on weekdays.", "Deliveries are taken until six in the evening."
MINILM = MiniLM()
WHEN = "When does the workshop open?"


async def put_in(rag: Rag, *texts: str, **asked: Any) -> tuple[str, list[str]]:
    """An organization of its own with a node for each text, and the nodes' ids."""
    slug = f"own-{uuid4().hex[:12]}"
    await rag.create_organization(slug)
    store = await rag.store(index=INDEX, organization=slug, **asked)
    index = VectorStoreIndex.from_vector_store(store, embed_model=rag.embedder)
    nodes = [TextNode(text=text) for text in texts]
    await index.ainsert_nodes(nodes)
    return slug, [node.node_id for node in nodes]


@ON_DEFAULT
async def test_ordinary_nodes_are_found_answered_from_and_deleted(application: Application) -> None:
    rag = Rag(application)
    slug, ids = await put_in(rag, OPEN, LATE)
    other, _ = await put_in(rag, "Nothing of that.")
    hits = await rag.search(WHEN, index=INDEX, organization=slug, top_k=1)
    assert [str(each.chunk_id) for each in hits] == ids[:1] and hits[0].title == OPEN
    assert {each.text for each in await rag.search(WHEN, index=INDEX, organization=other)} == {"Nothing of that."}
    answer = await rag.ask(WHEN, index=INDEX, organization=slug)
    assert [each.hit.text for each in answer.citations] == [OPEN] and not answer.hits[0].foreign
    store = await rag.store(index=INDEX, organization=slug)
    assert [each.get_content() for each in await store.aget_nodes(ids)] == [OPEN, LATE]
    await (await rag.store(index=INDEX, organization=other)).adelete(ids[0])
    assert len(await store.aget_nodes(ids)) == 2, "another organization's store deletes nothing here"
    await store.adelete(ids[0])
    assert [each.get_content() for each in await store.aget_nodes(ids)] == [LATE]


@ON_DEFAULT
async def test_a_pipeline_writes_documents_again_and_again(application: Application) -> None:
    """By the document that its nodes name: a source with its metadata, whole after a rebuild, too."""
    rag = Rag(application)
    slug, _ = await put_in(rag, LATE)
    store = await rag.store(index=INDEX, organization=slug)
    splitter = SentenceSplitter(chunk_size=60, chunk_overlap=0, tokenizer=tokens, chunking_tokenizer_fn=sentence_pieces)
    pipeline = IngestionPipeline(transformations=[splitter, rag.embedder], vector_store=store)
    text = f"{OPEN} " + " ".join(f"Shelf {number} holds brass hinges of {number} millimetres." for number in range(12))
    said = {"file_name": "house.md", "title": "The house", "date": "2026-03-04", "shelf_mark": "B7"}
    document = Document(id_="house", text=text, metadata=said)
    nodes = await pipeline.arun(documents=[document])
    assert len(nodes) > 2
    (first, *_) = await rag.search("Which shelf holds hinges of 7 millimetres?", index=INDEX, organization=slug)
    assert (first.title, first.file_name, first.external_id) == ("The house", "house.md", "house")
    assert first.moment and first.moment.isoformat().startswith("2026-03-04") and first.untyped["shelf_mark"] == "B7"
    await store.async_add([replace_text(nodes[0], "The workshop opens at ten.")])
    organization = await application.people.organization(slug)
    kept = (await application.ledger.read_passages(organization.id, [first.source_id]))[first.source_id]
    texts = [each["text"] for each in kept]
    assert (
        len(texts) == len(nodes) and "The workshop opens at ten." in texts and not any(OPEN in each for each in texts)
    )
    builds = await application.ledger.builds(
        organization.id, (await application.backends.active(application.indexes[INDEX])).id, [first.source_id]
    )
    assert builds[first.source_id].chunks == len(nodes)
    await store.adelete("house")
    found = await rag.search("hinges", index=INDEX, organization=slug, top_k=20)
    assert {each.text for each in found} == {LATE}


@ON_DEFAULT
async def test_words_of_time_in_a_text_are_a_period(application: Application) -> None:
    """As on every surface, whoever asks the engine."""
    rag = Rag(application)
    slug, _ = await put_in(rag, LATE)
    engine = await rag.engine(index=INDEX, organization=slug)
    for text in ("Until when were deliveries taken last week?", "Until when are deliveries taken?"):
        assert "six in the evening" in str(await engine.aquery(text)), text


def replace_text(node: Any, text: str) -> TextNode:
    return TextNode(id_=node.node_id, text=text, embedding=node.embedding, relationships=node.relationships)


@ON_DEFAULT
async def test_nodes_that_cannot_be_kept_are_refused(application: Application) -> None:
    rag = Rag(application)
    slug, _ = await put_in(rag, OPEN)
    store, vector = await rag.store(index=INDEX, organization=slug), [0.1] * 384
    for node, problem in (
        (TextNode(text="x"), "embedding: a node needs its embedding"),
        (TextNode(text="x", embedding=[0.1] * 3), "has 3 dimensions, org_knowledge has 384"),
        (TextNode(text=" ", embedding=vector), "text: a node without a text"),
        (TextNode(text="x", embedding=vector, metadata={"org_id": str(uuid4())}), "org_id: is not the organization"),
        (TextNode(text="x", embedding=vector, metadata={"source_type": "poem"}), "source_type: 'poem'; accepted"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            await store.async_add([node])
    scoped = await application.backends.open(application.indexes[INDEX], store.scope)
    with pytest.raises(InvalidInput, match=r"goes into a store that `rag\.store"):
        await scoped.async_add([TextNode(text="x", embedding=vector)])


class Shifted(MockEmbedding):
    """The built-in model behind a class of one's own, without async calls; fails the first time."""

    fails: list[str] = []  # noqa: RUF012 - a field of a pydantic model

    def _get_query_embedding(self, query: str) -> list[float]:
        if query not in self.fails:
            self.fails.append(query)
            raise ConnectionError("gone")
        return MINILM.get_query_embedding(query)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return MINILM.get_text_embedding_batch(texts)

    _aget_text_embedding = BaseEmbedding._aget_text_embedding
    _aget_text_embeddings = BaseEmbedding._aget_text_embeddings


@SEVERAL
@ON_DEFAULT
async def test_open_takes_an_embedder_that_fits_the_indexes(application: Application) -> None:
    slug, _ = await put_in(Rag(application), OPEN, LATE)
    async with rag_app.open(embedder=Shifted(embed_dim=384, model_name=MINILM.model_name)) as rag:
        assert (await rag.search(WHEN, index=INDEX, organization=slug))[0].text == OPEN
        assert (await rag.ask(WHEN, index=INDEX, organization=slug)).citations[0].hit.text == OPEN
    for embedder, problem in (
        (Shifted(embed_dim=384), "Shifted has no model_name, by which an index remembers its embedder"),
        (MockEmbedding(embed_dim=3, model_name="three"), r"was built with all-MiniLM.*three \(3\)"),
    ):
        with pytest.raises(Misconfigured, match=problem):
            async with rag_app.open(embedder=embedder):
                pass


class Parrot(CustomLLM):
    """Cites the first source in the words it is given; has no async calls."""

    says: str = "The workshop opens at nine on weekdays [Source 1]."
    prompts: list[str] = []  # noqa: RUF012 - a field of a pydantic model
    threads: list[Any] = []  # noqa: RUF012 - a field of a pydantic model

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="parrot")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        assert not kwargs
        self.prompts.append(prompt)
        self.threads.append(current_thread())
        return CompletionResponse(text=self.says)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        raise AssertionError("blocks the event loop")


class Reversed(BaseNodePostprocessor):
    """The last comes first, or an error."""

    fails: bool = False

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if self.fails:
            raise ValueError("the question is secret")
        return [NodeWithScore(node=each.node, score=99.0) for each in reversed(nodes)]


class Notes(BaseRetriever):
    """A retriever that nobody here wrote; its scores are of a scale of its own."""

    def __init__(self, *texts: str) -> None:
        super().__init__()
        self.texts = texts

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=TextNode(text=text), score=17.0) for text in self.texts]


@SEVERAL
@ON_DEFAULT
async def test_open_takes_a_model_a_postprocessor_and_a_synthesizer(application: Application) -> None:
    slug, _ = await put_in(Rag(application), OPEN, LATE)
    asked: dict[str, Any] = {"index": INDEX, "organization": slug}
    parrot = Parrot()
    async with rag_app.open(llm=parrot, postprocessors=[Reversed()]) as rag:
        answer = await rag.ask(WHEN, **asked)
        assert (answer.text, answer.model) == (parrot.says.replace("1", "2"), "parrot") or answer.refused
        assert [each.text for each in answer.hits] == [LATE, OPEN] and all(abs(each.score) <= 1 for each in answer.hits)
        assert f"> {LATE}" in parrot.prompts[-1].split("[Source 2]")[0]
        engine = await rag.engine(organization=slug, capability="knowledge_answer")
        streamed = [
            each
            async for each in rag.application.pipeline.stream(
                "knowledge_answer", engine._question, engine_scope(engine)
            )
        ]
        assert streamed and parrot.threads and main_thread() not in parrot.threads
    qa = PromptTemplate("Say something of {context_str} for {query_str}")
    async with rag_app.open(synthesizer=SimpleSummarize(llm=parrot, text_qa_template=qa)) as rag:
        engine = await rag.engine(organization=slug, capability="knowledge_answer")
        assert "synthesizer:text_qa_template" in engine.get_prompts()
        response = await engine.aquery(WHEN)
        assert isinstance(response, EngineResponse) and response.answer and response.answer.asked == "SimpleSummarize"
        assert str(response) == parrot.says and "[Source 1] (Relevance" in parrot.prompts[-1]


@SEVERAL
@ON_DEFAULT
async def test_a_mere_order_keeps_what_is_found_and_judged(application: Application) -> None:
    """The best hits go where `LongContextReorder` wants them, and are not cut off; a sentence is cited where it is then."""
    shelves = [f"Shelf {number} of the workshop holds brass hinges of {number} millimetres." for number in range(30)]
    slug, _ = await put_in(Rag(application), *shelves, OPEN)
    asked: dict[str, Any] = {"index": INDEX, "organization": slug}
    found = []
    for postprocessors in ([], [LongContextReorder()]):
        async with rag_app.open(postprocessors=postprocessors) as rag:
            engine = await rag.engine(**asked)
            evidence = await engine.gather(question_of(WHEN, 8, "hybrid", []))
            found.append((evidence, await rag.ask(WHEN, **asked)))
    (plain, said), (ordered, said_of_ordered) = found
    assert {hit.text for hit in plain.hits} == {hit.text for hit in ordered.hits} and len(plain.hits) == 8
    assert plain.hits[0].text == OPEN and ordered.hits[-1].text == OPEN
    assert ordered.judgment.signals == plain.judgment.signals and ordered.confidence is plain.confidence
    assert [block.number for block in ordered.context.blocks] == [1, 2, 3, 4, 5]
    texts = [[block.hits[0].text for block in each.context.blocks] for each in (plain, ordered)]
    assert sorted(texts[0]) == sorted(texts[1]) and texts[0] != texts[1]
    for evidence in (plain, ordered):
        assert evidence.context.ranking is not None
        assert OPEN in evidence.context.blocks[evidence.context.ranking.likeliest.block].body
    assert said.text == said_of_ordered.text and said_of_ordered.citations[0].hit.text == OPEN


def engine_scope(engine: Any) -> Any:
    return engine.retriever._open_store.args[1]


@SEVERAL
@ON_DEFAULT
async def test_a_postprocessor_that_fails_leaves_the_order_and_is_told(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    slug, _ = await put_in(Rag(application), OPEN, LATE)
    async with rag_app.open(postprocessors=[Reversed(fails=True)]) as rag:
        with caplog.at_level(logging.WARNING):
            response = await (await rag.engine(index=INDEX, organization=slug)).aquery(WHEN)
        warning = "Reranking by Reversed failed; the order is that of the search"
        assert warning in (response.metadata or {})["warnings"] and [each.text for each in response.source_nodes] == [
            OPEN,
            LATE,
        ]
    assert f"{warning}: ValueError" in caplog.text and "secret" not in caplog.text


@SEVERAL
@ON_DEFAULT
async def test_a_retriever_of_ones_own_alone_and_fused_with_ours(application: Application) -> None:
    slug, _ = await put_in(Rag(application), LATE)
    asked: dict[str, Any] = {"index": INDEX, "organization": slug}
    async with rag_app.open(retriever=Notes(OPEN)) as rag:
        answer = await rag.ask(WHEN, **asked)
        assert [each.hit.foreign for each in answer.citations] == [True] and answer.citations[0].hit.text == OPEN
        assert 0.3 < answer.hits[0].score < 1, "a cosine, and not 17"

    def fused(ours: BaseRetriever, scope: object) -> BaseRetriever:
        return QueryFusionRetriever(
            [ours, Notes(OPEN)], llm=MockLLM(), num_queries=1, use_async=True, similarity_top_k=5
        )

    async with rag_app.open(retriever=fused) as rag:
        answer = await rag.ask(WHEN, **asked)
        assert {each.text: each.foreign for each in answer.hits} == {OPEN: True, LATE: False}
        assert answer.citations[0].hit.text == OPEN


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"postprocessors": ["x"]}, "postprocessors: a LlamaIndex BaseNodePostprocessor is needed, not str"),
        ({"llm": "gpt"}, "llm: a LlamaIndex LLM is needed, not str"),
        ({"retriever": 5}, "retriever: a LlamaIndex BaseRetriever is needed, not int"),
    ],
)
async def test_a_part_of_another_class_is_refused_before_anything_is_opened(part: Any, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        async with rag_app.open(**part):
            pass


@SEVERAL
@ON_DEFAULT
async def test_a_registered_capability_has_parts_of_its_own(application: Application) -> None:
    slug, _ = await put_in(Rag(application), OPEN)
    mine = register(replace(capability_named("knowledge_answer"), name="parrot_answer", parts=Parts(llm=Parrot())))
    asked: dict[str, Any] = {"index": INDEX, "organization": slug}
    try:
        async with rag_app.open() as rag:
            said = [await rag.ask(WHEN, **asked, capability=each) for each in ("parrot_answer", "knowledge_answer")]
    finally:
        CAPABILITIES.remove(mine)
    assert [each.model for each in said] == ["parrot", "extractive"]


MINE = {
    "embedder.py": '''
from llama_index.core.base.embeddings.base import BaseEmbedding
from rag_app.retrieval.embedding import MiniLM

class Mine(BaseEmbedding):
    suffix: str
    def _get_query_embedding(self, query): return MiniLM().get_query_embedding(query + self.suffix)
    def _get_text_embedding(self, text): return MiniLM().get_text_embedding(text + self.suffix)
    async def _aget_query_embedding(self, query): return self._get_query_embedding(query)
''',
    "model.py": '''
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata

class Mine(CustomLLM):
    key: str
    max_retries: int = 7
    @property
    def metadata(self): return LLMMetadata(model_name="mine")
    def complete(self, prompt, formatted=False, **kwargs):
        assert self.key == "s3cret" and self.max_retries == 0
        return CompletionResponse(text="The workshop opens at nine on weekdays [Source 1].")
    def stream_complete(self, prompt, formatted=False, **kwargs): yield self.complete(prompt)
''',
    "order.py": '''
from llama_index.core.postprocessor.types import BaseNodePostprocessor

class Mine(BaseNodePostprocessor):
    longest: bool
    def _postprocess_nodes(self, nodes, query_bundle=None):
        return sorted(nodes, key=lambda each: len(each.node.get_content()), reverse=self.longest)
''',
}  # fmt: skip
FILE = """
[embedding]
class = "embedder.py:Mine"
arguments = { suffix = "" }
dimension = 384
model = "all-MiniLM-L6-v2-int8"

[models.default]
class = "model.py:Mine"
arguments = { key = { env = "MY_MODEL_KEY" } }

[rerank.default]
class = "order.py:Mine"
arguments = { longest = true }
"""


@SEVERAL
@ON_DEFAULT
async def test_parts_in_a_file_each_by_config_alone(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug, _ = await put_in(Rag(application), OPEN, LATE)
    for name, text in MINE.items():
        (tmp_path / name).write_text(text, "utf-8")
    file = tmp_path / "models.toml"
    file.write_text(FILE, "utf-8")
    monkeypatch.setenv("RAG_MODELS_FILE", str(file))
    with pytest.raises(
        Misconfigured,
        match=r"models\.default: arguments\.[a-z_]+: The environment variable that holds this secret is not set",
    ):
        async with rag_app.open():
            pass
    monkeypatch.setenv("MY_MODEL_KEY", "s3cret")
    async with rag_app.open() as rag:
        answer = await rag.ask(WHEN, index=INDEX, organization=slug)
        assert [each.text for each in answer.hits] == [LATE, OPEN] and answer.asked == "mine"
    for broken, problem in (
        (FILE.replace('"all-MiniLM-L6-v2-int8"', '"mine-2"'), r"was built with all-MiniLM-L6-v2-int8 \(384 dimensions\), .* mine-2"),
        (FILE.replace("embedder.py:Mine", "embedder.py:Yours"), "embedding: class embedder.py:Yours: module .* has no Yours"),
        (FILE.replace("model.py:Mine", "embedder.py:Mine"), "models.default: class embedder.py:Mine is not a subclass of .*LLM"),
        (FILE.replace("longest = true", "longest = true, wide = 1").replace("longest = true", "short = 1"), "rerank.default: class order.py:Mine: cannot be created from"),
        (FILE.replace("order.py:Mine", "llama_index.postprocessor.nowhere.Order"), "pip install llama-index-postprocessor-nowhere"),
    ):  # fmt: skip
        file.write_text(broken, "utf-8")
        with pytest.raises(Misconfigured, match=problem) as refused:
            async with rag_app.open():
                pass
        assert "s3cret" not in str(refused.value)


def ranks(kind: str) -> Any:
    """An endpoint that likes deliveries."""

    def reply(body: dict[str, Any]) -> Reply:
        texts: Sequence[str] = body["texts"] if kind == "tei" else body["documents"]
        scores = [1.0 if "Deliveries" in text else 0.1 for text in texts]
        score = "score" if kind == "tei" else "relevance_score"
        rows = [{"index": place, score: value} for place, value in enumerate(scores)]
        return Reply(body=json.dumps(rows if kind == "tei" else {"results": rows}))

    return reply


@SEVERAL
@ON_DEFAULT
async def test_an_endpoint_puts_hits_in_order(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slug, _ = await put_in(Rag(application), OPEN, LATE)
    file = tmp_path / "models.toml"
    monkeypatch.setenv("RAG_MODELS_FILE", str(file))
    monkeypatch.setenv("RERANK_KEY", "r3rank")
    for kind in ("tei", "cohere", "jina"):
        with ScriptedModel(ranks(kind)) as server:
            model = "" if kind == "tei" else 'model = "reranker-v2"\n'
            file.write_text(
                f'[rerank.default]\nkind = "{kind}"\nurl = "{server.url}/rerank"\n{model}api_key_env = "RERANK_KEY"\ntimeout = 60\n',
                "utf-8",
            )
            async with rag_app.open() as rag:
                answer = await rag.ask(WHEN, index=INDEX, organization=slug)
                hits = await rag.search(WHEN, index=INDEX, organization=slug)
        assert [each.text for each in answer.hits] == [LATE, OPEN] and not answer.warnings, kind
        assert {each.text: each.score for each in answer.hits} == {each.text: each.score for each in hits}
        (request,) = server.requests
        assert request.headers["Authorization"] == "Bearer r3rank" and request.body["query"] == WHEN
        assert request.body.get("model") == (None if kind == "tei" else "reranker-v2")


@SEVERAL
@ON_DEFAULT
@pytest.mark.parametrize(
    ("reply", "timeout", "said"),
    [
        (Reply(status=503), 60, "failed"),
        (Reply(body="[]", delay_s=30), 0.2, "took more than 0.2 s"),
        (Reply(body='[{"index": 9, "score": 1.0}]'), 60, "failed"),
        (Reply(body="<html>"), 60, "failed"),
    ],
)
async def test_an_endpoint_that_fails_changes_nothing_and_is_told(
    application: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, timeout: float, said: str
) -> None:
    slug, _ = await put_in(Rag(application), OPEN, LATE)
    file = tmp_path / "models.toml"
    monkeypatch.setenv("RAG_MODELS_FILE", str(file))
    with ScriptedModel(reply) as server:
        file.write_text(f'[rerank.default]\nkind = "tei"\nurl = "{server.url}"\ntimeout = {timeout}\n', "utf-8")
        async with rag_app.open() as rag:
            answer = await rag.ask(WHEN, index=INDEX, organization=slug)
    assert [each.text for each in answer.hits] == [OPEN, LATE] and not answer.refused
    assert answer.warnings == (f"Reranking by EndpointReranker {said}; the order is that of the search",)
