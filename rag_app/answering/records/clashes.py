"""Words of an index that hide another meaning: one that questions have anyway, or that of another field or kind."""

from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from rag_app.answering.records.wording import Phrase, goes_by, is_figure, roles_of, stems, vocabulary_of
from rag_app.retrieval.index import IndexSpec

_NOUNS = ("word", "total", "name")
# Meanings that nothing is lost with: no query is asked by them, or a field says the same more exactly.
_SPARE = frozenset({"unclear", "said", "apart", "everybody", "weekday", "on_weekday", "day", "week", "month", "year"})


class Clash(Struct, frozen=True):
    """What is wrong with a word, as a sentence. `counts`: questions for a total count records instead."""

    text: str
    counts: bool = False


class _Use(Struct, frozen=True):
    """What a phrase is of a field, a kind, or of nothing ("said"): "name", "word", "total", "extreme", "value", "kind"."""

    role: str
    name: str
    phrase: str


def find_clashes(spec: IndexSpec) -> list[Clash]:
    """The words of an index that are not read as declared, the worst first."""
    uses = defaultdict[Phrase, list[_Use]](list)
    for use in _declared_uses(spec) if spec.records else ():
        uses[stems(use.phrase)].append(use)
    found = [
        clash
        for phrase, each in uses.items()
        for clash in (*_clashes_between(each, spec), *_clashes_with_questions(phrase, each))
    ]
    return sorted(dict.fromkeys(found), key=lambda clash: not clash.counts)


def _declared_uses(spec: IndexSpec) -> Iterator[_Use]:
    for name in spec.fields:
        words = vocabulary_of(spec, name)
        yield from (_Use("value", name, phrase) for phrases in words.values.values() for phrase in phrases)
        yield from (_Use("extreme", name, phrase) for phrase in (*words.high, *words.low))
        if not words.own and not goes_by(name):
            yield from (_Use("total", name, phrase) for phrase in (*words.totals, *words.earned))
            yield from (_Use("word", name, phrase) for phrase in words.words)
            yield _Use("name", name, name.replace("_", " "))
    for name, kind in spec.records.items():
        yield from (_Use("kind", name, phrase) for phrase in (*kind.words, kind.plural) if phrase)
    yield from (_Use("said", "said", phrase) for phrase in spec.said)


def _clashes_between(uses: list[_Use], spec: IndexSpec) -> Iterator[Clash]:
    """Of a kind and a figure, or of two fields or two kinds."""
    kinds = [use for use in uses if use.role == "kind"]
    fields = [use for use in uses if use.role in (*_NOUNS, "extreme")]
    for use in kinds[:1]:
        figures = (each for each in fields if is_figure(spec, each.name))
        if figure := next(figures, None):
            yield Clash(
                f"“{use.phrase}” is a word of records.{use.name} and of the figure {figure.name}: "
                "a question for the total counts records; call the records something else",
                counts=True,
            )
    for alike in (kinds, fields, [use for use in uses if use.role == "value"]):
        names = [*dict.fromkeys(use.name for use in alike)]
        if len(names) > 1:
            yield Clash(
                f"“{alike[0].phrase}” is a word of {' and of '.join(names)}: a question with it means only one of them"
            )


def _clashes_with_questions(phrase: Phrase, uses: list[_Use]) -> Iterator[Clash]:
    """Of a word that questions have; the name of a field is no choice of who declares it."""
    for use in uses:
        roles = roles_of(phrase) - _SPARE - ({"taken in"} if use.role == "total" else set())
        if roles and use.role not in ("name", "extreme") and phrase != stems(use.name):
            meant = " or ".join(sorted(role.replace("_", " ") for role in roles))
            yield Clash(f"“{use.phrase}” is a word of {use.name}: questions with it no longer ask for “{meant}”")
