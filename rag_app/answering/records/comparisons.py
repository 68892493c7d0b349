"""What a question sets against each other: two values, a figure and a bound, one thing and all of them."""

from collections.abc import Sequence
from itertools import pairwise

from llama_index.core.vector_stores.types import MetadataFilter
from msgspec.structs import replace

from rag_app.answering.records.conditions import BOUND_OPERATORS, Conditions
from rag_app.answering.records.plans import Contest
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Meaning,
    Token,
    figure,
    is_figure,
    only_figure,
    people_field,
    price_field,
    vocabulary_of,
    word_set,
)
from rag_app.domain import FieldType
from rag_app.retrieval.filters import EQ
from rag_app.retrieval.periods import Period
from rag_app.retrieval.records import Aggregate, Grain, NamedValue, RecordQuery

NAME_TYPES = frozenset({FieldType.KEYWORD, FieldType.UUID})
_OF_ANY = frozenset({"a", "any", "every", "each", "or", "and", "jedem", "jeden", "oder", "und"})  # before a weekday
_BETTER = {"better": "best", "worse": "worst"}


class ComparisonReader(Conditions):
    """What of a question's words compares. It is a part of what reads the question (planning.py), which sets what is declared
    here."""

    comparing: bool
    named: Sequence[NamedValue]
    period: Period | None

    def _bound_asked(
        self, query: RecordQuery, compared: Sequence[MetadataFilter], values: Sequence[MetadataFilter]
    ) -> MetadataFilter | None:
        """The figure that something named is to be above or below: "did A sell more than 30?"."""
        plain = query.aggregate is query.group is None and len(compared) == 1 and self._asks_whether()
        named = values and all(each.operator is EQ and isinstance(each.value, str) for each in values)
        if not (plain and named) or self._is_hedged() or {*self.figures} - {compared[0].key}:
            return None
        return compared[0] if compared[0].operator in BOUND_OPERATORS.values() else None

    def _every_asked(
        self, query: RecordQuery, compared: Sequence[MetadataFilter], values: Sequence[MetadataFilter]
    ) -> MetadataFilter | None:
        """What all records are to be, where yes or no is asked of all of them: "has Ada paid all her bills?"."""
        meant = [token for token in self.tokens if token.meaning]
        every = next((place for place, token in enumerate(meant) if token.role == "all"), None)
        plain = query.aggregate is query.group is query.order is None and not (self.named or self._has("not"))
        is_so = [each for each in values if self.spec.all_fields[each.key] is FieldType.BOOLEAN]
        if not is_so and every is not None:  # "paid all his orders", of a status
            said = [token.meaning for token in (*meant[-1:], *meant[:every]) if token.role == "value"][-1:]
            is_so = [
                each for each in values if each.operator is EQ and Meaning("value", each.key, str(each.value)) in said
            ]
        if not (self._asks_whether() and plain) or compared or len(is_so) != 1:
            return None
        if every is None:
            return is_so[0] if self._asks_of_one(is_so[0].key, values) else None
        first = self.tokens[0].stem in word_set("is") and self.tokens[1].role == "all"
        ended = meant[-1].name == is_so[0].key and meant[-1].role == "value"
        before = not any(token.role == "value" for token in meant[every:])
        return is_so[0] if before or (first and ended) else None

    def _asks_who_never(self) -> bool:
        """Whether those are asked for that have no record with what is denied: "who never had a late one?"."""
        places = [place for place, token in enumerate(self.tokens) if token.role == "not"]
        counts = self._has("count") and bool(self.keys) and not self.figures
        asked = counts or (self._asks_which() and not self._has("count"))
        if not places or not self._denies_alike(places) or not asked or any(map(self._has, ("more", *SUPERLATIVES))):
            return False
        link, behind = self.tokens[places[0]], [each for each in self.tokens[places[0] + 1 :] if not each.inside]
        had = any(each.stem in word_set("had") for each in behind[:2])  # "has not had a"
        none = link.stem in word_set("lacks") and self.tokens[places[0] - 1].stem in word_set("has")
        of_whom = bool(self.keys) or self.tokens[0].stem in word_set("who")
        return of_whom and (link.stem in word_set("never") or had or none or self._denies_any(link))

    def _denies_alike(self, places: Sequence[int]) -> bool:
        """Whether each "not" but the last is joined to the next by one value of one field: "neither a late one nor a lost one"."""
        between = [[each for each in self.tokens[one:other] if each.meaning] for one, other in pairwise(places)]
        fields = {each.name for each in self._denied_values()}
        said = ([each.role for each in some if each.role != "kind"] for some in between)
        return len(fields) < 2 and all(roles == ["not", "value"] for roles in said)

    def _group_without(self) -> str | None:
        """The field whose values those are."""
        who = self.tokens[0].stem in word_set("who")
        keys = self.keys or [name for name in [people_field(self.spec)] if who and name is not None]
        denied = {each.name for each in self._denied_values()}
        return keys[0] if len(keys) == len(denied) == 1 and keys[0] not in denied else None

    def _is_hedged(self) -> bool:
        return any(token.stem in word_set("hedges") for token in self.tokens if token.meaning is None)

    def _asks_of_one(self, holds: str, values: Sequence[MetadataFilter]) -> bool:
        """Whether it is asked of one who is named if a field holds: "has Ada paid?", "is Ada's bill paid?", but not "a bill"."""
        meant = [token for token in self.tokens if token.meaning and not token.inside]
        others = [each for each in values if each.key != holds]
        named = len(others) == 1 and others[0].operator is EQ and self.spec.all_fields[others[0].key] in NAME_TYPES
        any_of = any(token.text.casefold() in word_set("some") for token in self.tokens)
        said = {token.role for token in meant} <= {"value", "kind", "own"} and meant[0].name != holds
        several = any(token.role == "kind" and token.text.casefold() != token.stem for token in meant)
        return named and said and not (any_of or several)

    def _asks_whether(self) -> bool:
        """Whether yes or no is to be told, and of nothing else."""
        begun = bool(self.tokens) and self.tokens[0].text.casefold() in word_set("whether")
        return begun and not (self._has("or") or self._asks_which())

    def _settle_comparatives(self) -> None:
        """ "Cheaper than" something that is named, and no figure, compares the two; so does "more demand than" between them.

        "Which one is cheaper?" asks for the cheapest.
        """
        rivals = self._rivals()
        for before, token in pairwise(self.tokens):
            counted = rivals and token.is_left and figure(token.text) == len(rivals)
            if counted and before.stem in word_set("partitive") | {"these"}:
                token.said = True  # "which of the two"
            if before.role == "value" and token.role == "field" and before.name == token.name and rivals:
                token.meaning, token.inside = None, True  # "a Microsoft share"
        if any(figure(token.text) is not None for token in self.tokens if token.is_left):
            return
        thans = [place for place, each in enumerate(self.tokens) if each.stem in word_set("than")]
        if len(thans) == 1 and self._has("more") and len({*self._meanings_with("on_weekday")}) == 2:
            self.tokens[thans[0]].meaning, self.tokens[thans[0]].said = None, True  # "is Friday busier than Saturday"
        if len(rivals) < 2:
            if self._asks_which() and not (self.named or self.comparing or thans):
                self._settle_which_has_more()
            return
        for place, token in enumerate(self.tokens):
            if token.role in ("over", "under") and (token.name or self._is_between(place, rivals)):
                token.meaning = Meaning("more", token.name, "less" if token.role == "under" else "than")
            elif self._asks_which() and token.role in ("most", "least") and not (self._has("each") or thans):
                self._settle_most_of(token, rivals)
            elif token.role == "more" and token.meaning and len(thans) == 1 and place < thans[0]:
                than = self.tokens[thans[0]]
                if not than.inside and self._is_between(thans[0], rivals):
                    token.meaning = Meaning("more", token.name, "less" if _says_less(token) else "than")
                    than.meaning, than.said = None, True
        self._settle_sameness(rivals)

    def _settle_most_of(self, token: Token, rivals: Sequence[Meaning]) -> None:
        """ "Which of A, B and C has the fewest?" compares all of them: one of which nothing is recorded may be it."""
        place = next(at for at, each in enumerate(self.tokens) if each.meaning in rivals)
        apart = self.tokens[place].parted or self.tokens[place - 1].stem in word_set("partitive")
        field = rivals[0].name
        adds_up = {*self.keys} <= {field} and all(vocabulary_of(self.spec, name).adds_up for name in self.figures)
        single = any(each.role == "single" for each in token.others)
        if apart and adds_up and field != "source_id" and not single:
            token.meaning = Meaning("more", "", "less" if token.role == "least" else "than")

    def _settle_sameness(self, rivals: Sequence[Meaning]) -> None:
        """ "Do A and B cost the same?", "does A cost as much as B?": the only values are compared, to be told yes or no."""
        if len(rivals) < 2 or not self._asks_whether() or self._has("more"):
            return
        for place, token in enumerate(self.tokens):
            behind = [each for each in self.tokens[place + 1 :] if not each.inside]
            first = behind[0] if behind else None
            number = first is not None and first.role == "count" and first.stem in word_set("numbers_of")
            ends = first is None or number or first.stem in ("as", "to", "amount") or is_figure(self.spec, first.name)
            alike = token.stem in word_set("alike") and ends
            again = next((at for at in range(place + 2, len(self.tokens)) if self.tokens[at].stem == "as"), None)
            of_much = first is not None and (first.stem in ("much", "many") or first.role in ("high", "low"))
            as_much = token.stem == "as" and of_much and again is not None and self._is_between(again, rivals)
            if token.inside or token.meaning is not None or first is token or not (alike or as_much):
                continue
            adjective = first is not None and first.role in ("high", "low")
            token.meaning, token.said = Meaning("more", first.name if first and adjective else "", "same"), True
            if first is not None and (number or adjective):
                first.meaning = None
            return

    def _settle_which_has_more(self) -> None:
        """ "Which is cheaper?" asks for the cheapest, "which has more of it?" for the one with the most."""
        for token in self.tokens:
            if token.meaning is not None and token.role == "more" and token.meaning.value != "same":
                less = _says_less(token)
                bare = _BETTER.get(token.stem, "least" if less else "most")
                role = bare if not token.name else "low" if less else "high"
                token.meaning = Meaning(role, token.name)

    def _is_between(self, place: int, rivals: Sequence[Meaning]) -> bool:
        """Whether a word stands between the only two values, in a question that asks for no others: "which sell more than ..."."""
        sides = [{token.meaning for token in side} & {*rivals} for side in (self.tokens[:place], self.tokens[place:])]
        others = self._asks_which() or self._has("count") or self._has("much")
        return [len(side) for side in sides] == [1, 1] and len(rivals) == 2 and not others

    def _sets_own_apart(self) -> bool:
        """Whether one's own and those of others are both spoken of: "our listings against those of our rivals"."""
        meant = [token for token in self.tokens if token.meaning]
        others = [
            token.role == "value" and vocabulary_of(self.spec, token.meaning.name).own
            for token in meant
            if token.meaning
        ]
        own = [place for place, token in enumerate(meant) if token.role == "own"]
        return any(others) and any(not any(others[place + 1 : place + 2]) for place in own)

    def _compared_figure(self, query: RecordQuery | None) -> RecordQuery | None:
        """One figure for each period; of records that are only named, their number."""
        if self._has("more") and (of := self._figure_compared()) is not None:
            return self._measure(of)  # "was it wetter in 2012 or in 2013"
        if query is not None and query.aggregate is None and self.kind is not None and not self.figures:
            return RecordQuery(aggregate=Aggregate.COUNT)  # "bookings in January as against February"
        if query is not None and query.aggregate is None and len(self.figures) == 1:
            added = vocabulary_of(self.spec, self.figures[0]).adds_up
            return RecordQuery(aggregate=Aggregate.SUM if added else Aggregate.AVERAGE, of=self.figures[0])
        return query if query is not None and query.aggregate is not None and query.group is None else None

    def _compares_values(self) -> bool:
        """Whether one of two values is asked for, by one figure: "does A or B have more demand", "is A or B cheaper"."""
        joined = self._has("or") or self._has("apart") or any(each.value for each in self._meanings_with("more"))
        rivals = self._rivals()
        joined |= any(
            of.stem in word_set("partitive")
            and token.meaning in rivals
            and (lead is None or lead.stem in word_set("which"))
            for lead, of, token in zip((None, *self.tokens), self.tokens, self.tokens[1:], strict=False)
        )  # "which of A and B"
        counted = (
            self._has("more")
            and self.kind is not None
            and not self.figures
            and rivals
            and rivals[0].name in self.spec.fields
        )
        with_who = any(token.stem in word_set("who") for token in self.tokens[:3]) and any(
            one.stem in word_set("with") and other.meaning in rivals for one, other in pairwise(self.tokens)
        )  # "who has more bookings with A or B" is none of the two
        return (
            bool(rivals)
            and joined
            and not with_who
            and not any(token.also for token in self.tokens if token.meaning in rivals)
            and (bool(counted) or (self._figure_compared() is not None and not self._has("count")))
        )

    def _figure_compared(self) -> str | None:
        """The one figure of which there is more or less."""
        named = {*self.figures, *(each.name for each in self._meanings_with("more") if each.name)}
        named = named or {*filter(None, [None if self.kind else only_figure(self.spec)])}  # "who was higher, A or B"
        return named.pop() if len(named) == 1 else None

    def _rivals(self) -> list[Meaning]:
        """The values of the one field of which several are named."""
        denied = self._denied_values()
        named = [each for each in dict.fromkeys(self._meanings_with("value")) if each not in denied]
        several = [each for each in named if sum(other.name == each.name for other in named) > 1]
        alike = len({each.name for each in several}) == 1 and self.spec.all_fields[several[0].name] in NAME_TYPES
        return several if alike else []

    def _larger_of_values(self) -> RecordQuery:
        """The values by their total, or mean of what does not add up, of the figure, the larger one first."""
        rivals, of, least = self._rivals(), self._figure_compared(), self._way_compared() == "less"
        if rivals[0].name == "source_id":
            return RecordQuery(order=of, descending=not least, limit=len(rivals))
        return replace(self._measure(of), group=rivals[0].name, descending=not least, limit=len(rivals))

    def _compares_weekdays(self) -> bool:
        """Whether one of two or more weekdays is asked for: "are we busier on Fridays or Saturdays"."""
        days = {*self._meanings_with("on_weekday")}
        joined = any(map(self._has, ("or", "apart"))) or any(token.stem in word_set("than") for token in self.tokens)
        return len(days) > 1 and joined and not self._rivals() and len(self.figures) < 2

    def _names_next_days(self) -> bool:
        """Whether days of one week may be meant, and no weekdays: "on Monday or Tuesday", but not "on a Monday"."""
        pairs = pairwise(token for token in self.tokens if not token.inside)
        named = [(before, each) for before, each in pairs if each.role == "on_weekday"]
        single = [before for before, each in named if each.text.casefold().endswith(("day", "tag"))]
        return (
            len(named) > 1
            and any(before.text.casefold() not in _OF_ANY for before in single)
            and not (self._has("more") or self._has("apart") or self._has("each"))
        )

    def _larger_of_weekdays(self) -> RecordQuery:
        """The weekdays by what is compared, the one with more of it first."""
        of = self._figure_compared() if self.figures or any(each.name for each in self._meanings_with("more")) else None
        least = self._way_compared() == "less"
        return replace(self._measure(of), group="date", grain=Grain.WEEKDAY, descending=not least, limit=7)

    def _measure(self, of: str | None) -> RecordQuery:
        """The total of a figure, or the mean of what does not add up; without one the number of records."""
        each = any(meaning.name for meaning in self._meanings_with("more"))  # "dearer" is of one
        spent = self._has("total") or any(token.stem in word_set("spends") for token in self.tokens)
        each |= of is not None and of == price_field(self.spec) and not spent  # "costs more"
        added = vocabulary_of(self.spec, of).adds_up and not each
        way = Aggregate.COUNT if of is None else Aggregate.SUM if added else Aggregate.AVERAGE
        return RecordQuery(aggregate=way, of=of)

    def _way_compared(self) -> str:
        """Whether there is to be "more", "less" or the "same" of what is compared; "" where nobody can tell."""
        best = vocabulary_of(self.spec, self._figure_compared()).best
        good = {"better": best, "worse": best and ("low" if best == "high" else "high")}
        ways = set()
        for token in self.tokens:
            if token.meaning is None or token.role != "more":
                continue
            named = token.meaning.value if token.meaning.value == "same" else "less" if _says_less(token) else "more"
            ways.add({"high": "more", "low": "less"}.get(good[token.stem] or "", "") if token.stem in good else named)
        return ways.pop() if len(ways) == 1 else ""

    def _contest(self) -> Contest | None:
        """What is set against each other, where the words say which way."""
        way, rivals = self._way_compared(), self._rivals()
        if way == "" or (bool(rivals) == self.comparing) or (way == "same" and len(rivals) < 2):
            return None
        words = [token.stem for token in self.tokens]
        if self.comparing and self.period is not None:
            words = self.period.said.casefold().split()
        thans = [place for place, word in enumerate(words) if word in word_set("than")]
        if thans and len(rivals) > 2:
            return None  # than both, than all together
        against = len(thans) == 1 and (self.comparing or self._is_between(thans[0], rivals))
        plain = (against or (way == "same" and not thans)) and not (self._has("or") or "or" in words)
        said = {token.stem for token in self.tokens if token.meaning is None and not token.inside}
        as_much = any(token.role == "more" and token.stem == "as" for token in self.tokens)  # which may be more
        hedged = as_much or bool(said & word_set("hedges"))
        claims = plain and not hedged and (way == "same" or len(rivals) in (0, 2))
        return Contest(tuple(each.value for each in rivals), way, claims, self._has("apart"))

    def _asks_which(self) -> bool:
        """Whether one of several is asked for at the beginning: "which pool", "who"."""
        return any(token.stem in word_set("which") | word_set("who") for token in self.tokens[:3])


def _says_less(token: Token) -> bool:
    """Whether a comparative asks for less: "fewer", "cheaper"."""
    return token.stem in word_set("less") or (token.meaning is not None and token.meaning.value == "less")
