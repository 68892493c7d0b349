"""docs/filters.md, case by case, on both stores: each finds the rows that stand there, and no others."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from pydantic import ValidationError

from rag_app.domain.answer import Mode, Question
from rag_app.domain.errors import InvalidInput
from rag_app.domain.filters import Filters
from rag_app.domain.scope import Scope
from rag_app.retrieval.filters import all_of, check_filters, parse_condition
from rag_app.retrieval.retriever import ChunkRetriever
from rag_app.retrieval.store import ScopedStore
from tests.stores.cases import FOREIGN, ORGANIZATION, OWNER, PAGE, Case, cases, chunks, conditions, rows, spec, unseen
from tests.stores.conftest import DIMENSION, STORES, Stores, opened
from tests.unit.retrieval.shelf import opening

SPEC = spec()
CASES = list(cases())


@pytest.fixture(params=STORES)
async def stores(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], tmp_path: Path
) -> AsyncIterator[Stores]:
    """Holding the chunks of the page, those that are not to be seen among them."""
    async with opened(request.param, SPEC, DIMENSION, database_urls, tmp_path) as found:
        for org in (ORGANIZATION, FOREIGN):
            mine = [node for node in [*chunks(SPEC), *unseen(SPEC)] if node.metadata["org_id"] == str(org)]
            await found(Scope(frozenset({org}))).async_add(mine)
        yield found


async def found(store: ScopedStore, filters: Filters, mode: Mode) -> set[str]:
    """As the pipeline asks."""
    retriever = ChunkRetriever(opening(store), MockEmbedding(DIMENSION), Question("", filters, mode=mode, top_k=100))
    return {each.node.get_content() for each in await retriever.aretrieve("word")}


def leaves(filters: Iterable[MetadataFilter | MetadataFilters]) -> Iterator[MetadataFilter]:
    for each in filters:
        yield from leaves(each.filters) if isinstance(each, MetadataFilters) else [each]


@pytest.mark.parametrize("mode", list(Mode))
async def test_every_case_finds_what_the_page_says(stores: Stores, mode: Mode) -> None:
    store, wrong = stores(Scope(frozenset({ORGANIZATION}))), {}
    for case in CASES:
        if case.refused is None and (rows_ := await found(store, case.filters, mode)) != case.finds:
            wrong[case.written] = sorted(rows_)
    assert wrong == {}


async def test_a_chunk_that_is_fetched_by_its_id_passes_the_same_filters(stores: Stores) -> None:
    store, ids, wrong = (
        stores(Scope(frozenset({ORGANIZATION}))),
        [each.node_id for each in [*chunks(SPEC), *unseen(SPEC)]],
        {},
    )
    for case in CASES:
        if case.refused is None:
            nodes = await store.aget_nodes(ids, all_of(case.filters))
            if (names := {node.get_content() for node in nodes}) != case.finds:
                wrong[case.written] = sorted(names)
    assert wrong == {}


async def test_a_store_refuses_by_itself_what_is_refused(stores: Stores) -> None:
    """LlamaIndex comes before it where it has no such value: a list of texts and numbers."""
    store, accepted = stores(Scope(frozenset({ORGANIZATION}))), []
    for case in CASES:
        if case.refused is not None:
            try:
                await found(store, case.filters, Mode.HYBRID)
            except (InvalidInput, ValidationError):
                continue
            accepted.append(case.written)
    assert accepted == []


async def test_what_no_case_finds_is_there(stores: Stores) -> None:
    """Otherwise that they are not found would say nothing."""
    everything = {node.get_content() for node in [*chunks(SPEC), *unseen(SPEC)]}
    assert await found(stores(Scope(frozenset({ORGANIZATION, FOREIGN}), OWNER)), (), Mode.HYBRID) == everything


@pytest.mark.parametrize("case", [case for case in CASES if case.refused], ids=lambda case: case.written)
def test_an_error_says_what_the_page_says(case: Case) -> None:
    with pytest.raises(InvalidInput) as error:
        check_filters(case.filters, SPEC)
    assert str(error.value).startswith(case.refused or "never")


@pytest.mark.parametrize(("written", "means"), list(rows("written | condition")))
def test_a_command_line_means_what_the_page_says(written: str, means: str) -> None:
    assert check_filters((parse_condition(written),), SPEC) == check_filters(conditions(means), SPEC)


def test_the_page_has_a_case_for_every_operator_of_every_type() -> None:
    pairs = {
        (SPEC.all_fields.get(each.key), each.operator.value)
        for case in CASES
        if not case.refused
        for each in leaves(case.filters)
    }
    listed = dict(re.findall(r"^\| (\w+) \| ((?:`\S+` ?)+) \| .+ \|$", PAGE, re.MULTILINE))
    assert {(kind, sign) for kind, signs in listed.items() for sign in re.findall(r"`(\S+)`", signs)} == pairs
    assert len(listed) == 7
    assert {name for case in CASES for name in case.finds} == {node.get_content() for node in chunks(SPEC)}
