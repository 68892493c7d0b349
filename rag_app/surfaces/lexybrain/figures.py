"""What an administrator is shown of all conversations: figures of a period, feedback, versions of prompts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from rag_app.domain.errors import InvalidInput
from rag_app.surfaces.lexybrain.types import Rating

LONGEST_PERIOD = 366
"""Days."""
DEFAULT_PERIOD = 30
STAGES = ("keeping", "preparing", "retrieval", "generation", "total")
"""Of a turn, in their order."""
_FIRST, _LAST = date(2000, 1, 1), date(9999, 12, 30)


def midnight(day: date) -> datetime:
    """When a day begins, in UTC."""
    return datetime.combine(day, time.min, UTC)


@dataclass(frozen=True, slots=True)
class Period:
    """Whole days in UTC, from `since` to `until`, both included.

    >>> Period.of(None, date(2026, 1, 31), today=date(2026, 11, 22))
    Period(since=datetime.date(2026, 1, 2), until=datetime.date(2026, 1, 31))
    """

    since: date
    until: date

    @classmethod
    def of(cls, since: date | None, until: date | None, *, today: date) -> "Period":
        """Until today, and 30 days long, where nothing else is said. Raises InvalidInput for `from` and `to`."""
        for name, day in (("from", since), ("to", until)):
            if day is not None and not _FIRST <= day <= _LAST:
                raise InvalidInput(name, str(day), f"must be between {_FIRST} and {_LAST}")
        last = today if until is None else until
        first = last - timedelta(days=DEFAULT_PERIOD - 1) if since is None else since
        if first > last:
            raise InvalidInput("from", str(first), f"must not be after `to` ({last})")
        if (last - first).days >= LONGEST_PERIOD:
            raise InvalidInput("from", str(first), f"must be at most {LONGEST_PERIOD} days up to `to` ({last})")
        return cls(first, last)

    @property
    def days(self) -> list[date]:
        return [self.since + timedelta(days=n) for n in range((self.until - self.since).days + 1)]


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages of the period, deleted ones included; of threads that are there.

    `active_users` wrote one, `threads` had one, `new_threads` were begun. `sources` is their mean number in an answer;
    that and the shares are None where there is no answer.
    """

    questions: int
    answers: int
    deleted: int
    threads: int
    new_threads: int
    active_users: int
    sources: float | None
    insufficient_context: float | None
    fallback: float | None
    interrupted: float | None
    ratings: Mapping[Rating, int]


@dataclass(frozen=True, slots=True)
class Day:
    day: date
    questions: int = 0
    answers: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_cents: float = 0.0


@dataclass(frozen=True, slots=True)
class PlanUse:
    """`messages` of a month for each of the plan's `users`, -1 without limit; `used` by the `active` ones among them."""

    plan: str
    messages: int
    users: int
    active: int
    used: int


@dataclass(frozen=True, slots=True)
class CapabilityUse:
    """`capability` is None for questions that failed before it was known."""

    capability: str | None
    questions: int
    answers: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Of so many answers, in milliseconds: the values that half of them, and 95 of 100, do not exceed."""

    answers: int = 0
    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Arm:
    """Answers that were given with a version of a prompt. `cost_cents` is the mean."""

    type: str
    prompt: str
    answers: int
    sources: float
    insufficient_context: float
    fallback: float
    ratings: Mapping[Rating, int]
    latency: Latency
    cost_cents: float | None


@dataclass(frozen=True, slots=True)
class Figures:
    """`month` begins on this day: that of the period's end, whose quotas `plans` are. `failures` by kind."""

    period: Period
    totals: Totals
    days: tuple[Day, ...]
    month: date
    plans: tuple[PlanUse, ...]
    capabilities: tuple[CapabilityUse, ...]
    latency: Mapping[str, Latency]
    arms: tuple[Arm, ...]
    failures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FeedbackFilter:
    """None is all. `prompt` is the name of a version; `since` and `until` whole days in UTC, both included."""

    rating: Rating | None = None
    capability: str | None = None
    prompt: str | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """An answer as its user rated it. `question` is None where it was deleted.

    `sources` are labels, and whether the answer cites them; `prompts` the names of versions, by type.
    """

    id: UUID
    user: UUID
    thread: UUID
    message: UUID
    rating: Rating
    comment: str | None
    expected_source: UUID | None
    created_at: datetime
    updated_at: datetime
    answered_at: datetime
    capability: str | None
    model: str | None
    question: str | None
    answer: str
    prompts: Mapping[str, str]
    sources: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """Newest first; `after` is the cursor of the next page, None on the last one."""

    reviews: tuple[Review, ...]
    after: str | None = None
