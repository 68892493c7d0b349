"""Times of day in a question about records: "after 3 pm on Friday", "before noon", "at half past nine"."""

import re
from functools import cache

from msgspec import Struct

from rag_app.answering.records.wording import numbers, table_of

_DAY = 24 * 60
_NO_HOURS = frozenset({"once", "twice"})
_EARLY = 8  # "at three" without am or pm is in the afternoon: people come between eight and eight


class Hours(Struct, frozen=True):
    """Minutes of a day, from the first one up to the last one, which is not among them; `label` says so in words."""

    first: int
    last: int
    label: str


def read_hours(text: str, *, of_day: bool) -> tuple[str, Hours] | None:
    """A question without its time of day, and that time; None where it names none, or more than one.

    A bare number is a time in a question `of_day` alone: of one day.

    >>> read_hours("Who comes after 3 pm on Friday?", of_day=True)
    ('Who comes on Friday?', Hours(first=901, last=1440, label='a time after 15:00'))
    >>> said = "who is in before ten in the morning?", "bookings from two to half past four today", "how many in the morning?"
    >>> [hours.label for each in said if (hours := read_hours(each, of_day=True)[1])]
    ['a time before 10:00', 'a time from 14:00 to 16:30', 'a time before 12:00']
    >>> [read_hours(each, of_day=False) for each in ("records after 10", "trips after 3 May", "the morning coat", "at 3 or at 4 pm?")]
    [None, None, None, None]
    """
    text = _say_halves(text)
    found = [*_pattern().finditer(text)]
    hours = _hours_of(found[0]) if len(found) == 1 else None
    times = [found[0][name] for name in ("at", "one", "two") if found[0][name]] if hours else []
    bare = times and all(re.fullmatch(r"\d+|[^\W\d]+", each) and not _is(each, "noon") for each in times)
    several = hours is not None and re.search(r"\b(?:or|oder|ou)\b\W*$", text[: found[0].start()], re.I)
    if hours is None or several or (bare and not of_day):
        return None
    start, end = found[0].span()
    rest = f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()
    return re.sub(r"\s+(?=[?.!,])", "", rest), hours


def _say_halves(text: str) -> str:
    """
    >>> _say_halves("before 10 in the morning, or at half past nine in the evening")
    'before 10 am, or at half past nine pm'
    """
    for half in "am", "pm":
        behind = rf"\b({_hour()}(?:[:.]\d\d)?)\s+(?:{table_of('times')[half]})(?!\w)"
        text = re.sub(behind, rf"\1 {half}", text, flags=re.I)
    return text


def asks_time(text: str) -> bool:
    """Whether the time of day is asked for: "at what time", "when does she start"."""
    return re.search(rf"(?<!\w)(?:{table_of('times')['asks']})(?!\w)", text, re.I) is not None


def say_when(text: str) -> str:
    """
    >>> say_when("At what time is Ada in?")
    'when is Ada in?'
    """
    return re.sub(rf"(?<!\w)(?:{table_of('times')['what_time']})(?!\w)", "when", text, flags=re.I)


def _hours_of(found: re.Match[str]) -> Hours | None:
    words = table_of("hours")
    if part := found["part"]:
        first, last = (int(each) * 60 for each in words[part.lower()].split("-"))
        return Hours(first, last, _label(first, last))
    half = re.search(r"[ap](?=\.?m\b)", found["two"] or "", re.I)  # "from 2 to 4 pm"
    low, high = _minutes(found["at"] or found["one"], half and half[0]), _minutes(found["two"], None)
    way = next(
        (name for name in ("after", "since", "before", "until") if found["way"] and _is(found["way"], name)), "at"
    )
    if low is None or (found["two"] and (high is None or high <= low)):
        return None
    if high is not None:
        return Hours(low, high + 1, f"a time from {_clock(low)} to {_clock(high)}")
    ways = {
        "after": Hours(low + 1, _DAY, f"a time after {_clock(low)}"),
        "since": Hours(low, _DAY, f"a time from {_clock(low)} on"),
        "before": Hours(0, low, f"a time before {_clock(low)}"),
        "until": Hours(0, low + 1, f"a time up to {_clock(low)}"),
        "at": Hours(low, low + 1, f"the time {_clock(low)}"),
    }
    return ways[way]


def _label(first: int, last: int) -> str:
    if not first:
        return f"a time before {_clock(last)}"
    return f"a time from {_clock(first)} on" if last == _DAY else f"a time from {_clock(first)} to {_clock(last)}"


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _minutes(said: str | None, half: str | None) -> int | None:
    """The minute of the day of "3 pm", "15:30", "half past nine", "noon"; `half` is the "am" or "pm" at the end of a range."""
    if said is None:
        return None
    said = said.casefold().replace(".", ":")
    if _is(said, "noon"):
        return 12 * 60
    own = re.search(r"([ap]):?m\b", said)
    half = own[1] if own else half and half.casefold()
    digits = [int(each) for each in re.findall(r"\d+", said)]
    named = [numbers()[word] for word in re.findall(r"[^\W\d]+", said) if word in numbers()]
    hour, minute = (*digits, *named, 0)[:2] if digits or named else (24, 0)
    parts = (("half", 30), ("quarter past", 15), ("quarter to", -15))
    quarter = next((by for words, by in parts if said.startswith(words)), 0)
    if half is not None:
        hour = hour % 12 + (12 if half == "p" else 0)
    elif hour < _EARLY and not re.match(r"0\d", said):
        hour += 12
    return hour * 60 + minute + quarter if hour < 24 and minute < 60 else None


def _is(said: str, name: str) -> bool:
    return re.fullmatch(table_of("times")[name], said.strip(), re.I) is not None


@cache
def _hour() -> str:
    hours = "|".join(word for word, number in numbers().items() if 0 < number <= 12 and word not in _NO_HOURS)
    return rf"(?:\d{{1,2}}|{hours})"


@cache
def _pattern() -> re.Pattern[str]:
    words, parts = table_of("times"), "|".join(table_of("hours"))
    hour, half = _hour(), r"\s*[ap]\.?m\b\.?"
    past = rf"(?:{words['past']})\s+{hour}(?:{half})?"
    clock = rf"(?:{hour}(?:[:.]\d\d)?{half}|\d{{1,2}}:\d\d|{past}|{hour}\s*(?:{words['clock']})|{words['noon']})"
    last = rf"(?:{clock}|{hour}(?={words['behind']}))"
    ways = "|".join(words[name] for name in ("after", "since", "before", "until", "at"))
    return re.compile(
        rf"(?:(?<!\w)(?:{words['between']})\s+(?P<one>{clock}|\d{{1,2}}[:.]\d\d|{hour})\s*(?:{words['to']})\s*(?P<two>{last})"
        rf"|(?<!\w)(?P<way>{ways})\s+(?P<at>{last})"
        rf"|(?:(?<!\w)(?:{words['during']})|(?<=day)|(?<=tomorrow))\s+(?P<part>{parts})(?={words['behind']}))(?![\w’'-]|\s*[%€£$])",
        re.I,
    )
