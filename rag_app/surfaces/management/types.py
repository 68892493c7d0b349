"""The responses of `/api/v1/admin`."""

from datetime import date
from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, Struct

from rag_app.domain import JsonObject
from rag_app.http.fields import NOT_BLANK, limit_text
from rag_app.surfaces.lexybrain.types import Count, Moment, ReviewedSource

Slug = Annotated[str, Meta(examples=["aurora"])]
Resolution = Literal["fixed", "noted", "dismissed"]
FEEDBACK = "770e8400-e29b-41d4-a716-446655440002"
MONTH = r"^20[0-9]{2}-(0[1-9]|1[0-2])$"


class Settlement(Struct, frozen=True):
    resolution: Resolution
    note: str | None
    settled_by: Annotated[str, Meta(description="the administrator's name, or the id if the user was deleted")]
    settled_at: Moment


class QueuedFeedback(Struct, frozen=True):
    """What a user thinks of one answer, with what it takes to judge that."""

    id: Annotated[UUID, Meta(examples=[FEEDBACK])]
    kind: Annotated[
        Literal["message", "answer"],
        Meta(description="`message`: feedback on a message of a conversation; `answer`: on any other answer"),
    ]
    rating: Literal["positive", "negative", "neutral"]
    comment: str | None
    expected_source: Annotated[
        str | None, Meta(description="the title of the source, or its id if you may not see the source")
    ]
    given_at: Moment
    user: str
    question: Annotated[str | None, Meta(description="null if the question was deleted")]
    answer: str
    capability: str | None
    model: str | None
    prompts: Annotated[dict[str, str], Meta(description="names of the prompt versions, by type")]
    sources: list[ReviewedSource]
    settlement: Annotated[Settlement | None, Meta(description="null if the feedback is open")]


class FeedbackQueuePage(Struct, frozen=True):
    feedback: Annotated[list[QueuedFeedback], Meta(description="newest first")]
    open: Annotated[Count, Meta(description="number of all open feedback, regardless of the filter")]
    next_cursor: Annotated[str | None, Meta(description="send as `cursor` to get the next page; null on the last page")]


class NewSettlement(Struct, frozen=True, forbid_unknown_fields=True):
    resolution: Annotated[Resolution, Meta(description="one of fixed, noted, dismissed")]
    note: (
        Annotated[
            str,
            limit_text(2000),
        ]
        | None
    ) = None


class TrendDay(Struct, frozen=True):
    """Of answers on one day, UTC; latencies in milliseconds, null where there was none."""

    date: date
    users: Annotated[Count, Meta(description="users who asked at least one question")]
    answers: Count
    refused: Annotated[Count, Meta(description="answers that say that there is not enough evidence")]
    positive: Count
    negative: Count
    cost_cents: float
    latency_p50: Annotated[float | None, Meta(description="time to the whole answer: the median")]
    latency_p95: Annotated[float | None, Meta(description="the 95th percentile")]


class TrendsResponse(Struct, frozen=True):
    days: Annotated[list[TrendDay], Meta(description="one entry per day of the period")]


class UserUsage(Struct, frozen=True):
    """Of one user in one month."""

    id: UUID
    name: str
    role: str
    plan: Annotated[str, Meta(examples=["free"])]
    messages_used: Count
    messages_per_month: Annotated[int | None, Meta(description="the limit of the plan; null means unlimited")]
    answers: Count
    input_tokens: Count
    output_tokens: Count
    cost_cents: float
    last_answer_at: Moment | None


class OrganizationUsage(Struct, frozen=True):
    slug: Slug
    name: str
    tokens: Annotated[
        Count, Meta(description="tokens used by its members on all surfaces, as the models reported them")
    ]
    token_budget: Annotated[
        int | None, Meta(description="the organization's own budget; null if the installation's default applies")
    ]


class UsageResponse(Struct, frozen=True):
    month: Annotated[str, Meta(examples=["2026-01"])]
    users: Annotated[list[UserUsage], Meta(description="users with the most usage first")]
    organizations: list[OrganizationUsage]


class NewPlan(Struct, frozen=True, forbid_unknown_fields=True):
    plan: Annotated[str, Meta(min_length=1, max_length=64, description="the code of a plan", examples=["pro"])]


class MemberInfo(Struct, frozen=True):
    id: UUID
    name: str
    role: str
    plan: str


class MembersResponse(Struct, frozen=True):
    organization: Slug
    members: Annotated[list[MemberInfo], Meta(description="ordered by name")]


class NewMember(Struct, frozen=True, forbid_unknown_fields=True):
    user: Annotated[str, Meta(min_length=1, max_length=255, description="the name or the id of a user")]


class KeyInfo(Struct, frozen=True):
    id: UUID
    name: str
    beginning: Annotated[str, Meta(examples=["rag_AbCdEfGh"])]
    indexes: Annotated[list[str] | None, Meta(description="the indexes that the key may search; null means all")]
    created_at: Moment
    last_used_at: Moment | None
    revoked_at: Moment | None


class KeysResponse(Struct, frozen=True):
    organization: Slug
    keys: Annotated[list[KeyInfo], Meta(description="oldest first, including revoked keys")]


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[
        str, Meta(min_length=1, max_length=100, pattern=NOT_BLANK, description="a text of 1 to 100 characters")
    ]
    indexes: (
        Annotated[list[str], Meta(min_length=1, description="a list of names of indexes; null means all")] | None
    ) = None


class MadeKey(Struct, frozen=True):
    key: KeyInfo
    secret: Annotated[str, Meta(description="the whole key; it cannot be read again", examples=["rag_" + "A" * 43])]


class AuditEntry(Struct, frozen=True):
    id: int
    actor: Annotated[str | None, Meta(description="the user's name, or the id if the user was deleted")]
    action: Annotated[str, Meta(examples=["prompts.activate"])]
    subject: str
    details: JsonObject
    at: Moment


class AuditResponse(Struct, frozen=True):
    entries: Annotated[list[AuditEntry], Meta(description="newest first")]
    next: Annotated[int | None, Meta(description="send as `before` to get the next page; null on the last page")]


class OrganizationInfo(Struct, frozen=True):
    id: UUID
    slug: Slug
    name: str


class OrganizationsResponse(Struct, frozen=True):
    organizations: Annotated[list[OrganizationInfo], Meta(description="your organizations, ordered by slug")]
