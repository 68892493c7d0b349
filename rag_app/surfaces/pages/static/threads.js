// The list of threads: found by words in them, archived ones apart, newest first.

import { call, Problem } from "./api.js";
import { element } from "./markdown.js";

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);

export class Threads {
  /**
   * @param {HTMLElement} list
   * @param {(thread: string) => void} open
   */
  constructor(list, open) {
    this.list = list;
    this.chosen = /** @type {string | null} */ (null);
    this.archived = false;
    this.cursor = /** @type {string | null} */ (null);
    this.asked = 0;
    this.period = ""; // of the last thread in the list
    list.addEventListener("click", (event) => {
      const link = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-thread]"));
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      open(/** @type {string} */ (link.dataset.thread));
    });
    let waiting = 0;
    by("search").addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = window.setTimeout(() => this.refresh(), 200);
    });
    for (const each of document.querySelectorAll("[data-archived]")) {
      each.addEventListener("click", () => {
        this.archived = /** @type {HTMLElement} */ (each).dataset.archived === "true";
        for (const other of document.querySelectorAll("[data-archived]")) other.setAttribute("aria-pressed", String(other === each));
        void this.refresh();
      });
    }
    by("more-threads").addEventListener("click", () => this.fetch(this.cursor));
  }

  /** @param {string | null} thread */
  select(thread) {
    this.chosen = thread;
    for (const each of this.list.querySelectorAll("[data-thread]")) {
      if (/** @type {HTMLElement} */ (each).dataset.thread === thread) each.setAttribute("aria-current", "page");
      else each.removeAttribute("aria-current");
    }
  }

  refresh() {
    return this.fetch(null);
  }

  /** @param {string | null} cursor */
  async fetch(cursor) {
    const asked = ++this.asked;
    const query = new URLSearchParams({ limit: "40", archived: String(this.archived) });
    const words = by("search").value.trim();
    if (words) query.set("search", words);
    if (cursor) query.set("cursor", cursor);
    let found;
    try {
      found = await call("GET", `/api/lexybrain/threads?${query}`);
    } catch (error) {
      if (asked === this.asked && error instanceof Problem) this.list.replaceChildren(element("li", { class: "faint small nothing" }, error.message));
      return;
    }
    if (asked !== this.asked) return;
    if (!cursor) this.period = "";
    const items = [];
    for (const each of found.threads) {
      const when = new Date(each.lastMessageAt);
      if (periodOf(when) !== this.period) {
        this.period = periodOf(when);
        items.push(element("li", { class: "period faint small" }, this.period));
      }
      const link = element("a", { href: `/threads/${each.id}`, "data-thread": each.id, title: `${each.title ?? ""}\n${when.toLocaleString()}` }, element("span", { class: "thread-title" }, each.title ?? "…"));
      items.push(element("li", {}, link));
    }
    if (cursor) this.list.append(...items);
    else if (items.length) this.list.replaceChildren(...items);
    else this.list.replaceChildren(element("li", { class: "faint small nothing" }, words ? "No thread has these words." : this.archived ? "Nothing is archived." : "Your questions will be listed here."));
    this.cursor = found.nextCursor;
    by("more-threads").hidden = !found.nextCursor;
    this.select(this.chosen);
  }
}

/**
 * The heading that a thread stands under.
 * @param {Date} when
 */
function periodOf(when) {
  const midnight = (/** @type {Date} */ each) => new Date(each.getFullYear(), each.getMonth(), each.getDate()).getTime();
  const days = Math.round((midnight(new Date()) - midnight(when)) / 86_400_000);
  if (days < 1) return "Today";
  if (days < 2) return "Yesterday";
  return days < 7 ? "The last seven days" : when.toLocaleDateString("en", { month: "long", year: "numeric" });
}
