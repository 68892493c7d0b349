"""A message that asks what is known of a subject, and for no more: "market brief for Etsy", "explain my open alerts".

Its capability says which lists of records tell that (`RecordList`). Each is read as a question that planning.py reads, so
every word of the subject has to be understood.
"""

import re
from collections.abc import Sequence
from datetime import date

from msgspec.structs import replace

from rag_app.answering.capabilities import RecordList
from rag_app.answering.records.asking import without_period
from rag_app.answering.records.planning import read_question
from rag_app.answering.records.plans import Plan
from rag_app.answering.records.titles import read_names
from rag_app.answering.records.wording import vocabulary_of, without_phrases
from rag_app.retrieval.filters import EQ, condition, fields_of
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period
from rag_app.retrieval.records import LARGEST_LIMIT, NamedValue, RecordQuery

_BRIEF = r"brief(?:ing)?|overview|explanation|intel(?:ligence)?|outlook|rundown|snapshot"
_COMPARE = r"compar(?:e|ing)|stack(?:ing)? up|measur(?:e|ing) up"
_OPENING = r"^\W*(?:(?:please|hi|hey|hello|ok(?:ay)?|now|so|can you|could you|would you)\b\W*)*"
_FORMS = [
    re.compile(form, re.IGNORECASE | re.DOTALL)
    for form in (
        rf"{_OPENING}(?:explain|brief (?:me|us) (?:on|about)|tell (?:me|us) (?:more |all )?about|walk (?:me|us) through|sum up"
        r"|summari[sz]e|analy[sz]e|what do (?:we|you|i) know about|what(?:['’]s| is) (?:going on|happening|new) (?:with|on|in|at|for))\s+(.+)",
        rf"(.*\b(?:{_BRIEF})\b.*)",
        rf"{_OPENING}how(?:['’]s| is| are| was| were| has| have| did| do| does)\s+(.+?)\s+(?:been doing|doing|do|going|go|performing|perform)\W*$",
        rf"{_OPENING}how (?:do|does|did|are|is)\s+(.+\b(?:{_COMPARE})\b.*)",
    )
]
_SAYS_IT = re.compile(rf"\b(?:an? (?:quick |short |full )?(?={_BRIEF})|{_BRIEF}|{_COMPARE})\b", re.IGNORECASE)


def subject_of(text: str) -> str | None:
    """What a message wants to be told about; None where it asks for something else.

    >>> subject_of("Explain my open alerts"), subject_of("How many alerts are open?")
    ('my open alerts', None)
    >>> subject_of("market brief for Etsy"), subject_of("How do our listings compare with our rivals'?")
    ('market for Etsy', "our listings with our rivals'")
    """
    found = next((match[1] for form in _FORMS if (match := form.match(text))), None)
    return None if found is None else " ".join(_SAYS_IT.sub(" ", found).split()).rstrip("?!. ")


def read_lists(
    text: str,
    lists: Sequence[RecordList],
    spec: IndexSpec,
    values: Sequence[NamedValue],
    period: Period | None,
    today: date | None,
) -> list[Plan]:
    """The lists that tell of a message's subject: those of the kinds that it names, else all; empty where it is not understood."""
    subject = subject_of(without_period(text, period))
    if subject is None:
        return []
    tokens = read_names(subject, spec, values)
    kinds = [token for token in tokens if token.role == "kind"]
    named = {token.name for token in kinds}
    wanted = [each for each in lists if not named or {each.kind, each.of} & named]
    if named - {each.kind for each in wanted}:
        return []
    others = any(vocabulary_of(spec, token.name).own for token in tokens)
    of = without_phrases(tokens, [*kinds, *(token for token in tokens if others and token.role == "own")])
    plans = []
    for each in wanted:
        plan = read_question(f"all {spec.records[each.kind].words[0]} {of}", spec, values, period, today).plan
        if plan is None or not _is_list(plan) or not (named or _is_about(plan, each, wanted, spec)):
            continue
        others = each.own is False and plan.query.own  # "our listings" are none of others
        if not others and (_is_narrowed(plan) or not named):
            plans.append(_plan_of(plan, each, spec))
    return plans


def _is_list(plan: Plan) -> bool:
    return plan.is_list and not (plan.is_first_of_each or plan.single or plan.by_tags)


def _is_narrowed(plan: Plan) -> bool:
    return plan.query != plan.everything or plan.query.own or plan.period is not None


def _is_about(plan: Plan, wanted: RecordList, lists: Sequence[RecordList], spec: IndexSpec) -> bool:
    """Whether a list tells of what is said without its kind: one with an order of anything, others of a value of theirs."""
    if wanted.order is not None and wanted.of is None:
        return _is_narrowed(plan) or not plan.figures
    kinds = {vocabulary_of(spec, name).kind for name in fields_of(plan.query.filters)}
    return bool(kinds & {each.kind for each in lists})


def _plan_of(plan: Plan, wanted: RecordList, spec: IndexSpec) -> Plan:
    """The plan in the order of the list, where it has none of its own, with the records of those whom the list is of."""
    whose = next((name for name, words in spec.vocabulary.items() if words.own), "")

    def arrange(query: RecordQuery) -> RecordQuery:
        if wanted.own is not None:
            kept = tuple(each for each in query.filters if fields_of((each,)) != {whose})
            others = () if wanted.own else (condition(whose, EQ, False),)
            query = replace(query, filters=(*kept, *others), own=wanted.own)
        return replace(query, order=query.order or wanted.order, limit=LARGEST_LIMIT)

    query, everything = arrange(plan.query), arrange(plan.everything)
    return replace(plan, query=query, everything=everything, figures=(), texts=wanted.texts)
