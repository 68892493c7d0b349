"""What a filter means, in plain Python: the oracle of the stores."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

_HOLDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda value, given: value in given,
    "nin": lambda value, given: value not in given,
    "contains": lambda value, given: given in value,
    "any": lambda value, given: any(each in value for each in given),
    "all": lambda value, given: all(each in value for each in given),
}  # fmt: skip


def holds(given: MetadataFilter | MetadataFilters, fields: Mapping[str, Any]) -> bool:
    """Whether a checked filter holds for a chunk with these fields; times as epoch seconds."""
    if isinstance(given, MetadataFilters):
        each = [holds(one, fields) for one in given.filters]
        return {"and": all(each), "or": any(each), "not": not any(each)}[given.condition or "and"]
    value = fields.get(given.key)
    missing = value is None or value == []
    if given.operator == "is_empty":
        return missing
    return not missing and bool(_HOLDS[given.operator](value, given.value))
