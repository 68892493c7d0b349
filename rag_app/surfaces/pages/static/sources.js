// The preview of a cited passage, and the source with the passage marked in it.

import { call, Problem } from "./api.js";
import { element, safeAddress } from "./markdown.js";
import { sourceBehind } from "./message.js";

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);
const AROUND = 20000; // characters of a source before and after the passage
/** @type {HTMLElement | null} */
let opener = null;
let opened = 0; // the last one alone is shown

/**
 * Show what a chip stands for while it is pointed at or has the focus.
 * @param {HTMLElement} inside
 * @param {(from: Element) => import("./message.js").Message | null} messageOf
 */
export function preview(inside, messageOf) {
  const shown = by("preview");
  const hide = () => shown.matches(":popover-open") && shown.hidePopover();
  const show = (/** @type {Event} */ event) => {
    const chip = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("button.chip"));
    const message = chip && messageOf(chip);
    const source = message && sourceBehind(message, chip);
    if (!chip || !source) return;
    const said = source.available === false ? "This source was deleted, or you may no longer see it." : (source.quote ?? "Open it to read the source.");
    shown.replaceChildren(element("p", { class: "strong small" }, source.label), element("p", { class: "small" }, said));
    if (!shown.matches(":popover-open")) shown.showPopover();
    place(shown, chip);
    chip.setAttribute("aria-describedby", "preview");
  };
  const follow = () => {
    const chip = document.activeElement;
    if (chip?.matches("button.chip") && isInView(chip) && shown.matches(":popover-open")) place(shown, chip);
    else hide(); // a pointer is over something else now
  };
  inside.addEventListener("mouseover", show);
  inside.addEventListener("focusin", show);
  for (const left of ["mouseout", "focusout"]) {
    inside.addEventListener(left, (event) => {
      if (/** @type {Element} */ (event.target).closest("button.chip")) hide();
    });
  }
  by("messages").addEventListener("scroll", follow, { passive: true });
}

/** @param {HTMLElement} shown @param {Element} chip */
function place(shown, chip) {
  const at = chip.getBoundingClientRect();
  const room = shown.getBoundingClientRect();
  const below = at.bottom + 6 + room.height < innerHeight;
  shown.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - room.height - 6)}px`;
  shown.style.left = `${Math.max(8, Math.min(at.left - 12, innerWidth - room.width - 8))}px`;
}

/** @param {Element} chip */
function isInView(chip) {
  const at = chip.getBoundingClientRect();
  const room = by("messages").getBoundingClientRect();
  return at.top >= room.top && at.bottom <= room.bottom;
}

export function closeViewer() {
  if (by("viewer").hidden) return;
  by("viewer").hidden = true;
  by("chat").removeAttribute("data-viewer");
  opener?.isConnected && opener.focus();
  opener = null;
}
by("close-viewer").addEventListener("click", closeViewer);

/**
 * @param {import("./message.js").Message} message
 * @param {HTMLElement} from the chip or title that was pressed
 */
export async function openSource(message, from) {
  const source = sourceBehind(message, from);
  if (!source) return;
  opener = from;
  const turn = ++opened;
  const into = by("viewer-text");
  by("viewer-title").textContent = source.label;
  into.replaceChildren(element("p", { class: "faint small" }, "Opening …"));
  by("viewer").hidden = false;
  by("chat").setAttribute("data-viewer", "");
  by("viewer-title").focus();
  if (source.available === false) {
    into.replaceChildren(element("p", {}, "This source was deleted, or you may no longer see it."));
    return;
  }
  try {
    const path = `/api/v1/sources/${encodeURIComponent(source.id)}`;
    const chunk = source.passage ? `?chunk=${encodeURIComponent(source.passage.chunkId)}` : "";
    const [facts, text] = await Promise.all([call("GET", path + chunk), call("GET", `${path}/text`)]);
    if (turn === opened) show({ ...facts, ...text }, source);
  } catch (error) {
    if (turn !== opened) return;
    const said = source.quote ? element("blockquote", {}, source.quote) : element("p", {}, error instanceof Problem ? error.message : String(error));
    into.replaceChildren(element("p", { class: "faint small" }, "Only the cited passage can be shown."), said);
  }
}

/**
 * @param {any} found
 * @param {import("./message.js").Source} source
 */
function show(found, source) {
  const text = String(found.text ?? "");
  const place = locate(text, source, found.passage);
  const into = by("viewer-text");
  const row = found.row && (found.sheet ? `sheet ${found.sheet}, row ${found.row}` : `row ${found.row}`);
  const facts = element("p", { class: "faint small" }, [found.source_type, found.file_name, row, found.date].filter(Boolean).join(" · "));
  const address = found.uri && safeAddress(found.uri);
  if (address) facts.append(" · ", element("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank" }, "where it comes from"));
  const body = element("div", { class: "source-text" }, ...layOut(text, sectionsOf(text, found.passages ?? [], found.title), place));
  const unmarked = place || !source.quote ? [] : [element("p", { class: "notice small" }, "The source has changed: its text no longer contains this passage. It was: ", element("q", {}, source.quote))];
  into.replaceChildren(facts, ...unmarked, body);
  by("passage")?.scrollIntoView({ block: "center" });
}

/**
 * The passages of a text with the headings above them, but for the title.
 * @param {string} text
 * @param {{start: number, end: number, section: string | null}[]} passages of the text, as the server counts
 * @param {string} title
 * @returns {{start: number, end: number, path: string[]}[]}
 */
function sectionsOf(text, passages, title) {
  const units = unitsOf(text);
  return passages.map((each) => {
    const path = each.section ? each.section.split(" > ") : [];
    return { start: units(each.start), end: units(each.end), path: path[0] === title ? path.slice(1) : path };
  });
}

/**
 * What is around a passage, with the headings of its sections; those that the text itself has are not repeated.
 * @param {string} text
 * @param {{start: number, end: number, path: string[]}[]} sections
 * @param {[number, number] | null} place
 */
function* layOut(text, sections, place) {
  const [marked, markedTo] = place ?? [0, 0];
  const first = place ? Math.max(0, marked - AROUND) : 0;
  const last = place ? markedTo + AROUND : 2 * AROUND;
  /** @type {string[]} */
  let above = [];
  let written = first;
  for (const { start, end, path } of sections) {
    if (end <= first || start >= last) continue;
    yield* cut(text, written, Math.max(start, first), marked, markedTo);
    written = Math.max(start, first);
    for (const [depth, said] of path.entries()) {
      if (path.slice(0, depth + 1).join("\n") === above.slice(0, depth + 1).join("\n")) continue;
      if (!text.startsWith(`${said}\n`, start)) yield element(`h${Math.min(depth + 3, 6)}`, {}, said);
    }
    above = path;
  }
  yield* cut(text, written, Math.min(last, text.length), marked, markedTo);
}

/**
 * A part of a text, in which what lies between two places is marked.
 * @param {string} text
 * @param {number} start
 * @param {number} end
 * @param {number} marked
 * @param {number} markedTo
 */
function* cut(text, start, end, marked, markedTo) {
  const [from, to] = [marked, markedTo].map((each) => Math.min(Math.max(each, start), end));
  yield text.slice(start, from);
  if (from < to) yield element("mark", from === marked ? { id: "passage" } : {}, text.slice(from, to));
  yield text.slice(to, end);
}

/**
 * Where the passage is: by its offsets in its chunk, if what stands there is the passage; else by its words, if they stand once
 * in the chunk, or in the text. Nothing is marked that is not it.
 * @param {string} text
 * @param {import("./message.js").Source} source
 * @param {{start: number | null, end: number | null} | null} [chunk] where the chunk is in the text
 * @returns {[number, number] | null}
 */
export function locate(text, source, chunk = null) {
  const quote = squeeze(source.quote ?? "");
  if (!quote) return null;
  const { start = null, end = null } = source.passage ?? {};
  if (chunk?.start != null && chunk.end != null) {
    const units = unitsOf(text);
    const first = units(chunk.start);
    if (start != null && end != null) {
      const exact = /** @type {[number, number]} */ ([units(chunk.start + start), units(chunk.start + end)]);
      if (squeeze(text.slice(...exact)) === quote) return exact;
    }
    const inside = findOnce(text.slice(first, units(chunk.end)), quote);
    if (inside) return [first + inside[0], first + inside[1]];
  }
  return findOnce(text, quote);
}

/**
 * The server counts characters; here most emoji are two units. Returns what converts a place.
 * @param {string} text
 * @returns {(characters: number) => number}
 */
function unitsOf(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (characters) => characters;
  const units = [0];
  for (const each of text) units.push(units[units.length - 1] + each.length);
  return (characters) => units[Math.min(characters, units.length - 1)];
}

/** @param {string} said */
const squeeze = (said) => said.replace(/\s+/g, " ").trim();

/**
 * @param {string} text
 * @param {string} quote
 * @returns {[number, number] | null}
 */
function findOnce(text, quote) {
  const pattern = new RegExp(quote.split(" ").map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("\\s+"), "g");
  const found = [...text.matchAll(pattern)];
  return found.length === 1 ? [found[0].index, found[0].index + found[0][0].length] : null;
}
