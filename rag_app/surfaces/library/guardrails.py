"""What a retrieval must name before it is run, and which source types it may touch."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from rag_app.domain.errors import Forbidden, InvalidInput

SOURCE_TYPES = ("product", "page", "policy")
"""Of a shop: what the index store_catalogue declares."""


@dataclass(frozen=True, slots=True)
class RetrievalPolicy:
    """The source types that may be retrieved.

    With `explicit_allowlist_required` every retrieval is filtered by a list: the request's, or, where it names none,
    this one; another type is refused. Without, a request may name any type that its index declares, and gets all of
    them where it names none.

    >>> RetrievalPolicy(allowed_source_types=("policy",)).explicit_allowlist_required
    True
    >>> DEFAULT_POLICY.allowed_source_types
    ('product', 'page', 'policy')
    """

    allowed_source_types: tuple[str, ...] = SOURCE_TYPES
    explicit_allowlist_required: bool = True


DEFAULT_POLICY = RetrievalPolicy()


def create_strict_policy(allowed_source_types: Iterable[str]) -> RetrievalPolicy:
    """These types and no others. Raises InvalidInput where there is none.

    >>> create_strict_policy(["policy"]).allowed_source_types
    ('policy',)
    """
    return RetrievalPolicy(_named(allowed_source_types))


def create_permissive_policy() -> RetrievalPolicy:
    """Whatever the index declares.

    >>> create_permissive_policy().explicit_allowlist_required
    False
    """
    return RetrievalPolicy(explicit_allowlist_required=False)


def sanitize_source_types(source_types: Iterable[str], allowed: Iterable[str] = SOURCE_TYPES) -> list[str]:
    """Those that are allowed, each once, in their order.

    Nothing may be left, and a retrieval refuses an empty list with InvalidInput: it never comes to mean all types.
    Raises InvalidInput itself for a single text, and for what is no list of texts.

    >>> sanitize_source_types(["product", "blog", "product", "page"])
    ['product', 'page']
    """
    accepted = set(allowed)
    return [each for each in dict.fromkeys(_list(source_types)) if each in accepted]


def validate_retrieval_request(
    tenant_id: str | UUID,
    site_id: str | UUID,
    allowed_source_types: Iterable[str] | None = None,
    policy: RetrievalPolicy = DEFAULT_POLICY,
) -> tuple[str, ...] | None:
    """The source types to retrieve; None for all that the index has.

    Raises InvalidInput for a tenant, a site or a list of types that is empty or none, and Forbidden for a type that the
    policy does not allow. Whether the site is the tenant's is for the database to say: `retrieve_chunks` asks it.

    >>> validate_retrieval_request("aurora", "eu", ["product"])
    ('product',)
    >>> validate_retrieval_request("aurora", "eu", policy=create_strict_policy(["page"]))
    ('page',)
    >>> validate_retrieval_request("aurora", "")
    Traceback (most recent call last):
    rag_app.domain.errors.InvalidInput: site_id: is required: a name or an id
    """
    for name, value in (("tenant_id", tenant_id), ("site_id", site_id)):
        if not isinstance(value, str | UUID) or not str(value).strip():
            raise InvalidInput(name, value, "is required: a name or an id")
    if not policy.explicit_allowlist_required:
        return None if allowed_source_types is None else _named(allowed_source_types)
    if allowed_source_types is None:
        return _named(policy.allowed_source_types)
    named = _named(allowed_source_types)
    if refused := [each for each in named if each not in policy.allowed_source_types]:
        raise Forbidden(
            f"the policy does not allow source type {', '.join(refused)}; "
            f"allowed: {', '.join(policy.allowed_source_types)}"
        )
    return named


def _named(source_types: Iterable[str]) -> tuple[str, ...]:
    """Each once. An empty list is refused: it must not come to mean all types."""
    named = tuple(dict.fromkeys(_list(source_types)))
    if not named:
        raise InvalidInput("allowed_source_types", named, "is empty: name a source type")
    return named


def _list(source_types: Iterable[str]) -> list[str]:
    """Raises InvalidInput for a single text, whose letters would be taken for types, and for what is no text."""
    listed = [source_types] if isinstance(source_types, str) else list(source_types)
    if isinstance(source_types, str) or not all(isinstance(each, str) for each in listed):
        raise InvalidInput("allowed_source_types", source_types, "must be a list of texts")
    return listed
