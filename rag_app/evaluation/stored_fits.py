"""Fits stored with a generation: one of the index, and one of each organization with enough questions.

A fit judges the hits of every generation of its index with the same embedding model and chunking, in each store: so it
outlives a move, and a rebuild that changes neither.
"""

from collections.abc import Callable, Collection
from uuid import UUID

from cachetools import TTLCache
from sqlalchemy import and_, func, select
from sqlalchemy.dialects.postgresql import insert

from rag_app.database.session import Database
from rag_app.documents.generations import Generation
from rag_app.documents.tables import generations_table
from rag_app.domain import PUBLIC_ORGANIZATION, Scope
from rag_app.evaluation.tables import calibrations_table
from rag_app.retrieval.confidence import Basis, Fit
from rag_app.retrieval.index import IndexSpec

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
