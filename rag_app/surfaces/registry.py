"""A room for each contract. A surface exists by being listed here."""

from rag_app.http.surface import Surface
from rag_app.surfaces.answers import routes as answer_feedback
from rag_app.surfaces.indexes import routes as indexes
from rag_app.surfaces.jobs import routes as jobs
from rag_app.surfaces.knowledge import routes as rag_retrieval
from rag_app.surfaces.lexybrain import administration_routes as lexybrain_admin, routes as lexybrain
from rag_app.surfaces.management import routes as management
from rag_app.surfaces.owner import routes as owner_qa
from rag_app.surfaces.playground import routes as playground
from rag_app.surfaces.sources import routes as sources
from rag_app.surfaces.validation import routes as retrieval_validation

SURFACES: tuple[Surface, ...] = (
    rag_retrieval.SURFACE,
    # those below are a part of /api/v1, and come before the surface that has the rest of it
    answer_feedback.SURFACE,
    management.SURFACE,
    jobs.SURFACE,
    playground.SURFACE,
    sources.SURFACE,
    indexes.SURFACE,
    retrieval_validation.SURFACE,
    owner_qa.SURFACE,
    lexybrain.SURFACE,
    lexybrain_admin.SURFACE,
)
