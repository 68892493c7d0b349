"""What a question asks of records, read by rules: the kind, the fields, the values and the days that it names.

A question becomes a query (`RecordQuery`) only where every word of it is understood: as a word of the index (index.toml
says how people speak of its fields and records), as a value that the scope's records have, as words of time, or as one of
those in planning.toml that ask ("how many", "cheapest", "per") or say nothing ("please"). A word that is none of them may
change what is meant, so with one left over there is no query, and the words' way is taken.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter

from rag_app.domain import FieldType, frozen
from rag_app.retrieval.filters import CONTAINS, EQ, GT, GTE, IN, LT, LTE, NE, condition
from rag_app.retrieval.index import IndexSpec, Kind, Vocabulary
from rag_app.retrieval.periods import Period, conditions_of
from rag_app.retrieval.records import Aggregate, Grain, Named, RecordQuery
from rag_app.retrieval.spelling import corrected
from rag_app.retrieval.text import tokens

Phrase = tuple[str, ...]
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
_NUMBER_FIELDS = frozenset({FieldType.INTEGER, FieldType.NUMBER})
_LONGEST = 6  # words of a phrase
_MOST_LEFT = 6  # words that may be values
_LISTED, _RANKED, _GROUPED = 12, 10, 24
_GRAINS = ("day", "week", "month", "year")
_COMPARED = {
    "under": LT, "over": GT, "least_of": GTE, "most_of": LTE,
}  # fmt: skip
_NUMBERED = ("_id", "_number", "_no")
_CONDITION = re.compile(r"(<=|>=|<|>|==)\s*(-?\d+(?:\.\d+)?)")


@frozen
class Meaning:
    """What a phrase may mean: `role` as in planning.toml, or "kind", "field", "high", "low", "value", "unit", "weekday"."""

    role: str
    name: str = ""
    value: str = ""


@dataclass(slots=True)
class Token:
    """A word of the question, with what it was understood as."""

    text: str
    stem: str
    meaning: Meaning | None = None
    said: bool = False
    others: tuple[Meaning, ...] = ()
    also: tuple[str, ...] = ()


@frozen
class Plan:
    """A query, and what it was made of: the kind of record, the figures that are named, the words for the conditions.

    `single`: one record is asked for, so that others come in only where they are its equals. `distinct`: how many
    different values there are.
    """

    query: RecordQuery
    kind: str | None = None
    single: bool = False
    conditions: tuple[str, ...] = ()
    period: Period | None = None
    distinct: bool = False
    figures: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        return self.query.aggregate is None


@frozen
class Reading:
    """A question as far as it is understood: `plan` where it is a query, `unknown` the words that are left."""

    plan: Plan | None = None
    unknown: tuple[str, ...] = ()


def may_ask(text: str, spec: IndexSpec) -> bool:
    """Whether a question is worth reading: it names a kind of record or a field of the index, or asks for a figure."""
    return bool(spec.records) and any(token.meaning for token in _read(text, _phrases(spec, ())))


def words_left(text: str, spec: IndexSpec, period: Period | None) -> tuple[str, ...]:
    """The words that may be values of fields, where the others are understood; empty where there is nothing to ask."""
    tokens = _read(_without(text, period), _phrases(spec, ()))
    left = tuple(token.text.lower() for token in tokens if token.meaning is None and not token.said)
    if not any(token.meaning for token in tokens) and period is None:
        return ()
    known = {token.text.lower() for token in tokens if not token.said or len(token.text) > 2}
    return tuple(dict.fromkeys((*left, *known))) if len(left) <= _MOST_LEFT else ()


def read_question(text: str, spec: IndexSpec, values: Sequence[Named], period: Period | None) -> Reading:
    """The query that a question is, with the `values` of its words that the scope has, and its days."""
    tokens = _read(_without(text, period), _phrases(spec, values))
    _read_names(tokens, values)
    _settle(tokens, spec)
    reader = _Reader(spec, tokens, period)
    plan = reader.plan()
    unknown = tuple(token.text.lower() for token in tokens if token.meaning is None and not token.said)
    return Reading(plan if not unknown else None, unknown)


def respelled(text: str, options: Mapping[str, Mapping[str, float]], spec: IndexSpec, values: Sequence[Named]) -> str:
    """The text with each of these words as the likeliest of its spellings that is a word of the index or of a value."""
    known = {word for phrase in _phrases(spec, values) for word in phrase} | _nothing()
    meant = {}
    for word, found in options.items():
        among = known if len(tokens(word)) > 1 else _nothing()  # a word that the model knows whole is hardly misspelt
        there = sorted((cost, each) for each, cost in found.items() if stem(each) in among)
        if there:
            meant[word] = there[0][1]
    return corrected(text, meant)


def stem(word: str) -> str:
    """
    >>> stem("Bookings"), stem("is"), stem("categories")
    ('booking', 'is', 'category')
    """
    word = word.casefold()
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and len(word) > 3 and not word.endswith("ss") else word


def stems(text: str) -> Phrase:
    return tuple(stem(word) for word in _WORD.findall(_bare(text)))


def _bare(text: str) -> str:
    """Without the s of a genitive."""
    return re.sub(r"(?<=\w)['’]s\b", "", text)


def _without(text: str, period: Period | None) -> str:
    """The question without its words of time."""
    return text if period is None else f"{text[: period.span[0]]} , {text[period.span[1] :]}"


# -- the words of planning.toml and of the index
@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    table: Mapping[str, Mapping[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return table


@cache
def _common() -> Mapping[Phrase, tuple[Meaning, ...]]:
    found: dict[Phrase, tuple[Meaning, ...]] = {}
    for role, phrases in _table()["roles"].items():
        for phrase in re.split(r"[|\n]", phrases):
            if key := stems(phrase):
                found[key] = (*found.get(key, ()), Meaning(role))
    for day, phrases in _table()["weekdays"].items():
        for phrase in phrases.split("|"):
            found[stems(phrase)] = (Meaning("weekday", value="6,7" if day == "weekend" else day),)
    return found


@cache
def _nothing() -> frozenset[str]:
    return frozenset(map(stem, _table()["said"]["words"].split()))


def _phrases(spec: IndexSpec, values: Iterable[Named]) -> Mapping[Phrase, tuple[Meaning, ...]]:
    """What phrases mean, the likeliest first: as values, as the index's words, as words that ask."""
    found: dict[Phrase, tuple[Meaning, ...]] = {}
    for phrase, meaning in _meanings(spec, values):
        if (key := stems(phrase)) and meaning not in found.get(key, ()):
            found[key] = (*found.get(key, ()), meaning)
    for key, meanings in _common().items():
        found[key] = (*found.get(key, ()), *meanings)
    return found


def _meanings(spec: IndexSpec, values: Iterable[Named]) -> Iterator[tuple[str, Meaning]]:
    for each in values:
        yield each.value, Meaning("value", each.field, each.value)
    for name, words in spec.vocabulary.items():
        for value, phrases in words.values.items():
            yield from ((phrase, Meaning("value", name, value)) for phrase in phrases)
        yield from ((phrase, Meaning("high", name)) for phrase in words.high)
        yield from ((phrase, Meaning("low", name)) for phrase in words.low)
    for name, kind in spec.records.items():
        yield from ((phrase, Meaning("kind", name)) for phrase in kind.words)
    for name in spec.fields:
        if (words := spec.vocabulary.get(name, Vocabulary())).own:
            continue
        named = words.words
        yield from ((phrase, Meaning("field", name)) for phrase in (*named, name.replace("_", " ")))
    yield from ((words.unit, Meaning("unit", name)) for name, words in spec.vocabulary.items() if words.unit)
    yield from ((phrase, Meaning("said")) for phrase in spec.said)


def _read(text: str, phrases: Mapping[Phrase, tuple[Meaning, ...]]) -> list[Token]:
    """The words of a text, the longest phrases understood first; the first word of a phrase carries its meaning."""
    tokens = [Token(word, stem(word)) for word in _WORD.findall(_bare(text))]
    place = 0
    while place < len(tokens):
        for length in range(min(_LONGEST, len(tokens) - place), 0, -1):
            meanings = phrases.get(tuple(token.stem for token in tokens[place : place + length]))
            if meanings:
                _mark(tokens[place : place + length], _likeliest(meanings, tokens, place + length))
                tokens[place].others = meanings
                place += length
                break
        else:
            tokens[place].said = tokens[place].stem in _nothing()
            place += 1
    return tokens


def _likeliest(meanings: Sequence[Meaning], tokens: Sequence[Token], after: int) -> Meaning | None:
    """Of several meanings the first; the number of a record is meant only with a number behind it ("customer 42")."""
    numbered = [each for each in meanings if each.role == "field" and each.name.endswith(_NUMBERED)]
    if numbered and after < len(tokens) and tokens[after].text.isdigit():
        return numbered[0]
    others = [each for each in meanings if each not in numbered] or [*meanings]
    if others[0].role == "value" and len({each.name for each in others if each.role == "value"}) > 1:
        return Meaning("unclear")
    return others[0]


def _mark(tokens: Sequence[Token], meaning: Meaning | None) -> None:
    for token in tokens:
        token.said = True
    if meaning is not None and meaning.role != "said":
        tokens[0].meaning = meaning


def _read_names(tokens: list[Token], values: Sequence[Named]) -> None:
    """A part of a name stands for it: "Theo" for Theo Lindqvist, of whom there must be one, in one field.

    Right before the kind of a record it stands for all values that have it: "wedding keywords".
    """
    for place, token in enumerate(tokens):
        if token.meaning is not None or token.said or _figure(token.text) is not None:
            continue
        having = {(each.field, each.value) for each in values if token.stem in stems(each.value)}
        behind = place + 1 < len(tokens) and _role(tokens[place + 1]) == "kind"
        meant = sorted(having if behind else {each for each in having if _is_name(each[1])})
        if meant and len({name for name, _ in meant}) == 1 and (behind or len(meant) == 1):
            token.meaning = Meaning("value", *meant[0])
            token.also = tuple(value for _, value in meant[1:])


def _is_name(value: str) -> bool:
    words = _WORD.findall(value)
    return 1 < len(words) <= 4 and all(word[:1].isupper() for word in words)


def _settle(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """A word for a value and for figures ("rain") means the figures where those are asked for and none are named."""
    roles = {token.meaning.role for token in tokens if token.meaning}
    named = {token.meaning.name for token in tokens if token.meaning and token.meaning.role in ("field", "high", "low")}
    if not roles & {"sum", "average", "much", "most", "least"} or any(
        spec.fields.get(each) in _NUMBER_FIELDS for each in named
    ):
        return
    for token in tokens:
        if token.meaning is not None and token.meaning.role in ("value", "unclear"):
            figures = [
                each for each in token.others if each.role == "field" and spec.fields.get(each.name) in _NUMBER_FIELDS
            ]
            token.meaning = figures[0] if figures else token.meaning


# -- what they ask together
@dataclass
class _Reader:
    """Reads the tokens of one question. `plan` is None where they are no query, or more than one."""

    spec: IndexSpec
    tokens: list[Token]
    period: Period | None

    def plan(self) -> Plan | None:
        compared, values, kinds = self._comparisons(), self._values(), self._kinds()
        if values is None or len(kinds) > 1 or any(self._has(role) for role in ("not", "unclear")):
            return None
        figures = [name for name in self._fields("field") if self._is_figure(name)]
        keys = [name for name in self._fields("field") if self.spec.fields.get(name) is FieldType.KEYWORD]
        named = next(iter(kinds), None)
        query = self._asked(named, figures, keys)
        if query is None:
            return None
        kind = named or self._meant(query, figures, keys, values)
        weekdays = tuple(int(day) for each in self._of("weekday") for day in each.value.split(","))
        own, days = self._has("own"), conditions_of(self.period) if self.period is not None else ()
        everything = not (compared or values or weekdays or own or days or query.aggregate or query.order)
        if everything or (kind is None and len(self.spec.source_types) > 1):
            return None
        ranked = [each for each in values if each.operator in (GT, LT) and self._is_figure(each.key)]
        if query.aggregate is None and query.order is None and len(ranked) == 1:  # "trending": the most of it first
            query = replace(query, order=ranked[0].key, descending=ranked[0].operator is GT)
        asked = replace(query, filters=(*compared, *values, *days), own=own, weekdays=weekdays)
        return Plan(
            asked if kind is None else self._of_kind(asked, self.spec.records[kind]),
            kind,
            single=query.aggregate is None and query.order is not None and query.limit == 1,
            conditions=tuple(_told(each) for each in (*compared, *values) if not self._words(each.key).own),
            period=self.period,
            distinct=query.group is not None and query.limit == _GROUPED and not self._has("each"),
            figures=tuple(figures),
        )

    def _of_kind(self, query: RecordQuery, kind: Kind) -> RecordQuery:
        types = condition("source_type", IN, kind.source_types)
        return replace(query, filters=(types, *query.filters), having=kind.having)

    def _meant(
        self, query: RecordQuery, figures: Sequence[str], keys: Sequence[str], values: Sequence[MetadataFilter]
    ) -> str | None:
        """The kind that is meant where none is named: that of the fields, where they agree."""
        names = {query.order, query.of, query.group, *figures, *keys, *(each.key for each in values)}
        kinds = {kind for name in names if name is not None and (kind := self._words(name).kind) is not None}
        if len(kinds) == 1:
            return kinds.pop()
        return next(iter(self.spec.records)) if len(self.spec.records) == 1 else None

    # -- the one thing that is asked
    def _asked(self, kind: str | None, figures: list[str], keys: list[str]) -> RecordQuery | None:
        """Aggregate, order, group and limit; filters are not looked at."""
        ways = [role for role in ("sum", "average") if self._has(role)]
        extreme, (group, grain) = self._extreme(kind, figures), self._group(keys)
        if len(ways) > 1 or extreme is _UNCLEAR:
            return None
        if ways:
            return self._total(Aggregate(ways[0]), figures, group, grain)
        if isinstance(extreme, RecordQuery):
            return self._of_extreme(extreme, kind, figures, keys, group, grain)
        return self._plainly(kind, figures, keys, group, grain)

    def _plainly(
        self, kind: str | None, figures: list[str], keys: list[str], group: str | None, grain: Grain | None
    ) -> RecordQuery | None:
        """Without a word for the most, the mean or the sum."""
        much, many = self._has("much"), self._has("count")
        summed = [name for name in figures if self._words(name).adds_up]
        if (much or (many and kind is None)) and len(summed) == 1:
            return self._total(Aggregate.SUM, summed, group, grain)
        if much:
            return None
        if many or group is not None:
            return self._count(kind, keys, group, grain, many)
        if self._has("rank") or self._has("each"):
            return RecordQuery(order=figures[0], limit=_RANKED) if len(figures) == 1 else None
        return RecordQuery(limit=_LISTED)

    def _count(
        self, kind: str | None, keys: Sequence[str], group: str | None, grain: Grain | None, many: bool
    ) -> RecordQuery:
        if group is not None:
            return RecordQuery(
                aggregate=Aggregate.COUNT, group=group, grain=grain, limit=_GROUPED,
                order=group if grain else None, descending=grain is None,
            )  # fmt: skip
        if kind is None and len(keys) == 1 and many:  # how many stylists
            return RecordQuery(aggregate=Aggregate.COUNT, group=keys[0], limit=_GROUPED)
        return RecordQuery(aggregate=Aggregate.COUNT)

    def _total(
        self, aggregate: Aggregate, figures: Sequence[str], group: str | None, grain: Grain | None
    ) -> RecordQuery | None:
        if aggregate is Aggregate.SUM and not figures and self._has("count"):
            return RecordQuery(aggregate=Aggregate.COUNT)  # how many in total
        named = dict.fromkeys((*figures, *self._fields("high"), *self._fields("low")))
        if len(named) != 1:
            return None
        of = next(iter(named))
        if self._has("most") or self._has("least"):
            return (
                None
                if group is None
                else RecordQuery(
                    aggregate=aggregate, of=of, group=group, grain=grain, limit=1, descending=self._has("most")
                )
            )
        return RecordQuery(
            aggregate=aggregate, of=of, group=group, grain=grain,
            limit=_GROUPED if group else 5, order=group if grain else None, descending=grain is None,
        )  # fmt: skip

    def _extreme(self, kind: str | None, figures: list[str]) -> "RecordQuery | object | None":
        """What "cheapest", "most", "best" and "latest" order by; the field is None where it is still to be found."""
        ways = [(name, True) for name in self._fields("high")] + [(name, False) for name in self._fields("low")]
        for role, descending in (("most", True), ("least", False)):
            if self._has(role) and not ways:
                ways.append((self._extreme_field(kind, figures), descending))
        for role, good in (("best", True), ("worst", False)):
            if self._has(role) and not ways:
                name = self._extreme_field(kind, figures)
                best = self._words(name).best or ("high" if kind and self.spec.records[kind].by == name else None)
                if not name or best is None:
                    return _UNCLEAR
                ways.append((name, (best == "high") == good))
        for role, descending in (("newest", True), ("oldest", False)):
            if self._has(role):
                ways.append(("date", descending))
        if not ways:
            return None
        if len(set(ways)) > 1:
            return _UNCLEAR
        name, descending = ways[0]
        return RecordQuery(order=name or None, descending=descending, limit=self._wanted())

    def _extreme_field(self, kind: str | None, figures: Sequence[str]) -> str:
        if len(figures) == 1:
            return figures[0]
        return (self.spec.records[kind].by or "") if kind and not figures else ""

    def _of_extreme(
        self, extreme: RecordQuery, kind: str | None, figures: Sequence[str], keys: Sequence[str],
        group: str | None, grain: Grain | None,
    ) -> RecordQuery | None:  # fmt: skip
        """One record, or one group: which stylist has the most bookings, which year the most rain."""
        name = extreme.order
        subject, grain_of = (group, grain) if group else self._subject(kind, keys, name)
        largest = self._has("most") or self._has("least") or grain_of is not None
        if subject is None or not largest:
            return extreme if name is not None else None
        by_group = replace(extreme, order=None, group=subject, grain=grain_of)
        if name is None or (kind is not None and not figures and name == self.spec.records[kind].by):
            return replace(by_group, aggregate=Aggregate.COUNT)
        if self._words(name).adds_up and not self._said("highest", "lowest", "largest", "smallest", "biggest"):
            return replace(by_group, aggregate=Aggregate.SUM, of=name)
        return extreme if grain_of is None else None

    def _subject(self, kind: str | None, keys: Sequence[str], name: str | None) -> tuple[str | None, Grain | None]:
        """What there is one of: "which stylist", "which year"."""
        if len(keys) == 1:
            return keys[0], None
        said = next((role for role in _GRAINS if self._has(role)), None)
        by_day = said == "day" and (kind is not None or len(self.spec.records) == 1)  # the records are days
        return (None, None) if said is None or name == "date" or by_day else ("date", Grain(said))

    def _group(self, keys: list[str]) -> tuple[str | None, Grain | None]:
        """The field behind "per" or "each", and by what a time is grouped."""
        for place, token in enumerate(self.tokens):
            if token.meaning is None or token.meaning.role != "each":
                continue
            for other in self.tokens[place + 1 : place + 3]:
                if other.meaning is None:
                    continue
                if other.meaning.role in _GRAINS:
                    return "date", Grain(other.meaning.role)
                if other.meaning.role == "field" and other.meaning.name in keys:
                    return other.meaning.name, None
                break
        if self._has("each") and len(keys) == 1 and (self._has("count") or self._has("much")):
            return keys[0], None
        return None, None

    def _wanted(self) -> int:
        """How many are asked for: "the top 3", "the five cheapest", or one."""
        counts = [value for token in self._free() if (value := _figure(token.text)) is not None and value == int(value)]
        if len(counts) == 1 and 1 <= counts[0] <= 20:
            for token in self._free():
                if _figure(token.text) is not None:
                    token.said = True
            return int(counts[0])
        return 1

    # -- conditions
    def _comparisons(self) -> list[MetadataFilter]:
        """Figures with what they are compared by; each belongs to a field, by its unit, its name, or as the only one."""
        found = []
        for place, token in enumerate(self.tokens):
            value = None if token.said else _figure(token.text)
            bound = None if value is None else self._bound(place, value)
            if bound is not None:
                found.append(bound)
                token.said = True
        return found

    def _bound(self, place: int, value: float) -> MetadataFilter | None:
        before = self.tokens[max(0, place - 3) : place]
        operator = next((_COMPARED[role] for each in before if (role := _role(each)) in _COMPARED), None)
        numbered = [each.meaning.name for each in before[-2:] if each.meaning and _role(each) == "field"]
        if operator is None and numbered and numbered[-1].endswith(_NUMBERED):
            return self._compared(numbered[-1], EQ, value)
        after = self.tokens[place + 1].meaning if place + 1 < len(self.tokens) else None
        figures = [name for role in ("field", "high", "low") for name in self._fields(role)]
        figures = [name for name in dict.fromkeys(figures) if self._is_figure(name)]
        if after is not None and after.role in ("unit", "field") and self.spec.fields.get(after.name) in _NUMBER_FIELDS:
            same = [name for name in figures if self._words(name).unit == self._words(after.name).unit]
            name = same[0] if len(same) == 1 and after.role == "unit" else after.name
            return self._compared(name, operator or EQ, value) if operator or after.role == "unit" else None
        return self._compared(figures[0], operator, value) if operator is not None and len(figures) == 1 else None

    def _compared(self, name: str, operator: FilterOperator, value: float) -> MetadataFilter | None:
        whole = self.spec.fields.get(name) is FieldType.INTEGER
        if whole and value != int(value):
            return None
        return condition(name, operator, int(value) if whole else value)

    def _values(self) -> list[MetadataFilter] | None:
        """What values of fields are named; of one field any of them. None where they do not go together."""
        found: dict[str, list[str]] = {}
        for token in self.tokens:
            if token.meaning is not None and token.meaning.role == "value":
                known = found.setdefault(token.meaning.name, [])
                known += [value for value in (token.meaning.value, *token.also) if value not in known]
        made: list[MetadataFilter] = []
        for name, values in found.items():
            kind = self.spec.all_fields[name]
            written = [_CONDITION.fullmatch(value) for value in values]
            if kind in _NUMBER_FIELDS and all(written):
                made += [condition(name, each[1], float(each[2])) for each in written if each is not None]
            elif kind is FieldType.TAGS:
                made += [condition(name, CONTAINS, value) for value in values]
            elif kind is FieldType.BOOLEAN and len(values) == 1:
                made.append(condition(name, EQ, values[0] == "true"))
            elif kind is FieldType.KEYWORD:
                made.append(condition(name, EQ, values[0]) if len(values) == 1 else condition(name, IN, values))
            else:
                return None
        return made

    def _kinds(self) -> set[str]:
        """The kinds that are named, but for those that another one consists of."""
        named = {each.name for each in self._of("kind")}
        for kind in sorted(named):
            held = {stems(phrase) for phrase in self.spec.records[kind].holds}
            named -= {
                other for other in named - {kind} if held & {stems(phrase) for phrase in self.spec.records[other].words}
            }
        return named

    # -- tokens
    def _is_figure(self, name: str) -> bool:
        """Whether a field is a number that can be compared, and not one that a record goes by."""
        return self.spec.fields.get(name) in _NUMBER_FIELDS and not name.endswith(_NUMBERED)

    def _of(self, role: str) -> list[Meaning]:
        return [token.meaning for token in self.tokens if token.meaning is not None and token.meaning.role == role]

    def _has(self, role: str) -> bool:
        return bool(self._of(role))

    def _fields(self, role: str) -> list[str]:
        return [*dict.fromkeys(each.name for each in self._of(role))]

    def _free(self) -> list[Token]:
        return [token for token in self.tokens if token.meaning is None and not token.said]

    def _said(self, *words: str) -> bool:
        return any(token.stem in words for token in self.tokens)

    def _words(self, name: str | None) -> Vocabulary:
        return self.spec.vocabulary.get(name or "") or Vocabulary()


_UNCLEAR = object()
"""More than one order, or one that nobody can tell."""


def _figure(word: str) -> float | None:
    """
    >>> _figure("1,200"), _figure("ten"), _figure("listing")
    (1200.0, 10.0, None)
    """
    if re.fullmatch(r"\d+|\d+\.\d+|\d{1,3}(?:,\d{3})+(?:\.\d+)?", word):
        return float(word.replace(",", ""))
    known = _table()["numbers"].get(word.casefold())
    return None if known is None else float(known)


def _role(token: Token) -> str:
    return token.meaning.role if token.meaning else ""


def _told(each: MetadataFilter) -> str:
    """
    >>> _told(condition("customer_id", "==", 58)), _told(condition("price", "<", 10.0))
    ('customer 58', 'price below 10')
    """
    values = each.value if isinstance(each.value, list) else [each.value]
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    shown = [{"True": "yes", "False": "no"}.get(value, value) for value in shown]
    return f"{each.key.removesuffix('_id').replace('_', ' ')} {_SIGNS.get(each.operator, '')}{' or '.join(shown)}"


_SIGNS = {LT: "below ", GT: "above ", LTE: "at most ", GTE: "at least ", NE: "not "}
