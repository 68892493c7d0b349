"""Fields that requests and responses of several surfaces share, each with its OpenAPI description."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from uuid import UUID

from litestar.params import QueryParameter
from llama_index.core.vector_stores.types import FilterCondition
from msgspec import Meta, Struct, convert

from rag_app.domain import JsonObject, Mode
from rag_app.retrieval.filters import DEEPEST, LIST_OPERATORS, MOST_CONDITIONS, MOST_VALUES, OPERATORS

T = TypeVar("T", bound=Struct)

COMPONENT = "#/components/schemas/"
"""Where the OpenAPI document has its named schemas."""

# What is white space to Python and what to JSON Schema differ by some: none of either counts here.
WORD = r"^[^\s\x00\x1c-\x1f\x85\ufeff]+$"
"""A pattern: one or more characters, none of them white space or NUL."""
NOT_BLANK = r"^[^\x00]*[^\s\x00\x1c-\x1f\x85\ufeff][^\x00]*$"
"""A pattern: at least one character that is not white space, no NUL."""


def limit_text(most: int, also: str = "", pattern: str = NOT_BLANK, **more: Any) -> Meta:
    """The bounds of a text of 1 to `most` characters, not all of them blank. `also` is said of it, too."""
    return Meta(
        min_length=1,
        max_length=most,
        pattern=pattern,
        description=f"a text of 1 to {most} characters, not all of them blank{also}",
        **more,
    )


def choice_of(names: Iterable[str]) -> Any:
    """The type of one of the names of a registry. mypy, which cannot know them, is told `str` where it is used."""
    said = tuple(map(str, names))
    return Annotated[Literal[said], Meta(description=f"one of {', '.join(said)}")]


def show_items(longest: int, pattern: str = NOT_BLANK) -> JsonObject:
    """What Litestar does not say of the texts in a list that may be null."""
    return {"extra": {"items": {"minLength": 1, "maxLength": longest, "pattern": pattern}}}


MOST_EARLIER, LONGEST_EARLIER = 20, 4000
EarlierQuestions = Annotated[
    list[Annotated[str, limit_text(LONGEST_EARLIER)]],
    Meta(
        max_length=MOST_EARLIER,
        description=f"a list of at most {MOST_EARLIER} texts: the asker's questions before this one, oldest first; a follow-up such as "
        '"and for children?" is searched together with the last of them',
        examples=[["What does a swimming lesson cost?"]],
        extra_json_schema=show_items(LONGEST_EARLIER),
    ),
]

PageSize = Annotated[int, QueryParameter(ge=1, le=100, description="maximum number of results to return")]

if TYPE_CHECKING:
    SearchMode = str
else:
    SearchMode = choice_of(sorted({*Mode} - {Mode.TEXT}))
"""Dense orders results by the similarity that they show; hybrid counts words as well. A request without one is searched by
the index's `search_mode`."""

Warnings = Annotated[
    list[str],
    Meta(
        description="what to know about the result: parts of the question that were not searched, an uncalibrated "
        "confidence, a step that failed; absent if there is nothing"
    ),
]


RemovedCount = Annotated[
    int, Meta(description="number of sentences removed because no source supports them; absent if none was removed")
]


class AnswerRemarks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer says beside its contract's fields; each is absent where there is nothing to say."""

    removed_sentences: RemovedCount = 0
    understood: Annotated[
        str,
        Meta(
            description="how a question about records was understood; absent if the answer was not computed from record fields",
            examples=["your 4 listings, bestseller first"],
        ),
    ] = ""
    language: Annotated[
        str, Meta(description="the language of the answer, two letters; absent if it is English", examples=["de"])
    ] = ""
    courtesy: Annotated[
        bool,
        Meta(
            description="true if the message was only a greeting or thanks, and the answer replies to it; absent otherwise"
        ),
    ] = False


PASSAGES = (
    "the passage behind each [Source N] of this source, in the order of the text; absent if it is the same for all"
)


class QuotedPassage(Struct, frozen=True):
    """A passage of a source: characters `start` to `end` of the text of a chunk."""

    quote: Annotated[str, Meta(examples=["more than we can spend"])]
    chunk_id: UUID
    start: Annotated[int, Meta(ge=0, examples=[19])]
    end: Annotated[int, Meta(ge=0, examples=[41])]


Passages = Annotated[tuple[QuotedPassage, ...], Meta(description=PASSAGES)]


class SourceReference(Struct, frozen=True, kw_only=True):
    """The source that a result is from, and the path that opens the passage."""

    external_id: Annotated[str | None, Meta(description="the external id of the source")]
    file_name: str | None
    row: Annotated[
        int | None, Meta(description="if the source is a row of a table: its number in `file_name`", examples=[7])
    ]
    sheet: Annotated[
        str | None, Meta(description="if the source is a row of a workbook: the sheet that contains the row")
    ]
    link: Annotated[str, Meta(description="the path of the passage")]


def as_wire(of: type[T], inner: object, **others: Any) -> T:
    """A response from what it shows: fields come from the attributes of the same name, or from `others`."""
    values = {name: others[name] if name in others else getattr(inner, name) for name in of.__struct_fields__}
    return convert(SimpleNamespace(**values), of, from_attributes=True)


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
    "title": "MetadataFilter",
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
                f"a value of the field's type; a list of up to {MOST_VALUES} values for {', '.join(sorted(LIST_OPERATORS))}; "
                "omitted for is_empty. A date without a time means the whole day, UTC"
            )
        },
    },
    "required": ["key"],
    "additionalProperties": False,
}


_GROUP = {
    "title": "MetadataFilters",
    "type": "object",
    "description": f"Conditions, and groups of them up to {DEEPEST} deep.",
    "properties": {
        "filters": {
            "type": "array",
            "items": {"anyOf": [{"$ref": f"{COMPONENT}MetadataFilter"}, {"$ref": f"{COMPONENT}MetadataFilters"}]},
            "minItems": 1,
        },
        "condition": {"type": "string", "enum": [each.value for each in FilterCondition], "default": "and"},
    },
    "required": ["filters"],
    "additionalProperties": False,
}
_WHERE = {
    "$ref": f"{COMPONENT}MetadataFilters",
    "$defs": {"MetadataFilter": _CONDITION, "MetadataFilters": _GROUP},  # these become components
}

# LlamaIndex' MetadataFilters as JSON; `rag_app.retrieval.filters.parse_where` reads it and reports what is wrong and where.
Where = Annotated[
    dict[str, Any],
    Meta(
        description=(
            "conditions on any field of the index, in the format of LlamaIndex's MetadataFilters. `condition` says whether "
            f"all (and), at least one (or) or none (not) of the `filters` must match. Groups may be nested {DEEPEST} deep, "
            f"with at most {MOST_CONDITIONS} conditions"
        ),
        examples=[_EXAMPLE],
        extra_json_schema={"extra": {"one_of": [_WHERE, {"type": "null"}]}},
    ),
]
