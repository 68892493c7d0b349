"""What an asker tells before the question proper: "I'm doing the rota. Who works on Friday?".

It is left out where it says nothing of what is asked for. Its days count; what else of it may limit the question keeps it
there, so that it has to be understood as any other word.
"""

import re
from collections.abc import Sequence
from datetime import date
from itertools import pairwise

from msgspec.structs import replace

from rag_app.answering.leaning import announcement_in
from rag_app.answering.records.asking import without_period
from rag_app.answering.records.conditions import BOUND_OPERATORS
from rag_app.answering.records.titles import read_names
from rag_app.answering.records.wording import SUPERLATIVES, Token, noun_of, read_words, word_set
from rag_app.domain import YEAR, FieldType
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period, find_period, means_part, move_to_year_of
from rag_app.retrieval.records import NamedValue

_LEAD_SENTENCE = re.compile(
    r"\W*(?:i|we|my|our|just|quick|sorry|hi|hello|hey|another|one|planning|looking|thinking|doing|checking|working|preparing|ich|wir|mein|unser|je|nous|mon|notre)\b"
    r"(?![^,:;.?!]*\b(?:only|except|without)\b)[^,:;.?!]*?(?:[,:;.!]|\s[-–—])\s+(?=\w)",
    re.I,
)
_TOPIC = re.compile(
    r"\b(?:thinking (?:of|about)|looking (?:at|into|for)|interested in|focus\w* on|after|regarding|about|considering|want|need|like)\b",
    re.I,
)
_BACK = re.compile(r"\b(?:(?:of )?(?:them|those|these)|which ones|they|it|its|ones)\b", re.I)


def lead_of(text: str) -> str:
    """
    >>> lead_of("I'm doing the rota. Who works on Friday?"), lead_of("Who works on Friday?")
    ("I'm doing the rota. ", '')
    """
    found = _LEAD_SENTENCE.match(text)
    return announcement_in(text) or (found[0] if found else "")


def without_lead(text: str, spec: IndexSpec, values: Sequence[NamedValue], today: date) -> tuple[str, Period | None]:
    """The question proper, and the days that were told before it; the whole text where the words before it may limit it."""
    if announced := announcement_in(text):
        return text[len(announced) :], None
    lead = lead_of(text)
    rest, told = text[len(lead) :], find_period(lead, today) or _year_in(lead, today)
    told = None if spec.dated_types == () else told
    own, tokens = find_period(rest, today), read_names(without_period(lead, told), spec, values)
    kinds, words = {token.name for token in tokens if token.role == "kind"}, read_words(rest, spec)
    asked, others = {token.role for token in words}, {token.name for token in words if token.role == "kind"}
    part = told is not None and (means_part(lead, told) or not (told.start and told.end))
    named = [
        one for one, other in pairwise([*tokens, None]) if one and one.meaning and not _names_none(one, other, spec)
    ]
    names = any(token.role != "kind" for token in named) or (kinds and len(kinds | others) > 1)
    left = {token.stem for token in tokens if token.is_left and not _TOPIC.fullmatch(token.text)}
    vague = left <= word_set("vague") and bool(asked & (SUPERLATIVES | BOUND_OPERATORS.keys()))
    limits = kinds or (told is not None and own is None) or _TOPIC.search(lead) or _BACK.search(rest)
    if part or names or (left and limits and not vague):
        return text, None
    if kinds and not others:
        noun, proper = noun_of(spec.records[kinds.pop()]), rest
        rest = re.sub(r"\b(?:ones|of (?:them|those|these))\b", noun, proper, count=1, flags=re.I)
        if rest == proper:
            return text, None
    if told is None:
        return rest, None
    moved = move_to_year_of(own, told) if own is not None else replace(told, said="", span=(0, 0), otherwise=None)
    return rest, moved


def _names_none(token: Token, behind: Token | None, spec: IndexSpec) -> bool:
    """Whether a word means no record of those that are asked for: one's own of what is none, a common noun that is a tag or a
    word of a title: "the table for my class"."""
    alone = token.text.islower() and not (behind is not None and behind.inside)
    noun = token.role == "value" and (token.name == "source_id" or spec.all_fields.get(token.name) is FieldType.TAGS)
    common = behind is not None and (behind.is_left or behind.name == "source_id")
    return (noun and alone) or (token.role == "own" and common)


def _year_in(lead: str, today: date) -> Period | None:
    found = YEAR.search(lead)
    year = find_period(f"in {found[0]}", today) if found else None
    return replace(year, said=found[0], span=found.span()) if year and found else None
