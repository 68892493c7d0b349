"""Threads: whose they are, what is kept in them, how they are read, and what row-level security makes of it."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import convert, structs
from msgspec.structs import replace
from sqlalchemy import Row, event, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from rag_app.access.audit import Act, administrator_session
from rag_app.access.people import Keys, Organization
from rag_app.access.tables import audit_events_table, users_table
from rag_app.database import migrate, pages
from rag_app.database.private import PrivatePostgres
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.documents.tables import sources_table
from rag_app.domain.answer import Usage
from rag_app.domain.errors import Forbidden, InvalidInput, NotFound
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal
from rag_app.surfaces.lexybrain import threads
from rag_app.surfaces.lexybrain.messages import title_of
from rag_app.surfaces.lexybrain.tables import messages_table, threads_table
from rag_app.surfaces.lexybrain.threads import ThreadStore
from rag_app.surfaces.lexybrain.types import (
    Flags,
    Outcome,
    RagModel,
    RagUsage,
    Role,
    ThreadFlags,
    ThreadInfo,
    ThreadMessage,
    ThreadSource,
    ThreadsResponse,
)
from tests import migrating
from tests.conftest import MIGRATIONS, NewOrganization, NewPostgres
from tests.integration.stopping import until_blocked
from tests.waiting import PATIENCE


async def somebody(database: Database, organization: Organization | None = None, role: str = "user") -> Principal:
    """A new user."""
    user = uuid4()
    async with database.session() as session:
        await session.execute(insert(users_table).values(id=user, name=f"user-{user.hex[:12]}", role=role))
    return Principal(str(user), user, frozenset({organization.id}) if organization else frozenset())


@pytest.fixture
async def ann(database: Database) -> Principal:
    return await somebody(database)


@pytest.fixture
async def bob(database: Database) -> Principal:
    return await somebody(database)


@pytest.fixture
async def admin(database: Database) -> Principal:
    return await somebody(database, role="admin")


@dataclass(frozen=True)
class Talk:
    """The application's part: turns, as `rag_app.surfaces.lexybrain.threads` makes them, and their threads."""

    database: Database
    threads: ThreadStore

    async def say(
        self,
        who: Principal,
        said: str = "What sells?",
        thread: UUID | None = None,
        capability: str | None = None,
        context: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> tuple[Row[Any], UUID]:
        assert who.user
        message = uuid4()
        async with self.database.scoped(who.scope()) as session:
            in_ = thread or await threads.add_thread(session, who.user, title_of(said), metadata or {})
            begun = await threads.add_user_message(session, who.user, in_, message, said, capability, context)
        return begun, message

    async def settle_on(
        self, who: Principal, thread: UUID, message: UUID, capability: str, prompts: Mapping[str, str]
    ) -> None:
        async with self.database.scoped(who.scope()) as session:
            await threads.settle_on(session, who.user, thread, message, capability, prompts)

    async def answer(self, who: Principal, thread: UUID, said: str = "Rings.", **values: Any) -> UUID | None:
        """The answer's id, or None where the thread is gone."""
        given = replace(outcome(said), **values)
        async with self.database.scoped(who.scope()) as session:
            return given.message if await threads.add_answer(session, who.user, thread, given) else None

    async def page(self, who: Principal, **wanted: Any) -> ThreadsResponse:
        options: dict[str, Any] = {"limit": 20, "after": None, "archived": None, "user": None, "everybody": False}
        return await self.threads.list(who, **options | wanted)

    async def read(
        self, who: Principal, thread: UUID, limit: int = 50, before: UUID | None = None
    ) -> list[ThreadMessage]:
        return (await self.threads.read(who, thread, limit=limit, before=before)).messages

    async def thread(self, who: Principal, thread: UUID) -> ThreadInfo:
        return convert(await self.threads.read(who, thread, limit=1, before=None), ThreadInfo, from_attributes=True)

    async def metadata(self, who: Principal, thread: UUID) -> Any:
        async with self.database.scoped(who.scope()) as session:
            return await session.scalar(select(threads_table.c.metadata).where(threads_table.c.id == thread))


@pytest.fixture
def talk(database: Database) -> Talk:
    return Talk(database, ThreadStore(database, SourceLedger(database)))


def outcome(said: str = "Rings.", sources: tuple[ThreadSource, ...] = ()) -> Outcome:
    return Outcome(
        message=uuid4(),
        text=said,
        capability="market_brief",
        model="m",
        sources=sources,
        flags=Flags(used_rag=True),
        usage=Usage(10, 2),
        cost_cents=Decimal("0.1"),
        latency_ms=5,
        stages={"generation": 4},
        generation={"tokensIn": 10, "tokensOut": 2, "latencyMs": 5, "temperature": 0.7},
    )


async def source(database: Database, org_id: UUID, owner: UUID | None = None) -> UUID:
    """A new source, private to its owner if it has one."""
    made, public = uuid4(), org_id == PUBLIC_ORGANIZATION
    async with database.scoped(Principal("", None, frozenset({org_id})).scope(), operator=True) as session:
        await session.execute(
            insert(sources_table).values(
                id=made, org_id=org_id, index="marketplace", external_id=made.hex, title="t", lang="en",
                source_type="keyword", metadata={}, origin="", version="1", content=[], owner_id=owner,
                visibility="user" if owner else "global" if public else "team",
            )
        )  # fmt: skip
    return made


# -- keeping


async def test_a_message_begins_a_thread_and_what_was_said_is_kept(talk: Talk, ann: Principal) -> None:
    context = {"keywordIds": ["a"], "timeRange": {"from": "2026-01-01"}}
    begun, message = await talk.say(ann, "What\nsells?", None, None, context, {"client": "web", "version": "1.0"})
    cited = ThreadSource(uuid4(), "keyword", "vintage rings", 0.92, 1, "Rings sell.", True)
    given = outcome("Rings [Source 1].", (cited,))
    given = replace(given, flags=Flags(used_rag=True, insufficient_context=True, interrupted=True))
    async with talk.database.scoped(ann.scope()) as session:
        assert await threads.add_answer(session, ann.user, begun.id, given)

    thread = await talk.threads.read(ann, begun.id, limit=2, before=None)
    [first, second] = thread.messages
    assert not thread.has_more
    assert (begun.user_id, begun.title, begun.archived) == (ann.user, "What sells?", False)
    assert (thread.message_count, thread.metadata) == (2, {"client": "web", "version": "1.0"})
    assert begun.created_at < first.created_at < second.created_at == thread.last_message_at
    assert first == ThreadMessage(message, "user", "What\nsells?", first.created_at, None, [], None, None, None)
    assert second == ThreadMessage(
        given.message, "assistant", "Rings [Source 1].", second.created_at, "market_brief",
        [structs.replace(cited, quote=None, available=False)], RagModel("m", RagUsage(10, 2), 5),
        ThreadFlags(True, False, True, True, False), None,
    )  # fmt: skip
    async with talk.database.scoped(ann.scope()) as session:
        kept = (await session.execute(select(messages_table).where(messages_table.c.id == given.message))).one()
        assert await session.scalar(text("SELECT count(*) FROM rag_messages WHERE context_json = 'null'")) == 0
        asked = select(messages_table.c.context_json).where(messages_table.c.id == message)
        assert await session.scalar(asked) == context and kept.generation_metadata == given.generation
    assert kept.retrieved_source_ids == [
        {"id": str(cited.id), "type": "keyword", "label": "vintage rings", "score": 0.92, "cited": 1,
         "quote": "Rings sell."}
    ]  # fmt: skip
    assert kept.flags == {
        "usedRag": True, "fallbackToGeneric": False, "insufficientContext": True, "interrupted": True, "refused": False,
        "grounded": None, "removedSentences": 0, "understood": "", "language": "", "courtesy": False,
    }  # fmt: skip
    assert not kept.training_eligible


async def test_what_fails_later_in_the_transaction_leaves_no_thread(talk: Talk, ann: Principal) -> None:
    assert ann.user

    async def begin(said: str) -> None:
        async with talk.database.scoped(ann.scope()) as session:
            thread = await threads.add_thread(session, ann.user, "t", {})  # type: ignore[arg-type]
            await threads.add_user_message(session, ann.user, thread, uuid4(), said, None, None)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await begin("What sells?")
    for unkept in ("a\0b", "half \ud83d of a pair"):
        with pytest.raises(InvalidInput, match="message: must not contain NUL"):
            await begin(unkept)
    assert await talk.page(ann) == ThreadsResponse([], None)


async def test_what_a_model_says_is_kept_without_what_postgresql_cannot_keep(talk: Talk, ann: Principal) -> None:
    begun, _ = await talk.say(ann)
    await talk.answer(ann, begun.id, "Ri\0ngs \ud83dsell 💍.")
    assert [message.content for message in await talk.read(ann, begun.id)] == ["What sells?", "Rings sell 💍."]


async def test_a_foreign_thread_is_as_unknown_as_one_that_there_is_not(
    talk: Talk, ann: Principal, bob: Principal, admin: Principal
) -> None:
    hers, message = await talk.say(ann)
    before = await talk.thread(ann, hers.id)
    for who in (bob, admin, Principal("nobody-we-know")):
        for unknown in (hers.id, uuid4()):
            refused = [
                talk.threads.change(who, unknown, title="Mine"),
                talk.threads.change(who, unknown, archived=True),
                talk.threads.delete(who, unknown),
                talk.threads.delete_message(who, unknown, message),
            ]
            if who.user:
                refused.append(talk.say(who, "Mine?", unknown))  # type: ignore[arg-type]
            if who is not admin or unknown != hers.id:
                refused.append(talk.threads.read(who, unknown, limit=1, before=None))
            for attempt in refused:
                with pytest.raises(NotFound) as error:
                    await attempt
                assert str(error.value) == f"no thread named '{unknown}'"
            assert await talk.answer(who, unknown) is None
            assert await talk.threads.history(who.scope(), unknown, message) == []
            await talk.settle_on(who, unknown, message, "general_chat", {"global": "theirs"})
    assert await talk.thread(ann, hers.id) == before
    assert [(kept.content, kept.capability) for kept in await talk.read(ann, hers.id)] == [("What sells?", None)]


async def test_the_query_names_the_user_even_where_row_level_security_lets_more_through(
    talk: Talk, ann: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    async with talk.database.scoped(ann.scope()) as session:
        with pytest.raises(NotFound):
            await threads.add_user_message(session, admin.user, hers.id, uuid4(), "Hello", None, None)
    async with talk.database.scoped(admin.scope(), administrator=True) as session:
        assert await session.scalar(select(threads_table.c.id).where(threads_table.c.id == hers.id)) == hers.id
        assert not await threads.add_answer(session, admin.user, hers.id, outcome())
        with pytest.raises(NotFound):
            await threads.add_user_message(session, admin.user, hers.id, uuid4(), "Hello", None, None)
    assert (await talk.thread(ann, hers.id)).message_count == 1


async def test_a_message_brings_an_archived_thread_back_and_to_the_front(talk: Talk, ann: Principal) -> None:
    old, _ = await talk.say(ann, "Old")
    new, _ = await talk.say(ann, "New")
    assert (await talk.threads.change(ann, old.id, archived=True)).archived
    assert [thread.title for thread in (await talk.page(ann, archived=False)).threads] == ["New"]
    assert [thread.title for thread in (await talk.page(ann, archived=True)).threads] == ["Old"]
    assert [thread.title for thread in (await talk.page(ann)).threads] == ["New", "Old"], "archiving is no message"

    again, _ = await talk.say(ann, "Again", old.id)
    assert not again.archived and again.title == "Old"
    assert [thread.id for thread in (await talk.page(ann, archived=False)).threads] == [old.id, new.id]
    assert (await talk.page(ann, archived=True)).threads == []
    assert (await talk.threads.change(ann, old.id, archived=True)).archived
    assert not (await talk.threads.change(ann, old.id, archived=False)).archived


async def test_messages_at_once_in_one_thread_are_all_kept_and_counted_one_after_the_other(
    talk: Talk, ann: Principal
) -> None:
    begun, first = await talk.say(ann)
    said = await asyncio.gather(*(talk.say(ann, str(number), begun.id) for number in range(12)))
    answered = await asyncio.gather(*(talk.answer(ann, begun.id, str(number)) for number in range(12)))
    thread = await talk.threads.read(ann, begun.id, limit=25, before=None)
    messages = thread.messages
    assert not thread.has_more and thread.message_count == 25
    assert {message.id for message in messages} == {first, *(message for _, message in said), *answered}
    moments = [message.created_at for message in messages]
    assert moments == sorted(set(moments)) and moments[-1] == thread.last_message_at


async def test_of_two_messages_at_once_the_second_waits_until_the_first_is_kept(talk: Talk, ann: Principal) -> None:
    begun, _ = await talk.say(ann)
    async with talk.database.scoped(ann.scope()) as session:
        await threads.add_user_message(session, begun.user_id, begun.id, uuid4(), "First", None, None)
        second = asyncio.create_task(talk.say(ann, "Second", begun.id))
        await until_blocked(talk.database)
        assert not second.done()
    await second
    assert [message.content for message in await talk.read(ann, begun.id)] == ["What sells?", "First", "Second"]


async def test_messages_keep_their_order_when_the_clock_is_set_back(talk: Talk, ann: Principal) -> None:
    begun, first = await talk.say(ann)
    async with talk.database.scoped(ann.scope()) as session:
        later = func.now() + text("interval '1 hour'")
        await session.execute(update(threads_table).where(threads_table.c.id == begun.id).values(last_message_at=later))
        await session.execute(update(messages_table).where(messages_table.c.id == first).values(created_at=later))
    _, second = await talk.say(ann, "b", begun.id)
    third = await talk.answer(ann, begun.id, "c")
    assert [message.content for message in await talk.read(ann, begun.id)] == ["What sells?", "b", "c"]
    assert third
    assert [message.id for message in await talk.threads.history(ann.scope(), begun.id, third)][-1] == second


async def test_an_answer_to_a_thread_that_is_being_deleted_is_not_written(talk: Talk, ann: Principal) -> None:
    begun, message = await talk.say(ann)
    async with talk.database.scoped(ann.scope()) as session:
        await session.execute(text("DELETE FROM rag_threads WHERE id = :id"), {"id": begun.id})
        late = asyncio.create_task(talk.answer(ann, begun.id))
        next_message = asyncio.create_task(talk.say(ann, "And?", begun.id))
        await until_blocked(talk.database, 2)
        assert not late.done() and not next_message.done()
    assert await late is None
    with pytest.raises(NotFound):
        await next_message
    await talk.settle_on(ann, begun.id, message, "general_chat", {})
    assert await talk.threads.history(ann.scope(), begun.id, message) == []


async def test_what_a_message_wants_and_which_prompts_its_thread_has_are_written_down(
    talk: Talk, ann: Principal
) -> None:
    begun, message = await talk.say(ann, metadata={"client": "web"})
    answered = await talk.answer(ann, begun.id)
    assert answered
    await talk.settle_on(ann, begun.id, message, "general_chat", {"global": "s1", "general_chat": "g1"})
    await talk.settle_on(ann, begun.id, answered, "alert_explanation", {})  # no user's message
    _, second = await talk.say(ann, "And rings?", begun.id)
    await talk.settle_on(ann, begun.id, second, "market_brief", {"market_brief": "m1", "global": "s2"})
    assert [kept.capability for kept in await talk.read(ann, begun.id)] == [
        "general_chat", "market_brief", "market_brief",
    ]  # fmt: skip
    assert await talk.metadata(ann, begun.id) == {
        "client": "web", "prompts": {"global": "s2", "general_chat": "g1", "market_brief": "m1"},
    }  # fmt: skip


async def test_prompts_of_two_messages_at_once_are_both_kept(talk: Talk, ann: Principal) -> None:
    begun, message = await talk.say(ann)
    types = [f"type{number}" for number in range(8)]
    await asyncio.gather(*(talk.settle_on(ann, begun.id, message, "general_chat", {name: name}) for name in types))
    assert (await talk.metadata(ann, begun.id))["prompts"] == {name: name for name in types}


# -- titles


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("What sells?", "What sells?"),
        ("  What\r\n\tsells\u2028 best\u00a0? ", "What sells best ?"),
        ("Rings\0 \x1b[31mred\x7f \u202etxt\u2066 \ufeffend", "Rings [31mred txt end"),
        ("lone \ud83d surrogate", "lone surrogate"),
        ("a" * 80, "a" * 80),
        ("a" * 81, "a" * 79 + "…"),
        ("a" * 40 + " " + "b" * 39, "a" * 40 + " " + "b" * 39),
        ("a" * 40 + " " + "b" * 38 + " c", "a" * 40 + " " + "b" * 38 + "…"),
        ("a" * 40 + " " + "b" * 39 + " c", "a" * 40 + "…"),
        ("so " + "a" * 200, "so…"),
        ("婚" * 100, "婚" * 79 + "…"),
        ("", "…"),
        ("\u200b\u2060\u3164 \u2800\ufe0f\0", "…"),
        ("<b>Ignore</b> & 'quote'", "<b>Ignore</b> & 'quote'"),
    ],
)
def test_a_title_is_one_line_of_whole_words(said: str, title: str) -> None:
    assert title_of(said) == title


async def test_any_title_can_be_kept(talk: Talk, ann: Principal) -> None:
    every = "".join(map(chr, [*range(0x300), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10010)]))
    async with talk.database.scoped(ann.scope()) as session:
        for start in range(0, len(every), 60):
            title = title_of(every[start : start + 60])
            assert title and len(title) <= 80 and "\n" not in title
            await threads.add_thread(session, ann.user, title, {})  # type: ignore[arg-type]


async def test_a_thread_is_renamed(talk: Talk, ann: Principal) -> None:
    begun, _ = await talk.say(ann)
    renamed = await talk.threads.change(ann, begun.id, title="  Rings\n and \t👩‍👧  ")
    assert renamed.title == "Rings and 👩‍👧" and renamed.updated_at > begun.updated_at
    assert renamed == await talk.thread(ann, begun.id)
    for refused in ("", " \n", "a\0b", "\ud800", "a\x1bb", "\u200b", "\u2060\ufe0f"):
        with pytest.raises(InvalidInput, match=r"^title: "):
            await talk.threads.change(ann, begun.id, title=refused)
    assert (await talk.thread(ann, begun.id)).title == "Rings and 👩‍👧"


# -- lists


async def test_pages_neither_skip_nor_repeat_and_what_is_bumped_in_between_moves_to_the_front(
    talk: Talk, ann: Principal
) -> None:
    made = [(await talk.say(ann, str(number)))[0].id for number in range(9)]
    newest = made[::-1]
    first = await talk.page(ann, limit=3)
    assert [thread.id for thread in first.threads] == newest[:3]
    await talk.say(ann, "again", newest[1])  # seen already
    await talk.say(ann, "again", newest[5])  # not yet seen
    added = (await talk.say(ann, "new"))[0].id
    second = await talk.page(ann, limit=3, after=first.next_cursor)
    await talk.threads.delete(ann, newest[6])  # the one that the next cursor stands on
    third = await talk.page(ann, limit=3, after=second.next_cursor)
    rest = [thread.id for page in (second, third) for thread in page.threads]
    assert rest == [newest[3], newest[4], newest[6], newest[7], newest[8]]
    assert third.next_cursor is None
    front = await talk.page(ann, limit=3)
    assert [thread.id for thread in front.threads] == [added, newest[5], newest[1]]


async def test_threads_of_the_same_moment_are_paged_by_id(talk: Talk, ann: Principal) -> None:
    made = {(await talk.say(ann))[0].id for _ in range(5)}
    moment = datetime(2026, 2, 3, 4, 5, 6, 789_123, UTC)
    async with talk.database.scoped(ann.scope()) as session:
        await session.execute(update(threads_table).values(last_message_at=moment))
    seen: list[UUID] = []
    after: str | None = None
    for _ in range(5):
        page = await talk.page(ann, limit=1, after=after)
        seen += [thread.id for thread in page.threads]
        after = page.next_cursor
    assert after is None and seen == sorted(made, reverse=True)


async def test_the_last_page_has_no_cursor_even_if_it_is_full(talk: Talk, ann: Principal) -> None:
    assert await talk.page(ann) == ThreadsResponse([], None)
    await talk.say(ann)
    await talk.say(ann)
    page = await talk.page(ann, limit=2)
    assert len(page.threads) == 2 and page.next_cursor is None
    assert (await talk.page(ann, limit=1)).next_cursor


@pytest.mark.parametrize(
    "cursor",
    [
        "", "x", "\0" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n", "a" * 31 + "=", "é" * 32, "+" * 32, "a" * 1_000_000,
        "2026-01-01T00:00:00Z,1", "' OR true --" + "a" * 20,
        urlsafe_b64encode((2**63 - 1).to_bytes(8, "big") + bytes(16)).decode(),
        urlsafe_b64encode((-(2**63)).to_bytes(8, "big", signed=True) + bytes(16)).decode(),
    ],
)  # fmt: skip
async def test_what_is_no_cursor(cursor: str, talk: Talk, ann: Principal) -> None:
    with pytest.raises(InvalidInput) as error:
        await talk.page(ann, after=cursor)
    assert str(error.value) == "cursor: must be a cursor from an earlier page"
    assert len(str(error.value.value)) <= 50


@pytest.mark.parametrize("year", [1, 9999])
async def test_a_cursor_that_somebody_made_shows_no_more_than_a_list_does(
    year: int, talk: Talk, ann: Principal, bob: Principal
) -> None:
    await talk.say(ann)
    hers = (await talk.page(ann)).threads
    cursor = pages.cursor(datetime(year, 12, 31, tzinfo=UTC), UUID(int=2**128 - 1))
    assert (await talk.page(ann, after=cursor)).threads == (hers if year == 9999 else [])
    assert (await talk.page(bob, after=cursor)).threads == []


async def test_somebody_without_a_user_has_no_threads(talk: Talk, ann: Principal) -> None:
    nobody = Principal("nobody-we-know")
    begun, _ = await talk.say(ann)
    assert await talk.page(nobody) == ThreadsResponse([], None)
    with pytest.raises(NotFound):
        await talk.read(nobody, begun.id)
    for others in ({"everybody": True}, {"user": ann.user}):
        with pytest.raises(Forbidden):
            await talk.page(nobody, **others)


async def test_a_list_is_read_from_its_index(talk: Talk, ann: Principal, bob: Principal) -> None:
    for who in (ann, bob):
        for _ in range(3):
            await talk.say(who)
    cursor = (await talk.page(ann, limit=1)).next_cursor
    asked: list[tuple[str, tuple[Any, ...]]] = []
    engine = talk.database._engine.sync_engine

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if "FROM rag_threads" in statement:
            asked.append((statement, tuple(parameters)))

    event.listen(engine, "before_cursor_execute", note)
    try:
        await talk.page(ann, limit=1, after=cursor)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    [(statement, parameters)] = asked
    async with talk.database.scoped(ann.scope()) as session:
        await session.execute(text("SET LOCAL enable_seqscan = off"))
        await session.execute(text("SET LOCAL enable_sort = off"))
        plan = "\n".join((await session.exec_driver_sql(f"EXPLAIN {statement}", parameters)).scalars())
    assert "Index Scan using rag_threads_user_id_idx" in plan and "Sort" not in plan, plan
    [condition] = [line for line in plan.splitlines() if "Index Cond" in line]
    assert "user_id" in condition and "ROW(last_message_at, id) <" in condition, plan


# -- reading


async def test_messages_are_read_from_the_newest_back(talk: Talk, ann: Principal) -> None:
    begun, first = await talk.say(ann, "0")
    ids = [first] + [(await talk.say(ann, str(number), begun.id))[1] for number in range(1, 7)]

    async def page(before: UUID | None, limit: int = 3) -> tuple[list[str], bool]:
        page = await talk.threads.read(ann, begun.id, limit=limit, before=before)
        return [message.content for message in page.messages], page.has_more

    assert await page(None) == (["4", "5", "6"], True)
    assert await page(ids[4]) == (["1", "2", "3"], True)
    assert await page(ids[1]) == (["0"], False)
    assert await page(ids[0]) == ([], False)
    assert await page(None, 7) == (["0", "1", "2", "3", "4", "5", "6"], False)

    await talk.threads.delete_message(ann, begun.id, ids[4])
    await talk.threads.delete_message(ann, begun.id, ids[2])
    assert await page(None) == (["3", "5", "6"], True)
    assert await page(ids[4]) == (["0", "1", "3"], False), "a page goes on after a message that was deleted meanwhile"

    other, elsewhere = await talk.say(ann, "elsewhere")
    for nonsense in (uuid4(), elsewhere):
        with pytest.raises(InvalidInput, match="before: must be a message of this thread"):
            await page(nonsense)
    with pytest.raises(NotFound):
        await talk.read(ann, uuid4(), before=elsewhere)
    assert (await talk.thread(ann, other.id)).message_count == 1


async def test_a_deleted_message_is_not_shown_nor_counted_nor_history(talk: Talk, ann: Principal) -> None:
    begun, first = await talk.say(ann, "Secret")
    answered = await talk.answer(ann, begun.id, "Rings.")
    _, last = await talk.say(ann, "And?", begun.id)
    moment = (await talk.thread(ann, begun.id)).last_message_at
    await talk.threads.delete_message(ann, begun.id, first)

    thread = await talk.threads.read(ann, begun.id, limit=9, before=None)
    messages = thread.messages
    assert [message.id for message in messages] == [answered, last]
    assert (thread.message_count, thread.last_message_at) == (2, moment)
    assert [message.id for message in await talk.threads.history(ann.scope(), begun.id, last)] == [answered]
    other, _ = await talk.say(ann)
    for thread_id, message in ((begun.id, first), (begun.id, uuid4()), (other.id, last)):
        with pytest.raises(NotFound, match="no message named"):
            await talk.threads.delete_message(ann, thread_id, message)
    assert [(await talk.thread(ann, found)).message_count for found in (begun.id, other.id)] == [2, 1]


async def test_a_message_deleted_twice_at_once_is_counted_once(talk: Talk, ann: Principal) -> None:
    begun, first = await talk.say(ann)
    await talk.say(ann, "And?", begun.id)
    ends = await asyncio.gather(
        *(talk.threads.delete_message(ann, begun.id, first) for _ in range(4)), return_exceptions=True
    )
    assert [end is None for end in ends].count(True) == 1
    assert all(end is None or isinstance(end, NotFound) for end in ends)
    assert (await talk.thread(ann, begun.id)).message_count == 1


async def test_a_deleted_thread_takes_its_messages_along(talk: Talk, ann: Principal) -> None:
    begun, first = await talk.say(ann)
    await talk.answer(ann, begun.id)
    kept, _ = await talk.say(ann, "Stays")
    await talk.threads.delete(ann, begun.id)
    with pytest.raises(NotFound):
        await talk.read(ann, begun.id)
    with pytest.raises(NotFound):
        await talk.threads.delete(ann, begun.id)
    with pytest.raises(NotFound):
        await talk.say(ann, "And?", begun.id)
    assert [thread.id for thread in (await talk.page(ann)).threads] == [kept.id]
    async with talk.database.scoped(ann.scope()) as session:
        # a thread of the same id would show what was left; so would the id of a message that is still taken
        await session.execute(insert(threads_table).values(id=begun.id, user_id=ann.user))
        assert await session.scalar(select(func.count()).where(messages_table.c.thread_id == begun.id)) == 0
        await threads.add_user_message(session, ann.user, begun.id, first, "Same id", None, None)


async def test_history_is_what_was_said_before_a_message(talk: Talk, ann: Principal) -> None:
    begun, first = await talk.say(ann, "0")
    for number in range(1, 13):
        await talk.say(ann, str(number), begun.id) if number % 2 == 0 else await talk.answer(ann, begun.id, str(number))
    _, last = await talk.say(ann, "last", begun.id)
    await talk.answer(ann, begun.id, "later")

    async def history(before: UUID, limit: int = 10) -> list[str]:
        return [message.content for message in await talk.threads.history(ann.scope(), begun.id, before, limit)]

    assert await history(last) == [str(number) for number in range(3, 13)]
    assert await history(last, 2) == ["11", "12"]
    assert await history(first) == await history(uuid4()) == []
    other, elsewhere = await talk.say(ann, "elsewhere")
    assert await history(elsewhere) == []
    assert await talk.threads.history(ann.scope(), other.id, last) == []


async def test_what_was_interrupted_before_it_said_anything_is_no_history(talk: Talk, ann: Principal) -> None:
    begun, _ = await talk.say(ann, "0")
    cited = ThreadSource(uuid4(), "keyword", "rings", 0.9, 1, "Rings sell.", True)
    await talk.answer(ann, begun.id, "Half a sen", flags=Flags(interrupted=True), sources=(cited,))
    await talk.answer(ann, begun.id, "", flags=Flags(interrupted=True))
    await talk.answer(ann, begun.id, " \n", flags=Flags(interrupted=True))
    _, last = await talk.say(ann, "1", begun.id)
    history = await talk.threads.history(ann.scope(), begun.id, last, 2)
    assert [message.content for message in history] == ["0", "Half a sen"], "an empty one takes nobody's place"
    assert history[1].role is Role.ASSISTANT
    shown = await talk.read(ann, begun.id)
    assert shown[1].flags and shown[1].flags.interrupted
    assert len(shown) == 5, "they are shown"


async def test_sources_are_shown_as_far_as_the_reader_may_see_them_now(
    talk: Talk, database: Database, organization: NewOrganization
) -> None:
    org, left, foreign = await organization(), await organization(), await organization()
    ann, bob = await somebody(database, org), await somebody(database, org)
    assert ann.user
    ids = {
        "team": await source(database, org.id),
        "own": await source(database, org.id, owner=ann.user),
        "global": await source(database, PUBLIC_ORGANIZATION),
        "deleted": await source(database, org.id),
        "left": await source(database, left.id),
        "foreign": await source(database, foreign.id),
        "bob's": await source(database, org.id, owner=bob.user),
        "never was": uuid4(),
    }
    cited = tuple(
        ThreadSource(found, "keyword", label, 0.5, number, f"quote of {label}", True)
        for number, (label, found) in enumerate(ids.items(), 1)
    )
    ann = replace(ann, organizations=frozenset({org.id, left.id}))
    begun, _ = await talk.say(ann)
    await talk.answer(ann, begun.id, sources=cited)
    await talk.answer(ann, begun.id, sources=(structs.replace(cited[0], cited=None, quote=None),))

    async def shown(who: Principal) -> tuple[list[ThreadSource], set[str]]:
        messages = await talk.read(who, begun.id)
        assert messages[2].sources == [
            structs.replace(cited[0], cited=None, quote=None, available=org.id in who.organizations)
        ]
        return messages[1].sources, {kept.label for kept in messages[1].sources if kept.available}

    assert (await shown(ann))[1] == {"team", "own", "global", "deleted", "left"}
    async with database.scoped(ann.scope(), operator=True) as session:
        await session.execute(
            update(sources_table).where(sources_table.c.id == ids["deleted"]).values(deleted_at=datetime.now(UTC))
        )
    ann = replace(ann, organizations=frozenset({org.id}))  # a member of the other no more
    sources, available = await shown(ann)
    assert available == {"team", "own", "global"}
    assert sources == [
        kept if kept.label in available else structs.replace(kept, quote=None, available=False) for kept in cited
    ]
    admin = await somebody(database, role="admin")
    assert (await shown(admin))[1] == {"global"}, "an administrator reads threads, not sources of other organizations"


async def test_a_page_asks_for_all_its_sources_at_once_and_on_one_connection(
    database_urls: tuple[str, str], ann: Principal
) -> None:
    alone = Database(database_urls[1], pool_size=1)
    talk = Talk(alone, ThreadStore(alone, SourceLedger(alone)))
    begun, _ = await talk.say(ann)
    for _ in range(4):
        await talk.answer(
            ann, begun.id, sources=(ThreadSource(uuid4(), "keyword", "rings", 0.9, None, None, True),) * 3
        )
    asked: list[str] = []
    event.listen(alone._engine.sync_engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    messages = await talk.read(ann, begun.id)
    assert sum(len(message.sources) for message in messages) == 12
    assert len([statement for statement in asked if "FROM sources" in statement]) == 1
    await alone.close()


# -- administrators


async def audited(database: Database, admin: Principal) -> list[tuple[str, str, dict[str, Any]]]:
    async with database.scoped(admin.scope(), administrator=True) as session:
        rows = await session.execute(
            select(audit_events_table)
            .where(audit_events_table.c.actor_id == admin.user)
            .order_by(audit_events_table.c.id)
        )
        return [(row.action, row.subject, row.details) for row in rows]


async def test_an_administrator_reads_the_threads_of_others_and_it_is_written_down(
    talk: Talk, ann: Principal, bob: Principal, admin: Principal
) -> None:
    hers, first = await talk.say(ann, "Hers")
    his, _ = await talk.say(bob, "His")
    own, _ = await talk.say(admin, "Own")
    assert [thread.id for thread in (await talk.page(admin)).threads] == [own.id]
    assert [thread.id for thread in (await talk.page(admin, user=admin.user)).threads] == [own.id]
    assert [message.content for message in await talk.read(admin, own.id)] == ["Own"]
    assert await audited(talk.database, admin) == [], "nobody is watched reading what is theirs"

    assert [thread.id for thread in (await talk.page(admin, user=ann.user)).threads] == [hers.id]
    everybodys, after, pages = [], None, 0
    while pages == 0 or after:
        page = await talk.page(admin, everybody=True, limit=50, after=after)
        everybodys += [thread.id for thread in page.threads if thread.id in {own.id, his.id, hers.id}]
        after, pages = page.next_cursor, pages + 1
    assert everybodys == [own.id, his.id, hers.id]
    assert [message.content for message in await talk.read(admin, hers.id)] == ["Hers"]
    nobody = uuid4()
    assert await talk.page(admin, user=nobody) == ThreadsResponse([], None)
    assert await audited(talk.database, admin) == [
        ("threads.list", str(ann.user), {}),
        *[("threads.list", "everybody", {})] * pages,
        ("threads.read", str(hers.id), {"user": str(ann.user)}),
        ("threads.list", str(nobody), {}),
    ]
    with pytest.raises(InvalidInput, match="user: cannot be combined with `everybody`"):
        await talk.page(admin, everybody=True, user=ann.user)
    assert await talk.threads.history(admin.scope(), hers.id, first) == []


async def test_what_an_administrator_reads_cannot_be_read_without_being_written_down(
    talk: Talk, ann: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    engine = talk.database._engine.sync_engine

    def fail(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if "INSERT INTO audit_events" in statement:
            raise ZeroDivisionError

    event.listen(engine, "before_cursor_execute", fail)
    for attempt in (talk.page(admin, user=ann.user), talk.page(admin, everybody=True), talk.read(admin, hers.id)):
        with pytest.raises(ZeroDivisionError):
            await attempt
    assert (await talk.page(admin)).threads == []
    event.remove(engine, "before_cursor_execute", fail)

    def fail_to_commit(connection: Any) -> None:
        raise ZeroDivisionError

    event.listen(engine, "commit", fail_to_commit)
    for attempt in (talk.page(admin, user=ann.user), talk.read(admin, hers.id)):
        with pytest.raises(ZeroDivisionError):
            await attempt
    event.remove(engine, "commit", fail_to_commit)
    assert await audited(talk.database, admin) == []


async def test_others_may_not_ask_and_one_who_is_no_administrator_any_more_may_not_either(
    talk: Talk, ann: Principal, bob: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    for user in (ann.user, bob.user, uuid4()):
        with pytest.raises(Forbidden, match="Only an administrator may read"):
            await talk.page(bob, user=user)
    with pytest.raises(Forbidden, match="Only an administrator may read"):
        await talk.page(bob, everybody=True)
    assert await talk.read(admin, hers.id)
    async with talk.database.session() as session:
        await session.execute(update(users_table).where(users_table.c.id == admin.user).values(role="user"))
    with pytest.raises(Forbidden):
        await talk.page(admin, everybody=True)
    with pytest.raises(NotFound):
        await talk.read(admin, hers.id)


async def test_a_role_is_not_taken_away_in_the_middle_of_what_it_allows(database: Database, admin: Principal) -> None:
    async def take_away() -> None:
        async with database.session() as session:
            await session.execute(update(users_table).where(users_table.c.id == admin.user).values(role="user"))

    act = Act("test", "nobody")
    async with administrator_session(database, admin, act) as session:
        taking = asyncio.create_task(take_away())
        await until_blocked(database)
        assert not taking.done()
        assert await session.scalar(select(func.rag_administrator()))
    await asyncio.wait_for(taking, PATIENCE)
    with pytest.raises(Forbidden):
        async with administrator_session(database, admin, act):
            pass


async def test_a_key_reads_nobody_elses_threads_whatever_role_its_user_has(
    talk: Talk, database: Database, ann: Principal, organization: NewOrganization
) -> None:
    hers, _ = await talk.say(ann)
    keys = Keys(database)
    _, key = await keys.create(await organization(), "of a program", None)
    program = await keys.principal(key)
    async with database.session() as session:
        await session.execute(update(users_table).where(users_table.c.id == program.user).values(role="admin"))
    for wanted in ({"everybody": True}, {"user": ann.user}):
        with pytest.raises(Forbidden):
            await talk.page(program, **wanted)
    with pytest.raises(NotFound):
        await talk.read(program, hers.id)
    own, _ = await talk.say(program)
    assert [thread.id for thread in (await talk.page(program)).threads] == [own.id]
    assert await talk.read(program, own.id)


# -- row-level security, as the application's role without the queries above


async def count(database: Database, who: Principal, table: str, *, administrator: bool = False) -> int:
    async with database.scoped(who.scope(), administrator=administrator) as session:
        return int((await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one())


async def affected(database: Database, who: Principal, statement: str, *, administrator: bool = False) -> int:
    async with database.scoped(who.scope(), administrator=administrator) as session:
        counted = text(f"WITH changed AS ({statement} RETURNING 1) SELECT count(*) FROM changed")
        return int((await session.execute(counted)).scalar_one())


CHANGES = [
    "UPDATE rag_threads SET title = 'mine'",
    "DELETE FROM rag_threads",
    "UPDATE rag_messages SET content = 'mine'",
    "DELETE FROM rag_messages",
]


async def test_nobody_sees_or_changes_what_is_not_theirs(
    talk: Talk, database: Database, ann: Principal, bob: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    nobody = Principal("nobody-we-know")
    for who, administrator in ((bob, False), (bob, True), (nobody, False), (nobody, True), (admin, False)):
        for table in ("rag_threads", "rag_messages"):
            assert await count(database, who, table, administrator=administrator) == 0
        for change in CHANGES:
            assert await affected(database, who, change, administrator=administrator) == 0
    async with database.session() as session:  # no settings at all
        for table in ("rag_threads", "rag_messages", "audit_events"):
            assert (await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() == 0
        for change in CHANGES:
            await session.execute(text(change))
    for administrator in (False, True):
        assert await count(database, ann, "rag_messages", administrator=administrator) == 1
    assert [kept.content for kept in await talk.read(ann, hers.id)] == ["What sells?"]
    assert (await talk.thread(ann, hers.id)).title == "What sells?"


async def test_nobody_puts_anything_into_the_threads_of_others(
    talk: Talk, database: Database, ann: Principal, bob: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    his, _ = await talk.say(bob)
    own, _ = await talk.say(admin)
    for who, theirs in ((bob, his), (admin, own)):
        for refused in (
            f"INSERT INTO rag_threads (user_id) VALUES ('{ann.user}')",
            f"INSERT INTO rag_messages (thread_id, role, content) VALUES ('{hers.id}', 'user', 'x')",
            f"INSERT INTO rag_messages (thread_id, role, content) VALUES ('{uuid4()}', 'user', 'x')",
            f"UPDATE rag_threads SET user_id = '{ann.user}' WHERE id = '{theirs.id}'",
            f"UPDATE rag_messages SET thread_id = '{hers.id}' WHERE thread_id = '{theirs.id}'",
            f"INSERT INTO rag_threads (id, user_id, title) VALUES ('{hers.id}', '{who.user}', 'mine')"
            " ON CONFLICT (id) DO UPDATE SET title = 'mine'",
        ):
            for administrator in (False, True):
                with pytest.raises(DBAPIError, match="violates row-level security policy"):
                    await affected(database, who, refused, administrator=administrator)
    assert (await talk.thread(ann, hers.id)).message_count == len(await talk.read(ann, hers.id)) == 1


async def test_an_administrators_session_reads_all_and_changes_nothing(
    talk: Talk, database: Database, ann: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    where = f" WHERE id = '{hers.id}'", f" WHERE thread_id = '{hers.id}'"
    for table, condition in zip(("rag_threads", "rag_messages"), where, strict=True):
        assert await count(database, admin, table + condition, administrator=True) == 1
        assert await count(database, admin, table + condition) == 0
        for change in (change for change in CHANGES if table in change):
            assert await affected(database, admin, change + condition, administrator=True) == 0
        async with database.scoped(admin.scope(), administrator=True) as session:
            held = (await session.execute(text(f"SELECT id FROM {table}{condition} FOR UPDATE"))).all()
        assert held == [], "what cannot be changed cannot be held, either"


async def test_what_was_written_down_is_changed_by_nobody_and_read_by_administrators(
    talk: Talk, database: Database, ann: Principal, admin: Principal
) -> None:
    hers, _ = await talk.say(ann)
    await talk.read(admin, hers.id)
    of_admin = f"audit_events WHERE actor_id = '{admin.user}'"
    for who, administrator in ((ann, True), (ann, False), (admin, False)):
        assert await count(database, who, "audit_events", administrator=administrator) == 0
    assert await count(database, admin, of_admin, administrator=True) == 1
    for who in (ann, admin):
        for administrator in (False, True):
            for change in (
                "UPDATE audit_events SET subject = 'nothing'",
                f"UPDATE audit_events SET actor_id = '{ann.user}'",
                "DELETE FROM audit_events",
            ):
                assert await affected(database, who, change, administrator=administrator) == 0
            other = ann if who is admin else admin
            forged = f"INSERT INTO audit_events (actor_id, action, subject) VALUES ('{other.user}', 'a', 's')"
            with pytest.raises(DBAPIError, match="violates row-level security policy"):
                await affected(database, who, forged, administrator=administrator)
    with pytest.raises(DBAPIError, match="permission denied"):
        async with database.session() as session:
            await session.execute(text("TRUNCATE audit_events"))
    assert await audited(database, admin) == [("threads.read", str(hers.id), {"user": str(ann.user)})]


@pytest.fixture(scope="module")
def server(new_database: NewPostgres) -> PrivatePostgres:
    """A database of its own."""
    return new_database()


async def test_the_queries_hold_by_themselves_where_row_level_security_does_not(server: PrivatePostgres) -> None:
    password = (server.folder / "cluster" / "passwords").read_text().split()[0]
    database = Database(f"postgresql://postgres:{password}@{server.app_url.partition('@')[2]}")
    talk = Talk(database, ThreadStore(database, SourceLedger(database)))
    ann, bob = await somebody(database), await somebody(database)
    hers, message = await talk.say(ann)
    before = await talk.thread(ann, hers.id)
    assert await count(database, bob, "rag_messages") == 1, "nothing but the queries keeps it from him"
    for attempt in (
        talk.say(bob, "Mine?", hers.id),
        talk.read(bob, hers.id),
        talk.threads.change(bob, hers.id, title="Mine"),
        talk.threads.change(bob, hers.id, archived=True),
        talk.threads.delete(bob, hers.id),
        talk.threads.delete_message(bob, hers.id, message),
    ):
        with pytest.raises(NotFound, match="no thread named"):
            await attempt
    assert await talk.answer(bob, hers.id) is None
    await talk.settle_on(bob, hers.id, message, "general_chat", {"global": "his"})
    _, later = await talk.say(ann, "And?", hers.id)
    assert await talk.threads.history(bob.scope(), hers.id, later) == []
    assert await talk.page(bob) == ThreadsResponse([], None)
    now = await talk.thread(ann, hers.id)
    assert (now.title, now.metadata, now.message_count) == (before.title, before.metadata, 2)
    assert [kept.capability for kept in await talk.read(ann, hers.id)] == [None, None]
    await database.close()


# -- migration


async def test_0006_goes_down_and_up_with_conversations_in_it(server: PrivatePostgres) -> None:
    database = Database(server.app_url)
    talk = Talk(database, ThreadStore(database, SourceLedger(database)))
    ann, admin = await somebody(database), await somebody(database, role="admin")
    begun, _ = await talk.say(ann)
    await talk.answer(ann, begun.id)
    await talk.read(admin, begun.id)
    await database.close()

    await asyncio.to_thread(migrating.downgrade, server.owner_url, MIGRATIONS, "0005")
    before = Database(server.app_url)
    async with before.session() as session:
        left = set(await session.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")))
        assert not left & {"rag_threads", "rag_messages", "audit_events", "plan_entitlements"}
        stay = text("SELECT count(*) FROM users WHERE id IN (:ann, :admin)")
        assert await session.scalar(stay, {"ann": ann.user, "admin": admin.user}) == 2, "who there is stays"
    await before.close()

    migrate.upgrade(server.owner_url, server.app_url, MIGRATIONS)
    again = Database(server.app_url)
    talk = Talk(again, ThreadStore(again, SourceLedger(again)))
    assert await talk.page(ann) == ThreadsResponse([], None)
    await talk.say(ann)
    assert len((await talk.page(ann)).threads) == 1
    with pytest.raises(Forbidden):
        await talk.page(admin, everybody=True)  # roles went with their column
    await again.close()
