"""What is asked, by whom and where documents go: names and texts as people give them, made into what the parts take."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from rag_app.answering.capabilities import LEXYBRAIN, Capability, capability_for, capability_named
from rag_app.application import Application
from rag_app.documents.metadata import Target
from rag_app.domain.answer import Instructions, Mode, Question
from rag_app.domain.errors import InvalidInput
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.domain.source import Visibility
from rag_app.retrieval.filters import checked_text, parse_condition
from rag_app.retrieval.index import find_index
from rag_app.surfaces.lexybrain.messages import question_for
from rag_app.surfaces.lexybrain.types import Said


async def scope_of(application: Application, org: str, user: str | None = None, site: str | None = None) -> Scope:
    """What an organization's member sees: its content and what is public; a user's private sources if named."""
    organization = await application.people.organization(org)
    return Scope(
        frozenset({organization.id, PUBLIC_ORGANIZATION}),
        (await application.people.user(user)).id if user else None,
        (await application.people.site(organization.id, site)).id if site else None,
    )


def question_of(text: str, top_k: int, mode: str, filters: Sequence[str]) -> Question:
    """Raises InvalidInput for what is not a question."""
    if not text.strip():
        raise InvalidInput("question", text, "is empty")
    if mode not in list(Mode):
        raise InvalidInput("--mode", mode, f"accepted: {', '.join(Mode)}")
    return Question(checked_text("question", text), tuple(parse_condition(each) for each in filters), top_k, Mode(mode))


def capability_of(application: Application, index: str, name: str | None) -> Capability:
    """The named capability of an index, or the index's own.

    Raises NotFound with those there are, and InvalidInput for one that answers from another index.
    """
    spec = find_index(application.indexes, index)
    if name is None:
        return capability_for(spec.name)
    capability = capability_named(name)
    if find_index(application.indexes, capability.index) is not spec:
        raise InvalidInput("capability", name, f"{name} answers from {capability.index}, not from {spec.name}")
    return capability


async def opening_of(application: Application, capability: Capability, question: Question) -> Question:
    """The question as the first message of a conversation, where the capability is one of those; else as it is."""
    if capability.group != LEXYBRAIN:
        return question
    drawn = {
        "system": await application.prompts.draw("global"),
        "role": await application.prompts.draw(capability.name),
    }
    told = {name: version.instructions if version else "" for name, version in drawn.items()}
    opening = question_for(
        capability,
        Said(question.text),
        searched=question.text,
        named=(),
        retrieval_scope=None,
        at_most={},
        instructions=Instructions({**told, "history": "", "language": "en"}),
        now=datetime.now(UTC),
    )
    return replace(opening, filters=(*question.filters, *opening.filters), top_k=question.top_k, mode=question.mode)


async def target_of(
    application: Application,
    org: str,
    site: str | None,
    owner: str | None,
    visibility: str | None,
    metadata: Mapping[str, object],
) -> Target:
    """Where documents go, by names. Raises NotFound and InvalidInput."""
    organization = await application.people.organization(org)
    owner_id = (await application.people.user(owner)).id if owner else None
    public = organization.id == PUBLIC_ORGANIZATION
    accepted = [Visibility.GLOBAL] if public else [Visibility.TEAM, Visibility.USER]
    chosen = visibility or str(accepted[0])
    if chosen not in accepted:
        belongs = "what is global belongs to the organization public, and nothing else does"
        raise InvalidInput("visibility", chosen, f"accepted for {org}: {', '.join(accepted)} ({belongs})")
    if chosen == Visibility.USER and owner_id is None:
        raise InvalidInput("visibility", chosen, "needs --owner: the user who sees it")
    return Target(
        org_id=organization.id,
        site_id=(await application.people.site(organization.id, site)).id if site else None,
        owner_id=owner_id,
        visibility=Visibility(chosen),
        metadata=metadata,
    )
