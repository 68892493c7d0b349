"""What a question asks of records before it is read as a query: whether it is about them, what it ranks or limits, and what is left over."""

import re
from collections.abc import Sequence
from itertools import dropwhile, pairwise, takewhile

from rag_app.answering.records.conditions import BOUND_OPERATORS
from rag_app.answering.records.wording import (
    BEGINNING,
    SUPERLATIVES,
    Token,
    figure,
    is_figure,
    key_fields,
    people_field,
    read_words,
    stems,
    variants,
    vocabulary_of,
    word_set,
    words_alike,
    workers_field,
)
from rag_app.domain import FieldType
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period

_MOST_LEFT = 10  # words that may be values
_ASKS_A_FIELD = frozenset({"count", "much", "sum", "average", "most", "least", "best", "worst", "each", "rank"})
_ASKED_OF_ALL = _ASKS_A_FIELD | SUPERLATIVES | {"all", "next", "ahead", "total", "over", "under", "most_of", "least_of"}
_RANKS = SUPERLATIVES - {"newest", "oldest"} | BOUND_OPERATORS.keys() | {"count", "sum", "average", "each", "rank"}
NAMES_OF_FIELDS = frozenset({"kind", "field", "total", "high", "low", "unit", "value"})
_OF_FIELDS = SUPERLATIVES | {"sum", "average", "each", "rank", "more", "apart"}
_OF_TEXTS = frozenset({"more", "each", "newest", "oldest"})
_OF_RECORDS = _OF_FIELDS | BOUND_OPERATORS.keys() | {"count", "not", "or", "between"}
_LINKS = frozenset({"or", "not", "all", "between", "everybody", "ordinal", "more", "left_out", "unclear"})
_COUNTS_IN = r"\s*(?:as well|too|also|in|as \w+)?\s*(?=[?.!:;]|$)"
_OF_SORTS = r"(?!\s*(?:[\w'’-]+ ){0,8}(?:only|just|not|no(?![- ]shows?)|none|nothing|never|without|else|how|nicht|nur|kein\w*|pas|sans)\b)[\w '’-]"
INCLUSION = re.compile(
    rf",?\s*\b(?:even\s+)?(?:if|when)\s+[\w ]{{1,60}}\s(?:counts?|are counted|is counted|are included|is included){_COUNTS_IN}"
    rf"|[,.?!]\s*(?:with\s+|and\s+)?{_OF_SORTS}{{1,40}}\s(?:included|inclusive|as well|too)\s*(?=[?.!:;]|$)"
    rf"|[,.?!]\s*(?:(?:and|with)\s+)?{_OF_SORTS}{{1,40}}\s(?:counted|counts?|being counted|(?:are|is) (?:counted|included)){_COUNTS_IN}"
    r"|[.?!]\s*(?:please\s+|also\s+)*(?:count|include)\s+[\w '’-]{1,80}?(?:\s+(?:as well|too|also|in))?\s*(?=[?.!:;]|$)"
    r"|,?\s*(?<!\bnot )\b(?:including|also counting|counting also|inclusive of|einschließlich|inklusive|y compris)\s+[\w '’-]{1,60}(?=[?.!:;]|$)"
    r"|,\s*(?:counting|even|auch|sogar|même|aussi)\s+(?!only\b|not\b)[\w '’-]{1,40}(?=[?.!:;]|$)"
    r"|[,.?!]\s*[\w '’-]{1,40}\s(?:alike|equally|gleichermaßen|mitgezählt|mitgerechnet|eingeschlossen|einbezogen|inklusive|inbegriffen|zählen (?:auch|mit)|zählt (?:auch|mit)|compris\w*|inclus\w*|aussi)\s*(?=[?.!:;]|$)",
    re.I,
)
"""What is said to count as well: "cancelled ones included", "the late ones count too", "die verspäteten mitgezählt"."""
LEAVES_NONE = re.compile(
    r"[,.?!:;–-]\s*(?:please\s+|but\s+|and\s+)*(?:(?:leave|leaving|miss|missing|skip|skipping|omit|omitting|drop|dropping)\s+(?:out\s+)?(?:none|nothing|nobody|no ?one)(?:\s+of them)?(?:\s+out)?"
    r"|(?:don['’]?t|do not|without|not)\s+(?:leave|leaving|skip|skipping|omit|omitting|miss|missing)\s+(?:out\s+)?any(?:thing|one|body)?(?:\s+of them)?(?:\s+out)?"
    r"|(?:never mind|no matter|(?:it )?(?:does not|doesn['’]?t) matter|regardless(?: of)?|irrespective of|i (?:do not|don['’]?t) (?:care|mind)|egal|peu importe)\s+(?:if|whether|how|what|who|when|ob|si)\b[\w '’-]{1,60}?"
    r"|(?:with )?(?:none|nothing|nobody)(?: of them)? left out|without (?:an )?exception|no exceptions|all of them(?: count)?|every (?:single |last )?one of them"
    r"|ohne ausnahme|(?:und )?(?:lass|lasst|lassen sie) keine\w? (?:aus|weg)|sans (?:aucune )?exception|tous compris|toutes comprises)\s*(?=[?.!:;]|$)",
    re.I,
)
"""That nothing is left out: "leave none out", "without exception"."""
_GENITIVE = re.compile(r"['’]s\b")
_NUMBER_OF_ROW = re.compile(r"\b[^\W\d_]{1,5}-?\d+\b")
_CODE_WORD = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d_])\w+\b")
_LONGEST_FIELD = 2  # words of a field that no record has
_ADVISES = re.compile(r"\b(?:should|ought) (?:we|i|you|they)\b.*\b(?:more|fewer|less)\b(?! than)", re.I)


def may_ask(text: str, spec: IndexSpec, period: Period | None = None) -> bool:
    """Whether a question is worth reading: it names a kind of record, a field, days or "INV-791", or asks for a figure."""
    if not spec.records or _asks_what_is_said(read_words(without_period(text, period), spec), spec):
        return False
    if period is not None:
        return True
    tokens = read_words(text, spec)
    numbered = bool(key_fields(spec)) and _NUMBER_OF_ROW.search(text) is not None
    return numbered or any(map(_asks, tokens)) or _may_ask_of_names(tokens, spec)


def names_row(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether a row is named by its number, and something is asked of it that its fields may tell: "what was wrong in D-315?".

    Not a reason, nor anything of somebody whom no value names.
    """
    rows = {token.name for token in tokens if token.role == "value" and _has_digit(token, tokens)} & key_fields(spec)
    unknown = any(token.is_left and token.text[:1].isupper() for token in tokens[1:])
    return bool(rows) and not unknown and not any(token.stem in word_set("reasons") for token in tokens)


def _has_digit(token: Token, tokens: Sequence[Token]) -> bool:
    """Whether a name has a digit in one of its words."""
    named = takewhile(lambda each: each is token or each.inside, tokens[tokens.index(token) :])
    return any(sign.isdigit() for each in named for sign in each.text)


def _asks_what_is_said(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether it is asked what people say, think or want, which texts tell and no field: "what did customers like", "which
    complaints did we get"."""
    persons = {people_field(spec), workers_field(spec)} - {None}
    plain = [token for token in tokens if not token.inside]
    if any(token.meaning and token.role != "own" and token.name not in persons for token in plain):
        return False
    asks = [token.text.casefold() in word_set("which_of") for token in plain[:1]]
    does = any(token.text.casefold() in word_set("does") for token in plain[1:2])
    by_them = any(one.name in persons and other.text.casefold() in word_set("opines") for one, other in pairwise(plain))
    said = any(token.is_left and token.stem in word_set("opinions") for token in plain)
    return any(asks) and (said or (does and by_them))


def _may_ask_of_names(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether it asks for records by words that may be values: "more cats or dogs", "was Ada ever late", "who is booked with Ada"."""
    weighs = any(one.role == "more" and other.is_left for one, other in pairwise(tokens))
    ever = any(token.text.casefold() == "ever" for token in tokens) and tokens[0].stem in word_set("whether")
    kinds = {phrase[:BEGINNING] for kind in spec.records.values() for phrase in kind.words}
    with_whom = any(
        one.is_left and one.stem[:BEGINNING] in kinds and other.stem in word_set("with")
        for one, other in pairwise(tokens)
    )
    next_time = any(each.stem in word_set("when") for each in tokens[:2]) and any(map(_comes_again, tokens))
    whose = with_whom and any(token.stem in word_set("who") for token in tokens[:1])
    return (weighs and any(token.role == "or" for token in tokens)) or ever or whose or next_time


def _comes_again(token: Token) -> bool:
    return token.meaning is None and token.stem in word_set("again")


def asks_of_records(text: str, spec: IndexSpec, period: Period | None) -> bool:
    """Whether a figure, an order or a list is asked for of something that the index calls by a name."""
    roles = _roles(text, spec, period)
    return bool(roles & _ASKED_OF_ALL) and _name_records(roles, spec)


def measures_records(text: str, spec: IndexSpec) -> bool:
    """Whether a total, a mean or an extreme of a field is asked for: "what's their average demand"."""
    roles = _roles(text, spec, None)
    return bool(roles & {"sum", "average", "most", "least"}) and bool(roles & {"field", "total", "high", "low"})


def names_records(text: str, spec: IndexSpec, period: Period | None) -> bool:
    """Whether a word names a kind of record, a field, or much or little of one.

    In an index with one kind of record, every question about records is about that kind.
    """
    return _name_records(_roles(text, spec, period), spec)


def _roles(text: str, spec: IndexSpec, period: Period | None) -> set[str]:
    return {token.role for token in read_words(without_period(text, period), spec)}


def _name_records(roles: set[str], spec: IndexSpec) -> bool:
    return bool(roles & NAMES_OF_FIELDS) or len(spec.records) == 1


def asks_rank(tokens: Sequence[Token]) -> bool:
    roles = {token.role for token in tokens}
    return bool(roles & _RANKS) and bool(roles & NAMES_OF_FIELDS - {"value"} or (roles >= {"sum", "value"}))


def figures_named(tokens: Sequence[Token], spec: IndexSpec) -> list[str]:
    """The figures, and what holds or not, that a question names: a number, a total or a mean has to do with each of them."""
    named = [token.name for token in tokens if token.role == "field"]
    return [name for name in named if is_figure(spec, name) or spec.fields.get(name) is FieldType.BOOLEAN]


def counted_by_sort(tokens: Sequence[Token], spec: IndexSpec) -> Token | None:
    """What is to be counted, where a field only tells the sort of it: the rooms of "how many rooms", of a `room_type`."""
    sorts = word_set("sorts") | word_set("different")
    for place, token in enumerate(tokens):
        behind = [*takewhile(lambda each: each.role in ("", "field", "value"), tokens[place + 1 :])]
        counted = next((each for each in behind if each.role == "field"), None)
        if token.role != "count" or counted is None or stems(counted.name.replace("_", " "))[-1] not in sorts:
            continue
        last = behind.index(counted)
        phrase = [*behind[: last + 1], *takewhile(lambda each: each.inside, behind[last + 1 :])]
        if not sorts & {each.stem for each in phrase}:
            return counted
    return None


def asks_for_all(tokens: Sequence[Token]) -> bool:
    """Whether all that is so is asked for: "everything that is on backorder"."""
    begun = [*dropwhile(lambda token: token.is_unmeant and token.stem in word_set("opens_list"), tokens)]
    first, second = (*(token.stem for token in begun[:2]), "", "")[:2]
    return (
        first in word_set("all")
        and second in word_set("which_of") | {"that"}
        and any(token.role == "value" for token in tokens)
    )


def asks_limit(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    roles, figures = {token.role for token in tokens}, [token for token in tokens if figure(token.text) is not None]
    named = any(
        token.meaning and token.role in ("field", "unit") and is_figure(spec, token.meaning.name) for token in tokens
    )
    phrases = [token.role for token in tokens if not token.inside]
    of_groups = "each" in phrases[:-1] and bool(roles & {"much", "count", "sum", "average"})  # a text may say "in each"
    bounded = bool(roles & BOUND_OPERATORS.keys()) and named and (bool(figures) or "kind" in roles)
    return of_groups or roles >= {"rank", "kind"} or bounded


def asks_of_fields(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether only declared fields can answer: a figure, an order or groups are asked for of one, or of a kind that has some.

    Or records of such a kind, in words that are all understood, and make no query; or those of one's own with some value.
    """
    roles, left = {token.role for token in tokens}, any(token.is_left for token in tokens)
    fields, kinds = _fields_told(spec)
    of_kind = any(token.role == "kind" and token.name in kinds for token in tokens)
    of_field = any(token.role in NAMES_OF_FIELDS - {"kind", "value"} and token.name in fields for token in tokens)
    of_texts = frozenset() if of_field else _OF_TEXTS  # what a text may say as well
    asked = roles & (_OF_FIELDS - of_texts if left else _OF_RECORDS)
    own = of_kind and roles >= {"own", "value"} and any(token.stem in word_set("which_of") for token in tokens[:1])
    leaves_out = of_kind and any(token.role == "not" and token.stem in word_set("excepts") for token in tokens)
    first = any(token.stem in word_set("which_of") for token in tokens[:1]) and tokens[1:2] and tokens[1].role == "kind"
    whole = first and not left and of_kind and of_field  # "which repairs only take a week"
    return (bool(asked) and (of_kind or of_field)) or own or leaves_out or bool(whole) or _asks_what_came_in(tokens)


def _asks_what_came_in(tokens: Sequence[Token]) -> bool:
    """Whether the total of what one took in is asked for: "what did we earn from late trips"."""
    asks = any(token.stem in word_set("what") or token.role == "much" for token in tokens[:1])
    ours = any(token.stem in word_set("us") for token in tokens)
    return asks and ours and any(token.role == "total" for token in tokens)


def figure_asked(tokens: Sequence[Token]) -> str:
    """The word for what one makes or takes, where no field is called so: "what profit do we make"; else empty."""
    first, noun, verb, who = (*tokens[:4], *(None,) * 4)[:4]
    if first is None or noun is None or verb is None or who is None or not noun.is_left:
        return ""
    asks = first.stem in word_set("what") | {"much"} and verb.stem in word_set("does") and who.stem in word_set("us")
    makes = any(token.stem in word_set("takes_in") for token in tokens[4:])
    return noun.text.lower() if asks and makes else ""


def _fields_told(spec: IndexSpec) -> tuple[frozenset[str], frozenset[str]]:
    """The fields that records are told with, or that are of one kind, and the kinds that have any."""
    names = {
        (kind, name)
        for kind, each in spec.records.items()
        for name in spec.fields
        if f"{{{name}}}" in " ".join(each.sentence)
    }
    names |= {(words.kind, name) for name, words in spec.vocabulary.items() if words.kind is not None}
    return frozenset(name for _, name in names), frozenset(kind for kind, _ in names)


def names_kind_first(text: str, spec: IndexSpec) -> bool:
    """Whether records of a kind are asked for: "which parts are ...", "which of our listings ..."."""
    meant = [
        token
        for token in read_words(text, spec)
        if token.meaning or token.is_left or token.stem in word_set("which_of")
    ]
    named = [token for token in meant if token.role != "own"]
    return any(one.stem in word_set("which_of") and other.role == "kind" for one, other in pairwise(named))


def ranks_kind(text: str, spec: IndexSpec) -> bool:
    """Whether the top ones of a kind are asked for, by whatever: "the top keywords in the wedding niche"."""
    meant = [token.role for token in read_words(text, spec) if token.meaning or token.is_left]
    first = next((place for place, role in enumerate(meant) if role in {"most", "best", "rank"}), len(meant))
    named = [role for role in meant[first + 1 :] if role != "value"]
    return named[:1] == ["kind"]


def words_left(text: str, spec: IndexSpec, period: Period | None) -> tuple[str, ...]:
    """The words that may be values of fields, where the others are understood; empty where there is nothing to ask."""
    tokens = read_words(without_days(text, period), spec)
    left = [token.text for token in tokens if token.is_left]
    if len(left) > _MOST_LEFT or not may_ask(text, spec, period):
        return ()
    known = [token.text for token in tokens if not token.said or len(token.text) > 2]
    numbered = _CODE_WORD.findall(text) if left else ()  # "L2264", by which a record goes
    plain = [token.text for token in tokens if token.meaning is None]  # "man" says nothing in German
    asked = (*left, *known, *words_alike(plain), *numbered)
    return tuple(dict.fromkeys(each for word in asked for each in variants(word)))


def asks_of_another(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether it begins with a figure, and names what is only called like a value: "demand for velvet ring pouches", where
    there are velvet ring boxes."""
    asked = next((token for token in tokens if token.meaning or token.is_left), None)
    if asked is None or asked.role != "field" or not is_figure(spec, asked.name):
        return False
    for place, token in enumerate(tokens):
        if token.meaning is None or token.role != "value" or token.name == "source_id":
            continue
        behind = next((each for each in range(place + 1, len(tokens)) if not tokens[each].inside), len(tokens))
        whole = behind - place >= len(stems(token.meaning.value))
        if not whole and any(each.is_left for each in (*tokens[place - 1 : place], *tokens[behind : behind + 1])):
            return True
    return False


def asks_advice(text: str) -> bool:
    """Whether it is asked of what there should be more or less.

    >>> asks_advice("Which branch should we give more desks?"), asks_advice("Which branch has more desks?")
    (True, False)
    """
    return _ADVISES.search(text) is not None


def asks_possession(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether somebody's things are to be counted, where records are what happened: "how many cats does Ada have", in a table
    of visits."""
    plain = [token for token in tokens if not token.inside]
    asks = next((place for place, token in enumerate(plain) if token.role == "count"), None)
    if asks is None or spec.dated_types == () or len(plain) < asks + 4 or any(each.role == "kind" for each in plain):
        return False
    counted, verb, last = plain[asks + 1], plain[asks + 2], plain[-1]
    does = verb.text.casefold() in word_set("does") and not verb.role
    owns = (last.stem in word_set("has") and not last.role) or last.stem == "own"
    return does and counted.role in ("", "value") and owns


def bounds_somebody(tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether a bound may be on all that somebody paid together: "owners who owe more than 100"."""
    first = next((token for token in tokens if token.meaning), None)
    pays = any(token.stem in word_set("spends") | word_set("owes") for token in tokens)
    who = any(token.stem in word_set("who") | {"that"} for token in tokens[1:3])
    bounded = any(token.role in BOUND_OPERATORS for token in tokens) and not any(each.role == "kind" for each in tokens)
    of_key = first is not None and first.role == "field" and spec.fields.get(first.name) is FieldType.KEYWORD
    sized = any(token.stem in (*word_set("times"), "time") for token in tokens)
    return of_key and who and pays and bounded and not sized


def stand_before_kind(tokens: Sequence[Token], left: Sequence[Token]) -> bool:
    """Whether the words stand in a row right before the name of a kind: "the top wedding keywords"."""
    first = next(place for place, token in enumerate(tokens) if token is left[0])
    row, behind = tokens[first : first + len(left)], tokens[first + len(left) :]
    plain = all(token.is_left and figure(token.text) is None for token in row)
    return plain and len(left) <= _LONGEST_FIELD and bool(behind) and behind[0].role == "kind"


def stand_behind_kind(tokens: Sequence[Token]) -> tuple[str, ...]:
    """The words that are left right behind "about", where that leads from a kind to what its records tell of: "the mail about the
    harvest"."""
    plain = [token for token in tokens if not token.inside]
    for kind, lead, *behind in (plain[at : at + 8] for at in range(len(plain) - 2)):
        if kind.role == "kind" and lead.stem in word_set("tells_of"):
            return tuple(each.text.lower() for each in takewhile(lambda each: each.is_left, behind))
    return ()


def words_of_fields(tokens: Sequence[Token], spec: IndexSpec) -> frozenset[str]:
    """The words that the names of figures have beside those that are said: "score", where "competition" is."""
    named = {token.name for token in tokens if token.role in ("field", "high", "low")}
    phrases = (stems(phrase) for name in named if is_figure(spec, name) for phrase in vocabulary_of(spec, name).words)
    return frozenset(word for phrase in phrases for word in phrase)


def _asks(token: Token) -> bool:
    if token.role in ("more", "not"):
        asked = token.stem in word_set("busier") | word_set(
            "besides"
        )  # "who is busier", "what do you sell besides tents"
    else:
        asked = token.role not in _LINKS
    return token.meaning is not None and (asked or token.meaning.name != "")


def without_period(text: str, period: Period | None) -> str:
    """The question without words of time that it has, and without what it says of what counts as well: that leaves nothing out."""
    return INCLUSION.sub("", LEAVES_NONE.sub("", without_days(text, period)))


def without_days(text: str, period: Period | None) -> str:
    start, end = period.span if period is not None else (0, 0)
    if period is None or text[start:end] != period.said:
        return text
    again = re.compile(rf"\b{re.escape(period.said)}\b", re.I)  # "the best of 2015 and the worst of 2015"
    return f"{again.sub(' ', text[:start])} , {again.sub(' ', text[end:])}" if period.said else text


def month_as_name(text: str, period: Period | None) -> str | None:
    """The month that a text speaks of as of a person, who may be called so: "trips with April", "June's trips"; else None.

    >>> from datetime import date
    >>> june = Period(date(2026, 6, 1), date(2026, 6, 30), "June", (11, 15), "month")
    >>> [month_as_name(each, june) for each in ("trips with June", "visits for June", "trips upon June")]
    ['June', 'June', None]
    """
    start, end = period.span if period is not None else (0, 0)
    if period is None or period.grain != "month" or text[start:end] != period.said or not period.said.isalpha():
        return None
    before = stems(text[:start])[-1:]
    of_person = {*before} <= word_set("of_person") if before else False
    return period.said if of_person or _GENITIVE.match(text[end:]) else None


def is_name(value: str, first: str) -> bool:
    """Whether a value is the name of a person that begins so.

    >>> is_name("June Park", "june"), is_name("June", "June"), is_name("June special", "June"), is_name("Back in June", "June")
    (True, True, False, False)
    """
    words = value.split()
    plain = all(word[:1].isupper() and re.fullmatch(r"[^\W\d_.'’-]+[\w.'’-]*", word) for word in words)
    return plain and len(words) <= 3 and words[:1] == [first.capitalize()]


def is_missing_field(tokens: Sequence[Token], left: Sequence[Token]) -> bool:
    """Whether the words that are left stand in one place, behind words that ask for a field: "how many tips"."""
    places = [place for place, token in enumerate(tokens) if token.is_left]
    if len(left) > _LONGEST_FIELD or places[-1] - places[0] >= len(places):
        return False
    before = [token for token in tokens[: places[0]] if token.meaning]
    while before and before[-1].role == "field":  # "the best customer rating"
        before.pop()
    asked = before[-1].role in _ASKS_A_FIELD if before else False
    of_it = tokens[places[-1] + 1 : places[-1] + 3]  # "dividend of IBM"
    named = places[0] == 0 and len(of_it) == 2 and of_it[0].stem in word_set("of_it") and of_it[1].role == "value"
    return asked or named or (places[0] == 1 and tokens[0].stem in ("what", "which"))
