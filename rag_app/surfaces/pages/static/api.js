// The public routes that pages use, and what can go wrong with them.

import { read } from "./sse.js";

/** What went wrong, told apart by `code`; `wait` is in seconds, null where waiting does not help. */
export class Problem extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {number | null} wait
   * @param {number} status
   */
  constructor(code, message, wait = null, status = 0) {
    super(message);
    this.code = code;
    this.wait = wait;
    this.status = status;
  }
}

const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute("content") ?? "";

/** @param {Response} response */
async function problemOf(response) {
  let code = `http_${response.status}`;
  let message = "The server did not accept this.";
  try {
    const body = await response.json();
    const said = typeof body.error === "object" ? body.error : body;
    code = said.code ?? code;
    message = said.message ?? (typeof body.error === "string" ? body.error : message);
  } catch {
    // no JSON: a proxy speaks
  }
  const after = Number.parseInt(response.headers.get("Retry-After") ?? "", 10);
  return new Problem(code, message, Number.isNaN(after) ? null : after, response.status);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} options
 */
async function send(method, path, { body, headers = {}, signal } = {}) {
  let response;
  try {
    response = await fetch(path, {
      method,
      signal,
      credentials: "same-origin",
      headers: {
        Accept: "application/json",
        "X-CSRF-Token": csrf,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem("offline", "The server cannot be reached.");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

/**
 * JSON of a route; null where it answers with nothing.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 */
export async function call(method, path, body) {
  const response = await send(method, path, { body });
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

/**
 * The events of a route that streams. Throws Problem for what it refuses, and for the event `error`.
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} options
 */
export async function* stream(method, path, options = {}) {
  const headers = { ...options.headers, Accept: "text/event-stream" };
  const response = await send(method, path, { ...options, headers });
  try {
    for await (const each of read(response)) {
      if (each.event === "error") {
        const said = typeof each.data.error === "object" ? each.data.error : each.data;
        throw new Problem(said.code ?? "internal_error", said.message ?? "The answer broke off.", null, 500);
      }
      yield each;
    }
  } catch (error) {
    if (error instanceof Problem || (error instanceof DOMException && error.name === "AbortError")) throw error;
    throw new Problem("broken", "The connection broke off.");
  }
}
