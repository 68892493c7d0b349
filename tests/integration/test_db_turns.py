"""A turn on a real PostgreSQL: all of its beginning or nothing, and no charge without an answer, whatever dies when."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from msgspec.structs import replace
from sqlalchemy import Table, delete, func, select, update

from rag_app.access.people import People
from rag_app.access.tables import organization_tokens_table
from rag_app.database.session import Database
from rag_app.domain.answer import Usage
from rag_app.domain.errors import (
    BudgetSpent,
    CostCapReached,
    FeatureDisabled,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    RagError,
)
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.surfaces.lexybrain import threads
from rag_app.surfaces.lexybrain.quotas import Account, Entitlements, PlanDirectory
from rag_app.surfaces.lexybrain.tables import (
    daily_costs_table,
    failures_table,
    messages_table,
    threads_table,
    usage_counters_table,
    usage_events_table,
    usage_reservations_table,
)
from rag_app.surfaces.lexybrain.threads import give_up, keep_answer, keep_message
from rag_app.surfaces.lexybrain.types import (
    Flags,
    Outcome,
    RagContext,
    RagMeta,
    RagRequest,
)
from tests.conftest import NewOrganization
from tests.waiting import PATIENCE

NewAccount = Callable[..., Awaitable[Account]]
HELLO = RagRequest("What sells best in spring?", meta=RagMeta("web", "1.0"))
EMPTY = {"threads": 0, "messages": 0, "used": 0, "reservations": 0}


@pytest.fixture
def account(database: Database) -> NewAccount:
    async def make(messages: int = 50, enabled: bool = True) -> Account:
        plan = await PlanDirectory(database).set(f"plan-{messages}-{enabled}", messages, enabled)
        user = await People(database).create_user(f"name-{uuid4().hex}", plan.code)
        return Account(user.id, plan.code, messages, enabled, False)

    return make


def scope_of(account: Account, *organizations: UUID) -> Scope:
    return Scope(frozenset({PUBLIC_ORGANIZATION, *organizations}), account.user)


def asking(account: Account, *organizations: UUID) -> Principal:
    return Principal(str(account.user), account.user, frozenset(organizations))


def outcome(**changes: Any) -> Outcome:
    made = Outcome(
        uuid4(), "Garlands [Source 1].", "general_chat", "a-model", (), Flags(used_rag=True), Usage(70, 30),
        Decimal("0.25"), 1200, {"retrieval": 200}, {"tokensIn": 70},
    )  # fmt: skip
    return replace(made, **changes)


async def count(database: Database, account: Account, table: Table) -> int:
    async with database.scoped(scope_of(account)) as session:
        return await session.scalar(select(func.count()).select_from(table)) or 0


async def state(database: Database, account: Account) -> dict[str, int]:
    """What there is of a user, counters as they are written."""
    async with database.scoped(scope_of(account)) as session:
        used = await session.scalar(select(func.sum(usage_counters_table.c.used)))
    return {
        "threads": await count(database, account, threads_table),
        "messages": await count(database, account, messages_table),
        "used": used or 0,
        "reservations": await count(database, account, usage_reservations_table),
    }


async def used(database: Database, account: Account) -> int:
    """This month; what has expired is not in it."""
    return (await Entitlements(database).messages_used([account.user]))[account.user]


async def spent(database: Database) -> Decimal:
    """On all days: a test may begin before midnight and end after it."""
    async with database.session() as session:
        return await session.scalar(select(func.sum(daily_costs_table.c.cents))) or Decimal(0)


_TODAY = daily_costs_table.c.day == func.timezone("UTC", func.now()).cast(daily_costs_table.c.day.type)


async def test_a_turn_from_its_beginning_to_its_end(
    account: NewAccount, database: Database, organization: NewOrganization
) -> None:
    who, org = await account(), await organization()
    scope, caller = scope_of(who, org.id), asking(who, org.id)
    begun = await keep_message(database, caller, structs.replace(HELLO, context=RagContext(marketplaces=["etsy"])))
    assert begun.account == who and begun.thread.user_id == who.user
    assert (begun.thread.title, begun.thread.metadata) == (
        "What sells best in spring?",
        {"client": "web", "version": "1.0"},
    )
    assert await state(database, who) == {"threads": 1, "messages": 1, "used": 1, "reservations": 1}
    before = await spent(database)
    done = outcome()
    assert await keep_answer(database, begun, done)
    assert await state(database, who) == {"threads": 1, "messages": 2, "used": 1, "reservations": 0}
    assert await spent(database) == before + Decimal("0.25")
    async with database.scoped(scope) as session:
        said, answer = (await session.execute(select(messages_table).order_by(messages_table.c.created_at))).all()
        assert (said.id, said.role, said.content) == (begun.message, "user", HELLO.text)
        assert said.context_json == {"marketplaces": ["etsy"]}
        assert (answer.id, answer.role, answer.content) == (done.message, "assistant", done.text)
        assert await session.scalar(select(organization_tokens_table.c.tokens)) == 100
        assert await session.scalar(select(usage_events_table.c.message_id)) == done.message

    again = await keep_message(
        database, caller, RagRequest("And in autumn?", thread=begun.thread.id, meta=RagMeta("api"))
    )
    assert (again.thread.id, again.thread.metadata) == (begun.thread.id, {"client": "web", "version": "1.0"})
    assert await state(database, who) == {"threads": 1, "messages": 3, "used": 2, "reservations": 1}


async def test_whom_the_database_did_not_know_before_has_a_turn(database: Database) -> None:
    stranger = Principal(f"auth0|{uuid4().hex}")
    begun = await keep_message(database, stranger, HELLO)  # who has no user yet
    assert await keep_answer(database, begun, outcome())
    assert await state(database, begun.account) == {"threads": 1, "messages": 2, "used": 1, "reservations": 0}


# --- the beginning fails: nothing remains


async def test_whatever_fails_at_the_beginning_leaves_nothing(
    account: NewAccount, database: Database, organization: NewOrganization,
    subtests: pytest.Subtests,
) -> None:  # fmt: skip
    org, other = await organization(), await account()
    await People(database).set_budget(org, 0)
    theirs = (await keep_message(database, asking(other), HELLO)).thread.id
    capped: dict[str, Any] = {"cost_cap_cents": Decimal(0)}
    bounded: dict[str, Any] = {"token_budget": 0}
    who, org2 = await account(), await organization()
    switched_off, without, unlimited = await account(enabled=False), await account(0), await account(-1)
    cases: list[tuple[str, dict[str, Any], Account, Principal, RagRequest, type[RagError]]] = [
        ("plan", {}, switched_off, asking(switched_off), HELLO, FeatureDisabled),
        ("cap", capped, who, asking(who), HELLO, CostCapReached),
        ("budget", {}, who, asking(who, org.id), HELLO, BudgetSpent),
        ("default budget", bounded, who, asking(who, org2.id), HELLO, BudgetSpent),
        ("quota", {}, without, asking(without), HELLO, QuotaExceeded),
        ("unknown thread", {}, who, asking(who), structs.replace(HELLO, thread=uuid4()), NotFound),
        ("foreign thread", {}, who, asking(who), structs.replace(HELLO, thread=theirs), NotFound),
        (
            "unlimited, foreign thread",
            {},
            unlimited,
            asking(unlimited),
            structs.replace(HELLO, thread=theirs),
            NotFound,
        ),
        ("a text that cannot be kept", {}, who, asking(who), structs.replace(HELLO, text="a\0b"), InvalidInput),
    ]
    for name, each, account_, caller, said, error in cases:
        with subtests.test(name):
            with pytest.raises(error) as raised:
                await keep_message(database, caller, said, **each)
            assert raised.type is error
            assert await state(database, account_) == EMPTY
    assert await keep_message(database, asking(who), HELLO, **bounded), "who is of no organization has no budget"
    assert (await state(database, other)) == {"threads": 1, "messages": 1, "used": 1, "reservations": 1}


@pytest.mark.parametrize("step", ["add_thread", "add_user_message"])
async def test_a_crash_at_any_step_of_the_beginning_leaves_nothing(
    account: NewAccount, database: Database, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    who = await account()
    work = getattr(threads, step)

    async def crash(*arguments: Any, **named: Any) -> None:
        await work(*arguments, **named)
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(threads, step, crash)
        with pytest.raises(asyncio.CancelledError):
            await keep_message(database, asking(who), HELLO)
    assert await state(database, who) == EMPTY
    assert await keep_message(database, asking(who), HELLO)


# --- and the end


async def test_what_is_not_charged_is_given_back_and_recorded(account: NewAccount, database: Database) -> None:
    who = await account(1)
    begun = await keep_message(database, asking(who), HELLO)
    with pytest.raises(QuotaExceeded):
        await keep_message(database, asking(who), HELLO)
    fallback = outcome(
        charged=False, usage=Usage(0, 0), flags=Flags(fallback_to_generic=True), failures=(("ModelTimeout", "60 s"),)
    )
    assert await keep_answer(database, begun, fallback)
    assert await state(database, who) == {"threads": 1, "messages": 2, "used": 0, "reservations": 0}
    assert await count(database, who, failures_table) == await count(database, who, usage_events_table) == 1
    assert await keep_message(database, asking(who), HELLO)


async def test_nothing_came_of_it(account: NewAccount, database: Database) -> None:
    who = await account(1)
    begun = await keep_message(database, asking(who), HELLO)
    for _ in range(2):
        await give_up(database, begun, (("ModelFailed", "503"),))
    assert await state(database, who) == {"threads": 1, "messages": 1, "used": 0, "reservations": 0}
    async with database.scoped(scope_of(who)) as session:
        failures = (await session.execute(select(failures_table))).all()
    assert {(each.kind, each.message, each.message_id) for each in failures} == {("ModelFailed", "503", begun.message)}


async def test_a_thread_that_is_deleted_meanwhile(account: NewAccount, database: Database) -> None:
    who = await account()
    begun = await keep_message(database, asking(who), HELLO)
    async with database.scoped(scope_of(who)) as session:
        await session.execute(delete(threads_table).where(threads_table.c.id == begun.thread.id))
    assert not await keep_answer(database, begun, outcome())
    assert await state(database, who) == {"threads": 0, "messages": 0, "used": 1, "reservations": 0}
    assert await count(database, who, usage_events_table) == 1


async def test_an_answer_that_comes_after_its_reservation_expired_counts(
    account: NewAccount, database: Database
) -> None:
    who = await account(1)
    late = await keep_message(database, asking(who), HELLO, expires_s=0.0)
    later = await keep_message(database, asking(who), HELLO, expires_s=0.0)  # the first one is given back for it
    assert (await state(database, who))["used"] == 1
    assert await keep_answer(database, late, outcome()) and await keep_answer(database, later, outcome())
    assert await state(database, who) == {"threads": 2, "messages": 4, "used": 2, "reservations": 0}
    with pytest.raises(QuotaExceeded) as exceeded:
        await keep_message(database, asking(who), HELLO)
    assert (exceeded.value.limit, exceeded.value.used) == (1, 2)


async def test_an_end_that_fails_half_way_has_not_been(
    account: NewAccount, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    who = await account()
    begun, done = await keep_message(database, asking(who), HELLO), outcome()
    half_way = await state(database, who)
    before = await spent(database)
    with pytest.raises(Exception, match="cost_cents"):
        await keep_answer(database, begun, replace(done, cost_cents=None))
    assert await state(database, who) == half_way and await spent(database) == before
    assert await keep_answer(database, begun, done)
    with pytest.raises(Exception, match="pk_rag_messages"):
        await keep_answer(database, begun, done)
    await give_up(database, begun)
    assert await state(database, who) == {"threads": 1, "messages": 2, "used": 1, "reservations": 0}, "once"


async def test_another_user_cannot_end_a_turn(account: NewAccount, database: Database) -> None:
    owner, other = await account(), await account()
    begun = await keep_message(database, asking(owner), HELLO)
    before = await state(database, owner)
    await give_up(database, replace(begun, account=other, scope=scope_of(other)))
    assert not await keep_answer(
        database, replace(begun, account=other, scope=scope_of(other)), outcome(text="mine now")
    )
    assert await state(database, owner) == before


# --- bounds that move while turns are under way


async def test_the_cap_holds_from_the_cent_that_reaches_it(account: NewAccount, database: Database) -> None:
    who = await account()
    async with database.session() as session:
        today = await session.scalar(select(func.max(daily_costs_table.c.cents)).where(_TODAY))
    cap = (today or Decimal(0)) + 5
    first, second = (
        await keep_message(database, asking(who), HELLO, cost_cap_cents=cap),
        await keep_message(database, asking(who), HELLO, cost_cap_cents=cap),
    )
    assert await keep_answer(database, first, outcome(cost_cents=Decimal("4.9999")))
    third = await keep_message(database, asking(who), HELLO, cost_cap_cents=cap)
    assert await keep_answer(database, second, outcome(cost_cents=Decimal("0.0001")))
    with pytest.raises(CostCapReached):
        await keep_message(database, asking(who), HELLO, cost_cap_cents=cap)
    assert await keep_answer(database, third, outcome()), "what is under way is answered"
    async with database.session() as session:  # for other tests of this day
        await session.execute(update(daily_costs_table).where(_TODAY).values(cents=0))


async def test_turns_of_one_user_in_one_thread_never_wait_for_each_other_in_a_circle(
    account: NewAccount, database_urls: tuple[str, str], database: Database, organization: NewOrganization
) -> None:
    who, org = await account(-1), await organization()
    scope, caller, crowd = scope_of(who, org.id), asking(who, org.id), Database(database_urls[1], pool_size=16)
    bounds: dict[str, Any] = {"cost_cap_cents": Decimal(10**9), "token_budget": 10**9, "expires_s": 0.01}
    thread = (await keep_message(crowd, caller, HELLO, **bounds)).thread.id
    at_once = asyncio.Semaphore(16)

    async def turn(number: int) -> None:
        async with at_once:
            begun = await keep_message(crowd, caller, structs.replace(HELLO, thread=thread), **bounds)
        async with at_once:
            if number % 3:
                assert await keep_answer(crowd, begun, outcome(charged=bool(number % 2)))
            else:
                await give_up(crowd, begun)

    await asyncio.gather(*[turn(number) for number in range(60)])
    await crowd.close()
    kept = sum(1 for number in range(60) if number % 3 and number % 2)
    answers = sum(1 for number in range(60) if number % 3)
    async with database.scoped(scope) as session:
        messages = await session.scalar(select(threads_table.c.message_count))
    assert messages == 1 + 60 + answers
    assert await used(database, who) == kept


# --- a process that dies

VICTIM = """
import asyncio, sys
from uuid import UUID

from rag_app.database.session import Database
from rag_app.surfaces.lexybrain.threads import keep_message
from rag_app.surfaces.lexybrain.types import RagRequest
from rag_app.domain.scope import Principal

async def main(url, user, expires):
    said = RagRequest("Is it fast?")
    begun = await keep_message(Database(url), Principal(user, UUID(user)), said, expires_s=float(expires))
    print(begun.thread.id, flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_process_killed_while_the_model_thinks_costs_its_user_nothing(
    account: NewAccount, database: Database, database_urls: tuple[str, str]
) -> None:
    who = await account(1)

    def kill() -> UUID:
        process = subprocess.Popen(
            [sys.executable, "-c", VICTIM, database_urls[1], str(who.user), "60"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        thread = UUID(process.stdout.readline().strip())
        process.kill()
        assert process.wait(PATIENCE) == -9
        return thread

    thread = await asyncio.to_thread(kill)
    assert await state(database, who) == {"threads": 1, "messages": 1, "used": 1, "reservations": 1}
    with pytest.raises(QuotaExceeded):
        await keep_message(database, asking(who), HELLO)  # for now it may be alive
    async with database.scoped(scope_of(who)) as session:
        await session.execute(update(usage_reservations_table).values(expires_at=func.now()))
    assert await used(database, who) == 0
    begun = await keep_message(database, asking(who), structs.replace(HELLO, thread=thread))
    assert await keep_answer(database, begun, outcome())
    assert await state(database, who) == {"threads": 1, "messages": 3, "used": 1, "reservations": 0}
