"""LlamaIndex node postprocessors: what retrieval found is cut, folded and reordered before it is judged."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from uuid import UUID

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from rag_app.domain.answer import Question
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope

Nodes = list[NodeWithScore]


class _Pure(BaseNodePostprocessor):
    """Nothing here waits, so the async call is the plain one, without a thread."""

    @abstractmethod
    def choose(self, nodes: Nodes) -> Nodes:
        """Those that stay, in their new order."""

    def _postprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        return self.choose(nodes)

    async def _apostprocess_nodes(self, nodes: Nodes, query_bundle: QueryBundle | None = None) -> Nodes:
        return self.choose(nodes)


class SimilarityCutoff(_Pure):
    """Keeps nodes whose cosine similarity is at least `threshold` (-1..1)."""

    threshold: float

    def choose(self, nodes: Nodes) -> Nodes:
        return [node for node in nodes if node.score is not None and node.score >= self.threshold]


class Best(_Pure):
    """Keeps the first `top_k` nodes; nodes come best first."""

    top_k: int

    def choose(self, nodes: Nodes) -> Nodes:
        return nodes[: self.top_k]


class BestSources(_Pure):
    """Keeps `top_k` sources, each with its first `chunks` nodes: the first ones, in their order.

    What was `named` is among them before all else; then what belongs to `user`, where it is at most `within` (cosine)
    below the best node.
    """

    top_k: int
    chunks: int
    user: UUID | None = None
    named: frozenset[UUID] = frozenset()
    within: float = 0.1

    def choose(self, nodes: Nodes) -> Nodes:
        best = _best(nodes)
        owned = {_source(n) for n in nodes if _belongs(n, self.user) and (n.score or 0.0) >= best - self.within}

        def priority(source: str) -> int:
            return 0 if UUID(source) in self.named else 1 if source in owned else 2

        kept = set(sorted(dict.fromkeys(map(_source, nodes)), key=priority)[: self.top_k])
        of_kept = [node for node in nodes if _source(node) in kept]
        return DeduplicateBySource(keep=self.chunks).choose(of_kept)


class AtMost(_Pure):
    """Keeps the first `limits[type]` sources of each source type that has a limit; nodes come best first."""

    limits: Mapping[str, int]

    def choose(self, nodes: Nodes) -> Nodes:
        seen: dict[str, set[str]] = {}
        kept = []
        for node in nodes:
            kind = node.node.metadata["source_type"]
            sources = seen.setdefault(kind, set())
            if _source(node) in sources or kind not in self.limits or len(sources) < self.limits[kind]:
                sources.add(_source(node))
                kept.append(node)
        return kept


class Named(_Pure):
    """The sources that the asker named come first, whatever their similarity; the order is kept otherwise."""

    source_ids: frozenset[UUID]

    def choose(self, nodes: Nodes) -> Nodes:
        return sorted(nodes, key=lambda node: UUID(_source(node)) not in self.source_ids)


class DeduplicateBySource(_Pure):
    """Keeps the first `keep` nodes of each source; nodes come best first."""

    keep: int = 1

    def choose(self, nodes: Nodes) -> Nodes:
        seen, kept = Counter[str](), Nodes()
        for node in nodes:
            seen[_source(node)] += 1
            if seen[_source(node)] <= self.keep:
                kept.append(node)
        return kept


class _Lift(_Pure):
    """Nodes by `rank`, the lowest first; the order among equals is kept.

    Nodes more than `within` (cosine) below the best one are not lifted over better ones.
    """

    within: float = 0.1

    @abstractmethod
    def rank(self, node: NodeWithScore) -> tuple[float, ...]:
        """Where a good node belongs."""

    def choose(self, nodes: Nodes) -> Nodes:
        best = _best(nodes)
        near = [node for node in nodes if (node.score or 0.0) >= best - self.within]
        return sorted(near, key=self.rank) + [node for node in nodes if (node.score or 0.0) < best - self.within]


class OwnerPreference(_Lift):
    """A user's own sources first, then the team's, then what is public; the order inside each is kept."""

    user: UUID | None
    public: UUID = PUBLIC_ORGANIZATION

    def rank(self, node: NodeWithScore) -> tuple[float, ...]:
        if _belongs(node, self.user):
            return (0,)
        return (2,) if node.node.metadata["org_id"] == str(self.public) else (1,)


class AlertsFirst(OwnerPreference):
    """A user's own alerts first, then the team's and what is public of them, then risk rules, then the rest.

    An alert is short and speaks of one thing: documents about alerts are often nearer to a question about them.
    """

    within: float = 0.4

    def rank(self, node: NodeWithScore) -> tuple[float, ...]:
        match node.node.metadata["source_type"]:
            case "alert":
                return super().rank(node)
            case "risk_rule":
                return (3,)
            case _:
                return (4,)


class Opportunity(_Lift):
    """High opportunity scores first: demand_index * (100 - competition_score) / 100, then what has none.

    The formula is the marketplace's own: "Opportunity score" in indexes/marketplace/samples/public/help/metrics.md.
    """

    def rank(self, node: NodeWithScore) -> tuple[float, ...]:
        demand, competition = _number(node, "demand_index"), _number(node, "competition_score")
        if demand is None or competition is None:
            return (1,)
        return 0, -demand * (100 - competition) / 100


class OwnThenSales(_Lift):
    """A user's own sources first, then those with the most `sales`, then what has none."""

    user: UUID | None

    def rank(self, node: NodeWithScore) -> tuple[float, ...]:
        sales = _number(node, "sales")
        return not _belongs(node, self.user), sales is None, -(sales or 0.0)


class ExactMatch(_Lift):
    """What is about a term of the question first, then what is related to one; by similarity inside each.

    A term is one of `terms`, or stands in `text` as whole words: a node's `term` or title for what it is about, its
    `related_terms` for what it is related to. Case and a plural s do not matter. Who is named is no weak match.
    """

    within: float = 0.4
    terms: tuple[str, ...] = ()
    text: str = ""

    def rank(self, node: NodeWithScore) -> tuple[float, ...]:
        meta = node.node.metadata
        about = [meta.get("term"), meta.get("title")]
        related = meta.get("related_terms") or []
        tier = 0 if any(map(self._asked, about)) else 1 if any(map(self._asked, related)) else 2
        return tier, -(node.score or 0.0)

    @cached_property
    def asked(self) -> tuple[str, frozenset[str]]:
        """The words of the text, and of each term."""
        return _words(self.text), frozenset(map(_words, self.terms))

    def _asked(self, name: object) -> bool:
        text, terms = self.asked
        words = _words(str(name or ""))
        return bool(words.strip()) and (words in text or words in terms)


STRATEGIES: dict[str, Callable[[Question, Scope], BaseNodePostprocessor]] = {
    "opportunity": lambda question, scope: Opportunity(),
    "own_then_sales": lambda question, scope: OwnThenSales(user=scope.user),
    "exact_match": lambda question, scope: ExactMatch(
        terms=question.terms, text=f"{question.text}\n{question.searched or ''}"
    ),
    "alerts_first": lambda question, scope: AlertsFirst(user=scope.user),
}
"""A capability's own order for what was found, by its name; what it does not tell apart stays as it was."""


def postprocessors_for(
    question: Question,
    scope: Scope,
    *,
    prefers_owner: bool = False,
    strategy: str | None = None,
    chunks_per_source: int | None = None,
) -> list[BaseNodePostprocessor]:
    """What a question wants done with what was found, in order: the cut at its threshold, by whose it is, a strategy.

    Then what was named comes first, so that limits cut the others. With `chunks_per_source`, `top_k` counts sources.
    """
    wanted: list[BaseNodePostprocessor] = []
    if question.threshold is not None:
        wanted.append(SimilarityCutoff(threshold=question.threshold))
    if prefers_owner:
        wanted.append(OwnerPreference(user=scope.user))
    if strategy is not None:
        wanted.append(STRATEGIES[strategy](question, scope))
    named, user = frozenset(question.sources), scope.user if prefers_owner else None
    if named:
        wanted.append(Named(source_ids=named))
    if question.at_most:
        wanted.append(AtMost(limits=dict(question.at_most)))
    if chunks_per_source is None:
        return [*wanted, Best(top_k=question.top_k)]
    return [*wanted, BestSources(top_k=question.top_k, chunks=chunks_per_source, user=user, named=named)]


def _words(text: str) -> str:
    """Its words between blanks, so that one text is whole words of another where it is part of it.

    >>> _words("Two Ring-Stands"), _words("ring stand") in _words("ring standing")
    (' two ring stand ', False)
    """
    words = re.findall(r"\w+", text.casefold())
    return f" {' '.join(word.removesuffix('s') if len(word) > 3 else word for word in words)} "


def _number(node: NodeWithScore, field: str) -> float | None:
    value = node.node.metadata.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _belongs(node: NodeWithScore, user: UUID | None) -> bool:
    return user is not None and node.node.metadata.get("owner_id") == str(user)


def _source(node: NodeWithScore) -> str:
    return str(node.node.metadata["source_id"])


def _best(nodes: list[NodeWithScore]) -> float:
    """The highest similarity."""
    return max((node.score or 0.0 for node in nodes), default=0.0)
