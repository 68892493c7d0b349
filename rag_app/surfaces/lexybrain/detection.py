"""What a message wants: which of the five capabilities answers it best."""

import re
from collections.abc import Callable, Sequence

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.answering.models import Chats
from rag_app.answering.prompts import Prompt
from rag_app.domain.errors import ModelFailed
from rag_app.surfaces.lexybrain.dialogue import refers_back
from rag_app.surfaces.lexybrain.types import Message, Role

_HOW_TO = r"(?:how (?:do|can|should|could) (?:i|we)|how does (?:the|your)|where (?:do|can) (?:i|we)|(?:can|could) (?:i|you)|do you)\b"
_NAMED = r"[\"“'‘](?=\w)[^\"“”'‘’]{2,60}[\"”'’](?!\w)"  # "linen apron", and no apostrophe
_VOCABULARY: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (capability, re.compile(rf"(?<!\w)(?:{words})", re.IGNORECASE))
    for capability, words in (
        (
            "alert_explanation",
            r"violat|trade ?mark|copyright|patent|infring|lawsuit|legal|illegal|lawyer|sued?\b|come after|flagged|warn(?:ed|ing)"
            r"|polic(?:y|ies)\b(?<!shop policies)(?<!return policy)|complian|complain|take ?down|t(?:ook|aken) (?:it )?down|removed"
            r"|deactivat|suspen|banned|prohibited|forbidden|penalt|strike\b|notice\b|notif|severe|severity|danger|safety|appeal\b"
            r"|(?:is|am|are) (?:it|i|we) allowed|allowed to|against the|rules?\b|into trouble|reported|red (?:flag|triangle)",
        ),
        (
            "general_chat",
            r"lexyhub|lexybrain|watch ?lists?|saved|my (?:list|notes?)|note about|export|csv|subscription|account|password"
            r"|invoices?\b|billing|extension|free (?:plan|version|trial)|(?:my|which|what|your) plan|thanks?\b|hello|hi\b|good morning"
            r"|(?:what|how) (?:do|does|is|are) (?:the |your )?(?:\w+ )?(?:score|index|momentum)s? (?:mean|tell|calculated|measured|work)",
        ),
        (
            "competitor_intel",
            r"rivals?\b|undercut|dominat|outsell|(?:than|as|like) (?:theirs|them|me|i|mine)\b|(?:are|do) others\b|(?:anyone|who) else"
            r"|who sells|(?:charge|charging)\b|(?:too|more|less) (?:expensive|cheap)|cheaper|compare (?:\w+ )?(?:to|with|against)|rank above"
            r"|(?<!my )(?<!my own )(?<!our )(?<!another )(?<!new )(?:shops?|stores?|sellers?)\b(?! (?:polic|name|banner))"
            r"|best.?sell(?:er|ing)|pric(?:es?|ing) (?:of|do|against|hold)|my prices",
        ),
        ("general_chat", rf"(?<![\w,] ){_HOW_TO}(?!.*(?:{_NAMED}))|best way to|(?:any )?tips\b|in general"),
        (
            "keyword_explanation",
            r"(?:terms?|keywords?|tags?|tag my|phrases?|synonyms?|search(?:es|ed)?|search volume|long.?tail|queries)\b"
            rf"|typ(?:e|ing) (?:in|when|to)|scores? of|(?:going|gone|went|go) (?:up|down)|dropp|(?:so|how) (?:competitive|popular)|{_NAMED}",
        ),
        (
            "market_brief",
            r"trend(?!\W+momentum)|opportunit|demand (?:for|in)\b|interest in|saturat|crowded|categor|popular|worth (?:selling|getting|entering)"
            r"|should (?:i|we) (?:start|sell|enter|expand)|expand|grow(?:ing|s|n)?\b|underserved|low.competition|overview|outlook|summar"
            r"|sells? (?:best|well|more)|room for|gap\b|ideas?\b|season|hot (?:right|this|in)|business|lately|(?:shoppers|customers|people) (?:are )?"
            r"|(?:still|be) (?:buying|big|higher|lower)|are people|buyers|this (?:spring|summer|autumn|fall|winter|year|month|quarter)"
            r"|last year|next year|christmas|halloween",
        ),
    )
)
"""Tried in this order where the rules of the contract find nothing."""
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
    return next((capability for capability, words in _VOCABULARY if words.search(text)), "general_chat")


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
