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
    const said = source.available === false ? "No longer there, or no longer yours to see." : (source.quote ?? "Open it to read the source.");
    shown.replaceChildren(element("p", { class: "strong small" }, source.label), element("p", { class: "small" }, said));
    if (!shown.matches(":popover-open")) shown.showPopover();
    const at = chip.getBoundingClientRect();
    const room = shown.getBoundingClientRect();
    const below = at.bottom + 6 + room.height < innerHeight;
    shown.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - room.height - 6)}px`;
    shown.style.left = `${Math.max(8, Math.min(at.left - 12, innerWidth - room.width - 8))}px`;
    chip.setAttribute("aria-describedby", "preview");
  };
  inside.addEventListener("mouseover", show);
  inside.addEventListener("focusin", show);
  inside.addEventListener("mouseout", hide);
  inside.addEventListener("focusout", hide);
  by("messages").addEventListener("scroll", hide, { passive: true });
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
    into.replaceChildren(element("p", {}, "This source was deleted, or is no longer yours to see."));
    return;
  }
  try {
    const path = `/api/v1/sources/${encodeURIComponent(id)}`;
    const [facts, text] = await Promise.all([call("GET", path), call("GET", `${path}/text`)]);
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
  const place = locate(text, source);
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
  const unmarked = place || !source.quote ? [] : [element("p", { class: "notice small" }, "The passage is not found in the text as it is now. It was: ", element("q", {}, source.quote))];
  into.replaceChildren(facts, ...unmarked, body);
  by("passage")?.scrollIntoView({ block: "center" });
}

/**
 * Where the passage is: by its offsets, if what stands there is the passage; else by its words, if they stand there once.
 * Nothing is marked that is not it.
 * @param {string} text
 * @param {import("./message.js").Source} source
 * @returns {[number, number] | null}
 */
export function locate(text, source) {
  const quote = source.quote ?? "";
  const plain = (/** @type {string} */ said) => said.replace(/\s+/g, " ").trim();
  if (source.start != null && source.end != null) {
    const there = text.slice(source.start, source.end);
    if (!quote || plain(there) === plain(quote)) return [source.start, source.end];
  }
  if (!plain(quote)) return null;
  const pattern = new RegExp(plain(quote).split(" ").map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("\\s+"), "g");
  const found = [...text.matchAll(pattern)];
  return found.length === 1 ? [found[0].index, found[0].index + found[0][0].length] : null;
}
