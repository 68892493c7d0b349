"""Errors as responses: status and code of each kind, and the envelope."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from math import ceil
from time import time
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, ValidationException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import ParameterKwarg
from msgspec import Meta, MsgspecError, Struct, field, json

from rag_app.domain import (
    BudgetSpent,
    CostCapReached,
    EmbeddingFailed,
    FeatureDisabled,
    Forbidden,
    InvalidInput,
    JsonObject,
    ModelFailed,
    ModelLimited,
    ModelTimeout,
    NotFound,
    QuotaExceeded,
    RateLimited,
    StoreFailed,
    TooManyAtOnce,
    Unauthenticated,
    UnknownField,
)
from rag_app.http.bodies import in_words
from rag_app.http.exchange import SECONDS_FOR_BODY, exchange, logger
from rag_app.http.fields import NOT_BLANK, WORD
from rag_app.telemetry import observing


class Kind(Struct, frozen=True):
    """The response to errors of a type. Without a message, the error's own text is used, which was written for callers."""

    status: int
    code: str
    message: str | None = None


Kinds = Mapping[type[Exception] | int, Kind]
"""How errors are answered, by type or by status."""
AnyRequest = Request[Any, Any, Any]

INTERNAL = Kind(500, "internal_error", "Something went wrong on the server.")

KINDS: Kinds = {
    InvalidInput: Kind(400, "invalid_request"),
    Unauthenticated: Kind(401, "unauthenticated"),
    Forbidden: Kind(403, "forbidden"),
    NotFound: Kind(404, "not_found"),
    RateLimited: Kind(429, "rate_limited", "Too many requests. Wait for the number of seconds in Retry-After."),
    TooManyAtOnce: Kind(429, "too_many_at_once"),
    QuotaExceeded: Kind(403, "quota_exceeded"),
    BudgetSpent: Kind(429, "budget_exceeded"),
    FeatureDisabled: Kind(503, "feature_disabled", "This feature is switched off."),
    CostCapReached: Kind(503, "cost_cap_reached", "Today's cost limit for answers is reached. Try again tomorrow."),
    EmbeddingFailed: Kind(500, "embedding_failed", "The question could not be embedded. Try again later."),
    StoreFailed: Kind(500, "database_error", "The database did not answer. Try again later."),
    ModelTimeout: Kind(500, "model_timeout", "The answering model did not answer in time. Try again later."),
    ModelFailed: Kind(500, "model_failed", "The answering model failed. Try again later."),
    ModelLimited: Kind(503, "model_rate_limited", "The rate limit of the answering model is reached. Try again later."),
    # What Litestar finds by itself, by status: its own words are not for callers.
    400: Kind(400, "invalid_request", "The request could not be read. Send a JSON body as described in /docs."),
    404: Kind(404, "not_found", "This path does not exist. See /docs."),
    405: Kind(
        405, "method_not_allowed", "This method is not allowed here. The Allow header lists the methods that are."
    ),
    408: Kind(408, "request_timeout", f"The body did not arrive within {SECONDS_FOR_BODY:.0f} seconds."),
    413: Kind(413, "payload_too_large", "The body is too large; at most 1 MB is accepted."),
    415: Kind(415, "unsupported_media_type", "Send the body as `Content-Type: application/json`."),
}
"""Unless a surface says otherwise. Whatever is not here is INTERNAL, or what the surface has for `Exception`."""

UNTIL_BACK = "5"
"""Retry-After, in seconds, while a database is away: a private PostgreSQL that was killed serves again within that."""

_VALUES: Mapping[object, str] = {
    int: "must be a whole number",
    bool: "must be true or false",
    UUID: "must be a UUID",
    date: "must be a date, YYYY-MM-DD",
    datetime: "must be an ISO 8601 timestamp",
}
_NO_PARAMETER = re.compile("Missing required query parameter '([^']+)'")
LONGEST_VALUE = 200  # characters of a value, as JSON, that is shown to whoever sent it


class Problem(Struct, frozen=True):
    """An error, ready to be put in an envelope."""

    status: int
    code: str
    message: str
    request_id: str
    details: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


Envelope = Callable[[Problem], Struct]


class ErrorInfo(Struct, frozen=True, omit_defaults=True):
    code: Annotated[str, Meta(description="a stable code for programs")]
    message: Annotated[str, Meta(description="the explanation for people")]
    details: Annotated[
        JsonObject | None,
        Meta(description="the refused `field`, the `problem`, and the `accepted` names if there are any"),
    ] = None


class ErrorBody(Struct, frozen=True):
    """The envelope of all errors."""

    status: Literal["error"]
    error: ErrorInfo
    request_id: Annotated[str, Meta(description="the same as in the X-Request-ID header")]


def error_body(problem: Problem) -> ErrorBody:
    told = {name: value for name, value in problem.details.items() if name != "value"}
    return ErrorBody("error", ErrorInfo(problem.code, problem.message, told or None), problem.request_id)


def kind_of(error: Exception, kinds: Kinds = KINDS) -> Kind:
    """The kind of the error's class, or of its nearest base class.

    >>> kind_of(UnknownField("colour", ["lang"])).status
    400
    """
    if isinstance(error, HTTPException):
        others = kinds[400] if error.status_code < 500 else kinds.get(Exception, INTERNAL)
        return kinds.get(error.status_code, others)
    return next((kinds[cls] for cls in type(error).__mro__ if cls in kinds), INTERNAL)


def problem_of(error: Exception, kind: Kind, request_id: str) -> Problem:
    """For invalid input, `details` are `field`, `value`, `problem`, and `accepted` if there are names."""
    details: dict[str, object] = {}
    headers: dict[str, str] = {}
    message = kind.message or str(error)
    match error:
        case InvalidInput(field=str(name), value=value, problem=str(what)) if name:
            details = {"field": name, "value": _summarize(value), "problem": what}
            if isinstance(error, UnknownField):
                details["accepted"] = error.accepted
        case RateLimited(resets_at=resets_at) | QuotaExceeded(resets_at=resets_at):
            headers["Retry-After"] = str(max(1, ceil(resets_at - time())))
            if isinstance(error, QuotaExceeded):
                message += f"; the limit resets on {datetime.fromtimestamp(resets_at, UTC):%Y-%m-%d at %H:%M} UTC"
        case TooManyAtOnce():
            headers["Retry-After"] = "1"
        case StoreFailed():
            headers["Retry-After"] = UNTIL_BACK
        case Unauthenticated():
            headers["WWW-Authenticate"] = "Bearer"
        case MethodNotAllowedException():
            headers |= error.headers or {}  # one header: Allow
        case CostCapReached():
            headers["Retry-After"] = str(86_400 - int(time()) % 86_400)  # the first second of tomorrow, UTC
        case FeatureDisabled():
            headers["Retry-After"] = "3600"  # somebody has to switch it on
    if kind.status == 503:
        headers.setdefault("Retry-After", UNTIL_BACK)
    return Problem(kind.status, kind.code, message, request_id, details, headers)


def _summarize(value: object) -> object:
    """The value if it is short and valid in JSON, else the beginning of its text.

    >>> _summarize([1, "two"]), _summarize("x" * 300) == "x" * 200 + "...", _summarize([0] * 999)[:9]
    ([1, 'two'], True, '[0,0,0,0,')
    """
    try:
        written = json.encode(value).decode()
    except (MsgspecError, TypeError, ValueError, RecursionError):  # half of a surrogate pair, too
        written = value = str(value).encode("utf-8", "replace").decode()
    if len(written) <= LONGEST_VALUE:
        return value
    return (value if isinstance(value, str) else written)[:LONGEST_VALUE] + "..."


def respond(request: AnyRequest, error: Exception, kinds: Kinds, envelope: Envelope) -> Response[Struct]:
    """The response to an error. Errors not caused by callers are logged with a traceback."""
    if isinstance(error, ValidationException):
        error = _refused_parameter(request, error)
    kind = kind_of(error, kinds)
    if kind.status >= 500 and not isinstance(error, FeatureDisabled):  # which the operator has chosen: nothing is wrong
        logger.error("%s", kind.code, exc_info=error)
    if kind.status >= 400:
        observing.meter.count("rag_refused", kind.code)
    problem = problem_of(error, kind, exchange(request.scope).request_id)
    return Response(envelope(problem), status_code=problem.status, headers=dict(problem.headers))


def _refused_parameter(request: AnyRequest, error: ValidationException) -> Exception:
    """Litestar's refusal of a path or query parameter, in the form of a field's refusal."""
    if missing := _NO_PARAMETER.match(error.detail):
        return InvalidInput(missing[1], None, "is required")
    match error.extra:
        case [{"key": str(name), "message": str(what), "source": "query" | "path"}, *_]:
            declared = request.route_handler.parsed_fn_signature.parameters.get(name)
            if declared is not None and isinstance(declared.kwarg_definition, ParameterKwarg):
                name = declared.kwarg_definition.name or name  # as callers write it, where Python cannot
                what = _accepted_values(declared.annotation, declared.kwarg_definition) or in_words(what)
            return InvalidInput(name, request.query_params.get(name, request.path_params.get(name)), what)
    return error


def _accepted_values(annotation: Any, said: ParameterKwarg) -> str:
    """What a parameter of the path or the query may be; empty where its type does not say so.

    >>> _accepted_values(int, ParameterKwarg(annotation=int, ge=1, le=100))
    'must be a whole number from 1 to 100'
    >>> _accepted_values(Literal["open", "settled"] | None, ParameterKwarg(annotation=str))
    'must be one of open, settled'
    """
    kinds = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) in (Union, UnionType) and len(kinds) == 1:
        annotation = kinds[0]
    if get_origin(annotation) is Literal:
        return f"must be one of {', '.join(map(str, get_args(annotation)))}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"must be one of {', '.join(str(each.value) for each in annotation)}"
    if annotation is str and said.max_length is not None:
        rule = {WORD: ", none of them white space", NOT_BLANK: ", not all of them blank"}.get(said.pattern or "", "")
        return f"must be a text of {said.min_length or 0} to {said.max_length} characters{rule}"
    if annotation is str and said.pattern and said.description:  # which begins with what the pattern means
        return f"must be {said.description.partition(';')[0]}"
    if annotation is int and said.ge is not None and said.le is not None:
        return f"must be a whole number from {said.ge} to {said.le}"
    return _VALUES.get(annotation, "")


def document_errors(
    *errors: Exception, kinds: Kinds = KINDS, envelope: Envelope = error_body
) -> dict[int, ResponseSpec]:
    """The error responses of an operation for its OpenAPI document, from one sample of each error."""
    specs: dict[int, ResponseSpec] = {}
    for error in errors:
        kind = kind_of(error, kinds)
        body = envelope(problem_of(error, kind, "5b1f0c9e"))
        spec = specs.setdefault(
            kind.status,
            ResponseSpec(type(body), description=f"`{kind.code}`", examples=[], generate_examples=False),
        )
        if f"`{kind.code}`" not in spec.description:
            spec.description += f", `{kind.code}`"
        spec.examples = [*(spec.examples or ()), Example(summary=kind.message or str(error), value=body)]
    return specs
