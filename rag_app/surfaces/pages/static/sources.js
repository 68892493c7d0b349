// The preview of a cited passage, and the source with the passage marked in it.

import { call, Problem } from "./api.js";
import { element, safeAddress } from "./markdown.js";

/** @param {string} id @returns {any} */
const by = (id) => document.getElementById(id);
const AROUND = 20000; // characters of a source before and after the passage
/** @type {HTMLElement | null} */
let opener = null;

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
    const source = chip && messageOf(chip)?.sources.find((each) => each.id === chip.dataset.source);
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
 * @param {string} id
 * @param {HTMLElement} from
 */
export async function openSource(message, id, from) {
  const source = message.sources.find((each) => each.id === id);
  if (!source) return;
  opener = from;
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
    const path = `/api/v1/sources/${encodeURIComponent(id)}`;
    const chunk = source.passage ? `?chunk=${encodeURIComponent(source.passage.chunkId)}` : "";
    const [facts, text] = await Promise.all([call("GET", path + chunk), call("GET", `${path}/text`)]);
    if (by("viewer-title").textContent === source.label) show({ ...facts, ...text }, source);
  } catch (error) {
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
  const body = element("div", { class: "source-text" });
  if (place) {
    const [start, end] = place;
    const passage = element("mark", { id: "passage" }, text.slice(start, end));
    body.append(text.slice(Math.max(0, start - AROUND), start), passage, text.slice(end, end + AROUND));
  } else body.append(text.slice(0, 2 * AROUND));
  const unmarked = place || !source.quote ? [] : [element("p", { class: "notice small" }, "The source has changed: its text no longer contains this passage. It was: ", element("q", {}, source.quote))];
  into.replaceChildren(facts, ...unmarked, body);
  by("passage")?.scrollIntoView({ block: "center" });
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
    const first = unitsBefore(text, chunk.start);
    if (start != null && end != null) {
      const exact = /** @type {[number, number]} */ ([unitsBefore(text, chunk.start + start), unitsBefore(text, chunk.start + end)]);
      if (squeeze(text.slice(...exact)) === quote) return exact;
    }
    const inside = findOnce(text.slice(first, unitsBefore(text, chunk.end)), quote);
    if (inside) return [first + inside[0], first + inside[1]];
  }
  return findOnce(text, quote);
}

/**
 * The server counts characters; here most emoji are two units.
 * @param {string} text
 * @param {number} characters
 */
function unitsBefore(text, characters) {
  if (!/[\ud800-\udbff]/.test(text)) return characters;
  let units = 0;
  for (const each of text) {
    if (characters-- <= 0) break;
    units += each.length;
  }
  return units;
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
