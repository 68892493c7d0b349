"""Answering models behind LlamaIndex LLMs, with a bound on requests and time that is ours.

| what the model does | asked again | raised at last |
|---|---|---|
| no answer within `timeout_s` | yes, after `backoff_s`, doubling | ModelTimeout |
| 503 | yes, after `unavailable_wait_s` | ModelFailed |
| other 5xx, no connection | yes, after `backoff_s`, doubling | ModelFailed |
| connection cut in mid-answer | yes, after `backoff_s`, doubling | ModelMalformed |
| 429 | no | ModelLimited |
| other 4xx | no | ModelFailed |
| no text | no | ModelSilent |
| no choices, no JSON | no | ModelMalformed, unless the text of an answer can be told (`Draft.extracted`) |

In a stream `timeout_s` is for each of its words, and STREAM_LASTS times that for all of them. "Asked again" means
`retries` times at most. A stream is asked again, or a second model is (WithFallback), only while its listener has passed
nothing on: a `Restart` says that its pieces are void. Of a broken stream nothing is extracted: its SDKs show one event of
it, at most. A text that is JSON, though none was asked for, is read for the answer in it.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from inspect import getattr_static, isawaitable
from itertools import count
from json import JSONDecodeError
from typing import Any, TypedDict, Unpack
from urllib.parse import urlsplit

from llama_index.core.llms import LLM, ChatMessage, ChatResponse, CustomLLM
from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.context import count_tokens
from rag_app.answering.providers import OWN, PROVIDERS, ModelSettings
from rag_app.answering.salvage import LONGEST, salvage_text, unwrap_text
from rag_app.domain import (
    JsonObject,
    ModelFailed,
    ModelLimited,
    ModelMalformed,
    ModelSilent,
    ModelTimeout,
    Usage,
    storable,
)
from rag_app.telemetry.observing import ModelCall, safe_text

log = logging.getLogger(__name__)

_CUT_OFF = ("length", "content_filter", "max_tokens")
_MOST_TOKENS = 10**8  # more than this in one answer is not believed


class Draft(Struct, frozen=True):
    """What a synthesizer wrote, before its citations are checked. `text` is empty where it found nothing to say.

    `cut_off`: it had to stop before the end, for its limit of tokens or a filter of the model's. `extracted`: the reply
    it was in is broken (salvage.py). `failures` are those of a model that was asked before this one. `prompt` is the
    version that it was asked with.
    """

    text: str
    model: str
    usage: Usage | None = None
    cut_off: bool = False
    extracted: bool = False
    failures: tuple[ModelFailed, ...] = ()
    prompt: str | None = None


class Restart(Struct, frozen=True):
    """The pieces so far are void: the model is asked again, or another one. Who has passed some on raises `error`."""

    error: ModelFailed


Pieces = AsyncGenerator[str | Restart | Draft, None]
"""A text as it is written, and then the whole draft."""
_LONGEST_ERROR = 300
STREAM_LASTS = 5
"""Times `timeout_s` that a stream may last as a whole, where none of its words takes that long."""


class Limits(TypedDict, total=False):
    """Of one request. Those that are missing, or None, are the settings'."""

    max_tokens: int | None
    temperature: float | None


class AnsweringModel(ABC):
    """What answers messages, at once or in pieces."""

    name: str

    @abstractmethod
    def pieces(self, messages: Sequence[ChatMessage], limits: Limits, *, streamed: bool) -> Pieces:
        """The text as it comes, where it is to be `streamed`, and then the draft."""

    async def chat(self, messages: Sequence[ChatMessage], **limits: Unpack[Limits]) -> Draft:
        """The model's answer. Raises ModelFailed or one of its kinds; the table above says when."""
        async with aclosing(self.pieces(messages, limits, streamed=False)) as pieces:
            (draft,) = [piece async for piece in pieces if isinstance(piece, Draft)]
        return draft

    def stream(self, messages: Sequence[ChatMessage], **limits: Unpack[Limits]) -> Pieces:
        """The model's answer in pieces, and then the whole of it.

        Raises as `chat` does, and ModelMalformed where it ends unfinished.
        """
        return self.pieces(messages, limits, streamed=True)


class ChatModel(AnsweringModel):
    """A LlamaIndex LLM that is asked a bounded number of times. `llm` must not retry by itself, nor limit tokens."""

    def __init__(self, llm: LLM, settings: ModelSettings) -> None:
        self.name = settings.name
        self._llm, self._settings = llm, settings
        self._own = settings.kind == OWN
        # CustomLLM has the event loop wait for it (llama-index-core 0.14.25, llms/custom.py:57)
        self._blocks = isinstance(llm, CustomLLM) and getattr_static(llm, "achat") is getattr_static(CustomLLM, "achat")

    async def pieces(self, messages: Sequence[ChatMessage], limits: Limits, *, streamed: bool) -> Pieces:
        settings = self._settings
        tokens, temperature = limits.get("max_tokens"), limits.get("temperature")
        options: JsonObject = {"max_tokens": settings.max_tokens if tokens is None else tokens}
        if temperature is not None and (self._own or not PROVIDERS[settings.kind].fixed_temperature(self.name)):
            options["temperature"] = temperature
        if self._own:
            options = {name: value for name, value in options.items() if name in settings.passes}
        with ModelCall(self.name, settings.kind, options) as asked:
            for attempt in count():
                begun = False
                try:
                    in_pieces = streamed and not self._blocks
                    async with aclosing((self._stream if in_pieces else self._chat)(messages, options)) as pieces:
                        async for piece in pieces:
                            begun = True
                            if isinstance(piece, Draft):
                                asked.record_usage(piece.usage, piece.cut_off)
                            yield piece
                    return
                except Exception as error:
                    failed = self._failure_of(error)
                    if not _meaning(error)[1] or attempt >= settings.retries:
                        raise failed from error.__cause__ if failed is error else error
                    if begun:
                        yield Restart(failed)
                    unavailable = _status(error) == 503
                    await asyncio.sleep(settings.unavailable_wait_s if unavailable else settings.backoff_s * 2**attempt)

    @property
    def missing_key(self) -> str | None:
        """The variable of the provider's key, where the model has none. At an address of one's own it may need none."""
        chosen = self._settings
        if self._own or chosen.api_base is not None or chosen.api_key:
            return None
        key = PROVIDERS[chosen.kind].key
        return key and key.upper()

    async def aclose(self) -> None:
        """Close the connections of its client, for which LlamaIndex has no call."""
        client = getattr(self._llm, "_aclient", None) or getattr(self._llm, "_async_client", None)
        close = getattr(client, "close", None) or getattr(client, "aclose", None)
        closing = close() if close is not None else None
        if isawaitable(closing):
            await closing

    async def _chat(self, messages: Sequence[ChatMessage], options: JsonObject) -> Pieces:
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                if self._blocks:
                    reply = await asyncio.to_thread(self._llm.chat, messages, **options)
                else:
                    reply = await self._llm.achat(messages, **options)
            text = storable(reply.message.content or "").strip()
            if not text:
                raise ModelSilent(f"{self.name}: no text")
            draft = self._draft(text, _usage(reply), _finish_reason(reply))
        except Exception as error:
            found = salvage_text(_broken_reply(error))
            if found is None:
                raise
            log.warning("%s: a broken reply; its text was extracted", self.name)
            draft = Draft(found[0], self.name, cut_off=found[1], extracted=True)
        yield draft

    async def _stream(self, messages: Sequence[ChatMessage], options: JsonObject) -> Pieces:
        heard: asyncio.Queue[ChatResponse | None] = asyncio.Queue()

        # LlamaIndex (core 0.14.25, llms/callbacks.py:88) leaves the connection open when its generator is closed.
        # A task that is cancelled while it waits for the next word closes it.
        async def listen() -> None:
            try:
                clock = asyncio.get_running_loop().time
                latest = clock() + STREAM_LASTS * self._settings.timeout_s
                async with asyncio.timeout(self._settings.timeout_s) as patience:
                    usage_too: JsonObject = {} if self._own else {"stream_options": {"include_usage": True}}
                    replies: Any = await self._llm.astream_chat(messages, **usage_too, **options)
                    async for reply in replies:
                        heard.put_nowait(reply)
                        patience.reschedule(min(clock() + self._settings.timeout_s, latest))
            finally:
                heard.put_nowait(None)

        text, reason, usage = "", None, None
        listening = asyncio.create_task(listen())
        try:
            while (reply := await heard.get()) is not None:
                reason, usage = _finish_reason(reply) or reason, _usage(reply) or usage
                before, text = text, text + storable(reply.delta or "")
                # blanks alone are nothing: somebody else may still be asked; JSON is read when it is whole
                if text != before and text.strip() and not text.lstrip().startswith(("{", "`")):
                    yield text[len(before) :] if before.strip() else text
            await listening
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        if self._own and reason is None:  # LlamaIndex has no common way to say why a reply ended
            reason = "stop"
        if not text.strip():
            silent = ModelMalformed if reason is None else ModelSilent
            raise silent(f"{self.name}: the stream had no text")
        if reason is None:
            raise EOFError("the stream was cut")
        yield self._draft(text.strip(), usage, reason)

    def _draft(self, text: str, usage: Usage | None, reason: str | None) -> Draft:
        found, cut_off = unwrap_text(text) or (None, False)
        cut_off = cut_off or reason in _CUT_OFF
        return Draft(found or text, self.name, usage, cut_off, extracted=found is not None)

    def _failure_of(self, error: Exception) -> ModelFailed:
        """What an error means."""
        if isinstance(error, ModelFailed):
            return error
        told = repr(error)
        for key in filter(None, (self._settings.api_key, *self._settings.secrets)):  # a server may have echoed it
            told = told.replace(key, "[key]")
        if len(told) > _LONGEST_ERROR:
            told = f"{told[:_LONGEST_ERROR]}..."
        where = "" if _status(error) else _describe_address(self._settings.api_base)
        return _meaning(error)[0](f"{self.name}: {told}{where}")


class WithFallback(AnsweringModel):
    """A model, and another that is asked where the first has failed, after all its requests. Draft.model says who wrote.

    Together they take at most the sum of what each may. Where both fail, the first's error is raised, with a note of the second's.
    """

    def __init__(self, first: ChatModel, second: ChatModel) -> None:
        self.name = first.name
        self._first, self._second = first, second

    async def pieces(self, messages: Sequence[ChatMessage], limits: Limits, *, streamed: bool) -> Pieces:
        failed = None
        for model in (self._first, self._second):
            begun = False
            try:
                async with aclosing(model.pieces(messages, limits, streamed=streamed)) as pieces:
                    async for piece in pieces:
                        begun = not isinstance(piece, Restart)
                        yield replace(piece, failures=(failed,)) if failed and isinstance(piece, Draft) else piece
                return
            except ModelFailed as error:
                if begun and failed is not None:
                    raise
                if failed is not None:
                    failed.add_note(f"and {model.name}, asked instead: {error!r}")
                    raise failed from failed.__cause__
                failed = error
                log.warning("%s: %s; asking %s", self.name, safe_text(error), self._second.name)
                if begun:
                    yield Restart(error)


def estimate_usage(messages_text: str, text: str) -> Usage:
    """What a generation took whose usage nobody told, as when it was abandoned: an estimate, with the bundled
    tokenizer, which is not the model's."""
    return Usage(count_tokens(messages_text), count_tokens(text))


def _describe_address(api_base: str | None) -> str:
    """Where a model was asked that sent no reply, and which setting says so; of the address nothing that may be a key.

    >>> _describe_address("http://user:key@10.0.0.7:8080/v1?key=key")
    '; asked at http://10.0.0.7:8080 (set by RAG_LLM_API_BASE, or api_base in RAG_MODELS_FILE)'
    """
    if api_base is None:
        return ""
    parts = urlsplit(api_base)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return f"; asked at {place} (set by RAG_LLM_API_BASE, or api_base in RAG_MODELS_FILE)"


def _meaning(error: Exception) -> tuple[type[ModelFailed], bool]:
    """What an error of any SDK means, and whether asking again may help.

    SDKs agree on a status code and on names, and on little else; importing them all is not worth it.
    """
    status, names = _status(error), set(_names(error))
    if status >= 400:
        return ModelLimited if status == 429 else ModelFailed, status >= 500
    if any("Timeout" in name for name in names):
        return ModelTimeout, True
    if "RemoteProtocolError" in names or isinstance(error, EOFError):
        return ModelMalformed, True
    if isinstance(error, ModelFailed | LookupError | ValueError | AttributeError | TypeError):
        return ModelMalformed, False
    return ModelFailed, True


def _status(error: Exception) -> int:
    return getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None) or 0


def _broken_reply(error: Exception) -> str:
    """What an SDK was sent where it expected JSON, else nothing; of a reply whose status is an error it shows no such thing.

    huggingface_hub and openai raise what `json` raises. Where the content type is no JSON either, openai hands on the
    text (openai/_response.py), and LlamaIndex looks for choices in it.
    """
    match error:
        case JSONDecodeError():
            return error.doc
        case UnicodeDecodeError():
            return error.object[: 4 * LONGEST].decode("utf-8", "replace")
        case AttributeError(name="choices", obj=str(text)):
            return text
    return ""


def _finish_reason(reply: ChatResponse) -> str | None:
    choices = _value(reply.raw, "choices")
    names = ("finish_reason",) if choices else ("done_reason", "stop_reason", "stopReason", "finish_reason")
    told = choices[0] if choices else reply.raw
    return next((said for name in names if isinstance(said := _value(told, name), str)), None)


def _usage(reply: ChatResponse) -> Usage | None:
    """Of a stream, its last reply tells, where the server knows `stream_options`. What cannot be is not told."""
    used = _value(reply.raw, "usage")
    prompt, completion = (_value(used, name) for name in ("prompt_tokens", "completion_tokens"))
    match prompt, completion:
        case int(), int() if 0 <= prompt <= _MOST_TOKENS and 0 <= completion <= _MOST_TOKENS:
            return Usage(prompt, completion)
    return None


def _value(of: Any, name: str) -> Any:
    """Of an object of an SDK, or of the JSON that another one hands on."""
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def _names(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield from (kind.__name__ for kind in type(error).__mro__)
        error = error.__cause__ or error.__context__
