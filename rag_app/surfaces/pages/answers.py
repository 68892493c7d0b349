"""Pages that answer without threads, in the browser, by the public routes: what an organization knows, and its calls."""

from rag_app.http.surface import Caller
from rag_app.surfaces.pages.site import Html, page, render, visitor_of


@page("/knowledge", menu="Knowledge", order=10)
async def knowledge(request: Caller) -> Html:
    return _show(
        request, "knowledge", "Knowledge", "Answers from the documents, e-mails and calls of your organization."
    )


@page("/calls", menu="Calls", order=20)
async def calls(request: Caller) -> Html:
    return _show(request, "calls", "Calls and bookings", "Answers from what customers said on the phone and booked.")


def _show(request: Caller, kind: str, title: str, about: str) -> Html:
    return render(request, "answers.html", kind=kind, title=title, about=about, user=visitor_of(request).user)
