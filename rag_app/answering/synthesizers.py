"""From a context to a draft: LlamaIndex response synthesizers that cite `[Source N]`."""

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from llama_index.core.callbacks import CallbackManager
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.response_synthesizers import BaseSynthesizer
from msgspec.structs import replace

from rag_app.answering.context import Context, plain_context
from rag_app.answering.leaning import question_before
from rag_app.answering.models import AnsweringModel, Draft, Limits, Pieces
from rag_app.answering.prompts import Constraints, Prompt, PromptConfig, kept_constraints, own_prompt, template_of
from rag_app.answering.providers import EXTRACTIVE
from rag_app.domain import WEEKDAYS, Instructions, Misconfigured, ModelFailed, Question, StoreFailed, day_text

log = logging.getLogger(__name__)
T = TypeVar("T")

Draw = Callable[[str], Awaitable[PromptConfig | None]]
"""The version of a type that one question gets."""


class Synthesizer(BaseSynthesizer):
    """Writes from numbered context blocks. An engine calls `write`; LlamaIndex may call `asynthesize`,
    where the nodes are the sources, numbered in their order.

    `model` is the name of who writes, for a text that no draft came of; a draft says who has written it.
    """

    model: str | None = None

    def __init__(self) -> None:
        # BaseSynthesizer.__init__ (llama-index-core 0.14.25, response_synthesizers/base.py:59) turns a missing LLM
        # into Settings.llm, which is OpenAI, and builds prompt helpers. This is the rest of it, without an LLM.
        self._llm = None  # type: ignore[assignment]
        self._callback_manager = CallbackManager()
        self._streaming = self._multimodal = False
        self._output_cls = None
        self._empty_response = ""

    @property
    def asks_model(self) -> bool:
        """Whether a model writes, which takes tokens and may say that the answer is not there; else sentences are picked."""
        return self.model not in (None, EXTRACTIVE)

    @abstractmethod
    async def write(self, question: Question, context: Context) -> Draft:
        """Raises ModelFailed or EmbeddingFailed where the model behind it does."""

    async def stream(self, question: Question, context: Context) -> Pieces:
        """The text of a draft in pieces as it is written, and then the draft."""
        draft = await self.write(question, context)
        yield draft.text
        yield draft

    async def aget_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> str:
        return (await self.write(Question(query_str), plain_context(text_chunks))).text

    def get_response(self, query_str: str, text_chunks: Sequence[str], **response_kwargs: Any) -> str:
        raise NotImplementedError("use `await synthesizer.asynthesize(...)`: rag_app's synthesizers are async")

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        if prompts:
            raise Misconfigured(f"there is no prompt {', '.join(sorted(prompts))}: {self.model} has no prompts")


class ModelSynthesizer(Synthesizer):
    """Asks a model, with a prompt that takes `question`, `context`, and what the question's instructions have for it.

    `draw` gives the version of the prompt that one question gets, as the database has it; where there is none in use,
    and without `draw`, it is `prompt`.
    """

    def __init__(self, model: AnsweringModel, prompt: Prompt, draw: Draw | None = None) -> None:
        super().__init__()
        self.model, self._model, self._prompt, self._draw = model.name, model, prompt, draw

    async def write(self, question: Question, context: Context) -> Draft:
        messages, limits, version = await self._build_request(question, context)
        return replace(await self._model.chat(messages, **limits), prompt=version)

    async def stream(self, question: Question, context: Context) -> Pieces:
        messages, limits, version = await self._build_request(question, context)
        async with aclosing(self._model.stream(messages, **limits)) as pieces:
            async for piece in pieces:
                yield replace(piece, prompt=version) if isinstance(piece, Draft) else piece

    async def _build_request(self, question: Question, context: Context) -> tuple[list[ChatMessage], Limits, str]:
        """What the model is sent, and the name of the prompt's version."""
        try:
            drawn = await self._draw(self._prompt.name) if self._draw else None
        except StoreFailed as error:  # what was found is not lost for it
            log.warning("prompt %s: %s; the file's version is used", self._prompt.name, error)
            drawn = None
        prompt = self._prompt if drawn is None else template_of(drawn)
        kept = [] if drawn is None else [kept_constraints(drawn)]
        rules: list[Instructions | Constraints] = [question.instructions, *kept]
        limits = Limits(
            max_tokens=first_not_none(each.max_tokens for each in rules),
            temperature=first_not_none(each.temperature for each in rules),
        )
        version = f"{prompt.name}_{prompt.version}" if drawn is None else drawn.name
        return messages_of(prompt, question, context.text), limits, version

    def _get_prompts(self) -> PromptDictType:
        return {self._prompt.name: self._prompt.template}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        """From here on this synthesizer's prompt is the one given, whatever version the database would draw."""
        if unknown := sorted(prompts.keys() - {self._prompt.name}):
            raise Misconfigured(f"there is no prompt {', '.join(unknown)}: this one is {self._prompt.name}")
        for name, template in prompts.items():
            self._prompt, self._draw = own_prompt(name, template, self._prompt.variables), None


class ForeignSynthesizer(Synthesizer):
    """Any LlamaIndex synthesizer. It gets a text for each block of the context, which begins with `[Source N]`; what it
    writes is checked like a model's, so its prompts have to ask for such citations."""

    def __init__(self, inner: BaseSynthesizer) -> None:
        super().__init__()
        self.model, self._inner = type(inner).__name__, inner

    async def write(self, question: Question, context: Context) -> Draft:
        texts = [block.text for block in context.blocks]
        try:
            written: Any = await self._inner.aget_response(question.text, texts)
            if isinstance(written, AsyncGenerator):
                written = "".join([piece async for piece in written])
        except Exception as error:
            raise ModelFailed(f"{self.model}: {type(error).__name__}") from error
        return Draft(str(written).strip(), str(self.model))

    def _get_prompts(self) -> PromptDictType:
        return self._inner.get_prompts()

    def _update_prompts(self, prompts: PromptDictType) -> None:
        if unknown := sorted(prompts.keys() - self._inner.get_prompts().keys()):
            raise Misconfigured(f"there is no prompt {', '.join(unknown)} in {self.model}")
        self._inner.update_prompts(prompts)


def first_not_none(values: Iterable[T | None]) -> T | None:
    """The first that is not None."""
    return next((each for each in values if each is not None), None)


def messages_of(prompt: Prompt, question: Question, context: str) -> list[ChatMessage]:
    """What a model is told: the prompt, with what the question's instructions have for it.

    A prompt without `history` is told what was asked before a question that may lean on it.
    """
    given, asked = question.instructions.values, question.text
    if "history" not in prompt.variables and (before := question_before(question)):
        asked = f"{asked}\n(The same person asked before: {before} That is not asked again.)"
    others = {name: given[name] for name in prompt.variables & given.keys() - {"question", "context"}}
    return with_today(prompt.messages(**others, question=asked, context=context), question)


def with_today(messages: list[ChatMessage], question: Question) -> list[ChatMessage]:
    """With the day on which it is asked, and the days that its words of time mean, at the end of the first message.

    Both are facts of the question and no variables of a prompt, so that every version says them.
    """
    if question.today is None:
        return messages
    said = f"Today is {WEEKDAYS[question.today.weekday()]}, {day_text(question.today)}."
    if question.period is not None:
        said += f" The question is about {question.period.label}: say the dates of the records that you use."
        said += " What is of other days only counts where nothing of these answers."
    first, *others = messages
    return [ChatMessage(role=first.role, content=f"{first.content}\n\n{said}"), *others]
