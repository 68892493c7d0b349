"""What an index declares: its folder's index.toml, read and checked."""

import tomllib
from collections.abc import Container, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
    with_config,
)

from rag_app.domain import (
    FieldType,
    Misconfigured,
    Mode,
    NotFound,
    Principal,
    RowsRule,
    describe_problem,
    rules_as_written,
)
from rag_app.retrieval.formulas import is_whole, names_in

BASE_FIELDS: Mapping[str, FieldType] = {
    "org_id": FieldType.UUID,
    "source_id": FieldType.UUID,
    "source_type": FieldType.KEYWORD,
    "lang": FieldType.KEYWORD,
    "date": FieldType.TIME,
}
"""The fields that every index has; index.toml declares the others."""

LAYOUT = 2
"""Of what a generation is stored in. A generation of another one is not read, but built anew."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]


with_config(ConfigDict(extra="forbid"))(RowsRule)
Rows = Annotated[tuple[RowsRule, ...], BeforeValidator(rules_as_written)]


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
    """Robertson's BM25. Chunks are cut to about the same length, so that a shorter one is mostly the rest of a source:
    length counts less than for whole documents (docs/adr/0035-bm25-of-passages.md)."""

    k1: float = Field(0.9, gt=0, le=3)
    b: float = Field(0.4, ge=0, le=1)


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
    def _check_order(self) -> "ConfidenceRule":
        if self.high < self.answer_from:
            raise ValueError("high must not be below answer_from")
        return self

    @property
    def cosine(self) -> Literal["best", "mean5"]:
        """Which cosine the thresholds are compared with."""
        return "mean5" if self.signal == "mean5" else "best"


Phrases = tuple[Annotated[str, Field(min_length=1, max_length=80)], ...]
Sentences = tuple[Annotated[str, Field(min_length=1, max_length=400)], ...]


class Vocabulary(_Strict):
    """How people speak of a field, so that a question about records can be read without a model.

    `words` name the field ("price"), `unit` is what its figures count, as it is written behind them ("dollars"), and `decimals`
    how many of them a figure is written with at all times. `high`
    and `low` ask for its largest and smallest values ("dearest", "cheapest"); `best` says which of them is the best.
    `adds_up`: its figures make a total, so that "how much" asks for their sum; `totals` are words that ask for it by
    themselves ("revenue"), `earned` those that ask for it of the records with the values `earned_of` alone: "earned" of
    what is done; where it names none, of those that are not `void`. `values` are other words for a value
    ("out of stock" for false), or for a condition on a number ("rising" for ">0"). `levels` are the values of a field of
    words in their order, the lowest first: `high` asks for the highest one that there is. `void` are those of what came to
    nothing, so that nobody has paid for it. `kind` is the kind of record
    (`Kind`) that is meant where a question names the field and no kind; if the index has no other sources, it may be omitted. `own` marks the boolean field that is false for
    records of others: "mine" and "ours" leave those out. `asked` is the question's word that asks for a field of words where it
    names none. `formula` computes the field from others where a source does
    not say it (formulas.py).
    """

    words: Phrases = ()
    unit: str = ""
    decimals: Annotated[int, Field(ge=0, le=6)] = 0
    best: Literal["high", "low"] | None = None
    high: Phrases = ()
    low: Phrases = ()
    adds_up: bool = False
    totals: Phrases = ()
    earned: Phrases = ()
    earned_of: Mapping[Name, str] = {}
    values: Mapping[str, Phrases] = {}
    levels: Phrases = ()
    void: Phrases = ()
    kind: Name | None = None
    own: bool = False
    asked: Literal["who", "where"] | None = None
    formula: str = ""

    @field_validator("formula")
    @classmethod
    def _check_formula(cls, formula: str) -> str:
        if formula:
            names_in(formula)
        return formula


class Kind(_Strict):
    """A kind of record, as people speak of it: sources of these types that have the fields `having`, and none of those that it
    `lacks`.

    `words` name it, the first one in answers, with `plural` for several where that is not an English one. `holds` are
    words of other kinds that it consists of ("the terms on my watchlist"). `by` is the field
    that "the best" and "the strongest" of them are found by. `sentence` tells one of them: the first whose {fields} the
    record has; title and date may stand in it, too. `text`: a record that is found alone is told with the first sentences
    of its text as well. `every`: there is one record of it for each day, week, month or year, with these `figures`: "in
    which month" asks for one of them.
    """

    words: Phrases
    plural: str = ""
    source_types: tuple[Name, ...] = Field(min_length=1)
    having: tuple[Name, ...] = ()
    lacks: tuple[Name, ...] = ()
    holds: Phrases = ()
    by: Name | None = None
    sentence: Annotated[Sentences, BeforeValidator(lambda said: [said] if isinstance(said, str) else said)] = ()
    text: bool = False
    every: Literal["day", "week", "month", "year"] | None = None
    figures: tuple[Name, ...] = ()


class IndexSpec(_Strict):
    """One index: what may be in it, how it is cut, searched and judged.

    `dated_types` are the source types whose date is that of what they tell of: words of time choose among them. The date
    of another, a policy, is that of its last change. None: all types.

    `search_mode` is how a search looks for chunks where the request names no mode: `/api/rag/search`, `/owner/search`,
    `/api/v1/indexes/{index}/search`.

    An entry of `[fields]` is a type, or a table of a type and its `Vocabulary`. `[records]` are the kinds of records that
    questions may be asked about, `said` words that say nothing in such a question here.

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
    vocabulary: Mapping[Name, Vocabulary] = {}
    records: Mapping[Name, Kind] = {}
    said: Phrases = ()
    chunking: Chunking = Chunking()
    search_mode: Literal[Mode.DENSE, Mode.HYBRID] = Mode.DENSE
    fusion: Fusion = Fusion()
    bm25: Bm25 = Bm25()
    confidence: ConfidenceRule = ConfidenceRule()
    vector_store: str | None = None
    rows: Rows = ()
    dated_types: tuple[Name, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _split_fields(cls, said: Any) -> Any:
        """A table among the fields is a type and a vocabulary."""
        if not isinstance(said, dict) or not isinstance(said.get("fields", {}), dict):
            return said
        fields, vocabulary = {**said.get("fields", {})}, {**said.get("vocabulary", {})}
        for name, declared in fields.items():
            if isinstance(declared, dict):
                vocabulary[name] = {key: value for key, value in declared.items() if key != "type"}
                fields[name] = declared.get("type")
        return said | {"fields": fields, "vocabulary": vocabulary}

    @model_validator(mode="after")
    def _consistent(self) -> "IndexSpec":
        _check_declared("dated_types", self.dated_types or (), self.source_types, "not among source_types")
        if self.default_source_type not in self.source_types:
            raise ValueError(f"default_source_type {self.default_source_type!r} is not one of source_types")
        if taken := sorted(set(self.fields) & RESERVED_FIELDS):
            raise ValueError(f"fields: {', '.join(taken)} cannot be declared: every chunk has them already")
        for rule in self.rows:
            _check_declared("rows", rule.undeclared_columns(self.fields), (), "not declared in fields")
            if rule.source_type not in (None, *self.source_types):
                raise ValueError(f"rows: source_type {rule.source_type!r} is not one of source_types")
        shown = set(self.shown_types.values())
        _check_declared("shown_types", shown | {*self.shown_types}, self.source_types, "not among source_types")
        if again := sorted(shown & set(self.shown_types)):
            raise ValueError(
                f"{', '.join(again)} cannot be a target in shown_types, because it is itself mapped to another type"
            )
        self._check_words()
        return self

    def _check_words(self) -> None:
        """Raises ValueError where words are of a field, a type or a kind that is not declared."""
        for name, words in self.vocabulary.items():
            _check_declared(f"fields.{name}", {name}, self.all_fields)
            _check_declared(f"fields.{name}: kind", {words.kind} - {None}, self.records)
            if words.formula:
                self._check_formula(name, words.formula)
            if words.own and self.all_fields[name] is not FieldType.BOOLEAN:
                raise ValueError(f"fields.{name}: own is for a boolean field")
            if (words.levels or words.void) and self.all_fields[name] is not FieldType.KEYWORD:
                raise ValueError(f"fields.{name}: levels and void are for a keyword field")
        for name, kind in self.records.items():
            _check_declared(f"records.{name}: source_types", kind.source_types, self.source_types)
            _check_declared(f"records.{name}", {*kind.having, *kind.lacks, kind.by} - {None}, self.all_fields)
            told = set().union(*map(template_fields, kind.sentence))
            _check_declared(f"records.{name}: sentence", told, {"title", *self.all_fields})

    def _check_formula(self, name: str, formula: str) -> None:
        """Raises ValueError where it names what is not declared, or an integer may be computed that is no whole number."""
        _check_declared(f"fields.{name}: formula", names_in(formula), self.fields)
        whole = {each for each, kind in self.fields.items() if kind is FieldType.INTEGER}
        if name in whole and not is_whole(formula, whole):
            raise ValueError(
                f'fields.{name}: the formula "{formula}" divides, or is not of integers only: its type is "number"'
            )

    @cached_property
    def built_with(self) -> dict[str, object]:
        """What a generation depends on, as JSON."""
        return {"layout": LAYOUT, **self.model_dump(mode="json", include={"chunking", "fields", "languages"})}

    @property
    def all_fields(self) -> dict[str, FieldType]:
        """What a filter may name."""
        return {**BASE_FIELDS, **self.fields}

    def show_type(self, source_type: str) -> str:
        """The type as a client that knows fewer types is told it (`shown_types`); others are shown as they are.

        >>> types = ("doc", "risk_rule")
        >>> spec = IndexSpec(
        ...     name="notes", source_types=types, default_source_type="doc", shown_types={"risk_rule": "doc"}
        ... )
        >>> spec.show_type("risk_rule"), spec.show_type("doc")
        ('doc', 'doc')
        """
        return self.shown_types.get(source_type, source_type)


def _check_declared(
    where: str, names: Iterable[str | None], known: Container[str | None], problem: str = "not declared"
) -> None:
    if unknown := sorted({str(name) for name in names if name not in known}):
        raise ValueError(f"{where}: {', '.join(unknown)}: {problem}")


def template_fields(template: str) -> set[str]:
    """The fields that a sentence names.

    >>> sorted(template_fields("“{title}” costs {price} dollars."))
    ['price', 'title']
    """
    return {name for _, name, *_ in Formatter().parse(template) if name is not None}


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
    "foreign",
    "row",
    "sheet",
}


def load_index(folder: Path) -> IndexSpec:
    """Read `folder/index.toml`; the folder's name is the index's.

    Raises Misconfigured with the file and what is wrong in it.
    """
    file = folder / "index.toml"
    try:
        return _with_only_kind(IndexSpec(name=folder.name, **tomllib.loads(file.read_text("utf-8"))))
    except ValidationError as error:
        raise Misconfigured(f"{file}: {'; '.join(map(describe_problem, error.errors()))}") from error
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise Misconfigured(f"{file}: {error}") from error


def _with_only_kind(spec: IndexSpec) -> IndexSpec:
    """Each field is of the only kind of record, if the index holds nothing else."""
    kinds = [name for name, kind in spec.records.items() if {*kind.source_types} >= {*spec.source_types}]
    if len(spec.records) != 1 or not kinds:
        return spec
    words = {**dict.fromkeys(spec.fields, Vocabulary()), **spec.vocabulary}
    of_kind = {name: each.model_copy(update={"kind": kinds[0]}) for name, each in words.items()}
    return spec.model_copy(update={"vocabulary": of_kind})


def load_indexes(*folders: Path) -> dict[str, IndexSpec]:
    """Every index below these folders, by name; of two of a name, that in the later folder."""
    declared = {path.parent.name: path.parent for folder in folders for path in sorted(folder.glob("*/index.toml"))}
    return {name: load_index(folder) for name, folder in declared.items()}


def allowed_indexes(indexes: Mapping[str, IndexSpec], principal: Principal) -> list[IndexSpec]:
    """Those that the principal may search: a key may be bound to some."""
    return [spec for spec in indexes.values() if principal.indexes is None or spec.name in principal.indexes]


def find_index(indexes: Mapping[str, IndexSpec], name: str) -> IndexSpec:
    """By name or alias. Raises NotFound with the names there are."""
    for spec in indexes.values():
        if name == spec.name or name in spec.aliases:
            return spec
    raise NotFound("index", name, indexes)
