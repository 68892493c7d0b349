"""Figures, dates and times of a text, in one form: "480 euros", "€480", "four hundred and eighty"."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, pairwise

from msgspec import Struct
from msgspec.structs import replace

from rag_app.domain import DAY_NUMBERS, MONTH_NUMBERS, compile_later, read_table
from rag_app.retrieval.text import NUMBER_WORDS, SMALL_NUMBERS, TENS

_SCALES = {
    "hundred": 100,
    "thousand": 10**3,
    "k": 10**3,
    "million": 10**6,
    "mio": 10**6,
    "billion": 10**9,
    "mrd": 10**9,
}
_WORDS: Mapping[str, dict[str, float]] = read_table(__file__)
OTHER_NUMBERS = _WORDS["numbers"]
"""English, German and French words of figures that NUMBER_WORDS has not."""
UNITS = {
    name: (dimension, float(factor))
    for dimension, factor, names in (
        ("time", 1, "second seconds sec sekunde sekunden seconde secondes"),
        ("time", 60, "minute minutes min mins minuten"),
        ("time", 3600, "hour hours hr hrs h stunde stunden heure heures"),
        ("time", 86400, "day days tag tage tagen jour jours"),
        ("time", 604800, "week weeks woche wochen semaine semaines"),
        ("months", 1, "month months monat monate monaten mois"),
        ("months", 12, "year years jahr jahre jahren an ans année années"),
        ("percent", 1, "% percent prozent"),
        ("dollar", 1, "$ dollar dollars usd us$ buck bucks"),
        ("euro", 1, "€ euro euros eur"),
        ("pound", 1, "£ gbp quid pound pounds"),
        ("pound", 0.01, "penny pennies pence"),
        ("cent", 0.01, "¢ ct cent cents centime centimes rappen"),
        ("franc", 1, "chf francs franken"),
        ("yen", 1, "¥ yen jpy"),
        ("yuan", 1, "cny yuan rmb"),
        ("rupee", 1, "₹ inr rupee rupees"),
        ("krone", 1, "nok dkk sek kr krona krone kronor kroner"),
        ("peso", 1, "mxn peso pesos"),
        ("zloty", 1, "pln zloty zlotys"),
        ("mass", 1, "g gram grams gramm"),
        ("mass", 1000, "kg kilo kilos kilogram kilograms"),
        ("length", 1, "mm"),
        ("length", 10, "cm"),
        ("length", 1000, "m metre metres meter meters"),
        ("length", 1_000_000, "km kilometre kilometres kilometer kilometers"),
        ("length", 1_609_344, "mile miles"),
        ("volume", 1, "ml"),
        ("volume", 1000, "litre litres liter liters"),
        ("bytes", 1, "kb"),
        ("bytes", 1000, "mb"),
        ("bytes", 1_000_000, "gb"),
        ("bytes", 1_000_000_000, "tb"),
    )
    for name in names.split()
}
MONEY = frozenset(["dollar", "euro", "pound", "cent", "franc", "yen", "yuan", "rupee", "krone", "peso", "zloty"])
CENTS_OF = frozenset(["dollar", "euro", "franc"])
"""What a cent may be the hundredth part of."""
_UNIT = "|".join(re.escape(name) for name in sorted(UNITS, key=lambda name: -len(name))).replace(
    "|an|",
    r"|an(?!\s\w)|",  # of French "1 an", not of "$45 an hour"
)
_FAR_UNIT = "|".join(sorted((name for name in UNITS if name.isalpha() and len(name) > 3), key=lambda name: -len(name)))
_NO_ADJECTIVE = r"per|each|every|and|for|the|off|last|next|this|that|these|those|most|some|all|other|half|than|from|with|after|before|until"
_FULL_DAYS = {name[:3].title(): name for name in list(DAY_NUMBERS)[:7]}
_MONTH = "|".join(sorted(MONTH_NUMBERS, key=lambda name: -len(name)))
_DAY = "|".join(DAY_NUMBERS)
NUMBER = r"\d{1,3}(?:[.,'’\u00a0\u202f]\d{3})+(?:[.,]\d+)?(?![\d])|\d+(?:[.,]\d+)?"
_WORD_NUMBER = (
    rf"(?:{'|'.join(TENS)})(?:[- ](?:{'|'.join(SMALL_NUMBERS[1:10])}))?|{'|'.join(SMALL_NUMBERS)}|hundred|thousand"
)
_DAY_NUMBER = r"(?:0?[1-9]|[12]\d|3[01])"
_DATE = compile_later(
    rf"""(?P<iso>\b(?P<iy>\d{{4}})-(?P<im>\d{{2}})(?:-(?P<id>\d{{2}}))?(?=\b|T))
      | \b(?P<na>\d{{1,2}})[./](?P<nb>\d{{1,2}})[./](?P<ny>\d{{4}}|\d{{2}})\b
      | \b(?P<d1>{_DAY_NUMBER})(?:st|nd|rd|th|\.)?\ (?:of\ )?(?!(?-i:may\ [a-z]))(?P<m1>{_MONTH})\b\.?(?:,?\ (?P<y1>\d{{4}})\b)?
      | \b(?P<m2>{_MONTH})\b\.?\ (?P<d2>{_DAY_NUMBER})(?:st|nd|rd|th)?\b(?!\s?(?:%|percent))(?:,?\ (?P<y2>\d{{4}})\b)?
      | \b(?P<m3>{_MONTH})\b\.?,?\ (?P<y3>\d{{4}})\b""",
    re.IGNORECASE | re.VERBOSE,
)
_LONE_MONTH = compile_later(
    rf"\b(?:(?!may\b|march\b|mars\b|mai\b|jan\b|mar\b|dec\b|sep\b|an\b)(?:{_MONTH})\b|(?<=in )(?:May|March)\b)",
    re.IGNORECASE,
)
_WEEKDAY = compile_later(
    rf"\b({_DAY})s?\b|\b((?-i:Mon|Tue|Wed|Thu|Fri|Sat|Sun))(?:s|r|rs)?\b\.?(?=\s*(?:[\d§]|[|,;:–-]|to\b|\Z|\n))",
    re.IGNORECASE,
)
_WEEKDAYS_BETWEEN = compile_later(
    rf"\b({_DAY}|mon|tue|wed|thu|fri|sat|sun)s?\.?\s?(?:to|through|until|till|bis|à|-|–)\s?({_DAY}|mon|tue|wed|thu|fri|sat|sun)s?\b",
    re.IGNORECASE,
)
_TIME = compile_later(
    r"""\b(?P<h>\d{1,2})[:h](?P<m>\d{2})(?!\d)\s?(?P<half>[ap]\.?m\b\.?)?
      | \b(?P<h2>\d{1,2})(?:\.(?P<m2>\d{2}))?\s?(?P<half2>[ap]\.?m\b\.?|o['’]clock|uhr\b)
      | \b(?P<word>noon|midnight)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_DIAL = compile_later(
    rf"""\b(?:(?P<past>half|(?:a\ )?quarter|five|ten|twenty|twenty-five)\ past|(?P<to>(?:a\ )?quarter|(?<=at\ )(?:five|ten|twenty|twenty-five))\ to)
        \ (?P<hour>{"|".join(SMALL_NUMBERS[1:13])}|1[0-2]|[1-9])\b(?:\ in\ the\ (?P<part>morning|afternoon|evening)|\s?(?P<half>[ap])m\b)?""",
    re.IGNORECASE | re.VERBOSE,
)
_FIGURE = compile_later(
    rf"""(?:(?P<before>US\$|[$€£¥]|\b(?:usd|eur|gbp|chf)\b)\s?)?
        (?:(?<![\w.,])|(?<=\bv))(?P<sign>(?<![\w)])[-+−–])?(?P<digits>{NUMBER})(?![.,]?\d)
        (?P<scale>\s?(?:k|thousand|million|billion|mio|mrd)\b)?
        (?:[\s\u00a0-]?(?P<after>{_UNIT})(?!\w)|\ (?!(?:{_NO_ADJECTIVE})\b)(?:US|[^\W\d_]{{3,}})\ (?P<far>{_FAR_UNIT})\b)?
      | \b(?P<words>{_WORD_NUMBER})(?P<scales>(?:[- ](?:hundred|thousand|million|billion))*)(?:\ and\ (?P<rest>{_WORD_NUMBER}))?\b
        (?:[\s-](?P<after2>{_UNIT})(?!\w)|\ (?!(?:{_NO_ADJECTIVE})\b)(?:US|[^\W\d_]{{3,}})\ (?P<far2>{_FAR_UNIT})\b)?
      | (?!(?<=\ba\ )cent|(?<=\b(?:the|per)\ )cent|(?<=\b(?:each|last)\ )cent|(?<=\bevery\ )cent|(?<=\bsingle\ )cent)
        \b(?P<other>{"|".join(OTHER_NUMBERS)})\b(?P<hundreds>[\ -]cents?(?=\ \w))?(?:\s(?P<after3>{_UNIT})(?!\w))?""",
    re.IGNORECASE | re.VERBOSE,
)
_IMPLIED_NUMBER = compile_later(
    rf"\b(?P<half>half)\b(?!\ past)|\b(?:an?|per|each|every)\ (?P<one>{_UNIT})(?!\w)|\b(?P<both>both)\b",
    re.IGNORECASE,
)
_ORDINAL = compile_later(r"\b(\d{1,2})(?:st|nd|rd|th)\b", re.IGNORECASE)
_PARTS = {
    "half": 0.5,
    "quarter": 0.25,
    "three quarters": 0.75,
    "½": 0.5,
    "¼": 0.25,
    "¾": 0.75,
    "demi": 0.5,
    "demie": 0.5,
    "andert": 1.5,
    "einein": 1.5,
    "zweiein": 2.5,
    "dreiein": 3.5,
}
_COUNT = rf"\d{{1,3}}|{_WORD_NUMBER}"
_MIXED_NUMBER = compile_later(
    rf"""\b(?:(?P<whole>{_COUNT}|(?:an?|une?)(?=\ (?:{_UNIT})\b))(?:\ (?P<unit>{_UNIT}))?
        \ (?:and|et)\ (?:(?:an?|one)\ )?(?P<part>half|quarter|three\ quarters|demie?)\b(?:\ (?P<of>{_UNIT})\b)?
      | (?P<lone>three\ quarters|(?:a\ )?quarter|half)\ (?:of\ )?an?\ (?P<of2>{_UNIT})\b
      | (?:(?:an?\ )?half-|an?\ half\ |(?:eine[rn]?\ )?halbe[rn]?\ |(?:une\ )?demi-)(?P<of3>hour|day|year|mile|pound|stunde|heure)\b
      | (?P<german>andert|einein|zweiein|dreiein)halb)\b
      | (?P<digits>\b\d{{1,3}}\s?|(?<![\w.,]))(?P<sign>[½¼¾])""",
    re.IGNORECASE | re.VERBOSE,
)
_PARTS_OF = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}
_SHARE = compile_later(
    rf"""\b(?P<some>two|three|four|[2-9])[ -](?P<parts>third|quarter|fifth|sixth|eighth|tenth)s\b
      | \b(?P<loose>an?|one)[ -](?P<part>third|quarter|fifth|sixth|eighth|tenth)\b(?!\ (?:past|to)\b)(?P<said>\ of\b(?!\ \d{{4}}))?
      | (?:\bby\ )(?P<by>half)\b | \b(?P<half>half)(?=\ (?:of|the|its|their|our|all)\b)
      | \b(?P<some2>{_COUNT})(?:\ [^\W\d]+)?\ (?:in|out\ of)(?:\ every)?\ (?P<all>{_COUNT})\b(?![.,:]?\d|\s?(?:{_UNIT})(?!\w))""",
    re.IGNORECASE | re.VERBOSE,
)
_RATIO = compile_later(
    rf"""\b(?:(?P<word>twice|thrice|double|triple|treble)\ (?=(?:as|the|that|what|its|their|our|his|her|more)\b)
      | half\ as\ (?:much|many|long|big|large|far|high|old|wide)\ (?P<again>again)\b
      | (?P<verb>doubl|tripl|trebl|quadrupl|halv|verdoppel|verdreifach)(?:e|es|ed|ing|t|te|ten)\b(?!\ (?:rooms?|beds?|plots?|doors?|espresso))
      | (?P<times>\d+(?:[.,]\d+)?|{_WORD_NUMBER})(?:\ times|[ ]?x)\ (?=(?:as|the|that|what|more|less|fewer|\w+er\ than)\b)
      | (?P<fold>\d+(?:[.,]\d+)?|{_WORD_NUMBER})[- ]?fold\b | (?P<x>\d+(?:[.,]\d+)?)x(?!\w|\s(?:an?|per|each|\d)) | by\ a\ factor\ of\ (?P<factor>\d+(?:[.,]\d+)?|{_WORD_NUMBER})
      | (?P<half>half)\ (?=as\b) | (?P<doppelt>doppelt|dreimal|viermal)\ (?=so\b) | (?P<fois>deux|trois|quatre)\ fois\ (?=plus|moins))""",
    re.IGNORECASE | re.VERBOSE,
)
_BOUNDS = {
    words: bound
    for bound, names in {
        ">": "more than|over|mehr als|plus de",
        "<": "less than|fewer than|under|weniger als|moins de",
        ">=": "at least|not less than|no less than|no fewer than|mindestens|au moins",
        "<=": "at most|up to|not more than|no more than|no longer than|höchstens|bis zu|au plus|jusqu'à",
    }.items()
    for words in names.split("|")
}
_ABOUT_WORDS = "|".join(
    [
        *sorted(_BOUNDS, key=lambda words: -len(words)),
        "about|around|roughly|approximately|some|almost|nearly|another|only|just|exactly",
    ]
)
_ABOUT_BEFORE = compile_later(rf"\b({_ABOUT_WORDS}|close to|(?:just|a little) (?:under|over))\s\Z", re.IGNORECASE)
_LEVEL = compile_later(rf"(?<!\bup)\s(?:to|from|auf|von)(?: (?:{_ABOUT_WORDS}))*\s\Z", re.IGNORECASE)
_DIRECTION = compile_later(
    rf"""(?:\A|.*\b)(?:(?P<down>fell|fall(?:s|en|ing)?|drop(?:s|ped|ping)?|declin\w+|decreas\w+|down|lower(?:ed|s|ing)|reduc\w+
        |cut(?:s|ting)?|shr[aiu]nk\w*|los(?:t|e|es|ing|s)|slump\w*|plung\w*|s[aiu]nk\w*|minus|gesunken|fiel|baiss\w+|recul\w+)
      | (?P<up>rose|ris(?:e|es|en|ing)|gr[eo]w(?:n|s|ing|th)?|increas\w+|climb\w*|gain\w*|up|rais(?:e|ed|es|ing)|jump\w*|soar\w*
        |plus|gestiegen|stieg|augment\w+))
        (?:[^.;!?\d§|]*\b(?:by|um|de))?(?:\ (?:of|{_ABOUT_WORDS.replace(" ", "[ ]")}))*\s?\Z""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_DIRECTION_AFTER = compile_later(
    r"\s(?:(?P<down>fall|drop|decline|decrease|loss|reduction)|(?P<up>rise|increase|gain|growth))\b",
    re.IGNORECASE,
)
_TAKEN_OFF = compile_later(
    r"fall|drop|decline|decrease|loss|reduc|discount|rebate|saving|deduct|refund|nachlass|rabatt|remise"
)
_FIELD = compile_later(r"(?:\A|[\n|])[ \t]*(?P<label>[^\W\d][^|\n:.]{0,39}):[ \t]*\Z")
_NOUN = compile_later(r"\s([^\W\d_]{3,})")
_FIELD_END = compile_later(r"[ \t]*(?:[|\n]|\Z)")
_SHORT_DATE = compile_later(r"(?<![\d/.,])(\d{1,2})/(\d{1,2})(?![\d/]|[.,]\d)")
_SPAN = compile_later(
    rf"""\b(?:for|within|after|in|lasts?|lasted|lasting|takes?|took|taking|wait(?:s|ed)?|nearly|almost|about|over|than|until)
        \ an?\ (?P<unit>{_UNIT})\b(?!-)
      | \ban?\ (?P<unit2>{_UNIT})\ (?:after|before|later|ago|earlier|long|early|late|ahead)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_HOUR_BEFORE = compile_later(r"\b(?:till|until|at|bis|um)\s\Z", re.IGNORECASE)
_RIGHT_SHARED = compile_later(r"\s?(?:to|or|bis|à|–|—|-)\s?|\s(?:instead of|rather than|against)\s", re.IGNORECASE)
_RANGE_START = compile_later(r"\b(?:between|zwischen|entre)\s\Z", re.IGNORECASE)
_LEFT_SHARED = compile_later(
    r"\s(?:instead of|rather than|against|to|up from|down from|from|compared (?:to|with))\s", re.I
)
_NO_NOUN = compile_later(r"\s*(?:\Z|[.,;:!?)§]|\s(?:on|in|for|as|since|until|and|or|but|at|by|from)\b)", re.IGNORECASE)


class Figure(Struct, frozen=True):
    """What a text states as a number: `values` are how it may be read ("1.240" as 1240 or 1.24).

    `dimension` is what it is measured in, "" where the text does not say; `values` are in the smallest unit of it, and
    `plain` are without the unit. `sign` is -1 or 1 where the text says so, `written` whether as "-" or "+" ("-21 percent",
    not "fell by 21 percent"). `label` is the name of the field whose value it is ("price: 105"), `about` the word before it
    that says how exact it is ("over 2,000"), `noun` the one behind it. `level`: what something rises or falls to or from.
    """

    values: frozenset[float]
    plain: frozenset[float]
    dimension: str = ""
    sign: int = 0
    written: bool = False
    label: str = ""
    about: str = ""
    level: bool = False
    noun: str = ""

    @property
    def bound_sign(self) -> str:
        """ ">=" of "at least"; "" where the text does not say that it is a bound."""
        return _BOUNDS.get(self.about, "")

    @property
    def scale(self) -> float:
        """How many of the smallest unit its unit has."""
        return max(self.values) / max(self.plain) if any(self.plain) else 1.0

    def agrees(self, other: "Figure") -> bool:
        levels = (self.level and other.is_change) or (other.level and self.is_change)
        return not levels and not self._is_opposite(other) and self.equals(other)

    @property
    def is_change(self) -> bool:
        """Whether it is by how much something rises or falls, said in words."""
        return self.sign != 0 and not self.written and not self.label

    def equals(self, other: "Figure") -> bool:
        """Whether both are the same but for the sign."""
        if self.dimension and other.dimension:
            return is_convertible(self.dimension, other.dimension) and bool(self.values & other.values)
        return bool(self.plain & other.plain)

    def _is_opposite(self, other: "Figure") -> bool:
        """A written "-21" is no plain 21; "fell by 21" may be one, but no "rose by 21"."""
        is_negative = any(each.written and each.sign < 0 for each in (self, other))
        return self.sign * other.sign < 0 or (is_negative and self.sign != other.sign)


class Ratio(Struct, frozen=True):
    """A multiplier: "almost twice as long", "threefold". `about` is the word before it, of how exact it is."""

    value: float
    about: str = ""


def is_convertible(one: str, other: str) -> bool:
    """Whether figures of two dimensions may be the same: cents are of a dollar or of a euro."""
    return one == other or {one, other} in [{"cent", each} for each in CENTS_OF]


Date = tuple[int | None, int | None, int | None]
"""Year, month and day, with None for what is not said."""


class FigureSet(Struct, frozen=True):
    """All that a text states. Times are minutes of a day."""

    numbers: tuple[Figure, ...] = ()
    dates: tuple[Date, ...] = ()
    weekdays: frozenset[int] = frozenset()
    times: tuple[frozenset[int], ...] = ()
    implied: tuple[Figure, ...] = ()
    """What a source says without a number: "within a week", "both", "half of the price"."""
    ratios: tuple[Ratio, ...] = ()
    short_dates: tuple[tuple[int, int], ...] = ()
    """"18/04", which may be a date or two numbers."""
    spans: tuple[Figure, ...] = ()
    """What a claim says without a number: "for a month"."""
    days: frozenset[int] = frozenset()
    """Those without a month: "on the 29th"."""
    days_between: frozenset[int] = frozenset()
    """The weekdays inside of a range: "Monday to Friday"."""

    def join(self, other: "FigureSet") -> "FigureSet":
        """What two texts state."""
        return FigureSet(
            (*self.numbers, *other.numbers),
            (*self.dates, *other.dates),
            self.weekdays | other.weekdays,
            (*self.times, *other.times),
            (*self.implied, *other.implied),
            (*self.ratios, *other.ratios),
            (*self.short_dates, *other.short_dates),
            (*self.spans, *other.spans),
            self.days | other.days,
            self.days_between | other.days_between,
        )


@lru_cache(maxsize=512)
def figures_of(text: str) -> FigureSet:
    """
    >>> found = figures_of("On 5 February, two of 1,240 took 90 minutes at 2:30 pm.")
    >>> [sorted(each.plain) for each in found.numbers], found.dates, [sorted(each) for each in found.times]
    ([[2.0], [1.24, 1240.0], [90.0]], ((None, 2, 5),), [[870]])
    """
    text = write_parts(text)
    dates = [_date(found) for found in _DATE.finditer(text)]
    rest = _DATE.sub(" § ", text)
    times = [read for found in _TIME.finditer(rest) if (read := _time(found))]
    rest = _TIME.sub(lambda found: " § " if _time(found) else found[0], rest)
    times += [_dial_time(found) for found in _DIAL.finditer(rest)]
    rest = _DIAL.sub(" § ", rest)
    weekdays = frozenset(DAY_NUMBERS[(name or _FULL_DAYS[short]).casefold()] for name, short in _WEEKDAY.findall(rest))
    dates += [(None, MONTH_NUMBERS[found[0].casefold()], None) for found in _LONE_MONTH.finditer(rest)]
    days = frozenset(map(int, _ORDINAL.findall(rest)))
    rest = _ORDINAL.sub(" § ", _LONE_MONTH.sub(" § ", rest))
    short = tuple((int(one), int(other)) for one, other in _SHORT_DATE.findall(rest))
    rest = _SHORT_DATE.sub(" § ", rest)
    ratios = tuple(_ratio(found) for found in _RATIO.finditer(rest))
    rest = _RATIO.sub(" § ", rest)
    shares = [(found, share) for found in _SHARE.finditer(rest) if (share := _share(found))]
    implied = [_implied_figure(found) for found in _IMPLIED_NUMBER.finditer(rest)]
    implied += [share for found, share in shares if found["loose"] and not found["said"]]
    implied += [_build_figure([part], "") for pair in short for part in pair]
    rest = _SHARE.sub(lambda found: " § " if _share(found) else found[0], rest)
    numbers = [share for found, share in shares if not found["loose"] or found["said"]]
    spans = tuple(_build_figure([1], found["unit"] or found["unit2"]) for found in _SPAN.finditer(rest))
    return FigureSet(
        (*numbers, *_read_numbers(rest)),
        tuple(dates),
        weekdays,
        tuple(times),
        tuple(implied),
        ratios,
        short,
        spans,
        days,
        frozenset(chain.from_iterable(map(_days_between, _WEEKDAYS_BETWEEN.finditer(rest)))),
    )


def _days_between(found: re.Match[str]) -> Iterator[int]:
    start, end = (DAY_NUMBERS[_FULL_DAYS.get(name.title(), name).casefold()] for name in found.groups())
    return (day % 7 for day in range(start, end + 1 if end > start else end + 8))


def write_parts(text: str) -> str:
    """A text with the parts of its figures in digits.

    >>> write_parts("an hour and a half, or 3 per cent")
    '1.5 hour, or 3 percent'
    """
    return _MIXED_NUMBER.sub(
        _write_mixed, re.sub(r"\b(?:(?:per|pour) ?cent\b|percent(?:age)? points?\b)", "percent", text)
    )


def _write_mixed(found: re.Match[str]) -> str:
    """ "An hour and a half" with digits: "1.5 hour"."""
    unit = found["unit"] or found["of"] or found["of2"] or found["of3"] or ""
    part = found["part"] or found["lone"] or found["german"] or found["sign"] or "half"
    whole = (found["whole"] or found["digits"] or "0").casefold()
    count = 1 if whole in ("a", "an", "un", "une") else int(_count(whole))
    return f"{count + _PARTS[part.casefold().removeprefix('a ')]} {unit}".rstrip()


def _count(written: str) -> float:
    return float(written.replace(",", ".")) if written[0].isdigit() else float(_value(written))


def _ratio(found: re.Match[str]) -> Ratio:
    counted = found["times"] or found["fold"] or found["x"] or found["factor"]
    word = found["word"] or found["again"] or found["verb"] or found["half"] or found["doppelt"] or found["fois"]
    value = _count(counted) if counted else float(_WORDS["ratios"][word.casefold()])
    return Ratio(value, _exactness(found.string[: found.start()]))


def _exactness(before: str) -> str:
    found = _ABOUT_BEFORE.search(before[-30:])
    return found[1].casefold() if found else ""


def _share(found: re.Match[str]) -> Figure | None:
    """A part of a whole in percent, exact and rounded: "two thirds", "one customer in five"."""
    if found["some2"]:
        part, whole = _count(found["some2"]), _count(found["all"])
        if not 0 < part < whole <= 100:
            return None
    else:
        name = found["parts"] or found["part"] or "half"
        part, whole = _count(found["some"] or "1"), _PARTS_OF[name.casefold()]
    return _build_figure({round(100 * part / whole, places) for places in (0, 1, 2, 6)}, "%")


def _read_numbers(rest: str) -> Iterator[Figure]:
    read = [(found, figure) for found in _FIGURE.finditer(rest) if (figure := _figure(found))]
    figures = [_with_field(found, figure) for found, figure in read]
    for at, ((left, _), (right, _)) in enumerate(pairwise(read)):
        one, other = figures[at], figures[at + 1]
        between = rest[left.end() : right.start()]
        is_scaled = _scale_of(right) > _scale_of(left) == 1 and not one.dimension
        if (other.dimension or is_scaled) and not one.dimension and _shares_right(between, rest[: left.start()][-20:]):
            figures[at] = _with_unit_of(one, other, 1 if _scale_of(left) > 1 else _scale_of(right))
        elif (
            one.dimension
            and not other.dimension
            and _LEFT_SHARED.fullmatch(between)
            and _NO_NOUN.match(rest, right.end())
        ):
            figures[at + 1] = _with_unit_of(other, one)
    yield from figures


def _shares_right(between: str, before: str) -> bool:
    if between.casefold() in (" and ", " und ", " et "):
        return _RANGE_START.search(before) is not None
    return _RIGHT_SHARED.fullmatch(between) is not None


def _with_unit_of(figure: Figure, other: Figure, scale: int = 1) -> Figure:
    """A figure that leaves its unit to another, and perhaps its `scale`: "from 2 to 3 million dollars"."""
    plain = figure.plain | {value * scale for value in figure.plain}
    values = frozenset(round(value * other.scale, 6) for value in plain)
    return replace(figure, values=values, plain=plain, dimension=other.dimension)


def _with_field(found: re.Match[str], figure: Figure) -> Figure:
    """A figure with the sign that words before it give it; that of a field is above zero where it has no sign."""
    rest = found.string
    line = rest[: found.start()]
    noun = _NOUN.match(rest, found.end())
    figure = replace(
        figure,
        about=_exactness(line),
        level=_LEVEL.search(line[-40:]) is not None,
        noun=noun[1].casefold() if noun else "",
    )
    field = _FIELD.search(line[-60:]) if _FIELD_END.match(rest, found.end()) else None
    if not field:
        direction = _DIRECTION.match(line[-80:]) or _DIRECTION_AFTER.match(rest, found.end())
        if direction and not figure.sign:
            is_minus = (direction["down"] or "").casefold() == "minus"
            return replace(figure, sign=1 if direction["up"] else -1, written=is_minus)
        return figure
    label = field["label"].casefold()
    return replace(figure, label=label, sign=figure.sign or (0 if _TAKEN_OFF.search(label) else 1))


def _figure(found: re.Match[str]) -> Figure | None:
    units = (found[name] for name in ("after", "after2", "after3", "before", "far", "far2"))
    unit = next((name.casefold() for name in units if name), "")
    if found["digits"]:
        plain = {value * _scale_of(found) for value in _readings(found["digits"])}
    elif found["words"]:
        is_hour = _HOUR_BEFORE.search(found.string, 0, found.start()) is not None
        if found["words"].casefold() == "one" and not (unit or found["scales"] or is_hour):
            return None  # "one customer", "no one"
        value = float(_value(found["words"]))
        for scale_name in found["scales"].casefold().replace("-", " ").split():
            value *= _SCALES[scale_name]
        plain = {value + (_value(found["rest"]) if found["rest"] and found["scales"] else 0)}
    else:
        plain = {float(OTHER_NUMBERS[found["other"].casefold()] * (100 if found["hundreds"] else 1))}
    sign = _sign_of(found)
    return replace(_build_figure(plain, unit), sign=sign, written=sign != 0)


def _scale_of(found: re.Match[str]) -> int:
    return _SCALES.get((found["scale"] or found["scales"] or "").strip(" -").casefold(), 1)


def _sign_of(found: re.Match[str]) -> int:
    """A dash that begins a line or ends a range is no sign."""
    before = found.string[: found.start()][-40:]
    if not found["sign"] or found["sign"] == "–" or re.search(r"(?:\d ?|^[ \t]*)\Z", before, re.MULTILINE):
        return 0
    return 1 if found["sign"] == "+" else -1


def _build_figure(plain: Iterable[float], unit: str) -> Figure:
    dimension, factor = UNITS.get(unit.casefold(), ("", 1.0))
    known = frozenset(round(value, 6) for value in plain)
    return Figure(frozenset(round(value * factor, 6) for value in known), known, dimension)


def _implied_figure(found: re.Match[str]) -> Figure:
    value, unit = (2, "") if found["both"] else (50, "%") if found["half"] else (1, found["one"])
    return _build_figure([value], unit)


def _value(words: str) -> int:
    parts = re.split(r"[- ]", words.casefold())
    return sum(_SCALES[part] if part in _SCALES else NUMBER_WORDS[part] for part in parts)


def _readings(digits: str) -> set[float]:
    """A last mark may be the decimal one, or set thousands apart: "1.240" is both, "2,000" is not 2."""
    marks = re.findall(r"[.,'’\u00a0\u202f]", digits)
    whole, mark, last = re.sub(r"['’\u00a0\u202f]", "", digits).replace(",", ".").rpartition(".")
    whole = whole.replace(".", "")
    grouped = {float(whole + last)} if len(last) == 3 and len(set(marks)) == 1 else set()
    if grouped and (len(marks) > 1 or last == "000"):
        return grouped
    return grouped | {float(f"{whole}{mark}{last}")}


def _date(found: re.Match[str]) -> Date:
    if found["iso"]:
        return int(found["iy"]), int(found["im"]), int(found["id"]) if found["id"] else None
    if found["na"]:
        first, second, year = int(found["na"]), int(found["nb"]), int(found["ny"])
        year += 2000 if year < 100 else 0
        return (year, second, first) if second <= 12 else (year, first, second)
    month, day = found["m1"] or found["m2"] or found["m3"], found["d1"] or found["d2"]
    said = found["y1"] or found["y2"] or found["y3"]
    return int(said) if said else None, MONTH_NUMBERS[month.casefold()], int(day) if day else None


def _time(found: re.Match[str]) -> frozenset[int] | None:
    if found["word"]:
        return frozenset([720 if found["word"].casefold() == "noon" else 0])
    hour, minute = int(found["h"] or found["h2"]), int(found["m"] or found["m2"] or 0)
    half = (found["half"] or found["half2"] or "").casefold().replace(".", "")
    if hour > 24 or minute > 59:
        return None
    if half in ("am", "pm"):
        return frozenset([hour % 12 * 60 + minute + (720 if half == "pm" else 0)])
    hours = (hour, hour + 12) if half.startswith("o") else (hour,)  # "five o'clock" is said of the afternoon, too
    return frozenset(each % 24 * 60 + minute for each in hours)


def _dial_time(found: re.Match[str]) -> frozenset[int]:
    """ "Half past five": of the morning and of the afternoon, unless it says which."""
    said = (found["past"] or found["to"]).casefold().removeprefix("a ")
    minutes = {"half": 30, "quarter": 15}.get(said) or _value(said)
    minute = int(_count(found["hour"].casefold())) % 12 * 60 + (minutes if found["past"] else -minutes)
    half = (found["half"] or found["part"] or "").casefold()
    added = (0,) if half in ("a", "morning") else (720,) if half else (0, 720)
    return frozenset((minute + each) % 1440 for each in added)
