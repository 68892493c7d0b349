"""What a question asks of records, read by rules: the kind, the fields, the values and the days that it names.

A question becomes a query (`RecordQuery`) only where every word of it is understood (wording.py). A word that is not may
change what is meant, so with one left over there is no query, and the words' way is taken.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from itertools import dropwhile, pairwise, takewhile, zip_longest

from llama_index.core.vector_stores.types import MetadataFilter
from msgspec.structs import replace

from rag_app.answering.records.asking import (
    INCLUSION,
    LEAVES_NONE,
    asks_advice,
    asks_for_all,
    asks_limit,
    asks_of_another,
    asks_of_fields,
    asks_possession,
    asks_rank,
    bounds_somebody,
    counted_by_sort,
    figures_named,
    is_missing_field,
    names_row,
    stand_before_kind,
    without_days,
    without_period,
    words_of_fields,
)
from rag_app.answering.records.comparisons import NAME_TYPES
from rag_app.answering.records.conditions import (
    BOUND_OPERATORS,
    GRAINS,
    condition_text,
    filter_of,
    is_presence,
    kind_conditions,
)
from rag_app.answering.records.orders import MOST_GROUPS, MOST_LISTED, MOST_RANKED, MOST_TOLD, OrderReader
from rag_app.answering.records.plans import Plan, Reading, days_in
from rag_app.answering.records.settling import (
    dated_field,
    days_label,
    drop_verb_of,
    drop_verb_of_rows,
    time_done,
    times_of,
)
from rag_app.answering.records.titles import kind_of, read_names
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Meaning,
    Token,
    asks_with,
    figure,
    goes_by,
    in_money,
    is_figure,
    key_fields,
    kind_begun,
    known_words,
    may_be_summed,
    money_field,
    only_figure,
    people_field,
    place_fields,
    price_field,
    read_words,
    says_nothing,
    says_year,
    stem,
    stems,
    stock_field,
    takings_field,
    total_field,
    total_of,
    vocabulary_of,
    word_set,
    year_field,
)
from rag_app.domain import YEAR, FieldType, Filters, day_text
from rag_app.retrieval.filters import EQ, GT, GTE, IN, LT, LTE, NE, condition, fields_of
from rag_app.retrieval.index import IndexSpec, Kind
from rag_app.retrieval.periods import Period, means_part
from rag_app.retrieval.records import LARGEST_LIMIT, Aggregate, Grain, NamedValue, RecordQuery, can_run
from rag_app.retrieval.spelling import correct_spelling
from rag_app.retrieval.text import tokens as tokens_of

_YEAR = re.compile(r"\b\d{4}\b")
_FURTHEST = 5  # "the fifth cheapest"
_LEADS = 2  # words between what is named and what it is for
_SIZES: Mapping[str, Callable[[int], tuple[int, int]]] = {
    "least_of": lambda number: (number, 0),
    "over": lambda number: (number + 1, 0),
    "most_of": lambda number: (0, number),
    "under": lambda number: (0, number - 1),
}
_ASKS_AGAIN = re.compile(
    r",?\s*\b(?:and|und|et)\s+(?:(?:if (?:so|yes)|wenn ja|si oui),?\s+)?(?:(?:its|their|his|her|the) (?:date|day|name|title)|(?:on|in) (?:which|what) (?:day|date|month|year)|how (?:much|many|often|cheap|dear|pricey|expensive|high|low|big|large|hot|warm|cold|long|heavy|strong|old|young|tall|fast|far|deep|wide)"
    r"|when|who|wann|wer|wie (?:viel|hoch|teuer|billig|warm|kalt|oft)|quand|combien)(?:\s+(?:was|is|were|did|does|war|ist)(?:\s+(?:it|that|they|he|she|es|das))?)?(?:\s+(?:then|at (?:the|that) time|on that day|that day))?(?=\s*\?*\s*$)"
    r"|(?:,\s+(?:and\s+)?|\s+and\s+)(?:(?:at|with|for|by|to|in|on)\s+)?(?:how|what|when|who|whom|where|which)\b[^,?]*\b(?:it|its|they|their|that one|he|she|his|her)\b[^,?]*(?=\?*\s*$)"
    r"|(?P<told>[.?!]\s+(?:please\s+)?(?:give|show|tell|send|list)\s+(?:me|us)\s+(?:the|its|their|his|her)\b[^.?!]*)(?=[.?!]*\s*$)"
    r"|(?P<of_first>:\s+(?:which|what|where|when|who)\b[^:?]*)(?=\?*\s*$)",
    re.I,
)
"""A clause that asks for what a record that stands first, or that is listed, is told with anyway: "the cheapest, and how cheap?".

Behind a colon of what stands first: "our dearest trip: which skipper, and where?".
"""
_TOLD_BY_TEXT = re.compile(
    r"(?:,\s*|\s+)(?:(?:and|und|et)\s+)?(?:since when|until when|why|how come|what for|seit wann|bis wann|warum|wieso|depuis quand|pourquoi)"
    r"(?:\s+(?:is|was|are|were)\s+(?:that|it|they|so))?\W*$",
    re.I,
)
"""What no field says of records that are listed, but perhaps their texts: ", since when, and why?"."""
_LISTS_THEM = re.compile(
    r"[\s,;.?!]+(?:(?:and|please|then|can you|could you)\s+)*(?:(?:list|name|show)(?: me)? (?:them|each)(?: all| please)?"
    r"|(?:who|what|which)(?: ones)? (?:are|were|is|was) (?:they|those|it|that)|which (?:ones|one|of them)(?: (?:are|were|is|was) (?:they|those|it|that))?)\W*$",
    re.I,
)
"""Behind a number that is asked for: what was counted is to be listed."""
_MEASURES = frozenset({"count", "much", "sum", "average", "each", "more"})


def read_question(
    text: str,
    spec: IndexSpec,
    values: Sequence[NamedValue],
    period: Period | None,
    today: date | None = None,
    comparing: bool = False,
    theme: Collection[str] = (),
) -> Reading:
    """The query that a question is, with the `values` of its words that the scope has, and its days.

    `comparing`: the days are one of several periods whose figures are compared. `theme` are words that are said otherwise.
    """
    if _TOLD_BY_TEXT.search(text):
        return _read_with_texts(text, spec, values, period, today)
    listed = _LISTS_THEM.search(text)
    counted = without_period(_LISTS_THEM.sub("", text), period) if listed else ""
    if listed and any(token.role == "count" for token in read_words(counted, spec)):
        reading = read_question(_LISTS_THEM.sub("", text), spec, values, period, today, comparing, theme)
        plan, number = reading.plan, reading.plan is not None and reading.plan.query.aggregate is Aggregate.COUNT
        if plan is not None and number and plan.query.group is None:
            return replace(reading, plan=replace(plan, query=replace(plan.query, aggregate=None, limit=MOST_LISTED)))
    tokens = _name_tokens(text, spec, values, period)
    own = words_of_fields(tokens, spec)
    for token, behind in zip_longest(tokens, tokens[1:]):
        dated = behind is None or behind.stem in word_set("before_days")  # not "changed hands in May"
        changed = period is not None and token.stem in word_set("changed") and dated  # those days are of that
        token.said = token.said or changed or (token.is_left and (token.stem in own or token.text.lower() in theme))
        if comparing and token.stem in word_set("compares") and token.role in ("", "apart"):
            token.meaning, token.said = None, True  # "this week against last week"
    dating = _dated_by(text, spec, values, period)
    if period is not None:
        _drop_words_of_dates(tokens, spec, dating)
    of_row = period is None and names_row(tokens, spec)
    for token in tokens:
        token.said = token.said or (of_row and token.is_left)
    reader = _Reader(spec, tokens, values, period, today, comparing, dating)
    reader.of_row = of_row
    reader.read_included(without_days(text, period))
    plan = _read_plan(reader, text, spec, values, period)
    left = [token for token in tokens if token.is_left]
    every = asks_for_all(tokens)
    places = any(token.role in ("high", "low") for token in tokens) and tokens[0].stem in word_set("where")
    of_words = reader.asks_of_words() and not places  # "where is our best opportunity"
    of_fields = (asks_of_fields(tokens, spec) and not of_words) or (bool(left) and len(left) == len(reader.unsaid))
    ranks, limits = every or of_fields or asks_rank(tokens), every or of_fields or asks_limit(tokens, spec)
    if not left:
        return Reading(plan, ranks=ranks, limits=limits)
    unknown, kind = tuple(token.text.lower() for token in left), reader.kind_asked()
    missing = " ".join(unknown) if kind is not None and is_missing_field(tokens, left) else ""
    ranked = (
        missing != "" and reader.kind is not None and any(token.role in SUPERLATIVES | {"rank"} for token in tokens)
    )
    about = unknown if stand_before_kind(tokens, left) else ()
    another = asks_of_another(tokens, spec)
    return Reading(None, unknown, missing, kind if missing else None, ranks, limits or ranked, about, another)


def _drop_words_of_dates(tokens: Sequence[Token], spec: IndexSpec, dating: str | None) -> None:
    """What leads to a period of the field `dating`, or of the rows' own date, says no more than that."""
    if dating is None:
        drop_verb_of_rows(tokens, spec)
        return
    drop_verb_of(tokens, spec, dating)
    for token in tokens:
        token.said = token.said or token.stem == "due"
        if token.name == dating and says_year(spec, dating):
            token.meaning = None


def _read_plan(
    reader: "_Reader", text: str, spec: IndexSpec, values: Sequence[NamedValue], period: Period | None
) -> Plan | None:
    """The reader's plan with the fields that are asked again; None where the text asks for what no plan gives."""
    plan = reader.plan()
    if (
        plan is None or asks_advice(text) or (period is not None and means_part(text, period))
    ):  # "at the end of January"
        return None
    if (plan := _widen(plan, reader, spec)) is None:
        return None
    if plan.is_list and (again := _ASKS_AGAIN.search(text)):
        named = [token.name for token in read_words(again[0], spec) if token.role == "field"]
        return replace(plan, figures=tuple(dict.fromkeys((*plan.figures, *named))))
    return plan


def _widen(plan: Plan, reader: "_Reader", spec: IndexSpec) -> Plan | None:
    """The plan with the values that count as well beside those of the same field: "which are in stock, sold out ones too".

    None where another kind is to count, a further name, or what came of something: "booked, including what was cancelled".
    """
    stated = {name for words in spec.vocabulary.values() for name in words.earned_of}
    stated |= {name for name, words in spec.vocabulary.items() if words.void}
    for name in {each.name for each in reader.included if each.role == "value"} - reader.implied:
        values = [each.value for each in reader.included if each.name == name]
        known = [each for each in plan.query.filters if name in fields_of((each,))]
        own = next((each for each in known if isinstance(each, MetadataFilter) and len(known) == 1), None)
        told_apart = name not in stated and bool(vocabulary_of(spec, name).values)
        if known and (own is None or own.operator not in (EQ, IN) or not told_apart):
            return None
        if own is not None and spec.all_fields[name] is FieldType.BOOLEAN:
            told, kept = condition_text(own, spec), tuple(each for each in plan.query.filters if each is not own)
            own_told = tuple(each for each in plan.conditions if each != told)
            plan = replace(plan, query=replace(plan.query, filters=kept), conditions=own_told)
        elif own is not None:
            before = own.value if isinstance(own.value, list) else [own.value]
            plan = plan.swap(own, condition(name, IN, [*before, *values]), spec)
    kinds = {each.name for each in reader.included if each.role == "kind"}
    return plan if plan.kind is None or kinds <= {plan.kind} else None


def _name_tokens(text: str, spec: IndexSpec, values: Sequence[NamedValue], period: Period | None) -> list[Token]:
    """The words of a question, without its days; without its last clause where that asks again what is asked before it."""
    tokens = read_names(without_period(text, period), spec, values)
    asked = _ASKS_AGAIN.search(text)
    if asked and not asked["of_first"] and any(each.role in SUPERLATIVES for each in read_words(asked[0], spec)):
        asked = _ASKS_AGAIN.search(text, asked.start() + 1)  # "which guest had the dearest one, and what was it?"
    told = read_words(asked["told"] or "", spec) if asked else ()
    unknown = any(token.is_left and token.stem not in word_set("told_anyway") for token in told)
    ranks = asked is not None and any(token.role in SUPERLATIVES for token in read_words(asked["of_first"] or "", spec))
    if asked is None or unknown or ranks:
        return tokens  # "where is it busiest: which harbour has the most trips?"
    before = read_names(without_period(text[: asked.start()] + text[asked.end() :], period), spec, values)
    measured = {token.role for token in tokens} & _MEASURES
    whole = SUPERLATIVES | (set() if asked["of_first"] else {"more"} if measured else {"kind", "value"})
    return before if any(token.role in whole for token in before) else tokens


def _read_with_texts(
    text: str, spec: IndexSpec, values: Sequence[NamedValue], period: Period | None, today: date | None
) -> Reading:
    """The list that is asked for before what no field says of it, with the texts of its records."""
    while found := _TOLD_BY_TEXT.search(text):
        text = text[: found.start()]
    reading = read_question(text, spec, values, period, today)
    plan = reading.plan
    if plan is None or not plan.is_list or plan.query.group is not None:
        return replace(reading, plan=None)
    return replace(reading, plan=replace(plan, texts=True))


def respell(
    text: str, options: Mapping[str, Mapping[str, float]], spec: IndexSpec, values: Sequence[NamedValue]
) -> str:
    """The text with each of these words as the likeliest of its spellings that is a word of the index or of a value."""
    known, meant, words = known_words(spec, values), {}, text.lower().split()
    of_values = {word for each in values for word in stems(each.value)}
    for word, found in options.items():
        before = next((one for one, other in pairwise(words) if other == word), "")
        there = sorted(
            (not asks_with(before, each), cost, stem(each) not in of_values, each)
            for each, cost in found.items()
            if stem(each) in known
        )
        if there and (not there[0][1] or len(tokens_of(word)) > 1):  # what the model knows whole is hardly misspelt
            meant[word] = there[0][3]
    return correct_spelling(text, meant)


def _dated_by(text: str, spec: IndexSpec, values: Sequence[NamedValue], period: Period | None) -> str | None:
    """The time that the period of a question is of, where it is not the record's own date: "follow-ups in December"."""
    start, end = period.span if period is not None else (0, 0)
    if period is None or text[start:end] != period.said or start == end:
        return None
    years = any(says_year(spec, name) for name in spec.fields) and _is_of_years(period)
    if not (years or times_of(spec)):
        return None
    before, behind = read_names(text[:start], spec, values), read_names(text[end:], spec, values)[:1]
    named = next((each.name for each in behind if each.name in times_of(spec)), None)
    named = named or dated_field(before, spec)
    return named if years or named in times_of(spec) else None


def _years_in(name: str, period: Period) -> list[MetadataFilter]:
    """That the year of a field is one of a period: "planted before 1950", where records have dates besides."""
    ends = ((GTE, period.start), (LTE, period.end))
    years = [condition(name, way, day.year) for way, day in ends if day is not None]
    return [condition(name, EQ, years[0].value)] if {each.value for each in years[1:]} == {years[0].value} else years


def _is_of_years(period: Period) -> bool:
    """Whether a period begins and ends with a year, or with today: "since 2020"."""
    first, last = period.start, period.end
    since = first is not None and last is not None and first.year < last.year and len(_YEAR.findall(period.said)) == 1
    ends = last is None or since or (last.month, last.day) == (12, 31)
    return ends and (first is None or (first.month, first.day) == (1, 1))


def _are_apart(one: Kind, other: Kind) -> bool:
    """Whether no record is of both kinds."""
    return not {*one.source_types} & {*other.source_types} or bool({*one.lacks} & {*other.having})


def _drop_purposes(tokens: Sequence[Token]) -> None:
    """What a record that is named is for is no second one: "what do the ear pads for the Halden cost"."""
    meant = [at for at, token in enumerate(tokens) if token.meaning]
    for one, other in pairwise(meant):
        between = [token for token in tokens[one + 1 : other] if not token.inside]
        led = bool(between) and between[-1].stem in word_set("purposes") and len(between) <= _LEADS
        if led and tokens[one].name == tokens[other].name == "source_id":
            tokens[other].meaning = None


class _Reader(OrderReader):
    """Reads the tokens of one question. `plan` is None where they are no query, or more than one."""

    def __init__(
        self,
        spec: IndexSpec,
        tokens: Sequence[Token],
        values: Sequence[NamedValue],
        period: Period | None,
        today: date | None,
        comparing: bool = False,
        dated: str | None = None,
    ) -> None:
        super().__init__(spec, tokens, None)
        _drop_purposes(tokens)
        self._read_past_booking(period, today)
        self.of_years = _years_in(dated, period) if dated and period and says_year(spec, dated) else []
        period, dated = (None, None) if self.of_years else (period, dated)
        self._named_values = values
        titles = {each.value: each for each in values if each.title}
        meant = dict.fromkeys(self._meanings_with("value"))
        called = [titles[each.value] for each in meant if each.name == "source_id"]
        denied = self._denied_values()
        self.denied = [each for each in called if Meaning("value", "source_id", each.value) in denied]
        self.named = [each for each in called if each not in self.denied]
        self.today, self.comparing, self.dated = today, comparing, dated
        for before, token in pairwise(self.tokens):
            if len(self.named) > 1 and figure(token.text) == len(self.named) and not before.role:
                token.said = True  # "what do the two cost"
        self.levels: tuple[str, ...] = ()
        self.included: Sequence[Meaning] = ()
        self.implied, self.leaves_none = frozenset[str](), False
        self.of_row = False  # is asked, in whatever words
        self.unsaid: list[Token] = []  # words that are known, and that no query says
        self.period = period or self._year()
        if self.period is None and any(map(self._has, ("newest", "oldest", "ahead", "next"))):
            self.dated = time_done(tokens, spec)
        self._settle_owners()
        self._settle_comparatives()
        self._drop_kinds_left_out()
        self.kinds = self._kinds()
        self.kind = next(iter(self.kinds), self._kind_weighed())
        self.group, self.grain = self._group()
        if self._weighs_sorts() and (pieces := stock_field(spec)) is not None:
            self.figures = [pieces]
        self.in_turn = self._kind_with_series()
        if self._names_spender() and not self.figures and (money := money_field(spec)) is not None:
            self.figures = [money]
        self.figures = [name for name in self.figures if name != self.group]
        of_named = {kind_of(each.source_type, each.fields, spec) for each in self.named}
        self.kind = (of_named.pop() if len(of_named) == 1 else None) or self.in_turn or self.kind or self._series()
        self._drop_apposed()
        if self.named:  # "the status of the necklace"
            self.figures += [name for name in self.keys if not self._has("count")]
        if self.named and (self._has("much") or self._has("sum")) and not (self.figures or self._fields("unit")):
            self.figures = [name for name in [price_field(spec)] if name is not None]

    def _read_past_booking(self, period: Period | None, today: date | None) -> None:
        """What "was booked" for days that have been is any booking, however it went: "everyone booked last week"."""
        past = today is not None and period is not None and period.end is not None and period.end < today
        if not past or self._has("kind"):
            return
        for before, token in zip([None, *self.tokens], self.tokens, strict=False):
            still = before is not None and before.stem in word_set("still")
            if token.role == "value" and not still and (kind := kind_begun(token, self.spec)) is not None:
                token.meaning = Meaning("kind", kind)

    def read_included(self, text: str) -> None:
        """Reads the values and the kinds that are to count as well, and whether all are: "cancelled ones included", "leave none out"."""
        said = read_names(" ".join(INCLUSION.findall(text)), self.spec, self._named_values)
        self.included = [each.meaning for each in said if each.meaning and each.role in ("value", "kind")]
        self.leaves_none = LEAVES_NONE.search(text) is not None

    def _drop_apposed(self) -> None:
        """A value right behind another one that records of this kind are not told with says what that one is: "parts for the Tarn
        tent"."""
        kind = None if self.kind is None else self.spec.records[self.kind]
        for one, other in pairwise(token for token in self.tokens if not token.inside):
            words = vocabulary_of(self.spec, other.name)
            if kind is None or one.role != "value" or other.role != "value" or other.parted or one.name == other.name:
                continue
            if words.kind not in (None, self.kind) and f"{{{other.name}}}" not in " ".join(kind.sentence):
                other.meaning = None

    def plan(self) -> Plan | None:
        if not self._is_clear():
            return None
        return self._plan_without() if self._asks_who_never() else self._plan_whole()

    def _plan_whole(self) -> Plan | None:
        sizes = self._sizes()
        compared, values, place = self._comparisons(), self._values(), self._place()
        query, bound = self._read_query(), None
        if query is None or values is None or compared is None or place is None:
            return None
        compared += self.of_years
        if (whole := self._bound_totals(query, compared)) is not None:
            query, bound = whole
            compared = [each for each in compared if each is not bound]
        elif self.keys and sizes is not None:
            query = self._bound_sizes(query, *sizes)
        elif sizes is not None or self._bounds_of(query, compared):
            query, bound = self._bound_whole(query, compared, sizes)
            compared = [each for each in compared if each is not bound]
        if query is not None and self.named:
            query = self._ask_of_named(query, len(self.named))
        if query is None:
            return None
        if place > 1:
            if query.order is query.group is None or query.limit not in (1, MOST_TOLD, MOST_RANKED):
                return None
            query = replace(query, limit=1)
        if self._has("each") and query.group is None and not self._orders_by_its_figure(query):
            return None
        plan = self._plan_of(query, compared, values, place)
        if plan is not None and bound is not None:
            grouped = query.group is not None
            totals = [f"total {condition_text(bound, self.spec)}"] if grouped else []
            plan = replace(plan, bound=bound, conditions=(*plan.conditions, *totals), distinct=plan.distinct or grouped)
        if plan is None or plan.drops(figures_named(self.tokens, self.spec)):
            return None
        return plan if can_run(plan.query, self.spec) and not self._leaves_times(plan) else None

    def _plan_without(self) -> Plan | None:
        """The plan for the groups that have no record with what is denied; None where nobody knows which groups."""
        key, values, compared = self._group_without(), self._values(), self._comparisons()
        if key is None or not values or compared:
            return None
        denied = [each for each in values if each.operator is NE and not is_presence(each)]
        others = [each for each in values if each.operator is not NE]
        query = RecordQuery(aggregate=Aggregate.COUNT, group=key, limit=LARGEST_LIMIT)
        plan = self._plan_of(query, (), others, 1) if len({each.key for each in denied}) == 1 else None
        if plan is None or plan.kind is None:
            return None
        never = denied[0].model_copy(update={"operator": EQ})
        if len(denied) > 1:
            never = condition(denied[0].key, IN, [str(each.value) for each in denied])
        told = [condition_text(each, self.spec) for each in denied]
        said = " or ".join((told[0].replace(" not ", " never ", 1), *(each.split(" not ", 1)[-1] for each in told[1:])))
        return replace(plan, conditions=(*plan.conditions, said), distinct=True, never=never)

    def _times_shown(self, query: RecordQuery) -> tuple[str, ...]:
        """The times that records in a list are told with: those that are named, or that the list is of or in the order of."""
        denied = {each.name for each in self._denied_values()}
        asked = {self.dated, query.order, *self._fields("value")} - denied
        return tuple(name for name in times_of(self.spec) if name in asked and query.aggregate is None)

    def _bounds_of(self, query: RecordQuery, compared: Sequence[MetadataFilter]) -> list[MetadataFilter]:
        """The conditions on the very figure of which the total or the mean is asked for."""
        measured = query.aggregate in (Aggregate.SUM, Aggregate.AVERAGE)
        return [each for each in compared if measured and each.key == query.of]

    def _bound_totals(
        self, query: RecordQuery, compared: Sequence[MetadataFilter]
    ) -> tuple[RecordQuery, MetadataFilter] | None:
        """The totals of those that are asked for, and the bound that these are to keep to: "which skippers caught more than 90
        kilos in total"."""
        bounds = [each for each in compared if vocabulary_of(self.spec, each.key).adds_up and each.operator is not EQ]
        if len(bounds) != 1 or len(self.keys) != 1 or self.named or not self._asks_which() or self._is_hedged():
            return None
        name, key = bounds[0].key, self.keys[0]
        verbs = [
            each for each in self.tokens if each.is_unmeant and each.stem in word_set("takes_in") | word_set("brings")
        ]
        earns = name == takings_field(self.spec) and key != people_field(self.spec)
        summed = query.aggregate is Aggregate.SUM and query.of == name and query.group in (None, key)
        if not (summed or (earns and (verbs or self._has("total")))):
            return None
        for token in verbs if earns else ():
            token.meaning = total_of(self.spec, name, (token.stem,))
        falls = bounds[0].operator in (GT, GTE)
        totals = RecordQuery(aggregate=Aggregate.SUM, of=name, group=key, limit=LARGEST_LIMIT, descending=falls)
        return totals, bounds[0]

    def _bound_whole(
        self, query: RecordQuery, compared: Sequence[MetadataFilter], sizes: tuple[int, int] | None
    ) -> tuple[RecordQuery | None, MetadataFilter | None]:
        """What is counted or measured, and the bound that it is asked to keep to: "has Ada more than five trips?".

        Without a query where nobody can tell: "who spent more than 90 in total?".
        """
        bounds = self._bounds_of(query, compared)
        if not (self._asks_whether() or (self._asks_which() and query.group is None)):
            return query, None  # "the total of those above 30"
        somebody = self.keys or any(token.stem in word_set("anyone") for token in self.tokens)
        counts = query.aggregate in (None, Aggregate.COUNT) and query.group is query.order is None
        if self._asks_which() or somebody or query.group or self._is_hedged() or len(bounds) > 1:
            return None, None
        if sizes is not None and (bounds or not counts or self.named or self.kind is None):
            return None, None
        if sizes is None:
            return query, bounds[0]
        least, most = sizes
        bound = condition("", EQ if least == most else GTE if least else LTE, least or most)
        return RecordQuery(aggregate=Aggregate.COUNT), bound

    def _leaves_times(self, plan: Plan) -> bool:
        """Whether a week, a month or a year is spoken of that the query does not say; then that word is not understood."""
        said: set[str | None] = {plan.query.grain, plan.kind and self.spec.records[plan.kind].every}
        if plan.period is not None and plan.period.start is not None and plan.period.end is not None:
            days = (plan.period.end - plan.period.start).days + 1
            said |= {grain for grain, least in zip(GRAINS, (1, 7, 28, 365), strict=False) if days >= least}
        counted = GRAINS if plan.query.aggregate is not None else GRAINS[1:]  # a list tells the day of each
        unread = [each for each in self.tokens if each.role in counted and each.role not in said and not self.comparing]
        for token in unread:
            token.meaning, token.said = None, False
        self.unsaid += unread
        return bool(unread)

    def _plan_of(
        self, query: RecordQuery, compared: Sequence[MetadataFilter], values: Sequence[MetadataFilter], place: int
    ) -> Plan | None:
        """The plan of a query with its conditions; None where nothing is asked of it, or of nobody knows what."""
        if (asked := self._values_asked(query, values)) is None:
            return None
        values, kind = asked, self._kind_of_plan(query, [*compared, *asked])
        weekdays = tuple(int(day) for each in self._meanings_with("on_weekday") for day in each.value.split(","))
        coming = self.today is not None and (self._has("next") or (self.period is None and self._has("ahead")))
        period = self.period or (Period(self.today, None, "", (0, 0)) if coming else self._until_today())
        period = self._rest_of(period) if self._has("ahead") or self._has("next") else period
        period = self._until_paid(query, period) if self.today is not None else period
        days = self._conditions_of_days(period)
        own = (
            self._has("own")
            and len(self.named) < 2
            and not any(vocabulary_of(self.spec, each.key).own for each in values)
        )
        query = self._put_usual_first(query, values, coming)
        narrowed = compared or values or weekdays or own or days or query.aggregate or query.order or self.levels
        if not narrowed and not (self._has("all") and kind is not None):
            return None
        if kind is None and len(self.spec.source_types) > 1 and not self._asks_of_any(query, bool(values)):
            return None
        query = query if kind is None else self._limit_to_kind(query, kind)
        if query.group == "date" and (time := time_done(self.tokens, self.spec)) is not None:
            query = replace(query, group=time, order=time if query.order == "date" else query.order)
        there = tuple(each.key for each in values if is_presence(each))
        stated = [each for each in (filter_of(each, self.spec) for each in values) if each is not None]
        everything = replace(query, filters=query.filters if self.dated else (*query.filters, *days), own=own)
        narrow = (*(days if self.dated else ()), *compared, *stated)
        return Plan(
            replace(
                everything,
                filters=(*everything.filters, *narrow),
                weekdays=weekdays,
                having=(*everything.having, *there),
            ),
            everything,
            kind,
            single=query.aggregate is None and query.order is not None and query.limit == 1,
            conditions=self._conditions_told(compared, values, period),
            period=period,
            distinct=query.group is not None and query.limit == MOST_GROUPS and not self._has("each"),
            figures=tuple(self._fields_shown(query, values)),
            times=self._times_shown(query),
            place=place,
            everybody=self._has("everybody"),
            contest=self._contest(),
            bound=self._bound_asked(query, compared, [each for each in values if self._values_of(each.key)]),
            together=not (self.named or self._has("kind")),
            whether=self._asks_whether() and not (self.named or self._has("not")),
            every=self._every_asked(query, compared, values),
            dated=self.dated if period is not None else None,
            ahead=self.today is not None and period is not None and (period.start or date.min) > self.today,
            number=self._number_told() if query.of is not None and query.group is None else 0,
            levels=self._levels_in_turn(),
            of_row=self.of_row and not (self.figures or self.keys),
        )

    def _fields_shown(self, query: RecordQuery, values: Sequence[MetadataFilter]) -> list[str]:
        """The figures that are named; of a record that is named by its number, whatever is asked of it."""
        keys = key_fields(self.spec)
        numbered = query.aggregate is None and any(
            (goes_by(each.key) or each.key in keys) and each.operator is EQ for each in values
        )
        return [*dict.fromkeys((*self.figures, *(self.keys if numbered else ())))]

    def _conditions_of_days(self, period: Period | None) -> Filters:
        """That a record is of a period: by its year, where records have no dates."""
        if period is None:
            return ()
        year = year_field(self.spec)
        if year is not None and period.start is not None and self.dated is None:
            return (condition(year, EQ, period.start.year),)
        return days_in(self.dated, period)

    def _levels_in_turn(self) -> tuple[tuple[MetadataFilter, str], ...]:
        """The conditions of which the first that any record meets is asked for: the highest level, then the next one."""
        name = next((each for each in self._fields("high", "low") if vocabulary_of(self.spec, each).levels), "")
        each_level = [condition(name, EQ, level) for level in self.levels]
        return tuple((each, condition_text(each, self.spec)) for each in each_level)

    def _number_told(self) -> int:
        """How many records there are as the question has it: "the average price of the four pairs of skis"."""
        told = [figure(token.text) for token in self.tokens if token.tells_number]
        return int(told[0]) if len(told) == 1 and told[0] is not None else 0

    def _values_asked(self, query: RecordQuery, values: Sequence[MetadataFilter]) -> Sequence[MetadataFilter] | None:
        """The values without what is told, or asked to be the first, and with what a word for a total implies; None where
        nobody can tell."""
        if self.named:  # whether it is in stock is told, and no condition
            self.figures += [each.key for each in values if self.spec.all_fields[each.key] is FieldType.BOOLEAN]
            values = [each for each in values if self.spec.all_fields[each.key] is not FieldType.BOOLEAN]
        if self._asks_whether() and query.limit == 1 and (query.group or query.order):
            if (rest := self._asked_of_all(query, values)) is None:
                return None
            values = rest
        return [*values, *([] if self.named else self._conditions_of_totals(query))]

    def _kind_of_plan(self, query: RecordQuery, conditions: Sequence[MetadataFilter]) -> str | None:
        """The kind that is named or meant; of days that are counted, or of anybody, the usual one."""
        whole = asks_for_all(self.tokens) and len(self.spec.records) > 1  # of any kind
        kind = self.kind or (None if whole else self._kind_meant(query, conditions))
        counted = query.aggregate is Aggregate.COUNT and query.group == "date"  # the quietest day of January
        somebody = any(token.stem in word_set("anyone") for token in self.tokens[:3]) or self._asks_whats_on()
        busy = any(token.stem in word_set("busier") for token in self.tokens)
        dated = (self.period is not None or self._has("ahead")) and (counted or somebody)
        return self._usual() if kind is None and (dated or (busy and (counted or self.comparing))) else kind

    def _asks_whats_on(self) -> bool:
        """Whether nothing but a time is named: "what have we got in May", "anything on next week"."""
        asks = any(token.stem in word_set("whats") for token in self.tokens[:1])
        there = self._has("ahead") or any(token.text.casefold() in word_set("on_then") for token in self.tokens[1:])
        return asks and there and all(token.role in ("", "own", "ahead") and not token.is_left for token in self.tokens)

    def _put_usual_first(self, query: RecordQuery, values: Sequence[MetadataFilter], coming: bool) -> RecordQuery:
        """The query with the order that is meant where none is said: what comes next, "trending" with the most of it."""
        if coming and query.aggregate is None and query.order is None:
            most = 1 if self._has("next") else query.limit
            query = replace(query, order=self.dated or "date", descending=False, limit=most)
        ranked = [each for each in values if each.operator in (GT, LT) and is_figure(self.spec, each.key)]
        if query.aggregate is None and query.order is None and len(ranked) == 1:
            query = replace(query, order=ranked[0].key, descending=ranked[0].operator is GT)
        return query

    def _conditions_told(
        self, compared: Sequence[MetadataFilter], values: Sequence[MetadataFilter], period: Period | None
    ) -> tuple[str, ...]:
        return (
            *(
                condition_text(each, self.spec)
                for each in (*compared, *values)
                if not vocabulary_of(self.spec, each.key).own and each.key not in ("source_id", self.dated)
            ),
            *([days_label(self.dated, period)] if self.dated and period is not None else []),
            *(f"title “{each.title}”" for each in self.named),
            *(f"title not “{each.title}”" for each in self.denied),
        )

    def _rest_of(self, period: Period | None) -> Period | None:
        """What is still to come of the days that today is one of: "upcoming in January"."""
        if period is None or self.today is None or period.start is None or period.end is None:
            return period
        if not period.start < self.today <= period.end:
            return period
        return replace(period, start=self.today, grain="days", otherwise=None)

    def _asked_of_all(self, query: RecordQuery, values: Sequence[MetadataFilter]) -> Sequence[MetadataFilter] | None:
        """The conditions without the one that is asked to be the first: "is Ada our busiest skipper?", "is Ada's trip the longest?".

        None where nobody can tell which of them that is.
        """
        plain = [each for each in self.tokens if each.meaning is not None]
        named = [each for each in values if each.operator is EQ and self.spec.all_fields[each.key] in NAME_TYPES]
        if query.group is not None:
            rest = [each for each in values if each.key != query.group]
            return None if query.aggregate is Aggregate.COUNT and rest and len(rest) == len(values) else rest
        alone = len(named) == len(values) == 1 and plain[-1].role in SUPERLATIVES
        return [] if alone else values

    def _conditions_of_totals(self, query: RecordQuery) -> list[MetadataFilter]:
        """What words for a total say of its records: only what is done was earned, and nothing was paid for what is void; of what
        is to come, nothing is said."""
        after = self.today is not None and self.period is not None and (self.period.start or date.min) > self.today
        if after or self.leaves_none or self._has("ahead") or self._has("next"):
            return []
        earned = [each.name for each in self._meanings_with("total") if each.value]
        earned += self.figures if self._names_spender() else []
        earned += [*self.spec.vocabulary] if self._tells_who_came() else []
        paid = [name for name in (query.of, query.order) if name and self._tells_what_was_paid()]
        done = {name: value for each in earned for name, value in vocabulary_of(self.spec, each).earned_of.items()}
        states = {name for each in paid for name in vocabulary_of(self.spec, each).earned_of} - {*done}
        states |= {*self._fields_of_void(query)} if not done and (earned or paid) else set()
        void = [(name, value) for name in sorted(states) for value in vocabulary_of(self.spec, name).void]
        also = {name: [each.value for each in self.included if each.name == name] for name in (*done, *states)}
        implied = [
            condition(name, IN, [value, *also[name]]) if also[name] else condition(name, EQ, value)
            for name, value in done.items()
        ]
        implied += [condition(name, NE, value) for name, value in void if value not in also[name]]
        implied = [each for each in implied if not self._values_of(each.key)]
        self.implied = frozenset(each.key for each in implied)
        return implied

    def _fields_of_void(self, query: RecordQuery) -> list[str]:
        """The fields that tell which records came to nothing, where no value says which of them were earned."""
        of = vocabulary_of(self.spec, query.of or query.order)
        told = {words.kind for words in self.spec.vocabulary.values() if words.earned_of}
        void = [name for name, words in self.spec.vocabulary.items() if words.void and words.kind == of.kind]
        return void if of.earned and of.kind not in told else []

    def _tells_who_came(self) -> bool:
        """Whether it is asked of those who came, and not only of what was booked: "how many customers came last week"."""
        stated = {name for words in self.spec.vocabulary.values() for name in words.earned_of}
        of_kind = {words.kind for words in self.spec.vocabulary.values() if words.earned_of}
        if any(map(self._values_of, stated)) or (self.kind is not None and self.kind not in of_kind):
            return False
        pairs = zip_longest(self.tokens, self.tokens[1:])
        come_to = [one for one, other in pairs if other and (one.stem, other.stem) == ("come", "to")]  # so much
        plain = [each for each in self.tokens if (each.is_unmeant or each.inside) and each not in come_to]
        did = any(token.text.casefold() == "did" for token in plain)
        came = [token for token in plain if token.stem in (word_set("came") | (word_set("comes_in") if did else set()))]
        here = any(one.stem in word_set("past") and other.stem == "here" for one, other in pairwise(self.tokens))
        happened = self.kind is not None and any(token.stem in word_set("happened") for token in plain)
        people = people_field(self.spec)
        somebody = (
            people in self.keys
            or self._values_of(people or "")
            or any(each.stem in word_set("who") for each in self.tokens[:1])
        )
        return happened or (bool(came or here) and somebody)

    def _values_of(self, name: str) -> bool:
        return any(each.name == name for each in self._meanings_with("value"))

    def _year(self) -> Period | None:
        """A year right before what is of it, "a 1975 car", or at the end: "total sales 2014"."""
        for place, (token, after) in enumerate(zip_longest(self.tokens, self.tokens[1:])):
            if not (token.is_left and YEAR.fullmatch(token.text)):
                continue
            lead = next((each.role for each in reversed(self.tokens[:place]) if not each.inside), "")
            ends = after is None and place > 0 and self.spec.dated_types != ()
            if lead not in BOUND_OPERATORS and (ends or (after and after.role in ("kind", "value", "field"))):
                token.said, year = True, int(token.text)
                return Period(date(year, 1, 1), date(year, 12, 31), token.text, (0, 0), "year")
        return None

    def _settle_owners(self) -> None:
        """One's own and those of others together leave nothing out: "ours or not", "theirs as well as ours"."""
        self._settle_those_of_others()
        own = [place for place, token in enumerate(self.tokens) if token.role == "own"]
        for place in own:
            behind = [token.stem for token in self.tokens[place + 1 : place + 3]]
            beside = self.tokens[max(0, place - 4) : place + 5]
            others = [token for token in beside if token.text.casefold() in word_set("others")]
            if behind == ["or", "not"] or others:
                for token in (*self.tokens[place : place + (3 if behind == ["or", "not"] else 1)], *others):
                    token.meaning, token.said = None, True

    def _settle_those_of_others(self) -> None:
        """What is not one's own is somebody else's, in an index that says whose a record is: "those that are not ours"."""
        field = next((name for name in self.spec.fields if vocabulary_of(self.spec, name).own), None)
        meant = [token for token in self.tokens if token.meaning or token.stem in word_set("only")]
        for link, token, after in zip(meant, meant[1:], [*meant[2:], None], strict=False):
            if (
                field
                and (link.role, token.role) == ("not", "own")
                and (after is None or after.role not in SUPERLATIVES)
            ):
                link.meaning, token.meaning = None, Meaning("value", field, "false")

    def _kind_weighed(self) -> str | None:
        """The kind of which the busier one of several has more, or of which there are more of one sort than of another, where
        no figure is named: "more cats or more dogs"."""
        rivals = self._rivals()
        busier = any(
            token.role in ("more", "most", "least") and token.stem in word_set("busier") for token in self.tokens
        )
        if not rivals or not (busier or self._weighs_sorts()):
            return None
        return vocabulary_of(self.spec, rivals[0].name).kind or self._only_kind()

    def _weighs_sorts(self) -> bool:
        """Whether there is to be more of one value than of another: "more cats or dogs"."""
        rivals, plain = self._rivals(), [token for token in self.tokens if not token.inside]
        sorts = any(
            one.role == "more" and not one.name and other.meaning in rivals and not other.parted
            for one, other in pairwise(plain)
        )
        return sorts and not self.figures and not self._asks_which()

    def _drop_kinds_left_out(self) -> None:
        """Kinds that are set aside, where the records of the one that is asked for are none of them."""
        meant = [token for token in self.tokens if token.meaning]
        for place, link in enumerate(meant):
            before, behind = reversed(meant[:place]), meant[place + 1 :]
            out = link.role == "not" and link.parted
            aside = [*takewhile(lambda token: token.role == "kind", behind if out else before)]
            kept = {token.name for token in meant[:place] if token.role == "kind" and token not in aside}
            if (out or link.role == "left_out") and len(kept) == 1 and aside:
                kind, others = self.spec.records[kept.pop()], [self.spec.records[token.name] for token in aside]
                if all(_are_apart(kind, other) for other in others):
                    for token in (*aside, link):
                        token.meaning = None

    def _sizes(self) -> tuple[int, int] | None:
        """How many records a group has at least and at most, 0 without a bound: "at least two bookings", "repeat customers"."""
        again = self._comes_again()
        for place, token in enumerate(self.tokens):
            value, after = figure(token.text), self.tokens[place + 1 : place + 2]
            times = token.stem in word_set("times") or bool(after and after[0].stem == "time")
            times = times and not any(each.role == "unit" for each in after)
            meant = (each for each in self.tokens[place + 1 :] if not (each.inside or each.role == "value"))
            kind = next((each.role == "kind" for each in meant), False)
            near = [each for each in self.tokens[max(0, place - 3) : place] if each.stem in word_set("only")]
            lead = next((each for each in reversed(self.tokens[:place]) if each.role or not each.inside), None)
            lead = near[-1] if near and times and lead is not None and not lead.role else lead  # "only been in once"
            if value is None or value != int(value) or lead is None or not (times or kind):
                continue  # "three months"
            behind = next((each for each in self.tokens[place + 1 : place + 3] if each.role in _SIZES), None)
            behind = behind if behind is not None and behind.stem in word_set("lists") else None
            lead = behind or lead  # "three bookings or more"
            bounds = (
                _SIZES.get(lead.role) if lead.meaning else (lambda n: (n, n)) if lead.stem in word_set("only") else None
            )
            somebody = any(each.stem in word_set("anyone") for each in self.tokens)
            if bounds is not None and somebody and not (self.keys or self._denied_values()):
                self.keys = [name for name in [people_field(self.spec)] if name is not None]
            if bounds is None or not (len(self.keys) == 1 or self._asks_whether()):
                continue
            token.said, lead.said, lead.meaning = True, True, None
            if times and token.stem not in word_set("times"):
                after[0].said = True
            return bounds(int(value))
        return (2, 0) if again else None

    def _comes_again(self) -> bool:
        """Whether those with more than one record are asked for: "repeat customers"."""
        people, found = people_field(self.spec), False
        for one, other in pairwise(self.tokens):
            if one.is_left and one.stem in word_set("comes_again") and other.role == "field" and other.name == people:
                one.said = found = True
        return found and self.keys == [people]

    def _bound_sizes(self, query: RecordQuery, least: int, most: int) -> RecordQuery | None:
        """Groups of so many records: "which customers have at least two bookings"."""
        key = self.keys[0]
        if self._asks_whether() and self._has("each"):
            return None  # "has every skipper more than two?"
        if query.aggregate is None and query.order is None:
            query = RecordQuery(aggregate=Aggregate.COUNT, group=key, limit=MOST_GROUPS)
        if query.aggregate is not Aggregate.COUNT or query.group != key:
            return None
        return replace(query, least=least, most=most)

    def _orders_by_its_figure(self, query: RecordQuery) -> bool:
        """Whether "by" names what records are put in order by: "the top listings by sales"."""
        by = [token for token in self.tokens if token.role == "each"]
        return query.order is not None and all(token.stem in word_set("prepositions") for token in by)

    def _is_clear(self) -> bool:
        """Whether nothing is said that no query can say."""
        if (
            len(self.kinds) > 1
            or self._has("unclear")
            or (self._has("apart") and not (self._compares_values() or self._compares_weekdays()))
            or (self._has("more") and not (self.comparing or self._compares_values() or self._compares_weekdays()))
            or self._points_back()
            or (len({*self._meanings_with("on_weekday")}) > 1 and bool(self._rivals()) and not self._joins_weekdays())
            or self._names_next_days()
            or self._orders_by_words()
            or self._leaves_out_a_sort()
            or self._groups_twice()
            or asks_possession(self.tokens, self.spec)
            or bounds_somebody(self.tokens, self.spec)
            or counted_by_sort(self.tokens, self.spec) is not None
            or self._counts_debtors()
            or (self._names_spender() and not any(map(self._has, ("most", "least"))))
        ):
            return False
        of_words = not self.of_row and self.asks_of_words()
        return self._is_positive() and not of_words and not self._sets_own_apart()

    def _joins_weekdays(self) -> bool:
        """Whether the weekdays stand together, so that none is of one side alone: "A on Mondays against B on Tuesdays"."""
        meant = [token.role for token in self.tokens if token.meaning and token.role != "or"]
        return "value" not in meant[meant.index("on_weekday") : len(meant) - meant[::-1].index("on_weekday")]

    def _groups_twice(self) -> bool:
        """Whether groups are asked for within groups: "takings by month and skipper"."""
        plain = [token for token in self.tokens if not token.inside]
        for by, one, link, other in zip(plain, plain[1:], plain[2:], plain[3:], strict=False):
            fields = [each.role in GRAINS or each.name in self.keys for each in (one, other)]
            if by.role == "each" and all(fields) and link.stem in word_set("joins"):
                return True
        return False

    def _counts_debtors(self) -> bool:
        """Whether those are to be counted who owe anything: "how many owners owe something"."""
        counted = self._counted_token()
        owing = any(token.stem in word_set("owes") and token.role in ("field", "total") for token in self.tokens)
        return counted is not None and counted.role == "field" and counted.name in self.keys and owing

    def _leaves_out_a_sort(self) -> bool:
        """Whether what is left out may be all of a sort, of which a title names one: "apart from rings"."""
        titles = {each.value: each.title for each in self.denied}
        for place, token in enumerate(self.tokens):
            if token.meaning is not None and token.name == "source_id" and token.meaning.value in titles:
                phrase = [token, *takewhile(lambda each: each.inside, self.tokens[place + 1 :])]
                title = titles[token.meaning.value].casefold()
                if any(each.text.casefold() not in (each.stem, *title.split()) for each in phrase):
                    return True
        return False

    def _orders_by_words(self) -> bool:
        """Whether "most" stands before a field that is no figure: "the most severe"."""
        pairs = [
            (one, other.meaning)
            for one, other in pairwise(self.tokens)
            if other.role == "field" and other.text == other.stem
        ]
        return any(
            one.text.casefold() in ("most", "least") and meant and meant.name in self.keys for one, meant in pairs
        )

    def _points_back(self) -> bool:
        """Whether somebody is spoken of who is not named here: "what did he pay"."""
        named = any(
            len(token.meaning.value.split()) > 1 for token in self.tokens if token.meaning and token.role == "value"
        )
        return not (named or self.keys) and any(token.stem in word_set("persons") for token in self.tokens)

    def kind_asked(self) -> str | None:
        """The kind of record that the question speaks of, as far as it is understood; no field has to be its own."""
        meant = self._kind_meant(RecordQuery(), self._values() or [])
        fields = {vocabulary_of(self.spec, name).kind for name in self.spec.fields}
        return self.kind or (meant if meant in fields or len(self.spec.records) == 1 else None)

    def _limit_to_kind(self, query: RecordQuery, name: str) -> RecordQuery:
        kind = self.spec.records[name]
        return replace(query, filters=kind_conditions(kind), having=kind.having)

    def _usual(self) -> str | None:
        """The kind that the fields are of, where all that say one agree."""
        kinds = {kind for name in self.spec.fields if (kind := vocabulary_of(self.spec, name).kind) is not None}
        return kinds.pop() if len(kinds) == 1 else None

    def _ask_of_named(self, query: RecordQuery, named: int) -> RecordQuery | None:
        """The query for so many records that are named by their titles: their figures, or what orders several of them.

        None where it asks for anything else: their number, or what there was of them in some days.
        """
        counts = (
            query.aggregate is Aggregate.COUNT or query.group is not None or (named == 1 and query.order is not None)
        )
        if counts or self.period is not None or self._has("ahead") or self._has("next"):
            return None
        if query.aggregate is not None and named == 1:
            self.figures = list(dict.fromkeys((*self.figures, query.of or "")))
            return RecordQuery(limit=MOST_LISTED)
        holds = self.kind is not None and bool(self.spec.records[self.kind].holds)  # what is on the bridal watchlist
        told = any(self.spec.all_fields[each.name] is FieldType.BOOLEAN for each in self._meanings_with("value"))
        told |= self._tells_dates() and any(token.stem in word_set("when") for token in self.tokens[:2])
        return query if query.aggregate or query.order or self.figures or holds or told else None

    def _tells_dates(self) -> bool:
        """Whether records of the kind are told with their day, which a document of the index need not have."""
        types = () if self.kind is None else self.spec.records[self.kind].source_types
        return self.spec.dated_types is None or bool({*types} & {*self.spec.dated_types})

    def _asks_of_any(self, query: RecordQuery, narrowed: bool) -> bool:
        """Whether records of any kind are asked for: "everything that is sold out", "how many pieces by Ada", or by a field."""
        if query.aggregate is not None:
            counted = next((at for at, token in enumerate(self.tokens) if token.role == "count"), len(self.tokens))
            things = (token.text.casefold() in word_set("things") for token in self.tokens[counted + 1 : counted + 3])
            return narrowed and query.aggregate is Aggregate.COUNT and query.group is None and any(things)
        names = [self.spec.all_fields[each.name] for each in self._meanings_with("value")]
        own = self._has("own") and self.tokens[0].stem in word_set("whether")
        plain = [token for token in self.tokens if not token.inside]
        opens = [*takewhile(lambda token: token.is_unmeant and token.stem in word_set("opens_list"), plain)]
        begun = plain[: 3 if own else len(opens) + 1]
        every = narrowed and any(token.stem in word_set("all") for token in begun)
        every &= {*names} <= {FieldType.KEYWORD, FieldType.TAGS} or (asks_for_all(self.tokens) and len(names) == 1)
        every |= narrowed and self.tokens[0].stem in word_set("which_of") and {*names} == {FieldType.BOOLEAN}
        done = {each.name for each in self._meanings_with("value")} == {*self.keys}  # "what has Ada written"
        every |= narrowed and done and self.tokens[0].stem in word_set("what")
        return every or bool(self.figures) or query.order not in (None, "date")

    def _until_today(self) -> Period | None:
        """Until today, where the last one that has been is asked for: "when was she last in"."""
        past = any(token.stem in word_set("past") for token in self.tokens)
        past &= self.spec.dated_types != ()
        if self.today is None or not past or not any(token.stem in word_set("last") for token in self.tokens):
            return None
        return Period(None, self.today, f"until {day_text(self.today)}", (0, 0))

    def _until_paid(self, query: RecordQuery, period: Period | None) -> Period | None:
        """The days until today, where it is asked what was paid: nobody has paid for what is to come."""
        paid = self._tells_what_was_paid()
        dated = self.spec.dated_types != () and self.dated is None and not self._has("not")
        if self.today is None or not (paid and dated) or query.aggregate not in (Aggregate.SUM, Aggregate.AVERAGE):
            return period
        if period is None:
            return Period(None, self.today, f"until {day_text(self.today)}", (0, 0))
        begun = (period.start or date.min) <= self.today < (period.end or date.max)
        return replace(period, end=self.today, grain="days", otherwise=None) if begun else period

    def _tells_what_was_paid(self) -> bool:
        did = any(token.stem in word_set("does") for token in self.tokens if token.is_unmeant)
        verbs = word_set("spends") if did else word_set("spent")
        return any(token.stem in verbs and token.role in ("", "field") for token in self.tokens)

    def asks_of_words(self) -> bool:
        """Whether no field can answer: how, why or where something is, or what a word means."""
        named = any(
            one.stem in word_set("which_of") and other.role == "kind" for one, other in pairwise(self.tokens)
        )  # "where is it worst: which term ..."
        told_where = bool(place_fields(self.spec)) and any(map(self._has, SUPERLATIVES))
        asks = any(
            token.meaning is None and token.stem in word_set("of_words")
            for token in self.tokens
            if not ((named or told_where or self._tells_apart_where(token)) and token.stem in word_set("where"))
        )
        selling = bool(self.named and self.figures) and self.tokens[0].stem in word_set("how")  # how is X selling
        splits = self.group is not None and any(token.stem in word_set("splits") for token in self.tokens)
        told = self.comparing or selling or splits
        asks = asks and not (told or any(map(self._has, ("sum", "average", "count", "much"))))
        last = self.tokens[-1] if self.tokens else None
        return asks or (last is not None and last.role == "average" and last.stem in word_set("means"))

    def _tells_apart_where(self, token: Token) -> bool:
        """Whether "where" says which records are meant, and asks for no place: "the visits where the slip is missing"."""
        place = next(at for at, each in enumerate(self.tokens) if each is token)
        verb = any(each.stem in word_set("whether") for each in self.tokens[place + 1 : place + 2])
        return any(each.role == "kind" for each in self.tokens[:place]) and not (token.parted or verb)

    def _place(self) -> int | None:
        """1, or 2 of "the second cheapest"; None where a number of that kind belongs to nothing."""
        meant = [token for token in self.tokens if token.meaning is not None]
        places = [at for at, token in enumerate(meant) if token.role == "ordinal"]
        if not places:
            return 1
        behind = meant[places[0] + 1].role if places[0] + 1 < len(meant) else ""
        ranked = (
            self._has("each") and len(self.figures) == 1 and not any(map(self._has, SUPERLATIVES))
        )  # "third by sales"
        place = int(next(iter(self._meanings_with("ordinal"))).value)
        known = behind in SUPERLATIVES or ranked or self._counts_in_time()
        return place if len(places) == 1 and known and place <= _FURTHEST else None

    # -- the one thing that is asked
    def _read_query(self) -> RecordQuery | None:
        """Aggregate, order, group and limit; filters are not looked at."""
        if self._asks_of_one_row() or self._asks_when_besides():
            return RecordQuery(limit=MOST_LISTED)
        ways = [each for each in (Aggregate.SUM, Aggregate.AVERAGE) if self._has(each.value)]
        key = self._key_ranked()
        return self._rank_groups(key, ways) if key is not None else self._read_measure(ways)

    def _asks_of_one_row(self) -> bool:
        """Whether something is asked of the one row that is named by its key: "V-12: what did it come to, and who did it?"."""
        named = [each for each in self._meanings_with("value") if each.name in key_fields(self.spec)]
        others = (
            SUPERLATIVES | BOUND_OPERATORS.keys() | {"count", "average", "each", "more", "apart", "rank", "or", "not"}
        )
        if len(named) != 1 or self.period is not None or any(map(self._has, others)):
            return False
        priced = self._has("sum") or self._has("much")
        if priced and not self.figures:
            earned = money_field(self.spec) or total_field(self.spec) or price_field(self.spec)
            self.figures = [name for name in [earned] if name]
        return self.of_row or bool(self.keys or self.figures)

    def _asks_when_besides(self) -> bool:
        """Whether it is asked when something was, and for a figure of it: "when did Ada arrive, and how many nights did she stay"."""
        pairs = [(one, other) for one, other in pairwise(self.tokens) if other.role in ("count", "much")]
        asked = len(pairs) == 1 and pairs[0][0].text.casefold() in word_set("joins")
        before = self.tokens[: self.tokens.index(pairs[0][1])] if asked else []
        when = any(token.stem in word_set("when") for token in before) and any(each.role == "value" for each in before)
        return (
            when and bool(self.figures) and not any(map(self._has, SUPERLATIVES | {"sum", "average", "each", "more"}))
        )

    def _read_measure(self, ways: Sequence[Aggregate]) -> RecordQuery | None:
        """A total, a mean, an order or a number, where no values are ranked."""
        orders = self._orders()
        if orders is None or len(orders) > 1 or len(ways) > 1:
            return None
        if ways and self._has("more") and not self.comparing:  # "who sells more on average, A or B"
            larger = self._larger_of_values()
            return larger if larger.of is None else replace(larger, aggregate=ways[0])
        if ways:
            return self._total(ways[0])
        if orders:
            return self._put_first(*orders[0])
        if (self._has("more") or self._has("apart")) and not self.comparing:
            return self._larger_of_weekdays() if self._compares_weekdays() else self._larger_of_values()
        different = self._has("count") and self._tells_different()
        query = self._count() if different else self._price_of_one() or self._plainly()
        return self._compared_figure(query) if self.comparing else query

    def _plainly(self) -> RecordQuery | None:
        """Without a word for the most, the mean or the sum."""
        adds_up = any(vocabulary_of(self.spec, name).adds_up for name in self.figures)
        told = self._has("value") or (self.keys and self.period)  # or the weather, and how warm it got
        if self.figures and (self.named or (self._has("much") and not (adds_up or self.kind) and told)):
            return RecordQuery(limit=MOST_LISTED)  # how high is the demand for linen aprons
        much, many = self._asks_what_is_spent() or any(map(self._has, ("much", "total", "more"))), self._has("count")
        busier = any(token.stem in word_set("busier") for token in self.tokens)
        of_kind = self.kind is not None or (self.comparing and (self._has("value") or busier))
        if self._has("more") and of_kind and not self.figures:
            much, many = False, True  # more bookings in January or in February
        summed = [name for name in self._measured_fields() if vocabulary_of(self.spec, name).adds_up]
        ours = self._has("own") or any(token.stem in word_set("us") for token in self.tokens)
        if much and not summed and ours and self.period is not None and not self._measured_fields():
            summed = self._added_up(self._usual())  # how much have we taken
        named = bool(self.figures or self._fields("high", "low", "unit"))
        counted = self._counted_token()
        of_a_key = counted is not None and counted.meaning is not None and counted.meaning.name in self.keys
        bounds = bool(self.figures) and {*self.figures} <= {*self.bounded}  # "how many have at least four beds"
        whole = (self.kind is None and not bounds) or self._counts_a_figure()
        many_of_it = many and named and not of_a_key and whole
        per_group = self.group is not None and not many and self.figures == summed  # rainfall per year
        pieces = self._pieces_counted() if many else []
        alone = self._measured_alone() if self.group is None and not many else []
        way, of = Aggregate.SUM, pieces or alone or (summed if much or many_of_it or per_group else [])
        if much and self.period is not None and not (adds_up or self.kind or self.group or of):
            way, of = Aggregate.AVERAGE, self.figures  # how warm was it on 4 July
        if len(of) == 1:
            return self._aggregate_over(way, of[0])
        if much or (self.group is not None and not many and (self.figures or self._fields("unit"))):
            return None  # "kilos per month" is no number of trips
        if self.group is None and not many:
            self.group, self.grain = self._listed_field()
        if many or self.group is not None:
            return self._count()
        if self._has("rank") or self._has("each"):
            return RecordQuery(order=self.figures[0], limit=MOST_RANKED) if len(self.figures) == 1 else None
        return RecordQuery(limit=MOST_LISTED)

    def _measured_alone(self) -> list[str]:
        """What adds up, where the question begins with it and says only of which records: "kilos of fish from the south pier".

        A price is that of one, but for its unit: "price of the walnut board", "euros from Ada".
        """
        first, named = self.tokens[0].role if self.tokens else "", self._measured_fields()
        narrowed = self.period is not None or self._has("value")
        if first not in ("field", "unit") or not narrowed or self.named or {*self.bounded} & {*named}:
            return []
        plain = first == "field"
        price = price_field(self.spec) if plain else None
        adds = [vocabulary_of(self.spec, each).adds_up if plain else may_be_summed(self.spec, each) for each in named]
        return named if all(adds) and price not in named else []

    def _price_of_one(self) -> RecordQuery | None:
        """The records of one of what a value names: "how much is a short cut" is no total.

        Of any number, where what adds up is no money: "how much is the walnut board", where so many were sold.
        """
        pairs, price = pairwise(self.tokens), price_field(self.spec)
        one = any(other.role == "value" and before.text.casefold() in word_set("one") for before, other in pairs)
        added = self._has("sum") or self._has("total") or self.period is not None
        said = (*self.figures, *self._fields("high", "low", "unit", "total"))
        summed = [name for name in self._measured_fields() if vocabulary_of(self.spec, name).adds_up]
        others = summed and not any(in_money(vocabulary_of(self.spec, name).unit) for name in summed)
        costs = self._has("value") or any(token.stem in ("is", "are") for token in self.tokens)
        of_a_sort = not summed and self._has("value")  # "how much are the tents"
        priced = (others or of_a_sort) and price is not None and costs and not (said or self._has("more"))
        if not self._has("much") or added or not (one or priced):
            return None
        self.figures += [price] if priced and price is not None else []
        return RecordQuery(limit=MOST_LISTED)

    def _asks_what_is_spent(self) -> bool:
        """Whether the total of a figure is asked for by "what": "what has Ada spent"."""
        worth = any(token.stem in word_set("worth") and token.role == "field" for token in self.tokens)
        worth &= self.kind is not None or self.period is not None or self._has("on_weekday")
        spent = worth or (self._has("field") and any(token.stem in word_set("spends") for token in self.tokens))
        return spent and not self.named and any(token.stem in word_set("what") for token in self.tokens[:1])

    def _listed_field(self) -> tuple[str | None, Grain | None]:
        """The field whose values are asked for, and by what a time is grouped: "what categories are there", "which kinds of
        weather", "what numbers of doors", "which skippers had a late trip", "which months had snow"."""
        before = [*takewhile(lambda token: token.meaning is None or token.role == "own", self.tokens)]
        first, *rest = [*self.tokens[len(before) :], None]
        if first is None or not before or self.named or not self._names_one_list(first.name):
            return None, None
        phrase = [first, *takewhile(lambda token: token is not None and token.inside, rest)]
        several = any(token and token.text.casefold() != token.stem for token in phrase)
        sorts = any(token.stem in word_set("sorts") | word_set("different") for token in before)
        which = any(
            token.stem in word_set("which_of") | word_set("who") for token in before[:2]
        )  # "on which platforms"
        asked = which and (several or sorts)
        figures = {*self.figures} - {*self.bounded}
        narrowed = self.period is not None or bool(self._has("value") or self.bounded or self._has("on_weekday"))
        in_time = first.role in GRAINS and not self.keys and self.spec.dated_types != ()
        if asked and in_time and narrowed and not figures:
            return "date", Grain(first.role)
        if first.role != "field" or {*self.keys, *figures} != {first.name}:
            return None, None
        numbered = not narrowed and any(token.text.casefold() == "numbers" for token in before)
        told = not figures or (numbered and self._tells_apart(first.name, len(before) - 3))
        return (first.name if asked and told else None), None

    def _names_one_list(self, field: str) -> bool:
        """Whether what narrows a list of a field's values is of each of its records: not "those without a late trip", nor "with
        Ada and with Bo", but "besides Ada"."""
        denied = {each.name for each in self._denied_values()}
        return denied <= {field} and not (self._has("not") and not denied) and (self._has("or") or not self._rivals())

    def _count(self) -> RecordQuery | None:
        named = (token.meaning.name for token in self.tokens if token.meaning and token.role in ("field", "count"))
        before = next(named, "")
        if self.group is None and before in self.keys:
            self.group = before  # all categories with their number of products
        counted = self._counted_token()
        if self.group is not None:
            others = counted is not None and counted.name in self.keys and counted.name != self.group
            return None if others else self._aggregate_over(Aggregate.COUNT, None)  # how many customers per stylist
        if (
            counted is not None
            and counted.meaning is not None
            and counted.role != "kind"
            and is_figure(self.spec, counted.name)
        ):
            if not self._tells_different():
                return None  # sizes are no number of records
            return RecordQuery(aggregate=Aggregate.COUNT, group=counted.meaning.name, limit=MOST_GROUPS)
        if counted is not None and counted.role in GRAINS and (self.kind or self.keys or self._has("value")):
            grain = Grain(counted.role)
            return RecordQuery(
                aggregate=Aggregate.COUNT, group="date", grain=grain, limit=MOST_GROUPS, order="date", descending=False
            )
        name = counted.meaning.name if counted is not None and counted.meaning is not None else ""
        value = counted is not None and counted.role == "value"  # how many tents were booked by phone
        if not self._asks_how_often() and (
            name in self.keys or (self.kind is None and len(self.keys) == 1 and not value)
        ):  # how many stylists
            key = name if name in self.keys else self.keys[0]
            return RecordQuery(aggregate=Aggregate.COUNT, group=key, limit=MOST_GROUPS)
        asks_which = any(
            one.text.casefold() in word_set("joins") and other.stem in word_set("who") | word_set("which_of")
            for one, other in pairwise(self.tokens)
        )
        return RecordQuery(limit=MOST_LISTED) if asks_which else RecordQuery(aggregate=Aggregate.COUNT)

    def _asks_how_often(self) -> bool:
        """Whether it is asked how often something was: "how many times did somebody look into the hives" is no number of hives."""
        often = ("often", "time", "frequently")
        return any(
            token.role == "count" and any(other.stem in often for other in self.tokens[place + 1 : place + 3])
            for place, token in enumerate(self.tokens)
        )

    def _pieces_counted(self) -> list[str]:
        """The figure that says how many there are of what is counted by its name: "how many steel hinges do we have"."""
        counted, stock = self._counted_token(), stock_field(self.spec)
        by_name = counted is not None and counted.role == "value" and counted.name in self.spec.fields
        other = self.kind or self.group or self.figures or self.period or self._values_of(stock or "")
        whole = by_name and counted is not None and self.spec.fields[counted.name] is FieldType.KEYWORD
        return [stock] if stock and whole and not other and not self._tells_different() else []

    def _tells_different(self) -> bool:
        return any(token.stem in word_set("different") for token in self.tokens)

    def _counted_token(self) -> Token | None:
        """What stands behind "how many"; of two words the second: "customer bookings"."""
        place = next((at for at, token in enumerate(self.tokens) if token.role == "count"), len(self.tokens))
        plain = next((token for token in self.tokens[place + 1 :] if not token.inside), None)
        if plain is not None and plain.text.casefold() in word_set("things"):
            return None
        behind = [token for token in self.tokens[place + 1 :] if token.meaning]
        others = [*dropwhile(lambda token: token.role == "value", behind)]
        if len(others) < len(behind) and others and others[0].role == "field" and others[0].name in self.keys:
            between = self.tokens[self.tokens.index(behind[0]) + 1 : self.tokens.index(others[0])]
            if all(token.inside or token.role == "value" or token.stem in word_set("joins") for token in between):
                return others[0]  # "how many French and Italian guests"
        if len(behind) > 1 and behind[1].role == "kind":
            between = self.tokens[self.tokens.index(behind[0]) + 1 : self.tokens.index(behind[1])]
            if not any(token.stem in says_nothing() for token in between):
                return behind[1]
        return behind[0] if behind else None

    def _total(self, aggregate: Aggregate) -> RecordQuery | None:
        """A sum or a mean; of what is not said where the kind has one figure that adds up."""
        if self._has("count") and aggregate is Aggregate.AVERAGE:
            return None
        plain = [token for token in self.tokens if not token.inside]
        kinds = any(
            first.role == "sum" and first.stem not in ("value", "one") and second.role == "kind"
            for first, second in pairwise(plain)
        )
        alone = only_figure(self.spec) if kinds and self._names_one_kind() else None  # "the total harvest"
        self.figures = self.figures or [name for name in [alone] if name]
        if (self._has("count") or kinds) and not (self.figures or self._counts_a_figure()):  # total bookings
            return self._count()
        each = any(token.role == "sum" and token.stem == "one" for token in self.tokens)  # "one of every tent"
        each |= self._has("much")  # "how much are both together"
        each |= any(token.stem in word_set("comes") for token in self.tokens)  # "what did the tents come to"
        each |= any(token.stem in word_set("what") for token in self.tokens)  # "what is every tent in total"
        price = [name for name in [price_field(self.spec)] if each and name]
        said = self.figures or self._fields("high", "low", "unit")
        named = (price if not said else []) or self._measured_fields()
        told = self._has("value") or self._has("kind") or self._asks_which()
        if not named and aggregate is Aggregate.AVERAGE and told:
            named = [name for name in [only_figure(self.spec)] if name]  # "the average of IBM"
        if len(named) != 1:
            return None
        most, least = self._has("most"), self._has("least")
        if self._asks_which() or self._puts_in_order():  # "which pool is warmest on average", "priciest first"
            most, least = most or bool(self._fields("high")), least or bool(self._fields("low"))
        best = vocabulary_of(self.spec, named[0]).best
        rated = self._has("best") or self._has("worst")
        if rated and best is not None:
            most = (best == "high") == self._has("best")
            least = not most
        if not (most or least):
            return None if rated else self._aggregate_over(aggregate, named[0])
        if self.group is None:  # "which stylist has the highest average"
            self.group, self.grain = self._subject(named[0])
            if self.group is None and self._asks_who_spends():
                self.group = people_field(self.spec)
        if self.group is None:
            return None
        by_group = self._aggregate_over(aggregate, named[0])
        limit = MOST_GROUPS if self._puts_in_order() else self._number_wanted() or 1
        return replace(by_group, limit=limit, order=None, descending=most)

    def _names_one_kind(self) -> bool:
        return all(token.text.casefold() == token.stem for token in self.tokens if token.role == "kind")

    def _asks_who_spends(self) -> bool:
        """Whether those are asked for who pay or owe: "who paid the most in total"."""
        spends = any(token.stem in word_set("spends") | word_set("owes") for token in self.tokens)
        return spends and self.tokens[0].stem in word_set("who")

    def _measured_fields(self) -> list[str]:
        """The fields that a sum or a mean may be of: those that are named, else by their unit, else the kind's own."""
        if named := list(dict.fromkeys((*self.figures, *self._fields("high", "low")))):
            return named
        if named := [name for name in self._fields("unit") if is_figure(self.spec, name)]:
            return named
        return self._added_up(self.kind or self._kind_meant(RecordQuery(), self._values() or ()))

    def _added_up(self, kind: str | None) -> list[str]:
        """The figures of a kind that add up."""
        words = self.spec.vocabulary.items()
        return [name for name, each in words if each.adds_up and each.kind == kind and kind is not None]

    def _counts_a_figure(self) -> bool:
        """How many sales, how many pounds: the figure stands right behind the words that ask, and adds up.

        And how many pieces were sold.
        """
        asking = False
        last = next((token for token in reversed(self.tokens) if token.meaning), None)
        for asks, token in pairwise(token for token in self.tokens if not token.inside):
            # "how many did our listings sell"
            does = token.stem in word_set("does") and last is not None and last.name in self.figures
            if asks.role == "count" and (does or token.text.casefold() in word_set("pieces")):
                return len(self.figures) == 1 and vocabulary_of(self.spec, self.figures[0]).adds_up
        for token in self.tokens:
            if asking and figure(token.text) is not None:
                return False  # "how many 90 minute lessons"
            if asking and token.meaning is not None:
                return token.role in ("field", "unit") and vocabulary_of(self.spec, token.meaning.name).adds_up
            asking = token.role == "count" or (
                asking and token.said and token.text.casefold() not in word_set("things")
            )
        return False

    def _kinds(self) -> set[str]:
        """The kinds that are named, but for those that another one consists of."""
        named = {each.name for each in self._meanings_with("kind")}
        for kind in sorted(named):
            held = {stems(phrase) for phrase in self.spec.records[kind].holds}
            named -= {
                other for other in named - {kind} if held & {stems(phrase) for phrase in self.spec.records[other].words}
            }
        return named
