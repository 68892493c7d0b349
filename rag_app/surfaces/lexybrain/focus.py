"""What a message in a conversation asks of retrieval: its filters, its named sources, its limits."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from rag_app.answering.capabilities import Capability
from rag_app.domain.answer import Instructions, Question
from rag_app.domain.filters import Condition, Filters, Operator
from rag_app.retrieval.filters import epoch_seconds
from rag_app.surfaces.lexybrain.types import Said

MAX_TERMS = 20
_QUOTED = re.compile(r"“([^“”\n]{1,100})”|\"([^\"\n]{1,100})\"|«([^«»\n]{1,100})»|„([^„“”\n]{1,100})[“”]")


def question_for(
    capability: Capability,
    said: Said,
    *,
    searched: str,
    named: tuple[UUID, ...],
    retrieval_scope: tuple[str, ...] | None,
    at_most: Mapping[str, int],
    instructions: Instructions,
    now: datetime,
) -> Question:
    """The question that a message is, for a capability.

    What the client names are filters: marketplaces and a time range, which sources without a market or a date pass.
    What the capability prefers gives way where it leaves too little; its recent days to any time range of the client's.
    `retrieval_scope` is what a prompt version narrows the capability's source types to; with nothing in common,
    nothing is found. `searched` is looked for, `named` sources come first, `at_most` so many of a type are kept.
    """
    return Question(
        said.text,
        (*_types(capability, retrieval_scope), *_focused(said)),
        capability.top_k,
        fetch=capability.fetch,
        searched=searched if searched != said.text else None,
        sources=named,
        preferred=_preferred(capability, said, now),
        terms=quoted(said.text),
        at_most=tuple(at_most.items()),
        instructions=instructions,
    )


def quoted(text: str) -> tuple[str, ...]:
    """The phrases in double quotes, each once, at most twenty.

    >>> quoted('Is “velvet ring box” better than "linen apron"? I mean “Velvet  ring box”.')
    ('velvet ring box', 'linen apron')
    """
    found: dict[str, str] = {}
    for groups in _QUOTED.findall(text):
        if term := " ".join("".join(groups).split()):
            found.setdefault(term.casefold(), term)
    return tuple(found.values())[:MAX_TERMS]


def _types(capability: Capability, retrieval_scope: tuple[str, ...] | None) -> Filters:
    types = capability.source_types
    if retrieval_scope is not None:
        types = tuple(each for each in types or retrieval_scope if each in retrieval_scope)
    elif not types:
        return ()
    return (Condition("source_type", Operator.IN, types),)


def _focused(said: Said) -> Filters:
    focus = said.focus
    found = []
    if focus.marketplaces:
        markets = tuple(dict.fromkeys(name for each in focus.marketplaces for name in (each, each.lower())))
        found.append(Condition("market", Operator.IN, markets, or_missing=True))
    if focus.since is not None:
        found.append(Condition("date", Operator.GTE, epoch_seconds("timeRange", focus.since), or_missing=True))
    if focus.until is not None:
        found.append(Condition("date", Operator.LTE, epoch_seconds("timeRange", focus.until), or_missing=True))
    return tuple(found)


def _preferred(capability: Capability, said: Said, now: datetime) -> Filters:
    found = list(capability.preferred)
    if capability.recent_days is not None and said.focus.since is None and said.focus.until is None:
        since = epoch_seconds("date", now - timedelta(days=capability.recent_days))
        found.append(Condition("date", Operator.GTE, since, or_missing=True))
    if severities := tuple(each for each in capability.severities if _is_about(each, said.text)):
        found.append(Condition("severity", Operator.IN, severities, or_missing=True))
    return tuple(found)


def _is_about(severity: str, text: str) -> bool:
    """Whether a message speaks of this severity: "high" alone is said of many things."""
    what = r"(?:severity|alerts?|risks?|warnings?)"
    pattern = rf"\b{severity}[ -](?:severity[ -])?{what}\b|\b{what}:? (?:is |are |of )?{severity}\b"
    return re.search(pattern, text, re.IGNORECASE) is not None
