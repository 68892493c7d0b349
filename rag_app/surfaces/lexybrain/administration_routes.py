"""Ask LexyBrain for its administrators: statistics, feedback, prompt versions (`/api/admin/lexybrain`).

PostgreSQL looks up the administrator in the transaction that reads and that adds the audit event.
"""

from datetime import date
from typing import Annotated, get_args

from litestar.openapi.spec import Example, Tag
from litestar.params import BodyKwarg, FromPath, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, structs, to_builtins

from rag_app.access.audit import ADMINISTRATORS_ONLY
from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.answering.prompts import PromptConfig, PromptConstraints, PromptVersion, Weight
from rag_app.domain import Forbidden, InvalidInput, JsonObject, NotFound, require
from rag_app.http.fields import WORD, PageSize, as_wire
from rag_app.http.surface import Caller, Credential, Injected, example, security
from rag_app.surfaces.lexybrain.feedback import FeedbackLedger, FeedbackResponse
from rag_app.surfaces.lexybrain.routes import SURFACE as LEXYBRAIN, Cursor
from rag_app.surfaces.lexybrain.statistics import VERSION, LexyBrainStats, Statistics
from rag_app.surfaces.lexybrain.types import (
    Capability,
    Count,
    Kind,
    Moment,
    Rating,
    Share,
)

_PEOPLE = frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION})
SURFACE = structs.replace(
    LEXYBRAIN,
    name="lexybrain_admin",
    tag=Tag(
        "Ask LexyBrain, administration",
        "usage, feedback and prompt versions of all users; requires the role admin; each request is recorded in the audit log",
    ),
    paths=("/api/admin/lexybrain/",),
    windows={},
    credentials=_PEOPLE | {Credential.API_KEY},  # a key is told that it may not (403): it is known, and no person
    options={**LEXYBRAIN.options, "security": security(_PEOPLE)},
    handlers=[],
)
STATS, FEEDBACK, CONFIGS = (f"/api/admin/lexybrain/{each}" for each in ("rag/stats", "rag/feedback", "configs"))
NOTHING_TO_CHANGE = "The body must have `active`, `weight` or both"
NO_ADMINISTRATOR = Forbidden(ADMINISTRATORS_ONLY)
# as `prompts add` has it: text and line breaks, and something in it that is not white space
_UNPRINTABLE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"
_INSTRUCTIONS = rf"^[^{_UNPRINTABLE}]*[^\s{_UNPRINTABLE}\ufeff][^{_UNPRINTABLE}]*$"


class NewPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        Meta(
            pattern=r"^ask_lexybrain_[a-z0-9_]{1,80}(?!\n)$",
            description="ask_lexybrain_ followed by lowercase letters, digits or _, such as ask_lexybrain_market_brief_v2",
            examples=["ask_lexybrain_market_brief_v2"],
        ),
    ]
    type: Annotated[Kind, Meta(description=f"one of {', '.join(get_args(Kind))}")]
    instructions: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            pattern=_INSTRUCTIONS,
            description="a text of at most 20000 characters, not blank, without control characters",
            examples=["Compare the markets. Begin with what changed."],
        ),
    ]
    constraints: PromptConstraints = PromptConstraints()
    weight: Weight = 1
    active: Annotated[bool, Meta(description="true or false: whether new threads may get this version at once")] = False

    def config(self) -> PromptConfig:
        return PromptConfig(**{**to_builtins(self), "instructions": self.instructions.strip()})


class PromptChange(Struct, frozen=True, forbid_unknown_fields=True):
    """At least one of them. The text of a version never changes."""

    active: Annotated[bool, Meta(description="true or false")] | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET


class PromptInfo(Struct, frozen=True, rename="camel"):
    name: Annotated[str, Meta(examples=[VERSION])]
    type: str
    instructions: str
    constraints: JsonObject
    active: bool
    weight: Count
    share: Annotated[Share, Meta(description="share of new threads that get this version")]
    threads: Annotated[Count, Meta(description="number of threads that use this version now")]
    created_at: Moment
    updated_at: Moment


class PromptsResponse(Struct, frozen=True):
    configs: Annotated[list[PromptInfo], Meta(description="ordered by type and name")]


@SURFACE.get(
    STATS,
    InvalidInput("from", "2026-02-01", "must not be after `to` (2026-01-31)"),
    NO_ADMINISTRATOR,
    summary="Show the statistics of a period",
)
async def stats(
    request: Caller,
    statistics: Injected[Statistics],
    since: Annotated[
        date | None, QueryParameter(name="from", description="first day (UTC); by default 30 days before the last day")
    ] = None,
    until: Annotated[date | None, QueryParameter(name="to", description="last day (UTC); today by default")] = None,
) -> LexyBrainStats:
    """A period is at most 366 whole days in UTC; the default is the last 30 days. docs/surfaces/lexybrain-admin.md
    defines each figure."""
    return await statistics.read(request.user, since, until)


@SURFACE.get(
    FEEDBACK,
    InvalidInput("limit", "101", "must be a whole number from 1 to 100"),
    NO_ADMINISTRATOR,
    summary="List feedback on answers",
)
async def feedback(
    request: Caller,
    feedback: Injected[FeedbackLedger],
    rating: Annotated[Rating | None, QueryParameter()] = None,
    capability: Annotated[Capability | None, QueryParameter(description="the capability that answered")] = None,
    prompt: Annotated[
        str | None,
        QueryParameter(
            min_length=1,
            max_length=100,
            pattern=WORD,
            description="the name of a prompt version that the answer was written with",
        ),
    ] = None,
    since: Annotated[
        date | None, QueryParameter(name="from", description="feedback given on this day (UTC) or later")
    ] = None,
    until: Annotated[
        date | None, QueryParameter(name="to", description="feedback given on this day (UTC) or earlier")
    ] = None,
    limit: PageSize = 20,
    cursor: Cursor = None,
) -> FeedbackResponse:
    """Returns feedback with its question and answer, newest first. Messages that users deleted are not shown."""
    return await feedback.review(
        request.user,
        rating=rating,
        capability=capability,
        prompt=prompt,
        since=since,
        until=until,
        limit=limit,
        after=cursor,
    )


@SURFACE.get(
    CONFIGS,
    InvalidInput("limit", None, "unknown field; accepted: none"),
    NO_ADMINISTRATOR,
    summary="List prompt versions",
)
async def configs(request: Caller, prompts: Injected[PromptRegistry]) -> PromptsResponse:
    return PromptsResponse([_prompt(each) for each in await prompts.versions(request.user)])


@SURFACE.post(
    CONFIGS,
    InvalidInput("weight", -1, "must be a whole number from 0 to 1000000: its share among the active ones"),
    InvalidInput("name", VERSION, f"{VERSION!r} is taken: a version never changes, add a new one"),
    NO_ADMINISTRATOR,
    summary="Add a prompt version",
    status_code=201,
)
async def add(
    request: Caller,
    data: Annotated[NewPrompt, BodyKwarg(examples=[example(__package__, "prompt")])],
    prompts: Injected[PromptRegistry],
) -> PromptInfo:
    """An `active` version is used for new threads at once. The text of a version never changes: to change a prompt, add
    a version with a new name."""
    return _prompt(await prompts.publish(request.user, data.config()))


@SURFACE.patch(
    f"{CONFIGS}/{{name:str}}",
    InvalidInput("active", 1, "must be true or false"),
    InvalidInput("", None, NOTHING_TO_CHANGE),
    NO_ADMINISTRATOR,
    NotFound("prompt version", "ask_lexybrain_x", [VERSION]),
    summary="Activate, deactivate or weight a prompt version",
)
async def change(
    request: Caller,
    data: Annotated[
        PromptChange,
        BodyKwarg(
            examples=[Example(value={"active": True, "weight": 3}), Example(value={"active": False})],
            schema_extra={"min_properties": 1},
        ),
    ],
    prompts: Injected[PromptRegistry],
    name: FromPath[str],
) -> PromptInfo:
    """Omitted fields keep their value. Threads that use a deactivated version get another one with their next message."""
    changes = require(to_builtins(data) or None, InvalidInput("", None, NOTHING_TO_CHANGE))
    return _prompt(await prompts.change(request.user, name, **changes))


def _prompt(given: PromptVersion) -> PromptInfo:
    return as_wire(PromptInfo, given.config, **{**structs.asdict(given), "share": round(given.share, 4)})
