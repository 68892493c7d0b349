"""Real passages, embedded once, and spread by small perturbation to as many chunks as are wanted.

A chunk is one of the passages again: its vector with Gaussian noise of 0.3/sqrt(384) in each dimension, normalised
(cosine to the original about 0.96), its text with one sentence replaced by one of another passage. So vectors have real
neighbourhoods, texts real words in real frequencies, and no two chunks are the same.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

import numpy as np
import numpy.typing as npt
from llama_index.core.schema import TextNode

from bench.progress import track
from rag_app.documents.chunking import Chunker
from rag_app.documents.documents import Document, Passage
from rag_app.documents.readers import read
from rag_app.documents.reading import documents_below
from rag_app.domain.errors import UnreadableDocument
from rag_app.domain.resources import resource_folder
from rag_app.domain.source import Source
from rag_app.retrieval.embedding import MiniLM
from rag_app.retrieval.index import Chunking
from rag_app.retrieval.store import heading
from rag_app.retrieval.text import sentences

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".bench"
SHARED = Path(os.environ.get("RAG_SHARED") or ROOT.parent / "shared")
NOISE = 0.3
AUTHORS = 100
"""One of as many authors a chunk: a filter by author leaves 1 %."""
SHARES = {"50 %": 0.5, "10 %": 0.1, "1 %": 0.01, "0.1 %": 0.001, "1 %, one topic": 0.01}
"""The organizations that are asked, by their share of the chunks; the rest is spread over OTHERS."""
OTHERS = 50
ALL = "all rows"

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Original:
    """A passage as the product cuts it, with its own sentences."""

    title: str
    text: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Corpus:
    """`size` chunks of organizations 0..len(SHARES) + OTHERS - 1; everything about chunk n is at place n."""

    sources: str
    originals: Sequence[Original]
    questions: Sequence[str]
    question_vectors: Vectors
    vectors: Vectors
    organization: npt.NDArray[np.int64]
    author: npt.NDArray[np.int64]
    original: npt.NDArray[np.int64]
    donor: npt.NDArray[np.int64]

    @property
    def size(self) -> int:
        return len(self.vectors)

    @cached_property
    def in_order(self) -> npt.NDArray[np.int64]:
        """Chunks by organization: as tables are laid out by hand."""
        return np.argsort(self.organization, kind="stable")

    def title(self, chunk: int) -> str:
        return self.originals[int(self.original[chunk])].title

    def text(self, chunk: int) -> str:
        """The original's, with a sentence of another passage in place of one of its own."""
        own = self.originals[self.original[chunk]].sentences
        others = self.originals[self.donor[chunk]].sentences
        return " ".join([*own[: chunk % len(own)], others[chunk % len(others)], *own[chunk % len(own) + 1 :]])

    def rows(self, tenant: str, *, author: int | None = None) -> npt.NDArray[np.int64]:
        """The chunks that a search for `tenant` may find."""
        mask = np.ones(self.size, bool) if tenant == ALL else self.organization == list(SHARES).index(tenant)
        return np.nonzero(mask if author is None else mask & (self.author == author))[0]

    def node(self, chunk: int, organization: UUID) -> TextNode:
        """As ingestion hands it to a store."""
        return TextNode(
            id_=str(chunk_uuid(chunk)),
            text=self.text(chunk),
            embedding=self.vectors[chunk].tolist(),
            metadata=self.metadata(chunk, organization),
        )

    def metadata(self, chunk: int, organization: UUID) -> dict[str, object]:
        return {
            "author": f"author {self.author[chunk]}", "org_id": str(organization), "source_id": str(source_uuid(chunk)),
            "title": self.title(chunk), "source_type": "doc", "lang": "en", "date": 1.7e9 + chunk, "position": 0,
            "version": "1",
        }  # fmt: skip

    def fresh_questions(self) -> Iterator[str]:
        """Sentences that were asked of nothing yet: as many questions as one run wants, none of them twice."""
        seen = set[str]()
        for place in range(max(len(each.sentences) for each in self.originals)):
            for each in self.originals:
                if place < len(each.sentences) and 20 < len(text := each.sentences[place]) < 300 and text not in seen:
                    seen.add(text)
                    yield text


def chunk_uuid(chunk: int) -> UUID:
    return UUID(int=(1 << 100) + chunk)


def chunk_number(of: UUID | str) -> int:
    return UUID(str(of)).int - (1 << 100)


def source_uuid(chunk: int) -> UUID:
    return UUID(int=(1 << 101) + chunk)


def load(size: int) -> Corpus:
    """The same corpus for the same size. The first time embeds the passages: some minutes, kept under .bench/."""
    originals, questions, sources = _passages(min(5000, max(300, size // 20)))
    own = _embedded([f"{each.title}\n\n{each.text}".strip() for each in originals], "embedding passages")
    random = np.random.default_rng(0)
    original = random.integers(0, len(originals), size)
    vectors = own[original]
    for start in range(0, size, 100_000):  # in parts: a million rows of doubles are 3 GB
        part = vectors[start : start + 100_000]
        part += random.normal(0, NOISE / np.sqrt(part.shape[1]), part.shape).astype(np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return Corpus(
        sources=sources,
        originals=originals,
        questions=questions,
        question_vectors=_embedded(questions, "embedding questions"),
        vectors=vectors,
        organization=_organizations(vectors, random),
        author=random.integers(0, AUTHORS, size),
        original=original,
        donor=random.integers(0, len(originals), size),
    )


def _organizations(vectors: Vectors, random: np.random.Generator) -> npt.NDArray[np.int64]:
    """Which organization each chunk belongs to; that on one topic has the nearest to one of the chunks."""
    size = len(vectors)
    shuffled = random.permutation(size)
    owner = np.full(size, -1)
    start = 0
    for number, share in enumerate(list(SHARES.values())[:-1]):
        owner[shuffled[start : start + round(size * share)]] = number
        start += round(size * share)
    left = shuffled[start:]
    nearest = left[np.argsort(-(vectors[left] @ vectors[left[0]]))]
    topic = nearest[: round(size * list(SHARES.values())[-1])]
    owner[topic] = len(SHARES) - 1
    others = np.nonzero(owner < 0)[0]
    owner[others] = len(SHARES) + random.integers(0, OTHERS, len(others))
    return owner


def _passages(count: int) -> tuple[list[Original], list[str], str]:
    """At most `count` passages, questions, and where they are from."""
    documents, questions = _samples()
    sources = f"{len(documents)} sample documents"
    scifact = SHARED / "eval" / "scifact"
    if scifact.is_dir():
        with gzip.open(scifact / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        documents += [(each["title"], each["text"]) for each in records]
        questions = [json.loads(line)["text"] for line in (scifact / "queries.jsonl").read_text("utf-8").splitlines()]
        sources += f" and {len(records)} abstracts of SciFact"
    order = np.random.default_rng(1).permutation(len(documents))
    found: list[Original] = []
    chunker = Chunker(Chunking())
    for number in order:
        title, text = documents[number]
        source = Source(UUID(int=1), "bench", str(number), title, "doc", "1")
        for node in chunker.split(source, [Passage(text)]):
            if own := tuple(sentences(node.text)):
                found.append(Original(heading(node), node.text, own))
        if len(found) >= count:
            break
    return found[:count], questions, f"{len(found[:count])} passages of {sources}"


def _samples() -> tuple[list[tuple[str, str]], list[str]]:
    """Title and text of every document that the indexes have samples of, and the questions that come with them."""
    folder = resource_folder("indexes")
    documents = []
    for samples in sorted(folder.glob("*/samples")):
        for file in documents_below(samples):
            try:
                found = [each for each in read(file, file.name) if isinstance(each, Document)]
            except UnreadableDocument:
                continue
            documents += [(each.title or "", "\n".join(p.text for p in each.passages)) for each in found]
    judged = [
        line for file in sorted(folder.glob("*/judgments.jsonl")) for line in file.read_text("utf-8").splitlines()
    ]
    return documents, [json.loads(line)["text"] for line in judged]


def _embedded(texts: Sequence[str], what: str) -> Vectors:
    """Unit vectors of the bundled model, each text encoded once in the life of .bench/."""
    file = CACHE / "embeddings.npz"
    model = MiniLM(cache_size=0)
    known: dict[str, Vectors] = {}
    if file.exists():
        with np.load(file) as stored:
            known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
    keys = [hashlib.sha256(f"{model.model_name}\n{text}".encode()).hexdigest() for text in texts]
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    items = list(missing.items())
    for start in track(range(0, len(items), 32), what):
        part = items[start : start + 32]
        vectors = model.get_text_embedding_batch([text for _, text in part])
        known |= {key: np.array(vector, np.float32) for (key, _), vector in zip(part, vectors, strict=True)}
    if missing:
        CACHE.mkdir(exist_ok=True)
        np.savez(file, keys=np.array(list(known)), vectors=np.stack(list(known.values())))
    return np.stack([known[key] for key in keys])
