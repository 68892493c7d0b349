"""Sources over HTTP, with the whole application behind it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rag_app.access.roles import Role
from rag_app.application import Application
from tests.integration.service import bearer, configured, prepare, served, without_limits

PATH = "/api/v1/sources"
INDEX = "org_knowledge"


@dataclass(frozen=True)
class Writer:
    """A key that may write in an organization of its own, and a member of it who may read."""

    client: httpx.Client
    org: UUID
    slug: str
    key: str
    reader: UUID
    admin: UUID

    def call(self, method: str, path: str = "", status: int | None = 200, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        response = self.client.request(method, PATH + path, headers=headers, **options)
        assert status is None or response.status_code == status, response.text
        return response if status is None else response.json()

    def put_in(self, *documents: dict[str, Any], **options: Any) -> Any:
        return self.call("POST", json={"index": INDEX, "documents": documents, **options})

    def search(self, text: str, **filters: Any) -> list[Any]:
        asked = {"query_text": text, "top_k": 50, "filters": filters}
        found = self.client.post("/api/rag/search", json=asked, headers=bearer(self.reader))
        assert found.status_code == 200, found.text
        return [each for each in found.json()["results"] if each["meta"]["org_id"] == str(self.org)]


async def an_organization(application: Application) -> dict[str, Any]:
    people = application.people
    organization = await people.create_organization(f"o-{uuid4().hex}", "Sources")
    reader, admin = [await people.create_user(f"u-{uuid4().hex}") for _ in range(2)]
    for member in (reader, admin):
        await people.add_member(organization, member)
    made, key = await application.keys.create(organization, "writes", None)
    principal = await application.keys.principal(key)
    assert principal.user is not None and made.name == "writes"
    await application.roles.grant(organization.id, principal.user, Role.WRITE, INDEX)
    await application.roles.grant(organization.id, admin.id, Role.ADMIN)
    return {"org": organization.id, "slug": organization.slug, "key": key, "reader": reader.id, "admin": admin.id}


@pytest.fixture(scope="module", params=["postgres", "qdrant"])
def running(
    request: pytest.FixtureRequest, database_urls: tuple[str, str], qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx.Client, list[dict[str, Any]]]]:  # fmt: skip
    """With organizations for the tests to take, each empty."""
    folder = tmp_path_factory.mktemp("sources")
    variables = {
        "RAG_DATABASE_URL": database_urls[1],
        "RAG_DATABASE_OWNER_URL": database_urls[0],
        "RAG_VECTOR_STORE": request.param,
        "QDRANT_PATH": str(qdrant_folder),
        "RAG_HOME": str(folder),
        "RAG_ORIGINALS": "files",
        "RAG_UPLOAD_MEGABYTES": "1",
        "RAG_URL_NETWORKS": "127.0.0.1/32",
    }
    with configured(variables) as patch:
        without_limits(patch)

        async def many(application: Application) -> list[dict[str, Any]]:
            return [await an_organization(application) for _ in range(40)]

        organizations = prepare(many)
        with served() as client:
            yield client, organizations


@pytest.fixture
def writer(running: tuple[httpx.Client, list[dict[str, Any]]]) -> Writer:
    return Writer(running[0], **running[1].pop())


def test_an_empty_organization_has_no_sources(writer: Writer) -> None:
    assert writer.call("GET") == {"sources": [], "next": None}
    assert writer.search("What is the door code?") == []
    assert writer.call("GET", f"/{uuid4()}", 404)["error"]["code"] == "not_found"
    assert writer.call("GET", "/nothing", 404)["error"]["code"] == "not_found"
