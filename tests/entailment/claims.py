"""Passages with claims that they state, make false or leave open: what the check of claims is trained and measured with.

`claims.jsonl` has 2,844 passages of some 290 made-up organizations, and of tables, logs, minutes and records. Each has two claims that
it states, the second in words far from its own, two that it makes false (a condition dropped, roles swapped, an exception told
as the rule; mostly without a false figure), and one that it leaves open. `further.jsonl` has 2,710 passages more, with three to
five of the first two kinds, near and far alike, and two or three that are left open; nothing is measured with them. The shipped
weights do not know its last 1,290, of figures, rules and conditions.
"""

import json
from enum import IntEnum
from pathlib import Path
from random import Random

from msgspec import Struct

FILE, FURTHER = (Path(__file__).with_name(f"{name}.jsonl") for name in ("claims", "further"))
_ONE_OF = 12


class Label(IntEnum):
    """What a passage does with a claim."""

    TRUE = 0
    FALSE = 1
    UNSTATED = 2


class Passage(Struct, frozen=True):
    """A part of a document of an organization (`of`), and the claims of each label."""

    of: str
    title: str
    text: str
    claims: tuple[tuple[str, ...], ...]


def passages(*, put_aside: bool) -> list[Passage]:
    """Those of one organization of twelve, with which nothing is to be trained or tuned; or all others."""
    found = _passages_in(FILE)
    names = sorted({each.of for each in found})
    Random(7).shuffle(names)
    aside = {*names[: len(names) // _ONE_OF]}
    return [each for each in found if (each.of in aside) == put_aside]


def further_passages() -> list[Passage]:
    return _passages_in(FURTHER)


def _passages_in(file: Path) -> list[Passage]:
    return [
        Passage(
            row["of"] or row["title"],
            row["title"],
            row["text"],
            tuple(tuple(row[label.name.lower()]) for label in Label),
        )
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())
    ]
