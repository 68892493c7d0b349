"""Ask LexyBrain for its administrators: figures, feedback, versions of prompts (`/api/admin/lexybrain`).

Who is one, PostgreSQL looks up in the transaction that reads; each request is written down there.
"""

from datetime import date
from typing import Annotated, Any, Literal

from litestar import Request, Response, get, patch, post, route
from litestar.openapi.spec import Example, Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import UNSET

from rag_app.answering.prompt_configs import PromptConfigs
from rag_app.domain.errors import Forbidden, InvalidInput, NotFound
from rag_app.domain.scope import Principal
from rag_app.http.bodies import WORD, JsonBody
from rag_app.http.docs import rate_limit_headers, security
from rag_app.http.surface import Credential, Injected, Surface
from rag_app.surfaces.lexybrain.administration_bodies import (
    VERSION,
    Capability,
    FeedbackResponse,
    LexyBrainStats,
    NewPrompt,
    PromptChange,
    PromptInfo,
    PromptsResponse,
    prompt_of,
    review_of,
    stats_of,
)
from rag_app.surfaces.lexybrain.figures import FeedbackFilter
from rag_app.surfaces.lexybrain.reviews import Reviews
from rag_app.surfaces.lexybrain.rules import (
    KINDS,
    LIMIT,
    OF_BODIES,
    LexyBrainOperation,
    declared_alone,
    envelope,
    errors,
)
from rag_app.surfaces.lexybrain.statistics import Statistics
from rag_app.surfaces.lexybrain.types import Rating

TAG = Tag("Ask LexyBrain, administration", "what all users do; for users with the role admin, and written down")
CREDENTIALS = frozenset({Credential.JWT, Credential.COOKIE, Credential.API_KEY})
"""An API key is told that it may not (403): it is known, and nobody in particular."""
SECURITY = security(CREDENTIALS - {Credential.API_KEY})
STATS, FEEDBACK, CONFIGS = (
    f"/api/admin/lexybrain/{each}" for each in ("rag/stats", "rag/feedback", "configs")
)  # fmt: skip
NOTHING_TO_CHANGE = "The body must have `active`, or `weight`, or both"
REFUSED = Forbidden("only an administrator may do this, signed in as a person")
Since = Annotated[
    date | None, QueryParameter(name="from", description="the first day, UTC; 30 days before the last by default")
]
Until = Annotated[date | None, QueryParameter(name="to", description="the last day, UTC; today by default")]


@get(
    STATS,
    summary="Figures of a period",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("from", "2026-02-01", "must not be after `to` (2026-01-31)"), REFUSED),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def stats(
    request: Request[Principal, Any, Any], statistics: Injected[Statistics], since: Since = None, until: Until = None
) -> LexyBrainStats:
    """Of whole days in UTC, at most 366 of them; the last 30 by default. docs/surfaces/lexybrain-admin.md says which rows
    count for which figure."""
    return stats_of(await statistics.read(request.user, since, until))


@get(
    FEEDBACK,
    summary="What users think of answers",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("limit", "101", "Expected `int` <= 100"), REFUSED),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def feedback(
    request: Request[Principal, Any, Any],
    reviews: Injected[Reviews],
    rating: Annotated[Literal["positive", "negative", "neutral"] | None, QueryParameter()] = None,
    capability: Annotated[Capability | None, QueryParameter(description="of the answer")] = None,
    prompt: Annotated[
        str | None,
        QueryParameter(
            min_length=1, max_length=100, pattern=WORD, description="the name of a version the answer was given with"
        ),
    ] = None,
    since: Annotated[date | None, QueryParameter(name="from", description="given on this day (UTC) or later")] = None,
    until: Annotated[date | None, QueryParameter(name="to", description="given on this day (UTC) or before")] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="of this page")] = 20,
    cursor: Annotated[
        str | None,
        QueryParameter(min_length=1, max_length=500, pattern=WORD, description="`nextCursor` of the page before"),
    ] = None,
) -> FeedbackResponse:
    """With the question and the answer, newest first. What users deleted is not shown."""
    wanted = FeedbackFilter(Rating(rating) if rating else None, capability, prompt, since, until)
    page = await reviews.list(request.user, wanted, limit=limit, after=cursor)
    return FeedbackResponse([review_of(each) for each in page.reviews], page.after)


@get(
    CONFIGS,
    summary="All versions of prompts",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(InvalidInput("limit", None, "unknown field; accepted: "), REFUSED),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def configs(request: Request[Principal, Any, Any], prompts: Injected[PromptConfigs]) -> PromptsResponse:
    return PromptsResponse([prompt_of(each) for each in await prompts.versions(request.user)])


@post(
    CONFIGS,
    dto=JsonBody,
    return_dto=None,
    summary="A new version of a prompt",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(
        InvalidInput("weight", -1, "must be a whole number from 0 to 1000000: its share among the active ones"),
        InvalidInput("name", VERSION, f"{VERSION!r} is taken: a version never changes, add a new one"),
        REFUSED,
        *OF_BODIES,
    ),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def add(
    request: Request[Principal, Any, Any],
    data: Annotated[
        NewPrompt,
        BodyKwarg(
            examples=[
                Example(
                    value={
                        "name": "ask_lexybrain_market_brief_v2",
                        "type": "market_brief",
                        "instructions": "Compare the markets. Begin with what changed.",
                        "constraints": {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"]},
                        "weight": 1,
                        "active": False,
                    }
                )
            ]
        ),
    ],
    prompts: Injected[PromptConfigs],
) -> PromptInfo:
    """It is in use at once where it is `active`. A version never changes: what is better has a new name."""
    return prompt_of(await prompts.publish(request.user, data.config()))


@patch(
    f"{CONFIGS}/{{name:str}}",
    dto=JsonBody,
    return_dto=None,
    summary="Activate, deactivate or weigh a version",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(
        InvalidInput("active", 1, "must be true or false"),
        InvalidInput("", None, NOTHING_TO_CHANGE),
        REFUSED,
        NotFound("prompt version", "ask_lexybrain_x", [VERSION]),
        *OF_BODIES,
    ),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def change(
    request: Request[Principal, Any, Any],
    data: Annotated[
        PromptChange,
        BodyKwarg(
            examples=[Example(value={"active": True, "weight": 3}), Example(value={"active": False})],
            schema_extra={"min_properties": 1},
        ),
    ],
    prompts: Injected[PromptConfigs],
    name: FromPath[str],
) -> PromptInfo:
    """What is not said stays. Threads that have a version which is switched off get another with their next message."""
    if data.active is UNSET and data.weight is UNSET:
        raise InvalidInput("", None, NOTHING_TO_CHANGE)
    active = None if data.active is UNSET else data.active
    weight = None if data.weight is UNSET else data.weight
    return prompt_of(await prompts.change(request.user, name, active=active, weight=weight))


@route(CONFIGS, http_method="OPTIONS", status_code=204, include_in_schema=False)
async def methods() -> Response[None]:
    """Litestar by itself tells of the first of several handlers alone."""
    return Response(None, headers={"Allow": "GET, OPTIONS, POST"})


SURFACE = Surface(
    name="lexybrain_admin",
    tag=TAG,
    paths=("/api/admin/lexybrain/",),
    handlers=[stats, feedback, methods, configs, add, change],
    limit=LIMIT,
    credentials=CREDENTIALS,
    envelope=envelope,
    kinds=KINDS,
)
