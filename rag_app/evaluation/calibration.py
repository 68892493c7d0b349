"""From which cosine should an index answer? Chosen by questions it can answer and questions it cannot.

Signals are cosines (-1..1), one a question: that of the best hit, or the mean of the best five, as the index's rule
says. A question is accepted when its signal is at least `answer_from`.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rag_app.domain import InvalidInput, frozen
from rag_app.retrieval.index import ConfidenceRule

_HIGH_PRECISION = 0.9


@frozen
class Answerability:
    """What a rule does to questions with and without an answer.

    `auroc` (0..1, Hanley & McNeil 1982) does not depend on the thresholds: the probability that an answerable question
    has a higher signal than an unanswerable one, ties counting half. The other two are percentages of the questions
    of their kind.
    """

    rule: ConfidenceRule
    answerable: int
    unanswerable: int
    auroc: float
    answerable_refused: float
    unanswerable_accepted: float


def answerability(answerable: Sequence[float], unanswerable: Sequence[float], rule: ConfidenceRule) -> Answerability:
    """Measure `rule`. Raises InvalidInput unless there are questions of both kinds.

    >>> figures = answerability([0.3, 0.6, 0.7, 0.8], [0.1, 0.5], ConfidenceRule(answer_from=0.45))
    >>> figures.auroc, figures.answerable_refused, figures.unanswerable_accepted
    (0.875, 25.0, 50.0)
    """
    with_answer, without = _signals(answerable, unanswerable)
    return Answerability(
        rule=rule,
        answerable=with_answer.size,
        unanswerable=without.size,
        auroc=auroc(answerable, unanswerable),
        answerable_refused=100 * float((with_answer < rule.answer_from).mean()),
        unanswerable_accepted=100 * float((without >= rule.answer_from).mean()),
    )


def auroc(answerable: Sequence[float], unanswerable: Sequence[float]) -> float:
    """Area under the ROC curve, as in `Answerability`.

    >>> auroc([0.5, 0.9], [0.5, 0.1])
    0.875
    """
    with_answer, without = _signals(answerable, unanswerable)
    below = np.searchsorted(without, with_answer, "left") + np.searchsorted(without, with_answer, "right")
    return float(below.mean() / 2 / without.size)


def calibrate(
    answerable: Sequence[float], unanswerable: Sequence[float], signal: Literal["best", "mean5"] = "best"
) -> ConfidenceRule:
    """The thresholds that fit these questions, each half way between two signals, in four digits.

    `answer_from` has the highest balanced accuracy (the mean of the share of answerable questions accepted and that of
    unanswerable ones refused); of equal ones the lowest, which refuses fewer answerable questions. `high` is the first
    threshold from there on with a precision of 0.9 among the accepted, or the 75th percentile of the answerable
    signals if that is lower; never below `answer_from`. Raises InvalidInput unless there are questions of both kinds.

    >>> rule = calibrate([0.4, 0.6, 0.7, 0.8], [0.1, 0.2, 0.3, 0.5])
    >>> rule.answer_from, rule.high
    (0.35, 0.55)
    """
    with_answer, without = _signals(answerable, unanswerable)
    seen = np.unique(np.concatenate([with_answer, without]))
    cuts = np.concatenate([seen[:1] - 1e-4, (seen[:-1] + seen[1:]) / 2])  # the first accepts everything, rounded too
    accepted = with_answer.size - np.searchsorted(with_answer, cuts)
    wrongly = without.size - np.searchsorted(without, cuts)
    # in whole numbers, so that equal accuracies are equal: accepted/n - wrongly/m, times n*m
    best = int(np.argmax(accepted * without.size - wrongly * with_answer.size))
    precise = cuts[best:][(accepted / (accepted + wrongly))[best:] >= _HIGH_PRECISION]
    high = min([*precise[:1], np.percentile(with_answer, 75)])
    answer_from = _rounded(cuts[best])
    return ConfidenceRule(signal=signal, answer_from=answer_from, high=max(answer_from, _rounded(high)))


def _signals(answerable: Sequence[float], unanswerable: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if not answerable or not unanswerable:
        raise InvalidInput("questions", None, "answerability needs questions with an answer and questions without one")
    return np.sort(np.array(answerable, np.float64)), np.sort(np.array(unanswerable, np.float64))


def _rounded(threshold: float) -> float:
    return round(min(1.0, max(-1.0, float(threshold))), 4)
