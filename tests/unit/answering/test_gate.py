"""Who answers from which probability on, and what is said where nobody does."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from rag_app.answering import refusals
from rag_app.answering.capabilities import Capability, capability_for, capability_named
from rag_app.answering.context import Context
from rag_app.answering.engine import CapabilityEngine
from rag_app.answering.gate import FittedGate, Gate, Judgment
from rag_app.answering.refusals import near_miss_text, not_understood, not_understood_here
from rag_app.domain import read_table
from rag_app.domain.answer import Answer, Confidence, Hit, Instructions, Question, Refusal
from rag_app.retrieval.confidence import Basis, Fit, Words, WordUse
from rag_app.retrieval.embedding import MiniLM
from tests.unit.answering.hits import Found, hit
from tests.unit.answering.test_engine import Says

KNOWLEDGE, OWNER = capability_for("org_knowledge"), capability_for("salon_calls")
BRIEF, BOOK = capability_named("market_brief"), capability_for("book")
HIT = hit("Customer: I had to wait almost 15 minutes.", score=0.5)
GERMAN = "Wie lange mussten die Kunden im Januar warten?"


class Level(Gate):
    """Finds what it is told: nothing, enough to ask a model, enough to pick sentences."""

    def __init__(self, asks: bool, answers: bool) -> None:
        self._judgment = Judgment(asks, answers, Confidence.MEDIUM if asks else Confidence.LOW, "index", 0.1)

    async def judge(self, question: Question, hits: Sequence[Hit], context: Context) -> Judgment:
        return self._judgment


class Model(Says):
    def __init__(self) -> None:
        super().__init__("They waited 15 minutes [Source 1].")
        self.model = "a model"


async def ask(capability: Capability, gate: Gate, says: Says, question: Question, *hits: Hit) -> Answer:
    engine = CapabilityEngine(capability, gate, Found(*hits), [], says)
    return await engine.answer(question)


@pytest.mark.parametrize(
    ("capability", "threshold", "asks", "calls"),
    [
        (KNOWLEDGE, None, False, 0),  # its seed: low confidence, no model
        (KNOWLEDGE, None, True, 1),
        (OWNER, 0.35, False, 1),  # what passes the request's threshold goes to the model
        (OWNER, None, False, 0),
        (BRIEF, None, False, 1),  # its seed always asks
    ],
)
async def test_who_asks_a_model(capability: Capability, threshold: float | None, asks: bool, calls: int) -> None:
    says = Model()
    answer = await ask(capability, Level(asks, False), says, Question("How long?", threshold=threshold), HIT)
    assert len(says.shown) == calls
    assert (answer.model, answer.confidence) == (("told", Confidence.MEDIUM) if calls else (None, Confidence.LOW))


async def test_without_a_model_only_what_is_enough_is_answered_from() -> None:
    answer = await ask(KNOWLEDGE, Level(True, False), Says("It is so [Source 1]."), Question("How long?"), HIT)
    assert answer.refusal is Refusal.WEAK and answer.calibration == "index" and answer.probability == 0.1
    answer = await ask(KNOWLEDGE, Level(True, True), Says("It is so [Source 1]."), Question("How long?"), HIT)
    assert not answer.refused


async def test_a_refusal_does_not_deny_what_it_shows() -> None:
    for capability, near in (
        (KNOWLEDGE, KNOWLEDGE.near),
        (OWNER, "I found records that come close, but none of them answers this."),
        (BOOK, "I found passages, but none of them answers this."),
    ):
        weak = await ask(capability, Level(False, False), Says("x"), Question("How long?"), HIT)
        assert weak.text == near and len(weak.citations) == 1
        nothing = await ask(capability, Level(False, False), Says("x"), Question("How long?"))
        assert nothing.text == capability.refusal and nothing.citations == ()


def test_a_refusal_is_in_the_language_that_is_asked_for_or_declared() -> None:
    asked = Question(GERMAN)
    assert near_miss_text(BOOK, asked, ("en",)) == BOOK.near
    assert near_miss_text(BOOK, asked, ("en", "de")).startswith("Ich habe etwas gefunden")
    told = replace(asked, text="How long?", instructions=Instructions({"language": "fr"}))
    assert near_miss_text(BOOK, told, ("en",)).startswith("J'ai trouvé")
    assert near_miss_text(KNOWLEDGE, asked, ("en", "de")) == KNOWLEDGE.near, "its seed's words, whatever the language"


def test_a_refusal_says_what_a_result_would_take() -> None:
    said = near_miss_text(BOOK, Question("Which robot is the fastest?"), ("en",))
    assert (
        said
        == f"{BOOK.near} None of the sources found states which of them it is. It cannot be calculated from text, only from records with fields."
    )
    german = near_miss_text(BOOK, Question("Wie viele Roboter gibt es?"), ("en", "de"))
    assert german.endswith(
        "Keine der gefundenen Quellen nennt diese Anzahl. Aus Text lässt sich das nicht berechnen, nur aus Datensätzen mit Feldern."
    )
    assert near_miss_text(KNOWLEDGE, Question("Which robot is the fastest?"), ("en",)) == KNOWLEDGE.near


def test_an_english_model_says_so_to_who_asks_in_another_language() -> None:
    warning = not_understood(GERMAN, "small", MiniLM.model_fields["languages"].default)
    assert warning == (
        "The configured embedding model (small) knows English only, and the question seems to be in German"
    )
    assert near_miss_text(BOOK, Question(GERMAN), ("en",), warning) == f"{BOOK.near} {warning}."
    assert near_miss_text(BOOK, Question(GERMAN), ("en",), warning, "No field") == f"{BOOK.near} No field."
    led = near_miss_text(KNOWLEDGE, Question(GERMAN), ("en",), warning)
    assert led.startswith(f"{KNOWLEDGE.refusal} {warning}. ") and led.endswith("sources I found:")
    assert near_miss_text(KNOWLEDGE, Question("How long?"), ("en",), "", "No field") == KNOWLEDGE.near
    for own, words in read_table(refusals.__file__)["english_only"].items():
        told = words.format("small")
        said = near_miss_text(KNOWLEDGE, Question(GERMAN), ("en",), told)
        assert f". {told}. " in said and said.endswith(":") and "Here are" not in said, f"all of it in {own}"
    german = not_understood_here(GERMAN, "small", ("en",))
    said = near_miss_text(BOOK, Question(GERMAN), ("en",), german)
    assert said == f"Ich habe etwas gefunden, aber nichts davon beantwortet die Frage. {german}."
    assert not_understood("opening hours on Sunday", "small", ("en",)) == not_understood(GERMAN, "large", ()) == ""


async def test_a_fitted_gate_looks_at_words_and_sentences() -> None:
    fit = Fit(
        embedding_model="all-MiniLM-L6-v2-int8", weights={"sentence": 10.0, "covered": 5.0}, intercept=-9.0,
        ask_from=0.2, answer_from=0.5, high=0.9, answerable=1, unanswerable=1,
    )  # fmt: skip

    async def load() -> tuple[Fit, Basis]:
        return fit, "organization"

    class Counting:
        async def word_use(self, words: Sequence[str], among: Sequence[UUID]) -> Words:
            return Words((WordUse("wait", 1, frozenset(among) & {HIT.chunk_id}),), 10)

    async def opened() -> Any:
        return Counting()

    says = Says("They waited 15 minutes [Source 1].")
    for text, refused in (("How long did customers wait?", False), ("Who is the president of France?", True)):
        hits = [HIT] if not refused else [hit("Dogs are welcome in the salon.", score=0.5)]
        answer = await ask(KNOWLEDGE, FittedGate(MiniLM(), load, opened), says, Question(text), *hits)
        assert answer.refused is refused, answer
        assert answer.calibration == "organization" and answer.probability is not None


async def test_a_sentence_that_answers_for_certain_is_enough() -> None:
    fit = Fit(
        embedding_model="all-MiniLM-L6-v2-int8", weights={"sentence": 1.0}, intercept=-9.0,
        ask_from=0.2, answer_from=0.5, high=0.9, answerable=1, unanswerable=1,
    )  # fmt: skip

    async def load() -> tuple[Fit, Basis]:
        return fit, "index"

    for text, refused in (
        ("How soon do I get my money back?", False),
        ("Who is the president of France?", True),
    ):
        found = hit("Refunds are paid within five working days.", score=0.5)
        says = Says("Refunds are paid within five working days [Source 1].")
        answer = await ask(KNOWLEDGE, FittedGate(MiniLM(), load), says, Question(text), found)
        assert answer.refused is refused, answer
        assert answer.probability is not None and answer.probability < fit.answer_from
