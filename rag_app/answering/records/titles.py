"""Records that a question names by what they are called: "Thistle & Crown", "the hammered ring".

Words that mean nothing else in the question stand for the one record whose title has them. No more than its figures can be
asked then: a title says which record is meant, and not what there is of a sort.
"""

import re
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise, takewhile

from rag_app.answering.records.settling import settle_fields
from rag_app.answering.records.wording import (
    Meaning,
    Token,
    figure,
    price_field,
    read_words,
    stems,
    vocabulary_of,
    word_set,
)
from rag_app.domain import FieldType
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.records import NamedValue

_JOIN = frozenset({"", "value", "unclear"})  # roles of words that may be a part of a title
_MOST_LEFT = 8  # words that may be of titles
_MEASURES = frozenset({"field", "total", "high", "low", "over", "under", "more"})
_RANK_ROLES = frozenset({"more", "most", "least", "high", "low", "best", "worst"})
_ASIDE = re.compile(r"\s*\([^()]*\)\s*$")  # whose it is, where it is
_LEAD = re.compile(r"^([\w -]{1,30}):\s+")  # the sort of thing: "Listing: ..."


def read_names(text: str, spec: IndexSpec, values: Sequence[NamedValue]) -> list[Token]:
    """The words of a question with their meanings (`read_words`), and the records that it names by their titles."""
    titles = [each for each in values if each.title]
    tokens = read_words(text, spec, [each for each in values if not each.title])
    if titles:
        _read_titles(tokens, titles, spec)
        _read_apposed(tokens, titles)
        _read_vague_ones(tokens)
    settle_fields(tokens, spec)
    return _put_names_behind(tokens)


def _put_names_behind(tokens: list[Token]) -> list[Token]:
    """A question that begins with names of one field has them at its end: "Ada, Bo or Cy: who has more?", one of which is it."""
    asked = next((at for at, each in enumerate(tokens) if each.stem in word_set("who") | word_set("which")), 0)
    names, rest = tokens[:asked], tokens[asked:]
    heads = [each for each in names if not each.inside]
    values = [each for each in heads if each.role == "value"]
    plain = all(each.role in ("value", "or", "own") or each.stem in word_set("lists") for each in heads)
    ranks = any(each.role in _RANK_ROLES for each in rest)
    if not (plain and ranks) or len({each.name for each in values}) != 1 or len({each.meaning for each in values}) == 1:
        return tokens
    values[0].parted = True
    joins = [each for each in heads if each.stem in word_set("lists")] or [Token("or", "or", said=True)]
    joins[-1].meaning = Meaning("or")
    at = next(place for place, each in enumerate(names) if each is values[-1])
    return [*rest, *names] if joins[-1] in names else [*rest, *names[:at], *joins, *names[at:]]


def _read_vague_ones(tokens: Sequence[Token]) -> None:
    """How the one that is named looks says nothing more: "the big one for families", where one title has families."""
    named = any(token.role == "value" and token.name == "source_id" for token in tokens)
    for token, one in pairwise(tokens):
        vague = token.is_left and token.text in word_set("adjectives")
        token.said = token.said or (named and vague and one.text == "one")


def _read_apposed(tokens: Sequence[Token], titles: Sequence[NamedValue]) -> None:
    """A word behind a value says what that is where a title has both: "parts for the Tarn tent", where a Tarn is a tent."""
    for (begin, end), (after, _) in pairwise(_units(tokens)):
        one, other = tokens[begin], tokens[after]
        led = begin > 0 and tokens[begin - 1].stem in word_set("for")
        if led and one.role == "value" and one.name != "source_id" and other.is_left and not other.parted:
            words = {token.stem for token in tokens[begin:end]} | {other.stem}
            other.said = any(words <= each.words for each in titles)


def words_of_titles(text: str, spec: IndexSpec, values: Sequence[NamedValue]) -> tuple[str, ...]:
    """The words of a question that may be those of titles: what is left, and values that may be records of their own."""
    tokens = read_words(text, spec, values)
    left = [token.stem for place, token in enumerate(tokens) if _may_begin(tokens, place, spec)]
    if left:
        listed = [
            place for place, token in enumerate(tokens) if token.role == "value" and list_neighbours(tokens, place)
        ]
        left += [tokens[at].stem for begin, end in _units(tokens) if begin in listed for at in range(begin, end)]
    return tuple(dict.fromkeys(left)) if len(left) <= _MOST_LEFT else ()


def _may_begin(tokens: Sequence[Token], place: int, spec: IndexSpec) -> bool:
    """Whether a title may begin with a word: it is left, a tag, or a value that one kind has of others: what fits the Halden 2.

    A value only where a figure is asked for and no kind is named, and not behind a preposition ("pads for the Halden 2").
    """
    token = tokens[place]
    if token.role != "value":
        return token.is_left and figure(token.text) is None
    roles, name = {each.role for each in tokens}, token.name
    others = sum(name in kind.having for kind in spec.records.values())
    weak = 0 < others < len(spec.records) or spec.all_fields[name] is FieldType.TAGS
    lead = tokens[place - 2].stem if place > 1 else ""
    paid = "more" in roles and any(each.stem in word_set("spends") for each in tokens)
    chosen = lead in word_set("which") | {"instead"} or (paid and lead in word_set("spends") | word_set("than"))
    behind = place > 0 and tokens[place - 1].stem in word_set("for") and not chosen  # "which of the Halden 2 and ..."
    measured = bool(roles & (_MEASURES | {"much", "sum", "unit", "apart"}))
    alone = "kind" not in roles or bool(roles & {"more", "apart"}) or (place > 0 and tokens[place - 1].role == "kind")
    return weak and measured and alone and not behind and not vocabulary_of(spec, name).values


def _read_titles(tokens: Sequence[Token], titles: Sequence[NamedValue], spec: IndexSpec) -> None:
    """Gives words that are left the meaning of the record that is called so, with those beside them that its title has.

    Of several records it is the one that has most of them in a row, then the one whose name they are whole, then one of the
    kind that the figure asked for is of. With several that are alike, the words stay as they are.
    """
    measured = _fields_asked(tokens, spec)
    fitting = [each for each in titles if _fits(each, tokens, measured, spec)]
    places = [place for place in range(len(tokens)) if _may_begin(tokens, place, spec)]
    for place in [*places, *range(len(tokens))]:
        token = tokens[place]
        again = token.role == "value" and token.name != "source_id"
        beside = again and any(tokens[at].name == "source_id" for at in list_neighbours(tokens, place))
        if not (beside or _may_begin(tokens, place, spec)):
            continue
        tag = beside or spec.all_fields.get(token.name) is FieldType.TAGS
        called = [each for each in fitting if token.stem in each.words and (tag or token.name not in each.fields)]
        ranked = sorted(_rank(each, tokens, place, measured, spec) for each in called)
        if ranked and [each[0] for each in ranked].count(ranked[-1][0]) == 1:
            _, (begin, end), source = ranked[-1]
            for other in tokens[begin:end]:
                other.meaning, other.said, other.inside = None, True, True
            tokens[begin].meaning, tokens[begin].inside = Meaning("value", "source_id", source), False


def list_neighbours(tokens: Sequence[Token], place: int) -> list[int]:
    """The places of what stands right before and behind a phrase in a list: with a comma, "and" or "or" between them."""
    lists, found = word_set("lists"), list[int]()
    named = [at for at, _ in _units(tokens) if tokens[at].role != "own" and tokens[at].stem not in lists]
    heads = [at for at in named if at == place or tokens[at].meaning or tokens[at].is_left]
    for one, other in pairwise(heads):
        between = [token for token in tokens[one + 1 : other] if not token.inside]
        listed = any(token.parted for token in (*between, tokens[other])) or any(
            token.stem in lists for token in between
        )
        plain = all(token.stem in lists | word_set("one") or token.role == "own" for token in between)
        found += [one + other - place] if place in (one, other) and listed and plain else []
    return found


def _fields_asked(tokens: Sequence[Token], spec: IndexSpec) -> list[str]:
    """The fields that are asked for; "how much" alone asks for the price."""
    meant = [(token.role, token.name) for token in tokens if token.name]
    told = [name for role, name in meant if role == "value" and spec.all_fields[name] is FieldType.BOOLEAN]
    named = [*(name for role, name in meant if role in _MEASURES), *told]
    much = not named and any(token.role in ("much", "sum") for token in tokens)
    return named or [name for name in [price_field(spec)] if much and name]


def kind_of(source_type: str, fields: Set[str], spec: IndexSpec) -> str | None:
    """The first kind of record that a source with these fields is."""
    for name, kind in spec.records.items():
        if source_type in kind.source_types and {*kind.having} <= fields and not {*kind.lacks} & fields:
            return name
    return None


def _fits(title: NamedValue, tokens: Sequence[Token], measured: Sequence[str], spec: IndexSpec) -> bool:
    """Whether a record is of a kind that is named, and has the figures that are asked for."""
    kinds = {token.name for token in tokens if token.role == "kind"}
    own = kind_of(title.source_type, title.fields, spec)
    held = {stems(word) for word in spec.records[own].holds} if own else set()
    holds = any(stems(word) in held for kind in kinds for word in spec.records[kind].words)  # the terms on a watchlist
    return {*measured} <= title.fields and (not kinds or own in kinds or holds)


def _rank(
    title: NamedValue, tokens: Sequence[Token], place: int, measured: Sequence[str], spec: IndexSpec
) -> tuple[tuple[int, bool, bool], tuple[int, int], str]:
    begin, end = _span(tokens, place, title.words)
    said = {token.stem for token in tokens[begin:end]}
    own = {vocabulary_of(spec, name).kind for name in measured}
    return (
        (
            len(said),
            _own_name(title.title, spec) <= said,
            kind_of(title.source_type, title.fields, spec) in own,
        ),
        (begin, end),
        title.value,
    )


def _span(tokens: Sequence[Token], place: int, words: frozenset[str]) -> tuple[int, int]:
    """The words around a place that a title has as well, in whole phrases, without those at an end that say nothing."""
    units = [*_units(tokens)]
    at = next(number for number, (begin, end) in enumerate(units) if begin <= place < end)

    def joins(unit: tuple[int, int]) -> bool:
        phrase = tokens[unit[0] : unit[1]]
        return phrase[0].role in _JOIN and {token.stem for token in phrase} <= words

    before, behind = [*takewhile(joins, reversed(units[:at]))], [*takewhile(joins, units[at + 1 :])]
    for side in before, behind:
        while side and tokens[side[-1][0]].said and tokens[side[-1][0]].meaning is None:
            side.pop()
    return [units[at], *before][-1][0], [units[at], *behind][-1][1]


def _units(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """The phrases of a question, a word that is none being one of its own."""
    begin = 0
    for place in range(1, len(tokens) + 1):
        if place == len(tokens) or not tokens[place].inside:
            yield begin, place
            begin = place


def _own_name(title: str, spec: IndexSpec) -> frozenset[str]:
    """The words of a title without the sort of thing before it, and without what stands in parentheses behind it."""
    kinds = {stems(word) for kind in spec.records.values() for word in kind.words}
    lead = _LEAD.match(title)
    bare = title[lead.end() :] if lead and stems(lead[1]) in kinds else title
    return frozenset(stems(_ASIDE.sub("", bare) or bare))
