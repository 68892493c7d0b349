"""Figures as an index has them: "50 million" is 50000000, and 5 kg are 5000 g where grams are what is recorded."""

import re
from functools import cache

from rag_app.answering.records.wording import is_figure, stem, table_of, vocabulary_of, year_field
from rag_app.retrieval.index import IndexSpec

_NUMBER = r"\d+(?:\.\d+)?"
_FIGURES = rf"(?:\b(?P<low>{_NUMBER})(?P<joint>\s*(?:-|–|to|and|bis|und)\s*))?(?<![\d.,])(?P<high>{_NUMBER})\s?"
"""One figure, or two with what joins them."""
_WITH_UNIT = re.compile(rf"{_FIGURES}(?P<unit>[^\W\d_]+)\b")
_KILOMETRES = re.compile(r"(?<![\d.,€£$])(\d{1,3}(?:\.\d+)?)\s?k\b", re.I)
_YEAR = r"((?:19|20)\d\d)"
_YEARS = [
    (re.compile(rf"\b{pattern}(?![\d.,%]*\d)", re.I), said)
    for pattern, said in (
        (rf"(?:(?:between|from|over|in)\s+)?{_YEAR}\s*(?:and|to|until|till|-|–)\s*{_YEAR}", r"between \1 and \2"),
        (rf"(?:since|from)\s+{_YEAR}(?:\s+(?:on|onwards?))?\b", r"at least \1"),
        (rf"after\s+{_YEAR}", r"above \1"),
        (rf"before\s+{_YEAR}", r"under \1"),
        (rf"(?:until|till|up to|by)\s+{_YEAR}", r"at most \1"),
        (r"in\s+the\s+((?:19|20)\d)0['’]?s\b", r"between \g<1>0 and \g<1>9"),
    )
]


def say_figures(text: str, spec: IndexSpec, *, years: bool = True) -> str:
    """A question with its figures in full, and in the units of the index; `years` are bounds where two stand together.

    >>> metres = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "fields": {"height": {"type": "number", "unit": "cm"}}})
    >>> say_figures("taller than 1.5 m, with 2 to 3 thousand seeds", metres)
    'taller than 150 cm, with 2000 to 3000 seeds'
    >>> say_figures("lighter than 2 kg", metres)
    'lighter than 2 kg'
    >>> walks = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "fields": {"way": {"type": "number", "unit": "km"}}})
    >>> say_figures("who walked the 10k?", walks)
    'who walked the 10 km?'
    >>> lessons = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "fields": {"span": {"type": "number", "unit": "minutes"}}})
    >>> say_figures("longer than 1.5 hours, in the last 2 days", lessons)
    'longer than 90 minutes, in the last 2 days'
    """
    large, text = table_of("large"), _say_signs(_say_years(text, spec) if years else text, spec)
    if "km" in _own_units(spec):
        text = _KILOMETRES.sub(r"\1 km", text)
    text = _in_large().sub(lambda found: _write(found, float(large[found["times"].lower()])), text)
    return _WITH_UNIT.sub(lambda found: _convert(found, spec), text)


@cache
def _in_large() -> re.Pattern[str]:
    return re.compile(rf"{_FIGURES}(?P<times>{'|'.join(table_of('large'))})\b", re.I)


def _say_years(text: str, spec: IndexSpec) -> str:
    """With the name of the one field of years before years that bound it, where records have no dates: "since 2010".

    >>> years = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "dated_types": [],
    ...     "fields": {"year": {"type": "integer"}, "rain": {"type": "number"}}})
    >>> _say_years("how much rain since 2010", years), _say_years("rain from 1990 to 1999", years), _say_years("over 2000", years)
    ('how much rain with year at least 2010', 'rain with year between 1990 and 1999', 'over 2000')
    """
    name = year_field(spec)
    called = [] if name is None else [*vocabulary_of(spec, name).words, name.replace("_", " ")]
    if not called or re.search(
        rf"\b{re.escape(called[0])}s? (?:is |was )?(?:between|from|since|after|before|until)\b", text, re.I
    ):
        return text
    for pattern, said in _YEARS:
        text = pattern.sub(rf"with {called[0]} {said}", text)
    return text


def _say_signs(text: str, spec: IndexSpec) -> str:
    """With bounds for the words of a sign, and "by" for what something is the third for.

    >>> change = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "fields": {"growth": {"type": "number"}}})
    >>> _say_signs("what has negative growth, and what is third for growth", change)
    'what has growth below 0, and what is third by growth'
    """
    figures = [name for name in spec.fields if is_figure(spec, name)]
    words = {word for name in figures for word in (name.replace("_", " "), *vocabulary_of(spec, name).words)}
    if not words:
        return text
    name = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    for sign, bound in ("negative", "below 0"), ("positive", "above 0"):
        text = re.sub(rf"\b{sign}\s+({name})\b", rf"\1 {bound}", text, flags=re.I)
    return re.sub(rf"\b({'|'.join(table_of('ordinals'))})\s+for\s+(?={name}\b)", r"\1 by ", text, flags=re.I)


def has_other_unit(text: str, spec: IndexSpec) -> bool:
    """Whether a figure has a unit that the index does not have: "5 kg" where nothing is weighed.

    >>> grams = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "fields": {"mass": {"type": "number", "unit": "g"}}})
    >>> has_other_unit("heavier than 20 cm", grams), has_other_unit("heavier than 20 g", grams), has_other_unit("20 birds", grams)
    (True, False, False)
    """
    own = _own_units(spec)
    said = (_unit(found["unit"]) for found in _WITH_UNIT.finditer(text))
    return any(unit is not None and unit not in own and _sizes()[unit][0] != "time" for unit in said)


def _convert(found: re.Match[str], spec: IndexSpec) -> str:
    unit, own = _unit(found["unit"]), _own_units(spec)
    if unit is None or unit in own:
        return found[0]
    sort, size = _sizes()[unit]
    alike = [each for each in own if _sizes()[each][0] == sort]
    return f"{_write(found, size / _sizes()[alike[0]][1])} {alike[0]}" if len(alike) == 1 else found[0]


def _write(found: re.Match[str], times: float) -> str:
    low, high = (f"{float(each) * times:.10g}" if each else "" for each in (found["low"], found["high"]))
    return f"{low}{found['joint'] or ''}{high}"


def _own_units(spec: IndexSpec) -> set[str]:
    return {unit for words in spec.vocabulary.values() if (unit := _unit(words.unit or "")) is not None}


def _unit(word: str) -> str | None:
    return _names().get(stem(word))


@cache
def _names() -> dict[str, str]:
    return {stem(name): unit for unit, names in table_of("unit_names").items() for name in (unit, *names.split())}


@cache
def _sizes() -> dict[str, tuple[str, float]]:
    """What each unit measures, and how much of it."""
    sorts = table_of("unit_sizes").items()
    return {
        unit: (sort, float(size)) for sort, sizes in sorts for unit, size in (each.split("=") for each in sizes.split())
    }
