"""The pages in a real browser: first view, streams, a long thread. `python -m bench.pages`

Server, model by script and browser share this machine, so each figure is an upper bound. Frames of the long thread stand
beside frames of a bare page with the same words, which is what the machine can do.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

from bench.figures import percentile
from rag_app.database.migrate import upgrade
from rag_app.database.private import private_postgres
from rag_app.domain.resources import resource_folder
from tests.integration.lexybrain import BOX, KEYWORD, Chat, chatting, citing

VIEWS, STREAMS, TURNS = 30, 10, 250
MOST = 150_000  # bytes
PAGE = 50  # messages that a thread opens with
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
SAID = " ".join(f"The demand index is 58 {{0}}, as of day {day}." for day in range(1, 7))
COPY = """
INSERT INTO rag_messages (
    thread_id, role, content, created_at, capability, model_id, retrieved_source_ids, generation_metadata, flags
) SELECT thread_id, role, content, created_at - turn * interval '1 minute', capability, model_id, retrieved_source_ids,
    generation_metadata, flags FROM rag_messages, generate_series(1, :more) AS turn WHERE thread_id = CAST(:thread AS uuid)
"""
LISTEN = """
window.seen = {};
const read = ReadableStreamDefaultReader.prototype.read;
ReadableStreamDefaultReader.prototype.read = async function (...rest) {
  const got = await read.apply(this, rest);
  if (typeof got.value === "string" && got.value.includes("event: delta")) window.seen.event ??= performance.now();
  return got;
};
const look = () => {
  if (window.seen.event && document.querySelector("article[aria-busy] .prose")?.textContent) window.seen.shown ??= performance.now();
  if (!window.seen.shown) return requestAnimationFrame(look);
  document.documentElement.dataset.shown = String(window.seen.shown - window.seen.event);
};
addEventListener("submit", () => {
  window.seen = {};
  delete document.documentElement.dataset.shown;
  requestAnimationFrame(look);
}, true);
"""
"""When the first sentence arrives, and when a frame is drawn that has it."""
SCROLL = """async (id) => {
  const box = document.getElementById(id);
  const frames = [];
  let before = await new Promise(requestAnimationFrame);
  box.scrollTop = box.scrollHeight;
  while (box.scrollTop > 0) {
    box.scrollTop -= 240;
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - before);
    before = now;
  }
  return frames;
}"""
"""Milliseconds from frame to frame, from the end to the beginning, 240 pixels a frame."""
BARE = """(words) => {
  document.body.replaceChildren();
  const box = document.createElement("div");
  box.id = "bare";
  box.setAttribute("class", "bare");
  Object.assign(box.style, { height: "600px", overflowY: "auto" });
  for (const each of words) {
    const made = document.createElement("p");
    made.textContent = each;
    box.append(made);
  }
  document.body.append(box);
}"""


def server_time(chat: Chat) -> tuple[list[float], list[float], int]:
    """Milliseconds of all requests of one first view, one after the other: on the clock, and of processor time, the client's
    included; and the bytes of their bodies."""
    with httpx.Client(
        base_url=chat.client.base_url, follow_redirects=True, headers={"Sec-Fetch-Site": "same-origin"}
    ) as client:
        page = client.get("/").text
        pending, files = re.findall(r'(?:src|href)="(/static/[^"]+)"', page), set[str]()
        while pending:
            if (path := pending.pop()) not in files:
                files.add(path)
                folder = path.rpartition("/")[0]
                pending += [
                    f"{folder}/{name}" for name in re.findall(r'from "\./([a-z-]+\.js)"', client.get(path).text)
                ]
        paths = ["/", *files, "/api/lexybrain/threads?limit=40&archived=false", "/api/lexybrain/usage"]
        took, worked, size = [], [], 0
        for _ in range(VIEWS):
            begun, began, size = perf_counter(), process_time(), 0
            for path in paths:
                size += len(client.get(path).raise_for_status().content)
            took.append((perf_counter() - begun) * 1000)
            worked.append((process_time() - began) * 1000)
        return took, worked, size


def interactive(open_page: Callable[[], Any]) -> list[dict[str, float]]:
    """Of fresh browsers: when the page's script has run, and when the list of threads is there."""
    found = []
    for _ in range(VIEWS // 3):
        page = open_page()
        page.goto("/")
        page.locator("#threads li").first.wait_for()
        shown = page.evaluate("performance.now()")
        [entry] = page.evaluate("performance.getEntriesByType('navigation').map((each) => each.toJSON())")
        found.append({"script": entry["domContentLoadedEventEnd"], "threads": shown})
        page.context.close()
    return found


def first_sentences(page: Any) -> list[float]:
    """Milliseconds from the event of the first sentence to the frame that shows it."""
    page.goto("/")
    took = []
    for _ in range(STREAMS):
        page.get_by_role("textbox", name="Your question").fill(BOX)
        page.keyboard.press("Enter")
        page.locator("html[data-shown]").wait_for()
        took.append(float(page.locator("html").get_attribute("data-shown")))
        page.get_by_role("button", name="Ask", exact=True).wait_for()
    return took


def write_long_thread(chat: Chat) -> str:
    """One real turn, and copies of it."""
    thread: str = chat.post(BOX)["threadId"]
    chat.rows(COPY, thread=thread, more=TURNS - 1)
    return thread


def long_thread(thread: str, page: Any) -> tuple[list[float], list[float], list[float], int]:
    """Milliseconds: to show the first and each earlier part, of frames while it scrolls, of frames of a bare page."""
    begun, opened = perf_counter(), []
    page.goto(f"/threads/{thread}")
    for count in range(PAGE, 2 * TURNS + 1, PAGE):
        page.locator("#turns article").nth(count - 1).wait_for(state="attached")
        opened.append((perf_counter() - begun) * 1000)
        if count < 2 * TURNS:
            begun = perf_counter()
            page.locator("#earlier").click()
    frames = page.evaluate(SCROLL, "messages")
    words = page.locator("#turns article").all_inner_texts()
    page.evaluate(BARE, words)
    return opened, frames, page.evaluate(SCROLL, "bare"), len(words)


@contextmanager
def running() -> Iterator[Chat]:
    home = Path(tempfile.mkdtemp(prefix="rag-app-pages-"))
    try:
        home.chmod(0o755)
        with private_postgres(home / "postgres") as server:
            upgrade(server.owner_url, server.app_url, resource_folder("migrations"))
            urls = server.owner_url, server.app_url
            with chatting(urls, "postgres", home, home, settings={"RAG_PAGES": "demo"}) as chat:
                yield chat
    finally:
        shutil.rmtree((home / "postgres" / "cluster").resolve(), ignore_errors=True)  # may lie outside of the folder
        shutil.rmtree(home, ignore_errors=True)


def measure(chat: Chat) -> list[str]:
    """Print the figures. What is over its bound."""
    thread = write_long_thread(chat)
    views, worked, size = server_time(chat)
    with sync_playwright() as playwright:
        engine = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def open_page(script: str | None = None) -> Any:
            view: Any = {"width": 1280, "height": 800}
            page = engine.new_context(base_url=str(chat.client.base_url), viewport=view).new_page()
            if script:
                page.add_init_script(script)
            return page

        ready = interactive(open_page)
        sentences = first_sentences(open_page(LISTEN))
        opened, frames, bare, count = long_thread(thread, open_page())
        engine.close()
    script, threads = ([each[name] for each in ready] for name in ("script", "threads"))
    figures = [
        ("first view, all its requests, at the server", views, 100.0),
        ("the same in processor time, with the client's", worked, 100.0),
        ("interactive: the script has run", script, 1000.0),
        ("the list of threads is there", threads, 1000.0),
        ("a first sentence, from its event to its frame", sentences, 100.0),
    ]
    for name, took, bound in figures:
        _say(f"{name:48} {median(took):7.1f} ms, 95 %: {percentile(took, 0.95):7.1f}   bound {bound:.0f}")
    _say(f"{'bytes of a first view':48} {size:7,}                 bound {MOST:,}")
    _say(f"{count} messages: opened in {opened[0]:.0f} ms, each {PAGE} more in {median(opened[1:]):.0f} ms")
    for name, each in (("scrolled", frames), ("a bare page", bare)):
        late = sum(one > 50 for one in each)
        _say(
            f"  {name:12} {len(each):4} frames, {median(each):.1f} ms each, 95 %: {percentile(each, 0.95):.1f}, "
            f"longest {max(each):.1f}, over 50 ms: {late}"
        )
    over = [name for name, took, bound in figures if median(took) > bound]
    return [*over, *(["bytes"] if size > MOST else [])]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """1 where a figure is over its bound."""
    if CHROMIUM is None:
        _say("there is no chromium: apt-get install chromium")
        return 1
    with running() as chat:
        chat.model.script = [citing(KEYWORD, SAID, pace_s=0.02)]
        over = measure(chat)
    _say("over its bound: " + ", ".join(over) if over else "all within their bounds")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
