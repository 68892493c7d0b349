"""The words of a claim against those of its sources: rare content words, names, negation, opposites."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise

from msgspec import Struct

from rag_app.answering.citations import STOP_WORDS
from rag_app.answering.verification.figures import UNITS, FigureSet, figures_of
from rag_app.answering.verification.kinds import FINITE, IMPERATIVES, PREDICATE
from rag_app.domain import DAY_NUMBERS, MONTH_NUMBERS, MONTHS, WEEKDAYS, compile_later, read_table
from rag_app.retrieval.text import NUMBER_WORDS, sentences, tokenizer, words_in

_WORD = compile_later(r"[^\W_]+(?:['’][^\W_]+)?")
_TABLE = read_table(__file__)
_STOP = (STOP_WORDS - {"why"}) | frozenset(words_in(_TABLE["stop"]))  # "was told why" says something
_LISTS: dict[str, frozenset[str]] = {name: frozenset(words_in(words)) for name, words in _TABLE["lists"].items()}
_IRREGULAR = {word: base for base, words in _TABLE["irregular"].items() for word in words.split()}
_ENDINGS = words_in(
    """
    iest ier ies ied ily ations ation ings ing edly ed ements ement ments ment ances ance ences ence ables able ibles ible als al ors
    or ers er ly es s e y ungen ung en em est te ten t ment eurs eur ées ée és é
    """
)
_SHORT = compile_later(r"\A([^aeiou\W]?[aeiou][^aeiou\W]{1,2})(?:ed|ing)\Z")
_ES = compile_later(r"(x|z|ch|sh|ss)es\Z")
NEGATION = compile_later(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without|nowhere|unlike|\w+n['’]t|nicht|kein\w*|nie|niemals|ohne|weder"
    r"|pas|jamais|aucun\w*|sans|nunca|sin|ningún\w*|nunca)\b",
    re.IGNORECASE,
)
_INSTEAD = compile_later(
    r"\b(?:instead of|rather than|apart from|except(?: for)?|other than|with the exception of|(?:leav\w*|left|turn\w*) (?:out|off|down)"
    r"|statt|außer|au lieu de|sauf)\b",
    re.IGNORECASE,
)
_REPORTED_CLAUSE = compile_later(rf"{NEGATION.pattern}[^,;:]*\b(?:that|whether|dass|ob|que|si)\b[^,;:]*", re.IGNORECASE)
_AND = compile_later(r"\b(?:and|or|und|oder|et|ou)\b", re.IGNORECASE)
_NO_NEGATION = compile_later(
    r"\b(?:no (?:longer|later|more|less|doubt|fewer) than|not only|no doubt|no sooner|nothing but|non seulement"
    r"|(?:not|never|\w+n['’]t)(?: \w+){0,3} (?:more|less|fewer|longer|later|earlier|higher|lower) than)\b",
    re.IGNORECASE,
)
_CLAUSE = compile_later(
    r"[;:!?\n|–—()]|\.(?=\s|\Z)|,\s+(?=(?:and|but|so|which|who|or|und|aber|mais|et)\b)|,(?=\s)"
    r"|\b(?:but|while|whereas|although|though|because|unless|however|and)\b",
    re.IGNORECASE,
)
_PART = compile_later(
    r"[;:!?|–—()\n]|[.,](?=\s|\Z)|\b(?:but|while|whereas|although|though|because|unless|however)\b", re.IGNORECASE
)
_RELATIVE = compile_later(r"((?:[A-Z][\w.'’-]*\s)*[A-Z][\w'’-]*), (?:who|which)\b")
_BY_WORD = compile_later(r"\b(?:by|von|durch|par|por)\b", re.IGNORECASE)
_ASIDE = compile_later(r"\(([^()]+)\)|;([^;()]+)")
_CONTRAST = compile_later(r"\b(?:but|while|whereas|although|though|however)\b", re.IGNORECASE)
_UNDONE = compile_later(r"\bun-?(\w{4,})", re.IGNORECASE)
_VERB = compile_later(
    rf"{FINITE.pattern}|\b(?:am|be|been|being|could|should|shall|may|might|kann|können|soll|sollen|muss|müssen|peut|doit)\b",
    re.IGNORECASE,
)
_SUBORDINATE = compile_later(r"(?<=\w\s)(?:why|how|whether)\b", re.IGNORECASE)
_CLOSING_CHARACTERS = " \n\"'”’)*_"
_CAPITALIZED_WORD = compile_later(r"[A-ZÀ-ÖØ-Þ][\w'’&-]*")
_CODE = compile_later(
    r"\b(?=\w*\d)(?=\w*[A-Za-z])(?!\d+(?:st|nd|rd|th|[ap]m|h|k|m|g|kg|km|cm|mm|min|x)\b)\w+\b", re.IGNORECASE
)
_BEFORE_GERMAN_NOUN = compile_later(
    r"\w+(?:e|e[mnrs])|ab|bis|durch|etwa|fast|kein|laut|nur|pro|rund|seit|statt|trotz|während", re.IGNORECASE
)
_BASED_ON = compile_later(r"\A(?:based on|according to|as stated in|from|looking at) [^,;:]{1,80},\s", re.IGNORECASE)
_SUBJECT_VERB = compile_later(
    r"(?:is|was|has|had|will|said|says|wrote|told|\w{2,}ed|went|came|paid|got|left|\w{2,}s)\b"
)
_COMMON_RANK, _RARE_RANK, _LEAST = 2_100, 9_000, 0.25
_LETTERS = 3
MIN_SUPPORT, MIN_CLAUSE, MIN_LEANING = 0.5, 0.2, 0.6
"""Of the content words of a claim, and of its worst clause: the share that its sources must have; and of one
without a citation of its own, which the sentences behind it carry."""
_FIGURE_WEIGHT = 0.7
_WITH_FIGURES = frozenset(
    [
        *UNITS,
        *MONTH_NUMBERS,
        *DAY_NUMBERS,
        *NUMBER_WORDS,
        *words_in("price prices priced cost costs fee fees pay pays paid charge charged amount"),
    ]
)
_SAME_CLAUSE = 0.8
_ENOUGH_SHARED, _DENIED_SHARE = 0.3, 0.5
_MARKS: dict[str, frozenset[str]] = {name: frozenset(words_in(words)) for name, words in _TABLE["marks"].items()}


class Clause(Struct, frozen=True):
    """A part of a sentence that states one thing, in stems. `negated` where it says so openly: then `denied` are the
    words that the negation is of. `undone` are those behind an "un-", `around` those of the whole sentence up to a "but",
    `subject` those before its verb, and `names` those in capitals. The `excepted` stand behind an "instead of" or
    the like."""

    words: frozenset[str]
    negated: bool
    around: frozenset[str]
    denied: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    subject: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    excepted: frozenset[str] = frozenset()


class Passage:
    """What a claim is compared with: the text of the sources it cites, with their titles."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> frozenset[str]:
        return _stems_of(self.text)

    @cached_property
    def spellings(self) -> frozenset[str]:
        return frozenset(re.findall(r"\w+", self.text.casefold()))

    @cached_property
    def figures(self) -> FigureSet:
        return figures_of(self.text)

    @cached_property
    def statements(self) -> tuple[tuple[Clause, ...], ...]:
        """The clauses of each sentence, up to a "but" and behind it; of a header and of a table's row those of each cell.
        A question states nothing."""
        stated = (
            sentence for sentence in sentences(self.text) if not sentence.rstrip(_CLOSING_CHARACTERS).endswith("?")
        )
        cells = (cell for sentence in stated for cell in sentence.split("|"))
        halves = (half for cell in cells for half in _CONTRAST.split(cell))
        return tuple(clauses for half in halves if (clauses := tuple(_clauses_within(half))))

    @cached_property
    def orders(self) -> dict[str, list[tuple[frozenset[str], frozenset[str]]]]:
        """The words before each that may be a verb, and behind it."""
        orders: dict[str, list[tuple[frozenset[str], frozenset[str]]]] = {}
        for verb, before, after in _orders_of(self.text):
            orders.setdefault(verb, []).append((before, after))
        return orders

    @cached_property
    def language(self) -> str | None:
        return language_of(self.text)


def stem(word: str) -> str:
    """A word without its ending, so that its forms agree. It is no word of any language.

    >>> [stem(word) for word in ("waiting", "waited", "cancellation", "cancelled", "arrival", "early", "prices")]
    ['wait', 'wait', 'cancel', 'cancel', 'arriv', 'earl', 'pric']
    """
    return _stem(word.casefold().replace("’", "'").removesuffix("'s"))


@lru_cache(maxsize=1 << 14)
def _stem(word: str) -> str:
    word = _IRREGULAR.get(word, word)
    word = _SHORT.sub(r"\1", _ES.sub(r"\1", word))
    for _ in range(2):
        ending = next(
            (each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= _LETTERS + (len(each) > 1)),
            "",
        )
        if not ending or len(word) <= _LETTERS + 1:
            break
        word = word[: -len(ending)]
    return word[:-1] if len(word) > _LETTERS and word[-1] == word[-2] else word


@lru_cache(maxsize=1 << 14)
def weight(word: str) -> float:
    """How much a word says: 0.25 for the commonest, 1 for a rare one. The tokenizer's vocabulary is ordered by frequency.

    >>> weight("waiting") < weight("bankrupt")
    True
    """
    ranks = [tokenizer().token_to_id(form) for form in (word.casefold(), stem(word))]
    rank = min((rank for rank in ranks if rank is not None), default=_RARE_RANK)
    span = math.log(_RARE_RANK) - math.log(_COMMON_RANK)
    return max(_LEAST, min(1.0, (math.log(max(rank, 1)) - math.log(_COMMON_RANK)) / span))


def telling_words(text: str) -> dict[str, float]:
    """The stems of what a text is about, with their weight."""
    words = (word for word in _meaningful_words(text) if word.casefold() not in _WITH_FIGURES)
    return {stem(word): weight(word) for word in words if stem(word) not in _VAGUE}


def _clauses_within(half: str, *, stated: bool = False) -> list[Clause]:
    """The clauses that have words of content; where they are to be `stated`, no imperatives."""
    around = _stems_of(half) | _undone(half)
    half = _REPORTED_CLAUSE.sub(lambda found: _AND.sub(" ", found[0]), half)  # "did not say that this and that"
    parts = [
        part
        for part in _CLAUSE.split(half)
        if not (stated and IMPERATIVES.intersection(_WORD.findall(part.casefold())[:1]))
    ]
    return [_clause(part, around) for part in parts if _stems_of(part)]


def _clause(part: str, around: frozenset[str]) -> Clause:
    plain = _NO_NEGATION.sub("", part)
    negation, instead, undone = NEGATION.search(plain), _INSTEAD.search(part), _undone(part)
    verbs = [verb for verb in _VERB.finditer(_SUBORDINATE.split(part)[0]) if verb[0] != "a"]
    return Clause(
        words=_stems_of(part) | undone,
        negated=negation is not None,
        around=around,
        denied=(_stems_of(plain[negation.end() :]) or _stems_of(plain)) if negation else frozenset(),
        undone=undone,
        subject=_stems_of(part[: verbs[-1].start()]) - _stems_of(part[verbs[-1].end() :]) if verbs else frozenset(),
        names=_stems_of(" ".join(_CAPITALIZED_WORD.findall(part))),
        excepted=_stems_of(part[instead.end() :]) if instead else frozenset(),
    )


def language_of(text: str) -> str | None:
    """The language whose little words a text has most of; None where it has too few to tell.

    >>> language_of("Der Tarif kostet 20 Euro und ist nicht kündbar."), language_of("Velvet box, 40")
    ('de', None)
    """
    words = re.findall(r"\w+", text.casefold())[:400]
    counts = {name: sum(word in marks for word in words) for name, marks in _MARKS.items()}
    best, second = sorted(counts, key=lambda name: -counts[name])[:2]
    return best if counts[best] > max(1, counts[second]) else None


def support(claim: str, passage: Passage, asked: frozenset[str], stated: int = 0) -> tuple[float, float]:
    """How much of a claim's content words the passage has: of all of it, and of the clause that has least (0..1).

    A rare word counts for more than a common one, and a word of the question (`asked`, stems) for half; each of the
    `stated` figures that were found in the passage counts as a word of it.
    """
    overall: list[tuple[float, bool]] = [(_FIGURE_WEIGHT, True)] * stated
    least = 1.0
    for part in _CLAUSE.split(_BASED_ON.sub("", claim)):
        words = [(_weigh(word, asked), stem(word) in passage.words) for word in dict.fromkeys(_meaningful_words(part))]
        overall += words
        if sum(weighed for weighed, _ in words) >= 1.2:
            least = min(least, _share(words))
    return _share(overall), least


def has_idle_aside(claim: str, passage: Passage) -> bool:
    """Whether a statement in parentheses or after a semicolon has too few of its words in the passage, names aside.

    >>> has_idle_aside("We open at nine (dogs were banned).", Passage("We open at nine."))
    True
    """
    return any(_is_idle("".join(aside), passage) for aside in _ASIDE.findall(claim))


def _is_idle(said: str, passage: Passage) -> bool:
    figures, names = figures_of(said), {name.casefold() for name in _CAPITALIZED_WORD.findall(said)} - _CALENDAR
    stated = len(figures.numbers) + len(figures.dates) + len(figures.times) + len(figures.weekdays)
    words = [word for word in dict.fromkeys(_meaningful_words(said)) if word.casefold() not in names]
    known = [(weight(word), stem(word) in passage.words) for word in words if stem(word) not in _VAGUE]
    return PREDICATE.search(said) is not None and _share(known + [(_FIGURE_WEIGHT, True)] * stated) < MIN_LEANING


def contradicts(claim: str, passage: Passage) -> bool:
    """Whether a clause of the claim is negated where those of the passage that say the same are not, or the other way
    round; or says the opposite of one of their words.

    >>> contradicts("Dogs are not welcome.", Passage("Dogs are welcome.")), contradicts("Dogs may come.", Passage("Dogs are welcome."))
    (True, False)
    """
    return any(
        _is_denied(clause, _alike(clause, passage.statements))
        or _is_denied(clause, _find_covered(clause, passage.statements))
        for half in _CONTRAST.split(claim)
        for clause in _clauses_within(half, stated=True)
    )


def _is_denied(clause: Clause, alike: Sequence[Sequence[Clause]]) -> bool:
    """Whether those that say the same say that it is not so; what is negated has to be said by one of them."""
    if clause.negated:
        said = any(_size(clause.denied & each[0].around) > _DENIED_SHARE * _size(clause.denied) for each in alike)
        return said and not any(_denies_too(clause, statement) for statement in alike)
    return bool(alike) and all(_denies(clause, statement) for statement in alike)


def _denies_too(clause: Clause, statement: Sequence[Clause]) -> bool:
    """Whether a statement has a negation for that of the clause: not only of another part of the same things."""
    words = statement[0].around
    undone = clause.denied - clause.undone
    if words & (_HIDDEN_STEMS - clause.words) or any(
        each.excepted or each.undone & undone or _contradict(clause, each) for each in statement
    ):
        return True
    denied = frozenset[str]().union(*(each.denied for each in statement))
    affirmed = clause.denied & words.difference(*(each.words for each in statement if each.negated))
    return bool(denied) and (bool(denied & clause.denied) or _size(affirmed) < _DENIED_SHARE * _size(clause.denied))


def _is_excepted(clause: Clause, other: Clause) -> bool:
    """Whether a claim is of what the other leaves out: "all but dogs may come"."""
    return not clause.excepted and bool(other.excepted) and other.excepted <= clause.words


def _denies(clause: Clause, statement: Sequence[Clause]) -> bool:
    """Whether a statement negates most of what the clause says, in what is said of its subject, or says the opposite."""
    if any(not each.negated and (_contradict(clause, each) or _is_excepted(clause, each)) for each in statement):
        return True
    if any(each.denied & clause.undone for each in statement):
        return False
    said = clause.words - clause.subject - clause.undone
    return not clause.words & _HIDDEN_STEMS - statement[0].around and any(
        each.denied
        and said & each.words
        and _size(each.denied & clause.words - clause.undone) >= _DENIED_SHARE * _size(each.denied)
        for each in statement
    )


def turns_round(claim: str, passage: Passage) -> bool:
    """Whether a part of the claim says of Y and X what the passage says of X and Y.

    >>> turns_round("Ben called Ann.", Passage("Ann called Ben.")), turns_round("Ben was called by Ann.", Passage("Ann called Ben."))
    (True, False)
    """
    return any(
        before <= then and first <= after and not before & first
        for verb, before, after in _orders_of(claim)
        for first, then in passage.orders.get(verb, ())
    )


def _orders_of(text: str) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    """The words (stems) that may be a verb, with those of their part of the text before and behind, if no "by" turns it round."""
    for part in _PART.split(_RELATIVE.sub(r"\1. \1", text)):
        words = [] if _BY_WORD.search(part) else _WORD.findall(part.casefold())
        stems = [*map(stem, words)]
        telling = ["" if word in _STOP else stemmed for word, stemmed in zip(words, stems, strict=True)]
        for at, (before, word) in enumerate(pairwise(["", *words])):
            subject = frozenset(telling[:at]) - _VAGUE - {""}
            if subject and (word in _LISTS["verbs"] or word not in _STOP) and before not in _LISTS["before_nouns"]:
                yield stems[at], subject, frozenset(telling[at:]) - _VAGUE - {"", stems[at]}


def unknown_names(text: str, known: Iterable[str]) -> list[str]:
    """Names in a text that stand in none of the `known` ones (words in small letters).

    A name is a word that begins with a capital inside a sentence; the first word of one, where another name or a verb
    follows and it is no plural; and what has letters and digits. Titles and German nouns look like names, and are none.

    >>> unknown_names("Maria waited, says Dr. Lopez.", {"lopez"})
    ['Maria']
    """
    begun = (sentence.lstrip("\"'“‘*_#>- ") for sentence in sentences(text))
    german = language_of(text) == "de"
    found = [name for said in begun if not _is_title(said) for name in _names_of(said, german=german)]
    offices = [word for word in re.findall(r"[^\W_]+", text.casefold()) if word in _LISTS["offices"]]
    words = set(known)
    return [name for name in (*found, *offices, *_CODE.findall(text)) if not _is_known(name, words)]


def _names_of(sentence: str, *, german: bool) -> Iterator[str]:
    for match in re.finditer(r"\S+", sentence):
        name, following = _CAPITALIZED_WORD.match(match[0].lstrip("\"'“‘(*_[")), sentence[match.end() :].lstrip()
        if name and (
            _begins_german_name(name[0], following, is_first=not match.start())
            if german
            else match.start() or _begins_with_name(name[0], match[0], following)
        ):
            yield name[0]


def _begins_german_name(word: str, following: str, *, is_first: bool) -> bool:
    """Every noun has a capital there: a name is two in a row, "Lena Fischer" and not "Neue Preise", "Anfang April" or "Wochen Urlaub"."""
    after = _CAPITALIZED_WORD.match(following)
    if after is None or word.casefold() in UNITS or after[0].casefold() in {*MONTH_NUMBERS, *DAY_NUMBERS}:
        return False
    return not (is_first and _BEFORE_GERMAN_NOUN.fullmatch(word))


def _begins_with_name(word: str, whole: str, following: str) -> bool:
    bare = word.casefold().replace("’", "'")
    if bare in _STOP or bare in IMPERATIVES or re.fullmatch(r"\w+(?:ing|ly|s)", bare):
        return False
    after, then = [*following.split(maxsplit=2), "", ""][:2]
    is_name = _CAPITALIZED_WORD.match(after) and after.casefold() not in _STOP | _CALENDAR and not whole.endswith(",")
    is_noun = after.endswith("s") and then != "a" and FINITE.match(then)  # "Payment terms were"
    return bare.endswith("'s") or bool(is_name) or (_SUBJECT_VERB.match(after) is not None and not is_noun)


def _is_title(said: str) -> bool:
    """Whether it is written Like This."""
    words: list[str] = [word for word in re.findall(r"[^\W\d_]{3,}", said) if word.casefold() not in _STOP]
    return len(words) > 1 and not said.rstrip("*_ ").endswith((".", "!")) and all(word[0].isupper() for word in words)


def _is_known(name: str, words: set[str]) -> bool:
    bare = name.casefold().replace("’", "'").removesuffix("'s").strip("'&-")
    parts = [part for part in re.split(r"[-'&’]", bare) if part]
    is_word = bare in _STOP or bare in _CALENDAR or len(bare) < 2
    return is_word or all({part, part.removesuffix("s"), f"{part}s"} & words or part in _STOP for part in parts)


_CALENDAR = frozenset(
    [
        *(month.lower() for month in MONTHS),
        *(f"{day.lower()}{ending}" for day in WEEKDAYS for ending in ("", "s")),
        *words_in("i'm i'd i've i'll ok faq usd eur gbp am pm dr mr mrs ms prof"),
    ]
)


def _alike(clause: Clause, statements: Sequence[tuple[Clause, ...]]) -> list[tuple[Clause, ...]]:
    """The statements that share the most of its words, and those that share nearly as many. Names and what is spoken of
    count for less than what is said of it."""
    weights = {word: _weigh_stem(word, clause) for word in clause.around}
    total = math.fsum(weights.values())
    shares = [math.fsum(weights[word] for word in clause.around & each[0].around) / total for each in statements]
    best = max(shares, default=0.0)
    enough = _SAME_CLAUSE * best if best >= _ENOUGH_SHARED else math.inf
    return [each for each, share in zip(statements, shares, strict=True) if share > enough]


def _find_covered(clause: Clause, statements: Sequence[tuple[Clause, ...]]) -> list[tuple[Clause, ...]]:
    """The negated statements of which the clause, that is not negated, has every word."""
    negated = [(part, each) for each in statements for part in each if part.negated and not clause.negated]
    whole = [each for _, each in negated if len(each[0].around) > 1 and each[0].around <= clause.words]
    parts = [(part, len(each[0].around & clause.words)) for part, each in negated if part.words <= clause.words]
    return whole + [(part,) for part, shared in parts if len(part.words) > 1 or shared > 2]


def _contradict(one: Clause, other: Clause) -> bool:
    """Whether one says "high" where the other says "low", and neither sentence has a word of the other's side; or "unused"
    where the other says "used"."""
    undone = (one.undone & other.words) ^ (other.undone & one.words)
    return bool(undone and not (one.negated or other.negated)) or any(
        one.words & here and other.words & there and not one.around & there and not other.around & here
        for left, right in _OPPOSITE_STEMS
        for here, there in ((left, right), (right, left))
    )


def _weigh_stem(stemmed: str, clause: Clause) -> float:
    beside = 1.0 if stemmed in clause.words else 0.5
    return beside * (
        0.25 if stemmed in clause.names else 0.5 if stemmed in clause.subject or stemmed in _VAGUE else 1.0
    )


def _size(stems: frozenset[str]) -> float:
    return math.fsum(0.5 if each in _VAGUE else 1.0 for each in stems)


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in _meaningful_words(text))


def _undone(text: str) -> frozenset[str]:
    """The stems behind the "un-" of a word: "used" of "unused", and nothing of "under"."""
    rests = (found[1].casefold() for found in _UNDONE.finditer(text) if found[0].casefold() not in _LISTS["denying"])
    return frozenset(stem(rest) for rest in rests if tokenizer().token_to_id(rest) is not None)


def _meaningful_words(text: str) -> list[str]:
    """The words of a text that mean something, as they are written there; no figures."""
    return [
        word
        for word in _WORD.findall(text)
        if not word[0].isdigit() and len(word) > 1 and word.casefold().replace("’", "'") not in _STOP
    ]


def _weigh(word: str, asked: frozenset[str]) -> float:
    stemmed = stem(word)
    return weight(word) * (0.0 if stemmed in _VAGUE else 0.5 if stemmed in asked else 1.0)


def _share(words: Sequence[tuple[float, bool]]) -> float:
    total = sum(weighed for weighed, _ in words)
    return sum(weighed for weighed, known in words if known) / total if total else 1.0


def _stems(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(stem, words))


_VAGUE, _HIDDEN_STEMS = _stems(_LISTS["about_speaking"]), _stems(_LISTS["denying"])
_OPPOSITE_STEMS = [(_stems(words_in(one)), _stems(words_in(other))) for one, other in _TABLE["opposites"]]
