"""Answers outside conversations, kept for a day so that their asker can give feedback.

Only the asker sees them. An answer with feedback stays, as feedback and as a judgment of the sources, and
administrators may read it. The rest is deleted after the day.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

from msgspec import Meta, Struct, convert
from sqlalchemy import ColumnElement, bindparam, delete, func, insert, or_, select, text
from sqlalchemy.dialects.postgresql import JSONB, insert as upsert

from rag_app.database.session import Database
from rag_app.documents.ledger import SourceLedger
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    Answer,
    Hit,
    InvalidInput,
    NotFound,
    Principal,
    Question,
    Scope,
    StoreFailed,
    Usage,
    require,
    storable,
)
from rag_app.evaluation.records import check_comment, expected_source, held_sources, judge
from rag_app.evaluation.tables import kept_answers_table

log = logging.getLogger(__name__)

REQUEST = "5b1f0c9e3f0d4f0f8f3e2d1c0b9a8f7e"
KEPT_FOR = timedelta(hours=24)
ANSWER_EVENT, REFUSAL_EVENT = "answer", "refusal"
"""Types of usage events, of answers outside of conversations."""
Verdict = Literal["right", "wrong"]
_WITHOUT_VERDICT = kept_answers_table.c.verdict.is_(None)
_PAST_ITS_DAY = kept_answers_table.c.asked_at < func.now() - KEPT_FOR


class KeptAnswerFeedback(Struct, frozen=True):
    """A user's feedback on one answer. `expected_source_id`: the source that should have been among its sources."""

    request_id: Annotated[str, Meta(description="the id of the answer's request", examples=[REQUEST])]
    verdict: Verdict
    comment: str | None
    expected_source_id: UUID | None
    judged_at: Annotated[datetime, Meta(examples=["2026-01-15T10:30:00Z"])]


# What an answer took, for the figures of administrators: nothing of what was asked.
_COUNT = text(
    """
    INSERT INTO ai_usage_events (
        user_id, type, plan_code, capability, model_version, latency_ms, stages, tokens_in, tokens_out, cost_cents
    ) SELECT id, :type, plan_code, :capability, :model, :latency, :stages, :tokens_in, :tokens_out, :cents
    FROM users WHERE id = :user
    """
).bindparams(bindparam("stages", type_=JSONB()))


class KeptAnswers:
    """Everything but `keep` raises StoreFailed. `cost_cents` computes a model's cost of an answer."""

    def __init__(
        self, database: Database, ledger: SourceLedger, cost_cents: Callable[[str, Usage | None], Decimal] | None = None
    ) -> None:
        self._database, self._ledger, self._cost_cents = database, ledger, cost_cents

    async def keep(
        self, principal: Principal, request_id: str, capability: str, index: str, question: Question, answer: Answer
    ) -> None:
        """Store a question and its answer under the response's id, and count it. Nothing is stored for a caller without a
        user.

        A second answer with the same id replaces the first, unless that one has feedback. If an answer cannot be stored,
        that is logged, and the user still gets it.
        """
        if principal.user is None:
            return
        cited: dict[UUID, Hit] = {}
        for each in () if answer.refused else answer.citations:
            cited.setdefault(each.hit.source_id, each.hit)
        values = {
            "user_id": principal.user,
            "request_id": request_id,
            "capability": capability,
            "index_name": index,
            "question": storable(question.searched or question.text),
            "answer": storable(answer.text),
            "refusal": answer.refusal and answer.refusal.value,
            "model": answer.model,
            "prompt": answer.prompt and storable(answer.prompt),
            "sources": [
                {"source_id": str(hit.source_id), "chunk_id": str(hit.chunk_id), "label": storable(hit.title)}
                for hit in cited.values()
            ],
        }
        made = upsert(kept_answers_table).values(values)
        statement = made.on_conflict_do_update(
            index_elements=["user_id", "request_id"], set_={**values, "asked_at": func.now()}, where=_WITHOUT_VERDICT
        )
        try:
            async with self._database.scoped(Scope.alone(principal.user)) as session:
                await session.execute(statement)
                await session.execute(_COUNT, self._took(principal.user, capability, answer))
        except StoreFailed as error:
            log.warning("an answer was not kept for feedback: %s", error)

    def _took(self, user: UUID, capability: str, answer: Answer) -> dict[str, Any]:
        stages = {name: round(1000 * each) for name, each in answer.seconds.items()}
        model = answer.asked or answer.model or "none"
        return {
            "user": user,
            "type": REFUSAL_EVENT if answer.refused and not answer.courtesy else ANSWER_EVENT,
            "capability": capability,
            "model": model,
            "latency": sum(stages.values()),
            "stages": stages,
            "tokens_in": answer.usage.input_tokens if answer.usage else 0,
            "tokens_out": answer.usage.output_tokens if answer.usage else 0,
            "cents": self._cost_cents(model, answer.usage) if self._cost_cents else Decimal(0),
        }

    async def judge(
        self, principal: Principal, request_id: str, verdict: Verdict, comment: str | None, expected: str | None
    ) -> KeptAnswerFeedback:
        """Store the asker's feedback on an answer, replacing all earlier feedback.

        `right` records a judgment that the cited sources answer the question. `wrong` may name the source that should have
        been cited (`expected`), by id or external id: it is judged to answer the question.

        Raises NotFound for an answer that is not the principal's, or was given more than a day ago; InvalidInput for a
        source that the principal may not see or whose name several have, and for text that PostgreSQL cannot keep.
        """
        if expected is not None and verdict == "right":
            raise InvalidInput("expected_source", expected, "can only be sent with the verdict wrong")
        check_comment(comment)
        scope, this = principal.scope(), select(kept_answers_table).where(*_own(principal, request_id))
        found: list[UUID] = []
        if expected is not None and expected == storable(expected):
            for (index,) in await self._database.read(scope, this.with_only_columns(kept_answers_table.c.index_name)):
                found = await self._ledger.find_named(scope, index, [expected])
        async with self._database.scoped(scope) as session:
            held = await session.execute(this.with_for_update())
            row = require(held.one_or_none(), NotFound("answer", request_id))
            named = None if expected is None else await expected_source(session, found, "expected_source", expected)
            # made anew, not updated: so what it had judged goes, in whatever organization that was
            await session.execute(delete(kept_answers_table).where(kept_answers_table.c.id == row.id))
            values = {**row._mapping, "id": uuid4(), "verdict": verdict, "comment": comment}
            values |= {"judged_at": func.now(), "expected_source_id": named and named.id}
            made = insert(kept_answers_table).values(values).returning(kept_answers_table)
            kept = (await session.execute(made)).one()
            cited = [UUID(each["source_id"]) for each in row.sources] if verdict == "right" else []
            for source in await held_sources(session, cited) if named is None else [named]:
                await judge(session, principal, row.index_name, row.question, source, answer=kept.id)
        return convert(kept._mapping, KeptAnswerFeedback)

    async def withdraw(self, principal: Principal, request_id: str) -> None:
        """Delete the answer and its feedback. Raises NotFound if nothing is stored."""
        gone = delete(kept_answers_table).where(*_own(principal, request_id)).returning(kept_answers_table.c.id)
        async with self._database.scoped(principal.scope()) as session:
            require(await session.scalar(gone), NotFound("answer", request_id))

    async def forget(self) -> int:
        """Delete all users' answers without feedback after a day; returns their number."""
        async with self._database.scoped(Scope(frozenset({PUBLIC_ORGANIZATION})), operator=True) as session:
            gone = await session.execute(delete(kept_answers_table).where(_WITHOUT_VERDICT, _PAST_ITS_DAY))
        return gone.rowcount


def _own(principal: Principal, request_id: str) -> list[ColumnElement[bool]]:
    mine = [kept_answers_table.c.user_id == principal.user, kept_answers_table.c.request_id == storable(request_id)]
    return [*mine, or_(~_WITHOUT_VERDICT, ~_PAST_ITS_DAY)]
