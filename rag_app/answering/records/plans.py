"""What a question about records is read as: a query with what is told of it, or why there is none."""

from collections.abc import Collection, Iterator, Sequence

from llama_index.core.vector_stores.types import MetadataFilter
from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.records.conditions import condition_text
from rag_app.answering.records.hours import Hours
from rag_app.answering.records.settling import days_label
from rag_app.answering.records.wording import vocabulary_of
from rag_app.domain import Filters
from rag_app.retrieval.filters import CONTAINS, EQ, IN, IS_EMPTY, NE, condition, fields_of
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period, conditions_of
from rag_app.retrieval.records import Aggregate, RecordQuery, RecordResult


def days_in(dated: str | None, period: Period) -> tuple[MetadataFilter, ...]:
    """That a time of a record lies in a period: its own date where no other is named."""
    days = (each for each in conditions_of(period) if isinstance(each, MetadataFilter))
    return tuple(condition(dated or "date", each.operator, each.value) for each in days)


class Contest(Struct, frozen=True):
    """What a question sets against each other: the values of one field, in its order; none where they are two periods.

    `way`: whether the one with "more" or "less" is asked for, or whether all have the "same". `claims`: it says so of the
    first, which is so or is not. `apart`: the difference is asked for as well.
    """

    sides: tuple[str, ...]
    way: str
    claims: bool
    apart: bool = False


class Plan(Struct, frozen=True):
    """A query, and what it was made of: the kind of record, the figures that are named, the words for the conditions.

    `single`: one record is asked for, so that others come in only where they are its equals; the one at `place`, 1 being
    the first. `distinct`: how many different values there are. `everything` is the query without those conditions.
    `everybody`: those of all organizations are asked for. `texts`: each record is told with its text. `theme`: it is of
    records that a word stands in. `contest`: what is set against each other by the figures. `bound`: whether the one
    record that is named, or the figure of a query with an aggregate, keeps to this condition is to be told. `together`: it
    may be asked of all of them together as well. `whether`: yes or no is asked for. `every`: whether all records keep to this
    condition is. `never`: the groups are asked for in which no record keeps to this condition. `dated`: the time that the
    period is of, where it is not the record's own date. `times` are told with each record as well. `skip`: so many have been
    told before. `clock`: days are told with the time of day. `whole`: all are to be told, also those without a source in the answer. `ahead`: the period is still to come.
    `number`: how many records are measured, as the question has it; 0 where it does not say. `levels`: the records of the first
    of these conditions that any of them meets are asked for. `of_row`: one record is
    named by its number, and told with all its fields.
    """

    query: RecordQuery
    everything: RecordQuery
    kind: str | None = None
    single: bool = False
    conditions: tuple[str, ...] = ()
    period: Period | None = None
    distinct: bool = False
    figures: tuple[str, ...] = ()
    place: int = 1
    everybody: bool = False
    texts: bool = False
    theme: bool = False
    contest: Contest | None = None
    bound: MetadataFilter | None = None
    together: bool = False
    whether: bool = False
    every: MetadataFilter | None = None
    never: MetadataFilter | None = None
    dated: str | None = None
    times: tuple[str, ...] = ()
    skip: int = 0
    whole: bool = False
    ahead: bool = False
    clock: bool = False
    number: int = 0
    levels: tuple[tuple[MetadataFilter, str], ...] = ()
    of_row: bool = False

    @property
    def is_list(self) -> bool:
        return self.query.aggregate is None

    @property
    def is_first_of_each(self) -> bool:
        """Whether the first record of each group is asked for."""
        return self.is_list and self.query.group is not None

    @property
    def by_tags(self) -> bool:
        """Whether a tag is a condition: what lacks it may be so all the same."""
        return any(isinstance(each, MetadataFilter) and each.operator is CONTAINS for each in self.query.filters)

    @property
    def names_record(self) -> bool:
        """Whether it is of records that are named by their titles."""
        named = any(
            isinstance(each, MetadataFilter) and each.key == "source_id" and each.operator is not NE
            for each in self.query.filters
        )
        return named and not self.theme

    def drops(self, names: Collection[str]) -> bool:
        """Whether a number, a total or a mean does without some of the fields that a question names."""
        query = self.query
        used = {query.of, query.group, query.order, *fields_of(query.filters), *query.having}
        return query.aggregate is not None and not {*names} <= used | {self.bound.key if self.bound else ""}

    def narrow_to(self, words: Sequence[str], sources: Collection[str]) -> "Plan":
        """The same of these records alone, whose titles or texts have the words."""
        filters = (*self.query.filters, condition("source_id", IN, sorted(sources)))
        told = (*self.conditions, f"{' and '.join(f'“{word}”' for word in words)} in title or text")
        return replace(self, query=replace(self.query, filters=filters), conditions=told, theme=True)

    def narrow_to_hours(self, hours: Hours) -> "Plan":
        """The same of the records that have such a time of day."""
        query = replace(self.query, hours=(max(1, hours.first), hours.last))  # midnight stands for no time
        return replace(self, query=query, conditions=(*self.conditions, hours.label), clock=True)

    def with_missing(self, spec: IndexSpec) -> "Plan | None":
        """The same of records that have no such figure, instead of 0 of one that adds up; None without such a condition."""
        zero = [
            each
            for each in self.query.filters
            if isinstance(each, MetadataFilter) and each.operator is EQ and each.value == 0
            if vocabulary_of(spec, each.key).adds_up
        ]
        if len(zero) != 1 or zero[0].key in (self.query.of, self.query.order):
            return None
        return self.swap(zero[0], condition(zero[0].key, IS_EMPTY), spec)

    def swap(self, one: MetadataFilter, other: MetadataFilter, spec: IndexSpec) -> "Plan":
        """The same with another one of its conditions, and how that is told."""
        filters = tuple(other if each is one else each for each in self.query.filters)
        told = condition_text(one, spec), condition_text(other, spec)
        conditions = tuple(told[1] if each == told[0] else each for each in self.conditions)
        return replace(self, query=replace(self.query, filters=filters), conditions=conditions)

    def finds_no_best(self, found: RecordResult) -> bool:
        """Whether the group with the most records is asked for, and each has one: the question meant something else."""
        best = self.query.group is not None and self.query.aggregate is Aggregate.COUNT and self.query.limit == 1
        return best and len(found.rows) > 1 and found.rows[0].value == 1

    @property
    def records(self) -> "Plan":
        """The list of the records that its groups have."""
        bare = [
            replace(each, aggregate=None, group=None, grain=None, order=None) for each in (self.query, self.everything)
        ]
        return replace(self, query=bare[0], everything=bare[1], distinct=False)

    def tells_each_once(self, found: RecordResult) -> bool:
        """Whether the values of a field are asked for, and each is that of one record, which tells more."""
        narrowed = self.conditions or self.period
        plain = self.distinct and self.never is self.bound is None and not (self.query.least or self.query.most)
        return bool(plain and narrowed) and all(row.size == 1 for row in found.rows)

    def may_be_total(self, spec: IndexSpec) -> bool:
        """Whether the total of a list may be meant: it names one figure, which adds up and is not compared: "fees from Ada"."""
        if (
            not self.is_list
            or self.every is not None
            or self.query.order
            or self.query.group
            or self.names_record
            or len(self.figures) != 1
        ):
            return False
        return vocabulary_of(spec, self.figures[0]).adds_up and self.figures[0] not in fields_of(self.query.filters)

    @property
    def total(self) -> "Plan":
        """The total of the one figure that a list names."""
        of = self.figures[0]
        summed = [replace(each, aggregate=Aggregate.SUM, of=of) for each in (self.query, self.everything)]
        return replace(self, query=summed[0], everything=summed[1])

    @property
    def years(self) -> "Iterator[Plan]":
        """The plan, and the same for the days of other years that its words may mean as well, the nearest first.

        Or the same of each of its levels.
        """
        for level, told in self.levels:
            query = replace(self.query, filters=(*self.query.filters, level))
            yield replace(self, query=query, conditions=(*self.conditions, told), levels=())
        plan: Plan | None = None if self.levels else self
        while plan is not None:
            yield plan
            plan = plan._otherwise

    @property
    def _otherwise(self) -> "Plan | None":
        if self.period is None or self.period.otherwise is None:
            return None
        old, new = self._days(self.period), self._days(self.period.otherwise)

        def change_filters(query: RecordQuery) -> RecordQuery:
            return replace(query, filters=(*(each for each in query.filters if each not in old), *new))

        conditions = self.conditions
        if self.dated is not None:
            labels = [days_label(self.dated, each) for each in (self.period, self.period.otherwise)]
            conditions = tuple(labels[1] if each == labels[0] else each for each in conditions)
        return replace(
            self,
            query=change_filters(self.query),
            everything=self.everything if self.dated else change_filters(self.everything),
            period=self.period.otherwise,
            conditions=conditions,
        )

    def _days(self, period: Period) -> Filters:
        return days_in(self.dated, period)


class Reading(Struct, frozen=True):
    """A question as far as it is understood: `plan` where it is a query, `unknown` the words that are left.

    `ranks`: all records of something have to be looked at. `limits`: no text does so, since a field is compared with a
    figure, or records are put in order. `missing`: what the records of this `kind` are asked for, and no field of theirs is
    called. `theme` are those of its words that stand before the kind, where no others are left. `another`: a figure is
    asked for of what is only called like a value.
    """

    plan: Plan | None = None
    unknown: tuple[str, ...] = ()
    missing: str = ""
    kind: str | None = None
    ranks: bool = False
    limits: bool = False
    theme: tuple[str, ...] = ()
    another: bool = False
