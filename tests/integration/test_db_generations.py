import asyncio
from uuid import uuid4

import pytest

from rag_app.database.session import Database
from rag_app.documents.generations import Generation, GenerationRegistry
from rag_app.domain.errors import InvalidInput, Misconfigured, NotFound


@pytest.fixture
def generations(database: Database) -> GenerationRegistry:
    return GenerationRegistry(database)


def fresh() -> str:
    return f"i{uuid4().hex[:20]}"


async def build(generations: GenerationRegistry, index: str, store: str = "postgres") -> Generation:
    return await generations.create(index, store, "minilm", 384, {"chunking": {"size": 254}})


async def test_a_generation_is_built_then_answers_then_retires(generations: GenerationRegistry) -> None:
    index = fresh()
    first = await build(generations, index)
    assert first == Generation(
        first.id, index, "postgres", 1, "minilm", 384, "building", {"chunking": {"size": 254}},
        first.created_at,
    )  # fmt: skip
    assert first.table_prefix == f"g_{index}_1"
    assert await generations.active(index, "postgres") is None

    active = await generations.activate(first.id)
    assert active.state == "active"
    assert await generations.active(index, "postgres") == active

    second = await build(generations, index)
    assert second.number == 2 and await generations.active(index, "postgres") == active
    await generations.activate(second.id)
    assert [(g.number, g.state) for g in await generations.list() if g.index == index] == [
        (1, "retired"),
        (2, "active"),
    ]

    await generations.activate(first.id)  # back again
    await generations.activate(first.id)  # which it is already
    assert [(g.number, g.state) for g in await generations.list() if g.index == index] == [
        (1, "active"),
        (2, "retired"),
    ]


async def test_each_store_has_generations_of_its_own(generations: GenerationRegistry) -> None:
    index = fresh()
    here, there = await build(generations, index), await build(generations, index, "qdrant")
    assert here.number == there.number == 1
    await generations.activate(here.id)
    await generations.activate(there.id)
    assert (await generations.active(index, "postgres"), await generations.active(index, "qdrant")) == (
        await generations.activate(here.id),
        await generations.activate(there.id),
    )


async def test_an_unknown_generation_is_not_activated(generations: GenerationRegistry) -> None:
    index = fresh()
    active = await generations.activate((await build(generations, index)).id)
    with pytest.raises(NotFound):
        await generations.activate(2**31 - 1)
    assert await generations.active(index, "postgres") == active


async def test_what_answers_is_not_dropped_and_what_is_dropped_does_not_answer(generations: GenerationRegistry) -> None:
    index = fresh()
    first, second = await build(generations, index), await build(generations, index)
    await generations.activate(first.id)
    with pytest.raises(InvalidInput, match=r"generation 1 of .* is active: switch to another one first"):
        await generations.drop(first.id)
    assert (await generations.drop(second.id)).state == "dropped"
    with pytest.raises(InvalidInput, match=r"generation 2 of .* has been dropped"):
        await generations.activate(second.id)
    assert (await generations.active(index, "postgres")).id == first.id  # type: ignore[union-attr]
    assert (await build(generations, index)).number == 3


async def test_many_at_once_get_a_number_each_and_one_is_active_at_all_times(database_urls: tuple[str, str]) -> None:
    databases = [Database(database_urls[1], pool_size=4) for _ in range(2)]
    index = fresh()
    made = await asyncio.gather(*[build(GenerationRegistry(databases[i % 2]), index) for i in range(8)])
    assert sorted(generation.number for generation in made) == [*range(1, 9)]

    await GenerationRegistry(databases[0]).activate(made[0].id)
    switching = asyncio.gather(*[GenerationRegistry(databases[0]).activate(generation.id) for generation in made])
    looked = 0
    while not switching.done():
        assert await GenerationRegistry(databases[1]).active(index, "postgres") is not None
        looked += 1
    await switching
    assert looked > 1
    for database in databases:
        await database.close()


async def test_a_first_generation_does_not_retire_the_one_that_answers(generations: GenerationRegistry) -> None:
    index = fresh()
    empty, answering = await build(generations, index), await build(generations, index)
    await generations.activate(answering.id, retire=False)
    with pytest.raises(Misconfigured, match=r"generation 2 of .* already answers"):
        await generations.activate(empty.id, retire=False)
    await generations.activate(answering.id, retire=False)  # which it is already
    states = {each.number: each.state for each in await generations.list() if each.index == index}
    assert states == {1: "building", 2: "active"}
