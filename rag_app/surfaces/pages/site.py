"""What all pages share: who may open them, scripts and styles, rendering, what forms send, and error pages."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from hashlib import sha256
from importlib.resources import files
from math import floor, log10
from pathlib import PurePosixPath
from typing import Any, TypeVar, cast
from urllib.parse import quote
from uuid import UUID

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.exceptions import NotFoundException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from litestar.response import Redirect
from markupsafe import Markup
from msgspec import Struct, ValidationError, convert

from rag_app.access.page_sessions import Sessions, Visitor
from rag_app.access.people import People
from rag_app.domain import Forbidden, InvalidInput, Unauthenticated, require
from rag_app.http.entrance import is_same_origin, pages_cookie
from rag_app.http.exchange import exchange, logger
from rag_app.http.problems import AnyRequest, Kinds, kind_of, problem_of
from rag_app.http.surface import AnyConnection, Route
from rag_app.surfaces.management.types import TrendDay
from rag_app.telemetry.observing import identify

Form = TypeVar("Form", bound=Struct)
Html = Response[Any]
"""A page, or a redirect."""

SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'self'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"
_FLASH_COOKIE = "rag_said"
_LONGEST_FLASH = 500  # characters
_LONGEST_PATH = 2000  # characters; it is kept while a browser is at an identity provider


class NotSignedIn(Unauthenticated):
    """The page requires a session."""


def page(path: str | list[str], *, administrators: bool = False, open_to_all: bool = False) -> Route:
    """A page at this path, or at these. One that is `open_to_all` needs no session."""
    return get(path, include_in_schema=False, opt={"administrators": administrators, "open": open_to_all})


def action(path: str, *, administrators: bool = False, open_to_all: bool = False, asks: bool = False) -> Route:
    """The action of a form that is sent to this path. One that `asks` a question counts as a request of the API."""
    opt = {"administrators": administrators, "open": open_to_all, "asks": asks}
    return post(path, include_in_schema=False, opt=opt, status_code=200)


# -- who sees it


def admit(people: People, sessions: Sessions) -> Callable[[AnyConnection, BaseRouteHandler], Any]:
    """A guard that identifies the user, and refuses forms that these pages did not make for this session."""

    async def enter(connection: AnyConnection, handler: BaseRouteHandler) -> None:
        request = cast(AnyRequest, connection)
        cookie, visitor = pages_cookie(connection), None
        if cookie is not None:
            with suppress(Unauthenticated):
                visitor = await sessions.visitor(cookie)
                connection.scope["user"] = await people.principal(str(visitor.user), visitor.groups)
                identify(user=visitor.user)
        connection.scope["state"]["visitor"] = visitor
        if connection.scope.get("method") in {"POST", "PUT", "PATCH", "DELETE"}:
            if not is_same_origin(connection):
                raise Forbidden("This form was sent from another site")
            if visitor is not None and not await _holds_token(request):
                raise Forbidden("This form belongs to an earlier session. Reload the page and send it again")
        if handler.opt.get("open"):
            return
        if visitor is None:
            raise NotSignedIn("Sign in to see this page")
        if handler.opt.get("administrators") and not visitor.administers:
            raise Forbidden("Only administrators may open this page")

    return enter


async def _holds_token(request: AnyRequest) -> bool:
    said = request.headers.get(CSRF_HEADER) or (await request.form()).get(CSRF_FIELD, "")
    return isinstance(said, str) and hmac.compare_digest(said.encode(), csrf_token(request).encode())


def csrf_token(request: AnyRequest) -> str:
    """The token in a session's forms. Only its cookie's owner can compute it."""
    cookie = pages_cookie(request) or ""
    return hmac.new(cookie.encode("utf-8", "replace"), b"csrf", sha256).hexdigest()


def visitor_of(request: AnyRequest) -> Visitor | None:
    """The user who is signed in."""
    return cast(Visitor | None, request.scope.get("state", {}).get("visitor"))


# -- scripts and styles. Their path changes with their content, so browsers can cache them forever

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
FILES = {each.name: each.read_bytes() for each in (files(__package__) / "static").iterdir() if each.is_file()}
"""By name."""
VERSION = sha256(b"".join(name.encode() + FILES[name] for name in sorted(FILES))).hexdigest()[:12]


def static(name: str) -> str:
    """The path of a file below `static/`, for templates. Raises KeyError for an unknown file."""
    FILES[name]
    return f"/static/{VERSION}/{name}"


@get("/static/{version:str}/{name:str}", include_in_schema=False, opt={"open": True})
async def static_file(version: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """Return a file, whatever version the path names: a page that an earlier version of the server sent may ask for it."""
    content = require(FILES.get(name), NotFoundException())
    kept = "public, max-age=31536000, immutable" if version == VERSION else "no-cache"
    return Response(content, media_type=_TYPES[PurePosixPath(name).suffix], headers={"Cache-Control": kept})


# -- how it looks


TEMPLATES = Environment(
    loader=FileSystemLoader(str(files(__package__) / "templates")),
    autoescape=select_autoescape(disabled_extensions=("md",), default=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
"""Filters and globals of pages are added here."""


def chart_top(days: Sequence[TrendDay], series: Sequence[tuple[str, str, str]], combine: Callable[..., float]) -> float:
    """The top of a chart's scale: the next number of the form 1, 2, 4, 6 or 8 with zeros, at least 2, so that its half, a
    label, is whole. `combine` is `sum` if the series, each with the field of a day, are on top of each other, else `max`.
    """
    highest = max(combine(getattr(day, field) or 0 for _, field, _ in series) for day in days)
    unit = 10.0 ** floor(log10(max(highest, 2)))
    return next(factor * unit for factor in (1, 2, 4, 6, 8, 10) if factor * unit >= max(highest, 2))


TEMPLATES.globals.update(static=static, chart_top=chart_top, max=max, sum=sum)


def render(
    request: AnyRequest, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
) -> Html:
    """Render a template. It gets `visitor` (None without a session), `path`, `csrf()` and `said`, too."""
    visitor = visitor_of(request)
    token = csrf_token(request) if visitor else ""
    said = ""
    with suppress(ValueError):
        said = urlsafe_b64decode(request.cookies.get(_FLASH_COOKIE, "")).decode()[:_LONGEST_FLASH]
    content = TEMPLATES.get_template(template).render(
        visitor=visitor,
        path=request.scope["path"],
        csrf=lambda: Markup('<input type="hidden" name="{}" value="{}">').format(CSRF_FIELD, token),
        csrf_token=token,
        said=said or None,
        **values,
    )
    cookies = [Cookie(_FLASH_COOKIE, value="", max_age=0, path="/", httponly=True)] if said else []
    return Response(
        content, status_code=status, media_type="text/html", headers={**SECURITY, **(headers or {})}, cookies=cookies
    )


def redirect(request: AnyRequest, path: str, said: str | None = None) -> Html:
    """Redirect to another page, which shows `said` once."""
    cookies = []
    if said is not None:
        kept = urlsafe_b64encode(said[:_LONGEST_FLASH].encode("utf-8", "replace")).decode()
        cookies.append(Cookie(_FLASH_COOKIE, value=kept, max_age=60, path="/", httponly=True, samesite="lax"))
    return Redirect(path, status_code=303, headers=dict(SECURITY), cookies=cookies)


def local_path(path: str) -> str:
    """The path, if it leads to a page of ours; else `/`.

    >>> local_path("/threads/1?q=2"), local_path("//evil.example"), local_path("/\\\\evil.example"), local_path("https:/x")
    ('/threads/1?q=2', '/', '/', '/')
    """
    ours = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if ours and len(path) <= _LONGEST_PATH else "/"


# -- what it is sent: query parameters and fields of forms


def query_value(request: AnyRequest, name: str, accepted: Collection[str] | None = None) -> str | None:
    """A query parameter; None if it is empty or missing. Raises InvalidInput for a value that is not accepted."""
    return form_value(name, str(request.query_params.get(name, "")), accepted)


def form_value(name: str, said: object, accepted: Collection[str] | None = None) -> str | None:
    """The value of a form field, like `query_value`.

    >>> form_value("state", " open ", ["open", "settled"]), form_value("state", "")
    ('open', None)
    """
    value = str(said or "").strip()
    if not value:
        return None
    if "\0" in value or (accepted is not None and value not in accepted):
        raise InvalidInput(name, value[:100], f"must be one of {', '.join(accepted or ())}")
    return value


def day(request: AnyRequest, name: str) -> date | None:
    """A date in the query. Raises InvalidInput."""
    value = query_value(request, name)
    try:
        return None if value is None else date.fromisoformat(value)
    except ValueError:
        raise InvalidInput(name, str(value)[:100], "must be a date, YYYY-MM-DD") from None


def uuid(name: str, said: object) -> UUID:
    """An id in a form. Raises InvalidInput."""
    try:
        return UUID(str(said))
    except ValueError:
        raise InvalidInput(name, str(said)[:100], "must be an id") from None


def convert_form(values: object, kind: type[Form]) -> Form:
    """Raises InvalidInput, with msgspec's message, for what the public route would refuse."""
    try:
        return convert(values, kind)
    except ValidationError as error:
        raise InvalidInput("", None, str(error)) from None


# -- how its errors look


def show_error(first: str, kinds: Kinds, request: AnyRequest, error: Exception) -> Html:
    """Render an error. A visitor without a session is sent to `first` to sign in, and returns afterwards."""
    if isinstance(error, NotSignedIn) and request.method in {"GET", "HEAD"}:
        asked = request.scope["path"]
        if query := request.scope.get("query_string", b"").decode("latin-1"):
            asked += f"?{query}"
        return redirect(request, first + ("" if asked == "/" else f"?next={quote(asked, safe='')}"))
    kind = kind_of(error, kinds)
    if kind.status >= 500:
        logger.error("%s", kind.code, exc_info=error)
    problem = problem_of(error, kind, exchange(request.scope).request_id)
    message = str(error) if isinstance(error, InvalidInput) else problem.message
    return render(
        request, "error.html", status=problem.status, headers=problem.headers, problem=problem, message=message
    )
