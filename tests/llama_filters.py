"""Conditions as LlamaIndex writes them: what its users pass to a retriever or a store."""

from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from rag_app.domain.filters import Condition, Filters, Operator, Value

OPERATORS = {
    Operator.EQ: FilterOperator.EQ,
    Operator.IN: FilterOperator.IN,
    Operator.GT: FilterOperator.GT,
    Operator.GTE: FilterOperator.GTE,
    Operator.LT: FilterOperator.LT,
    Operator.LTE: FilterOperator.LTE,
    Operator.HAS: FilterOperator.CONTAINS,
}


def to_llama(filters: Filters) -> MetadataFilters:
    """As LlamaIndex's retrievers and stores pass them on; `or_missing` is a group: the condition, OR the field is empty."""
    return MetadataFilters(filters=[_to_llama(condition) for condition in filters])


def _to_llama(condition: Condition) -> MetadataFilter | MetadataFilters:
    name, value = condition.field, _for_llama(condition.value)
    plain = MetadataFilter(key=name, operator=OPERATORS[condition.operator], value=value)
    if not condition.or_missing:
        return plain
    missing = MetadataFilter(key=name, operator=FilterOperator.IS_EMPTY, value=None)
    return MetadataFilters(filters=[plain, missing], condition=FilterCondition.OR)


def _for_llama(value: Value | tuple[Value, ...]) -> Any:
    if isinstance(value, tuple):
        return [_for_llama(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else value  # MetadataFilter takes no booleans
