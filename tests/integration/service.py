"""The whole application on a real port, over sources that a test writes down in a few words."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
import jwt
import pytest
from msgspec.structs import replace

from rag_app.access.tokens import issue_token
from rag_app.application import Application, create_app, open_application
from rag_app.database.urls import DatabaseUrls
from rag_app.documents.metadata import Target
from rag_app.domain.scope import PUBLIC_ORGANIZATION, Scope
from rag_app.domain.source import Visibility, source_id
from rag_app.settings import Settings
from rag_app.surfaces.registry import SURFACES
from tests.contract.conftest import serve
from tests.integration.conftest import INDEX
from tests.waiting import PATIENCE

T = TypeVar("T")

SECRET = "a secret of the tests, long enough for HS256"
USUAL = {"RAG_JWT_SECRET": SECRET, "RAG_LOG_LEVEL": "warning", "RAG_SIGN_IN_TRIES": "10000"}
"""All tests sign in from one address."""


@dataclass(frozen=True)
class Text:
    """A source of one organization; private where it has an owner, for groups where it has an audience.

    `fields` are what a JSON record may say of itself.
    """

    name: str
    text: str
    org: UUID
    owner: UUID | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    audience: UUID | None = None

    @property
    def id(self) -> UUID:
        return source_id(self.org, INDEX, self.name)


@contextmanager
def configured(variables: Mapping[str, str]) -> Iterator[pytest.MonkeyPatch]:
    """These environment variables, and a secret for tokens, for as long as the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("QDRANT_URL", raising=False)
        for name, value in {**USUAL, **variables}.items():
            patch.setenv(name, value)
        yield patch


def without_limits(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told to wait: a refusal would hide what a test is after."""
    surfaces = tuple(replace(each, limit=None, concurrent=None, windows={}) for each in SURFACES)
    patch.setattr("rag_app.surfaces.registry.SURFACES", surfaces)


def prepare(work: Callable[[Application], Awaitable[T]]) -> T:
    """What an operator does before serving: open the configured application, work with it, close it."""

    async def opened() -> T:
        settings = Settings()
        assert settings.database.url and settings.database.owner_url
        app_url, owner_url = settings.database.url.get_secret_value(), settings.database.owner_url.get_secret_value()
        async with open_application(settings, DatabaseUrls(app_url, owner_url, private=True)) as application:
            return await work(application)

    return asyncio.run(opened())


async def ingest(application: Application, folder: Path, texts: Sequence[Text]) -> None:
    """With the real ingestor, one run for each organization, owner and audience."""
    groups: dict[tuple[UUID, UUID | None, UUID | None], list[Text]] = {}
    for each in texts:
        groups.setdefault((each.org, each.owner, each.audience), []).append(each)
    for (org, owner, audience), group in groups.items():
        visibility = Visibility.USER if owner else Visibility.GLOBAL if org == PUBLIC_ORGANIZATION else Visibility.TEAM
        target = Target(org, None, owner, Visibility.GROUP if audience else visibility, audience)
        file = folder / f"{uuid4()}.jsonl"  # a file of its own: what another one held stays
        file.write_text(
            "".join(json.dumps({"id": each.name, "text": each.text, **each.fields}) + "\n" for each in group), "utf-8"
        )
        ingestor = await application.ingestor(application.indexes[INDEX], target)
        summary = await ingestor.ingest([file], base=folder)
        assert not summary.failed


async def forget_public(application: Application) -> None:
    """Take back what everybody sees: other tests of this run ask for exact results."""
    spec = application.indexes[INDEX]
    scope = Scope(frozenset({PUBLIC_ORGANIZATION}))
    left = [source.id async for source in application.ledger.list(scope, spec.name, operator=True)]
    await (await application.ingestor(spec, Target(PUBLIC_ORGANIZATION))).delete(left)


def bearer(subject: object, groups: object = None) -> dict[str, str]:
    token = issue_token(str(subject), SECRET, audience="authenticated")
    if groups is not None:  # as an identity provider adds them
        claims = jwt.decode(token, options={"verify_signature": False})
        token = jwt.encode({**claims, "groups": groups}, SECRET, "HS256")
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def served() -> Iterator[httpx.Client]:
    """The application that the environment configures, as `rag-app serve` runs it."""
    with serve(create_app()) as url, httpx.Client(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield client
