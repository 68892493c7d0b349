"""The pictures in docs, of a running `rag-app demo` that was not asked yet: `python -m tests.browser.pictures http://127.0.0.1:8000`.

Every page in both themes, and the chat on a phone. They have at most 256 colours each, which keeps them small.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, DESKTOP, PHONE
from tests.waiting import PATIENCE

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
CHAT = "What is the demand index of “velvet ring box” on Etsy?"
REFUSED = "How many moons does Jupiter have?"
KNOWLEDGE = "How many days of annual leave do employees get?"
CALLS = "Why did Dana Whitfield complain about pricing?"
JUDGED = (KNOWLEDGE, "When does Aurora send appointment reminders to patients?", "What does the yearly plan cost?")
ADMINISTRATION = {
    "overview": "/admin",
    "feedback": "/admin/feedback",
    "prompts": "/admin/prompts",
    "prompt": "/admin/prompts/ask_lexybrain_system",
    "evaluation": "/admin/evaluation",
    "usage": "/admin/usage",
    "people": "/admin/people",
    "audit": "/admin/audit",
}


def main(url: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def open_page(theme: Any, view: Any = DESKTOP) -> Any:
            context = engine.new_context(color_scheme=theme, viewport=view, base_url=url)
            context.set_default_timeout(1000 * PATIENCE)
            return context.new_page()

        for theme in ("light", "dark"):
            take = taker(theme)
            take_chat(open_page(theme), take)
            take_phone(open_page(theme, PHONE), take)
            take_answers(open_page(theme), take)
            take_administration(open_page(theme), take)
        engine.close()


Take = Callable[[Any, str], None]


def taker(theme: str) -> Take:
    def take(page: Any, name: str) -> None:
        path = FOLDER / f"{name}-{theme}.png"
        page.wait_for_load_state("networkidle")
        page.mouse.move(700, 5)
        page.screenshot(path=path, animations="disabled")
        Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)

    return take


def ask(page: Any, question: str) -> None:
    answers = page.get_by_role("button", name="Copy with citations")
    before = answers.count()
    page.get_by_role("textbox", name="Your question").fill(question)
    page.keyboard.press("Enter")
    answers.nth(before).wait_for()
    page.get_by_role("button", name="Ask", exact=True).wait_for()


def take_chat(page: Any, take: Take) -> None:
    page.goto("/")
    page.locator("#threads li").first.wait_for()
    take(page, "start")
    ask(page, CHAT)
    take(page, "chat")
    page.locator("article.answer .prose button.chip").first.click()
    page.locator("#viewer mark").wait_for()
    take(page, "source")
    page.keyboard.press("Escape")
    ask(page, REFUSED)
    take(page, "refusal")
    page.get_by_role("button", name="This answer is wrong").last.click()
    page.get_by_label("What is wrong with it?").fill("This is no question about our shop.")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("What you wrote is kept").wait_for()


def take_phone(page: Any, take: Take) -> None:
    page.goto("/")
    ask(page, CHAT)
    take(page, "phone")


def take_answers(page: Any, take: Take) -> None:
    for name, question in (("knowledge", KNOWLEDGE), ("calls", CALLS)):
        page.goto(f"/{name}")
        ask(page, question)
        take(page, name)
    page.goto("/documents?index=org_knowledge&sort=title")
    take(page, "documents")
    page.get_by_role("link", name="Employee handbook", exact=True).first.click()
    page.locator(".document").wait_for()
    take(page, "document")


def take_administration(page: Any, take: Take) -> None:
    page.goto("/sign-in")
    take(page, "sign-in")
    page.get_by_role("button", name="ada@aurora.example").click()
    page.locator("#threads li").first.wait_for()
    validate(page)
    for name, path in ADMINISTRATION.items():
        page.goto(path)
        if name == "evaluation":
            page.locator('input[name="against"]').last.check()
            page.get_by_role("button", name="Show").last.click()
            page.get_by_text("Two runs side by side").wait_for()
        take(page, name)
    page.goto("/playground")
    page.get_by_role("textbox", name="Question").fill(KNOWLEDGE)
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator(".hits").first.wait_for()
    take(page, "playground")


def validate(page: Any) -> None:
    """Two runs, with a key that is made for them."""
    page.goto("/admin/people")
    page.get_by_text("Make a key").click()
    page.get_by_label("Name, for people").fill("nightly validation")
    page.get_by_role("button", name="Make the key").click()
    key = page.locator("pre.wrapped").inner_text()
    begun, about = page.url.partition("/admin")[0] + "/api/v1/retrieval", {"collection_name": "org_knowledge"}
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as client:

        def post(path: str, **body: Any) -> Any:
            return client.post(f"{begun}/{path}", json={**about, **body}).raise_for_status().json()

        judged = [
            {"query": each, "expected_chunks": [post("query", query=each, top_k=3)["results"][1]["chunk_id"]]}
            for each in JUDGED
        ]
        for top_k in (1, 10):
            post("validate", queries=judged, top_k=top_k)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
