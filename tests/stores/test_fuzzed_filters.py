"""Filters that nobody would write: each store refuses them or finds the chunks that a plain evaluation finds."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from llama_index.core.vector_stores.types import FilterOperator

from rag_app.domain.answer import Mode
from rag_app.domain.errors import InvalidInput
from rag_app.domain.filters import Filters
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import all_of, any_of, check_filters, condition, none_of
from rag_app.retrieval.store import ScopedStore, Search
from rag_app.stores import llamaindex
from rag_app.stores.llamaindex import LlamaIndexStore
from tests.filters import holds
from tests.fuzzing import examples
from tests.stores.cases import FOREIGN, ORGANIZATION, chunks, spec, unseen
from tests.stores.conftest import ADAPTED, DIMENSION, opened, vector
from tests.stores.test_filter_cases import CASES, found, leaves

SPEC = spec()
WRITTEN = [each for case in CASES if case.refused is None for each in leaves(case.filters)]
VALUES = st.one_of(
    st.sampled_from([each.value for each in WRITTEN]),
    st.text(max_size=12),
    st.sampled_from(["'", "x' OR '1'='1", "%", "\\", "0042", "1e10", "nan", "Infinity", "{}", "[]", "\u0130", "\ud800", "\0"]),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.text(max_size=6) | st.integers() | st.floats(), max_size=4),
)  # fmt: skip
CONDITIONS = st.sampled_from(WRITTEN) | st.builds(
    condition,
    st.sampled_from([*sorted(SPEC.all_fields), "org_id", "private_to", "x'; --"]),
    st.sampled_from([each.value for each in FilterOperator]),
    VALUES,
)
GROUPS = st.recursive(
    CONDITIONS,
    lambda inner: st.builds(
        lambda group, members: group(members),
        st.sampled_from([all_of, any_of, none_of]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
"""Conditions that cases have, which are seldom refused, and any others; in groups of all kinds, some of them too deep."""
MINE = {str(node.get_content()): node.metadata for node in chunks(SPEC)}


@pytest.fixture(params=["qdrant-local", *ADAPTED])
async def both(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], tmp_path: Path
) -> AsyncIterator[list[ScopedStore]]:
    """Each store with the chunks of docs/filters.md, as one organization sees it."""
    async with AsyncExitStack() as stack:
        seen = []
        for store in ("postgres", request.param):
            found = await stack.enter_async_context(opened(store, SPEC, DIMENSION, database_urls, tmp_path / store))
            for org in (ORGANIZATION, FOREIGN):
                mine = [node for node in [*chunks(SPEC), *unseen(SPEC)] if node.metadata["org_id"] == str(org)]
                await found(Scope(frozenset({org}))).async_add(mine)
            seen.append(found(Scope(frozenset({ORGANIZATION}))))
        yield seen


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(filters=st.lists(GROUPS, min_size=1, max_size=3).map(tuple), mode=st.sampled_from(Mode))
async def test_both_stores_find_what_python_finds_or_it_is_refused(
    both: list[ScopedStore], filters: Filters, mode: Mode
) -> None:
    """Of the organization that asks, whatever is turned round."""
    try:
        checked = check_filters(filters, SPEC)
    except InvalidInput:
        return
    expected = {name for name, fields in MINE.items() if all(holds(each, fields) for each in checked)}
    assert [await found(store, filters, mode) for store in both] == [expected, expected]
    if isinstance(foreign := both[1], LlamaIndexStore):
        proposed = await foreign.propose(Search(vector(0.5), "word", checked, Mode.DENSE, 100), 100)
        assert {*proposed} <= OURS, "the filter alone"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(llamaindex, "scope_conditions", lambda scope, abilities: [[]])
            patched.setattr(llamaindex, "filter_conditions", lambda filters, spec, abilities: [])
            assert await found(foreign, filters, mode) == expected, "PostgreSQL alone"


OURS = {UUID(each.node_id) for each in chunks(SPEC)}
