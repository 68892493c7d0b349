"""Questions with the sentences that may answer them, as the answerer finds them: passages of their organization.

`SECTOR.jsonl` has the documents, each with questions in people's own words and near misses; `plain/SECTOR.jsonl` has
further questions about the same documents, in simple words that share some with the text; `threads/SECTOR.jsonl` has
conversations of three turns about the documents of some organizations. `worlds` has 218 organizations more, with sixteen
questions about each of eight documents: those in `put_aside.jsonl` are measured with alone, and `threads.jsonl` has
conversations about them. The shipped weights do not know the next ones. `7.jsonl` has 59 organizations: of the fourteen
questions about a document, two ask for several things (`parts`), and two follow another message (`after`). `8.jsonl` has
36, asked in everyday words that the text does not have, and by yes or no. `9.jsonl` has 20, half of their documents with tables
or lists, asked for rows and cells. `10.jsonl` has 56, with fourteen questions about each of six documents: a third of them near misses that share
nearly all words with a sentence. `later.jsonl` has five, with 300 questions in everyday words: they are measured with alone.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rag_app.answering.extractive import add_context
from rag_app.answering.passages import passages
from rag_app.answering.reader import Reading, reading_of
from rag_app.domain import Question
from rag_app.retrieval.embedding import MiniLM

FOLDER = Path(__file__).parent
SECTORS = ("services", "shops", "organizations", "software", "books", "technical", "public", "everyday")
NEAREST = 24
"""Passages of the whole organization that a question is shown, beside those of its own document."""
MOST_SHOWN = 40
PUT_ASIDE = "-12"


@dataclass(frozen=True)
class Candidate:
    reading: Reading
    answers: bool
    cosine: float


@dataclass(frozen=True)
class Asked:
    """A question about the document `title`; nothing of `candidates`, which come nearest first, answers one without an
    answer."""

    organization: str
    text: str
    candidates: tuple[Candidate, ...]
    title: str = ""
    plain: bool = False

    @property
    def put_aside(self) -> bool:
        """One organization of each sector is measured with, and never trained with."""
        return self.organization.endswith(PUT_ASIDE)


def plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def readings_of(title: str, text: str) -> list[Reading]:
    """The passages of a document as `rag_app.answering.extractive` gives them to the reader."""
    found = passages(text)
    said = {each.place: each.text for each in found}
    return [reading_of(each.text, title, each.lead, said.get(each.place - 1, "")) for each in found]


def questions(sector: str, embedder: MiniLM) -> Iterator[Asked]:
    """The questions of a sector, organization by organization."""
    for name, documents in organizations(sector).items():
        yield from questions_of(name, documents, embedder)


def organizations(sector: str) -> dict[str, list[dict[str, Any]]]:
    """The documents of each of a sector's twelve, with all their questions; those that are plain say so."""
    further: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _rows(FOLDER / "plain" / f"{sector}.jsonl"):
        further.setdefault((row["company"], row["title"]), []).extend(row["questions"])
    found: dict[str, list[dict[str, Any]]] = {}
    for document in _rows(FOLDER / f"{sector}.jsonl"):
        plain_ones = further.get((document["company"], document["title"]), [])
        document["questions"] += [{**question, "plain": True} for question in plain_ones]
        found.setdefault(document["company"], []).append(document)
    return {f"{sector}-{number:02}": documents for number, documents in enumerate(found.values(), 1)}


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line]


def threads_of(sector: str) -> dict[str, tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]]:
    """The documents and the conversations of those that have some; each turn with its evidence, if there is an answer."""
    told: dict[str, list[list[dict[str, Any]]]] = {}
    for row in _rows(FOLDER / "threads" / f"{sector}.jsonl"):
        told.setdefault(row["company"], []).append(row["turns"])
    return {
        name: (documents, told[documents[0]["company"]])
        for name, documents in organizations(sector).items()
        if documents[0]["company"] in told
    }


def worlds(file: str = "[0-9]*") -> dict[str, list[dict[str, Any]]]:
    """The documents of the further organizations, with their questions; nothing is trained with `put_aside` and `later`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((FOLDER / "worlds").glob(f"{file}.jsonl")):
        for document in _rows(path):
            found.setdefault(document["company"], []).append(document)
    return {f"worlds-{file}-{number:03}": documents for number, documents in enumerate(found.values(), 1)}


def put_aside(sector: str) -> tuple[str, list[dict[str, Any]]]:
    """The name and the documents of the one that nothing is trained with."""
    return next((name, rows) for name, rows in organizations(sector).items() if name.endswith(PUT_ASIDE))


def questions_of(name: str, documents: Sequence[dict[str, Any]], embedder: MiniLM) -> Iterator[Asked]:
    said: list[tuple[int, Reading]] = []
    for number, document in enumerate(documents):
        said += [(number, each) for each in readings_of(document["title"], document["text"])]
    vectors = np.asarray(embedder.get_text_embedding_batch([f"{each.heading}: {each.text}" for _, each in said]))
    for number, document in enumerate(documents):
        for text, evidence, is_plain in _asked_of(document):
            cosines = vectors @ np.asarray(embedder.get_query_embedding(text))
            own = {place for place, (of, _) in enumerate(said) if of == number}
            right = {place for place in own if any(_is_in(quote, said[place][1].text) for quote in evidence)}
            if evidence and not right:
                continue
            nearest = {int(place) for place in np.argsort(-cosines)[:NEAREST]}
            shown = sorted(own | nearest, key=lambda place: -cosines[place])[:MOST_SHOWN]
            places = dict.fromkeys([*shown, *sorted(right)])
            yield Asked(
                name,
                text,
                tuple(Candidate(said[place][1], place in right, float(cosines[place])) for place in places),
                document["title"],
                is_plain,
            )


def _asked_of(document: dict[str, Any]) -> Iterator[tuple[str, list[str], bool]]:
    """What is asked about a document, as the reader reads it, with its evidence: each part of a question by itself, and a
    message after the one before it."""
    for question in document["questions"]:
        texts, evidence = zip(*question.get("parts", [(question["q"], question.get("evidence"))]), strict=True)
        before = f"{question['after']}\n" if "after" in question else ""
        read = add_context(Question(question["q"]), ["", *texts])[1:]
        for text, quotes in zip(read, evidence, strict=True):
            yield before + text, quotes, question.get("plain", False)


def _is_in(quote: str, text: str) -> bool:
    """Whether a passage has what is quoted of its document, without marks of Markdown; of a row of a table, all cells."""
    other = _bare(text)
    if quote.strip().startswith("|"):
        cells = [_bare(cell) for cell in quote.split("|") if _bare(cell)]
        return bool(cells) and all(cell in other for cell in cells)
    one = _bare(quote)
    return one in other or (len(other) > 20 and other in one)


def _bare(text: str) -> str:
    return re.sub(r"^(?:[-+>#|]+ |\d+[.)] )+", "", plain(re.sub(r"[*_`]|\[([^\]]*)\]\([^)]*\)", r"\1", text))).strip(
        "-*| "
    )
