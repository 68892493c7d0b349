"""Questions about records that take two queries: a share, a difference, more than the mean, so many a week.

Each is read as one or two questions that planning.py reads, so every word of it is understood as there.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from enum import StrEnum
from functools import partial
from math import ceil, floor

from dateutil.relativedelta import relativedelta
from llama_index.core.vector_stores.types import MetadataFilter
from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.records.asking import without_period
from rag_app.answering.records.conditions import condition_text
from rag_app.answering.records.planning import read_question
from rag_app.answering.records.plans import Plan
from rag_app.answering.records.titles import read_names
from rag_app.answering.records.wording import (
    Token,
    is_figure,
    name_field,
    only_figure,
    price_field,
    read_words,
    says_nothing,
    stems,
    vocabulary_of,
    without_phrases,
    word_set,
    year_field,
)
from rag_app.domain import FieldType, Filters, days_around
from rag_app.retrieval.filters import GT, LTE, fields_of
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period
from rag_app.retrieval.records import Aggregate, NamedValue, RecordQuery, RecordResult

MEAN = 987654321.0
"""Stands in a text for the mean that is not known yet."""

_SHARE = re.compile(
    r"\b(?:percentage|per ?cent|%|proportion|portion|share|slice|fraction|anteil|prozent|pourcentage)\s+(?:(?:of|der|des|de)\b|d['’])\s*(?P<rest>.+)",
    re.I,
)
_PART = re.compile(
    r"^\W*(?:what|which|how (?:large|big|great) an?|welcher|quelle) (?:part|portion|teil|partie)\s+(?=(?:of|der|des|de)\b|d['’])",
    re.I,
)
_VALUE = re.compile(r"\b(?:value|amount|worth|money|wert|valeur|montant)\b", re.I)
_IN_PERCENT = re.compile(r"[\s,]+(?:in|as an?|als)\s+(?:per ?cent(?:age)?|%|prozent)(?=\W*$)", re.I)
_OF_EACH = re.compile(r"\b(?:per|each|every|jede[nrs]?|pro|je|chaque)\b", re.I)
_DETERMINERS = re.compile(r"^(?:all\s+)?(?:of\s+)?(?:(?:the|these|those)\s+)?", re.I)
_ALL = re.compile(r"^\s*all\s+(?:of\s+)?", re.I)
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|had|got|get|gets|did|do|does|came|comes?|went|goes?|ended|sind|ist|war|waren|est|sont)\b",
    re.I,
)
_MAIN_VERB = re.compile(
    r"(?<=\w )(?:costs?|takes?|weighs?|lasts?|sold|sells?|paid|pays?|needs?|kosten|coûtent|coûte)\b", re.I
)
_LEFT_OUT = re.compile(
    r"\s*[.?!;,]\s*(?:please\s+)?((?:without|excluding|except|apart from|leaving out|not counting|ohne|sans)\b[^.?!;]*)\W*$",
    re.I,
)
"""What a share leaves out, said behind it."""
_MEAN_WORD = r"(?:the\s+|an?\s+)?(?:average|mean)\b"
_THAN_MEAN = re.compile(rf"\b(?P<lead>above|below|over|under|beneath|than)[\s-]+{_MEAN_WORD}", re.I)
_MORE_THAN_MEAN = re.compile(
    rf"\b(?P<way>more|less|fewer|higher|lower)\s+(?P<what>\w[\w ]{{0,40}}?)\s+than\s+{_MEAN_WORD}", re.I
)
_DIFFERENCE = re.compile(
    r"\b(?:the\s+)?(?:difference|diff|gap|spread|unterschied|différence|écart)\b|\b(?:by\s+)?how\s+(?:much|many)\b(?=\s+(?:more|less|\w{2,}er)\b)|\bby\s+how\s+(?:much|many(?:\s+(?:percentage\s+)?points?\b)?)\b|\b(?:by\s+)?how\s+(?:much|many)\b(?=.*\b(?:ahead of|behind)\b)|\bhow\s+far(?:\s+apart)?\b|\b(?:save|savings?)\b|\bum\s+wie\s?viel\b",
    re.I,
)
_MORE_THAN = re.compile(r"\bhow (?:much|many) (?:more|less|fewer|\w{2,}er)\b.*\bthan\b", re.I)
_CHANGE = re.compile(
    r"\b(?:(?:by\s+)?how(?:\s+(?:much|far|many\s+\w+))?|did|has|have)\b(?=.*?\b(?P<verb>(?:rise|lose|go up|grow) or (?:fall|gain|down|shrink)|gain or lose|rise|rose|risen|fall|fell|fallen|grow|grew|grown|drop|dropped|climb|climbed|change|changed"
    r"|gain|gained|lose|lost|increase|increased|decrease|decreased|decline|declined|sink|sank|move|moved|go up|went up|gone up|go down|went down|gone down)\b)",
    re.I,
)
_SETS_APART = re.compile(
    r"\b(?:between|than|zwischen|entre|vs|versus|against|compared (?:to|with)|leads?|trails?|beats?|outsells?|ahead of|behind)\b",
    re.I,
)
_PAYS = re.compile(
    r"\b(?:(?:would|do|must|should|will|could|can)\s+)?(?:i|we|you|one)\s+(?:have to |need to )?(?:pay|spend|save)\b"
    r"(?:\s+(?:for|with|on|(?:by|if i|if we) (?:taking|buying|choosing|ordering|picking|took|take|bought|buy|chose|ordered)))?",
    re.I,
)
_BEYOND = re.compile(r"\b(?:under|below|beneath|above|over)\b", re.I)
_BY_HOW_MANY = re.compile(r"\bby\s+how\s+(?:much|many)\b", re.I)
_AHEAD = re.compile(r"\b(?:ahead of|behind)\b", re.I)
_WE = re.compile(r"\b(?:we|us)\b", re.I)
_CHOICE = re.compile(r"\b(?:instead of|rather than|than)\b(?:\s+(?:for|with|on))?", re.I)
_PERCENT = re.compile(r"(?<=\bhow)\s+(?:many|much)\s+(?:per ?cent|%)|(?<=\bby )what percentage\b", re.I)
_RATE = re.compile(r"\b(?:an?|per|each|every)\s+(?P<grain>day|week|month|year)\b", re.I)
_AVERAGE = re.compile(r"\b(?:on\s+)?average\b", re.I)
_YEARS_APART = re.compile(r"\b(?:from|between)\s+((?:19|20)\d\d)\s+(?:to|and|until|till)\s+((?:19|20)\d\d)\b", re.I)
_HIGH, _LOW = ("high", "most", "newest", "best"), ("low", "least", "oldest", "worst")
_HOW_MANY = re.compile(
    r"(?:(?:^|\s*[,;:]|\s)\s*(?:(?:and|or|und|et)\s+)?)\b(?P<asks>how\s+many|wie\s?viele|combien de|combien d['’])\b",
    re.I,
)
_AND_WHO = re.compile(r",?\s+(?:and|und|et)\s+(?=(?P<asks>who|which|wer|welche|qui|lesquels)\b)", re.I)
_AND_HOW_MUCH = re.compile(r"(?<=\w)\s*,?\s+(?:and|und|et)\s+(?:what|how\s+much|wie\s?viel|combien)\b", re.I)
_AND = re.compile(r"\b(?:and|und|et)\b", re.I)


class Way(StrEnum):
    """What two queries are asked for."""

    BOTH = "both"

    SHARE = "share"
    DIFFERENCE = "difference"
    CHANGE = "change"
    MEAN = "mean"
    RATE = "rate"


class PlannedSteps(Struct, frozen=True):
    """`plans` are what is counted or measured, of a share the part and the whole.

    Of a mean, the plan has one condition with the value MEAN. Of a rate, it is divided by `number` units of a `grain`.
    A change is told in percent of the first.
    """

    way: Way
    plans: tuple[Plan, ...]
    number: float = 1
    grain: str = ""


def may_take_steps(text: str) -> bool:
    """Whether a question has the words of one of the ways; "and" may join two lists."""
    numbers = len(_HOW_MANY.findall(text)) > 1 or _PART.match(text) is not None
    return asks_two_figures(text) or numbers or _AND.search(text) is not None


def asks_two_figures(text: str) -> bool:
    """Whether it has the words of a share, a difference, a mean that others are compared with, or so many a day."""
    text, rate = _PERCENT.sub(" much ", text), _AVERAGE.search(text) and _RATE.search(text)
    ways = (_CHANGE, _SHARE, _THAN_MEAN, _MORE_THAN_MEAN, _DIFFERENCE)
    return bool(rate) or any(each.search(text) for each in ways)


def sets_figures_apart(text: str) -> bool:
    """Whether it asks by how much one figure is beyond another, which no sentence about one of them says."""
    return _MORE_THAN.search(text) is not None


def sets_years_apart(text: str) -> bool:
    """Whether two years are the sides of a difference or a comparison, and no bounds.

    >>> sets_years_apart("did it rise from 2010 to 2012?"), sets_years_apart("how many were there from 2010 to 2012?")
    (True, False)
    """
    compares = any(word in word_set("compares") for word in stems(text))
    return compares or asks_difference(text) or _CHANGE.search(text) is not None


def asks_difference(text: str) -> bool:
    """Whether it asks for a difference, which no single query gives."""
    return _DIFFERENCE.search(text) is not None


def _two_kinds(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of two kinds of records that "and" joins, where no other is named."""
    places = [place for place, token in enumerate(tokens) if token.role == "kind"]
    if len(places) != 2 or tokens[places[0]].name == tokens[places[1]].name:
        return None
    between = [token for token in tokens[places[0] + 1 : places[1]] if not token.inside]
    joined = any(_AND.fullmatch(token.text) for token in between)
    plain = all(token.role == "own" or (token.said and token.meaning is None) for token in between)
    return (places[0], places[1]) if joined and plain else None


def read_steps(
    text: str, spec: IndexSpec, values: Sequence[NamedValue], period: Period | None, today: date | None
) -> PlannedSteps | None:
    """The two queries that a question takes; None where it is no such question, or not understood as one."""
    bare = without_period(text, period).strip().rstrip("?!. ")

    def read(asked: str) -> Plan | None:
        return read_question(asked, spec, values, period, today).plan

    tokens = partial(read_names, spec=spec, values=values)
    if not asks_two_figures(bare):
        share = _share(_PART.sub("share ", bare), read, tokens, spec) if _PART.match(bare) else None
        steps = share or _numbers(bare, read, spec) or _two_lists(bare, read, spec)
        return steps or _list_and_total(bare, read, tokens, spec) or _both(bare, read, tokens)
    percent = _PERCENT.search(bare) is not None
    plain = _PERCENT.sub(" much ", bare)
    if (steps := _change(plain, spec, values, period, today)) is not None:
        return replace(steps, way=Way.CHANGE) if percent else steps
    steps = _share_of_sum(bare, read, spec, "how many") or _share(bare, read, tokens, spec)
    steps = steps or _share_of_sum(bare, read, spec, "total") or _mean(bare, read, tokens)
    steps = steps or _difference(plain, read, tokens, spec)
    if steps is not None and steps.way is Way.DIFFERENCE and percent:
        return PlannedSteps(Way.CHANGE, steps.plans[::-1])  # so much more than the other one
    return steps or _rate(bare, read, period)


Read = Callable[[str], Plan | None]


def _numbers(text: str, read: "Read", spec: IndexSpec) -> PlannedSteps | None:
    """Numbers of records: "how many calls were taken, how many missed, and how many are open". Only the first names the kind."""
    found = [*_HOW_MANY.finditer(text)]
    ends = [*(each.start() for each in found[1:]), len(text)]
    parts = [text[each.end() : end] for each, end in zip(found, ends, strict=False)]
    first = read(f"{found[0]['asks']} {parts[0]}") if len(parts) > 1 else None
    if first is None or first.kind is None:
        return None
    kind, plans = spec.records[first.kind].words[0], [first]
    for part in parts[1:]:
        plan = read(f"how many {kind} {part}") or read(f"how many {part}")
        plans += [] if plan is None else [plan]
    if not all(each.query.aggregate is Aggregate.COUNT and not each.query.group for each in plans):
        return None
    said = all(
        each.conditions or each.period or each.kind != first.kind for each in plans[1:]
    )  # "... and how many are?"
    return PlannedSteps(Way.BOTH, (*plans,)) if said and len(plans) == len(parts) else None


def _two_lists(text: str, read: "Read", spec: IndexSpec) -> PlannedSteps | None:
    """Two lists of one kind: "who cancelled and who did not come", "which boats are out, and which are in repair"."""
    found = _AND_WHO.search(text)
    first = read(text[: found.start()]) if found is not None else None
    if found is None or first is None or first.kind is None:
        return None
    behind, noun = text[found.end() :], spec.records[first.kind].words[0]
    second = read(behind) or read(f"{found['asks']} {noun} {behind[len(found['asks']) :]}")
    if second is None or second.kind != first.kind or first.query.filters == second.query.filters:
        return None
    plain = all(
        each.is_list and each.conditions and not (each.query.order or each.query.group) for each in (first, second)
    )
    return PlannedSteps(Way.BOTH, (first, second)) if plain else None


def _list_and_total(
    text: str, read: "Read", words: Callable[[str], list[Token]], spec: IndexSpec
) -> PlannedSteps | None:
    """Records or their number, and what they come to: "Who stood us up, and what would that have brought in?"."""
    found = _AND_HOW_MUCH.search(text)
    listed = read(text[: found.start()]) if found is not None else None
    if found is None or listed is None or listed.query.order or listed.query.group:
        return None
    if not (listed.is_list or listed.query.aggregate is Aggregate.COUNT):
        return None
    total = _total_of(listed, words(text[found.start() :]), spec) or read(text)
    same = total is not None and (listed.kind, listed.query.filters) == (total.kind, total.query.filters)
    if total is None or not same or total.query.group is not None:
        return None
    return PlannedSteps(Way.BOTH, (listed, total)) if total.query.aggregate is Aggregate.SUM else None


def _total_of(plan: Plan, tokens: Sequence[Token], spec: IndexSpec) -> Plan | None:
    """The total of the only figure that adds up, where nothing but a total is asked for: "what did they come to"."""
    meant = {token.role for token in tokens if token.meaning}
    added = [name for name, each in spec.vocabulary.items() if each.adds_up and each.kind == plan.kind]
    if (
        "sum" not in meant
        or meant - {"sum", "much", "total"}
        or any(token.is_left for token in tokens)
        or len(added) != 1
    ):
        return None
    query = replace(plan.query, aggregate=Aggregate.SUM, of=added[0], limit=5)
    return replace(plan, query=query, everything=replace(plan.everything, aggregate=Aggregate.SUM, of=added[0]))


def _both(text: str, read: "Read", words: Callable[[str], list[Token]]) -> PlannedSteps | None:
    """Two lists, "my watchlists and alerts", or both ends of one order, "the cheapest and the dearest"."""
    tokens = words(text)
    kinds = _two_kinds(tokens)
    pair = kinds or _two_ends(tokens)
    if pair is None:
        return None
    first, second = (read(without_phrases(tokens, [tokens[each]])) for each in sorted(pair, reverse=True))
    if first is None or second is None or not (first.is_list and second.is_list):
        return None
    lists = not (first.conditions or second.conditions) and first.query.order is second.query.order is None
    ends = first.query.order and not first.query.group and _alike(first, second) and first.query != second.query
    return PlannedSteps(Way.BOTH, (first, second)) if (lists if kinds else ends) else None


def _change(
    text: str, spec: IndexSpec, values: Sequence[NamedValue], period: Period | None, today: date | None
) -> PlannedSteps | None:
    """By how much a figure rose from one month to another, where there is a record for every month."""
    found, years = _CHANGE.search(text), _years_apart(text) if year_field(spec) is not None else None
    if found is None:
        return None
    asked = text[: found.start()] + text[found.end() : found.start("verb")] + text[found.end("verb") :]
    if years is not None:
        asked = _YEARS_APART.sub(" ", asked)
        return set_apart([read_question(asked, spec, values, each, today, comparing=True).plan for each in years], spec)
    if period is None or period.start is None or period.end is None:
        return None
    for grain in {kind.every for kind in spec.records.values() if kind.every is not None}:
        periods = [Period(*days_around(day, grain), "", (0, 0), grain) for day in (period.start, period.end)]
        plans = [read_question(asked, spec, values, each, today).plan for each in periods]
        if (steps := set_apart(plans, spec)) is not None:
            return steps
    return None


def _years_apart(text: str) -> list[Period] | None:
    found = _YEARS_APART.search(text)
    days = ((date(int(year), 1, 1), date(int(year), 12, 31), year) for year in found.groups()) if found else ()
    return [Period(first, last, year, (0, 0), "year") for first, last, year in days] or None


def set_apart(plans: Sequence[Plan | None], spec: IndexSpec) -> PlannedSteps | None:
    """The difference between two plans' figures; None where they are not of the same sort."""
    measured = [_measuring_plan(plan, spec) for plan in plans if plan is not None]
    first, second = (*measured, None, None)[:2]
    if first is None or second is None or first.query == second.query:
        return None
    if not (_alike(first, second) or _share_a_unit(first, second, spec)):
        return None
    return PlannedSteps(Way.DIFFERENCE, (first, second))


def _share(text: str, read: Read, words: Callable[[str], list[Token]], spec: IndexSpec) -> PlannedSteps | None:
    """What percentage of the bookings (whole) are done (part); without a verb, of all records of the kind, or of those before
    the word of what holds ("of the walk-ins paid").

    Not of each of several, and not "the late share of Ada".
    """
    rest = _share_asked(text)
    if not rest:
        return None
    left_out = _LEFT_OUT.search(rest)
    rest, without = (rest[: left_out.start()], left_out[1]) if left_out else (rest, "")
    verb, said = _VERB.search(rest) or _MAIN_VERB.search(rest), words(rest)
    last = next(token for token in reversed(said) if not token.inside) if said else None
    holds = last is not None and last.role == "value" and spec.fields.get(last.name) is FieldType.BOOLEAN
    before = without_phrases(said, [last]) if holds and last is not None else ""
    if without and verb:
        rest = f"{rest[: verb.start()].rstrip()}, {without}, {rest[verb.start() :]}"
    part = read(f"how many {rest}")
    if part is None or part.query.aggregate is not Aggregate.COUNT:
        return None
    if verb is None and not (before or _names_kind(rest, part, spec)):
        return None  # "the share of oak" may be that of what it sold
    before = f"{rest[: verb.start()].rstrip()}{f', {without}' if without else ''}" if verb else before
    whole = read(f"how many {before}") if before else replace(part, query=part.everything, conditions=())
    if whole is None or whole.query.aggregate is not Aggregate.COUNT or whole.query.group != part.query.group:
        return None
    return PlannedSteps(Way.SHARE, (part, whole)) if part.query != whole.query and part.kind == whole.kind else None


def _share_asked(text: str) -> str:
    """What a share is asked of; empty of each of several, and of what they are worth, which is not their number."""
    found = _SHARE.search(text)
    led = found is not None and {*stems(text[: found.start()])} <= says_nothing() | word_set("asking")
    rest = _IN_PERCENT.sub("", found["rest"]) if found is not None and led else ""
    return "" if _OF_EACH.search(text) or _VALUE.search(rest) else rest


def part_counted(text: str, spec: IndexSpec) -> str:
    """The question for the number of which a share is asked: "how many visits failed", of "what share of visits failed".

    Empty where more is said of the whole than its kind, which is then not all of it.
    """
    rest = _DETERMINERS.sub("", _share_asked(_PART.sub("share ", text.rstrip("?!. "))))
    if not rest or _LEFT_OUT.search(rest) or _CHANGE.search(text):
        return ""
    verb = _VERB.search(rest)
    whole = read_words(rest[: verb.start()], spec) if verb else read_words(rest, spec)[:1]
    plain = all(token.inside or token.said or token.role in ("kind", "own") for token in whole)
    return f"how many {rest}" if plain and any(token.role == "kind" for token in whole) else ""


def share_of_all(part: Plan) -> PlannedSteps | None:
    """What share of all records of a kind is a number of them; None where more than one condition may be of the whole."""
    query, whole = part.query, replace(part, query=part.everything, conditions=())
    alone = len(query.filters) == len(part.everything.filters) + 1 and part.period is None
    counts = query.aggregate is Aggregate.COUNT and query.group is None
    return PlannedSteps(Way.SHARE, (part, whole)) if alone and counts else None


def _names_kind(text: str, plan: Plan, spec: IndexSpec) -> bool:
    """Whether a text says what is counted, or there is nothing else to add up."""
    kind = spec.records.get(plan.kind or "")
    said = {*stems(text)}
    return kind is None or not vocabulary_of(spec, kind.by).adds_up or any(said & {*stems(word)} for word in kind.words)


def _share_of_sum(text: str, read: Read, spec: IndexSpec, lead: str) -> PlannedSteps | None:
    """What share of a total is that of some of its records: "what share of our sales came from the oak board?"."""
    found = _SHARE.search(text)
    rest = _IN_PERCENT.sub("", found["rest"]) if found is not None else ""
    verb = _VERB.search(rest)
    if verb is None:
        return None
    whole = read(f"{lead} {_ALL.sub('', rest[: verb.start()])}")
    if whole is None or whole.query.aggregate is not Aggregate.SUM or whole.query.group is not None:
        return None
    of = whole.query.of or ""
    if not vocabulary_of(spec, of).adds_up:
        return None
    part = read(f"{name_field(spec, of)} {rest[verb.end() :]}")
    if part is None or part.query.group is not None or part.query.order is not None or part.kind != whole.kind:
        return None
    more = tuple(each for each in part.query.filters if each not in whole.query.filters)
    # "earned" says of one of the two what it does not say of the other
    states = {name for name, words in spec.vocabulary.items() if words.void}
    implied = ({*vocabulary_of(spec, of).earned_of} | states) & fields_of(more)
    if not more or (implied and len(more) > 1):
        return None
    told = tuple(each for each in part.conditions if each not in whole.conditions)
    query = replace(whole.query, filters=(*whole.query.filters, *more))
    return PlannedSteps(Way.SHARE, (replace(whole, query=query, conditions=(*whole.conditions, *told)), whole))


def _mean(text: str, read: Read, words: Callable[[str], list[Token]]) -> PlannedSteps | None:
    """Above the average: the condition with a figure that is not known yet; "above the average trip" is of all trips."""
    asked = _MORE_THAN_MEAN.sub(rf"\g<what> \g<way> than {MEAN:.0f}", text)
    asked = _THAN_MEAN.sub(rf"\g<lead> {MEAN:.0f}", asked)
    before, mean, behind = asked.partition(f"{MEAN:.0f}")
    if mean and [token.role for token in words(behind)] == ["kind"]:
        asked = before + mean
    plan = read(asked) if asked != text else None
    if plan is None or len(mean_conditions(plan.query.filters)) != 1:
        return None
    named = len(plan.query.filters) - len(plan.everything.filters) - 1
    return None if plan.bound and named > 1 else PlannedSteps(Way.MEAN, (plan,))  # nobody knows of which others


def mean_conditions(filters: Filters) -> list[MetadataFilter]:
    """The conditions that wait for the mean of their field."""
    return [each for each in filters if isinstance(each, MetadataFilter) and each.value == MEAN]


def mean_query(plan: Plan) -> RecordQuery:
    """The mean of the records that the other conditions leave; of all of them, where one that is named is set against it."""
    (waiting,) = mean_conditions(plan.query.filters)
    others = (
        plan.everything.filters if plan.bound else tuple(each for each in plan.query.filters if each is not waiting)
    )
    query = replace(plan.query, filters=others, order=None, group=None, grain=None)
    return replace(query, aggregate=Aggregate.AVERAGE, of=waiting.key, limit=1)


def with_mean(plan: Plan, mean: float, spec: IndexSpec) -> Plan:
    """The plan with the mean in its condition; of whole numbers with the next one that says the same."""
    (waiting,) = mean_conditions(plan.query.filters)
    value: float = mean
    if spec.fields.get(waiting.key) is FieldType.INTEGER:
        value = floor(mean) if waiting.operator in (GT, LTE) else ceil(mean)
    known = waiting.model_copy(update={"value": value})
    filters = tuple(known if each is waiting else each for each in plan.query.filters)
    said = condition_text(waiting.model_copy(update={"value": round(mean, 2)}), spec)
    told = condition_text(waiting, spec)
    conditions = tuple(f"{said}, the average" if each == told else each for each in plan.conditions)
    bound = known if plan.bound is waiting else plan.bound
    if bound is not None and plan.together:  # "does Ada pay more than average", by the mean of hers
        others = tuple(each for each in filters if each is not known)
        query = replace(plan.query, filters=others, aggregate=Aggregate.AVERAGE, of=waiting.key, order=None, limit=5)
        return replace(
            plan, query=query, conditions=tuple(each for each in plan.conditions if each != told), bound=bound
        )
    return replace(plan, query=replace(plan.query, filters=filters), conditions=conditions, bound=bound)


def _difference(text: str, read: Read, words: Callable[[str], list[Token]], spec: IndexSpec) -> PlannedSteps | None:
    """Between two values of one field, or between the largest and the smallest figure."""
    if not _DIFFERENCE.search(text):
        return None
    counts = re.search(r"\bhow many (?:more|fewer|less)\b", text, re.I)
    sums, saved = re.search(r"\bhow much (?:more|less)\b", text, re.I), re.search(r"\bsav(?:e|ings?)\b", text, re.I)
    pays = _PAYS.search(text) is not None
    dearer = re.search(r"\bhow much (?:more|less) (?:is|was)\b(?!.*\bworth\b)", text, re.I)
    price = price_field(spec) if saved or pays or dearer else None
    text = _CHOICE.sub(" and ", _PAYS.sub(" ", text)) if price and pays else text
    of_price = f"{name_field(spec, price)} " if price else ""
    lead = "how many " if counts else "how much " if sums and not (price and (pays or dearer)) else of_price
    bare = _SETS_APART.sub(" and ", _DIFFERENCE.sub(" ", text))
    asked = [f"{lead}{bare}", bare]  # "how many more readings a second": no number of records
    if any(vocabulary_of(spec, name).own for name in spec.fields):  # "how far behind Ada are we"
        asked.append(_WE.sub(" ours ", bare))
    roles = {token.role for token in words(bare)}
    if _BY_HOW_MANY.search(text) and _BEYOND.search(bare):  # "by how many dollars is A under B"
        bare = _BEYOND.sub(" and ", bare)
        units = [vocabulary_of(spec, token.name).unit for token in words(bare) if token.role == "unit"]
        price = price_field(spec)
        of_unit = price is not None and vocabulary_of(spec, price).unit in units
        asked = [f"{name_field(spec, price)} {bare}"] if of_unit and price else [bare]
    if _AHEAD.search(text) and "kind" in roles and not roles & {"field", "total", "high", "low", "more"}:
        asked += [f"how many {each}" for each in asked]  # "how far behind Ada is Bo in trips"
    for each_asked in dict.fromkeys(asked):
        tokens = words(each_asked)
        pair, compared = _pair(tokens) or _own_and_other(tokens), [token for token in tokens if token.role == "more"]
        of = {token.name for token in compared if token.name}
        figure = " ".join(name_field(spec, name) for name in of)
        plans = [
            read(f"{figure} {without_phrases(tokens, [*compared, *_alone(tokens, each)])}")
            for each in reversed(pair or ())
        ]
        if (steps := set_apart(plans, spec)) is not None:
            return steps
    return None


def _alone(tokens: Sequence[Token], place: int) -> list[Token]:
    """The phrases that mean the same as one, each with whose it is before it: "our milgrain ring"."""
    same = [at for at, token in enumerate(tokens) if token.meaning == tokens[place].meaning]
    return [
        tokens[at] for each in same for at in (each - 1, each) if at == each or (at >= 0 and tokens[at].role == "own")
    ]


def _pair(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the two values, or of the two superlatives, that stand against each other."""
    first = {token.meaning: place for place, token in reversed([*enumerate(tokens)]) if token.role == "value"}
    named = sorted(first.values())
    pairs = [
        (one, other)
        for one in named
        for other in named
        if one < other and tokens[one].name == tokens[other].name and tokens[one].meaning != tokens[other].meaning
    ]
    if len(pairs) == 1:
        return pairs[0]
    return None if pairs else _two_ends(tokens)


def _own_and_other(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the only value and of "our", before one's own records."""
    values = [place for place, token in enumerate(tokens) if token.role == "value"]
    own = [place for place, token in enumerate(tokens) if token.role == "own"]
    apart = len(values) == len(own) == 1 and own[0] + 1 != values[0]
    return (values[0], own[0]) if apart else None


def _two_ends(tokens: Sequence[Token]) -> tuple[int, int] | None:
    """The places of the only two superlatives, one for each end of an order."""
    high = [place for place, token in enumerate(tokens) if token.role in _HIGH]
    low = [place for place, token in enumerate(tokens) if token.role in _LOW]
    return (high[0], low[0]) if len(high) == len(low) == 1 else None


def _measuring_plan(plan: Plan, spec: IndexSpec) -> Plan | None:
    """The plan for one figure: an aggregate, the first record in an order, or the one figure of what is named."""
    query = plan.query
    if query.group is not None:
        return None
    if query.aggregate is not None or (query.order not in (None, "date") and query.limit == 1):
        return plan
    names = plan.figures or tuple(filter(None, [only_figure(spec)]))
    if len(names) != 1 or not is_figure(spec, names[0]):
        return None
    name = names[0]
    if name == price_field(spec) and vocabulary_of(spec, name).adds_up:  # what one costs, and not all together
        return replace(plan, query=replace(query, aggregate=Aggregate.AVERAGE, of=name, order=None, limit=5))
    way = Aggregate.SUM if vocabulary_of(spec, name).adds_up else Aggregate.AVERAGE
    return replace(plan, query=replace(query, aggregate=way, of=name, order=None, limit=5), single=True)


def _alike(first: Plan, second: Plan) -> bool:
    """Whether two figures are of the same sort."""
    one, other = first.query, second.query
    return (one.aggregate, one.of, one.order, first.kind) == (other.aggregate, other.of, other.order, second.kind)


def _share_a_unit(first: Plan, second: Plan, spec: IndexSpec) -> bool:
    """Whether two records of a kind stand first by two fields of one unit: the hottest and the coldest day."""
    units = {vocabulary_of(spec, plan.query.order).unit for plan in (first, second)}
    ordered = all(plan.query.order and plan.query.aggregate is None for plan in (first, second))
    return ordered and first.kind == second.kind and len(units) == 1 and "" not in units


def _rate(text: str, read: Read, period: Period | None) -> PlannedSteps | None:
    """On average how many bookings a day: their number, divided by the days of the period."""
    rate = _RATE.search(text)
    if rate is None or not _AVERAGE.search(text) or period is None or period.start is None or period.end is None:
        return None
    grain = rate["grain"].lower()
    number = _units(period.start, period.end, grain)
    plan = read(_AVERAGE.sub(" ", text[: rate.start()] + " " + text[rate.end() :])) if number else None
    if plan is None or plan.query.aggregate is not Aggregate.COUNT:
        return None
    return PlannedSteps(Way.RATE, (plan,), number, grain)


def _units(first: date, last: date, grain: str) -> int:
    """How many whole days, weeks, months or years a period has; 0 where it has none that are whole."""
    after = last + timedelta(days=1)
    number, rest = divmod((after - first).days, 7 if grain == "week" else 1)
    if grain in ("month", "year"):
        span = relativedelta(after, first)
        number, rest = divmod(12 * span.years + span.months, 12 if grain == "year" else 1)
        rest += span.days
    return 0 if rest else number


def figure_of(plan: Plan, found: RecordResult) -> float | None:
    """What a plan of one figure came to: its aggregate, the number of groups, or the first record's figure.

    Of what is only named (`single`) it has to be the figure of one record, if it does not add up.
    """
    query = plan.query
    if query.aggregate is Aggregate.COUNT:
        return float(found.total)
    if query.aggregate is not None:
        named = plan.single and query.aggregate is Aggregate.AVERAGE
        return None if named and found.total != 1 else found.value
    first = found.rows[0].value if found.rows else None
    return float(first) if isinstance(first, int | float) else None
