"""Proposes for index.toml how a table is read, and what its rows are called in questions.

Types and the decimal sign are guessed from all of its values, units and what adds up from names too (proposals.toml). A key,
a date, a title, a sentence and a kind of record are chosen. What is not sure is a comment.
"""

import json
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, count, islice, zip_longest
from pathlib import Path
from typing import Literal

from jinja2 import StrictUndefined, Template
from msgspec import Struct

from rag_app.documents.columns import (
    GOOD,
    NUMBER_TYPES,
    PAYMENT,
    SUM,
    ColumnWords,
    call_columns,
    full_name,
    is_flag,
    part_words,
    person_of,
    row_words,
    unit_name,
    without_end,
    without_unit,
)
from rag_app.documents.documents import Document
from rag_app.documents.ingest import offered_files
from rag_app.documents.metadata import detect_language
from rag_app.documents.readers.formats import attempt, format_of
from rag_app.documents.readers.rows import says_nothing, typed_value
from rag_app.documents.reading import File, ReaderPool, is_utf8
from rag_app.domain import FieldType, RowMapping, RowsRule, column_name, drop_vowels, read_table
from rag_app.retrieval.index import RESERVED_FIELDS, IndexSpec
from rag_app.retrieval.text import plural, singular

_TABLE: Mapping[str, Mapping[str, str]] = read_table(__file__)
_GUESSED_TYPES = (FieldType.INTEGER, FieldType.NUMBER, FieldType.TIME, FieldType.BOOLEAN)
_FORMATS = (
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%Y/%m/%d",
    "%d %B %Y",
    "%B %d, %Y",
    "%d %b %Y",
    "%b %d %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
)
_WITH_TIME = tuple(f"{each} {time}" for each in _FORMATS for time in ("%H:%M:%S", "%H:%M"))
_CLOCK = re.compile(r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?")
_MOST_ROWS = 100_000  # of a table that are looked at
_LONGEST_KEYWORD = 100  # characters; a column with a longer value is text
_FIELD = re.compile("[a-z][a-z0-9_]{0,30}")
# Also `Rechnungsnr`: the noun before an s is a singular.
_NAMES_A_ROW = re.compile(
    "(?:^|_)(?:id|key|no|nr|number|sku|code|uuid|nummer|ref|reference)$|(?<=[a-z]{3})s(?:nr|nummer)$"
)
_SIGN = re.compile("[€£$%]")
_ENGLISH = "en"
_IN_A_SAMPLE = 20  # values of a column that the language is told by
_PLURALS = ("e", "en", "es", "n", "nen", "x")  # endings besides s: of a file `rechnungen` with a key `Rechnungsnr`
_MOST_STATES = 12  # values of a column that says how far a row has come
_FACTS = 2  # of a person, that say that rows are of people
_LONG = 5  # letters of a word that is also found in longer ones
Decimal = Literal[".", ","]
_DECIMALS: tuple[Decimal, ...] = (".", ",")
Values = Mapping[str, Counter[str]]
"""The values of each column, each with how often it occurs."""


class _Column(Struct, frozen=True):
    """What the values of a column have in common. `formats` are the notations of dates that fit all of them.

    `kind` is None for free text, which is searched and not filtered. `binary`: they are 0 and 1. `cents`: one has two decimals. `sign` is the one that all
    values have, of a currency or %.
    """

    kind: FieldType | None
    binary: bool
    formats: list[str]
    sign: str
    filled: int
    distinct: int
    longest: int
    cents: bool


class _Nouns(Struct, frozen=True):
    """What a row is called in declarations and by people, and what several are called. `foreign`: not as in English.

    `avoided` is what it would be called if no column of figures were, `others` are what it is called besides.
    """

    name: str = "row"
    one: str = "row"
    several: str = "rows"
    foreign: bool = False
    avoided: str = ""
    others: tuple[str, ...] = ()


def _describe_column(values: Counter[str], decimal: Decimal) -> _Column:
    formats = [
        each
        for each in ("", *_FORMATS, *_WITH_TIME)
        if _fit(FieldType.TIME, values, RowsRule(date_formats=(each,) if each else ()))
    ]
    fitting = (
        kind
        for kind in _GUESSED_TYPES
        if (formats if kind is FieldType.TIME else _fit(kind, values, RowsRule(decimal=decimal)))
    )
    longest = max(map(len, values))
    kind = next(fitting, FieldType.KEYWORD if longest <= _LONGEST_KEYWORD else None)
    signs = {"".join(_SIGN.findall(value)) for value in values}
    binary = {*values} == {"0", "1"}
    cents = any(map(re.compile(rf"\{decimal}\d\d\D*$").search, values))
    sign = signs.pop() if len(signs) == 1 else ""
    return _Column(kind, binary, formats, sign, values.total(), len(values), longest, cents)


def _decimal(columns: Values) -> tuple[Decimal, str]:
    """The sign by which more columns are numbers, and a value that would be another number by the other sign, if all of
    its column would be numbers."""
    numbers: Mapping[Decimal, set[str]] = {
        sign: {name for name, values in columns.items() if _fit(FieldType.NUMBER, values, RowsRule(decimal=sign))}
        for sign in (".", ",")
    }
    with_comma = {name for name in numbers[","] - numbers["."] if any("," in value for value in columns[name])}
    decimal: Decimal = "," if len(with_comma) > len(numbers["."] - numbers[","]) else "."
    either = numbers["."] & numbers[","] if not numbers["."] ^ numbers[","] else set[str]()
    marked = (value for name in columns if name in either for value in columns[name] if {".", ","} & {*value})
    return decimal, next(marked, "")


def propose(
    readers: ReaderPool, paths: Iterable[Path], exclude: Sequence[str], spec: IndexSpec | None = None
) -> Iterator[str]:
    """An index.toml for each table below `paths` that no rule of the index matches."""
    rules = spec.rows if spec else ()
    files = [
        File(path, path.name, "", path.parent, RowMapping((RowsRule(),), {}, as_written=True))
        for _, path in offered_files(paths, exclude)
        if is_utf8(path.name)
        and (known := format_of(path.name))
        and known.rows
        and not any(rule.matches(path.as_posix()) for rule in rules)
    ]
    with closing(readers.read_all(files)) as reading:
        for file, documents in reading:
            columns = defaultdict[str, Counter[str]](Counter)
            rows = 0
            for document in documents:
                if isinstance(document, Document) and document.row is not None:
                    rows += 1
                    for name, value in document.metadata.items():
                        if text := str(value):
                            columns[name][text] += 1
                if rows == _MOST_ROWS:
                    break
            if rows:
                yield _proposal(file.path.name, rows, columns)


def _fit(kind: FieldType, values: Iterable[str], rule: RowsRule) -> bool:
    return all(attempt(partial(typed_value, kind, value, rule)) is not None for value in values)


def _without_marks(values: Counter[str]) -> Counter[str]:
    """The values without those that say that there is none, "NA", where the others are all of a type."""
    bare = Counter({value: number for value, number in values.items() if not says_nothing(value)})
    kinds = {_describe_column(bare, sign).kind for sign in _DECIMALS} if bare and len(bare) < len(values) else set()
    return bare if kinds & {*_GUESSED_TYPES} else values


def _proposal(file: str, rows: int, values: Values) -> str:
    values = {name: _without_marks(each) for name, each in values.items()}
    decimal, ambiguous = _decimal(values)
    columns = {name: _describe_column(each, decimal) for name, each in values.items()}
    language = _language(values)
    kinds = {name: _kind_of(name, column) for name, column in columns.items()}
    key = _key(rows, columns)
    if key is not None and kinds[key] is FieldType.INTEGER and _NAMES_A_ROW.search(column_name(key)):
        kinds[key] = FieldType.KEYWORD  # no answer adds such numbers up or writes 1,016
    times = {name: columns[name].formats for name, kind in kinds.items() if kind is FieldType.TIME}
    date = next(iter(times), None)
    clock = _clock_beside(date, values)
    fields = _field_names(name for name, kind in kinds.items() if kind is not None and name not in (date, clock))
    numbers = {
        name
        for name in fields
        if kinds[name] in NUMBER_TYPES and (name == key or _NAMES_A_ROW.search(column_name(name)))
    }
    called = call_columns({name: kinds[name] for name in fields if name not in numbers}, values, date is not None)
    nouns = _nouns(file, key, language, {name: kinds[name] for name in columns})
    if key in called and (ending := full_name(key)[-1]) in _TABLE["words"]["keys"].split():
        called[key].words = [*dict.fromkeys((*called[key].words, f"{nouns.one} {ending}", ending, f"{ending}s"))]
    _name_by_file(called, file, language)
    _leave_to_rows(called, nouns)
    said = {name: _declare_words(name, columns[name], each, kinds[name], date) for name, each in called.items()}
    _set_apart_void(said, {name: values[name] for name in called if kinds[name] is FieldType.KEYWORD})
    figures = {name: each for name, each in said.items() if kinds[name] in NUMBER_TYPES}
    measured = [name for name in figures if not _says_when_or_where(name)]
    person = _person(columns)
    formats = {written[0] for written in times.values()} - {""}
    renamed = {name: field for name, field in fields.items() if field != column_name(name)}
    template: Template = Template(
        Path(__file__).with_name("proposal.txt").read_text("utf-8"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return template.render(
        file=_toml(file),
        shown=_toml(file)[1:-1],
        rows=f"{rows:,}",
        fields=[(field, *_declaration(name, kinds[name], said.get(name))) for name, field in fields.items()],
        decimal=decimal,
        ambiguous=ambiguous,
        language=language,
        by=next((fields[name] for name in sorted(measured, key=lambda name: "adds_up" not in figures[name])), None),
        by_is_sure=len(measured) == 1 and "best" in figures[measured[0]],
        key=key and _toml(key),
        date=date and (f"[{_toml(date)}, {_toml(clock)}]" if clock else _toml(date)),
        date_column=date,
        formats=formats and json.dumps(sorted(formats)),
        times=times,
        renamed={_toml(name): _toml(field) for name, field in renamed.items()},
        title=_toml(person or _title(key, date, {name: each for name, each in columns.items() if name != clock})),
        text=_toml(_sentence(columns)),
        nouns=nouns,
        words=_phrases(_words_of_rows(nouns, person, date, rows, columns, called, values)),
    )


def _leave_to_rows(called: Mapping[str, ColumnWords], row: _Nouns) -> None:
    """Takes from columns what a row is called by: "find" of a `find_id`, and "object" of an `object_type`."""
    nouns = {row.one, *row.others, *(word for noun in (row.one, *row.others) for word in row_words(noun))}
    for name, each in called.items():
        kept = [word for word in each.words if word == each.name or word not in nouns]
        if kept != each.words:
            each.words = [] if kept == [column_name(name).replace("_", " ")] else kept


def _name_by_file(called: Mapping[str, ColumnWords], file: str, language: str) -> None:
    """Calls columns also by the words of the file that their names have in short: "hive" of `hv_no` in `hive_inspections.csv`."""
    told = [_singular(word, language) for word in _words_of_file(file)]
    claimed = {word for each in called.values() for word in each.words}
    for each in called.values():
        short = each.name.split()
        whole = [next((word for word in told if _abbreviates(part, word)), part) for part in short]
        if whole != short:
            each.words += [word for word in (" ".join(whole), *without_end(whole)) if word not in claimed]


def _says_when_or_where(name: str) -> bool:
    """Whether a column of figures says when or where something is, and measures nothing: a year, a longitude."""
    return not {*_TABLE["words"]["when_or_where"].split()}.isdisjoint(_fold(name).replace("_", " ").split())


def _person(columns: Iterable[str]) -> str:
    """The first and the last name of the person that a row is of, as a template; empty where it has no columns of both."""
    named = {column_name(name): name for name in columns}
    chosen = [
        next((named[each] for each in _TABLE["words"][sort].split() if each in named), None)
        for sort in ("first_names", "last_names")
    ]
    return "" if None in chosen else " ".join(f"{{{name}}}" for name in chosen)


def _words_of_rows(
    row: _Nouns,
    person: str,
    date: str | None,
    rows: int,
    columns: Mapping[str, _Column],
    called: Mapping[str, ColumnWords],
    values: Values,
) -> list[str]:
    """What a row is called: its noun, a person, what happened on its date ("death" of a `death_date`), what has such a figure
    ("harvest", of a `yield`), and what each of these is called besides: a "check" is a visit.

    Rows are of people where no two are of the same one, or where they tell what is of people and of nobody by name.
    What is a state or a sort of some rows calls none: "delivered", beside a status "delivered".
    """
    happened, measured = _TABLE["events"], _TABLE["measured"]
    dated = full_name(date or "", FieldType.TIME)
    events = [happened.get(each, each) for each in dated if each in happened or each.endswith("ed")]
    having = [measured[name] for name in map(column_name, columns) if name in measured]
    unique = [name for name, each in columns.items() if each.filled == rows == each.distinct]
    persons, things = [*filter(None, map(person_of, unique))], [*filter(None, map(_thing_of, unique[:1]))]
    alone = [*persons, *things]
    told = sum(not {*full_name(name)}.isdisjoint(_TABLE["words"]["of_people"].split()) for name in columns)
    themselves = told >= _FACTS and not any(map(person_of, columns))
    people = ["person", "people"] if person or persons or themselves else []
    people += _TABLE["persons"].get(row.one, "").split() if themselves else []
    others = [*people, *" ".join([*events, *having]).split(), *alone]
    sold = all(any(mark in each.marks for each in called.values()) for mark in (PAYMENT, SUM))
    others += ["purchase", "bought"] if sold else []
    noun = row.one
    nouns = [
        noun,
        *others,
        *row.others,
        *(word for each in (noun, *dated, *alone, *row.others) for word in row_words(each)),
    ]
    states = {value.casefold() for each in values.values() if len(each) <= _MOST_STATES for value in each}
    words = {word for each in called.values() for word in (each.name, *chain(*each.phrases()))}
    taken = {*map(column_name, columns), *words, *states} - {*alone}
    return [*dict.fromkeys((noun, *(each for each in nouns if each not in taken)))]


def _thing_of(name: str) -> str:
    """The noun of a column that is called as rows of tables are: "flight", of `FLT`.

    >>> _thing_of("FLT"), _thing_of("Receipt Number"), _thing_of("site")
    ('flight', '', '')
    """
    noun = " ".join(full_name(name, FieldType.KEYWORD))
    return noun if row_words(noun) else ""


def _clock_beside(date: str | None, values: Values) -> str | None:
    """The column of times of day that belong to the date: the first one called so, with nothing else in it."""
    names = {*_TABLE["words"]["clock"].split()}
    times = (
        name
        for name, each in values.items()
        if names & {*_fold(name).replace("_", " ").split()} and all(map(_CLOCK.fullmatch, each))
    )
    return next(times, None) if date is not None else None


def _declare_words(
    name: str, column: _Column, called: ColumnWords, kind: FieldType | None, date: str | None
) -> dict[str, str]:
    """What is declared of a column besides its type: what it is called, its unit, whether it adds up, what its ends are.

    A column of figures that is paid for each row of a table with dates adds up.
    """
    said = {"words": _phrases(called.words)} if called.words else {}
    if kind in NUMBER_TYPES:
        said |= _declare_figure(name, column, called, date)
    said |= {end: _phrases(words) for end, words in (("high", called.high), ("low", called.low)) if words}
    said |= {f"values.{_key_of(value)}": _phrases(words) for value, words in called.values.items() if words}
    return said | ({"asked": _toml(called.asked)} if called.asked else {})


def _set_apart_void(said: Mapping[str, dict[str, str]], values: Values) -> None:
    """Declares which values of a column say that a row came to nothing, and totals that leave these rows out.

    Not where most rows have such a value: what is mostly returned was lent.
    """
    words, found = {*_TABLE["words"]["void"].split()}, False
    for name, each in values.items():
        void = [value for value in each if {*re.findall("[a-z]+", _fold(value))} & words]
        if void and len(each) <= _MOST_STATES and 2 * sum(each[value] for value in void) < each.total():
            said[name]["void"], found = _phrases(void), True
    for declared in said.values() if found else ():
        if "totals" in declared:
            declared["earned"] = declared.pop("totals")


def _phrases(words: Sequence[str]) -> str:
    return json.dumps([*words], ensure_ascii=False)


def _key_of(value: str) -> str:
    """A value as the key of a table in TOML."""
    return value if re.fullmatch("[A-Za-z0-9_-]+", value) else _toml(value)


def _kind_of(name: str, column: _Column) -> FieldType | None:
    """Money is a number, though no value has pence yet. 0 and 1 are no and yes, where that is no number of things."""
    if column.binary and is_flag(name):
        return FieldType.BOOLEAN
    tokens, table = _fold(without_unit(name)[0]).split(), _TABLE
    units = {unit_name(unit) for unit in (column.sign, without_unit(name)[1])}
    if column.kind is FieldType.INTEGER and tokens[-1:] and tokens[-1] in table["words"]["numbered"].split():
        return FieldType.KEYWORD
    money = _end_of(tokens, table["words"]["money"].split()) or units & {*table["words"]["currencies"].split()}
    return FieldType.NUMBER if column.kind is FieldType.INTEGER and money else column.kind


def _declaration(name: str, kind: FieldType | None, said: Mapping[str, str] | None) -> tuple[str, str]:
    """A column's type with what is sure of it, and what a person may add: no total of an age or a score."""
    figures = kind in NUMBER_TYPES
    if said is None or not (said or figures):
        return f'"{kind}"', ""
    sure, more = {"type": f'"{kind}"', **said}, dict[str, str]()
    if figures or kind is FieldType.BOOLEAN:
        more = dict(_TABLE["figure" if figures else "boolean"])
    if (
        "adds_up" in said
        and "earned" not in said
        and said.get("unit", "").strip('"') in _TABLE["words"]["currencies"].split()
    ):
        more["totals"] = _TABLE["words"]["totals"]
    if _end_of(_fold(without_unit(name)[0]).split(), _TABLE["words"]["no_total"].split()):
        more = {key: value for key, value in more.items() if key not in ("adds_up", "totals")}
    return f"{{ {_entries(sure)} }}", _entries({key: value for key, value in more.items() if key not in sure})


def _entries(said: Mapping[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in said.items())


def _declare_figure(name: str, column: _Column, called: ColumnWords, date: str | None) -> dict[str, str]:
    """The unit of a column's figures, by its name and the sign of its values, and whether they make a total."""
    words, said = _TABLE["words"], dict[str, str]()
    named, written = without_unit(name)
    tokens = _fold(named).split()
    measures = "" if {*words["rates"].split()} & {*tokens} else _end_of(tokens, _TABLE["units"])
    units = {unit_name(each) for each in (written, column.sign, _TABLE["units"].get(measures)) if each}
    if len(units) == 1:
        said["unit"] = _toml(*units)
    if column.cents and units & {*words["currencies"].split()}:
        said["decimals"] = "2"
    single = any(
        word == token or (len(word) >= _LONG and word in token)
        for word in words["one_by_one"].split()
        for token in tokens
    )
    adds_up = SUM in called.marks or _end_of(tokens, words["adds_up"].split())
    paid = PAYMENT in called.marks and date is not None and column.kind in NUMBER_TYPES
    if "percent" not in units and (paid or adds_up) and not single:
        said["adds_up"] = "true"
    if paid and "adds_up" in said:
        said["totals"] = words["totals"]
    if GOOD in called.marks or (tokens and tokens[-1] in words["good"].split()):
        said["best"] = '"high"'
    return said


def _end_of(tokens: Sequence[str], words: Iterable[str]) -> str:
    """The word that the last token is, or ends with."""
    last = tokens[-1] if tokens else ""
    return next((word for word in words if last == word or (len(word) >= _LONG and last.endswith(word))), "")


def _fold(text: str) -> str:
    """Without accents and capitals, in words of ASCII."""
    return "".join(each for each in unicodedata.normalize("NFKD", text.casefold()) if each.isascii())


def _language(columns: Values) -> str:
    rows = zip_longest(
        *([f"{name}: {value}" for value in islice(each, _IN_A_SAMPLE)] for name, each in columns.items())
    )
    return detect_language("\n".join("; ".join(filter(None, row)) for row in rows), _ENGLISH)


def _nouns(file: str, key: str | None, language: str, kinds: Mapping[str, FieldType | None]) -> _Nouns:
    """`order`, for a key called `order_id` or a file `orders-2026.csv`; not what a column of figures is called.

    A key noun that is written short is that of the file's words that it abbreviates: `tr_id` of `street_trees.csv`.
    """
    told = _words_of_file(file)
    figures = {_singular(without_unit(name)[0], language) for name, kind in kinds.items() if kind in NUMBER_TYPES}
    column = column_name(part_words(key or ""))
    by_key = _NAMES_A_ROW.sub("", column)
    named = by_key if by_key != column else ""
    whole = next((each for each in reversed(told) if _abbreviates(named, each)), "")
    flags = {column_name(name) for name, kind in kinds.items() if kind is FieldType.BOOLEAN}
    plain = [each for each in told if {each, _singular(each, language)}.isdisjoint(figures | flags)]
    in_file = whole or (_head(plain or told, language) if told else "")
    written_out = named if named in (_singular(each, language) for each in told) else " ".join(full_name(named))
    noun = avoided = _singular(in_file if whole or not named else written_out, language)
    if noun in figures:
        noun = _singular(column, language) if key and by_key == column and kinds[key] is FieldType.KEYWORD else ""
    else:
        avoided = ""
    name = _fold(noun).replace(" ", "_")
    if not _FIELD.fullmatch(name):
        return _Nouns(avoided=avoided)
    of_file = noun == _singular(in_file, language) or in_file.startswith(noun)
    several = in_file if of_file and (in_file != noun or language != _ENGLISH) else plural(noun)
    foreign = several == in_file and (language != _ENGLISH or several.removeprefix(noun) in _PLURALS)
    before = told[: told.index(in_file)] if of_file and in_file in told else []
    longer = [" ".join((*before, noun))] if before else []
    kept = [_singular(each, language) for each in _letters_of(file) if each in _TABLE["words"]["collections"].split()]
    in_words = _singular(_head(plain, language), language) if plain and named and not of_file else ""
    others = tuple(each for each in (*longer, *kept, in_words) if each not in ("", noun))
    return _Nouns(name, noun.replace("_", " "), several.replace("_", " "), foreign, avoided, others)


def _letters_of(file: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", part_words(Path(file).stem).lower())


def _words_of_file(file: str) -> list[str]:
    """The telling words of a file's name, all of them where none tells anything.

    >>> _words_of_file("loan_default_sample.csv"), _words_of_file("hike_log_2024.csv"), _words_of_file("data.csv")
    (['loan', 'default'], ['hike'], ['data'])
    """
    words, generic = _letters_of(file), {*_TABLE["words"]["generic"].split(), *_TABLE["words"]["collections"].split()}
    return [each for each in words if each not in generic and len(each) > 1] or words[-1:]


def _head(words: Sequence[str], language: str) -> str:
    """The last plural of a file's name, else its last word: "employees" of `employees_berlin`."""
    several = [each for each in words if _singular(each, language) != each]
    return [*words, *several][-1]


def _abbreviates(short: str, word: str) -> bool:
    """Whether a word is written short so: it begins alike, and has all of these letters in this order.

    >>> _abbreviates("tr", "trees"), _abbreviates("appt", "appointments"), _abbreviates("tree", "trees"), _abbreviates("id", "trees")
    (True, True, False, False)
    >>> _abbreviates("tnk", "tank"), _abbreviates("try", "try")
    (True, False)
    """
    if len(short) > 1 and drop_vowels(word) == short != word:
        return True
    letters = iter(word)
    most = len(word) // 2 if word.startswith(short) else len(word) - 2  # a singular is no abbreviation
    return 1 < len(short) <= most and word[0] == short[0] and all(each in letters for each in short)


def _singular(noun: str, language: str) -> str:
    """
    >>> _singular("orders", "en"), _singular("movies", "en"), _singular("boxes", "en"), _singular("fiches", "fr")
    ('order', 'movie', 'box', 'fiche')
    """
    if language == _ENGLISH:
        return singular(noun)
    return noun.removesuffix("s") if not noun.endswith("ss") else noun


def _key(rows: int, columns: Mapping[str, _Column]) -> str | None:
    """A column without missing or repeated values: one named like a key, or else the first that is no measure."""
    unique = [name for name, column in columns.items() if column.filled == rows == column.distinct]
    called = [name for name in unique if _NAMES_A_ROW.search(column_name(name))]
    first = next(iter(columns))
    short = [
        name
        for name in unique
        if columns[name].longest <= _LONGEST_KEYWORD
        and (columns[name].kind not in NUMBER_TYPES or (name == first and not _measures(name, columns)))
    ]
    return next(iter([*called, *short]), None)


def _measures(name: str, columns: Mapping[str, _Column]) -> bool:
    """Whether a column of figures is measured, by its type, its unit or its name: "weight", and not a year or a number."""
    said = _declare_figure(name, columns[name], ColumnWords(name), None)
    return columns[name].kind is FieldType.NUMBER or bool(said) or _kind_of(name, columns[name]) is FieldType.NUMBER


def _title(key: str | None, date: str | None, columns: Mapping[str, _Column]) -> str:
    texts = [name for name, column in columns.items() if column.kind is FieldType.KEYWORD]
    called = [name for name in texts if _fold(name) in _TABLE["words"]["names"].split()]
    words = iter([*called, *(name for name in texts if name != key), *texts])
    chosen = [name for name in (next(words, None), date, key) if name is not None]
    return ", ".join(f"{{{name}}}" for name in dict.fromkeys(chosen)) or f"{{{next(iter(columns))}}}"


def _sentence(columns: Iterable[str]) -> str:
    """A sentence of each column with its name; empty cells are omitted."""
    first, *others = (f"{name.replace('_', ' ')}: {{{name}}}" for name in columns)
    return first + "".join(f"[; {each}]" for each in others) + "."


def _field_names(columns: Iterable[str]) -> dict[str, str]:
    """A name for the field of each column, no name twice."""
    fields: dict[str, str] = {}
    for column in columns:
        name = re.sub("[^a-z0-9_]", "", _fold(column_name(column)))[:24]
        if not _FIELD.fullmatch(name) or name in RESERVED_FIELDS or name in ("title", "lang", "uri"):
            name = f"record_{name}".rstrip("_")
        numbered = (f"{name}_{number}" for number in count(2))
        fields[column] = next(each for each in chain([name], numbered) if each not in fields.values())
    return fields


def _toml(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
