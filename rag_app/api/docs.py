"""The OpenAPI document, and a page to read and try it. The page loads nothing from other hosts."""

from importlib.resources import files
from typing import Any

from litestar import Request, Router, get
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import SwaggerRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Tag
from litestar.response import Redirect
from litestar.static_files import create_static_files_router

PAGE = "/docs"
ASSETS = "/docs/assets"
BEARER = [{"bearer": list[str]()}]
"""The security of an operation that needs a token."""


def openapi(version: str, tags: list[Tag]) -> OpenAPIConfig:
    return OpenAPIConfig(
        title="rag_app",
        version=version,
        description="Questions over content that only some people may see, answered with verified citations.",
        path=PAGE,
        tags=tags,
        components=Components(
            security_schemes={"bearer": SecurityScheme(type="http", scheme="bearer", bearer_format="JWT")}
        ),
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
