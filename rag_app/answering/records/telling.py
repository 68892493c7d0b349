"""What a query about records found, in sentences that cite it: `[Source N]` is the Nth of its hits."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from itertools import islice
from typing import Literal
from uuid import UUID

from llama_index.core.vector_stores.types import MetadataFilter

from rag_app.answering.context import neutralise
from rag_app.answering.passages import TO_THE_ANSWERER
from rag_app.answering.records.conditions import condition_text
from rag_app.answering.records.plans import Plan
from rag_app.answering.records.settling import times_of
from rag_app.answering.records.titles import kind_of
from rag_app.answering.records.wording import (
    in_money,
    name_field,
    noun_of,
    plural_of,
    says_year,
    vocabulary_of,
    word_set,
)
from rag_app.domain import MONTHS, WEEKDAYS, FieldType, Hit, column_name, day_of, day_text, time_text
from rag_app.retrieval.index import IndexSpec, template_fields
from rag_app.retrieval.records import Aggregate, Grain, Record, RecordQuery, RecordResult
from rag_app.retrieval.text import sentences, singular

_CELLS = re.compile(r"\w[\w ]*: [^;\n]*; \w[\w ]*: [^;\n]*; ")  # a row without a text of its own: its sentence tells it
_TITLE_PARTS = re.compile(r"\s*[,;:|–]\s+|\s*[()]\s*")
_BRACKETS = str.maketrans("", "", "[]")
_CELL_END = re.compile(r"[,;|]\s+|\n")
_LEAST_CELLS = 3
_SENTENCES = 3  # told as sentences of their own; of more, one sentence with semicolons
_TEXT = 5  # sentences of a record that is told with its text
_FIELDS = 6  # of a record without a sentence of its own, besides what its title says
_MOST_CITED = 5
_SHOWN_EQUALS = 5  # records or groups that are the best together
_ORDINALS = ("", "", "second ", "third ", "fourth ", "fifth ")
# What is said of records without "with": "fired by Ada", "not collected".
_SAID_OF_IT = re.compile(r"not \w+ed$|\w+(?:ed|en|wn) (?:at|by|for|from|in|on|to) ")
_LEADS = ("since", "until", "before", "after", "from")  # of a period that has no other end
_OWN_ALONE = "Only the records of your own organization count here"


Outcome = Literal["found", "none", "elsewhen", "lacking"]
"""What a query came to: "none" are records that the plan's conditions leave none of, "elsewhen" one next to its days, "lacking"
those that have not the figure that is asked for."""


def tell_record(spec: IndexSpec, hit: Hit) -> str:
    """The sentence of a record whose text is a list of its fields: by a template that names all of them, else field by field.

    Empty of any other.
    """
    names = "|".join(name.replace("_", "[ _]") for name in sorted(spec.all_fields, key=len, reverse=True))
    field, said = re.compile(rf"({names}):?\s+(\S.*)", re.IGNORECASE), dict[str, str]()
    for cell in _CELL_END.split(hit.text.strip().rstrip(".")):
        found = field.fullmatch(cell.strip())
        if found is None or TO_THE_ANSWERER.search(cell):
            return ""
        said[found[1].casefold().replace(" ", "_")] = found[2]
    if len(said) < _LEAST_CELLS:
        return ""
    telling = Telling(spec, Plan(RecordQuery(), RecordQuery(), figures=(*said,)), RecordResult(), [hit], "found")
    known = {*hit.metadata, "date", "title"}
    if any(said.keys() <= template_fields(each) <= known for each in telling._templates(hit)):
        return telling._sentence(hit)
    fields = "; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in said.items() if value != hit.title)
    return _one_line(f"{hit.title} – {fields}")


class Telling:
    """Tells what was found. Of the hits the first `cited` are sources of the answer."""

    def __init__(
        self, spec: IndexSpec, plan: Plan, found: RecordResult, hits: Sequence[Hit], outcome: Outcome, cited: int = 50
    ) -> None:
        self._spec, self._plan, self._found = spec, plan, found
        self._hits, self._cited = {hit.source_id: (number, hit) for number, hit in enumerate(hits, 1)}, cited
        self._outcome = outcome

    @property
    def paraphrase(self) -> str:
        """What was asked, in a line: "your 4 listings, bestseller first"."""
        query = self._plan.query
        if query.group is not None and query.aggregate is None:
            return f"the {self._superlative(query.order or 'date')} {self._noun(1)} of each {self._name(query.group)}{self._conditions}"
        if query.group is not None:
            conditions = f"{self._conditions}," if self._conditions else ""
            own, of = "your " if query.own else "", f"{self._aggregate} of " if query.of else ""
            sized = f", {self._size_wanted} each" if query.least or query.most else ""
            return f"{of}{own}{self._noun(2)}{conditions} by {self._grouped_by}{sized}"
        counted = self._count_text(self._found.total if self._outcome == "found" else 0)
        if query.aggregate in (Aggregate.SUM, Aggregate.AVERAGE):
            return f"the {self._aggregate} of {counted}"
        ordered = query.order is not None and self._found.total > 1
        first = self._superlative(query.order or "")
        return f"{counted}, {'soonest' if first == 'first' else first} first" if ordered else counted

    @property
    def text(self) -> str:
        """What is said; empty where no hit is left to cite."""
        if not self._hits:
            return ""
        if self._outcome == "elsewhen":
            return self._tell_nearest()
        if self._outcome == "lacking":
            name = self._name(self._plan.query.of or self._plan.query.order or "")
            the = "" if self._plan.query.own else "the "
            return f"None of {the}{self._count_text(self._found.total)} has a {name} {self._cite_found()}."
        if self._outcome == "none":
            return self._tell_none()
        query = self._plan.query
        if query.group is not None and query.aggregate is None:
            told = self._tell_first_of_each()
        elif query.group is not None:
            told = self._tell_groups()
        else:
            told = self._tell_list() if query.aggregate is None else self._tell_total(query.aggregate)
        told = f"{self._verdict_of_rows()}{told}"
        return f"{_OWN_ALONE}: {told}" if self._plan.everybody else told

    # -- of two figures
    def share(self, part: float, whole: float, of: "Telling") -> str:
        """ "1 of your 22 bookings has status cancelled: 4.55 percent"."""
        others = set(of._plan.conditions)
        said = " and ".join(each for each in self._plan.conditions if each not in others)
        has = f" {'has' if part == 1 else 'have'} {said}" if said else ""
        total = of._count_text(int(whole)) if of._plan.query.group is None else f"{whole:,.0f}"
        cited = (self if self._hits else of)._cite_found()
        return f"{part:,.0f} of {total}{has}: {_figure(100 * part / whole)} percent {cited}."

    def share_of_sum(self, part: float, whole: float, cited: Sequence[int]) -> str:
        """ "That is 25 percent", of the figure before."""
        return f"That is {_figure(100 * part / whole)} percent {cite(dict.fromkeys(cited))}."

    def rate(self, number: float, grain: str) -> str:
        """ "On average 1.67 bookings a day: 10 bookings (5 to 10 January 2026) in 6 days"."""
        total = self._found.total
        units = f"{_figure(number)} {plural_of(grain, 2 if number != 1 else 1)}"
        each = f"{_figure(total / number)} {self._noun(2)} a {grain}"
        return f"On average {each}: {self._count_text(total)} in {units} {self._cite_found()}."

    def difference(self, figure: float, other: float, beside: "Telling", cited: Sequence[int]) -> str:
        """ "The difference is 27 pounds", with the numbers of the sources that both figures are from; of two periods, which has
        more."""
        field, apart = self._plan.query.of or self._plan.query.order, abs(figure - other)
        said = self._measure_text(field, apart) if field else f"{_figure(apart)} {self._noun(int(apart))}"
        first, second = self._plan.period, beside._plan.period
        if apart and first is not None and second is not None and first.label != second.label:
            less = "less" if field else "fewer"
            said += f", {'more' if figure > other else less} in {first.label} than in {second.label}"
        return f"The difference is {said} {cite(cited)}."

    def change(self, before: float, after: float, cited: Sequence[int]) -> str:
        """ "That is 25 percent more", of the figure before."""
        way = "more" if after > before else "less"
        return f"That is {_figure(100 * abs(after - before) / before)} percent {way} {cite(cited)}."

    def comparison_text(self, figures: Sequence[float], names: Sequence[str]) -> str:
        """ "Yes: Ada has more bookings: 7 against 3", where the figures of all that is compared are there."""
        contest, query = self._plan.contest, self._plan.query
        if contest is None or query.order == "date" or len(figures) != len(names) or len(figures) < 2:
            return ""
        of, rows = query.of or query.order, self._found.rows
        number = max(row.size for row in rows) if query.group and rows else self._found.total
        mean = "average " if query.aggregate is Aggregate.AVERAGE and number > 1 else ""
        with_all = self._with_text(self._plan.conditions) if not contest.sides else ""
        what = self._name(of) if of else self._noun(2)
        counted, less = not mean and what.endswith("s"), contest.way == "less"
        ranked = sorted(zip(figures, names, strict=True), key=lambda each: each[0], reverse=not less)
        first, second, *_ = shown = [self._figure_of(of or "", each) for each, _ in ranked]
        same = ranked[0][0] == ranked[1][0]
        if (first == second) != same or (same and len({*shown}) > 1):
            return ""  # they differ by less than is told
        total = "total " if query.aggregate is Aggregate.SUM and number > 1 and not counted else ""
        unit = vocabulary_of(self._spec, of).unit
        unit = f" {unit}" if unit and unit != what else ""
        if same:
            number_of = "" if of else "number of "
            said = f"they have the same {number_of}{mean}{total}{what}{with_all}: {first}{unit}"
        else:
            two = len(ranked) == 2
            least = ("fewer" if two else "the fewest") if less else ("more" if two else "the most")
            extreme = ("lower" if two else "lowest") if less else ("higher" if two else "highest")
            more = f"{least} " if counted else f"the {extreme} {mean}{total}"
            said = f"{ranked[0][1]} has {more}{what}{with_all}: {first} against {' and '.join(shown[1:])}{unit}"
            said += (
                f", a difference of {self._figure_of(of or '', abs(ranked[0][0] - ranked[1][0]))}"
                if contest.apart and two
                else ""
            )
        holds = same if contest.way == "same" else not same and ranked[0][0] == figures[0]
        lead = "" if not contest.claims else "Yes: " if holds else "No: "
        return f"{lead}{said if lead else said[:1].upper() + said[1:]}"

    def _verdict_of_rows(self) -> str:
        """The verdict on the groups or the records of a list, with the first source of each."""
        contest = self._plan.contest
        rows = {str(row.group or row.sources[0]): row for row in self._found.rows}
        if contest is None or not {*rows} <= {*contest.sides}:
            return ""
        if lacking := [each for each in contest.sides if each not in rows]:
            return f"Nothing of that is recorded for {' and '.join(lacking)}. " if self._plan.query.group else ""
        sides = [rows[each] for each in contest.sides]
        figures = [float(each.value) for each in sides if isinstance(each.value, int | float)]
        cited = self._cite([each.sources[0] for each in sides])
        said = self.comparison_text(figures, [self._side(each) for each in sides])
        return f"{said} {cited}. " if said else ""

    def _side(self, row: Record) -> str:
        """What is compared: a group, or a record by its title."""
        hit = self._hits.get(row.sources[0])
        if row.group is not None or hit is None:
            return self._group(row)
        return f"“{_one_line(hit[1].title)}”"

    def _cite_found(self) -> str:
        return self._cite([source for row in self._found.rows for source in row.sources])

    # -- a list
    def _tell_list(self) -> str:
        rows = [row for row in self._found.rows if row.sources[0] in self._hits]
        lines = [self._line(row) for row in rows]
        if self._plan.names_record and not self._plan.query.order:
            lead = ""
        elif self._plan.single:
            lead = self._one_of_them(len(lines)) if self._found.total > 1 else ""
        elif len(lines) < self._found.total:
            lead = f"{self._which(len(lines))} of {self.paraphrase}"
        else:
            lead = self.paraphrase
        begun = f"{lead[:1].upper()}{lead[1:]}: " if lead else ""
        if len(rows) == 1 or self._plan.texts:
            return begun + " ".join(
                f"{line}. {self._text(row)}".rstrip() for line, row in zip(lines, rows, strict=True)
            )
        return begun + ("; " if len(lines) > _SENTENCES else ". ").join(lines) + "."

    def _which(self, number: int) -> str:
        """ "the first 5", "6 to 10"."""
        skip = self._plan.skip
        return (
            f"the first {number}"
            if not skip
            else f"{skip + 1} to {skip + number}"
            if number > 1
            else f"number {skip + 1}"
        )

    def _one_of_them(self, number: int) -> str:
        """ "The cheapest of your 4 listings", "Of your 10 keywords, the 2 with the highest momentum"."""
        field, counted = self._plan.query.order or "", self._count_text(self._found.total)
        equals = len(self._found.rows)
        same, cut = f"{equals} " if equals > 1 else "", f": the first {number}" if number < equals else ""
        if own := self._own_superlative(field):
            return f"the {same}{self._ordinal}{own} of {counted}{cut}"
        return f"of {counted}, the {same or 'one '}with the {self._ordinal}{self._superlative(field)}{cut}"

    @property
    def _ordinal(self) -> str:
        return _ORDINALS[self._plan.place]

    def _superlative(self, field: str) -> str:
        """What the first record is or has: "cheapest", "lowest price"."""
        return self._own_superlative(field) or f"{self._extreme(field)} {self._name(field)}"

    def _own_superlative(self, field: str) -> str:
        """The index's first word for the most or the least of a field, where it is an adjective: "most crowded"."""
        descending, words = self._plan.query.descending, vocabulary_of(self._spec, field)
        if field == "date":
            open_end = self._plan.period is not None and self._plan.period.end is None
            return "newest" if descending else "first" if open_end else "oldest"
        said = (*(words.high if descending else words.low), "")[0]
        return said if said.startswith(("most ", "least ")) or " " not in said else ""

    def _extreme(self, field: str) -> str:
        """Whether there is most of a field, or it is highest."""
        descending, words = self._plan.query.descending, vocabulary_of(self._spec, field)
        if self._name(field).endswith("s"):
            return "most" if descending else "fewest"
        sized = in_money(words.unit) or not word_set("sizes").isdisjoint(self._name(field).split()[-1:])
        if self._spec.all_fields.get(field) is FieldType.TIME:
            return "latest" if descending else "earliest"
        if words.adds_up and not sized:
            return "most" if descending else "least"
        return "highest" if descending else "lowest"

    def _text(self, row: Record) -> str:
        """The first sentences of a record's text, where its kind has one that says more, or where it is asked for."""
        kind = self._spec.records.get(self._plan.kind or "")
        number, hit = self._hits[row.sources[0]]
        if kind is None or not (kind.text or self._plan.texts) or _CELLS.match(hit.text):
            return ""
        said = [_one_line(each).rstrip(".!?") for each in sentences(hit.text, hit.lang)[:_TEXT]]
        return " ".join(f"{each} [Source {number}]." for each in said)

    def _line(self, row: Record) -> str:
        _, hit = self._hits[row.sources[0]]
        return f"{self._sentence(hit)} {self._cite(row.sources[:1])}".rstrip()

    def _sentence(self, hit: Hit) -> str:
        """By the first of the kind's templates whose fields the record has, the figures that are asked for among them.

        Without one, its title and its fields.
        """
        values = {name: hit.metadata[name] for name in self._spec.fields if hit.metadata.get(name) is not None}
        shown = {name: self._value_text(name, value) for name, value in values.items()}
        shown |= {"title": _one_line(hit.title).rstrip(".!?"), "source_type": hit.source_type, "lang": hit.lang}
        if hit.date is not None:
            shown["date"] = time_text(hit.date) if self._plan.clock else day_text(day_of(hit.date))
        figures = values.keys() & set(self._plan.figures)
        ordered = values.keys() & {self._plan.query.order} - {*self._plan.times} | figures
        for wanted in (ordered, figures):
            for template in self._templates(hit):
                if wanted <= template_fields(template) <= shown.keys():
                    said = self._inflect(template, shown).format_map(shown).rstrip(".").strip()
                    times = [
                        each for each in self._plan.times if each in shown and each not in template_fields(template)
                    ]
                    return "".join((said, *(f", {self._name(each)} {shown[each]}" for each in times)))
        asked = [
            name
            for name in (*self._plan.figures, *self._plan.times, self._plan.query.order, self._plan.query.of)
            if name in values
        ]
        told = dict.fromkeys([*asked, *(name for name in values if self._spec.fields[name] is not FieldType.TAGS)])
        titled = self._fields_in_title(hit, shown)
        beside = [name for name in told if name in asked or name not in titled]
        fields = ", ".join(
            self._field_text(name, values[name], shown[name])
            for name in beside[: None if self._plan.of_row else _FIELDS]
        )
        dated = f" ({shown['date']})" if "date" in shown else ""
        return f"“{shown['title']}”{dated}" + (f": {fields}" if fields else "")

    def _fields_in_title(self, hit: Hit, shown: Mapping[str, str]) -> set[str]:
        """The fields that the title of a record tells: those of its table's template, and whole parts of it."""
        rules = [rule for rule in self._spec.rows if rule.source_type == hit.source_type]
        columns = {column_name(each) for rule in rules for each in template_fields(rule.title.translate(_BRACKETS))}
        named = {name for rule in rules for name in (rule.columns.get(each, each) for each in columns)}
        parts = {*_TITLE_PARTS.split(shown["title"])}
        return {name for name, value in shown.items() if name in named or value in parts}

    def _field_text(self, name: str, value: object, shown: str) -> str:
        """ "amount 49.20 pounds", "labour hours 3"."""
        said, unit = self._name(name), vocabulary_of(self._spec, name).unit
        counted = unit and isinstance(value, int | float) and not isinstance(value, bool) and not said.endswith(unit)
        return f"{said} {self._measure_text(name, float(str(value))) if counted else shown}"

    def _inflect(self, template: str, shown: Mapping[str, str]) -> str:
        """A template whose nouns agree with a figure of one before them: "takes {weeks} week"."""

        def agree(found: re.Match[str]) -> str:
            words = vocabulary_of(self._spec, found[1])
            one = shown.get(found[1]) == "1" and found[2] in (words.unit, *words.words)
            return f"{{{found[1]}}} {_singular(found[2]) if one else found[2]}"

        return re.sub(r"\{(\w+)\} (\w+)", agree, template)

    def _templates(self, hit: Hit) -> Sequence[str]:
        fields = {name for name, value in hit.metadata.items() if value is not None}
        kind = self._plan.kind or kind_of(hit.source_type, fields, self._spec)
        return self._spec.records[kind].sentence if kind is not None else ()

    # -- a figure
    def _tell_total(self, aggregate: Aggregate) -> str:
        number, value = self._found.total, self._found.value or 0.0
        if aggregate is Aggregate.COUNT:
            there = "is" if number == 1 else "are"
            lead = f"You have {number}" if self._plan.query.own else f"There {there} {number}"
            return f"{lead} {self._noun(number)}{self._conditions} {self._cite_found()}."
        figure = self._measure_text(self._plan.query.of or "", value)
        said = "" if number == 1 else " in total" if aggregate is Aggregate.SUM else " on average"
        of, name = self._count_text(number), self._name(self._plan.query.of or "")
        if name.endswith("s") and not name.endswith("ss"):  # "the sales of 5 listings are 7,275 in total"
            return f"The {name} of {of} are {figure.removesuffix(' times')}{said} {self._cite_found()}."
        return f"The {name} of {of} is {figure}{said} {self._cite_found()}."

    def _tell_first_of_each(self) -> str:
        rows = [row for row in self._found.rows if row.sources[0] in self._hits]
        lines = "; ".join(f"{_one_line(str(row.group))}: {self._line(row)}" for row in rows)
        groups = len({row.group for row in rows})
        cut = f"the first {groups} of {self._found.total}: " if groups < self._found.total else ""
        lead = f"{cut}{self.paraphrase}"
        return f"{lead[:1].upper()}{lead[1:]}: {lines}."

    def _tell_groups(self) -> str:
        query, rows = self._plan.query, self._found.rows
        rows = rows[:_SHOWN_EQUALS] if query.limit == 1 else rows
        lines = [f"{self._group(row)}: {self._group_text(row)} {self._cite(row.sources)}".rstrip() for row in rows]
        if self._plan.distinct:
            number, name = self._found.total, self._grouped_by
            several = plural_of(name, number)
            sorts = "kinds of " if number != 1 and several == name and not name.endswith("s") else ""  # of weather
            lead = f"{number} {sorts}{several}{self._conditions}"
            return f"{lead}: {'; '.join(lines)}."
        if query.limit == 1:
            group, most = self._grouped_by, f"{self._ordinal}{self._extreme_phrase()}"
            lead = f"the {group} with the {most}{self._conditions}"
            if len(rows) < len(self._found.rows):
                cut = f"the first {len(rows)} of {len(self._found.rows)} {plural_of(group, 2)}"
                lead = f"{cut} with the {most}{self._conditions}"
        else:
            lead = self.paraphrase
            if len(rows) < self._found.total:
                lead = f"{self._which(len(rows))} of {self._found.total}: {lead}"
        return f"{lead[:1].upper()}{lead[1:]}: {'; '.join(lines)}."

    @property
    def _grouped_by(self) -> str:
        """ "stylist", "month", "month of paid on"."""
        group, grain = self._plan.query.group or "", self._plan.query.grain
        return f"{grain} of {self._name(group)}" if grain and group != "date" else grain or self._name(group)

    def _extreme_phrase(self) -> str:
        """ "most bookings", "least precipitation", "highest average price"."""
        query, of = self._plan.query, self._plan.query.of or ""
        if query.aggregate is Aggregate.COUNT:
            return f"{'most' if query.descending else 'fewest'} {self._noun(2)}"
        if query.aggregate is Aggregate.AVERAGE:
            return f"{'highest' if query.descending else 'lowest'} average {self._name(of)}"
        if query.group is not None and in_money(vocabulary_of(self._spec, of).unit):
            return f"{'highest' if query.descending else 'lowest'} total {self._name(of)}"
        return f"{self._extreme(of)} {self._name(of)}"

    def _group(self, row: Record) -> str:
        if self._plan.query.grain is None or not isinstance(row.group, str):
            return _one_line(str(row.group))
        if self._plan.query.grain is Grain.WEEKDAY:
            return WEEKDAYS[int(row.group) - 1]
        return _PERIODS[self._plan.query.grain](datetime.fromisoformat(row.group).date())

    def _group_text(self, row: Record) -> str:
        value = float(row.value or 0.0)
        if self._plan.query.aggregate is Aggregate.COUNT:
            return f"{value:,.0f} {self._noun(int(value))}"
        of = self._measure_text(self._plan.query.of or "", value)
        return f"{of} ({row.size} {self._noun(row.size)})"

    def _tell_nearest(self) -> str:
        """That nothing is recorded for the days, and what is next to them."""
        (number, hit), *_ = self._hits.values()
        label = self._plan.period.label if self._plan.period else "then"
        days = label if label.split()[0] in _LEADS else f"for {label}"
        days = self._when.strip() if self._date_name and self._when else days
        what = f" of {self._noun(2)}" if self._plan.kind else ""
        when = day_text(day_of(hit.date)) if hit.date is not None else "an unknown day"
        if self._plan.ahead and hit.date is not None and self._is_before(day_of(hit.date)):
            return f"Nothing is recorded{what} {days}: the last is of {when} [Source {number}]."
        return f"Nothing is recorded{what} {days}; the nearest is of {when}: {self._sentence(hit)} [Source {number}]."

    def _is_before(self, day: date) -> bool:
        """Whether a day lies before those of the plan."""
        period = self._plan.period
        return period is not None and period.start is not None and day < period.start

    def _tell_none(self) -> str:
        """That no record is as it was asked for, of so many that there are; that all groups have what never was."""
        if self._plan.never is not None and self._plan.query.group is not None:
            said = condition_text(self._plan.never, self._spec)
            return f"Each {self._name(self._plan.query.group)} has a {self._noun(1)} with {said} {self._cite_found()}."
        if self._found.rows[0].group is not None and self._plan.bound is not None:
            *others, bound = self._plan.conditions
            return f"No {self._grouped_by} has {self._noun(2)}{self._with_text(others)}{self._when} of {bound} {self._cite_found()}."
        if self._found.rows[0].group is not None:
            return f"No {self._name(self._plan.query.group or '')} has {self._size_wanted}{self._conditions} {self._cite_found()}."
        number, own = self._found.total, "your" if self._plan.query.own else "the"
        lead = "No: none" if self._plan.whether else "None"
        all_of_them = f"{lead} of {own} {number:,} {self._noun(number)}{self._when}"
        verb = "is" if all(map(_SAID_OF_IT.match, self._plan.conditions)) else "has"
        return f"{all_of_them} {verb} {' and '.join(self._plan.conditions)} {self._cite_found()}."

    # -- words
    @property
    def _size_wanted(self) -> str:
        """ "exactly 3 bookings", "3 or more bookings"."""
        least, most = self._plan.query.least, self._plan.query.most
        if least == most:
            return f"exactly {least} {self._noun(least)}"
        return f"{least or most} or {'more' if least else 'fewer'} {self._noun(2)}"

    def _count_text(self, number: int) -> str:
        """ "your 4 listings", "3 alerts with status open"."""
        count, own = f"{number:,} " if number else "", "your " if self._plan.query.own else ""
        if number == 1:
            count = "only " if own else "one "
        return f"{own}{count}{self._noun(number or 2)}{self._conditions}"

    @property
    def _aggregate(self) -> str:
        name = self._name(self._plan.query.of or "")
        return f"total {name}" if self._plan.query.aggregate is Aggregate.SUM else f"average {name}"

    @property
    def _conditions(self) -> str:
        days = [WEEKDAYS[day - 1] for day in self._plan.query.weekdays]
        weekdays = f" on a {' or '.join(days)}" if days else ""
        return f"{self._with_text(self._plan.conditions)}{weekdays}{self._when}"

    def _with_text(self, conditions: Sequence[str]) -> str:
        """ " with status open, price below 10", " fired by Ada with kiln 2", " F462" of a firing."""
        kind = self._spec.records.get(self._plan.kind or "")
        noun = f"{kind.words[0]} " if kind is not None else " "
        plain = [each for each in conditions if not (_SAID_OF_IT.match(each) or each.startswith(noun))]
        before = "".join(f" {each.removeprefix(noun)}" for each in conditions if each not in plain)
        return before + (f" with {', '.join(plain)}" if plain else "")

    @property
    def _when(self) -> str:
        if self._plan.period is None or self._plan.dated is not None:
            return ""
        return f" ({self._date_name}{self._plan.period.label})"

    @property
    def _date_name(self) -> str:
        """What a record's date is called in its table, where records have other times as well: "due October 2026"."""
        kind = self._spec.records.get(self._plan.kind or "")
        if kind is None or not times_of(self._spec):
            return ""
        names = (rule.date[0] for rule in self._spec.rows if rule.date and rule.source_type in kind.source_types)
        usual = {"date", *kind.words}  # the visit date of a visit
        return "".join(f"{name.replace('_', ' ')} " for name in islice(names, 1) if {*name.lower().split("_")} - usual)

    def _noun(self, number: int) -> str:
        kind = self._plan.kind
        return f"{self._whose}{noun_of(self._spec.records[kind], number) if kind else plural_of('record', number)}"

    @property
    def _whose(self) -> str:
        """The index's word for what belongs to others, where only that counts."""
        others = (each for each in self._plan.query.filters if isinstance(each, MetadataFilter) and each.value is False)
        words = next((words for each in others if (words := vocabulary_of(self._spec, each.key)).own), None)
        return f"{words.values['false'][0]} " if words and words.values.get("false") else ""

    def _name(self, field: str) -> str:
        return name_field(self._spec, field)

    def _measure_text(self, field: str, value: float) -> str:
        unit = vocabulary_of(self._spec, field).unit
        return f"{self._figure_of(field, value)} {_singular(unit) if value == 1 else unit}".strip()

    def _figure_of(self, field: str, value: float) -> str:
        """A figure of a field; a year has no comma, and money with pence has two decimals."""
        words = vocabulary_of(self._spec, field)
        if words.decimals or (in_money(words.unit) and _figure(value) != f"{value:,.0f}"):
            return f"{_round(value, words.decimals or 2):,f}"
        return _figure(value).replace(",", "") if says_year(self._spec, field) else _figure(value)

    def _value_text(self, name: str, value: object) -> str:
        kind = self._spec.fields[name]
        if isinstance(value, list):
            return ", ".join(f"“{_one_line(str(each))}”" for each in value)
        if kind is FieldType.TIME and isinstance(value, int | float):
            return day_text(day_of(float(value)))
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float) and not name.endswith("_id"):
            return self._figure_of(name, float(value))
        return _one_line(str(value))

    def _cite(self, sources: Sequence[UUID]) -> str:
        numbers = [self._hits[source][0] for source in dict.fromkeys(sources) if source in self._hits]
        return cite(number for number in numbers[:_MOST_CITED] if number <= self._cited)


def cite(numbers: Iterable[int]) -> str:
    return " ".join(f"[Source {number}]" for number in numbers)


def missing_text(spec: IndexSpec, kind: str | None, missing: str) -> str:
    """That the records of a kind have no such field; empty where none is missing."""
    return (
        f"The {noun_of(spec.records[kind])} have no field of {missing} that can be asked for"
        if kind and missing
        else ""
    )


def no_total_text(spec: IndexSpec, field: str | None) -> str:
    """That the figures of a field make no total."""
    return f"The {name_field(spec, field or '')} of several records does not add up to a total. Its average can be asked for"


def sort_text(spec: IndexSpec, field: str, counted: str) -> str:
    """That a field tells of what sort something is, and none how many there are of it."""
    return f"The {name_field(spec, field)} is recorded, but no field says how many {plural_of(counted)} there are"


def no_hours_text(spec: IndexSpec, kind: str | None) -> str:
    """That no record of a kind has a time of day."""
    what = noun_of(spec.records[kind]) if kind else plural_of("record", 2)
    return f"The time of day of the {what} is not recorded, only the day"


def ended_text(last: date) -> str:
    """That records end before the days of a question.

    >>> ended_text(date(2026, 5, 12))
    'The records end on 12 May 2026; they say nothing of what comes after'
    """
    return f"The records end on {day_text(last)}; they say nothing of what comes after"


OPENS = "This goes on with another question, which is not known here. Please ask it in full"


def unread_text(unknown: Sequence[str]) -> str:
    """That a question about records makes no query, and which of its words none of their fields and values is called by."""
    if not unknown:
        return "The question is about records, but it could not be turned into a query"
    words = " and ".join(f"“{word}”" for word in unknown)
    return f"I did not understand {words}: the records have no field and no value of that name"


_PERIODS: Mapping[str, Callable[[date], str]] = {
    "day": day_text,
    "week": lambda day: f"week of {day_text(day)}",
    "month": lambda day: f"{MONTHS[day.month - 1]} {day.year}",
    "year": lambda day: str(day.year),
}


def _figure(value: float) -> str:
    """
    >>> _figure(1234.0), _figure(119.333333), _figure(0.1 + 0.2), _figure(-14.0), _figure(31.045)
    ('1,234', '119.33', '0.3', '-14', '31.05')
    """
    written = f"{_round(value, 2):,f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def _round(value: float, decimals: int) -> Decimal:
    exact = Decimal(f"{value:.9f}")  # a mean that lies between two figures comes in the same way each time
    return exact.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def _singular(unit: str) -> str:
    """
    >>> [_singular(each) for each in ("weeks", "readings per second", "inches", "degrees Celsius", "mbps", "celsius")]
    ['week', 'reading per second', 'inch', 'degree Celsius', 'mbps', 'celsius']
    """
    return re.sub(r"^\w*[aeiouy]\w*s\b", lambda found: singular(found[0]), unit)


def _one_line(text: str) -> str:
    return " ".join(neutralise(text).split())
