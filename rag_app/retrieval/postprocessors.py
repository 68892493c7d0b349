"""LlamaIndex node postprocessors: what retrieval found is cut, folded and reordered before it is judged.

Each is a function that chooses among nodes, which come best first; `step` makes a postprocessor of it.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.domain import PUBLIC_ORGANIZATION, Question, Scope
from rag_app.retrieval.store import searchable_text
from rag_app.telemetry.observing import Stage, safe_text

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

Nodes = list[NodeWithScore]
Rank = tuple[float, ...]


class Step(BaseNodePostprocessor):
    """Chooses those nodes that stay, in their new order. Nothing in it waits, so the async call needs no thread."""

    choose: Callable[[Nodes], Nodes]

    def _postprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        return self.choose(nodes)

    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        return self.choose(nodes)


def step(choose: Callable[..., Nodes], **options: Any) -> Step:
    """The postprocessor that calls `choose` with the nodes and these options."""
    return Step(choose=partial(choose, **options))


def cut_below(nodes: Nodes, threshold: float) -> Nodes:
    """Keeps nodes whose cosine similarity is at least `threshold` (-1..1)."""
    return [node for node in nodes if node.score is not None and node.score >= threshold]


def leave_out(nodes: Nodes, sources: Set[UUID]) -> Nodes:
    """Keeps what is of other sources."""
    return [node for node in nodes if UUID(_source(node)) not in sources]


def keep_best_sources(
    nodes: Nodes, top_k: int, chunks: int, user: UUID | None = None, named: Set[UUID] = frozenset(), within: float = 0.1
) -> Nodes:
    """Keeps `top_k` sources, each with its first `chunks` nodes: the first ones, in their order.

    What was `named` is among them before all else; then what belongs to `user`, where it is at most `within` (cosine)
    below the best node.
    """
    first = set(map(str, named))
    preferred = first | {_source(node) for node in _nearest_nodes(nodes, within) if _is_owned_by(node, user)}
    ordered = sorted(map(_source, nodes), key=lambda source: (source not in first, source not in preferred))
    kept = set([*dict.fromkeys(ordered)][:top_k])
    return deduplicate([node for node in nodes if _source(node) in kept], keep=chunks)


def keep_at_most(nodes: Nodes, limits: Mapping[str, int]) -> Nodes:
    """Keeps the first `limits[type]` sources of each source type that has a limit."""
    seen: dict[str, set[str]] = {}
    kept = []
    for node in nodes:
        kind = node.node.metadata["source_type"]
        sources = seen.setdefault(kind, set())
        if _source(node) in sources or kind not in limits or len(sources) < limits[kind]:
            sources.add(_source(node))
            kept.append(node)
    return kept


def put_first(nodes: Nodes, sources: Set[UUID]) -> Nodes:
    """These sources come first, whatever their similarity; the order is kept otherwise."""
    return sorted(nodes, key=lambda node: UUID(_source(node)) not in sources)


def deduplicate(nodes: Nodes, keep: int = 1) -> Nodes:
    """Keeps the first `keep` nodes of each source."""
    seen, kept = Counter[str](), Nodes()
    for node in nodes:
        seen[_source(node)] += 1
        if seen[_source(node)] <= keep:
            kept.append(node)
    return kept


def lift(nodes: Nodes, rank: Callable[[NodeWithScore], Rank], within: float = 0.1) -> Nodes:
    """Nodes by `rank`, the lowest first; the order among equals is kept.

    Nodes more than `within` (cosine) below the best one are not lifted over better ones.
    """
    near = _nearest_nodes(nodes, within)
    lifted = set(map(id, near))
    return sorted(near, key=rank) + [node for node in nodes if id(node) not in lifted]


def rank_by_owner(node: NodeWithScore, user: UUID | None, public: UUID = PUBLIC_ORGANIZATION) -> Rank:
    """A user's own sources first, then the team's, then what is public; the order inside each is kept."""
    others = not _is_owned_by(node, user)
    return others, others and node.node.metadata["org_id"] == str(public)


def rank_alerts(node: NodeWithScore, user: UUID | None, public: UUID = PUBLIC_ORGANIZATION) -> Rank:
    """A user's own alerts first, then the team's and what is public of them, then risk rules, then the rest.

    An alert is short and speaks of one thing: documents about alerts are often nearer to a question about them.
    """
    match node.node.metadata["source_type"]:
        case "alert":
            return 0, *rank_by_owner(node, user, public)
        case "risk_rule":
            return (1,)
        case _:
            return (2,)


def rank_by_opportunity(node: NodeWithScore) -> Rank:
    """High opportunity scores first: demand_index * (100 - competition_score) / 100, then what has none.

    The formula is the marketplace's own: "Opportunity score" in indexes/marketplace/samples/public/help/metrics.md.
    """
    demand, competition = _number(node, "demand_index"), _number(node, "competition_score")
    if demand is None or competition is None:
        return (1,)
    return 0, -demand * (100 - competition) / 100


def rank_by_sales(node: NodeWithScore, user: UUID | None) -> Rank:
    """A user's own sources first, then those with the most `sales`, then what has none."""
    sales = _number(node, "sales")
    return not _is_owned_by(node, user), sales is None, -(sales or 0.0)


def rank_by_match(node: NodeWithScore, text: str, terms: Set[str]) -> Rank:
    """What is about a term of the question first, then what is related to one; by similarity inside each.

    A term is one of `terms`, or stands in `text` as whole words (`words_of` all): a node's `term` or title for what it
    is about, its `related_terms` for what it is related to. Case and a plural s do not matter.
    """

    def is_named(name: object) -> bool:
        words = words_of(str(name or ""))
        return bool(words.strip()) and (words in text or words in terms)

    meta = node.node.metadata
    about = is_named(meta.get("term")) or is_named(meta.get("title"))
    related = any(map(is_named, meta.get("related_terms") or []))
    return not about, not (about or related), -(node.score or 0.0)


STRATEGIES: dict[str, Callable[[Question, Scope], Step]] = {
    "opportunity": lambda question, scope: step(lift, rank=rank_by_opportunity),
    "own_then_sales": lambda question, scope: step(lift, rank=partial(rank_by_sales, user=scope.user)),
    "exact_match": lambda question, scope: lift_matches(f"{question.text}\n{question.searched or ''}", question.terms),
    "alerts_first": lambda question, scope: step(lift, rank=partial(rank_alerts, user=scope.user), within=0.4),
}
"""A capability's own order for what was found, by its name; what it does not tell apart stays as it was."""


def lift_matches(text: str, terms: Iterable[str] = ()) -> Step:
    """By `rank_by_match`. Who is named is no weak match."""
    ranking = partial(rank_by_match, text=words_of(text), terms=frozenset(map(words_of, terms)))
    return step(lift, rank=ranking, within=0.4)


def postprocessors_for(
    question: Question,
    scope: Scope,
    *,
    prefers_owner: bool = False,
    strategy: str | None = None,
    chunks_per_source: int | None = None,
    own: "Sequence[GuardedPostprocessor]" = (),
) -> list[BaseNodePostprocessor]:
    """The postprocessors for a question, in order: the cut at its threshold, `own` ones, the owner's sources first where
    the capability `prefers_owner`, its `strategy`.

    Then named sources come first, so that the limits, which come last, cut the others. With `chunks_per_source`, `top_k`
    counts sources.
    """
    wanted: list[BaseNodePostprocessor] = []
    if question.threshold is not None:
        wanted.append(step(cut_below, threshold=question.threshold))
    if own:
        wanted.append(OwnPostprocessors(guarded=list(own)))
    if prefers_owner:
        wanted.append(step(lift, rank=partial(rank_by_owner, user=scope.user)))
    if strategy is not None:
        wanted.append(STRATEGIES[strategy](question, scope))
    named, user = frozenset(question.sources), scope.user if prefers_owner else None
    if named:
        wanted.append(step(put_first, sources=named))
    if question.at_most:
        wanted.append(step(keep_at_most, limits=dict(question.at_most)))
    if chunks_per_source is None:
        return [*wanted, Step(choose=lambda nodes: nodes[: question.top_k])]
    return [
        *wanted,
        step(keep_best_sources, top_k=question.top_k, chunks=chunks_per_source, user=user, named=named),
    ]


class AsyncPostprocessor(BaseNodePostprocessor):
    """A postprocessor that waits for others, and so runs on an event loop only."""

    def _postprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        raise NotImplementedError("use `await postprocessor.apostprocess_nodes(...)`")


class GuardedPostprocessor(AsyncPostprocessor):
    """A postprocessor that nobody here wrote, for one question.

    It chooses nodes and their order; scores stay the cosines that they were. Where it raises, or takes more than
    `seconds`, the nodes are as they were before it, `warning` says so, and the log why.
    """

    inner: BaseNodePostprocessor
    seconds: float
    warning: str = ""
    """What people should know; empty where all went well."""
    ranks: bool = False
    """Whether its order says which nodes are better: not where it gave no new scores, and did no more than to put all
    nodes in another order or to leave some out."""

    @property
    def what(self) -> str:
        return type(self.inner).__name__

    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        if not nodes:
            return nodes
        self.ranks, before = False, {each.node.node_id: each.score for each in nodes}
        try:
            with Stage("reranking", {"rag.postprocessor": self.what}):
                async with asyncio.timeout(self.seconds):
                    copies = [NodeWithScore(node=each.node, score=each.score) for each in nodes]
                    chosen = await self.inner.apostprocess_nodes(copies, query_bundle=query_bundle)
            after = {each.node.node_id: each.score for each in chosen}
            left = [each for each in before if each in after]
            same = after.items() <= before.items() and len(chosen) == len(after)
            self.ranks = not same or (len(chosen) < len(nodes) and left != list(after))
            return [NodeWithScore(node=each.node, score=before.get(each.node.node_id, each.score)) for each in chosen]
        except Exception as error:
            late = isinstance(error, TimeoutError)
            why = f"took more than {self.seconds:g} s" if late else "failed"
            self.warning = f"Reranking by {self.what} {why}; the order is that of the search"
            log.warning("%s: %s", self.warning, safe_text(error))
            return nodes


class OwnPostprocessors(AsyncPostprocessor):
    """Those that nobody here wrote, one after the other, for one question.

    An order that `ranks` counts for the limits that come after. A mere order (`LongContextReorder`) does not: the nodes go
    on in the order before it, and `places` has theirs in the new one, by id.
    """

    guarded: list[GuardedPostprocessor]
    places: dict[str, int] = {}  # noqa: RUF012 - a field of a pydantic model

    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        ordered = nodes
        for each in self.guarded:
            ordered = await each.apostprocess_nodes(ordered, query_bundle=query_bundle)
            found = {node.node.node_id: node for node in ordered}
            same = [found[node.node.node_id] for node in nodes if node.node.node_id in found]
            nodes = ordered if each.ranks else same
        places = {each.node.node_id: place for place, each in enumerate(ordered)}
        self.places = {} if list(places) == [each.node.node_id for each in nodes] else places
        return nodes


def warnings_of(postprocessors: Any) -> tuple[str, ...]:
    """What those that are guarded have to say."""
    own = (each for each in postprocessors if isinstance(each, OwnPostprocessors))
    return tuple(guarded.warning for each in own for guarded in each.guarded if guarded.warning)


def places_of(postprocessors: Any) -> dict[str, int]:
    """The places of nodes, by id, in the order that was asked for what is kept; empty where it is the limits' own."""
    return next((each.places for each in postprocessors if isinstance(each, OwnPostprocessors)), {})


Kind = Literal["tei", "cohere", "jina"]


class BadRanking(ValueError):
    """An endpoint answered with something that is no ranking. The message says what is wrong with it."""


class EndpointReranker(AsyncPostprocessor):
    """Puts nodes in the order of a cross-encoder's scores, the best first; the score of each becomes its rank, negated.

    Endpoints have the shapes of TEI, Cohere and Jina:

    | kind | sent | received |
    |---|---|---|
    | tei | `{"query", "texts", "truncate": true}` | `[{"index", "score"}, ...]` |
    | cohere, jina | `{"model", "query", "documents", "top_n"}` | `{"results": [{"index", "relevance_score"}, ...]}` |

    All nodes are kept: what the endpoint leaves out comes last, in the order it had. Raises httpx.HTTPError where the
    endpoint does not answer, and BadRanking.
    """

    kind: Kind
    url: str
    model: str | None = None
    seconds: float = Field(default=2.0, gt=0)
    _key: str | None = PrivateAttr(default=None)
    _client: "httpx.AsyncClient | None" = PrivateAttr(default=None)

    def __init__(self, key: str | None = None, **said: Any) -> None:
        super().__init__(**said)
        self._key = key

    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        if query_bundle is None or len(nodes) < 2:
            return nodes
        if self._client is None:
            import httpx  # only where there is an endpoint: it imports a command line of its own

            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._client = httpx.AsyncClient(headers=headers, timeout=self.seconds)
        query, texts = query_bundle.query_str, [searchable_text(each.node) for each in nodes]
        asked: dict[str, Any] = {"model": self.model, "query": query, "documents": texts, "top_n": len(texts)}
        if self.kind == "tei":
            asked = {"query": query, "texts": texts, "truncate": True}
        response = await self._client.post(self.url, json=asked)
        response.raise_for_status()
        first = ranking(response.json(), len(nodes))
        order = (*first, *(place for place in range(len(nodes)) if place not in first))
        return [NodeWithScore(node=nodes[place].node, score=-float(rank)) for rank, place in enumerate(order, 1)]

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def ranking(reply: Any, size: int) -> list[int]:
    """The places of `size` texts in the order of their scores, of either shape. Raises BadRanking.

    >>> ranking([{"index": 0, "score": 0.1}, {"index": 1, "score": 0.9}], 2)
    [1, 0]
    >>> ranking({"results": [{"index": 2, "relevance_score": 0.9}]}, 2)
    Traceback (most recent call last):
    rag_app.retrieval.postprocessors.BadRanking: place 2 of 2 texts
    """
    rows = reply.get("results") if isinstance(reply, dict) else reply
    scores: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else [None]:
        match row:
            case {"index": int(place), "score": float() | int() as score}:
                pass
            case {"index": int(place), "relevance_score": float() | int() as score}:
                pass
            case _:
                raise BadRanking("no list of index and score")
        if not 0 <= place < size or place in scores or not isfinite(score):
            raise BadRanking(f"place {place} of {size} texts")
        scores[place] = score
    return sorted(scores, key=lambda place: -scores[place])


def words_of(text: str) -> str:
    """Its words between blanks, so that one text is whole words of another where it is part of it.

    >>> words_of("Two Ring-Stands"), words_of("ring stand") in words_of("ring standing")
    (' two ring stand ', False)
    """
    found = re.findall(r"\w+", text.casefold())
    return f" {' '.join(word.removesuffix('s') if len(word) > 3 else word for word in found)} "


def _number(node: NodeWithScore, field: str) -> float | None:
    value = node.node.metadata.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_owned_by(node: NodeWithScore, user: UUID | None) -> bool:
    return user is not None and node.node.metadata.get("owner_id") == str(user)


def _source(node: NodeWithScore) -> str:
    return str(node.node.metadata["source_id"])


def _nearest_nodes(nodes: Nodes, within: float) -> Nodes:
    best = max((node.score or 0.0 for node in nodes), default=0.0)
    return [node for node in nodes if (node.score or 0.0) >= best - within]
