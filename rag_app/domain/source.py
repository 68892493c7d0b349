"""A source: what a person would call a document, and what a citation points at."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid5

from msgspec import Struct, field

from rag_app.domain.filters import Value

_NAMESPACE = UUID("6f2d0e5c-58f3-4c0e-9a53-3b1d8c6f7a10")

MetadataValue = Value | list[str]
JsonObject = dict[str, Any]


class Visibility(StrEnum):
    """Who of those that may see the organization sees the source.

    USER: its owner alone. GROUP: the members of the groups it names. TEAM: all members. GLOBAL: everybody; such a source
    belongs to the public organization.
    """

    USER = "user"
    GROUP = "group"
    TEAM = "team"
    GLOBAL = "global"


def source_id(org_id: UUID, index: str, external_id: str) -> UUID:
    """The same source has the same id wherever and whenever it is ingested.

    >>> from uuid import UUID
    >>> source_id(UUID(int=1), "book", "ch1.md") == source_id(UUID(int=1), "book", "ch1.md")
    True
    """
    return uuid5(_NAMESPACE, f"{org_id}/{index}/{external_id}")


def passage_link(source: UUID, chunk: UUID | None = None) -> str:
    """The path that opens a source, at one of its chunks. Whoever follows it is asked who they are.

    >>> passage_link(UUID(int=1), UUID(int=2))
    '/api/v1/sources/00000000-0000-0000-0000-000000000001?chunk=00000000-0000-0000-0000-000000000002'
    """
    return f"/api/v1/sources/{source}" + (f"?chunk={chunk}" if chunk else "")


def audience_id(org_id: UUID, groups: Iterable[UUID]) -> UUID:
    """The same groups are the same audience, in any order.

    >>> from uuid import UUID
    >>> audience_id(UUID(int=1), [UUID(int=2), UUID(int=3)]) == audience_id(UUID(int=1), [UUID(int=3), UUID(int=2)])
    True
    """
    return uuid5(_NAMESPACE, "/".join(["audience", str(org_id), *sorted(map(str, groups))]))


def chunk_id(source: UUID, version: str, position: int) -> UUID:
    """Deterministic, so that writing a chunk twice writes it once."""
    return uuid5(source, f"{version}/{position}")


class Source(Struct, frozen=True):
    """One source of one organization in one index.

    `version` is the hash of content and metadata: when it is the same, nothing needs to be done.
    `origin` names the file it was read from; a file may hold many sources. `date` is in epoch seconds.
    `file_name` is that file's, for people. `untyped` is metadata as it was sent: keys that the index does not declare,
    which no filter can name, and declared times in the notation of whoever wrote them.
    `audience_id` is the set of groups that see a source of visibility GROUP, and None for any other. `row` and `sheet`
    say where in its file a source stands that is a row of a table; they are no part of its version.
    """

    org_id: UUID
    index: str
    external_id: str
    title: str
    source_type: str
    version: str
    lang: str = "en"
    uri: str | None = None
    date: float | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    origin: str = ""
    site_id: UUID | None = None
    owner_id: UUID | None = None
    visibility: Visibility = Visibility.TEAM
    file_name: str | None = None
    untyped: JsonObject = field(default_factory=dict)
    audience_id: UUID | None = None
    row: int | None = None
    sheet: str | None = None

    @property
    def id(self) -> UUID:
        return source_id(self.org_id, self.index, self.external_id)

    @property
    def private_to(self) -> UUID | None:
        """The one user or the one audience that sees it, or None where visibility is wider."""
        return {Visibility.USER: self.owner_id, Visibility.GROUP: self.audience_id}.get(self.visibility)
