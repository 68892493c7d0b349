"""A question about records as a query, by a small model that reads the question together with what an index declares.

The model is shown the question, then each kind of record, each field and each value that the question may mean, all behind
a marker of their own. It says of each of them what it is to the query, of each figure of the question what it bounds, and
of each word whether it belongs to a title.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, convert
from numpy.typing import NDArray

from rag_app.answering.records.wording import figure, stem, stems, word_set
from rag_app.answering.records.written_queries import WrittenFilter, WrittenQuery
from rag_app.retrieval.embedding import shared_session
from rag_app.retrieval.records import Aggregate, Grain
from rag_app.retrieval.text import tokenizer, tokens

MODEL_FILE = Path(__file__).with_name("parser.onnx")
SORTS = ("kind", "number", "integer", "keyword", "boolean", "tags", "date", "value")
OPERATIONS = ("none", "list", "count", "sum", "average")
GRAINS = ("none", "day", "week", "month", "year")
WAYS = ("none", "up", "down")
"""In which order groups come by their figure."""
FIELD_ROLES = ("of", "up", "down", "group", "show", "true", "false")
VALUE_ROLES = ("none", "==", "!=")
NUMBER_ROLES = ("none", "limit", "<", "<=", ">", ">=", "==", "!=")
SLOTS = 8
_FIT, _SCALE = np.array([-1.248, -0.609, 0.494, -0.161, -0.439]), 0.02
_CLS, _SEP = 101, 102
_DOUBT = np.log(0.25)
"""What is lost where something that is said has no part in the query."""
MOST_LISTED, MOST_GROUPS = 12, 24
_MARKERS = {sort: 1 + place for place, sort in enumerate(SORTS)}
_TIME, _MOST_NONE = 20, 4.0
_MOST_QUESTION, _MOST_ITEM, _MOST_ITEMS = 64, 16, 80
NOT, PARTLY, WHOLLY = range(3)
_COMMON = frozenset(["and", "for", "the", "with", "from", "per", "not", "are", "was", "has", "had", "number", "name"])
_WORD = re.compile(r"[^\W_]+")
_FIGURE = re.compile(r"(?<![\w.,-])-?\d+(?:[.,]\d+)*|[^\W\d_]+")


class Item(Struct, frozen=True):
    """What a query may name: a kind, a field, or a value of the field `name`. `text` says it in words.

    `kind` is the one that alone has the field, where that is known.
    """

    sort: str
    name: str
    text: str
    value: str = ""
    kind: str = ""


class ParserInput(Struct, frozen=True):
    """What the model reads: the `ids` of the question; the items have the places behind it. `figures` have their values."""

    ids: tuple[int, ...]
    items: tuple[Item, ...]
    figures: tuple[tuple[int, float], ...]
    spans: tuple[tuple[int, int], ...]
    """Where in the question each of its tokens stands; the first is at place 1."""
    mentions: tuple[tuple[int, int, int], ...]
    """Of each item how the question mentions it (NOT, PARTLY or WHOLLY), the place where it does, and a number of its kind."""

    @property
    def places(self) -> range:
        return range(len(self.ids), len(self.ids) + len(self.items))

    def places_of(self, *sorts: str) -> list[int]:
        return [place for place, item in zip(self.places, self.items, strict=True) if item.sort in sorts]


class ReadQuery(Struct, frozen=True):
    """What the model read: a query, the fields that it shows, and the title of the one record that is asked for.

    `query` is the likeliest one, however likely it is that there is none; None where its parts do not fit together.
    `signals` say how much all that was chosen costs in likelihood, and the kind, how many words of the question no item and
    no title says, and the log-odds that there is no query.
    """

    signals: tuple[float, float, int, float] = (0.0, 0.0, 0, 0.0)
    query: WrittenQuery | None = None
    show: tuple[str, ...] = ()
    title: str = ""

    @property
    def certainty(self) -> float:
        """How likely all of it is right, as fitted on tables that the model was not taught (docs/adr/0068)."""
        return float(1 / (1 + np.exp(-_FIT @ np.array([1.0, *self.signals]))))


def show(question: str, period: tuple[int, int] | None, items: Sequence[Item]) -> ParserInput:
    """What the model reads; the words of time are one token, since others read them."""
    ids, spans = [_CLS], []
    parts = [(0, len(question))] if period is None else [(0, period[0]), period, (period[1], len(question))]
    for start, end in parts:
        if (start, end) == period:
            ids.append(_TIME)
            spans.append(period)
            continue
        encoded = tokenizer().encode(question[start:end], add_special_tokens=False)
        ids += encoded.ids
        spans += [(start + one, start + other) for one, other in encoded.offsets]
    del ids[1 + _MOST_QUESTION :], spans[_MOST_QUESTION:]
    figures = [(place, figure(word)) for word, place in _find(_FIGURE, question, spans) if ids[place] != _TIME]
    words = _words(question, spans)
    kept = tuple(items[:_MOST_ITEMS])
    return ParserInput(
        (*ids, _SEP),
        kept,
        tuple((place, value) for place, value in figures if value is not None),
        tuple(spans),
        tuple((*_mention(item, words), slot) for item, slot in zip(kept, _slots(kept), strict=True)),
    )


def _slots(items: Sequence[Item]) -> list[int]:
    """A kind and what it alone has have a number of their own, anything else 0."""
    kinds = [item.name for item in items if item.sort == "kind"][: SLOTS - 1]
    slot_of = {name: slot for slot, name in enumerate(kinds, 1)}
    return [slot_of.get(item.name if item.sort == "kind" else item.kind, 0) for item in items]


def _words(question: str, spans: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
    """The stems of the question's words with the places of their first tokens."""
    return [(stem(word), place) for word, place in _find(_WORD, question, spans)]


def _find(pattern: re.Pattern[str], question: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """What the pattern finds in a question, with the places of their first tokens."""
    begins = {start: place for place, (start, _) in reversed([*enumerate(spans, 1)])}
    return ((each[0], begins[each.start()]) for each in pattern.finditer(question) if each.start() in begins)


def _phrases(item: Item) -> tuple[tuple[str, ...], ...]:
    told = item.text.rpartition(" : ")[0] if item.sort == "value" else re.sub(r"\b(most|least): ", "", item.text)
    return tuple(
        tuple(stem(word) for word in _WORD.findall(phrase)) for phrase in re.split(r"[,()]", told) if phrase.strip()
    )


def _mention(item: Item, words: Sequence[tuple[str, int]]) -> tuple[int, int]:
    """How, and where, the question mentions an item: the longest of its phrases, or else one word of them."""
    said = [word for word, _ in words]
    for phrase in sorted(_phrases(item), key=len, reverse=True):
        for at in range(len(said) - len(phrase) + 1):
            if phrase and said[at : at + len(phrase)] == [*phrase]:
                return WHOLLY, words[at][1]
    parts = {word for phrase in _phrases(item) for word in phrase if len(word) > 2 and word not in _COMMON}
    return next(((PARTLY, place) for word, place in words if word in parts), (NOT, 0))


def item_ids(item: Item) -> tuple[int, ...]:
    """The tokens of an item, behind a marker of its sort."""
    return _MARKERS[item.sort], *tokens(item.text)[:_MOST_ITEM]


class _Choices:
    """Takes the likelier of each choice; `all` is the logarithm of the probability of all of them."""

    def __init__(self) -> None:
        self.all = 0.0

    def one(self, odds: NDArray[np.float64]) -> int:
        self.all -= float(np.log(np.exp(odds - odds.max()).sum()))
        return int(odds.argmax())

    def holds(self, odds: float) -> bool:
        self.all -= float(np.log1p(np.exp(-abs(odds))))
        return bool(odds > 0)


class Reading:
    """The query that the model's odds say, part by part."""

    def __init__(self, question: str, shown: ParserInput, about: Any, roles: Any, links: Any) -> None:
        self._question, self._shown, self._links = question, shown, np.asarray(links, np.float64)
        self._at = dict(zip(shown.places, shown.items, strict=True))
        self._roles, self._choices = np.asarray(roles, np.float64), _Choices()
        self._about = np.split(np.asarray(about, np.float64), np.cumsum([len(OPERATIONS), len(GRAINS), len(WAYS), 1]))
        self._as_field, self._as_value, self._as_figure = np.split(
            self._roles[:, 1:-1], np.cumsum([len(FIELD_ROLES), len(VALUE_ROLES)]), axis=1
        )
        self._numbers = shown.places_of("number", "integer")

    def read(self) -> ReadQuery:
        choices, at = self._choices, self._at
        (none, *operations), kinds = self._about[0], self._shown.places_of("kind")
        operation, of_kind = OPERATIONS[1 + choices.one(np.array(operations))], _Choices()
        if not kinds:
            return ReadQuery()
        kind = at[kinds[of_kind.one(self._roles[kinds, 0])]].name
        own, first = choices.holds(self._about[3][0]), choices.holds(self._about[4][0])
        grain, way = GRAINS[choices.one(self._about[1])], WAYS[choices.one(self._about[2])]
        computes = operation in ("sum", "average")
        if not self._numbers and (computes or self._shown.figures):
            return ReadQuery()
        of = at[self._numbers[choices.one(self._as_field[self._numbers, 0])]].name if computes else None
        limit, filters = self._figures()
        groups, told = list[str](), list[str]()
        orders = [("value", way == "down")] if way != "none" else []
        for place, item in at.items():
            if item.sort not in ("kind", "value"):
                self._read_field(place, item, groups, orders, filters)
                told += [item.name] if self._as_field[place, 4] > 0 else []
        filters += self._values()
        groups += ["date"] if grain != "none" else []
        title = self._title()
        if len(groups) > 1 or len(orders) > 1 or (operation == "list" and groups) or (operation != "list" and title):
            return ReadQuery()
        names = {of, *groups, *told, *(name for name, _ in orders), *(each.field for each in filters)}
        having = {item.kind for item in self._shown.items if item.sort != "kind" and item.name in names} - {""}
        if len(having) > 1:
            choices.all += _DOUBT  # no record has all of these fields
        elif having:
            kind, of_kind = having.pop(), _Choices()
        elif len(kinds) > 1 and not self._says_kind(kind):
            of_kind.all += _DOUBT  # of records of any kind, only one was taken
        order, descending = orders[0] if orders else ("date", False) if grain != "none" else (None, True)
        query = WrittenQuery(
            kind,
            filters,
            own,
            None if operation == "list" else Aggregate(operation),
            of,
            groups[0] if groups else None,
            None if grain == "none" else Grain(grain),
            None if order == "value" else order,
            descending,
            limit or (1 if first else MOST_GROUPS if groups else MOST_LISTED),
        )
        none = float(np.clip(none - np.logaddexp.reduce(operations), -_MOST_NONE, _MOST_NONE))
        signals = (float(np.log(_SCALE - choices.all)), of_kind.all, self._count_unsaid(title), none)
        return ReadQuery(signals, query, tuple(told), title)

    def _says_kind(self, kind: str) -> bool:
        shown = zip(self._shown.items, self._shown.mentions, strict=True)
        return any(way != NOT for item, (way, _, _) in shown if item.sort == "kind" and item.name == kind)

    def _figures(self) -> tuple[int | None, list[WrittenFilter]]:
        """How many are asked for, and what is compared with a figure."""
        limit, filters = None, list[WrittenFilter]()
        for place, value in self._shown.figures:
            role = NUMBER_ROLES[self._choices.one(self._as_figure[place])]
            if role == "limit":
                limit = int(value)
            elif role != "none":
                field = self._numbers[self._choices.one(self._links[place, self._numbers])]
                filters.append(_filter(self._at[field].name, role, value))
            elif value != 1:
                self._choices.all += _DOUBT  # a figure that is said limits something
        return limit, filters

    def _read_field(
        self, place: int, item: Item, groups: list[str], orders: list[tuple[str, bool]], filters: list[WrittenFilter]
    ) -> None:
        odds = self._as_field[place]
        if item.sort in ("number", "integer", "date"):
            orders += [(item.name, role == 2) for role in (1, 2) if self._choices.holds(odds[role])]
        if item.sort != "date" and self._choices.holds(odds[3]):
            groups.append(item.name)
        if item.sort == "boolean":
            filters += [_filter(item.name, "==", role == 5) for role in (5, 6) if self._choices.holds(odds[role])]

    def _values(self) -> list[WrittenFilter]:
        """The values that are meant; of several fields with the same value, the likeliest one."""
        meant: dict[str, tuple[float, int, str]] = {}
        for place in self._shown.places_of("value"):
            odds, value = self._as_value[place], self._at[place].value.casefold()
            role = VALUE_ROLES[self._choices.one(odds)]
            if role != "none":
                meant[value] = max(meant.get(value, (-np.inf, 0, "")), (odds.max() - odds[0], place, role))
        found = [(self._at[place], role) for _, place, role in meant.values()]
        items, mentions = self._shown.items, self._shown.mentions
        used = {at for (_, at, _), item in zip(mentions, items, strict=True) if item.sort != "value"}
        used |= {mentions[place - self._shown.places[0]][1] for _, place, _ in meant.values()}
        for (way, at, _), item in zip(mentions, items, strict=True):
            if item.sort == "value" and way == WHOLLY and at not in used:
                self._choices.all += _DOUBT  # a value that is said is meant
        return [_filter(item.name, role, item.value) for item, role in found]

    def _title(self) -> str:
        odds, spans = self._roles[:, -1], self._shown.spans
        inside = [span for place, span in enumerate(spans, 1) if self._choices.holds(odds[place])]
        return self._question[inside[0][0] : inside[-1][1]] if inside else ""

    def _count_unsaid(self, title: str) -> int:
        said = {word for item in self._shown.items for phrase in _phrases(item) for word in phrase} | {*stems(title)}
        words = [word for word, _ in _words(self._question, self._shown.spans)]
        return sum(word not in said | word_set("asking") and figure(word) is None for word in words)


def _filter(field: str, operator: str, value: str | float | bool) -> WrittenFilter:
    return convert({"field": field, "operator": operator, "value": value}, WrittenFilter)


def parse(question: str, period: tuple[int, int] | None, items: Sequence[Item]) -> ReadQuery:
    """Reads a question; the model is opened by the first one. It takes tens of milliseconds of the processor."""
    shown = show(question, period, items)
    rows = [item_ids(item) for item in shown.items]
    told = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for place, row in enumerate(rows):
        told[place, : len(row)] = row
    asked = {
        "question": np.array([shown.ids], dtype=np.int64),
        "items": told,
        "mask": (told > 0).astype(np.int64),
        "mentions": np.array(shown.mentions, dtype=np.int64),
    }
    about, roles, links = shared_session(MODEL_FILE).run(None, asked)
    return Reading(question, shown, about[0], roles[0], links[0]).read()
