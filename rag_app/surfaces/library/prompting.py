"""The prompt of context blocks and a user's message, as one text or as chat messages, without a database or a model.

The system message is the caller's or that of prompts/library_assistant. The context is never in it: it stands in the
user's message, quoted, with the rule that it is data, whatever the system message says.

LlamaIndex, which reads the prompts of capabilities, takes more than a second to import. It is not imported here.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, TypedDict

from jinja2 import Template

from rag_app.answering.context import neutralise
from rag_app.domain import InvalidInput, resource_folder
from rag_app.surfaces.library.arguments import checked_call
from rag_app.surfaces.library.context import SEPARATOR, ContextBlock

_MESSAGE = re.compile(r"{% chat role=.*? %}(.*?){% endchat %}", re.DOTALL)


class Message(TypedDict):
    """As the chat endpoints of models take it.

    >>> Message(role="user", content="Do you sell headphones?")
    {'role': 'user', 'content': 'Do you sell headphones?'}
    """

    role: Literal["system", "user", "assistant"]
    content: str


@checked_call
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


@checked_call
def assemble_chat_prompt(
    context_blocks: Iterable[ContextBlock], user_message: str, *, system_template: str | None = None
) -> list[Message]:
    """A system message, and a user's with the context in front of what the user says.

    >>> [message["role"] for message in assemble_chat_prompt([], "Do you sell headphones?")]
    ['system', 'user']
    """
    return assemble_conversation_prompt(context_blocks, user_message, (), system_template=system_template)


@checked_call
def assemble_conversation_prompt(
    context_blocks: Iterable[ContextBlock],
    user_message: str,
    history: Iterable[Mapping[str, object]],
    *,
    system_template: str | None = None,
) -> list[Message]:
    """As `assemble_chat_prompt`, with the earlier turns between, oldest first, as `{"role": ..., "content": ...}`.

    Only the new message has a context; `[Source 1]` in an earlier answer, which meant another one, becomes
    `(its Source 1)`. Raises InvalidInput for a turn that is neither the user's nor the assistant's.

    >>> turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello! See [Source 2]."}]
    >>> prompt = assemble_conversation_prompt([], "Do you sell headphones?", turns)
    >>> [message["role"] for message in prompt], prompt[2]["content"]
    (['system', 'user', 'assistant', 'user'], 'Hello! See (its Source 2).')
    """
    text = SEPARATOR.join(block.quoted for block in context_blocks) or "(nothing was found)"
    question = _require_text("user_message", user_message)
    system, user = (each.render(context=text, question=question) for each in _released_messages())
    instructions = system if system_template is None else _require_text("system_template", system_template)
    return [
        Message(role="system", content=instructions),
        *(_turn(each) for each in history),
        Message(role="user", content=user),
    ]


def _turn(said: Mapping[str, object]) -> Message:
    role, content = said.get("role"), said.get("content")
    if role not in ("user", "assistant") or not isinstance(content, str):
        raise InvalidInput("history", role, "each turn must be a text with the role user or assistant")
    return Message(role=role, content=neutralise(content) if role == "assistant" else content)


def _require_text(name: str, text: str) -> str:
    if not text.strip():
        raise InvalidInput(name, text, "is empty")
    return text


@cache
def _released_messages() -> list[Template]:
    """The system's and the user's message of the active version of prompts/library_assistant."""
    folder = resource_folder("prompts")
    active = tomllib.loads((folder / "manifest.toml").read_text("utf-8"))["library_assistant"]["active"]
    text = (folder / "library_assistant" / f"{active}.jinja").read_text("utf-8")
    return [Template(message.strip()) for message in _MESSAGE.findall(text)]
