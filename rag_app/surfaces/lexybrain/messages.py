"""A message on its way: what it wants, what was said before it, what it asks of retrieval, and what its sender is told."""

import re
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import Any
from unicodedata import category
from uuid import UUID

from msgspec import convert, structs

from rag_app.answering.capabilities import CAPABILITIES, DESCRIPTIONS, Capability
from rag_app.answering.context import count_tokens, neutralise
from rag_app.answering.leaning import Leaning, beginning_of, leaning_of
from rag_app.answering.models import AnsweringModel, Draft, estimate_usage
from rag_app.answering.prompts import Prompt, PromptConfig, kept_constraints
from rag_app.answering.refusals import foreign_language
from rag_app.answering.synthesizers import first_not_none, with_today
from rag_app.domain import (
    Answer,
    Citation,
    Confidence,
    EmbeddingFailed,
    Filters,
    Hit,
    Instructions,
    ModelFailed,
    Question,
    RagError,
    Refusal,
    StoreFailed,
    Usage,
)
from rag_app.retrieval.filters import GTE, IN, IS_EMPTY, LTE, condition, conditions, or_missing
from rag_app.retrieval.index import IndexSpec
from rag_app.surfaces.lexybrain.types import (
    REFERENCE_TYPES,
    CitedPassage,
    ClaimPassage,
    Flags,
    PastMessage,
    RagContext,
    RagOptions,
    RagRequest,
    Role,
    SourcePlace,
    ThreadSource,
)

Payments = list[tuple[str, Usage]]
"""What models took for a turn: each one's name and its tokens."""

# -- what it wants: which of the five capabilities answers it best
# of each capability: letters that a message must have together, or other ones
_CONTRACT = (
    ("competitor_intel", ("competitor",), ("listing",)),
    ("alert_explanation", ("alert",), ("risk",)),
    ("keyword_explanation", ("keyword", "why")),
    ("market_brief", ("market",), ("niche",), ("brief",)),
)
_NAME_TOKENS = 32
_PLAIN = re.compile(r"[\s-]+")


def detect(text: str) -> str:
    """By words alone: the rules of the contract in their order, then a vocabulary of our own.

    >>> detect("Why is this keyword rising?"), detect("How do we look beside our rivals?"), detect("Hello!")
    ('keyword_explanation', 'competitor_intel', 'general_chat')
    """
    found = apply_contract(text)
    if found != "general_chat":
        return found
    vocabulary = sorted((place, words, each.name) for each in CAPABILITIES for place, words in each.words)
    said = (name for _, words, name in vocabulary if re.search(rf"(?<!\w)(?:{words})", text, re.IGNORECASE))
    return next(said, "general_chat")


def follow_up(text: str, history: Sequence[PastMessage]) -> str | None:
    """The capability of the turn before, for a question that leans on it and says nothing of its own kind.

    "And how did it change?" is about what "it" is about. None where the rules of the contract find something in the
    present message, and where it does not lean.
    """
    previous = next((each.capability for each in reversed(history) if each.role is Role.USER), None)
    leans = "?" in text and leaning_of(text) is Leaning.LEANS
    return previous if leans and apply_contract(text) == "general_chat" else None


def apply_contract(text: str) -> str:
    """The rules of the contract, and nothing else. They look for letters, not for words: "brisk" is a risk.

    >>> apply_contract("Which listing is best?"), apply_contract("How do we look beside our rivals?")
    ('competitor_intel', 'general_chat')
    """
    said = text.lower()
    found = (name for name, *rules in _CONTRACT if any(all(each in said for each in rule) for rule in rules))
    return next(found, "general_chat")


async def classify(
    model: AnsweringModel, prompt: Prompt, text: str, paid: Payments, today: date | None = None
) -> str | None:
    """By a model: `prompt` takes `question` and `capabilities`. None where what it says is none of the five."""
    known = "\n".join(f"- {name}: {description}" for name, description in DESCRIPTIONS.items())
    draft = await _ask(model, prompt, _NAME_TOKENS, paid, today, question=text, capabilities=known)
    said = _PLAIN.sub("_", draft.text.strip(" \t\r\n\"'`*.“”‘’").lower()) if draft else ""
    return said if said in DESCRIPTIONS else None


async def _ask(
    model: AnsweringModel, prompt: Prompt, max_tokens: int, paid: Payments, today: date | None, **values: str
) -> Draft | None:
    """What a model says to a prompt, and writes down what it took; None where it fails."""
    messages = with_today(prompt.messages(**values), Question("", today=today))
    try:
        draft = await model.chat(messages, max_tokens=max_tokens, temperature=0.0)
    except ModelFailed:
        return None
    read = "\n".join(str(message.content) for message in messages)
    paid.append((draft.model, draft.usage or estimate_usage(read, draft.text)))
    return draft


# -- what its thread is called
_LONGEST_TITLE = 80  # characters
# fillers and variation selectors: letters and marks to Unicode, but nothing to the eye
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def title_of(text: str) -> str:
    """What a thread is called that begins with this message: one line of whole words, at most 80 characters.

    A first word that is longer is cut. What cannot be seen is gone, and a message of nothing else is called "…".

    >>> title_of("What sells\\n  best?"), title_of("very " * 20)[-11:], title_of("\\u200b")
    ('What sells best?', ' very very…', '…')
    """
    line = " ".join("".join(character for character in text if is_visible(character)).split())
    if len(line) > _LONGEST_TITLE:
        room = line[:_LONGEST_TITLE]  # one more than there is: a word may end right before the "…"
        line = (room.rpartition(" ")[0] or room[:-1]) + "…"
    return line or "…"


def is_visible(character: str) -> bool:
    """Whether it can be seen, or is white space."""
    return character.isspace() or not (category(character) in {"Cc", "Cf", "Cs"} or _INVISIBLE.match(character))


# -- what has been said before, as a prompt shows it and as a search takes it in
_WORTH_CUTTING = 24  # tokens: less of an older message than this says nothing
_QUERY = 400  # characters of a rewritten query; a model was asked for 40 words
_QUERY_TOKENS = 160
_CUT = " …"


def history_text(messages: Sequence[PastMessage], max_tokens: int) -> str:
    """The newest of these messages (oldest first) that fit into `max_tokens` of the bundled tokenizer, oldest first.

    The oldest of them may be cut at its end. What was said is data: every line but the first of a message is quoted, so
    it can be neither the title of a section nor another's turn; `[Source 3]` becomes `(its Source 3)`, for that number means
    another source by now.
    """
    turns: list[str] = []
    left = max_tokens
    for message in reversed(messages):
        text = neutralise(message.content).strip()
        if not text:
            continue
        turn = _turn_text(message.role, text)
        if (cost := count_tokens(turn)) > left:
            if not turns or left >= _WORTH_CUTTING:
                turns += _truncate_turn(message.role, text, left)
            break
        turns.append(turn)
        left -= cost
    return "\n".join(reversed(turns))


def asked_before(history: Sequence[PastMessage]) -> list[str]:
    """The user's messages, the oldest first."""
    return [each.content for each in history if each.role is Role.USER]


def cited_before(history: Sequence[PastMessage]) -> tuple[UUID, ...]:
    """The sources that the last answer cites."""
    last = next((each for each in reversed(history) if each.role is Role.ASSISTANT), None)
    sources = last.retrieved_source_ids if last else None
    return tuple(UUID(each["id"]) for each in sources or () if each.get("cited") is not None)


async def rewrite_message(
    model: AnsweringModel,
    prompt: Prompt,
    text: str,
    history: Sequence[PastMessage],
    max_tokens: int,
    paid: Payments,
    today: date | None = None,
) -> str | None:
    """The message as a query that stands on its own, by a model: `prompt` takes `history` and `question`.

    The model reads at most `max_tokens` of history. None where there is none, or the model does not give a query:
    then `searched_text` will do.
    """
    shown = history_text(history, max_tokens)
    draft = await _ask(model, prompt, _QUERY_TOKENS, paid, today, history=shown, question=text) if shown else None
    if draft is None or draft.cut_off:
        return None
    query = " ".join(neutralise(draft.text).split()).strip(" \"'`“”")
    return query if query and len(query) <= _QUERY else None


def _turn_text(role: Role, text: str) -> str:
    first, *others = text.splitlines()
    return "\n".join([f"{role.capitalize()}: {first}", *(f"> {line}" if line.strip() else ">" for line in others)])


def _truncate_turn(role: Role, text: str, max_tokens: int) -> list[str]:
    """As much of a turn's beginning as fits, if any does. Longer beginnings cost more, so halving finds the longest."""
    fits = bisect(range(1, len(text) + 1), max_tokens, key=lambda n: count_tokens(_turn_text(role, text[:n] + _CUT)))
    kept = beginning_of(text, fits).rstrip()
    return [_turn_text(role, kept + _CUT)] if kept else []


# -- what it asks of retrieval: its filters, its named sources, its limits
MAX_TERMS = 20
MAX_TOKENS, TEMPERATURE = 1024, 0.7
"""Of an answer, where neither the message nor a version of a prompt says."""
_QUOTATION = re.compile(r"“([^“”\n]{1,100})”|\"([^\"\n]{1,100})\"|«([^«»\n]{1,100})»|„([^„“”\n]{1,100})[“”]")


def question_for(
    capability: Capability,
    said: RagRequest,
    instructions: Instructions,
    now: datetime,
    *,
    searched: Sequence[str] = (),
    earlier: tuple[UUID, ...] = (),
    named: tuple[UUID, ...] = (),
    retrieval_scope: tuple[str, ...] | None = None,
    at_most: Mapping[str, int] = MappingProxyType({}),
) -> Question:
    """The question that a message is, for a capability.

    What the client names are filters: marketplaces and a time range, which sources without a market or a date pass.
    What the capability prefers gives way where it leaves too little; its recent days to any time range of the client's.
    `retrieval_scope` is what a prompt version narrows the capability's source types to; with nothing in common,
    nothing is found. Where none narrows them, all types may have a second look. `searched` are the wordings that
    are looked for, the message itself where there are none; `earlier` sources are searched by themselves, too; `named`
    sources come first, `at_most` so many of a type are kept.
    """
    context, types = said.context or RagContext(), capability.source_types
    if retrieval_scope is not None:
        types = tuple(each for each in types or retrieval_scope if each in retrieval_scope)
    of_types: Filters = (condition("source_type", IN, types),) if types else ()
    if not types and retrieval_scope is not None:
        of_types = (condition("source_type", IS_EMPTY),)  # every source has a type: nothing is found
    markets = tuple(dict.fromkeys(name for each in context.marketplaces or () for name in (each, each.lower())))
    since, until = context.time_range.moments() if context.time_range else (None, None)
    recent = None
    if capability.recent_days is not None and since is None:
        recent = (now - timedelta(capability.recent_days)).timestamp()
    severities = tuple(each for each in capability.severities if _is_about(each, said.text))
    demanded = conditions(("market", IN, markets), ("date", GTE, since), ("date", LTE, until))
    given: Filters = tuple(map(or_missing, demanded))
    preferred = conditions(
        ("status", IN, capability.preferred_status), ("date", GTE, recent), ("severity", IN, severities)
    )
    first, *others = searched or (said.text,)
    return Question(
        said.text,
        (*of_types, *given),
        capability.top_k,
        fetch=capability.fetch,
        searched=first if first != said.text else None,
        also=tuple(others),
        earlier=earlier,
        sources=named,
        wide=given if of_types and set(types) == set(capability.source_types) else None,
        preferred=tuple(map(or_missing, preferred)),
        terms=quoted_phrases(said.text),
        at_most=tuple(at_most.items()),
        instructions=instructions,
    )


def instruct(
    capability: Capability,
    said: RagRequest,
    versions: Sequence[PromptConfig | None],
    now: datetime,
    *,
    history: str = "",
    searched: Sequence[str] = (),
    earlier: tuple[UUID, ...] = (),
    named: tuple[UUID, ...] = (),
) -> Question:
    """`question_for`, with the versions of prompts that a thread has: of what all capabilities are told, and of what this
    one is. What they demand, the message's options may undo.

    Raises Misconfigured for a version that demands what there is not.
    """
    rules, options = [kept_constraints(each) for each in reversed(versions) if each], said.options or RagOptions()
    system, role = (each.instructions if each else "" for each in versions)
    values = {"system": system, "role": role, "history": history, "language": options.language or "en"}
    tokens = first_not_none([options.max_tokens, *(each.max_tokens for each in rules), MAX_TOKENS])
    temperature = first_not_none([options.temperature, *(each.temperature for each in rules), TEMPERATURE])
    return question_for(
        capability,
        said,
        Instructions(values, tokens, temperature),
        now,
        searched=searched,
        earlier=earlier,
        named=named,
        retrieval_scope=first_not_none(each.retrieval_scope for each in rules),
        at_most=rules[0].at_most if rules else {},
    )


def quoted_phrases(text: str) -> tuple[str, ...]:
    """The phrases in double quotes, each once, at most twenty.

    >>> quoted_phrases('Is “velvet ring box” better than "linen apron"? I mean “Velvet  ring box”.')
    ('velvet ring box', 'linen apron')
    """
    found: dict[str, str] = {}
    for groups in _QUOTATION.findall(text):
        if term := " ".join("".join(groups).split()):
            found.setdefault(term.casefold(), term)
    return tuple(found.values())[:MAX_TERMS]


def _is_about(severity: str, text: str) -> bool:
    """Whether a message speaks of this severity: "high" alone is said of many things."""
    what = r"(?:severity|alerts?|risks?|warnings?)"
    pattern = rf"\b{severity}[ -](?:severity[ -])?{what}\b|\b{what}:? (?:is |are |of )?{severity}\b"
    return re.search(pattern, text, re.IGNORECASE) is not None


# -- what a client is told of an answer
ENOUGH_SOURCES = 5
NEAREST = 3
"""Sources of a refusal that are told with some of their words."""
SNIPPET = 200  # characters

_MADE_FROM_HITS = frozenset({Refusal.FAILED, Refusal.UNCITED, Refusal.ADMITTED})


def retrieved_sources(hits: Iterable[Hit], citations: Sequence[Citation], spec: IndexSpec) -> tuple[ThreadSource, ...]:
    """A source for each of the hits' sources: the cited ones by number, then the others in the order of their hits."""
    cited = {citation.hit.source_id: citation for citation in citations}
    sources = []
    for source, hit in _best_hits((*(citation.hit for citation in citations), *hits)).items():
        number, quote, passage = None, None, None
        passages: tuple[ClaimPassage, ...] = ()
        if (citation := cited.get(source)) is not None:
            number, quote = citation.number, citation.quote
            passage = CitedPassage(citation.hit.chunk_id, citation.start, citation.end)
            passages = convert(citation.passages, tuple[ClaimPassage, ...], from_attributes=True)
        shown = spec.show_type(hit.source_type)
        place = passage_place(hit if citation is None else citation.hit)
        said = shown, hit.title, hit.relevance, number, quote, True, passage, passages
        sources.append(ThreadSource(source, *said, **place))
    return tuple(sources)


def passage_place(hit: Hit) -> dict[str, Any]:
    """The fields of `SourcePlace`."""
    return {name: getattr(hit, name) for name in SourcePlace.__struct_fields__}


def _best_hits(hits: Iterable[Hit]) -> dict[UUID, Hit]:
    """By source, in the order in which the sources come first."""
    best: dict[UUID, Hit] = {}
    for hit in hits:
        if hit.source_id not in best or hit.score > best[hit.source_id].score:
            best[hit.source_id] = hit
    return best


def sources_of(answer: Answer, spec: IndexSpec) -> tuple[ThreadSource, ...]:
    """What an answer was made from; of a refusal, what was found, with words of the nearest. Nothing where an answer makes
    no use of it."""
    if answer.refused:
        found, hits = retrieved_sources(answer.hits, (), spec), _best_hits(answer.hits)
        near = {each.hit.source_id: each for each in reversed(answer.citations)}
        return (*(_with_words(each, hits[each.id], near.get(each.id)) for each in found[:NEAREST]), *found[NEAREST:])
    return retrieved_sources(answer.hits, answer.citations, spec) if _uses(answer) else ()


def _with_words(source: ThreadSource, hit: Hit, near: Citation | None) -> ThreadSource:
    """The sentence of a source that came nearest to an answer, else the beginning of its chunk."""
    if near is None:
        begin = hit.text[:SNIPPET]
        return structs.replace(source, quote=begin, passage=CitedPassage(hit.chunk_id, 0, len(begin)))
    passage = CitedPassage(near.hit.chunk_id, near.start, near.end)
    return structs.replace(source, quote=near.quote, passage=passage, **passage_place(near.hit))


def flags_of(answer: Answer, sources: Sequence[ThreadSource]) -> Flags:
    return Flags(
        used_rag=bool(sources) and _uses(answer),
        fallback_to_generic=answer.refusal is Refusal.FAILED or bool(lasting_failures(answer)),
        insufficient_context=answer.refused or len(sources) < ENOUGH_SOURCES or not _uses(answer),
        interrupted=not answer.complete,
        refused=answer.refused and answer.refusal not in (Refusal.FAILED, Refusal.COURTESY),
        grounded=None if answer.refused or not answer.shown else bool(answer.citations),
        removed_sentences=answer.removed,
        understood=answer.understood,
        courtesy=answer.courtesy,
        language=foreign_language(answer.text),
    )


def mentioned_sources(
    text: str, sources: Sequence[ThreadSource], hits: Iterable[Hit]
) -> Mapping[str, tuple[UUID, ...]]:
    """Ids of the sources that a text cites by number or names by label or term, by shown type."""
    names: dict[UUID, set[str]] = {}
    for hit in hits:
        names.setdefault(hit.source_id, {hit.title}).add(str(hit.metadata.get("term", hit.title)))
    found: dict[str, tuple[UUID, ...]] = dict.fromkeys(REFERENCE_TYPES, ())
    for source in sources:
        if source.cited is not None or any(
            re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
            for name in names.get(source.id, {source.label})
        ):
            found[source.type] = (*found.get(source.type, ()), source.id)
    return found


def _uses(answer: Answer) -> bool:
    """Whether the text is made from the hits: weak ones are not shown to a model."""
    return bool(answer.hits) and (answer.refusal in _MADE_FROM_HITS or answer.confidence is not Confidence.LOW)


def lasting_failures(answer: Answer) -> Sequence[RagError]:
    """Failures that the answer is the worse for: no other model has stepped in."""
    return () if answer.complete and answer.refusal is not Refusal.FAILED else answer.failures


def worth_it(answer: Answer) -> bool:
    """Whether a user is charged: not for a fallback, for what a model left unfinished, nor where nothing was looked up."""
    looked_up = not any(isinstance(each, EmbeddingFailed | StoreFailed) for each in answer.failures)
    return looked_up and answer.refusal is not Refusal.FAILED and not lasting_failures(answer)
