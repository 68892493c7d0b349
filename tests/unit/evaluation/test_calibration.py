"""Thresholds from signals, by hand and by trying them all."""

import pytest
from hypothesis import given, strategies as st

from rag_app.domain.errors import InvalidInput
from rag_app.evaluation.calibration import answerability, auroc, calibrate
from rag_app.retrieval.index import ConfidenceRule

SIGNALS = st.lists(st.integers(-100, 100).map(lambda n: n / 100), min_size=1, max_size=12)


def test_separable_questions_are_parted_half_way() -> None:
    rule = calibrate([0.6, 0.7, 0.8, 0.9], [0.1, 0.2, 0.3])
    assert (rule.answer_from, rule.high, rule.signal) == (0.45, 0.45, "best")
    figures = answerability([0.6, 0.7, 0.8, 0.9], [0.1, 0.2, 0.3], rule)
    assert (figures.auroc, figures.answerable_refused, figures.unanswerable_accepted) == (1, 0, 0)
    assert (figures.answerable, figures.unanswerable, figures.rule) == (4, 3, rule)


def test_high_is_where_nine_of_ten_accepted_are_answerable() -> None:
    answerable = [0.5 + n / 100 for n in range(20)]
    unanswerable = [0.2] * 30 + [0.505, 0.515, 0.535]
    # of those accepted from .35 on, 20 of 23 are answerable, from .5075 on 19 of 21 = .905
    rule = calibrate(answerable, unanswerable)
    assert (rule.answer_from, rule.high) == (0.35, 0.5075)


def test_high_is_the_upper_quartile_where_precision_is_never_reached() -> None:
    rule = calibrate([0.4, 0.5, 0.6, 0.7, 0.8], [0.1, 0.2, 0.9], "mean5")
    assert (rule.answer_from, rule.high, rule.signal) == (0.3, 0.7, "mean5")


def test_high_is_never_below_answer_from() -> None:
    rule = calibrate([0.1] * 8 + [0.8, 0.9], [0.2] * 10)  # the upper quartile of the answerable is .1
    assert (rule.answer_from, rule.high) == (0.5, 0.5)


def test_of_equal_thresholds_the_one_that_refuses_fewer_answerable() -> None:
    # .15 (all answerable, one of two unanswerable) and .35 (one of two, none) are equally accurate
    assert calibrate([0.2, 0.4], [0.1, 0.3]).answer_from == 0.15


def test_inverted_signals_accept_everything() -> None:
    rule = calibrate([0.12346], [0.3])
    assert answerability([0.12346], [0.3], rule).answerable_refused == 0


@pytest.mark.parametrize(("answerable", "unanswerable"), [([], [0.1]), ([0.1], []), ([], [])])
def test_both_kinds_of_questions_are_needed(answerable: list[float], unanswerable: list[float]) -> None:
    for measure in (calibrate, auroc, lambda a, u: answerability(a, u, ConfidenceRule())):
        with pytest.raises(InvalidInput, match="with an answer and questions without"):
            measure(answerable, unanswerable)


@given(SIGNALS, SIGNALS)
def test_auroc_is_the_share_of_pairs_in_order(answerable: list[float], unanswerable: list[float]) -> None:
    pairs = [(a > u) + (a == u) / 2 for a in answerable for u in unanswerable]
    assert auroc(answerable, unanswerable) == pytest.approx(sum(pairs) / len(pairs))


@given(SIGNALS, SIGNALS)
def test_no_threshold_is_more_accurate(answerable: list[float], unanswerable: list[float]) -> None:
    def balanced(threshold: float) -> float:
        figures = answerability(answerable, unanswerable, ConfidenceRule(answer_from=threshold, high=1))
        return (100 - figures.answerable_refused + 100 - figures.unanswerable_accepted) / 200

    rule = calibrate(answerable, unanswerable)
    best = max(balanced(threshold) for threshold in [*answerable, *unanswerable, 1.0])
    assert balanced(rule.answer_from) == pytest.approx(best)
    lower = [each for each in [*answerable, *unanswerable] if each < rule.answer_from]
    assert all(balanced(each) < best - 1e-9 for each in lower)
