"""Prompt versions as the database keeps them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from llama_index.core import MockEmbedding
from msgspec.structs import replace
from sqlalchemy import Row, delete, event, select, text
from sqlalchemy.exc import IntegrityError

from rag_app.answering.capabilities import CAPABILITIES, capability_named
from rag_app.answering.chosen_models import ChosenModels
from rag_app.answering.context import plain_context
from rag_app.answering.models import Draft
from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.answering.prompts import (
    PromptConfig,
    PromptVersion,
    check,
    conversation_types,
    load_configs,
    load_prompts,
    released_names,
    released_prompts,
    template_of,
    template_types,
)
from rag_app.answering.tables import prompt_configs_table
from rag_app.database.session import Database
from rag_app.domain.answer import Question
from rag_app.domain.errors import InvalidInput, NotFound, StoreFailed
from rag_app.domain.resources import resource_folder
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.settings import Settings
from tests.scripted_model import Reply, ScriptedModel
from tests.waiting import PATIENCE

DEMANDS = {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"], "temperature": 0.5}


@pytest.fixture
def configs(database: Database) -> PromptRegistry:
    return PromptRegistry(database)


@pytest.fixture
async def new(database: Database) -> AsyncIterator[PromptConfig]:
    """A version that nobody has added; the table is everybody's, so it goes when the test is over."""
    name = f"ask_lexybrain_test_{uuid4().hex[:12]}"
    yield PromptConfig(name, "market_brief", "Look.\n- “twice” 漢", DEMANDS, 3, active=False)
    async with database.session() as session:
        await session.execute(delete(prompt_configs_table).where(prompt_configs_table.c.name.startswith(name)))


def named(found: list[PromptConfig], name: str) -> list[PromptConfig]:
    return [each for each in found if each.name == name]


async def row(database: Database, name: str) -> Row[Any]:
    async with database.session() as session:
        return (await session.execute(select(prompt_configs_table).where(prompt_configs_table.c.name == name))).one()


async def active(configs: PromptRegistry) -> list[PromptConfig]:
    async with configs.active(Scope(frozenset({PUBLIC_ORGANIZATION}))) as (_, found):
        return found


async def test_a_version_is_added_used_weighed_and_switched_off(configs: PromptRegistry, new: PromptConfig) -> None:
    assert (await configs.publish(None, new)).config == new
    assert await configs.get(new.name) == new and named(await configs.all(), new.name) == [new]
    assert named(await active(configs), new.name) == []
    assert (await configs.change(None, new.name, active=True)).config == replace(new, active=True)
    assert named(await active(configs), new.name) == [replace(new, active=True)]
    assert (await configs.change(None, new.name, weight=0)).config == replace(new, active=True, weight=0)
    assert (await configs.change(None, new.name, active=True)).config == replace(new, active=True, weight=0), (
        "twice is as good as once"
    )
    assert (await configs.change(None, new.name, active=False)).config == replace(new, weight=0)
    assert named(await active(configs), new.name) == []


async def test_the_files_seed_it_once_and_change_nothing_later(
    configs: PromptRegistry, database: Database, new: PromptConfig
) -> None:
    files = load_configs(resource_folder("prompts") / "lexybrain")
    await configs.seed(files)
    assert {each.name for each in await configs.all()} >= {each.name for each in files}
    assert await configs.seed(files) == []
    assert await configs.seed([]) == []

    assert await configs.seed([new]) == [new.name]
    await configs.change(None, new.name, active=True)
    await configs.change(None, new.name, weight=8)
    before = await row(database, new.name)
    other = replace(new, name=f"{new.name}_v2", instructions="Other.")
    assert await configs.seed([other, replace(new, instructions="Rewritten.", weight=1)]) == [other.name]
    assert await configs.get(new.name) == replace(new, active=True, weight=8)
    assert (await row(database, new.name)).updated_at == before.updated_at


async def test_two_processes_seed_at_once(
    database_urls: tuple[str, str], configs: PromptRegistry, new: PromptConfig
) -> None:
    versions = [replace(new, name=f"{new.name}_{n:02}") for n in range(40)]
    others = [Database(database_urls[1], pool_size=1) for _ in range(4)]
    try:
        orders = [versions, versions[::-1], versions[20:] + versions[:20], versions]
        added = await asyncio.wait_for(
            asyncio.gather(*[PromptRegistry(each).seed(order) for each, order in zip(others, orders, strict=True)]),
            timeout=PATIENCE,
        )
    finally:
        for each in others:
            await each.close()
    assert sorted(name for names in added for name in names) == [each.name for each in versions]
    assert [each for each in await configs.all() if each.name.startswith(new.name)] == versions


async def test_a_name_is_taken_once(configs: PromptRegistry, new: PromptConfig) -> None:
    made = await asyncio.gather(*[configs.publish(None, new) for _ in range(6)], return_exceptions=True)
    assert [each.config for each in made if isinstance(each, PromptVersion)] == [new]
    refused = [each for each in made if isinstance(each, InvalidInput)]
    assert len(refused) == 5 and all("already exists" in str(each) for each in refused)
    with pytest.raises(InvalidInput, match="already exists"):
        await configs.publish(None, replace(new, instructions="Other."))
    assert await configs.get(new.name) == new


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "market_v1"}, {"name": "ask_lexybrain_\0"}, {"type": "gossip"}, {"instructions": " "},
        {"instructions": "a\0b"}, {"constraints": {"max_words": 3}}, {"constraints": {"temperature": 3}},
        {"weight": -1}, {"weight": 2**31},
    ],
)  # fmt: skip
async def test_what_cannot_be_used_is_not_added(
    configs: PromptRegistry, new: PromptConfig, changed: dict[str, object]
) -> None:
    bad = replace(new, **changed)
    before = await configs.all()
    with pytest.raises(InvalidInput):
        await configs.publish(None, bad)
    with pytest.raises(InvalidInput):
        await configs.seed([replace(new, name=f"{new.name}_good"), bad])
    assert await configs.all() == before, "all of them, or none"


@pytest.mark.parametrize("weight", [-1, 1_000_001, 2**40])
async def test_weights_that_are_refused(configs: PromptRegistry, new: PromptConfig, weight: int) -> None:
    await configs.publish(None, new)
    with pytest.raises(InvalidInput, match="weight: must be a whole number from 0 to 1000000"):
        await configs.change(None, new.name, weight=weight)
    assert await configs.get(new.name) == new


@pytest.mark.parametrize("name", ["ask_lexybrain_nowhere", "", "a\0b", "x" * 10_000, "'; DROP TABLE users --"])
async def test_an_unknown_name_is_answered_with_the_known_ones(
    configs: PromptRegistry, new: PromptConfig, name: str
) -> None:
    await configs.publish(None, new)
    for work in (
        configs.get(name),
        configs.change(None, name, active=True),
        configs.change(None, name, active=False),
        configs.change(None, name, weight=1),
    ):
        with pytest.raises(NotFound, match=new.name):
            await work


async def test_reading_what_is_in_use_is_one_statement(configs: PromptRegistry, database: Database) -> None:
    await active(configs)
    statements: list[str] = []
    engine = database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
    await active(configs)
    assert len(statements) == 1 and "is_active" in statements[0]


async def test_the_statement_has_an_index_and_the_table_no_weight_below_zero(database: Database) -> None:
    async with database.session() as session:
        await session.execute(text("SET LOCAL enable_seqscan = off"))
        plan = "\n".join(
            await session.scalars(text("EXPLAIN SELECT * FROM lexybrain_prompt_configs WHERE is_active ORDER BY type"))
        )
    assert "ix_lexybrain_prompt_configs_type" in plan
    with pytest.raises(IntegrityError, match="ck_lexybrain_prompt_configs_weight"):
        async with database.session() as session:
            await session.execute(
                text(
                    "INSERT INTO lexybrain_prompt_configs (name, type, system_instructions, weight) VALUES ('x', 'global', 'x', -1)"
                )
            )


async def test_without_a_database_it_says_so() -> None:
    nowhere = Database("postgresql+asyncpg://rag_app@127.0.0.1:1/rag")
    try:
        with pytest.raises(StoreFailed):
            await active(PromptRegistry(nowhere))
    finally:
        await nowhere.close()


async def test_the_prompts_of_all_capabilities_are_seeded(configs: PromptRegistry, database: Database) -> None:
    files = released_prompts(resource_folder("prompts"))
    assert released_names(resource_folder("prompts")) == {each.name for each in files}
    types = {each.type for each in files}
    assert (
        types
        == set({*conversation_types(), *template_types()})
        >= {"global", *(each.prompt for each in CAPABILITIES if each.group is None)}
    )
    await configs.seed(files)
    kept = {each.name: each for each in await configs.all()}
    for each in files:
        assert kept[each.name].instructions == each.instructions
    drawn = await configs.draw("owner_ask")
    assert drawn == kept["owner_ask_v1"] and await configs.draw("nothing") is None
    asked = {"context": "CONTEXT", "question": "QUESTION"}
    of_the_file = load_prompts(resource_folder("prompts"))["owner_ask"]
    assert template_of(drawn).messages(**asked) == of_the_file.messages(**asked)


TEMPLATE = "{% chat role='user' %}SECOND {{ context }} {{ question }}{% endchat %}"


async def test_a_question_gets_the_version_that_the_database_says(
    configs: PromptRegistry, new: PromptConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await configs.seed(released_prompts(resource_folder("prompts")))
    second = PromptConfig(f"book_tutor_{new.name}", "book_tutor", TEMPLATE, {"temperature": 0.5, "max_tokens": 77})
    question, context = Question("Why?"), plain_context(["Because."])
    with ScriptedModel(Reply("So [Source 1].")) as server:
        for name, value in {
            "RAG_LLM": "openai_like", "RAG_LLM_API_BASE": server.url, "RAG_VECTOR_STORE": "postgres",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        models = ChosenModels(Settings(), MockEmbedding(embed_dim=3), configs.draw)
        tutor = models.synthesizer(capability_named("book_tutor"))
        try:
            assert (await tutor.write(question, context)).prompt == "book_tutor_v1"
            assert await configs.seed([second]) == [second.name]
            assert await configs.draw("book_tutor") == await configs.get("book_tutor_v1"), "a release changes nothing"
            await configs.change(None, second.name, active=True)
            await configs.change(None, "book_tutor_v1", weight=0)
            await tutor.write(question, context)
            assert [type(piece) for piece in [piece async for piece in tutor.stream(question, context)]][-1] is Draft
            await configs.change(None, second.name, active=False)
            await tutor.write(question, context)
        finally:
            await configs.change(None, "book_tutor_v1", weight=1)
            async with configs._database.session() as session:
                await session.execute(delete(prompt_configs_table).where(prompt_configs_table.c.name == second.name))
            await models.aclose()
    assert ["SECOND" in each.prompt for each in server.requests] == [False, True, True, False]
    assert [each.body["max_tokens"] for each in server.requests] == [1024, 77, 77, 1024]
    assert [each.body["temperature"] for each in server.requests] == [0.1, 0.5, 0.5, 0.1]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"name": "ask_lexybrain_v3"}, "name: must be owner_ask_ and small letters"),
        ({"instructions": "{{ context }}{{ question }}"}, "system_instructions: prompt owner_ask v3: has no chat message"),
        ({"instructions": TEMPLATE.replace("question", "who")}, "system_instructions: prompt owner_ask v3: missing question"),
        ({"constraints": {"max_alerts": 2}}, "max_alerts: unknown constraint; accepted: temperature, max_tokens"),
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused(changed: dict[str, Any], problem: str) -> None:
    good = PromptConfig("owner_ask_v3", "owner_ask", TEMPLATE, {"max_tokens": 50})
    check(good)
    with pytest.raises(InvalidInput, match=problem):
        check(replace(good, **changed))
