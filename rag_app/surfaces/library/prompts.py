"""Context blocks and a message to prompts, for whichever model the caller uses.

The system message is the caller's or that of prompts/library_assistant. The context is never in it: it stands in the
user's message, quoted, with the rule that it is data, whatever the system message says.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, TypedDict

from rag_app.answering.context import neutralise
from rag_app.answering.prompts import Prompt, load_prompts
from rag_app.domain.errors import InvalidInput
from rag_app.domain.resources import resource_folder
from rag_app.surfaces.library.context import SEPARATOR, ContextBlock


class Message(TypedDict):
    """As the chat endpoints of models take it.

    >>> Message(role="user", content="Do you sell headphones?")
    {'role': 'user', 'content': 'Do you sell headphones?'}
    """

    role: Literal["system", "user", "assistant"]
    content: str


def assemble_prompt(
    context_blocks: Iterable[ContextBlock], user_message: str, *, system_template: str | None = None
) -> str:
    """One text: the system message, the context, the user's message.

    Raises InvalidInput for an empty message.

    >>> block = ContextBlock(1, "policy", "returns", "30 days.", 0.8, ("c-2",), title="Returns")
    >>> prompt = assemble_prompt([block], "How long can I return it?", system_template="You help customers.")
    >>> prompt.startswith("You help customers."), "> 30 days." in prompt, prompt.endswith("How long can I return it?")
    (True, True, True)
    """
    chat = assemble_chat_prompt(context_blocks, user_message, system_template=system_template)
    return SEPARATOR.join(message["content"] for message in chat)


def assemble_chat_prompt(
    context_blocks: Iterable[ContextBlock], user_message: str, *, system_template: str | None = None
) -> list[Message]:
    """A system message, and a user's with the context in front of what the user says.

    >>> [message["role"] for message in assemble_chat_prompt([], "Do you sell headphones?")]
    ['system', 'user']
    """
    return assemble_conversation_prompt(context_blocks, user_message, (), system_template=system_template)


def assemble_conversation_prompt(
    context_blocks: Iterable[ContextBlock],
    user_message: str,
    history: Iterable[Mapping[str, object]],
    *,
    system_template: str | None = None,
) -> list[Message]:
    """As `assemble_chat_prompt`, with the earlier turns between, oldest first, as `{"role": ..., "content": ...}`.

    Only the new message has a context; `[Source 1]` in an earlier answer, which meant another one, becomes
    `(Source 1)`. Raises InvalidInput for a turn that is neither the user's nor the assistant's.

    >>> turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! See [Source 2]."}]
    >>> prompt = assemble_conversation_prompt([], "Do you sell headphones?", turns)
    >>> [message["role"] for message in prompt], prompt[2]["content"]
    (['system', 'user', 'assistant', 'user'], 'Hello! See (Source 2).')
    """
    text = SEPARATOR.join(block.quoted for block in context_blocks) or "(nothing was found)"
    question = _filled("user_message", user_message)
    system, user = _prompt().messages(context=text, question=question)
    instructions = str(system.content) if system_template is None else _filled("system_template", system_template)
    return [
        Message(role="system", content=instructions),
        *(_turn(each) for each in history),
        Message(role="user", content=str(user.content)),
    ]


def _turn(said: Mapping[str, object]) -> Message:
    role, content = said.get("role"), said.get("content")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise InvalidInput("history", role, "a turn is a text of the role user or assistant")
    return Message(role=role, content=neutralise(content) if role == "assistant" else content)


def _filled(name: str, text: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput(name, text, "is empty")
    return text


@cache
def _prompt() -> Prompt:
    return load_prompts(resource_folder("prompts"))["library_assistant"]
