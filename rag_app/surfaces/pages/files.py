"""What pages load: scripts and styles, under a path that changes with them, so that browsers keep them for good."""

from hashlib import sha256
from importlib.resources import files
from mimetypes import guess_type
from pathlib import PurePosixPath

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
_CACHE_FOR_GOOD = "public, max-age=31536000, immutable"


FILES = {each.name: each.read_bytes() for each in (files(__package__) / "static").iterdir() if each.is_file()}
"""By name."""
VERSION = sha256(b"".join(name.encode() + FILES[name] for name in sorted(FILES))).hexdigest()[:12]


def static(name: str) -> str:
    """The path of a file below `static/`. Raises KeyError where there is none: a template names it."""
    FILES[name]
    return f"/static/{VERSION}/{name}"


@get("/static/{version:str}/{name:str}", include_in_schema=False, opt={"open": True})
async def static_file(version: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """Of another version, too: the page of a server that was replaced meanwhile may ask for it."""
    content = FILES.get(name)
    if content is None:
        raise NotFoundException
    kept = _CACHE_FOR_GOOD if version == VERSION else "no-cache"
    suffix = PurePosixPath(name).suffix
    media_type = _TYPES.get(suffix) or guess_type(name)[0] or "application/octet-stream"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    return Response(content, media_type=media_type, headers={"Cache-Control": kept})
