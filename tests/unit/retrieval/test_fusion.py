from uuid import UUID

from hypothesis import given, strategies as st

from rag_app.domain.answer import Mode
from rag_app.retrieval.fusion import Candidate, rank
from rag_app.retrieval.index import Fusion

candidates = st.lists(
    st.builds(
        Candidate,
        st.integers(0, 10**6).map(lambda n: UUID(int=n)),
        st.floats(-1, 1),
        st.one_of(st.just(0.0), st.floats(0.01, 30)),
    ),
    max_size=20,
    unique_by=lambda c: c.id,
)


def test_by_hand() -> None:
    a, b, c = (Candidate(UUID(int=n), cos, bm25) for n, cos, bm25 in [(1, 0.9, 0.0), (2, 0.5, 10.0), (3, 0.1, 5.0)])
    # scaled: dense 1, .5, 0; lexical 0, 1, .5 -> .6, .7, .2
    assert rank([a, b, c], Mode.HYBRID, Fusion(dense=0.6, lexical=0.4)) == [b, a, c]
    assert rank([c, b, a], Mode.HYBRID, Fusion(dense=1, lexical=0)) == [a, b, c]
    assert rank([c, b, a], Mode.DENSE, Fusion()) == [a, b, c]
    assert rank([a, b, c], Mode.TEXT, Fusion()) == [b, c]


@given(candidates)
def test_order_does_not_depend_on_the_input(found: list[Candidate]) -> None:
    for mode in Mode:
        forwards, backwards = rank(found, mode, Fusion()), rank(found[::-1], mode, Fusion())
        assert forwards == backwards
        assert set(forwards) <= set(found)
    assert len(rank(found, Mode.HYBRID, Fusion())) == len(found)


@given(candidates)
def test_better_on_both_sides_is_never_behind(found: list[Candidate]) -> None:
    order = {c.id: i for i, c in enumerate(rank(found, Mode.HYBRID, Fusion()))}
    for a in found:
        for b in found:
            if a.cosine - b.cosine > 1e-6 and a.bm25 - b.bm25 > 1e-6:
                assert order[a.id] < order[b.id]
