"""Tables as they come from a file: fields with the words that a proposed index has for the headers of columns."""

import random
import re
from dataclasses import replace
from functools import cache

from rag_app.documents.columns import call_columns, row_words, without_unit
from rag_app.domain import FieldType, column_name
from tests.records.parsing.schemas import NUMBERS, Asked, Field, Schema

_LONG, _SHORT = 5, 4
"""Letters of a word that headers shorten, and of what is left of it."""
STYLES = ("snake", "title", "camel", "short")


def propose(asked: Asked, form: int) -> Asked:
    """The question over the same table with the words that would be proposed for its columns, in one of some forms."""
    schema, names = _proposed(asked.schema, form)
    return Asked(asked.text, asked.query and asked.query.rename(names), schema)


@cache
def _proposed(schema: Schema, form: int) -> tuple[Schema, dict[str, str]]:
    draw = random.Random(f"{schema.name} {form}")
    style = draw.choice(STYLES)
    headers, taken = dict[str, str](), set[str]()
    for field in schema.fields.values():
        header = field.header if field.header and (form or draw.random() < 0.9) else _header(field, style, draw)
        while column_name(header) in taken:
            header = f"{header} 2"
        taken.add(column_name(header))
        headers[field.name] = header
    called = call_columns(
        {headers[field.name]: FieldType(field.type) for field in schema.fields.values()},
        {headers[field.name]: field.values or ("1",) for field in schema.fields.values()},
        True,
    )
    fields, names = dict[str, Field](), dict[str, str]()
    for field in schema.fields.values():
        header = headers[field.name]
        words, name = called[header], column_name(header)
        _, unit = without_unit(header)
        meant = words.values.get("true", []) if field.type == "boolean" else []
        said = {value: tuple(told) for value, told in words.values.items() if value in field.values}
        names[field.name] = name
        fields[name] = replace(
            field,
            name=name,
            words=(*words.words, *meant) or (name.replace("_", " "),),
            unit=field.unit if unit else "",
            high=tuple(words.high),
            low=tuple(words.low),
            said=tuple(said.items()),
        )
    kinds = {
        name: (told if form else tuple(dict.fromkeys((told[0], *row_words(told[0])))))
        for name, told in schema.kinds.items()
    }
    return replace(schema, kinds=kinds, fields=fields), names


def _header(field: Field, style: str, draw: random.Random) -> str:
    words = field.name.replace("_", " ") if draw.random() < 0.6 else field.words[0]
    tokens: list[str] = re.findall(r"[a-z]+|\d+", words.lower())[:3] or [field.name]
    unit = field.unit if field.type in NUMBERS and len(field.unit) < 4 and draw.random() < 0.5 else ""
    if style == "title":
        return " ".join(tokens).capitalize() + (f" ({unit})" if unit else "")
    if style == "camel":
        return tokens[0] + "".join(token.capitalize() for token in tokens[1:])
    if style == "short":
        tokens = [_shorten(token, draw) for token in tokens]
    return "_".join([*tokens, *([unit] if unit and unit.isalpha() else [])])


def _shorten(word: str, draw: random.Random) -> str:
    if len(word) < _LONG or draw.random() < 0.35:
        return word
    if draw.random() < 0.5:
        return word[: draw.randint(3, 4)]
    bare: str = word[0] + re.sub("[aeiouy]", "", word[1:])
    single: str = re.sub(r"(.)\1", r"\1", bare)
    return (single if len(single) > 2 else word)[:_SHORT]
