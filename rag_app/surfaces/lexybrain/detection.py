"""What a message wants: which of the five capabilities answers it best."""

import re
from collections.abc import Callable, Sequence

from rag_app.answering.capabilities import CAPABILITIES, DESCRIPTIONS
from rag_app.answering.models import Chats
from rag_app.answering.prompts import Prompt
from rag_app.domain.errors import ModelFailed
from rag_app.surfaces.lexybrain.dialogue import refers_back
from rag_app.surfaces.lexybrain.types import Message, Role

_NAME_TOKENS = 32
_PLAIN = re.compile(r"[\s-]+")


def detect(text: str) -> str:
    """By words alone: the rules of the contract in their order, then a vocabulary of our own.

    >>> detect("Why is this keyword rising?"), detect("How do we look beside our rivals?"), detect("Hello!")
    ('keyword_explanation', 'competitor_intel', 'general_chat')
    """
    found = contracted(text)
    if found != "general_chat":
        return found
    vocabulary = sorted((place, words, each.name) for each in CAPABILITIES for place, words in each.words)
    said = (name for _, words, name in vocabulary if re.search(rf"(?<!\w)(?:{words})", text, re.IGNORECASE))
    return next(said, "general_chat")


def follow_up(text: str, history: Sequence[Message]) -> str | None:
    """The capability of the turn before, for a question that refers back to it and says nothing of its own kind.

    "And how did it change?" is about what "it" is about. None where the rules of the contract find something, and
    where nothing is referred to.
    """
    previous = next((each.capability for each in reversed(history) if each.role is Role.USER), None)
    refers = text.rstrip().endswith("?") and refers_back(text)
    return previous if refers and contracted(text) == "general_chat" else None


def contracted(text: str) -> str:
    """The rules of the contract, and nothing else. They look for letters, not for words: "brisk" is a risk.

    >>> contracted("Which listing is best?"), contracted("How do we look beside our rivals?")
    ('competitor_intel', 'general_chat')
    """
    keywords = text.lower()
    if "competitor" in keywords or "listing" in keywords:
        return "competitor_intel"
    if "alert" in keywords or "risk" in keywords:
        return "alert_explanation"
    if "keyword" in keywords and "why" in keywords:
        return "keyword_explanation"
    if "market" in keywords or "niche" in keywords or "brief" in keywords:
        return "market_brief"
    return "general_chat"


async def classify(model: Chats, prompt: Prompt, text: str, default: Callable[[str], str] = detect) -> str:
    """By a model: `prompt` takes `question` and `capabilities`. What it says is one of the five, or `default` decides."""
    known = "\n".join(f"- {name}: {description}" for name, description in DESCRIPTIONS.items())
    try:
        draft = await model.chat(
            prompt.messages(question=text, capabilities=known), max_tokens=_NAME_TOKENS, temperature=0.0
        )
    except ModelFailed:
        return default(text)
    said = _PLAIN.sub("_", draft.text.strip(" \t\r\n\"'`*.“”‘’").lower())
    return said if said in DESCRIPTIONS else default(text)
