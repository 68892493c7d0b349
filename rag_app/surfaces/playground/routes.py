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
    tag=Tag("Playground", "a question step by step: hits, signals, prompt, times; for users with the role admin"),
    paths=(PLAYGROUND,),
    limit=60,
    credentials=frozenset({Credential.JWT, Credential.COOKIE, Credential.SESSION}),
    errors=(
        Unauthenticated("The token has expired"),
        Forbidden("only an administrator may do this, signed in as a person"),
        UnknownField("colour", []),
        StoreFailed(),
        RuntimeError(),
    ),
    options=STRICT,
)
AskBody = Annotated[PlaygroundRequest, BodyKwarg(examples=[example(__package__, "ask")])]
JudgmentBody = Annotated[NewJudgment, BodyKwarg(examples=[example(__package__, "judgment")])]
NO_INDEX = NotFound("index", "boook", ["book", "org_knowledge"])


@SURFACE.get(PLAYGROUND, summary="What can be chosen")
async def options(request: Caller, playground: Injected[Playground]) -> PlaygroundOptions:
    """Indexes with the fields that filters may name, and the organizations you belong to."""
    return await playground.options(request.user)


@SURFACE.post(
    PLAYGROUND,
    InvalidInput("configurations[0].top_k", 99, "a whole number from 1 to 50"),
    UnknownField("configurations[0].colour", Configuration.__struct_fields__),
    NO_INDEX,
    EmbeddingFailed(),
    ModelFailed(),
    BudgetSpent(1_000_000, 1_000_400, 1704067200),
    summary="Ask in one or two configurations, and see every step",
)
async def ask(request: Caller, data: AskBody, playground: Injected[Playground]) -> PlaygroundResponse:
    """Hits with both legs' scores and ranks, the sentences an answer is picked from, what the gate looks at, the prompt as it
    would be sent, the answer, and the time of each stage. An answer by a model counts for the token budget."""
    return await playground.ask(request.user, data)


@SURFACE.post(
    f"{PLAYGROUND}/judgments",
    InvalidInput("organization", None, "is needed: you are a member of several, or of none"),
    NotFound("chunk", "6f2d0e5c-58f3-5c0e-9a53-3b1d8c6f7a10"),
    summary="Say whether a chunk answers a question",
)
async def judge(request: Caller, data: JudgmentBody, playground: Injected[Playground]) -> KeptJudgment:
    """Kept as your organization's judgment of the passage; saying it again replaces it."""
    return await playground.judge(request.user, data)
