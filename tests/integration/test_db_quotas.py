"""Plans, quotas, costs and budgets on a real PostgreSQL: exact, whoever asks at once, and nobody sees another's."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.people import Keys, People
from rag_app.access.tables import organization_tokens_table, users_table
from rag_app.database.session import Database
from rag_app.domain.answer import Usage
from rag_app.domain.errors import BudgetSpent, CostCapReached, Forbidden, InvalidInput, NotFound, QuotaExceeded
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.surfaces.lexybrain import quotas
from rag_app.surfaces.lexybrain.quotas import Account, Entitlements, Plan, PlanDirectory, UsageInfo
from rag_app.surfaces.lexybrain.tables import (
    daily_costs_table,
    failures_table,
    usage_counters_table,
    usage_events_table,
    usage_reservations_table,
)
from rag_app.surfaces.lexybrain.types import Flags, Outcome
from tests.conftest import NewOrganization
from tests.integration.stopping import until_blocked
from tests.waiting import PATIENCE

NewAccount = Callable[..., Awaitable[Account]]
JANUARY, FEBRUARY = datetime(2031, 1, 31, 23, 59, 30, tzinfo=UTC), datetime(2031, 2, 1, tzinfo=UTC)


@pytest.fixture
def account(database: Database) -> NewAccount:
    """A new user with so many messages a month, of which some are used this month."""

    async def make(messages: int = 50, used: int = 0, at: datetime | None = None) -> Account:
        user = await People(database).create_user(f"name-{uuid4().hex}")
        made = Account(user.id, "free", messages, True, False)
        for _ in range(used):
            async with acting(database, made) as session:
                await quotas.charge(session, made, at)
        return made

    return make


def acting(database: Database, account: Account, *organizations: UUID, **roles: bool) -> Any:
    """A transaction of the account's user."""
    return database.scoped(Scope(frozenset({PUBLIC_ORGANIZATION, *organizations}), account.user), **roles)


async def reserve(
    database: Database, account: Account, now: datetime | None = None, seconds: float = 60.0
) -> UUID | QuotaExceeded:
    reservation = uuid4()
    try:
        async with acting(database, account) as session:
            await quotas.reserve(session, reservation, account, seconds=seconds, now=now)
    except QuotaExceeded as exceeded:
        return exceeded
    return reservation


async def admit(
    database: Database, who: Account, *organizations: UUID, plan: str | None = None, cap: Decimal | None = None,
    budget: int | None = None, now: datetime | None = None,
) -> Account:  # fmt: skip
    scope = Scope(frozenset({PUBLIC_ORGANIZATION, *organizations}), who.user)
    limits: dict[str, Any] = {"cost_cap_cents": cap, "token_budget": budget}
    async with quotas.admit(database, scope, plan=plan, now=now, **limits) as (_, account, _):
        return account


async def give_back(database: Database, account: Account, reservation: object) -> None:
    assert isinstance(reservation, UUID)
    async with acting(database, account) as session:
        await quotas.give_back(session, reservation)


async def settle(database: Database, account: Account, reservation: object) -> bool:
    assert isinstance(reservation, UUID)
    async with acting(database, account) as session:
        return await quotas.settle(session, reservation)


async def counted(database: Database, account: Account) -> dict[date, int]:
    """By month, as it is written: whatever has expired included."""
    async with acting(database, account) as session:
        rows = await session.execute(select(usage_counters_table.c.period, usage_counters_table.c.used))
        return dict(rows.tuples().all())


async def used(database: Database, account: Account) -> int:
    return (await this_month(database, account)).messages_used


async def this_month(database: Database, account: Account) -> UsageInfo:
    async with acting(database, account) as session:
        return await quotas.usage(session, account)


async def reserved(database: Database, account: Account) -> int:
    async with acting(database, account) as session:
        return await session.scalar(select(func.count()).select_from(usage_reservations_table)) or 0


@asynccontextmanager
async def many(url: str) -> AsyncIterator[Database]:
    """Twenty connections that really compete."""
    database = Database(url, pool_size=20)
    try:
        yield database
    finally:
        await database.close()


def outcome(**changes: Any) -> Outcome:
    made = Outcome(
        uuid4(), "text", "general_chat", "a-model", (), Flags(), Usage(70, 30), Decimal("0.25"), 1200,
        {"retrieval": 200, "generation": 900}, {},
    )  # fmt: skip
    return replace(made, **changes)


# --- messages of a month


async def test_of_three_hundred_at_once_exactly_the_fifty_that_are_left(
    account: NewAccount, database_urls: tuple[str, str]
) -> None:
    who = await account(500, used=450)
    turns = asyncio.Semaphore(20)
    async with many(database_urls[1]) as database:

        async def one() -> UUID | QuotaExceeded:
            async with turns:
                return await reserve(database, who)

        results = await asyncio.gather(*[one() for _ in range(300)])
        assert sum(isinstance(each, UUID) for each in results) == 50
        refused = [each for each in results if isinstance(each, QuotaExceeded)]
        assert len(refused) == 250 and {(each.limit, each.used) for each in refused} == {(500, 500)}
        assert await used(database, who) == 500 and await reserved(database, who) == 50


TAKER = """
import asyncio, sys
from uuid import UUID, uuid4

from rag_app.surfaces.lexybrain import quotas
from rag_app.database.session import Database
from rag_app.surfaces.lexybrain.quotas import Account
from rag_app.domain.errors import QuotaExceeded
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope

async def main(url, user, attempts, given_back_every):
    database, turns = Database(url, pool_size=8), asyncio.Semaphore(8)
    print("ready", flush=True)
    sys.stdin.readline()
    account = Account(UUID(user), "free", 50, True, False)
    scope = Scope(frozenset({PUBLIC_ORGANIZATION}), account.user)
    kept = 0

    async def one(number):
        nonlocal kept
        reservation = uuid4()
        async with turns:
            try:
                async with database.scoped(scope) as session:
                    await quotas.reserve(session, reservation, account, seconds=60)
                    assert (await quotas.usage(session, account)).messages_used <= 50
            except QuotaExceeded as exceeded:
                assert (exceeded.limit, exceeded.used) == (50, 50)
                return
            async with database.scoped(scope) as session:
                if given_back_every and number % given_back_every == 0:
                    await quotas.give_back(session, reservation)
                else:
                    assert await quotas.settle(session, reservation)
                    kept += 1

    await asyncio.gather(*[one(number) for number in range(attempts)])
    await database.close()
    print(kept)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def kept_by_processes(url: str, account: Account, count: int, attempts: int, given_back_every: int) -> list[int]:
    """So many of them, with so many attempts each."""
    command = [sys.executable, "-c", TAKER, url, str(account.user), str(attempts), str(given_back_every)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * count
    return [int(each) for each in said]


async def test_four_processes_get_fifty_together(
    account: NewAccount, database: Database, database_urls: tuple[str, str]
) -> None:
    who = await account()
    kept = await asyncio.to_thread(kept_by_processes, database_urls[1], who, 4, 75, 0)
    assert sum(kept) == 50
    assert await used(database, who) == 50 and await reserved(database, who) == 0


async def test_what_is_given_back_meanwhile_is_neither_lost_nor_given_twice(
    account: NewAccount, database: Database, database_urls: tuple[str, str]
) -> None:
    who = await account()
    kept = sum(await asyncio.to_thread(kept_by_processes, database_urls[1], who, 2, 120, 3))
    assert kept == await used(database, who) <= 50
    left = [await reserve(database, who) for _ in range(50 - kept + 1)]
    assert [isinstance(each, UUID) for each in left] == [True] * (50 - kept) + [False]


async def test_expired_ones_of_many_at_once_are_given_back_once(
    account: NewAccount, database_urls: tuple[str, str]
) -> None:
    who = await account(30, used=10)
    async with many(database_urls[1]) as database:
        for _ in range(20):
            assert isinstance(await reserve(database, who, seconds=0.0), UUID)
        # each has given back the one before it
        ((month, counter),) = (await counted(database, who)).items()
        assert counter == 11 and await used(database, who) == 10
        async with acting(database, who) as session:  # twenty that expire at once
            await session.execute(update(usage_counters_table).values(used=30))
            past = {"key": "rag_messages", "period": month, "user_id": who.user}
            gone = [{**past, "id": uuid4(), "expires_at": datetime(2020, 1, 1, tzinfo=UTC)} for _ in range(19)]
            await session.execute(insert(usage_reservations_table), gone)
        results = await asyncio.gather(*[reserve(database, who) for _ in range(20)])
        assert all(isinstance(each, UUID) for each in results), "none is refused for what has expired"
        assert await used(database, who) == 30 == await reserved(database, who) + 10
        assert isinstance(await reserve(database, who), QuotaExceeded)


async def test_who_comes_while_another_gives_back_waits_for_it(account: NewAccount, database: Database) -> None:
    who = await account(1)
    await reserve(database, who, seconds=0.0)
    async with acting(database, who) as session:
        await session.execute(select(usage_reservations_table.c.id).with_for_update())
        coming = asyncio.create_task(reserve(database, who))
        await until_blocked(database)
        assert not coming.done(), "refused for what has expired"
    assert isinstance(await coming, UUID)


async def test_a_reservation_expires_to_the_second(account: NewAccount, database: Database) -> None:
    who, at = await account(1), datetime(2031, 3, 4, tzinfo=UTC)
    assert isinstance(await reserve(database, who, at, seconds=60), UUID)
    assert isinstance(await reserve(database, who, at + timedelta(seconds=59.999)), QuotaExceeded)
    assert isinstance(await reserve(database, who, at + timedelta(seconds=60)), UUID)
    assert await counted(database, who) == {date(2031, 3, 1): 1} and await reserved(database, who) == 1


async def test_a_message_belongs_to_the_month_it_came_in(account: NewAccount, database: Database) -> None:
    who = await account(2)
    january = [await reserve(database, who, JANUARY) for _ in range(2)]
    exceeded = await reserve(database, who, JANUARY)
    assert isinstance(exceeded, QuotaExceeded)
    assert (exceeded.limit, exceeded.used, exceeded.resets_at) == (2, 2, int(FEBRUARY.timestamp()))
    assert isinstance(await reserve(database, who, FEBRUARY - timedelta(microseconds=1)), QuotaExceeded)
    assert isinstance(await reserve(database, who, FEBRUARY), UUID)
    assert await counted(database, who) == {date(2031, 1, 1): 2, date(2031, 2, 1): 1}

    await give_back(database, who, january[0])  # in February
    assert await counted(database, who) == {date(2031, 1, 1): 1, date(2031, 2, 1): 1}
    assert isinstance(await reserve(database, who, FEBRUARY + timedelta(days=1)), UUID)
    # and here January's other one has expired, with the first of February
    assert await counted(database, who) == {date(2031, 1, 1): 0, date(2031, 2, 1): 1}


async def test_december_ends_with_the_year_and_february_with_the_leap_day(
    account: NewAccount, database: Database
) -> None:
    who = await account(0)
    for at, reset in (
        (datetime(2031, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2032, 1, 1, tzinfo=UTC)),
        (datetime(2032, 2, 29, 23, tzinfo=UTC), datetime(2032, 3, 1, tzinfo=UTC)),
    ):
        exceeded = await reserve(database, who, at)
        assert isinstance(exceeded, QuotaExceeded) and exceeded.resets_at == reset.timestamp()


async def test_the_month_is_that_of_utc_whatever_the_session_says(account: NewAccount, database: Database) -> None:
    who = await account(5)
    for zone in "Pacific/Kiritimati", "Pacific/Pago_Pago":
        async with acting(database, who) as session:
            await session.execute(text(f"SET LOCAL timezone = '{zone}'"))
            await quotas.reserve(session, uuid4(), who, seconds=60, now=JANUARY)
    assert await counted(database, who) == {date(2031, 1, 1): 2}


async def test_a_plan_of_no_messages_and_one_without_limit(account: NewAccount, database: Database) -> None:
    none, unlimited = await account(0), await account(-1)
    exceeded = await reserve(database, none)
    assert isinstance(exceeded, QuotaExceeded) and (exceeded.limit, exceeded.used) == (0, 0)
    assert await counted(database, none) == {}
    for _ in range(60):
        assert isinstance(await reserve(database, unlimited), UUID)
    assert (await used(database, unlimited), (await this_month(database, unlimited)).messages_per_month) == (60, -1)


async def test_a_smaller_plan_refuses_with_what_is_used(account: NewAccount, database: Database) -> None:
    who = await account(500, used=7)
    exceeded = await reserve(database, replace(who, messages=5))
    assert isinstance(exceeded, QuotaExceeded) and (exceeded.limit, exceeded.used) == (5, 7)
    assert str(exceeded) == "all 5 messages of this month are used"


async def test_giving_back_twice_or_after_settling_changes_nothing(account: NewAccount, database: Database) -> None:
    who = await account()
    kept, returned = await reserve(database, who), await reserve(database, who)
    assert await settle(database, who, kept)
    for reservation in returned, returned, kept, uuid4():
        await give_back(database, who, reservation)
    assert await used(database, who) == 1 and await reserved(database, who) == 0
    assert not await settle(database, who, returned)


async def test_used_is_never_below_nothing(account: NewAccount, database: Database) -> None:
    who = await account()
    lone, expired = await reserve(database, who), await reserve(database, who, seconds=0.0)
    async with acting(database, who) as session:
        await session.execute(update(usage_counters_table).values(used=0))
    assert await used(database, who) == 0
    await give_back(database, who, lone)
    await give_back(database, who, expired)
    assert list((await counted(database, who)).values()) == [0]


async def test_an_expired_one_can_be_settled_until_it_is_given_back(account: NewAccount, database: Database) -> None:
    who = await account()
    late, later = await reserve(database, who, seconds=0.0), None
    assert await used(database, who) == 0
    assert await settle(database, who, late), "nobody has given it back yet: it counts"
    assert await used(database, who) == 1
    later = await reserve(database, who, seconds=0.0)
    await reserve(database, who)
    assert await used(database, who) == 2
    assert not await settle(database, who, later)
    async with acting(database, who) as session:
        await quotas.charge(session, replace(who, messages=0))
    assert await used(database, who) == 3, "kept answers count, whatever the limit"


async def test_a_refusal_leaves_nothing(account: NewAccount, database: Database) -> None:
    who = await account(1, used=1)
    assert isinstance(await reserve(database, who), QuotaExceeded)
    assert (await used(database, who), await reserved(database, who)) == (1, 0)


# --- the day's cost and the month's tokens


async def test_the_cap_is_reached_to_the_cent_and_gone_tomorrow(account: NewAccount, database: Database) -> None:
    who, day = await account(), datetime(2040, 5, 6, 23, 59, 59, tzinfo=UTC)

    async def spend(cents: str) -> None:
        async with acting(database, who) as session:
            await quotas.record(
                session, who, Scope(frozenset({PUBLIC_ORGANIZATION})), outcome(cost_cents=Decimal(cents)), day
            )

    async def check(cap: str | None, now: datetime = day) -> None:
        await admit(database, who, cap=None if cap is None else Decimal(cap), now=now)

    await check("0.01")
    with pytest.raises(CostCapReached):
        await check("0")
    await spend("9.999")
    await check("10")
    await spend("0.001")
    for cap in "10", "9.5", "10.000":
        with pytest.raises(CostCapReached, match="00:00 UTC"):
            await check(cap)
    await check("10.0001")
    await check(None)
    await check("10", day + timedelta(seconds=1))
    async with database.session() as session:
        assert await session.scalar(
            select(daily_costs_table.c.cents).where(daily_costs_table.c.day == day.date())
        ) == Decimal(10)


async def test_costs_of_many_at_once_add_up(account: NewAccount, database_urls: tuple[str, str]) -> None:
    day = datetime(2041, 1, 1, tzinfo=UTC)
    async with many(database_urls[1]) as database:
        people, organization = await asyncio.gather(
            asyncio.gather(*[account() for _ in range(5)]), People(database).create_organization(uuid4().hex + "x", "")
        )

        turns = asyncio.Semaphore(20)  # as many as there are connections: nobody waits for one

        async def one(who: Account) -> None:
            async with turns, acting(database, who, organization.id) as session:
                scope = Scope(frozenset({organization.id}), who.user)
                await quotas.record(session, who, scope, outcome(cost_cents=Decimal("0.1")), day)

        await asyncio.gather(*[one(people[number % 5]) for number in range(60)])
        async with acting(database, people[0], organization.id) as session:
            assert await session.scalar(
                select(daily_costs_table.c.cents).where(daily_costs_table.c.day == day.date())
            ) == Decimal(6)
            assert await session.scalar(select(organization_tokens_table.c.tokens)) == 6000


async def test_a_budget_is_spent_to_the_token(
    account: NewAccount, database: Database, organization: NewOrganization
) -> None:
    who, org = await account(), await organization()
    people, at = People(database), datetime(2031, 1, 15, tzinfo=UTC)
    scope = Scope(frozenset({org.id, PUBLIC_ORGANIZATION}), who.user)

    async def check(default: int | None = None, now: datetime = at) -> None:
        await admit(database, who, org.id, budget=default, now=now)

    async with acting(database, who, org.id) as session:
        await quotas.record(session, who, scope, outcome(usage=Usage(60, 39)), at)
    await check()
    await check(100)
    with pytest.raises(BudgetSpent) as spent:
        await check(99)
    assert (spent.value.limit, spent.value.used, spent.value.resets_at) == (99, 99, int(FEBRUARY.timestamp()))
    await check(99, FEBRUARY)

    await people.set_budget(org, 100)
    await check(99)  # its own goes before the settings', in both directions
    await people.set_budget(org, 99)
    with pytest.raises(BudgetSpent):
        await check(100)
    with pytest.raises(BudgetSpent):
        await check(None)
    await people.set_budget(org, 0)
    with pytest.raises(BudgetSpent):
        await check(None, FEBRUARY)
    await people.set_budget(org, None)
    await check()


async def test_a_member_of_several_is_charged_to_each_and_refused_by_any(
    account: NewAccount, database: Database, organization: NewOrganization
) -> None:
    who, rich, poor = await account(), await organization(), await organization()
    await People(database).set_budget(poor, 100)
    both = frozenset({rich.id, poor.id, PUBLIC_ORGANIZATION})
    await admit(database, who, rich.id, poor.id)
    async with database.scoped(Scope(both, who.user)) as session:
        await quotas.record(session, who, Scope(both, who.user), outcome(usage=Usage(99, 1)))
        tokens = await session.execute(select(organization_tokens_table.c.org_id, organization_tokens_table.c.tokens))
        assert dict(tokens.tuples().all()) == {rich.id: 100, poor.id: 100}, "and the public one never"
    await admit(database, who, rich.id)
    with pytest.raises(BudgetSpent):
        await admit(database, who, rich.id, poor.id)
    await admit(database, who, budget=0)


async def test_what_is_recorded(account: NewAccount, database: Database) -> None:
    who = replace(await account(), plan="pro")
    done = outcome(failures=(("ModelMalformed", "no text\0 in {\ud800}" + "x" * 5000), ("ModelTimeout", "60 s")))
    async with acting(database, who) as session:
        await quotas.record(session, who, Scope(frozenset({PUBLIC_ORGANIZATION})), done)
        await quotas.record(
            session,
            who,
            Scope(frozenset({uuid4()})),
            outcome(usage=Usage(0, 0), cost_cents=Decimal(0), model="extractive"),
        )  # of an organization that is gone
    async with acting(database, who) as session:
        first, second = (await session.execute(select(usage_events_table).order_by(usage_events_table.c.id))).all()
        assert (first.type, first.message_id, first.plan_code) == ("rag_message", done.message, "pro")
        assert (first.model_version, first.capability, first.latency_ms) == ("a-model", "general_chat", 1200)
        assert (first.tokens_in, first.tokens_out, first.cost_cents) == (70, 30, Decimal("0.25"))
        assert first.stages == {"retrieval": 200, "generation": 900} and not first.cache_hit
        assert (second.tokens_in, second.tokens_out, second.cost_cents) == (0, 0, 0)
        failures = (await session.execute(select(failures_table).order_by(failures_table.c.id))).all()
        assert [(each.kind, each.message_id, each.model_id) for each in failures] == [
            ("ModelMalformed", done.message, "a-model"), ("ModelTimeout", done.message, "a-model"),
        ]  # fmt: skip
        assert failures[0].message.startswith("no text\ufffd in {?}xxx") and len(failures[0].message) == 2000


# --- accounts


async def test_an_account_is_what_the_database_says(database: Database) -> None:
    people, accounts = People(database), Entitlements(database)
    user = await people.create_user(f"name-{uuid4().hex}")
    principal = await people.principal(str(user.id))
    assert await accounts.find(principal) == Account(user.id, "free", 50, True, False)
    await people.set_plan(user, "growth")
    await people.set_role(user, "admin")
    assert await accounts.find(principal) == Account(user.id, "growth", -1, True, True)
    with pytest.raises(Forbidden, match="was deleted"):
        await accounts.find(Principal("x", uuid4()))


async def test_whom_the_database_does_not_know_becomes_a_user_once(database_urls: tuple[str, str]) -> None:
    async with many(database_urls[1]) as database:
        people, accounts = People(database), Entitlements(database)
        for subject in f"auth0|{uuid4().hex}", str(uuid4()), f"{{{uuid4()}}}".upper():
            principal = await people.principal(subject)
            assert principal == Principal(subject)
            made = await asyncio.gather(*[accounts.find(principal) for _ in range(20)])
            assert len(set(made)) == 1 and made[0] == replace(made[0], plan="free", messages=50, administrator=False)
            assert await accounts.find(principal) == made[0]
            known = await people.principal(subject)
            assert known == Principal(subject, made[0].user), "and is that user from now on, of no organization"
            user = await people.user(made[0].user)
            assert user.name == f"user-{user.id.hex[:12]}" and await people.user(user.name) == user
        assert user.id == UUID(subject)


async def test_a_name_that_is_taken_keeps_nobody_out(database: Database) -> None:
    people, accounts = People(database), Entitlements(database)
    subject = uuid4()
    squatter = await people.create_user(f"user-{subject.hex[:12]}")
    account = await accounts.find(Principal(str(subject)))
    assert account.user == subject != squatter.id
    assert (await people.user(subject)).name.startswith("user-")


@pytest.mark.parametrize("subject", ["", " ", "a\0b", "a\nb", "\ud800", "\u202eabc", "x" * 256])
async def test_a_subject_that_cannot_be_kept(database: Database, subject: str) -> None:
    async with database.session() as session:
        before = await session.scalar(select(func.count()).select_from(users_table))
    with pytest.raises(Forbidden, match="at most 255 characters"):
        await Entitlements(database).find(Principal(subject))
    async with database.session() as session:
        assert await session.scalar(select(func.count()).select_from(users_table)) == before


async def test_a_visitor_has_no_account(database: Database, organization: NewOrganization) -> None:
    visitor = await People(database).member_of((await organization()).slug)
    with pytest.raises(Forbidden, match="Sign in"):
        await Entitlements(database).find(visitor)
    assert (await People(database).principal(visitor.subject)).user is None


async def test_the_longest_subject_fits(database: Database) -> None:
    subject = uuid4().hex[:15] + "🧵" * 240
    account = await Entitlements(database).find(Principal(subject))
    assert (await People(database).principal(subject)).user == account.user


# --- plans


async def test_the_plans_of_the_contract(account: NewAccount, database: Database) -> None:
    admin = await account()
    await People(database).set_role(await People(database).user(admin.user), "admin")
    plans = {plan.code: plan for plan in await PlanDirectory(database).list()}
    for code, messages in {"free": 50, "basic": 500, "pro": 2000, "growth": -1, "admin": -1}.items():
        assert plans[code] == Plan(code, messages, True)
        on_it = await admit(database, admin, plan=code)
        assert (on_it.plan, on_it.messages, on_it.enabled) == (code, messages, True)
    for unknown in "gold", "Free", "", "' OR '1'='1", "a\0b":
        with pytest.raises(InvalidInput, match=r"planCode: accepted: admin, basic, .*free, .*growth"):
            await admit(database, admin, plan=unknown)


async def test_a_plan_is_made_and_changed(database: Database) -> None:
    plans, people, code = PlanDirectory(database), People(database), f"plan-{uuid4().hex}"
    assert await plans.set(code) == Plan(code, 50, True)
    user = await people.create_user(f"name-{uuid4().hex}", plan=code)
    assert await plans.set(code, messages=0) == Plan(code, 0, True)
    assert await plans.set(code, enabled=False) == Plan(code, 0, False)
    assert await plans.set(code, messages=-1) == Plan(code, -1, False)
    account = await Entitlements(database).find(await people.principal(str(user.id)))
    assert account == Account(user.id, code, -1, False, False)
    for messages in -2, 2**31:
        with pytest.raises(InvalidInput, match="messages: must be"):
            await plans.set(code, messages)
    for none in "", " ", " padded", "a\0b", "x" * 65:
        with pytest.raises(InvalidInput, match="plan: must be a name"):
            await plans.set(none)
    with pytest.raises(NotFound, match=f"no plan named 'gold'; there are: admin, .*{code}"):
        await people.set_plan(user, "gold")


async def test_what_users_have_used_as_the_operator_lists_it(account: NewAccount, database: Database) -> None:
    busy, idle = await account(used=3), await account()
    await reserve(database, busy)
    await reserve(database, busy, seconds=0.0)
    accounts = Entitlements(database)
    assert await accounts.messages_used([busy.user, idle.user]) == {busy.user: 4, idle.user: 0}
    month = await this_month(database, busy)
    assert (month.messages_used, month.messages_per_month) == (4, 50)
    reset = month.resets_at
    assert (reset.day, reset.hour, reset.minute, reset.second) == (1, 0, 0, 0) and reset > datetime.now(UTC)


# --- row-level security, under the application's role

OWN_TABLES = ["usage_counters", "usage_reservations", "ai_usage_events", "ai_failures"]


async def fill(database: Database, who: Account, org: UUID) -> None:
    """A row in each table."""
    await reserve(database, who)
    async with acting(database, who, org) as session:
        done = outcome(failures=(("ModelTimeout", "60 s"),))
        await quotas.record(session, who, Scope(frozenset({org}), who.user), done)


async def rows(session: AsyncConnection, table: str) -> int:
    return int(await session.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


async def test_nobody_sees_or_touches_what_is_anothers(
    account: NewAccount, database: Database, organization: NewOrganization, subtests: pytest.Subtests
) -> None:
    owner, other, org = await account(), await account(), await organization()
    await fill(database, owner, org.id)
    column = {"organization_tokens": "tokens", "usage_counters": "used", "usage_reservations": "key"}
    for table in [*OWN_TABLES, "organization_tokens"]:
        set_ = f"{column.get(table, 'created_at')} = {column.get(table, 'created_at')}"
        with subtests.test(table):
            async with acting(database, owner, org.id) as session:
                assert await rows(session, table) == 1
            async with acting(database, other) as session:
                assert await rows(session, table) == 0
                for statement in f"UPDATE {table} SET {set_} RETURNING 1", f"DELETE FROM {table} RETURNING 1":
                    assert (await session.execute(text(statement))).all() == []
            async with database.session() as session:  # for nobody
                assert await rows(session, table) == 0
            async with acting(database, other, administrator=True) as session:  # so they say
                assert await rows(session, table) == 0
            async with acting(database, owner, org.id) as session:
                assert await rows(session, table) == 1


async def test_nobody_charges_another(account: NewAccount, database: Database) -> None:
    owner, other = await account(), await account()
    mine = await reserve(database, owner)
    await give_back(database, other, mine)
    assert not await settle(database, other, mine)
    assert await used(database, owner) == 1 and await reserved(database, owner) == 1
    crimes: list[Callable[[AsyncConnection], Awaitable[None]]] = [
        lambda session: quotas.reserve(session, uuid4(), owner, seconds=60),
        lambda session: quotas.charge(session, owner),
        lambda session: quotas.record(session, owner, Scope(frozenset({PUBLIC_ORGANIZATION})), outcome()),
    ]
    for crime in crimes:
        with pytest.raises(DBAPIError, match="row-level security"):
            async with acting(database, other) as session:
                await crime(session)
    assert await used(database, owner) == 1


async def test_a_key_administers_nothing_whatever_role_its_user_has(
    database: Database, organization: NewOrganization
) -> None:
    people, accounts = People(database), Entitlements(database)
    key, secret = await Keys(database).create(await organization(), "k")
    await people.set_role(await people.user(f"key:{key.id}"), "admin")
    assert not (await accounts.find(await Keys(database).principal(secret))).administrator
    person = await people.create_user(f"u-{uuid4().hex}", role="admin")
    assert (await accounts.find(Principal(str(person.id), person.id))).administrator


async def test_an_administrator_reads_and_changes_nothing(
    account: NewAccount, database: Database, organization: NewOrganization
) -> None:
    owner, admin, org = await account(), await account(), await organization()
    await fill(database, owner, org.id)
    await People(database).set_role(await People(database).user(admin.user), "admin")
    for table in ["usage_counters", "ai_usage_events", "ai_failures"]:
        of_owner = text(f"SELECT count(*) FROM {table} WHERE user_id = :user").bindparams(user=owner.user)
        async with acting(database, admin, administrator=True) as session:
            assert await session.scalar(of_owner) == 1
            assert (await session.execute(text(f"DELETE FROM {table} RETURNING 1"))).all() == []
        async with acting(database, admin) as session:
            assert await session.scalar(of_owner) == 0, "as long as they do not say so"


async def test_a_plan_that_is_changed_meanwhile_is_the_one_that_counts(database: Database) -> None:
    user = await People(database).create_user(f"name-{uuid4().hex}")
    account = await Entitlements(database).find(Principal(str(user.id), user.id))
    waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    async with database.session() as changing:
        await changing.execute(text("UPDATE users SET plan_code = 'growth' WHERE id = :id"), {"id": user.id})
        asking = asyncio.create_task(admit(database, account))
        async with asyncio.timeout(PATIENCE):
            while not await changing.scalar(waits):
                await asyncio.sleep(0.01)
    assert (await asking).plan == "growth"
