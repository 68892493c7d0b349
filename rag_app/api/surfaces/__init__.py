"""One file per contract. A surface exists by being listed here."""

from rag_app.api.surface import Surface
from rag_app.api.surfaces import rag_retrieval

SURFACES: tuple[Surface, ...] = (rag_retrieval.SURFACE,)
