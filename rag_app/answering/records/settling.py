"""What the fields of an index make of a question's words, where the words alone do not tell.

That a field is there at all ("with a rating"), in which of two roles a name stands ("made by Ada"), a year that is a field.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import pairwise, takewhile

from rag_app.answering.records.wording import (
    BOUND_ROLES,
    SUPERLATIVES,
    Meaning,
    Token,
    figure,
    figures_in,
    goes_by,
    in_money,
    is_figure,
    may_mean,
    people_field,
    place_fields,
    price_field,
    says_year,
    stem,
    stems,
    table_of,
    vocabulary_of,
    word_set,
    workers_field,
    year_field,
)
from rag_app.domain import YEAR, FieldType
from rag_app.retrieval.index import IndexSpec
from rag_app.retrieval.periods import Period

THERE = "*"  # the value of a field that is there, whatever it is
_PLAIN = frozenset({FieldType.KEYWORD, FieldType.TIME, FieldType.INTEGER, FieldType.NUMBER})
_LETTERS_COMPARED = 3  # letters
_WORDS_BEHIND = 3  # words between a name and its role: "Ada as the grower"
_FOR_WORDS = frozenset({"for", "für", "pour"})
_FIGURE_ROLES = frozenset({"count", "sum", "average", "much"})


def settle_fields(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """Gives words the meaning that fields lend them."""
    for before, token in pairwise(tokens):
        if token.role in ("field", "total") and token.stem == "time" and figure(before.text) is not None:
            token.meaning, token.said = None, True  # "more than ten times"
    _settle_degrees(tokens, spec)
    _settle_made(tokens, spec)
    _settle_rule(tokens, spec)
    _settle_workers(tokens, spec)
    _settle_where(tokens, spec)
    _settle_compared(tokens, spec)
    _settle_years(tokens, spec)
    _settle_roles(tokens, spec)
    _settle_missing(tokens, spec)
    _settle_numbers(tokens)
    named = {
        _verb(word) for each in tokens if each.meaning and each.role == "value" for word in stems(each.meaning.value)
    }
    for token in tokens:
        token.said = token.said or (token.meaning is None and _verb(token.stem) in named)  # "lose", of "lost a glove"
    for place, token in enumerate(tokens):
        kind = spec.fields.get(token.name)
        if token.role == "field" and kind is FieldType.KEYWORD and _is_in(tokens, place):
            token.meaning = Meaning("unclear")  # "what we have in oak": which oak
        elif token.role == "field" and kind is FieldType.BOOLEAN and _is_of_any(tokens, place):
            token.meaning = Meaning("value", token.name, "true")  # "were sent a reminder"
        elif token.role == "field" and kind in _PLAIN and _is_with_and_without(tokens, place):
            token.meaning = Meaning("unclear")
        elif token.role == "field" and kind in _PLAIN and _says_there(tokens, place, spec):
            token.meaning = Meaning("value", token.name, THERE)
        elif token.is_left and (time := _time_of_deed(tokens, place, spec)) is not None:
            token.meaning, token.said = Meaning("value", time, THERE), True


def times_of(spec: IndexSpec) -> list[str]:
    """The fields that are times, besides a record's own date."""
    return [name for name, kind in spec.fields.items() if kind is FieldType.TIME]


def dated_field(tokens: Sequence[Token], spec: IndexSpec) -> str | None:
    """The field of which a period is that stands right behind these words: "follow-ups in December", "paid in October".

    None for a record's own date; "visits with a follow-up in December" are visits of December.
    """
    meant = [each for each in tokens if not each.inside and (each.meaning or each.is_left)]
    meant = [each for each in meant if each.role != "own" and each.stem != "due"]
    counted = [other for one, other in pairwise(meant) if one.role == "count" and other.name in times_of(spec)]
    if counted or not meant:
        return counted[0].name if counted else None
    if says_year(spec, meant[-1].name):
        return meant[-1].name
    own = {verb for name in times_of(spec) for verb in _own_verbs(spec, name)}
    while (
        len(meant) > 1
        and meant[-1].role == "value"
        and _verb(meant[-1].stem) not in own
        and meant[-1].name not in times_of(spec)
    ):
        meant.pop()  # "paid by card in October"
    last = meant[-1]
    if last.name in times_of(spec):
        place = next(at for at, each in enumerate(tokens) if each is last)
        return None if _lead_of(tokens, place)[0] is not None else last.name
    named = [name for name in times_of(spec) if _verb(last.stem) in _own_verbs(spec, name)]
    return named[0] if len(named) == 1 else None


def drop_verb_of(tokens: Sequence[Token], spec: IndexSpec, name: str) -> None:
    """The word that leads to a period of a field says no more than that: "paid in October"."""
    _drop_verbs([token for token in tokens if token.name != name], _own_verbs(spec, name))


def drop_verb_of_rows(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """The same of the date that a table's rows are of: "planted in June" of a column "Planted on" says no state."""
    meant = [token for token in tokens if not token.inside and (token.meaning or token.is_left)]
    _drop_verbs(meant[-1:], _verbs_in([name for rule in spec.rows for name in rule.date[:1]]))


def _drop_verbs(tokens: Sequence[Token], verbs: Collection[str]) -> None:
    for token in tokens:
        if token.role == "value" and _verb(token.stem) in verbs:
            token.meaning, token.said = None, True


def doers(tokens: Sequence[Token], spec: IndexSpec) -> set[str]:
    """The fields of those who do what a verb of the question says: "how many did Ada grow" is of a grower."""
    verbs = {_verb(token.stem) for token in tokens if token.role in ("", "field") and not token.name}
    return {name for name, bases in _deeds(spec).items() if any(_is_done(verb, bases) for verb in verbs)}


def stands_in_role(name: str, tokens: Sequence[Token], spec: IndexSpec) -> bool:
    """Whether no verb says that a name of one field stands in the role of another one."""
    acting = doers(tokens, spec)
    return not acting or name in acting or name not in _deeds(spec)


def _settle_years(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """A year is the value of the one field of years, where records have no dates: "the whites of 2022"."""
    year = year_field(spec)
    for place, token in enumerate(tokens):
        if year is None or not token.is_left or not YEAR.fullmatch(token.text):
            continue
        before = [each for each in tokens[max(0, place - 4) : place] if not each.inside]
        behind = tokens[place + 1 : place + 2]
        bounded = any(each.role in BOUND_ROLES or each.stem in word_set("than") for each in before[-2:])
        bounded |= any(each.role == "between" for each in before)
        measured = any(each.role == "unit" or is_figure(spec, each.name) for each in behind)
        if bounded or measured:
            continue
        if before and before[-1].role == "field" and before[-1].name == year:
            before[-1].meaning = None
        token.meaning, token.said = Meaning("value", year, f"=={token.text}"), True


def _settle_degrees(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """ "Highest" before the name of another figure is of that one; "the most people" are what has people as its unit."""
    for one, other in pairwise(token for token in tokens if not token.inside):
        named = other.role in ("field", "total") and is_figure(spec, other.name)
        plain = one.role in ("high", "low") and other.name != one.name
        ordered = other.role == "field" and vocabulary_of(spec, other.name).levels
        if ordered and one.role in ("most", "least"):  # "the highest severity"
            one.meaning, other.meaning = Meaning("high" if one.role == "most" else "low", other.name), None
        for role in ("most", "least"):
            if named and plain and may_mean(one.text, role):
                one.meaning = Meaning(role)
        if (
            one.role in ("most", "least")
            and other.role == "unit"
            and not in_money(vocabulary_of(spec, other.name).unit)
        ):
            other.meaning = Meaning("field", other.name)


def _settle_made(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """That something was booked says that there is a record: "who booked most", "how often was it booked"."""
    plain = [token for token in tokens if not token.inside]
    counted = any(token.role == "count" for token in tokens)
    often = counted and any(token.text.casefold() in ("often", "times") for token in tokens)
    who = [token for token in plain[1:2] if plain[0].stem in word_set("who")]
    deeds = {f"{stem(word)}ed" for kind in spec.records.values() for word in kind.words} | word_set("booked")
    for token in plain:
        token.said |= token.is_left and token.text.casefold() in deeds
    of_people = [
        other
        for lead, one, other in zip([None, *plain], plain, plain[1:], strict=False)
        if one.name == people_field(spec) and not (lead and lead.stem in word_set("is") - word_set("has"))
    ]  # "customers booked a cut"
    for token in [*who, *of_people, *(plain if often else ())]:
        if token.role == "value" and token.text.casefold() in word_set("booked"):
            token.meaning, token.said = None, True


def _settle_rule(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """What is charged for what happens, "what do we charge for no-shows", is a rule that no record tells."""
    plain, price = [token for token in tokens if not token.inside], price_field(spec)
    past = any(token.stem in word_set("past") for token in plain)
    if price is None or past or any(token.role in ("kind", "sum", "average", "count") for token in plain):
        return
    for place, (lead, token) in enumerate(pairwise(plain)):
        priced = any(each.name == price for each in plain[:place])
        happened = token.role == "value" and vocabulary_of(spec, token.name).values
        if priced and happened and lead.text.casefold() in _FOR_WORDS:
            token.meaning = Meaning("unclear")


def _settle_workers(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """Of those who work there it is asked who is busy or earns the most; "who earned us the most" may be a customer."""
    plain = [token for token in tokens if not token.inside]
    ranked = any(token.role in ("most", "least") for token in plain)
    works = any(token.stem in word_set("busier") or token.role == "total" for token in plain)
    others = any(token.role in ("field", "kind") and not is_figure(spec, token.name) for token in plain)
    others |= any(token.text.casefold() in word_set("to_us") or token.stem in word_set("spends") for token in tokens)
    workers = workers_field(spec)
    if ranked and works and not others and workers is not None and plain[0].stem in word_set("who"):
        plain[0].meaning = Meaning("field", workers)


def _settle_where(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """ "Where" asks for the one field of places, of which the most or the least is."""
    places, ranked = place_fields(spec), any(token.role in SUPERLATIVES for token in tokens)
    for token in tokens[:2] if ranked and len(places) == 1 else ():
        if token.meaning is None and token.stem in word_set("where"):
            token.meaning = Meaning("field", places[0])


def _settle_compared(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """The values of a field that are to be compared are groups: "compare the districts: ..."."""
    plain = [token for token in tokens if not token.inside]
    measured = any(token.role in _FIGURE_ROLES for token in plain)
    for one, other in pairwise(plain[:3]):
        several = other.role == "field" and other.text.casefold() != other.stem
        keyword = spec.fields.get(other.name) is FieldType.KEYWORD
        if one.role == "apart" and one.stem in word_set("compares") and several and keyword and measured:
            one.meaning = Meaning("each")


def _is_in(tokens: Sequence[Token], place: int) -> bool:
    """Whether "in" leads to the name of a field alone, with no value of it."""
    behind = [each for each in tokens[place + 1 :] if not each.inside][:1]
    known = any(each.role == "value" or each.is_left or each.role == "field" for each in behind)
    return place > 0 and tokens[place - 1].text.casefold() == "in" and not tokens[place - 1].role and not known


def _is_of_any(tokens: Sequence[Token], place: int) -> bool:
    """Whether an article says that what holds or not does: "a reminder"."""
    article = place > 0 and tokens[place - 1].text.casefold() in word_set("some") and not tokens[place - 1].role
    return article and tokens[place].text.casefold() == tokens[place].stem


def time_done(tokens: Sequence[Token], spec: IndexSpec) -> str | None:
    """The time that is named, or that a verb of the question is of: "paid on" of "who was the last to pay"."""
    named = {each.name for each in tokens if each.role == "value" and each.name in times_of(spec)}
    said = {_verb(token.stem): token for token in tokens if token.role in ("", "field", "value")}
    verbs = {each: _own_verbs(spec, each) for each in times_of(spec)}
    found = [*named] or [each for each in verbs if said.keys() & verbs[each]]
    if len(found) != 1:
        return None
    for verb in said.keys() & verbs[found[0]]:
        said[verb].said = True
    return found[0]


def _settle_roles(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """A name that two fields have is of the one whose word or verb stands by it; one in another role is nobody's."""
    acting = doers(tokens, spec)
    for place, token in enumerate(tokens):
        of = {each.name: each for each in token.others if each.role == "value"}
        if token.role in ("unclear", "value") and len(of) > 1:
            beside = [each for each in _roles_beside(tokens, place) if each.name in of]
            named = {each.name for each in beside} | (acting & {*of} if token.role == "unclear" else set())
            if len(named) == 1:
                token.meaning = of[named.pop()]
                for each in beside:
                    each.meaning = None
        said = any(each.role == "field" and each.name == token.name for each in tokens)
        if token.role == "value" and not (said or stands_in_role(token.name, tokens, spec)):
            token.meaning = Meaning("unclear")
    bases = {each for name in acting for each in _deeds(spec)[name]}
    for token in tokens:
        token.said = token.said or _is_done(_verb(token.stem), bases)


def _roles_beside(tokens: Sequence[Token], place: int) -> list[Token]:
    """The name of a field right before a value, or behind "as": "the grower Ada", "Ada as a grower"."""
    found = []
    before = [each for each in tokens[:place] if not each.inside][-2:]
    if before and before[-1].role == "field":
        led = before[0] is not before[-1] and (before[0].role in ("each", "count") or _asks_which(before[0]))
        found += [] if led else [before[-1]]
    behind = [each for each in tokens[place + 1 :] if not each.inside][:_WORDS_BEHIND]
    if behind and behind[0].stem == "as":
        found += [each for each in behind if each.role == "field"]
    return found


def _asks_which(token: Token) -> bool:
    return token.stem in word_set("which_of") | word_set("who")


@cache
def _irregular() -> Mapping[str, str]:
    return {form: verb for verb, forms in table_of("verbs").items() for form in forms.split()}


def _verb(word: str) -> str:
    """
    >>> [_verb(each) for each in ("makes", "made", "grown", "growing", "sells")]
    ['mak', 'mak', 'grow', 'grow', 'sell']
    """
    base = _irregular().get(word, word)
    return re.sub(r"(?:ing|ed|es|s|e)$", "", base) if len(base) > 3 else base


@cache
def _deeds_of(phrases: tuple[str, ...]) -> frozenset[str]:
    words = {word for phrase in phrases for word in stems(phrase) if len(word) > 4}
    return frozenset(word[:-2] for word in words if word.endswith(("er", "or")))


def _deeds(spec: IndexSpec) -> Mapping[str, frozenset[str]]:
    """What those do whose names are values of a field: "grow" of the grower."""
    found = {
        name: _deeds_of((*vocabulary_of(spec, name).words, name.replace("_", " ")))
        for name, kind in spec.fields.items()
        if kind is FieldType.KEYWORD
    }
    return {name: bases for name, bases in found.items() if bases}


def _is_done(verb: str, bases: frozenset[str] | set[str]) -> bool:
    return len(verb) > 2 and any(base.endswith(verb) for base in bases)


def _own_verbs(spec: IndexSpec, name: str) -> set[str]:
    """The words of a time's names that lead to its days: "paid" of "paid on"."""
    return _verbs_in((*vocabulary_of(spec, name).words, name))


def _verbs_in(names: Sequence[str]) -> set[str]:
    """Those of names of times, without those of every date."""
    words = {word for name in names for word in stems(name) if len(word) > 2}
    return {_verb(word) for word in words - word_set("of_dates")}


def _lead_of(tokens: Sequence[Token], place: int) -> tuple[Token | None, bool]:
    """What says before the name of a field that it is there, or not ("with a", "has no"), and whether an article stands there."""
    before = [*tokens[:place]]
    article = False
    while before and before[-1].text.casefold() in word_set("some"):
        article = True
        before.pop()
    last = next((each for each in reversed(before) if not each.inside), None)
    if last is None or not (last is before[-1] or last.role == "not"):
        return None, article
    leads = word_set("with") | word_set("has") | word_set("having") | word_set("gets") | word_set("shows")
    there = last.stem in leads and not last.meaning
    return (last if there or (last.role == "not" and last.stem in word_set("none")) else None), article


def _says_there(tokens: Sequence[Token], place: int, spec: IndexSpec) -> bool:
    """Whether the name of a field says that it is there: "with a rating", "have been rated", "no price yet".

    A time is there wherever its name stands; without an article only where a figure is asked for: "all lots, with price"
    are to be shown with it.
    """
    token, kind = tokens[place], spec.fields[tokens[place].name]
    phrase = 1
    while place + phrase < len(tokens) and tokens[place + phrase].inside:
        phrase += 1
    behind = [each for each in tokens[place + phrase :] if not each.inside][:_WORDS_BEHIND]
    if kind is FieldType.TIME:
        led = any(each.role == "each" for each in tokens[max(0, place - 2) : place])
        return not led
    if is_figure(spec, token.name) and _is_measured(behind):
        return False
    if _is_participle(token, spec):
        return _is_passive(tokens, place, behind)
    lead, article = _lead_of(tokens, place)
    if lead is None:
        return article and _goes_on(tokens, place)
    shows = lead.stem in word_set("shows")
    figured = shows or any(each.role in _FIGURE_ROLES for each in tokens)
    named = any(each.role == "value" and each.name == token.name for each in behind[:1])
    lead.said |= shows and not named
    earned = {each.role for each in tokens} & {"sum", "average"} and tokens[0].stem in word_set("what")
    if earned and lead is tokens[1] and lead.stem in word_set("has"):
        return False  # "what has the ticket desk taken in total"
    begun = {each.stem for each in tokens[:2]}  # "what did hires with children bring in" asks for no list of them
    counts = counts_things(spec, token.name) and begun.isdisjoint(word_set("shows_all") | word_set("does"))
    if counts and behind and behind[0].role == "field" and counts_things(spec, behind[0].name):
        behind[0].meaning, behind[0].said = None, True  # "broken pieces"
    return not named and (lead.role == "not" or article or figured or counts)


def _settle_numbers(tokens: Sequence[Token]) -> None:
    """What records are to be told by is no group, where others put them in order: "the 5 dearest by id"."""
    plain = [each for each in tokens if not each.inside]
    ordered = any(each.role in ("high", "low", "most", "least") for each in plain)
    for by, token in pairwise(plain):
        if ordered and by.role == "each" and by.stem in word_set("prepositions") and goes_by(token.name):
            by.meaning = token.meaning = None


def _settle_missing(tokens: Sequence[Token], spec: IndexSpec) -> None:
    """That a field is not there, said by a word of its own beside the name: "the weight is missing", "lacks a rating", "the price
    was not recorded"."""
    plain = [each for each in tokens if not each.inside and each.text.casefold() not in word_set("some")]
    for place, token in enumerate(plain):
        of_field = token.role == "field" and spec.fields.get(token.name) in _PLAIN
        before, behind = plain[max(0, place - 1) : place], plain[place + 1 : place + 4]
        denied = [each for each in behind if each.role == "not"]
        be = [*takewhile(lambda each: each.stem in word_set("is") | word_set("become") or each.role == "not", behind)]
        last = plain[place + 1 + len(be)] if place + 1 + len(be) < len(plain) else None
        lacking = any(each.role == "not" for each in plain[max(0, place - 5) : place])
        if of_field and lacking and behind and behind[0].stem in word_set("noted") and not behind[0].meaning:
            behind[0].said = True  # "have no weight listed"
        there = Meaning("value", token.name, THERE)
        if of_field and before and _is_missing(before[0]):
            before[0].meaning, token.meaning = Meaning("not"), there
        elif of_field and last is not None and _is_missing(last):
            token.meaning, last.meaning = None if denied else Meaning("not"), there
            for each in denied:
                each.meaning = None
        elif of_field and last is not None and denied and be and last.stem in word_set("noted") and not last.meaning:
            token.meaning, last.meaning, last.said = None, there, True


def _is_missing(token: Token) -> bool:
    of_longer = token.role == "value" and token.meaning is not None and stems(token.meaning.value) != (token.stem,)
    return token.stem in word_set("missing") and (token.meaning is None or of_longer)


def _goes_on(tokens: Sequence[Token], place: int) -> bool:
    """Whether "and" joins a further thing to those that are there: "with a score over 90 and a price"."""
    before = [each for each in tokens[:place] if not each.inside]
    joined = len(before) > 1 and before[-2].stem in word_set("joins") and before[-1].text.casefold() in word_set("some")
    led = any(each.stem in word_set("with") | word_set("has") and not each.role for each in before[:-2])
    return joined and led and not any(each.role == "not" for each in before)


def _is_with_and_without(tokens: Sequence[Token], place: int) -> bool:
    """Whether both are asked for: "with and without a nurse"."""
    before = [each for each in tokens[:place] if not each.inside and each.text.casefold() not in word_set("some")]
    first, joint, last = (*before[-3:], *before[:3])[:3] if len(before) > 2 else (None, None, None)
    if first is None or joint is None or last is None:
        return False
    both = joint.stem in word_set("joins") and first.stem in word_set("with") | word_set("has") | word_set("none")
    return both and (last.role == "not" or last.stem in word_set("with"))


def _is_measured(behind: Sequence[Token]) -> bool:
    """Whether a figure behind its name is compared: "a price of 20", "a price under 20"."""
    for each in behind:
        if each.role in BOUND_ROLES or each.role == "between" or figures_in(each.text):
            return True
        if each.meaning or each.is_left or each.stem in word_set("joins"):
            return False
    return False


def _is_participle(token: Token, spec: IndexSpec) -> bool:
    """Whether the name of a figure stands as a verb: "scored"."""
    own = {stem(word) for word in vocabulary_of(spec, token.name).words}
    beside = any(
        word[:_LETTERS_COMPARED] == token.stem[:_LETTERS_COMPARED] and word != token.stem for word in own
    )  # "rated" beside "rating"
    done = token.text.casefold().endswith("ed") and (token.stem not in own or beside)
    return done and is_figure(spec, token.name)


def _time_of_deed(tokens: Sequence[Token], place: int, spec: IndexSpec) -> str | None:
    """The time that a record has where something was done to it: "aren't finished yet", of `finished_on`."""
    token, behind = tokens[place], [each for each in tokens[place + 1 :] if not each.inside]
    named = [name for name in times_of(spec) if _verb(token.stem) in _own_verbs(spec, name)]
    done = token.text.casefold().endswith("ed") or token.stem in _irregular()
    return named[0] if done and len(named) == 1 and _is_passive(tokens, place, behind) else None


def _is_passive(tokens: Sequence[Token], place: int, behind: Sequence[Token]) -> bool:
    """Whether something was done to records, and nothing more is said: "have been scored", "that are not scored yet"."""
    before = [each for each in tokens[:place] if not each.inside]
    if behind and behind[0].role == "kind":
        return not any(each.role in SUPERLATIVES or each.role == "not" for each in tokens)  # "rated visits"
    been = any(each.stem in word_set("is") | word_set("become") for each in before[-2:])
    been |= any(each.role == "not" for each in before[-3:])
    kinds = any(each.role == "kind" for each in before)
    ends = not behind or behind[0].stem in word_set("still") or behind[0].meaning or behind[0].is_left
    return been and kinds and bool(ends) and not any(each.role in ("best", "worst", "much") for each in tokens)


def counts_zero_as_none(spec: IndexSpec, name: str) -> bool:
    """Whether 0 of a figure is as good as none: of what adds up, of money, of a share."""
    words = vocabulary_of(spec, name)
    none = words.adds_up or in_money(words.unit) or words.unit == "percent" or counts_things(spec, name)
    return is_figure(spec, name) and none


def counts_things(spec: IndexSpec, name: str) -> bool:
    """Whether a figure is a number of things, so that a record without any has 0: "with broken pieces"."""
    whole = spec.fields.get(name) is FieldType.INTEGER and not (goes_by(name) or says_year(spec, name))
    words = vocabulary_of(spec, name)
    last = {stems(phrase)[-1] for phrase in (name.replace("_", " "), *words.words) if stems(phrase)}
    return whole and words.unit in {"", *word_set("durations")} and word_set("no_counts").isdisjoint(last)


def days_label(name: str, period: Period) -> str:
    """How the days of a field are told: "follow up December 2026"."""
    return f"{name.replace('_', ' ')} {period.label}"
