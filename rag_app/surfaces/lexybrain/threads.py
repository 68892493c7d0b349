"""Conversations: threads of one user each, and their messages.

`keep_message` begins a turn, `keep_answer` or `give_up` ends it; the functions before them are their steps. `ThreadStore`
has what users do with stored conversations. Row-level security limits a session to its user's threads; each query names
that user again. A change of a thread or its messages first locks the thread's row, so concurrent changes are serialized
and none is lost.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any
from unicodedata import category
from uuid import UUID, uuid4, uuid5

from msgspec import Struct, convert, structs, to_builtins
from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.audit import EVERYBODY, Act, may_administer, write_down
from rag_app.database import pages
from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain import Forbidden, InvalidInput, NotFound, Principal, Scope, StoreFailed, require, storable
from rag_app.http.fields import T, as_wire
from rag_app.surfaces.lexybrain import quotas
from rag_app.surfaces.lexybrain.messages import is_visible, title_of
from rag_app.surfaces.lexybrain.quotas import Entitlements, lock_user
from rag_app.surfaces.lexybrain.tables import feedback_table, messages_table, threads_table
from rag_app.surfaces.lexybrain.types import (
    BegunTurn,
    CitedPassage,
    ClaimPassage,
    Flags,
    Outcome,
    PastMessage,
    RagModel,
    RagRequest,
    RagUsage,
    Role,
    SourcePlace,
    ThreadInfo,
    ThreadMessage,
    ThreadSource,
    ThreadsResponse,
    ThreadWithMessages,
)

# -- a turn


async def add_thread(session: AsyncConnection, user: UUID, title: str, metadata: Mapping[str, Any]) -> UUID:
    """A new thread without messages. `metadata` is JSON."""
    made = (
        insert(threads_table).values(user_id=user, title=title, metadata=dict(metadata)).returning(threads_table.c.id)
    )
    thread: UUID = (await session.scalars(made)).one()
    return thread


async def add_user_message(
    session: AsyncConnection,
    user: UUID | None,
    thread: UUID,
    message: UUID,
    text: str,
    capability: str | None,
    context: Mapping[str, Any] | None,
) -> Row[Any]:
    """Append a user's message to their thread, which is restored from the archive.

    Raises NotFound, also for another user's thread, and InvalidInput for a text that PostgreSQL cannot store.
    """
    if text != storable(text):
        raise InvalidInput("message", None, "must not contain NUL characters or unpaired surrogates")
    said = {"role": Role.USER.value, "content": text, "capability": capability, "context": context}
    return require(await _append(session, user, thread, message, said), NotFound("thread", str(thread)))


async def add_answer(
    session: AsyncConnection, user: UUID | None, thread: UUID, outcome: Outcome, *, training_eligible: bool = False
) -> bool:
    """Append the assistant's message to its thread. Returns False and writes nothing if the thread was deleted meanwhile."""
    sources = [structs.asdict(source) for source in outcome.sources]
    for source in sources:
        del source["available"]  # to whom, is asked when it is read
        for name in ("passage", *SourcePlace.__struct_fields__):
            if source[name] is None:
                del source[name]
        if not source["passages"]:
            del source["passages"]
    said = {
        "role": Role.ASSISTANT.value,
        "content": storable(outcome.text),
        "capability": outcome.capability,
        "model": outcome.model,
        "sources": to_builtins(sources),
        "generation": outcome.generation,
        "flags": to_builtins(outcome.flags),
        "eligible": training_eligible,
    }
    return await _append(session, user, thread, outcome.message, said) is not None


async def settle_on(
    session: AsyncConnection,
    user: UUID | None,
    thread: UUID,
    message: UUID,
    capability: str,
    prompts: Mapping[str, str],
) -> None:
    """Record the capability of a user's message, and the thread's version of each type of prompt.

    Types that are not among `prompts` keep theirs. Does nothing if the thread was deleted.
    """
    await session.execute(
        _SETTLE_ON,
        {"thread": thread, "user": user, "message": message, "capability": capability, "prompts": dict(prompts)},
    )


OWN_THREADS_ONLY = "Only an administrator may read other users' threads"
WAIT_S = 60.0
"""How long a message waits while others of its thread are answered."""
LEASE_S = 30.0
"""How long a thread stays taken that nobody keeps: the process was killed. It must be less than a message waits."""
_LONGEST_TURN_S = 900.0
_LOOK_AGAIN_S = 0.2
# How often a thread is kept: a crash of PostgreSQL loses all leases, and nobody else may take the thread meanwhile.
_KEEP_S = 1.0
_TAKE = """
    INSERT INTO request_leases AS taken (id, key, expires_at)
    VALUES ($1, $2, statement_timestamp() + make_interval(secs => $3))
    ON CONFLICT (id) DO UPDATE SET key = excluded.key, expires_at = excluded.expires_at
    WHERE taken.expires_at <= statement_timestamp()
    RETURNING id
    """
_EXTEND = """
    UPDATE request_leases SET expires_at = statement_timestamp() + make_interval(secs => $3)
    WHERE id = $1 AND key = $2 RETURNING id
    """
_FREE = "DELETE FROM request_leases WHERE id = $1 AND key = $2"


def lease_id(user: UUID, thread: UUID) -> UUID:
    """The lease for answering a message of this thread."""
    return uuid5(thread, str(user))


async def hold_thread(
    database: Database,
    user: UUID,
    thread: UUID,
    message: UUID,
    taken: "asyncio.Future[bool]",
    over: "asyncio.Future[bool]",
) -> None:
    """Let one message of a user's thread at a time proceed, across all processes, without an open transaction.

    `taken` is told when it is this one's turn: False where others take longer than WAIT_S seconds, StoreFailed where
    PostgreSQL does not answer. The thread is held until the turn is `over`: True where it is free by then, as
    whatever settles a message's reservation frees its thread.
    """
    place, began, held, again = lease_id(user, thread), time.monotonic(), False, False
    while not over.done() and time.monotonic() - began < _LONGEST_TURN_S:
        try:
            held = held and bool(await database.fetch(_EXTEND, place, str(message), LEASE_S))
            if not held:  # a crash lost it, or the turn has just been settled: then it is freed below
                again = taken.done()
                held = bool(await database.fetch(_TAKE, place, str(message), LEASE_S))
        except StoreFailed as error:  # who holds the thread may try again
            if not taken.done():
                taken.set_exception(error)
        if not taken.done() and (held or time.monotonic() - began >= WAIT_S):
            taken.set_result(held)
        if taken.done() and not held:
            return
        await asyncio.wait([over], timeout=_KEEP_S if held else _LOOK_AGAIN_S)
    if held and (again or not (over.done() and over.result())):
        with suppress(StoreFailed):  # then it runs out
            await database.fetch(_FREE, place, str(message))


# A turn in the database: what is kept and charged before a model thinks, and after. Two short transactions, each all or
# nothing; between them nothing is held. Locks are taken in one order - the user, reservations, counters, the thread,
# what is charged - so that two turns never wait for each other.


async def keep_message(
    database: Database,
    principal: Principal,
    said: RagRequest,
    message: UUID | None = None,
    *,
    cost_cap_cents: Decimal | None = None,
    token_budget: int | None = None,
    may_extract: bool = False,
    expires_s: float = 900.0,
) -> BegunTurn:
    """Store the user's message in their thread or a new one, and reserve one message of their plan.

    `message` is the id of both. `cost_cap_cents` a day and `token_budget` of an organization's month: None is no bound. Where the answer
    `may_extract`, a budget that is used up is no error, but in the result. A turn whose answer is neither kept nor given up within `expires_s` seconds is not charged; its message is kept.

    Raises FeatureDisabled, CostCapReached, BudgetSpent, QuotaExceeded, NotFound (a thread that is not theirs),
    Forbidden (no user, or a plan that they may not choose), InvalidInput (a plan that there is not), StoreFailed: then
    nothing remains, no thread and no charge.
    """
    user = principal.user or (await Entitlements(database).find(principal)).user
    scope, message = structs.replace(principal.scope(), user=user), message or uuid4()
    async with quotas.admit(
        database,
        scope,
        plan=said.options.plan if said.options else None,
        cost_cap_cents=cost_cap_cents,
        token_budget=token_budget,
        may_extract=may_extract,
    ) as (session, account, over_budget):
        await quotas.reserve(session, message, account, seconds=expires_s)
        context, meta = to_builtins((said.context, said.meta))
        thread = said.thread or await add_thread(session, user, title_of(said.text), meta or {})
        kept = await add_user_message(session, user, thread, message, said.text, said.capability, context)
    return BegunTurn(kept, message, account, scope, over_budget)


async def keep_answer(database: Database, begun: BegunTurn, outcome: Outcome) -> bool:
    """Store the answer, and charge for it or not. False if the thread was deleted meanwhile.

    Its use is recorded even then, and the charge stands. For a user erased meanwhile, only the cost is recorded.
    It is eligible for training if the user consented when the turn began, and does still. Raises StoreFailed.
    """
    async with lock_user(database, begun.scope) as (session, training):
        if training is None:
            await quotas.spend(session, begun.scope, outcome)
            return False
        if not outcome.charged or outcome.unsupported:
            await quotas.give_back(session, begun.message)
            if outcome.unsupported and not await quotas.is_free(session, begun.account):
                await quotas.charge(session, begun.account)
        elif not await quotas.settle(session, begun.message):
            await quotas.charge(session, begun.account)
        eligible = outcome.teaches and begun.account.training and training
        kept = await add_answer(session, begun.scope.user, begun.thread.id, outcome, training_eligible=eligible)
        await quotas.record(session, begun.account, begun.scope, outcome)
    return kept


async def give_up(
    database: Database, begun: BegunTurn, failures: Sequence[tuple[str, str]] = (), took: Outcome | None = None
) -> None:
    """End a turn without an answer or a charge. The user's message stays, and the failures (kind, text) are recorded.

    Its use, `took`, is recorded, too. Raises StoreFailed.
    """
    async with lock_user(database, begun.scope) as (session, training):
        if training is not None:
            await quotas.give_back(session, begun.message)
        if training is not None and failures:
            await quotas.record_failures(session, begun.account, begun.message, failures)
        if took is not None and training is not None:
            await quotas.record(session, begun.account, begun.scope, took)
        elif took is not None:
            await quotas.spend(session, begun.scope, took)


# -- conversations that are kept


class ThreadStore(Struct, frozen=True):
    """Raises NotFound for what is not the principal's, unless an administrator reads it, which is audited.

    PostgreSQL looks up administrators (`rag_app.database.session`). A principal without a user has no threads.
    """

    _database: Database
    _ledger: SourceLedger

    async def history(self, scope: Scope, thread: UUID, before: UUID, limit: int = 10) -> Sequence[PastMessage]:
        """The newest messages before that one in the thread of the scope's user, in their order.

        Without deleted messages and answers interrupted before any text. Empty if the thread was deleted.
        """
        then = select(messages_table.c.created_at).where(
            messages_table.c.id == before, messages_table.c.thread_id == thread
        )
        statement = (
            _newest_messages(thread, limit)
            .join(threads_table, threads_table.c.id == messages_table.c.thread_id)
            .where(
                threads_table.c.user_id == scope.user,
                messages_table.c.content.regexp_match(r"\S"),
                _older_than(then.scalar_subquery(), before),
            )
        )
        return convert((await self._database.read(scope, statement))[::-1], list[PastMessage], from_attributes=True)

    async def list(
        self,
        principal: Principal,
        *,
        limit: int,
        after: str | None,
        archived: bool | None,
        user: UUID | None,
        everybody: bool,
        search: str | None = None,
    ) -> ThreadsResponse:
        """Threads by their last message, the newest first; archived ones, others, or (None) both.

        `after` is a page's cursor. A thread that gets a message between two pages moves to the front, and is on none of
        the pages that follow; all others are on exactly one. `user` and `everybody` (not both) are for administrators:
        threads of that user, or of all users. `search`: only those whose title or a message has this text, in upper or
        lower case.

        Raises Forbidden, and InvalidInput for a cursor that is none.
        """
        if everybody and user is not None:
            raise InvalidInput("user", user, "cannot be combined with `everybody`")
        statement = (
            select(threads_table)
            .order_by(threads_table.c.last_message_at.desc(), threads_table.c.id.desc())
            .limit(limit + 1)
        )
        if not everybody:
            statement = statement.where(threads_table.c.user_id == (principal.user if user is None else user))
        if archived is not None:
            statement = statement.where(threads_table.c.archived.is_(archived))
        if after is not None:
            statement = statement.where(
                pages.is_after_cursor(after, threads_table.c.last_message_at, threads_table.c.id)
            )
        if search is not None:
            said = select(messages_table.c.id).where(
                messages_table.c.thread_id == threads_table.c.id,
                messages_table.c.deleted_at.is_(None),
                messages_table.c.content.icontains(search, autoescape=True),
            )
            statement = statement.where(or_(threads_table.c.title.icontains(search, autoescape=True), said.exists()))
        widened = everybody or user is not None
        async with self._database.scoped(principal.scope(), administrator=widened) as session:
            if widened:
                if not await may_administer(session):
                    raise Forbidden(OWN_THREADS_ONLY)
                if user != principal.user:
                    await write_down(
                        session, principal.user, Act("threads.list", EVERYBODY if user is None else str(user))
                    )
            rows = (await session.execute(statement)).all()
        more = pages.cursor(rows[limit - 1].last_message_at, rows[limit - 1].id) if len(rows) > limit else None
        return ThreadsResponse([render_thread(ThreadInfo, row) for row in rows[:limit]], more)

    async def read(self, principal: Principal, thread: UUID, *, limit: int, before: UUID | None) -> ThreadWithMessages:
        """The thread with its newest messages (or those before one).

        Access to sources is checked now: a source that the principal may not see any more keeps only its label. Feedback
        is the thread's user's. Raises NotFound, and InvalidInput if `before` is not a message of this thread.
        """
        async with self._database.scoped(principal.scope(), administrator=True) as session:
            readable = or_(threads_table.c.user_id == principal.user, func.rag_administrator())
            row = (
                await session.execute(select(threads_table).where(threads_table.c.id == thread, readable))
            ).one_or_none()
            if row is None or (row.user_id != principal.user and not await may_administer(session)):
                raise NotFound("thread", str(thread))
            if row.user_id != principal.user:
                await write_down(session, principal.user, Act("threads.read", str(thread), {"user": str(row.user_id)}))
            theirs = and_(feedback_table.c.message_id == messages_table.c.id, feedback_table.c.user_id == row.user_id)
            statement = _newest_messages(thread, limit + 1).add_columns(*_RATING).outerjoin(feedback_table, theirs)
            if before is not None:
                # deleted or not: it may have been deleted since it was shown
                mark = select(messages_table.c.created_at).where(
                    messages_table.c.id == before, messages_table.c.thread_id == thread
                )
                problem = InvalidInput("before", before, "must be a message of this thread")
                then = require(await session.scalar(mark), problem)
                statement = statement.where(_older_than(literal(then, messages_table.c.created_at.type), before))
            rows = (await session.execute(statement)).all()
        shown = rows[:limit][::-1]
        # after the transaction: the ledger takes a connection of its own
        named = {UUID(source["id"]) for message in shown for source in message.retrieved_source_ids or ()}
        seen = await self._ledger.visible_sources(principal.scope(), named) if named else set()
        messages = [render_message(message, seen) for message in shown]
        return render_thread(ThreadWithMessages, row, messages=messages, has_more=len(rows) > limit)

    async def change(
        self, principal: Principal, thread: UUID, *, title: str | None = None, archived: bool | None = None
    ) -> ThreadInfo:
        """Rename, archive or restore a thread. The next message restores it, too.

        White space in a title becomes single spaces. Raises NotFound, and InvalidInput for a title without visible text.
        """
        changes: dict[str, str | bool] = {} if archived is None else {"archived": archived}
        if title is not None:
            changes["title"] = line = " ".join(title.split())
            if any(category(character) in {"Cc", "Cs"} for character in line) or not any(map(is_visible, line)):
                raise InvalidInput("title", title, "must be visible text without control characters")
        async with self._database.scoped(principal.scope()) as session:
            return await _change(session, principal.user, thread, **changes)

    async def branch(self, principal: Principal, thread: UUID, before: UUID) -> ThreadInfo:
        """Create a thread with the messages before that one. Ratings are not copied.

        Raises NotFound, also for a message of another thread.
        """
        values = {"thread": thread, "user": principal.user, "before": before, "branch": uuid4()}
        async with self._database.scoped(principal.scope()) as session:
            made = (await session.execute(_BRANCH, values)).one_or_none()
            branch = require(made, NotFound("message", str(before)))
            await session.execute(_COPY, values)
            return render_thread(ThreadInfo, branch)

    async def delete(self, principal: Principal, thread: UUID) -> None:
        """Delete the thread with its messages. Raises NotFound if it has already been deleted."""
        gone = (
            delete(threads_table)
            .where(threads_table.c.id == thread, threads_table.c.user_id == principal.user)
            .returning(threads_table.c.id)
        )
        async with lock_user(self._database, principal.scope()) as (session, _):  # a withdrawal comes before, or after
            require(await session.scalar(gone), NotFound("thread", str(thread)))

    async def delete_message(self, principal: Principal, thread: UUID, message: UUID) -> None:
        """Delete a message: it is not shown, counted or used as history any more. Its feedback is deleted, and so is training
        data from it or from later messages. Raises NotFound if it has already been deleted."""
        gone = (
            update(messages_table)
            .where(
                messages_table.c.id == message,
                messages_table.c.thread_id == thread,
                messages_table.c.deleted_at.is_(None),
            )
            .values(deleted_at=func.now())
            .returning(messages_table.c.id)
        )
        async with lock_user(self._database, principal.scope()) as (session, _):  # a withdrawal comes before, or after
            await _change(session, principal.user, thread, message_count=threads_table.c.message_count - 1)
            require(await session.scalar(gone), NotFound("message", str(message)))
            await session.execute(delete(feedback_table).where(feedback_table.c.message_id == message))
            for statement in _FORGET_LESSONS:
                await session.execute(statement, {"thread": thread, "message": message})


_EARLIER_MESSAGES = """
    rag_messages.thread_id = :thread AND deleted_at IS NULL AND (rag_messages.created_at, rag_messages.id) < (
        SELECT created_at, id FROM rag_messages WHERE id = :before AND thread_id = :thread
    )
    """
_BRANCH = text(
    f"""
    INSERT INTO rag_threads (id, user_id, title, metadata, message_count)
    SELECT :branch, user_id, title, metadata || jsonb_build_object('branchOf', id),
        (SELECT count(*) FROM rag_messages WHERE {_EARLIER_MESSAGES})
    FROM rag_threads WHERE id = :thread AND user_id = :user
        AND EXISTS (SELECT FROM rag_messages WHERE id = :before AND thread_id = :thread)
    RETURNING *
    """
).columns(metadata=JSONB())
_COPY = text(
    f"""
    INSERT INTO rag_messages (
        id, thread_id, created_at, role, content, capability, context_json, model_id, retrieved_source_ids,
        generation_metadata, flags
    )
    SELECT gen_random_uuid(), :branch, created_at, role, content, capability, context_json, model_id,
        retrieved_source_ids, generation_metadata, flags
    FROM rag_messages WHERE {_EARLIER_MESSAGES}
    """
)

_SETTLE_ON = text(
    """
    WITH thread AS (
        UPDATE rag_threads SET metadata = metadata
            || jsonb_build_object('prompts', coalesce(metadata -> 'prompts', '{}') || :prompts)
        WHERE id = :thread AND user_id = :user RETURNING id
    )
    UPDATE rag_messages SET capability = :capability FROM thread
    WHERE rag_messages.id = :message AND thread_id = thread.id AND role = 'user'
    """
).bindparams(bindparam("prompts", type_=JSONB))


# no lesson is left whose prompt may hold this message: its own, and those of later ones
_LATER = "thread_id = :thread AND created_at >= (SELECT created_at FROM rag_messages WHERE id = :message)"
_FORGET_LESSONS = (
    text(f"UPDATE rag_messages SET training_eligible = false WHERE training_eligible AND {_LATER}"),
    text(f"DELETE FROM lexybrain_requests WHERE message_id IN (SELECT id FROM rag_messages WHERE {_LATER})"),
)


async def _change(session: AsyncConnection, user: UUID | None, thread: UUID, **values: Any) -> ThreadInfo:
    """Change the user's own thread, lock its row, and return its new state. Raises NotFound."""
    # of the user None there are none: the column is NOT NULL
    changed = (
        update(threads_table)
        .where(threads_table.c.id == thread, threads_table.c.user_id == user)
        .values(**values)
        .returning(threads_table)
    )
    row = (await session.execute(changed)).one_or_none()
    return render_thread(ThreadInfo, require(row, NotFound("thread", str(thread))))


# a message comes after all others in their order even if the clock was set back; a user's brings an archived thread back
_APPEND = (
    text(
        """
    WITH thread AS (
        UPDATE rag_threads SET message_count = message_count + 1, archived = archived AND :role <> 'user',
            last_message_at = greatest(clock_timestamp(), last_message_at + interval '1 microsecond')
        WHERE id = :thread AND user_id = :user RETURNING *
    ), message AS (
        INSERT INTO rag_messages (
            id, thread_id, created_at, role, content, capability, context_json, model_id, retrieved_source_ids,
            generation_metadata, flags, training_eligible
        )
        SELECT :message, id, last_message_at, :role, :content, :capability, :context, :model, :sources, :generation,
            :flags, :eligible
        FROM thread RETURNING id
    )
    SELECT * FROM thread
    """
    )
    .bindparams(
        *(bindparam(each, type_=JSONB(none_as_null=True)) for each in ("context", "sources", "generation", "flags"))
    )
    .columns(metadata=JSONB())
)
_EMPTY_MESSAGE: Mapping[str, Any] = {
    "context": None,
    "model": None,
    "sources": None,
    "generation": None,
    "flags": {},
    "eligible": False,
}


async def _append(
    session: AsyncConnection, user: UUID | None, thread: UUID, message: UUID, said: Mapping[str, Any]
) -> Row[Any] | None:
    """Count a message and append it to the user's thread; None if there is no such thread."""
    values = {**_EMPTY_MESSAGE, **said, "user": user, "thread": thread, "message": message}
    return (await session.execute(_APPEND, values)).one_or_none()


_RATING = feedback_table.c.rating, feedback_table.c.comment, feedback_table.c.expected_source_id


def _newest_messages(thread: UUID, limit: int) -> Select[Any]:
    return (
        select(messages_table)
        .where(messages_table.c.thread_id == thread, messages_table.c.deleted_at.is_(None))
        .order_by(messages_table.c.created_at.desc(), messages_table.c.id.desc())
        .limit(limit)
    )


def _older_than(moment: ColumnElement[datetime], message: UUID) -> ColumnElement[bool]:
    return tuple_(messages_table.c.created_at, messages_table.c.id) < tuple_(moment, literal(message))


def render_thread(of: type[T], row: Row[Any], **others: Any) -> T:
    """A thread as shown to its user, without its prompt versions, which are internal."""
    metadata = {name: value for name, value in row.metadata.items() if name != "prompts"}
    return as_wire(of, row, metadata=metadata, **others)


def render_message(row: Row[Any], seen: Collection[UUID]) -> ThreadMessage:
    """A message as shown to its user, with its feedback (`_RATING`) and cited sources; those not in `seen` have a label only."""
    feedback = row if row.rating is not None else None
    if row.role == Role.USER:
        return as_wire(ThreadMessage, row, sources=(), model=None, flags=None, feedback=feedback)
    made, sources = row.generation_metadata or {}, []
    for kept in row.retrieved_source_ids or ():
        source = UUID(kept["id"])
        told = kept if source in seen else {}
        shown = kept["type"], kept["label"], kept["score"], kept.get("cited"), told.get("quote")
        passage = convert(told.get("passage"), CitedPassage | None)
        passages = convert(told.get("passages", ()), tuple[ClaimPassage, ...])
        place = {name: told.get(name) for name in SourcePlace.__struct_fields__}
        sources.append(structs.replace(ThreadSource(source, *shown, source in seen, passage, passages), **place))
    read, written = made.get("tokensIn"), made.get("tokensOut")
    usage = None if read is None or written is None else RagUsage(read, written)
    model = RagModel(row.model_id or "", usage, made.get("latencyMs", 0))
    return as_wire(ThreadMessage, row, sources=sources, model=model, flags=convert(row.flags, Flags), feedback=feedback)
