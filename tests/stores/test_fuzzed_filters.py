"""Filters that nobody would write: each store refuses them or finds the same chunks as the other one."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_app.domain.answer import Mode
from rag_app.domain.errors import InvalidInput
from rag_app.domain.filters import Condition, Operator
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import check_filters
from rag_app.retrieval.store import ScopedStore
from tests.fuzzing import examples
from tests.stores.cases import FOREIGN, ORGANIZATION, chunks, spec, unseen
from tests.stores.conftest import DIMENSION, opened
from tests.stores.test_filter_cases import CASES, unchecked

SPEC = spec()
WRITTEN = [condition for case in CASES if case.refused is None for condition in case.filters]
VALUES = st.one_of(
    st.sampled_from([condition.value for condition in WRITTEN]),
    st.text(max_size=12),
    st.sampled_from(["'", "x' OR '1'='1", "%", "\\", "0042", "1e10", "nan", "Infinity", "{}", "[]", "\u0130", "\ud800", "\0"]),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.text(max_size=6) | st.integers() | st.floats(), max_size=4).map(tuple),
)  # fmt: skip
CONDITIONS = st.builds(
    Condition,
    st.sampled_from([*sorted(SPEC.all_fields), "org_id", "private_to", "x'; --"]),
    st.sampled_from(Operator),
    VALUES,
    st.booleans(),
)


@pytest.fixture
async def both(database_urls: tuple[str, str], tmp_path: Path) -> AsyncIterator[list[ScopedStore]]:
    """Each store with the chunks of docs/filters.md, as one organization sees it."""
    async with AsyncExitStack() as stack:
        seen = []
        for store in ("postgres", "qdrant-local"):
            found = await stack.enter_async_context(opened(store, SPEC, DIMENSION, database_urls, tmp_path / store))
            for org in (ORGANIZATION, FOREIGN):
                mine = [node for node in [*chunks(SPEC), *unseen(SPEC)] if node.metadata["org_id"] == str(org)]
                await found(Scope(frozenset({org}))).async_add(mine)
            seen.append(found(Scope(frozenset({ORGANIZATION}))))
        yield seen


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(
    filters=st.lists(CONDITIONS | st.sampled_from(WRITTEN), min_size=1, max_size=3).map(tuple),
    mode=st.sampled_from(Mode),
)
async def test_both_stores_find_the_same_or_it_is_refused(
    both: list[ScopedStore], filters: tuple[Condition, ...], mode: Mode
) -> None:
    try:
        checked = check_filters(filters, SPEC)
    except InvalidInput:
        return
    one, other = [await unchecked(store, checked, mode) for store in both]
    assert one == other
    assert one <= await unchecked(both[0], (), Mode.DENSE)
