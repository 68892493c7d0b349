"""`where` in a request: LlamaIndex' MetadataFilters as JSON, as OpenAPI describes them.

`rag_app.retrieval.filters.parse_where` reads it and reports what is wrong and where.
"""

from typing import Annotated, Any

from llama_index.core.vector_stores.types import FilterCondition
from msgspec import Meta

from rag_app.domain import JsonObject
from rag_app.retrieval.filters import DEEPEST, LISTED, MOST_CONDITIONS, MOST_VALUES, OPERATORS

_EXAMPLE = {
    "filters": [
        {"key": "date", "operator": ">=", "value": "2026-01-01"},
        {
            "filters": [
                {"key": "lang", "operator": "!=", "value": "en"},
                {"key": "source_type", "operator": "in", "value": ["faq", "doc"]},
            ],
            "condition": "or",
        },
    ],
    "condition": "and",
}
_CONDITION = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "a field of the index, as listed by `/api/v1/indexes/{index}/fields`"},
        "operator": {
            "type": "string",
            "enum": [*dict.fromkeys(operator.value for operators in OPERATORS.values() for operator in operators)],
            "default": "==",
        },
        "value": {
            "description": (
                f"a value of the field's type; a list of up to {MOST_VALUES} values for {', '.join(sorted(LISTED))}; "
                "omitted for is_empty. A date without a time means the whole day, UTC"
            )
        },
    },
    "required": ["key"],
    "additionalProperties": False,
}


def _group(deep: int) -> JsonObject:
    """A group that may contain others, at most `deep` levels with itself."""
    members = [_CONDITION, _group(deep - 1)] if deep > 1 else [_CONDITION]
    return {
        "type": "object",
        "properties": {
            "filters": {"type": "array", "items": {"anyOf": members}, "minItems": 1},
            "condition": {"type": "string", "enum": [each.value for each in FilterCondition], "default": "and"},
        },
        "required": ["filters"],
        "additionalProperties": False,
    }


Where = Annotated[
    dict[str, Any],
    Meta(
        description=(
            "conditions on any field of the index, in the format of LlamaIndex's MetadataFilters. `condition` says whether "
            f"all (and), at least one (or) or none (not) of the `filters` must match. Groups may be nested {DEEPEST} deep, "
            f"with at most {MOST_CONDITIONS} conditions"
        ),
        examples=[_EXAMPLE],
        extra_json_schema={"extra": {"one_of": [_group(DEEPEST), {"type": "null"}]}},
    ),
]
