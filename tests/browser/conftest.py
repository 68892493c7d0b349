"""A real browser in front of the whole application: the sample marketplace, PostgreSQL, a model by script.

Nothing may leave this machine, no script may fail, and the Content Security Policy may refuse nothing: any of them fails the
test. Without a Chromium these tests are skipped, and say so.
"""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.lexybrain import Chat, chatting
from tests.remembered import remember
from tests.waiting import PATIENCE

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
POINT = pytest.mark.points
"""One of the points that `.ci/run` looks at, beyond the path through each page of `make test`."""
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="there is no chromium: apt-get install chromium"))


@pytest.fixture(scope="package", autouse=True)
def _remembered(vectors: Path) -> Iterator[None]:
    with remember(vectors):
        yield


@pytest.fixture(scope="module")
def chat(
    database_urls: tuple[str, str], default_store: str, qdrant_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chat]:
    """In the demo's way of signing in: whoever opens a page is mila, of aurora."""
    folder = tmp_path_factory.mktemp("browser")
    with chatting(database_urls, default_store, qdrant_folder, folder, settings={"RAG_PAGES": "demo"}) as running:
        yield running


class Wire:
    """What lies between a browser and the server, to be cut. In use it is a context; `url` leads through it."""

    def __init__(self, url: str) -> None:
        self._to = (str(urlsplit(url).hostname), urlsplit(url).port)
        self._ends: list[socket.socket] = []
        self._whole = True
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"

    def __enter__(self) -> "Wire":
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()

    def cut(self) -> None:
        """Close what is open. What is opened is closed at once, until it is mended."""
        self._whole = False
        while self._ends:
            with suppress(OSError):
                self._ends.pop().shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._whole = True

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                if not self._whole:
                    near.close()
                    continue
                far = socket.create_connection(self._to)
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while said := one.recv(65536):
                other.sendall(said)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@dataclass
class Browser:
    """Makes pages, each in a browser profile of its own, and remembers what went wrong in them."""

    engine: Any
    url: str
    wrong: list[str] = field(default_factory=list)
    contexts: list[Any] = field(default_factory=list)

    def open(
        self, path: str = "/", *, theme: str = "light", phone: bool = False, script: str | None = None, **options: Any
    ) -> Any:
        view = PHONE if phone else DESKTOP
        options = {"base_url": self.url, "color_scheme": theme, "viewport": view, "has_touch": phone, **options}
        context = self.engine.new_context(**options)
        context.set_default_timeout(1000 * PATIENCE)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        context.route("**/*", self._look_at)
        self.contexts.append(context)
        page = context.new_page()
        if script:
            page.add_init_script(script)
        page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        page.on("dialog", self._dismiss)
        page.on("console", self._listen)
        page.goto(path)
        return page

    def _look_at(self, route: Any) -> None:
        url = urlsplit(route.request.url)
        if url.scheme in {"data", "blob"} or url.hostname == "127.0.0.1":
            route.continue_()
        else:
            self.wrong.append(f"leaves the machine: {route.request.url}")
            route.abort()

    def _dismiss(self, dialog: Any) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _listen(self, message: Any) -> None:
        if "Content Security Policy" in message.text or "TrustedHTML" in message.text or "Trusted Type" in message.text:
            self.wrong.append(message.text)

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        self.contexts.clear()


@pytest.fixture(scope="module")
def _engine(chat: Chat) -> Iterator[Any]:
    # after `chat`, and so gone before it: while Playwright runs, this thread can begin no other event loop
    with sync_api.sync_playwright() as playwright:
        engine = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield engine
        engine.close()


@pytest.fixture
def browser(_engine: Any, chat: Chat) -> Iterator[Browser]:
    made = Browser(_engine, str(chat.client.base_url).rstrip("/"))
    yield made
    made.close()
    assert not made.wrong, made.wrong


@pytest.fixture
def scripted(chat: Chat) -> Callable[..., None]:
    """What the model says next."""

    def script(*replies: Any) -> None:
        chat.model.requests.clear()
        chat.model.hung_up.clear()
        chat.model.script = list(replies)

    return script
