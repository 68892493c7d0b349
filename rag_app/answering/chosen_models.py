"""Which model writes for which capability, and what it costs: as the settings say, and the file that they name.

    [models.default]                       # for every capability that has no model of its own
    kind = "openai_like"
    model = "google/gemini-2.5-flash"
    api_base = "https://gateway.example/v1"
    api_key_env = "GATEWAY_KEY"            # the variable that holds the key; a key never stands here

    [models.lexybrain]                     # for the five capabilities of conversations
    kind = "huggingface"
    model = "meta-llama/Llama-3.1-70B-Instruct"

    [models.lexybrain.fallback]            # asked where that one fails
    kind = "openai"
    model = "gpt-4o-mini"

    [prices."gpt-4o-mini"]                 # cents for a million tokens
    input = 15
    output = 60

`[models.market_brief]` is for one capability. docs/models.md has the rest.
"""

import asyncio
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from rag_app.answering.capabilities import CAPABILITIES, LEXYBRAIN, Capability, capability_named
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.answering.models import AnsweringModel, ChatModel, WithFallback
from rag_app.answering.prompts import Prompt, load_prompts
from rag_app.answering.providers import EXTRACTIVE, HUGGINGFACE, PROVIDERS, ModelSettings, build_llm
from rag_app.answering.synthesizers import Draw, ModelSynthesizer, Synthesizer
from rag_app.domain import JsonObject, Misconfigured, Usage, resource_folder
from rag_app.settings import Settings, one_of, variable

DEFAULT = "default"
_MILLION = 1_000_000
_LIMITS = {
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "timeout_s": "timeout",
    "backoff_s": "backoff",
    "unavailable_wait_s": "unavailable_wait",
}
"""ModelSettings' name of each limit, and that of settings and the file."""

T = TypeVar("T", bound=BaseModel)
_Cents = Annotated[Decimal, Field(ge=0, le=1_000_000)]
_Seconds = Annotated[float, Field(ge=0, le=60)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Price(_Table):
    """Cents for a million tokens."""

    input: _Cents
    output: _Cents


class _Fallback(_Table):
    """Limits that are not said here are those of RAG_LLM_...; nothing else is."""

    kind: Annotated[str, one_of(lambda: PROVIDERS)]
    model: Annotated[str, Field(min_length=1)]
    api_base: Annotated[str, Field(pattern=r"^https?://")] | None = None
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=16, le=32768)] | None = None
    timeout: Annotated[float, Field(gt=0, le=600)] | None = None
    backoff: _Seconds | None = None
    unavailable_wait: _Seconds | None = None


class _Model(_Fallback):
    fallback: _Fallback | None = None


class _Extractive(_Table):
    kind: Literal["extractive"]


class _File(_Table):
    prices: JsonObject = {}
    models: JsonObject = {}


class ChosenModels:
    """The models in use, each made once however many capabilities it writes for. `draw` chooses versions of prompts.

    Raises Misconfigured for a model or a prompt that cannot be used, and for a file that is not as it should be.
    """

    def __init__(self, settings: Settings, embedder: BaseEmbedding, draw: Draw | None = None) -> None:
        self._settings, self._extractive, self._draw = settings, ExtractiveSynthesizer(embedder), draw
        self._built: dict[ModelSettings, ChatModel] = {}
        self._prices, entries = _read(settings.model.models_file)
        chosen = {name: self._of_file(name, entry) for name, entry in entries.items()}
        if DEFAULT in chosen:
            chosen.setdefault(LEXYBRAIN, chosen[DEFAULT])
        else:
            chosen[DEFAULT] = self._of_settings()
        if LEXYBRAIN not in chosen:
            chosen[LEXYBRAIN] = self._of_lexybrain()
        self._chosen = chosen
        self._prompts = load_prompts(resource_folder("prompts")) if self._built else {}
        for capability in CAPABILITIES:
            self.synthesizer(capability)

    def model(self, capability: str) -> AnsweringModel | None:
        """What writes for a capability; None where answers are extracted."""
        group = capability_named(capability).group or DEFAULT
        return next(self._chosen[name] for name in (capability, group, DEFAULT) if name in self._chosen)

    def synthesizer(self, capability: Capability) -> Synthesizer:
        model = self.model(capability.name)
        if model is None:
            return self._extractive
        # a conversation has drawn for its thread
        return ModelSynthesizer(model, self.prompt(capability.prompt), self._draw if capability.group is None else None)

    def prompt(self, name: str) -> Prompt:
        """The active version. Raises Misconfigured where there is none, and where nothing but extracting is chosen."""
        if name not in self._prompts:
            known = ", ".join(self._prompts) or "none, as no model is configured"
            raise Misconfigured(f"no prompt named {name}; there are: {known}")
        return self._prompts[name]

    def cost_cents(self, model: str, usage: Usage | None) -> Decimal:
        """What an answer cost. Extracting costs nothing, nor does what is not known (`estimated` tells it)."""
        if usage is None or model == EXTRACTIVE:
            return Decimal(0)
        limits, price = self._settings.model, self._prices.get(model)
        reads, writes = (price.input, price.output) if price else (limits.input_price, limits.output_price)
        return (reads * usage.input_tokens + writes * usage.output_tokens) / _MILLION

    @property
    def all(self) -> tuple[ChatModel, ...]:
        """Every model that may be asked, once."""
        return tuple(self._built.values())

    async def aclose(self) -> None:
        """Close the connections of all, also where one cannot be closed."""
        for outcome in await asyncio.gather(*(model.aclose() for model in self.all), return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _of_file(self, name: str, entry: _Model | _Extractive) -> AnsweringModel | None:
        if isinstance(entry, _Extractive):
            return None
        first = self._endpoint(f"models.{name}", entry)
        if entry.fallback is None:
            return first
        return WithFallback(first, self._endpoint(f"models.{name}.fallback", entry.fallback))

    def _endpoint(self, where: str, entry: _Fallback) -> ChatModel:
        api_key = self._provider_key(entry.kind) if entry.api_base is None else None  # not for everybody's eyes
        if entry.api_key_env is not None:
            api_key = variable(entry.api_key_env)
            if api_key is None:  # it may be the key itself that stands there: not shown
                raise Misconfigured(
                    f"{self._settings.model.models_file}: {where}: the variable that api_key_env names is not set"
                )
        return self._build(entry.kind, entry.model, entry.api_base, api_key, entry.model_dump(exclude_none=True))

    def _of_settings(self, name: str | None = None) -> ChatModel | None:
        chosen = self._settings.model
        if chosen.kind == EXTRACTIVE:
            return None
        api_key = chosen.api_key or self._provider_key(chosen.kind)
        if chosen.kind == "openai_like" and chosen.api_base is not None:  # a gateway's key is sent to a gateway only
            api_key = chosen.api_key or self._settings.providers.lovable_api_key or api_key
        return self._build(chosen.kind, name or chosen.name, chosen.api_base, api_key)

    def _of_lexybrain(self) -> ChatModel | None:
        """Hugging Face's with LEXYBRAIN_RAG_MODEL_ID, unless RAG_LLM says something else."""
        chosen, wanted = self._settings.model, self._settings.lexybrain
        api_key = self._provider_key(HUGGINGFACE)
        if "kind" not in chosen.model_fields_set and api_key is not None:
            return self._build(HUGGINGFACE, wanted.model_id, None, api_key)
        named = chosen.kind == HUGGINGFACE and "model_id" in wanted.model_fields_set
        return self._of_settings(wanted.model_id if named else None)

    def _provider_key(self, kind: str) -> SecretStr | None:
        key: SecretStr | None = getattr(self._settings.providers, PROVIDERS[kind].key or "", None)
        return key

    def _build(
        self,
        kind: str,
        name: str,
        api_base: str | None,
        api_key: SecretStr | None,
        own: Mapping[str, Any] = MappingProxyType({}),
    ) -> ChatModel:
        """The model with its `own` limits; those that it does not have are RAG_LLM's."""
        if name == EXTRACTIVE:
            raise Misconfigured(f"a model cannot be named {EXTRACTIVE}: that is what answers without a model are")
        limits = {limit: own.get(said, getattr(self._settings.model, said)) for limit, said in _LIMITS.items()}
        wanted = ModelSettings(name, kind, api_base, api_key.get_secret_value() if api_key else None, **limits)
        if wanted not in self._built:
            self._built[wanted] = ChatModel(build_llm(wanted), wanted)
        return self._built[wanted]


def _read(file: Path | None) -> tuple[Mapping[str, _Price], Mapping[str, _Model | _Extractive]]:
    if file is None:
        return {}, {}
    try:
        tables = _checked(str(file), _File, tomllib.loads(file.read_text("utf-8")))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"RAG_MODELS_FILE: {file}: {error}") from error
    prices = {name: _checked(f"{file}: prices.{name}", _Price, table) for name, table in tables.prices.items()}
    groups = dict.fromkeys(each.group for each in CAPABILITIES if each.group is not None)
    names = (DEFAULT, *groups, *(each.name for each in CAPABILITIES))
    entries: dict[str, _Model | _Extractive] = {}
    for name, table in tables.models.items():
        if name not in names:
            raise Misconfigured(f"{file}: models.{name}: no such capability; accepted: {', '.join(names)}")
        extractive = isinstance(table, dict) and table.get("kind") == EXTRACTIVE
        kind: type[_Model | _Extractive] = _Extractive if extractive else _Model
        entries[name] = _checked(f"{file}: models.{name}", kind, table)
    return prices, entries


def _checked(where: str, kind: type[T], table: object) -> T:
    """Values are not shown: one might be a key."""
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        problems = []
        for each in error.errors():
            at = ".".join(map(str, each["loc"])) or "it"
            if each["type"] == "extra_forbidden":
                accepted = (_Fallback if len(each["loc"]) > 1 else kind).model_fields
                problems.append(f"{at}: there is no such key; accepted: {', '.join(accepted)}")
            else:
                problems.append(f"{at}: {each['msg']}")
        raise Misconfigured(f"{where}: {'; '.join(problems)}") from None
