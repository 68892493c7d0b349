"""The probability that hits hold the answer to a question, from several signals; fits of it, and what each leads to.

No single number tells an answer from a passage about the same subject: on CLAP-NQ the best cosine accepts half of the
unanswerable questions at 5 % of the answerable refused, and nine of ten where the fact was taken out of its passage.
Together with the sentences' cosines and the question's rare words it is 43 % and 57 % (docs/retrieval.md).
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple, fields
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rag_app.domain import Hit, Misconfigured

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Probability = Annotated[float, Field(ge=0, le=1)]
Basis = Literal["organization", "index", "uncalibrated", "fixed"]
"""What a probability was fitted to: questions of the organization, of the index, of other corpora; or a fixed rule."""

_MOST_HITS = 8
_NEAREST = 10  # sentences that the best one is compared with
_OVERLAP_WEIGHT = 0.3
_ENDINGS = ("ing", "edly", "ed", "es", "ly", "s", "e")
_SHORTEST_STEM = 3


class WordUse(Struct, frozen=True):
    """A word of a question: in how many chunks of the scope's organizations it is, and in which of the hits."""

    word: str
    chunks: float
    hits: frozenset[UUID]


class Words(Struct, frozen=True):
    """The question's words that carry meaning, among `chunks` chunks. Empty where the store does not count them."""

    used: tuple[WordUse, ...] = ()
    chunks: float = 0.0


class Sentence(Struct, frozen=True):
    """A sentence of a hit and its cosine with the question. `text` has the title and the heading it stands under."""

    text: str
    cosine: float


class Signals(Struct, frozen=True):
    """What speaks for an answer. Cosines are -1..1, shares of words 0..1, weighted by how rare each word is.

    `best`: cosine of the best hit; `ahead`: how far it is above the mean of the next four. `sentence`: cosine of the
    best sentence; `stands_out`: how far it is above the mean of the ten best. `said`: share of the question's words in
    that sentence, its heading and title; `both`: the best sum of a sentence's cosine and 0.3 times that share.
    `covered`: share in the best hit. `unknown`: share that no chunk has. `unnamed`: share of the names and
    figures in what is asked that the sources of the three nearest sentences do not have. `lacking`: share of what is asked for - a price,
    a date, somebody's name - that none of these sentences has. `read`: the reader's log-odds that the best sentence
    answers the message, without what was said before it, by 8: -1..1.
    """

    best: float = 0.0
    ahead: float = 0.0
    sentence: float = 0.0
    stands_out: float = 0.0
    said: float = 0.0
    both: float = 0.0
    covered: float = 0.0
    unknown: float = 0.0
    unnamed: float = 0.0
    lacking: float = 0.0
    read: float = 0.0


NAMES = tuple(each.name for each in fields(Signals))


def measure(hits: Sequence[Hit], words: Words, sentences: Sequence[Sentence]) -> Signals:
    """The signals of a question's hits, best first. All of them are 0 without hits."""
    looked_at = hits[:_MOST_HITS]
    if not looked_at:
        return Signals()
    cosines = sorted((hit.score for hit in looked_at), reverse=True)
    others = cosines[1:5]
    nearest = max(looked_at, key=lambda hit: hit.score)
    weights = {use.word: _rarity(use.chunks, words.chunks) for use in words.used}
    total = sum(weights.values()) or 1.0
    covered = sum(weights[use.word] for use in words.used if nearest.chunk_id in use.hits)
    unknown = sum(weights[use.word] for use in words.used if not use.chunks)
    said, both, standing = _sentence_signals(sentences, weights)
    return Signals(
        best=cosines[0],
        ahead=cosines[0] - sum(others) / len(others) if others else 0.0,
        sentence=max((each.cosine for each in sentences), default=0.0),
        stands_out=standing,
        said=said,
        both=both,
        covered=covered / total,
        unknown=unknown / total,
    )


def _sentence_signals(sentences: Sequence[Sentence], weights: Mapping[str, float]) -> tuple[float, float, float]:
    """`said`, `both` and `stands_out`."""
    if not sentences:
        return 0.0, 0.0, 0.0
    stems: dict[str, float] = {}
    for word, weight in weights.items():
        stems[stem(word)] = max(weight, stems.get(stem(word), 0.0))
    total = math.fsum(stems.values()) or 1.0
    shares = [math.fsum(stems.get(each, 0.0) for each in stems_of(sentence.text)) / total for sentence in sentences]
    best = max(range(len(sentences)), key=lambda place: sentences[place].cosine)
    cosines = sorted((each.cosine for each in sentences), reverse=True)[:_NEAREST]
    both = max(each.cosine + _OVERLAP_WEIGHT * share for each, share in zip(sentences, shares, strict=True))
    return shares[best], both, cosines[0] - sum(cosines) / len(cosines)


def _rarity(chunks: float, of: float) -> float:
    """Inverse document frequency, as BM25 has it.

    >>> round(_rarity(1, 100), 2), round(_rarity(100, 100), 2)
    (4.21, 0.0)
    """
    return math.log(1 + max(0.0, of - chunks + 0.5) / (chunks + 0.5))


def words_of(text: str) -> list[str]:
    """Each word of a text once, in lower case.

    >>> words_of("Who cuts? Owen cuts.")
    ['cuts', 'owen', 'who']
    """
    return sorted(set(re.findall(r"\w+", text.casefold())))


def stem(word: str) -> str:
    """A word without a usual English ending: enough to compare a question with a sentence.

    >>> stem("cutting"), stem("prices"), stem("bus")
    ('cutt', 'pric', 'bus')
    """
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_STEM:
            return word[: -len(ending)]
    return word


def stems_of(text: str) -> set[str]:
    return {stem(word) for word in re.findall(r"\w+", text.casefold())}


class Fit(BaseModel):
    """A logistic regression on the signals: `probability` is 1 / (1 + exp(-(intercept + weights x signals))).

    `embedding_model` is the one whose cosines were fitted; None where no cosine has a weight. Probabilities are those
    of a corpus that answers half of what it is asked. A model is asked from `ask_from` on, the extractive answerer
    answers from `answer_from` on, and from `high` on an answer's confidence is high, below it medium.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedding_model: str | None
    weights: Mapping[str, float]
    intercept: float
    ask_from: Probability
    answer_from: Probability
    high: Probability
    answerable: int = Field(ge=0)
    unanswerable: int = Field(ge=0)

    @model_validator(mode="after")
    def _consistent(self) -> "Fit":
        if unknown := sorted(set(self.weights) - set(NAMES)):
            raise ValueError(f"weights: {', '.join(unknown)}: accepted are {', '.join(NAMES)}")
        if not self.ask_from <= self.answer_from <= self.high:
            raise ValueError("The thresholds must be in the order ask_from <= answer_from <= high")
        return self

    def vector(self) -> "NDArray[np.float64]":
        """The weights in the order of `NAMES`, then the intercept."""
        import numpy as np  # not for `rag-app doctor`, which computes nothing

        return np.array([*(self.weights.get(name, 0.0) for name in NAMES), self.intercept])

    def probability(self, signals: Signals) -> float:
        import numpy as np

        return float(probabilities(np.array([astuple(signals)]), self.vector())[0])


def probabilities(signals: "NDArray[np.float64]", weights: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Of rows of signals, with weights as `Fit.vector` gives them."""
    import numpy as np

    logits = signals @ weights[:-1] + weights[-1]
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


FIT_FILE = "confidence.json"
"""Beside an index.toml: the index's fit. Beside the folders of the indexes: that of an index without one."""
WORDS_ALONE = Fit(
    embedding_model=None,
    weights={"covered": 4.3},
    intercept=-2.1,
    ask_from=0.0,
    answer_from=0.25,
    high=0.8,
    answerable=0,
    unanswerable=0,
)
"""For an embedding model that nothing was fitted to: the words alone, since its cosines may mean anything. A model is
always asked. The figures are those of the questions that indexes/confidence.json was fitted to."""


def shipped_fit(folder: Path, index: str, embedding_model: str) -> tuple[Fit, Basis]:
    """What comes with an index for this embedding model; else the fit to other corpora with it; else the words alone."""
    own, general = _read_fit(folder / index / FIT_FILE), _read_fit(folder / FIT_FILE)
    if own is not None and own.embedding_model == embedding_model:
        return own, "index"
    if general is not None and general.embedding_model == embedding_model:
        return general, "uncalibrated"
    return WORDS_ALONE, "uncalibrated"


@cache
def _read_fit(file: Path) -> Fit | None:
    """The fit in a file; None where there is no such file. Raises Misconfigured with the file and what is wrong in it."""
    try:
        return Fit.model_validate_json(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise Misconfigured(f"{file}: {error}") from error
