"""Answering models behind LlamaIndex LLMs, with a bound on requests and time that is ours.

| what the model does | asked again | raised at last |
|---|---|---|
| no answer within `timeout_s` | yes, after `backoff_s`, doubling | ModelTimeout |
| 503 | yes, after `unavailable_wait_s` | ModelFailed |
| other 5xx, no connection | yes, after `backoff_s`, doubling | ModelFailed |
| connection cut in mid-answer | yes, after `backoff_s`, doubling | ModelMalformed |
| 429 | no | ModelLimited |
| other 4xx | no | ModelFailed |
| no choices, no text, no JSON | no | ModelMalformed |

"Asked again" means `retries` times at most. A stream is asked again only while nothing of it has been passed on.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from llama_index.core.llms import LLM, ChatMessage, ChatResponse

from rag_app.domain.answer import Usage
from rag_app.domain.errors import Misconfigured, ModelFailed, ModelLimited, ModelMalformed, ModelTimeout

OPENAI_URL = "https://api.openai.com/v1"
_CUT_OFF = ("length", "content_filter")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """An answering model and its limits.

    `timeout_s` bounds one request; all requests together take at most
    `(retries + 1) * timeout_s` and the waits between them.
    """

    name: str
    kind: Literal["openai", "openai_like", "huggingface"] = "openai_like"
    api_base: str | None = None
    api_key: str | None = field(default=None, repr=False)
    temperature: float = 0.1
    max_tokens: int = 1024
    timeout_s: float = 60.0
    retries: int = 1
    backoff_s: float = 1.0
    unavailable_wait_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Draft:
    """What a synthesizer wrote, before its citations are checked. `text` is empty where it found nothing to say.

    `cut_off`: it had to stop before the end, for its limit of tokens or a filter of the model's.
    """

    text: str
    model: str
    usage: Usage | None = None
    cut_off: bool = False


class ChatModel:
    """A LlamaIndex LLM that is asked a bounded number of times. `llm` must not retry by itself."""

    def __init__(self, llm: LLM, settings: ModelSettings) -> None:
        self.name = settings.name
        self._llm, self._settings = llm, settings

    async def chat(self, messages: Sequence[ChatMessage]) -> Draft:
        """The model's answer. Raises ModelFailed or one of its kinds; the table above says when."""
        for attempt in count():
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    return self._draft(await self._llm.achat(messages))
            except Exception as error:
                await self._wait_or_raise(error, attempt)
        raise AssertionError("unreachable")

    async def stream(self, messages: Sequence[ChatMessage]) -> AsyncGenerator[str | Draft, None]:
        """The model's answer in pieces, and then the whole of it.

        Raises as `chat` does, and ModelMalformed where it ends unfinished.
        """
        begun = False
        for attempt in count():
            try:
                async with aclosing(self._stream_once(messages)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except Exception as error:
                await self._wait_or_raise(error, self._settings.retries if begun else attempt)

    async def aclose(self) -> None:
        """Close the connections of its client, for which LlamaIndex has no call."""
        client = getattr(self._llm, "_aclient", None) or getattr(self._llm, "_async_client", None)
        if client is not None:
            await client.close()

    async def _stream_once(self, messages: Sequence[ChatMessage]) -> AsyncGenerator[str | Draft, None]:
        heard: asyncio.Queue[ChatResponse | None] = asyncio.Queue()

        # LlamaIndex (core 0.14.25, llms/callbacks.py:88) leaves the connection open when its generator is closed.
        # A task that is cancelled while it waits for the next word closes it.
        async def listen() -> None:
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    replies: Any = await self._llm.astream_chat(messages, stream_options={"include_usage": True})
                    async for reply in replies:
                        heard.put_nowait(reply)
            finally:
                heard.put_nowait(None)

        text, reason, usage = "", None, None
        listening = asyncio.create_task(listen())
        try:
            while (reply := await heard.get()) is not None:
                reason, usage = _finish_reason(reply) or reason, _usage(reply) or usage
                if reply.delta:
                    text += reply.delta
                    yield reply.delta
            await listening
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if reason is None or not text.strip():
            raise ModelMalformed(f"{self.name}: the stream {'was cut' if text.strip() else 'had no text'}")
        yield Draft(text.strip(), self.name, usage, reason in _CUT_OFF)

    def _draft(self, reply: ChatResponse) -> Draft:
        text = (reply.message.content or "").strip()
        if not text:
            raise ModelMalformed(f"{self.name}: no text")
        return Draft(text, self.name, _usage(reply), _finish_reason(reply) in _CUT_OFF)

    async def _wait_or_raise(self, error: Exception, attempt: int) -> None:
        """Wait where asking again may help and is allowed; otherwise raise what the error means."""
        kind, again = _meaning(error)
        if not again or attempt >= self._settings.retries:
            if isinstance(error, ModelFailed):
                raise error
            raise kind(f"{self.name}: {error!r}") from error
        unavailable = _status(error) == 503
        await asyncio.sleep(self._settings.unavailable_wait_s if unavailable else self._settings.backoff_s * 2**attempt)


def _meaning(error: Exception) -> tuple[type[ModelFailed], bool]:
    """What an error of any SDK means, and whether asking again may help.

    SDKs agree on a status code and on names, and on little else; importing them all is not worth it.
    """
    status, names = _status(error), set(_names(error))
    kind, again = ModelFailed, True
    if status == 429:
        kind, again = ModelLimited, False
    elif status >= 400:
        again = status >= 500
    elif any("Timeout" in name for name in names):
        kind = ModelTimeout
    elif "RemoteProtocolError" in names:
        kind = ModelMalformed
    elif isinstance(error, ModelFailed | LookupError | ValueError | AttributeError | TypeError):
        kind, again = ModelMalformed, False
    return kind, again


def _status(error: Exception) -> int:
    """The HTTP status that an SDK's error carries; 0 where there was none."""
    return getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None) or 0


def build_llm(settings: ModelSettings) -> LLM:
    """The LlamaIndex LLM that settings name, with all retries of its SDK off. Nothing is read from the environment.

    Raises Misconfigured where its integration is not installed or does not know the model.
    """
    package = f"llama-index-llms-{'huggingface-api' if settings.kind == 'huggingface' else settings.kind}"
    try:
        return _BUILDERS[settings.kind](settings)
    except ImportError as error:
        raise Misconfigured(f"model {settings.name}: pip install {package.replace('_', '-')} ({error})") from error
    except ValueError as error:
        what = str(error).split(" Please provide")[0]  # what follows is a hundred names
        raise Misconfigured(f"model {settings.name}: {what}") from error


def _openai(settings: ModelSettings) -> LLM:
    from llama_index.llms.openai import OpenAI

    llm = OpenAI(model=settings.name, **_openai_options(settings))
    if not llm.metadata.is_chat_model:  # raises ValueError for names it does not know
        raise ValueError("is no chat model")
    return llm


def _openai_like(settings: ModelSettings) -> LLM:
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(model=settings.name, is_chat_model=True, **_openai_options(settings))


def _openai_options(settings: ModelSettings) -> dict[str, Any]:
    """`max_retries` 0 turns off both LlamaIndex's own retries and the SDK's (openai/base.py, llm_retry_decorator)."""
    return {
        "api_base": settings.api_base or OPENAI_URL,
        "api_key": settings.api_key or "none",
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "timeout": settings.timeout_s,
        "max_retries": 0,
    }


def _huggingface(settings: ModelSettings) -> LLM:
    from rag_app.answering.huggingface import HuggingFaceChat

    return HuggingFaceChat(
        model_name=settings.api_base or settings.name,
        served_name=settings.name,
        token=settings.api_key or "none",  # None would send the token saved on this machine
        temperature=max(settings.temperature, 0.01),  # 0 is refused
        num_output=settings.max_tokens,
        timeout=settings.timeout_s,
    )


_BUILDERS: dict[str, Callable[[ModelSettings], LLM]] = {
    "openai": _openai,
    "openai_like": _openai_like,
    "huggingface": _huggingface,
}


def _finish_reason(reply: ChatResponse) -> str | None:
    choices = getattr(reply.raw, "choices", None)
    return choices[0].finish_reason if choices else None


def _usage(reply: ChatResponse) -> Usage | None:
    """Of a stream, its last reply tells, where the server knows `stream_options`."""
    counts = getattr(reply.raw, "usage", None)
    return Usage(counts.prompt_tokens, counts.completion_tokens) if counts else None


def _names(error: BaseException | None) -> Iterator[str]:
    """The class names of an error and of what caused it."""
    while error is not None:
        yield from (kind.__name__ for kind in type(error).__mro__)
        error = error.__cause__ or error.__context__
