"""Chooses from which score an index answers, by questions that it can answer and questions that it cannot.

A fixed rule looks at one cosine a question (-1..1): that of the best hit, or the mean of the best five. A question is
accepted when that is at least `answer_from`. A fit looks at several signals (rag_app/retrieval/confidence.py).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, structs

from rag_app.domain import InvalidInput
from rag_app.retrieval.confidence import NAMES, Fit, Signals, probabilities
from rag_app.retrieval.index import ConfidenceRule

_HIGH_PRECISION = 0.9


class Answerability(Struct, frozen=True):
    """The effect of a rule on questions with and without an answer.

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
    answer_from = _round_threshold(cuts[best])
    return ConfidenceRule(signal=signal, answer_from=answer_from, high=max(answer_from, _round_threshold(high)))


def _signals(answerable: Sequence[float], unanswerable: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if not answerable or not unanswerable:
        raise InvalidInput("questions", None, "answerability needs questions with an answer and questions without one")
    return np.sort(np.array(answerable, np.float64)), np.sort(np.array(unanswerable, np.float64))


def _round_threshold(threshold: float) -> float:
    return round(min(1.0, max(-1.0, float(threshold))), 4)


# -- the probability of several signals

_PRIOR_STRENGTH = 5.0
_SMALLEST_SPREAD = 0.05
_FOLDS = 5
_ASK_REFUSES, _ANSWER_REFUSES, _HIGH_ACCEPTS = 0.01, 0.08, 0.05
_ASK_MARGIN = 0.4
# Questions with which thresholds are half a fit's own and half its prior's: those of few questions say little.
_PRIOR_QUESTIONS = 100
LEAST_QUESTIONS, LEAST_OF_A_KIND = 30, 8
"""Questions that a fit of their own needs: in all, and with and without an answer."""


class AskedQuestion(Struct, frozen=True):
    """A question whose signals are known, and whether there is an answer. `weight` is how much it counts."""

    signals: Signals
    answerable: bool
    weight: float = 1.0


def fit_gate(asked: Sequence[AskedQuestion], embedding_model: str, prior: Fit | None = None) -> Fit:
    """The logistic regression that fits these questions; it and its thresholds are drawn towards `prior`.

    Questions with and without an answer have the same total weight, so a probability is that of a corpus that answers
    half of its questions. The thresholds are taken from questions that were left out of the fit (five folds): a model is
    asked so readily that 1 % of the answerable questions would be refused, with some margin; the extractive answerer
    answers from the threshold with the best balanced accuracy among those that refuse at most 8 % of them; high is
    what at most 5 % of the questions without an answer reach. Raises InvalidInput unless there are enough of both.
    """
    answerable = np.array([each.answerable for each in asked], bool)
    good, bad = int(answerable.sum()), int((~answerable).sum())
    if len(asked) < LEAST_QUESTIONS or min(good, bad) < LEAST_OF_A_KIND:
        raise InvalidInput(
            "questions",
            len(asked),
            f"a fit needs {LEAST_QUESTIONS} judged questions or more, {LEAST_OF_A_KIND} of each kind: "
            f"there are {good} with an answer and {bad} without",
        )
    signals = np.array([structs.astuple(each.signals) for each in asked], np.float64)
    shares = _balance(np.array([each.weight for each in asked], np.float64), answerable)
    start = np.zeros(len(NAMES) + 1) if prior is None else prior.vector()
    held_out = np.empty(len(asked))
    folds = _folds(answerable)
    for fold in range(_FOLDS):
        rest = folds != fold
        weights = _regress(signals[rest], answerable[rest], shares[rest], start)
        held_out[~rest] = probabilities(signals[~rest], weights)
    thresholds = _thresholds(held_out, answerable, shares)
    if prior is not None:
        trust = len(asked) / (len(asked) + _PRIOR_QUESTIONS)
        drawn = zip(thresholds, (prior.ask_from, prior.answer_from, prior.high), strict=True)
        thresholds = [trust * own + (1 - trust) * before for own, before in drawn]
    ask_from, answer_from, high = (round(each, 4) for each in thresholds)
    weights = _regress(signals, answerable, shares, start)
    return Fit(
        embedding_model=embedding_model,
        weights={name: round(float(weight), 4) for name, weight in zip(NAMES, weights, strict=False)},
        intercept=round(float(weights[-1]), 4),
        ask_from=ask_from,
        answer_from=answer_from,
        high=high,
        answerable=good,
        unanswerable=bad,
    )


def _balance(weights: np.ndarray, answerable: np.ndarray) -> np.ndarray:
    """Weights that sum to half the number of questions for each kind."""
    shares = weights.copy()
    for kind in (answerable, ~answerable):
        shares[kind] *= len(weights) / 2 / weights[kind].sum()
    return shares


def _folds(answerable: np.ndarray) -> np.ndarray:
    """A fold for each question: the questions of a kind are dealt out in turn."""
    folds = np.empty(len(answerable), int)
    for kind in (answerable, ~answerable):
        folds[kind] = np.arange(kind.sum()) % _FOLDS
    return folds


def _regress(signals: np.ndarray, answerable: np.ndarray, shares: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Weights and intercept with the highest posterior, by Newton's method: normal around `start`, in units of each
    signal's spread."""
    spread = np.append(np.maximum(signals.std(axis=0), _SMALLEST_SPREAD), 1.0)
    rows = np.column_stack([signals, np.ones(len(signals))]) / spread
    drawn = np.diag(np.append(np.full(len(NAMES), _PRIOR_STRENGTH), 1e-3))
    prior = start * spread
    weights = prior.copy()
    for _ in range(100):
        likely = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (shares * (likely - answerable)) + drawn @ (weights - prior)
        curve = (rows * (shares * likely * (1 - likely))[:, None]).T @ rows + drawn
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return np.asarray(weights / spread)


def _thresholds(likely: np.ndarray, answerable: np.ndarray, shares: np.ndarray) -> list[float]:
    """The three thresholds as probabilities: ask a model from, extract sentences from, high from."""
    with_answer, without = likely[answerable], likely[~answerable]
    weights, others = shares[answerable], shares[~answerable]
    lowest = _ASK_MARGIN * _quantile(with_answer, weights, _ASK_REFUSES)
    most = _quantile(with_answer, weights, _ANSWER_REFUSES)
    cuts = np.unique(likely[likely <= most])
    refused = np.array([weights[with_answer < cut].sum() for cut in cuts]) / weights.sum()
    accepted = np.array([others[without >= cut].sum() for cut in cuts]) / others.sum()
    answer_from = max(lowest, float(cuts[np.argmin(refused + accepted)]))
    high = max(answer_from, _quantile(without, others, 1 - _HIGH_ACCEPTS))
    return [lowest, answer_from, high]


def _quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """The value below which this share of the weight lies.

    >>> _quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][min(int(np.searchsorted(reached, share, "right")), len(values) - 1)])
