"""What the system can be asked to do: a registry of capabilities.

A capability is an entry of `CAPABILITIES` and a prompt in `prompts/`; a module of one's own calls `register`, and so does
a surface that has some of its own, with its import; `application.py` imports such surfaces. Names, choices and descriptions
elsewhere (the models file, prompt versions, detection) are read from here.
"""

from msgspec import Struct
from msgspec.structs import replace

from rag_app.answering.parts import NO_PARTS, Parts
from rag_app.domain import Misconfigured, NotFound, require


class RecordList(Struct, frozen=True):
    """Records of one `kind` that tell of a subject: those with the most of `order` first, one's `own` or those of others.

    `of` is the kind that they come along with where it is named. `texts`: each is told with its own text as well.
    """

    kind: str
    order: str | None = None
    own: bool | None = None
    of: str | None = None
    texts: bool = False


class Capability(Struct, frozen=True):
    """One way to answer from one index, and the words for when it cannot.

    `description` says what it is for, as a model is told that sorts messages. Capabilities of one `group` share a
    conversation and an entry of the models file. `words` are regular expressions by which a message is found to want
    it, each with its place in the order in which those of all capabilities are tried.

    `refusal` is said where nothing was found, `near` where hits are there and none is good enough (without it, `refusal`
    in both cases; one that ends in a colon leads to the sources, with nothing between), `uncited` when no claim of a model's answer has a source that supports it. A capability that is not
    `grounded` may answer without sources. One that `always_asks` shows a model also hits that are too weak to answer
    from. `advice_is_claim`: advice needs a source, too. `admission` is said where a model says nothing at all.
    `prefers_owner`: what belongs to the asker comes
    before what belongs to the team, and that before what is public. `rerank` names a strategy (STRATEGIES in
    retrieval/postprocessors.py) that orders what was found beyond that: what it does not tell apart stays in that order.

    A conversation (surfaces/lexybrain/messages.py) asks for `source_types` alone, and for `fetch` chunks to choose from; it
    prefers those of the last `recent_days` days and those whose status, if any, is one of `preferred_status`, and takes from a message which
    of the `severities` it is about. `failure_text` is said where the model fails and something was found, with a
    {summary} of it; without one, what fails is raised.

    Limits: `top_k` chunks are asked for by default - `by_source`: as many sources, each with its best chunks; the
    context holds at most `max_sources` sources with `chunks_per_source` chunks each in `max_context_tokens` tokens of
    the bundled tokenizer; an answer is cut after `max_sentences` sentences or `max_words` words. There is one citation
    a source.

    A message that asks for no more than what is known of a subject (briefs.py) is answered by the `lists`.

    `parts` are LlamaIndex parts of its own: a retriever, postprocessors, a model, a synthesizer.
    """

    name: str
    description: str
    index: str
    prompt: str
    refusal: str
    uncited: str
    near: str = ""
    group: str | None = None
    words: tuple[tuple[int, str], ...] = ()
    grounded: bool = True
    always_asks: bool = False
    advice_is_claim: bool = False
    admission: str = ""
    prefers_owner: bool = False
    rerank: str | None = None
    source_types: tuple[str, ...] = ()
    fetch: int | None = None
    recent_days: int | None = None
    preferred_status: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    failure_text: str = ""
    top_k: int = 8
    by_source: bool = False
    max_context_tokens: int = 3000
    chunks_per_source: int = 3
    max_sources: int = 5
    max_sentences: int | None = None
    max_words: int | None = None
    lists: tuple[RecordList, ...] = ()
    parts: Parts = NO_PARTS

    @property
    def is_plain(self) -> bool:
        """Whether it answers from an index of which no capability speaks, in words that no client expects."""
        return self.name.startswith(PLAIN)


_INSUFFICIENT = "I don't have enough relevant information to answer this question confidently."
_SOURCES_FOLLOW = f"{_INSUFFICIENT} Here are the most relevant sources I found:"

LEXYBRAIN = "lexybrain"
"""The group of the capabilities that a conversation chooses from; a surface registers them."""
SEARCH_FAILED = "I could not look this up just now: the search did not work. Please try again in a moment."
"""Instead of a refusal that would say that there is nothing to be found."""

# Before the name of an index: the name of its plain capability. No registered capability is named like that.
PLAIN = "index:"

CAPABILITIES: list[Capability] = [
    Capability(
        name="knowledge_answer",
        description="what an organization knows: its calls, e-mails, documents, FAQ and web pages",
        index="org_knowledge",
        prompt="knowledge_answer",
        refusal=_INSUFFICIENT,
        near=_SOURCES_FOLLOW,
        uncited=_SOURCES_FOLLOW,
        max_words=500,
    ),
    Capability(
        name="store_assistant",
        description="a shop's products, pages and policies, for its customers",
        index="store_catalogue",
        prompt="store_assistant",
        refusal="I could not find this in the shop's products, pages and policies.",
        near="I found products or pages, but none of them answers this.",
        uncited="I could not confirm an answer from the shop's products, pages and policies.",
        top_k=10,
        max_context_tokens=4000,
    ),
    Capability(
        name="market_chat",
        description="keywords, trends, listings, competition and alerts of a marketplace",
        index="marketplace",
        prompt="market_chat",
        refusal=(
            "I don't have data on this yet. Try naming a keyword, a listing or a market, "
            "or add it to a watchlist so that it is tracked."
        ),
        near="I found data, but none of it answers this. Try naming a keyword, a listing or a market.",
        uncited="I found related data but cannot give an answer that it supports. Try a more specific question.",
        prefers_owner=True,
        top_k=12,
        max_sources=12,
    ),
    Capability(
        name="book_tutor",
        description="what a book says, for its readers",
        index="book",
        prompt="book_tutor",
        refusal="The book does not seem to cover this.",
        near="I found passages, but none of them answers this.",
        uncited="I found passages that may be related, but cannot give an answer that they support.",
        top_k=5,
    ),
    Capability(
        name="owner_ask",
        description="a salon's calls, bookings and summaries, for its owner",
        index="salon_calls",
        prompt="owner_ask",
        refusal="No relevant data found in call transcripts or booking records for your question.",
        near="I found records that come close, but none of them answers this.",
        uncited=(
            "I found some potentially relevant information but cannot provide a reliable answer without proper "
            "source verification. Please try rephrasing your question or being more specific."
        ),
        admission="I don't have enough information from the available records to answer this question.",
        top_k=5,
        chunks_per_source=50,  # as many as may be asked for: only the tokens bound what is read
        max_sources=50,
        max_sentences=7,
        advice_is_claim=True,
    ),
]
DESCRIPTIONS: dict[str, str] = {}
"""The capabilities that a message of a conversation may want, as a model is told about them."""


def register(capability: Capability) -> Capability:
    """Adds a capability, after those there are. Raises Misconfigured where its name is taken, or it has an embedder."""
    if capability.parts.embedder is not None:
        raise Misconfigured(f"capability {capability.name}: it names another embedder, but an index can have only one")
    if capability.is_plain or any(each.name == capability.name for each in CAPABILITIES):
        raise Misconfigured(f"a capability named {capability.name} is already registered")
    CAPABILITIES.append(capability)
    if capability.group is not None:
        DESCRIPTIONS[capability.name] = capability.description
    return capability


def capability_for(index: str) -> Capability:
    """The capability that answers from an index where none is named: the first that needs no conversation, or a plain one.

    >>> capability_for("salon_calls").name
    'owner_ask'
    >>> capability_for("orders").name
    'index:orders'
    """
    own = (each for each in CAPABILITIES if each.index == index and each.group is None)
    return next(own, None) or plain_capability(index)


def plain_capability(index: str) -> Capability:
    """How any index is answered from, whatever it holds."""
    return replace(
        capability_named("knowledge_answer"),
        name=f"{PLAIN}{index}",
        description=f"what the index {index} holds",
        index=index,
        refusal="I found nothing that answers this.",
        near="I found something that comes close, but nothing that answers this.",
        uncited="I found something that may be related, but cannot give an answer that it supports.",
    )


def capability_named(name: str) -> Capability:
    """Raises NotFound with the capabilities there are.

    >>> capability_named("owner_ask").index
    'salon_calls'
    """
    if name.startswith(PLAIN):
        return plain_capability(name.removeprefix(PLAIN))
    named = {each.name: each for each in CAPABILITIES}
    return require(named.get(name), NotFound("capability", name, named))


def groups() -> list[str]:
    """The groups of capabilities, each of a surface with conversations."""
    return list(dict.fromkeys(each.group for each in CAPABILITIES if each.group is not None))
