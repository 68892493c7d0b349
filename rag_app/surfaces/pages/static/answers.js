// Asks a route that answers without threads; the same answers as the chat's. The last twenty stay in this browser.

import { call, Problem, stream } from "./api.js";
import { countCharacters, fetchDraft, keepDraft, sendOnEnter } from "./composer.js";
import { element, render } from "./markdown.js";
import { answerOf, chips, feedbackForm, growing, withCitations } from "./message.js";
import { closeViewer, openSource, preview } from "./sources.js";
import { asProblem, clearTrouble, showTrouble, titleOf } from "./trouble.js";

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);
const page = by("chat");
const MOST_KEPT = 20;

/** @typedef {import("./message.js").Message & {question: string, index?: string}} Kept */

/** @param {{chunk_id: string, span?: string}} meta where a citation stands: characters of the text of a chunk */
function spanOf({ chunk_id: chunkId, span = "" }) {
  const [start, end] = span.split("-").map(Number);
  return { chunkId, start, end };
}

/** @param {any} each a cited source @returns {(import("./message.js").Passage & {quote: string})[]} */
const passagesOf = ({ passages = [] }) => passages.map((/** @type {any} */ { chunk_id: chunkId, ...place }) => ({ chunkId, ...place }));

/** What differs between the two routes. */
const KINDS = {
  knowledge: {
    path: () => `/api/v1/indexes/${encodeURIComponent(by("index").value)}/answer`,
    body: (/** @type {string} */ question, /** @type {string[]} */ earlier) => ({ query_text: question, earlier_questions: earlier }),
    /** @param {any} done */
    message: (done) => ({
      content: done.answer.text,
      flags: { refused: done.status !== "success" && !done.courtesy, courtesy: done.courtesy, understood: done.understood, language: done.language },
      sources: done.citations.map((/** @type {any} */ each, /** @type {number} */ place) => ({
        id: each.source_id,
        type: each.source_type,
        label: each.source_title || "untitled",
        score: each.relevance_score,
        quote: each.snippet,
        citation: done.status === "success" ? place + 1 : null,
        passage: each.meta.chunk_id ? spanOf(each.meta) : null,
        passages: passagesOf(each),
      })),
    }),
  },
  calls: {
    path: () => "/owner/ask",
    body: (/** @type {string} */ question, /** @type {string[]} */ earlier) => ({ question, earlier_questions: earlier }),
    /** @param {any} done */
    message: (done) => ({
      content: done.answer,
      flags: { refused: !done.has_sufficient_evidence && !done.courtesy, courtesy: done.courtesy, understood: done.understood, language: done.language },
      sources: done.sources.map((/** @type {any} */ each, /** @type {number} */ place) => ({
        id: each.source_id,
        type: each.source_type,
        label: `${each.source_type.replaceAll("_", " ")}${each.created_at ? `, ${each.created_at.slice(0, 10)}` : ""}`,
        score: each.similarity,
        quote: each.excerpt,
        citation: done.has_sufficient_evidence ? place + 1 : null,
        passage: { chunkId: each.chunk_id },
        passages: passagesOf(each),
      })),
    }),
  },
};
const kind = KINDS[/** @type {keyof KINDS} */ (page.dataset.kind)];
const KEY = `answers:${page.dataset.kind}:${page.dataset.user}`;
const DRAFT = `draft:${page.dataset.kind}:${page.dataset.user}`;
const text = by("text");
/** @returns {Kept[]} */
function stored() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (Array.isArray(found)) return found;
  } catch {
    // a browser that keeps nothing, or something else that was kept
  }
  return [];
}
let kept = stored(); // what this tab shows: another tab may have stored more meanwhile
/** @type {AbortController | null} */
let asking = null;

/** @param {(before: Kept[]) => Kept[]} change of what this tab shows, and of what is stored */
function keep(change) {
  kept = change(kept).slice(0, MOST_KEPT);
  showRemarks();
  try {
    localStorage.setItem(KEY, JSON.stringify(change(stored()).slice(0, MOST_KEPT)));
  } catch {
    // they stay on the page
  }
}

/** @param {string} question @param {string} [index] where there is a choice */
const heading = (question, index) =>
  element("p", { class: "asked" }, question, ...(index ? [" ", element("span", { class: "small faint" }, `in ${index}`)] : []));

/** @param {Kept} message */
function shown(message) {
  const answer = answerOf(message);
  const again = answer.querySelector('[data-do="again"]');
  again?.remove();
  return element("section", { class: "turn", "aria-label": message.question.slice(0, 80) }, heading(message.question, message.index), answer);
}

function show() {
  by("messages").replaceChildren(...kept.map(shown));
  showRemarks();
}

function showRemarks() {
  by("kept").hidden = !kept.length;
  const start = by("start");
  const other = start?.dataset.index && by("index") && by("index").value !== start.dataset.index;
  if (start) start.hidden = kept.length > 0 || asking !== null || Boolean(other);
}

/** @param {Element} from */
const messageOf = (from) => {
  const id = /** @type {HTMLElement | null} */ (from.closest("[data-message]"))?.dataset.message;
  return kept.find((each) => each.id === id) ?? null;
};

/** @param {string} question */
async function ask(question) {
  asking = new AbortController();
  by("send").hidden = true;
  by("stop").hidden = false;
  clearTrouble();
  showRemarks();
  const { made, text: growingText, state } = growing();
  const index = by("index")?.value;
  const earlier = kept.filter((each) => each.index === index).map((each) => each.question).reverse();
  const turn = element("section", { class: "turn" }, heading(question, index), made);
  by("messages").prepend(turn);
  let written = "";
  let id = "";
  /** @type {import("./api.js").Problem | null} */
  let failed = null;
  /** @type {any} */
  let done = null;
  try {
    for await (const each of stream("POST", kind.path(), { body: kind.body(question, earlier), signal: asking.signal })) {
      if (each.event === "meta") id = each.data.request_id;
      else if (each.event === "delta") {
        written += each.data.text;
        growingText.replaceChildren(render(written, chips([], false)));
        state.textContent = "Writing";
      } else if (each.event === "done") done = each.data;
    }
  } catch (error) {
    if (!(error instanceof DOMException && error.name === "AbortError")) failed = asProblem(error);
  }
  by("send").hidden = false;
  by("stop").hidden = true;
  asking = null;
  if (failed) {
    const problem = failed;
    text.value = text.value || question;
    keepDraft(DRAFT, text.value);
    showTrouble(problem, () => by("ask").requestSubmit());
    by("status").textContent = titleOf(problem);
  }
  if (!done && !written) {
    turn.remove();
    showRemarks();
    if (!text.value) text.value = question;
    return;
  }
  const said = done ? kind.message(done) : { content: written, flags: { interrupted: true }, sources: [] };
  const answered = { id: id || String(Date.now()), role: "assistant", feedback: null, question, index, ...said };
  keep((before) => [answered, ...before]);
  turn.replaceWith(shown(answered));
  if (!failed) by("status").textContent = done ? "The answer is complete." : "The answer was stopped.";
}

/** @param {Kept} message @param {"right" | "wrong"} verdict @param {string | null} comment @param {string | null} expected */
async function judge(message, verdict, comment = null, expected = null) {
  const body = { verdict, ...(comment ? { comment } : {}), ...(expected ? { expected_source: expected } : {}) };
  await call("POST", `/api/v1/answers/${encodeURIComponent(message.id)}/feedback`, body);
  message.feedback = { rating: verdict === "right" ? "positive" : "negative", comment, expectedSourceId: expected };
  keep((before) => before.map((each) => (each.id === message.id ? message : each)));
  by("status").textContent = "Thank you. Your rating is kept.";
}

by("ask").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  const question = text.value.trim();
  if (!question || asking) return;
  text.value = "";
  keepDraft(DRAFT, "");
  void ask(question);
});
text.addEventListener("invalid", (/** @type {Event} */ event) => {
  if (!text.validity.customError) return; // an empty field: the browser says so
  event.preventDefault();
  showTrouble(new Problem("too_long", text.validationMessage), null);
});
sendOnEnter(text, () => by("ask").requestSubmit());
const count = countCharacters(text, by("count"));
text.addEventListener("input", () => {
  keepDraft(DRAFT, text.value);
  if (text.validity.valid && by("trouble").querySelector('[data-code="too_long"]')) clearTrouble();
});
for (const each of document.querySelectorAll("[data-example]")) {
  each.addEventListener("click", () => {
    text.value = /** @type {HTMLElement} */ (each).dataset.example;
    count();
    by("ask").requestSubmit();
  });
}
by("index")?.addEventListener("change", () => {
  history.replaceState(null, "", `?index=${by("index").value}`);
  showRemarks();
});
by("stop").addEventListener("click", () => asking?.abort());
by("forget").addEventListener("click", () => {
  keep(() => []);
  show();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeViewer();
});
by("messages").addEventListener("click", async (/** @type {Event} */ event) => {
  const pressed = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("button"));
  const message = pressed && messageOf(pressed);
  if (!pressed || !message) return;
  const turn = /** @type {HTMLElement} */ (pressed.closest("section.turn"));
  if (pressed.dataset.source) openSource(message, pressed);
  switch (pressed.dataset.do) {
    case "copy":
      pressed.textContent = await navigator.clipboard.writeText(withCitations(message)).then(
        () => "Copied",
        () => "Not copied",
      );
      setTimeout(() => (pressed.textContent = "Copy"), 2000);
      break;
    case "positive":
      try {
        await judge(message, "right");
        turn.replaceWith(shown(message));
      } catch (error) {
        showTrouble(asProblem(error), null);
      }
      break;
    case "negative":
      if (!turn.querySelector("form.feedback")) turn.append(feedbackForm(message));
      /** @type {HTMLElement | null} */ (turn.querySelector("form.feedback textarea"))?.focus();
      break;
    case "no-feedback":
      turn.querySelector("form.feedback")?.remove();
      break;
  }
});
by("messages").addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  event.preventDefault();
  const turn = /** @type {HTMLElement} */ (form.closest("section.turn"));
  const message = messageOf(/** @type {Element} */ (turn.querySelector("[data-message]")));
  if (!message) return;
  const said = new FormData(form);
  try {
    await judge(message, "wrong", String(said.get("comment") ?? "").trim() || null, String(said.get("expected") ?? "").trim() || null);
    turn.replaceWith(shown(message));
  } catch (error) {
    /** @type {HTMLElement} */ (form.querySelector(".problem")).textContent = asProblem(error).message;
  }
});
preview(by("messages"), messageOf);
show();
text.value = fetchDraft(DRAFT) || text.value;
count();
if (matchMedia("(hover: hover)").matches) text.focus();
