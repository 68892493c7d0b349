"""Questions with the facts that their answers must contain: reads them, scores replies, and counts by kind."""

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct, to_builtins
from pydantic import BaseModel, ConfigDict, Field

from rag_app.domain import JsonObject
from rag_app.evaluation.judgments import Line, Text


class Turn(BaseModel):
    """A question and what its answer is checked for.

    `must` is a list of facts, each a list of wordings of which one must be in the answer. `must_not` lists texts that must
    not be. `refuse`: the documents do not contain the answer, and the reply must say so.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    text: Text
    must: tuple[tuple[Text, ...], ...] = ()
    must_not: tuple[Text, ...] = ()
    refuse: bool = False


class Thread(Line, extra="forbid"):
    """One question, or several turns of a conversation. Organization, user and site are slugs and e-mail addresses."""

    corpus: Text
    kind: Text
    language: str = "en"
    organization: str | None = None
    user: str | None = None
    site: str | None = None
    note: str = ""
    turns: tuple[Turn, ...] = Field(min_length=1)


class Outcome(StrEnum):
    """`helped`: every fact is there and nothing false. `refused`: it was not answered. `wrong`: neither.

    Of a question without an answer, `refused` is right and `answered` is not.
    """

    HELPED = "helped"
    REFUSED = "refused"
    WRONG = "wrong"
    ANSWERED = "answered"


class Reply(Struct, frozen=True):
    """The answer to one turn. `refused` is the surface's flag that no answer was given.

    `understood` is how a question about records was read; empty where it was answered from passages.
    """

    text: str
    refused: bool
    understood: str = ""


class ScoredTurn(Struct, frozen=True):
    """One turn with its reply. The first turn of a conversation counts as `opening`, the others as the thread's kind."""

    id: str
    corpus: str
    kind: str
    question: str
    reply: Reply
    outcome: Outcome


def score(turn: Turn, reply: Reply) -> Outcome:
    """
    >>> coffee = Turn(text="What is a coffee?", must=[["$3", "3 dollars"]], must_not=["$4"])
    >>> score(coffee, Reply("It costs 3  Dollars [Source 1].", refused=False)).value
    'helped'
    >>> score(coffee, Reply("It costs $3, or $4 with milk.", refused=False)).value
    'wrong'
    """
    said = normalise(reply.text)
    false = any(normalise(each) in said for each in turn.must_not)
    if turn.refuse:
        return Outcome.REFUSED if reply.refused and not false else Outcome.ANSWERED
    if reply.refused:
        return Outcome.REFUSED
    complete = all(any(normalise(wording) in said for wording in fact) for fact in turn.must)
    return Outcome.HELPED if complete and not false else Outcome.WRONG


def score_thread(thread: Thread, replies: Sequence[Reply]) -> list[ScoredTurn]:
    """Each turn with its reply, in order."""
    return [
        ScoredTurn(
            f"{thread.id}/{place}" if len(thread.turns) > 1 else thread.id,
            thread.corpus,
            "unanswerable" if turn.refuse else "opening" if len(thread.turns) > 1 and place == 1 else thread.kind,
            turn.text,
            reply,
            score(turn, reply),
        )
        for place, (turn, reply) in enumerate(zip(thread.turns, replies, strict=True), 1)
    ]


def normalise(text: str) -> str:
    """
    >>> normalise("About 1,200\\n METRES")
    'about 1200 metres'
    """
    return re.sub(r"(?<=\d)[,'’\s](?=\d{3}\b)", "", " ".join(text.casefold().split()))


def answers_json(scored: Sequence[ScoredTurn]) -> JsonObject:
    """The counts of each outcome by kind and by corpus, and every turn."""
    return {**count_outcomes(scored), "turns": [to_builtins(each) for each in scored]}


def count_outcomes(scored: Sequence[ScoredTurn]) -> dict[str, dict[str, Counter[Outcome]]]:
    """How often each outcome occurs, by the values of `kind` and of `corpus`, in alphabetical order."""
    return {
        group: {
            key: Counter(each.outcome for each in scored if getattr(each, group) == key)
            for key in sorted({getattr(each, group) for each in scored})
        }
        for group in ("kind", "corpus")
    }
