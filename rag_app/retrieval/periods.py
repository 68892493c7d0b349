"""Words of time in a question, as the days that they mean.

The words are data: periods.toml has those of each language. `dateparser` reads dates as they are written; the rules here
say what is a period at all, and which days a week, a month or "since Monday" has.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, lru_cache
from itertools import pairwise, zip_longest
from typing import Any

from llama_index.core.vector_stores.types import MetadataFilter
from msgspec.structs import replace

from rag_app.domain import (
    FRENCH_MONTHS,
    GERMAN_MONTHS,
    MONTHS,
    Filters,
    Grain,
    Period,
    Question,
    day_of,
    days_around,
    days_text,
    read_table,
)
from rag_app.retrieval.filters import GTE, LT, LTE, conditions, epoch_seconds, fields_of
from rag_app.retrieval.index import IndexSpec

__all__ = [
    "LANGUAGES",
    "Period",
    "conditions_of",
    "days_text",
    "find_period",
    "find_period_beside",
    "find_periods",
    "join_periods",
    "means_part",
    "move_to_year_of",
    "names_day",
    "names_period",
    "period_of",
]

LANGUAGES = ("en", "fr", "de")
"""Those that periods.toml has words of."""

Days = tuple[date, date]

# Days: a day and a month without a year that are so near are meant, if they are nearer than those of the past.
_SOON, _SOON_IN_A_RANGE = 60, 31
_YEARS_BACK = 3  # years before the nearest two in which a day or a month without a year is looked for
_QUESTION = 2000  # characters of a text that are read
_YEAR = r"(?:19|20)\d\d"
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?!\d)(?:st|nd|rd|th|er|\.)?"
_DATES = ("dated", "written", "quarter")
# Kinds of days of which some may be listed, each with the kind that it is one of.
_KINDS_IN_LISTS = {
    **dict.fromkeys(("numbered", "weekday_day"), "numbered"),
    **dict.fromkeys(("weekday", "stepped_weekday"), "weekday"),
    "near": "near",
}
_ENDS, _GENITIVE = re.compile(r"(?:['’]s)?\s*[?.!]*\s*"), re.compile(r"^['’]s\b")
_NUMERIC = rf"{_YEAR}-\d\d-\d\d|\d{{1,2}}[./]\d{{1,2}}[./](?:{_YEAR}|\d\d)"


def conditions_of(period: Period) -> Filters:
    """That a source's date lies in a period. A day is that of UTC, as in a request's dates; see docs/answering.md.

    >>> week = Period(date(2026, 1, 12), date(2026, 1, 18), "this week", (0, 9), "week")
    >>> [(each.operator.value, each.value) for each in conditions_of(week)]
    [('>=', 1768176000.0), ('<', 1768780800.0)]
    """
    after = period.end and period.end + timedelta(days=1)
    return conditions(
        ("date", GTE, period.start and epoch_seconds("date", period.start)),
        ("date", LT, after and epoch_seconds("date", after)),
    )


_MONTHS = {name: number for names in (MONTHS, FRENCH_MONTHS, GERMAN_MONTHS) for number, name in enumerate(names, 1)}
_DAY_NAME = re.compile(
    rf"(?<!\d)(?:(?P<y1>{_YEAR})-(?P<m1>0[1-9]|1[0-2])(?:-(?P<d1>\d\d))?"
    rf"|(?:(?P<d2>\d{{1,2}})(?:st|nd|rd|th|er|\.)?\s+)?\b(?P<m2>{'|'.join(_MONTHS)})\b(?:,?\s+(?P<y2>{_YEAR}))?(?!\s+\d{{1,2}}\b)"
    rf"|\b(?P<m3>{'|'.join(_MONTHS)})\s+(?P<d3>\d{{1,2}})\b(?:,?\s+(?P<y3>{_YEAR}))?|(?P<y4>{_YEAR}))(?!\d)"
)


def find_period(
    text: str, today: date, languages: Sequence[str] = LANGUAGES, records: Sequence[str] = ()
) -> Period | None:
    """The period that a question is about, None where it says none, or two that do not go together.

    `languages` are codes of two letters; those that are not LANGUAGES are left out. `today` is the asker's. `records` are
    what people call records that have days: "the dearest stay of June". What has no year is the nearest past one, or one of the next 60 days where that is nearer. A name ("the January newsletter"), a habit
    ("open on Sundays") and what somebody tells ("I ordered it three weeks ago, ...") are no periods.

    >>> find_period("Which bookings do we have this week?", date(2026, 11, 22)).label
    '16 to 22 November 2026'
    >>> find_period("What did the January newsletter say?", date(2026, 11, 22)) is None
    True
    >>> find_period("Combien d'appels depuis lundi ?", date(2026, 1, 15), ["fr"]).label
    '12 to 15 January 2026'
    """
    text = text[:_QUESTION]
    found = [_period_in(text, today, grammar, records) for grammar in _grammars_for(text, languages)]
    return max(filter(None, found), key=lambda period: period.span[1] - period.span[0], default=None)


def period_of(question: Question, spec: IndexSpec) -> Period | None:
    """The days that a question asks about, on the day on which it is asked.

    Dates in its filters are the period: words of time mean those days, whatever they are. In an index whose sources have no
    dates that tell of anything (`dated_types`) they mean something beside words of change alone: "updated since 20 January".
    """
    if question.period is not None:
        return question.period
    if "date" in fields_of(question.filters):
        sent = _days_sent(question.filters) if spec.dated_types != () else None
        said = find_period(question.text, question.today or datetime.now(UTC).date()) if sent else None
        return replace(said, start=sent[0], end=sent[1], grain="days", otherwise=None) if sent and said else None
    if spec.dated_types == () and not any(grammar.has("changed", question.text) for grammar in _grammars(LANGUAGES)):
        return None
    nouns = [word for kind in spec.records.values() for word in kind.words]
    return find_period(question.text, question.today or datetime.now(UTC).date(), records=nouns)


def _days_sent(filters: Filters) -> tuple[date | None, date | None] | None:
    """The first and the last day that conditions on the date leave; None where they say more than that.

    >>> _days_sent(conditions(("date", GTE, "2026-01-12"), ("date", LTE, "2026-01-18")))
    (datetime.date(2026, 1, 12), datetime.date(2026, 1, 18))
    """
    first, last = list[date](), list[date]()
    for each in filters:
        if "date" not in fields_of((each,)):
            continue
        if not isinstance(each, MetadataFilter) or each.operator not in (GTE, LTE):
            return None
        (first if each.operator is GTE else last).append(day_of(epoch_seconds("date", each.value)))
    return max(first, default=None), min(last, default=None)


def means_part(text: str, period: Period) -> bool:
    """Whether a text speaks of a part of a period that no days are known of: "at the end of January".

    >>> text = "What came in at the end of January 2026?"
    >>> period = find_period(text, date(2026, 11, 22))
    >>> period is not None and means_part(text, period)
    True
    """
    return any(grammar.part_before.search(text[: period.span[0]]) for grammar in _grammars(LANGUAGES))


def find_period_beside(text: str, period: Period) -> Period | None:
    """The day, week, month and so on right before a period or right behind it, where a text names it so.

    >>> january = Period(date(2026, 1, 5), date(2026, 1, 11), "the week of 5 January", (0, 21), "week")
    >>> [find_period_beside(text, january).label for text in ("and the week after that?", "and the month before?")]
    ['12 to 18 January 2026', 'January 2026']
    >>> [find_period_beside(text, january).label for text in ("what about a year later?", "two years before that")]
    ['5 to 11 January 2027', '5 to 11 January 2024']
    >>> [find_period_beside(text, january).label for text in ("and the saturday before?", "the friday after")]
    ['3 January 2026', '16 January 2026']
    """
    for grammar in _grammars(LANGUAGES):
        for pattern, edge, step in (grammar.before_that, period.start, -1), (grammar.after_that, period.end, 1):
            found = pattern.search(text[:_QUESTION])
            if found and edge is not None and period.start is not None and period.end is not None:
                unit = grammar.unit(found[0])
                days = days_around(edge + timedelta(days=step), unit)
                if unit == "fortnight":
                    far = edge + timedelta(days=14 * step)
                    days = min(days[0], far), max(days[0], far)
                many, begin = grammar.number_behind.search(text[: found.start()]), found.start()
                if many is not None:  # a year after May is another May
                    number = int(many[1]) if many[1].isdigit() else (grammar.place("numbers", many[1]) or 0) + 1
                    days = _shift(period.start, step * number, unit), _shift(period.end, step * number, unit)
                    begin = begin if number == 1 else many.start()
                return Period(*days, text[begin : found.end()], (begin, found.end()), _grain_of(days))
        for pattern, edge, step in (grammar.weekday_before, period.start, -1), (grammar.weekday_after, period.end, 1):
            if (found := pattern.search(text[:_QUESTION])) and edge is not None:
                day = edge + timedelta(days=step)
                day += timedelta(days=step * ((step * (grammar.weekday(found[0]) - day.weekday())) % 7))
                return Period(day, day, found[0], found.span(), "day")
    return None


def move_to_year_of(period: Period, before: Period) -> Period:
    """A day or a month that is said without a year, in the year of the period before it: "and in February?"; and a year behind
    a month of another year: "and in 2014?" after August 2013.

    >>> before = find_period("in January 2015", date(2026, 11, 22))
    >>> february = find_period("and in February?", date(2026, 11, 22))
    >>> assert before and february
    >>> move_to_year_of(february, before).label, move_to_year_of(before, february).label
    ('February 2015', 'January 2015')
    >>> year = find_period("and in 2014?", date(2026, 11, 22))
    >>> assert year
    >>> move_to_year_of(year, before).label
    'January 2014'
    """
    first, earlier = period.start, before.start
    if period.grain == "year" and before.grain in ("day", "month", "quarter") and first and earlier:
        same = None if first.year == earlier.year else _valid(first.year, earlier.month, earlier.day)
        if same is not None:  # after a month of one year another year is for the same month
            start, end = days_around(same, before.grain)
            return replace(period, start=start, end=end, grain=before.grain)
    if period.otherwise is None or before.otherwise or first is None or earlier is None:
        return period  # it has a year, or the one before it has none either
    moved = _valid(earlier.year, first.month, first.day)
    if moved is None or period.grain not in ("day", "month"):
        return period
    start, end = days_around(moved, period.grain)
    return replace(period, start=start, end=end, otherwise=None)


def names_period(text: str, period: Period, dated: date | None = None) -> bool:
    """Whether a text speaks of a day of the period, or of the month that a longer one has.

    A day without a year is of the year in which the text is `dated`, or of the year before or after, where it is nearer then.

    >>> november = find_period("in November 2025", date(2026, 11, 22))
    >>> assert november
    >>> names_period("Sales: 31 (2025-11)", november), names_period("On 3 December 2025 she called.", november)
    (True, False)
    >>> names_period("The pump failed on 30 November.", november, date(2026, 1, 9))
    True
    """
    return any(period.meets(*days) for days in _days_named(text, dated, period.grain))


def names_day(text: str, day: date) -> bool:
    """
    >>> names_day("She called on 8 January.", date(2026, 1, 8))
    True
    """
    return names_period(text, Period(day, day, "", (0, 0), "day"), day)


def _days_named(text: str, dated: date | None, grain: str) -> Iterator[Days]:
    long = grain not in ("day", "week")
    for found in _DAY_NAME.finditer(text):
        said = found["y1"] or found["y2"] or found["y3"] or found["y4"]
        name = found["m2"] or found["m3"]
        month = _MONTHS[name] if name else int(found["m1"] or 1)
        day = int(found["d1"] or found["d2"] or found["d3"] or 0)
        if found["y4"]:
            if grain == "year":
                yield days_around(date(int(said), 1, 1), "year")
        elif day or long:
            for year in [int(said)] if said else _years_near(month, dated):
                if (exact := _valid(year, month, day or 1)) is not None:
                    yield days_around(exact, "day" if day else "month")


def _years_near(month: int, dated: date | None) -> list[int]:
    """The years that a month without a year may be of, in a text of a date."""
    if dated is None:
        return []
    away = month - dated.month
    return [dated.year] if abs(away) <= 6 else [dated.year, dated.year + (1 if away < 0 else -1)]


@lru_cache
def _grammars(languages: tuple[str, ...]) -> tuple["_Grammar", ...]:
    tables = read_table(__file__)
    return tuple(_Grammar(name, tables[name]) for name in dict.fromkeys(languages) if name in tables)


def _grammars_for(text: str, languages: Sequence[str] = LANGUAGES) -> Iterator["_Grammar"]:
    """Those of the languages in which a text may name days: the patterns of the others are not compiled for it."""
    return (grammar for grammar in _grammars(tuple(languages)) if grammar.hint.search(text))


# What several patterns are made of, by name; the words of a language have names, too. In a pattern `{name}` is one of them,
# `{units.year}` one of its words, and `{quarter:ordinal=last}` the same with one part in another's place.
_PARTS = {
    "yyyy": _YEAR,
    "dd": _DAY,
    "numeric": _NUMERIC,
    "unit": "{units}",
    "long_unit": "{units.month}|{units.quarter}|{units.year}",
    "month": "{months}",
    "day": "{day_words}",
    "ordinal": "{ordinals}",
    "number": r"\d{1,3}|{numbers}",
    "step": "{last}|{this}|{next}",
    "move": "{last}|{next}",
    "the?": r"(?:{the}\s+)?",
    "of?": r"(?:{of}\s+)?",
    "of_year?": r"(?:,?\s+{of?}{yyyy})?",
    "joined": r"(?:{and}|{link})\s+",
    "series": r"\s*,\s*{joined}?|\s+{joined}",
    "in_step": r"\s+(?:{in_months}\s+)?{the?}{step}",
    "dated": (
        r"{dated_in_words}(?:,?\s+{yyyy})?|{the?}{dd}\s+(?:{day_of}\s+)?{month}{of_year?}"
        r"|{month}\s+{the?}{dd}(?![\d.-]*\d|[\s-]+{unit}\b)(?:,?\s+{yyyy})?"
    ),
    # what stands behind a day of the month
    "day_end": (
        r"\s*(?:[?!,;:)'’]|\.(?!\d)|$)|\s+[-–]\s|\s+(?:{and}\s+)?(?:{behind_day}|{onwards}|{since}|{until}"
        r"|{of?}{the?}(?:{step}\s+{units.month}|{noun_first}{units.month}\s+{step}))(?!\w)"
    ),
    # a day of the month that is no place in an order: no noun follows
    "ordinal_alone": (
        r"{ordinal_day}(?={day_end}|(?:\s*[-–]\s*|{series}|\s+{to}\s+)(?:{weekdays},?\s+)?{the?}"
        r"(?:{ordinal_day}{day_end}|{dd}\s+(?:{day_of}\s+)?{month}))"
    ),
}
# What has days of its own; the first that fits says what kind it is.
_KINDS = {
    "week_of": r"(?:{week_of}|{week_ending})\s+{the?}(?:{weekdays},?\s+{the?})?(?:{numeric}|{dated}|{ordinal_alone})",
    "written": "{numeric}",
    "days_of": (
        r"(?:(?:{from}|(?P<both>{between}))\s+)?{month}\s+{the?}(?P<first_day>{dd})(?:(?P<to>\s*[-–]\s*|\s+{to}\s+)|\s+{and}\s+)"
        r"{the?}(?P<last_day>{dd})(?:,?\s+(?P<of_year>{yyyy})|(?={day_end}))"
    ),
    "dated": "{dated}",
    "to_date": "{to_date}|{to_date_short}",
    # the first ten days of January, the last Friday of last month, the second half of the year
    "part": (
        r"{the?}(?:(?P<count_first>{number})\s+)?(?:{ordinals}|{last})\s+(?:{full}\s+)?(?:(?P<count>{number})\s+{units}"
        r"|(?P<one>{weekdays}|{units.day})|{units.week}|{units.weekend}|{units.month}|(?P<long>{units.quarter}|{half}))"
        r"\s+(?:{of}\s+{the?}|{the}\s+)(?P<whole>{noun_first}{long_unit}\s+{step}"
        r"|(?:{step}\s+)?(?:{long_unit}|{month}{of_year?})|(?(long)(?!)|{yyyy}))"
    ),
    "year_end": r"{the?}(?:{quarter:ordinal=last}|{half_year:ordinal=last}|{last}\s+{units.month})\s+{of?}{yyyy}",
    "rolling": r"{move}\s+{number}\s+{unit}|{number}\s+{move}\s+{unit}|{over}\s+{last}\s+{unit}",
    "pair": (
        r"{the?}{step}(?:\s+(?:(?P<and>{and})|{link}){in_step}\s+{unit}"
        r"|\s+{unit}\s+(?:(?P<and_then>{and})|{link}){in_step}(?=\s*(?:[?.!,;]|$)))"
    ),
    "stepped": r"{the?}(?:{step}\s+(?:{full}\s+)?{unit}|{noun_first}{unit}\s+{step})",
    "stepped_weekday": r"{the?}(?:{step}\s+{weekdays}|{noun_first}{weekdays}\s+{step})",
    "stepped_month": r"{the?}(?:{step}\s+{month}|{noun_first}{month}\s+{step})",
    "twice": "{the?}(?:{second_last}|{second_next})",
    "month": "{month}{of_year?}",
    "weekday_day": r"{weekdays},?\s+{the?}{ordinal_alone}",
    "weekday": "{weekdays}",
    "quarter": r"(?:[qt][1-4]|{quarter})(?:\s+{of?}{yyyy})?|{yyyy}\s+[qt][1-4]",
    "half_year": r"(?:h[12]|{half_year})\s+{of?}(?:{yyyy}|{the?}(?P<half_of>{step}\s+{units.year}))|{yyyy}\s+h[12]",
    "from_now": "{from_now}",
    "ago": "{ago}",
    "numbered": "{numbered}",
    "unit": "{whole}",
    "near": "{near}",
    "weekend": "{weekend}",
    "feast": "{feasts}{of_year?}",
    "year": "{yyyy}",
}
_NUMBER_BEFORE = r"(?<![\w.])\d{1,2}(?:st|nd|rd|th|\.)?(?:\s*[&/–-]\s*|\s*,?\s+(?:{and}|{link})\s+){the?}$"
_PATTERNS = {
    # a digit or a word of time: whatever `point` matches has one, and this is compiled in a tenth of the time
    "hint": r"\d|(?<!\w)(?:{units}|{near}|{feasts}|{to_date_short}|{months}|{weekdays}|{day_words}|{weekend})(?!\w)",
    "point": rf"(?<!\w)(?:{'|'.join(f'(?P<{name}>{words})' for name, words in _KINDS.items())})(?!\w)",
    "before_that": r"(?<!\w){before_that}(?!\w)",
    "after_that": r"(?<!\w){after_that}(?!\w)",
    "weekday_before": r"(?<!\w){before_that:unit=weekdays}(?!\w)",
    "weekday_after": r"(?<!\w){after_that:unit=weekdays}(?!\w)",
    # a number at the end of what stands before
    "number_behind": r"(?<!\w)(\d{1,2}|{numbers})\s+$",
    "bare_day": "{the?}(?P<day>{dd})",
    "ordinal_day": "{the?}(?P<day>{ordinal_alone})",
    # before a day of the month without its month: "since"
    "day_leads": r"(?<!\w)(?:{on}|{since}|{until}|{by}|{before}|{after}|{from_on})\s+$",
    # before a day and before another, in "between" and in "from"
    "between_days": r"(?<!\w){between}(?:\s+{the})?(?:\s+{units.year})?\s+",
    "and_day": r",?\s+{and}(?:\s+{the})?\s+",
    "from_day": r"(?<!\w){from}(?:\s+{the})?(?:\s+{units.year})?\s+",
    "to_day": r",?\s+{to}(?:\s+{the})?\s+",
    # between one day and another
    "series": r"{series}(?:{on}\s+)?",
    "listed": r"(?:\s*,\s*|\s*,?\s+{and}\s+)(?:{on}\s+)?",
    # between a weekday and its week, or a month and its year
    "beside": r"(?:['’]s)?\s*,?\s*(?:(?:{on}|{from}|{of})\s+)?",
    # between a weekday and its date
    "same_day": r",?\s*{the?}",
    # before a number that is no first day: "January", a part of a date, or another number of a list
    "within_date": rf"[\d./-]$|(?<!\w){{month}}\s+$|{_NUMBER_BEFORE.replace('–', '–,')}",
    "number_before": _NUMBER_BEFORE,
    # another part that one is named with: "the first and the"
    "place_before": r"(?<!\w)(?:{ordinals}|{last}){series}$",
    # what a number behind it counts: "week"
    "unit_before": r"(?<!\w){unit}\s+$",
    "counted": r"\d\s+{day_of}\s",
    # a unit before "before" or "after": "the week before last week"
    "unit_beside": r"(?P<many>\w+\s+)?(?<!\w)(?P<unit>{unit})\s+(?:(?P<before>{before})|{after})\s+$",
    # what is a part of the days behind it: "the end of", "early"
    "part_before": r"(?<!\w){parts}(?:\s+{of})?\s+$",
    "thing_before": r"(?<!\w)(?:{the}|{of})\s+$",
    "small": r"(?<!\w)(?:{the}|{of})(?!\w)",
    "namely": r"[\s,;:(–-]*(?:(?:{namely}|{from}|{the})[\s,:]+)*",
    # what sets one period against another that stands at the end
    "link": r"[\s,]+(?P<than>{link})\s+(?:{joins}\s+)*$",
    "compare": r"\W*{compare}\s+{the?}",
    # a verb right before its subject, with an article
    "whether": r"((?<!\w){whether}\s+){the?}$",
    "joins": r"[\s,;:()–-]*(?:{joins}[\s,;:()–-]+)*",
    "dash": r"\s*(?:[-–]|\b{to}\b)\s*",
    "next_day": r"\s+{and}\s+",
    # several years: `ends` are the first and the last one, `listed` all of them
    "years": (
        r"(?<!\w)(?:{in_years}\s+)?(?:{the?}{units.year}\s+(?P<ends>{yyyy}\s*(?:[-–]|{to})\s*{yyyy})"
        r"|{the?}{units.year}\s+(?P<two>{yyyy}\s+{and}\s+{yyyy})"
        r"|(?:{the?}{units.year}\s+)?(?P<listed>{yyyy}(?:,\s*{yyyy})+,?\s+{and}\s+{yyyy})"
        r"|(?<=,\s)(?P<apposed>{yyyy}\s*(?:[-–]|{to})\s*{yyyy})(?=\s*(?:[?.!,;:]|$)))(?!\w)"
    ),
    # behind a year that other days begin with
    "goes_on": r"\s*(?:[-–/]\s*\d|(?:{to}|{and_on})(?!\w))",
    "records_behind": r"(?:['’]s)?\s+{records}(?!\w)",
    "sure_month": r"{sure_months}(?!\w)",
    "week_words": r"(?:{week_of}|{week_ending})\s",
    "statement": r"{states}(?!\w)",
}
_PLACES = re.compile(r"\{([a-z_]+\??)(?:\.([a-z]+)|:([a-z]+)=([a-z]+))?\}")
_LISTS = frozenset({"months", "weekdays", "numbers", "ordinals", "day_words"})
"""Words that stand in an order, with white space between them."""
_NEVER = "(?!)"


class _Grammar:
    """The patterns of a language, each compiled when it is used. `point` matches what has days of its own; its groups say what
    kind it is."""

    def __init__(self, language: str, words: Mapping[str, Any]) -> None:
        self.language, self.words = language, words

    def __getattr__(self, name: str) -> re.Pattern[str]:
        """One of `_PATTERNS`, from now on as an attribute."""
        if name not in _PATTERNS:
            raise AttributeError(name)
        pattern = re.compile(self._fill(_PATTERNS[name]), re.I)
        setattr(self, name, pattern)
        return pattern

    def _fill(self, pattern: str) -> str:
        """A pattern with the words and the parts that it names; one that the language does not have matches nothing."""
        return _PLACES.sub(self._fill_place, pattern)

    def _fill_place(self, place: re.Match[str]) -> str:
        name, key, part, other = place.groups()
        said = self.words.get(name, _PARTS.get(name, _NEVER))
        if not isinstance(said, str):
            said = said[key] if key else "|".join(said.values()) or _NEVER
        words = "|".join(said.split()) if name in _LISTS else said.replace(f"{{{part}}}", f"{{{other}}}")
        return f"(?:{self._fill(words)})"

    def points(self, text: str) -> Iterator[re.Match[str]]:
        """The matches of `point`. A day of the month has a word before it that makes it one, or another such day."""
        last = None
        for match in self.point.finditer(text):
            if match.lastgroup == "numbered" and not self._is_day(text, match, last):
                continue
            last = match if match.lastgroup in ("numbered", "weekday_day") else None
            yield match

    def _is_day(self, text: str, match: re.Match[str], last: re.Match[str] | None) -> bool:
        before = text[: match.start()]
        if (
            self.day_leads.search(before)
            or self.is_of_records(before, match.start(), (), of=False)
            or (last and self.series.fullmatch(before[last.end() :]))
        ):
            return True
        return (
            self.is_before("from", text, match.start())
            and self.find_end_after("onwards", text, match.end()) is not None
        )

    def is_before(self, name: str, text: str, start: int) -> bool:
        """Whether what stands right before `start` are words of this name."""
        return re.search(rf"(?<!\w)(?:{self.words[name]})\s+$", text[:start], re.I) is not None

    def is_of_records(self, text: str, start: int, records: Sequence[str], of: bool = True) -> bool:
        """Whether records of something stand before it: "bookings of January"; not `of`: "bookings Monday to Friday"."""
        words = self.words
        joint = rf"\s+(?:{words['of']})" if of else ""
        nouns = "|".join((words["records"], *(f"{re.escape(word)}s?" for word in records)))
        return re.search(rf"(?<!\w)(?:{nouns}){joint}\s+$", text[:start], re.I) is not None

    def find_end_after(self, name: str, text: str, end: int) -> int | None:
        """Where words of this name end that stand right behind `end`."""
        found = re.compile(rf"\s+(?:{self.words[name]})(?!\w)", re.I).match(text, end)
        return found.end() if found else None

    def has(self, name: str, text: str) -> bool:
        return _stands_in(text, self.words[name])

    def place(self, name: str, said: str) -> int | None:
        """The place, from 0, of the word that `said` has, among those of this name."""
        return next((at for at, each in enumerate(self.words[name].split()) if _stands_in(said, each)), None)

    def month(self, said: str) -> int:
        return 1 + (self.place("months", said) or 0)

    def with_digits(self, said: str) -> str:
        """A date with its day as a number: "4 of July"."""
        words = [*enumerate(self.words.get("day_words", "").split(), 1)]
        for day, word in reversed(words):
            said = re.sub(rf"\b{word}\b", str(day), said, flags=re.I)
        return said

    def weekday(self, said: str) -> int:
        return self.place("weekdays", said) or 0

    def unit(self, said: str) -> str:
        return str(next(name for name, each in self.words["units"].items() if _stands_in(said, each)))


def _stands_in(text: str, pattern: str) -> bool:
    return re.search(rf"(?<!\w)(?:{pattern})(?!\w)", text, re.I) is not None


def _days_of(period: Period) -> int:
    return (period.end - period.start).days + 1 if period.start and period.end else 0


def _is_next_month(start: date, end: date | None) -> bool:
    """Whether the month of the second day follows that of the first."""
    return end is not None and (end.year, end.month) == ((after := _shift(start, 1, "month")).year, after.month)


def _period_in(text: str, today: date, grammar: _Grammar, records: Sequence[str]) -> Period | None:
    reading = _Reading(text, today, grammar, records)
    if ranges := reading.all_ranges():
        return ranges[0] if len(ranges) == 1 else None
    singles = [period for period in reading.singles() if reading.is_asked(period)]
    found = reading.meet(singles) if reading.are_bounds(singles) else _together(singles)
    return reading.narrow(found) if found else None


def find_periods(text: str, today: date) -> tuple[Period, ...]:
    """The two periods that a question compares, in the order of the text; empty where it does not.

    They do not overlap, and nothing stands between them but words that join ("or in", "as against"). The span of each is
    that of both together.

    >>> [each.label for each in find_periods("More rain in 2012 or in 2014?", date(2026, 11, 22))]
    ['2012', '2014']
    >>> [each.label for each in find_periods("More rain in March or in April 2014?", date(2026, 11, 22))]
    ['March 2014', 'April 2014']
    >>> [each.label for each in find_periods("Rain in November and December", date(2026, 11, 22))]
    ['November 2026', 'December 2026']
    """
    text = text[:_QUESTION]
    for grammar in _grammars_for(text):
        reading = _Reading(text, today, grammar)
        said = reading.all_ranges() or [*reading.compared_periods()]
        first, second = (*sorted(said, key=lambda each: each.span), None, None)[:2]
        if len(said) != 2 or first is None or second is None:
            continue
        if first.grain == second.grain and re.search(r"\d{4}", first.said + second.said):  # "in March or in April 2014"
            first, second = move_to_year_of(first, second), move_to_year_of(second, first)
        else:
            first, second = _put_side_by_side(first, second)
        between = text[first.span[1] : second.span[0]]
        if not (first.end and second.end):
            continue
        apart = first.end < (second.start or date.min) or second.end < (first.start or date.min)
        if apart and between.strip() and grammar.joins.fullmatch(between):
            span = (first.span[0], second.span[1])
            words = text[span[0] : span[1]]
            return (
                replace(first, said=words, span=span, otherwise=None),
                replace(second, said=words, span=span, otherwise=None),
            )
    return ()


def _put_side_by_side(first: Period, second: Period) -> tuple[Period, Period]:
    """Two months without a year that follow each other, the one farther back beside the other: "November and December"."""
    if first.start is None or second.start is None or (first.grain, second.grain) != ("month", "month"):
        return first, second
    if first.start.month == second.start.month % 12 + 1:
        after, before = _put_side_by_side(second, first)
        return before, after
    if second.start.month != first.start.month % 12 + 1 or first.end is None:
        return first, second
    behind, ahead = days_around(first.end + timedelta(days=1), "month"), second.start - timedelta(days=1)
    if second.start < first.start:
        return first, replace(second, start=behind[0], end=behind[1])
    start, end = days_around(ahead, "month")
    return replace(first, start=start, end=end), second


def join_periods(text: str) -> str:
    """A text with the two periods that it sets against each other side by side, where one of them is its subject.

    >>> join_periods("Did 2014 have more foggy days than 2012?"), join_periods("Which was wetter, 2013 or 2014?")
    ('Did have more foggy days in 2014 than in 2012?', 'Which was wetter, in 2013 or in 2014?')
    >>> join_periods("Was January's turnover higher than that of March?"), join_periods("Was 2014 dry?")
    ('Was turnover higher in January than in March?', 'Was 2014 dry?')
    >>> join_periods("Compare March and May 2026 takings.")
    'takings in March against in May 2026?'
    """
    for grammar in _grammars_for(text):
        first, second, *others = (*grammar.points(text[:_QUESTION]), None, None)
        if first is None or second is None or others != [None, None] or first.lastgroup != second.lastgroup:
            continue
        before, between, behind = text[: first.start()], text[first.end() : second.start()], text[second.end() :]
        link, lead = grammar.link.search(between), f"{grammar.words['in_years'].split('|')[0]} "
        if grammar.compare.fullmatch(before) and grammar.joins.fullmatch(between):  # "compare March and May sales"
            return f"{_GENITIVE.sub('', behind).strip(' ?.!')} {lead}{first[0]} {grammar.words['against']} {lead}{second[0]}?"
        if link is None or first.lastgroup not in ("year", "month", "quarter", "half_year", "dated"):
            continue
        ends, what = _ENDS.fullmatch(behind) is not None, _GENITIVE.sub("", between[: link.start()]).strip()
        if not what.strip(" ,") and (ends or not before.strip()):
            return f"{before}{lead}{first[0]}{link[0]}{lead}{second[0]}{behind}"
        if (ends or not what) and grammar.whether.search(before):
            rest = _GENITIVE.sub("", behind)
            asked = f"{what} " if ends else f"{rest.strip(' ?.!')} "
            bare = grammar.whether.sub(r"\1", before)
            return f"{bare}{asked}{lead}{first[0]} {link['than']} {lead}{second[0]}{rest if ends else '?'}"
    return text


def _years_earlier(period: Period, first: date) -> Period | None:
    """A day or a month of the years before `first`, the latest first: records may be older than the last one."""
    earlier = None
    for back in range(_YEARS_BACK, 0, -1):
        day = _valid(first.year - back, first.month, first.day)
        if day is not None and period.grain in ("day", "month"):
            start, end = days_around(day, period.grain)
            earlier = replace(period, start=start, end=end, otherwise=earlier)
        elif day is not None and period.grain == "days" and period.end is not None:  # from one day to another
            earlier = replace(period, start=day, end=day + (period.end - first), otherwise=earlier)
    return earlier


def _together(periods: Sequence[Period]) -> Period | None:
    """The only one, or the narrowest where each lies within the next wider one ("in January 2026, this year")."""
    narrow = sorted(periods, key=lambda each: (each.end or date.max) - (each.start or date.min))
    for inner, outer in pairwise(narrow):
        if not (_is_within(inner.start, outer) and _is_within(inner.end, outer)):
            return None
    return narrow[0] if narrow else None


def _is_within(day: date | None, period: Period) -> bool:
    return day is not None and (period.start or date.min) <= day <= (period.end or date.max)


class _Reading:
    """What one language makes of a text."""

    def __init__(self, text: str, today: date, grammar: _Grammar, records: Sequence[str] = ()) -> None:
        self.text, self.today, self.grammar, self.records = text, today, grammar, records
        self.future, self.past = grammar.has("future", text), grammar.has("past", text)
        self.present = grammar.has("present", text) and not self.past

    @cached_property
    def _points(self) -> list[re.Match[str]]:
        return [*self.grammar.points(self.text)]

    def all_ranges(self) -> list[Period]:
        """Those with words of their own, else the short ones; of those of the same days the one that is said in most words."""
        found = sorted([*self.ranges()] or [*self.short_ranges()], key=lambda each: each.span[0] - each.span[1])
        return [*{(each.start, each.end): each for each in reversed(found)}.values()]

    def ranges(self) -> Iterator[Period]:
        """Between two days, or from one to another."""
        grammar = self.grammar
        for lead, link in ((grammar.between_days, grammar.and_day), (grammar.from_day, grammar.to_day)):
            for begun in lead.finditer(self.text):
                yield from self._range(begun.start(), begun.end(), link)

    def short_ranges(self) -> Iterator[Period]:
        """3 to 9 January, 3-9 January, 3 and 4 January; March to May 2014; Monday to Friday; the years 2012 to 2014."""
        for begun in self.grammar.bare_day.finditer(self.text):
            if not self.grammar.within_date.search(self.text[: begun.start()]):
                listed = [each for each in self._short_range(begun, "next_day", leads=False) if _days_of(each) == 2]
                ranges = (*self._short_range(begun, "dash", leads=False), *listed)
                yield from (each for each in ranges if not self._counts(begun.start(), each.said))
        for begun in self.grammar.point.finditer(self.text):
            if begun.lastgroup == "month":
                yield from self._short_range(begun, "dash")
                if self.grammar.has("together", self.text):  # July and August together
                    joined = self._short_range(begun, "next_day")
                    yield from (each for each in joined if each.start and _is_next_month(each.start, each.end))
            elif begun.lastgroup in (*_DATES, *_KINDS_IN_LISTS):
                yield from self._short_range(begun, "dash", alone=begun.lastgroup in _DATES or self._is_led(begun))
        yield from self._list_ranges()
        yield from self._years()

    def _list_ranges(self) -> Iterator[Period]:
        """Days that follow each other: Monday, Tuesday and Wednesday; the 5th and the 6th; today and tomorrow."""
        listed = list[re.Match[str]]()
        for match in (*self.grammar.point.finditer(self.text), None):
            kind = match and _KINDS_IN_LISTS.get(match.lastgroup or "")
            gap = self.text[listed[-1].end() : match.start()] if listed and match else ""
            if (
                match
                and listed
                and kind == _KINDS_IN_LISTS[listed[-1].lastgroup or ""]
                and self.grammar.listed.fullmatch(gap)
            ):
                listed.append(match)
                continue
            if len(listed) > 1:
                found = self._range_between(listed[0].start(), listed[0], listed[-1], self._is_led(listed[0]))
                yield from (each for each in found if _days_of(each) == len(listed))
            listed = [match] if match and kind else []

    def _years(self) -> Iterator[Period]:
        """From one year to another, and years that follow each other: "the years 2012 to 2014", "2012, 2013 and 2014", ", 2012
        to 2014"."""
        for found in self.grammar.years.finditer(self.text):
            ends = found["ends"] or found["apposed"]
            said = [int(year) for year in re.findall(_YEAR, ends or found["two"] or found["listed"])]
            if said == [*range(said[0], said[-1] + 1)] or (ends and said[0] < said[-1]):
                yield self._period((date(said[0], 1, 1), date(said[-1], 12, 31)), found.start(), found.end(), "days")

    def compared_periods(self) -> Iterator[Period]:
        """What is named alone, and what joins to it without a word of its own: "in January as against February"."""
        found = [*self.singles()]
        if len(found) == 1:
            found += self._periods_before(found[0])
        if len(found) == 1:
            match = self.grammar.point.search(self.text, found[0].span[1])
            days = self._days(match) if match else None
            if match and days and match.lastgroup in ("month", "year", "quarter", "weekday"):
                found.append(self._named_period(match, days))
        yield from found

    def _periods_before(self, period: Period) -> Iterator[Period]:
        """As much time right before a period, where that is named behind it: "last week ... the week before"."""
        match = self.grammar.before_that.search(self.text, period.span[1])
        units = self.grammar.words["units"]
        if match is None or period.start is None or period.grain not in units:
            return
        if _stands_in(match[0], units[period.grain]):
            days = days_around(period.start - timedelta(days=1), period.grain)
            yield self._period(days, match.start(), match.end(), period.grain)

    def are_bounds(self, periods: Sequence[Period]) -> bool:
        """Whether the days begin with one and end with the other: after one day and before another."""
        if len(periods) != 2 or sum(each.start is None for each in periods) != 1:
            return False
        between = self.text[periods[0].span[1] : periods[1].span[0]]
        return not between.strip() or self.grammar.series.fullmatch(between) is not None

    def meet(self, periods: Sequence[Period]) -> Period | None:
        ended, begun = sorted(periods, key=lambda each: each.start or date.min)
        if ended.end is None or begun.start is None or not begun.start <= ended.end:
            return None
        if begun.grain != "days" or (begun.end == self.today and ended.end > self.today):
            return None
        return self._period((begun.start, ended.end), periods[0].span[0], periods[1].span[1], "days")

    def narrow(self, period: Period) -> Period:
        """The days of a month that stand beside it: "the second week of January, the 12th to the 18th"."""
        first, last = period.start, period.end
        begun = self.grammar.bare_day.search(self.text, period.span[1])
        joint = self.grammar.dash.match(self.text, begun.end()) if begun else None
        ended = self.grammar.bare_day.match(self.text, joint.end()) if joint else None
        if first is None or last is None or begun is None or ended is None:
            return period
        days = [_valid(first.year, first.month, _digits(each["day"])) for each in (begun, ended)]
        alone = re.match(r"\s*(?:[,.;:?!)]|$)", self.text[ended.end() :])  # and not "3 to 4 in a row"
        beside = alone and self.grammar.namely.fullmatch(self.text[period.span[1] : begun.start()])
        within = (first.year, first.month) == (last.year, last.month)
        if not (within and beside and days[0] and days[1] and days[0] <= days[1]):
            return period
        return self._period((days[0], days[1]), period.span[0], ended.end(), "days")

    def _short_range(self, begun: re.Match[str], link: str, leads: bool = True, alone: bool = True) -> Iterator[Period]:
        return self._range(begun.start(), begun.start(), getattr(self.grammar, link), leads, alone)

    def _is_led(self, begun: re.Match[str]) -> bool:
        """Whether what stands before a weekday or a day of the month says that it is a time."""
        if begun.lastgroup == "near":
            return not self.grammar.has("compare", self.text)
        if begun.lastgroup in ("stepped_weekday", "weekday_day"):
            return True
        grammar, start = self.grammar, begun.start()
        led = any(grammar.is_before(name, self.text, start) for name in ("on", "in_months"))
        led = led or grammar.is_of_records(self.text, start, self.records, of=False)
        return led and not (begun.lastgroup == "weekday" and grammar.has("habit", self.text))

    def _range(
        self, start: int, at: int, link: re.Pattern[str], leads: bool = True, alone: bool = True
    ) -> Iterator[Period]:
        first = (self._point_at(at) if leads else None) or self.grammar.bare_day.match(self.text, at)
        joint = link.match(self.text, first.end()) if first else None
        second = self._last_of_range(first, joint.end()) if first and joint else None
        if first and second:
            yield from self._range_between(start, first, second, alone)

    def _range_between(
        self, start: int, first: re.Match[str], second: re.Match[str], alone: bool = True
    ) -> Iterator[Period]:
        """The days from one to another. Not `alone`: only if they are of a week that is named."""
        within = self._range_in_week(start, first, second)
        if within is not None or not alone:
            yield from filter(None, [within])
            return
        until = self._days(second, _SOON_IN_A_RANGE)
        ahead = (first.lastgroup in ("stepped_weekday", "near") and second.lastgroup == "weekday") or (
            first.lastgroup in ("dated", "written") and second.lastgroup in ("numbered", "day")
        )
        if until and ahead:  # next Monday and Tuesday; 5 January to the 8th
            until = self._first_after(self._days(first, _SOON_IN_A_RANGE), second)
        since = self._begin(first, until) if until else None
        if until and since and since <= until[1]:
            period = self._period((since, until[1]), start, second.end(), "days")
            yield replace(period, otherwise=self._range_otherwise(first, second, period))

    def _first_after(self, begun: Days | None, match: re.Match[str]) -> Days | None:
        """The first weekday or day of the month behind a day."""
        if begun is None:
            return None
        return self._turn(True, begun[0])._days(match)

    def _point_at(self, at: int) -> re.Match[str] | None:
        """What has days of its own at a place; of a date with its weekday, the date."""
        match = self.grammar.point.match(self.text, at)
        if match and match.lastgroup == "weekday":
            following = self.grammar.point.search(self.text, match.end())
            return following if following and self._is_same_day(match, following) else match
        return match

    def _last_of_range(self, first: re.Match[str], at: int) -> re.Match[str] | None:
        second, ordinal = self._point_at(at), first.lastgroup in ("numbered", "weekday_day", "dated")
        if second is None and ordinal:
            return self.grammar.ordinal_day.match(self.text, at)
        if second is None or (first.lastgroup == "day" and second.lastgroup != "dated"):
            return None
        return second

    def _range_in_week(self, start: int, first: re.Match[str], second: re.Match[str]) -> Period | None:
        """Monday to Friday next week; last week, from Monday to Friday."""
        if {first.lastgroup, second.lastgroup} != {"weekday"}:
            return None
        for week in self._points:
            gap = (second.end(), week.start()) if week.start() > start else (week.end(), start)
            if self._names_week(week) and self.grammar.beside.fullmatch(self.text[slice(*gap)]):
                begun, ended = self._days_in(first, week), self._days_in(second, week)
                if begun and ended and begun <= ended:
                    span = min(start, week.start()), max(second.end(), week.end())
                    return self._period((begun[0], ended[1]), *span, "days")
        return None

    def _names_week(self, match: re.Match[str]) -> bool:
        days = self._days(match) if match.lastgroup in ("stepped", "twice") else None
        return days is not None and (days[1] - days[0]).days == 6

    def _range_otherwise(self, first: re.Match[str], second: re.Match[str], period: Period) -> Period | None:
        """The days of another year, or of another month, where none is said."""
        if period.start is None or re.search(_YEAR, period.said):
            return None
        if second.lastgroup == "dated" and first.lastgroup in ("dated", "day", "numbered"):
            return _years_earlier(period, period.start)
        if second.lastgroup not in ("numbered", "day"):
            return None
        until = self._opposite_to(period)._days(second, soon=0)
        since = self._begin(first, until) if until else None
        same = until is None or since is None or until[1] == period.end
        return None if same else replace(period, start=since, end=until and until[1])

    def _opposite_to(self, period: Period) -> "_Reading":
        """A reading that looks ahead where the period is past."""
        return self._turn(period.start is None or period.start <= self.today, self.today)

    def _turn(self, future: bool, today: date) -> "_Reading":
        """A reading that looks ahead of a day, or back."""
        others = _Reading(self.text, today, self.grammar)
        others.future, others.past = future, not future
        return others

    def _begin(self, first: re.Match[str], until: Days) -> date | None:
        """The first day of a range: of the same month as the last, or the nearest before it."""
        if first.lastgroup in ("day", "numbered"):
            day = _digits(first[0])
            month = until[1].replace(day=1)
            if first.lastgroup == "numbered" and day > until[1].day:
                month = _shift(month, -1, "month")
            return _valid(month.year, month.month, day)
        near = ("dated", "month", "quarter", "weekday", "weekday_day", "feast")
        days = self._turn(False, until[1])._days(first, soon=0) if first.lastgroup in near else self._days(first)
        return days[0] if days else None

    def singles(self) -> Iterator[Period]:
        """What is named alone, or with "since", "until", "before" and "after"."""
        matches, weekday, container = self._points, None, None
        for match, following in zip_longest(matches, matches[1:]):
            if match is container:
                continue  # it is said with the one before: "July last year"
            if following and self._is_same_day(match, following):
                weekday = match
                continue
            if weekday is not None:
                yield from self._on_weekday(weekday, match)
                weekday = None
                continue
            if following and self._has_within(match, following):
                container = following
                within = self._day_at_offset(match, following) or self._days_in(following, match)
                if within:
                    yield self._period(within, match.start(), following.end(), _grain_of(within))
                continue
            days, within = self._days(match), None
            if following and following.lastgroup in ("stepped", "twice") and self._adjoin(match, following):
                within = self._days_in(match, following)
            named = within or days
            period = self._open_period(match, named) if named else None
            if period is None and within and match.lastgroup in ("weekday", "quarter"):  # "Tuesday last week"
                period = self._period(within, match.start(), match.end(), _grain_of(within))
            if period is not None and following and (within or self._is_its_weekday(period.start, match, following)):
                container, said = following, (period.span[0], following.end())
                period = replace(period, said=self.text[slice(*said)], span=said, otherwise=None)
            if period is not None:
                yield period

    def _is_same_day(self, weekday: re.Match[str], following: re.Match[str]) -> bool:
        """Wednesday, 14 January; Christmas, 25 December. The weekday or the feast is a part of the date."""
        joined = self.grammar.same_day.fullmatch(self.text[weekday.end() : following.start()])
        if joined is None or following.lastgroup not in ("dated", "written"):
            return False
        feast, dated = self._days(weekday), self._days(following)
        same = feast and dated and (feast[0].month, feast[0].day) == (dated[0].month, dated[0].day)
        return weekday.lastgroup == "weekday" or (weekday.lastgroup == "feast" and bool(same))

    def _is_its_weekday(self, day: date | None, match: re.Match[str], following: re.Match[str]) -> bool:
        """Tomorrow, Saturday. The weekday only says again which day it is."""
        joined = self.grammar.same_day.fullmatch(self.text[match.end() : following.start()])
        return (
            joined is not None
            and (match.lastgroup, following.lastgroup) == ("near", "weekday")
            and (day and day.weekday()) == self.grammar.weekday(following[0])
        )

    def _on_weekday(self, weekday: re.Match[str], match: re.Match[str]) -> Iterator[Period]:
        """A date with its weekday: without a year it is of the nearest one in which the two agree."""
        days, said = self._days(match), self.grammar.weekday(weekday[0])
        undated = match.lastgroup == "dated" and not re.search(_YEAR, match[0])
        if days is not None and undated and weekday.lastgroup == "weekday":
            years = (_valid(self.today.year + by, days[0].month, days[0].day) for by in (0, -1, 1, -2, 2, -3, 3))
            days = next(((day, day) for day in years if day and day.weekday() == said), days)
        if days is not None:
            yield self._period(days, weekday.start(), match.end(), "day")

    def _day_at_offset(self, match: re.Match[str], following: re.Match[str]) -> Days | None:
        """A day as far from today as another time is: "this day last year"."""
        if following.lastgroup != "stepped" or self.grammar.unit(match[0]) != "day":
            return None
        return days_around(_shift(self.today, self._offset(following[0]), self.grammar.unit(following[0])), "day")

    def _offset(self, said: str) -> int:
        """-1 for the last one, 1 for the next one, else 0."""
        return next((by for by, name in ((-1, "last"), (1, "next")) if self.grammar.has(name, said)), 0)

    def _has_within(self, match: re.Match[str], following: re.Match[str]) -> bool:
        """Last week on Tuesday, last year in July."""
        if not self._adjoin(match, following) or match.lastgroup not in ("stepped", "twice"):
            return False
        if following.lastgroup == "stepped":
            return self.grammar.unit(match[0]) == "day" and self.grammar.has("this", match[0])
        if following.lastgroup == "month":
            bare = "," not in self.text[match.end() : following.start()] and not re.search(_YEAR, following[0])
            return bare and self.grammar.unit(match[0]) == "year"
        return following.lastgroup == "weekday" and self._names_week(match)

    def _adjoin(self, first: re.Match[str], second: re.Match[str]) -> bool:
        return self.grammar.beside.fullmatch(self.text[first.end() : second.start()]) is not None

    def _days_in(self, match: re.Match[str], container: re.Match[str]) -> Days | None:
        """A weekday of a week that is named beside it, a day of a month, a month or a quarter of a year."""
        days, around, kind = self._days(match), self._days(container), match.lastgroup
        if days is None or around is None:
            return None
        length = (around[1] - around[0]).days + 1
        if kind == "weekday" and length == 7:
            return days_around(around[0] + timedelta(days=days[0].weekday()), "day")
        if kind == "numbered" and 28 <= length <= 31:
            numbered = _valid(around[0].year, around[0].month, _digits(match[0]))
            return (numbered, numbered) if numbered else None
        if kind in ("month", "quarter") and not re.search(_YEAR, match[0]) and length > 360:
            return days_around(days[0].replace(day=1, year=around[0].year), kind)
        return None

    def _open_period(self, match: re.Match[str], days: Days) -> Period | None:
        grammar, (_, last), start = self.grammar, days, match.start()
        if begun := self._period_from(match, days):
            return begun
        one_day = match.lastgroup in ("written", "dated", "numbered", "weekday_day") or match["one"] is not None
        due = one_day or match.lastgroup in ("weekday", "near", "unit") or grammar.part_before.search(self.text[:start])
        by = due and grammar.is_before("by", self.text, start)
        if by or grammar.is_before("until", self.text, start):
            ahead = self.future or (match.lastgroup == "weekday" and not self.past)  # "by Friday" is the next one
            if ahead and last < self.today:
                last = (self._first_after((self.today, self.today), match) or days)[1]
            first = self.today if last >= self.today and ahead else None
            return self._period((first, last), start, match.end(), "days", "by" if by else "until")
        if match.lastgroup == "feast":
            one = grammar.is_before("on", self.text, start) or re.search(_YEAR, match[0])
            return self._named_period(match, days) if one else None  # "gifts for Christmas"
        if self._has_bounds(match, one_day):
            return self._limit(match, days)
        return self._named_period(match, days) if self._is_named(match) else None

    def _period_from(self, match: re.Match[str], days: Days) -> Period | None:
        """Since a day, or from a day on."""
        grammar, first, start = self.grammar, days[0], match.start()
        so_far = grammar.find_end_after("so_far", self.text, match.end())
        if so_far and first <= self.today and (first == days[1] or self.today <= days[1]):
            return self._period((first, self.today), start, so_far, "days", "since")
        ahead = first > self.today and match.lastgroup in ("near", "stepped_weekday")
        lead = "from_on" if grammar.is_before("from_on", self.text, start) else "from" if ahead else ""
        if lead and grammar.is_before(lead, self.text, start):  # "from tomorrow"
            if match.lastgroup == "weekday" and not self.past:
                first = (self._first_after((self.today, self.today), match) or days)[0]
            return self._period((first, None), start, match.end(), "days", lead)
        later = grammar.find_end_after("onwards", self.text, match.end())
        if not later and not grammar.is_before("since", self.text, start):
            return None
        if first > self.today and not later:
            first = (self._turn(False, self.today)._days(match, soon=0) or days)[0]
        end, lead = (None, "") if later else (max(self.today, first), "since")
        return self._period((first, end), start, later or match.end(), "days", lead)

    def _has_bounds(self, match: re.Match[str], one_day: bool) -> bool:
        """Whether days before or after it are meant."""
        grammar, kind = self.grammar, match.lastgroup
        if not any(grammar.is_before(name, self.text, match.start()) for name in ("before", "after")):
            return False
        if kind in ("month", "year", "quarter"):
            return re.search(_YEAR, match[0]) is not None
        moved = kind in ("near", "stepped", "stepped_weekday", "twice", "part")
        told = self.future != self.past or grammar.has("since", self.text)
        told = kind == "weekday" and told and not grammar.has("habit", self.text)
        return one_day or moved or told

    def _limit(self, match: re.Match[str], days: Days) -> Period | None:
        start, end, (first, last) = match.start(), match.end(), days
        if beside := self.grammar.unit_beside.search(self.text[:start]):  # the week before last week
            unit = self.grammar.unit(beside["unit"])
            near = days_around(first - timedelta(days=1) if beside["before"] else last + timedelta(days=1), unit)
            the = re.fullmatch(self.grammar.words["the"], (beside["many"] or "").strip(), re.I) or not beside["many"]
            same = unit == "day" or days_around(first, unit) == days
            return self._period(near, beside.start(), end, _grain_of(near)) if the and same else None
        if self.grammar.is_before("before", self.text, start):
            return self._period((None, first - timedelta(days=1)), start, end, "days", "before")
        until = None if last >= self.today else self.today
        return self._period((last + timedelta(days=1), until), start, end, "days", "after")

    def _named_period(self, match: re.Match[str], days: Days) -> Period:
        grain = "days" if match.lastgroup == "rolling" else _grain_of(days)
        period = self._period(days, match.start(), match.end(), grain)
        return replace(period, otherwise=self._move_to_another_year(match, period))

    def _move_to_another_year(self, match: re.Match[str], period: Period) -> Period | None:
        """The next nearest year of a day or a month that is said without one."""
        if (
            match.lastgroup not in ("dated", "days_of", "month", "part", "numbered", "week_of")
            or re.search(_YEAR, match[0])
            or not period.start
        ):
            return None
        days = self._opposite_to(period)._days(match, soon=0)
        if days is None or days[0] == period.start:
            return None
        return replace(period, start=days[0], end=days[1], otherwise=_years_earlier(period, min(days[0], period.start)))

    def _period(
        self, days: tuple[date | None, date | None], start: int, end: int, grain: Grain, lead: str = ""
    ) -> Period:
        if lead:
            said = re.search(rf"(?<!\w)(?:{self.grammar.words[lead]})\s+$", self.text[:start], re.I)
            start = said.start() if said else start
        return Period(days[0], days[1], self.text[start:end], (start, end), grain)

    def _is_named(self, match: re.Match[str]) -> bool:
        """Whether a month, a quarter, a year or a weekday is meant as a time: said with "in" or "on", not as a name."""
        kind, start, grammar = match.lastgroup, match.start(), self.grammar
        rest = self.text[match.end() :]
        if kind in ("weekday", "weekend", "unit"):
            led = kind == "weekend" or grammar.is_before("on", self.text, start) or self._follows_day(match)
            return led and not grammar.has("habit", self.text)
        if kind == "dated":  # and not the last one of a list: "5 or 6 January"
            return not (grammar.number_before.search(self.text[:start]) or self._counts(start, match[0]))
        if kind == "year":
            begins = start == 0 and re.match(r"(?: \w+)?\s*:", rest) is not None  # "2015 only: ..."
            named = (begins or grammar.is_before("in_years", self.text, start)) and not grammar.goes_on.match(rest)
            return named and not grammar.part_before.search(self.text[:start])
        if kind in ("month", "quarter", "half_year"):
            leads = grammar.is_before("in_months", self.text, start) or self._stands_alone(match)
            leads = leads or grammar.is_of_records(self.text, start, self.records)
            own = grammar.records_behind.match(rest) is not None
            own = own or (kind == "half_year" and match["half_of"] is not None)
            sure = grammar.sure_month.match(match[0]) is not None  # and nobody's name
            of_year = grammar.is_before("of", self.text, start) and re.search(_YEAR, match[0]) is not None
            own = own or (sure and (of_year or re.match(r"['’]s\s", rest) is not None))
            return own or (leads and not re.match(r"[-–]\w|\s*[-–]\s*\d", rest))
        # "the last day of January with a complaint" is no day that is named
        return kind != "part" or not match["one"] or grammar.is_before("on", self.text, start)

    def _counts(self, start: int, said: str) -> bool:
        """Whether numbers are those of weeks: "week 2 of January"."""
        before = self.grammar.unit_before.search(self.text[:start])
        return before is not None and self.grammar.counted.search(said) is not None

    def _follows_day(self, match: re.Match[str]) -> bool:
        """Whether it is one of several days: "on Monday or Tuesday"."""
        last = next((each for each in reversed(self._points) if each.end() <= match.start()), None)
        if last is None or not self.grammar.series.fullmatch(self.text[last.end() : match.start()]):
            return False
        named = last.lastgroup in ("near", "stepped_weekday", "weekday_day")
        return named or (last.lastgroup == "weekday" and self._is_named(last))

    def _stands_alone(self, match: re.Match[str]) -> bool:
        """Whether a month, a quarter or a half with its year ends a clause, or begins the text: "sales May 2026"."""
        before, rest = self.text[: match.start()], self.text[match.end() :]
        others = [each for each in self._points if each.span() != match.span()]
        if others and re.search(_YEAR, match[0]):  # two that are compared are joined in this language
            sides = [
                (each.end(), match.start()) if each.end() <= match.start() else (match.end(), each.start())
                for each in others
            ]
            return any(self.grammar.joins.fullmatch(self.text[start:end]) for start, end in sides)
        ends = not before.strip() or re.match(r"\s*(?:[?.!,;:)]|$)", rest) is not None
        return ends and re.search(_YEAR, match[0]) is not None and self.grammar.thing_before.search(before) is None

    def is_asked(self, period: Period) -> bool:
        """Whether the clause with the words asks, rather than tells what has happened before something else is asked."""
        start, end = period.span
        begun = max(self.text.rfind(mark, 0, start) for mark in ".?!;,\n") + 1
        clause, rest = self.text[begun:start].strip(), self.text[end:]
        told = self.grammar.statement.match(clause) is not None
        goes_on = re.search(r"[.;,!\n]\s*\w|\b(?:and|et|und|but|mais|aber)\b", rest) is not None
        return not (told and goes_on and not self.grammar.has("asks", clause))

    def _days(self, match: re.Match[str], soon: int = _SOON) -> Days | None:
        """The days of a match, None where it has none ("31 February")."""
        kind, said = match.lastgroup or "", match[0]
        said = self.grammar.with_digits(said) if kind in ("dated", "week_of", "numbered") else said
        readers: Mapping[str, Callable[[], Days | None]] = {
            "week_of": lambda: self._week_of(said, soon),
            "dated": lambda: self._date_of(said, soon),
            "month": lambda: self._month(said),
            "part": lambda: self._part(match),
            "unit": lambda: days_around(self.today, self.grammar.unit(said)),
            "near": lambda: self._near_day(match),
            "weekend": self._weekend,
            "twice": lambda: self._twice(said),
            "pair": lambda: self._pair(match),
            "to_date": lambda: self._to_date(said),
            "ago": lambda: self._ago(said),
            "numbered": lambda: self._choose(self._days_numbered(said, 2), soon),
            "day": lambda: self._choose(self._days_numbered(said, 2), soon),
            "days_of": lambda: self._days_of(match, soon),
            "weekday_day": lambda: self._choose(
                (day for day in self._days_numbered(said, 12) if day.weekday() == self.grammar.weekday(said)), soon
            ),
            "weekday": lambda: self._nearest(self.grammar.weekday(said), soon),
            "quarter": lambda: self._quarter(said),
            "half_year": lambda: self._half_year(match),
            "year_end": lambda: self._year_end(said),
            "feast": lambda: self._feast(said),
            "from_now": lambda: days_around(_shift(self.today, self._number(said), self.grammar.unit(said)), "day"),
            "year": lambda: days_around(date(int(said), 1, 1), "year"),
        }
        if kind.startswith(("rolling", "stepped")):
            return self._move_days(kind, said)
        return readers.get(kind, lambda: self._read(said))()

    def _read(self, said: str) -> Days | None:
        """A date as it is written, by the library."""
        day = _parse(" ".join(said.split()), self.grammar.language, self.today)
        return (day[0], day[0]) if day and day[1] == "day" else days_around(*day) if day else None

    def _date_of(self, said: str, soon: int) -> Days | None:
        """A day and a month, of a year that is said or else the nearest."""
        if re.search(_YEAR, said):
            return self._read(self.grammar.small.sub(" ", said))  # the library does not read "the 3rd of January"
        month, day = self.grammar.month(said), _digits(said)
        candidates = [_valid(self.today.year + offset, month, day) for offset in range(-4, 5)]
        return self._choose([each for each in candidates if each], soon)

    def _days_of(self, match: re.Match[str], soon: int) -> Days | None:
        """5 to 8 of a month: "January 5-8"; joined with "and", the two follow each other."""
        month, (first, last) = (
            self.grammar.month(match[0]),
            (_digits(match[name]) for name in ("first_day", "last_day")),
        )
        if first >= last or (last > first + 1 and not (match["to"] or match["both"])):
            return None
        years = [int(match["of_year"])] if match["of_year"] else range(self.today.year - 4, self.today.year + 5)
        days = self._choose(filter(None, (_valid(year, month, last) for year in years)), min(soon, _SOON_IN_A_RANGE))
        return (days[0].replace(day=first), days[0]) if days else None

    def _week_of(self, said: str, soon: int) -> Days | None:
        written = self.grammar.week_words.sub("", said).strip()
        if re.search(_NUMERIC, written):
            day = self._read(written)
        elif self.grammar.place("months", written) is None:
            day = self._choose(self._days_numbered(written, 2), soon)
        else:
            day = self._date_of(written, soon)
        if day and self.grammar.has("week_ending", said):
            return day[0] - timedelta(days=6), day[0]
        return days_around(day[0], "week") if day else None

    def _choose(self, days: Iterable[date], soon: int = _SOON) -> Days | None:
        known = sorted(days)
        ahead = next((day for day in known if day > self.today), None)
        past = next((day for day in reversed(known) if day <= self.today), None)
        near = ahead and (ahead - self.today).days <= soon and (not past or ahead - self.today < self.today - past)
        wanted = self.future or (soon and not self.past and near)
        day = ahead if ahead and (wanted or past is None) else past
        return (day, day) if day else None

    def _nearest(self, weekday: int, soon: int) -> Days:
        """The last such day, today among them; the next one where the question is about what comes."""
        back = (self.today.weekday() - weekday) % 7
        day = self.today - timedelta(days=back)
        if (self.future or self.present) and soon and day < self.today:
            day += timedelta(days=7)
        return day, day

    def _month(self, said: str) -> Days:
        month, year = self.grammar.month(said), re.search(_YEAR, said)
        if year:
            return days_around(date(int(year[0]), month, 1), "month")
        years = month < self.today.month if self.future else -(month > self.today.month)
        return days_around(date(self.today.year + years, month, 1), "month")

    def _part(self, match: re.Match[str]) -> Days | None:
        """A half, or so many days or weeks, of a month or a year: the first ones, the second, or the last."""
        whole, said = match["whole"], match[0][: match.start("whole") - match.start()]
        around, place = self._whole(whole), self.grammar.place("ordinals", said)
        if around is None or self.grammar.place_before.search(self.text[: match.start()]):
            return None
        if self.grammar.has("half", said):
            return _half(around, place)
        unit = "day" if match["one"] else self.grammar.unit(said)
        if count := match["count"] or match["count_first"]:
            return self._many_of(around, self._number(count), unit, place)
        if unit == "week" and not self.grammar.has("full", said):
            begun = around[1] - timedelta(days=6) if place is None else around[0] + timedelta(days=7 * place)
            return begun, begun + timedelta(days=6)
        weekday = self.grammar.place("weekdays", match["one"]) if match["one"] else None
        return _nth_within(around, unit, -1 if place is None else place, weekday)

    def _many_of(self, around: Days, number: int, unit: str, place: int | None) -> Days | None:
        first, last = around
        if place not in (0, None) or not 0 < number < 400:
            return None
        days = first, _shift(first, number, unit) - timedelta(days=1)
        if place is None:
            days = _shift(last + timedelta(days=1), -number, unit), last
        return days if first <= days[0] and days[1] <= last else None

    def _whole(self, said: str) -> Days | None:
        """The month, quarter or year that a part is of: "last month", "the year", "January 2025"."""
        if re.fullmatch(_YEAR, said):
            return days_around(date(int(said), 1, 1), "year")
        offset = self._offset(said)
        if self.grammar.place("months", said) is None:
            unit = self.grammar.unit(said)
            return days_around(_shift(self.today, offset, unit), unit)
        stepped = offset or self.grammar.has("this", said)
        return self._stepped_month(offset, said) if stepped else self._month(said)

    def _near_day(self, match: re.Match[str]) -> Days:
        near = self.grammar.words["near"]
        found = {by: re.compile(words, re.I).match(self.text, match.start()) for by, words in near.items()}
        offset = next((int(by) for by, each in found.items() if each and each.end() == match.end()), 0)
        return days_around(self.today + timedelta(days=offset), "day")

    def _weekend(self) -> Days:
        """The one that is or was, or the next one where the question is about what comes."""
        begun, ended = days_around(self.today, "weekend")
        back = timedelta(days=7 if begun > self.today and not self.future else 0)
        return begun - back, ended - back

    def _twice(self, said: str) -> Days | None:
        """The week before last, the month after next."""
        unit = self.grammar.unit(said)
        second_last = _stands_in(said, self.grammar.words["second_last"].format(unit=self.grammar.words["units"][unit]))
        return None if unit == "day" else days_around(_shift(self.today, -2 if second_last else 2, unit), unit)

    def _pair(self, match: re.Match[str]) -> Days | None:
        """Last week and this one, where they are taken together: "this week and next"."""
        said, unit = match[0], self.grammar.unit(match[0])
        steps = [by for by, name in ((-1, "last"), (0, "this"), (1, "next")) if self.grammar.has(name, said)]
        joined = (match["and"] or match["and_then"]) and not self.grammar.has("compare", self.text)
        if not joined or len(steps) != 2 or steps[1] - steps[0] != 1 or unit in ("day", "fortnight"):
            return None
        first, last = (days_around(_shift(self.today, by, unit), unit) for by in steps)
        return first[0], last[1]

    def _to_date(self, said: str) -> Days:
        short = self.grammar.words["to_date_short"]
        unit = next((name for name, words in short.items() if re.fullmatch(words, said, re.I)), None)
        return days_around(self.today, unit or self.grammar.unit(said))[0], self.today

    def _ago(self, said: str) -> Days | None:
        if self.grammar.unit(said) != "fortnight":
            return self._read(said)
        return days_around(_shift(self.today, -self._number(said), "fortnight"), "week")

    def _days_numbered(self, said: str, reach: int) -> list[date]:
        """The days of that number ("on the 14th") in the months before and after this one."""
        months = [_shift(self.today.replace(day=1), by, "month") for by in range(-reach, reach + 1)]
        days = [_valid(each.year, each.month, _digits(said)) for each in months]
        return [day for day in days if day is not None]

    def _quarter(self, said: str) -> Days:
        year = re.search(_YEAR, said)
        digit = re.search(r"[qt]([1-4])", said, re.I)
        number = int(digit[1]) if digit else (self.grammar.place("ordinals", said) or 0) + 1
        own = int(year[0]) if year else self.today.year - (number > (self.today.month + 2) // 3 and not self.future)
        return days_around(date(own, 3 * number - 2, 1), "quarter")

    def _half_year(self, match: re.Match[str]) -> Days | None:
        said = match[0]
        digit, years = re.search(r"\bh([12])\b", said, re.I), re.findall(_YEAR, said)
        around = self._whole(match["half_of"] or years[-1])
        year = around[0].year if around else self.today.year
        half = int(digit[1]) - 1 if digit else self.grammar.place("ordinals", said)
        halves = ((date(year, 1, 1), date(year, 6, 30)), (date(year, 7, 1), date(year, 12, 31)))
        return halves[half] if half in (0, 1) else None

    def _year_end(self, said: str) -> Days:
        """The last quarter, half or month of a year."""
        year, units = int(re.findall(_YEAR, said)[-1]), self.grammar.words["units"]
        months = next((length for name, length in (("quarter", 3), ("month", 1)) if _stands_in(said, units[name])), 6)
        return date(year, 13 - months, 1), date(year, 12, 31)

    def _feast(self, said: str) -> Days | None:
        names = self.grammar.words["feasts"]
        name = next(name for name, pattern in names.items() if re.match(pattern, said, re.I))
        if year := re.search(rf"{_YEAR}$", said):
            return self._choose([_feast_day(name, int(year[0]))], soon=0)
        days = [_feast_day(name, year) for year in range(self.today.year - 1, self.today.year + 2)]
        return self._choose(days, soon=0)

    def _move_days(self, kind: str, said: str) -> Days | None:
        """What is so many weeks or months from now, this one, or the last one of a name."""
        words = self.grammar.words
        offset = self._offset(said)
        if kind == "stepped_weekday":
            return self._stepped_weekday(offset, self.grammar.weekday(re.sub(words["last"], "", said, flags=re.I)))
        if kind == "stepped_month":
            return self._stepped_month(offset, said)
        unit = self.grammar.unit(said)
        if kind == "rolling" or (unit == "fortnight" and offset):
            return self._rolling_days(offset * self._number(said), unit)
        if unit in ("day", "fortnight"):
            return None  # "next day delivery", "the last day"
        return days_around(_shift(self.today, offset, unit), unit)

    def _stepped_weekday(self, offset: int, weekday: int) -> Days:
        ahead = (weekday - self.today.weekday()) % 7
        days = {-1: (ahead or 7) - 7 if ahead else -7, 1: ahead or 7, 0: weekday - self.today.weekday()}[offset]
        return days_around(self.today + timedelta(days=days), "day")

    def _stepped_month(self, offset: int, said: str) -> Days:
        month, now = self.grammar.month(said), self.today
        year = {-1: now.year - (month >= now.month), 0: now.year, 1: now.year + (month <= now.month)}[offset]
        return days_around(date(year, month, 1), "month")

    def _number(self, said: str) -> int:
        digits = re.search(r"\d+", said)
        if digits:
            return int(digits[0])
        return (self.grammar.place("numbers", said) or 0) + 1

    def _rolling_days(self, number: int, unit: str) -> Days | None:
        """The last 30 days end today; the next ones begin tomorrow."""
        if not number or abs(number) > 400 or unit == "weekend":
            return None
        if number < 0:
            return _shift(self.today, number, unit) + timedelta(days=1), self.today
        return self.today + timedelta(days=1), _shift(self.today, number, unit)


def _half(around: Days, place: int | None) -> Days | None:
    """The first or second half of a month or a year; the last one is the second."""
    first, last = around
    days = (last - first).days
    second = first + timedelta(days=15) if days < 31 else first.replace(month=7)
    if place not in (0, 1, None) or 31 <= days < 360:
        return None
    return (first, second - timedelta(days=1)) if place == 0 else (second, last)


def _nth_within(around: Days, unit: str, place: int, weekday: int | None) -> Days | None:
    """The day, weekend, month and so on of that place in a time, among those that begin in it."""
    days = (around[0] + timedelta(days=each) for each in range((around[1] - around[0]).days + 1))
    found = dict.fromkeys(days_around(day, unit) for day in days if weekday in (None, day.weekday()))
    inside = [
        each for each in found if around[0] <= each[0] and (place >= 0 or unit == "weekend" or each[1] <= around[1])
    ]
    return inside[place] if -1 <= place < len(inside) and inside else None


def _digits(said: str) -> int:
    return int(re.sub(r"\D", "", said))


@lru_cache(maxsize=512)
def _parse(said: str, language: str, base: date) -> tuple[date, Grain] | None:
    from dateparser.date import DateDataParser  # 0.4 s: imported where a date is said

    settings = {"RELATIVE_BASE": datetime.combine(base, time(12)), "PREFER_DATES_FROM": "past"}
    if language != "en" or "." in said:
        settings["DATE_ORDER"] = "DMY"
    found = DateDataParser(languages=[language], settings=settings).get_date_data(said)
    if found.date_obj is None:
        return None
    return found.date_obj.date(), found.period if found.period in ("day", "week", "month", "year") else "day"


def _shift(day: date, number: int, unit: str) -> date:
    from dateutil.relativedelta import relativedelta

    months = {"month": 1, "quarter": 3, "year": 12}.get(unit)
    return day + (
        relativedelta(months=number * months)
        if months
        else timedelta(days=number * {"day": 1, "fortnight": 14}.get(unit, 7))
    )


def _feast_day(name: str, year: int) -> date:
    from dateutil.easter import easter

    fixed = {
        "new_year": (1, 1),
        "valentine": (2, 14),
        "halloween": (10, 31),
        "christmas_eve": (12, 24),
        "christmas": (12, 25),
        "boxing_day": (12, 26),
        "new_years_eve": (12, 31),
    }
    moved = {"easter": 0, "easter_monday": 1, "good_friday": -2}
    return easter(year) + timedelta(days=moved[name]) if name in moved else date(year, *fixed[name])


def _grain_of(days: Days) -> Grain:
    grains: tuple[Grain, ...] = ("day", "week", "month", "quarter", "year")
    return next((grain for grain in grains if days_around(days[0], grain) == days), "days")


def _valid(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
