"""The answer without a model: the sentences of the sources that answer the question, in their own words, cited.

Sentences are ranked by cosine with the question - alone and with the sentence before, under their document's title -,
by the question's rare words, by what they say beyond them, by the relevance of their source, and by how likely each
answers the question (reader.py). A question that asks
several things is taken apart, and each part gets the sentence that answers it best. Against the sentences that people
selected for the 300 answerable questions of CLAP-NQ (dev), F1 is .60 from the right passage; the first three sentences
of the right passage have .509.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import takewhile
from math import fsum, log

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from rag_app.answering.alternatives import are_beside, fits_stated_range, head_of, narrow_row, retell_row, settle_rows
from rag_app.answering.citations import QUOTE_LENGTH, content_words
from rag_app.answering.comparing import compare, name_thing, order_of
from rag_app.answering.context import Context, header_line, neutralise
from rag_app.answering.contrasts import speaks_of_another, speaks_of_asked, write_out_days
from rag_app.answering.disagreement import disagree
from rag_app.answering.editions import asks_for_outdated, seasons_in
from rag_app.answering.kinds import (
    FIGURES,
    Calculation,
    Kind,
    codes_in,
    find_calculation,
    has_kind,
    kind_of,
    names_in,
    needs_value,
    numbers_in,
    only_lists_names,
    states,
)
from rag_app.answering.models import Draft
from rag_app.answering.offers import lacks_asked_sort, names_thing, share_unoffered, thing_priced
from rag_app.answering.passages import (
    SENTENCE_END,
    TO_THE_ANSWERER,
    Passage,
    Ranking,
    cells_of,
    passages,
    passages_in_sections,
    quotable,
    tell_row,
)
from rag_app.answering.providers import EXTRACTIVE
from rag_app.answering.reader import LANGUAGES, Reading, reading_of, the_reader
from rag_app.answering.refusals import language_of, not_understood_here, outdated_text, unanswered_text
from rag_app.answering.restating import take_apart
from rag_app.answering.rival_answers import Account, answer_differently, are_comparable
from rag_app.answering.sections import keep_named_sections, name_sections
from rag_app.answering.sequels import add_sequels, complete_steps
from rag_app.answering.synthesizers import Synthesizer
from rag_app.domain import YEAR, Hit, Period, Question, day_of, day_text
from rag_app.retrieval.confidence import stem
from rag_app.retrieval.embedding import embed_passages, embed_query
from rag_app.retrieval.periods import names_day, names_period
from rag_app.retrieval.text import sentences, words_in

MAX_RANKED = 40
"""Sentences that are embedded for one answer; of more, the most promising (`_promises`)."""
MAX_READ = 8
"""Sentences that the reader reads for each part of a question, the best by what is known before: it takes as long for one
as the embedder for three."""
MAX_FURTHER = 4
"""As many more where none of them answers."""
MAX_CHOSEN = 3
"""Sentences of an answer to one question; each further part of the question may have one more."""
MAX_RIVALS = 12
"""Passages that those of an answer are compared with, the nearest to the question."""
SLACK_OF_RIVALS = 5.0
"""How far below the first sentence's the log-odds of one that answers differently may lie, or else 0."""
LEAST_OF_ROWS = -4.0
"""The least log-odds of a row that answers differently: it is read badly."""
MAX_PARTS = 3
MOST_LOOKED_AT = 2
"""Passages among which one has what a part of the question asks for, or it is not answered."""
SUMMARY_LENGTH = 300
"""Characters of a summary, at most."""
GAP = 0.5
"""How far below the best score a second and third sentence may lie."""
GAP_ELSEWHERE = 0.25
"""The same of a sentence from another source than the first one."""
SLACK = 3.0
"""How far below the first sentence's a further one's log-odds may lie; from `FURTHER` on it may stand, below `LITTLE` only
near the first one."""
FURTHER, LITTLE = 3.0, -1.0
_OVERLAP_WEIGHT, _SOURCE_WEIGHT, _NEWS_WEIGHT = 0.2, 0.2, 0.05
# What decides which sentences are embedded: words of the question before the sentence and above it, the rank of its
# source, how near its chunk is, and what it says beyond the question.
_AROUND_WEIGHT, _RANK_WEIGHT, _NEAR_WEIGHT, _LITTLE_NEWS_WEIGHT = 0.1, 0.1, 0.3, 0.01
READ_WEIGHT = 0.08
"""Of the reader's log-odds."""
MOST_ODDS = 8
AHEAD = 0.2
"""How much better than all others what no longer holds has to answer, in cosine: no other is likely to, then."""
UNLIKELY = -4.0
"""Log-odds of the reader: where no passage has more, nothing answers a part of a question that asks several things."""
LIKELY = 2.0
"""Log-odds from which on a sentence with a figure answers, whether or not it names anything of the question."""
SURE, CERTAIN = 4.0, 6.0
"""Log-odds of the reader from which on a sentence answers, whatever the rules on what is asked for say of it; and the same of
one without the kind of value that is asked for."""
CLEARLY = 1.0
"""Log-odds by which a row that names less of what is asked about has to be likelier than one that names more, and a sentence of
another source less likely than the first to be left out."""
MOST_UNOFFERED = 0.5
"""Share of what a question asks to be offered that no source has: from here on the reader has to be the surer the larger it is."""
_MOST_NEWS = 10
_TITLED_NAME = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|Herrn?|Frau|Mme|Mlle)\.? (?:[A-Z][\w'’-]+ )*([A-Z][\w'’-]+)")
_OF_FIGURES = frozenset(
    words_in(
        "cost price fee charge pay paid much many euro dollar pound euros dollars pounds money set back number amount email mail address telephone phone mobile contact line"
    )
)
_PRICE = re.compile(r"\b(?:charge|cost|fee|kosten|kostet|preis|price|rent)\w*\b", re.IGNORECASE)
_KIND_WEIGHT = 0.1  # for a sentence without the kind of value that a part asks for: a price, a date, somebody's name
_FIGURE_FIRST = re.compile(r"[$£€]?\s?\d")
_AMOUNT = re.compile(r"[$£€]\s?\d[\d.,]*|(?<!\w)\d[\d.,]*[ \u00a0]?[$£€%]|\d+[.,]\d+")  # it names no row
_PART_WEIGHT = 0.5  # of a part of the question; the rest is the whole question's
# For a sentence that follows a chosen one: an answer often goes on where the question's words are no longer repeated.
_NEXT_WEIGHT = 0.05
_SAME = 0.8
_ALIKE, _FEWEST_ALIKE = 0.6, 3  # of the words of a sentence, those of the one that holds now; and how many these are
# Of a part of a question: it is about what the part before is about, and is not answered where that is not.
_REFERS = re.compile(r"\b(?:it|its|they|them|theirs?|that|this|those|these)\b", re.IGNORECASE)
_POINTS_BACK = re.compile(
    r"(?:it|its|they|their|he|his|she|her|this|that|these|those|such|(?:you|we) then|(?:after|before|by|during|for|from|in|since|until|with) (?:this|that|these|those|then))\b",
    re.IGNORECASE,
)
_MOST_ROWS = 10  # of a table, that are quoted where several answer
_LITTLE = 1  # words that carry meaning: a part of a question with no more is read with what is said before it
_ASKS = r"(?:(?:at|from|by|until|for|in|to|on|of|with|about|after|before|under|over|below|above|within) )?(?:who|whom|whose|what|when|where|why|how|which|until)\b"
_ASKS_YES_OR_NO = r"(?:do|does|did|is|are|was|were|can|may|must|should|will)\b"
_GOES_ON = re.compile(r"\b(?:since|from|as of|seit|ab|depuis)\b[^.;]{0,30}\b(?:19|20)\d\d\b", re.IGNORECASE)
_ENDS = re.compile(r"\b(?:to|until|till|bis|jusqu['’]au)\b[^.;]{0,30}\b(?:19|20)\d\d\b", re.IGNORECASE)
_PART = re.compile(
    rf"(?<=[?.!;,])\s+(?=(?:(?:and|but|or|so)\s+)?(?:{_ASKS}|{_ASKS_YES_OR_NO}))|\s+(?=(?:and|but|or)\s+(?:{_ASKS}|{_ASKS_YES_OR_NO}))",
    re.IGNORECASE,
)
_STARTS_ASKING = re.compile(rf"(?:(?:and|but|or|so)\s+)?(?:{_ASKS}|{_ASKS_YES_OR_NO})", re.IGNORECASE)
_ANNOUNCES = re.compile(rf"(?!{_ASKS}|{_ASKS_YES_OR_NO})[^?:]+:\s+(?={_ASKS}|{_ASKS_YES_OR_NO})", re.IGNORECASE)
_HAS_VERB = re.compile(
    r"\b(?:is|are|was|were|am|be|do|does|did|can|could|may|might|must|shall|should|will|would|has|have|had|need|needs|cost|costs)\b|['’](?:s|re|ve|ll|d|m)\b|n['’]t\b|\w{3,}(?:s|ed|t)\b",
    re.IGNORECASE,
)
_GIVES_REASON = re.compile(
    r"\b(because|since|as|so that|due to|owing to|thanks to|otherwise|in order to|the reason|weil|da|denn|wegen|damit|sonst)\b",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[,;:]\s|\s[–—-]\s")
_SHORT, _MOST_OF = (
    2,
    0.6,
)  # letters of a word that names nothing; share of the question's words that a clause has which says it again
_ONLY = re.compile(r"\b(?:only|nur)\b", re.IGNORECASE)  # what is so of one thing alone is not so of the others
_ASKS_WHETHER = re.compile(rf"(?:(?:and|but|or|so)\s+)?{_ASKS_YES_OR_NO}", re.IGNORECASE)


class ExtractiveSynthesizer(Synthesizer):
    """Picks one to three sentences; nothing is made up, and the model is called "extractive"."""

    def __init__(self, embedder: BaseEmbedding) -> None:
        super().__init__()
        self.model, self._embedder = EXTRACTIVE, embedder

    async def write(self, question: Question, context: Context) -> Draft:
        ranking = context.ranking or await rank_passages(self._embedder, question, context)
        if not ranking.ranked:
            return Draft("", EXTRACTIVE)
        scored = score_passages(ranking, context)
        if compared := _compare_figures(ranking, scored, context):
            return Draft(compared, EXTRACTIVE)
        missing = _missing_parts(ranking.asked[1:], scored)
        read = dict(zip(ranking.ranked, scored.read, strict=True))
        chosen = _choose(scored, ranking.ranked, ranking.pool)
        if len(scored.scores) == 1:
            chosen = _keep_likeliest_value(_keep_of_same(chosen, context, question, read), question.text, read)
            chosen = complete_steps(chosen, ranking.pool, question.text)
        chosen = _complete_tables(chosen, ranking.pool, question, read)
        if not chosen or (ranking.asked[1] in missing and find_calculation(ranking.asked[1])):
            return Draft("", EXTRACTIVE)  # what is asked beside a result is about that result
        if context.rows and len({passage.block for passage in chosen}) > 1:
            return Draft("", EXTRACTIVE)
        chosen = _prefer_current(chosen, ranking)
        rivals = _rivals(chosen, ranking, question, context)
        said = [passage for passage in chosen if passage not in rivals][: len(chosen) - len(rivals)]
        said = [each for each in add_sequels([*said, *rivals], ranking.pool, question.text) if each not in rivals]
        said = name_sections(said, _passages_of(context, {each.block for each in said}), question.text)
        if question.period is not None:
            said = [_add_date(passage, context, question.period) for passage in said]
        understood = getattr(self._embedder, "languages", ())
        warning = not_understood_here(question.text, self._embedder.model_name, understood)
        written = (
            rivals and f"Sources disagree: {_tell(rivals, context, question.text)}",
            _compose_text([each for each in said if each.block not in ranking.outdated], context, question.text),
            _tell_outdated([each for each in said if each.block in ranking.outdated], context, question),
            unanswered_text(question.text, missing),
            warning and f"{warning}.",
        )
        return Draft(" ".join(part for part in written if part), EXTRACTIVE)


class PassageScores(Struct, frozen=True):
    """Of the ranked passages: `scores` has a row for each part of the question, and `holds` whether a passage has what
    that part asks for. `read` are the reader's log-odds for the part that
    each fits best."""

    scores: NDArray[np.float64]
    holds: NDArray[np.bool_]
    read: NDArray[np.float64]


def score_passages(ranking: Ranking, context: Context) -> PassageScores:
    """What passages are chosen by: how near they are, alone and with the one before, what spoke for them before, and
    whether they have what is asked for. Nothing has it where no passage is likely to, a part asks for the offer of what no
    source names, or is about the unknown thing of the part before."""
    near = (ranking.cosines + ranking.windows) / 2 + READ_WEIGHT * ranking.read
    lacks = np.asarray([lacks_kind(part, ranking.ranked) for part in ranking.asked[1:]], dtype=bool)
    scores = _PART_WEIGHT * near[1:] + (1 - _PART_WEIGHT) * near[0] + ranking.priors - _KIND_WEIGHT * lacks
    held = np.asarray([holds(part, ranking.ranked) for part in ranking.asked[1:]], dtype=bool)
    apart = np.asarray([_is_apart(part, ranking.ranked) for part in ranking.asked[1:]], dtype=bool)
    held |= ranking.read[1:] >= np.where(lacks | apart, CERTAIN, SURE)
    bare = np.asarray([names_nothing(part, ranking.ranked) for part in ranking.asked[1:]], dtype=bool)
    held &= ~bare | (ranking.read[1:] >= LIKELY)
    titles = [context.blocks[each.block].title for each in ranking.ranked]
    other = [lacks_thing(part, ranking.ranked, titles) for part in ranking.asked[1:]]
    held &= ~np.asarray(other, dtype=bool) | (ranking.read[1:] >= SURE)
    restates = [[gives_no_reason(part, each.text) for each in ranking.ranked] for part in ranking.asked[1:]]
    held &= ~np.asarray(restates, dtype=bool)
    texts = (
        part for each in context.blocks for part in (each.title, each.body, *(named for _, named in each.sections))
    )
    text, unlikely = " ".join(texts), False
    for row, part in enumerate(ranking.asked[1:]):
        odds = ranking.read[row + 1]
        if not held[row][odds >= LITTLE].any() and (odds >= LITTLE).any():
            held[row] = False  # what is likely does not have it, and what has it is not likely
        best = ranking.read[row + 1].max(initial=-np.inf)  # of no passages
        lacking = share_unoffered(part, text)
        unoffered = lacking >= MOST_UNOFFERED and best < SURE * (2 * lacking - 1)
        unoffered |= best < CERTAIN and lacks_asked_sort(part, text)
        unlikely = unoffered or (len(held) > 1 and best < UNLIKELY) or (unlikely and _REFERS.search(part) is not None)
        held[row] &= not unlikely
    return PassageScores(scores, held, ranking.read[1:].max(axis=0))


def lacks_kind(question: str, found: Sequence[Passage]) -> list[bool]:
    """Which passages have no value of the kind that a question asks for: none of them where any sentence may answer it.

    >>> lacks_kind("What does a cut cost?", [Passage(0, 0, "A cut takes an hour."), Passage(0, 1, "A cut is $40.")])
    [True, False]
    """
    kind = kind_of(question)
    return [kind is not None and not has_kind(kind, each.text_with_lead, question) for each in found]


def names_nothing(question: str, found: Sequence[Passage]) -> list[bool]:
    """Which passages name nothing of what a price or another figure is asked of, or not the person; none where the question
    does not either.

    >>> found = [Passage(0, 0, "A bell costs $9."), Passage(0, 1, "$40.", "Saddles")]
    >>> names_nothing("What does a saddle cost?", found), names_nothing("What's the price?", found)
    ([True, False], [False, False])
    """
    persons = content_words(" ".join(each[1] for each in _TITLED_NAME.finditer(question)))
    wanted = persons or (content_words(question) - _OF_FIGURES if kind_of(question) in FIGURES else frozenset())
    stems = {stem(word) for word in wanted if len(word) > 1}  # not the s of "what's"
    there = (content_words(f"{_subject_of(each)} {each.text_with_lead}") for each in found)
    return [bool(stems) and stems.isdisjoint(map(stem, words)) for words in there]


def gives_no_reason(question: str, text: str) -> bool:
    """Whether a text says that which a question asks the reason of, and no reason.

    >>> asked = "Why is the lift closed on Mondays?"
    >>> [gives_no_reason(asked, f"The lift is closed on Mondays, {each}.") for each in ("because it is cleaned", "a firm cleans each cabin")]
    [False, False]
    >>> [gives_no_reason(asked, text) for text in ("It is free; the lift is closed on Mondays.", "As the lift is closed on Mondays, take the stairs.")]
    [True, True]
    """
    if kind_of(question) is not Kind.REASON:
        return False
    asked = {stem(word) for word in content_words(question) if len(word) > _SHORT}
    clauses = _CLAUSE_END.split(text)
    said = [[stem(word) for word in content_words(clause)] for clause in clauses]
    told = max(range(len(clauses)), key=lambda place: len(asked & {*said[place]}))
    if len(asked & {*said[told]}) < _MOST_OF * len(asked) or len(asked) < _FEWEST_ALIKE:
        return False
    reasons = [place for place, clause in enumerate(clauses) if _GIVES_REASON.search(clause)]
    if reasons == [told]:
        _, _, reason = _GIVES_REASON.split(clauses[told], 1)
        return len(asked & {stem(word) for word in content_words(reason)}) >= _MOST_OF * len(asked)
    return not reasons and sum(map(len, said[told + 1 :])) < _FEWEST_ALIKE


def lacks_thing(question: str, found: Sequence[Passage], titles: Sequence[str]) -> list[bool]:
    """Which passages, of sources with these titles, do not name the thing whose price a question asks for, or whoever is to be
    reached.

    >>> lacks_thing("What does a saddle cost?", [Passage(0, 0, "A bell costs $9."), Passage(0, 1, "$40.", "Saddles")], ["", ""])
    [True, False]
    """
    thing = thing_priced(question)
    reached = names_in(question) if kind_of(question) in (Kind.PHONE, Kind.EMAIL) else set()
    strangers = _name_another(question, found)
    told = [f"{title} {_subject_of(each)} {each.text_with_lead}" for each, title in zip(found, titles, strict=True)]
    return [
        (thing != "" and not names_thing(each, thing))
        or (reached != set() and not any(names_thing(each, name) for name in reached))
        or (passage in strangers and not any(names_thing(each, name) for name in names_in(question)))
        for passage, each in zip(found, told, strict=True)
    ]


def _name_another(question: str, found: Sequence[Passage]) -> list[Passage]:
    """The sentences that name others than the question, which asks for a figure of somebody whom few of them name.

    >>> told = ("Hill & Sons give ten years.", "The offer of Dray Roofing is £7,150.", "Ten years at most.")
    >>> [each.place for each in _name_another("How many years does Dray Roofing give?", [Passage(0, n, each) for n, each in enumerate(told)])]
    [0]
    """
    wanted = names_in(question) if kind_of(question) in (*FIGURES, Kind.SPAN) else set()
    named = [names_in(each.text) for each in found]
    times = [sum(name in each for each in named) for name in wanted]
    if not wanted or not all(0 < each <= MOST_LOOKED_AT for each in times):
        return []
    rows = [cells_of(each.text, 2) != {} for each in found]
    return [each for each, names, row in zip(found, named, rows, strict=True) if names and not (row or names & wanted)]


def _subject_of(passage: Passage) -> str:
    """The heading of the section, where a passage says nothing of what it is about: of a row, and of "They are £12"."""
    return passage.section if cells_of(passage.text, 2) or _POINTS_BACK.match(passage.text) else ""


def holds(question: str, found: Sequence[Passage]) -> list[bool]:
    """Which passages can answer a question: those with a figure where one is asked for, and of the same thing; of what is to
    be worked out over several things those that state the result themselves.

    >>> holds("How many dogs live here?", [Passage(0, 0, "Dogs are welcome."), Passage(0, 1, "Two dogs live here.")])
    [False, True]
    """
    result, needed = find_calculation(question), needs_value(question)
    lacking = [
        lacks and (needed or _has_figures_alone(each, question))
        for each, lacks in zip(found, lacks_kind(question, found), strict=True)
    ]
    return [
        not (lacks or apart)
        and (result is None or states(result, each.text_with_lead, question) or _counts_for(result, each, question))
        for each, lacks, apart in zip(found, lacking, _is_apart(question, found), strict=True)
    ]


def _is_apart(question: str, found: Sequence[Passage]) -> list[bool]:
    """Which passages are of another thing of a sort than the one whose figure a question asks for.

    >>> _is_apart("How long is the night shift?", [Passage(0, 0, "The evening shift: four hours"), Passage(0, 1, "Four hours.")])
    [True, False]
    """
    measured = kind_of(question) in (*FIGURES, Kind.SPAN, Kind.OFTEN) or _PRICE.search(question) is not None
    return [measured and speaks_of_another(question, each.text_with_lead) for each in found]


def _has_figures_alone(row: Passage, question: str) -> bool:
    """Whether all cells of a row are figures, but for those that the question names: "Boxes: 35 days" says no place or person.

    >>> row = Passage(0, 0, "Data: Photos; Kept for: 35 days")
    >>> _has_figures_alone(row, "Where are the photos stored?"), _has_figures_alone(row, "Where is it?")
    (True, False)
    """
    if kind_of(question) not in (Kind.PLACE, Kind.PERSON):
        return False
    asked = content_words(question)
    others = [said for said in cells_of(row.text, 2).values() if asked.isdisjoint(content_words(said))]
    return bool(others) and all(_FIGURE_FIRST.match(said) for said in others)


def _counts_for(result: Calculation, row: Passage, question: str) -> bool:
    """Whether a row says how many there are for the figure of the question: "Contract: 32 hours; Leave: 23"."""
    return result is Calculation.COUNT and cells_of(row.text, 2) != {} and fits_stated_range(question, row) is True


async def rank_passages(embedder: BaseEmbedding, question: Question, context: Context) -> Ranking:
    """What of a context may answer a question, with cosines; each distinct text is embedded once.

    A sentence of the question's words alone says nothing, unless whether it is so was asked.

    Who needs it before the answer is written puts it into the context's `ranking`, where the synthesizer finds it.
    Raises EmbeddingFailed.
    """
    pool = _select_passages(question, context)
    outdated = _outdated_blocks(question, context)
    current = tuple(each for each in pool if each.block not in outdated)
    ranking = replace(await _rank(embedder, question, context, current), outdated=outdated)
    if len(current) == len(pool) or ranking.read.max(initial=-MOST_ODDS) >= LIKELY:
        return ranking
    everything = await _rank(embedder, question, context, pool)
    return replace(everything, outdated=outdated) if _strength(everything) > _strength(ranking) + AHEAD else ranking


def _select_passages(question: Question, context: Context) -> tuple[Passage, ...]:
    """The passages of a context that are of what the question names."""
    pool = tuple(
        narrow_row(each, question.text)
        for each in _passages_of(context, range(len(context.blocks)))
        if not _is_of_another(each, context, question.text)
        and not (question.period is not None and _is_of_other_year(each.text, question.period))
        and not _is_of_other_season(each, context, question.text)
        and not only_lists_names(each.text, question.text)
    )
    timed = {each.block for each in pool if speaks_of_asked(question.text, each.text_with_lead, times=True)}
    pool = tuple(
        each
        for each in pool
        if not (each.block in timed and speaks_of_another(question.text, each.text_with_lead, times=True))
    )
    return tuple(keep_named_sections(pool, question))


def _outdated_blocks(question: Question, context: Context) -> frozenset[int]:
    """Those of sources that no longer hold, unless the question is about what once held."""
    titles = [block.title for block in context.blocks]
    return frozenset(
        number
        for number, block in enumerate(context.blocks)
        if block.outdated
        and not asks_for_outdated(question.text, block.title, [*titles[:number], *titles[number + 1 :]])
    )


def _prefer_current(chosen: Sequence[Passage], ranking: Ranking) -> list[Passage]:
    """What was chosen, with the passage of another source that says it in much the same words in place of one that no longer holds."""
    if not ranking.outdated:
        return [*dict.fromkeys(chosen)]
    words = {each: {word for word in content_words(each.text) if word.isalpha()} for each in ranking.pool}
    current = [each for each in ranking.pool if each.block not in ranking.outdated]

    def say_now(one: Passage) -> Passage:
        shares = [len(words[one] & words[other]) / max(_FEWEST_ALIKE, len(words[one])) for other in current]
        return current[int(np.argmax(shares))] if max(shares, default=0.0) >= _ALIKE else one

    told = [say_now(each) if each.block in ranking.outdated else each for each in chosen]
    return [*dict.fromkeys(told)]


def _strength(ranking: Ranking) -> float:
    """How well the best passage answers, by its meaning and by the reader."""
    return float((ranking.cosines + READ_WEIGHT * ranking.read).max(initial=-MOST_ODDS))


async def _rank(embedder: BaseEmbedding, question: Question, context: Context, pool: tuple[Passage, ...]) -> Ranking:
    """The passages of `pool`, with what speaks for each."""
    promises = _promises(pool, question, context)
    asked = (question.searched or question.text, *parts(question.text))
    echoed = frozenset() if any(map(_ASKS_WHETHER.match, asked)) else content_words(asked[0])
    says = [i for i in np.argsort(-promises, kind="stable") if content_words(pool[i].text) - echoed]
    ranked = tuple(pool[i] for i in sorted(says[:MAX_RANKED]))
    if not ranked:
        nothing = np.empty((len(asked), 0))
        return Ranking(asked, pool, ranked, nothing, nothing, nothing[0], nothing)
    wanted = {text: await embed_query(embedder, text) for text in dict.fromkeys(asked)}
    questions = np.asarray([wanted[text] for text in asked])
    own = await embed_passages(embedder, [_with_title(passage, context) for passage in ranked])
    # what a sentence says often leans on the one before it
    follows = [
        n > 0 and (one.block, one.place) == (ranked[n - 1].block, ranked[n - 1].place + 1)
        for n, one in enumerate(ranked)
    ]
    windows = own + np.where(np.asarray(follows)[:, None], np.roll(own, 1, axis=0), 0)
    windows /= np.maximum(np.linalg.norm(windows, axis=1, keepdims=True), 1e-9)
    cosines, others = questions @ own.T, questions @ windows.T
    priors = _priors(ranked, question, context)
    read = await _read(add_context(question, asked), pool, ranked, (cosines + others) / 2 + priors, context)
    return settle_rows(Ranking(asked, pool, ranked, cosines, others, priors, read), question.text)


def _passages_of(context: Context, blocks: Iterable[int]) -> list[Passage]:
    return [
        passage
        for number in blocks
        for passage in passages_in_sections(context.blocks[number].body, number, context.blocks[number].sections)
    ]


async def _read(
    asked: Sequence[str],
    pool: Sequence[Passage],
    ranked: Sequence[Passage],
    promising: NDArray[np.float64],
    context: Context,
) -> NDArray[np.float64]:
    """The reader's log-odds, of the most promising passages for each of what is asked."""
    if language_of(asked[0]) not in LANGUAGES:
        return np.zeros_like(promising)
    said_before = {(each.block, each.place + 1): each.text for each in pool}
    wanted = content_words(asked[0])

    def names_section(each: Passage) -> bool:
        """Whether the question names what is in the heading of the section, and not in the title."""
        return bool(wanted & content_words(each.section) - content_words(context.blocks[each.block].title))

    # Sections of several things are told apart by their headings, for a question that names one of them whole.
    parted = {each.block for each in pool if len(words := content_words(each.section)) > 1 and words <= wanted}

    def shows_section(each: Passage) -> bool:
        return each.block in parted or (_POINTS_BACK.match(each.text) is not None and names_section(each))

    readings = [
        reading_of(
            write_out_days(each.text),
            context.blocks[each.block].title,
            each.lead or each.name or (each.section if shows_section(each) else ""),
            said_before.get((each.block, each.place), ""),
        )
        for each in ranked
    ]
    odds = np.empty_like(promising)
    for row, text in enumerate(asked):
        if text in asked[:row]:
            odds[row] = odds[asked.index(text)]
            continue
        nearest = np.argsort(-promising[row], kind="stable")
        scores = await _odds(text, [readings[place] for place in nearest[:MAX_READ]])
        if scores.max() < 0:  # none of them rather answers than not
            further = [readings[place] for place in nearest[MAX_READ : MAX_READ + MAX_FURTHER]]
            scores = np.append(scores, await _odds(text, further))
        odds[row], odds[row, nearest[: len(scores)]] = scores.min(), scores
        rows = [place for place in nearest[: len(scores)] if cells_of(ranked[place].text)]
        for place in rows:
            if _names_everything(ranked[place], text):
                odds[row, place] = max(odds[row, place], LIKELY)
        best = max((odds[row, place] for place in rows), default=0.0)
        for place in [each for each in rows if odds[row, each] > best - CLEARLY]:
            told = [write_out_days(each) for each in retell_row(ranked[place], text, pool)]
            retold = [replace(readings[place], text=each, before="") for each in told]  # not behind another row
            odds[row, place] = max(odds[row, place], *await _odds(text, retold))
    return odds


def _names_everything(row: Passage, question: str) -> bool:
    """Whether a row of a table, with its columns and its heading, has all words of a question, and the kind of value it asks for.

    >>> row = Passage(0, 0, "House: Mill; Lift: £2.60; Laundry: £1", section="Charges per week")
    >>> [_names_everything(row, f"What is the weekly {each} charge of Mill House?") for each in ("lift", "garden")]
    [True, False]
    """
    kind, cells = kind_of(question), cells_of(row.text)
    asked = {stem(word) for word in content_words(question) - _OF_FIGURES}
    named = {stem(word) for word in content_words(f"{row.section} {row.text}")}
    return (
        kind is not None
        and len(asked) >= _FEWEST_ALIKE
        and asked <= named
        and has_kind(kind, " ".join(cells.values()), question)
    )


async def _odds(text: str, readings: Sequence[Reading]) -> NDArray[np.float64]:
    return np.clip(await the_reader().read(text, readings), -MOST_ODDS, MOST_ODDS)


def _with_title(passage: Passage, context: Context) -> str:
    """What is embedded: a sentence rarely names what its document is about."""
    title = context.blocks[passage.block].title
    return " ".join(part for part in (title and f"{title}:", passage.lead, passage.text) if part)


def _promises(pool: Sequence[Passage], question: Question, context: Context) -> NDArray[np.float64]:
    """How promising each passage is before anything is embedded: the question's words in it, in the sentence before and in
    the heading above, how early its source was found, and how near its chunk is. Who answers in other words is found by the
    last two.
    """
    wanted = content_words(question.searched or question.text)
    words = [content_words(passage.text) for passage in pool]
    said_before = {(each.block, each.place + 1): said for each, said in zip(pool, words, strict=True)}
    rarity = _rarity(words, wanted)
    return np.asarray(
        [
            _OVERLAP_WEIGHT * _share(said, rarity)
            + _AROUND_WEIGHT * _share(said_before.get((passage.block, passage.place), set()), rarity)
            + _AROUND_WEIGHT * _share(content_words(passage.lead), rarity)
            + _RANK_WEIGHT / (1 + passage.block)
            + _NEAR_WEIGHT * _nearness(passage, context)
            + _LITTLE_NEWS_WEIGHT * log(1 + min(_MOST_NEWS, len(said - wanted)))
            for passage, said in zip(pool, words, strict=True)
        ]
    )


def _nearness(passage: Passage, context: Context) -> float:
    """Cosine similarity of the chunk that a passage stands in; of a row of a table, which is told in other words, its source's."""
    block = context.blocks[passage.block]
    return max((hit.score for hit in block.hits if passage.text in hit.text), default=block.score)


def _priors(pool: Sequence[Passage], question: Question, context: Context) -> NDArray[np.float64]:
    """What speaks for each passage besides its meaning: the question's words in it, the rare ones most, what it says beyond
    them, and its source.
    """
    wanted = content_words(question.searched or question.text)
    words = [content_words(passage.text) for passage in pool]
    rarity = _rarity(words, wanted)
    return np.asarray(
        [
            _OVERLAP_WEIGHT * _share(said, rarity)
            + _NEWS_WEIGHT * log(1 + min(_MOST_NEWS, len(said - wanted)))
            + _SOURCE_WEIGHT * context.blocks[passage.block].score
            for passage, said in zip(pool, words, strict=True)
        ]
    )


def _rarity(words: Sequence[Set[str]], wanted: Set[str]) -> dict[str, float]:
    """How rare each wanted word is among passages of these words."""
    known = Counter(word for each in words for word in each & wanted)
    return {word: log((len(words) + 1) / (known[word] + 0.5)) for word in wanted}


def _share(said: Set[str], rarity: Mapping[str, float]) -> float:
    """Of the wanted words, each as heavy as it is rare, those that are said: 0..1."""
    return fsum(rarity[word] for word in said & rarity.keys()) / max(1e-9, fsum(rarity.values()))


def parts(question: str) -> list[str]:
    """What a question asks, one thing after the other: at most three, the last with all that remains.

    >>> parts("Who cuts the hair of children, and how long does it take?")
    ['Who cuts the hair of children,', 'and how long does it take?']
    >>> parts("When are you there, and on what date is the exam?")
    ['When are you there,', 'and on what date is the exam?']
    >>> parts("How much is a junior ticket, and a senior ticket?")
    ['How much is a junior ticket', 'How much is a senior ticket?']
    >>> parts("My saw is old and is blunt. It is mine: what is a new one, and do you sharpen?")
    ['what is a new one,', 'and do you sharpen?']
    """
    asked = question.removeprefix(introduction_of(question))
    found = [part for part in _PART.split(asked, MAX_PARTS - 1) if len(part.split()) > 2]
    asking = [part for part in found if "?" in part or _STARTS_ASKING.match(part)]
    found = [each for part in asking or found for each in (take_apart(part) if _STARTS_ASKING.match(part) else [part])]
    return found[:MAX_PARTS] if len(found) > 1 else [question]


def introduction_of(question: str) -> str:
    """What stands before the first sentence that asks, and says what that is about.

    >>> introduction_of("My saw is blunt. Can you sharpen it? Thanks."), introduction_of("Is it open? I am late."), introduction_of("A saw.")
    ('My saw is blunt. ', '', '')
    >>> introduction_of("It is blunt now: what is a new one?"), introduction_of("What is new: how much is it?")
    ('It is blunt now: ', '')
    """
    said = [*takewhile(lambda each: not (each.endswith("?") or _STARTS_ASKING.match(each)), sentences(question))]
    end = question.find(said[-1]) + len(said[-1]) if said else 0
    asked = question[end:].lstrip()
    if announced := _ANNOUNCES.match(asked):
        asked = asked[announced.end() :]
    return question.removesuffix(asked) if asked else ""


def add_context(question: Question, asked: Sequence[str]) -> list[str]:
    """What the reader reads for each of `asked`: a part that says nothing by itself, or has no verb, with all that the message
    says before it. What was said in an earlier message has an answer of its own, which would be taken for that of the part.

    >>> add_context(Question("How many may I bring a day and how many a week?"), ["all", "How many may I bring a day", "and how many a week?"])[2]
    'How many may I bring a day and how many a week?'
    >>> add_context(Question("Why is the pump wet, and who does that?"), ["all", "Why is the pump wet,", "and who does that?"])
    ['all', 'Why is the pump wet,', 'Why is the pump wet, and who does that?']
    """
    return [
        asked[0],
        *(
            f"{question.text.partition(part)[0]}{part}"
            if part in question.text and (len(content_words(part)) <= _LITTLE or not _HAS_VERB.search(part))
            else part
            for part in asked[1:]
        ),
    ]


def summary(hits: Sequence[Hit], sources: int = 3) -> str:
    """One line of at most 300 characters on the first `sources` sources: their titles, with figures or a sentence.

    It is retrieved text, so what speaks to whoever answers is left out, and no marker of a source is in it.
    """
    best = {hit.source_id: hit for hit in reversed(hits)}
    chosen = [best[source] for source in dict.fromkeys(hit.source_id for hit in hits)][:sources]
    most = (SUMMARY_LENGTH - 2 * (sources - 1)) // sources
    return "; ".join(_line(hit, most) for hit in chosen)


def excerpt(question: str, hit: Hit) -> str:
    """What is shown of a hit where nothing is answered: at most 300 characters of its text, nearest to the question.

    Empty where the hit only asks for something.
    """
    said = quotable(hit.text)
    wanted = content_words(question)
    best = max(said, key=lambda sentence: len(wanted & content_words(sentence)), default="")
    return best if len(best) <= QUOTE_LENGTH else best[: QUOTE_LENGTH - 1].rsplit(maxsplit=1)[0] + "…"


def _line(hit: Hit, most: int) -> str:
    title = " ".join(neutralise(hit.title).split())
    if not title or TO_THE_ANSWERER.search(title):
        title = hit.source_type.replace("_", " ")
    title = _cut(title, most * 2 // 3)
    room = most - len(title) - 3
    known = hit.metadata.items()
    figures = [header_line({name: value}).lower() for name, value in known if type(value) in (int, float)]
    while figures and len(", ".join(figures)) > room:
        figures.pop()  # a figure is told whole, or not at all
    said = next((" ".join(each.text.split()) for each in passages(neutralise(hit.text))), "")
    said = ", ".join(figures) or _cut(said, room)
    return f"{title} ({said})" if said else title


def _cut(text: str, most: int) -> str:
    if len(text) > most:
        text = text[: most - 1].rsplit(maxsplit=1)[0] + "…"
    return SENTENCE_END.sub("", text) if not text.endswith("…") else text


def _choose(scored: PassageScores, ranked: Sequence[Passage], pool: Sequence[Passage]) -> list[Passage]:
    """The best of `ranked` that has what a part asks for, for each part; then the next best for any, without near-duplicates.

    "It ..." brings the sentence before it along. One that is far behind the best is left out. Nothing where no part has
    its answer.
    """
    scores, before = scored.scores, {(passage.block, passage.place + 1): passage for passage in pool}
    most = MAX_CHOSEN + len(scores) - 1
    chosen: list[Passage] = []
    overall = scores.max(axis=0)
    follows = np.zeros(len(ranked))
    for place in range(most):
        if place < len(scores):
            left = np.asarray([each not in chosen for each in ranked])
            current = _keep_holding(np.where(left, scores[place] + follows, -np.inf), scored.holds[place])
        elif chosen:
            current = _keep_further(overall, follows, scored.read, ranked, ranked.index(chosen[0]))
        else:
            break
        said = [each.text for each in chosen]
        best = next((i for i in np.argsort(-current) if not any(_alike(ranked[i].text, text) for text in said)), None)
        if best is None or len(chosen) >= most:
            break
        if np.isneginf(current[best]):
            continue
        passage = ranked[best]
        previous = before.get((passage.block, passage.place)) if _POINTS_BACK.match(passage.text) else None
        added = [passage, *([previous] if previous and previous not in chosen else [])]
        if chosen and len(chosen) + len(added) > most:
            break  # "It ..." without the sentence before it speaks of something else
        chosen += added
        follows += [_NEXT_WEIGHT * (before.get((each.block, each.place)) is passage) for each in ranked]
    return chosen


def _keep_of_same(
    chosen: Sequence[Passage], context: Context, question: Question, read: Mapping[Passage, float]
) -> list[Passage]:
    """What was chosen, without what is less likely than the first one and stands in another source, if it names, with its title
    and heading, only a part of what the first one names of the question."""
    wanted = content_words(question.searched or question.text)

    def named_by(each: Passage) -> frozenset[str]:
        return wanted & content_words(f"{context.blocks[each.block].title} {each.lead} {each.section} {each.text}")

    return [
        each
        for each in chosen
        if each.block == chosen[0].block
        or read.get(each, 0.0) > read.get(chosen[0], 0.0) - CLEARLY
        or not named_by(each) < named_by(chosen[0])
    ]


def _keep_likeliest_value(chosen: Sequence[Passage], question: str, read: Mapping[Passage, float]) -> list[Passage]:
    """Where a question asks for a figure: what was chosen without other values of its kind that are clearly less likely than
    the likeliest, and stand elsewhere.

    >>> told = [Passage(0, 0, "It lasts two years."), Passage(1, 0, "A refund takes two weeks.")]
    >>> [each.text for each in _keep_likeliest_value(told, "How long does it last?", {told[0]: 4.0, told[1]: 2.0})]
    ['It lasts two years.']
    """
    kind = kind_of(question)
    likeliest = max(chosen, key=lambda each: read.get(each, 0.0), default=None)
    if likeliest is None or kind not in (*FIGURES, Kind.SPAN) or read.get(likeliest, 0.0) < LIKELY:
        return [*chosen]

    def is_beside(each: Passage) -> bool:
        near = each.block == likeliest.block and abs(each.place - likeliest.place) <= 1
        return near or are_beside(each, likeliest)

    least = read.get(likeliest, 0.0) - CLEARLY
    return [
        each
        for each in chosen
        if read.get(each, 0.0) > least or is_beside(each) or not has_kind(kind, each.text, question)
    ]


def _complete_tables(
    chosen: Sequence[Passage], pool: Sequence[Passage], question: Question, read: Mapping[Passage, float]
) -> list[Passage]:
    """Of each table the rows that name most of what is asked about: without rows that name less, unless the reader's log-odds
    (`read`) are clearly better, and with all that name as much where several were chosen; of a list the same by what its items begin with. A row that the question names by a figure ("C-21") stands in for those that it does not.

    Of a question that sets rows against each other all are left.
    """
    if find_calculation(question.text):
        return [*chosen]
    wanted = _named_by(question.searched or question.text)
    cells = {each: cells_of(each.text) for each in dict.fromkeys((*chosen, *pool))}
    named = {each: wanted & _named_by(_AMOUNT.sub(" ", "\n".join(row.values()))) for each, row in cells.items()}

    def are_of_one_table(one: Passage, other: Passage) -> bool:
        columns, others = cells[one].keys(), cells[other].keys()  # without those of empty cells
        return one.block == other.block and len(columns & others) * 2 > max(len(columns), len(others))

    def names_more(one: Passage, other: Passage) -> bool:
        return are_of_one_table(one, other) and named[one] < named[other]

    meant = [
        other
        for other in pool
        if any(names_more(one, other) and _has_figure(named[other] - named[one]) for one in chosen)
    ]
    if meant and len(meant) <= MAX_CHOSEN:
        chosen = [*dict.fromkeys([*chosen, *meant])]

    def is_left_out(one: Passage, other: Passage) -> bool:
        likelier = read.get(one, 0.0) >= read.get(other, 0.0) + CLEARLY and not _has_figure(named[other] - named[one])
        if are_beside(one, other) and not (cells[one] and cells[other]):
            heads = [wanted & _named_by(_AMOUNT.sub(" ", head_of(each))) for each in (one, other)]
            return heads[0] < heads[1] and not likelier
        return names_more(one, other) and not likelier

    kept = [one for one in chosen if not any(is_left_out(one, other) for other in chosen)]
    for one in [*kept]:
        equals = [other for other in pool if are_of_one_table(one, other) and named[one] == named[other]]
        if len(equals) <= _MOST_ROWS and sum(each in kept for each in equals) > 1:
            kept += [each for each in equals if each not in kept]
    return kept


def _named_by(text: str) -> frozenset[str]:
    """The words that a text names something by, and each figure or capital with the word before it: "Level 2", "C-21".

    >>> sorted(_named_by("The rent of flat C-21, at Level 2?"))
    ['2', '21', 'c', 'c 21', 'flat', 'flat c', 'level', 'level 2', 'rent']
    """
    pairs = re.findall(r"(?=\b(\w+)[ -]([A-Z]|\d+)\b)", text)
    return content_words(text) | {f"{word} {sign}".casefold() for word, sign in pairs}


def _is_of_another(passage: Passage, context: Context, question: str) -> bool:
    """Whether what a passage stands under has another number than the question: "Level 1", where "Level 2" is asked about.

    Not if the passage speaks of that one itself. And whether it speaks of another Dr than the one who is asked about, or of
    "E7" where "E3" is.
    """
    persons, there = ({each[1] for each in _TITLED_NAME.finditer(text)} for text in (question, passage.text_with_lead))
    if persons and there and not persons & there:
        return True
    title = context.blocks[passage.block].title
    asked, said, titled = map(codes_in, (question, f"{passage.lead or passage.section} {passage.text}", title))
    apart = [asked[key].isdisjoint(said[key] | titled.get(key, frozenset())) for key in asked.keys() & said.keys()]
    limits = _ONLY.search(passage.text) is not None or (_ASKS_WHETHER.match(question) and not all(apart))
    if any(apart) and not limits:
        return True
    titles, own = (numbers_in(text) for text in (f"{title}. {passage.lead}", passage.text))
    if cells_of(passage.text, 2):
        titles |= own  # a row is of what it names
    return any(
        key in titles and titles[key].isdisjoint(numbers) and own.get(key, frozenset()).isdisjoint(numbers)
        for key, numbers in numbers_in(question).items()
    )


def _is_of_other_year(text: str, asked: Period) -> bool:
    """Whether a text is of other years than the one that is asked about, and of nothing that goes on.

    >>> from datetime import date
    >>> next_year = Period(date(2027, 1, 1), date(2027, 12, 31), "next year", (0, 9), "year")
    >>> texts = ("Open until 3 October 2026.", "Since May 2024 it is free.", "Open on Fridays.", "From 2025 to 2028 it is free.")
    >>> [_is_of_other_year(each, next_year) for each in texts]
    [True, False, False, False]
    """
    years = [int(year) for year in YEAR.findall(text)]
    if asked.grain != "year" or asked.start is None or not years or min(years) <= asked.start.year <= max(years):
        return False
    return not (_GOES_ON.search(text) and max(years) < asked.start.year and not _ENDS.search(text))


def _is_of_other_season(passage: Passage, context: Context, question: str) -> bool:
    """Whether a passage, or else its source, is of other years with a stroke between them than those that are asked about."""
    asked = seasons_in(question)
    there = seasons_in(passage.text_with_lead) or seasons_in(context.blocks[passage.block].title)
    return bool(asked and there) and asked.isdisjoint(there)


def _has_figure(names: Set[str]) -> bool:
    return any(" " in name for name in names)


def _keep_holding(scores: NDArray[np.float64], holds: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The scores of those passages that have what is asked for, if they are among the nearest."""
    near = np.argsort(-scores)[:MOST_LOOKED_AT]
    held = np.full_like(scores, -np.inf)
    held[near] = np.where(holds[near], scores[near], -np.inf)
    return held


def _keep_further(
    overall: NDArray[np.float64],
    follows: NDArray[np.float64],
    read: NDArray[np.float64],
    ranked: Sequence[Passage],
    first: int,
) -> NDArray[np.float64]:
    """The scores, with what `follows` adds, of those passages that may stand after the first one: they answer as well, or
    follow a chosen one, and are not far behind the best. A row beside the first one has to answer by itself."""
    gaps = np.asarray([GAP if each.block == ranked[first].block else GAP_ELSEWHERE for each in ranked])
    answers = (read >= min(read[first] - 1, np.clip(read[first] - SLACK, LITTLE, FURTHER))) | (follows > 0)
    beside = np.asarray([are_beside(ranked[first], each) for each in ranked])
    answers &= ~beside | (read >= min(read[first] - 1, FURTHER))
    scores = overall + follows
    return np.where(answers & (scores >= overall.max() - gaps), scores, -np.inf)


def _compare_figures(ranking: Ranking, scored: PassageScores, context: Context) -> str:
    """The answer to what asks for the most or the least of something that no sentence states; empty where nothing can be
    compared. Who asks for both asks for a whole list, which is not what is found."""
    asked, missing = ranking.asked[1:], _missing_parts(ranking.asked[1:], scored)
    rows = [row for row, part in enumerate(asked) if part in missing and find_calculation(part) is Calculation.EXTREME]
    order = order_of(asked[rows[0]]) if len(rows) == 1 else None
    if order is None:
        return ""
    found = compare(order, ranking.ranked, scored.scores[rows[0]], scored.read)[:MAX_CHOSEN]
    answers = np.asarray([passage in found for passage in ranking.ranked])
    if not found or not all((scored.holds[row] & answers).any() for row in range(len(asked)) if row not in rows):
        return ""
    first = "most" if order.falls else "least"
    named = [(name_thing(each, context.blocks[each.block].title), each.block) for each in found]
    return f"Of what was found, the {first} first: " + " ".join(_cite(*each) for each in named)


def _missing_parts(asked: Sequence[str], scored: PassageScores) -> list[str]:
    """The parts of a question that none of the nearest passages answers."""
    rows = zip(asked, scored.scores, scored.holds, strict=True)
    return [part for part, scores, held in rows if np.isneginf(_keep_holding(scores, held)).all()]


def _rivals(chosen: Sequence[Passage], ranking: Ranking, question: Question, context: Context) -> tuple[Passage, ...]:
    """The first passage that answers a part and that another source contradicts, and the one that does; nothing as a rule.

    Neither may be of a document whose title names more of what is asked about, or another time: "The battery lasts
    20 hours" is said of many things, and "We took 31 calls" of every week. Two records never contradict each other.
    """
    wanted, titles = content_words(question.searched or question.text), [block.title for block in context.blocks]

    def agree_in_title(one: Passage, other: Passage) -> bool:
        if context.blocks[one.block].told and context.blocks[other.block].told:
            return False
        named = (content_words(titles[one.block]) ^ content_words(titles[other.block])) & wanted
        times = [re.findall(r"\d+", titles[each.block]) for each in (one, other)]
        return not named - content_words(f"{one.text} {other.text}") and (times[0] == times[1] or not all(times))

    before = {(each.block, each.place + 1): each.text for each in ranking.pool}

    def is_under_another(one: Passage, other: Passage) -> bool:
        """Whether the heading of one names what is asked about, and nothing of the other does; or both are rows of two things."""
        rows = [next(iter(cells_of(each.text, 2).values()), "") for each in (one, other)]
        if all(rows) and content_words(rows[0]).isdisjoint(content_words(rows[1])):
            return True
        there = f"{titles[other.block]} {other.section} {other.text}"
        return bool((content_words(one.section) & wanted) - content_words(there))

    def account_of(each: Passage) -> Account:
        leans_on = before.get((each.block, each.place), "") if _POINTS_BACK.match(each.text) else ""
        return Account(each.text, titles[each.block], each.lead, leans_on, context.blocks[each.block].body)

    nearest = [ranking.ranked[i] for i in np.argsort(-ranking.cosines[0])[:MAX_RIVALS]]
    for row, one in enumerate(chosen[: len(ranking.asked) - 1], 1):  # of each part the sentence that answers it
        part = ranking.asked[row]
        if context.blocks[one.block].outdated:
            continue
        for other in (each for each in nearest if each.block != one.block and not context.blocks[each.block].outdated):
            apart = disagree(one.text, other.text) and agree_in_title(one, other)
            if apart and are_comparable(part, account_of(one), account_of(other)):
                return one, other
        for other, certain in _find_other_answers(one, row, ranking):
            apart = is_under_another(one, other) or is_under_another(other, one)
            is_text = not (context.blocks[other.block].told or context.blocks[other.block].outdated or apart)
            if is_text and answer_differently(part, account_of(one), account_of(other), certain=certain):
                return one, other
    return ()


def _find_other_answers(one: Passage, row: int, ranking: Ranking) -> Iterator[tuple[Passage, bool]]:
    """What is likely enough to answer a part of a question, too, from another source, and whether both are sure to; the
    likeliest first."""
    if language_of(ranking.asked[row]) not in LANGUAGES or one not in ranking.ranked:
        return
    odds = ranking.read[row]
    least = min(0, odds[ranking.ranked.index(one)] - SLACK_OF_RIVALS)
    for place in np.argsort(-odds, kind="stable"):
        other = ranking.ranked[place]
        if other.block != one.block and odds[place] >= (
            min(least, LEAST_OF_ROWS) if cells_of(other.text, 2) else least
        ):
            yield other, min(odds[place], odds[ranking.ranked.index(one)]) >= SURE


def _add_date(passage: Passage, context: Context, asked: Period) -> Passage:
    """With the date of its source, where it does not say that itself.

    A source of another date whose text names what is asked about was found by its text: its date says nothing.
    """
    block = context.blocks[passage.block]
    date = next((hit.date for hit in block.hits), None)
    if date is None or names_day(passage.text, day := day_of(date)):
        return passage
    if not asked.holds(day) and names_period(block.body, asked, day):
        return passage
    return replace(passage, text=_insert_before_stop(passage.text, f"({day_text(day)})"))


def _alike(one: str, other: str) -> bool:
    left, right = content_words(one), content_words(other)
    if re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    return len(left & right) >= _SAME * max(1, len(left | right))


def _compose_text(chosen: Sequence[Passage], context: Context, question: str) -> str:
    """Best source first, each in reading order, each sentence with its citation before the full stop."""
    sources = [passage.block for passage in chosen]
    return _tell(sorted(chosen, key=lambda each: (sources.index(each.block), each.place)), context, question)


def _tell_outdated(said: Sequence[Passage], context: Context, question: Question) -> str:
    return f"{outdated_text(question.text)}: {_compose_text(said, context, question.text)}" if said else ""


def _tell(said: Sequence[Passage], context: Context, question: str) -> str:
    """Passages, rows as sentences, what the question names first; a record that has no text of its own is told once, in the sentence of its index."""
    blocks = [context.blocks[each.block] for each in said]
    told = [
        block.told or tell_row(each.text, block.lang, content_words(question))
        for each, block in zip(said, blocks, strict=True)
    ]
    return " ".join(dict.fromkeys(_cite(text, each.block) for text, each in zip(told, said, strict=True)))


def _cite(text: str, block: int) -> str:
    return _insert_before_stop(text, f"[Source {block + 1}]")


def _insert_before_stop(text: str, added: str) -> str:
    """
    >>> _insert_before_stop("A cut is $40.", "[Source 2]"), _insert_before_stop("Parking: free", "(3 May)")
    ('A cut is $40 [Source 2].', 'Parking: free (3 May).')
    """
    end = found[0] if (found := SENTENCE_END.search(text)) else "."
    return f"{text.removesuffix(end).rstrip()} {added}{end}"
