"""What is asked of the records that the question before was about: "what did they come to?", "and the rest?", "the two together?".

The query for them has the conditions of the one before, whatever they are, and what the question says itself beside these.
"""

import re
from collections.abc import Collection, Sequence

from llama_index.core.vector_stores.types import MetadataFilter
from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.records.conditions import OPPOSITE, condition_text
from rag_app.answering.records.orders import MOST_LISTED
from rag_app.answering.records.plans import Contest, Plan
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Token,
    figure,
    is_figure,
    noun_of,
    read_words,
    stem,
    table_of,
    word_set,
)
from rag_app.domain import FieldType, Filters
from rag_app.retrieval.filters import EQ, IN, NE, all_of, any_of, condition
from rag_app.retrieval.index import IndexSpec

_OF_THEM = re.compile(
    r"\b(?:of|among|amongst|from) (?:them|those|these|(?:the|these|those) (?:two|three|four)|both)\b|\b(?:davon|darunter|d['’]entre (?:eux|elles)|parmi (?:eux|elles))\b",
    re.I,
)
_THEY = re.compile(
    r"\b(?:they|them|those|these|both|(?:the|these|those) (?:two|three|four)|the lot|(?:only|just) the ones?)\b", re.I
)
_IT = re.compile(r"\b(?:that|this|it)\b", re.I)
_WHICH_ONE = re.compile(r"\bwhich (ones?)\b", re.I)
_TWO = re.compile(r"\b(?:both|(?:the|these|those) two|die beiden|beide|les deux)\b", re.I)
_IN_LIST = re.compile(r"\bthe (first|second|third|fourth|fifth|last) (?:one|of (?:them|those|these))\b", re.I)
_EACH = re.compile(r"\b(?:each|every ?one) of them\b|\bthey each\b", re.I)
_PERSON = re.compile(r"\b(?:they|them|their)\b", re.I)
_WHOSE = re.compile(r"\W*(?:(?:and|ok|so)\W+)?(?:who|whose|which (?:people|persons))\b", re.I)
_THAN_DAYS = re.compile(
    r"(?:(?:is|was|are|were) )?(?:that|this|it|they|those) (?P<way>more|less|fewer|higher|lower|better|worse|up|down)(?P<open> or \w+)? (?:than|on|from|against) (?P<days>.+?)\W*",
    re.I,
)
_MEASURES = frozenset({"sum", "much", "count", "average", "more", "each"}) | SUPERLATIVES
_TOTALS = frozenset({"sum", "much", "count", "average"})
_TOTAL_ROLES = _MEASURES | {"field", "total", "unit", "own", "all"}
_EXCLUSION_ROLES = frozenset({"not", "left_out"})


def points_at_those(text: str, before: str, spec: IndexSpec) -> bool:
    """Whether a question is of the records that the one `before` was about, and names none itself."""
    roles = {token.role for token in read_words(text, spec)} - {""}
    if _EACH.search(text) or "kind" in roles or (_PERSON.search(text) and _WHOSE.match(before)):
        return False
    several = _THEY.search(text) is not None and bool(roles & _MEASURES)
    which = _WHICH_ONE.search(text) is not None and "more" in roles
    bare = bool(roles & _TOTALS) and roles <= {*_TOTALS, "own", "all"}
    it = _IT.search(text) is not None and "sum" in roles and roles <= _TOTAL_ROLES
    placed = point_in_list(text)[0] != 0
    return placed or _OF_THEM.search(text) is not None or several or which or bare or it


def points_at_several(text: str) -> bool:
    return _PERSON.search(text) is not None


def counts_them(text: str, spec: IndexSpec) -> bool:
    """Whether nothing but their number is asked for: "how many are they?"."""
    tokens = read_words(text, spec)
    return {token.role for token in tokens if token.meaning} == {"count"} and not any(t.is_left for t in tokens)


def speaks_of_two(text: str) -> bool:
    """Whether two things are meant, of which each was asked for: "the two together"."""
    return _TWO.search(text) is not None


def adds_figures(text: str, spec: IndexSpec) -> bool:
    """Whether nothing but a total is asked for: "together?", "how much is that in all"."""
    tokens = read_words(text, spec)
    roles = {token.role for token in tokens if token.meaning}
    return "sum" in roles and roles <= {"sum", "much", "count"} and not any(token.is_left for token in tokens)


def sets_them_apart(tokens: Sequence[Token]) -> bool:
    """Whether only the difference is asked for, or who of two has more: "what's the gap?", "who had more?"."""
    roles = {token.role for token in tokens if token.meaning}
    apart = roles & {"apart", "more"} and roles <= {"apart", "more", "much", "count"}
    return bool(apart) and not any(token.is_left or (token.role == "more" and token.name) for token in tokens)


def other_days(text: str) -> tuple[str, Contest] | None:
    """The days with which a figure is compared, and which way; None where nothing else is said.

    >>> other_days("is that more or less than the week before?"), other_days("Was it fewer than in May?")
    (('the week before', Contest(sides=(), way='more', claims=False, apart=False)), ('in May', Contest(sides=(), way='less', claims=True, apart=False)))
    """
    found = _THAN_DAYS.fullmatch(text)
    if found is None:
        return None
    less = found["way"].lower() in word_set("less") | {"worse", "down"}
    return found["days"], Contest((), "less" if less else "more", claims=not found["open"])


def weighs_one(text: str, spec: IndexSpec) -> bool:
    """Whether one of several is asked for that has more or less: "which one is cheaper?"."""
    return any(token.role == "more" for token in read_words(text, spec))


def say_those(text: str, plan: Plan, spec: IndexSpec) -> str:
    """A question with the name of the records in place of what points at them.

    >>> from rag_app.retrieval.records import RecordQuery
    >>> spec = IndexSpec.model_validate({
    ...     "name": "x", "source_types": ["a"], "default_source_type": "a", "fields": {},
    ...     "records": {"boat": {"words": ["boat"], "source_types": ["a"]}}})
    >>> boats = Plan(RecordQuery(), RecordQuery(), "boat")
    >>> say_those("how many of them are red?", boats, spec), say_those("which one is cheaper?", boats, spec)
    ('how many of all the boats are red?', 'which boat is cheaper?')
    >>> say_those("what did they come to?", boats, spec), say_those("the total?", boats, spec)
    ('what did all the boats come to?', 'the total of all the boats?')
    """
    kind = spec.records[plan.kind or ""]
    one, several = noun_of(kind, 1), f"all the {noun_of(kind)}"
    for those, name in (_OF_THEM, f"of {several}"), (_WHICH_ONE, f"which {one}"), (_THEY, several), (_IT, several):
        if found := those.search(text):
            return f"{text[: found.start()]}{name}{text[found.end() :]}"
    bare = text.rstrip(" ?!.")
    return f"{bare} of {several}{text[len(bare) :]}"


def leaves_out(tokens: Sequence[Token]) -> bool:
    """Whether a question only leaves out some of those: "without the late ones"."""
    meant = {token.role for token in tokens if token.meaning}
    plain = meant <= {*_EXCLUSION_ROLES, "value", "or"} and not any(token.is_left for token in tokens)
    return plain and "value" in meant and bool(meant & _EXCLUSION_ROLES)


def begins_without(text: str, spec: IndexSpec) -> bool:
    """Whether a question begins with what leaves something out: "except Ada's"."""
    return any(token.role == "not" for token in read_words(text, spec)[:1])


class Further(Struct, frozen=True):
    """What of a list is asked for that was not told: `all` of it, or the `number` behind that, 0 for the rest."""

    all: bool = False
    number: int = 0


def asks_further(text: str, spec: IndexSpec) -> Further | None:
    """What more of a list is wished for, and nothing else.

    >>> spec = IndexSpec(name="x", source_types=("a",), default_source_type="a")
    >>> asks_further("show me the rest, please", spec), asks_further("the next five", spec), asks_further("list all of them", spec)
    (Further(all=False, number=0), Further(all=False, number=5), Further(all=True, number=0))
    >>> [asks_further(each, spec) for each in ("which is next?", "and the rest of the red ones?", "where do we have more?")]
    [None, None, None]
    """
    tokens = [token for token in read_words(text, spec) if not token.inside]
    rest = [token for token in tokens if token.stem in word_set("rest")]
    more = [token for token in tokens if token.role == "next" or token.stem in word_set("further")]
    whole = [token for token in tokens if token.role == "all" or token.stem in word_set("all")]
    numbers = [value for token in tokens if token not in rest and (value := figure(token.text)) is not None]
    known = [*rest, *more, *whole]
    plain = all(
        token in known or token.role in ("own", "kind") or token.is_unmeant or figure(token.text) for token in tokens
    )
    if not plain or not known or len(numbers) > 1 or (numbers and not more):
        return None
    if whole and not (rest or more):
        return Further(all=True)
    alone = not (rest or numbers) and any(token.role == "next" for token in more)  # "who is next"
    asks = word_set("which_of") | word_set("who") | word_set("is") | word_set("does")
    which = any(token.stem in asks for token in tokens) and not rest  # "where do we have more?"
    return None if alone or which else Further(number=int(numbers[0]) if numbers else 0)


def lists_them(text: str) -> bool:
    """Whether records are to be named, and not counted: "and the rest, who are they?"."""
    return any(stem(word) in word_set("which_of") | word_set("who") | {"list", "show", "name"} for word in text.split())


def may_be_narrowed(plan: Plan) -> bool:
    """Whether the records of a plan are those that meet its conditions, and more can be asked of them."""
    special = plan.levels or plan.every or plan.never or plan.bound or plan.contest or plan.everybody
    sized = plan.query.least or plan.query.most
    return plan.kind is not None and plan.query.group is None and not (special or sized)


def is_first_few(plan: Plan) -> bool:
    """Whether a plan lists only what stands first in an order."""
    return plan.is_list and plan.query.order is not None and plan.query.limit < MOST_LISTED


def narrow_to_found(plan: Plan, sources: Sequence[str], spec: IndexSpec) -> Plan:
    """The same of those records alone that stood first in an order."""
    name = condition_text(condition(plan.query.order or "date", EQ, ""), spec).strip()
    said = f"rank 1 to {len(sources)} by {name}" if len(sources) > 1 else f"rank 1 by {name}"
    filters = (*plan.query.filters, condition("source_id", IN, sorted(sources)))
    query = replace(plan.query, filters=filters, order=None, limit=MOST_LISTED)
    ranked = tuple(each for each in (plan.query.order,) if each and is_figure(spec, each))
    return replace(
        plan,
        query=query,
        conditions=(*plan.conditions, said),
        single=False,
        place=1,
        theme=True,
        figures=plan.figures or ranked,
    )


def point_in_list(text: str) -> tuple[int, str]:
    """The place in a list that a question points at, 0 for none, -1 for the last, and the question with "those" instead.

    >>> point_in_list("what did the second one pay?"), point_in_list("the last of them"), point_in_list("the second best")
    ((2, 'what did those pay?'), (-1, ''), (0, 'the second best'))
    """
    found = _IN_LIST.search(text)
    if found is None:
        return 0, text
    place = {"first": 1, "last": -1}.get(found[1].lower()) or int(table_of("ordinals")[found[1].lower()])
    rest = f"{text[: found.start()]}those{text[found.end() :]}"
    return place, rest if re.fullmatch(r"those\W*", rest) is None else ""


def narrow_to_place(plan: Plan, place: int, source: str) -> Plan:
    """The same of the one record that stands at a place of a list."""
    said = f"number {place} of the list" if place > 0 else "the last of the list"
    query = replace(plan.query, filters=(*plan.query.filters, condition("source_id", EQ, source)), order=None)
    return replace(plan, query=query, conditions=(*plan.conditions, said), skip=0, whole=False)


def narrow_further(before: Plan, plan: Plan, *, of: str | None = None) -> Plan | None:
    """What a plan asks, of the records of the one before it; None where they are not of one kind.

    A total is `of` the figure that the question before was about, where this one names none.
    """
    if before.kind != plan.kind:
        return None
    filters = (*plan.query.filters, *_subtract(before.query.filters, plan.query.filters))
    having = tuple(dict.fromkeys((*plan.query.having, *before.query.having)))
    own, weekdays = plan.query.own or before.query.own, before.query.weekdays or plan.query.weekdays
    query = replace(plan.query, filters=filters, own=own, weekdays=weekdays, having=having, of=of or plan.query.of)
    query = replace(query, hours=query.hours or before.query.hours)
    others = (*plan.everything.filters, *_subtract(before.everything.filters, plan.everything.filters))
    everything = replace(plan.everything, filters=others, own=own, of=of or plan.query.of)
    told = [*before.conditions, *plan.conditions]
    period, dated = (before.period, before.dated) if before.period is not None else (plan.period, plan.dated)
    if before.period is not None and plan.period is not None and before.period.label != plan.period.label:
        told.append(f"date {plan.period.label}")
    return replace(
        plan,
        query=query,
        everything=everything,
        conditions=tuple(dict.fromkeys(told)),
        period=period,
        dated=dated,
        clock=plan.clock or before.clock,
    )


def narrow_to_others(plan: Plan, left: Plan) -> Plan | None:
    """The same of the records but for those that another plan leaves out."""
    narrowed = narrow_further(plan, left)
    if narrowed is None or not left.is_list:
        return None
    query = replace(plan.query, filters=narrowed.query.filters, having=narrowed.query.having)
    return replace(plan, query=query, conditions=narrowed.conditions)


def differ_in_one(first: Plan, second: Plan) -> bool:
    """Whether two plans are the same question about two things: "how heavy is A?", "and B?"."""
    one, other = (
        _subtract(each.query.filters, more.query.filters) for each, more in ((first, second), (second, first))
    )
    named = [each.key for each in (*one, *other) if isinstance(each, MetadataFilter) and each.operator in (EQ, IN)]
    return len(named) == len(one) + len(other) == 2 and len({*named}) == 1 and _alike(first, second)


def name_another(first: Plan, second: Plan, persons: Collection[str | None] = ()) -> bool:
    """Whether two plans ask the same of one thing each, of one field or of a record by its title: "how heavy is A?", "and B?".

    Both may be `persons`, of fields whose values are: a customer and a clerk.
    """
    one, other = (_subtract(each.query.filters, each.everything.filters) for each in (first, second))
    apart = [*_subtract(one, other), *_subtract(other, one)]
    named = [each.key for each in apart if isinstance(each, MetadataFilter) and each.operator in (EQ, IN)]
    alike = len({*named}) == 1 or "source_id" in named or {*named} <= {*persons}
    same = len(named) == len(apart) == 2 and alike
    asked = [
        (
            each.query.aggregate,
            each.query.of,
            each.query.order,
            each.query.group,
            each.query.grain,
            each.query.own,
            each.figures,
        )
        for each in (first, second)
    ]
    return same and len(one) == len(other) and asked[0] == asked[1] and first.place == second.place


def join_plans(first: Plan, second: Plan) -> Plan | None:
    """The records of either of two plans; None where one has all of the other's, or they are of two kinds."""
    one, other = (
        _subtract(each.query.filters, more.query.filters) for each, more in ((first, second), (second, first))
    )
    if not (one and other and _alike(first, second)):
        return None
    both = tuple(each for each in first.query.filters if each in second.query.filters)
    filters = (*both, any_of([all_of(one), all_of(other)]))
    whole = tuple(each for each in first.everything.filters if each in second.everything.filters)
    shared = [each for each in first.conditions if each in second.conditions]
    same = first.period == second.period
    sides = [
        ", ".join(
            [
                *(each for each in plan.conditions if each not in shared),
                *([] if same or plan.period is None else [plan.period.label]),
            ]
        )
        for plan in (first, second)
    ]
    query = replace(second.query, filters=filters, order=None, limit=MOST_LISTED)
    return replace(
        second,
        query=query,
        everything=replace(second.everything, filters=whole),
        conditions=(*shared, " or ".join(sides)),
        period=second.period if same else None,
        single=False,
        figures=tuple(dict.fromkeys((*first.figures, *second.figures))),
    )


def complement(plan: Plan, values: Sequence[str], spec: IndexSpec) -> Plan | None:
    """The records that a plan leaves out by its one condition, or by the one on the last of these fields; None without one."""
    beside = _subtract(plan.query.filters, plan.everything.filters)
    narrow = [each for each in beside if isinstance(each, MetadataFilter)]
    last = [each for each in narrow if values and each.key == values[-1]]
    alone = narrow if len(beside) == 1 else last
    if len(alone) != 1:
        return None
    (out,) = alone
    kind = spec.all_fields[out.key]
    bound = is_figure(spec, out.key) and out.operator in OPPOSITE
    if kind is FieldType.BOOLEAN:
        other = condition(out.key, EQ, not out.value)
    elif bound or (kind is FieldType.KEYWORD and out.operator in (EQ, NE)):
        other = condition(out.key, OPPOSITE[out.operator], out.value)
    else:
        return None
    return plan.swap(out, other, spec)


def list_records(plan: Plan) -> Plan:
    """The records of which a plan tells a number or a figure; groups stay what they are."""
    if plan.is_list or plan.query.group is not None:
        return plan
    bare = [
        replace(each, aggregate=None, of=None, order=None, limit=MOST_LISTED) for each in (plan.query, plan.everything)
    ]
    return replace(plan, query=bare[0], everything=bare[1])


def _alike(first: Plan, second: Plan) -> bool:
    one, other = first.query, second.query
    return (one.aggregate, one.of, one.having, one.weekdays, one.own, first.kind) == (
        other.aggregate,
        other.of,
        other.having,
        other.weekdays,
        other.own,
        second.kind,
    )


def _subtract(filters: Filters, others: Filters) -> Filters:
    """Those of the filters that are none of the others."""
    return tuple(each for each in filters if each not in others)
