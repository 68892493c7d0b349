"""The words of a question about records, and what each of them may mean.

An index says how people speak of its fields and records (index.toml); the scope's records have values; planning.toml has
the words that ask ("how many", "cheapest", "per") and those that say nothing ("please").
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, dropwhile, islice, pairwise, permutations, takewhile
from pathlib import Path

from msgspec import Struct

from rag_app.domain import FieldType, column_name, drop_vowels, lacks_one, read_table
from rag_app.retrieval.formulas import names_in
from rag_app.retrieval.index import IndexSpec, Kind, Vocabulary
from rag_app.retrieval.records import NUMBER_FIELDS, NamedValue
from rag_app.retrieval.spelling import SHORTEST
from rag_app.retrieval.text import NUMBER_WORDS, plural, singular

Phrase = tuple[str, ...]
_WORD = re.compile(r"(?<![\w.,-])-\d+(?:[.,]\d+)*|\d+(?:[.,]\d+)*|[^\W\d_]+")
_SIGNS = {"€": "euros", "£": "pounds", "$": "dollars", "%": "percent"}
_RANGE = re.compile(r"(?:\bfrom\s+)?(?<![\w.,-])(\d[\d.,]*)\s*(?:to|[-–])\s*(\d[\d.,]*)(?![\w-])", re.I)
_CONTRACTION = re.compile(r"\b(is|are|was|were|do|does|did|has|have|had|could|would|should|ca|wo)nt\b", re.I)
_MONEY = re.compile(r"([€£$])\s?(\d[\d.,]*\d|\d)")
_IF_SO = re.compile(r"\b(?:if (?:so|yes|any|there (?:is|are)(?: any)?)|wenn ja|falls ja|si oui)\b,?(?=\s)", re.I)
_CODE = 4  # letters of a code at most
_GENITIVE = "\0"  # stands in a text where the s of a genitive did
_ARTICLE = "the"  # left out of questions and phrases alike: "the most expensive" is "most expensive"
SUPERLATIVES = frozenset({"high", "low", "most", "least", "newest", "oldest", "best", "worst"})
BOUND_ROLES = frozenset({"under", "over", "least_of", "most_of"})
_NEED = 5  # words before what is still to be done that say so
_FIGURES = frozenset({"count", "much", "sum", "average", "more", "field", "total"})
_LONGEST = 6  # words of a phrase
_SHORTEST_NOUN = 6  # letters of "things"
BEGINNING = 4  # letters by which "booked" is of a booking
_SHORTEST_CUT, _CUT = 3, 3  # letters of a word that is cut short in a name, and what is cut off at least
_SHORT_NAMED = frozenset({*NUMBER_FIELDS, FieldType.KEYWORD})
_PEOPLE = ("people",)
_LONG_VALUE = 4  # words: a longer value is no name
_MOST_NAMED = 12  # values that a part of them may stand for
_MOST_INDEXES = 64  # whose phrases are remembered; by identity, since an index that is declared anew is another object
_OWN_PHRASES: dict[int, tuple[IndexSpec, Mapping[Phrase, tuple["Meaning", ...]]]] = {}


class Meaning(Struct, frozen=True):
    """What a phrase may mean: `role` as in planning.toml, or of the index's words "kind", "field", "total", "high", "low",
    "value", "unit", or "on_weekday"; "unclear" is a value of two fields. "over" and "under" may be of a field: "hotter than".
    """

    role: str
    name: str = ""
    value: str = ""


@dataclass(slots=True)
class Token:
    """A word of the question, with what it was understood as: the first word of a phrase carries its `meaning`.

    `said`: it is understood, or says nothing. `others` are further meanings of the phrase, `also` further values.
    `inside`: it is a further word of the phrase before it. `parted`: a comma or a colon stands before it, `definite`: an
    article or a genitive, `joined`: nothing does ("T4" has two words). `tells_number`: it is the number of what is known already, as in "the two visits".
    """

    text: str
    stem: str
    meaning: Meaning | None = None
    said: bool = False
    others: tuple[Meaning, ...] = ()
    also: tuple[str, ...] = ()
    inside: bool = False
    parted: bool = False
    definite: bool = False
    joined: bool = False
    tells_number: bool = False

    @property
    def is_left(self) -> bool:
        return self.meaning is None and not self.said

    @property
    def is_unmeant(self) -> bool:
        """Whether it is understood, and no part of what means something."""
        return self.said and self.meaning is None and not self.inside

    @property
    def role(self) -> str:
        return self.meaning.role if self.meaning else ""

    @property
    def name(self) -> str:
        """Of the field or the kind that it means."""
        return self.meaning.name if self.meaning else ""


def read_words(text: str, spec: IndexSpec, values: Sequence[NamedValue] = ()) -> list[Token]:
    """The words of a question with their meanings: whole phrases first, then parts of values."""
    values = [each for each in values if not _is_code_alike(each.value, text)]
    phrases = _phrases(spec, values) if values else _own_phrases(spec)
    tokens = [
        Token(
            said,
            stem(said),
            parted=parted and place == 0,
            definite=definite and place == 0,
            joined=joined and place == 0,
        )
        for word, parted, definite, joined in _split(text)
        for place, said in enumerate(_in_degree(word, phrases))
    ]
    place = 0
    while place < len(tokens):
        place += _read_phrase(tokens, place, phrases, spec)
    _read_parts(tokens, values, spec)
    _read_short_names(tokens, spec)
    _read_parted_names(tokens, spec)
    _settle(tokens, spec)
    _doubt_verbs(tokens)
    _read_states(tokens, values)
    return tokens


def _read_states(tokens: Sequence[Token], values: Sequence[NamedValue]) -> None:
    """The name of a kind that is a state as well is that state where another one is set against it: "booked in but not done"."""
    named = [place for place, token in enumerate(tokens) if token.meaning and token.role != "not"]
    for one, other in pairwise(named):
        kind, denied = tokens[one], [each.stem for each in tokens[one:other] if each.role == "not"]
        if kind.role == "kind" and tokens[other].role == "value" and denied and denied[0] in word_set("but"):
            of = tokens[other].name
            state = next((each for each in values if stems(each.value) == (kind.stem,) and each.field == of), None)
            kind.meaning = Meaning("value", state.field, state.value) if state is not None else kind.meaning


def _is_code_alike(value: str, text: str) -> bool:
    """Whether a code is written like a word of asking, and the text has that word: "PER" is not "per".

    >>> _is_code_alike("PER", "sales per month"), _is_code_alike("PER", "sales of PER"), _is_code_alike("KEN", "sales of ken")
    (True, False, False)
    """
    word = value.casefold()
    asks = value.isupper() and len(value) <= _CODE and (stem(word) in says_nothing() or (stem(word),) in _common())
    return asks and re.search(rf"\b{re.escape(value)}\b", text) is None


def _in_degree(word: str, phrases: Collection[Phrase]) -> tuple[str, ...]:
    """A comparative of an adjective that a value is called by as two words: "sunnier" is "more sunny".

    >>> _in_degree("sunnier", {("sunny",)}), _in_degree("Sunniest", {("sunny",)}), _in_degree("earlier", {("sunny",)})
    (('more', 'sunny'), ('most', 'sunny'), ('earlier',))
    """
    found = re.fullmatch(r"(\w{2,})i(er|est)", word, re.I)
    if found is None or (stem(word),) in phrases or (stem(f"{found[1]}y"),) not in phrases:
        return (word,)
    return ("more" if found[2].lower() == "er" else "most"), f"{found[1].lower()}y"


def join_words(tokens: Iterable[Token]) -> str:
    """The text of words, with those together that were one: "T4".

    >>> join_words([Token("from", "from"), Token("T", "t"), Token("4", "4", joined=True)])
    'from T4'
    """
    return "".join(token.text if token.joined else f" {token.text}" for token in tokens).strip()


def without_phrases(tokens: Sequence[Token], left_out: Sequence[Token]) -> str:
    """The words without the phrases that begin with one of the others."""
    kept, out = [], False
    for token in tokens:
        out = out if token.inside else any(token is each for each in left_out)
        kept += [] if out else [token]
    return join_words(kept)


def known_words(spec: IndexSpec, values: Iterable[NamedValue]) -> frozenset[str]:
    """The stems of all words that mean something in an index, but for short ones that only ask: "perm" is not "per"."""
    own = frozenset(word for phrase, _ in _meanings(spec, values) for word in stems(phrase))
    return own | _asking_words() | says_nothing()


@cache
def _asking_words() -> frozenset[str]:
    """The stems of the words that rules ask for, whatever the index."""
    in_sets = (stem(word) for name in _table()["sets"] for word in word_set(name))
    return frozenset(word for word in chain(chain.from_iterable(_common()), in_sets) if len(word) >= SHORTEST)


def people_field(spec: IndexSpec) -> str | None:
    """The one field whose values are the people that "who" asks for."""
    return asked_field(spec, "who") or _only_called(spec, "customers", (FieldType.KEYWORD,))


def asked_field(spec: IndexSpec, word: str) -> str | None:
    """The one field that a word of asking is declared to ask for."""
    named = [name for name, words in spec.vocabulary.items() if words.asked == word]
    return named[0] if len(named) == 1 else None


def place_fields(spec: IndexSpec) -> list[str]:
    """The fields that "where" asks for."""
    return [name for name, words in spec.vocabulary.items() if words.asked == "where"]


def workers_field(spec: IndexSpec) -> str | None:
    """The one field whose values are the people who work there: who is busy, or earns."""
    named = [
        name
        for name, kind in spec.fields.items()
        if kind is FieldType.KEYWORD
        and word_set("workers") & {stem(word) for word in (*vocabulary_of(spec, name).words, name)}
    ]
    return named[0] if len(named) == 1 else None


def price_field(spec: IndexSpec) -> str | None:
    """The one figure that "how much" asks for of a thing that is named."""
    return _only_called(spec, "price", NUMBER_FIELDS)


def stock_field(spec: IndexSpec) -> str | None:
    """The one figure that says how many pieces of a thing are there, by its words: "in stock", "pieces"."""
    there = {*_available(), stems("pieces"), stems("stock"), stems("stück"), stems("bestand")}
    named = [
        name
        for name, words in spec.vocabulary.items()
        if words.adds_up and is_figure(spec, name) and there & {*map(stems, words.words)}
    ]
    return named[0] if len(named) == 1 else None


def key_fields(spec: IndexSpec) -> frozenset[str]:
    """The fields of which one value tells a row of a table from all others."""
    keys = ((rule, column_name(rule.key[0])) for rule in spec.rows if len(rule.key) == 1)
    return frozenset(rule.columns.get(key, key) for rule, key in keys)


def money_field(spec: IndexSpec) -> str | None:
    """The one figure in money that adds up, else the one that records go by."""
    named = [name for name, words in spec.vocabulary.items() if words.adds_up and in_money(words.unit)]
    usual = [name for name in named if any(kind.by == name for kind in spec.records.values())]
    return next((each[0] for each in (named, usual) if len(each) == 1), None)


def total_field(spec: IndexSpec) -> str | None:
    """The one figure that has words for its total, in whatever unit."""
    named = [name for name, words in spec.vocabulary.items() if words.totals]
    return named[0] if len(named) == 1 else None


def takings_field(spec: IndexSpec) -> str | None:
    """The one figure in money that has words for its total."""
    named = [name for name, words in spec.vocabulary.items() if words.totals or words.earned]
    return named[0] if len(named) == 1 and in_money(vocabulary_of(spec, named[0]).unit) else None


def in_money(unit: str) -> bool:
    units = _table()["money"]["units"].split()
    return unit.casefold() in {*units, *map(stem, units)}


def may_be_summed(spec: IndexSpec, name: str) -> bool:
    """Whether figures of a field make a total: they add up, their unit is one of amounts, or they are computed from such
    figures and are no ratio. A score, a rating, a temperature or a percentage makes none.

    >>> hens = IndexSpec.model_validate({
    ...     "name": "hens", "source_types": ["hen"], "default_source_type": "hen",
    ...     "fields": {"eggs": {"type": "integer", "adds_up": True}, "weight": {"type": "number", "unit": "kg"}, "rating": "number",
    ...                "sold": {"type": "integer", "formula": "eggs - 6"}, "mean": {"type": "number", "formula": "weight / eggs"}}})
    >>> [may_be_summed(hens, each) for each in ("eggs", "weight", "rating", "sold", "mean")]
    [True, True, False, True, False]
    """
    words, units = vocabulary_of(spec, name), {*_table()["money"]["amounts"].split(), *_table()["unit_names"]}
    said = {words.unit.casefold(), *stems(words.unit)}
    adds_up = words.adds_up or bool(words.totals) or name == price_field(spec)
    parts = names_in(words.formula) if words.formula and "/" not in words.formula else ()
    computed = bool(parts) and all(may_be_summed(spec, each) for each in parts)
    return adds_up or computed or in_money(words.unit) or bool(said & {*units, *map(stem, units)})


def only_figure(spec: IndexSpec) -> str | None:
    """The figure of an index whose records are all of one kind, where they have just one besides a year."""
    figures = [name for name in spec.fields if is_measure(spec, name)]
    return figures[0] if len(spec.records) == len(figures) == 1 else None


def _only_called(spec: IndexSpec, alike: str, types: Collection[FieldType]) -> str | None:
    called = {*_table()["alike"][alike].split(" | ")}
    named = [
        name
        for name, kind in spec.fields.items()
        if kind in types and called & {*vocabulary_of(spec, name).words, name.replace("_", " ")}
    ]
    return named[0] if len(named) == 1 else None


@cache
def says_nothing() -> frozenset[str]:
    words = _table()["said"]["words"].split()
    going_on = (f"{word.removesuffix('e')}ing" for word in words if len(word) > 2)  # "needing", of "need"
    return frozenset(map(stem, (*words, *going_on))) - word_set("missing")


def variants(word: str) -> tuple[str, ...]:
    """How a value may have the word: as it is, and in the other number.

    >>> variants("trims"), variants("category")
    (('trims', 'trim'), ('category', 'categorys', 'categories'))
    """
    word, one = word.casefold(), stem(word)
    return tuple(dict.fromkeys((word, one, f"{one}s", plural(one))))


def stem(word: str) -> str:
    """
    >>> stem("Bookings"), stem("is"), stem("categories")
    ('booking', 'is', 'category')
    """
    word = word.casefold()
    return singular(word) if len(word) > 3 and not word.endswith("lches") else word  # "welches" is no plural


def plural_of(noun: str, number: int = 2) -> str:
    """
    >>> plural_of("bestseller"), plural_of("booking", 1)
    ('bestsellers', 'booking')
    """
    return noun if number == 1 else plural(noun)


def noun_of(kind: Kind, number: int = 2) -> str:
    """What so many records of a kind are called."""
    return kind.plural if kind.plural and number != 1 else plural_of(kind.words[0], number)


@lru_cache(8192)
def stems(text: str) -> Phrase:
    return tuple(map(stem, _words(text)))


def figure(word: str) -> float | None:
    """
    >>> figure("1,200"), figure("-5"), figure("twenty"), figure("listing")
    (1200.0, -5.0, 20.0, None)
    """
    if re.fullmatch(r"-?(?:\d+|\d+\.\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?)", word):
        return float(word.replace(",", ""))
    known = numbers().get(word.casefold())
    return None if known is None else float(known)


@cache
def numbers() -> Mapping[str, int]:
    """What words say as figures, in the order of their tables."""
    return {**NUMBER_WORDS, **{word: int(value) for word, value in _table()["numbers"].items()}}


def figures_in(text: str) -> frozenset[float]:
    """
    >>> sorted(figures_in("over 1,200 pounds or the ten dearest"))
    [10.0, 1200.0]
    """
    return frozenset(value for word in _words(text) if (value := figure(word)) is not None)


def vocabulary_of(spec: IndexSpec, field: str | None) -> Vocabulary:
    return spec.vocabulary.get(field or "") or Vocabulary()


def goes_by(field: str) -> bool:
    """Whether the field is a number that a record goes by, and no figure: "customer 42"."""
    return field.endswith(("_id", "_number", "_no"))


def says_year(spec: IndexSpec, name: str) -> bool:
    """Whether a whole number is a year, by its name: "registration year", and not "years of service"."""
    called = " ".join((name.replace("_", " "), *vocabulary_of(spec, name).words)).casefold().split()
    return spec.fields.get(name) is FieldType.INTEGER and not {*called}.isdisjoint(word_set("year_of"))


def year_field(spec: IndexSpec) -> str | None:
    """The one field of years, where records have no dates."""
    named = [name for name in spec.fields if says_year(spec, name)] if spec.dated_types == () else []
    return named[0] if len(named) == 1 else None


def is_measure(spec: IndexSpec, name: str) -> bool:
    """Whether a figure measures something, and says neither when nor where it is: a year, a longitude."""
    return is_figure(spec, name) and not says_year(spec, name) and not {*stems(name)} & word_set("coordinates")


def is_figure(spec: IndexSpec, name: str) -> bool:
    """Whether a field is a number that can be compared, and not one that a record goes by."""
    return spec.fields.get(name) in NUMBER_FIELDS and not goes_by(name)


def _words(text: str) -> list[str]:
    return [word for word, *_ in _split(text)]


def _split(text: str) -> Iterator[tuple[str, bool, bool, bool]]:
    """The words, each with whether a comma or a colon stands before it, whether an article or a genitive does, or nothing.

    Without articles and without the s of a genitive; signs of money as words behind their figures.
    """
    bare = re.sub(r"(?<=\w)['’]s\b", _GENITIVE, _IF_SO.sub("", text)).replace("−", "-")
    bare = _CONTRACTION.sub(r"\1n t", bare)
    bare = re.sub(r"(?<=\d)\+(?!\d)", " or more", bare)
    bare = _RANGE.sub(r"between \1 and \2", bare)
    bare = _MONEY.sub(lambda found: f"{found[2]} {found[1]}", bare)
    bare = re.sub("[€£$%]", lambda found: f" {_SIGNS[found[0]]} ", bare)
    end, article = 0, False
    for found in _WORD.finditer(bare):
        if found[0].casefold() == _ARTICLE:
            article = True
            continue
        between = bare[end : found.start()]
        yield found[0], not {*",:;"}.isdisjoint(between), article or _GENITIVE in between, end > 0 and not between
        end, article = found.end(), False


# -- the words of planning.toml and of the index
@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return read_table(str(Path(__file__).with_name("planning.toml")))


def name_field(spec: IndexSpec, field: str) -> str:
    """What people call a field: the first of its words, or else its name; one that holds or not, by what it is called where it
    holds."""
    words = vocabulary_of(spec, field)
    holds = words.values.get("true", ()) if spec.fields.get(field) is FieldType.BOOLEAN and not words.own else ()
    return (*words.words, *holds, field.replace("_", " "))[0]


def table_of(name: str) -> Mapping[str, str]:
    """A table of planning.toml."""
    return _table()[name]


@cache
def word_set(name: str) -> frozenset[str]:
    """
    >>> sorted(word_set("but"))
    ['aber', 'but', 'mais']
    """
    return frozenset(_table()["sets"][name].split())


def may_mean(text: str, role: str) -> bool:
    """Whether words have a role in any index.

    >>> may_mean("highest", "most"), may_mean("dearest", "most")
    (True, False)
    """
    return any(each.role == role for each in _common().get(stems(text), ()))


def asks_with(before: str, word: str) -> bool:
    """Whether two words ask together in any index.

    >>> asks_with("how", "often"), asks_with("how", "offer")
    (True, False)
    """
    return (stem(before), stem(word)) in _common()


@cache
def _common() -> Mapping[Phrase, tuple[Meaning, ...]]:
    found: dict[Phrase, tuple[Meaning, ...]] = {}
    for role, phrases in _table()["roles"].items():
        for phrase in re.split(r"[|\n]", phrases):
            if key := stems(phrase):
                found[key] = (*found.get(key, ()), Meaning(role))
    for day, phrases in _table()["weekdays"].items():
        for phrase in phrases.split("|"):
            found[stems(phrase)] = (Meaning("on_weekday", value="6,7" if day == "weekend" else day),)
    found |= {stems(word): (Meaning("ordinal", value=str(place)),) for word, place in _table()["ordinals"].items()}
    organizations = _table()["organizations"]
    for each in organizations["each"].split("|"):
        for noun in organizations["nouns"].split("|"):
            found[stems(f"{each} {noun}")] = (Meaning("everybody"),)
    return found


def roles_of(phrase: Phrase) -> frozenset[str]:
    """What a phrase asks for in questions of any index; "taken in" is a total.

    >>> sorted(roles_of(("last",))), sorted(roles_of(("took",))), sorted(roles_of(("ring",)))
    (['newest'], ['taken in'], [])
    """
    taken_in = {"taken in"} if len(phrase) == 1 and phrase[0] in word_set("brings") else set()
    return frozenset(each.role for each in _common().get(phrase, ())) | taken_in


@cache
def _alike() -> Sequence[tuple[Phrase, ...]]:
    """The groups of phrases that mean the same."""
    return [tuple(map(stems, phrases.split("|"))) for phrases in _table()["alike"].values()]


@cache
def _states() -> tuple[Phrase, ...]:
    """What nothing can be had of, which an index may have no value for: "sold out" is no number sold."""
    return tuple(map(stems, _table()["alike"]["unavailable"].split("|")))


@cache
def _available() -> tuple[Phrase, ...]:
    """What something can be had by."""
    return tuple(map(stems, _table()["alike"]["available"].split("|")))


def words_alike(words: Iterable[str]) -> tuple[str, ...]:
    """Other words of one word that values may have instead of these."""
    asked = {(stem(word),) for word in words}
    groups = (group for group in _alike() if asked & {*group})
    return tuple(dict.fromkeys(phrase[0] for group in groups for phrase in group if len(phrase) == 1))


def _own_phrases(spec: IndexSpec) -> Mapping[Phrase, tuple[Meaning, ...]]:
    """What phrases mean without any values, made once for each index: a question is read some fifteen times."""
    known, phrases = _OWN_PHRASES.get(id(spec), (None, {}))
    if known is not spec:
        if len(_OWN_PHRASES) >= _MOST_INDEXES:
            _OWN_PHRASES.clear()
        phrases = _phrases(spec, ())
        _OWN_PHRASES[id(spec)] = spec, phrases
    return phrases


def _phrases(spec: IndexSpec, values: Iterable[NamedValue]) -> Mapping[Phrase, tuple[Meaning, ...]]:
    """What phrases mean, the likeliest first: as values, as the index's words, as words that ask."""
    found: dict[Phrase, tuple[Meaning, ...]] = {}
    for phrase, meaning in _meanings(spec, values):
        key = stems(phrase)
        short = key[-1:] and len(key) > 1 and len(key[-1]) < 3 and meaning.role in ("field", "kind")
        for each in (key, (*key[:-1], f"{key[-1]}s")) if short else (key,):  # "follow-ups"
            if each and meaning not in found.get(each, ()):
                found[each] = (*found.get(each, ()), meaning)
    found |= _synonyms_of(found)
    if (people := asked_field(spec, "who")) is not None:
        found |= {key: (Meaning("field", people),) for key in map(stems, word_set("anybody_of")) if key not in found}
    totals = [name for name, words in spec.vocabulary.items() if words.totals]
    taken_in = map(stems, _table()["money"]["taken_in"].split("|") if len(totals) == 1 else ())
    found |= {key: (total_of(spec, totals[0], key),) for key in taken_in if key not in found}
    stock = stock_field(spec)
    state = Meaning("value", stock, "==0") if stock is not None else Meaning("unclear")
    found |= {key: (state,) for key in _states() if key not in found}
    owing = map(stems, _table()["money"]["owing"].split("|"))
    found |= {key: (Meaning("unclear"),) for key in owing if key not in found}
    for key, meanings in _common().items():
        if meanings[0].role == "everybody" and any(each.role == "kind" for each in found.get(key[-1:], ())):
            continue  # "all shops" are records where those are shops
        if (
            meanings[0].role == "count"
            and key[1:] == ("of",)
            and any(each.role == "field" for each in found.get(key[:1], ()))
        ):
            continue  # "a quantity of 0", where that is a field
        found[key] = (*found.get(key, ()), *meanings)
    return found


def total_of(spec: IndexSpec, name: str, phrase: Phrase) -> Meaning:
    """What has been taken is earned, where the index tells that from a total."""
    earned = vocabulary_of(spec, name).earned and not {*phrase}.isdisjoint(word_set("takes_in"))
    return Meaning("total", name, "earned" if earned else "")


def _synonyms_of(own: Mapping[Phrase, tuple[Meaning, ...]]) -> Mapping[Phrase, tuple[Meaning, ...]]:
    """The words that are no words of an index, and mean the same as one of its own; not where those mean several things."""
    found: dict[Phrase, tuple[Meaning, ...]] = {}
    for group in _alike():
        known = [phrase for phrase in group if phrase in own and not (_PEOPLE in group and _is_coded(own[phrase][0]))]
        meant = {_without_numbers(own[phrase]) for phrase in known}
        others = [phrase for phrase in group if phrase not in own and phrase not in _common()]
        names = {("field" if each[0].role == "total" else each[0].role, each[0].name, each[0].value) for each in meant}
        if len(names) == 1:
            alike = max(meant, key=len)
            found |= {each: alike if _says_same(found.get(each), alike) else (Meaning("unclear"),) for each in others}
    return found


def _is_coded(meaning: Meaning) -> bool:
    """Whether it is a value in capitals, as codes are: people are none of RENT, whose words are "renter" and "tenant"."""
    return meaning.role == "value" and meaning.value.isupper()


def _says_same(before: tuple[Meaning, ...] | None, after: tuple[Meaning, ...]) -> bool:
    """Whether a word of two groups means the same by both: of an index's totals, what is earned."""
    if before is None or before == after:
        return True
    return before[0].name == after[0].name and {before[0].role, after[0].role} <= {"field", "total"}


def _without_numbers(meanings: tuple[Meaning, ...]) -> tuple[Meaning, ...]:
    """Without the fields that a record goes by: "stylist" is a name rather than a number."""
    return tuple(each for each in meanings if not goes_by(each.name)) or meanings


def _meanings(spec: IndexSpec, values: Iterable[NamedValue]) -> Iterator[tuple[str, Meaning]]:
    for each in values:
        yield each.value, Meaning("value", each.field, each.value)
    for name, words in spec.vocabulary.items():
        for value, phrases in words.values.items():
            yield from ((phrase, Meaning("value", name, value)) for phrase in phrases)
            if spec.fields.get(name) is FieldType.BOOLEAN and value == "true":
                yield from _forms_of_holding(name, phrases)
            did = [form for form in map(_did, phrases) if form not in phrases]
            yield from ((form, Meaning("value", name, value)) for form in did if form)
        for role, phrases in ("high", words.high), ("low", words.low), ("total", words.totals):
            yield from ((phrase, Meaning(role, name)) for phrase in phrases)
        yield from ((phrase, Meaning("total", name, "earned")) for phrase in words.earned)
        if words.unit in _table()["money"]["units"].split():
            yield from (
                (phrase.strip(), Meaning("value", name, "==0")) for phrase in _table()["money"]["nothing"].split("|")
            )
        tops = [phrase for phrase in words.high if phrase.startswith("most ")]
        yield from ((f"top {phrase.removeprefix('most ')}", Meaning("high", name)) for phrase in tops)
        for role, phrases in () if words.levels else (("over", words.high), ("under", words.low)):
            compared = [each for each in map(_comparative, phrases) if each]
            yield from ((f"{each} than", Meaning(role, name)) for each in compared)
            yield from ((each, Meaning("more", name, "" if role == "over" else "less")) for each in compared)
            plain = [word for phrase in phrases for word in _positives(phrase) if word not in phrases]
            yield from ((f"how {word}", Meaning("field", name)) for word in plain)
            yield from (
                (each, Meaning("more", name, "same")) for word in plain for each in (f"equally {word}", f"as {word} as")
            )
    for name, kind in spec.records.items():
        yield from ((phrase, Meaning("kind", name)) for phrase in (*kind.words, kind.plural, *_heads(kind.words)))
    for name in spec.fields:
        words = vocabulary_of(spec, name)
        named = () if words.own else (*words.words, name.replace("_", " "))
        if spec.fields[name] is FieldType.BOOLEAN and not words.own and not words.values.get("false"):  # "unpaid"
            holds = words.values.get("true", ()) or named
            yield from ((f"un{phrase}", Meaning("value", name, "false")) for phrase in holds if " " not in phrase)
        if spec.fields[name] is FieldType.BOOLEAN and not (words.values or words.own):  # "paid" says that it holds
            yield from ((phrase, Meaning("value", name, "true")) for phrase in named)
            continue
        figures = words.words or named if spec.fields[name] in NUMBER_FIELDS and not goes_by(name) else ()
        yield from ((phrase, Meaning("field", name)) for phrase in (*named, *map(_participle, figures)))
    yield from ((words.unit, Meaning("unit", name)) for name, words in spec.vocabulary.items() if words.unit)
    yield from ((phrase, Meaning("said")) for phrase in spec.said)


def _forms_of_holding(name: str, phrases: Iterable[str]) -> Iterator[tuple[str, Meaning]]:
    """How else it is said that something holds, and that it does not, of phrases of several words: "queen seen", "under cover"."""
    for first, _, rest in (phrase.rpartition(" ") for phrase in phrases if " " in phrase):
        whole = f"{first} {rest}"
        held = (f"{first} {be} {rest}" for be in ("is", "are", "was", "were"))
        denied = (f"{first} {be} {no} {rest}" for be in ("is", "are", "was", "were") for no in ("not", "never"))
        short = (f"{first} {be} t {rest}" for be in ("isn", "aren", "wasn", "weren"))
        whose = (f"{rest} {each} {first}" for each in ("my", "our", "his", "her", "its", "their"))
        yield from ((form, Meaning("value", name, "true")) for form in (*held, f"{rest} {first}", *whose))
        others = (
            f"not {whole}",
            f"no {whole}",
            f"no {first} was {rest}",
            f"no {first} is {rest}",
            f"{first} not {rest}",
        )
        yield from ((form, Meaning("value", name, "false")) for form in (*denied, *short, *others))


def _did(phrase: str) -> str:
    """
    >>> _did("showed up"), _did("stood us up"), _did("done")
    ('did show up', '', '')
    """
    first, _, rest = phrase.partition(" ")
    return f"did {first.removesuffix('ed')} {rest}" if first.endswith("ed") and rest else ""


def _participle(noun: str) -> str:
    """
    >>> _participle("price"), _participle("weight"), _participle("fuel economy")
    ('priced', 'weighted', 'fuel economied')
    """
    if noun.endswith("y"):
        return f"{noun[:-1]}ied"
    return f"{noun}d" if noun.endswith("e") else f"{noun}ed"


def _comparative(superlative: str) -> str:
    """
    >>> _comparative("hottest"), _comparative("most expensive"), _comparative("bestseller"), _comparative("dear")
    ('hotter', 'more expensive', '', '')
    """
    for ending, other in ("most ", "more "), ("least ", "less "):
        if superlative.startswith(ending):
            return other + superlative.removeprefix(ending)
    return f"{superlative[:-3]}er" if superlative.endswith("est") and " " not in superlative else ""


def _positives(superlative: str) -> tuple[str, ...]:
    """What an adjective may be without its ending.

    >>> _positives("heaviest"), _positives("most expensive"), _positives("bestseller")
    (('heavy', 'heavie'), ('expensive',), ())
    """
    if superlative.startswith("most ") and len(superlative.split()) == 2:
        return (superlative.removeprefix("most "),)
    if not superlative.endswith("est") or " " in superlative:
        return ()
    bare = superlative.removesuffix("est")
    twice = (bare[:-1],) if bare[-1:] == bare[-2:-1] else ()
    return (f"{bare[:-1]}y" if bare.endswith("i") else bare, *twice, f"{bare}e")


def _heads(words: Sequence[str]) -> Iterator[str]:
    """The nouns of two words of which the first is enough as well: "job" of "repair" and "repair job"."""
    pairs = (phrase.split() for phrase in words)
    return (pair[1] for pair in pairs if len(pair) == 2 and pair[0] in words and stem(pair[1]) not in says_nothing())


# -- a question
def _read_phrase(
    tokens: Sequence[Token], place: int, phrases: Mapping[Phrase, tuple[Meaning, ...]], spec: IndexSpec
) -> int:
    """Reads the longest phrase that begins here; how many words it has."""
    for length in range(min(_LONGEST, len(tokens) - place), 0, -1):
        phrase = tokens[place : place + length]
        meanings = phrases.get(tuple(token.stem for token in phrase))
        counted = place > 0 and figure(tokens[place - 1].text) is not None  # "20 m", which is no "I'm"
        if not meanings or (length == 1 and _is_article(tokens[place]) and not counted):
            continue
        if meanings[0].role != "value" and any(token.parted for token in phrase[1:]):
            continue  # "came in, all told"
        for number, token in enumerate(phrase):
            token.said, token.inside = True, number > 0
        after = tokens[place + length].text if place + length < len(tokens) else ""
        meaning = _likeliest(meanings, after, spec)
        tokens[place].meaning = meaning if meaning.role != "said" else None
        tokens[place].others = meanings
        return length
    token = tokens[place]
    noun = token.text.endswith("ings") and len(token.text) > _SHORTEST_NOUN  # "readings", which no verb is
    token.said = token.stem in says_nothing() and not noun
    return 1


def _is_article(token: Token) -> bool:
    """Whether a word of one small letter is no value of that name: "a note", and not "flat A"."""
    return len(token.text) == 1 and token.text.islower() and token.stem in says_nothing()


def _likeliest(meanings: Sequence[Meaning], after: str, spec: IndexSpec) -> Meaning:
    """Of several meanings the first; the number of a record is meant only with a number behind it ("customer 42").

    The name of a kind is no value beside that, nor the name of a field a tag. A value that several fields have is unclear.
    """
    numbered = [each for each in meanings if each.role == "field" and goes_by(each.name)]
    if numbered and after.isdigit():
        return numbered[0]
    first, *others = [each for each in meanings if each not in numbered] or meanings
    named = [each for each in meanings if each.role == "kind"]
    if first.role == "value" and spec.all_fields[first.name] is FieldType.TAGS:
        named += [each for each in others if each.role == "field"]
    if first.role != "value" or named:
        return (*named, first)[0]
    field = _field_of([first, *(each for each in others if each.role == "value")], spec)
    return next((each for each in (first, *others) if each.name == field), Meaning("unclear"))


def _field_of(values: Iterable[Meaning], spec: IndexSpec) -> str | None:
    """The one field that these are values of; tags do not count beside a keyword."""
    fields = {each.name for each in values}
    if len(fields) > 1:
        fields = {name for name in fields if spec.all_fields[name] is not FieldType.TAGS}
    return fields.pop() if len(fields) == 1 else None


def _read_parts(tokens: Sequence[Token], values: Sequence[NamedValue], spec: IndexSpec) -> None:
    """Words that are left, in a row, stand for the values of one field that have them all: "colour", "walnut board"."""
    place = 0
    while place < len(tokens):
        rest = takewhile(lambda token: token.is_left and figure(token.text) is None, tokens[place:])
        length = len([*rest])
        while length and not _read_part(tokens, place, length, values, spec):
            length -= 1
        place += length or 1
    _part_names(tokens)


def _part_names(tokens: Sequence[Token]) -> None:
    """Two parts of different names, side by side, are the name of somebody else: "Peter Haddad" is no Hallam and no Samir.

    A comma parts those of a list with a last one, "Peter, Samir or Ada", and those that a question begins with: "Peter, Samir: who".
    """
    heads = [place for place, token in enumerate(tokens) if not token.inside]
    for first, second, end in zip(heads, heads[1:], [*heads[2:], len(tokens)], strict=False):
        one, other = tokens[first], tokens[second]
        asked = word_set("who") | word_set("which")
        listed = any(each.stem in word_set("lists") or (each.parted and each.stem in asked) for each in tokens[end:])
        if other.parted and listed:
            continue
        if one.role == other.role == "value" and one.name == other.name and one.name != "source_id":
            halves = [(one, second - first), (other, end - second)]
            if all(token.meaning and _is_name(token.meaning.value) for token, _ in halves) and all(
                length < len(stems(token.meaning.value)) for token, length in halves if token.meaning
            ):
                for token in tokens[first:end]:
                    token.meaning, token.said, token.inside, token.also = None, False, False, ()


def _read_part(tokens: Sequence[Token], place: int, length: int, values: Sequence[NamedValue], spec: IndexSpec) -> bool:
    part = {token.stem for token in tokens[place : place + length]}
    if length == 1 and tokens[place].text in word_set("adjectives") | word_set("before_days"):
        return False  # "old wines" are none of the Old Orchard
    having = [Meaning("value", each.field, each.value) for each in values if part <= {*stems(each.value)}]
    field = _field_of(having, spec)
    meant = sorted(each.value for each in having if each.name == field)
    sentence = length == 1 and any(len(stems(each)) > _LONG_VALUE for each in meant)
    if field is None or not meant or len(meant) > _MOST_NAMED or sentence:
        return False
    behind = place + length < len(tokens) and tokens[place + length].role == "kind"
    sorts = length == 1 and _is_sort_of(tokens[place], field, meant, spec)
    if not (behind or sorts) and len(meant) > 1 and (length == 1 or any(map(_is_name, meant))):
        return False  # two people, or what has half of its values by another name
    if len(meant) > 1 and any(stems(field) == stems(word) for kind in spec.records.values() for word in kind.words):
        return False  # names of the records themselves: not all wedding keywords are called so
    if not (behind or sorts) and length == 1 and not _is_name(meant[0]) and not vocabulary_of(spec, field).kind:
        return False
    for number, token in enumerate(tokens[place : place + length]):
        token.said, token.inside = True, number > 0
    tokens[place].meaning, tokens[place].also = Meaning("value", field, meant[0]), tuple(meant[1:])
    return True


def _is_sort_of(token: Token, field: str, values: Sequence[str], spec: IndexSpec) -> bool:
    """Whether a plural is the noun that all these values of a keyword end with: "terriers", of small and large ones."""
    several = token.text.casefold() != token.stem and token.text.islower()
    ends = all(stems(each)[-1:] == (token.stem,) for each in values) and not any(map(_is_name, values))
    return several and ends and spec.fields.get(field) is FieldType.KEYWORD and len(values) > 1


def _read_short_names(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """Words that are left stand for the one field without words of its own whose name has them, whole or cut: "population" for
    `pop`, "budget" for `production_budget`; or for the one that is called so without vowels: "snail count" for `snl_ct`."""
    short = [name for name, kind in spec.fields.items() if kind in _SHORT_NAMED]
    names = dict[str, tuple[Phrase, ...]]()
    for name in short:
        words, whole = [*map(stems, vocabulary_of(spec, name).words)], stems(name.replace("_", " "))
        bare = (each for each in words if any(_without_vowels(word) == word for word in each))
        ends = (whole[:-1],) if len(whole[-1]) == 1 else ()
        names[name] = tuple(bare) if words else (whole, *ends)
    _read_short_flags(tokens, spec)
    place = 0
    while names and place < len(tokens):
        row = [*takewhile(lambda token: token.is_left or token.is_unmeant, tokens[place : place + _LONGEST])]
        while row and not _read_short_name(row, names, spec):
            row.pop()
        place += len(row) or 1


def _read_short_flags(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """Two words that are left say that a field holds which is called so without vowels, and "not" may stand between them: "the
    queen wasn't seen", of `qn_seen`."""
    booleans = (name for name, kind in spec.fields.items() if kind is FieldType.BOOLEAN)
    held = [(name, stems(phrase)) for name in booleans for phrase in vocabulary_of(spec, name).values.get("true", ())]
    left = [token for token in tokens if not token.said and token.role in ("", "not") and figure(token.text) is None]
    plain = [token for token in left if token.role != "not"]
    for one, other in pairwise(plain):
        found = {name for name, phrase in held if len(phrase) > 1 and _lacks_vowels(phrase, (one.stem, other.stem))}
        if len(found) == 1:
            one.said, other.meaning = True, Meaning("value", found.pop(), "true")


def _read_short_name(row: Sequence[Token], names: Mapping[str, Sequence[Phrase]], spec: IndexSpec) -> bool:
    if not (row[0].is_left or row[-1].is_left) or any(figure(token.text) is not None for token in row):
        return False
    said = [token.stem for token in row]
    found = [
        name
        for name, phrases in names.items()
        for ways in [(_lacks_vowels,) if vocabulary_of(spec, name).words else (_has_in_short, _lacks_vowels)]
        if any(is_short(words, said) for words in phrases for is_short in ways)
    ]
    if len(found) == 1:
        for number, token in enumerate(row):
            token.said, token.inside = True, number > 0
        row[0].meaning = Meaning("field", found[0])
    return len(found) == 1


def _has_in_short(name: Phrase, said: Sequence[str]) -> bool:
    """Whether a name ends with these words, whole or cut, or has several of them whole: "life" says no life expectancy.

    >>> [_has_in_short(("life", "expect"), each.split()) for each in ("life expectancy", "expectancy", "life", "lifetime")]
    [True, True, False, False]
    >>> _has_in_short(("running", "time", "min"), ["running", "time"])
    True
    """
    ends = len(said) <= len(name) and all(map(_is_short_of, name[-len(said) :], said))
    return (
        ends
        or _lacks_vowels(name, said)
        or (len(said) > 1 and any(name[at : at + len(said)] == (*said,) for at in range(len(name))))
    )


def _lacks_vowels(name: Phrase, said: Sequence[str]) -> bool:
    """Whether each word of a name is written without its vowels, or whole: "brood frames", of `brd_frm`.

    >>> _lacks_vowels(("brd", "frm"), ("brood", "frame")), _lacks_vowels(("brd", "frm"), ("frame",)), _lacks_vowels(("ht",), ("hat",))
    (True, False, False)
    """
    alike = all(_is_said_by(one, other) for one, other in zip(name, said, strict=False))
    return alike and len(name) == len(said) and (len(name) > 1 or len(name[0]) >= _SHORTEST_CUT)


def _is_said_by(name: str, said: str) -> bool:
    """Whether a word of a name is this one without its vowels, and perhaps one consonant inside."""
    bare = _without_vowels(said)
    return name in (said, bare) or (len(name) >= _SHORTEST_CUT and lacks_one(name, bare))


@lru_cache(8192)
def _without_vowels(word: str) -> str:
    """
    >>> _without_vowels("frame"), _without_vowels("cell"), _without_vowels("apiary")
    ('frm', 'cl', 'apry')
    """
    return re.sub(r"(.)\1+", r"\1", drop_vowels(word))


def _is_short_of(name: str, said: str) -> bool:
    return name == said or (len(name) >= _SHORTEST_CUT and len(said) >= len(name) + _CUT and said.startswith(name))


def _is_name(value: str) -> bool:
    words = _WORD.findall(value)
    return 1 < len(words) <= 4 and all(word[:1].isupper() for word in words)


class _Place(Struct, frozen=True):
    """A word among the others of its question."""

    tokens: Sequence[Token]
    number: int
    spec: IndexSpec

    @property
    def token(self) -> Token:
        return self.tokens[self.number]

    @property
    def words_behind(self) -> list[Token]:
        """The words behind it that mean something, or may."""
        return [each for each in self.tokens[self.number + 1 :] if each.meaning or each.is_left]

    def is_before(self, *roles: str) -> bool:
        return any(each.role in roles for each in self.words_behind[:1])

    @property
    def is_before_kind(self) -> bool:
        """Whether a kind of records comes next, perhaps behind values: "per finished trip"."""
        return next((each.role for each in self.words_behind if each.role != "value"), "") == "kind"

    def is_among(self, *roles: str) -> bool:
        """Whether one of these roles is in the question."""
        return any(token.role in roles for token in self.tokens)


def _is_distance(at: _Place) -> bool:
    """Whether "over" leads to the way that something else was measured on: "the fastest over 10 km", "the time over 50 m"."""
    behind = at.tokens[at.number + 1 : at.number + 3]
    if (
        at.token.text.casefold() != "over"
        or len(behind) < 2
        or behind[1].role != "unit"
        or figure(behind[0].text) is None
    ):
        return False
    of_length = (
        vocabulary_of(at.spec, behind[1].name).unit in _table()["unit_sizes"]["length"].replace("=", " ").split()
    )
    timed = [each.name for each in at.tokens if each.role in ("field", "high", "low") and each.name != behind[1].name]
    units = {stem(vocabulary_of(at.spec, name).unit) for name in timed}
    return of_length and bool(units & {"second", "minute", "hour"})


def _names_known_figure(at: _Place) -> bool:
    """Whether a figure that is known already stands behind "over": "over the 21.1" is no bound."""
    behind = at.tokens[at.number + 1 : at.number + 2]
    return at.token.text.casefold() == "over" and any(each.definite and figure(each.text) for each in behind)


def _last_meant(at: _Place) -> str:
    """The role of the last word before it that has one."""
    return next((token.role for token in reversed(at.tokens[: at.number]) if token.meaning), "")


def _says_how_many_there_are(tokens: Sequence[Token], place: int) -> bool:
    """Whether a figure is the number of what is known already: "our three listings", "Ada's two trips", "the four pairs of
    skis", "which of the four trends"."""
    behind = [at for at in range(place + 1, min(place + 4, len(tokens))) if tokens[at].meaning or tokens[at].is_left]
    counted = [*takewhile(lambda at: tokens[at].role in ("kind", "value"), behind)]
    if not any(tokens[at].text.casefold() != tokens[at].stem for at in counted):
        return False
    with_most = [token for token in tokens[counted[-1] + 1 : counted[-1] + 3] if not token.inside]
    if with_most and with_most[0].stem in word_set("with") and any(each.role in SUPERLATIVES for each in with_most):
        return False  # "our three listings with the most sales"
    before = next((token for token in reversed(tokens[:place]) if token.meaning), None)
    own = before is not None and before.role in ("own", "all") and tokens.index(before) >= place - 3
    bounded = before is not None and before.role in BOUND_ROLES and before is tokens[place - 1]
    return ((own or tokens[place].definite) and not bounded) or (
        place > 1 and tokens[place - 1].stem in word_set("partitive") and tokens[place - 2].stem in word_set("which")
    )


def _is_bounded(token: Token, spec: IndexSpec) -> bool:
    """Whether a word says that a figure is above or below one: "rising"."""
    return token.meaning is not None and token.role == "value" and is_figure(spec, token.name)


def _asks_how_much(tokens: Sequence[Token], place: int, spec: IndexSpec) -> bool:
    """Whether "how" stands right before the name of a figure that does not add up."""
    field = next((each.name for each in tokens[place + 1 : place + 2] if each.role == "field"), "")
    return tokens[place].stem in word_set("how") and is_figure(spec, field) and not vocabulary_of(spec, field).adds_up


def _kind_become(tokens: Sequence[Token], place: int, spec: IndexSpec) -> str | None:
    """The kind of what "has been booked", which may be done by now: a value that is said as a verb of the records.

    And of "who is booked with Ada", but not of "who is still booked with her", where no kind is named; of "who booked twice".
    """
    before = {each.stem for each in tokens[max(0, place - 1) : place]}
    company = any(each.stem in word_set("with") for each in tokens[place + 1 : place + 2])
    company = company and not before & word_set("still") and not any(each.role == "kind" for each in tokens)
    again = any(each.stem in {*word_set("times"), "time"} for each in tokens[place + 1 : place + 5])
    been = bool(before & word_set("become")) or company or again
    return kind_begun(tokens[place], spec) if been else None


def kind_begun(token: Token, spec: IndexSpec) -> str | None:
    """The kind whose name begins like a word: of "booked" a booking."""
    begun = token.stem[:BEGINNING]
    kinds = (name for name, kind in spec.records.items() for phrase in kind.words if phrase[:BEGINNING] == begun)
    return next(kinds, None) if len(begun) == BEGINNING else None


def _asks_what_it_comes_to(tokens: Sequence[Token], place: int) -> bool:
    behind = [token for token in tokens[place + 1 :] if not token.inside]
    plain = not behind or (not behind[0].meaning and not behind[0].is_left) or behind[0].role in ("sum", "not")
    return plain and bool({token.stem for token in tokens[:place]} & word_set("what"))


def _names_extreme(tokens: Sequence[Token], place: int) -> bool:
    """Whether words for the most or the least stand right before a place."""
    before = next(token for token in reversed(tokens[:place]) if not token.inside)
    return before.role in SUPERLATIVES and tokens[place].text.casefold() in word_set("heads")


def _is_head(at: _Place) -> bool:
    """Whether "on top" stands behind what all records begin with: "the slowest kiln on top"."""
    before = at.tokens[: at.number]
    on = bool(before) and before[-1].text.casefold() in word_set("upon")
    return on and at.token.text.casefold() == "top" and any(each.role in SUPERLATIVES for each in before)


def _says_more_again(at: _Place) -> bool:
    """Whether "or more" sets a second thing against the one before it, of which there may be more as well."""
    before = [each for each in at.tokens[: at.number] if not each.inside]
    again = any(each.role == "more" and not each.name for each in before) and before[-1].role == "value"
    return (
        again
        and at.token.stem == "or"
        and any(each.role == "value" and each.name == before[-1].name for each in at.words_behind[:1])
    )


def _state_or_spending(at: _Place) -> Meaning | None:
    """That there are some of a thing ("which items are in stock"), or what was spent, where that is a word of its own."""
    token, spends = at.token, at.token.is_left and at.token.stem in word_set("spends")
    before = at.tokens[at.number - 1] if at.number else None
    if token.role in ("", "sum") and before is not None and before.role == "kind" and token.stem in word_set("worths"):
        worth = total_field(at.spec) or money_field(at.spec)  # "the average order value"
        return Meaning("field", worth) if worth is not None else None
    if token.role == "field" and token.name == stock_field(at.spec) and _says_there_is(at):
        return Meaning("value", token.name, ">0")
    asked = (spends and at.is_among("much", "sum", "average", "most", "least")) or token.stem in word_set("spendings")
    spent = money_field(at.spec) or total_field(at.spec) if token.is_left and not _names_money(at) else None
    return Meaning("field", spent) if asked and spent is not None else None


def _names_money(at: _Place) -> bool:
    """Whether a figure in money stands behind it: "what do we pay for hall hire"."""
    return any(each.role == "field" and in_money(vocabulary_of(at.spec, each.name).unit) for each in at.words_behind)


def _costs_nothing(at: _Place) -> Meaning | None:
    """That a figure in money is 0: "cost the customer nothing", "which of them was free".

    Where records have dates, one that is free may be one to book.
    """
    field, before = price_field(at.spec) or money_field(at.spec), at.tokens[: at.number]
    if not at.token.is_left or field is None or not in_money(vocabulary_of(at.spec, field).unit):
        return None
    priced = [each for each in before if each.name == field and each.role == "field"]
    if at.token.stem in word_set("nothing") and priced:
        priced[-1].meaning = None
        return Meaning("value", field, "==0")
    verbs = [each.stem for each in before if not each.inside and each.stem not in ("not", "never")][-1:]
    dated = at.spec.dated_types != ()
    said = bool({*verbs} & (word_set("was") if dated else word_set("is") | word_set("doubts")))
    was = any(each.stem in word_set("was") | word_set("had") for each in before)
    is_free = was if at.is_before("kind") else said and at.is_among("kind", "value")  # "had we free visits"
    return Meaning("value", field, "==0") if at.token.stem in word_set("free") and is_free else None


def _takings_meaning(at: _Place) -> Meaning | None:
    """The total of what is taken in, where a verb asks for it: "what has Ada taken", "do we make more with Ada or Bo"."""
    field, token = takings_field(at.spec), at.token
    to_us = any(each.stem in word_set("to_us") for each in at.tokens[at.number + 1 : at.number + 2])
    behind = at.tokens[at.number + 1 : at.number + 2]
    brings = to_us or (field is None and any(each.text.casefold() == "in" for each in behind))
    takes = token.stem in word_set("takes_in") or (brings and token.stem in word_set("brings"))
    came_in = field is not None and token.stem in word_set("comes") and _last_meant(at) == "much"
    if came_in and token.is_unmeant and any(each.text.casefold() == "in" for each in behind):
        return Meaning("total", field or "", "earned" if vocabulary_of(at.spec, field).earned else "")
    if not token.is_unmeant or not takes:
        return None
    compares = _weighs_takings(at, field)
    if field is None:  # nobody knows more of what
        whose = to_us or at.is_among("own") or any(each.stem in word_set("us") for each in at.tokens[: at.number])
        return Meaning("unclear") if compares and whose else None
    return total_of(at.spec, field, (token.stem,)) if compares or _asks_takings(at, field) else None


def _takes_records(at: _Place) -> bool:
    """Whether a verb that may be of money is of records, which are counted: "how many calls did we take"."""
    phrase = [at.token, *takewhile(lambda each: each.inside, at.tokens[at.number + 1 :])]
    meant = [each for each in at.tokens if each.meaning]
    counted = any(one.role in ("count", "most", "least") and other.role == "kind" for one, other in pairwise(meant))
    return counted and any(each.stem in word_set("takes_in") for each in phrase)


def _weighs_takings(at: _Place, field: str | None) -> bool:
    """Whether more, or the most, of nothing else stands behind a verb: "more with Ada or with Bo", "more money than Ada"."""
    first, *others = [*(each for each in at.words_behind if not each.inside), None]
    if first is None or first.name or any(figure(each.text) is not None for each in at.tokens):
        return False
    whose, people = at.tokens[: at.number], people_field(at.spec)
    if any(each.name == people and each.meaning for each in whose) and not any(
        each.stem in word_set("us") for each in whose
    ):
        return False
    more = first.role in ("more", "most", "least") or (first.role in ("over", "under") and first.text != "over")
    names = {"value", "or", "on_weekday", "own", "apart"}
    return more and all(
        each is None or each.role in names or each.name == field or (each.is_left and each.text[:1].isupper())
        for each in others
    )


def _asks_takings(at: _Place, field: str) -> bool:
    """Whether it is asked how much somebody took, who is none of those that pay: "what has each clerk taken"."""
    before = [each for each in at.tokens[: at.number] if not each.inside]
    much = bool(before) and before[0].role == "much"
    we = bool(before) and (at.token.stem == "taken" or before[-1].stem in word_set("us"))  # "what did we make"
    if not (much or (before and before[0].stem in word_set("what") and we)):
        return False
    people, of_whom = people_field(at.spec), [each for each in before[1:] if each.meaning is not None]
    passive = much and before[-1].stem in word_set("passive")  # "how much was taken by Ada"
    named = all(
        each.role in ("own", "each")
        or each.name == field
        or (
            each.role in ("value", "field")
            and each.name != people
            and at.spec.fields.get(each.name) is FieldType.KEYWORD
        )
        for each in (*of_whom, *at.words_behind)
    )
    ours = bool(of_whom) or passive or any(each.stem in word_set("us") for each in before)
    return ours and named and (passive or not at.words_behind)


def _comes_next(at: _Place) -> Meaning | None:
    """The next time, where it is asked when somebody comes again: "when is Ada back"."""
    whose = any(each.role == "value" and each.name == people_field(at.spec) for each in at.tokens)
    when = any(each.stem in word_set("when") for each in at.tokens[:2])
    past = any(each.stem in word_set("past") for each in at.tokens) or at.is_among("next", *SUPERLATIVES)
    again = not at.token.meaning and at.token.stem in word_set("again") and not at.token.inside
    return Meaning("next") if again and when and whose and not past else None


def _says_there_is(at: _Place) -> bool:
    """Whether words for what is in stock say that there is some, and not how many."""
    phrase = [at.token, *takewhile(lambda each: each.inside, at.tokens[at.number + 1 :])]
    counts = [place for place, each in enumerate(at.tokens) if each.role == "count"]
    counted = (
        next((each.role for each in at.tokens[counts[0] + 1 :] if each.meaning or each.is_left), "")
        if counts
        else "kind"
    )
    asked = at.is_among(
        "much", "sum", "average", "more", "total", "over", "under", "between", "rank", "each", *SUPERLATIVES
    )
    return tuple(each.stem for each in phrase) in _available() and counted == "kind" and not asked


def _bounds_next(at: _Place) -> bool:
    """Whether a figure stands right behind: "and under 100", and not "100 and under"."""
    return at.token.text.casefold() in word_set("joins") and any(
        each.is_left and figure(each.text) is not None for each in at.words_behind[:1]
    )


def _may_group(at: _Place) -> bool:
    """Whether records can be told apart by what stands behind "by"; a word that is not understood may be that."""
    first, *others = [*at.words_behind[:2], None]
    if first is not None and first.role == "kind" and others[0] is not None and others[0].role == "field":
        return True  # "by booking status"
    if first is None or first.meaning is None:
        return first is not None
    return first.role not in ("value", "unclear", "kind", "over", "under", "least_of", "most_of", "between", "all")


def _settle_figures(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """A word for a value and for figures ("rain") means the figures where those are asked for and none are named.

    And where their unit stands in the question: "25 mm of rain".
    """
    roles = {token.role for token in tokens}
    units = {each.name for token in tokens for each in token.others if each.role == "unit"}
    named = {token.name for token in tokens if token.role in ("field", "high", "low", "total")}
    asked = roles & {"sum", "average", "much", "more", "most", "least"}
    asked_of_it = bool(asked) and not any(spec.fields.get(each) in NUMBER_FIELDS for each in named)
    for place, token in enumerate(tokens):
        much = any(each.role == "much" for each in tokens[max(0, place - 2) : place])  # how much rain
        none = token.meaning is not None and token.meaning.value == "==0" and token.meaning not in token.others
        if token.role in ("value", "unclear") and not none:  # "without bottles"
            figures = [
                each
                for each in token.others
                if each.role == "field" and spec.fields.get(each.name) in NUMBER_FIELDS
                if asked_of_it or much or each.name in units
            ]
            token.meaning = figures[0] if figures else token.meaning


def _is_collection(at: _Place) -> bool:
    """Whether a word says no more than where all records are: "in our catalogue"."""
    before = takewhile(lambda each: each.said and each.role in ("", "own", "kind"), reversed(at.tokens[: at.number]))
    holds = any(each.stem in word_set("holds") for each in islice(before, 3))
    split = at.is_before("each") and at.number > 0  # "how does the range split by category"
    return (holds or split) and at.token.text.casefold() in word_set("collections")


def _names_amount(at: _Place) -> bool:
    """Whether a word only says of a figure before it that it is one: "the honey harvest", "the water level"."""
    before = at.tokens[at.number - 1] if at.number else None
    figured = before is not None and before.role == "field" and is_figure(at.spec, before.name)
    return figured and at.token.stem in word_set("measured_as")


def _total_of_amount(at: _Place) -> Meaning | None:
    """That the total is meant, of what adds up, where nothing else is asked of it: "the honey harvest of July"."""
    asked = at.is_among(*_FIGURES - {"field"}, "each", "rank", "over", "under", "between", *SUPERLATIVES)
    adds_up = vocabulary_of(at.spec, at.tokens[at.number - 1].name).adds_up
    return Meaning("sum") if adds_up and not asked else None


def _stands_alone(at: _Place) -> bool:
    """Whether "alone" stands behind days that were taken out of the question: "in July alone"."""
    before = at.tokens[at.number - 1] if at.number else None
    return before is not None and before.stem in word_set("before_days") and at.token.stem in word_set("alone")


def _says_of_value(at: _Place) -> bool:
    """Whether the name of a field only leads to a value of it, or stands right behind it: "booked by phone", "in poor condition",
    and not "which category is dearer, ...", nor "how many customers are called Joan"."""
    after = next(iter(at.words_behind), None)
    led = any(
        each.role in ("each", "count") or each.stem in word_set("which_of")
        for each in at.tokens[max(0, at.number - 2) : at.number]
    )
    told = after is not None and after.role == "value" and after.name == at.token.name and not after.parted
    heads = [each for each in at.tokens[: at.number] if not each.inside][-1:]
    behind = any(each.role == "value" and each.name == at.token.name and each.text.islower() for each in heads)
    behind &= not at.token.parted
    return (told and not led) or (behind and at.spec.fields.get(at.token.name) is FieldType.KEYWORD)


def _denied_amount(tokens: Sequence[Token], place: int, spec: IndexSpec) -> Meaning | None:
    """The condition that "no" makes of a figure behind it that adds up: "days with no rainfall"."""
    field = tokens[place]
    before = next((each for each in reversed(tokens[:place]) if not each.inside), None)
    denied = before is not None and before.role == "not" and before.stem in word_set("none")
    adds_up = field.role == "field" and is_figure(spec, field.name) and vocabulary_of(spec, field.name).adds_up
    return Meaning("value", field.name, "==0") if denied and adds_up else None


def _means_all(at: _Place) -> bool:
    """Whether all records are meant that are so: "every critical alert", "every visit to ward 3"."""
    leads = {one.name for one, other in pairwise(at.words_behind) if one.role == "field" and _is_value_of(other, one)}
    asked = {each.role for each in at.tokens if each.role in _FIGURES | SUPERLATIVES and each.name not in leads}
    return at.is_before("value", "kind") and not asked


def _is_value_of(token: Token, field: Token) -> bool:
    return token.role == "value" and token.name == field.name and not token.parted


def _is_amount_of_figure(at: _Place) -> bool:
    """Whether the number that is asked for is one that the records have: "the average number of nights per booking"."""
    first = next(iter(at.words_behind), None)
    figured = first is not None and first.role == "field" and is_figure(at.spec, first.name)
    return figured and at.is_among("average") and at.token.text.casefold() == "number"


def _names_numbers(at: _Place) -> bool:
    """Whether "numbers of" belongs to what records go by: "the order numbers of Ada's cakes"."""
    before = [each for each in at.tokens[: at.number] if not each.inside][-1:]
    keyed = any(each.role == "field" and at.spec.fields.get(each.name) is FieldType.KEYWORD for each in before)
    return keyed and at.token.text.casefold() == "numbers"


def _read_parted_names(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """The name of a figure with other words in it: "how many trays were returned", "who returned the most trays".

    Not where the second one tells records apart: "the trays of returned orders".
    """
    figures = [name for name in spec.fields if is_figure(spec, name)]
    called = {
        stems(word): name for name in figures for word in (*vocabulary_of(spec, name).words, name.replace("_", " "))
    }
    plain = [token for token in tokens if not token.inside]
    apart = [one for one, other in pairwise(plain) if other.role == "kind"]
    for one, other in permutations(plain, 2):
        noun = one.is_left or (one.role == "field" and one.name in figures)
        name = called.get((one.stem, other.stem)) if noun and other.is_left else None
        if name is not None and not any(each is other for each in apart):
            one.meaning, other.said = Meaning("field", name), True


def _says_nothing_more(at: _Place) -> bool:
    """Whether a word says no more than what stands beside it: "how much money", "the power used", "the visits for clients with
    insurance"."""
    before = [each for each in at.tokens[: at.number] if not each.inside][-1:]
    roles = {each.role for each in before}
    measured = any(each.role == "field" and is_figure(at.spec, each.name) for each in before)
    used = at.token.stem in word_set("used") and (measured or any(each.stem in word_set("was") for each in before))
    money = at.token.stem in word_set("money") and "much" in roles and money_field(at.spec) is not None
    led = any(each.said and each.stem in word_set("leads") for each in before)
    told = any(
        each.stem in word_set("with") | word_set("none") | word_set("who") for each in at.tokens[at.number + 1 :][:1]
    )
    bears = at.token.stem in word_set("bearers") and told and _last_meant(at) == ("kind" if led else "not")
    waits = at.token.stem in word_set("waits") and any(
        vocabulary_of(at.spec, each.name).unit in word_set("spans") for each in at.tokens if each.name
    )  # "which has me waiting longest"
    paid = at.token.stem in word_set("spends") and _names_money(at)
    return used or money or bears or waits or paid


def _worth_of_those(at: _Place) -> Meaning | None:
    """The total of what "they" are worth, in the money that is named: "what were they worth in euros"."""
    those = any(each.stem in word_set("those") for each in at.tokens[: at.number])
    money = any(each.role == "unit" and in_money(vocabulary_of(at.spec, each.name).unit) for each in at.words_behind)
    return Meaning("sum") if at.token.is_left and at.token.stem in word_set("worth") and those and money else None


def _deny_missing(at: _Place) -> None:
    """Denies what is missing, of a field that holds or not: "where the slip is missing", "missing slips"."""
    if not at.token.is_left or at.token.stem not in word_set("missing"):
        return
    plain = [each for each in at.tokens if each is at.token or each.meaning or each.is_left]
    place = next(number for number, each in enumerate(plain) if each is at.token)
    for each in plain[max(0, place - 1) : place + 2]:
        held = each.meaning == Meaning("value", each.name, "true")
        if held and at.spec.fields.get(each.name) is FieldType.BOOLEAN:
            each.meaning, at.token.said = Meaning("value", each.name, "false"), True
            return


def _still_to_come(at: _Place) -> Meaning | None:
    """That what is still in the diary is yet to come: "what has Ada still got in the diary"."""
    has = any(each.stem in word_set("has") for each in at.tokens[max(0, at.number - 3) : at.number + 2])
    begun = [*dropwhile(lambda each: not (each.meaning or each.is_left), at.tokens[at.number + 1 :])]
    kept = [*begun[:1], *takewhile(lambda each: each.inside, begun[1:])]
    diary = stems(" ".join(each.text for each in kept)) in map(stems, _table()["alike"]["diary"].split("|"))
    return Meaning("ahead") if at.token.is_unmeant and at.token.stem in word_set("still") and has and diary else None


def _denied_by_need(at: _Place) -> Meaning | None:
    """That what holds or not does not yet: "still need to be photographed", "is yet to be signed"."""
    before = [each.stem for each in at.tokens[max(0, at.number - _NEED) : at.number]]
    needed = before[-2:] == ["to", "be"] and not word_set("needs").isdisjoint(before[:-2])
    holds = at.token.role == "value" and at.token.meaning is not None and at.token.meaning.value == "true"
    done = (
        holds
        and at.spec.fields.get(at.token.name) is FieldType.BOOLEAN
        and at.token.text.casefold().endswith(("ed", "en"))
    )
    denied = any(each.role == "not" for each in at.tokens[: at.number])
    return Meaning("value", at.token.name, "false") if needed and done and not denied else None


_RULES: Sequence[tuple[tuple[str, ...], Callable[[_Place], bool], Meaning | None]] = (
    # "by Julien", "by mail", "by more than ten"
    (("each",), lambda at: at.token.stem in word_set("prepositions") and not _may_group(at), None),
    # the average number of nights
    (("count",), _is_amount_of_figure, None),
    # the average price per booking
    (("each",), lambda at: at.is_before_kind and at.is_among("average"), None),
    # "who drove the most miles per trip" asks for the largest mean
    (
        ("each",),
        lambda at: at.token.stem == "per" and at.is_before_kind and at.is_among("most", "least"),
        Meaning("average"),
    ),
    # "how much do we take per trip"
    (
        ("each",),
        lambda at: at.token.stem == "per" and at.is_before_kind and at.is_among("much") and not at.is_among("sum"),
        Meaning("average"),
    ),
    # "the reference numbers of"
    (("count",), _names_numbers, None),
    # every critical alert
    (("each",), _means_all, Meaning("all")),
    # every tent in total
    (("each",), lambda at: at.token.stem == "every" and at.is_before_kind and at.is_among("sum"), Meaning("all")),
    # "who came to Theo", "visits that come to less than 20"
    (
        ("sum",),
        lambda at: at.token.stem in word_set("comes") and not _asks_what_it_comes_to(at.tokens, at.number),
        None,
    ),
    # "isn't Ada late?"
    (
        ("not",),
        lambda at: (
            at.number == 0
            and at.token.stem in word_set("doubts")
            and not at.is_among("more", "over", "under", *SUPERLATIVES)
        ),
        None,
    ),
    # "the cars that Ada brought in"
    (
        ("total",),
        lambda at: (
            at.token.text.casefold() in word_set("brings")
            and not (
                at.is_among("much", "sum", "average", "more", "most", "least")
                or at.tokens[0].stem in word_set("what")
                or (at.is_among("over", "under") and not any(figure(each.text) for each in at.tokens))
            )
        ),
        None,
    ),
    # "how many calls did we take", "which clerk takes the most calls"
    (("total",), _takes_records, None),
    # "what else do we have besides tents"
    (("unclear",), lambda at: at.token.stem == "else" and at.is_among("not"), None),
    # the value of the demand index
    (("sum",), lambda at: at.token.stem == "value" and not at.is_before("kind", "own", "all"), None),
    # the mean over all of our keywords
    (
        ("over", "under"),
        lambda at: (at.is_before("own", "all") or at.is_before_kind) and at.token.stem in word_set("places"),
        None,
    ),
    # the fastest over 10 km
    (("over",), _is_distance, None),
    # "the time over the 21.1"
    (("over",), _names_known_figure, Meaning("unclear")),
    # a tent plus a stove
    (
        ("more",),
        lambda at: (
            at.token.text.casefold() == "plus"
            and at.number + 1 < len(at.tokens)  # "qui a gagné plus"
            and not any(each.is_left and figure(each.text) is not None for each in at.words_behind[:1])
        ),
        None,
    ),
    # cheapest first
    (("oldest",), lambda at: at.number > 0 and _names_extreme(at.tokens, at.number), None),
    # slowest on top
    (("most",), _is_head, None),
    # "more cats or more dogs"
    (("least_of", "most_of"), _says_more_again, Meaning("or")),
    # "over 60 and under 100"
    (("least_of",), _bounds_next, Meaning("over")),
    (("most_of",), _bounds_next, Meaning("under")),
    # of each number of cylinders
    (("count",), lambda at: at.token.stem in word_set("numbers_of") and _last_meant(at) == "each", None),
    # "what numbers of cylinders are there"
    (
        ("count",),
        lambda at: (
            at.token.stem in word_set("what")
            and any(
                each.inside and each.text.casefold() == "numbers" for each in at.tokens[at.number + 1 : at.number + 2]
            )
            and at.is_before("field")
        ),
        None,
    ),
)
"""What words mean nothing, or something else, because of what stands around them."""


def _settle_fastest(at: _Place) -> None:
    """The most of what a figure does that is said as a verb: "falling hardest", "fällt am meisten"."""
    tokens, token, number = at.tokens, at.token, at.number
    of_way = number > 0 and not at.words_behind and _is_bounded(tokens[number - 1], at.spec)
    if of_way and token.role == "least":
        token.meaning = Meaning("unclear")
    if not number or not ((token.is_left and token.stem in word_set("fastest")) or (of_way and token.role == "most")):
        return
    before = (each for each in reversed(tokens[:number]) if each.role not in ("", "field") or each.is_left)
    way = next(before, token)
    if _is_bounded(way, at.spec) and way.meaning is not None:
        token.meaning = Meaning("low" if way.meaning.value.startswith("<") else "high", way.name)
        way.meaning = None


def _doubt_verbs(tokens: Sequence[Token]) -> None:
    """A verb that says nothing may say something with an adverb behind what is asked for: "products to take home", "who let
    us down"; and where nothing stands behind it: "which trips are marked". But not "when did she get back"."""
    asked = word_set("who") | word_set("which_of")
    led = next((at for at, each in enumerate(tokens) if each.meaning or each.stem in asked), len(tokens))
    plain = [each for each in tokens[led:] if each.stem not in word_set("objects")]
    told = any(
        each.stem in word_set("when") or (each is tokens[0] and each.stem in word_set("whether")) for each in tokens[:2]
    )
    for place, (verb, adverb) in enumerate(pairwise(plain)):
        doubtful = verb.stem in word_set("verbs") and adverb.stem in word_set("adverbs") and not told
        leads = any(each.role in ("kind", "each") for each in plain[place + 2 :])  # "went out on trips"
        if doubtful and verb.is_unmeant and adverb.is_unmeant and not leads:
            verb.said = adverb.said = False
    last = next((each for each in reversed(plain) if each.stem not in word_set("still")), None)
    if last is not None and last.is_unmeant and not last.others and last.stem in word_set("predicates"):
        last.said = False


def _settle(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """Decides what a word means by what stands around it."""
    for number, token in enumerate(tokens):
        at = _Place(tokens, number, spec)
        for roles, holds, meaning in _RULES:
            if token.role in roles and holds(at):
                token.meaning = meaning
        measured = any(each.role == "unit" for each in tokens[number + 1 : number + 2])
        measured |= any(each.role in BOUND_ROLES | SUPERLATIVES for each in tokens[max(0, number - 1) : number])
        if token.role == "value" and measured and figure(token.text) is not None:
            token.meaning, token.said = None, False  # "the 2 km", "over 40", "top 3", where rows are called 2 and 40
        if token.role == "value" and (kind := _kind_become(tokens, number, spec)) is not None:
            token.meaning = Meaning("kind", kind)
        token.meaning = (
            _state_or_spending(at)
            or _costs_nothing(at)
            or _takings_meaning(at)
            or _comes_next(at)
            or _worth_of_those(at)
            or _denied_by_need(at)
            or _still_to_come(at)
            or token.meaning
        )
        if number and token.stem in word_set("faster") and _is_bounded(tokens[number - 1], spec):
            way, trend = tokens[number - 1], tokens[number - 1].meaning
            less = trend is not None and trend.value.startswith("<")
            token.meaning = Meaning("more", way.name, "less" if less else "than")  # "rising faster"
            way.meaning = None
        _settle_fastest(at)
        _deny_missing(at)
        if token.said and token.meaning is None and not token.inside and _asks_how_much(tokens, number, spec):
            token.meaning = Meaning("much")  # "how warm"
        places = [each for each in token.others if each.role == "ordinal"]
        if places and token.role == "unit" and at.is_before(*SUPERLATIVES):
            token.meaning = places[0]  # "the second heaviest", where something is in seconds
        if token.is_left and figure(token.text) is not None and _says_how_many_there_are(tokens, number):
            token.said = token.tells_number = True
        if token.is_left and _names_amount(at):
            token.said, token.meaning = True, _total_of_amount(at)
        token.said = token.said or (
            token.is_left and (_is_collection(at) or _stands_alone(at) or _says_nothing_more(at))
        )
        if token.role == "field" and _says_of_value(at):
            token.meaning = None  # "booked by phone"
        if (nothing := _denied_amount(tokens, number, spec)) is not None:
            denied = next(each for each in reversed(tokens[:number]) if each.role == "not")
            token.meaning, denied.meaning = nothing, None
    _settle_figures(tokens, spec)
