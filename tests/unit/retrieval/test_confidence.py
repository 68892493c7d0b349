"""Signals of hits, and what a fit makes of them."""

import json
from pathlib import Path

import pytest

from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.evaluation.calibration import AskedQuestion, fit_gate
from rag_app.retrieval.confidence import (
    FIT_FILE,
    WORDS_ALONE,
    Fit,
    Sentence,
    Signals,
    Words,
    WordUse,
    measure,
    shipped_fit,
)
from tests.unit.answering.hits import hit


def test_signals_of_no_hits_are_nothing() -> None:
    assert measure([], Words(), []) == Signals()


def test_rare_words_count_more_than_common_ones() -> None:
    near, far = hit("The aurora closes at six.", score=0.6), hit("The shop.", score=0.2)
    used = (
        WordUse("aurora", 1, frozenset({near.chunk_id})),
        WordUse("closes", 50, frozenset({near.chunk_id, far.chunk_id})),
        WordUse("zebra", 0, frozenset()),
    )
    sentences = [Sentence("The aurora closes at six.", 0.7), Sentence("The shop.", 0.1)]
    found = measure([far, near], Words(used, 100), sentences)
    assert (found.best, round(found.ahead, 6), found.sentence) == (0.6, 0.4, 0.7)
    assert 0.4 < found.covered < 0.6 and 0.4 < found.unknown < 0.6, "aurora and zebra are about as rare"
    assert found.covered + found.unknown == pytest.approx(1)
    assert found.said == pytest.approx(found.covered) and found.both == pytest.approx(0.7 + 0.3 * found.said)
    assert found.stands_out == pytest.approx(0.3)


def test_words_that_the_store_does_not_count_are_no_signal() -> None:
    found = measure([hit("A", score=0.5)], Words(), [Sentence("A", 0.5)])
    assert (found.covered, found.unknown, found.said, found.both) == (0, 0, 0, 0.5)


def test_a_fit_says_what_is_wrong_in_its_file(tmp_path: Path) -> None:
    given = WORDS_ALONE.model_dump(mode="json")
    for name, value in {"weights": {"charm": 1.0}, "ask_from": 0.9, "colour": 1}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / FIT_FILE).write_text(json.dumps({**given, name: value}), "utf-8")
        with pytest.raises(Misconfigured, match=f"(?s){name}/{FIT_FILE}.*(charm|answer_from|colour)"):
            shipped_fit(folder, "book", "any")


def test_the_fit_of_an_index_is_for_its_embedding_model_alone(tmp_path: Path) -> None:
    general = WORDS_ALONE.model_copy(update={"embedding_model": "small"})
    (tmp_path / FIT_FILE).write_text(general.model_dump_json(), "utf-8")
    (tmp_path / "book").mkdir()
    own = general.model_copy(update={"intercept": 1.0})
    (tmp_path / "book" / FIT_FILE).write_text(own.model_dump_json(), "utf-8")
    assert shipped_fit(tmp_path, "book", "small") == (own, "index")
    assert shipped_fit(tmp_path, "notes", "small") == (general, "uncalibrated")
    assert shipped_fit(tmp_path, "book", "large") == (WORDS_ALONE, "uncalibrated")


def asked(answerable: int, unanswerable: int) -> list[AskedQuestion]:
    good = [AskedQuestion(Signals(best=0.5 + n / 200, covered=0.8), answerable=True) for n in range(answerable)]
    return good + [
        AskedQuestion(Signals(best=0.2 + n / 200, covered=0.1), answerable=False) for n in range(unanswerable)
    ]


def test_a_fit_tells_the_questions_apart_and_orders_its_thresholds() -> None:
    fit = fit_gate(asked(40, 40), "small")
    good, bad = (fit.probability(Signals(best=best, covered=covered)) for best, covered in ((0.6, 0.8), (0.3, 0.1)))
    assert bad < fit.answer_from <= good
    assert 0 < fit.ask_from <= fit.answer_from <= fit.high
    assert (fit.embedding_model, fit.answerable, fit.unanswerable) == ("small", 40, 40)


def test_what_questions_say_nothing_about_stays_what_it_was() -> None:
    prior = WORDS_ALONE.model_copy(update={"weights": {"said": 3.0, "covered": 4.0}})
    own = fit_gate(asked(16, 16), "small", prior)
    assert own.weights["said"] == pytest.approx(3.0), "all of them have the same"
    assert own.weights["best"] > 0 and own.embedding_model == "small"


@pytest.mark.parametrize(("answerable", "unanswerable"), [(20, 9), (60, 7), (7, 60), (0, 0)])
def test_too_few_questions_are_no_fit(answerable: int, unanswerable: int) -> None:
    with pytest.raises(InvalidInput, match="30 judged questions or more, 8 of each kind"):
        fit_gate(asked(answerable, unanswerable), "small")


def test_weights_are_those_of_known_signals() -> None:
    assert Fit.model_validate_json(WORDS_ALONE.model_dump_json()) == WORDS_ALONE
    assert WORDS_ALONE.ask_from == 0, "a model is always asked where nothing was fitted"
