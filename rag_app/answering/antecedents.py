"""What a pronoun of a follow-up stands for: "does it have a lid?" after "How heavy is the Heron?" asks of the Heron.

English rules on the order of words, and on no topic's. The thing of the question before is a name, or what stands behind an
article, agrees in number and is no verb. In doubt the pronoun stays.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.leaning import Leaning, is_date, is_german, leaning_of
from rag_app.domain import compile_later, read_table

_WORDS = {name: frozenset(words.split()) for name, words in read_table(__file__).items()}
_DETERMINERS, _VERBS = _WORDS["determiners"], _WORDS["being"] | _WORDS["helping"]
_NO_NOUNS = _VERBS | _WORDS["subjects"] | _WORDS["joining"] | _WORDS["fronted"] | _WORDS["other"]
_TOKEN = re.compile(r"[\"“„«][^\"“”„«»]+[\"“”»]|['’]s\b|[\w-]+(?:['’](?!s\b)\w+)?|&|[^\w\s]")
_PARTICIPLE = re.compile(r"\w{2,}(?:ed|ing|ly)")
_PLURAL = re.compile(r".*(?<![sui])s", re.IGNORECASE)
_OPENING = r"\W*(?:(?:ok(?:ay)?|well|so|and|but|then|now|right|thanks?|thank you|great)\b[\s,.!]*)*"
# A pronoun in the first clause. "Is it possible" and "how long does it take" are about no thing.
_POINTER = compile_later(
    rf"{_OPENING}(?P<before>[^,;:.!?]*?)\b(?:(?P<whose>its|their|his|her(?= [a-z]+\b)(?! (?:on|in|for|at|last|this)\b))|(?P<theirs>theirs)|(?P<ours>ours)"
    r"|(?P<there>there(?=\W*$|[,?]))|(?P<several>they|them|the ones|(?:those|these)(?=\W*$| (?:are|were|cost|have|do|can)\b))"
    r"|(?P<one>it|he|him|she|her)\b(?! (?:possible|ok(?:ay)?|allowed|necessary|worth|true|better|safe|takes?|took|matters?|depends?|rains?|snows?|called|there|that)\b))\b",
    re.IGNORECASE,
)
_CLAUSE = compile_later(r"\b(?:if|unless|because|once|until|while|since) ", re.IGNORECASE)
_WHAT_IS_IT = compile_later(r"\bwhat (?:is|was) $", re.IGNORECASE)
_MOVES = compile_later(
    r"\s+(?:(?:been|gone|going)\s+)?(?:chang|ris|rose|fall|fell|gr[eo]w|drop|develop|increas|decreas|mov|up|down|compar)",
    re.IGNORECASE,
)
_ASKS_WHO = compile_later(r"\W*who(?:['’]s| is| was)\b", re.IGNORECASE)
_SHORT_VERB = compile_later(r"(?:['’](?:m|re|ve|ll|d)|n['’]t)$", re.IGNORECASE)
_ARTICLE = compile_later(r"(?:an?|the|my|our|your) ", re.IGNORECASE)
_POINTS = compile_later(r"\b(?:it|them|this|that|those|there)\b", re.IGNORECASE)
_SENTENCE = compile_later(r"(?<=[.!?])\s+")
_NO_THING = ("est", "last")  # "the cheapest" of them
_QUOTES = '"“„«'
_MOST_WORDS = 5


class Thing(Struct, frozen=True):
    """What a question names, with the words before it that say how it does so.

    `joined`: "of" or the like stands between it and the thing before it, whose `whole` text goes on with it. `around`: a
    name that says where.
    """

    text: str
    preposition: str
    named: bool
    definite: bool
    plural: bool
    joined: bool
    around: bool
    person: bool
    whole: str

    @property
    def rank(self) -> tuple[bool, ...]:
        """A name before anything else, then what is known; of "the price of the lamp" the lamp."""
        return not self.named, not self.definite, not self.joined


def fill_in(text: str, before: Sequence[str]) -> str:
    """A follow-up with the thing of a question before it, the oldest first, in place of its first pronoun; empty where that is
    in doubt.

    >>> fill_in("does it have a lid?", ["How heavy is the Heron?"]), fill_in("and how many do they sell there?", ["Is it open?"])
    ('does the Heron have a lid?', '')
    >>> fill_in("who keeps its keys?", ["Why is our blue boat house closed?"])
    "who keeps our blue boat house's keys?"
    >>> fill_in("what did we note there?", ["How did demand for paper lamps move?"])
    'what did we note for paper lamps?'
    """
    pointer = _POINTER.match(text)
    if pointer is None or is_german(text) or _CLAUSE.search(pointer["before"]) or _names_any(pointer["before"]):
        return ""
    for asked in reversed(before):
        leans = leaning_of(asked) is Leaning.LEANS
        things = [thing for sentence in reversed(_SENTENCE.split(asked)) for thing in things_of(sentence)]
        if things and (not _POINTS.search(asked) or any(thing.named for thing in things)):
            thing = _choose(things, pointer)
            return f"{pointer['before']}{_word_for(thing, pointer)}{text[pointer.end() :]}" if thing is not None else ""
        if not leans:
            break
    return ""


def things_of(asked: str) -> list[Thing]:
    """The things that a question names, in their order.

    >>> [thing.text for thing in things_of("How long does the battery of the Heron 2 last?")]
    ['the battery', 'the Heron 2']
    >>> [thing.text for thing in things_of("how many paper bags are we sewing for the trial?")]
    ['the paper bags', 'the trial']
    """
    things: list[Thing] = []
    for thing in _read_things(_TOKEN.findall(asked.strip())):
        if thing.joined and things:
            things[-1] = replace(things[-1], whole=f"{things[-1].text} {thing.preposition} {thing.text}")
        things.append(replace(thing, person=thing.person or (thing.named and _ASKS_WHO.match(asked) is not None)))
    return things


def _read_things(tokens: Sequence[str]) -> Iterator[Thing]:
    """Runs of words that are nouns by their place. Behind "does the lamp" a verb is due, behind "is the lamp" what it is: these
    are no part of it."""
    at, due, joined = 0, "", False
    said = [token.casefold().replace("’", "'") for token in tokens]
    while at < len(said):
        start, word = at, said[at]
        fronted = word in _WORDS["fronted"] or word == "many"
        at += fronted or word in _DETERMINERS - _NO_NOUNS
        end = at
        while end < len(said) and (_may_be_noun(tokens, end) or (end > at and _is_owned(tokens, end))):
            end += 1
        if end == at:
            due = _due_after(word, due)
            at, joined = max(at, start + 1), joined and word in _WORDS["joining"]
            continue
        before, after = "".join(said[start - 1 : start]), "".join(said[end : end + 1])
        run, lead = [*tokens[at:end]], word if at > start else ""
        if fronted:
            subject = word == "what" and after not in _VERBS  # "what went wrong"
            run, due = [] if subject else run, "" if subject or after in _VERBS else "verb"
        elif before in _WORDS["subjects"] and not lead:
            run = run[1:]  # "we sell maps"
        else:
            whole, run = run, _without_verb(run, due, after)
            due = due if after in _WORDS["joining"] else ""
            run = [] if len(run) < len(whole) and due != "verb" and lead in ("a", "an") and after == "?" else run
        owners = [place for place, each in enumerate(run) if each in ("'s", "’s")]
        if owners and (owner := _thing(run[: owners[0]], lead, before, first=start == 0, joined=joined)) is not None:
            yield replace(owner, person=owner.named)
        if run and (found := _thing(run, lead, before, first=start == 0, joined=joined)) is not None:
            text = " ".join([found.text, *_predicate_of(said[end:])]) if fronted else found.text
            yield replace(found, text=text, whole=text)
        joined, at = after in _WORDS["joining"], end


def _due_after(word: str, due: str) -> str:
    """What a sentence has to say yet, after a word that is no part of a name."""
    if word in _WORDS["subjects"]:
        return "said"  # "do we have": the verb follows at once
    if due == "said":
        return "" if word in _VERBS else due
    return "verb" if word in _WORDS["helping"] else "state" if word in _WORDS["being"] else due


def _may_be_noun(tokens: Sequence[str], at: int) -> bool:
    """Whether a word may be of a name; "&" may between two."""
    word = tokens[at]
    if word == "&":
        return 0 < at < len(tokens) - 1
    return (
        bool(re.match(r"[\w\"“„«]\w", word + "_"))
        and word.casefold() not in _NO_NOUNS | _DETERMINERS
        and not _SHORT_VERB.search(word)
    )


def _is_owned(tokens: Sequence[str], at: int) -> bool:
    """Whether a word is the "'s" between two nouns."""
    return tokens[at] in ("'s", "’s") and at + 1 < len(tokens) and _may_be_noun(tokens, at + 1)


def _without_verb(run: list[str], due: str, after: str) -> list[str]:
    """The words of a thing without those behind it that say what it does, or how it is."""
    while len(run) > 1 and _PARTICIPLE.fullmatch(run[-1]) and due in ("verb", "state"):
        run, due = run[:-1], "state"
    open_ended = after in _WORDS["joining"] and not (run[0][0].isupper() and run[-1].islower())  # "does the price of"
    is_verb = due == "verb" and not open_ended and after not in _VERBS and (len(run) > 1 or run[0].islower())
    is_state = due == "state" and after in ("", "?") and run[-1].casefold() in _WORDS["states"]
    return run[:-1] if is_verb or is_state else run


def _predicate_of(words: Sequence[str]) -> list[str]:
    """What a question says of what stands at its front, if that is short: "which lamps are being repaired?"."""
    rest = [word for word in words if word != "?"]
    is_said = 1 < len(rest) <= 3 and rest[0] in _WORDS["being"] and rest[-1].endswith("ed")
    return rest[1:] if is_said else []


def _thing(run: Sequence[str], lead: str, preposition: str, *, first: bool, joined: bool) -> Thing | None:
    capitals = any(word[0].isupper() or word[0] in _QUOTES for word in run[first and not lead :])
    dated = capitals and is_date(" ".join(run))
    plural, fronted = _PLURAL.fullmatch(run[-1]) is not None, lead in _WORDS["fronted"] or lead == "many"
    known = capitals or lead in _DETERMINERS - {"its", "their", "his", "her"} or fronted or (plural and not lead)
    plain = run[-1].isdigit() and not capitals
    if not known or dated or plain or len(run) > _MOST_WORDS or run[-1].endswith(_NO_THING):
        return None
    text, around = " ".join(filter(None, ("the" if fronted else lead, *run))), preposition in _WORDS["around"]
    owned = re.search(r" (?=['’]s\b)", text) is not None
    return Thing(
        text=re.sub(r" (?=['’]s\b)", "", text),
        preposition=preposition,
        named=capitals and not (around or owned),
        definite=lead in _WORDS["definite"] or owned,
        plural=plural,
        joined=joined,
        around=capitals and around,
        person=False,
        whole=re.sub(r" (?=['’]s\b)", "", text),
    )


def _choose(things: Sequence[Thing], pointer: "re.Match[str]") -> Thing | None:
    """The thing that a pronoun means, if any of them may be it."""
    word = (pointer["one"] or pointer["whose"] or "").casefold()
    said = set(re.findall(r"\w+", pointer.string.casefold()))
    fits = [thing for thing in things if not said & set(re.findall(r"\w{4,}", thing.text.casefold()))]
    if pointer["there"]:
        fits = [thing for thing in fits if thing.preposition in _WORDS["joining"] | _WORDS["around"]]
    elif word in ("he", "him", "she", "his", "her"):
        fits = [thing for thing in fits if thing.named and not _ARTICLE.match(thing.text)]
    elif word in ("it", "its"):
        fits = [thing for thing in fits if not (thing.around or thing.person) and (thing.named or not thing.plural)]
        figures = [thing for thing in fits if not (thing.named or thing.joined)]
        if _WHAT_IS_IT.search(pointer["before"]) or (figures and _MOVES.match(pointer.string[pointer.end() :])):
            fits = figures
    elif not pointer["ours"]:
        alone = pointer["several"] is None or pointer["several"].casefold() != "the ones"
        fits = [thing for thing in fits if thing.plural or (thing.named and alone)]
    best = min((thing.rank for thing in fits), default=None)
    of_rank = [thing for thing in fits if thing.rank == best]
    return of_rank[0 if of_rank[0].named or of_rank[0].definite else -1] if of_rank else None


def _word_for(thing: Thing, pointer: "re.Match[str]") -> str:
    if pointer["ours"]:
        return "our " + _ARTICLE.sub("", thing.text)
    if pointer["there"]:
        return f"{thing.preposition} {thing.text}"
    if not (pointer["whose"] or pointer["theirs"]):
        return thing.whole
    return f"{thing.text}'" if thing.plural else f"{thing.text}'s"


def _names_any(text: str) -> bool:
    """Whether the words before a pronoun name what it may stand for: those of "the fee for it" do not."""
    things = things_of(text) if text.rstrip().split(" ")[-1] not in _WORDS["joining"] else []
    return any(thing.named or thing.definite for thing in things)
