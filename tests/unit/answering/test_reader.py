"""The reader: which of several sentences answers, in other words than the question's."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import numpy as np
import pytest
from numpy.typing import NDArray

from rag_app.answering.context import Context, build_context
from rag_app.answering.extractive import MAX_READ, MOST_ODDS, ExtractiveSynthesizer, rank_passages
from rag_app.answering.gate import with_values
from rag_app.answering.reader import MODEL_FILE, Reader, Reading, the_reader
from rag_app.domain import EmbeddingFailed, Question
from rag_app.retrieval.confidence import Signals
from rag_app.retrieval.embedding import MiniLM, asking
from tests.unit.answering.hits import hit

RETURNS = "Refunds are paid by bank transfer. You have it again within five working days. A label costs four pounds."
ASKED = "How soon do I get my money back?"


def context(*texts: str) -> Context:
    return build_context([hit(text, score=0.6) for text in texts], max_tokens=3000, max_sources=9)


@pytest.mark.parametrize(
    ("question", "answer", "others"),
    [
        (
            "How soon do I get my money back?",
            "Refunds are paid within five working days.",
            ["Refunds are paid by bank transfer.", "Money is a word of the Romans."],
        ),
        (
            "why was the tour called off",
            "It was cancelled because of the storm.",
            ["The tour takes two hours.", "The tour is called Night and Fog."],
        ),
        (
            "who do I ask about my payslip",
            "Questions on wages go to Ines Roth.",
            ["Payslips are sent on the 25th.", "Wages rose by two per cent."],
        ),
    ],
)
def test_a_sentence_that_answers_is_before_those_with_the_same_words(
    question: str, answer: str, others: list[str]
) -> None:
    scores = the_reader().scores(question, [Reading(each) for each in (answer, *others)])
    assert scores[0] > scores[1:].max()


def test_a_sentence_is_read_with_the_one_before_it_and_its_heading() -> None:
    """Each of the same words: what is above them tells which answers."""
    alone = Reading("It costs 40 pounds.")
    told = [
        Reading(alone.text, "Prices", "A house call takes an hour."),
        Reading(alone.text, "Prices", "The dog is fed."),
    ]
    scores = the_reader().scores("What do you charge for a house call?", told)
    assert scores[0] > scores[1]


def test_the_score_is_the_same_whatever_is_read_beside_it() -> None:
    texts = [f"Room {number} is {'very ' * (number % 7)}quiet." for number in range(30)]
    together = the_reader().scores("Which room is quiet?", [Reading(text) for text in texts])
    alone = [the_reader().scores("Which room is quiet?", [Reading(text)])[0] for text in texts]
    assert np.allclose(together, alone, atol=1e-3)


def test_what_is_longer_than_the_model_reads_is_cut() -> None:
    long = Reading("word " * 5000, "title " * 500, "before " * 5000)
    assert np.isfinite(the_reader().scores("why " * 5000, [long, Reading("")])).all()


async def test_the_answer_is_taken_in_other_words_than_the_question() -> None:
    text = (await ExtractiveSynthesizer(MiniLM()).write(Question(ASKED), context(RETURNS))).text
    assert "within five working days [Source 1]." in text


async def test_only_the_most_promising_are_read_and_the_rest_count_no_more_than_they() -> None:
    many = " ".join(f"Door {number} is green." for number in range(30)) + " The lion sleeps behind door 31."
    ranking = await rank_passages(MiniLM(), Question("Where does the lion sleep?"), context(many))
    assert ranking.read.shape == ranking.cosines.shape
    assert (ranking.read[0] == ranking.read[0].min()).sum() >= len(ranking.ranked) - MAX_READ + 1
    assert ranking.ranked[int(ranking.read[0].argmax())].text == "The lion sleeps behind door 31."


async def test_more_are_read_where_none_of_the_most_promising_answers() -> None:
    many = " ".join(f"Door {number} is green." for number in range(30))
    ranking = await rank_passages(MiniLM(), Question("Who paints the doors?"), context(many))
    assert ranking.read.max() < 0
    assert (ranking.read[0] > ranking.read[0].min()).sum() >= MAX_READ


def test_the_end_of_a_long_question_is_read() -> None:
    says = [Reading("Refunds are paid within five working days."), Reading("Refunds are paid by bank transfer.")]
    scores = the_reader().scores(f"{'I ordered a desk and a chair in May. ' * 9}{ASKED}", says)
    assert scores[0] > scores[1]


async def test_a_question_in_a_language_that_it_does_not_know_is_not_read() -> None:
    ranking = await rank_passages(MiniLM(), Question("Wie schnell bekomme ich mein Geld zurück?"), context(RETURNS))
    assert not ranking.read.any()


async def test_what_it_reads_tells_the_gate() -> None:
    said, missing = Question(ASKED), Question("Who founded the company?")
    signals = []
    for question in (said, missing):
        found = context(RETURNS)
        signals.append(with_values(Signals(), question, found, await rank_passages(MiniLM(), question, found)))
    assert -1 <= signals[1].read < signals[0].read <= 1


async def test_the_gate_is_told_of_a_follow_up_by_half_alone_and_by_half_with_the_message_before() -> None:
    before, message = ASKED, "Is it insured?"
    read = []
    for searched in (None, f"{before}\n{message}"):
        question = Question(message, searched=searched, leans=searched is not None)
        found = context(RETURNS)
        ranking = await rank_passages(MiniLM(), question, found)
        read.append(with_values(Signals(), question, found, ranking).read)
    assert read[0] < 0 < ranking.read[0].max(), "of both messages the best sentence answers the first"
    together = ranking.read[0].max() / MOST_ODDS
    assert read[1] == pytest.approx((read[0] + together) / 2, abs=1e-3)


async def test_what_was_read_for_an_organization_is_not_read_again_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, read = Reader(), list[str]()
    scores = reader.scores

    def count(question: str, readings: Sequence[Reading]) -> NDArray[np.float64]:
        read.extend(each.text for each in readings)
        return scores(question, readings)

    monkeypatch.setattr(reader, "scores", count)
    says = [Reading("Refunds take five days."), Reading("Dogs are welcome.")]
    for organizations, texts in (
        ({1}, says[:1]),
        ({1}, says),
        ({1, 2}, says),
        ({2}, says),
        (set[int](), says),
        ({2}, says),
    ):
        asking.set(frozenset(UUID(int=each) for each in organizations))
        assert (await reader.read(ASKED, texts)).tolist() == scores(ASKED, texts).tolist()
    assert Counter(read) == {"Refunds take five days.": 4, "Dogs are welcome.": 4}


async def test_a_model_that_fails_is_a_failure_of_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(the_reader(), "scores", fail)
    with pytest.raises(EmbeddingFailed, match=f"{MODEL_FILE.name}: no memory"):
        await the_reader().read(ASKED, [Reading("x")])


def test_a_process_that_was_forked_has_a_reader_of_its_own() -> None:
    """A server asks questions before it makes its workers: of its reader's threads none is in them."""
    asyncio.run(the_reader().read(ASKED, [Reading("x")]))
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            signal.alarm(60)  # what waits for a thread that is not there waits for ever
            asyncio.run(the_reader().read(ASKED, [Reading("x")]))
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
