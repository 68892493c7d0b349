"""The OpenAPI document, and a page to read and try it. The page loads nothing from other hosts."""

import json
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from litestar import Request, Router, get
from litestar.datastructures import ResponseHeader
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import SwaggerRenderPlugin
from litestar.openapi.spec import Components, Example, Reference, SecurityRequirement, SecurityScheme, Tag
from litestar.response import Redirect
from litestar.static_files import create_static_files_router

from rag_app.http.entrance import API_KEY_HEADER, EXTENSION_HEADER, KEY_PREFIX, Credential

PAGE = "/docs"
ASSETS = "/docs/assets"


def security(accepted: Collection[Credential]) -> list[SecurityRequirement]:
    """The security of an operation of a surface that accepts these: one of them is enough.

    >>> security({Credential.API_KEY, Credential.NONE})
    [{'api_key': []}, {'api_key_as_bearer': []}, {}]
    """
    return [{name: [] for name in scheme} for each in Credential if each in accepted for scheme in _SCHEMES[each]]


_SCHEMES: Mapping[Credential, Sequence[Sequence[str]]] = {
    Credential.JWT: [["bearer"]],
    Credential.COOKIE: [["cookie"]],
    Credential.EXTENSION: [["bearer", "extension"]],
    Credential.API_KEY: [["api_key"], ["api_key_as_bearer"]],
    Credential.NONE: [[]],
}
"""Of each credential: the ways to show it, and of each way the schemes it needs at once."""


def _security_schemes(accepted: Collection[Credential], cookie: str) -> dict[str, SecurityScheme | Reference]:
    schemes = {
        "bearer": SecurityScheme(type="http", scheme="bearer", bearer_format="JWT"),
        "cookie": SecurityScheme(
            type="apiKey",
            security_scheme_in="cookie",
            name=cookie,
            description="The same token; accepted from pages of configured origins.",
        ),
        "extension": SecurityScheme(
            type="apiKey",
            security_scheme_in="header",
            name=EXTENSION_HEADER,
            description="Any text, with a token issued to a browser extension.",
        ),
        "api_key": SecurityScheme(type="apiKey", security_scheme_in="header", name=API_KEY_HEADER),
        "api_key_as_bearer": SecurityScheme(
            type="http", scheme="bearer", bearer_format=f"{KEY_PREFIX}...", description="The same key."
        ),
    }
    used = {name for requirement in security(accepted) for name in requirement}
    return {name: scheme for name, scheme in schemes.items() if name in used}


def rate_limit_headers(limit: int) -> list[ResponseHeader]:
    """What every response of a surface carries."""
    return [
        ResponseHeader("X-RateLimit-Limit", True, str(limit), "requests a minute"),
        ResponseHeader("X-RateLimit-Remaining", True, str(limit - 1), "how many of them are left"),
        ResponseHeader("X-RateLimit-Reset", True, "1704067200", "when the minute ends: Unix time, seconds"),
    ]


def example(room: str, name: str) -> Example:
    """`examples/NAME.json` in a surface's package; the contract tests send the same."""
    return Example(value=json.loads((files(room) / "examples" / f"{name}.json").read_text("utf-8")))


def openapi(version: str, tags: list[Tag], accepted: Collection[Credential], cookie: str) -> OpenAPIConfig:
    """`accepted`: by any surface; `cookie`: the name of the session cookie."""
    return OpenAPIConfig(
        title="rag_app",
        version=version,
        description="Questions over content that only some people may see, answered with verified citations.",
        path=PAGE,
        tags=tags,
        components=Components(security_schemes=_security_schemes(accepted, cookie)),
        use_handler_docstrings=True,
        render_plugins=[
            SwaggerRenderPlugin(
                path="/",
                js_url=f"{ASSETS}/swagger-ui-bundle.js",
                css_url=f"{ASSETS}/swagger-ui.css",
                standalone_preset_js_url=f"{ASSETS}/swagger-ui-standalone-preset.js",
                favicon='<link rel="icon" href="data:,">',
            )
        ],
    )


@get("/openapi.json", include_in_schema=False)
async def schema(request: Request[Any, Any, Any]) -> dict[str, Any]:
    return request.app.openapi_schema.to_schema()


@get("/", include_in_schema=False)
async def home() -> Redirect:
    return Redirect(PAGE)


def assets() -> Router:
    """What the page loads, as it lies in the wheel of litestar-offline-docs."""
    return create_static_files_router(ASSETS, [str(files("litestar_offline_docs") / "static")], name="docs_assets")
