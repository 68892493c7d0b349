"""The pages: what a browser is shown at `/`.

A page is a function and a template:

    @page("/documents")
    async def documents(request: Caller, sources: Injected[Sources]) -> Html:
        return render(request, "documents.html", sources=await sources.list(request.user))

`request.user` is the Principal of whoever is signed in; a template's `visitor` their name, role and organizations. A page
calls the services of the surfaces, by the names that `application.build_api` gives them, and has no query of its own.
`administrators=True` shows it to administrators alone. What it raises becomes a page, too.

A change is a form and a function, and works without JavaScript:

    @action("/documents/{source_id:uuid}/delete")
    async def delete(request: Caller, sources: Injected[Sources], source_id: FromPath[UUID]) -> Html:
        await sources.delete(request.user, source_id)
        return redirect(request, "/documents", said="Deleted.")

Each form holds `{{ csrf() }}`. What it sends is `await request.form()`. Origin and token are checked before the function is
called; a script sends the token of `<meta name="csrf">` in the header `X-CSRF-Token`.

A module with pages is listed in `routes.py`, and a page of the menu in `layout.html`. Templates extend `layout.html` and use the macros of `parts.html`; files below
`static/` are named by `{{ static("chat.js") }}`. No template has a script, style or event handler in it: the Content
Security Policy refuses them.
"""
