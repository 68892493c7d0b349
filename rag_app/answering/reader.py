"""How well a sentence answers a question: small models that read both together, the deeper one what may answer
(docs/adr/0029-a-reader.md, docs/adr/0073-a-second-reader.md)."""

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from rag_app.domain import EmbeddingFailed
from rag_app.retrieval.embedding import RememberedVectors, asking, shared_session
from rag_app.retrieval.text import tokens

MODEL_FILE, DEEPER_FILE = (Path(__file__).with_name(name) for name in ("reader.onnx", "deeper_reader.onnx"))
MAY_ANSWER = -1.0
"""The log-odds from which the deeper model reads a sentence, too: of some 34 sentences three or four."""
LANGUAGES = ("en",)
# Tokens, of which the first count; of the question and of the sentence before, the last.
_MOST_QUESTION, _MOST_TEXT, _MOST_HEADING, _MOST_BEFORE = 48, 80, 24, 32
_CLS, _SEP = 101, 102
_MOST_REMEMBERED = 8192  # scores, some 3 MB: a second look at a question reads many sentences again


class Reading(Struct, frozen=True):
    """A sentence to be read: `heading` is its document's title and what it stands under, `before` the sentence before."""

    text: str
    heading: str = ""
    before: str = ""


def reading_of(text: str, title: str, lead: str, before: str) -> Reading:
    """
    >>> reading_of("A cut is $40.", "The salon", "Prices", "").heading
    'The salon . Prices'
    """
    return Reading(text, " . ".join(part for part in (title, lead) if part), before)


def encode_question(text: str) -> list[int]:
    """The tokens of a question, the last of them, as the model reads them before those of a sentence."""
    return [_CLS, *tokens(text)[-_MOST_QUESTION:], _SEP]


def encode_reading(reading: Reading) -> list[int]:
    """The tokens of a sentence, its heading and the sentence before."""
    before = tokens(reading.before)[-_MOST_BEFORE:] if reading.before else []
    parts = tokens(reading.text)[:_MOST_TEXT], tokens(reading.heading)[:_MOST_HEADING], before
    return [*chain.from_iterable((*part, _SEP) for part in parts)]


def as_arrays(asked: Sequence[int], told: Sequence[int]) -> dict[str, NDArray[np.int64]]:
    """What the model takes for a question and one reading; read together, pairs would share the range of their numbers."""
    ids = np.array([[*asked, *told]], np.int64)
    types = np.array([[0] * len(asked) + [1] * len(told)], np.int64)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}


class Reader:
    """all-MiniLM-L6-v2 and, for sentences that may answer, ms-marco-MiniLM-L-12-v2 as well, both trained to tell the sentence
    that answers from those beside it; in int8, on the CPU, offline.

    >>> says = [Reading("Refunds are paid within five working days."), Reading("Refunds are paid by bank transfer.")]
    >>> scores = Reader().scores("How soon do I get my money back?", says)
    >>> scores.shape, bool(scores[0] > scores[1])
    ((2,), True)
    """

    def __init__(self) -> None:
        self._remembered = RememberedVectors(_MOST_REMEMBERED)
        self._pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="read")

    def load(self) -> tuple[Any, Any]:
        """By the first question, or before it."""
        return shared_session(MODEL_FILE), shared_session(DEEPER_FILE)

    def scores(self, question: str, readings: Sequence[Reading]) -> NDArray[np.float64]:
        """Log-odds that each sentence answers the question, about -8 to 8; each is the same whatever it is read with.

        Of a sentence that may answer, the mean of both models'.
        """
        first, deeper = self.load()
        asked = encode_question(question)
        pairs = [as_arrays(asked, encode_reading(each)) for each in readings]
        odds = np.array([first.run(None, pair)[0][0] for pair in pairs], np.float32)
        for place in np.flatnonzero(odds >= MAY_ANSWER):
            odds[place] = (odds[place] + deeper.run(None, pairs[place])[0][0]) / 2
        return odds.astype(np.float64)

    async def read(self, question: str, readings: Sequence[Reading]) -> NDArray[np.float64]:
        """`scores`; those that are not remembered for the organizations that ask are read, half of them on each of two threads
        of the reader's. Raises EmbeddingFailed, whatever the model raises."""
        remembered = self._remembered if asking.get() else RememberedVectors(0)
        keys = ["\0".join((question, each.text, each.heading, each.before)) for each in readings]
        reading_of_key = dict(zip(keys, readings, strict=True))

        async def read_new(new: Sequence[str]) -> list[list[float]]:
            return [[odds] for odds in await self._read([reading_of_key[key] for key in new], question)]

        return np.asarray([odds for (odds,) in await remembered.complete(keys, read_new)], np.float64)

    async def _read(self, readings: Sequence[Reading], question: str) -> NDArray[np.float64]:
        loop, scores = asyncio.get_running_loop(), np.empty(len(readings))
        halves = [half for half in (readings[::2], readings[1::2]) if half]
        try:
            await asyncio.to_thread(self.load)  # not in a thread of the pool, where `asks_once` is not known
            read = [loop.run_in_executor(self._pool, self.scores, question, half) for half in halves]
            for place, odds in enumerate(await asyncio.gather(*read)):
                scores[place::2] = odds
            return scores
        except Exception as error:
            raise EmbeddingFailed(f"{MODEL_FILE.name}: {error}") from error


@cache
def the_reader() -> Reader:
    """The one of this process."""
    return Reader()


os.register_at_fork(after_in_child=the_reader.cache_clear)  # the threads of a parent are not in its child
