"""A question about records as a query that a small model reads (parser.py), where the rules (planning.py) find none.

What it reads is checked as a query is that a model writes: its fields are those of the index, its values those that the
asker's records have, and what it is not certain of is no query.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import convert
from msgspec.structs import replace

from rag_app.answering.records.asking import (
    asks_advice,
    asks_possession,
    bounds_somebody,
    counted_by_sort,
    figures_named,
    without_period,
)
from rag_app.answering.records.measures import has_other_unit
from rag_app.answering.records.parser import Item, parse
from rag_app.answering.records.plans import Plan
from rag_app.answering.records.settling import THERE, dated_field, doers, stands_in_role
from rag_app.answering.records.titles import read_names
from rag_app.answering.records.wording import (
    BEGINNING,
    Meaning,
    Token,
    figure,
    figures_in,
    is_figure,
    name_field,
    people_field,
    place_fields,
    read_words,
    stems,
    vocabulary_of,
    word_set,
)
from rag_app.answering.records.written_queries import WrittenFilter, WrittenQuery, plan_of
from rag_app.domain import FieldType, Question
from rag_app.retrieval.filters import EQ, condition
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.records import NUMBER_FIELDS, Aggregate, NamedValue

CERTAIN = 0.7
"""At which five of six queries were read rightly on tables that were put aside."""
_WORDS = 4  # of a kind or field that the model is shown
_BOUND_PATTERN = re.compile(r"(==|<=|>=|<|>)(-?\d+(?:\.\d+)?)")
_SORTS = frozenset({*NUMBER_FIELDS, FieldType.KEYWORD, FieldType.BOOLEAN, FieldType.TAGS})
_UNREAD = re.compile(
    r"\b(this|last|next|since|over the|in)\s+(morning|night|afternoon|evening|season|summer|spring|winter|autumn|fall|quarter)\b|\bdozens?\b|\d[km]\b",
    re.I,
)


def read_plan(question: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> Plan | None:
    """The question as a plan; None where the model finds no query, is not certain of it, or it does not fit the index."""
    period = question.period
    read = parse(question.text, period.span if period is not None else None, items_of(question.text, spec, values))
    query, named = read.query, _record_named(read.title, values)
    tokens = read_words(question.text, spec)
    if query is None or read.certainty < CERTAIN or _says_more(question, tokens, query, spec):
        return None
    if _takes_wrong_field(question, tokens, query, spec, values) or _leaves_words(question, query, spec):
        return None
    equal = [each.field for each in query.filters if each.operator == "=="]
    if len(equal) > len({*equal}) or (read.title and (named is None or period is not None)):
        return None
    named_kinds = {token.meaning.name for token in tokens if token.meaning is not None and token.role == "kind"}
    query.kind = named_kinds.pop() if len(named_kinds) == 1 else query.kind
    query.filters = [_fit_to_field(each, spec) for each in query.filters]
    plan = plan_of(query, question, spec, values)
    if plan is None or plan.drops(figures_named(tokens, spec)):
        return None
    shown = dict.fromkeys(each for each in (*read.show, *plan.figures) if each in spec.fields)
    plan = replace(plan, figures=tuple(shown))
    if named is not None:
        filters = (*plan.query.filters, condition("source_id", EQ, named.value))
        told = (*plan.conditions, f"title “{named.title}”")
        plan = replace(plan, query=replace(plan.query, filters=filters), conditions=told)
    left = any(token.is_left for token in tokens)  # "what do your tents cost" is no list of all that is one's own
    narrowed = plan.query.filters != plan.everything.filters or (query.own and not left) or query.order is not None
    return plan if narrowed or query.aggregate is not None or period is not None else None


def items_of(text: str, spec: IndexSpec, values: Sequence[NamedValue]) -> tuple[Item, ...]:
    """What the model is shown of an index beside a question: kinds, fields, and values that the question may mean."""
    items = [Item("kind", name, ", ".join(_sort_by_mention(kind.words, text))) for name, kind in spec.records.items()]
    items.append(Item("date", "date", "date, day"))
    for name, type_ in spec.fields.items():
        words = vocabulary_of(spec, name)
        if type_ not in _SORTS or words.own:
            continue
        meant = words.values.get("true", ())  # of a field that holds or not
        called = [*_sort_by_mention((*words.words, *words.totals, *words.earned, *meant), text)] or [
            name.replace("_", " ")
        ]
        for end, told in () if words.levels else (("most", words.high), ("least", words.low)):
            called += [f"{end}: {phrase}" for phrase in _sort_by_mention(told, text)[:1]]
        unit = f" ({words.unit})" if words.unit else ""
        items.append(Item(type_, name, ", ".join(called) + unit, kind=words.kind or ""))
        if type_ is not FieldType.BOOLEAN:
            items += _values_of(name, text, spec, values)
    return tuple(items)


def _values_of(name: str, text: str, spec: IndexSpec, values: Sequence[NamedValue]) -> Iterator[Item]:
    words = vocabulary_of(spec, name)
    field, kind = (*words.words, name.replace("_", " "))[0], words.kind or ""
    for value, phrases in words.values.items():
        if value == THERE:
            continue
        plain = [value] if spec.fields[name] is FieldType.KEYWORD else []
        told = ", ".join([*plain, *_sort_by_mention(phrases, text)[:2]])
        yield Item("value", name, f"{told} : {field}", value, kind)
    known = dict.fromkeys(each.value for each in values if each.field == name)
    yield from (Item("value", name, f"{each} : {field}", each, kind) for each in known if each not in words.values)


def _sort_by_mention(phrases: Sequence[str], text: str) -> Sequence[str]:
    said = {*stems(text)}
    return sorted(phrases, key=lambda phrase: not said & {*stems(phrase)})[:_WORDS]


def _fit_to_field(written: WrittenFilter, spec: IndexSpec) -> WrittenFilter:
    """A condition with the operator and the value that its field takes."""
    name, kind = written.field, spec.fields[written.field]
    if kind in NUMBER_FIELDS and (
        bound := _BOUND_PATTERN.fullmatch(str(written.value))
    ):  # the index' words: "rising" for ">0"
        return convert({"field": name, "operator": bound[1], "value": float(bound[2])}, WrittenFilter)
    tagged = kind is FieldType.TAGS and written.operator == "=="
    return WrittenFilter(name, "contains", written.value) if tagged else written


def _says_more(question: Question, tokens: Sequence[Token], query: WrittenQuery, spec: IndexSpec) -> bool:
    """Whether the question says what no such query does: another time, a figure that is not read, different ones, a person who is not named."""
    said = {*stems(question.text)}
    differs = query.group is None and word_set("different") & said
    ahead = question.period is None and {token.role for token in tokens} & {"next", "ahead"}
    values = [{*stems(str(each.value))} for each in query.filters]
    points_back = word_set("persons") & said and not any(len(words) > 1 and words <= said for words in values)
    bare = without_period(question.text, question.period)
    of_days = figures_in(question.text) - figures_in(
        bare
    )  # "the best of 2015 and the worst of 2015" limits nothing to 2015
    dated = any(each.value in of_days for each in query.filters)
    each = [token for token in tokens if token.role == "each"]
    listed = query.order is not None and all(token.stem in word_set("prepositions") for token in each)
    rate = query.group is None and bool(each) and not listed  # "the price per night", but "the top 5 by price"
    in_time = {token.role for token in read_words(bare, spec)} & {"newest", "oldest"}
    first = in_time and query.aggregate is not None  # "the first guest of each skipper" is no number of trips
    missing = word_set("missing") & said and not any(word_set("missing") & words for words in values)
    others = any(token.is_left and token.stem in word_set("others") for token in tokens)
    further = (
        differs
        or others
        or asks_advice(question.text)
        or ahead
        or points_back
        or dated
        or rate
        or first
        or missing
        or has_other_unit(question.text, spec)
    )
    return bool(further or _UNREAD.search(bare))


def _takes_wrong_field(
    question: Question,
    tokens: Sequence[Token],
    query: WrittenQuery,
    spec: IndexSpec,
    values: Sequence[NamedValue],
) -> bool:
    """Whether numbers that records go by would make a total, a figure that is asked for is counted, or a field is not the
    one that is meant."""
    adds_names = query.of is not None and not is_figure(spec, query.of)
    counts_figure = query.aggregate is Aggregate.COUNT and _counts_figure(tokens, spec)
    return (
        adds_names
        or counts_figure
        or _asks_of_fields_alone(question, query, spec)
        or _takes_wrong_role(tokens, query, spec, values)
    )


def _takes_wrong_role(
    tokens: Sequence[Token], query: WrittenQuery, spec: IndexSpec, values: Sequence[NamedValue]
) -> bool:
    """Whether nobody knows whose records are meant: a name of two fields, "who" of no field that is named, things that somebody
    has."""
    for each in query.filters:
        of = {
            known.field
            for known in values
            if known.value == each.value and spec.fields.get(known.field) is FieldType.KEYWORD
        }
        if len(of) > 1 or not stands_in_role(each.field, tokens, spec):
            return True
    who = any(token.stem in word_set("who") for token in tokens[:1])
    ranks = any(token.role in ("most", "least") for token in tokens)
    named = {token.name for token in tokens if token.role == "field"} | doers(tokens, spec) | {people_field(spec)}
    nobody = who and ranks and query.group not in named - {None}
    leads = word_set("which_of") | word_set("sorts") | word_set("partitive") | word_set("before_days")
    asked = next((token for token in tokens[:5] if token.stem not in leads), None)
    place = query.group in place_fields(spec)
    other = query.group in spec.fields and query.group not in named and not (who or place)
    sort = (
        other and asked is not None and asked.is_left
    )  # "what kind of treatment" is no field that is called otherwise
    unclear = asks_possession(tokens, spec) or bounds_somebody(tokens, spec)
    return nobody or sort or unclear or counted_by_sort(tokens, spec) is not None


def _asks_of_fields_alone(question: Question, query: WrittenQuery, spec: IndexSpec) -> bool:
    """Whether it is asked that a field is there, of the days of another time than the date, or of what is not clear: the model
    knows none of these."""
    period, bare = question.period, without_period(question.text, question.period)
    tokens = read_names(bare, spec, ())
    filtered = {each.field for each in query.filters}
    states = [token for token in tokens if token.meaning is not None and token.meaning.value in (THERE, "==0")]
    there = any(token.meaning and (token.meaning.value == THERE or token.name not in filtered) for token in states)
    known = any(token.role == "unclear" for token in read_words(bare, spec))
    unclear = any(token.role == "unclear" for token in tokens) and not known
    before = question.text[: period.span[0]] if period is not None else ""
    return there or unclear or (before != "" and dated_field(read_names(before, spec, ()), spec) is not None)


def _leaves_words(question: Question, query: WrittenQuery, spec: IndexSpec) -> bool:
    """Whether no part of the query says a figure of the question, its "not", or what is compared with "than"."""
    tokens = read_names(without_period(question.text, question.period), spec, ())
    figures = {None, query.limit, *(each.value for each in query.filters)}
    denied = any(token.role == "not" for token in tokens)
    denies = any(each.operator not in ("==", "contains") or not each.value for each in query.filters)
    compares = "than" in question.text.casefold().split()
    unsaid = any(figure(token.text) not in figures for token in tokens if token.is_left)
    other = (
        _names_other_figure(tokens, spec) or _turns_round(tokens, query, spec) or _denies_unsaid(tokens, query, spec)
    )
    return ((denied or compares) and not denies) or unsaid or other or _doubts_flags(tokens, query, spec)


def _denies_unsaid(tokens: Sequence[Token], query: WrittenQuery, spec: IndexSpec) -> bool:
    """Whether the query denies a value that the question does not name: what "didn't go ahead" is not all that is not done."""
    said = {token.stem for token in tokens}
    meant = {token.meaning.value for token in tokens if token.role == "value" and token.meaning}
    denied = [each for each in query.filters if each.operator == "!=" and each.value not in meant]
    phrases = [(str(each.value), *vocabulary_of(spec, each.field).values.get(str(each.value), ())) for each in denied]
    return any(not any({*stems(phrase)} <= said for phrase in every) for every in phrases)


def _turns_round(tokens: Sequence[Token], query: WrittenQuery, spec: IndexSpec) -> bool:
    """Whether the query takes what does not hold yet for what does, or an end of an order for the best, which nobody knows."""
    held = {each.field for each in query.filters if each.value is True}
    rated = any(token.role in ("best", "worst") for token in tokens)
    best = vocabulary_of(spec, query.of or query.order).best
    return any(token.name in held and token.meaning == Meaning("value", token.name, "false") for token in tokens) or (
        rated and best is None and query.order is not None
    )


def _names_other_figure(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether a figure is told from others by a word that is not its own: the "purchase price", of a `repair_cost`."""
    for before, token in pairwise(token for token in tokens if not token.inside):
        name = stems(name_field(spec, token.name)) if token.role == "field" and is_figure(spec, token.name) else ()
        if before.is_left and len(name) > 1 and token.stem != name[0] and before.stem not in name:
            return True
    return False


def _doubts_flags(tokens: Sequence[Token], query: WrittenQuery, spec: IndexSpec) -> bool:
    """Whether a word that is left may be of what holds or not, and the query does not say it; or may deny what it says, of
    which the question has but a part: "we left the dog at home", of `dog_came`."""
    left = {token.stem for token in tokens if token.is_left and figure(token.text) is None}
    filtered = {each.field for each in query.filters}
    for name, kind in spec.fields.items():
        if kind is not FieldType.BOOLEAN or vocabulary_of(spec, name).own:
            continue
        words = vocabulary_of(spec, name)
        phrases = [name.replace("_", " "), *words.words, *(each for some in words.values.values() for each in some)]
        own = {word for phrase in phrases for word in stems(phrase)}
        partly = left & own and not any({*stems(phrase)} <= {token.stem for token in tokens} for phrase in phrases)
        begun = {word[:BEGINNING] for word in own if len(word) >= BEGINNING}
        unsaid = name not in filtered and any(word[:BEGINNING] in begun for word in left)
        if unsaid or (name in filtered and partly and left - own):
            return True
    return False


def _counts_figure(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether the name of a figure stands right behind "how many"."""
    pairs = pairwise(token for token in tokens if not token.inside)
    return any(one.role == "count" and other.role == "field" and is_figure(spec, other.name) for one, other in pairs)


def _record_named(title: str, values: Sequence[NamedValue]) -> NamedValue | None:
    """The only record whose title has all these words, or none beside them."""
    wanted = {*stems(title)}
    found = [each for each in values if wanted and each.title and wanted <= each.words]
    whole = [each for each in found if wanted == {*each.words}] or found
    return whole[0] if len(whole) == 1 else None
