"""The words of a refusal where something was found: that it does not answer, in the question's language; and of a period
for which nothing is recorded.

What a seed's client is told is said in its capability, and in no other words.
"""

import re
from collections.abc import Collection, Mapping
from datetime import date
from typing import Any

from rag_app.answering.capabilities import Capability
from rag_app.answering.context import neutralise
from rag_app.answering.kinds import find_calculation
from rag_app.documents.metadata import detect_language
from rag_app.domain import Period, Question, read_table

# By what is said, then by the two letters of the language.
_TEXTS: Mapping[str, Mapping[str, Any]] = read_table(__file__)
_WORDS = {language: frozenset(words.split()) for language, words in _TEXTS["words"].items()}
_ALSO_ENGLISH = frozenset(_TEXTS["also_english"]["words"].split())


def language_of(text: str) -> str:
    """Two letters. English where a text says too little, or only words of another language that are English, too.

    >>> language_of("Was kostet der Eintritt?"), language_of("opening hours of the shop"), language_of("Où êtes-vous ?")
    ('de', 'en', 'fr')
    >>> language_of("average litres per fill"), language_of("Quanto costa per una notte?")
    ('en', 'it')
    """
    said = re.findall(r"[^\W\d_]+", text.casefold())
    known = {
        language: sum(word in words for word in said) if words.intersection(said) - _ALSO_ENGLISH else 0
        for language, words in _WORDS.items()
    }
    best = max(known, key=lambda language: known[language])
    return best if known[best] else detect_language(text, "en")


def foreign_language(text: str) -> str:
    """The language of a text for people who read English otherwise: empty for English.

    >>> foreign_language("Der Kurs ist am Samstag."), foreign_language("The course is on Saturday.")
    ('de', '')
    """
    language = language_of(text)
    return "" if language == "en" else language


def not_understood(text: str, model: str, understood: Collection[str]) -> str:
    """That an embedding model does not know the language of a question, for people; empty where it does.

    `understood` are the languages of the model; empty: all.

    >>> not_understood("Wie hoch muss ein Gutschein mindestens sein?", "MiniLM", ("en",))
    'The configured embedding model (MiniLM) knows English only, and the question seems to be in German'
    """
    language, names = language_of(text) if understood else "en", _TEXTS["names"]
    if not understood or language in understood or language not in names:
        return ""
    known = " and ".join(sorted(names.get(each, "English") for each in understood))
    return f"The configured embedding model ({model}) knows {known} only, and the question seems to be in {names[language]}"


def not_understood_here(text: str, model: str, understood: Collection[str]) -> str:
    """The same in the question's own language, of a model that knows English only; else in English.

    >>> not_understood_here("Wie hoch muss ein Gutschein sein?", "MiniLM", ("en",))
    'Das eingerichtete Embedding-Modell (MiniLM) kennt nur Englisch: Was auf Deutsch gefragt wird, findet es schlecht'
    """
    said = not_understood(text, model, understood)
    own = _TEXTS["english_only"].get(language_of(text)) if said and {*understood} == {"en"} else None
    return own.format(model) if own else said


def _language_of_warning(warning: str) -> str:
    """Two letters: of which of the languages that it is written in a warning of `not_understood_here` is; else English."""
    ends = ((language, text.rpartition("{}")[2]) for language, text in _TEXTS["english_only"].items())
    return next((language for language, end in ends if warning.endswith(end)), "en")


def near_miss_text(
    capability: Capability,
    question: Question,
    declared: Collection[str],
    warning: str = "",
    lacking: str = "",
    *,
    has_records: bool = False,
) -> str:
    """Said where hits are there and none is good enough.

    In the language that the request asks for, else in the question's if the index declares it or the warning is in it;
    with what a result that no source states would take, unless the index has records, and what these are `lacking`, or else
    the `warning` that the embedding model may be why, in the question's own language. A capability without such words of its own has one refusal for all cases; to words
    that lead to the sources only the warning is added, before those that do, and all of it is in the warning's language.
    """
    warned = _language_of_warning(warning)
    if not capability.near or capability.near.endswith(":"):
        if capability.near and warned in _TEXTS["led"]:
            return str(_TEXTS["led"][warned].format(warning))
        before, stop, leads = capability.near.rpartition(". ")
        return f"{before}. {warning}. {leads}" if warning and stop else capability.near or capability.refusal
    asked = language_of(question.text)
    wanted = question.instructions.values.get("language", "en")
    if wanted == "en" and (asked in declared or (asked == warned and not lacking)):
        wanted = asked
    said = [_TEXTS["near"].get(wanted, capability.near)]
    if reckoning := find_calculation(question.text):
        language = wanted if wanted in _TEXTS["results"] else "en"
        said.append(_TEXTS["results"][language].format(_TEXTS["wanted"][reckoning][language]))
        said += [] if has_records else [_TEXTS["from_text"][language]]
    if lacking or warning:
        said.append(f"{lacking or warning}.")
    return " ".join(said)


def unanswered_text(question: str, missing: Collection[str]) -> str:
    """That parts of a question are not answered; empty where all are.

    >>> unanswered_text("Who cuts, and how many chairs are there?", ["Who cuts,"])
    'Nothing that was found answers this part: “Who cuts”'
    """
    parts = " ".join(f"“{' '.join(neutralise(part).split()).rstrip(' ,;:')}”" for part in missing)
    told = _TEXTS["unanswered"]
    return f"{told.get(language_of(question), told['en'])}: {parts}" if parts else ""


def outdated_text(question: str) -> str:
    """Said before what only a source answers that no longer holds.

    >>> outdated_text("What is a cut?")
    'From a source that says of itself that it no longer holds'
    """
    told: Mapping[str, str] = _TEXTS["outdated"]
    return told.get(language_of(question), told["en"])


def elsewhen_text(asked: Period, found: Period, *, recorded: bool = False) -> str:
    """Said before an answer that is about another period than the question: nothing is recorded for that one, or what is
    recorded does not answer.

    >>> week = Period(date(2026, 11, 16), date(2026, 11, 22), "this week", (0, 9), "week")
    >>> elsewhen_text(week, week.move_to(date(2026, 1, 14)))
    'Nothing is recorded for 16 to 22 November 2026. The latest week with records is 12 to 18 January 2026:'
    >>> elsewhen_text(week, week.move_to(date(2026, 1, 14)), recorded=True)
    'Nothing that was found for 16 to 22 November 2026 answers this. The latest week that does is 12 to 18 January 2026:'
    """
    unit = "" if asked.grain == "days" else f"{asked.grain} "
    order = "latest" if found.end and asked.start and found.end < asked.start else "next"
    if recorded:
        that = f"{unit}that does is" if unit else "answer is of"
        return f"Nothing that was found for {asked.label} answers this. The {order} {that} {found.label}:"
    return f"Nothing is recorded for {asked.label}. The {order} {unit}with records is {found.label}:"


def nearest_period(asked: Period, days: Collection[date]) -> Period | None:
    """The period of the same kind that is nearest to the one asked for and has one of these days; earlier ones first."""
    before = [day for day in days if asked.start and day < asked.start]
    after = [day for day in days if asked.end and day > asked.end]
    day = max(before) if before else min(after) if after else None
    return asked.move_to(day) if day else None
