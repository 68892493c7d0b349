"""The words of a refusal where something was found: that it does not answer, in the question's language; and of a period
for which nothing is recorded.

What a seed's client is told is said in its capability, and in no other words.
"""

import re
from collections.abc import Collection
from datetime import date

from rag_app.answering.capabilities import Capability
from rag_app.documents.metadata import detect_language
from rag_app.domain import Period, Question

_NEAR = {
    "de": "Ich habe etwas gefunden, aber nichts davon beantwortet die Frage.",
    "fr": "J'ai trouvé des éléments, mais aucun ne répond à la question.",
    "es": "He encontrado algo, pero nada de ello responde a la pregunta.",
    "it": "Ho trovato qualcosa, ma niente che risponda alla domanda.",
    "nl": "Ik heb iets gevonden, maar niets daarvan beantwoordt de vraag.",
    "pt": "Encontrei algo, mas nada disso responde à pergunta.",
}
"""By the two letters of the language; English is the capability's own."""
_NAMES = {
    "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "nl": "Dutch", "pt": "Portuguese", "da": "Danish",
    "sv": "Swedish", "no": "Norwegian", "fi": "Finnish", "pl": "Polish", "cs": "Czech", "tr": "Turkish",
    "ru": "Russian", "uk": "Ukrainian", "el": "Greek", "ar": "Arabic", "he": "Hebrew", "hi": "Hindi",
    "zh": "Chinese", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
# Words that a question in English has and one in another language has not; a guess needs longer texts.
_ENGLISH = re.compile(
    r"\b(?:the|what|which|who|where|when|why|how|does|did|is|are|was|were|can|our|your|my|this|that|there|with|of|and"
    r"|for|to|it|we|you|they|not|tell|show|give|have|has|much|many|about)\b",
    re.IGNORECASE,
)


def language_of(text: str) -> str:
    """Two letters. English where a text says too little.

    >>> language_of("Wie hoch muss ein Gutschein mindestens sein?"), language_of("opening hours of the shop")
    ('de', 'en')
    """
    return "en" if _ENGLISH.search(text) else detect_language(text, "en")


def not_understood(text: str, model: str, understood: Collection[str]) -> str:
    """That an embedding model does not know the language of a question, for people; empty where it does.

    `understood` are the languages of the model; empty: all.

    >>> not_understood("Wie hoch muss ein Gutschein mindestens sein?", "MiniLM", ("en",))
    'The configured embedding model (MiniLM) knows English only, and the question seems to be in German'
    """
    language = language_of(text) if understood else "en"
    if not understood or language in understood or language not in _NAMES:
        return ""
    known = " and ".join(sorted(_NAMES.get(each, "English") for each in understood))
    return f"The configured embedding model ({model}) knows {known} only, and the question seems to be in {_NAMES[language]}"


def near_text(capability: Capability, question: Question, declared: Collection[str], warning: str = "") -> str:
    """Said where hits are there and none is good enough.

    In the language that the request asks for, else in the question's if the index declares it; with the `warning` that
    the embedding model may be why. A capability without such words of its own has one refusal for all cases.
    """
    if not capability.near:
        return capability.refusal
    wanted = question.instructions.values.get("language", "en")
    if wanted == "en" and {*declared} - {"en"}:
        asked = language_of(question.text)
        wanted = asked if asked in declared else "en"
    said = _NEAR.get(wanted, capability.near)
    return f"{said} {warning}." if warning else said


def elsewhen_text(asked: Period, found: Period) -> str:
    """Said before an answer that is about another period than the question: nothing is recorded for that one.

    >>> week = Period(date(2026, 11, 16), date(2026, 11, 22), "this week", (0, 9), "week")
    >>> elsewhen_text(week, week.like(date(2026, 1, 14)))
    'Nothing is recorded for 16 to 22 November 2026. The latest week with records is 12 to 18 January 2026:'
    """
    unit = "" if asked.grain == "days" else f"{asked.grain} "
    order = "latest" if found.end and asked.start and found.end < asked.start else "next"
    return f"Nothing is recorded for {asked.label}. The {order} {unit}with records is {found.label}:"


def nearest_period(asked: Period, days: Collection[date]) -> Period | None:
    """The period of the same kind that is nearest to the one asked for and has one of these days; earlier ones first."""
    before = [day for day in days if asked.start and day < asked.start]
    after = [day for day in days if asked.end and day > asked.end]
    day = max(before) if before else min(after) if after else None
    return asked.like(day) if day else None
