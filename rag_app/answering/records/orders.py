"""What a question puts in order or into groups: the most, the first of each, one figure for each month."""

from collections.abc import Sequence
from itertools import pairwise, takewhile

from msgspec.structs import replace

from rag_app.answering.records.asking import NAMES_OF_FIELDS
from rag_app.answering.records.comparisons import ComparisonReader
from rag_app.answering.records.conditions import GRAINS
from rag_app.answering.records.settling import doers
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Meaning,
    Token,
    figure,
    goes_by,
    is_figure,
    only_figure,
    people_field,
    vocabulary_of,
    word_set,
    year_field,
)
from rag_app.domain import FieldType
from rag_app.retrieval.records import Aggregate, Grain, RecordQuery

MOST_LISTED, MOST_RANKED, MOST_GROUPS, MOST_TOLD = 12, 10, 24, 5


class OrderReader(ComparisonReader):
    """What of a question's words ranks or groups. It is a part of what reads the question (planning.py), which sets what is
    declared here."""

    group: str | None
    grain: Grain | None
    in_turn: str | None
    unsaid: list[Token]
    levels: tuple[str, ...]
    dated: str | None

    def _counts_in_time(self) -> bool:
        """Whether a number of that kind is one in the order of days: "Ada's second trip", of a kind that is told with its day."""
        dated = self.kind is not None and any("{date" in each for each in self.spec.records[self.kind].sentence)
        meant = [token for token in self.tokens if token.meaning is not None]
        kinds = any(one.role == "ordinal" and other.role == "kind" for one, other in pairwise(meant))
        return dated and kinds and not any(map(self._has, SUPERLATIVES))

    def _aggregate_over(self, aggregate: Aggregate, of: str | None) -> RecordQuery:
        """Over all records, or for each group: groups of time in their order, others the largest first."""
        return RecordQuery(
            aggregate=aggregate,
            of=of,
            group=self.group,
            grain=self.grain,
            limit=MOST_GROUPS if self.group else 5,
            order=self.group if self.grain else None,
            descending=self.grain is None,
        )

    def _orders(self) -> list[tuple[str, bool]] | None:
        """What "cheapest", "most", "best" and "latest" order by, and whether the largest comes first.

        The field is "" where it is still to be found; None where nobody can tell.
        """
        ways = [(name, True) for name in self._fields("high")] + [(name, False) for name in self._fields("low")]
        if self._has("worst") and ways:  # "the poorest opportunity"
            ways = [(name, False) for name, high in ways if high and vocabulary_of(self.spec, name).best == "high"]
            if not ways:
                return None
        if self._has("best") and any(not high and vocabulary_of(self.spec, name).best == "high" for name, high in ways):
            return None  # "our best and worst seller"
        by = self._ordered_field()
        for role, descending in ("most", True), ("least", False):
            if self._has(role) and not ways:
                ways.append((by, descending))
        for role, good in ("best", True), ("worst", False):
            if self._has(role) and not ways:
                kind = self.spec.records.get(self.kind or self._only_kind() or "")
                by = by or (kind.by if kind is not None and not self.figures else None) or ""
                own = kind is not None and kind.by == by
                best = vocabulary_of(self.spec, by).best or ("high" if own else None)
                if not by or best is None:
                    return None
                ways.append((by, (best == "high") == good))
        year = year_field(self.spec)
        if (
            year
            and any(map(self._has, ("newest", "oldest")))
            and any(each.name == year for each in self._meanings_with("value"))
        ):
            return None  # the last of one year
        by_time = self.dated or year or "date"
        ways += [(by_time, descending) for role, descending in (("newest", True), ("oldest", False)) if self._has(role)]
        ways += [("date", False)] if self._counts_in_time() or self.in_turn else []
        return list(dict.fromkeys(ways))

    def _ordered_field(self) -> str:
        if len(self.figures) == 1:
            return self.figures[0]
        units = [name for name in self._fields("unit") if is_figure(self.spec, name)]
        if len(units) == 1 and not self.figures and self._words_for_once():
            return units[0]  # "the most in one go, in pounds"
        own = self.spec.records[self.kind].by if self.kind else None
        alone = only_figure(self.spec) if self._is_of_one() else None  # "the lowest quote"
        return own or alone or "" if not self.figures else ""

    def _key_ranked(self) -> str | None:
        """The field whose values are ranked by what "by" names: "our biggest client by revenue", "by number of jobs"."""
        plain = [token for token in self.tokens if not token.inside and (token.meaning or not figure(token.text))]
        places = [
            place
            for place, (one, other) in enumerate(pairwise(plain))
            if one.role in SUPERLATIVES and other.role == "field" and other.name in self.keys
        ]
        by = {token.stem for token in plain[places[0] + 2 :]} & word_set("prepositions") if places else ()
        return plain[places[0] + 1].name if by else None

    def _rank_groups(self, key: str, ways: Sequence[Aggregate]) -> RecordQuery | None:
        """The values of a field by the one figure that is named, or by the number of their records."""
        of = next(iter(self.figures), None)
        counted = any(token.stem in word_set("numbers_of") for token in self.tokens)
        if len(self.figures) > 1 or len(ways) > 1 or (of is None and not counted):
            return None
        adds_up = of is None or vocabulary_of(self.spec, of).adds_up
        way = Aggregate.COUNT if of is None else ways[0] if ways else Aggregate.SUM if adds_up else Aggregate.AVERAGE
        falls = not any(map(self._has, ("least", "low", "worst")))
        self.group = key
        return replace(self._aggregate_over(way, of), descending=falls, limit=self._number_wanted() or 1)

    def _extreme(self, name: str, descending: bool) -> RecordQuery | None:
        """One record, or one group: which stylist has the most bookings, which year the most rain."""
        wanted = self._number_wanted()
        several = MOST_TOLD if self._ranks_a_plural() else 1
        record = RecordQuery(order=name or None, descending=descending, limit=wanted or several)
        if self.group is not None and self.grain is None and name and self._is_first_of_each(name):
            return replace(record, group=self.group, limit=MOST_GROUPS)
        group, grain = (self.group, self.grain) if self.group else self._subject(name)
        counted = self._numbered_group() if group is None else None
        group, name = (counted, "") if counted is not None else (group, name)
        largest = self._has("most") or self._has("least") or grain is not None
        who = next((token for token in self.tokens[:2] if token.stem in word_set("whose")), None)
        extreme = self._has("most") or self._has("least")
        if who is not None and who.stem in word_set("who") and group is grain is None and self._counts_kind():
            group, name = self._who_did(), ""  # "who has the most lots", where nobody may know whose they are
        elif who is not None and who.stem in word_set("who") and group is grain is None and not name and self._visits():
            group = people_field(self.spec)  # "who came in most often"
        elif self._rows_are_people():
            pass
        elif who and extreme and group is None and grain is None and name and vocabulary_of(self.spec, name).adds_up:
            spends = any(token.stem in word_set("spends") | word_set("owes") for token in self.tokens)
            once = bool(self._words_for_once())
            group = people_field(self.spec) if spends and not once else None
            if group is None and not once:
                who.said = False  # who brought in the most: nobody knows whose field
                self.unsaid.append(who)
                return None
        if group is None or not largest:
            return record if name else None
        by_group = replace(record, order=None, group=group, grain=grain, limit=wanted or 1)
        often = any(
            token.text.casefold() in word_set("often") for token in self.tokens
        )  # "who pays in cash most often"
        if often or not name or (self.kind and not self.figures and name == self.spec.records[self.kind].by):
            said = not often and name in self._fields(
                "high", "low"
            )  # "in which month did they sell best" is no number of records
            levels = any(token.stem in word_set("levels") for token in self.tokens)
            said |= levels and not (self._has("kind") or self._has("count"))  # "the lowest of the five stocks", by what
            return None if said else replace(by_group, aggregate=Aggregate.COUNT)
        if vocabulary_of(self.spec, name).adds_up and not self._is_of_one():
            return replace(by_group, aggregate=Aggregate.SUM, of=name)
        return record if grain is None else None

    def _numbered_group(self) -> str | None:
        """The field of whole numbers of which the one with the most records is asked for: "which year has the most trips"."""
        asked = next((token for token in self.tokens if token.meaning), None)
        which = any(token.stem in word_set("which_of") for token in self.tokens[:2])
        whole = asked is not None and asked.role == "field" and self.spec.fields.get(asked.name) is FieldType.INTEGER
        return asked.name if asked is not None and which and whole and self._counts_kind() else None

    def _counts_kind(self) -> bool:
        """Whether "most" stands before what is counted: "the most trips", "the fewest late trips"."""
        plain = [token for token in self.tokens if token.meaning and token.role != "value"]
        return any(
            one.role in ("most", "least") and other.role == "kind" and other.text.casefold() != other.stem
            for one, other in pairwise(plain)
        )

    def _visits(self) -> bool:
        """Whether a verb says what customers do: "who cancels most"."""
        known = self.kind is not None or len(self.spec.records) == 1 or self._has("value")
        come = [token for token in self.tokens[1:3] if token.stem in word_set("visits")]
        return bool(come) or (known and any(token.role in ("kind", "value") for token in self.tokens[1:3]))

    def _rows_are_people(self) -> bool:
        """Whether each record is a person: then "who" asks for a record."""
        kind = self.spec.records.get(self.kind or self._only_kind() or "")
        return kind is not None and any(word in ("person", "people") for word in kind.words)

    def _who_did(self) -> str | None:
        """The field of those whom "who" asks for: by what they did, else the index's one field of people."""
        acting = doers(self.tokens, self.spec)
        return acting.pop() if len(acting) == 1 else None if acting else people_field(self.spec)

    def _words_for_once(self) -> list[Token]:
        """What says that the figure of one record is meant, and no sum: "in a single visit", "for a visit"."""
        plain = [token for token in self.tokens if not token.inside]
        of_one = [
            article
            for lead, article, kind in zip(plain, plain[1:], plain[2:], strict=False)
            if lead.stem in word_set("of_whom") and article.stem in word_set("some") and kind.role == "kind"
        ]
        return [*of_one, *(token for token in plain if token.text.casefold() in word_set("once"))]

    def _names_spender(self) -> bool:
        return any(token.stem in word_set("spenders") for token in self.tokens)

    def _puts_in_order(self) -> bool:
        """Whether all are asked for, those with the most or the least before the others: "newest first"."""
        if self.in_turn:
            return True
        plain = [token for token in self.tokens if not token.inside]
        heads = [other for one, other in pairwise(plain) if one.role in SUPERLATIVES and other.meaning is None]
        on_top = any(token.text.casefold() == "top" and token.meaning is None for token in plain)
        return on_top or any(token.text.casefold() in word_set("heads") for token in heads)

    def _put_first(self, name: str, descending: bool) -> RecordQuery | None:
        """What stands first in an order, or all of it in this order; no number of those that were the first."""
        if self._has("count") and name == "date":
            return None
        if not name and self._is_of_no_number():
            return None
        if levels := vocabulary_of(self.spec, name).levels:
            self.levels = (*reversed(levels),) if descending else levels
            return None if self._puts_in_order() or self.group or self.figures else RecordQuery(limit=MOST_LISTED)
        if self._names_spender() and name:
            return self._largest_spender(name, descending)
        return self._all_in_order(name, descending) if self._puts_in_order() else self._extreme(name, descending)

    def _is_of_no_number(self) -> bool:
        """Whether the most or the least may be of the figure that records go by, and no number of them: "which sort gave the
        least"."""
        only = None if self.kind else self.spec.records.get(self._only_kind() or "")
        often = any(token.text.casefold() in word_set("often") for token in self.tokens)
        return only is not None and only.by is not None and not often

    def _largest_spender(self, of: str, descending: bool) -> RecordQuery:
        """The people by what they paid in all, or the record with the most paid at one time."""
        for token in self._words_for_once():
            token.said = True
        if self._words_for_once():
            return RecordQuery(order=of, descending=descending, limit=1)
        self.group = people_field(self.spec)
        several = any(token.text.casefold() == "spenders" for token in self.tokens)
        limit = MOST_GROUPS if self._puts_in_order() else MOST_TOLD if several else 1
        groups = self._aggregate_over(Aggregate.SUM, of)
        return replace(groups, descending=descending, limit=self._number_wanted() or limit)

    def _all_in_order(self, name: str, descending: bool) -> RecordQuery | None:
        """All records, or all groups by their figure: "newest first", "hours by person, busiest on top"."""
        wanted = self._number_wanted()
        if self.group is None:
            return RecordQuery(order=name, descending=descending, limit=wanted or MOST_LISTED) if name else None
        groups = replace(
            self._aggregate_over(Aggregate.COUNT, None), order=None, descending=descending, limit=wanted or MOST_GROUPS
        )
        of_kind = self.kind is not None and not self.figures and name == self.spec.records[self.kind].by
        if not name or (of_kind and name not in self._fields("high", "low")):
            return groups
        return replace(groups, aggregate=Aggregate.SUM, of=name) if vocabulary_of(self.spec, name).adds_up else None

    def _is_first_of_each(self, name: str) -> bool:
        """Whether a record is asked for in each group: "the cheapest in each category", and not their totals."""
        own = name in self._fields("high", "low") or self._is_of_one() or not vocabulary_of(self.spec, name).adds_up
        kinds = (vocabulary_of(self.spec, each).kind for each in (name, self.group))
        return own and bool(self.kind or len(self.spec.records) == 1 or any(kinds))

    def _subject(self, name: str) -> tuple[str | None, Grain | None]:
        """What there is one of: "which stylist", "which year"."""
        asked = next((token for token in self.tokens if token.role not in ("own", "")), None)
        which = any(token.stem in word_set("which_of") for token in self.tokens[:2])
        if which and asked is not None and asked.role == "field" and asked.name == year_field(self.spec):
            return asked.name, None  # "which year had the highest mean"
        if len(self.keys) == 1 or (which and asked is not None and asked.role == "field" and asked.name in self.keys):
            return (asked.name if which and asked and asked.name in self.keys else self.keys[0]), None
        said = next((role for role in ("weekday", *GRAINS) if self._has(role)), None)
        kinds = [self.kind] if self.kind is not None else [*self.spec.records]
        if said is not None and len(kinds) == 1 and self.spec.records[kinds[0]].every == said:
            return None, None  # each of its records is one
        named = name in self._fields("field", "high", "low")
        added = vocabulary_of(self.spec, name).adds_up and name in self._fields("field") and not self._is_of_one()
        if said is None or name == "date" or (said == "day" and named and not added):  # the dearest day is of a record
            return None, None
        return "date", Grain(said)

    def _group(self) -> tuple[str | None, Grain | None]:
        """The field behind "per" or "each", and by what a time is grouped."""
        for place, token in enumerate(self.tokens):
            if token.role != "each" and not self._says_rate(place):
                continue
            for other in self.tokens[place + 1 : place + 5]:
                if other.meaning is None or other.role == "kind":
                    continue
                if other.role in GRAINS:
                    return "date", Grain(other.role)
                if other.role == "field" and self._tells_apart(other.meaning.name, place):
                    return other.meaning.name, None
                break
        rivals = self._rivals()
        told = any(map(self._has, ("count", "much", "sum", "average", "total")))
        against = [token for token in self.tokens if token.stem in word_set("compares")]
        if told and rivals and rivals[0].name in self.spec.fields and (self._has("each") or against):
            for token in against:  # "etsy against amazon", "vs", too
                token.meaning, token.said = None, True
            return rivals[0].name, None  # open, acknowledged, resolved: how many in each
        if told and rivals and rivals[0].name in self.spec.fields and self._lists_each(rivals):
            return rivals[0].name, None
        if told and self._has("each") and len(self.keys) == 1:
            return self.keys[0], None
        return None, None

    def _lists_each(self, rivals: Sequence[Meaning]) -> bool:
        """Whether "of" stands again before each value: "the average of A and of B"."""
        heads = [
            self.tokens[place - 1].stem in word_set("of_it")
            for place, token in enumerate(self.tokens)
            if place and token.meaning in rivals
        ]
        return len(heads) > 1 and all(heads)

    def _says_rate(self, place: int) -> bool:
        """Whether "a week" stands right behind what there are so many of in one: "bookings a week"."""
        before, behind = self.tokens[max(0, place - 1) : place], self.tokens[place + 1 : place + 2]
        counted = any(each.inside or each.role in NAMES_OF_FIELDS | {"value"} for each in before)
        return counted and self.tokens[place].text.casefold() == "a" and any(each.stem in GRAINS for each in behind)

    def _tells_apart(self, name: str, place: int) -> bool:
        """Whether a field has values to group by: words, or whole numbers behind "for each number of"."""
        if name in self.keys or name == year_field(self.spec):
            return True
        numbered = any(token.stem in word_set("numbers_of") for token in self.tokens[place + 1 : place + 4])
        if name in self._fields("high", "low"):  # "the bestseller by number sold" says what it is the best by
            return False
        return numbered and self.spec.fields.get(name) is FieldType.INTEGER and not goes_by(name)

    def _number_wanted(self) -> int | None:
        """How many are asked for: "the top 3", "the five cheapest"."""
        counts = [
            (token, value) for token in self.tokens if token.is_left and (value := figure(token.text)) is not None
        ]
        if len(counts) == 1 and counts[0][1] in range(1, 21) and not self._is_of_something(counts[0][0]):
            counts[0][0].said = True
            return int(counts[0][1])
        return None

    def _is_of_something(self, token: Token) -> bool:
        """Whether a figure stands behind "of", at the end of what is ranked: "the cheapest trip for a crew of 4"."""
        place = next(at for at, each in enumerate(self.tokens) if each is token)
        before = [each.stem for each in self.tokens[max(0, place - 1) : place]]
        behind = any(each.role or each.is_left for each in self.tokens[place + 1 :])
        return not behind and bool({*before} & word_set("partitive"))

    def _ranks_a_plural(self) -> bool:
        """Whether several are asked for: "the top trending keywords", and not "which of the keywords is best"."""
        ranked = [place for place, token in enumerate(self.tokens) if token.role in SUPERLATIVES]
        behind = self.tokens[ranked[0] + 1 :] if ranked else []
        kind = next((token for token in behind if token.role == "kind"), None)
        before = [*takewhile(lambda token: token.role != "kind", behind)]
        if any(token.stem in word_set("partitive") for token in before):
            kind = None  # "the cheapest of all the boats"
        first = [self.tokens[place] for place in ranked[:1] if self.tokens[place].role in ("high", "low")]
        phrase = [*first, *takewhile(lambda token: token.inside, behind)]  # "our bestsellers", "our top sellers"
        named = [*phrase[-1:], *([] if kind is None else [kind])]
        if self.tokens[0].role == "field" and self.tokens[0].stem in word_set("how"):
            return False  # "how old are the oldest boats"
        return any(token.text.casefold() not in (token.stem, "plus", "moins") for token in named)

    def _series(self) -> str | None:
        """The kind that has a record for each month, where a month is asked for, or a mean over more than one."""
        asked = {*self.figures, *self._fields("high", "low")}
        period = self.period
        long = period is not None and period.grain not in ("day", "week") and self._has("average")
        for name, kind in self.spec.records.items():
            one = period is not None and period.grain == kind.every
            when = any(map(self._has, SUPERLATIVES)) and any(
                token.stem in word_set("when") for token in self.tokens[:2]
            )
            wanted = long or one or when or (kind.every is not None and self._has(kind.every) and not self._has("each"))
            if kind.every is not None and wanted and asked and asked <= {*kind.figures}:
                return name
        return None

    def _kind_with_series(self) -> str | None:
        """The kind that has a record for each month, where the figure of each is asked for: "demand month by month"."""
        kinds = self.spec.records.items()
        name = next(
            (name for name, kind in kinds if kind.every == self.grain and {*self.figures} <= {*kind.figures}), None
        )
        worked_out = any(map(self._has, ("sum", "average", "count", "much", *SUPERLATIVES)))
        if name is None or self.grain is None or not self.figures or worked_out:
            return None
        for token in self.tokens:
            if token.role in ("each", self.grain):
                token.meaning, token.said = None, True
        self.group = self.grain = None
        return name

    def _is_of_one(self) -> bool:
        """Whether the figure of one record is meant, and no sum: "highest", not "most"; "at its peak", "hit bottom"."""
        plain = [token for token in self.tokens if token.text.casefold() != "rock"]
        level = any(
            one.stem in word_set("reaches") and other.role in ("most", "least") and other.stem in word_set("levels")
            for one, other in pairwise(plain)
        )
        single = any(each.role == "single" for token in self.tokens for each in token.others)
        return level or (single and not self._has("total"))  # "the largest arrears" are no single one
