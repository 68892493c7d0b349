"""The conditions of a question about records: its figures with what they are compared by, and the values that it names."""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

from rag_app.answering.records.settling import THERE, counts_things, counts_zero_as_none
from rag_app.answering.records.titles import list_neighbours
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Meaning,
    Token,
    figure,
    goes_by,
    is_figure,
    is_measure,
    name_field,
    people_field,
    says_year,
    stems,
    vocabulary_of,
    word_set,
)
from rag_app.domain import FieldType
from rag_app.retrieval.filters import CONTAINS, EQ, GT, GTE, IN, IS_EMPTY, LT, LTE, NE, condition, or_missing
from rag_app.retrieval.index import IndexSpec, Kind
from rag_app.retrieval.records import NUMBER_FIELDS, RecordQuery

GRAINS = ("day", "week", "month", "year", "weekday")
BOUND_OPERATORS = {"under": LT, "over": GT, "least_of": GTE, "most_of": LTE}
_BOUNDS = frozenset({"over", "under"})
_FIRST_YEAR = 1000
_OLDEST = 120  # years
_IMPLY = frozenset({"under", "over", "between"})
_CONDITION = re.compile(r"(<=|>=|<|>|==)\s*(-?\d+(?:\.\d+)?)")


class Conditions:
    """Reads the conditions in the tokens of one question; `figures` and `keys` are the fields that it names, `kind` its kind."""

    def __init__(self, spec: IndexSpec, tokens: Sequence[Token], kind: str | None) -> None:
        self.spec, self.tokens, self.kind = spec, tokens, kind
        self.bounded: Sequence[str] = ()  # the figures that are compared
        named = [name for name in self._fields("field", "total") if is_figure(spec, name) and self._is_measured(name)]
        self.figures = [name for name in named if not any(self._says_more(other, name) for other in named)]
        self.keys = [name for name in self._fields("field") if spec.fields.get(name) is FieldType.KEYWORD]

    def _is_measured(self, name: str) -> bool:
        """Whether a figure is measured. A year only says when, but for "the latest year" or "the average year"."""
        plain = [token for token in self.tokens if not token.inside]
        pairs = [one.role for one, other in pairwise(plain) if other.name == name]
        return not says_year(self.spec, name) or any(role in (*SUPERLATIVES, "average", "sum") for role in pairs)

    def _says_more(self, one: str, other: str) -> bool:
        """Whether a field is called by more words than another one: "median price" beside "price"."""
        words, others = ({stems(phrase) for phrase in vocabulary_of(self.spec, name).words} for name in (one, other))
        return one != other and any(phrase[1:] in others for phrase in words if len(phrase) > 1)

    def _comparisons(self) -> list[MetadataFilter] | None:
        """Figures with what they are compared by; each belongs to a field, by its unit, its name, or as the only one.

        None where something is compared with what is no figure: "hotter than the day before".
        """
        found: list[MetadataFilter] = []
        for place, token in enumerate(self.tokens):
            value = self._value_at(place) if token.is_left or self._is_one(place) else None
            bound = None if value is None else self._build_bound(place, value)
            if bound is None and value is not None and found:
                bound = self._build_second(place, value, found[-1])
            if bound is not None and not self._is_of_time(place):
                found.append(bound)
                token.said = True
        self.bounded = [each.key for each in found]
        self._measure_others(self.bounded)
        bounds = sum(token.role in BOUND_OPERATORS or token.role == "between" for token in self.tokens)
        if bounds > len(found) or len({(each.key, each.operator) for each in found}) < len(found):
            return None  # it limits what is not understood, or twice the same
        thans = [
            range(place + 1, min(place + 4, len(self.tokens)))
            for place, each in enumerate(self.tokens)
            if each.stem == "than"
            and (each.inside or not each.said)
            and _phrase_of(self.tokens, place).role not in ("more", "not")
        ]
        return found if all(any(self._value_at(at) is not None for at in behind) for behind in thans) else None

    def _measure_others(self, compared: Sequence[str]) -> None:
        """Figures that are compared with a number are conditions, and nothing to measure, where others are named."""
        others = [name for name in self.figures if name not in compared]
        ordered = len(others) == 1 and any(map(self._has, ("most", "least", "rank")))
        if others and (self._has("sum") or self._has("average") or ordered):
            self.figures = others

    def _build_bound(self, place: int, value: float) -> MetadataFilter | None:
        before, behind = self.tokens[max(0, place - 3) : place], self.tokens[place + 1 : place + 4]
        lead = [each.role for each in before]
        ends = [at for at, each in enumerate(behind) if figure(each.text) is not None]  # "200 up to 400"
        after = [
            each for each in self.tokens[place + 1 : place + 8] if not each.inside
        ]  # 100 readings a second or more
        roles = [*lead, *(each.role for each in after[: 0 if ends else 4] if each.role in ("least_of", "most_of"))]
        operator = next((BOUND_OPERATORS[role] for role in roles if role in BOUND_OPERATORS), None)
        first = lead[-1:] == ["between"] and bool(ends)  # between 20 and 40 pounds
        last = lead[:-2] == ["between"] and figure(before[1].text) is not None
        if first or last:
            operator = GTE if first else LTE
        if before and before[-1].text.casefold() == "minus":
            before[-1].said, value = True, -value
        own = [each.name for each in before if each.name and each.role in _BOUNDS]
        if operator is not None and own:  # "hotter than"
            return self._build_comparison(own[-1], operator, value) if self._may_be_of(place, own[-1]) else None
        numbered = [each.name for each in before[-2:] if each.role == "field"]
        if operator is None and numbered and goes_by(numbered[-1]):
            return self._build_comparison(numbered[-1], EQ, value)
        if operator is None:
            name = self._field_behind(place, named=False) or self._number_of(place, value)
            of = (
                _phrase_of(self.tokens, place - 2).name
                if before[1:] and before[-1].stem in word_set("partitive")
                else ""
            )
            counted = any(each.role in SUPERLATIVES | {"kind", "value", "ordinal"} for each in behind[:1])
            name = name or (of if is_figure(self.spec, of) and not counted else None)  # with a price of 0
        else:
            # a preposition may stand before the field: "under 50 for demand"
            apart = 2 if first else int(any(each.stem in word_set("for") for each in behind[:1]))
            name = self._field_behind(place + apart, named=True)
            name = name or self._field_before(place - 2 if last else place) or self._only_figure()
            name = name or self._figure_of_noun(place) or self._age_of_people(place, value)
        return self._build_comparison(name, operator or EQ, value) if name else None

    def _build_second(self, place: int, value: float, first: MetadataFilter) -> MetadataFilter | None:
        """The other bound of a figure, without its name or unit: "over 12 percent but under 13"."""
        before = [each for each in self.tokens[:place] if not each.inside][-2:]
        if len(before) < 2:
            return None
        joint, lead = before
        bounded = lead.role in _BOUNDS and not lead.name and joint.stem in word_set("joins") | word_set("but")
        operator = BOUND_OPERATORS.get(lead.role)
        if not bounded or operator is None or {operator, first.operator} != {LT, GT}:
            return None
        if joint.role == "not":
            joint.meaning = None
        return self._build_comparison(first.key, operator, value)

    def _is_one(self, place: int) -> bool:
        """Whether "one" or "a" is a figure: right before what is counted, "within one week" of a field of weeks."""
        counted = any(each.role in ("unit", "field") for each in self.tokens[place + 1 : place + 2])
        return counted and self._value_at(place) == 1 and is_figure(self.spec, self.tokens[place + 1].name)

    def _value_at(self, place: int) -> float | None:
        """The figure at a place; "a" is one behind words that compare: "longer than a week"."""
        token = self.tokens[place]
        bounded = any(each.role in BOUND_OPERATORS for each in self.tokens[max(0, place - 2) : place])
        return 1.0 if token.text.casefold() in word_set("one") and bounded else figure(token.text)

    def _is_of_time(self, place: int) -> bool:
        """Whether a figure counts days or years, which are no field: "2 years"."""
        return place + 1 < len(self.tokens) and self.tokens[place + 1].role in GRAINS

    def _field_before(self, place: int) -> str | None:
        """The figure that is named last before a number, with no other number between: "demand over 60"."""
        for token in reversed(self.tokens[max(0, place - 5) : place]):
            if figure(token.text) is not None:
                return None
            if token.role in ("field", "total") and is_figure(self.spec, token.name):
                return token.name
        return None

    def _number_of(self, place: int, value: float) -> str | None:
        """A number right before its field: "with 8 cylinders", "2.9 labour hours", and not "the top 3 sales"."""
        after = self.tokens[place + 1] if place + 1 < len(self.tokens) else None
        before = self.tokens[place - 1] if place else None
        if after is None or after.role != "field":
            return None
        name = after.name
        if value != int(value):
            return name if is_figure(self.spec, name) else None
        ranked = any(
            token.role in SUPERLATIVES | {"next", "ordinal"} for token in self.tokens[max(0, place - 2) : place]
        )
        words = vocabulary_of(self.spec, name)
        counted = not words.adds_up or (after.stem,) == stems(words.unit)  # "for 14 nights"
        whole = self.spec.fields.get(name) is FieldType.INTEGER and counted
        return name if whole and not ranked and before is not None else None

    def _may_be_of(self, place: int, name: str) -> bool:
        """Whether the unit behind a figure, if there is one, may be that of the field."""
        after = self.tokens[place + 1].meaning if place + 1 < len(self.tokens) else None
        if after is None or after.role != "unit":
            return True
        unit = vocabulary_of(self.spec, name).unit
        return not unit or unit == vocabulary_of(self.spec, after.name).unit

    def _field_behind(self, place: int, *, named: bool) -> str | None:
        """The field of the unit behind a figure, or, where `named`, the one that is named there."""
        after = self.tokens[place + 1].meaning if place + 1 < len(self.tokens) else None
        if (
            after is None
            or after.role not in ("unit", "field")
            or self.spec.fields.get(after.name) not in NUMBER_FIELDS
        ):
            return None
        if after.role == "field":
            return after.name if named else None
        figures = [name for name in self._fields("field", "total", "high", "low") if is_figure(self.spec, name)]
        unit = vocabulary_of(self.spec, after.name).unit
        same = [name for name in figures if vocabulary_of(self.spec, name).unit == unit]
        return same[0] if len(same) == 1 else self._usual_of_unit(unit) or after.name

    def _usual_of_unit(self, unit: str) -> str | None:
        """The figure with this unit that records of the kind go by: jobs over 500 euros by their total, not by a part of it."""
        kinds = [name for name in self._fields("kind") if name in self.spec.records] or [*self.spec.records]
        usual = dict.fromkeys(self.spec.records[name].by for name in kinds)
        meant = [name for name in usual if name is not None and vocabulary_of(self.spec, name).unit == unit]
        return meant[0] if len(meant) == 1 else None

    def _only_figure(self) -> str | None:
        """The one figure that is named, else that of the kind that is meant: "headphones under 100"."""
        named = [name for name in self._fields("field", "total", "high", "low") if is_figure(self.spec, name)]
        if named:
            return named[0] if len({*named}) == 1 else None
        if not any(token.stem in word_set("places") and token.role in _IMPLY for token in self.tokens):
            return None  # "more than 20" may be of anything
        kind = self.kind or self._kind_meant(RecordQuery(), self._values() or [])
        words = self.spec.vocabulary.items()
        alone = len(self.spec.records) == 1
        own = [name for name, each in words if kind and (alone or each.kind == kind) and is_measure(self.spec, name)]
        return own[0] if len(own) == 1 else None

    def _figure_of_noun(self, place: int) -> str | None:
        """The one figure that is called by the noun before a bound: the loan amount of "loans above 500"."""
        before = [each for each in self.tokens[:place] if each.role == "kind"]
        nouns = {each.stem for each in before[-1:]}
        named = [name for name in self.spec.fields if stems(name.replace("_", " "))[:1] == (*nouns,)]
        named = [name for name in named if is_measure(self.spec, name)]
        return named[0] if nouns and len(named) == 1 else None

    def _age_of_people(self, place: int, value: float) -> str | None:
        """The one field of ages, where people are "over 40", and nothing says of what that is."""
        called = ((name, (*vocabulary_of(self.spec, name).words, name)) for name in self.spec.fields)
        ages = [name for name, words in called if "age" in words and is_figure(self.spec, name)]
        told = any(each.is_left or each.meaning for each in self.tokens[place + 1 : place + 2])
        bounds = {*BOUND_OPERATORS, "between"}
        before = [each for each in self.tokens[:place] if (each.meaning or each.is_left) and each.role not in bounds]
        whom = before[-1:] or self.tokens[:1]
        return ages[0] if len(ages) == 1 and not told and value <= _OLDEST and self._is_person(whom[0]) else None

    def _is_person(self, token: Token) -> bool:
        """Whether a word is for people: "who", women or men, the field of people, or rows that are people."""
        kind = self.spec.records.get(token.name) if token.role == "kind" else None
        people = kind is not None and not {"person", "people"}.isdisjoint(kind.words)
        sex = token.role == "value" and token.stem in word_set("women_and_men")
        return people or sex or token.stem in word_set("who") or token.name == people_field(self.spec)

    def _build_comparison(self, name: str, operator: FilterOperator, value: float) -> MetadataFilter | None:
        whole = self.spec.fields.get(name) is FieldType.INTEGER
        if says_year(self.spec, name) and not _FIRST_YEAR <= value < _FIRST_YEAR + 2000:
            return None  # "over two years"
        if whole and value != int(value):
            return None
        return condition(name, operator, int(value) if whole else value)

    def _values(self) -> list[MetadataFilter] | None:
        """What values of fields are named; of one field any of them. None where they do not go together."""
        named: dict[str, list[str]] = {}
        other: dict[str, list[str]] = {}
        left_out, denied = self._values_left_out(), self._read_denied()
        if denied is None or not self._are_joined():
            return None
        for token in self.tokens:
            if token.meaning is None or token.role != "value":
                continue
            out = any(token is each for each in (*denied, *left_out))
            known = (other if out else named).setdefault(token.meaning.name, [])
            known += [value for value in (token.meaning.value, *token.also) if value not in known]
        for name, values in named.items():
            named[name] = [each for each in values if each != THERE] or values
        made = [
            [condition(name, NE)] if THERE in each else self._conditions(name, each) for name, each in named.items()
        ]
        for name, values in other.items():
            beside = {*named.get(name, ())}
            single = self.spec.all_fields[name] is not FieldType.TAGS and beside - {THERE}
            if beside & {*values} or not single:  # what has one value has no other one
                made.append(None if beside & {*values} else self._build_negation(name, values))
        return None if None in made else [each for some in made if some for each in some]

    def _are_joined(self) -> bool:
        """Whether values of one field stand together: "Theo or Mai", and not "Theo ... for Mai".

        And no record beside a value of others: "the brass lamp and walnut boards".
        """
        places = [place for place, token in enumerate(self.tokens) if token.role == "value"]
        titles = [place for place in places if self.tokens[place].name == "source_id"]
        if any({*places} & {*list_neighbours(self.tokens, place)} - {*titles} for place in titles):
            return False
        for first, second in pairwise(places):
            one, other = self.tokens[first].meaning, self.tokens[second].meaning
            if (
                one is None
                or other is None
                or one.name != other.name
                or one.value == other.value
                or one.name == "source_id"
            ):
                continue
            between = [token for token in self.tokens[first + 1 : second] if not token.inside]
            compared = any(
                token.stem in word_set("than") or (token.role == "more" and token.meaning and token.meaning.value)
                for token in between
            )
            joined = any(token.stem in word_set("joins") for token in between)  # "of Ada and of Bo"
            again = word_set("of_it") if joined else frozenset[str]()
            if any(token.role == "or" for token in between):  # "oder mit"
                again |= word_set("of_whom")
            if not compared and not all(
                token.stem in word_set("joins") | word_set("compares") | word_set("one") | again
                or token.role in ("or", "not", "own")
                for token in between
            ):
                return False
        return True

    def _build_negation(self, name: str, values: Sequence[str]) -> list[MetadataFilter] | None:
        """Neither of the values: "not trending" is 0 or less."""
        if THERE in values:
            return [condition(name, IS_EMPTY)] if len(values) == 1 else None
        if self.spec.all_fields[name] in (FieldType.KEYWORD, FieldType.UUID):
            return [condition(name, NE, value) for value in values]
        stated = self._conditions(name, values)
        if stated is None or self.spec.all_fields[name] not in NUMBER_FIELDS | {FieldType.BOOLEAN}:
            return None
        opposite = [condition(each.key, OPPOSITE[each.operator], each.value) for each in stated]
        if {each.operator for each in opposite} == {GTE, LTE} and len({each.value for each in opposite}) == 1:
            return [condition(name, EQ, opposite[0].value)]  # neither rising nor falling
        return opposite

    def _values_left_out(self) -> list[Token]:
        """The values before "left out" or "aside"."""
        meant = [token for token in self.tokens if token.meaning]
        return [before for before, token in pairwise(meant) if token.role == "left_out"]

    def _narrow_denied(self, denied: Sequence[Token]) -> bool:
        """Whether a value of another field says which ones are left out, which no filter says: "except Ada's late trips"."""
        for token in (each for each in denied if each.role == "value"):
            place = next(at for at, each in enumerate(self.tokens) if each is token)
            ahead = [each for each in self.tokens[place + 1 :] if not each.inside]
            between = [*takewhile(lambda each: each.role in ("", "kind", "field") and not each.parted, ahead)]
            behind = next(iter(ahead[len(between) :]), None)
            verb = any(each.stem in word_set("whether") | word_set("which_of") for each in between)
            if (
                behind is not None
                and behind.role == "value"
                and behind.name != token.name
                and not (verb or behind.parted)
            ):
                return True
        return False

    def _denied_values(self) -> set[Meaning]:
        denied = (*(self._read_denied() or ()), *self._values_left_out())
        return {token.meaning for token in denied if token.meaning is not None}

    def _conditions(self, name: str, values: Sequence[str]) -> list[MetadataFilter] | None:
        kind = self.spec.all_fields[name]
        written = [_CONDITION.fullmatch(value) for value in values]
        if kind in NUMBER_FIELDS and all(written):
            stated = [self._build_comparison(name, FilterOperator(each[1]), float(each[2])) for each in written if each]
            if len(stated) > 1 and {each and each.operator for each in stated} == {EQ}:
                return [condition(name, IN, [each.value for each in stated if each])]  # "of 2021 or 2022"
            return None if None in stated else [each for each in stated if each]
        if kind is FieldType.TAGS:
            return [condition(name, CONTAINS, value) for value in values]
        if kind is FieldType.BOOLEAN and len(values) == 1:
            return [condition(name, EQ, values[0] == "true")]
        if kind in (FieldType.KEYWORD, FieldType.UUID):
            return [condition(name, EQ, values[0]) if len(values) == 1 else condition(name, IN, values)]
        return None

    def _read_denied(self) -> list[Token] | None:
        """The values behind "not", with those that are joined to them: "except Ada and Bo", "not done or cancelled".

        None behind a mere "not" with "and", which may join what is denied to what is not.
        """
        denied, link, joined, field = list[Token](), None, False, ""
        for place, token in enumerate(self.tokens):
            if token.parted and link is not None and denied and not joined:
                joined = self._lists_on(place, denied[-1].name)
                if not joined and token.role == "value" and token.name == denied[-1].name:
                    return None  # "except Ada, Bo"
            if token.role == "not":
                link, joined, field = token, True, ""  # "neither Ada's nor late": each may be of a field of its own
            elif token.role == "kind" and link is not None and not denied and self._denies_any(link):
                continue  # "never had a trip that was late"
            elif token.role == "value" and link is not None and joined:
                if field not in ("", token.name):
                    link = None
                    continue
                denied.append(token)
                field = token.name
                joined = False
            elif token.role == "or" or (token.stem in word_set("joins") and not token.inside):
                apart = link is not None and not joined and token.role != "or"
                if apart and link is not None and not self._is_exception(link) and self._joins_values(token):
                    return None
                joined = link is not None
            elif not token.inside and (token.meaning is not None or token.is_left or not joined):
                link, joined = None, False
        excepts = any(token.role == "not" and self._is_exception(token) for token in self.tokens)
        return None if excepts and (self._narrow_denied(denied) or self._may_begin_again(denied)) else denied

    def _denies_any(self, link: Token) -> bool:
        """Whether there is no record of a kind with a value: "who never had a late trip", "who has no trip with Ada"."""
        place = next(at for at, token in enumerate(self.tokens) if token is link)
        behind = [token.role for token in self.tokens[place + 1 :] if token.meaning]
        asks = any(token.stem in word_set("who") | word_set("which") for token in self.tokens[:place][:3])
        return asks and behind[:2] == ["kind", "value"] and not self._is_exception(link)

    def _is_exception(self, link: Token) -> bool:
        """Whether a word leaves out all that is listed behind it: "except", "not counting", and no mere "not"."""
        place = next(at for at, token in enumerate(self.tokens) if token is link)
        counted = any(
            token.inside and token.stem in word_set("counted") for token in self.tokens[place + 1 : place + 2]
        )
        return link.stem in word_set("excepts") or counted

    def _may_begin_again(self, denied: Sequence[Token]) -> bool:
        """Whether the rest of a list may be what is asked about: "leaving out Ada, Bo and Cy had how many trips"."""
        listed = self.tokens[0].role == "not" and any(token.parted for token in denied[1:])
        place = next((at for at, token in enumerate(self.tokens) if denied and token is denied[-1]), 0)
        behind = next((token for token in self.tokens[place + 1 :] if not token.inside), None)
        return listed and behind is not None and not behind.parted

    def _lists_on(self, place: int, name: str) -> bool:
        """Whether values of a field, with commas between them, end with "and" or "or" and one more of them."""
        last = word_set("lists")
        values = [token for token in self.tokens[place:] if not (token.inside or token.stem in word_set("one"))]
        listed = [*takewhile(lambda each: each.role == "value" and each.name == name, values)]
        behind = values[len(listed) : len(listed) + 2]
        ended = (
            len(behind) == 2
            and (behind[0].stem in last or behind[0].role == "not")
            and (behind[1].role, behind[1].name) == ("value", name)
        )
        return ended and all(token.parted for token in listed[1:])

    def _joins_values(self, link: Token) -> bool:
        """Whether a word stands between two values of one field."""
        place = next(at for at, token in enumerate(self.tokens) if token is link)
        before, behind = (
            next((token for token in side if token.meaning), None)
            for side in (reversed(self.tokens[:place]), self.tokens[place + 1 :])
        )
        return (
            before is not None
            and behind is not None
            and before.role == behind.role == "value"
            and before.name == behind.name
        )

    def _is_positive(self) -> bool:
        """Whether "not" stands before values alone, and "or" between values of one field."""
        meant = [token for token in self.tokens if token.meaning]
        for place, token in enumerate(meant):
            before, after = meant[place - 1 : place], meant[place + 1 : place + 2]
            if token.role == "or" and after and after[0].role == "own":
                after = meant[place + 2 : place + 3]  # "our ring or our band"
            if token.role == "not" and self._denies_any(token):
                after = meant[place + 2 : place + 3]
            if token.role == "left_out" and not (before and before[0].role == "value" and not token.parted):
                return False
            if token.role == "not" and token.stem in word_set("but"):
                everything = any(each.stem in word_set("all") for each in self.tokens[: self.tokens.index(token)])
                if after and after[0].role == "value" and not everything:
                    return False  # "over 20 but by Ada" is no exception
                continue
            if token.role == "not" and not (after and after[0].role == "value"):
                return False
            weekdays = {each.role for each in (*before, *after)} == {"on_weekday"}
            if token.role == "or" and before and after and (weekdays or before[0].meaning == after[0].meaning):
                continue  # "which barber or stylist", "on Fridays or Saturdays"
            fields = {each.name if each.role == "value" else "" for each in (*before, *after)}
            if token.role == "or" and (len(before) + len(after) < 2 or "" in fields or len(fields) > 1):
                return False
        return True

    def _meanings_with(self, *roles: str) -> list[Meaning]:
        return [token.meaning for token in self.tokens if token.meaning is not None and token.role in roles]

    def _has(self, role: str) -> bool:
        return bool(self._meanings_with(role))

    def _fields(self, *roles: str) -> list[str]:
        return [*dict.fromkeys(each.name for role in roles for each in self._meanings_with(role))]

    def _kind_meant(self, query: RecordQuery, conditions: Sequence[MetadataFilter]) -> str | None:
        """The kind that is meant where none is named: that of the figure, else of the fields, where they agree."""
        others = {query.group, *self.keys, *(each.key for each in conditions)}
        for names in {query.order, query.of}, {*self.figures}, others:
            kinds = {kind for name in names if (kind := vocabulary_of(self.spec, name).kind) is not None}
            if kinds:
                return self._kind_with(kinds.pop(), others) if len(kinds) == 1 else None
        return self._only_kind()

    def _kind_with(self, name: str, fields: Collection[str | None]) -> str | None:
        """The kind, or the one that has a field of the conditions which records of this kind lack."""
        lacking = {*fields} & {*self.spec.records[name].lacks}
        others = [each for each, kind in self.spec.records.items() if lacking & {*kind.having}]
        return name if not lacking else others[0] if len(others) == 1 else None

    def _only_kind(self) -> str | None:
        return next(iter(self.spec.records)) if len(self.spec.records) == 1 else None


def _phrase_of(tokens: Sequence[Token], place: int) -> Token:
    """The first word of the phrase that a word is in."""
    return next(token for token in reversed(tokens[: place + 1]) if not token.inside)


def kind_conditions(kind: Kind) -> tuple[MetadataFilter, ...]:
    """What a record of a kind is: of one of its types, without the fields that it lacks."""
    return condition("source_type", IN, kind.source_types), *(condition(name, IS_EMPTY) for name in kind.lacks)


def is_presence(each: MetadataFilter) -> bool:
    """Whether a condition is that a field is there, whatever it is."""
    return each.operator is NE and each.value is None


def filter_of(each: MetadataFilter, spec: IndexSpec) -> MetadataFilter | MetadataFilters | None:
    """A condition as a filter; none of a field that has only to be there. Of what 0 is as good as none of, that is none."""
    nothing = counts_zero_as_none(spec, each.key)
    if is_presence(each):
        return condition(each.key, GT, 0) if nothing else None
    return or_missing(condition(each.key, EQ, 0)) if nothing and each.operator is IS_EMPTY else each


def condition_text(each: MetadataFilter, spec: IndexSpec) -> str:
    """What a condition says in words: "customer 58", "price below 10". A figure is called as people call it.

    >>> spec = IndexSpec(name="notes", source_types=("note",), default_source_type="note", fields={"customer_id": "integer"})
    >>> condition_text(condition("customer_id", "==", 58), spec)
    'customer 58'
    """
    name, kind, words = (
        each.key.removesuffix("_id").replace("_", " "),
        spec.fields.get(each.key),
        vocabulary_of(spec, each.key),
    )
    is_word = kind is FieldType.TAGS or name in (*words.words, *words.values.get("true", ()))
    if kind is not None and not goes_by(each.key) and (kind in NUMBER_FIELDS or not is_word):
        name = name_field(spec, each.key)  # "district" of a field `dist`
    if is_presence(each) or each.operator is IS_EMPTY:
        several = name.endswith("s") or (kind is FieldType.INTEGER and words.adds_up)  # "leaks", "children"
        if not several and counts_things(spec, each.key):
            return f"{name} {'0' if each.operator is IS_EMPTY else 'above 0'}"
        article = "no " if each.operator is IS_EMPTY else "" if several else "an " if name[:1] in "aeiou" else "a "
        return f"{article}{name}"
    values = each.value if isinstance(each.value, list) else [each.value]
    shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    if kind is FieldType.BOOLEAN and each.operator is NE and shown == ["True"]:
        return f"not {name}"
    shown = [{"True": "yes", "False": "no"}.get(value, value) for value in shown]
    shown = [f"“{value}”" if value.startswith("not ") and each.operator is NE else value for value in shown]
    return f"{name} {_SIGNS.get(each.operator, '')}{' or '.join(shown)}"


OPPOSITE = {LT: GTE, GTE: LT, GT: LTE, LTE: GT, EQ: NE, NE: EQ}
_SIGNS = {LT: "below ", GT: "above ", LTE: "at most ", GTE: "at least ", NE: "not "}
