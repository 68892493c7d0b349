"""The words of a refusal where something was found: that it does not answer, in the question's language; and of a period
for which nothing is recorded.

What a seed's client is told is said in its capability, and in no other words.
"""

import re
from collections.abc import Collection
from datetime import date

from rag_app.answering.capabilities import Capability
from rag_app.answering.context import neutralise
from rag_app.answering.kinds import Calculation, find_calculation
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
_UNANSWERED = {
    "en": "Nothing that was found answers this part",
    "de": "Nichts von dem, was gefunden wurde, beantwortet diesen Teil",
    "fr": "Rien de ce qui a été trouvé ne répond à cette partie",
}
_RESULTS = {
    "en": "None of the sources found states {}. It cannot be calculated from text, only from records with fields.",
    "de": "Keine der gefundenen Quellen nennt {}. Aus Text lässt sich das nicht berechnen, nur aus Datensätzen mit Feldern.",
    "fr": "Aucune des sources trouvées n'indique {}. Cela ne se calcule pas à partir de textes, mais seulement de fiches avec des champs.",
}
"""Added where a question asks for a result over several things that no sentence states."""
_WANTED = {
    Calculation.COUNT: {"en": "this count", "de": "diese Anzahl", "fr": "ce nombre"},
    Calculation.TOTAL: {"en": "this total", "de": "diese Summe", "fr": "ce total"},
    Calculation.AVERAGE: {"en": "this average", "de": "diesen Durchschnitt", "fr": "cette moyenne"},
    Calculation.EXTREME: {"en": "which of them it is", "de": "welches davon es ist", "fr": "lequel c'est"},
    Calculation.NEVER: {"en": "for which of them this never holds", "de": "für welche das nie gilt", "fr": "pour lesquels ce n'est jamais le cas"},
}  # fmt: skip
_NAMES = {
    "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "nl": "Dutch", "pt": "Portuguese", "da": "Danish",
    "sv": "Swedish", "no": "Norwegian", "fi": "Finnish", "pl": "Polish", "cs": "Czech", "tr": "Turkish",
    "ru": "Russian", "uk": "Ukrainian", "el": "Greek", "ar": "Arabic", "he": "Hebrew", "hi": "Hindi",
    "zh": "Chinese", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
_ENGLISH_ONLY = {
    "de": "Das eingerichtete Embedding-Modell ({}) kennt nur Englisch: Was auf Deutsch gefragt wird, findet es schlecht",
    "fr": "Le modèle d'embedding configuré ({}) ne connaît que l'anglais : il trouve mal ce qui est demandé en français",
    "es": "El modelo de embedding configurado ({}) solo conoce el inglés: encuentra mal lo que se pregunta en español",
    "it": "Il modello di embedding configurato ({}) conosce solo l'inglese: trova male ciò che si chiede in italiano",
    "nl": "Het ingestelde embeddingmodel ({}) kent alleen Engels: wat in het Nederlands wordt gevraagd, vindt het slecht",
    "pt": "O modelo de embedding configurado ({}) só conhece inglês: encontra mal o que se pergunta em português",
}
"""Said to who asks in that language; `not_understood` says it in English, and of any model."""
# Words that a question in one language has and one in the others hardly has: a guess by letters needs longer texts.
_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the what which who where when why how does did is are were can our your my this that there with of and for to it we you they"
        " not tell show give have has much many about",
        "de": "der das und ist sind ein eine einen wie viel viele wann wer wo wohin warum wieso welche welcher welches kann können darf muss"
        " kostet kosten gibt es ich wir man nicht für mit von zum zur im dem den bei wird werden haben hat mein unser ihr oder bis nach",
        "fr": "le les des du est sont une quel quelle quels quelles où quand combien pourquoi comment qui pour dans avec peut faut il elle nous"
        " vous mon notre ce cette et ou jusqu pas sur aux",
        "es": "el los las del es son una qué cuál cuándo cuánto cuánta cuántos dónde quién cómo por para con puede hay se mi nuestro y en",
        "it": "il gli della è sono una che quale quando quanto quanti dove chi come perché per con può si di mio nostro e",
        "nl": "het een hoe wat wanneer wie waar waarom welke kan mag moet zijn voor met van naar bij wordt niet mijn onze en ik",
        "pt": "os da é são uma qual quando quanto quantos onde quem como por para com pode meu nosso e em não",
    }.items()
}  # fmt: skip


def language_of(text: str) -> str:
    """Two letters. English where a text says too little.

    >>> language_of("Was kostet der Eintritt?"), language_of("opening hours of the shop"), language_of("Où êtes-vous ?")
    ('de', 'en', 'fr')
    """
    said = re.findall(r"[^\W\d_]+", text.casefold())
    known = {language: sum(word in words for word in said) for language, words in _WORDS.items()}
    best = max(known, key=lambda language: known[language])
    return best if known[best] else detect_language(text, "en")


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


def not_understood_here(text: str, model: str, understood: Collection[str]) -> str:
    """The same in the question's own language, of a model that knows English only; else in English.

    >>> not_understood_here("Wie hoch muss ein Gutschein sein?", "MiniLM", ("en",))
    'Das eingerichtete Embedding-Modell (MiniLM) kennt nur Englisch: Was auf Deutsch gefragt wird, findet es schlecht'
    """
    said = not_understood(text, model, understood)
    own = _ENGLISH_ONLY.get(language_of(text)) if said and {*understood} == {"en"} else None
    return own.format(model) if own else said


def near_text(capability: Capability, question: Question, declared: Collection[str], warning: str = "") -> str:
    """Said where hits are there and none is good enough.

    In the language that the request asks for, else in the question's if the index declares it; with what a result that
    no source states would take, and the `warning` that the embedding model may be why, in the question's own language.
    A capability without such words of its own has one refusal for all cases.
    """
    if not capability.near:
        return capability.refusal
    asked = language_of(question.text)
    wanted = question.instructions.values.get("language", "en")
    if wanted == "en" and asked in declared:
        wanted = asked
    said = [_NEAR.get(wanted, capability.near)]
    if reckoning := find_calculation(question.text):
        language = wanted if wanted in _RESULTS else "en"
        said.append(_RESULTS[language].format(_WANTED[reckoning][language]))
    if warning:
        said.append(f"{warning}.")
    return " ".join(said)


def unanswered_text(question: str, missing: Collection[str]) -> str:
    """That parts of a question are not answered; empty where all are.

    >>> unanswered_text("Who cuts, and how many chairs are there?", ["and how many chairs are there?"])
    'Nothing that was found answers this part: “and how many chairs are there?”'
    """
    parts = " ".join(f"“{' '.join(neutralise(part).split())}”" for part in missing)
    language = language_of(question)
    return f"{_UNANSWERED.get(language, _UNANSWERED['en'])}: {parts}" if parts else ""


def elsewhen_text(asked: Period, found: Period) -> str:
    """Said before an answer that is about another period than the question: nothing is recorded for that one.

    >>> week = Period(date(2026, 11, 16), date(2026, 11, 22), "this week", (0, 9), "week")
    >>> elsewhen_text(week, week.move_to(date(2026, 1, 14)))
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
    return asked.move_to(day) if day else None
