"""Who offers answering models: a registry of providers, by the kind that settings and the models file name.

A provider is an entry of `PROVIDERS`; a module of one's own adds another. Its integration is imported when it builds a
model, and not before, so names and choices can be read from here without any vendor.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from rag_app.domain import JsonObject, Misconfigured

if TYPE_CHECKING:
    from llama_index.core.llms import LLM

EXTRACTIVE, HUGGINGFACE, OWN = "extractive", "huggingface", "own"
"""Kinds that have a rule of their own: what answers without a model (its name, too), what LexyBrain asks first, and any
LlamaIndex LLM that is given as an object or by its class."""
OPENAI_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """An answering model and its limits.

    `timeout_s` bounds one request; all requests together take at most
    `(retries + 1) * timeout_s` and the waits between them. Of a model of one's own, `passes` names the limits of a request
    that it takes, and `secrets` are what no error may show.
    """

    name: str
    kind: str = "openai_like"
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float = 0.1
    max_tokens: int = 1024
    timeout_s: float = 60.0
    retries: int = 1
    backoff_s: float = 1.0
    unavailable_wait_s: float = 2.0
    passes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)


class Provider(Struct, frozen=True):
    """One kind of answering model.

    `build` makes the LlamaIndex LLM, with all retries of its SDK off and nothing read from the environment. It raises
    ImportError where its `package` is not installed, ValueError for a model that it does not know. What goes wrong in
    a request is told from the status and the class of the error (models.py has the table).

    `key` names the field of settings.ProviderSettings that holds the provider's key. `model` is asked where settings
    name none. `fixed_temperature` says which models refuse any temperature but their own.
    """

    build: "Callable[[ModelSettings], LLM]"
    package: str
    model: str
    key: str | None = None
    hint: str = ""
    fixed_temperature: Callable[[str], bool] = lambda _: False


def build_llm(settings: ModelSettings) -> "LLM":
    """The LlamaIndex LLM that settings name.

    How many tokens an answer may take is not set in it: ChatModel says it with every request.
    Raises Misconfigured where its integration is not installed or does not know the model.
    """
    provider = PROVIDERS[settings.kind]
    try:
        return provider.build(settings)
    except ImportError as error:
        raise Misconfigured(f"model {settings.name}: pip install {provider.package} ({error})") from error
    except ValueError as error:
        raise Misconfigured(f"model {settings.name}: {error}") from error


def _openai(settings: ModelSettings) -> "LLM":
    from llama_index.llms.openai import OpenAI

    llm = OpenAI(model=settings.name, **_openai_options(settings))
    try:
        chats = llm.metadata.is_chat_model
    except ValueError:  # its own message lists a hundred names
        raise ValueError("LlamaIndex knows no model of this name; the kind openai_like accepts any name") from None
    if not chats:
        raise ValueError("is not a chat model")
    return llm


def _openai_like(settings: ModelSettings) -> "LLM":
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(model=settings.name, is_chat_model=True, **_openai_options(settings))


def _openai_options(settings: ModelSettings) -> JsonObject:
    """`max_retries` 0 turns off both LlamaIndex's own retries and the SDK's (openai/base.py, llm_retry_decorator).

    `max_tokens` would win over those of a request (llms-openai 0.7.10, base.py, _get_model_kwargs).
    """
    return {
        "api_base": settings.api_base or OPENAI_URL,
        "api_key": settings.api_key or "none",
        "temperature": settings.temperature,
        "timeout": settings.timeout_s,
        "max_retries": 0,
    }


def _reasons(model: str) -> bool:
    """Reasoning models refuse any temperature but theirs, which LlamaIndex sets (llms-openai 0.7.10, base.py)."""
    from llama_index.llms.openai.utils import O1_MODELS

    return model in O1_MODELS


def _huggingface(settings: ModelSettings) -> "LLM":
    from rag_app.answering.huggingface import LOWEST_TEMPERATURE, HuggingFaceChat

    return HuggingFaceChat(
        model_name=settings.api_base or settings.name,
        served_name=settings.name,
        token=settings.api_key or "none",  # None would send the token saved on this machine
        temperature=max(settings.temperature, LOWEST_TEMPERATURE),
        timeout=settings.timeout_s,
    )


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        _openai,
        package="llama-index-llms-openai",
        model="gpt-4o-mini",
        key="openai_api_key",
        fixed_temperature=_reasons,
    ),
    "openai_like": Provider(
        _openai_like,
        package="llama-index-llms-openai-like",
        model="google/gemini-2.5-flash",
        key="openai_api_key",
        hint="any OpenAI-compatible URL",
        fixed_temperature=_reasons,
    ),
    HUGGINGFACE: Provider(
        _huggingface,
        package="llama-index-llms-huggingface-api",
        model="meta-llama/Llama-3.1-70B-Instruct",
        key="hf_token",
    ),
}
