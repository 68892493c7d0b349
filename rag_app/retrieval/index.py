"""What an index declares: its folder's index.toml, read and checked."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rag_app.domain import FieldType, Misconfigured, NotFound

BASE_FIELDS: Mapping[str, FieldType] = {
    "org_id": FieldType.UUID,
    "source_id": FieldType.UUID,
    "source_type": FieldType.KEYWORD,
    "lang": FieldType.KEYWORD,
    "date": FieldType.TIME,
}
"""The fields that every index has; index.toml declares the others."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Chunking(_Strict):
    """`size` and `overlap` in tokens of the embedding model, title and section counted in."""

    size: int = Field(254, ge=32, le=8192)
    overlap: int = Field(20, ge=0, le=512)


class Fusion(_Strict):
    """Weights of the two legs in a hybrid query; what chose the defaults stands in docs/retrieval.md."""

    dense: float = Field(0.6, ge=0, le=1)
    lexical: float = Field(0.4, ge=0, le=1)
    depth: int = Field(100, ge=10, le=1000)


class Bm25(_Strict):
    """Robertson's BM25."""

    k1: float = Field(1.2, gt=0, le=3)
    b: float = Field(0.75, ge=0, le=1)


class ConfidenceRule(_Strict):
    """How an index judges its hits.

    `signal`: "fitted" is a probability (retrieval/confidence.py). A fixed rule compares a cosine instead, that of the
    best hit ("best") or the mean of the five best ("mean5"): from `answer_from` on an answer is given, from `high` on
    it is called "high". From `answer_from` on a chunk counts as relevant where nobody has judged it, too.
    """

    signal: Literal["fitted", "best", "mean5"] = "fitted"
    answer_from: float = Field(0.45, ge=-1, le=1)
    high: float = Field(0.65, ge=-1, le=1)

    @model_validator(mode="after")
    def _ordered(self) -> "ConfidenceRule":
        if self.high < self.answer_from:
            raise ValueError("high must not be below answer_from")
        return self

    @property
    def cosine(self) -> Literal["best", "mean5"]:
        """Which cosine the thresholds are compared with."""
        return "mean5" if self.signal == "mean5" else "best"


class IndexSpec(_Strict):
    """One index: what may be in it, how it is cut, searched and judged.

    >>> spec = IndexSpec(name="notes", source_types=("note",), default_source_type="note")
    >>> spec.all_fields["date"].value
    'time'
    """

    name: Name
    description: str = ""
    aliases: tuple[Name, ...] = ()
    source_types: tuple[Name, ...] = Field(min_length=1)
    default_source_type: Name
    shown_types: Mapping[Name, Name] = {}
    languages: tuple[str, ...] = ("en",)
    fields: Mapping[Name, FieldType] = {}
    chunking: Chunking = Chunking()
    fusion: Fusion = Fusion()
    bm25: Bm25 = Bm25()
    confidence: ConfidenceRule = ConfidenceRule()
    vector_store: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "IndexSpec":
        if self.default_source_type not in self.source_types:
            raise ValueError(f"default_source_type {self.default_source_type!r} is not one of source_types")
        if taken := sorted(set(self.fields) & RESERVED_FIELDS):
            raise ValueError(f"fields: {', '.join(taken)} cannot be declared: every chunk has them already")
        shown = set(self.shown_types.values())
        if unknown := sorted((shown | set(self.shown_types)) - set(self.source_types)):
            raise ValueError(f"shown_types: {', '.join(unknown)}: not among source_types")
        if again := sorted(shown & set(self.shown_types)):
            raise ValueError(f"shown_types: {', '.join(again)}: shown as another type itself")
        return self

    @property
    def all_fields(self) -> dict[str, FieldType]:
        """What a filter may name."""
        return {**BASE_FIELDS, **self.fields}

    def shown(self, source_type: str) -> str:
        """The type as a client that knows fewer types is told it (`shown_types`); others are shown as they are.

        >>> types = ("doc", "risk_rule")
        >>> spec = IndexSpec(
        ...     name="notes", source_types=types, default_source_type="doc", shown_types={"risk_rule": "doc"}
        ... )
        >>> spec.shown("risk_rule"), spec.shown("doc")
        ('doc', 'doc')
        """
        return self.shown_types.get(source_type, source_type)


RESERVED_FIELDS = frozenset(BASE_FIELDS) | {
    "id",
    "text",
    "title",
    "uri",
    "section",
    "page",
    "position",
    "site_id",
    "private_to",
    "owner_id",
    "version",
    "embedding",
    "metadata",
    "chunk_id",
    "score",
    "organization",
    "visibility",
    "external_id",
    "file_name",
    "untyped",
}


def load_index(folder: Path) -> IndexSpec:
    """Read `folder/index.toml`; the folder's name is the index's.

    Raises Misconfigured with the file and what is wrong in it.
    """
    file = folder / "index.toml"
    try:
        return IndexSpec(name=folder.name, **tomllib.loads(file.read_text("utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError, TypeError) as error:
        raise Misconfigured(f"{file}: {error}") from error


def load_indexes(folder: Path) -> dict[str, IndexSpec]:
    """Every index below `folder`, by name."""
    return {path.parent.name: load_index(path.parent) for path in sorted(folder.glob("*/index.toml"))}


def find_index(indexes: Mapping[str, IndexSpec], name: str) -> IndexSpec:
    """By name or alias. Raises NotFound with the names there are."""
    for spec in indexes.values():
        if name == spec.name or name in spec.aliases:
            return spec
    raise NotFound("index", name, indexes)
