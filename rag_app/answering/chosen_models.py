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
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from pydantic import SecretStr

from rag_app.answering.capabilities import CAPABILITIES, Capability, capability_named, groups
from rag_app.answering.extractive import ExtractiveSynthesizer
from rag_app.answering.models import AnsweringModel, ChatModel, WithFallback
from rag_app.answering.models_file import DEFAULT, Extractive, Fallback, Model, ModelsFile, read_key, read_models
from rag_app.answering.parts import NO_PARTS, Parts
from rag_app.answering.prompts import Prompt, load_prompts
from rag_app.answering.providers import EXTRACTIVE, HUGGINGFACE, OWN, PROVIDERS, ModelSettings, build_llm
from rag_app.answering.records.written_queries import QueryWriter
from rag_app.answering.synthesizers import Draw, ForeignSynthesizer, ModelSynthesizer, Synthesizer
from rag_app.domain import Misconfigured, Usage, require, resource_folder
from rag_app.settings import Settings

_MILLION = 1_000_000
# ModelSettings' name of each limit, and that of settings and the file.
_LIMITS = {
    "temperature": "temperature",
    "max_tokens": "max_tokens",
    "timeout_s": "timeout",
    "backoff_s": "backoff",
    "unavailable_wait_s": "unavailable_wait",
}


class ChosenModels:
    """The models in use, each made once however many capabilities it writes for. `draw` chooses versions of prompts.

    Own `parts` (a model, a synthesizer) come before what settings and the file say, those of a capability first.

    Raises Misconfigured for a model or a prompt that cannot be used, and for a file that is not as it should be.
    """

    def __init__(
        self,
        settings: Settings,
        embedder: BaseEmbedding,
        draw: Draw | None = None,
        parts: Parts = NO_PARTS,
        file: ModelsFile | None = None,
    ) -> None:
        self._settings, self._extractive, self._draw = settings, ExtractiveSynthesizer(embedder), draw
        self._parts, self._file = parts, file or read_models(settings.model.models_file)
        self._built: dict[object, ChatModel] = {}
        self._wrapped: dict[int, ChatModel] = {}
        """Of models that came as objects: whoever made them closes them."""
        self._chosen = {name: self._build_entry(name, entry) for name, entry in self._file.models.items()}
        if DEFAULT not in self._chosen:
            self._chosen[DEFAULT] = self._build_from_settings()
            for group in groups():
                wanted = getattr(settings, group, None)
                if wanted is not None and group not in self._chosen:
                    self._chosen[group] = self._build_for_conversations(wanted)
        own = [each for each in (parts, *(each.parts for each in CAPABILITIES)) if each.llm is not None]
        self._prompts = load_prompts(resource_folder("prompts")) if self._built or own else {}
        for capability in CAPABILITIES:
            self.synthesizer(capability)

    def model(self, capability: str) -> AnsweringModel | None:
        """What writes for a capability; None where answers are extracted."""
        own = capability_named(capability).parts.llm or self._parts.llm
        if own is not None:
            return self._wrap(own)
        group = capability_named(capability).group or DEFAULT
        return next(self._chosen[name] for name in (capability, group, DEFAULT) if name in self._chosen)

    def synthesizer(self, capability: Capability) -> Synthesizer:
        own = capability.parts.synthesizer or (self._parts.synthesizer if capability.parts.llm is None else None)
        if own is not None:
            return own if isinstance(own, Synthesizer) else ForeignSynthesizer(own)
        model = self.model(capability.name)
        if model is None:
            return self._extractive
        # a conversation has drawn for its thread
        return ModelSynthesizer(model, self.prompt(capability.prompt), self._draw if capability.group is None else None)

    def takes_tokens(self, capability: str) -> bool:
        """Whether a model writes for a capability."""
        return self.synthesizer(capability_named(capability)).asks_model

    def query_writer(self, capability: Capability) -> QueryWriter | None:
        """What reads questions about records that the rules do not; None where no model writes for the capability."""
        model = self.model(capability.name)
        return QueryWriter(model, self.prompt("record_query")) if model is not None else None

    def prompt(self, name: str) -> Prompt:
        """The active version. Raises Misconfigured for an unknown name, and for any name if no model is configured."""
        known = ", ".join(self._prompts) or "none, as no model is configured"
        return require(self._prompts.get(name), Misconfigured(f"no prompt named {name}; there are: {known}"))

    def cost_cents(self, model: str, usage: Usage | None) -> Decimal:
        """What an answer cost. Extracting costs nothing, nor does what is not known (`estimate_usage` estimates it)."""
        if usage is None or model == EXTRACTIVE:
            return Decimal(0)
        limits, price = self._settings.model, self._file.prices.get(model)
        reads, writes = (price.input, price.output) if price else (limits.input_price, limits.output_price)
        return (reads * usage.input_tokens + writes * usage.output_tokens) / _MILLION

    @property
    def all(self) -> tuple[ChatModel, ...]:
        """Every model that may be asked, once."""
        return (*self._built.values(), *self._wrapped.values())

    async def aclose(self) -> None:
        """Close the connections of all that were made here, also where one cannot be closed."""
        closing = (model.aclose() for model in self._built.values())
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _wrap(self, llm: LLM) -> ChatModel:
        if id(llm) not in self._wrapped:
            name = llm.metadata.model_name
            wanted = ModelSettings(type(llm).__name__ if name == "unknown" else name, OWN, **self._limits({}))
            self._wrapped[id(llm)] = ChatModel(llm, wanted)
        return self._wrapped[id(llm)]

    def _build_entry(self, name: str, entry: Model | Extractive) -> AnsweringModel | None:
        if isinstance(entry, Extractive):
            return None
        first = self._endpoint(f"models.{name}", entry)
        if entry.fallback is None:
            return first
        return WithFallback(first, self._endpoint(f"models.{name}.fallback", entry.fallback))

    def _endpoint(self, where: str, entry: Fallback) -> ChatModel:
        if entry.class_ is not None:
            return self._build_class(where, entry)
        assert entry.kind is not None and entry.model is not None  # noqa: S101 - the file was checked
        api_key = self._provider_key(entry.kind) if entry.api_base is None else None  # not for everybody's eyes
        own = read_key(entry.api_key_env, f"{self._settings.model.models_file}: {where}")
        return self._build(
            entry.kind,
            entry.model,
            entry.api_base,
            api_key if own is None else own,
            entry.model_dump(exclude_none=True),
        )

    def _build_class(self, where: str, entry: Fallback) -> ChatModel:
        """Its SDK neither repeats a request nor waits longer than we do, where its class has such arguments."""
        limits = self._limits(entry.model_dump(exclude_none=True))
        seconds = limits["timeout_s"]
        ours = {"max_retries": 0, "timeout": seconds, "request_timeout": seconds}
        place = f"{self._settings.model.models_file}: {where}"
        llm, secrets = entry.build(LLM, place, self._file.folder, ours)  # type: ignore[type-abstract]
        name = entry.model or llm.metadata.model_name
        wanted = ModelSettings(name, OWN, passes=entry.passes, secrets=secrets, **limits)
        return self._built.setdefault((where, name), ChatModel(llm, wanted))

    def _limits(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Those that are said, and RAG_LLM's."""
        limits = {limit: own.get(said, getattr(self._settings.model, said)) for limit, said in _LIMITS.items()}
        return limits | ({"retries": own["retries"]} if "retries" in own else {})

    def _build_from_settings(self, name: str | None = None) -> ChatModel | None:
        chosen = self._settings.model
        if chosen.kind == EXTRACTIVE:
            return None
        api_key = chosen.api_key or self._provider_key(chosen.kind)
        if chosen.kind == "openai_like" and chosen.api_base is not None:  # a gateway's key is sent to a gateway only
            api_key = chosen.api_key or self._settings.providers.lovable_api_key or api_key
        return self._build(chosen.kind, name or chosen.name, chosen.api_base, api_key)

    def _build_for_conversations(self, wanted: Any) -> ChatModel | None:
        """Hugging Face's with the `model_id` that is wanted in a group's settings, unless RAG_LLM says something else."""
        chosen = self._settings.model
        api_key = self._provider_key(HUGGINGFACE)
        if "kind" not in chosen.model_fields_set and api_key is not None:
            return self._build(HUGGINGFACE, wanted.model_id, None, api_key)
        named = chosen.kind == HUGGINGFACE and "model_id" in wanted.model_fields_set
        return self._build_from_settings(wanted.model_id if named else None)

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
            raise Misconfigured(
                f"a model cannot be named {EXTRACTIVE}: this name marks answers written without a model"
            )
        key = api_key.get_secret_value() if api_key else None
        wanted = ModelSettings(name, kind, api_base, key, **self._limits(own))
        if wanted not in self._built:
            self._built[wanted] = ChatModel(build_llm(wanted), wanted)
        return self._built[wanted]
