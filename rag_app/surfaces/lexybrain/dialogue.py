"""What has been said before, as a prompt shows it and as a search takes it in."""

import re
from collections.abc import Sequence

from rag_app.answering.context import count_tokens, neutralise
from rag_app.answering.models import Chats
from rag_app.answering.prompts import Prompt
from rag_app.domain.errors import ModelFailed
from rag_app.surfaces.lexybrain.types import Message, Role

_SPEAKERS = {Role.USER: "User", Role.ASSISTANT: "Assistant"}
_WORTH_CUTTING = 24  # tokens: less of an older message than this says nothing
_PREVIOUS = 400  # characters
_FOLLOW_UPS = 3
_REFERS = re.compile(r"\b(?:it|its|they|them|their|these|those|this one|that one|the same)\b", re.IGNORECASE)
_QUERY = 400  # characters of a rewritten query; a model was asked for 40 words
_QUERY_TOKENS = 160
_CUT = " …"


def history_text(messages: Sequence[Message], max_tokens: int) -> str:
    """The newest of these messages (oldest first) that fit into `max_tokens` of the bundled tokenizer, oldest first.

    The oldest of them may be cut at its end. What was said is data: every line but the first of a message is quoted, so
    it can be neither the title of a section nor another's turn; `[Source 3]` becomes `(Source 3)`, for that number means
    another source by now.
    """
    turns: list[str] = []
    left = max_tokens
    for message in reversed(messages):
        text = neutralise(message.text).strip()
        if not text:
            continue
        turn = _turn(message.role, text)
        if (cost := count_tokens(turn)) > left:
            if not turns or left >= _WORTH_CUTTING:
                turns += _cut(message.role, text, left)
            break
        turns.append(turn)
        left -= cost
    return "\n".join(reversed(turns))


def searched_text(text: str, history: Sequence[Message]) -> str:
    """What to search for: the user's previous message, and the present one whole. A follow-up by itself names nothing.

    Where the previous one is a follow-up, too, the one before it comes along, and so on.
    """
    said: list[str] = []
    for message in reversed(history):
        if message.role is Role.USER and len(said) < _FOLLOW_UPS and (not said or refers_back(said[0])):
            said.insert(0, message.text)
    previous = _beginning(" ".join(neutralise(" ".join(said)).split()), _PREVIOUS)
    return f"{previous}\n{text}" if previous and previous != text.strip() else text


def refers_back(text: str) -> bool:
    """Whether a text may speak of what was said before it.

    >>> refers_back("And how did it change?"), refers_back("Which ring sells best?")
    (True, False)
    """
    return _REFERS.search(text) is not None


async def rewritten(model: Chats, prompt: Prompt, text: str, history: Sequence[Message], max_tokens: int) -> str | None:
    """The message as a query that stands on its own, by a model: `prompt` takes `history` and `question`.

    The model reads at most `max_tokens` of history. None where there is none, or the model does not give a query:
    then `searched_text` will do.
    """
    shown = history_text(history, max_tokens)
    if not shown:
        return None
    try:
        draft = await model.chat(
            prompt.messages(history=shown, question=text), max_tokens=_QUERY_TOKENS, temperature=0.0
        )
    except ModelFailed:
        return None
    query = " ".join(neutralise(draft.text).split()).strip(" \"'`“”")
    return query if query and len(query) <= _QUERY and not draft.cut_off else None


def _turn(role: Role, text: str) -> str:
    first, *others = text.splitlines()
    return "\n".join([f"{_SPEAKERS[role]}: {first}", *(f"> {line}" if line.strip() else ">" for line in others)])


def _cut(role: Role, text: str, max_tokens: int) -> list[str]:
    """As much of a turn's beginning as fits, if any does. Longer beginnings cost more, so halving finds the longest."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(_turn(role, text[:middle] + _CUT)) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    kept = _beginning(text, low).rstrip()
    return [_turn(role, kept + _CUT)] if kept else []


def _beginning(text: str, length: int) -> str:
    """At most so many characters, without half a word unless there is nothing else."""
    if len(text) <= length:
        return text
    kept = text[:length]
    if text[length].isspace():
        return kept.rstrip()
    words = kept.rsplit(maxsplit=1)
    return words[0] if len(words) == 2 and len(words[1]) < 40 else kept
