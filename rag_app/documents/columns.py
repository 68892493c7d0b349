"""What the columns of a table are called in questions, by the words of their names (columns.toml).

`yr_planted` is a year that something was planted in, `girth_cm` is measured in centimetres, and the largest is the thickest.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from msgspec import Struct, field

from rag_app.domain import FieldType, column_name, drop_vowels, lacks_one, read_table
from rag_app.retrieval.text import singular

_TABLE: Mapping[str, Mapping[str, str]] = read_table(__file__)
_UNITS = {
    name: {code: told.replace("-", " ") for code, told in (each.split("=") for each in said.split())}
    for name, said in _TABLE["dimensions"].items()
}
_PARTS_OF_UNITS = {code for known in _UNITS.values() for code in known if len(code) > 1}.union(
    _TABLE["units"]["parts"].split()
)
"""Words beside which a unit is part of another one: `eur_per_hour`, `g_km`."""
_SHORT = dict(each.split("=") for each in _TABLE["short"]["words"].split())
_SHORT_OF = {kind: dict(each.split("=") for each in said.split()) for kind, said in _TABLE["short_of"].items()}
_PAIRS = dict(each.split("=") for each in re.split(r"[|\n]", _TABLE["short"]["pairs"]) if each)
# A header such as `Price (EUR)`.
_WITH_UNIT = re.compile(r"(?P<name>[^()\[\]]+?)\s*[(\[](?P<unit>[^()\[\]]{1,20})[)\]]")
_YEAR = re.compile("1[5-9]\\d\\d|20\\d\\d")
_UNCLEAR = frozenset(_TABLE["units"]["unclear"].split())  # and all of one letter
NUMBER_TYPES = (FieldType.INTEGER, FieldType.NUMBER)
_LONGEST_CODE = 4  # letters
_SHORTEST = 2  # letters of what is no noun
SUM, GOOD, PAYMENT = "sum", "good", "paid"
_RATE, _AMOUNT = "rate", "amount"


class Measure(Struct, frozen=True):
    """What figures of a name are called: further words, words for the most and the least of them, and what they are in."""

    words: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    low: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()


class ColumnWords(Struct):
    """What a column is called: its name in full, and what else; words for its ends, its values, and what asks for it."""

    name: str
    words: list[str] = field(default_factory=list)
    high: list[str] = field(default_factory=list)
    low: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    asked: str = ""
    marks: frozenset[str] = frozenset()
    weak: list[str] = field(default_factory=list)
    """Words that are its own where no other column has them."""

    def phrases(self) -> Iterator[list[str]]:
        """The lists of its words that no other column may have."""
        yield from (self.words, self.high, self.low, *self.values.values())


def call_columns(
    kinds: Mapping[str, FieldType | None], values: Mapping[str, Iterable[str]], dated: bool
) -> dict[str, ColumnWords]:
    """What each column is called; a word that two of them would have is left to neither, nor is one that is another's name.

    >>> found = call_columns({"yr_built": FieldType.INTEGER, "ht_m": FieldType.NUMBER}, {"yr_built": ["1950"], "ht_m": ["2"]}, False)
    >>> found["yr_built"].words, found["yr_built"].low, found["ht_m"].words, found["ht_m"].high
    (['year built', 'built'], ['oldest', 'earliest'], ['height', 'how high'], ['tallest'])
    """
    spelled = _spelled_out(kinds)
    called = {name: _call_column(name, kind, values[name], dated, spelled) for name, kind in kinds.items()}
    _ask_for_people(called, kinds)
    places = [name for name, kind in kinds.items() if kind is FieldType.KEYWORD and _is_place(name)]
    for name in places:
        called[name].asked = "where"
    if len(places) == 1:
        called[places[0]].words += _TABLE["places"]["called"].split(", ")
    _leave_ends_to_prices([*called.values()])
    names = Counter(each.name for each in called.values())
    claimed = Counter(phrase for each in called.values() for phrase in {*chain(*each.phrases())})
    for each in called.values():
        for phrases in each.phrases():
            phrases[:] = dict.fromkeys(
                phrase
                for phrase in phrases
                if (names[phrase] == 1 if phrase == each.name else claimed[phrase] == 1 and phrase not in names)
            )
    weak = Counter(word for each in called.values() for word in {*each.weak})
    for name, each in called.items():
        each.words += [word for word in each.weak if weak[word] == 1 and word not in claimed and word not in names]
        if each.words == [column_name(name).replace("_", " ")] and not unit_of(name):
            each.words = []
    return called


def _leave_ends_to_prices(called: Sequence[ColumnWords]) -> None:
    """The dearest and the cheapest are those of a price, else of a rate, and else of another amount of money."""
    ranks = [2 if _AMOUNT in each.marks else int(_RATE in each.marks) for each in called]
    for one, rank in zip(called, ranks, strict=True):
        better = {
            *chain.from_iterable((*each.high, *each.low) for each, of in zip(called, ranks, strict=True) if of < rank)
        }
        one.high, one.low = ([word for word in end if word not in better] for end in (one.high, one.low))


def _spelled_out(names: Iterable[str]) -> dict[str, str]:
    """What abbreviations without a meaning of their own are short for where another column is called so.

    >>> _spelled_out(("sub_paid", "Subscription (GBP)", "insp_id", "inspector", "exp_date", "expert", "expenses"))
    {'sub': 'subscription'}
    """
    told = [without_unit(name)[0].split() for name in names]
    unclear = {each for words in told if len(words) > 1 for each in words} & {*chain(*_SHORT_OF.values())} - {*_SHORT}
    heads = [words[-1] for words in told if words and not _infinitive(words[-1])]
    longer = {each: {word for word in heads if word.startswith(each) and word != each} for each in unclear}
    return {short: words.pop() for short, words in longer.items() if len(words) == 1 and len(short) >= _CODE}


def _call_column(
    name: str, kind: FieldType | None, values: Iterable[str], dated: bool, spelled: Mapping[str, str]
) -> ColumnWords:
    tokens = full_name(name, kind, spelled)
    said = ColumnWords(" ".join(tokens))
    if kind in NUMBER_TYPES:
        bounds = {*_TABLE["never"]["rated"].split()} & {*tokens[:-1]}
        rated = bounds and not _is_money_rate(tokens, unit_of(name))
        measure = Measure() if rated else measure_of(tokens, unit_of(name), values)
        ends = () if dated and "year" in measure.marks else (measure.high, measure.low)
        heads = [] if "year" in measure.marks else _heads(tokens, "figures")
        said.words = [said.name, *heads, *measure.words]
        said.weak = without_end(tokens, "counts")
        said.high, said.low = ([*each] for each in ends or ((), ()))
        counts = kind is FieldType.INTEGER and not unit_of(name) and singular(tokens[-1]) != tokens[-1]
        known = _entry_of(tokens, _entries("figures")) is not None
        said.marks = frozenset({SUM}) if counts and not known else measure.marks  # "loaves" are added up
    elif kind is FieldType.KEYWORD:
        words, _, there = (_entry_of(tokens, _entries("called")) or ("", ""))[1].partition("|")
        said.words = [said.name, *_heads(tokens, "called"), *_split(words)]
        sorts = [f"{each} of {noun}" for noun in without_end(tokens, "sorts") for each in ("kind", "type", "sort")]
        said.weak = [*without_end(tokens), *_noun_of(tokens), *sorts]
        said.values = _codes(tokens, values) | ({"*": _split(there)} if there else {})
    elif kind is FieldType.BOOLEAN:
        said.values = _holds(tokens)
    return said


def _heads(tokens: Sequence[str], sort: str) -> list[str]:
    """The end of a longer name by which it is known: "budget" of a production budget."""
    found = _entry_of(tokens, _entries(sort))
    return [found[0]] if found and found[0] not in _TABLE["never"]["words"].split() else []


def without_end(tokens: Sequence[str], sort: str = "words") -> list[str]:
    """What a name without its end calls: "trench" of a trench code, "mite" of a mite count.

    >>> without_end(("trench", "code")), without_end(("code",)), without_end(("mite", "count"), "counts")
    (['trench'], [], ['mite'])
    >>> without_end(("tool", "name")), without_end(("first", "name"))
    (['tool'], [])
    """
    ends = _TABLE["ends"]
    calls = len(tokens) > 1 and tokens[-1] in ends[sort].split() and tokens[-2] not in ends["no_nouns"].split()
    return [" ".join(tokens[:-1])] if calls else []


def _noun_of(tokens: Sequence[str]) -> list[str]:
    """The last word of a longer name, where that is a noun: "box" of a storage box."""
    never = {*_TABLE["ends"]["words"].split(), *_TABLE["never"]["words"].split(), "name"}
    last = tokens[-1]
    return [last] if len(tokens) > 1 and last not in never and not _infinitive(last) and len(last) > _SHORTEST else []


def measure_of(tokens: Sequence[str], unit: str, values: Iterable[str] = ()) -> Measure:
    """
    >>> measure_of(("trunk", "girth"), "cm").high, measure_of(("net",), "min").low, measure_of(("x",), "").high
    (('thickest', 'fattest', 'stoutest'), ('fastest', 'quickest', 'winning', 'winner', 'won'), ())
    """
    done = next((each for each in reversed(tokens) if each in _TABLE["years"]["words"].split()), "")
    if (done or "year" in tokens) and all(map(_YEAR.fullmatch, values)):
        entry = _measure(dict(_entries("figures"))["year"])
        begun = f"{_infinitive(done).removesuffix('e')}ing" if _infinitive(done) else ""
        words = (done, f"year {done}", *((f"{begun} year", f"year of {begun}") if begun else ())) if done else ()
        return Measure(words, entry.high, entry.low, entry.marks)
    if _is_money_rate(tokens, unit):
        return _measure(_TABLE["by_dimension"]["money_rate"])
    if found := _entry_of(tokens, _entries("figures")):
        return _measure(found[1])
    said = _TABLE["by_dimension"].get(_dimension(unit), "")
    return _measure(said) if said else Measure()


def _is_money_rate(tokens: Sequence[str], unit: str) -> bool:
    """Whether it is so much money for a time, and no share."""
    return tokens[-1] == "rate" and _dimension(unit) == _MONEY


def full_name(column: str, kind: FieldType | None = None, spelled: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The words of a column's name in full, without its unit; some are short for another word by what the column holds, or by
    what other columns of several words are called.

    >>> full_name("dist_km"), full_name("Avg Temp (C)"), full_name("yr_planted"), full_name("depRet")
    (('distance',), ('average', 'temperature'), ('year', 'planted'), ('deposit', 'returned'))
    >>> full_name("dist", FieldType.KEYWORD), full_name("mow_req", FieldType.BOOLEAN)
    (('district',), ('mow', 'required'))
    """
    words = without_unit(column)[0].split()
    return _expand(words, kind, spelled if len(words) > 1 else None)


def part_words(name: str) -> str:
    """
    >>> part_words("MachineId"), part_words("DEST")
    ('Machine_Id', 'DEST')
    """
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", name)


def unit_of(column: str) -> str:
    """The code of the unit that the name of a column has."""
    return without_unit(column)[1]


def unit_name(code: str) -> str:
    """What a unit is called: "hours" for h; the code where it is none that is known."""
    return next((known[code.casefold()] for known in _UNITS.values() if code.casefold() in known), code)


_MONEY, _CODE = "money", 3  # letters of a currency's code: "eur_bottle", but no "euro_norm"


def without_unit(column: str) -> tuple[str, str]:
    """What a column is called and the unit that its name has besides.

    >>> without_unit("Price (EUR)"), without_unit("fee_eur"), without_unit("g_km"), without_unit("Hours")
    (('price', 'EUR'), ('fee', 'eur'), ('g km', ''), ('hours', ''))
    >>> without_unit("height_m"), without_unit("group_m"), without_unit("temp_min"), without_unit("dur_min")
    (('height', 'm'), ('group m', ''), ('temp min', ''), ('dur', 'min'))
    >>> without_unit("eur_bottle"), without_unit("eur_per_hour")
    (('bottle', 'eur'), ('eur per hour', ''))
    """
    if header := _WITH_UNIT.fullmatch(column.strip()):
        whole = header["name"].lower()
        known = whole in dict(_entries("figures"))  # "runtime", of `RunTime [h]`
        return whole if known else part_words(header["name"]).lower().replace("_", " "), header["unit"]
    *tokens, last = column_name(part_words(column)).split("_")
    dimension = _dimension(last)
    if tokens and dimension and not _PARTS_OF_UNITS & {*tokens}:
        found = _entry_of(_expand(tokens), _entries("figures"))
        marks = _measure(found[1]).marks if found else frozenset()
        if dimension in marks or not (len(last) == 1 or last in _UNCLEAR):
            return " ".join(tokens), last
    if (
        tokens
        and len(tokens[0]) == _CODE
        and _dimension(tokens[0]) == _MONEY
        and not _PARTS_OF_UNITS & {*tokens[1:], last}
    ):
        return " ".join([*tokens[1:], last]), tokens[0]
    return " ".join([*tokens, last]), ""


def _expand(
    tokens: Sequence[str], kind: FieldType | None = None, spelled: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    found, place, short = list[str](), 0, {**_SHORT, **_SHORT_OF.get(kind or "", {}), **(spelled or {})}
    while place < len(tokens):
        two, one = " ".join(tokens[place : place + 2]), tokens[place]
        found += _PAIRS[two].split() if two in _PAIRS else [short.get(one) or _with_vowels(one)]
        place += 2 if two in _PAIRS else 1
    return tuple(found)


@cache
def _with_vowels(short: str) -> str:
    """The one word for a column that has these consonants, or at least begins and ends so; else what is short for nobody knows
    what.

    >>> _with_vowels("hny"), _with_vowels("apy"), _with_vowels("bkpr"), _with_vowels("brd"), _with_vowels("hive")
    ('honey', 'apiary', 'beekeeper', 'brd', 'hive')
    """
    if len(short) < _CODE or not short.isalpha() or {*short[1:]} & {*"aeiou"}:
        return short
    longer = {word: drop_vowels(word) for word in _nouns() if len(word) > len(short)}
    whole = [word for word, bare in longer.items() if bare == short]
    almost = [word for word, bare in longer.items() if word.startswith(short) or lacks_one(short, bare)]
    found = whole if whole and len(short) > _CODE else [*whole, *almost]
    return found[0] if len(found) == 1 else short


@cache
def _nouns() -> frozenset[str]:
    """The words that columns are called by."""
    told = [
        " ".join((*_TABLE[sort], *_TABLE[sort].values())) for sort in ("figures", "called", "flags", "people", "rows")
    ]
    told += [_TABLE["places"]["words"], _TABLE["ends"]["nouns"], " ".join(_SHORT.values())]
    return frozenset(word for word in re.findall("[a-z]+", " ".join(told)) if len(word) > _CODE)


def _dimension(code: str) -> str:
    return next((name for name, known in _UNITS.items() if code.casefold() in known), "")


def _entry_of(tokens: Sequence[str], entries: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """The entry for the longest end of a name, and that end in words."""
    known = dict(entries)
    ends = (tokens[place:] for place in range(len(tokens)))
    return next(((" ".join(end), known["_".join(end)]) for end in ends if "_".join(end) in known), None)


def _codes(tokens: Sequence[str], values: Iterable[str]) -> dict[str, list[str]]:
    """What codes mean, in a column that has such codes."""
    found = dict[str, list[str]]()
    for names, said in _TABLE["codes_of"].items():
        if {*names.split()} & {*tokens}:
            known = dict(each.split("=", 1) for each in said.split("; "))
            found |= {value: _split(known[value]) for value in values if value in known}
    return found


def is_flag(name: str) -> bool:
    """Whether a column of 0 and 1 says that something holds or not, and is no number of things.

    >>> is_flag("default"), is_flag("is_member"), is_flag("children"), is_flag("stop_count"), is_flag("diabetes")
    (True, True, False, False, True)
    """
    first, *_, last = (*full_name(name, FieldType.BOOLEAN), "")[:-1] * 2
    counted = singular(last) != last or last in _TABLE["flag_names"]["counts"].split()
    return first in _TABLE["flag_names"]["before"].split() or last in _TABLE["flags"] or not (counted or unit_of(name))


def _holds(tokens: Sequence[str]) -> dict[str, list[str]]:
    """What a column of yes and no is called where it holds, and where it does not; of something else, with that.

    >>> _holds(("is", "member"))["true"], _holds(("pruning", "required"))["true"][:2], _holds(("wilted",))
    (['member', 'members'], ['pruning required', 'need pruning'], {'true': ['wilted', 'wilt']})
    """
    if len(tokens) > 1 and tokens[0] == "for":
        whole, purpose = " ".join(tokens), " ".join(tokens[1:])
        return {"true": [whole, *([] if row_words(purpose) else [purpose])]}  # "charity concerts", but no "hire"
    begins = len(tokens) > 1 and tokens[0] in _TABLE["flag_names"]["before"].split()
    *others, last = tokens[1:] if begins else tokens
    whole = " ".join((*others, last))
    yes, _, no = _TABLE["flags"].get(last, "").partition("|")
    needs = [f"{word} {' '.join(others)}" for word in _TABLE["flag_names"]["needs"].split()]
    if others and not (yes and whole in _split(yes)):
        needed = last in _TABLE["flag_names"]["needed"].split()
        alike = [f"{' '.join(others)} {each}" for each in _split(yes) if " " not in each and each != last]
        some = ("", "a ", "an ") if last in _TABLE["flag_names"]["having"].split() else ()
        having, lacking = ([f"{lead} {each}{' '.join(others)}" for each in some] for lead in ("with", "without"))
        told = {"true": [whole, *(needs if needed else ()), *alike, *having]}
        return told | ({"false": lacking} if lacking else {})
    verb = [] if yes else [_infinitive(last), *_deeds(last)]
    true = dict.fromkeys(each for each in (whole, *verb, *_split(yes)) if each)
    return {"true": [*true], **({"false": _split(no)} if no else {})}


def _deeds(verb: str) -> list[str]:
    """What is done where a verb with such a prefix holds, and what then was needed.

    >>> _deeds("repaint"), _deeds("rain")
    (['repainted', 'repainting', 're painted', 're painting', 'need repainting', 'need re painting'], [])
    """
    found = re.fullmatch("(de|re)([a-z]{2,}[^d])", verb)
    if found is None:
        return []
    bare = found[2].removesuffix("e")
    done = [f"{before}{bare}{end}" for before in (found[1], f"{found[1]} ") for end in ("ed", "ing")]
    return [*done, *(f"need {each}" for each in done if each.endswith("ing"))]


def _infinitive(participle: str) -> str:
    """
    >>> [_infinitive(each) for each in ("survived", "churned", "shipped", "tried", "passed", "rain")]
    ['survive', 'churn', 'ship', 'try', 'pass', '']
    """
    if not participle.endswith("ed") or len(participle) < _LONGEST_CODE:
        return ""
    bare = participle.removesuffix("ed")
    if bare.endswith("i"):
        return f"{bare[:-1]}y"
    if bare[-1:] == bare[-2:-1] and bare[-1] not in "ls":
        return bare[:-1]
    return f"{bare}e" if re.search("(?:[aiou]t|[vcuzg]|[^s]s|[aiou]r)$", bare) else bare


def _is_place(name: str) -> bool:
    *others, last = full_name(name, FieldType.KEYWORD)
    noun = others[-1] if last == "name" and others else last
    return noun in _TABLE["places"]["words"].split()


def person_of(name: str) -> str:
    """The word of a column's name for a person: "runner", of a `runner_name`.

    >>> person_of("runner_name"), person_of("Keeper"), person_of("town")
    ('runner', 'keeper', '')
    """
    tokens = [each for each in full_name(name, FieldType.KEYWORD) if each != "name"]
    people = (word for each in ("customers", "others", "workers") for word in _TABLE["people"][each].split())
    return tokens[-1] if tokens and tokens[-1] in {*people} else ""


def row_words(noun: str) -> list[str]:
    """What a row is called besides.

    >>> row_words("hire")[:2], row_words("banana")
    (['rental', 'booking'], [])
    """
    return [
        word for line in _TABLE["rows"]["words"].splitlines() if line.split()[:1] == [noun] for word in line.split()[1:]
    ]


def _ask_for_people(called: Mapping[str, ColumnWords], kinds: Mapping[str, FieldType | None]) -> None:
    """Marks the column that "who" asks for: customers before others, and those who work there where there are no others."""
    found = {name: person_of(name) for name, kind in kinds.items() if kind is FieldType.KEYWORD}
    done = [name for name, role in found.items() if not role and full_name(name)[-1:] == ("by",)]
    for name in done:
        called[name].weak += _TABLE["people"]["doers"].split()
    for name, role in found.items():
        paying = role == "owner" and any(_MONEY in each.marks for each in called.values())
        called[name].words += [role, *(["customer"] if paying else [])] if role else []
    for sort in ("customers", "others", "workers"):
        names = [name for name, role in found.items() if role in _TABLE["people"][sort].split()]
        if names:
            called[names[0]].asked = "who" if len(names) == 1 else ""
            return
    if len(done) == 1:
        called[done[0]].asked = "who"


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _measure(said: str) -> Measure:
    words, high, low, marks, more = (*(each.strip() for each in said.split("|")), "")[:5]
    return Measure(
        tuple(_split(words)), tuple(_split(high)), tuple(_split(low)), frozenset({*marks.split(), *more.split()})
    )


@cache
def _entries(sort: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, said) for names, said in _TABLE[sort].items() for name in names.split())
