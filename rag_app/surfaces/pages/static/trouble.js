// What went wrong, told by its kind.

import { Problem } from "./api.js";
import { element } from "./markdown.js";

/** @returns {any} */
const place = () => document.getElementById("trouble");

/** @param {unknown} error */
export const asProblem = (error) => (error instanceof Problem ? error : new Problem("page", String(error)));

const TROUBLE = /** @type {Record<string, string>} */ ({
  rate_limit_exceeded: "Too many questions at once",
  quota_exceeded: "You have used all messages of this month",
  budget_exceeded: "Your organization has used its budget of this month",
  cost_cap_reached: "Today's budget for answers is used up",
  generation_failed: "The model did not answer",
  service_unavailable: "A part of the server is unavailable",
  internal_error: "Something went wrong on the server",
  feature_disabled: "Asking is switched off",
  offline: "You or the server are offline",
  broken: "The connection broke off",
  authentication_required: "You are not signed in any more",
  unauthenticated: "You are not signed in any more",
  validation_error: "The server cannot read this question",
  too_long: "This question is too long",
  not_found: "This thread does not exist",
});
/** What other surfaces call the same. */
const SAME = /** @type {Record<string, string>} */ ({
  rate_limited: "rate_limit_exceeded",
  too_many_at_once: "rate_limit_exceeded",
  model_failed: "generation_failed",
  model_timeout: "generation_failed",
  model_rate_limited: "generation_failed",
  database_error: "service_unavailable",
  embedding_failed: "service_unavailable",
  invalid_request: "validation_error",
});
const MOMENTARY = new Set(["rate_limit_exceeded", "generation_failed", "service_unavailable", "internal_error", "offline", "broken"]);

/** @param {Problem} problem */
const kindOf = (problem) => SAME[problem.code] ?? problem.code;

/** @param {Problem} problem */
export const titleOf = (problem) => TROUBLE[kindOf(problem)] ?? "That did not work";

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
export function showTrouble(problem, again) {
  clearInterval(counting);
  const kind = kindOf(problem);
  const wait = element("span", { class: "number" });
  const made = element("div", { class: "notice warn trouble", role: "alert", "data-code": kind }, element("p", { class: "strong" }, titleOf(problem)), element("p", { class: "small" }, problem.message, " ", wait));
  if (kind === "authentication_required" || kind === "unauthenticated") {
    made.append(element("a", { class: "button", href: `/sign-in?next=${encodeURIComponent(location.pathname)}` }, "Sign in"));
  } else if (again && (MOMENTARY.has(kind) || kind.startsWith("http_5"))) {
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
  place().replaceChildren(made);
}
export function clearTrouble() {
  clearInterval(counting);
  place().replaceChildren();
}
