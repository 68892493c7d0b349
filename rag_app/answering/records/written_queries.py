"""A question about records as a query that a model writes, where the rules (planning.py) find none.

The model is told the declared fields and answers with one JSON object. Each name, operator and value in it is checked
against what the index declares and the asker's records hold; with one that does not fit, there is no query. A model writes
no SQL, computes nothing, and says no days: those are the question's own.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter
from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from rag_app.answering.models import AnsweringModel, estimate_usage
from rag_app.answering.prompts import Prompt
from rag_app.answering.records.conditions import condition_text, kind_conditions
from rag_app.answering.records.plans import Plan
from rag_app.answering.records.wording import figures_in, vocabulary_of
from rag_app.answering.synthesizers import with_today
from rag_app.domain import FieldType, ModelFailed, Question, Usage
from rag_app.retrieval.filters import CONTAINS, EQ, GT, GTE, LT, LTE, NE, condition
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import conditions_of
from rag_app.retrieval.records import Aggregate, Grain, NamedValue, RecordQuery, can_run

_TOKENS = 400  # of one query
_OBJECT = re.compile(r"\{.*\}", re.S)
_MOST_VALUES = 40  # of one field that a model is told
_MOST_LISTED, _MOST_GROUPS = 12, 24
_EQUAL = frozenset({EQ, NE})
_ORDER_OPERATORS = _EQUAL | {LT, LTE, GT, GTE}
_OPERATORS = {
    FieldType.KEYWORD: _EQUAL,
    FieldType.BOOLEAN: _EQUAL,
    FieldType.TAGS: frozenset({CONTAINS}),
    FieldType.INTEGER: _ORDER_OPERATORS,
    FieldType.NUMBER: _ORDER_OPERATORS,
}


class WrittenFilter(Struct, forbid_unknown_fields=True):
    """One condition, as a model writes it."""

    field: str
    operator: Literal["==", "!=", "<", "<=", ">", ">=", "contains"]
    value: str | float | bool


class WrittenQuery(Struct, forbid_unknown_fields=True):
    """A query as a model writes it. `kind` is null where it cannot say all of the question."""

    kind: str | None
    filters: list[WrittenFilter] = []
    own: bool = False
    aggregate: Aggregate | None = None
    of: str | None = None
    group: str | None = None
    grain: Grain | None = None
    order: str | None = None
    descending: bool = True
    limit: int = _MOST_LISTED


@dataclass
class QueryWriter:
    """Asks a model for queries. `spent` are the tokens that it took."""

    model: AnsweringModel
    prompt: Prompt
    spent: Usage | None = None

    async def write(self, question: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> Plan | None:
        """The question as a plan; None where the model fails, finds no query, or writes one that does not fit."""
        told = self.prompt.messages(question=question.text, fields=describe_fields(spec, values))
        messages = with_today(told, replace(question, period=None))
        try:
            draft = await self.model.chat(messages, max_tokens=_TOKENS, temperature=0.0)
        except ModelFailed:
            return None
        read = "\n".join(str(message.content) for message in messages)
        self.spent = add_usage(self.spent, draft.usage or estimate_usage(read, draft.text))
        return read_query(draft.text, question, spec, values)


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """The tokens of both.

    >>> add_usage(Usage(2, 1), None), add_usage(Usage(2, 1), Usage(5, 4))
    (Usage(input_tokens=2, output_tokens=1), Usage(input_tokens=7, output_tokens=5))
    """
    if one is None or other is None:
        return one or other
    return Usage(one.input_tokens + other.input_tokens, one.output_tokens + other.output_tokens)


def describe_fields(spec: IndexSpec, values: Sequence[NamedValue]) -> str:
    """The kinds of records and the declared fields, with what people call them and the values that are known."""
    kinds = [f'- kind "{name}": {", ".join(kind.words)}' for name, kind in spec.records.items()]
    fields = ["- date (time): the day of the record"]
    for name, kind in spec.fields.items():
        words, said = vocabulary_of(spec, name), [f"- {name} ({kind})"]
        if words.words:
            said.append(f": {', '.join(words.words)}")
        if words.unit:
            said.append(f"; in {words.unit}")
        if known := _known_values(spec, name, values)[:_MOST_VALUES]:
            said.append(f"; values: {json.dumps(known, ensure_ascii=False)}")
        fields.append("".join(said))
    return "\n".join([*kinds, *fields])


def read_query(text: str, question: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> Plan | None:
    """What a model wrote as a plan; None unless all of it fits the index, the question and the known values.

    >>> spec = IndexSpec.model_validate({
    ...     "name": "trips", "source_types": ["trip"], "default_source_type": "trip", "fields": {"catch": "number"},
    ...     "records": {"trip": {"words": ["trip"], "source_types": ["trip"]}}})
    >>> read_query('{"kind": "trip", "aggregate": "sum", "of": "catch"}', Question("How much?"), spec, ()).query.of
    'catch'
    >>> read_query('{"kind": "trip", "aggregate": "sum", "of": "profit"}', Question("How much?"), spec, ()) is None
    True
    """
    found = _OBJECT.search(text)
    try:
        written = convert(json.loads(found[0]), WrittenQuery) if found else None
    except (ValueError, ValidationError):
        return None
    if written is None or written.kind not in spec.records or written.kind is None:
        return None
    if not 1 <= written.limit <= _MOST_GROUPS or (
        written.group is not None and written.order not in (None, written.group)
    ):
        return None
    return plan_of(written, question, spec, values)


def plan_of(written: WrittenQuery, question: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> Plan | None:
    """A query as a plan; None where one of its conditions, or all together, does not fit."""
    found = [_condition(each, question, spec, values) for each in written.filters]
    conditions = [each for each in found if each is not None]
    if len(conditions) < len(found):
        return None
    kind = spec.records[written.kind or ""]
    ordered = written.order if written.aggregate is None or written.group is not None else None
    days = conditions_of(question.period) if question.period is not None else ()
    everything = RecordQuery(
        (*kind_conditions(kind), *days),
        written.own,
        ordered,
        written.descending,
        written.limit,
        written.aggregate,
        written.of,
        written.group,
        written.grain,
        kind.having,
    )
    plan = Plan(
        replace(everything, filters=(*everything.filters, *conditions)),
        everything,
        written.kind,
        single=written.aggregate is None and written.order is not None and written.limit == 1,
        conditions=tuple(condition_text(each, spec) for each in conditions if not vocabulary_of(spec, each.key).own),
        period=question.period,
        figures=tuple(name for name in (written.order, written.of) if name is not None and name != "date"),
    )
    return plan if can_run(plan.query, spec) else None


def _condition(
    written: WrittenFilter, question: Question, spec: IndexSpec, values: Sequence[NamedValue]
) -> MetadataFilter | None:
    """The condition where its operator fits the field, and its value is known: a figure, where the question says it."""
    kind, operator, value = spec.fields.get(written.field), FilterOperator(written.operator), written.value
    if kind is None or operator not in _OPERATORS.get(kind, ()):
        return None
    if kind is FieldType.BOOLEAN:
        return condition(written.field, operator, value) if isinstance(value, bool) else None
    if kind in (FieldType.INTEGER, FieldType.NUMBER):
        if isinstance(value, str | bool) or not _is_said(value, written, question, spec):
            return None
        if kind is FieldType.INTEGER and value != int(value):
            return None
        return condition(written.field, operator, int(value) if kind is FieldType.INTEGER else value)
    known = {each.casefold(): each for each in _known_values(spec, written.field, values)}
    meant = known.get(str(value).casefold())
    return condition(written.field, operator, meant) if meant is not None else None


def _is_said(value: float, written: WrittenFilter, question: Question, spec: IndexSpec) -> bool:
    """Whether the question says the figure, or the index says it of a word ("rising" is more than 0)."""
    declared = vocabulary_of(spec, written.field).values
    return value in figures_in(question.text) or f"{written.operator}{value:g}" in declared


def _known_values(spec: IndexSpec, name: str, values: Sequence[NamedValue]) -> list[str]:
    if spec.fields[name] not in (FieldType.KEYWORD, FieldType.TAGS):
        return []
    declared = vocabulary_of(spec, name).values
    return list(dict.fromkeys([*declared, *(each.value for each in values if each.field == name)]))
