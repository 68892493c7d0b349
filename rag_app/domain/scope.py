"""Who asks, and what they may see."""

from uuid import UUID

from msgspec import Struct

PUBLIC_ORGANIZATION = UUID("00000000-0000-0000-0000-000000000001")
"""Owns what everybody may see (visibility "global"). Every principal belongs to it."""
MOST_REQUESTS = 10_000
"""That may be allowed in a minute: the log of as many is a row of 80 kB, which each of them writes."""


class Scope(Struct, frozen=True):
    """What a query may see: rows of these organizations and, with a site, of that site alone.

    A row private to a user is seen by that user only, a row for some groups by the members of one of them. `audiences`
    are the sets of groups that the user is in one group of. Queries are built from a Scope; there is no default one.

    >>> from uuid import uuid4
    >>> Scope(organizations=frozenset())
    Traceback (most recent call last):
    ValueError: a scope needs at least one organization
    """

    organizations: frozenset[UUID]
    user: UUID | None = None
    site: UUID | None = None
    audiences: frozenset[UUID] = frozenset()

    def __post_init__(self) -> None:
        if not self.organizations:
            raise ValueError("a scope needs at least one organization")

    @property
    def readers(self) -> list[UUID]:
        """What the `private_to` of a row may be for the scope to see it: the user, or an audience. In one order."""
        return sorted(self.audiences | ({self.user} if self.user else set()))

    @classmethod
    def alone(cls, user: UUID) -> "Scope":
        """Of what a user has without any organization: of all that belongs to one, it shows what is public."""
        return cls(frozenset({PUBLIC_ORGANIZATION}), user)


class Principal(Struct, frozen=True):
    """An authenticated caller: a user and the organizations the database says it belongs to.

    `indexes` are the names of those that the caller may search, all of them where it is None: an API key may be bound
    to some. `requests` (a minute) and `at_once` are limits of the caller's own; None: those of each surface.
    `groups` are those that the caller is in, `audiences` the sets that contain one of them (see Scope).

    >>> Principal(subject="nobody-we-know").scope().organizations == {PUBLIC_ORGANIZATION}
    True
    """

    subject: str
    user: UUID | None = None
    organizations: frozenset[UUID] = frozenset()
    indexes: frozenset[str] | None = None
    requests: int | None = None
    at_once: int | None = None
    audiences: frozenset[UUID] = frozenset()
    groups: frozenset[UUID] = frozenset()

    def scope(self, site: UUID | None = None) -> Scope:
        return Scope(self.organizations | {PUBLIC_ORGANIZATION}, self.user, site, self.audiences)
