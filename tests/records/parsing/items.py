"""What the model is shown of a question over a made-up table, and what it is to say of it."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

import numpy as np

from rag_app.answering.records.parser import (
    FIELD_ROLES,
    GRAINS,
    MOST_GROUPS,
    MOST_LISTED,
    NUMBER_ROLES,
    OPERATIONS,
    VALUE_ROLES,
    WAYS,
    Item,
    ParserInput,
    ReadQuery,
)
from rag_app.answering.records.wording import stems
from rag_app.retrieval.periods import find_period
from tests.records.parsing.schemas import NUMBERS, OPERATORS, Asked, Field, Query

TODAY = date(2026, 11, 22)
UNREAD_TIME = re.compile(
    r"\b(this|last|next|since|over the|in)\s+(morning|night|afternoon|evening|season|summer|spring|winter|autumn|fall|quarter)\b",
    re.I,
)


@cache
def period_in(text: str) -> tuple[int, int] | None:
    found = find_period(text, TODAY, ["en"])
    return found.span if found is not None else None


def as_read(asked: Asked) -> Asked:
    """What the product can say: what says a time that it does not read is no query, nor what needs a figure that is not said."""
    query = asked.query
    if query is None:
        return asked
    span = period_in(asked.text)
    rest = asked.text if span is None else asked.text[: span[0]] + asked.text[span[1] :]
    return replace(asked, query=None) if UNREAD_TIME.search(rest) else asked


def overlaps(text: str, words: Sequence[str]) -> bool:
    said = stems_of(text)
    return any(said & stems_of(each) for each in words)


@cache
def stems_of(text: str) -> frozenset[str]:
    return frozenset(stems(text))


def items_of(asked: Asked, draw: random.Random | None, value_draw: random.Random | None = None) -> list[Item]:
    """The items of a question; with `draw`, in any order, and with some of their words."""
    schema, query = asked.schema, asked.query
    gold = {(name, value.casefold()) for name, _, value in query.filters} if query else set()
    items = [Item("kind", name, ", ".join(_some(words, draw, asked.text))) for name, words in schema.kinds.items()]
    items.append(Item("date", "date", "date, day"))
    kinds_told = draw is None or draw.random() < 0.85
    if draw is not None:
        draw.shuffle(items)
    for field in schema.fields.values():
        words = list(_some(field.words, draw, asked.text))
        plain = field.name.replace("_", " ")
        if plain not in words and (draw is None or draw.random() < 0.5):
            words.append(plain)
        for end, told in (("most", field.high), ("least", field.low)):
            if told and (draw is None or draw.random() < 0.85):
                words.append(f"{end}: {next((phrase for phrase in told if overlaps(asked.text, [phrase])), told[0])}")
        kind = (
            field.kinds[0] if len(field.kinds) == 1 and (draw is None or (kinds_told and draw.random() < 0.9)) else ""
        )
        items.append(
            Item(field.type, field.name, ", ".join(words) + (f" ({field.unit})" if field.unit else ""), kind=kind)
        )
        said = [value for value in field.values if overlaps(asked.text, [value])]
        wanted = [value for value in field.values if (field.name, value.casefold()) in gold]
        shown = [*said, *wanted, *field.values]
        if draw is not None:
            one = value_draw or draw
            few = one.random() < 0.5 and {*wanted} <= {*said}
            others = one.sample(field.values, min(len(field.values), one.randrange(2) if few else one.randint(2, 6)))
            shown = [*said, *wanted, *others]
        also = dict(field.said)
        items += [
            Item("value", field.name, f"{', '.join((value, *also.get(value, ())[:2]))} : {words[0]}", value, kind)
            for value in dict.fromkeys(shown)
        ]
    return items


def _some(words: Sequence[str], draw: random.Random | None, text: str) -> Sequence[str]:
    if draw is None or len(words) < 2:
        return words
    kept = [word for word in words if draw.random() < 0.7][:3]
    kept = kept or [draw.choice(words)]
    draw.shuffle(kept)
    return kept


def labels_of(asked: Asked, shown: ParserInput) -> dict[str, Any] | None:
    """What is to be said of each place; None where the question does not show it."""
    size, query = shown.places.stop, asked.query
    target: dict[str, Any] = {
        "operation": OPERATIONS.index(query.operation if query else "none"),
        "grain": 0,
        "way": 0,
        "own": 0.0,
        "first": 0.0,
        "kind": -1,
        "of": -1,
        "fields": np.full((size, len(FIELD_ROLES)), -1.0, np.float32),
        "values": np.full(size, -1),
        "figures": np.full(size, -1),
        "links": np.full(size, -1),
        "title": np.full(size, -1.0, np.float32),
    }
    if query is None:
        return target
    at = {
        (item.sort if item.sort in ("kind", "value") else "field", item.name, item.value.casefold()): place
        for place, item in zip(shown.places, shown.items, strict=True)
    }
    if ("kind", query.kind, "") not in at:
        return None
    target["kind"] = at["kind", query.kind, ""]
    target["own"] = float(query.own)
    target["grain"] = GRAINS.index(query.grain or "none")
    for place, item in zip(shown.places, shown.items, strict=True):
        if item.sort == "value":
            target["values"][place] = 0
        elif item.sort != "kind":
            target["fields"][place] = 0.0

    def mark(name: str | None, role: str) -> bool:
        if ("field", name or "", "") not in at:
            return False
        target["fields"][at["field", name or "", ""], FIELD_ROLES.index(role)] = 1.0
        return True

    if query.of is not None:
        if not mark(query.of, "of"):
            return None
        target["of"] = at["field", query.of, ""]
    if query.group not in (None, "date") and not mark(query.group, "group"):
        return None
    if query.order == "value":
        target["way"] = WAYS.index("down" if query.descending else "up")
    elif query.order is not None and not mark(query.order, "down" if query.descending else "up"):
        return None
    for name in query.show:
        mark(name, "show")
    for place, _ in shown.figures:
        target["figures"][place] = 0
    free = dict(shown.figures)

    def take(value: float) -> int | None:
        place = next((place for place, each in free.items() if each == value), None)
        if place is not None:
            del free[place]
        return place

    for name, said_sign, value in query.filters:
        field, sign = asked.schema.fields[name], OPERATORS.get(said_sign, said_sign)
        if field.type in NUMBERS:
            said = take(float(value))
            if said is None or ("field", name, "") not in at:
                return None
            target["figures"][said] = NUMBER_ROLES.index(sign)
            target["links"][said] = at["field", name, ""]
        elif field.type == "boolean":
            if not mark(name, "true" if (value == "true") == (sign == "==") else "false"):
                return None
        elif (there := at.get(("value", name, value.casefold()))) is not None:
            target["values"][there] = VALUE_ROLES.index(sign)
        else:
            return None
    if query.limit is not None:
        counted = take(float(query.limit)) if query.limit > 1 else None
        if query.limit == 1:
            target["first"] = 1.0
        elif counted is None:
            return None
        else:
            target["figures"][counted] = NUMBER_ROLES.index("limit")
    begin = asked.text.casefold().find(query.title.casefold()) if query.title else -1
    if query.title and begin < 0:
        return None
    for place, (start, end) in enumerate(shown.spans, 1):
        target["title"][place] = float(begin >= 0 and start < begin + len(query.title) and end > begin)
    return target


def same(found: ReadQuery, query: Query | None, fields: dict[str, Field]) -> bool:
    """Whether a query is the one that is meant, but for what is shown."""
    read = found.query
    if query is None or read is None:
        return query is None and read is None

    def told(name: str, sign: str, value: str) -> tuple[str, str, object]:
        if fields[name].type in NUMBERS:
            return name, OPERATORS.get(sign, sign), float(value)
        if fields[name].type == "boolean":
            return name, "==", (value == "true") == (sign == "=")
        return name, OPERATORS.get(sign, sign), value

    order = None if query.order == "value" else query.order
    down = query.descending if query.order is not None else query.grain is None
    if query.grain is not None and query.order is None:
        order = "date"
    return (
        query.title.casefold().strip() == found.title.casefold().strip()
        and {told(*each) for each in query.filters}
        == {(each.field, each.operator, each.value) for each in read.filters}
        and (
            read.kind,
            read.aggregate or "list",
            read.of,
            read.own,
            read.group,
            read.grain,
            read.order,
            read.descending,
        )
        == (query.kind, query.operation, query.of, query.own, query.group, query.grain, order, down)
        and read.limit == (query.limit or (MOST_GROUPS if query.group else MOST_LISTED))
    )
