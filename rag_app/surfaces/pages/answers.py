"""*Knowledge* and *Calls*: pages that answer without threads, with the public routes."""

from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.pages.signing_in import SigningIn
from rag_app.surfaces.pages.site import Html, page, render, visitor_of

EXAMPLES = {
    "knowledge": (
        "How many days of annual leave do employees get?",
        "When does Aurora send appointment reminders to patients?",
        "How do I feed a sourdough starter?",
    ),
    "calls": (
        "How long did Peter Hallam have to wait?",
        "Why did Dana Whitfield complain about pricing?",
        "What time zone is Kathmandu in?",
    ),
}
"""Questions that the demo's samples answer; the last one they do not."""


@page("/knowledge", menu="Knowledge", order=10)
async def knowledge(request: Caller, signing_in: Injected[SigningIn]) -> Html:
    about = "Answers from the documents, e-mails and calls of your organization."
    return _show(request, "knowledge", "Knowledge", about, signing_in.demo)


@page("/calls", menu="Calls", order=20)
async def calls(request: Caller, signing_in: Injected[SigningIn]) -> Html:
    about = "Answers from what customers said on the phone and booked."
    return _show(request, "calls", "Calls and bookings", about, signing_in.demo)


def _show(request: Caller, kind: str, title: str, about: str, demo: bool) -> Html:
    examples = EXAMPLES[kind] if demo else ()
    user = visitor_of(request).user
    return render(request, "answers.html", kind=kind, title=title, about=about, user=user, examples=examples)
