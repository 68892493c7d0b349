"""The arithmetic of `make bench`: a wrong figure looks like any other."""

import doctest
import json
import math
from pathlib import Path
from types import ModuleType
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bench import figures, lexical, parts
from bench.corpus import ALL, SHARES, Corpus, Original, _organizations, chunk_number, chunk_uuid
from bench.figures import Bound, Report, Table, Timing, fastest, machine, number, percentile, recall
from bench.lexical import agreement


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_numpys(values: list[float], share: float) -> None:
    assert percentile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-9, abs=1e-6)


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_recall_counts_what_was_found_of_what_there_is() -> None:
    assert recall([1, 2, 3], [1, 2, 3]) == 1
    assert recall([3, 3, 9], [1, 2, 3]) == pytest.approx(1 / 3)
    assert recall([], [1]) == 0
    assert recall([], []) == 1


@pytest.mark.parametrize(
    ("measured", "limit", "at_most", "held"),
    [
        (1.5, 1.5, True, True),
        (1.51, 1.5, True, False),
        (0.8, 0.8, False, True),
        (0.79, 0.8, False, False),
        (math.nan, 1.5, True, False),
        (math.nan, 0.8, False, False),
    ],
)
def test_a_bound_is_held_up_to_its_limit_and_never_by_what_was_not_measured(
    measured: float, limit: float, at_most: bool, held: bool
) -> None:
    assert Bound("it", "that", measured, limit, at_most).held is held


def test_the_reference_finds_enough_and_never_too_few_rows() -> None:
    timings = {"a": Timing((1.0,)), "b": Timing((2.0,)), "c": Timing((3.0,))}
    recalls = {"a": 0.9, "b": 1.0, "c": 1.0}
    assert fastest(timings, recalls, 0.99) == "b"
    assert fastest(timings, recalls, 0.99, short=["b"]) == "c"
    assert fastest(timings, recalls, 0.85) == "a"


def test_agreement_takes_equal_scores_for_equally_good() -> None:
    scores = {UUID(int=n): 5.0 if n < 9 else 1.0 for n in range(20)}
    best = [UUID(int=n) for n in range(9)]
    assert agreement([*best, UUID(int=9)], scores) == 1
    assert agreement([*best, UUID(int=19)], scores) == 1
    assert agreement(best, scores) == pytest.approx(0.9)
    assert agreement([UUID(int=n) for n in range(10, 20)], scores) == 1 == agreement([], {})
    assert agreement([UUID(int=99)], scores) == 0 == agreement([UUID(int=99)], {})


def test_a_report_names_what_was_missed_and_can_be_read_by_machines(tmp_path: Path) -> None:
    report = Report({"machine": "one of two cores"})
    report.tables.append(Table("Times", "In ms.", ("who", "p50"), [("ours", 1.25), ("theirs", 1234.0)]))
    report.bounds += [Bound("held", "that", 1.0, 1.5), Bound("too slow", "that", 1.7, 1.5)]
    report.write(tmp_path)
    assert [each.what for each in report.missed] == ["too slow"]
    shown = (tmp_path / "results.md").read_text()
    assert "| too slow | that | 1.70 | <= 1.50 | **missed** |" in shown
    assert "| held | that | 1.00 | <= 1.50 | held |" in shown
    assert "| ours | 1.25 |\n| theirs | 1234 |" in shown
    read = json.loads((tmp_path / "results.json").read_text())
    assert [each["held"] for each in read["bounds"]] == [True, False]
    assert read["tables"][0]["rows"] == [["ours", 1.25], ["theirs", 1234.0]]


def test_a_number_keeps_its_size() -> None:
    assert [number(each) for each in (0.0, 0.0123, 9.994, 99.94, 99.96, 12345.6)] == [
        "0.000", "0.012", "9.99", "99.9", "100.0", "12346",
    ]  # fmt: skip


def test_the_machine_is_described() -> None:
    assert "cores" in machine()["machine"]
    assert "pgvector" in machine()["software"]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    random = np.random.default_rng(3)
    size = 4000
    vectors = random.normal(size=(size, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    originals = [Original("T", "One. Two.", ("One.", "Two.")), Original("U", "Three.", ("Three.",))]
    return Corpus(
        sources="two passages",
        originals=originals,
        questions=["?"],
        question_vectors=vectors[:1],
        vectors=vectors,
        organization=_organizations(vectors, random),
        author=random.integers(0, 100, size),
        original=np.zeros(size, np.int64),
        donor=np.ones(size, np.int64),
    )


def test_organizations_have_the_shares_they_are_named_by(corpus: Corpus) -> None:
    for tenant, share in SHARES.items():
        assert len(corpus.rows(tenant)) == round(corpus.size * share)
    assert len(corpus.rows(ALL)) == corpus.size
    assert len(corpus.rows(ALL, author=7)) == pytest.approx(corpus.size / 100, rel=0.5)
    assert set(corpus.rows("50 %", author=7)) == set(corpus.rows("50 %")) & set(corpus.rows(ALL, author=7))


def test_the_organization_on_one_topic_is_closer_together_than_another_of_its_size(corpus: Corpus) -> None:
    topic, mixed = (corpus.vectors[corpus.rows(tenant)] for tenant in ("1 %, one topic", "1 %"))
    assert (topic @ topic.T).mean() > 0.3 + (mixed @ mixed.T).mean()


def test_the_text_of_a_chunk_has_one_foreign_sentence(corpus: Corpus) -> None:
    assert {corpus.text(chunk) for chunk in range(10)} == {"Three. Two.", "One. Three."}


def test_questions_of_a_run_are_never_asked_twice() -> None:
    long = tuple(f"This is sentence number {n} of the passage." for n in range(4))
    originals = [Original("", "", long), Original("", "", (*long[:2], "Short.", "And this one is another sentence."))]
    nothing, vectors = np.zeros(0, np.int64), np.zeros((0, 8), np.float32)
    empty = Corpus("", originals, [], vectors, vectors, nothing, nothing, nothing, nothing)
    assert sorted(empty.fresh_questions()) == sorted({*long, "And this one is another sentence."})


@pytest.mark.parametrize("module", [figures, lexical, parts])
def test_examples_hold(module: ModuleType) -> None:
    assert doctest.testmod(module).attempted > 0
    assert doctest.testmod(module).failed == 0


def test_a_chunk_is_known_by_its_id() -> None:
    assert chunk_number(chunk_uuid(123)) == chunk_number(str(chunk_uuid(123))) == 123
