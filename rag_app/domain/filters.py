"""What a query may ask of chunks. docs/filters.md is the specification."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

    Filters = tuple[MetadataFilter | MetadataFilters, ...]
else:  # nothing in here needs LlamaIndex at runtime
    Filters = tuple
"""LlamaIndex' conditions and groups of conditions; all of them hold. Without any, nothing is asked."""

Value = str | int | float | bool


class FieldType(StrEnum):
    """The type of a field that an index declares. Times are epoch seconds inside."""

    KEYWORD = "keyword"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"
    TAGS = "tags"
    UUID = "uuid"
