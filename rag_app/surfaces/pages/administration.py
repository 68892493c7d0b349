"""Administration: overview, feedback, prompts, evaluation, usage, members and keys, the audit.

Tables are plain HTML, filters are GET forms, changes are POST forms: all of it works without JavaScript.
"""

import difflib
import shlex
from collections.abc import Mapping
from itertools import islice, zip_longest
from typing import Any
from urllib.parse import urlencode

from litestar.params import FromPath

from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.answering.prompts import conversation_types
from rag_app.domain import InvalidInput, Mode, NotFound
from rag_app.http.surface import Caller, Injected
from rag_app.surfaces.lexybrain.administration_routes import NewPrompt
from rag_app.surfaces.lexybrain.statistics import Statistics
from rag_app.surfaces.management.service import Belonging, FeedbackQueue, Usage
from rag_app.surfaces.pages.site import (
    Html,
    action,
    convert_form,
    day,
    form_value,
    page,
    query_value,
    redirect,
    render,
    uuid,
)
from rag_app.surfaces.playground.routes import Playground
from rag_app.surfaces.playground.types import Configuration, NewJudgment, PlaygroundRequest
from rag_app.surfaces.validation.service import RetrievalValidation

RESOLUTIONS = ("fixed", "noted", "dismissed")
SIDES = ("a", "b")  # of the playground
PRODUCTS = {"knowledge_answer": "Knowledge", "owner_ask": "Calls"}
"""Products that answer outside of conversations, by capability."""


# -- overview


@page("/admin", administrators=True)
async def overview(request: Caller, statistics: Injected[Statistics], usage: Injected[Usage]) -> Html:
    """Figures of conversations, or of a product that answers outside of them."""
    since, until, product = day(request, "from"), day(request, "to"), query_value(request, "product", PRODUCTS)
    days = (await usage.trends(request.user, since, until, product)).days
    shown: dict[str, Any] = {"product": product, "products": PRODUCTS, "days": days}
    if product is not None:
        return render(request, "admin-product.html", **shown)
    return render(request, "admin-overview.html", stats=await statistics.read(request.user, since, until), **shown)


# -- feedback


@page("/admin/feedback", administrators=True)
async def feedback(request: Caller, feedback_queue: Injected[FeedbackQueue]) -> Html:
    state = query_value(request, "state", ("open", "settled", "all")) or "open"
    asked = {
        "state": state,
        "kind": query_value(request, "kind", ("message", "answer")),
        "rating": query_value(request, "rating", ("positive", "negative", "neutral")),
        "prompt": query_value(request, "prompt"),
    }
    wanted = {**asked, "state": None if state == "all" else state}
    found = await feedback_queue.read(request.user, **wanted, limit=20, after=query_value(request, "cursor"))
    return render(request, "admin-feedback.html", found=found, asked=asked, resolutions=RESOLUTIONS)


@action("/admin/feedback", administrators=True)
async def settle(request: Caller, feedback_queue: Injected[FeedbackQueue]) -> Html:
    """Settle one feedback, or open it again."""
    form = await request.form()
    given, resolution = (
        uuid("feedback", form.get("feedback")),
        form_value("resolution", form.get("resolution"), RESOLUTIONS),
    )
    back = "/admin/feedback?" + urlencode(
        {"state": form_value("state", form.get("state"), ("open", "settled", "all")) or "open"}
    )
    if resolution is None:
        await feedback_queue.reopen_feedback(request.user, given)
        return redirect(request, back, "It is open again.")
    note = form_value("note", form.get("note"))
    await feedback_queue.settle(request.user, given, resolution, note and note[:2000])
    return redirect(request, back, f"Settled: {resolution}.")


# -- prompts


@page("/admin/prompts", administrators=True)
async def prompts(request: Caller, prompts: Injected[PromptRegistry], statistics: Injected[Statistics]) -> Html:
    versions = await prompts.versions(request.user)
    stats = await statistics.read(request.user, day(request, "from"), day(request, "to"))
    results = {(each.type, each.prompt): each for each in stats.prompts}
    return render(
        request,
        "admin-prompts.html",
        by_type=[(kind, [each for each in versions if each.config.type == kind]) for kind in conversation_types()],
        results=results,
        stats=stats,
        kinds=conversation_types(),
    )


@page("/admin/prompts/{name:str}", administrators=True)
async def prompt(request: Caller, prompts: Injected[PromptRegistry], name: FromPath[str]) -> Html:
    """A version, and its differences from another version of its type."""
    versions = {each.config.name: each for each in await prompts.versions(request.user)}
    if name not in versions:
        raise NotFound("prompt version", name, versions)
    shown = versions[name]
    others = [each for each in versions.values() if each.config.type == shown.config.type and each is not shown]
    against = query_value(request, "against", [each.config.name for each in others])
    changes = None
    if against is not None:
        old, new = versions[against].config.instructions, shown.config.instructions
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="")
        changes = [*islice(lines, 2, None)]  # the first two name files
    return render(
        request,
        "admin-prompt.html",
        shown=shown,
        others=others,
        against=against,
        changes=changes,
    )


@action("/admin/prompts", administrators=True)
async def change_prompt(request: Caller, prompts: Injected[PromptRegistry]) -> Html:
    """Activate, deactivate or weigh a version, or add a new one."""
    form = await request.form()
    name, act = (
        form_value("name", form.get("name")) or "",
        form_value("act", form.get("act"), ("on", "off", "weigh", "add")),
    )
    if act == "add":
        kind = form_value("type", form.get("type"), conversation_types())
        made = NewPrompt(name, kind or "global", str(form.get("instructions") or "").replace("\r\n", "\n"))
        await prompts.publish(request.user, made.config())
        return redirect(request, f"/admin/prompts/{name}", f"{name} is added. New threads get it once it is active.")
    if act == "weigh":
        weight = str(form.get("weight") or "")
        if not weight.isdecimal():
            raise InvalidInput("weight", weight[:20], "must be a whole number from 0 to 1000000")
        await prompts.change(request.user, name, weight=int(weight[:8]))
        return redirect(request, "/admin/prompts", f"{name} has the weight {int(weight)}.")
    await prompts.change(request.user, name, active=act == "on")
    return redirect(request, "/admin/prompts", f"{name} is {'active' if act == 'on' else 'not active any more'}.")


# -- evaluation


@page("/admin/evaluation", administrators=True)
async def evaluation(
    request: Caller, belonging: Injected[Belonging], validation: Injected[RetrievalValidation]
) -> Html:
    """Stored validation runs, two of them side by side."""
    organizations = (await belonging.organizations(request.user)).organizations
    slugs = [each.slug for each in organizations]
    organization = query_value(request, "organization", slugs) or next(iter(slugs), None)
    if organization is None:
        return render(request, "admin-evaluation.html", organizations=[], organization=None, runs=None, two=None)
    member = await belonging.as_member(request.user, organization)
    runs = await validation.newest(member, 50, query_value(request, "before"))
    ids = [each for each in (query_value(request, "run"), query_value(request, "against")) if each]
    two = [await validation.read_run(member, each, other) for each, other in zip_longest(ids[:1], ids[1:2])]
    two += [await validation.read_run(member, each, None) for each in ids[1:2]]
    return render(
        request,
        "admin-evaluation.html",
        organizations=organizations,
        organization=organization,
        runs=runs,
        two=two,
        server=request.base_url,
    )


# -- usage


@page("/admin/usage", administrators=True)
async def usage_of_month(request: Caller, usage: Injected[Usage], statistics: Injected[Statistics]) -> Html:
    found = await usage.month(request.user, query_value(request, "month"))
    return render(
        request, "admin-usage.html", found=found, quota=(await statistics.read(request.user, None, None)).quota
    )


@action("/admin/usage", administrators=True)
async def change_plan(request: Caller, belonging: Injected[Belonging]) -> Html:
    form = await request.form()
    changed = await belonging.set_plan(
        request.user, uuid("user", form.get("user")), form_value("plan", form.get("plan")) or ""
    )
    return redirect(request, "/admin/usage", f"{changed.name} has the plan {changed.plan} from the next message on.")


# -- members and keys


@page("/admin/people", administrators=True)
async def people(request: Caller, belonging: Injected[Belonging]) -> Html:
    return await _show_people(request, belonging, query_value(request, "organization"))


async def _show_people(
    request: Caller,
    belonging: Belonging,
    organization: str | None,
    secret: tuple[str, str] | None = None,
    unknown: str | None = None,
) -> Html:
    """`secret`: a new key's name and the key. `unknown`: whom the form would add, who is no user."""
    organizations = (await belonging.organizations(request.user)).organizations
    shown = organization or next((each.slug for each in organizations), None)
    members = keys = None
    if shown is not None:
        members = await belonging.members(request.user, shown)
        keys = await belonging.keys(request.user, shown)
    return render(
        request,
        "admin-people.html",
        status=200 if unknown is None else 404,
        unknown=unknown,
        quoted=shlex.quote(unknown or ""),
        organizations=organizations,
        organization=shown,
        members=members,
        keys=keys,
        secret=secret,
        indexes=belonging.indexes,
    )


@action("/admin/people", administrators=True)
async def change_people(request: Caller, belonging: Injected[Belonging]) -> Html:
    """Add or remove a member, make or revoke a key. Only the response to its form shows a new key."""
    form = await request.form()
    organization = form_value("organization", form.get("organization")) or ""
    back = "/admin/people?" + urlencode({"organization": organization})
    act = form_value("act", form.get("act"), ("add", "remove", "make", "revoke"))
    if act == "add":
        user = form_value("user", form.get("user")) or ""
        try:
            await belonging.add_member(request.user, organization, user)
        except NotFound as error:
            if error.kind != "user":
                raise
            return await _show_people(request, belonging, organization, unknown=user)
        return redirect(request, back, f"{user} is a member.")
    if act == "remove":
        await belonging.remove_member(request.user, organization, uuid("user", form.get("user")))
        return redirect(request, back, "The member is removed.")
    if act == "revoke":
        revoked = await belonging.revoke_key(request.user, uuid("key", form.get("key")))
        return redirect(request, back, f"The key {revoked.name} is refused from now on.")
    indexes = [str(each) for each in form.getall("index", [])]
    made = await belonging.create_key(
        request.user, organization, form_value("name", form.get("name")) or "", indexes or None
    )
    return await _show_people(request, belonging, organization, (made.key.name, made.secret))


# -- audit


@page("/admin/audit", administrators=True)
async def audit(request: Caller, usage: Injected[Usage]) -> Html:
    """The audit log, newest first."""
    before = query_value(request, "before")
    if before is not None and not (before.isdecimal() and len(before) < 19):
        raise InvalidInput("before", before[:20], "must be a cursor from an earlier page")
    asked = query_value(request, "action")
    found = await usage.audit(request.user, limit=50, before=None if before is None else int(before), action=asked)
    return render(request, "admin-audit.html", found=found, asked=asked)


# -- the playground: a question step by step, two configurations side by side, and judgments of what was found


@page("/playground", administrators=True)
async def playground(request: Caller, playground: Injected[Playground]) -> Html:
    return await _show_playground(request, playground, {})


@action("/playground", administrators=True)
async def ask_in_playground(request: Caller, playground: Injected[Playground]) -> Html:
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
    return await _show_playground(request, playground, form, said)


async def _show_playground(
    request: Caller, playground: Playground, form: Mapping[str, str], said: str | None = None
) -> Html:
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
