"""Validation runs, and which passages of which sources were judged to answer a query.

Both belong to one organization: a caller who is of several has none here.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Text,
    Uuid,
    any_,
    bindparam,
    case,
    insert,
    literal,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY

from rag_app.db.models import JudgmentRow, SourceRow, ValidationRow
from rag_app.db.session import Database
from rag_app.domain.errors import Forbidden
from rag_app.domain.scope import Principal

Span = tuple[int, int]
"""`start <= character < end` in a source's content."""

_LONGEST_QUERY = 2000  # bytes: an entry of an index in PostgreSQL holds 2,700


class Validations:
    """Who may see a source may see what is judged of it; a run is seen by the keys that may search its index."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(
        self,
        principal: Principal,
        run: UUID,
        index: str,
        generation: int,
        top_k: int,
        report: Mapping[str, Any],
        judgments: Collection[tuple[str, UUID, Span | None]],
    ) -> None:
        """Keep a report (JSON), and that these passages (None: the whole source) answer these queries.

        What is judged already, and sources that are not the organization's own or gone meanwhile, are passed over.
        """
        org_id = _organization(principal)
        async with self._database.scoped(principal.scope()) as session:
            await session.execute(
                insert(ValidationRow).values(
                    id=run,
                    org_id=org_id,
                    user_id=principal.user,
                    index_name=index,
                    generation_id=generation,
                    top_k=top_k,
                    report=dict(report),
                )
            )
            if judgments:
                queries, sources, spans = zip(*judgments, strict=True)
                await session.execute(
                    _JUDGE,
                    {
                        "org": org_id,
                        "index": index,
                        "queries": [_key(query) for query in queries],
                        "sources": list(sources),
                        "starts": [span and span[0] for span in spans],
                        "ends": [span and span[1] for span in spans],
                    },
                )

    async def report(self, principal: Principal, run: UUID) -> Mapping[str, Any] | None:
        """What `record` was given; None for a run that there is not, as far as the principal may know."""
        async with self._database.scoped(principal.scope()) as session:
            report: dict[str, Any] | None = await session.scalar(
                _seen_by(principal, select(ValidationRow.report)).where(ValidationRow.id == run)
            )
        return report

    async def newest(
        self, principal: Principal, limit: int, before: UUID | None = None
    ) -> list[tuple[UUID, str, int, Mapping[str, Any]]]:
        """Run, index, top_k and report without its "results", of at most `limit` runs made before that one."""
        made = tuple_(ValidationRow.created_at, ValidationRow.id)
        statement = select(
            ValidationRow.id,
            ValidationRow.index_name,
            ValidationRow.top_k,
            ValidationRow.report.op("-", return_type=ValidationRow.report.type)(literal("results", Text)),
        )
        statement = _seen_by(principal, statement).order_by(made.desc()).limit(limit)
        if before is not None:
            then = select(ValidationRow.created_at).where(ValidationRow.id == before).scalar_subquery()
            statement = statement.where(made < tuple_(then, literal(before)))
        async with self._database.scoped(principal.scope()) as session:
            return [(run, index, top_k, report) for run, index, top_k, report in await session.execute(statement)]

    async def judgments(
        self, principal: Principal, index: str, query: str, hits: Collection[UUID]
    ) -> tuple[list[tuple[UUID, Span | None]], dict[UUID, Sequence[Mapping[str, Any]]]]:
        """The passages that answer the query, of sources that the principal may see, and the content of those sources
        that are among `hits` (ids of sources).

        White space and case make no other query.
        """
        content = case((_in(hits), SourceRow.content))
        statement = (
            select(JudgmentRow.source_id, JudgmentRow.start, JudgmentRow.end, content)
            .join(SourceRow, SourceRow.id == JudgmentRow.source_id)
            .where(
                JudgmentRow.org_id == _organization(principal),
                JudgmentRow.index_name == index,
                JudgmentRow.query == _key(query),
                JudgmentRow.grade > 0,
                SourceRow.deleted_at.is_(None),
            )
        )
        async with self._database.scoped(principal.scope()) as session:
            rows = (await session.execute(statement)).all()
        passages = [(source, None if start is None else (start, end)) for source, start, end, _ in rows]
        return passages, {source: content for source, _, _, content in rows if content is not None}

    async def contents(
        self, principal: Principal, sources: Collection[UUID]
    ) -> dict[UUID, Sequence[Mapping[str, Any]]]:
        """The passages of those of these sources that can be judged: the organization's own."""
        if not sources:
            return {}
        async with self._database.scoped(principal.scope()) as session:
            rows = await session.execute(
                select(SourceRow.id, SourceRow.content).where(
                    _in(sources), SourceRow.org_id == _organization(principal), SourceRow.deleted_at.is_(None)
                )
            )
            return dict(rows.tuples().all())


_JUDGE = text(
    """
    INSERT INTO judgments (org_id, index_name, query, source_id, "start", "end")
    SELECT s.org_id, s.index_name, judged.query, s.id, judged."start", judged."end"
    FROM unnest(:queries, :sources, :starts, :ends) AS judged(query, source_id, "start", "end")
    JOIN sources s ON s.id = judged.source_id AND s.org_id = :org AND s.index_name = :index AND s.deleted_at IS NULL
    ORDER BY judged.query, s.id, judged."start", judged."end"
    FOR KEY SHARE OF s
    ON CONFLICT DO NOTHING
    """
).bindparams(
    bindparam("org", type_=Uuid),
    bindparam("queries", type_=ARRAY(Text)),
    bindparam("sources", type_=ARRAY(Uuid)),
    bindparam("starts", type_=ARRAY(Integer)),
    bindparam("ends", type_=ARRAY(Integer)),
)
# ordered, so that two runs of the same queries wait for each other in turn; locked, so that no source goes meanwhile


def _organization(principal: Principal) -> UUID:
    if len(principal.organizations) != 1:
        raise Forbidden("Validations belong to one organization: use a key of it")
    return next(iter(principal.organizations))


def _seen_by(principal: Principal, statement: Select[Any]) -> Select[Any]:
    statement = statement.where(ValidationRow.org_id == _organization(principal))
    if principal.indexes is None:
        return statement
    return statement.where(ValidationRow.index_name == any_(literal(sorted(principal.indexes), ARRAY(Text))))


def _in(sources: Collection[UUID]) -> ColumnElement[bool]:
    return SourceRow.id == any_(literal([*sources], ARRAY(Uuid)))


def _key(query: str) -> str:
    """
    >>> _key(" What is  embodied AI?")
    'what is embodied ai?'
    """
    same = " ".join(query.split()).casefold()
    return same if len(same.encode()) <= _LONGEST_QUERY else f"sha256:{sha256(same.encode()).hexdigest()}"
