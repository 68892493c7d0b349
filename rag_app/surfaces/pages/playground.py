"""The playground as a page: a question step by step, two configurations side by side, and judgments of what was found."""

from collections.abc import Mapping
from typing import Any

from rag_app.domain import InvalidInput, Mode
from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.pages.site import Html, action, convert_form, form_value, page, render, uuid
from rag_app.surfaces.playground.routes import Playground
from rag_app.surfaces.playground.types import Configuration, NewJudgment, PlaygroundRequest

SIDES = ("a", "b")


@page("/playground", administrators=True)
async def playground(request: Caller, playground: Injected[Playground]) -> Html:
    return await _show(request, playground, {})


@action("/playground", administrators=True)
async def ask(request: Caller, playground: Injected[Playground]) -> Html:
    """Ask the form's question and show the result. If a judgment's button was pressed, store that first."""
    form = {name: str(value) for name, value in (await request.form()).items()}
    said = None
    if judged := form_value("judge", form.get("judge")):
        side, _, rest = judged.partition(":")
        relevant, _, chunk = rest.partition(":")
        configuration = _configuration(form, side if side in SIDES else "a")
        kept = NewJudgment(
            form.get("question", "").strip(),
            configuration.index,
            uuid("chunk", chunk),
            relevant == "right",
            configuration.organization,
        )
        await playground.judge(request.user, kept)
        said = (
            "Kept: this passage answers the question."
            if relevant == "right"
            else "Kept: this passage does not answer it."
        )
    return await _show(request, playground, form, said)


async def _show(request: Caller, playground: Playground, form: Mapping[str, str], said: str | None = None) -> Html:
    options = await playground.options(request.user)
    found = None
    if form:
        sides = [_configuration(form, side) for side in SIDES if side == "a" or form.get("two")]
        asked = convert_form({"question": form.get("question", ""), "configurations": sides}, PlaygroundRequest)
        found = await playground.ask(request.user, asked)
    return render(
        request, "playground.html", options=options, form=form, found=found, sides=SIDES, modes=[*Mode], kept=said
    )


def _configuration(form: Mapping[str, str], side: str) -> Configuration:
    def field(name: str) -> str:
        return form.get(f"{side}_{name}", "").strip()

    values: dict[str, Any] = {name: field(name) for name in ("index", "organization", "mode") if field(name)}
    values["filters"] = [line.strip() for line in field("filters").splitlines() if line.strip()]
    values["answer"] = bool(field("answer"))
    for name, kind in (("top_k", int), ("threshold", float)):
        if field(name):
            try:
                values[name] = kind(field(name))
            except ValueError:
                raise InvalidInput(name, field(name)[:50], "must be a number") from None
    return convert_form(values, Configuration)
