"""Which tables have a source in each row, and what their columns are: an entry of `[[rows]]` in index.toml."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import PurePath
from typing import Literal

from rag_app.domain.filters import FieldType

_BETWEEN_WORDS = re.compile(r"\W+")


def drop_vowels(word: str) -> str:
    """A word without the vowels behind its first letter, as many columns are called.

    >>> drop_vowels("frame"), drop_vowels("apiary")
    ('frm', 'apry')
    """
    return word[:1] + re.sub("[aeiou]", "", word[1:])


def lacks_one(short: str, word: str) -> bool:
    """Whether the first is the second without one letter inside.

    >>> lacks_one("bkpr", "bkkpr"), lacks_one("kpr", "bkpr")
    (True, False)
    """
    return any(word[:place] + word[place + 1 :] == short for place in range(1, len(word) - 1))


def column_name(written: str) -> str:
    """A column's header as rules name it: lower case, words joined by underscores.

    >>> column_name("Price (GBP)"), column_name("customer_id"), column_name(" # ")
    ('price_gbp', 'customer_id', '#')
    """
    name = written.strip().casefold()
    return _BETWEEN_WORDS.sub("_", name).strip("_") or name


@dataclass(frozen=True, slots=True)
class RowsRule:
    """How the rows of some tables become sources.

    `files` and `sheets` are patterns of `fnmatch`, for a file's name or path and a sheet's name; no sheets: all of them.
    `key`: the columns that tell a row from the others of its file; without them a row's number does. `id` is a template
    of the row's name in the whole index, wherever its file is. `columns` maps columns to fields; a column that is named
    as a field needs no entry. `date`: the column, or date and time, of the row's date. `date_formats` are those of
    `strptime` that dates may have besides ISO 8601; `decimal` is the sign before decimals. `title` and `text` are
    templates: `{column}` stands for a cell, `{column:%d %B}` for a date in it, and what is in `[brackets]` is left out
    where a column in it is empty. Columns are named as `column_name` does.

    >>> RowsRule(files=("bookings-*.csv",)).matches("2026/bookings-01.csv")
    True
    """

    files: tuple[str, ...] = ("*",)
    sheets: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    id: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    date: tuple[str, ...] = ()
    date_formats: tuple[str, ...] = ()
    decimal: Literal[".", ","] = "."
    source_type: str | None = None
    title: str = ""
    text: str = ""

    def matches(self, path: str) -> bool:
        """Whether it is for this file, by name or path."""
        return any(fnmatch(PurePath(path).name, pattern) or fnmatch(path, pattern) for pattern in self.files)

    def undeclared_columns(self, fields: Iterable[str]) -> list[str]:
        """What its columns are mapped to and these fields do not have."""
        return sorted({*self.columns.values()} - {*fields, "lang", "uri", "date"})

    def reads_sheet(self, name: str) -> bool:
        return not self.sheets or any(fnmatch(name, pattern) for pattern in self.sheets)


_LISTS = ("files", "sheets", "key", "date", "date_formats")


def rules_as_written(value: object) -> object:
    """`[rows]` for one rule, or `[[rows]]` for several; and a text where a list would have one item.

    >>> rules_as_written({"files": "a.csv", "key": ["no"]})
    [{'files': ['a.csv'], 'key': ['no']}]
    """
    rules = [value] if isinstance(value, Mapping) else value
    if not isinstance(rules, list | tuple):
        return rules
    return [
        {key: [said] if key in _LISTS and isinstance(said, str) else said for key, said in rule.items()}
        if isinstance(rule, Mapping)
        else rule
        for rule in rules
    ]


@dataclass(frozen=True, slots=True)
class RowMapping:
    """The rules for one file with the types of its index's fields: all that a reader needs to know.

    The first rule whose `sheets` name a sheet is for its rows. `as_written`: cells are kept as they are, for somebody
    who wants to know what the columns hold.
    """

    rules: tuple[RowsRule, ...]
    fields: Mapping[str, FieldType]
    as_written: bool = False


def row_mapping(
    rules: Iterable[RowsRule], fields: Mapping[str, FieldType], path: str, asked: RowsRule | None = None
) -> RowMapping | None:
    """What the rows of a file become, by the rules that are for it, or as was `asked`; None: it is one source.

    A rule that was asked for without saying anything leaves the index's own in force.
    """
    own = tuple(rule for rule in rules if rule.matches(path))
    if asked is not None and (not own or asked != RowsRule()):
        own = (asked,)
    return RowMapping(own, fields) if own else None
