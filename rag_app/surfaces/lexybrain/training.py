"""Consent to training, and what is collected under it.

Whatever depends on consent reads it from the user's row and holds that until its transaction ends; a withdrawal changes
the row first. So of an answer and a withdrawal at once either the answer is collected and then goes with the others, or
it is not collected. Locks are taken in one order: the user's row, messages, what was collected from them.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct, structs
from sqlalchemy import bindparam, exists, func, select, text, update
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.access.audit import Act, write_down
from rag_app.access.tables import api_keys_table, memberships_table, users_table
from rag_app.answering.prompts import Prompt
from rag_app.answering.synthesizers import messages_of
from rag_app.database.session import Database
from rag_app.database.tables import matches_any
from rag_app.domain import PUBLIC_ORGANIZATION, Answer, Forbidden, Principal, Question, Scope, storable
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.quotas import Entitlements, lock_user
from rag_app.surfaces.lexybrain.tables import (
    messages_table,
)
from rag_app.surfaces.lexybrain.types import ConsentInfo

NO_KEY_CONSENTS = "An API key cannot consent: sign in as a person"
_PAGE = 200
_COLLECT = text(
    """
    WITH request AS (
        INSERT INTO lexybrain_requests (message_id, user_id, capability, prompt, context)
        VALUES (:message, :user, :capability, :prompt, :context) RETURNING id, user_id
    )
    INSERT INTO lexybrain_responses (request_id, user_id, model_id, content)
    SELECT id, user_id, :model, :text FROM request
    """
).bindparams(bindparam("prompt", type_=JSONB()), bindparam("context", type_=JSONB()))
_READ_LESSONS = text(
    """
    SELECT q.capability, a.model_id, q.prompt, q.context, a.content,
        coalesce(m.generation_metadata -> 'prompts', '{}') AS prompts, f.rating, q.created_at, q.id
    FROM lexybrain_requests q JOIN lexybrain_responses a ON a.request_id = q.id
    JOIN rag_messages m ON m.id = q.message_id JOIN users u ON u.id = q.user_id
    LEFT JOIN rag_feedback f ON f.message_id = m.id AND f.user_id = u.id
    WHERE u.id = :user AND u.training_opt_in_at IS NOT NULL AND m.deleted_at IS NULL
        AND q.capability = coalesce(:capability, q.capability) AND (q.created_at, q.id) > (:after, :last)
    ORDER BY q.created_at, q.id LIMIT :page
    """
).columns(prompt=JSONB(), context=JSONB(), prompts=JSONB())
_NOT_ELIGIBLE = text(
    "UPDATE rag_messages SET training_eligible = false"
    " WHERE training_eligible AND thread_id IN (SELECT id FROM rag_threads WHERE user_id = :user)"
)
_FORGET = text("DELETE FROM lexybrain_requests WHERE user_id = :user RETURNING id")
_MARKER = re.compile(r"\[Source ([0-9]+)\]")


class Consenting(Struct, frozen=True):
    """A user who consents, `since` then, with what they may see."""

    user: UUID
    since: datetime
    scope: Scope


class _TrainingText(Struct, frozen=True):
    """`prompt` is what a model was told, a list of {role, content}; `text` is what it should say to that: the answer,
    with sources numbered as in the prompt. `context` are the passages in the prompt, in the order of their numbers: {id,
    type, label, text, cited}.
    """

    capability: str
    model: str
    prompt: Sequence[Mapping[str, Any]]
    context: Sequence[Mapping[str, Any]]
    text: str


class Lesson(_TrainingText, frozen=True):
    """One answer to learn from. `message` is its id, `told` are the ids of the messages that its prompt was made from."""

    message: UUID
    told: tuple[UUID, ...]


class CollectedLesson(_TrainingText, frozen=True):
    """A lesson as it is kept. `prompts` are the versions that were in use, by type; `rating` is its user's, if any."""

    prompts: Mapping[str, str]
    rating: str | None
    created_at: datetime

    @property
    def sources(self) -> set[UUID]:
        return {UUID(shown["id"]) for shown in self.context}


class Training:
    """Consents of people, and lessons of those who consent. Everything raises StoreFailed."""

    def __init__(self, database: Database, accounts: Entitlements) -> None:
        self._database, self._accounts = database, accounts

    async def consent(self, principal: Principal) -> ConsentInfo:
        """Raises Forbidden for the service user of an API key."""
        if principal.user is None:  # nobody has asked whom the database does not know
            return ConsentInfo(False, None)
        async with self._database.scoped(Scope.alone(principal.user)) as session:
            await _check_person(session, principal.user)
            since = await session.scalar(
                select(users_table.c.training_opt_in_at).where(users_table.c.id == principal.user)
            )
        return ConsentInfo(since is not None, since)

    async def decide(self, principal: Principal, training: bool) -> ConsentInfo:
        """Consent from now on, or withdraw it: then all that was collected from this user goes, at once.

        A second time changes nothing. Each change is written down. Raises Forbidden for the service user of an API key,
        and for a visitor without a name.
        """
        user = (await self._accounts.find(principal)).user
        this = users_table.c.id == user
        async with self._database.scoped(Scope.alone(user)) as session:
            await _check_person(session, user)
            since = await session.scalar(
                select(users_table.c.training_opt_in_at).where(this).with_for_update(key_share=True)
            )
            if training == (since is not None):
                return ConsentInfo(training, since)
            changed = update(users_table).where(this).values(training_opt_in_at=func.now() if training else None)
            since = await session.scalar(changed.returning(users_table.c.training_opt_in_at))
            details = {} if training else {"collected": await _forget(session, user)}
            await write_down(
                session, user, Act("training.consent" if training else "training.withdraw", str(user), details)
            )
        return ConsentInfo(training, since)

    async def collect(self, scope: Scope, lesson: Lesson) -> bool:
        """Keep a lesson of the scope's user; False, and nothing is kept, where the user does not consent any more.

        Nor is it where its answer was not eligible, or where a message that its prompt was made from is gone, or older
        than the consent.
        """
        user = scope.user
        said = {*lesson.told, lesson.message}
        since = select(users_table.c.training_opt_in_at).where(users_table.c.id == user).scalar_subquery()
        there = (
            select(messages_table.c.id, messages_table.c.training_eligible)
            .where(
                matches_any(messages_table.c.id, sorted(said)),
                messages_table.c.deleted_at.is_(None),
                messages_table.c.created_at >= since,
            )
            .order_by(
                messages_table.c.created_at, messages_table.c.id
            )  # as whoever deletes one takes it before those after it
            .with_for_update(read=True)
        )
        async with lock_user(self._database, scope) as (session, consents):
            if not consents:
                return False
            found = dict((await session.execute(there)).tuples().all())
            if found.keys() != said or not found[lesson.message]:
                return False
            await session.execute(_COLLECT, {**_storable(structs.asdict(lesson)), "user": user})
        return True

    async def list_consenting(self) -> list[Consenting]:
        """All who consent now, for the operator."""
        organizations = (
            select(func.array_agg(memberships_table.c.org_id))
            .where(memberships_table.c.user_id == users_table.c.id)
            .scalar_subquery()
        )
        consenting = (
            select(users_table.c.id, users_table.c.training_opt_in_at, organizations)
            .where(users_table.c.training_opt_in_at.is_not(None))
            .order_by(users_table.c.id)
        )
        return [
            Consenting(user, since, Scope(frozenset({PUBLIC_ORGANIZATION, *(found or ())}), user))
            for user, since, found in await self._database.execute(consenting)
        ]

    async def read_lessons(
        self, of: Consenting, *, since: datetime | None = None, capability: str | None = None
    ) -> AsyncIterator[Sequence[CollectedLesson]]:
        """What was collected from one user, page by page, oldest first, read as that user; nothing once they withdraw."""
        after, last = since or datetime(1, 1, 1, tzinfo=UTC), UUID(int=0)
        while True:
            values = {"user": of.user, "capability": capability, "after": after, "last": last, "page": _PAGE}
            async with self._database.scoped(of.scope) as session:
                rows = (await session.execute(_READ_LESSONS, values)).tuples().all()
            if rows:
                yield [CollectedLesson(*row[:-1]) for row in rows]
            if len(rows) < _PAGE:
                return
            *_, after, last = rows[-1]


def lesson(
    prompt: Prompt,
    capability: str,
    message: UUID,
    told: tuple[UUID, ...],
    question: Question,
    answer: Answer,
    spec: IndexSpec,
) -> Lesson:
    """An answer, as a model could have learned it: what it was told, to the letter, and what it should say to that.

    `told` are the messages that the prompt was made from.
    """
    context = "\n\n".join(shown.text for shown in answer.shown)
    number = {shown.cited: place for place, shown in enumerate(answer.shown, 1) if shown.cited is not None}
    return Lesson(
        message=message,
        told=told,
        capability=capability,
        model=answer.model or "",
        prompt=[
            {"role": each.role.value, "content": each.content or ""} for each in messages_of(prompt, question, context)
        ],
        context=[
            {
                "id": str(shown.source),
                "type": spec.show_type(shown.source_type),
                "label": shown.label,
                "text": shown.text,
                "cited": shown.cited is not None,
            }
            for shown in answer.shown
        ],
        # an answer numbers its sources in its own order
        text=_MARKER.sub(lambda found: f"[Source {number[int(found[1])]}]", answer.text),
    )


async def _forget(session: AsyncConnection, user: UUID) -> int:
    """All that was collected from a user; how many lessons that were."""
    await session.execute(_NOT_ELIGIBLE, {"user": user})
    return len((await session.scalars(_FORGET, {"user": user})).all())


async def _check_person(session: AsyncConnection, user: UUID) -> None:
    if await session.scalar(select(exists().where(api_keys_table.c.user_id == user))):
        raise Forbidden(NO_KEY_CONSENTS)


def _storable(said: Any) -> Any:
    match said:
        case str():
            return storable(said)
        case list():
            return [_storable(each) for each in said]
        case dict():
            return {key: _storable(value) for key, value in said.items()}
    return said
