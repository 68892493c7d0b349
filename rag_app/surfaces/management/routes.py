"""Administration (`/api/v1/admin`): for users with the role admin, signed in as a person.

PostgreSQL looks up the administrator in the transaction that reads and that adds the audit event.
"""

from datetime import date
from typing import Annotated, Literal
from uuid import UUID

from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import Struct

from rag_app.access.audit import ADMINISTRATORS_ONLY
from rag_app.domain import Forbidden, InvalidInput, NotFound, StoreFailed, Unauthenticated, UnknownField
from rag_app.http.fields import WORD, PageSize
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example
from rag_app.surfaces.management.service import Belonging, FeedbackQueue, Usage
from rag_app.surfaces.management.types import (
    FEEDBACK,
    MONTH,
    AuditResponse,
    FeedbackQueuePage,
    KeyInfo,
    KeysResponse,
    MadeKey,
    MemberInfo,
    MembersResponse,
    NewKey,
    NewMember,
    NewPlan,
    NewSettlement,
    OrganizationsResponse,
    TrendsResponse,
    UsageResponse,
)
from rag_app.surfaces.validation.service import RetrievalValidation
from rag_app.surfaces.validation.types import StoredValidation, ValidationsResponse

ADMIN = "/api/v1/admin"
ORGANIZATION = f"{ADMIN}/organizations/{{organization:str}}"
NO_ORGANIZATION = NotFound("organization", "aurora")
SURFACE = Surface(
    name="management",
    tag=Tag("Administration", "feedback, usage, members, keys and validation runs; requires the role admin"),
    paths=(f"{ADMIN}/",),
    limit=120,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION}),
    errors=(
        Unauthenticated("The token has expired"),
        Forbidden(ADMINISTRATORS_ONLY),
        UnknownField("colour", []),
        StoreFailed(),
        RuntimeError(),
    ),
    options=STRICT,
)


class Settled(Struct, frozen=True):
    id: UUID


@SURFACE.get(
    f"{ADMIN}/feedback",
    InvalidInput("limit", "101", "must be a whole number from 1 to 100"),
    summary="List feedback from all surfaces",
)
async def feedback(
    request: Caller,
    feedback_queue: Injected[FeedbackQueue],
    settled: Annotated[Literal["open", "settled"] | None, QueryParameter(name="state")] = None,
    kind: Annotated[Literal["message", "answer"] | None, QueryParameter()] = None,
    rating: Annotated[Literal["positive", "negative", "neutral"] | None, QueryParameter()] = None,
    prompt: Annotated[
        str | None,
        QueryParameter(min_length=1, max_length=100, pattern=WORD, description="the name of a prompt version"),
    ] = None,
    limit: PageSize = 20,
    cursor: Annotated[
        str | None, QueryParameter(max_length=100, description="`next_cursor` of the previous page")
    ] = None,
) -> FeedbackQueuePage:
    """Returns each feedback with its question, answer, sources and prompt versions."""
    return await feedback_queue.read(
        request.user, state=settled, kind=kind, rating=rating, prompt=prompt, limit=limit, after=cursor
    )


@SURFACE.put(
    f"{ADMIN}/feedback/{{feedback_id:uuid}}/settlement",
    InvalidInput("resolution", "done", "one of fixed, noted, dismissed"),
    NotFound("feedback", FEEDBACK),
    summary="Mark feedback as settled",
)
async def settle(
    request: Caller,
    data: Annotated[NewSettlement, BodyKwarg(examples=[example(__package__, "settlement")])],
    feedback_queue: Injected[FeedbackQueue],
    feedback_id: FromPath[UUID],
) -> Settled:
    """Records how the feedback was dealt with. Settling it again replaces the earlier settlement. If the user changes the
    feedback, it is open again."""
    await feedback_queue.settle(request.user, feedback_id, data.resolution, data.note)
    return Settled(feedback_id)


@SURFACE.delete(
    f"{ADMIN}/feedback/{{feedback_id:uuid}}/settlement",
    NotFound("settled feedback", FEEDBACK),
    summary="Reopen settled feedback",
    status_code=204,
)
async def reopen(request: Caller, feedback_queue: Injected[FeedbackQueue], feedback_id: FromPath[UUID]) -> None:
    """Returns 404 if the feedback is not settled."""
    await feedback_queue.reopen_feedback(request.user, feedback_id)


@SURFACE.get(
    f"{ADMIN}/trends",
    InvalidInput("from", "2026-02-01", "must not be after `to` (2026-01-31)"),
    summary="Show daily figures of answers",
)
async def trends(
    request: Caller,
    usage: Injected[Usage],
    since: Annotated[date | None, QueryParameter(name="from", description="first day (UTC)")] = None,
    until: Annotated[date | None, QueryParameter(name="to", description="last day (UTC); today by default")] = None,
    capability: Annotated[
        str | None,
        QueryParameter(
            pattern=WORD,
            max_length=200,
            description="answers of one capability, such as `knowledge_answer` (`/api/rag/answer`), `owner_ask` (`/owner/ask`) or "
            "`index:orders` (`/api/v1/indexes/orders/answer`); the default is conversations",
        ),
    ] = None,
) -> TrendsResponse:
    """A period is at most 366 whole days in UTC; the default is the last 30 days."""
    return await usage.trends(request.user, since, until, capability)


@SURFACE.get(
    f"{ADMIN}/usage",
    InvalidInput("month", "May", "must be a month, such as 2026-01"),
    summary="Show the usage of a month",
)
async def month_of_usage(
    request: Caller,
    usage: Injected[Usage],
    month: Annotated[
        str | None,
        QueryParameter(
            pattern=MONTH,
            description="a month such as 2026-01; the current month by default",
        ),
    ] = None,
) -> UsageResponse:
    """Returns each user's messages, plan limit, tokens and cost in conversations, and the tokens of your organizations."""
    return await usage.month(request.user, month)


@SURFACE.get(
    f"{ADMIN}/audit", InvalidInput("limit", "101", "must be a whole number from 1 to 100"), summary="Read the audit log"
)
async def audit(
    request: Caller,
    usage: Injected[Usage],
    action: Annotated[str | None, QueryParameter(min_length=1, max_length=100, pattern=WORD)] = None,
    limit: PageSize = 50,
    before: Annotated[int | None, QueryParameter(ge=1, le=2**63 - 1, description="`next` of the previous page")] = None,
) -> AuditResponse:
    """Returns the actions of administrators, newest first. Reading the log is recorded in it, too."""
    return await usage.audit(request.user, limit=limit, before=before, action=action)


@SURFACE.put(
    f"{ADMIN}/users/{{user_id:uuid}}/plan", NotFound("plan", "gold", ["free", "pro"]), summary="Change a user's plan"
)
async def plan(
    request: Caller,
    data: Annotated[NewPlan, BodyKwarg(examples=[example(__package__, "plan")])],
    belonging: Injected[Belonging],
    user_id: FromPath[UUID],
) -> MemberInfo:
    """The plan applies from the user's next message. Messages already used this month still count."""
    return await belonging.set_plan(request.user, user_id, data.plan)


@SURFACE.get(f"{ADMIN}/organizations", summary="List your organizations")
async def organizations(request: Caller, belonging: Injected[Belonging]) -> OrganizationsResponse:
    return await belonging.organizations(request.user)


@SURFACE.get(f"{ORGANIZATION}/members", NO_ORGANIZATION, summary="List the members of an organization")
async def members(request: Caller, belonging: Injected[Belonging], organization: FromPath[str]) -> MembersResponse:
    """Returns people only, not the service users of API keys."""
    return await belonging.members(request.user, organization)


@SURFACE.post(f"{ORGANIZATION}/members", NotFound("user", "ada"), summary="Add a member")
async def add_member(
    request: Caller,
    data: Annotated[NewMember, BodyKwarg(examples=[example(__package__, "member")])],
    belonging: Injected[Belonging],
    organization: FromPath[str],
) -> MembersResponse:
    """The user must already exist. Adding a member twice changes nothing."""
    return await belonging.add_member(request.user, organization, data.user)


@SURFACE.delete(
    f"{ORGANIZATION}/members/{{user_id:uuid}}",
    NotFound("member", "ada"),
    InvalidInput("user", "", "must be another user: you cannot remove yourself"),
    summary="Remove a member",
    status_code=204,
)
async def remove_member(
    request: Caller, belonging: Injected[Belonging], organization: FromPath[str], user_id: FromPath[UUID]
) -> None:
    """Sources that the member owns stay in the organization."""
    await belonging.remove_member(request.user, organization, user_id)


@SURFACE.get(f"{ORGANIZATION}/keys", NO_ORGANIZATION, summary="List the API keys of an organization")
async def keys(request: Caller, belonging: Injected[Belonging], organization: FromPath[str]) -> KeysResponse:
    """Returns the first characters of each key and when it was last used, never the whole key."""
    return await belonging.keys(request.user, organization)


@SURFACE.post(
    f"{ORGANIZATION}/keys",
    NO_ORGANIZATION,
    InvalidInput("indexes", "boook", "accepted: book, org_knowledge"),
    summary="Create an API key",
    status_code=201,
)
async def create_key(
    request: Caller,
    data: Annotated[NewKey, BodyKwarg(examples=[example(__package__, "key")])],
    belonging: Injected[Belonging],
    organization: FromPath[str],
) -> MadeKey:
    """Only this response contains the secret."""
    return await belonging.create_key(request.user, organization, data.name, data.indexes)


@SURFACE.delete(
    f"{ADMIN}/keys/{{key_id:uuid}}", NotFound("key", FEEDBACK), summary="Revoke an API key", status_code=200
)
async def revoke_key(request: Caller, belonging: Injected[Belonging], key_id: FromPath[UUID]) -> KeyInfo:
    """All server processes refuse the key at once."""
    return await belonging.revoke_key(request.user, key_id)


@SURFACE.get(
    f"{ORGANIZATION}/validations",
    InvalidInput("limit", "101", "must be a whole number from 1 to 100"),
    NO_ORGANIZATION,
    summary="List the validation runs of an organization, newest first",
)
async def validations(
    request: Caller,
    belonging: Injected[Belonging],
    validation: Injected[RetrievalValidation],
    organization: FromPath[str],
    limit: PageSize = 20,
    before: Annotated[str | None, QueryParameter(max_length=100, description="`next` of the previous page")] = None,
) -> ValidationsResponse:
    """Returns what the organization's API keys get from `/api/v1/retrieval/validations`."""
    return await validation.newest(await belonging.as_member(request.user, organization), limit, before)


@SURFACE.get(
    f"{ORGANIZATION}/validations/{{validation_id:str}}",
    NotFound("validation", "validation_1"),
    summary="Read a validation run",
)
async def stored_validation(
    request: Caller,
    belonging: Injected[Belonging],
    validation: Injected[RetrievalValidation],
    organization: FromPath[str],
    validation_id: FromPath[str],
    against: Annotated[
        str | None, QueryParameter(max_length=100, description="the id of the run to compare with")
    ] = None,
) -> StoredValidation:
    """With `against`, the response also says what changed since that run."""
    return await validation.read_run(await belonging.as_member(request.user, organization), validation_id, against)
