"""Feedback in the database: whose it is, what it judges, and what becomes of both."""

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from sqlalchemy import func, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from rag_app.access.people import Organization
from rag_app.database.session import Database
from rag_app.documents.generations import GenerationRegistry
from rag_app.documents.ledger import SourceLedger
from rag_app.documents.tables import sources_table
from rag_app.domain.errors import InvalidInput, NotFound
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Principal
from rag_app.evaluation.records import Validations
from rag_app.evaluation.tables import judgments_table
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger
from rag_app.surfaces.lexybrain.tables import feedback_table, messages_table
from rag_app.surfaces.lexybrain.threads import ThreadStore
from rag_app.surfaces.lexybrain.types import KeptMessageFeedback, MessageFeedback, Rating
from tests.conftest import NewOrganization, NewPostgres
from tests.integration.stopping import until_blocked
from tests.integration.test_db_threads import Talk, affected, audited, count, somebody, source, talk

__all__ = ["talk"]

ASKED = "What sells best?"


@dataclass(frozen=True)
class Desk:
    """An organization with two members and an administrator who is none; ann has asked and was answered."""

    talk: Talk
    feedback: FeedbackLedger
    org: Organization
    ann: Principal
    bob: Principal
    admin: Principal
    thread: UUID
    question: UUID
    answer: UUID

    async def ask(self, who: Principal, question: str = ASKED, **generation: Any) -> tuple[UUID, UUID, UUID]:
        """A thread of its own: its id, the question's, the answer's."""
        begun, asked = await self.talk.say(who, question)
        made = await self.talk.answer(who, begun.id, generation=generation)
        assert made
        return begun.id, asked, made

    async def give(
        self, rating: Rating = "positive", comment: str | None = None, expected: object = None,
        who: Principal | None = None, message: UUID | None = None,
    ) -> KeptMessageFeedback:  # fmt: skip
        name = None if expected is None else str(expected)
        return await self.feedback.give(who or self.ann, message or self.answer, rating, comment, name)

    async def shown(self, who: Principal | None = None) -> list[MessageFeedback | None]:
        return [message.feedback for message in await self.talk.read(who or self.ann, self.thread)]

    async def judged(self, query: str = ASKED, org: UUID | None = None) -> list[Any]:
        """As a program with a key of the organization sees it."""
        key = Principal("key", None, frozenset({org or self.org.id}))
        found, _ = await Validations(self.talk.database).judgments(key, "marketplace", query, set())
        return sorted(found, key=str)

    async def left(self, who: Principal | None = None) -> int:
        return await count(self.talk.database, who or self.ann, "rag_feedback")


@pytest.fixture
async def desk(database: Database, talk: Talk, organization: NewOrganization) -> Desk:
    org = await organization()
    ann, bob, admin = [await somebody(database, org) for _ in range(2)] + [await somebody(database, role="admin")]
    made = Desk(talk, ledger(database), org, ann, bob, admin, *[uuid4()] * 3)
    thread, question, answer = await made.ask(ann)
    return replace(made, thread=thread, question=question, answer=answer)


def ledger(database: Database) -> FeedbackLedger:
    return FeedbackLedger(database, SourceLedger(database), "marketplace")


# -- giving


async def test_only_answers_of_ones_own_threads_are_rated(desk: Desk) -> None:
    await desk.give("neutral")
    nobody = Principal("nobody-we-know")
    for who, message in (
        (desk.bob, desk.answer), (desk.admin, desk.answer), (nobody, desk.answer), (desk.ann, uuid4()),
        (desk.ann, desk.thread), (desk.bob, desk.question),
    ):  # fmt: skip
        with pytest.raises(NotFound, match="no message named"):
            await desk.give(who=who, message=message)
        with pytest.raises(NotFound, match="no message named"):
            await desk.feedback.withdraw(who, message)
    with pytest.raises(InvalidInput, match="message_id: is one of your own messages"):
        await desk.give(message=desk.question)
    with pytest.raises(InvalidInput, match="message_id: is one of your own messages"):
        await desk.feedback.withdraw(desk.ann, desk.question)
    assert await desk.shown() == [None, MessageFeedback("neutral", None, None)]
    assert [await desk.left(who) for who in (desk.bob, desk.admin)] == [0, 0]


async def test_an_administrator_rates_answers_of_their_own_and_reads_what_others_think(desk: Desk) -> None:
    _, _, own = await desk.ask(desk.admin)
    await desk.give("positive", who=desk.admin, message=own)
    await desk.give("negative", "Bad")
    assert await desk.shown(desk.admin) == [None, MessageFeedback("negative", "Bad", None)]
    seen = await audited(desk.talk.database, desk.admin)
    assert seen == [("threads.read", str(desk.thread), {"user": str(desk.ann.user)})]


@pytest.mark.parametrize("comment", ["a\0b", "\ud800", "fine\udfff"])
async def test_what_postgresql_cannot_keep_is_refused(comment: str, desk: Desk) -> None:
    await desk.give("neutral")
    with pytest.raises(InvalidInput, match="comment: must not contain NUL"):
        await desk.give("negative", comment)
    with pytest.raises(InvalidInput, match="expectedSourceId: must be a source that you may see"):
        await desk.give("negative", None, comment)
    assert await desk.shown() == [None, MessageFeedback("neutral", None, None)], "what was there stays"


async def test_thirty_at_once_leave_one(desk: Desk) -> None:
    ids = [await source(desk.talk.database, desk.org.id) for _ in range(4)]
    given = await asyncio.gather(*(desk.give("negative", str(n), ids[n % 4]) for n in range(30)))
    assert len(given) == 30 and len({each.created_at for each in given}) == 1
    [kept] = [each for each in await desk.shown() if each]
    assert kept.comment and kept.expected_source_id == ids[int(kept.comment) % 4]
    assert await desk.left() == 1
    assert await desk.judged() == [(kept.expected_source_id, None)], "and what it judges is what is kept"


async def test_given_and_withdrawn_at_once_nothing_is_half_there(desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    ways = [
        desk.feedback.withdraw(desk.ann, desk.answer) if n % 2 else desk.give("negative", None, expected)
        for n in range(40)
    ]
    ends = await asyncio.gather(*ways, return_exceptions=True)
    assert all(isinstance(end, NotFound | KeptMessageFeedback) or end is None for end in ends)
    assert await desk.left() == len(await desk.judged()) <= 1


# -- messages that go


async def test_a_deleted_message_takes_its_feedback_along_and_gets_none_any_more(desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    await desk.give("negative", None, expected)
    await desk.talk.threads.delete_message(desk.ann, desk.thread, desk.question)
    assert await desk.shown() == [MessageFeedback("negative", None, expected)], "it is about the answer"
    await desk.talk.threads.delete_message(desk.ann, desk.thread, desk.answer)
    assert await desk.left() == 0 and await desk.judged() == []
    with pytest.raises(NotFound, match="no message named"):
        await desk.give()
    with pytest.raises(NotFound, match="no message named"):
        await desk.feedback.withdraw(desk.ann, desk.answer)


async def test_a_message_that_is_deleted_meanwhile_gets_none(desk: Desk) -> None:
    async with desk.talk.database.scoped(desk.ann.scope()) as session:
        await session.execute(
            update(messages_table).where(messages_table.c.id == desk.answer).values(deleted_at=datetime.now(UTC))
        )
        giving = asyncio.create_task(desk.give())
        await until_blocked(desk.talk.database)
        assert not giving.done(), "it waits for what becomes of the message"
    with pytest.raises(NotFound, match="no message named"):
        await giving
    assert await desk.left() == 0


async def test_messages_deleted_and_rated_at_once(desk: Desk) -> None:
    for delete in ("message", "thread"):
        thread, _, answer = await desk.ask(desk.ann)
        if delete == "message":
            going = desk.talk.threads.delete_message(desk.ann, thread, answer)
        else:
            going = desk.talk.threads.delete(desk.ann, thread)
        giving = (desk.give("negative", message=answer) for _ in range(6))
        ends = await asyncio.gather(*giving, going, return_exceptions=True)
        assert ends[-1] is None and all(isinstance(end, KeptMessageFeedback | NotFound) for end in ends[:-1])
    assert await desk.left() == 0


async def test_a_deleted_thread_and_an_erased_user_leave_nothing(desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    _, _, other = await desk.ask(desk.ann, "And what else?")
    for message in (desk.answer, other):
        await desk.give("negative", None, expected, message=message)
    assert [len(await desk.judged(query)) for query in (ASKED, "And what else?")] == [1, 1]
    await desk.talk.threads.delete(desk.ann, desk.thread)
    assert await desk.left() == 1 and await desk.judged() == []
    async with desk.talk.database.session() as session:
        await session.execute(text("DELETE FROM users WHERE id = :user"), {"user": desk.ann.user})
    assert await desk.left() == 0 and await desk.judged("And what else?") == []


# -- the source that was expected


async def test_a_source_is_named_by_id_or_as_its_organization_calls_it(desk: Desk) -> None:
    database = desk.talk.database
    assert desk.ann.user
    team, own = await source(database, desk.org.id), await source(database, desk.org.id, owner=desk.ann.user)
    public = await source(database, PUBLIC_ORGANIZATION)
    for made in (team, own, public):
        for name in (str(made), str(made).upper(), made.hex):  # made.hex is its external id
            assert (await desk.give("negative", None, name)).expected_source_id == made


async def test_a_source_that_ann_may_not_see_is_as_good_as_none(desk: Desk, organization: NewOrganization) -> None:
    database, foreign = desk.talk.database, await organization()
    assert desk.bob.user
    bobs, theirs = (
        await source(database, desk.org.id, owner=desk.bob.user),
        await source(database, foreign.id),
    )
    gone, book = await source(database, desk.org.id), await source(database, desk.org.id)
    async with database.scoped(desk.ann.scope(), operator=True) as session:
        await session.execute(update(sources_table).where(sources_table.c.id == gone).values(deleted_at=func.now()))
        await session.execute(update(sources_table).where(sources_table.c.id == book).values(index="book"))
    told = set()
    names = [
        uuid4(),
        bobs,
        theirs,
        gone,
        book,
        bobs.hex,
        theirs.hex,
        gone.hex,
        "nothing",
        "%",
        "*",
        "'; --",
        desk.org.id,
    ]
    for name in names:
        with pytest.raises(InvalidInput) as refused:
            await desk.give("negative", None, name)
        told.add(str(refused.value))
    assert told == {"expectedSourceId: must be a source that you may see"}
    assert await desk.left() == 0


async def test_a_name_that_several_sources_have_is_no_name(desk: Desk) -> None:
    database = desk.talk.database
    ours, public = await source(database, desk.org.id), await source(database, PUBLIC_ORGANIZATION)
    for made, org in ((ours, desk.org.id), (public, PUBLIC_ORGANIZATION)):
        async with database.scoped(Principal("", None, frozenset({org})).scope(), operator=True) as session:
            named = update(sources_table).where(sources_table.c.id == made).values(external_id=f"twice-{ours}")
            await session.execute(named)
    with pytest.raises(InvalidInput, match="matches several sources; send an id instead"):
        await desk.give("negative", None, f"twice-{ours}")
    assert (await desk.give("negative", None, public)).expected_source_id == public


@pytest.mark.parametrize("rating", ["positive", "neutral"])
async def test_nothing_is_missed_where_the_answer_was_good(rating: Rating, desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    with pytest.raises(InvalidInput, match="expectedSourceId: can only be sent with the rating negative"):
        await desk.give(rating, None, expected)
    assert await desk.left() == 0


async def test_a_source_that_goes_leaves_the_feedback(desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    await desk.give("negative", "Where?", expected)
    async with desk.talk.database.scoped(desk.ann.scope(), operator=True) as session:
        await session.execute(text("DELETE FROM sources WHERE id = :id"), {"id": expected})
    assert await desk.shown() == [None, MessageFeedback("negative", "Where?", None)] and await desk.judged() == []


# -- judgments


async def test_what_was_expected_is_a_judgment_of_the_organization(desk: Desk, organization: NewOrganization) -> None:
    expected, other = await source(desk.talk.database, desk.org.id), await organization()
    await desk.give("negative", None, expected)
    assert await desk.judged() == await desk.judged("  what SELLS\nbest? ") == [(expected, None)]
    assert await desk.judged(org=other.id) == [] == await desk.judged("What sells?")
    await desk.give("negative", "No idea where")
    assert await desk.judged() == []
    await desk.give("negative", None, expected)
    await desk.give("positive")
    assert await desk.judged() == []
    await desk.give("negative", None, expected)
    await desk.feedback.withdraw(desk.ann, desk.answer)
    assert await desk.judged() == []


async def test_another_source_is_another_judgment(desk: Desk) -> None:
    first, second = [await source(desk.talk.database, desk.org.id) for _ in range(2)]
    await desk.give("negative", None, first)
    await desk.give("negative", None, second)
    assert await desk.judged() == [(second, None)]


async def test_a_private_source_is_judged_for_who_sees_it(desk: Desk) -> None:
    assert desk.ann.user
    own = await source(desk.talk.database, desk.org.id, owner=desk.ann.user)
    await desk.give("negative", None, own)
    assert await desk.judged() == [], "a key of the organization does not see the source"
    found, _ = await Validations(desk.talk.database).judgments(desk.ann, "marketplace", ASKED, set())
    assert found == [(own, None)]


@pytest.mark.parametrize("organizations", [0, 1, 2])
async def test_who_judges_a_public_source(organizations: int, desk: Desk, organization: NewOrganization) -> None:
    """The user's only organization; where it is not plain which one, nobody."""
    database, orgs = desk.talk.database, [(await organization()).id for _ in range(organizations)]
    public = await source(database, PUBLIC_ORGANIZATION)
    who = structs.replace(await somebody(database), organizations=frozenset({*orgs, PUBLIC_ORGANIZATION}))
    _, _, answer = await desk.ask(who)
    await desk.give("negative", None, public, who, answer)
    judged = [await desk.judged(org=org) for org in [*orgs, PUBLIC_ORGANIZATION]]
    assert judged == ([[(public, None)], []] if organizations == 1 else [[]] * (organizations + 1))
    [kept] = [each.feedback for each in await desk.talk.read(who, (await desk.talk.page(who)).threads[0].id)][1:]
    assert kept == MessageFeedback("negative", None, public), "it is feedback all the same"


async def test_a_member_of_several_judges_for_the_one_whose_source_it_is(
    desk: Desk, organization: NewOrganization
) -> None:
    other = await organization()
    expected = await source(desk.talk.database, other.id)
    both = structs.replace(desk.ann, organizations=frozenset({desk.org.id, other.id}))
    await desk.give("negative", None, expected, both)
    assert (await desk.judged(), await desk.judged(org=other.id)) == ([], [(expected, None)])
    # no member any more, ann takes it back nevertheless: it is hers
    await desk.give("negative", "Never mind")
    assert await desk.judged(org=other.id) == []


async def test_what_two_say_and_what_was_judged_by_hand_goes_each_by_itself(desk: Desk) -> None:
    database = desk.talk.database
    expected = await source(database, desk.org.id)
    _, _, bobs = await desk.ask(desk.bob, ASKED.upper())

    async def by_hand() -> None:
        generation = await GenerationRegistry(database).create("marketplace", "postgres", "m", 3, {})
        await Validations(database).record(
            desk.ann, uuid4(), "marketplace", generation.id, 10, {}, [(ASKED, expected, None)], ()
        )

    async def rows() -> int:
        async with database.scoped(desk.ann.scope()) as session:
            found = select(func.count()).select_from(judgments_table).where(judgments_table.c.source_id == expected)
            return int(await session.scalar(found) or 0)

    await desk.give("negative", None, expected)
    await desk.give("negative", None, expected, desk.bob, bobs)
    assert await rows() == 2 and {*await desk.judged()} == {(expected, None)}
    await desk.feedback.withdraw(desk.ann, desk.answer)
    assert await desk.judged() == [(expected, None)], "bob says so still"
    await by_hand()
    await desk.give("positive", None, None, desk.bob, bobs)
    assert await rows() == 1 and await desk.judged() == [(expected, None)], "judged by hand after that"
    await desk.give("negative", None, expected)
    await by_hand()
    assert await rows() == 2
    await desk.feedback.withdraw(desk.ann, desk.answer)
    assert await rows() == 1 and await desk.judged() == [(expected, None)], "and before"


async def test_the_query_is_what_was_searched(desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    _, _, answer = await desk.ask(desk.ann, "And it?", searched="Velvet ring box\nAnd it?")
    await desk.give("negative", None, expected, message=answer)
    assert await desk.judged("velvet ring box and it?") == [(expected, None)] and await desk.judged("And it?") == []


async def test_where_that_was_not_kept_it_is_the_message_before_the_answer(desk: Desk) -> None:
    expected = await source(desk.talk.database, desk.org.id)
    await desk.talk.say(desk.ann, "A second one?", desk.thread)
    second = await desk.talk.answer(desk.ann, desk.thread)
    await desk.talk.say(desk.ann, "A third one?", desk.thread)
    await desk.give("negative", None, expected, message=second)
    assert await desk.judged("A second one?") == [(expected, None)]
    assert await desk.judged() == await desk.judged("A third one?") == []
    begun, question = await desk.talk.say(desk.ann, "Nothing?")
    alone = await desk.talk.answer(desk.ann, begun.id)
    async with desk.talk.database.scoped(desk.ann.scope()) as session:
        await session.execute(text("DELETE FROM rag_messages WHERE id = :id"), {"id": question})
    assert (await desk.give("negative", None, expected, message=alone)).expected_source_id == expected
    assert await desk.judged("Nothing?") == []


async def test_what_was_recorded_is_listed_by_query(desk: Desk, organization: NewOrganization) -> None:
    database, other = desk.talk.database, await organization()
    team, own, public = (
        await source(database, desk.org.id),
        await source(database, desk.org.id, owner=desk.ann.user),
        await source(database, PUBLIC_ORGANIZATION),
    )
    for question, expected in (
        ("B?", team),
        (" b? ", public),
        ("A?", team),
        ("a?", team),
        ("C?", own),
        ("x " * 1001, team),
    ):
        _, _, answer = await desk.ask(desk.ann, question)
        await desk.give("negative", None, expected, message=answer)

    async def recorded(who: Principal, index: str = "marketplace") -> dict[str, dict[str, int]]:
        return await Validations(database).recorded_judgments(who, index)

    member = Principal("member", None, frozenset({desk.org.id}))
    seen = {"a?": {team.hex: 1}, "b?": {team.hex: 1, public.hex: 1}}
    assert await recorded(member) == seen
    assert await recorded(desk.ann) == {**seen, "c?": {own.hex: 1}}, "what is hers alone is judged for her alone"
    assert await recorded(Principal("other", None, frozenset({other.id}))) == await recorded(member, "book") == {}


async def test_the_longest_message_can_be_judged(desk: Desk) -> None:
    expected, long = await source(desk.talk.database, desk.org.id), "語" * 4000
    _, _, answer = await desk.ask(desk.ann, long)
    await desk.give("negative", None, expected, message=answer)
    assert await desk.judged(long) == [(expected, None)]


# -- row-level security, as the application's role without the queries above


async def test_two_of_one_organization_see_and_change_their_own_alone(desk: Desk) -> None:
    database = desk.talk.database
    _, _, bobs = await desk.ask(desk.bob)
    await desk.give("negative", "Ann's")
    await desk.give("positive", "Bob's", None, desk.bob, bobs)
    for who, own in ((desk.ann, "Ann's"), (desk.bob, "Bob's")):
        for administrator in (False, True):
            async with database.scoped(who.scope(), administrator=administrator) as session:
                assert (await session.scalars(text("SELECT feedback_text FROM rag_feedback"))).all() == [own]
    theirs = f"WHERE message_id = '{bobs}'"
    for change in (f"UPDATE rag_feedback SET rating = 'neutral' {theirs}", f"DELETE FROM rag_feedback {theirs}"):
        assert await affected(database, desk.ann, change) == 0
        assert await affected(database, desk.ann, change, administrator=True) == 0
    _, _, another = await desk.ask(desk.bob)
    for refused in (
        f"INSERT INTO rag_feedback (message_id, user_id, rating) VALUES ('{another}', '{desk.ann.user}', 'neutral')",
        f"INSERT INTO rag_feedback (message_id, user_id, rating) VALUES ('{another}', '{desk.bob.user}', 'neutral')",
        f"UPDATE rag_feedback SET user_id = '{desk.bob.user}' WHERE message_id = '{desk.answer}'",
        f"UPDATE rag_feedback SET message_id = '{another}' WHERE message_id = '{desk.answer}'",
    ):
        for administrator in (False, True):
            with pytest.raises(DBAPIError, match="violates row-level security policy"):
                await affected(database, desk.ann, refused, administrator=administrator)
    async with database.session() as session:  # no settings at all
        assert (await session.execute(text("SELECT count(*) FROM rag_feedback"))).scalar_one() == 0
    assert [await desk.left(who) for who in (desk.ann, desk.bob)] == [1, 1]


async def test_an_administrators_session_reads_feedback_and_writes_none(desk: Desk) -> None:
    database, where = desk.talk.database, f"WHERE message_id = '{desk.answer}'"
    await desk.give("negative", "Bad")
    assert await count(database, desk.admin, f"rag_feedback {where}", administrator=True) == 1
    assert await count(database, desk.admin, f"rag_feedback {where}") == 0
    for change in (f"UPDATE rag_feedback SET rating = 'positive' {where}", f"DELETE FROM rag_feedback {where}"):
        assert await affected(database, desk.admin, change, administrator=True) == 0
    _, _, unrated = await desk.ask(desk.ann)
    for user in (desk.admin.user, desk.ann.user):
        forged = f"INSERT INTO rag_feedback (message_id, user_id, rating) VALUES ('{unrated}', '{user}', 'positive')"
        with pytest.raises(DBAPIError, match="violates row-level security policy"):
            await affected(database, desk.admin, forged, administrator=True)
    assert await desk.shown() == [None, MessageFeedback("negative", "Bad", None)]


async def test_the_queries_hold_by_themselves_where_row_level_security_does_not(
    new_database: NewPostgres,
) -> None:
    server = new_database()
    password = (server.folder / "cluster" / "passwords").read_text().split()[0]
    database = Database(f"postgresql://postgres:{password}@{server.app_url.partition('@')[2]}")
    ann, bob, admin = await somebody(database), await somebody(database), await somebody(database, role="admin")
    talk, feedback = Talk(database, ThreadStore(database, SourceLedger(database))), ledger(database)
    begun, _ = await talk.say(ann)
    answer = await talk.answer(ann, begun.id)
    assert answer
    await feedback.give(ann, answer, "negative", "Hers", None)
    for who in (bob, admin):
        with pytest.raises(NotFound):
            await feedback.give(who, answer, "positive", None, None)
        with pytest.raises(NotFound):
            await feedback.withdraw(who, answer)
    other = await source(database, PUBLIC_ORGANIZATION)
    async with database.session() as session:  # a row of bob's, which no query of ours would have made
        values = {"message_id": answer, "user_id": bob.user, "rating": "positive", "expected_source_id": other}
        await session.execute(insert(feedback_table).values(values))
    assert [message.feedback for message in await talk.read(ann, begun.id)] == [
        None,
        MessageFeedback("negative", "Hers", None),
    ]
    await feedback.withdraw(ann, answer)
    assert await count(database, ann, "rag_feedback") == 1
    await database.close()
