"""Other questions of one: with other values, words, figures and slips of the pen."""

import random
import re
from dataclasses import replace

from rag_app.answering.records.wording import figure
from tests.records.parsing.items import overlaps, period_in
from tests.records.parsing.schemas import Asked, Field

FILLERS = (
    "please",
    "hi,",
    "hello, ",
    "hey",
    "can you tell me",
    "could you tell me",
    "tell me",
    "i need to know",
    "quick question:",
    "just wondering,",
    "do you know",
    "show me",
    "I'd like to know",
    "so,",
    "ok,",
)
TIMES = (
    "last week",
    "this month",
    "in March",
    "since May",
    "yesterday",
    "today",
    "this week",
    "last year",
    "in 2025",
    "last month",
    "in January",
    "tomorrow",
)
UNSAID = (
    "because of the weather",
    "who complained",
    "that were refunded twice",
    "paid by cheque",
    "before ten in the morning",
    "for the second time",
    "with a discount",
    "by mistake",
    "and did not come back",
    "on the phone",
    "with wifi",
    "for somebody else",
    "than expected",
    "per hour",
    "in percent",
    "at the wrong address",
    "near the station",
    "that nobody likes",
    "made of oak",
    "after a reminder",
    "and also something else",
    "when it rains",
    "as a share of all",
    "more than the average",
)
PEOPLE = tuple(
    f"{one} {other}"
    for one in [
        "Anna",
        "Tom",
        "Ines",
        "Omar",
        "Lea",
        "Ravi",
        "Kofi",
        "Mara",
        "Hugo",
        "Nina",
        "Sven",
        "Ada",
        "Joe",
        "Yuki",
        "Pia",
        "Emil",
        "Rosa",
        "Max",
        "Elif",
        "Ben",
        "Ida",
        "Luca",
        "Zoe",
        "Amir",
    ]
    for other in [
        "Wolf",
        "Reed",
        "Prado",
        "Haddad",
        "Moreau",
        "Patel",
        "Mensah",
        "Lind",
        "Castro",
        "Berg",
        "Stone",
        "Novak",
        "Rossi",
        "Sato",
        "Kaya",
        "Ode",
        "Kim",
        "Clark",
        "Silva",
        "Ruiz",
    ]
)


def vary(asked: Asked, draw: random.Random, pool: dict[str, list[Field]]) -> Asked:
    """The same question as others would ask it, over a table that may be called otherwise."""
    for change, share in (
        (swap_value, 0.45),
        (swap_word, 0.25),
        (swap_number, 0.3),
        (add_value, 0.06),
        (drop_needed, 0.07),
        (add_unsaid, 0.06),
        (add_time, 0.1),
        (add_filler, 0.12),
    ):
        if draw.random() < share:
            asked = change(asked, draw, pool)
    text = asked.text
    if asked.query is None or not asked.query.title:
        if draw.random() < 0.3:
            text = text.lower()
        if draw.random() < 0.12:
            text = misspell(text, draw)
    if draw.random() < 0.3:
        text = text.rstrip("?.! ")
    return replace(asked, text=text)


def _replaced(text: str, old: str, new: str) -> str | None:
    found = re.search(rf"(?<!\w){re.escape(old)}(?!\w)", text, re.I)
    return f"{text[: found.start()]}{new}{text[found.end() :]}" if found else None


def swap_value(asked: Asked, draw: random.Random, pool: dict[str, list[Field]]) -> Asked:
    schema, query = asked.schema, asked.query
    if query is not None and query.title:
        return asked
    said = [
        (field, value)
        for field in schema.fields.values()
        for value in field.values
        if _replaced(asked.text, value, "") is not None
    ]
    if not said:
        return asked
    field, value = draw.choice(said)
    person = value.istitle() and " " in value
    other = draw.choice([*PEOPLE]) if person else draw.choice(draw.choice(pool["keyword"]).values or ("blue",))
    if any(other.casefold() == each.casefold() for each in field.values) or figure(other) is not None:
        return asked
    text = _replaced(asked.text, value, other) or asked.text
    values = tuple(other if each == value else each for each in field.values)
    changed = replace(schema, fields={**schema.fields, field.name: replace(field, values=values)})
    if query is not None:
        filters = tuple(
            (name, sign, other if name == field.name and each == value else each) for name, sign, each in query.filters
        )
        query = replace(query, filters=filters)
    return Asked(text, query, changed)


def swap_word(asked: Asked, draw: random.Random, pool: dict[str, list[Field]]) -> Asked:
    """A field is called as one of another table is."""
    schema = asked.schema
    said = [
        (field, word)
        for field in schema.fields.values()
        for word in field.words
        if _replaced(asked.text, word, "") is not None
    ]
    if not said or (asked.query and asked.query.title):
        return asked
    field, word = draw.choice(said)
    other = draw.choice(pool[field.type])
    if (
        overlaps(asked.text, [*field.high, *field.low])
        or {*other.words} & {each for one in schema.fields.values() for each in one.words}
        or other.name in schema.fields
    ):
        return asked
    text = _replaced(asked.text, word, draw.choice(other.words)) or asked.text
    renamed = replace(field, name=other.name, words=other.words, unit=other.unit, high=other.high, low=other.low)
    fields = {
        (other.name if name == field.name else name): (renamed if name == field.name else each)
        for name, each in schema.fields.items()
    }
    query = asked.query and asked.query.rename({field.name: other.name})
    return Asked(text, query, replace(schema, fields=fields))


def swap_number(asked: Asked, draw: random.Random, _: object) -> Asked:
    query = asked.query
    found = re.search(r"(?<![\w.,:/-])\d+(?:\.\d+)?(?![\w.,:/%-]*\d)", asked.text)
    if query is None or found is None or query.title or period_in(asked.text) is not None:
        return asked
    old = found[0]
    new = str(draw.randint(2, 20)) if len(old) < 3 and "." not in old else str(draw.randint(20, 5000))
    if query.limit is not None and float(old) == query.limit and float(new) > 40:
        return asked
    filters = tuple((name, sign, new if value == old else value) for name, sign, value in query.filters)
    limit = int(new) if query.limit is not None and query.limit > 1 and str(query.limit) == old else query.limit
    if (filters == query.filters and limit == query.limit) or old in ("1", "0"):
        return asked
    return replace(
        asked, text=_replaced(asked.text, old, new) or asked.text, query=replace(query, filters=filters, limit=limit)
    )


def add_value(asked: Asked, draw: random.Random, _: object) -> Asked:
    query, schema = asked.query, asked.schema
    named = [field for field in schema.fields.values() if field.type == "keyword" and len(field.values) > 1]
    if query is None or not named or query.title or len(query.filters) > 1 or query.show:
        return asked
    field = draw.choice(named)
    if field.name in query.names or overlaps(asked.text, field.values):
        return asked
    value = draw.choice(field.values)
    said = draw.choice(
        [
            f", {value} only",
            f" ({value})",
            f" - just {value}",
            f", but only where {field.words[0]} is {value}",
            f" with {field.words[0]} {value}",
        ]
    )
    sign = "="
    if draw.random() < 0.3:
        said, sign = (
            draw.choice(
                [
                    f", except {value}",
                    f" without {value}",
                    f", leaving out {value}",
                    f" where {field.words[0]} isn't {value}",
                ]
            ),
            "!=",
        )
    return replace(
        asked,
        text=asked.text.rstrip("?.! ") + said + draw.choice(["?", ""]),
        query=replace(query, filters=(*query.filters, (field.name, sign, value))),
    )


def drop_needed(asked: Asked, draw: random.Random, _: object) -> Asked:
    """Without a field, or a value, that the question needs, nothing says it."""
    query, schema = asked.query, asked.schema
    if query is None or not query.names:
        return asked
    name = draw.choice(sorted(query.names))
    if name not in schema.fields:
        return asked
    fields = {each: field for each, field in schema.fields.items() if each != name}
    return Asked(asked.text, None, replace(schema, fields=fields))


def add_unsaid(asked: Asked, draw: random.Random, _: object) -> Asked:
    if asked.query is None:
        return asked
    return replace(asked, text=f"{asked.text.rstrip('?.! ')} {draw.choice(UNSAID)}?", query=None)


def add_time(asked: Asked, draw: random.Random, _: object) -> Asked:
    if period_in(asked.text) is not None or (asked.query is not None and asked.query.title):
        return asked
    said = draw.choice(TIMES)
    text = asked.text.rstrip("?.! ")
    text = f"{text} {said}?" if draw.random() < 0.6 else f"{said}, {text}"
    return replace(asked, text=text) if period_in(text) is not None else asked


def add_filler(asked: Asked, draw: random.Random, _: object) -> Asked:
    filler = draw.choice(FILLERS)
    text = (
        f"{filler} {asked.text}"
        if draw.random() < 0.8
        else f"{asked.text.rstrip('?.! ')} {draw.choice(('please', 'thanks', 'pls', 'if you can'))}"
    )
    return replace(asked, text=text)


def misspell(text: str, draw: random.Random) -> str:
    places = [found.span() for found in re.finditer(r"[a-z]{5,}", text)]
    if not places:
        return text
    start, end = draw.choice(places)
    at = draw.randrange(start + 1, end - 1)
    way = draw.randrange(3)
    if way == 0:
        return text[:at] + text[at + 1 :]
    if way == 1:
        return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text[:at] + text[at] + text[at:]
