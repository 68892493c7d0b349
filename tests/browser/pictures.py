"""The pictures of docs/pages.md, of a running `make demo`: `python -m tests.browser.pictures http://127.0.0.1:8000`."""

import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, DESKTOP, PHONE

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
QUESTION = "What are the top trending wedding keywords on Etsy right now?"


def main(url: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for name, view in (("chat", DESKTOP), ("phone", PHONE)):
                options: Any = {"color_scheme": theme, "viewport": view, "base_url": url}
                page = engine.new_context(**options).new_page()
                take(page, f"{name}-{theme}", start=name == "chat")
        engine.close()


def take(page: Any, name: str, *, start: bool) -> None:
    page.goto("/")
    page.wait_for_load_state("networkidle")
    if start:
        page.screenshot(path=FOLDER / f"start-{name.rpartition('-')[2]}.png")
    page.get_by_role("textbox", name="Your question").fill(QUESTION)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Copy with citations").wait_for(timeout=60_000)
    page.locator("#messages").evaluate("it => { it.scrollTop = 0; }")
    page.screenshot(path=FOLDER / f"{name}.png")
    if start:
        page.locator("article.answer .prose button.chip").first.click()
        page.locator("#viewer mark").wait_for()
        page.mouse.move(5, 400)
        page.screenshot(path=FOLDER / f"source-{name.rpartition('-')[2]}.png")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
