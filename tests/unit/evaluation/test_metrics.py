"""The metrics, by hand and against trec_eval."""

import math
import random

import pytest
import pytrec_eval

from rag_app.domain.errors import InvalidInput
from rag_app.evaluation.validation import evaluate_run, hit_rate, ndcg, precision, recall, reciprocal_rank

RANKED = ["x", "a", "y", "b", "z"]
GRADES = {"a": 1, "b": 3, "c": 2, "x": 0}  # c is not found; y and z are not judged


def test_by_hand() -> None:
    dcg = 1 / math.log2(3) + 3 / math.log2(5)
    ideal = 3 / 1 + 2 / math.log2(3) + 1 / math.log2(4)
    assert ndcg(RANKED, GRADES, 5) == pytest.approx(dcg / ideal)
    assert ndcg(RANKED, GRADES, 2) == pytest.approx((1 / math.log2(3)) / (3 + 2 / math.log2(3)))
    assert precision(RANKED, GRADES, 5) == 2 / 5
    assert precision(RANKED, GRADES, 10) == 2 / 10  # k is larger than the ranking
    assert recall(RANKED, GRADES, 3) == 1 / 3
    assert recall(RANKED, GRADES, 10) == 2 / 3
    assert reciprocal_rank(RANKED, GRADES, 3) == reciprocal_rank(RANKED, GRADES, 2) == 1 / 2
    assert reciprocal_rank(RANKED, GRADES, 1) == 0
    assert (hit_rate(RANKED, GRADES, 1), hit_rate(RANKED, GRADES, 2)) == (0, 1)


def test_the_mean_is_over_the_judged_queries() -> None:
    qrels = {"found": {"a": 1}, "not run": {"a": 1}, "nothing relevant": {"a": 0}, "not judged": {}}
    scores = evaluate_run({"found": ["a"], "nothing relevant": ["a"], "stray": ["a"]}, qrels, ks=(1,))
    assert scores.queries == 3
    assert scores.ndcg[1] == scores.precision[1] == scores.recall[1] == scores.hit_rate[1] == pytest.approx(1 / 3)
    assert scores.mrr[1] == pytest.approx(1 / 3)


def test_nothing_judged_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="no query has a judged document"):
        evaluate_run({"q": ["a"]}, {"q": {}})


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_trec_eval(seed: int) -> None:
    """Ties, graded, negative and missing judgments, short, empty and missing rankings, nothing relevant."""
    rng = random.Random(seed)
    documents = [f"d{n}" for n in range(30)]
    qrels, scored = {}, {}
    for n in range(30):
        judged = rng.sample(documents, rng.randint(2, 20))
        grades = [0] if n % 10 == 0 else [-1, 0, 0, 1, 2, 3]
        qrels[f"q{n}"] = {name: rng.choice(grades) for name in judged}
        if n % 9:
            found = rng.sample(documents, rng.choice([1, 3, 8, 25]))
            scored[f"q{n}"] = {name: rng.randint(0, 5) / 4 for name in found}
    # trec_eval orders ties by name, backwards
    run = {q: sorted(found, key=lambda name: (found[name], name), reverse=True) for q, found in scored.items()}

    ks = (1, 5, 10, 50)
    at = ",".join(map(str, ks))
    measures = {f"ndcg_cut.{at}", f"P.{at}", f"recall.{at}", f"success.{at}", "recip_rank"}
    theirs = list(pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(scored).values())

    def expected(measure: str) -> float:
        return sum(each[measure] for each in theirs) / len(qrels)  # as with -c: a missing query counts 0

    ours = evaluate_run(run, qrels, ks)
    assert ours.queries == len(qrels) == 30
    for k in ks:
        assert ours.ndcg[k] == pytest.approx(expected(f"ndcg_cut_{k}"), abs=1e-4)
        assert ours.precision[k] == pytest.approx(expected(f"P_{k}"), abs=1e-4)
        assert ours.recall[k] == pytest.approx(expected(f"recall_{k}"), abs=1e-4)
        assert ours.hit_rate[k] == pytest.approx(expected(f"success_{k}"), abs=1e-4)
        cut = {q: {name: scored[q][name] for name in ranked[:k]} for q, ranked in run.items()}
        first = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(cut)
        mrr = sum(each["recip_rank"] for each in first.values()) / len(qrels)
        assert ours.mrr[k] == pytest.approx(mrr, abs=1e-4)
    assert ours.mrr[50] == pytest.approx(expected("recip_rank"), abs=1e-4)
    assert ours.ndcg[10] > 0.05  # there is something to agree on
