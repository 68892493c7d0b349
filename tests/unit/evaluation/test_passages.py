"""Chunks are found in the content they were cut out of, and passages among the chunks of another cut."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest
from llama_index.core.schema import NodeWithScore
from msgspec.structs import asdict

from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document, Passage
from rag_app.documents.readers import read
from rag_app.documents.reading import documents_below
from rag_app.domain.answer import Hit
from rag_app.domain.resources import resource_folder
from rag_app.domain.source import Source
from rag_app.evaluation.validation import locate, measure, overlap, relevance_by_passages
from rag_app.retrieval.hits import to_hit
from rag_app.retrieval.index import Chunking

SOURCE = Source(UUID(int=1), "book", "a.md", "A chapter", "chapter", "1")


def chunks(passages: Sequence[Passage], size: int, overlap: int = 20) -> list[Hit]:
    nodes = Chunker(Chunking(size=size, overlap=overlap)).split(SOURCE, passages)
    return [to_hit(NodeWithScore(node=node, score=0.5)) for node in nodes]


@cache
def samples() -> list[tuple[str, Document]]:
    """Pages, sections, tables, calls: every document of two sample corpora."""
    found = []
    for folder in [resource_folder("indexes") / name / "samples" for name in ("book", "salon_calls")]:
        for path in documents_below(folder):
            shown = Path(path).relative_to(folder).as_posix()
            found += [(shown, each) for each in read(path, shown) if isinstance(each, Document)]
    return found


@pytest.mark.parametrize("size", [254, 64])
def test_every_chunk_is_a_verbatim_piece_of_its_passage(size: int) -> None:
    located = 0
    for name, document in samples():
        content = [asdict(passage) for passage in document.passages]
        whole = "\n\n".join(passage.text for passage in document.passages)
        for chunk in chunks(document.passages, size):
            span = locate(chunk, content)
            assert span is not None, (name, chunk.text)
            assert whole[slice(*span)] == chunk.text
            located += 1
    assert located > 100


@pytest.mark.parametrize(("before", "after"), [(254, 64), (100, 254)])
def test_what_was_judged_is_found_after_another_cut(before: int, after: int) -> None:
    """Whichever chunk is judged, some chunk of the other cut brings it; but for one in a hundred that is cut in the
    middle, so that neither half is half of it."""
    missed, total = [], 0
    for name, document in samples():
        contents = {SOURCE.id: [asdict(passage) for passage in document.passages]}
        others = chunks(document.passages, after)
        for chunk in chunks(document.passages, before):
            found = relevance_by_passages(others, [(SOURCE.id, locate(chunk, contents[SOURCE.id]))], contents)
            relevant = [other for other, brings in zip(others, found.found, strict=True) if brings]
            assert {(each.section, each.page) for each in relevant} <= {(chunk.section, chunk.page)}
            assert (measure(found, max(1, len(others))).hit_rate == 1.0) is bool(relevant)
            missed += [] if relevant else [(name, chunk.text)]
            total += 1
    assert len(missed) <= total / 100, missed
    assert total > 100


def test_of_equal_texts_the_one_in_the_chunks_own_section() -> None:
    passages = [Passage("See below.", "One", 1), Passage("See below.", "Two", 1), Passage("See below.", "Two", 2)]
    content = [asdict(passage) for passage in passages]
    assert [locate(chunk, content) for chunk in chunks(passages, 254)] == [(0, 10), (12, 22), (24, 34)]


def test_what_is_no_longer_there_is_nowhere() -> None:
    [chunk] = chunks([Passage("It was here.", "One")], 254)
    assert locate(chunk, [{"text": "It was here.", "section": "Two", "page": None}]) is None
    assert locate(chunk, [{"text": "It is gone.", "section": "One", "page": None}]) is None
    assert locate(chunk, []) is None


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((0, 10), (0, 10), True),
        ((0, 100), (40, 50), True),  # inside
        ((0, 10), (5, 100), True),  # half of the shorter one
        ((0, 10), (6, 100), False),
        ((0, 10), (10, 20), False),  # neighbours
        ((0, 10), (50, 60), False),
    ],
)
def test_half_of_the_shorter_one(one: tuple[int, int], other: tuple[int, int], expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected
