"""A follow-up to a question about records as a question of its own: "and last week?", "and the second best?", "what about Mia?".

What it says takes the place of the same in the question before: days, values of a field, the order. It has to say nothing
else, and what comes of it is read like any other question.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import dropwhile, takewhile

from msgspec.structs import replace

from rag_app.answering.leaning import question_before, without_opening
from rag_app.answering.records.asking import without_period
from rag_app.answering.records.conditions import BOUND_OPERATORS
from rag_app.answering.records.hours import read_hours
from rag_app.answering.records.those import point_in_list
from rag_app.answering.records.titles import read_names
from rag_app.answering.records.wording import (
    SUPERLATIVES,
    Token,
    figure,
    join_words,
    read_words,
    stem,
    stems,
    table_of,
    vocabulary_of,
    word_set,
)
from rag_app.domain import YEAR, Question
from rag_app.retrieval.index import IndexSpec, Vocabulary
from rag_app.retrieval.periods import Period
from rag_app.retrieval.records import NamedValue

BOUNDS = frozenset({*BOUND_OPERATORS, "between"})
_BEST = frozenset({"best", "worst"})
_ONE_THING = re.compile(r"\b(?:it|its|that one|this one|that(?=\W*$))\b", re.I)
_ONE_RECORD = frozenset({"high", "low", "newest", "oldest"})
_TAKEN_UP = SUPERLATIVES | BOUNDS | {"value", "ordinal"}
_PLEASE = re.compile(r"[\s,]+please(?=\W*$)", re.I)
_LIMITS = BOUNDS | {"not", "left_out", "on_weekday"}
_FEW = 4  # words that name days or a value, and ask nothing
_OF_THEM = re.compile(
    r"\b(?:of|among|amongst|from) (?:those|them|these)\b(?! (?:who|that|which|with|whose|in|on|from|by|at)\b)"
    r"|\b(?:davon|darunter|d['’]entre (?:eux|elles)|parmi (?:eux|elles))\b",
    re.I,
)
_ONLY_THOSE = re.compile(r"\W*(?:and\s+|but\s+)?(?:only|just)\s+(?:the ones?|those|these)\b", re.I)
_THAT_TIME = re.compile(
    r"\b(?:of|in|during|for|on) (?:that|the same) (day|week|weekend|month|quarter|year|period)\b(?! (?:as|after|before)\b)",
    re.I,
)
_AGAIN = re.compile(r"\b(?:again|another time|the next time|wieder|das nächste mal|de nouveau)\b", re.I)
_POINTS = re.compile(
    r"\b(?:(?P<whose>(?:his|their|its)|her(?=\s+(?!on\b|in\b|for\b|at\b|last\b|this\b)\w))|s?he|him|her|they|them|it|that one|that (?:person|man|woman|lady|guy))\b",
    re.I,
)
_EACH = re.compile(r"\b(?:each|any|all|both|none|every ?one|how many) of them\b|\bthey each\b", re.I)
_EVER = re.compile(r"\b(?:ever|always|usually|all together|in total|altogether|before|normally)\b", re.I)
_ONE_AFTER = re.compile(
    r"(?:(?:who|which|what)(?:['’]?s| is| was| came| comes)? )?(?:then )?"
    r"(?:(?:the )?next(?: (?:one|best))?|(?:the )?(?:one )?(?:after|behind|below|following) (?:that(?: one)?|it|him|her|them))\W*",
    re.I,
)
_YEAR_BESIDE = re.compile(
    r"\b(?:in )?(?:the )?(?:(?P<after>year (?:after|later)|(?:following|next) year)|year (?:before|earlier)|previous year)(?: that| it)?\b",
    re.I,
)
_ONE_BEHIND = re.compile(r"\s+ones?(?=\W*$)", re.I)
_SENTENCE = re.compile(r"(?<=[?!.])\s+|\n")


def questions_before(question: Question) -> tuple[str, ...]:
    """The questions before this one that are looked for together with it, the newest first."""
    return tuple(each for each in reversed(_SENTENCE.split(question_before(question))) if each.strip())


def goes_on_alone(question: Question, spec: IndexSpec, *, first: bool = False) -> bool:
    """Whether a few words go on with something, in an index whose records have fields of their own: "and Mia?".

    In a `first` question "please" goes on with nothing.
    """
    fields = any(words.kind for words in spec.vocabulary.values()) or (len(spec.records) == 1 and bool(spec.vocabulary))
    text = _PLEASE.sub("", question.text) if first else question.text
    rest = without_opening(text)
    return fields and rest != text and len(rest.split()) <= _FEW


def is_whole(question: Question, spec: IndexSpec) -> bool:
    """Whether a question of few words says all itself: "which visits are on Saturday?", "who is booked tomorrow?"."""
    tokens = read_words(without_period(question.text, question.period), spec)
    roles, said = {token.role for token in tokens}, {token.stem for token in tokens}
    if question.period is None or not tokens or _POINTS.search(question.text):
        return False
    who = tokens[0].stem in word_set("who")
    which = tokens[0].stem in word_set("which") and "kind" in roles
    return (who or which) and bool(said & word_set("is"))


def asks_of_those(text: str, spec: IndexSpec, *, first: bool) -> bool:
    """Whether "of those" or "of them" is of what no word before it names, and no list behind it: "How many of those are done?".

    In a `first` question "of these bookings" is of all that there are.
    """
    if _THAT_TIME.search(text) or only_those(text, first=first) or (not first and point_in_list(text)[0]):
        return True
    found = _OF_THEM.search(text)
    if found is None or re.search(r"[,:]|\bor\b", text[found.end() :]):
        return False
    if first and any(token.role == "kind" for token in read_words(text[found.end() :], spec)[:1]):
        return False
    return not any(token.role in ("kind", "field", "value") for token in read_words(text[: found.start()], spec))


def only_those(text: str, *, first: bool = False) -> bool:
    """Whether fewer of the records of the question before are wished for: "only the ones with Ada".

    >>> only_those("only those that are late"), only_those("just the trips of Ada"), only_those("only those", first=True)
    (True, False, False)
    """
    return not first and _ONLY_THOSE.match(text) is not None


def follow(before: Question, text: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> Question | None:
    """The question before with what this one says instead; None where it says nothing of that kind, or anything else."""
    asked, tokens = (read_names(without_period(each.text, each.period), spec, values) for each in (before, text))
    meant = [token for token in tokens if token.meaning is not None]
    if (swapped := _with_other_figure(asked, tokens)) is not None:
        return replace(text, text=swapped, period=text.period or before.period)
    bounded = any(token.role in BOUNDS for token in tokens)
    left = [token for token in tokens if token.is_left and not (bounded and figure(token.text) is not None)]
    other = left or any(token.meaning and token.role not in _TAKEN_UP for token in tokens)
    if other or not (meant or text.period):
        return None
    field = next((token.name for token in asked if token.role in SUPERLATIVES), None)
    ranked = vocabulary_of(spec, field)
    kept = [*_keep_tokens(asked, tokens, ranked)]
    if [token.role for token in meant] == ["ordinal"]:
        place = next((at for at, token in enumerate(kept) if token.role in SUPERLATIVES), None)
        if place is None:
            return None
        kept.insert(place, meant[0])
        tokens = []
    said, at = [Token(_order_text(each, ranked), each.stem, joined=each.joined) for each in tokens], len(kept)
    if {token.role for token in meant} == {"value"}:  # the name stands where the other one stood
        names = {token.name for token in meant}
        at = next((place for place, token in enumerate(asked) if token.role == "value" and token.name in names), at)
    return replace(text, text=join_words((*kept[:at], *said, *kept[at:])), period=text.period or before.period)


def exchange(before: Question, text: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> list[Question]:
    """The question before with what a follow-up names instead of each of the things that it names: "and the dongle?".

    The follow-up names one thing and says nothing else; what stands before it ("for Ada") stands before the other one as well.
    """
    asked, tokens = (read_names(without_period(each.text, each.period), spec, values) for each in (before, text))
    named = [token for token in tokens if token.is_left or token.role == "value" or token.inside]
    plain = all(token in named or token.is_unmeant or token.role == "kind" for token in tokens)
    if (
        text.period is not None
        or not plain
        or not 0 < len(named) <= _FEW
        or any(figure(each.text) for each in tokens[:1])
    ):
        return []
    sides = frozenset().union(*map(word_set, ("of_whom", "for", "prepositions", "partitive")))
    lead = [token.stem for token in tokens[:1] if token.stem in sides]
    said, found = _ONE_BEHIND.sub("", join_words(tokens[len(lead) :])), list[Question]()
    for place, token in enumerate(asked):
        if token.role == "value" and (not lead or lead[0] == _word_before(asked, place, spec)):
            behind = asked[place + 1 + len([*takewhile(lambda each: each.inside, asked[place + 1 :])]) :]
            if token.name == "source_id":  # "the Moor lamp"
                behind = [*dropwhile(lambda each: each.role == "kind", behind)]
            words = (join_words(asked[:place]), said, join_words(behind))
            found.append(replace(text, text=" ".join(filter(None, words)), period=before.period))
    return found


def _word_before(tokens: Sequence[Token], place: int, spec: IndexSpec) -> str:
    """The word before a value, and before the name of its field: "of", of "of ward 3"."""
    name = tokens[place].name
    own = {word for phrase in (name.replace("_", " "), *vocabulary_of(spec, name).words) for word in stems(phrase)}
    return next((token.stem for token in reversed(tokens[:place]) if token.meaning or token.stem not in own), "")


def asks_of_person(text: str) -> bool:
    """Whether one person is spoken of who is not named: "what did she take?", but not "what did each of them pay?"."""
    persons = word_set("persons") | {"they", "their"}
    return any(word in persons for word in re.findall(r"\w+", text.casefold())) and _EACH.search(text) is None


def asks_of_any_day(text: str) -> bool:
    """Whether the days of the question before no longer hold: "has she ever missed one?"."""
    return _EVER.search(text) is not None


def say_place(text: str, before: Sequence[str]) -> str:
    """Whoever comes after the first of an order as one with a place; `before` are the questions before it, the newest first.

    >>> say_place("who's next?", ("which stylist takes the most?",))
    'the second'
    >>> say_place("the one after that", ("and the next?", "which stylist takes the most?"))
    'the third'
    """
    if not _ONE_AFTER.fullmatch(text):
        return text
    place, ordinals = 2, table_of("ordinals")
    for each in map(without_opening, before):
        placed = [int(at) for word, at in ordinals.items() if re.search(rf"\b{word}\b", each, re.I)]
        follows = _ONE_AFTER.fullmatch(each) is not None
        place += placed[0] - 1 if placed else int(follows)
        if placed or not follows:
            break
    return next((f"the {word}" for word, at in ordinals.items() if int(at) == place), text)


def say_year(text: str, before: Sequence[str]) -> str:
    """The year beside that of a question before as a number; `before` are the questions before it, the newest first.

    >>> say_year("and the year after?", ("What did plums yield in 2012?",))
    'and in 2013?'
    >>> say_year("the year before that", ("and the year before?", "what about plums?", "pears in 2012"))
    'in 2010'
    """
    found, steps = _YEAR_BESIDE.search(text), 0
    for each in (text, *before) if found is not None else ():
        beside, years = _YEAR_BESIDE.search(each), YEAR.findall(each)
        steps += 0 if beside is None else 1 if beside["after"] else -1
        if found is not None and len(years) == 1:
            return f"{text[: found.start()]}in {int(years[0]) + steps}{text[found.end() :]}"
    return text


def name_first(text: str, name: str) -> str | None:
    """A text with the name of what an order put first where it points back at it; None where it does not.

    >>> name_first("and what did she take last week", "Mia Berg")
    'and what did Mia Berg take last week'
    >>> name_first("what were her takings", "Mia Berg")
    "what were Mia Berg's takings"
    """
    found = _POINTS.search(text)
    if found is None or _EACH.search(text):
        return None
    own = "'s" if found["whose"] else ""
    return f"{text[: found.start()]}{name}{own}{text[found.end() :]}"


def move_to_time(before: Question, text: Question) -> Question | None:
    """The question before at the time of day that a follow-up says, and nothing else: "and before noon?"."""
    of_day = before.period is not None and before.period.grain == "day"
    if read_hours(before.text, of_day=of_day) is not None:
        return None
    told = read_hours(text.text, of_day=of_day)
    if told is None or text.period is not None or re.search(r"\w", told[0]):
        return None
    return replace(before, text=f"{before.text.rstrip(' ?!.')} {text.text}")


def _with_other_figure(asked: Sequence[Token], tokens: Sequence[Token]) -> str | None:
    """The question before with the one figure that a follow-up says, and at most its field: "and with six cylinders?"."""
    [before, said] = [
        [each for each in some if each.is_left and figure(each.text) is not None] for some in (asked, tokens)
    ]
    fields = {token.meaning for token in asked if token.role in ("field", "unit")}
    rest = [token for token in tokens if token not in said and (not token.said or token.stem in word_set("places"))]
    if len(before) != 1 or len(said) != 1 or any(token.meaning not in fields for token in rest):
        return None
    return " ".join(said[0].text if token is before[0] else token.text for token in asked)


def _order_text(token: Token, ranked: Vocabulary) -> str:
    """A word of a follow-up. "Best" and "worst" are said of the figure that the question before ranks by: "and the worst?"
    after "our best seller" asks for the worst seller."""
    if ranked.best is None or token.role not in _BEST:
        return token.text
    high = (ranked.best == "high") == (token.role == "best")
    return next(iter(ranked.high if high else ranked.low), token.text)


def carry(before: Question, text: Question, spec: IndexSpec, values: Sequence[NamedValue]) -> Question | None:
    """A question that asks something else of what the one before named: "and sold how often?".

    It gets the values, the kind and the days of that one, where it says none of its own. None where there are none.
    """
    asked, tokens = (read_names(without_period(each.text, each.period), spec, values) for each in (before, text))
    again = _AGAIN.search(text.text) is not None  # on another day, and not as it was then
    days = _days_behind(before.period) if again else before.period
    fields = {token.name for token in tokens if token.role == "value"}
    if again:
        fields |= {token.name for token in asked if vocabulary_of(spec, token.name).values}
    taken = {"kind", "own", *(SUPERLATIVES | {"ordinal", "field"} if _ONE_THING.search(text.text) else ())}
    if not any(token.role in ("field", "high", "low", "count") for token in tokens):  # "which day brought the most?"
        taken |= {"field"} if any(token.role in ("most", "least") for token in tokens) else set()
    taken -= {token.role for token in tokens}
    if _asks_of_first(asked, tokens, text, spec):
        return replace(text, text=before.text, period=before.period)
    kept, goes = [], False
    for token in asked:
        value = token.role == "value" and token.name not in fields
        goes = value or token.role in taken or (goes and token.inside)
        kept += [token] if goes else []
    pointing = _THAT_TIME.search(text.text)
    if pointing and (before.period is None or pointing[1].lower() not in (before.period.grain, "period")):
        return None  # the month that an order put first
    bare = " ".join(
        word
        for word in _THAT_TIME.sub("", without_period(text.text, text.period)).split()
        if stem(word.strip("?!.,")) not in word_set("persons")
    )
    if _limits_further(asked):
        return None
    merged = replace(text, text=f"{bare} {join_words(kept)}", period=text.period or days)
    dated = merged.period is not None and (pointing or _OF_THEM.search(text.text))
    return merged if dated or kept else None


def _limits_further(asked: Sequence[Token]) -> bool:
    """Whether more than names and days says which records the question before was about: a bound, a weekday, "not"."""
    figures = any(token.is_left and figure(token.text) is not None for token in asked)
    return figures or any(token.role in _LIMITS for token in asked)


def _days_behind(period: Period | None) -> Period | None:
    """All days after those of a period."""
    if period is None or period.end is None:
        return None
    return Period(period.end + timedelta(days=1), None, "", (0, 0), "days")


def _asks_of_first(asked: Sequence[Token], tokens: Sequence[Token], text: Question, spec: IndexSpec) -> bool:
    """Whether what an order put first is asked for something that its record is told with: "what is its price?"."""
    figures = any(token.role == "field" for token in tokens)
    single = text.period is None and any(token.role in _ONE_RECORD for token in asked)
    pointing = _ONE_THING.search(text.text) or (figures and (single or _OF_THEM.search(text.text)))
    first = any(token.role in SUPERLATIVES for token in asked) and bool(pointing)
    ranked = first or (figures and bool(_EACH.search(text.text)))  # "what did each of them pay?"
    kinds = [spec.records[token.name] for token in asked if token.role == "kind"] or [*spec.records.values()]
    told = " ".join(sentence for kind in kinds for sentence in kind.sentence)
    named = [token for token in tokens if token.meaning is not None or token.is_left]
    fields = all(f"{{{token.name}}}" in told for token in named if token.role == "field")
    return ranked and fields and all(token.role in ("field", "much", "count", "own", "each") for token in named)


def _keep_tokens(asked: Sequence[Token], tokens: Sequence[Token], ranked: Vocabulary) -> Iterator[Token]:
    """What stays of the question before: no values of the same fields, and no order beside another one."""
    roles = {token.role for token in tokens}
    fields = {token.name for token in tokens if token.role == "value"}
    ordered = bool(roles & SUPERLATIVES) and not (
        "ordinal" in roles and roles & {"best", "most"} and ranked.best is None
    )
    goes = False
    for token in asked:
        if token.meaning is not None or token.is_left:
            value = token.role == "value" and token.name in fields
            again = token.role == "ordinal" and ("ordinal" in roles or ordered)
            bound = bool(roles & BOUNDS) and (token.role in BOUNDS or (goes and figure(token.text) is not None))
            goes = value or again or bound or (ordered and token.role in SUPERLATIVES)
        if not goes:
            yield token
