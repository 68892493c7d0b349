"""Wrong arguments of the library are told in a sentence, as a RagError that is also a TypeError."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

import pytest
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

import rag_app
from rag_app.application import Application
from rag_app.surfaces.library.arguments import WrongArguments
from rag_app.surfaces.library.rag import question_of

RAG = rag_app.Rag(cast(Application, object()))
WHERE: dict[str, Any] = {"index": "org_knowledge", "organization": "acme"}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "search": (RAG.search, {"question": "When?", **WHERE}),
    "ask": (RAG.ask, {"question": "When?", **WHERE}),
    "store": (RAG.store, WHERE),
    "engine": (RAG.engine, WHERE),
    "retriever": (RAG.retriever, WHERE),
    "ingest": (RAG.ingest, WHERE),
    "create_organization": (RAG.create_organization, {"slug": "acme"}),
    "create_site": (RAG.create_site, {"organization": "acme", "name": "north"}),
}
TEXTS = {name for _, given in CALLS.values() for name in given} | {"user", "site", "mode", "capability", "visibility"}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wrong", [3, 2.5, b"acme", ["acme"], {}, True], ids=repr)
async def test_another_type_is_refused_with_the_arguments_name(name: str, wrong: object) -> None:
    call, given = CALLS[name]
    for text in sorted(TEXTS & inspect.signature(call).parameters.keys()):
        with pytest.raises(WrongArguments, match=rf"^{text}: must be a string.*, not {type(wrong).__name__}$"):
            await call(**{**given, text: wrong})


@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"ingest"}))
async def test_an_argument_that_there_is_not_is_refused_with_those_there_are(name: str) -> None:
    call, given = CALLS[name]
    with pytest.raises(
        WrongArguments, match=rf"^{name}\(\) got an unexpected keyword argument 'colour'; accepted: .*{min(given)}"
    ):
        await call(**given, colour="red")


@pytest.mark.parametrize("name", CALLS)
async def test_a_missing_argument_is_named(name: str) -> None:
    call, given = CALLS[name]
    needed = [each.name for each in inspect.signature(call).parameters.values() if each.default is each.empty]
    for missing in sorted({*needed} & given.keys()):
        with pytest.raises(
            WrongArguments, match=rf"^{name}\(\) missing a required .*argument: '{missing}'; accepted: "
        ) as told:
            await call(**{each: value for each, value in given.items() if each != missing})
        assert isinstance(told.value, rag_app.RagError) and isinstance(told.value, TypeError)


async def test_numbers_lists_and_positions_are_checked_too() -> None:
    with pytest.raises(WrongArguments, match=r"^top_k: must be a whole number, not str$"):
        await RAG.search("When?", **WHERE, top_k=cast(int, "8"))
    with pytest.raises(
        WrongArguments,
        match=r"^filters: must be a MetadataFilters or a list, each of it a string or a MetadataFilters, not list of int$",
    ):
        await RAG.search("When?", **WHERE, filters=cast(list[str], [1]))
    with pytest.raises(WrongArguments, match=r"^search\(\) too many positional arguments; accepted: question, index"):
        await cast(Callable[..., Any], RAG.search)("When?", "org_knowledge")
    with pytest.raises(WrongArguments, match=r"^search\(\) multiple values for argument 'question'; "):
        await cast(Callable[..., Any], RAG.search)("When?", question="When?", **WHERE)
    for given in (0, -1, 1001):
        with pytest.raises(rag_app.RagError, match=r"^top_k: must be a whole number from 1 to 1000"):
            question_of("When?", given, "hybrid", [])
    with pytest.raises(WrongArguments, match=r"^paths: must be a Path or a string, not int$"):
        await RAG.ingest(cast(str, 3), **WHERE)


async def test_a_wrong_argument_is_told_where_the_call_is_awaited() -> None:
    said = await asyncio.gather(
        RAG.search(cast(str, 5), **WHERE), RAG.search(cast(str, 6), **WHERE), return_exceptions=True
    )
    assert [type(each) for each in said] == [WrongArguments, WrongArguments]
    assert inspect.iscoroutinefunction(RAG.search)


def test_filters_are_written_or_llama_indexs_or_both() -> None:
    given = MetadataFilters(filters=[MetadataFilter(key="lang", value="fr")])
    written = question_of("?", 1, "hybrid", ["lang=fr"]).filters
    assert question_of("?", 1, "hybrid", given).filters == (given,) == question_of("?", 1, "hybrid", [given]).filters
    assert question_of("?", 1, "hybrid", ["lang=fr", given]).filters == (*written, given)
