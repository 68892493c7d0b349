"""Ask LexyBrain: whether one's answers may be collected to train models with (`/api/lexybrain/consent`)."""

from datetime import datetime
from typing import Annotated, Any

from litestar import Request, Response, get, put, route
from litestar.openapi.spec import Example
from litestar.params import BodyKwarg
from msgspec import Meta, Struct

from rag_app.domain.errors import Forbidden, InvalidInput, UnknownField
from rag_app.domain.scope import Principal
from rag_app.http.bodies import JsonBody
from rag_app.http.docs import rate_limit_headers
from rag_app.http.surface import Injected
from rag_app.surfaces.lexybrain.lessons import Consent
from rag_app.surfaces.lexybrain.rules import (
    LIMIT,
    OF_BODIES,
    SECURITY,
    TAG,
    LexyBrainOperation,
    declared_alone,
    errors,
)
from rag_app.surfaces.lexybrain.training import Training

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


@get(
    PATH,
    summary="Whether you consent to training",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(NOT_A_PERSON, UnknownField("user", [])),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def consent(request: Request[Principal, Any, Any], consents: Injected[Training]) -> ConsentInfo:
    """Nobody does who has not said so."""
    return _info(await consents.consent(request.user))


@put(
    PATH,
    dto=JsonBody,
    return_dto=None,
    summary="Consent to training, or withdraw it",
    tags=[TAG.name],
    security=SECURITY,
    guards=[declared_alone],
    responses=errors(NOT_A_PERSON, InvalidInput("training", 1, "must be true or false"), *OF_BODIES),
    response_headers=rate_limit_headers(LIMIT),
    operation_class=LexyBrainOperation,
)
async def decide(request: Request[Principal, Any, Any], data: ConsentBody, consents: Injected[Training]) -> ConsentInfo:
    """Consent holds for answers to come. With its withdrawal all that was collected from you is deleted, at once."""
    return _info(await consents.decide(request.user, data.training))


@route(PATH, http_method="OPTIONS", status_code=204, include_in_schema=False)
async def methods() -> Response[None]:
    """Litestar by itself tells of the first of several handlers alone."""
    return Response(None, headers={"Allow": "GET, OPTIONS, PUT"})


HANDLERS = (methods, consent, decide)


def _info(given: Consent) -> ConsentInfo:
    return ConsentInfo(given.training, given.since)
