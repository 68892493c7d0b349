"""RAG_MODELS_FILE: which models, embedder and rerankers there are, as an operator writes it. docs/models.md shows all of it."""

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from rag_app.answering.capabilities import CAPABILITIES, groups
from rag_app.answering.providers import EXTRACTIVE, PROVIDERS
from rag_app.domain import JsonObject, Misconfigured, describe_problem, require
from rag_app.domain.class_paths import Arguments, bare_secrets, load_class
from rag_app.settings import one_of, secret, variable

DEFAULT = "default"
_OF_CLASSES = ("class", "arguments")
T = TypeVar("T", bound=BaseModel)
Instance = TypeVar("Instance")
_Cents = Annotated[Decimal, Field(ge=0, le=1_000_000)]
_Seconds = Annotated[float, Field(ge=0, le=60)]
_Timeout = Annotated[float, Field(gt=0, le=600)]
_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Url = Annotated[str, Field(pattern=r"^https?://")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Price(_Table):
    """Cents for a million tokens."""

    input: _Cents
    output: _Cents


class Own(_Table):
    """A class by its path, and what it is made of; a secret among it is `{ env = "NAME" }` or `{ file = "/path" }`."""

    class_: Annotated[str, Field(min_length=3)] | None = Field(None, alias="class")
    arguments: JsonObject = {}

    @model_validator(mode="after")
    def _arguments_are_a_classes(self) -> "Own":
        if self.class_ is None and self.arguments:
            raise ValueError("arguments require class")
        if bare := bare_secrets(self.arguments):
            raise ValueError(f'{bare} is a secret: give it as {{ env = "NAME" }} or {{ file = "/path" }}')
        return self

    def build(
        self, kind: type[Instance], where: str, folder: Path, ours: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Instance, tuple[str, ...]]:
        """The object, and the values of its secrets, which no log may have. `ours` are arguments that it gets where its
        class has such a field and the file says nothing. Raises Misconfigured with `where` it stands.
        """
        given, path = (
            Arguments(folder, lambda kind, name: secret(f"{kind}:{name}").get_secret_value()),
            self.class_ or "",
        )
        try:
            fields = getattr(load_class(path, kind, folder), "model_fields", {})
            added = {name: value for name, value in ours.items() if name in fields and name not in self.arguments}
            return given.build(path, kind, {**added, **self.arguments}), tuple(given.secrets)
        except Misconfigured as error:
            raise Misconfigured(f"{where}: {error}") from None


class Fallback(Own):
    """A model: of a kind, or of a class. Limits that are not said here are those of RAG_LLM_...; nothing else is.

    `passes` are the limits of a request that a class takes as arguments of `achat`: max_tokens, temperature.
    """

    kind: Annotated[str, one_of(lambda: PROVIDERS)] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    api_base: _Url | None = None
    api_key_env: _Variable | None = None
    passes: tuple[Literal["max_tokens", "temperature"], ...] = ()
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=16, le=32768)] | None = None
    timeout: _Timeout | None = None
    retries: Annotated[int, Field(ge=0, le=10)] | None = None
    backoff: _Seconds | None = None
    unavailable_wait: _Seconds | None = None

    @model_validator(mode="after")
    def _kind_or_class(self) -> "Fallback":
        if (self.kind is None) == (self.class_ is None):
            raise ValueError("give either kind or class")
        if self.kind is not None and self.model is None:
            raise ValueError("model: Field required")
        if self.class_ is not None and (self.api_base or self.api_key_env):
            raise ValueError("api_base and api_key_env can only be used with kind; with class, use arguments")
        return self


class Model(Fallback):
    fallback: Fallback | None = None


class Extractive(_Table):
    kind: Literal["extractive"]


class Embedding(Own):
    """The embedding model of all indexes. `model` is the name that an index remembers, by default the object's own."""

    class_: Annotated[str, Field(min_length=3)] = Field(alias="class")
    model: Annotated[str, Field(min_length=1)] | None = None
    dimension: Annotated[int, Field(ge=2, le=8192)]
    timeout: _Timeout = 30.0
    retries: Annotated[int, Field(ge=0, le=10)] = 1
    batch: Annotated[int, Field(ge=1, le=2048)] | None = None


def _reranker_kinds() -> tuple[str, ...]:
    from rag_app.retrieval.postprocessors import Kind  # LlamaIndex, which a file without a reranker does not need

    return get_args(Kind)


class Reranker(Own):
    """What puts hits in order before an answer: an endpoint of one of three shapes, or a class."""

    kind: Annotated[str, one_of(_reranker_kinds)] | None = None
    url: _Url | None = None
    model: Annotated[str, Field(min_length=1)] | None = None
    api_key_env: _Variable | None = None
    candidates: Annotated[int, Field(ge=1, le=1000)] = 30
    timeout: Annotated[float, Field(gt=0, le=60)] = 2.0

    @model_validator(mode="after")
    def _kind_or_class(self) -> "Reranker":
        if (self.kind is None) == (self.class_ is None):
            raise ValueError("give either kind or class")
        if self.kind is not None and self.url is None:
            raise ValueError("url: Field required")
        if self.kind not in (None, "tei") and self.model is None:
            raise ValueError("model: Field required")
        return self


class Nothing(_Table):
    kind: Literal["none"]


class _File(_Table):
    prices: JsonObject = {}
    models: JsonObject = {}
    embedding: JsonObject | None = None
    rerank: JsonObject = {}


class ModelsFile(Struct, frozen=True):
    """What the file says: `models` and `rerank` by capability, group of capabilities, or "default"."""

    folder: Path
    prices: Mapping[str, Price]
    models: Mapping[str, Model | Extractive]
    embedding: Embedding | None
    rerank: Mapping[str, Reranker | Nothing]


def read_key(name: str | None, where: str) -> SecretStr | None:
    """The key in the variable that `api_key_env` names. It may be the key itself that stands there: it is not shown."""
    problem = f"{where}: the variable that api_key_env names is not set"
    return None if name is None else require(variable(name), Misconfigured(problem))


def read_models(file: Path | None) -> ModelsFile:
    """Raises Misconfigured with the file, the entry and what is accepted; values are not shown: one might be a key."""
    if file is None:
        return ModelsFile(Path(), {}, {}, None, {})
    try:
        tables = _check_table(str(file), _File, tomllib.loads(file.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"RAG_MODELS_FILE: {file}: {error}") from error
    return ModelsFile(
        file.resolve().parent,
        {name: _check_table(f"{file}: prices.{name}", Price, table) for name, table in tables.prices.items()},
        _check_tables(file, "models", tables.models, {EXTRACTIVE: Extractive}, Model),
        None if tables.embedding is None else _check_table(f"{file}: embedding", Embedding, tables.embedding),
        _check_tables(file, "rerank", tables.rerank, {"none": Nothing}, Reranker),
    )


def _check_tables(
    file: Path, section: str, tables: JsonObject, by_kind: Mapping[str, type[T]], others: type[T]
) -> dict[str, T]:
    """The entries of a section, which capabilities, their groups and "default" may have."""
    names = (DEFAULT, *groups(), *(each.name for each in CAPABILITIES))
    checked: dict[str, T] = {}
    for name, table in tables.items():
        if name not in names:
            raise Misconfigured(
                f"{file}: {section}.{name}: there is no capability of this name; accepted: {', '.join(names)}"
            )
        kind = table.get("kind") if isinstance(table, dict) else None
        model = by_kind.get(kind, others) if isinstance(kind, str) else others
        checked[name] = _check_table(f"{file}: {section}.{name}", model, table)
    return checked


def _check_table(where: str, kind: type[T], table: object) -> T:
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        problems = []
        for each in error.errors():
            if each["type"] == "extra_forbidden":
                accepted = (Fallback if len(each["loc"]) > 1 else kind).model_fields
                names = sorted((info.alias or name for name, info in accepted.items()), key=_OF_CLASSES.__contains__)
                at = ".".join(map(str, each["loc"]))
                problems.append(f"{at}: there is no such key; accepted: {', '.join(names)}")
            else:
                problems.append(describe_problem(each, "" if each["type"] == "value_error" else "it"))
        raise Misconfigured(f"{where}: {'; '.join(problems)}") from None
