"""The same chunks in PostgreSQL and in another store: the same ranking, the same scores, whatever is asked and whoever asks."""

import itertools
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document
from rag_app.documents.metadata import detect_language
from rag_app.documents.readers import read
from rag_app.documents.reading import documents_below
from rag_app.domain.answer import Mode
from rag_app.domain.filters import Filters
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import Scope
from rag_app.domain.source import Source
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.filters import all_of, any_of, check_filters, condition, none_of, or_missing
from rag_app.retrieval.fusion import Candidate, rank
from rag_app.retrieval.index import Chunking
from rag_app.retrieval.store import ScopedStore, Search, searchable_text
from tests.stores.conftest import DECLARED, DIMENSION, FOREIGN, OWN, SPEC, Stores, chunk, opened

CHUNKS, QUESTIONS = 150, 4
OURS, THEIRS = UUID(int=0xA), UUID(int=0xB)
ANN, NORTH = UUID(int=0xC), UUID(int=0xD)
CLOSE = 1e-3
"""By how much the two stores' scores may differ; BM25 relatively."""
TIED = 1e-5
"""Scores nearer than this are a tie, which either store may break as it likes."""
MODES = {
    Mode.DENSE: VectorStoreQueryMode.DEFAULT,
    Mode.TEXT: VectorStoreQueryMode.TEXT_SEARCH,
    Mode.HYBRID: VectorStoreQueryMode.HYBRID,
}
SCOPES = {
    "a member": Scope(frozenset({OURS})),
    "who owns private chunks": Scope(frozenset({OURS}), ANN),
    "a site": Scope(frozenset({OURS}), ANN, NORTH),
    "two organizations": Scope(frozenset({OURS, THEIRS}), ANN),
    "a stranger": Scope(frozenset({UUID(int=0xE)})),
}
FILTERS: dict[str, Filters] = {
    "none": (),
    "an author": (condition("author", "==", "author 1"),),
    "French": (condition("lang", "==", "fr"),),
    "a range, and a tag": (condition("stylist", ">=", 3), condition("tags", "contains", "red")),
    "a price, or none": (or_missing(condition("price", "<", 20.0)),),
    "a day": (condition("date", "==", "2026-01-15"),),
    "not French, or no author": (any_of([none_of([condition("lang", "==", "fr")]), condition("author", "is_empty")]),),
}


@dataclass(frozen=True)
class Corpus:
    nodes: list[TextNode]
    questions: list[tuple[str, list[float]]]


def spread(position: int) -> dict[str, object]:
    """Metadata by a chunk's number, so that every filter has something to find and something to leave."""
    private = {"private_to": str(ANN), "owner_id": str(ANN)} if position % 7 == 0 else {}
    return {
        "author": f"author {position % 3}",
        "stylist": position % 5,
        "tags": ["red"] if position % 2 else ["blue", "red"] if position % 4 else [],
        "date": 1768435200.0 + 3600 * (position % 48),
        **({"price": float(position % 40)} if position % 3 else {}),
        **({"site_id": str(NORTH)} if position % 5 < 2 else {}),
        **private,
    }


@pytest.fixture(scope="module")
def samples() -> Corpus:
    """Chunks of the sample corpora, as ingestion cuts and embeds them, and questions that are judged for them."""
    folder, model, chunker = resource_folder("indexes"), MiniLM(cache_size=0), Chunker(Chunking())
    cut: list[TextNode] = []
    for file in sorted(each for part in folder.glob("*/samples") for each in documents_below(part)):
        for number, document in enumerate(each for each in read(file, file.name) if isinstance(each, Document)):
            lang = detect_language("\n".join(passage.text for passage in document.passages), "en")
            source = Source(OURS, "things", f"{file}#{number}", document.title or file.name, "doc", "1", lang)
            cut += chunker.split(source, document.passages)
    french = [node for node in cut if node.metadata["lang"] == "fr"]
    chosen = [*french, *cut[:: len(cut) // CHUNKS]]
    chosen = list({node.node_id: node for node in chosen}.values())
    for position, node in enumerate(chosen):
        org = THEIRS if position % 11 == 0 else OURS
        node.metadata = {**node.metadata, "source_type": "doc", "org_id": str(org), **spread(position)}
    vectors = model.get_text_embedding_batch([searchable_text(node) for node in chosen])
    for node, vector in zip(chosen, vectors, strict=True):
        node.embedding = vector
    judged = [
        json.loads(line)["text"]
        for file in sorted(folder.glob("*/judgments.jsonl"))
        for line in file.read_text("utf-8").splitlines()
    ]
    asked = judged[:: max(1, len(judged) // QUESTIONS)][:QUESTIONS]
    return Corpus(chosen, [(text, model.get_query_embedding(text)) for text in asked])


@pytest.fixture(scope="module")
def noise() -> Corpus:
    """Random vectors of any length, some of them the same or opposite; texts of random words."""
    random = np.random.default_rng(3)
    vectors = random.normal(size=(CHUNKS, DIMENSION)) * random.uniform(0.01, 100, size=(CHUNKS, 1))
    vectors[50:60], vectors[60:70] = vectors[0], -vectors[0]
    vocabulary = [
        f"{first}{last}" for first in ("plum", "fig", "pear", "sloe") for last in ("tart", "jam", "pie", "gin")
    ]
    words = [random.choice(vocabulary, random.integers(3, 30)) for _ in range(CHUNKS)]
    nodes = [
        chunk(
            THEIRS if position % 11 == 0 else OURS, " ".join(words[position]), vectors[position].tolist(),
            source=uuid5(OURS, str(position)), lang="fr" if position % 3 == 1 else "en", **spread(position),  # type: ignore[arg-type]
        )
        for position in range(CHUNKS)
    ]  # fmt: skip
    asked = random.normal(size=(QUESTIONS, DIMENSION))
    asked[0] = vectors[0]  # ten of them are equally near
    return Corpus(nodes, [(" ".join(words[n]), asked[n].tolist()) for n in range(QUESTIONS)])


@pytest.fixture
def corpus(request: pytest.FixtureRequest) -> Corpus:
    found: Corpus = request.getfixturevalue(request.param)
    return found


async def fill(stores: Stores, nodes: Sequence[TextNode]) -> None:
    for org in (OURS, THEIRS):
        await stores(Scope(frozenset({org}))).async_add([node for node in nodes if node.metadata["org_id"] == str(org)])


def scores(found: Sequence[Candidate], mode: Mode) -> dict[UUID, float]:
    """What each candidate is ordered by: its place's worth, not what is shown."""
    if mode is Mode.DENSE:
        return {each.id: each.cosine for each in found}
    if mode is Mode.TEXT:
        return {each.id: each.bm25 for each in found if each.bm25 > 0}
    cosines, bm25s = [each.cosine for each in found], [each.bm25 for each in found]

    def part(score: float, of: list[float]) -> float:
        return (score - min(of)) / (max(of) - min(of)) if max(of) > min(of) else 0.0

    return {
        each.id: SPEC.fusion.dense * part(each.cosine, cosines) + SPEC.fusion.lexical * part(each.bm25, bm25s)
        for each in found
    }


def differences(first: Sequence[Candidate], other: Sequence[Candidate], mode: Mode) -> list[str]:
    """What is not the same in two answers that name all there is, ties apart."""
    mine, theirs = ({each.id: each for each in found} for found in (first, other))
    if mine.keys() != theirs.keys():
        return [f"{len(mine.keys() ^ theirs.keys())} chunks are in one answer only"]
    found = []
    for key, each in mine.items():
        if abs(each.cosine - theirs[key].cosine) > CLOSE:
            found.append(f"cosine {each.cosine} and {theirs[key].cosine}")
        if mode is not Mode.DENSE and abs(each.bm25 - theirs[key].bm25) > CLOSE * max(each.bm25, 1.0):
            found.append(f"BM25 {each.bm25} and {theirs[key].bm25}")
    worth = scores(first, mode)
    order = [each.id for each in rank(other, mode, SPEC.fusion)]
    if order != [each.id for each in rank(first, mode, SPEC.fusion)]:
        wrong = [(a, b) for a, b in itertools.pairwise(order) if worth[a] < worth[b] - TIED]
        found += [f"{len(wrong)} pairs in another order"] if wrong else []
    return found


async def ten_best(store: ScopedStore, text: str, vector: list[float], mode: Mode, filters: Filters) -> list[UUID]:
    query = VectorStoreQuery(
        vector, similarity_top_k=10, query_str=text, mode=MODES[mode], filters=all_of(filters) if filters else None
    )
    return [UUID(node.node_id) for node in (await store.aquery(query)).nodes or []]


PAIRS = [
    *((corpus, other) for corpus in ("samples", "noise") for other in OWN[1:]),
    *(pytest.param("noise", f"llamaindex-{each}", marks=FOREIGN) for each in DECLARED),
    *(pytest.param("samples", f"llamaindex-{each}", marks=pytest.mark.thorough) for each in DECLARED),
]


@pytest.mark.parametrize(("corpus", "other"), PAIRS, indirect=["corpus"])
async def test_both_stores_answer_alike(
    corpus: Corpus, other: str, database_urls: tuple[str, str], tmp_path: Path
) -> None:
    dimension, depth = len(corpus.nodes[0].embedding or []), len(corpus.nodes)
    wrong: dict[tuple[str, str, Mode, str], list[str]] = {}
    found: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(opened(kind, SPEC, dimension, database_urls, tmp_path))
            for kind in ("postgres", other)
        ]
        for stores in both:
            await fill(stores, corpus.nodes)
        combinations = [*((who, "none") for who in SCOPES), *itertools.product(list(SCOPES)[:3], FILTERS)]
        for (who, what), mode in itertools.product(combinations, Mode):
            first, second = (stores(SCOPES[who]) for stores in both)
            filters = check_filters(FILTERS[what], SPEC)
            assert await first.count() == await second.count()
            for text, vector in corpus.questions if what == "none" else corpus.questions[:1]:
                answers = [
                    await store.candidates(Search(vector, text, filters, mode, depth)) for store in (first, second)
                ]
                differ = differences(answers[0], answers[1], mode)
                tops = [await ten_best(store, text, vector, mode, filters) for store in (first, second)]
                worth = scores(answers[0], mode)
                if [worth[a] for a in tops[0]] != pytest.approx([worth[b] for b in tops[1]], abs=TIED):
                    differ.append(f"the ten best are worth {[[worth[each] for each in top] for top in tops]}")
                if differ:
                    wrong[who, what, mode, text[:30]] = differ
                if mode is Mode.DENSE:
                    found[what] = max(found.get(what, 0), len(answers[0]))
    assert wrong == {}
    assert min(found.values()) > 5, f"finds too little to compare: {found}"
