"""Ask LexyBrain for its administrators: figures, feedback, versions of prompts (`/api/admin/lexybrain`).

Who is one, PostgreSQL looks up in the transaction that reads; each request is written down there.
"""

from dataclasses import replace
from datetime import date
from typing import Annotated

from litestar.openapi.spec import Example, Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import to_builtins

from rag_app.answering.prompt_configs import PromptConfigs
from rag_app.domain.errors import Forbidden, InvalidInput, NotFound
from rag_app.http.bodies import WORD
from rag_app.http.docs import security
from rag_app.http.surface import Credential, Injected
from rag_app.surfaces.lexybrain.administration_bodies import (
    NewPrompt,
    PromptChange,
    PromptInfo,
    PromptsResponse,
    prompt_of,
)
from rag_app.surfaces.lexybrain.figures import VERSION, FeedbackFilter, FeedbackResponse, LexyBrainStats
from rag_app.surfaces.lexybrain.reviews import Reviews
from rag_app.surfaces.lexybrain.rules import SURFACE as LEXYBRAIN
from rag_app.surfaces.lexybrain.rules import Caller, Cursor, Limit
from rag_app.surfaces.lexybrain.statistics import Statistics
from rag_app.surfaces.lexybrain.types import Rating
from rag_app.surfaces.lexybrain.wire import Capability, RatingName

_PEOPLE = frozenset({Credential.JWT, Credential.COOKIE})
SURFACE = replace(
    LEXYBRAIN,
    name="lexybrain_admin",
    tag=Tag("Ask LexyBrain, administration", "what all users do; for users with the role admin, and written down"),
    paths=("/api/admin/lexybrain/",),
    credentials=_PEOPLE | {Credential.API_KEY},  # a key is told that it may not (403): it is known, and no person
    options={**LEXYBRAIN.options, "security": security(_PEOPLE)},
    handlers=[],
)
STATS, FEEDBACK, CONFIGS = (
    f"/api/admin/lexybrain/{each}" for each in ("rag/stats", "rag/feedback", "configs")
)  # fmt: skip
NOTHING_TO_CHANGE = "The body must have `active`, or `weight`, or both"
REFUSED = Forbidden("only an administrator may do this, signed in as a person")
Since = Annotated[
    date | None, QueryParameter(name="from", description="the first day, UTC; 30 days before the last by default")
]
Until = Annotated[date | None, QueryParameter(name="to", description="the last day, UTC; today by default")]
NewPromptBody = Annotated[
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
]
PromptChangeBody = Annotated[
    PromptChange,
    BodyKwarg(
        examples=[Example(value={"active": True, "weight": 3}), Example(value={"active": False})],
        schema_extra={"min_properties": 1},
    ),
]


@SURFACE.get(
    STATS,
    InvalidInput("from", "2026-02-01", "must not be after `to` (2026-01-31)"),
    REFUSED,
    summary="Figures of a period",
)
async def stats(
    request: Caller, statistics: Injected[Statistics], since: Since = None, until: Until = None
) -> LexyBrainStats:
    """Of whole days in UTC, at most 366 of them; the last 30 by default. docs/surfaces/lexybrain-admin.md says which rows
    count for which figure."""
    return await statistics.read(request.user, since, until)


@SURFACE.get(
    FEEDBACK, InvalidInput("limit", "101", "Expected `int` <= 100"), REFUSED, summary="What users think of answers"
)
async def feedback(
    request: Caller,
    reviews: Injected[Reviews],
    rating: Annotated[RatingName | None, QueryParameter()] = None,
    capability: Annotated[Capability | None, QueryParameter(description="of the answer")] = None,
    prompt: Annotated[
        str | None,
        QueryParameter(
            min_length=1, max_length=100, pattern=WORD, description="the name of a version the answer was given with"
        ),
    ] = None,
    since: Annotated[date | None, QueryParameter(name="from", description="given on this day (UTC) or later")] = None,
    until: Annotated[date | None, QueryParameter(name="to", description="given on this day (UTC) or before")] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> FeedbackResponse:
    """With the question and the answer, newest first. What users deleted is not shown."""
    wanted = FeedbackFilter(Rating(rating) if rating else None, capability, prompt, since, until)
    return await reviews.list(request.user, wanted, limit=limit, after=cursor)


@SURFACE.get(
    CONFIGS, InvalidInput("limit", None, "unknown field; accepted: "), REFUSED, summary="All versions of prompts"
)
async def configs(request: Caller, prompts: Injected[PromptConfigs]) -> PromptsResponse:
    return PromptsResponse([prompt_of(each) for each in await prompts.versions(request.user)])


@SURFACE.post(
    CONFIGS,
    InvalidInput("weight", -1, "must be a whole number from 0 to 1000000: its share among the active ones"),
    InvalidInput("name", VERSION, f"{VERSION!r} is taken: a version never changes, add a new one"),
    REFUSED,
    summary="A new version of a prompt",
    status_code=201,
)
async def add(request: Caller, data: NewPromptBody, prompts: Injected[PromptConfigs]) -> PromptInfo:
    """It is in use at once where it is `active`. A version never changes: what is better has a new name."""
    return prompt_of(await prompts.publish(request.user, data.config()))


@SURFACE.patch(
    f"{CONFIGS}/{{name:str}}",
    InvalidInput("active", 1, "must be true or false"),
    InvalidInput("", None, NOTHING_TO_CHANGE),
    REFUSED,
    NotFound("prompt version", "ask_lexybrain_x", [VERSION]),
    summary="Activate, deactivate or weigh a version",
)
async def change(
    request: Caller, data: PromptChangeBody, prompts: Injected[PromptConfigs], name: FromPath[str]
) -> PromptInfo:
    """What is not said stays. Threads that have a version which is switched off get another with their next message."""
    changes = to_builtins(data)
    if not changes:
        raise InvalidInput("", None, NOTHING_TO_CHANGE)
    return prompt_of(await prompts.change(request.user, name, **changes))
