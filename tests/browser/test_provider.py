"""Signing in at an identity provider, an upload that becomes a job, and out again, in a real browser."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from rag_app.access.roles import Role
from rag_app.application import Application
from tests.browser.conftest import Browser, sync_api
from tests.integration.lexybrain import Chat, chatting
from tests.integration.service import prepare
from tests.scripted_provider import ScriptedProvider

NOTE = b"The velvet boxes of the spring collection are sold in sets of four."
expect: Any = sync_api.expect
JOBS = {"RAG_UPLOAD_AT_ONCE_MEGABYTES": "0", "RAG_SERVE_WORKER": "false"}
"""Whatever is uploaded becomes a job, which waits until a test takes a turn."""


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(asks=True) as provider:
        yield provider


@pytest.fixture(scope="module")
def chat(
    provider: ScriptedProvider,
    database_urls: tuple[str, str],
    default_store: str,
    qdrant_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Chat]:
    """Nobody is signed in before the provider has said who it is."""
    folder = tmp_path_factory.mktemp("provider")
    settings = {"RAG_OIDC_ISSUER": provider.issuer, "RAG_OIDC_CLIENT_ID": provider.client_id, **JOBS}
    with chatting(database_urls, default_store, qdrant_folder, folder, settings=settings) as running:
        provider.subject = str(running.mila)
        prepare(lambda application: application.roles.grant(running.aurora, running.mila, Role.WRITE, "marketplace"))
        prepare(lambda application: add_group(application, running.mila))
        yield running


async def add_group(application: Application, member: UUID) -> None:
    aurora = await application.people.organization("aurora")
    group = await application.groups.create(aurora, "stock", "Stock takers")
    await application.groups.add_member(group, await application.people.user(str(member)))


def test_in_at_the_provider_an_upload_and_out_again(browser: Browser, chat: Chat) -> None:
    page = browser.open("/documents")
    page.get_by_role("link", name="Sign in at 127.0.0.1").click()
    expect(page).to_have_title("Provider")
    page.get_by_role("link", name="Continue").click()
    expect(page).to_have_url(f"{browser.url}/documents")
    expect(page.get_by_text("mila@aurora.example").first).to_be_attached()
    [cookie] = [each for each in page.context.cookies() if each["name"].startswith("rag_")]
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("rag_pages", True, "Lax")

    page.get_by_text("Add documents").click()
    page.get_by_label("into").select_option("marketplace")
    page.get_by_label("seen by").select_option("Stock takers")
    page.get_by_label("Files").set_input_files(files=[{"name": "note.txt", "mimeType": "text/plain", "buffer": NOTE}])
    uploads = page.get_by_role("list", name="Uploads")
    expect(uploads).to_contain_text("waiting to be read")
    with ThreadPoolExecutor(1) as elsewhere:  # Playwright has the event loop of this thread
        elsewhere.submit(prepare, lambda application: application.take_turn(chat.aurora)).result()
    expect(uploads).to_contain_text("done")
    page.get_by_role("link", name="Show them in the list").click()
    expect(page.get_by_role("link", name="note.txt", exact=True)).to_be_visible()
    expect(page.get_by_role("row", name="note.txt").get_by_role("cell", name="groups")).to_be_visible()

    page.get_by_role("button", name="Account: mila@aurora.example").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_title("Signed out at the provider")
    page.get_by_role("link", name="Back").click()
    expect(page).to_have_url(f"{browser.url}/sign-in")
    page.goto("/documents")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
