"""Answers from records: a question is read (planning.py), its query run, and what comes back told (telling.py)."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain, islice
from operator import mul
from typing import Any, TypeVar
from uuid import UUID

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore
from llama_index.core.vector_stores.types import MetadataFilter
from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.capabilities import RecordList
from rag_app.answering.leaning import without_opening
from rag_app.answering.records.asking import (
    NAMES_OF_FIELDS,
    asks_of_records,
    counted_by_sort,
    figure_asked,
    is_name,
    may_ask,
    measures_records,
    month_as_name,
    names_kind_first,
    names_records,
    ranks_kind,
    stand_behind_kind,
    without_period,
    words_left,
)
from rag_app.answering.records.briefs import read_lists, subject_of
from rag_app.answering.records.conditions import GRAINS, condition_text, kind_conditions
from rag_app.answering.records.following import (
    asks_of_any_day,
    asks_of_person,
    asks_of_those,
    carry,
    exchange,
    follow,
    goes_on_alone,
    is_whole,
    move_to_time,
    name_first,
    only_those,
    questions_before,
    say_place,
    say_year,
)
from rag_app.answering.records.holders import split_holder
from rag_app.answering.records.hours import asks_time, read_hours, say_when
from rag_app.answering.records.leads import lead_of, without_lead
from rag_app.answering.records.measures import say_figures
from rag_app.answering.records.planning import read_question, respell
from rag_app.answering.records.plans import Plan, Reading
from rag_app.answering.records.rephrasing import ask_once, say_offer, say_plainly, write_out
from rag_app.answering.records.settling import times_of
from rag_app.answering.records.sides import Side, first_side_has_day, share_words, split_sides
from rag_app.answering.records.spans import read_span, say_span
from rag_app.answering.records.steps import (
    PlannedSteps,
    Way,
    asks_difference,
    asks_two_figures,
    figure_of,
    may_take_steps,
    mean_query,
    part_counted,
    read_steps,
    set_apart,
    sets_figures_apart,
    sets_years_apart,
    share_of_all,
    with_mean,
)
from rag_app.answering.records.telling import (
    OPENS,
    Outcome,
    Telling,
    cite,
    ended_text,
    missing_text,
    no_hours_text,
    no_total_text,
    sort_text,
    unread_text,
)
from rag_app.answering.records.those import (
    Further,
    adds_figures,
    asks_further,
    begins_without,
    complement,
    counts_them,
    differ_in_one,
    is_first_few,
    join_plans,
    leaves_out,
    list_records,
    lists_them,
    may_be_narrowed,
    name_another,
    narrow_further,
    narrow_to_found,
    narrow_to_others,
    narrow_to_place,
    other_days,
    point_in_list,
    points_at_several,
    points_at_those,
    say_those,
    sets_them_apart,
    speaks_of_two,
    weighs_one,
)
from rag_app.answering.records.titles import read_names, words_of_titles
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Token,
    figure,
    is_figure,
    may_be_summed,
    noun_of,
    people_field,
    price_field,
    read_words,
    stem,
    stems,
    variants,
    vocabulary_of,
    without_phrases,
    word_set,
    workers_field,
    year_field,
)
from rag_app.answering.records.written_queries import QueryWriter
from rag_app.domain import FieldType, Filters, Hit, Mode, Period, Question, Usage, day_of
from rag_app.retrieval.embedding import MiniLM, asking, embed_query
from rag_app.retrieval.filters import EQ, GT, GTE, IN, IS_EMPTY, LT, LTE, NE, condition, fields_of
from rag_app.retrieval.hits import to_hits
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import (
    conditions_of,
    find_period_beside,
    find_periods,
    join_periods,
    move_to_year_of,
    period_of,
)
from rag_app.retrieval.postprocessors import cut_below
from rag_app.retrieval.records import LARGEST_LIMIT, Aggregate, NamedValue, RecordQuery, RecordResult
from rag_app.retrieval.spelling import as_written, correct_spelling, is_inflected, other_english, spellings, suspects
from rag_app.retrieval.store import ScopedStore, Search
from rag_app.retrieval.text import tokens as tokens_of

_BY_HOW_MUCH = re.compile(r",?\s+(?:and\s+)?by how (?:much|many)(?=\W*$)", re.I)
_AS_WELL = re.compile(r"\s+(?:as well as|and (?:then )?again)\s+", re.I)
_IN_BOTH = re.compile(r"\bboth\b|\bas well as\b|\band (?:then )?again\b", re.I)
_QUOTED_TEXT = re.compile(r"[“„\"«]([^“”„\"«»]+)[”“\"»]")
_FEW = 8  # values of a field that are all shown to the parser
_PAIR = 2  # plans or records that are compared, and the sources that are shown of each
_TITLES_READ = 100  # chunks whose titles are read
_SAME_NOUN, _NOUNS = 0.82, 3  # cosine from which on two nouns say the same, and how many of a kind's are tried
_YEARS_BACK = 4  # years in which days without a year are looked for, from that of the nearest record on
_EQUALS = 5  # records that are the best together, as many as are told


_COUNT_ROLES = SUPERLATIVES | {"count"}


class FoundRecords(Struct, frozen=True):
    """What a question about records found: `nodes`, the first one first, with their cosines, are the sources of `text`.

    `[Source N]` in the text is the Nth of them. `understood` says in a line what was asked. `computed`: the text tells a
    figure over all records, which no model is to tell again.
    """

    nodes: tuple[NodeWithScore, ...]
    text: str
    understood: str
    computed: bool


class NotRecorded(Struct, frozen=True):
    """A question about records makes no query: `text` says why, if that is known.

    `unknown` are its words that no field and no value is called by. What answers it nevertheless has half of them.
    `limits`: no sentence answers it, since a field is compared with a figure, or records are put in order.
    `figures`: the fields that tell a record from a text. With them a text may answer in other words, a record may not.
    """

    text: str
    unknown: tuple[str, ...] = ()
    limits: bool = False
    figures: frozenset[str] = frozenset()

    def is_record(self, hit: Hit) -> bool:
        return any(hit.metadata.get(name) is not None for name in self.figures)


class Step(Struct, frozen=True):
    """The `figure` of one of two queries, its sources, and how it is told."""

    figure: float
    nodes: tuple[NodeWithScore, ...]
    telling: Telling


T = TypeVar("T")
Work = Generator[Awaitable[Any], Any, T]
"""What reads a question and tells an answer: it gives what is to be awaited, and is sent what came of it."""


class RecordFinder:
    """Answers one question about the records of an index, in one scope, from at most `most` sources.

    `writer` asks a model for the query of a question about records that the rules do not understand. `lists` tell what is
    known of a subject.
    """

    _store: ScopedStore

    def __init__(
        self,
        question: Question,
        spec: IndexSpec,
        open_store: Callable[[], Awaitable[ScopedStore]],
        embedder: BaseEmbedding,
        dimension: int | None,
        most: int,
        writer: QueryWriter | None,
        lists: Sequence[RecordList],
    ) -> None:
        self._question, self._filters = question, question.filters if question.wide is None else question.wide
        self._spec, self._open_store, self._writer = spec, open_store, writer
        self._lists = [each for each in lists if each.kind in spec.records]
        self._embedder, self._dimension, self._most = embedder, dimension, most
        self._vector: list[float] | None = None
        self._known: dict[tuple[str, Period | None], Sequence[NamedValue]] = {}

    async def find(self) -> FoundRecords | NotRecorded | None:
        """What the records say; None where the question asks nothing of them, or they do not hold what it asks.

        The question's own filters hold as well, those of a second look where it has one. Raises StoreFailed and
        EmbeddingFailed.
        """
        written = say_when(write_out(self._question.text))
        written = say_figures(written, self._spec, years=not sets_years_apart(written))
        if written != self._question.text:
            self._question = self._say(self._question, written)
        if year_field(self._spec) is not None:
            self._question = replace(self._question, period=None)
        question = self._question
        before = tuple(say_when(write_out(each)) for each in questions_before(question))
        misspelt = bool(self._spec.records) and bool(suspects(question.text, ()))
        whole = not question.leans or is_whole(question, self._spec)
        asks = whole and (misspelt or may_ask(question.text, self._spec, question.period))
        briefs = bool(self._lists) and not question.leans and subject_of(question.text) is not None
        goes_on = not (before or question.leans) and goes_on_alone(question, self._spec, first=True)
        if not (asks or before or briefs or goes_on):
            return None
        self._store = await self._open_store()
        asking.set(self._store.scope.organizations)
        work, reply = self._read(before, asks=asks, briefs=briefs, goes_on=goes_on), None
        while True:  # awaited from here alone: a statement is few frames away
            try:
                wanted = work.send(reply)
            except StopIteration as done:
                found: FoundRecords | NotRecorded | None = done.value
                return found
            reply = await wanted

    def _read(
        self, before: Sequence[str], *, asks: bool, briefs: bool, goes_on: bool
    ) -> Work[FoundRecords | NotRecorded | None]:
        """Whether the question only goes on with another one; else the ways of reading it."""
        refused = (yield from self._explain_opening()) if goes_on else None
        refused = refused or (yield from self._explain_future())
        return refused or (yield from self._read_question(before, asks=asks, briefs=briefs))

    def _read_question(
        self, before: Sequence[str], *, asks: bool, briefs: bool
    ) -> Work[FoundRecords | NotRecorded | None]:
        """The ways of reading the question, one after the other."""
        question = (yield from self._put_right(self._question)) if asks or before else self._question
        before = yield from self._put_all_right(before)
        asks = asks and may_ask(question.text, self._spec, question.period)
        brief = (yield from self._answer_brief(question)) if briefs else None
        alone = asks and not asks_of_those(question.text, self._spec, first=not before)
        found = (yield from self._answer_by_two(question)) if alone and brief is None else brief
        if found is not None:
            return found
        alone_read = alone and not first_side_has_day(question.text, question.period)
        reading = (yield from self._understand(question)) if alone_read else Reading()
        continues = goes_on_alone(question, self._spec) or begins_without(question.text, self._spec)  # "and Mia?"
        names = reading.plan is not None and reading.plan.is_list and continues
        goes_on = bool(before) and (reading.plan is None or names)
        if goes_on and (told := (yield from self._tell_of_those(question, before))) is not None:
            return told
        if goes_on and (merged := (yield from self._follow(question, before))):
            if (found := (yield from self._answer_in_steps(merged))) is not None:
                return found
            after = yield from self._understand(merged)
            reading = reading if names and after.plan is None else after
        if reading.plan is not None:
            plan = reading.plan if before else (yield from self._list_or_total(reading.plan, question))
            timeless = yield from self._explain_hours(plan)
            return timeless or (yield from self._tell_plan(plan)) or self._explain_missing(plan)
        measures = question.leans and measures_records(question.text, self._spec)
        goes_on = self._goes_on(question, before, back=(asks and not alone) or measures)
        if goes_on or not asks:
            return NotRecorded(OPENS, limits=True) if goes_on else None
        share = (yield from self._tell_share(question)) if not before else None  # the parser reads no conversation
        parsed = (yield from self._parse(question)) if not (before or share) else None
        told = (yield from self._tell_plan(parsed)) if parsed is not None else share
        told = told or (yield from self._answer_by_model(question))
        return told or self._explain_sort(question.text) or self._explain_unread(reading, question.text)

    def _answer_by_two(self, question: Question) -> Work[FoundRecords | None]:
        """What takes more than one query: two periods, or steps."""
        held = (yield from self._ask_of_held(question)) or (yield from self._find_in_both(question))
        compared = held or (yield from self._compare_periods(question))
        steps = compared or (yield from self._answer_in_steps(question))
        return steps or (yield from self._answer_by_days(question)) or (yield from self._total_first_few(question))

    def _total_first_few(self, question: Question) -> Work[FoundRecords | None]:
        """The total or the mean of so many that stand first in an order: "what do the two cheapest tents cost together?"."""
        spec, values = self._spec, (yield from self._values(question.text, question.period))
        tokens = read_names(without_period(question.text, question.period), spec, values)
        ways = [token for token in tokens if token.role in ("sum", "average")]
        groups = any(
            self._spec.fields.get(token.name) is FieldType.KEYWORD for token in tokens if token.role == "field"
        )
        if len(ways) != 1 or groups or not any(token.role in SUPERLATIVES for token in tokens):
            return None
        bare = without_phrases(tokens, ways)
        plan = read_question(bare, spec, values, question.period, question.today).plan
        if plan is None or not is_first_few(plan) or plan.single or plan.query.limit != _number_in(tokens):
            return None
        of = next((each for each in (*plan.figures, plan.query.order) if each and is_figure(spec, each)), None)
        found: RecordResult = yield self._store.find_records(self._limit_query(replace(plan, whole=True)))
        if of is None or len(found.rows) != plan.query.limit:
            return None
        few = narrow_to_found(plan, [str(row.sources[0]) for row in found.rows], spec)
        way = Aggregate(ways[0].role)
        return (yield from self._tell_plan(replace(few, query=replace(few.query, aggregate=way, of=of))))

    def _answer_by_days(self, question: Question) -> Work[FoundRecords | None]:
        """How long ago a record was, or how many days lie between two; None of any other number of them."""
        span = read_span(question.text)
        plan = (yield from self._understand(self._say(question, span.text))).plan if span is not None else None
        if span is None or plan is None or not plan.is_list or plan.query.group is not None:
            return None
        told = yield from self._tell_plan(plan)
        hits = to_hits(told.nodes) if told is not None else []
        days = sorted(day_of(hit.date) for hit in hits if hit.date is not None)
        if told is None or not len(days) == len(hits) == span.number:
            return None
        said = say_span(days, question.today or datetime.now(UTC).date(), cite(range(1, span.number + 1)))
        return replace(told, text=f"{told.text} {said}", computed=True)

    def _values(self, text: str, period: Period | None) -> Work[Sequence[NamedValue]]:
        """The values of the scope that the words of a text may be, and the records whose titles have words of it.

        The ways of reading ask for those of the same text: they are looked up once.
        """
        words = words_left(text, self._spec, period)
        if words and (text, period) not in self._known:
            values = yield self._store.named_values(words)
            self._known[text, period] = [*values, *(yield from self._titles(text, period, values))]
        return self._known.get((text, period), ())

    def _titles(self, text: str, period: Period | None, values: Sequence[NamedValue]) -> Work[Sequence[NamedValue]]:
        """The records whose titles have words of a text that mean nothing else, with these `values`."""
        called = words_of_titles(without_period(text, period), self._spec, values)
        if not called:
            return ()
        return _titles_of((yield from self._search(" ".join(called), self._filters, Mode.TEXT, _TITLES_READ)), called)

    def _search(self, text: str, filters: Filters, mode: Mode, most: int) -> Work[list[NodeWithScore]]:
        """The chunks that are nearest to the question, or that have most of the words of a text."""
        vector = self._vector or (yield embed_query(self._embedder, self._question.text, self._dimension))
        self._vector = vector
        nodes: list[NodeWithScore] = yield self._store.search(Search(vector, text, filters, mode, most))
        return nodes

    def _answer_brief(self, question: Question) -> Work[FoundRecords | None]:
        """The lists of records that tell of a subject; None where there are none, or it is not understood."""
        spec, text, period = self._spec, question.text, question.period
        values = yield from self._values(f"{spec.records[self._lists[0].kind].words[0]} {text}", None)
        plans = read_lists(text, self._lists, spec, values, period, question.today)
        return (yield from self._tell_lists(plans))

    def _tell_lists(self, plans: Sequence[Plan]) -> Work[FoundRecords | None]:
        """Lists one after the other, those with few records whole; None where there are no records."""
        found = []
        for plan in plans:
            said, records, outcome = yield from self._query(plan)
            if outcome == "found" and records.total:
                found.append((said, records))
        room, shares = self._most, dict[int, int]()
        for place in sorted(range(len(found)), key=lambda place: found[place][1].total):
            shares[place] = min(found[place][1].total, room // (len(found) - len(shares)))
            room -= shares[place]
        kept = []
        for place, (said, records) in enumerate(found):
            cut = replace(records, rows=records.rows[: shares[place]])
            told = yield from self._tell(said, cut, "found")
            kept += [told] if told is not None and told.nodes else []
        return _join(kept, self._most) if kept else None

    def _ask_of_held(self, question: Question) -> Work[FoundRecords | None]:
        """What is asked of records that one of another kind holds: "the average demand of the terms on my bridal watchlist"."""
        holder = split_holder(question.text, self._spec)
        if holder is None:
            return None
        asked = (yield from self._understand(self._say(question, holder.rest))).plan
        named = (yield from self._understand(self._say(question, f"show {holder.said}"))).plan
        if asked is None or named is None or (asked.kind, named.kind) != (holder.held, holder.kind):
            return None
        found: RecordResult = yield self._store.find_records(self._limit_query(named))
        hits = to_hits((yield from self._nearest(found, 1))) if found.total == 1 else ()
        values = hits[0].metadata.get(holder.field) if hits else None
        narrowed = asked.query.of or asked.query.order or asked.figures or asked.conditions
        if not isinstance(values, list) or not narrowed:
            return None
        filters = (*asked.query.filters, condition(holder.key, IN, [str(each) for each in values]))
        told = (*asked.conditions, f"a place in “{hits[0].title}”")
        return (
            yield from self._tell_plan(replace(asked, query=replace(asked.query, filters=filters), conditions=told))
        )

    def _find_in_both(self, question: Question) -> Work[FoundRecords | None]:
        """Those of whom something is recorded in two periods: "which customers came last week as well as this week?"."""
        spec, text, plans = self._spec, _AS_WELL.sub(" and ", question.text), list[Plan]()
        if not _IN_BOTH.search(question.text) or spec.dated_types == () or "date" in fields_of(question.filters):
            return None
        periods = find_periods(text, question.today or datetime.now(UTC).date())
        for period in periods:
            plan = yield from self._read_plan(replace(question, text=text, period=period))
            plans += [each for each in [plan and self._group_people(plan, text)] if each is not None]
        if len(plans) != _PAIR:
            return None
        found = list[RecordResult]()
        for plan in plans:
            found.append((yield self._store.find_records(replace(self._limit_query(plan), limit=LARGEST_LIMIT))))
        again = {row.group for row in found[1].rows}
        rows = tuple(row for row in found[0].rows if row.group in again)
        if not rows or any(len(each.rows) < each.total for each in found):
            return None
        both = replace(plans[0], conditions=(*plans[0].conditions, f"others of {periods[1].label}"))
        return (yield from self._tell(both, replace(found[0], rows=rows, total=len(rows)), "found"))

    def _group_people(self, plan: Plan, text: str) -> Plan | None:
        """A plan for the values of a field, or for the people of the records that "who" asks for; else None."""
        query, people = plan.query, people_field(self._spec)
        asked = any(
            token.stem in word_set("who") or token.name == people for token in read_words(text, self._spec)[:3]
        )  # "who", "which customers"
        if plan.is_list and query.group is None and people and asked:
            query = replace(query, aggregate=Aggregate.COUNT, group=people, order=None)
        groups = query.aggregate is Aggregate.COUNT and query.group is not None and query.grain is None
        return replace(plan, query=query, distinct=True) if groups and not (query.least or query.most) else None

    def _compare_periods(self, question: Question) -> Work[FoundRecords | None]:
        """The figures of two periods, one after the other; None where the question compares none, or one has no records."""
        spec, text = self._spec, ask_once(question.text)
        if (spec.dated_types == () and year_field(spec) is None) or "date" in fields_of(question.filters):
            return None
        text, apart = _BY_HOW_MUCH.sub("", text), asks_difference(text)
        today, joined, plans = question.today or datetime.now(UTC).date(), join_periods(text), list[Plan]()
        periods = find_periods(text, today)
        sides: Sequence[Side] = [Side(text, each) for each in periods or find_periods(joined, today)]
        if sides and not periods:
            sides = [replace(each, text=joined) for each in sides]
        for one, other in () if sides else split_sides(text, today):
            shared = [
                *(yield from self._values(one.text, one.period)),
                *(yield from self._values(other.text, other.period)),
            ]
            if sides := share_words(one, other, spec, shared):
                break
        if spec.dated_types == () and any(side.period.grain != "year" for side in sides):
            return None
        for side in sides:
            plan = yield from self._read_plan(replace(question, text=side.text, period=side.period), comparing=True)
            if plan is None:
                return None
            plans.append(plan)
        names = [side.name for side in sides]
        plain = bool(periods) or (any(names) and sides[0].period.said.casefold() in word_set("compares"))
        if len(plans) != 2 or not (apart or plain or plans[0].contest):
            return None
        if apart:
            return (yield from self._tell_in_steps(PlannedSteps(Way.DIFFERENCE, (plans[0], plans[1]))))
        return (yield from self._tell_compared(plans, names, nearest=bool(periods)))

    def _tell_compared(
        self, plans: Sequence[Plan], names: Sequence[str], *, nearest: bool
    ) -> Work[FoundRecords | None]:
        """The figures of plans for two periods, each of whom it names, and which is more; `nearest`: perhaps of other days."""
        told, figures, largest = list[FoundRecords](), list[float | None](), RecordResult()
        for plan in plans:
            said, records, outcome = yield from self._query(plan)
            one_told = yield from self._tell(said, records, outcome)
            if one_told is None or not one_told.nodes or (outcome == "elsewhen" and not nearest):
                return None
            told.append(one_told)
            none = outcome == "none" and plan.query.aggregate is Aggregate.COUNT
            known = outcome == "found" and said is plan
            figures.append(0.0 if none else figure_of(said, records) if known else None)
            largest = max(largest, records, key=lambda each: each.total)
        contest = plans[0].contest
        first = replace(plans[0], contest=contest and replace(contest, sides=tuple(filter(None, names))))
        days = [plan.period.label if plan.period is not None else "" for plan in plans]
        labels = [" in ".join(filter(None, each)) for each in zip(names, days, strict=True)]
        return _join_compared(told, Telling(self._spec, first, largest, (), "found"), figures, labels)

    def _tell_plan(self, plan: Plan) -> Work[FoundRecords | None]:
        if plan.every is not None:
            return (yield from self._tell_every(plan, plan.every))
        if plan.kind is None and (yield from self._leaves_untold(plan)):
            return None
        whether = yield from self._tell_whether(plan)
        if whether is not None:
            return whether
        said, found, outcome = yield from self._query(plan)
        if outcome == "found" and found.total <= self._most and said.tells_each_once(found):
            said, found, outcome = yield from self._query(said.records)
        return (yield from self._tell(said, found, outcome))

    def _explain_hours(self, plan: Plan) -> Work[NotRecorded | None]:
        """That no record of the kind has a time of day, where one is asked for."""
        if plan.query.hours is None:
            return None
        filters = () if plan.kind is None else kind_conditions(self._spec.records[plan.kind])
        timed = RecordQuery((*self._filters, *filters), aggregate=Aggregate.COUNT, hours=(1, 24 * 60), limit=1)
        found: RecordResult = yield self._store.find_records(timed)
        return None if found.total else NotRecorded(no_hours_text(self._spec, plan.kind), limits=True)

    def _explain_future(self) -> Work[NotRecorded | None]:
        """That rows end before the days of which a figure is asked: they hold what was, and no forecast.

        None where any row has a day that is still to come: then there are dates that are planned.
        """
        question, period = self._question, self._question.period
        today = question.today or datetime.now(UTC).date()
        if period is None or (period.start or date.min) <= today or not self.knows_rows_alone:
            return None
        ahead = period.otherwise is None or {*stems(question.text)} & word_set("will")  # "in December", of any year
        if not ahead or "date" in fields_of(self._filters):
            return None
        if not {token.role for token in read_words(question.text, self._spec)} & (NAMES_OF_FIELDS | {"count", "much"}):
            return None
        days = list[date]()
        for name in ("date", *times_of(self._spec)):
            last: RecordResult = yield self._store.find_records(RecordQuery(self._filters, order=name, limit=1))
            days += [day_of(float(str(row.value))) for row in last.rows if row.value is not None]
        return NotRecorded(ended_text(max(days)), limits=True) if days and max(days) <= today else None

    def _leaves_untold(self, plan: Plan) -> Work[bool]:
        """Whether some records of kinds that are told with a field that holds or not have none: nobody knows whether it holds."""
        keys = [each for each in fields_of(plan.query.filters) if self._spec.all_fields.get(each) is FieldType.BOOLEAN]
        for name in keys:
            for kind in self._spec.records.values():
                if f"{{{name}}}" not in " ".join(kind.sentence):
                    continue
                lacking = (*self._filters, *kind_conditions(kind), condition(name, IS_EMPTY))
                counted = RecordQuery(lacking, aggregate=Aggregate.COUNT, having=kind.having, limit=1)
                found: RecordResult = yield self._store.find_records(counted)
                if found.total:
                    return True
        return False

    def _tell_whether(self, plan: Plan) -> Work[FoundRecords | None]:
        """Whether the one record that is named keeps to a bound, and its figure; None without a bound, and of several."""
        bound = plan.bound
        if bound is None or plan.query.group is not None:
            return None
        if plan.query.aggregate is not None:
            said, records, outcome = yield from self._query(plan)
            told = yield from self._tell(said, records, outcome)
            figure = 0.0 if outcome == "none" and plan.query.aggregate is Aggregate.COUNT else figure_of(said, records)
            known = figure is not None and outcome in ("found", "none") and (said is plan or outcome == "none")
            return _say_whether(told, bound, figure) if told and figure is not None and known else told
        filters = tuple(each for each in plan.query.filters if each is not bound)
        conditions = tuple(each for each in plan.conditions if each != condition_text(bound, self._spec))
        query = replace(plan.query, filters=filters, order=bound.key, limit=1)
        of_one = replace(plan, query=query, conditions=conditions, single=True, figures=(bound.key,))
        found: RecordResult = yield self._store.find_records(self._limit_query(of_one))
        if found.total > 1 and plan.together and vocabulary_of(self._spec, bound.key).adds_up:
            return (yield from self._tell_one_and_all(of_one, bound))
        value = found.rows[0].value if found.total == 1 else None
        told = (yield from self._tell(of_one, found, "found")) if isinstance(value, int | float) else None
        if told is None or not told.text or not isinstance(value, int | float):
            return None
        return _say_whether(told, bound, value)

    def _tell_every(self, plan: Plan, is_so: MetadataFilter) -> Work[FoundRecords | None]:
        """Whether all records keep to a condition: those that do not, or else all of them; None where some say neither."""
        others = tuple(each for each in plan.query.filters if each is not is_so)
        against = condition(is_so.key, NE, is_so.value)
        if isinstance(is_so.value, bool):
            against = is_so.model_copy(update={"value": not is_so.value})
        told = condition_text(is_so, self._spec), condition_text(against, self._spec)
        conditions = tuple(told[1] if each == told[0] else each for each in plan.conditions)
        lacking = replace(
            plan, query=replace(plan.query, filters=(*others, against)), conditions=conditions, whether=False
        )
        counted = replace(plan.query, filters=others, aggregate=Aggregate.COUNT, limit=1)
        all_of_them: RecordResult = yield self._store.find_records(self._limit_query(replace(plan, query=counted)))
        for each, lead in (lacking, "No"), (plan, "Yes"):
            found: RecordResult = yield self._store.find_records(self._limit_query(each))
            said = (yield from self._tell(each, found, "found")) if found.total else None
            if said is not None and (each is lacking or found.total == all_of_them.total):
                return replace(said, text=f"{lead}: {said.text[:1].lower()}{said.text[1:]}", computed=True)
            if found.total:
                return None
        return None

    def _tell_one_and_all(self, one: Plan, bound: MetadataFilter) -> Work[FoundRecords | None]:
        """Whether the largest of several records keeps to a bound, and whether their total does: either may be asked."""
        total = replace(one.query, aggregate=Aggregate.SUM, of=bound.key, order=None, limit=_EQUALS)
        told, holds = list[FoundRecords](), list[bool]()
        for plan in (one, replace(one, query=total, single=False)):
            said, records, outcome = yield from self._query(plan)
            each, figure = (yield from self._tell(said, records, outcome)), figure_of(said, records)
            told += [each] if each else []
            holds += [_holds(bound, figure)] if figure is not None else []
        if len(told) != len(holds) or len(told) != _PAIR:
            return None
        both = _join(told, _PAIR)
        ways = {(True, True): "Yes", (False, False): "No", (False, True): "Not one alone, but all together"}
        lead = ways.get((holds[0], holds[1]), "Each one alone, but not all together")
        return replace(both, text=f"{lead}: {both.text[:1].lower()}{both.text[1:]}", computed=True)

    def _tell(self, plan: Plan, found: RecordResult, outcome: Outcome) -> Work[FoundRecords | None]:
        """How what a plan found is told; None where the words' way is to be taken."""
        mixed = plan.kind is None and len(found.types) > 1 and not plan.conditions
        number = max((row.size for row in found.rows), default=0) if plan.query.group else found.total
        senseless = self._has_no_total(plan) and outcome == "found" and number > 1
        miscounted = plan.number not in (0, found.total)  # there are more of them, or fewer
        if not found.rows or mixed or senseless or miscounted or plan.finds_no_best(found):
            return None
        found = replace(found, rows=found.rows[plan.skip :]) if outcome == "found" else found
        most = LARGEST_LIMIT if plan.is_first_of_each or plan.whole else self._most
        if plan.single and not plan.whole:
            most = min(most, _EQUALS)
        shown = yield from self._nearest(found, most)
        kept, listed = self._cut_below_threshold(shown), plan.is_list and outcome not in ("none", "lacking")
        if len(kept) < len(shown) and not listed:
            return None if kept else FoundRecords((), "", "", computed=True)
        hits = to_hits(kept)
        whole = (all(hit.metadata.get(name) is not None for name in plan.figures) for hit in hits)
        if hits and listed and not any(whole):
            return None  # the texts may say what the fields do not hold
        telling = Telling(self._spec, plan, found, hits, outcome, self._most)
        computed = not listed or plan.is_first_of_each or plan.whole or plan.contest is not None
        return FoundRecords(tuple(kept[: self._most]), telling.text, telling.paraphrase, computed)

    def _nearest(self, found: RecordResult, most: int) -> Work[list[NodeWithScore]]:
        """The chunk of each record that is nearest to the question, in the order of the records."""
        wanted = [*dict.fromkeys(source for row in found.rows for source in row.sources)][:most]
        nearest: dict[UUID, NodeWithScore] = {}
        while left := [source for source in wanted if source not in nearest]:
            only, limit = condition("source_id", IN, [*map(str, left)]), 2 * len(left) + 10
            nodes = yield from self._search(self._question.text, (only,), Mode.DENSE, limit)
            for node in nodes:
                nearest.setdefault(UUID(node.node.metadata["source_id"]), node)
            if len(nodes) < limit:
                break  # a long source crowds out others no more: that was all there is
        return [nearest[source] for source in wanted if source in nearest]

    def _cut_below_threshold(self, nodes: Collection[NodeWithScore]) -> list[NodeWithScore]:
        """Those that a threshold leaves which the request itself sends."""
        question = self._question
        if question.threshold is None or not question.threshold_sent:
            return [*nodes]
        return cut_below([*nodes], question.threshold)

    def _put_all_right(self, before: Sequence[str]) -> Work[Sequence[str]]:
        """Earlier questions with their misspelt words as they are written in the index."""
        sold, written = vocabulary_of(self._spec, price_field(self._spec)).kind, []
        noun = noun_of(self._spec.records[sold]) if sold else ""
        for text in (each if may_ask(each, self._spec) else say_offer(each, noun) for each in before):
            asked = self._say(self._question, text)
            written.append((yield from self._put_right(asked)).text if suspects(text, ()) else text)
        return written

    def _put_right(self, question: Question) -> Work[Question]:
        """The question with its misspelt words as they are written in the index, its values, or what the scope sees.

        Without what the asker tells before it, where that names nothing: "I've got a gift to buy, show me ...".
        """
        spec, text = self._spec, say_plainly(question.text)
        question = self._say(question, text) if text != question.text else question
        question = yield from self._name_person(question)
        values = yield from self._values(text, question.period)
        today = question.today or datetime.now(UTC).date()
        if lead := lead_of(text):
            rest, days = without_lead(text, spec, (yield from self._values(lead, None)), today)
            question = self._say(question, rest) if rest != text else question
            text, filtered = rest, "date" in fields_of(question.filters)
            question = replace(question, period=days) if days and not filtered else question
        tokens = read_names(without_period(text, question.period), spec, values)
        left = suspects(" ".join(token.text for token in tokens if token.is_left and figure(token.text) is None), ())
        unknown = [word for word in left if not is_inflected(word)]
        whole = {token.text.lower() for token in tokens if token.is_left} - {*left}
        options = {word: dict.fromkeys(other_english(word), 0.0) for word in sorted(whole)}
        options |= {word: spellings(word) for word in unknown}
        forms = (
            {each for found in options.values() for each in found} if words_left(text, spec, question.period) else ()
        )
        others: Sequence[NamedValue] = (yield self._store.named_values(sorted(forms))) if forms else ()
        spelled = respell(text, options, spec, [*values, *others])
        doubtful = suspects(spelled, ()) if options else ()
        written: Mapping[str, str] = (yield self._store.respell(doubtful)) if doubtful else {}
        spelled = correct_spelling(spelled, {word: there for word, there in written.items() if word in options})
        named = yield from self._name_kind(spelled, tokens)
        return self._reword(question, named)

    def _name_kind(self, text: str, tokens: Sequence[Token]) -> Work[str]:
        """The text with the name of the only kind of record for a noun that says the same: "films" where rows are movies.

        Of the bundled embedder alone the cosine is known from which on it does (docs/adr/0065).
        """
        kinds = [*self._spec.records.values()]
        bundled = isinstance(self._embedder, MiniLM) and self._dimension in (None, self._embedder.dimension)
        if len(kinds) != 1 or not bundled or any(token.role == "kind" for token in tokens):
            return text
        for token in tokens:
            if token.is_left and token.text.islower() and len(tokens_of(token.stem)) == 1:
                asked = yield embed_query(self._embedder, token.stem, self._dimension)
                for noun in [word for word in kinds[0].words if " " not in word][:_NOUNS]:
                    known = yield embed_query(self._embedder, noun, self._dimension)
                    if sum(map(mul, asked, known)) >= _SAME_NOUN:
                        number = 2 if token.text != token.stem else 1
                        return correct_spelling(text, {token.text: noun_of(kinds[0], number)})
        return text

    def _names_person(self, question: Question, before: Sequence[str]) -> Work[bool]:
        """Whether a month that goes on with questions without days is the name of somebody who is recorded: "and April?"."""
        name = question.text.strip(" ?!.")
        if not name.isalpha() or any(self._say(question, each).period is not None for each in before):
            return False
        values: Sequence[NamedValue] = yield self._store.named_values([name.lower()])
        return any(is_name(each.value, name) for each in values)

    def _name_person(self, question: Question) -> Work[Question]:
        """The question without a month that is the name of somebody who is recorded: "visits with April"."""
        name = month_as_name(question.text, question.period)
        values: Sequence[NamedValue] = (yield self._store.named_values([name.lower()])) if name else ()
        return (
            replace(question, period=None) if name and any(is_name(each.value, name) for each in values) else question
        )

    def _read_plan(self, question: Question, *, comparing: bool = False) -> Work[Plan | None]:
        """The plan of a question by its words as they are."""
        values, today = (yield from self._values(question.text, question.period)), question.today
        return read_question(question.text, self._spec, values, question.period, today, comparing=comparing).plan

    def _understand(self, question: Question) -> Work[Reading]:
        """The question as a plan, of records with the time of day that it names."""
        text = question.text
        told, hours = read_hours(text, of_day=question.period is not None and question.period.grain == "day") or (
            text,
            None,
        )
        said = self._reword(question, told)
        reading = yield from self._understand_days(said)
        if hours is not None and not (reading.plan or reading.unknown):  # "which visits were at five?"
            reading = yield from self._understand_days(self._say(said, f"{said.text} all"))
        plan = reading.plan
        if plan is None:
            return reading
        one_day = plan.is_list and plan.period is not None and plan.period.grain == "day"
        plan = replace(plan, clock=True) if one_day or asks_time(question.text) else plan
        return replace(reading, plan=plan if hours is None else plan.narrow_to_hours(hours))

    def _understand_days(self, question: Question) -> Work[Reading]:
        """The question as a plan, whatever the time of day."""
        asked = question.text, self._spec, (yield from self._values(question.text, question.period)), question.period
        reading = read_question(*asked, question.today)
        narrows = reading.theme and not self._ranks_theme(question.text, reading)
        about = read_question(*asked, question.today, theme=reading.theme).plan if narrows else None
        plan = (yield from self._narrow(about, reading.theme)) if about is not None else None
        return Reading(plan) if plan is not None else reading

    def _ranks_theme(self, text: str, reading: Reading) -> bool:
        """Whether the top ones of a theme are asked for, which a text may tell: "the top wedding keywords"."""
        bare = " ".join(word for word in text.split() if word.lower() not in reading.theme)
        return reading.theme != () and ranks_kind(bare, self._spec)

    def _narrow(self, plan: Plan, theme: Sequence[str]) -> Work[Plan | None]:
        """The list that a plan asks for, of the records of its kind whose titles or texts have these words.

        None where there are none, where they may be more than are read, and where a figure is asked for: a record can be of
        a sort that no word of it says.
        """
        if not plan.is_list or plan.kind is None:
            return None
        kind, sources = kind_conditions(self._spec.records[plan.kind]), list[set[str]]()
        for word in theme:
            nodes = yield from self._search(word, (*self._filters, *kind), Mode.TEXT, _TITLES_READ)
            hits = to_hits(nodes) if len(nodes) < _TITLES_READ else ()
            sources.append({str(hit.source_id) for hit in hits if stem(word) in stems(f"{hit.title} {hit.text}")})
        having = set.intersection(*sources)
        return plan.narrow_to(theme, having) if having else None

    def _list_or_total(self, plan: Plan, question: Question) -> Work[Plan]:
        """The plan, or the total of the figure that it names: where the rules cannot tell, the parser says which is meant."""
        if not plan.may_be_total(self._spec):
            return plan
        parsed, total = (yield from self._parse(question)), plan.total
        pair = [(each.query.aggregate, each.query.of, each.query.group) for each in (parsed or plan, total)]
        return total if pair[0] == pair[1] else plan

    def _parse(self, question: Question) -> Work[Plan | None]:
        """The query that the parser reads; None where it is not certain of one, or nothing of records is named.

        It is shown the values of the scope that words of the question may be, and those of each field with few of them.
        """
        named = self.knows_rows_alone or names_records(question.text, self._spec, question.period)
        if asks_difference(question.text) or not named:
            return None
        values: list[NamedValue] = yield self._store.named_values(self._forms(question.text))
        titles = yield from self._titles(question.text, question.period, values)
        for name in [name for name, kind in self._spec.fields.items() if kind is FieldType.KEYWORD]:
            counted = RecordQuery(self._filters, aggregate=Aggregate.COUNT, group=name, limit=_FEW)
            few: RecordResult = yield self._store.find_records(counted)
            values += [NamedValue(name, str(row.group)) for row in few.rows if few.total <= _FEW]
        from rag_app.answering.records.read_queries import read_plan  # which few questions need

        parsed: Plan | None = yield asyncio.to_thread(read_plan, question, self._spec, [*values, *titles])
        return parsed

    def _tell_share(self, question: Question) -> Work[FoundRecords | None]:
        """A share of all records of a kind whose part the parser reads: what share of the visits failed."""
        counted = part_counted(question.text, self._spec)
        part = (yield from self._parse(self._say(question, counted))) if counted else None
        steps = share_of_all(part) if part is not None else None
        return (yield from self._tell_in_steps(steps)) if steps is not None else None

    def _forms(self, text: str) -> Sequence[str]:
        """The words of a text as values may have them."""
        return sorted({form for token in read_words(text, self._spec) for form in variants(token.text)})

    def _answer_by_model(self, question: Question) -> Work[FoundRecords | None]:
        """What the query finds that a model writes; None without a model, and where it writes none that fits."""
        text, spec = question.text, self._spec
        if self._writer is None or not asks_of_records(text, spec, question.period):
            return None
        values: Sequence[NamedValue] = yield self._store.named_values(self._forms(text))
        plan: Plan | None = yield self._writer.write(self._question, spec, values)
        return (yield from self._tell_plan(plan)) if plan else None

    def _has_no_total(self, plan: Plan) -> bool:
        """Whether a total is asked for of what does not add up: a rating, a temperature."""
        of = plan.query.of
        return of is not None and plan.query.aggregate is Aggregate.SUM and not may_be_summed(self._spec, of)

    def _explain_missing(self, plan: Plan) -> NotRecorded | None:
        """That no record of a kind has the figure that is asked for, which is one of another kind; or holds what is asked.

        Or that it makes no total.
        """
        name, spec = plan.query.of or plan.query.order, self._spec
        if plan.number:
            return NotRecorded("", limits=True)
        if self._has_no_total(plan):
            return NotRecorded(no_total_text(spec, plan.query.of), limits=True)
        if any(spec.all_fields.get(each) is FieldType.BOOLEAN for each in fields_of(plan.query.filters)):
            return NotRecorded("", limits=True)  # nobody knows of which it holds
        words = vocabulary_of(spec, name)
        if plan.is_list and plan.figures and plan.conditions:
            return NotRecorded("", limits=True)  # of nothing that is called so
        if name is None or words.kind in (None, plan.kind):
            return None
        text = missing_text(spec, plan.kind, next(iter(words.words), name))
        return NotRecorded(text, limits=True) if text else None

    def _explain_sort(self, text: str) -> NotRecorded | None:
        """That things are to be counted of which only the sort is recorded."""
        counted = counted_by_sort(read_words(text, self._spec), self._spec)
        return NotRecorded(sort_text(self._spec, counted.name, counted.stem), limits=True) if counted else None

    def _explain_unread(self, reading: Reading, text: str) -> NotRecorded | None:
        """What the records lack, or that the words make no query, where all of a kind, a figure or an order is asked for."""
        figures = frozenset(name for name in self._spec.fields if is_figure(self._spec, name))
        unknown = [as_written(word, self._question.text) for word in reading.unknown]
        if lacking := missing_text(self._spec, reading.kind, reading.missing):
            roles = {token.role for token in read_words(text, self._spec)}
            words = reading.unknown if roles & SUPERLATIVES else ()  # "what time is it" is told in other words
            if roles & {"much", "count"} and self._names_value(text):  # "how much commission does Ada get"
                return NotRecorded(lacking if "kind" in roles else "", reading.unknown, reading.limits)
            return NotRecorded(lacking if "kind" in roles else "", words, reading.limits, figures)
        if reading.ranks or asks_two_figures(text):
            named = ranks_kind(text, self._spec) and reading.unknown != ()
            limited = reading.limits or sets_figures_apart(text)
            limits = limited and not named and not self._ranks_theme(text, reading)
            return NotRecorded(unread_text(unknown), reading.unknown, limits, figures)
        if names_kind_first(text, self._spec):
            bounded = any(figure(word) is not None for word in reading.unknown)  # those that begin before ten
            return NotRecorded("", reading.unknown, bounded)
        if self.knows_rows_alone and self._totals_all(text):
            return NotRecorded(unread_text(unknown), reading.unknown, limits=True)
        asked, quoted = figure_asked(read_words(text, self._spec)), stems(" ".join(_QUOTED_TEXT.findall(text)))
        said = [word for word in unknown if reading.another or stem(word) in quoted or word.lower() == asked]
        about = stand_behind_kind(self._tokens(text)) if reading.unknown else ()
        wanted = tuple(said) or about or self._words_wanted(text, reading.unknown)
        return NotRecorded(unread_text(said) if said else "", wanted, limits=asked != "") if wanted else None

    def _words_wanted(self, text: str, unknown: tuple[str, ...]) -> tuple[str, ...]:
        """The words that a text needs to answer: where a number of what a value names is asked for, those that are not
        understood; where somebody is named with a day, that name."""
        tokens = self._tokens(text)
        people = {people_field(self._spec), workers_field(self._spec)}
        named = [token.text for token in tokens if token.role == "value" and token.name in people]
        unclear = tuple(token.text for token in tokens if token.role == "unclear")  # "sent back"
        if any(token.role == "count" for token in tokens) and (unclear or self._names_value(text)):
            return unclear or unknown
        return tuple(named) if self._question.period is not None else ()

    def _totals_all(self, text: str) -> bool:
        """Whether a figure that adds up is named, and no value: no single row tells it."""
        tokens = read_words(text, self._spec)
        added = any(token.name and vocabulary_of(self._spec, token.name).adds_up for token in tokens)
        return added and not self._names_value(text)

    def _names_value(self, text: str) -> bool:
        return any(token.role == "value" for token in self._tokens(text))

    def _tokens(self, text: str) -> Sequence[Token]:
        """The words of a text with the values that are known."""
        return read_words(text, self._spec, [*dict.fromkeys(chain.from_iterable(self._known.values()))])

    def _goes_on(self, question: Question, before: Sequence[str], *, back: bool) -> bool:
        """Whether it asks for a figure or an order of what an earlier question named, which is not known or not understood."""
        if back:
            return asks_of_records(question.text, self._spec, question.period)
        ordered = any(token.role in SUPERLATIVES for token in read_words(question.text, self._spec))
        return bool(before) and ordered and goes_on_alone(question, self._spec)

    def _explain_opening(self) -> Work[NotRecorded | None]:
        """What goes on with a question that is not known, and names days or values alone, is answered by no text either."""
        question, spec = self._question, self._spec
        values: Sequence[NamedValue] = yield self._store.named_values(self._forms(question.text))
        tokens = read_names(without_period(without_opening(question.text), question.period), spec, values)
        named = question.period is not None or any(token.role == "value" or token.role in GRAINS for token in tokens)
        return NotRecorded(OPENS, limits=True) if named and not any(map(_says_else, tokens)) else None

    def _answer_in_steps(self, question: Question) -> Work[FoundRecords | None]:
        """A share, a difference, what is beyond the mean, so many a week, or two lists; None where it is none of them."""
        if not may_take_steps(question.text):
            return None
        values = yield from self._values(question.text, question.period)
        steps = read_steps(question.text, self._spec, values, question.period, question.today)
        if steps is None:
            return None
        return (yield from self._tell_in_steps(steps)) or (yield from self._tell_only_other(steps, question))

    def _tell_only_other(self, steps: PlannedSteps, question: Question) -> Work[FoundRecords | None]:
        """The difference to the other's only record, of whatever day: "Ada's trip on 8 January against Bo's"; None of several."""
        period, other = question.period, steps.plans[-1]
        if period is None or steps.way is not Way.DIFFERENCE or not first_side_has_day(question.text, period):
            return None
        filters = tuple(each for each in other.query.filters if each not in conditions_of(period))
        only = replace(other, query=replace(other.query, filters=filters), period=None)
        found: RecordResult = yield self._store.find_records(self._limit_query(only))
        pair = replace(steps, plans=(steps.plans[0], only))
        return (yield from self._tell_in_steps(pair)) if found.total == 1 else None

    def _tell_in_steps(self, steps: PlannedSteps) -> Work[FoundRecords | None]:
        """What both queries find, told together; None where one of them finds nothing to tell."""
        plans = steps.plans
        if steps.way is Way.MEAN:
            query = mean_query(plans[0])
            asked = replace(query, filters=(*self._filters, *query.filters))
            measured: RecordResult = yield self._store.find_records(asked)
            mean = measured.value
            plan = with_mean(plans[0], mean, self._spec) if mean is not None else None
            said = (yield from self._tell_plan(plan)) if plan else None
            if said is None or plan is None or plan.bound is None:
                return said
            of_all = replace(plans[0], query=query, conditions=(), figures=(), bound=None)
            average = yield from self._tell(of_all, measured, "found")
            return _join([said, average], _PAIR) if average else said
        if steps.way is Way.BOTH and all(plan.is_list for plan in plans):
            return (yield from self._tell_lists(plans))
        if steps.way is Way.BOTH:
            numbers = []
            for each in plans:
                numbers += [(yield from self._tell_plan(each))]
            return _join([each for each in numbers if each], _PAIR) if all(numbers) else None
        told = []
        for each in plans:
            step = yield from self._step(each)
            told += [] if step is None else [step]
        return _combine_figures(steps, told)

    def _step(self, plan: Plan) -> Work[Step | None]:
        """The figure of one plan, with the sources that it was computed from."""
        found: RecordResult = yield self._store.find_records(self._limit_query(plan))
        figure = figure_of(plan, found)
        if (
            figure is None
            or (plan.kind is None and len(found.types) > 1)
            or (self._has_no_total(plan) and found.total > 1)
        ):
            return None
        found = _leave_equals(plan, found) if plan.is_list else found
        kept = self._cut_below_threshold((yield from self._nearest(found, self._most)))
        return Step(figure, tuple(kept), Telling(self._spec, plan, found, to_hits(kept), "found"))

    @property
    def knows_rows_alone(self) -> bool:
        """Whether all that the index has are rows of tables, each a record of its own."""
        return {*self._spec.source_types} <= {rule.source_type for rule in self._spec.rows}

    @property
    def usage(self) -> Usage | None:
        """The tokens that a model took for queries; None where none was asked."""
        return self._writer.spent if self._writer is not None else None

    def _plan_before(self, before: Sequence[str]) -> Work[Plan | None]:
        """The plan of the newest of the questions `before`, which may go on with the others."""
        if not before:
            return None
        question = self._say(self._question, say_plainly(before[0]))
        alone = not self._points_back(before)
        plan = (yield from self._understand(question)).plan if alone else None
        if plan is not None and not (plan.is_list and goes_on_alone(question, self._spec)):
            return plan
        if (those := (yield from self._ask_of_those(question, before[1:]))) is not None:
            return those
        merged = yield from self._follow(question, before[1:])
        return ((yield from self._understand(merged)).plan if merged is not None else None) or plan

    def _tell_of_those(self, question: Question, before: Sequence[str]) -> Work[FoundRecords | None]:
        """What is asked of the records that the questions before were about; None where it points at none of them."""
        those = yield from self._ask_of_those(question, before)
        told = (yield from self._tell_plan(those)) if those is not None else None
        told = told or (yield from self._compare_with_other_days(question, before))
        return told or (yield from self._set_those_apart(question, before))

    def _compare_with_other_days(self, question: Question, before: Sequence[str]) -> Work[FoundRecords | None]:
        """The figure that the question before asked for beside that of other days: "is that more than the week before?"."""
        if (found := other_days(question.text)) is None:
            return None
        days, contest = found
        first = yield from self._plan_before(before)
        merged = yield from self._follow(self._say(question, days), before)
        second = (yield from self._understand(merged)).plan if merged is not None else None
        if first is None or second is None or first.period is None or first.period == second.period:
            return None
        one, other = (replace(each.query, filters=()) for each in (first, second))
        if one != other or one.aggregate is None or one.group is not None or first.conditions != second.conditions:
            return None
        return (yield from self._tell_compared([replace(first, contest=contest), second], ("", ""), nearest=False))

    def _points_back(self, before: Sequence[str]) -> bool:
        """Whether the newest of some questions is of the records of those before it: "how many of those are done?"."""
        return len(before) > 1 and asks_of_those(before[0], self._spec, first=False)

    def _ask_of_those(self, question: Question, before: Sequence[str]) -> Work[Plan | None]:
        """The same as a plan."""
        spec, text = self._spec, without_opening(question.text)
        first = yield from self._plan_before(before)
        if first is None or _are_other_days(first.period, question.period):
            return None
        if question.period is None and (further := asks_further(text, spec)) is not None:
            more = yield from self._go_further(first, further, before[0])
            return list_records(more) if more is not None and lists_them(text) else more
        said = say_those(text, first, spec) if first.kind is not None else text
        values = yield from self._values(said, question.period)
        out = leaves_out(read_names(text, spec, values))
        pointing = points_at_those(text, before[0], spec) or only_those(text)
        if first.query.group is not None:
            return first if pointing and counts_them(text, spec) else None
        if not may_be_narrowed(first) or not (out or pointing):
            return None
        if not out:
            return (yield from self._ask_of_some(question, first, before))
        asked = f"all the {noun_of(spec.records[first.kind or ''])} {text}"
        left = read_question(asked, spec, values, question.period, question.today).plan
        return narrow_to_others(first, left) if left is not None else None

    def _ask_of_place(self, question: Question, first: Plan, place: int) -> Work[Plan | None]:
        """What is asked of the record at a place of the list before: "what did the second one pay?"."""
        if not first.is_list or first.single:
            return None
        found: RecordResult = yield self._store.find_records(self._limit_query(first))
        rows = found.rows[first.skip :][place - 1 if place > 0 else place :][:1]
        if len(found.rows) < _PAIR or not rows:
            return None
        only = narrow_to_place(first, place, str(rows[0].sources[0]))
        return (yield from self._read_of(question, only)) if question.text else only

    def _ask_of_some(self, question: Question, first: Plan, before: Sequence[str]) -> Work[Plan | None]:
        """What is asked of the records of the plan before, of one of them, or of the two plans before."""
        place, text = point_in_list(without_opening(question.text))
        if place:
            return (yield from self._ask_of_place(self._say(question, text), first, place))
        both = yield from self._join_those(question, first, before)
        if both is not None:
            return (yield from self._read_of(question, both)) if both.is_list else both
        if not (speaks_of_two(without_opening(question.text)) or is_first_few(first)):
            return (yield from self._read_of(question, first))
        found: RecordResult = yield self._store.find_records(self._limit_query(replace(first, whole=True)))
        sources = [str(row.sources[0]) for row in _leave_equals(first, found).rows]
        if speaks_of_two(without_opening(question.text)) and len(sources) != _PAIR:
            return None
        if len(sources) == 1 and weighs_one(question.text, self._spec):
            return None  # than what?
        first = narrow_to_found(first, sources, self._spec) if is_first_few(first) and sources else first
        return (yield from self._read_of(question, first))

    def _read_of(self, question: Question, first: Plan) -> Work[Plan | None]:
        """What a question asks of the records of a plan."""
        spec, said = self._spec, self._say(question, say_those(without_opening(question.text), first, self._spec))
        if first.period is not None and said.period is not None:
            said = replace(said, period=_period_after(first.period, said))
        plan = yield from self._read_plan(said)
        if plan is None:
            return None
        named = any(token.role in ("field", "unit", "total") for token in read_words(question.text, spec))
        figures = [each for each in (first.query.of, *first.figures) if each and is_figure(spec, each)]
        measured = plan.query.aggregate in (Aggregate.SUM, Aggregate.AVERAGE)
        of = figures[0] if measured and figures and not named else None
        return narrow_further(first, plan, of=of)

    def _join_those(self, question: Question, last: Plan, before: Sequence[str]) -> Work[Plan | None]:
        """The records of the two questions before, where both are meant: "the two together", "which of them is lighter"."""
        text = without_opening(question.text)
        first = yield from self._plan_before(before[1:])
        if first is None or not may_be_narrowed(first):
            return None
        adds, weighs = adds_figures(text, self._spec), differ_in_one(first, last) and last.is_list
        same = first.query.aggregate is last.query.aggregate is not None and adds
        if not (same or speaks_of_two(text) or (weighs and not adds)):
            return None
        joined = join_plans(first, last)
        if joined is None or joined.query.aggregate is Aggregate.AVERAGE:
            return None
        counts = joined.query.aggregate is Aggregate.COUNT and adds
        return joined if counts else list_records(joined)

    def _set_those_apart(self, question: Question, before: Sequence[str]) -> Work[FoundRecords | None]:
        """By how much the figures of the two questions before differ: "what's the difference?"."""
        tokens = read_words(without_opening(question.text), self._spec)
        if not sets_them_apart(tokens) or len(before) < _PAIR:
            return None
        first, last = (yield from self._plan_before(before[1:])), (yield from self._plan_before(before))
        steps = set_apart((first, last), self._spec)
        return (yield from self._tell_in_steps(steps)) if steps is not None else None

    def _go_further(self, plan: Plan, further: Further, before: str) -> Work[Plan | None]:
        """The records of a list that were not told yet, or all of them; those that a plan leaves out, where all were told."""
        query = plan.query
        if plan.single or plan.is_first_of_each or (not plan.is_list and query.group is None):
            out = not (further.all or further.number or plan.single)
            return (yield from self._leave_out(plan, before)) if out else None
        shown = self._limit_query(plan).limit - plan.skip
        if further.all:
            return replace(plan, whole=True, skip=0, query=replace(query, limit=LARGEST_LIMIT))
        found: RecordResult = yield self._store.find_records(self._limit_query(plan))
        skip = plan.skip + shown
        if found.total <= skip:
            rest = None if further.number else (yield from self._leave_out(plan, before))
            return rest or plan
        limit = further.number or LARGEST_LIMIT
        return replace(plan, skip=skip, whole=True, query=replace(query, limit=limit)) if skip < LARGEST_LIMIT else None

    def _leave_out(self, plan: Plan, before: str) -> Work[Plan | None]:
        """The records that a plan leaves out by what its question says of them: "how many are done?"."""
        values = yield from self._values(before, self._say(self._question, before).period)
        tokens = read_names(before, self._spec, values)
        verb = next((place for place, token in enumerate(tokens) if token.stem in word_set("is")), 0)
        return complement(plan, [token.name for token in tokens[verb:] if token.role == "value"], self._spec)

    def _follow(self, question: Question, before: Sequence[str]) -> Work[Question | None]:
        """The question as one that goes on with those before it, the newest first; None where it does not."""
        spec, after = self._spec, list[Question]()
        asked = self._say(question, self._say_place(question.text, before))
        dated = self._say(question, f"in {asked.text}")  # "and February?"
        if asked.period is None and dated.period is not None and not (yield from self._names_person(asked, before)):
            asked = dated
        for place, text in enumerate(before):
            said = self._say(question, text)
            values: list[NamedValue] = [*(yield from self._values(text, said.period))]
            alone = not self._points_back(before[place:])
            if alone and read_question(text, spec, values, said.period, question.today).plan is not None:
                return (yield from self._go_on(said, (*after, asked), values))
            after.insert(0, self._say(question, self._say_place(text, before[place + 1 :])))
        return None

    def _say_place(self, text: str, before: Sequence[str]) -> str:
        """A follow-up with the place, or the year, that it says by those of the questions before it."""
        said = say_place(without_opening(text), before)
        return say_year(said, before) if year_field(self._spec) is not None else said

    def _go_on(
        self, merged: Question | None, after: Sequence[Question], values: list[NamedValue]
    ) -> Work[Question | None]:
        """A question with what those `after` it say, each of the one before it."""
        for each in after:
            if merged is None:
                return None
            if (timed := move_to_time(merged, each)) is not None:
                merged = timed
                continue
            forms = self._forms(without_period(each.text, each.period))
            values += (yield self._store.named_values(forms)) if forms else ()
            if (named := (yield from self._name_first(each, merged))) is not None:
                values += yield from self._values(named.text, named.period)
                merged = named
                continue
            tokens = read_names(without_period(merged.text, merged.period), self._spec, values)
            someone = any(token.role == "value" for token in tokens)
            if asks_of_person(each.text) and asks_of_any_day(each.text) and not someone:
                return None  # nobody knows of whom
            dated = each if merged.period is None else replace(each, period=_period_after(merged.period, each))
            other = yield from self._exchange(merged, dated, values)
            merged = other or follow(merged, dated, self._spec, values) or carry(merged, dated, self._spec, values)
        return merged

    def _exchange(self, before: Question, text: Question, values: Sequence[NamedValue]) -> Work[Question | None]:
        """The question before of another thing, that a follow-up names; None where it could be of more than one."""
        first, found = read_question(before.text, self._spec, values, before.period, text.today).plan, list[Question]()
        persons = people_field(self._spec), workers_field(self._spec)
        for each in exchange(before, text, self._spec, values) if first is not None else ():
            plan = yield from self._read_plan(each)
            found += [each] if first and plan and name_another(first, plan, persons) else []
        return found[0] if len(found) == 1 else None

    def _name_first(self, question: Question, before: Question) -> Work[Question | None]:
        """The question with the name of the group that the one before put first in place of "she" or "that one"."""
        if name_first(question.text, "") is None:
            return None
        plan = yield from self._read_plan(before)
        ranking = plan and self._ranking_behind(plan, question.text)
        if plan is None or ranking is None:
            return None
        if points_at_several(question.text) and plan.query.group is not None and plan.query.limit > 1:
            return None
        found: RecordResult = yield self._store.find_records(self._limit_query(ranking))
        first = found.rows[ranking.place - 1 : ranking.place]
        equal = [row for row in found.rows if first and (row.value == first[0].value or plan.is_list)]
        named = name_first(question.text, str(first[0].group)) if len(equal) == 1 else None
        if named is None:
            return None
        roles = {token.role for token in read_words(named, self._spec)}
        if plan.kind is not None and roles & _COUNT_ROLES and not roles & {"kind", "field", "total"}:
            named += f" {self._spec.records[plan.kind].words[0]}"  # "how many did she have?"
        named += " our" if plan.query.own and "own" not in roles else ""
        asked = self._say(question, named)
        if before.period is None:
            return asked
        kept = None if asks_of_any_day(named) else before.period
        return replace(asked, period=_period_after(before.period, asked) or kept)

    def _ranking_behind(self, plan: Plan, text: str) -> Plan | None:
        """The groups that a plan ranks, or the people of the records that it lists, where a text speaks of one of them."""
        query, people = plan.query, people_field(self._spec)
        if not plan.is_list:
            return plan if query.group is not None and query.grain is None else None
        named = fields_of(query.filters) - fields_of(plan.everything.filters) - {people, "source_id"}
        others = [each for each in named if self._spec.all_fields.get(each) is FieldType.KEYWORD]
        others = [each for each in others if not vocabulary_of(self._spec, each).values]  # no status
        if people is None or plan.kind is None or others or not asks_of_person(text):
            return None  # of a booking with somebody "she" may be either
        return replace(plan, query=replace(_records_of(query), aggregate=Aggregate.COUNT, group=people, order=None))

    def _say(self, question: Question, text: str) -> Question:
        """The question in other words, with the days that they say."""
        said = replace(question, text=text, period=None)
        of_years = year_field(self._spec) is not None  # which are values, and no days
        return said if of_years else replace(said, period=period_of(said, self._spec))

    def _reword(self, question: Question, text: str) -> Question:
        """The question in other words, with the days that they say, or else with those that no word of it has said."""
        said = self._say(question, text) if text != question.text else question
        if said.period is None and question.period is not None and not question.period.said:
            return replace(said, period=question.period)
        return said

    def _query(self, plan: Plan) -> Work[tuple[Plan, RecordResult, Outcome]]:
        """What the plan's query finds, or the same of another year that is meant as well.

        Else, where its conditions leave nothing, the records without them; or the record next to its days, which is not the
        best one that meets conditions.
        """
        filters, found = self._filters, RecordResult()
        missing = plan.with_missing(self._spec)  # "without bottles", where none has 0
        for each in chain(plan.years, () if missing is None else (missing,)):
            found = yield self._store.find_records(self._limit_query(each))
            found = (yield from self._leave_groups(each, found)) if each.never is not None else found
            found = _bound_groups(each, found)
            if found.total:
                return each, _leave_equals(each, found), "found"
        sized = plan.query.least or plan.query.most or (plan.bound is not None and plan.query.group is not None)
        if sized:  # no group is of this size, or has such a total
            for each in plan.years:
                sizes: RecordResult = yield self._store.find_records(replace(self._limit_query(each), least=0, most=0))
                if sizes.total:
                    return each, sizes, "none"
        lacking = yield from self._leave_figure(plan)
        if lacking is not None and lacking.total:
            own = vocabulary_of(self._spec, plan.query.of or plan.query.order).kind == plan.kind
            return plan, lacking if own else RecordResult(), "lacking"
        if (
            plan.conditions
            and plan.kind is not None
            and not (plan.by_tags or plan.names_record or (plan.theme and plan.is_list))
        ):
            everything = replace(plan.everything, filters=(*filters, *plan.everything.filters))
            narrow = [each for each in plan.query.filters if each not in plan.everything.filters]
            empty = {each.key for each in narrow if isinstance(each, MetadataFilter) and each.operator is IS_EMPTY}
            fields = fields_of(tuple(narrow)) - empty
            fields |= {name for name in (plan.query.order, plan.query.of) if name and name in self._spec.fields}
            having = (*everything.having, *sorted(fields))  # where none has the field, nothing can be said of it
            others: RecordResult = yield self._store.find_records(replace(_records_of(everything), having=having))
            if others.total:
                return plan, others, "none"
        nearest: list[tuple[float, Plan, RecordResult]] = []
        of_years = year_field(self._spec) is not None
        wanting = () if of_years or (plan.single and plan.conditions) else islice(plan.years, 2)
        for each in wanting:
            for wanted, bound in _nearest_queries(each, filters):
                near: RecordResult = yield self._store.find_records(wanted)
                nearest += [(abs(float(row.value or 0.0) - bound), each, near) for row in near.rows[:1]]
        if nearest:
            _, said, near = min(nearest, key=lambda each: each[0])
            return (yield from self._find_in_year(plan, near)) or (said, near, "elsewhen")
        return plan, RecordResult(), "found"

    def _find_in_year(self, plan: Plan, near: RecordResult) -> Work[tuple[Plan, RecordResult, Outcome] | None]:
        """What a plan for days without a year finds in the years until the record next to them, however long ago that was."""
        day, period = day_of(float(near.rows[0].value or 0.0)), plan.period
        if period is None or period.otherwise is None:
            return None
        for year in range(day.year, day.year - _YEARS_BACK, -1):
            moved = _move_to_year(period, year)
            other = [*replace(plan, period=replace(period, otherwise=moved)).years][1]
            found: RecordResult = yield self._store.find_records(self._limit_query(other))
            if found.total:
                return other, _leave_equals(other, found), "found"
        return None

    def _leave_figure(self, plan: Plan) -> Work[RecordResult | None]:
        """The records that are as they were asked for, but for the figure of which the most or a total is asked."""
        figures = [name for name in (plan.query.order, plan.query.of) if name in self._spec.fields]
        if not figures or plan.kind is None or not plan.conditions or plan.by_tags or plan.names_record:
            return None
        found: RecordResult = yield self._store.find_records(_records_of(self._limit_query(plan)))
        return found

    def _leave_groups(self, plan: Plan, found: RecordResult) -> Work[RecordResult]:
        """The groups that have no record with what never was; none where there are too many to look at all of them."""
        query = self._limit_query(plan)
        out: RecordResult = yield self._store.find_records(replace(query, filters=(*query.filters, plan.never)))
        having = {row.group for row in out.rows}
        rows = tuple(row for row in found.rows if row.group not in having)
        whole = found.total <= LARGEST_LIMIT
        return replace(found, rows=rows, total=len(rows)) if whole else RecordResult()

    def _limit_query(self, plan: Plan) -> RecordQuery:
        """The plan's query with the question's filters; of one record or group also those that are its equals."""
        query = replace(plan.query, filters=(*self._filters, *plan.query.filters))
        if plan.whole or plan.skip:
            return replace(query, limit=min(plan.skip + query.limit, LARGEST_LIMIT))
        if plan.is_list and not plan.is_first_of_each:
            return replace(query, limit=LARGEST_LIMIT if plan.single else min(query.limit, self._most))
        return replace(query, limit=LARGEST_LIMIT) if query.limit == 1 else query


def _records_of(query: RecordQuery) -> RecordQuery:
    """The records that a query is about, in no order, with nothing computed of them."""
    return replace(query, order=None, aggregate=None, of=None, group=None, grain=None, least=0, most=0, limit=_EQUALS)


def _holds(bound: MetadataFilter, value: float) -> bool:
    limit = float(str(bound.value))
    ways = {GT: value > limit, GTE: value >= limit, LT: value < limit, LTE: value <= limit, EQ: value == limit}
    return ways[bound.operator]


def _say_whether(told: FoundRecords, bound: MetadataFilter, value: float) -> FoundRecords:
    """ "Yes: there are 7 bookings", of what a figure was told of."""
    text = f"{told.text[:1].lower()}{told.text[1:]}" if told.computed else told.text
    return replace(told, text=f"{'Yes' if _holds(bound, value) else 'No'}: {text}", computed=True)


def _bound_groups(plan: Plan, found: RecordResult) -> RecordResult:
    """The groups whose figure keeps to the bound of a plan; none where there may be more of them than were found."""
    if plan.bound is None or plan.query.group is None:
        return found
    rows = tuple(row for row in found.rows if isinstance(row.value, int | float) and _holds(plan.bound, row.value))
    whole = found.total == len(found.rows) or len(rows) < len(found.rows)
    return replace(found, rows=rows, total=len(rows)) if whole else RecordResult()


def _leave_equals(plan: Plan, found: RecordResult) -> RecordResult:
    """Of one record or group that is asked for, itself and its equals."""
    if not (plan.single or plan.query.limit == 1):
        return found
    best = [row.value for row in found.rows][plan.place - 1 : plan.place]
    return replace(found, rows=tuple(row for row in found.rows if row.value in best))


def _move_to_year(period: Period, year: int) -> Period:
    """Days that are said without a year, in that one."""
    whole = Period(date(year, 1, 1), date(year, 12, 31), "", (0, 0), "year")
    if period.grain != "days" or period.start is None or period.end is None:
        return move_to_year_of(period, whole)
    first = move_to_year_of(replace(period, end=period.start, grain="day"), whole)
    days = period.end - period.start
    return replace(period, start=first.start, end=first.start and first.start + days, otherwise=None)


def _number_in(tokens: Sequence[Token]) -> float | None:
    numbers = [value for token in tokens if (value := figure(token.text)) is not None]
    return numbers[0] if len(numbers) == 1 else None


def _says_else(token: Token) -> bool:
    """Whether a word asks for something, or is not known."""
    before_it = token.stem in word_set("beside")
    return (token.is_left and not before_it) or (
        token.meaning is not None and token.role not in ("value", "on_weekday", *GRAINS)
    )


def _period_after(before: Period, question: Question) -> Period | None:
    """The days of a question that goes on with one about the days `before`."""
    if question.period is None:
        return find_period_beside(question.text, before)
    return move_to_year_of(question.period, before)


def _titles_of(nodes: Sequence[NodeWithScore], words: Collection[str]) -> list[NamedValue]:
    """The records of chunks whose titles have one of the words."""
    found: dict[str, NamedValue] = {}
    for hit in to_hits(nodes):
        of_title, fields = (
            frozenset(stems(hit.title)),
            {name for name, value in hit.metadata.items() if value is not None},
        )
        if of_title & {*words}:
            source = str(hit.source_id)
            found[source] = NamedValue("source_id", source, hit.title, hit.source_type, frozenset(fields), of_title)
    return [*found.values()]


def _combine_figures(steps: PlannedSteps, told: Sequence[Step]) -> FoundRecords | None:
    """What two figures make: a share, a difference; or one of them for each day."""
    if len(told) != len(steps.plans):
        return None
    part, whole = told[0], told[-1]
    if steps.way is Way.RATE:
        text = part.telling.rate(steps.number, steps.grain)
        return FoundRecords(part.nodes, text, f"{part.telling.paraphrase} a {steps.grain}", computed=True)
    if steps.way is Way.SHARE and not whole.figure:
        return None
    if steps.way is Way.SHARE and steps.plans[0].query.aggregate is Aggregate.COUNT:
        text = part.telling.share(part.figure, whole.figure, whole.telling)
        understood = f"the share of {part.telling.paraphrase} in {whole.telling.paraphrase}"
        return FoundRecords(part.nodes or whole.nodes, text, understood, computed=True)
    figures = [
        FoundRecords(each.nodes, each.telling.text, each.telling.paraphrase, computed=True) for each in (part, whole)
    ]
    both = _join(figures, _PAIR)
    if not (part.nodes and whole.nodes) or (steps.way is Way.CHANGE and part.figure <= 0):
        return None
    cited = _places_of_first(both, (part, whole))
    if steps.way is Way.SHARE:
        apart = part.telling.share_of_sum(part.figure, whole.figure, cited)
    elif steps.way is Way.CHANGE:
        apart = part.telling.change(part.figure, whole.figure, cited)
    else:
        apart = part.telling.difference(part.figure, whole.figure, whole.telling, cited)
    return replace(both, text=f"{both.text} {apart}")


def _are_other_days(first: Period | None, second: Period | None) -> bool:
    """Whether none of the days of a question are days of the question before it."""
    if first is None or second is None or second.start is None or second.end is None:
        return False
    return not first.meets(second.start, second.end)


def _places_of_first(both: FoundRecords, told: Sequence[FoundRecords | Step]) -> list[int]:
    """Which sources of what was told together are the first ones of each, from 1."""
    cited = [node.node.node_id for node in both.nodes]
    return [cited.index(each.nodes[0].node.node_id) + 1 for each in told]


def _join_compared(
    told: Sequence[FoundRecords], telling: Telling, figures: Sequence[float | None], names: Sequence[str]
) -> FoundRecords:
    """Two figures, and before them which of the sides has more."""
    both = _join(told, _PAIR)
    said = telling.comparison_text([each for each in figures if each is not None], names)
    return replace(both, text=f"{said} {cite(sorted({*_places_of_first(both, told)}))}. {both.text}") if said else both


def _join(found: Sequence[FoundRecords], most: int) -> FoundRecords:
    """All of them, each with the first of its sources; those of each are numbered behind those before, each chunk once."""
    nodes: dict[str, NodeWithScore] = {}
    texts = []
    for each in found:
        shown = {node.node.node_id: node for node in each.nodes[:most]}
        nodes |= {name: node for name, node in shown.items() if name not in nodes}
        numbers = [*nodes]
        texts.append(_number_citations(each.text, [numbers.index(name) + 1 for name in shown]))
    understood = "; ".join(each.understood for each in found)
    return FoundRecords(tuple(nodes.values()), " ".join(texts), understood, all(each.computed for each in found))


def _number_citations(text: str, numbers: Sequence[int]) -> str:
    """The text with the first of its citations, by these numbers."""

    def number(found: re.Match[str]) -> str:
        return f" [Source {numbers[int(found[1]) - 1]}]" if int(found[1]) <= len(numbers) else ""

    return re.sub(r" \[Source (\d+)\]", number, text)


def _nearest_queries(plan: Plan, filters: Filters) -> list[tuple[RecordQuery, float]]:
    """The kind's last record before the days of a plan, and the first one behind them, each with the end of those days.

    Of what is named, where that is one thing; other conditions do not count.
    """
    query, period = plan.query, plan.period
    types = tuple(each for each in query.filters if "source_type" in fields_of((each,)))
    named = tuple(each for each in query.filters if isinstance(each, MetadataFilter) and each.operator is EQ)
    found = []
    bounds = conditions_of(period) if period is not None and plan.dated is None else ()
    for bound in (each for each in bounds if isinstance(each, MetadataFilter)):
        before = bound.operator is GTE
        beyond = condition("date", LT if before else GTE, bound.value)
        of = (*filters, *types, *(named if plan.figures else ()), beyond)
        asked = RecordQuery(of, query.own, "date", descending=before, having=query.having, limit=1)
        found.append((asked, float(str(bound.value))))
    return found
