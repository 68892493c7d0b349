"""Whether two sentences, each of which is likely to answer a question, answer it differently.

They do where both are of the things that the question names and of nothing else, and what it asks for differs: the price,
the day, the name of who is in charge, whether something is so. Rules for English; in doubt they do not.
"""

import re
from itertools import product
from math import isclose

from msgspec import Struct

from rag_app.answering.citations import content_words
from rag_app.answering.contrasts import things_apart
from rag_app.answering.disagreement import COLOURS, NO_SUBJECT, Statement, kinds_apart, statement_of
from rag_app.answering.kinds import Kind, has_kind, kind_of, names_in
from rag_app.answering.passages import cells_of
from rag_app.answering.verification.figures import MONEY, UNITS
from rag_app.domain import DAY_NUMBERS, MONTH_NUMBERS, read_table
from rag_app.retrieval.confidence import stem
from rag_app.retrieval.text import NUMBER_WORDS, words_in

_SMALL_DIFFERENCE = 0.08  # "12 weeks" and "three months"
_ALIKE = 5  # letters by which words are compared: "delivered" and "delivery"
_MOST_OF_ITS_OWN = 4  # words that one of two sentences may have beside what both are of
_CALENDAR = frozenset(["year", "month", "date", "weekday", "hour"])
_DAY = frozenset(["month", "date", "weekday"])
_ASKS_WHETHER = re.compile(
    r"(?:and |but |so )?(?:do|does|did|is|are|was|were|can|could|may|must|should|will)\b", re.IGNORECASE
)
# In what is measured what a kind of question asks for; of other kinds, in anything.
_MEASURES = {
    Kind.MONEY: MONEY | {"paid", "percent"},
    Kind.SPAN: {"time"},
    Kind.OFTEN: {"time", ""},
    Kind.LENGTH: {"length", "time"},
    Kind.WEIGHT: {"mass", "pound"},
    Kind.SHARE: {"percent", ""},
    Kind.AGE: {"time", ""},
    Kind.REASON: frozenset(),
}
# Of somebody who holds something; "who complained?" may have many answers.
_ASKS_ONE = re.compile(r"\bwho(?:['’]s\b| is\b| [a-z]+(?<!s)s\b)", re.IGNORECASE)
_EMAILS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")
_PER_CENT = re.compile(r"\bper ?cent", re.IGNORECASE)
_OF_AN_EVENT = re.compile(r"\bwhen (?:was|were|did)\b", re.IGNORECASE)


def _words(key: str) -> str:
    return rf"\b(?:{'|'.join(_LISTS[key])})\b"


_LISTS = read_table(__file__)
_NOT_NOW = re.compile(_words("not_now"))
_DENIES = re.compile(rf"{_words('denies')}(?! (?:be )?(?:only|more|less|\w+er)\b)|n['’]t\b", re.IGNORECASE)
_ENDS, _BEGINS, _SPECIAL = (re.compile(_words(each), re.IGNORECASE) for each in ("ends", "begins", "special"))
_PHASES = [re.compile(rf"\b(?:{each})\b", re.IGNORECASE) for each in _LISTS["phases"]]
_CUT = re.compile(
    r"[;:,.!?]+\s+|(?<!\d)\s[–-]\s|\s\(|\)|\b(?:because|since(?! \d)|so that|as long as|while|otherwise|for reasons? of|due to|any more"
    r"|(?:when you|once (?:everything|all|it|they|you|we)|before (?=(?:it|they|you|we) ))"
    r"|and (?=(?:it|they|you|we|for|an?|the|in|on|at|from)\s))\b",
    re.IGNORECASE,
)
_ANSWER_LABEL = re.compile(r"^(?:answer|a)\s*:\s+", re.IGNORECASE)
_EACH = re.compile(
    r"(?:\b(?:per|an?|each|every)\s|/\s?)(second|minute|hour|day|night|week|month|quarter|year|person|child|head|page|visit)\b",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\d\s?(?:[-–]|to|and)\s?[$£€]?\d|\bfrom [$£€]\s?\d", re.IGNORECASE)
_ADDRESSES = frozenset(words_in("mr mrs ms miss dr prof"))
_FREE = re.compile(r"\b(?:free|charged?|cost|pay|extra)\b", re.IGNORECASE)
_INTRODUCTION = re.compile(
    r"^(?:(?:dear|hello|hi) [^,.]{1,30}, )?(?:yes,? )?(?:(?:in|on|at|during|from|with|by) (?:(?:our|the|an?|this|all) )?[\w'’-]+,? )?",
    re.IGNORECASE,
)
_COUNT = re.compile(rf"(?:\d+|{'|'.join(NUMBER_WORDS.keys() - {'one'})}) (?P<of>[a-z]+)", re.IGNORECASE)
_NO_SUBJECT_FIRST = re.compile(
    r"(?:it|they|we|you|he|she|there|\w+ (?:it|they|them)"
    r"|(?!(?:in|on|at|for|to|of|by|with|from|during|under|over|after|before|if|when|all|both) )\w+ (?:the|your|our))\b",
    re.IGNORECASE,
)
_EVERYBODY = re.compile(r"\b(?:guest|visitor|customer)s?\b", re.IGNORECASE)
_IN_THE_MORNING = re.compile(r"\bin the (?:morning|afternoon|evening)\b", re.IGNORECASE)
_TELL = re.compile(r"^(?:please )?(?:tell|remind|inform|remember|note) (?:\w+ ){0,2}that ", re.IGNORECASE)
_COLOUR = re.compile(r"\bcolou?rs?\b", re.IGNORECASE)
_YES_OR_NO = re.compile(r"(?:yes|no)\b(?! (?:more|less|later|longer|fewer))", re.IGNORECASE)
_AGE = re.compile(r"\b(\d+)(?: or|-year|\+| years)|\baged? (?:of )?(\d+)|\b(?:over|under|from) (\d+)\b", re.IGNORECASE)
_OF_ALL = re.compile(r"\W*(?:all|any|anybody|anyone|both|each|either|every|everybody|everyone)\b", re.IGNORECASE)
_OFTEN = re.compile(
    r"\b(?:every|each) (?:(?P<number>\w+) )?(?P<unit>day|week|month|year|hour)s?\b"
    r"|\b(?:(?P<times>once|twice|\w+ times) )?(?:an?|per|each|every) (?P<each>day|week|month|year|hour)\b|\b(?P<ly>dai|week|month|year|hour)ly\b",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"(?:\b(?:is|are|takes? place)\s+(?:(?:kept|stored|located|held|based|situated|found|dropped|left)\s+)?"
    r"(?=(?:in|on|at|behind|under|next|near|opposite|above|below|beside|outside|inside|the|an?)\s)"
    r"|(?:^|\b(?:go|goes|send|sent|posted|brought|taken|delivered)\s)to\s)(?P<place>.*)",
    re.IGNORECASE,
)
_AT_A_PLACE = re.compile(
    r"\b(?P<place>(?:in|at|behind|under|next to|near|opposite|above|below|beside|outside|inside) (?:the|our|an?)\s"
    r"(?!(?:morning|afternoon|evening|night|spring|summer|autumn|winter|weekend|end|beginning|middle|case)s?\b).*)",
    re.IGNORECASE,
)
_LABELS = re.compile(r"(?:\A|; )[^:;]{1,40}: (?=[^;]*(?:;|\Z))")
_TITLE_CUT = re.compile(r"\s*[:,(–]\s*|\s-\s")


def _stems(text: str) -> frozenset[str]:
    """
    >>> _stems("It is fully charged") == _stems("a full charge")
    True
    """
    return frozenset(map(_stem, content_words(text)))


def _stem(word: str) -> str:
    return re.sub(r"s+$", "", re.sub(r"y$", "i", re.sub(r"(.)\1$", r"\1", stem(word)))[:_ALIKE])


_COLOUR_STEMS = _stems(" ".join(COLOURS))
_PAPERS = _stems(_LISTS["papers"])
_DOCUMENTS = _stems(_LISTS["documents"])
_UNNAMING_STEMS = frozenset(_stem(word) for word in NO_SUBJECT - DAY_NUMBERS.keys() - MONTH_NUMBERS.keys()) | _stems(
    _LISTS["unnaming"]
)
_UNLIMITING_STEMS = _UNNAMING_STEMS | _stems(" ".join([_LISTS["unlimiting"], *DAY_NUMBERS, *MONTH_NUMBERS]))


class Account(Struct, frozen=True):
    """A sentence of a document with this `title`: what it stands under, the sentence that it leans on, and all the text that
    was found with it."""

    text: str
    title: str = ""
    lead: str = ""
    before: str = ""
    document: str = ""

    @property
    def subject_stems(self) -> frozenset[str]:
        """The words for what it is about."""
        return _stems(f"{self.title} {self.lead} {self.before} {self.text}")

    @property
    def required_stems(self) -> frozenset[str]:
        """Those of them that another sentence of the same has to have, too: not what a table calls its columns."""
        cells = cells_of(self.text, 2)
        return (
            _stems(f"{self.title} {self.lead} {self.before} {' '.join(cells.values())}")
            if cells
            else self.subject_stems
        )


def answer_differently(question: str, one: Account, other: Account, *, certain: bool = False) -> bool:
    """`certain`: both are known to answer, so that one may say in another word what the question names.

    >>> asked, one = "What does a cut cost?", Account("A cut is $40, with a wash.")
    >>> [answer_differently(asked, one, Account(text)) for text in ("We charge $45 for a cut.", "Children pay $20 for a cut.")]
    [True, False]
    >>> answer_differently("May dogs come in?", Account("Dogs may come in."), Account("Please note that dogs may not come in."))
    True
    """
    said, clauses = (one, other), (clause_of(question, one), clause_of(question, other))
    if not are_comparable(question, one, other):
        return False
    if not _name_the_same(question, said, clauses, certain) or (
        _are_of_others(*clauses) and kind_of(question) is not Kind.TIME
    ):
        return False
    if _ASKS_WHETHER.match(question):
        return _deny_each_other(question, said, clauses)
    same_denied = (_DENIES.search(clauses[0]) is None) == (_DENIES.search(clauses[1]) is None)
    if kind_of(question) in (Kind.PERSON, Kind.PLACE):
        return same_denied and _name_others(question, said, clauses)
    if kind_of(question) is Kind.EMAIL:
        written = [{*_EMAILS.findall(each.text)} for each in said]
        return all(written) and written[0].isdisjoint(written[1])
    return same_denied and _give_other_values(question, said, clauses)


def are_comparable(question: str, one: Account, other: Account) -> bool:
    """Whether two sentences can contradict each other: both are said to be so, of one document's subject and per one unit."""
    if not (is_so(one.text) and is_so(other.text)) or are_siblings(question, one.title, other.title):
        return False
    if _OF_AN_EVENT.search(question) and _are_of_other_phases(one.text, other.text):
        return False
    if kind_of(question) not in (Kind.PERSON, Kind.PLACE) and (
        _is_of_some(question, one, other) or _is_of_some(question, other, one)
    ):
        return False
    if _is_of_a_row(question, one, other) or _is_of_a_row(question, other, one):
        return False
    is_place = kind_of(question) is Kind.PLACE
    if not is_place and _is_special(question, (_clause(question, one.text), _clause(question, other.text))):
        return False
    units = [{each.casefold() for each in _EACH.findall(said.text)} for said in (one, other)]
    return not (all(units) and units[0].isdisjoint(units[1])) and not are_titled_apart(question, one, other)


def is_so(text: str) -> bool:
    """Whether a sentence says that something is so, and not that it was, may be, or happened to somebody.

    >>> is_so("The fee is £5."), is_so("The fee used to be £5."), is_so("It was £5 until 2020."), is_so("I paid £5.")
    (True, False, False, False)
    """
    return _NOT_NOW.search(text) is None


def are_siblings(question: str, one: str, other: str) -> bool:
    """Whether two titles are of two things of a sort, which a question does not tell apart, or of two numbers or times.

    >>> [are_siblings("", "Plan: Team", each) for each in ("Plan: Business", "The plan", "Team meeting", "Plan: questions")]
    [True, False, False, False]
    >>> are_siblings("", "Pool: prices", "Ice rink: prices"), are_siblings("", "Hall: prices", "Hall: rules")
    (True, False)
    """
    numbers = [re.findall(r"\d+", each) for each in (one, other)]
    if (all(numbers) and numbers[0] != numbers[1]) or _are_of_others(one, other):
        return True
    own = [_stems(each) - _stems(question) - _DOCUMENTS for each in (one, other)]
    if not (own[0] - own[1] and own[1] - own[0]):
        return False
    heads, tails = ([*map(_stems, each)] for each in zip(*map(_halve, (one, other)), strict=True))
    if any(tails):
        same_kind = heads[0] != heads[1] and tails[0] == tails[1] and not any(head & _PAPERS for head in heads)
        return same_kind or (heads[0] == heads[1] and not any(tail & _DOCUMENTS for tail in tails))
    words = [re.findall(r"\w+", each.casefold()) for each in (one, other)]
    return words[0][:1] == words[1][:1] or words[0][-1:] == words[1][-1:]


def _halve(title: str) -> tuple[str, str]:
    """
    >>> _halve("Village hall: hire"), _halve("The hall")
    (('Village hall', 'hire'), ('The hall', ''))
    """
    head, *rest = _TITLE_CUT.split(title, maxsplit=1)
    return head, " ".join(rest)


def _are_apart(question: str, clauses: tuple[str, str]) -> bool:
    """Whether one names a thing of a sort that the other does not, and that is not asked about."""
    asked = f"{question[:1].lower()}{question[1:]}"  # "May I" is no month
    left_out = _EVERYBODY if kind_of(question) is Kind.NUMBER else _IN_THE_MORNING
    return bool(things_apart(*(f"{left_out.sub(' ', each)} {asked}" for each in clauses)))


def _are_of_others(one: str, other: str) -> bool:
    """Whether each names another thing of a sort: children, adults."""
    return any(left and right for left, right in things_apart(one, other))


def clause_of(question: str, one: Account) -> str:
    """The piece of a sentence that says what is asked for; "No", below a question, with that question.

    >>> clause_of("Can I pay by card?", Account("No, we only take cash.", lead="Do you take cards?"))
    'do you take cards? No'
    """
    answer = _YES_OR_NO.match(one.text) if one.lead.endswith("?") and _ASKS_WHETHER.match(question) else None
    return f"{one.lead[:1].lower()}{one.lead[1:]} {answer[0]}" if answer else _clause(question, one.text)


def _clause(question: str, text: str) -> str:
    """The piece of a sentence that says what is asked for: it has a value, and most of the question's words.

    >>> _clause("What does a cut cost?", "With a wash it takes an hour, a cut costs $40; please book.")
    'a cut costs $40'
    """
    text, wanted = _TELL.sub("", _ANSWER_LABEL.sub("", text)), _stems(question)
    kind, whether = kind_of(question), _ASKS_WHETHER.match(question) is not None
    wanted_kinds = _CALENDAR if kind is Kind.TIME else frozenset[str]()

    def has_value(piece: str) -> bool:
        if kind in (Kind.PERSON, Kind.PLACE):
            return any(_stem(name) not in wanted for name in names_in(f"x {piece}"))
        found = statement_of(piece).values.keys() - {"place"}
        return whether or bool(found & (wanted_kinds or found))

    if cells := cells_of(text, 2):
        named = next(iter(cells))
        if whether:
            said = (
                f"{cells[named]}; {label}: {found[0]}"
                for label, cell in cells.items()
                if (found := _YES_OR_NO.match(cell))
            )
            priced = _FREE.search(question) is not None and "paid" in statement_of(text).values
            return next(said, None) or (text if priced else _clause(question, ". ".join(cells.values())))
        titled = {label for label, cell in cells.items() if _stems(f"{label} {cell}") & wanted}
        fitting = {label for label, cell in cells.items() if label != named and kind and has_kind(kind, cell, question)}
        asked = {named} | (titled & fitting or fitting or titled)
        told = "; ".join(f"{label}: {cell}" for label, cell in cells.items() if label in asked)
        return told if has_value(told) else text
    pieces = (piece for piece in _CUT.split(text) if piece.strip())
    names = _names_of(question)
    return max(
        pieces,
        key=lambda piece: (has_value(piece), len(names & _stems(piece)), len(wanted & _stems(piece))),
        default=text,
    )


def _is_special(question: str, clauses: tuple[str, str]) -> bool:
    """Whether just one is of some only: of new customers, of groups, on a condition.

    >>> _is_special("What is the fee?", ("The fee is £5", "New members pay £9")), _is_special("What is it for groups?", ("£5", "Groups: £9"))
    (True, False)
    """
    asked, *named = (
        {each.casefold() for each in _SPECIAL.findall(_LABELS.sub(" ", text))} for text in (question, *clauses)
    )
    return named[0] - asked != named[1] - asked


def _names_of(question: str) -> frozenset[str]:
    """What a question names; of "What date is the open day?" all words, though each says little."""
    words = _stems(question)
    said = words - _stems(_LISTS["unnaming"]) if kind_of(question) is Kind.PLACE else words
    return words - _UNNAMING_STEMS or said or words


def _name_the_same(question: str, said: tuple[Account, Account], clauses: tuple[str, str], certain: bool) -> bool:
    """Whether both are of what the question names, and not each of something of its own beside it."""
    one, other = said
    if kind_of(question) is Kind.PLACE:  # what stands behind is the place
        clauses = (_PLACE.sub("", clauses[0]), _PLACE.sub("", clauses[1]))
    limits = [_limits(clause) - _stems(question) for clause in clauses]
    if _COLOUR.search(question):
        limits = [each - _COLOUR_STEMS for each in limits]
    own = limits[0] - other.subject_stems, limits[1] - one.subject_stems
    wanted = _names_of(question)
    if not wanted & one.subject_stems & other.subject_stems or 2 * len(
        wanted & (one.subject_stems | other.subject_stems)
    ) < len(wanted):
        return False
    if not all(
        (certain and _says_it_otherwise(question, each, extra)) or _is_about_same_names(question, each, like, extra)
        for each, like, extra in zip(said, said[::-1], own, strict=True)
    ):
        return False
    if _OF_AN_EVENT.search(question):
        return not any(extra - _stems(" ".join(names_in(clause))) for extra, clause in zip(own, clauses, strict=True))
    kind = kind_of(question)
    return kind in (Kind.PERSON, Kind.PLACE) or (max(map(len, own)) <= _MOST_OF_ITS_OWN and not all(own))


def _says_it_otherwise(question: str, one: Account, own: frozenset[str]) -> bool:
    """Whether a sentence lacks one word for what a question names, and no name, and limits it by nothing.

    >>> [_says_it_otherwise("Who is in charge of the Orion desk?", Account(text), frozenset()) for text in ("The desk", "The Orion")]
    [False, True]
    """
    persons = _stems(" ".join(names_in(f"x {one.text}"))) if kind_of(question) is Kind.PERSON else frozenset[str]()
    missing = _names_of(question) - one.subject_stems
    return len(missing) == 1 and not own - persons and not missing & _stems(" ".join(names_in(question)))


def _is_of_some(question: str, one: Account, other: Account) -> bool:
    """Whether a sentence that names all that is asked about begins with a word of its own: it says of which of them it is. One
    that does not name all of it says it in other words.

    >>> asked, rule = "How long is the break?", Account("The break is an hour.")
    >>> [_is_of_some(asked, Account(text), rule) for text in ("Cooks have a break of two hours.", "Rests last two hours.")]
    [True, False]
    """
    said = _stems(one.text)
    if (counted := _COUNT.match(one.text)) and counted["of"].casefold() not in UNITS and not _COUNT.match(other.text):
        return True
    if _NO_SUBJECT_FIRST.match(one.text):
        return False
    first = next(
        (each for word in _INTRODUCTION.sub("", one.text).split() for each in _stems(word) if each.isalpha()), ""
    )
    limits = first not in _UNLIMITING_STEMS | _stems(question) | other.subject_stems and _OF_ALL.match(one.text) is None
    return bool(first) and limits and not _names_of(question) - said and not cells_of(one.text, 2)


def _is_of_a_row(question: str, one: Account, other: Account) -> bool:
    """Whether one is a row whose first cell says of which of them it is: unless it is asked whether something is so.

    >>> asked, rule = "How much is a visit?", Account("A visit is £6.")
    >>> [_is_of_a_row(asked, Account(f"Ticket: {name}; Price: £9"), rule) for name in ("Visit", "Visit in winter")]
    [False, True]
    """
    name = next(iter(cells_of(one.text, 2).values()), "")
    own = _stems(name) - _UNLIMITING_STEMS - _stems(question) - other.subject_stems
    return bool(own) and _ASKS_WHETHER.match(question) is None


def _is_about_same_names(question: str, one: Account, other: Account, own: frozenset[str]) -> bool:
    """Whether a sentence, or else its document, names what the other one names of the question, and nothing in its place."""
    wanted = _names_of(question)
    missing = wanted & other.required_stems - one.subject_stems
    if not missing:
        return True
    if own or _stems(one.lead) - _stems(question) - _UNLIMITING_STEMS:
        return False
    is_one_word = len(missing) == 1 and len(wanted & one.subject_stems & other.subject_stems) > 1
    return not missing - _stems(one.document) or (is_one_word and not missing & _stems(" ".join(names_in(question))))


def are_titled_apart(question: str, one: Account, other: Account) -> bool:
    """Whether a title names another thing than a question does, of which the other document speaks.

    >>> fair = Account("Tickets cost £10.", "The summer fair")
    >>> [are_titled_apart("What is a ticket for the summer fair?", Account("", title), fair) for title in ("Winter fair", "Tickets")]
    [True, False]
    """
    asked, whole = _pairs_in(question), [_stems(f"{each.title} {each.document}") for each in (one, other)]
    sides = (one.title, whole[0], whole[1]), (other.title, whole[1], whole[0])
    return any(
        asked & {*product(theirs - own, [head])}
        for title, own, theirs in sides
        for word, head in _pairs_in(title)
        if word not in _stems(question) | theirs | _DOCUMENTS
    )


def _pairs_in(text: str) -> frozenset[tuple[str, str]]:
    """Words with the one that stands behind each.

    >>> sorted(_pairs_in("The pool: summer prices")), _pairs_in("The pool")
    ([('summe', 'pric')], frozenset())
    """
    said = re.findall(r"(?=\b(\w+) (\w+))", text)
    return frozenset(pair for one, other in said for pair in product(_stems(one), _stems(other)))


def _limits(clause: str) -> frozenset[str]:
    """The words of a clause that may say of what, when or for whom it holds: names, and no plain words."""
    clause = _IN_THE_MORNING.sub(" ", _LABELS.sub(" ", clause))
    words = " ".join(re.findall(r"[^\W\d_]{3,}", clause))
    names = names_in(clause) - NO_SUBJECT - _ADDRESSES
    return (_stems(words) - _UNLIMITING_STEMS) | _stems(" ".join(names))


def _deny_each_other(question: str, said: tuple[Account, Account], clauses: tuple[str, str]) -> bool:
    """Whether one is denied that the other says, and not only of a part of it or at some time."""
    denies = [_DENIES.search(clause) is not None for clause in clauses]
    if denies[0] == denies[1]:
        return "paid" in kinds_apart(*map(statement_of, clauses))
    wanted = _names_of(question)
    for each, clause in zip(said, clauses, strict=True):
        if 2 * len(wanted & _stems(each.text) - _stems(clause)) > len(wanted & _stems(clause)):
            return False  # another clause may be of what is asked
    denial, other = clauses if denies[0] else clauses[::-1]
    asked = f"{question[:1].lower()}{question[1:]}"  # "May I" is no month
    around = _stems(f"{question} {other}") | said[1 if denies[0] else 0].subject_stems
    return not _stems(denial) - around - _UNLIMITING_STEMS and not any(
        left - right for left, right in things_apart(denial, f"{asked} {other}")
    )


def _name_others(question: str, said: tuple[Account, Account], clauses: tuple[str, str]) -> bool:
    """Whether each gives another name for the one who, or the place where, something is."""
    is_person = kind_of(question) is Kind.PERSON
    if is_person and not _ASKS_ONE.search(question):
        return False
    places = [match for each in clauses if (match := _PLACE.search(each) or _AT_A_PLACE.search(each))]
    if not is_person and len(places) == len(clauses):
        before = [_stems(each.string[: each.start()]) - _stems(question) - _UNLIMITING_STEMS for each in places]
        there = [_stems(each["place"]) for each in places]
        if any(
            names_in(f"x {each['place']}") & names_in(f"x {account.text}")
            for each, account in zip(places, said[::-1], strict=True)
        ):
            return False
        return bool(there[0] - there[1] and there[1] - there[0]) and not all(before)
    texts = " ".join([question, *(f"{each.document} {each.text}" for each in said)])
    titles = " ".join([question, *(each.title for each in said)]).casefold()
    known = {*_ADDRESSES, *NUMBER_WORDS, *re.findall(r"\b[a-z]\w+", texts), *re.findall(r"\w+", titles)}
    names = [names_in(f"x {clause}") - known for clause in clauses]
    whole = [names_in(f"x {each.text}") for each in said]
    if not all(names) or names[0] & whole[1] or names[1] & whole[0]:
        return False
    own = [
        _stems(clause) - _stems(f"{question} {other}") - _UNLIMITING_STEMS - {_stem(each) for each in named}
        for clause, other, named in zip(clauses, clauses[::-1], names, strict=True)
    ]
    return not (all(own) if is_person else any(own)) and not _are_apart(question, clauses)


def _are_near(one: Statement, other: Statement) -> bool:
    """Whether two spans may be the same in other units: "a year", "365 days"."""
    return any(
        isclose(left, right, rel_tol=_SMALL_DIFFERENCE) for left in one.values["time"] for right in other.values["time"]
    )


def _how_often(clause: str) -> frozenset[float]:
    """How many days lie between, of what a clause says to happen again and again.

    >>> sorted(_how_often("every three days")), sorted(_how_often("twice a week")), sorted(_how_often("Cleaned daily"))
    ([3.0], [3.5], [1.0])
    """
    days = {"hour": 1 / 24, "day": 1, "dai": 1, "week": 7, "month": 30, "year": 365}
    found = set()
    for each in _OFTEN.finditer(clause.casefold()):
        unit = each["unit"] or each["each"] or each["ly"]
        number = NUMBER_WORDS.get(each["number"] or "one", 2 if each["number"] in ("second", "other") else 1)
        times = {"once": 1, "twice": 2}.get(each["times"] or "once") or NUMBER_WORDS.get(
            (each["times"] or "").split()[0], 1
        )
        found.add(days[unit] * number / times)
    return frozenset(found)


def _ages_in(clause: str) -> frozenset[float]:
    """
    >>> sorted(_ages_in("from 16 years of age")), sorted(_ages_in("Everybody aged 18 or over, in room 4"))
    ([16.0], [18.0])
    """
    return frozenset(float(next(filter(None, each))) for each in _AGE.findall(clause))


def _are_of_other_phases(one: str, other: str) -> bool:
    """Whether one is of the beginning of something, and the other of its end: a bridge is begun and opened.

    >>> _are_of_other_phases("It was begun in 1901", "It was opened in 1905")
    True
    """
    named = [{number for number, each in enumerate(_PHASES) if each.search(clause)} for clause in (one, other)]
    return all(named) and named[0].isdisjoint(named[1])


def _give_other_values(question: str, said: tuple[Account, Account], clauses: tuple[str, str]) -> bool:
    """Whether the values of the kind that is asked for are apart, and no other; nor is one of another day or for another unit."""
    measure = {Kind.OFTEN: _how_often, Kind.AGE: _ages_in}.get(kind_of(question) or Kind.REASON)
    if measure is not None and all(measured := [*map(measure, clauses)]):
        same = any(isclose(left, right, rel_tol=_SMALL_DIFFERENCE) for left in measured[0] for right in measured[1])
        return not same and not _are_apart(question, clauses)
    if not kinds_apart(*(statement_of(each.text) for each in said)):
        return False
    kind, told = kind_of(question), [statement_of(clause) for clause in clauses]
    apart = kinds_apart(*told) - ({"paid"} if kind is not Kind.MONEY else set())
    wanted = apart & _MEASURES[kind] if kind in _MEASURES else apart - _CALENDAR if kind else apart
    if _PER_CENT.search(question):
        wanted = apart & {"percent"}
    if kind is Kind.TIME:
        wanted = apart & _CALENDAR or apart & {"time"} or (apart & {""} if _OF_AN_EVENT.search(question) else set())
    if not wanted or apart - wanted or (len(wanted) > 1 and not wanted <= _CALENDAR - {"hour"}):
        return False
    if not wanted & _CALENDAR and (any(map(_RANGE.search, clauses)) or ("time" in wanted and _are_near(*told))):
        return False
    if not wanted & _DAY and (
        _are_apart(question, clauses) or ("year" in told[0].values) != ("year" in told[1].values)
    ):
        return False
    told_of = [
        clause if not wanted & _CALENDAR or _ENDS.search(clause) or _BEGINS.search(clause) else each.text
        for clause, each in zip(clauses, said, strict=True)
    ]
    return not any(
        asked.search(question)
        and any(opposite.search(each) and not (asked.search(each) or _RANGE.search(each)) for each in told_of)
        for asked, opposite in ((_ENDS, _BEGINS), (_BEGINS, _ENDS))
    )
