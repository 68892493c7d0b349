"""What the system can be asked to do. Adding one is an entry here and a prompt in `prompts/`."""

from dataclasses import dataclass

from rag_app.domain.errors import NotFound


@dataclass(frozen=True, slots=True)
class Capability:
    """One way to answer from one index, and the words for when it cannot.

    `refusal` is said when the hits are not good enough, `uncited` when a model's answer has no valid citation.
    A capability that is not `grounded` may answer without sources. `keeps_admission`: a model that says it
    lacks information is quoted saying so, instead of `refusal`. `prefers_owner`: what belongs to the asker comes
    before what belongs to the team, and that before what is public.

    Limits: `top_k` chunks are asked for by default; the context holds at most `max_sources` sources with
    `chunks_per_source` chunks each in `max_context_tokens` tokens of the bundled tokenizer; an answer is cut
    after `max_sentences` sentences or `max_words` words. There is one citation a source.
    """

    name: str
    index: str
    prompt: str
    refusal: str
    uncited: str
    grounded: bool = True
    keeps_admission: bool = False
    prefers_owner: bool = False
    top_k: int = 8
    max_context_tokens: int = 3000
    chunks_per_source: int = 3
    max_sources: int = 5
    max_sentences: int | None = None
    max_words: int | None = None


_INSUFFICIENT = (
    "I don't have enough relevant information to answer this question confidently. "
    "Here are the most relevant sources I found:"
)

CAPABILITIES: tuple[Capability, ...] = (
    Capability(
        name="knowledge_answer",
        index="org_knowledge",
        prompt="knowledge_answer",
        refusal=_INSUFFICIENT,
        uncited=_INSUFFICIENT,
        max_words=500,
    ),
    Capability(
        name="store_assistant",
        index="store_catalogue",
        prompt="store_assistant",
        refusal="I could not find this in the shop's products, pages and policies.",
        uncited="I could not confirm an answer from the shop's products, pages and policies.",
        top_k=10,
        max_context_tokens=4000,
    ),
    Capability(
        name="market_chat",
        index="marketplace",
        prompt="market_chat",
        refusal=(
            "I don't have data on this yet. Try naming a keyword, a listing or a market, "
            "or add it to a watchlist so that it is tracked."
        ),
        uncited="I found related data but cannot give an answer that it supports. Try a more specific question.",
        prefers_owner=True,
        top_k=12,
        max_sources=12,
    ),
    Capability(
        name="book_tutor",
        index="book",
        prompt="book_tutor",
        refusal="The book does not seem to cover this.",
        uncited="I found passages that may be related, but cannot give an answer that they support.",
        top_k=5,
    ),
    Capability(
        name="owner_ask",
        index="salon_calls",
        prompt="owner_ask",
        refusal="No relevant data found in call transcripts or booking records for your question.",
        uncited=(
            "I found some potentially relevant information but cannot provide a reliable answer without proper "
            "source verification. Please try rephrasing your question or being more specific."
        ),
        keeps_admission=True,
        top_k=5,
        chunks_per_source=50,  # as many as may be asked for: only the tokens bound what is read
        max_sources=50,
        max_sentences=7,
    ),
)


def capability_for(index: str) -> Capability:
    """The capability that answers from an index. Raises NotFound with the indexes that have one.

    >>> capability_for("salon_calls").name
    'owner_ask'
    """
    for capability in CAPABILITIES:
        if capability.index == index:
            return capability
    raise NotFound("capability for index", index, (capability.index for capability in CAPABILITIES))


def capability_named(name: str) -> Capability:
    """Raises NotFound with the capabilities there are.

    >>> capability_named("owner_ask").index
    'salon_calls'
    """
    for capability in CAPABILITIES:
        if capability.name == name:
            return capability
    raise NotFound("capability", name, [each.name for each in CAPABILITIES])
