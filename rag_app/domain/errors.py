"""What can go wrong, and what a caller needs to know about it.

    RagError
    ├── InvalidInput              a value is not what is accepted: `field`, `value`
    │   └── UnknownField          a filter or metadata field the index does not declare: `accepted`
    ├── NotFound                  no such index, source, organization: `kind`, `name`
    ├── Unauthenticated           no principal, or a token that is not valid
    ├── Forbidden                 a principal who may not do this
    ├── RateLimited               `limit`, `resets_at` (Unix time, seconds)
    ├── TooManyAtOnce             `limit` requests of this caller are under way
    │   └── ThreadBusy            ... and they are earlier messages of the same thread
    ├── QuotaExceeded             `limit`, `used`, `resets_at` (Unix time, seconds): a plan's messages of a month
    │   └── BudgetSpent           the same in tokens, of an organization
    ├── FeatureDisabled           switched off for everybody or for the caller's plan
    │   └── CostCapReached        until tomorrow (UTC): answers have cost as much as a day may
    ├── UnreadableDocument        a file that cannot become a source: `path`, `reason`
    ├── Misconfigured             settings that cannot work together: the message says what to do
    ├── EmbeddingFailed           the embedding model did not answer
    ├── StoreFailed               the database or the vector store did not answer
    └── ModelFailed               the answering model did not answer
        ├── ModelTimeout
        ├── ModelLimited          its own rate limit is hit
        └── ModelMalformed        it answered with something that is no answer
            └── ModelSilent       ... and that is no text at all

A surface turns each into its own status and envelope; nobody parses messages.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class RagError(Exception):
    """The root of all errors raised on purpose.

    >>> issubclass(InvalidInput, RagError)
    True
    """


class InvalidInput(RagError):
    """A value is not what is accepted.

    >>> str(InvalidInput("top_k", 99, "must be between 1 and 50"))
    'top_k: must be between 1 and 50'
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        self.field, self.value, self.problem = field, value, problem
        super().__init__(f"{field}: {problem}" if field else problem)


class UnknownField(InvalidInput):
    """A filter or metadata field that the index does not declare.

    >>> str(UnknownField("colour", ["lang", "date"]))
    'colour: unknown field; accepted: date, lang'
    """

    def __init__(self, field: str, accepted: Iterable[str]) -> None:
        self.accepted = sorted(accepted)
        super().__init__(field, None, f"unknown field; accepted: {', '.join(self.accepted) or 'none'}")
        self.problem = "unknown field"  # `accepted` says the rest


class NotFound(RagError):
    """Nothing of that name, as far as the caller may know.

    >>> str(NotFound("index", "boook", ["book"]))
    "no index named 'boook'; there are: book"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        self.kind, self.name = kind, name
        there_are = ", ".join(sorted(known))
        super().__init__(f"no {kind} named {name[:200]!r}" + (f"; there are: {there_are}" if there_are else ""))


class Unauthenticated(RagError):
    """No principal, or a token that does not hold."""


class Forbidden(RagError):
    """A principal who may not do this. The message says what it lacks."""


class RateLimited(RagError):
    """More requests than allowed in the window that ends at `resets_at` (Unix time, seconds)."""

    def __init__(self, limit: int, resets_at: int) -> None:
        self.limit, self.resets_at = limit, resets_at
        super().__init__(f"more than {limit} requests a minute")


class TooManyAtOnce(RagError):
    """As many requests of this caller are under way as may be."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} of your requests are running; wait until one of them has finished")


class ThreadBusy(TooManyAtOnce):
    """Earlier messages of the thread are still being answered."""

    def __init__(self) -> None:
        super().__init__(1)


class QuotaExceeded(RagError):
    """All messages of the month are used; the count begins again at `resets_at` (Unix time, seconds)."""

    what = "messages of this month"

    def __init__(self, limit: int, used: int, resets_at: int) -> None:
        self.limit, self.used, self.resets_at = limit, used, resets_at
        super().__init__(f"all {limit} {self.what} are used")


class BudgetSpent(QuotaExceeded):
    """All tokens that an organization has for a month are used."""

    what = "tokens of your organization's budget for this month"


class FeatureDisabled(RagError):
    """Switched off, for everybody or for the caller's plan. The message says which."""


class CostCapReached(FeatureDisabled):
    """Answers have cost as much as they may in a day; tomorrow (UTC) they may again."""


class UnreadableDocument(RagError):
    """A file that cannot become a source. The rest of an ingest goes on.

    >>> str(UnreadableDocument("a.pdf", "encrypted: a password is needed"))
    'a.pdf: encrypted: a password is needed'
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")


class Misconfigured(RagError):
    """Settings that cannot work, or not together. The message says what to do."""


class EmbeddingFailed(RagError):
    """The embedding model did not answer."""


class StoreFailed(RagError):
    """PostgreSQL or the vector store did not answer."""


class ModelFailed(RagError):
    """The answering model did not answer, after the requests it is allowed."""


class ModelTimeout(ModelFailed):
    """No answer in time."""


class ModelLimited(ModelFailed):
    """The model's own rate limit is hit."""


class ModelMalformed(ModelFailed):
    """It answered with something that is no answer."""


class ModelSilent(ModelMalformed):
    """It answered without a text."""


def require(found: T | None, error: Exception) -> T:
    """What was looked for. Raises the error if there is none.

    >>> require(None, NotFound("thread", "t-1"))
    Traceback (most recent call last):
    rag_app.domain.errors.NotFound: no thread named 't-1'
    """
    if found is None:
        raise error
    return found


def describe_problem(problem: Mapping[str, Any], whole: str = "") -> str:
    """What is wrong at which place, of one of pydantic's `ValidationError.errors()`; `whole` is the place of the whole.

    >>> describe_problem({"type": "value_error", "loc": ("weight", 1), "ctx": {"error": ValueError("is negative")}})
    'weight.1: is negative'
    """
    said = str(problem["ctx"]["error"]) if problem["type"] == "value_error" else problem["msg"]
    return ": ".join(filter(None, [".".join(map(str, problem["loc"])) or whole, said]))
