"""Erasing a user while they are at work, and who may read what is written down about whom: on a real PostgreSQL."""

import asyncio
from uuid import uuid4

import pytest
from sqlalchemy import text

from rag_app.access.limits import RateLimiter
from rag_app.access.people import People
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain.errors import Forbidden, NotFound
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal, Scope
from rag_app.surfaces.administration.personal import Personal
from rag_app.surfaces.lexybrain.quotas import Account, Entitlements
from rag_app.surfaces.lexybrain.threads import ThreadStore, give_up, keep_answer, keep_message
from rag_app.surfaces.lexybrain.training import Training
from rag_app.surfaces.lexybrain.types import RagRequest
from tests.integration.test_db_turns import outcome

HELLO = RagRequest("What sells best in spring?")


async def newcomer(database: Database) -> tuple[Account, Principal]:
    user = await People(database).create_user(f"name-{uuid4().hex}")
    return Account(user.id, "free", 50, True, False), Principal(str(user.id), user.id)


async def left(database: Database, account: Account) -> int:
    kept = ("rag_threads", "rag_messages", "usage_counters", "usage_reservations", "ai_usage_events", "ai_failures")
    async with database.scoped(Scope(frozenset({PUBLIC_ORGANIZATION}), account.user)) as session:
        counts = [await session.scalar(text(f"SELECT count(*) FROM {table}")) for table in kept]
        users = await session.scalar(text("SELECT count(*) FROM users WHERE id = :id"), {"id": account.user})
        return sum([*counts, users])


async def test_whatever_a_user_is_at_work_on_nothing_is_left_and_nothing_breaks(database: Database) -> None:
    personal = Personal(database)
    threads, training = ThreadStore(database, SourceLedger(database)), Training(database, Entitlements(database))
    for _ in range(8):
        account, principal = await newcomer(database)
        first, second = await keep_message(database, principal, HELLO), await keep_message(database, principal, HELLO)
        told = await asyncio.gather(
            keep_answer(database, first, outcome(failures=(("ModelFailed", "why"),))),
            give_up(database, second, [("ModelFailed", "why")], outcome()),
            keep_message(database, principal, HELLO),
            personal.erase(account.user),
            keep_message(database, principal, RagRequest("And then?", thread=first.thread.id)),
            threads.change(principal, second.thread.id, title="Spring"),
            threads.delete(principal, first.thread.id),
            training.decide(principal, True),
            return_exceptions=True,
        )
        assert told[3] is True
        unexpected = [
            each for each in told if isinstance(each, BaseException) and not isinstance(each, Forbidden | NotFound)
        ]
        assert unexpected == []
        assert await left(database, account) == 0
        assert await personal.erase(account.user) is True, "a second time there is nothing to do"


async def test_a_turn_of_an_erased_user_costs_and_leaves_nothing_else(database: Database) -> None:
    personal = Personal(database)
    account, principal = await newcomer(database)
    begun = [await keep_message(database, principal, HELLO) for _ in range(2)]
    assert await personal.erase(account.user)

    async def cents() -> float:
        async with database.session() as session:
            return float(await session.scalar(text("SELECT coalesce(sum(cents), 0) FROM daily_costs")) or 0)

    before = await cents()
    assert await keep_answer(database, begun[0], outcome()) is False
    await give_up(database, begun[1], [("ModelFailed", "why")], outcome())
    assert await cents() == pytest.approx(before + 0.5), "a model was paid"
    assert await left(database, account) == 0
    with pytest.raises(Forbidden):
        await keep_message(database, principal, HELLO)


async def test_how_often_they_asked_goes_however_their_token_spelled_their_id(database: Database) -> None:
    account, _ = await newcomer(database)
    other, _ = await newcomer(database)
    user, limiter = str(account.user), RateLimiter(database)
    for spelled in (user, user.upper(), account.user.hex, f"{{{user}}}", account.user.urn, str(other.user)):
        await limiter.hit(f"lexybrain:{spelled}", 60)
    assert await Personal(database).erase(account.user)
    async with database.session() as session:
        keys = (await session.scalars(text("SELECT key FROM rate_windows WHERE key LIKE 'lexybrain:%'"))).all()
    assert f"lexybrain:{other.user}" in keys
    assert not [key for key in keys if account.user.hex in key.lower().replace("-", "")]


async def test_what_is_written_down_about_a_user_the_operator_reads_and_no_request(database: Database) -> None:
    training = Training(database, Entitlements(database))
    (account, principal), (other, _) = await newcomer(database), await newcomer(database)
    await training.decide(principal, True)
    count = text("SELECT count(*) FROM audit_events WHERE subject = :id")

    async def seen(user: Account, operator: bool) -> int:
        scope = Scope(frozenset({PUBLIC_ORGANIZATION}), user.user)
        async with database.scoped(scope, operator) as session:
            return await session.scalar(count, {"id": str(account.user)}) or 0

    assert [await seen(each, operator) for each in (account, other) for operator in (True, False)] == [1, 0, 0, 0]
    told = await Personal(database).everything([PUBLIC_ORGANIZATION], account.user)
    assert [each["action"] for each in told["audit"]] == ["training.consent"]
    assert await Personal(database).erase(account.user)
    assert await seen(account, True) == 1, "it stays, with the bare id"
