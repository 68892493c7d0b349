"""The chat: what `/` opens."""

from uuid import UUID

from litestar.params import FromPath

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.http.surface import Caller
from rag_app.surfaces.pages.site import Html, page, render

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("market_brief", "What is trending in the wedding niche right now?"),
    ("competitor_intel", "How do the best listings for velvet ring boxes price theirs?"),
    ("keyword_explanation", "Why is “velvet ring box” a good keyword?"),
    ("alert_explanation", "What do I have to do about the trademark alert?"),
)
"""What somebody may ask who has not asked yet, by capability."""


@page(["/", "/threads/{thread_id:uuid}"], menu="Ask", order=0)
async def ask(request: Caller, thread_id: FromPath[UUID] | None = None) -> Html:
    """Asked and answered in the browser, by the public routes."""
    capabilities = [(name, name.replace("_", " ").capitalize(), text) for name, text in DESCRIPTIONS.items()]
    return render(request, "chat.html", thread=str(thread_id or ""), capabilities=capabilities, examples=EXAMPLES)
