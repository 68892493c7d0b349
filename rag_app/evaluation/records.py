"""Validation runs; judgments: which passages of which sources answer a query; and the fits that are calibrated with them.

Runs and judgments belong to one organization: a caller with several has none here. Fits are stored with a generation: one of
the index, and one of each organization with enough questions. A fit judges the hits of every generation of its index with
the same embedding model and chunking, in each store: so it outlives a move, and a rebuild that changes neither.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from cachetools import TTLCache
from msgspec import Struct
from sqlalchemy import (
    Row,
    Select,
    Text,
    and_,
    case,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.database.session import Database
from rag_app.database.tables import matches_any
from rag_app.documents.generations import Generation
from rag_app.documents.ledger import Passages
from rag_app.documents.tables import generations_table, sources_table
from rag_app.domain import PUBLIC_ORGANIZATION, Forbidden, InvalidInput, JsonObject, Principal, Scope, storable
from rag_app.evaluation.tables import calibrations_table, judgments_table, validation_sources_table, validations_table
from rag_app.evaluation.validation import JudgedPassage, Span
from rag_app.retrieval.confidence import Basis, Fit
from rag_app.retrieval.index import IndexSpec

_LONGEST_QUERY = 2000  # bytes: an entry of an index in PostgreSQL holds 2,700
_NOBODY = UUID(int=0)
_DIGEST = "sha256:"  # what is kept of longer ones begins with it


class Validations(Struct, frozen=True):
    """A judgment is visible to whoever sees its source; a run to the keys that may search its index and see all
    sources that it found."""

    _database: Database

    async def record(
        self,
        principal: Principal,
        run: UUID,
        index: str,
        generation: int,
        top_k: int,
        report: Mapping[str, Any],
        judgments: Collection[tuple[str, UUID, Span | None]],
        found: Collection[UUID],
    ) -> None:
        """Store a report (JSON), and judgments that these passages (None: the whole source) answer these queries.

        `found`: the sources of all hits. Skips existing judgments, and sources that the principal may not see or that
        were deleted meanwhile.
        """
        org_id = _organization_id(principal)
        async with self._database.scoped(principal.scope()) as session:
            await session.execute(
                insert(validations_table).values(
                    id=run,
                    org_id=org_id,
                    user_id=principal.user,
                    index_name=index,
                    generation_id=generation,
                    top_k=top_k,
                    report=dict(report),
                )
            )
            sources = sorted({*found, *(source for _, source, _ in judgments)})
            await session.execute(_SOURCES_OF_RUN, {"run": run, "org": org_id, "sources": sources})
            if judgments:
                await session.execute(_JUDGE, _judge_values(org_id, index, judgments, grade=1))

    async def judge(
        self, principal: Principal, index: str, query: str, source: UUID, span: Span | None, grade: int
    ) -> None:
        """Store how well a passage of a source (None: all of it) answers a query, replacing an earlier judgment."""
        values = _judge_values(_organization_id(principal), index, [(query, source, span)], grade)
        async with self._database.scoped(principal.scope()) as session:
            await session.execute(_JUDGE, values)

    async def report(self, principal: Principal, run: UUID) -> Mapping[str, Any] | None:
        """The report given to `record`; None for an unknown or invisible run."""
        this = _limit_to_visible(principal, select(validations_table.c.report)).where(validations_table.c.id == run)
        rows = await self._database.read(principal.scope(), this)
        return {**rows[0].report} if rows else None

    async def newest(
        self, principal: Principal, limit: int, before: UUID | None = None
    ) -> Sequence[Row[tuple[UUID, str, int, Mapping[str, Any]]]]:
        """Run, index, top_k and report without its "results", for at most `limit` runs before the given one."""
        made = tuple_(validations_table.c.created_at, validations_table.c.id)
        report = validations_table.c.report.op("-", return_type=validations_table.c.report.type)(
            literal("results", Text)
        )
        statement = (
            _limit_to_visible(
                principal,
                select(validations_table.c.id, validations_table.c.index_name, validations_table.c.top_k, report),
            )
            .order_by(made.desc())
            .limit(limit)
        )
        if before is not None:
            then = select(validations_table.c.created_at).where(validations_table.c.id == before).scalar_subquery()
            statement = statement.where(made < tuple_(then, literal(before)))
        return await self._database.read(principal.scope(), statement)

    async def judgments(
        self, principal: Principal, index: str, query: str, hits: Collection[UUID]
    ) -> tuple[list[JudgedPassage], dict[UUID, Passages]]:
        """The passages that answer the query, of sources that the principal may see, and the content of those sources
        that are among `hits` (ids of sources).

        A passage is located by its text; if the text is gone, at its judged place. Queries that differ only in white
        space or case are the same.
        """
        first = func.row_number().over(partition_by=judgments_table.c.source_id) == 1
        content = case((first, sources_table.c.content))  # once, however many of its passages are judged
        found = (
            judgments_table.c.source_id,
            judgments_table.c.start,
            judgments_table.c.end,
            judgments_table.c.text,
            content,
        )
        rows = await self._database.read(
            principal.scope(), _select_judgments(principal, index, *found).where(judgments_table.c.query == _key(query))
        )
        contents = {source: content for source, *_, content in rows if content is not None}
        texts = {source: "\n\n".join(str(each["text"]) for each in content) for source, content in contents.items()}
        passages = [
            (source, None if start is None else _now((start, end), judged, texts[source]))
            for source, start, end, judged, _ in rows
        ]
        return passages, {source: content for source, content in contents.items() if source in hits}

    async def recorded_judgments(self, principal: Principal, index: str) -> dict[str, dict[str, int]]:
        """All judgments on an index: query -> external id of a source that the principal may see -> grade.

        Queries are normalised to lower case; those too long to be stored are omitted.
        """
        of = judgments_table.c.query, sources_table.c.external_id
        statement = (
            _select_judgments(principal, index, *of, func.max(judgments_table.c.grade)).group_by(*of).order_by(*of)
        )
        kept = statement.where(judgments_table.c.query.not_like(f"{_DIGEST}%"))
        found: dict[str, dict[str, int]] = {}
        for query, source, grade in await self._database.read(principal.scope(), kept):
            found.setdefault(query, {})[source] = grade
        return found

    async def read_passages(self, principal: Principal, sources: Collection[UUID]) -> dict[UUID, Passages]:
        """The passages of those sources that the principal may see, and so may judge."""
        _organization_id(principal)
        if not sources:
            return {}
        statement = select(sources_table.c.id, sources_table.c.content).where(
            matches_any(sources_table.c.id, sources), sources_table.c.deleted_at.is_(None)
        )
        return {source: content for source, content in await self._database.read(principal.scope(), statement)}  # noqa: C416 - rows


def check_comment(comment: str | None) -> None:
    """Raises InvalidInput for a text that PostgreSQL cannot keep."""
    if comment is not None and comment != storable(comment):
        raise InvalidInput("comment", None, "must not contain NUL characters or unpaired surrogates")


async def held_sources(session: AsyncConnection, ids: Collection[UUID]) -> Sequence[Row[Any]]:
    """Lock the sources that the session sees, so that they cannot be deleted until the transaction ends.

    Returns their ids and organizations.
    """
    if not ids:
        return []
    statement = (
        select(sources_table.c.id, sources_table.c.org_id)
        .where(matches_any(sources_table.c.id, ids), sources_table.c.deleted_at.is_(None))
        .order_by(sources_table.c.id)
    )
    return (await session.execute(statement.with_for_update(read=True, key_share=True))).all()


async def expected_source(session: AsyncConnection, found: Collection[UUID], field: str, name: str) -> Row[Any]:
    """The one source that a user's feedback names, held as by `held_sources`. `found` are all that have the name.

    Raises InvalidInput for `field` if the session sees none of them, or several.
    """
    rows = await held_sources(session, found)
    if not rows:
        raise InvalidInput(field, name, "must be a source that you may see")
    if len(rows) > 1:
        raise InvalidInput(field, name, "matches several sources; send an id instead")
    return rows[0]


async def judge(
    session: AsyncConnection,
    principal: Principal,
    index: str,
    query: str,
    source: Row[Any],
    *,
    feedback: UUID | None = None,
    answer: UUID | None = None,
) -> None:
    """Record the judgment of a user's feedback: that this whole source answers the query. It is deleted with the feedback.

    The feedback is on a message, or on a kept `answer`. The source's own organization judges it. A public source is
    judged by the principal's organization; if the principal has none, or several, nothing is recorded.
    """
    org_id = source.org_id
    if org_id == PUBLIC_ORGANIZATION:
        own = principal.organizations - {PUBLIC_ORGANIZATION}
        if len(own) != 1:
            return
        (org_id,) = own
    values = {"org_id": org_id, "index_name": index, "query": _key(query), "source_id": source.id}
    await session.execute(insert(judgments_table).values(**values, feedback_id=feedback, answer_id=answer))


_SOURCES_OF_RUN = text(
    """
    INSERT INTO validation_sources (validation_id, org_id, source_id, audience_id, private)
    SELECT :run, :org, seen.* FROM (
        SELECT id, audience_id, visibility = 'user' FROM sources
        WHERE id = ANY(CAST(:sources AS uuid[])) ORDER BY id FOR KEY SHARE
    ) AS seen
    """
)
_JUDGE = text(
    r"""
    WITH seen AS MATERIALIZED (
        SELECT s.id, s.index_name, (
            SELECT string_agg(passage ->> 'text', E'\n\n' ORDER BY place)
            FROM jsonb_array_elements(s.content) WITH ORDINALITY AS p(passage, place)
        ) AS content
        FROM sources s
        WHERE s.id = ANY(CAST(:sources AS uuid[])) AND s.index_name = :index AND s.deleted_at IS NULL
        FOR KEY SHARE
    )
    INSERT INTO judgments AS known (org_id, index_name, query, source_id, "start", "end", text, grade)
    SELECT DISTINCT CAST(:org AS uuid), seen.index_name, judged.query, seen.id, judged."start", judged."end",
        nullif(substr(seen.content, judged."start" + 1, judged."end" - judged."start"), ''), CAST(:grade AS integer)
    FROM unnest(
        CAST(:queries AS text[]), CAST(:sources AS uuid[]), CAST(:starts AS integer[]), CAST(:ends AS integer[])
    ) AS judged(query, source_id, "start", "end")
    JOIN seen ON seen.id = judged.source_id
    ORDER BY judged.query, seen.id, judged."start", judged."end"
    ON CONFLICT (org_id, index_name, query, source_id, "start", "end", feedback_id, answer_id)
    DO UPDATE SET text = excluded.text, grade = excluded.grade
    WHERE (known.text, known.grade) IS DISTINCT FROM (excluded.text, excluded.grade)
    """
)
# ordered, so that two runs of the same queries wait for each other in turn; locked, so that no source goes meanwhile.
# That a source is seen is row-level security's doing: the foreign key would take anybody's.


def _judge_values(
    org_id: UUID, index: str, judgments: Collection[tuple[str, UUID, Span | None]], grade: int
) -> JsonObject:
    return {
        "org": org_id,
        "index": index,
        "queries": [_key(query) for query, _, _ in judgments],
        "sources": [source for _, source, _ in judgments],
        "starts": [span and span[0] for *_, span in judgments],
        "ends": [span and span[1] for *_, span in judgments],
        "grade": grade,
    }


def _organization_id(principal: Principal) -> UUID:
    if len(principal.organizations) != 1:
        raise Forbidden("Validation runs belong to one organization; use an API key of that organization")
    return next(iter(principal.organizations))


def _limit_to_visible(principal: Principal, statement: Select[Any]) -> Select[Any]:
    of = validation_sources_table.c
    hidden = or_(
        and_(of.audience_id.is_not(None), not_(matches_any(of.audience_id, principal.audiences))),
        and_(of.private, validations_table.c.user_id.is_distinct_from(principal.user or _NOBODY)),
        and_(of.source_id.is_not(None), not_(exists().where(sources_table.c.id == of.source_id))),
    )
    statement = statement.where(
        validations_table.c.org_id == _organization_id(principal),
        not_(exists().where(of.validation_id == validations_table.c.id, hidden)),
    )
    if principal.indexes is None:
        return statement
    return statement.where(matches_any(validations_table.c.index_name, sorted(principal.indexes)))


def _select_judgments(principal: Principal, index: str, *columns: Any) -> Select[Any]:
    return (
        select(*columns)
        .join(sources_table, sources_table.c.id == judgments_table.c.source_id)
        .where(
            judgments_table.c.org_id == _organization_id(principal),
            judgments_table.c.index_name == index,
            judgments_table.c.grade > 0,
            sources_table.c.deleted_at.is_(None),
        )
    )


def _now(judged: Span, text: str | None, content: str) -> Span:
    """The present place of a judged span's text: the occurrence nearest to its old place, else the old place.

    >>> _now((0, 4), "Yes.", "No. Yes. Yes."), _now((0, 4), "Yes.", "No.")
    ((4, 8), (0, 4))
    """
    if text is None:
        return judged
    start = judged[0]
    before, after = content.rfind(text, 0, start + len(text)), content.find(text, start)
    places = [place for place in (before, after) if place >= 0]
    if not places:
        return judged
    nearest = min(places, key=lambda place: abs(place - start))
    return nearest, nearest + len(text)


def _key(query: str) -> str:
    """
    >>> _key(" What is  embodied AI?")
    'what is embodied ai?'
    """
    same = " ".join(query.split()).casefold()
    return same if len(same.encode()) <= _LONGEST_QUERY else f"{_DIGEST}{sha256(same.encode()).hexdigest()}"


_MOST_REMEMBERED = 4096
_SECONDS = 2.0  # how long a process may go on with a fit after another one is kept


class Calibrations:
    """What `rag-app calibrate` has fitted. The index's own fit belongs to the public organization, which everybody sees."""

    def __init__(
        self,
        database: Database,
        store_of: Callable[[IndexSpec], str],
        shipped: Callable[[IndexSpec], tuple[Fit, Basis]],
    ) -> None:
        """`store_of` returns the kind of an index's vector store; `shipped` returns the fit to use if none is stored."""
        self._database, self._store_of, self._shipped = database, store_of, shipped
        self._remembered: TTLCache[tuple[str, frozenset[UUID]], tuple[Fit, Basis]] = TTLCache(
            _MOST_REMEMBERED, _SECONDS
        )

    async def keep(self, generation: int, organization: UUID, fit: Fit) -> None:
        """Store a fit, replacing the previous one. `generation` is its id."""
        made = insert(calibrations_table).values(
            generation_id=generation, org_id=organization, fit=fit.model_dump(mode="json")
        )
        replaced = made.on_conflict_do_update(
            index_elements=[calibrations_table.c.generation_id, calibrations_table.c.org_id],
            set_={"fit": made.excluded.fit, "created_at": func.now()},
        )
        async with self._database.scoped(Scope(frozenset({organization}))) as session:
            await session.execute(replaced)
        self._remembered.clear()

    async def fit_for(self, spec: IndexSpec, scope: Scope, *, anew: bool = False) -> tuple[Fit, Basis]:
        """The fit for the scope's hits, at most two seconds old, or read `anew`.

        For the active generation: the newest fit of the scope's one organization besides the public one, else of the
        index, else the shipped one.
        """
        key = spec.name, scope.organizations
        if not anew and (known := self._remembered.get(key)) is not None:
            return known
        active = generations_table.alias()
        of_active = (
            select(calibrations_table.c.org_id, calibrations_table.c.fit)
            .join(generations_table)
            .join(
                active,
                and_(
                    *(
                        active.c[name] == generations_table.c[name]
                        for name in ("index", "embedding_model", "dimension")
                    ),
                    active.c.settings["chunking"].is_not_distinct_from(generations_table.c.settings["chunking"]),
                ),
            )
            .where(active.c.index == spec.name, active.c.store == self._store_of(spec), active.c.state == "active")
            .order_by(calibrations_table.c.created_at)
        )
        rows = await self._database.read(scope, of_active)
        fits = {organization: fit for organization, fit in rows}  # noqa: C416 - rows
        own = scope.organizations - {PUBLIC_ORGANIZATION}
        found = self._shipped(spec)
        if len(own) == 1 and (fit := fits.get(next(iter(own)))) is not None:
            found = Fit.model_validate(fit), "organization"
        elif PUBLIC_ORGANIZATION in fits:
            found = Fit.model_validate(fits[PUBLIC_ORGANIZATION]), "index"
        self._remembered[key] = found
        return found

    async def list_lost(self, generation: Generation, organizations: Collection[UUID]) -> set[UUID]:
        """Those of the organizations whose fits to the index do not judge the hits of this generation."""
        kept = and_(
            generations_table.c.embedding_model == generation.embedding_model,
            generations_table.c.dimension == generation.dimension,
            generations_table.c.settings["chunking"].is_not_distinct_from(generation.settings.get("chunking")),
        )
        fitted = (
            select(calibrations_table.c.org_id)
            .join(generations_table)
            .where(generations_table.c.index == generation.index)
            .group_by(calibrations_table.c.org_id)
            .having(~func.bool_or(kept))
        )
        return {organization for (organization,) in await self._database.read(Scope(frozenset(organizations)), fitted)}
