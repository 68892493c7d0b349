"""Ask LexyBrain: whether one's answers may be collected to train models with (`/api/lexybrain/consent`)."""

from datetime import datetime
from typing import Annotated

from litestar.openapi.spec import Example
from litestar.params import BodyKwarg
from msgspec import Meta, Struct

from rag_app.domain.errors import Forbidden, InvalidInput, UnknownField
from rag_app.http.surface import Injected
from rag_app.surfaces.lexybrain.rules import SURFACE, Caller
from rag_app.surfaces.lexybrain.training import Training
from rag_app.surfaces.lexybrain.wire import as_wire

PATH = "/api/lexybrain/consent"
NOT_A_PERSON = Forbidden("An API key speaks for others: only a person consents, signed in")


class ConsentInfo(Struct, frozen=True):
    training: Annotated[bool, Meta(description="whether your answers may be collected to train models with")]
    since: Annotated[datetime | None, Meta(description="null where they may not", examples=["2026-01-15T10:30:00Z"])]


class ConsentChange(Struct, frozen=True, forbid_unknown_fields=True):
    training: Annotated[bool, Meta(description="true or false")]


ConsentBody = Annotated[
    ConsentChange, BodyKwarg(examples=[Example(value={"training": True}), Example(value={"training": False})])
]


@SURFACE.get(PATH, NOT_A_PERSON, UnknownField("user", []), summary="Whether you consent to training")
async def consent(request: Caller, consents: Injected[Training]) -> ConsentInfo:
    """Nobody does who has not said so."""
    return as_wire(ConsentInfo, await consents.consent(request.user))


@SURFACE.put(
    PATH,
    NOT_A_PERSON,
    InvalidInput("training", 1, "must be true or false"),
    summary="Consent to training, or withdraw it",
)
async def decide(request: Caller, data: ConsentBody, consents: Injected[Training]) -> ConsentInfo:
    """Consent holds for answers to come. With its withdrawal all that was collected from you is deleted, at once."""
    return as_wire(ConsentInfo, await consents.decide(request.user, data.training))
