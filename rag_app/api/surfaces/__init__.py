"""One file per contract. A surface exists by being listed here."""

from rag_app.api.surface import Surface
from rag_app.api.surfaces import owner_qa, rag_retrieval, retrieval_validation
from rag_app.surfaces.lexybrain import administration_routes as lexybrain_admin
from rag_app.surfaces.lexybrain import routes as lexybrain

SURFACES: tuple[Surface, ...] = (
    rag_retrieval.SURFACE,
    retrieval_validation.SURFACE,
    owner_qa.SURFACE,
    lexybrain.SURFACE,
    lexybrain_admin.SURFACE,
)
