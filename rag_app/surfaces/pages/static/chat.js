// The chat: threads at the side, messages in the middle, the source of a passage at the other side.

import { call, Problem, stream } from "./api.js";
import { element } from "./markdown.js";
import { answerOf, feedbackForm, growing, prose, questionOf, withCitations } from "./message.js";
import { closeViewer, openSource, preview } from "./sources.js";
import { Threads } from "./threads.js";

const RAG = "/api/lexybrain/rag";
const ONE = "/api/lexybrain/threads";
const PAGE = 50;

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);
const chat = by("chat");
const box = by("messages");
const turns = by("turns");
const text = by("text");
const user = chat.dataset.user;

/** @type {{thread: string | null, messages: import("./message.js").Message[], running: AbortController | null, editing: string | null,
 *   more: boolean, archived: boolean, title: string, fresh: number}} */
const now = { thread: chat.dataset.thread || null, messages: [], running: null, editing: null, more: false, archived: false, title: "", fresh: 0 };

/** @param {string} said */
function announce(said) {
  by("status").textContent = "";
  setTimeout(() => (by("status").textContent = said), 50);
}

// -- drafts: one a thread, kept in this browser until it is sent

const draftKey = () => `draft:${user}:${now.thread ?? "new"}`;
function keepDraft() {
  try {
    if (text.value.trim()) localStorage.setItem(draftKey(), text.value);
    else localStorage.removeItem(draftKey());
  } catch {
    // a browser that keeps nothing
  }
}
function fetchDraft() {
  try {
    return localStorage.getItem(draftKey()) ?? "";
  } catch {
    return "";
  }
}

// -- scrolling: it follows what is written only for whoever is at the end

let follows = true;
const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 48;
function settle() {
  if (follows) box.scrollTop = box.scrollHeight;
  by("latest").hidden = atEnd();
  showHead();
}
box.addEventListener("scroll", () => {
  follows = atEnd();
  by("latest").hidden = follows;
  showHead();
});
/** The title is not shown above the question that it was made from, nor above the start. */
function showHead() {
  const first = now.more ? null : turns.querySelector(".asked");
  const made = !now.title || first?.textContent?.replace(/\s+/g, " ").startsWith(now.title.replace(/…$/, ""));
  const seen = first ? first.getBoundingClientRect().bottom > box.getBoundingClientRect().top : !now.thread;
  chat.toggleAttribute("data-repeats", Boolean(made && seen));
}
by("latest").addEventListener("click", () => {
  follows = true;
  settle();
  text.focus();
});
new ResizeObserver(settle).observe(box);

// -- what is shown

function showTitle() {
  by("title").textContent = now.title || "New question";
  document.title = `${now.title || "Ask"} · rag_app`;
  by("thread-menu").hidden = !now.thread;
  if (now.thread) {
    for (const link of document.querySelectorAll("[data-export]")) {
      link.setAttribute("href", `/threads/${now.thread}/export?format=${/** @type {HTMLElement} */ (link).dataset.export}`);
    }
  }
  document.querySelector('[data-thread-action="archive"]')?.replaceChildren(now.archived ? "Bring back" : "Archive");
  showHead();
}

/** @param {import("./message.js").Message} each */
const shown = (each) => (each.role === "user" ? questionOf(each) : answerOf(each));
function showMessages() {
  turns.replaceChildren(...now.messages.map(shown));
  by("start").hidden = Boolean(now.thread) || now.messages.length > 0;
  by("earlier").hidden = !now.more;
  showHead();
}

/** @param {boolean} running */
function showRunning(running) {
  by("send").hidden = running;
  by("stop").hidden = !running;
  chat.toggleAttribute("data-running", running);
}

const TROUBLE = /** @type {Record<string, string>} */ ({
  rate_limit_exceeded: "Too many questions at once",
  quota_exceeded: "Your messages of this month are used up",
  budget_exceeded: "Your organization's budget of this month is used up",
  cost_cap_reached: "Today's budget for answers is used up",
  generation_failed: "The model did not answer",
  service_unavailable: "A part of the server is away",
  feature_disabled: "Asking is switched off",
  offline: "You are offline, or the server is",
  broken: "The connection broke off",
  authentication_required: "You are not signed in any more",
  unauthenticated: "You are not signed in any more",
  validation_error: "The server does not understand this question",
  not_found: "This thread is not there",
});
const MOMENTARY = new Set(["rate_limit_exceeded", "generation_failed", "service_unavailable", "offline", "broken"]);

/** @param {number} seconds */
function duration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} minutes`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} hours` : `${Math.round(seconds / 86400)} days`;
}

let counting = 0;
/**
 * What went wrong, by its kind, with the time to wait and a way to try again. The draft is where it was.
 * @param {Problem} problem
 * @param {(() => void) | null} again
 */
function showTrouble(problem, again) {
  clearInterval(counting);
  const title = TROUBLE[problem.code] ?? "That did not work";
  const wait = element("span", { class: "number" });
  const made = element("div", { class: "notice warn trouble", role: "alert", "data-code": problem.code }, element("p", { class: "strong" }, title), element("p", { class: "small" }, problem.message, " ", wait));
  if (problem.code === "authentication_required" || problem.code === "unauthenticated") {
    made.append(element("a", { class: "button", href: `/sign-in?next=${encodeURIComponent(location.pathname)}` }, "Sign in"));
  } else if (again && (MOMENTARY.has(problem.code) || problem.code.startsWith("http_5"))) {
    const retry = /** @type {HTMLButtonElement} */ (element("button", { type: "button" }, "Try again"));
    retry.addEventListener("click", () => {
      clearTrouble();
      again();
    });
    made.append(retry);
    let left = problem.wait ?? 0;
    const tick = () => {
      retry.disabled = left > 0;
      wait.textContent = left > 0 ? `In ${duration(left)}.` : "";
      left -= 1;
      if (left < -1) clearInterval(counting);
    };
    tick();
    if (left >= 0) counting = window.setInterval(tick, 1000);
  } else if (problem.wait) wait.textContent = `Again in ${duration(problem.wait)}.`;
  by("trouble").replaceChildren(made);
}
function clearTrouble() {
  clearInterval(counting);
  by("trouble").replaceChildren();
}
addEventListener("online", () => {
  if (by("trouble").querySelector('[data-code="offline"]')) clearTrouble();
});

async function showQuota() {
  try {
    const used = await call("GET", "/api/lexybrain/usage");
    const left = Math.max(0, used.messagesPerMonth - used.messagesUsed);
    by("quota").textContent = used.messagesPerMonth < 0 ? "" : `${left} of ${used.messagesPerMonth} messages left this month`;
    by("quota").classList.toggle("low", used.messagesPerMonth >= 0 && left < 5);
  } catch {
    by("quota").textContent = "";
  }
}

// -- a thread is opened

/** @param {string | null} thread */
async function open(thread, { push = true, focus = true } = {}) {
  if (now.fresh) keepDraft();
  now.running?.abort(); // its server goes on: coming back shows where it is
  const turn = ++now.fresh;
  Object.assign(now, { thread, messages: [], running: null, editing: null, more: false, archived: false, title: "" });
  by("editing").hidden = true;
  clearTrouble();
  closeViewer();
  showRunning(false);
  if (push) history.pushState(null, "", thread ? `/threads/${thread}` : "/");
  threads.select(thread);
  text.value = fetchDraft();
  grow();
  showTitle();
  showMessages();
  showSide(false);
  if (focus) text.focus();
  if (!thread) return;
  box.setAttribute("aria-busy", "true");
  try {
    await refresh(turn);
  } catch (error) {
    if (turn === now.fresh) showTrouble(asProblem(error), () => open(thread, { push: false }));
    return;
  } finally {
    box.removeAttribute("aria-busy");
  }
  if (turn !== now.fresh) return;
  follows = true;
  settle();
  if (now.messages.at(-1)?.role === "user") await comeBack(turn);
}

/** @param {number} turn */
async function refresh(turn) {
  const found = await call("GET", `${ONE}/${now.thread}?limit=${PAGE}`);
  if (turn !== now.fresh) return;
  Object.assign(now, { messages: found.messages, more: found.hasMore, archived: found.archived, title: found.title ?? "" });
  showTitle();
  showMessages();
}

by("earlier").addEventListener("click", async () => {
  const turn = now.fresh;
  by("earlier").disabled = true;
  try {
    const found = await call("GET", `${ONE}/${now.thread}?limit=${PAGE}&before=${now.messages[0].id}`);
    if (turn !== now.fresh) return;
    const before = box.scrollHeight - box.scrollTop;
    now.messages = [...found.messages, ...now.messages];
    now.more = found.hasMore;
    by("earlier").hidden = !now.more;
    turns.prepend(...found.messages.map(shown));
    box.scrollTop = box.scrollHeight - before;
  } catch (error) {
    if (turn === now.fresh) showTrouble(asProblem(error), null);
  } finally {
    by("earlier").disabled = false;
  }
});

/** @param {unknown} error */
const asProblem = (error) => (error instanceof Problem ? error : new Problem("page", String(error)));

// -- a question is asked

/**
 * Show events of an answer as they come; whether it came to its end.
 * @param {AsyncIterable<{event: string, data: any}>} events
 * @param {number} turn
 */
async function follow(events, turn) {
  const part = growing();
  turns.append(part.made);
  let said = "";
  let sources = /** @type {import("./message.js").Source[]} */ ([]);
  settle();
  for await (const { event, data } of events) {
    if (turn !== now.fresh) return false;
    if (event === "meta" && data.threadId) {
      if (!now.thread) {
        moveDraft(data.threadId);
        history.replaceState(null, "", `/threads/${data.threadId}`);
        threads.refresh();
      }
      chat.dataset.stoppable = data.threadId;
    } else if (event === "sources") {
      part.state.textContent = data.length ? `Reading ${data.length} source${data.length > 1 ? "s" : ""}` : "Nothing found so far";
    } else if (event === "delta") {
      said += data.text;
      const message = { id: "", role: "assistant", content: said, sources, flags: null, feedback: null };
      part.text.replaceChildren(...prose(message, false).childNodes);
      part.state.textContent = "Writing";
    } else if (event === "citations") {
      sources = data;
    } else if (event === "done") return true;
    settle();
  }
  return false;
}

/** @param {string} thread */
function moveDraft(thread) {
  keepDraft();
  now.thread = thread;
  threads.select(thread);
}

/** @param {string} said */
async function ask(said) {
  if (now.running) return;
  const turn = now.fresh;
  const running = (now.running = new AbortController());
  const question = { id: "", role: "user", content: said, sources: [], flags: null, feedback: null };
  clearTrouble();
  showRunning(true);
  by("start").hidden = true;
  let asked = questionOf(question);
  turns.append(asked);
  follows = true;
  settle();
  text.value = "";
  grow();
  const body = { message: said, threadId: now.thread, capability: by("capability").value || null, meta: { client: "web" } };
  try {
    if (now.editing) {
      const branch = await call("POST", `${ONE}/${now.thread}/branch`, { before: now.editing });
      if (turn !== now.fresh) return;
      Object.assign(now, { thread: branch.id, editing: null });
      by("editing").hidden = true;
      body.threadId = branch.id;
      history.pushState(null, "", `/threads/${branch.id}`);
      await refresh(turn);
      threads.refresh();
      asked = questionOf(question);
      turns.append(asked);
    }
    const events = stream("POST", RAG, { body, headers: { Prefer: "resumable" }, signal: running.signal });
    const whole = await follow(events, turn);
    if (turn !== now.fresh) return;
    keepDraft();
    await finish(turn, whole ? "The answer is complete." : "Stopped.");
  } catch (error) {
    if (turn !== now.fresh || (error instanceof DOMException && error.name === "AbortError")) return;
    const problem = asProblem(error);
    if (problem.code === "broken" && now.thread) {
      now.running = null;
      await refresh(turn).catch(() => {});
      if (now.messages.at(-1)?.role === "assistant") return void finish(turn, "The answer is complete.");
      if (now.messages.at(-1)?.role === "user" && now.messages.at(-1)?.content === said) return void comeBack(turn);
    }
    asked.remove();
    turns.querySelector("[aria-busy]")?.remove();
    text.value = text.value || said;
    grow();
    keepDraft();
    by("start").hidden = Boolean(now.thread) || now.messages.length > 0;
    showTrouble(problem, () => ask(text.value.trim()));
    announce(TROUBLE[problem.code] ?? "That did not work");
  } finally {
    if (turn === now.fresh && now.running === running) {
      now.running = null;
      showRunning(false);
    }
  }
}

/**
 * What was kept takes the place of what was shown as it came.
 * @param {number} turn
 * @param {string} said
 */
async function finish(turn, said) {
  await refresh(turn).catch(() => {});
  if (turn !== now.fresh) return;
  turns.querySelector("[aria-busy]")?.removeAttribute("aria-busy");
  settle();
  announce(said);
  threads.refresh();
  void showQuota();
}

/**
 * Of a thread whose last question has no answer yet: go on where its stream is, or wait until the answer is kept.
 * @param {number} turn
 */
async function comeBack(turn) {
  const running = (now.running = new AbortController());
  showRunning(true);
  try {
    for (let tries = 0; turn === now.fresh && tries < 90; tries += 1) {
      try {
        const whole = await follow(stream("GET", `${ONE}/${now.thread}/answer`, { signal: running.signal }), turn);
        if (turn !== now.fresh) return;
        return void (await finish(turn, whole ? "The answer is complete." : "Stopped."));
      } catch (error) {
        if (turn !== now.fresh || (error instanceof DOMException && error.name === "AbortError")) return;
        turns.querySelector("[aria-busy]")?.remove();
        const problem = asProblem(error);
        if (problem.status === 404) break; // nobody is answering it
        if (problem.code !== "rate_limit_exceeded" && problem.code !== "broken") throw problem;
        await new Promise((done) => setTimeout(done, 1000));
      }
      await refresh(turn);
      if (now.messages.at(-1)?.role === "assistant") return void (await finish(turn, "The answer is complete."));
    }
    await refresh(turn);
    if (turn === now.fresh && now.messages.at(-1)?.role === "user") showUnanswered();
  } catch (error) {
    if (turn === now.fresh) showTrouble(asProblem(error), () => open(now.thread, { push: false }));
  } finally {
    if (turn === now.fresh && now.running === running) {
      now.running = null;
      showRunning(false);
    }
  }
}

function showUnanswered() {
  const again = element("button", { type: "button", class: "small", "data-do": "again" }, "Ask again");
  const note = element("article", { class: "turn answer", "aria-label": "Interrupted" }, element("div", { class: "answer-main" }, element("p", { class: "notice small" }, "Interrupted: there is no answer to this question."), again));
  turns.append(note);
  settle();
}

by("stop").addEventListener("click", async () => {
  const turn = now.fresh;
  const running = now.running;
  by("stop").disabled = true;
  try {
    if (now.thread) await call("POST", `${ONE}/${now.thread}/stop`);
  } catch {
    // it has come to its end meanwhile
  } finally {
    by("stop").disabled = false;
  }
  if (!now.thread && turn === now.fresh) {
    running?.abort();
    now.running = null;
    showRunning(false);
  }
});

by("ask").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  const said = text.value.trim();
  if (said) void ask(said);
});

let composing = false;
text.addEventListener("compositionstart", () => (composing = true));
text.addEventListener("compositionend", () => setTimeout(() => (composing = false)));
text.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Enter" || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.isComposing || composing || event.keyCode === 229) return; // Enter chooses a character
  event.preventDefault();
  if (!now.running) by("ask").requestSubmit();
});
function grow() {
  text.rows = Math.min(8, Math.max(2, text.value.split("\n").length + Math.floor(text.value.length / 90)));
}
text.addEventListener("input", () => {
  grow();
  keepDraft();
});

// -- what is done with a message

/** @param {Element} from */
function messageOf(from) {
  const id = /** @type {HTMLElement | null} */ (from.closest("[data-message]"))?.dataset.message;
  return now.messages.find((each) => each.id === id) ?? null;
}

turns.addEventListener("click", (/** @type {MouseEvent} */ event) => {
  const target = /** @type {Element} */ (event.target);
  const source = /** @type {HTMLElement | null} */ (target.closest("[data-source]"));
  const act = /** @type {HTMLElement | null} */ (target.closest("[data-do]"))?.dataset.do;
  const message = messageOf(target);
  if (source && message) void openSource(message, /** @type {string} */ (source.dataset.source), source);
  else if (act === "edit" && message) edit(message);
  else if (act === "again") again(message);
  else if (act === "copy" && message) void copy(message, target);
  else if ((act === "positive" || act === "negative") && message) void rate(message, act, target);
  else if (act === "no-feedback") target.closest("form")?.remove();
});
preview(turns, (from) => messageOf(from));

/** @param {import("./message.js").Message} message */
function edit(message) {
  now.editing = message.id;
  by("editing").hidden = false;
  text.value = message.content;
  grow();
  text.focus();
}
by("stop-editing").addEventListener("click", () => {
  now.editing = null;
  by("editing").hidden = true;
  text.value = "";
  keepDraft();
  text.focus();
});

/** @param {import("./message.js").Message | null} message an answer; null: the last question has none */
function again(message) {
  if (now.running) return;
  const at = message ? now.messages.indexOf(message) : now.messages.length;
  const question = now.messages.slice(0, at).findLast((each) => each.role === "user");
  if (!question) return;
  now.editing = question.id;
  void ask(question.content);
}

/**
 * @param {import("./message.js").Message} message
 * @param {Element} from
 */
async function copy(message, from) {
  try {
    await navigator.clipboard.writeText(withCitations(message));
    from.textContent = "Copied";
    announce("Copied with its citations.");
  } catch {
    from.textContent = "Not copied";
  }
  setTimeout(() => (from.textContent = "Copy"), 2000);
}

/**
 * @param {import("./message.js").Message} message
 * @param {string} rating
 * @param {Element} from
 */
async function rate(message, rating, from) {
  const path = `/api/lexybrain/messages/${message.id}/feedback`;
  const turn = /** @type {HTMLElement} */ (from.closest(".turn"));
  try {
    if (message.feedback?.rating === rating) {
      await call("DELETE", path);
      message.feedback = null;
    } else message.feedback = await call("POST", path, { rating });
  } catch (error) {
    return showTrouble(asProblem(error), null);
  }
  const shown = answerOf(message);
  turn.replaceWith(shown);
  announce(message.feedback ? "Thank you. Your rating is kept." : "Your rating is withdrawn.");
  if (message.feedback?.rating !== "negative") return void /** @type {HTMLElement | null} */ (shown.querySelector(`[data-do="${rating}"]`))?.focus();
  const form = feedbackForm(message);
  shown.querySelector(".answer-main")?.append(form);
  settle();
  form.querySelector("textarea")?.focus();
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = new FormData(form);
    const comment = String(said.get("comment")).trim() || null;
    const expectedSourceId = String(said.get("expected")).trim() || null;
    try {
      message.feedback = await call("POST", path, { rating, comment, expectedSourceId });
    } catch (error) {
      return void /** @type {Element} */ (form.querySelector(".problem")).replaceChildren(asProblem(error).message);
    }
    form.replaceWith(element("p", { class: "notice good small", role: "status" }, "Thank you. What you wrote is kept with the answer."));
  });
}

// -- what is done with a thread

for (const each of document.querySelectorAll("[data-thread-action]")) {
  each.addEventListener("click", async () => {
    by("thread-actions").hidePopover();
    const act = /** @type {HTMLElement} */ (each).dataset.threadAction;
    try {
      if (act === "archive") {
        await call("PATCH", `${ONE}/${now.thread}`, { archived: !now.archived });
        now.archived = !now.archived;
        announce(now.archived ? "The thread is archived." : "The thread is back.");
      } else if (act === "rename") {
        by("new-title").value = now.title;
        if ((await answered(by("rename"))) !== "yes") return;
        now.title = (await call("PATCH", `${ONE}/${now.thread}`, { title: by("new-title").value })).title;
      } else if (act === "delete") {
        if ((await answered(by("delete"))) !== "yes") return;
        await call("DELETE", `${ONE}/${now.thread}`);
        threads.refresh();
        return void open(null);
      }
    } catch (error) {
      return showTrouble(asProblem(error), null);
    }
    showTitle();
    threads.refresh();
  });
}

/** @param {HTMLDialogElement} dialog */
function answered(dialog) {
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue), { once: true }));
}

// -- the side, on a phone

/** @param {boolean} shown */
function showSide(shown) {
  chat.toggleAttribute("data-side", shown);
  by("show-side").setAttribute("aria-expanded", String(shown));
}
by("show-side").addEventListener("click", () => {
  showSide(!chat.hasAttribute("data-side"));
  if (chat.hasAttribute("data-side")) by("search").focus();
});
by("new").addEventListener("click", (/** @type {MouseEvent} */ event) => {
  if (event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  void open(null);
});
for (const each of document.querySelectorAll("[data-example]")) {
  each.addEventListener("click", () => {
    const chosen = /** @type {HTMLElement} */ (each).dataset;
    by("capability").value = chosen.capability ?? "";
    if (!chosen.example) return void text.focus();
    text.value = chosen.example;
    by("ask").requestSubmit();
    by("capability").value = ""; // of this question alone
  });
}
addEventListener("popstate", () => {
  const thread = /^\/threads\/([0-9a-f-]{36})$/.exec(location.pathname)?.[1] ?? null;
  void open(thread, { push: false });
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    closeViewer();
    showSide(false);
  }
});

const threads = new Threads(by("threads"), (thread) => open(thread));
void threads.refresh();
void showQuota();
void open(now.thread, { push: false, focus: matchMedia("(hover: hover)").matches });
