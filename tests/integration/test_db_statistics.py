"""Statistics, feedback and versions of prompts for administrators: who gets them, and what is written down."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, event, insert, select, text, update

from rag_app.access.people import Keys
from rag_app.access.tables import audit_events_table, users_table
from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.answering.prompts import PromptConfig
from rag_app.answering.tables import prompt_configs_table
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain.errors import Forbidden, InvalidInput, NotFound
from rag_app.domain.scope import Principal
from rag_app.surfaces.lexybrain import statistics
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger, FeedbackReview
from rag_app.surfaces.lexybrain.statistics import Statistics, bounded_period
from rag_app.surfaces.lexybrain.tables import feedback_table, messages_table, threads_table
from tests.conftest import NewOrganization
from tests.integration.test_db_threads import somebody

SINCE, UNTIL = date(2026, 10, 1), date(2026, 10, 31)
AT = datetime(2026, 10, 5, 12, tzinfo=UTC)


@pytest.fixture
async def admin(database: Database) -> Principal:
    return await somebody(database, role="admin")


@pytest.fixture
def configs(database: Database) -> PromptRegistry:
    return PromptRegistry(database)


@pytest.fixture
async def new(database: Database) -> AsyncIterator[PromptConfig]:
    """A version that nobody has added; the table is everybody's, so it goes when the test is over."""
    name = f"ask_lexybrain_test_{uuid4().hex[:12]}"
    yield PromptConfig(name, "market_brief", "Look.", {"max_keywords": 20}, 3, active=False)
    async with database.session() as session:
        await session.execute(delete(prompt_configs_table).where(prompt_configs_table.c.name.startswith(name)))


async def written(database: Database, who: Principal) -> list[tuple[str, str, dict[str, Any]]]:
    async with database.scoped(who.scope(), administrator=True) as session:
        rows = await session.execute(
            select(audit_events_table)
            .where(audit_events_table.c.actor_id == who.user)
            .order_by(audit_events_table.c.id)
        )
        return [(row.action, row.subject, row.details) for row in rows]


async def talked(database: Database, who: Principal, prompt: str = "ask_lexybrain_x", **answer: Any) -> UUID:
    """The answer to a question of theirs."""
    thread, message = uuid4(), uuid4()
    made = {
        "content": f"Rings, {message.hex}.", "capability": "market_brief", "model_id": "m", "created_at": AT,
        "retrieved_source_ids": [
            {"id": str(uuid4()), "type": "keyword", "label": "rings", "score": 0.5, "cited": 1, "quote": "secret"}
        ],
        "generation_metadata": {"prompts": {"global": prompt}}, "flags": {"usedRag": True}, **answer,
    }  # fmt: skip
    async with database.scoped(who.scope()) as session:
        kept = {"prompts": {"market_brief": prompt}}
        await session.execute(insert(threads_table).values(id=thread, user_id=who.user, metadata=kept))
        for minutes, said in ((2, "Something else"), (1, f"What sells, {message.hex}?")):
            asked = {"content": said, "role": "user", "created_at": made["created_at"] - timedelta(minutes=minutes)}
            await session.execute(insert(messages_table).values(thread_id=thread, **asked))
        await session.execute(insert(messages_table).values(id=message, thread_id=thread, role="assistant", **made))
    return message


async def rated(
    database: Database,
    who: Principal,
    message: UUID,
    rating: str = "negative",
    at: datetime = AT,
    said: str | None = None,
) -> None:
    async with database.scoped(who.scope()) as session:
        values = {"message_id": message, "rating": rating, "comment": said, "created_at": at}
        await session.execute(insert(feedback_table).values(user_id=who.user, **values))


async def test_nobody_but_an_administrator(
    database: Database, configs: PromptRegistry, admin: Principal, organization: NewOrganization, new: PromptConfig
) -> None:
    org = await organization()
    made, _ = await Keys(database).create(org, "key", None)
    async with database.session() as session:
        service = await session.scalar(select(users_table.c.id).where(users_table.c.name == f"key:{made.id}"))
        await session.execute(update(users_table).where(users_table.c.id == service).values(role="admin"))
    key = Principal(f"key:{made.id}", service, frozenset({org.id}))
    ann, nobody = await somebody(database, org), Principal("nobody-we-know")
    for who in (ann, nobody, key, Principal("gone", uuid4())):
        for work in (
            Statistics(database).read(who, SINCE, UNTIL),
            FeedbackLedger(database, SourceLedger(database), "marketplace").review(who, limit=1, after=None),
            configs.versions(who), configs.publish(who, new), configs.change(who, new.name, active=True),
        ):  # fmt: skip
            with pytest.raises(Forbidden):
                await work
    assert await written(database, key) == [], "nothing was done"
    assert new.name not in {each.name for each in await configs.all()}
    await Statistics(database).read(admin, SINCE, UNTIL)
    async with database.session() as session:
        await session.execute(update(users_table).where(users_table.c.id == admin.user).values(role="user"))
    with pytest.raises(Forbidden):
        await Statistics(database).read(admin, SINCE, UNTIL)


async def test_what_is_done_is_written_down_without_texts(
    database: Database, configs: PromptRegistry, admin: Principal, new: PromptConfig
) -> None:
    await Statistics(database).read(admin, SINCE, UNTIL)
    wanted: dict[str, Any] = {"capability": "market_brief", "prompt": new.name, "since": SINCE, "until": UNTIL}
    await FeedbackLedger(database, SourceLedger(database), "marketplace").review(
        admin, rating="negative", **wanted, limit=5, after=None
    )
    await configs.publish(admin, new)
    await configs.change(admin, new.name, active=True, weight=7)
    await configs.change(admin, new.name, active=False)
    await configs.versions(admin)
    with pytest.raises(InvalidInput, match="already exists"):
        await configs.publish(admin, new)
    with pytest.raises(NotFound, match=new.name):
        await configs.change(admin, "nowhere", weight=1)
    period = {"from": "2026-10-01", "to": "2026-10-31"}
    assert await written(database, admin) == [
        ("statistics.read", "everybody", period),
        (
            "feedback.read",
            "everybody",
            {"rating": "negative", "capability": "market_brief", "prompt": new.name, **period},
        ),
        ("prompts.add", new.name, {"type": "market_brief", "weight": 3, "active": False}),
        ("prompts.activate", new.name, {}),
        ("prompts.weigh", new.name, {"weight": 7}),
        ("prompts.deactivate", new.name, {}),
        ("prompts.list", "all", {}),
    ]


async def test_what_cannot_be_written_down_is_not_done(
    database: Database, configs: PromptRegistry, admin: Principal, new: PromptConfig
) -> None:
    def fail(*given: Any) -> None:
        if "INTO audit_events" in given[2]:
            raise RuntimeError("no room")

    engine = database._engine.sync_engine
    event.listen(engine, "before_cursor_execute", fail)
    for work in (Statistics(database).read(admin, SINCE, UNTIL), configs.publish(admin, new)):
        with pytest.raises(RuntimeError, match="no room"):
            await work
    event.remove(engine, "before_cursor_execute", fail)
    assert new.name not in {each.name for each in await configs.all()}


async def test_who_is_an_administrator_is_asked_once_a_statement(database: Database, admin: Principal) -> None:
    """And not for each row: `rag_administrator()` looks into a table."""
    asked = statistics._FIGURES.element
    values = {"since": AT, "until": AT + timedelta(days=40), "month": SINCE}
    explain = text(f"EXPLAIN (VERBOSE, COSTS OFF) {asked.text}").bindparams(*asked._bindparams.values())
    async with database.scoped(admin.scope(), administrator=True) as session:
        await session.execute(statistics._PLAN)
        plan = list(await session.scalars(explain, values))
    assert any("InitPlan" in line for line in plan)
    assert [line for line in plan if "rag_administrator" in line and not line.strip().startswith("Output")] == []


@pytest.mark.parametrize(
    ("since", "until", "shown"),
    [
        (None, None, (date(2026, 10, 24), date(2026, 11, 22))),
        (date(2026, 11, 22), None, (date(2026, 11, 22), date(2026, 11, 22))),
        (None, date(2024, 3, 1), (date(2024, 2, 1), date(2024, 3, 1))),
        (date(2024, 1, 1), date(2024, 12, 31), (date(2024, 1, 1), date(2024, 12, 31))),
        (date(2024, 1, 1), date(2025, 1, 1), None), (date(2026, 11, 23), None, None),
        (date(2026, 1, 2), date(2026, 1, 1), None), (date(1999, 12, 31), date(2000, 1, 1), None),
        (None, date.max, None), (date.min, None, None),
    ],
)  # fmt: skip
def test_periods(since: date | None, until: date | None, shown: tuple[date, date] | None) -> None:
    today = date(2026, 11, 22)
    if shown is None:
        with pytest.raises(InvalidInput):
            bounded_period(since, until, today=today)
    else:
        assert bounded_period(since, until, today=today) == shown


# --- feedback


async def reviews_of(database: Database, admin: Principal, prompt: str, **wanted: Any) -> list[FeedbackReview]:
    page = await FeedbackLedger(database, SourceLedger(database), "marketplace").review(
        admin, prompt=prompt, **wanted, limit=100, after=None
    )
    return [*page.feedback]


async def test_feedback_comes_with_what_it_is_about(database: Database, admin: Principal) -> None:
    ann, prompt = await somebody(database), uuid4().hex
    message = await talked(database, ann, prompt)
    await rated(database, ann, message, said="It is missing")
    [review] = await reviews_of(database, admin, prompt)
    assert (review.user_id, review.message_id, review.rating) == (ann.user, message, "negative")
    assert review.question == f"What sells, {message.hex}?" and review.answer == f"Rings, {message.hex}."
    assert (review.comment, review.capability, review.model) == ("It is missing", "market_brief", "m")
    assert review.prompts == {"global": prompt}
    assert [(each.label, each.cited) for each in review.sources] == [("rings", True)]
    assert "secret" not in str(review), "labels alone"


async def test_what_was_deleted_is_not_shown(database: Database, admin: Principal) -> None:
    ann, prompt = await somebody(database), uuid4().hex
    message = await talked(database, ann, prompt)
    await rated(database, ann, message)

    async def remove(*where: Any) -> None:
        async with database.scoped(ann.scope()) as session:
            await session.execute(update(messages_table).where(*where).values(deleted_at=AT))

    await remove(messages_table.c.content == f"What sells, {message.hex}?")
    [review] = await reviews_of(database, admin, prompt)
    assert review.question is None, "nor the one before it in its place"
    await remove(messages_table.c.id == message)
    assert await reviews_of(database, admin, prompt) == []


async def test_feedback_is_chosen_and_comes_in_pages(database: Database, admin: Principal) -> None:
    ann, bob, prompt = await somebody(database), await somebody(database), uuid4().hex
    days = [datetime(2026, 10, day, 23, 59, 59, 999990 + each, UTC) for each, day in enumerate((3, 4, 4, 5, 6))]
    made = []
    for number, at in enumerate(days):
        who = (ann, bob)[number % 2]
        capability = "general_chat" if number == 4 else "market_brief"
        made.append(await talked(database, who, prompt, capability=capability))
        await rated(database, who, made[-1], ("positive", "negative")[number % 2], at)
    assert {each.message_id for each in await reviews_of(database, admin, prompt)} == set(made)
    for wanted, expected in (
        ({"rating": "negative"}, [made[3], made[1]]), ({"capability": "general_chat"}, [made[4]]),
        ({"since": date(2026, 10, 5)}, [made[4], made[3]]), ({"until": date(2026, 10, 3)}, [made[0]]),
        ({"since": date(2026, 10, 5), "until": date(2026, 10, 5)}, [made[3]]), ({"rating": "neutral"}, []),
        ({"until": date.max}, made[::-1]),
    ):  # fmt: skip
        assert [each.message_id for each in await reviews_of(database, admin, prompt, **wanted)] == expected
    found, after = list[FeedbackReview](), None
    for size in (2, 2, 1):
        page = await FeedbackLedger(database, SourceLedger(database), "marketplace").review(
            admin, prompt=prompt, limit=2, after=after
        )
        assert len(page.feedback) == size
        found, after = [*found, *page.feedback], page.next_cursor
    assert after is None and found == await reviews_of(database, admin, prompt)
    with pytest.raises(InvalidInput, match="cursor"):
        await FeedbackLedger(database, SourceLedger(database), "marketplace").review(admin, limit=2, after="x" * 32)


# --- versions of prompts


async def test_versions_say_who_has_them(
    database: Database, configs: PromptRegistry, admin: Principal, new: PromptConfig
) -> None:
    other = replace(new, name=f"{new.name}_v2", weight=1, active=True)
    assert (await configs.publish(admin, new)).share == 0
    async with database.session() as session:
        active = prompt_configs_table.c.active & (prompt_configs_table.c.type == new.type)
        weights = sum(await session.scalars(select(prompt_configs_table.c.weight).where(active)))
    assert (await configs.publish(admin, other)).share == pytest.approx(1 / (weights + 1))
    changed = await configs.change(admin, new.name, active=True)
    assert changed.config == replace(new, active=True) and changed.share == pytest.approx(3 / (weights + 4))
    assert (await configs.change(admin, other.name, weight=0)).share == 0
    ann = await somebody(database)
    for _ in range(3):
        await talked(database, ann, new.name)
    found = {each.config.name: each for each in await configs.versions(admin)}
    assert (found[new.name].threads, found[other.name].threads) == (3, 0)
    assert found[new.name].config.constraints == {"max_keywords": 20}
    assert found[new.name].updated_at >= found[new.name].created_at


async def test_of_two_administrators_at_once_neither_undoes_what_the_other_did(
    database: Database, configs: PromptRegistry, admin: Principal, new: PromptConfig
) -> None:
    await configs.publish(admin, new)
    other = await somebody(database, role="admin")
    for n in range(10):
        active, weight = n % 2 == 0, 10 + n
        await asyncio.gather(
            configs.change(admin, new.name, active=active), configs.change(other, new.name, weight=weight)
        )
        assert await configs.get(new.name) == replace(new, active=active, weight=weight)
    made = await asyncio.gather(
        *(configs.publish(who, replace(new, name=f"{new.name}_v2", weight=n)) for n, who in enumerate((admin, other))),
        return_exceptions=True,
    )
    assert sorted(isinstance(each, InvalidInput) for each in made) == [False, True]
