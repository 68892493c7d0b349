"""The playground (`/api/v1/playground`): for users with the role admin, since it shows prompts."""

from typing import Annotated

from litestar.openapi.spec import Tag
from litestar.params import BodyKwarg

from rag_app.domain import (
    BudgetSpent,
    EmbeddingFailed,
    Forbidden,
    InvalidInput,
    ModelFailed,
    NotFound,
    StoreFailed,
    Unauthenticated,
    UnknownField,
)
from rag_app.http.surface import STRICT, Caller, Credential, Injected, Surface, example
from rag_app.surfaces.playground.service import Playground
from rag_app.surfaces.playground.types import (
    Configuration,
    KeptJudgment,
    NewJudgment,
    PlaygroundOptions,
    PlaygroundRequest,
    PlaygroundResponse,
)

PLAYGROUND = "/api/v1/playground"
SURFACE = Surface(
    name="playground",
    tag=Tag(
        "Playground", "a question step by step: hits, confidence signals, prompt and times; requires the role admin"
    ),
    paths=(PLAYGROUND,),
    limit=60,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION}),
    errors=(
        Unauthenticated("The token has expired"),
        Forbidden("Only a signed-in administrator may do this; an API key may not"),
        UnknownField("colour", []),
        StoreFailed(),
        RuntimeError(),
    ),
    options=STRICT,
)
NO_INDEX = NotFound("index", "boook", ["book", "org_knowledge"])


@SURFACE.get(PLAYGROUND, summary="List indexes and organizations to choose from")
async def options(request: Caller, playground: Injected[Playground]) -> PlaygroundOptions:
    """Returns the indexes with their filterable fields, and your organizations."""
    return await playground.options(request.user)


@SURFACE.post(
    PLAYGROUND,
    InvalidInput("configurations[0].top_k", 99, "a whole number from 1 to 50"),
    UnknownField("configurations[0].colour", Configuration.__struct_fields__),
    NO_INDEX,
    EmbeddingFailed(),
    ModelFailed(),
    BudgetSpent(1_000_000, 1_000_400, 1704067200),
    summary="Ask a question in one or two configurations and show every step",
)
async def ask(
    request: Caller,
    data: Annotated[PlaygroundRequest, BodyKwarg(examples=[example(__package__, "ask")])],
    playground: Injected[Playground],
) -> PlaygroundResponse:
    """Returns the hits with their dense and lexical scores and ranks, the candidate sentences for an extractive answer, the
    confidence signals, the prompt, the answer, and the time of each stage. Answers by a model count against the token
    budget."""
    return await playground.ask(request.user, data)


@SURFACE.post(
    f"{PLAYGROUND}/judgments",
    InvalidInput("organization", None, "is required unless you are a member of exactly one organization"),
    NotFound("chunk", "6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"),
    summary="Judge whether a chunk answers a question",
)
async def judge(
    request: Caller,
    data: Annotated[NewJudgment, BodyKwarg(examples=[example(__package__, "judgment")])],
    playground: Injected[Playground],
) -> KeptJudgment:
    """Stores a judgment of your organization for this passage. Judging it again replaces the earlier judgment."""
    return await playground.judge(request.user, data)
