"""Scripts and styles. Their path changes with their content, so browsers can cache them forever."""

from hashlib import sha256
from importlib.resources import files
from mimetypes import guess_type
from pathlib import PurePosixPath

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from rag_app.domain import require

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_CACHE_FOR_GOOD = "public, max-age=31536000, immutable"


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
    kept = _CACHE_FOR_GOOD if version == VERSION else "no-cache"
    media_type = _TYPES.get(PurePosixPath(name).suffix) or guess_type(name)[0] or "application/octet-stream"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    return Response(content, media_type=media_type, headers={"Cache-Control": kept})
