"""Whether two sentences state different values of one fact.

A value is a figure with its unit, a time, a date, a name, or whether something is so. Two sentences disagree where
they speak of the same thing in nearly the same words, and one value of one kind differs. In doubt they do not.
"""

import re
from collections.abc import Iterator

from rag_app.answering.citations import content_words
from rag_app.answering.verification.figures import NUMBER_WORDS
from rag_app.domain import frozen

_NUMBERS = {word: str(value) for word, value in NUMBER_WORDS.items()} | {"once": "1", "twice": "2"}
_ORDINALS = {
    word: str(number)
    for number, word in enumerate(
        ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"], 1
    )
}
_SIGNS = {
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "¥": "yen",
    "%": "percent",
    "usd": "dollar",
    "eur": "euro",
    "gbp": "pound",
}
_UNITS = {
    "second": ("minutes", 1 / 60), "minute": ("minutes", 1.0), "min": ("minutes", 1.0), "hour": ("minutes", 60.0),
    "day": ("minutes", 1440.0), "week": ("minutes", 10080.0), "month": ("minutes", 43200.0), "year": ("minutes", 518400.0),
    "gram": ("grams", 1.0), "g": ("grams", 1.0), "kg": ("grams", 1000.0), "kilo": ("grams", 1000.0),
    "cm": ("metres", 0.01), "mm": ("metres", 0.001), "km": ("metres", 1000.0), "m": ("metres", 1.0), "metre": ("metres", 1.0),
    "meter": ("metres", 1.0), "kilometre": ("metres", 1000.0), "mile": ("miles", 1.0),
}  # fmt: skip
_COLOURS = frozenset(
    ["black", "white", "red", "green", "blue", "yellow", "orange", "purple", "pink", "brown", "grey", "gray"]
)
_DAYS = frozenset(["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"])
_MONTHS = frozenset(
    [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ]
)
_FREE = re.compile(r"\b(?:is|are|was|were|comes?|for) free\b|\bfree of charge\b|\bcosts? nothing\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|no|never|cannot|without|neither)\b|n['’]t\b", re.IGNORECASE)
_VALUE_WORDS = frozenset(_NUMBERS) | frozenset(_SIGNS.values()) | _DAYS | _MONTHS | _COLOURS
# Words that say that there is a value, and not of what.
_PLAIN = frozenset(
    [
        "cost",
        "price",
        "charge",
        "amount",
        "take",
        "last",
        "require",
        "need",
        "must",
        "may",
        "might",
        "have",
        "contain",
        "include",
        "hold",
        "make",
        "bring",
        "sit",
        "lie",
        "lead",
        "led",
        "keep",
        "kept",
        "stay",
        "open",
        "opened",
        "opening",
        "close",
        "closed",
        "start",
        "begin",
        "began",
        "end",
        "ended",
        "finish",
        "due",
        "least",
        "most",
        "maximum",
        "minimum",
        "total",
        "about",
        "around",
        "up",
        "within",
        "under",
        "over",
        "only",
        "now",
        "currently",
        "get",
        "give",
        "given",
        "return",
        "long",
        "write",
        "wrote",
        "written",
        "there",
        "people",
        "every",
        "at",
        "a",
        "an",
        "employ",
        "located",
        "go",
        "goe",
        "run",
        "change",
        "found",
        "use",
        "used",
        "build",
        "built",
        "doe",
        "don",
        "isn",
        "aren",
        "wasn",
        "doesn",
        "cannot",
        "never",
        "not",
        "without",
        "t",
        "time",
        "per",
        "free",
        "charge",
    ]
)
_FIGURE = re.compile(
    r"(?<![\w.])([$€£¥]\s?)?(\d+(?:,\d{3})+|\d+)(\.\d+)?(?::(\d\d))?(st|nd|rd|th)?\s?([%$€£¥]|[a-z][\w/]*)?",
    re.IGNORECASE,
)


@frozen
class Statement:
    """What a sentence says: the words for what it is about, the values by their kinds, and whether it denies something."""

    about: frozenset[str]
    names: frozenset[str]
    values: tuple[tuple[str, str], ...]
    denies: bool

    def values_of(self, kind: str) -> frozenset[str]:
        """Its values of that kind."""
        return frozenset(value for each, value in self.values if each == kind)


def disagree(one: str, other: str) -> bool:
    """
    >>> disagree("A cut costs 40 dollars.", "A cut costs $45."), disagree("A cut costs 40 dollars.", "A colour costs $45.")
    (True, False)
    >>> disagree("Dogs are allowed.", "Dogs are not allowed."), disagree("It takes two days.", "It takes 48 hours.")
    (True, False)
    """
    left, right = _statement(one), _statement(other)
    common = left.about & right.about
    if not common or (left.about ^ common and right.about ^ common):
        return False  # each of them speaks of something of its own
    if len(common) * 2 < max(len(left.about), len(right.about)):
        return False
    kinds = {kind for kind, _ in left.values} & {kind for kind, _ in right.values}
    differing = {kind for kind in kinds if not left.values_of(kind) & right.values_of(kind)}
    if left.denies != right.denies:
        return not differing and left.about == right.about
    if differing:
        return len(differing) == 1 and left.names == right.names
    apart = left.names - right.names, right.names - left.names
    return bool(apart[0] and apart[1]) and left.about == right.about and not left.values and not right.values


def values_in(text: str) -> tuple[tuple[str, str], ...]:
    """The kind and the value of each figure, day, month and colour of a text.

    >>> values_in("It lasts two hours and costs $40.")
    (('minutes', '120'), ('dollar', '40'), ('paid', 'yes'))
    """
    return tuple(dict.fromkeys(_values(_to_figures(text))))


def _to_figures(text: str) -> str:
    """With figures in place of number words."""
    return re.sub(
        r"\b([A-Za-z]+)\b( of\b)?",
        lambda word: (_NUMBERS | (_ORDINALS if word[2] else {})).get(word[1].casefold(), word[1]) + (word[2] or ""),
        " ".join(text.split()),
    )


def _statement(text: str) -> Statement:
    plain, values = _to_figures(text), values_in(text)
    said = {value for _, value in values} | {kind for kind, _ in values}
    names = frozenset(
        word
        for name in re.findall(r"(?<!^)\b[A-Z][a-z]+\b|^[A-Z][a-z]+(?= [A-Z])", plain)
        for word in content_words(name)
    ) - (_DAYS | _MONTHS)
    about = content_words(_FIGURE.sub(_unit_kept, plain)) - names - _PLAIN - said - _VALUE_WORDS
    if re.search(r"\bthe last\b", plain, re.IGNORECASE):
        about |= {"last"}
    return Statement(about, names, values, _NOT.search(plain) is not None)


def _unit_kept(found: re.Match[str]) -> str:
    """What stands in a sentence for a figure: what is counted, but no unit of measure."""
    unit = (found[6] or "").casefold()
    return " " if unit.removesuffix("s") in _UNITS or unit in _UNITS else f" {unit} "


def _values(text: str) -> Iterator[tuple[str, str]]:
    for found in _FIGURE.finditer(text):
        yield _value(found)
    if _FREE.search(text):
        yield "paid", "no"
    elif re.search(r"[$€£¥]|\b(?:dollars?|euros?|pounds?|francs?)\b", text):
        yield "paid", "yes"
    for word in re.findall(r"[a-z]+", text.casefold()):
        for kind, known in (("day", _DAYS), ("month", _MONTHS), ("colour", _COLOURS)):
            if word.removesuffix("s") in known or word in known:
                yield kind, word


def _value(found: re.Match[str]) -> tuple[str, str]:
    sign, whole, fraction, minutes, _, after = found.groups()
    number = float(whole.replace(",", "") + (fraction or ""))
    unit = (sign or after or "").strip().casefold()
    unit = _SIGNS.get(unit, unit.removesuffix("s") if len(unit) > 3 else unit)
    if minutes or unit in ("am", "pm", "o"):
        return "time", f"{number:g}:{minutes or '00'}"
    if unit in _UNITS:
        kind, factor = _UNITS[unit]
        return kind, f"{number * factor:g}"
    if unit == "time" or re.match(r"(?:a|per|every)$", unit):
        return "times", f"{number:g}"
    if not unit and 1500 < number < 2100 and not fraction:
        return "year", f"{number:g}"
    return unit if unit in _SIGNS.values() else "figure", f"{number:g}"
