import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field

from rag_app.answering.reader import Reader
from rag_app.domain.errors import EmbeddingFailed, Misconfigured
from rag_app.retrieval.embedders import build_embedder
from rag_app.retrieval.embedding import MiniLM, OwnEmbedder, asking, asks_once, embed_passages, embed_query
from tests.waiting import PATIENCE

CARD = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM(cache_size=3)


async def test_the_model_cards_similarities(model: MiniLM) -> None:
    """The example of the sentence-transformers card: .666, .105, .141 (the int8 weights cost less than a hundredth)."""
    a, b, c = np.array(await model.aget_text_embedding_batch(CARD))
    assert [a @ b, a @ c, b @ c] == pytest.approx([0.666, 0.105, 0.141], abs=0.01)
    assert np.linalg.norm([a, b, c], axis=1) == pytest.approx([1, 1, 1], abs=1e-5)


async def test_every_way_in_gives_the_same_vector(model: MiniLM) -> None:
    text = CARD[0]
    ways = [
        model.get_text_embedding(text),
        model.get_query_embedding(text),
        model.get_text_embedding_batch([text])[0],
        await model.aget_text_embedding(text),
        await model.aget_query_embedding(text),
        (await model.aget_text_embedding_batch([text, "x"]))[0],
    ]
    assert all(way == ways[0] for way in ways)


async def test_a_question_has_the_same_vector_whatever_is_asked_beside_it() -> None:
    model = MiniLM(cache_size=0, threads=2)
    questions = [f"{n} " + "How long is the queue? " * (n % 7) for n in range(40)]
    together = await asyncio.gather(*map(model.aget_query_embedding, questions))
    alone = [await model.aget_query_embedding(question) for question in questions]
    assert together == alone == model.get_text_embedding_batch(questions)


async def test_questions_that_wait_are_encoded_together_where_they_are_about_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = MiniLM(cache_size=0, threads=1)
    encoded: list[list[int]] = []
    encode, begun, go_on = model._encode, threading.Event(), threading.Event()

    def held(texts: Sequence[Sequence[int]], session: object) -> list[list[float]]:
        encoded.append([len(text) for text in texts])
        begun.set()
        assert go_on.wait(PATIENCE)
        return encode(texts, session)

    monkeypatch.setattr(model, "_encode", held)
    first = asyncio.create_task(model.aget_query_embedding("first"))
    await asyncio.to_thread(begun.wait, 60)
    short, long = "a short one", "a word after another " * 10
    waiting = [asyncio.create_task(model.aget_query_embedding(text)) for text in [long, *[short] * 6, long, "gone"]]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    go_on.set()
    await asyncio.gather(first, *waiting)
    assert [len(each) for each in encoded] == [1, 2, 4, 2]
    assert all(max(each) == min(each) for each in encoded)


async def test_short_texts_of_a_length_are_encoded_together_and_hold_up_no_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = MiniLM(cache_size=0, threads=1)
    encoded: list[list[int]] = []
    encode, begun, go_on = model._encode, threading.Event(), threading.Event()

    def held(texts: Sequence[Sequence[int]], session: object) -> list[list[float]]:
        if threading.current_thread().name.startswith("embed-texts"):
            encoded.append([len(text) for text in texts])
            begun.set()
            assert go_on.wait(PATIENCE)
        return encode(texts, session)

    texts = [f"Note {n}: the queue is long." for n in range(10)] + ["word " * 150] * 2
    alone = [model.get_text_embedding(text) for text in texts]
    monkeypatch.setattr(MiniLM, "_encode", lambda self, *args: held(*args))
    embedding = asyncio.create_task(model.aget_text_embedding_batch(texts))
    await asyncio.to_thread(begun.wait, 60)
    assert await model.aget_query_embedding(texts[0]) == alone[0]
    go_on.set()
    assert await embedding == alone
    assert encoded == [[152], [152], [10] * 10]


async def test_a_failure_is_that_of_every_question_it_was_to_encode() -> None:
    model = MiniLM(cache_size=0, threads=1)
    works, model._session = model._session, None
    failed = await asyncio.gather(*[embed_query(model, "x") for _ in range(9)], return_exceptions=True)
    assert len(failed) == 9 and all(isinstance(each, EmbeddingFailed) for each in failed)
    model._session = works
    assert len(await model.aget_query_embedding("x")) == 384


async def test_the_cache_is_bounded_and_keeps_what_was_asked_last(model: MiniLM) -> None:
    for text in ("one", "two", "three", "one", "four"):
        await model.aget_query_embedding(text)
    assert [model.recall(text) is not None for text in ("one", "two", "three", "four")] == [True, False, True, True]
    assert sum(vector.nbytes for vector in model._queries.vectors.values()) == 3 * 4 * model.dimension


async def test_a_remembered_vector_has_the_same_figures(model: MiniLM) -> None:
    text = "What is remembered?"
    first = await model.aget_query_embedding(text)
    assert model.recall(text) == first == model.get_text_embedding(text)


def test_no_session_keeps_a_plan_for_each_shape_of_input() -> None:
    model = MiniLM(threads=2)
    model.load()
    for session in (model._session, model._session_alone, *Reader().load()):
        assert not session.get_session_options().enable_mem_pattern


async def test_a_session_that_was_loaded_is_kept() -> None:
    model = MiniLM(cache_size=0, threads=2)
    assert model._session_alone is None
    model.load()
    loaded = model._session_alone
    for _ in range(3):
        await model.aget_query_embedding("x")
    assert model._session_alone is loaded


async def test_a_process_that_asks_once_loads_no_further_session() -> None:
    asked = asks_once.set(True)
    model = MiniLM(cache_size=0, threads=2)
    asks_once.reset(asked)
    for _ in range(3):
        await model.aget_query_embedding("x")
    assert model._session_alone is None


def test_vectors_are_as_good_where_each_run_unpacks_the_weights() -> None:
    """In a process of its own: here all models are opened as in a server."""
    script = """\
import numpy as np
from rag_app.retrieval.embedding import MiniLM, asks_once
texts = ["Returns are free.", "word " * 300, "Within how many days are returns free, and who pays for the parcel?"]
usual = MiniLM().get_text_embedding_batch(texts)
asks_once.set(True)
assert np.abs(np.array(MiniLM().get_text_embedding_batch(texts)) - usual).max() < 1e-6
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc gives back memory when it is asked to")
def test_what_loading_leaves_behind_is_given_back() -> None:
    """75 MB a session before: the weights as they are stored, and what optimizing them took."""
    script = """\
import ctypes, re
from rag_app.retrieval.embedding import MiniLM
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
model = MiniLM()
before = resident()
ctypes.CDLL(None).malloc_trim(0)
print(before - resident())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(ended.stdout) < 25


async def test_long_and_empty_texts_have_vectors(model: MiniLM) -> None:
    for text in ("", " ", "word " * 5000, "\u200b", "🦄"):
        assert len(await model.aget_query_embedding(text)) == 384


async def test_the_event_loop_goes_on_while_texts_are_embedded(model: MiniLM) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await model.aget_text_embedding_batch([f"{n} " + "long text " * 200 for n in range(12)])
    ticking.cancel()
    assert ticks > 10


async def test_failures_have_one_name() -> None:
    class Broken(MiniLM):
        async def _aget_query_embedding(self, query: str) -> list[float]:
            raise ConnectionResetError("gone")

    with pytest.raises(EmbeddingFailed, match="gone"):
        await embed_query(Broken(), "x")
    with pytest.raises(Misconfigured, match="builtin, openai"):
        build_embedder("word2vec", "x", None, None)


async def test_what_one_organization_asked_is_no_faster_for_another() -> None:
    model = MiniLM(cache_size=3)
    one, other = frozenset({UUID(int=1)}), frozenset({UUID(int=2)})
    for organizations in (one, other, one):
        asking.set(organizations)
        await model.aget_query_embedding("the same question")
    assert {organizations for organizations, _ in model._queries.vectors} == {other, one}


class Counted(BaseEmbedding):
    """Its vectors are the length of each text; `texts` are all that it was asked for."""

    model_name: str = "counted"
    texts: list[str] = Field(default_factory=list)

    def _get_text_embedding(self, text: str) -> list[float]:
        self.texts.append(text)
        return [float(len(text)), 0.1]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


async def test_a_passage_is_embedded_once_for_each_organization() -> None:
    counted = Counted()
    embedder = OwnEmbedder(counted, dimension=2)
    for organization in (1, 2, 1):
        asking.set(frozenset({UUID(int=organization)}))
        vectors = await embed_passages(embedder, ["one", "three", "one"])
        assert vectors == pytest.approx(np.array([[3, 0.1], [5, 0.1], [3, 0.1]])), "the first and every later time"
    assert counted.texts == ["one", "three"] * 2
    asking.set(frozenset())
    await embed_passages(embedder, ["one"])
    assert counted.texts[4:] == ["one"], "nothing is remembered for nobody"


async def test_passages_take_as_much_memory_whatever_their_dimensions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_app.retrieval.embedding._PASSAGE_BYTES", 4 * 2 * 3)
    embedder = OwnEmbedder(Counted(), dimension=2)
    asking.set(frozenset({UUID(int=1)}))
    await embed_passages(embedder, ["a", "b", "c"])
    await embed_passages(embedder, ["a", "d"])
    known = [text for text in "abcd" if embedder.passages.get(text) is not None]
    assert known == ["a", "c", "d"]


def test_what_is_cut_is_said() -> None:
    model = MiniLM()
    for whole in ("What now?", "x" * 100, "word " * 250, "x" * 90 + "-" + "y" * 90):
        assert model.losses(whole) == [], whole
    [word] = model.losses("Who is " + "x" * 101 + "?")
    assert word == "A word of more than 100 characters was not searched by its meaning"
    [long] = model.losses("word " * 260)
    assert long == "Only the first 256 tokens of the question were searched by their meaning"
    assert model.losses("x" * 101 + " word" * 260) == [word, long]
    assert model.get_query_embedding("word " * 260) == model.get_query_embedding("word " * 300), "it is cut"
