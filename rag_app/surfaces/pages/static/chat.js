// The chat: threads at the side, messages in the middle, the source of a passage at the other side.

import { call, Problem, stream } from "./api.js";
import { fetchDraft, keepDraft as keep, sendOnEnter } from "./composer.js";
import { element } from "./markdown.js";
import { answerOf, feedbackForm, growing, prose, questionOf, withCitations } from "./message.js";
import { closeViewer, openSource, preview } from "./sources.js";
import { Threads } from "./threads.js";
import { asProblem, clearTrouble, showTrouble, titleOf } from "./trouble.js";

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
const keepDraft = () => keep(draftKey(), text.value);

// -- scrolling: it follows what is written only for whoever is at the end

let follows = true;
let placed = 0; // where it was when it was last looked at
/** Where the end is in view: of the last text, for its sources may be longer; the question stays in view where both fit. */
function goal() {
  if (!turns.childElementCount) return 0; // the start is read from its beginning
  const top = box.getBoundingClientRect().top - box.scrollTop;
  const question = [...turns.querySelectorAll(".question")].at(-1);
  const main = [...turns.querySelectorAll(".answer-main")].at(-1);
  const whole = box.scrollHeight - box.clientHeight;
  if (!question || !main) return whole;
  const end = main.getBoundingClientRect().bottom - top - box.clientHeight;
  return Math.max(0, Math.min(whole, Math.max(end + 12, question.getBoundingClientRect().top - top - 12)));
}
const atEnd = () => box.scrollTop >= goal() - 48;
function settle() {
  if (box.scrollTop < placed) follows = atEnd(); // scrolled up just now: the event of it comes with the next frame
  if (follows) box.scrollTop = Math.max(box.scrollTop, goal());
  placed = box.scrollTop;
  by("latest").hidden = atEnd();
  showHead();
}
function goToEnd() {
  follows = true;
  placed = 0;
  settle();
}
box.addEventListener("scroll", () => {
  follows = atEnd();
  placed = box.scrollTop;
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
  goToEnd();
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
  text.value = fetchDraft(draftKey());
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
  goToEnd();
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
  goToEnd();
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
      keepDraft(); // the server has the question
      return void comeBack(turn, said);
    }
    asked.remove();
    turns.querySelector("[aria-busy]")?.remove();
    giveBack(said, problem);
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
 * A question that was not answered is in its box again.
 * @param {string} said
 * @param {Problem} problem
 */
function giveBack(said, problem = new Problem("broken", "The question has not arrived.")) {
  text.value = text.value || said;
  grow();
  keepDraft();
  by("start").hidden = Boolean(now.thread) || now.messages.length > 0;
  showTrouble(problem, () => ask(text.value.trim()));
  announce(titleOf(problem));
}

const AWAY = new Set(["rate_limit_exceeded", "broken", "offline"]);

/**
 * Of a thread whose last question has no answer yet: go on where its stream is, or wait until the answer is kept.
 * @param {number} turn
 * @param {string | null} asked the question, where it is not known whether it has arrived
 */
async function comeBack(turn, asked = null) {
  const running = (now.running = new AbortController());
  showRunning(true);
  try {
    for (let tries = 0; turn === now.fresh && tries < 90; tries += 1) {
      try {
        if (tries || asked) await refresh(turn);
        if (turn !== now.fresh) return;
        if (asked && now.messages.findLast((each) => each.role === "user")?.content !== asked) return giveBack(asked);
        if (now.messages.at(-1)?.role === "assistant") return void (await finish(turn, "The answer is complete."));
        const whole = await follow(stream("GET", `${ONE}/${now.thread}/answer`, { signal: running.signal }), turn);
        if (turn !== now.fresh) return;
        return void (await finish(turn, whole ? "The answer is complete." : "Stopped."));
      } catch (error) {
        if (turn !== now.fresh || (error instanceof DOMException && error.name === "AbortError")) return;
        const problem = asProblem(error);
        const writing = turns.querySelector("[aria-busy]");
        if (problem.status === 404) {
          writing?.remove();
          break; // nobody is answering it
        }
        if (!AWAY.has(problem.code)) throw problem;
        if (problem.code !== "rate_limit_exceeded") showAway(writing);
        await new Promise((done) => setTimeout(done, 1000));
      }
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

/** @param {Element | null} writing */
function showAway(writing) {
  const state = writing?.querySelector(".working");
  if (state) state.textContent = "The connection broke off; trying again";
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

sendOnEnter(text, () => {
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
  if (source && message) void openSource(message, source);
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
