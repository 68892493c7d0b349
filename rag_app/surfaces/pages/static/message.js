// A question or an answer as it is shown, with its sources and what can be done with it.

import { element, render } from "./markdown.js";

/**
 * @typedef {{chunkId: string, start?: number, end?: number}} Passage
 * @typedef {{id: string, type: string, label: string, score: number, citation?: number | null, quote?: string | null,
 *   available?: boolean, passage?: Passage | null, passages?: (Passage & {quote: string})[]}} Source
 * @typedef {{usedRag?: boolean, fallbackToGeneric?: boolean, insufficientContext?: boolean, interrupted?: boolean,
 *   refused?: boolean, courtesy?: boolean, understood?: string, language?: string}} Flags
 * @typedef {{id: string, role: string, content: string, capability?: string | null, sources: Source[], flags: Flags | null,
 *   feedback: {rating: string, comment: string | null, expectedSourceId: string | null} | null}} Message
 */

/** @param {string} capability */
export const spoken = (capability) => capability.replaceAll("_", " ");

/** @param {Source[]} sources */
export const cited = (sources) =>
  sources.filter((each) => each.citation != null).sort((a, b) => Number(a.citation) - Number(b.citation));

/**
 * Whether an answer says that there is none.
 * @param {Message} message
 */
export const isRefusal = (message) => Boolean(message.flags?.refused);

/**
 * The source with the passage of one of its citations in the text.
 * @param {Message} message
 * @param {HTMLElement} from a button that names a source: a chip also says which citation of it it is
 */
export function sourceBehind(message, from) {
  const source = message.sources.find((each) => each.id === from.dataset.source);
  const passage = source?.passages?.[Number(from.dataset.mention ?? Number.NaN)];
  return source && passage && source.available !== false ? { ...source, quote: passage.quote, passage } : source;
}

/** @param {Source} source */
const quotesOf = (source) => [...new Set(source.passages?.length ? source.passages.map((each) => each.quote) : source.quote ? [source.quote] : [])];

/**
 * Chips at the claim: each number leads to the passage of its source that supports it.
 * @param {Source[]} sources
 * @param {boolean} settled whether it is known what is cited
 */
export function chips(sources, settled) {
  /** @type {Record<number, number>} */
  const mentions = {};
  return (/** @type {number[]} */ numbers, /** @type {string} */ written) => {
    const made = element("span", { class: "chips" });
    for (const number of numbers) {
      const source = sources.find((each) => each.citation === number);
      const mention = (mentions[number] = (mentions[number] ?? -1) + Number(/^\[Source \d+\]$/.test(written)));
      if (source) {
        const chip = element("button", { type: "button", class: "chip", "aria-label": `Source ${number}: ${source.label}` }, String(number));
        chip.dataset.source = source.id;
        chip.dataset.mention = String(mention);
        made.append(chip);
      } else if (!settled) made.append(element("span", { class: "chip waiting", "aria-hidden": "true" }, String(number)));
      else made.append(`[${number}]`);
    }
    return made;
  };
}

/**
 * @param {Message} message
 * @param {boolean} settled
 */
export function prose(message, settled = true) {
  return element("div", { class: "prose", ...(message.flags?.language ? { lang: message.flags.language } : {}) }, render(message.content, chips(message.sources, settled)));
}

/** @param {Message} message */
export function questionOf(message) {
  const text = element("p", { class: "asked" }, message.content);
  const edit = element("button", { type: "button", class: "quiet small", "data-do": "edit" }, "Edit");
  const made = element("article", { class: "turn question", "aria-label": "Your question" }, text, element("div", { class: "actions" }, edit));
  made.dataset.message = message.id;
  return made;
}

/** @param {Source} source */
function note(source) {
  const number = source.citation == null ? "" : String(source.citation);
  const open = element("button", { type: "button", class: "link note-title" }, source.label);
  open.dataset.source = source.id;
  const kind = spoken(source.type);
  const said = element("div", {}, open);
  if (!source.label.toLowerCase().startsWith(kind)) said.append(element("span", { class: "faint small" }, ` ${kind}`));
  if (source.available === false) said.append(element("p", { class: "faint small" }, "This source was deleted, or you may no longer see it."));
  else if (source.quote) said.append(element("p", { class: "small quote" }, source.quote));
  const mark = number ? element("span", { class: "chip still", "aria-hidden": "true" }, number) : element("span");
  return element("li", {}, mark, said);
}

const NEAREST = 3; // sources that a refusal shows without being asked

/** @param {Message} message */
export function notes(message) {
  const used = cited(message.sources);
  const others = message.sources.filter((each) => each.citation == null);
  const made = element("aside", { class: "notes", "aria-label": "Sources" });
  if (used.length) made.append(element("h3", {}, "Cited"), element("ol", {}, ...used.map(note)));
  const nearest = isRefusal(message) ? others.splice(0, NEAREST) : [];
  if (nearest.length) made.append(element("h3", {}, "Closest hits"), element("ul", {}, ...nearest.map(note)));
  if (others.length) {
    const list = element("ul", {}, ...others.map(note));
    made.append(element("details", {}, element("summary", {}, `Also found (${others.length})`), list));
  }
  return made;
}

/** @param {Message} message */
function remark(message) {
  const flags = message.flags ?? {};
  if (flags.interrupted) return element("p", { class: "notice small" }, "Stopped. The text written so far is kept.");
  if (flags.fallbackToGeneric) return element("p", { class: "notice warn small" }, "The model failed. These sources were found.");
  if (flags.courtesy) return null;
  if (isRefusal(message) && flags.language) return null; // its own words say it, in the language of the question
  if (isRefusal(message)) return element("p", { class: "refusal small" }, "Not answered: nothing that was found clearly answers this.");
  if (message.capability === "general_chat" && flags.usedRag === false && !message.sources.length)
    return element("p", { class: "notice small" }, "Answered without sources.");
  return null;
}

/**
 * @param {string} act
 * @param {string} said
 * @param {string} [label]
 */
function button(act, said, label) {
  return element("button", { type: "button", class: "quiet small", "data-do": act, ...(label ? { "aria-label": label } : {}) }, said);
}

/** @param {Message} message */
export function answerOf(message) {
  const refused = isRefusal(message);
  const made = element("article", { class: `turn answer${refused ? " refused" : ""}`, "aria-label": refused ? "Not answered" : "Answer" });
  made.dataset.message = message.id;
  const main = element("div", { class: "answer-main" });
  const said = remark(message);
  if (said && refused) main.append(said);
  main.append(prose(message));
  if (said && !refused) main.append(said);
  if (message.flags?.understood) main.append(element("p", { class: "faint small" }, `Understood as: ${message.flags.understood}`));
  const found = message.sources.length ? notes(message) : null;
  if (found && refused) main.append(found); // its text may lead to them
  const rated = message.feedback?.rating;
  const up = button("positive", "Right", "This answer is right");
  const down = button("negative", "Wrong", "This answer is wrong");
  up.setAttribute("aria-pressed", String(rated === "positive"));
  down.setAttribute("aria-pressed", String(rated === "negative"));
  const actions = element("div", { class: "actions" }, button("copy", "Copy", "Copy with citations"), button("again", "Ask again"), up, down);
  if (message.capability) actions.append(element("span", { class: "faint small kind" }, spoken(message.capability)));
  main.append(actions);
  made.append(main);
  if (found && !refused) made.append(found);
  return made;
}

/**
 * An answer that is being written: its parts are changed as events come.
 */
export function growing() {
  const text = element("div", { class: "prose" });
  const state = element("p", { class: "working", "aria-hidden": "true" }, "Looking for sources");
  const main = element("div", { class: "answer-main" }, text, state);
  const made = element("article", { class: "turn answer", "aria-label": "Answer", "aria-busy": "true" }, main);
  return { made, text, state };
}

/**
 * The answer as plain text with its sources, for the clipboard.
 * @param {Message} message
 */
export function withCitations(message) {
  const lines = cited(message.sources).map((each) => `[${each.citation}] ${[each.label, quotesOf(each).map((quote) => `“${quote}”`).join(" … ")].filter(Boolean).join(": ")}`);
  const text = message.content.replace(/\[Sources?\s+([^\]]+)\]/gi, (_, numbers) => `[${numbers.replace(/Source\s+/gi, "")}]`);
  return lines.length ? `${text}\n\nSources\n${lines.join("\n")}\n` : `${text}\n`;
}

/** @param {Message} message */
export function feedbackForm(message) {
  const form = /** @type {HTMLFormElement} */ (element("form", { class: "feedback" }));
  const reason = element("textarea", { id: `why-${message.id}`, name: "comment", rows: "2", maxlength: "2000" });
  reason.append(message.feedback?.comment ?? "");
  const expected = element("input", { id: `what-${message.id}`, name: "expected", maxlength: "200", list: `those-${message.id}` });
  const known = element("datalist", { id: `those-${message.id}` });
  for (const each of message.sources) known.append(element("option", { value: each.id }, each.label));
  form.append(
    element("div", { class: "field" }, element("label", { for: `why-${message.id}` }, "What is wrong with it?"), reason),
    element("div", { class: "field" }, element("label", { for: `what-${message.id}` }, "Which source should have been used? Its id or name (optional)"), expected, known),
    element("div", { class: "row" }, element("button", { class: "primary", type: "submit" }, "Send"), element("button", { type: "button", "data-do": "no-feedback" }, "Cancel")),
    element("p", { class: "small problem", role: "alert" }),
  );
  return form;
}
